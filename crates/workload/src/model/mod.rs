//! Models of workloads: a description that can stand in for a trace, how it is fitted, and what it generates.
//!
//! The backbone is the hierarchical Markov chain of DCIO (section II.A): states are ranges of a volume's bytes, each level
//! splits a range in four, and transitions carry probability, size, type, randomness and inter-arrival time. Threads of a trace, where it records
//! them, have weights, their shares of the requests; where it does not, a volume is a thread of the paper.
//!
//! Ours beyond the paper, because a chain over ranges loses reuse and bursts:
//!
//! * **Phases and gaps.** Stretches of similar content share a phase. Per phase, two-phase hyper-exponential inter-arrivals by EM, with the persistence of either phase.
//! * **Windows.** Stretches of the original's requests with their times, placed within areas that are moved, each saying of what it uses again
//!   how many requests ago that was used. Where not all are kept, those are that add up to the original. What is generated is put together from them.
//!
//! Of addresses a model holds the ranges of its states and places within areas; its size does not grow with
//! the trace's length, but a model of a short trace holds all of its requests.
//! It is plain data; [`Model::check`] says whether it can be generated from, and nothing generates from one that cannot.

mod arrivals;
mod chain;
mod fit;
mod footprint;
mod generate;
mod log;
mod paper;
mod placement;
mod plain;
mod script;
mod strata;
#[cfg(test)]
mod tests;
mod windows;

pub use arrivals::{GapBucket, Gaps, HyperExponential};
pub use fit::{FitError, FitOptions, ModelFitter, STEPS_MAX};
pub use generate::{Fidelity, GenerateError, GenerateOptions, Generator};
pub use plain::{PlainTransition, plain_transitions};
pub use windows::{Step, ThreadRun, Use, Whereabouts, Window};

use forebay_trace::Operation;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The `schema` of the models that this version writes.
pub const MODEL_SCHEMA: &str = "forebay.model/7";
/// All that it reads: models of version 6 have a chain for each phase, and lists of numbers; those of version 5 say nothing of how many steps were tried, and tell each step for itself; models of version 4 know no threads either.
pub const MODEL_SCHEMAS_READ: [&str; 4] =
    [MODEL_SCHEMA, "forebay.model/6", "forebay.model/5", "forebay.model/4"];

/// What was fitted, in numbers that need no generation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// Requests of the original.
    pub requests: u64,
    /// Span from the first to the last request, in seconds; 0 where the trace has no times.
    pub seconds: f64,
    /// Whether the original has times.
    pub timed: bool,
    /// All times are multiples of this many nanoseconds.
    pub resolution_ns: u64,
    /// Requests whose time stepped back; they count as arriving with the one before them.
    pub stepped_back: u64,
    /// Distinct blocks of the original: exact up to 16,384, estimated beyond, with a standard error below 1.2 %.
    pub footprint_blocks: u64,
}

/// A volume of the original.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeModel {
    /// Where its last request ended, in bytes, rounded up to a multiple of 1 MiB.
    pub bytes: u64,
    /// Its share of all requests, 0 to 1.
    pub weight: f64,
}

/// A type and size of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kind {
    /// `read`, `write`, `flush`, `discard` or `other`.
    #[serde(with = "operation_name")]
    pub operation: Operation,
    /// Bytes of such a request.
    pub bytes: u64,
    /// Where they start within a block: pairs of (sector of 512 bytes, 0 to 7; requests). Empty: at its start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sectors: Vec<(u8, u64)>,
}

mod operation_name {
    use forebay_trace::Operation;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    const NAMES: [(Operation, &str); 5] = [
        (Operation::Read, "read"),
        (Operation::Write, "write"),
        (Operation::Flush, "flush"),
        (Operation::Discard, "discard"),
        (Operation::Other, "other"),
    ];

    pub(super) fn serialize<S: Serializer>(operation: &Operation, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(NAMES[*operation as usize].1)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Operation, D::Error> {
        let text = String::deserialize(deserializer)?;
        NAMES.iter().find(|(_, name)| *name == text).map(|(operation, _)| *operation).ok_or_else(|| {
            D::Error::custom(format!(
                "`{text}` is no operation: expected read, write, flush, discard or other"
            ))
        })
    }
}

/// A state of the chain: a range of a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateModel {
    /// Index into the volumes.
    pub volume: u32,
    /// First byte of the range.
    pub first_byte: u64,
    /// Bytes of the range, above 0.
    pub bytes: u64,
}

