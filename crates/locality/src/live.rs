//! What the appliance knows about a workload while it serves it: curve, working set, hot zones, in bounded memory.
//!
//! It is *not* thread-safe and reads no clock: the volume's own worker calls it in line and says what time it is.

use crate::head::CurveHead;
use crate::shards::{sample_hash, seed_mask};
use crate::{DistinctSketch, FixedSize, HotZones, MissRatioCurve, ZoneWindow};
use forebay_units::{BlockSize, Bytes, Nanos};

/// After this many sampled accesses the sample is halved ...
const EFFORT_MAX: u32 = 1 << 15;
/// ... unless this few blocks would stay.
const SAMPLES_KEPT: usize = 1 << 10;
/// Points of the curve in a snapshot.
const CURVE_POINTS: usize = 256;

/// How a [`LiveObserver`] is dimensioned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LiveConfig {
    /// The size of a block, for the size of a zone.
    pub block_size: BlockSize,
    /// Memory for the two sampled curves together; 128 KiB. Where they are too coarse for small caches, up to 96 KiB are added.
    /// None: nothing is sampled, and the curve is one of no accesses, for whoever asks for working sets and zones alone.
    pub curve_bytes: Bytes,
    /// A curve stands for the last one to two of these; 15 minutes.
    pub epoch: Nanos,
    /// Windows of the working set size and of the hot zones; 60 s.
    pub window: Nanos,
    /// The size of a zone, a power of two; 1 MiB.
    pub zone_size: Bytes,
    /// A zone is hot above this share of the accesses; 0.001.
    pub hot_share: f64,
    /// Entries of the table of zones; 8,192 (128 KiB).
    pub zone_entries: usize,
    /// Chooses which blocks are sampled.
    pub seed: u64,
}

impl Default for LiveConfig {
    fn default() -> LiveConfig {
        LiveConfig {
            block_size: BlockSize::DEFAULT,
            curve_bytes: Bytes::kib(128),
            epoch: Nanos::secs(900),
            window: Nanos::secs(60),
            zone_size: Bytes::mib(1),
            hot_share: 0.001,
            zone_entries: 8_192,
            seed: 0,
        }
    }
}

impl LiveConfig {
    fn learns_curves(&self) -> bool {
        self.curve_bytes > Bytes::ZERO
    }

    /// A fresh sampler takes every hash; where there is no memory for curves, none does (but for that of 0).
    fn first_threshold(&self) -> u64 {
        if self.learns_curves() { u64::MAX } else { 0 }
    }
}

/// A sampler and since when it has been looking.
#[derive(Clone, Debug)]
struct Epoch {
    shards: FixedSize,
    since: Nanos,
    effort: u32,
}

impl Epoch {
    fn new(bytes: usize, seed: u64, since: Nanos) -> Epoch {
        Epoch { shards: FixedSize::with_bytes(bytes, seed), since, effort: 0 }
    }

    /// A small footprint would be sampled in full for ever: the effort is bounded instead, at the cost of accuracy
    /// that such a curve has to spare.
    fn access_sampled(&mut self, hash: u64) {
        if hash <= self.shards.threshold() {
            self.shards.access_sampled(hash, 1);
            self.effort += 1;
            if self.effort >= EFFORT_MAX {
                self.effort = 0;
                if self.shards.samples() >= 2 * SAMPLES_KEPT {
                    self.shards.lower_threshold(self.shards.samples() / 2);
                }
            }
        }
    }
}

/// Working set sizes over tumbling windows, estimated within about 2.3% (one standard error).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LiveWorkingSet {
    /// The windows' length.
    pub window: Nanos,
    /// Distinct blocks so far in the window that runs.
    pub current_blocks: u64,
    /// Distinct blocks in the last complete window; `None` before its end.
    pub last_blocks: Option<u64>,
    /// The mean over all complete windows of the epoch that the curve stands for.
    pub mean_blocks: f64,
    /// The largest of these.
    pub max_blocks: u64,
}

