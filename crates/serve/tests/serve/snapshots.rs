//! The places of snapshots, when they are absent, hang or are full: that costs snapshots, and nothing else.

use super::prewarm::{BLOCK, SOON, TEXT, blocks, folder, leave_snapshots, newest, read, start, with_scores};
use super::support::{Client, eventually};
use forebay_appliance::Drained;
use std::collections::BTreeSet;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn a_range_that_is_not_there_costs_snapshots_and_nothing_else() {
    let range = "origin = \"reserved.img\"\noffset = \"64KiB\"\nlength = \"1MiB\"\nslot = \"64KiB\"";
    let folder = folder(&TEXT.replace("directory = \"snapshots\"", range));
    let reserved = folder.path().join("reserved.img");
    std::fs::write(&reserved, vec![0; 512 << 10]).unwrap();
    let daemon = start(folder.path());
    let mut client = Client::connect(&daemon.uris("disk")[0]);
    eventually("no snapshot can be taken", SOON, || {
        blocks().for_each(|block| read(&mut client, block, 1));
        daemon.status().snapshots.unwrap().failed >= 1
    });
    // Once it is long enough, they are.
    std::fs::write(&reserved, vec![0; 2 << 20]).unwrap();
    eventually("a snapshot is taken", SOON, || {
        blocks().for_each(|block| read(&mut client, block, 1));
        daemon.status().snapshots.unwrap().taken >= 1
    });
    let snapshots = daemon.status().snapshots.unwrap();
    assert!(snapshots.directory.starts_with("bytes 65536 to 1114112 of file"), "{snapshots:?}");
    drop(client);
    daemon.shutdown();
}

/// Whoever ends the daemon waits a little for a store that hangs, and the data path ends as it would have.
#[test]
fn a_store_that_hangs_does_not_hold_the_end_of_the_daemon() {
    for place in ["database", "origin"] {
        let folder = folder("");
        // By itself the one has 5 s of patience, the other an hour.
        let place = match place {
            "database" => "database = \"snapshots.db\"".to_owned(),
            _ => format!(
                "origin = {{ type = \"nbd\", uri = \"nbd+unix:///reserved?socket={}\", connect_timeout = \"1h\" }}\n\
                 length = \"1MiB\"\nslot = \"64KiB\"",
                folder.path().join("silent.sock").display()
            ),
        };
        let text = TEXT.replace("directory = \"snapshots\"", &place).replace("100ms", "1h");
        std::fs::write(folder.path().join("forebay.toml"), text).unwrap();
        // Somebody who is connected to, and says nothing,
        let _silent = UnixListener::bind(folder.path().join("silent.sock")).unwrap();
        let daemon = start(folder.path());
        // and somebody who has the database to himself.
        let other = rusqlite::Connection::open(folder.path().join("snapshots.db")).unwrap();
        other.execute_batch("BEGIN EXCLUSIVE").unwrap();
        let mut client = Client::connect(&daemon.uris("disk")[0]);
        client.write(0, vec![7; BLOCK as usize]).unwrap();
        blocks().skip(1).for_each(|block| read(&mut client, block, 1));
        drop(client);
        let began = Instant::now();
        assert_eq!(daemon.shutdown(), Drained::Completely, "{place}");
        let took = began.elapsed();
        assert!(took < Duration::from_secs(60), "{took:?} with {place}");
        assert_eq!(
            std::fs::read(folder.path().join("disk.img")).unwrap()[..BLOCK as usize],
            [7; BLOCK as usize]
        );
    }
}

/// Of whatever kind it is: it is told, and once it is there the cache is loaded from it.
#[test]
fn a_place_that_is_absent_at_the_start_is_told_and_taken_up_when_it_comes() {
    for (place, name) in [
        ("directory = \"snapshots\"", "snapshots"),
        ("database = \"snapshots/s.db\"", "snapshots"),
        ("origin = \"s.img\"\nlength = \"1MiB\"\nslot = \"64KiB\"", "s.img"),
    ] {
        let folder = folder(&TEXT.replace("directory = \"snapshots\"", place));
        std::fs::write(folder.path().join("s.img"), vec![0; 1 << 20]).unwrap();
        leave_snapshots(folder.path());
        let (path, away) = (folder.path().join(name), folder.path().join("away"));
        std::fs::rename(&path, &away).unwrap();
        let daemon = start(folder.path());
        let trouble = || daemon.status().snapshots.unwrap().trouble;
        eventually("it is told", SOON, || trouble().is_some());
        assert_eq!(daemon.explain("disk").unwrap().snapshots_trouble, trouble());
        let metrics = daemon.metrics();
        assert!(metrics.contains("forebay_snapshots_unavailable 1\n"), "{place}: {metrics}");
        // Who loads at the start has looked, too, and found nothing.
        std::thread::sleep(Duration::from_secs(1));
        std::fs::rename(&away, &path).unwrap();
        let loaded = || daemon.status().volumes[0].prewarm.clone().map_or(0, |prewarm| prewarm.loaded_bytes);
        eventually("it is loaded", SOON, || loaded() == 64 * BLOCK);
        assert_eq!(trouble(), None, "{place}");
        assert!(daemon.metrics().contains("forebay_snapshots_unavailable 0\n"), "{place}");
        daemon.shutdown();
    }
}