/// How a request's address follows from those before it; on paper its number, in versions 4 and 5 its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "LinkOnPaper", into = "u8")]
pub enum Link {
    /// It starts anywhere: a random request.
    Jump = 0,
    /// It starts where the request before it in its volume ended: a sequential one.
    Follow = 1,
    /// It starts where one of the sixteen requests before that ended: one of several interleaved streams goes on.
    Resume = 2,
    /// It starts where an earlier extent did.
    Again = 3,
    /// It starts where an earlier extent did, and where the request before it in its volume ended: sequential too.
    Along = 4,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum LinkOnPaper {
    Number(u8),
    Name(String),
}

const LINKS: [(Link, &str); 5] = [
    (Link::Jump, "jump"),
    (Link::Follow, "follow"),
    (Link::Resume, "resume"),
    (Link::Again, "again"),
    (Link::Along, "along"),
];

impl TryFrom<LinkOnPaper> for Link {
    type Error = String;

    fn try_from(paper: LinkOnPaper) -> Result<Link, String> {
        let found = match &paper {
            LinkOnPaper::Number(number) => Link::numbered((*number).into()),
            LinkOnPaper::Name(found) => LINKS.iter().find(|(_, name)| name == found).map(|(link, _)| *link),
        };
        found.ok_or_else(|| match paper {
            LinkOnPaper::Number(number) => format!("{number} is no link: expected 0 to 4"),
            LinkOnPaper::Name(name) => format!("`{name}` is no link: expected 0 to 4"),
        })
    }
}

impl Link {
    /// The link of a number on paper.
    fn numbered(number: u32) -> Option<Link> {
        LINKS.iter().map(|(link, _)| *link).find(|&link| link as u32 == number)
    }
}

impl From<Link> for u8 {
    fn from(link: Link) -> u8 {
        link as u8
    }
}

/// A transition with its features.
///
/// What is too rare to be kept apart is summed over the state before. A row whose `to` is any says how many requests left its `from` by such summed rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transition {
    /// The state before, or any.
    pub from: u32,
    /// The state that the request is in, or any.
    pub to: u32,
    /// Its type and size: an index into the kinds.
    pub kind: u32,
    /// Whether it is random.
    pub link: Link,
    /// How many requests took this transition: its probability times those that left `from`.
    pub requests: u64,
    /// Mean inter-arrival time in microseconds.
    pub gap_us: f64,
}

/// Any state.
pub const ANY: u32 = u32::MAX;

/// A kind of time in the workload's life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Requests of the original in it.
    pub requests: u64,
    /// Its inter-arrival times.
    pub gaps: Gaps,
}

/// What a model of one level did on the simulated device that levels are chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelIops {
    /// The level: each volume has up to 4^level ranges.
    pub level: u32,
    /// States that occur.
    pub states: u32,
    /// Requests per second that the device completed, some of them always outstanding.
    pub iops: f64,
}

/// What a model of some steps generated, set beside the original: how the number of steps was chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepsTrial {
    /// Steps of its windows.
    pub steps: u64,
    /// The rows of [`compare`](crate::compare::compare) that have a bound, the worse of the seeds that were tried. Those that were not looked at any more, as another one was beyond, are missing.
    pub rows: Vec<Deviation>,
}

/// How far apart a row of a comparison is; on paper an array `[metric, deviation, bound]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "(String, f64, f64)", into = "(String, f64, f64)")]
pub struct Deviation {
    /// The row's name.
    pub metric: String,
    /// In the row's unit.
    pub deviation: f64,
    /// The most that is good.
    pub bound: f64,
}

impl StepsTrial {
    /// Whether all rows are so well within their bounds that the number of steps was taken: within 70 % of them (ours).
    pub fn is_taken(&self) -> bool {
        self.rows.iter().all(Deviation::has_reserve)
    }
}

impl Deviation {
    /// Whether it is so well within its bound that it will be within it with seeds that were not tried.
    pub fn has_reserve(&self) -> bool {
        self.deviation.abs() <= RESERVE * self.bound
    }
}

/// The share of a bound that a deviation may be.
const RESERVE: f64 = 0.7;

impl From<(String, f64, f64)> for Deviation {
    fn from((metric, deviation, bound): (String, f64, f64)) -> Deviation {
        Deviation { metric, deviation, bound }
    }
}

impl From<Deviation> for (String, f64, f64) {
    fn from(row: Deviation) -> (String, f64, f64) {
        // No more digits than mean something.
        (row.metric, (row.deviation * 1e4).round() / 1e4, row.bound)
    }
}

