//! Seeded generators of block choices and arrivals. The same seed gives the same sequence on every machine.
//!
//! Nothing here knows a volume or a clock: a picker yields block indices, an arrival process yields spans.

use forebay_units::{BlockIndex, Nanos, mix64, nearest};
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

/// The generator behind everything random; small, fast and the same everywhere.
pub type Random = Xoshiro256PlusPlus;

/// The generator for `seed`.
pub fn random(seed: u64) -> Random {
    Random::seed_from_u64(seed)
}

/// Uniform from 0 to below 1, 53 bits.
#[inline]
pub fn unit(random: &mut Random) -> f64 {
    random.random::<f64>()
}

/// Ranks from 1 to n with probability proportional to `rank^-theta`, by rejection-inversion: no table, `O(1)` memory
/// and time, about 1.1 draws per rank.
///
/// Source: W. Hörmann and G. Derflinger, "Rejection-inversion to generate variates from monotone discrete
/// distributions", ACM TOMACS 6(3), 1996.
#[derive(Clone, Copy, Debug)]
pub struct ZipfRanks {
    count: u64,
    theta: f64,
    integral_first: f64,
    integral_end: f64,
    squeeze: f64,
}

impl ZipfRanks {
    /// Ranks `1..=count`; `theta` 0 is uniform, 1 is Zipf's law.
    ///
    /// # Panics
    /// If `count` is 0 or `theta` is negative or no number.
    pub fn new(count: u64, theta: f64) -> ZipfRanks {
        assert!(count > 0, "a distribution needs at least one rank");
        assert!(theta >= 0.0 && theta.is_finite(), "theta must be a number of at least 0, found {theta}");
        let mut ranks = ZipfRanks { count, theta, integral_first: 0.0, integral_end: 0.0, squeeze: 0.0 };
        ranks.integral_first = ranks.integral(1.5) - 1.0;
        ranks.integral_end = ranks.integral(count as f64 + 0.5);
        ranks.squeeze = 2.0 - ranks.integral_inverse(ranks.integral(2.5) - 2f64.powf(-theta));
        ranks
    }

    /// H(x), the integral of `x^-theta`, shifted so that it is stable around theta = 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        expm1_ratio((1.0 - self.theta) * log) * log
    }

    fn integral_inverse(&self, y: f64) -> f64 {
        let t = (y * (1.0 - self.theta)).max(-1.0);
        (log1p_ratio(t) * y).exp()
    }

    /// The next rank, from 1 to count.
    pub fn next(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.integral_end + unit(random) * (self.integral_first - self.integral_end);
            let x = self.integral_inverse(u);
            let rank = nearest(x).clamp(1, self.count);
            let k = rank as f64;
            if k - x <= self.squeeze || u >= self.integral(k + 0.5) - k.powf(-self.theta) {
                return rank;
            }
        }
    }

    /// The probability of `rank`; `O(count)`, for tests and small models.
    pub fn probability(&self, rank: u64) -> f64 {
        let sum: f64 = (1..=self.count).map(|k| (k as f64).powf(-self.theta)).sum();
        (rank as f64).powf(-self.theta) / sum
    }
}

/// `(exp(x) - 1) / x`, 1 at 0.
fn expm1_ratio(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 }
}

/// `ln(1 + x) / x`, 1 at 0.
fn log1p_ratio(x: f64) -> f64 {
    match x.abs() {
        // 1 + x loses 1e-14 of x there at most, and the plain logarithm takes half the time.
        0.01.. => (1.0 + x).ln() / x,
        1e-8.. => x.ln_1p() / x,
        _ => 1.0 - x / 2.0,
    }
}

/// A bijection on `0..count` without a table: spreads neighbouring ranks over the whole range.
///
/// A four-round Feistel network over the next even number of bits, walked until it lands inside the range
/// ("cycle walking", Black and Rogaway, CT-RSA '02): fewer than four steps on average.
#[derive(Clone, Copy, Debug)]
pub struct Scatter {
    count: u64,
    half_bits: u32,
    seed: u64,
}

