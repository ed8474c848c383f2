//! The master: turns what volumes want into quotas within the capacity.

use super::contention::Stake;
use super::scene::Scene;
use crate::allocation::{Bid, allocate, coupled};
use crate::inventory::VolumeId;
use std::collections::{BTreeMap, BTreeSet};

/// What one volume wants.
#[derive(Clone, Debug)]
pub(super) struct Want {
    pub(super) volume: VolumeId,
    pub(super) block_bytes: u64,
    pub(super) blocks: u64,
    /// What these are a first step to, if that is more.
    pub(super) goal: u64,
    /// Whether it asks for them now, and does not only have them at stake.
    pub(super) is_asked: bool,
    pub(super) blocks_min: u64,
    pub(super) priority: u8,
    /// The scene of its origin, by its place in the scenes given, and its own place in it.
    pub(super) scene: Option<(usize, usize)>,
    /// What sizes cost it over the last while, if more than now counts.
    pub(super) stake: Option<Stake>,
}

/// Bids of one priority that are settled together at most; more are settled by what each alone would change (ours).
const TOGETHER_MAX: usize = 8;
/// Chunks that memory is divided in at most: for up to 32 bids. The more bids, the fewer (ours).
const CHUNKS_MAX: usize = 256;
/// Improvements per start of bids that are settled together (ours).
const ROUNDS_MAX: usize = 12;

/// Grants everything where it fits; else the allocation that violates least. Returns blocks by volume and whether
/// anything had to be cut. The bytes granted never exceed `capacity`.
///
/// Bids of a higher priority are settled first. At first the violation of each origin is taken as a function of one
/// volume's blocks at a time, the others as they want; since a cache relieves all that share its origin, and what is short is
/// short for them too, that is then improved by what all of a priority are worth together.
pub(super) fn grant(
    wants: &[Want],
    scenes: &[Scene],
    capacity: u64,
    chunk_bytes: u64,
) -> (BTreeMap<VolumeId, u64>, bool) {
    let sizes = scenes.iter().map(Scene::blocks).collect();
    by_goals(wants, sizes, &|scene, blocks| scenes[scene].weighted_violation(blocks), capacity, chunk_bytes)
}

/// The same of any origins: `sizes` are the blocks in force, by origin and place.
///
/// A step to a size that mends something is worth what that size is, though it does little itself: behind an origin that is asked for too much, nothing. Who would
/// have its goal where all who are on their way had to have theirs at once has its step.
fn by_goals(
    wants: &[Want],
    sizes: Vec<Vec<u64>>,
    violation: &impl Fn(usize, &[u64]) -> f64,
    capacity: u64,
    chunk_bytes: u64,
) -> (BTreeMap<VolumeId, u64>, bool) {
    let mut wants = wants.to_vec();
    let wanted: u128 = wants.iter().map(|want| u128::from(want.blocks) * u128::from(want.block_bytes)).sum();
    if wanted > u128::from(capacity) && wants.iter().any(|want| want.goal > want.blocks) {
        let there = wants.iter().map(|want| Want { blocks: want.blocks.max(want.goal), ..want.clone() });
        let there: Vec<Want> = there.collect();
        let (given, _) = settle(&there, sizes.clone(), violation, capacity, chunk_bytes);
        for want in wants.iter_mut().filter(|want| want.goal > want.blocks) {
            if given[&want.volume] >= want.blocks {
                want.blocks_min = want.blocks;
            }
        }
    }
    settle(&wants, sizes, violation, capacity, chunk_bytes)
}

