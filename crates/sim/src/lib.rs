//! Discrete events on virtual time: devices, links, caches, workloads, and the controller of the daemon.
//!
//! It runs the daemon's own decisions (`control`), bookkeeping (`cache::Partition`), observation
//! (`locality::LiveObserver`) and disk model (`devmodel`) on loads from `workload` generators or traces. It is *not*
//! the daemon under test: it holds no bytes, opens no socket and proves nothing about consistency; it predicts.
//!
//! Invariants: it is pure (no clock, no I/O, no threads; randomness from the seed alone; who wants the draws of open loops
//! made elsewhere meanwhile runs [`DrawJob`]s on a thread of its own), so the same scenario, traces,
//! seed and commit give the same events, which [`Outcome::hash`] stands for; events at one instant are taken in the
//! order in which they were planned; every request that was sent completes exactly once or is outstanding at the end.

mod appliance;
mod calendar;
mod device;
mod drawn;
pub mod dynamite;
mod hindsight;
pub mod hybrid_store;
mod interval;
mod least_sizes;
mod load;
mod origin;
mod outcome;
mod papers;
pub mod presto;
pub mod sancache;
pub mod scenario;
mod simulation;
mod slab;
mod tier;
mod track;
mod volume;

pub use drawn::DrawJob;
pub use hindsight::{Hindsight, hindsight};
pub use least_sizes::{LeastSizes, SizeRange, least_sizes, with_caches};
pub use load::{RecordedRequest, Traces};
pub use outcome::{
    ChosenPolicy, ExpectedOutcome, IntervalRow, LatencySummary, ObjectiveOutcome, OriginRow, OriginSeries,
    Outcome, ReservationOutcome, Totals, VolumeSeries, WindowRow,
};
pub use scenario::Scenario;
pub use simulation::{RunError, Simulation};
pub use tier::{TierOutcome, TierRow, TierTotals};
