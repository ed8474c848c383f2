//! Removing: whether a partition that was granted is still needed, asked of the model and of how it fares.

use super::scene::Party;
use super::scenes::Scenes;
use super::{Change, Controller};
use crate::decision::{DecisionKind, Fact};
use crate::inventory::VolumeId;
use crate::removal::{RemovalInput, RemovalReason, Removed, Without};
use crate::windows::ExpectedWindow;

/// Steps between two questions whether a partition is still needed (ours).
const REMOVAL_EVERY: u64 = 4;

impl Controller {
    pub(super) fn removal(&mut self, id: VolumeId, scenes: &mut Scenes) -> Option<Change> {
        let ask = (self.step + u64::from(id.0)).is_multiple_of(REMOVAL_EVERY);
        let (served, share) = self.beneficiaries(id)?;
        let without = ask.then(|| self.without(id, &served, scenes));
        // A beneficiary without load predicts nothing: only an answer with numbers counts.
        let without = without.filter(|without| without.predicted.is_finite());
        let config = &self.config;
        let loads = served
            .iter()
            .filter_map(|id| self.volumes.get(id))
            .map(|volume| volume.recent(config.recent_intervals));
        let (load, reads_served) =
            loads.fold((0.0, 0.0), |sum, load| (sum.0 + load.rate(), sum.1 + load.hit_rate + load.miss_rate));
        let regrets = served.iter().filter_map(|id| Some(self.volumes.get(id)?.regrets));
        let regrets = regrets.max_by_key(|regrets| regrets.sustained(&config.removal)).unwrap_or_default();
        let volume = self.volumes.get_mut(&id)?;
        let recent = volume.recent(config.recent_intervals);
        let reads = recent.hit_rate + recent.miss_rate;
        let minimum = volume.blocks_min();
        let (used, name) = (volume.used_blocks, volume.spec.name.clone());
        let grant = volume.grant.as_mut()?;
        let input = RemovalInput {
            rate: load,
            rate_at_grant: grant.rate_at_grant,
            without,
            strict: grant.windows.expected(share).map_or(1.0, ExpectedWindow::strictness),
            reads,
            reads_served,
            hit_ratio: if reads > 0.0 { recent.hit_rate / reads } else { 0.0 },
            warm: used * 10 >= grant.blocks * 8,
            regrets,
        };
        let reason = grant.removal.observe(&input, &config.removal)?;
        if grant.blocks <= minimum {
            return None;
        }
        let sustained = match reason {
            RemovalReason::NotNeeded => grant.removal.sustained_unneeded(regrets, &config.removal),
            RemovalReason::LowLoad | RemovalReason::Ineffective => config.removal.sustained,
        };
        let mut facts = vec![
            Fact::number("size_before", grant.blocks as f64, "blocks"),
            Fact::number("load", input.rate, "requests/s"),
            Fact::number("load_at_grant", input.rate_at_grant, "requests/s"),
            Fact::number("reads", input.reads, "reads/s"),
            Fact::number("hit_ratio", input.hit_ratio, ""),
            Fact::number("sustained", sustained as f64, "intervals"),
        ];
        if let Some(Without { predicted, seen }) = grant.removal.without() {
            facts.push(Fact::number("predicted_excess_without", predicted, ""));
            facts.extend(seen.map(|seen| Fact::number("observed_excess_without", seen, "")));
        }
        if reason == RemovalReason::NotNeeded {
            let removed = Removed { volume: id, blocks: grant.blocks };
            for id in served {
                self.volumes.entry(id).and_modify(|volume| volume.regrets.removed(self.step, removed));
            }
        }
        Some(Change::new(
            minimum,
            DecisionKind::Removed,
            format!("the cache of {name} is taken back: {reason}"),
            facts,
        ))
    }

    /// How those that a partition serves would fare without it.
    fn without(&mut self, id: VolumeId, served: &[VolumeId], scenes: &mut Scenes) -> Without {
        let (index, place) = self.scene_place(scenes, id);
        let scene = &scenes.list[index];
        let mut blocks = scene.blocks();
        blocks[place] = self.volumes[&id].blocks_min();
        let arrivals: f64 = scene.parties.iter().map(|party| party.recent.arrival_rate).sum();
        let seen = |party: &Party| {
            let rate = party.recent.arrival_rate;
            self.volumes[&party.id].unhelped.excess(rate, (arrivals - rate).max(0.0))
        };
        let beneficiaries = scene.parties.iter().filter(|party| served.contains(&party.id));
        Without {
            predicted: scene.trial(&blocks).worst(&scene.places(served)),
            seen: beneficiaries.filter_map(seen).max_by(f64::total_cmp),
        }
    }
}
