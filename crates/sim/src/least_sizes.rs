//! The least caches that keep what was promised, by simulation: what `forebay plan` holds its sizes against.
//!
//! It asks what [`hindsight`](crate::hindsight()) asks, of what was promised in place of what a law kept, and of all volumes together. It is
//! *not* a guess at loads to come: requests are those that the scenario has.

use crate::hindsight::{bisect, with_fixed_sizes};
use crate::load::Traces;
use crate::outcome::{ObjectiveOutcome, Outcome};
use crate::scenario::Scenario;
use crate::simulation::{RunError, Simulation};
use forebay_units::Bytes;

/// Where the cache of one volume is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRange {
    /// What it has in any case.
    pub least: Bytes,
    /// A guess; at least `least`.
    pub guess: Bytes,
    /// More buys nothing, or is not to be had; at least `guess`.
    pub most: Bytes,
}

/// The least caches with which as many promises are kept as can be.
#[derive(Clone, Debug, PartialEq)]
pub struct LeastSizes {
    /// One for each volume.
    pub caches: Vec<Bytes>,
    /// What comes of them.
    pub outcome: Outcome,
    /// Runs that were needed.
    pub runs: u32,
}

/// A run of the scenario with these caches, whose sizes never change. The cache is as large as they are together.
///
/// # Errors
/// [`RunError`] as [`Simulation::new`].
pub fn with_caches(
    scenario: &Scenario,
    traces: &Traces,
    seed: u64,
    caches: &[Bytes],
) -> Result<Outcome, RunError> {
    let mut fixed = with_fixed_sizes(scenario);
    for (volume, cache) in fixed.volume.iter_mut().zip(caches) {
        volume.cache = Some(*cache);
    }
    fixed.cache.memory = caches.iter().copied().sum();
    Ok(Simulation::new(&fixed, traces, Some(seed))?.run())
}

/// Whether an objective is kept, or as near to it as with the most cache, where even that does not keep it.
fn as_good(found: &ObjectiveOutcome, best: &ObjectiveOutcome) -> bool {
    let share = |outcome: &ObjectiveOutcome| outcome.conforming_share.unwrap_or(1.0);
    found.met != Some(false) || (best.met == Some(false) && share(found) >= share(best))
}

/// From the least caches of an origin's volumes over the guessed ones to the most, in steps of whichever cache takes most of them.
struct Line {
    to_guess: u64,
    to_most: u64,
}

impl Line {
    /// The cache of a volume at step `number`, in whole steps beyond the least and beyond the guess.
    fn cache(&self, number: u64, range: &SizeRange, step: u64) -> Bytes {
        let (from, to, number, of) = match number.checked_sub(self.to_guess) {
            Some(beyond) => (range.guess, range.most, beyond, self.to_most),
            None => (range.least, range.guess, number, self.to_guess),
        };
        let steps = to.saturating_sub(from).get().div_ceil(step);
        let part = (u128::from(steps) * u128::from(number)).div_ceil(u128::from(of.max(1))) as u64;
        Bytes(from.get().saturating_add(part * step)).min(to)
    }
}

