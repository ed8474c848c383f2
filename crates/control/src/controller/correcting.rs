//! Correcting: feedback, phases and removal for every partition that was granted.

use super::scene::Scene;
use super::scenes::Scenes;
use super::volume::Volume;
use super::{Change, Controller};
use crate::decision::{DecisionKind, Fact};
use crate::feedback::{
    Correction, FeedbackInput, HoldReason, Law, ModelInput, changed, correct, correct_by_model,
};
use crate::inventory::VolumeId;
use crate::performance::OVERLOADED;
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
            serves: Vec::new(),
        })
    }

    fn feedback(&mut self, id: VolumeId, scenes: &mut Scenes) -> Option<Change> {
        let (served, share) = self.beneficiaries(id)?;
        let error = served
            .iter()
            .filter_map(|served| self.volumes.get(served)?.closed_excess())
            .max_by(f64::total_cmp);
        let rules = self.config.feedback;
        let volume = self.volumes.get_mut(&id)?;
        let recent = volume.recent(self.config.recent_intervals);
        let phase = Volume::phase_of(&recent, recent.backlogged);
        let filling = volume.is_filling(&rules);
        let grant = volume.grant.as_mut()?;
        grant.see_phase(phase);
        let mut jumped = 0;
        if let Some(error) = error
            && !filling
        {
            grant.push_error(error);
            jumped = changed(grant.errors.make_contiguous(), &grant.noise);
            if jumped > 0 && rules.law == Law::Model {
                grant.load_changed(jumped);
                // At least as many intervals as windows: a window is never shorter.
                for other in served.iter().chain([&id]) {
                    if let Some(volume) = self.volumes.get_mut(other) {
                        volume.steady = volume.steady.min(jumped);
                    }
                }
            }
        }
        if let Some(change) = self.recall(id, error, jumped > 0) {
            return Some(change);
        }
        self.correction(id, share, scenes)
    }

    /// Whom a partition serves, and the largest share of windows that any of them was promised.
    fn beneficiaries(&self, id: VolumeId) -> Option<(Vec<VolumeId>, f64)> {
        let served = self.volumes.get(&id)?.grant.as_ref()?.serves.clone();
        let share = served
            .iter()
            .filter_map(|served| self.volumes.get(served))
            .flat_map(|served| served.spec.objectives.iter().map(|objective| objective.conforming_share))
            .fold(0.0, f64::max);
        Some((served, share))
    }

    /// The size that sufficed in a phase like that of the newest interval, if the load has left the phase that the
    /// present size is for: after one window that misses, or two that show the change.
    fn recall(&mut self, id: VolumeId, error: Option<f64>, jumped: bool) -> Option<Change> {
        let ceiling = self.blocks_ceiling(id);
        let volume = self.volumes.get_mut(&id)?;
        let closed = volume.recent(self.config.recent_intervals).backlogged;
        let now = Volume::phase_of(volume.history.back()?, closed);
        let known =
            volume.memory.recall(now)?.clamp(volume.spec.block_size.blocks_for(volume.spec.minimum), ceiling);
        let name = volume.spec.name.clone();
        let grant = volume.grant.as_mut()?;
        let left = grant.phase.is_none_or(|(phase, _)| phase.distance(&now) >= 1.0);
        let grows = known > grant.blocks && error.is_some_and(|error| error > 0.0) && (left || jumped);
        let shrinks = known < grant.blocks && jumped && error.is_some_and(|error| error < 0.0);
        // Within a fiftieth it is the size that it has.
        if !(grows || shrinks) || known.abs_diff(grant.blocks) * 50 < grant.blocks {
            return None;
        }
        let facts = vec![
            Fact::number("size_before", grant.blocks as f64, "blocks"),
            Fact::number("size_after", known as f64, "blocks"),
            Fact::number("error", error.unwrap_or(0.0), ""),
        ];
        grant.phase = Some((now, 0));
        grant.insufficient = None;
        Some(Change {
            blocks: known,
            kind: DecisionKind::PhaseRemembered,
            summary: format!("{name} gets the cache that sufficed in a phase like this one"),
            facts,
            serves: Vec::new(),
        })
    }

    /// What the law makes of the errors since the last change.
    fn correction(&mut self, id: VolumeId, share: f64, scenes: &mut Scenes) -> Option<Change> {
        let (step, rules) = (self.step, self.config.feedback);
        let ceiling = self.blocks_ceiling(id);
        let volume = &self.volumes[&id];
        let grant = volume.grant.as_ref()?;
        let errors: Vec<f64> = grant.errors.iter().copied().collect();
        let plain = FeedbackInput {
            blocks: grant.blocks,
            chunk_blocks: volume.chunk_blocks(self.config.chunk_bytes),
            blocks_min: volume.blocks_min(),
            blocks_max: ceiling.max(grant.blocks),
            errors: &errors,
            conforming_share: share,
            age: grant.age,
            guard: if volume.is_filling(&rules) { grant.guard } else { 0 },
            model_blocks: None,
            insufficient_blocks: grant.insufficient,
        };
        let limited = step < grant.limited_until;
        let mut model = None;
        let correction = match rules.law {
            Law::Plain => correct(&plain, &rules),
            Law::Model => {
                // At an overloaded origin there is nothing to compare with either: it is sized anew.
                let busy = self.busy.get(&volume.spec.origin).and_then(|said| said.back());
                let overloaded = busy.is_some_and(|&busy| busy >= OVERLOADED);
                let input = ModelInput { plain, noise: grant.noise, fresh: grant.fresh || overloaded };
                correct_by_model(&input, &rules, |ratio| {
                    model = self.model_blocks(id, ratio, scenes);
                    model
                })
            }
        };
        let volume = self.volumes.get_mut(&id)?;
        let recent = volume.recent(self.config.recent_intervals);
        let phase = Volume::phase_of(&recent, recent.backlogged);
        let name = volume.spec.name.clone();
        let grant = volume.grant.as_mut()?;
        let mut facts = vec![
            Fact::number("size_before", plain.blocks as f64, "blocks"),
            Fact::number("intervals_since_change", plain.age as f64, ""),
            Fact::number("windows_judged", errors.len() as f64, ""),
            Fact::number("windows_deviate_by", grant.noise.deviation(&errors), ""),
        ];
        facts.extend(model.map(|blocks| Fact::number("model_size", blocks as f64, "blocks")));
        match correction {
            Correction::Grow { blocks, error } if !limited => {
                facts.push(Fact::number("error", error, ""));
                facts.push(Fact::number("size_after", blocks as f64, "blocks"));
                grant.insufficient = Some(grant.insufficient.unwrap_or(0).max(grant.blocks));
                let summary = format!(
                    "the cache of {name} grows: those it serves are {:.0} % beyond their objective",
                    error * 100.0
                );
                Some(Change { blocks, kind: DecisionKind::Grown, summary, facts, serves: Vec::new() })
            }
            Correction::Shrink { blocks, error } => {
                facts.push(Fact::number("error", error, ""));
                facts.push(Fact::number("size_after", blocks as f64, "blocks"));
                let summary = format!(
                    "the cache of {name} shrinks: those it serves have {:.0} % of slack",
                    -error * 100.0
                );
                Some(Change { blocks, kind: DecisionKind::Shrunk, summary, facts, serves: Vec::new() })
            }
            Correction::Hold(HoldReason::WithinBand) => {
                // What has just changed is not known to suffice.
                if errors.len() >= rules.shrink_after {
                    let blocks = grant.blocks;
                    grant.fresh = false;
                    volume.memory.remember(phase, blocks);
                }
                None
            }
            Correction::Grow { .. } | Correction::Exhausted { .. } | Correction::Hold(_) => None,
        }
        .filter(|change| change.blocks != plain.blocks)
    }

    /// The smallest size for which the model predicts those that a partition serves at most `ratio` times what it
    /// predicts for the present sizes, others as they are.
    fn model_blocks(&mut self, id: VolumeId, ratio: f64, scenes: &mut Scenes) -> Option<u64> {
        let served = self.volumes[&id].grant.as_ref()?.serves.clone();
        let chunk_blocks = self.volumes[&id].chunk_blocks(self.config.chunk_bytes);
        let ceiling = self.blocks_ceiling(id);
        let (index, place) = self.scene_place(scenes, id);
        let scene = &scenes.list[index];
        scene.parties[place].curve.as_ref()?;
        let base = scene.blocks();
        let now = 1.0 + worst_of(scene, &scene.excess(&base), &served);
        if !now.is_finite() {
            return None;
        }
        // How long the backlog of an overloaded origin is says nothing of other sizes: then the model's own level counts.
        let goal = if scene.utilisation >= OVERLOADED && ratio < 1.0 {
            -self.config.sizing_margin
        } else {
            now.max(1e-6) * ratio - 1.0
        };
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
