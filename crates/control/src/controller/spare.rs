//! Spare memory: what nobody wants goes to volumes that are violated and that nothing is known to mend.
//!
//! A cache that cannot keep an objective, as far as the model knows, is worth no memory that others want; but memory that is there and lies idle helps
//! nobody. What is read is in it when it is read again, which no curve can know before; and a part of a loop that it holds is read from it. It is withdrawn as soon as
//! somebody wants the memory, and where it answered next to nothing for long. The law does not size such a cache: it becomes one like any other once its objective is kept by it,
//! or once the model knows that one of a size keeps it.
//!
//! Not where caches are made on hosts when they are needed: memory that is not used there is not Forebay's. The rule and its numbers are ours.

use super::ordering::wanted;
use super::scenes::Scenes;
use super::volume::Volume;
use super::{Change, Controller};
use crate::decision::{DecisionKind, Fact, StepOutcome};
use crate::feedback::Law;
use crate::inventory::VolumeId;
use forebay_units::{Bytes, Nanos};
use std::collections::BTreeMap;

/// Intervals for which memory is left to a volume after it was last found that nothing mends it (10 minutes of 10 s): bursts that come again find it warm.
const STANDS: u64 = 60;
/// Intervals in a row in which a warm one may answer next to nothing (20 minutes of 10 s), and for how often that doubles until it is tried again.
const VAIN: u64 = 120;
const VAIN_DOUBLED_MAX: u32 = 6;
/// Intervals of violation after which a cache that answers nothing is given up (ours).
const BARREN: f64 = 8.0;
/// What is next to nothing of the reads: a part of a loop answers few, and yet more than a scan.
const VAIN_HITS: f64 = 0.005;
/// Intervals of reading for which there is room beyond what was read so far.
const AHEAD: f64 = 1.5;
/// It is resized where it should be this much larger or smaller, as long as it has the memory.
const GROWS: f64 = 1.05;
const SHRINKS: f64 = 0.75;
/// What a volume counts for at least, though it is not beyond its bound now.
const WEIGHT_MIN: f64 = 0.01;

/// What is known of a volume that spare memory may go to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unmended {
    /// The step until which it may have some.
    until: u64,
    /// Intervals in a row in which it answered next to nothing.
    vain: u64,
    /// How often in a row it was withdrawn for that, and until which step.
    withdrawn: u32,
    barred_until: u64,
    /// The step from which on it may ask for a part of what others want.
    asks_from: u64,
}

/// Who may have some of the spare memory.
struct Taker {
    id: VolumeId,
    /// Bytes now, and at most, beyond those that it is guaranteed.
    now: u64,
    most: u64,
    /// How bad it is to be without.
    weight: f64,
}

impl Controller {
    /// Whether spare memory may go to a volume.
    pub(super) fn may_have_spare(&self, volume: &Volume) -> bool {
        volume.is_spare() || volume.unmended.until > self.step
    }

    /// Nothing was found to mend the violation of a volume, and a cache may still help.
    pub(super) fn unmended(&mut self, id: VolumeId) {
        let until = self.step + STANDS;
        if let Some(volume) = self.volumes.get_mut(&id) {
            volume.unmended.until = until;
        }
    }

    /// The bytes of all quotas but those of spare memory.
    pub(super) fn claimed(&self) -> Bytes {
        let claimed = self.volumes.values().filter(|volume| !volume.is_spare());
        Bytes(claimed.map(|volume| volume.blocks() * volume.block_bytes()).sum())
    }

