//! Needs: the size that a load which comes and goes was found to need, and for how long it is kept for it.
//!
//! A cache that is shrunk while its load is away is too small when the load comes back, and a cache that is shrunk because all
//! is well may lose a loop that it had just learnt. Neither shows before it is too late, so what counts is whether it was
//! *regretted*: each regret makes the next wait four times as long, as one does who was woken twice. Noise about an
//! objective is no regret: only windows that miss by far are. Nor is a load that asks for far more than any that was there
//! before: what it needs was never taken away. The rules and numbers are ours.

/// Intervals for which a size is kept for a load that is away, before anything was regretted.
const WAIT: u64 = 30;
/// By how much all waits grow with every regret, and how often.
const WAIT_GROWS: u64 = 4;
const REGRETS_MAX: u32 = 3;
/// Waits after which a size that was not needed again is forgotten.
const FORGET_WAITS: u64 = 2;
/// The part of the rate of a need below which its load is away.
const ALIKE: f64 = 0.6;
/// Windows that a size must keep the objective in before a need is taken to be no more than that; each regret doubles them.
const WINDOWS: usize = 4;

/// A size that was needed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Need {
    blocks: u64,
    /// Requests per second of the load that needed it.
    rate: f64,
    /// The interval in which such a load was last seen.
    seen: u64,
}

/// The needs of a partition. Sizes are in blocks, times in control intervals, rates in requests per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Needs {
    need: Option<Need>,
    /// The highest rate since windows began to miss by far, while that lasts.
    missing: Option<f64>,
    /// The highest rate of a window that conformed; 0 where none did.
    served: f64,
    /// Windows in a row in which the load of the need was there.
    present: usize,
    /// The cache has been smaller than the need since that was last seen to suffice.
    shrunk: bool,
    regrets: u32,
    /// The size below which nothing shrinks since that was regretted, and the interval until which.
    kept: (u64, u64),
}

/// A window, and what was in force.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Seen {
    /// The interval.
    pub at: u64,
    /// The size in force.
    pub blocks: u64,
    /// How much of it is filled.
    pub used: u64,
    /// The size before the last change, if that was a shrink.
    pub shrunk_from: Option<u64>,
    /// How many requests per second arrived.
    pub rate: f64,
    /// Windows since the size last changed, this one included.
    pub windows: usize,
    /// The window before kept the objective with half of its bound to spare, and this one misses by far.
    pub fell: bool,
}

impl Needs {
    /// A window that missed by far. Says which size is known to have sufficed for such a load, where that is more than there is.
    pub(crate) fn missed(&mut self, seen: &Seen) -> Option<u64> {
        self.see(seen);
        let began = self.missing.is_none();
        self.missing = Some(self.missing.unwrap_or(0.0).max(seen.rate));
        // Who asks for far more than was ever served well, or missed before, would have missed without a shrink, too.
        let known = self.need.map_or(0.0, |need| need.rate).max(self.served);
        if known > 0.0 && ALIKE * seen.rate > known {
            return None;
        }
        // A small step is not to blame, unless it led over a cliff: from windows with much to spare to one that misses by far.
        let just = seen.shrunk_from.filter(|&blocks| seen.fell || blocks * 20 > seen.blocks * 21);
        let just = just.filter(|&blocks| self.need.is_none_or(|need| need.blocks < blocks));
        if let Some(blocks) = just.filter(|_| began && seen.windows <= WINDOWS) {
            // What was just taken away would have sufficed.
            self.need = Some(Need { blocks, rate: seen.rate, seen: seen.at });
        }
        let need = self.need?;
        let shrunk = self.shrunk || seen.blocks < need.blocks;
        if began && shrunk && seen.rate >= ALIKE * need.rate {
            self.regrets = (self.regrets + 1).min(REGRETS_MAX);
            self.kept = (need.blocks, seen.at + self.wait());
            self.shrunk = false;
        }
        Some(need.blocks).filter(|&blocks| blocks > seen.blocks)
    }

