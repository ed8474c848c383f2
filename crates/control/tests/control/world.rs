//! The world that the story is told of: one origin, an application and a reader, and the controller that looks at them every second. It knows nothing
//! of how the controller decides.

use forebay_control::{
    Action, CacheObservation, ControlConfig, Controller, Decision, DecisionKind, Fact, FactValue, HostId,
    HostSpec, Objective, Observation, Operations, OriginId, OriginSpec, VolumeId, VolumeObservation,
    VolumeSpec, ZoneHeat, ZoneRange,
};
use forebay_locality::{CurvePoint, MissRatioCurve};
use forebay_units::{BlockRange, BlockSize, Bytes, Nanos};
use forebay_workload::{LatencyHistogram, Random, exponential, random};
use std::sync::Arc;

const SERVICE_S: f64 = 0.007;
const SERVERS: usize = 4;
pub(crate) const HIT_S: f64 = 0.0001;
pub(crate) const APPLICATION: VolumeId = VolumeId(1);
pub(crate) const READER: VolumeId = VolumeId(2);
pub(crate) const BOUND_S: f64 = 0.012;

/// Mean latency of M/M/c; beyond 98 % of utilisation as at 98 %, plus a second per hundredth.
fn erlang_latency(rate: f64) -> f64 {
    let offered = rate * SERVICE_S;
    let limit = SERVERS as f64 * 0.98;
    let (load, beyond) = if offered > limit { (limit, offered - limit) } else { (offered, 0.0) };
    let mut blocking = 1.0; // Erlang B by recursion, then C.
    for servers in 1..=SERVERS {
        blocking = load * blocking / (servers as f64 + load * blocking);
    }
    let busy = load / SERVERS as f64;
    let waiting = blocking / (1.0 - busy * (1.0 - blocking));
    SERVICE_S + waiting * SERVICE_S / (SERVERS as f64 - load) + beyond
}

/// Misses fall with the square root of the size down to a tenth at 20,000 blocks.
pub(crate) fn application_curve() -> MissRatioCurve {
    let point =
        |at: u64| CurvePoint { size_blocks: at * 200, miss_ratio: 1.0 - 0.9 * (at as f64 / 100.0).sqrt() };
    MissRatioCurve::new((1..=100).map(point).collect())
}

pub(crate) struct Side {
    id: VolumeId,
    pub(crate) rate: f64,
    pub(crate) curve: Arc<MissRatioCurve>,
    /// What is told of it, where that is not so.
    pub(crate) told: Option<Arc<MissRatioCurve>>,
    pub(crate) quota: u64,
    pub(crate) used: u64,
    loading: Vec<u64>,
    /// Where its cache was last ordered to be.
    pub(crate) host: Option<HostId>,
    /// When what was last ordered comes into force, where that takes a while: the size, and the second.
    made: Option<(u64, Nanos)>,
    /// It is to tell what its cache holds, and does so where `World::tells` says so.
    lists: bool,
    /// What was last to be loaded, and how fast.
    pub(crate) ordered: Option<(Vec<ZoneRange>, u64)>,
}

pub(crate) struct World {
    random: Random,
    at: Nanos,
    pub(crate) sides: [Side; 2],
    pub(crate) controller: Controller,
    hosts: Vec<HostSpec>,
    pub(crate) tells: bool,
    /// Whether anything is heard of the volumes.
    pub(crate) is_heard: bool,
    /// Blocks that enter a cache by misses within a second at most.
    pub(crate) fill_max: u64,
    /// How long it takes to make a cache where there is none.
    pub(crate) makes_in: Nanos,
    /// What was decided, in words, with its kind.
    pub(crate) told: Vec<(DecisionKind, String)>,
    /// What the last peak that was foreseen had needed, in blocks.
    pub(crate) foreseen: Option<u64>,
    /// What was told of the last peak that did not come.
    pub(crate) absent: Vec<Fact>,
}

impl World {
    pub(crate) fn new(seed: u64, capacity: Bytes) -> World {
        World::with(seed, capacity, ControlConfig::default())
    }

    pub(crate) fn with(seed: u64, capacity: Bytes, config: ControlConfig) -> World {
        World::on(seed, capacity, config, Vec::new())
    }

    pub(crate) fn on(seed: u64, capacity: Bytes, config: ControlConfig, hosts: Vec<HostSpec>) -> World {
        World::promising(&[APPLICATION], seed, capacity, config, hosts)
    }

