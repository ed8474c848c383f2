//! The wall clock beside one that only runs on: whether somebody set it.
//!
//! Decisions, deadlines and intervals go by clocks that nobody can set. What people say in hours and dates goes by the wall clock, and what was
//! agreed for a span of time has to be told when that is set.

use rustix::time::{ClockId, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};

/// A smaller difference is a clock that is slewed, or a thread that had to wait between two readings (ours).
const STEP_MIN_MS: i64 = 2_000;

/// Milliseconds since 1970, as the wall clock has it now.
pub(crate) fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) unix_ms: i64,
    /// Since the machine started, while it was suspended too.
    pub(crate) running_ms: i64,
}

impl Moment {
    pub(crate) fn now() -> Moment {
        let running = clock_gettime(ClockId::Boottime);
        Moment { unix_ms: unix_ms(), running_ms: running.tv_sec * 1_000 + running.tv_nsec / 1_000_000 }
    }
}

/// Whoever looks often enough sees each time that the wall clock was set.
#[derive(Debug, Default)]
pub(crate) struct ClockWatch {
    last: Option<Moment>,
    steps: u64,
}

impl ClockWatch {
    /// By how many milliseconds the wall clock was set since the last look, if it was.
    pub(crate) fn look(&mut self, now: Moment) -> Option<i64> {
        let last = self.last.replace(now)?;
        let went = now.unix_ms.saturating_sub(last.unix_ms);
        let step = went.saturating_sub(now.running_ms.saturating_sub(last.running_ms));
        if step.saturating_abs() < STEP_MIN_MS {
            return None;
        }
        self.steps += 1;
        Some(step)
    }

    /// Looks, and tells of a clock that was set.
    pub(crate) fn tell(&mut self, now: Moment) -> Option<i64> {
        let step_ms = self.look(now)?;
        let step_s = step_ms as f64 / 1e3;
        tracing::warn!(step_s, "the wall clock was set: no decision goes by it, dates in the history jump");
        Some(step_ms)
    }

    /// How often it was set.
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_is_seen_and_one_that_drifts_is_not() {
        let mut watch = ClockWatch::default();
        let mut look = |unix_ms, running_ms| watch.look(Moment { unix_ms, running_ms });
        assert_eq!(look(5_000_000, 0), None);
        assert_eq!(look(5_001_000, 1_000), None);
        // An hour forward, seen 2 s later; then two hours back.
        assert_eq!(look(8_603_000, 3_000), Some(3_600_000));
        assert_eq!(look(8_604_000, 4_000), None);
        assert_eq!(look(1_404_500, 4_500), Some(-7_200_000));
        // Half a millisecond in each second, for a day, as daemons slew it.
        for second in 1..86_400 {
            assert_eq!(look(1_404_500 + second * 1_000 + second / 2, 4_500 + second * 1_000), None);
        }
        assert!(look(i64::MAX, 90_000_000).is_some_and(|step| step > 1 << 62));
        assert_eq!(watch.steps(), 3);
    }
}