impl Model {
    /// Requests that windows hold.
    pub fn steps_held(&self) -> u64 {
        self.windows.iter().map(|window| window.steps.len() as u64).sum()
    }
}

/// A workload, described; see `docs/reference/model.md` for every field on paper.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "paper::ModelOnPaper", into = "paper::ModelOnPaper")]
pub struct Model {
    /// One of [`MODEL_SCHEMAS_READ`].
    pub schema: String,
    /// What was fitted.
    pub about: About,
    /// Bytes of a block of the reuse model.
    pub block_bytes: u64,
    /// The level of the states.
    pub level: u32,
    /// Why this level: the device's IOPS level by level; empty where the level was given.
    pub levels: Vec<LevelIops>,
    /// Why so many steps: what was tried, from the fewest on; the last is what the model holds, but of a trace that is longer than what windows can hold, where the last may be too few. Empty
    /// where the number was given, or none was small enough to be tried.
    pub steps: Vec<StepsTrial>,
    /// Numbers of placements among which a seed chooses; empty: any will do. They are told where latency on disks depends so much on where areas lie that not all will.
    pub placements: Vec<u32>,
    /// The volumes, in order of first appearance.
    pub volumes: Vec<VolumeModel>,
    /// Of each thread, in order of first appearance, its share of all requests, 0 to 1; empty where the original records no threads.
    pub thread_weights: Vec<f64>,
    /// Types and sizes.
    pub kinds: Vec<Kind>,
    /// Ranges.
    pub states: Vec<StateModel>,
    /// The paper's chain.
    pub transitions: Vec<Transition>,
    /// Phases.
    pub phases: Vec<Phase>,
    /// Bytes of an area.
    pub area_bytes: u64,
    /// Areas in the order of their addresses. Where in its range each lies is not told.
    pub areas: Vec<AreaModel>,
    /// Stretches of the original, in their order.
    pub windows: Vec<Window>,
}

/// An area; on paper an array `[state, lane]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, u8)", into = "(u32, u8)")]
pub struct AreaModel {
    /// The state that it is of.
    pub state: u32,
    /// Its number in its volume, modulo 15: areas that lay on the same disks of a striped group have the same.
    pub lane: u8,
}

impl From<(u32, u8)> for AreaModel {
    fn from((state, lane): (u32, u8)) -> AreaModel {
        AreaModel { state, lane }
    }
}

impl From<AreaModel> for (u32, u8) {
    fn from(area: AreaModel) -> (u32, u8) {
        (area.state, area.lane)
    }
}

/// A model that nothing can be generated from.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("model field `{field}` is {found}: expected {expected}")]
pub struct ModelError {
    /// Which field, as a path.
    pub field: String,
    /// What was found.
    pub found: String,
    /// What would do.
    pub expected: String,
}

