//! What a failover came to: plain data, second by second and in sum.

use super::scene::{Begins, Played, Second, Setup};
use forebay_workload::LatencySnapshot;
use serde::Serialize;

const SCHEMA: &str = "forebay.repro-failover/1";
/// The killed daemon's last seconds, at most, that say what a warm cache is.
const WARM_SECONDS: usize = 10;
/// Who has this share of a warm cache's hit ratio is warm.
const WARM_SHARE: f64 = 0.95;

/// Everything that was found.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    schema: &'static str,
    pub(super) seed: u64,
    pub(super) volume_bytes: u64,
    pub(super) cache_bytes: u64,
    pub(super) hot_bytes: u64,
    pub(super) requests_per_s: f64,
    /// How long the first daemon served before it was killed.
    pub(super) warm_s: u64,
    /// Its hit ratio at the end.
    pub(super) warm_hit_ratio: f64,
    /// With snapshots, and cold.
    pub(super) ways: Vec<Way>,
    pub(super) bytes_checked: u64,
    pub(super) wrong_reads: u64,
    /// Errors of those who took over.
    pub(super) errors: u64,
    /// Requests in flight when the first was killed, which were answered with an error.
    pub(super) lost_at_kill: u64,
}

/// All takeovers of a kind.
#[derive(Debug, Serialize)]
pub(super) struct Way {
    pub(super) begins: &'static str,
    pub(super) repeats: usize,
    /// Of all its seconds: hits of reads,
    pub(super) hit_ratio: f64,
    /// and latencies of reads.
    pub(super) read_mean_ms: Option<f64>,
    pub(super) read_p99_ms: Option<f64>,
    /// The end of the first second in which the hit ratio was 95 % of a warm cache's; absent if it never was.
    pub(super) warm_after_s: Option<usize>,
    /// Loaded from snapshots, on average.
    pub(super) loaded_bytes: u64,
    pub(super) seconds: Vec<WaySecond>,
}

/// A second since the daemon took requests, over all takeovers of a kind.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct WaySecond {
    pub(super) hit_ratio: Option<f64>,
    pub(super) read_mean_ms: Option<f64>,
    pub(super) read_p99_ms: Option<f64>,
}

fn hit_ratio<'a>(seconds: impl Iterator<Item = &'a Second>) -> Option<f64> {
    let (reads, hits) = seconds.fold((0, 0), |sum, second| (sum.0 + second.reads, sum.1 + second.hits));
    (reads > 0).then(|| hits as f64 / reads as f64)
}

fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let (count, sum) = values.flatten().fold((0.0, 0.0), |sum, value| (sum.0 + 1.0, sum.1 + value));
    (count > 0.0).then(|| sum / count)
}

impl Outcome {
    pub(super) fn of(setup: Setup, warm_s: u64, first: &Played, taken: &[(Begins, Played)]) -> Outcome {
        let last = first.seconds.len().saturating_sub(WARM_SECONDS).max(first.seconds.len() / 2);
        let warm_hit_ratio = hit_ratio(first.seconds[last..].iter()).unwrap_or(0.0);
        let way = |begins: Begins| {
            let runs: Vec<&Played> = taken.iter().filter(|run| run.0 == begins).map(|run| &run.1).collect();
            Way::of(begins, &runs, warm_hit_ratio)
        };
        let reports = || std::iter::once(&first.report).chain(taken.iter().map(|run| &run.1.report));
        Outcome {
            schema: SCHEMA,
            seed: setup.seed,
            volume_bytes: setup.volume_bytes,
            cache_bytes: setup.cache_bytes,
            hot_bytes: setup.hot_bytes,
            requests_per_s: setup.requests_per_s,
            warm_s,
            warm_hit_ratio,
            ways: vec![way(Begins::FromSnapshots), way(Begins::Cold)],
            bytes_checked: reports().map(|report| report.bytes_checked).sum(),
            wrong_reads: reports().map(|report| report.wrong_count).sum(),
            errors: taken.iter().map(|run| run.1.report.errors).sum(),
            lost_at_kill: first.report.errors,
        }
    }

    /// What must not be, if it is.
    pub(super) fn failure(&self) -> Option<String> {
        let wrong = self.wrong_reads > 0 || self.errors > 0;
        wrong.then(|| format!("{} wrong reads and {} errors after a takeover", self.wrong_reads, self.errors))
    }
}

impl Way {
    fn of(begins: Begins, runs: &[&Played], warm_hit_ratio: f64) -> Way {
        let length = runs.iter().map(|run| run.seconds.len()).max().unwrap_or(0);
        let at = |second: usize| runs.iter().filter_map(move |run| run.seconds.get(second));
        let seconds: Vec<WaySecond> = (0..length)
            .map(|second| WaySecond {
                hit_ratio: hit_ratio(at(second)),
                read_mean_ms: mean(at(second).map(|second| second.read_mean_ms)),
                read_p99_ms: mean(at(second).map(|second| second.read_p99_ms)),
            })
            .collect();
        let all = |of: fn(&LatencySnapshot) -> Option<forebay_units::Nanos>| {
            mean(
                runs.iter()
                    .map(|run| of(&run.report.reads.snapshot()).map(|latency| latency.as_millis_f64())),
            )
        };
        let loaded = |run: &&Played| {
            let prewarm = run.status.as_ref()?.volumes.first()?.prewarm.as_ref()?;
            Some(prewarm.loaded_bytes as f64)
        };
        Way {
            begins: match begins {
                Begins::Cold => "cold",
                Begins::FromSnapshots => "snapshots",
            },
            repeats: runs.len(),
            hit_ratio: hit_ratio(runs.iter().flat_map(|run| &run.seconds)).unwrap_or(0.0),
            read_mean_ms: all(|reads| reads.mean()),
            read_p99_ms: all(|reads| reads.percentile(99.0)),
            warm_after_s: seconds
                .iter()
                .position(|second| second.hit_ratio.is_some_and(|ratio| ratio >= WARM_SHARE * warm_hit_ratio))
                .map(|second| second + 1),
            loaded_bytes: mean(runs.iter().map(loaded)).unwrap_or(0.0) as u64,
            seconds,
        }
    }
}
