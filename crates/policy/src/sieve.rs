//! SIEVE: a hand moves from the oldest block towards the newest, and spares used blocks where they are.
//!
//! Idea: as CLOCK, but a spared block keeps its place, so newcomers, which the hand meets sooner, are sifted out fast.
//! Source: Zhang et al., "SIEVE is simpler than LRU", NSDI '24, section 3 and algorithm 1. It is not scan-resistant by its authors' own
//! words, and block traces are full of scans: it is here to be compared.
//! Invariant: the list is in the order of entry, latest first; `hand` is the next block to look at, none means the oldest.

use crate::{Incoming, Insertion, Links, List, Policy, Slot};
use forebay_units::BlockIndex;
use std::collections::TryReserveError;
use std::ops::ControlFlow;

const VISITED: u8 = 1;

/// SIEVE; 8 bytes per slot.
#[derive(Debug, Default)]
pub struct Sieve {
    links: Links,
    list: List,
    hand: Option<Slot>,
    capacity: u32,
}

impl Sieve {
    /// An empty order of capacity 0.
    pub const fn new() -> Sieve {
        Sieve { links: Links::new(), list: List::EMPTY, hand: None, capacity: 0 }
    }

    /// Takes `slot` out; a hand that stands on it goes one on, towards the front.
    fn remove(&mut self, slot: Slot) {
        if self.hand == Some(slot) {
            self.hand = self.links.previous(slot);
        }
        self.links.unlink(&mut self.list, slot);
    }
}

impl Policy for Sieve {
    fn name(&self) -> &'static str {
        "sieve"
    }

    fn reserve(&mut self, slots: u32) -> Result<(), TryReserveError> {
        self.links.reserve(slots)
    }

    fn release(&mut self, slots: u32) {
        self.links.release(slots);
    }

    fn set_capacity(&mut self, blocks: u32) {
        self.capacity = blocks;
    }

    /// Refuses only warm-up at the tail of a full order: it would displace its better.
    fn admit(&mut self, incoming: Incoming) -> bool {
        incoming.insertion != Insertion::PrewarmTail || self.list.len() < self.capacity
    }

    /// The first block from the hand on that was not visited. `O(1)` amortised: each block spared was hit since it
    /// was last seen; a single call may go round all of them.
    fn victim(&mut self, _incoming: Option<Incoming>) -> Option<Slot> {
        let oldest = self.list.back()?;
        let mut at = self.hand.unwrap_or(oldest);
        while self.links.tag(at) == VISITED {
            self.links.set_tag(at, 0);
            at = self.links.previous(at).unwrap_or(oldest);
        }
        self.hand = Some(at);
        Some(at)
    }

    #[inline]
    fn on_hit(&mut self, slot: Slot, _block: BlockIndex) {
        self.links.set_tag(slot, VISITED);
    }

    fn on_insert(&mut self, slot: Slot, incoming: Incoming) {
        match incoming.insertion {
            Insertion::Miss | Insertion::Prewarm => self.links.push_front(&mut self.list, slot),
            Insertion::PrewarmTail => self.links.push_back(&mut self.list, slot),
        }
    }

    fn on_evict(&mut self, slot: Slot, _block: BlockIndex) {
        self.remove(slot);
    }

    fn on_remove(&mut self, slot: Slot, _block: BlockIndex) {
        self.remove(slot);
    }

    fn on_move(&mut self, from: Slot, to: Slot) {
        self.links.rename(&mut self.list, from, to);
        if self.hand == Some(from) {
            self.hand = Some(to);
        }
    }

    /// The order of entry, latest first; the hand may be anywhere in it.
    fn visit_hottest_first(&self, visit: &mut dyn FnMut(Slot) -> ControlFlow<()>) {
        let _ = self.links.iter(&self.list).try_for_each(visit);
    }

    fn footprint_bytes(&self) -> u64 {
        self.links.footprint_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Model, check_against, trace};

    #[test]
    fn a_hand_traced_run() {
        // Capacity 3. 1 2 3 1: order 3 2 1*, no hand. 4: 1 is spared in its place, 2 leaves, the hand stands at 3.
        let mut run = trace(Sieve::new(), 3, &[1, 2, 3, 1, 4]);
        assert_eq!((run.evicted.as_slice(), run.order_blocks()), ([2].as_slice(), vec![4, 3, 1]));
        // 5: 3 is not visited and leaves, the hand stands at 4. 4 is visited. 6: 4 is spared, 5 leaves: the newcomer is sifted out.
        for block in [5, 4, 6] {
            run.access(block);
        }
        assert_eq!((run.evicted.as_slice(), run.order_blocks()), ([2, 3, 5].as_slice(), vec![6, 4, 1]));
    }

    /// Blocks and whether they were visited, latest first, and the block under the hand.
    #[derive(Default)]
    struct Naive {
        blocks: Vec<(u64, bool)>,
        hand: Option<u64>,
    }

    impl Naive {
        fn place(&self, block: u64) -> usize {
            self.blocks.iter().position(|(kept, _)| *kept == block).unwrap()
        }
    }

    impl Model for Naive {
        fn admits(&mut self, _: u64, insertion: Insertion, capacity: usize) -> bool {
            insertion != Insertion::PrewarmTail || self.blocks.len() < capacity
        }
        fn victim(&mut self, _: Option<Insertion>, _: usize) -> u64 {
            let last = self.blocks.len() - 1;
            let mut at = self.hand.map_or(last, |block| self.place(block));
            while self.blocks[at].1 {
                self.blocks[at].1 = false;
                at = at.checked_sub(1).unwrap_or(last);
            }
            self.hand = Some(self.blocks[at].0);
            self.blocks[at].0
        }
        fn hit(&mut self, block: u64) {
            let at = self.place(block);
            self.blocks[at].1 = true;
        }
        fn insert(&mut self, block: u64, insertion: Insertion) {
            let at = if insertion == Insertion::PrewarmTail { self.blocks.len() } else { 0 };
            self.blocks.insert(at, (block, false));
        }
        fn remove(&mut self, block: u64) {
            let at = self.place(block);
            if self.hand == Some(block) {
                self.hand = at.checked_sub(1).map(|before| self.blocks[before].0);
            }
            self.blocks.remove(at);
        }
        fn order(&self) -> Vec<u64> {
            self.blocks.iter().map(|(block, _)| *block).collect()
        }
    }

    #[test]
    fn it_agrees_with_a_list() {
        check_against(Sieve::new, Naive::default);
    }
}
