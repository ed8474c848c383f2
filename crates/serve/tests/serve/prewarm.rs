//! Snapshots and loading as users meet them: another daemon takes the volume over and begins with what the first one's cache held, says why, can
//! be told to load and to stop, and never serves what is no longer true.

use super::http::ask;
use super::support::{Client, eventually};
use forebay_cache::flash::VolumeId;
use forebay_cache::snapshot::{Activity, Snapshot, SnapshotHeader, SnapshotWriter};
use forebay_control::DecisionKind;
use forebay_control::prewarm::{Entry, LoadScore};
use forebay_serve::Daemon;
use forebay_serve::config::Config;
use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) const TEXT: &str = r#"
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

pub(super) const BLOCK: u64 = 4096;
pub(super) const SOON: Duration = Duration::from_secs(20);

pub(super) fn folder(text: &str) -> tempfile::TempDir {
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

pub(super) fn start(folder: &Path) -> Daemon {
    Daemon::start(Config::read(&folder.join("forebay.toml")).expect("a right file")).expect("it starts")
}

pub(super) fn read(client: &mut Client, block: u64, version: u64) {
    assert_eq!(client.read(block * BLOCK, BLOCK).unwrap(), [(block + version) as u8; BLOCK as usize]);
}

/// Every third block, twice each: 64 of them.
pub(super) fn blocks() -> impl Iterator<Item = u64> {
    (0..192).step_by(3)
}

/// A daemon that is used, and leaves snapshots.
pub(super) fn leave_snapshots(folder: &Path) {
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
    let newer = format!("{}-{:020}.fbsnap", &name[..32], 1u64 << 60);
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
    assert_eq!((status.volumes[0].used_bytes, status.cache.used_bytes), (64 * BLOCK, 64 * BLOCK));
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

/// The newest snapshot of the volume, and how many there are.
pub(super) fn newest(folder: &Path) -> Option<(Snapshot, usize)> {
    let entries = std::fs::read_dir(folder.join("snapshots")).unwrap();
    let files: BTreeSet<_> = entries.map(|entry| entry.unwrap().path()).collect();
    let files: Vec<_> =
        files.iter().filter(|path| path.extension().is_some_and(|end| end == "fbsnap")).collect();
    let newest = files.last()?;
    let name = newest.file_name().unwrap().to_str().unwrap();
    let volume = VolumeId(u128::from_str_radix(&name[..32], 16).unwrap());
    Some((Snapshot::parse(std::fs::read(newest).unwrap(), volume).unwrap(), files.len()))
}

pub(super) fn with_scores(snapshot: &Snapshot) -> Vec<(u64, u8)> {
    let mut found = Vec::new();
    snapshot.for_each(|block, score| found.push((block, score)));
    found
}

#[test]
fn snapshots_that_are_taken_while_a_cache_is_loaded_hold_what_is_yet_to_come() {
    let folder = folder(TEXT);
    leave_snapshots(folder.path());
    // One block a second: this load takes a minute.
    let slow = format!("{TEXT}bytes_per_second_max = \"4KiB\"\n");
    let use_while_loading = |blocks: std::ops::Range<u64>, every: &str| {
        std::fs::write(folder.path().join("forebay.toml"), slow.replace("100ms", every)).unwrap();
        let daemon = start(folder.path());
        let loading = || daemon.status().volumes[0].prewarm.as_ref().is_some_and(|load| load.running);
        eventually("it is being loaded", SOON, loading);
        let mut client = Client::connect(&daemon.uris("disk")[0]);
        blocks.for_each(|block| read(&mut client, block, 1));
        (daemon, client)
    };
    // Every 100 ms,
    let (daemon, client) = use_while_loading(500..520, "100ms");
    eventually("a snapshot is taken", SOON, || daemon.status().snapshots.unwrap().taken >= 1);
    let load = daemon.status().volumes[0].prewarm.clone().unwrap();
    assert!(load.running && load.loaded_bytes < 32 * BLOCK, "{load:?}");
    let (snapshot, _) = newest(folder.path()).unwrap();
    let mut expected: Vec<(u64, u8)> = blocks().map(|block| (block, 1)).collect();
    expected.extend((500..520).map(|block| (block, 0)));
    assert_eq!(with_scores(&snapshot), expected);
    // The cache that is half empty is of as much use as it was: else who comes next would load nothing.
    let activity = snapshot.header().activity;
    assert!(activity.hits * 4 > activity.lookups * 3, "{activity:?}");
    drop(client);
    daemon.shutdown();
    // and once more at the end.
    let (daemon, client) = use_while_loading(600..601, "1d");
    drop(client);
    daemon.shutdown();
    let (snapshot, _) = newest(folder.path()).unwrap();
    let found = with_scores(&snapshot);
    assert!(found.contains(&(600, 0)), "{found:?}");
    assert!(blocks().all(|block| found.contains(&(block, 1))), "{found:?}");
}

#[test]
fn a_volume_that_loads_itself_at_once_is_left_to_it_unless_somebody_asks() {
    let folder = folder(&TEXT.replace("spared_min = 0.0", ""));
    leave_snapshots(folder.path());
    let daemon = start(folder.path());
    eventually("it is decided", SOON, || !of_kind(&daemon, DecisionKind::PrewarmSkipped).is_empty());
    let told = of_kind(&daemon, DecisionKind::PrewarmSkipped);
    assert!(told[0].contains("its own misses can fill the cache in"), "{told:?}");
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

/// As clients do that wait for a slow origin's answers: what a warm cache was asked says little of how soon a cold one fills.
#[test]
fn a_volume_that_does_not_load_itself_as_soon_as_was_thought_is_loaded_after_all() {
    let folder = folder(&TEXT.replace("spared_min = 0.0", ""));
    leave_snapshots(folder.path());
    let daemon = start(folder.path());
    let of = |kind| of_kind(&daemon, kind);
    eventually("it is decided", SOON, || !of(DecisionKind::PrewarmSkipped).is_empty());
    let mut client = Client::connect(&daemon.uris("disk")[0]);
    let mut again = [0, 3, 6].into_iter().cycle();
    eventually("it is loaded", SOON, || {
        // Some ten times a second.
        std::thread::sleep(Duration::from_millis(100));
        read(&mut client, again.next().unwrap(), 1);
        daemon.status().volumes[0].used_bytes == 64 * BLOCK
    });
    let told = of(DecisionKind::PrewarmStarted);
    assert!(told.len() == 1 && told[0].contains("are loaded into the cache of disk"), "{told:?}");
    assert_eq!(of(DecisionKind::PrewarmSkipped).len(), 1);
    drop(client);
    daemon.shutdown();
    // Where there is nothing to load, who asks for it is told.
    std::fs::remove_dir_all(folder.path().join("snapshots")).unwrap();
    std::fs::create_dir(folder.path().join("snapshots")).unwrap();
    let daemon = start(folder.path());
    let stream = UnixStream::connect(daemon.http_socket().unwrap()).unwrap();
    assert_eq!(ask(stream, "POST", "/api/v1/volumes/disk/prewarm", "").0, 200);
    eventually("it is told", SOON, || !of_kind(&daemon, DecisionKind::PrewarmSkipped).is_empty());
    let told = of_kind(&daemon, DecisionKind::PrewarmSkipped);
    assert!(told.len() == 1 && told[0].ends_with("no snapshot of it can be used"), "{told:?}");
    daemon.shutdown();
}

#[test]
fn somebody_who_asks_has_all_loaded_that_there_is_room_for_and_not_the_working_set() {
    let folder = folder(&format!("{TEXT}\n[observe]\nwindow = \"100ms\"\n"));
    let daemon = start(folder.path());
    let mut client = Client::connect(&daemon.uris("disk")[0]);
    (0..100).for_each(|block| read(&mut client, block, 1));
    let taken = || daemon.status().snapshots.unwrap().taken;
    // Of the snapshots that are kept none knows of a window in which these were read.
    eventually("snapshots are taken", SOON, || {
        (200..220).for_each(|block| read(&mut client, block, 1));
        taken() >= 10
    });
    drop(client);
    daemon.shutdown();
    let daemon = start(folder.path());
    let used = || daemon.status().volumes[0].used_bytes / BLOCK;
    eventually("the working set is loaded", SOON, || {
        used() > 0 && daemon.status().volumes[0].prewarm.as_ref().is_some_and(|load| !load.running)
    });
    assert!((20..60).contains(&used()), "{}", used());
    let stream = UnixStream::connect(daemon.http_socket().unwrap()).unwrap();
    assert_eq!(ask(stream, "POST", "/api/v1/volumes/disk/prewarm", "").0, 200);
    eventually("all is loaded", SOON, || used() == 120);
    daemon.shutdown();
}

/// The five snapshots that PRESTO's slides explain their scores with, of ten blocks: a bit each. Of the blocks in `AGAIN` they say that they had been used again.
const SLIDES: [u64; 5] = [0b1001100001, 0b0011011000, 0b1101000011, 0b1110111000, 0b0110110101];
const AGAIN: [u64; 5] = [0b1000000000, 0, 0b1000000000, 0b1000001000, 0];

const CHOICES: &str = r#"
listen = ["unix:nbd.sock"]

[[volume]]
name = "disk"
origin = "disk.img"
cache = "64KiB"

[snapshots]
directory = "snapshots"
every = "1d"

[http]
listen = "off"
socket = "http.sock"

# Nothing is loaded unless somebody asks.
[control.warmup]
hit_ratio_min = 1.0
"#;

/// Puts [`SLIDES`] where the snapshots of the daemon's volume are.
fn write_slides(folder: &Path, daemon: &Daemon) {
    let volume = VolumeId::new("disk", &daemon.appliance().observe("disk", false).unwrap().origin);
    let taken_at_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    for (sequence, (cached, again)) in (1u64..).zip(SLIDES.into_iter().zip(AGAIN)) {
        let header = SnapshotHeader {
            volume,
            block_bytes: BLOCK as u32,
            volume_blocks: 1024,
            sequence,
            taken_at_unix_s,
            activity: Activity {
                lookups: 1000,
                hits: 900,
                span_ms: 1000,
                working_set_blocks: 10,
                quota_blocks: 16,
            },
        };
        let mut writer = SnapshotWriter::new(header, true).unwrap();
        for block in (0..10).filter(|block| cached >> block & 1 == 1) {
            writer.push(block, (again >> block & 1) as u8).unwrap();
        }
        let name = format!("{:032x}-{sequence:020}.fbsnap", volume.0);
        std::fs::write(folder.join("snapshots").join(name), writer.finish()).unwrap();
    }
}

/// Empties the cache, has it loaded as `order` says, and tells what it holds then.
fn load(daemon: &Daemon, order: &str) -> BTreeSet<u64> {
    let appliance = daemon.appliance();
    appliance.set_quota("disk", forebay_units::Bytes::ZERO).unwrap();
    eventually("it is empty", SOON, || daemon.status().volumes[0].used_bytes == 0);
    appliance.set_quota("disk", forebay_units::Bytes::kib(64)).unwrap();
    let begun = of_kind(daemon, DecisionKind::PrewarmStarted).len();
    let stream = UnixStream::connect(daemon.http_socket().unwrap()).unwrap();
    let (status, body) = ask(stream, "POST", "/api/v1/volumes/disk/prewarm", order);
    assert_eq!(status, 200, "{body}");
    eventually("it is decided", SOON, || of_kind(daemon, DecisionKind::PrewarmStarted).len() > begun);
    eventually("it is loaded", SOON, || {
        let volume = &daemon.status().volumes[0];
        // Not the load before.
        let is_this = |loaded| loaded > 0 && loaded == volume.used_bytes;
        volume
            .prewarm
            .as_ref()
            .is_some_and(|load| load.ended.as_deref() == Some("done") && is_this(load.loaded_bytes))
    });
    held(daemon)
}

fn held(daemon: &Daemon) -> BTreeSet<u64> {
    daemon.appliance().list_resident("disk").unwrap().iter().map(|listed| listed.block().0).collect()
}

#[test]
fn each_score_loads_the_blocks_that_it_calls_the_best() {
    let folder = folder(CHOICES);
    let daemon = start(folder.path());
    write_slides(folder.path(), &daemon);
    // Three and seven of ten, in the order of their scores; where these are equal, those of the smaller number. The first four are the slides' own examples;
    // by numbers 8 has 12, 4 and 7 have 11, 5 has 10, 0 has 9, 9 has 8, 3 and 6 have 6; decayed, 2^(1/6) more each, 8 has 4.78, 4 and 7 have 4.63, 5 has 4.49,
    // 0 has 4.32, 9 has 4.12, 6 has 3.80. With what was used again 9 has 8.0, 8 has 4.52, 4 and 7 have 4.37, 3 has 4.27, 5 has 4.24, 0 has 4.08, 6 has 3.58.
    for (score, order) in [
        (LoadScore::KRecent, [0, 2, 4, 5, 7, 8, 3]),
        (LoadScore::KFrequent, [0, 4, 5, 6, 7, 8, 9]),
        (LoadScore::KFrerecentQuadratic, [8, 4, 7, 5, 0, 9, 2]),
        (LoadScore::KFrerecentLinear, [8, 4, 7, 5, 0, 9, 3]),
        (LoadScore::FrequencyPerByte, [0, 4, 5, 6, 7, 8, 9]),
        (LoadScore::DecayedFrequency, [8, 4, 7, 5, 0, 9, 6]),
        (LoadScore::UsedAgain, [9, 8, 4, 7, 3, 5, 0]),
    ] {
        for count in [3, 7] {
            let share = f64::from(count) / 16.0;
            let found = load(&daemon, &format!("{{\"score\": \"{score}\", \"cache_share_max\": {share}}}"));
            assert_eq!(found, order[..count as usize].iter().copied().collect(), "{score}, {count}");
        }
        let decisions = daemon.decisions("disk");
        let facts = &decisions
            .iter()
            .rfind(|dated| dated.decision.kind == DecisionKind::PrewarmStarted)
            .unwrap()
            .decision
            .facts;
        let text =
            |name: &str| facts.iter().find(|fact| fact.name == name).map(|fact| format!("{:?}", fact.value));
        assert!(
            text("score").unwrap().contains(score.name()) && text("insertion").unwrap().contains("tail"),
            "{facts:?}"
        );
    }
    // What is not chosen is as configured.
    assert_eq!(load(&daemon, "{\"cache_share_max\": 0.1875}"), BTreeSet::from([9, 8, 4]));
    daemon.shutdown();
    std::fs::write(
        folder.path().join("forebay.toml"),
        format!("{CHOICES}score = \"k-recent\"\ncache_share_max = 0.1875\nbytes_per_second_max = \"1MiB\""),
    )
    .unwrap();
    let daemon = start(folder.path());
    assert_eq!(load(&daemon, ""), BTreeSet::from([0, 2, 4]));
    // What cannot be understood changes nothing.
    for (order, message) in [
        ("{\"score\": \"k-best\"}", "k-best"),
        ("{\"insertion\": \"top\"}", "own-partition"),
        ("{\"cache_share_max\": 1.5}", "expected 0 to 1"),
        // What JSON makes of a number that is none.
        ("{\"cache_share_max\": null}", "expected f64"),
        ("{\"cache_share_max\": NaN}", "expected"),
        ("{\"cache_share_max\": 1e999}", "number out of range"),
        ("{\"bytes_per_second\": 0}", "expected at least 1"),
        ("{\"ranges\": [], \"bytes_per_second\": 0}", "expected at least 1"),
        ("{\"ranges\": [], \"score\": \"k-recent\"}", "not for `ranges`"),
    ] {
        let stream = UnixStream::connect(daemon.http_socket().unwrap()).unwrap();
        let (status, body) = ask(stream, "POST", "/api/v1/volumes/disk/prewarm", order);
        assert!(status == 400 && body.contains(message), "{status} {body}");
    }
    assert_eq!(held(&daemon), BTreeSet::from([0, 2, 4]));
    daemon.shutdown();
}

#[test]
fn where_loaded_blocks_enter_says_which_of_them_stay() {
    let folder = folder(CHOICES);
    let daemon = start(folder.path());
    write_slides(folder.path(), &daemon);
    // 16 blocks, of which single-touch has 3. Seven are loaded, one after the other: 0, 2, 4, 5, 7, 8, 3. Nine others are read twice, so that single-touch is
    // empty and the cache full; three misses then each take the last of multi-touch: at the tail those loaded last, at the head those loaded first. In a
    // partition of their own nobody takes them; a block of it that is used is multi-touch's then.
    for (entry, left) in [
        (Entry::Tail, vec![0, 2, 4, 5]),
        (Entry::Head, vec![3, 5, 7, 8]),
        (Entry::OwnPartition, vec![0, 2, 3, 4, 5, 7, 8]),
    ] {
        let order = format!(
            "{{\"score\": \"k-recent\", \"insertion\": \"{entry}\", \"cache_share_max\": 0.4375, \"bytes_per_second\": 262144}}"
        );
        assert_eq!(load(&daemon, &order), BTreeSet::from([0, 2, 3, 4, 5, 7, 8]));
        let mut client = Client::connect(&daemon.uris("disk")[0]);
        (100..109).for_each(|block| read(&mut client, block, 1));
        (100..109).for_each(|block| read(&mut client, block, 1));
        (200..203).for_each(|block| read(&mut client, block, 1));
        let found: Vec<u64> = held(&daemon).into_iter().filter(|block| *block < 10).collect();
        assert_eq!(found, left, "{entry}");
    }
    // Nor does a long scan take them, nor what is read again and again.
    let mut client = Client::connect(&daemon.uris("disk")[0]);
    (300..400).chain(300..330).for_each(|block| read(&mut client, block, 1));
    assert_eq!(held(&daemon).iter().filter(|block| **block < 10).count(), 7);
    // Who loads anew gives up what is left of it, and without room nothing else leaves.
    let before = held(&daemon);
    let stream = UnixStream::connect(daemon.http_socket().unwrap()).unwrap();
    let (status, _) = ask(
        stream,
        "POST",
        "/api/v1/volumes/disk/prewarm",
        "{\"insertion\": \"head\", \"ranges\": [{\"offset\": 2048000, \"length\": 8192}]}",
    );
    assert_eq!(status, 200);
    eventually("there is no room", SOON, || {
        daemon.status().volumes[0]
            .prewarm
            .clone()
            .is_some_and(|prewarm| prewarm.ended.as_deref() == Some("full"))
    });
    assert_eq!(held(&daemon), before);
    (400..420).for_each(|block| read(&mut client, block, 1));
    assert_eq!(held(&daemon).iter().filter(|block| **block < 10).count(), 0);
    daemon.shutdown();
}

#[test]
fn what_a_cache_holds_is_told_and_can_be_loaded_again() {
    let folder = folder(TEXT);
    let daemon = start(folder.path());
    let socket = daemon.http_socket().unwrap();
    let to = |method: &str, what: &str, body: &str| {
        ask(UnixStream::connect(&socket).unwrap(), method, &format!("/api/v1/volumes/{what}"), body)
    };
    let mut client = Client::connect(&daemon.uris("disk")[0]);
    [100, 101, 7, 7].into_iter().for_each(|block| read(&mut client, block, 1));
    let (status, told) = to("GET", "disk/resident", "");
    // Of three blocks in bands of one: what was used again first.
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (status, &told["schema"], &told["block_bytes"]),
        (200, &"forebay.resident/1".into(), &4096.into())
    );
    assert_eq!(told["ranges"], serde_json::json!([[7, 1], [100, 1], [101, 1]]));
    assert_eq!(to("GET", "other/resident", "").0, 404);
    // A hundred thousand ranges, more than two million bytes of them: 256 blocks fit, and the first of them are wanted most.
    let appliance = daemon.appliance();
    appliance.set_quota("disk", forebay_units::Bytes::ZERO).unwrap();
    eventually("it is empty", SOON, || daemon.status().volumes[0].used_bytes == 0);
    appliance.set_quota("disk", forebay_units::Bytes::mib(1)).unwrap();
    let order = |count: u64| {
        let at = |number: u64| [7, 100, 101].get(number as usize).copied().unwrap_or(number % 1024);
        let ranges: Vec<_> = (0..count)
            .map(|number| serde_json::json!({ "offset": at(number) * BLOCK, "length": BLOCK }))
            .collect();
        serde_json::json!({ "ranges": ranges }).to_string()
    };
    let (status, body) = to("POST", "disk/prewarm", &order(100_000));
    assert_eq!(status, 200, "{body}");
    eventually("it is loaded", SOON, || {
        let prewarm = daemon.status().volumes[0].prewarm.clone();
        prewarm.is_some_and(|prewarm| prewarm.ended.as_deref() == Some("full"))
    });
    assert!([7, 100, 101].iter().all(|block| held(&daemon).contains(block)));
    let (status, body) = to("POST", "disk/prewarm", &order(262_145));
    assert!(status == 400 && body.contains("262145 ranges: expected at most 262144"), "{status} {body}");
    daemon.shutdown();
}

#[test]
fn status_tells_how_fast_a_cache_is_loaded_and_not_how_fast_it_might_be() {
    // 4 MiB/s are allowed at least, and the origin has less.
    let origin = "origin = \"disk.img\"\nlayers = [{ type = \"rate\", bytes_per_second = \"64KiB\" }]";
    let folder = folder(&TEXT.replace("origin = \"disk.img\"", origin));
    let daemon = start(folder.path());
    let ranges: Vec<_> =
        blocks().map(|block| serde_json::json!({ "offset": block * BLOCK, "length": BLOCK })).collect();
    let order = serde_json::json!({ "ranges": ranges }).to_string();
    let stream = UnixStream::connect(daemon.http_socket().unwrap()).unwrap();
    assert_eq!(ask(stream, "POST", "/api/v1/volumes/disk/prewarm", &order).0, 200);
    let load = || daemon.status().volumes[0].prewarm.clone().filter(|load| load.running);
    eventually("the rate is known", SOON, || {
        load().is_some_and(|load| {
            load.bytes_per_second.is_some_and(|rate| (1..(1 << 20)).contains(&rate))
                && load.ends_in_s.is_some()
        })
    });
    daemon.shutdown();
}
