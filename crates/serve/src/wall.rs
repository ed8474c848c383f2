//! The wall clock, watched: whether somebody set it.
//!
//! No decision goes by it: intervals, deadlines, leases and forecasts go by a clock that nobody sets. It dates what people read, and what must be
//! understood after a restart, so whoever reads that is told when it jumped.

use std::time::Duration;

/// How far it may be off from one look to the next and still go as time does: more than a thread waits between reading one clock and the other, far
/// more than clocks are slewed by.
const OFF_MAX_MS: i64 = 2_000;

/// What the wall clock was when it was looked at last.
#[derive(Debug, Default)]
pub(crate) struct WallClock {
    before: Option<(i64, Duration)>,
}

impl WallClock {
    /// By how many milliseconds it was set since the last look, forward or (below 0) back; `None`: it goes as time does.
    ///
    /// `elapsed` is by a clock that is not set. A machine that slept looks like one whose clock was set forward.
    pub(crate) fn look(&mut self, unix_ms: i64, elapsed: Duration) -> Option<i64> {
        let before = self.before.replace((unix_ms, elapsed));
        let (then_unix_ms, then) = before?;
        let passed = i64::try_from(elapsed.saturating_sub(then).as_millis()).unwrap_or(i64::MAX);
        let set = unix_ms.saturating_sub(then_unix_ms).saturating_sub(passed);
        (set.saturating_abs() > OFF_MAX_MS).then_some(set)
    }

    /// Looks, and tells of a clock that was set.
    pub(crate) fn watch(&mut self, unix_ms: i64, elapsed: Duration) {
        if let Some(set_ms) = self.look(unix_ms, elapsed) {
            let by = Duration::from_millis(set_ms.unsigned_abs());
            let way = if set_ms > 0 { "forward" } else { "back" };
            tracing::warn!(
                way,
                ?by,
                "the wall clock was set; decisions go by another, dates in the history jump"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3_600_000;

    #[test]
    fn a_clock_that_is_set_is_told_once_and_by_how_much() {
        let mut clock = WallClock::default();
        let mut wall = 1_700_000_000_000;
        let mut looks = Vec::new();
        for second in 0..60 {
            wall += 1000;
            // Forward by an hour at 20 s, back by two at 40 s; late looks and slewing in between are no steps.
            wall += match second {
                20 => HOUR_MS,
                40 => -2 * HOUR_MS,
                _ => second % 3,
            };
            looks.extend(clock.look(wall, Duration::from_secs(second as u64)).map(|by| (second, by)));
        }
        assert_eq!(looks, [(20, HOUR_MS), (40, -2 * HOUR_MS)]);
        // A look that comes ten minutes late finds both ten minutes on.
        assert_eq!(clock.look(wall + 600_000, Duration::from_secs(59 + 600)), None);
        // The ends of the range are no reason to fail.
        assert_eq!(clock.look(i64::MIN, Duration::MAX), Some(i64::MIN));
        assert_eq!(clock.look(i64::MAX, Duration::ZERO), Some(i64::MAX));
    }
}
