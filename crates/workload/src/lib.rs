//! Workload statistics, latency histograms, and seeded generators of requests.

mod latency;

pub use latency::{LatencyHistogram, LatencySnapshot};