/// All that was learnt, at an instant; owned, so that the data path can go on.
#[derive(Clone, Debug)]
pub struct LocalitySnapshot {
    /// The LRU miss ratio curve of the reads since `since`.
    pub curve: MissRatioCurve,
    /// Since when the curve has been looking.
    pub since: Nanos,
    /// Block accesses that the curve stands for.
    pub accesses: u64,
    /// The estimated number of distinct blocks among them; divided by `accesses`, it is the share of first touches.
    pub footprint_blocks: u64,
    /// The share of blocks that was sampled in the end.
    pub sampling_rate: f64,
    /// Blocks in the sample: below a hundred or so, the curve is a rumour.
    pub sampled_blocks: u64,
    /// Working set sizes.
    pub working_set: LiveWorkingSet,
    /// The base-2 logarithm of the blocks per zone.
    pub zone_shift: u32,
    /// Hot zones of the window that runs.
    pub zones_current: ZoneWindow,
    /// Hot zones of the last complete window.
    pub zones_last: ZoneWindow,
    /// Hot zones of the window before.
    pub zones_before: ZoneWindow,
    /// [`ZoneWindow::overlap`] of the last two complete windows.
    pub zone_overlap: f64,
}

/// Observes the reads of one volume.
///
/// Old behaviour fades by two half-overlapping epochs (ours): every `epoch` a new sampler starts, the older one answers, and is
/// dropped when the new one has seen a whole epoch; so a curve stands for the last one to two epochs. Working sets and
/// zones have their own, shorter windows. The curve's head, sizes of up to a hundred sampled blocks or so, comes from finer samples
/// that look in bursts. An access that is not sampled costs one hash, one comparison and one register.
#[derive(Clone, Debug)]
pub struct LiveObserver {
    config: LiveConfig,
    seed_mask: u64,
    /// The larger of the two thresholds; may lag behind, never ahead.
    threshold: u64,
    /// Answers.
    older: Epoch,
    /// Learns; `None` before the end of the first epoch.
    younger: Option<Epoch>,
    /// Sizes for which the samples of both are too coarse.
    head: CurveHead,
    /// Accesses that the samplers have not been told of yet.
    uncounted: u64,
    distinct: DistinctSketch,
    zones: HotZones,
    epoch_end: Nanos,
    window_end: Nanos,
    /// The earlier of the two ends.
    next_end: Nanos,
    last_blocks: Option<u64>,
    /// Count, sum and largest of the windows of the older and of the younger epoch.
    windows: [(u64, u64, u64); 2],
}

impl LiveObserver {
    /// An observer that starts at `now`.
    ///
    /// # Panics
    /// If the zone is smaller than a block or no power of two, or a window or epoch has no length.
    pub fn new(config: LiveConfig, now: Nanos) -> LiveObserver {
        assert!(config.zone_size.0.is_power_of_two(), "a zone of {} is no power of two", config.zone_size);
        assert!(config.zone_size.0 >= config.block_size.bytes(), "a zone is smaller than a block");
        assert!(
            config.window > Nanos::ZERO && config.epoch > Nanos::ZERO,
            "windows and epochs have a length"
        );
        let zone_shift = config.zone_size.0.trailing_zeros() - config.block_size.shift();
        let (epoch_end, window_end) = (now.saturating_add(config.epoch), now.saturating_add(config.window));
        LiveObserver {
            seed_mask: seed_mask(config.seed),
            threshold: config.first_threshold(),
            older: Epoch::new(config.curve_bytes.0 as usize / 2, config.seed, now),
            younger: None,
            head: CurveHead::new(),
            uncounted: 0,
            distinct: DistinctSketch::new(),
            zones: HotZones::new(zone_shift, config.hot_share, config.zone_entries),
            epoch_end,
            window_end,
            next_end: epoch_end.min(window_end),
            last_blocks: None,
            windows: [(0, 0, 0); 2],
            config,
        }
    }

