//! What the controller remembers of one volume. Every list has a written maximum.

use super::contention::Stake;
use super::foreseeing::Rested;
use super::grant::Grant;
use super::sample::Sample;
use super::scene::violation;
use super::spare::Unmended;
use super::track::Track;
use super::unhelped::{Uncached, Unhelped};
use crate::config::ControlConfig;
use crate::conformance::Verdict;
use crate::feedback::{FeedbackRules, Law, Phase, PhaseMemory};
use crate::foresight::{Foreseen, History};
use crate::inventory::{HostId, VolumeSpec};
use crate::objective::{Objective, Target};
use crate::observation::VolumeObservation;
use crate::performance::Service;
use crate::removal::Regrets;
use crate::violation::Assessment;
use forebay_locality::MissRatioCurve;
use forebay_units::{Bytes, Nanos};
use forebay_workload::statistics::percentile;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

/// Hot zones that are kept of an earlier interval.
const ZONES_MAX: usize = 1_024;
/// Intervals between two memories of the hot zones (ours).
const ZONES_EVERY: u64 = 5;

/// A load is a burst at so many times the rate of most of its history, if that is so long (ours).
const BURST: f64 = 2.0;
const BURST_HISTORY: usize = 12;
/// What is read for the first time soon, as a part of all that was read so far (ours).
const SEEN_SOON: f64 = 0.05;
/// A cache that answers at most so much of the reads does not help (ours).
const HELPED: f64 = 0.05;
/// A cache that would take more intervals to fill does not (ours).
const FILLS_IN: u64 = 500;

/// Where a volume stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeState {
    /// Its objectives are kept, or it asks for too little to say, or it has none.
    #[default]
    Conforming,
    /// Some windows are nonconforming, too few to act.
    Suspected,
    /// An objective is violated and nothing is being done about it (yet, or because nothing helps).
    Violating,
    /// A cache was granted for it, and is not in place: it is being made, or cannot be for now.
    Awaiting,
    /// A cache was granted for it and fills.
    Acting,
    /// The cache that serves it is being corrected by feedback.
    Correcting,
}

/// A volume.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    pub(super) spec: VolumeSpec,
    /// Why it may have no cache, in the words of who knows; `None` where nobody said.
    pub(super) forbidden: Option<String>,
    pub(super) state: VolumeState,
    pub(super) tracks: Vec<Track>,
    pub(super) history: VecDeque<Sample>,
    pub(super) curve: Option<Arc<MissRatioCurve>>,
    pub(super) curve_accesses: u64,
    pub(super) sequential_share: f64,
    pub(super) used_blocks: u64,
    /// Blocks of what it may hold for which the system has no memory.
    pub(super) refused_blocks: u64,
    /// The same an interval earlier.
    used_before: u64,
    /// Intervals since its cache or its load last changed.
    pub(super) steady: usize,
    pub(super) earlier_zones: VecDeque<Vec<u64>>,
    pub(super) grant: Option<Grant>,
    pub(super) memory: PhaseMemory,
    /// What its requests took of its origin when that was last seen not to be overloaded.
    pub(super) service: Option<Service>,
    /// When the violation that is under way began.
    pub(super) violated_since: Option<Nanos>,
    /// What came of taking back a cache that served it.
    pub(super) regrets: Regrets,
    /// After how many windows without a miss it is over.
    pub(super) over_after: usize,
    /// The step before which the violation is not analysed again.
    pub(super) analyse_from: u64,
    /// When it needed a cache in the past.
    pub(super) past: History,
    /// Up to when its intervals are counted in there; `None` before the first.
    pub(super) counted: Option<Nanos>,
    /// When it will need one, or is expected to need one now.
    pub(super) foreseen: Option<Foreseen>,
    /// The beginning of the foreseen peak for which it was decided whether its cache makes room.
    pub(super) room_made_for: Option<u64>,
    /// The most that its cache could be where it is, or elsewhere, as whoever makes it says; `None` if nobody does.
    pub(super) room_blocks: Option<u64>,
    /// Why it is not being made for now, where whoever makes it says so.
    pub(super) hindered: Option<String>,
    /// Since its cache was last needed.
    pub(super) rested: Rested,
    /// What it has at stake in contended memory.
    pub(super) stake: Option<Stake>,
    /// What its load has cost without a cache.
    pub(super) unhelped: Unhelped,
    /// That nothing mends its violation.
    pub(super) unmended: Unmended,
}

