//! LFU: the block that was used least often leaves; of several, the one used least recently.
//!
//! Idea: what was used often will be used often. Counts live and die with the block and never age, so what was popular
//! once stays until everything else was as popular: it is here to be compared; W-TinyLFU is frequency with ageing.
//! Source: Shah, Mitra and Matani, "An O(1) algorithm for implementing the LFU cache eviction scheme", 2010: a list of
//! frequencies in ascending order, each with the list of its blocks. Ties by recency are ours.
//! Invariant: the levels are in strictly ascending order of their counts, and none of them is empty.

use crate::{Incoming, Insertion, Links, List, Policy, SegmentedVec, Slot};
use forebay_units::BlockIndex;
use std::collections::TryReserveError;
use std::ops::ControlFlow;

/// All blocks with the same count of uses.
#[derive(Clone, Copy, Debug)]
struct Level {
    uses: u32,
    blocks: List,
}

/// In-cache LFU without ageing; 12 bytes per slot, and 32 per level, of which there are never more than slots.
#[derive(Debug, Default)]
pub struct Lfu {
    /// Links of slots within their levels.
    links: Links,
    level_of: SegmentedVec<u32>,
    /// Levels by number, in use or free.
    levels: SegmentedVec<Level>,
    level_links: Links,
    /// Levels in use, most uses first.
    used: List,
    free: List,
    resident: u32,
    capacity: u32,
}

const FREE: u8 = 1;

impl Lfu {
    /// An empty order of capacity 0.
    pub const fn new() -> Lfu {
        Lfu {
            links: Links::new(),
            level_of: SegmentedVec::new(),
            levels: SegmentedVec::new(),
            level_links: Links::new(),
            used: List::EMPTY,
            free: List::EMPTY,
            resident: 0,
            capacity: 0,
        }
    }

    fn level(&mut self, level: Slot) -> &mut Level {
        self.levels.get_mut(level.0)
    }

    /// Takes a free level for `uses`, without linking it.
    fn take_level(&mut self, uses: u32) -> Slot {
        // Fewer levels are in use than blocks are resident, or the only block of one would have taken it along.
        let level = self.free.front().expect("as many levels as slots");
        self.level_links.unlink(&mut self.free, level);
        *self.level(level) = Level { uses, blocks: List::EMPTY };
        level
    }

    /// A new level right above `below`.
    fn open_level_above(&mut self, uses: u32, below: Slot) -> Slot {
        let level = self.take_level(uses);
        self.level_links.insert_before(&mut self.used, below, level);
        level
    }

    /// A new level below all others.
    fn open_level_last(&mut self, uses: u32) -> Slot {
        let level = self.take_level(uses);
        self.level_links.push_back(&mut self.used, level);
        level
    }

    /// Takes `slot` out of its level, which is closed if it was alone.
    fn remove(&mut self, slot: Slot) {
        let level = Slot(*self.level_of.get(slot.0));
        let blocks = &mut self.levels.get_mut(level.0).blocks;
        self.links.unlink(blocks, slot);
        if blocks.is_empty() {
            self.level_links.unlink(&mut self.used, level);
            self.level_links.push_front(&mut self.free, level);
            self.level_links.set_tag(level, FREE);
        }
        self.resident -= 1;
    }

    fn put(&mut self, slot: Slot, level: Slot) {
        self.links.push_front(&mut self.levels.get_mut(level.0).blocks, slot);
        *self.level_of.get_mut(slot.0) = level.0;
    }
}

