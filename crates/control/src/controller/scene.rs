//! The workloads of one origin as the performance model sees them, calibrated on the last intervals.

use super::party::{Party, party};
use super::sample::Sample;
use super::track::Track;
use super::volume::Volume;
use crate::config::ControlConfig;
use crate::conformance::Verdict;
use crate::inventory::{OriginSpec, VolumeId};
use crate::objective::{Objective, Statistic, Target};
use crate::performance::{
    Demand, OVERLOADED, ObservedLoad, OriginModel, OriginPrediction, Prediction, Predictor, Service,
    WorkloadModel, fit_servers, infer, predict,
};
use crate::priorities::Priorities;
use crate::solutions::Forecast;
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;

/// Squared coefficient of variation of service times where none is configured (ours: a seek and half a turn).
const SERVICE_CV2: f64 = 0.3;
/// Requests that take more than so many times their wait and service wait for what has piled up, whatever the servers say:
/// that is no property of theirs (ours).
const STRETCH_MAX: f64 = 10.0;
/// So do reads that take so many times their wait and service, and so many times what half of them take (ours): before one server that has more to do than the
/// others, as the disk with the hottest blocks. Of a wait as behind one queue, exponential, the mean is 1.44 times the median.
const UNEVEN_STRETCH: f64 = 2.0;
const UNEVEN_MEDIANS: f64 = 2.0;
/// Intervals that a fit of the servers looks at, at most.
const FIT_INTERVALS_MAX: usize = 24;

/// An origin and who uses it.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) origin: OriginModel,
    /// Where the number of servers comes from.
    pub(super) basis: &'static str,
    pub(super) parties: Vec<Party>,
    pub(super) utilisation: f64,
    /// What requests were inferred to take, where the origin was not overloaded.
    pub(super) calm: Vec<(VolumeId, Service)>,
    /// The longest service time that was seen, in seconds; 0 where nothing reached the origin.
    pub(super) service: f64,
    /// With the blocks ordered now: most predictions change few caches, and ask of all.
    now: OnceCell<Predictor>,
}

/// What is so far beyond its bound hangs, and is as bad as anything that does (ours).
const HANGS: f64 = 100.0;
/// What lies above counts for so much less: of two that hang the one that hangs less is better, but nobody else is to pay for that (ours).
const HANGS_LESS: f64 = 1e-5;
/// By how much windows may differ from what the model says of them (ours).
const LEVEL_MAX: f64 = 1_000.0;

/// How bad it is to be beyond a bound by `excess`, relative to it: 0 where it is kept; finite.
pub(super) fn violation(excess: f64) -> f64 {
    let excess = excess.clamp(0.0, 1e6);
    excess.min(HANGS) + (excess - HANGS).max(0.0) * HANGS_LESS
}

/// The load that a sample put on the origin.
fn load_of(sample: &Sample) -> ObservedLoad {
    ObservedLoad {
        read_rate: sample.origin_read_rate,
        read_latency: sample.miss_latency,
        write_rate: sample.write_rate,
        write_latency: sample.write_latency,
        outstanding: sample.backlogged.then_some(sample.outstanding.max(1.0)),
    }
}

/// Whether requests wait for what has piled up before the origin, or before one of its servers.
fn piles_up(volume: &Volume, recent: &Sample, service: &Service) -> bool {
    // Of a cache that is there already the windows say whether it suffices.
    let uneven = volume.grant.is_none()
        && service.read_stretch > UNEVEN_STRETCH
        && recent.miss_latency > UNEVEN_MEDIANS * recent.miss_median;
    uneven || service.read_stretch.max(service.write_stretch) > STRETCH_MAX
}

/// Fits the number of servers from the histories of an origin's volumes.
pub(super) fn fit(spec: Option<&OriginSpec>, volumes: &[&Volume]) -> Option<f64> {
    let service_cv2 = spec.and_then(|spec| spec.service_cv2).unwrap_or(SERVICE_CV2);
    let longest = volumes.iter().max_by_key(|volume| volume.history.len())?;
    let every = longest.history.len().div_ceil(FIT_INTERVALS_MAX).max(1);
    let history: Vec<Vec<ObservedLoad>> = (longest.history.iter().rev().step_by(every))
        .map(|newest| {
            let load = |volume: &&Volume| volume.seen_in(newest.step).map(load_of).unwrap_or_default();
            volumes.iter().map(load).collect()
        })
        .collect();
    fit_servers(service_cv2, &history)
}

