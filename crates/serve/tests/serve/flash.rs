//! The flash tier as its users meet it: configured in the file, kept over a restart in order, dropped when the origin's file was changed.

use super::http::ask;
use super::support::{Client, eventually};
use forebay_appliance::Drained;
use forebay_serve::Daemon;
use forebay_serve::config::Config;
use forebay_units::Bytes;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const TEXT: &str = r#"
listen = ["unix:nbd.sock"]

[[volume]]
name = "disk"
origin = "disk.img"
cache = "1MiB"
flash = "6MiB"

[flash]
path = "flash"
size = "16MiB"

[http]
listen = "off"
"#;

fn content(offset: u64) -> Vec<u8> {
    (0..65536u64).map(|at| ((offset + at) >> 9) as u8).collect()
}

fn start(folder: &Path) -> Daemon {
    Daemon::start(Config::read(&folder.join("forebay.toml")).expect("a right file")).expect("it starts")
}

/// Reads all of the volume, to and fro, so that what was read last is read first.
fn read_all(daemon: &Daemon) {
    let mut client = Client::connect(&daemon.uris("disk")[0]);
    for place in (0..128u64).rev().chain(0..128) {
        let found = client.read(place << 16, 65536).expect("a read");
        assert!(found == content(place << 16), "{place} does not read as it should");
    }
}

fn recovered(daemon: &Daemon) -> u64 {
    daemon.status().volumes[0].flash.expect("the volume has flash").recovered
}

#[test]
fn blocks_on_flash_outlive_a_restart_unless_somebody_changed_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk.img");
    std::fs::write(&disk, (0..128u64).flat_map(|place| content(place << 16)).collect::<Vec<u8>>()).unwrap();
    std::fs::write(folder.path().join("forebay.toml"), TEXT).unwrap();
    let daemon = start(folder.path());
    assert_eq!(recovered(&daemon), 0);
    read_all(&daemon);
    let status = daemon.status();
    let flash = status.volumes[0].flash.unwrap();
    assert!(flash.hits > 0 && flash.used_bytes > Bytes::mib(3).get() && flash.damaged == 0, "{flash:?}");
    let device = status.flash.unwrap();
    assert_eq!((device.capacity_bytes, device.taken_bytes), (Bytes::mib(14).get(), Bytes::mib(6).get()));
    assert_eq!(status.io.engine == "threads", status.io.reason.is_some(), "{:?}", status.io);
    let metrics = daemon.metrics();
    assert!(metrics.contains("forebay_flash_device_bytes 14680064"), "{metrics}");
    assert_eq!(daemon.shutdown(), Drained::Completely);

    let daemon = start(folder.path());
    assert!(recovered(&daemon) * 4096 > Bytes::mib(3).get(), "{} blocks", recovered(&daemon));
    read_all(&daemon);
    assert!(daemon.status().volumes[0].flash.unwrap().damaged == 0);
    assert_eq!(daemon.shutdown(), Drained::Completely);

    // Same bytes, but somebody wrote them.
    std::fs::write(&disk, std::fs::read(&disk).unwrap()).unwrap();
    let daemon = start(folder.path());
    assert_eq!(recovered(&daemon), 0);
    read_all(&daemon);
    // And not in order.
    drop(daemon);
    assert_eq!(recovered(&start(folder.path())), 0);
}

/// Whoever brings a backup back puts it where the file was, and has the daemon begin anew.
#[test]
fn blocks_of_a_file_that_was_replaced_while_it_was_served_are_not_found() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, other) = (folder.path().join("disk.img"), folder.path().join("other.img"));
    std::fs::write(&disk, vec![1; 8 << 20]).unwrap();
    std::fs::write(folder.path().join("forebay.toml"), TEXT).unwrap();
    let daemon = start(folder.path());
    let mut client = Client::connect(&daemon.uris("disk")[0]);
    (0..128u64).for_each(|place| assert_eq!(client.read(place << 16, 65536).unwrap(), vec![1; 65536]));
    drop(client);
    std::fs::write(&other, (0..128u64).flat_map(|place| content(place << 16)).collect::<Vec<u8>>()).unwrap();
    std::fs::rename(&other, &disk).unwrap();
    assert_eq!(daemon.shutdown(), Drained::Completely);
    let daemon = start(folder.path());
    assert_eq!(recovered(&daemon), 0);
    read_all(&daemon);
}

