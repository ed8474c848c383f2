//! LIRS: keeps the blocks whose last two uses were close together, however long ago the last one was.
//!
//! Idea: the distance between the last two uses of a block, its inter-reference recency (IRR), says more than the time since the last.
//! Blocks of low IRR (LIR) hold all but a few slots; the others (HIR) pass through a short queue and must show a low
//! IRR to become LIR, also after they left.
//! Source: Jiang and Zhang, "LIRS: an efficient low inter-reference recency set replacement policy", SIGMETRICS '02, section 3: stack S,
//! list Q, pruning; Q has 1 per cent of the slots.
//! Deviations: S remembers at most as many blocks that left as there are slots, and forgets whoever left first (the paper does not bound S);
//! a HIR block that is used while LIR blocks are missing becomes one; warm-up enters as LIR as long as these are missing.
//! Invariant: the bottom of S is LIR, or S is empty; every LIR block is in S; resident HIR blocks are exactly those in Q.

use crate::ghosts::Ghosts;
use crate::{Incoming, Insertion, Links, List, Policy, Slot};
use forebay_units::BlockIndex;
use std::collections::TryReserveError;
use std::ops::ControlFlow;

/// Tags of entries of S; residents outside of S have tag 0.
const HIR_IN_STACK: u8 = 1;
const LIR: u8 = 2;

/// LIRS; 24 bytes per slot and 28 per ghost, of which there are as many.
///
/// Pruning is `O(1)` amortised: what it removes was pushed once. A single call may prune all of S.
#[derive(Debug)]
pub struct Lirs {
    /// Links of S. The resident in slot `s` has the id `2 s`, the ghost in place `g` the id `2 g + 1`.
    stack_links: Links,
    /// S, the most recent in front.
    stack: List,
    /// Links of Q, by slot.
    queue_links: Links,
    /// Q, the latest in front; the next victim is at the back.
    queue: List,
    /// Who left and is still in S, as list 0.
    ghosts: Ghosts,
    lir: u32,
    lir_capacity: u32,
    capacity: u32,
}

fn resident(slot: Slot) -> Slot {
    Slot(2 * slot.0)
}

fn ghost(place: Slot) -> Slot {
    Slot(2 * place.0 + 1)
}

impl Lirs {
    /// An empty order of capacity 0.
    pub fn new() -> Lirs {
        Lirs {
            stack_links: Links::new(),
            stack: List::EMPTY,
            queue_links: Links::new(),
            queue: List::EMPTY,
            ghosts: Ghosts::new(),
            lir: 0,
            lir_capacity: 0,
            capacity: 0,
        }
    }

    fn push_on_stack(&mut self, slot: Slot, tag: u8) {
        self.stack_links.push_front(&mut self.stack, resident(slot));
        self.stack_links.set_tag(resident(slot), tag);
        self.lir += u32::from(tag == LIR);
    }

    fn unlink_from_stack(&mut self, slot: Slot) {
        self.lir -= u32::from(self.stack_links.tag(resident(slot)) == LIR);
        self.stack_links.unlink(&mut self.stack, resident(slot));
        self.stack_links.set_tag(resident(slot), 0);
    }

    /// Removes what is below the last LIR block: its IRR could not be low any more.
    fn prune(&mut self) {
        while let Some(bottom) = self.stack.back()
            && self.stack_links.tag(bottom) != LIR
        {
            if bottom.0 % 2 == 0 {
                self.unlink_from_stack(Slot(bottom.0 / 2));
            } else {
                self.forget(Slot(bottom.0 / 2));
            }
        }
    }

    fn forget(&mut self, place: Slot) {
        self.stack_links.unlink(&mut self.stack, ghost(place));
        self.ghosts.forget(place);
    }

    /// Makes HIR blocks of the last LIR blocks if there are too many; at most two, so that a shrink makes no call long.
    fn balance(&mut self) {
        for _ in 0..2 {
            if self.lir > self.lir_capacity
                && let Some(bottom) = self.stack.back()
            {
                // The bottom is LIR, and so resident.
                let slot = Slot(bottom.0 / 2);
                self.unlink_from_stack(slot);
                self.queue_links.push_front(&mut self.queue, slot);
                self.prune();
            }
        }
        self.prune();
    }