impl Volume {
    pub(super) fn new(spec: VolumeSpec) -> Volume {
        let tracks = vec![Track::default(); spec.objectives.len()];
        Volume {
            spec,
            forbidden: None,
            state: VolumeState::Conforming,
            tracks,
            history: VecDeque::new(),
            curve: None,
            curve_accesses: 0,
            sequential_share: 0.0,
            used_blocks: 0,
            refused_blocks: 0,
            used_before: 0,
            steady: 0,
            earlier_zones: VecDeque::new(),
            grant: None,
            memory: PhaseMemory::default(),
            service: None,
            violated_since: None,
            regrets: Regrets::default(),
            over_after: 0,
            analyse_from: 0,
            past: History::default(),
            counted: None,
            foreseen: None,
            room_made_for: None,
            room_blocks: None,
            hindered: None,
            rested: Rested::default(),
            stake: None,
            unhelped: Unhelped::default(),
            unmended: Unmended::default(),
        }
    }

    /// Follows other objectives from now on, in intervals of `interval`: those that stay keep their windows.
    pub(super) fn set_objectives(
        &mut self,
        objectives: &[Objective],
        interval: Nanos,
        config: &ControlConfig,
    ) {
        let track = |objective: &Objective| {
            let stays = self.spec.objectives.iter().position(|before| before == objective);
            let kept = stays.map(|at| self.tracks[at].clone());
            kept.unwrap_or_else(|| Track::of(objective, &self.history, interval, config))
        };
        self.tracks = objectives.iter().map(track).collect();
        // A violation goes on as long as somebody's does that stays.
        if self.tracks.iter().all(|track| track.episode.is_none()) {
            self.violated_since = None;
        }
        self.analyse_from = 0;
    }

    /// Takes an interval in; windows that end are judged.
    pub(super) fn observe(
        &mut self,
        observed: &VolumeObservation,
        at: Nanos,
        step: u64,
        config: &ControlConfig,
    ) {
        // Once for all: volumes that are watched for equally long would all double theirs in the same step.
        self.history.reserve_exact(config.history_intervals.saturating_sub(self.history.len()));
        if self.history.len() >= config.history_intervals {
            self.history.pop_front();
        }
        let waiting = self.history.back().map_or(0.0, |last| last.waiting);
        let rate_before = self.history.back().map_or(0.0, |last| last.arrival_rate);
        self.history.push_back(Sample::of(observed, step, waiting, config));
        if let Some(curve) = &observed.curve {
            self.curve = Some(Arc::clone(curve));
            self.curve_accesses = observed.curve_accesses;
        }
        self.sequential_share = observed.sequential_share;
        (self.used_before, self.used_blocks) = (self.used_blocks, observed.cache.used_blocks);
        self.refused_blocks = observed.cache.refused_blocks;
        self.steady = self.steady.saturating_add(1);
        // What was seen before a burst says little of it.
        if self.history.back().is_some_and(|last| last.arrival_rate > BURST * rate_before) {
            self.steady = 1;
        }
        for (track, objective) in self.tracks.iter_mut().zip(&self.spec.objectives) {
            track.add(objective, observed, at, config);
        }
        if step.is_multiple_of(ZONES_EVERY) && observed.zone_accesses > 0 {
            let least = config.warmup.zone_share_min * observed.zone_accesses as f64;
            let hot = observed.zones.iter().filter(|zone| zone.accesses as f64 > least).map(|zone| zone.zone);
            if self.earlier_zones.len() == 2 {
                self.earlier_zones.pop_front();
            }
            self.earlier_zones.push_back(hot.take(ZONES_MAX).collect());
        }
        if let Some(grant) = &mut self.grant {
            grant.age += 1;
            grant.was_there |= observed.cache.quota_blocks > 0;
            if observed.cache.quota_blocks > 0 && !grant.made_anew {
                grant.held = observed.cache.used_blocks;
            }
            grant.awaited_since = match observed.cache.quota_blocks {
                0 => grant.awaited_since.or(Some(step)),
                _ => None,
            };
            // Of a cache that was taken over it is not known; the load now stands in for it.
            if grant.rate_at_grant == 0.0 {
                grant.rate_at_grant = self.history.back().map_or(0.0, Sample::rate);
            }
            let full = self.used_blocks * 50 >= grant.blocks * 49;
            if full && grant.learning > 0 {
                grant.learning -= 1;
                self.steady = 1;
                if grant.learning == 0 {
                    // What it missed while it learnt says nothing of what it misses now.
                    grant.windows.keep(1);
                }
            }
            let differs = observed.cache.quota_blocks != grant.blocks;
            grant.mismatch = if differs { grant.mismatch + 1 } else { 0 };
        }
    }

