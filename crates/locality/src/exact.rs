//! Exact LRU stack distances in one pass.

use crate::recency::Recency;
use crate::table::{BATCH, KeyTable};
use crate::{DistanceHistogram, MissRatioCurve};

/// The fewest positions in time that are kept, whatever the number of blocks.
const POSITIONS_MIN: usize = 1 << 14;
/// Positions per distinct block after a compaction: the others are what may pass until the next. 4 bits a block.
const POSITIONS_PER_BLOCK: usize = 4;

/// The exact LRU miss ratio curve of a stream of block accesses.
///
/// A table holds the position in time of each block's last use (12 bytes a slot, 53% to 80% full), a bit per position says
/// whether it is still somebody's last use, and a Fenwick tree over blocks of bits counts them: `O(log blocks)` time per access
/// and, with the histogram, 24 to 32 bytes per distinct block, up to 48 while the table grows. At most 2^30 blocks.
///
/// An access of weight 0 moves its block to the front as any other does (a fill, or a write that fills) but is not
/// counted; weight 1 counts accesses, weight = bytes gives the curve per byte.
#[derive(Clone, Debug)]
pub struct ExactLru {
    table: KeyTable<u32>,
    recency: Recency,
    distances: DistanceHistogram,
}

impl Default for ExactLru {
    fn default() -> ExactLru {
        ExactLru::new()
    }
}

impl ExactLru {
    /// Nothing seen yet.
    pub fn new() -> ExactLru {
        ExactLru {
            table: KeyTable::new(),
            recency: Recency::new(POSITIONS_MIN),
            distances: DistanceHistogram::new(),
        }
    }

    /// One access; its stack distance, `None` for a first touch.
    pub fn access(&mut self, key: u64, weight: u64) -> Option<u64> {
        self.make_room(1);
        let now = self.recency.next() as u32;
        let before = self.table.replace(key, now);
        let distance = self.settle(before);
        match distance {
            _ if weight == 0 => {}
            Some(distance) => self.distances.add(distance, weight),
            None => self.distances.add_first_touch(weight),
        }
        distance
    }

    /// Accesses of weight 1 in order: several times faster than one by one where the table is larger than the
    /// processor's caches.
    pub fn access_batch(&mut self, keys: &[u64]) {
        let mut homes = [0; BATCH];
        let mut distances = [0; BATCH];
        for batch in keys.chunks(BATCH) {
            self.make_room(BATCH);
            self.table.reserve(BATCH);
            self.table.warm(batch, &mut homes);
            for ((&key, &home), distance) in batch.iter().zip(&homes).zip(&mut distances) {
                let now = self.recency.next() as u32;
                let before = self.table.replace_from(home, key, now);
                *distance = self.settle(before).unwrap_or(0);
            }
            // Apart from the above, as each of these is likely to miss the processor's caches too.
            self.distances.add_each(&distances[..batch.len()]);
        }
    }

    /// Moves a block from its position before to the front; its stack distance.
    #[inline]
    fn settle(&mut self, before: Option<u32>) -> Option<u64> {
        let distance = before.map(|at| {
            let distance = self.recency.after(at as usize) as u64 + 1;
            self.recency.clear(at as usize);
            distance
        });
        self.recency.push();
        distance
    }

    fn make_room(&mut self, positions: usize) {
        if self.recency.room() < positions {
            self.compact();
        }
    }

    #[cold]
    fn compact(&mut self) {
        self.recency.begin_compaction();
        let recency = &self.recency;
        self.table.map_stamps(|at| recency.rank_compacting(at as usize) as u32);
        let positions = (self.recency.live() * POSITIONS_PER_BLOCK).max(POSITIONS_MIN);
        assert!(positions < u32::MAX as usize, "more than 2^30 distinct blocks are not supported");
        self.recency.end_compaction(positions);
    }