impl Scene {
    /// The scene of the volumes `ids` of one origin, as of the last intervals, in which it said to be busy for the shares
    /// `said` of the time, the newest last.
    pub(super) fn build(
        ids: &[VolumeId],
        volumes: &BTreeMap<VolumeId, Volume>,
        spec: Option<&OriginSpec>,
        fitted: Option<f64>,
        said: &[f64],
        service_before: Option<f64>,
        config: &ControlConfig,
    ) -> Scene {
        let configured = spec.and_then(|spec| spec.servers);
        let (servers, basis) = match (configured, fitted) {
            (Some(servers), _) => (servers, "servers configured, service times fitted"),
            (None, Some(servers)) => (servers, "servers and service times fitted"),
            (None, None) => (config.servers_assumed, "servers assumed, service times fitted"),
        };
        let origin = OriginModel {
            servers: servers.max(1.0),
            service_cv2: spec.and_then(|spec| spec.service_cv2).unwrap_or(SERVICE_CV2),
        };
        // What was seen before a cache or a load on this origin last changed says nothing of now.
        let steady = ids.iter().map(|id| volumes[id].steady).min().unwrap_or(0);
        let count = config.recent_intervals.min(steady).max(1);
        // Whether a loop is closed shows in how it varies, for which few intervals are too few.
        let recent = |id: &VolumeId| {
            let long = volumes[id].recent(config.recent_intervals);
            if count == config.recent_intervals {
                return long;
            }
            Sample { backlogged: long.backlogged, ..volumes[id].recent(count) }
        };
        let recents: Vec<Sample> = ids.iter().map(recent).collect();
        let loads: Vec<ObservedLoad> = recents.iter().map(load_of).collect();
        let said = &said[said.len().saturating_sub(count)..];
        let utilisation = (!said.is_empty()).then(|| said.iter().sum::<f64>() / said.len() as f64);
        let inferred = infer(&origin, &loads, utilisation);
        let overloaded = utilisation.unwrap_or(1.0) >= OVERLOADED;
        let known: f64 = inferred.services.iter().map(|service| service.read).fold(0.0, f64::max);
        let fallback = spec.and_then(|spec| spec.service).map(|service| service.as_secs_f64());
        // A cache that answers everything hides the origin: what was seen of it before still holds.
        let fallback = fallback.or((known > 0.0).then_some(known)).or(service_before).unwrap_or(1e-4);
        let mut parties: Vec<Party> = ids
            .iter()
            .zip(&recents)
            .zip(&inferred.services)
            .map(|((id, recent), service)| {
                // A queue that is long is served faster, and what waits hides what is served.
                let piles_up = piles_up(&volumes[id], recent, service);
                let service = match volumes[id].service {
                    _ if !overloaded && !piles_up => *service,
                    Some(calm) => calm,
                    None => Service { read_stretch: 1.0, write_stretch: 1.0, ..*service },
                };
                let mut its = party(&volumes[id], recent, service, fallback, overloaded, config);
                its.piles_up = piles_up;
                its
            })
            .collect();
        // The model at the observed hit ratios: what it says of each objective is compared with what was seen.
        let seen: Vec<WorkloadModel> = parties.iter().map(|party| party.model).collect();
        let baseline = predict(&origin, &seen);
        for (party, prediction) in parties.iter_mut().zip(&baseline.workloads) {
            let tracks = &volumes[&party.id].tracks;
            let level = |((objective, _), track): (&(Objective, f64), &Track)| {
                let judged = track.last.filter(|last| track.closed && last.verdict != Verdict::LowLoad);
                let observed = judged.and_then(|last| last.value);
                let predicted = prediction.value(objective).max(1e-9);
                observed.map_or(1.0, |observed| (observed / predicted).clamp(1.0 / LEVEL_MAX, LEVEL_MAX))
            };
            party.levels = party.objectives.iter().zip(tracks).map(level).collect();
            for ((objective, factor), track) in party.objectives.iter_mut().zip(tracks) {
                let percentile =
                    matches!(objective.target, Target::Latency { statistic: Statistic::Percentile(_), .. });
                let observed = track.last.and_then(|judgement| judgement.value);
                if let (true, Some(observed)) = (percentile, observed) {
                    *factor = (observed / prediction.value(objective).max(1e-9)).clamp(0.5, 2.0);
                }
            }
        }
        let utilisation = utilisation.unwrap_or(baseline.utilisation);
        let busy = !parties.iter().any(|party| party.piles_up)
            && utilisation < OVERLOADED
            && loads.iter().any(|load| load.read_rate + load.write_rate > 0.0);
        let calm = if busy { ids.iter().copied().zip(inferred.services).collect() } else { Vec::new() };
        Scene { origin, basis, parties, utilisation, calm, service: known, now: OnceCell::new() }
    }

