//! How a drawn load's requests divide among its places: what the most popular ones get, and how evenly.
//!
//! It is *not* the generator. Invariant: what is said to be the most is no less than what any places get, on average.

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
    /// The most that any `held` of them get of all requests, as a share.
    pub(super) fn most_of(self, held: f64) -> f64 {
        let count = self.count as f64;
        if held >= count {
            return 1.0;
        }
        if held <= 0.0 {
            return 0.0;
        }
        match self.theta {
            0.0 => held / count,
            // A part of a place is no more than what the most popular one has of it.
            theta => {
                let most = sum_at_most(theta, held.max(1.0)) * held.min(1.0);
                (most / sum_at_least(theta, count)).min(1.0)
            }
        }
    }

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
    fn no_places_get_more_than_is_said_and_hardly_less() {
        for theta in [0.0, 0.5, 0.9, 1.0, 1.3, 3.0] {
            for count in [1u64, 2, 50, 5_000] {
                let places = Places { count, theta };
                let weights: Vec<f64> = (1..=count).map(|rank| (rank as f64).powf(-theta)).collect();
                let all: f64 = weights.iter().sum();
                for held in [1, 2, count / 10, count / 2, count] {
                    let exact = weights.iter().take(held as usize).sum::<f64>() / all;
                    let said = places.most_of(held as f64);
                    assert!(
                        said >= exact - 1e-9 && said <= 3.0 * exact + 1e-9,
                        "{theta} {count} {held}: {said} {exact}"
                    );
                }
                let twice = weights.iter().map(|weight| (weight / all).powi(2)).sum::<f64>();
                let said = places.met_again();
                assert!(said >= twice - 1e-9, "{theta} {count}: {said} {twice}");
            }
        }
        // Without a law all are alike: the tenth part of the places gets the tenth part.
        assert_eq!(Places { count: 50, theta: 0.0 }.most_of(5.0), 0.1);
    }
}
