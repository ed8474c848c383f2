//! What a run comes to: series per interval and volume, totals, verdicts, decisions, and the hash of its events.

use crate::scenario::{ExpectedTable, Flag, ReservationTable, Scenario};
use crate::tier::TierOutcome;
use forebay_control::conformance::Verdict;
use forebay_control::{Decision, VolumeObservation};
use forebay_units::Nanos;
use forebay_workload::{LatencyHistogram, LatencySnapshot};
use serde::Serialize;

/// Latencies in milliseconds; absent where nothing completed, and percentiles also where they are [`LatencyHistogram::HIGHEST`] or more, from which on they are not told
/// apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Completed requests.
    pub count: u64,
    /// The exact mean.
    pub mean_ms: Option<f64>,
    /// Half of them took at most so long, within 1 %, as all percentiles.
    pub p50_ms: Option<f64>,
    /// 95 in 100 took at most so long.
    pub p95_ms: Option<f64>,
    /// 99 in 100 took at most so long.
    pub p99_ms: Option<f64>,
}

impl LatencySummary {
    pub(crate) fn of(latencies: &LatencySnapshot) -> LatencySummary {
        let is_told = |latency: &Nanos| *latency < LatencyHistogram::HIGHEST;
        let at = |percentile| latencies.percentile(percentile).filter(is_told).map(Nanos::as_millis_f64);
        LatencySummary {
            count: latencies.count(),
            mean_ms: latencies.mean().map(Nanos::as_millis_f64),
            p50_ms: at(50.0),
            p95_ms: at(95.0),
            p99_ms: at(99.0),
        }
    }
}

/// One control interval of one volume.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IntervalRow {
    /// Its end, in seconds.
    pub at_s: f64,
    /// Requests that arrived, per second.
    pub arrivals_per_second: f64,
    /// Requests that completed, per second.
    pub iops: f64,
    /// Reads and writes together.
    pub latency: LatencySummary,
    /// Completed reads.
    pub reads: u64,
    /// Their mean latency; absent without reads.
    pub read_mean_ms: Option<f64>,
    /// Share of the completed reads that the cache alone answered; absent without reads.
    pub hit_ratio: Option<f64>,
    /// The quota during the interval, in blocks.
    pub quota_blocks: u64,
    /// Blocks cached at its end.
    pub used_blocks: u64,
    /// Blocks that came into the cache.
    pub filled_blocks: u64,
    /// Distinct blocks read in the data path's window.
    pub working_set_blocks: u64,
    /// Requests outstanding on average, by Little's law: the latencies of what completed over the length of the interval. What hangs
    /// is in that in which it is answered.
    pub outstanding: f64,
    /// Requests that were not sent, since as many as the load allows were outstanding.
    pub shed: u64,
}

impl IntervalRow {
    /// Of the interval that ended `now`, with `quota` blocks granted, in which so many requests were not sent.
    pub(crate) fn of(observed: &VolumeObservation, quota: u64, shed: u64, now: Nanos) -> IntervalRow {
        let seconds = observed.span.as_secs_f64();
        let mut latencies = observed.hits.clone();
        latencies.merge(&observed.misses);
        let read_mean_ms = latencies.mean().map(Nanos::as_millis_f64);
        latencies.merge(&observed.writes);
        let reads = observed.reads();
        IntervalRow {
            at_s: now.as_secs_f64(),
            arrivals_per_second: observed.arrivals as f64 / seconds,
            iops: observed.completed() as f64 / seconds,
            latency: LatencySummary::of(&latencies),
            reads,
            read_mean_ms,
            hit_ratio: (reads > 0).then(|| observed.hits.count() as f64 / reads as f64),
            quota_blocks: quota,
            used_blocks: observed.cache.used_blocks,
            filled_blocks: observed.cache.filled_blocks,
            working_set_blocks: observed.working_set_blocks,
            outstanding: observed.outstanding_mean(),
            shed,
        }
    }
}

/// Sums from `measure_from` on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// How long was summed, in seconds.
    pub seconds: f64,
    /// Requests that arrived.
    pub arrivals: u64,
    /// Completed reads that the cache alone answered.
    pub hits: u64,
    /// Other completed reads.
    pub misses: u64,
    /// Completed writes.
    pub writes: u64,
    /// Requests that were not sent.
    pub shed: u64,
    /// Completed requests per second.
    pub iops: f64,
    /// Hits among the completed reads; absent without reads.
    pub hit_ratio: Option<f64>,
    /// Reads and writes together.
    pub latency: LatencySummary,
    /// Reads.
    pub read_latency: LatencySummary,
    /// Writes.
    pub write_latency: LatencySummary,
    /// The quota over time, on average, in blocks.
    pub quota_blocks_mean: f64,
    /// The largest quota, in blocks.
    pub quota_blocks_max: u64,
}