    /// Divides the memory that nobody wants, once it is known what everybody wants.
    pub(super) fn spare(
        &mut self,
        at: Nanos,
        scenes: &mut Scenes,
        changes: &mut BTreeMap<VolumeId, Change>,
        outcome: &mut StepOutcome,
    ) {
        if self.config.feedback.law != Law::Model || self.config.spare_share == 0.0 || self.hosts.len() > 1 {
            return;
        }
        for id in self.give_up_barren(at) {
            let summary = format!(
                "the cache of {} answers nothing of what is read: it has of the memory that nobody wants from now on, if there is any, as much as was read so far",
                self.volumes[&id].spec.name
            );
            outcome.decisions.push(self.decision(at, id, DecisionKind::NothingHelps, summary, Vec::new()));
        }
        if !self.volumes.values().any(|volume| self.may_have_spare(volume)) {
            return;
        }
        for id in self.kept_by_spare(scenes) {
            let summary = format!(
                "the cache of {}, of memory that nobody wanted, keeps its objective: from now on it is sized like any other",
                self.volumes[&id].spec.name
            );
            outcome.decisions.push(self.decision(at, id, DecisionKind::SolutionChosen, summary, Vec::new()));
        }
        let mut takers = Vec::new();
        let mut claimed = 0u128;
        let ids: Vec<VolumeId> = self.volumes.keys().copied().collect();
        for id in ids {
            let volume = &self.volumes[&id];
            let (is_spare, bytes) = (volume.is_spare(), volume.block_bytes());
            if changes.contains_key(&id) || (volume.grant.is_some() && !is_spare) {
                claimed += u128::from(wanted(volume, changes.get(&id))) * u128::from(bytes);
            } else if self.may_have_spare(volume) {
                claimed += u128::from(volume.blocks_min()) * u128::from(bytes);
                takers.push(self.taker(id));
            }
        }
        let unclaimed = u128::from(self.capacity.get()).saturating_sub(claimed) as f64;
        let idle = unclaimed * self.config.spare_share;
        if takers.iter().map(|taker| taker.most as f64).sum::<f64>() > unclaimed {
            self.contend_for(&takers, changes, scenes);
            let worth = takers.extract_if(.., |taker| self.is_worth_sharing(taker)).collect::<Vec<_>>();
            for taker in worth {
                self.ask(&taker, changes);
            }
        }
        for (taker, bytes) in takers.iter().zip(divide(&takers, idle as u64)) {
            let volume = &self.volumes[&taker.id];
            let chunk = volume.chunk_blocks(self.config.chunk_bytes);
            let (before, least) = (volume.blocks(), volume.blocks_min());
            let blocks = least + bytes / volume.block_bytes() / chunk * chunk;
            if blocks == before {
                continue;
            }
            let name = &volume.spec.name;
            let (kind, summary) = match (before, blocks) {
                (0, _) => (
                    DecisionKind::Granted,
                    format!("{name} gets memory that nobody wants: no cache is known to keep its objective"),
                ),
                (_, 0) => (
                    DecisionKind::Removed,
                    format!("the cache of {name}, of memory that nobody wanted, is taken back"),
                ),
                _ if blocks > before => (
                    DecisionKind::Grown,
                    format!("the cache of {name} gets more of the memory that nobody wants"),
                ),
                _ => (
                    DecisionKind::Shrunk,
                    format!("the cache of {name} has only what of the memory nobody else wants"),
                ),
            };
            let facts = vec![
                Fact::number("size_before", before as f64, "blocks"),
                Fact::number("size_after", blocks as f64, "blocks"),
                Fact::number("idle", idle, "bytes"),
            ];
            let change = Change::new(blocks, kind, summary, facts);
            changes.insert(taker.id, Change { serves: vec![taker.id], is_spare: true, ..change });
        }
    }

    /// Memory is short for those that nothing mends: what sizes cost them, and everybody who has some, is weighed from now on.
    fn contend_for(&mut self, takers: &[Taker], changes: &BTreeMap<VolumeId, Change>, scenes: &mut Scenes) {
        let mut all: Vec<(VolumeId, u64)> = (self.volumes.iter())
            .filter(|(id, volume)| (volume.grant.is_some() && !volume.is_spare()) || changes.contains_key(id))
            .map(|(&id, volume)| (id, wanted(volume, changes.get(&id))))
            .collect();
        all.extend(takers.iter().filter(|taker| taker.most > 0).map(|taker| (taker.id, self.most(taker))));
        self.contend(&all, |_| false, scenes);
    }