    /// A window that conformed.
    pub(crate) fn conformed(&mut self, seen: &Seen) {
        self.see(seen);
        self.served = self.served.max(seen.rate);
        let suffices = seen.blocks.min(seen.used.max(1));
        if let Some(rate) = self.missing.take() {
            let known = self.need.filter(|need| need.blocks > suffices);
            self.need = Some(Need {
                blocks: known.map_or(suffices, |known| known.blocks),
                rate: known.map_or(rate, |known| known.rate.max(rate)),
                seen: seen.at,
            });
        }
        // What misses by far from now on is no fault of a shrink that was made good.
        if self.need.is_some_and(|need| seen.blocks >= need.blocks && seen.rate >= ALIKE * need.rate) {
            self.shrunk = false;
        }
        let enough = WINDOWS << self.regrets;
        let Some(need) = self.need.as_mut().filter(|need| suffices < need.blocks) else { return };
        if self.present >= enough && seen.windows >= enough {
            need.blocks = suffices;
            self.shrunk = false;
        } else {
            self.shrunk |= seen.blocks < need.blocks;
        }
    }

    /// The size below which nothing shrinks now, where there is one.
    pub(crate) fn kept(&self, at: u64) -> Option<u64> {
        let need = self.need?;
        let away = self.present < WINDOWS && at < need.seen + self.wait();
        let regretted = (at < self.kept.1).then_some(self.kept.0.min(need.blocks));
        if away { Some(need.blocks) } else { regretted }
    }

    fn wait(&self) -> u64 {
        WAIT * WAIT_GROWS.pow(self.regrets)
    }

