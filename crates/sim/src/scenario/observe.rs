//! How the locality of reads is observed: the keys, ranges and defaults of `[observe]` in the daemon's configuration.

use super::error::out_of_range;
use super::text::optional;
use super::{Scenario, ScenarioError};
use forebay_locality::LiveConfig;
use forebay_units::{BlockSize, Bytes, Nanos};
use serde::Deserialize;

/// What is left out is as in the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ObserveTable {
    /// Memory for the curves of a volume.
    #[serde(deserialize_with = "optional")]
    pub curve_memory: Option<Bytes>,
    /// A curve stands for the last one to two of these.
    #[serde(deserialize_with = "optional")]
    pub epoch: Option<Nanos>,
    /// Of the working set size and of hot zones.
    #[serde(deserialize_with = "optional")]
    pub window: Option<Nanos>,
    /// The unit in which heat is tracked.
    #[serde(deserialize_with = "optional")]
    pub zone_size: Option<Bytes>,
}

impl ObserveTable {
    /// For a volume of blocks of `block_size`; `seed` chooses which blocks are sampled.
    pub(crate) fn live(&self, block_size: BlockSize, seed: u64) -> LiveConfig {
        let typical = LiveConfig::default();
        LiveConfig {
            block_size,
            seed,
            curve_bytes: self.curve_memory.unwrap_or(typical.curve_bytes),
            epoch: self.epoch.unwrap_or(typical.epoch),
            window: self.window.unwrap_or(typical.window),
            zone_size: self.zone_size.unwrap_or(typical.zone_size),
            ..typical
        }
    }
}

impl Scenario {
    pub(super) fn check_observe(&self) -> Result<(), ScenarioError> {
        let ObserveTable { curve_memory, epoch, window, zone_size } = self.observe;
        let memory = Bytes::kib(16)..=Bytes::mib(16);
        if let Some(found) = curve_memory.filter(|bytes| !memory.contains(bytes)) {
            out_of_range("observe.curve_memory", found, "16 KiB to 16 MiB")?;
        }
        let day = Nanos::secs(86_400);
        if let Some(found) = epoch.filter(|span| *span < Nanos::secs(1) || span.0 > 7 * day.0) {
            out_of_range("observe.epoch", found, "1 s to 7 d")?;
        }
        if let Some(found) = window.filter(|span| *span < Nanos::millis(100) || *span > day) {
            out_of_range("observe.window", found, "100 ms to 1 d")?;
        }
        let zones = Bytes::kib(64)..=Bytes::gib(1);
        let zone = |bytes: &Bytes| zones.contains(bytes) && bytes.get().is_power_of_two();
        if let Some(found) = zone_size.filter(|bytes| !zone(bytes)) {
            out_of_range("observe.zone_size", found, "a power of two, 64 KiB to 1 GiB")?;
        }
        Ok(())
    }
}