    /// With an objective of each of `promised`.
    pub(crate) fn promising(
        promised: &[VolumeId],
        seed: u64,
        capacity: Bytes,
        config: ControlConfig,
        hosts: Vec<HostSpec>,
    ) -> World {
        let flat = MissRatioCurve::new(vec![CurvePoint { size_blocks: 100_000, miss_ratio: 0.97 }]);
        let side = |id, rate, curve: MissRatioCurve| Side {
            id,
            rate,
            curve: Arc::new(curve),
            told: None,
            quota: 0,
            used: 0,
            loading: Vec::new(),
            host: None,
            made: None,
            lists: false,
            ordered: None,
        };
        let origin = OriginSpec {
            id: OriginId(1),
            name: "group".to_owned(),
            servers: Some(SERVERS as f64),
            service_cv2: Some(1.0),
            service: None,
        };
        let mut controller = Controller::new(config, capacity, hosts.clone(), vec![origin]).unwrap();
        for (id, name) in [(APPLICATION, "application"), (READER, "reader")] {
            let bound =
                Objective::mean_latency(Nanos::from_secs_f64(BOUND_S), Operations::All).over(Nanos::secs(1));
            let spec = VolumeSpec {
                id,
                name: name.to_owned(),
                size: Bytes::gib(1),
                block_size: BlockSize::DEFAULT,
                origin: OriginId(1),
                host: HostId(0),
                objectives: if promised.contains(&id) { vec![bound] } else { Vec::new() },
                may_cache: true,
                minimum: Bytes::ZERO,
                maximum: None,
            };
            controller.register(spec).unwrap();
        }
        let sides = [side(APPLICATION, 300.0, application_curve()), side(READER, 80.0, flat)];
        World {
            random: random(seed),
            at: Nanos::ZERO,
            sides,
            controller,
            hosts,
            tells: false,
            is_heard: true,
            fill_max: u64::MAX,
            makes_in: Nanos::ZERO,
            told: Vec::new(),
            foreseen: None,
            absent: Vec::new(),
        }
    }

    /// One second of the world and one step of the controller. Returns (mean latency of the application, decisions).
    pub(crate) fn second(&mut self) -> (f64, Vec<DecisionKind>) {
        let interval = Nanos::secs(1);
        self.at += interval;
        for side in &mut self.sides {
            if let Some((blocks, _)) = side.made.take_if(|(_, at)| *at <= self.at) {
                side.quota = blocks;
            }
        }
        let miss_ratio: Vec<f64> =
            self.sides.iter().map(|side| side.curve.miss_ratio_at(side.used)).collect();
        let origin_rate: f64 = self.sides.iter().zip(&miss_ratio).map(|(side, miss)| side.rate * miss).sum();
        let latency = erlang_latency(origin_rate);
        let mut volumes = Vec::new();
        let mut application = 0.0;
        for (side, miss) in self.sides.iter_mut().zip(&miss_ratio) {
            let (mut hits, mut misses) = (LatencyHistogram::new(), LatencyHistogram::new());
            let count = (side.rate * (0.97 + 0.03 * exponential(1.0, &mut self.random))) as u64;
            for _ in 0..count {
                if exponential(1.0, &mut self.random) < -(1.0 - miss).max(1e-12).ln() {
                    misses.record(Nanos::from_secs_f64(exponential(latency, &mut self.random)));
                } else {
                    hits.record(Nanos::from_secs_f64(HIT_S));
                }
            }
            let filled = misses.count().min(self.fill_max) + side.loading.pop().unwrap_or(0);
            side.used = (side.used + filled).min(side.quota);
            if side.id == APPLICATION && count > 0 {
                application = (hits.sum_ns() + misses.sum_ns()) as f64 / 1e9 / count as f64;
            }
            let mut observed = VolumeObservation::idle(side.id, interval);
            observed.arrivals = count;
            observed.bytes_read = Bytes(count * 4_096);
            observed.hits = hits.snapshot();
            observed.misses = misses.snapshot();
            observed.outstanding_max = 40;
            observed.idle = Nanos::millis(100);
            observed.cache = CacheObservation {
                quota_blocks: side.quota,
                used_blocks: side.used,
                filled_blocks: filled,
                ..Default::default()
            };
            observed.curve = Some(Arc::clone(side.told.as_ref().unwrap_or(&side.curve)));
            observed.curve_accesses = 10_000;
            observed.working_set_blocks = 20_000;
            // The hottest blocks lie together, in the first zones.
            let missed = |zone: u64| 10_000.0 * side.curve.miss_ratio_at(zone * 256);
            let accesses = |zone: u64| (missed(zone) - missed(zone + 1)).round() as u64;
            observed.zones = (0..20).map(|zone| ZoneHeat { zone, accesses: accesses(zone) }).collect();
            observed.zone_accesses = 10_000;
            observed.zone_blocks = 256;
            // Every third block.
            let held = (0..side.used).map(|at| BlockRange { first: 3 * at, end: 3 * at + 1 });
            observed.resident =
                (std::mem::take(&mut side.lists) && self.tells).then(|| held.collect::<Vec<_>>().into());
            volumes.push(observed);
        }
        if !self.is_heard {
            volumes.clear();
        }
        let outcome =
            self.controller.step(&Observation { at: self.at, interval, volumes, ..Observation::default() });
        for action in &outcome.actions {
            match action {
                Action::SetQuota { volume, blocks, host } => {
                    let at = self.sides.iter().position(|side| side.id == *volume).unwrap();
                    let Some(host) = self.place(at, *blocks, *host) else { continue };
                    let side = &mut self.sides[at];
                    if side.host.replace(host) != Some(host) {
                        side.used = 0;
                    }
                    if side.quota == 0 && *blocks > 0 && self.makes_in > Nanos::ZERO {
                        let ready = side.made.map_or(self.at + self.makes_in, |(_, ready)| ready);
                        side.made = Some((*blocks, ready));
                        continue;
                    }
                    side.quota = *blocks;
                    side.used = side.used.min(side.quota);
                }
                Action::Prewarm { volume, zones, bytes_per_second } => {
                    let side = self.sides.iter_mut().find(|side| side.id == *volume).unwrap();
                    side.ordered = Some((zones.clone(), *bytes_per_second));
                    let mut left: u64 = zones.iter().map(|zone| zone.blocks).sum();
                    let per_second = (bytes_per_second / 4_096).max(1);
                    side.loading.clear();
                    while left > 0 {
                        side.loading.push(left.min(per_second));
                        left -= left.min(per_second);
                    }
                }
                Action::ListResident { volume } => {
                    self.sides.iter_mut().find(|side| side.id == *volume).unwrap().lists = true;
                }
                _ => {}
            }
        }
        let told = |decision: &Decision| (decision.kind, decision.summary.clone());
        self.told.extend(outcome.decisions.iter().map(told));
        for decision in outcome.decisions.iter().filter(|decision| decision.kind == DecisionKind::PeakAbsent)
        {
            self.absent = decision.facts.clone();
        }
        for decision in
            outcome.decisions.iter().filter(|decision| decision.kind == DecisionKind::PeakForeseen)
        {
            let size = decision.facts.iter().find(|fact| fact.name == "size").unwrap();
            let FactValue::Number(blocks) = size.value else { panic!("{size:?}") };
            self.foreseen = Some(blocks as u64);
        }
        if !self.hosts.is_empty() {
            for at in 0..self.sides.len() {
                let most = self.hosts.iter().map(|host| self.free(at, host)).max().unwrap();
                let host = self.sides[at].host.filter(|_| self.sides[at].quota > 0);
                self.controller.located(self.sides[at].id, host, Bytes(most));
            }
            return (application, outcome.decisions.iter().map(|decision| decision.kind).collect());
        }
        let granted: u64 = self.sides.iter().map(|side| side.quota * 4_096).sum();
        assert!(granted <= self.controller.capacity().get(), "{granted} bytes granted");
        assert_eq!(granted, self.controller.granted().get(), "the controller knows what it ordered");
        (application, outcome.decisions.iter().map(|decision| decision.kind).collect())
    }

