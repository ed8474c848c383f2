//! How many distinct blocks there are, in bounded memory: adaptive sampling by hash (Wegman; Flajolet, Computing 43, 1990).

use foldhash::fast::FixedState;
use forebay_units::mix64;
use hashbrown::HashSet;

/// Blocks that are known at most. The standard error is 1.2 / sqrt(known), of which half to all are.
const KNOWN_MAX: usize = 1 << 14;

/// Counts distinct keys.
#[derive(Clone, Debug)]
pub(super) struct Footprint {
    known: HashSet<u64, FixedState>,
    /// A key is known if its hash is at most this.
    threshold: u64,
}

impl Footprint {
    pub(super) fn new() -> Footprint {
        Footprint { known: HashSet::default(), threshold: u64::MAX }
    }

    #[inline]
    pub(super) fn add(&mut self, key: u64) {
        let hash = mix64(key);
        if hash <= self.threshold && self.known.insert(hash) && self.known.len() > KNOWN_MAX {
            self.threshold /= 2;
            let threshold = self.threshold;
            self.known.retain(|hash| *hash <= threshold);
        }
    }

    /// Distinct keys, estimated where not all are known.
    pub(super) fn count(&self) -> u64 {
        self.known.len() as u64 * (u64::MAX / self.threshold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_counted_and_many_estimated() {
        let mut footprint = Footprint::new();
        (0..30_000u64).for_each(|at| footprint.add(at % 10_000));
        assert_eq!(footprint.count(), 10_000);
        (0..2_000_000u64).for_each(|at| footprint.add(at % 1_000_000));
        // Half to all of 16,384 are known: three standard errors are at most 4 %.
        assert!((footprint.count() as f64 / 1e6 - 1.0).abs() < 0.04, "{}", footprint.count());
    }
}
