//! What the daemon tells of itself, as plain data with a versioned layout: docs/reference/json.md describes it.

use crate::history::DatedDecision;
use crate::lease::LeaseStatus;
use crate::reservation::Reservation;
use crate::route::Route;
use forebay_workload::SizeHistogram;
use serde::{Deserialize, Serialize};

/// The daemon at an instant; schema `forebay.status/1`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Names the layout.
    pub schema: String,
    /// The daemon's version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// When, milliseconds since 1970.
    pub at_unix_ms: i64,
    /// How long it has been running, in seconds.
    pub uptime_s: f64,
    /// Where NBD clients connect.
    pub listen: Vec<String>,
    /// Client connections, handshakes included.
    pub connections: u64,
    /// The controller.
    pub controller: ControllerStatus,
    /// The memory for caches.
    pub cache: CacheStatus,
    /// The memory of the machine, or of the control group that it runs in.
    #[serde(default)]
    pub memory: MemoryStatus,
    /// The flash device; absent where there is none.
    #[serde(default)]
    pub flash: Option<FlashStatus>,
    /// How files are read and written.
    #[serde(default)]
    pub io: IoStatus,
    /// What is kept.
    pub history: HistoryStatus,
    /// What is kept of what the caches hold; absent where that is not configured.
    #[serde(default)]
    pub snapshots: Option<SnapshotsStatus>,
    /// Promises for a while, in the order in which they were made.
    #[serde(default)]
    pub reservations: Vec<ReservationStatus>,
    /// Why reservations cannot be kept; absent where all is well.
    #[serde(default)]
    pub reservations_trouble: Option<String>,
    /// Of a controller of volumes that others serve: why its journal cannot be written, so that nothing is decided or begun; absent where all is well.
    #[serde(default)]
    pub journal_trouble: Option<String>,
    /// Of a controller of volumes that others serve: the hosts and volumes that its configuration has drained.
    #[serde(default)]
    pub drained: Vec<DrainStatus>,
    /// The volumes, in the order of the configuration.
    pub volumes: Vec<VolumeStatus>,
}

/// A host or a volume that is drained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainStatus {
    /// Which of the two it is.
    pub what: DrainedWhat,
    /// Its name.
    pub name: String,
    /// What there is of it yet, in words; absent where nothing is: then it may be removed from the configuration.
    pub left: Option<String>,
}

/// What is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrainedWhat {
    /// A host: nothing is started there.
    Host,
    /// A volume: it has no cache.
    Volume,
}

/// Whether decisions are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControllerState {
    /// Every interval.
    Running,
    /// It was paused, or never on. Quotas stay as they are.
    Disabled,
    /// It panicked, and is started again after a while. Quotas stay as they are until then.
    Dead,
}

/// The controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControllerStatus {
    /// Whether decisions are made.
    pub state: ControllerState,
    /// How often it is asked, in seconds.
    pub interval_s: f64,
    /// How often it has decided.
    pub steps: u64,
    /// How long the last step took, in seconds.
    pub last_step_s: f64,
    /// How often it was started again after a panic.
    pub restarts: u64,
    /// What the last panic said.
    pub last_panic: Option<String>,
    /// When it was paused or resumed last, milliseconds since 1970; absent where it is as the daemon was started.
    #[serde(default)]
    pub switched_at_unix_ms: Option<i64>,
}

/// The memory for caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheStatus {
    /// All there may be.
    pub capacity_bytes: u64,
    /// Quotas of all volumes.
    pub granted_bytes: u64,
    /// Data cached.
    pub used_bytes: u64,
}

/// The memory of the machine, or of the control group that the daemon runs in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// All there is.
    pub total_bytes: u64,
    /// What could still be taken.
    pub available_bytes: u64,
}

/// The flash device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlashStatus {
    /// The file or block device.
    pub path: String,
    /// Bytes for blocks.
    pub capacity_bytes: u64,
    /// Bytes that volumes have taken.
    pub taken_bytes: u64,
    /// Whether it is read and written past the page cache.
    pub direct: bool,
    /// What is wrong with it, while its volumes are served from it: the file was removed, or another has its place. Absent where the daemon is of before that was told.
    #[serde(default)]
    pub trouble: Option<String>,
}

/// How files are read and written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoStatus {
    /// `io_uring` or `threads`.
    pub engine: String,
    /// Why it is threads.
    pub reason: Option<String>,
}

/// What a volume has on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeFlashStatus {
    /// What it may hold.
    pub quota_bytes: u64,
    /// What it holds.
    pub used_bytes: u64,
    /// Blocks found there since the start.
    pub hits: u64,
    /// Blocks looked for and not found.
    pub misses: u64,
    /// Blocks written there since the start.
    #[serde(default)]
    pub entered: u64,
    /// Blocks that were not what was written, or could not be read: misses, too.
    pub damaged: u64,
    /// Segments that could not be written.
    pub write_errors: u64,
    /// Blocks that were there at the start.
    pub recovered: u64,
}

