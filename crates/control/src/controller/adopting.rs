//! Adopting: what is ordered of the caches that analysis found, or of what was seen to suffice before; or that nothing is.

use super::analysing::Open;
use super::scene::Scene;
use super::{Change, Controller};
use crate::decision::{DecisionKind, Fact};
use crate::feedback::Law;
use crate::inventory::VolumeId;
use crate::model_law::FLOODED_GROWTH_MAX;
use crate::removal::Removed;
use crate::sizing::smallest_of_each;
use crate::solutions::Solution;
use forebay_units::Bytes;
use std::collections::BTreeMap;

/// How many times the reads that a curve is believed by say that nothing is read again soon (ours).
const READS_SAY: u64 = 10;

impl Controller {
    /// Leaves `victim` to the caches that relieve it already, until it is looked at again.
    pub(super) fn do_without(
        &mut self,
        victim: VolumeId,
        scene: &Scene,
        place: usize,
        planned: &[u64],
        open: &Open,
        changes: &mut BTreeMap<VolumeId, Change>,
    ) {
        // They are for it too: feedback grows them for it, and does not take them back.
        for id in self.relieving(scene, place, planned) {
            if let Some(grant) = self.volumes.get_mut(&id).and_then(|volume| volume.grant.as_mut()) {
                grant.serve(&[victim]);
            } else if let Some(change) = changes.get_mut(&id) {
                change.serves.push(victim);
            }
        }
        // Of few reads it is not known whether they are read again.
        let reads_min = self.config.cacheability.curve_accesses_min.saturating_mul(READS_SAY);
        if open.may_help && self.volumes[&victim].curve_accesses >= reads_min {
            self.unmended(victim);
        }
        let wait = if open.curve_missing { 2 } else { self.config.retry_after as u64 };
        self.volumes.get_mut(&victim).expect("a violated volume is registered").analyse_from =
            self.step + wait;
    }

    /// Orders the caches of a solution, each by what is known of its size.
    pub(super) fn adopt(
        &mut self,
        victim: VolumeId,
        scene: &Scene,
        planned: &[u64],
        best: &Solution,
        changes: &mut BTreeMap<VolumeId, Change>,
    ) {
        let name = self.volumes[&victim].spec.name.clone();
        let place = scene.place(victim).expect("the scene is of its origin");
        let rules = &self.config.feedback;
        let mut least = self.without_margin(scene, planned, &best.sizes, place);
        // The model expects that none would do, and the objective is violated without one: then what was planned, margin and all, is little enough.
        if least.iter().all(|&blocks| blocks == 0) {
            least = best.sizes.iter().map(|&(_, wanted)| wanted).collect();
        }
        for (&(other, wanted), least) in best.sizes.iter().zip(least) {
            let cached = scene.parties[other].id;
            let party = &scene.parties[other];
            let chunk_blocks = self.volumes[&cached].chunk_blocks(self.config.chunk_bytes);
            let first = match rules.law {
                Law::Model => {
                    // Where the model knows of no size that suffices it says little of any.
                    let share = rules.model_first_share * if best.reached { 1.0 } else { 0.25 };
                    let blocks = if self.volumes[&victim].is_bursting() {
                        least
                    } else {
                        party.known_step((least as f64 * share).ceil() as u64)
                    };
                    blocks.next_multiple_of(chunk_blocks).max(party.blocks).min(least)
                }
                Law::Plain => wanted,
            };
            let blocks = match rules.law {
                // A load that was there before needs again what it was found to need.
                Law::Model if party.blocks == 0 => {
                    let missed = self.missed(victim, changes).filter(|missed| missed.volume == cached);
                    first.max(self.remembered_blocks(cached)).max(missed.map_or(0, |missed| missed.blocks))
                }
                Law::Plain if party.blocks == 0 => first,
                Law::Model => {
                    // What the curve says little of is tried.
                    let known = party.known_step(wanted) == wanted;
                    let growth = if known { rules.model_growth_max } else { FLOODED_GROWTH_MAX };
                    let most = (party.blocks as f64 * (1.0 + growth)).ceil() as u64;
                    wanted.min(most.next_multiple_of(chunk_blocks))
                }
                Law::Plain => wanted,
            };
            let facts = vec![
                Fact::number("size_before", party.blocks as f64, "blocks"),
                Fact::number("size_after", blocks as f64, "blocks"),
                Fact::number("size_wanted", wanted as f64, "blocks"),
                Fact::number("hit_ratio_predicted", party.hit_ratio(blocks), ""),
                Fact::text("serves", name.clone()),
            ];
            let kind = if party.blocks == 0 { DecisionKind::Granted } else { DecisionKind::Grown };
            let summary = format!(
                "{} gets a cache of {} for {name}",
                self.volumes[&cached].spec.name,
                Bytes(blocks * self.volumes[&cached].block_bytes())
            );
            let earlier = changes.get_mut(&cached);
            match earlier {
                Some(change) if change.blocks >= blocks => change.serves.push(victim),
                _ => {
                    let mut serves = earlier.map(|change| change.serves.clone()).unwrap_or_default();
                    serves.push(victim);
                    let change = Change { wanted, serves, ..Change::new(blocks, kind, summary, facts) };
                    changes.insert(cached, change);
                }
            }
        }
        self.volumes.get_mut(&victim).expect("a violated volume is registered").analyse_from =
            self.step + self.config.retry_after as u64;
    }