/// Its room is free only when the daemon ends, and the next one begins without what is on it: nobody would know.
#[test]
fn flash_that_was_removed_while_it_serves_is_told_and_goes_on_serving() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, flash) = (folder.path().join("disk.img"), folder.path().join("flash"));
    std::fs::write(&disk, (0..128u64).flat_map(|place| content(place << 16)).collect::<Vec<u8>>()).unwrap();
    std::fs::write(folder.path().join("forebay.toml"), TEXT).unwrap();
    let daemon = start(folder.path());
    read_all(&daemon);
    let trouble = || daemon.status().flash.unwrap().trouble;
    let seconds = Duration::from_secs(20);
    assert_eq!(trouble(), None);
    assert!(daemon.metrics().contains("forebay_flash_device_missing 0\n"), "{}", daemon.metrics());
    let aside = folder.path().join("aside");
    std::fs::rename(&flash, &aside).unwrap();
    eventually("it is told", seconds, || trouble().is_some_and(|told| told.contains("is not there")));
    assert!(daemon.metrics().contains("forebay_flash_device_missing 1\n"), "{}", daemon.metrics());
    // Put back, it is as before.
    std::fs::rename(&aside, &flash).unwrap();
    eventually("it is over", seconds, || trouble().is_none());
    std::fs::remove_file(&flash).unwrap();
    eventually("it is told", seconds, || trouble().is_some_and(|told| told.contains("was removed")));
    // Another in its place is not what is served from.
    std::fs::write(&flash, []).unwrap();
    eventually("it is told", seconds, || trouble().is_some_and(|told| told.contains("is another")));
    read_all(&daemon);
    let flash = daemon.status().volumes[0].flash.unwrap();
    assert!(flash.damaged == 0 && flash.write_errors == 0, "{flash:?}");
    assert_eq!(daemon.shutdown(), Drained::Completely);
}

/// Nothing tells that an export was changed but the operator's word, who says that only this daemon does.
#[test]
fn what_is_written_past_the_flash_of_a_volume_is_not_old_when_it_has_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let behind = folder.path().join("behind");
    std::fs::create_dir(&behind).unwrap();
    std::fs::write(
        behind.join("disk.img"),
        (0..128u64).flat_map(|place| content(place << 16)).collect::<Vec<u8>>(),
    )
    .unwrap();
    // HTTP off as well: its port is the whole machine's.
    let plain = format!("{}[http]\nlisten = \"off\"\n", TEXT.split("flash = ").next().unwrap());
    std::fs::write(behind.join("forebay.toml"), plain).unwrap();
    let behind = start(&behind);
    let text =
        TEXT.replace("disk.img", &behind.uris("disk")[0]).replace("cache = ", "sole_writer = true\ncache = ");
    let start_with = |text: &str| {
        std::fs::write(folder.path().join("forebay.toml"), text).unwrap();
        start(folder.path())
    };
    let daemon = start_with(&text);
    read_all(&daemon);
    assert_eq!(daemon.shutdown(), Drained::Completely);
    let socket = folder.path().join("behind/nbd.sock");
    std::os::unix::fs::symlink(&socket, folder.path().join("behind/other.sock")).unwrap();
    // Without its flash, by another name, and on another way to the same data.
    let others =
        [("flash = \"6MiB\"\n", ""), ("\"disk\"", "\"renamed\""), ("nbd.sock\"\nsole", "other.sock\"\nsole")];
    for (fill, (from, to)) in (7..).zip(others) {
        let daemon = start_with(&text);
        assert!(recovered(&daemon) > 0);
        assert_eq!(daemon.shutdown(), Drained::Completely);

        let other = text.replace(from, to);
        assert_ne!(other, text);
        let daemon = start_with(&other);
        let volume = if to.contains("renamed") { "renamed" } else { "disk" };
        let mut client = Client::connect(&daemon.uris(volume)[0]);
        (0..128u64).for_each(|place| client.write(place << 16, vec![fill; 65536]).unwrap());
        drop(client);
        assert_eq!(daemon.shutdown(), Drained::Completely);

        let daemon = start_with(&text);
        let mut client = Client::connect(&daemon.uris("disk")[0]);
        for place in (0..128u64).rev().chain(0..128) {
            assert!(
                client.read(place << 16, 65536).unwrap() == [fill; 65536],
                "{place} reads as it was before"
            );
        }
        drop(client);
        assert_eq!(daemon.shutdown(), Drained::Completely);
    }
    drop(behind);
}

