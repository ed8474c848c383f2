//! Violations: sustained non-conformance. A spike is not one, and neither is a phase of low load (Dynamite, §5.1).

use crate::conformance::Verdict;
use serde::{Deserialize, Serialize};

/// When non-conformance is sustained. The numbers are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ViolationRules {
    /// How many of the last windows are looked at. Default 5; 1 to 64.
    pub windows: usize,
    /// How many of them must be nonconforming. Default 3; 1 to `windows`.
    pub nonconforming: usize,
}

impl Default for ViolationRules {
    fn default() -> ViolationRules {
        ViolationRules { windows: 5, nonconforming: 3 }
    }
}

/// What the last windows come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assessment {
    /// No window is nonconforming, or the last ones conform.
    Kept,
    /// Some are nonconforming, too few to act.
    Suspected {
        /// How many.
        nonconforming: usize,
    },
    /// Enough are nonconforming, the last one among them.
    Violated {
        /// How many.
        nonconforming: usize,
    },
}

/// Assesses the verdicts of the past, oldest first; only the last `rules.windows` count.
///
/// The newest window must itself be nonconforming for a violation: what is over needs no action.
pub fn assess(verdicts: impl DoubleEndedIterator<Item = Verdict>, rules: &ViolationRules) -> Assessment {
    let mut newest = None;
    let mut nonconforming = 0;
    for verdict in verdicts.rev().take(rules.windows) {
        newest.get_or_insert(verdict);
        nonconforming += usize::from(verdict == Verdict::Nonconforming);
    }
    match (nonconforming, newest) {
        (0, _) => Assessment::Kept,
        (_, Some(Verdict::Nonconforming)) if nonconforming >= rules.nonconforming => {
            Assessment::Violated { nonconforming }
        }
        _ => Assessment::Suspected { nonconforming },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Conforming as C, LowLoad as L, Nonconforming as N};

    #[test]
    fn three_of_five_with_the_newest_among_them() {
        let of = |verdicts: &[Verdict]| assess(verdicts.iter().copied(), &ViolationRules::default());
        assert_eq!(of(&[]), Assessment::Kept);
        assert_eq!(of(&[C, C, N, N]), Assessment::Suspected { nonconforming: 2 }); // a spike so far
        assert_eq!(of(&[C, N, C, N, N]), Assessment::Violated { nonconforming: 3 });
        assert_eq!(of(&[N, N, N, C]), Assessment::Suspected { nonconforming: 3 }); // over for now
        assert_eq!(of(&[N, N, L, L, L]), Assessment::Suspected { nonconforming: 2 }); // the load went away
        assert_eq!(of(&[N, N, N, L, L, L, L, L]), Assessment::Kept); // forgotten after five
    }
}
