//! The pilot with real daemons and clients.

use super::{HOST, Pilot, carry_out};
use crate::Daemon;
use crate::config::{CacheConfig, Config, LayerConfig, OriginConfig, VolumeConfig};
use crate::daemon::Shared;
use crate::status::ControllerState;
use forebay_appliance::ListenerConfig;
use forebay_appliance::volume::{PrewarmEnd, PrewarmProgress};
use forebay_control::{Action, VolumeId, ZoneRange};
use forebay_origin::layer::DelayParameters;
use forebay_origin::{
    CompletionSink, DeviceStatistics, NbdOrigin, NbdOriginOptions, Origin, OriginCompletion, OriginOperation,
    OriginRequest, OriginRequestId,
};
use forebay_units::{BlockRange, ByteRange, Bytes, Nanos};
use forebay_workload::LatencyHistogram;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

struct Completions(Sender<OriginCompletion>);

impl CompletionSink for Completions {
    fn complete(&self, completion: OriginCompletion) {
        let _ = self.0.send(completion);
    }
}

/// An interval in which the daemon's own loop does not get to its second turn: what happens is the test's doing.
const NEVER: Duration = Duration::from_secs(3_600);

/// A volume of 1 MiB.
fn memory(name: &str) -> VolumeConfig {
    VolumeConfig::new(name, OriginConfig::Memory { size: Bytes::mib(1) })
}

/// A daemon with 1 MiB of cache that serves on a socket in `folder`.
fn start(folder: &Path, volumes: Vec<VolumeConfig>, interval: Duration) -> Daemon {
    let mut config = Config::new(volumes);
    config.cache_memory = Bytes::mib(1);
    config.listen = vec![ListenerConfig::Unix { path: folder.join("nbd.sock") }];
    config.control.interval = interval;
    Daemon::start(config).unwrap()
}

