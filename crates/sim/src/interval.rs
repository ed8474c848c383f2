//! What a volume sees of itself in an interval, in the daemon's words.

use forebay_cache::Statistics;
use forebay_control::{CacheObservation, VolumeId, VolumeObservation, ZoneHeat};
use forebay_locality::LocalitySnapshot;
use forebay_units::{Bytes, Nanos};
use forebay_workload::LatencyHistogram;
use std::sync::Arc;

/// Streams of sequential reads that are told apart, as in the daemon.
const READ_ENDS: usize = 4;

/// What is recorded between two intervals; recording allocates nothing.
#[derive(Debug)]
pub(crate) struct Recorder {
    hits: LatencyHistogram,
    misses: LatencyHistogram,
    writes: LatencyHistogram,
    reads: u64,
    changes: u64,
    origin_reads: u64,
    bytes_read: u64,
    bytes_written: u64,
    sequential: u64,
    /// Requests that the load had no room for.
    pub(crate) shed: u64,
    read_ends: [u64; READ_ENDS],
    next_read_end: usize,
    pub(crate) outstanding: u32,
    outstanding_max: u32,
    open_reads: Open,
    open_writes: Open,
    busy: Nanos,
    busy_since: Nanos,
    /// Up to here hits keep it busy, which is counted.
    hits_until: Nanos,
    began: Nanos,
    /// How many intervals have ended.
    pub(crate) interval: u32,
    before: Statistics,
}

/// Requests of a kind that are outstanding.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    /// They came in the interval that runs.
    new: u32,
    /// They came before it: those that are left when it ends hung.
    old: u32,
}

impl Open {
    /// The interval ends; how many hung.
    fn end(&mut self) -> u32 {
        let hung = self.old;
        *self = Open { new: 0, old: self.old + self.new };
        hung
    }
}

impl Recorder {
    pub(crate) fn new() -> Recorder {
        Recorder {
            hits: LatencyHistogram::new(),
            misses: LatencyHistogram::new(),
            writes: LatencyHistogram::new(),
            reads: 0,
            changes: 0,
            origin_reads: 0,
            bytes_read: 0,
            bytes_written: 0,
            sequential: 0,
            shed: 0,
            read_ends: [u64::MAX; READ_ENDS],
            next_read_end: 0,
            outstanding: 0,
            outstanding_max: 0,
            open_reads: Open::default(),
            open_writes: Open::default(),
            busy: Nanos::ZERO,
            busy_since: Nanos::ZERO,
            hits_until: Nanos::ZERO,
            began: Nanos::ZERO,
            interval: 0,
            before: Statistics::default(),
        }
    }

    fn open(&mut self, writes: bool) -> &mut Open {
        if writes { &mut self.open_writes } else { &mut self.open_reads }
    }

    /// A read of `bytes` from `offset` on arrives.
    #[inline]
    pub(crate) fn read(&mut self, offset: u64, bytes: u64) {
        self.reads += 1;
        self.bytes_read += bytes;
        let place = match self.read_ends.iter().position(|end| *end == offset) {
            Some(place) => {
                self.sequential += 1;
                place
            }
            None => {
                self.next_read_end = (self.next_read_end + 1) % READ_ENDS;
                self.next_read_end
            }
        };
        self.read_ends[place] = offset + bytes;
    }

    /// A write of `bytes` arrives.
    pub(crate) fn write(&mut self, bytes: u64) {
        self.changes += 1;
        self.bytes_written += bytes;
    }

    /// A read for clients is sent to the origin.
    pub(crate) fn origin_read(&mut self) {
        self.origin_reads += 1;
    }

    /// A read that arrives is answered from the cache alone at `answered`, which its client has after `latency`.
    #[inline]
    pub(crate) fn hit(&mut self, now: Nanos, answered: Nanos, latency: Nanos) {
        self.hits.record(latency);
        self.outstanding_max = self.outstanding_max.max(1);
        if self.outstanding == 0 {
            // Of hits at once each takes its time, and together they do not take longer.
            self.busy += answered.saturating_since(now.max(self.hits_until));
            self.hits_until = self.hits_until.max(answered);
        }
    }

    /// A request that waits for its origin arrived.
    pub(crate) fn more_outstanding(&mut self, now: Nanos, writes: bool) {
        self.open(writes).new += 1;
        if self.outstanding == 0 {
            self.busy_since = now.max(self.hits_until);
        }
        self.outstanding += 1;
        self.outstanding_max = self.outstanding_max.max(self.outstanding);
    }

    /// One that arrived in that interval is answered.
    pub(crate) fn done(&mut self, now: Nanos, arrived_in: u32, latency: Nanos, writes: bool) {
        let is_new = arrived_in == self.interval;
        let open = self.open(writes);
        *(if is_new { &mut open.new } else { &mut open.old }) -= 1;
        if writes {
            self.writes.record(latency);
        } else {
            self.misses.record(latency);
        }
        self.outstanding -= 1;
        if self.outstanding == 0 {
            self.busy += now.saturating_since(self.busy_since.max(self.began));
        }
    }

