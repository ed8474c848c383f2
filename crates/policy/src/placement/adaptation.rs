//! What the threshold adapts by: the ghosts, what the tier itself had, and whether it has room still.
//!
//! It sees the counted accesses and what the tier makes of them, and weighs them by windows. Which threshold a window speaks for is `threshold`'s; when a window ends, and who is placed, is the
//! placement's. Where the threshold is fixed there are no ghosts, and nothing is weighed.

use super::Shape;
use super::threshold::{Chooser, Counted, Filling, Ghosts, Pace, WRITTEN_OFF};
use forebay_units::Nanos;

/// Accesses of the sample that a window has at least.
const WINDOW_ACCESSES: u64 = 128;

/// The threshold in force, and all that is known of others.
#[derive(Debug)]
pub(super) struct Adaptation {
    chooser: Chooser,
    /// None where the threshold is fixed.
    ghosts: Option<Ghosts>,
    pub(super) filling: Filling,
    /// What the tier itself saved less what it cost, in this window.
    realised: f64,
    /// What migrations have cost and is not charged yet.
    pub(super) debt: f64,
}

impl Adaptation {
    /// Knows nothing, and has no ghosts.
    pub(super) fn new() -> Adaptation {
        Adaptation {
            chooser: Chooser::new(),
            ghosts: None,
            filling: Filling::new(),
            realised: 0.0,
            debt: 0.0,
        }
    }

    /// Has ghosts from now on for a tier of this shape if it `adapts`; those that there are stay.
    pub(super) fn set(&mut self, adapts: bool, shape: &Shape) {
        if adapts && self.ghosts.is_none() {
            self.ghosts = Some(Ghosts::new(shape));
        }
        if !adapts {
            self.ghosts = None;
        }
    }

    pub(super) fn threshold(&self) -> u16 {
        self.chooser.current()
    }

    pub(super) fn changes(&self) -> u64 {
        self.chooser.changes
    }

    pub(super) fn reversals(&self) -> u64 {
        self.chooser.reversals
    }

    /// A counted access, and how chunks move now.
    pub(super) fn access(&mut self, now: Nanos, counted: Counted, pace: Pace) {
        if let Some(ghosts) = &mut self.ghosts {
            ghosts.access(now, counted, pace);
        }
    }

    /// Everything cools.
    pub(super) fn cool(&mut self, sixteenths: u64) {
        if let Some(ghosts) = &mut self.ghosts {
            ghosts.cool(sixteenths);
        }
    }

    /// An access of a chunk in the tier has saved so much; below zero, cost.
    pub(super) fn saved(&mut self, saved: f64) {
        self.realised += saved;
    }

    /// A chunk is to come to the tier, which costs so much.
    pub(super) fn migrates(&mut self, cost: f64) {
        self.debt += cost;
    }

    /// A chunk leaves the tier for another.
    pub(super) fn displaces(&mut self) {
        self.filling.displaced = true;
    }

    /// Whether the window has had too few accesses to end.
    pub(super) fn knows_little(&self) -> bool {
        self.ghosts.as_ref().is_some_and(|ghosts| ghosts.accesses < WINDOW_ACCESSES)
    }

    /// A window ends in which the tier held so many chunks, of as many as it has places.
    pub(super) fn end_window(&mut self, held: u32, capacity: u32) {
        if let Some(ghosts) = &mut self.ghosts {
            let filled_up = self.filling.ends(held, capacity);
            // What filled an empty tier tells nothing of one in which somebody leaves for whoever comes.
            if ghosts.filled_up() || filled_up {
                ghosts.restart();
                self.chooser.restart();
                self.debt = 0.0;
            } else {
                let charged = WRITTEN_OFF * self.debt;
                self.debt -= charged;
                let realised = (self.realised - charged) / ghosts.scale();
                let accesses = ghosts.accesses;
                let nets = ghosts.take();
                let full = ghosts.filling.is_over() || self.filling.is_over();
                self.chooser.window(&nets, realised, accesses, full);
            }
        }
        self.realised = 0.0;
    }

    pub(super) fn footprint_bytes(&self) -> u64 {
        self.ghosts.as_ref().map_or(0, Ghosts::footprint_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapts() -> Adaptation {
        let mut adaptation = Adaptation::new();
        adaptation.set(true, &shape());
        adaptation
    }

    fn shape() -> Shape {
        Shape { capacity_chunks: 2, tracked_chunks: 16, ..Shape::default() }
    }

    fn accesses(adaptation: &mut Adaptation, count: u64) {
        let pace = Pace { margin: 16, cost: 1.5, ticks: 0, chunks_per_second: 1_000.0 };
        for _ in 0..count {
            let counted = Counted { chunk: 7, sixteenths: 16, tick: 0 };
            adaptation.access(Nanos::secs(1), counted, pace);
        }
    }

    #[test]
    fn a_window_has_accesses_enough_to_tell_something() {
        let mut adaptation = adapts();
        accesses(&mut adaptation, WINDOW_ACCESSES - 1);
        assert!(adaptation.knows_little());
        accesses(&mut adaptation, 1);
        // Who sets the same again begins nothing anew.
        adaptation.set(true, &shape());
        assert!(!adaptation.knows_little());
        adaptation.end_window(1, 2);
        assert!(adaptation.knows_little());
        // Where the threshold is fixed nothing is known, and nothing waited for.
        adaptation.set(false, &shape());
        assert_eq!((adaptation.knows_little(), adaptation.footprint_bytes()), (false, 0));
    }

    #[test]
    fn a_window_is_charged_a_part_of_what_migrations_cost_and_begins_with_nothing_saved() {
        let mut adaptation = adapts();
        [2.0, -5.0].into_iter().for_each(|saved| adaptation.saved(saved));
        assert_eq!(adaptation.realised, -3.0);
        adaptation.migrates(64.0);
        adaptation.end_window(1, 2);
        assert_eq!((adaptation.realised, adaptation.debt), (0.0, 57.0));
        adaptation.end_window(1, 2);
        assert!(adaptation.debt < 57.0);
        // What filled the tier is no debt of what comes then.
        adaptation.displaces();
        adaptation.end_window(2, 2);
        assert_eq!(adaptation.debt, 0.0);
    }
}
