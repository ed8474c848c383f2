//! Conformance: whether one window of one workload kept its objective, or was asked for too little to say.

mod window;

pub use window::{Hung, WindowTotals};

use crate::objective::{Objective, Operations, Statistic, Target};
use forebay_units::Nanos;
use serde::{Deserialize, Serialize};

/// When a window counts as asked for enough. All numbers are ours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConformanceRules {
    /// Fewer completed requests than this in a window say nothing about latency. Default 10, at least 1.
    pub requests_min: u64,
    /// A workload with no request outstanding for at most this share of the window is backlogged, if it also keeps
    /// `backlog_depth_min`. Default 0.05; 0 to 1.
    pub backlog_idle_share_max: f64,
    /// A backlogged workload has on average at least this share of its most outstanding requests outstanding: closed
    /// loops do, open arrivals fluctuate more. Default 0.5; 0 to 1.
    pub backlog_depth_min: f64,
    /// A backlogged workload waits for the operations of a floor if they are at least this share of its requests, or of the time that it
    /// waits; else it waits for others, and asks for next to none of these. Default 0.05; 0 to 1.
    pub backlog_share_min: f64,
}

impl Default for ConformanceRules {
    fn default() -> ConformanceRules {
        ConformanceRules {
            requests_min: 10,
            backlog_idle_share_max: 0.05,
            backlog_depth_min: 0.5,
            backlog_share_min: 0.05,
        }
    }
}

/// What is said of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The objective was kept.
    Conforming,
    /// It was missed although the workload asked for enough.
    Nonconforming,
    /// Too little was asked for to judge.
    LowLoad,
}

/// A judged window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// What is said of it.
    pub verdict: Verdict,
    /// The number that was compared, in the objective's unit; `None` where nothing completed, or what failed leaves no number.
    pub value: Option<f64>,
    /// How far beyond the bound, relative to it; infinite where everything hung or too much failed; 0 for low load without a value.
    pub excess: f64,
    /// Requests that the objective is about, those that failed among them.
    pub requests: u64,
    /// Of them, those that failed.
    pub failed: u64,
}

/// Judges a window. `O(buckets)`.
pub fn judge(objective: &Objective, window: &WindowTotals, rules: &ConformanceRules) -> Judgement {
    // What was answered with an error was asked for, and not served.
    let failed = window.failed(objective.operations());
    let served = match objective.operations() {
        Operations::Reads => window.reads.count(),
        Operations::Writes => window.writes.count(),
        Operations::All => window.reads.count() + window.writes.count(),
    };
    let requests = served + failed;
    let seconds = window.span.as_secs_f64().max(1e-9);
    match objective.target {
        Target::Latency { statistic, at_most, operations } => {
            let stalled = window.completed() == 0 && window.is_backlogged(rules);
            let hangs = stalled || (requests == 0 && window.hangs(operations, at_most));
            if hangs {
                return Judgement {
                    verdict: Verdict::Nonconforming,
                    value: None,
                    excess: f64::INFINITY,
                    requests,
                    failed,
                };
            }
            let value = latency_value(window, statistic, operations);
            let excess = match value {
                Some(value) => objective.excess(value),
                None if failed > 0 => f64::INFINITY,
                None => 0.0,
            };
            let verdict = if requests < rules.requests_min.max(1) {
                Verdict::LowLoad
            } else if excess > 0.0 {
                Verdict::Nonconforming
            } else {
                Verdict::Conforming
            };
            Judgement { verdict, value, excess, requests, failed }
        }
        Target::IopsFloor { at_least, .. } => {
            let share = requests as f64 / window.completed().max(1) as f64;
            let asked = window.arrivals as f64 * if window.completed() == 0 { 1.0 } else { share } / seconds;
            judge_floor(
                objective,
                served as f64 / seconds,
                asked,
                at_least,
                (requests, failed),
                window,
                rules,
            )
        }
        Target::BandwidthFloor { at_least, operations } => {
            let bytes = match operations {
                Operations::Reads => window.bytes_read,
                Operations::Writes => window.bytes_written,
                Operations::All => window.bytes_read + window.bytes_written,
            } as f64;
            let asked = bytes / window.completed().max(1) as f64 * window.arrivals as f64 / seconds;
            // Bytes are counted as they are asked for: those that failed are taken to be as long as the others.
            let moved = if failed > 0 { bytes * (served as f64 / requests as f64) } else { bytes };
            judge_floor(objective, moved / seconds, asked, at_least, (requests, failed), window, rules)
        }
    }
}

