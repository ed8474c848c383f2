//! Resizing: what the law makes of the windows of those that a cache serves.

use super::flooding::{SURPLUS_FOUND, with_surplus};
use super::scene::Scene;
use super::scenes::Scenes;
use super::volume::Volume;
use super::{Change, Controller};
use crate::decision::{DecisionKind, Fact};
use crate::feedback::{Correction, FeedbackInput, HoldReason, Law, correct};
use crate::inventory::VolumeId;
use crate::model_law::{Flood, Goal, ModelInput, correct_by_model};
use crate::sizing::smallest;

/// The size of a cache, and what the law may make of it. In blocks.
struct Sizes {
    now: u64,
    min: u64,
    max: u64,
    chunk: u64,
    /// The last increment is still filling.
    filling: bool,
}

impl Sizes {
    /// In whole chunks, and no more than there may be.
    fn in_chunks(&self, blocks: u64) -> u64 {
        blocks.next_multiple_of(self.chunk).min(self.max)
    }
}

impl Controller {
    /// What the law makes of the windows.
    pub(super) fn resize(
        &mut self,
        id: VolumeId,
        share: f64,
        flood: Option<Flood>,
        scenes: &mut Scenes,
    ) -> Option<Change> {
        let sizes = self.sizes(id)?;
        let (correction, model) = match self.config.feedback.law {
            Law::Plain => (self.by_feedback(id, &sizes, share)?, None),
            Law::Model => self.by_model(id, &sizes, share, flood, scenes)?,
        };
        if flood.is_none() {
            self.see_worth(id, scenes);
        }
        let correction = match correction {
            Correction::Grow { blocks, error } => {
                Correction::Grow { blocks: self.grown(id, blocks, model, flood, &sizes, scenes), error }
            }
            Correction::Shrink { blocks, error } => self.shrunk(id, blocks, error, &sizes)?,
            other => other,
        };
        let ratio = match correction {
            Correction::Grow { blocks, .. } | Correction::Shrink { blocks, .. } => {
                self.model_ratio(id, blocks, scenes)
            }
            _ => None,
        };
        let change = self.change(id, correction, model, &sizes)?;
        (change.blocks != sizes.now).then_some(Change { ratio, ..change })
    }

    fn sizes(&self, id: VolumeId) -> Option<Sizes> {
        let rules = &self.config.feedback;
        let (volume, ceiling) = (&self.volumes[&id], self.blocks_ceiling(id));
        let now = volume.grant.as_ref()?.blocks;
        let ceiling = match rules.law {
            Law::Plain => ceiling,
            Law::Model => ceiling.min(volume.useful_max().unwrap_or(u64::MAX)),
        };
        Some(Sizes {
            now,
            min: volume.blocks_min(),
            max: ceiling.max(now),
            chunk: volume.chunk_blocks(self.config.chunk_bytes),
            filling: volume.is_filling(rules),
        })
    }

    /// The law `plain`.
    fn by_feedback(&self, id: VolumeId, sizes: &Sizes, share: f64) -> Option<Correction> {
        let grant = self.volumes[&id].grant.as_ref()?;
        let errors: Vec<f64> = grant.errors.iter().copied().collect();
        let input = FeedbackInput {
            blocks: sizes.now,
            chunk_blocks: sizes.chunk,
            blocks_min: sizes.min,
            blocks_max: sizes.max,
            errors: &errors,
            conforming_share: share,
            age: grant.age,
            guard: if sizes.filling { grant.guard } else { 0 },
            model_blocks: None,
            insufficient_blocks: grant.insufficient,
        };
        Some(correct(&input, &self.config.feedback))
    }

    /// The law `model`, and the size that the model was asked for last.
    fn by_model(
        &mut self,
        id: VolumeId,
        sizes: &Sizes,
        share: f64,
        flood: Option<Flood>,
        scenes: &mut Scenes,
    ) -> Option<(Correction, Option<u64>)> {
        let rules = self.config.feedback;
        let volume = &self.volumes[&id];
        let grant = volume.grant.as_ref()?;
        let windows = grant.windows.clone();
        let input = ModelInput {
            blocks: sizes.now,
            used: volume.used_blocks,
            chunk_blocks: sizes.chunk,
            blocks_min: sizes.min,
            blocks_max: sizes.max,
            windows: &windows,
            conforming_share: share,
            sufficed: grant.shrunk_from,
            largest: grant.largest,
            grows: grant.grows,
            shrinks: grant.shrinks,
            age: grant.judged,
            intervals_since_change: grant.age,
            filling: sizes.filling,
            trims: grant.trims.may(),
            learning: grant.learning > 0,
            fresh: grant.fresh,
            bursting: flood.is_some() && volume.is_bursting(),
            flood,
        };
        let mut model = None;
        let correction = correct_by_model(&input, &rules, |goal| {
            model = self.model_blocks(id, goal, scenes);
            model
        });
        Some((correction, model))
    }

