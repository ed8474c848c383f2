//! One origin over the windows of its volumes' loads: what the planner asks for every choice of caches.

use super::input::{CacheTiers, PlanOrigin, PlanVolume, WindowLoad};
use super::output::{ObjectiveOutcome, Performance};
use crate::objective::{Objective, Operations, Target};
use crate::performance::{Demand, OriginModel, OriginPrediction, WorkloadModel, predict};

/// Windows that are evaluated at most; of more, every n-th by total load and the busiest (ours).
pub(super) const WINDOWS_MAX: usize = 256;

/// The volumes of one origin.
pub(super) struct Stage<'a> {
    pub(super) volumes: Vec<&'a PlanVolume>,
    origin: &'a PlanOrigin,
    model: OriginModel,
    tiers: CacheTiers,
    /// (loads of the volumes, how many windows this one stands for).
    windows: Vec<(Vec<Offered>, f64)>,
}

/// What a volume asks for in a window.
#[derive(Clone, Copy, Default)]
struct Offered {
    load: WindowLoad,
    /// Requests per second over what of the window the load fills.
    rate: f64,
}

impl Offered {
    fn requests(&self) -> u64 {
        self.load.reads + self.load.writes
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

    /// The weighted sum of `max(0, excess)`.
    pub(super) fn weighted_violation(&self, volumes: &[&PlanVolume]) -> f64 {
        volumes
            .iter()
            .zip(&self.outcomes)
            .flat_map(|(volume, outcomes)| volume.objectives.iter().zip(outcomes))
            .map(|(objective, outcome)| objective.weight * outcome.excess_or_slack().clamp(0.0, 1e6))
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
            Offered { load, rate: volume.load.rate(window) }
        };
        let mut windows: Vec<Vec<Offered>> =
            (0..length).map(|window| volumes.iter().map(|volume| at(volume, window)).collect()).collect();
        windows.retain(|loads| loads.iter().any(|offered| offered.requests() > 0));
        let total = |loads: &[Offered]| loads.iter().map(|offered| offered.rate).sum::<f64>();
        windows.sort_by(|a, b| total(b).total_cmp(&total(a)));
        let step = windows.len().div_ceil(WINDOWS_MAX).max(1);
        let count = windows.len();
        let windows = windows
            .into_iter()
            .enumerate()
            .filter(|(at, _)| at % step == 0)
            .map(|(at, loads)| (loads, step.min(count - at) as f64))
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
        let predicted = predict(&self.model, &workloads);
        (workloads, predicted)
    }

    /// All windows with caches of `blocks`.
    pub(super) fn evaluate(&self, blocks: &[u64]) -> Evaluation {
        let mut judged: Vec<Vec<Vec<(f64, f64, f64)>>> =
            self.volumes.iter().map(|volume| vec![Vec::new(); volume.objectives.len()]).collect();
        let mut sums = vec![Sums::default(); self.volumes.len()];
        let (mut busy, mut busy_peak, mut weights) = (0.0, 0.0f64, 0.0);
        for (loads, weight) in &self.windows {
            let (workloads, predicted) = self.predict(loads, blocks);
            busy += predicted.utilisation * weight;
            busy_peak = busy_peak.max(predicted.utilisation);
            weights += weight;
            for (at, (workload, got)) in workloads.iter().zip(&predicted.workloads).enumerate() {
                if loads[at].requests() == 0 {
                    continue;
                }
                sums[at].add(workload, got, *weight, predicted.utilisation > 1.0);
                for (objective, judged) in self.volumes[at].objectives.iter().zip(&mut judged[at]) {
                    if let Some((value, excess)) = judge(objective, workload, got) {
                        judged.push((excess, value, *weight));
                    }
                }
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
                    .map(|(objective, judged)| outcome(objective, judged))
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

/// Value and excess in one window; `None` where the workload asks for too little to judge.
fn judge(
    objective: &Objective,
    workload: &WorkloadModel,
    got: &crate::performance::Prediction,
) -> Option<(f64, f64)> {
    let there = match objective.operations() {
        Operations::Reads => workload.read_share > 0.0,
        Operations::Writes => workload.read_share < 1.0,
        Operations::All => true,
    };
    if !there {
        return None;
    }
    let value = got.value(objective);
    if let (false, Demand::Open { rate }) =
        (matches!(objective.target, Target::Latency { .. }), workload.demand)
    {
        let asked = value * rate / got.rate.max(1e-12);
        if asked < objective.bound() {
            return None;
        }
    }
    Some((value, objective.excess(value).min(1e6)))
}

/// The window that decides: as many windows as must conform are at least as good. Kept where none was judged.
fn outcome(objective: &Objective, mut judged: Vec<(f64, f64, f64)>) -> ObjectiveOutcome {
    judged.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total: f64 = judged.iter().map(|window| window.2).sum();
    if total <= 0.0 {
        return ObjectiveOutcome { met: true, conforming_share: None, value: None, excess: None };
    }
    let mut below = 0.0;
    let deciding = judged
        .iter()
        .find(|window| {
            below += window.2;
            below >= objective.conforming_share * total - 1e-9
        })
        .or(judged.last())
        .expect("there is weight, so there is a window");
    // From 0.0: the sum of no numbers is -0.0.
    let conforming = judged.iter().filter(|window| window.0 <= 0.0).fold(0.0, |sum, window| sum + window.2);
    ObjectiveOutcome {
        met: deciding.0 <= 0.0,
        conforming_share: Some(conforming / total),
        value: Some(deciding.1),
        excess: Some(deciding.0),
    }
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
    fn add(
        &mut self,
        workload: &WorkloadModel,
        got: &crate::performance::Prediction,
        weight: f64,
        overloaded: bool,
    ) {
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
