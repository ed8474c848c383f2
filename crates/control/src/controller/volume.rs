//! What the controller remembers of one volume. Every list has a written maximum.

use super::contention::Stake;
use super::scene::violation;
use super::spare::Unmended;
use super::unhelped::Unhelped;
use crate::config::ControlConfig;
use crate::conformance::{Judgement, Verdict, WindowTotals, judge};
use crate::feedback::{FeedbackRules, Law, Phase, PhaseMemory};
use crate::foresight::{Foreseen, History};
use crate::inventory::{HostId, VolumeId, VolumeSpec};
use crate::needs::Needs;
use crate::objective::{Objective, Target};
use crate::observation::VolumeObservation;
use crate::performance::Service;
use crate::removal::RemovalCounters;
use crate::violation::{Assessment, Episode, assess};
use crate::windows::Windows;
use forebay_locality::MissRatioCurve;
use forebay_units::Nanos;
use forebay_workload::statistics::percentile;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

/// Windows whose verdicts are kept per objective.
const VERDICTS_MAX: usize = 64;
/// Hot zones that are kept of an earlier interval.
const ZONES_MAX: usize = 1_024;
/// Intervals between two memories of the hot zones (ours).
const ZONES_EVERY: u64 = 5;
/// Errors that are kept since a partition was last changed.
const ERRORS_MAX: usize = 64;

/// The part of its most outstanding requests by which those of a closed loop differ between intervals (ours).
const MOST_ALIKE: f64 = 0.05;
/// The part of them that is outstanding on average where nobody thinks between two requests (ours).
const CLOSED_DEPTH_MIN: f64 = 0.9;
/// A load is a burst at so many times the rate of most of its history, if that is so long (ours).
const BURST: f64 = 2.0;
const BURST_HISTORY: usize = 12;
/// What is read for the first time soon, as a part of all that was read so far (ours).
const SEEN_SOON: f64 = 0.05;
/// A cache that answers at most so much of the reads does not help (ours).
const HELPED: f64 = 0.05;
/// A cache that would take more intervals to fill does not (ours).
const FILLS_IN: u64 = 500;
/// Intervals after which another phase is a new one and no outlier (ours).
const PHASE_LASTS: usize = 4;

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
    /// A cache was granted for it and fills.
    Acting,
    /// The cache that serves it is being corrected by feedback.
    Correcting,
}

/// One interval of a volume, in per-second rates and seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub(super) arrival_rate: f64,
    pub(super) hit_rate: f64,
    pub(super) miss_rate: f64,
    /// Misses that were reads of their own at the origin: the others joined one under way.
    pub(super) origin_read_rate: f64,
    pub(super) write_rate: f64,
    pub(super) hit_latency: f64,
    pub(super) miss_latency: f64,
    pub(super) write_latency: f64,
    pub(super) outstanding: f64,
    /// The most at any instant.
    pub(super) outstanding_max: f64,
    /// Requests that had arrived and were not answered when it ended.
    pub(super) waiting: f64,
    pub(super) backlogged: bool,
    /// As many requests are outstanding all along, and never more: so it is with clients that wait for answers and do not think.
    pub(super) keeps_full: bool,
    pub(super) read_bytes: f64,
    pub(super) write_bytes: f64,
    pub(super) working_set: f64,
    pub(super) invalidated: f64,
    pub(super) filled: f64,
}

impl Sample {
    /// The sample of an interval that began with `waiting` requests under way.
    fn of(observed: &VolumeObservation, interval: Nanos, waiting: f64, config: &ControlConfig) -> Sample {
        let seconds = interval.as_secs_f64().max(1e-9);
        let rate = |count: u64| count as f64 / seconds;
        let mean = |mean: Option<Nanos>| mean.map_or(0.0, Nanos::as_secs_f64);
        let per = |bytes: u64, count: u64| if count == 0 { 0.0 } else { bytes as f64 / count as f64 };
        let outstanding = observed.outstanding_mean(interval);
        let idle = observed.idle.0 as f64 / interval.0.max(1) as f64;
        let rules = &config.conformance;
        Sample {
            arrival_rate: rate(observed.arrivals),
            hit_rate: rate(observed.hits.count()),
            miss_rate: rate(observed.misses.count()),
            origin_read_rate: rate(observed.misses.count().min(observed.origin_reads.unwrap_or(u64::MAX))),
            write_rate: rate(observed.writes.count()),
            hit_latency: mean(observed.hits.mean()),
            miss_latency: mean(observed.misses.mean()),
            write_latency: mean(observed.writes.mean()),
            outstanding,
            outstanding_max: f64::from(observed.outstanding_max),
            waiting: (waiting + observed.arrivals as f64 - observed.completed() as f64)
                .clamp(0.0, f64::from(observed.outstanding_max)),
            backlogged: observed.outstanding_max > 0
                && idle <= rules.backlog_idle_share_max
                && outstanding >= rules.backlog_depth_min * f64::from(observed.outstanding_max),
            keeps_full: false,
            read_bytes: per(observed.bytes_read.get(), observed.reads()),
            write_bytes: per(observed.bytes_written.get(), observed.writes.count()),
            working_set: observed.working_set_blocks as f64,
            invalidated: observed.cache.invalidated_blocks as f64,
            filled: observed.cache.filled_blocks as f64,
        }
    }