    /// What a block is worth now, of one that has learned: if the model was asked in this step at all.
    fn see_worth(&mut self, id: VolumeId, scenes: &Scenes) {
        if let Some(&index) = scenes.by_origin.get(&self.volumes[&id].spec.origin)
            && let Some(place) = scenes.list[index].place(id)
            && let Some(grant) = self.volumes.get_mut(&id).and_then(|volume| volume.grant.as_mut())
            && grant.learning == 0
        {
            grant.worth = Some(scenes.list[index].parties[place].worth());
        }
    }

    /// Where a step to `blocks` falls short of what does something, to that.
    fn grown(
        &mut self,
        id: VolumeId,
        blocks: u64,
        model: Option<u64>,
        flood: Option<Flood>,
        sizes: &Sizes,
        scenes: &mut Scenes,
    ) -> u64 {
        let Some(wanted) = model else { return blocks };
        // Half of the way to the foot of a cliff brings nothing.
        let is_short = blocks < wanted.min(sizes.max) && self.is_before_a_cliff(id, blocks, wanted, scenes);
        let blocks = if is_short { sizes.in_chunks(wanted) } else { blocks };
        match flood.is_some_and(|flood| flood.sudden) && wanted <= blocks {
            true => sizes.in_chunks(with_surplus(blocks, SURPLUS_FOUND)),
            false => blocks,
        }
    }

    /// What is left of a shrink to `blocks`.
    fn shrunk(&self, id: VolumeId, blocks: u64, error: f64, sizes: &Sizes) -> Option<Correction> {
        let (step, rules) = (self.step, &self.config.feedback);
        let volume = &self.volumes[&id];
        let grant = volume.grant.as_ref()?;
        // A neighbour that it served takes its time to do without it; one that serves its volume gives up its part first.
        let is_short = |id: &VolumeId| self.volumes.get(id).is_some_and(|other| other.is_short(rules));
        if step < grant.held_until || grant.parted.iter().any(is_short) {
            return Some(Correction::Hold(HoldReason::AtFloor));
        }
        let at_least = |blocks: u64| blocks.next_multiple_of(sizes.chunk).min(sizes.now);
        // What was regretted is not done again soon.
        let kept = grant.needs.kept(step).unwrap_or(0).max(self.held_for_peak(id));
        let blocks = if blocks < kept { at_least(kept) } else { blocks };
        // What took long to fill is not given up on a short look; what was never filled is no loss.
        let floor = match rules.law {
            Law::Plain => 0,
            Law::Model => grant.refill.floor(step).min(volume.used_blocks),
        };
        if blocks >= floor {
            return Some(Correction::Shrink { blocks, error });
        }
        let blocks = at_least(floor);
        if blocks as f64 > sizes.now as f64 * (1.0 - rules.model_dead_band) {
            return Some(Correction::Hold(HoldReason::TooYoung));
        }
        Some(Correction::Shrink { blocks, error })
    }

