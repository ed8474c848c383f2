//! FIFO: the block that entered first leaves, whether it was used or not.
//!
//! Idea: the cheapest order there is, a hit changes nothing. It is the baseline against which miss ratios are reported.
//! Source: Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966.
//! Invariant: the list is in the order of entry, latest first; blocks warmed at the tail count as having entered before all.

use crate::{Incoming, Insertion, Links, List, Policy, Slot};
use forebay_units::BlockIndex;
use std::collections::TryReserveError;
use std::ops::ControlFlow;

/// First in, first out; 8 bytes per slot.
#[derive(Debug, Default)]
pub struct Fifo {
    links: Links,
    list: List,
    capacity: u32,
}

impl Fifo {
    /// An empty order of capacity 0.
    pub const fn new() -> Fifo {
        Fifo { links: Links::new(), list: List::EMPTY, capacity: 0 }
    }
}

impl Policy for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
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

    fn on_hit(&mut self, _slot: Slot, _block: BlockIndex) {}

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
    use crate::model::{Model, check_against, trace};

    #[test]
    fn a_hand_traced_run() {
        // Capacity 3. 1 2 3 1 4 1 5: the hit on 1 saves nobody: 4 evicts 1, then 1 misses and evicts 2, 5 evicts 3.
        let run = trace(Fifo::new(), 3, &[1, 2, 3, 1, 4, 1, 5]);
        assert_eq!(run.evicted, [1, 2, 3]);
        assert_eq!(run.hits, 1);
        assert_eq!(run.order_blocks(), [5, 1, 4]);
    }

    struct Naive(Vec<u64>);

    impl Model for Naive {
        fn admits(&mut self, _: u64, insertion: Insertion, capacity: usize) -> bool {
            insertion != Insertion::PrewarmTail || self.0.len() < capacity
        }
        fn victim(&mut self, _: Option<Insertion>, _: usize) -> u64 {
            *self.0.last().unwrap()
        }
        fn hit(&mut self, _: u64) {}
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
        check_against(Fifo::new, || Naive(Vec::new()));
    }
}
