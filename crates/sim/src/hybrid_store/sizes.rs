//! Steady load: the least static size with hindsight, and what the laws come to.

use super::{Law, PUBLISHED, Setup, conforming, mean, static_windows, windows};
use crate::outcome::Outcome;
use crate::simulation::RunError;
use forebay_control::eafc::Decrement;
use forebay_policy::PolicyKind;
use forebay_units::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;

/// Static sizes are tried in so many steps of the working set.
const STEPS: u64 = 140;

/// The smallest static size with which a share of windows conforms.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OptimumRow {
    /// The policy: `lru` as in the paper, or `two-pool` as in the daemon.
    pub policy: &'static str,
    /// The objective.
    pub objective_ms: f64,
    /// The share of windows, in hundredths.
    pub percentile: f64,
    /// That size, at the paper's scale; absent where the whole working set does not do.
    pub bytes: Option<f64>,
    /// What that saves of vanilla's.
    pub saved: Option<f64>,
    /// What the paper's controller had for the objective, and saved.
    pub paper_bytes: f64,
    /// See `paper_bytes`.
    pub paper_saved: f64,
}

/// What a law came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LawRow {
    /// Its name.
    pub law: &'static str,
    /// The objective.
    pub objective_ms: f64,
    /// The conformance percentile that it was given; for vanilla none.
    pub percentile: Option<f64>,
    /// Its mean size over the second half, at the paper's scale.
    pub bytes_mean: f64,
    /// Its largest size of the whole run.
    pub bytes_max: f64,
    /// What the mean saves of vanilla's.
    pub saved: f64,
    /// Share of the windows of the second half that conformed.
    pub conforming_share: f64,
    /// Mean latency of the second half.
    pub mean_ms: f64,
    /// The least static size under the same policy with the same share of conforming windows, at the paper's scale; absent where there is none.
    pub hindsight_bytes: Option<f64>,
    /// Mean size over that.
    pub ratio: Option<f64>,
    /// When its size had come within a tenth of the mean of the second half, for good, in seconds; absent where it was not there at the end.
    pub settled_s: Option<f64>,
    /// Size over time: seconds and bytes at the paper's scale.
    #[serde(skip)]
    pub series: Vec<(f64, f64)>,
}

/// Steady load under one reading.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sizes {
    /// What vanilla LRU is given: the working set.
    pub vanilla_bytes: f64,
    /// What of it was in use at the end of the run.
    pub vanilla_used_bytes: f64,
    /// Its mean latency.
    pub vanilla_mean_ms: f64,
    /// Mean latency without any cache; absent where the disks can never serve the load.
    pub uncached_mean_ms: Option<f64>,
    /// With hindsight, per objective and percentile.
    pub optima: Vec<OptimumRow>,
    /// The laws.
    pub laws: Vec<LawRow>,
    /// Static sizes under LRU that were run: bytes at the paper's scale, mean and 75th percentile of the windows in milliseconds.
    pub curve: Vec<(f64, f64, f64)>,
    /// Runs that were made.
    pub runs: u32,
}

/// Static runs under one policy, each made once.
struct Statics<'a> {
    setup: &'a Setup,
    policy: PolicyKind,
    runs: BTreeMap<u64, Vec<f64>>,
}

impl Statics<'_> {
    fn size(step: u64) -> Bytes {
        Bytes(PUBLISHED.working_set.get() * step / STEPS)
    }

    fn windows(&mut self, step: u64) -> Result<&[f64], RunError> {
        if !self.runs.contains_key(&step) {
            let scenario = self.setup.steady(Law::Static(Self::size(step), self.policy), 8.0, 0.75);
            self.runs.insert(step, static_windows(self.setup, &scenario)?);
        }
        Ok(&self.runs[&step])
    }

    /// The least step with which `share` of the windows conforms, by bisection.
    fn least(&mut self, bound: f64, share: f64) -> Result<Option<u64>, RunError> {
        let mut suffices =
            |step| -> Result<bool, RunError> { Ok(conforming(self.windows(step)?, bound) >= share - 1e-9) };
        if !suffices(STEPS)? {
            return Ok(None);
        }
        let (mut low, mut high) = (0, STEPS);
        while low < high {
            let middle = (low + high) / 2;
            if suffices(middle)? { high = middle } else { low = middle + 1 }
        }
        Ok(Some(high))
    }
}

