//! 2Q: a FIFO for newcomers, an LRU for those that came back, and a memory of who left the FIFO.
//!
//! Idea: a block is hot if it is used again after the FIFO let it go; uses that follow its first within the FIFO's length
//! are one use ("correlated references") and prove nothing.
//! Source: Johnson and Shasha, "2Q: a low overhead high performance buffer management replacement algorithm", VLDB '94, section 3.2,
//! the full version; A1in has a quarter of the slots and A1out remembers half as many blocks as there are slots, as section 3.3 advises.
//! Deviations: warm-up at the head enters Am; warm-up at the tail the end of A1in.
//! Invariant: the tag of a slot names its queue; A1out is at most `out_capacity` long once two calls per block too many went by.

use crate::ghosts::Ghosts;
use crate::{Incoming, Insertion, Links, List, Policy, Slot};
use forebay_units::BlockIndex;
use std::collections::TryReserveError;
use std::ops::ControlFlow;

const MAIN: u8 = 1;

/// Full 2Q; 8 bytes per slot and 28 per ghost, of which there are half as many.
#[derive(Debug)]
pub struct TwoQ {
    links: Links,
    /// A1in.
    newcomers: List,
    /// Am.
    main: List,
    /// A1out, as list 0.
    ghosts: Ghosts,
    capacity: u32,
    newcomers_capacity: u32,
    out_capacity: u32,
    /// Whether the block that is about to enter was found in A1out.
    came_back: bool,
}

impl TwoQ {
    /// An empty order of capacity 0.
    pub fn new() -> TwoQ {
        TwoQ {
            links: Links::new(),
            newcomers: List::EMPTY,
            main: List::EMPTY,
            ghosts: Ghosts::new(),
            capacity: 0,
            newcomers_capacity: 0,
            out_capacity: 0,
            came_back: false,
        }
    }

    fn queue(&mut self, slot: Slot) -> (&mut Links, &mut List) {
        let list = if self.links.tag(slot) == MAIN { &mut self.main } else { &mut self.newcomers };
        (&mut self.links, list)
    }
}

impl Default for TwoQ {
    fn default() -> TwoQ {
        TwoQ::new()
    }
}

