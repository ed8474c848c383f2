//! Which policy suits a workload: miniature caches, one per candidate, see a sample of its blocks and are compared while it runs.
//!
//! Idea: a cache of `size` blocks misses as a cache of `rate * size` blocks does that only sees the blocks whose hash is below `rate`.
//! Source: Waldspurger, Saemundsson, Ahmad and Park, "Cache modeling and optimization using miniature simulations", USENIX ATC '17, section 3; the sample is
//! that of SHARDS (FAST '15, section 3.1). Ours: the size of the miniatures, how fast old misses fade, and when a difference counts.
//! Not here: what a change of the choice does to the cache; that is [`crate::AdaptivePartition`].
//! Invariant: all miniatures saw the same accesses.

use crate::{Inserted, Insertion, Partition, Progress};
use forebay_policy::{Policy, PolicyKind};
use forebay_units::{BlockIndex, mix64};

/// Blocks of a miniature at most: caches up to 1 GiB of 4 KiB blocks are simulated in full, so that the cache can follow what is simulated. A change
/// that only hands over which blocks are there loses what the policy knows of all others, and with that most of what there is to gain (measured).
const MINIATURE_BLOCKS: u64 = 1 << 18;
/// Sampled accesses between two decisions, as a share of a miniature's blocks, and at least. Chosen, as the three below, on a part of the recorded
/// traces; the others confirm them.
const WINDOW_SHARE: u64 = 50;
const WINDOW_MIN: u64 = 64;
/// After so many sampled accesses per block of a miniature its misses count half.
const HALF_LIFE: f64 = 4.0;
/// A candidate is chosen if it has fewer misses by so many times the square root of theirs: fewer may be chance.
const CHANCE: f64 = 2.0;
/// Where the cache cannot follow, a change must besides have been worth so many misses per block: it costs what the old policy knew.
const COST: f64 = 0.1;

/// What an adaptive cache chooses from, first and last what it begins with (ours: the policies of which none is the best everywhere).
pub const SELECTABLE: [PolicyKind; 6] = [
    PolicyKind::Lirs,
    PolicyKind::Lru,
    PolicyKind::TwoQ,
    PolicyKind::Arc,
    PolicyKind::WTinyLfu,
    PolicyKind::S3Fifo,
];

/// A cache that takes part in the comparison.
#[derive(Debug)]
struct Miniature {
    kind: PolicyKind,
    partition: Partition<Box<dyn Policy + Send>>,
    /// Misses, those of the past faded.
    misses: f64,
    /// Who left it for the last access.
    evicted: Option<BlockIndex>,
}

/// Miniature caches under candidate policies, and the choice among them.
#[derive(Debug)]
pub struct Selector {
    miniatures: Vec<Miniature>,
    /// Blocks whose hash is at most this are sampled.
    threshold: u64,
    seed: u64,
    /// Blocks of a miniature per block of the cache.
    rate: f64,
    /// Sampled accesses between two decisions, and those left until the next.
    window: u64,
    left: u64,
    /// What a window leaves of the misses before it.
    fading: f64,
    /// Misses that a change must have been worth besides chance.
    cost: f64,
    chosen: usize,
    changes: u64,
}

impl Selector {
    /// Compares `candidates` for a cache of `quota_blocks` blocks. Until it knows better, the first is the choice where the miniatures are complete, else
    /// the last: a cache that follows can begin with what is slow to learn, one that cannot with what is seldom far off. `seed` chooses the sample.
    ///
    /// Memory: at most 262,144 blocks' bookkeeping per candidate, 28 to 72 bytes each. A quota of 0 is taken as 1.
    ///
    /// # Panics
    /// If there are no candidates.
    pub fn new(candidates: &[PolicyKind], quota_blocks: u64, seed: u64) -> Selector {
        Selector::with_miniatures(candidates, quota_blocks, MINIATURE_BLOCKS, seed)
    }

