//! Interference: whose load slows a workload down, from the correlation of *changes* (Dynamite, step 2).
//!
//! First differences of each neighbour's load and of the victim's latency are correlated, by value (Pearson) and by rank (Spearman), at a few
//! lags. Latency is taken by its logarithm, or by its reciprocal (which falls in proportion to the load where a queue is what slows down),
//! whichever is explained better. Several neighbours at once hide each other: what one explains is noise
//! to the test of the next. So they are judged together: the neighbour that changes most with the victim is taken first, what it
//! explains is taken out of the victim and of all others, and so on until what is left over could be chance (orthogonal matching pursuit,
//! Pati, Rezaiifar and Krishnaprasad 1993; that it is used for this is ours). What the victim's own load explains is taken out before.
//!
//! Among many neighbours some change with the victim by chance. Who shares an origin waits in the same queue, so its own latency changes with the victim's
//! as well: a neighbour of which nothing is known needs less evidence if it does, and much more if not. Its score is judged by the load alone.
//!
//! A load that began once, while all else is noise, is correlated by value and not by rank: a [`Step`] that both took is believed by itself.
//!
//! Guards: a series that does not vary says nothing (US9367421), and only a positive correlation counts, since more load never
//! makes a neighbour faster. Where the history says nothing, configured knowledge that both share an origin stands
//! in. It is *not* causality: two workloads that rise together for a reason outside look alike; [`granger`] is a second opinion on that.

mod granger;
pub mod planted;
mod pursuit;
mod step;
mod table;

pub use granger::granger;
pub use step::Step;
pub use table::{InterferenceTable, table};

use forebay_workload::statistics::{differences, pearson, spearman};
use pursuit::Residuals;
use serde::{Deserialize, Serialize};

/// How interference is judged. The numbers are ours; [`planted`] scores them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InterferenceRules {
    /// Intervals of history below which nothing is said. Default 12; at least 4.
    pub history_min: usize,
    /// Intervals by which the victim may lag behind. Default 1; at most 8.
    pub lag_max: usize,
    /// The least score. Default 0.2; above 0, at most 1.
    pub score_min: f64,
    /// The least score of a neighbour that is known to share the origin, in units of `1 / sqrt(intervals)`, so that short histories need
    /// more. Default 3.3.
    pub significance_min: f64,
    /// The same of one of which that is not known, but whose latency changes with the victim's, as if they waited in the same queue. Default 2.7.
    pub significance_together: f64,
    /// The same of one that has nothing else to speak for it: among many, some change with the victim by chance. Default 4.2.
    pub significance_alone: f64,
    /// Changes smaller than this share of the mean, on average, are no variation. Default 0.02.
    pub variation_min: f64,
}

impl Default for InterferenceRules {
    fn default() -> InterferenceRules {
        InterferenceRules {
            history_min: 12,
            lag_max: 1,
            score_min: 0.2,
            significance_min: 3.3,
            significance_together: 2.7,
            significance_alone: 4.2,
            variation_min: 0.02,
        }
    }
}

/// What is known about an aggressor and a victim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interference {
    /// Load and latency change together.
    Correlated(Correlation),
    /// Both took one step, at the same time, and do not change together otherwise.
    Stepped(Step),
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
        matches!(self, Interference::Correlated(_) | Interference::Stepped(_) | Interference::SharedOrigin)
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
    /// What [`granger`] says of those who were found, with two intervals of past; it decides nothing.
    pub granger: Option<f64>,
}

/// A workload that may be slowed down: its own load (any unit) and its latency (any unit, above 0), of the same intervals, oldest
/// first. Intervals in which it completed nothing are left out by the caller, of its neighbours' loads as well.
#[derive(Clone, Copy, Debug)]
pub struct Victim<'a> {
    /// What it asked for. Where that rises with its latency, it is a cause; where it falls, it waits for answers, and
    /// nothing is taken out.
    pub load: &'a [f64],
    /// How long it waited.
    pub latency: &'a [f64],
}

