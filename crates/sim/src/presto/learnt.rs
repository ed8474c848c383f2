//! Forebay's own way to prewarm: what the source learnt, turned into an order and into what to follow.
//!
//! Everything that decides is `control::prewarm`; here it is applied to PRESTO's objects. A zone is an extent.

use super::destination::{Following, Loading, Price, Run, SpanWeights, serve};
use super::load::Load;
use super::metrics::Metric;
use super::objects::{HM1_BYTES, HM3_BYTES, Object};
use super::pools::Pools;
use forebay_control::prewarm::{Benefit, Neighbours, Place, VisitRules, Visits};

/// What the source knew of its workloads.
#[derive(Clone, Debug)]
pub struct Learnt {
    visits: Visits,
    neighbours: Vec<Neighbours>,
    at_millis: u32,
}

impl Learnt {
    /// Nothing, of the volumes of `load`.
    pub fn new(load: &Load) -> Learnt {
        let volumes = load.objects.volumes().count();
        Learnt {
            visits: Visits::new(load.objects.extents() as usize, VisitRules::default()),
            neighbours: vec![Neighbours::new(); volumes],
            at_millis: 0,
        }
    }

    /// Learns from the accesses `from..to`, which come next.
    pub fn learn(&mut self, load: &Load, from: usize, to: usize) {
        for access in &load.accesses[from..to] {
            let visit = self.visits.access(access.extent as usize, access.at_millis);
            let place = Place { zone: u64::from(access.extent), part: access.part };
            self.neighbours[usize::from(access.volume)].learn(place, access.at_millis, visit);
            self.at_millis = access.at_millis;
        }
    }

    /// The order of loading for `goal`: by expected worth per byte. For [`Metric::Both`], the objects of an extent together.
    pub fn order(&self, load: &Load, goal: Goal) -> Vec<Object> {
        let benefit = Benefit::new(&goal.weights());
        let mut keyed = Vec::new();
        for extents in load.objects.volumes() {
            let rates = self.visits.rates(extents.start as usize..extents.end as usize, self.at_millis);
            for (extent, rate) in extents.zip(rates) {
                let worth = benefit.at(rate);
                if worth <= 0.0 {
                    continue;
                }
                // Worth per byte, highest first; at equal worth the smaller object, then the smaller number.
                let key = |worth: f64, bytes: u64| !((worth / bytes as f64).to_bits());
                let (hm1, hm3) = (load.objects.hm1(extent), load.objects.hm3(extent));
                match goal.metric {
                    Metric::Both => {
                        let key = key(worth, HM1_BYTES + HM3_BYTES);
                        keyed.push((key, extent, hm1));
                        keyed.push((key, extent, hm3));
                    }
                    metric => {
                        keyed.push((key(worth * metric.worth(HM1_BYTES), HM1_BYTES), extent, hm1));
                        keyed.push((key(worth * metric.worth(HM3_BYTES), HM3_BYTES), extent, hm3));
                    }
                }
            }
        }
        keyed.sort_unstable();
        keyed.into_iter().map(|(_, _, object)| object).collect()
    }
}

/// What prewarming is to achieve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// What counts as a hit.
    pub metric: Metric,
    /// What an access counts by its second.
    pub span: SpanWeights,
    /// Over how many seconds after the failure.
    pub horizon: u32,
}

impl Goal {
    /// What each second's accesses count.
    pub fn weights(&self) -> Vec<f64> {
        self.span.of_seconds(self.horizon)
    }

    /// How good `run` was, 0 to 1.
    pub fn reached(&self, run: &Run) -> f64 {
        let seconds = &run.seconds[..(self.horizon as usize).min(run.seconds.len())];
        match self.span {
            SpanWeights::Window => self.metric.window(seconds),
            SpanWeights::Cumulative => {
                let cumulative = self.metric.cumulative(seconds);
                cumulative.iter().sum::<f64>() / cumulative.len().max(1) as f64
            }
        }
    }
}

/// How the limit is used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// The share of the limit that is for the order; what it does not use is for following.
    pub order_share: f64,
    /// [`Price::chance`] for following.
    pub chance: f64,
    /// The share of the limit that is used at all.
    pub limit_share: f64,
}

/// What a rehearsal tries (ours).
const ORDER_SHARES: [f64; 6] = [0.1, 0.2, 0.4, 0.6, 0.8, 1.0];
const CHANCES: [f64; 9] = [0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6];
/// Chances that no HM3 object has: HM1 objects alone are followed, which cost a twentieth.
const CHANCES_HM1: [f64; 2] = [1.2, 2.5];
const LIMIT_SHARES: [f64; 5] = [0.0, 1.0 / 256.0, 1.0 / 64.0, 1.0 / 16.0, 0.25];
/// How much of the hit ratio is given up to load less (ours).
const INDIFFERENCE: f64 = 0.002;

