//! Samples: intervals of a volume as numbers, and what several are on average.

use crate::config::ControlConfig;
use crate::conformance::WindowTotals;
use crate::observation::VolumeObservation;
use forebay_units::Nanos;
use forebay_workload::LatencyHistogram;

/// The part of its most outstanding requests by which those of a closed loop differ between intervals (ours).
const MOST_ALIKE: f64 = 0.05;
/// The part of them that is outstanding on average where nobody thinks between two requests (ours).
const CLOSED_DEPTH_MIN: f64 = 0.9;

/// One interval of a volume, in per-second rates and seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    /// The controller's step in which it was seen; of several, the last.
    pub(super) step: u64,
    pub(super) arrival_rate: f64,
    pub(super) hit_rate: f64,
    pub(super) miss_rate: f64,
    /// Misses that were reads of their own at the origin: the others joined one under way.
    pub(super) origin_read_rate: f64,
    pub(super) write_rate: f64,
    pub(super) hit_latency: f64,
    pub(super) miss_latency: f64,
    /// What half of the misses do not exceed.
    pub(super) miss_median: f64,
    pub(super) write_latency: f64,
    pub(super) outstanding: f64,
    /// The most at any instant.
    pub(super) outstanding_max: f64,
    /// Requests that had arrived and were not answered when it ended.
    pub(super) waiting: f64,
    pub(super) backlogged: bool,
    /// Some requests came before, and were not answered at the end.
    pub(super) hangs: bool,
    /// As many requests are outstanding all along, and never more: so it is with clients that wait for answers and do not think.
    pub(super) keeps_full: bool,
    pub(super) read_bytes: f64,
    pub(super) write_bytes: f64,
    pub(super) working_set: f64,
    pub(super) invalidated: f64,
    pub(super) filled: f64,
}

impl Sample {
    /// The sample of the interval of a step that began with `waiting` requests under way.
    pub(super) fn of(
        observed: &VolumeObservation,
        step: u64,
        waiting: f64,
        config: &ControlConfig,
    ) -> Sample {
        let span = observed.span;
        let seconds = span.as_secs_f64().max(1e-9);
        let rate = |count: u64| count as f64 / seconds;
        let mean = |mean: Option<Nanos>| mean.map_or(0.0, Nanos::as_secs_f64);
        let per = |bytes: u64, count: u64| if count == 0 { 0.0 } else { bytes as f64 / count as f64 };
        let outstanding = observed.outstanding_mean();
        let idle = observed.idle.0 as f64 / span.0.max(1) as f64;
        let rules = &config.conformance;
        // What an origin refuses is next to no work for it, and piles up nowhere.
        let failed = observed.reads_failed + observed.writes_failed;
        Sample {
            step,
            arrival_rate: rate(observed.arrivals.saturating_sub(failed)),
            hit_rate: rate(observed.hits.count()),
            miss_rate: rate(observed.misses.count()),
            origin_read_rate: rate(observed.misses.count().min(observed.origin_reads.unwrap_or(u64::MAX))),
            write_rate: rate(observed.writes.count()),
            hit_latency: mean(observed.hits.mean()),
            miss_latency: mean(observed.misses.mean()),
            miss_median: mean(observed.misses.percentile(50.0)),
            write_latency: mean(observed.writes.mean()),
            outstanding,
            outstanding_max: f64::from(observed.outstanding_max),
            waiting: (waiting + observed.arrivals as f64 - observed.completed() as f64)
                .clamp(0.0, f64::from(observed.outstanding_max)),
            backlogged: observed.outstanding_max > 0
                && idle <= rules.backlog_idle_share_max
                && outstanding >= rules.backlog_depth_min * f64::from(observed.outstanding_max),
            hangs: observed.reads_hung > 0 || observed.writes_hung > 0,
            keeps_full: false,
            read_bytes: per(observed.bytes_read.get(), observed.reads() + observed.reads_failed),
            write_bytes: per(observed.bytes_written.get(), observed.writes.count() + observed.writes_failed),
            working_set: observed.working_set_blocks as f64,
            invalidated: observed.cache.invalidated_blocks as f64,
            filled: observed.cache.filled_blocks as f64,
        }
    }

    /// The window of `span` that it says of, as far as it does: all latencies of a kind are at their mean, so that it has no percentiles.
    pub(super) fn window(&self, span: Nanos) -> WindowTotals {
        let seconds = span.as_secs_f64();
        let count = |rate: f64| (rate * seconds).round() as u64;
        let at = |latency: f64| Nanos::from_secs_f64(latency);
        let (mut reads, mut writes) = (LatencyHistogram::new(), LatencyHistogram::new());
        reads.record_many(at(self.hit_latency), count(self.hit_rate));
        reads.record_many(at(self.miss_latency), count(self.miss_rate));
        writes.record_many(at(self.write_latency), count(self.write_rate));
        WindowTotals {
            span,
            arrivals: count(self.arrival_rate),
            bytes_read: (self.read_bytes * reads.count() as f64) as u64,
            bytes_written: (self.write_bytes * writes.count() as f64) as u64,
            reads: reads.snapshot(),
            writes: writes.snapshot(),
            idle: if self.backlogged { Nanos::ZERO } else { span },
            outstanding_max: self.outstanding_max as u32,
            ..WindowTotals::default()
        }
    }