#[test]
fn what_is_read_often_is_placed_and_a_scan_is_not_and_both_change_while_it_serves() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk.img");
    std::fs::write(&disk, (0..128u64).flat_map(|place| content(place << 16)).collect::<Vec<u8>>()).unwrap();
    let text = TEXT
        .replace("cache = \"1MiB\"", "cache = \"256KiB\"\nflash_admission = \"threshold-3\"")
        // The file is in the page cache: no read takes a disk.
        .replace("size = \"16MiB\"", "size = \"16MiB\"\nexclusive = false")
        .replace(
            "listen = \"off\"",
            "listen = \"off\"\nsocket = \"http.sock\"\n[control]\ninterval = \"100ms\"",
        );
    std::fs::write(folder.path().join("forebay.toml"), text).unwrap();
    let daemon = start(folder.path());
    let mut client = Client::connect(&daemon.uris("disk")[0]);
    let appended = |daemon: &Daemon| daemon.status().volumes[0].flash.unwrap().entered;
    // Eight chunks, which memory has half the room for, each block four times, in an order that is no run.
    let mut place = 0u64;
    for _ in 0..4 * 128 {
        place = (place * 5 + 37) % 128;
        let offset = place << 12;
        assert_eq!(client.read(offset, 4096).unwrap(), content(offset)[..4096]);
    }
    eventually("eight chunks are placed", Duration::from_secs(20), || {
        client.read(5 << 12, 4096).unwrap();
        daemon.status().volumes[0].placement.as_ref().is_some_and(|seen| seen.placed_chunks == 8)
    });
    let hot = appended(&daemon);
    assert!((64..=400).contains(&hot), "{hot} blocks entered");
    // Sixteen times as much, once: nothing of it enters but what was placed.
    for place in 16..128u64 {
        assert_eq!(client.read(place << 16, 65536).unwrap(), content(place << 16));
    }
    let scanned = appended(&daemon) - hot;
    assert!(scanned <= 128, "{scanned} blocks of a scan entered");
    let status = daemon.status();
    let placement = status.volumes[0].placement.clone().unwrap();
    assert_eq!((placement.admission.as_str(), placement.threshold), ("threshold-3", Some(3)));
    assert_eq!((placement.chunk_bytes, placement.capacity_chunks), (65536, 96));
    assert!(placement.promotions >= 8 && placement.reads > placement.read_hits, "{placement:?}");
    eventually("metrics tell the threshold", Duration::from_secs(20), || {
        daemon.metrics().contains("forebay_placement_threshold{volume=\"disk\"} 3")
    });

    let promoted = placement.promotions;
    // From now on whatever memory evicts.
    let post = |path: &str, body: &str| {
        ask(UnixStream::connect(folder.path().join("http.sock")).unwrap(), "POST", path, body)
    };
    let path = "/api/v1/volumes/disk/placement";
    let answer = post(path, "{\"admission\":\"evicted\"}");
    assert!(answer.0 == 200 && answer.1.contains("forebay.placement/1"), "{answer:?}");
    assert!(daemon.status().volumes[0].placement.is_none());
    // What the device does not keep up with is dropped, so that one scan may not be enough.
    eventually("a scan enters", Duration::from_secs(60), || {
        for place in 16..128u64 {
            assert_eq!(client.read(place << 16, 65536).unwrap(), content(place << 16));
        }
        appended(&daemon) - hot - scanned > 1000
    });
    let answer = post(path, "{\"admission\":\"adaptive\",\"migration_bytes_per_second_max\":1048576}");
    assert_eq!(answer.0, 200, "{answer:?}");
    let placement = daemon.status().volumes[0].placement.clone().unwrap();
    assert_eq!((placement.admission.as_str(), placement.bytes_per_second), ("adaptive", 1 << 20));
    // This placement has moved next to nothing, the one before it eight chunks at least: no counter goes back.
    let metrics = daemon.metrics();
    let promotions = metrics
        .lines()
        .find_map(|line| line.strip_prefix("forebay_placement_promotions_total{volume=\"disk\"} "))
        .and_then(|count| count.parse::<u64>().ok());
    assert!(promotions.is_some_and(|count| count >= promoted), "{promotions:?} of {promoted}");
    for (path, body, expected) in [
        (path, "{\"admission\":\"hottest\"}", 400),
        (path, "{\"admission\":\"lru\",\"migration_bytes_per_second_max\":1}", 400),
        ("/api/v1/volumes/none/placement", "{\"admission\":\"lru\"}", 404),
    ] {
        let (status, answer) = post(path, body);
        assert_eq!(status, expected, "{body}: {answer}");
    }
}

