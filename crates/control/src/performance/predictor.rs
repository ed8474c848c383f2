//! What every workload on an origin gets: the one waiting time of the formula of [`super`], and what follows from it for each.

use super::{
    Demand, LATENCY_MIN_S, OPEN_UTILISATION_MAX, OriginModel, OriginPrediction, Prediction, WorkloadModel,
};
use std::rc::Rc;

/// The span over which a backlog grows where the origin is asked for more than it can serve, in seconds (ours: the
/// default window).
const BACKLOG_WINDOW_S: f64 = 10.0;

/// Predicts what `workloads` get from `origin`. `O(n)`, and `O(closed workloads)` times some forty halvings.
///
/// Where open workloads ask for more than the origin can serve, latency is the stationary one at 98 % plus the mean
/// backlog of ten seconds, so that it stays finite and rises with the overload (ours).
pub fn predict(origin: &OriginModel, workloads: &[WorkloadModel]) -> OriginPrediction {
    Predictor::new(*origin, workloads.to_vec()).all()
}

/// [`predict`] for whoever asks again and again, with other hit ratios of few workloads, what few of them get: what a workload asks of the
/// origin is worked out when that changes. A clone copies three numbers of each.
#[derive(Clone, Debug)]
pub struct Predictor {
    origin: OriginModel,
    /// As they were at first: their hit ratios are those of `hit_ratios`.
    workloads: Rc<[WorkloadModel]>,
    /// The places of the closed ones.
    closed: Rc<[usize]>,
    /// By workload.
    hit_ratios: Vec<f64>,
    /// By workload.
    asked: Vec<Asked>,
}

/// What an open workload asks of an origin that serves all of it; nothing for a closed one.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// Share of the servers' time.
    busy: f64,
    /// What is under service of it, as an arrival finds it, and what has come with that, in seconds.
    queued: f64,
}

impl Asked {
    /// Of what a workload asks for, the part `scale` is served.
    fn of(origin: &OriginModel, workload: &WorkloadModel, scale: f64) -> Asked {
        let servers = origin.servers.max(1.0);
        let Demand::Open { rate } = workload.demand else { return Asked::default() };
        Asked {
            busy: rate * scale * workload.work() / servers,
            queued: rate * scale * workload.squared_work() * origin.residual() / servers
                + rate * scale * workload.work() / servers * workload.burst(servers),
        }
    }
}

/// What is common to the workloads of an origin.
struct Together {
    open: OpenLoad,
    /// Mean wait at the origin, in seconds.
    wait: f64,
}

impl Predictor {
    /// `workloads` on `origin`. `O(n)`.
    pub fn new(origin: OriginModel, workloads: Vec<WorkloadModel>) -> Predictor {
        let asked = workloads.iter().map(|workload| Asked::of(&origin, workload, 1.0)).collect();
        let is_closed = |at: &usize| matches!(workloads[*at].demand, Demand::Closed { .. });
        Predictor {
            origin,
            asked,
            closed: (0..workloads.len()).filter(is_closed).collect(),
            hit_ratios: workloads.iter().map(|workload| workload.hit_ratio).collect(),
            workloads: workloads.into(),
        }
    }

    /// From now on a cache answers this share of the reads of the workload `at`.
    ///
    /// # Panics
    /// If there is no such workload.
    pub fn set_hit_ratio(&mut self, at: usize, hit_ratio: f64) {
        self.hit_ratios[at] = hit_ratio;
        self.asked[at] = Asked::of(&self.origin, &self.workload(at), 1.0);
    }

    fn workload(&self, at: usize) -> WorkloadModel {
        WorkloadModel { hit_ratio: self.hit_ratios[at], ..self.workloads[at] }
    }

    fn workloads(&self) -> impl Iterator<Item = WorkloadModel> {
        (0..self.workloads.len()).map(|at| self.workload(at))
    }

