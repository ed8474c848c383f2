//! One workload of an origin as the performance model sees it: its curve, what a block of its cache is worth on that, and its objectives.

use super::sample::Sample;
use super::volume::Volume;
use crate::config::ControlConfig;
use crate::feedback::Law;
use crate::inventory::VolumeId;
use crate::objective::{Objective, Target};
use crate::performance::{Demand, Prediction, Service, WorkloadModel};
use crate::sizing::{ExpectedCurve, kept_if_used_twice, without_first_accesses};
use forebay_locality::MissRatioCurve;
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

/// One workload of a [`super::scene::Scene`].
#[derive(Clone, Debug)]
pub(super) struct Party {
    pub(super) id: VolumeId,
    pub(super) recent: Sample,
    /// Scenes that differ otherwise share it.
    curve: Option<Rc<Curve>>,
    /// The blocks ordered now.
    pub(super) blocks: u64,
    /// The blocks cached now.
    used: u64,
    /// How many blocks of the curve's least recently used order one block of the cache is worth, where the cache is warm.
    worth: f64,
    /// Observed hit ratio over that of the curve at that worth.
    correction: f64,
    pub(super) model: WorkloadModel,
    /// Its requests wait for what has piled up, however busy the origin is on the whole.
    pub(super) piles_up: bool,
    /// Every objective with what the model must be multiplied by to agree with what was observed.
    pub(super) objectives: Vec<(Objective, f64)>,
    /// By objective, what was observed in the window that just ended, by what the model says of it; 1 where none did.
    pub(super) levels: Vec<f64>,
    /// What a load like that of now has cost without a cache; infinite where that is not known.
    pub(super) unhelped: f64,
}

/// The curve of a load, and what a law goes by: worked out where somebody asks, which of most loads of an origin nobody does.
#[derive(Clone, Debug)]
struct Curve {
    seen: Arc<MissRatioCurve>,
    accesses: u64,
    law: Law,
    expected: OnceCell<ExpectedCurve>,
}

impl Curve {
    fn new(seen: &Arc<MissRatioCurve>, accesses: u64, law: Law) -> Curve {
        Curve { seen: Arc::clone(seen), accesses, law, expected: OnceCell::new() }
    }

    fn expected(&self) -> &ExpectedCurve {
        self.expected.get_or_init(|| kept_if_used_twice(&without_first_accesses(&self.seen, self.accesses)))
    }

    /// What the law goes by.
    fn get(&self) -> &MissRatioCurve {
        match self.law {
            Law::Plain => &self.seen,
            Law::Model => &self.expected().curve,
        }
    }

    /// Beyond so many blocks it says little.
    fn known_blocks(&self) -> u64 {
        match self.law {
            Law::Plain => u64::MAX,
            Law::Model => self.expected().known_blocks,
        }
    }
}

impl Party {
    /// How far to go from the blocks ordered now towards `wanted` ones: where the curve says little of them, to where it says more, since
    /// the rest will be known later. Where that brings less than half of the hits, or nothing on the way brings any, there is a
    /// cliff, and only all of it helps (ours).
    pub(super) fn known_step(&self, wanted: u64) -> u64 {
        let known = self.curve.as_ref().map_or(0, |curve| curve.known_blocks()).max(1);
        if wanted <= known || 2.0 * self.hit_ratio(known) < self.hit_ratio(wanted) {
            return wanted;
        }
        let step = known.max(self.blocks + self.blocks / UNKNOWN_STEP_PART);
        if self.blocks > 0 && self.is_before_a_cliff(step, wanted) { wanted } else { known }
    }

    /// Whether of the reads that a cache of `wanted` blocks answers more than the present one, the part of the way to `step` blocks answers
    /// far fewer than that part.
    pub(super) fn is_before_a_cliff(&self, step: u64, wanted: u64) -> bool {
        let hits = |blocks: u64| self.hit_ratio(blocks) - self.hit_ratio(self.blocks);
        let part = step.saturating_sub(self.blocks) as f64 / wanted.saturating_sub(self.blocks).max(1) as f64;
        hits(wanted) > CLIFF_HITS && hits(step) < CLIFF_PART * part * hits(wanted)
    }

    /// What a block is worth on the curve.
    pub(super) fn worth(&self) -> f64 {
        self.worth
    }

    /// The blocks cached now.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Whether a curve is known.
    pub(super) fn has_curve(&self) -> bool {
        self.curve.is_some()
    }

    /// The curve that the law goes by; `None` where none is known.
    pub(super) fn curve(&self) -> Option<&MissRatioCurve> {
        self.curve.as_ref().map(|curve| curve.get())
    }

