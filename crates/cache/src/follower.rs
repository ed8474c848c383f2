//! A cache that comes to hold what a simulated one holds, whichever that is at the time.
//!
//! Idea: whoever the simulated cache does not hold leaves first, and there is one whenever there must be: the simulated one holds the newcomer, and is no
//! larger. So after a change of the one that is followed nothing is moved or lost at once; the two converge by the misses that come anyway (ours).
//! Not here: the simulated caches, and which of them is followed; those are the [`Selector`]'s.
//! Invariants: each resident block that the followed cache does not hold is in `leaving`; no slot is in it twice.

use crate::{Inserted, Insertion, Refusal, Selector, Slot, Statistics};
use forebay_policy::SlotTable;
use forebay_units::BlockIndex;
use std::collections::VecDeque;

/// The cache. 21 bytes per block, and 4 for each that is to leave.
#[derive(Debug)]
pub(crate) struct Follower {
    slots: SlotTable,
    quota: u32,
    /// Who leaves next, in front. Some may have come back to the followed cache since.
    leaving: VecDeque<Slot>,
    /// Whether a slot is in `leaving`.
    listed: Vec<bool>,
    counters: Statistics,
}

impl Follower {
    /// An empty cache of `quota` blocks, as large as the caches that it follows.
    pub(crate) fn new(quota: u32, seed: u64) -> Follower {
        Follower {
            slots: SlotTable::new(seed),
            quota,
            leaving: VecDeque::new(),
            listed: Vec::new(),
            counters: Statistics::default(),
        }
    }

    /// Looks up `block`, which `followed` has observed, and whose choice `changed` by it or not; whether it was a hit.
    pub(crate) fn lookup(&mut self, block: BlockIndex, followed: &Selector, changed: bool) -> bool {
        let hit = self.holds(block);
        self.counters.hits += u64::from(hit);
        self.counters.misses += u64::from(!hit);
        if changed {
            self.list_all(followed);
        } else {
            self.list_evicted(followed);
        }
        hit
    }

    pub(crate) fn holds(&self, block: BlockIndex) -> bool {
        self.slots.find(block).is_some()
    }

    /// Lists all that the followed cache does not hold.
    fn list_all(&mut self, followed: &Selector) {
        for slot in (0..self.slots.len()).map(Slot) {
            if self.slots.block_in(slot).is_some_and(|block| !followed.keeps(block)) {
                self.list(slot);
            }
        }
    }

    fn list_evicted(&mut self, followed: &Selector) {
        if let Some(slot) = followed.evicted().and_then(|evicted| self.slots.find(evicted)) {
            self.list(slot);
        }
    }

    fn list(&mut self, slot: Slot) {
        if !std::mem::replace(&mut self.listed[slot.0 as usize], true) {
            self.leaving.push_back(slot);
        }
    }

    /// Inserts `block` if the followed cache holds it. That has seen whatever brings the block: a look-up or a warm-up.
    pub(crate) fn insert(
        &mut self,
        block: BlockIndex,
        insertion: Insertion,
        followed: &Selector,
    ) -> Inserted {
        if insertion != Insertion::Miss {
            self.list_evicted(followed);
        }
        if let Some(slot) = self.slots.find(block) {
            return Inserted::Present(slot);
        }
        if self.quota == 0 {
            return self.refuse(Refusal::NoQuota);
        }
        if !followed.keeps(block) {
            return self.refuse(Refusal::Policy);
        }
        let evicted = (self.slots.occupied() >= self.quota).then(|| self.evict(followed));
        let slot = match self.slots.free() {
            Some(slot) => slot,
            None => match self.slots.grow() {
                Ok(slot) => {
                    self.listed.push(false);
                    slot
                }
                // Without memory for another slot the block stays out.
                Err(_) => return self.refuse(Refusal::OutOfMemory),
            },
        };
        self.slots.fill(slot, block);
        self.counters.insertions += 1;
        self.counters.prewarmed += u64::from(insertion != Insertion::Miss);
        Inserted::New { slot, evicted }
    }