/// A running sum of intervals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sum {
    reads: LatencySnapshot,
    writes: LatencySnapshot,
    totals: Totals,
}

impl Sum {
    pub(crate) fn add(&mut self, observed: &VolumeObservation, quota: u64, shed: u64, interval: Nanos) {
        self.reads.merge(&observed.hits);
        self.reads.merge(&observed.misses);
        self.writes.merge(&observed.writes);
        let totals = &mut self.totals;
        totals.arrivals += observed.arrivals;
        totals.hits += observed.hits.count();
        totals.misses += observed.misses.count();
        totals.writes += observed.writes.count();
        totals.shed += shed;
        totals.seconds += interval.as_secs_f64();
        totals.quota_blocks_mean += quota as f64 * interval.as_secs_f64();
        totals.quota_blocks_max = totals.quota_blocks_max.max(quota);
    }

    pub(crate) fn totals(&self) -> Totals {
        let mut all = self.reads.clone();
        all.merge(&self.writes);
        let totals = &self.totals;
        let seconds = totals.seconds.max(1e-9);
        let reads = totals.hits + totals.misses;
        Totals {
            iops: all.count() as f64 / seconds,
            hit_ratio: (reads > 0).then(|| totals.hits as f64 / reads as f64),
            latency: LatencySummary::of(&all),
            read_latency: LatencySummary::of(&self.reads),
            write_latency: LatencySummary::of(&self.writes),
            quota_blocks_mean: totals.quota_blocks_mean / seconds,
            ..totals.clone()
        }
    }
}

/// One window of an objective.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WindowRow {
    /// Its end, in seconds.
    pub at_s: f64,
    /// The number that the objective is about, in its unit; absent where nothing completed.
    pub value: Option<f64>,
    /// What is said of it.
    pub verdict: Verdict,
}

/// What became of an objective.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectiveOutcome {
    /// In words.
    pub objective: String,
    /// Place of the reservation that promises it; absent for the scenario's own objectives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation: Option<usize>,
    /// The promised number.
    pub bound: f64,
    /// `s`, `requests/s` or `bytes/s`.
    pub unit: &'static str,
    /// The share of windows that must conform.
    pub conforming_share_wanted: f64,
    /// Windows that began at `measure_from` or later and conformed, did not, and asked for too little.
    pub conforming: u64,
    /// See `conforming`.
    pub nonconforming: u64,
    /// See `conforming`.
    pub low_load: u64,
    /// Conforming among the judged ones of these windows; absent where none was judged.
    pub conforming_share: Option<f64>,
    /// Whether that is at least what was wanted; absent where none was judged.
    pub met: Option<bool>,
    /// The last instant at which a window did not conform, in seconds; absent where all did.
    pub last_violation_s: Option<f64>,
    /// All windows.
    pub windows: Vec<WindowRow>,
}

/// What became of a reservation: of its volumes together, in the control intervals in which it stood and that count.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReservationOutcome {
    /// Its volumes.
    pub volumes: Vec<String>,
    /// When it began, in seconds.
    pub from_s: f64,
    /// When it ended, in seconds.
    pub until_s: f64,
    /// What was promised to all of them together; absent where no rate was.
    pub iops: Option<f64>,
    /// The mean latency that was promised to each; absent where none was.
    pub latency_ms: Option<f64>,
    /// Whole intervals in which it stood, since `measure_from`.
    pub intervals: u64,
    /// Requests per second that its volumes completed together in these; absent where there were none.
    pub iops_mean: Option<f64>,
    /// Share of the intervals in which they reached `iops` together, whether or not they asked for as much.
    pub reached_share: Option<f64>,
}

impl ReservationOutcome {
    /// Of its volumes together, by control interval.
    pub(crate) fn of(
        table: &ReservationTable,
        volumes: &[VolumeSeries],
        scenario: &Scenario,
    ) -> ReservationOutcome {
        let interval = scenario.cache.interval.as_secs_f64();
        let from = table.from.max(scenario.measure_from).as_secs_f64();
        let stands = |row: &&IntervalRow| {
            row.at_s - interval > from - 1e-6 && row.at_s < table.until().as_secs_f64() + 1e-6
        };
        let members = volumes.iter().filter(|series| table.volumes.contains(&series.volume));
        let mut together: Vec<f64> = Vec::new();
        for series in members {
            for (at, row) in series.intervals.iter().filter(stands).enumerate() {
                match together.get_mut(at) {
                    Some(sum) => *sum += row.iops,
                    None => together.push(row.iops),
                }
            }
        }
        let count = together.len();
        let average = |sum: f64| (count > 0).then(|| sum / count as f64);
        let reached = |iops: f64| together.iter().filter(|found| **found >= iops).count() as f64;
        ReservationOutcome {
            volumes: table.volumes.clone(),
            from_s: table.from.as_secs_f64(),
            until_s: table.until().as_secs_f64(),
            iops: table.iops,
            latency_ms: table.latency.map(Nanos::as_millis_f64),
            intervals: count as u64,
            iops_mean: average(together.iter().sum()),
            reached_share: table.iops.and_then(|iops| average(reached(iops))),
        }
    }
}

