//! CLOCK: a hand goes round, and spares whom it finds used since its last visit.
//!
//! Idea: LRU's verdict at the price of one bit per hit: a hit moves nothing.
//! Source: Corbató, "A paging experiment with the Multics system", MIT Project MAC MAC-M-384, 1968.
//! Invariant: the back of the list is where the hand stands; tag 1 means used since then. A spared block goes to the front,
//! which is where the hand comes last.

use crate::{Incoming, Insertion, Links, List, Policy, Slot};
use forebay_units::BlockIndex;
use std::collections::TryReserveError;
use std::ops::ControlFlow;

const USED: u8 = 1;

/// CLOCK with one bit, also called second chance; 8 bytes per slot.
#[derive(Debug, Default)]
pub struct Clock {
    links: Links,
    list: List,
    capacity: u32,
}

impl Clock {
    /// An empty order of capacity 0.
    pub const fn new() -> Clock {
        Clock { links: Links::new(), list: List::EMPTY, capacity: 0 }
    }
}

impl Policy for Clock {
    fn name(&self) -> &'static str {
        "clock"
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

    /// The first block before the hand that was not used. `O(1)` amortised: each block spared was hit since it
    /// was last seen; a single call may go round all of them.
    fn victim(&mut self, _incoming: Option<Incoming>) -> Option<Slot> {
        loop {
            let hand = self.list.back()?;
            if self.links.tag(hand) != USED {
                return Some(hand);
            }
            self.links.unlink(&mut self.list, hand);
            self.links.push_front(&mut self.list, hand);
        }
    }

    #[inline]
    fn on_hit(&mut self, slot: Slot, _block: BlockIndex) {
        self.links.set_tag(slot, USED);
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

    /// The order in which the hand comes, last first; whom it will spare is not known in advance.
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
        // Capacity 3. 1 2 3 1: the hand stands at 1, which was used. 4: 1 is spared (order 1 3 2), 2 leaves.
        let mut run = trace(Clock::new(), 3, &[1, 2, 3, 1, 4]);
        assert_eq!((run.evicted.as_slice(), run.hits), ([2].as_slice(), 1));
        assert_eq!(run.order_blocks(), [4, 1, 3]);
        // 3, 1 and 4 are used; 5: all are spared once, so the hand comes back to 3 and it leaves.
        for block in [3, 1, 4, 5] {
            run.access(block);
        }
        assert_eq!(run.evicted, [2, 3]);
        assert_eq!(run.order_blocks(), [5, 4, 1]);
    }

    /// Blocks and whether they were used; the hand stands at the end.
    struct Naive(Vec<(u64, bool)>);

    impl Model for Naive {
        fn admits(&mut self, _: u64, insertion: Insertion, capacity: usize) -> bool {
            insertion != Insertion::PrewarmTail || self.0.len() < capacity
        }
        fn victim(&mut self, _: Option<Insertion>, _: usize) -> u64 {
            while let Some((block, true)) = self.0.last().copied() {
                self.0.pop();
                self.0.insert(0, (block, false));
            }
            self.0.last().unwrap().0
        }
        fn hit(&mut self, block: u64) {
            self.0.iter_mut().filter(|(kept, _)| *kept == block).for_each(|entry| entry.1 = true);
        }
        fn insert(&mut self, block: u64, insertion: Insertion) {
            let at = if insertion == Insertion::PrewarmTail { self.0.len() } else { 0 };
            self.0.insert(at, (block, false));
        }
        fn remove(&mut self, block: u64) {
            self.0.retain(|(kept, _)| *kept != block);
        }
        fn order(&self) -> Vec<u64> {
            self.0.iter().map(|(block, _)| *block).collect()
        }
    }

    #[test]
    fn it_agrees_with_a_list() {
        check_against(Clock::new, || Naive(Vec::new()));
    }
}