    /// Completed requests per second.
    pub(super) fn rate(&self) -> f64 {
        self.hit_rate + self.miss_rate + self.write_rate
    }

    /// Requests per second that reached the origin.
    pub(super) fn origin_rate(&self) -> f64 {
        self.miss_rate + self.write_rate
    }

    /// Mean latency at the origin, weighted by requests; 0 without any.
    pub(super) fn origin_latency(&self) -> f64 {
        let rate = self.origin_rate();
        if rate > 0.0 {
            (self.miss_rate * self.miss_latency + self.write_rate * self.write_latency) / rate
        } else {
            0.0
        }
    }

    /// The mean of some samples: rates by interval, latencies by request.
    pub(super) fn mean<'a>(samples: impl Iterator<Item = &'a Sample> + Clone) -> Sample {
        let count = samples.clone().count().max(1) as f64;
        let average = |of: fn(&Sample) -> f64| samples.clone().map(of).sum::<f64>() / count;
        let weighted = |of: fn(&Sample) -> f64, by: fn(&Sample) -> f64| {
            let weight: f64 = samples.clone().map(by).sum();
            if weight > 0.0 { samples.clone().map(|s| of(s) * by(s)).sum::<f64>() / weight } else { 0.0 }
        };
        let reads = |sample: &Sample| sample.hit_rate + sample.miss_rate;
        // A closed loop keeps its requests outstanding and takes the rate that it gets; an open one keeps its rate, and what
        // is outstanding varies: also at an origin that it overloads, where it is never idle either. By a twentieth
        // both may vary.
        let variation = |of: fn(&Sample) -> f64| {
            let mean = average(of);
            let squares = samples.clone().map(|sample| (of(sample) - mean).powi(2)).sum::<f64>();
            (squares / count).sqrt() / mean.max(1e-9)
        };
        let steady = variation(|s| s.outstanding) <= variation(|s| s.arrival_rate).max(0.05);
        // So many clients are so many requests at most, interval after interval.
        let most =
            |least, of: fn(f64, f64) -> f64| samples.clone().map(|s| s.outstanding_max).fold(least, of);
        let (least, most) = (most(f64::INFINITY, f64::min), most(0.0, f64::max));
        let alike = most - least <= (MOST_ALIKE * most).max(1.0);
        let keeps_full = alike && average(|s| s.outstanding) >= CLOSED_DEPTH_MIN * most;
        let backlogged = samples.clone().filter(|s| s.backlogged).count();
        Sample {
            arrival_rate: average(|s| s.arrival_rate),
            hit_rate: average(|s| s.hit_rate),
            miss_rate: average(|s| s.miss_rate),
            origin_read_rate: average(|s| s.origin_read_rate),
            write_rate: average(|s| s.write_rate),
            hit_latency: weighted(|s| s.hit_latency, |s| s.hit_rate),
            miss_latency: weighted(|s| s.miss_latency, |s| s.miss_rate),
            write_latency: weighted(|s| s.write_latency, |s| s.write_rate),
            outstanding: average(|s| s.outstanding),
            outstanding_max: most,
            waiting: samples.clone().last().map_or(0.0, |s| s.waiting),
            backlogged: steady && 2 * backlogged > samples.clone().count(),
            keeps_full,
            read_bytes: weighted(|s| s.read_bytes, reads),
            write_bytes: weighted(|s| s.write_bytes, |s| s.write_rate),
            working_set: average(|s| s.working_set),
            invalidated: average(|s| s.invalidated),
            filled: average(|s| s.filled),
        }
    }
}

