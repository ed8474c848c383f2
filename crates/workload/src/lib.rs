//! Workload statistics, histograms of latencies and of sizes, models of workloads, and seeded generators of requests.
//!
//! Pure: no clock, no I/O, and randomness only from a generator that the caller seeds. It opens no traces (it takes and
//! yields `trace`'s requests) and judges no cache (see `locality` and `control`).

pub mod compare;
pub mod generator;
mod latency;
pub mod model;
pub mod parametric;
pub mod presto;
pub mod profile;
mod size;
pub mod statistics;
mod streams;
pub mod study;

pub use generator::{Arrivals, BlockPicker, Random, Scatter, ZipfRanks, exponential, random};
pub use latency::{LatencyHistogram, LatencySnapshot};
pub use size::SizeHistogram;
pub use streams::Streams;
