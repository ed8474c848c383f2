//! Decisions, kept with their inputs so that a person can be told why, and the actions that follow from them.

use crate::inventory::{HostId, VolumeId};
use crate::plain;
use forebay_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DecisionKind {
    /// An objective was missed in too few windows so far to act.
    Suspected,
    /// What was suspected went away by itself.
    SpikeIgnored,
    /// An objective is violated in a sustained way.
    ViolationFound,
    /// The objective is kept again.
    ViolationEnded,
    /// Which neighbours interfere with the violated workload, by what evidence.
    InterferenceJudged,
    /// A workload cannot be helped by a cache, and why.
    NotCacheable,
    /// A solution was chosen among alternatives.
    SolutionChosen,
    /// No cache mends the violation, and why.
    NothingHelps,
    /// What may mend the violation is there already or on its way: a cache that is being made ready, or that fills.
    CacheAwaited,
    /// A partition was granted to a volume that had none.
    Granted,
    /// A partition grew.
    Grown,
    /// A partition is granted, or grows, for a peak that is to be expected.
    PeakForeseen,
    /// A peak that was foreseen does not come.
    PeakAbsent,
    /// A partition shrank.
    Shrunk,
    /// The size of a phase seen before was used at once.
    PhaseRemembered,
    /// Demands exceed the capacity; the allocation that violates least was chosen.
    CapacityShort,
    /// A prewarm was started.
    PrewarmStarted,
    /// A prewarm would not help or would do harm, and was not started.
    PrewarmSkipped,
    /// A prewarm was stopped.
    PrewarmCancelled,
    /// A partition was taken back.
    Removed,
    /// A host was chosen for an appliance, and its room claimed.
    HostChosen,
    /// Clients go through an appliance that answers.
    CacheInPlace,
    /// An appliance runs of which no journal tells.
    StrayFound,
    /// An appliance, or a step towards it, failed, and what of it.
    ApplianceFailed,
    /// Clients go the original way again, and why.
    OriginalRoute,
    /// A storage side does not have the lease any more to which it was raised.
    LeaseLost,
    /// What is told of a volume stopped, began anew or cannot be so; or is good again.
    ObservationDoubted,
}

/// The value of a [`Fact`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FactValue {
    /// A number in the fact's unit.
    Number(f64),
    /// A name or a word.
    Text(String),
}

/// One input or result of a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// What it is, in snake case.
    pub name: Cow<'static, str>,
    /// Its value; a number that is not finite is written as text.
    pub value: FactValue,
    /// Its unit; empty for ratios, counts without a unit and words.
    pub unit: Cow<'static, str>,
}

impl Fact {
    /// A number with its unit.
    pub fn number(name: &'static str, value: f64, unit: &'static str) -> Fact {
        let value =
            if value.is_finite() { FactValue::Number(value) } else { FactValue::Text(value.to_string()) };
        Fact { name: Cow::Borrowed(name), value, unit: Cow::Borrowed(unit) }
    }

    /// A word.
    pub fn text(name: &'static str, value: impl Into<String>) -> Fact {
        Fact { name: Cow::Borrowed(name), value: FactValue::Text(value.into()), unit: Cow::Borrowed("") }
    }
}

/// Something else that could have been done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// In words: which cache in front of what.
    pub description: String,
    /// The cache that it needs.
    #[serde(rename = "cost_bytes", with = "plain::bytes")]
    pub cost: Bytes,
    /// How far beyond its objective the violated workload would be, relative to it; negative is slack.
    pub predicted_excess: f64,
    /// Whether it was chosen.
    pub chosen: bool,
    /// Why it was chosen or not.
    pub reason: String,
}

/// A decision with everything that it rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// When: the end of the interval that led to it.
    #[serde(rename = "at_ns", with = "plain::nanos")]
    pub at: Nanos,
    /// The volume that it is about.
    pub volume: VolumeId,
    /// That volume's name.
    pub volume_name: String,
    /// What was decided.
    pub kind: DecisionKind,
    /// One sentence for people.
    pub summary: String,
    /// Inputs and results.
    pub facts: Vec<Fact>,
    /// What else was considered, best first, the chosen one included.
    pub alternatives: Vec<Alternative>,
}

/// A range of blocks to load: zones, or what a cache held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneRange {
    /// First block.
    pub first_block: u64,
    /// How many blocks; the last zone of a volume may be short.
    pub blocks: u64,
}

/// Something to be done now, in the order given. An action that fails is not repeated by its executor: the
/// controller sees from the next observation that it had no effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Action {
    /// Let the volume's cache hold so many blocks; 0 takes it back. Shrinking actions come before growing ones, so
    /// that the capacity is never exceeded.
    SetQuota {
        /// Which volume.
        volume: VolumeId,
        /// On which host.
        host: HostId,
        /// The quota.
        blocks: u64,
    },
    /// Load these zones in this order, at most so fast; replaces a prewarm of the same volume that is under way.
    Prewarm {
        /// Which volume.
        volume: VolumeId,
        /// What to load, the most important first; ranges do not overlap.
        zones: Vec<ZoneRange>,
        /// Upper bound on the origin's extra load.
        bytes_per_second: u64,
    },
    /// Stop loading.
    CancelPrewarm {
        /// Which volume.
        volume: VolumeId,
    },
    /// Tell with one of the next observations which blocks the volume's cache holds (`VolumeObservation::resident`); who cannot need not.
    ListResident {
        /// Which volume.
        volume: VolumeId,
    },
}

/// What one step of the controller comes to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepOutcome {
    /// What was decided, in order.
    pub decisions: Vec<Decision>,
    /// What is to be done, in order.
    pub actions: Vec<Action>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_not_finite_become_words() {
        assert_eq!(Fact::number("excess", f64::INFINITY, "").value, FactValue::Text("inf".to_owned()));
        assert_eq!(Fact::number("size", 3.0, "blocks").value, FactValue::Number(3.0));
    }
}
