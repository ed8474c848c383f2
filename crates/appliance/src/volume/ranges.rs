//! Runs of blocks, or of units that are smaller: a map from disjoint runs to what holds them, and a set of runs that merges what touches.

use crate::slab::SlabKey;
use forebay_units::{BlockIndex, BlockRange};
use std::collections::BTreeMap;

/// Disjoint runs of blocks, each with the key of what holds it. All operations are `O(log runs)` per run touched.
///
/// Invariant: no two runs share a block; none is empty.
#[derive(Debug, Default)]
pub(crate) struct RangeMap {
    /// First block of a run, to one past its last block and the holder.
    runs: BTreeMap<u64, (u64, SlabKey)>,
}

impl RangeMap {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(crate) fn insert(&mut self, blocks: BlockRange, key: SlabKey) {
        debug_assert!(!blocks.is_empty() && !self.overlaps(blocks), "{blocks:?} is held already");
        self.runs.insert(blocks.first, (blocks.end, key));
    }

    /// Forgets the run that starts at `blocks.first`, if `key` holds it.
    pub(crate) fn remove(&mut self, blocks: BlockRange, key: SlabKey) {
        if self.runs.get(&blocks.first).is_some_and(|(_, holder)| *holder == key) {
            self.runs.remove(&blocks.first);
        }
    }

    pub(crate) fn overlaps(&self, blocks: BlockRange) -> bool {
        !blocks.is_empty()
            && self.runs.range(..blocks.end).next_back().is_some_and(|(_, (end, _))| *end > blocks.first)
    }

    /// The first run that overlaps `blocks`, as a whole.
    pub(crate) fn first_overlapping(&self, blocks: BlockRange) -> Option<BlockRange> {
        first_overlapping(&self.runs, blocks, |(end, _)| *end)
    }

    /// The holders of all runs that overlap `blocks`, the last first.
    pub(crate) fn holders(&self, blocks: BlockRange) -> impl Iterator<Item = SlabKey> {
        let runs = self.runs.range(..blocks.end).rev();
        runs.take_while(move |(_, (end, _))| !blocks.is_empty() && *end > blocks.first)
            .map(|(_, (_, key))| *key)
    }

    /// The run that holds `block`, and its holder.
    pub(crate) fn holding(&self, block: BlockIndex) -> Option<(BlockRange, SlabKey)> {
        let (&first, &(end, key)) = self.runs.range(..=block.0).next_back()?;
        (end > block.0).then_some((BlockRange { first, end }, key))
    }

    /// The run that ends where `block` starts, and its holder.
    pub(crate) fn ending_at(&self, block: BlockIndex) -> Option<(BlockRange, SlabKey)> {
        let (&first, &(end, key)) = self.runs.range(..block.0).next_back()?;
        (end == block.0).then_some((BlockRange { first, end }, key))
    }

    /// Lengthens the run that starts at `first` so that it ends at `end`.
    pub(crate) fn extend_to(&mut self, first: u64, end: u64) {
        let run = self.runs.get_mut(&first).expect("only a run that was just found is extended");
        debug_assert!(run.0 <= end);
        run.0 = end;
    }

    /// Takes the first run that overlaps `blocks` out of the map.
    pub(crate) fn take_overlapping(&mut self, blocks: BlockRange) -> Option<SlabKey> {
        let (&first, &(end, key)) = self.runs.range(..blocks.end).next_back()?;
        if end <= blocks.first {
            return None;
        }
        self.runs.remove(&first);
        Some(key)
    }
}

/// A set of blocks kept as runs; runs that touch are one. `O(log runs)` per look-up.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeSet {
    /// First block of a run to one past its last.
    runs: BTreeMap<u64, u64>,
}