    /// The weighted sum of how bad the last windows of its objectives were; finite.
    pub(super) fn last_violation(&self) -> f64 {
        let each = self.spec.objectives.iter().zip(&self.tracks);
        let last = |track: &Track| track.last.map_or(0.0, |last| last.excess);
        each.map(|(objective, track)| objective.weight * violation(last(track))).sum()
    }

    /// Keeps what the windows that just ended say of its load without a cache, if that was so, while `others` requests per second arrived at the other volumes of its origin.
    pub(super) fn see_unhelped(&mut self, others: f64) {
        let Some(last) = self.history.back().filter(|_| !self.tracks.is_empty()) else { return };
        let rate = last.arrival_rate;
        let judged =
            |track: &Track| track.closed && track.last.is_some_and(|last| last.verdict != Verdict::LowLoad);
        if last.hit_rate <= HELPED * (last.hit_rate + last.miss_rate) && self.tracks.iter().all(judged) {
            let excess = self.closed_excess().filter(|_| self.blocks() == 0);
            let uncached = excess.map(|excess| Uncached { excess, others });
            self.unhelped.see(rate, self.last_violation(), uncached);
        }
    }

    /// The assessment of its worst objective, with that objective's place: where all are kept, of the one that was missed in most windows.
    pub(super) fn assess(&self, config: &ControlConfig) -> (Assessment, usize) {
        let severity = |assessment: &Assessment, track: &Track| match assessment {
            Assessment::Kept => (0, track.episode.map_or(0, |episode| episode.windows as usize)),
            Assessment::Suspected { nonconforming } => (1, *nonconforming),
            Assessment::Violated { nonconforming, .. } => (2, *nonconforming),
        };
        self.tracks
            .iter()
            .enumerate()
            .zip(&self.spec.objectives)
            .map(|((at, track), objective)| (track.assess(objective.conforming_share, config), at))
            .max_by_key(|(assessment, at)| (severity(assessment, &self.tracks[*at]), std::cmp::Reverse(*at)))
            .unwrap_or((Assessment::Kept, 0))
    }

    /// Whether all its objectives have been kept for as many windows as end the violation; where a cache serves it, as made one.
    pub(super) fn has_recovered(&self, is_served: bool, config: &ControlConfig) -> bool {
        let made = config.violation.nonconforming;
        let windows = if is_served { made } else { made.max(self.over_after) };
        self.tracks.iter().all(|track| track.has_recovered(windows))
    }

    /// Whether the last `count` windows of each of its objectives asked for too little to say anything.
    pub(super) fn asks_for_too_little(&self, count: usize) -> bool {
        self.tracks.iter().all(|track| track.asks_for_too_little(count))
    }

    /// Whether its last window missed, or its cache fills.
    pub(super) fn is_short(&self, rules: &FeedbackRules) -> bool {
        self.tracks.iter().any(Track::has_missed) || self.is_filling(rules)
    }

    /// The worst excess of the windows that just closed; `None` where none closed or none could be judged.
    pub(super) fn closed_excess(&self) -> Option<f64> {
        self.tracks
            .iter()
            .filter(|track| track.closed)
            .filter_map(|track| track.last)
            .filter(|judgement| judgement.verdict != Verdict::LowLoad)
            .map(|judgement| judgement.excess)
            .max_by(f64::total_cmp)
    }

    /// Whether its last window asked for enough to be judged, by any of its objectives.
    pub(super) fn asked_for_enough(&self) -> bool {
        let judged = |track: &Track| track.last.is_some_and(|last| last.verdict != Verdict::LowLoad);
        self.tracks.iter().any(judged)
    }

