//! Correcting: feedback and phases for every partition that was granted.

use super::flooding::{SURPLUS_KNOWN, with_surplus};
use super::scenes::Scenes;
use super::volume::Volume;
use super::{Change, Controller};
use crate::decision::{DecisionKind, Fact};
use crate::feedback::Law;
use crate::inventory::VolumeId;
use crate::needs::Seen;
use std::collections::BTreeMap;

/// An error that falls below this part of the one before is that of a backlog which is worked off (ours).
const DRAINS: f64 = 0.8;
/// What misses by more than so many deviations, at least and at most so much of the bound, is no noise (ours).
const FAR_DEVIATIONS: f64 = 4.0;
const FAR_MIN: f64 = 0.5;
const FAR_MAX: f64 = 1.0;
/// A window of less than this level has much to spare (ours).
const SPARE_LEVEL: f64 = 0.5;

impl Controller {
    /// Feedback, phases and removal for every partition.
    pub(super) fn correct(&mut self, scenes: &mut Scenes, changes: &mut BTreeMap<VolumeId, Change>) {
        let granted: Vec<VolumeId> = self
            .volumes
            .iter()
            .filter(|(_, volume)| volume.grant.is_some() && !volume.is_spare())
            .map(|(id, _)| *id)
            .collect();
        let part_every = self.part_every(&granted);
        for id in granted {
            if changes.contains_key(&id) {
                continue;
            }
            if self.awaits_peak(id) {
                continue;
            }
            if let Some((changed, change)) = self.part(id, part_every, scenes, changes) {
                changes.insert(changed, change);
                continue;
            }
            let removed = if self.keeps_for_peak(id) { None } else { self.removal(id, scenes) };
            let change = removed.or_else(|| self.feedback(id, scenes));
            if let Some(change) = change {
                changes.insert(id, change);
            }
        }
    }

    fn feedback(&mut self, id: VolumeId, scenes: &mut Scenes) -> Option<Change> {
        let (served, share) = self.beneficiaries(id)?;
        let error = served
            .iter()
            .filter_map(|served| self.volumes.get(served)?.closed_excess())
            .max_by(f64::total_cmp);
        let closed = (served.iter().filter_map(|served| self.volumes.get(served)))
            .any(|volume| volume.tracks.iter().any(|track| track.closed));
        let rules = self.config.feedback;
        let mut flood = error.and_then(|error| self.flood(id, &served, error, scenes));
        let volume = self.volumes.get_mut(&id)?;
        let recent = volume.recent(self.config.recent_intervals);
        let phase = Volume::phase_of(&recent, recent.backlogged);
        let filling = volume.is_filling(&rules);
        let (used, came) = (volume.used_blocks, volume.used_blocks.saturating_sub(volume.used_before()));
        let grant = volume.grant.as_mut()?;
        grant.see_phase(phase);
        grant.refill.filled(came);
        if let Some(error) = error {
            grant.refill.window(self.step, error > 0.0, used.min(grant.blocks));
            grant.trims.window(error > 0.0, filling);
        }
        grant.judged += usize::from(error.is_some());
        let mut jumped = 0;
        let fell = grant.last_error.is_some_and(|error| 1.0 + error < SPARE_LEVEL);
        if closed {
            grant.last_error = error;
        }
        // What waited is worked off for a while after a flood: then windows become better and better.
        let drains = |error: f64, before: f64| error > 0.0 && error < DRAINS * before;
        let spoilt =
            flood.is_some() || error.zip(grant.flooded).is_some_and(|(error, before)| drains(error, before));
        if error.is_some() {
            grant.flooded = error.filter(|_| spoilt);
        }
        if spoilt {
            volume.steady = volume.steady.min(1);
        }
        if let Some(error) = error {
            if rules.law == Law::Plain {
                if !filling {
                    grant.push_error(error);
                }
            } else if filling && error < 0.0 {
                // Of a cache that fills only the last window speaks, and only if it conforms.
                grant.windows.clear();
                grant.push_error(error);
            } else if !filling && !spoilt {
                grant.push_error(error);
                jumped = grant.windows.changed();
            } else if flood.is_some() && (grant.windows.len() >= 3 || grant.windows.has_just_conformed()) {
                jumped = 1;
            }
            if jumped > 0 {
                grant.load_changed(if flood.is_some() { 0 } else { jumped });
                // At least as many intervals as windows: a window is never shorter.
                for other in served.iter().chain([&id]) {
                    if let Some(volume) = self.volumes.get_mut(other) {
                        volume.steady = volume.steady.min(jumped);
                    }
                }
            }
        }
        let known_service = self.volumes[&id].service.is_some();
        if let Some(flood) = &mut flood {
            flood.sudden = jumped > 0 && known_service;
        }
        let needed = error
            .filter(|_| rules.law == Law::Model)
            .and_then(|error| self.needed(id, &served, error, jumped > 0 || flood.is_some(), fell));
        let recalled = self.recall(id, error, jumped > 0, flood.is_some());
        let known = needed.into_iter().chain(recalled).max_by_key(|change| change.blocks);
        if known.is_some() {
            return known;
        }
        if let Some(change) = error.filter(|_| !spoilt).and_then(|error| self.worked_off(id, error, scenes)) {
            return Some(change);
        }
        if let Some(change) = self.in_vain(id, error, flood) {
            return Some(change);
        }
        self.resize(id, share, flood, scenes)
    }

