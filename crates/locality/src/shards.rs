//! Approximate LRU curves from a spatial sample: SHARDS (Waldspurger et al., FAST '15).
//!
//! A block belongs to the sample if the hash of its key is at most a threshold, so of a sampled block every access is seen.
//! Reuse distances within the sample, divided by the sampling rate, estimate those of the whole stream. [`FixedRate`] keeps the
//! threshold; [`FixedSize`] lowers it whenever its table is full, so that its memory never grows.
//!
//! Both apply the adjustment of section 4.2 of the paper (SHARDS-adj): what the sample counts less (or more) than
//! expected is due to hot blocks outside (or inside) of it, and is added to the smallest distance.

use crate::loglinear::{bucket_of, bucket_start};
use crate::sample_table::{SAMPLES_MAX, SampleTable};
use crate::{CurvePoint, ExactLru, MissRatioCurve};
use forebay_units::mix64;

/// The hash that decides about sampling: the key with the seed folded in. Seed 0 leaves the key as it is; others are mixed
/// first, as neighbouring seeds would otherwise only exchange neighbouring keys.
#[inline]
pub(crate) fn sample_hash(key: u64, seed_mask: u64) -> u64 {
    mix64(key ^ seed_mask)
}

pub(crate) fn seed_mask(seed: u64) -> u64 {
    if seed == 0 { 0 } else { mix64(seed) }
}

/// 2^64 as a number.
const HASHES: f64 = 18_446_744_073_709_551_616.0;

/// The sampling rate of a threshold, the largest hash that is sampled.
pub(crate) fn rate_of(threshold: u64) -> f64 {
    (threshold as f64 + 1.0) / HASHES
}

/// The threshold for a sampling rate above 0.
pub(crate) fn threshold_of(rate: f64) -> u64 {
    assert!(rate > 0.0, "the sampling rate must be above 0, not {rate}");
    // The conversion saturates, so that a rate of 1 gives the largest threshold.
    ((rate * HASHES) as u64).saturating_sub(u64::from(rate < 1.0))
}

/// SHARDS with a fixed sampling rate: memory in proportion to the footprint, for traces.
#[derive(Clone, Debug)]
pub struct FixedRate {
    seed_mask: u64,
    threshold: u64,
    counted: u64,
    sample: ExactLru,
    sampled: Vec<u64>,
}

impl FixedRate {
    /// Samples the share `rate` of the keys; `seed` chooses which. A rate of 1 and above samples all.
    ///
    /// # Panics
    /// If the rate is not above 0.
    pub fn new(rate: f64, seed: u64) -> FixedRate {
        FixedRate {
            seed_mask: seed_mask(seed),
            threshold: threshold_of(rate),
            counted: 0,
            sample: ExactLru::new(),
            sampled: Vec::new(),
        }
    }

    /// The sampling rate in force.
    pub fn rate(&self) -> f64 {
        rate_of(self.threshold)
    }

    /// One access; weight 0 moves the block but is not counted.
    #[inline]
    pub fn access(&mut self, key: u64, weight: u64) {
        self.counted += weight;
        let hash = sample_hash(key, self.seed_mask);
        if hash <= self.threshold {
            self.sample.access(hash, weight);
        }
    }

    /// Accesses of weight 1: about a nanosecond for a key outside of the sample.
    pub fn access_batch(&mut self, keys: &[u64]) {
        self.counted += keys.len() as u64;
        self.sampled.clear();
        for &key in keys {
            let hash = sample_hash(key, self.seed_mask);
            if hash <= self.threshold {
                self.sampled.push(hash);
            }
        }
        self.sample.access_batch(&self.sampled);
    }

    /// The estimated number of distinct blocks.
    pub fn footprint_blocks(&self) -> u64 {
        (self.sample.footprint_blocks() as f64 / self.rate()).round() as u64
    }

    /// Counted weight, sampled or not.
    pub fn counted(&self) -> u64 {
        self.counted
    }

    /// The estimated curve: a sampled distance is taken to lie anywhere between it and the one before it, scaled.
    pub fn curve(&self) -> MissRatioCurve {
        let rate = self.rate();
        let expected = self.counted as f64 * rate;
        if expected == 0.0 {
            return MissRatioCurve::new(Vec::new());
        }
        let distances = self.sample.distances();
        let mut curve = AdjustedCurve::new(expected, expected - distances.total() as f64, 1.0 / rate);
        for (distance, weight) in distances.weights() {
            curve.add((distance - 1) as f64 / rate, distance as f64 / rate, weight as f64);
        }
        curve.finish()
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        size_of::<FixedRate>() + self.sample.bytes() + self.sampled.capacity() * size_of::<u64>()
    }
}

/// Sums weight per distance, from small to large, into a curve.
struct AdjustedCurve {
    points: Vec<CurvePoint>,
    total: f64,
    hits: f64,
}

