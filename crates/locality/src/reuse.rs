//! Curves from reuse *times*: AET (Hu et al., ATC '16) and the derivative of the working set size.
//!
//! A reuse time is the number of accesses since a block's last use, itself included; it needs a table of last uses and no
//! order, so a pass is linear. The derivative (Denning and Schwartz, CACM 1972; the average footprint of Xiang et al.,
//! ASPLOS '13) is the baseline that the literature measures itself against; AET is what should be used.

use crate::loglinear::{bucket_of, bucket_start};
use crate::shards::{rate_of, sample_hash, seed_mask, threshold_of};
use crate::table::KeyTable;
use crate::{CurvePoint, MissRatioCurve};

/// Times in buckets, with their sums, so that what is asked for at the end of a bucket is exact.
#[derive(Clone, Debug, Default)]
struct Times {
    buckets: Vec<(u64, f64)>,
}

impl Times {
    fn add(&mut self, time: u64) {
        let bucket = bucket_of(time);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, (0, 0.0));
        }
        self.buckets[bucket].0 += 1;
        self.buckets[bucket].1 += time as f64;
    }

    fn get(&self, bucket: usize) -> (f64, f64) {
        self.buckets.get(bucket).map_or((0.0, 0.0), |&(count, sum)| (count as f64, sum))
    }

    fn totals(&self) -> (f64, f64) {
        self.buckets.iter().fold((0.0, 0.0), |(count, sum), bucket| (count + bucket.0 as f64, sum + bucket.1))
    }
}

/// Reuse times of a stream, of all blocks or of a sample of them by hash.
///
/// The histograms take constant space (some 100 KiB); the table of last uses takes 16 bytes a slot for each block *of the
/// sample*. Time runs over all accesses, sampled or not, so nothing is scaled.
#[derive(Clone, Debug)]
pub struct ReuseTimes {
    seed_mask: u64,
    threshold: u64,
    last_use: KeyTable<u64>,
    /// Accesses so far; the time of the latest one.
    now: u64,
    /// Of every access in the sample that has a predecessor.
    times: Times,
    /// Time from the start to the first use, by block of the sample.
    first_uses: Times,
    /// Counted weight of the sample by bucket of reuse time.
    weights: Vec<f64>,
    counted_sample: f64,
    counted: u64,
    /// Whether every access so far had weight 1.
    uniform: bool,
}

impl Default for ReuseTimes {
    fn default() -> ReuseTimes {
        ReuseTimes::new()
    }
}

impl ReuseTimes {
    /// Of all blocks.
    pub fn new() -> ReuseTimes {
        ReuseTimes::sampled(1.0, 0)
    }

    /// Of the share `rate` of the blocks; `seed` chooses which.
    ///
    /// # Panics
    /// If the rate is not above 0.
    pub fn sampled(rate: f64, seed: u64) -> ReuseTimes {
        ReuseTimes {
            seed_mask: seed_mask(seed),
            threshold: threshold_of(rate),
            last_use: KeyTable::new(),
            now: 0,
            times: Times::default(),
            first_uses: Times::default(),
            weights: Vec::new(),
            counted_sample: 0.0,
            counted: 0,
            uniform: true,
        }
    }

    /// One access; weight 0 is a use as any other, but is not counted.
    pub fn access(&mut self, key: u64, weight: u64) {
        self.now += 1;
        self.counted += weight;
        let hash = sample_hash(key, self.seed_mask);
        if hash > self.threshold {
            return;
        }
        self.uniform &= weight == 1;
        self.counted_sample += weight as f64;
        // The hash is a bijection: mixed once more by the table it serves as the key.
        match self.last_use.replace(hash, self.now) {
            Some(before) => {
                let time = self.now - before;
                self.times.add(time);
                let bucket = bucket_of(time);
                if bucket >= self.weights.len() {
                    self.weights.resize(bucket + 1, 0.0);
                }
                self.weights[bucket] += weight as f64;
            }
            None => self.first_uses.add(self.now),
        }
    }

    /// The (estimated) number of distinct blocks.
    pub fn footprint_blocks(&self) -> u64 {
        (self.last_use.len() as f64 / rate_of(self.threshold)).round() as u64
    }

    /// Counted weight.
    pub fn counted(&self) -> u64 {
        self.counted
    }

    /// The curve by AET: after `T` accesses without use a block has sunk as deep as `c(T) = P(0) + ... + P(T - 1)`, where
    /// `P(x)` is the share of accesses with a reuse time above `x` (equation 4), so a cache of `c(T)` blocks misses
    /// those with a reuse time above `T` (equation 5). First touches count as infinite times.
    pub fn aet_curve(&self) -> MissRatioCurve {
        let (reuses, _) = self.times.totals();
        let accesses = reuses + self.last_use.len() as f64;
        let mut longer = accesses;
        let mut sum = 0.0;
        self.curve_by(|bucket, until| {
            // The sum over x < T of the share above x is the mean of min(time, T).
            let (count, times) = self.times.get(bucket);
            longer -= count;
            sum += times;
            (sum + until * longer) / accesses
        })
    }

