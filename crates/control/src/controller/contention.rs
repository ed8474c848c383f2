//! Contention: what memory was worth to those who wanted more of it than there is, over the last while.
//!
//! A cache that goes to whoever misses most at the moment goes back and forth between loads whose needs come and go, and is
//! cold wherever it comes to. So for as long as memory is contended, every volume that wants some has a stake in it: the most
//! that it wanted, and what sizes cost it on average over the intervals since. Bursts that come again count for as much as they hurt on average, not for all or nothing. It is *not* a guarantee: the
//! master weighs one stake against the other. The rules and numbers are ours.

use super::Controller;
use super::scene::Scene;
use super::scenes::Scenes;
use crate::inventory::VolumeId;
use std::collections::BTreeMap;

/// Intervals for which a stake stands after it was last needed (20 minutes of 10 s), or twice those until its turn comes again.
const STANDS: u64 = 120;
/// Intervals over which costs are averaged.
const MEMORY: f64 = 60.0;
/// Sizes at which costs are kept, beside none at all: those of the last sixteen octaves below the most that the volume may have.
const SIZES: u32 = 16 * OCTAVE;
/// Sizes of an octave.
const OCTAVE: u32 = 6;
/// Stakes that are weighed in one interval at most: more take turns.
const WEIGHED_MAX: usize = 16;
/// The part of what a cache is worth that is much (ours).
const LOST: f64 = 0.1;
/// What a size may cost more than enough, of what none costs, for it to be kept to: where memory is short, what is little to one is much to another (ours).
const SPARED: f64 = 0.02;
/// Windows after which it is known what memory is worth to a volume that nothing mends (ours).
const WORTH_SEEN: f64 = 6.0;
/// What costs so much more is more (a hundredth of the bound).
const NEEDED: f64 = 0.01;

/// What a volume wanted, and what the lack of it has cost.
#[derive(Clone, Debug)]
pub(super) struct Stake {
    /// The most that it wanted.
    blocks: u64,
    /// The step in which this ends.
    until: u64,
    /// The sizes that costs are kept of, ascending, from none to the most that it may have.
    sizes: Vec<u64>,
    /// Mean weighted violation of its origin at each of them, by priority.
    mean: BTreeMap<u8, Vec<f64>>,
    /// How many intervals are in it.
    seen: f64,
}

impl Stake {
    /// Of a volume that wanted so many blocks, of `ceiling` that it may have at most.
    ///
    /// Costs are kept of all that it may have from the first interval on: what is wanted later was not weighed before, and would seem worth nothing.
    pub(super) fn new(blocks: u64, ceiling: u64, step: u64) -> Stake {
        let top = blocks.max(ceiling).max(1);
        let below = |at: u32| (top as f64 * (-f64::from(at) / f64::from(OCTAVE)).exp2()).ceil() as u64;
        let mut sizes: Vec<u64> = (0..SIZES).rev().map(below).collect();
        sizes.insert(0, 0);
        sizes.dedup();
        Stake { blocks, until: step + STANDS, mean: BTreeMap::new(), sizes, seen: 0.0 }
    }

    /// Adds an interval in which sizes `cost` so much at each of `priorities`; it `stands` for so many more if a tenth less of it would have cost more.
    pub(super) fn weigh(
        &mut self,
        step: u64,
        stands: u64,
        priorities: impl IntoIterator<Item = u8>,
        cost: impl Fn(u8, u64) -> f64,
    ) {
        self.seen = (self.seen + 1.0).min(MEMORY);
        for priority in priorities {
            self.mean.entry(priority).or_insert_with(|| vec![0.0; self.sizes.len()]);
        }
        for (&priority, mean) in &mut self.mean {
            for (&size, mean) in self.sizes.iter().zip(mean) {
                *mean += (cost(priority, size) - *mean) / self.seen;
            }
        }
        let all = |blocks| self.mean.keys().map(|&priority| cost(priority, blocks)).sum::<f64>();
        if all(part(self.blocks, 9, 10)) > all(self.blocks) + NEEDED {
            self.until = step + stands;
        }
    }

    /// The mean cost of the size at a place, of which each priority counts so much.
    fn mean(&self, at: usize, counts: impl Fn(u8) -> f64) -> f64 {
        self.mean.iter().map(|(&priority, mean)| counts(priority) * mean[at]).sum()
    }

