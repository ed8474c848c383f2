//! Refills: how long it takes to fill again what a shrink takes away, and so how much may be taken on what has been seen.
//!
//! A cache that took a quarter of an hour to fill is not to lose a third of it on a minute of slack: if the load comes back to what it lost, windows
//! miss for as long as filling takes. So what is taken since windows last missed takes no longer to fill again than they have conformed since then
//! (the rule of who rents before he buys). Caches that fill within an interval or two, as most do, are next to never held back by it.

/// The pace at which a cache has filled, and since when it has sufficed. Sizes are in blocks, times in control intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Refill {
    /// Blocks that came while it was not full, and the intervals in which they came.
    filled: u64,
    intervals: u64,
    /// What it held when a window last missed, or at the first window, and the interval.
    sufficed: Option<(u64, u64)>,
}

impl Refill {
    /// An interval in which a cache that was not full came to hold `more` blocks than before.
    pub(crate) fn filled(&mut self, more: u64) {
        if more > 0 {
            self.filled += more;
            self.intervals += 1;
        }
    }

    /// A window closed in the interval `at`, and `missed` or not; the cache holds `blocks`.
    pub(crate) fn window(&mut self, at: u64, missed: bool, blocks: u64) {
        if missed || self.sufficed.is_none() {
            self.sufficed = Some((blocks, at));
        }
    }

    /// The size below which it does not shrink in the interval `at`; 0 where nothing is known.
    pub(crate) fn floor(&self, at: u64) -> u64 {
        let Some((blocks, since)) = self.sufficed.filter(|_| self.intervals > 0) else { return 0 };
        let pace = self.filled as f64 / self.intervals as f64;
        let spared = pace * at.saturating_sub(since) as f64;
        blocks.saturating_sub(spared as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_filled_again_in_the_time_without_a_miss() {
        let mut refill = Refill::default();
        assert_eq!(refill.floor(10), 0, "nothing is known");
        refill.window(0, false, 1_000);
        refill.window(5, false, 900);
        assert_eq!(refill.floor(10), 0, "it was never seen to fill");
        // 15 and 35 blocks an interval; intervals in which nothing came say nothing of the pace.
        for more in [15, 0, 35] {
            refill.filled(more);
        }
        assert_eq!((refill.floor(0), refill.floor(20), refill.floor(50)), (1_000, 500, 0));
        refill.window(40, true, 800);
        assert_eq!((refill.floor(40), refill.floor(44)), (800, 700));
    }
}
