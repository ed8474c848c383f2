//! The script: which window is played next, so that a run of any length has the original's windows in about their order and its
//! shares of kinds.
//!
//! Each window stands for the requests of the original around it. Where these are more than its own, windows near it of the same phase are
//! played besides, those first that bring the shares of kinds, of sequential requests and of what is new nearest to the original's.

use super::{Link, Model, Step};
use crate::generator::Random;
use foldhash::fast::FixedState;
use forebay_trace::Operation;
use hashbrown::HashMap;
use rand::Rng;

/// Windows on either side that may be played in place of one.
const NEIGHBOURS: usize = 6;

/// Weighted counts of a window: of kinds, then of what is in no place.
type Counts = Vec<(u32, f64)>;

/// How a step's place follows from an earlier one of its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tie {
    /// It does not.
    None,
    /// It starts where that many steps before it one started.
    Same(u16),
    /// It starts where that many steps before it one ended.
    Follow(u16),
}

/// A step to play.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) step: Step,
    pub(super) tie: Tie,
    /// How often its window was played before, and its number in it.
    pub(super) play: u32,
    pub(super) number: u16,
    /// Whether it comes after a long inter-arrival time.
    pub(super) is_long: bool,
}

/// A window in play.
#[derive(Clone, Debug)]
struct Part {
    first: u64,
    phase: u32,
    steps: Vec<(Step, Tie)>,
    /// From where on its inter-arrival times are long.
    long_from_ns: u64,
    counts: Counts,
    plays: u32,
}

/// Plays windows.
#[derive(Clone, Debug)]
pub(super) struct Script {
    parts: Vec<Part>,
    /// Shares of all requests, as [`Counts`] has them.
    shares: Vec<f64>,
    played: Vec<f64>,
    requests: u64,
    /// The window that stands for the present, the one in play, and its next step.
    home: usize,
    part: usize,
    step: usize,
    /// The step that it began with.
    begun: usize,
}

impl Script {
    pub(super) fn new(model: &Model) -> Script {
        let kinds = model.kinds.len();
        let mut shares = vec![0.0; kinds + 3];
        let reads = |kind: u32| f64::from(u8::from(model.kinds[kind as usize].operation == Operation::Read));
        let rows = model.phases.iter().flat_map(|phase| &phase.transitions);
        // Rows of every step of detail; what was summed is in those of the next one.
        let mut all = 0.0;
        let mut bytes = 0.0;
        for row in rows.filter(|row| row.to != super::ANY) {
            let requests = row.requests as f64;
            all += requests;
            shares[row.kind as usize] += requests;
            shares[kinds] += if matches!(row.link, Link::Follow | Link::Along) { requests } else { 0.0 };
            shares[kinds + 2] += reads(row.kind) * requests;
            let length = model.kinds[row.kind as usize].bytes as f64 * requests;
            bytes += length;
            shares[kinds + 1] +=
                if matches!(row.link, Link::Follow | Link::Resume | Link::Jump) { length } else { 0.0 };
        }
        // Bytes count as requests of the mean length.
        let mean = (bytes / all).max(1.0);
        shares[kinds + 1] /= mean;
        shares.iter_mut().for_each(|share| *share /= all);
        let part = |window: &super::Window| {
            let mut counts = vec![0.0; kinds + 3];
            // Where steps of the window started, and where they ended.
            let mut starts: HashMap<(u32, i64), u16, FixedState> = HashMap::default();
            let mut ends = starts.clone();
            let mut steps = Vec::with_capacity(window.steps.len());
            for (number, step) in (0u16..=u16::MAX).zip(&window.steps) {
                let bytes = model.kinds[step.kind as usize].bytes;
                let (start, end) =
                    ((step.area, step.sectors), (step.area, step.sectors.wrapping_add((bytes / 512) as i64)));
                let tie = match (starts.get(&start), ends.get(&start)) {
                    _ if bytes == 0 => Tie::None,
                    (Some(same), None) => Tie::Same(number - same),
                    (Some(same), Some(end)) if same > end => Tie::Same(number - same),
                    (_, Some(end)) => Tie::Follow(number - end),
                    (None, None) => Tie::None,
                };
                steps.push((*step, tie));
                counts[step.kind as usize] += 1.0;
                counts[kinds] += if tie == Tie::Follow(1) { 1.0 } else { 0.0 };
                counts[kinds + 1] += if step.again.is_none() { bytes as f64 / mean } else { 0.0 };
                counts[kinds + 2] += reads(step.kind);
                if bytes > 0 {
                    starts.insert(start, number);
                    ends.insert(end, number);
                }
            }
            let counts = (0..).zip(counts).filter(|(_, count)| *count > 0.0).collect();
            let long_from_ns = (model.phases[window.phase as usize].gaps.long_from_us * 1e3) as u64;
            Part { first: window.first, phase: window.phase, steps, long_from_ns, counts, plays: 0 }
        };
        let mut parts: Vec<Part> = model.windows.iter().map(part).collect();
        parts.sort_by_key(|part| part.first);
        Script {
            played: vec![0.0; shares.len()],
            shares,
            requests: 0,
            home: usize::MAX,
            part: 0,
            step: usize::MAX,
            begun: 0,
            parts,
        }
    }

