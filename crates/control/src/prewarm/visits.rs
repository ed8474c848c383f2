//! How often each zone is visited, estimated from counts, their age and their neighbours.
//!
//! A *visit* is an access to a zone that was not accessed for a while: a cluster of accesses is one visit, since only its first can
//! miss. (SANCache leaves sequential accesses out of its counts for the same reason; LRU-K calls them correlated references.)

use std::ops::Range;

/// How visits are counted and rates estimated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VisitRules {
    /// Milliseconds without access after which an access is a new visit. Default 5,000 (ours).
    pub gap_millis: u32,
    /// Milliseconds of an epoch, by which counts are kept. Default 300,000 (ours).
    pub epoch_millis: u32,
    /// Zones to each side that are looked at to smooth a zone's rate. Default 64 (ours).
    pub neighbours: usize,
}

impl Default for VisitRules {
    fn default() -> VisitRules {
        VisitRules { gap_millis: 5_000, epoch_millis: 300_000, neighbours: 64 }
    }
}

/// Half lives that are tried, in epochs; the one that would have predicted the last epoch best is taken. Ours.
const HALF_LIVES: [f64; 4] = [1.0, 3.0, 9.0, f64::INFINITY];
/// Epochs that are kept; older ones are added to the oldest. Ours.
const EPOCHS_MAX: usize = 64;

/// Visits of zones `0..n`, by epoch.
#[derive(Clone, Debug)]
pub struct Visits {
    rules: VisitRules,
    /// Milliseconds of the last access plus 1; 0: none yet.
    last: Vec<u32>,
    /// Counts per zone, the oldest epoch first.
    epochs: Vec<Vec<u16>>,
    /// Epochs that were added to the oldest that is kept.
    merged: usize,
}

impl Visits {
    /// No visits of `zones` zones.
    pub fn new(zones: usize, rules: VisitRules) -> Visits {
        Visits { rules, last: vec![0; zones], epochs: vec![vec![0; zones]], merged: 0 }
    }

    /// An access, in order of time. Returns whether it is a visit.
    ///
    /// # Panics
    /// If the zone is beyond the last.
    pub fn access(&mut self, zone: usize, at_millis: u32) -> bool {
        while u64::from(at_millis)
            >= (self.merged + self.epochs.len()) as u64 * u64::from(self.rules.epoch_millis)
        {
            if self.epochs.len() == EPOCHS_MAX {
                let second = self.epochs.remove(1);
                self.epochs[0]
                    .iter_mut()
                    .zip(second)
                    .for_each(|(sum, count)| *sum = sum.saturating_add(count));
                self.merged += 1;
            }
            self.epochs.push(vec![0; self.last.len()]);
        }
        let last = std::mem::replace(&mut self.last[zone], at_millis.saturating_add(1));
        let visit = last == 0 || at_millis.saturating_sub(last - 1) > self.rules.gap_millis;
        if visit && let Some(counts) = self.epochs.last_mut() {
            counts[zone] = counts[zone].saturating_add(1);
        }
        visit
    }

    /// Visits per second of each of `zones`, which should be those of one volume, as of `now_millis`.
    ///
    /// Each count weighs by its age, with the half life that makes the newest full epoch likeliest; then a zone's rate is the posterior mean
    /// of a gamma prior whose mean and variance are its neighbours': where neighbours differ no more than chance explains, all of them
    /// tell the rate of each, and where they differ more, a zone's own count does. Zones without a visited neighbour have rate 0.
    pub fn rates(&self, zones: Range<usize>, now_millis: u32) -> Vec<f64> {
        let full = self.epochs.len() - 1;
        let mut best = (f64::NEG_INFINITY, f64::INFINITY);
        if full >= 2 {
            for half_life in HALF_LIVES {
                let (counts, seconds) =
                    self.decayed(zones.clone(), full - 1, half_life, self.rules.epoch_millis);
                let expected = smoothed(&counts, self.rules.neighbours);
                let scale = f64::from(self.rules.epoch_millis) / 1_000.0 / seconds;
                let found = &self.epochs[full - 1][zones.clone()];
                // Log likelihood of Poisson counts, without what depends on them alone. A zone expected never is given a small rate.
                let likelihood: f64 = expected
                    .iter()
                    .zip(found)
                    .map(|(expected, &found)| {
                        let mean = (expected * scale).max(1e-4);
                        f64::from(found) * mean.ln() - mean
                    })
                    .sum();
                if likelihood >= best.0 {
                    best = (likelihood, half_life);
                }
            }
        }
        let newest =
            now_millis.saturating_sub(((self.merged + full) as u32).saturating_mul(self.rules.epoch_millis));
        let (counts, seconds) =
            self.decayed(zones, full + 1, best.1, newest.clamp(1, self.rules.epoch_millis));
        let mut rates = smoothed(&counts, self.rules.neighbours);
        rates.iter_mut().for_each(|rate| *rate /= seconds);
        rates
    }

