//! Which threshold is best now: every threshold of the grid is tried on a sample of the chunks, and what its hits save is weighed against what its migrations cost.
//!
//! It moves nothing. A *ghost* is a small tier without bytes, for one threshold, fed by the chunks whose hash falls into the sample; all ghosts see the same, so that they differ by their thresholds alone.
//! A migration is charged when it pushes somebody out: filling free places costs nothing here, so that what has to be tried is tried.
//! The threshold in force gives way only to one that is better by more than a *dead band*, and comes back (*reversal*) if what was gained afterwards is less than what the ghost of the old one gained.
//!
//! Sources: SANCache, MSST 2006 (benefit by cost, adapting to the best static threshold of the moment); scaled-down simulation after Waldspurger et al., "Cache modeling and optimization using
//! miniature simulations", ATC 2017. Grid, band, patience and memory are ours.

use super::coldest::Coldest;
use super::heat::Heat;
use super::{COUNT, COUNT_MAX, Placing, Shape, reaches};
use forebay_units::{Nanos, mix64};

/// The thresholds that are tried.
pub const GRID: [u16; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Chunks that a ghost holds at least, where the tier has so many: the sample is as small as that allows.
const GHOST_CHUNKS_MIN: u32 = 512;
/// What a window leaves of what was known before it.
const KEPT: f64 = 0.75;
/// How much better a threshold must be than the one in force.
const BAND: f64 = 0.02;
/// How much less than the old threshold's ghost a change may bring, before it is taken back.
const LOSS: f64 = 0.1;
/// Windows after which a change is judged, and for which a threshold that was taken back is not tried again.
const PATIENCE: u32 = 4;
const BARRED: u32 = 12;

/// What a window has brought, in random accesses of the origin: what hits saved less what migrations and copies of writes cost.
pub(super) type Net = f64;

/// A change that is not judged yet.
#[derive(Clone, Copy, Debug)]
struct Trial {
    from: usize,
    windows: u32,
    realised: Net,
    /// What the old threshold's ghost had meanwhile.
    old: Net,
}

/// The threshold in force.
#[derive(Clone, Debug)]
pub(super) struct Chooser {
    current: usize,
    scores: [Net; GRID.len()],
    trial: Option<Trial>,
    /// Windows for which a threshold may not be chosen.
    barred: [u32; GRID.len()],
    pub(super) changes: u64,
    pub(super) reversals: u64,
}

impl Chooser {
    /// Begins with the threshold at place `current` of the grid.
    pub(super) fn new(current: usize) -> Chooser {
        Chooser {
            current,
            scores: [0.0; GRID.len()],
            trial: None,
            barred: [0; GRID.len()],
            changes: 0,
            reversals: 0,
        }
    }

    pub(super) fn current(&self) -> u16 {
        GRID[self.current]
    }

    /// A window ends: what each ghost had, and what the tier itself had, at the ghosts' scale.
    pub(super) fn window(&mut self, ghosts: &[Net; GRID.len()], realised: Net) {
        for (score, net) in self.scores.iter_mut().zip(ghosts) {
            *score = KEPT * *score + net;
        }
        self.barred.iter_mut().for_each(|windows| *windows = windows.saturating_sub(1));
        if let Some(mut trial) = self.trial.take() {
            trial.windows += 1;
            trial.realised += realised;
            trial.old += ghosts[trial.from];
            if trial.windows < PATIENCE {
                self.trial = Some(trial);
                return;
            }
            if trial.realised < trial.old - LOSS * trial.old.abs() {
                self.barred[self.current] = BARRED;
                self.current = trial.from;
                self.reversals += 1;
                return;
            }
        }
        let free = (0..GRID.len()).filter(|at| self.barred[*at] == 0);
        let Some(best) = free.max_by(|a, b| self.scores[*a].total_cmp(&self.scores[*b])) else { return };
        let here = self.scores[self.current];
        if self.scores[best] > here + BAND * here.abs() {
            self.trial = Some(Trial { from: self.current, windows: 0, realised: 0.0, old: 0.0 });
            self.current = best;
            self.changes += 1;
        }
    }
}

/// A tier of one threshold, without bytes.
#[derive(Debug)]
struct Ghost {
    coldest: Coldest,
    tokens: f64,
    net: Net,
}

/// The ghosts, on a sample of the chunks. Some 200 bytes per chunk of the sample that is remembered.
#[derive(Debug)]
pub(super) struct Ghosts {
    mask: u64,
    capacity: u32,
    heat: Heat,
    ghosts: [Ghost; GRID.len()],
    filled: Nanos,
    /// Counted accesses of the window.
    pub(super) accesses: u64,
}

/// An access as it counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) chunk: u64,
    /// What it adds to the count, in sixteenths; negative for a write that is copied.
    pub(super) sixteenths: i64,
    pub(super) tick: u32,
}

