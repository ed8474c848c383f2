//! Trims: cuts of a cache to what is filled of it, when the windows that it filled in conform.
//!
//! What is not filled is no loss where windows are alike. A load that goes in a circle of several windows (a loop over a recording, a nightly scan)
//! has easy ones among them: cut to what was filled after an easy one, the next hard one misses, the cache grows again, and fills
//! by one window more before it is cut. So a trim after which it had to grow again is *regretted*, and each regret doubles the windows in a row
//! that must conform before the next one. The rule and its numbers are ours.

/// Windows within which growth says that a trim was wrong.
const REGRETTED_WITHIN: u32 = 30;
/// Regrets beyond which it is not waited any longer: 32 windows.
const REGRETS_MAX: u32 = 5;

/// What is known of the trims of one cache, whatever its load was.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Trims {
    /// Windows in a row that conformed while it filled.
    conformed: u32,
    /// Windows since the last trim, while it may yet be regretted.
    since: Option<u32>,
    regrets: u32,
}

impl Trims {
    /// A window closed, and `missed` or not; the cache was `filling` or full.
    pub(crate) fn window(&mut self, missed: bool, filling: bool) {
        self.conformed = if missed || !filling { 0 } else { self.conformed.saturating_add(1) };
        self.since = self.since.map(|windows| windows + 1);
        if self.since.take_if(|windows| *windows > REGRETTED_WITHIN).is_some() {
            self.regrets = self.regrets.saturating_sub(1);
        }
    }

    /// Whether enough windows conformed while it filled.
    pub(crate) fn may(&self) -> bool {
        self.conformed >= 1 << self.regrets
    }

    /// It is cut to what is filled.
    pub(crate) fn trimmed(&mut self) {
        (self.conformed, self.since) = (0, Some(0));
    }

    /// It grows.
    pub(crate) fn grown(&mut self) {
        if self.since.take().is_some() {
            self.regrets = (self.regrets + 1).min(REGRETS_MAX);
        }
        self.conformed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many windows that conform while it fills it takes until a trim may follow.
    fn waits(trims: &mut Trims) -> u32 {
        let mut windows = 0;
        while !trims.may() {
            trims.window(false, true);
            windows += 1;
        }
        windows
    }

    #[test]
    fn what_was_regretted_is_waited_for_twice_as_long_each_time() {
        let mut trims = Trims::default();
        let mut waited = Vec::new();
        for _ in 0..7 {
            waited.push(waits(&mut trims));
            trims.trimmed();
            trims.window(true, false);
            trims.grown();
        }
        assert_eq!(waited, [1, 2, 4, 8, 16, 32, 32]);
    }

    #[test]
    fn windows_that_conform_in_a_row_while_it_fills_are_what_counts() {
        let mut trims = Trims { regrets: 1, ..Trims::default() };
        trims.window(false, true);
        trims.window(true, true);
        trims.window(false, true);
        assert!(!trims.may(), "one missed");
        trims.window(false, false);
        trims.window(false, true);
        assert!(!trims.may(), "it was full");
        trims.window(false, true);
        assert!(trims.may());
    }

    #[test]
    fn a_trim_of_long_ago_is_no_reason_to_grow_and_one_regret_less() {
        let mut trims = Trims { regrets: 2, ..Trims::default() };
        trims.trimmed();
        for _ in 0..30 {
            trims.window(false, false);
        }
        let mut regretted = trims;
        regretted.grown();
        assert_eq!(regretted.regrets, 3);
        trims.window(false, false);
        trims.grown();
        assert_eq!(trims.regrets, 1);
        // Growth without a trim before it is none either.
        trims.grown();
        assert_eq!(trims.regrets, 1);
    }
}