    /// Carries a correction out, or remembers the size that needs none.
    fn change(
        &mut self,
        id: VolumeId,
        correction: Correction,
        model: Option<u64>,
        sizes: &Sizes,
    ) -> Option<Change> {
        let (step, shrink_after) = (self.step, self.config.feedback.shrink_after);
        let volume = self.volumes.get_mut(&id)?;
        let recent = volume.recent(self.config.recent_intervals);
        let phase = Volume::phase_of(&recent, recent.backlogged);
        let name = volume.spec.name.clone();
        let grant = volume.grant.as_mut()?;
        let mut facts = vec![
            Fact::number("size_before", sizes.now as f64, "blocks"),
            Fact::number("intervals_since_change", grant.age as f64, ""),
            Fact::number("windows_judged", grant.windows.len() as f64, ""),
            Fact::number("windows_deviate_by", grant.windows.deviation(), ""),
        ];
        facts.extend(model.map(|blocks| Fact::number("model_size", blocks as f64, "blocks")));
        let is_new = grant.tried.zip(model).is_some_and(|(tried, wanted)| wanted > tried);
        let limited = step < grant.limited_until;
        let (kind, blocks, error, summary) = match correction {
            Correction::Grow { blocks, error } if !limited || is_new => {
                grant.insufficient = Some(grant.insufficient.unwrap_or(0).max(grant.blocks));
                let summary = format!(
                    "the cache of {name} grows: those it serves are {:.0} % beyond their objective",
                    error * 100.0
                );
                (DecisionKind::Grown, blocks, error, summary)
            }
            Correction::Shrink { blocks, error } => {
                if sizes.filling && blocks < sizes.now {
                    grant.trims.trimmed();
                }
                let summary = format!(
                    "the cache of {name} shrinks: those it serves have {:.0} % of slack",
                    -error * 100.0
                );
                (DecisionKind::Shrunk, blocks, error, summary)
            }
            Correction::Hold(HoldReason::WithinBand | HoldReason::TooYoung) => {
                // What has just changed is not known to suffice, nor is it known which phase it is.
                let now = volume.history.back().map(|last| Volume::phase_of(last, recent.backlogged));
                let lasts = now.is_some_and(|now| phase.distance(&now) < 0.5);
                if grant.windows.len() >= shrink_after && lasts {
                    let blocks = grant.blocks;
                    grant.fresh = false;
                    volume.memory.remember(phase, blocks);
                }
                return None;
            }
            Correction::Grow { .. } | Correction::Exhausted { .. } | Correction::Hold(_) => return None,
        };
        facts.push(Fact::number("error", error, ""));
        facts.push(Fact::number("size_after", blocks as f64, "blocks"));
        Some(Change::new(blocks, kind, summary, facts))
    }

    /// See [`super::party::Party::is_before_a_cliff`].
    fn is_before_a_cliff(&mut self, id: VolumeId, step: u64, wanted: u64, scenes: &mut Scenes) -> bool {
        let (index, place) = self.scene_place(scenes, id);
        scenes.list[index].parties[place].is_before_a_cliff(step, wanted)
    }

    /// The smallest size with which the model predicts that those whom a partition serves reach `goal`, others as they are.
    fn model_blocks(&mut self, id: VolumeId, goal: Goal, scenes: &mut Scenes) -> Option<u64> {
        let served = self.volumes[&id].grant.as_ref()?.serves.clone();
        let chunk_blocks = self.volumes[&id].chunk_blocks(self.config.chunk_bytes);
        let ceiling = self.blocks_ceiling(id);
        let (index, place) = self.scene_place(scenes, id);
        let scene = &scenes.list[index];
        scene.parties[place].curve()?;
        let base = scene.blocks();
        if let Goal::Hits(more) = goal {
            let party = &scene.parties[place];
            let missed = |blocks: u64| 1.0 - party.hit_ratio(blocks);
            let sizing = smallest(ceiling, chunk_blocks, missed(base[place]) - more, missed);
            return sizing.reached.then_some(sizing.blocks);
        }
        let size = |scene: &Scene| {
            let served = scene.places(&served);
            let mut trial = scene.trial(&base);
            let now = 1.0 + trial.worst(&served);
            if !now.is_finite() {
                return None;
            }
            let goal_excess = match goal {
                Goal::Bound => -self.config.sizing_margin,
                Goal::Level(level) => level - 1.0,
                Goal::Times(ratio) => now.max(1e-6) * ratio - 1.0,
                Goal::Hits(_) => unreachable!("answered above"),
            };
            let sizing = smallest(ceiling, chunk_blocks, goal_excess, |blocks| {
                trial.set(place, blocks);
                trial.worst(&served)
            });
            let blocks = match goal {
                Goal::Level(_) => {
                    scene.parties[place].known_step(sizing.blocks).max(base[place].min(sizing.blocks))
                }
                _ => sizing.blocks,
            };
            sizing.reached.then_some(blocks)
        };
        // Of what the cache of a loop does for others the model knows no size, if that would ask for more whatever it gets.
        let serves_others = served.iter().any(|served| *served != id);
        size(scene).or_else(|| size(&scene.with_limited_loop(place).filter(|_| serves_others)?))
    }

