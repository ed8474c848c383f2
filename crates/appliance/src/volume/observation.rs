//! What a volume sees of itself: counters, latency histograms, locality; taken as an owned snapshot.
//!
//! Recording costs a few additions per request and never allocates. Counters only rise; histograms are those of the
//! interval that the last observer who asked for it ended.

use super::prewarm::PrewarmProgress;
use forebay_cache::flash::FlashStatistics;
use forebay_cache::{Progress, Statistics};
use forebay_locality::LocalitySnapshot;
use forebay_policy::placement::{Admission, PlacementStatistics};
use forebay_units::{ByteRange, Bytes, Nanos};
use forebay_workload::{LatencyHistogram, LatencySnapshot, SizeHistogram};

/// What happened since the volume was added. Requests are counted when they arrive, errors when they are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Read requests.
    pub reads: u64,
    /// Of them, answered from memory alone.
    pub reads_hit: u64,
    /// Of them, answered without the origin, but not from memory alone.
    pub reads_flash: u64,
    /// Bytes asked for by reads.
    pub bytes_read: u64,
    /// How long reads were.
    pub read_sizes: SizeHistogram,
    /// Reads that started where one of the last four had ended.
    pub reads_sequential: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes of write requests.
    pub bytes_written: u64,
    /// How long write requests were.
    pub write_sizes: SizeHistogram,
    /// Flush requests.
    pub flushes: u64,
    /// Trim requests.
    pub trims: u64,
    /// Requests to write zeroes.
    pub write_zeroes: u64,
    /// Requests to load the cache.
    pub cache_requests: u64,
    /// Questions about block status.
    pub status_requests: u64,
    /// Reads that went as far as flash or the origin and were answered with an error: they are in none of the latencies.
    pub reads_failed: u64,
    /// Writes, trims and zeroes, likewise.
    pub changes_failed: u64,
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
    /// Blocks that entered with what a change made of them, since a read had missed them while it was in flight.
    pub changes_entered: u64,
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
    /// Reads that needed flash or the origin, and changes, that were answered,
    pub waits: u64,
    /// and how long they took all together.
    pub waited_ns: u64,
}

/// Latencies of one interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Reads answered from memory alone: from the moment the request was received to the moment its reply was ready
    /// to send.
    pub hits: LatencySnapshot,
    /// Reads that needed flash or the origin, likewise; without those that failed, which may take no time at all.
    pub misses: LatencySnapshot,
    /// Writes, trims and zeroes, likewise.
    pub writes: LatencySnapshot,
    /// Flushes, likewise.
    pub flushes: LatencySnapshot,
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
    /// Most requests outstanding at once in this interval; hits, which are answered at once, count as one.
    pub outstanding_max: u32,
    /// How long no request was outstanding in this interval, within a turn of the worker.
    pub idle: Nanos,
    /// Reads of before this interval that are not answered yet.
    pub reads_hung: usize,
    /// Writes, trims and zeroes, likewise.
    pub writes_hung: usize,
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
    /// The tier on flash, if the volume has one.
    pub flash: Option<FlashObservation>,
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

/// The little of a volume that who loads its cache looks at many times a second.
#[derive(Clone, Copy, Debug)]
pub struct VolumePulse {
    /// When.
    pub at: Nanos,
    /// Since the volume was added.
    pub counters: Counters,
    /// Hits, misses, evictions, blocks.
    pub cache: Statistics,
    /// The last warm-up, if there ever was one.
    pub prewarm: Option<PrewarmProgress>,
}

/// A volume's tier on flash at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashObservation {
    /// Hits, misses, faults, blocks.
    pub statistics: FlashStatistics,
    /// The quota, in bytes of whole segments.
    pub quota_bytes: Bytes,
    /// Blocks resident on flash, in bytes.
    pub resident_bytes: Bytes,
    /// Segments taken on the device, in bytes.
    pub held_bytes: Bytes,
    /// Memory of blocks on their way to the device, in bytes.
    pub buffered_bytes: Bytes,
    /// Memory of the index, in bytes.
    pub bookkeeping_bytes: u64,
    /// Requests at the device or waiting for it.
    pub in_flight: usize,
    /// Who is let onto it; `None`: whatever memory evicts.
    pub placing: Option<PlacingObservation>,
}

/// How a volume's flash is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacingObservation {
    /// By what.
    pub admission: Admission,
    /// The count in force that a chunk must reach; `None` where counts do not decide.
    pub threshold: Option<u16>,
    /// Bytes of a chunk.
    pub chunk_bytes: Bytes,
    /// Chunks that may be placed, that are, and that are on their way.
    pub capacity_chunks: u32,
    /// See `capacity_chunks`.
    pub placed_chunks: u32,
    /// See `capacity_chunks`.
    pub moving_chunks: u32,
    /// Bytes per second that may be moved now.
    pub bytes_per_second: u64,
    /// Clients whose requests bring no chunk onto flash.
    pub clients_left_out: usize,
    /// What was done since the placement began.
    pub statistics: PlacementStatistics,
    /// What was done since the volume was opened, by all the placements that it has had: those begin anew with another way of placing or another quota.
    pub in_all: PlacementStatistics,
}

/// What is recorded between two snapshots.
#[derive(Debug)]
pub(crate) struct Observer {
    /// No histogram of hits: only to measure what it costs.
    pub(crate) is_off: bool,
    pub(crate) counters: Counters,
    pub(crate) hits: LatencyHistogram,
    pub(crate) misses: LatencyHistogram,
    pub(crate) writes: LatencyHistogram,
    /// Made with the first flush: clients of many volumes ask for none.
    flushes: Option<LatencyHistogram>,
    pub(crate) origin: LatencyHistogram,
    pub(crate) interval_started: Nanos,
    /// Where the last reads ended, oldest next.
    read_ends: [u64; READ_ENDS],
    next_read_end: usize,
    outstanding_max: usize,
    /// How long something was outstanding in this interval, up to `busy_since`.
    busy: Nanos,
    busy_since: Option<Nanos>,
}

