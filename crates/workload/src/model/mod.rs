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
mod check;
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
pub use check::ModelError;
pub use fit::{FitError, FitOptions, ModelFitter, STEPS_MAX};
pub use generate::{Fidelity, GenerateError, GenerateOptions, Generator};
pub use plain::{PlainTransition, plain_transitions};
pub use windows::{Step, ThreadRun, Use, Whereabouts, Window};

use forebay_trace::Operation;
use serde::{Deserialize, Serialize};

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
