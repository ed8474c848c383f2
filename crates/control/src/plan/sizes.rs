//! The caches that are recommended, and those within a budget.

use super::input::{PlanInput, PlanVolume};
use super::stage::Stage;
use super::{chunk_blocks, most};
use crate::allocation::{Bid, allocate, coupled};
use crate::priorities::Priorities;
use crate::sizing::candidates;
use crate::solutions::Solution;
use forebay_units::Bytes;

/// Evaluations that [`exchange`] makes at most from one start, and the starts that it improves (ours).
const EXCHANGES_MAX: usize = 2_048;
const EXCHANGED_STARTS: usize = 3;
/// Orders in which the largest sizes are shrunk, and remedies of each volume that are started from, at most (ours).
const ORDERS_MAX: usize = 6;
const REMEDIES_MAX: usize = 3;

/// What every volume's excess is to come to: the margin, or within 2 % of what the largest caches give where even those
/// do not keep it (ours).
fn goals_of(input: &PlanInput, stage: &Stage<'_>, largest: &[u64]) -> Vec<f64> {
    let best = stage.evaluate(largest).excess();
    let goal = |best: f64| if best <= -input.margin { -input.margin } else { best + best.abs() * 0.02 };
    best.into_iter().map(goal).collect()
}

/// Caches that keep what can be kept, as little in sum as is found; `solved` are the ranked solutions by victim.
///
/// Starts are the largest useful sizes, what mends each volume by itself and all of that together, equal sizes, and
/// equal shares of what is of use. Each is made as small as all volumes allow, one cache after another, and the least
/// of them are improved by exchanges. A local optimum: never more than a solution that leaves nothing violated, and
/// within a chunk per volume of the optimum on small cases, which a test tries all of.
///
/// At most 6 + 4 per violated volume + 2 starts, of `O(volumes * log chunks)` evaluations each, and
/// [`EXCHANGED_STARTS`] times [`EXCHANGES_MAX`] evaluations for the exchanges.
pub(super) fn recommend(
    input: &PlanInput,
    stage: &Stage<'_>,
    base: &[u64],
    solved: &[(usize, Vec<Solution>)],
) -> Vec<u64> {
    let count = stage.volumes.len();
    let largest: Vec<u64> = (0..count).map(|place| most(input, stage, place)).collect();
    if stage.evaluate(base).excess().iter().all(|&excess| excess <= 0.0) {
        return base.to_vec();
    }
    let goals = goals_of(input, stage, &largest);
    let chunk: Vec<u64> = stage.volumes.iter().map(|volume| chunk_blocks(input, volume)).collect();
    // Chunks are of so many bytes in front of every volume: their number is what is to be least.
    let in_chunks = |blocks: &[u64]| -> Vec<u64> {
        (0..count).map(|at| blocks[at].saturating_sub(base[at]).div_ceil(chunk[at])).collect()
    };
    let in_blocks =
        |chunks: &[u64]| -> Vec<u64> { (0..count).map(|at| base[at] + chunks[at] * chunk[at]).collect() };
    let mut keeps = |chunks: &[u64]| stage.reaches(&in_blocks(chunks), &goals);
    let most_chunks = in_chunks(&largest);
    let mut starts: Vec<(Vec<u64>, usize)> =
        (0..count.min(ORDERS_MAX)).map(|first| (most_chunks.clone(), first)).collect();
    let mut together = vec![0; count];
    for (_, solutions) in solved {
        let reached = solutions.iter().filter(|solution| solution.reached);
        for (rank, solution) in reached.take(REMEDIES_MAX).enumerate() {
            let mut blocks = base.to_vec();
            solution.sizes.iter().for_each(|&(at, size)| blocks[at] = size);
            let chunks = in_chunks(&blocks);
            if rank == 0 {
                together = together.iter().zip(&chunks).map(|(&a, &b): (&u64, &u64)| a.max(b)).collect();
            }
            starts.push((chunks, 0));
        }
    }
    starts.push((together, 0));
    let widest = most_chunks.iter().copied().max().unwrap_or(0);
    let equal = |level: u64| most_chunks.iter().map(|&most| most.min(level)).collect();
    let in_proportion = |level: u64| {
        let part = |most: u64| (u128::from(most) * u128::from(level)).div_ceil(u128::from(widest.max(1)));
        most_chunks.iter().map(|&most| part(most) as u64).collect()
    };
    starts.push((least_level(widest, equal, &mut keeps), 0));
    starts.push((least_level(widest, in_proportion, &mut keeps), 0));
    let mut found: Vec<Vec<u64>> = Vec::new();
    for (mut chunks, first) in starts {
        if chunks == most_chunks || keeps(&chunks) {
            shrink(&mut chunks, first, &mut keeps);
            found.push(chunks);
        }
    }
    let sum = |chunks: &Vec<u64>| chunks.iter().map(|&chunks| u128::from(chunks)).sum::<u128>();
    found.sort_by(|a, b| sum(a).cmp(&sum(b)).then_with(|| a.cmp(b)));
    found.dedup();
    found.truncate(EXCHANGED_STARTS);
    let feet: Vec<Vec<u64>> = (0..count)
        .map(|at| {
            let sizes = candidates(&stage.volumes[at].curve, largest[at]);
            sizes.iter().map(|size| size.saturating_sub(base[at]).div_ceil(chunk[at])).collect()
        })
        .collect();
    for chunks in &mut found {
        exchange(chunks, &most_chunks, &feet, &mut keeps);
    }
    in_blocks(found.iter().min_by_key(|chunks| sum(chunks)).unwrap_or(&most_chunks))
}

