//! Quantities of bytes, and how people write them.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub};
use std::str::FromStr;

/// A quantity of bytes.
///
/// Written and parsed with binary units (`4KiB`, `64MiB`, `1.5GiB`, up to `EiB`), decimal units (`10MB`) or none (`4096`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// Binary units first, the largest first: the order in which [`Bytes`] looks for the unit to print.
const UNITS: [(&str, u64); 15] = [
    ("EiB", 1 << 60),
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("EB", 1_000_000_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
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
            UNITS[..6].iter().find(|(_, factor)| self.0 >= *factor).copied().unwrap_or(("B", 1));
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
    /// Whether it is a quantity, but more than can be counted.
    pub is_too_large: bool,
}

impl fmt::Display for ParseBytesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_too_large {
            return write!(
                f,
                "`{}` is too large: expected at most 2^64 - 1 bytes, one less than 16EiB",
                self.found
            );
        }
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
        let failed = |is_too_large| ParseBytesError { found: text.to_owned(), is_too_large };
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
            "P" => 1 << 50,
            "E" => 1 << 60,
            _ => UNITS
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(unit))
                .map(|(_, factor)| *factor)
                .ok_or_else(|| failed(false))?,
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(Bytes).ok_or_else(|| failed(true));
        }
        // Digits and a point alone: what is parsed is neither negative nor no number.
        let number: f64 = number.parse().map_err(|_| failed(false))?;
        let bytes = (number * factor as f64).round();
        if bytes >= u64::MAX as f64 { Err(failed(true)) } else { Ok(Bytes(bytes as u64)) }
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
            ("1PiB", 1 << 50),
            ("2 PB", 2_000_000_000_000_000),
            ("15.5EiB", 31 << 59),
        ] {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)), "{text}");
        }
        assert_eq!([Bytes(u64::MAX), Bytes(1), Bytes(1)].into_iter().sum::<Bytes>(), Bytes(u64::MAX));
        assert_eq!(Bytes(4096).to_string(), "4KiB");
        assert_eq!(Bytes(3 << 29).to_string(), "1.50GiB");
        assert_eq!(Bytes(12).to_string(), "12B");
        assert_eq!([Bytes(64 << 50), Bytes(3 << 59)].map(|bytes| bytes.to_string()), ["64PiB", "1.50EiB"]);
    }

    #[test]
    fn nonsense_is_refused_with_what_was_found() {
        for text in ["", "MiB", "1.2.3MiB", "-4KiB", "4 parsecs", "nan", "1e3KiB"] {
            let error = text.parse::<Bytes>().unwrap_err();
            assert_eq!((error.found.as_str(), error.is_too_large), (text, false));
        }
        for text in ["99999999999TiB", "16EiB", "18446744073709551616", "16384.5 PiB"] {
            assert!(text.parse::<Bytes>().unwrap_err().is_too_large, "{text}");
        }
        let error = "20000.5PiB".parse::<Bytes>().unwrap_err().to_string();
        assert_eq!(error, "`20000.5PiB` is too large: expected at most 2^64 - 1 bytes, one less than 16EiB");
    }
}
