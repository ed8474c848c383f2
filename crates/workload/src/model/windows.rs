//! Windows: stretches of the original as steps, from which longer stretches like it are put together (a block bootstrap).
//!
//! A step has a kind, the time since the request before, and a place within an area: a piece of a range, of which is not told where in the range it
//! lies. Where it starts with an earlier extent, it also says where that lies in the history. A model keeps a bounded number of windows,
//! spread evenly over the original; so its size does not grow with the trace, and what follows on what, within a window, is kept
//! as it was.
//!
//! Source of the technique: H. R. Künsch, "The jackknife and the bootstrap for general stationary observations", Annals of Statistics 17(3),
//! 1989. The choice of steps is ours.

use super::history::{Relation, STEPS_BACK, STEPS_ON, TOP};
use serde::{Deserialize, Serialize};

/// Where an earlier extent lies in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// So many live extents from a cursor: 0 is the next newer one, -1 the next older.
    Near {
        /// Which cursor: 0 to 3, the last used first, or 4 for the top.
        cursor: u8,
        /// From -8 to 15.
        step: i8,
    },
    /// Below so many units of 512 bytes of live extents.
    Far(u64),
}

/// A request of a window; on paper an array `[kind, gap_ns, area, sectors, ...]`.
///
/// Where it starts where an earlier extent did, what follows says where that lay in the history: `depth`, or `cursor, step`. A -1 says that it starts
/// inside of what was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<i64>", into = "Vec<i64>")]
pub struct Step {
    /// Index into the kinds.
    pub kind: u32,
    /// Time since the request before, to three digits.
    pub gap_ns: u64,
    /// Index into the areas.
    pub area: u32,
    /// How far from where the area was first used, in 512 bytes.
    pub sectors: i64,
    /// Where the earlier extent lies that it starts with, if there is one.
    pub again: Option<Place>,
    /// Whether its last block was used before, though no extent starts where it does.
    pub inside: bool,
}

impl From<Step> for Vec<i64> {
    fn from(step: Step) -> Vec<i64> {
        let mut row = vec![step.kind.into(), step.gap_ns as i64, step.area.into(), step.sectors];
        match step.again {
            None if step.inside => row.push(INSIDE),
            None => {}
            Some(Place::Far(depth)) => row.push(depth as i64),
            Some(Place::Near { cursor, step }) => row.extend([i64::from(cursor), step.into()]),
        }
        row
    }
}

impl TryFrom<Vec<i64>> for Step {
    type Error = String;

    fn try_from(row: Vec<i64>) -> Result<Step, String> {
        let refused = || {
            format!(
                "{row:?} is no step: expected `[kind, gap_ns, area, sectors]`, and perhaps `depth` or `cursor, step`"
            )
        };
        let whole = |value: i64| u64::try_from(value).map_err(|_| refused());
        let index = |value: i64| u32::try_from(value).map_err(|_| refused());
        let (parts, again) = match row[..] {
            [kind, gap, area, sectors] | [kind, gap, area, sectors, INSIDE] => {
                ([kind, gap, area, sectors], None)
            }
            [kind, gap, area, sectors, depth] => {
                ([kind, gap, area, sectors], Some(Place::Far(whole(depth)?)))
            }
            [kind, gap, area, sectors, cursor @ 0..CURSORS, step @ STEP_FIRST..STEP_END] => {
                ([kind, gap, area, sectors], Some(Place::Near { cursor: cursor as u8, step: step as i8 }))
            }
            _ => return Err(refused()),
        };
        let (kind, gap_ns) = (index(parts[0])?, whole(parts[1])?);
        let (area, sectors) = (index(parts[2])?, parts[3]);
        Ok(Step { kind, gap_ns, area, sectors, again, inside: row.get(4) == Some(&INSIDE) })
    }
}

const INSIDE: i64 = -1;
const CURSORS: i64 = TOP as i64 + 1;
const STEP_FIRST: i64 = -(STEPS_BACK as i64);
const STEP_END: i64 = STEPS_ON as i64;