    /// What was seen of it in a step of the controller; `None` where nothing was, or is kept. `O(1)` where it was seen in every step since, else `O(log n)`.
    pub(super) fn seen_in(&self, step: u64) -> Option<&Sample> {
        let ago = usize::try_from(self.history.back()?.step.checked_sub(step)?).ok()?;
        let at = self.history.len().checked_sub(ago.checked_add(1)?);
        let nearest = at.and_then(|at| self.history.get(at)).filter(|sample| sample.step == step);
        let search = || {
            let at = self.history.binary_search_by_key(&step, |sample| sample.step).ok()?;
            self.history.get(at)
        };
        nearest.or_else(search)
    }

    /// The mean of the last `count` intervals. Under a latency a load that may be open is taken for one: that needs less cache, and what
    /// is too small shows at once; a floor is missed by loads alone that wait for answers.
    pub(super) fn recent(&self, count: usize) -> Sample {
        let mean = Sample::mean(self.history.iter().skip(self.history.len().saturating_sub(count)));
        let latency = |objective: &Objective| matches!(objective.target, Target::Latency { .. });
        let is_closed = mean.keeps_full || !self.spec.objectives.iter().all(latency);
        Sample { backlogged: mean.backlogged && is_closed, ..mean }
    }

    /// Whether its load is far above what it usually is (ours: twice the median of the history).
    pub(super) fn is_peaking(&self, recent: &Sample) -> bool {
        let rates: Vec<f64> = self.history.iter().map(|sample| sample.arrival_rate).collect();
        let usual = percentile(&rates, 50.0).unwrap_or(0.0);
        usual > 0.0 && recent.arrival_rate > 2.0 * usual
    }

    /// Whether it gets a burst, or has just got one: how large a cache has to be for that is tried out burst by burst.
    pub(super) fn is_bursting(&self) -> bool {
        let newest = self.history.iter().rev().take(2).map(|sample| sample.arrival_rate).fold(0.0, f64::max);
        let calm = self.history.iter().filter(|sample| newest > BURST * sample.arrival_rate).count();
        self.history.len() >= BURST_HISTORY && 2 * calm > self.history.len()
    }

    /// Whether its working set stays of one size (ours: within three tenths over the history).
    pub(super) fn is_stable(&self, recent: &Sample) -> bool {
        let sets: Vec<f64> = self.history.iter().map(|sample| sample.working_set).collect();
        let usual = percentile(&sets, 50.0).unwrap_or(0.0);
        (recent.working_set - usual).abs() <= 0.3 * usual.max(recent.working_set)
    }

    /// What is being done by its cache for whom that serves.
    pub(super) fn cache_stage(&self, grant: &Grant, rules: &FeedbackRules) -> VolumeState {
        if grant.awaited_since.is_some() {
            VolumeState::Awaiting
        } else if self.is_filling(rules) {
            VolumeState::Acting
        } else {
            VolumeState::Correcting
        }
    }

    /// Whether what its cache was given last neither is full nor has had the time to fill.
    pub(super) fn is_filling(&self, rules: &FeedbackRules) -> bool {
        self.grant.as_ref().is_some_and(|grant| {
            let full = self.used_blocks * 50 >= grant.blocks * 49;
            match rules.law {
                Law::Plain if full => grant.age <= grant.drain,
                Law::Plain => grant.age <= grant.guard.min(rules.guard_max) + grant.drain,
                // What does not become more is all that there is to cache.
                Law::Model => {
                    let more = self.used_blocks.saturating_sub(self.used_before) * 100 > grant.blocks;
                    !full && (more || grant.age <= 1)
                }
            }
        })
    }

    /// Whether its cache is not full, and was filled further in the last interval, slowly or not.
    pub(super) fn becomes_more(&self) -> bool {
        let full = self.used_blocks * 20 >= self.blocks() * 19;
        !full && self.used_blocks.saturating_sub(self.used_before) * FILLS_IN > self.blocks()
    }

    /// What its cache held when the last interval began.
    pub(super) fn used_before(&self) -> u64 {
        self.used_before
    }

    /// Whether its cache was full already when the last interval began.
    pub(super) fn was_full(&self) -> bool {
        self.grant.as_ref().is_some_and(|grant| self.used_before * 20 >= grant.blocks * 19)
    }

    /// The phase of a sample of a loop that is `closed` or open: by what such a loop keeps, whatever it gets.
    pub(super) fn phase_of(sample: &Sample, closed: bool) -> Phase {
        let intensity = if closed { sample.outstanding * 100.0 } else { sample.arrival_rate };
        let reads = sample.hit_rate + sample.miss_rate;
        Phase::of(intensity, reads / sample.rate().max(1e-9), sample.working_set as u64)
    }