impl Model {
    /// Whether something can be generated from it.
    ///
    /// # Errors
    /// The first field that is out of range, or that refers to what is not there.
    pub fn check(&self) -> Result<(), ModelError> {
        let wrong = |field: String, found: &dyn std::fmt::Display, expected: String| {
            Err(ModelError { field, found: found.to_string(), expected })
        };
        if !MODEL_SCHEMAS_READ.contains(&self.schema.as_str()) {
            return wrong("schema".into(), &format_args!("`{}`", self.schema), format!("`{MODEL_SCHEMA}`"));
        }
        if !self.block_bytes.is_power_of_two() || !(512..=1 << 24).contains(&self.block_bytes) {
            return wrong(
                "block_bytes".into(),
                &self.block_bytes,
                "a power of two from 512 to 16777216".into(),
            );
        }
        for (name, length) in [
            ("volumes", self.volumes.len()),
            ("kinds", self.kinds.len()),
            ("states", self.states.len()),
            ("phases", self.phases.len()),
            ("windows", self.windows.len()),
        ] {
            if length == 0 || length > 1 << 20 {
                return wrong(
                    name.into(),
                    &format_args!("a list of {length}"),
                    "1 to 1048576 entries".into(),
                );
            }
        }
        let below = |field: String, index: u32, length: usize| match (index as usize) < length {
            true => Ok(()),
            false => wrong(field, &index, format!("an index below {length}")),
        };
        let finite = |field: String, value: f64| match value.is_finite() && (0.0..=1e18).contains(&value) {
            true => Ok(()),
            false => wrong(field, &value, "a number from 0 to 1e18".into()),
        };
        finite("about.seconds".into(), self.about.seconds)?;
        if self.thread_weights.len() > usize::from(u16::MAX) {
            let found = format_args!("a list of {}", self.thread_weights.len());
            return wrong("thread_weights".into(), &found, "at most 65535 entries".into());
        }
        for (at, &weight) in self.thread_weights.iter().enumerate() {
            if !(0.0..=1.0).contains(&weight) {
                return wrong(format!("thread_weights[{at}]"), &weight, "a share from 0 to 1".into());
            }
        }
        for (at, kind) in self.kinds.iter().enumerate() {
            if kind.bytes > forebay_trace::REQUEST_BYTES_MAX {
                let expected = format!("at most {}", forebay_trace::REQUEST_BYTES_MAX);
                return wrong(format!("kinds[{at}].bytes"), &kind.bytes, expected);
            }
            if let Some((sector, _)) = kind.sectors.iter().find(|(sector, _)| *sector > 7) {
                return wrong(format!("kinds[{at}].sectors"), sector, "sectors from 0 to 7".into());
            }
        }
        for (at, state) in self.states.iter().enumerate() {
            below(format!("states[{at}].volume"), state.volume, self.volumes.len())?;
            if state.bytes == 0 || state.first_byte.checked_add(state.bytes).is_none() {
                let field = format!("states[{at}].bytes");
                return wrong(field, &state.bytes, "a range of at least a byte that ends below 2^64".into());
            }
        }
        if self.transitions.iter().all(|row| row.requests == 0 || row.to == ANY) {
            return wrong("transitions".into(), &"without requests", "at least one".into());
        }
        for (at, row) in self.transitions.iter().enumerate() {
            let field = || format!("transitions[{at}]");
            for index in [row.from, row.to] {
                if index != ANY {
                    below(field(), index, self.states.len())?;
                }
            }
            below(field(), row.kind, self.kinds.len())?;
            finite(field(), row.gap_us)?;
            if row.requests > 1 << 60 {
                return wrong(field(), &row.requests, "at most 2^60 requests".into());
            }
        }
        for (at, phase) in self.phases.iter().enumerate() {
            phase.gaps.check(&format!("phases[{at}].gaps"))?;
        }
        for (at, area) in self.areas.iter().enumerate() {
            below(format!("areas[{at}]"), area.state, self.states.len())?;
            if u64::from(area.lane) >= placement::LANES {
                return wrong(
                    format!("areas[{at}]"),
                    &area.lane,
                    format!("a lane below {}", placement::LANES),
                );
            }
        }
        if !self.area_bytes.is_power_of_two() || !(1 << 20..=1 << 40).contains(&self.area_bytes) {
            let expected = "a power of two from 1048576 to 1099511627776".into();
            return wrong("area_bytes".into(), &self.area_bytes, expected);
        }
        for (at, window) in self.windows.iter().enumerate() {
            let field = |step: usize| format!("windows[{at}].steps[{step}]");
            if window.steps.is_empty() || window.steps.len() > 1 << 16 {
                let found = format_args!("a list of {}", window.steps.len());
                return wrong(format!("windows[{at}].steps"), &found, "1 to 65536 entries".into());
            }
            if window.stands_for == 0 || window.stands_for > 1 << 60 {
                let field = format!("windows[{at}].stands_for");
                return wrong(field, &window.stands_for, "1 to 2^60 requests".into());
            }
            for (run_at, &(thread, _)) in window.threads.iter().enumerate() {
                below(
                    format!("windows[{at}].threads[{run_at}]"),
                    thread.into(),
                    self.thread_weights.len() + 1,
                )?;
            }
            let told: u64 = window.threads.iter().map(|&(_, steps)| u64::from(steps)).sum();
            if !window.threads.is_empty() && told != window.steps.len() as u64 {
                let expected = format!("{}, one for each step", window.steps.len());
                return wrong(format!("windows[{at}].threads"), &format_args!("of {told} steps"), expected);
            }
            for (step_at, step) in window.steps.iter().enumerate() {
                below(field(step_at), step.kind, self.kinds.len())?;
                match step.at {
                    Whereabouts::At { area, sectors, .. } => {
                        below(field(step_at), area, self.areas.len())?;
                        if u64::from(sectors) >= self.area_bytes / 512 {
                            return wrong(field(step_at), &sectors, "a sector of the area".into());
                        }
                    }
                    Whereabouts::On { .. } if step_at == 0 => {
                        return wrong(field(0), &"without a place", "a step with an area".into());
                    }
                    Whereabouts::On { .. } => {}
                }
            }
        }
        Ok(())
    }
}