    /// As [`Selector::new`], with miniatures of at most `blocks_max` blocks.
    pub(crate) fn with_miniatures(
        candidates: &[PolicyKind],
        quota_blocks: u64,
        blocks_max: u64,
        seed: u64,
    ) -> Selector {
        assert!(!candidates.is_empty(), "a selector needs candidates");
        let quota = quota_blocks.max(1);
        let size = quota.min(blocks_max);
        let rate = size as f64 / quota as f64;
        let miniature = |kind: &PolicyKind| Miniature {
            kind: *kind,
            partition: Partition::new(kind.new_policy(), size, seed),
            misses: 0.0,
            evicted: None,
        };
        let complete = size == quota;
        let mut selector = Selector {
            miniatures: candidates.iter().map(miniature).collect(),
            threshold: if complete { u64::MAX } else { (rate * u64::MAX as f64) as u64 },
            seed: mix64(seed),
            rate,
            window: u64::MAX,
            left: u64::MAX,
            fading: 1.0,
            cost: 0.0,
            chosen: if complete { 0 } else { candidates.len() - 1 },
            changes: 0,
        };
        selector.pace(size);
        selector
    }

    /// Sets when and by how much a candidate must be better, for miniatures of `size` blocks.
    fn pace(&mut self, size: u64) {
        self.window = (size / WINDOW_SHARE).max(WINDOW_MIN);
        self.left = self.left.min(self.window);
        self.fading = 0.5f64.powf(self.window as f64 / (HALF_LIFE * size as f64));
        self.cost = if self.is_complete() { 0.0 } else { COST * size as f64 };
    }

    /// Follows a change of the cache's quota: the miniatures keep what the sample says that they would, and at least a block.
    pub(crate) fn set_quota(&mut self, quota_blocks: u64) {
        let size = ((quota_blocks as f64 * self.rate) as u64).max(1);
        for miniature in &mut self.miniatures {
            miniature.evicted = None;
            miniature.partition.set_quota(size);
            while miniature.partition.step(1 << 20, |_, _| {}) != Progress::Settled {}
        }
        self.pace(size);
    }

    /// Tells of a block that a warm-up brings into the cache.
    pub(crate) fn warm(&mut self, block: BlockIndex, insertion: Insertion) {
        let sampled = self.samples(block);
        for miniature in &mut self.miniatures {
            miniature.evicted = None;
            if sampled && let Inserted::New { evicted, .. } = miniature.partition.insert(block, insertion) {
                miniature.evicted = evicted;
            }
        }
    }

    #[inline]
    fn samples(&self, block: BlockIndex) -> bool {
        mix64(block.0 ^ self.seed) <= self.threshold
    }

    /// Tells of an access to `block`; whether the choice changed by it. `O(candidates)` for a sampled block, a hash for any other.
    pub fn observe(&mut self, block: BlockIndex) -> bool {
        if !self.samples(block) {
            return false;
        }
        for miniature in &mut self.miniatures {
            miniature.evicted = None;
            if miniature.partition.lookup(block).is_none() {
                miniature.misses += 1.0;
                if let Inserted::New { evicted, .. } = miniature.partition.insert(block, Insertion::Miss) {
                    miniature.evicted = evicted;
                }
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
        let enough = CHANCE * chosen.sqrt() + self.cost;
        let best = best.filter(|best| chosen - self.miniatures[*best].misses > enough);
        for miniature in &mut self.miniatures {
            miniature.misses *= self.fading;
        }
        let Some(best) = best else { return false };
        self.chosen = best;
        self.changes += 1;
        true
    }

    /// Whether the miniatures are as large as the cache and see all of its blocks, so that it can do as they do.
    pub fn is_complete(&self) -> bool {
        self.threshold == u64::MAX
    }

    /// Whether the chosen miniature holds `block`.
    pub(crate) fn keeps(&self, block: BlockIndex) -> bool {
        self.miniatures[self.chosen].partition.peek(block).is_some()
    }

    /// Who left the chosen miniature for the access observed last.
    pub(crate) fn evicted(&self) -> Option<BlockIndex> {
        self.miniatures[self.chosen].evicted
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
        let mut selector = Selector::with_miniatures(&CANDIDATES, 10_000, 4096, 1);
        assert!(!selector.is_complete());
        assert_eq!(selector.choice(), PolicyKind::S3Fifo);
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
