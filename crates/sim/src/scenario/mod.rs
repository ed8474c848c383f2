//! A scenario: devices, volumes, loads, objectives and the controller's parameters, as plain data.
//!
//! It is read from TOML at the edge of the program; docs/reference/scenario.md describes every key. Unknown keys are
//! refused by the reader, everything else by [`Scenario::check`]. It is *not* the state of a run.

mod arithmetic;
mod backlog;
mod check;
mod devices;
mod error;
mod expected;
mod held;
mod lanes;
mod least;
mod observe;
mod places;
mod promised;
mod rates;
mod reservation;
mod text;
mod tier;

pub use check::Flag;
pub use devices::{
    ApplianceTable, ArrayTable, BufferTable, DiskName, Distribution, FlashTable, HangTable, OriginKind,
    OriginTable, Queue, Queues, Raid,
};
pub use error::ScenarioError;
pub use expected::ExpectedTable;
pub use observe::ObserveTable;
pub(crate) use reservation::Promise;
pub use reservation::ReservationTable;
pub use tier::{TierTable, TierUse, TierWrites};

use forebay_control::eafc::EafcRules;
use forebay_control::{ControlConfig, Objective, Operations, StatedError, StatedObjective, Target};
use forebay_policy::PolicyKind;
use forebay_units::{BlockSize, Bytes, Nanos};
use serde::Deserialize;
use std::str::FromStr;
use text::{optional, text};

/// A whole experiment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it is called.
    pub name: String,
    /// What it is for, in a sentence or two.
    #[serde(default)]
    pub about: String,
    /// How long it lasts.
    #[serde(deserialize_with = "text")]
    pub duration: Nanos,
    /// Chooses everything random; 1 unless set.
    #[serde(default = "default::seed")]
    pub seed: u64,
    /// Totals begin here: what comes before is drawn but not summed. Zero unless set.
    #[serde(default = "default::zero", deserialize_with = "text")]
    pub measure_from: Nanos,
    /// The cache and how it is sized.
    #[serde(default)]
    pub cache: CacheTable,
    /// How the locality of reads is observed; as in the daemon unless set.
    #[serde(default)]
    pub observe: ObserveTable,
    /// The controller's parameters; those of the daemon unless set.
    #[serde(default)]
    pub control: ControlConfig,
    /// Those of the Hybrid Store paper's controller, where that decides.
    #[serde(default)]
    pub eafc: EafcRules,
    /// Fast storage between the caches and the origins, on which chunks are placed; none unless set.
    pub tier: Option<TierTable>,
    /// Where data live.
    #[serde(default)]
    pub origin: Vec<OriginTable>,
    /// Through what clients reach the cache; at once unless set.
    #[serde(default)]
    pub appliance: Vec<ApplianceTable>,
    /// Who uses them.
    #[serde(default)]
    pub volume: Vec<VolumeTable>,
    /// What they were promised.
    #[serde(default)]
    pub objective: Vec<ObjectiveTable>,
    /// What is promised to several of them for a while.
    #[serde(default)]
    pub reservation: Vec<ReservationTable>,
    /// What closed forms say must come out.
    #[serde(default)]
    pub expected: Vec<ExpectedTable>,
}

/// The cache of the appliance.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CacheTable {
    /// All of it. Nothing unless set.
    #[serde(deserialize_with = "text")]
    pub memory: Bytes,
    /// How long a hit takes; every other request takes so much longer than its origin. 150 us unless set (ours).
    #[serde(deserialize_with = "text")]
    pub hit_latency: Nanos,
    /// Who decides the sizes.
    pub sizing: Sizing,
    /// Who leaves a full partition.
    #[serde(deserialize_with = "text")]
    pub policy: Replacement,
    /// One cache for all volumes, who compete for it, instead of a partition each; only with sizes that are fixed.
    pub shared: bool,
    /// The control interval; 10 s unless set.
    #[serde(deserialize_with = "text")]
    pub interval: Nanos,
    /// When the controller begins: before, nothing is decided and it learns nothing. Zero unless set.
    #[serde(deserialize_with = "text")]
    pub control_from: Nanos,
}

impl Default for CacheTable {
    fn default() -> CacheTable {
        CacheTable {
            memory: Bytes::ZERO,
            hit_latency: Nanos::micros(150),
            sizing: Sizing::Control,
            policy: Replacement::Policy(PolicyKind::TwoPool),
            shared: false,
            interval: Nanos::secs(10),
            control_from: Nanos::ZERO,
        }
    }
}