fn wait_for(state: ControllerState, daemon: &Daemon) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while daemon.status().controller.state != state {
        assert!(Instant::now() < deadline, "the controller is not {state:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A new client of the volume `a`, which writes and reads a block.
fn client(daemon: &Daemon) -> impl FnMut(u8) + use<> {
    let uri = daemon.uris("a")[0].parse().unwrap();
    let origin = NbdOrigin::connect(&uri, NbdOriginOptions::default()).unwrap();
    let (sender, completions) = channel();
    let sink: Arc<dyn CompletionSink> = Arc::new(Completions(sender));
    move |value| {
        let data = vec![value; 4096];
        let read = OriginOperation::Read { range: ByteRange::new(0, 4096) };
        let write = OriginOperation::Write { offset: 0, data: data.clone(), fua: false };
        for (operation, expected) in [(write, Vec::new()), (read, data)] {
            origin.submit(OriginRequest { id: OriginRequestId(1), operation }, &sink);
            let answer = completions.recv_timeout(Duration::from_secs(10)).unwrap();
            assert_eq!(answer.result, Ok(expected));
        }
    }
}

/// Its controller is dead, and the next one may start now.
fn die(pilot: &mut Pilot, shared: &Shared) {
    pilot.supervised.died();
    pilot.supervised.skip_pause();
    pilot.tell_dead(shared, "said by a test".to_owned());
}

#[test]
fn clients_are_served_while_the_controller_is_stuck() {
    const INTERVAL: Duration = Duration::from_millis(100);
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(folder.path(), vec![memory("a")], INTERVAL);
    let mut before = client(&daemon);
    before(1);
    // Whatever the control loop does, it does with this in its hands.
    let held = daemon.shared().state();
    let steps = daemon.intervals();
    let mut meanwhile = client(&daemon);
    let stuck_since = Instant::now();
    let mut value = 0u8;
    while stuck_since.elapsed() < 5 * INTERVAL || value < 100 {
        value = value.wrapping_add(1);
        before(value);
        meanwhile(value ^ 0x55);
    }
    // The step that was on its way may have ended.
    assert!(daemon.intervals() <= steps + 1, "the control loop was not stuck");
    drop(held);
    let deadline = Instant::now() + Duration::from_secs(20);
    while daemon.intervals() < steps + 3 {
        assert!(Instant::now() < deadline, "the control loop does not go on");
        std::thread::sleep(Duration::from_millis(5));
    }
    daemon.shutdown();
}

#[test]
fn the_controller_is_told_of_reads_that_hang_among_writes() {
    let folder = tempfile::tempdir().unwrap();
    let delay = DelayParameters { read: Nanos::secs(3_600), ..DelayParameters::default() };
    let volume = VolumeConfig { layers: vec![LayerConfig::Delay(delay)], ..memory("a") };
    let mut config = Config::new(vec![volume]);
    config.listen = vec![ListenerConfig::Unix { path: folder.path().join("nbd.sock") }];
    config.control.interval = NEVER;
    config.limits.drain = Duration::from_millis(1);
    let daemon = Daemon::start(config).unwrap();
    let origin =
        NbdOrigin::connect(&daemon.uris("a")[0].parse().unwrap(), NbdOriginOptions::default()).unwrap();
    let (sender, completions) = channel();
    let sink: Arc<dyn CompletionSink> = Arc::new(Completions(sender));
    let ask = |id, operation| origin.submit(OriginRequest { id: OriginRequestId(id), operation }, &sink);
    ask(1, OriginOperation::Read { range: ByteRange::new(0, 4096) });
    let mut pilot = Pilot::new();
    let shared = daemon.shared();
    let mut told = || {
        // Behind the read, on the same connection.
        ask(2, OriginOperation::Write { offset: 8192, data: vec![1; 4096], fua: false });
        let answer = completions.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!((answer.id, answer.result), (OriginRequestId(2), Ok(Vec::new())));
        let seen = pilot.observe(shared).0.volumes.remove(0);
        (seen.writes.count(), seen.reads(), seen.reads_hung, seen.writes_hung)
    };
    assert_eq!(told(), (1, 0, 0, 0));
    assert_eq!(told(), (1, 0, 1, 0));
    daemon.shutdown();
}

#[test]
fn the_latencies_of_a_volume_that_is_drained_are_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(folder.path(), vec![memory("a")], NEVER);
    // One write, one read.
    client(&daemon)(1);
    let mut pilot = Pilot::new();
    pilot.observe(daemon.shared());
    let counts = || {
        let text = daemon.metrics();
        let count = |line: &&str| line.starts_with("forebay_volume_request_duration_seconds_count");
        text.lines().filter(count).map(str::to_owned).collect::<Vec<_>>()
    };
    let of = |(op, count)| {
        format!("forebay_volume_request_duration_seconds_count{{volume=\"a\",op=\"{op}\"}} {count}")
    };
    let expected = [("read", 1), ("write", 1), ("flush", 0)].map(of);
    assert_eq!(counts(), expected);
    daemon.appliance().remove_volume("a", Duration::from_secs(5)).unwrap();
    assert_eq!(counts(), expected);
    daemon.shutdown();
}

#[test]
fn no_counter_goes_back_when_a_volume_is_drained() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(folder.path(), vec![memory("a")], NEVER);
    let mut client = client(&daemon);
    client(1);
    Pilot::new().observe(daemon.shared());
    let counters = || -> BTreeMap<String, f64> {
        let text = daemon.metrics();
        let is_counter = |line: &&str| {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            ["_total", "_bucket", "_sum", "_count"].iter().any(|end| name.ends_with(end))
        };
        let counter = |line: &str| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            (series.to_owned(), value.parse().unwrap())
        };
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.filter(is_counter).map(counter).collect()
    };
    (2..10).for_each(&mut client);
    let before = counters();
    let reads = "forebay_volume_requests_total{volume=\"a\",op=\"read\"}";
    assert_eq!(before[reads], 9.0);
    // Nobody looks at these before it goes.
    (10..20).for_each(&mut client);
    crate::orders::drain(daemon.shared(), "a", b"{\"within_ms\": 50000}").unwrap();
    let after = counters();
    for (series, value) in &before {
        let now = after.get(series);
        assert!(now.is_none_or(|now| now >= value), "{series}: {value}, then {now:?}");
    }
    assert_eq!((after[reads], counters()), (19.0, after.clone()));
    daemon.shutdown();
}