impl Scatter {
    /// The bijection on `0..count` that `seed` chooses.
    ///
    /// # Panics
    /// If `count` is 0 or above 2^62.
    pub fn new(count: u64, seed: u64) -> Scatter {
        assert!((1..=1 << 62).contains(&count), "a scatter covers 1 to 2^62 places, found {count}");
        let bits = 64 - (count - 1).leading_zeros();
        Scatter { count, half_bits: bits.div_ceil(2).max(1), seed }
    }

    /// Where `place` goes.
    ///
    /// # Panics
    /// If `place` is not below the count.
    pub fn apply(&self, place: u64) -> u64 {
        assert!(place < self.count, "place {place} of {}", self.count);
        let mask = (1u64 << self.half_bits) - 1;
        let mut value = place;
        loop {
            let (mut left, mut right) = (value >> self.half_bits, value & mask);
            for round in 0..4u64 {
                let mixed = mix64(right ^ self.seed.rotate_left(17 * round as u32) ^ (round << 60)) & mask;
                (left, right) = (right, left ^ mixed);
            }
            value = (left << self.half_bits) | right;
            if value < self.count {
                return value;
            }
        }
    }
}

/// Chooses blocks of a range.
#[derive(Clone, Debug)]
pub enum BlockPicker {
    /// Every block with the same probability.
    Uniform {
        /// Blocks `0..count`.
        count: u64,
    },
    /// Popularity by Zipf's law, the popular blocks scattered over the range.
    Zipf {
        /// Which rank.
        ranks: ZipfRanks,
        /// Which block has that rank.
        scatter: Scatter,
    },
    /// One block after the other, from the start again at the end.
    Sequential {
        /// Blocks `0..count`.
        count: u64,
        /// The next one.
        next: u64,
    },
}

impl BlockPicker {
    /// Uniform over blocks `0..count`.
    ///
    /// # Panics
    /// If `count` is 0.
    pub fn uniform(count: u64) -> BlockPicker {
        assert!(count > 0, "a picker needs at least one block");
        BlockPicker::Uniform { count }
    }

    /// Zipf with exponent `theta` over blocks `0..count`; `seed` chooses which blocks are hot.
    ///
    /// # Panics
    /// As [`ZipfRanks::new`] and [`Scatter::new`].
    pub fn zipf(count: u64, theta: f64, seed: u64) -> BlockPicker {
        BlockPicker::Zipf { ranks: ZipfRanks::new(count, theta), scatter: Scatter::new(count, seed) }
    }

    /// Blocks 0, 1, 2, ... of `0..count`.
    ///
    /// # Panics
    /// If `count` is 0.
    pub fn sequential(count: u64) -> BlockPicker {
        assert!(count > 0, "a picker needs at least one block");
        BlockPicker::Sequential { count, next: 0 }
    }

    /// The next block.
    pub fn next(&mut self, random: &mut Random) -> BlockIndex {
        match self {
            BlockPicker::Uniform { count } => BlockIndex(random.random_range(0..*count)),
            BlockPicker::Zipf { ranks, scatter } => BlockIndex(scatter.apply(ranks.next(random) - 1)),
            BlockPicker::Sequential { count, next } => {
                let block = BlockIndex(*next);
                *next = (*next + 1) % *count;
                block
            }
        }
    }
}

/// When requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Open loop, independent of completions: exponential spans with this mean rate per second (a Poisson process).
    Poisson {
        /// Requests per second; above 0.
        rate: f64,
    },
    /// Open loop, equal spans.
    Constant {
        /// Requests per second; above 0.
        rate: f64,
    },
    /// Closed loop: so many requests are outstanding at all times, but for a thinking time after each completion.
    Closed {
        /// Requests outstanding; at least 1.
        outstanding: u32,
        /// Mean of the exponential thinking time; zero for none.
        think: Nanos,
    },
}

impl Arrivals {
    /// The span to the next arrival (open loop), or from a completion to the request that follows it (closed loop).
    ///
    /// # Panics
    /// If a rate is not above 0.
    pub fn next_span(&self, random: &mut Random) -> Nanos {
        match *self {
            Arrivals::Poisson { rate } => {
                assert!(rate > 0.0, "a rate must be above 0, found {rate}");
                Nanos::from_secs_f64(exponential(1.0 / rate, random))
            }
            Arrivals::Constant { rate } => {
                assert!(rate > 0.0, "a rate must be above 0, found {rate}");
                Nanos::from_secs_f64(1.0 / rate)
            }
            Arrivals::Closed { think, .. } if think == Nanos::ZERO => Nanos::ZERO,
            Arrivals::Closed { think, .. } => Nanos::from_secs_f64(exponential(think.as_secs_f64(), random)),
        }
    }
}

