//! A partition whose policy is the choice of a [`Selector`] that sees the same look-ups.
//!
//! Where the miniatures are as large as the cache may become, it comes to hold what the chosen one holds; where they are a sample, it has the chosen
//! policy, which knows no more than the blocks and their order when it begins. *Not* for the data path: six miniatures of a cache take more
//! memory than its own bookkeeping may (ours; the data path has one policy).
//! Invariant: never more blocks than the quota.

use crate::follower::Follower;
use crate::{Inserted, Insertion, Partition, Progress, QUOTA_BLOCKS_MAX, Selector, Statistics};
use forebay_policy::{Policy, PolicyKind};
use forebay_units::BlockIndex;

/// See the module.
#[derive(Debug)]
pub struct AdaptivePartition {
    selector: Selector,
    held: Held,
}

#[derive(Debug)]
enum Held {
    /// What the chosen miniature holds.
    Following(Box<Follower>),
    /// What the chosen policy keeps.
    Replacing(Box<Partition<Box<dyn Policy + Send>>>),
}

impl AdaptivePartition {
    /// An empty partition of `quota_blocks` blocks, which may become `most_blocks`, under whichever of `candidates` suits best at the time; `seed`
    /// chooses the sample of the miniatures. A quota above `most_blocks` is taken as that. Memory: as of [`Selector::new`].
    ///
    /// # Panics
    /// If there are no candidates.
    pub fn new(
        candidates: &[PolicyKind],
        quota_blocks: u64,
        most_blocks: u64,
        seed: u64,
    ) -> AdaptivePartition {
        let most = most_blocks.clamp(1, QUOTA_BLOCKS_MAX);
        let mut selector = Selector::new(candidates, most, seed);
        let held = if selector.is_complete() {
            Held::Following(Box::new(Follower::new(most as u32, seed)))
        } else {
            Held::Replacing(Box::new(Partition::new(selector.choice().new_policy(), most, seed)))
        };
        if quota_blocks < most {
            selector.set_quota(quota_blocks);
        }
        let mut partition = AdaptivePartition { selector, held };
        partition.settle(quota_blocks);
        partition
    }

    /// Looks `block` up for a client; whether it is there. Where there is no memory for another policy, the old one stays.
    #[inline]
    pub fn lookup(&mut self, block: BlockIndex) -> bool {
        let changed = self.selector.observe(block);
        match &mut self.held {
            Held::Following(follower) => follower.lookup(block, &self.selector, changed),
            Held::Replacing(partition) => {
                if changed {
                    // Refused only without memory; the next change of the choice tries again.
                    let _ = partition.replace_policy(self.selector.choice().new_policy());
                }
                partition.lookup(block).is_some()
            }
        }
    }

    /// Whether `block` is there; counts nothing and tells nobody.
    pub fn holds(&self, block: BlockIndex) -> bool {
        match &self.held {
            Held::Following(follower) => follower.holds(block),
            Held::Replacing(partition) => partition.peek(block).is_some(),
        }
    }

    /// Inserts `block`, which was looked up before unless it is loaded by a warm-up.
    ///
    /// # Panics
    /// As [`Partition::insert`].
    pub fn insert(&mut self, block: BlockIndex, insertion: Insertion) -> Inserted {
        if insertion != Insertion::Miss {
            self.selector.warm(block, insertion);
        }
        match &mut self.held {
            Held::Following(follower) => follower.insert(block, insertion, &self.selector),
            Held::Replacing(partition) => partition.insert(block, insertion),
        }
    }

    /// Sets the quota, in force at once: of the blocks, those that the choice holds stay. `O(blocks that leave)`, or `O(blocks)` where they
    /// follow a miniature.
    pub fn set_quota(&mut self, quota_blocks: u64) {
        self.selector.set_quota(quota_blocks);
        self.settle(quota_blocks);
    }

    fn settle(&mut self, quota_blocks: u64) {
        match &mut self.held {
            Held::Following(follower) => {
                follower.set_quota(quota_blocks.min(QUOTA_BLOCKS_MAX) as u32, &self.selector);
            }
            Held::Replacing(partition) => {
                partition.set_quota(quota_blocks);
                while partition.step(1 << 20, |_, _| {}) != Progress::Settled {}
            }
        }
    }