    /// A read of `blocks` blocks from `first_block` on. Times that step back are taken as they are: they only delay the end of
    /// a window. So does a busy window, of which only every sixteenth read or so looks at the time.
    #[inline]
    pub fn observe_read(&mut self, first_block: u64, blocks: u64, now: Nanos) {
        if self.zones.is_next_counted() {
            self.count_zones(first_block, blocks, now);
        }
        self.uncounted += blocks;
        if blocks == 1 {
            self.observe_block(first_block, now);
        } else {
            self.observe_run(first_block, blocks, now);
        }
    }

    #[inline(never)]
    fn count_zones(&mut self, first_block: u64, blocks: u64, now: Nanos) {
        if now >= self.next_end {
            self.end_windows(now);
        }
        self.zones.count(first_block, blocks);
    }

    #[inline(never)]
    fn observe_run(&mut self, first_block: u64, blocks: u64, now: Nanos) {
        for block in first_block..first_block.saturating_add(blocks) {
            self.observe_block(block, now);
        }
    }

    #[inline]
    fn observe_block(&mut self, block: u64, now: Nanos) {
        let hash = sample_hash(block, self.seed_mask);
        self.distinct.add_hash(hash);
        if hash <= self.threshold {
            self.access_sampled(hash, now);
        }
    }

    /// Tells the samplers of the accesses since the last time.
    fn count(&mut self) {
        let uncounted = std::mem::take(&mut self.uncounted);
        if !self.config.learns_curves() {
            return;
        }
        self.older.shards.count_unsampled(uncounted);
        if let Some(younger) = &mut self.younger {
            younger.shards.count_unsampled(uncounted);
        }
    }

    #[cold]
    #[inline(never)]
    fn access_sampled(&mut self, hash: u64, now: Nanos) {
        if !self.config.learns_curves() {
            return;
        }
        self.count();
        self.older.access_sampled(hash);
        self.threshold = self.older.shards.threshold();
        if let Some(younger) = &mut self.younger {
            younger.access_sampled(hash);
            self.threshold = self.threshold.max(younger.shards.threshold());
        }
        let rates = [Some(&self.older), self.younger.as_ref()].into_iter().flatten();
        let rate = rates.map(|epoch| epoch.shards.rate()).fold(1.0, f64::min);
        self.head.access(hash, now);
        self.head.follow(1.0 / rate, now);
        self.threshold = self.threshold.max(self.head.threshold().unwrap_or(0));
    }

    #[cold]
    #[inline(never)]
    fn end_windows(&mut self, now: Nanos) {
        if now >= self.window_end {
            let blocks = self.distinct.estimate();
            for (count, sum, max) in &mut self.windows {
                *count += 1;
                *sum += blocks;
                *max = (*max).max(blocks);
            }
            self.last_blocks = Some(blocks);
            self.distinct.clear();
            self.zones.rotate();
            self.window_end = now.saturating_add(self.config.window);
        }
        if now >= self.epoch_end {
            self.rotate(now);
        }
        self.next_end = self.epoch_end.min(self.window_end);
    }

    /// Ends the epoch now, as when the workload is known to have changed: the younger sampler answers from here on.
    pub fn rotate(&mut self, now: Nanos) {
        self.count();
        let bytes = self.config.curve_bytes.0 as usize / 2;
        let fresh = Epoch::new(bytes, self.config.seed, now);
        self.head.rotate(self.younger.is_some());
        if let Some(younger) = self.younger.replace(fresh) {
            self.older = younger;
            self.windows[0] = self.windows[1];
        }
        self.windows[1] = (0, 0, 0);
        self.threshold = self.config.first_threshold();
        self.epoch_end = now.saturating_add(self.config.epoch);
        self.next_end = self.epoch_end.min(self.window_end);
    }