/// An exponential variate with this mean.
pub fn exponential(mean: f64, random: &mut Random) -> f64 {
    // 1 - u lies in (0, 1], so the logarithm is finite.
    -(1.0 - unit(random)).ln() * mean
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn zipf_ranks_have_their_probabilities() {
        for theta in [0.0, 0.5, 0.9, 1.0, 1.3] {
            let ranks = ZipfRanks::new(50, theta);
            let (mut counts, draws) = ([0u32; 51], 200_000);
            let mut random = random(7);
            (0..draws).for_each(|_| counts[ranks.next(&mut random) as usize] += 1);
            for rank in [1, 2, 3, 10, 50] {
                let expected = ranks.probability(rank) * f64::from(draws);
                let found = f64::from(counts[rank as usize]);
                // Five standard deviations of a binomial count.
                assert!(
                    (found - expected).abs() < 5.0 * expected.sqrt() + 1.0,
                    "{theta} {rank}: {found} {expected}"
                );
            }
        }
    }

    #[test]
    fn the_plain_logarithm_is_taken_where_it_is_as_good() {
        for x in [1e-9, 1.1e-5, 0.001_1, 0.01, 0.010_000_1, 0.3, 1.0, 3.3, 1e6, -0.01, -0.5, -0.999] {
            let (found, exact) = (log1p_ratio(x), f64::ln_1p(x) / x);
            assert!((found / exact - 1.0).abs() < 1.5e-14, "{x}: {found} {exact}");
        }
    }

    #[test]
    fn exponential_spans_have_their_mean_and_variance() {
        let mut random = random(11);
        let spans: Vec<f64> = (0..100_000)
            .map(|_| Arrivals::Poisson { rate: 200.0 }.next_span(&mut random).as_secs_f64())
            .collect();
        let mean = crate::statistics::mean(&spans).unwrap();
        let variance = crate::statistics::variance(&spans).unwrap();
        assert!((mean - 0.005).abs() < 0.0001, "{mean}");
        assert!((variance / (mean * mean) - 1.0).abs() < 0.03, "{variance}");
        let closed = Arrivals::Closed { outstanding: 4, think: Nanos::ZERO };
        assert_eq!(closed.next_span(&mut random), Nanos::ZERO);
        assert_eq!(Arrivals::Constant { rate: 4.0 }.next_span(&mut random), Nanos::millis(250));
    }

    #[test]
    fn the_same_seed_gives_the_same_blocks_and_hot_blocks_are_spread() {
        let draw = |seed| {
            let (mut picker, mut random) = (BlockPicker::zipf(1 << 20, 1.1, 3), random(seed));
            (0..1_000).map(|_| picker.next(&mut random).0).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        // The ten hottest blocks do not lie side by side.
        let scatter = Scatter::new(1 << 20, 3);
        let hottest: BTreeSet<u64> = (0..10).map(|rank| scatter.apply(rank) >> 12).collect();
        assert!(hottest.len() >= 8, "{hottest:?}");
        let mut sequential = BlockPicker::sequential(3);
        let mut random = random(1);
        let blocks: Vec<u64> = (0..4).map(|_| sequential.next(&mut random).0).collect();
        assert_eq!(blocks, [0, 1, 2, 0]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_scatter_is_a_bijection(count in 1u64..3_000, seed: u64) {
            let scatter = Scatter::new(count, seed);
            let images: BTreeSet<u64> = (0..count).map(|place| scatter.apply(place)).collect();
            prop_assert_eq!(images.len() as u64, count);
            prop_assert!(images.iter().all(|&image| image < count));
        }

        #[test]
        fn ranks_stay_in_range(count in 1u64..u64::MAX >> 2, theta in 0.0f64..3.0, seed: u64) {
            let (ranks, mut random) = (ZipfRanks::new(count, theta), random(seed));
            for _ in 0..20 {
                prop_assert!((1..=count).contains(&ranks.next(&mut random)));
            }
        }
    }
}