    /// What suffices of the sizes of a solution without the margin, which is for what is planned: what is too small by it shows soon.
    fn without_margin(
        &self,
        scene: &Scene,
        planned: &[u64],
        sizes: &[(usize, u64)],
        place: usize,
    ) -> Vec<u64> {
        let volume = |at: usize| &self.volumes[&scene.parties[at].id];
        let mut by_bytes: Vec<usize> = (0..sizes.len()).collect();
        by_bytes.sort_by_key(|&one| sizes[one].1 * volume(sizes[one].0).block_bytes());
        let parts: Vec<(u64, u64)> = (by_bytes.iter().map(|&one| sizes[one]))
            .map(|(at, blocks)| (blocks, volume(at).chunk_blocks(self.config.chunk_bytes)))
            .collect();
        let mut all = planned.to_vec();
        let found = smallest_of_each(&parts, 0.0, |blocks| {
            by_bytes.iter().zip(blocks).for_each(|(&one, &blocks)| all[sizes[one].0] = blocks);
            scene.excess(&all)[place]
        });
        let mut least = vec![0; sizes.len()];
        by_bytes.into_iter().zip(found).for_each(|(one, blocks)| least[one] = blocks);
        least
    }

    /// The cache that was taken back as not needed shortly before `victim` was violated again, as far as there is room for it.
    pub(super) fn missed(&self, victim: VolumeId, changes: &BTreeMap<VolumeId, Change>) -> Option<Removed> {
        let Removed { volume, blocks } = self.volumes[&victim].regrets.missed()?;
        let is_gone = self.volumes.get(&volume)?.grant.is_none() && !changes.contains_key(&volume);
        let blocks = blocks.min(self.room_blocks(volume)).min(self.blocks_ceiling(volume));
        (is_gone && blocks > 0).then_some(Removed { volume, blocks })
    }

    /// The size that was seen to keep the objective, where the model knows of none that is needed.
    pub(super) fn give_back(
        &mut self,
        victim: VolumeId,
        cached: VolumeId,
        blocks: u64,
        changes: &mut BTreeMap<VolumeId, Change>,
    ) {
        let name = |id: VolumeId| &self.volumes[&id].spec.name;
        let summary = format!(
            "{} gets the cache of {} back: {} was violated soon after that had been taken back as not needed",
            name(cached),
            Bytes(blocks * self.volumes[&cached].block_bytes()),
            name(victim)
        );
        let facts = vec![Fact::number("size_after", blocks as f64, "blocks")];
        let change = Change::new(blocks, DecisionKind::Granted, summary, facts);
        changes.insert(cached, Change { serves: vec![victim], ..change });
        self.volumes.get_mut(&victim).expect("a violated volume is registered").analyse_from =
            self.step + self.config.retry_after as u64;
    }

    /// The size that sufficed for a load like that of the newest interval, as far as there is room for it; 0 where none is remembered.
    fn remembered_blocks(&self, id: VolumeId) -> u64 {
        let volume = &self.volumes[&id];
        let phase = volume.newest_phase(self.config.recent_intervals);
        let known = phase.and_then(|phase| volume.memory.recall(phase)).unwrap_or(0);
        known.min(self.room_blocks(id)).min(self.blocks_ceiling(id))
    }
}
