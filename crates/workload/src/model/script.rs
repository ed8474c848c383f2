//! The script: windows in their order, each as often as it stands for requests of the original.

use super::log::Run;
use super::{Model, Use, Whereabouts};
use foldhash::fast::FixedState;
use forebay_trace::ThreadNumber;
use hashbrown::HashMap;

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

/// Where a step starts, with all that follows from its window.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start {
    /// Where the step before it ended.
    On,
    /// In an area.
    At {
        area: u32,
        sectors: u32,
        used: Use,
        tie: Tie,
        /// Bytes of the step and of those that go on from it, in turn or later.
        run_bytes: u64,
    },
}

/// A step to play.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) kind: u32,
    pub(super) gap_ns: u64,
    pub(super) start: Start,
    /// The number of the extent that it has in the original; the same for all that start there.
    pub(super) extent: u32,
    /// How many requests go on from it.
    pub(super) run: Run,
    /// Whose request it is.
    pub(super) thread: ThreadNumber,
}

/// In a burst requests come so many times as fast as in the mean (ours).
const BURST: f64 = 4.0;

/// A window to play.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) lines: Vec<Line>,
    stands_for: u64,
    is_burst: bool,
    /// How often it was played.
    pub(super) plays: u32,
}

/// Numbers of extents by area and byte of it.
type Extents = HashMap<(u32, u64), u32, FixedState>;

impl Part {
    fn new(model: &Model, window: &super::Window, extents: &mut Extents) -> Part {
        // Where steps of the window started, and where they ended.
        let mut starts: HashMap<(u32, u64), u16, FixedState> = HashMap::default();
        let mut ends = starts.clone();
        let mut lines: Vec<Line> = Vec::with_capacity(window.steps.len());
        let mut end = (0, 0);
        let runs = window.threads.iter();
        let mut threads = runs.flat_map(|&(thread, steps)| std::iter::repeat_n(thread, steps as usize));
        // The step that the run of each began with.
        let mut roots: Vec<usize> = Vec::with_capacity(window.steps.len());
        for (number, step) in (0u16..=u16::MAX).zip(&window.steps) {
            let length = model.kinds[step.kind as usize].bytes;
            let at = match step.at {
                Whereabouts::On { .. } => end,
                Whereabouts::At { area, sectors, .. } => (area, u64::from(sectors) * 512),
            };
            let start = match step.at {
                Whereabouts::On { .. } => Start::On,
                Whereabouts::At { area, sectors, used } => {
                    let tie = match (starts.get(&at), ends.get(&at)) {
                        _ if length == 0 => Tie::None,
                        (Some(same), None) => Tie::Same(number - same),
                        (Some(same), Some(end)) if same > end => Tie::Same(number - same),
                        (_, Some(end)) => Tie::Follow(number - end),
                        (None, None) => Tie::None,
                    };
                    Start::At { area, sectors, used, tie, run_bytes: 0 }
                }
            };
            let number = usize::from(number);
            roots.push(match start {
                Start::On => roots[number - 1],
                Start::At { tie: Tie::Follow(back), .. } => roots[number - usize::from(back)],
                Start::At { .. } => number,
            });
            let more = extents.len() as u32;
            let extent = *extents.entry(at).or_insert(more);
            let thread = ThreadNumber(threads.next().unwrap_or_default());
            lines.push(Line {
                kind: step.kind,
                gap_ns: step.gap_ns,
                start,
                extent,
                run: Run::Within,
                thread,
            });
            if let Start::At { run_bytes, .. } = &mut lines[roots[number]].start {
                *run_bytes += length;
            }
            end = (at.0, at.1 + length);
            if length > 0 {
                starts.insert(at, number as u16);
                ends.insert(end, number as u16);
            }
        }
        let mut runs = vec![0; lines.len()];
        roots.iter().for_each(|&root| runs[root] += 1);
        for (number, line) in lines.iter_mut().enumerate().filter(|(number, _)| roots[*number] == *number) {
            line.run = Run::of(runs[number]);
        }
        let gap_ns =
            window.steps.iter().map(|step| step.gap_ns as f64).sum::<f64>() / window.steps.len() as f64;
        let is_burst = gap_ns * BURST < model.about.seconds * 1e9 / model.about.requests as f64;
        Part { lines, stands_for: window.stands_for, is_burst, plays: 0 }
    }
}

