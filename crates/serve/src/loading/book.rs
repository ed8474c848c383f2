//! What is wished for, and what is known of what is being loaded: written by whoever wishes, read by whoever loads and by whoever tells.

use forebay_appliance::volume::PrewarmProgress;
use forebay_cache::snapshot::Activity;
use forebay_control::prewarm::{Entry, LoadScore};
use forebay_control::warmup::WarmupRules;
use forebay_units::{BlockRange, BlockSize, ByteRange};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a second leaves of the speed that was seen before.
const SPEED_MEMORY: f64 = 0.6;

/// What is to be loaded into a volume's cache.
#[derive(Clone, Debug, Default)]
pub(super) struct Wish {
    /// Hot zones, the hottest first, and how fast to begin.
    pub(super) zones: Vec<ByteRange>,
    pub(super) zones_per_second: u64,
    /// What snapshots say.
    pub(super) snapshots: bool,
    /// Whether a person wants it, whatever it gives.
    pub(super) asked: bool,
    /// What differs from the configuration.
    pub(super) choice: LoadChoice,
}

/// What whoever has a cache loaded chooses for this once; what is absent is as configured (`[control.warmup]`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadChoice {
    /// By which score the blocks of snapshots are loaded.
    pub score: Option<LoadScore>,
    /// Where they enter.
    pub insertion: Option<Entry>,
    /// The largest share of the cache that is loaded from snapshots, 0 to 1.
    pub cache_share_max: Option<f64>,
    /// Bytes per second at most; no more than is configured.
    pub bytes_per_second_max: Option<u64>,
}

impl LoadChoice {
    pub(super) fn apply(&self, rules: &mut WarmupRules) {
        rules.score = self.score.unwrap_or(rules.score);
        rules.insertion = self.insertion.unwrap_or(rules.insertion);
        rules.cache_share_max = self.cache_share_max.unwrap_or(rules.cache_share_max);
        let most = self.bytes_per_second_max.unwrap_or(u64::MAX);
        rules.bytes_per_second_max = rules.bytes_per_second_max.min(most);
    }
}

/// A warm-up as people see it beside what the data path says.
#[derive(Clone, Debug)]
pub(crate) struct LoadState {
    /// `snapshots`, `hot zones`, or both.
    pub(crate) source: &'static str,
    /// How fast it goes; absent until it is known.
    pub(crate) speed: Option<LoadSpeed>,
}

/// What is to be loaded, and what is known of what is being loaded.
#[derive(Debug, Default)]
pub(crate) struct LoadBook {
    pub(super) wishes: BTreeMap<String, Wish>,
    /// Volumes whose wishes were taken last, as long as they are wished for.
    pub(super) starting: BTreeSet<String>,
    /// Volumes whose caches somebody has wanted left alone since wishes were taken last.
    pub(super) cancelled: BTreeSet<String>,
    pub(crate) states: BTreeMap<String, LoadState>,
    pub(super) plans: BTreeMap<String, Arc<LoadPlan>>,
}

impl LoadBook {
    /// What is being loaded into a volume's cache.
    pub(crate) fn plan(&self, volume: &str) -> Option<Arc<LoadPlan>> {
        self.plans.get(volume).cloned()
    }

    /// A cache begins, or has grown from nothing.
    pub(crate) fn begins(&mut self, volume: &str) {
        self.wishes.entry(volume.to_owned()).or_default().snapshots = true;
    }

    /// Somebody names ranges, and perhaps where they enter.
    pub(crate) fn ranges(
        &mut self,
        volume: &str,
        ranges: Vec<ByteRange>,
        bytes_per_second: u64,
        insertion: Option<Entry>,
    ) {
        self.zones(volume, ranges, bytes_per_second);
        self.wishes.entry(volume.to_owned()).or_default().choice.insertion = insertion;
    }

    /// The controller names hot zones.
    pub(crate) fn zones(&mut self, volume: &str, zones: Vec<ByteRange>, bytes_per_second: u64) {
        let wish = self.wishes.entry(volume.to_owned()).or_default();
        (wish.zones, wish.zones_per_second) = (zones, bytes_per_second);
    }

    /// A person wants the cache loaded from its snapshots.
    pub(crate) fn asked(&mut self, volume: &str, choice: LoadChoice) {
        let wish = self.wishes.entry(volume.to_owned()).or_default();
        (wish.snapshots, wish.asked, wish.choice) = (true, true, choice);
    }