    /// Share of the reads that a warm cache of `blocks` answers.
    pub(super) fn hit_ratio(&self, blocks: u64) -> f64 {
        if blocks == 0 {
            return 0.0;
        }
        let blocks = (blocks as f64 * self.worth) as u64;
        let curve = self.curve().map_or(0.0, |curve| 1.0 - curve.miss_ratio_at(blocks));
        (curve * self.correction).clamp(0.0, 1.0)
    }

    /// How far the worst of its objectives is beyond its bound; negative infinity without objectives.
    pub(super) fn worst(&self, prediction: &Prediction) -> f64 {
        let each = self.objectives.iter();
        let excess = each.map(|(objective, factor)| self.excess(objective, *factor, prediction));
        excess.fold(f64::NEG_INFINITY, f64::max)
    }

    pub(super) fn excess(&self, objective: &Objective, factor: f64, prediction: &Prediction) -> f64 {
        let value = prediction.value(objective) * factor;
        let floor = !matches!(objective.target, Target::Latency { .. });
        if let (true, Demand::Open { rate }) = (floor, self.model.demand) {
            // A floor under more than is asked for is kept as long as everything that is asked for is served.
            let asked = objective.bound().min(value * rate / prediction.rate.max(1e-9));
            let excess = asked / value.max(1e-9) - 1.0;
            return if excess <= 1e-6 { -1.0 } else { excess };
        }
        objective.excess(value)
    }
}

/// What a block of a cache that holds `used` and answers the share `seen` of the reads is worth on the curve, and what is
/// left to correct then.
///
/// A policy that keeps what is used often needs fewer blocks than the least recently used order does, and a working set that
/// has grown needs more than its curve of before says: both stretch the curve along its sizes. They stretch it no further
/// than it takes: where a curve is flat many sizes answer the same share, and beside a cliff the nearest of them is the
/// foot or the head of it.
fn calibrate(curve: &MissRatioCurve, used: u64, seen: f64) -> (f64, f64) {
    if used == 0 || seen < 0.01 {
        return (1.0, 1.0);
    }
    // First touches are on the curve; a cache that has seen everything has none.
    let missed = (1.0 - seen).max(curve.floor());
    let least = curve.size_for(missed + ALIKE).unwrap_or(used);
    let most = curve.size_for(missed - ALIKE).unwrap_or(u64::MAX).max(least);
    let worth = (used.clamp(least, most) as f64 / used as f64).clamp(WORTH_MIN, WORTH_MAX);
    let on_curve = 1.0 - curve.miss_ratio_at((used as f64 * worth) as u64);
    (worth, if on_curve > 0.02 { (seen / on_curve).max(0.5) } else { 1.0 })
}

/// What a block of a cache may be worth on the curve (ours).
const WORTH_MIN: f64 = 0.2;
const WORTH_MAX: f64 = 8.0;
/// The share of writes from which on they hide what a cache answers (ours).
const HIDING_WRITES: f64 = 0.02;
/// How many times less a block may be worth to a load that floods an origin than to the one before (ours).
const NEWLY_WORTH: f64 = 1.6;
/// Intervals in which a load is new (ours).
const NEW_INTERVALS: usize = 2;
/// Before a cliff lie sizes that bring less than this part of what so much of the way should; and it brings so many hits (ours).
const CLIFF_PART: f64 = 0.25;
const CLIFF_HITS: f64 = 0.1;
/// One part in so many is a step into what the curve says little of (ours).
const UNKNOWN_STEP_PART: u64 = 4;
/// Miss ratios that differ by no more are taken for one (ours).
const ALIKE: f64 = 0.005;

