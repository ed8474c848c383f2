//! The order in which a cache is loaded: by score, and yet in long reads.
//!
//! Strictly by score, a disk would seek for each block. So the blocks that are to be loaded are cut into bands of equal size, the best band
//! first, and within a band they come by place, neighbours together (ours).

use forebay_units::BlockRange;

/// Bands (ours): the first eighth of what is loaded is the best eighth.
const BANDS: usize = 8;

/// The best `blocks_max` of `scored` (score, block) as ranges to load one after the other. **Ties**: the smaller number first. Scores are
/// numbers, each block is there once. `O(n log n)`.
pub fn load_order(mut scored: Vec<(f32, u64)>, blocks_max: u64) -> Vec<BlockRange> {
    let best_first = |a: &(f32, u64), b: &(f32, u64)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
    let count = usize::try_from(blocks_max).unwrap_or(usize::MAX).min(scored.len());
    if count == 0 {
        return Vec::new();
    }
    if count < scored.len() {
        scored.select_nth_unstable_by(count, best_first);
        scored.truncate(count);
    }
    scored.sort_unstable_by(best_first);
    let mut ranges: Vec<BlockRange> = Vec::new();
    for band in scored.chunks_mut(count.div_ceil(BANDS)) {
        band.sort_unstable_by_key(|(_, block)| *block);
        for (place, (_, block)) in band.iter().enumerate() {
            match ranges.last_mut() {
                Some(last) if place > 0 && last.end == *block => last.end += 1,
                _ => ranges.push(BlockRange { first: *block, end: block + 1 }),
            }
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_best_come_first_and_neighbours_together() {
        // Sixteen blocks in bands of two: the best pair is 40 and 41, then 0 and 9, and so on down to 20..32 at score 1.
        let mut scored = vec![(9.0, 41), (8.0, 40), (7.0, 9), (6.0, 0)];
        scored.extend((20..32).map(|block| (1.0, block)));
        let range = |first, end| BlockRange { first, end };
        let ranges = load_order(scored.clone(), 99);
        assert_eq!(ranges[..3], [range(40, 42), range(0, 1), range(9, 10)]);
        assert_eq!(ranges[3..], [20, 22, 24, 26, 28, 30].map(|first| range(first, first + 2)));
        // Only five of them: bands of one, and of those that tie the one with the smallest number.
        assert_eq!(load_order(scored, 5), [41, 40, 9, 0, 20].map(|block| range(block, block + 1)));
        assert_eq!(load_order(Vec::new(), 5), []);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn it_loads_the_best_once_each(scores in prop::collection::vec(0u8..5, 0..200), most in 0u64..220) {
            let scored: Vec<(f32, u64)> = scores.iter().zip(0..).map(|(score, block)| (f32::from(*score), block * 2 / 3 * 2 + block % 2)).collect();
            let mut distinct = scored.clone();
            distinct.sort_by_key(|(_, block)| *block);
            distinct.dedup_by_key(|(_, block)| *block);
            let ranges = load_order(distinct.clone(), most);
            let loaded: Vec<u64> = ranges.iter().flat_map(|range| range.first..range.end).collect();
            distinct.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            let mut best: Vec<u64> = distinct.iter().take(most as usize).map(|(_, block)| *block).collect();
            let mut sorted = loaded.clone();
            sorted.sort_unstable();
            best.sort_unstable();
            prop_assert_eq!(sorted, best);
        }
    }
}
