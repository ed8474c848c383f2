//! One origin over the windows of its volumes' loads: what the planner asks for every choice of caches.

use super::input::{CacheTiers, PlanOrigin, PlanVolume, WindowLoad};
use super::output::{ObjectiveOutcome, Performance, SLACK_MAX};
use crate::objective::{Objective, Operations, Target};
use crate::performance::{
    Chance, Demand, OriginModel, OriginPrediction, Prediction, Spread, WorkloadModel, predict_each,
};

/// Windows that are evaluated at most; of more, every n-th by total load and the busiest (ours).
pub(super) const WINDOWS_MAX: usize = 256;
/// How many times its bound a number is taken for at most (ours): a floor that nothing is served for has none.
const OVER_BOUND_MAX: f64 = 1e6;
/// What an excess may be above its goal and reach it (ours): levels are found to 1e-10.
pub(super) const GOAL_SLACK: f64 = 1e-9;
/// Deviations from the medians beyond which no window is looked for (ours).
const DEVIATIONS_MAX: f64 = 6.0;

/// The volumes of one origin.
pub(super) struct Stage<'a> {
    pub(super) volumes: Vec<&'a PlanVolume>,
    origin: &'a PlanOrigin,
    model: OriginModel,
    tiers: CacheTiers,
    windows: Vec<Window>,
}

/// A window of the loads.
struct Window {
    /// One per volume.
    loads: Vec<Offered>,
    /// How many windows this one stands for.
    weight: f64,
    /// How much of it loads fill, in seconds.
    seconds: f64,
}

/// What a volume asks for in a window.
#[derive(Clone, Copy, Default)]
struct Offered {
    load: WindowLoad,
    /// Requests per second over what of the window the load fills.
    rate: f64,
    /// Variance over mean of the requests in an instant.
    dispersion: f64,
}

impl Offered {
    fn requests(&self) -> u64 {
        self.load.reads + self.load.writes
    }

    /// How much of the window the load fills; `None` without one.
    fn seconds(&self) -> Option<f64> {
        (self.rate > 0.0).then(|| self.requests() as f64 / self.rate)
    }
}

/// What all windows come to for given caches.
pub(super) struct Evaluation {
    /// Excess at the deciding window of every objective of every volume.
    pub(super) outcomes: Vec<Vec<ObjectiveOutcome>>,
    pub(super) performance: Vec<Performance>,
    pub(super) utilisation: f64,
    pub(super) utilisation_peak: f64,
}

impl Evaluation {
    /// The worst excess of each volume; negative infinity without objectives.
    pub(super) fn excess(&self) -> Vec<f64> {
        let worst = |outcomes: &Vec<ObjectiveOutcome>| {
            outcomes.iter().map(ObjectiveOutcome::excess_or_slack).fold(f64::NEG_INFINITY, f64::max)
        };
        self.outcomes.iter().map(worst).collect()
    }

    /// The weighted sum of `max(0, excess)`, each as much as its priority `counts`.
    pub(super) fn weighted_violation(&self, volumes: &[&PlanVolume], counts: impl Fn(u8) -> f64) -> f64 {
        volumes
            .iter()
            .zip(&self.outcomes)
            .flat_map(|(volume, outcomes)| volume.objectives.iter().zip(outcomes))
            .map(|(objective, outcome)| {
                counts(objective.priority) * (objective.weight * outcome.excess_or_slack().clamp(0.0, 1e6))
            })
            .sum()
    }
}