#[test]
fn of_a_volume_that_is_drained_nothing_of_now_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(folder.path(), vec![memory("a")], NEVER);
    client(&daemon)(1);
    let mut pilot = Pilot::new();
    pilot.observe(daemon.shared());
    daemon.shared().state().utilisation.insert("a".to_owned(), 0.5);
    let told = || {
        let volume = daemon.status().volumes.remove(0);
        let rates = volume.iops + volume.read_bytes_per_s + volume.write_bytes_per_s;
        let is_idle = rates == 0.0 && volume.read_latency.mean_s.is_none() && volume.hit_ratio.is_none();
        let name = "forebay_volume_working_set_bytes{volume=\"a\"} ";
        let text = daemon.metrics();
        let set = text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        (volume.state, volume.working_set_bytes, set, is_idle, text.contains("origin_utilisation{"))
    };
    let block = 4096;
    assert_eq!(told(), ("unjudged".to_owned(), block, Some(block.to_string()), false, true));
    crate::orders::drain(daemon.shared(), "a", b"{\"within_ms\": 50000}").unwrap();
    pilot.observe(daemon.shared());
    assert_eq!(told(), ("drained".to_owned(), 0, Some("0".to_owned()), true, false));
    daemon.shutdown();
}

#[test]
fn what_a_drained_volume_had_is_free_for_others() {
    let folder = tempfile::tempdir().unwrap();
    let volume = |name: &str| {
        let mut volume = memory(name);
        let delay = DelayParameters { write: Nanos::secs(3), ..DelayParameters::default() };
        volume.layers = vec![LayerConfig::Delay(delay)];
        let (may_cache, minimum) = (true, Bytes::kib(256));
        volume.cache = CacheConfig::Controlled { may_cache, minimum, maximum: None };
        volume
    };
    let daemon = start(folder.path(), vec![volume("a"), volume("b")], NEVER);
    let mut pilot = Pilot::new();
    let mut granted = || {
        pilot.turn(daemon.shared());
        pilot.supervised.controller().unwrap().granted()
    };
    granted();
    assert_eq!(granted(), Bytes::kib(512));
    // With a write on its way for some seconds it is drained for as long, and has its memory meanwhile.
    let uri = daemon.uris("a")[0].parse().unwrap();
    let origin = NbdOrigin::connect(&uri, NbdOriginOptions::default()).unwrap();
    let (sender, completions) = channel();
    let sink: Arc<dyn CompletionSink> = Arc::new(Completions(sender));
    let operation = OriginOperation::Write { offset: 0, data: vec![1; 4096], fua: false };
    origin.submit(OriginRequest { id: OriginRequestId(1), operation }, &sink);
    let wait = |what: &str, done: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !done() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    let is_on_its_way = || daemon.status().volumes[0].requests_in_flight == 1;
    wait("the write does not come", &is_on_its_way);
    std::thread::scope(|scope| {
        let drain =
            scope.spawn(|| crate::orders::drain(daemon.shared(), "a", b"{\"within_ms\": 50000}").unwrap());
        wait("it is not drained", &|| daemon.status().volumes[0].state == "drained");
        let (held, told) = (granted(), daemon.status().cache.granted_bytes);
        // On a machine that stands still it may be over by now.
        if !drain.is_finished() {
            assert_eq!((held, told), (Bytes::kib(512), 512 << 10));
        }
        assert_eq!(drain.join().unwrap()["completely"], true);
    });
    completions.recv().unwrap().result.unwrap();
    assert_eq!(granted(), Bytes::kib(256));
    assert_eq!(granted(), Bytes::kib(256), "it came back");
    assert!(!daemon.metrics().contains("outcome=\"failed\""), "{}", daemon.metrics());
    let status = daemon.status();
    assert_eq!((status.volumes[0].quota_bytes, status.cache.granted_bytes), (0, 256 << 10));
    assert!(daemon.metrics().contains("forebay_cache_capacity_bytes{volume=\"a\"} 0\n"));
    daemon.shutdown();
}

