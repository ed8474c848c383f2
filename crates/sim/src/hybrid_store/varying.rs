//! Load and working set that change: what the laws have in every phase, against the least static size of that phase.

use super::{Law, PUBLISHED, Phase, Setup, conforming, mean, static_windows, windows};
use crate::simulation::RunError;
use forebay_control::eafc::Decrement;
use forebay_policy::PolicyKind;
use forebay_units::{Bytes, Nanos};
use serde::Serialize;

/// The conformance percentile that the paper recommends.
const PERCENTILE: f64 = 75.0;
/// Static sizes are tried in so many steps of the phase's working set.
const STEPS: u64 = 64;

/// A law in a phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseRow {
    /// Which law.
    pub law: &'static str,
    /// The phase, from 1.
    pub phase: usize,
    /// Requests per second, at the paper's scale.
    pub rate: f64,
    /// Distinct bytes asked for, at the paper's scale.
    pub working_set: f64,
    /// The least static size under LRU for three quarters of the phase's windows, at the paper's scale, alone and warm; absent where
    /// nothing suffices.
    pub optimum_bytes: Option<f64>,
    /// The mean size over the phase's second half.
    pub bytes_mean: f64,
    /// Share of the windows of the phase's second half that conformed.
    pub conforming_share: f64,
    /// From the phase's beginning until the first of three windows in a row that conformed, in seconds; absent where there were none.
    pub conforming_after_s: Option<f64>,
}

/// All phases under all laws.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Varying {
    /// The objective.
    pub objective_ms: f64,
    /// Rows in order of law and phase.
    pub rows: Vec<PhaseRow>,
    /// Per law: size over time, in seconds and bytes at the paper's scale.
    #[serde(skip)]
    pub series: Vec<(&'static str, Vec<(f64, f64)>)>,
    /// Per law: mean latency over time, in seconds.
    #[serde(skip)]
    pub latencies: Vec<(&'static str, Vec<(f64, f64)>)>,
}

/// Five phases of half a run each: the paper's load; two thirds of it; the paper's; half the working set; the first again.
/// The factors are ours, since the paper's are lost with its figures.
///
/// # Errors
/// [`RunError`] as [`crate::Simulation::new`].
pub fn varying(setup: &Setup, objective_ms: f64, tell: &mut dyn FnMut(&str)) -> Result<Varying, RunError> {
    let (rate, set) = (PUBLISHED.rate, PUBLISHED.working_set);
    let half = Bytes(set.get() / 2);
    let span = Nanos(setup.duration.0 / 2);
    let phases: Vec<Phase> = [(rate, set), (rate / 1.5, set), (rate, set), (rate, half), (rate, set)]
        .into_iter()
        .enumerate()
        .map(|(at, (rate, working_set))| Phase { from: Nanos(span.0 * at as u64), rate, working_set })
        .collect();
    let mut optima = Vec::new();
    for (at, phase) in phases.iter().enumerate() {
        let known = phases[..at]
            .iter()
            .position(|other| (other.rate, other.working_set) == (phase.rate, phase.working_set));
        tell(&format!("hindsight of phase {}", at + 1));
        optima.push(match known {
            Some(before) => optima[before],
            None => optimum(setup, phase, objective_ms)?,
        });
    }
    let whole = Setup { duration: Nanos(span.0 * phases.len() as u64), ..*setup };
    let mut varying = Varying { objective_ms, rows: Vec::new(), series: Vec::new(), latencies: Vec::new() };
    for (name, law) in [
        ("EAFC, max threshold", Law::Eafc(Decrement::MaxThreshold, PERCENTILE)),
        ("EAFC, min-max range", Law::Eafc(Decrement::MinMaxRange, PERCENTILE)),
        ("Forebay", Law::Forebay(PERCENTILE / 100.0)),
    ] {
        tell(&format!("{name}, varying"));
        let volume = whole.volume("specsfs", &phases, law);
        let objective = whole.objective("specsfs", objective_ms, PERCENTILE / 100.0);
        let outcome = whole.run(&whole.scenario(law, vec![volume], vec![objective]))?;
        let series = &outcome.volumes[0];
        let size = |blocks: u64| setup.unscaled((blocks * series.block_bytes) as f64);
        let span = span.as_secs_f64();
        for (at, phase) in phases.iter().enumerate() {
            let (begins, ends) = (span * at as f64, span * (at + 1) as f64);
            let middle = (begins + ends) / 2.0;
            let rows: Vec<_> =
                series.intervals.iter().filter(|row| row.at_s > begins && row.at_s <= ends).collect();
            let sizes: Vec<f64> =
                rows.iter().filter(|row| row.at_s > middle).map(|row| size(row.quota_blocks)).collect();
            let keeps =
                |row: &&crate::outcome::IntervalRow| row.latency.mean_ms.is_some_and(|ms| ms <= objective_ms);
            let again =
                rows.windows(3).find(|three| three.iter().all(keeps)).map(|three| three[0].at_s - begins);
            varying.rows.push(PhaseRow {
                law: name,
                phase: at + 1,
                rate: phase.rate,
                working_set: phase.working_set.as_f64(),
                optimum_bytes: optima[at],
                bytes_mean: mean(&sizes),
                conforming_share: conforming(&windows(&outcome, 0, middle, ends), objective_ms),
                conforming_after_s: again,
            });
        }
        let intervals = series.intervals.iter();
        varying
            .series
            .push((name, intervals.clone().map(|row| (row.at_s, size(row.quota_blocks))).collect()));
        let latencies = intervals.filter_map(|row| row.latency.mean_ms.map(|ms| (row.at_s, ms / 1e3)));
        varying.latencies.push((name, latencies.collect()));
    }
    Ok(varying)
}

/// The least static size for the phase alone, at the paper's scale.
fn optimum(setup: &Setup, phase: &Phase, objective_ms: f64) -> Result<Option<f64>, RunError> {
    let alone = Phase { from: Nanos::ZERO, ..*phase };
    let suffices = |step: u64| -> Result<bool, RunError> {
        let law = Law::Static(Bytes(phase.working_set.get() * step / STEPS), PolicyKind::Lru);
        let volume = setup.volume("specsfs", &[alone], law);
        let objective = setup.objective("specsfs", objective_ms, PERCENTILE / 100.0);
        let found = static_windows(setup, &setup.scenario(law, vec![volume], vec![objective]))?;
        Ok(conforming(&found, objective_ms) >= PERCENTILE / 100.0 - 1e-9)
    };
    if !suffices(STEPS)? {
        return Ok(None);
    }
    let (mut low, mut high) = (0, STEPS);
    while low < high {
        let middle = (low + high) / 2;
        if suffices(middle)? { high = middle } else { low = middle + 1 }
    }
    Ok(Some(phase.working_set.as_f64() * high as f64 / STEPS as f64))
}
