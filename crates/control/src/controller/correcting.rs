//! Correcting: feedback, phases and removal for every partition that was granted.

use super::scene::Scene;
use super::scenes::Scenes;
use super::{Change, Controller};
use crate::decision::{DecisionKind, Fact};
use crate::feedback::{Correction, FeedbackInput, HoldReason, Phase, correct};
use crate::inventory::VolumeId;
use crate::removal::RemovalInput;
use crate::sizing::smallest;
use std::collections::BTreeMap;

/// Steps between two questions whether a partition is still needed (ours).
const REMOVAL_EVERY: u64 = 4;

impl Controller {
    /// Feedback, phases and removal for every partition.
    pub(super) fn correct(&mut self, scenes: &mut Scenes, changes: &mut BTreeMap<VolumeId, Change>) {
        let granted: Vec<VolumeId> =
            self.volumes.iter().filter(|(_, volume)| volume.grant.is_some()).map(|(id, _)| *id).collect();
        for id in granted {
            if changes.contains_key(&id) {
                continue;
            }
            let change = self.removal(id, scenes).or_else(|| self.feedback(id, scenes));
            if let Some(change) = change {
                changes.insert(id, change);
            }
        }
    }

    fn removal(&mut self, id: VolumeId, scenes: &mut Scenes) -> Option<Change> {
        let ask = (self.step + u64::from(id.0)).is_multiple_of(REMOVAL_EVERY);
        let served = self.volumes[&id].grant.as_ref()?.serves.clone();
        let excess_without = ask.then(|| {
            let (index, place) = self.scene_place(scenes, id);
            let scene = &scenes.list[index];
            let mut blocks = scene.blocks();
            blocks[place] = self.volumes[&id].blocks_min();
            worst_of(scene, &scene.excess(&blocks), &served)
        });
        // A beneficiary without load predicts nothing: only an answer with numbers counts.
        let excess_without = excess_without.filter(|excess| excess.is_finite());
        let config = &self.config;
        let load: f64 = served
            .iter()
            .filter_map(|id| self.volumes.get(id))
            .map(|v| v.recent(config.recent_intervals).rate())
            .sum();
        let volume = self.volumes.get_mut(&id)?;
        let recent = volume.recent(config.recent_intervals);
        let reads = recent.hit_rate + recent.miss_rate;
        let minimum = volume.blocks_min();
        let (used, name) = (volume.used_blocks, volume.spec.name.clone());
        let grant = volume.grant.as_mut()?;
        let input = RemovalInput {
            rate: load,
            rate_at_grant: grant.rate_at_grant,
            excess_without,
            hit_ratio: if reads > 0.0 { recent.hit_rate / reads } else { 0.0 },
            warm: used * 10 >= grant.blocks * 8,
        };
        let reason = grant.removal.observe(&input, &config.removal)?;
        if grant.blocks <= minimum {
            return None;
        }
        let mut facts = vec![
            Fact::number("size_before", grant.blocks as f64, "blocks"),
            Fact::number("load", input.rate, "requests/s"),
            Fact::number("load_at_grant", input.rate_at_grant, "requests/s"),
            Fact::number("hit_ratio", input.hit_ratio, ""),
            Fact::number("sustained", config.removal.sustained as f64, "intervals"),
        ];
        facts.extend(input.excess_without.map(|excess| Fact::number("predicted_excess_without", excess, "")));
        Some(Change {
            blocks: minimum,
            kind: DecisionKind::Removed,
            summary: format!("the cache of {name} is taken back: {reason}"),
            facts,
            serves: None,
        })
    }

