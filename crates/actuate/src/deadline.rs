//! Until when something must have happened.

use std::time::{Duration, Instant};

/// An instant at which waiting ends. Passed on from call to call, so that the whole takes no longer than its caller allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// So long from now.
    pub fn after(span: Duration) -> Deadline {
        Deadline(Instant::now() + span)
    }

    /// At this instant.
    pub fn at(instant: Instant) -> Deadline {
        Deadline(instant)
    }

    /// The instant.
    pub fn instant(self) -> Instant {
        self.0
    }

    /// What is left; zero once it is over.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether nothing is left.
    pub fn is_over(self) -> bool {
        self.left().is_zero()
    }

    /// This deadline, or `span` from now if that is sooner.
    #[must_use]
    pub fn within(self, span: Duration) -> Deadline {
        self.min(Deadline::after(span))
    }

    /// This much sooner, to leave time for what must be done afterwards; never before now.
    #[must_use]
    pub fn sooner_by(self, span: Duration) -> Deadline {
        Deadline(self.0.checked_sub(span).unwrap_or(self.0).max(Instant::now().min(self.0)))
    }

    /// Asks `done` until it gives something: at once, then after pauses that grow from 2 ms to 50 ms. `None` once this is over.
    pub fn wait_for<T>(self, mut done: impl FnMut() -> Option<T>) -> Option<T> {
        let mut pause = Duration::from_millis(2);
        loop {
            if let Some(found) = done() {
                return Some(found);
            }
            let left = self.left();
            if left.is_zero() {
                return None;
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 3 / 2).min(Duration::from_millis(50));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sooner_one_counts_and_nothing_is_less_than_nothing() {
        let long = Deadline::after(Duration::from_secs(100));
        let short = long.within(Duration::from_secs(1));
        assert!(short < long && short.within(Duration::from_secs(50)) == short);
        assert!(long.sooner_by(Duration::from_secs(40)).left() <= Duration::from_secs(60));
        assert!(short.sooner_by(Duration::from_secs(40)).is_over());
        assert!(!short.is_over());
    }

    #[test]
    fn waiting_asks_at_least_once_and_ends() {
        let over = Deadline::at(Instant::now());
        assert_eq!(over.wait_for(|| Some(1)), Some(1));
        let mut asked = 0;
        let none: Option<()> = Deadline::after(Duration::from_millis(10)).wait_for(|| {
            asked += 1;
            None
        });
        assert!(none.is_none() && asked >= 2);
    }
}
