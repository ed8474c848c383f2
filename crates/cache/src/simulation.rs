//! A partition without bytes that is fed a trace: what the simulator runs for each policy and size.
//!
//! The partition is the daemon's own, and so is every decision. Not here: reading traces, splitting requests into blocks, and what a miss costs.
//! Invariant: `misses <= accesses` and `missed_bytes <= bytes`.

use crate::{ANTICIPATED_MAX, AdaptivePartition, Insertion, Partition};
use forebay_policy::{Policy, PolicyKind, Upcoming};
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
        // What the look-ups of a batch read first is fetched two batches before, and what that leads to one batch before.
        let mut batches = accesses.chunks(ANTICIPATED_MAX);
        let mut following = |partition: &Partition<P>| {
            let accesses = batches.next().unwrap_or_default();
            let mut upcoming =
                Upcoming::of(accesses.iter().map(|access| BlockIndex(u64::from(access.block))));
            partition.fetch_buckets(&mut upcoming);
            upcoming
        };
        let (mut now, mut next) = (following(&self.partition), following(&self.partition));
        self.partition.fetch_slots(&mut now);
        for accesses in accesses.chunks(ANTICIPATED_MAX) {
            let behind = following(&self.partition);
            self.partition.fetch_slots(&mut next);
            self.partition.anticipate(&mut now);
            for (at, (block, access)) in now.blocks().iter().zip(accesses).enumerate() {
                let hit = self.partition.access(*block, now.likely(at));
                self.outcome.count(*access, hit);
            }
            (now, next) = (next, behind);
        }
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
    use forebay_policy::{Incoming, Lru, Slot};
    use forebay_units::mix64;

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

    /// What is fetched ahead changes nothing: each policy does as it does with one look-up after the other, however these are cut.
    #[test]
    fn looking_ahead_changes_no_result() {
        let mut state = 7;
        // Skewed, over 3,000 blocks, so that many come twice within a batch.
        let accesses: Vec<Access> = (0..20_000)
            .map(|_| {
                state = mix64(state + 1);
                let block =
                    (state % 3_000 * (state >> 32) % 3_000) as u32 % (1 + (state >> 16) as u32 % 3_000);
                Access { block, bytes: 1 }
            })
            .collect();
        for kind in PolicyKind::ALL {
            let mut plain = Partition::new(kind.new_policy(), 300, 0);
            let mut misses = 0;
            for access in &accesses {
                let block = BlockIndex(access.block.into());
                if plain.lookup(block).is_none() {
                    plain.insert(block, Insertion::Miss);
                    misses += 1;
                }
            }
            for cut in [1, 31, 32, 33, 97, 20_000] {
                let mut simulation = Simulation::new(kind.new_policy(), 300, 0);
                accesses.chunks(cut).for_each(|accesses| simulation.feed(accesses));
                assert_eq!(simulation.outcome().misses, misses, "{kind}, {cut}");
                assert_eq!(simulation.partition().statistics(), plain.statistics(), "{kind}, {cut}");
                assert_eq!(simulation.partition().hottest(300), plain.hottest(300), "{kind}, {cut}");
            }
        }
    }

    /// Where each block is asked for once, policies that foretell their victims do so rightly, and early enough.
    #[test]
    fn victims_leave_in_the_order_in_which_they_are_foretold() {
        let mut foretelling = Vec::new();
        for kind in PolicyKind::ALL {
            let mut policy = kind.new_policy();
            policy.set_capacity(400);
            policy.reserve(400).unwrap();
            let insert = |policy: &mut dyn Policy, slot: u32, block: u64| {
                let incoming = Incoming { block: BlockIndex(block), insertion: Insertion::Miss };
                policy.on_insert(Slot(slot), incoming);
            };
            (0..400).for_each(|slot| insert(&mut policy, slot, slot.into()));
            let (mut told, mut left) = (Vec::new(), Vec::new());
            for block in 400..1_000 {
                let incoming = Incoming { block: BlockIndex(block), insertion: Insertion::Miss };
                policy.on_miss(incoming.block);
                if !policy.admit(incoming) {
                    continue;
                }
                let victim = policy.victim(Some(incoming)).unwrap();
                policy.on_evict(victim, BlockIndex(block - 400));
                insert(&mut policy, victim.0, block);
                left.push(victim);
                told.extend((0..2).filter_map(|_| policy.fetch_victim_ahead()));
            }
            if !told.is_empty() {
                // The first left before anybody was told of it.
                assert_eq!(left[1..], told[..left.len() - 1], "{kind}");
                assert!(told.len() >= left.len() + 14, "{kind}: {} of {}", told.len(), left.len());
                foretelling.push(kind.name());
            }
        }
        assert_eq!(foretelling, ["fifo", "lru", "slru", "two-pool", "2q", "arc", "arc-integer", "s3-fifo"]);
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
