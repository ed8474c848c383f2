//! A cache that comes to hold what a simulated one holds, whichever that is at the time.
//!
//! Idea: whoever the simulated cache does not hold leaves first, and there is one whenever there must be: the simulated one holds the newcomer, and is no
//! larger. So after a change of the one that is followed nothing is moved or lost at once; the two converge by the misses that come anyway (ours).
//! Not here: the simulated caches, and which of them is followed; those are the [`Selector`]'s.
//! Invariants: each resident block that the followed cache does not hold is in `leaving`; no slot is in it twice.

use crate::{Selector, Slot};
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
}

impl Follower {
    /// An empty cache of `quota` blocks, as large as the caches that it follows.
    pub(crate) fn new(quota: u32, seed: u64) -> Follower {
        Follower { slots: SlotTable::new(seed), quota, leaving: VecDeque::new(), listed: Vec::new() }
    }

    /// Accesses `block`, which `followed` has observed, and whose choice `changed` by it or not; whether it was a hit.
    pub(crate) fn access(&mut self, block: BlockIndex, followed: &Selector, changed: bool) -> bool {
        let hit = self.slots.find(block).is_some();
        if changed {
            for slot in (0..self.slots.len()).map(Slot) {
                if self.slots.block_in(slot).is_some_and(|block| !followed.keeps(block)) {
                    self.list(slot);
                }
            }
        } else if let Some(slot) = followed.evicted().and_then(|evicted| self.slots.find(evicted)) {
            self.list(slot);
        }
        if !hit && followed.keeps(block) {
            self.insert(block, followed);
        }
        hit
    }

    fn list(&mut self, slot: Slot) {
        if !std::mem::replace(&mut self.listed[slot.0 as usize], true) {
            self.leaving.push_back(slot);
        }
    }

    fn insert(&mut self, block: BlockIndex, followed: &Selector) {
        if self.slots.occupied() >= self.quota {
            self.evict(followed);
        }
        let slot = match self.slots.free() {
            Some(slot) => slot,
            None => match self.slots.grow() {
                Ok(slot) => {
                    self.listed.push(false);
                    slot
                }
                // Without memory for another slot the block stays out.
                Err(_) => return,
            },
        };
        self.slots.fill(slot, block);
    }

    fn evict(&mut self, followed: &Selector) {
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
                return;
            }
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
                assert_eq!(follower.access(block, &selector, changed), hit, "{kind}");
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
                follower.access(block, &selector, changed)
            })
            .collect();
        assert_eq!((selector.choice(), selector.changes()), (PolicyKind::Lirs, 1));
        // 120 accesses of the last round: LIRS keeps 99 blocks of the circle for good.
        assert_eq!(hits[12_000 - 120..].iter().filter(|hit| **hit).count(), 99);
    }
}