    fn take_out(&mut self, slot: Slot) {
        let tag = self.stack_links.tag(resident(slot));
        if tag != LIR {
            self.queue_links.unlink(&mut self.queue, slot);
        }
        if tag != 0 {
            self.unlink_from_stack(slot);
            self.prune();
        }
    }
}

impl Default for Lirs {
    fn default() -> Lirs {
        Lirs::new()
    }
}

impl Policy for Lirs {
    fn name(&self) -> &'static str {
        "lirs"
    }

    fn reserve(&mut self, slots: u32) -> Result<(), TryReserveError> {
        self.stack_links.reserve(2 * slots)?;
        self.queue_links.reserve(slots)?;
        self.ghosts.reserve(slots)
    }

    fn release(&mut self, slots: u32) {
        let (links, stack) = (&mut self.stack_links, &mut self.stack);
        self.ghosts.release(slots, |place| links.unlink(stack, ghost(place)));
        // A ghost is never the bottom of S while the bottom is LIR.
        self.stack_links.release(2 * slots);
        self.queue_links.release(slots);
    }

    /// One per cent of the slots, rounded, and at least one is for HIR blocks; with a single slot it is LIR.
    fn set_capacity(&mut self, blocks: u32) {
        self.capacity = blocks;
        let hir = (f64::from(blocks) * 0.01).round().max(1.0) as u32;
        self.lir_capacity = blocks.saturating_sub(hir).max(1);
    }

    /// Refuses only warm-up at the tail of a full order: it would displace its better.
    fn admit(&mut self, incoming: Incoming) -> bool {
        incoming.insertion != Insertion::PrewarmTail || self.lir + self.queue.len() < self.capacity
    }

    /// The resident HIR block that was used or became HIR first; only without any the LIR block of the largest recency.
    fn victim(&mut self, _incoming: Option<Incoming>) -> Option<Slot> {
        self.queue.back().or_else(|| self.stack.back().map(|bottom| Slot(bottom.0 / 2)))
    }

    fn on_hit(&mut self, slot: Slot, _block: BlockIndex) {
        match self.stack_links.tag(resident(slot)) {
            LIR if self.stack.front() == Some(resident(slot)) => {}
            LIR => {
                self.unlink_from_stack(slot);
                self.push_on_stack(slot, LIR);
                self.prune();
            }
            tag => {
                if tag == HIR_IN_STACK {
                    self.unlink_from_stack(slot);
                }
                self.queue_links.unlink(&mut self.queue, slot);
                if tag == HIR_IN_STACK || self.lir < self.lir_capacity {
                    self.push_on_stack(slot, LIR);
                    self.balance();
                } else {
                    self.push_on_stack(slot, HIR_IN_STACK);
                    self.queue_links.push_front(&mut self.queue, slot);
                }
            }
        }
    }

    fn on_insert(&mut self, slot: Slot, incoming: Incoming) {
        let found = self.ghosts.find(incoming.block);
        if let Some(place) = found {
            self.forget(place);
        }
        let came_back = found.is_some() && incoming.insertion == Insertion::Miss;
        let missing = self.lir < self.lir_capacity;
        match incoming.insertion {
            Insertion::PrewarmTail if missing => {
                self.stack_links.push_back(&mut self.stack, resident(slot));
                self.stack_links.set_tag(resident(slot), LIR);
                self.lir += 1;
            }
            Insertion::PrewarmTail => self.queue_links.push_back(&mut self.queue, slot),
            _ if missing || came_back => {
                self.push_on_stack(slot, LIR);
                self.balance();
            }
            Insertion::Miss | Insertion::Prewarm => {
                self.push_on_stack(slot, HIR_IN_STACK);
                self.queue_links.push_front(&mut self.queue, slot);
                self.balance();
            }
        }
    }

    /// A HIR block that is in S stays there as a ghost.
    fn on_evict(&mut self, slot: Slot, block: BlockIndex) {
        if self.stack_links.tag(resident(slot)) != HIR_IN_STACK {
            self.take_out(slot);
            return;
        }
        self.queue_links.unlink(&mut self.queue, slot);
        for _ in 0..2 {
            if self.ghosts.len(0) >= self.capacity
                && let Some(oldest) = self.ghosts.oldest(0)
            {
                self.forget(oldest);
            }
        }
        match self.ghosts.push(0, block) {
            Some(place) => self.stack_links.rename(&mut self.stack, resident(slot), ghost(place)),
            None => self.stack_links.unlink(&mut self.stack, resident(slot)),
        }
        self.stack_links.set_tag(resident(slot), 0);
        self.prune();
    }

    fn on_remove(&mut self, slot: Slot, _block: BlockIndex) {
        self.take_out(slot);
    }

    fn on_move(&mut self, from: Slot, to: Slot) {
        let tag = self.stack_links.tag(resident(from));
        if tag != 0 {
            self.stack_links.rename(&mut self.stack, resident(from), resident(to));
        }
        if tag != LIR {
            self.queue_links.rename(&mut self.queue, from, to);
        }
        self.stack_links.set_tag(resident(from), 0);
        self.stack_links.set_tag(resident(to), tag);
    }

    /// The LIR blocks from the most recent on, then the HIR blocks from the latest on. Ghosts between them are passed over.
    fn visit_hottest_first(&self, visit: &mut dyn FnMut(Slot) -> ControlFlow<()>) {
        let lir = self.stack_links.iter(&self.stack).filter(|id| self.stack_links.tag(*id) == LIR);
        let lir = lir.map(|id| Slot(id.0 / 2));
        let _ = lir.chain(self.queue_links.iter(&self.queue)).try_for_each(visit);
    }

    fn footprint_bytes(&self) -> u64 {
        self.stack_links.footprint_bytes()
            + self.queue_links.footprint_bytes()
            + self.ghosts.footprint_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Model, check_against, trace};

    #[test]
    fn a_hand_traced_run() {
        // Capacity 3: two LIR, one HIR. 1 and 2 become LIR, 3 is HIR: S = 3 2 1, Q = 3.
        // 4: 3 leaves, stays in S. S = 4 (3) 2 1, Q = 4.
        let mut run = trace(Lirs::new(), 3, &[1, 2, 3, 4]);
        assert_eq!((run.evicted.as_slice(), run.order_blocks()), ([3].as_slice(), vec![2, 1, 4]));
        // 1: LIR, to the top; 2 is the bottom, nothing to prune. S = 1 4 (3) 2.
        run.access(1);
        assert_eq!(run.order_blocks(), [1, 2, 4]);
        // 3: 4 leaves (stays in S); 3 was in S: it becomes LIR, and 2, the bottom, HIR. S = 3 1 after pruning 4, Q = 2.
        run.access(3);
        assert_eq!((run.evicted.as_slice(), run.order_blocks()), ([3, 4].as_slice(), vec![3, 1, 2]));
        // 4 is new, since it was pruned: 2 leaves for it and is not in S. S = 4 3 1, Q = 4. 4 again: it becomes LIR, 1 HIR.
        for block in [4, 4] {
            run.access(block);
        }
        assert_eq!((run.evicted.as_slice(), run.order_blocks()), ([3, 4, 2].as_slice(), vec![4, 3, 1]));
        // 1 is HIR and not in S: it enters S as HIR. A scan over 5 6 7 takes only the one slot of Q.
        for block in [1, 5, 6, 7] {
            run.access(block);
        }
        assert_eq!((run.evicted[3..].to_vec(), run.order_blocks()), (vec![1, 5, 6], vec![4, 3, 7]));
    }

    /// S with all its entries and Q, most recent first.
    #[derive(Default)]
    struct Naive {
        stack: Vec<u64>,
        queue: Vec<u64>,
        lir: Vec<u64>,
        /// Latest first.
        ghosts: Vec<u64>,
        capacity: usize,
    }

    impl Naive {
        fn lir_capacity(&self) -> usize {
            // Capacities in the test are far below 150, so the HIR blocks have one slot.
            self.capacity.saturating_sub(1).max(1)
        }
        fn prune(&mut self) {
            while self.stack.last().is_some_and(|bottom| !self.lir.contains(bottom)) {
                let bottom = self.stack.pop().unwrap();
                self.ghosts.retain(|ghost| *ghost != bottom);
            }
        }
        fn push(&mut self, block: u64, lir: bool) {
            self.stack.retain(|kept| *kept != block);
            self.queue.retain(|kept| *kept != block);
            self.lir.retain(|kept| *kept != block);
            self.stack.insert(0, block);
            if lir {
                self.lir.push(block);
            } else {
                self.queue.insert(0, block);
            }
            for _ in 0..2 {
                self.prune();
                if self.lir.len() > self.lir_capacity() {
                    let bottom = self.stack.pop().unwrap();
                    self.lir.retain(|kept| *kept != bottom);
                    self.queue.insert(0, bottom);
                }
            }
            self.prune();
        }
        fn forget(&mut self, block: u64) -> bool {
            let found = self.ghosts.contains(&block);
            self.ghosts.retain(|ghost| *ghost != block);
            if found {
                self.stack.retain(|kept| *kept != block);
            }
            found
        }
    }

    impl Model for Naive {
        fn set_capacity(&mut self, capacity: usize) {
            self.capacity = capacity;
        }
        fn admits(&mut self, _: u64, insertion: Insertion, capacity: usize) -> bool {
            insertion != Insertion::PrewarmTail || self.lir.len() + self.queue.len() < capacity
        }
        fn victim(&mut self, _: Option<Insertion>, _: usize) -> u64 {
            *self.queue.last().or(self.stack.last()).unwrap()
        }
        fn hit(&mut self, block: u64) {
            let lir = self.lir.contains(&block);
            // Only a use that makes a block LIR or raises a LIR block may demote another one.
            let becomes = lir || self.stack.contains(&block) || self.lir.len() < self.lir_capacity();
            if lir {
                self.stack.retain(|kept| *kept != block);
                self.stack.insert(0, block);
                self.prune();
            } else if becomes {
                self.push(block, true);
            } else {
                self.stack.insert(0, block);
                self.queue.retain(|kept| *kept != block);
                self.queue.insert(0, block);
            }
        }
        fn insert(&mut self, block: u64, insertion: Insertion) {
            let came_back = self.forget(block) && insertion == Insertion::Miss;
            let missing = self.lir.len() < self.lir_capacity();
            match insertion {
                Insertion::PrewarmTail if missing => {
                    self.stack.push(block);
                    self.lir.push(block);
                }
                Insertion::PrewarmTail => self.queue.push(block),
                _ => self.push(block, missing || came_back),
            }
        }
        fn evict(&mut self, block: u64) {
            if self.lir.contains(&block) || !self.stack.contains(&block) {
                return self.remove(block);
            }
            self.queue.retain(|kept| *kept != block);
            for _ in 0..2 {
                if self.ghosts.len() >= self.capacity {
                    let oldest = *self.ghosts.last().unwrap();
                    self.forget(oldest);
                }
            }
            self.ghosts.insert(0, block);
            self.prune();
        }
        fn remove(&mut self, block: u64) {
            self.stack.retain(|kept| *kept != block);
            self.queue.retain(|kept| *kept != block);
            self.lir.retain(|kept| *kept != block);
            self.prune();
        }
        fn order(&self) -> Vec<u64> {
            let lir = self.stack.iter().filter(|block| self.lir.contains(block));
            lir.chain(&self.queue).copied().collect()
        }
    }

    #[test]
    fn it_agrees_with_a_stack_and_a_queue() {
        check_against(Lirs::new, Naive::default);
    }
}