    /// What it is to have where it asks for so many blocks now: more, if those would lose much of what it was worth to it.
    ///
    /// A load that goes on as before asks for what it was found to need, which is known better than its costs are; one whose bursts are over for now
    /// asks for less than they need.
    pub(super) fn wants(&self, asked: u64) -> u64 {
        let cost = |blocks| self.cost(blocks, |_| 1.0);
        let (Some(asked_cost), Some(none)) = (cost(asked), cost(0)) else { return asked };
        let enough = self.enough();
        let least = cost(enough).unwrap_or(0.0);
        if asked_cost - least > SPARED * (none - least) { asked.max(enough) } else { asked }
    }

    /// Whether so many blocks cost much less than none, as far as was seen for long enough to say.
    pub(super) fn is_worth(&self, blocks: u64) -> bool {
        let cost = |blocks| self.cost(blocks, |_| 1.0);
        let (Some(none), Some(with)) = (cost(0), cost(blocks)) else { return false };
        self.seen >= WORTH_SEEN && none - with > LOST * none + NEEDED
    }

    /// The least that costs no more than the most that it wanted.
    fn enough(&self) -> u64 {
        let mean = |at| self.mean(at, |_| 1.0);
        let most = self.cost(self.blocks, |_| 1.0).unwrap_or(0.0) + NEEDED;
        let Some(at) = (0..self.sizes.len()).find(|&at| mean(at) <= most).filter(|_| self.seen > 0.0) else {
            return self.blocks;
        };
        let least = match at {
            0 => 0,
            _ => {
                let (below, above) = (mean(at - 1), mean(at));
                let step = (self.sizes[at] - self.sizes[at - 1]) as f64;
                self.sizes[at] - (step * (most - above) / (below - above)) as u64
            }
        };
        least.min(self.blocks)
    }

    /// The mean cost of a size that was found to do: of the next larger one that costs are kept of, since a cliff between two of those is there and nowhere below.
    pub(super) fn cost_of_what_does(&self, blocks: u64, counts: impl Fn(u8) -> f64) -> Option<f64> {
        let at = self.sizes.partition_point(|&size| size < blocks).min(self.sizes.len() - 1);
        (self.seen > 0.0).then(|| self.mean(at, counts))
    }

    /// The mean cost of a size, of which each priority `counts` so much; `None` before anything was seen.
    pub(super) fn cost(&self, blocks: u64, counts: impl Fn(u8) -> f64) -> Option<f64> {
        if self.seen == 0.0 {
            return None;
        }
        let mean = |at| self.mean(at, &counts);
        let above = self.sizes.partition_point(|&size| size <= blocks);
        let Some(&next) = self.sizes.get(above) else { return Some(mean(self.sizes.len() - 1)) };
        // The first is none at all.
        let below = above - 1;
        let part = (blocks - self.sizes[below]) as f64 / (next - self.sizes[below]) as f64;
        Some(mean(below) + (mean(above) - mean(below)) * part)
    }
}

/// So many parts of a whole.
fn part(whole: u64, parts: u64, of: u64) -> u64 {
    (u128::from(whole) * u128::from(parts) / u128::from(of)) as u64
}

impl Controller {
    /// More is wanted than there is: what each wants is its stake. `asks` are those who want it as of now.
    pub(super) fn contend(
        &mut self,
        wanted: &[(VolumeId, u64)],
        asks: impl Fn(VolumeId) -> bool,
        scenes: &mut Scenes,
    ) {
        let mut new = Vec::new();
        for &(id, blocks) in wanted {
            let (step, ceiling) = (self.step, self.blocks_ceiling(id));
            let volume = self.volumes.get_mut(&id).expect("who wants is registered");
            match &mut volume.stake {
                Some(stake) => {
                    stake.blocks = stake.blocks.max(blocks);
                    if asks(id) && blocks >= part(stake.blocks, 9, 10) {
                        stake.until = stake.until.max(step + STANDS);
                    }
                }
                stake => {
                    *stake = Some(Stake::new(blocks, ceiling, step));
                    new.push(id);
                }
            }
        }
        new.into_iter().take(WEIGHED_MAX).for_each(|id| self.weigh_stake(id, STANDS, scenes));
    }

