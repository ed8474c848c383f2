//! What the controller is told once: volumes with their objectives, origins with what is known of them, hosts.

use crate::host::Room;
use crate::objective::{Objective, ObjectiveError};
use forebay_units::{BlockSize, Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// The number of a volume, chosen by who registers it; unique in one controller, never used again for another volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VolumeId(pub u32);

/// The number of an origin: volumes with the same number compete for the same spindles, links and queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OriginId(pub u32);

/// The number of a host that can hold caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HostId(pub u32);

/// A volume as configured.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeSpec {
    /// Its number.
    pub id: VolumeId,
    /// Its name, for people.
    pub name: String,
    /// Its size.
    pub size: Bytes,
    /// The unit of caching.
    pub block_size: BlockSize,
    /// Where its data lives.
    pub origin: OriginId,
    /// The host of the application that uses it.
    pub host: HostId,
    /// What it was promised; empty for a volume that nobody promised anything and that may still be cached to help
    /// a neighbour.
    pub objectives: Vec<Objective>,
    /// Whether a cache in front of it is allowed at all.
    pub may_cache: bool,
    /// Cache that it always has, granted before anything else. Zero for none.
    pub minimum: Bytes,
    /// Cache that it never exceeds. `None`: its own size.
    pub maximum: Option<Bytes>,
}

impl VolumeSpec {
    /// A volume of which a test says only what it is about.
    #[cfg(test)]
    pub(crate) fn any() -> VolumeSpec {
        VolumeSpec {
            id: VolumeId(1),
            name: "db".to_owned(),
            size: Bytes::gib(1),
            block_size: BlockSize::DEFAULT,
            origin: OriginId(1),
            host: HostId(0),
            objectives: Vec::new(),
            may_cache: true,
            minimum: Bytes::ZERO,
            maximum: None,
        }
    }

    /// Checks the volume and its objectives.
    ///
    /// # Errors
    /// [`VolumeSpecError`] says which field is wrong and why.
    pub fn check(&self) -> Result<(), VolumeSpecError> {
        let volume = || self.name.clone();
        if self.size == Bytes::ZERO {
            return Err(VolumeSpecError::Empty { volume: volume() });
        }
        let maximum = self.maximum.unwrap_or(self.size);
        if self.minimum > maximum {
            return Err(VolumeSpecError::MinimumAboveMaximum {
                volume: volume(),
                minimum: self.minimum,
                maximum,
            });
        }
        for objective in &self.objectives {
            objective.check().map_err(|source| VolumeSpecError::Objective { volume: volume(), source })?;
        }
        Ok(())
    }

    /// The most blocks that its cache may hold: its maximum, at most its size.
    pub fn blocks_max(&self) -> u64 {
        let bytes = self.maximum.unwrap_or(self.size).min(self.size);
        self.block_size.blocks_for(bytes)
    }
}

/// Why a volume cannot be registered.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeSpecError {
    /// It holds nothing.
    #[error("volume `{volume}` has no bytes")]
    Empty {
        /// Its name.
        volume: String,
    },
    /// Its guaranteed cache is larger than its largest cache.
    #[error("volume `{volume}` has a minimum cache of {minimum}, expected at most its maximum of {maximum}")]
    MinimumAboveMaximum {
        /// Its name.
        volume: String,
        /// The guarantee.
        minimum: Bytes,
        /// The bound.
        maximum: Bytes,
    },
    /// One of its objectives cannot be judged.
    #[error("volume `{volume}` has an objective that cannot be judged")]
    Objective {
        /// Its name.
        volume: String,
        /// What is wrong with it.
        source: ObjectiveError,
    },
    /// The minimums of all volumes exceed what there is.
    #[error(
        "the minimum of volume `{volume}` brings the guaranteed cache to {guaranteed}, expected at most {capacity}"
    )]
    MinimumsExceedCapacity {
        /// Its name.
        volume: String,
        /// The sum of all minimums with this one.
        guaranteed: Bytes,
        /// All the cache there is.
        capacity: Bytes,
    },
}

/// What is known of an origin beforehand; everything unknown is fitted from what is observed.
#[derive(Clone, Debug, PartialEq)]
pub struct OriginSpec {
    /// Its number.
    pub id: OriginId,
    /// Its name, for people.
    pub name: String,
    /// How many requests it serves at once (spindles of a group, channels of an SSD). `None`: fitted.
    pub servers: Option<f64>,
    /// Squared coefficient of variation of its service times. `None`: 0.3, a seek and half a turn (ours).
    pub service_cv2: Option<f64>,
    /// Mean service time of one random request without a queue. `None`: fitted.
    pub service: Option<Nanos>,
}

/// A host that can hold caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// Its number.
    pub id: HostId,
    /// Its name, for people.
    pub name: String,
    /// The rack it stands in; hosts of one rack are near each other.
    pub rack: u32,
    /// Memory that it offers for caches at most.
    pub capacity: Bytes,
    /// Flash that it offers for caches.
    pub flash: Bytes,
    /// Thousandths of a processor that it offers for caches.
    pub cpu_milli: u32,
    /// By what appliances are had there, in words: by another they would not be found again. Empty where it does not matter.
    pub provider: String,
}

impl HostSpec {
    /// A host with memory alone; its processors are not counted.
    pub fn new(id: HostId, name: impl Into<String>, rack: u32, capacity: Bytes) -> HostSpec {
        HostSpec {
            id,
            name: name.into(),
            rack,
            capacity,
            flash: Bytes::ZERO,
            cpu_milli: u32::MAX,
            provider: String::new(),
        }
    }

    /// All that it offers.
    pub fn room(&self) -> Room {
        Room { memory: self.capacity, flash: self.flash, cpu_milli: self.cpu_milli }
    }
}
