//! What every workload on an origin gets: the one waiting time of the formula of [`super`], and what follows from it for each.

use super::latency::Queued;
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

/// As [`predict`], with a wait of its own for each closed workload: it finds all of what the others have at the origin, and of its own what is left without the request that arrives. For whoever
/// knows what requests take of the servers; [`super::infer`] finds that out under one wait for all, and who goes by it predicts so. Open and closed ones beside each other are exact for
/// exponential service; of several closed ones of the same service and no thinking, Schweitzer's estimate is. The same cost.
pub fn predict_each(origin: &OriginModel, workloads: &[WorkloadModel]) -> OriginPrediction {
    Predictor { waits: Waits::Own, ..Predictor::new(*origin, workloads.to_vec()) }.all()
}

/// What a closed workload waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Waits {
    /// As everybody: what an open one finds, less of what each closed one has there the share of one request.
    Common,
    /// What is there without its own request that arrives.
    Own,
}

/// [`predict`] for whoever asks again and again, with other hit ratios of few workloads, what few of them get: what a workload asks of the
/// origin is worked out when that changes. A clone copies three numbers of each.
#[derive(Clone, Debug)]
pub struct Predictor {
    origin: OriginModel,
    waits: Waits,
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
    /// Mean wait of an open workload's requests at the origin, in seconds.
    wait: f64,
}

/// What a closed workload asks of the origin, by how long it waits there.
struct Loop {
    workload: WorkloadModel,
    /// Seconds of a server for its average request, over the servers.
    work: f64,
    /// What an arrival finds under service of such a request, over the servers, in seconds.
    residual: f64,
}

impl Loop {
    fn of(origin: &OriginModel, workload: WorkloadModel) -> Loop {
        let servers = origin.servers.max(1.0);
        Loop {
            work: workload.work() / servers,
            residual: workload.squared_work() * origin.residual() / servers,
            workload,
        }
    }

    /// What is there of it, in seconds of a server, where its requests wait `wait` seconds.
    fn queued(&self, wait: f64) -> f64 {
        self.workload.rate(wait) * (self.work * wait + self.residual)
    }

    /// How long its requests wait where an open workload's wait `total`: as long, less a request's share of what is there of it, and of what open ones have there because of that,
    /// `w + (work * w + residual) / (1 - open) / (fixed + stretched * w) = total`, the last denominator being a client's cycle.
    fn own_wait(&self, total: f64, open: &OpenLoad) -> f64 {
        let Demand::Closed { outstanding, think } = self.workload.demand else { return total };
        let fixed = self.workload.cycle(think, 0.0);
        let stretched = self.workload.cycle(think, 1.0) - fixed;
        // Less than one request is there at all only at times.
        let share = outstanding.min(1.0) / (1.0 - open.busy);
        let (work, residual) = (self.work * share, self.residual * share);
        let (linear, constant) = (fixed + work - total * stretched, residual - total * fixed);
        if constant >= 0.0 {
            0.0
        } else if stretched < 1e-12 {
            -constant / (fixed + work)
        } else {
            // The positive root, without the difference of what is nearly equal.
            let root = (linear * linear - 4.0 * stretched * constant).sqrt();
            if linear >= 0.0 {
                -2.0 * constant / (linear + root)
            } else {
                (root - linear) / (2.0 * stretched)
            }
        }
    }
}

