//! What clients feel while content is moved from the disks that serve them: into a cache from its snapshots, or onto flash by placement.
//!
//! Two volumes on an emulated group of four disks of 15,000 rpm. Reads of 4 KiB at random places of `foreground`, which has no cache, come as a
//! Poisson process, at `RATE` per second unless an argument says otherwise. In every other window content of `loaded` is moved:
//!
//! * without another word, its cache is emptied and loaded again;
//! * with `migration`, a quarter of the reads is of `loaded`, at random within 32 MiB, and its flash is placed by an adaptive threshold: of two such windows
//!   it is empty at the beginning of the first, which fills it, and goes on in the second. In the other windows it has no flash.
//!
//! Prints mean and p99 of the reads of each window, how busy the disks were, what was moved, and the ratio of the p99 with it to that without, all reads
//! together and for those of `foreground` alone, which flash relieves of nothing but the others; with `migration` also of the windows that fill it and of those
//! after them by themselves. Real time: some 100 s.

use forebay_appliance::{FlashConfig, ListenerConfig};
use forebay_devmodel::{DiskGroupParameters, DiskParameters};
use forebay_nbd::Uri;
use forebay_origin::{
    CompletionSink, NbdOrigin, NbdOriginOptions, Origin, OriginCompletion, OriginOperation, OriginRequest,
    OriginRequestId,
};
use forebay_policy::placement::Admission;
use forebay_serve::Daemon;
use forebay_serve::config::{
    CacheConfig, Config, DiskBacking, DiskGroupConfig, FlashAdmission, OriginConfig, SnapshotConfig,
    VolumeConfig,
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
/// What of the loaded volume is read where it has flash, how many of all reads that takes, and the flash.
const HOT: u64 = 32 << 20;
const HOT_OF: u64 = 4;
const FLASH: Bytes = Bytes::mib(64);

/// What moves content.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mover {
    Prewarming,
    Migration,
}

fn config(folder: &Path, mover: Mover) -> Config {
    let volume = |name: &str, cache: Bytes| {
        let backing = DiskBacking::Memory(Bytes(VOLUME));
        let origin = OriginConfig::DiskGroup { group: "disks".into(), backing, offset: None };
        VolumeConfig { cache: CacheConfig::Fixed(cache), ..VolumeConfig::new(name, origin) }
    };
    let disk = DiskParameters::rpm_15000(1 << 30);
    let mut loaded = volume("loaded", if mover == Mover::Migration { Bytes::mib(1) } else { CACHE });
    if mover == Mover::Migration {
        loaded.flash = FLASH;
        loaded.flash_admission = Some(FlashAdmission::Placed(Admission::Adaptive));
    }
    let mut config = Config::new(vec![volume("foreground", Bytes::ZERO), loaded]);
    config.listen = vec![ListenerConfig::Unix { path: folder.join("nbd.sock") }];
    config.disk_groups = vec![DiskGroupConfig {
        parameters: DiskGroupParameters::striped(4, disk),
        ..DiskGroupConfig::new("disks")
    }];
    config.cache_memory = CACHE;
    config.control.enabled = false;
    config.control.interval = Duration::from_secs(4);
    match mover {
        Mover::Prewarming => {
            let every = Duration::from_secs(1);
            config.snapshots =
                Some(SnapshotConfig { every, ..SnapshotConfig::new(folder.join("snapshots")) });
        }
        Mover::Migration => {
            config.flash = Some(FlashConfig { path: folder.join("flash"), size: Some(Bytes::mib(256)) });
        }
    }
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

/// Reads of both volumes.
struct Reader {
    foreground: NbdOrigin,
    loaded: NbdOrigin,
    mover: Mover,
    rate: f64,
    random: Random,
    draws: u64,
}

impl Reader {
    /// Reads for a window; the latencies of `foreground`, and of both volumes.
    fn window(&mut self) -> [LatencyHistogram; 2] {
        let (foreground, loaded) = (Stopwatch::start(), Stopwatch::start());
        let mut due_s = 0.0;
        while due_s < WINDOW.as_secs_f64() {
            due_s += exponential(1.0 / self.rate, &mut self.random);
            let at = foreground.started + Duration::from_secs_f64(due_s);
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            self.draws += 1;
            let draw = mix64(self.draws);
            if self.mover == Mover::Migration && self.draws.is_multiple_of(HOT_OF) {
                loaded.read(&self.loaded, ByteRange::new(draw % (HOT / 4096) * 4096, 4096));
            } else {
                foreground.read(&self.foreground, ByteRange::new(draw % (VOLUME / 4096) * 4096, 4096));
            }
        }
        std::thread::sleep(Duration::from_millis(500));
        let mut both = foreground.latencies().clone();
        both.merge(&loaded.latencies());
        [foreground.latencies().clone(), both]
    }
}

/// What a window is for, in turns: whatever drifts is shared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Window {
    Without,
    /// Content is moved to where nothing is.
    Fills,
    /// The same again, or where flash was filled, what comes after.
    After,
}