    /// Ends the interval, and says it as the daemon does. Also the requests shed in it.
    pub(crate) fn end(
        &mut self,
        id: VolumeId,
        now: Nanos,
        cache: Statistics,
        prewarming: bool,
        locality: &LocalitySnapshot,
    ) -> (VolumeObservation, u64) {
        let span = now.saturating_since(self.began);
        let mut busy = self.busy;
        if self.outstanding > 0 {
            busy += now.saturating_since(self.busy_since.max(self.began));
        }
        let (old, working_set) = (self.before, &locality.working_set);
        // The window that runs says more of now once it has seen half as much as the last one.
        let (current, last) = (&locality.zones_current, &locality.zones_last);
        let zones = if current.accesses >= last.accesses / 2 { current } else { last };
        let observed = VolumeObservation {
            arrivals: self.reads + self.changes,
            hits: self.hits.snapshot(),
            misses: self.misses.snapshot(),
            writes: self.writes.snapshot(),
            origin_reads: Some(self.origin_reads),
            bytes_read: Bytes(self.bytes_read),
            bytes_written: Bytes(self.bytes_written),
            outstanding_max: self.outstanding_max,
            idle: span.saturating_since(busy),
            reads_hung: self.open_reads.end(),
            writes_hung: self.open_writes.end(),
            sequential_share: self.sequential as f64 / self.reads.max(1) as f64,
            cache: CacheObservation {
                quota_blocks: cache.quota_blocks.into(),
                refused_blocks: 0,
                used_blocks: cache.resident_blocks.into(),
                invalidated_blocks: cache.invalidations.saturating_sub(old.invalidations),
                filled_blocks: cache.insertions.saturating_sub(old.insertions),
                prewarmed_blocks: cache.prewarmed.saturating_sub(old.prewarmed),
                prewarming,
            },
            curve: Some(Arc::new(locality.curve.clone())),
            curve_accesses: locality.accesses,
            working_set_blocks: working_set.last_blocks.unwrap_or(working_set.current_blocks),
            zones: zones
                .zones
                .iter()
                .map(|zone| ZoneHeat { zone: zone.zone, accesses: zone.count })
                .collect(),
            zone_accesses: zones.accesses,
            zone_blocks: 1 << locality.zone_shift,
            ..VolumeObservation::idle(id, span)
        };
        let shed = self.shed;
        for histogram in [&mut self.hits, &mut self.misses, &mut self.writes] {
            histogram.clear();
        }
        (self.reads, self.changes, self.bytes_read, self.bytes_written) = (0, 0, 0, 0);
        (self.sequential, self.origin_reads, self.shed, self.busy) = (0, 0, 0, Nanos::ZERO);
        (self.outstanding_max, self.began, self.before) = (self.outstanding, now, cache);
        self.interval += 1;
        (observed, shed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_locality::{LiveConfig, LiveObserver};

    #[test]
    fn idle_time_and_outstanding_requests_are_those_of_the_interval() {
        let mut recorder = Recorder::new();
        let locality = LiveObserver::new(LiveConfig::default(), Nanos::ZERO).snapshot(Nanos::ZERO);
        // Busy 10..30 with two requests at most, 40..45 with a hit, and from 90 on.
        recorder.more_outstanding(Nanos(10), false);
        recorder.more_outstanding(Nanos(20), true);
        recorder.done(Nanos(25), 0, Nanos(15), false);
        recorder.done(Nanos(30), 0, Nanos(10), true);
        recorder.hit(Nanos(40), Nanos(45), Nanos(5));
        recorder.more_outstanding(Nanos(90), false);
        let end = |recorder: &mut Recorder, at| {
            recorder.end(VolumeId(0), Nanos(at), Statistics::default(), false, &locality).0
        };
        let seen = end(&mut recorder, 100);
        assert_eq!((seen.idle, seen.outstanding_max, seen.completed()), (Nanos(65), 2, 3));
        recorder.done(Nanos(150), 0, Nanos(60), false);
        let seen = end(&mut recorder, 200);
        assert_eq!((seen.idle, seen.outstanding_max), (Nanos(50), 1));
    }

    #[test]
    fn what_came_before_an_interval_and_is_not_answered_in_it_hung() {
        let mut recorder = Recorder::new();
        let locality = LiveObserver::new(LiveConfig::default(), Nanos::ZERO).snapshot(Nanos::ZERO);
        let end = |recorder: &mut Recorder, at| {
            let seen = recorder.end(VolumeId(0), Nanos(at), Statistics::default(), false, &locality).0;
            (seen.reads_hung, seen.writes_hung)
        };
        // Two reads and a write come in the first interval, and a write as the second begins.
        recorder.more_outstanding(Nanos(10), false);
        recorder.more_outstanding(Nanos(20), false);
        recorder.more_outstanding(Nanos(30), true);
        assert_eq!(end(&mut recorder, 100), (0, 0), "they came in this interval");
        recorder.more_outstanding(Nanos(100), true);
        assert_eq!(end(&mut recorder, 200), (2, 1));
        recorder.done(Nanos(250), 0, Nanos(240), false);
        recorder.done(Nanos(260), 1, Nanos(160), true);
        assert_eq!(end(&mut recorder, 300), (1, 1));
        recorder.done(Nanos(350), 0, Nanos(330), false);
        recorder.done(Nanos(360), 0, Nanos(330), true);
        assert_eq!(end(&mut recorder, 400), (0, 0));
    }

    #[test]
    fn hits_at_once_keep_busy_once_and_the_way_to_their_clients_does_not() {
        let mut recorder = Recorder::new();
        let locality = LiveObserver::new(LiveConfig::default(), Nanos::ZERO).snapshot(Nanos::ZERO);
        // Hits of 5 each, which their clients have 30 later, and a miss that ends at 55.
        for at in [10, 12, 20, 21, 40] {
            recorder.hit(Nanos(at), Nanos(at + 5), Nanos(35));
        }
        recorder.more_outstanding(Nanos(42), false);
        recorder.done(Nanos(55), 0, Nanos(43), false);
        let (seen, _) = recorder.end(VolumeId(0), Nanos(100), Statistics::default(), false, &locality);
        // Busy 10..17, 20..26 and 40..55.
        assert_eq!((seen.idle, seen.hits.count()), (Nanos(72), 5));
    }
}
