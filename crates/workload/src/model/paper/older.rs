//! Windows and transitions as older versions tell them: read, and never written.

use super::super::windows::{Step, Use, Whereabouts};
use super::super::{ANY, Link, Transition};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Where a step of version 6 starts: 0 where the one before it ended, 1 the same, and it was used before; `-back` where the step started that many steps before it, as many requests ago;
/// else a list: `[-back, ago]`, or `[area, place]`, and behind it perhaps `ago` or `-1, ago`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Place {
    One(i64),
    Many(Vec<i64>),
}

const INSIDE: i64 = -1;

/// What is known of the steps so far, in the order of all windows: where they started, unless they went on.
#[derive(Default)]
pub(super) struct Told {
    starts: Vec<Option<(u32, u32)>>,
}

impl Told {
    /// The place of the next step, that was written in units of so many sectors; `None` where it is none.
    fn place(&mut self, place: &Place, unit: u32) -> Option<Whereabouts> {
        let again = |back: i64, ago: i64| {
            let back = usize::try_from(back.checked_neg()?).ok().filter(|&back| back > 0)?;
            let (area, sectors) = (*self.starts.get(self.starts.len().checked_sub(back)?)?)?;
            Some(Whereabouts::At { area, sectors, used: Use::Again(positive(ago)?) })
        };
        let at = |area: i64, place: i64, used: Use| {
            let sectors = u32::try_from(place).ok()?.checked_mul(unit)?;
            Some(Whereabouts::At { area: u32::try_from(area).ok()?, sectors, used })
        };
        let found = match *place {
            Place::One(0) => Whereabouts::On { is_new: true },
            Place::One(1) => Whereabouts::On { is_new: false },
            Place::One(back) => again(back, back.checked_neg()?)?,
            Place::Many(ref numbers) => match numbers[..] {
                [back, ago] if back < 0 => again(back, ago)?,
                [area, place] => at(area, place, Use::New)?,
                [area, place, ago] => at(area, place, Use::Again(positive(ago)?))?,
                [area, place, INSIDE, ago] => at(area, place, Use::Inside(positive(ago)?))?,
                _ => return None,
            },
        };
        self.starts.push(match found {
            Whereabouts::At { area, sectors, .. } => Some((area, sectors)),
            Whereabouts::On { .. } => None,
        });
        Some(found)
    }
}

fn positive(ago: i64) -> Option<u64> {
    u64::try_from(ago).ok().filter(|&ago| ago > 0)
}

/// The lists of a window of version 6.
pub(super) struct Lists {
    pub(super) kinds: Vec<u32>,
    pub(super) gaps: Vec<u32>,
    pub(super) places: Vec<Place>,
}

impl Told {
    /// The steps of a window, whose places are in units of so many sectors.
    ///
    /// # Errors
    /// What is wrong, with its field in the window `number`.
    pub(super) fn read(
        &mut self,
        number: usize,
        lists: Lists,
        gaps_ns: &[u64],
        unit: u32,
    ) -> Result<Vec<Step>, String> {
        let Lists { kinds, gaps, places } = lists;
        super::check_lengths(number, kinds.len(), gaps.len(), places.len())?;
        let mut steps = Vec::with_capacity(kinds.len());
        for (at, ((kind, gap), place)) in kinds.into_iter().zip(gaps).zip(&places).enumerate() {
            let Some(&gap_ns) = gaps_ns.get(gap as usize) else {
                return Err(format!(
                    "`windows[{number}].gaps[{at}]` is {gap}: expected an index below {}",
                    gaps_ns.len()
                ));
            };
            let Some(at) = self.place(place, unit) else {
                return Err(format!(
                    "`windows[{number}].places[{at}]` is {}: expected 0, 1, `-back`, `[-back, ago]` or `[area, place]`, and perhaps `ago` or `-1, ago`",
                    match place {
                        Place::One(number) => number.to_string(),
                        Place::Many(numbers) => format!("{numbers:?}"),
                    }
                ));
            };
            steps.push(Step { kind, gap_ns, at });
        }
        Ok(steps)
    }
}

/// A transition of a phase, `[from, from_kind, to, kind, link, requests, gap_us]`: versions 4 to 6 have them by the kind before too.
pub(super) type PhaseTransition = (i64, i64, i64, u32, Link, u64, f64);

/// The chain over states alone: sums over phases, and over kinds before.
pub(super) fn chain(rows: impl Iterator<Item = PhaseTransition>) -> Vec<Transition> {
    type Sums = BTreeMap<(u32, u32, u32, u8), (Link, u64, f64)>;
    let mut sums = Sums::new();
    let state = |number: i64| u32::try_from(number).unwrap_or(ANY);
    for (from, from_kind, to, kind, link, requests, gap_us) in rows {
        // What was summed over the kind before is counted in the rows of that step.
        if to < 0 && from_kind >= 0 {
            continue;
        }
        let sum = sums.entry((state(from), state(to), kind, link as u8)).or_insert((link, 0, 0.0));
        sum.1 = sum.1.saturating_add(requests);
        sum.2 += gap_us * requests as f64;
    }
    let row = |((from, to, kind, _), (link, requests, sum)): (_, (Link, u64, f64))| {
        let gap_us = if requests == 0 { 0.0 } else { sum / requests as f64 };
        Transition { from, to, kind, link, requests, gap_us }
    };
    sums.into_iter().map(row).collect()
}