#[test]
fn who_is_left_out_brings_nothing_onto_flash_and_is_answered_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk.img");
    std::fs::write(&disk, (0..128u64).flat_map(|place| content(place << 16)).collect::<Vec<u8>>()).unwrap();
    let text = TEXT
        .replace("[\"unix:nbd.sock\"]", "[\"unix:nbd.sock\", \"tcp:127.0.0.1:0\"]")
        .replace("cache = \"1MiB\"", "cache = \"256KiB\"\nflash_admission = \"threshold-2\"")
        .replace("size = \"16MiB\"", "size = \"16MiB\"\nexclusive = false\nleave_out = \"::ffff:127.0.0.1\"")
        .replace("listen = \"off\"", "listen = \"off\"\nsocket = \"http.sock\"");
    std::fs::write(folder.path().join("forebay.toml"), text).unwrap();
    let daemon = start(folder.path());
    let uris = daemon.uris("disk");
    let uri =
        |scheme: &str| uris.iter().find(|uri| uri.starts_with(scheme)).expect("it listens there").clone();
    let (mut local, mut remote) = (Client::connect(&uri("nbd+unix:")), Client::connect(&uri("nbd:")));
    let seen = |daemon: &Daemon| daemon.status().volumes[0].placement.clone().unwrap();
    // Eight chunks, which memory has half the room for, each block three times, in an order that is no run.
    let read = |client: &mut Client, first_chunk: u64| {
        let mut place = 0u64;
        for _ in 0..3 * 128 {
            place = (place * 5 + 37) % 128;
            let offset = (first_chunk << 16) + (place << 12);
            assert_eq!(client.read(offset, 4096).unwrap(), content(offset)[..4096]);
        }
    };
    read(&mut remote, 0);
    assert_eq!((seen(&daemon).promotions, seen(&daemon).clients_left_out), (0, 1));
    eventually("eight chunks are placed", Duration::from_secs(20), || {
        read(&mut local, 0);
        seen(&daemon).placed_chunks == 8
    });
    let hits = daemon.status().volumes[0].flash.unwrap().hits;
    read(&mut remote, 0);
    assert!(daemon.status().volumes[0].flash.unwrap().hits > hits, "who is left out is answered from flash");

    // The other way round, while both are connected.
    let post = |leave_out: &str| {
        let body = format!("{{\"admission\":\"threshold-2\",\"leave_out\":{leave_out}}}");
        let stream = UnixStream::connect(folder.path().join("http.sock")).unwrap();
        ask(stream, "POST", "/api/v1/volumes/disk/placement", &body)
    };
    let user = rustix::process::geteuid().as_raw();
    assert_eq!(post(&format!("[\"uid:{user}\"]")).0, 200);
    let before = seen(&daemon).promotions;
    read(&mut local, 32);
    assert_eq!((seen(&daemon).promotions, seen(&daemon).clients_left_out), (before, 1));
    eventually("chunks of the other are placed", Duration::from_secs(20), || {
        read(&mut remote, 32);
        seen(&daemon).promotions > before
    });
    assert_eq!((post("[]").0, seen(&daemon).clients_left_out), (200, 0));
    let many = format!("[{}\"uid:0\"]", "\"uid:0\",".repeat(256));
    for (wrong, expected) in [("[\"host\"]", "`host` is no client"), (&*many, "257 clients")] {
        let (status, answer) = post(wrong);
        assert!(status == 400 && answer.contains(expected), "{status} {answer}");
    }
}