impl<'a> Stage<'a> {
    pub(super) fn new(origin: &'a PlanOrigin, volumes: Vec<&'a PlanVolume>, tiers: CacheTiers) -> Stage<'a> {
        let length = volumes.iter().map(|volume| volume.load.windows.len()).max().unwrap_or(0).max(1);
        let at = |volume: &PlanVolume, window: usize| {
            // A closed loop without windows of its own runs all the time.
            let always = WindowLoad { reads: 1, bytes_read: 4_096, ..WindowLoad::default() };
            let none = volume.load.windows.is_empty() && volume.load.closed_loop.is_some();
            let otherwise = if none { always } else { WindowLoad::default() };
            let load = volume.load.windows.get(window).copied().unwrap_or(otherwise);
            Offered { load, rate: volume.load.rate(window), dispersion: volume.load.dispersion(window) }
        };
        let mut windows: Vec<Vec<Offered>> =
            (0..length).map(|window| volumes.iter().map(|volume| at(volume, window)).collect()).collect();
        windows.retain(|loads| loads.iter().any(|offered| offered.requests() > 0));
        let total = |loads: &[Offered]| loads.iter().map(|offered| offered.rate).sum::<f64>();
        windows.sort_by(|a, b| total(b).total_cmp(&total(a)));
        let step = windows.len().div_ceil(WINDOWS_MAX).max(1);
        let count = windows.len();
        let whole = volumes.iter().map(|volume| volume.load.window.as_secs_f64()).fold(0.0, f64::max);
        let filled = |loads: &[Offered]| loads.iter().filter_map(Offered::seconds).fold(0.0, f64::max);
        let windows = windows
            .into_iter()
            .enumerate()
            .filter(|(at, _)| at % step == 0)
            .map(|(at, loads)| Window {
                weight: step.min(count - at) as f64,
                seconds: if filled(&loads) > 0.0 { filled(&loads) } else { whole },
                loads,
            })
            .collect();
        Stage { model: origin.model.origin_model(), volumes, origin, tiers, windows }
    }

    /// Latency of a hit and share of reads that hit, with a cache of `blocks`.
    pub(super) fn hits(&self, volume: usize, blocks: u64) -> (f64, f64) {
        let curve = &self.volumes[volume].curve;
        let all = 1.0 - curve.miss_ratio_at(blocks);
        let memory = self.tiers.memory_latency.as_secs_f64();
        let Some(flash) = self.tiers.flash else { return (memory, all) };
        let in_memory = 1.0 - curve.miss_ratio_at((blocks as f64 * flash.memory_share) as u64);
        let latency = if all > 0.0 {
            (in_memory * memory + (all - in_memory) * flash.latency.as_secs_f64()) / all
        } else {
            memory
        };
        (latency, all)
    }

    fn workload(&self, at: usize, offered: &Offered, blocks: u64) -> WorkloadModel {
        let load = &offered.load;
        let volume = self.volumes[at];
        let (hit_latency, hit_ratio) = self.hits(at, blocks);
        let per = |bytes: u64, count: u64| if count == 0 { 4_096.0 } else { bytes as f64 / count as f64 };
        let (read_bytes, write_bytes) =
            (per(load.bytes_read, load.reads), per(load.bytes_written, load.writes));
        let all = offered.requests();
        WorkloadModel {
            demand: match volume.load.closed_loop {
                Some(outstanding) if all > 0 => {
                    Demand::Closed { outstanding: f64::from(outstanding.max(1)), think: 0.0 }
                }
                _ => Demand::Open { rate: offered.rate },
            },
            dispersion: offered.dispersion,
            read_share: if all > 0 { load.reads as f64 / all as f64 } else { 1.0 },
            hit_ratio,
            hit_latency,
            read_service: self.origin.model.service(read_bytes, volume.load.sequential_share),
            write_service: self.origin.model.service(write_bytes, 0.0),
            write_accesses: self.origin.model.write_cost.max(0.0),
            read_stretch: 1.0,
            write_stretch: 1.0,
            latency_cv2: None,
            read_bytes,
            write_bytes,
        }
    }

    fn predict(&self, loads: &[Offered], blocks: &[u64]) -> (Vec<WorkloadModel>, OriginPrediction) {
        let workloads: Vec<WorkloadModel> =
            loads.iter().enumerate().map(|(at, load)| self.workload(at, load, blocks[at])).collect();
        let predicted = predict_each(&self.model, &workloads);
        (workloads, predicted)
    }

    /// Whether the excess of every volume comes to `goals` with caches of `blocks`, as [`Stage::evaluate`] would say.
    ///
    /// Most of what that takes is finding the level that just enough windows keep; whether enough keep a given one is a
    /// single look at them.
    pub(super) fn reaches(&self, blocks: &[u64], goals: &[f64]) -> bool {
        let mut judged = self.none_judged();
        for Window { loads, weight, seconds } in &self.windows {
            let (workloads, predicted) = self.predict(loads, blocks);
            let chance = Chance::new(&self.model, &workloads, &predicted, *seconds);
            for (at, (workload, got)) in workloads.iter().zip(&predicted.workloads).enumerate() {
                if loads[at].requests() > 0 {
                    self.judge(at, (workload, got), &chance, *weight, &mut judged[at]);
                }
            }
        }
        let all_of = |at: usize| {
            let objectives = self.volumes[at].objectives.iter().zip(&judged[at]);
            let mut each = objectives.map(|(objective, judged)| {
                Windows::new(objective, judged).map_or(SLACK_MAX <= goals[at] + GOAL_SLACK, |windows| {
                    windows.are_enough_at(1.0 + goals[at] + GOAL_SLACK)
                })
            });
            each.all(|reached| reached)
        };
        (0..self.volumes.len()).all(all_of)
    }

    /// For every objective of every volume, what its windows come to, and how many each stands for: nothing yet.
    fn none_judged(&self) -> Vec<Vec<Vec<(Spread, f64)>>> {
        self.volumes.iter().map(|volume| vec![Vec::new(); volume.objectives.len()]).collect()
    }

    /// Adds a window to what is judged of the objectives of the volume `at`.
    fn judge(
        &self,
        at: usize,
        (workload, got): (&WorkloadModel, &Prediction),
        chance: &Chance,
        weight: f64,
        judged: &mut [Vec<(Spread, f64)>],
    ) {
        for (objective, judged) in self.volumes[at].objectives.iter().zip(judged) {
            if is_judged(objective, workload, got) {
                let spread = chance.spread(workload, got, objective);
                judged.push((over_bound(objective, spread), weight));
            }
        }
    }

    /// All windows with caches of `blocks`.
    pub(super) fn evaluate(&self, blocks: &[u64]) -> Evaluation {
        let mut judged = self.none_judged();
        let mut sums = vec![Sums::default(); self.volumes.len()];
        let (mut busy, mut busy_peak, mut weights) = (0.0, 0.0f64, 0.0);
        for Window { loads, weight, seconds } in &self.windows {
            let (workloads, predicted) = self.predict(loads, blocks);
            let chance = Chance::new(&self.model, &workloads, &predicted, *seconds);
            busy += predicted.utilisation * weight;
            busy_peak = busy_peak.max(predicted.utilisation);
            weights += weight;
            for (at, (workload, got)) in workloads.iter().zip(&predicted.workloads).enumerate() {
                if loads[at].requests() == 0 {
                    continue;
                }
                sums[at].add(workload, got, *weight, predicted.utilisation > 1.0);
                self.judge(at, (workload, got), &chance, *weight, &mut judged[at]);
            }
        }
        let outcomes = self
            .volumes
            .iter()
            .zip(judged)
            .map(|(volume, judged)| {
                volume
                    .objectives
                    .iter()
                    .zip(judged)
                    .map(|(objective, judged)| outcome(objective, &judged))
                    .collect()
            })
            .collect();
        Evaluation {
            outcomes,
            performance: sums.iter().map(Sums::performance).collect(),
            utilisation: if weights > 0.0 { busy / weights } else { 0.0 },
            utilisation_peak: busy_peak,
        }
    }
}