impl Ghosts {
    pub(super) fn new(shape: &Shape) -> Ghosts {
        let shift = (shape.capacity_chunks / GHOST_CHUNKS_MIN).max(1).ilog2();
        let capacity = shape.capacity_chunks >> shift;
        // A sample strays from its share.
        let remembered = (shape.tracked_chunks >> shift) + (shape.tracked_chunks >> shift) / 8 + 16;
        let ghost = |_| Ghost { coldest: Coldest::new(remembered, capacity), tokens: 0.0, net: 0.0 };
        Ghosts {
            mask: (1 << shift) - 1,
            capacity,
            heat: Heat::new(remembered),
            ghosts: std::array::from_fn(ghost),
            filled: Nanos::ZERO,
            accesses: 0,
        }
    }

    /// How much smaller than the tier they are.
    pub(super) fn scale(&self) -> f64 {
        (self.mask + 1) as f64
    }

    pub(super) fn cool(&mut self, sixteenths: u64) {
        self.heat.cool(sixteenths);
    }

    /// An access; `chunks_per_second` is what the tier may move now.
    pub(super) fn access(&mut self, now: Nanos, access: Counted, placing: &Placing, chunks_per_second: f64) {
        // Another hash than that of the table's buckets.
        if mix64(access.chunk ^ 0x9b05_688c_2b3e_6c1f) & self.mask != 0 {
            return;
        }
        let rate = chunks_per_second / self.scale();
        let passed = now.saturating_since(self.filled).as_secs_f64();
        self.filled = self.filled.max(now);
        for ghost in &mut self.ghosts {
            ghost.tokens = (ghost.tokens + passed * rate).min(rate.max(1.0));
        }
        let Some((slot, _)) = self.heat.remember(access.chunk, access.tick) else { return };
        self.accesses += 1;
        self.heat.add(slot, access.sixteenths, COUNT_MAX);
        let count = self.heat.count(slot);
        let mut mark = self.heat.mark(slot);
        let gain = access.sixteenths as f64 / COUNT as f64;
        for (at, ghost) in self.ghosts.iter_mut().enumerate() {
            if mark >> at & 1 == 1 {
                ghost.net += gain;
                let heat = &self.heat;
                ghost.coldest.changed(slot, |slot| heat.key(slot));
                continue;
            }
            if access.sixteenths <= 0 || !reaches(count, GRID[at]) || ghost.tokens < 1.0 {
                continue;
            }
            if ghost.coldest.len() == self.capacity {
                let Some(coldest) = ghost.coldest.first() else { continue };
                if count < self.heat.count(coldest) + placing.margin_sixteenths() {
                    continue;
                }
                let heat = &self.heat;
                ghost.coldest.remove(coldest, |slot| heat.key(slot));
                ghost.net -= placing.migration_cost;
                self.heat.set_mark(coldest, self.heat.mark(coldest) & !(1 << at));
            }
            ghost.tokens -= 1.0;
            mark |= 1 << at;
            let heat = &self.heat;
            ghost.coldest.insert(slot, |slot| heat.key(slot));
        }
        self.heat.set_mark(slot, mark);
    }

    /// Ends a window: what each had.
    pub(super) fn take(&mut self) -> [Net; GRID.len()] {
        self.accesses = 0;
        std::array::from_fn(|at| std::mem::take(&mut self.ghosts[at].net))
    }