    /// What was learnt until `now`. Windows that ended without an access since are ended first.
    pub fn snapshot(&mut self, now: Nanos) -> LocalitySnapshot {
        if now >= self.next_end {
            self.end_windows(now);
        }
        self.count();
        let shards = &self.older.shards;
        let current_blocks = self.distinct.estimate();
        let (count, sum, max) = self.windows[0];
        LocalitySnapshot {
            curve: self.head.refine(shards.curve(), 1.0 / shards.rate()).thinned(CURVE_POINTS).0,
            since: self.older.since,
            accesses: shards.counted(),
            footprint_blocks: shards.footprint_blocks(),
            sampling_rate: shards.rate(),
            sampled_blocks: shards.samples() as u64,
            working_set: LiveWorkingSet {
                window: self.config.window,
                current_blocks,
                last_blocks: self.last_blocks,
                mean_blocks: if count == 0 { current_blocks as f64 } else { sum as f64 / count as f64 },
                max_blocks: if count == 0 { current_blocks } else { max },
            },
            zone_shift: self.zones.zone_shift(),
            zones_current: self.zones.current(),
            zones_last: self.zones.last().clone(),
            zones_before: self.zones.before().clone(),
            zone_overlap: self.zones.last().overlap(self.zones.before()),
        }
    }