/// The sizes at the least level up to `widest` whose sizes `keeps` all, by halving; those at `widest` where none does.
fn least_level(
    widest: u64,
    sizes: impl Fn(u64) -> Vec<u64>,
    keeps: &mut impl FnMut(&[u64]) -> bool,
) -> Vec<u64> {
    let (mut low, mut high) = (0, widest);
    while low < high {
        let middle = low + (high - low) / 2;
        if keeps(&sizes(middle)) { high = middle } else { low = middle + 1 }
    }
    sizes(high)
}

/// Makes each of `chunks` as small as the others allow, `first` first, by halving.
fn shrink(chunks: &mut [u64], first: usize, keeps: &mut impl FnMut(&[u64]) -> bool) {
    let count = chunks.len();
    for at in (0..count).map(|step| (first + step) % count) {
        let (mut low, mut high) = (0, chunks[at]);
        while low < high {
            let middle = low + (high - low) / 2;
            chunks[at] = middle;
            if keeps(chunks) { high = middle } else { low = middle + 1 }
        }
        chunks[at] = high;
    }
}

/// Lets one of `chunks` grow where another can then shrink by more, for as long as that is found: by 1 to 16 chunks, by
/// powers of two, and to the `feet` of the curves, where a little more is worth least. Some fifty evaluations for each
/// two volumes and improvement, [`EXCHANGES_MAX`] in all.
fn exchange(chunks: &mut Vec<u64>, most: &[u64], feet: &[Vec<u64>], keeps: &mut impl FnMut(&[u64]) -> bool) {
    let pairs: Vec<(usize, usize)> = (0..chunks.len())
        .flat_map(|grows| (0..most.len()).map(move |shrinks| (grows, shrinks)))
        .filter(|(grows, shrinks)| grows != shrinks)
        .collect();
    let powers: Vec<u64> = (5..64).rev().map(|power| 1 << power).collect();
    let mut left = EXCHANGES_MAX;
    'improved: loop {
        for &(grows, shrinks) in &pairs {
            let room = most[grows].saturating_sub(chunks[grows]).min(chunks[shrinks].saturating_sub(1));
            let to_feet = feet[grows].iter().filter_map(|&foot| foot.checked_sub(chunks[grows]));
            let from_feet = feet[shrinks].iter().filter_map(|&foot| chunks[shrinks].checked_sub(foot + 1));
            let steps = powers.iter().copied().chain((1..=16).rev()).chain(to_feet).chain(from_feet);
            for step in steps.filter(|&step| step > 0 && step <= room).collect::<Vec<_>>() {
                let mut tried = chunks.clone();
                tried[grows] += step;
                tried[shrinks] -= step + 1;
                if left == 0 {
                    return;
                }
                left -= 1;
                if keeps(&tried) {
                    shrink(&mut tried, shrinks, keeps);
                    *chunks = tried;
                    continue 'improved;
                }
            }
        }
        return;
    }
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
    let recommended_bytes: u128 = (0..volumes.len()).map(|at| u128::from(bytes(at, recommended[at]))).sum();
    let fits = recommended_bytes <= u128::from(budget.get());
    let violation = |blocks: &[u64], priorities: &Priorities| -> f64 {
        let of = |(stage, members): &(Stage<'_>, Vec<usize>)| {
            let sizes: Vec<u64> = members.iter().map(|&at| blocks[at]).collect();
            stage.evaluate(&sizes).weighted_violation(&stage.volumes, |of| priorities.weight(of))
        };
        stages.iter().map(of).sum()
    };
    let all = Priorities::of(priorities(volumes));
    // What is recommended stops where more mends little.
    let recommended_violation = violation(recommended, &all);
    if fits && recommended_violation <= 0.0 {
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
    for (stage, members) in stages {
        for (place, &at) in members.iter().enumerate() {
            let largest =
                most(input, stage, place).saturating_sub(least[at]) * volumes[at].block_size.bytes();
            most_chunks[at] = (largest.div_ceil(unit) as usize).min(chunks);
        }
    }
    let mut given = vec![0usize; volumes.len()];
    for level in all.descending() {
        // What was given for higher ones stays where it is.
        let before = given.clone();
        let mut bids: Vec<Bid> =
            before.iter().map(|&minimum| Bid { minimum, cost: vec![0.0; minimum + 1] }).collect();
        for (stage, members) in stages {
            if priorities(stage.volumes.iter().copied()).all(|priority| priority < level.lowest()) {
                continue;
            }
            for (place, &at) in members.iter().enumerate() {
                bids[at].cost = (0..=most_chunks[at])
                    .map(|chunks| {
                        let mut sizes: Vec<u64> = members.iter().map(|&other| recommended[other]).collect();
                        sizes[place] = blocks_of(at, chunks);
                        stage.evaluate(&sizes).weighted_violation(&stage.volumes, |of| level.weight(of))
                    })
                    .collect();
            }
        }
        given = allocate(chunks, &bids);
        // Caches relieve neighbours: the separate optimum is improved by the cost of all together, where that is affordable.
        if volumes.len() <= 4 {
            let limits: Vec<(usize, usize)> =
                before.iter().zip(&bids).map(|(&before, bid)| (before, bid.cost.len() - 1)).collect();
            given = coupled(chunks, given, &limits, 12, |chunks| {
                let blocks: Vec<u64> =
                    chunks.iter().enumerate().map(|(at, &chunks)| blocks_of(at, chunks)).collect();
                violation(&blocks, &level)
            });
        }
    }
    let given: Vec<u64> = (0..volumes.len()).map(|at| blocks_of(at, given[at])).collect();
    // Of those in which a budget is given finer sizes may do better.
    if fits && recommended_violation <= violation(&given, &all) { recommended.to_vec() } else { given }
}

