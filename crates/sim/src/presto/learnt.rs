//! Forebay's own way to prewarm: what the source learnt, turned into an order and into what to follow.
//!
//! Everything that decides is `control::prewarm`; here it is applied to PRESTO's objects. A zone is an extent.

use super::destination::{CHANCE_MIN, Following, Loading, Run, SpanWeights, serve};
use super::load::Load;
use super::metrics::Metric;
use super::objects::{HM1_BYTES, HM3_BYTES, Object};
use super::pools::Pools;
use forebay_control::prewarm::{Foretold, Neighbours, Outlook, Place, RateClass, Sight, VisitRules, Visits};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// What the source knew of its workloads.
#[derive(Clone, Debug)]
pub struct Learnt {
    visits: Visits,
    /// By volume.
    neighbours: Vec<Neighbours>,
    foretold: Vec<Foretold>,
    at_millis: u32,
}

impl Learnt {
    /// Nothing, of the volumes of `load`.
    pub fn new(load: &Load) -> Learnt {
        let foretold: Vec<_> = load.objects.volumes().map(|extents| Foretold::new(extents.len())).collect();
        Learnt {
            visits: Visits::new(load.objects.extents() as usize, VisitRules::default()),
            neighbours: vec![Neighbours::new(); foretold.len()],
            foretold,
            at_millis: 0,
        }
    }

    /// Learns from the accesses `from..to`, which come next.
    pub fn learn(&mut self, load: &Load, from: usize, to: usize) {
        let starts: Vec<u32> = load.objects.volumes().map(|extents| extents.start).collect();
        let mut chances = Vec::new();
        for access in &load.accesses[from..to] {
            let (volume, at) = (usize::from(access.volume), access.at_millis);
            let visit = self.visits.access(access.extent as usize, at);
            let place = Place { zone: u64::from(access.extent), part: access.part };
            let (neighbours, foretold) = (&mut self.neighbours[volume], &mut self.foretold[volume]);
            neighbours.learn(place, at, visit);
            if visit {
                foretold.visit((access.extent - starts[volume]) as usize, at);
            }
            neighbours.foretell(CHANCE_MIN, &mut chances);
            for chance in &chances {
                if let Some(zone) = chance.zone.checked_sub(u64::from(starts[volume])) {
                    foretold.tell(zone as usize, f64::from(chance.chance), at);
                }
            }
            self.at_millis = at;
        }
    }

    /// How often each extent is visited, per second.
    pub fn rates(&self, load: &Load) -> Arc<[f64]> {
        let of = |extents: std::ops::Range<u32>| {
            self.visits.rates(extents.start as usize..extents.end as usize, self.at_millis)
        };
        load.objects.volumes().flat_map(of).collect()
    }

    /// What loading HM1 and HM3 objects of each volume is worth, where an HM3 object must be worth `price`.
    pub fn outlooks(&self, goal: Goal, price: f64, sight: Sight) -> Vec<[Outlook; 2]> {
        let weights = goal.weights();
        let prices = goal.metric.prices(price);
        let pair = |foretold| prices.map(|price| Outlook::new(&weights, foretold, price, sight));
        self.foretold.iter().map(pair).collect()
    }

    /// What loading is worth where nothing is followed.
    pub fn outlooks_alone(&self, goal: Goal) -> Vec<[Outlook; 2]> {
        let nothing = Outlook::new(&goal.weights(), &Foretold::new(0), 0.0, Sight::Near);
        vec![[nothing.clone(), nothing]; self.foretold.len()]
    }
}

/// The order of loading for `goal`, from rates of visits: by worth per byte. For [`Metric::Both`], the objects of an extent together.
pub(super) fn order(load: &Load, goal: Goal, rates: &[f64], outlooks: &[[Outlook; 2]]) -> Vec<Object> {
    let mut keyed = Vec::new();
    for (extents, [first, third]) in load.objects.volumes().zip(outlooks) {
        for extent in extents {
            let rate = rates[extent as usize];
            if rate <= 0.0 {
                continue;
            }
            // Worth per byte, highest first; at equal worth the smaller object, then the smaller number.
            let key = |worth: f64, bytes: u64| !((worth / bytes as f64).to_bits());
            let (hm1, hm3) = (load.objects.hm1(extent), load.objects.hm3(extent));
            match goal.metric {
                Metric::Both => {
                    let key = key(third.worth(rate), HM1_BYTES + HM3_BYTES);
                    keyed.push((key, extent, hm1));
                    keyed.push((key, extent, hm3));
                }
                metric => {
                    keyed.push((key(first.worth(rate) * metric.worth(HM1_BYTES), HM1_BYTES), extent, hm1));
                    keyed.push((key(third.worth(rate) * metric.worth(HM3_BYTES), HM3_BYTES), extent, hm3));
                }
            }
        }
    }
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, _, object)| object).collect()
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
    /// What loading an HM3 object, or a pair of objects, must be worth: as the chance of sparing a miss in a second of average weight.
    pub price: f64,
    /// What a chance of being visited is held against.
    pub sight: Sight,
    /// The share of the limit that is used at all.
    pub limit_share: f64,
}

