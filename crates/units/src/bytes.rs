//! Quantities of bytes, and how people write them.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub};
use std::str::FromStr;

/// A quantity of bytes.
///
/// Written and parsed with binary units (`4KiB`, `64MiB`, `1.5GiB`), decimal units (`10MB`) or none (`4096`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// Binary units first, the largest first: the order in which [`Bytes`] looks for the unit to print.
const UNITS: [(&str, u64); 11] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("KB", 1_000),
    ("B", 1),
    ("", 1),
];

impl Bytes {
    /// No bytes at all.
    pub const ZERO: Bytes = Bytes(0);

    /// `count` times 1,024 bytes.
    pub const fn kib(count: u64) -> Bytes {
        Bytes(count << 10)
    }

    /// `count` times 1,048,576 bytes.
    pub const fn mib(count: u64) -> Bytes {
        Bytes(count << 20)
    }

    /// `count` times 1,073,741,824 bytes.
    pub const fn gib(count: u64) -> Bytes {
        Bytes(count << 30)
    }

    /// The plain number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The plain number as a float, for arithmetic on rates.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// `self - other`, or zero where that would be negative.
    pub const fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0 + other.0)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        self.0 += other.0;
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        Bytes(self.0 - other.0)
    }
}

impl Mul<u64> for Bytes {
    type Output = Bytes;
    fn mul(self, factor: u64) -> Bytes {
        Bytes(self.0 * factor)
    }
}

impl Div<u64> for Bytes {
    type Output = Bytes;
    fn div(self, divisor: u64) -> Bytes {
        Bytes(self.0 / divisor)
    }
}

impl Sum for Bytes {
    /// The sum, or the largest number where it does not fit: sizes from outside are added up to be held against a limit.
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, |sum, bytes| Bytes(sum.0.saturating_add(bytes.0)))
    }
}

impl fmt::Display for Bytes {
    /// Prints the largest binary unit that leaves a number of at least 1, with up to two decimals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) =
            UNITS[..4].iter().find(|(_, factor)| self.0 >= *factor).copied().unwrap_or(("B", 1));
        let text = if self.0.is_multiple_of(factor) {
            format!("{}{unit}", self.0 / factor)
        } else {
            format!("{:.2}{unit}", self.0 as f64 / factor as f64)
        };
        f.pad(&text)
    }
}

/// A text that is not a quantity of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseBytesError {
    /// What was found.
    pub found: String,
}

impl fmt::Display for ParseBytesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a size in bytes: expected a number and a unit, as in `64MiB` or `4096`",
            self.found
        )
    }
}

impl std::error::Error for ParseBytesError {}

impl FromStr for Bytes {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Bytes, ParseBytesError> {
        let error = || ParseBytesError { found: text.to_owned() };
        let text_trimmed = text.trim();
        let split =
            text_trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text_trimmed.len());
        let (number, unit) = text_trimmed.split_at(split);
        let unit = unit.trim();
        let factor = match unit {
            "K" | "k" => 1 << 10,
            "M" => 1 << 20,
            "G" => 1 << 30,
            "T" => 1 << 40,
            _ => UNITS
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(unit))
                .map(|(_, factor)| *factor)
                .ok_or_else(error)?,
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(Bytes).ok_or_else(error);
        }
        let number: f64 = number.parse().map_err(|_| error())?;
        let bytes = (number * factor as f64).round();
        if !bytes.is_finite() || bytes < 0.0 || bytes >= u64::MAX as f64 {
            return Err(error());
        }
        Ok(Bytes(bytes as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_and_printed() {
        for (text, bytes) in [
            ("4096", 4096),
            ("4KiB", 4096),
            ("4k", 4096),
            ("1.5GiB", 3 << 29),
            ("10MB", 10_000_000),
            ("64 MiB", 64 << 20),
            ("0", 0),
        ] {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)), "{text}");
        }
        assert_eq!([Bytes(u64::MAX), Bytes(1), Bytes(1)].into_iter().sum::<Bytes>(), Bytes(u64::MAX));
        assert_eq!(Bytes(4096).to_string(), "4KiB");
        assert_eq!(Bytes(3 << 29).to_string(), "1.50GiB");
        assert_eq!(Bytes(12).to_string(), "12B");
    }

    #[test]
    fn nonsense_is_refused_with_what_was_found() {
        for text in ["", "MiB", "1.2.3MiB", "-4KiB", "4 parsecs", "99999999999TiB", "nan"] {
            let error = text.parse::<Bytes>().unwrap_err();
            assert_eq!(error.found, text);
        }
    }
}