    /// Counts of the first `epochs` epochs, the newest in full, and the seconds that they stand for. The newest has lasted
    /// `newest_millis`.
    fn decayed(
        &self,
        zones: Range<usize>,
        epochs: usize,
        half_life: f64,
        newest_millis: u32,
    ) -> (Vec<f64>, f64) {
        let mut counts = vec![0.0; zones.len()];
        let mut seconds = 0.0;
        for (age, epoch) in self.epochs[..epochs].iter().rev().enumerate() {
            let weight = (-(age as f64) / half_life).exp2();
            let of = &epoch[zones.clone()];
            counts.iter_mut().zip(of).for_each(|(sum, &count)| *sum += weight * f64::from(count));
            let lasted = match age {
                0 => f64::from(newest_millis),
                _ if age + 1 == epochs => f64::from(self.rules.epoch_millis) * (self.merged + 1) as f64,
                _ => f64::from(self.rules.epoch_millis),
            };
            seconds += weight * lasted / 1_000.0;
        }
        (counts, seconds)
    }
}

/// The posterior mean of each count, given those up to `neighbours` places away on each side. `O(n)`.
fn smoothed(counts: &[f64], neighbours: usize) -> Vec<f64> {
    let mut sums = Vec::with_capacity(counts.len() + 1);
    let (mut sum, mut squares) = (0.0, 0.0);
    sums.push((0.0, 0.0));
    for count in counts {
        sum += count;
        squares += count * count;
        sums.push((sum, squares));
    }
    counts
        .iter()
        .enumerate()
        .map(|(place, &count)| {
            let (from, to) = (place.saturating_sub(neighbours), (place + neighbours + 1).min(counts.len()));
            let number = (to - from) as f64;
            let mean = (sums[to].0 - sums[from].0) / number;
            if mean <= 1e-12 {
                return 0.0;
            }
            let variance = (sums[to].1 - sums[from].1) / number - mean * mean;
            // What chance alone does not explain; a Poisson count varies by its mean.
            let excess = variance - mean;
            if excess <= 0.0 {
                return mean;
            }
            // Gamma prior of shape mean^2 / excess and rate mean / excess.
            (mean * mean / excess + count) / (mean / excess + 1.0)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_one_visit() {
        let mut visits = Visits::new(3, VisitRules::default());
        // Zone 1 at 0, 1 and 5 s: one visit, since no gap is above 5 s. At 10.001 s: 5.001 s after the last one.
        let found: Vec<bool> = [0, 1_000, 5_000, 10_001].iter().map(|at| visits.access(1, *at)).collect();
        assert_eq!(found, [true, false, false, true]);
        assert!(visits.access(2, 10_001));
        // Two visits in 20 s.
        let alone = VisitRules { neighbours: 0, ..VisitRules::default() };
        let mut visits = Visits::new(2, alone);
        visits.access(0, 0);
        visits.access(0, 9_000);
        assert_eq!(visits.rates(0..2, 20_000), [0.1, 0.0]);
    }

    #[test]
    fn neighbours_that_are_alike_share_and_others_do_not() {
        // Mean 2 and variance 2 x 4 / 3: excess 2/3, prior shape 6 and rate 3: (6 + 0) / 4 and (6 + 4) / 4 where all three are seen.
        let rates = smoothed(&[0.0, 2.0, 4.0], 3);
        for (found, expected) in rates.iter().zip([1.5, 2.0, 2.5]) {
            assert!((found - expected).abs() < 1e-9, "{rates:?}");
        }
        assert_eq!(smoothed(&[3.0, 4.0, 3.0, 4.0], 3), [3.5; 4]);
        // One hot zone among cold ones keeps its count: mean 10, variance 900, shape 100/890, rate 10/890.
        let mut counts = vec![0.0; 10];
        counts[4] = 100.0;
        let rates = smoothed(&counts, 9);
        assert!(rates[4] > 98.0 && rates[5] < 0.2, "{rates:?}");
        assert_eq!(smoothed(&[0.0; 5], 1), [0.0; 5]);
    }

    #[test]
    fn a_workload_that_moved_is_believed_where_it_is() {
        let rules = VisitRules { epoch_millis: 100_000, neighbours: 2, ..VisitRules::default() };
        let (mut moved, mut stayed) = (Visits::new(200, rules), Visits::new(200, rules));
        for second in (0..1_000u32).step_by(10) {
            let old = second < 600;
            for zone in 0..20 {
                moved.access(if old { zone } else { 100 + zone }, second * 1_000);
                stayed.access(zone, second * 1_000);
            }
        }
        let (moved, stayed) = (moved.rates(0..200, 1_000_000), stayed.rates(0..200, 1_000_000));
        assert!(moved[110] > 3.0 * moved[10], "{} {}", moved[110], moved[10]);
        assert!((stayed[10] - 0.1).abs() < 0.02, "{}", stayed[10]);
    }

    #[test]
    fn epochs_are_bounded_and_nothing_is_lost() {
        let rules = VisitRules { epoch_millis: 10_000, neighbours: 0, ..VisitRules::default() };
        let mut visits = Visits::new(1, rules);
        for at in (0..2_000_000).step_by(10_000) {
            visits.access(0, at);
        }
        assert_eq!(visits.epochs.len(), EPOCHS_MAX);
        assert!((visits.rates(0..1, 2_000_000)[0] - 0.1).abs() < 1e-9);
    }
}