    /// The places of those of some volumes that use this origin.
    pub(super) fn places(&self, ids: &[VolumeId]) -> Vec<usize> {
        ids.iter().filter_map(|id| self.place(*id)).collect()
    }

    /// The place of a volume.
    pub(super) fn place(&self, id: VolumeId) -> Option<usize> {
        self.parties.iter().position(|party| party.id == id)
    }

    /// The same, but for neighbours of the party at `place` that seem to be closed loops and have curves: they are taken for loads that ask for what they get now,
    /// and no more. `None` where there are none.
    pub(super) fn with_limited_neighbours(&self, place: usize) -> Option<Scene> {
        self.with_limited(|at| at != place)
    }

    /// The same, but for the party at `place`, if it seems to be a closed loop.
    pub(super) fn with_limited_loop(&self, place: usize) -> Option<Scene> {
        self.with_limited(|at| at == place)
    }

    fn with_limited(&self, is_meant: impl Fn(usize) -> bool) -> Option<Scene> {
        let is_loop = |at: usize, party: &Party| {
            is_meant(at) && party.has_curve() && matches!(party.model.demand, Demand::Closed { .. })
        };
        if !self.parties.iter().enumerate().any(|(at, party)| is_loop(at, party)) {
            return None;
        }
        let mut limited = Scene { now: OnceCell::new(), ..self.clone() };
        for (at, party) in limited.parties.iter_mut().enumerate() {
            if is_loop(at, party) {
                party.model.demand =
                    Demand::Open { rate: party.recent.arrival_rate.max(party.recent.rate()) };
            }
        }
        Some(limited)
    }

    /// The blocks ordered now.
    pub(super) fn blocks(&self) -> Vec<u64> {
        self.parties.iter().map(|party| party.blocks).collect()
    }

    /// The blocks cached now.
    pub(super) fn blocks_used(&self) -> Vec<u64> {
        self.parties.iter().map(|party| party.used()).collect()
    }

    fn predictor(&self, blocks: &[u64]) -> Predictor {
        let model = |party: &Party| WorkloadModel { hit_ratio: party.hit_ratio(party.blocks), ..party.model };
        let now = || Predictor::new(self.origin, self.parties.iter().map(model).collect());
        let mut predictor = self.now.get_or_init(now).clone();
        for (at, (party, &blocks)) in self.parties.iter().zip(blocks).enumerate() {
            if blocks != party.blocks {
                predictor.set_hit_ratio(at, party.hit_ratio(blocks));
            }
        }
        predictor
    }

    fn predict(&self, blocks: &[u64]) -> OriginPrediction {
        self.predictor(blocks).all()
    }