impl AdjustedCurve {
    /// A curve of `total` weight, of which `adjustment` hits in every cache of at least `resolution` blocks.
    fn new(total: f64, adjustment: f64, resolution: f64) -> AdjustedCurve {
        let mut curve = AdjustedCurve { points: Vec::new(), total, hits: adjustment };
        curve.push(resolution);
        curve
    }

    fn push(&mut self, size: f64) {
        let size_blocks = size.round() as u64;
        if size_blocks > 0 {
            let miss_ratio = (1.0 - self.hits / self.total).clamp(0.0, 1.0);
            self.points.pop_if(|point| point.size_blocks == size_blocks);
            self.points.push(CurvePoint { size_blocks, miss_ratio });
        }
    }

    /// `weight` hits once the cache is larger than `from` blocks, all of it at `to`, linearly in between.
    fn add(&mut self, from: f64, to: f64, weight: f64) {
        self.push(from);
        self.hits += weight;
        self.push(to);
    }

    fn finish(self) -> MissRatioCurve {
        MissRatioCurve::new(self.points)
    }
}

/// Buckets of distances: up to 2^36 blocks, which is 256 TiB of 4 KiB blocks.
const BUCKETS: usize = (36 - 5) << 6;

/// SHARDS in a fixed amount of memory: the sampling rate starts at 1 and falls when the table is full, so small
/// footprints are measured exactly (to a bucket) and a curve can be had after the first few accesses.
///
/// A sampled access counts for the inverse of the rate in force when it was seen, which is the paper's rescaling (section
/// 3.3) done once instead of at every fall. Unlike the paper, a full table drops its top 1/32 of hashes at once (ours), so that no heap is kept.
#[derive(Clone, Debug)]
pub struct FixedSize {
    seed_mask: u64,
    threshold: u64,
    /// 1 / rate.
    scale: f64,
    table: SampleTable,
    /// Estimated weight per bucket of distances.
    weights: Vec<f64>,
    /// Estimated weight of everything, first touches included.
    estimated: f64,
    counted: u64,
}

impl FixedSize {
    /// A sampler that holds at most `bytes` bytes, everything counted; at least 16 KiB are taken.
    pub fn with_bytes(bytes: usize, seed: u64) -> FixedSize {
        let fixed = size_of::<FixedSize>() + BUCKETS * size_of::<f64>();
        let left = bytes.max(16 << 10) - fixed;
        let mut samples = SAMPLES_MAX;
        while SampleTable::bytes_for(samples) > left {
            samples -= (samples / 256).max(1);
        }
        FixedSize {
            seed_mask: seed_mask(seed),
            threshold: u64::MAX,
            scale: 1.0,
            table: SampleTable::new(samples),
            weights: vec![0.0; BUCKETS],
            estimated: 0.0,
            counted: 0,
        }
    }

    /// The sampling rate in force.
    pub fn rate(&self) -> f64 {
        1.0 / self.scale
    }

    /// Blocks in the sample.
    pub fn samples(&self) -> usize {
        self.table.len()
    }

    /// Counted weight, sampled or not.
    pub fn counted(&self) -> u64 {
        self.counted
    }

    /// The estimated number of distinct blocks; exact while the rate is 1.
    pub fn footprint_blocks(&self) -> u64 {
        (self.samples() as f64 * self.scale).round() as u64
    }

    /// Bytes held: never more than asked for.
    pub fn bytes(&self) -> usize {
        size_of::<FixedSize>() + self.table.bytes() + self.weights.capacity() * size_of::<f64>()
    }

    /// One access; weight 0 moves the block but is not counted.
    #[inline]
    pub fn access(&mut self, key: u64, weight: u64) {
        self.access_hash(sample_hash(key, self.seed_mask), weight);
    }

    /// Accesses of weight 1.
    pub fn access_batch(&mut self, keys: &[u64]) {
        for &key in keys {
            self.access(key, 1);
        }
    }

    #[inline]
    pub(crate) fn access_hash(&mut self, hash: u64, weight: u64) {
        self.counted += weight;
        if hash <= self.threshold {
            self.access_sampled(hash, weight);
        }
    }

    /// The largest hash that is sampled.
    pub(crate) fn threshold(&self) -> u64 {
        self.threshold
    }