fn judge_floor(
    objective: &Objective,
    value: f64,
    asked: f64,
    at_least: f64,
    (requests, failed): (u64, u64),
    window: &WindowTotals,
    rules: &ConformanceRules,
) -> Judgement {
    // Who waits for other operations, alone or nearly so, asks for next to none of these.
    let waits_for_these = requests > 0 && window.share_of(objective.operations()) >= rules.backlog_share_min;
    // Where nothing completes, what hangs may be these. Where some of these hang and none is answered, whatever else is answered besides says nothing of them.
    let hangs = window.hangs(objective.operations(), Nanos::ZERO);
    let held_back = (waits_for_these || window.completed() == 0) && window.is_backlogged(rules)
        || (requests == 0 && hangs);
    let verdict = if value >= at_least {
        Verdict::Conforming
    } else if asked >= at_least || held_back {
        Verdict::Nonconforming
    } else {
        Verdict::LowLoad
    };
    Judgement { verdict, value: Some(value), excess: objective.excess(value), requests, failed }
}

/// The number that is compared with a bound of latency: `None` where nothing completed, or what failed leaves none. Who asked and got an error waits on, so
/// that it is longer than all others; a mean is that of what was served, and none where more failed than that.
fn latency_value(window: &WindowTotals, statistic: Statistic, operations: Operations) -> Option<f64> {
    let failed = window.failed(operations);
    let mut both;
    let latencies = match operations {
        Operations::Reads => &window.reads,
        Operations::Writes => &window.writes,
        Operations::All => {
            if statistic == Statistic::Mean {
                let sum_ns = window.reads.sum_ns() + window.writes.sum_ns();
                let count = window.reads.count() + window.writes.count();
                return (count > 0 && failed <= count).then(|| sum_ns as f64 / count as f64 / 1e9);
            }
            both = window.reads.clone();
            both.merge(&window.writes);
            &both
        }
    };
    match statistic {
        Statistic::Mean => latencies.mean().filter(|_| failed <= latencies.count()),
        Statistic::Percentile(percentile) => latencies.percentile_beside(failed, percentile),
    }
    .map(Nanos::as_secs_f64)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::observation::VolumeObservation;
    use forebay_workload::{LatencyHistogram, LatencySnapshot};

    /// `count` latencies of `each`.
    pub(crate) fn latencies(count: u64, each: Nanos) -> LatencySnapshot {
        let mut histogram = LatencyHistogram::new();
        (0..count).for_each(|_| histogram.record(each));
        histogram.snapshot()
    }

    fn window(reads: u64, each: Nanos, idle: Nanos, outstanding_max: u32) -> WindowTotals {
        WindowTotals {
            span: Nanos::secs(1),
            arrivals: reads,
            reads: latencies(reads, each),
            bytes_read: reads * 4096,
            idle,
            outstanding_max,
            ..WindowTotals::default()
        }
    }

    #[test]
    fn latency_is_judged_only_with_enough_requests() {
        let rules = ConformanceRules::default();
        let objective = Objective::mean_latency(Nanos::millis(5), Operations::All);
        let idle = Nanos::millis(500);
        assert_eq!(
            judge(&objective, &window(100, Nanos::millis(4), idle, 3), &rules).verdict,
            Verdict::Conforming
        );
        let slow = judge(&objective, &window(100, Nanos::millis(8), idle, 3), &rules);
        assert_eq!(slow.verdict, Verdict::Nonconforming);
        assert!((slow.excess - 0.6).abs() < 1e-9); // 8 / 5 - 1
        assert_eq!(
            judge(&objective, &window(9, Nanos::millis(8), idle, 3), &rules).verdict,
            Verdict::LowLoad
        );
        // Nothing completes while four requests hang: that is worse than slow.
        let hung = judge(&objective, &window(0, Nanos::ZERO, Nanos::ZERO, 4), &rules);
        assert_eq!((hung.verdict, hung.excess), (Verdict::Nonconforming, f64::INFINITY));
        let nothing = judge(&objective, &window(0, Nanos::ZERO, Nanos::secs(1), 0), &rules);
        assert_eq!((nothing.verdict, nothing.value, nothing.excess), (Verdict::LowLoad, None, 0.0));
        // Just the bound is kept: a hundred reads of 1 ms and a hundred writes of 9 ms, and one of these more.
        let both = |writes| WindowTotals {
            writes: latencies(writes, Nanos::millis(9)),
            ..window(100, Nanos::millis(1), idle, 3)
        };
        let kept = judge(&objective, &both(100), &rules);
        assert_eq!((kept.verdict, kept.value, kept.excess), (Verdict::Conforming, Some(0.005), 0.0));
        assert_eq!(judge(&objective, &both(101), &rules).verdict, Verdict::Nonconforming);
    }

    #[test]
    fn rates_are_those_of_a_second_however_long_the_window_is() {
        let rules = ConformanceRules::default();
        // In 10 s 4,000 reads of 10 ms: 400/s, of which 4 are outstanding on average.
        let of = |arrivals, idle_ms| WindowTotals {
            span: Nanos::secs(10),
            arrivals,
            ..window(4_000, Nanos::millis(10), Nanos::millis(idle_ms), 4)
        };
        let judged = |objective: Objective, arrivals, idle_ms| {
            let judgement = judge(&objective, &of(arrivals, idle_ms), &rules);
            (judgement.verdict, judgement.value)
        };
        use Verdict::{Conforming, LowLoad, Nonconforming};
        // Without a request for 4 % of the time a client waits for answers, for 6 % it does not.
        let iops = Objective::iops_floor;
        assert_eq!(judged(iops(1_000.0), 4_000, 400), (Nonconforming, Some(400.0)));
        assert_eq!(judged(iops(1_000.0), 4_000, 600), (LowLoad, Some(400.0)));
        assert_eq!(judged(iops(400.0), 4_000, 600), (Conforming, Some(400.0)));
        // Just what was promised is asked for, and not got.
        assert_eq!(judged(iops(1_000.0), 10_000, 600), (Nonconforming, Some(400.0)));
        assert_eq!(judged(iops(1_000.0), 9_999, 600), (LowLoad, Some(400.0)));
        // Of the same in bytes: 4,096 each.
        let bandwidth =
            |floor, operations| Objective::new(Target::BandwidthFloor { at_least: floor, operations });
        let reads = |floor| bandwidth(floor, Operations::Reads);
        assert_eq!(judged(reads(4_096_000.0), 10_000, 600), (Nonconforming, Some(1_638_400.0)));
        assert_eq!(judged(reads(4_096_000.0), 9_999, 600), (LowLoad, Some(1_638_400.0)));
        assert_eq!(judged(reads(1_638_400.0), 4_000, 600), (Conforming, Some(1_638_400.0)));
        assert_eq!(judged(bandwidth(1.0, Operations::Writes), 4_000, 600), (LowLoad, Some(0.0)));
        // Half of what comes and is answered are reads: of 2,000/s just what was promised, of 1,999.8/s less.
        let mixed =
            |arrivals| WindowTotals { writes: latencies(4_000, Nanos::millis(10)), ..of(arrivals, 600) };
        let floor = Objective::new(Target::IopsFloor { at_least: 1_000.0, operations: Operations::Reads });
        let judged = |arrivals| judge(&floor, &mixed(arrivals), &rules).verdict;
        assert_eq!([judged(20_000), judged(19_998)], [Nonconforming, LowLoad]);
        // Nothing is answered of what came at the end of a window: 1,000/s, and less.
        let unanswered = |arrivals| WindowTotals { reads: LatencySnapshot::default(), ..of(arrivals, 9_000) };
        let judged = |arrivals| judge(&iops(1_000.0), &unanswered(arrivals), &rules).verdict;
        assert_eq!([judged(10_000), judged(9_000)], [Nonconforming, LowLoad]);
    }

    #[test]
    fn what_fails_is_not_served_however_fast() {
        let rules = ConformanceRules::default();
        // In 1 s so many reads of 1 ms and so many that fail.
        let judged = |objective: Objective, served: u64, reads_failed: u64| {
            let arrivals = served + reads_failed;
            let served = window(served, Nanos::millis(1), Nanos::millis(900), 1);
            let window = WindowTotals { reads_failed, arrivals, bytes_read: arrivals * 4096, ..served };
            let Judgement { verdict, value, failed, requests, .. } = judge(&objective, &window, &rules);
            let about =
                if objective.operations() == Operations::Writes { (0, 0) } else { (reads_failed, arrivals) };
            assert_eq!((failed, requests), about);
            (verdict, value)
        };
        let is = |(verdict, value): (Verdict, Option<f64>), expected: Verdict, about: Option<f64>| {
            assert_eq!((verdict, value.is_some()), (expected, about.is_some()));
            let near = |(value, about): (f64, f64)| (value / about - 1.0).abs() < 0.02;
            assert!(value.zip(about).is_none_or(near), "{value:?}, expected {about:?}");
        };
        use Verdict::{Conforming, LowLoad, Nonconforming};
        let mean = |operations| Objective::mean_latency(Nanos::millis(5), operations);
        is(judged(mean(Operations::All), 0, 600), Nonconforming, None);
        is(judged(mean(Operations::Reads), 0, 600), Nonconforming, None);
        is(judged(mean(Operations::Writes), 0, 600), LowLoad, None);
        is(judged(mean(Operations::All), 0, 9), LowLoad, None);
        // One error among many is none of the mean, and more than the half leave none.
        is(judged(mean(Operations::All), 599, 1), Conforming, Some(0.001));
        is(judged(mean(Operations::Reads), 300, 301), Nonconforming, None);
        is(judged(mean(Operations::Reads), 300, 300), Conforming, Some(0.001));
        is(judged(mean(Operations::All), 300, 300), Conforming, Some(0.001));
        is(judged(mean(Operations::All), 300, 301), Nonconforming, None);
        // None of all may fail, but one of a thousand where that many are promised nothing.
        let percentile =
            |percentile| Objective::percentile_latency(percentile, Nanos::millis(5), Operations::Reads);
        is(judged(percentile(100.0), 1_000, 0), Conforming, Some(0.001));
        is(judged(percentile(100.0), 999, 1), Nonconforming, None);
        is(judged(percentile(99.9), 999, 1), Conforming, Some(0.001));
        is(judged(percentile(99.9), 998, 2), Nonconforming, None);
        // 4 % of the reads are beyond any latency, 6 % too.
        let p95 = Objective::percentile_latency(95.0, Nanos::millis(5), Operations::Reads);
        is(judged(p95, 960, 40), Conforming, Some(0.001));
        is(judged(p95, 940, 60), Nonconforming, None);
        // 600/s are asked for, and half of them are got.
        is(judged(Objective::iops_floor(500.0), 300, 300), Nonconforming, Some(300.0));
        is(judged(Objective::iops_floor(250.0), 300, 300), Conforming, Some(300.0));
        is(judged(Objective::iops_floor(700.0), 300, 300), LowLoad, Some(300.0));
        is(judged(Objective::bandwidth_floor(2e6), 300, 300), Nonconforming, Some(300.0 * 4096.0));
    }

    #[test]
    fn a_floor_is_missed_only_where_the_workload_asks_for_it() {
        let rules = ConformanceRules::default();
        let objective = Objective::iops_floor(1_000.0);
        // 400/s of 10 ms: 4 of 4 outstanding all the time, never idle: a closed loop that is held back.
        let held_back = window(400, Nanos::millis(10), Nanos::ZERO, 4);
        assert!((held_back.outstanding_mean() - 4.0).abs() < 1e-9);
        assert_eq!(judge(&objective, &held_back, &rules).verdict, Verdict::Nonconforming);
        // 400/s of 10 ms whose outstanding requests swing up to 15: open arrivals that ask for no more than 400/s.
        assert_eq!(
            judge(&objective, &window(400, Nanos::millis(10), Nanos::ZERO, 15), &rules).verdict,
            Verdict::LowLoad
        );
        // Idle a tenth of the time.
        let lazy = window(400, Nanos::millis(10), Nanos::millis(100), 4);
        assert_eq!(judge(&objective, &lazy, &rules).verdict, Verdict::LowLoad);
        // 1,200/s arrive and 400/s are served.
        let flooded = WindowTotals { arrivals: 1_200, ..lazy };
        assert_eq!(judge(&objective, &flooded, &rules).verdict, Verdict::Nonconforming);
        assert_eq!(
            judge(&objective, &window(1_000, Nanos::millis(1), Nanos::ZERO, 1), &rules).verdict,
            Verdict::Conforming
        );
        // 1,000 x 4 KiB = 4.096 MB/s.
        let bandwidth = Objective::bandwidth_floor(4.0e6);
        assert_eq!(
            judge(&bandwidth, &window(1_000, Nanos::millis(1), Nanos::ZERO, 1), &rules).verdict,
            Verdict::Conforming
        );
        assert_eq!(
            judge(&bandwidth, &window(900, Nanos::millis(1), Nanos::ZERO, 1), &rules).verdict,
            Verdict::Nonconforming
        );
    }

    #[test]
    fn a_floor_under_reads_is_not_missed_by_who_only_writes() {
        let rules = ConformanceRules::default();
        // 400 writes/s of 10 ms by a closed loop of 4.
        let mut window = window(400, Nanos::millis(10), Nanos::ZERO, 4);
        (window.writes, window.reads) = (window.reads.clone(), LatencySnapshot::default());
        (window.bytes_written, window.bytes_read) = (window.bytes_read, 0);
        let iops = |operations| Objective::new(Target::IopsFloor { at_least: 1_000.0, operations });
        let bandwidth = |operations| Objective::new(Target::BandwidthFloor { at_least: 4.0e6, operations });
        for (objective, expected) in [
            (iops(Operations::Reads), Verdict::LowLoad),
            (bandwidth(Operations::Reads), Verdict::LowLoad),
            (iops(Operations::Writes), Verdict::Nonconforming),
            (bandwidth(Operations::All), Verdict::Nonconforming),
        ] {
            assert_eq!(judge(&objective, &window, &rules).verdict, expected, "{objective}");
        }
        // Nothing completes: what hangs may be reads.
        window.writes = LatencySnapshot::default();
        assert_eq!(judge(&iops(Operations::Reads), &window, &rules).verdict, Verdict::Nonconforming);
    }

    /// Reads that have hung since before the window among so many writes of a second's window.
    fn hung(reads_hung: u32, writes: u64, outstanding_max: u32) -> WindowTotals {
        let interval = Nanos::millis(500);
        let observed = VolumeObservation {
            arrivals: writes / 2,
            writes: latencies(writes / 2, Nanos::millis(10)),
            bytes_written: forebay_units::Bytes(writes << 19),
            outstanding_max,
            idle: Nanos::ZERO,
            reads_hung,
            ..VolumeObservation::idle(crate::VolumeId(0), interval)
        };
        let mut window = WindowTotals::default();
        (0..2).for_each(|_| window.add(&observed));
        window
    }

    #[test]
    fn reads_that_hang_miss_what_is_promised_of_reads_whatever_writes_are_answered() {
        let rules = ConformanceRules::default();
        let iops = |operations| Objective::new(Target::IopsFloor { at_least: 1_000.0, operations });
        let bandwidth =
            Objective::new(Target::BandwidthFloor { at_least: 4.0e6, operations: Operations::Reads });
        let latency = Objective::mean_latency(Nanos::millis(5), Operations::Reads);
        // Beside four writers, beside many, and beside one that comes in bursts of 40: a reader waits all along.
        for window in [hung(1, 400, 5), hung(1, 6_400, 65), hung(2, 400, 42)] {
            for objective in [iops(Operations::Reads), bandwidth, latency] {
                assert_eq!(judge(&objective, &window, &rules).verdict, Verdict::Nonconforming, "{objective}");
            }
        }
        assert_eq!(judge(&latency, &hung(1, 400, 5), &rules).excess, f64::INFINITY);
        for objective in [iops(Operations::Reads), bandwidth, latency] {
            assert_eq!(judge(&objective, &hung(0, 400, 5), &rules).verdict, Verdict::LowLoad, "{objective}");
        }
        // What hangs of one kind says nothing of the other: 400 writes/s in bursts of 40 ask for no more.
        assert_eq!(judge(&iops(Operations::Writes), &hung(2, 400, 42), &rules).verdict, Verdict::LowLoad);
        // 4 x 1 s hang and 400 x 10 ms are answered, of at most 8: a closed loop of which half is held back. Of its reads two were answered.
        let mut window = hung(4, 400, 8);
        assert!((window.outstanding_mean() - 8.0).abs() < 1e-9);
        (window.reads, window.bytes_read) = (latencies(2, Nanos::millis(1)), 8192);
        assert_eq!(judge(&iops(Operations::Reads), &window, &rules).verdict, Verdict::Nonconforming);
        // One of 401 open reads is lost: the others ask for what they get, and are in time.
        let mut window = hung(1, 0, 15);
        (window.reads, window.arrivals) = (latencies(400, Nanos::millis(10)), 400);
        assert_eq!(judge(&iops(Operations::Reads), &window, &rules).verdict, Verdict::LowLoad);
        let in_time = Objective::mean_latency(Nanos::millis(20), Operations::Reads);
        assert_eq!(judge(&in_time, &window, &rules).verdict, Verdict::Conforming);
    }

    #[test]
    fn what_hung_and_was_answered_counts_by_its_latency() {
        let mut window = hung(1, 400, 5);
        window.add(&VolumeObservation::idle(crate::VolumeId(0), Nanos::secs(1)));
        assert_eq!(window.reads_hung, Hung::default());
        // Of two that hung for a second one is answered, and the other hangs on.
        let mut window = hung(2, 400, 5);
        let goes_on = VolumeObservation {
            reads_hung: 1,
            ..VolumeObservation::idle(crate::VolumeId(0), Nanos::secs(1))
        };
        window.add(&goes_on);
        assert_eq!((window.reads_hung.time, window.reads_hung.span), (Nanos::secs(2), Nanos::secs(2)));
    }

    #[test]
    fn what_is_slow_and_still_open_at_the_end_of_a_window_says_nothing_of_it() {
        let rules = ConformanceRules::default();
        let within = |bound| Objective::mean_latency(bound, Operations::Reads);
        // A second's window: bounds that a read of a second has not passed, and one that it has.
        let window = hung(1, 400, 5);
        for (bound, verdict) in
            [(Nanos::secs(1), Verdict::LowLoad), (Nanos::millis(999), Verdict::Nonconforming)]
        {
            assert_eq!(judge(&within(bound), &window, &rules).verdict, verdict, "{bound:?}");
        }
        // Where nothing is answered at all it is enough for both that one of either hangs, and for the other says nothing.
        let mut window = hung(1, 0, 1);
        window.idle = Nanos::millis(500);
        for hangs in [Operations::Reads, Operations::Writes] {
            for operations in [Operations::Reads, Operations::Writes, Operations::All] {
                let hung = operations == hangs || operations == Operations::All;
                let verdict = if hung { Verdict::Nonconforming } else { Verdict::LowLoad };
                let bound = Objective::mean_latency(Nanos::millis(5), operations);
                assert_eq!(judge(&bound, &window, &rules).verdict, verdict, "{operations:?} of {hangs:?}");
            }
            std::mem::swap(&mut window.reads_hung, &mut window.writes_hung);
        }
        // Open for the last second of ten, for the last four and for the last five.
        let floor = Objective::new(Target::IopsFloor { at_least: 1_000.0, operations: Operations::Reads });
        for (quiet, verdict) in [(9, Verdict::LowLoad), (6, Verdict::LowLoad), (5, Verdict::Nonconforming)] {
            let mut window = WindowTotals::default();
            for second in 0..10 {
                let reads_hung = u32::from(second >= quiet);
                let observed = VolumeObservation {
                    writes: latencies(200, Nanos::millis(10)),
                    arrivals: 200,
                    outstanding_max: 40,
                    reads_hung,
                    ..VolumeObservation::idle(crate::VolumeId(0), Nanos::secs(1))
                };
                window.add(&observed);
            }
            for objective in [within(Nanos::millis(5)), floor] {
                assert_eq!(judge(&objective, &window, &rules).verdict, verdict, "{objective} {quiet}");
            }
        }
    }

    #[test]
    fn a_floor_under_reads_is_not_missed_by_a_read_among_bulk_writes() {
        let rules = ConformanceRules::default();
        let iops = Objective::new(Target::IopsFloor { at_least: 1_000.0, operations: Operations::Reads });
        let bandwidth =
            Objective::new(Target::BandwidthFloor { at_least: 4.0e6, operations: Operations::Reads });
        // A closed loop, never idle and about as many outstanding as ever: reads and writes of so many milliseconds each.
        let judged = |(reads, read_ms): (u64, u64), (writes, write_ms): (u64, u64), outstanding_max| {
            let window = WindowTotals {
                span: Nanos::secs(1),
                arrivals: reads + writes,
                reads: latencies(reads, Nanos::millis(read_ms)),
                writes: latencies(writes, Nanos::millis(write_ms)),
                bytes_read: reads * 4096,
                bytes_written: writes << 20,
                outstanding_max,
                ..WindowTotals::default()
            };
            assert!(window.is_backlogged(&rules));
            let verdicts = [&iops, &bandwidth].map(|floor| judge(floor, &window, &rules).verdict);
            assert_eq!(verdicts[0], verdicts[1]);
            verdicts[0]
        };
        // One of 401 requests, and .25 % of the time.
        assert_eq!(judged((1, 10), (400, 10), 4), Verdict::LowLoad);
        // Half of the requests.
        assert_eq!(judged((200, 10), (200, 10), 4), Verdict::Nonconforming);
        // Still half of them when a cache answers them at once, and the writes alone (2 x 2 s) keep the loop from more.
        assert_eq!(judged((200, 0), (200, 10), 4), Verdict::Nonconforming);
        // A reader that waits all the time, 20 x 50 ms, beside one whose 1,000 writes of 1 ms are 98 % of the requests.
        assert_eq!(judged((20, 50), (1_000, 1), 2), Verdict::Nonconforming);
    }

    #[test]
    fn who_asks_again_and_again_for_what_fails_is_held_back() {
        // 200 writes of 10 ms by two, and reads beside them that fail at once: half of all requests, and a fortieth.
        let floor = Objective::new(Target::IopsFloor { at_least: 1_000.0, operations: Operations::Reads });
        for (reads_failed, verdict) in [(200, Verdict::Nonconforming), (5, Verdict::LowLoad)] {
            let writes = window(200, Nanos::millis(10), Nanos::ZERO, 2).reads;
            let failing = WindowTotals { reads_failed, writes, ..window(0, Nanos::ZERO, Nanos::ZERO, 2) };
            assert_eq!(
                judge(&floor, &failing, &ConformanceRules::default()).verdict,
                verdict,
                "{reads_failed}"
            );
        }
    }

    #[test]
    fn percentiles_look_at_the_operations_they_are_about() {
        let rules = ConformanceRules::default();
        let mut mixed = window(90, Nanos::millis(1), Nanos::millis(500), 2);
        mixed.writes = latencies(10, Nanos::millis(20));
        let of = |percentile, operations| {
            let objective = Objective::percentile_latency(percentile, Nanos::millis(10), operations);
            judge(&objective, &mixed, &rules).verdict
        };
        assert_eq!(of(95.0, Operations::All), Verdict::Nonconforming); // the slowest tenth are writes
        assert_eq!(of(90.0, Operations::All), Verdict::Conforming);
        assert_eq!(of(99.0, Operations::Reads), Verdict::Conforming);
        assert_eq!(of(50.0, Operations::Writes), Verdict::Nonconforming);
    }
}