/// One objective of a volume over time.
#[derive(Clone, Debug, Default)]
pub(super) struct Track {
    totals: WindowTotals,
    verdicts: VecDeque<Verdict>,
    pub(super) last: Option<Judgement>,
    /// Whether the interval just observed closed a window.
    pub(super) closed: bool,
    /// What is being missed, since its first window.
    pub(super) episode: Option<Episode>,
    /// Windows that conformed, that did not, and that asked for too little.
    pub(super) windows: [u64; 3],
}

impl Track {
    /// Share of the judged windows that conform; `None` where none was judged.
    pub(super) fn conforming_share(&self) -> Option<f64> {
        let count = |wanted| self.verdicts.iter().filter(|&&verdict| verdict == wanted).count();
        let (good, bad) = (count(Verdict::Conforming), count(Verdict::Nonconforming));
        (good + bad > 0).then(|| good as f64 / (good + bad) as f64)
    }

    /// Whether none of the windows that count missed.
    pub(super) fn is_kept(&self, config: &ControlConfig) -> bool {
        assess(self.verdicts.iter().copied(), &config.violation) == Assessment::Kept
    }

    /// Whether the last `count` windows conform or ask for too little, the newest of them conforming.
    fn has_recovered(&self, count: usize) -> bool {
        self.verdicts.len() >= count
            && self.verdicts.iter().rev().take(count).all(|&verdict| verdict != Verdict::Nonconforming)
    }
}

/// Intervals within which growth follows growth (ours).
const GROWS_SOON: usize = 8;

/// Intervals in which a full cache that has grown learns which blocks are used often (ours): with two pools it takes some
/// half a minute to a minute until a cache hits what it will.
const LEARNS: usize = 4;

/// Growth against a flood.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Effort {
    /// The size that it began with.
    pub(super) blocks: u64,
    /// The share of the requests that it answered at that time.
    pub(super) hits: f64,
    /// The error at that time, and a moving mean of it now.
    pub(super) before: f64,
    pub(super) now: f64,
    /// For how many intervals.
    pub(super) intervals: usize,
}

/// A partition that was granted.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    /// Whose objectives it serves: the volume itself, a neighbour, or both.
    pub(super) serves: Vec<VolumeId>,
    /// Neighbours that it served before their own caches did: while one of them misses it does not shrink.
    pub(super) parted: Vec<VolumeId>,
    /// The step before which it parts from nobody.
    pub(super) part_from: u64,
    pub(super) host: HostId,
    /// The quota last ordered.
    pub(super) blocks: u64,
    pub(super) rate_at_grant: f64,
    /// Intervals since the last change, and those that it needs to fill.
    pub(super) age: usize,
    pub(super) guard: usize,
    /// Intervals that it takes yet to find out which blocks are used often.
    pub(super) learning: usize,
    /// What a block was worth on the curve when it was last seen after that.
    pub(super) worth: f64,
    /// Intervals in which the origin answers what waited for it before.
    pub(super) drain: usize,
    /// Since the last change.
    pub(super) errors: VecDeque<f64>,
    /// Of this load, as they would have been at the present size.
    pub(super) windows: Windows,
    /// Windows judged since the last change.
    pub(super) judged: usize,
    /// The size that its load was found to need.
    pub(super) needs: Needs,
    /// How far those that are served were off in the last window of a flood, or of what waited when it ended.
    pub(super) flooded: Option<f64>,
    /// What is to be kept of the present size once what waited is worked off.
    pub(super) kept_after: Option<u64>,
    /// What the model finds sufficient, where that is being approached from below; else at most `blocks`.
    pub(super) wanted: u64,
    /// The errors are those of a load that has just changed.
    pub(super) fresh: bool,
    /// The largest size that failed in this phase.
    pub(super) insufficient: Option<u64>,
    /// The phase, and for how many intervals another one has been seen.
    pub(super) phase: Option<(Phase, usize)>,
    /// The largest size that it ever had.
    pub(super) largest: u64,
    /// The last change was a shrink to the present size, from this one.
    pub(super) shrunk_from: Option<u64>,
    /// Growth that followed growth soon.
    pub(super) grows: u32,
    /// Shrinks since the last growth.
    pub(super) shrinks: u32,
    /// Growth that has been trying to end a flood.
    pub(super) effort: Option<Effort>,
    /// How often that was in vain.
    pub(super) vain: u32,
    pub(super) removal: RemovalCounters,
    /// Intervals for which the observed quota differs from the ordered one.
    pub(super) mismatch: usize,
    /// It may not grow any further before this step.
    pub(super) limited_until: u64,
    /// What it was given in vain before, where that is why: what the model finds sufficient beyond it was not tried.
    pub(super) tried: Option<u64>,
    /// It is of memory that nobody wants.
    pub(super) is_spare: bool,
}

