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
            let blocks = match rules.law {
                Law::Plain => wanted,
                Law::Model if party.blocks == 0 => {
                    // Where the model knows of no size that suffices it says little of any.
                    let share = rules.model_first_share * if best.reached { 1.0 } else { 0.25 };
                    let first = if self.volumes[&victim].is_bursting() {
                        least
                    } else {
                        party.known_step((least as f64 * share).ceil() as u64)
                    };
                    let first = first.next_multiple_of(chunk_blocks).min(least);
                    // A load that was there before needs again what it was found to need.
                    let missed = self.missed(victim, changes).filter(|missed| missed.volume == cached);
                    first.max(self.remembered_blocks(cached)).max(missed.map_or(0, |missed| missed.blocks))
                }
                Law::Model => {
                    // What the curve says little of is tried.
                    let known = party.known_step(wanted) == wanted;
                    let growth = if known { rules.model_growth_max } else { FLOODED_GROWTH_MAX };
                    let most = (party.blocks as f64 * (1.0 + growth)).ceil() as u64;
                    wanted.min(most.next_multiple_of(chunk_blocks))
                }
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

#[cfg(test)]
mod tests {
    use super::super::grant::Grant;
    use super::super::sample::Sample;
    use super::super::scenes::Scenes;
    use super::*;
    use crate::config::ControlConfig;
    use crate::inventory::{HostId, VolumeSpec};
    use crate::windows::Windows;
    use forebay_locality::{CurvePoint, MissRatioCurve};
    use std::sync::Arc;

    const FIRST: VolumeId = VolumeId(1);
    const SECOND: VolumeId = VolumeId(2);

    /// Two volumes before one origin. All that is read of the first lies in 1,000 blocks that it goes round in: fewer answer nothing.
    fn pair() -> Controller {
        let mut config = ControlConfig { chunk_bytes: 16 * 4096, ..ControlConfig::default() };
        config.feedback.model_growth_max = 0.25;
        let mut controller = Controller::new(config, Bytes::mib(64), Vec::new(), Vec::new()).unwrap();
        for id in [FIRST, SECOND] {
            controller.register(VolumeSpec { id, ..VolumeSpec::any() }).unwrap();
            let volume = controller.volumes.get_mut(&id).unwrap();
            let sample = Sample {
                arrival_rate: 100.0,
                miss_rate: 100.0,
                origin_read_rate: 100.0,
                miss_latency: 5e-3,
                working_set: 1_000.0,
                ..Sample::default()
            };
            volume.history.extend([sample; 3]);
            volume.steady = 3;
            let points = [(0, 1.0), (999, 1.0), (1_000, 0.1)];
            let point = |(size_blocks, miss_ratio)| CurvePoint { size_blocks, miss_ratio };
            volume.curve = Some(Arc::new(MissRatioCurve::new(points.map(point).to_vec())));
            volume.curve_accesses = 1_000_000;
        }
        controller
    }

    /// Just before, a cache in front of `volume` was taken back as not needed, and `victim` was violated.
    fn regret(controller: &mut Controller, victim: VolumeId, volume: VolumeId, blocks: u64) {
        let rules = controller.config.removal;
        let regrets = &mut controller.volumes.get_mut(&victim).unwrap().regrets;
        regrets.removed(0, Removed { volume, blocks });
        regrets.violated(1, &rules);
    }

    /// What becomes of 1,000 blocks for the first that would keep the objective of `victim`, beside what was decided `earlier`.
    fn adopted(controller: &mut Controller, victim: VolumeId, earlier: Option<Change>) -> Change {
        let mut scenes = Scenes::default();
        let (index, place) = controller.scene_place(&mut scenes, FIRST);
        let best = Solution {
            sizes: vec![(place, 1_000)],
            cost: Bytes::mib(4),
            excess: -0.2,
            reached: true,
            harmed: Vec::new(),
            peaking: false,
            unstable: false,
        };
        let mut changes: BTreeMap<VolumeId, Change> =
            earlier.into_iter().map(|change| (FIRST, change)).collect();
        let scene = &scenes.list[index];
        controller.adopt(victim, scene, &scene.blocks(), &best, &mut changes);
        changes.remove(&FIRST).expect("adopted")
    }

    fn granted(blocks: u64, serves: &[VolumeId]) -> Change {
        let change = Change::new(blocks, DecisionKind::Granted, String::new(), Vec::new());
        Change { serves: serves.to_vec(), ..change }
    }

    #[test]
    fn what_was_taken_back_too_soon_is_given_back_as_far_as_there_is_room_unless_there_is_one_again() {
        let missed = |change: fn(&mut Controller), ordered: bool| {
            let mut controller = pair();
            regret(&mut controller, SECOND, FIRST, 300);
            change(&mut controller);
            let changes = ordered.then(|| (FIRST, granted(1, &[FIRST]))).into_iter().collect();
            controller.missed(SECOND, &changes).map(|missed| missed.blocks)
        };
        assert_eq!(missed(|_| (), false), Some(300));
        assert_eq!(missed(|_| (), true), None);
        let at_most = |controller: &mut Controller| {
            controller.volumes.get_mut(&FIRST).unwrap().spec.maximum = Some(Bytes(200 * 4096));
        };
        assert_eq!(missed(at_most, false), Some(200));
        assert_eq!(missed(|controller| controller.located(FIRST, None, Bytes(100 * 4096)), false), Some(100));
        assert_eq!(missed(|controller| controller.located(FIRST, None, Bytes::ZERO), false), None);
        assert_eq!(missed(|controller| controller.take_over(FIRST, HostId(0), 10), false), None);
    }

    #[test]
    fn what_is_given_back_is_for_whom_it_was_missed_by_who_is_then_left_alone_for_a_while() {
        let mut controller = pair();
        controller.step = 7;
        let mut changes = BTreeMap::new();
        controller.give_back(SECOND, FIRST, 300, &mut changes);
        let change = &changes[&FIRST];
        assert_eq!((change.blocks, &change.serves[..]), (300, &[SECOND][..]));
        assert_eq!(controller.volumes[&SECOND].analyse_from, 7 + controller.config.retry_after as u64);
    }

    #[test]
    fn what_sufficed_for_such_a_load_is_given_at_once_as_far_as_there_is_room() {
        let first = |change: fn(&mut Controller)| {
            let mut controller = pair();
            let volume = controller.volumes.get_mut(&FIRST).unwrap();
            let phase = volume.newest_phase(3).expect("an interval");
            volume.memory.remember(phase, 5_000);
            change(&mut controller);
            adopted(&mut controller, SECOND, None).blocks
        };
        assert_eq!(first(|_| ()), 5_000);
        let at_most = |controller: &mut Controller| {
            controller.volumes.get_mut(&FIRST).unwrap().spec.maximum = Some(Bytes(4_000 * 4096));
        };
        assert_eq!(first(at_most), 4_000);
        assert_eq!(first(|controller| controller.located(FIRST, None, Bytes(3_000 * 4096))), 3_000);
    }

    #[test]
    fn what_was_taken_back_too_soon_is_a_size_of_that_cache_and_of_no_other() {
        let first = |of: VolumeId| {
            let mut controller = pair();
            regret(&mut controller, SECOND, of, 5_000);
            adopted(&mut controller, SECOND, None).blocks
        };
        assert_eq!(first(FIRST), 5_000);
        assert!(first(SECOND) <= 1_000);
    }

    #[test]
    fn a_cache_that_is_there_grows_for_another_by_no_more_than_for_those_it_serves() {
        let grown = |before: u64| {
            let mut controller = pair();
            let grant = Grant::new(HostId(0), 100.0, Windows::assumed(0.05), 0);
            let grant = Grant { blocks: before, serves: vec![FIRST], ..grant };
            controller.volumes.get_mut(&FIRST).unwrap().grant = Some(grant);
            adopted(&mut controller, SECOND, None).blocks
        };
        // By a quarter, in whole chunks of 16 blocks, and not beyond what is wanted.
        assert_eq!([100, 113, 900].map(grown), [128, 144, 1_000]);
    }

    #[test]
    fn a_cache_that_two_need_has_the_larger_size_and_is_for_both() {
        let shared = |earlier: u64| {
            let mut controller = pair();
            let grant = Grant::new(HostId(0), 100.0, Windows::assumed(0.05), 0);
            let grant = Grant { blocks: 100, serves: vec![FIRST], ..grant };
            controller.volumes.get_mut(&FIRST).unwrap().grant = Some(grant);
            let change = adopted(&mut controller, SECOND, Some(granted(earlier, &[FIRST])));
            (change.blocks, change.serves)
        };
        let both = vec![FIRST, SECOND];
        assert_eq!([127, 129].map(shared), [(128, both.clone()), (129, both)]);
    }
}