impl Window {
    fn of(number: usize) -> Window {
        match number % 4 {
            1 => Window::Fills,
            2 => Window::After,
            _ => Window::Without,
        }
    }

    fn moves(self) -> bool {
        self != Window::Without
    }
}

/// Has the cache, or the flash, of `loaded` empty, and begins to move content there if the window is for that; flash that was filled is left as it is.
fn begin(daemon: &Daemon, mover: Mover, window: Window) {
    let appliance = daemon.appliance();
    if mover == Mover::Migration {
        match window {
            Window::Without => appliance.set_flash_quota("loaded", Bytes::ZERO).expect("a volume"),
            Window::Fills => appliance.set_flash_quota("loaded", FLASH).expect("a volume"),
            Window::After => {}
        }
        return;
    }
    appliance.set_quota("loaded", Bytes::ZERO).expect("a volume");
    while appliance.pulse("loaded").expect("a volume").cache.resident_blocks > 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    appliance.set_quota("loaded", CACHE).expect("a volume");
    if window.moves() {
        daemon.prewarm("loaded", forebay_serve::LoadChoice::default()).expect("snapshots are kept");
    }
}

/// What was moved since the cache, or the flash, was empty; loading a cache ends.
fn end(daemon: &Daemon, mover: Mover) -> Bytes {
    if mover == Mover::Migration {
        let loaded = daemon.status().volumes.into_iter().find(|volume| volume.name == "loaded");
        let placement = loaded.and_then(|volume| volume.placement);
        return placement
            .map_or(Bytes::ZERO, |placement| Bytes(placement.promotions * placement.chunk_bytes));
    }
    let progress = daemon.appliance().pulse("loaded").expect("a volume").prewarm;
    daemon.cancel_prewarm("loaded").expect("a volume");
    progress.map_or(Bytes::ZERO, |progress| progress.loaded_bytes)
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
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mover = match arguments.iter().position(|argument| argument == "migration") {
        Some(at) => {
            arguments.remove(at);
            Mover::Migration
        }
        None => Mover::Prewarming,
    };
    let rate = arguments.first().map_or(RATE, |rate| rate.parse().expect("reads per second"));
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("snapshots")).expect("a folder");
    let daemon = Daemon::start(config(folder.path(), mover)).expect("a daemon");
    let connect = |name: &str| {
        let uri: Uri = daemon.uris(name)[0].parse().expect("a URI");
        NbdOrigin::connect(&uri, NbdOriginOptions::default()).expect("the volume is served")
    };
    let (foreground, loaded) = (connect("foreground"), connect("loaded"));
    if mover == Mover::Prewarming {
        prepare(&daemon, &loaded);
    }
    let mut reader = Reader { foreground, loaded, mover, rate, random: random(1), draws: 0 };
    // By window: the reads of both volumes, and of `foreground` alone.
    let mut seen: Vec<(Window, [LatencyHistogram; 2])> = Vec::new();
    let (mut bytes, mut moved_before) = (0, Bytes::ZERO);
    for number in 0..WINDOWS {
        let window = Window::of(number);
        begin(&daemon, mover, window);
        let [of_foreground, of_both] = reader.window();
        let all = if window.moves() { end(&daemon, mover) } else { Bytes::ZERO };
        let goes_on = mover == Mover::Migration && window == Window::After;
        let moved = if goes_on { all.saturating_sub(moved_before) } else { all };
        moved_before = all;
        println!(
            "{}: mean {:.2} ms, p99 {:.1} ms, disks {:.0} % busy, {moved} moved",
            if window.moves() { "with   " } else { "without" },
            ms(of_both.mean()),
            ms(of_both.percentile(99.0)),
            daemon.status().volumes[0].origin.utilisation.unwrap_or(0.0) * 100.0,
        );
        bytes += moved.get();
        seen.push((window, [of_both, of_foreground]));
    }
    let seconds = WINDOW.as_secs_f64() * WINDOWS as f64 / 2.0;
    let kinds: &[(&str, &[Window])] = match mover {
        Mover::Prewarming => &[("", &[Window::Fills, Window::After])],
        Mover::Migration => &[
            ("", &[Window::Fills, Window::After]),
            (" while it fills", &[Window::Fills]),
            (" after", &[Window::After]),
        ],
    };
    for (at, name) in ["all reads", "reads of foreground"].into_iter().enumerate() {
        let p99 = |of: &[Window]| {
            let mut together = LatencyHistogram::new();
            seen.iter()
                .filter(|(window, _)| of.contains(window))
                .for_each(|(_, reads)| together.merge(&reads[at]));
            ms(together.percentile(99.0))
        };
        let without = p99(&[Window::Without]);
        for (kind, windows) in kinds {
            let with = p99(windows);
            println!(
                "{name}: p99 {without:.1} ms without, {with:.1} ms with{kind}: ratio {:.3}",
                with / without
            );
        }
    }
    println!("{rate:.0} reads/s, {:.1} MiB/s moved", bytes as f64 / seconds / 1048576.0);
    daemon.shutdown();
}
