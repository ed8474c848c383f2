//! SLRU: a probationary and a protected LRU segment; who falls out of protection gets another trial.
//!
//! Idea: as two pools, but the victim of the protected segment is not evicted: it goes back to the front of probation.
//! Source: Karedla, Love and Wherry, "Caching strategies to improve disk system performance", IEEE Computer 27(3), 1994. The protected
//! share of 0.8 is the one of W-TinyLFU (Einziger et al., ACM TOS 13(4), 2017); the original tunes it per system.
//! Invariant: the protected segment is above its share only after the capacity shrank, until enough hits demoted the excess; the tag of a slot names its segment.

use crate::{Incoming, Insertion, Links, List, Policy, Slot};
use forebay_units::{BlockIndex, Ratio};
use std::collections::TryReserveError;
use std::ops::ControlFlow;

const PROTECTED: u8 = 1;

/// Segmented LRU; 8 bytes per slot.
#[derive(Debug)]
pub struct Slru {
    links: Links,
    probation: List,
    protected: List,
    share: Ratio,
    capacity: u32,
    protected_capacity: u32,
}

impl Slru {
    /// An empty order of capacity 0, whose protected segment has the share `protected` of the capacity.
    pub const fn new(protected: Ratio) -> Slru {
        Slru {
            links: Links::new(),
            probation: List::EMPTY,
            protected: List::EMPTY,
            share: protected,
            capacity: 0,
            protected_capacity: 0,
        }
    }

    fn segment(&mut self, slot: Slot) -> (&mut Links, &mut List) {
        let list = if self.links.tag(slot) == PROTECTED { &mut self.protected } else { &mut self.probation };
        (&mut self.links, list)
    }

    fn remove(&mut self, slot: Slot) {
        let (links, list) = self.segment(slot);
        links.unlink(list, slot);
    }

    /// Sends the last protected block to the front of probation.
    fn demote(&mut self) {
        if let Some(slot) = self.protected.back() {
            self.links.unlink(&mut self.protected, slot);
            self.links.push_front(&mut self.probation, slot);
        }
    }
}

impl Default for Slru {
    /// Four fifths are protected.
    fn default() -> Slru {
        Slru::new(Ratio::of(4, 5))
    }
}