impl Predictor {
    /// `workloads` on `origin`. `O(n)`.
    pub fn new(origin: OriginModel, workloads: Vec<WorkloadModel>) -> Predictor {
        let asked = workloads.iter().map(|workload| Asked::of(&origin, workload, 1.0)).collect();
        let is_closed = |at: &usize| matches!(workloads[*at].demand, Demand::Closed { .. });
        Predictor {
            origin,
            waits: Waits::Common,
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
        let open = self.open_load();
        let backlog = (open.utilisation - OPEN_UTILISATION_MAX).max(0.0) * BACKLOG_WINDOW_S / 2.0;
        let loops: Vec<Loop> =
            self.closed.iter().map(|&at| Loop::of(&self.origin, self.workload(at))).collect();
        let implied = |wait: f64| {
            let closed = loops.iter().map(|of| match self.waits {
                Waits::Common => of.workload.others() * of.queued(wait),
                Waits::Own => of.queued(self.wait_of(of, wait, &open)),
            });
            open.busy * wait + open.queued + closed.sum::<f64>()
        };
        let queue = if loops.is_empty() { open.wait() } else { fixed_point(implied) };
        // Schweitzer's estimate, and service times that vary less than exponential ones, would have closed loops served by
        // more than there is: whoever waits for answers waits until the servers have given them.
        let busy = |wait: f64| {
            let closed = loops.iter().map(|of| of.workload.rate(self.wait_of(of, wait, &open)) * of.work);
            open.busy + closed.sum::<f64>()
        };
        let wait = least_wait(queue + backlog, busy);
        Together { open, wait }
    }

    /// How long the requests of a loop wait where an open workload's wait `total`.
    fn wait_of(&self, of: &Loop, total: f64, open: &OpenLoad) -> f64 {
        match self.waits {
            Waits::Common => total,
            Waits::Own => of.own_wait(total, open),
        }
    }

    fn prediction(&self, workload: &WorkloadModel, together: &Together) -> Prediction {
        let (open, origin) = (&together.open, &self.origin);
        let (_, misses, writes) = workload.shares();
        let origin_share = (misses + writes).max(1e-12);
        let write_service = workload.write_phases() * workload.write_service;
        let service = (misses * workload.read_service + writes * write_service) / origin_share;
        let wait = match workload.demand {
            Demand::Open { .. } => together.wait + workload.burst(origin.servers.max(1.0)),
            Demand::Closed { .. } => self.wait_of(&Loop::of(origin, *workload), together.wait, open),
        };
        let latency = (service + wait).max(LATENCY_MIN_S);
        let busy = open.utilisation.clamp(0.05, OPEN_UTILISATION_MAX);
        // Variance of the wait of an M/M/1 queue relative to its squared mean: (2 - u) / u.
        let model_cv2 = (service * service * origin.service_cv2 + wait * wait * (2.0 - busy) / busy)
            / (latency * latency);
        // Where services are inferred, what they are at least is not known; and of a loop not how many of its requests find a server idle.
        let is_open = matches!(workload.demand, Demand::Open { .. });
        let is_queue_known = self.waits == Waits::Own && workload.latency_cv2.is_none() && is_open;
        let queued = |served: f64| Queued { served, service_cv2: origin.service_cv2, waiting: busy };
        Prediction {
            queued: is_queue_known.then(|| {
                [workload.read_service * workload.read_stretch, write_service * workload.write_stretch]
                    .map(queued)
            }),
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
    use super::super::tests::{near, reader};
    use super::*;
    use proptest::prelude::*;

    fn looped(outstanding: f64) -> WorkloadModel {
        reader(Demand::Closed { outstanding, think: 0.0 }, 0.0)
    }

    /// Products of independent queues (Baskett, Chandy, Muntz and Palacios, JACM 22(2), 1975): exponential service of 10 ms.
    #[test]
    fn closed_workloads_beside_others_find_all_of_those() {
        let on = |servers, loads: &[WorkloadModel]| -> Vec<f64> {
            let origin = OriginModel { servers, service_cv2: 1.0 };
            predict_each(&origin, loads).workloads.iter().map(|gets| gets.miss_latency).collect()
        };
        // Loops of the same service are one: 10 * (1 + (N - 1) / M) ms, N of them all on M queues.
        for (servers, counts) in [(2.0, [1.0, 1.0]), (2.0, [3.0, 2.0]), (4.0, [8.0, 8.0]), (1.0, [1.0, 7.0])]
        {
            let expected = 0.010 * (1.0 + (counts[0] + counts[1] - 1.0) / servers);
            let found = on(servers, &counts.map(looped));
            found.iter().for_each(|&found| near(found, expected));
        }
        // Beside an open one of utilisation u, loops are served 1 - u as fast, and what is open finds all of them: S * (1 + N) / (1 - u).
        for (count, rate) in [(1.0, 30.0), (3.0, 70.0), (5.0, 10.0)] {
            let left = 1.0 - rate * 0.010;
            let found = on(1.0, &[looped(count), reader(Demand::Open { rate }, 0.0)]);
            near(found[0], 0.010 * count / left);
            near(found[1], 0.010 * (1.0 + count) / left);
        }
    }

    #[test]
    fn one_closed_workload_waits_as_it_does_by_one_wait_for_all() {
        for outstanding in [0.5, 1.0, 4.0, 64.0] {
            for servers in [1.0, 4.0] {
                let origin = OriginModel { servers, service_cv2: 0.3 };
                for load in [looped(outstanding), WorkloadModel { hit_ratio: 0.7, ..looped(outstanding) }] {
                    let (own, common) = (predict_each(&origin, &[load]), predict(&origin, &[load]));
                    near(own.workloads[0].miss_latency, common.workloads[0].miss_latency);
                    near(own.utilisation, common.utilisation);
                }
            }
        }
    }

    proptest! {
        /// No more is served than there is, and nobody's load makes another's wait shorter.
        #[test]
        fn own_waits_are_consistent(
            loads in prop::collection::vec((1.0f64..200.0, 0.0f64..0.95, 0.0f64..1.0, any::<bool>(), 0.0f64..0.02), 1..6),
            servers in 1.0f64..12.0,
            service_cv2 in 0.0f64..2.0,
        ) {
            let origin = OriginModel { servers, service_cv2 };
            let workloads: Vec<WorkloadModel> = loads
                .iter()
                .map(|&(rate, hit_ratio, read_share, is_closed, think)| {
                    let demand = if is_closed { Demand::Closed { outstanding: rate / 20.0, think } } else { Demand::Open { rate } };
                    WorkloadModel { read_share, ..reader(demand, hit_ratio) }
                })
                .collect();
            let all = predict_each(&origin, &workloads);
            let closed: f64 = (workloads.iter().zip(&all.workloads))
                .filter(|(load, _)| matches!(load.demand, Demand::Closed { .. }))
                .map(|(load, gets)| gets.rate * load.work() / servers)
                .sum();
            prop_assert!(closed <= 1.0 + 1e-6, "{closed}");
            for at in 0..workloads.len() {
                let mut fewer = workloads.clone();
                fewer.remove(at);
                for (with, without) in all.workloads.iter().enumerate().filter(|(of, _)| *of != at).map(|(_, gets)| gets).zip(&predict_each(&origin, &fewer).workloads) {
                    prop_assert!(with.miss_latency >= without.miss_latency * (1.0 - 1e-6), "{with:?} {without:?}");
                }
            }
        }

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
