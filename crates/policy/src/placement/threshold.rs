//! Which threshold is best now: every threshold of the grid is tried on a sample of the chunks, and what its hits save is weighed against what its migrations cost.
//!
//! It moves nothing. A *ghost* is a small tier without bytes, for one threshold, fed by the chunks whose hash falls into the sample; all ghosts see the same, so that they differ by their thresholds alone.
//! A migration takes its time in them, too, so that hits which come before its end are none. It is charged bit by bit, over some nine windows, as what it brings comes only after it: what has to be tried is tried, and a rush does not end it.
//! A chunk that has become worth nothing leaves a ghost as it leaves the tier.
//! While a tier fills, nothing leaves for what comes, so that the lowest threshold has the most hits whatever the load: once it is full, what ghosts had before is forgotten, and it begins again.
//! The threshold in force gives way to one that is better by more than a *dead band* and, in a full tier, than windows differ by chance, over the last minute or, where it is much better, of late; and it comes back (*reversal*) if what was gained afterwards is less than what
//! the ghost of the old one gained.
//!
//! Sources: SANCache, MSST 2006 (benefit by cost, adapting to the best static threshold of the moment); scaled-down simulation after Waldspurger et al., "Cache modeling and optimization using
//! miniature simulations", ATC 2017. Grid, band, patience and memory are ours.

use super::coldest::Coldest;
use super::heat::Heat;
use super::{COUNT, COUNT_MAX, Shape, reaches};
use forebay_units::{Nanos, mix64};

/// The thresholds that are tried.
pub const GRID: [u16; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// The place in the grid of the threshold that is in force where nothing is known.
const START: usize = 1;
/// Chunks that a ghost holds at least, where the tier has so many: the sample is as small as that allows.
const GHOST_CHUNKS_MIN: u32 = 1_024;
/// What a window leaves of what was known before it.
const KEPT: f64 = 0.95;
/// The same where only the latest is asked for.
const RECENT_KEPT: f64 = 0.75;
/// How much better of late a threshold must be for what was before to be forgotten, in hits for each access.
const LEAP: f64 = 0.04;
/// How much better a threshold must be than the one in force.
const BAND: f64 = 0.03;
/// How much better it must be in a full tier, in standard errors: what it had more in each window, squared and summed, is the variance of the sum if in truth it has no more. Windows that are alike say so after three (1.73, after
/// two 1.41); a rush of one or two, and what trickles in between rushes, say nothing. While a tier fills, nothing is lost by a change.
const ERRORS: f64 = 1.5;
/// The share of what migrations have cost that a window is charged. The smaller, the more of what their hits saved is forgotten ([`KEPT`]) when the charge comes, so that after
/// a rush windows in which nobody asks tell of costs alone; the larger, the sooner the first seconds of a rush make the tier stop.
pub(super) const WRITTEN_OFF: f64 = 7.0 / 64.0;
/// How much less than the old threshold's ghost a change may bring, before it is taken back.
const LOSS: f64 = 0.1;
/// Windows after which a change is judged, and for which a threshold that was taken back is not tried again.
const PATIENCE: u32 = 16;
const BARRED: u32 = 48;

/// What a window has brought, in random accesses of the origin: what hits saved less what migrations and copies of writes cost.
pub(super) type Net = f64;

/// By pairs of thresholds, squares of the differences between what they had in a window, summed.
#[derive(Clone, Copy, Debug, Default)]
struct Spread([[f64; GRID.len()]; GRID.len()]);

impl Spread {
    /// Another window, of which the sums of scores keep this share of what was before.
    fn add(&mut self, ghosts: &[Net; GRID.len()], kept: f64) {
        for (row, one) in self.0.iter_mut().zip(ghosts) {
            for (sum, other) in row.iter_mut().zip(ghosts) {
                *sum = kept * kept * *sum + (one - other).powi(2);
            }
        }
    }

    /// How far the difference of these two scores strays.
    fn error(&self, one: usize, other: usize) -> f64 {
        self.0[one][other].sqrt()
    }
}

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
    /// The same of the last few windows alone, and how many accesses those had.
    recent: [Net; GRID.len()],
    recent_accesses: f64,
    /// By pairs of thresholds: the variance of the difference of their scores, and of their recent ones.
    spread: Spread,
    recent_spread: Spread,
    trial: Option<Trial>,
    /// Windows for which a threshold may not be chosen.
    barred: [u32; GRID.len()],
    pub(super) changes: u64,
    pub(super) reversals: u64,
}