#[test]
fn what_was_ordered_while_the_controller_was_off_is_known_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let volume = |name: &str, minimum| {
        let mut volume = memory(name);
        volume.cache = CacheConfig::Controlled { may_cache: true, minimum, maximum: None };
        volume
    };
    let daemon = start(folder.path(), vec![volume("a", Bytes::kib(64)), volume("b", Bytes::ZERO)], NEVER);
    let shared = daemon.shared();
    let mut pilot = Pilot::new();
    let mut granted = || {
        pilot.turn(shared);
        pilot.supervised.controller().unwrap().granted()
    };
    granted();
    assert_eq!(granted(), Bytes::kib(64));
    daemon.set_controller_enabled(false).unwrap();
    let order = |volume, kib: u64| {
        crate::orders::set_quota(shared, volume, format!("{{\"bytes\": {}}}", kib << 10).as_bytes()).unwrap();
    };
    order("a", 512);
    order("b", 256);
    assert_eq!(granted(), Bytes::kib(64), "it is off");
    daemon.set_controller_enabled(true).unwrap();
    assert_eq!(granted(), Bytes::kib(768));
    assert_eq!(daemon.status().cache.granted_bytes, 768 << 10);
    daemon.set_controller_enabled(false).unwrap();
    order("b", 0);
    granted();
    daemon.set_controller_enabled(true).unwrap();
    assert_eq!(granted(), Bytes::kib(512));
    daemon.shutdown();
}

/// A volume whose cache is the controller's.
fn controlled(minimum: Bytes) -> VolumeConfig {
    let cache = CacheConfig::Controlled { may_cache: true, minimum, maximum: None };
    VolumeConfig { cache, ..memory("a") }
}

#[test]
fn what_is_ordered_between_a_pause_and_a_resume_within_one_interval_is_known_to_the_controller() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(folder.path(), vec![controlled(Bytes::kib(64))], NEVER);
    let shared = daemon.shared();
    let mut pilot = Pilot::new();
    pilot.turn(shared);
    pilot.turn(shared);
    assert_eq!(pilot.supervised.controller().unwrap().granted(), Bytes::kib(64));
    daemon.set_controller_enabled(false).unwrap();
    crate::orders::set_quota(shared, "a", b"{\"bytes\": 524288}").unwrap();
    daemon.set_controller_enabled(true).unwrap();
    pilot.turn(shared);
    assert_eq!(pilot.supervised.controller().unwrap().granted(), Bytes::kib(512));
    daemon.shutdown();
}

#[test]
fn what_was_decided_before_a_pause_is_not_done_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(folder.path(), vec![controlled(Bytes::ZERO)], NEVER);
    let shared = daemon.shared();
    let grown = || vec![Action::SetQuota { volume: VolumeId(0), host: HOST, blocks: 16 }];
    let quota = || daemon.status().volumes[0].quota_bytes;
    shared.switch.take_was_off();
    daemon.set_controller_enabled(false).unwrap();
    // It was asked before, and took its time.
    assert!(!carry_out(shared, grown()));
    assert_eq!(quota(), 0);
    // Switched on again it has not looked at the caches since, which others may have sized.
    daemon.set_controller_enabled(true).unwrap();
    assert!(!carry_out(shared, grown()));
    assert_eq!(quota(), 0);
    shared.switch.take_was_off();
    assert!(carry_out(shared, grown()));
    assert_eq!(quota(), 64 << 10);
    daemon.shutdown();
}

#[test]
fn a_controller_that_died_before_it_was_paused_takes_nothing_back() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(folder.path(), vec![controlled(Bytes::kib(64))], NEVER);
    let shared = daemon.shared();
    let mut pilot = Pilot::new();
    pilot.turn(shared);
    die(&mut pilot, shared);
    daemon.set_controller_enabled(false).unwrap();
    crate::orders::set_quota(shared, "a", b"{\"bytes\": 524288}").unwrap();
    daemon.set_controller_enabled(true).unwrap();
    pilot.turn(shared);
    assert_eq!(daemon.status().volumes[0].quota_bytes, 512 << 10);
    assert_eq!(pilot.supervised.controller().unwrap().granted(), Bytes::kib(512));
    daemon.shutdown();
}

