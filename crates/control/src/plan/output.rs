//! What the planner answers. Latencies are in seconds, sizes in bytes; all of them are predictions of the model that
//! `basis` describes.

use serde::Serialize;

/// A plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// One entry per volume, in the order of the input.
    pub volumes: Vec<VolumePlan>,
    /// One entry per origin, in the order of the input.
    pub origins: Vec<OriginPlan>,
    /// For every objective that is violated without a cache: the ways to mend it, best first.
    pub remedies: Vec<Remedy>,
    /// The caches that keep all objectives that can be kept, as little in sum as was found.
    pub recommendation: Allocation,
    /// The allocation that violates least within the budget; absent without a budget.
    pub within_budget: Option<Allocation>,
    /// What the predictions rest on, in sentences.
    pub basis: Vec<String>,
}

/// A volume in the plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VolumePlan {
    /// Its name.
    pub volume: String,
    /// Its origin's name.
    pub origin: String,
    /// Requests per second over the whole load.
    pub requests_per_second: f64,
    /// Requests per second in the busiest window.
    pub requests_per_second_peak: f64,
    /// Length of that window, in seconds.
    pub window_s: f64,
    /// Share of reads among the requests.
    pub read_share: f64,
    /// Bytes of an average read.
    pub read_bytes_mean: f64,
    /// Bytes of an average write.
    pub write_bytes_mean: f64,
    /// Distinct bytes accessed.
    pub footprint_bytes: u64,
    /// Distinct bytes accessed in the worst window of `working_set_window_s`.
    pub working_set_bytes: u64,
    /// That window, in seconds.
    pub working_set_window_s: f64,
    /// Its objectives.
    pub objectives: Vec<ObjectivePlan>,
    /// The smallest cache in front of this volume, with no other volume cached, that keeps all its objectives with the
    /// margin. 0: none is needed. Absent: no size does, or it has no objective.
    pub smallest_cache_bytes: Option<u64>,
    /// The miss ratio of its reads with that cache; without one, 1.
    pub miss_ratio: f64,
    /// Predictions without any cache.
    pub without: Performance,
    /// Predictions with `smallest_cache_bytes` or, where that is absent, with its largest useful cache.
    pub with: Performance,
    /// `1 - smallest_cache / working_set`: what was saved against caching the whole working set. Absent without a size.
    pub saved_against_working_set: Option<f64>,
}

/// How a workload fares over all its windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Performance {
    /// Mean latency of reads, weighted by reads.
    pub read_latency_s: f64,
    /// Mean latency of writes, weighted by writes.
    pub write_latency_s: f64,
    /// Mean latency of all requests.
    pub latency_s: f64,
    /// Mean latency of all requests in the worst window.
    pub latency_worst_s: f64,
    /// Requests served per second.
    pub requests_per_second: f64,
    /// Share of the windows in which the origin is asked for more than it can serve; latencies then grow with time
    /// and the numbers above are a bound for the window, not a state that lasts.
    pub overloaded_share: f64,
}

/// An objective in the plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectivePlan {
    /// In words.
    pub objective: String,
    /// The promised number.
    pub bound: f64,
    /// Its unit: `s`, `requests/s` or `bytes/s`.
    pub unit: &'static str,
    /// Share of the windows that must conform.
    pub conforming_share_wanted: f64,
    /// Predictions without any cache.
    pub without: ObjectiveOutcome,
    /// Predictions with this volume's smallest cache (or its largest useful one where none suffices).
    pub with: ObjectiveOutcome,
}

/// How an objective fares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ObjectiveOutcome {
    /// Whether it is kept; what was never asked for is.
    pub met: bool,
    /// Share of the windows with enough load that are to be expected to conform. Absent, as the two below, where no window has
    /// enough.
    pub conforming_share: Option<f64>,
    /// The number in the window that decides: what as many windows as must conform are to be expected to be as good as.
    pub value: Option<f64>,
    /// How far that is beyond the bound, relative to it; negative is slack.
    pub excess: Option<f64>,
}

/// The excess of what nothing is asked of: a latency of nothing.
pub(super) const SLACK_MAX: f64 = -1.0;

impl ObjectiveOutcome {
    /// The excess, or all the slack that there can be where none was judged.
    pub(super) fn excess_or_slack(&self) -> f64 {
        self.excess.unwrap_or(SLACK_MAX)
    }
}

/// An origin in the plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OriginPlan {
    /// Its name.
    pub origin: String,
    /// Utilisation without a cache, mean over the windows. Above 1: asked for more than it can serve.
    pub utilisation: f64,
    /// The same in the busiest window.
    pub utilisation_peak: f64,
    /// Mean over the windows, with the recommended caches.
    pub utilisation_with: f64,
}

/// The ways to mend one volume's objectives.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Remedy {
    /// The violated volume.
    pub volume: String,
    /// Best first; empty where nothing helps. Those that keep the bound without the margin where none keeps both.
    pub solutions: Vec<PlannedSolution>,
    /// Where nothing helps: how far beyond the bound it stays with the best that caches can do; and why.
    pub unmet: Option<Unmet>,
    /// Where caches keep the bound, but none the margin: how near they come, as negative excess; and why.
    pub margin_unmet: Option<Unmet>,
}

/// One way to mend a violation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedSolution {
    /// Which volumes are cached, with how much.
    pub caches: Vec<PlannedCache>,
    /// The sum.
    pub cost_bytes: u64,
    /// The violated volume's worst excess with it; negative is slack.
    pub predicted_excess: f64,
    /// Other volumes that are predicted to miss an objective all the same.
    pub still_violated: Vec<String>,
    /// Why it stands where it stands in the ranking.
    pub reason: String,
}

/// A cache in front of a volume.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedCache {
    /// The volume.
    pub volume: String,
    /// The cache.
    pub bytes: u64,
}

/// An objective, or the margin of one, that no cache keeps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unmet {
    /// How far beyond its bound the objective stays, relative to it; negative is slack.
    pub excess: f64,
    /// Why.
    pub reason: String,
}

/// Caches for all volumes together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Allocation {
    /// All volumes, in the order of the input; 0 bytes for those without a cache.
    pub caches: Vec<PlannedCache>,
    /// The sum.
    pub total_bytes: u64,
    /// The weighted sum of `max(0, excess)` over all objectives.
    pub weighted_violation: f64,
    /// The objectives that are missed, with their volumes.
    pub missed: Vec<MissedObjective>,
}

/// An objective that an allocation misses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MissedObjective {
    /// The volume.
    pub volume: String,
    /// The objective in words.
    pub objective: String,
    /// How far beyond its bound it is, relative to it.
    pub excess: f64,
}