    /// The blocks that it may have at most.
    fn most(&self, taker: &Taker) -> u64 {
        let volume = &self.volumes[&taker.id];
        volume.blocks_min() + taker.most / volume.block_bytes()
    }

    /// Whether a volume that nothing mends was worse off without a cache for long enough for it to ask for memory as others do.
    fn is_worth_sharing(&self, taker: &Taker) -> bool {
        let volume = &self.volumes[&taker.id];
        taker.most > 0
            && volume.unmended.asks_from <= self.step
            && volume.stake.as_ref().is_some_and(|stake| stake.is_worth(self.most(taker)))
    }

    /// It asks for what it can use.
    fn ask(&mut self, taker: &Taker, changes: &mut BTreeMap<VolumeId, Change>) {
        let blocks = self.most(taker);
        let asks_from = self.step + self.config.retry_after as u64;
        let volume = self.volumes.get_mut(&taker.id).expect("a taker is registered");
        volume.unmended.asks_from = asks_from;
        let kind = if volume.blocks() == 0 { DecisionKind::Granted } else { DecisionKind::Grown };
        let summary = format!(
            "{} gets a part of the memory that is short: no cache keeps its objective, but one takes away much of what it is violated by",
            volume.spec.name
        );
        let facts = vec![
            Fact::number("size_before", volume.blocks() as f64, "blocks"),
            Fact::number("size_wanted", blocks as f64, "blocks"),
        ];
        let change = Change::new(blocks, kind, summary, facts);
        changes.insert(taker.id, Change { serves: vec![taker.id], wanted: blocks, ..change });
    }

    /// A cache that answers nothing of what its volume reads is not what the law can size, whatever the model says of it: it grows in steps, and what is read meanwhile, and again
    /// later, does not fit into it.
    fn give_up_barren(&mut self, at: Nanos) -> Vec<VolumeId> {
        let (recent_intervals, interval_s) = (self.config.recent_intervals, self.interval_s);
        let step = self.step;
        let mut barren = Vec::new();
        for (&id, volume) in &mut self.volumes {
            let Some(since) = volume.violated_since else { continue };
            let lasts = at.saturating_since(since).as_secs_f64() >= BARREN * interval_s;
            let recent = volume.recent(recent_intervals);
            let reads = recent.hit_rate + recent.miss_rate;
            let is_barren = reads > 0.0 && recent.hit_rate < VAIN_HITS * reads;
            let is_full = volume.used_blocks * 10 >= volume.blocks() * 8;
            let is_small = volume.useful_max().is_some_and(|useful| useful > 2 * volume.blocks());
            if let Some(grant) = &mut volume.grant
                && (lasts && is_barren && is_full && is_small && !grant.is_spare)
                && grant.serves[..] == [id]
            {
                grant.is_spare = true;
                volume.unmended.until = step + STANDS;
                barren.push(id);
            }
        }
        barren
    }

    /// Makes caches like any other of those that are what keeps an objective.
    fn kept_by_spare(&mut self, scenes: &mut Scenes) -> Vec<VolumeId> {
        let is_kept = |volume: &Volume| volume.is_spare() && volume.violated_since.is_none();
        let mut kept: Vec<VolumeId> =
            self.volumes.iter().filter(|(_, volume)| is_kept(volume)).map(|(id, _)| *id).collect();
        // What is kept without it too says nothing of it, as between bursts.
        kept.retain(|&id| {
            let (index, place) = self.scene_place(scenes, id);
            let scene = &scenes.list[index];
            let mut without = scene.blocks();
            without[place] = 0;
            scene.excess(&without)[place] > 0.0
        });
        for id in &kept {
            let volume = self.volumes.get_mut(id).expect("listed");
            volume.unmended = Unmended::default();
            let rate = volume.recent(self.config.recent_intervals).rate();
            let grant = volume.grant.as_mut().expect("a spare cache was granted");
            (grant.is_spare, grant.rate_at_grant) = (false, rate);
        }
        kept
    }