    /// Nothing is wished for any more.
    pub(crate) fn forget(&mut self, volume: &str) {
        self.wishes.remove(volume);
        self.starting.remove(volume);
        self.cancelled.insert(volume.to_owned());
    }

    /// Everything that is wished for, to be started, and the volumes of which nothing more is.
    pub(super) fn take(&mut self) -> (BTreeMap<String, Wish>, BTreeSet<String>) {
        let wishes = std::mem::take(&mut self.wishes);
        self.starting = wishes.keys().cloned().collect();
        (wishes, std::mem::take(&mut self.cancelled))
    }
}

/// What a warm-up loads, for whoever takes a snapshot while it goes on.
#[derive(Debug)]
pub(crate) struct LoadPlan {
    /// In the order in which they are loaded.
    pub(super) blocks: Vec<BlockRange>,
    pub(super) block_size: BlockSize,
    /// How the cache was used before, as its snapshots say.
    pub(crate) activity: Activity,
}

impl LoadPlan {
    /// The blocks that are yet to come, the most wanted first; none of another plan than the one that is `progress`ing. `O(blocks)`.
    pub(crate) fn missing(&self, progress: &PrewarmProgress) -> impl Iterator<Item = u64> {
        let bytes = |blocks: u64| blocks << self.block_size.shift();
        let total: u64 = self.blocks.iter().map(|blocks| blocks.count()).sum();
        let is_this = bytes(total) == progress.total_bytes.get();
        let missing = if is_this { progress.missing_bytes() >> self.block_size.shift() } else { 0 };
        self.blocks.iter().flat_map(|blocks| blocks.first..blocks.end).skip((total - missing) as usize)
    }
}

/// How fast a warm-up goes, as of the last seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LoadSpeed {
    /// What is read and inserted, in bytes per second,
    pub(crate) loaded: f64,
    /// and by how much the list shrinks: with what is skipped.
    pub(crate) done: f64,
}

impl LoadSpeed {
    /// What a second leaves of it, and what that second itself was.
    pub(super) fn then(self, now: LoadSpeed) -> LoadSpeed {
        let smooth = |before: f64, now: f64| before * SPEED_MEMORY + now * (1.0 - SPEED_MEMORY);
        LoadSpeed { loaded: smooth(self.loaded, now.loaded), done: smooth(self.done, now.done) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_units::Bytes;

    #[test]
    fn nobody_chooses_a_rate_above_the_configured_one() {
        let configured = WarmupRules { bytes_per_second_max: 1_000, ..WarmupRules::default() };
        let rate = |bytes_per_second_max| {
            let mut rules = configured;
            LoadChoice { bytes_per_second_max, ..LoadChoice::default() }.apply(&mut rules);
            rules.bytes_per_second_max
        };
        assert_eq!([None, Some(10), Some(5_000)].map(rate), [1_000, 10, 1_000]);
    }

    #[test]
    fn what_is_missing_of_another_load_is_not_told_of_this_one() {
        let blocks = vec![BlockRange { first: 9, end: 11 }, BlockRange { first: 2, end: 4 }];
        let plan = LoadPlan { blocks, block_size: BlockSize::DEFAULT, activity: Activity::default() };
        let missing = |total_blocks: u64, loaded_blocks: u64| {
            let bytes = |blocks: u64| Bytes(blocks * BlockSize::DEFAULT.bytes());
            let progress = PrewarmProgress {
                total_bytes: bytes(total_blocks),
                remaining_bytes: bytes(total_blocks - loaded_blocks),
                loaded_bytes: bytes(loaded_blocks),
                skipped_bytes: Bytes::ZERO,
                failed_bytes: Bytes::ZERO,
                bytes_per_second: None,
                ended: None,
            };
            plan.missing(&progress).collect::<Vec<u64>>()
        };
        assert_eq!(missing(4, 1), [10, 2, 3]);
        assert!(missing(4, 4).is_empty() && missing(3, 1).is_empty());
    }

    #[test]
    fn a_steady_speed_is_told_as_it_is() {
        let speed = |loaded, done| LoadSpeed { loaded, done };
        assert_eq!(speed(100.0, 200.0).then(speed(100.0, 200.0)), speed(100.0, 200.0));
        // Three fifths of what it was.
        assert_eq!(speed(100.0, 0.0).then(speed(200.0, 0.0)), speed(140.0, 0.0));
    }
}
