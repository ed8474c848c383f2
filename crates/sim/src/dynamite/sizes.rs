//! The size that a course came to, beside the least that would have done, with hindsight.

use super::{Course, PERIOD_MIN, PUBLISHED, Setup, Stage};
use crate::load::Traces;
use crate::scenario::Sizing;
use crate::simulation::{RunError, Simulation};
use forebay_control::conformance::Verdict;
use forebay_units::{Bytes, Nanos};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Steps of the search (ours): sizes are told apart to a hundredth of the appliance's memory.
const STEPS: u64 = 100;
/// The share of intervals that keep every floor where a size works: that of the objectives.
const SHARE: f64 = 0.99;

/// Sizes in front of the main workload in the second half of the peak, when what was begun at its beginning has had time to settle.
///
/// Given and least are judged by the same intervals of the same requests. What a course gave may be less than the least that works: then it did not
/// work all the time, and [`kept`](Self::kept) says how far. So there are two yardsticks: the least that keeps the promise, and the least that keeps it as often as the course did.
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
    /// Every size that was tried to find them, with the share of intervals that it kept, by size. Where a larger one keeps fewer, that is the noise of single intervals.
    pub tried: Vec<(u64, f64)>,
}

impl SizeGiven {
    /// What was given over the least that keeps the promise.
    pub fn ratio(&self) -> Option<f64> {
        self.least_bytes.map(|least| self.given_bytes / least as f64)
    }

    /// What was given over the least that is as good as it was; absent where that is nothing.
    pub fn ratio_for_as_many(&self) -> Option<f64> {
        self.least_for_as_many_bytes.filter(|&least| least > 0).map(|least| self.given_bytes / least as f64)
    }
}

/// Compares a course's size with the least, by bisection: one run of the course, and eight to fourteen of sizes that stay. The requests are the same in all.
///
/// # Errors
/// As [`super::run`].
pub fn size_given(setup: &Setup, course: Course) -> Result<SizeGiven, RunError> {
    let (kept, given_bytes) = late(setup, course, None)?;
    let memory = setup.memory().get();
    let size = |steps: u64| Bytes(memory * steps / STEPS);
    let mut tried: BTreeMap<u64, f64> = BTreeMap::new();
    let mut least = |share: f64| -> Result<Option<u64>, RunError> {
        let mut works = |steps: u64| -> Result<bool, RunError> {
            let kept = match tried.get(&steps) {
                Some(kept) => *kept,
                None => late(setup, course, Some(size(steps)))?.0,
            };
            tried.insert(steps, kept);
            Ok(kept >= share)
        };
        let (mut low, mut high) = (0, STEPS);
        let reached = works(high)?;
        while reached && low < high {
            let middle = (low + high) / 2;
            if works(middle)? { high = middle } else { low = middle + 1 }
        }
        Ok(reached.then(|| size(high).get()))
    };
    Ok(SizeGiven {
        stage: setup.stage,
        course,
        given_bytes,
        kept,
        least_bytes: least(SHARE)?,
        least_for_as_many_bytes: least(kept.min(SHARE))?,
        tried: tried.into_iter().map(|(steps, kept)| (size(steps).get(), kept)).collect(),
    })
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
