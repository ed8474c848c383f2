//! Interference: whose load slows a workload down, from the correlation of *changes* (Dynamite, step 2).
//!
//! Each neighbour's load is correlated with the victim's latency, by value (Pearson) and by rank (Spearman), at a few lags. Both are taken less what is left of them
//! from the interval before: where a latency's noise wanders, by itself or with what nobody measures, that leaves changes; where it is independent from one interval to the next, levels, by
//! which slow and rare changes of a load are seen that are lost in the noise of each interval otherwise. How much is left, and whether latency is taken as it is, by its logarithm or by its
//! reciprocal (which falls in proportion to the load where a queue is what slows down), is what makes the victim's latencies likeliest.
//! What lasts for some intervals in both counts once, not in each.
//!
//! Several neighbours at once hide each other: what one explains is noise to the test of the next. So they are judged together: the
//! neighbour that goes most with the victim is taken first, what it explains is taken out of the victim and of all others, and so on
//! until what is left over could be chance (orthogonal matching pursuit, Pati, Rezaiifar and Krishnaprasad 1993; that it is used for
//! this is ours). Then each has to stand beside all others, or is given up. What the victim's own load explains is taken out before.
//!
//! Among many neighbours some change with the victim by chance. Who shares an origin waits in the same queue, so its own latency goes with the victim's
//! as well: a neighbour of which nothing is known needs less evidence if it does, and much more if not. Its score is judged by the load alone.
//!
//! A load that began once, while all else is noise, is correlated by value and not by rank: a [`Step`] that both took is believed by itself.
//!
//! Guards: a series that does not vary says nothing (US9367421), and only a positive correlation counts, since more load never
//! makes a neighbour faster. Where the history says nothing, configured knowledge that both share an origin stands
//! in. It is *not* causality: two workloads that rise together for a reason outside look alike; [`granger`] is a second opinion on that.

mod granger;
mod judging;
pub mod planted;
mod pursuit;
mod series;
mod step;
mod table;

pub use granger::granger;
pub use step::Step;
pub use table::{InterferenceTable, table};

use judging::Histories;
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
    /// more; of intervals that differ, so that what lasts counts once. Default 3.3.
    pub significance_min: f64,
    /// The same of one of which that is not known, but whose latency goes with the victim's, as if they waited in the same queue. Default 3.
    pub significance_together: f64,
    /// The same of one that has nothing else to speak for it: among many, some go with the victim by chance. Default 5.
    pub significance_alone: f64,
    /// A load whose standard deviation is a smaller share of its mean does not vary. Default 0.02.
    pub variation_min: f64,
}

impl Default for InterferenceRules {
    fn default() -> InterferenceRules {
        InterferenceRules {
            history_min: 12,
            lag_max: 1,
            score_min: 0.2,
            significance_min: 3.3,
            significance_together: 3.0,
            significance_alone: 5.0,
            variation_min: 0.02,
        }
    }
}

/// What is known about an aggressor and a victim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interference {
    /// Load and latency go together, in changes or in levels.
    Correlated(Correlation),
    /// Both took one step, at the same time, and do not go together otherwise.
    Stepped(Step),
    /// The history says nothing (too short or too constant), but they are configured to share an origin.
    SharedOrigin,
    /// Both vary and do not go together.
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

/// How strongly two series go together.
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

impl Correlation {
    fn none(lag: usize) -> Correlation {
        Correlation { score: 0.0, pearson: 0.0, spearman: 0.0, lag, granger: None }
    }
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
/// Cost: `O(m n log n)` for `m` neighbours and `n` intervals, and `O(m n)` for each one that is found, each twelve times.
///
/// # Panics
/// If the lengths differ.
pub fn interference(
    neighbours: &[Neighbour<'_>],
    victim: Victim<'_>,
    shares_origin: bool,
    rules: &InterferenceRules,
) -> Vec<Interference> {
    let of = neighbours.iter().map(|&Neighbour { load, latency }| {
        // What shares the origin waits in its queue: nobody asks for how long.
        Neighbour { load, latency: latency.filter(|_| !shares_origin) }
    });
    let of = of.chain([Neighbour { load: victim.load, latency: Some(victim.latency) }]).collect();
    let others: Vec<usize> = (0..neighbours.len()).collect();
    match Histories::new(of, rules) {
        Some(histories) => histories.judge(neighbours.len(), &others, shares_origin),
        None => vec![unknown(shares_origin); neighbours.len()],
    }
}

/// What is said where the history says nothing.
fn unknown(shares_origin: bool) -> Interference {
    if shares_origin { Interference::SharedOrigin } else { Interference::Unknown }
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
    fn what_changes_rarely_is_found_where_the_noise_of_each_interval_hides_its_changes() {
        // A request more of the neighbour's adds a microsecond; noise of 1 ms from interval to interval, without memory. By changes alone the two turns of the load are lost.
        let noise = |t: usize| 0.001 * ((t * 7919 % 101) as f64 / 50.0 - 1.0);
        let load: Vec<f64> = (0..120).map(|t| if (40..80).contains(&t) { 2_000.0 } else { 200.0 }).collect();
        let adds: Vec<f64> = (0..120).map(|t| 0.004 + load[t] * 1e-6 + noise(t)).collect();
        let rules = InterferenceRules::default();
        let found = judge(&load, &adds, true, &rules);
        assert!(matches!(found, Interference::Correlated(found) if found.score > 0.6), "{found:?}");
        // The same noise alone; and noise that wanders as slowly as the load does: nothing in it is worth more than a few intervals.
        let alone: Vec<f64> = (0..120).map(|t| 0.004 + noise(t)).collect();
        assert!(matches!(judge(&load, &alone, true, &rules), Interference::Absent(_)));
        let mut at = 0.0;
        let wanders = |t: usize| {
            at += noise(t);
            (at * 300.0).exp() * 0.004
        };
        let wanders: Vec<f64> = (0..120).map(wanders).collect();
        let found = judge(&load, &wanders, true, &rules);
        assert!(matches!(found, Interference::Absent(_)), "{found:?}");
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
