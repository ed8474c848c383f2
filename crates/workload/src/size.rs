//! A histogram of request sizes by powers of two, cheap enough to be counted with every request.
//!
//! It knows no sum: who counts sizes counts bytes, too, and has the exact mean of them.

use crate::statistics::nearest_rank;
use serde::{Deserialize, Serialize};

/// How many requests had which size.
///
/// Invariant: counts are exact; a size is known to within its octave, which reaches from half its upper edge (exclusive) to it.
/// What is shorter than [`SizeHistogram::LOWEST`], or longer than [`SizeHistogram::HIGHEST`], counts as that. Recording is `O(1)`
/// without a branch (a leading-zero count and an addition), everything else linear in the 17 octaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct SizeHistogram {
    counts: [u64; OCTAVES],
}

const LOWEST_SHIFT: u32 = 9;
const OCTAVES: usize = 17;

impl SizeHistogram {
    /// Upper edge of the first octave in bytes: a sector.
    pub const LOWEST: u64 = 1 << LOWEST_SHIFT;
    /// Upper edge of the last octave in bytes: the longest request of the NBD protocol that servers have to expect.
    pub const HIGHEST: u64 = Self::LOWEST << (OCTAVES - 1);

    /// Upper edges of all octaves in bytes, ascending.
    pub fn edges() -> impl Iterator<Item = u64> {
        (0..OCTAVES).map(|octave| Self::LOWEST << octave)
    }

    /// Counts a request of so many bytes.
    #[inline]
    pub fn record(&mut self, bytes: u64) {
        self.counts[octave(bytes)] += 1;
    }

    /// How many requests were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }

    /// (upper edge in bytes, requests) of every octave that has some, ascending.
    pub fn octaves(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        Self::edges().zip(self.counts).filter(|(_, count)| *count > 0)
    }

    /// (upper edge in bytes, requests of at most so many) of every octave: the `le` buckets of a Prometheus histogram, of which the
    /// last one is all.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        Self::edges().zip(self.counts).scan(0u64, |sum, (edge, count)| {
            *sum = sum.saturating_add(count);
            Some((edge, *sum))
        })
    }

    /// The upper edge of the octave that `percentile` per cent of the requests do not exceed, in bytes; `None` where none was counted.
    /// `percentile` is from 0 to 100 and clamped to it.
    pub fn percentile(&self, percentile: f64) -> Option<u64> {
        let count = self.count();
        let wanted = nearest_rank(percentile, count);
        self.cumulative().find(|(_, below)| *below >= wanted).map(|(edge, _)| edge)
    }

    /// What was counted since `older`, an earlier state of this one.
    pub fn since(&self, older: &SizeHistogram) -> SizeHistogram {
        let mut counts = self.counts;
        counts.iter_mut().zip(older.counts).for_each(|(new, old)| *new = new.saturating_sub(old));
        SizeHistogram { counts }
    }

    /// Adds everything that `other` counted.
    pub fn merge(&mut self, other: &SizeHistogram) {
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, more)| *sum = sum.saturating_add(more));
    }
}

/// The octave of a size: the least whose upper edge it does not exceed, or the last.
#[inline]
fn octave(bytes: u64) -> usize {
    let sectors = bytes.saturating_sub(1) >> LOWEST_SHIFT;
    ((u64::BITS - sectors.leading_zeros()) as usize).min(OCTAVES - 1)
}

impl From<Vec<(u64, u64)>> for SizeHistogram {
    /// Whatever the order, the edges, and however often one is told of.
    fn from(octaves: Vec<(u64, u64)>) -> SizeHistogram {
        let mut sizes = SizeHistogram::default();
        for (edge, count) in octaves {
            let sum = &mut sizes.counts[octave(edge)];
            *sum = sum.saturating_add(count);
        }
        sizes
    }
}

impl From<SizeHistogram> for Vec<(u64, u64)> {
    fn from(sizes: SizeHistogram) -> Vec<(u64, u64)> {
        sizes.octaves().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(sizes: &[u64]) -> SizeHistogram {
        let mut histogram = SizeHistogram::default();
        sizes.iter().for_each(|&bytes| histogram.record(bytes));
        histogram
    }

    #[test]
    fn edges_belong_to_their_octave_and_what_is_beyond_counts_as_the_bound() {
        assert_eq!((SizeHistogram::LOWEST, SizeHistogram::HIGHEST), (512, 32 << 20));
        let sizes = of(&[0, 1, 512, 513, 1024, 1025, 4096, 32 << 20, (32 << 20) + 1, u64::MAX]);
        let octaves: Vec<(u64, u64)> = sizes.octaves().collect();
        assert_eq!(octaves, [(512, 3), (1024, 2), (2048, 1), (4096, 1), (32 << 20, 3)]);
        assert_eq!(sizes.cumulative().last(), Some((32 << 20, 10)));
    }

    #[test]
    fn percentiles_are_upper_edges() {
        // 90 of 4 KiB, 10 of 100,000 bytes, which is in the octave up to 128 KiB.
        let sizes = of(&[[4096; 90].as_slice(), &[100_000; 10]].concat());
        let at = |percentile| sizes.percentile(percentile);
        assert_eq!((at(0.0), at(50.0), at(90.0)), (Some(4096), Some(4096), Some(4096)));
        assert_eq!((at(90.1), at(100.0), at(1e9)), (Some(128 << 10), Some(128 << 10), Some(128 << 10)));
        assert_eq!(SizeHistogram::default().percentile(50.0), None);
    }

    #[test]
    fn what_is_written_is_read_again_and_strangers_words_are_taken_as_they_come() {
        let sizes = of(&[4096, 4096, 100_000]);
        let text = serde_json::to_string(&sizes).unwrap();
        assert_eq!(text, "[[4096,2],[131072,1]]");
        assert_eq!(serde_json::from_str::<SizeHistogram>(&text).unwrap(), sizes);
        let odd = format!("[[4000,1],[0,0],[3000,1],[131072,1],[512,{}],[1,{}]]", u64::MAX, u64::MAX);
        let odd: SizeHistogram = serde_json::from_str(&odd).unwrap();
        assert_eq!((odd.count(), odd.percentile(99.0)), (u64::MAX, Some(512)));
        assert_eq!(odd.since(&of(&[4096])).octaves().nth(1), Some((4096, 1)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Against counting one by one: cumulative counts, differences, sums.
        #[test]
        fn counts_are_those_of_counting_one_by_one(
            older in prop::collection::vec(0u64..=40 << 20, 0..50),
            newer in prop::collection::vec(0u64..=40 << 20, 0..50),
        ) {
            let all = of(&[older.clone(), newer.clone()].concat());
            prop_assert_eq!(all.count(), (older.len() + newer.len()) as u64);
            prop_assert_eq!(all.since(&of(&older)), of(&newer));
            let mut merged = of(&older);
            merged.merge(&of(&newer));
            prop_assert_eq!(merged, all);
            for (edge, count) in of(&newer).cumulative() {
                let within = newer.iter().filter(|bytes| **bytes <= edge || edge == SizeHistogram::HIGHEST);
                prop_assert_eq!(count, within.count() as u64, "at most {}", edge);
            }
        }
    }
}
