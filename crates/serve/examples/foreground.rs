//! What the clients of a volume feel while the cache of another one on the same disks is loaded from its snapshots.
//!
//! Two volumes on an emulated group of four disks of 15,000 rpm. Reads of 4 KiB at random places of `foreground`, which has no cache, come as a
//! Poisson process, at `RATE` per second unless the first argument says otherwise. In every other window the cache of `loaded` is emptied and loaded again.
//! Prints mean and p99 of the reads of each window, how busy the disks were, what was loaded, and the ratio of the p99 with loading to that without. Real
//! time: some 100 s.

use forebay_appliance::ListenerConfig;
use forebay_devmodel::{DiskGroupParameters, DiskParameters};
use forebay_nbd::Uri;
use forebay_origin::{
    CompletionSink, NbdOrigin, NbdOriginOptions, Origin, OriginCompletion, OriginOperation, OriginRequest,
    OriginRequestId,
};
use forebay_serve::Daemon;
use forebay_serve::config::{
    CacheConfig, Config, DiskBacking, DiskGroupConfig, OriginConfig, SnapshotConfig, VolumeConfig,
};
use forebay_units::{ByteRange, Bytes, Nanos, mix64};
use forebay_workload::{LatencyHistogram, Random, exponential, random};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Reads per second that keep the disks some 60 % busy.
const RATE: f64 = 740.0;
const VOLUME: u64 = 512 << 20;
const CACHE: Bytes = Bytes::mib(256);
const WINDOW: Duration = Duration::from_secs(12);
const WINDOWS: usize = 8;
/// Of each 128 KiB of the loaded volume the first half is in its snapshots.
const STRIDE: u64 = 128 << 10;

fn config(folder: &Path) -> Config {
    let volume = |name: &str, cache: Bytes| {
        let backing = DiskBacking::Memory(Bytes(VOLUME));
        let origin = OriginConfig::DiskGroup { group: "disks".into(), backing, offset: None };
        VolumeConfig { cache: CacheConfig::Fixed(cache), ..VolumeConfig::new(name, origin) }
    };
    let disk = DiskParameters::rpm_15000(1 << 30);
    let mut config = Config::new(vec![volume("foreground", Bytes::ZERO), volume("loaded", CACHE)]);
    config.listen = vec![ListenerConfig::Unix { path: folder.join("nbd.sock") }];
    config.disk_groups = vec![DiskGroupConfig {
        parameters: DiskGroupParameters::striped(4, disk),
        ..DiskGroupConfig::new("disks")
    }];
    config.cache_memory = CACHE;
    config.control.enabled = false;
    config.control.interval = Duration::from_secs(4);
    let every = Duration::from_secs(1);
    config.snapshots = Some(SnapshotConfig { every, ..SnapshotConfig::new(folder.join("snapshots")) });
    config
}

/// Takes latencies. The number of a request is when it was sent, in nanoseconds since the start.
struct Stopwatch {
    started: Instant,
    latencies: Mutex<LatencyHistogram>,
}

impl Stopwatch {
    fn start() -> Arc<Stopwatch> {
        Arc::new(Stopwatch { started: Instant::now(), latencies: Mutex::default() })
    }

    fn latencies(&self) -> MutexGuard<'_, LatencyHistogram> {
        self.latencies.lock().expect("nobody panics while holding it")
    }

    fn read(self: &Arc<Stopwatch>, origin: &NbdOrigin, range: ByteRange) {
        let id = OriginRequestId(self.started.elapsed().as_nanos() as u64);
        let sink: Arc<dyn CompletionSink> = self.clone();
        origin.submit(OriginRequest { id, operation: OriginOperation::Read { range } }, &sink);
    }
}

impl CompletionSink for Stopwatch {
    fn complete(&self, completion: OriginCompletion) {
        completion.result.expect("a read");
        let now = Nanos::from(self.started.elapsed());
        self.latencies().record(now.saturating_since(Nanos(completion.id.0)));
    }
}

