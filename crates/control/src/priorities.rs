//! Priorities: what the objectives of several of them count beside one another.
//!
//! Objectives of a higher priority are served first, and one cache serves objectives of several: it relieves all that share its origin. So memory is divided level by
//! level, from the highest on, each time by all the objectives of that level and of those above it, on one scale. The form and the numbers are ours.

/// By how much a violation counts more than one of the next lower level: a thousandth of a bound more than a bound.
const OUTRANKS: f64 = 1e3;
/// Levels that are told apart on one scale; of more, the lowest would be lost in rounding. What is above them has been served before.
const TOLD_APART: usize = 4;

/// The levels that count.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Priorities {
    /// The highest first, each once; at least one.
    levels: Vec<u8>,
}

impl Default for Priorities {
    /// All objectives count alike.
    fn default() -> Priorities {
        Priorities::of([0])
    }
}

impl Priorities {
    /// Those of some objectives; of none, one level.
    pub(crate) fn of(objectives: impl IntoIterator<Item = u8>) -> Priorities {
        let mut levels: Vec<u8> = objectives.into_iter().collect();
        levels.sort_unstable_by(|a, b| b.cmp(a));
        levels.dedup();
        if levels.is_empty() {
            levels.push(0);
        }
        Priorities { levels }
    }

    /// The highest alone, the two highest, and so on to all.
    pub(crate) fn descending(&self) -> impl Iterator<Item = Priorities> + '_ {
        (1..=self.levels.len()).map(|count| Priorities { levels: self.levels[..count].to_vec() })
    }

    /// Each of them, the highest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        self.levels.iter().copied()
    }

    /// The lowest level that counts.
    pub(crate) fn lowest(&self) -> u8 {
        self.levels[self.levels.len() - 1]
    }

    /// What a violation of an objective of this priority counts: 1 on the lowest level, nothing below it.
    pub(crate) fn weight(&self, priority: u8) -> f64 {
        let Some(level) = self.levels.iter().position(|&level| level <= priority) else { return 0.0 };
        OUTRANKS.powi((self.levels.len() - 1 - level).min(TOLD_APART - 1) as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_higher_level_outranks_a_lower_one_and_nothing_below_counts() {
        let all = Priorities::of([0, 5, 2, 5]);
        let weights = |of: &Priorities| [5, 3, 2, 1, 0].map(|priority| of.weight(priority));
        assert_eq!(weights(&all), [1e6, 1e3, 1e3, 1.0, 1.0]);
        let steps: Vec<Priorities> = all.descending().collect();
        assert_eq!(steps.iter().map(Priorities::lowest).collect::<Vec<_>>(), [5, 2, 0]);
        assert_eq!(weights(&steps[0]), [1.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(weights(&steps[1]), [1e3, 1.0, 1.0, 0.0, 0.0]);
        assert_eq!(steps[2], all);
    }

    #[test]
    fn one_level_counts_as_it_is_and_of_many_the_highest_tie() {
        for priority in [0, 7, 255] {
            assert_eq!(Priorities::of([priority]).weight(priority), 1.0);
            assert_eq!(Priorities::default().weight(priority), 1.0);
        }
        assert_eq!(Priorities::of([]), Priorities::default());
        let many = Priorities::of(0..=255);
        assert_eq!((many.weight(0), many.weight(3), many.weight(4), many.weight(255)), (1.0, 1e9, 1e9, 1e9));
    }
}