    fn feedback(&mut self, id: VolumeId, scenes: &mut Scenes) -> Option<Change> {
        let step = self.step;
        let volume = &self.volumes[&id];
        let grant = volume.grant.as_ref()?;
        let error = grant
            .serves
            .iter()
            .filter_map(|served| self.volumes.get(served)?.closed_excess())
            .max_by(f64::total_cmp);
        let share = grant
            .serves
            .iter()
            .filter_map(|served| self.volumes.get(served))
            .flat_map(|served| served.spec.objectives.iter().map(|objective| objective.conforming_share))
            .fold(0.0, f64::max);
        let recent = volume.recent(self.config.recent_intervals);
        let intensity = if recent.backlogged { recent.outstanding * 100.0 } else { recent.arrival_rate };
        let reads = recent.hit_rate + recent.miss_rate;
        let phase = Phase::of(intensity, reads / recent.rate().max(1e-9), recent.working_set as u64);
        let chunk_blocks = volume.chunk_blocks(self.config.chunk_bytes);
        let (blocks_min, ceiling) = (volume.blocks_min(), self.blocks_ceiling(id));

        let volume = self.volumes.get_mut(&id)?;
        let remembered = volume.memory.recall(phase);
        let grant = volume.grant.as_mut()?;
        grant.see_phase(phase);
        if let Some(error) = error
            && grant.age > grant.guard.min(self.config.feedback.guard_max)
        {
            grant.push_error(error);
        }
        let errors: Vec<f64> = grant.errors.iter().copied().collect();
        let input = FeedbackInput {
            blocks: grant.blocks,
            chunk_blocks,
            blocks_min,
            blocks_max: ceiling.max(grant.blocks),
            errors: &errors,
            conforming_share: share,
            age: grant.age,
            guard: grant.guard,
            model_blocks: None,
            insufficient_blocks: grant.insufficient,
        };
        let limited = step < grant.limited_until;
        let mut correction = correct(&input, &self.config.feedback);
        let mut model = None;
        if matches!(correction, Correction::Grow { .. } | Correction::Shrink { .. }) {
            model = self.model_blocks(id, scenes);
            correction = correct(&FeedbackInput { model_blocks: model, ..input }, &self.config.feedback);
        }
        let volume = self.volumes.get_mut(&id)?;
        let name = volume.spec.name.clone();
        let grant = volume.grant.as_mut()?;
        let mut facts = vec![
            Fact::number("size_before", input.blocks as f64, "blocks"),
            Fact::number("intervals_since_change", input.age as f64, ""),
            Fact::number("windows_judged", errors.len() as f64, ""),
        ];
        facts.extend(model.map(|blocks| Fact::number("model_size", blocks as f64, "blocks")));
        match correction {
            Correction::Grow { blocks, error } if !limited => {
                facts.push(Fact::number("error", error, ""));
                grant.insufficient = Some(grant.insufficient.unwrap_or(0).max(grant.blocks));
                if let Some(known) = remembered.filter(|&known| known > blocks && known <= input.blocks_max) {
                    facts.push(Fact::number("size_after", known as f64, "blocks"));
                    return Some(Change {
                        blocks: known,
                        kind: DecisionKind::PhaseRemembered,
                        summary: format!("{name} gets the cache that sufficed in a phase like this one"),
                        facts,
                        serves: None,
                    });
                }
                facts.push(Fact::number("size_after", blocks as f64, "blocks"));
                let summary = format!(
                    "the cache of {name} grows: those it serves are {:.0} % beyond their objective",
                    error * 100.0
                );
                Some(Change { blocks, kind: DecisionKind::Grown, summary, facts, serves: None })
            }
            Correction::Shrink { blocks, error } => {
                facts.push(Fact::number("error", error, ""));
                facts.push(Fact::number("size_after", blocks as f64, "blocks"));
                let summary = format!(
                    "the cache of {name} shrinks: those it serves have {:.0} % of slack",
                    -error * 100.0
                );
                Some(Change { blocks, kind: DecisionKind::Shrunk, summary, facts, serves: None })
            }
            Correction::Hold(HoldReason::WithinBand) => {
                let blocks = grant.blocks;
                volume.memory.remember(phase, blocks);
                None
            }
            Correction::Grow { .. } | Correction::Exhausted { .. } | Correction::Hold(_) => None,
        }
        .filter(|change| change.blocks != input.blocks)
    }

    /// The smallest size that the model finds sufficient for those that a partition serves, others as they are.
    fn model_blocks(&mut self, id: VolumeId, scenes: &mut Scenes) -> Option<u64> {
        let served = self.volumes[&id].grant.as_ref()?.serves.clone();
        let chunk_blocks = self.volumes[&id].chunk_blocks(self.config.chunk_bytes);
        let ceiling = self.blocks_ceiling(id);
        let goal = -self.config.sizing_margin;
        let (index, place) = self.scene_place(scenes, id);
        let scene = &scenes.list[index];
        scene.parties[place].curve.as_ref()?;
        let base = scene.blocks();
        let sizing = smallest(ceiling, chunk_blocks, goal, |blocks| {
            let mut sizes = base.clone();
            sizes[place] = blocks;
            worst_of(scene, &scene.excess(&sizes), &served)
        });
        sizing.reached.then_some(sizing.blocks)
    }
}

/// The worst excess of some volumes; negative infinity for none.
fn worst_of(scene: &Scene, excess: &[f64], served: &[VolumeId]) -> f64 {
    served
        .iter()
        .filter_map(|id| scene.place(*id))
        .map(|place| excess[place])
        .fold(f64::NEG_INFINITY, f64::max)
}