/// The least caches with which every objective is kept that the most cache keeps, and of the others no fewer windows conform than with that;
/// to `step` beyond what each has in any case.
///
/// Of each origin all caches first grow and shrink together, along the line from the least over the guess to the most; the least of these
/// with which nothing is missed, and none that is larger than the guess where that suffices, is then made smaller, one cache after the other, the largest first, as long as that is so. So of one volume
/// on an origin it is the least there is; of several no cache alone can be smaller.
/// Volumes on different origins do not meet, so that all origins share runs.
///
/// Cost: a run for each halving, some 10 to 20 and up to as many again for each volume of the origin that has most, where it has several.
///
/// # Errors
/// [`RunError`] as [`Simulation::new`].
///
/// # Panics
/// If there is not one range for each volume of a scenario that was checked.
pub fn least_sizes(
    scenario: &Scenario,
    traces: &Traces,
    seed: u64,
    ranges: &[SizeRange],
    step: Bytes,
) -> Result<LeastSizes, RunError> {
    assert_eq!(ranges.len(), scenario.volume.len(), "a range for each volume");
    let origin_of = |at: usize| scenario.origin_of(&scenario.volume[at]).expect("a checked scenario");
    let members: Vec<Vec<usize>> = (0..scenario.origin.len())
        .map(|origin| (0..ranges.len()).filter(|&at| origin_of(at) == origin).collect())
        .collect();
    let step = step.get().max(1);
    let steps = |bytes: Bytes| bytes.get().div_ceil(step);
    let mut runs = 0;
    let mut run = |caches: &[Bytes]| {
        runs += 1;
        with_caches(scenario, traces, seed, caches)
    };
    let most: Vec<Bytes> = ranges.iter().map(|range| range.most).collect();
    let best = run(&most)?;
    let mut keeps = |caches: &[Bytes]| -> Result<Vec<bool>, RunError> {
        let outcome = run(caches)?;
        let keeps = |at: usize| {
            let mut objectives = outcome.volumes[at].objectives.iter().zip(&best.volumes[at].objectives);
            objectives.all(|(found, best)| as_good(found, best))
        };
        Ok(members.iter().map(|members| members.iter().all(|&at| keeps(at))).collect())
    };

    // All of an origin's caches along one line.
    let lines: Vec<Line> = members
        .iter()
        .map(|members| {
            let most = |of: fn(&SizeRange) -> Bytes| members.iter().map(|&at| steps(of(&ranges[at]))).max();
            Line {
                to_guess: most(|range| range.guess.saturating_sub(range.least)).unwrap_or(0),
                to_most: most(|range| range.most.saturating_sub(range.guess)).unwrap_or(0),
            }
        })
        .collect();
    let on_lines = |numbers: &[u64]| -> Vec<Bytes> {
        let cache = |(at, range)| lines[origin_of(at)].cache(numbers[origin_of(at)], range, step);
        ranges.iter().enumerate().map(cache).collect()
    };
    let mut numbers: Vec<(u64, u64)> = lines.iter().map(|line| (0, line.to_guess + line.to_most)).collect();
    // A little more cache is by chance the worse one at times, and halving passes over sizes that suffice: where the guess does, none that is larger is looked at.
    if lines.iter().any(|line| line.to_most > 0) {
        let guesses: Vec<u64> = lines.iter().map(|line| line.to_guess).collect();
        for ((low, high), (guess, keeps)) in
            numbers.iter_mut().zip(guesses.iter().zip(keeps(&on_lines(&guesses))?))
        {
            if keeps {
                *high = *guess;
            } else {
                *low = (guess + 1).min(*high);
            }
        }
    }
    bisect(&mut numbers, |numbers| keeps(&on_lines(numbers)))?;
    let mut caches = on_lines(&numbers.iter().map(|number| number.1).collect::<Vec<u64>>());

    // Then each of them by itself.
    let mut orders = members.clone();
    for order in &mut orders {
        order.sort_by_key(|&at| std::cmp::Reverse(caches[at]));
    }
    let rounds = members.iter().map(Vec::len).filter(|&count| count > 1).max().unwrap_or(0);
    for round in 0..rounds {
        let turns: Vec<Option<usize>> =
            orders.iter().map(|order| order.get(round).copied().filter(|_| order.len() > 1)).collect();
        let beyond = |at: usize, caches: &[Bytes]| steps(caches[at].saturating_sub(ranges[at].least));
        let mut sizes: Vec<(u64, u64)> =
            turns.iter().map(|turn| (0, turn.map_or(0, |at| beyond(at, &caches)))).collect();
        let with = |numbers: &[u64], caches: &[Bytes]| {
            let mut tried = caches.to_vec();
            for (&turn, &number) in turns.iter().zip(numbers) {
                if let Some(at) = turn {
                    tried[at] = Bytes(ranges[at].least.get().saturating_add(number * step)).min(caches[at]);
                }
            }
            tried
        };
        bisect(&mut sizes, |numbers| keeps(&with(numbers, &caches)))?;
        caches = with(&sizes.iter().map(|size| size.1).collect::<Vec<u64>>(), &caches);
    }
    let outcome = run(&caches)?;
    Ok(LeastSizes { caches, outcome, runs })
}
