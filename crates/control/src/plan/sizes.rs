//! The caches that are recommended, and those within a budget.

use super::input::PlanInput;
use super::stage::Stage;
use super::{chunk_blocks, most};
use crate::allocation::{Bid, allocate, coupled};
use crate::sizing::smallest;
use forebay_units::Bytes;

/// Caches that keep what can be kept, as little in sum as is found: from the largest useful sizes each is shrunk as
/// far as all volumes allow, in several orders; the least sum wins. A local optimum.
pub(super) fn recommend(input: &PlanInput, stage: &Stage<'_>, base: &[u64]) -> Vec<u64> {
    let count = stage.volumes.len();
    let start: Vec<u64> = (0..count).map(|place| most(input, stage, place)).collect();
    let best = stage.evaluate(&start).excess();
    // What even the largest caches do not keep comes within 2 % of what they give (ours).
    let goals: Vec<f64> = best
        .iter()
        .map(|&best| if best <= -input.margin { -input.margin } else { best + best.abs() * 0.02 })
        .collect();
    let shortfall = |blocks: &[u64]| {
        stage
            .evaluate(blocks)
            .excess()
            .iter()
            .zip(&goals)
            .map(|(excess, goal)| excess - goal)
            .fold(f64::NEG_INFINITY, f64::max)
    };
    let without = stage.evaluate(base).excess();
    if without.iter().all(|&excess| excess <= 0.0) {
        return base.to_vec();
    }
    let bytes = |sizes: &[u64]| -> u128 {
        sizes
            .iter()
            .zip(&stage.volumes)
            .map(|(&size, volume)| u128::from(size) * u128::from(volume.block_size.bytes()))
            .sum()
    };
    (0..count.min(6))
        .map(|first| {
            let mut sizes = start.clone();
            for place in (0..count).map(|step| (first + step) % count) {
                let volume = stage.volumes[place];
                let beyond = sizes[place].saturating_sub(base[place]);
                let sizing = smallest(beyond, chunk_blocks(input, volume), 1e-9, |more| {
                    let mut tried = sizes.clone();
                    tried[place] = base[place] + more;
                    shortfall(&tried)
                });
                if sizing.reached {
                    sizes[place] = base[place] + sizing.blocks;
                }
            }
            sizes
        })
        .min_by_key(|sizes| bytes(sizes))
        .unwrap_or(start)
}

/// The allocation of `budget` that violates least, in blocks of every volume.
pub(super) fn within(
    input: &PlanInput,
    stages: &[(Stage<'_>, Vec<usize>)],
    recommended: &[u64],
    budget: Bytes,
) -> Vec<u64> {
    let volumes = &input.volumes;
    let bytes = |at: usize, blocks: u64| blocks * volumes[at].block_size.bytes();
    let least: Vec<u64> = volumes.iter().map(|volume| volume.block_size.blocks_for(volume.minimum)).collect();
    if (0..volumes.len()).map(|at| u128::from(bytes(at, recommended[at]))).sum::<u128>()
        <= u128::from(budget.get())
    {
        return recommended.to_vec();
    }
    let guaranteed: u64 = (0..volumes.len()).map(|at| bytes(at, least[at])).sum();
    let free = budget.get().saturating_sub(guaranteed);
    // At most 64 of them: costs are asked for every one (ours).
    let unit = input.chunk.get() * free.div_ceil(64).div_ceil(input.chunk.get()).max(1);
    let chunks = (free / unit) as usize;
    let blocks_of =
        |at: usize, chunks: usize| least[at] + chunks as u64 * unit / volumes[at].block_size.bytes();
    let mut most_chunks = vec![0usize; volumes.len()];
    let mut bids: Vec<Bid> = vec![Bid { priority: 0, minimum: 0, cost: vec![0.0] }; volumes.len()];
    for (stage, members) in stages {
        for (place, &at) in members.iter().enumerate() {
            let largest =
                most(input, stage, place).saturating_sub(least[at]) * volumes[at].block_size.bytes();
            most_chunks[at] = (largest.div_ceil(unit) as usize).min(chunks);
            let cost = (0..=most_chunks[at])
                .map(|chunks| {
                    let mut sizes: Vec<u64> = members.iter().map(|&other| recommended[other]).collect();
                    sizes[place] = blocks_of(at, chunks);
                    stage.evaluate(&sizes).weighted_violation(&stage.volumes)
                })
                .collect();
            let priority =
                volumes[at].objectives.iter().map(|objective| objective.priority).max().unwrap_or(0);
            bids[at] = Bid { priority, minimum: 0, cost };
        }
    }
    let separate = allocate(chunks, &bids);
    let limits: Vec<(usize, usize)> = most_chunks.iter().map(|&most| (0, most)).collect();
    // Caches relieve neighbours: improve the separate optimum by the cost of all together, where that is affordable
    // and no priorities forbid it.
    let one_priority = bids.windows(2).all(|pair| pair[0].priority == pair[1].priority);
    let given = if volumes.len() <= 4 && one_priority {
        coupled(chunks, separate, &limits, 12, |chunks| {
            stages
                .iter()
                .map(|(stage, members)| {
                    let sizes: Vec<u64> = members.iter().map(|&at| blocks_of(at, chunks[at])).collect();
                    stage.evaluate(&sizes).weighted_violation(&stage.volumes)
                })
                .sum()
        })
    } else {
        separate
    };
    (0..volumes.len()).map(|at| blocks_of(at, given[at])).collect()
}