impl Chooser {
    /// Knows nothing yet.
    pub(super) fn new() -> Chooser {
        Chooser {
            current: START,
            scores: [0.0; GRID.len()],
            recent: [0.0; GRID.len()],
            recent_accesses: 0.0,
            spread: Spread::default(),
            recent_spread: Spread::default(),
            trial: None,
            barred: [0; GRID.len()],
            changes: 0,
            reversals: 0,
        }
    }

    pub(super) fn current(&self) -> u16 {
        GRID[self.current]
    }

    /// What was known is of another time: begins again.
    pub(super) fn restart(&mut self) {
        let changes = self.changes + u64::from(self.current != START);
        *self = Chooser { changes, reversals: self.reversals, ..Chooser::new() };
    }

    /// A window of so many accesses of the sample ends: what each ghost had, and what the tier itself had, at the ghosts' scale.
    /// A `full` tier is not changed for chance.
    pub(super) fn window(&mut self, ghosts: &[Net; GRID.len()], realised: Net, accesses: u64, full: bool) {
        for (score, net) in self.scores.iter_mut().zip(ghosts) {
            *score = KEPT * *score + net;
        }
        for (score, net) in self.recent.iter_mut().zip(ghosts) {
            *score = RECENT_KEPT * *score + net;
        }
        self.spread.add(ghosts, KEPT);
        self.recent_spread.add(ghosts, RECENT_KEPT);
        self.recent_accesses = RECENT_KEPT * self.recent_accesses + accesses as f64;
        self.barred.iter_mut().for_each(|windows| *windows = windows.saturating_sub(1));
        if let Some(mut trial) = self.trial.take() {
            trial.windows += 1;
            trial.realised += realised;
            trial.old += ghosts[trial.from];
            if trial.windows < PATIENCE {
                self.trial = Some(trial);
            } else if trial.realised < trial.old - LOSS * trial.old.abs() {
                self.barred[self.current] = BARRED;
                self.current = trial.from;
                self.reversals += 1;
                return;
            }
        }
        // What is far better of late is the load's new face: what was before no longer counts.
        if let Some(leap) = self.best(&self.recent)
            && self.recent[leap] > self.recent[self.current] + LEAP * self.recent_accesses
        {
            // As many windows as there are otherwise, all like the latest.
            let scale = (1.0 - RECENT_KEPT) / (1.0 - KEPT);
            self.scores = self.recent.map(|score| scale * score);
            let scale = (1.0 - RECENT_KEPT.powi(2)) / (1.0 - KEPT.powi(2));
            self.spread = Spread(self.recent_spread.0.map(|row| row.map(|sum| scale * sum)));
        }
        let Some(best) = self.best(&self.scores) else { return };
        let here = self.scores[self.current];
        let chance = if full { ERRORS * self.spread.error(best, self.current) } else { 0.0 };
        if self.scores[best] > here + chance.max(BAND * here.abs()) {
            self.trial = Some(Trial { from: self.current, windows: 0, realised: 0.0, old: 0.0 });
            self.current = best;
            self.changes += 1;
        }
    }

    fn best(&self, scores: &[Net; GRID.len()]) -> Option<usize> {
        let free = (0..GRID.len()).filter(|at| self.barred[*at] == 0);
        free.max_by(|a, b| scores[*a].total_cmp(&scores[*b]))
    }
}

/// Whether a tier, or a ghost, has room still.
#[derive(Debug)]
pub(super) struct Filling {
    fills: bool,
    /// Whether a chunk has left for another in this window.
    pub(super) displaced: bool,
}

impl Filling {
    /// Empty.
    pub(super) fn new() -> Filling {
        Filling { fills: true, displaced: false }
    }