/// What a closed form says, and what came out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExpectedOutcome {
    /// The volume.
    pub volume: String,
    /// Who says so.
    pub by: String,
    /// Which of the volume's totals: `mean_ms`, `iops` or `hit_ratio`.
    pub number: &'static str,
    /// What it must be.
    pub expected: f64,
    /// What it was; absent where nothing completed.
    pub found: Option<f64>,
    /// How far that is off, relative to `expected`: 0.01 is 1 % too much.
    pub error: Option<f64>,
}

impl ExpectedOutcome {
    pub(crate) fn of(table: &ExpectedTable, volumes: &[VolumeSeries]) -> Option<ExpectedOutcome> {
        let (number, expected) = table.number()?;
        let totals = &volumes.iter().find(|volume| volume.volume == table.volume)?.totals;
        let found = match number {
            "mean_ms" => totals.latency.mean_ms,
            "iops" => Some(totals.iops),
            _ => totals.hit_ratio,
        };
        let error = found.map(|found| found / expected - 1.0);
        Some(ExpectedOutcome {
            volume: table.volume.clone(),
            by: table.by.clone(),
            number,
            expected,
            found,
            error,
        })
    }
}

/// What the policy selector of a cache came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChosenPolicy {
    /// The policy at the end.
    pub policy: &'static str,
    /// How often the choice changed.
    pub changes: u64,
}

/// A volume over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VolumeSeries {
    /// Its name.
    pub volume: String,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// What an adaptive cache came to; absent for any other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<ChosenPolicy>,
    /// Sums from `measure_from` on.
    pub totals: Totals,
    /// Objectives in the order of the scenario.
    pub objectives: Vec<ObjectiveOutcome>,
    /// All intervals.
    pub intervals: Vec<IntervalRow>,
}

/// One interval of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OriginRow {
    /// Its end, in seconds.
    pub at_s: f64,
    /// Mean share of time for which its disks or servers were busy.
    pub utilisation: f64,
}

/// An origin over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OriginSeries {
    /// Its name.
    pub origin: String,
    /// All intervals.
    pub intervals: Vec<OriginRow>,
}

/// What a run comes to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The scenario's name.
    pub scenario: String,
    /// The seed that was used.
    pub seed: u64,
    /// How long it lasted, in seconds of virtual time.
    pub seconds: f64,
    /// Totals begin here, in seconds.
    pub measure_from_s: f64,
    /// Stands for every event with its time and order: the same for the same scenario, traces, seed and commit.
    pub hash: String,
    /// Events taken.
    pub events: u64,
    /// Client requests sent, all volumes and the whole run.
    pub requests: u64,
    /// Client requests answered.
    pub answered: u64,
    /// What was to be known before the run, and what it had to shed.
    pub flags: Vec<Flag>,
    /// Volumes in the order of the scenario.
    pub volumes: Vec<VolumeSeries>,
    /// Reservations in the order of the scenario.
    pub reservations: Vec<ReservationOutcome>,
    /// What closed forms say of it, where the scenario names some.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expected: Vec<ExpectedOutcome>,
    /// Origins in the order of the scenario.
    pub origins: Vec<OriginSeries>,
    /// The chunk tier, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<TierOutcome>,
    /// What the controller decided.
    pub decisions: Vec<Decision>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_that_are_not_told_apart_are_absent_and_the_mean_is_not() {
        let mut latencies = LatencyHistogram::new();
        for seconds in [1, 99, 200, 500] {
            latencies.record(Nanos::secs(seconds));
        }
        let summary = LatencySummary::of(&latencies.snapshot());
        assert_eq!((summary.count, summary.mean_ms), (4, Some(200_000.0)));
        // The second of four, told within 1 %.
        assert!(summary.p50_ms.is_some_and(|p50| (99_000.0..100_000.0).contains(&p50)), "{summary:?}");
        assert_eq!((summary.p95_ms, summary.p99_ms), (None, None));
    }
}