    /// The curve from the derivative of the average working set size `fp(w)` over all windows of `w` accesses: a cache of
    /// `fp(w)` blocks misses `fp(w + 1) - fp(w)` of the accesses. Where weights differ, the weighted share of reuse times above
    /// `w` takes the place of the derivative, which knows no weights.
    pub fn working_set_curve(&self) -> MissRatioCurve {
        let rate = rate_of(self.threshold);
        let blocks = self.last_use.len() as f64;
        let n = self.now as f64;
        let mut last_uses = Times::default();
        self.last_use.stamps().for_each(|at| last_uses.add(self.now + 1 - at));
        // A window misses a block if it lies before its first use, after its last, or between two: for a gap of `t` there are
        // max(0, t - w) such windows of w accesses (Xiang et al., equation 5).
        let mut gaps = [&self.first_uses, &last_uses, &self.times]
            .map(|times| (times, times.totals().0, times.totals().1));
        let mut footprint_until = |bucket: usize, until: f64| {
            for (times, count, sum) in &mut gaps {
                let (here, here_sum) = times.get(bucket);
                *count -= here;
                *sum -= here_sum;
            }
            let missed: f64 = gaps.iter().map(|(_, count, sum)| sum - until * count).sum();
            // A bucket may end after the last access.
            (blocks - missed / (n - until + 1.0).max(1.0)) / rate
        };
        if !self.uniform {
            return self.curve_by(footprint_until);
        }
        let mut before = (0.0, 0.0);
        let mut points = Vec::new();
        for bucket in 0.. {
            let until = (bucket_start(bucket + 1) - 1) as f64;
            if until > n {
                break;
            }
            let footprint = footprint_until(bucket, until);
            let span: f64 = until - before.0;
            if span > 0.0 {
                let slope = ((footprint - before.1) / span).clamp(0.0, 1.0);
                // The middle of the windows that the slope stands for: the one before itself where they are single.
                let size_blocks = (before.1 + slope * (span - 1.0) / 2.0).round().max(0.0) as u64;
                if size_blocks > 0 {
                    points.push(CurvePoint { size_blocks, miss_ratio: slope });
                }
            }
            before = (until, footprint);
        }
        lowest_per_size(points)
    }

    /// The weighted share of reuse times above the end of each bucket, at the size that `size` gives for it.
    fn curve_by(&self, mut size: impl FnMut(usize, f64) -> f64) -> MissRatioCurve {
        let mut points = Vec::new();
        let mut misses = self.counted_sample;
        for (bucket, weight) in self.weights.iter().enumerate() {
            misses -= weight;
            let until = (bucket_start(bucket + 1) - 1) as f64;
            let size_blocks = size(bucket, until).round().max(0.0) as u64;
            if self.counted_sample > 0.0 && size_blocks > 0 {
                let miss_ratio = (misses / self.counted_sample).clamp(0.0, 1.0);
                points.push(CurvePoint { size_blocks, miss_ratio });
            }
        }
        lowest_per_size(points)
    }
}

/// Several windows may round to one size: the longest of them has the lowest ratio, and counts.
fn lowest_per_size(mut points: Vec<CurvePoint>) -> MissRatioCurve {
    points.sort_by(|a, b| a.size_blocks.cmp(&b.size_blocks).then(a.miss_ratio.total_cmp(&b.miss_ratio)));
    points.dedup_by_key(|point| point.size_blocks);
    MissRatioCurve::new(points)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_units::mix64;

    #[test]
    fn a_loop_by_hand() {
        // 1,000 rounds over 10 blocks: all reuse times are 10, so P(x) = 1 for x < 10 and c(10) = 10: the cliff is at 10 blocks.
        let mut times = ReuseTimes::new();
        (0..10_000u64).for_each(|step| times.access(step % 10, 1));
        let aet = times.aet_curve();
        assert_eq!(aet.miss_ratio_at(9), 1.0);
        assert!((aet.miss_ratio_at(10) - 10.0 / 10_000.0).abs() < 1e-9);
        // A window of w <= 10 accesses touches w blocks, a longer one 10: the derivative falls from 1 to 0 at 10.
        let derivative = times.working_set_curve();
        assert_eq!(derivative.miss_ratio_at(9), 1.0);
        assert!(derivative.miss_ratio_at(10) < 0.01);
        assert_eq!((times.footprint_blocks(), times.counted()), (10, 10_000));
    }

    /// The average footprint over all windows by brute force equals the formula at every bucket end.
    #[test]
    fn the_average_footprint_is_what_windows_say() {
        let keys: Vec<u64> = (0..60).map(|step| mix64(step) % 9).collect();
        let mut times = ReuseTimes::new();
        keys.iter().for_each(|&key| times.access(key, 1));
        let footprint = |window: usize| {
            let sums: usize = keys
                .windows(window)
                .map(|part| part.iter().collect::<std::collections::BTreeSet<_>>().len())
                .sum();
            sums as f64 / (keys.len() - window + 1) as f64
        };
        let curve = times.working_set_curve();
        assert_eq!((footprint(2).round(), footprint(3).round(), footprint(4).round()), (2.0, 3.0, 4.0));
        assert!((curve.miss_ratio_at(2) - (footprint(3) - footprint(2))).abs() < 1e-9);
        assert!((curve.miss_ratio_at(3) - (footprint(4) - footprint(3))).abs() < 1e-9);
    }

    #[test]
    fn nothing_and_first_touches_only() {
        assert_eq!(ReuseTimes::new().aet_curve().floor(), 1.0);
        assert_eq!(ReuseTimes::new().working_set_curve().floor(), 1.0);
        let mut times = ReuseTimes::new();
        (0..100).for_each(|key| times.access(key, 1));
        assert_eq!((times.aet_curve().floor(), times.working_set_curve().floor()), (1.0, 1.0));
    }
}
