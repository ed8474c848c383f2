//! Interference: whether one workload's load slows another down, from the correlation of *changes* (Dynamite, step 2).
//!
//! First differences of the aggressor's load and of the logarithm of the victim's latency are correlated, by value
//! (Pearson) and by rank (Spearman), at a few lags. Guards: a series that does not vary says nothing (US9367421), and
//! only a positive correlation counts, since more load never makes a neighbour faster. Where the history says
//! nothing, configured knowledge that both share an origin stands in. It is *not* causality: two workloads that
//! rise together for a reason outside look alike.

use forebay_workload::statistics::{differences, mean, pearson, spearman};
use serde::{Deserialize, Serialize};

/// How interference is judged. The numbers are ours; `tests` print precision and recall on planted neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InterferenceRules {
    /// Intervals of history below which nothing is said. Default 12; at least 4.
    pub history_min: usize,
    /// Intervals by which the victim may lag behind. Default 1; at most 8.
    pub lag_max: usize,
    /// The least score. Default 0.25; above 0, at most 1.
    pub score_min: f64,
    /// The least score in units of `1 / sqrt(intervals)`, so that short histories need more. Default 3.3.
    pub significance_min: f64,
    /// Changes smaller than this share of the mean, on average, are no variation. Default 0.02.
    pub variation_min: f64,
}

impl Default for InterferenceRules {
    fn default() -> InterferenceRules {
        InterferenceRules {
            history_min: 12,
            lag_max: 1,
            score_min: 0.25,
            significance_min: 3.3,
            variation_min: 0.02,
        }
    }
}

/// What is known about an aggressor and a victim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interference {
    /// Load and latency change together.
    Correlated(Correlation),
    /// The history says nothing (too short or too constant), but they are configured to share an origin.
    SharedOrigin,
    /// Both vary and do not change together.
    Absent(Correlation),
    /// The history says nothing, and nothing is known to be shared.
    Unknown,
}

impl Interference {
    /// Whether the aggressor is worth considering.
    pub fn is_likely(&self) -> bool {
        matches!(self, Interference::Correlated(_) | Interference::SharedOrigin)
    }
}

/// How strongly two series change together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Correlation {
    /// Mean of both coefficients; negative where either says nothing positive.
    pub score: f64,
    /// By value.
    pub pearson: f64,
    /// By rank.
    pub spearman: f64,
    /// Intervals by which the victim's latency follows.
    pub lag: usize,
}

/// Judges whether an aggressor's load slows a victim down.
///
/// `load` (any unit) and `latency` (any unit, above 0) are of the same intervals, oldest first; intervals in which
/// the victim completed nothing are left out of both by the caller. Cost is `O(n log n)` per lag.
///
/// # Panics
/// If the lengths differ.
pub fn interference(
    load: &[f64],
    latency: &[f64],
    shares_origin: bool,
    rules: &InterferenceRules,
) -> Interference {
    assert_eq!(load.len(), latency.len(), "load and latency are of the same intervals");
    let unknown = if shares_origin { Interference::SharedOrigin } else { Interference::Unknown };
    let logs: Vec<f64> = latency.iter().map(|latency| latency.max(1e-9).ln()).collect();
    let (loads, latencies) = (differences(load), differences(&logs));
    if load.len() < rules.history_min.max(4) || !varies(load, &loads, rules.variation_min) {
        return unknown;
    }
    let best = (0..=rules.lag_max.min(loads.len().saturating_sub(3)))
        .filter_map(|lag| {
            let (x, y) = (&loads[..loads.len() - lag], &latencies[lag..]);
            let (pearson, spearman) = (pearson(x, y)?, spearman(x, y)?);
            Some(Correlation { score: (pearson + spearman) / 2.0, pearson, spearman, lag })
        })
        .max_by(|a, b| a.score.total_cmp(&b.score));
    let Some(best) = best else { return unknown };
    let needed = rules.score_min.max(rules.significance_min / (loads.len() as f64).sqrt());
    let positive = best.pearson > 0.0 && best.spearman > 0.0;
    if positive && best.score >= needed.min(0.9) {
        Interference::Correlated(best)
    } else {
        Interference::Absent(best)
    }
}

