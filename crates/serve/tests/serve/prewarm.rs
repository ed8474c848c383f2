//! Snapshots and loading as users meet them: another daemon takes the volume over and begins with what the first one's cache held, says why, can
//! be told to load and to stop, and never serves what is no longer true.

use super::http::ask;
use super::support::{Client, eventually};
use forebay_control::DecisionKind;
use forebay_serve::Daemon;
use forebay_serve::config::Config;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const TEXT: &str = r#"
listen = ["unix:nbd.sock"]

[[volume]]
name = "disk"
origin = "disk.img"
cache = "1MiB"

[snapshots]
directory = "snapshots"
every = "100ms"
keep = 3

[http]
listen = "off"
socket = "http.sock"

[control.warmup]
spared_min = 0.0
"#;

const BLOCK: u64 = 4096;
const SOON: Duration = Duration::from_secs(20);

fn folder(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("snapshots")).unwrap();
    std::fs::write(folder.path().join("forebay.toml"), text).unwrap();
    write_disk(folder.path(), 1);
    folder
}

/// Makes every byte of a block its number plus `version`.
fn write_disk(folder: &Path, version: u64) {
    let bytes: Vec<u8> = (0..1024).flat_map(|block: u64| [(block + version) as u8; BLOCK as usize]).collect();
    std::fs::write(folder.join("disk.img"), bytes).unwrap();
}

fn start(folder: &Path) -> Daemon {
    Daemon::start(Config::read(&folder.join("forebay.toml")).expect("a right file")).expect("it starts")
}

fn read(client: &mut Client, block: u64, version: u64) {
    assert_eq!(client.read(block * BLOCK, BLOCK).unwrap(), [(block + version) as u8; BLOCK as usize]);
}

/// Every third block, twice each: 64 of them.
fn blocks() -> impl Iterator<Item = u64> {
    (0..192).step_by(3)
}

/// A daemon that is used, and leaves snapshots.
fn leave_snapshots(folder: &Path) {
    let daemon = start(folder);
    let mut client = Client::connect(&daemon.uris("disk")[0]);
    eventually("a snapshot is taken", SOON, || {
        blocks().for_each(|block| read(&mut client, block, 1));
        daemon.status().snapshots.unwrap().taken >= 2
    });
    drop(client);
    daemon.shutdown();
}

fn of_kind(daemon: &Daemon, kind: DecisionKind) -> Vec<String> {
    let decisions = daemon.decisions("disk");
    let found = decisions.into_iter().filter(|dated| dated.decision.kind == kind);
    found.map(|dated| dated.decision.summary).collect()
}

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

#[test]
fn who_takes_over_begins_with_what_the_cache_held_and_what_is_true() {
    let folder = folder(TEXT);
    leave_snapshots(folder.path());
    let files = || -> Vec<_> {
        std::fs::read_dir(folder.path().join("snapshots"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect()
    };
    assert!((1..=3).contains(&files().len()), "{:?}", files());
    // One more that is damaged, the newest; and the volume has changed since.
    let mut bytes = std::fs::read(files().iter().max().unwrap()).unwrap();
    bytes[100] ^= 1;
    let name = files().iter().max().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let newer = format!("{}-{:020}.fbsnap", &name[..32], u64::MAX / 2);
    std::fs::write(folder.path().join("snapshots").join(newer), bytes).unwrap();
    write_disk(folder.path(), 2);

    let daemon = start(folder.path());
    let ended = || daemon.status().volumes[0].prewarm.clone().filter(|prewarm| !prewarm.running);
    eventually("it is loaded", SOON, || ended().is_some());
    let prewarm = ended().unwrap();
    assert_eq!((prewarm.loaded_bytes, prewarm.failed_bytes), (64 * BLOCK, 0), "{prewarm:?}");
    assert_eq!((prewarm.ended.as_deref(), prewarm.source.as_deref()), (Some("done"), Some("snapshots")));
    let status = daemon.status();
    let snapshots = status.snapshots.as_ref().unwrap();
    assert_eq!((snapshots.refused, snapshots.failed), (1, 0));
    assert_eq!(status.volumes[0].used_bytes, 64 * BLOCK);
    let told = of_kind(&daemon, DecisionKind::PrewarmStarted);
    assert!(told.len() == 1 && told[0].contains("256KiB are loaded"), "{told:?}");
    let origin_reads =
        || daemon.appliance().observe("disk", false).unwrap().observation.counters.origin_reads;
    let before = origin_reads();
    let mut client = Client::connect(&daemon.uris("disk")[0]);
    blocks().for_each(|block| read(&mut client, block, 2));
    assert_eq!(origin_reads(), before, "what was loaded is answered without the origin, and is of now");
    let metrics = daemon.metrics();
    assert!(metrics.contains("forebay_snapshots_refused_total 1\n"), "{metrics}");
    daemon.shutdown();
}

#[test]
fn a_volume_that_loads_itself_at_once_is_left_to_it_unless_somebody_asks() {
    let folder = folder(&TEXT.replace("spared_min = 0.0", ""));
    leave_snapshots(folder.path());
    let daemon = start(folder.path());
    eventually("it is decided", SOON, || !of_kind(&daemon, DecisionKind::PrewarmSkipped).is_empty());
    let told = of_kind(&daemon, DecisionKind::PrewarmSkipped);
    assert!(told[0].contains("its own misses fill the cache within some"), "{told:?}");
    assert_eq!(daemon.status().volumes[0].used_bytes, 0);

    let over_socket = |method: &str, volume: &str| {
        let stream = UnixStream::connect(daemon.http_socket().unwrap()).unwrap();
        let (status, body) = ask(stream, method, &format!("/api/v1/volumes/{volume}/prewarm"), "");
        (status, serde_json::from_str::<serde_json::Value>(&body).unwrap())
    };
    assert_eq!(over_socket("POST", "nothing").0, 404);
    let (status, body) = over_socket("POST", "disk");
    assert_eq!((status, body["schema"].as_str()), (200, Some("forebay.prewarm/1")));
    eventually("it is loaded", SOON, || daemon.status().volumes[0].used_bytes == 64 * BLOCK);
    // Stopped: what is loaded stays, and what is asked for in the same breath is forgotten.
    assert_eq!(over_socket("POST", "disk").0, 200);
    assert_eq!(over_socket("DELETE", "disk").0, 200);
    assert_eq!(daemon.status().volumes[0].used_bytes, 64 * BLOCK);
    // There is nothing to load into.
    daemon.appliance().set_quota("disk", forebay_units::Bytes::ZERO).unwrap();
    eventually("its quota is 0", SOON, || over_socket("POST", "disk").0 == 409);
    let (_, body) = over_socket("POST", "disk");
    assert!(body.to_string().contains("volume `disk` has no cache that could be loaded"), "{body}");
    daemon.shutdown();
    // Without snapshots there is nothing to ask for.
    let text = TEXT.replace("[snapshots]\ndirectory = \"snapshots\"\nevery = \"100ms\"\nkeep = 3\n", "");
    std::fs::write(folder.path().join("forebay.toml"), text).unwrap();
    let daemon = start(folder.path());
    let stream = UnixStream::connect(daemon.http_socket().unwrap()).unwrap();
    let (status, body) = ask(stream, "POST", "/api/v1/volumes/disk/prewarm", "");
    assert!(status == 409 && body.contains("snapshots.directory"), "{status} {body}");
}
