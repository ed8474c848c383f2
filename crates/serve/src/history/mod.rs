//! What is kept across restarts: intervals and decisions, in SQLite, written by a thread of its own.
//!
//! Nobody waits for it. What it cannot take, because its queue is full or the database fails, is counted and lost; serving
//! and deciding go on. The layout is in docs/internals/format-history.md.

mod database;
mod stamps;
mod writer;

pub use database::{Database, HistoryError, VERSION};
pub(crate) use writer::{History, HistoryCounters};

use forebay_control::Decision;
use std::time::Duration;

/// How often old rows are looked for.
const PRUNE: Duration = Duration::from_secs(60);

/// One interval of one volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IntervalRow {
    /// The volume's name.
    pub volume: String,
    /// The end of the interval, milliseconds since 1970.
    pub at_unix_ms: i64,
    /// Its length.
    pub span_ms: i64,
    /// Reads that arrived.
    pub reads: u64,
    /// Writes, trims and zeroes that arrived.
    pub writes: u64,
    /// Bytes of reads.
    pub bytes_read: u64,
    /// Bytes of writes.
    pub bytes_written: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Requests per second.
    pub iops: f64,
    /// Mean, p50, p95 and p99 of reads, microseconds; absent without reads.
    pub read_us: [Option<f64>; 4],
    /// Mean, p50, p95 and p99 of writes, microseconds; absent without writes.
    pub write_us: [Option<f64>; 4],
    /// Share of the reads that the cache alone answered; absent without reads.
    pub hit_ratio: Option<f64>,
    /// The quota.
    pub quota_bytes: u64,
    /// Cached.
    pub used_bytes: u64,
    /// Share of the last windows that conform, of the worst objective; absent without one.
    pub conforming_share: Option<f64>,
    /// Different data used in the working set's window; absent where nothing is observed of it.
    pub working_set_bytes: Option<u64>,
}

/// A decision and when it was made.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct DatedDecision {
    /// Milliseconds since 1970.
    pub at_unix_ms: i64,
    /// The decision; its `at_ns` counts from the start of the run that made it.
    #[serde(flatten)]
    pub decision: Decision,
}

/// What is written together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) intervals: Vec<IntervalRow>,
    pub(crate) decisions: Vec<DatedDecision>,
}

impl Batch {
    fn rows(&self) -> u64 {
        (self.intervals.len() + self.decisions.len()) as u64
    }
}

/// A unit variant as its word.
pub(crate) fn word<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}