#[test]
fn a_volume_that_was_used_at_once_has_its_snapshot() {
    let folder = folder(&TEXT.replace("100ms", "1s"));
    let use_at_once = || {
        let daemon = start(folder.path());
        let mut client = Client::connect(&daemon.uris("disk")[0]);
        blocks().for_each(|block| read(&mut client, block, 1));
        daemon
    };
    let daemon = use_at_once();
    eventually("a snapshot is taken", SOON, || daemon.status().snapshots.unwrap().taken == 1);
    daemon.shutdown();
    let (snapshot, count) = newest(folder.path()).unwrap();
    assert_eq!((with_scores(&snapshot).len(), count), (64, 1));
    let activity = snapshot.header().activity;
    assert_eq!((activity.lookups, activity.hits), (64, 0), "{activity:?}");
    // Also where it ends before anybody has looked.
    use_at_once().shutdown();
    assert_eq!(newest(folder.path()).unwrap().1, 2);
}

/// A slot that is too small for one volume's snapshot is no reason for another to have none.
#[test]
fn a_last_snapshot_that_is_too_long_costs_the_next_volume_none() {
    let range = "origin = \"reserved.img\"\nlength = \"1MiB\"\nslot = \"16KiB\"\nevery_requests = 1000000000";
    let text = TEXT
        .replace("directory = \"snapshots\"", range)
        .replace("100ms", "1h")
        .replace("cache = \"1MiB\"", "cache = \"64MiB\"\nblock_size = \"512B\"\n[[volume]]\nname = \"other\"\norigin = \"other.img\"\ncache = \"1MiB\"");
    let folder = folder(&text);
    // Blocks all over a large volume: some two bytes each.
    std::fs::write(folder.path().join("reserved.img"), vec![0; 1 << 20]).unwrap();
    std::fs::write(folder.path().join("other.img"), vec![0; 1 << 20]).unwrap();
    let disk = std::fs::File::options().write(true).open(folder.path().join("disk.img")).unwrap();
    disk.set_len(4 << 30).unwrap();
    let daemon = start(folder.path());
    let mut client = Client::connect(&daemon.uris("disk")[0]);
    (0..12_000u64).for_each(|at| drop(client.read(at * 777 * 512 % (4 << 30), 512).unwrap()));
    let mut other = Client::connect(&daemon.uris("other")[0]);
    (0..100).for_each(|block| drop(other.read(block % 50 * BLOCK, BLOCK).unwrap()));
    drop((client, other));
    daemon.shutdown();
    let daemon = start(folder.path());
    eventually("the other is loaded", SOON, || daemon.status().volumes[1].used_bytes == 50 * BLOCK);
    let found = daemon.status();
    assert_eq!(found.volumes[0].used_bytes, 0, "the first had too long a snapshot: {:?}", found.snapshots);
    daemon.shutdown();
}

#[test]
fn a_full_folder_costs_snapshots_and_keeps_the_only_one() {
    no_room_costs_snapshots_and_keeps_the_older_ones("directory = \"snapshots\"");
}

#[test]
fn a_full_folder_has_room_for_a_new_snapshot_where_an_older_one_was() {
    let folder = folder(TEXT);
    let snapshots = folder.path().join("snapshots");
    // Six pages: five snapshots, and one that is being written; 24 are to be kept.
    std::fs::write(folder.path().join("forebay.toml"), TEXT.replace("keep = 3", "keep = 24")).unwrap();
    let Some(disk) = SmallDisk::mount(&snapshots, "24k") else {
        println!("left out: a folder that is full, for which a tmpfs must be mounted (root)");
        return;
    };
    let daemon = start(folder.path());
    let mut client = Client::connect(&daemon.uris("disk")[0]);
    eventually("snapshots are taken", SOON, || {
        blocks().for_each(|block| read(&mut client, block, 1));
        daemon.status().snapshots.unwrap().taken >= 20
    });
    let counters = daemon.status().snapshots.unwrap();
    assert_eq!(counters.failed, 0, "{counters:?}");
    let (_, count) = newest(folder.path()).expect("there is one");
    assert!((4..=6).contains(&count) && counters.expired >= 14, "{count}, {counters:?}");
    drop(client);
    daemon.shutdown();
    drop(disk);
}