    /// Completed requests per second.
    pub(super) fn rate(&self) -> f64 {
        self.hit_rate + self.miss_rate + self.write_rate
    }

    /// Requests that arrived and need the origin, for each that was answered by it: above 1 while they pile up, below while
    /// what waited is worked off. 1 where nothing of that is known.
    fn piled_up(&self) -> f64 {
        let (arrived, answered) = (self.arrival_rate - self.hit_rate, self.origin_rate());
        if arrived > 0.0 && answered > 0.0 { arrived / answered } else { 1.0 }
    }

    /// Reads that miss among those that arrived, per second: what is answered comes late where requests pile up.
    pub(super) fn missed_arrivals(&self) -> f64 {
        self.miss_rate * self.piled_up()
    }

    /// Requests per second that reached the origin.
    pub(super) fn origin_rate(&self) -> f64 {
        self.miss_rate + self.write_rate
    }

    /// Mean latency at the origin, weighted by requests; 0 without any.
    pub(super) fn origin_latency(&self) -> f64 {
        let rate = self.origin_rate();
        if rate > 0.0 {
            (self.miss_rate * self.miss_latency + self.write_rate * self.write_latency) / rate
        } else {
            0.0
        }
    }

    /// The mean of some samples: rates by interval, latencies by request.
    pub(super) fn mean<'a>(samples: impl Iterator<Item = &'a Sample> + Clone) -> Sample {
        let count = samples.clone().count().max(1) as f64;
        let average = |of: fn(&Sample) -> f64| samples.clone().map(of).sum::<f64>() / count;
        let weighted = |of: fn(&Sample) -> f64, by: fn(&Sample) -> f64| {
            let weight: f64 = samples.clone().map(by).sum();
            if weight > 0.0 { samples.clone().map(|s| of(s) * by(s)).sum::<f64>() / weight } else { 0.0 }
        };
        let reads = |sample: &Sample| sample.hit_rate + sample.miss_rate;
        // A closed loop keeps its requests outstanding and takes the rate that it gets; an open one keeps its rate, and what
        // is outstanding varies: also at an origin that it overloads, where it is never idle either. By a twentieth
        // both may vary.
        let variation = |of: fn(&Sample) -> f64| {
            let mean = average(of);
            let squares = samples.clone().map(|sample| (of(sample) - mean).powi(2)).sum::<f64>();
            (squares / count).sqrt() / mean.max(1e-9)
        };
        let steady = variation(|s| s.outstanding) <= variation(|s| s.arrival_rate).max(0.05);
        // So many clients are so many requests at most, interval after interval.
        let most =
            |least, of: fn(f64, f64) -> f64| samples.clone().map(|s| s.outstanding_max).fold(least, of);
        let (least, most) = (most(f64::INFINITY, f64::min), most(0.0, f64::max));
        let alike = most - least <= (MOST_ALIKE * most).max(1.0);
        let keeps_full = alike && average(|s| s.outstanding) >= CLOSED_DEPTH_MIN * most;
        let backlogged = samples.clone().filter(|s| s.backlogged).count();
        Sample {
            step: samples.clone().last().map_or(0, |s| s.step),
            arrival_rate: average(|s| s.arrival_rate),
            hit_rate: average(|s| s.hit_rate),
            miss_rate: average(|s| s.miss_rate),
            origin_read_rate: average(|s| s.origin_read_rate),
            write_rate: average(|s| s.write_rate),
            hit_latency: weighted(|s| s.hit_latency, |s| s.hit_rate),
            miss_latency: weighted(|s| s.miss_latency, |s| s.miss_rate),
            miss_median: weighted(|s| s.miss_median, |s| s.miss_rate),
            write_latency: weighted(|s| s.write_latency, |s| s.write_rate),
            outstanding: average(|s| s.outstanding),
            outstanding_max: most,
            waiting: samples.clone().last().map_or(0.0, |s| s.waiting),
            backlogged: steady && 2 * backlogged > samples.clone().count(),
            hangs: samples.clone().last().is_some_and(|s| s.hangs),
            keeps_full,
            read_bytes: weighted(|s| s.read_bytes, reads),
            write_bytes: weighted(|s| s.write_bytes, |s| s.write_rate),
            working_set: average(|s| s.working_set),
            invalidated: average(|s| s.invalidated),
            filled: average(|s| s.filled),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrived_and_misses_is_told_by_arrivals_not_by_answers() {
        let sample = |arrival_rate, hit_rate, miss_rate, write_rate| Sample {
            arrival_rate,
            hit_rate,
            miss_rate,
            write_rate,
            ..Sample::default()
        };
        // Of 1,400/s 450 are hits; 880 of the others are answered, 70 pile up. Or 100 more are answered than arrive.
        assert_eq!(sample(1_400.0, 450.0, 880.0, 0.0).missed_arrivals(), 950.0);
        assert_eq!(sample(1_400.0, 450.0, 1_050.0, 0.0).missed_arrivals(), 950.0);
        // Reads and writes pile up alike: of 900 that need the origin a half is answered.
        assert_eq!(sample(1_000.0, 100.0, 300.0, 150.0).missed_arrivals(), 600.0);
        // Nothing needs it, or nothing is known of arrivals.
        assert_eq!(sample(500.0, 500.0, 0.0, 0.0).missed_arrivals(), 0.0);
        assert_eq!(sample(0.0, 100.0, 300.0, 0.0).missed_arrivals(), 300.0);
    }
}
