//! Prewarming: what is worth loading before it is asked for, and in which order.
//!
//! All of it is pure arithmetic on what a cache remembers of its workloads: snapshots of what was cached ([`ScoreTable`]), visits of
//! zones ([`Visits`]), and where a workload goes on from where it is ([`Neighbours`]). It loads nothing, and does not know what a
//! snapshot looks like on disk. The daemon and the simulator use the same code.
//!
//! Not to be mixed up with [`crate::warmup`], which decides whether hot zones are loaded into a cache that was just granted.

mod benefit;
mod neighbours;
mod scores;
mod visits;

pub use benefit::Benefit;
pub use neighbours::{Chance, Neighbours, Place};
pub use scores::{Heuristic, ScoreTable};
pub use visits::{VisitRules, Visits};