impl Grant {
    pub(super) fn new(host: HostId, rate_at_grant: f64, windows: Windows) -> Grant {
        Grant {
            serves: Vec::new(),
            parted: Vec::new(),
            part_from: 0,
            host,
            blocks: 0,
            rate_at_grant,
            age: 0,
            guard: 0,
            drain: 0,
            learning: 0,
            worth: 1.0,
            errors: VecDeque::new(),
            windows,
            judged: 0,
            needs: Needs::default(),
            flooded: None,
            kept_after: None,
            wanted: 0,
            fresh: false,
            insufficient: None,
            phase: None,
            largest: 0,
            shrunk_from: None,
            grows: 0,
            shrinks: 0,
            effort: None,
            vain: 0,
            removal: RemovalCounters::default(),
            mismatch: 0,
            limited_until: 0,
            tried: None,
            is_spare: false,
        }
    }

    /// Takes more beneficiaries in; whether there was a new one.
    pub(super) fn serve(&mut self, served: &[VolumeId]) -> bool {
        let before = self.serves.len();
        self.parted.retain(|id| !served.contains(id));
        for id in served {
            if !self.serves.contains(id) {
                self.serves.push(*id);
            }
        }
        self.serves.len() > before
    }

    pub(super) fn push_error(&mut self, error: f64) {
        self.windows.push(error, self.learning == 0);
        if self.errors.len() == ERRORS_MAX {
            self.errors.pop_front();
        }
        self.errors.push_back(error);
    }

    /// Sees a phase; a new one that lasts makes what failed in the old one count no more.
    pub(super) fn see_phase(&mut self, seen: Phase) {
        match &mut self.phase {
            Some((phase, others)) if phase.distance(&seen) >= 1.0 => {
                *others += 1;
                if *others >= PHASE_LASTS {
                    (self.phase, self.insufficient) = (Some((seen, 0)), None);
                }
            }
            Some((_, others)) => *others = 0,
            None => self.phase = Some((seen, 0)),
        }
    }

    /// Starts a new episode after the size changed; windows are expected to have `ratio` times the level from now on, if
    /// that can be said.
    pub(super) fn changed(&mut self, blocks: u64, guard: usize, drain: usize, ratio: Option<f64>) {
        self.shrunk_from = (blocks < self.blocks).then_some(self.blocks);
        self.grows = match blocks > self.blocks {
            true if self.age < GROWS_SOON => self.grows + 1,
            grows => u32::from(grows),
        };
        if blocks * 20 > self.blocks * 21 {
            self.learning = LEARNS;
            self.removal.grown();
        }
        self.shrinks = if blocks < self.blocks { self.shrinks + 1 } else { 0 };
        self.blocks = blocks;
        self.largest = self.largest.max(blocks);
        self.kept_after = None;
        (self.age, self.judged) = (0, 0);
        (self.guard, self.drain) = (guard, drain);
        self.windows.rescale(ratio);
        self.errors.clear();
        self.fresh = false;
    }

    /// Forgets what was seen of another load than that of the last `count` windows.
    pub(super) fn load_changed(&mut self, count: usize) {
        self.errors.drain(..self.errors.len().saturating_sub(count));
        self.windows.load_changed(count);
        self.fresh = true;
        self.insufficient = None;
    }
}

