//! Inter-arrival times: a histogram, the two-phase hyper-exponential fitted to it by EM, and how persistent its phases are.
//!
//! Two-phase hyper-exponential times fit storage best (250 and more traces, PEVA 2020). Independent draws from it lose bursts of many
//! requests, so the correlation of neighbours is kept: how often a long time follows on a long one.

use super::ModelError;
use serde::{Deserialize, Serialize};

/// Octaves of nanoseconds: 0, then `[2^(n-1), 2^n)`.
pub(crate) const OCTAVES: usize = 65;
/// Buckets per octave of the histogram, and of the one that is told.
const STEPS: usize = 8;
const TOLD: usize = 4;

/// The octave of a time.
#[inline]
pub(crate) fn octave(ns: u64) -> usize {
    64 - ns.leading_zeros() as usize
}

/// Times are either short (within a burst) or long (between bursts): a share `long` of them is exponential with one mean, the others
/// with another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HyperExponential {
    /// The share of long times, 0 to 1.
    pub long: f64,
    /// Mean of the short ones in microseconds.
    pub short_us: f64,
    /// Mean of the long ones in microseconds.
    pub long_us: f64,
    /// The probability that a long time follows on a long one; `long` where neighbours are independent.
    pub long_after_long: f64,
    /// The probability that a long time follows on a short one.
    pub long_after_short: f64,
}

/// A range of inter-arrival times; on paper an array `[from_us, to_us, requests]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "(f64, f64, u64)", into = "(f64, f64, u64)")]
pub struct GapBucket {
    /// The shortest time in microseconds.
    pub from_us: f64,
    /// The longest.
    pub to_us: f64,
    /// How many there are.
    pub requests: u64,
}

impl From<(f64, f64, u64)> for GapBucket {
    fn from((from_us, to_us, requests): (f64, f64, u64)) -> GapBucket {
        GapBucket { from_us, to_us, requests }
    }
}

impl From<GapBucket> for (f64, f64, u64) {
    fn from(bucket: GapBucket) -> (f64, f64, u64) {
        (bucket.from_us, bucket.to_us, bucket.requests)
    }
}

/// Inter-arrival times of a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gaps {
    /// The two-phase hyper-exponential with the greatest likelihood.
    pub hyper_exponential: HyperExponential,
    /// Times of at least this many microseconds are long.
    pub long_from_us: f64,
    /// The histogram that it was fitted to, in buckets of a quarter of an octave.
    pub histogram: Vec<GapBucket>,
}

impl Gaps {
    pub(super) fn check(&self, field: &str) -> Result<(), ModelError> {
        let h2 = &self.hyper_exponential;
        let shares = [h2.long, h2.long_after_long, h2.long_after_short];
        let times = [h2.short_us, h2.long_us, self.long_from_us];
        let wrong = |name: &str, found: f64, expected: &str| {
            Err(ModelError {
                field: format!("{field}.{name}"),
                found: found.to_string(),
                expected: expected.to_owned(),
            })
        };
        if let Some(&share) = shares.iter().find(|share| !(0.0..=1.0).contains(*share)) {
            return wrong("hyper_exponential", share, "shares from 0 to 1");
        }
        if let Some(&time) = times.iter().find(|time| !(0.0..=1e16).contains(*time)) {
            return wrong("hyper_exponential", time, "times from 0 to 1e16 us");
        }
        for bucket in &self.histogram {
            if !(0.0..=1e16).contains(&bucket.from_us)
                || !(bucket.from_us..=1e16).contains(&bucket.to_us)
                || bucket.requests > 1 << 60
            {
                return wrong("histogram", bucket.from_us, "ascending times from 0 to 1e16 us");
            }
        }
        Ok(())
    }
}

/// Times that are nearly equal.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    count: u64,
    sum: f64,
    least: u64,
    most: u64,
}

const EMPTY: Bucket = Bucket { count: 0, sum: 0.0, least: u64::MAX, most: 0 };

/// Counts inter-arrival times of a phase.
#[derive(Clone, Debug)]
pub(crate) struct GapCounter {
    buckets: Vec<Bucket>,
    /// By octaves of the time before and of the time itself.
    pairs: Vec<u64>,
}

impl GapCounter {
    pub(crate) fn new() -> GapCounter {
        GapCounter { buckets: vec![EMPTY; OCTAVES * STEPS], pairs: vec![0; OCTAVES * OCTAVES] }
    }