    /// What a volume may have of the spare memory.
    fn taker(&mut self, id: VolumeId) -> Taker {
        let (step, ceiling) = (self.step, self.blocks_ceiling(id));
        let (recent_intervals, interval_s) = (self.config.recent_intervals, self.interval_s);
        let volume = self.volumes.get_mut(&id).expect("listed");
        let recent = volume.recent(recent_intervals);
        let answers = recent.hit_rate >= VAIN_HITS * (recent.hit_rate + recent.miss_rate).max(1e-9);
        let is_warm = volume.blocks() > 0 && volume.used_blocks * 10 >= volume.blocks() * 8;
        let unmended = &mut volume.unmended;
        if answers && is_warm {
            (unmended.vain, unmended.withdrawn) = (0, 0);
        } else if is_warm {
            unmended.vain += 1;
        }
        if unmended.vain >= VAIN {
            unmended.barred_until = step + (VAIN << unmended.withdrawn.min(VAIN_DOUBLED_MAX));
            (unmended.vain, unmended.withdrawn) = (0, unmended.withdrawn + 1);
        }
        let may = unmended.until > step && unmended.barred_until <= step && volume.spec.may_cache;
        let ahead = (recent.miss_rate * interval_s * AHEAD) as u64;
        let useful = volume.useful_max().map_or(0, |useful| useful + ahead);
        let (bytes, least) = (volume.block_bytes(), volume.blocks_min());
        let most = if may { useful.min(ceiling) } else { 0 };
        Taker {
            id,
            now: volume.blocks().saturating_sub(least) * bytes,
            most: most.saturating_sub(least) * bytes,
            weight: volume.last_violation().max(WEIGHT_MIN),
        }
    }
}