    /// Whether it was full, and half of it still is.
    pub(super) fn is_over(&self) -> bool {
        !self.fills
    }

    /// A window ends with so many chunks of as many as there may be: whether it is the first in which one had to leave for another, since it was empty or less than half full.
    pub(super) fn ends(&mut self, held: u32, capacity: u32) -> bool {
        let displaced = std::mem::take(&mut self.displaced);
        let ends = self.fills && displaced;
        self.fills = !ends && (self.fills || held < capacity / 2);
        ends
    }
}

/// A tier of one threshold, without bytes.
#[derive(Debug)]
struct Ghost {
    coldest: Coldest,
    tokens: f64,
    net: Net,
    /// What migrations have cost and is not charged yet.
    debt: Net,
    /// By slot, for who is in it: the tick from which hits count, since a chunk takes its time to move.
    here_from: Vec<u32>,
}

/// The ghosts, on a sample of the chunks. Some 230 bytes per chunk of the sample that is remembered.
#[derive(Debug)]
pub(super) struct Ghosts {
    mask: u64,
    capacity: u32,
    heat: Heat,
    ghosts: [Ghost; GRID.len()],
    filled: Nanos,
    /// Of the ghost of the lowest threshold, which fills first.
    pub(super) filling: Filling,
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

/// How chunks move now, and what it costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// By how many sixteenths one must be hotter than the one that leaves.
    pub(super) margin: u64,
    /// In random accesses of the origin.
    pub(super) cost: f64,
    /// How long it takes.
    pub(super) ticks: u32,
    /// How many the tier may move.
    pub(super) chunks_per_second: f64,
}