    /// The counters.
    pub fn statistics(&self) -> Statistics {
        match &self.held {
            Held::Following(follower) => follower.statistics(),
            Held::Replacing(partition) => partition.statistics(),
        }
    }

    /// The selector.
    pub fn selector(&self) -> &Selector {
        &self.selector
    }

    /// The memory it holds, in bytes, by the capacity of its allocations.
    pub fn footprint_bytes(&self) -> u64 {
        let held = match &self.held {
            Held::Following(follower) => follower.footprint_bytes(),
            Held::Replacing(partition) => partition.footprint_bytes(),
        };
        held + self.selector.footprint_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Refusal, SELECTABLE};
    use forebay_units::mix64;

    fn hits(partition: &mut AdaptivePartition, blocks: impl Iterator<Item = u64>) -> usize {
        blocks
            .filter(|block| {
                let block = BlockIndex(*block);
                let hit = partition.lookup(block);
                if !hit {
                    partition.insert(block, Insertion::Miss);
                }
                hit
            })
            .count()
    }

    #[test]
    fn quotas_are_kept_whatever_is_asked_and_inserted() {
        // Complete miniatures, and a sample of 262,144 of 1,000,000.
        for most in [1_000, 1_000_000] {
            let mut partition = AdaptivePartition::new(&SELECTABLE, 0, most, 1);
            let mut random = 7u64;
            let mut late: Vec<BlockIndex> = Vec::new();
            for at in 0..40_000u64 {
                random = mix64(random);
                if at % 500 == 0 {
                    partition.set_quota(random % 1_100);
                }
                let block = BlockIndex((random >> 20) % 1_500);
                if !partition.lookup(block) {
                    late.push(block);
                }
                // Fills come late, in another order, and some are of a warm-up.
                if random.is_multiple_of(3) && !late.is_empty() {
                    let block = late.swap_remove((random >> 8) as usize % late.len());
                    partition.insert(block, Insertion::Miss);
                }
                if random.is_multiple_of(17) {
                    partition.insert(BlockIndex((random >> 12) % 1_500), Insertion::PrewarmTail);
                }
                let found = partition.statistics();
                assert!(found.resident_blocks <= found.quota_blocks, "{found:?}");
            }
            let found = partition.statistics();
            assert_eq!(found.hits + found.misses, 40_000);
            assert_eq!(found.insertions, found.evictions + u64::from(found.resident_blocks));
        }
    }

    #[test]
    fn a_cache_that_grows_into_a_circle_comes_to_hold_it() {
        // A circle of 1,200: of 300 blocks nobody holds much of it; of 1,000 LIRS all but 201.
        let mut partition = AdaptivePartition::new(&SELECTABLE, 300, 2_000, 1);
        hits(&mut partition, (0..12_000).map(|at| at % 1_200));
        partition.set_quota(1_000);
        hits(&mut partition, (0..24_000).map(|at| at % 1_200));
        let last = hits(&mut partition, (0..1_200).map(|at| at % 1_200));
        assert!(last >= 900, "{last} hits of 1200 under {}", partition.selector().choice());
        partition.set_quota(100);
        assert_eq!(partition.statistics().resident_blocks, 100);
        // Nothing is kept without a quota, and nothing enters.
        partition.set_quota(0);
        assert_eq!(partition.insert(BlockIndex(1), Insertion::Miss), Inserted::Refused(Refusal::NoQuota));
        assert_eq!(hits(&mut partition, 0..10), 0);
    }

    #[test]
    fn what_a_warm_up_brings_is_there() {
        let mut partition = AdaptivePartition::new(&SELECTABLE, 100, 100, 1);
        for block in 0..50 {
            assert!(matches!(
                partition.insert(BlockIndex(block), Insertion::PrewarmTail),
                Inserted::New { evicted: None, .. }
            ));
        }
        assert!(partition.holds(BlockIndex(7)));
        assert_eq!(hits(&mut partition, 0..50), 50);
        let found = partition.statistics();
        assert_eq!((found.prewarmed, found.hits, found.resident_blocks), (50, 50, 50));
    }
}