/// How a volume's flash is placed. Counts are since the placement began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementStatus {
    /// `adaptive`, `threshold-N`, `demand`, `larc` or `lru`.
    pub admission: String,
    /// The count in force that a chunk must reach; absent where counts do not decide.
    pub threshold: Option<u16>,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Chunks that may be placed.
    pub capacity_chunks: u64,
    /// Chunks that are.
    pub placed_chunks: u64,
    /// Chunks on their way.
    pub moving_chunks: u64,
    /// What migrations may read of the origin per second now.
    pub bytes_per_second: u64,
    /// Clients whose requests bring no chunk onto it.
    pub clients_left_out: u64,
    /// Chunks that reads missed in memory, and those of them that were placed.
    pub reads: u64,
    /// See `reads`.
    pub read_hits: u64,
    /// Migrations begun.
    pub promotions: u64,
    /// Chunks that lost their place to another.
    pub displaced: u64,
    /// Chunks that lost theirs because they were worth nothing any more.
    pub left: u64,
    /// Chunks that were hot enough when there was no budget to move them.
    pub deferred: u64,
    /// Changes of the threshold.
    pub threshold_changes: u64,
    /// Times that the budget was halved because clients felt migrations.
    pub halvings: u64,
}

/// A promise for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReservationStatus {
    /// What was promised.
    #[serde(flatten)]
    pub reservation: Reservation,
    /// Whether it stands; else it is to come.
    pub active: bool,
    /// Whether it outlasts a restart of the daemon.
    pub kept: bool,
    /// When it is made: its volumes of which it is not known yet whether a cache can be as fast, since too few of their requests were hits.
    #[serde(default)]
    pub unproven: Vec<String>,
}

/// What is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryStatus {
    /// Whether a history is configured.
    pub enabled: bool,
    /// What is wrong with it now.
    pub trouble: Option<String>,
    /// Rows written.
    pub rows_written: u64,
    /// Rows lost.
    pub rows_lost: u64,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Its name.
    pub name: String,
    /// How clients name it, one per listener.
    pub uris: Vec<String>,
    /// `conforming`, `suspected`, `violating`, `awaiting`, `acting`, `correcting` (the controller's word), `low_load` where the last windows asked
    /// for too little to say, `unjudged` without an objective that was judged, `absent` while its origin is, or `drained` once it was ordered away.
    pub state: String,
    /// Where its data lives.
    pub origin: OriginStatus,
    /// Its size; 0 while its origin is absent.
    pub size_bytes: u64,
    /// The unit of caching.
    pub block_bytes: u64,
    /// Whether changes are refused.
    pub read_only: bool,
    /// Whether the controller sizes its cache.
    pub controlled: bool,
    /// Where it was sent, or goes by the configuration; absent from older daemons.
    #[serde(default)]
    pub route: Option<Route>,
    /// Who is let in; absent where everybody is.
    #[serde(default)]
    pub lease: Option<LeaseStatus>,
    /// Clients.
    pub connections: u64,
    /// Client requests in flight.
    pub requests_in_flight: u64,
    /// What it was promised, and how that stands.
    pub objectives: Vec<ObjectiveStatus>,
    /// Requests per second in the last interval.
    pub iops: f64,
    /// Requests per second in the last interval that were answered with an error; 0 where nobody says so.
    #[serde(default)]
    pub errors_per_s: f64,
    /// Bytes read per second in the last interval.
    pub read_bytes_per_s: f64,
    /// Bytes written per second in the last interval.
    pub write_bytes_per_s: f64,
    /// Requests per second of the last intervals, oldest first.
    pub iops_series: Vec<f64>,
    /// How long the reads of the last interval were.
    #[serde(default)]
    pub read_size: SizeStatus,
    /// How long the writes of the last interval were.
    #[serde(default)]
    pub write_size: SizeStatus,
    /// Latencies of reads in the last interval.
    pub read_latency: LatencyStatus,
    /// Latencies of writes in the last interval.
    pub write_latency: LatencyStatus,
    /// Latencies of flushes in the last interval: no objective is of them.
    #[serde(default)]
    pub flush_latency: LatencyStatus,
    /// Share of the reads of the last interval that the cache in memory alone answered; absent without reads.
    pub hit_ratio: Option<f64>,
    /// What its cache may hold.
    pub quota_bytes: u64,
    /// What it holds.
    pub used_bytes: u64,
    /// What of the quota the system refused it memory for: its cache does not grow into that until the quota is set again.
    #[serde(default)]
    pub refused_bytes: u64,
    /// What it has on flash; absent where it has none.
    #[serde(default)]
    pub flash: Option<VolumeFlashStatus>,
    /// How its flash is placed; absent where memory says what enters it.
    #[serde(default)]
    pub placement: Option<PlacementStatus>,
    /// Distinct blocks that were read in the observation's window, in bytes.
    pub working_set_bytes: u64,
    /// Requests answered with an error since the start.
    pub errors: u64,
    /// The last warm-up.
    pub prewarm: Option<PrewarmStatus>,
    /// The volumes whose objectives its cache serves.
    pub serves: Vec<String>,
}

