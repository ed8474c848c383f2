//! Ratios: numbers from 0 to 1.

use std::fmt;

/// A number from 0 to 1; a *rate* is per second and is no ratio.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Ratio(f64);

/// A number that is not from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatioError {
    /// What was found.
    pub found: f64,
}

impl fmt::Display for RatioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a ratio: expected a number from 0 to 1", self.found)
    }
}

impl std::error::Error for RatioError {}

impl Ratio {
    /// Nothing of the whole.
    pub const ZERO: Ratio = Ratio(0.0);
    /// All of the whole.
    pub const ONE: Ratio = Ratio(1.0);

    /// The ratio `value`.
    ///
    /// # Errors
    /// [`RatioError`] unless `value` is from 0 to 1.
    pub fn new(value: f64) -> Result<Ratio, RatioError> {
        if (0.0..=1.0).contains(&value) { Ok(Ratio(value)) } else { Err(RatioError { found: value }) }
    }

    /// `part / whole`; 0 where the whole is 0, 1 where the part is larger than the whole.
    pub fn of(part: u64, whole: u64) -> Ratio {
        if whole == 0 { Ratio::ZERO } else { Ratio((part as f64 / whole as f64).min(1.0)) }
    }

    /// The nearest ratio to `value`; 0 for what is no number.
    pub fn clamped(value: f64) -> Ratio {
        Ratio(if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) })
    }

    /// The plain number.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// What is missing to the whole.
    pub fn complement(self) -> Ratio {
        Ratio(1.0 - self.0)
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_kept() {
        assert_eq!(Ratio::new(0.25).unwrap().complement().get(), 0.75);
        assert!(Ratio::new(1.01).is_err() && Ratio::new(f64::NAN).is_err());
        assert_eq!(Ratio::of(3, 0), Ratio::ZERO);
        assert_eq!(Ratio::of(3, 2), Ratio::ONE);
        assert_eq!(Ratio::clamped(f64::NAN), Ratio::ZERO);
    }
}