/// The better of `best`, with what it reached, and `plan`; at a tie the former.
fn better(best: (f64, Plan), plan: Plan, reach: impl Fn(Plan) -> f64) -> (f64, Plan) {
    if plan == best.1 {
        return best;
    }
    let reached = reach(plan);
    if reached > best.0 { (reached, plan) } else { best }
}

/// What is known at a failure, and rehearsed before.
#[derive(Clone, Debug)]
pub struct Rehearsal<'a> {
    load: &'a Load,
    capacity: u64,
    /// Where the failure of the rehearsal is, what was known then, and the order that follows.
    position: usize,
    known: Learnt,
    /// What is known at the failure.
    learnt: Learnt,
}

impl<'a> Rehearsal<'a> {
    /// Learns from all that comes before `failure`, and prepares to rehearse it with the last `horizon` seconds of that.
    pub fn new(load: &'a Load, failure: usize, capacity: u64, horizon: u32) -> Rehearsal<'a> {
        let failed_at = load.accesses.get(failure).map_or(0, |access| access.at_millis);
        let position = load.accesses[..failure]
            .partition_point(|access| access.at_millis + horizon.saturating_mul(1_000) < failed_at);
        let mut known = Learnt::new(load);
        known.learn(load, 0, position);
        let mut learnt = known.clone();
        learnt.learn(load, position, failure);
        Rehearsal { load, capacity, position, known, learnt }
    }

    /// What is known at the failure.
    pub fn learnt(&self) -> &Learnt {
        &self.learnt
    }

    /// The plan that would have reached most, had the failure been a horizon earlier: the best share for the order, then the best chance,
    /// then both once more; then the least of the limit that does nearly as well. Knows nothing of what comes after the failure.
    pub fn plan(&self, goal: Goal, how: Loading) -> Plan {
        let order = self.known.order(self.load, goal);
        let reach = |plan: Plan| {
            let pools = Pools::new(self.load.objects.clone(), self.capacity);
            goal.reached(&plan.run(
                self.load,
                self.position,
                goal.horizon,
                pools,
                &self.known,
                &order,
                goal,
                how,
            ))
        };
        // From `plan` on, one after the other the best share and the best chance, twice.
        let climb = |plan: Plan, chances: &[f64]| {
            let mut best = (reach(plan), plan);
            for _ in 0..2 {
                let before = best.1;
                for order_share in ORDER_SHARES {
                    best = better(best, Plan { order_share, ..best.1 }, reach);
                }
                for &chance in chances {
                    best = better(best, Plan { chance, ..best.1 }, reach);
                }
                if best.1 == before {
                    break;
                }
            }
            best
        };
        let mut best = climb(Plan { order_share: 0.4, chance: 0.3, limit_share: 1.0 }, &CHANCES);
        if goal.metric != Metric::Both {
            let alone =
                climb(Plan { order_share: 0.8, chance: CHANCES_HM1[0], limit_share: 1.0 }, &CHANCES_HM1);
            if alone.0 > best.0 {
                best = alone;
            }
        }
        let (reached, best) = best;
        for limit_share in LIMIT_SHARES {
            let less = Plan { limit_share, ..best };
            if reach(less) >= reached - INDIFFERENCE {
                return less;
            }
        }
        best
    }

    /// Rehearses, and runs what came out from the failure on for `seconds`.
    pub fn run(&self, failure: usize, seconds: u32, goal: Goal, how: Loading) -> (Plan, Run) {
        let plan = self.plan(goal, how);
        let order = self.learnt.order(self.load, goal);
        let pools = Pools::new(self.load.objects.clone(), self.capacity);
        (plan, plan.run(self.load, failure, seconds, pools, &self.learnt, &order, goal, how))
    }
}

impl Plan {
    #[expect(clippy::too_many_arguments, reason = "a run is what it is of, and all of it is data")]
    fn run(
        self,
        load: &Load,
        failure: usize,
        seconds: u32,
        pools: Pools,
        learnt: &Learnt,
        order: &[Object],
        goal: Goal,
        how: Loading,
    ) -> Run {
        let limit = (how.limit as f64 * self.limit_share) as u64;
        let mut neighbours = learnt.neighbours.clone();
        neighbours.iter_mut().for_each(Neighbours::forget_place);
        let following = Following {
            neighbours,
            order_bytes: (limit as f64 * self.order_share) as u64,
            price: Price { metric: goal.metric, chance: self.chance },
        };
        serve(load, failure, seconds, pools, order, Loading { limit, ..how }, Some(following))
    }
}
