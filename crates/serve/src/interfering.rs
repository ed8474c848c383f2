//! Who interferes with whom, over time: what `GET /api/v1/interference` answers and `forebay interference` shows.
//!
//! Each interval the table of one origin is made, in turns, so that a turn of the loop costs no more where there are many origins.

use forebay_control::interference::Interference;
use forebay_control::{Controller, OriginInterference};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

/// Names the layout.
pub const SCHEMA: &str = "forebay.interference/1";
/// Control intervals between two tables of an origin, at least, and tables that are kept of all (ours).
const EVERY: u64 = 6;
const KEPT: usize = 600;
/// Pairs that a table tells of: where all loads have one rhythm all of them look alike.
const PAIRS_MAX: usize = 64;

/// The tables of late.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interferences {
    /// Names the layout.
    pub schema: String,
    /// Oldest first.
    pub tables: Vec<InterferenceTable>,
}

impl Interferences {
    /// To be called without the lock of the tables in hands: it copies them.
    pub(crate) fn of(tables: &[Arc<InterferenceTable>]) -> Interferences {
        let copy = |table: &Arc<InterferenceTable>| InterferenceTable::clone(table);
        Interferences { schema: SCHEMA.to_owned(), tables: tables.iter().map(copy).collect() }
    }
}

/// Who interfered with whom on one origin, by the intervals that the controller kept at that time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InterferenceTable {
    /// When it was made, milliseconds since 1970.
    pub at_unix_ms: i64,
    /// The origin; its number where it has no name.
    pub origin: String,
    /// The volumes that loaded it, the busiest 32 at most, by sets. Who interferes with nobody is a set of its own; of whom too little is seen yet, who shares the
    /// origin is taken to interfere.
    pub sets: Vec<Vec<String>>,
    /// What was seen, the 64 strongest, strongest first.
    pub pairs: Vec<InterferingPair>,
    /// How many more were seen.
    pub pairs_left_out: usize,
}

/// A volume whose load slows another one down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InterferingPair {
    /// Whose load it is.
    pub aggressor: String,
    /// Who waits for it.
    pub victim: String,
    /// `changes` where load and latency go together, in changes or in levels, `step` where both took one step at the same time.
    pub evidence: String,
    /// How much, 0 to 1.
    pub score: f64,
    /// Control intervals by which the latency follows.
    pub lag: usize,
}

impl InterferenceTable {
    fn of(found: &OriginInterference, at_unix_ms: i64) -> InterferenceTable {
        let name = |at: usize| found.volumes[at].1.clone();
        let mut sets: Vec<Vec<String>> = Vec::new();
        for (at, &set) in found.table.set.iter().enumerate() {
            sets.resize(sets.len().max(set + 1), Vec::new());
            sets[set].push(name(at));
        }
        let seen = |victim: usize, aggressor: usize| {
            let (evidence, score, lag) = match found.table.judged[victim][aggressor]? {
                Interference::Correlated(correlation) => ("changes", correlation.score, correlation.lag),
                Interference::Stepped(step) => ("step", step.score, step.lag),
                _ => return None,
            };
            Some(InterferingPair {
                aggressor: name(aggressor),
                victim: name(victim),
                evidence: evidence.to_owned(),
                score,
                lag,
            })
        };
        let all = 0..found.volumes.len();
        let mut pairs: Vec<InterferingPair> = (all.clone())
            .flat_map(|victim| all.clone().filter_map(move |aggressor| seen(victim, aggressor)))
            .collect();
        pairs.sort_by(|a, b| b.score.total_cmp(&a.score));
        let pairs_left_out = pairs.len().saturating_sub(PAIRS_MAX);
        pairs.truncate(PAIRS_MAX);
        let origin = found.name.clone().unwrap_or_else(|| found.origin.0.to_string());
        InterferenceTable { at_unix_ms, origin, sets, pairs, pairs_left_out }
    }
}

/// Whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct InterferenceTurns(u64);

impl InterferenceTurns {
    /// The table of this interval, which the controller has seen, if one is due.
    pub(crate) fn table(&mut self, controller: &Controller, at_unix_ms: i64) -> Option<InterferenceTable> {
        let origins = controller.shared_origins();
        let whose = self.0 % EVERY.max(origins.len() as u64);
        self.0 += 1;
        let found = controller.interference(*origins.get(whose as usize)?)?;
        Some(InterferenceTable::of(&found, at_unix_ms))
    }
}

/// The tables of late.
#[derive(Debug, Default)]
pub(crate) struct InterferenceTables(VecDeque<Arc<InterferenceTable>>);

impl InterferenceTables {
    pub(crate) fn keep(&mut self, table: InterferenceTable) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Arc::new(table));
    }

    /// All that are kept, oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<InterferenceTable>> {
        self.0.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_control::interference::{Correlation, InterferenceTable as Judged};
    use forebay_control::{OriginId, VolumeId};

    #[test]
    fn a_table_names_sets_and_what_was_seen_of_pairs() {
        let correlated = |score| {
            let correlation = Correlation { score, pearson: score, spearman: score, lag: 1, granger: None };
            Some(Interference::Correlated(correlation))
        };
        let absent = Some(Interference::Unknown);
        let found = OriginInterference {
            origin: OriginId(7),
            name: None,
            volumes: (0..3).map(|id| (VolumeId(id), format!("v{id}"))).collect(),
            table: Judged::of(vec![
                vec![None, absent, correlated(0.5)],
                vec![absent, None, absent],
                vec![correlated(0.75), absent, None],
            ]),
        };
        let table = InterferenceTable::of(&found, 9);
        assert_eq!((table.at_unix_ms, table.origin.as_str()), (9, "7"));
        assert_eq!(table.sets, [vec!["v0", "v2"], vec!["v1"]]);
        let told: Vec<(&str, &str, f64)> = (table.pairs.iter())
            .map(|pair| (pair.aggressor.as_str(), pair.victim.as_str(), pair.score))
            .collect();
        assert_eq!(told, [("v0", "v2", 0.75), ("v2", "v0", 0.5)]);
        assert_eq!(table.pairs_left_out, 0);
    }

    #[test]
    fn of_many_pairs_the_strongest_are_told() {
        let score = |victim: usize, aggressor: usize| 0.5 + (victim * 10 + aggressor) as f64 / 1e3;
        let judged = |victim: usize, aggressor: usize| {
            let score = score(victim, aggressor);
            let correlation = Correlation { score, pearson: score, spearman: score, lag: 0, granger: None };
            (victim != aggressor).then_some(Interference::Correlated(correlation))
        };
        let row = |victim: usize| (0..10).map(|aggressor| judged(victim, aggressor)).collect();
        let found = OriginInterference {
            origin: OriginId(0),
            name: Some("array".to_owned()),
            volumes: (0..10).map(|id| (VolumeId(id), format!("v{id}"))).collect(),
            table: Judged::of((0..10).map(row).collect()),
        };
        let table = InterferenceTable::of(&found, 0);
        assert_eq!((table.pairs.len(), table.pairs_left_out), (64, 26));
        assert_eq!((table.pairs[0].victim.as_str(), table.pairs[0].aggressor.as_str()), ("v9", "v8"));
        assert_eq!(table.sets.len(), 1);
    }
}
