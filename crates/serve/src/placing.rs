//! Who is let onto the flash of a volume: as configured, and as a person says while it serves.
//!
//! It decides nothing: `policy::placement` does, inside the data path, which needs nothing from here.

use crate::daemon::Shared;
use forebay_appliance::CommandError;
use forebay_appliance::volume::{ClientAddress, FlashPlacing, UnknownClient};
use forebay_policy::placement::{Admission, Placing, UnknownAdmission};
use forebay_units::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::str::FromStr;
use thiserror::Error;

/// Who is let onto flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlashAdmission {
    /// Whatever memory evicts.
    #[default]
    Evicted,
    /// The chunks that a placement promotes, and what memory evicts of them.
    Placed(Admission),
}

impl Display for FlashAdmission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlashAdmission::Evicted => f.pad("evicted"),
            FlashAdmission::Placed(admission) => admission.fmt(f),
        }
    }
}

impl FromStr for FlashAdmission {
    type Err = UnknownFlashAdmission;

    fn from_str(name: &str) -> Result<FlashAdmission, UnknownFlashAdmission> {
        match name {
            "evicted" => Ok(FlashAdmission::Evicted),
            _ => Ok(FlashAdmission::Placed(name.parse()?)),
        }
    }
}

/// A name that no admission to flash has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}, or evicted")]
pub struct UnknownFlashAdmission(#[from] UnknownAdmission);

/// How all volumes' flash is placed, as far as they do not say otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct FlashRules {
    /// For volumes that name none of their own.
    pub admission: FlashAdmission,
    /// The unit in which accesses are counted and content is moved.
    pub chunk: Bytes,
    /// What a volume's migrations may take of its origin, in bytes per second; less where clients feel them.
    pub migration_bytes_per_second_max: Bytes,
    /// Whether reads count only as far as the origin's own cache would not answer them as fast.
    pub exclusive: bool,
    /// Clients whose requests bring nothing onto flash.
    pub left_out: BTreeSet<ClientAddress>,
}

impl Default for FlashRules {
    fn default() -> FlashRules {
        let placing = Placing::default();
        FlashRules {
            admission: FlashAdmission::default(),
            chunk: FlashPlacing::default().chunk,
            migration_bytes_per_second_max: Bytes(placing.bytes_per_second_max),
            exclusive: placing.exclusive,
            left_out: BTreeSet::new(),
        }
    }
}

impl FlashRules {
    /// The same in the data path's words; `None`: whatever memory evicts.
    pub(crate) fn placing(&self, admission: FlashAdmission) -> Option<FlashPlacing> {
        let FlashAdmission::Placed(admission) = admission else { return None };
        let defaults = Placing::default();
        let most = self.migration_bytes_per_second_max.get();
        let placing = Placing {
            admission,
            exclusive: self.exclusive,
            bytes_per_second_max: most,
            bytes_per_second_min: defaults.bytes_per_second_min.min(most),
            moving_max: MOVING_MAX,
            ..defaults
        };
        Some(FlashPlacing { placing, chunk: self.chunk })
    }
}

/// What a person asks for; what is absent is as configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacingRequest {
    /// `evicted`, `adaptive`, `threshold-N`, `demand`, `larc` or `lru`.
    pub admission: String,
    /// What migrations may take of the origin, in bytes per second; at least 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration_bytes_per_second_max: Option<u64>,
    /// Whether reads count only as far as the origin's own cache would not answer them as fast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive: Option<bool>,
    /// Clients whose requests bring nothing onto flash, and no others: IP addresses, and `uid:N` for who comes over a unix socket as user N.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leave_out: Option<Vec<String>>,
}

/// Clients that may be left out of a volume's flash (ours).
const LEFT_OUT_MAX: usize = 256;

/// The clients of these names.
///
/// # Errors
/// [`LeaveOutError`].
pub(crate) fn left_out(names: &[String]) -> Result<BTreeSet<ClientAddress>, LeaveOutError> {
    if names.len() > LEFT_OUT_MAX {
        return Err(LeaveOutError::TooMany { found: names.len() });
    }
    Ok(names.iter().map(|name| name.parse()).collect::<Result<_, _>>()?)
}