/// Who leaves a full partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// Whoever this policy says.
    Policy(PolicyKind),
    /// Whoever the policy says that suits the volume best at the time, found by miniature simulations beside each partition.
    Adaptive,
}

impl FromStr for Replacement {
    type Err = String;

    fn from_str(name: &str) -> Result<Replacement, String> {
        match name {
            "adaptive" => Ok(Replacement::Adaptive),
            name => match name.parse() {
                Ok(kind) => Ok(Replacement::Policy(kind)),
                Err(error) => Err(format!("{error}, adaptive")),
            },
        }
    }
}

/// Who decides the sizes of partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sizing {
    /// The controller; a volume with a `cache` of its own keeps that.
    #[default]
    Control,
    /// Each volume's `cache`, for good; the controller does not run.
    Fixed,
    /// The Hybrid Store paper's feedback controller, one for each volume with a latency objective and no `cache` of its
    /// own; they begin with a quarter of an equal share of the memory (ours).
    Eafc,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeTable {
    /// Its name.
    pub name: String,
    /// The name of its origin; may be left out where there is one.
    pub origin: Option<String>,
    /// The name of its appliance; the first one unless set.
    pub appliance: Option<String>,
    /// Its size.
    #[serde(deserialize_with = "text")]
    pub size: Bytes,
    /// The unit of caching; 4 KiB unless set.
    #[serde(default, deserialize_with = "optional")]
    pub block_size: Option<Bytes>,
    /// A size of its cache that never changes.
    #[serde(default, deserialize_with = "optional")]
    pub cache: Option<Bytes>,
    /// Whether the controller may put a cache in front of it.
    #[serde(default = "default::yes")]
    pub may_cache: bool,
    /// Cache that the controller always leaves it.
    #[serde(default = "default::nothing", deserialize_with = "text")]
    pub minimum: Bytes,
    /// Cache that the controller never exceeds; the volume's size unless set.
    #[serde(default, deserialize_with = "optional")]
    pub maximum: Option<Bytes>,
    /// When it uses the chunk tier; not at all unless set.
    pub tier: Option<TierUse>,
    /// What is asked of it, one load after the other.
    #[serde(default)]
    pub load: Vec<LoadTable>,
}

impl VolumeTable {
    /// The unit of caching.
    ///
    /// # Panics
    /// If the scenario was not checked.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
            .map_or(BlockSize::DEFAULT, |bytes| BlockSize::new(bytes).expect("the scenario was checked"))
    }
}

/// How requests arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArrivalKind {
    /// Open loop, exponential spans.
    Poisson,
    /// Open loop, equal spans.
    Constant,
    /// Each client asks again once it was answered and has thought.
    Closed,
    /// Open loop, as recorded.
    Trace,
    /// Nothing is asked.
    Idle,
}

/// Which blocks are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Popularity {
    /// By Zipf's law.
    #[default]
    Zipf,
    /// All alike.
    Uniform,
    /// One after the other.
    Sequential,
}

/// A load: what is asked of a volume from an instant on.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadTable {
    /// When it takes the place of the one before; zero unless set.
    #[serde(default = "default::zero", deserialize_with = "text")]
    pub from: Nanos,
    /// How requests arrive.
    pub arrivals: ArrivalKind,
    /// Open loop: requests per second.
    pub rate: Option<f64>,
    /// Closed loop: how many clients.
    pub clients: Option<u32>,
    /// Closed loop: mean of the exponential thinking time; none unless set.
    #[serde(default, deserialize_with = "optional")]
    pub think: Option<Nanos>,
    /// Which blocks; `zipf` unless set.
    #[serde(default)]
    pub popularity: Popularity,
    /// Zipf's exponent; 0.9 unless set (ours).
    pub theta: Option<f64>,
    /// How much of the volume is asked for at all; all of it unless set.
    #[serde(default, deserialize_with = "optional")]
    pub working_set: Option<Bytes>,
    /// Where in the volume that begins; at its start unless set.
    #[serde(default = "default::nothing", deserialize_with = "text")]
    pub offset: Bytes,
    /// Share of the requests that read; 1 unless set.
    #[serde(default = "default::one")]
    pub read_share: f64,
    /// Bytes of a request, a multiple of the block size; one block unless set.
    #[serde(default, deserialize_with = "optional")]
    pub request_size: Option<Bytes>,
    /// Open loop: requests outstanding at most; more are shed and counted. 4,096 unless set, as in the daemon.
    #[serde(default = "default::outstanding")]
    pub outstanding_max: u32,
    /// Trace: which file, relative to the scenario's folder.
    pub trace: Option<String>,
    /// Trace: which of its volumes; all of them together unless set.
    pub trace_volume: Option<String>,
    /// Trace: how far into the recording it begins; at its start unless set.
    #[serde(default = "default::zero", deserialize_with = "text")]
    pub trace_from: Nanos,
    /// Trace: how much faster than recorded; 1 unless set.
    #[serde(default = "default::one")]
    pub speed: f64,
    /// Trace: begin again at its end.
    #[serde(default)]
    pub repeat: bool,
}

