//! The wall clock beside one that only runs on: whether somebody set it.
//!
//! Decisions, deadlines and intervals go by clocks that nobody can set. What people say in hours and dates goes by the wall clock, and what was
//! agreed for a span of time has to be told when that is set.

use forebay_units::Nanos;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
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

/// A moment that is written down, so that whoever reads it later, after a restart say, knows how long ago it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    at_unix_ms: i64,
    /// Since which start of the machine the clock ran that nobody can set, and how long; absent in files of before.
    #[serde(default)]
    running: Option<(String, i64)>,
}

impl Stamp {
    pub(crate) fn now() -> Stamp {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        Stamp::of(Moment::now(), boot.as_deref().map(str::trim))
    }

    fn of(moment: Moment, boot: Option<&str>) -> Stamp {
        Stamp { at_unix_ms: moment.unix_ms, running: boot.map(|boot| (boot.to_owned(), moment.running_ms)) }
    }

    /// How long after `earlier` this is: by the clock that nobody can set, unless the machine was started anew in between. Then by the wall clock, whose step
    /// nobody saw; if it went back, it tells nothing.
    pub(crate) fn since(&self, earlier: &Stamp) -> Nanos {
        let ran = match (&earlier.running, &self.running) {
            (Some((boot, then)), Some((same, now))) if boot == same && then <= now => Some(now - then),
            _ => None,
        };
        let went = ran.unwrap_or_else(|| self.at_unix_ms.saturating_sub(earlier.at_unix_ms));
        Nanos::millis(u64::try_from(went).unwrap_or(0))
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
    fn a_step_while_nobody_looked_counts_only_where_the_machine_was_started_anew() {
        let at = |unix_s: i64, running_s: i64, boot| {
            Stamp::of(Moment { unix_ms: unix_s * 1_000, running_ms: running_s * 1_000 }, boot)
        };
        let before = at(10_000, 500, Some("first"));
        // Eight seconds passed, in which the clock was set by an hour, forward and back.
        assert_eq!(at(13_608, 508, Some("first")).since(&before), Nanos::secs(8));
        assert_eq!(at(6_408, 508, Some("first")).since(&before), Nanos::secs(8));
        // Another start of the machine, none that is known, a clock that cannot be the same, a file of before: the wall clock, if it went forward.
        for later in [(508, Some("second")), (508, None), (499, Some("first"))] {
            assert_eq!(at(10_060, later.0, later.1).since(&before), Nanos::secs(60));
            assert_eq!(at(9_000, later.0, later.1).since(&before), Nanos::ZERO);
        }
        let older: Stamp = serde_json::from_str(r#"{"at_unix_ms": 10000000}"#).unwrap();
        assert_eq!(at(10_060, 508, Some("first")).since(&older), Nanos::secs(60));
        let now = Stamp::now();
        assert!(now.running.is_some() && Stamp::now().since(&now) < Nanos::secs(60));
        let kept: Stamp = serde_json::from_str(&serde_json::to_string(&now).unwrap()).unwrap();
        assert_eq!(kept, now);
    }

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
