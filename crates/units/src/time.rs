//! Time in nanoseconds: instants since a stated start, and spans between them.

use crate::nearest;
use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;
use std::time::Duration;

/// Nanoseconds: an instant since the start that its owner states (a trace's first request, the daemon's start,
/// virtual zero), or a span between two instants. Pure rooms are told the time and never ask for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The start, or no time at all.
    pub const ZERO: Nanos = Nanos(0);
    /// Later than everything.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// `count` seconds.
    pub const fn secs(count: u64) -> Nanos {
        Nanos(count * 1_000_000_000)
    }

    /// `count` milliseconds.
    pub const fn millis(count: u64) -> Nanos {
        Nanos(count * 1_000_000)
    }

    /// `count` microseconds.
    pub const fn micros(count: u64) -> Nanos {
        Nanos(count * 1_000)
    }

    /// The nearest whole nanosecond to `seconds`; 0 for negative numbers and for what is no number.
    pub fn from_secs_f64(seconds: f64) -> Nanos {
        Nanos(nearest(seconds * 1e9))
    }

    /// Seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Milliseconds.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Microseconds.
    pub fn as_micros_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// The span since `earlier`; 0 where `earlier` is later.
    pub const fn saturating_since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// The sum, or [`Nanos::MAX`] where it does not fit.
    pub const fn saturating_add(self, span: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(span.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, span: Nanos) -> Nanos {
        Nanos(self.0 + span.0)
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, span: Nanos) {
        self.0 += span.0;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, earlier: Nanos) -> Nanos {
        Nanos(self.0 - earlier.0)
    }
}

impl From<Duration> for Nanos {
    fn from(duration: Duration) -> Nanos {
        Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(nanos: Nanos) -> Duration {
        Duration::from_nanos(nanos.0)
    }
}

impl fmt::Display for Nanos {
    /// Prints the largest of `s`, `ms`, `us`, `ns` that leaves a number of at least 1, with up to three digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = match self.0 {
            0 | 1_000_000_000.. => ("s", 1e9),
            1_000_000.. => ("ms", 1e6),
            1_000.. => ("us", 1e3),
            _ => ("ns", 1.0),
        };
        let value = self.0 as f64 / factor;
        let decimals = if value.fract() == 0.0 || value >= 100.0 { 0 } else { 2 };
        f.pad(&format!("{value:.decimals$}{unit}"))
    }
}

/// A text that is not a span of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseNanosError {
    /// What was found.
    pub found: String,
    /// Whether it is a span of time, but longer than can be counted.
    pub is_too_large: bool,
}

impl fmt::Display for ParseNanosError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_too_large {
            return write!(f, "`{}` is too long: expected at most 2^64 - 1 ns, some 213503 days", self.found);
        }
        write!(
            f,
            "`{}` is not a span of time: expected a number and a unit, as in `5ms`, `600s` or `2h`",
            self.found
        )
    }
}

impl std::error::Error for ParseNanosError {}

impl FromStr for Nanos {
    type Err = ParseNanosError;

    /// The unit (`ns`, `us`, `ms`, `s`, `m` or `min`, `h`, `d`) must be given: a bare number would be a guess.
    fn from_str(text: &str) -> Result<Nanos, ParseNanosError> {
        let failed = |is_too_large| ParseNanosError { found: text.to_owned(), is_too_large };
        let error = || failed(false);
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or_else(error)?;
        let (number, unit) = trimmed.split_at(split);
        let factor = match unit.trim() {
            "ns" => 1.0,
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" | "min" => 60e9,
            "h" => 3_600e9,
            "d" => 86_400e9,
            _ => return Err(error()),
        };
        let nanos = (number.parse::<f64>().map_err(|_| error())? * factor).round();
        if nanos >= u64::MAX as f64 { Err(failed(true)) } else { Ok(Nanos(nanos as u64)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_printed() {
        for (text, nanos) in
            [("5ms", 5_000_000), ("600s", 600_000_000_000), ("1.5us", 1_500), ("2h", 7_200_000_000_000)]
        {
            assert_eq!(text.parse::<Nanos>(), Ok(Nanos(nanos)), "{text}");
        }
        assert_eq!(Nanos(1_500).to_string(), "1.50us");
        assert_eq!(Nanos::secs(600).to_string(), "600s");
        for text in ["5", "", "ms", "5 parsecs", "1.2.3s"] {
            assert!(!text.parse::<Nanos>().expect_err(text).is_too_large, "{text}");
        }
        // 213,503 days are 18,446,659,200 s, and 2^64 ns are 18,446,744,073.7 s.
        assert_eq!("213503d".parse::<Nanos>(), Ok(Nanos::secs(18_446_659_200)));
        let error = "1000000d".parse::<Nanos>().expect_err("more than there is").to_string();
        assert_eq!(error, "`1000000d` is too long: expected at most 2^64 - 1 ns, some 213503 days");
    }
}