/// A volume that has flash is flushed behind its last request, and what comes of that no client hears.
#[test]
fn a_flush_that_fails_at_a_drain_is_told_to_who_drains() {
    for (layers, flushed) in [
        ("", true),
        ("\nlayers = [{ type = \"error\", reads = false, writes = false, flushes = true }]", false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("disk.img"), content(0)).unwrap();
        let text = TEXT
            .replace("cache = \"1MiB\"", &format!("cache = \"1MiB\"{layers}"))
            .replace("listen = \"off\"", "listen = \"off\"\nsocket = \"http.sock\"");
        std::fs::write(folder.path().join("forebay.toml"), text).unwrap();
        let _daemon = start(folder.path());
        let stream = UnixStream::connect(folder.path().join("http.sock")).unwrap();
        let answer = ask(stream, "POST", "/api/v1/volumes/disk/drain", "{\"within_ms\": 20000}");
        assert!(answer.0 == 200 && answer.1.contains("\"completely\":true"), "{answer:?}");
        assert!(answer.1.contains(&format!("\"flushed\":{flushed}")), "{answer:?}");
    }
    // The same where the whole daemon ends.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("disk.img"), content(0)).unwrap();
    let layers =
        "cache = \"1MiB\"\nlayers = [{ type = \"error\", reads = false, writes = false, flushes = true }]";
    std::fs::write(folder.path().join("forebay.toml"), TEXT.replace("cache = \"1MiB\"", layers)).unwrap();
    assert_eq!(start(folder.path()).shutdown(), Drained::NotFlushed);
}

/// No chunk would ever be placed, and what memory evicts would not enter either.
#[test]
fn a_chunk_that_a_volume_has_no_room_for_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("disk.img"), [0; 65536]).unwrap();
    let read = |admission: &str, chunk: &str| {
        let with = format!("flash = \"6MiB\"\nflash_admission = \"{admission}\"");
        let text = TEXT.replace("flash = \"6MiB\"", &with);
        let text = text.replace("[flash]", &format!("[flash]\nchunk = \"{chunk}\""));
        let text = text.replace("listen = \"off\"", "listen = \"off\"\nsocket = \"http.sock\"");
        Config::parse("f.toml", &text, folder.path())
    };
    for (admission, chunk) in [("adaptive", "4MiB"), ("lru", "4KiB"), ("evicted", "16MiB")] {
        read(admission, chunk).unwrap_or_else(|error| panic!("{admission} {chunk}: {error}"));
    }
    let error = read("threshold-2", "8MiB").unwrap_err().to_string();
    let expected = "line 8, `volume[0].flash`: 6MiB are less than a chunk, and `threshold-2` places whole chunks: expected at least `flash.chunk`, which is 8MiB";
    assert!(error.contains(expected), "{error}");
    // Whatever memory evicts needs no chunks; who asks for a placement is told that there can be none.
    let daemon = Daemon::start(read("evicted", "16MiB").unwrap()).unwrap();
    for (admission, expected) in [("lru", 409), ("evicted", 200)] {
        let stream = UnixStream::connect(folder.path().join("http.sock")).unwrap();
        let body = format!("{{\"admission\":\"{admission}\"}}");
        let (status, answer) = ask(stream, "POST", "/api/v1/volumes/disk/placement", &body);
        assert!(status == expected && (status == 200 || answer.contains("has 6MiB of flash")), "{answer}");
    }
    assert!(daemon.status().volumes[0].placement.is_none());
}

/// Who comes first would have every segment for good, and the others none.
#[test]
fn volumes_are_promised_no_more_flash_than_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let of = |quotas: &[&str]| {
        let volume = |(at, quota): (usize, &&str)| {
            std::fs::write(folder.path().join(format!("{at}.img")), [0; 65536]).unwrap();
            format!("[[volume]]\nname = \"v{at}\"\norigin = \"{at}.img\"\nflash = \"{quota}\"\n")
        };
        let volumes: String = quotas.iter().enumerate().map(volume).collect();
        let (before, behind) = (TEXT.find("[[volume]]").unwrap(), TEXT.find("[flash]").unwrap());
        format!("{}{volumes}{}", &TEXT[..before], &TEXT[behind..])
    };
    let read = |text: &str| Config::parse("f.toml", text, folder.path());
    // 14 MiB of 16 are for blocks, in whole segments.
    for quotas in [&["8MiB", "6MiB"][..], &["2.5MiB", "12.9MiB"], &["2MiB"; 7], &["14MiB"], &["16MiB"]] {
        read(&of(quotas)).unwrap_or_else(|error| panic!("{quotas:?}: {error}"));
    }
    let leaves = "expected at most the 14MiB that `flash.size`, which is 16MiB, leaves for blocks";
    for (quotas, expected) in [
        (&["14MiB", "14MiB", "14MiB"][..], &[(1, "28MiB"), (2, "42MiB")][..]),
        (&["8MiB", "8MiB"], &[(1, "16MiB")]),
        (&["2MiB"; 8], &[(7, "16MiB")]),
    ] {
        let found = read(&of(quotas)).expect_err("more than is there").problems;
        let told: Vec<(&str, &str)> = found.iter().map(|one| (&*one.key, &*one.message)).collect();
        assert_eq!(told.len(), expected.len(), "{quotas:?}: {told:?}");
        for ((key, message), (at, sum)) in told.into_iter().zip(expected) {
            let whose = format!("for volume `v{at}` flash comes to {sum}: {leaves}");
            assert!(key == format!("volume[{at}].flash") && message.ends_with(&whose), "{key}: {message}");
        }
    }
    // Of a device all of which is used the size is looked up.
    let whole = of(&["8MiB", "8MiB"]).replace("size = \"16MiB\"\n", "");
    std::fs::write(folder.path().join("flash"), vec![0; 18 << 20]).unwrap();
    read(&whole).unwrap();
    std::fs::write(folder.path().join("flash"), vec![0; 16 << 20]).unwrap();
    let error = read(&whole).unwrap_err().to_string();
    assert!(
        error.contains("line 11, `volume[1].flash`") && error.contains("`flash.path`, which has 16MiB"),
        "{error}"
    );
    // One alone may be given all, and has what that leaves.
    let daemon = Daemon::start(read(&of(&["16MiB"])).unwrap()).unwrap();
    assert_eq!(daemon.status().volumes[0].flash.unwrap().quota_bytes, Bytes::mib(14).get());
}

