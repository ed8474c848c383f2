//! Grants: a partition that a volume has, whom it serves, and what is known of its size so far.

use crate::feedback::Phase;
use crate::inventory::{HostId, VolumeId};
use crate::needs::Needs;
use crate::refill::Refill;
use crate::removal::RemovalCounters;
use crate::trims::Trims;
use crate::windows::Windows;
use std::collections::VecDeque;

/// Errors that are kept since a partition was last changed.
const ERRORS_MAX: usize = 64;
/// Intervals after which another phase is a new one and no outlier (ours).
const PHASE_LASTS: usize = 4;
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
    /// The step before which it does not shrink, so that a neighbour's that does the same work does.
    pub(super) held_until: u64,
    pub(super) host: HostId,
    /// The step since which there is no cache, where none is: one that is an appliance has to be made first, and anew where its host fails.
    pub(super) awaited_since: Option<u64>,
    /// It was in place before, or is taken over from who had it so: what is to be loaded into a first one is ordered with it.
    pub(super) was_there: bool,
    /// What it held when it was last seen, in blocks; 0 where it was not.
    pub(super) held: u64,
    /// It was made anew since, and nothing was loaded into that yet.
    pub(super) made_anew: bool,
    /// The quota last ordered.
    pub(super) blocks: u64,
    pub(super) rate_at_grant: f64,
    /// Intervals since the last change, and those that it needs to fill.
    pub(super) age: usize,
    pub(super) guard: usize,
    /// Intervals that it takes yet to find out which blocks are used often.
    pub(super) learning: usize,
    /// What a block was worth on the curve when it was last seen after that.
    pub(super) worth: Option<f64>,
    /// Intervals in which the origin answers what waited for it before.
    pub(super) drain: usize,
    /// Since the last change.
    pub(super) errors: VecDeque<f64>,
    /// Of the last window that closed, at whatever size; `None` where it could not be judged.
    pub(super) last_error: Option<f64>,
    /// Of this load, as they would have been at the present size.
    pub(super) windows: Windows,
    /// Windows judged since the last change.
    pub(super) judged: usize,
    /// The size that its load was found to need.
    pub(super) needs: Needs,
    /// What it takes to fill again what a shrink would take.
    pub(super) refill: Refill,
    /// How long windows must conform before what is not filled is taken away.
    pub(super) trims: Trims,
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
    /// Its size is the controller's own, found for a promise, and not what another controller or a person gave it.
    pub(super) is_own: bool,
}

impl Grant {
    pub(super) fn new(host: HostId, rate_at_grant: f64, windows: Windows, step: u64) -> Grant {
        Grant {
            serves: Vec::new(),
            parted: Vec::new(),
            part_from: 0,
            held_until: 0,
            host,
            awaited_since: Some(step),
            was_there: false,
            held: 0,
            made_anew: false,
            blocks: 0,
            rate_at_grant,
            age: 0,
            guard: 0,
            drain: 0,
            learning: 0,
            worth: None,
            errors: VecDeque::new(),
            last_error: None,
            windows,
            judged: 0,
            needs: Needs::default(),
            refill: Refill::default(),
            trims: Trims::default(),
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
            is_own: false,
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
        if blocks > self.blocks {
            self.trims.grown();
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

    /// There is nothing in it any more, and it takes so many intervals to fill: what it misses meanwhile says nothing of its size.
    pub(super) fn emptied(&mut self, guard: usize) {
        self.learning = LEARNS;
        self.removal.grown();
        self.trims.grown();
        (self.age, self.judged, self.guard) = (0, 0, guard);
        self.errors.clear();
    }

    /// Forgets what was seen of another load than that of the last `count` windows.
    pub(super) fn load_changed(&mut self, count: usize) {
        self.errors.drain(..self.errors.len().saturating_sub(count));
        self.windows.load_changed(count);
        // Only a small step leaves enough of the windows before it to tell: what they miss they miss of the new load, not of what the cache still learns.
        if count > 0 {
            self.learning = 0;
        }
        self.fresh = true;
        self.insufficient = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_new_load_misses_is_no_want_of_learning() {
        // Windows at .95 of the bound; a step of 5.5 % that the model expects a fiftieth of; then two at one and a half of it.
        let learns_after = |blocks, ratio| {
            let mut grant = Grant::new(HostId(0), 100.0, Windows::assumed(0.03), 0);
            grant.changed(1_000, 0, 0, None);
            grant.learning = 0;
            (0..10).for_each(|_| grant.push_error(-0.05));
            grant.changed(blocks, 0, 0, Some(ratio));
            (0..2).for_each(|_| grant.push_error(0.5));
            let jumped = grant.windows.changed();
            if jumped > 0 {
                grant.load_changed(jumped);
            }
            (jumped, grant.learning)
        };
        assert_eq!(learns_after(1_055, 0.98), (2, 0));
        // After a large one nothing is known to compare them with: it may be that the cache still finds its blocks.
        assert_eq!(learns_after(2_000, 0.6), (0, LEARNS));
    }
}