/// Reads for a window; the latencies.
fn read_window(origin: &NbdOrigin, rate: f64, random: &mut Random, draws: &mut u64) -> LatencyHistogram {
    let stopwatch = Stopwatch::start();
    let mut due_s = 0.0;
    while due_s < WINDOW.as_secs_f64() {
        due_s += exponential(1.0 / rate, random);
        let at = stopwatch.started + Duration::from_secs_f64(due_s);
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        *draws += 1;
        stopwatch.read(origin, ByteRange::new(mix64(*draws) % (VOLUME / 4096) * 4096, 4096));
    }
    std::thread::sleep(Duration::from_millis(500));
    stopwatch.latencies().clone()
}

/// Has the cache hold what it is to hold, and waits for a snapshot of that.
fn prepare(daemon: &Daemon, origin: &NbdOrigin) {
    let stopwatch = Stopwatch::start();
    let pieces = VOLUME / STRIDE;
    for number in 0..2 * pieces {
        stopwatch.read(origin, ByteRange::new(number % pieces * STRIDE, STRIDE / 2));
        while number + 1 - stopwatch.latencies().count() > 64 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let taken = || daemon.status().snapshots.map_or(0, |snapshots| snapshots.taken);
    let before = taken();
    while taken() == before {
        stopwatch.read(origin, ByteRange::new(0, 4096));
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn ms(latency: Option<Nanos>) -> f64 {
    latency.map_or(0.0, Nanos::as_millis_f64)
}

fn main() {
    let rate = std::env::args().nth(1).and_then(|rate| rate.parse().ok()).unwrap_or(RATE);
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("snapshots")).expect("a folder");
    let daemon = Daemon::start(config(folder.path())).expect("a daemon");
    let connect = |name: &str| {
        let uri: Uri = daemon.uris(name)[0].parse().expect("a URI");
        NbdOrigin::connect(&uri, NbdOriginOptions::default()).expect("the volume is served")
    };
    prepare(&daemon, &connect("loaded"));
    let foreground = connect("foreground");
    let (mut random, mut draws) = (random(1), 0);
    let mut windows = [LatencyHistogram::new(), LatencyHistogram::new()];
    let mut bytes = 0;
    let appliance = daemon.appliance();
    for window in 0..WINDOWS {
        // Without, with, with, without: whatever drifts is shared.
        let loads = matches!(window % 4, 1 | 2);
        appliance.set_quota("loaded", Bytes::ZERO).expect("a volume");
        while appliance.pulse("loaded").expect("a volume").cache.resident_blocks > 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
        appliance.set_quota("loaded", CACHE).expect("a volume");
        if loads {
            daemon.prewarm("loaded").expect("snapshots are kept");
        }
        let seen = read_window(&foreground, rate, &mut random, &mut draws);
        let progress = appliance.pulse("loaded").expect("a volume").prewarm;
        let loaded = progress.filter(|_| loads).map_or(0, |progress| progress.loaded_bytes.get());
        daemon.cancel_prewarm("loaded").expect("a volume");
        println!(
            "{}: mean {:.2} ms, p99 {:.1} ms, disks {:.0} % busy, {} loaded",
            if loads { "with   " } else { "without" },
            ms(seen.mean()),
            ms(seen.percentile(99.0)),
            daemon.status().volumes[0].origin.utilisation.unwrap_or(0.0) * 100.0,
            Bytes(loaded),
        );
        bytes += loaded;
        windows[usize::from(loads)].merge(&seen);
    }
    let [without, with] = windows.each_ref().map(|window| ms(window.percentile(99.0)));
    let seconds = WINDOW.as_secs_f64() * WINDOWS as f64 / 2.0;
    println!(
        "p99 {without:.1} ms without, {with:.1} ms with: ratio {:.3}; {:.1} MiB/s loaded",
        with / without,
        bytes as f64 / seconds / 1048576.0
    );
    daemon.shutdown();
}