    #[inline]
    pub(crate) fn add(&mut self, before: u64, gap: u64) {
        let bucket = &mut self.buckets[bucket_of(gap)];
        bucket.count += 1;
        bucket.sum += gap as f64;
        bucket.least = bucket.least.min(gap);
        bucket.most = bucket.most.max(gap);
        self.pairs[octave(before) * OCTAVES + octave(gap)] += 1;
    }

    fn fit(&self) -> (HyperExponential, f64) {
        let occupied = self.buckets.iter().filter(|bucket| bucket.count > 0);
        let points: Vec<(f64, f64)> =
            occupied.map(|bucket| (bucket.sum / bucket.count as f64, bucket.count as f64)).collect();
        expectation_maximisation(&points)
    }

    /// The octave from which times are more likely long than short.
    pub(crate) fn border(&self) -> usize {
        octave(self.fit().1 as u64).clamp(1, OCTAVES - 1)
    }

    /// The fitted times, of which those from the octave `border_octave` on are long.
    pub(crate) fn finish(&self, border_octave: usize) -> Gaps {
        let (mut fitted, _) = self.fit();
        let mut after = [[0u64; 2]; 2];
        for (at, &count) in self.pairs.iter().enumerate() {
            after[usize::from(at / OCTAVES >= border_octave)][usize::from(at % OCTAVES >= border_octave)] +=
                count;
        }
        let share = |[short, long]: [u64; 2]| match short + long {
            0 => fitted.long,
            total => long as f64 / total as f64,
        };
        (fitted.long_after_short, fitted.long_after_long) = (share(after[0]), share(after[1]));
        let told = self.buckets.chunks(STEPS / TOLD).map(|buckets| {
            buckets.iter().fold(EMPTY, |all, bucket| Bucket {
                count: all.count + bucket.count,
                sum: all.sum + bucket.sum,
                least: all.least.min(bucket.least),
                most: all.most.max(bucket.most),
            })
        });
        let histogram = told
            .filter(|bucket| bucket.count > 0)
            .map(|bucket| {
                let mean = bucket.sum / bucket.count as f64;
                // As wide as leaves the mean in the middle: a bucket of equal times is a point.
                let half = (mean - bucket.least as f64).min(bucket.most as f64 - mean).max(0.0);
                let us = |ns: f64| (ns / 10.0).round() / 100.0;
                GapBucket { from_us: us(mean - half), to_us: us(mean + half), requests: bucket.count }
            })
            .collect();
        let long_from_us = if border_octave == 0 { 0.0 } else { (1u64 << (border_octave - 1)) as f64 / 1e3 };
        Gaps { hyper_exponential: fitted, long_from_us, histogram }
    }
}

#[inline]
fn bucket_of(ns: u64) -> usize {
    let octave = octave(ns);
    if octave <= 3 {
        return octave * STEPS;
    }
    octave * STEPS + ((ns >> (octave - 4)) & 7) as usize
}

