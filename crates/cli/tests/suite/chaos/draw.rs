//! Numbers that follow from a seed.

use forebay_units::mix64;
use std::time::Duration;

/// A row of numbers. Whoever needs some that do not depend on how many others were drawn takes a row of its own.
pub(super) struct Draw(u64);

impl Draw {
    /// The row `number` of a seed.
    pub(super) fn new(seed: u64, number: u64) -> Draw {
        Draw(mix64(seed ^ mix64(number)))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix64(self.0)
    }

    /// Below `count`.
    pub(super) fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    /// Whether something happens that happens so often in 100.
    pub(super) fn percent(&mut self, often: usize) -> bool {
        self.below(100) < often
    }

    pub(super) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Up to so many milliseconds.
    pub(super) fn up_to(&mut self, millis: usize) -> Duration {
        Duration::from_millis(self.below(millis + 1) as u64)
    }

    /// One of these, in milliseconds.
    pub(super) fn millis(&mut self, choices: &[u64]) -> Duration {
        Duration::from_millis(self.of(choices))
    }
}
