//! The evaluation of the Hybrid Store paper, rerun: how much cache objectives of 8 and 3 ms take, under the paper's laws,
//! under Forebay's, and with hindsight.
//!
//! The paper gives the load (20 threads of 250 requests/s, a working set of 70 GB, 160 GB of flash), the objectives and the
//! results; it gives neither which blocks are popular nor what the disks are. A [`Reading`] fills those in. It is *not* a proof that
//! the paper's system had these parameters. Pure: whoever wants several readings at once runs them on threads of their own.

mod inverted;
mod sizes;
mod varying;

pub use inverted::{InvertedRow, inverted};
pub use sizes::{LawRow, OptimumRow, Sizes, sizes};
pub use varying::{PhaseRow, Varying, varying};

use crate::load::Traces;
use crate::outcome::Outcome;
use crate::scenario::{
    ArrivalKind, CacheTable, Distribution, LoadTable, ObjectiveTable, ObserveTable, OriginKind, OriginTable,
    Queues, Replacement, Scenario, ScenarioError, Sizing, VolumeTable,
};
use crate::simulation::{RunError, Simulation};
use forebay_control::ControlConfig;
use forebay_control::eafc::{Decrement, EafcRules};
use forebay_policy::PolicyKind;
use forebay_units::{Bytes, Nanos};
use serde::Serialize;

/// What the paper says it measured with, and what it found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// Requests per second: 20 threads of 250.
    pub rate: f64,
    /// Distinct bytes asked for.
    pub working_set: Bytes,
    /// Flash that there was.
    pub flash: Bytes,
    /// Objective in milliseconds, cache that the paper's controller gave it, and how much of vanilla's that saved.
    pub results: [(f64, Bytes, f64); 2],
}

/// The paper's figures.
pub const PUBLISHED: Published = Published {
    rate: 5_000.0,
    working_set: Bytes(70_000_000_000),
    flash: Bytes(160_000_000_000),
    results: [(8.0, Bytes(15_000_000_000), 0.78), (3.0, Bytes(36_000_000_000), 0.48)],
};

/// The conformance percentiles of the paper.
pub const PERCENTILES: [f64; 4] = [75.0, 80.0, 90.0, 99.0];

/// The unit of caching (ours: the paper does not say).
const BLOCK: Bytes = Bytes(64 << 10);
/// A hit, with its way (ours).
const HIT: Nanos = Nanos(200_000);

/// What the paper leaves out, filled in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// What it is called.
    pub name: &'static str,
    /// Whether it was chosen because the optimum in hindsight comes near the paper's sizes; all are ours.
    pub fits: bool,
    /// Zipf's exponent; 0 is uniform.
    pub theta: f64,
    /// Disks, each with its queue.
    pub spindles: u32,
    /// A disk's time for a request: the mean, and how far from it at most, evenly.
    pub service_ms: f64,
    /// See `service_ms`.
    pub spread_ms: f64,
}

/// The readings that are run. The first two fit the paper's sizes.
pub const READINGS: [Reading; 4] = [
    Reading {
        name: "Zipf 0.6, 34 disks of 2-12 ms",
        fits: true,
        theta: 0.6,
        spindles: 34,
        service_ms: 7.0,
        spread_ms: 5.0,
    },
    Reading {
        name: "Zipf 0.4, 26 disks of 2-8 ms",
        fits: true,
        theta: 0.4,
        spindles: 26,
        service_ms: 5.0,
        spread_ms: 3.0,
    },
    Reading {
        name: "Zipf 0.8, 24 disks of 2-12 ms",
        fits: false,
        theta: 0.8,
        spindles: 24,
        service_ms: 7.0,
        spread_ms: 5.0,
    },
    Reading {
        name: "uniform, 34 disks of 2-8 ms",
        fits: false,
        theta: 0.0,
        spindles: 34,
        service_ms: 5.0,
        spread_ms: 3.0,
    },
];

/// Who decides the sizes: the paper's design space, vanilla, and Forebay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// One LRU cache as large as the working set, for all: not partitioned.
    Vanilla,
    /// Partitioned, of a size that never changes, under this policy.
    Static(Bytes, PolicyKind),
    /// Partitioned and dynamic, as the paper: how it shrinks, and the conformance percentile.
    Eafc(Decrement, f64),
    /// Partitioned and dynamic: the daemon's controller, with the share of windows that must conform.
    Forebay(f64),
}

impl Law {
    /// Vanilla and the paper's caches are LRU; Forebay's is the daemon's.
    fn policy(self) -> PolicyKind {
        match self {
            Law::Vanilla | Law::Eafc(..) => PolicyKind::Lru,
            Law::Static(_, policy) => policy,
            Law::Forebay(_) => PolicyKind::TwoPool,
        }
    }
}

/// A reading to be run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// What the paper leaves out.
    pub reading: Reading,
    /// Rate, working set and disks are all this much smaller, which leaves every latency as it is; sizes are reported as if
    /// they were not. 1 runs the paper's.
    pub scale: u32,
    /// Chooses everything random.
    pub seed: u64,
    /// How long a run lasts; windows of its second half count.
    pub duration: Nanos,
}

/// A load of one volume from an instant on, at the paper's scale.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Phase {
    from: Nanos,
    rate: f64,
    working_set: Bytes,
}

impl Setup {
    /// Disks that are run, and by how much everything is really smaller: disks are whole.
    fn disks(&self) -> (u32, f64) {
        let disks = (self.reading.spindles / self.scale.max(1)).max(1);
        (disks, f64::from(self.reading.spindles) / f64::from(disks))
    }