impl RangeSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    pub(crate) fn clear(&mut self) {
        self.runs.clear();
    }

    pub(crate) fn overlaps(&self, blocks: BlockRange) -> bool {
        !blocks.is_empty()
            && self.runs.range(..blocks.end).next_back().is_some_and(|(_, end)| *end > blocks.first)
    }

    /// The first run that overlaps `blocks`, as a whole.
    pub(crate) fn first_overlapping(&self, blocks: BlockRange) -> Option<BlockRange> {
        first_overlapping(&self.runs, blocks, |end| *end)
    }

    pub(crate) fn insert(&mut self, blocks: BlockRange) {
        if blocks.is_empty() {
            return;
        }
        let (mut first, mut end) = (blocks.first, blocks.end);
        while let Some((&run_first, &run_end)) = self.runs.range(..=end).next_back() {
            if run_end < first {
                break;
            }
            first = first.min(run_first);
            end = end.max(run_end);
            self.runs.remove(&run_first);
        }
        self.runs.insert(first, end);
    }

    pub(crate) fn remove(&mut self, blocks: BlockRange) {
        while let Some(run) = self.first_overlapping(blocks) {
            self.runs.remove(&run.first);
            for rest in [(run.first, blocks.first), (blocks.end, run.end)] {
                if rest.0 < rest.1 {
                    self.runs.insert(rest.0, rest.1);
                }
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = BlockRange> {
        self.runs.iter().map(|(&first, &end)| BlockRange { first, end })
    }

    /// What the set has of `blocks`. `O(log runs)` and as much for each run of it.
    pub(crate) fn within(&self, blocks: BlockRange) -> impl Iterator<Item = BlockRange> {
        let mut from = blocks.first;
        std::iter::from_fn(move || {
            let run = self.first_overlapping(BlockRange { first: from, end: blocks.end })?;
            let part = BlockRange { first: run.first.max(from), end: run.end.min(blocks.end) };
            from = part.end;
            Some(part)
        })
    }

    /// Replaces all runs by the one run that spans them: how a full set stays a set that holds at least its blocks.
    pub(crate) fn widen(&mut self) {
        let Some((&first, _)) = self.runs.first_key_value() else { return };
        let end = self.runs.last_key_value().map_or(first, |(_, &end)| end);
        self.runs.clear();
        self.runs.insert(first, end);
    }
}

/// The first of disjoint runs, by their first blocks, that overlaps `blocks`.
fn first_overlapping<T>(
    runs: &BTreeMap<u64, T>,
    blocks: BlockRange,
    end_of: impl Fn(&T) -> u64,
) -> Option<BlockRange> {
    let run = |(&first, held): (&u64, &T)| BlockRange { first, end: end_of(held) };
    let before = runs.range(..blocks.first).next_back().map(run).filter(|run| run.end > blocks.first);
    before
        .or_else(|| runs.range(blocks.first..).next().map(run))
        .filter(|run| run.first < blocks.end && !blocks.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(first: u64, end: u64) -> BlockRange {
        BlockRange { first, end }
    }

    #[test]
    fn a_map_finds_runs_from_both_sides() {
        let mut map = RangeMap::default();
        map.insert(run(4, 8), SlabKey(1));
        map.insert(run(8, 9), SlabKey(2));
        assert_eq!(map.holding(BlockIndex(7)), Some((run(4, 8), SlabKey(1))));
        assert_eq!(map.holding(BlockIndex(9)), None);
        assert_eq!(map.ending_at(BlockIndex(9)), Some((run(8, 9), SlabKey(2))));
        assert!(map.overlaps(run(0, 5)) && !map.overlaps(run(0, 4)) && !map.overlaps(run(5, 5)));
        assert_eq!(map.first_overlapping(run(5, 20)), Some(run(4, 8)));
        assert_eq!((map.first_overlapping(run(0, 4)), map.first_overlapping(run(8, 8))), (None, None));
        let holders = |blocks| map.holders(blocks).collect::<Vec<_>>();
        assert_eq!(holders(run(7, 20)), [SlabKey(2), SlabKey(1)]);
        assert_eq!(
            (holders(run(0, 8)), holders(run(0, 4)), holders(run(5, 5))),
            (vec![SlabKey(1)], vec![], vec![])
        );
        map.remove(run(4, 8), SlabKey(9));
        assert!(map.overlaps(run(4, 5)), "only the holder removes its run");
        let mut taken: Vec<_> = std::iter::from_fn(|| map.take_overlapping(run(7, 20))).collect();
        taken.sort();
        assert_eq!(taken, [SlabKey(1), SlabKey(2)]);
        assert!(map.is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn a_set_agrees_with_a_set_of_numbers(runs in prop::collection::vec((0u64..60, 0u64..8), 0..20),
                                              asked in (0u64..60, 0u64..8)) {
            let mut set = RangeSet::default();
            let mut naive = std::collections::BTreeSet::new();
            for (first, length) in runs {
                set.insert(run(first, first + length));
                naive.extend(first..first + length);
            }
            let listed: Vec<u64> = set.iter().flat_map(|run| run.map(|block| block.0)).collect();
            prop_assert_eq!(&listed, &naive.iter().copied().collect::<Vec<_>>());
            let asked = run(asked.0, asked.0 + asked.1);
            prop_assert_eq!(set.overlaps(asked), asked.clone().any(|block| naive.contains(&block.0)));
            let first = set.first_overlapping(asked).map(|run| run.first.max(asked.first));
            prop_assert_eq!(first, asked.map(|block| block.0).find(|block| naive.contains(block)));
            let within: Vec<u64> = set.within(asked).flatten().map(|block| block.0).collect();
            let expected: Vec<u64> = naive.range(asked.first..asked.end).copied().collect();
            prop_assert_eq!(within, expected);
            let mut less = set.clone();
            less.remove(asked);
            let listed: Vec<u64> = less.iter().flatten().map(|block| block.0).collect();
            let expected: Vec<u64> =
                naive.iter().copied().filter(|&block| !(asked.first..asked.end).contains(&block)).collect();
            prop_assert_eq!(listed, expected);
            let runs: Vec<_> = set.iter().collect();
            prop_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].first));
            set.widen();
            prop_assert!(set.len() <= 1 && naive.iter().all(|&block| set.overlaps(run(block, block + 1))));
        }
    }
}