    /// Tells what is known of the size that the load needs about the window that just closed; the size that is known to
    /// suffice, where a window missed by far.
    fn needed(
        &mut self,
        id: VolumeId,
        served: &[VolumeId],
        error: f64,
        is_another_load: bool,
        fell: bool,
    ) -> Option<Change> {
        let rate = self.arrival_rate(id, served);
        let (step, ceiling) = (self.step, self.blocks_ceiling(id));
        let volume = self.volumes.get_mut(&id)?;
        let (used, name) = (volume.used_blocks, volume.spec.name.clone());
        let grant = volume.grant.as_mut()?;
        let far = (FAR_DEVIATIONS * grant.windows.deviation()).clamp(FAR_MIN, FAR_MAX);
        let seen = Seen {
            at: step,
            // What was granted to work off what waited is not what the load needs.
            blocks: grant.kept_after.unwrap_or(grant.blocks),
            used,
            shrunk_from: grant.shrunk_from,
            rate,
            windows: grant.judged,
            fell: fell && error > far,
        };
        if error <= 0.0 {
            grant.needs.conformed(&seen);
            return None;
        }
        if !(is_another_load || error > far) {
            return None;
        }
        let known = grant.needs.missed(&seen)?.min(ceiling);
        if known <= grant.blocks || step < grant.limited_until {
            return None;
        }
        let facts = vec![
            Fact::number("size_before", grant.blocks as f64, "blocks"),
            Fact::number("size_after", known as f64, "blocks"),
            Fact::number("error", error, ""),
        ];
        Some(Change::new(
            known,
            DecisionKind::PhaseRemembered,
            format!("{name} gets the cache back that it was found to need"),
            facts,
        ))
    }

    /// The requests per second that arrived in the last interval at those that a partition serves, and at its own volume.
    fn arrival_rate(&self, id: VolumeId, served: &[VolumeId]) -> f64 {
        let others = served.iter().filter(|served| **served != id);
        let volumes = others.chain([&id]).filter_map(|id| self.volumes.get(id)?.history.back());
        volumes.map(|last| last.arrival_rate).sum()
    }

    /// Whom a partition serves, and the largest share of windows that any of them was promised.
    pub(super) fn beneficiaries(&self, id: VolumeId) -> Option<(Vec<VolumeId>, f64)> {
        let served = self.volumes.get(&id)?.grant.as_ref()?.serves.clone();
        let share = self.share_promised(&served);
        Some((served, share))
    }

    /// The largest share of windows that any of `volumes` was promised.
    pub(super) fn share_promised(&self, volumes: &[VolumeId]) -> f64 {
        volumes
            .iter()
            .filter_map(|served| self.volumes.get(served))
            .flat_map(|served| served.spec.objectives.iter().map(|objective| objective.conforming_share))
            .fold(0.0, f64::max)
    }

