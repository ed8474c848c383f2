//! What happened in a window, and what of it says whether the workload asked for more than it was given.

use super::ConformanceRules;
use crate::objective::Operations;
use crate::observation::VolumeObservation;
use forebay_units::Nanos;
use forebay_workload::LatencySnapshot;

/// What happened in a window: intervals added up.
#[derive(Clone, Debug, Default)]
pub struct WindowTotals {
    /// Its length.
    pub span: Nanos,
    /// Requests that arrived.
    pub arrivals: u64,
    /// Reads.
    pub reads: LatencySnapshot,
    /// Writes.
    pub writes: LatencySnapshot,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Time without an outstanding request.
    pub idle: Nanos,
    /// Most requests outstanding at once.
    pub outstanding_max: u32,
    /// Reads that hang: their latencies are not told before they are answered.
    pub reads_hung: Hung,
    /// Likewise writes.
    pub writes_hung: Hung,
    /// Reads that were answered with an error: they are not among `reads`.
    pub reads_failed: u64,
    /// Likewise writes.
    pub writes_failed: u64,
}

/// Requests that hang at the end of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hung {
    /// How many.
    count: u32,
    /// For how long some have, from interval to interval.
    pub(super) span: Nanos,
    /// For how long those that hang have, all together.
    pub(super) time: Nanos,
}

impl Hung {
    /// Behind another `interval` so many hang. Those that do not any more are answered, and count by their latencies.
    fn add(&mut self, count: u32, interval: Nanos) {
        if count == 0 {
            *self = Hung::default();
            return;
        }
        let before =
            u128::from(self.time.0) * u128::from(count.min(self.count)) / u128::from(self.count.max(1));
        let more = u128::from(interval.0) * u128::from(count);
        self.time = Nanos(u64::try_from(before + more).unwrap_or(u64::MAX));
        self.span = self.span.saturating_add(interval);
        self.count = count;
    }
}

impl WindowTotals {
    /// Adds an interval.
    pub fn add(&mut self, observed: &VolumeObservation) {
        let interval = observed.span;
        self.span += interval;
        self.arrivals += observed.arrivals;
        self.reads.merge(&observed.hits);
        self.reads.merge(&observed.misses);
        self.writes.merge(&observed.writes);
        self.bytes_read += observed.bytes_read.get();
        self.bytes_written += observed.bytes_written.get();
        self.idle += observed.idle;
        self.outstanding_max = self.outstanding_max.max(observed.outstanding_max);
        self.reads_hung.add(observed.reads_hung, interval);
        self.writes_hung.add(observed.writes_hung, interval);
        self.reads_failed += observed.reads_failed;
        self.writes_failed += observed.writes_failed;
    }

    /// Whether some of `operations` have hung for longer than `bound`, and for the second half of the window: one that is slow, and happens to be open
    /// when a window ends, says nothing of it.
    pub(super) fn hangs(&self, operations: Operations, bound: Nanos) -> bool {
        let long = |hung: &Hung| hung.span > bound && hung.span.0 >= self.span.0 / 2;
        let (reads, writes) = (long(&self.reads_hung), long(&self.writes_hung));
        match operations {
            Operations::Reads => reads,
            Operations::Writes => writes,
            Operations::All => reads || writes,
        }
    }

    /// Requests that were answered, those with an error among them.
    pub fn completed(&self) -> u64 {
        self.reads.count() + self.writes.count() + self.failed(Operations::All)
    }

    /// Requests of `operations` that were answered with an error.
    pub(super) fn failed(&self, operations: Operations) -> u64 {
        match operations {
            Operations::Reads => self.reads_failed,
            Operations::Writes => self.writes_failed,
            Operations::All => self.reads_failed + self.writes_failed,
        }
    }

    /// Requests outstanding on average: by Little's law, and those that hung.
    pub fn outstanding_mean(&self) -> f64 {
        let hung = u128::from(self.reads_hung.time.0) + u128::from(self.writes_hung.time.0);
        (self.reads.sum_ns() + self.writes.sum_ns() + hung) as f64 / self.span.0.max(1) as f64
    }

    /// How large a part of what the workload asks for and waits for `operations` are: of the requests, or of the time, whichever is more.
    /// A cache makes what it answers a small part of the time, and few requests that are slow are a small part of the number.
    pub(super) fn share_of(&self, operations: Operations) -> f64 {
        let of = |reads: u64, writes: u64| {
            let part = match operations {
                Operations::Reads => reads,
                Operations::Writes => writes,
                Operations::All => reads + writes,
            };
            part as f64 / (reads + writes).max(1) as f64
        };
        let time = |latencies: &LatencySnapshot, hung: Nanos| {
            let sum_ns = latencies.sum_ns() + u128::from(hung.0);
            u64::try_from(sum_ns).unwrap_or(u64::MAX).min(u64::MAX >> 1)
        };
        let answered = |served: &LatencySnapshot, failed: u64| served.count() + failed;
        let requests =
            of(answered(&self.reads, self.reads_failed), answered(&self.writes, self.writes_failed));
        requests.max(of(time(&self.reads, self.reads_hung.time), time(&self.writes, self.writes_hung.time)))
    }

    /// Whether the workload waited for answers nearly all the time: it would have done more had they been faster.
    pub fn is_backlogged(&self, rules: &ConformanceRules) -> bool {
        let idle_share = self.idle.0 as f64 / self.span.0.max(1) as f64;
        let deep = self.outstanding_mean() >= rules.backlog_depth_min * f64::from(self.outstanding_max);
        // Nothing completed at all: the mean by Little's law is 0 although requests hang.
        let stalled = self.completed() == 0;
        self.outstanding_max > 0 && idle_share <= rules.backlog_idle_share_max && (deep || stalled)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::latencies;
    use super::*;

    #[test]
    fn a_window_is_all_of_its_intervals() {
        let observed = |n: u64| VolumeObservation {
            arrivals: 10 * n,
            hits: latencies(n, Nanos::millis(1)),
            misses: latencies(2 * n, Nanos::millis(1)),
            writes: latencies(3 * n, Nanos::millis(1)),
            bytes_read: forebay_units::Bytes(100 * n),
            bytes_written: forebay_units::Bytes(1_000 * n),
            idle: Nanos::millis(n),
            outstanding_max: 9 - n as u32,
            reads_hung: n as u32,
            writes_hung: n as u32 + 1,
            reads_failed: 4 * n,
            writes_failed: 5 * n,
            ..VolumeObservation::idle(crate::VolumeId(0), Nanos::secs(n))
        };
        let mut window = WindowTotals::default();
        (1..3).for_each(|n| window.add(&observed(n)));
        assert_eq!((window.span, window.idle), (Nanos::secs(3), Nanos::millis(3)));
        assert_eq!((window.arrivals, window.outstanding_max), (30, 8));
        assert_eq!((window.reads.count(), window.writes.count()), (9, 9));
        assert_eq!((window.bytes_read, window.bytes_written), (300, 3_000));
        assert_eq!((window.reads_failed, window.writes_failed, window.completed()), (12, 15, 45));
        // One read hangs for a second, and two for two more; two writes for one, and three for two more.
        assert_eq!((window.reads_hung.time, window.writes_hung.time), (Nanos::secs(5), Nanos::secs(8)));
        // And 18 requests of 1 ms, over 3 s.
        assert!((window.outstanding_mean() - 13.018 / 3.0).abs() < 1e-9);
    }
}