impl LoadTable {
    /// A load that asks for nothing.
    pub fn idle() -> LoadTable {
        LoadTable {
            from: Nanos::ZERO,
            arrivals: ArrivalKind::Idle,
            rate: None,
            clients: None,
            think: None,
            popularity: Popularity::Zipf,
            theta: None,
            working_set: None,
            offset: Bytes::ZERO,
            read_share: 1.0,
            request_size: None,
            outstanding_max: default::outstanding(),
            trace: None,
            trace_volume: None,
            trace_from: Nanos::ZERO,
            speed: 1.0,
            repeat: false,
        }
    }
}

/// An objective, with the keys of the daemon's configuration, and the time for which it stands.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectiveTable {
    /// The name of the volume.
    pub volume: String,
    /// When it begins to count; zero unless set.
    #[serde(default = "default::zero", deserialize_with = "text")]
    pub from: Nanos,
    /// When it ceases to count; never unless set.
    #[serde(default, deserialize_with = "optional")]
    pub until: Option<Nanos>,
    /// The latency must not exceed this.
    #[serde(default, deserialize_with = "optional")]
    pub latency: Option<Nanos>,
    /// `mean` or a percentile as in `p95`; `mean` unless set.
    pub statistic: Option<String>,
    /// Requests per second that must be reached.
    pub iops: Option<f64>,
    /// Bytes per second that must be reached.
    #[serde(default, deserialize_with = "optional")]
    pub bandwidth_per_second: Option<Bytes>,
    /// Which requests; all unless set.
    #[serde(default)]
    pub operations: Operations,
    /// The span over which the number is taken; 10 s unless set.
    #[serde(default, deserialize_with = "optional")]
    pub window: Option<Nanos>,
    /// Share of the windows that must conform; 0.95 unless set.
    pub conforming_share: Option<f64>,
    /// How much a violation weighs; 1 unless set.
    #[serde(default = "default::one")]
    pub weight: f64,
    /// Higher ones are served first; 0 unless set.
    #[serde(default)]
    pub priority: u8,
}

impl ObjectiveTable {
    /// A mean latency of at most `at_most`, always.
    pub(crate) fn latency(volume: &str, at_most: Nanos) -> ObjectiveTable {
        ObjectiveTable {
            volume: volume.to_owned(),
            from: Nanos::ZERO,
            until: None,
            latency: Some(at_most),
            statistic: None,
            iops: None,
            bandwidth_per_second: None,
            operations: Operations::default(),
            window: None,
            conforming_share: None,
            weight: 1.0,
            priority: 0,
        }
    }

    /// `objective` of `volume`, always.
    pub fn of(volume: &str, objective: &Objective) -> ObjectiveTable {
        let table = ObjectiveTable {
            operations: objective.operations(),
            window: Some(objective.window),
            conforming_share: Some(objective.conforming_share),
            weight: objective.weight,
            priority: objective.priority,
            latency: None,
            ..ObjectiveTable::latency(volume, Nanos::ZERO)
        };
        match objective.target {
            Target::Latency { statistic, at_most, .. } => {
                ObjectiveTable { latency: Some(at_most), statistic: Some(statistic.to_string()), ..table }
            }
            Target::IopsFloor { at_least, .. } => ObjectiveTable { iops: Some(at_least), ..table },
            Target::BandwidthFloor { at_least, .. } => {
                ObjectiveTable { bandwidth_per_second: Some(Bytes(at_least.ceil() as u64)), ..table }
            }
        }
    }

