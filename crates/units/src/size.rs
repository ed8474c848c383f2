//! Cache sizes as people write them: bytes, blocks, or a share of the footprint or of a named working set.

use crate::{Bytes, Nanos, ParseBytesError};
use std::fmt;
use std::str::FromStr;

/// A cache size before the trace is known: `64MiB`, `1000` (blocks), `10%` of the footprint, `0.5wss(600s)`.
///
/// `locality` resolves it to blocks once footprint and working set sizes are known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SizeSpec {
    /// A number without a unit: blocks of the block size in force.
    Blocks(u64),
    /// A number with a unit of bytes.
    Bytes(Bytes),
    /// A share of the footprint (the distinct blocks of the whole trace), as in `10%`; may pass 1.
    Footprint(f64),
    /// A multiple of the mean working set size over windows of the named length, as in `0.5wss(600s)`.
    WorkingSet {
        /// The multiple, above 0.
        multiple: f64,
        /// The window's length.
        window: Nanos,
    },
}

/// A text that is not a cache size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseSizeError {
    /// What was found.
    pub found: String,
    /// Whether it is a number of blocks or bytes, but more than can be counted.
    pub is_too_large: bool,
}

impl fmt::Display for ParseSizeError {
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
            "`{}` is not a cache size: expected blocks (`1000`), bytes (`64MiB`), a share of the footprint (`10%`) \
             or of a working set (`0.5wss(600s)`)",
            self.found
        )
    }
}

impl std::error::Error for ParseSizeError {}

impl FromStr for SizeSpec {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<SizeSpec, ParseSizeError> {
        let error = || ParseSizeError { found: text.to_owned(), is_too_large: false };
        let positive = |number: &str| {
            number
                .trim()
                .parse::<f64>()
                .ok()
                .filter(|value| value.is_finite() && *value > 0.0)
                .ok_or_else(error)
        };
        let trimmed = text.trim();
        if let Some(number) = trimmed.strip_suffix('%') {
            return Ok(SizeSpec::Footprint(positive(number)? / 100.0));
        }
        if let Some((multiple, window)) = trimmed.strip_suffix(')').and_then(|inner| inner.split_once("wss("))
        {
            let window = window.parse().map_err(|_| error())?;
            if window == Nanos::ZERO {
                return Err(error());
            }
            let multiple = if multiple.trim().is_empty() { 1.0 } else { positive(multiple)? };
            return Ok(SizeSpec::WorkingSet { multiple, window });
        }
        if let Ok(blocks) = trimmed.parse::<u64>() {
            return Ok(SizeSpec::Blocks(blocks));
        }
        // There is no part of a block, and bytes, whose unit may be left out elsewhere, are not meant.
        if trimmed.contains('.') && trimmed.parse::<f64>().is_ok() {
            return Err(error());
        }
        trimmed.parse().map(SizeSpec::Bytes).map_err(|failed: ParseBytesError| ParseSizeError {
            is_too_large: failed.is_too_large,
            ..error()
        })
    }
}

impl fmt::Display for SizeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SizeSpec::Blocks(blocks) => write!(f, "{blocks}"),
            SizeSpec::Bytes(bytes) => write!(f, "{bytes}"),
            SizeSpec::Footprint(share) => write!(f, "{}%", share * 100.0),
            SizeSpec::WorkingSet { multiple, window } => write!(f, "{multiple}wss({window})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        assert_eq!("1000".parse(), Ok(SizeSpec::Blocks(1000)));
        assert_eq!("64MiB".parse(), Ok(SizeSpec::Bytes(Bytes::mib(64))));
        assert_eq!("2.5KiB".parse(), Ok(SizeSpec::Bytes(Bytes(2560))));
        assert_eq!("10%".parse(), Ok(SizeSpec::Footprint(0.1)));
        let half = SizeSpec::WorkingSet { multiple: 0.5, window: Nanos::secs(600) };
        assert_eq!("0.5wss(600s)".parse(), Ok(half));
        assert_eq!(half.to_string().parse(), Ok(half));
        for text in
            ["", "%", "-1%", "0%", "0.5wss()", "0.5wss(0s)", "wss", "ten", "1000.0", "2.5", ".5", "1000."]
        {
            assert!(!text.parse::<SizeSpec>().unwrap_err().is_too_large, "{text}");
        }
        for text in ["16EiB", "99999999999999999999"] {
            assert!(text.parse::<SizeSpec>().unwrap_err().to_string().contains("is too large"), "{text}");
        }
    }
}