    /// The next step, where `at` is the number of a request in the original that is like it.
    #[inline]
    pub(super) fn next(&mut self, at: u64, random: &mut Random) -> Due {
        if self.step >= self.parts[self.part].steps.len() {
            self.choose(at, random);
        }
        let part = &self.parts[self.part];
        let number = self.step as u16;
        // Steps before the first that is played are not there to be tied to.
        let (step, tie) = match part.steps[self.step] {
            (step, Tie::Same(back) | Tie::Follow(back)) if self.step - usize::from(back) < self.begun => {
                (step, Tie::None)
            }
            other => other,
        };
        self.step += 1;
        Due { step, tie, play: part.plays - 1, number, is_long: step.gap_ns >= part.long_from_ns }
    }

    /// Chooses the window to play: the one that stands for `at`, if it was not played yet, else one near it.
    fn choose(&mut self, at: u64, random: &mut Random) {
        let after = self.parts.partition_point(|part| part.first <= at);
        let before = after.saturating_sub(1);
        // The nearer of the one that began before and the one that begins after.
        let nearer = |part: &Part| {
            part.first.saturating_sub(at)
                < at.saturating_sub(self.parts[before].first + self.parts[before].steps.len() as u64)
        };
        let home = if self.parts.get(after).is_some_and(nearer) { after } else { before };
        let part = if home != self.home { home } else { self.fittest(home, random) };
        self.home = home;
        self.part = part;
        // Where windows overlap what is due, only the rest of it is.
        let Part { first, steps, counts, .. } = &self.parts[part];
        self.step = if part == home { at.saturating_sub(*first).min(steps.len() as u64) as usize } else { 0 };
        if self.step == steps.len() {
            self.step = 0;
        }
        self.begun = self.step;
        for (what, count) in counts {
            self.played[*what as usize] += count;
        }
        self.parts[part].plays += 1;
        self.requests += self.parts[part].steps.len() as u64;
    }

    /// The window near `home` and of its phase that brings what was played nearest to its shares.
    fn fittest(&self, home: usize, random: &mut Random) -> usize {
        let near = home.saturating_sub(NEIGHBOURS)..(home + NEIGHBOURS + 1).min(self.parts.len());
        let alike = near.filter(|&at| self.parts[at].phase == self.parts[home].phase);
        let cost = |at: usize, luck: f64| {
            let part = &self.parts[at];
            let total = (self.requests + part.steps.len() as u64) as f64;
            // Only what the window adds to differs between windows.
            let change: f64 = part
                .counts
                .iter()
                .map(|(what, count)| {
                    let (share, played) = (self.shares[*what as usize], self.played[*what as usize]);
                    let off = |played: f64| (played - share * total).powi(2) / (share * total + 16.0);
                    off(played + count) - off(played)
                })
                .sum();
            change + luck
        };
        let all: Vec<(usize, f64)> = alike.map(|at| (at, random.random::<f64>())).collect();
        all.into_iter().min_by(|a, b| cost(a.0, a.1).total_cmp(&cost(b.0, b.1))).map_or(home, |(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::empty_model;
    use super::super::{Kind, Window};
    use super::*;
    use crate::generator::random;

    /// Windows of two requests from the given numbers on, all of one phase; the first request of each has the number of its window as its gap.
    fn model(firsts: &[u64]) -> Model {
        let mut model = empty_model();
        model.kinds = vec![Kind { operation: Operation::Read, bytes: 4_096, sectors: Vec::new() }];
        let step = |gap_ns, sectors| Step { kind: 0, gap_ns, area: 0, sectors, again: None, inside: false };
        let window = |&first: &u64| Window { first, phase: 0, steps: vec![step(first, 0), step(0, 8)] };
        model.windows = firsts.iter().map(window).collect();
        model
    }

    #[test]
    fn windows_without_gaps_between_them_are_played_in_order() {
        let mut script = Script::new(&model(&[0, 2, 4]));
        let found: Vec<(u64, u32)> =
            (0..6).map(|at| script.next(at, &mut random(1))).map(|due| (due.step.gap_ns, due.play)).collect();
        assert_eq!(found, [(0, 0), (0, 0), (2, 0), (0, 0), (4, 0), (0, 0)]);
    }

    #[test]
    fn the_requests_between_windows_are_played_by_those_around_them() {
        let mut script = Script::new(&model(&[0, 20]));
        let found: Vec<Due> = (0..22).map(|at| script.next(at, &mut random(1))).collect();
        // Eleven windows of two; the last is the second, which was played before.
        assert_eq!((found[0].step.gap_ns, found[0].play, found[20].step.gap_ns), (0, 0, 20));
        assert!(found[4].play > 0 || found[2].play > 0);
        // The second step of a window starts where its first one ended.
        assert_eq!((found[0].tie, found[1].tie), (Tie::None, Tie::Follow(1)));
    }
}