/// The same by what is wanted alone.
fn settle(
    wants: &[Want],
    sizes: Vec<Vec<u64>>,
    violation: &impl Fn(usize, &[u64]) -> f64,
    capacity: u64,
    chunk_bytes: u64,
) -> (BTreeMap<VolumeId, u64>, bool) {
    let wanted: u128 = wants.iter().map(|want| u128::from(want.blocks) * u128::from(want.block_bytes)).sum();
    if wanted <= u128::from(capacity) {
        return (wants.iter().map(|want| (want.volume, want.blocks)).collect(), false);
    }
    let division = Division::new(wants, sizes, violation, capacity, chunk_bytes);
    let (bids, stretch) = division.bids();
    let mut given = allocate(division.chunks, &bids);
    let left = division.improve_together(&stretch, &mut given);
    division.hand_out(left, &mut given);
    let mut blocks: Vec<u64> =
        wants.iter().zip(&given).map(|(want, &chunks)| division.blocks_of(want, chunks)).collect();
    if division.resolution < CHUNKS_MAX as u64 {
        let gains: Vec<f64> = (bids.iter().zip(&given))
            .map(|(bid, &chunks)| bid.cost[chunks] - bid.cost[bid.cost.len() - 1])
            .collect();
        hand_on(wants, &gains, capacity, &mut blocks);
    }
    (wants.iter().zip(blocks).map(|(want, blocks)| (want.volume, blocks)).collect(), true)
}

/// Memory that is not enough for all who want some, in chunks: what is left of it once everybody has his least.
struct Division<'a, V> {
    wants: &'a [Want],
    /// Blocks by origin and place if all had what they want.
    at_want: Vec<Vec<u64>>,
    violation: &'a V,
    /// Chunks that it is cut in at most.
    resolution: u64,
    /// Bytes of a chunk.
    unit: u64,
    /// How many there are.
    chunks: usize,
}

