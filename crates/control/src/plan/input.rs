//! What the planner is told: loads taken from traces, curves, objectives, and a model of the storage.

use crate::objective::Objective;
use crate::performance::OriginModel;
use forebay_locality::MissRatioCurve;
use forebay_units::{BlockSize, Bytes, Nanos};
use std::sync::Arc;

/// Everything that a plan rests on.
#[derive(Clone, Debug)]
pub struct PlanInput {
    /// The volumes; names are unique.
    pub volumes: Vec<PlanVolume>,
    /// The origins; names are unique.
    pub origins: Vec<PlanOrigin>,
    /// How fast the cache answers.
    pub cache: CacheTiers,
    /// All the cache there may be. `None`: as much as the objectives need.
    pub budget: Option<Bytes>,
    /// Sizes are multiples of this, beyond what is guaranteed; a multiple of the largest block size.
    pub chunk: Bytes,
    /// Latencies are planned to stay so far below their bound, and rates so far above, 0 to below 1. 0 plans to the
    /// bound itself.
    pub margin: f64,
}

/// A volume and its load.
#[derive(Clone, Debug)]
pub struct PlanVolume {
    /// Its name.
    pub name: String,
    /// The name of its origin.
    pub origin: String,
    /// The unit of `curve`.
    pub block_size: BlockSize,
    /// Its load.
    pub load: PlanLoad,
    /// Misses per block read, against blocks of cache.
    pub curve: Arc<MissRatioCurve>,
    /// Distinct bytes accessed.
    pub footprint: Bytes,
    /// Distinct bytes accessed in the worst window of `working_set_window`.
    pub working_set: Bytes,
    /// The window that `working_set` is about; the whole trace if it is as long.
    pub working_set_window: Nanos,
    /// What it was promised; may be empty.
    pub objectives: Vec<Objective>,
    /// Whether it may be cached.
    pub may_cache: bool,
    /// Cache that it must have.
    pub minimum: Bytes,
}

/// The load of a volume over time.
#[derive(Clone, Debug)]
pub struct PlanLoad {
    /// How long each of `windows` is; the same for all volumes of an origin.
    pub window: Nanos,
    /// Consecutive windows. Those of all volumes start at the same instant; the shorter list is idle at the end.
    pub windows: Vec<WindowLoad>,
    /// How much of the last one the load fills, above 0; at most `window`.
    pub window_last: Nanos,
    /// Requests kept outstanding by a client that waits for answers. `None`: requests come when the trace says,
    /// however slow the answers are.
    pub closed_loop: Option<u32>,
    /// Share of reads that continue one of the latest streams; they need no positioning, since disks read ahead.
    pub sequential_share: f64,
    /// The short while over which [`WindowLoad::squares`] are taken.
    pub instant: Nanos,
}

impl PlanLoad {
    /// Requests per second of window number `at`, over what of it the load fills; 0 where there is none.
    pub fn rate(&self, at: usize) -> f64 {
        let filled =
            if at + 1 == self.windows.len() { self.window_last.min(self.window) } else { self.window };
        let requests = self.windows.get(at).map_or(0, |load| load.reads + load.writes);
        requests as f64 / filled.as_secs_f64().max(1e-9)
    }

    /// Variance over mean of the requests in an instant of window number `at`: 1 for independent arrivals; 1 where there are
    /// none, or where it was not counted.
    pub fn dispersion(&self, at: usize) -> f64 {
        let Some(load) = self.windows.get(at).filter(|load| load.squares > 0) else { return 1.0 };
        let requests = (load.reads + load.writes) as f64;
        load.squares as f64 / requests - self.rate(at) * self.instant.as_secs_f64()
    }

    /// Requests per second of the busiest window.
    pub fn rate_max(&self) -> f64 {
        (0..self.windows.len()).map(|at| self.rate(at)).fold(0.0, f64::max)
    }

    /// Requests per second over all windows.
    pub fn rate_mean(&self) -> f64 {
        let requests: u64 = self.windows.iter().map(|load| load.reads + load.writes).sum();
        let whole = self.windows.len().saturating_sub(1) as f64 * self.window.as_secs_f64();
        requests as f64 / (whole + self.window_last.min(self.window).as_secs_f64()).max(1e-9)
    }
}

/// The requests of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowLoad {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// How many requests came in each instant, squared, summed: how much they come in bursts. 0: not counted.
    pub squares: u64,
}

/// An origin.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanOrigin {
    /// Its name.
    pub name: String,
    /// What it is made of.
    pub model: StorageModel,
}

/// How an origin serves requests: `servers` of them at once, each request taking a positioning time and its transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StorageModel {
    /// Spindles or channels that serve in parallel; at least 1.
    pub servers: f64,
    /// Mean positioning time of a random request.
    pub positioning: Nanos,
    /// Bytes per second of one server.
    pub transfer: f64,
    /// Back-end accesses for a write: 1, 2 on mirrors, 4 on RAID 5 without a cache. All load the servers; up to two are
    /// made at once, of more some follow the others.
    pub write_cost: f64,
    /// Squared coefficient of variation of the service time: 0 constant, 1 exponential.
    pub service_cv2: f64,
}

impl StorageModel {
    /// The names that [`StorageModel::preset`] knows.
    pub const PRESETS: [&str; 4] = ["disk-7200", "disk-10k", "disk-15k", "ssd-sata"];

    /// One server of a named kind; set `servers` for a group. `None` for an unknown name.
    ///
    /// The numbers are ours, from typical data sheets: mean seek plus half a turn (8.5 + 4.17, 4.5 + 3, 3.4 + 2 ms),
    /// sustained transfer rates of 150, 170 and 180 MB/s; the SSD is one of 8 channels with 100 us per access.
    /// The variance of seek (uniform in distance) and turn (uniform) together is near a tenth of the squared mean.
    pub fn preset(name: &str) -> Option<StorageModel> {
        let disk = |positioning_us, transfer| StorageModel {
            servers: 1.0,
            positioning: Nanos::micros(positioning_us),
            transfer,
            write_cost: 1.0,
            service_cv2: 0.12,
        };
        Some(match name {
            "disk-7200" => disk(12_670, 150e6),
            "disk-10k" => disk(7_500, 170e6),
            "disk-15k" => disk(5_400, 180e6),
            "ssd-sata" => StorageModel { servers: 8.0, service_cv2: 0.5, ..disk(100, 65e6) },
            _ => return None,
        })
    }

    /// The queueing form of this storage.
    pub fn origin_model(&self) -> OriginModel {
        OriginModel { servers: self.servers, service_cv2: self.service_cv2 }
    }

    /// Seconds of one server for a request of `bytes`, a share of which needs no positioning.
    pub fn service(&self, bytes: f64, sequential_share: f64) -> f64 {
        self.positioning.as_secs_f64() * (1.0 - sequential_share) + bytes / self.transfer
    }
}

/// How fast the cache answers, and of what it is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheTiers {
    /// A hit in memory.
    pub memory_latency: Nanos,
    /// Flash behind the memory. `None`: memory only.
    pub flash: Option<FlashTier>,
}

/// Flash behind the memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlashTier {
    /// A hit in flash.
    pub latency: Nanos,
    /// Which share of each partition's bytes is memory, 0 to 1.
    pub memory_share: f64,
}
