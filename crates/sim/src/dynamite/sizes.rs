//! The size that a course came to, beside the least that would have done, with hindsight.

use super::{Course, PERIOD_MIN, PUBLISHED, Setup, Stage};
use crate::load::Traces;
use crate::scenario::Sizing;
use crate::simulation::{RunError, Simulation};
use forebay_control::conformance::Verdict;
use forebay_units::{Bytes, Nanos, mix64};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Steps of the search (ours): sizes are told apart to a four-thousandth of the appliance's memory, as a hundredth of it does where little cache does most.
const STEPS: u64 = 4_096;
/// The share of intervals that keep every floor where a size works: that of the objectives.
const SHARE: f64 = 0.99;
/// Draws of one load that the least is sought over besides (ours): of a hundred intervals 99 % is decided by the worst two.
const DRAWS: u64 = 5;

/// Sizes in front of the main workload in the second half of the peak, when what was begun at its beginning has had time to settle.
///
/// Given and least are judged by the same intervals of the same requests. What a course gave may be less than the least that works: then it did not
/// work all the time, and [`kept`](Self::kept) says how far. So there are three yardsticks: the least that keeps the promise, the least that keeps it as often as the course did, and the least
/// that keeps it over five draws of the same load together, of which this is the first: what the load needs, where the others say what this draw of it needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SizeGiven {
    /// On what.
    pub stage: Stage,
    /// Of which course.
    pub course: Course,
    /// What its cache was granted, in bytes, on average.
    pub given_bytes: f64,
    /// The share of intervals in which every floor was kept.
    pub kept: f64,
    /// The least that a cache needs, which is there all along, for [`SHARE`] of intervals to keep every floor; absent where all memory does not do.
    pub least_bytes: Option<u64>,
    /// The least for as many intervals as the course kept, at most [`SHARE`].
    pub least_for_as_many_bytes: Option<u64>,
    /// The least for [`SHARE`] of the intervals of five draws together.
    pub least_over_draws_bytes: Option<u64>,
    /// Every size that was tried to find them, with the share of intervals that it kept, by size. Where a larger one keeps fewer, that is the noise of single intervals.
    pub tried: Vec<(u64, f64)>,
}

impl SizeGiven {
    /// What was given over a least size; absent where that is nothing.
    fn over(&self, least: Option<u64>) -> Option<f64> {
        least.filter(|&least| least > 0).map(|least| self.given_bytes / least as f64)
    }

    /// What was given over the least that keeps the promise.
    pub fn ratio(&self) -> Option<f64> {
        self.over(self.least_bytes)
    }

    /// What was given over the least that keeps the promise over five draws.
    pub fn ratio_over_draws(&self) -> Option<f64> {
        self.over(self.least_over_draws_bytes)
    }

    /// What was given over the least that is as good as it was.
    pub fn ratio_for_as_many(&self) -> Option<f64> {
        self.over(self.least_for_as_many_bytes)
    }
}

/// Compares a course's size with the least, by bisection: one run of the course, and some eighty of sizes that stay. The requests are the same in all, but for those of other draws.
///
/// # Errors
/// As [`super::run`].
pub fn size_given(setup: &Setup, course: Course) -> Result<SizeGiven, RunError> {
    let (kept, given_bytes) = late(setup, course, None)?;
    let memory = setup.memory().get();
    let size = |steps: u64| Bytes(memory * steps / STEPS);
    let mut tried: BTreeMap<u64, f64> = BTreeMap::new();
    let mut kept_at = |steps: u64| -> Result<f64, RunError> {
        let kept = match tried.get(&steps) {
            Some(kept) => *kept,
            None => late(setup, course, Some(size(steps)))?.0,
        };
        tried.insert(steps, kept);
        Ok(kept)
    };
    let least = |kept_at: &mut dyn FnMut(u64) -> Result<f64, RunError>, share: f64| -> Result<_, RunError> {
        Ok(least_steps(kept_at, share)?.map(|steps| size(steps).get()))
    };
    let least_bytes = least(&mut kept_at, SHARE)?;
    let least_for_as_many_bytes = least(&mut kept_at, kept.min(SHARE))?;
    let mut kept_over_draws = |steps: u64| -> Result<f64, RunError> {
        let mut sum = kept_at(steps)?;
        for draw in 1..DRAWS {
            let other = Setup { seed: mix64(setup.seed ^ mix64(draw)), ..*setup };
            sum += late(&other, course, Some(size(steps)))?.0;
        }
        Ok(sum / DRAWS as f64)
    };
    let least_over_draws_bytes = least(&mut kept_over_draws, SHARE)?;
    Ok(SizeGiven {
        stage: setup.stage,
        course,
        given_bytes,
        kept,
        least_bytes,
        least_for_as_many_bytes,
        least_over_draws_bytes,
        tried: tried.into_iter().map(|(steps, kept)| (size(steps).get(), kept)).collect(),
    })
}