/// A volume.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    pub(super) spec: VolumeSpec,
    pub(super) state: VolumeState,
    pub(super) tracks: Vec<Track>,
    pub(super) history: VecDeque<Sample>,
    pub(super) curve: Option<Arc<MissRatioCurve>>,
    pub(super) curve_accesses: u64,
    pub(super) sequential_share: f64,
    pub(super) used_blocks: u64,
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
    /// The step before which the violation is not analysed again.
    pub(super) analyse_from: u64,
    /// When it needed a cache in the past.
    pub(super) past: History,
    /// When it will need one, or is expected to need one now.
    pub(super) foreseen: Option<Foreseen>,
    /// The beginning of the foreseen peak for which it was decided whether its cache makes room.
    pub(super) room_made_for: Option<u64>,
    /// The most that its cache could be where it is, or elsewhere, as whoever makes it says; `None` if nobody does.
    pub(super) room_blocks: Option<u64>,
    /// The least size of its cache since it was last needed.
    pub(super) rested_blocks: u64,
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
            state: VolumeState::Conforming,
            tracks,
            history: VecDeque::new(),
            curve: None,
            curve_accesses: 0,
            sequential_share: 0.0,
            used_blocks: 0,
            used_before: 0,
            steady: 0,
            earlier_zones: VecDeque::new(),
            grant: None,
            memory: PhaseMemory::default(),
            service: None,
            violated_since: None,
            analyse_from: 0,
            past: History::default(),
            foreseen: None,
            room_made_for: None,
            room_blocks: None,
            rested_blocks: 0,
            stake: None,
            unhelped: Unhelped::default(),
            unmended: Unmended::default(),
        }
    }

    /// Takes an interval in; windows that end are judged.
    pub(super) fn observe(
        &mut self,
        observed: &VolumeObservation,
        (at, interval): (Nanos, Nanos),
        step: u64,
        config: &ControlConfig,
    ) {
        if self.history.len() >= config.history_intervals {
            self.history.pop_front();
        }
        let waiting = self.history.back().map_or(0.0, |last| last.waiting);
        let rate_before = self.history.back().map_or(0.0, |last| last.arrival_rate);
        self.history.push_back(Sample::of(observed, interval, waiting, config));
        if let Some(curve) = &observed.curve {
            self.curve = Some(Arc::clone(curve));
            self.curve_accesses = observed.curve_accesses;
        }
        self.sequential_share = observed.sequential_share;
        (self.used_before, self.used_blocks) = (self.used_blocks, observed.cache.used_blocks);
        self.steady = self.steady.saturating_add(1);
        // What was seen before a burst says little of it.
        if self.history.back().is_some_and(|last| last.arrival_rate > BURST * rate_before) {
            self.steady = 1;
        }
        for (track, objective) in self.tracks.iter_mut().zip(&self.spec.objectives) {
            track.totals.add(observed, interval);
            // Half an interval of tolerance: timers are late.
            track.closed = track.totals.span.0 + interval.0 / 2 >= objective.window.0;
            if track.closed {
                let judgement = judge(objective, &track.totals, &config.conformance);
                if track.verdicts.len() == VERDICTS_MAX {
                    track.verdicts.pop_front();
                }
                track.verdicts.push_back(judgement.verdict);
                track.windows[match judgement.verdict {
                    Verdict::Conforming => 0,
                    Verdict::Nonconforming => 1,
                    Verdict::LowLoad => 2,
                }] += 1;
                match &mut track.episode {
                    Some(episode) => episode.go_on(at, &judgement),
                    None if judgement.verdict == Verdict::Nonconforming => {
                        track.episode = Some(Episode::begin(at, track.totals.span, &judgement));
                    }
                    None => {}
                }
                track.last = Some(judgement);
                track.totals = WindowTotals::default();
            }
        }
        self.see_unhelped();
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

    /// Keeps what the windows that just ended say of its load without a cache, if that was so.
    fn see_unhelped(&mut self) {
        let Some(last) = self.history.back().filter(|_| !self.tracks.is_empty()) else { return };
        let rate = last.arrival_rate;
        let judged =
            |track: &Track| track.closed && track.last.is_some_and(|last| last.verdict != Verdict::LowLoad);
        if last.hit_rate <= HELPED * (last.hit_rate + last.miss_rate) && self.tracks.iter().all(judged) {
            self.unhelped.see(rate, self.last_violation());
        }
    }

    /// The assessment of its worst objective, with that objective's place.
    pub(super) fn assess(&self, config: &ControlConfig) -> (Assessment, usize) {
        let severity = |assessment: &Assessment| match assessment {
            Assessment::Kept => (0, 0),
            Assessment::Suspected { nonconforming } => (1, *nonconforming),
            Assessment::Violated { nonconforming, .. } => (2, *nonconforming),
        };
        self.tracks
            .iter()
            .enumerate()
            .map(|(at, track)| (assess(track.verdicts.iter().copied(), &config.violation), at))
            .max_by_key(|(assessment, at)| (severity(assessment), std::cmp::Reverse(*at)))
            .unwrap_or((Assessment::Kept, 0))
    }

    /// Whether all its objectives have been kept for as many windows as made the violation.
    pub(super) fn has_recovered(&self, config: &ControlConfig) -> bool {
        self.tracks.iter().all(|track| track.has_recovered(config.violation.nonconforming))
    }

    /// Whether its last window missed, or its cache fills.
    pub(super) fn is_short(&self, rules: &FeedbackRules) -> bool {
        let missed = |track: &Track| track.verdicts.back() == Some(&Verdict::Nonconforming);
        self.tracks.iter().any(missed) || self.is_filling(rules)
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