/// Whether the workload asks for enough in a window to judge it.
fn is_judged(objective: &Objective, workload: &WorkloadModel, got: &Prediction) -> bool {
    let there = match objective.operations() {
        Operations::Reads => workload.read_share > 0.0,
        Operations::Writes => workload.read_share < 1.0,
        Operations::All => true,
    };
    match (objective.target, workload.demand) {
        (Target::IopsFloor { .. } | Target::BandwidthFloor { .. }, Demand::Open { rate }) => {
            there && got.value(objective) * rate / got.rate.max(1e-12) >= objective.bound()
        }
        _ => there,
    }
}

/// `1 + excess` instead of the number itself: above 1 it is not kept.
fn over_bound(objective: &Objective, spread: Spread) -> Spread {
    let median = (1.0 + objective.excess(spread.median)).min(OVER_BOUND_MAX);
    match objective.target {
        Target::Latency { .. } => Spread { median, ..spread },
        Target::IopsFloor { .. } | Target::BandwidthFloor { .. } => {
            Spread { median, above: spread.below, below: spread.above }
        }
    }
}

/// The windows in which an objective is judged.
///
/// Of `n` of which `k` may miss it, `k` and a half are expected to be above the level that decides: without chance that is the
/// `k + 1`st worst window.
struct Windows<'a> {
    judged: &'a [(Spread, f64)],
    /// How many they stand for.
    total: f64,
    /// The share that must be at most the level.
    wanted: f64,
}