/// Why clients cannot be left out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LeaveOutError {
    /// One of them is none.
    #[error(transparent)]
    Client(#[from] UnknownClient),
    /// There are too many.
    #[error("{found} clients are to be left out, expected at most {LEFT_OUT_MAX}")]
    TooMany {
        /// How many.
        found: usize,
    },
}

/// Chunks of a volume on their way at once. Several wait for each other at the same disks, and clients behind them: with four that are asked for together, the 99th percentile rises by twice as much.
const MOVING_MAX: u32 = 1;

/// The least that migrations may be given: a chunk in a second.
pub(crate) const MIGRATION_RATE_MIN: Bytes = Bytes::kib(64);

/// Why a volume's flash is not placed otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlacingError {
    /// There is no such admission.
    #[error(transparent)]
    Admission(#[from] UnknownFlashAdmission),
    /// Clients cannot be left out.
    #[error(transparent)]
    LeaveOut(#[from] LeaveOutError),
    /// Nothing would ever move.
    #[error("migrations may take {found} per second, expected at least {MIGRATION_RATE_MIN}")]
    Rate {
        /// What was asked for.
        found: Bytes,
    },
    /// The volume has no flash.
    #[error("volume `{volume}` has no flash: `flash` is not set, or 0")]
    NoFlash {
        /// Which.
        volume: String,
    },
    /// No chunk fits into the volume's flash: none would ever be placed.
    #[error(
        "volume `{volume}` has {found} of flash, less than a chunk, and chunks are placed as a whole: expected at least `flash.chunk`, which is {expected}"
    )]
    Chunk {
        /// Which.
        volume: String,
        /// What it has.
        found: Bytes,
        /// What a chunk is.
        expected: Bytes,
    },
    /// There is no such volume, or its origin is absent.
    #[error(transparent)]
    Command(#[from] CommandError),
}

/// Places a volume's flash otherwise from now on, until the daemon ends.
pub(crate) fn set(shared: &Shared, volume: &str, request: &PlacingRequest) -> Result<(), PlacingError> {
    let admission: FlashAdmission = request.admission.parse()?;
    let mut rules = shared.config.flash_rules.clone();
    if let Some(rate) = request.migration_bytes_per_second_max.map(Bytes) {
        if rate < MIGRATION_RATE_MIN {
            return Err(PlacingError::Rate { found: rate });
        }
        rules.migration_bytes_per_second_max = rate;
    }
    rules.exclusive = request.exclusive.unwrap_or(rules.exclusive);
    if let Some(configured) = shared.config.volumes.iter().find(|found| found.name == volume) {
        if configured.flash == Bytes::ZERO {
            return Err(PlacingError::NoFlash { volume: volume.to_owned() });
        }
        let device = shared.flash.as_ref().map_or(Bytes::ZERO, |flash| flash.capacity());
        let (found, expected) = (configured.flash.min(device), rules.chunk);
        if admission != FlashAdmission::Evicted && found < expected {
            return Err(PlacingError::Chunk { volume: volume.to_owned(), found, expected });
        }
    }
    if let Some(names) = &request.leave_out {
        rules.left_out = left_out(names)?;
    }
    shared.appliance.set_flash_placing(volume, rules.placing(admission))?;
    shared.appliance.leave_out_of_flash(volume, rules.left_out)?;
    tracing::info!(volume, %admission, "flash is placed otherwise");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_their_admissions_and_rules_to_a_placement() {
        for name in ["evicted", "adaptive", "threshold-4", "demand", "larc", "lru"] {
            assert_eq!(name.parse::<FlashAdmission>().unwrap().to_string(), name);
        }
        let wrong = "hottest".parse::<FlashAdmission>().unwrap_err().to_string();
        assert!(
            wrong.contains("hottest") && wrong.contains("threshold-N") && wrong.contains("evicted"),
            "{wrong}"
        );
        let rules = FlashRules { migration_bytes_per_second_max: Bytes::kib(256), ..FlashRules::default() };
        assert_eq!(rules.placing(FlashAdmission::Evicted), None);
        let placed = rules.placing(FlashAdmission::Placed(Admission::Demand)).unwrap();
        // The least rate is 1 MiB/s by default, and never above the most.
        assert_eq!(placed.placing.bytes_per_second_min, 256 << 10);
        assert_eq!((placed.placing.admission, placed.chunk), (Admission::Demand, Bytes::kib(64)));
        assert_eq!(placed.placing.moving_max, 1);
    }
}