impl Policy for Lfu {
    fn name(&self) -> &'static str {
        "lfu"
    }

    fn reserve(&mut self, slots: u32) -> Result<(), TryReserveError> {
        self.links.reserve(slots)?;
        self.level_of.try_extend_to(slots, 0)?;
        self.level_links.reserve(slots.max(self.levels.len()))?;
        while self.levels.len() < slots {
            let level = Slot(self.levels.len());
            self.levels.try_push(Level { uses: 0, blocks: List::EMPTY })?;
            self.level_links.push_back(&mut self.free, level);
            self.level_links.set_tag(level, FREE);
        }
        Ok(())
    }

    /// A level that is in use stays where it is, so up to 32 bytes per slot given back may stay until the level closes.
    fn release(&mut self, slots: u32) {
        self.links.release(slots);
        self.level_of.truncate(slots);
        while self.levels.len() > slots {
            let last = Slot(self.levels.len() - 1);
            if self.level_links.tag(last) != FREE {
                break;
            }
            self.level_links.unlink(&mut self.free, last);
            self.levels.pop();
        }
        self.level_links.release(self.levels.len());
    }

    fn set_capacity(&mut self, blocks: u32) {
        self.capacity = blocks;
    }

    /// Refuses only warm-up at the tail of a full order: it would displace its better.
    fn admit(&mut self, incoming: Incoming) -> bool {
        incoming.insertion != Insertion::PrewarmTail || self.resident < self.capacity
    }

    fn victim(&mut self, _incoming: Option<Incoming>) -> Option<Slot> {
        self.levels.get(self.used.back()?.0).blocks.back()
    }

    fn on_hit(&mut self, slot: Slot, _block: BlockIndex) {
        let level = Slot(*self.level_of.get(slot.0));
        let uses = self.levels.get(level.0).uses.saturating_add(1);
        let above = self.level_links.previous(level);
        let next = above.filter(|above| self.levels.get(above.0).uses == uses);
        let alone = self.levels.get(level.0).blocks.len() == 1;
        match next {
            // Nobody else is concerned: the level goes up with its only block.
            None if alone => self.level(level).uses = uses,
            _ => {
                let next = next.unwrap_or_else(|| self.open_level_above(uses, level));
                self.remove(slot);
                self.resident += 1;
                self.put(slot, next);
            }
        }
    }

    /// Warm-up at the tail has not been used at all: it leaves before whatever was.
    fn on_insert(&mut self, slot: Slot, incoming: Incoming) {
        let uses = u32::from(incoming.insertion != Insertion::PrewarmTail);
        let lowest = self.used.back().map(|level| (level, self.levels.get(level.0).uses));
        let second = lowest.and_then(|(level, _)| self.level_links.previous(level));
        let level = match (lowest, second) {
            (Some((level, found)), _) if found == uses => level,
            // The lowest was never used; the one above may be the one of one use.
            (Some((_, 0)), Some(second)) if self.levels.get(second.0).uses == 1 => second,
            (Some((level, 0)), _) => self.open_level_above(1, level),
            _ => self.open_level_last(uses),
        };
        if incoming.insertion == Insertion::PrewarmTail {
            self.links.push_back(&mut self.levels.get_mut(level.0).blocks, slot);
            *self.level_of.get_mut(slot.0) = level.0;
        } else {
            self.put(slot, level);
        }
        self.resident += 1;
    }

    fn on_evict(&mut self, slot: Slot, _block: BlockIndex) {
        self.remove(slot);
    }

    fn on_remove(&mut self, slot: Slot, _block: BlockIndex) {
        self.remove(slot);
    }

    fn on_move(&mut self, from: Slot, to: Slot) {
        let level = *self.level_of.get(from.0);
        self.links.rename(&mut self.levels.get_mut(level).blocks, from, to);
        *self.level_of.get_mut(to.0) = level;
    }

    /// Most uses first; of the same, the most recent first.
    fn visit_hottest_first(&self, visit: &mut dyn FnMut(Slot) -> ControlFlow<()>) {
        let levels = self.level_links.iter(&self.used);
        let _ =
            levels.flat_map(|level| self.links.iter(&self.levels.get(level.0).blocks)).try_for_each(visit);
    }

    fn footprint_bytes(&self) -> u64 {
        self.links.footprint_bytes()
            + self.level_of.footprint_bytes()
            + self.levels.footprint_bytes()
            + self.level_links.footprint_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Model, check_against, trace};

    #[test]
    fn a_hand_traced_run() {
        // Capacity 3. 1 2 3 1 1 2: uses 1:3, 2:2, 3:1. 4: 3 leaves. 4 is used once, so 5 replaces it; 5 5: 5 has 3, as many as 1 but later.
        let mut run = trace(Lfu::new(), 3, &[1, 2, 3, 1, 1, 2, 4, 5]);
        assert_eq!((run.evicted.as_slice(), run.order_blocks()), ([3, 4].as_slice(), vec![1, 2, 5]));
        for block in [5, 5] {
            run.access(block);
        }
        assert_eq!(run.order_blocks(), [5, 1, 2]);
        // 6: 2 leaves, though it was used twice; 6 was used once.
        run.access(6);
        assert_eq!((run.evicted.as_slice(), run.order_blocks()), ([3, 4, 2].as_slice(), vec![5, 1, 6]));
    }

    /// Blocks with their uses, most uses first, of the same the most recent first.
    #[derive(Default)]
    struct Naive(Vec<(u64, u32)>);

    impl Naive {
        fn put(&mut self, block: u64, uses: u32) {
            let at = self.0.iter().position(|(_, other)| *other <= uses).unwrap_or(self.0.len());
            self.0.insert(at, (block, uses));
        }
    }

    impl Model for Naive {
        fn admits(&mut self, _: u64, insertion: Insertion, capacity: usize) -> bool {
            insertion != Insertion::PrewarmTail || self.0.len() < capacity
        }
        fn victim(&mut self, _: Option<Insertion>, _: usize) -> u64 {
            self.0.last().unwrap().0
        }
        fn hit(&mut self, block: u64) {
            let at = self.0.iter().position(|(kept, _)| *kept == block).unwrap();
            let (_, uses) = self.0.remove(at);
            self.put(block, uses + 1);
        }
        fn insert(&mut self, block: u64, insertion: Insertion) {
            match insertion {
                Insertion::PrewarmTail => self.0.push((block, 0)),
                _ => self.put(block, 1),
            }
        }
        fn remove(&mut self, block: u64) {
            self.0.retain(|(kept, _)| *kept != block);
        }
        fn order(&self) -> Vec<u64> {
            self.0.iter().map(|(block, _)| *block).collect()
        }
    }

    #[test]
    fn it_agrees_with_a_sorted_list() {
        check_against(Lfu::new, Naive::default);
    }
}