/// The next controller begins with what was ordered, and with nothing of what the one before had granted.
#[test]
fn what_was_ordered_stays_when_the_controller_that_was_resumed_dies() {
    let folder = tempfile::tempdir().unwrap();
    let named = |name: &str| VolumeConfig { name: name.to_owned(), ..controlled(Bytes::ZERO) };
    let daemon = start(folder.path(), vec![named("a"), named("b"), named("c")], NEVER);
    let shared = daemon.shared();
    let mut pilot = Pilot::new();
    let grant = |volume, blocks| {
        assert!(carry_out(shared, vec![Action::SetQuota { volume: VolumeId(volume), host: HOST, blocks }]));
    };
    let quotas = || daemon.status().volumes.iter().map(|volume| volume.quota_bytes >> 10).collect::<Vec<_>>();
    let mut die_and_begin_anew = || {
        die(&mut pilot, shared);
        pilot.turn(shared);
        pilot.supervised.controller().unwrap().granted()
    };
    die_and_begin_anew();
    daemon.set_controller_enabled(false).unwrap();
    for volume in ["a", "c"] {
        crate::orders::set_quota(shared, volume, b"{\"bytes\": 262144}").unwrap();
    }
    daemon.set_controller_enabled(true).unwrap();
    die_and_begin_anew();
    grant(0, 32);
    grant(1, 16);
    // What it took away, and granted again, is its own.
    grant(2, 0);
    grant(2, 16);
    assert_eq!(quotas(), [128, 64, 64]);
    for _ in 0..2 {
        assert_eq!(die_and_begin_anew(), Bytes::kib(128));
        assert_eq!(quotas(), [128, 0, 0]);
    }
    daemon.shutdown();
}

#[test]
fn an_order_is_forgotten_only_when_the_cache_was_taken_away() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(folder.path(), vec![controlled(Bytes::ZERO)], NEVER);
    let shared = daemon.shared();
    daemon.set_controller_enabled(false).unwrap();
    crate::orders::set_quota(shared, "a", b"{\"bytes\": 262144}").unwrap();
    daemon.set_controller_enabled(true).unwrap();
    shared.switch.take_was_off();
    // Nobody carries it out, since the volume has just gone.
    daemon.appliance().remove_volume("a", Duration::from_secs(5)).unwrap();
    assert!(carry_out(shared, vec![Action::SetQuota { volume: VolumeId(0), host: HOST, blocks: 0 }]));
    assert!(daemon.metrics().contains("outcome=\"failed\""), "{}", daemon.metrics());
    assert!(shared.books.quota_orders().has("a"));
    daemon.shutdown();
}

#[test]
fn an_order_of_less_than_a_block_takes_the_cache_away() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(folder.path(), vec![controlled(Bytes::ZERO)], NEVER);
    let shared = daemon.shared();
    let order = |bytes: u64| {
        let body = format!("{{\"bytes\": {bytes}}}");
        crate::orders::set_quota(shared, "a", body.as_bytes()).unwrap()["quota_bytes"].clone()
    };
    let quota = || daemon.status().volumes[0].quota_bytes;
    daemon.set_controller_enabled(false).unwrap();
    // Of 17 blocks less one byte 16 are whole.
    assert_eq!((order((68 << 10) - 1), quota()), ((64 << 10).into(), 64 << 10));
    assert_eq!((order((4 << 10) - 1), quota()), (0.into(), 0));
    daemon.set_controller_enabled(true).unwrap();
    let mut pilot = Pilot::new();
    pilot.turn(shared);
    // What is granted now is the controller's own, and goes with it.
    assert!(carry_out(shared, vec![Action::SetQuota { volume: VolumeId(0), host: HOST, blocks: 16 }]));
    assert_eq!(quota(), 64 << 10);
    die(&mut pilot, shared);
    pilot.turn(shared);
    assert_eq!(quota(), 0);
    daemon.shutdown();
}

#[test]
fn what_a_controller_said_is_not_told_of_one_that_is_dead() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(folder.path(), vec![memory("a")], NEVER);
    let told = || {
        let volume = daemon.status().volumes.remove(0);
        (volume.state, volume.serves)
    };
    let said = ("acting".to_owned(), vec!["b".to_owned()]);
    daemon.shared().state().judged.insert("a".to_owned(), said.clone());
    assert_eq!(told(), said);
    die(&mut Pilot::new(), daemon.shared());
    assert_eq!(told(), ("unjudged".to_owned(), Vec::new()));
    daemon.shutdown();
}