    fn refuse(&mut self, refusal: Refusal) -> Inserted {
        self.counters.refusals += 1;
        Inserted::Refused(refusal)
    }

    /// Who leaves next.
    fn evict(&mut self, followed: &Selector) -> BlockIndex {
        loop {
            let slot =
                self.leaving.pop_front().expect("the followed cache holds the newcomer and is no larger");
            self.listed[slot.0 as usize] = false;
            let block = self
                .slots
                .block_in(slot)
                .expect("only occupied slots are listed, and stay so while they are");
            if !followed.keeps(block) {
                self.slots.clear(slot, self.quota);
                self.counters.evictions += 1;
                return block;
            }
        }
    }

    /// Sets the quota, in force at once; that of `followed` is set already.
    pub(crate) fn set_quota(&mut self, quota: u32, followed: &Selector) {
        self.quota = quota;
        self.list_all(followed);
        if quota == 0 {
            // What is followed holds a block at least.
            for slot in (0..self.slots.len()).map(Slot) {
                if self.slots.block_in(slot).is_some() {
                    self.slots.clear(slot, 0);
                    self.counters.evictions += 1;
                }
            }
            self.leaving.clear();
            self.listed.fill(false);
        }
        while self.slots.occupied() > quota {
            self.evict(followed);
        }
    }

    /// The counters.
    pub(crate) fn statistics(&self) -> Statistics {
        Statistics {
            resident_blocks: self.slots.occupied(),
            quota_blocks: self.quota,
            limit_blocks: self.quota,
            ..self.counters
        }
    }

    /// The memory it holds, in bytes, by the capacity of its allocations.
    pub(crate) fn footprint_bytes(&self) -> u64 {
        let listed = self.listed.capacity() + self.leaving.capacity() * size_of::<Slot>();
        self.slots.footprint_bytes() + listed as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_policy::PolicyKind;

    fn access(follower: &mut Follower, block: BlockIndex, followed: &Selector, changed: bool) -> bool {
        let hit = follower.lookup(block, followed, changed);
        if !hit {
            follower.insert(block, Insertion::Miss, followed);
        }
        hit
    }

    #[test]
    fn one_that_follows_a_single_policy_is_that_policy() {
        for kind in PolicyKind::ALL {
            let mut selector = Selector::new(&[kind], 50, 0);
            let mut follower = Follower::new(50, 1);
            let mut cache = crate::Partition::new(kind.new_policy(), 50, 2);
            let mut random = 1u64;
            for _ in 0..5_000 {
                random = forebay_units::mix64(random);
                let block = BlockIndex((random % 200).min(random >> 8 & 0x7f));
                let changed = selector.observe(block);
                let hit = cache.lookup(block).is_some();
                if !hit {
                    cache.insert(block, crate::Insertion::Miss);
                }
                assert_eq!(access(&mut follower, block, &selector, changed), hit, "{kind}");
            }
            assert!(follower.footprint_bytes() < 50 * 40 + 4096 * 40, "{}", follower.footprint_bytes());
        }
    }

    #[test]
    fn after_a_change_it_comes_to_hold_what_the_new_choice_holds() {
        // A circle of 120 blocks around a cache of 100: LRU has no hits, LIRS many; it must change once, and then hit as LIRS does.
        let mut selector = Selector::new(&[PolicyKind::Lru, PolicyKind::Lirs], 100, 0);
        let mut follower = Follower::new(100, 0);
        let hits: Vec<bool> = (0..12_000u64)
            .map(|at| {
                let block = BlockIndex(at % 120);
                let changed = selector.observe(block);
                access(&mut follower, block, &selector, changed)
            })
            .collect();
        assert_eq!((selector.choice(), selector.changes()), (PolicyKind::Lirs, 1));
        // 120 accesses of the last round: LIRS keeps 99 blocks of the circle for good.
        assert_eq!(hits[12_000 - 120..].iter().filter(|hit| **hit).count(), 99);
    }
}
