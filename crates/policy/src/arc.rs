//! ARC: a list of blocks used once, a list of blocks used again, and two memories that say which of them is too short.
//!
//! Idea: a miss that one of the memories knows would have been a hit if its list had been longer, so the target moves towards it.
//! Source: Megiddo and Modha, "ARC: a self-tuning, low overhead replacement cache", FAST '03, section III and figure 4: T1, T2, B1, B2, p.
//! The step of p is a real number, as figure 4 has it; with the quotient rounded down, as some implementations have it, hit ratios
//! differ by up to 0.2 per cent of accesses, so that one is `arc-integer`.
//! Deviations: who is in B1 or B2 too many is forgotten after the incoming block is placed, not before, with the same result. Warm-up neither
//! moves p nor counts as coming back; at the head it enters T2, at the tail the end of T1.
//! Invariant: |T1| + |B1| <= c and |T1| + |T2| + |B1| + |B2| <= 2c, once two calls per block too many went by after a shrink; 0 <= p <= c.

use crate::ghosts::Ghosts;
use crate::{Incoming, Insertion, Links, List, Policy, Slot};
use forebay_units::BlockIndex;
use std::collections::TryReserveError;
use std::ops::ControlFlow;

/// In T2.
const AGAIN: u8 = 1;
/// The lists of ghosts: who left T1, who left T2.
const B1: usize = 0;
const B2: usize = 1;

/// Adaptive replacement; 8 bytes per slot and 28 per ghost, of which there are as many.
#[derive(Debug)]
pub struct Arc {
    links: Links,
    /// T1: used once lately, most recent first.
    once: List,
    /// T2: used at least twice lately, most recent first.
    again: List,
    ghosts: Ghosts,
    capacity: u32,
    /// p: how long T1 should be.
    target: f64,
    integer: bool,
    /// The memory in which the block that is about to enter was found.
    came_from: Option<usize>,
}

impl Arc {
    /// An empty order of capacity 0, as the paper has it.
    pub fn new() -> Arc {
        Arc {
            links: Links::new(),
            once: List::EMPTY,
            again: List::EMPTY,
            ghosts: Ghosts::new(),
            capacity: 0,
            target: 0.0,
            integer: false,
            came_from: None,
        }
    }

    /// The same with steps of the target rounded down to integers.
    pub fn integer() -> Arc {
        Arc { integer: true, ..Arc::new() }
    }

    /// How long the list of blocks used once should be, in blocks.
    pub fn target_blocks(&self) -> f64 {
        self.target
    }

    fn list(&mut self, slot: Slot) -> (&mut Links, &mut List) {
        let list = if self.links.tag(slot) == AGAIN { &mut self.again } else { &mut self.once };
        (&mut self.links, list)
    }

    /// One step of the target: by the other memory's length in units of this one's, at least 1.
    fn step(&self, other: u32, this: u32) -> f64 {
        let ratio = if self.integer { f64::from(other / this) } else { f64::from(other) / f64::from(this) };
        ratio.max(1.0)
    }

    fn trim(&mut self) {
        self.ghosts.trim(B1, self.capacity.saturating_sub(self.once.len()));
        let others = self.once.len() + self.again.len() + self.ghosts.len(B1);
        self.ghosts.trim(B2, (2 * self.capacity).saturating_sub(others));
    }
}

impl Default for Arc {
    fn default() -> Arc {
        Arc::new()
    }
}