    /// The level that the model predicts those whom a partition serves with a cache of `blocks`, over that with the present one.
    pub(super) fn model_ratio(&mut self, id: VolumeId, blocks: u64, scenes: &mut Scenes) -> Option<f64> {
        let served = self.volumes[&id].grant.as_ref()?.serves.clone();
        let (index, place) = self.scene_place(scenes, id);
        let scene = &scenes.list[index];
        scene.parties[place].curve()?;
        let served = scene.places(&served);
        let mut trial = scene.trial(&scene.blocks());
        let now = 1.0 + trial.worst(&served);
        trial.set(place, blocks);
        let then = 1.0 + trial.worst(&served);
        let ratio = then / now;
        (now > 1e-6 && ratio > 0.0 && ratio.is_finite()).then_some(ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::super::grant::Grant;
    use super::*;
    use crate::config::ControlConfig;
    use crate::inventory::{HostId, VolumeSpec};
    use crate::windows::Windows;
    use forebay_units::Bytes;

    const SIZES: Sizes = Sizes { now: 100, min: 0, max: 1_000, chunk: 1, filling: false };

    /// Two volumes with full caches of 100 blocks, in step 3.
    fn pair() -> Controller {
        let mut controller =
            Controller::new(ControlConfig::default(), Bytes::mib(64), Vec::new(), Vec::new()).unwrap();
        for id in [VolumeId(1), VolumeId(2)] {
            controller.register(VolumeSpec { id, ..VolumeSpec::any() }).unwrap();
            let volume = controller.volumes.get_mut(&id).unwrap();
            volume.used_blocks = 100;
            let grant = Grant::new(HostId(0), 100.0, Windows::assumed(0.05), 0);
            volume.grant = Some(Grant { blocks: 100, serves: vec![id], ..grant });
        }
        controller.step = 3;
        controller
    }

    fn grant(controller: &mut Controller) -> &mut Grant {
        controller.volumes.get_mut(&VolumeId(1)).unwrap().grant.as_mut().unwrap()
    }

    #[test]
    fn a_cache_does_not_shrink_while_a_neighbour_that_it_parted_from_is_short_or_has_to_give_up_its_part_first()
     {
        let shrinks = |held_until: u64, has_parted: bool, neighbour_used: u64| {
            let mut controller = pair();
            grant(&mut controller).held_until = held_until;
            grant(&mut controller).parted.extend(has_parted.then_some(VolumeId(2)));
            // One that has just been given a cache that is not full fills it.
            controller.volumes.get_mut(&VolumeId(2)).unwrap().used_blocks = neighbour_used;
            let left = controller.shrunk(VolumeId(1), 50, -0.5, &SIZES);
            match left {
                Some(Correction::Shrink { blocks: 50, .. }) => true,
                Some(Correction::Hold(HoldReason::AtFloor)) => false,
                other => panic!("{other:?}"),
            }
        };
        assert!(shrinks(0, false, 0) && shrinks(0, true, 100));
        assert!(!shrinks(0, true, 0));
        // It is held until step 3, and no longer.
        assert!(shrinks(3, false, 100) && !shrinks(4, false, 100));
    }

    #[test]
    fn what_a_cache_was_not_given_is_not_asked_for_again_for_a_while_unless_more_than_that_is_wanted() {
        let grows = |limited_until: u64, tried: Option<u64>, wanted: u64| {
            let mut controller = pair();
            (grant(&mut controller).limited_until, grant(&mut controller).tried) = (limited_until, tried);
            let correction = Correction::Grow { blocks: 150, error: 0.5 };
            controller.change(VolumeId(1), correction, Some(wanted), &SIZES).is_some()
        };
        assert!(grows(3, None, 300));
        assert!(!grows(4, None, 300) && !grows(4, Some(300), 300));
        assert!(grows(4, Some(200), 300));
    }

    #[test]
    fn the_largest_size_that_did_not_suffice_is_kept() {
        let kept = |before: Option<u64>| {
            let mut controller = pair();
            grant(&mut controller).insufficient = before;
            let correction = Correction::Grow { blocks: 150, error: 0.5 };
            controller.change(VolumeId(1), correction, None, &SIZES);
            grant(&mut controller).insufficient
        };
        assert_eq!([None, Some(80), Some(120)].map(kept), [Some(100), Some(100), Some(120)]);
    }
}