    fn scaled(&self, bytes: Bytes) -> Bytes {
        let blocks = bytes.as_f64() / self.disks().1 / BLOCK.as_f64();
        Bytes(blocks.round() as u64 * BLOCK.get())
    }

    /// Bytes of a run as they would be at the paper's scale.
    fn unscaled(&self, bytes: f64) -> f64 {
        bytes * self.disks().1
    }

    fn scenario(&self, law: Law, volumes: Vec<VolumeTable>, objective: Vec<ObjectiveTable>) -> Scenario {
        let (disks, _) = self.disks();
        let (sizing, memory) = match law {
            Law::Vanilla => (Sizing::Fixed, volumes.iter().map(working_set).sum()),
            Law::Static(bytes, _) => (Sizing::Fixed, self.scaled(bytes)),
            Law::Eafc(..) => (Sizing::Eafc, self.scaled(PUBLISHED.flash)),
            Law::Forebay(_) => (Sizing::Control, self.scaled(PUBLISHED.flash)),
        };
        let mut eafc = EafcRules::default();
        if let Law::Eafc(decrement, percentile) = law {
            (eafc.decrement, eafc.percentile) = (decrement, percentile);
        }
        // Sizes move in steps of a five-hundredth of the working set.
        let chunk = self.scaled(PUBLISHED.working_set).get() / 500;
        let chunk_bytes = chunk.next_multiple_of(BLOCK.get()).max(BLOCK.get());
        Scenario {
            name: self.reading.name.to_owned(),
            about: String::new(),
            duration: self.duration,
            seed: self.seed,
            measure_from: Nanos(self.duration.0 / 2),
            cache: CacheTable {
                memory,
                hit_latency: HIT,
                sizing,
                policy: Replacement::Policy(law.policy()),
                shared: law == Law::Vanilla,
                ..CacheTable::default()
            },
            observe: ObserveTable::default(),
            control: ControlConfig { chunk_bytes, hit_latency_ns: HIT.0, ..ControlConfig::default() },
            eafc,
            origin: vec![OriginTable {
                servers: Some(disks),
                queues: Some(Queues::Each),
                stripe_unit: Some(BLOCK),
                service: Some(milliseconds(self.reading.service_ms)),
                distribution: Some(Distribution::Uniform),
                service_spread: Some(milliseconds(self.reading.spread_ms)),
                ..OriginTable::new("disks", OriginKind::Servers)
            }],
            tier: None,
            appliance: Vec::new(),
            volume: volumes,
            objective,
            reservation: Vec::new(),
            expected: Vec::new(),
        }
    }

    fn volume(&self, name: &str, phases: &[Phase], law: Law) -> VolumeTable {
        let load = |phase: &Phase| LoadTable {
            from: phase.from,
            arrivals: ArrivalKind::Poisson,
            rate: Some(phase.rate / self.disks().1),
            theta: Some(self.reading.theta),
            working_set: Some(self.scaled(phase.working_set)),
            ..LoadTable::idle()
        };
        let largest = phases.iter().map(|phase| phase.working_set).max().unwrap_or_default();
        VolumeTable {
            name: name.to_owned(),
            origin: None,
            appliance: None,
            size: self.scaled(largest),
            block_size: Some(BLOCK),
            cache: match law {
                Law::Static(bytes, _) => Some(self.scaled(bytes)),
                _ => None,
            },
            may_cache: true,
            minimum: Bytes::ZERO,
            maximum: None,
            tier: None,
            load: phases.iter().map(load).collect(),
        }
    }

    fn objective(&self, volume: &str, bound_ms: f64, share: f64) -> ObjectiveTable {
        ObjectiveTable {
            conforming_share: Some(share),
            ..ObjectiveTable::latency(volume, milliseconds(bound_ms))
        }
    }

    /// The paper's load under `law`, with one objective.
    fn steady(&self, law: Law, bound_ms: f64, share: f64) -> Scenario {
        let phase = Phase { from: Nanos::ZERO, rate: PUBLISHED.rate, working_set: PUBLISHED.working_set };
        let volume = self.volume("specsfs", &[phase], law);
        self.scenario(law, vec![volume], vec![self.objective("specsfs", bound_ms, share)])
    }

    fn run(&self, scenario: &Scenario) -> Result<Outcome, RunError> {
        Ok(Simulation::new(scenario, &Traces::new(), None)?.run())
    }
}

/// What a run of a static size says: windows of its second half; none where the disks can never serve it.
fn static_windows(setup: &Setup, scenario: &Scenario) -> Result<Vec<f64>, RunError> {
    match setup.run(scenario) {
        Ok(outcome) => {
            let end = setup.duration.as_secs_f64();
            Ok(windows(&outcome, 0, end / 2.0, end))
        }
        Err(RunError::Scenario(ScenarioError::Overload { .. })) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn milliseconds(value: f64) -> Nanos {
    Nanos::from_secs_f64(value / 1_000.0)
}

fn working_set(volume: &VolumeTable) -> Bytes {
    volume.load.iter().filter_map(|load| load.working_set).max().unwrap_or_default()
}

/// Mean latencies in milliseconds of the intervals after `from`, which are the windows of the objectives.
fn windows(outcome: &Outcome, volume: usize, from: f64, until: f64) -> Vec<f64> {
    let rows = outcome.volumes[volume].intervals.iter();
    rows.filter(|row| row.at_s > from && row.at_s <= until).filter_map(|row| row.latency.mean_ms).collect()
}

/// The share of windows within `bound`; 0 for none.
fn conforming(windows: &[f64], bound: f64) -> f64 {
    windows.iter().filter(|ms| **ms <= bound).count() as f64 / windows.len().max(1) as f64
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
