//! S3-FIFO: a small FIFO that drops what is used once, a main FIFO that spares what is used, and a memory of the dropped.
//!
//! Idea: most blocks are used once in the time a cache has for them, so a tenth of the slots is enough to find out. A hit writes two
//! bits and moves nothing.
//! Source: Yang et al., "FIFO queues are all you need for cache eviction", SOSP '23, section 4.1 and algorithm 1; the small queue has a
//! tenth, the memory as many entries as the main queue has slots.
//! Deviations: promoting a block from the small queue makes the main queue overhang instead of evicting from it at once: one insertion has one victim, as
//! everywhere here. Warm-up at the head enters the main queue, warm-up at the tail the end of the small queue. The memory is [`Recent`].
//! Invariant: the state of a slot is its uses since it was last spared, up to 3, and its queue.

use crate::recent::Recent;
use crate::{Incoming, Insertion, Links, List, Policy, SegmentedVec, Slot};
use forebay_units::BlockIndex;
use std::collections::TryReserveError;
use std::ops::ControlFlow;

const USES: u8 = 3;
const MAIN: u8 = 4;

/// S3-FIFO; 9 bytes per slot and 16 per slot for the memory.
#[derive(Debug)]
pub struct S3Fifo {
    links: Links,
    /// By slot. Apart from the links, so that all of what hits write stays in the processor's cache.
    states: SegmentedVec<u8>,
    small: List,
    main: List,
    recent: Recent,
    capacity: u32,
    small_capacity: u32,
}

impl S3Fifo {
    /// An empty order of capacity 0.
    pub const fn new() -> S3Fifo {
        S3Fifo {
            links: Links::new(),
            states: SegmentedVec::new(),
            small: List::EMPTY,
            main: List::EMPTY,
            recent: Recent::new(),
            capacity: 0,
            small_capacity: 0,
        }
    }

    fn queue(&mut self, slot: Slot) -> (&mut Links, &mut List) {
        let in_main = self.states.get(slot.0) & MAIN != 0;
        (&mut self.links, if in_main { &mut self.main } else { &mut self.small })
    }

    fn push_main(&mut self, slot: Slot, uses: u8) {
        self.links.push_front(&mut self.main, slot);
        *self.states.get_mut(slot.0) = MAIN | uses;
    }

    /// How many blocks that left are remembered.
    fn remembered(&self) -> u32 {
        self.capacity - self.small_capacity.min(self.capacity)
    }
}

impl Default for S3Fifo {
    fn default() -> S3Fifo {
        S3Fifo::new()
    }
}