    /// Caches of `blocks`, to try other sizes of some.
    pub(super) fn trial(&self, blocks: &[u64]) -> Trial<'_> {
        Trial { scene: self, blocks: blocks.to_vec(), predictor: self.predictor(blocks) }
    }

    /// The worst predicted excess of every party with caches of `blocks`; negative infinity without objectives.
    pub(super) fn excess(&self, blocks: &[u64]) -> Vec<f64> {
        let predicted = self.predict(blocks);
        self.parties.iter().zip(&predicted.workloads).map(|(party, found)| party.worst(found)).collect()
    }

    /// The priorities of all objectives.
    pub(super) fn priorities(&self) -> Priorities {
        Priorities::of(self.objectives().map(|objective| objective.priority))
    }

    fn objectives(&self) -> impl Iterator<Item = &Objective> {
        self.parties.iter().flat_map(|party| party.objectives.iter().map(|(objective, _)| objective))
    }

    /// [`weighted_violation`](Self::weighted_violation), where the model is asked only by what the level of the windows that just ended would differ: what waits
    /// for what came before is no part of it.
    pub(super) fn violation_as_seen(&self, blocks: &[u64], counts: impl Fn(u8) -> f64) -> f64 {
        let predicted = self.predict(blocks);
        let violation = |(party, prediction): (&Party, &Prediction)| {
            let (mut sum, mut counted) = (0.0, 0.0);
            for ((objective, _), level) in party.objectives.iter().zip(&party.levels) {
                let each = objective.weight * violation(party.excess(objective, *level, prediction));
                sum += each;
                counted += counts(objective.priority) * each;
            }
            // Of several priorities each is bounded in proportion.
            if sum > party.unhelped { counted / sum * party.unhelped } else { counted }
        };
        self.parties.iter().zip(&predicted.workloads).map(violation).sum()
    }

    /// The weighted sum of [`violation`]s over all objectives with caches of `blocks`, each as much as its priority `counts`; finite.
    pub(super) fn weighted_violation(&self, blocks: &[u64], counts: impl Fn(u8) -> f64) -> f64 {
        let predicted = self.predict(blocks);
        let each = self.parties.iter().zip(&predicted.workloads).flat_map(|(party, prediction)| {
            party.objectives.iter().map(move |(objective, factor)| (party, prediction, objective, *factor))
        });
        each.map(|(party, prediction, objective, factor)| {
            let excess = party.excess(objective, factor, prediction);
            counts(objective.priority) * (objective.weight * violation(excess))
        })
        .sum()
    }
}

/// A scene with caches of which some are tried in other sizes: what the others ask of the origin is worked out once.
pub(super) struct Trial<'a> {
    scene: &'a Scene,
    blocks: Vec<u64>,
    predictor: Predictor,
}

impl Trial<'_> {
    /// From now on the party at `place` has a cache of `blocks`.
    pub(super) fn set(&mut self, place: usize, blocks: u64) {
        self.blocks[place] = blocks;
        self.predictor.set_hit_ratio(place, self.scene.parties[place].hit_ratio(blocks));
    }

    /// From now on caches have `blocks`.
    fn set_all(&mut self, blocks: &[u64]) {
        for (place, &blocks) in blocks.iter().enumerate() {
            if self.blocks[place] != blocks {
                self.set(place, blocks);
            }
        }
    }

    /// The worst predicted excess of the parties at `places`; negative infinity where they have no objectives, or there are none.
    pub(super) fn worst(&self, places: &[usize]) -> f64 {
        let found = places.iter().zip(self.predictor.some(places));
        found.map(|(&at, found)| self.scene.parties[at].worst(&found)).fold(f64::NEG_INFINITY, f64::max)
    }
}

/// A scene of which solutions are asked: of one party nearly always, with few other sizes.
pub(super) struct Trials<'a>(RefCell<Trial<'a>>);

impl Scene {
    /// The same as solutions ask it, who begin with caches of `blocks`.
    pub(super) fn trials(&self, blocks: &[u64]) -> Trials<'_> {
        Trials(RefCell::new(self.trial(blocks)))
    }
}

impl Forecast for Trials<'_> {
    fn excess(&self, blocks: &[u64]) -> Vec<f64> {
        self.0.borrow().scene.excess(blocks)
    }

    fn excess_of(&self, tenant: usize, blocks: &[u64]) -> f64 {
        let mut trial = self.0.borrow_mut();
        trial.set_all(blocks);
        trial.worst(&[tenant])
    }
}

