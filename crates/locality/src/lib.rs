//! Reuse distances, miss ratio curves and their estimators, working set sizes, hot zones. Pure: no I/O, no clock.
//!
//! Every estimator is fed accesses to blocks, which are `u64` keys, each with a weight: 0 moves a block but is not
//! counted, 1 counts accesses, bytes give ratios per byte.

mod curve;
mod distance;
mod exact;
mod loglinear;
mod recency;
mod shards;
mod table;

pub use curve::{CurvePoint, MissRatioCurve};
pub use distance::DistanceHistogram;
pub use exact::ExactLru;
pub use shards::{FixedRate, FixedSize};
