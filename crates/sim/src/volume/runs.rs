//! What is known of blocks, by runs of them: what it costs grows with requests, not with the blocks that they have.
//!
//! Invariants: runs are not empty and do not overlap. Neighbours may have the same value. Most requests of most loads have one block: runs of one are in a table, where they
//! are found sooner than in the tree of the others.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

/// A value for some blocks.
#[derive(Clone, Debug)]
pub(super) struct Runs<T> {
    /// Of runs of one block.
    single: HashMap<u64, T, FixedState>,
    /// Of others, by the first block: the end, and the value.
    long: BTreeMap<u64, (u64, T)>,
}

impl<T> Default for Runs<T> {
    fn default() -> Runs<T> {
        Runs { single: HashMap::default(), long: BTreeMap::new() }
    }
}

fn is_single(blocks: &Range<u64>) -> bool {
    blocks.end.checked_sub(blocks.start) == Some(1)
}

impl<T: Copy + PartialEq> Runs<T> {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.single.is_empty() && self.long.is_empty()
    }

    /// The last long run that begins before `end`: its first block, its end, and its value.
    fn last_before(&self, end: u64) -> Option<(u64, u64, T)> {
        if self.long.is_empty() {
            return None;
        }
        self.long.range(..end).next_back().map(|(first, (end, value))| (*first, *end, *value))
    }

    /// What `block` has.
    #[inline]
    pub(super) fn get(&self, block: u64) -> Option<T> {
        if let Some(value) = self.single.get(&block) {
            return Some(*value);
        }
        let (_, end, value) = self.last_before(block + 1)?;
        (end > block).then_some(value)
    }

    /// Whether any of `blocks` has something.
    pub(super) fn any(&self, blocks: &Range<u64>) -> bool {
        match is_single(blocks) {
            true => self.get(blocks.start).is_some(),
            false => {
                !blocks.is_empty()
                    && (self.last_before(blocks.end).is_some_and(|(_, end, _)| end > blocks.start)
                        || self.singles(blocks).next().is_some())
            }
        }
    }

    /// Those of `blocks` that are runs of one, in no order.
    fn singles(&self, blocks: &Range<u64>) -> impl Iterator<Item = (u64, T)> + '_ {
        // Whichever are fewer.
        let by_block = blocks.end - blocks.start <= self.single.len() as u64;
        let each = if by_block { blocks.clone() } else { 0..0 };
        let each = each.filter_map(|block| Some((block, *self.single.get(&block)?)));
        let all = (!by_block).then(|| {
            let blocks = blocks.clone();
            self.single.iter().map(|(block, value)| (*block, *value)).filter(move |(b, _)| blocks.contains(b))
        });
        each.chain(all.into_iter().flatten())
    }

    /// The parts of `blocks` that have something, with what they have, in order. A run is one part.
    pub(super) fn parts(&self, blocks: Range<u64>) -> impl Iterator<Item = (Range<u64>, T)> + use<T> {
        let (one, many) = match is_single(&blocks) {
            true => (self.get(blocks.start).map(|value| (blocks, value)), Vec::new()),
            false => (None, self.parts_of_many(&blocks)),
        };
        one.into_iter().chain(many)
    }

    fn parts_of_many(&self, blocks: &Range<u64>) -> Vec<(Range<u64>, T)> {
        // Most often there is none: that takes one look.
        if !self.any(blocks) {
            return Vec::new();
        }
        let before = self.last_before(blocks.start).filter(|(_, end, _)| *end > blocks.start);
        let within = self.long.range(blocks.clone()).map(|(first, (end, value))| (*first, *end, *value));
        let long = before.into_iter().chain(within);
        let long = long.map(|(first, end, value)| (first.max(blocks.start)..end.min(blocks.end), value));
        let single = self.singles(blocks).map(|(block, value)| (block..block + 1, value));
        let mut parts: Vec<(Range<u64>, T)> = long.chain(single).collect();
        parts.sort_unstable_by_key(|(part, _)| part.start);
        parts
    }

    /// All of `blocks` have nothing from now on.
    pub(super) fn clear(&mut self, blocks: &Range<u64>) {
        if blocks.is_empty() || is_single(blocks) && self.single.remove(&blocks.start).is_some() {
            return;
        }
        if blocks.end - blocks.start > self.single.len() as u64 {
            self.single.retain(|block, _| !blocks.contains(block));
        } else {
            for block in blocks.clone() {
                self.single.remove(&block);
            }
        }
        while let Some((first, end, value)) = self.last_before(blocks.end)
            && end > blocks.start
        {
            self.long.remove(&first);
            self.put(first..blocks.start.max(first), value);
            self.put(blocks.end.min(end)..end, value);
        }
    }

    /// All of `blocks`, of which none may have anything yet, have `value` from now on.
    pub(super) fn put(&mut self, blocks: Range<u64>, value: T) {
        debug_assert!(!self.any(&blocks), "{blocks:?} overlap others");
        if is_single(&blocks) {
            self.single.insert(blocks.start, value);
        } else if !blocks.is_empty() {
            self.long.insert(blocks.start, (blocks.end, value));
        }
    }

    /// All of `blocks` have `value` from now on.
    pub(super) fn set(&mut self, blocks: Range<u64>, value: T) {
        self.clear(&blocks);
        self.put(blocks, value);
    }

    /// Those of `blocks` that have `value` have nothing from now on.
    pub(super) fn clear_value(&mut self, blocks: Range<u64>, value: T) {
        // Most often they are one run still.
        if is_single(&blocks) && self.single.get(&blocks.start) == Some(&value) {
            self.single.remove(&blocks.start);
            return;
        }
        if let Entry::Occupied(run) = self.long.entry(blocks.start)
            && *run.get() == (blocks.end, value)
        {
            run.remove();
            return;
        }
        let had = self.parts(blocks).filter(|(_, found)| *found == value).map(|(part, _)| part);
        for part in had.collect::<Vec<Range<u64>>>() {
            self.clear(&part);
        }
    }

    /// Those of `blocks` that have nothing have `value` from now on.
    pub(super) fn set_rest(&mut self, blocks: Range<u64>, value: T) {
        let mut gaps = Vec::new();
        let mut from = blocks.start;
        for (part, _) in self.parts(blocks.clone()) {
            gaps.push(from..part.start);
            from = part.end;
        }
        gaps.push(from..blocks.end);
        for gap in gaps {
            self.put(gap, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_workload::generator::{random, unit};

    const BLOCKS: u64 = 64;

    /// What each of `blocks` has by a list of all blocks.
    fn parts_of(all: &[Option<u8>], blocks: &Range<u64>) -> Vec<(u64, u8)> {
        blocks.clone().filter_map(|block| all[block as usize].map(|value| (block, value))).collect()
    }

    #[test]
    fn a_request_is_one_run_however_long_it_is() {
        let mut runs: Runs<u8> = Runs::default();
        let long = 0..1 << 50;
        runs.set(long.clone(), 1);
        // A short one in its midst, which goes again.
        runs.set(1_000..1_001, 2);
        assert_eq!(runs.parts(long.clone()).count(), 3);
        runs.clear_value(1_000..1_001, 2);
        runs.set_rest(long.clone(), 3);
        let parts = [(0..1_000, 1), (1_000..1_001, 3), (1_001..1 << 50, 1)];
        assert!(runs.parts(long.clone()).eq(parts));
        runs.clear(&long);
        assert!(runs.is_empty());
    }

    #[test]
    fn runs_are_what_a_list_of_blocks_is() {
        let mut random = random(7);
        let mut below = |most: u64| ((unit(&mut random) * most as f64) as u64).min(most - 1);
        let mut runs: Runs<u8> = Runs::default();
        let mut all = [None; BLOCKS as usize];
        for _ in 0..20_000 {
            let first = below(BLOCKS + 1);
            let blocks = first..first + below(BLOCKS - first + 1);
            let value = below(4) as u8;
            let listed = &mut all[blocks.start as usize..blocks.end as usize];
            match below(4) {
                0 => {
                    runs.set(blocks.clone(), value);
                    listed.fill(Some(value));
                }
                1 => {
                    runs.clear(&blocks);
                    listed.fill(None);
                }
                2 => {
                    runs.set_rest(blocks.clone(), value);
                    listed.iter_mut().for_each(|found| *found = found.or(Some(value)));
                }
                _ => {
                    runs.clear_value(blocks.clone(), value);
                    listed.iter_mut().for_each(|found| *found = found.filter(|found| *found != value));
                }
            }
            assert!((0..BLOCKS).all(|block| runs.get(block) == all[block as usize]));
            let first = below(BLOCKS + 1);
            let asked = first..first + below(BLOCKS - first + 1);
            let found: Vec<(u64, u8)> = runs
                .parts(asked.clone())
                .flat_map(|(part, value)| part.map(move |block| (block, value)))
                .collect();
            assert_eq!(found, parts_of(&all, &asked));
            assert_eq!(runs.any(&asked), !found.is_empty());
            assert!(runs.long.iter().all(|(first, (end, _))| first + 1 < *end));
            assert_eq!(runs.is_empty(), all.iter().all(Option::is_none));
        }
    }
}