#[test]
fn a_cache_of_a_fixed_size_is_neither_taken_over_nor_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let fixed = VolumeConfig { cache: CacheConfig::Fixed(Bytes::kib(64)), ..memory("fixed") };
    let daemon = start(folder.path(), vec![fixed, controlled(Bytes::ZERO)], NEVER);
    let shared = daemon.shared();
    let mut pilot = Pilot::new();
    pilot.turn(shared);
    for dies in [false, true] {
        daemon.set_controller_enabled(false).unwrap();
        daemon.set_controller_enabled(true).unwrap();
        if dies {
            pilot.turn(shared);
            die(&mut pilot, shared);
        }
        pilot.turn(shared);
        assert_eq!(pilot.supervised.controller().unwrap().granted(), Bytes::ZERO);
        assert_eq!(daemon.status().volumes[0].quota_bytes, 64 << 10);
    }
    daemon.shutdown();
}

#[test]
fn zones_are_loaded_where_they_are_and_no_more_once_that_is_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let fixed = VolumeConfig { cache: CacheConfig::Fixed(Bytes::kib(512)), ..memory("a") };
    let mut config = Config::new(vec![fixed]);
    config.listen = vec![ListenerConfig::Unix { path: folder.path().join("nbd.sock") }];
    config.control.interval = NEVER;
    config.control.rules.warmup.bytes_per_second_max = 4096;
    let daemon = Daemon::start(config).unwrap();
    let shared = daemon.shared();
    let zones = |first_block, blocks| vec![ZoneRange { first_block, blocks }];
    let loads = |zones, bytes_per_second| {
        assert!(carry_out(shared, vec![Action::Prewarm { volume: VolumeId(0), zones, bytes_per_second }]));
    };
    let wait = |what: &str, done: &dyn Fn(PrewarmProgress) -> bool| {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !shared.appliance.pulse("a").unwrap().prewarm.is_some_and(done) {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    loads(zones(4, 2), 1 << 30);
    wait("it is not loaded", &|load| load.ended == Some(PrewarmEnd::Done));
    let held = shared.appliance.list_resident("a").unwrap();
    assert_eq!(held.iter().map(|listed| listed.block().0).collect::<BTreeSet<_>>(), BTreeSet::from([4, 5]));
    // At a block a second, a read of 64 blocks makes the next one wait for a minute.
    loads(zones(64, 192), 1);
    wait("it does not begin", &|load| load.total_bytes == Bytes::kib(768) && load.ended.is_none());
    assert!(carry_out(shared, vec![Action::CancelPrewarm { volume: VolumeId(0) }]));
    wait("it goes on", &|load| load.ended == Some(PrewarmEnd::Cancelled));
    daemon.shutdown();
}

#[test]
fn the_row_of_an_interval_says_what_was_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let fixed = VolumeConfig { cache: CacheConfig::Fixed(Bytes::kib(64)), ..memory("a") };
    let daemon = start(folder.path(), vec![fixed], NEVER);
    let shared = daemon.shared();
    // Block 0 is written and read.
    client(&daemon)(1);
    let mut pilot = Pilot::new();
    let (first, rows) = pilot.observe(shared);
    let row = &rows[0];
    assert_eq!((row.reads, row.writes, row.bytes_read, row.bytes_written), (1, 1, 4096, 4096));
    assert_eq!((row.quota_bytes, row.used_bytes), (64 << 10, 4096));
    assert!(row.span_ms > 0 && row.span_ms as u128 <= began.elapsed().as_millis(), "{} ms", row.span_ms);
    // Reads alone.
    let origin =
        NbdOrigin::connect(&daemon.uris("a")[0].parse().unwrap(), NbdOriginOptions::default()).unwrap();
    let (sender, completions) = channel();
    let sink: Arc<dyn CompletionSink> = Arc::new(Completions(sender));
    let operation = OriginOperation::Read { range: ByteRange::new(0, 4096) };
    origin.submit(OriginRequest { id: OriginRequestId(1), operation }, &sink);
    completions.recv_timeout(Duration::from_secs(20)).unwrap().result.unwrap();
    let (second, rows) = pilot.observe(shared);
    assert!(rows[0].read_us.iter().all(Option::is_some) && rows[0].write_us == [None; 4], "{:?}", rows[0]);
    assert_eq!(second.interval, second.at.saturating_since(first.at));
    let told = daemon.status().volumes.remove(0);
    assert!(told.read_latency.mean_s > Some(0.0) && told.write_latency.mean_s.is_none(), "{told:?}");
    assert!(told.read_bytes_per_s > 0.0 && told.write_bytes_per_s == 0.0, "{told:?}");
    daemon.shutdown();
}