/// What a rehearsal tries (ours).
const ORDER_SHARES: [f64; 7] = [0.05, 0.15, 0.3, 0.45, 0.6, 0.8, 1.0];
/// Where small objects count by themselves, an order takes many of them for little: these alone are tried, as a rehearsal may err by more than others bring.
const ORDER_SHARES_LARGE: [f64; 4] = [0.45, 0.6, 0.8, 1.0];
const PRICES: [f64; 6] = [0.125, 0.25, 0.5, 1.0, 2.0, 4.0];
/// With so many of these shares, the price is then sought around their best by these factors, up and down: it is best where the limit is just used up, whole hotspots come at about one price, and another share
/// needs another price.
const REFINED: usize = 3;
const STEPS: [f64; 5] = [1.41, 1.19, 1.09, 1.04, 1.02];
const LIMIT_SHARES: [f64; 5] = [0.0, 1.0 / 256.0, 1.0 / 64.0, 1.0 / 16.0, 0.25];
/// Extents differ by these factors in the price that they must be worth: whole hotspots are alike, and at one price all of them or none would be loaded.
pub(super) const SHADES: [f64; 3] = [0.94, 1.0, 1.06];
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

    /// The plan that would have reached most, had the failure been a horizon earlier: of each share for the order the best price, roughly, and of the best shares more exactly;
    /// then the least of the limit that does nearly as well. Knows nothing of what comes after the failure.
    pub fn plan(&self, goal: Goal, how: Loading) -> Plan {
        let known = Known::new(self.load, &self.known, goal);
        let prepared: RefCell<BTreeMap<(Sight, u64), Rc<Prepared>>> = RefCell::default();
        let tried: RefCell<Vec<(Plan, f64)>> = RefCell::default();
        let reach = |plan: Plan| {
            if let Some((_, reached)) = tried.borrow().iter().find(|(tried, _)| *tried == plan) {
                return *reached;
            }
            let key = (plan.sight, plan.price.to_bits());
            let prepared = Rc::clone(
                prepared.borrow_mut().entry(key).or_insert_with(|| Rc::new(known.prepare(self.load, plan))),
            );
            let pools = Pools::new(self.load.objects.clone(), self.capacity);
            let reached =
                goal.reached(&plan.run(self.load, self.position, goal.horizon, pools, &prepared, how));
            tried.borrow_mut().push((plan, reached));
            reached
        };
        let climb = |sight: Sight, shares: &[f64]| {
            let best_price = |&order_share: &f64| {
                let plan = |price| Plan { order_share, price, sight, limit_share: 1.0 };
                let first = plan(PRICES[0]);
                PRICES[1..]
                    .iter()
                    .fold((reach(first), first), |best, price| better(best, plan(*price), reach))
            };
            let mut best: Vec<(f64, Plan)> = shares.iter().map(best_price).collect();
            // The best first; of equal ones those with the smaller share.
            best.sort_by(|(a, _), (b, _)| b.total_cmp(a));
            best.truncate(REFINED);
            for best in &mut best {
                for step in STEPS {
                    let around = best.1.price;
                    for price in [around / step, around * step] {
                        *best = better(*best, Plan { price, ..best.1 }, reach);
                    }
                }
            }
            best.into_iter()
                .reduce(|best, other| if other.0 > best.0 { other } else { best })
                .expect("there are shares")
        };
        let shares = if goal.metric == Metric::Both { &ORDER_SHARES[..] } else { &ORDER_SHARES_LARGE[..] };
        let (near, ahead) = (climb(Sight::Near, &ORDER_SHARES), climb(Sight::Ahead, shares));
        let (reached, best) = if ahead.0 > near.0 { ahead } else { near };
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
        let prepared = Known::new(self.load, &self.learnt, goal).prepare(self.load, plan);
        let pools = Pools::new(self.load.objects.clone(), self.capacity);
        (plan, plan.run(self.load, failure, seconds, pools, &prepared, how))
    }
}

/// What was learnt, put in shape for a goal.
struct Known<'a> {
    learnt: &'a Learnt,
    goal: Goal,
    rates: Arc<[f64]>,
    rate_classes: Arc<[RateClass]>,
}

/// What a plan loads in which order, and how it follows; its share for the order left open.
struct Prepared {
    order: Vec<Object>,
    following: Following,
}

impl<'a> Known<'a> {
    fn new(load: &Load, learnt: &'a Learnt, goal: Goal) -> Known<'a> {
        let rates = learnt.rates(load);
        let rate_classes = rates.iter().map(|rate| RateClass::of(*rate)).collect();
        Known { learnt, goal, rates, rate_classes }
    }

    fn prepare(&self, load: &Load, plan: Plan) -> Prepared {
        let outlooks = SHADES.map(|shade| self.learnt.outlooks(self.goal, plan.price * shade, plan.sight));
        let order = order(load, self.goal, &self.rates, &outlooks[SHADES.len() / 2]);
        let mut neighbours = self.learnt.neighbours.clone();
        neighbours.iter_mut().for_each(Neighbours::forget_place);
        let rates = Arc::clone(&self.rate_classes);
        Prepared { order, following: Following { neighbours, order_bytes: 0, outlooks, rates } }
    }
}

impl Plan {
    fn run(
        self,
        load: &Load,
        failure: usize,
        seconds: u32,
        pools: Pools,
        prepared: &Prepared,
        how: Loading,
    ) -> Run {
        let limit = (how.limit as f64 * self.limit_share) as u64;
        let order_bytes = (limit as f64 * self.order_share) as u64;
        let following = Following { order_bytes, ..prepared.following.clone() };
        serve(load, failure, seconds, pools, &prepared.order, Loading { limit, ..how }, Some(following))
    }
}