/// The fewest of [`STEPS`] that keep `share` of intervals, by bisection; `None`: all do not.
fn least_steps(
    kept_at: &mut dyn FnMut(u64) -> Result<f64, RunError>,
    share: f64,
) -> Result<Option<u64>, RunError> {
    let (mut low, mut high) = (0, STEPS);
    if kept_at(high)? < share {
        return Ok(None);
    }
    while low < high {
        let middle = (low + high) / 2;
        if kept_at(middle)? >= share { high = middle } else { low = middle + 1 }
    }
    Ok(Some(high))
}

/// The share of intervals of the second half of the peak that keep every floor, and the mean size in them; with a cache of this size all along where there is one.
fn late(setup: &Setup, course: Course, fixed: Option<Bytes>) -> Result<(f64, f64), RunError> {
    let mut scenario = setup.scenario(course);
    // What comes after the peak does not count.
    scenario.duration = Nanos(scenario.measure_from.0 + setup.minute().0 * PUBLISHED.phases_min[2] as u64);
    if let Some(size) = fixed {
        scenario.cache.sizing = Sizing::Fixed;
        scenario.volume[0].cache = Some(size);
    }
    let outcome = Simulation::new(&scenario, &Traces::new(), None)?.run();
    let minute_s = setup.minute().as_secs_f64();
    let start_s = minute_s * (PERIOD_MIN * (course.periods() - 1)) as f64;
    let [_, calm, peak] = PUBLISHED.phases_min.map(|minute| start_s + minute * minute_s);
    let is_late = |at_s: f64| at_s > (calm + peak) / 2.0 && at_s <= peak;
    let main = &outcome.volumes[0];
    let rows: Vec<_> = main.intervals.iter().filter(|row| is_late(row.at_s)).collect();
    let missed: BTreeSet<u64> = (outcome.volumes.iter().flat_map(|volume| &volume.objectives))
        .flat_map(|objective| &objective.windows)
        .filter(|window| window.verdict == Verdict::Nonconforming && is_late(window.at_s))
        .map(|window| (window.at_s / setup.interval().as_secs_f64()).round() as u64)
        .collect();
    let count = rows.len().max(1) as f64;
    let quota: f64 = rows.iter().map(|row| (row.quota_blocks * main.block_bytes) as f64).sum();
    Ok((1.0 - missed.len() as f64 / count, quota / count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_steps_that_keep_a_share_are_found() {
        for wanted in [0, 1, 2, 1_000, 4_095, STEPS] {
            let mut asked = 0;
            let mut kept_at = |steps: u64| {
                asked += 1;
                Ok(if steps >= wanted { 0.99 } else { 0.98 })
            };
            assert_eq!(least_steps(&mut kept_at, SHARE).unwrap(), Some(wanted));
            assert!(asked <= 14, "{asked}");
        }
        assert_eq!(least_steps(&mut |_| Ok(0.98), SHARE).unwrap(), None);
    }

    #[test]
    fn nothing_is_a_multiple_of_no_cache() {
        let given = |least| SizeGiven {
            stage: Stage::Paper,
            course: Course::Forebay,
            given_bytes: 3.0,
            kept: 1.0,
            least_bytes: Some(least),
            least_for_as_many_bytes: Some(least),
            least_over_draws_bytes: Some(least),
            tried: Vec::new(),
        };
        let ratios = |of: SizeGiven| [of.ratio(), of.ratio_for_as_many(), of.ratio_over_draws()];
        assert_eq!((ratios(given(0)), ratios(given(2))), ([None; 3], [Some(1.5); 3]));
    }

    #[test]
    fn what_is_given_is_compared_with_three_least_sizes() {
        let setup = Setup { stage: Stage::StripesSkewed, hurry: 10, seed: 5 };
        let given = size_given(&setup, Course::Forebay).expect("a course runs");
        let tried = |bytes: u64| given.tried.iter().find(|(size, _)| *size == bytes).map(|(_, kept)| *kept);
        let least = given.least_bytes.expect("all memory does");
        assert!(tried(least).is_some_and(|kept| kept >= SHARE), "{given:?}");
        let for_as_many = given.least_for_as_many_bytes.expect("all memory does");
        assert!(for_as_many <= least && tried(for_as_many).is_some_and(|kept| kept >= given.kept.min(SHARE)));
        // Of five draws some need less and some more; each size that was asked of them was asked of this one.
        let over_draws = given.least_over_draws_bytes.expect("all memory does");
        assert!(tried(over_draws).is_some() && over_draws > 0, "{given:?}");
        assert!(given.ratio_over_draws().is_some_and(|ratio| ratio > 0.0));
    }

    /// The main load drops what does not fit among its outstanding requests, so that it looks like a loop, which would ask for more whatever it is given: by such a model no cache
    /// in front of it helps the reader beside it, and half of the intervals missed a floor.
    #[test]
    fn a_load_that_seems_to_be_a_loop_is_cached_for_the_neighbour_that_it_delays() {
        for seed in [708, 742] {
            let setup = Setup { stage: Stage::MirrorsUniform, hurry: 5, seed };
            let (kept, given) = late(&setup, Course::Forebay, None).expect("a course runs");
            assert!(kept >= 0.95, "seed {seed}: {kept} of the intervals with {given} bytes");
            assert!(given < 0.5 * setup.memory().as_f64(), "seed {seed}: {given} bytes");
        }
    }
}