#[test]
fn latencies_are_told_under_their_percentiles() {
    let mut latencies = LatencyHistogram::new();
    for (millis, count) in [(1, 90), (10, 7), (100, 3)] {
        latencies.record_many(Nanos::millis(millis), count);
    }
    let [mean, p50, p95, p99] = super::microseconds(&latencies.snapshot()).map(Option::unwrap);
    // 90 + 70 + 300 ms of a hundred; a histogram tells the rest to some per cent.
    assert!((mean - 4_600.0).abs() < 1.0, "{mean}");
    for (told, micros) in [(p50, 1_000.0), (p95, 10_000.0), (p99, 100_000.0)] {
        assert!((told / micros - 1.0f64).abs() < 0.02, "{told}, expected {micros}");
    }
    let told = crate::report::latency(&latencies.snapshot());
    let seconds = [told.mean_s, told.p50_s, told.p95_s, told.p99_s].map(Option::unwrap);
    for (seconds, micros) in seconds.into_iter().zip([mean, p50, p95, p99]) {
        assert!((seconds * 1e6 / micros - 1.0).abs() < 1e-6, "{told:?}");
    }
}

#[test]
fn disks_are_as_busy_as_all_of_them_are() {
    let at = |seconds, busy| DeviceStatistics {
        at: Nanos::secs(seconds),
        busy: Nanos::secs(busy),
        spindles: 4,
        ..DeviceStatistics::default()
    };
    // Four disks have 40 s in ten.
    assert_eq!(super::utilisation(&at(10, 7), &at(20, 17)), 0.25);
    assert_eq!(super::utilisation(&at(10, 7), &at(10, 7)), 0.0);
}

#[test]
fn what_a_cache_holds_is_told_once_where_it_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut volume = memory("a");
    volume.cache = CacheConfig::Fixed(Bytes::kib(64));
    let daemon = start(folder.path(), vec![volume], NEVER);
    // Reads block 0.
    client(&daemon)(1);
    let shared = daemon.shared();
    let mut pilot = Pilot::new();
    let mut told = || pilot.observe(shared).0.volumes[0].resident.clone();
    assert_eq!(told(), None, "nobody asked");
    assert!(carry_out(shared, vec![Action::ListResident { volume: VolumeId(0) }]));
    let deadline = Instant::now() + Duration::from_secs(20);
    let resident = loop {
        if let Some(resident) = told() {
            break resident;
        }
        assert!(Instant::now() < deadline, "it is not told");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(*resident, [BlockRange { first: 0, end: 1 }]);
    assert_eq!(told(), None, "told twice");
    daemon.shutdown();
}

#[test]
fn a_controller_that_panics_leaves_clients_served_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(folder.path(), vec![memory("a")], Duration::from_millis(100));
    daemon.panic_in_next_step();
    wait_for(ControllerState::Dead, &daemon);
    let status = daemon.status();
    assert_eq!(status.controller.last_panic.as_deref(), Some("injected by a test"));
    assert!(daemon.metrics().contains("forebay_controller_up 0\n"));
    client(&daemon)(0);
    wait_for(ControllerState::Running, &daemon);
    let status = daemon.status();
    assert_eq!(status.controller.restarts, 1);
    assert!(daemon.metrics().contains("forebay_controller_restarts_total 1\n"));
    daemon.shutdown();
}