    /// Whether the load of the need is there; a need of long ago is forgotten.
    fn see(&mut self, seen: &Seen) {
        let forget_after = FORGET_WAITS * self.wait();
        let Some(need) = &mut self.need else { return };
        if seen.rate >= ALIKE * need.rate {
            need.seen = seen.at;
            self.present += 1;
        } else if seen.at < need.seen + forget_after {
            self.present = 0;
        } else {
            *self = Needs { missing: self.missing, ..Needs::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full cache of `blocks` for some windows, under 100 requests/s.
    fn seen(at: u64, blocks: u64, windows: usize) -> Seen {
        Seen { at, blocks, used: blocks, shrunk_from: None, rate: 100.0, windows, fell: false }
    }

    /// 1,000 blocks were found to be needed at interval 1.
    fn needs() -> Needs {
        let mut needs = Needs::default();
        assert_eq!(needs.missed(&seen(0, 500, 1)), None);
        needs.conformed(&seen(1, 1_000, 1));
        needs
    }

    #[test]
    fn what_was_regretted_is_kept_four_times_as_long_each_time() {
        let mut needs = needs();
        assert_eq!(needs.kept(1), Some(1_000)); // its load was seen once only
        (2..6).for_each(|at| needs.conformed(&seen(at, 1_000, at as usize)));
        assert_eq!(needs.kept(5), None);
        // Shrunk, and the load misses by far: 30 x 4 intervals.
        assert_eq!(needs.missed(&seen(6, 700, 1)), Some(1_000));
        needs.conformed(&seen(7, 1_000, 1));
        assert_eq!((needs.kept(125), needs.kept(126)), (Some(1_000), None));
        // Again: 30 x 16. What misses on is not another regret.
        assert_eq!(needs.missed(&seen(126, 900, 1)), Some(1_000));
        assert_eq!(needs.missed(&seen(127, 900, 2)), Some(1_000));
        needs.conformed(&seen(128, 1_000, 1));
        assert_eq!((needs.kept(605), needs.kept(606)), (Some(1_000), None));
    }

    #[test]
    fn a_size_that_suffices_for_some_windows_is_all_that_is_needed() {
        let mut needs = needs();
        (2..6).for_each(|at| needs.conformed(&seen(at, 800, at as usize - 1)));
        // Four windows with 800 blocks: the need is 800 now, and to go back to that is all there is to do.
        assert_eq!(needs.missed(&seen(6, 700, 1)), Some(800));
        // A cache of 1,000 that is filled by half needs no more than that.
        needs.conformed(&Seen { used: 400, ..seen(7, 1_000, 1) });
        (8..40).for_each(|at| needs.conformed(&Seen { used: 400, ..seen(at, 1_000, at as usize - 6) }));
        assert_eq!(needs.kept(39), Some(400));
    }

    #[test]
    fn a_shrink_that_was_made_good_is_not_to_blame() {
        let mut needs = needs();
        needs.conformed(&seen(2, 980, 1));
        // It grew again, and conforms; then another load comes, that misses with all of that.
        needs.conformed(&seen(3, 1_000, 1));
        assert_eq!(needs.missed(&seen(4, 1_000, 2)), None);
        (5..9).for_each(|at| needs.conformed(&seen(at, 2_000, at as usize - 4)));
        assert_eq!(needs.kept(8), None);
        // What misses with less than was needed is.
        needs.conformed(&seen(9, 1_900, 1));
        assert_eq!(needs.missed(&seen(10, 1_900, 2)), Some(2_000));
        assert_eq!(needs.kept(129), Some(2_000));
    }

    #[test]
    fn no_shrink_is_to_blame_for_a_load_that_asks_for_far_more_than_any_that_was_served() {
        // 1,000 blocks were needed for 100 requests/s and shrunk by a fifth since, which is regretted with up to 166 of them.
        for (rate, blamed) in [(166.0, Some(1_000)), (167.0, None), (200.0, None)] {
            let mut needs = needs();
            needs.conformed(&seen(2, 800, 1));
            let more = Seen { shrunk_from: Some(1_000), rate, ..seen(3, 800, 2) };
            assert_eq!(needs.missed(&more), blamed, "{rate}");
            // What suffices for it is needed, and kept while it is away: four times as long where something was regretted.
            (4..8).for_each(|at| needs.conformed(&Seen { rate, ..seen(at, 3_000, at as usize - 3) }));
            needs.conformed(&Seen { rate: 59.0, ..seen(8, 3_000, 5) });
            let until = 7 + if blamed.is_some() { 120 } else { 30 };
            assert_eq!((needs.kept(until - 1), needs.kept(until)), (Some(3_000), None), "{rate}");
        }
    }

    #[test]
    fn a_load_that_goes_before_it_is_served_is_known_when_it_comes_back() {
        // 1,000/s miss with 500 blocks; the window that conforms with 1,000 is of the calm.
        let mut needs = Needs::default();
        needs.conformed(&seen(0, 500, 9));
        assert_eq!(needs.missed(&Seen { rate: 1_000.0, ..seen(1, 500, 10) }), None);
        needs.conformed(&seen(2, 1_000, 1));
        needs.conformed(&seen(3, 700, 1));
        assert_eq!(needs.missed(&Seen { rate: 1_000.0, ..seen(4, 700, 2) }), Some(1_000));
    }

    #[test]
    fn a_load_that_is_away_is_waited_for_and_then_forgotten() {
        let mut needs = needs();
        let away = |at| Seen { rate: 59.0, ..seen(at, 1_000, 9) };
        needs.conformed(&away(2));
        // Seen last at 1: kept until 31, known until 61.
        assert_eq!((needs.kept(30), needs.kept(31)), (Some(1_000), None));
        assert_eq!(needs.clone().missed(&seen(60, 300, 9)), Some(1_000));
        needs.conformed(&away(61));
        assert_eq!(needs.missed(&seen(62, 300, 9)), None);
    }

    #[test]
    fn the_shrink_before_a_miss_is_to_blame_unless_it_was_small() {
        for (from, blamed) in [(1_100, Some(1_100)), (1_040, None)] {
            let mut needs = Needs::default();
            assert_eq!(needs.missed(&Seen { shrunk_from: Some(from), ..seen(9, 1_000, 2) }), blamed);
            assert_eq!(needs.missed(&Seen { shrunk_from: Some(9_000), ..seen(10, 1_000, 3) }), blamed);
            assert_eq!(needs.kept(128), blamed);
            // It is if it led over a cliff, however small it was.
            let mut needs = Needs::default();
            let fell = Seen { shrunk_from: Some(from), fell: true, ..seen(9, 1_000, 2) };
            assert_eq!(needs.missed(&fell), Some(from));
            // Of long ago it is not.
            let mut needs = Needs::default();
            assert_eq!(needs.missed(&Seen { shrunk_from: Some(from), ..seen(9, 1_000, 5) }), None);
        }
    }
}
