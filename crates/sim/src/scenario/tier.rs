//! The chunk tier of a scenario: on which device, how large, and how it is decided what is on it.

use super::text::{optional, text};
use super::{Scenario, ScenarioError, VolumeTable, default};
use forebay_policy::placement::{Admission, Placing, Shape};
use forebay_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// What becomes of writes to chunks of the tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TierWrites {
    /// They go to the origin, and the tier's copy is written too.
    #[default]
    Through,
    /// They go to the tier alone, whose chunks move back when they leave: the chunk's home has moved, as in SANCache.
    Home,
}

/// A tier of chunks between caches and origins.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierTable {
    /// The name of the origin that is its device; no volume lies there.
    pub origin: String,
    /// Its size.
    #[serde(deserialize_with = "text")]
    pub size: Bytes,
    /// The unit of placement; 64 KiB unless set.
    #[serde(default, deserialize_with = "optional")]
    pub chunk: Option<Bytes>,
    /// What becomes of writes.
    #[serde(default)]
    pub writes: TierWrites,
    /// Who may enter, and who leaves; `adaptive` unless set.
    #[serde(default = "adaptive", deserialize_with = "text")]
    pub admission: Admission,
    /// Accesses after which counts are cooled by one, as a multiple of the tier's chunks.
    pub cooling: Option<f64>,
    /// How far above the coldest a chunk must be, in counts.
    pub margin: Option<f64>,
    /// What moving a chunk costs, in random accesses of the origin.
    pub migration_cost: Option<f64>,
    /// Whether sequential runs are left to the origin.
    pub skip_sequential: Option<bool>,
    /// Whether what the array's cache answers is left to it.
    pub exclusive: Option<bool>,
    /// A read that the origin answers faster took no disk.
    #[serde(default, deserialize_with = "optional")]
    pub fast_latency: Option<Nanos>,
    /// Bytes per second that are moved at most.
    #[serde(default, deserialize_with = "optional")]
    pub migration_per_second: Option<Bytes>,
    /// Chunks on their way at once at most.
    pub moving_max: Option<u32>,
    /// Time between two looks at the threshold.
    #[serde(default, deserialize_with = "optional")]
    pub window: Option<Nanos>,
}

fn adaptive() -> Admission {
    Admission::Adaptive
}

/// When a volume uses the tier.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierUse {
    /// From when on; the start unless set.
    #[serde(default = "default::zero", deserialize_with = "text")]
    pub from: Nanos,
    /// Until when; the end unless set.
    #[serde(default, deserialize_with = "optional")]
    pub until: Option<Nanos>,
}

impl TierTable {
    /// A tier with nothing else set.
    pub fn new(origin: &str, size: Bytes) -> TierTable {
        TierTable {
            origin: origin.to_owned(),
            size,
            chunk: None,
            writes: TierWrites::default(),
            admission: adaptive(),
            cooling: None,
            margin: None,
            migration_cost: None,
            skip_sequential: None,
            exclusive: None,
            fast_latency: None,
            migration_per_second: None,
            moving_max: None,
            window: None,
        }
    }

    /// The unit of placement.
    pub fn chunk(&self) -> Bytes {
        self.chunk.unwrap_or(Bytes::kib(64))
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape::new(self.size.get(), self.chunk().get())
    }

    pub(crate) fn placing(&self) -> Placing {
        let given = Placing::default();
        let most = self.migration_per_second.map_or(given.bytes_per_second_max, Bytes::get);
        Placing {
            admission: self.admission,
            cooling: self.cooling.unwrap_or(given.cooling),
            write_weight: match self.writes {
                TierWrites::Through => given.write_weight,
                TierWrites::Home => 1.0,
            },
            margin: self.margin.unwrap_or(given.margin),
            migration_cost: self.migration_cost.unwrap_or(given.migration_cost),
            skip_sequential: self.skip_sequential.unwrap_or(given.skip_sequential),
            exclusive: self.exclusive.unwrap_or(given.exclusive),
            fast_latency: self.fast_latency.unwrap_or(given.fast_latency),
            bytes_per_second_max: most,
            bytes_per_second_min: given.bytes_per_second_min.min(most),
            moving_max: self.moving_max.unwrap_or(given.moving_max),
            window: self.window.unwrap_or(given.window),
        }
    }
}