impl Ghosts {
    pub(super) fn new(shape: &Shape) -> Ghosts {
        let shift = (shape.capacity_chunks / GHOST_CHUNKS_MIN).max(1).ilog2();
        let capacity = shape.capacity_chunks >> shift;
        // A sample strays from its share.
        let remembered = (shape.tracked_chunks >> shift) + (shape.tracked_chunks >> shift) / 8 + 16;
        let ghost = |_| Ghost {
            coldest: Coldest::new(remembered, capacity),
            tokens: 0.0,
            net: 0.0,
            debt: 0.0,
            here_from: vec![0; remembered as usize],
        };
        Ghosts {
            mask: (1 << shift) - 1,
            capacity,
            heat: Heat::new(remembered),
            ghosts: std::array::from_fn(ghost),
            filled: Nanos::ZERO,
            filling: Filling::new(),
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

    /// An access.
    pub(super) fn access(&mut self, now: Nanos, access: Counted, pace: Pace) {
        // Another hash than that of the table's buckets.
        if mix64(access.chunk ^ 0x9b05_688c_2b3e_6c1f) & self.mask != 0 {
            return;
        }
        let rate = pace.chunks_per_second / self.scale();
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
        let worthless = self.heat.owes(slot);
        let gain = access.sixteenths as f64 / COUNT as f64;
        for (at, ghost) in self.ghosts.iter_mut().enumerate() {
            if mark >> at & 1 == 1 {
                // Ticks wrap.
                if access.tick.wrapping_sub(ghost.here_from[slot as usize]) < 1 << 31 {
                    ghost.net += gain;
                }
                let heat = &self.heat;
                if worthless {
                    ghost.coldest.remove(slot, |slot| heat.key(slot));
                    mark &= !(1 << at);
                } else {
                    ghost.coldest.changed(slot, |slot| heat.key(slot));
                }
                continue;
            }
            if access.sixteenths <= 0 || !reaches(count, GRID[at]) || ghost.tokens < 1.0 {
                continue;
            }
            if ghost.coldest.len() >= self.capacity {
                let Some(coldest) = ghost.coldest.first() else { continue };
                if count < self.heat.count(coldest) + pace.margin {
                    continue;
                }
                let heat = &self.heat;
                ghost.coldest.remove(coldest, |slot| heat.key(slot));
                self.filling.displaced |= at == 0;
                self.heat.set_mark(coldest, self.heat.mark(coldest) & !(1 << at));
            }
            ghost.tokens -= 1.0;
            ghost.debt += pace.cost;
            mark |= 1 << at;
            ghost.here_from[slot as usize] = access.tick.wrapping_add(pace.ticks);
            let heat = &self.heat;
            ghost.coldest.insert(slot, |slot| heat.key(slot));
        }
        self.heat.set_mark(slot, mark);
    }

    /// Whether the ghost of the lowest threshold has just become full.
    pub(super) fn filled_up(&mut self) -> bool {
        self.filling.ends(self.ghosts[0].coldest.len(), self.capacity)
    }

    /// Forgets what each had, and what its migrations have cost; who is in it stays.
    pub(super) fn restart(&mut self) {
        self.accesses = 0;
        for ghost in &mut self.ghosts {
            (ghost.net, ghost.debt) = (0.0, 0.0);
        }
    }

    /// Ends a window: what each had.
    pub(super) fn take(&mut self) -> [Net; GRID.len()] {
        self.accesses = 0;
        std::array::from_fn(|at| {
            let ghost = &mut self.ghosts[at];
            let charged = WRITTEN_OFF * ghost.debt;
            ghost.debt -= charged;
            std::mem::take(&mut ghost.net) - charged
        })
    }

    pub(super) fn footprint_bytes(&self) -> u64 {
        self.heat.footprint_bytes()
            + self.ghosts.iter().map(|ghost| ghost.coldest.footprint_bytes()).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accesses of a window, so many that no difference is a leap.
    const MANY: u64 = 100_000;

    fn beginning_with(current: usize) -> Chooser {
        Chooser { current, ..Chooser::new() }
    }

    fn nets(best: usize, of: f64, others: f64) -> [f64; 9] {
        std::array::from_fn(|at| if at == best { of } else { others })
    }

    #[test]
    fn a_change_takes_more_than_the_dead_band() {
        let mut chooser = beginning_with(3);
        // 2 % better: within the band of 3 %.
        for _ in 0..200 {
            chooser.window(&nets(5, 102.0, 100.0), 100.0, MANY, true);
        }
        assert_eq!((chooser.current(), chooser.changes), (8, 0));
        // The scores are twenty windows' worth (1 / (1 - 0.95)), 2,040 and 2,000. Then 1,938 + 130 = 2,068 against 2,000 is 3.4 % more, and 68 more than 1.5 times the root of 2 x 2 / (1 - 0.95 x 0.95) + 30 x 30, which is 46.
        chooser.window(&nets(5, 130.0, 100.0), 100.0, MANY, true);
        assert_eq!((chooser.current(), chooser.changes), (32, 1));
    }

    #[test]
    fn a_leap_is_followed_at_once() {
        let after = |windows, full| {
            let mut chooser = Chooser::new();
            for _ in 0..200 {
                chooser.window(&nets(1, 150.0, 100.0), 150.0, 256, full);
            }
            // 3,000 and 2,000. Another face: none has anything but the first, which has 60 of 256 accesses. Of late that is 60, and 600 x 0.75 less 400 x 0.75 for the old one: 60 + 300 to 450.
            // 105 + 225 to 337.5; 139 + 169 to 253: 55 more, and 4 % of the last 1,024 accesses are 41.
            (0..windows).for_each(|_| chooser.window(&nets(0, 60.0, 0.0), 0.0, 256, full));
            (chooser.current(), chooser.changes)
        };
        assert_eq!([1, 2, 3].map(|windows| after(windows, false)), [(2, 0), (2, 0), (1, 1)]);
        // By the whole minute alone it would have been 2 for a while: 3,000 x 0.95 ^ 3 = 2,572 to 1,886.
        // In a full tier that is five times 55, 275, and 1.5 times the root of 4.49 x 7,781 for what it strays, which is 280. One window more has five times 101 to 293.
        assert_eq!([1, 2, 3, 4].map(|windows| after(windows, true)), [(2, 0), (2, 0), (2, 0), (1, 1)]);
    }

    #[test]
    fn a_move_that_lost_is_reversed_and_not_tried_again_for_a_while() {
        let mut chooser = beginning_with(3);
        chooser.window(&nets(0, 150.0, 100.0), 100.0, MANY, false);
        assert_eq!(chooser.current(), 1);
        // The ghosts go on promising, but what comes is 80 where the old threshold's ghost has 100, of which it may lack a tenth: after sixteen windows it goes back.
        for _ in 0..15 {
            chooser.window(&nets(0, 150.0, 100.0), 80.0, MANY, false);
            assert_eq!(chooser.current(), 1);
        }
        chooser.window(&nets(0, 150.0, 100.0), 80.0, MANY, false);
        assert_eq!((chooser.current(), chooser.reversals), (8, 1));
        for _ in 0..47 {
            chooser.window(&nets(0, 150.0, 100.0), 100.0, MANY, false);
            assert_eq!(chooser.current(), 8);
        }
        chooser.window(&nets(0, 150.0, 100.0), 100.0, MANY, false);
        assert_eq!((chooser.current(), chooser.changes), (1, 2));
        // This time it keeps what it promised.
        for _ in 0..32 {
            chooser.window(&nets(0, 150.0, 100.0), 149.0, MANY, false);
        }
        assert_eq!((chooser.current(), chooser.reversals), (1, 1));
    }

    #[test]
    fn where_everything_loses_the_least_loss_is_best() {
        let mut chooser = beginning_with(0);
        chooser.window(&[-100.0, -90.0, -60.0, -20.0, -5.0, -1.0, 0.0, 0.0, 0.0], -100.0, MANY, false);
        assert_eq!(chooser.current(), 256);
    }

    #[test]
    fn chance_changes_no_full_tier() {
        let after = |windows: &[f64], full| {
            let mut chooser = beginning_with(3);
            windows.iter().for_each(|more| chooser.window(&nets(0, *more, 0.0), 0.0, MANY, full));
            chooser.current()
        };
        // 100 + 95 = 195 is less than 1.5 times the root of 100 x 100 x (1 + 0.95 ^ 2), 207; 285 is more than 247, with the third.
        assert_eq!((after(&[100.0; 2], true), after(&[100.0; 3], true)), (8, 1));
        // A rush of one window, and nothing after it; nobody loses anything where nothing leaves.
        let mut rush = [0.0; 100];
        rush[0] = 500.0;
        assert_eq!((after(&rush, true), after(&rush, false)), (8, 1));
        // What trickles in between rushes says now this, now that.
        let trickles: [f64; 100] = std::array::from_fn(|number| if number % 2 == 0 { 3.0 } else { -2.0 });
        assert_eq!(after(&trickles, true), 8);
    }

    #[test]
    fn a_tier_has_filled_up_when_the_first_leaves_for_another() {
        let mut filling = Filling::new();
        let mut ends = |held, displaced| {
            filling.displaced = displaced;
            (filling.ends(held, 8), filling.is_over())
        };
        assert_eq!(
            [ends(4, false), ends(8, false), ends(8, true)],
            [(false, false), (false, false), (true, true)]
        );
        assert_eq!([ends(8, true), ends(4, false)], [(false, true); 2]);
        // Most have left since.
        assert_eq!(
            [ends(3, false), ends(8, false), ends(8, true)],
            [(false, false), (false, false), (true, true)]
        );
    }

    #[test]
    fn who_begins_again_knows_nothing() {
        let mut chooser = beginning_with(3);
        for _ in 0..10 {
            chooser.window(&nets(0, 100.0, 0.0), 100.0, MANY, true);
        }
        assert_eq!((chooser.current(), chooser.changes), (1, 1));
        chooser.restart();
        assert_eq!((chooser.current(), chooser.changes), (2, 2));
        // Ten windows for 1 would outweigh three for 4.
        for _ in 0..3 {
            chooser.window(&nets(2, 100.0, 0.0), 0.0, MANY, true);
        }
        assert_eq!((chooser.current(), chooser.changes), (4, 3));
    }

    /// All chunks are in the sample; two fit.
    fn two_places() -> Ghosts {
        let ghosts = Ghosts::new(&Shape { capacity_chunks: 2, tracked_chunks: 16, ..Shape::default() });
        assert_eq!(ghosts.scale(), 1.0);
        ghosts
    }

    #[test]
    fn ghosts_differ_by_their_thresholds_alone() {
        let pace = Pace { margin: 16, cost: 1.5, ticks: 0, chunks_per_second: 1_000.0 };
        let mut ghosts = two_places();
        let access = |ghosts: &mut Ghosts, chunk| {
            let counted = Counted { chunk, sixteenths: 16, tick: 0 };
            ghosts.access(Nanos::secs(1), counted, pace);
        };
        // Chunk 7 six times: placed at its 1st, 2nd, 4th access by the first three, which leaves 5, 4, 2 hits; of the free place 1.5 x 7 / 64 are charged.
        for _ in 0..6 {
            access(&mut ghosts, 7);
        }
        let charged = 1.5 * 7.0 / 64.0;
        assert_eq!(ghosts.take()[..4], [5.0 - charged, 4.0 - charged, 2.0 - charged, 0.0]);
        // 8 and 9, once each: the first threshold places 8 in the room that is left, and 9 (count 1) is no hotter than 8. Owed are 1.5 x 57 / 64, and 1.5 more by the first.
        access(&mut ghosts, 8);
        access(&mut ghosts, 9);
        let owed = 1.5 - charged;
        assert_eq!(ghosts.take()[..2], [-(owed + 1.5) * 7.0 / 64.0, -owed * 7.0 / 64.0]);
        // 9 again: it has two now, and takes 8's place with the first, which costs a migration more; the second has room left.
        access(&mut ghosts, 9);
        let owed = [(owed + 1.5) * 57.0 / 64.0, owed * 57.0 / 64.0 + 1.5];
        assert_eq!(ghosts.take()[..2], [-(owed[0] + 1.5) * 7.0 / 64.0, -owed[1] * 7.0 / 64.0]);
    }

    #[test]
    fn who_is_worth_nothing_leaves_the_ghosts() {
        let pace = Pace { margin: 16, cost: 0.0, ticks: 0, chunks_per_second: 1_000.0 };
        let mut ghosts = two_places();
        let mut access = |sixteenths| {
            let counted = Counted { chunk: 7, sixteenths, tick: 0 };
            ghosts.access(Nanos::secs(1), counted, pace);
            ghosts.take()[..2].to_vec()
        };
        // Placed by the first at once, by the second at the second access.
        assert_eq!([access(16), access(16)], [[0.0, 0.0], [1.0, 0.0]]);
        // Two writes of one each cancel the count, a third leaves it owing an access: it costs nothing any more.
        assert_eq!([access(-16), access(-16), access(-16)], [[-1.0, -1.0]; 3]);
        assert_eq!(access(-16), [0.0, 0.0]);
        // What it owes is paid first; then it is placed as before.
        assert_eq!([access(16), access(16), access(16)], [[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]]);
    }

    #[test]
    fn hits_before_a_migration_ends_are_none() {
        let pace = Pace { margin: 16, cost: 0.0, ticks: 10, chunks_per_second: 1_000.0 };
        let mut ghosts = two_places();
        // Placed at tick 100, or 103 by the second; there from 110 and 113.
        for tick in [100, 103, 109, 110, 112, 113] {
            let counted = Counted { chunk: 7, sixteenths: 16, tick };
            ghosts.access(Nanos::secs(1), counted, pace);
        }
        assert_eq!(ghosts.take()[..3], [3.0, 1.0, 0.0]);
    }

    #[test]
    fn ghosts_that_begin_again_owe_nothing() {
        let pace = Pace { margin: 16, cost: 1.5, ticks: 0, chunks_per_second: 1_000.0 };
        let mut ghosts = two_places();
        let access = |ghosts: &mut Ghosts, chunk| {
            let counted = Counted { chunk, sixteenths: 16, tick: 0 };
            ghosts.access(Nanos::secs(1), counted, pace);
        };
        // The first threshold places 7 and 8 in the room that there is, and 9, asked for twice, in place of 8.
        [7, 7, 8].into_iter().for_each(|chunk| access(&mut ghosts, chunk));
        assert!(!ghosts.filled_up());
        [9, 9].into_iter().for_each(|chunk| access(&mut ghosts, chunk));
        assert!(ghosts.filled_up());
        ghosts.restart();
        assert_eq!((ghosts.accesses, ghosts.take()), (0, [0.0; 9]));
        // 9 is still there.
        access(&mut ghosts, 9);
        assert_eq!(ghosts.take()[0], 1.0);
    }

    #[test]
    fn where_everything_loses_a_little_less_loss_changes_nothing() {
        let mut chooser = beginning_with(3);
        (0..200).for_each(|_| chooser.window(&nets(5, -99.0, -100.0), -100.0, MANY, false));
        assert_eq!((chooser.current(), chooser.changes), (8, 0));
    }

    #[test]
    fn a_change_is_taken_back_by_what_the_threshold_of_before_would_have_had() {
        // What the ghost of the new one has and the one of the old one, what comes, and whether it goes back.
        for (promised, old, realised, reversals) in [
            (150.0, 100.0, 120.0, 0),
            (150.0, 100.0, 89.0, 1),
            (-50.0, -100.0, -105.0, 0),
            (-50.0, -100.0, -111.0, 1),
        ] {
            let mut chooser = beginning_with(3);
            (0..17).for_each(|_| chooser.window(&nets(0, promised, old), realised, MANY, false));
            assert_eq!((chooser.changes, chooser.reversals), (1, reversals), "{realised}");
            chooser.restart();
            assert_eq!(chooser.reversals, reversals, "it is counted from the start of the tier");
        }
    }

    #[test]
    fn what_is_a_leap_is_told_by_the_accesses_of_the_last_few_windows() {
        let after = |windows| {
            let mut chooser = Chooser::new();
            (0..200).for_each(|_| chooser.window(&nets(1, 10.0, 0.0), 10.0, 256, false));
            (0..windows).for_each(|_| chooser.window(&nets(0, 15.0, 0.0), 0.0, 256, false));
            chooser.current()
        };
        // Of late 60 x (1 - 0.75 ^ 5) = 45.8 to 40 x 0.75 ^ 5 = 9.5, 36 more, where 4 % of the last 1,024 accesses are 41; then 49.3 to 7.1.
        assert_eq!([after(5), after(6)], [2, 1]);
    }

    #[test]
    fn a_tier_that_is_emptied_fills_up_again_only_when_somebody_leaves_again() {
        let mut filling = Filling::new();
        filling.displaced = true;
        assert!(filling.ends(8, 8));
        assert_eq!([filling.ends(3, 8), filling.ends(8, 8)], [false; 2]);
    }

    /// Hits that the ghost of the lowest threshold has of accesses at so many seconds, where so many chunks move in a second.
    fn hits(chunks_per_second: f64, accesses: &[(u64, u64, i64)]) -> f64 {
        let pace = Pace { margin: 16, cost: 0.0, ticks: 0, chunks_per_second };
        let mut ghosts = Ghosts::new(&Shape { capacity_chunks: 8, tracked_chunks: 16, ..Shape::default() });
        for &(second, chunk, sixteenths) in accesses {
            ghosts.access(Nanos::secs(second), Counted { chunk, sixteenths, tick: 0 }, pace);
        }
        ghosts.take()[0]
    }

    #[test]
    fn ghosts_move_no_more_chunks_than_the_tier_may() {
        // Two in a second, and no more after a long time in which nothing moved.
        let all = [7, 8, 9, 7, 8, 9].map(|chunk| (1_000, chunk, 16));
        assert_eq!(hits(2.0, &all), 2.0);
        // One at a time however slowly, and a clock that goes back brings nothing.
        assert_eq!(hits(0.5, &[(10, 7, 16), (10, 7, 16)]), 1.0);
        assert_eq!(hits(1.0, &[(10, 7, 16), (1, 8, 16), (10, 8, 16), (10, 8, 16)]), 0.0);
        // A copy of a write brings no chunk, however hot it is.
        assert_eq!(hits(1.0, &[(0, 7, 16), (0, 7, 16), (10, 7, -1), (10, 7, 16)]), 0.0);
    }
}