/// An origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OriginStatus {
    /// What and where it is.
    pub description: String,
    /// `up`, `down`, `failed`, or `absent` since the start; of a controller of a fleet `unknown` where who tells of it is not heard.
    pub state: String,
    /// Why, unless it is up; what of it will be lost, or how long it has not answered, if it is.
    pub reason: Option<String>,
    /// Bytes with writes of unknown outcome: not cached, and not writable until they are settled.
    pub in_doubt_bytes: u64,
    /// Requests that ended in an error.
    pub errors: u64,
    /// Connections made again.
    pub reconnects: u64,
    /// For how long the oldest request that it has not answered has waited, in seconds; 0 where there is none, or the origin is no export.
    #[serde(default)]
    pub oldest_in_flight_s: f64,
    /// The share of time that its disks were busy in the last interval, where they say so.
    pub utilisation: Option<f64>,
}

/// The state of a volume that the controller calls `judged`: of who asks for too little to say it is not told that objectives are kept.
pub(crate) fn state_of(judged: String, objectives: &[ObjectiveStatus]) -> String {
    let verdicts: Vec<&str> =
        objectives.iter().filter_map(|objective| objective.verdict.as_deref()).collect();
    if judged != "conforming" {
        judged
    } else if verdicts.is_empty() {
        "unjudged".to_owned()
    } else if verdicts.iter().all(|verdict| *verdict == "low_load") {
        "low_load".to_owned()
    } else {
        judged
    }
}

/// An objective of a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectiveStatus {
    /// In words.
    pub objective: String,
    /// The number of the reservation that it is of; absent for those of the configuration.
    #[serde(default)]
    pub reservation: Option<u64>,
    /// The number of the last window, in `unit`; absent before the first, and where nothing completed.
    pub value: Option<f64>,
    /// The promised number.
    pub bound: f64,
    /// `s`, `requests/s` or `bytes/s`.
    pub unit: String,
    /// `conforming`, `nonconforming` or `low_load`; absent before the first window.
    pub verdict: Option<String>,
    /// Share of the last windows with enough load that conform; absent where there were none.
    pub conforming_share: Option<f64>,
    /// What that share was promised to be.
    pub conforming_share_target: f64,
    /// Windows so far that conformed.
    pub windows_conforming: u64,
    /// Windows so far that did not.
    pub windows_nonconforming: u64,
    /// Windows so far that asked for too little to judge.
    pub windows_low_load: u64,
}

/// How long requests are, in bytes; absent without requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SizeStatus {
    /// The arithmetic mean.
    pub mean_bytes: Option<f64>,
    /// The median, rounded up to a power of two as the others; absent, too, where nothing but the mean is known.
    pub p50_bytes: Option<u64>,
    /// 95 % are no longer.
    pub p95_bytes: Option<u64>,
    /// 99 % are no longer.
    pub p99_bytes: Option<u64>,
    /// (bytes, requests of at most so many that are longer than half of it), ascending, those without requests left out.
    pub octaves: SizeHistogram,
}

impl SizeStatus {
    /// Of requests of `bytes` together, as many as `sizes` has, or as were `completed` where nothing is known of sizes.
    pub(crate) fn of(bytes: u64, sizes: &SizeHistogram, completed: u64) -> SizeStatus {
        let requests = if sizes.is_empty() { completed } else { sizes.count() };
        SizeStatus {
            mean_bytes: (requests > 0 && bytes > 0).then(|| bytes as f64 / requests as f64),
            p50_bytes: sizes.percentile(50.0),
            p95_bytes: sizes.percentile(95.0),
            p99_bytes: sizes.percentile(99.0),
            octaves: *sizes,
        }
    }
}

/// Latencies in seconds; absent without requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyStatus {
    /// The arithmetic mean.
    pub mean_s: Option<f64>,
    /// The median.
    pub p50_s: Option<f64>,
    /// 95 % are no longer.
    pub p95_s: Option<f64>,
    /// 99 % are no longer.
    pub p99_s: Option<f64>,
}