#[test]
fn wrong_quotas_on_flash_are_told() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("disk.img"), [0; 65536]).unwrap();
    let path = folder.path().join("forebay.toml");
    for (from, to, expected) in [
        ("[flash]", "[flesh]", "unknown"),
        ("flash = \"6MiB\"", "flash = \"1MiB\"", "too little"),
        ("flash = \"6MiB\"", "flash = \"60MiB\"", "more than `flash.size`"),
        ("flash = \"6MiB\"", "flash = \"6MiB\"\nblock_size = \"512\"", "too small for flash"),
        ("path = \"flash\"\n", "", "missing key `path`"),
        ("[flash]", "[flash]\nadmission = \"hottest\"", "is not an admission"),
        ("[flash]", "[flash]\nchunk = \"48KiB\"", "no power of two"),
        ("[flash]", "[flash]\nleave_out = [\"10.0.0.7:1\"]", "`10.0.0.7:1` is no client"),
        ("[flash]", "[flash]\nleave_out = 7", "a text in quotes, or an array of them"),
        ("[flash]", "[flash]\nmigration_bytes_per_second_max = \"1KiB\"", "64KiB"),
        ("flash = \"6MiB\"", "flash_admission = \"lru\"", "no flash"),
        ("[flash]\npath = \"flash\"\nsize = \"16MiB\"\n", "", "there is no `[flash]`"),
    ] {
        std::fs::write(&path, TEXT.replace(from, to)).unwrap();
        let error = Config::read(&path).expect_err("a wrong file").to_string();
        assert!(error.contains(expected), "`{to}`: {error}");
    }
    // What is on a device and is not ours is left alone, and seen by who only looks. What is of another size is, too.
    std::fs::write(&path, TEXT).unwrap();
    let flash = folder.path().join("flash");
    let late = [vec![0; 9 << 20], vec![7; 7 << 20]].concat();
    for (content, expected) in [
        (vec![7; 16 << 20], "`flash.path`: `"),
        (vec![7; 16 << 20], "holds something else (it starts with [07, "),
        (late, "holds something that is not Forebay's from byte "),
        (vec![0; 20 << 20], "`flash.size`: the flash file `"),
        (vec![0; 20 << 20], "has `20MiB`, expected `16MiB`; remove it to have it made anew"),
    ] {
        std::fs::write(&flash, &content).unwrap();
        let error = Config::read(&path).expect_err("it does not start").to_string();
        assert!(error.contains(expected), "{error}");
        assert!(std::fs::read(&flash).unwrap() == content, "nothing is written");
        assert!(Config::read_alone(&path).is_ok(), "who only asks a daemon need not see it");
    }
    let made_in_code = Config::read_alone(&path).unwrap();
    let error = Daemon::start(made_in_code).err().expect("it does not start").to_string();
    assert!(error.contains("has `20MiB`"), "{error}");
    // An empty file is made; what is in use is ours.
    std::fs::write(&flash, []).unwrap();
    let daemon = start(folder.path());
    Config::read(&path).unwrap();
    drop(daemon);
    Config::read(&path).unwrap();
}
