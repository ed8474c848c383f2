//! The requests of an open loop that is drawn: many at a time, and by somebody else where there is one.

use forebay_units::Nanos;
use forebay_workload::generator::{Arrivals, BlockPicker, Random, unit};
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Requests that are drawn together where they are needed at once (ours): few enough to stay near the processor, enough for the draws of one
/// not to wait for those of another.
const TOGETHER: usize = 64;
/// Requests that are drawn together by somebody else (ours): a tenth of a millisecond, many times what handing them over takes.
const AHEAD: usize = 1024;

/// What is drawn of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Draw {
    /// Which of the working set's units it asks for.
    pub(crate) place: u64,
    /// From its arrival to that of the next one.
    pub(crate) span: Nanos,
    pub(crate) writes: bool,
}

/// How requests are drawn. Each takes from the random numbers, in this order: its place, whether it writes, and the span to the next.
#[derive(Clone, Debug)]
pub(crate) struct Law {
    pub(crate) arrivals: Arrivals,
    pub(crate) picker: BlockPicker,
    pub(crate) read_share: f64,
}

impl Law {
    /// A request's place, and whether it writes.
    #[inline]
    pub(crate) fn request(&mut self, random: &mut Random) -> (u64, bool) {
        let place = self.picker.next(random).0;
        (place, self.read_share < 1.0 && unit(random) >= self.read_share)
    }

    fn draw(&mut self, random: &mut Random) -> Draw {
        let (place, writes) = self.request(random);
        Draw { place, writes, span: self.arrivals.next_span(random) }
    }
}

/// A law and the random numbers that it draws from next.
#[derive(Clone, Debug)]
struct Drawer {
    law: Law,
    random: Random,
}

impl Drawer {
    fn draw(&mut self) -> Draw {
        self.law.draw(&mut self.random)
    }

    /// So many requests, in place of what `drawn` holds.
    fn draw_batch(mut self, mut drawn: Vec<Draw>, count: usize) -> Batch {
        let before = self.clone();
        drawn.clear();
        drawn.extend((0..count).map(|_| self.draw()));
        Batch { before, drawn, after: self }
    }
}

/// Requests, with the drawer as it was before them and as it is after them.
#[derive(Debug)]
struct Batch {
    before: Drawer,
    drawn: Vec<Draw>,
    after: Drawer,
}

/// Requests that are to be drawn for a simulation, wherever somebody has time for it: what they are does not depend on when that is, or on what has
/// become of those before them.
///
/// One that is dropped is drawn by the simulation itself.
#[derive(Debug)]
pub struct DrawJob {
    drawer: Drawer,
    room: Vec<Draw>,
    reply: Sender<Batch>,
}

impl DrawJob {
    /// Draws them: a tenth of a millisecond of work.
    pub fn run(self) {
        // Nobody waits for it where the load or the run has ended.
        let _ = self.reply.send(self.drawer.draw_batch(self.room, AHEAD));
    }
}

/// Takes jobs to where they are run.
#[derive(Clone)]
pub(crate) struct Helper(Arc<dyn Fn(DrawJob) + Send + Sync>);

impl Helper {
    pub(crate) fn new(hand: impl Fn(DrawJob) + Send + Sync + 'static) -> Helper {
        Helper(Arc::new(hand))
    }
}

impl fmt::Debug for Helper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Helper")
    }
}

/// Requests drawn before their time, from random numbers that are given back as though they had not been.
#[derive(Debug)]
pub(crate) struct Draws {
    batch: Batch,
    next: usize,
    /// Who draws the batch after this one, and where it comes from once it was asked for.
    helper: Option<(Helper, Option<Receiver<Batch>>)>,
}

impl Draws {
    pub(crate) fn new(law: Law, random: Random, helper: Option<Helper>) -> Draws {
        let batch = Drawer { law, random }.draw_batch(Vec::new(), 0);
        Draws { batch, next: 0, helper: helper.map(|helper| (helper, None)) }
    }

    /// The next request.
    #[inline]
    pub(crate) fn next(&mut self) -> Draw {
        if self.next == self.batch.drawn.len() {
            self.next_batch();
        }
        self.next += 1;
        self.batch.drawn[self.next - 1]
    }

    #[cold]
    #[inline(never)]
    fn next_batch(&mut self) {
        self.next = 0;
        let coming = self.helper.as_mut().and_then(|(_, coming)| coming.take());
        let mut room = Vec::new();
        match coming.map(|coming| coming.recv()) {
            Some(Ok(batch)) => room = std::mem::replace(&mut self.batch, batch).drawn,
            // The first, or one that was dropped.
            Some(Err(_)) | None => {
                let (drawer, room) = (self.batch.after.clone(), std::mem::take(&mut self.batch.drawn));
                self.batch = drawer.draw_batch(room, TOGETHER);
            }
        }
        if let Some((helper, coming)) = &mut self.helper {
            let (reply, receiver) = channel();
            *coming = Some(receiver);
            helper.0(DrawJob { drawer: self.batch.after.clone(), room, reply });
        }
    }

    /// The random numbers that come next after the requests that were taken.
    pub(crate) fn into_random(self) -> Random {
        let mut drawer = self.batch.before;
        for _ in 0..self.next {
            drawer.draw();
        }
        drawer.random
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_workload::generator::random;

    fn laws() -> [Law; 2] {
        let zipf = BlockPicker::zipf(1_000, 0.9, 5);
        [
            Law { arrivals: Arrivals::Poisson { rate: 100.0 }, picker: zipf, read_share: 0.7 },
            Law {
                arrivals: Arrivals::Constant { rate: 10.0 },
                picker: BlockPicker::sequential(7),
                read_share: 1.0,
            },
        ]
    }

    /// What helpers do: jobs at once, on a thread, never, and now and then.
    fn helpers() -> [Option<Helper>; 5] {
        let (hand, jobs) = channel::<DrawJob>();
        std::thread::spawn(move || jobs.into_iter().for_each(DrawJob::run));
        let turn = std::sync::atomic::AtomicU32::new(0);
        let now_and_then =
            move |job: DrawJob| match turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 3 {
                0 => drop(job),
                _ => job.run(),
            };
        [
            None,
            Some(Helper::new(DrawJob::run)),
            Some(Helper::new(move |job| hand.send(job).expect("the thread runs as long as this"))),
            Some(Helper::new(drop)),
            Some(Helper::new(now_and_then)),
        ]
    }

    #[test]
    fn whoever_draws_and_whenever_it_is_the_same_and_what_was_not_taken_is_given_back() {
        for law in laws() {
            for helper in helpers() {
                for taken in [0, 1, TOGETHER, TOGETHER + 1, TOGETHER + AHEAD, TOGETHER + 3 * AHEAD + 77] {
                    let mut one_by_one = Drawer { law: law.clone(), random: random(3) };
                    let mut draws = Draws::new(law.clone(), random(3), helper.clone());
                    for _ in 0..taken {
                        assert_eq!(draws.next(), one_by_one.draw());
                    }
                    assert_eq!(draws.into_random(), one_by_one.random, "{taken} of {law:?} by {helper:?}");
                }
            }
        }
    }
}