    /// Forgets every block whose key `keep` refuses, as if it had never been used; what was counted stays.
    ///
    /// For samples that are made smaller while they are taken. `O(blocks log blocks)`.
    pub fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        let mut kept: Vec<(u32, u64)> =
            self.table.entries().filter(|(key, _)| keep(*key)).map(|(key, at)| (at, key)).collect();
        kept.sort_unstable();
        let distances = std::mem::take(&mut self.distances);
        *self = ExactLru::new();
        for (_, key) in kept {
            self.access(key, 0);
        }
        self.distances = distances;
    }

    /// Distinct blocks seen.
    pub fn footprint_blocks(&self) -> u64 {
        self.table.len() as u64
    }

    /// The weight at every distance so far.
    pub fn distances(&self) -> &DistanceHistogram {
        &self.distances
    }

    /// The exact curve; see [`DistanceHistogram::curve`].
    pub fn curve(&self) -> MissRatioCurve {
        self.distances.curve()
    }

    /// The exact miss ratios at `sizes` blocks; see [`DistanceHistogram::miss_ratios_at`].
    pub fn miss_ratios_at(&self, sizes: &[u64]) -> Vec<f64> {
        self.distances.miss_ratios_at(sizes)
    }

    /// Bytes held now.
    pub fn bytes(&self) -> usize {
        self.table.bytes() + self.recency.bytes() + self.distances.bytes()
    }

    /// The most bytes that were held at once: while the table grows, both tables are there.
    pub fn bytes_peak(&self) -> usize {
        self.table.bytes_peak().max(self.table.bytes()) + self.recency.bytes() + self.distances.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn distances_of_a_short_stream_by_hand() {
        // a b c a a b: a again after {b, c, a} = 3, again at once = 1, b after {c, a, b} = 3.
        let mut lru = ExactLru::new();
        let distances: Vec<_> = [1, 2, 3, 1, 1, 2].iter().map(|&key| lru.access(key, 1)).collect();
        assert_eq!(distances, [None, None, None, Some(3), Some(1), Some(3)]);
        // 6 accesses: one hit at 1 and 2 blocks (5/6 missed), three at 3 blocks (3/6 missed).
        assert_eq!(lru.miss_ratios_at(&[3, 0, 1, 2, 99]), [0.5, 1.0, 5.0 / 6.0, 5.0 / 6.0, 0.5]);
        let curve = lru.curve();
        for (size, ratio) in [(0, 1.0), (1, 5.0 / 6.0), (2, 5.0 / 6.0), (3, 0.5), (99, 0.5)] {
            assert_eq!(curve.miss_ratio_at(size), ratio, "{size}");
        }
    }

    #[test]
    fn what_weighs_nothing_fills_but_is_not_counted() {
        // A write of block 1 (weight 0), then reads of 1 and 2: one of two counted accesses hits with one block.
        let mut lru = ExactLru::new();
        lru.access(1, 0);
        lru.access(1, 1);
        lru.access(2, 1);
        assert_eq!(lru.miss_ratios_at(&[1]), [0.5]);
        assert_eq!((lru.distances().total(), lru.footprint_blocks()), (2, 2));
        // Weighted by bytes: 4,096 of first touch, then 1,024 that hit: 4,096 / 5,120 missed.
        let mut bytes = ExactLru::new();
        bytes.access(7, 4_096);
        bytes.access(7, 1_024);
        assert_eq!(bytes.miss_ratios_at(&[1]), [0.8]);
    }

    #[test]
    fn degenerate_streams() {
        let empty = ExactLru::new();
        assert_eq!(empty.miss_ratios_at(&[0, 5]), [1.0, 1.0]);
        assert_eq!(empty.curve().floor(), 1.0);
        let mut one = ExactLru::new();
        one.access_batch(&[9; 100]);
        assert_eq!(one.miss_ratios_at(&[1]), [0.01]);
        let mut distinct = ExactLru::new();
        distinct.access_batch(&(0..100_000).collect::<Vec<_>>());
        assert_eq!(distinct.miss_ratios_at(&[100_000]), [1.0]);
    }

    /// Random references, so that distances of every length occur: the promise holds at every size of the table.
    #[test]
    fn memory_stays_below_60_bytes_per_block() {
        let mut lru = ExactLru::new();
        let mut checked = 0;
        for step in 0..2_000_000u64 {
            lru.access(forebay_units::mix64(step) % (1 + step / 2), 1);
            if step % 1_000 == 0 && lru.footprint_blocks() > 20_000 {
                let blocks = lru.footprint_blocks() as usize;
                assert!(lru.bytes_peak() <= 60 * blocks, "{} bytes for {blocks} blocks", lru.bytes_peak());
                checked += 1;
            }
        }
        assert!(checked > 1_000);
    }

    #[test]
    fn what_is_not_retained_was_never_used() {
        let mut lru = ExactLru::new();
        (0..10u64).chain(0..3).for_each(|key| {
            lru.access(key, 1);
        });
        let counted = lru.distances().clone();
        lru.retain(|key| key % 2 == 0);
        assert_eq!((lru.footprint_blocks(), lru.distances()), (5, &counted));
        // By last use, the newest first: 2 0 8 6 4. So 8 is the third, 1 is unknown, and 4 is the sixth after these two.
        assert_eq!([lru.access(8, 1), lru.access(1, 1), lru.access(4, 1)], [Some(3), None, Some(6)]);
    }

    /// A loop over `n` blocks hits only with `n` blocks, through many compactions.
    #[test]
    fn a_long_loop_is_a_cliff() {
        let mut lru = ExactLru::new();
        let keys: Vec<u64> = (0..40).flat_map(|_| 0..5_000).collect();
        lru.access_batch(&keys);
        assert_eq!(lru.miss_ratios_at(&[4_999, 5_000]), [1.0, 1.0 / 40.0]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn it_equals_a_list(keys in prop::collection::vec((0u64..60, 0u64..3), 1..600), batched: bool) {
            let mut lru = ExactLru::new();
            let mut stack: Vec<u64> = Vec::new();
            let mut expected = DistanceHistogram::new();
            for &(key, weight) in &keys {
                let weight = if batched { 1 } else { weight };
                let found = stack.iter().position(|&other| other == key);
                match found {
                    Some(index) => {
                        stack.remove(index);
                        if weight > 0 { expected.add(index as u64 + 1, weight) }
                    }
                    None => expected.add_first_touch(weight),
                }
                stack.insert(0, key);
                if !batched {
                    prop_assert_eq!(lru.access(key, weight), found.map(|index| index as u64 + 1));
                }
            }
            if batched {
                lru.access_batch(&keys.iter().map(|&(key, _)| key).collect::<Vec<_>>());
            }
            prop_assert_eq!(lru.distances(), &expected);
        }
    }
}