#[test]
fn a_full_database_costs_snapshots_and_keeps_the_older_ones() {
    no_room_costs_snapshots_and_keeps_the_older_ones("database = \"snapshots/state.db\"");
}

fn no_room_costs_snapshots_and_keeps_the_older_ones(place: &str) {
    // Of a folder the only one is kept; a database is a file.
    let keep = if place.starts_with("database") { "keep = 3" } else { "keep = 1" };
    let text = TEXT.replace("keep = 3", keep);
    let folder = folder(&text.replace("directory = \"snapshots\"", place));
    let snapshots = folder.path().join("snapshots");
    let Some(disk) = SmallDisk::mount(&snapshots, "256k") else {
        println!("left out: a folder that is full, for which a tmpfs must be mounted (root)");
        return;
    };
    let daemon = start(folder.path());
    let mut client = Client::connect(&daemon.uris("disk")[0]);
    let counters = || daemon.status().snapshots.unwrap();
    let mut until = |what: &str, enough: &dyn Fn() -> bool| {
        eventually(what, SOON, || {
            blocks().for_each(|block| read(&mut client, block, 1));
            enough()
        });
    };
    until("snapshots are taken", &|| counters().taken >= 3);
    // Whatever is left is taken by somebody else, to the last byte.
    let ballast = snapshots.join("ballast");
    let mut file = std::fs::File::create(&ballast).unwrap();
    let full = loop {
        if let Err(error) = std::io::Write::write_all(&mut file, &[1; 4096]) {
            break error;
        }
    };
    assert_eq!(full.raw_os_error(), Some(28), "{full}");
    let names = || -> BTreeSet<String> {
        let entries = std::fs::read_dir(&snapshots).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    until("it is counted that none can be taken", &|| counters().failed >= 3);
    // Those from before are all there, and nothing that was begun is left behind.
    let taken = counters().taken;
    let kept = names();
    let whole = |name: &&String| name.ends_with(".fbsnap") || *name == "state.db";
    assert_eq!((kept.iter().filter(whole).count(), kept.len()), (1, 2), "{kept:?}");
    assert!(daemon.metrics().contains("forebay_snapshots_failed_total"), "{}", daemon.metrics());
    until("none is taken while it is full", &|| counters().failed >= 5);
    assert_eq!((counters().taken, names()), (taken, kept));
    // A daemon that begins now is loaded from them.
    drop(client);
    daemon.shutdown();
    let daemon = start(folder.path());
    eventually("it is loaded", SOON, || daemon.status().volumes[0].used_bytes == 64 * BLOCK);
    let mut client = Client::connect(&daemon.uris("disk")[0]);
    drop(file);
    std::fs::remove_file(&ballast).unwrap();
    eventually("snapshots are taken again", SOON, || {
        blocks().for_each(|block| read(&mut client, block, 1));
        daemon.status().snapshots.unwrap().taken >= 2
    });
    drop(client);
    daemon.shutdown();
    drop(disk);
}

/// A file system of its own, unmounted at the end.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    /// None where the machine does not let us.
    fn mount(at: &'a Path, size: &str) -> Option<SmallDisk<'a>> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(at)
            .output();
        mounted.is_ok_and(|output| output.status.success()).then_some(SmallDisk(at))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// A place in which there is no room may have some where an older snapshot of another volume is; of the one that has none it is told all the same.
#[test]
fn a_place_without_room_is_told_until_there_is_some() {
    let range = "origin = \"reserved.img\"\nlength = \"256KiB\"\nslot = \"64KiB\"";
    let folder = folder(&TEXT.replace("directory = \"snapshots\"", range));
    let reserved = folder.path().join("reserved.img");
    std::fs::write(&reserved, [0x5a; 256 << 10]).unwrap();
    let daemon = start(folder.path());
    let mut client = Client::connect(&daemon.uris("disk")[0]);
    let trouble = || daemon.status().snapshots.unwrap().trouble;
    eventually("it is told", SOON, || {
        blocks().for_each(|block| read(&mut client, block, 1));
        trouble().is_some()
    });
    let told = trouble().unwrap();
    assert!(told.starts_with("none of `disk` is written: "), "{told}");
    assert_eq!(daemon.explain("disk").unwrap().snapshots_trouble, Some(told));
    assert!(daemon.metrics().contains("forebay_snapshots_unavailable 1\n"));
    drop(client);
    daemon.shutdown();
    std::fs::write(&reserved, [0; 256 << 10]).unwrap();
    let daemon = start(folder.path());
    let mut client = Client::connect(&daemon.uris("disk")[0]);
    eventually("a snapshot is taken", SOON, || {
        blocks().for_each(|block| read(&mut client, block, 1));
        daemon.status().snapshots.unwrap().taken >= 1
    });
    assert_eq!(daemon.status().snapshots.unwrap().trouble, None);
    drop(client);
    daemon.shutdown();
}