    /// What all workloads get, as [`predict`] says.
    pub fn all(&self) -> OriginPrediction {
        let together = self.together();
        let predictions: Vec<Prediction> =
            self.workloads().map(|workload| self.prediction(&workload, &together)).collect();
        let closed = (self.closed.iter())
            .map(|&at| predictions[at].rate * self.workload(at).work() / self.origin.servers.max(1.0));
        let utilisation = together.open.utilisation + closed.sum::<f64>();
        OriginPrediction { wait: together.wait, utilisation, workloads: predictions }
    }

    /// What the workloads `at` get, in that order. Two additions for each of the others, where all are open and can be served.
    ///
    /// # Panics
    /// If there is none of them.
    pub fn some<'a>(&'a self, at: &'a [usize]) -> impl Iterator<Item = Prediction> + 'a {
        let together = self.together();
        at.iter().map(move |&at| self.prediction(&self.workload(at), &together))
    }

    /// What the open ones ask for.
    pub(super) fn open_load(&self) -> OpenLoad {
        let sum = |(busy, queued), asked: Asked| (busy + asked.busy, queued + asked.queued);
        let (utilisation, queued) = self.asked.iter().copied().fold((0.0, 0.0), sum);
        if utilisation <= OPEN_UTILISATION_MAX {
            return OpenLoad { utilisation, scale: 1.0, busy: utilisation, queued };
        }
        let scale = OPEN_UTILISATION_MAX / utilisation;
        let served = self.workloads().map(|workload| Asked::of(&self.origin, &workload, scale));
        let (busy, queued) = served.fold((0.0, 0.0), sum);
        OpenLoad { utilisation, scale, busy, queued }
    }

    fn together(&self) -> Together {
        let (origin, servers) = (&self.origin, self.origin.servers.max(1.0));
        let open = self.open_load();
        let backlog = (open.utilisation - OPEN_UTILISATION_MAX).max(0.0) * BACKLOG_WINDOW_S / 2.0;
        let closed_ones: Vec<(WorkloadModel, f64, f64)> = (self.closed.iter())
            .map(|&at| {
                let workload = self.workload(at);
                (workload, workload.squared_work() * origin.residual(), workload.others() / servers)
            })
            .collect();
        let implied = |wait: f64| {
            let closed = closed_ones.iter().map(|(workload, squared, others)| {
                workload.rate(wait) * others * (workload.work() * wait + squared)
            });
            open.busy * wait + open.queued + closed.sum::<f64>()
        };
        let queue = if closed_ones.is_empty() { open.wait() } else { fixed_point(implied) };
        // Schweitzer's estimate, and service times that vary less than exponential ones, would have closed loops served by
        // more than there is: whoever waits for answers waits until the servers have given them.
        let busy = |wait: f64| {
            let closed =
                closed_ones.iter().map(|(workload, ..)| workload.rate(wait) * workload.work() / servers);
            open.busy + closed.sum::<f64>()
        };
        let wait = least_wait(queue + backlog, busy);
        Together { open, wait }
    }

    fn prediction(&self, workload: &WorkloadModel, together: &Together) -> Prediction {
        let (open, origin) = (&together.open, &self.origin);
        let (_, misses, writes) = workload.shares();
        let origin_share = (misses + writes).max(1e-12);
        let write_service = workload.write_phases() * workload.write_service;
        let service = (misses * workload.read_service + writes * write_service) / origin_share;
        let wait = together.wait + workload.burst(origin.servers.max(1.0));
        let latency = (service + wait).max(LATENCY_MIN_S);
        let busy = open.utilisation.clamp(0.05, OPEN_UTILISATION_MAX);
        // Variance of the wait of an M/M/1 queue relative to its squared mean: (2 - u) / u.
        let model_cv2 = (service * service * origin.service_cv2 + wait * wait * (2.0 - busy) / busy)
            / (latency * latency);
        Prediction {
            rate: match workload.demand {
                Demand::Open { rate } => rate * open.scale,
                Demand::Closed { .. } => workload.rate(wait),
            },
            shares: workload.shares(),
            hit_latency: workload.hit_latency.max(LATENCY_MIN_S),
            miss_latency: workload.read_latency(wait),
            write_latency: workload.write_latency(wait),
            latency_cv2: workload.latency_cv2.unwrap_or(model_cv2).clamp(0.01, 4.0),
            read_bytes: workload.read_bytes,
            write_bytes: workload.write_bytes,
        }
    }
}