/// A workload that may be the cause.
#[derive(Clone, Copy, Debug)]
pub struct Neighbour<'a> {
    /// What it asked for, in the victim's intervals.
    pub load: &'a [f64],
    /// How long it waited, where that is known of every interval. It is asked only where it is not known that they share an origin.
    pub latency: Option<&'a [f64]>,
}

/// Judges whose load slows a victim down: one answer for each of `neighbours`, whose series are of the victim's intervals. `shares_origin`
/// says whether they are configured to.
///
/// Cost: `O(m n log n)` for `m` neighbours and `n` intervals, and `O(m n)` for each one that is found.
///
/// # Panics
/// If the lengths differ.
pub fn interference(
    neighbours: &[Neighbour<'_>],
    victim: Victim<'_>,
    shares_origin: bool,
    rules: &InterferenceRules,
) -> Vec<Interference> {
    let lengths = (neighbours.iter())
        .flat_map(|neighbour| [Some(neighbour.load), neighbour.latency])
        .flatten()
        .map(<[f64]>::len)
        .chain([victim.load.len()]);
    lengths.for_each(|length| {
        assert_eq!(length, victim.latency.len(), "loads and latency are of the same intervals");
    });
    let unknown = if shares_origin { Interference::SharedOrigin } else { Interference::Unknown };
    let judged = vec![unknown; neighbours.len()];
    let intervals = victim.latency.len();
    if intervals < rules.history_min.max(4) {
        return judged;
    }
    let lag_max = rules.lag_max.min(intervals.saturating_sub(4));
    let loads: Vec<&[f64]> = neighbours.iter().map(|neighbour| neighbour.load).collect();
    let significance: Vec<f64> = (neighbours.iter())
        .map(|neighbour| {
            let waits_with = |latency| changes_together(latency, victim.latency, rules.significance_min);
            match neighbour.latency {
                _ if shares_origin => rules.significance_min,
                Some(latency) if waits_with(latency) => rules.significance_together,
                _ => rules.significance_alone,
            }
        })
        .collect();
    // Where both explain as much, the last of them counts: the logarithm.
    let forms = [|latency: f64| -1.0 / latency, f64::ln].into_iter();
    let answers = forms.filter_map(|form| {
        let residuals = Residuals::new(&loads, victim, form, lag_max, rules.variation_min)?;
        Some(pursue(residuals, judged.clone(), &significance, rules))
    });
    let best = answers.max_by(|(a, _), (b, _)| a.total_cmp(b));
    let mut judged = best.map_or(judged, |(_, answer)| answer);
    for (judged, neighbour) in judged.iter_mut().zip(neighbours) {
        if let Interference::Correlated(found) = judged {
            found.granger = granger(neighbour.load, victim.latency, 2);
            continue;
        }
        // Where they share an origin they wait in one queue, as far as anybody knows; elsewhere that has to be seen.
        let latency = if shares_origin { None } else { Some(neighbour.latency.unwrap_or(&[])) };
        if let Some(found) = step::step(neighbour.load, latency, victim, lag_max) {
            *judged = Interference::Stepped(found);
        }
    }
    judged
}

/// What share of the changes is explained by those who were found, and the answers.
fn pursue(
    mut residuals: Residuals,
    mut judged: Vec<Interference>,
    significance: &[f64],
    rules: &InterferenceRules,
) -> (f64, Vec<Interference>) {
    loop {
        let deviation = 1.0 / residuals.freedom().sqrt();
        let best = residuals.best(|neighbour, found| {
            let needed = rules.score_min.max(significance[neighbour] * deviation).min(0.9);
            is_positive(found) && found.score >= needed
        });
        let Some((neighbour, found)) = best else { break };
        judged[neighbour] = Interference::Correlated(found);
        residuals.take_out(neighbour, found.lag);
    }
    for (neighbour, left) in residuals.rest() {
        judged[neighbour] = Interference::Absent(left);
    }
    (residuals.explained(), judged)
}

/// Whether two latencies rise and fall together, as those of workloads do that wait in the same queue.
fn changes_together(a: &[f64], b: &[f64], significance_min: f64) -> bool {
    let changes = |latency: &[f64]| -> Vec<f64> {
        differences(&latency.iter().map(|latency| latency.max(1e-9).ln()).collect::<Vec<_>>())
    };
    let (a, b) = (changes(a), changes(b));
    let score = pearson(&a, &b).zip(spearman(&a, &b)).map(|(value, rank)| (value + rank) / 2.0);
    score.is_some_and(|score| score * (a.len() as f64).sqrt() >= significance_min)
}

fn is_positive(correlation: &Correlation) -> bool {
    correlation.pearson > 0.0 && correlation.spearman > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One neighbour, and a victim whose own load says nothing.
    fn judge(load: &[f64], latency: &[f64], shares_origin: bool, rules: &InterferenceRules) -> Interference {
        let own = vec![100.0; latency.len()];
        interference(
            &[Neighbour { load, latency: None }],
            Victim { load: &own, latency },
            shares_origin,
            rules,
        )[0]
    }

    #[test]
    fn signs_lags_and_guards() {
        let rules = InterferenceRules::default();
        let load: Vec<f64> = (0..40).map(|t| 100.0 + 50.0 * f64::from(t * 7 % 11)).collect();
        let slow: Vec<f64> = load.iter().map(|load| 0.001 + load * 1e-5).collect();
        assert!(
            matches!(judge(&load, &slow, false, &rules), Interference::Correlated(c) if c.lag == 0 && c.score > 0.9)
        );
        // The victim follows one interval later.
        let late: Vec<f64> = std::iter::once(slow[0]).chain(slow[..39].iter().copied()).collect();
        assert!(matches!(judge(&load, &late, false, &rules), Interference::Correlated(c) if c.lag == 1));
        // More load, faster victim: the sign rule.
        let fast: Vec<f64> = load.iter().map(|load| 0.001 + (1_000.0 - load) * 1e-5).collect();
        let without_lag = InterferenceRules { lag_max: 0, ..rules };
        assert!(matches!(judge(&load, &fast, true, &without_lag), Interference::Absent(c) if c.score < 0.0));
        // A constant load, or a short history, says nothing by itself.
        assert_eq!(judge(&[100.0; 40], &slow, true, &rules), Interference::SharedOrigin);
        assert_eq!(judge(&[100.0; 40], &slow, false, &rules), Interference::Unknown);
        assert_eq!(judge(&load[..8], &slow[..8], true, &rules), Interference::SharedOrigin);
    }

    #[test]
    fn neighbours_that_act_at_once_are_all_found() {
        // Four loads with periods that share no factor, each a part of what slows the victim down; the fifth has nothing to do with it.
        let wave = |period: usize| -> Vec<f64> {
            (0..120).map(|t| if t % period < period / 2 { 200.0 } else { 100.0 }).collect()
        };
        let loads: Vec<Vec<f64>> = [7, 11, 13, 17, 19].into_iter().map(wave).collect();
        let latency: Vec<f64> =
            (0..120).map(|t| (loads[..4].iter().map(|load| load[t]).sum::<f64>() * 0.004).exp()).collect();
        let neighbours: Vec<Neighbour<'_>> =
            loads.iter().map(|load| Neighbour { load, latency: None }).collect();
        let own = [100.0; 120];
        let judged = interference(
            &neighbours,
            Victim { load: &own, latency: &latency },
            false,
            &InterferenceRules::default(),
        );
        assert!(judged[..4].iter().all(Interference::is_likely) && !judged[4].is_likely(), "{judged:?}");
        // What the victim's own load explains is nobody else's doing: the first is only a copy of it.
        let own = Victim { load: &loads[0], latency: &latency };
        let copied = interference(&neighbours[..2], own, false, &InterferenceRules::default());
        assert!(!copied[0].is_likely() && copied[1].is_likely(), "{copied:?}");
    }
}