/// Which windows come, one after the other, for ever.
#[derive(Clone, Copy, Debug)]
struct Order {
    /// Requests for each of the original.
    factor: f64,
    part: usize,
    /// Requests that the present part still has to play.
    owed: f64,
    /// Rounds over all windows that were begun.
    rounds: u64,
}

impl Order {
    fn new(factor: f64) -> Order {
        Order { factor, part: usize::MAX, owed: 0.0, rounds: 0 }
    }

    /// The next window to play.
    fn next(&mut self, parts: &[Part]) -> usize {
        for _ in 0..=parts.len() {
            if let Some(part) = parts.get(self.part)
                && self.owed * 2.0 >= part.lines.len() as f64
            {
                self.owed -= part.lines.len() as f64;
                return self.part;
            }
            self.part = self.part.wrapping_add(1);
            if self.part >= parts.len() {
                self.part = 0;
                self.rounds += 1;
            }
            self.owed += parts[self.part].stands_for as f64 * self.factor;
        }
        // Hardly anything is wanted of so long an original: whichever it is.
        self.owed = 0.0;
        self.part
    }
}

/// Plays windows.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) parts: Vec<Part>,
    /// How many different extents there are.
    pub(super) extents: usize,
    order: Order,
    /// The window in play, and its next step.
    pub(super) part: usize,
    pub(super) step: usize,
}

impl Script {
    /// The script with so many requests for each of the original.
    pub(super) fn new(model: &Model, factor: f64) -> Script {
        let mut extents = Extents::default();
        let parts: Vec<Part> =
            model.windows.iter().map(|window| Part::new(model, window, &mut extents)).collect();
        Script { parts, extents: extents.len(), order: Order::new(factor), part: 0, step: usize::MAX }
    }

    /// Goes to the next step: window and number in it.
    #[inline]
    pub(super) fn next(&mut self) -> (usize, usize) {
        self.step = self.step.wrapping_add(1);
        if self.step >= self.parts[self.part].lines.len() || self.step == 0 {
            self.part = self.order.next(&self.parts);
            self.parts[self.part].plays += 1;
            self.step = 0;
        }
        (self.part, self.step)
    }

    /// Whether requests of the window in play come much faster than in the mean, so that they wait for each other.
    #[inline]
    pub(super) fn is_in_burst(&self) -> bool {
        self.parts[self.part].is_burst
    }

    /// Whether a round over all windows plays each of them once, and whole.
    pub(super) fn is_whole(&self) -> bool {
        self.order.factor == 1.0 && self.parts.iter().all(|part| part.stands_for == part.lines.len() as u64)
    }

