//! PRESTO's evaluation again: a cache of metadata objects, a node that fails, and the node that takes over, prewarmed or not.
//!
//! It is a simulation of its own, not a [`crate::Scenario`]: objects of two sizes in two pools with hard borders, no devices, and time
//! only in so far as it orders accesses and paces loading. That is what the published figures are about. What decides is not here: scores,
//! estimates and what to follow are `control::prewarm`'s, and the volumes are `workload::presto`'s.
//!
//! Invariants: nothing but [`Way::Ideal`] sees what comes after the failure; a seed repeats a run; prewarming loads at most its limit, at
//! most its rate in any second, and displaces nothing.
//!
//! Source: PRESTO (slides, 2019), and the published simulator (github.com/skrtbhtngr/presto) for what the slides leave out.

mod destination;
mod experiment;
mod ideal;
mod learnt;
mod load;
mod metrics;
mod objects;
#[cfg(test)]
mod pace_tests;
mod pools;
mod published;
mod source;
#[cfg(test)]
mod tests;
mod working_set;

pub use destination::{Following, Loading, Run, Second, SpanWeights, serve as take_over};
pub use experiment::{Experiment, FAILURE, Failed, HORIZON, SECONDS, Way};
pub use ideal::ideal;
pub use learnt::{Goal, Learnt, Plan, Rehearsal};
pub use load::{Access, Load};
pub use metrics::{Metric, fetch_micros};
pub use objects::{EXTENT_BYTES, HM1_BYTES, HM3_BYTES, Object, Objects};
pub use pools::{Entry, Place, Pools};
pub use published::{Part, PublishedRow, PublishedVolume, REAL_CSE_ROWS, SYN6GB_ROWS, SYN6GB_VOLUMES};
pub use source::{Lately, Snapshot, Source, serve as serve_until_failure};
pub use working_set::{runtime_working_set, wss80};
