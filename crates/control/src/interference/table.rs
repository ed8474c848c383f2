//! Who interferes with whom among many workloads: Dynamite's table (figure 6 a), and the sets that follow from it.

use super::judging::Histories;
use super::{Interference, InterferenceRules, Neighbour, Victim, unknown};

/// Judgements of all pairs, and the sets of workloads that interfere.
#[derive(Clone, Debug, PartialEq)]
pub struct InterferenceTable {
    /// `[victim][aggressor]`; `None` on the diagonal.
    pub judged: Vec<Vec<Option<Interference>>>,
    /// The number of the set of each workload, from 0 in the order of its first member. Who interferes with nobody is a set of its own.
    pub set: Vec<usize>,
}

impl InterferenceTable {
    /// The sets that follow from judgements `[victim][aggressor]`: who is likely to interfere is in one set with whom. `O(m^2)`, for each pair that is likely `O(m)`.
    ///
    /// # Panics
    /// If there are more aggressors than victims.
    pub fn of(judged: Vec<Vec<Option<Interference>>>) -> InterferenceTable {
        let mut set: Vec<usize> = (0..judged.len()).collect();
        for (victim, row) in judged.iter().enumerate() {
            for (aggressor, _) in
                row.iter().enumerate().filter(|(_, judged)| judged.is_some_and(|judged| judged.is_likely()))
            {
                let (from, to) = (set[aggressor].max(set[victim]), set[aggressor].min(set[victim]));
                set.iter_mut().filter(|set| **set == from).for_each(|set| *set = to);
            }
        }
        let mut names: Vec<usize> = Vec::new();
        for number in &mut set {
            let name = names.iter().position(|name| name == number).unwrap_or_else(|| {
                names.push(*number);
                names.len() - 1
            });
            *number = name;
        }
        InterferenceTable { judged, set }
    }

    /// How strongly an aggressor's load changes with a victim's latency, or how much of the latter's changes is a step that both took: 0 where neither was seen.
    pub fn score(&self, aggressor: usize, victim: usize) -> f64 {
        match self.judged[victim][aggressor] {
            Some(Interference::Correlated(correlation)) => correlation.score,
            Some(Interference::Stepped(step)) => step.score,
            _ => 0.0,
        }
    }
}

/// Judges every pair of `workloads`, of the same intervals. `shares_origin` says which are configured to share an origin.
/// `O(m n (m + log n))` for `m` workloads of `n` intervals, and `O(m n)` for each pair that is found.
///
/// # Panics
/// If the lengths differ.
pub fn table(
    workloads: &[Victim<'_>],
    shares_origin: impl Fn(usize, usize) -> bool,
    rules: &InterferenceRules,
) -> InterferenceTable {
    let of = workloads.iter().map(|&Victim { load, latency }| Neighbour { load, latency: Some(latency) });
    let histories = Histories::new(of.collect(), rules);
    let judged = (0..workloads.len())
        .map(|victim| {
            let mut row = vec![None; workloads.len()];
            for shares in [true, false] {
                let others: Vec<usize> = (0..workloads.len())
                    .filter(|&other| other != victim && shares_origin(other, victim) == shares)
                    .collect();
                let found = match &histories {
                    Some(histories) => histories.judge(victim, &others, shares),
                    None => vec![unknown(shares); others.len()],
                };
                others.into_iter().zip(found).for_each(|(other, found)| row[other] = Some(found));
            }
            row
        })
        .collect();
    InterferenceTable::of(judged)
}