    /// The size that sufficed in a phase like that of the newest interval, if the load has left the phase that the
    /// present size is for: after one window that misses, or two that show the change.
    fn recall(&mut self, id: VolumeId, error: Option<f64>, jumped: bool, flooded: bool) -> Option<Change> {
        let (step, ceiling, held) = (self.step, self.blocks_ceiling(id), self.held_for_peak(id));
        let volume = self.volumes.get_mut(&id)?;
        let now = volume.newest_phase(self.config.recent_intervals)?;
        let least = volume.blocks_min();
        let name = volume.spec.name.clone();
        let grant = volume.grant.as_mut()?;
        // The working set is that of a window which lies before a step of the load, for the most part.
        let steps = grant.phase.is_some_and(|(phase, _)| phase.load_distance(&now) >= 1.0);
        let by_load = || volume.memory.recall_load(now).filter(|known| steps && *known > grant.blocks);
        let known = volume.memory.recall(now).or_else(by_load)?;
        let known = known.max(grant.needs.kept(step).unwrap_or(0)).max(held).clamp(least, ceiling.max(least));
        let left = grant.phase.is_none_or(|(phase, _)| phase.distance(&now) >= 1.0);
        let grows = known > grant.blocks && error.is_some_and(|error| error > 0.0) && (left || jumped);
        let shrinks = known < grant.blocks && jumped && error.is_some_and(|error| error < 0.0);
        // Within a fiftieth it is the size that it has.
        if !(grows || shrinks) || known.abs_diff(grant.blocks) * 50 < grant.blocks {
            return None;
        }
        // What hardly differs from what it has does not mend a flood: then it is another load, which the phase does not show yet.
        if flooded && grows && known < with_surplus(grant.blocks, SURPLUS_KNOWN) {
            return None;
        }
        let blocks = if flooded { with_surplus(known, SURPLUS_KNOWN).min(ceiling.max(least)) } else { known };
        let facts = vec![
            Fact::number("size_before", grant.blocks as f64, "blocks"),
            Fact::number("size_after", blocks as f64, "blocks"),
            Fact::number("size_remembered", known as f64, "blocks"),
            Fact::number("error", error.unwrap_or(0.0), ""),
        ];
        grant.phase = Some((now, 0));
        grant.insufficient = None;
        Some(Change {
            kept_after: (known < blocks).then_some(known),
            ..Change::new(
                blocks,
                DecisionKind::PhaseRemembered,
                format!("{name} gets the cache that sufficed in a phase like this one"),
                facts,
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::grant::Grant;
    use super::super::sample::Sample;
    use super::super::track::Track;
    use super::*;
    use crate::config::ControlConfig;
    use crate::conformance::{Judgement, Verdict};
    use crate::feedback::Phase;
    use crate::inventory::{HostId, VolumeSpec};
    use crate::windows::Windows;
    use forebay_units::Bytes;

    /// A volume with a cache of `blocks` in a phase in which 300 sufficed.
    fn remembering(blocks: u64) -> Controller {
        let mut controller =
            Controller::new(ControlConfig::default(), Bytes::mib(64), Vec::new(), Vec::new()).unwrap();
        controller.register(VolumeSpec::any()).unwrap();
        let volume = controller.volumes.get_mut(&VolumeId(1)).unwrap();
        let sample =
            Sample { arrival_rate: 100.0, miss_rate: 100.0, working_set: 1_000.0, ..Sample::default() };
        volume.history.push_back(sample);
        let phase = volume.newest_phase(1).expect("an interval");
        volume.memory.remember(phase, 300);
        volume.grant = Some(Grant { blocks, ..Grant::new(HostId(0), 100.0, Windows::assumed(0.05), 0) });
        controller
    }

    #[test]
    fn a_flood_is_not_answered_by_what_hardly_differs_from_the_size_that_it_came_over() {
        let recalled = |blocks, flooded| {
            let change = remembering(blocks).recall(VolumeId(1), Some(4.0), true, flooded);
            change.map(|change| (change.blocks, change.kept_after))
        };
        assert_eq!(recalled(200, false), Some((300, None)));
        assert_eq!(recalled(200, true), Some((375, Some(300)))); // a quarter more
        assert_eq!(recalled(250, false), Some((300, None)));
        assert_eq!(recalled(250, true), None); // 300 is less than a quarter more than 250
    }

    #[test]
    fn a_load_that_comes_back_is_known_before_its_working_set_is_seen() {
        let recalled = |rate_before, blocks, working_set| {
            let mut controller = remembering(blocks);
            let volume = controller.volumes.get_mut(&VolumeId(1)).unwrap();
            volume.history.back_mut().unwrap().working_set = working_set;
            volume.grant.as_mut().unwrap().phase = Some((Phase::of(rate_before, 1.0, 400), 0));
            controller.recall(VolumeId(1), Some(4.0), true, false).map(|change| change.blocks)
        };
        // 1,000 blocks are of its working set. Of half the load before 400 were, and the window still lies there.
        assert_eq!([recalled(50.0, 200, 400.0), recalled(50.0, 200, 1_000.0)], [Some(300); 2]);
        // The same load with another working set is another phase, and nothing is taken away for what is not seen.
        assert_eq!([recalled(100.0, 200, 400.0), recalled(50.0, 400, 400.0)], [None; 2]);
    }

    #[test]
    fn what_a_remembered_size_is_exceeded_by_is_kept_until_the_cache_has_learned() {
        let given_back = |error, learning| {
            let mut controller = remembering(375);
            let grant = controller.volumes.get_mut(&VolumeId(1)).unwrap().grant.as_mut().unwrap();
            (grant.kept_after, grant.learning) = (Some(300), learning);
            let change = controller.worked_off(VolumeId(1), error, &mut Scenes::default());
            change.map(|change| change.blocks)
        };
        assert_eq!(
            [(-0.1, 0), (-0.1, 1), (0.1, 0)].map(|(error, learning)| given_back(error, learning)),
            [Some(300), None, None]
        );
    }

    /// The controller hears of a window that was `error` beyond its bound; of one that asked for too little to be judged where there is none.
    fn closes(controller: &mut Controller, error: Option<f64>) -> Option<Change> {
        let verdict = if error.is_some() { Verdict::Conforming } else { Verdict::LowLoad };
        let last =
            Judgement { verdict, value: error, excess: error.unwrap_or(0.0), requests: 100, failed: 0 };
        let mut track = Track::default();
        (track.last, track.closed) = (Some(last), true);
        controller.volumes.get_mut(&VolumeId(1)).unwrap().tracks = vec![track];
        controller.feedback(VolumeId(1), &mut Scenes::default())
    }

    /// A cache of 400 blocks that was shrunk by a hundredth, with all of its blocks in use.
    fn shrunk_a_little() -> Controller {
        let mut controller = remembering(400);
        let volume = controller.volumes.get_mut(&VolumeId(1)).unwrap();
        volume.used_blocks = 400;
        let grant = volume.grant.as_mut().unwrap();
        (grant.serves, grant.shrunk_from) = (vec![VolumeId(1)], Some(404));
        controller
    }

    #[test]
    fn a_shrink_led_over_a_cliff_only_from_the_window_before() {
        let blamed = |errors: &[Option<f64>]| {
            let mut controller = shrunk_a_little();
            errors.iter().for_each(|error| drop(closes(&mut controller, *error)));
            let grant = controller.volumes[&VolumeId(1)].grant.as_ref().unwrap();
            grant.needs.kept(controller.step)
        };
        // At a tenth of the bound, and then beyond it by more than four deviations and half of it.
        assert_eq!(blamed(&[Some(-0.9), Some(0.6)]), Some(404));
        // In between nothing was asked: from where it fell is not known.
        assert_eq!(blamed(&[Some(-0.9), None, Some(0.6)]), None);
        assert_eq!(blamed(&[Some(-0.4), Some(0.6)]), None);
    }

    #[test]
    fn a_small_shrink_is_to_blame_for_what_misses_by_far_and_for_nothing_less() {
        let given_back = |error| {
            let change = shrunk_a_little().needed(VolumeId(1), &[VolumeId(1)], error, true, true);
            change.map(|change| change.blocks)
        };
        // Four deviations of 0.05 are 0.2, and less than half of the bound is never far.
        assert_eq!([0.2, 0.49, 0.51].map(given_back), [None, None, Some(404)]);
    }

    #[test]
    fn a_trim_that_comes_to_nothing_is_none_that_could_be_regretted() {
        // Of 1,024 blocks 300 are filled; `needed` were found to be needed, and are kept for a while.
        let trimmed = |needed| {
            let mut controller = remembering(1_024);
            let volume = controller.volumes.get_mut(&VolumeId(1)).unwrap();
            volume.used_blocks = 300;
            let grant = volume.grant.as_mut().unwrap();
            grant.serves = vec![VolumeId(1)];
            let seen = Seen {
                at: 0,
                blocks: needed,
                used: needed,
                shrunk_from: None,
                rate: 100.0,
                windows: 1,
                fell: false,
            };
            grant.needs.missed(&seen);
            grant.needs.conformed(&seen);
            let change = closes(&mut controller, Some(-0.9)).map(|change| change.blocks);
            // It grows, and after a trim two windows instead of one must conform before the next.
            let mut trims = controller.volumes[&VolumeId(1)].grant.as_ref().unwrap().trims;
            trims.grown();
            trims.window(false, true);
            (change, !trims.may())
        };
        assert_eq!(trimmed(1), (Some(300), true));
        assert_eq!(trimmed(1_024), (None, false));
    }
}
