//! LRU: the block that was used least recently leaves.
//!
//! Idea: what was used lately is used again soon. Not scan-resistant. Its miss ratio as a function of its size is what
//! `locality` computes exactly, so it is also the policy whose prediction is best.
//! Source: Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2), 1970.
//! Invariant: the list is in the order of last use, most recent first; blocks warmed at the tail count as never used.

use crate::{Incoming, Insertion, Links, List, Policy, Slot};
use forebay_units::BlockIndex;
use std::collections::TryReserveError;
use std::ops::ControlFlow;

/// Least recently used; 8 bytes per slot.
#[derive(Debug, Default)]
pub struct Lru {
    links: Links,
    list: List,
    capacity: u32,
}

impl Lru {
    /// An empty order of capacity 0.
    pub const fn new() -> Lru {
        Lru { links: Links::new(), list: List::EMPTY, capacity: 0 }
    }
}

impl Policy for Lru {
    fn name(&self) -> &'static str {
        "lru"
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

    /// Refuses only a block that would be inserted at the tail of a full order: it would displace its better.
    fn admit(&mut self, incoming: Incoming) -> bool {
        incoming.insertion != Insertion::PrewarmTail || self.list.len() < self.capacity
    }

    fn victim(&mut self, _incoming: Option<Incoming>) -> Option<Slot> {
        self.list.back()
    }

    #[inline]
    fn on_hit(&mut self, slot: Slot, _block: BlockIndex) {
        if self.list.front() != Some(slot) {
            self.links.unlink(&mut self.list, slot);
            self.links.push_front(&mut self.list, slot);
        }
    }

    fn on_insert(&mut self, slot: Slot, incoming: Incoming) {
        match incoming.insertion {
            Insertion::Miss | Insertion::Prewarm => self.links.push_front(&mut self.list, slot),
            Insertion::PrewarmTail => self.links.push_back(&mut self.list, slot),
        }
    }

    fn on_evict(&mut self, slot: Slot, _block: BlockIndex) {
        self.links.unlink(&mut self.list, slot);
    }

    fn on_remove(&mut self, slot: Slot, _block: BlockIndex) {
        self.links.unlink(&mut self.list, slot);
    }

    fn on_move(&mut self, from: Slot, to: Slot) {
        self.links.rename(&mut self.list, from, to);
    }

    fn anticipate(&self, hits: &[Slot], _others: &[BlockIndex]) {
        self.links.anticipate(hits);
    }

    #[inline]
    fn fetch_victim_ahead(&mut self) -> Option<Slot> {
        self.links.fetch_ahead(&mut self.list)
    }

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
    use crate::model::{Model, check_against, order, trace};

    #[test]
    fn a_hand_traced_run() {
        // Capacity 3. 1 2 3 1 4 2: 4 evicts 2 (order 1 3 2 before it), then 2 evicts 3 (order 4 1 3 before it).
        let run = trace(Lru::new(), 3, &[1, 2, 3, 1, 4, 2]);
        assert_eq!(run.evicted, [2, 3]);
        assert_eq!(run.hits, 1);
        assert_eq!(run.order_blocks(), [2, 4, 1]);
    }

    #[test]
    fn warming_at_the_tail_keeps_the_order_of_scores_and_displaces_nobody() {
        let mut run = trace(Lru::new(), 4, &[1, 2]);
        for block in [30, 20, 10] {
            run.insert(block, Insertion::PrewarmTail);
        }
        // Two places were free: the two best took them, the third was refused.
        assert_eq!(run.order_blocks(), [2, 1, 30, 20]);
        run.access(5);
        assert_eq!((run.evicted.as_slice(), order(&run.policy).len()), ([20].as_slice(), 4));
    }

    struct Naive(Vec<u64>);

    impl Model for Naive {
        fn admits(&mut self, _: u64, insertion: Insertion, capacity: usize) -> bool {
            insertion != Insertion::PrewarmTail || self.0.len() < capacity
        }
        fn victim(&mut self, _: Option<Insertion>, _: usize) -> u64 {
            *self.0.last().unwrap()
        }
        fn hit(&mut self, block: u64) {
            self.remove(block);
            self.0.insert(0, block);
        }
        fn insert(&mut self, block: u64, insertion: Insertion) {
            let at = if insertion == Insertion::PrewarmTail { self.0.len() } else { 0 };
            self.0.insert(at, block);
        }
        fn remove(&mut self, block: u64) {
            self.0.retain(|kept| *kept != block);
        }
        fn order(&self) -> Vec<u64> {
            self.0.clone()
        }
    }

    #[test]
    fn it_agrees_with_a_list() {
        check_against(Lru::new, || Naive(Vec::new()));
    }
}