impl<'a, V: Fn(usize, &[u64]) -> f64> Division<'a, V> {
    fn new(
        wants: &'a [Want],
        sizes: Vec<Vec<u64>>,
        violation: &'a V,
        capacity: u64,
        chunk_bytes: u64,
    ) -> Division<'a, V> {
        let guaranteed: u64 = wants.iter().map(|want| least(want) * want.block_bytes).sum();
        let free = capacity.saturating_sub(guaranteed);
        // Finer chunks for fewer bids: the programme's time is bounded by bids * chunks^2 (ours).
        let resolution = (8_192 / wants.len().max(1)).clamp(16, CHUNKS_MAX) as u64;
        let unit = chunk_bytes.max(free.div_ceil(resolution)).max(1);
        let mut at_want = sizes;
        for want in wants {
            if let Some((scene, place)) = want.scene {
                at_want[scene][place] = want.blocks;
            }
        }
        Division { wants, at_want, violation, resolution, unit, chunks: (free / unit) as usize }
    }

    /// The chunks that somebody can use.
    fn most(&self, want: &Want) -> usize {
        let beyond = (want.blocks - least(want)) * want.block_bytes;
        (beyond.div_ceil(self.unit) as usize).min(self.chunks)
    }

    fn blocks_of(&self, want: &Want, chunks: usize) -> u64 {
        (least(want) + chunks as u64 * self.unit / want.block_bytes).min(want.blocks)
    }

    /// The violation of an origin with so many blocks for one, the others as they want.
    fn alone_now(&self, want: &Want, blocks: u64) -> f64 {
        let Some((scene, place)) = want.scene else { return 0.0 };
        let mut sizes = self.at_want[scene].clone();
        sizes[place] = blocks;
        (self.violation)(scene, &sizes)
    }

    /// The same over the last while, where that is known.
    fn alone(&self, want: &Want, blocks: u64) -> f64 {
        let mean = want.stake.as_ref().and_then(|stake| {
            if blocks >= want.blocks { stake.cost_of_what_does(blocks) } else { stake.cost(blocks) }
        });
        mean.unwrap_or_else(|| self.alone_now(want, blocks))
    }

    /// The same by chunks, from none to all that one can use, of blocks that are seen as others.
    fn costs(&self, want: &Want, seen: impl Fn(u64) -> u64) -> Vec<f64> {
        (0..=self.most(want)).map(|chunks| self.alone(want, seen(self.blocks_of(want, chunks)))).collect()
    }

    /// What each bids, and by how much its sizes are stretched.
    ///
    /// Sizes are wanted because of what was seen, and the model may think that less would do as well: it is stretched along the
    /// sizes until it thinks so of no less than what is wanted. Where it thinks that none is needed it says nothing of sizes.
    /// Among equals what sizes cost over the last while says more than what each happens to ask for.
    fn bids(&self) -> (Vec<Bid>, Vec<f64>) {
        let lowest = self.wants.iter().map(|want| want.priority).min().unwrap_or(0);
        let is_stretched = |want: &Want| want.stake.is_none() || (want.is_asked && want.priority > lowest);
        let bid = |want: &Want| {
            let cost = self.costs(want, |blocks| blocks);
            let enough = self.alone(want, want.blocks);
            let enough = enough + 1e-9 * enough.abs().max(1.0);
            let least_enough = cost.iter().position(|&cost| cost <= enough);
            let least_enough = least_enough.map_or(0, |at| self.blocks_of(want, at));
            let (cost, stretch) = if is_stretched(want) && least_enough > 0 && least_enough < want.blocks {
                let stretch = least_enough as f64 / want.blocks as f64;
                (self.costs(want, |blocks| seen_as(stretch, blocks)), stretch)
            } else {
                (cost, 1.0)
            };
            (Bid { priority: want.priority, minimum: 0, cost }, stretch)
        };
        self.wants.iter().map(bid).unzip()
    }

    /// Improves what is given by what all of a priority are worth together, those of a higher one first; the chunks that nobody has then.
    fn improve_together(&self, stretch: &[f64], given: &mut [usize]) -> usize {
        let mut priorities: Vec<u8> = self.wants.iter().map(|want| want.priority).collect();
        priorities.sort_unstable_by(|a, b| b.cmp(a));
        priorities.dedup();
        let mut left = self.chunks;
        for priority in priorities {
            let is_member = |at: &usize| self.wants[*at].priority == priority;
            let members: Vec<usize> = (0..self.wants.len()).filter(is_member).collect();
            // What was left for them by the first round may have gone to those before them.
            for &at in &members {
                given[at] = given[at].min(left);
                left -= given[at];
            }
            if members.len() > TOGETHER_MAX {
                continue;
            }
            left += members.iter().map(|&at| given[at]).sum::<usize>();
            let together = self.together(&members, stretch, given, left);
            for (&at, chunks) in members.iter().zip(together) {
                given[at] = chunks;
                left -= chunks;
            }
        }
        left
    }

    /// The chunks of `members`, of whom there are `left`, by what they are worth together.
    fn together(&self, members: &[usize], stretch: &[f64], given: &[usize], left: usize) -> Vec<usize> {
        let seen = |at: usize, chunks| seen_as(stretch[at], self.blocks_of(&self.wants[at], chunks));
        let origins: BTreeSet<usize> =
            members.iter().filter_map(|&at| self.wants[at].scene.map(|(scene, _)| scene)).collect();
        let mut sizes = self.at_want.clone();
        for (at, (want, &chunks)) in self.wants.iter().zip(given).enumerate() {
            if let Some((scene, place)) = want.scene {
                sizes[scene][place] = seen(at, chunks);
            }
        }
        let limits: Vec<(usize, usize)> = members.iter().map(|&at| (0, self.most(&self.wants[at]))).collect();
        let start = members.iter().map(|&at| given[at]).collect();
        // What the mean over the last while adds to the cost as of now, by chunks.
        let added = |&at: &usize| {
            let want = &self.wants[at];
            let added = |chunks| self.alone(want, seen(at, chunks)) - self.alone_now(want, seen(at, chunks));
            if want.stake.is_some() { (0..=self.most(want)).map(added).collect() } else { Vec::new() }
        };
        let added: Vec<Vec<f64>> = members.iter().map(added).collect();
        coupled(left, start, &limits, ROUNDS_MAX, |chunks| {
            for (&at, &chunks) in members.iter().zip(chunks) {
                if let Some((scene, place)) = self.wants[at].scene {
                    sizes[scene][place] = seen(at, chunks);
                }
            }
            let now: f64 = origins.iter().map(|&scene| (self.violation)(scene, &sizes[scene])).sum();
            now + added.iter().zip(chunks).filter_map(|(added, &chunks)| added.get(chunks)).sum::<f64>()
        })
    }

    /// What the model sees no use in is wanted all the same, and of no use to anybody else.
    fn hand_out(&self, mut left: usize, given: &mut [usize]) {
        let mut unmet: Vec<usize> =
            (0..self.wants.len()).filter(|&at| given[at] < self.most(&self.wants[at])).collect();
        unmet.sort_by_key(|&at| std::cmp::Reverse(self.wants[at].priority));
        for at in unmet {
            let more = left.min(self.most(&self.wants[at]) - given[at]);
            given[at] += more;
            left -= more;
        }
    }
}

