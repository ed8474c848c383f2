//! Who may enter a tier, by name.

use std::fmt::{self, Display};
use std::str::FromStr;

/// Who may enter the tier, and who leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Everything that was not there; the least recently used leaves.
    Lru,
    /// Lazy adaptive replacement: what is used a second time while it is remembered; the least recently used leaves.
    Larc,
    /// Everything that was not there; the one with the lowest count leaves.
    Demand,
    /// A chunk whose count has reached this, 1 to 512, and is above the lowest count in the tier; that one leaves.
    Threshold(u16),
    /// The same, with the threshold of the grid that is best at the moment.
    Adaptive,
}

impl Admission {
    /// Whether counts decide who enters.
    pub(super) const fn selects(self) -> bool {
        matches!(self, Admission::Threshold(_) | Admission::Adaptive)
    }

    /// Whether counts order who leaves.
    pub(super) const fn counts(self) -> bool {
        !matches!(self, Admission::Lru | Admission::Larc)
    }
}

impl Display for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Admission::Lru => f.pad("lru"),
            Admission::Larc => f.pad("larc"),
            Admission::Demand => f.pad("demand"),
            Admission::Threshold(count) => f.pad(&format!("threshold-{count}")),
            Admission::Adaptive => f.pad("adaptive"),
        }
    }
}

/// A name that no admission has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownAdmission(String);

impl Display for UnknownAdmission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not an admission: expected adaptive, threshold-N with N from 1 to 512, demand, larc or lru",
            self.0
        )
    }
}

impl std::error::Error for UnknownAdmission {}

impl FromStr for Admission {
    type Err = UnknownAdmission;

    fn from_str(name: &str) -> Result<Admission, UnknownAdmission> {
        match name {
            "lru" => Ok(Admission::Lru),
            "larc" => Ok(Admission::Larc),
            "demand" => Ok(Admission::Demand),
            "adaptive" => Ok(Admission::Adaptive),
            _ => {
                let count = name.strip_prefix("threshold-").and_then(|count| count.parse().ok());
                let count = count.filter(|count| (1..=512).contains(count));
                count.map(Admission::Threshold).ok_or_else(|| UnknownAdmission(name.to_owned()))
            }
        }
    }
}