pub(super) fn party(
    volume: &Volume,
    recent: &Sample,
    service: Service,
    fallback: f64,
    overloaded: bool,
    config: &ControlConfig,
) -> Party {
    let reads = recent.hit_rate + recent.missed_arrivals();
    let seen = if reads > 0.0 { recent.hit_rate / reads } else { 0.0 };
    // At an overloaded origin a read joins one under way that would be a hit in calmer times.
    let joined = if overloaded {
        (recent.missed_arrivals() * (1.0 - recent.origin_read_rate / recent.miss_rate.max(1e-9))).max(0.0)
    } else {
        0.0
    };
    let calm = if reads > 0.0 { (recent.hit_rate + joined) / reads } else { 0.0 };
    // A block that is being written is not cached, and behind a queue that lasts.
    let hidden = overloaded && recent.write_rate > HIDING_WRITES * recent.rate();
    let blocks = volume.blocks();
    let warm = blocks > 0 && volume.used_blocks * 10 >= blocks * 9;
    let seen_curve = volume.curve.as_ref();
    let curve =
        seen_curve.map(|curve| Rc::new(Curve::new(curve, volume.curve_accesses, config.feedback.law)));
    let (worth, correction) = match curve.as_ref().filter(|_| warm).map(|curve| curve.get()) {
        Some(curve) => match &volume.grant {
            // A cache that still learns is worth no less than before; nor is one behind which requests pile up: what joins a
            // read under way, or waits for a write, would be hit in calmer times.
            Some(grant) if grant.learning > 0 || hidden => {
                let (worth, correction) = calibrate(curve, volume.used_blocks, calm);
                let before = grant.worth.unwrap_or(1.0);
                if worth < before { (before, 1.0) } else { (worth, correction) }
            }
            grant => {
                let (worth, correction) = calibrate(curve, volume.used_blocks, calm);
                // What a flood came with is new to the cache: it will miss less of it. What joins a read under way behind a long queue
                // would not all be hit in calmer times.
                let before = grant.as_ref().filter(|_| overloaded).and_then(|grant| grant.worth);
                match before {
                    Some(before) if worth < before / NEWLY_WORTH => (before / NEWLY_WORTH, 1.0),
                    Some(before) if worth > before && volume.steady <= NEW_INTERVALS => (before, 1.0),
                    _ => (worth, correction),
                }
            }
        },
        _ => (1.0, 1.0),
    };
    let known = |service: f64| if service > 0.0 { service } else { fallback };
    let model = WorkloadModel {
        demand: if recent.backlogged {
            Demand::Closed { outstanding: recent.outstanding.max(1.0), think: 0.0 }
        } else {
            Demand::Open { rate: recent.arrival_rate.max(recent.rate()) }
        },
        // Bursts are in the service times that were inverted from what was observed.
        dispersion: 1.0,
        read_share: if recent.rate() > 0.0 {
            (recent.hit_rate + recent.miss_rate) / recent.rate()
        } else {
            1.0
        },
        hit_ratio: seen,
        hit_latency: if recent.hit_latency > 0.0 {
            recent.hit_latency
        } else {
            config.hit_latency_ns as f64 / 1e9
        },
        read_service: known(service.read),
        write_service: known(service.write),
        write_accesses: 1.0,
        read_stretch: service.read_stretch,
        write_stretch: service.write_stretch,
        latency_cv2: None,
        read_bytes: recent.read_bytes,
        write_bytes: recent.write_bytes,
    };
    Party {
        id: volume.spec.id,
        recent: *recent,
        curve,
        blocks,
        used: volume.used_blocks.min(blocks),
        worth,
        correction,
        model,
        piles_up: false,
        objectives: volume.spec.objectives.iter().map(|objective| (*objective, 1.0)).collect(),
        levels: vec![1.0; volume.spec.objectives.len()],
        unhelped: volume.unhelped.violation(recent.arrival_rate).unwrap_or(f64::INFINITY),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use forebay_locality::CurvePoint;

    pub(in super::super) fn curve(points: &[(u64, f64)]) -> MissRatioCurve {
        let point = |&(size_blocks, miss_ratio)| CurvePoint { size_blocks, miss_ratio };
        MissRatioCurve::new(points.iter().map(point).collect())
    }

    #[test]
    fn a_curve_is_stretched_no_further_than_it_takes() {
        // A straight line: 30 % of hits at 300 blocks. 200 blocks that answer 40 % are worth 395 to 405; the nearest counts.
        let line = curve(&[(1_000, 0.0)]);
        let (worth, correction) = calibrate(&line, 200, 0.4);
        assert!((worth - 395.0 / 200.0).abs() < 1e-9 && (correction - 0.4 / 0.395).abs() < 1e-9);
        let (worth, correction) = calibrate(&line, 300, 0.3);
        assert!(worth == 1.0 && (correction - 1.0).abs() < 1e-9);
        // A loop over 900 blocks of which a tenth are first touches. All is cached and hit: more than the curve says.
        let cliff = curve(&[(0, 1.0), (890, 0.98), (900, 0.1)]);
        let (worth, correction) = calibrate(&cliff, 1_000, 1.0);
        assert!(worth == 1.0 && (correction - 1.0 / 0.9).abs() < 1e-9, "{worth} {correction}");
        // A cache of 1,000 that hits a fiftieth has not reached the cliff yet: it is worth its head.
        let (worth, _) = calibrate(&cliff, 1_000, 0.02);
        assert!((0.88..0.9).contains(&worth), "{worth}");
        // One of 800 that hits them all has passed it.
        let (worth, _) = calibrate(&cliff, 800, 0.9);
        assert!((1.12..1.13).contains(&worth), "{worth}");
        assert_eq!((calibrate(&line, 0, 0.5), calibrate(&line, 100, 0.0)), ((1.0, 1.0), (1.0, 1.0)));
    }
}