/// The bytes of each: by weight, no more than each may have, and what it has already where little would change.
fn divide(takers: &[Taker], idle: u64) -> Vec<u64> {
    let mut shares = vec![0.0; takers.len()];
    let mut open: Vec<usize> = (0..takers.len()).filter(|&at| takers[at].most > 0).collect();
    let mut left = idle as f64;
    while !open.is_empty() {
        let weights: f64 = open.iter().map(|&at| takers[at].weight.max(1e-9)).sum();
        let share = |at: usize| left * takers[at].weight.max(1e-9) / weights;
        let full: Vec<usize> =
            open.iter().copied().filter(|&at| takers[at].most as f64 <= share(at)).collect();
        if full.is_empty() {
            open.iter().for_each(|&at| shares[at] = share(at));
            break;
        }
        for at in full {
            shares[at] = takers[at].most as f64;
            left -= shares[at];
            open.retain(|&other| other != at);
        }
    }
    let lazily: Vec<u64> = (takers.iter().zip(&shares))
        .map(|(taker, &share)| {
            let now = taker.now as f64;
            if share > 0.0 && share <= GROWS * now && share >= SHRINKS * now {
                taker.now
            } else {
                share as u64
            }
        })
        .collect();
    if lazily.iter().map(|&bytes| u128::from(bytes)).sum::<u128>() <= u128::from(idle) {
        return lazily;
    }
    shares.into_iter().map(|share| share as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::super::grant::Grant;
    use super::super::sample::Sample;
    use super::*;
    use crate::config::ControlConfig;
    use crate::inventory::{HostId, HostSpec, VolumeSpec};
    use crate::objective::{Objective, Operations};
    use crate::windows::Windows;
    use forebay_locality::{CurvePoint, MissRatioCurve};
    use proptest::prelude::*;
    use std::sync::Arc;

    const ID: VolumeId = VolumeId(1);

    /// A volume that reads a hundred times in a second, of which so many are answered by a cache of 100 blocks with so many in it.
    fn reading(hits: f64, used: u64) -> Controller {
        let mut controller =
            Controller::new(ControlConfig::default(), Bytes::mib(64), Vec::new(), Vec::new()).unwrap();
        controller.register(VolumeSpec { id: ID, ..VolumeSpec::any() }).unwrap();
        let volume = controller.volumes.get_mut(&ID).unwrap();
        volume.history.extend([reads(hits); 8]);
        let points = [(0, 1.0), (999, 1.0), (1_000, 0.1)];
        let point = |(size_blocks, miss_ratio)| CurvePoint { size_blocks, miss_ratio };
        volume.curve = Some(Arc::new(MissRatioCurve::new(points.map(point).to_vec())));
        volume.curve_accesses = 10_000;
        volume.used_blocks = used;
        volume.violated_since = Some(Nanos::ZERO);
        let grant = Grant::new(HostId(0), 100.0, Windows::assumed(0.05), 0);
        volume.grant = Some(Grant { blocks: 100, serves: vec![ID], ..grant });
        controller
    }

    fn reads(hits: f64) -> Sample {
        Sample { arrival_rate: 100.0, hit_rate: hits, miss_rate: 100.0 - hits, ..Sample::default() }
    }

    fn taker(now: u64, most: u64, weight: f64) -> Taker {
        Taker { id: VolumeId(0), now, most, weight }
    }

    #[test]
    fn memory_is_divided_by_what_windows_cost_and_what_one_cannot_use_goes_to_others() {
        assert_eq!(divide(&[taker(0, 900, 1.0), taker(0, 900, 3.0)], 400), [100, 300]);
        assert_eq!(divide(&[taker(0, 900, 1.0), taker(0, 200, 3.0)], 400), [200, 200]);
        assert_eq!(divide(&[taker(0, 900, 0.0)], 400), [400]);
        assert_eq!(divide(&[taker(50, 0, 1.0)], 400), [0]);
        assert_eq!(divide(&[], 400), [0u64; 0]);
    }

    #[test]
    fn what_would_change_little_stays_as_it_is_where_there_is_room() {
        assert_eq!(divide(&[taker(100, 104, 1.0)], 400), [100]);
        assert_eq!(divide(&[taker(100, 80, 1.0)], 400), [100]);
        assert_eq!(divide(&[taker(100, 70, 1.0)], 400), [70]);
        assert_eq!(divide(&[taker(100, 100, 1.0)], 99), [99]);
        assert_eq!(divide(&[taker(100, 100, 1.0)], 0), [0]);
    }

    #[test]
    fn a_cache_is_given_up_only_where_it_is_full_and_answers_nothing_for_long_and_a_larger_one_may() {
        let gives_up = |change: fn(&mut Volume), at: u64| {
            let mut controller = reading(0.0, 90);
            change(controller.volumes.get_mut(&ID).unwrap());
            let given_up = controller.give_up_barren(Nanos::secs(at));
            let volume = &controller.volumes[&ID];
            assert!(given_up.is_empty() || (volume.is_spare() && volume.unmended.until > 0));
            !given_up.is_empty()
        };
        fn grant(volume: &mut Volume) -> &mut Grant {
            volume.grant.as_mut().unwrap()
        }
        assert!(gives_up(|_| (), 8));
        assert!(!gives_up(|_| (), 7));
        assert!(!gives_up(|volume| volume.history = [reads(1.0); 8].into(), 8));
        assert!(!gives_up(|volume| volume.history = [Sample::default(); 8].into(), 8), "nothing is read");
        assert!(!gives_up(|volume| volume.used_blocks = 79, 8), "it fills yet");
        assert!(!gives_up(|volume| (grant(volume).blocks, volume.used_blocks) = (900, 900), 8));
        assert!(!gives_up(|volume| grant(volume).serves.push(VolumeId(2)), 8), "a neighbour needs it");
        assert!(!gives_up(|volume| grant(volume).is_spare = true, 8), "it is already");
    }

    #[test]
    fn spare_memory_is_for_as_much_as_is_read_soon_and_no_more_than_a_volume_may_have() {
        let most = |change: fn(&mut Controller)| {
            let mut controller = reading(0.0, 90);
            controller.unmended(ID);
            change(&mut controller);
            controller.taker(ID).most / 4096
        };
        fn spec(controller: &mut Controller) -> &mut VolumeSpec {
            &mut controller.volumes.get_mut(&ID).unwrap().spec
        }
        // What was read so far, and what is read in an interval and a half.
        let useful = reading(0.0, 90).volumes[&ID].useful_max().unwrap();
        assert_eq!(most(|_| ()), useful + 150);
        assert_eq!(most(|controller| spec(controller).maximum = Some(Bytes(200 * 4096))), 200);
        assert_eq!(most(|controller| spec(controller).minimum = Bytes(50 * 4096)), useful + 100);
        assert_eq!(most(|controller| spec(controller).may_cache = false), 0);
        assert_eq!(most(|controller| controller.step = STANDS - 1), useful + 150);
        assert_eq!(most(|controller| controller.step = STANDS), 0);
    }

    #[test]
    fn what_answers_next_to_nothing_is_withdrawn_for_longer_each_time_until_it_answers_something() {
        // For how long it is barred after so many intervals, of which each answers so many of a hundred reads.
        let barred = |intervals: &[(u64, f64)]| {
            let mut controller = reading(0.0, 90);
            for &(count, hits) in intervals {
                controller.volumes.get_mut(&ID).unwrap().history = [reads(hits); 8].into();
                (0..count).for_each(|_| _ = controller.taker(ID));
            }
            controller.volumes[&ID].unmended.barred_until
        };
        assert_eq!(barred(&[(VAIN - 1, 0.4)]), 0);
        assert_eq!(barred(&[(VAIN, 0.4)]), VAIN);
        assert_eq!(barred(&[(VAIN, 0.6)]), 0);
        assert_eq!(barred(&[(VAIN - 1, 0.0), (1, 1.0), (VAIN - 1, 0.0)]), 0);
        assert_eq!(barred(&[(2 * VAIN, 0.0)]), 2 * VAIN);
        assert_eq!(barred(&[(2 * VAIN, 0.0), (1, 1.0), (VAIN, 0.0)]), VAIN);
        assert_eq!(barred(&[(9 * VAIN, 0.0)]), 64 * VAIN);
    }

    #[test]
    fn what_others_want_and_what_is_guaranteed_is_not_spare() {
        // Blocks that a volume which nothing mends gets of 1,024, of which another wants so many.
        let given = |change: fn(&mut Controller), wanted: u64| {
            let mut controller = reading(0.0, 0);
            controller.capacity = Bytes::mib(4);
            controller.config.chunk_bytes = 4096;
            controller.volumes.get_mut(&ID).unwrap().grant = None;
            let other = VolumeId(2);
            controller.register(VolumeSpec { id: other, ..VolumeSpec::any() }).unwrap();
            controller.volumes.get_mut(&other).unwrap().history.extend([reads(0.0); 8]);
            controller.unmended(ID);
            change(&mut controller);
            let wants = Change::new(wanted, DecisionKind::Granted, String::new(), Vec::new());
            let mut changes: BTreeMap<_, _> =
                (wanted > 0).then_some((other, Change { wanted, ..wants })).into_iter().collect();
            controller.spare(Nanos::ZERO, &mut Scenes::default(), &mut changes, &mut StepOutcome::default());
            changes.get(&ID).map(|change| (change.blocks, change.is_spare))
        };
        assert_eq!(given(|_| (), 0), Some((1_024, true)));
        assert_eq!(given(|_| (), 500), Some((524, true)));
        let minimum = |controller: &mut Controller| {
            controller.volumes.get_mut(&ID).unwrap().spec.minimum = Bytes(100 * 4096);
        };
        assert_eq!(given(minimum, 500), Some((524, true)), "what it is guaranteed is a part of it");
        assert_eq!(given(|controller| controller.config.spare_share = 0.5, 500), Some((262, true)));
        assert_eq!(given(|controller| controller.config.spare_share = 0.0, 500), None);
        // On hosts where caches are made when they are needed it is not ours.
        let hosts = |controller: &mut Controller| {
            let host = |id| HostSpec::new(HostId(id), format!("h{id}"), 0, Bytes::mib(4));
            controller.hosts = vec![host(0), host(1)];
        };
        assert_eq!(given(hosts, 0), None);
    }

    #[test]
    fn a_cache_of_spare_memory_that_keeps_an_objective_is_one_like_any_other_from_then_on() {
        let kept = |bound: Nanos, change: fn(&mut Volume)| {
            let mut controller = reading(0.0, 0);
            controller.unmended(ID);
            let volume = controller.volumes.get_mut(&ID).unwrap();
            volume.spec.objectives = vec![Objective::mean_latency(bound, Operations::All)];
            let seen =
                Sample { origin_read_rate: 10.0, miss_latency: 5e-3, hit_latency: 1e-4, ..reads(90.0) };
            volume.history = [seen; 8].into();
            (volume.steady, volume.violated_since, volume.used_blocks) = (8, None, 1_000);
            let grant = volume.grant.as_mut().unwrap();
            (grant.blocks, grant.is_spare, grant.rate_at_grant) = (1_000, true, 1.0);
            change(volume);
            let kept = controller.kept_by_spare(&mut Scenes::default());
            let volume = &controller.volumes[&ID];
            (
                kept.len(),
                volume.is_spare(),
                volume.unmended.until,
                volume.grant.as_ref().unwrap().rate_at_grant,
            )
        };
        assert_eq!(kept(Nanos::millis(1), |_| ()), (1, false, 0, 100.0));
        assert_eq!(kept(Nanos::secs(1), |_| ()), (0, true, STANDS, 1.0), "it is kept without it, too");
        assert_eq!(kept(Nanos::millis(1), |volume| volume.violated_since = Some(Nanos::ZERO)).0, 0);
    }

    #[test]
    fn memory_that_nobody_wants_is_not_counted_as_claimed() {
        let mut controller = reading(0.0, 90);
        assert_eq!(controller.claimed(), Bytes(100 * 4096));
        controller.volumes.get_mut(&ID).unwrap().grant.as_mut().unwrap().is_spare = true;
        assert_eq!(controller.claimed(), Bytes::ZERO);
    }

    #[test]
    fn whoever_asks_for_a_part_of_what_others_want_asks_again_only_after_a_while() {
        let mut controller = reading(0.0, 90);
        let mut changes = BTreeMap::new();
        controller.step = 7;
        controller.ask(&Taker { id: ID, ..taker(0, 200 * 4096, 1.0) }, &mut changes);
        let change = &changes[&ID];
        assert_eq!(
            (change.blocks, change.wanted, &change.serves[..], change.is_spare),
            (200, 200, &[ID][..], false)
        );
        let asks_from = controller.volumes[&ID].unmended.asks_from;
        assert_eq!(asks_from, 7 + controller.config.retry_after as u64);
    }

    proptest! {
        #[test]
        fn never_is_more_given_than_there_is(
            takers in prop::collection::vec((0u64..2_000, 0u64..2_000, 0.0f64..100.0), 0..6),
            idle in 0u64..5_000,
        ) {
            let takers: Vec<Taker> = takers.into_iter().map(|(now, most, weight)| taker(now, most, weight)).collect();
            let given = divide(&takers, idle);
            prop_assert!(given.iter().sum::<u64>() <= idle, "{given:?}");
            for (taker, given) in takers.iter().zip(given) {
                prop_assert!(given <= taker.most || (taker.most > 0 && given == taker.now));
            }
        }
    }
}
