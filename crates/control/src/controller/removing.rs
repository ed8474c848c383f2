//! Removing: whether a partition that was granted is still needed, asked of the model and of how it fares.

use super::correcting::worst_of;
use super::scenes::Scenes;
use super::{Change, Controller};
use crate::decision::{DecisionKind, Fact};
use crate::inventory::VolumeId;
use crate::removal::{RemovalInput, RemovalReason};
use crate::windows::Expected;

/// Steps between two questions whether a partition is still needed (ours).
const REMOVAL_EVERY: u64 = 4;

impl Controller {
    pub(super) fn removal(&mut self, id: VolumeId, scenes: &mut Scenes) -> Option<Change> {
        let ask = (self.step + u64::from(id.0)).is_multiple_of(REMOVAL_EVERY);
        let (served, share) = self.beneficiaries(id)?;
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
        let loads = served
            .iter()
            .filter_map(|id| self.volumes.get(id))
            .map(|volume| volume.recent(config.recent_intervals));
        let (load, reads_served) =
            loads.fold((0.0, 0.0), |sum, load| (sum.0 + load.rate(), sum.1 + load.hit_rate + load.miss_rate));
        let regrets =
            served.iter().filter_map(|id| Some(self.volumes.get(id)?.regrets)).max().unwrap_or_default();
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
            strict: grant.windows.expected(share).map_or(1.0, Expected::strictness),
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
            RemovalReason::NotNeeded => regrets.sustained(&config.removal),
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
        facts.extend(input.excess_without.map(|excess| Fact::number("predicted_excess_without", excess, "")));
        if reason == RemovalReason::NotNeeded {
            for id in served {
                self.volumes.entry(id).and_modify(|volume| volume.regrets.removed(self.step));
            }
        }
        Some(Change::new(
            minimum,
            DecisionKind::Removed,
            format!("the cache of {name} is taken back: {reason}"),
            facts,
        ))
    }
}