/// A warm-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrewarmStatus {
    /// What was to be looked at.
    pub total_bytes: u64,
    /// What is left of it.
    pub remaining_bytes: u64,
    /// What was loaded.
    pub loaded_bytes: u64,
    /// What was cached already, or on its way.
    #[serde(default)]
    pub skipped_bytes: u64,
    /// What was lost to errors of the origin, or to writes that came in between.
    #[serde(default)]
    pub failed_bytes: u64,
    /// Whether it goes on.
    pub running: bool,
    /// How it ended: `done`, `full` (there was no more room) or `cancelled`; absent while it goes on.
    #[serde(default)]
    pub ended: Option<String>,
    /// What says what to load: `snapshots`, `hot zones`, or both.
    #[serde(default)]
    pub source: Option<String>,
    /// What is loaded per second now, as of the last seconds; absent until that is known.
    #[serde(default)]
    pub bytes_per_second: Option<u64>,
    /// When it will have ended, in seconds from now, as it goes on now; absent where that is not known.
    #[serde(default)]
    pub ends_in_s: Option<f64>,
}

/// What is kept of what the caches hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotsStatus {
    /// Where: a folder, which bytes of which origin, or which database.
    pub directory: String,
    /// Snapshots written since the start,
    pub taken: u64,
    /// and their bytes.
    pub bytes: u64,
    /// Snapshots that could not be taken or written.
    pub failed: u64,
    /// Snapshots deleted since there were newer ones.
    pub expired: u64,
    /// Snapshots that were read to load caches from,
    pub used: u64,
    /// and those that were found damaged or foreign: the log says why.
    pub refused: u64,
    /// Why none can be read or written now, which is tried again. Absent where the daemon is of before that was told.
    #[serde(default)]
    pub trouble: Option<String>,
}

/// Why a volume is served as it is; schema `forebay.explain/1`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Names the layout.
    pub schema: String,
    /// The volume.
    pub volume: String,
    /// Where it stands.
    pub status: VolumeStatus,
    /// Whether decisions are made; absent where the daemon is of before that was told.
    #[serde(default)]
    pub controller: Option<ControllerStatus>,
    /// Promises for a while that it has part in.
    #[serde(default)]
    pub reservations: Vec<ReservationStatus>,
    /// Why its cache can neither be loaded from snapshots now nor leave any; absent where it can, or none are kept.
    #[serde(default)]
    pub snapshots_trouble: Option<String>,
    /// What was decided about it, oldest first; earlier runs too where a history is kept.
    pub decisions: Vec<DatedDecision>,
}

/// The live curve of a volume; schema `forebay.curve/1`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Names the layout.
    pub schema: String,
    /// The volume.
    pub volume: String,
    /// The unit of caching.
    pub block_bytes: u64,
    /// How long the curve has been looking, in seconds.
    pub span_s: f64,
    /// Block accesses of reads that it stands for.
    pub accesses: u64,
    /// Distinct blocks among them, estimated.
    pub footprint_blocks: u64,
    /// The share of blocks that was sampled in the end.
    pub sampling_rate: f64,
    /// Misses of an LRU cache per block access.
    pub curve: Vec<CurvePoint>,
}

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Size in blocks.
    pub size_blocks: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// From 0 to 1.
    pub miss_ratio: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_are_kept_where_any_of_them_was_asked_enough_for() {
        let state = |judged: &str, verdicts: &[Option<&str>]| {
            let objective = |verdict: &Option<&str>| ObjectiveStatus {
                objective: String::new(),
                reservation: None,
                value: None,
                bound: 0.0,
                unit: String::new(),
                verdict: verdict.map(str::to_owned),
                conforming_share: None,
                conforming_share_target: 0.0,
                windows_conforming: 0,
                windows_nonconforming: 0,
                windows_low_load: 0,
            };
            state_of(judged.to_owned(), &verdicts.iter().map(objective).collect::<Vec<_>>())
        };
        let (low, kept) = (Some("low_load"), Some("conforming"));
        assert_eq!(state("conforming", &[low, kept]), "conforming");
        assert_eq!(state("conforming", &[low, None]), "low_load");
        assert_eq!(state("conforming", &[None]), "unjudged");
        assert_eq!(state("acting", &[low]), "acting");
    }

    #[test]
    fn a_mean_is_of_the_requests_whose_sizes_are_known() {
        let mean = |sizes: &SizeHistogram, completed| SizeStatus::of(12_000, sizes, completed).mean_bytes;
        assert_eq!(mean(&SizeHistogram::from(vec![(4_096, 3)]), 2), Some(4_000.0));
        assert_eq!(mean(&SizeHistogram::default(), 2), Some(6_000.0));
        assert_eq!(mean(&SizeHistogram::default(), 0), None);
    }
}