impl Place {
    pub(crate) fn near(relation: Relation) -> Place {
        Place::Near { cursor: relation.cursor as u8, step: relation.step as i8 }
    }
}

/// A stretch of the original.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// How many requests came before it.
    pub first: u64,
    /// Index into the phases.
    pub phase: u32,
    /// Its requests.
    pub steps: Vec<Step>,
}

/// `value` to three digits, so that a model stays small: within 0.5 %.
pub(crate) fn rounded(value: u64) -> u64 {
    let unit = 10u64.pow(value.checked_ilog10().unwrap_or(0).saturating_sub(2));
    value.saturating_add(unit / 2) / unit * unit
}

/// The windows that are kept of those seen so far: spread evenly, as many as may be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Library {
    windows: Vec<Window>,
    windows_max: usize,
}

impl Library {
    pub(crate) fn new(windows_max: usize) -> Library {
        Library { windows: Vec::new(), windows_max: windows_max.max(1) }
    }

    /// The next window. Where there are too many, one whose neighbours are closest to each other goes.
    pub(crate) fn add(&mut self, window: Window) {
        self.windows.push(window);
        if self.windows.len() <= self.windows_max {
            return;
        }
        let apart = |at: usize| {
            let before = at.checked_sub(1).map_or(0, |before| self.windows[before].first + 1);
            let after = self.windows.get(at + 1).map_or(u64::MAX, |after| after.first);
            // Among equals, which one goes must not be periodic.
            (after - before, forebay_units::mix64(self.windows[at].first))
        };
        let gone = (0..self.windows.len()).min_by_key(|&at| apart(at)).expect("there are windows");
        self.windows.remove(gone);
    }

    pub(crate) fn steps_mut(&mut self) -> impl Iterator<Item = &mut Step> {
        self.windows.iter_mut().flat_map(|window| &mut window.steps)
    }

    pub(crate) fn windows(&self) -> &[Window] {
        &self.windows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_survive_their_rows_and_others_are_refused() {
        let step = Step { kind: 3, gap_ns: 1_230, area: 7, sectors: -8, again: None, inside: false };
        for step in [
            step,
            Step { inside: true, ..step },
            Step { again: Some(Place::Far(123_456)), ..step },
            Step { again: Some(Place::Near { cursor: 4, step: -8 }), ..step },
        ] {
            let row: Vec<i64> = step.into();
            assert_eq!(Step::try_from(row), Ok(step));
        }
        for row in [
            &[1, 2, 3][..],
            &[-1, 2, 3, 4],
            &[1, 2, -3, 4],
            &[1, 2, 3, 4, -2],
            &[1, 2, 3, 4, 5, 0],
            &[1, 2, 3, 4, 0, 16],
        ] {
            let message = Step::try_from(row.to_vec()).unwrap_err();
            assert!(
                message.contains("is no step: expected `[kind, gap_ns, area, sectors]`"),
                "{row:?}: {message}"
            );
        }
    }

    #[test]
    fn three_digits_are_kept() {
        let found = [0, 7, 999, 1_000, 12_345, 99_950, 1_234_567].map(rounded);
        assert_eq!(found, [0, 7, 999, 1_000, 12_300, 100_000, 1_230_000]);
        rounded(u64::MAX);
    }

    #[test]
    fn the_windows_that_are_kept_are_spread_evenly() {
        let mut library = Library::new(64);
        (0..1_000).for_each(|at| library.add(Window { first: at * 256, phase: 0, steps: Vec::new() }));
        let firsts: Vec<u64> = library.windows().iter().map(|window| window.first / 256).collect();
        assert_eq!(firsts.len(), 64);
        // 1,000 / 64 = 15.6 apart on average.
        let widest = firsts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(firsts.is_sorted() && widest <= 32 && firsts[0] < 32 && firsts[63] > 960, "{firsts:?}");
    }
}