    /// The sum of the inter-arrival times of the first `requests`, in nanoseconds; of more than a round over all windows it is taken from that.
    pub(super) fn span_ns(&self, requests: u64) -> f64 {
        let mut order = Order::new(self.order.factor);
        let (mut played, mut span) = (0u64, 0.0);
        loop {
            let part = order.next(&self.parts);
            if order.rounds > 1 {
                return span * requests as f64 / played as f64;
            }
            let lines = &self.parts[part].lines;
            let left = requests - played;
            span += lines.iter().take(left.min(1 << 32) as usize).map(|line| line.gap_ns as f64).sum::<f64>();
            played += lines.len() as u64;
            if played >= requests {
                return span;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::empty_model;
    use super::super::{Kind, Step, Window};
    use super::*;
    use forebay_trace::Operation;

    /// Windows of two requests that stand for so many; the first request of each has the number of its window as its gap.
    fn model(stand_for: &[u64]) -> Model {
        let mut model = empty_model();
        model.kinds = vec![Kind { operation: Operation::Read, bytes: 4_096, sectors: Vec::new() }];
        let step = |gap_ns, at| Step { kind: 0, gap_ns, at };
        let first = Whereabouts::At { area: 0, sectors: 0, used: Use::New };
        let window = |(at, &stands_for): (u64, &u64)| Window {
            stands_for,
            after: 0,
            steps: vec![step(at, first), step(0, Whereabouts::On { is_new: true })],
            threads: Vec::new(),
        };
        model.windows = (0..).zip(stand_for).map(window).collect();
        model
    }

    fn played(script: &mut Script, requests: usize) -> Vec<(usize, usize, u32)> {
        (0..requests)
            .map(|_| {
                let (part, step) = script.next();
                (part, step, script.parts[part].plays)
            })
            .collect()
    }

    #[test]
    fn windows_are_played_in_order_as_often_as_they_stand_for() {
        let mut script = Script::new(&model(&[2, 6, 2]), 1.0);
        let found: Vec<(usize, u32)> =
            played(&mut script, 12).iter().step_by(2).map(|&(part, _, plays)| (part, plays)).collect();
        // Then from the start again.
        assert_eq!(found, [(0, 1), (1, 1), (1, 2), (1, 3), (2, 1), (0, 2)]);
        // Gaps of 0, 1, 1, 1 and 2; of two rounds twice that.
        assert_eq!((script.span_ns(10), script.span_ns(5), script.span_ns(20)), (5.0, 2.0, 10.0));
    }

    #[test]
    fn a_part_of_what_is_due_is_spread_over_the_windows() {
        let mut script = Script::new(&model(&[2; 8]), 0.25);
        let found: Vec<usize> = played(&mut script, 4).iter().step_by(2).map(|found| found.0).collect();
        // A quarter of two requests for each window: half a window is owed after the second.
        assert_eq!(found, [1, 5]);
        // So little that no round has a window is played all the same.
        assert_eq!(played(&mut Script::new(&model(&[2; 8]), 1e-12), 2).len(), 2);
    }

    #[test]
    fn bursts_are_told_by_their_times() {
        // Requests of the windows come every 0, 1 and 2.5 ns, in the mean every 4.
        let mut model = model(&[2; 3]);
        (model.windows[1].steps[0].gap_ns, model.windows[2].steps[0].gap_ns) = (2, 5);
        (model.about.requests, model.about.seconds) = (10, 40e-9);
        let mut script = Script::new(&model, 1.0);
        let found: Vec<bool> = (0..3)
            .map(|_| {
                script.next();
                script.next();
                script.is_in_burst()
            })
            .collect();
        assert_eq!(found, [true, false, false]);
        // Without times nothing comes in bursts.
        model.about.seconds = 0.0;
        let mut script = Script::new(&model, 1.0);
        script.next();
        assert!(!script.is_in_burst());
    }

    #[test]
    fn steps_know_what_they_follow() {
        let mut model = model(&[2]);
        let at = |sectors| Whereabouts::At { area: 0, sectors, used: Use::New };
        // 0 to 8, on to 16, far away, and again at 0 and from 16 on.
        let places = [at(0), Whereabouts::On { is_new: true }, at(800), at(0), at(16)];
        model.windows[0].steps = places.map(|at| Step { kind: 0, gap_ns: 0, at }).to_vec();
        let script = Script::new(&model, 1.0);
        let found: Vec<(Tie, u64)> = script.parts[0]
            .lines
            .iter()
            .filter_map(|line| match line.start {
                Start::At { tie, run_bytes, .. } => Some((tie, run_bytes)),
                Start::On => None,
            })
            .collect();
        let alone = 4_096;
        // The run from 0 has three requests.
        let expected =
            [(Tie::None, 3 * alone), (Tie::None, alone), (Tie::Same(3), alone), (Tie::Follow(3), 0)];
        assert_eq!(found, expected);
    }
}