/// The two-phase hyper-exponential of the greatest likelihood for (time, weight) pairs, in nanoseconds, and the time from which the
/// longer phase is the likelier one. Persistence is left at 0.
fn expectation_maximisation(points: &[(f64, f64)]) -> (HyperExponential, f64) {
    let total: f64 = points.iter().map(|point| point.1).sum();
    let mean = points.iter().map(|(time, weight)| time * weight).sum::<f64>() / total.max(1.0);
    if total == 0.0 || mean == 0.0 {
        return (HyperExponential::default(), 0.0);
    }
    // Start from the two sides of the mean.
    let side = |long: bool| {
        let (mut weights, mut sum) = (0.0, 0.0);
        for (time, weight) in points.iter().filter(|(time, _)| (*time > mean) == long) {
            weights += weight;
            sum += time * weight;
        }
        (weights, sum / weights.max(1.0))
    };
    let ((_, short), (long_weight, long)) = (side(false), side(true));
    if long_weight == 0.0 {
        // All alike.
        let us = mean / 1e3;
        return (HyperExponential { long: 1.0, short_us: us, long_us: us, ..Default::default() }, 0.0);
    }
    let (mut share, mut short, mut long) = (long_weight / total, short.max(0.5), long);
    for _ in 0..200 {
        let (mut weight_long, mut sum_long, mut weight_short, mut sum_short) = (0.0, 0.0, 0.0, 0.0);
        for &(time, weight) in points {
            let of_long = share / long * (-time / long).exp();
            let of_short = (1.0 - share) / short * (-time / short).exp();
            let posterior = if of_long + of_short > 0.0 { of_long / (of_long + of_short) } else { 1.0 };
            weight_long += posterior * weight;
            sum_long += posterior * weight * time;
            weight_short += (1.0 - posterior) * weight;
            sum_short += (1.0 - posterior) * weight * time;
        }
        let before = (share, short, long);
        share = (weight_long / total).clamp(1e-9, 1.0 - 1e-9);
        long = (sum_long / weight_long.max(1e-9)).max(1.0);
        short = (sum_short / weight_short.max(1e-9)).max(0.5);
        let moved = |now: f64, then: f64| (now / then - 1.0).abs() > 1e-9;
        if !moved(share, before.0) && !moved(short, before.1) && !moved(long, before.2) {
            break;
        }
    }
    let border = if long > short * 1.000_001 {
        (((1.0 - share) * long / (share * short)).ln() / (1.0 / short - 1.0 / long)).max(0.0)
    } else {
        0.0
    };
    let fitted = HyperExponential {
        long: share,
        short_us: short / 1e3,
        long_us: long / 1e3,
        ..HyperExponential::default()
    };
    (fitted, border)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::{exponential, random, unit};

    #[test]
    fn buckets_ascend_and_are_narrow() {
        let mut last = (0, 0);
        for ns in (0..10_000)
            .chain((14..63).flat_map(|octave| (0..64).map(move |step| (64 + step) << (octave - 6))))
        {
            let bucket = bucket_of(ns);
            assert!(bucket >= last.0 && bucket < OCTAVES * STEPS, "{ns}");
            if bucket > last.0 {
                last = (bucket, ns);
            }
            assert!(ns <= last.1 + (last.1 / 8).max(3), "{ns} shares a bucket with {}", last.1);
        }
    }

    /// A quarter of the times is long (8 ms), the others are short (100 us); after a long one, half are long.
    #[test]
    fn a_known_mixture_is_found_again() {
        let mut random = random(3);
        let (mut counter, mut before, mut long) = (GapCounter::new(), 0, false);
        for _ in 0..200_000 {
            // Stationary: x = x / 2 + (1 - x) / 6 gives x = 1/4.
            long = unit(&mut random) < if long { 0.5 } else { 1.0 / 6.0 };
            let gap = exponential(if long { 8e6 } else { 1e5 }, &mut random) as u64;
            counter.add(before, gap);
            before = gap;
        }
        let gaps = counter.finish(counter.border());
        let found = gaps.hyper_exponential;
        assert!((found.long - 0.25).abs() < 0.01, "{found:?}");
        assert!((found.short_us / 100.0 - 1.0).abs() < 0.03, "{found:?}");
        assert!((found.long_us / 8_000.0 - 1.0).abs() < 0.03, "{found:?}");
        // Some short ones pass for long ones at the border and the other way round.
        assert!((found.long_after_long - 0.5).abs() < 0.06, "{found:?}");
        assert!((found.long_after_short - 1.0 / 6.0).abs() < 0.03, "{found:?}");
        let mean = |of: &dyn Fn(&GapBucket) -> f64| -> f64 {
            gaps.histogram.iter().map(|b| of(b) * b.requests as f64).sum::<f64>() / 200_000.0
        };
        // 8,000 / 4 + 100 * 3 / 4 = 2,075 us.
        assert!((mean(&|b| (b.from_us + b.to_us) / 2.0) / 2_075.0 - 1.0).abs() < 0.02);
    }

    #[test]
    fn equal_times_and_no_times_are_fitted_too() {
        let mut counter = GapCounter::new();
        assert!(counter.finish(1).histogram.is_empty());
        (0..10).for_each(|_| counter.add(5_000, 5_000));
        let gaps = counter.finish(counter.border());
        assert_eq!(gaps.histogram, [GapBucket { from_us: 5.0, to_us: 5.0, requests: 10 }]);
        assert_eq!((gaps.hyper_exponential.short_us, gaps.hyper_exponential.long_us), (5.0, 5.0));
        assert!(gaps.check("gaps").is_ok());
        let mut zeros = GapCounter::new();
        (0..10).for_each(|_| zeros.add(0, 0));
        assert_eq!(zeros.finish(1).histogram, [GapBucket { from_us: 0.0, to_us: 0.0, requests: 10 }]);
    }
}
