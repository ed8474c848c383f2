//! A partition without bytes that is fed a trace: what the simulator runs for each policy and size.
//!
//! The partition is the daemon's own, and so is every decision. Not here: reading traces, splitting requests into blocks, and what a miss costs.
//! Invariant: `misses <= accesses` and `missed_bytes <= bytes`.

use crate::{ANTICIPATED_MAX, AdaptivePartition, Insertion, Partition};
use forebay_policy::{Policy, PolicyKind};
use forebay_units::BlockIndex;

/// One access to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Which block; 32 bits, since a simulation's blocks are best numbered densely.
    pub block: u32,
    /// How many of its bytes are accessed. With 0 the access uses and fills the cache as any, but is not counted: what writes are
    /// where only the hits of reads count.
    pub bytes: u32,
}

/// What a simulation counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Accesses that count.
    pub accesses: u64,
    /// Those of them that missed.
    pub misses: u64,
    /// Bytes accessed.
    pub bytes: u64,
    /// Bytes of the accesses that missed.
    pub missed_bytes: u64,
}

impl Outcome {
    /// Misses per access, from 0 to 1; NaN without accesses.
    pub fn miss_ratio(&self) -> f64 {
        self.misses as f64 / self.accesses as f64
    }

    /// Bytes missed per byte accessed, from 0 to 1; NaN without bytes.
    pub fn byte_miss_ratio(&self) -> f64 {
        self.missed_bytes as f64 / self.bytes as f64
    }

    #[inline]
    fn count(&mut self, access: Access, hit: bool) {
        let (counts, bytes) = (u64::from(access.bytes > 0), u64::from(access.bytes));
        self.accesses += counts;
        self.bytes += bytes;
        if !hit {
            self.misses += counts;
            self.missed_bytes += bytes;
        }
    }
}

/// A partition that is looked up for every access and filled on every miss.
#[derive(Debug)]
pub struct Simulation<P> {
    partition: Partition<P>,
    outcome: Outcome,
}

impl<P: Policy> Simulation<P> {
    /// A cold cache of `quota_blocks` blocks under `policy`, which is empty.
    pub fn new(policy: P, quota_blocks: u64, seed: u64) -> Simulation<P> {
        Simulation { partition: Partition::new(policy, quota_blocks, seed), outcome: Outcome::default() }
    }

    /// Makes `accesses` in their order.
    pub fn feed(&mut self, accesses: &[Access]) {
        let mut blocks = [BlockIndex(0); ANTICIPATED_MAX];
        for accesses in accesses.chunks(ANTICIPATED_MAX) {
            for (block, access) in blocks.iter_mut().zip(accesses) {
                *block = BlockIndex(u64::from(access.block));
            }
            self.partition.anticipate(&blocks[..accesses.len()]);
            for access in accesses {
                self.access(*access);
            }
        }
    }

    #[inline]
    fn access(&mut self, access: Access) {
        let hit = self.partition.access(BlockIndex(u64::from(access.block)));
        self.outcome.count(access, hit);
    }

    /// What was counted so far.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// The partition.
    pub fn partition(&self) -> &Partition<P> {
        &self.partition
    }
}

/// A simulation under whichever policy suits best at the time.
#[derive(Debug)]
pub struct AdaptiveSimulation {
    partition: AdaptivePartition,
    outcome: Outcome,
}

impl AdaptiveSimulation {
    /// A cold cache of `quota_blocks` blocks under `candidates`.
    ///
    /// # Panics
    /// If there are no candidates.
    pub fn new(candidates: &[PolicyKind], quota_blocks: u64, seed: u64) -> AdaptiveSimulation {
        let partition = AdaptivePartition::new(candidates, quota_blocks, quota_blocks, seed);
        AdaptiveSimulation { partition, outcome: Outcome::default() }
    }

    /// Makes `accesses` in their order.
    pub fn feed(&mut self, accesses: &[Access]) {
        for access in accesses {
            let block = BlockIndex(u64::from(access.block));
            let hit = self.partition.lookup(block);
            if !hit {
                self.partition.insert(block, Insertion::Miss);
            }
            self.outcome.count(*access, hit);
        }
    }

    /// What was counted so far.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// The partition.
    pub fn partition(&self) -> &AdaptivePartition {
        &self.partition
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_policy::Lru;

    #[test]
    fn a_hand_traced_run() {
        // Two blocks, LRU: 1 miss, 2 miss, 1 hit, 3 (not counted) evicts 2, 2 miss evicts 1, 3 hit, with their bytes.
        let accesses = [(1, 100), (2, 50), (1, 10), (3, 0), (2, 50), (3, 5)];
        let accesses = accesses.map(|(block, bytes)| Access { block, bytes });
        let expected = Outcome { accesses: 5, misses: 3, bytes: 215, missed_bytes: 200 };
        let mut simulation = Simulation::new(Lru::new(), 2, 0);
        simulation.feed(&accesses);
        assert_eq!(simulation.outcome(), expected);
        assert_eq!((expected.miss_ratio(), expected.byte_miss_ratio()), (0.6, 200.0 / 215.0));
        // However it is cut, the result is the same.
        let mut simulation = Simulation::new(Lru::new(), 2, 0);
        accesses.chunks(1).for_each(|accesses| simulation.feed(accesses));
        assert_eq!(simulation.outcome(), expected);
    }

    /// Rounding leaves parts of tiny caches without a block; no policy fails for that, or leaves a place unused.
    #[test]
    fn tiny_caches_that_hold_everything_miss_each_block_once() {
        for size in 1..=3u32 {
            // All of them round after round, then as many others: as many more misses.
            let rounds = |from: u32| {
                (0..4).flat_map(move |_| (from..from + size).map(|block| Access { block, bytes: 1 }))
            };
            let first: Vec<Access> = rounds(0).collect();
            let single: Vec<Access> = (0..9).map(|at| Access { block: 100 + at / 3, bytes: 1 }).collect();
            for kind in PolicyKind::ALL {
                let mut simulation = Simulation::new(kind.new_policy(), size.into(), 0);
                simulation.feed(&first);
                assert_eq!(simulation.outcome().misses, size.into(), "{kind}, {size}");
                // Each of these is asked for three times at once: it enters, whoever leaves.
                simulation.feed(&single);
                assert_eq!(simulation.outcome().misses, u64::from(size) + 3, "{kind}, {size}");
                assert_eq!(simulation.partition().resident_blocks(), size, "{kind}");
            }
            let mut adaptive = AdaptiveSimulation::new(&crate::SELECTABLE, size.into(), 0);
            adaptive.feed(&first);
            adaptive.feed(&single);
            assert_eq!(adaptive.outcome().misses, u64::from(size) + 3, "adaptive, {size}");
        }
    }

    #[test]
    fn without_a_cache_everything_misses() {
        let mut simulation = Simulation::new(Lru::new(), 0, 0);
        simulation.feed(&[Access { block: 1, bytes: 1 }; 3]);
        assert_eq!(simulation.outcome().misses, 3);
    }
}