/// Those of all objectives.
fn priorities<'a>(volumes: impl IntoIterator<Item = &'a PlanVolume>) -> impl Iterator<Item = u8> {
    let objectives = volumes.into_iter().flat_map(|volume| &volume.objectives);
    objectives.map(|objective| objective.priority)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{input, volume};
    use super::super::{PlanInput, minimums, plan};
    use super::{goals_of, most};
    use crate::plan::stage::{GOAL_SLACK, Stage};
    use forebay_locality::{CurvePoint, MissRatioCurve};
    use forebay_units::Bytes;
    use proptest::prelude::*;
    use std::sync::Arc;

    /// Rate, bound, points of the curve, and the minimum in units of 8 KiB.
    type Drawn = (u64, Option<u64>, Vec<(u64, u32)>, u64);

    /// Whether caches of `blocks` reach all goals, by a look at the windows and by the levels that decide.
    fn reaches(stage: &Stage<'_>, goals: &[f64], blocks: &[u64]) -> bool {
        let excess = stage.evaluate(blocks).excess();
        let over =
            excess.iter().zip(goals).map(|(excess, goal)| excess - goal).fold(f64::NEG_INFINITY, f64::max);
        let reaches = stage.reaches(blocks, goals);
        assert!(
            reaches == (over <= GOAL_SLACK) || (over - GOAL_SLACK).abs() < 1e-9,
            "{reaches}, but {over:e} over"
        );
        reaches
    }

    /// The least sum of chunks that reaches all goals, of all sizes that there are.
    fn least(input: &PlanInput) -> u64 {
        let volumes: Vec<_> = input.volumes.iter().collect();
        let stage = Stage::new(&input.origins[0], volumes, input.cache);
        let base = minimums(&stage);
        let chunk = input.chunk.get() / 4_096;
        let largest: Vec<u64> = (0..base.len()).map(|at| most(input, &stage, at)).collect();
        let goals = goals_of(input, &stage, &largest);
        if stage.evaluate(&base).excess().iter().all(|&excess| excess <= 0.0) {
            return 0;
        }
        let (mut blocks, mut least) = (base.clone(), u64::MAX);
        loop {
            let sum = blocks.iter().zip(&base).map(|(blocks, base)| (blocks - base) / chunk).sum();
            if sum < least && reaches(&stage, &goals, &blocks) {
                least = sum;
            }
            let Some(at) = (0..blocks.len()).find(|&at| blocks[at] < largest[at]) else { return least };
            blocks[at] += chunk;
            blocks[..at].copy_from_slice(&base[..at]);
        }
    }

    /// The fewest chunks in front of these volumes alone, one each at least, that keep what `violated` was promised.
    fn least_remedy(input: &PlanInput, violated: usize, cached: &[usize]) -> Option<u64> {
        let stage = Stage::new(&input.origins[0], input.volumes.iter().collect(), input.cache);
        let (base, chunk) = (minimums(&stage), input.chunk.get() / 4_096);
        let chunks = |at: usize| 1..=(most(input, &stage, at) - base[at]) / chunk;
        let mut least = None;
        for first in chunks(cached[0]) {
            for second in cached.get(1).map_or(0..=0, |&at| chunks(at)) {
                let mut blocks = base.clone();
                blocks[cached[0]] += first * chunk;
                cached.get(1).into_iter().for_each(|&at| blocks[at] += second * chunk);
                let sum = first + second;
                if least.is_none_or(|least| sum < least)
                    && stage.evaluate(&blocks).excess()[violated] <= -input.margin
                {
                    least = Some(sum);
                }
            }
        }
        least
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::with_cases(400) })]

        #[test]
        fn the_recommended_sum_is_near_the_least_of_all(
            volumes in proptest::collection::vec(
                (
                    5u64..60,
                    proptest::option::weighted(0.7, 6u64..40),
                    proptest::collection::vec((1u64..400, 0u32..100), 1..5),
                    0u64..2,
                ),
                2..4,
            ),
        ) {
            let planned = |(name, (rate, bound, points, minimum)): (&str, Drawn)| {
                let mut volume = volume(name, rate, bound);
                volume.load.windows.truncate(1);
                let mut points = points;
                points.sort_unstable();
                points.dedup_by_key(|point| point.0);
                let mut ratio = 1.0;
                let point = |(size_blocks, part): (u64, u32)| {
                    ratio *= f64::from(part) / 100.0;
                    CurvePoint { size_blocks, miss_ratio: ratio }
                };
                volume.curve = Arc::new(MissRatioCurve::new(points.into_iter().map(point).collect()));
                volume.minimum = Bytes(minimum * 8_192);
                volume
            };
            let mut input = input(["a", "b", "c"].into_iter().zip(volumes).map(planned).collect());
            input.chunk = Bytes(16 * 4_096);
            let plan = plan(&input).unwrap();
            let recommended = plan.recommendation.total_bytes;
            let minimums: u64 = input.volumes.iter().map(|volume| volume.minimum.get()).sum();
            let chunks = (recommended - minimums) / input.chunk.get();
            let least = least(&input);
            prop_assert!(chunks >= least && chunks <= least + input.volumes.len() as u64, "{chunks} of {least}");
            // Of what mends a volume, each cache and each two are the least that do.
            for remedy in &plan.remedies {
                let place = |name: &String| input.volumes.iter().position(|volume| volume.name == *name).unwrap();
                for solution in &remedy.solutions {
                    let cached: Vec<usize> = solution.caches.iter().map(|cache| place(&cache.volume)).collect();
                    let chunks = solution.cost_bytes / input.chunk.get();
                    prop_assert_eq!(Some(chunks), least_remedy(&input, place(&remedy.volume), &cached), "{:?}", solution);
                }
            }
            // Nor is it more than a remedy that leaves nothing violated.
            for solution in plan.remedies.iter().flat_map(|remedy| &remedy.solutions) {
                prop_assert!(!solution.still_violated.is_empty() || recommended - minimums <= solution.cost_bytes);
            }
        }
    }
}