    /// Adds what this interval says to what sizes cost. Stakes that are over are forgotten, and all of them where there is enough for all.
    pub(super) fn weigh_stakes(&mut self, scenes: &mut Scenes) {
        let step = self.step;
        let mut wanted = 0u128;
        for volume in self.volumes.values_mut() {
            volume.stake.take_if(|stake| step >= stake.until);
        }
        for volume in self.volumes.values() {
            // What nothing mends could use all that it asks for.
            let of = if self.may_have_spare(volume) { |stake: &Stake| stake.blocks } else { Stake::enough };
            let blocks = volume.stake.as_ref().map_or(0, of);
            wanted += u128::from(blocks) * u128::from(volume.block_bytes());
        }
        if wanted <= u128::from(self.capacity.get()) {
            if wanted > 0 {
                self.volumes.values_mut().for_each(|volume| volume.stake = None);
            }
            return;
        }
        let ids: Vec<VolumeId> =
            self.volumes.iter().filter(|(_, volume)| volume.stake.is_some()).map(|(id, _)| *id).collect();
        let turns = ids.len().div_ceil(WEIGHED_MAX).max(1) as u64;
        for (at, id) in ids.into_iter().enumerate() {
            if (at as u64 + step).is_multiple_of(turns) {
                self.weigh_stake(id, STANDS.max(2 * turns), scenes);
            }
        }
    }

    fn weigh_stake(&mut self, id: VolumeId, stands: u64, scenes: &mut Scenes) {
        let (index, place) = self.scene_place(scenes, id);
        let scene = &scenes.list[index];
        // Windows that ask for too little are not judged, and so say nothing of what it costs.
        if !scene.parties.iter().any(|party| self.volumes[&party.id].asked_for_enough()) {
            return;
        }
        let (sizes, step) = (self.sizes_at_stake(scene), self.step);
        let stake = self.volumes.get_mut(&id).and_then(|volume| volume.stake.as_mut());
        let stake = stake.expect("only who has a stake is weighed");
        stake.weigh(step, stands, scene.priorities().iter(), |priority, blocks| {
            let mut sizes = sizes.clone();
            sizes[place] = blocks;
            scene.violation_as_seen(&sizes, |of| f64::from(u8::from(of == priority)))
        });
    }