    /// The phase of the newest interval, by how its loop looked in the last `count`; `None` before the first.
    pub(super) fn newest_phase(&self, count: usize) -> Option<Phase> {
        Some(Volume::phase_of(self.history.back()?, self.recent(count).backlogged))
    }

    /// The block size in bytes.
    pub(super) fn block_bytes(&self) -> u64 {
        self.spec.block_size.bytes()
    }

    /// Blocks of a chunk of `bytes`.
    pub(super) fn chunk_blocks(&self, bytes: u64) -> u64 {
        (bytes / self.block_bytes()).max(1)
    }

    /// What a cache holds at most that holds all that was read so far, and what comes to that soon; `None` before anything is
    /// known of the reads. More than that could answer nothing more.
    pub(super) fn useful_max(&self) -> Option<u64> {
        let seen = self.curve.as_ref()?.floor() * self.curve_accesses as f64;
        Some((seen.max(self.used_blocks as f64) * (1.0 + SEEN_SOON)) as u64).filter(|&blocks| blocks > 0)
    }

    /// The guaranteed blocks.
    pub(super) fn blocks_min(&self) -> u64 {
        self.spec.block_size.blocks_for(self.spec.minimum)
    }

    /// Whether its cache is of memory that nobody wants.
    pub(super) fn is_spare(&self) -> bool {
        self.grant.as_ref().is_some_and(|grant| grant.is_spare)
    }

    /// The host of its cache, and how many bytes of it are ordered; `None` without a cache.
    pub(super) fn placed(&self) -> Option<(HostId, Bytes)> {
        let grant = self.grant.as_ref()?;
        Some((grant.host, Bytes(grant.blocks * self.block_bytes())))
    }

    /// The blocks ordered now.
    pub(super) fn blocks(&self) -> u64 {
        self.grant.as_ref().map_or(0, |grant| grant.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objective::Operations;

    fn volume(objective: Objective, history: &[Sample]) -> Volume {
        let mut volume = Volume::new(VolumeSpec { objectives: vec![objective], ..VolumeSpec::any() });
        volume.history.extend(history);
        volume
    }

    #[test]
    fn a_loop_is_closed_if_it_keeps_all_its_requests_outstanding() {
        let sample = |outstanding, outstanding_max| Sample {
            arrival_rate: 100.0,
            outstanding,
            outstanding_max,
            backlogged: true,
            ..Sample::default()
        };
        let latency = Objective::mean_latency(Nanos::millis(5), Operations::All);
        let closed = |objective, history: &[Sample]| volume(objective, history).recent(3).backlogged;
        // Eight clients; then an open load at an overloaded origin where misses join one another: its mean is as steady.
        let eight = [sample(8.0, 8.0), sample(7.9, 8.0), sample(8.0, 8.0)];
        let open = [sample(92.7, 155.0), sample(95.5, 152.0), sample(95.0, 154.0)];
        assert!(closed(latency, &eight) && !closed(latency, &open));
        // Nearly all along, but more and more.
        assert!(!closed(latency, &[sample(8.0, 8.0), sample(8.0, 8.0), sample(8.0, 12.0)]));
        // A floor is missed by loops that wait alone.
        assert!(closed(Objective::iops_floor(300.0), &open));
    }

    #[test]
    fn a_burst_is_twice_what_is_usual_for_two_intervals() {
        let rates = |rates: &[f64]| -> Vec<Sample> {
            let sample = |&arrival_rate: &f64| Sample { arrival_rate, ..Sample::default() };
            rates.iter().map(sample).collect()
        };
        let latency = Objective::mean_latency(Nanos::millis(5), Operations::All);
        let bursts = |history: &[f64]| volume(latency, &rates(history)).is_bursting();
        let calm = [40.0; 12];
        assert!(!bursts(&calm));
        assert!(bursts(&[&calm[..], &[600.0]].concat()) && bursts(&[&calm[..], &[600.0, 40.0]].concat()));
        assert!(!bursts(&[&calm[..], &[600.0, 40.0, 40.0]].concat()));
        // What lasts is a new load; and of a young one it is not known.
        assert!(!bursts(&[&calm[..], &[600.0; 13]].concat()));
        assert!(!bursts(&[40.0, 40.0, 600.0]));
    }
}