/// The blocks that somebody has whoever else wants some.
fn least(want: &Want) -> u64 {
    want.blocks_min.min(want.blocks)
}

fn seen_as(stretch: f64, blocks: u64) -> u64 {
    (blocks as f64 * stretch + 1e-6) as u64
}

/// Among many a chunk may be far more than what each wants: what is left of `capacity` goes on in blocks, to those of a higher priority first, and among equals to who
/// gains most by a byte of it. `gains` is what each would gain by all that it wants. `O(wants log wants)`.
fn hand_on(wants: &[Want], gains: &[f64], capacity: u64, blocks: &mut [u64]) {
    let taken = |(want, &blocks): (&Want, &u64)| u128::from(blocks) * u128::from(want.block_bytes);
    let taken: u128 = wants.iter().zip(&*blocks).map(taken).sum();
    let mut left = u128::from(capacity).saturating_sub(taken) as u64;
    let by_byte = |at: usize| {
        let more = (wants[at].blocks - blocks[at]) * wants[at].block_bytes;
        gains[at] / more as f64
    };
    let mut unmet: Vec<(u8, f64, usize)> = (0..wants.len())
        .filter(|&at| blocks[at] < wants[at].blocks)
        .map(|at| (wants[at].priority, by_byte(at), at))
        .collect();
    unmet.sort_by(|a, b| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
    for (_, _, at) in unmet {
        let more = (wants[at].blocks - blocks[at]).min(left / wants[at].block_bytes);
        blocks[at] += more;
        left -= more * wants[at].block_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three volumes on one origin that is busy: each one's hits relieve all.
    fn violation(curves: &[Vec<f64>], blocks: &[u64]) -> f64 {
        let missed = |at: usize| curves[at][(blocks[at] as usize).min(curves[at].len() - 1)];
        let busy: f64 = (0..curves.len()).map(|at| 0.45 * missed(at)).sum();
        let latency = 10.0 / (1.0 - busy.min(0.97));
        (0..curves.len()).map(|at| missed(at) * latency).sum()
    }

    fn want(at: usize, blocks: u64, priority: u8) -> Want {
        let volume = VolumeId(at as u32);
        Want {
            volume,
            block_bytes: 4096,
            blocks,
            goal: 0,
            blocks_min: 0,
            priority,
            scene: Some((0, at)),
            is_asked: true,
            stake: None,
        }
    }

    #[test]
    fn what_is_short_on_one_origin_is_settled_as_by_trying_everything() {
        let mut better = 0;
        for seed in 0..60 {
            let mut random = forebay_workload::random(seed);
            let curves: Vec<Vec<f64>> = (0..3)
                .map(|_| {
                    let steps: Vec<f64> =
                        (0..20).map(|_| forebay_workload::exponential(1.0, &mut random).powi(2)).collect();
                    let total = steps.iter().sum::<f64>() * 1.1;
                    let falls = steps.iter().scan(1.0, |left, step| {
                        *left -= step / total;
                        Some(*left)
                    });
                    std::iter::once(1.0).chain(falls).collect()
                })
                .collect();
            // Each wants more than there is for all.
            let wants: Vec<Want> = (0..3).map(|at| want(at, 20, 0)).collect();
            let cost = |_: usize, blocks: &[u64]| violation(&curves, blocks);
            let (quotas, cut) = settle(&wants, vec![vec![0; 3]], &cost, 14 * 4096, 4096);
            let given: Vec<u64> = quotas.values().copied().collect();
            assert!(cut && given.iter().sum::<u64>() <= 14, "{given:?}");
            let mut best = f64::INFINITY;
            for a in 0..=14u64 {
                for b in 0..=14 - a {
                    for c in 0..=14 - a - b {
                        best = best.min(violation(&curves, &[a, b, c]));
                    }
                }
            }
            let found = violation(&curves, &given);
            assert!(found <= best * 1.02 + 1e-9, "seed {seed}: {found} and {best}");
            // Equal shares are what needs no thought.
            better += u32::from(found < violation(&curves, &[5, 5, 4]) - 1e-9);
        }
        assert!(better >= 55, "better than equal shares in {better} of 60");
    }

    #[test]
    fn a_step_is_worth_what_it_leads_to() {
        // Eight blocks mend all that the first is violated by, and the two that it asks for now nothing; the other gains as much by each of its twelve.
        let cost = |_: usize, blocks: &[u64]| {
            (if blocks[0] < 8 { 100.0 } else { 0.0 }) + 60.0 - 5.0 * blocks[1].min(12) as f64
        };
        let given = |goal: u64| {
            let wants = [Want { goal, ..want(0, 2, 0) }, want(1, 12, 0)];
            let (quotas, cut) = by_goals(&wants, vec![vec![0; 2]], &cost, 12 * 4096, 4096);
            (quotas[&VolumeId(0)], quotas[&VolumeId(1)], cut)
        };
        assert_eq!(given(8), (2, 10, true));
        assert_eq!(given(0), (0, 12, true));
        // A way that does not lead there with all that there is.
        assert_eq!(given(7), (0, 12, true));
        // What is guaranteed is so beside it.
        let wants = [Want { goal: 8, ..want(0, 2, 0) }, Want { blocks_min: 11, ..want(1, 12, 0) }];
        let (quotas, _) = by_goals(&wants, vec![vec![0; 2]], &cost, 12 * 4096, 4096);
        assert_eq!(quotas[&VolumeId(1)], 12, "{quotas:?}");
    }

    #[test]
    fn what_is_wanted_counts_where_the_model_thinks_that_less_would_do() {
        // The model sees the cliff at four blocks, but eight are wanted: the lower priority gets what they leave.
        let curve: Vec<f64> = (0..=8).map(|blocks| if blocks < 4 { 1.0 } else { 0.05 }).collect();
        let curves = vec![curve; 2];
        let cost = |_: usize, blocks: &[u64]| violation(&curves, blocks);
        let wants = [want(0, 8, 1), want(1, 8, 0)];
        let (quotas, _) = settle(&wants, vec![vec![0; 2]], &cost, 12 * 4096, 4096);
        assert_eq!(quotas[&VolumeId(0)], 8, "{quotas:?}");
    }

    #[test]
    fn what_it_cost_over_the_last_while_counts_rather_than_the_moment() {
        // Each wants all there is. The first has no load now, but bursts that cost it 100 in one of ten intervals.
        let curves = [vec![0.0; 9], (0..=8).map(|blocks| if blocks < 8 { 1.0 } else { 0.1 }).collect()];
        let cost = |scene: usize, blocks: &[u64]| violation(&curves[scene..=scene], blocks);
        let mut wants = [want(0, 8, 0), want(1, 8, 0)];
        (wants[0].scene, wants[1].scene) = (Some((0, 0)), Some((1, 0)));
        let first = |wants: &[Want]| settle(wants, vec![vec![0]; 2], &cost, 8 * 4096, 4096).0[&VolumeId(0)];
        assert_eq!(first(&wants), 0);
        let mut stake = Stake::new(8, 8, 0);
        (0..10).for_each(|step| {
            stake.weigh(step, 10, |blocks| if step == 0 && blocks < 8 { 1_000.0 } else { 0.0 });
        });
        wants[0].stake = Some(stake);
        assert_eq!(first(&wants), 8);
    }

    #[test]
    fn a_loop_that_just_fits_is_not_taken_for_one_that_hardly_does() {
        // All of 61 blocks take 8 away, and less nothing; the other's 64 take 6 away, each as much. Costs are kept of 57 and 64 blocks.
        let mut wants = [want(0, 61, 0), want(1, 64, 0)];
        let costs: [fn(u64) -> f64; 2] =
            [|blocks| if blocks < 61 { 8.0 } else { 0.0 }, |blocks| 6.0 - 6.0 * blocks.min(64) as f64 / 64.0];
        for (want, cost) in wants.iter_mut().zip(costs) {
            let mut stake = Stake::new(want.blocks, 1_024, 0);
            stake.weigh(0, 10, cost);
            want.stake = Some(stake);
        }
        let cost =
            |_: usize, blocks: &[u64]| blocks.iter().zip(costs).map(|(&blocks, cost)| cost(blocks)).sum();
        let (quotas, _) = settle(&wants, vec![vec![0; 2]], &cost, 64 * 4096, 4096);
        assert_eq!((quotas[&VolumeId(0)], quotas[&VolumeId(1)]), (61, 3));
    }

    #[test]
    fn what_the_model_sees_no_use_in_is_given_where_nobody_else_has_any() {
        let curves = [vec![1.0; 9], (0..=8).map(|blocks| if blocks < 8 { 1.0 } else { 0.1 }).collect()];
        let cost = |_: usize, blocks: &[u64]| violation(&curves, blocks);
        let wants = [want(0, 8, 0), want(1, 8, 0)];
        let (quotas, cut) = settle(&wants, vec![vec![0; 2]], &cost, 12 * 4096, 4096);
        assert!(cut && quotas[&VolumeId(0)] == 4 && quotas[&VolumeId(1)] == 8, "{quotas:?}");
    }

    #[test]
    fn many_who_want_a_little_have_what_there_is() {
        // Each of the volumes wants ten blocks, of each of which it gains as much, and the later the more; there are eight for each. A chunk is a sixteenth of all.
        let count = 1_000;
        let gain = |at: usize| 1.0 + at as f64 / count as f64;
        let cost = |scene: usize, blocks: &[u64]| gain(scene) * (10 - blocks[0].min(10)) as f64;
        let wants: Vec<Want> =
            (0..count).map(|at| Want { scene: Some((at, 0)), ..want(at, 10, 0) }).collect();
        let capacity = 8 * count as u64;
        let (quotas, cut) = settle(&wants, vec![vec![0]; count], &cost, capacity * 4096, 4096);
        let given: Vec<u64> = quotas.values().copied().collect();
        assert!(cut && given.iter().sum::<u64>() <= capacity, "{given:?}");
        assert!(given.iter().sum::<u64>() >= capacity * 99 / 100, "{}", given.iter().sum::<u64>());
        // Those who gain most by it have it.
        assert!(given[300..].iter().all(|&blocks| blocks == 10), "{given:?}");
    }

    #[test]
    fn those_of_a_higher_priority_come_first() {
        // One cliff at eight blocks for each, and room for one of them and a half.
        let curve: Vec<f64> = (0..=8).map(|blocks| if blocks < 8 { 1.0 } else { 0.1 }).collect();
        let curves = vec![curve; 3];
        let cost = |_: usize, blocks: &[u64]| violation(&curves, blocks);
        for first in 0..3 {
            let wants: Vec<Want> = (0..3).map(|at| want(at, 8, u8::from(at == first))).collect();
            let (quotas, _) = settle(&wants, vec![vec![0; 3]], &cost, 12 * 4096, 4096);
            assert_eq!(quotas[&VolumeId(first as u32)], 8, "{quotas:?}");
        }
    }
}