impl Policy for TwoQ {
    fn name(&self) -> &'static str {
        "2q"
    }

    fn reserve(&mut self, slots: u32) -> Result<(), TryReserveError> {
        self.ghosts.reserve(slots / 2 + 2)?;
        self.links.reserve(slots)
    }

    fn release(&mut self, slots: u32) {
        self.links.release(slots);
        self.ghosts.release(slots / 2 + 2, |_| ());
    }

    /// Both lengths are rounded down; A1in keeps at least one block.
    fn set_capacity(&mut self, blocks: u32) {
        self.capacity = blocks;
        self.newcomers_capacity = (blocks / 4).max(1);
        self.out_capacity = (blocks / 2).max(1);
    }

    /// Refuses only warm-up at the tail of a full order: it would displace its better.
    fn admit(&mut self, incoming: Incoming) -> bool {
        self.came_back = incoming.insertion == Insertion::Miss && self.ghosts.find(incoming.block).is_some();
        incoming.insertion != Insertion::PrewarmTail || self.newcomers.len() + self.main.len() < self.capacity
    }

    fn victim(&mut self, _incoming: Option<Incoming>) -> Option<Slot> {
        let (newcomer, main) = (self.newcomers.back(), self.main.back());
        if self.newcomers.len() > self.newcomers_capacity { newcomer } else { main.or(newcomer) }
    }

    /// Moves nothing in A1in.
    #[inline]
    fn on_hit(&mut self, slot: Slot, _block: BlockIndex) {
        if self.links.tag(slot) == MAIN && self.main.front() != Some(slot) {
            self.links.unlink(&mut self.main, slot);
            self.links.push_front(&mut self.main, slot);
            self.links.set_tag(slot, MAIN);
        }
    }

    fn on_insert(&mut self, slot: Slot, incoming: Incoming) {
        if let Some(ghost) = self.ghosts.find(incoming.block) {
            self.ghosts.forget(ghost);
        }
        match incoming.insertion {
            Insertion::Miss if !self.came_back => self.links.push_front(&mut self.newcomers, slot),
            Insertion::Miss | Insertion::Prewarm => {
                self.links.push_front(&mut self.main, slot);
                self.links.set_tag(slot, MAIN);
            }
            Insertion::PrewarmTail => self.links.push_back(&mut self.newcomers, slot),
        }
    }

    /// Who leaves A1in is remembered; who leaves Am had its time.
    fn on_evict(&mut self, slot: Slot, block: BlockIndex) {
        if self.links.tag(slot) != MAIN {
            self.ghosts.trim(0, self.out_capacity - 1);
            self.ghosts.push(0, block);
        }
        self.on_remove(slot, block);
    }

    fn on_remove(&mut self, slot: Slot, _block: BlockIndex) {
        let (links, list) = self.queue(slot);
        links.unlink(list, slot);
    }

    fn on_move(&mut self, from: Slot, to: Slot) {
        let (links, list) = self.queue(from);
        links.rename(list, from, to);
    }

    fn anticipate(&self, hits: &[Slot], _others: &[BlockIndex]) {
        self.links.anticipate(hits);
    }

    #[inline]
    fn fetch_victim_ahead(&mut self) -> Option<Slot> {
        self.links.fetch_ahead(&mut self.newcomers)
    }

    /// Am from the most recent on, then A1in from the latest on.
    fn visit_hottest_first(&self, visit: &mut dyn FnMut(Slot) -> ControlFlow<()>) {
        let _ = self.links.iter(&self.main).chain(self.links.iter(&self.newcomers)).try_for_each(visit);
    }

    fn footprint_bytes(&self) -> u64 {
        self.links.footprint_bytes() + self.ghosts.footprint_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Model, check_against, trace};

    #[test]
    fn a_hand_traced_run() {
        // Capacity 4: A1in 1, A1out 2. 1 2 3 4 fill A1in (4 3 2 1); 1 again moves nothing. 5: A1in is above 1, so 1 leaves and is remembered.
        let mut run = trace(TwoQ::new(), 4, &[1, 2, 3, 4, 1, 5]);
        assert_eq!((run.evicted.as_slice(), run.order_blocks()), ([1].as_slice(), vec![5, 4, 3, 2]));
        // 1 comes back: 2 leaves A1in (A1out: 2), 1 enters Am.
        run.access(1);
        assert_eq!((run.evicted.as_slice(), run.order_blocks()), ([1, 2].as_slice(), vec![1, 5, 4, 3]));
        // 6 7: 3 and 4 leave; A1out holds two: 4 3. So 2 is new again: 5 leaves.
        for block in [6, 7, 2] {
            run.access(block);
        }
        assert_eq!(
            (run.evicted.as_slice(), run.order_blocks()),
            ([1, 2, 3, 4, 5].as_slice(), vec![1, 2, 7, 6])
        );
        // 5 comes back to Am; 6 leaves A1in, and takes the place of 4 in A1out (6). So 4 is new: 7 leaves (A1out: 7 6), 4 enters A1in.
        for block in [5, 4] {
            run.access(block);
        }
        assert_eq!(run.order_blocks(), [5, 1, 4, 2]);
        // 6 comes back: 2 leaves, and A1in is 1 long, its share. 7 comes back: the last of Am leaves, 1, and is not remembered: it is new
        // after that, and 5 leaves Am for it.
        for block in [6, 7, 1] {
            run.access(block);
        }
        assert_eq!(run.evicted[5..], [6, 7, 2, 1, 5]);
        assert_eq!(run.order_blocks(), [7, 6, 1, 4]);
    }

    /// The parts of `docs/reference/policies/README.md`: A1in is never without a block, and A1out never without an entry.
    #[test]
    fn parts_of_tiny_caches_are_as_documented() {
        for (capacity, newcomers, out) in [(1, 1, 1), (2, 1, 1), (3, 1, 1), (7, 1, 3), (8, 2, 4), (10, 2, 5)]
        {
            let mut run = trace(TwoQ::new(), capacity, &[]);
            assert_eq!((run.policy.newcomers_capacity, run.policy.out_capacity), (newcomers, out));
            assert!(run.policy.newcomers_capacity <= run.policy.capacity);
            // Twice as many blocks as there are in A1in at most, which come back while they are remembered: they enter Am, beside A1in or in its place.
            (0..=capacity as u64).for_each(|block| run.access(block));
            run.access(0);
            assert_eq!((run.policy.main.len(), run.slots.len()), (1, capacity));
        }
    }

    #[derive(Default)]
    struct Naive {
        newcomers: Vec<u64>,
        main: Vec<u64>,
        out: Vec<u64>,
        capacity: usize,
        came_back: bool,
    }

    impl Model for Naive {
        fn set_capacity(&mut self, capacity: usize) {
            self.capacity = capacity;
        }
        fn admits(&mut self, block: u64, insertion: Insertion, capacity: usize) -> bool {
            self.came_back = insertion == Insertion::Miss && self.out.contains(&block);
            insertion != Insertion::PrewarmTail || self.order().len() < capacity
        }
        fn victim(&mut self, _: Option<Insertion>, _: usize) -> u64 {
            let over = self.newcomers.len() > (self.capacity / 4).max(1) || self.main.is_empty();
            *if over { &self.newcomers } else { &self.main }.last().unwrap()
        }
        fn hit(&mut self, block: u64) {
            if let Some(at) = self.main.iter().position(|kept| *kept == block) {
                self.main.remove(at);
                self.main.insert(0, block);
            }
        }
        fn insert(&mut self, block: u64, insertion: Insertion) {
            self.out.retain(|ghost| *ghost != block);
            match insertion {
                Insertion::PrewarmTail => self.newcomers.push(block),
                Insertion::Miss if !self.came_back => self.newcomers.insert(0, block),
                _ => self.main.insert(0, block),
            }
        }
        fn evict(&mut self, block: u64) {
            if self.newcomers.contains(&block) {
                let most = (self.capacity / 2).max(1) - 1;
                let most = most.max(self.out.len().saturating_sub(2));
                self.out.truncate(most);
                self.out.insert(0, block);
            }
            self.remove(block);
        }
        fn remove(&mut self, block: u64) {
            self.newcomers.retain(|kept| *kept != block);
            self.main.retain(|kept| *kept != block);
        }
        fn order(&self) -> Vec<u64> {
            [self.main.as_slice(), &self.newcomers].concat()
        }
    }

    #[test]
    fn it_agrees_with_three_lists() {
        check_against(TwoQ::new, Naive::default);
    }
}