    pub(super) fn footprint_bytes(&self) -> u64 {
        self.heat.footprint_bytes()
            + self.ghosts.iter().map(|ghost| ghost.coldest.footprint_bytes()).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(best: usize, of: f64, others: f64) -> [f64; 9] {
        std::array::from_fn(|at| if at == best { of } else { others })
    }

    #[test]
    fn a_change_takes_more_than_the_dead_band() {
        let mut chooser = Chooser::new(3);
        // 1 % better: within the band of 2 %.
        for _ in 0..20 {
            chooser.window(&nets(5, 101.0, 100.0), 100.0);
        }
        assert_eq!((chooser.current(), chooser.changes), (8, 0));
        // 10 % better now: the scores were 4 windows' worth (1 / (1 - 0.75)) of 101 and 100; then 303 + 110 is 413 against 400, 3 % more.
        chooser.window(&nets(5, 110.0, 100.0), 100.0);
        assert_eq!((chooser.current(), chooser.changes), (32, 1));
    }

    #[test]
    fn a_move_that_lost_is_reversed_and_not_tried_again_for_a_while() {
        let mut chooser = Chooser::new(3);
        chooser.window(&nets(0, 150.0, 100.0), 100.0);
        assert_eq!(chooser.current(), 1);
        // The ghosts go on promising, but what comes is 80 where the old threshold's ghost has 100, of which it may lack a tenth: after four windows it goes back.
        for _ in 0..3 {
            chooser.window(&nets(0, 150.0, 100.0), 80.0);
            assert_eq!(chooser.current(), 1);
        }
        chooser.window(&nets(0, 150.0, 100.0), 80.0);
        assert_eq!((chooser.current(), chooser.reversals), (8, 1));
        for _ in 0..11 {
            chooser.window(&nets(0, 150.0, 100.0), 100.0);
            assert_eq!(chooser.current(), 8);
        }
        chooser.window(&nets(0, 150.0, 100.0), 100.0);
        assert_eq!((chooser.current(), chooser.changes), (1, 2));
        // This time it keeps what it promised.
        for _ in 0..8 {
            chooser.window(&nets(0, 150.0, 100.0), 149.0);
        }
        assert_eq!((chooser.current(), chooser.reversals), (1, 1));
    }

    #[test]
    fn where_everything_loses_the_least_loss_is_best() {
        let mut chooser = Chooser::new(0);
        chooser.window(&[-100.0, -90.0, -60.0, -20.0, -5.0, -1.0, 0.0, 0.0, 0.0], -100.0);
        assert_eq!(chooser.current(), 256);
    }

    #[test]
    fn ghosts_differ_by_their_thresholds_alone() {
        // All chunks are in the sample; two fit.
        let shape = Shape { capacity_chunks: 2, tracked_chunks: 16, ..Shape::default() };
        let placing = Placing { migration_cost: 1.5, ..Placing::default() };
        let mut ghosts = Ghosts::new(&shape);
        assert_eq!(ghosts.scale(), 1.0);
        let access = |ghosts: &mut Ghosts, chunk| {
            let counted = Counted { chunk, sixteenths: 16, tick: 0 };
            ghosts.access(Nanos::secs(1), counted, &placing, 1_000.0);
        };
        // Chunk 7 six times: placed at its 1st, 2nd, 4th access by the first three, which leaves 5, 4, 2 hits.
        for _ in 0..6 {
            access(&mut ghosts, 7);
        }
        let net = ghosts.take();
        assert_eq!(net[..4], [5.0, 4.0, 2.0, 0.0]);
        // 8 and 9, once each: the first threshold places 8 in the room that is left, and 9 (count 1) is no hotter than 8.
        access(&mut ghosts, 8);
        access(&mut ghosts, 9);
        assert_eq!(ghosts.take()[..2], [0.0, 0.0]);
        // 9 again: it has two now, and takes 8's place with the first, which costs a migration; the second has room left.
        access(&mut ghosts, 9);
        assert_eq!(ghosts.take()[..2], [-1.5, 0.0]);
    }
}
