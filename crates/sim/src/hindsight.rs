//! The least cache that would have done, with hindsight: what a sizing law is measured against.
//!
//! The optimum is the smallest *static* size for which at least the same share of windows conforms, with the same seed
//! and so the same requests. It is found by bisection, which takes more cache to mean no fewer conforming windows; noise
//! of single windows can make it miss by a step. It is not the optimum of a size that changes.

use crate::load::Traces;
use crate::scenario::{Scenario, Sizing};
use crate::simulation::{RunError, Simulation};
use forebay_control::eafc::EafcRules;
use forebay_units::{Bytes, Nanos};
use serde::Serialize;

/// A law and the optimum in hindsight, of one volume.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hindsight {
    /// Which volume.
    pub volume: String,
    /// Share of its judged windows that conformed under the law; its worst objective.
    pub conforming_share: f64,
    /// The law's quota from `measure_from` on, in bytes: on average, and at most.
    pub quota_bytes_mean: f64,
    /// See `quota_bytes_mean`.
    pub quota_bytes_max: f64,
    /// The smallest static size with at least that share, in bytes; absent where even all memory does not reach it.
    pub optimum_bytes: Option<u64>,
    /// Runs that were needed.
    pub runs: u32,
}

impl Hindsight {
    /// The law's mean quota over the optimum; absent where there is none or it is nothing.
    pub fn ratio(&self) -> Option<f64> {
        self.optimum_bytes.filter(|&bytes| bytes > 0).map(|bytes| self.quota_bytes_mean / bytes as f64)
    }
}

/// The worst conforming share of a volume, and its quota in bytes: on average and at most.
fn measure(
    scenario: &Scenario,
    traces: &Traces,
    seed: u64,
    volume: usize,
) -> Result<(Option<f64>, f64, f64), RunError> {
    let outcome = Simulation::new(scenario, traces, Some(seed))?.run();
    let series = &outcome.volumes[volume];
    let shares = series.objectives.iter().filter_map(|objective| objective.conforming_share);
    let block = series.block_bytes as f64;
    Ok((
        shares.min_by(f64::total_cmp),
        series.totals.quota_blocks_mean * block,
        series.totals.quota_blocks_max as f64 * block,
    ))
}

/// Compares the scenario's law with the optimum for volume number `volume`, to multiples of `step`; every other volume
/// keeps its fixed cache, or has none. Cost: one run of the law, and one per halving of the range.
///
/// `None` where the volume has no objective that was judged.
///
/// # Errors
/// [`RunError`] as [`Simulation::new`].
pub fn hindsight(
    scenario: &Scenario,
    traces: &Traces,
    seed: u64,
    volume: usize,
    step: Bytes,
) -> Result<Option<Hindsight>, RunError> {
    let (share, mean, max) = measure(scenario, traces, seed, volume)?;
    let Some(share) = share else { return Ok(None) };
    let mut fixed = with_fixed_sizes(scenario);
    let others: Bytes = fixed
        .volume
        .iter()
        .enumerate()
        .filter(|&(at, _)| at != volume)
        .map(|(_, table)| table.cache.unwrap_or_default())
        .sum();
    let most = scenario.cache.memory.saturating_sub(others).min(fixed.volume[volume].size);
    let step = step.get().max(1);
    let mut runs = 1;
    let mut suffices = |steps: u64| -> Result<bool, RunError> {
        runs += 1;
        fixed.volume[volume].cache = Some(Bytes((steps * step).min(most.get())));
        Ok(measure(&fixed, traces, seed, volume)?.0.is_some_and(|found| found >= share - 1e-9))
    };
    let mut range = [(0, most.get().div_ceil(step))];
    let reached = suffices(range[0].1)?;
    if reached {
        bisect(&mut range, |at| Ok(vec![suffices(at[0])?]))?;
    }
    Ok(Some(Hindsight {
        volume: scenario.volume[volume].name.clone(),
        conforming_share: share,
        quota_bytes_mean: mean,
        quota_bytes_max: max,
        optimum_bytes: reached.then(|| (range[0].1 * step).min(most.get())),
        runs,
    }))
}

/// The same scenario with sizes that are set, none of them yet.
pub(crate) fn with_fixed_sizes(scenario: &Scenario) -> Scenario {
    let mut fixed = scenario.clone();
    (fixed.cache.sizing, fixed.cache.control_from) = (Sizing::Fixed, Nanos::ZERO);
    fixed.eafc = EafcRules::default();
    for table in &mut fixed.volume {
        (table.minimum, table.maximum) = (Bytes::ZERO, None);
    }
    fixed
}

/// Narrows each range to the least of its numbers that suffices, all of them at once: `suffices` is asked for one number of each, and
/// says of each whether it does. The upper end of each must.
pub(crate) fn bisect(
    ranges: &mut [(u64, u64)],
    mut suffices: impl FnMut(&[u64]) -> Result<Vec<bool>, RunError>,
) -> Result<(), RunError> {
    while ranges.iter().any(|(low, high)| low < high) {
        let middles: Vec<u64> = ranges.iter().map(|(low, high)| low + (high - low) / 2).collect();
        for ((range, middle), sufficed) in ranges.iter_mut().zip(&middles).zip(suffices(&middles)?) {
            match range {
                (low, high) if low == high => {}
                (_, high) if sufficed => *high = *middle,
                (low, _) => *low = middle + 1,
            }
        }
    }
    Ok(())
}
