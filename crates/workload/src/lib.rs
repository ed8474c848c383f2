//! Workload statistics, latency histograms, and seeded generators of requests.
//!
//! Pure: no clock, no I/O, and randomness only from a generator that the caller seeds. It does not know traces (see
//! `trace`) or what a cache makes of a workload (see `locality` and `control`).

pub mod generator;
mod latency;
pub mod presto;
pub mod statistics;

pub use generator::{Arrivals, BlockPicker, Random, Scatter, ZipfRanks, exponential, random};
pub use latency::{LatencyHistogram, LatencySnapshot};