/// Whether the changes are large enough to be more than noise around a constant.
fn varies(values: &[f64], changes: &[f64], variation_min: f64) -> bool {
    let level = mean(values).unwrap_or(0.0).abs();
    let change = mean(&changes.iter().map(|change| change.abs()).collect::<Vec<_>>()).unwrap_or(0.0);
    level > 0.0 && change >= variation_min * level
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_workload::{Random, exponential, random};

    #[test]
    fn signs_lags_and_guards() {
        let rules = InterferenceRules::default();
        let load: Vec<f64> = (0..40).map(|t| 100.0 + 50.0 * f64::from(t * 7 % 11)).collect();
        let slow: Vec<f64> = load.iter().map(|load| 0.001 + load * 1e-5).collect();
        assert!(
            matches!(interference(&load, &slow, false, &rules), Interference::Correlated(c) if c.lag == 0 && c.score > 0.9)
        );
        // The victim follows one interval later.
        let late: Vec<f64> = std::iter::once(slow[0]).chain(slow[..39].iter().copied()).collect();
        assert!(
            matches!(interference(&load, &late, false, &rules), Interference::Correlated(c) if c.lag == 1)
        );
        // More load, faster victim: the sign rule.
        let fast: Vec<f64> = load.iter().map(|load| 0.001 + (1_000.0 - load) * 1e-5).collect();
        let without_lag = InterferenceRules { lag_max: 0, ..rules };
        assert!(
            matches!(interference(&load, &fast, true, &without_lag), Interference::Absent(c) if c.score < 0.0)
        );
        // A constant load, or a short history, says nothing by itself.
        assert_eq!(interference(&[100.0; 40], &slow, true, &rules), Interference::SharedOrigin);
        assert_eq!(interference(&[100.0; 40], &slow, false, &rules), Interference::Unknown);
        assert_eq!(interference(&load[..8], &slow[..8], true, &rules), Interference::SharedOrigin);
    }

    /// A load that wanders and jumps, with noise.
    fn wandering(random: &mut Random, length: usize) -> Vec<f64> {
        let mut level = 200.0 + exponential(300.0, random);
        (0..length)
            .map(|_| {
                if exponential(1.0, random) > 2.0 {
                    level = 100.0 + exponential(400.0, random);
                }
                level * (0.9 + 0.1 * exponential(1.0, random))
            })
            .collect()
    }

    /// 50 workloads in sets of 2 to 5, 180 intervals: within a set the latency of each rises with the load of all.
    #[test]
    fn planted_neighbours_are_found() {
        let rules = InterferenceRules::default();
        let (mut found_true, mut found_false, mut missed) = (0u32, 0u32, 0u32);
        for seed in 0..4 {
            let mut random = random(seed);
            let set_of: Vec<usize> = [2, 3, 4, 5, 2, 3, 4, 5, 2, 3, 4, 5, 3, 5]
                .iter()
                .enumerate()
                .flat_map(|(set, &size)| [set].repeat(size))
                .collect();
            assert_eq!(set_of.len(), 50);
            let loads: Vec<Vec<f64>> = set_of.iter().map(|_| wandering(&mut random, 180)).collect();
            let latencies: Vec<Vec<f64>> = (0..50)
                .map(|victim| {
                    (0..180)
                        .map(|t| {
                            let members = (0..50).filter(|&other| set_of[other] == set_of[victim]);
                            let (sum, count) = members
                                .fold((0.0, 0.0), |(sum, count), other| (sum + loads[other][t], count + 1.0));
                            // M/M/1 at a capacity of 900/s per member, clipped, with 10 % of noise.
                            let busy = (sum / (900.0 * count)).min(0.95);
                            0.005 / (1.0 - busy) * (0.95 + 0.05 * exponential(1.0, &mut random))
                        })
                        .collect()
                })
                .collect();
            for victim in 0..50 {
                for aggressor in (0..50).filter(|&other| other != victim) {
                    let judged =
                        interference(&loads[aggressor], &latencies[victim], false, &rules).is_likely();
                    match (judged, set_of[aggressor] == set_of[victim]) {
                        (true, true) => found_true += 1,
                        (true, false) => found_false += 1,
                        (false, true) => missed += 1,
                        (false, false) => {}
                    }
                }
            }
        }
        let precision = f64::from(found_true) / f64::from(found_true + found_false);
        let recall = f64::from(found_true) / f64::from(found_true + missed);
        println!("planted neighbours: precision {precision:.3}, recall {recall:.3}");
        assert!(precision >= 0.95, "precision {precision}");
        assert!(recall >= 0.8, "recall {recall}");
    }
}