impl Policy for S3Fifo {
    fn name(&self) -> &'static str {
        "s3-fifo"
    }

    fn reserve(&mut self, slots: u32) -> Result<(), TryReserveError> {
        self.recent.reserve(slots)?;
        self.states.try_extend_to(slots, 0)?;
        self.links.reserve(slots)
    }

    fn release(&mut self, slots: u32) {
        self.links.release(slots);
        self.states.truncate(slots);
        self.recent.release(slots);
    }

    /// The small queue has a tenth, rounded down, and at least one slot.
    fn set_capacity(&mut self, blocks: u32) {
        self.capacity = blocks;
        self.small_capacity = (blocks / 10).max(1);
    }

    /// Refuses only warm-up at the tail of a full order: it would displace its better.
    fn admit(&mut self, incoming: Incoming) -> bool {
        incoming.insertion != Insertion::PrewarmTail || self.small.len() + self.main.len() < self.capacity
    }

    /// The first of the small queue that was used at most once, or of the main queue that was not used. `O(1)` amortised: who is passed over
    /// was hit since; a single call may go round the main queue three times.
    fn victim(&mut self, _incoming: Option<Incoming>) -> Option<Slot> {
        loop {
            if self.small.len() >= self.small_capacity || self.main.is_empty() {
                let oldest = self.small.back()?;
                if self.states.get(oldest.0) & USES <= 1 {
                    return Some(oldest);
                }
                self.links.unlink(&mut self.small, oldest);
                self.push_main(oldest, 0);
            } else {
                let oldest = self.main.back()?;
                let uses = self.states.get(oldest.0) & USES;
                if uses == 0 {
                    return Some(oldest);
                }
                self.links.unlink(&mut self.main, oldest);
                self.push_main(oldest, uses - 1);
            }
        }
    }

    #[inline]
    fn on_hit(&mut self, slot: Slot, _block: BlockIndex) {
        let state = self.states.get_mut(slot.0);
        *state += u8::from(*state & USES < USES);
    }

    fn on_insert(&mut self, slot: Slot, incoming: Incoming) {
        let came_back = self.recent.take(incoming.block, self.remembered());
        match incoming.insertion {
            Insertion::Miss if !came_back => {
                self.links.push_front(&mut self.small, slot);
                *self.states.get_mut(slot.0) = 0;
            }
            Insertion::Miss | Insertion::Prewarm => self.push_main(slot, 0),
            Insertion::PrewarmTail => {
                self.links.push_back(&mut self.small, slot);
                *self.states.get_mut(slot.0) = 0;
            }
        }
    }

    /// Who leaves the small queue is remembered.
    fn on_evict(&mut self, slot: Slot, block: BlockIndex) {
        if self.states.get(slot.0) & MAIN == 0 {
            self.recent.remember(block);
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
        *self.states.get_mut(to.0) = *self.states.get(from.0);
    }

    fn anticipate(&self, _hits: &[Slot], others: &[BlockIndex]) {
        self.recent.anticipate(others);
    }

    #[inline]
    fn fetch_victim_ahead(&mut self) -> Option<Slot> {
        if let Some(slot) = self.links.fetch_ahead(&mut self.small) {
            return Some(slot);
        }
        // Who has been used is spared, and passed over.
        self.links.fetch_ahead(&mut self.main).filter(|slot| self.states.get(slot.0) & USES == 0)
    }

    /// The main queue, then the small one, each latest first; whom the victim's search will spare is not known in advance.
    fn visit_hottest_first(&self, visit: &mut dyn FnMut(Slot) -> ControlFlow<()>) {
        let _ = self.links.iter(&self.main).chain(self.links.iter(&self.small)).try_for_each(visit);
    }

    fn footprint_bytes(&self) -> u64 {
        self.links.footprint_bytes() + self.states.footprint_bytes() + self.recent.footprint_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Model, check_against, trace};

    #[test]
    fn a_hand_traced_run() {
        // Capacity 4: small 1, memory 3. 1 2 3 4 are small (4 3 2 1); 1 is used twice more, 2 once.
        // 5: 1 was used twice: to main. 2 was used once only: it leaves and is remembered.
        let mut run = trace(S3Fifo::new(), 4, &[1, 2, 3, 4, 1, 1, 2, 5]);
        assert_eq!((run.evicted.as_slice(), run.order_blocks()), ([2].as_slice(), vec![1, 5, 4, 3]));
        // 2 comes back: 3 leaves the small queue; 2 enters main.
        run.access(2);
        assert_eq!((run.evicted.as_slice(), run.order_blocks()), ([2, 3].as_slice(), vec![2, 1, 5, 4]));
        // 3 and 4 come back: 4 and 5 leave the small queue, which is then empty. 1 is used.
        for block in [3, 4, 1] {
            run.access(block);
        }
        assert_eq!((run.evicted.as_slice(), run.order_blocks()), ([2, 3, 4, 5].as_slice(), vec![4, 3, 2, 1]));
        // 6: the small queue is below its share; 1 was used and is spared, 2 leaves main and is not remembered: it is small when it comes back.
        for block in [6, 2] {
            run.access(block);
        }
        assert_eq!((run.evicted[4..].to_vec(), run.order_blocks()), (vec![2, 6], vec![1, 4, 3, 2]));
    }

    /// Blocks and their uses, latest first; ghosts with the time they left.
    #[derive(Default)]
    struct Naive {
        small: Vec<(u64, u8)>,
        main: Vec<(u64, u8)>,
        ghosts: Vec<(u64, usize)>,
        left: usize,
        capacity: usize,
    }

    impl Model for Naive {
        fn set_capacity(&mut self, capacity: usize) {
            self.capacity = capacity;
        }
        fn admits(&mut self, _: u64, insertion: Insertion, capacity: usize) -> bool {
            insertion != Insertion::PrewarmTail || self.small.len() + self.main.len() < capacity
        }
        fn victim(&mut self, _: Option<Insertion>, _: usize) -> u64 {
            loop {
                if self.small.len() >= (self.capacity / 10).max(1) || self.main.is_empty() {
                    let (block, uses) = *self.small.last().unwrap();
                    if uses <= 1 {
                        return block;
                    }
                    self.small.pop();
                    self.main.insert(0, (block, 0));
                } else {
                    let (block, uses) = *self.main.last().unwrap();
                    if uses == 0 {
                        return block;
                    }
                    self.main.pop();
                    self.main.insert(0, (block, uses - 1));
                }
            }
        }
        fn hit(&mut self, block: u64) {
            let entries = self.small.iter_mut().chain(&mut self.main);
            entries.filter(|(kept, _)| *kept == block).for_each(|entry| entry.1 = (entry.1 + 1).min(3));
        }
        fn insert(&mut self, block: u64, insertion: Insertion) {
            let window = self.capacity - (self.capacity / 10).max(1);
            let came_back = self.ghosts.iter().any(|(ghost, at)| *ghost == block && self.left - at <= window);
            self.ghosts.retain(|(ghost, at)| *ghost != block || self.left - at > window);
            match insertion {
                Insertion::PrewarmTail => self.small.push((block, 0)),
                Insertion::Miss if !came_back => self.small.insert(0, (block, 0)),
                _ => self.main.insert(0, (block, 0)),
            }
        }
        fn evict(&mut self, block: u64) {
            if self.small.iter().any(|(kept, _)| *kept == block) {
                self.ghosts.push((block, self.left));
                self.left += 1;
            }
            self.remove(block);
        }
        fn remove(&mut self, block: u64) {
            self.small.retain(|(kept, _)| *kept != block);
            self.main.retain(|(kept, _)| *kept != block);
        }
        fn order(&self) -> Vec<u64> {
            self.main.iter().chain(&self.small).map(|(block, _)| *block).collect()
        }
    }

    /// The memory forgets when more than eight fall into a line, so here it is larger than 24 blocks need.
    #[test]
    fn it_agrees_with_two_queues_and_a_memory() {
        check_against(
            || {
                let mut policy = S3Fifo::new();
                policy.recent.reserve(400).unwrap();
                policy
            },
            Naive::default,
        );
    }
}
