//! What a volume sees of itself: counters, latency histograms, locality; taken as an owned snapshot.
//!
//! Recording costs a few additions per request and never allocates. Counters only rise; histograms are those of the
//! interval that the last observer who asked for it ended.

use super::prewarm::PrewarmProgress;
use forebay_cache::{Progress, Statistics};
use forebay_locality::LocalitySnapshot;
use forebay_units::{ByteRange, Bytes, Nanos};
use forebay_workload::{LatencyHistogram, LatencySnapshot};

/// What happened since the volume was added. Requests are counted when they arrive, errors when they are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Read requests.
    pub reads: u64,
    /// Of them, answered from the cache alone.
    pub reads_hit: u64,
    /// Bytes asked for by reads.
    pub bytes_read: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes of write requests.
    pub bytes_written: u64,
    /// Flush requests.
    pub flushes: u64,
    /// Trim requests.
    pub trims: u64,
    /// Requests to write zeroes.
    pub write_zeroes: u64,
    /// Requests to load the cache.
    pub cache_requests: u64,
    /// Requests answered with an error, for whatever reason.
    pub errors: u64,
    /// Writes that had to wait for an overlapping one.
    pub writes_delayed: u64,
    /// Reads that joined an origin read of others, per origin read joined.
    pub reads_coalesced: u64,
    /// Misses that lengthened an origin read of others instead of making one.
    pub reads_merged: u64,
    /// Origin reads whose data was not inserted because a write overlapped them or their blocks were in doubt.
    pub fills_dropped: u64,
    /// Requests sent to the origin.
    pub origin_requests: u64,
    /// Of them, reads.
    pub origin_reads: u64,
    /// Bytes asked of the origin by reads.
    pub origin_bytes_read: u64,
    /// Bytes of changes sent to the origin.
    pub origin_bytes_written: u64,
    /// Origin requests that ended in an error, of whatever kind.
    pub origin_errors: u64,
    /// Of them, changes whose outcome is unknown.
    pub outcomes_unknown: u64,
}

/// Latencies of one interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Reads: from the moment the request was received to the moment its reply was ready to send.
    pub reads: LatencySnapshot,
    /// Writes, trims and zeroes, likewise.
    pub writes: LatencySnapshot,
    /// Requests to the origin: from submission to completion.
    pub origin: LatencySnapshot,
}

/// One volume at one instant: owned data, for controllers and for people.
#[derive(Clone, Debug)]
pub struct VolumeObservation {
    /// When.
    pub at: Nanos,
    /// When the interval of `latencies` began.
    pub interval_started: Nanos,
    /// Since the volume was added.
    pub counters: Counters,
    /// Of this interval.
    pub latencies: Latencies,
    /// Curve, working set and hot zones of the reads, if they are observed.
    pub locality: Option<LocalitySnapshot>,
    /// Hits, misses, evictions, blocks.
    pub cache: Statistics,
    /// Whether a change of the quota is still being put in force.
    pub quota_progress: Progress,
    /// The quota, in bytes.
    pub quota_bytes: Bytes,
    /// Data cached, in bytes.
    pub resident_bytes: Bytes,
    /// Memory mapped for data, in bytes.
    pub held_bytes: Bytes,
    /// Memory of the bookkeeping besides the data, in bytes.
    pub bookkeeping_bytes: u64,
    /// The last warm-up, if there ever was one.
    pub prewarm: Option<PrewarmProgress>,
    /// Ranges with writes of unknown outcome, in whole blocks.
    pub in_doubt: Vec<ByteRange>,
    /// Client requests in flight.
    pub requests_in_flight: usize,
    /// Requests at the origin.
    pub origin_in_flight: usize,
    /// Of `requests_in_flight`, changes that wait for overlapping ones.
    pub writes_waiting: usize,
}

/// What is recorded between two snapshots.
#[derive(Debug)]
pub(crate) struct Observer {
    pub(crate) counters: Counters,
    pub(crate) reads: LatencyHistogram,
    pub(crate) writes: LatencyHistogram,
    pub(crate) origin: LatencyHistogram,
    pub(crate) interval_started: Nanos,
}

impl Observer {
    pub(crate) fn new(now: Nanos) -> Observer {
        Observer {
            counters: Counters::default(),
            reads: LatencyHistogram::new(),
            writes: LatencyHistogram::new(),
            origin: LatencyHistogram::new(),
            interval_started: now,
        }
    }

    pub(crate) fn latencies(&self) -> Latencies {
        Latencies {
            reads: self.reads.snapshot(),
            writes: self.writes.snapshot(),
            origin: self.origin.snapshot(),
        }
    }

    pub(crate) fn end_interval(&mut self, now: Nanos) {
        self.reads.clear();
        self.writes.clear();
        self.origin.clear();
        self.interval_started = now;
    }
}
