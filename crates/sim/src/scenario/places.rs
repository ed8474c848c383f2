//! How evenly a drawn load's requests divide among its places.
//!
//! It is *not* the generator. Invariant: they divide no less evenly than is said.

use super::{LoadTable, Popularity, VolumeTable};

/// The places of a drawn load: as many whole requests as its working set holds, side by side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Places {
    pub(super) count: u64,
    /// Of Zipf's law; 0 where all are asked for as often.
    theta: f64,
}

impl LoadTable {
    /// Bytes of which a drawn load asks for any at all.
    pub(super) fn span_bytes(&self, volume: &VolumeTable) -> u64 {
        self.working_set.unwrap_or(volume.size.saturating_sub(self.offset)).get()
    }

    /// The places of a drawn load.
    pub(super) fn places(&self, volume: &VolumeTable) -> Places {
        let theta = match self.popularity {
            Popularity::Zipf => self.theta.unwrap_or(0.9),
            Popularity::Uniform | Popularity::Sequential => 0.0,
        };
        Places { count: (self.span_bytes(volume) / self.request_bytes(volume).max(1)).max(1), theta }
    }
}

/// No less than the sum of `k^-exponent` for `k` from 1 to `count`.
fn sum_at_most(exponent: f64, count: f64) -> f64 {
    1.0 + integral(exponent, 1.0, count)
}

/// No more than that.
fn sum_at_least(exponent: f64, count: f64) -> f64 {
    integral(exponent, 1.0, count + 1.0)
}

/// Of `x^-exponent`.
fn integral(exponent: f64, from: f64, to: f64) -> f64 {
    let rest = 1.0 - exponent;
    if rest.abs() < 1e-9 { (to / from).ln() } else { (to.powf(rest) - from.powf(rest)) / rest }
}

impl Places {
    /// No less than the probability that two requests ask for one place.
    pub(super) fn met_again(self) -> f64 {
        let count = self.count as f64;
        let all = sum_at_least(self.theta, count);
        (sum_at_most(2.0 * self.theta, count) / (all * all)).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_met_again_no_more_often_than_is_said() {
        for theta in [0.0, 0.5, 0.9, 1.0, 1.3, 3.0] {
            for count in [1u64, 2, 50, 5_000] {
                let places = Places { count, theta };
                let weights: Vec<f64> = (1..=count).map(|rank| (rank as f64).powf(-theta)).collect();
                let all: f64 = weights.iter().sum();
                let twice = weights.iter().map(|weight| (weight / all).powi(2)).sum::<f64>();
                let said = places.met_again();
                assert!(said >= twice - 1e-9, "{theta} {count}: {said} {twice}");
            }
        }
    }
}