/// Streams of sequential reads that are told apart (ours).
const READ_ENDS: usize = 4;

impl Observer {
    pub(crate) fn new(now: Nanos) -> Observer {
        Observer {
            is_off: false,
            counters: Counters::default(),
            hits: LatencyHistogram::new(),
            misses: LatencyHistogram::new(),
            writes: LatencyHistogram::new(),
            flushes: None,
            origin: LatencyHistogram::new(),
            interval_started: now,
            read_ends: [u64::MAX; READ_ENDS],
            next_read_end: 0,
            outstanding_max: 0,
            busy: Nanos::ZERO,
            busy_since: None,
        }
    }

    /// A read arrived.
    #[inline]
    pub(crate) fn read(&mut self, range: ByteRange) {
        self.counters.reads += 1;
        self.counters.bytes_read += range.length;
        self.counters.read_sizes.record(range.length);
        let place = match self.read_ends.iter().position(|end| *end == range.offset) {
            Some(place) => {
                self.counters.reads_sequential += 1;
                place
            }
            None => {
                self.next_read_end = (self.next_read_end + 1) % READ_ENDS;
                self.next_read_end
            }
        };
        self.read_ends[place] = range.end();
    }

    /// A read that needed flash or the origin was answered after `latency`, with an error if it `has_failed`.
    pub(crate) fn missed(&mut self, latency: Nanos, has_failed: bool) {
        match has_failed {
            true => self.counters.reads_failed += 1,
            false => self.misses.record(latency),
        }
        self.waited(latency);
    }

    /// A change was answered after `latency`, likewise.
    pub(crate) fn changed(&mut self, latency: Nanos, has_failed: bool) {
        match has_failed {
            true => self.counters.changes_failed += 1,
            false => self.writes.record(latency),
        }
        self.waited(latency);
    }

    /// A flush succeeded after `latency`. It is no request that waits: whom that counts asks for data.
    pub(crate) fn flushed(&mut self, latency: Nanos) {
        self.flushes.get_or_insert_with(LatencyHistogram::new).record(latency);
    }

    fn waited(&mut self, latency: Nanos) {
        self.counters.waits += 1;
        self.counters.waited_ns = self.counters.waited_ns.saturating_add(latency.0);
    }

    /// From `now` on, `outstanding` requests are.
    pub(crate) fn outstanding(&mut self, now: Nanos, outstanding: usize) {
        self.outstanding_max = self.outstanding_max.max(outstanding);
        match (self.busy_since, outstanding) {
            (None, 1..) => self.busy_since = Some(now),
            (Some(since), 0) => {
                self.busy += now.saturating_since(since);
                self.busy_since = None;
            }
            _ => {}
        }
    }

    /// `hits` reads that arrived at `started` were served until `now`.
    pub(crate) fn served(&mut self, hits: u32, started: Nanos, now: Nanos) {
        if hits == 0 || self.is_off {
            return;
        }
        let latency = now.saturating_since(started);
        self.hits.record_many(latency, hits.into());
        self.outstanding_max = self.outstanding_max.max(1);
        if self.busy_since.is_none() {
            self.busy += latency;
        }
    }

    pub(crate) fn outstanding_max(&self) -> u32 {
        u32::try_from(self.outstanding_max).unwrap_or(u32::MAX)
    }

    /// How long nothing was outstanding in the interval that ends `now`.
    pub(crate) fn idle(&self, now: Nanos) -> Nanos {
        let busy = self.busy + now.saturating_since(self.busy_since.unwrap_or(now));
        now.saturating_since(self.interval_started).saturating_since(busy)
    }

    pub(crate) fn latencies(&self) -> Latencies {
        Latencies {
            hits: self.hits.snapshot(),
            misses: self.misses.snapshot(),
            writes: self.writes.snapshot(),
            flushes: self.flushes.as_ref().map(LatencyHistogram::snapshot).unwrap_or_default(),
            origin: self.origin.snapshot(),
        }
    }

    pub(crate) fn end_interval(&mut self, now: Nanos, outstanding: usize) {
        self.hits.clear();
        self.misses.clear();
        self.writes.clear();
        self.flushes.iter_mut().for_each(LatencyHistogram::clear);
        self.origin.clear();
        self.interval_started = now;
        self.outstanding_max = outstanding;
        self.busy = Nanos::ZERO;
        self.busy_since = self.busy_since.map(|_| now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_and_streams_are_counted() {
        let mut observer = Observer::new(Nanos::ZERO);
        observer.outstanding(Nanos(10), 2);
        observer.outstanding(Nanos(20), 0);
        observer.served(3, Nanos(30), Nanos(35));
        observer.outstanding(Nanos(90), 1);
        // Busy 10..20, 30..35 and 90..100: idle 75 of 100.
        assert_eq!((observer.idle(Nanos(100)), observer.outstanding_max()), (Nanos(75), 2));
        observer.end_interval(Nanos(100), 1);
        assert_eq!((observer.idle(Nanos(150)), observer.outstanding_max()), (Nanos::ZERO, 1));
        // Two streams side by side and a stray read: two of the five continue a stream.
        for (offset, length) in [(0, 10), (500, 10), (10, 10), (900, 1), (510, 10)] {
            observer.read(ByteRange::new(offset, length));
        }
        assert_eq!((observer.counters.reads, observer.counters.reads_sequential), (5, 2));
    }
}
