//! One victim judged among histories of the same intervals, which are taken into their forms once for all victims.

use super::pursuit::{Evidence, FORMS, Loads, RHOS, Residuals, positive};
use super::series::{Series, quasi_differences};
use super::{Interference, InterferenceRules, Neighbour, Victim, granger, step, unknown};

/// Deviations of what chance alone does by which two latencies have to go together where that is not seen in their changes (ours): any two
/// that rise or fall slowly look a little alike.
const TOGETHER: f64 = 5.0;

/// Histories of the same intervals.
pub(super) struct Histories<'a> {
    of: Vec<Neighbour<'a>>,
    rules: &'a InterferenceRules,
    lag_max: usize,
    /// By coefficient.
    loads: Vec<Loads>,
    /// By coefficient and workload, where they are known: logarithms of latency.
    latencies: Vec<Vec<Option<Series>>>,
}

impl<'a> Histories<'a> {
    /// `None` where they are too short to say anything. `O(m n log n)` for `m` workloads and `n` intervals.
    ///
    /// # Panics
    /// If their lengths differ.
    pub(super) fn new(of: Vec<Neighbour<'a>>, rules: &'a InterferenceRules) -> Option<Histories<'a>> {
        let intervals = of.first()?.load.len();
        let lengths = of.iter().flat_map(|of| [Some(of.load), of.latency]).flatten().map(<[f64]>::len);
        lengths
            .for_each(|length| assert_eq!(length, intervals, "loads and latency are of the same intervals"));
        if intervals < rules.history_min.max(4) {
            return None;
        }
        let lag_max = rules.lag_max.min(intervals.saturating_sub(4));
        let loads: Vec<&[f64]> = of.iter().map(|of| of.load).collect();
        let latencies: Vec<Option<Vec<f64>>> = (of.iter())
            .map(|of| Some(of.latency?.iter().map(|&latency| positive(latency).ln()).collect()))
            .collect();
        let at = |rho| {
            let series =
                |latency: &Option<Vec<f64>>| Some(Series::of(&quasi_differences(latency.as_ref()?, rho)));
            latencies.iter().map(series).collect()
        };
        Some(Histories {
            rules,
            lag_max,
            loads: RHOS.map(|rho| Loads::new(&loads, rho, lag_max, rules.variation_min)).into(),
            latencies: RHOS.map(at).into(),
            of,
        })
    }

    /// Judges which of `others` slow `victim` down, whose latency is known: one answer for each. `shares_origin` says whether they are configured to.
    /// `O(m n)` for each of `m` others that is found, and once.
    pub(super) fn judge(&self, victim: usize, others: &[usize], shares_origin: bool) -> Vec<Interference> {
        let Neighbour { load, latency } = self.of[victim];
        let series = Victim { load, latency: latency.expect("a victim's latency is known") };
        let mut significance = vec![self.rules.significance_alone; self.of.len()];
        for &other in others {
            if shares_origin {
                significance[other] = self.rules.significance_min;
            } else if self.wait_together(victim, other) {
                significance[other] = self.rules.significance_together;
            }
        }
        let evidence = Evidence { rules: self.rules, significance: &significance };
        let likeliest = (self.loads.iter())
            .flat_map(|loads| FORMS.iter().map(move |form| (loads, form)))
            .filter_map(|(loads, form)| loads.residuals(victim, series.latency, form, others))
            .map(|mut residuals| {
                while residuals.take_out(&evidence) {}
                (residuals.likelihood(), residuals)
            })
            // Where several explain as much, the last of them counts.
            .max_by(|(a, _), (b, _)| a.total_cmp(b));
        let mut judged = vec![unknown(shares_origin); self.of.len()];
        if let Some((_, residuals)) = likeliest {
            conclude(residuals, &evidence, &mut judged);
        }
        let with_opinions = others.iter().map(|&other| {
            let Neighbour { load, latency } = self.of[other];
            if let Interference::Correlated(mut found) = judged[other] {
                found.granger = granger(load, series.latency, 2);
                return Interference::Correlated(found);
            }
            // Where they share an origin they wait in one queue, as far as anybody knows; elsewhere that has to be seen.
            let latency = if shares_origin { None } else { Some(latency.unwrap_or(&[])) };
            step::step(load, latency, series, self.lag_max).map_or(judged[other], Interference::Stepped)
        });
        with_opinions.collect()
    }

    /// Whether the latencies of two rise and fall together, as those of workloads do that wait in the same queue.
    fn wait_together(&self, a: usize, b: usize) -> bool {
        RHOS.iter().zip(&self.latencies).any(|(&rho, latencies)| {
            let (Some(a), Some(b)) = (&latencies[a], &latencies[b]) else { return false };
            let changes = rho == 1.0;
            let needed = if changes { self.rules.significance_min } else { TOGETHER };
            let intervals = self.of[0].load.len().saturating_sub(1) as f64;
            a.correlation(b, 0).is_some_and(|found| found.score * intervals.sqrt() >= needed * a.spread(b))
        })
    }
}

/// What is to be said of all that vary, once nobody else has enough evidence.
fn conclude(mut residuals: Residuals<'_>, evidence: &Evidence<'_>, judged: &mut [Interference]) {
    for (other, left) in residuals.rest() {
        judged[other] = Interference::Absent(left);
    }
    while let Some((other, left)) = residuals.give_up(evidence) {
        judged[other] = Interference::Absent(left);
    }
    for (other, found) in residuals.found() {
        judged[other] = Interference::Correlated(found);
    }
}