/// What open workloads ask of an origin. What does not depend on the wait is summed once.
pub(super) struct OpenLoad {
    /// Share of the servers' time that they ask for.
    pub(super) utilisation: f64,
    /// Which part of that is served, so that queues settle.
    pub(super) scale: f64,
    /// Share of the servers' time that this takes.
    pub(super) busy: f64,
    /// What is under service, as an arrival finds it, and what has come with that, in seconds.
    pub(super) queued: f64,
}

impl OpenLoad {
    /// The mean wait where nobody else asks for anything, in seconds.
    pub(super) fn wait(&self) -> f64 {
        self.queued / (1.0 - self.busy)
    }
}

/// The least wait of at least `from` at which no more than all servers are `busy`, whose share falls as the wait grows.
fn least_wait(from: f64, busy: impl Fn(f64) -> f64) -> f64 {
    if busy(from) <= 1.0 {
        return from;
    }
    let (mut low, mut high) = (from, from.max(LATENCY_MIN_S) * 2.0);
    for _ in 0..60 {
        if busy(high) <= 1.0 {
            break;
        }
        low = high;
        high *= 2.0;
    }
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if busy(middle) > 1.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// The wait at which `implied(wait) = wait`; `implied` is concave and rises less than its argument in the end.
fn fixed_point(implied: impl Fn(f64) -> f64) -> f64 {
    let mut high = implied(0.0).max(1e-9);
    let mut low = 0.0;
    for _ in 0..60 {
        if implied(high) <= high {
            break;
        }
        low = high;
        high *= 2.0;
    }
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if implied(middle) > middle {
            low = middle;
        } else {
            high = middle;
        }
        if high - low <= high * 1e-7 {
            break;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::super::tests::reader;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Hit ratios that are changed one by one give what a prediction from nothing gives, to the last bit: below and beyond what can be served.
        #[test]
        fn a_predictor_that_is_changed_says_what_a_new_one_says(
            loads in prop::collection::vec((1.0f64..400.0, 0.0f64..1.0, 0.0f64..1.0, 0u8..4, 1.0f64..9.0), 1..12),
            changes in prop::collection::vec((0usize..12, 0.0f64..1.0), 1..12),
            servers in 1.0f64..12.0,
        ) {
            let origin = OriginModel { servers, service_cv2: 0.3 };
            let mut workloads: Vec<WorkloadModel> = loads
                .iter()
                .map(|&(rate, hit_ratio, read_share, kind, dispersion)| {
                    let demand = match kind {
                        0 => Demand::Closed { outstanding: rate / 40.0 + 1.0, think: 0.001 },
                        _ => Demand::Open { rate },
                    };
                    WorkloadModel { read_share, dispersion, ..reader(demand, hit_ratio) }
                })
                .collect();
            let mut predictor = Predictor::new(origin, workloads.clone());
            for (at, hit_ratio) in changes {
                let at = at % workloads.len();
                workloads[at].hit_ratio = hit_ratio;
                predictor.set_hit_ratio(at, hit_ratio);
                let anew = predict(&origin, &workloads);
                prop_assert_eq!(&predictor.all(), &anew);
                let (places, last) = ([at, workloads.len() - 1], *anew.workloads.last().unwrap());
                prop_assert_eq!(predictor.some(&places).collect::<Vec<_>>(), [anew.workloads[at], last]);
            }
        }
    }
}
