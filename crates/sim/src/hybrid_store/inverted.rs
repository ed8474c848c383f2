//! Two workloads in one cache, of which the busier has the looser objective: the paper's inversion, and who removes it.

use super::{Law, PUBLISHED, Phase, Setup, conforming, mean, windows};
use crate::scenario::Sizing;
use crate::simulation::RunError;
use forebay_control::eafc::Decrement;
use forebay_policy::PolicyKind;
use forebay_units::{Bytes, Nanos};
use serde::Serialize;

/// A workload under a law.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InvertedRow {
    /// Which law.
    pub law: &'static str,
    /// Which workload.
    pub workload: &'static str,
    /// Its objective.
    pub objective_ms: f64,
    /// Its mean latency over the second half.
    pub mean_ms: f64,
    /// Share of the windows of the second half that conformed.
    pub conforming_share: f64,
    /// Its mean size over the second half, at the paper's scale; with a shared cache what it held at the end is not known.
    pub bytes_mean: Option<f64>,
    /// The mean size for both together, at the paper's scale.
    pub bytes_together: f64,
}

/// The strict one (3 ms) asks for a fifth of the paper's load and the loose one (8 ms) for the rest; each has half the working set. The
/// split is ours. Under vanilla, both share one LRU cache of `shared` (at the paper's scale); static halves it. The laws that decide sizes
/// may take of the paper's flash, more than `shared` too: what both take together is told of each.
///
/// # Errors
/// [`RunError`] as [`crate::Simulation::new`].
pub fn inverted(
    setup: &Setup,
    shared: Bytes,
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<InvertedRow>, RunError> {
    let workloads = [("strict", 3.0, 0.2), ("loose", 8.0, 0.8)];
    let set = Bytes(PUBLISHED.working_set.get() / 2);
    let (half, end) = (setup.duration.as_secs_f64() / 2.0, setup.duration.as_secs_f64());
    let halves = Law::Static(Bytes(shared.get() / 2), PolicyKind::Lru);
    let mut rows = Vec::new();
    for (name, law) in [
        ("one shared LRU", Law::Vanilla),
        ("static halves", halves),
        ("EAFC, min-max range", Law::Eafc(Decrement::MinMaxRange, 75.0)),
        ("Forebay", Law::Forebay(0.75)),
    ] {
        tell(&format!("{name}, inverted objectives"));
        let volumes = workloads.map(|(workload, _, share)| {
            let phase = Phase { from: Nanos::ZERO, rate: PUBLISHED.rate * share, working_set: set };
            setup.volume(workload, &[phase], law)
        });
        let objectives =
            workloads.map(|(workload, objective_ms, _)| setup.objective(workload, objective_ms, 0.75));
        let mut scenario = setup.scenario(law, volumes.into(), objectives.into());
        if scenario.cache.sizing == Sizing::Fixed {
            // The same memory for both, with room for what rounding to blocks makes of its halves.
            scenario.cache.memory =
                Bytes(scenario.volume.iter().filter_map(|volume| volume.cache).map(Bytes::get).sum());
            if law == Law::Vanilla {
                scenario.cache.memory = setup.scaled(shared);
            }
        }
        let outcome = setup.run(&scenario)?;
        let bytes = |at: usize| {
            let series = &outcome.volumes[at];
            setup.unscaled(series.totals.quota_blocks_mean * series.block_bytes as f64)
        };
        let together = if law == Law::Vanilla { shared.as_f64() } else { bytes(0) + bytes(1) };
        for (at, (workload, objective_ms, _)) in workloads.into_iter().enumerate() {
            let found = windows(&outcome, at, half, end);
            rows.push(InvertedRow {
                law: name,
                workload,
                objective_ms,
                mean_ms: mean(&found),
                conforming_share: conforming(&found, objective_ms),
                bytes_mean: (law != Law::Vanilla).then(|| bytes(at)),
                bytes_together: together,
            });
        }
    }
    Ok(rows)
}
