//! The partition of a volume, or of all that share one, under any policy.

use crate::outcome::ChosenPolicy;
use crate::scenario::Replacement;
use forebay_cache::{AdaptivePartition, Inserted, Insertion, Partition, Progress, SELECTABLE, Statistics};
use forebay_policy::{Fifo, Lru, Policy, PolicyKind, Slot, TwoPool};
use forebay_units::BlockIndex;

/// A partition with one of the policies.
#[derive(Debug)]
pub(crate) enum Cache {
    TwoPool(Box<Partition<TwoPool>>),
    Lru(Box<Partition<Lru>>),
    Fifo(Box<Partition<Fifo>>),
    /// Any other policy, behind a pointer.
    Other(Box<Partition<Box<dyn Policy + Send>>>),
    /// Whichever suits best at the time.
    Adaptive(Box<AdaptivePartition>),
}

macro_rules! each {
    ($cache:expr, $partition:ident => $what:expr, $adaptive:ident => $other:expr) => {
        match $cache {
            Cache::TwoPool($partition) => $what,
            Cache::Lru($partition) => $what,
            Cache::Fifo($partition) => $what,
            Cache::Other($partition) => $what,
            Cache::Adaptive($adaptive) => $other,
        }
    };
}

impl Cache {
    /// Of `quota` blocks, which may become `most`.
    pub(crate) fn new(replacement: Replacement, quota: u64, most: u64) -> Cache {
        match replacement {
            Replacement::Policy(PolicyKind::TwoPool) => {
                Cache::TwoPool(Box::new(Partition::new(TwoPool::default(), quota, 0)))
            }
            Replacement::Policy(PolicyKind::Lru) => {
                Cache::Lru(Box::new(Partition::new(Lru::new(), quota, 0)))
            }
            Replacement::Policy(PolicyKind::Fifo) => {
                Cache::Fifo(Box::new(Partition::new(Fifo::new(), quota, 0)))
            }
            Replacement::Policy(other) => {
                Cache::Other(Box::new(Partition::new(other.new_policy(), quota, 0)))
            }
            Replacement::Adaptive => {
                Cache::Adaptive(Box::new(AdaptivePartition::new(&SELECTABLE, quota, most, 0)))
            }
        }
    }

    #[inline]
    pub(super) fn lookup(&mut self, block: u64) -> bool {
        let block = BlockIndex(block);
        each!(self, partition => partition.lookup(block).is_some(), adaptive => adaptive.lookup(block))
    }

    /// The quota in blocks.
    #[inline]
    pub(super) fn quota_blocks(&self) -> u32 {
        each!(self, partition => partition.quota_blocks(), adaptive => adaptive.statistics().quota_blocks)
    }

    pub(super) fn holds(&self, block: u64) -> bool {
        let block = BlockIndex(block);
        each!(self, partition => partition.peek(block).is_some(), adaptive => adaptive.holds(block))
    }

    /// The blocks that it holds, and whether each was used again, where the policy knows that; `None` where they cannot be told.
    pub(super) fn resident(&self) -> Option<Vec<(u64, bool)>> {
        fn listed<P: Policy>(
            partition: &Partition<P>,
            used_again: impl Fn(&P, Slot) -> bool,
        ) -> Vec<(u64, bool)> {
            let slots = (0..partition.slots_in_use()).map(Slot);
            slots
                .filter_map(|slot| Some((partition.block_in(slot)?.0, used_again(partition.policy(), slot))))
                .collect()
        }
        match self {
            Cache::TwoPool(partition) => Some(listed(partition, TwoPool::is_multi_touch)),
            Cache::Lru(partition) => Some(listed(partition, |_, _| false)),
            Cache::Fifo(partition) => Some(listed(partition, |_, _| false)),
            Cache::Other(partition) => Some(listed(partition, |_, _| false)),
            Cache::Adaptive(_) => None,
        }
    }

    pub(super) fn insert(&mut self, block: u64, insertion: Insertion) -> Inserted {
        let block = BlockIndex(block);
        each!(self, partition => partition.insert(block, insertion), adaptive => adaptive.insert(block, insertion))
    }

    /// Sets the quota, in force at once.
    pub(crate) fn set_quota(&mut self, blocks: u64) {
        each!(self, partition => {
            partition.set_quota(blocks);
            while partition.step(1 << 20, |_, _| {}) != Progress::Settled {}
        }, adaptive => adaptive.set_quota(blocks));
    }

    pub(crate) fn statistics(&self) -> Statistics {
        each!(self, partition => partition.statistics(), adaptive => adaptive.statistics())
    }

    /// What an adaptive one came to.
    pub(crate) fn chosen(&self) -> Option<ChosenPolicy> {
        let Cache::Adaptive(adaptive) = self else { return None };
        let selector = adaptive.selector();
        Some(ChosenPolicy { policy: selector.choice().name(), changes: selector.changes() })
    }
}
