//! What people may choose about loading from snapshots: by which score, and where the blocks enter. The same in the daemon and in the simulator.

use super::scores::Heuristic;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display};
use std::str::FromStr;
use thiserror::Error;

/// Snapshots after which a decayed frequency counts half (ours: six minutes, as snapshots are taken by default).
const HALF_LIFE: f32 = 6.0;

/// By which score the blocks of a series of snapshots are loaded. **Ties**: the block with the smaller number first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadScore {
    /// Decayed frequency, in which a block counts twice in snapshots that say it had been used again (ours).
    #[default]
    UsedAgain,
    /// [`Heuristic::Recent`]
    KRecent,
    /// [`Heuristic::Frequent`]
    KFrequent,
    /// [`Heuristic::FrerecentLinear`]
    KFrerecentLinear,
    /// [`Heuristic::FrerecentQuadratic`]
    KFrerecentQuadratic,
    /// [`Heuristic::FrequencyPerByte`]: the order of [`LoadScore::KFrequent`] where all blocks are of one size, as a volume's are.
    FrequencyPerByte,
    /// [`Heuristic::Decayed`], six snapshots counting half.
    DecayedFrequency,
}

impl LoadScore {
    /// All of them.
    pub const ALL: [LoadScore; 7] = [
        LoadScore::UsedAgain,
        LoadScore::KRecent,
        LoadScore::KFrequent,
        LoadScore::KFrerecentLinear,
        LoadScore::KFrerecentQuadratic,
        LoadScore::FrequencyPerByte,
        LoadScore::DecayedFrequency,
    ];

    /// Its name in configurations, orders and reports.
    pub const fn name(self) -> &'static str {
        match self {
            LoadScore::UsedAgain => "used-again",
            LoadScore::KRecent => "k-recent",
            LoadScore::KFrequent => "k-frequent",
            LoadScore::KFrerecentLinear => "k-frerecent-linear",
            LoadScore::KFrerecentQuadratic => "k-frerecent-quadratic",
            LoadScore::FrequencyPerByte => "frequency-per-byte",
            LoadScore::DecayedFrequency => "decayed-frequency",
        }
    }

    /// Whether each snapshot is given to the table twice, the second time with the blocks that had been used again.
    pub const fn counts_used_again(self) -> bool {
        matches!(self, LoadScore::UsedAgain)
    }

    /// What the table reckons.
    pub const fn heuristic(self) -> Heuristic {
        match self {
            // Twice as many are given to the table.
            LoadScore::UsedAgain => Heuristic::Decayed { half_life: 2.0 * HALF_LIFE },
            LoadScore::KRecent => Heuristic::Recent,
            LoadScore::KFrequent => Heuristic::Frequent,
            LoadScore::KFrerecentLinear => Heuristic::FrerecentLinear,
            LoadScore::KFrerecentQuadratic => Heuristic::FrerecentQuadratic,
            LoadScore::FrequencyPerByte => Heuristic::FrequencyPerByte,
            LoadScore::DecayedFrequency => Heuristic::Decayed { half_life: HALF_LIFE },
        }
    }
}

/// Where prewarmed blocks enter the order of eviction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entry {
    /// As the most recently used of the multi-touch pool, then of the single-touch pool: the original's. What was loaded first leaves first.
    Head,
    /// As the next victim of the multi-touch pool, then of the single-touch pool: what was loaded first, the best, leaves last.
    #[default]
    Tail,
    /// Into a partition of their own, as large as what may be loaded: the pools have what is left. One that is used moves to the multi-touch
    /// pool, and its room with it. (An option that PRESTO's slides leave open; the rule is ours.)
    OwnPartition,
}

impl Entry {
    /// All of them.
    pub const ALL: [Entry; 3] = [Entry::Head, Entry::Tail, Entry::OwnPartition];

    /// Its name in configurations, orders and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Entry::Head => "head",
            Entry::Tail => "tail",
            Entry::OwnPartition => "own-partition",
        }
    }
}

/// A word that names no choice.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{found}` is no value here: expected {expected}")]
pub struct UnknownChoice {
    found: String,
    expected: String,
}

fn choose<T: Copy>(word: &str, all: &[T], name: impl Fn(T) -> &'static str) -> Result<T, UnknownChoice> {
    all.iter().copied().find(|choice| name(*choice) == word).ok_or_else(|| UnknownChoice {
        found: word.to_owned(),
        expected: all.iter().map(|choice| format!("`{}`", name(*choice))).collect::<Vec<_>>().join(" or "),
    })
}

impl FromStr for LoadScore {
    type Err = UnknownChoice;

    fn from_str(word: &str) -> Result<LoadScore, UnknownChoice> {
        choose(word, &LoadScore::ALL, LoadScore::name)
    }
}

impl FromStr for Entry {
    type Err = UnknownChoice;

    fn from_str(word: &str) -> Result<Entry, UnknownChoice> {
        choose(word, &Entry::ALL, Entry::name)
    }
}

impl Display for LoadScore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_and_command_lines_know_the_same_names() {
        for score in LoadScore::ALL {
            assert_eq!(score.name().parse(), Ok(score));
            assert_eq!(serde_json::to_value(score).unwrap(), score.name());
        }
        for entry in Entry::ALL {
            assert_eq!(entry.name().parse(), Ok(entry));
            assert_eq!(serde_json::to_value(entry).unwrap(), entry.name());
        }
        assert_eq!(
            "top".parse::<Entry>().unwrap_err().to_string(),
            "`top` is no value here: expected `head` or `tail` or `own-partition`"
        );
    }
}