#[cfg(test)]
mod tests {
    use super::super::party::tests::curve;
    use super::*;
    use crate::controller::grant::Grant;
    use crate::inventory::{HostId, VolumeSpec};
    use crate::windows::Windows;
    use std::sync::Arc;

    #[test]
    fn what_was_seen_is_what_it_costs_now_and_bounds_what_it_would_cost_without_a_cache() {
        use crate::conformance::Judgement;
        use crate::objective::Operations;
        use forebay_units::Nanos;
        let id = VolumeId(1);
        let mut volume = Volume::new(VolumeSpec {
            id,
            objectives: vec![Objective::mean_latency(Nanos::millis(5), Operations::All)],
            ..VolumeSpec::any()
        });
        let sample = Sample {
            arrival_rate: 100.0,
            miss_rate: 100.0,
            origin_read_rate: 100.0,
            miss_latency: 0.008,
            ..Sample::default()
        };
        volume.history.extend([sample; 3]);
        volume.steady = 3;
        volume.curve = Some(Arc::new(curve(&[(1_000, 0.0)])));
        (volume.curve_accesses, volume.used_blocks) = (10_000, 0);
        // Windows take 50 ms where the model says 8: what came before is worked off.
        volume.tracks[0].closed = true;
        volume.tracks[0].last = Some(Judgement {
            verdict: Verdict::Nonconforming,
            value: Some(0.05),
            excess: 9.0,
            requests: 1_000,
            failed: 0,
        });
        let violation = |volume: &Volume, blocks: u64| {
            let volumes = BTreeMap::from([(id, volume.clone())]);
            let scene = Scene::build(&[id], &volumes, None, Some(1.0), &[], None, &ControlConfig::default());
            (scene.weighted_violation(&[blocks], |_| 1.0), scene.violation_as_seen(&[blocks], |_| 1.0))
        };
        let (modelled, seen) = violation(&volume, 0);
        assert!(modelled < 1.0 && (seen - 9.0).abs() < 1e-6, "{modelled} {seen}");
        let (modelled, seen) = violation(&volume, 900);
        assert!(modelled == 0.0 && seen < 9.0, "{modelled} {seen}");
        // Nothing is said of a window that did not end now.
        volume.tracks[0].closed = false;
        let (modelled, seen) = violation(&volume, 0);
        assert_eq!(modelled, seen);
        // A load like this one has cost two bounds without a cache, not nine.
        volume.tracks[0].closed = true;
        (0..3).for_each(|_| volume.unhelped.see(110.0, 2.0, None));
        assert_eq!(violation(&volume, 0).1, 2.0);
    }

    #[test]
    fn a_wait_that_few_reads_share_is_no_property_of_all() {
        let id = VolumeId(1);
        // Eight disks, busy for two thirds, that serve a read in 5.4 ms; reads take 40 ms, half of them `median` at most.
        let built = |median, granted: bool| {
            let mut volume = Volume::new(VolumeSpec { id, ..VolumeSpec::any() });
            let sample = Sample {
                arrival_rate: 1_000.0,
                miss_rate: 1_000.0,
                origin_read_rate: 1_000.0,
                miss_latency: 0.04,
                miss_median: median,
                ..Sample::default()
            };
            volume.history.extend([sample; 3]);
            volume.steady = 3;
            volume.grant = granted.then(|| Grant::new(HostId(0), 1_000.0, Windows::assumed(0.05), 0));
            let volumes = BTreeMap::from([(id, volume)]);
            let said = [0.67; 3];
            let scene =
                Scene::build(&[id], &volumes, None, Some(8.0), &said, None, &ControlConfig::default());
            let miss = scene.predict(&[0]).workloads[0].miss_latency;
            (scene.parties[0].piles_up, (miss * 1e3).round(), scene.calm.is_empty())
        };
        // One disk of eight has the hottest blocks: the others' reads take 12 ms. What the model says is without that queue.
        assert_eq!(built(0.012, false), (true, 12.0, true));
        // All wait alike, as behind a slow network; or a cache is there, of which windows tell.
        assert_eq!(built(0.03, false), (false, 40.0, false));
        assert_eq!(built(0.012, true), (false, 40.0, false));
    }
}