impl Scenario {
    /// The place of the tier's device among the origins.
    pub(crate) fn tier_device(&self) -> Option<usize> {
        let tier = self.tier.as_ref()?;
        self.origin.iter().position(|origin| origin.name == tier.origin)
    }

    /// Whether the tier may take a volume's writes in place of its origin.
    pub(super) fn writes_may_be_taken(&self, volume: &VolumeTable) -> bool {
        volume.tier.is_some() && self.tier.as_ref().is_some_and(|tier| tier.writes == TierWrites::Home)
    }

    /// Whether what the tier uses of its size, its whole chunks, lies within the `capacity` of its device, where origin number `at` is that.
    pub(super) fn check_tier_fits(&self, at: usize, capacity: Bytes) -> Result<(), ScenarioError> {
        let Some(tier) = self.tier.as_ref().filter(|_| self.tier_device() == Some(at)) else {
            return Ok(());
        };
        let (size, chunk) = (tier.size.get(), tier.chunk().get().max(1));
        if size - size % chunk <= capacity.get() {
            return Ok(());
        }
        Err(ScenarioError::TierTooLarge {
            key: "tier.size".to_owned(),
            size: tier.size,
            origin: tier.origin.clone(),
            capacity,
        })
    }

    pub(super) fn check_tier(&self) -> Result<(), ScenarioError> {
        let wrong = |key: &str, found: String, expected| {
            Err(ScenarioError::OutOfRange { key: key.to_owned(), found, expected })
        };
        let Some(tier) = &self.tier else {
            let at = self.volume.iter().position(|volume| volume.tier.is_some());
            return match at {
                Some(at) => Err(ScenarioError::Missing {
                    key: format!("volume[{at}].tier"),
                    missing: "tier",
                    because: "a volume that uses it",
                }),
                None => Ok(()),
            };
        };
        let name = |problem| {
            Err(ScenarioError::Name { key: "tier.origin".to_owned(), name: tier.origin.clone(), problem })
        };
        let Some(device) = self.tier_device() else {
            return name("is no origin of this scenario");
        };
        if self.volume.iter().any(|volume| self.origin_of(volume) == Some(device)) {
            return name("has volumes: the tier needs a device of its own");
        }
        if self.cache.shared {
            return wrong("tier", "this table".to_owned(), "not with `cache.shared`");
        }
        if let Err(error) = tier.shape().check() {
            let key = if error.what == "chunk" { "tier.chunk" } else { "tier.size" };
            if key == "tier.size" && tier.size < tier.chunk.unwrap_or(Bytes::kib(64)) {
                return wrong(key, tier.size.to_string(), "a `tier.chunk` or more (64KiB unless set)");
            }
            return wrong(key, error.found.to_string(), error.expected);
        }
        let placing = tier.placing();
        for (key, found, least, most, expected) in [
            ("tier.cooling", placing.cooling, 1e-6, 1e6, "from 1e-6 to 1e6"),
            ("tier.margin", placing.margin, 0.0, 512.0, "from 0 to 512"),
            ("tier.migration_cost", placing.migration_cost, 0.0, 1e3, "from 0 to 1000"),
        ] {
            if !(least..=most).contains(&found) {
                return wrong(key, found.to_string(), expected);
            }
        }
        if placing.bytes_per_second_max == 0 {
            return wrong("tier.migration_per_second", "0 B".to_owned(), "above 0");
        }
        if placing.window == Nanos::ZERO {
            return wrong("tier.window", placing.window.to_string(), "above 0");
        }
        if !(1..=1_024).contains(&placing.moving_max) {
            return wrong("tier.moving_max", placing.moving_max.to_string(), "from 1 to 1024");
        }
        for (at, volume) in self.volume.iter().enumerate() {
            let Some(used) = &volume.tier else { continue };
            if volume.block_size.is_some_and(|block| block > tier.chunk()) {
                return wrong("tier.chunk", tier.chunk().to_string(), "at least a block of every volume");
            }
            if volume.size.get() / tier.chunk().get() >= 1 << 32 {
                return wrong("tier.chunk", tier.chunk().to_string(), "at most 2^32 chunks of a volume");
            }
            if used.until.is_some_and(|until| until <= used.from) {
                let found = used.until.unwrap_or_default().to_string();
                return wrong(&format!("volume[{at}].tier.until"), found, "later than `from`");
            }
        }
        Ok(())
    }
}