    /// What a host has for the cache of one of the two.
    fn free(&self, of: usize, host: &HostSpec) -> u64 {
        let there = |(at, side): &(usize, &Side)| *at != of && side.host == Some(host.id);
        let taken: u64 =
            self.sides.iter().enumerate().filter(there).map(|(_, side)| side.quota * 4_096).sum();
        host.capacity.get() - taken
    }

    /// Where a cache goes: what outgrows its host is made anew on another one, as an appliance is; `None` where there is no room for it.
    fn place(&self, at: usize, blocks: u64, chosen: HostId) -> Option<HostId> {
        if self.hosts.is_empty() {
            return Some(chosen);
        }
        let first = self.sides[at].host.filter(|_| self.sides[at].quota > 0).unwrap_or(chosen);
        let mut hosts: Vec<&HostSpec> = self.hosts.iter().collect();
        hosts.sort_by_key(|host| host.id != first);
        hosts.iter().find(|host| self.free(at, host) >= blocks * 4_096).map(|host| host.id)
    }

    /// What was last told of this kind.
    pub(crate) fn said(&self, kind: DecisionKind) -> &str {
        self.told.iter().rev().find(|(of, _)| *of == kind).map_or("", |(_, summary)| summary)
    }

    /// One second in which the controller is not asked.
    pub(crate) fn unasked_second(&mut self) {
        self.at += Nanos::secs(1);
    }

    pub(crate) fn run(&mut self, seconds: usize) -> Vec<(f64, Vec<DecisionKind>)> {
        (0..seconds).map(|_| self.second()).collect()
    }

    pub(crate) fn quota(&self) -> u64 {
        self.sides[0].quota
    }

    pub(crate) fn rates(&mut self, application: f64, reader: f64) {
        (self.sides[0].rate, self.sides[1].rate) = (application, reader);
    }
}

/// The smallest static size with which the world keeps the bound, a sixth below it: with some 100 exponential
/// misses a second the mean of a window is off by up to that in one window of twenty.
pub(crate) fn hindsight(rate: f64, neighbour: f64) -> u64 {
    let curve = application_curve();
    (0..=100)
        .map(|at| at * 200)
        .find(|&size| {
            let miss = curve.miss_ratio_at(size);
            let latency = erlang_latency(rate * miss + neighbour);
            (1.0 - miss) * HIT_S + miss * latency <= BOUND_S / 1.2
        })
        .unwrap()
}

pub(crate) fn first(run: &[(f64, Vec<DecisionKind>)], kind: DecisionKind) -> Option<usize> {
    run.iter().position(|(_, kinds)| kinds.contains(&kind))
}