    /// The objective as the controller has it.
    ///
    /// # Errors
    /// [`StatedError`] for what is wrong with its keys.
    pub fn objective(&self) -> Result<Objective, StatedError> {
        let stated = StatedObjective {
            latency: self.latency,
            statistic: self.statistic.as_deref(),
            iops: self.iops,
            bandwidth_per_second: self.bandwidth_per_second,
            operations: Some(self.operations),
            window: self.window,
            conforming_share: self.conforming_share,
            weight: Some(self.weight),
            priority: Some(self.priority),
        };
        stated.objective(Objective::WINDOW)
    }
}

impl Scenario {
    /// The same scenario with all that is planned for an instant moved nearer, so that it takes `duration`: a short form to try. Rates,
    /// windows and the control interval stay as they are. No change where it takes no longer.
    #[must_use]
    pub fn within(mut self, duration: Nanos) -> Scenario {
        let whole = self.duration;
        if duration >= whole {
            return self;
        }
        let nearer =
            |at: Nanos| Nanos((u128::from(at.0) * u128::from(duration.0) / u128::from(whole.0)) as u64);
        (self.duration, self.measure_from) = (duration, nearer(self.measure_from));
        self.cache.control_from = nearer(self.cache.control_from);
        for load in self.volume.iter_mut().flat_map(|volume| &mut volume.load) {
            load.from = nearer(load.from);
        }
        for hang in self.origin.iter_mut().flat_map(|origin| &mut origin.hangs) {
            // A hang that was planned is one however short the run is.
            (hang.from, hang.span) = (nearer(hang.from), nearer(hang.span).max(Nanos(hang.span.0.min(1))));
        }
        for objective in &mut self.objective {
            (objective.from, objective.until) = (nearer(objective.from), objective.until.map(nearer));
        }
        for reservation in &mut self.reservation {
            // A promise that was made is one however short the run is.
            let least = reservation.span.min(reservation::RESERVATION_MIN);
            (reservation.from, reservation.span) =
                (nearer(reservation.from), nearer(reservation.span).max(least));
        }
        for used in self.volume.iter_mut().filter_map(|volume| volume.tier.as_mut()) {
            (used.from, used.until) = (nearer(used.from), used.until.map(nearer));
        }
        self
    }

    /// The place of a volume's appliance among the appliances; the first for none that is named.
    pub(crate) fn appliance_of(&self, volume: &VolumeTable) -> Option<usize> {
        match &volume.appliance {
            Some(name) => self.appliance.iter().position(|appliance| appliance.name == *name),
            None => (!self.appliance.is_empty()).then_some(0),
        }
    }

    /// The place of a volume's origin among the origins.
    pub(crate) fn origin_of(&self, volume: &VolumeTable) -> Option<usize> {
        match &volume.origin {
            Some(name) => self.origin.iter().position(|origin| origin.name == *name),
            None => (self.origin.len() == 1).then_some(0),
        }
    }
}

/// Values of keys that are left out.
mod default {
    use forebay_control::Reserved;
    use forebay_units::{Bytes, Nanos};

    pub(super) fn seed() -> u64 {
        1
    }

    pub(super) fn zero() -> Nanos {
        Nanos::ZERO
    }

    pub(super) fn nothing() -> Bytes {
        Bytes::ZERO
    }

    pub(super) fn yes() -> bool {
        true
    }

    pub(super) fn one() -> f64 {
        1.0
    }

    pub(super) fn reserved_weight() -> f64 {
        Reserved::WEIGHT
    }

    pub(super) fn reserved_priority() -> u8 {
        Reserved::PRIORITY
    }

    pub(super) fn outstanding() -> u32 {
        4_096
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objective_is_the_same_by_way_of_its_table() {
        let all = [
            Objective::mean_latency(Nanos::micros(4_500), Operations::Reads),
            Objective::percentile_latency(99.9, Nanos::millis(20), Operations::Writes),
            Objective::iops_floor(1_234.5),
            Objective::bandwidth_floor(4e6),
        ];
        for objective in all {
            let objective = Objective { conforming_share: 0.75, weight: 3.0, priority: 2, ..objective };
            let objective = objective.over(Nanos::secs(30));
            assert_eq!(ObjectiveTable::of("v", &objective).objective(), Ok(objective));
        }
    }
}