    /// The blocks of all that use an origin, where those who have more at stake have it.
    fn sizes_at_stake(&self, scene: &Scene) -> Vec<u64> {
        let stake = |id| self.volumes[&id].stake.as_ref().map_or(0, Stake::enough);
        scene.parties.iter().map(|party| party.blocks.max(stake(party.id))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_size_costs_is_the_mean_over_the_intervals() {
        let mut stake = Stake::new(64, 1_024, 0);
        assert_eq!(stake.cost(10, |_| 1.0), None);
        // A burst in the first of ten intervals costs 100 without any cache, and nothing with 32 blocks.
        for interval in 0..10 {
            let burst = interval == 0;
            stake.weigh(interval, STANDS, [0], |_, blocks| if burst && blocks < 32 { 100.0 } else { 0.0 });
        }
        assert_eq!(stake.cost(0, |_| 1.0), Some(10.0));
        assert_eq!((stake.cost(32, |_| 1.0), stake.enough()), (Some(0.0), 32));
        // Sizes between those that are kept, a sixth of an octave apart, lie between their costs.
        assert_eq!(stake.cost(29, |_| 1.0), Some(10.0));
        assert!((stake.cost(31, |_| 1.0).expect("weighed") - 10.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_wanted_later_was_weighed_from_the_first_interval_on() {
        let mut stake = Stake::new(64, 1_000, 0);
        stake.weigh(0, STANDS, [0], |_, blocks| 1_000.0 - blocks as f64);
        let cost = |blocks| stake.cost(blocks, |_| 1.0).expect("weighed");
        assert!((0..=1_000).all(|blocks| (cost(blocks) + blocks as f64 - 1_000.0).abs() < 1e-9));
        assert_eq!(stake.cost(5_000, |_| 1.0), Some(0.0));
    }

    #[test]
    fn sizes_of_volumes_of_any_size_are_kept() {
        for ceiling in [0, 1, 2, 3, 100, 1 << 40, u64::MAX] {
            let stake = Stake::new(1, ceiling, 0);
            assert!(stake.sizes[0] == 0 && stake.sizes.is_sorted_by(|a, b| a < b), "{:?}", stake.sizes);
            assert_eq!(stake.sizes.last(), Some(&ceiling.max(1)));
        }
    }

    #[test]
    fn a_size_that_was_found_to_do_is_above_the_cliff() {
        // All of a loop of 61 blocks answers it, and less nothing. Costs are kept at 57.02 and 64 blocks, among others.
        let mut stake = Stake::new(61, 1_024, 0);
        stake.weigh(0, STANDS, [0], |_, blocks| if blocks < 61 { 8.0 } else { 0.0 });
        assert!(stake.cost(61, |_| 1.0).expect("weighed") > 3.0);
        assert_eq!(stake.cost_of_what_does(61, |_| 1.0), Some(0.0));
        assert_eq!(stake.cost_of_what_does(57, |_| 1.0), Some(8.0));
        assert_eq!(
            (stake.cost_of_what_does(0, |_| 1.0), stake.cost_of_what_does(u64::MAX, |_| 1.0)),
            (Some(8.0), Some(0.0))
        );
        assert_eq!(Stake::new(61, 1_024, 0).cost_of_what_does(61, |_| 1.0), None);
    }

    #[test]
    fn memory_is_worth_something_once_windows_enough_have_said_so() {
        let mut stake = Stake::new(0, 1_024, 0);
        for interval in 0..WORTH_SEEN as u64 {
            assert!(!stake.is_worth(512), "after {interval} intervals");
            stake.weigh(interval, STANDS, [0], |_, blocks| 100.0 - blocks as f64 / 16.0);
        }
        // A tenth of what none costs: 160 blocks.
        assert!(stake.is_worth(512) && !stake.is_worth(128));
    }

    /// A volume that is asked for `arrivals` in an interval of a second, and takes ten times its bound.
    fn interval(controller: &mut Controller, at: u64, arrivals: u64) {
        use crate::observation::{Observation, VolumeObservation};
        use forebay_units::Nanos;
        let interval = Nanos::secs(1);
        let mut latencies = forebay_workload::LatencyHistogram::new();
        (0..arrivals).for_each(|_| latencies.record(Nanos::millis(50)));
        let mut observed = VolumeObservation::idle(VolumeId(1), interval);
        (observed.arrivals, observed.misses) = (arrivals, latencies.snapshot());
        controller.step(&Observation {
            at: Nanos::secs(at),
            interval,
            volumes: vec![observed],
            ..Observation::default()
        });
    }

    #[test]
    fn windows_that_ask_for_too_little_to_be_judged_say_nothing_of_what_sizes_cost() {
        use crate::config::ControlConfig;
        use crate::inventory::VolumeSpec;
        use crate::objective::{Objective, Operations};
        use forebay_units::{Bytes, Nanos};
        let mut controller =
            Controller::new(ControlConfig::default(), Bytes::mib(1), Vec::new(), Vec::new()).expect("valid");
        let objective = Objective::mean_latency(Nanos::millis(5), Operations::All).over(Nanos::secs(1));
        controller.register(VolumeSpec { objectives: vec![objective], ..VolumeSpec::any() }).expect("valid");
        // More than there is, of a volume that nothing mends.
        controller.volumes.get_mut(&VolumeId(1)).expect("registered").stake =
            Some(Stake::new(10_000, 10_000, 0));
        for at in 1..=40 {
            controller.unmended(VolumeId(1));
            // A burst in every fourth interval.
            interval(&mut controller, at, if at % 4 == 0 { 100 } else { 2 });
        }
        let stake = controller.volumes[&VolumeId(1)].stake.as_ref().expect("it stands");
        assert_eq!((stake.seen, stake.cost(0, |_| 1.0)), (10.0, Some(9.0)));
    }

    #[test]
    fn old_intervals_fade() {
        let mut stake = Stake::new(64, 64, 0);
        stake.weigh(0, STANDS, [0], |_, _| 1_000.0);
        (1..=10 * MEMORY as u64).for_each(|step| stake.weigh(step, STANDS, [0], |_, _| 1.0));
        let cost = stake.cost(64, |_| 1.0).expect("weighed");
        assert!((1.0..1.1).contains(&cost), "{cost}");
    }

    #[test]
    fn a_stake_stands_while_a_tenth_less_would_hurt() {
        let mut stake = Stake::new(100, 1_000, 0);
        stake.weigh(50, STANDS, [0], |_, blocks| if blocks < 95 { 1.0 } else { 0.0 });
        assert_eq!(stake.until, 50 + STANDS);
        // Half of it would do.
        stake.weigh(60, STANDS, [0], |_, blocks| if blocks < 50 { 1.0 } else { 0.0 });
        assert_eq!(stake.until, 50 + STANDS);
    }
}