/// Sizes under steady load; `tell` is told of every run before it is made. `percentiles` are the
/// conformance percentiles that the laws are given, as of [`super::PERCENTILES`].
///
/// # Errors
/// [`RunError`] as [`crate::Simulation::new`].
pub fn sizes(setup: &Setup, percentiles: &[f64], tell: &mut dyn FnMut(&str)) -> Result<Sizes, RunError> {
    let vanilla_bytes = PUBLISHED.working_set.as_f64();
    let (half, end) = (setup.duration.as_secs_f64() / 2.0, setup.duration.as_secs_f64());
    let make = |policy| Statics { setup, policy, runs: BTreeMap::new() };
    let (mut statics, mut pools) = (make(PolicyKind::Lru), make(PolicyKind::TwoPool));
    tell("no cache");
    let uncached = statics.windows(0)?;
    let uncached_mean_ms = (!uncached.is_empty()).then(|| mean(uncached));
    let mut optima = Vec::new();
    for (policy, statics) in [("lru", &mut statics), ("two-pool", &mut pools)] {
        for (objective_ms, paper, paper_saved) in PUBLISHED.results {
            for &percentile in percentiles {
                tell(&format!("hindsight, {policy}, {objective_ms} ms, {percentile} %"));
                let step = statics.least(objective_ms, percentile / 100.0)?;
                let bytes = step.map(|step| Statics::size(step).as_f64());
                optima.push(OptimumRow {
                    policy,
                    objective_ms,
                    percentile,
                    bytes,
                    saved: bytes.map(|bytes| 1.0 - bytes / vanilla_bytes),
                    paper_bytes: paper.as_f64(),
                    paper_saved,
                });
            }
        }
    }
    let mut laws = Vec::new();
    let mut runs = 0;
    let mut vanilla = (0.0, 0.0);
    for (objective_ms, ..) in PUBLISHED.results {
        let mut candidates = vec![("vanilla LRU", None, Law::Vanilla)];
        for &percentile in percentiles {
            let at = |decrement| Law::Eafc(decrement, percentile);
            candidates.push(("EAFC, max threshold", Some(percentile), at(Decrement::MaxThreshold)));
            candidates.push(("EAFC, min-max range", Some(percentile), at(Decrement::MinMaxRange)));
            candidates.push(("Forebay", Some(percentile), Law::Forebay(percentile / 100.0)));
        }
        for (name, percentile, law) in candidates {
            tell(&format!("{name}, {objective_ms} ms"));
            let share = percentile.unwrap_or(75.0) / 100.0;
            let outcome = setup.run(&setup.steady(law, objective_ms, share))?;
            runs += 1;
            let found = windows(&outcome, 0, half, end);
            let share = conforming(&found, objective_ms);
            // Vanilla has what it has; the others are compared with the least size that keeps as much.
            let least = match law {
                Law::Vanilla => None,
                Law::Forebay(_) => pools.least(objective_ms, share)?.map(|step| Statics::size(step).as_f64()),
                _ => statics.least(objective_ms, share)?.map(|step| Statics::size(step).as_f64()),
            };
            let mut row = law_row(setup, name, percentile, objective_ms, &outcome);
            row.conforming_share = share;
            row.mean_ms = mean(&found);
            row.hindsight_bytes = least;
            row.ratio = least.filter(|least| *least > 0.0).map(|least| row.bytes_mean / least);
            if law == Law::Vanilla {
                let used = outcome.volumes[0].intervals.last().map_or(0, |row| row.used_blocks);
                let block = outcome.volumes[0].block_bytes as f64;
                vanilla = (setup.unscaled(used as f64 * block), row.mean_ms);
                row.bytes_mean = vanilla_bytes;
                row.bytes_max = vanilla_bytes;
                row.saved = 0.0;
            }
            laws.push(row);
        }
    }
    let curve = statics.runs.iter().filter(|(_, found)| !found.is_empty()).map(|(step, found)| {
        let mut sorted = found.clone();
        sorted.sort_by(f64::total_cmp);
        let at = ((sorted.len() as f64 * 0.75).ceil() as usize).saturating_sub(1);
        (Statics::size(*step).as_f64(), mean(found), sorted.get(at).copied().unwrap_or(0.0))
    });
    Ok(Sizes {
        vanilla_bytes,
        vanilla_used_bytes: vanilla.0,
        vanilla_mean_ms: vanilla.1,
        uncached_mean_ms,
        optima,
        curve: curve.collect(),
        runs: runs + (statics.runs.len() + pools.runs.len()) as u32,
        laws,
    })
}

fn law_row(
    setup: &Setup,
    law: &'static str,
    percentile: Option<f64>,
    objective_ms: f64,
    outcome: &Outcome,
) -> LawRow {
    let series = &outcome.volumes[0];
    let block = series.block_bytes as f64;
    let size = |blocks: f64| setup.unscaled(blocks * block);
    let bytes_mean = size(series.totals.quota_blocks_mean);
    let points: Vec<(f64, f64)> =
        series.intervals.iter().map(|row| (row.at_s, size(row.quota_blocks as f64))).collect();
    LawRow {
        law,
        objective_ms,
        percentile,
        bytes_mean,
        bytes_max: points.iter().map(|(_, bytes)| *bytes).fold(0.0, f64::max),
        saved: 1.0 - bytes_mean / PUBLISHED.working_set.as_f64(),
        conforming_share: 0.0,
        mean_ms: 0.0,
        hindsight_bytes: None,
        ratio: None,
        settled_s: settled_s(&points, bytes_mean),
        series: points,
    }
}

/// The last second at which a size is more than a tenth off `mean`, 0 where none is; `None` where the last one is.
fn settled_s(sizes: &[(f64, f64)], mean: f64) -> Option<f64> {
    let far = |(_, bytes): &(f64, f64)| (bytes - mean).abs() > 0.1 * mean;
    match sizes.iter().rposition(far) {
        Some(at) if at + 1 == sizes.len() => None,
        far => Some(far.map_or(0.0, |at| sizes[at].0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_ends_off_its_mean_never_settled() {
        let settled = |sizes: &[f64], mean| {
            let sizes: Vec<(f64, f64)> =
                sizes.iter().enumerate().map(|(at, bytes)| (10.0 * (at + 1) as f64, *bytes)).collect();
            settled_s(&sizes, mean)
        };
        assert_eq!(settled(&[100.0, 105.0, 95.0, 100.0], 100.0), Some(0.0));
        // It came near, went away again, and stays from 30 s on.
        assert_eq!(settled(&[50.0, 100.0, 120.0, 109.0, 91.0], 100.0), Some(30.0));
        // To and fro until the end: 50 s is the length of the run, and no time to settle.
        assert_eq!(settled(&[80.0, 120.0, 80.0, 120.0, 80.0], 100.0), None);
        // Nothing is given, from the beginning or from some time on.
        assert_eq!(settled(&[0.0, 0.0], 0.0), Some(0.0));
        assert_eq!(settled(&[64.0, 0.0, 0.0], 0.0), Some(10.0));
    }
}