    /// Counts weight that lies outside of the sample.
    pub(crate) fn count_unsampled(&mut self, weight: u64) {
        self.counted += weight;
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn access_sampled(&mut self, hash: u64, weight: u64) {
        let estimated = weight as f64 * self.scale;
        self.estimated += estimated;
        let Some(distance) = self.table.touch(hash) else {
            // Once is enough unless somebody chose keys by their hashes.
            let most = self.table.samples_max();
            while self.samples() > most {
                self.lower_threshold(most - most / 32);
            }
            return;
        };
        if weight > 0 {
            // The middle of what the sampled distance stands for, rounded; the distance itself at rate 1.
            let scaled = (distance as f64 - 0.5) * self.scale + 1.0;
            let bucket = bucket_of(scaled as u64).min(BUCKETS - 1);
            self.weights[bucket] += estimated;
        }
    }

    /// Lowers the threshold until about `keep` samples stay (at most), found by counting hashes in 256 ranges.
    pub(crate) fn lower_threshold(&mut self, keep: usize) {
        let mut ranges = [0u32; 256];
        let width = self.threshold / 256 + 1;
        for hash in self.table.hashes() {
            ranges[(hash / width) as usize] += 1;
        }
        let mut kept = self.samples();
        let mut range = 256;
        while kept > keep && range > 1 {
            range -= 1;
            kept -= ranges[range] as usize;
        }
        self.threshold = width.saturating_mul(range as u64) - 1;
        self.scale = 1.0 / rate_of(self.threshold);
        self.table.keep_up_to(self.threshold);
    }

    /// The estimated curve.
    pub fn curve(&self) -> MissRatioCurve {
        let total = self.counted as f64;
        if total == 0.0 {
            return MissRatioCurve::new(Vec::new());
        }
        let mut curve = AdjustedCurve::new(total, total - self.estimated, self.scale);
        for (bucket, &weight) in self.weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
            let (start, end) = (bucket_start(bucket), bucket_start(bucket + 1));
            curve.add(start.saturating_sub(1) as f64, (end - 1) as f64, weight);
        }
        curve.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zipf_like(count: u64, blocks: u64) -> impl Iterator<Item = u64> {
        // The square of a uniform number favours small keys.
        (0..count).map(move |step| {
            let uniform = mix64(step ^ 0xabcd) as f64 / HASHES;
            (uniform * uniform * blocks as f64) as u64
        })
    }

    #[test]
    fn at_rate_one_both_are_exact() {
        let mut exact = ExactLru::new();
        let mut size = FixedSize::with_bytes(128 << 10, 3);
        let mut rate = FixedRate::new(1.0, 3);
        for key in zipf_like(50_000, 100) {
            exact.access(key, 1);
            size.access(key, 1);
            rate.access(key, 1);
        }
        assert_eq!((size.rate(), rate.rate()), (1.0, 1.0));
        for blocks in 0..=110 {
            let expected = exact.curve().miss_ratio_at(blocks);
            assert!((rate.curve().miss_ratio_at(blocks) - expected).abs() < 1e-9, "{blocks}");
            assert!((size.curve().miss_ratio_at(blocks) - expected).abs() < 1e-6, "{blocks}");
        }
        assert_eq!((size.footprint_blocks(), rate.footprint_blocks()), (100, 100));
    }

    #[test]
    fn fixed_size_keeps_its_bounds_and_its_table() {
        for bytes in [16 << 10, 64 << 10, 128 << 10] {
            let mut shards = FixedSize::with_bytes(bytes, 1);
            let mut exact = ExactLru::new();
            for key in zipf_like(300_000, 1 << 20) {
                shards.access(key, 1);
                exact.access(key, 1);
                assert!(shards.samples() <= shards.table.samples_max());
            }
            assert!(
                shards.bytes() <= bytes && shards.bytes() > bytes * 9 / 10,
                "{} of {bytes}",
                shards.bytes()
            );
            // Only hashes up to the threshold are there.
            assert!(shards.table.hashes().all(|hash| hash <= shards.threshold));
            assert_eq!(shards.table.hashes().count(), shards.samples());
            let footprint = exact.footprint_blocks() as f64;
            assert!((shards.footprint_blocks() as f64 / footprint - 1.0).abs() < 0.15);
        }
    }

    /// Single precision would stop counting at 2^24.
    #[test]
    fn a_hot_block_is_counted_for_ever() {
        let mut shards = FixedSize::with_bytes(16 << 10, 0);
        (0..17_000_000).for_each(|_| shards.access(1, 1));
        assert!((shards.curve().miss_ratio_at(1) - 1.0 / 17e6).abs() < 1e-12);
    }

    #[test]
    fn a_seed_chooses_the_sample_and_nothing_else_does() {
        let run = |seed| {
            let mut shards = FixedSize::with_bytes(16 << 10, seed);
            zipf_like(100_000, 1 << 20).for_each(|key| shards.access(key, 1));
            shards.curve()
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
    }

    #[test]
    fn batches_and_single_accesses_agree() {
        let keys: Vec<u64> = zipf_like(50_000, 1 << 16).collect();
        let (mut one, mut many) = (FixedRate::new(0.1, 9), FixedRate::new(0.1, 9));
        keys.iter().for_each(|&key| one.access(key, 1));
        keys.chunks(777).for_each(|chunk| many.access_batch(chunk));
        assert_eq!(one.curve(), many.curve());
        assert!((one.rate() - 0.1).abs() < 1e-9);
    }
}
