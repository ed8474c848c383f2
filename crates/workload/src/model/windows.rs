//! Windows: stretches of the original as steps, from which longer stretches like it are put together (a block bootstrap).
//!
//! A step has a kind, the time since the request before, and whereabouts: on from where the step before it ended, or at a place within an area: a piece
//! of a range, of which is not told where in the range it lies. Where it starts with an earlier extent, it also says how many requests ago that was used
//! last. What follows on what, within a window, is kept as it was.
//!
//! Source of the technique: H. R. Künsch, "The jackknife and the bootstrap for general stationary observations", Annals of Statistics 17(3),
//! 1989. The choice of steps is ours.

use serde::Deserialize;

/// Whether what a step touches was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It was not.
    New,
    /// A request with bytes started where it does, so many of them ago: 1 is the one before it.
    Again(u64),
    /// Its last block was used, about so many requests ago, though no request started where it does.
    Inside(u64),
}

/// Where a step starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// Where the step before it in its window ended.
    On {
        /// Whether what it touches was not used before.
        is_new: bool,
    },
    /// At a place within an area.
    At {
        /// Index into the areas.
        area: u32,
        /// How far into the area, in 512 bytes.
        sectors: u32,
        /// Whether that was used before.
        used: Use,
    },
}

/// A request of a window. In files of versions 4 and 5 it is an array `[kind, gap_ns]` where it goes on from the step before it (and -1 behind, if into what was used before), else `[kind, gap_ns, area, sectors, ...]`.
///
/// Where it starts where an earlier request did, `ago` follows: how many requests before it that was. `-1, ago` says that it starts inside of what was used
/// before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<i64>")]
pub struct Step {
    /// Index into the kinds.
    pub kind: u32,
    /// Time since the request before, in nanoseconds: to three digits, or one of few that stand for all.
    pub gap_ns: u64,
    /// Where it starts.
    pub at: Whereabouts,
}

impl TryFrom<Vec<i64>> for Step {
    type Error = String;

    fn try_from(row: Vec<i64>) -> Result<Step, String> {
        let refused = || {
            format!(
                "{row:?} is no step: expected `[kind, gap_ns]` or `[kind, gap_ns, area, sectors]`, and perhaps `ago` or `-1, ago`"
            )
        };
        let index = |value: i64| u32::try_from(value).map_err(|_| refused());
        let [kind, gap_ns, ref rest @ ..] = row[..] else { return Err(refused()) };
        let ago = |value: i64| u64::try_from(value).ok().filter(|&ago| ago > 0).ok_or_else(refused);
        let used = match *rest {
            [_, _, INSIDE, value] => Use::Inside(ago(value)?),
            [_, _, value] => Use::Again(ago(value)?),
            [] | [INSIDE] | [_, _] => Use::New,
            _ => return Err(refused()),
        };
        let at = match *rest {
            [] => Whereabouts::On { is_new: true },
            [_] => Whereabouts::On { is_new: false },
            _ => Whereabouts::At { area: index(rest[0])?, sectors: index(rest[1])?, used },
        };
        Ok(Step { kind: index(kind)?, gap_ns: u64::try_from(gap_ns).map_err(|_| refused())?, at })
    }
}

const INSIDE: i64 = -1;

/// How many steps, one after the other, are a thread's: its number, as in the model's weights from 1 on, or 0 where it is not known.
pub type ThreadRun = (u16, u32);

/// A stretch of the original.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// How many requests of the original it stands for: its own, and those around it that were left out.
    pub stands_for: u64,
    /// Requests with bytes that the original has before it.
    pub after: u64,
    /// Its requests.
    pub steps: Vec<Step>,
    /// Whose they are, in turn; empty where the original records no threads.
    pub threads: Vec<ThreadRun>,
}

/// `value` to three digits, so that a model stays small: within 0.5 %.
pub(crate) fn rounded(value: u64) -> u64 {
    let unit = 10u64.pow(value.checked_ilog10().unwrap_or(0).saturating_sub(2));
    value.saturating_add(unit / 2) / unit * unit
}

/// Cells of an octave of time: times of one differ by an eighth at most (ours).
const TIME_CELLS: f64 = 6.0;

/// Which times are told as one, their mean: those of one cell; what is shorter than a nanosecond is none and has a cell of its own.
pub(super) fn time_cell(ns: f64) -> usize {
    if ns < 1.0 { 0 } else { 1 + (ns.log2() * TIME_CELLS) as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_older_files_are_read_and_others_refused() {
        let at = |used| Whereabouts::At { area: 7, sectors: 8, used };
        for (row, at) in [
            (&[3, 1_230][..], Whereabouts::On { is_new: true }),
            (&[3, 1_230, -1], Whereabouts::On { is_new: false }),
            (&[3, 1_230, 7, 8], at(Use::New)),
            (&[3, 1_230, 7, 8, -1, 77], at(Use::Inside(77))),
            (&[3, 1_230, 7, 8, 123_456], at(Use::Again(123_456))),
        ] {
            let step = Step { kind: 3, gap_ns: 1_230, at };
            assert_eq!(Step::try_from(row.to_vec()), Ok(step));
        }
        for row in [
            &[1][..],
            &[1, 2, 3],
            &[-1, 2, 3, 4],
            &[1, -2],
            &[1, 2, -3, 4],
            &[1, 2, 3, -4],
            &[1, 2, 3, 4, -2],
            &[1, 2, 3, 4, 0],
            &[1, 2, 3, 4, -1, 0],
            &[1, 2, 3, 4, 5, 0],
        ] {
            let message = Step::try_from(row.to_vec()).unwrap_err();
            assert!(message.contains("is no step: expected `[kind, gap_ns]`"), "{row:?}: {message}");
        }
    }

    #[test]
    fn three_digits_are_kept() {
        let found = [0, 7, 999, 1_000, 12_345, 99_950, 1_234_567].map(rounded);
        assert_eq!(found, [0, 7, 999, 1_000, 12_300, 100_000, 1_230_000]);
        rounded(u64::MAX);
    }
}