impl<'a> Windows<'a> {
    /// Those in which `objective` is `judged`; `None` where none was.
    fn new(objective: &Objective, judged: &'a [(Spread, f64)]) -> Option<Windows<'a>> {
        let total: f64 = judged.iter().map(|window| window.1).sum();
        let may_miss = ((1.0 - objective.conforming_share) * total + 1e-9).floor();
        (total > 0.0).then(|| Windows { judged, total, wanted: 1.0 - (may_miss + 0.5) / total })
    }

    /// The share that is expected to be at most `level`.
    fn share_at_most(&self, level: f64) -> f64 {
        let at_most = |(spread, weight): &(Spread, f64)| spread.share_at_most(level) * weight;
        self.judged.iter().map(at_most).sum::<f64>() / self.total
    }

    /// Whether as many as must conform are at most `level`.
    fn are_enough_at(&self, level: f64) -> bool {
        self.share_at_most(level) >= self.wanted
    }
}

/// What as many windows as must conform are at least as good as; kept where none was judged.
fn outcome(objective: &Objective, judged: &[(Spread, f64)]) -> ObjectiveOutcome {
    let Some(windows) = Windows::new(objective, judged) else {
        return ObjectiveOutcome { met: true, conforming_share: None, value: None, excess: None };
    };
    let level = level_of(judged, |level| windows.are_enough_at(level));
    let excess = level - 1.0;
    ObjectiveOutcome {
        met: excess <= 0.0,
        conforming_share: Some(windows.share_at_most(1.0)),
        value: Some(match objective.target {
            Target::Latency { .. } => objective.bound() * level,
            Target::IopsFloor { .. } | Target::BandwidthFloor { .. } => objective.bound() / level,
        }),
        excess: Some(excess),
    }
}

/// The least level that `suffices`, among those between which all windows are likely to lie.
fn level_of(judged: &[(Spread, f64)], suffices: impl Fn(f64) -> bool) -> f64 {
    let reach = |spread: &Spread, deviations: f64| spread.median * (deviations * DEVIATIONS_MAX).exp();
    let (mut low, mut high) = (f64::INFINITY, 0.0f64);
    for (spread, _) in judged {
        low = low.min(reach(spread, -spread.below));
        high = high.max(reach(spread, spread.above));
    }
    let (mut low, mut high) = (low.max(f64::MIN_POSITIVE).ln(), high.max(f64::MIN_POSITIVE).ln());
    let mut halvings = 0;
    while high - low > 1e-10 && halvings < 60 {
        let middle = (low + high) / 2.0;
        if suffices(middle.exp()) {
            high = middle;
        } else {
            low = middle;
        }
        halvings += 1;
    }
    // A window that nothing is left to chance in is where it is, not a little above.
    let (low, high) = (low.exp(), high.exp());
    judged
        .iter()
        .filter(|(spread, _)| spread.above == 0.0 && (low..=high).contains(&spread.median))
        .map(|(spread, _)| spread.median)
        .fold(high, f64::min)
}

/// Sums over windows.
#[derive(Clone, Copy, Default)]
struct Sums {
    windows: f64,
    overloaded: f64,
    served: f64,
    read_weight: f64,
    read_time: f64,
    write_weight: f64,
    write_time: f64,
    worst: f64,
}

impl Sums {
    fn add(&mut self, workload: &WorkloadModel, got: &Prediction, weight: f64, overloaded: bool) {
        let reads = got.rate * workload.read_share * weight;
        let writes = got.rate * (1.0 - workload.read_share) * weight;
        self.windows += weight;
        self.overloaded += if overloaded { weight } else { 0.0 };
        self.served += got.rate * weight;
        self.read_weight += reads;
        self.read_time += reads * got.mean_latency(Operations::Reads);
        self.write_weight += writes;
        self.write_time += writes * got.mean_latency(Operations::Writes);
        self.worst = self.worst.max(got.mean_latency(Operations::All));
    }

    fn performance(&self) -> Performance {
        let per = |time: f64, weight: f64| if weight > 0.0 { time / weight } else { 0.0 };
        Performance {
            read_latency_s: per(self.read_time, self.read_weight),
            write_latency_s: per(self.write_time, self.write_weight),
            latency_s: per(self.read_time + self.write_time, self.read_weight + self.write_weight),
            latency_worst_s: self.worst,
            requests_per_second: per(self.served, self.windows),
            overloaded_share: per(self.overloaded, self.windows),
        }
    }
}
