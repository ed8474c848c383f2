//! Reuse distances, miss ratio curves and their estimators, working set sizes, hot zones. Pure: no I/O, no clock.
//!
//! Every estimator is fed accesses to blocks, which are `u64` keys, each with a weight: 0 moves a block but is not
//! counted, 1 counts accesses, bytes give ratios per byte. [`CurveBuilder`] turns requests into such accesses; who has
//! requests should use it, so that the rules stand in one place. [`LiveObserver`] is for the request path of an appliance.
//!
//! It is *not* a simulator: all curves are those of LRU. Other policies are simulated where policies live.

mod builder;
mod curve;
mod distance;
mod distinct;
mod exact;
mod head;
mod live;
mod loglinear;
mod numbers;
mod recency;
mod reuse;
mod sample_table;
mod shards;
mod sizes;
mod table;
mod working_set;
mod zones;

pub use builder::{CurveBuilder, CurveOptions, CurveResult, Method, Requests, Unit, volume_block_key};
pub use curve::{CurvePoint, CurveWalk, MissRatioCurve};
pub use distance::DistanceHistogram;
pub use distinct::DistinctSketch;
pub use exact::ExactLru;
pub use live::{LiveConfig, LiveObserver, LiveWorkingSet, LocalitySnapshot};
pub use numbers::{BlockNumbers, PageHome, Ranks};
pub use reuse::ReuseTimes;
pub use shards::{FixedRate, FixedSize};
pub use sizes::resolve_sizes;
pub use working_set::{WorkingSetSummary, WorkingSetWindows};
pub use zones::{HotZones, LossyCounter, ZoneCount, ZoneWindow};
