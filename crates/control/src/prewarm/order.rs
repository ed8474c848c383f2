//! The order in which a cache is loaded: by score, and yet in long reads.
//!
//! Strictly by score, a disk would seek for each block. So the blocks that are to be loaded are cut into bands of equal size, the best band
//! first, and within a band they come by place, neighbours together (ours).

use forebay_units::BlockRange;
use std::cmp::Ordering;

/// Bands (ours): the first eighth of what is loaded is the best eighth.
const BANDS: usize = 8;
/// Ranges of what a cache holds, 16 bytes each: what is least worth is left out beyond them (ours).
const RESIDENT_RANGES_MAX: usize = 1 << 20;

/// The best `blocks_max` of `scored` (score, block) as ranges to load one after the other. **Ties**: the smaller number first. Scores are
/// numbers, each block is there once. `O(n log n)`.
pub fn load_order(mut scored: Vec<(f32, u64)>, blocks_max: u64) -> Vec<BlockRange> {
    keep_best(&mut scored, usize::try_from(blocks_max).unwrap_or(usize::MAX));
    let count = scored.len();
    if count == 0 {
        return Vec::new();
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

/// The better score first, of equal ones the smaller number.
fn best_first(a: &(f32, u64), b: &(f32, u64)) -> Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// Leaves of `scored` the `most` that [`load_order`] would load first, in any order. `O(n)`.
pub fn keep_best(scored: &mut Vec<(f32, u64)>, most: usize) {
    if most < scored.len() {
        scored.select_nth_unstable_by(most, best_first);
        scored.truncate(most);
    }
}

/// What a cache holds as ranges to load one after the other, of (block, whether it was used again), in any order and each at least once: what was used again first.
/// `O(n log n)`.
pub fn resident_ranges(mut listed: Vec<(u64, bool)>) -> Vec<BlockRange> {
    listed.sort_unstable_by_key(|&(block, used_again)| (block, !used_again));
    listed.dedup_by_key(|(block, _)| *block);
    let score = |used_again| if used_again { 2.0 } else { 1.0 };
    let mut ranges = load_order(
        listed.into_iter().map(|(block, used_again)| (score(used_again), block)).collect(),
        u64::MAX,
    );
    ranges.truncate(RESIDENT_RANGES_MAX);
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

    #[test]
    fn what_is_held_is_told_once_and_what_was_used_again_first() {
        let range = |first, end| BlockRange { first, end };
        // Block 5 was seen in both pools, 6 twice in one.
        let listed = vec![(9, false), (5, false), (6, true), (2, true), (5, true), (6, true), (10, false)];
        let told = resident_ranges(listed);
        // Bands of one block.
        assert_eq!(told, [2, 5, 6, 9, 10].map(|block| range(block, block + 1)));
        // 800 blocks in eight bands: neighbours are together in each, the second half of them first.
        let told = resident_ranges((0..800).map(|block| (block, block >= 400)).collect());
        assert_eq!(told[..4], [400, 500, 600, 700].map(|first| range(first, first + 100)));
        assert_eq!(told[4..], [0, 100, 200, 300].map(|first| range(first, first + 100)));
        assert_eq!(resident_ranges(Vec::new()), []);
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
