//! Fields of text records: numbers and times, checked for overflow, without copies.

use crate::error::Bad;

/// A line that is taken apart from left to right.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    ended: bool,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(line: &'a [u8]) -> Fields<'a> {
        Fields { rest: line, ended: false }
    }

    /// The bytes up to `separator` or the end; `None` behind the last field.
    #[inline]
    pub(crate) fn next(&mut self, separator: u8) -> Option<&'a [u8]> {
        if self.ended {
            return None;
        }
        match self.rest.iter().position(|byte| *byte == separator) {
            Some(at) => {
                let field = &self.rest[..at];
                self.rest = &self.rest[at + 1..];
                Some(field)
            }
            None => {
                self.ended = true;
                Some(std::mem::take(&mut self.rest))
            }
        }
    }

    /// The bytes up to the next white space, with white space before it left out; `None` at the end.
    #[inline]
    pub(crate) fn next_word(&mut self) -> Option<&'a [u8]> {
        let start = self.rest.iter().position(|byte| !byte.is_ascii_whitespace())?;
        let rest = &self.rest[start..];
        let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        self.rest = &rest[end..];
        Some(&rest[..end])
    }

    /// What was not taken.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next field as a whole number.
    #[inline]
    pub(crate) fn number(&mut self, separator: u8, name: &'static str) -> Result<u64, Bad> {
        // One pass for the usual case: digits and then the separator; 18 digits cannot overflow.
        let mut value = 0u64;
        for (at, byte) in self.rest.iter().enumerate().take(19) {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                if *byte == separator && at > 0 {
                    self.rest = &self.rest[at + 1..];
                    return Ok(value);
                }
                break;
            }
            if at == 18 {
                break;
            }
            value = value * 10 + u64::from(digit);
        }
        self.number_checked(separator, name)
    }

    #[cold]
    fn number_checked(&mut self, separator: u8, name: &'static str) -> Result<u64, Bad> {
        let field = self.next(separator).ok_or_else(|| missing(name))?;
        whole(field, name)
    }

    /// The next word as a whole number.
    #[inline]
    pub(crate) fn number_word(&mut self, name: &'static str) -> Result<u64, Bad> {
        whole(self.next_word().ok_or_else(|| missing(name))?, name)
    }
}

/// A field that is not there.
#[cold]
pub(crate) fn missing(name: &str) -> Bad {
    Bad::new(format!("no {name}"), "a whole record")
}

/// A non-negative whole number below 2^64.
#[inline]
pub(crate) fn whole(field: &[u8], name: &str) -> Result<u64, Bad> {
    let field = field.trim_ascii();
    let bad = || Bad::field(name, field, "a whole number from 0 to 2^64 - 1");
    if field.is_empty() {
        return Err(bad());
    }
    let mut value = 0u64;
    for byte in field {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(bad());
        }
        value =
            value.checked_mul(10).and_then(|value| value.checked_add(u64::from(digit))).ok_or_else(bad)?;
    }
    Ok(value)
}

/// A non-negative decimal number of units of `unit_nanos` nanoseconds, in nanoseconds. Digits behind the ninth
/// decimal are below all that the formats resolve and are left out.
#[inline]
pub(crate) fn decimal_nanos(field: &[u8], unit_nanos: u64, name: &str) -> Result<u64, Bad> {
    let field = field.trim_ascii();
    let bad = || Bad::field(name, field, "a non-negative decimal number whose nanoseconds are below 2^64");
    let (integer, fraction) = match field.iter().position(|byte| *byte == b'.') {
        Some(at) => (&field[..at], &field[at + 1..]),
        None => (field, &field[field.len()..]),
    };
    if integer.is_empty() && fraction.is_empty() {
        return Err(bad());
    }
    let mut value = 0u64;
    for byte in integer {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(bad());
        }
        value =
            value.checked_mul(10).and_then(|value| value.checked_add(u64::from(digit))).ok_or_else(bad)?;
    }
    let mut billionths = 0u64;
    let mut weight = 100_000_000u64;
    for byte in fraction {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(bad());
        }
        billionths += u64::from(digit) * weight;
        weight /= 10;
    }
    // unit_nanos is at most 1e9 and billionths below 1e9: the product fits.
    let part = (billionths * unit_nanos + 500_000_000) / 1_000_000_000;
    value.checked_mul(unit_nanos).and_then(|whole| whole.checked_add(part)).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let mut fields = Fields::new(b"12,0,18446744073709551615,x");
        assert_eq!(fields.number(b',', "a").unwrap(), 12);
        assert_eq!(fields.number(b',', "b").unwrap(), 0);
        assert_eq!(fields.number(b',', "c").unwrap(), u64::MAX);
        assert_eq!(fields.number(b',', "d").unwrap_err().0.found, "`x` as d");
        assert_eq!(fields.number(b',', "e").unwrap_err().0.found, "no e");
        assert_eq!(Fields::new(b"7").number(b',', "last").unwrap(), 7);
        for text in ["18446744073709551616", "", "-1", "1e3", "0x10", "99999999999999999999999", "1\0", "1.0"]
        {
            assert!(whole(text.as_bytes(), "n").is_err(), "{text}");
            assert!(Fields::new(text.as_bytes()).number(b',', "n").is_err(), "{text}");
        }
    }

    #[test]
    fn times() {
        for (text, unit, nanos) in [
            ("0.551706", 1_000_000_000, 551_706_000),
            ("5265.313", 1_000_000, 5_265_313_000),
            (".5", 1_000, 500),
            ("7.", 1, 7),
            ("1456095145.133076000", 1_000_000_000, 1_456_095_145_133_076_000),
            ("0.9999999999", 1_000_000_000, 999_999_999),
            ("0.6", 1, 1),
        ] {
            assert_eq!(decimal_nanos(text.as_bytes(), unit, "time").unwrap(), nanos, "{text}");
        }
        for text in ["-1.0", ".", "", "1e9", "nan", "1.2.3", "18446744074", "1.-5"] {
            assert!(decimal_nanos(text.as_bytes(), 1_000_000_000, "time").is_err(), "{text}");
        }
    }

    #[test]
    fn words() {
        let mut fields = Fields::new(b"  a\t bc 9 ");
        assert_eq!(fields.next_word(), Some(&b"a"[..]));
        assert_eq!(fields.next_word(), Some(&b"bc"[..]));
        assert_eq!(fields.number_word("n").unwrap(), 9);
        assert_eq!(fields.next_word(), None);
    }
}