impl Policy for Arc {
    fn name(&self) -> &'static str {
        if self.integer { "arc-integer" } else { "arc" }
    }

    fn reserve(&mut self, slots: u32) -> Result<(), TryReserveError> {
        // One more: the victim is remembered before the incoming block is forgotten as a ghost.
        self.ghosts.reserve(slots + 1)?;
        self.links.reserve(slots)
    }

    fn release(&mut self, slots: u32) {
        self.links.release(slots);
        self.ghosts.release(slots + 1, |_| ());
    }

    fn set_capacity(&mut self, blocks: u32) {
        self.capacity = blocks;
        self.target = self.target.min(f64::from(blocks));
    }

    /// Moves the target if the block is remembered. Refuses only warm-up at the tail of a full order: it would displace its better.
    fn admit(&mut self, incoming: Incoming) -> bool {
        self.came_from = None;
        if incoming.insertion == Insertion::Miss
            && let Some(ghost) = self.ghosts.find(incoming.block)
        {
            let (b1, b2) = (self.ghosts.len(B1), self.ghosts.len(B2));
            let list = self.ghosts.list_of(ghost);
            self.target = if list == B1 {
                (self.target + self.step(b2, b1)).min(f64::from(self.capacity))
            } else {
                (self.target - self.step(b1, b2)).max(0.0)
            };
            self.came_from = Some(list);
        }
        incoming.insertion != Insertion::PrewarmTail || self.once.len() + self.again.len() < self.capacity
    }

    /// The paper's REPLACE. Without an incoming block, as for one that is not remembered.
    fn victim(&mut self, incoming: Option<Incoming>) -> Option<Slot> {
        let once = f64::from(self.once.len());
        let from_b2 = incoming.is_some() && self.came_from == Some(B2);
        let from_once = once > self.target || from_b2 && once == self.target;
        let (t1, t2) = (self.once.back(), self.again.back());
        if from_once { t1.or(t2) } else { t2.or(t1) }
    }

    #[inline]
    fn on_hit(&mut self, slot: Slot, _block: BlockIndex) {
        if self.again.front() == Some(slot) {
            return;
        }
        let (links, list) = self.list(slot);
        links.unlink(list, slot);
        self.links.push_front(&mut self.again, slot);
        self.links.set_tag(slot, AGAIN);
    }

    fn on_insert(&mut self, slot: Slot, incoming: Incoming) {
        if let Some(ghost) = self.ghosts.find(incoming.block) {
            self.ghosts.forget(ghost);
        }
        match incoming.insertion {
            Insertion::Miss if self.came_from.is_none() => self.links.push_front(&mut self.once, slot),
            Insertion::Miss | Insertion::Prewarm => {
                self.links.push_front(&mut self.again, slot);
                self.links.set_tag(slot, AGAIN);
            }
            Insertion::PrewarmTail => self.links.push_back(&mut self.once, slot),
        }
        self.trim();
    }

    fn on_evict(&mut self, slot: Slot, block: BlockIndex) {
        let list = if self.links.tag(slot) == AGAIN { B2 } else { B1 };
        self.on_remove(slot, block);
        self.ghosts.push(list, block);
        // Only after a shrink is anything too much here.
        self.trim();
    }

    fn on_remove(&mut self, slot: Slot, _block: BlockIndex) {
        let (links, list) = self.list(slot);
        links.unlink(list, slot);
    }

    fn on_move(&mut self, from: Slot, to: Slot) {
        let (links, list) = self.list(from);
        links.rename(list, from, to);
    }

    fn anticipate(&self, hits: &[Slot], _others: &[BlockIndex]) {
        self.links.anticipate(hits);
    }

    #[inline]
    fn fetch_victim_ahead(&mut self) -> Option<Slot> {
        self.links.fetch_ahead(&mut self.once)
    }

    /// T2, then T1, each from the most recent on; which of the two gives the next victim changes with every miss.
    fn visit_hottest_first(&self, visit: &mut dyn FnMut(Slot) -> ControlFlow<()>) {
        let _ = self.links.iter(&self.again).chain(self.links.iter(&self.once)).try_for_each(visit);
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
        // Capacity 3. 1 2 3 1: T1 = 3 2, T2 = 1. 4: |T1| = 2 > p = 0, so 2 leaves to B1.
        let mut run = trace(Arc::new(), 3, &[1, 2, 3, 1, 4]);
        assert_eq!((run.evicted.as_slice(), run.order_blocks()), ([2].as_slice(), vec![1, 4, 3]));
        // 2 is in B1: p = 0 + max(0 / 1, 1) = 1. |T1| = 2 > 1: 3 leaves to B1. T2 = 2 1, T1 = 4.
        run.access(2);
        assert_eq!((run.policy.target_blocks(), run.order_blocks()), (1.0, vec![2, 1, 4]));
        // 5: |T1| = 1 is not above p = 1: 1 leaves T2 to B2. T1 = 5 4, B1 = 3.
        run.access(5);
        assert_eq!((run.evicted.as_slice(), run.order_blocks()), ([2, 3, 1].as_slice(), vec![2, 5, 4]));
        // 1 is in B2: p = 1 - max(1 / 1, 1) = 0. |T1| = 2 > 0: 4 leaves; B1 = 4 3.
        run.access(1);
        assert_eq!((run.policy.target_blocks(), run.order_blocks()), (0.0, vec![1, 2, 5]));
        // 6: 5 leaves T1; |T1| + |B1| would be 1 + 3, so 3 is forgotten: it is new afterwards, and 6 leaves for it. B1 = 6 5.
        for block in [6, 3] {
            run.access(block);
        }
        assert_eq!((run.policy.target_blocks(), run.order_blocks()), (0.0, vec![1, 2, 3]));
        assert_eq!(run.evicted, [2, 3, 1, 4, 5, 6]);
    }

    /// T1, T2, B1, B2 as the paper's figure 4 has them, in its order of events.
    struct Naive {
        lists: [Vec<u64>; 4],
        target: f64,
        capacity: usize,
        integer: bool,
        came_from: Option<usize>,
    }

    impl Naive {
        fn trim(&mut self) {
            for list in [2, 2, 3, 3] {
                let [t1, t2, b1, b2] = [0, 1, 2, 3].map(|list| self.lists[list].len());
                let over =
                    if list == 2 { t1 + b1 > self.capacity } else { t1 + t2 + b1 + b2 > 2 * self.capacity };
                if over {
                    self.lists[list].pop();
                }
            }
        }
    }

    impl Model for Naive {
        fn set_capacity(&mut self, capacity: usize) {
            self.capacity = capacity;
            self.target = self.target.min(capacity as f64);
        }
        fn admits(&mut self, block: u64, insertion: Insertion, capacity: usize) -> bool {
            let [b1, b2] = [2, 3].map(|list| self.lists[list].len() as f64);
            let floor = |step: f64| if self.integer { step.floor() } else { step };
            self.came_from = (2..4).find(|list| self.lists[*list].contains(&block));
            if insertion != Insertion::Miss {
                self.came_from = None;
            }
            match self.came_from {
                Some(2) => self.target = (self.target + floor(b2 / b1).max(1.0)).min(capacity as f64),
                Some(3) => self.target = (self.target - floor(b1 / b2).max(1.0)).max(0.0),
                _ => {}
            }
            insertion != Insertion::PrewarmTail || self.lists[0].len() + self.lists[1].len() < capacity
        }
        fn victim(&mut self, insertion: Option<Insertion>, _: usize) -> u64 {
            let once = self.lists[0].len() as f64;
            let b2 = insertion.is_some() && self.came_from == Some(3);
            let first = !self.lists[0].is_empty() && (once > self.target || b2 && once == self.target);
            let first = first || self.lists[1].is_empty();
            *self.lists[usize::from(!first)].last().unwrap()
        }
        fn hit(&mut self, block: u64) {
            self.remove(block);
            self.lists[1].insert(0, block);
        }
        fn insert(&mut self, block: u64, insertion: Insertion) {
            self.lists[2].retain(|ghost| *ghost != block);
            self.lists[3].retain(|ghost| *ghost != block);
            match insertion {
                Insertion::PrewarmTail => self.lists[0].push(block),
                Insertion::Miss if self.came_from.is_none() => self.lists[0].insert(0, block),
                _ => self.lists[1].insert(0, block),
            }
            self.trim();
        }
        fn evict(&mut self, block: u64) {
            let list = usize::from(self.lists[1].contains(&block));
            self.remove(block);
            self.lists[2 + list].insert(0, block);
            self.trim();
        }
        fn remove(&mut self, block: u64) {
            self.lists[0].retain(|kept| *kept != block);
            self.lists[1].retain(|kept| *kept != block);
        }
        fn order(&self) -> Vec<u64> {
            [self.lists[1].as_slice(), &self.lists[0]].concat()
        }
    }

    #[test]
    fn it_agrees_with_four_lists() {
        for integer in [false, true] {
            check_against(
                || Arc { integer, ..Arc::new() },
                || Naive { lists: Default::default(), target: 0.0, capacity: 0, integer, came_from: None },
            );
        }
    }
}
