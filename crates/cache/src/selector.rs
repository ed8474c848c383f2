//! Which policy suits a workload: miniature caches, one per candidate, see a sample of its blocks and are compared while it runs.
//!
//! Idea: a cache of `size` blocks misses as a cache of `rate * size` blocks does that only sees the blocks whose hash is below `rate`.
//! Source: Waldspurger, Saemundsson, Ahmad and Park, "Cache modeling and optimization using miniature simulations", USENIX ATC '17, section 3; the sample is
//! that of SHARDS (FAST '15, section 3.1). Ours: the size of the miniatures, how fast old misses fade, and the hysteresis.
//! Not here: changing the policy of a partition, which is [`crate::Partition::replace_policy`], and when that is worth its cost.
//! Invariant: all miniatures saw the same accesses.

use crate::{Insertion, Partition};
use forebay_policy::{Policy, PolicyKind};
use forebay_units::{BlockIndex, mix64};

/// Blocks of a miniature: the paper has errors near 0.01 with hundreds, and a change of policy should rest on less than that. Chosen, as the
/// three below, on a part of the recorded traces; the others confirm them.
const MINIATURE_BLOCKS: u64 = 4096;
/// Sampled accesses between two decisions, at least.
const WINDOW_MIN: u64 = 128;
/// What remains of the misses of a window after the next one: a change costs what the old policy knew, so a few windows must not decide.
const FADING: f64 = 0.99;
/// A candidate must have fewer misses by this share to be chosen.
const MARGIN: f64 = 0.02;

/// A cache that takes part in the comparison.
#[derive(Debug)]
struct Miniature {
    kind: PolicyKind,
    partition: Partition<Box<dyn Policy + Send>>,
    /// Misses, those of the past faded.
    misses: f64,
}

/// Miniature caches under candidate policies, and the choice among them.
#[derive(Debug)]
pub struct Selector {
    miniatures: Vec<Miniature>,
    /// Blocks whose hash is at most this are sampled.
    threshold: u64,
    seed: u64,
    /// Sampled accesses between two decisions, and those left until the next.
    window: u64,
    left: u64,
    chosen: usize,
    changes: u64,
}

impl Selector {
    /// Compares `candidates` for a cache of `quota_blocks` blocks; until it knows better, the first is the choice. `seed` chooses the sample.
    ///
    /// Memory: at most 4,096 blocks' bookkeeping per candidate, 28 to 72 bytes each. A quota of 0 is taken as 1.
    ///
    /// # Panics
    /// If there are no candidates.
    pub fn new(candidates: &[PolicyKind], quota_blocks: u64, seed: u64) -> Selector {
        assert!(!candidates.is_empty(), "a selector needs candidates");
        let quota = quota_blocks.max(1);
        let size = quota.min(MINIATURE_BLOCKS);
        let rate = size as f64 / quota as f64;
        let miniature = |kind: &PolicyKind| Miniature {
            kind: *kind,
            partition: Partition::new(kind.new_policy(), size, seed),
            misses: 0.0,
        };
        let window = (size / 2).max(WINDOW_MIN);
        Selector {
            miniatures: candidates.iter().map(miniature).collect(),
            threshold: if size == quota { u64::MAX } else { (rate * u64::MAX as f64) as u64 },
            seed: mix64(seed),
            window,
            left: window,
            chosen: 0,
            changes: 0,
        }
    }

    /// Tells of an access to `block`; whether the choice changed by it. `O(candidates)` for a sampled block, a hash for any other.
    pub fn observe(&mut self, block: BlockIndex) -> bool {
        if mix64(block.0 ^ self.seed) > self.threshold {
            return false;
        }
        for miniature in &mut self.miniatures {
            if miniature.partition.lookup(block).is_none() {
                miniature.misses += 1.0;
                miniature.partition.insert(block, Insertion::Miss);
            }
        }
        self.left -= 1;
        self.left == 0 && self.decide()
    }

    fn decide(&mut self) -> bool {
        self.left = self.window;
        let chosen = self.miniatures[self.chosen].misses;
        let best = (0..self.miniatures.len()).min_by(|a, b| {
            let misses = |at: &usize| self.miniatures[*at].misses;
            misses(a).total_cmp(&misses(b))
        });
        let best = best.filter(|best| self.miniatures[*best].misses < chosen * (1.0 - MARGIN));
        for miniature in &mut self.miniatures {
            miniature.misses *= FADING;
        }
        let Some(best) = best else { return false };
        self.chosen = best;
        self.changes += 1;
        true
    }

    /// The policy that suits best.
    pub fn choice(&self) -> PolicyKind {
        self.miniatures[self.chosen].kind
    }

    /// How often the choice changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Recent misses of each candidate, those of the past faded.
    pub fn misses(&self) -> impl Iterator<Item = (PolicyKind, f64)> {
        self.miniatures.iter().map(|miniature| (miniature.kind, miniature.misses))
    }

    /// The memory it holds, in bytes, by the capacity of its allocations.
    pub fn footprint_bytes(&self) -> u64 {
        let partitions = self.miniatures.iter().map(|miniature| miniature.partition.footprint_bytes());
        partitions.sum::<u64>() + (self.miniatures.capacity() * size_of::<Miniature>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANDIDATES: [PolicyKind; 3] = [PolicyKind::Lru, PolicyKind::Lirs, PolicyKind::S3Fifo];

    #[test]
    fn a_loop_calls_for_lirs_and_recency_for_lru() {
        // A circle of 12,000 blocks around a cache of 10,000: LRU never hits, LIRS nearly always.
        let mut selector = Selector::new(&CANDIDATES, 10_000, 1);
        assert_eq!(selector.choice(), PolicyKind::Lru);
        for at in 0..100_000u64 {
            selector.observe(BlockIndex(at % 12_000));
        }
        assert_eq!(selector.choice(), PolicyKind::Lirs);
        let bytes = selector.footprint_bytes();
        assert!(bytes < 3 * 4096 * 80, "{bytes}");
        // A window that moves on slowly: only what was used lately is used again.
        for at in 0..400_000u64 {
            selector.observe(BlockIndex(1_000_000 + at / 4 + mix64(at) % 8_000));
        }
        assert_eq!(selector.choice(), PolicyKind::Lru);
        assert!(selector.changes() < 12, "{}", selector.changes());
    }

    #[test]
    fn equals_do_not_take_turns() {
        // Everything fits, so nobody misses more than once per block.
        let mut selector = Selector::new(&CANDIDATES, 1_000, 1);
        (0..100_000u64).for_each(|at| assert!(!selector.observe(BlockIndex(at % 900))));
        assert_eq!((selector.choice(), selector.changes()), (PolicyKind::Lru, 0));
    }
}