    /// Bytes held, without the lists of hot zones (16 bytes for each).
    pub fn bytes(&self) -> usize {
        let younger = self.younger.as_ref().map_or(0, |epoch| epoch.shards.bytes());
        size_of::<LiveObserver>()
            + self.older.shards.bytes()
            + younger
            + self.head.bytes()
            + self.distinct.bytes()
            + self.zones.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExactLru;
    use forebay_units::mix64;

    fn config() -> LiveConfig {
        LiveConfig { epoch: Nanos::secs(100), window: Nanos::secs(10), ..LiveConfig::default() }
    }

    #[test]
    fn without_memory_for_curves_working_sets_and_zones_are_the_same() {
        let mut observers = [Bytes::kib(128), Bytes::ZERO]
            .map(|curve_bytes| LiveObserver::new(LiveConfig { curve_bytes, ..config() }, Nanos::ZERO));
        for at in 0..50_000u64 {
            let block = mix64(at) % 5_000;
            observers.iter_mut().for_each(|observer| observer.observe_read(block, 2, Nanos::millis(5 * at)));
        }
        let [with, without] = observers.map(|mut observer| observer.snapshot(Nanos::secs(250)));
        assert_eq!(with.working_set, without.working_set);
        assert_eq!(with.zones_last, without.zones_last);
        assert_eq!((without.sampled_blocks, without.accesses), (0, 0));
        assert!(with.sampled_blocks > 0 && with.curve.points().len() > 10);
    }

    #[test]
    fn a_few_hundred_requests_are_enough_for_a_curve() {
        // 300 reads of 4 blocks over 100 extents: nothing is left out, so curve and footprint are exact.
        let mut live = LiveObserver::new(config(), Nanos::ZERO);
        let mut exact = ExactLru::new();
        for step in 0..300u64 {
            let first = mix64(step) % 100 * 4;
            live.observe_read(first, 4, Nanos::millis(step));
            (first..first + 4).for_each(|block| {
                exact.access(block, 1);
            });
        }
        let snapshot = live.snapshot(Nanos::millis(300));
        assert_eq!((snapshot.accesses, snapshot.sampling_rate), (1_200, 1.0));
        assert_eq!(snapshot.footprint_blocks, exact.footprint_blocks());
        for size in [1, 50, 100, 200, 300, 400] {
            let expected = exact.miss_ratios_at(&[size])[0];
            assert!((snapshot.curve.miss_ratio_at(size) - expected).abs() < 0.02, "{size}");
        }
        let error = snapshot.working_set.current_blocks as f64 / exact.footprint_blocks() as f64 - 1.0;
        assert!(error.abs() < 0.05);
        // 400 blocks of 4 KiB lie in zones 0 and 1 of 256 blocks.
        assert_eq!(snapshot.zones_current.zones.len(), 2);
    }

    #[test]
    fn old_behaviour_fades_after_two_epochs() {
        let mut live = LiveObserver::new(config(), Nanos::ZERO);
        // 100 s over 1,000 blocks, then a loop over 10: one access per 10 ms.
        for step in 0..40_000u64 {
            let block = if step < 10_000 { mix64(step) % 1_000 } else { 5_000 + step % 10 };
            live.observe_read(block, 1, Nanos::millis(step * 10));
        }
        let snapshot = live.snapshot(Nanos::secs(400));
        assert_eq!(snapshot.footprint_blocks, 10);
        assert!(snapshot.curve.miss_ratio_at(10) < 0.01);
        assert!(snapshot.since >= Nanos::secs(200));
        let working_set = snapshot.working_set;
        assert_eq!((working_set.last_blocks, working_set.max_blocks), (Some(10), 10));
        // The working set has been one zone (5,000 / 256 = 19) for many windows.
        assert_eq!(snapshot.zones_last.zones[0].zone, 19);
        assert!((snapshot.zone_overlap - 1.0).abs() < 1e-9);
    }

    /// Of a skewed load a sample has a hot block or has it not, and is far off for caches that hold few more.
    #[test]
    fn small_caches_are_told_exactly_and_large_ones_as_by_the_sample() {
        const SIZES: [u64; 8] = [16, 64, 256, 1_024, 4_096, 8_192, 16_384, 32_768];
        const SEEDS: u64 = 6;
        let mut off = [(0.0, 0.0); SIZES.len()];
        for seed in 1..=SEEDS {
            let mut live = LiveObserver::new(LiveConfig { seed, ..LiveConfig::default() }, Nanos::ZERO);
            let mut exact = ExactLru::new();
            for step in 0..600_000u64 {
                // The k-th block is used in proportion to k^-0.9.
                let uniform = mix64(step ^ seed << 32) as f64 / u64::MAX as f64;
                let block = (uniform.powi(10) * 65_536.0) as u64;
                live.observe_read(block, 1, Nanos::micros(step * 250));
                exact.access(block, 1);
            }
            let snapshot = live.snapshot(Nanos::secs(150));
            assert!(snapshot.sampling_rate < 0.1, "{}", snapshot.sampling_rate);
            let exact = exact.curve();
            let error = |curve: &MissRatioCurve, size| {
                (curve.miss_ratio_at(size) - exact.miss_ratio_at(size)).abs() / SEEDS as f64
            };
            let sampled = live.older.shards.curve();
            for (off, size) in off.iter_mut().zip(SIZES) {
                *off = (off.0 + error(&snapshot.curve, size), off.1 + error(&sampled, size));
            }
        }
        for ((found, sampled), size) in off.into_iter().zip(SIZES) {
            println!("{size} blocks: off by {found:.4}, by the sample {sampled:.4}");
            assert!(found <= if size <= 256 { 0.003 } else { 0.01 }, "{size} blocks: {found}");
            assert!(found <= sampled + 0.001, "{size} blocks: {found} for {sampled}");
        }
    }

    #[test]
    fn memory_and_effort_are_bounded() {
        let mut live = LiveObserver::new(LiveConfig { epoch: Nanos::secs(1), ..config() }, Nanos::ZERO);
        let mut exact = ExactLru::new();
        for step in 0..400_000u64 {
            let block = mix64(mix64(step) % 20_000) % (1 << 30);
            live.observe_read(block, 1, Nanos::micros(step * 3));
            exact.access(block, 1);
            assert!(live.bytes() <= (128 + 96 + 128 + 4) << 10, "{}", live.bytes());
        }
        let snapshot = live.snapshot(Nanos::millis(1_200));
        assert!(snapshot.sampled_blocks < 5_000 && snapshot.sampling_rate < 0.3);
        let size = exact.footprint_blocks() / 2;
        let expected = exact.miss_ratios_at(&[size])[0];
        assert!((snapshot.curve.miss_ratio_at(size) - expected).abs() < 0.05);
    }
}