impl Policy for Slru {
    fn name(&self) -> &'static str {
        "slru"
    }

    fn reserve(&mut self, slots: u32) -> Result<(), TryReserveError> {
        self.links.reserve(slots)
    }

    fn release(&mut self, slots: u32) {
        self.links.release(slots);
    }

    /// The protected share is rounded to the nearest block. Blocks above it are demoted as they become victims or others are
    /// promoted: a change of capacity must not walk the segment.
    fn set_capacity(&mut self, blocks: u32) {
        self.capacity = blocks;
        self.protected_capacity = (f64::from(blocks) * self.share.get()).round() as u32;
    }

    /// Refuses only warm-up at the tail of a full order: it would displace its better.
    fn admit(&mut self, incoming: Incoming) -> bool {
        incoming.insertion != Insertion::PrewarmTail
            || self.probation.len() + self.protected.len() < self.capacity
    }

    fn victim(&mut self, _incoming: Option<Incoming>) -> Option<Slot> {
        self.probation.back().or(self.protected.back())
    }

    #[inline]
    fn on_hit(&mut self, slot: Slot, _block: BlockIndex) {
        self.remove(slot);
        self.links.push_front(&mut self.protected, slot);
        self.links.set_tag(slot, PROTECTED);
        // Two, so that a protected segment that a smaller capacity left above its share comes down to it.
        for _ in 0..2 {
            if self.protected.len() > self.protected_capacity {
                self.demote();
            }
        }
    }

    /// Warm-up enters probation too: nothing is protected that was not used twice here.
    fn on_insert(&mut self, slot: Slot, incoming: Incoming) {
        match incoming.insertion {
            Insertion::Miss | Insertion::Prewarm => self.links.push_front(&mut self.probation, slot),
            Insertion::PrewarmTail => self.links.push_back(&mut self.probation, slot),
        }
    }

    fn on_evict(&mut self, slot: Slot, _block: BlockIndex) {
        self.remove(slot);
    }

    fn on_remove(&mut self, slot: Slot, _block: BlockIndex) {
        self.remove(slot);
    }

    fn on_move(&mut self, from: Slot, to: Slot) {
        let (links, list) = self.segment(from);
        links.rename(list, from, to);
    }

    fn anticipate(&self, hits: &[Slot], _others: &[BlockIndex]) {
        self.links.anticipate(hits);
    }

    #[inline]
    fn fetch_victim_ahead(&mut self) -> Option<Slot> {
        self.links.fetch_ahead(&mut self.probation)
    }

    /// The protected segment, then probation, each from the most recent on.
    fn visit_hottest_first(&self, visit: &mut dyn FnMut(Slot) -> ControlFlow<()>) {
        let _ = self.links.iter(&self.protected).chain(self.links.iter(&self.probation)).try_for_each(visit);
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
        // Capacity 3, protected share 0.5: round(1.5) = 2 protected. 1 2 3, then 1 and 2 are protected (2 1 | 3).
        let mut run = trace(Slru::new(Ratio::of(1, 2)), 3, &[1, 2, 3, 1, 2]);
        assert_eq!(run.order_blocks(), [2, 1, 3]);
        // 3 is protected too; 1 falls back to probation (3 2 | 1). 4: 1 leaves.
        run.access(3);
        assert_eq!(run.order_blocks(), [3, 2, 1]);
        run.access(4);
        assert_eq!((run.evicted.as_slice(), run.order_blocks()), ([1].as_slice(), vec![3, 2, 4]));
    }

    /// The parts of `docs/reference/policies/README.md`: all of a cache of two blocks may be protected.
    #[test]
    fn parts_of_tiny_caches_are_as_documented() {
        for (capacity, wanted) in [(0, 0), (1, 1), (2, 2), (3, 2), (10, 8)] {
            let mut run = trace(Slru::default(), capacity, &[]);
            assert_eq!(run.policy.protected_capacity, wanted);
            assert!(run.policy.protected_capacity <= run.policy.capacity);
            if capacity > 0 {
                // All blocks twice, and one more: the part that is protected is full, and a place is found.
                let twice = (0..2).flat_map(|_| 0..capacity as u64);
                twice.for_each(|block| run.access(block));
                assert_eq!((run.policy.protected.len(), run.hits), (wanted, capacity as u64));
                run.access(99);
                assert_eq!(run.slots.len(), capacity);
            }
        }
    }

    struct Naive {
        probation: Vec<u64>,
        protected: Vec<u64>,
        capacity: usize,
    }

    impl Model for Naive {
        fn admits(&mut self, _: u64, insertion: Insertion, capacity: usize) -> bool {
            insertion != Insertion::PrewarmTail || self.probation.len() + self.protected.len() < capacity
        }
        fn set_capacity(&mut self, capacity: usize) {
            self.capacity = capacity;
        }
        fn victim(&mut self, _: Option<Insertion>, _: usize) -> u64 {
            *self.probation.last().or(self.protected.last()).unwrap()
        }
        fn hit(&mut self, block: u64) {
            self.remove(block);
            self.protected.insert(0, block);
            let share = (self.capacity as f64 * 0.8).round() as usize;
            for _ in 0..2 {
                if self.protected.len() > share {
                    let demoted = self.protected.pop().unwrap();
                    self.probation.insert(0, demoted);
                }
            }
        }
        fn insert(&mut self, block: u64, insertion: Insertion) {
            let at = if insertion == Insertion::PrewarmTail { self.probation.len() } else { 0 };
            self.probation.insert(at, block);
        }
        fn remove(&mut self, block: u64) {
            self.probation.retain(|kept| *kept != block);
            self.protected.retain(|kept| *kept != block);
        }
        fn order(&self) -> Vec<u64> {
            [self.protected.as_slice(), &self.probation].concat()
        }
    }

    #[test]
    fn it_agrees_with_two_lists() {
        check_against(Slru::default, || Naive { probation: Vec::new(), protected: Vec::new(), capacity: 0 });
    }
}
