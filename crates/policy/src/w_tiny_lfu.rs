//! W-TinyLFU: newcomers pass a small window, and enter the main area only if they were used more often than who must leave for them.
//!
//! Idea: frequency decides who stays, counted for all blocks, also those not here, in a sketch that ages; the window lets bursts
//! gather their frequency.
//! Source: Einziger, Friedman and Manes, "TinyLFU: a highly efficient cache admission policy", ACM TOS 13(4), 2017, section 4: an LRU window
//! of 1 per cent, a main area by SLRU with 80 per cent protected.
//! Deviations: no doorkeeper; the window's size does not adapt; ageing is spread over time (see `sketch.rs`). Warm-up at the head enters probation directly, at the
//! tail the end of probation.
//! Invariant: the tag of a slot names its segment; segments are above their shares only after a shrink, until enough calls moved the excess.

use crate::sketch::{Sketch, sketch_hash};
use crate::{Incoming, Insertion, Links, List, Policy, SegmentedVec, Slot};
use forebay_units::BlockIndex;
use std::collections::TryReserveError;
use std::ops::ControlFlow;

const WINDOW: u8 = 0;
const PROBATION: u8 = 1;
const PROTECTED: u8 = 2;

/// W-TinyLFU; 16 bytes per slot and 8 per slot for the sketch.
#[derive(Debug)]
pub struct WTinyLfu {
    links: Links,
    /// The sketch's hash of the block of each slot, for the duel of two residents.
    hashes: SegmentedVec<u64>,
    /// Window, probation, protected: each the most recent in front.
    segments: [List; 3],
    sketch: Sketch,
    capacity: u32,
    window_capacity: u32,
    protected_capacity: u32,
}

impl WTinyLfu {
    /// An empty order of capacity 0.
    pub const fn new() -> WTinyLfu {
        WTinyLfu {
            links: Links::new(),
            hashes: SegmentedVec::new(),
            segments: [List::EMPTY; 3],
            sketch: Sketch::new(),
            capacity: 0,
            window_capacity: 0,
            protected_capacity: 0,
        }
    }

    fn back(&self, segment: u8) -> Option<Slot> {
        self.segments[usize::from(segment)].back()
    }

    fn len(&self, segment: u8) -> u32 {
        self.segments[usize::from(segment)].len()
    }

    fn push(&mut self, slot: Slot, segment: u8) {
        self.links.push_front(&mut self.segments[usize::from(segment)], slot);
        self.links.set_tag(slot, segment);
    }

    fn unlink(&mut self, slot: Slot) -> u8 {
        let segment = self.links.tag(slot);
        self.links.unlink(&mut self.segments[usize::from(segment)], slot);
        segment
    }

    /// Sends the last of `from` to the front of probation while `from` is above `most`; at most two.
    fn overflow(&mut self, from: u8, most: u32) {
        for _ in 0..2 {
            if self.len(from) > most
                && let Some(last) = self.back(from)
            {
                self.unlink(last);
                self.push(last, PROBATION);
            }
        }
    }
}

impl Default for WTinyLfu {
    fn default() -> WTinyLfu {
        WTinyLfu::new()
    }
}

impl Policy for WTinyLfu {
    fn name(&self) -> &'static str {
        "w-tinylfu"
    }

    fn reserve(&mut self, slots: u32) -> Result<(), TryReserveError> {
        self.sketch.reserve(slots)?;
        self.hashes.try_extend_to(slots, 0)?;
        self.links.reserve(slots)
    }

    fn release(&mut self, slots: u32) {
        self.links.release(slots);
        self.hashes.truncate(slots);
        self.sketch.release(slots);
    }

    /// The window has one per cent, rounded, and at least one slot; four fifths of the rest, rounded, are protected.
    fn set_capacity(&mut self, blocks: u32) {
        self.capacity = blocks;
        self.window_capacity = ((f64::from(blocks) * 0.01).round() as u32).max(1);
        let main = blocks.saturating_sub(self.window_capacity);
        self.protected_capacity = (f64::from(main) * 0.8).round() as u32;
    }

    /// Refuses only warm-up at the tail of a full order: it would displace its better.
    fn admit(&mut self, incoming: Incoming) -> bool {
        incoming.insertion != Insertion::PrewarmTail
            || self.len(WINDOW) + self.len(PROBATION) + self.len(PROTECTED) < self.capacity
    }

    /// The duel: whoever of the last of the window, if that is full, and the last of probation was used less; the newcomer on a tie. A winner from the
    /// window goes to probation. When the quota shrinks, both segments of the main area stay as long as the window is above its share.
    fn victim(&mut self, incoming: Option<Incoming>) -> Option<Slot> {
        let main = self.back(PROBATION).or(self.back(PROTECTED));
        let from_window = match incoming.map(|incoming| incoming.insertion) {
            Some(Insertion::Miss) => self.len(WINDOW) >= self.window_capacity,
            Some(Insertion::Prewarm | Insertion::PrewarmTail) | None => {
                self.len(WINDOW) > self.window_capacity
            }
        };
        let candidate = if from_window || main.is_none() { self.back(WINDOW) } else { None };
        let (Some(candidate), Some(resident)) = (candidate, main) else { return candidate.or(main) };
        let uses = |slot: Slot| self.sketch.estimate(*self.hashes.get(slot.0));
        if uses(candidate) > uses(resident) {
            self.unlink(candidate);
            self.push(candidate, PROBATION);
            Some(resident)
        } else {
            Some(candidate)
        }
    }

    fn on_hit(&mut self, slot: Slot, _block: BlockIndex) {
        self.sketch.count(*self.hashes.get(slot.0));
        if self.unlink(slot) == WINDOW {
            self.push(slot, WINDOW);
        } else {
            self.push(slot, PROTECTED);
            self.overflow(PROTECTED, self.protected_capacity);
        }
    }

    fn on_miss(&mut self, block: BlockIndex) {
        self.sketch.count(sketch_hash(block));
    }

    fn on_insert(&mut self, slot: Slot, incoming: Incoming) {
        *self.hashes.get_mut(slot.0) = sketch_hash(incoming.block);
        match incoming.insertion {
            Insertion::Miss => {
                self.push(slot, WINDOW);
                // While there is room, nobody duels.
                self.overflow(WINDOW, self.window_capacity);
            }
            Insertion::Prewarm => self.push(slot, PROBATION),
            Insertion::PrewarmTail => {
                self.links.push_back(&mut self.segments[usize::from(PROBATION)], slot);
                self.links.set_tag(slot, PROBATION);
            }
        }
    }

    fn on_evict(&mut self, slot: Slot, _block: BlockIndex) {
        self.unlink(slot);
    }

    fn on_remove(&mut self, slot: Slot, _block: BlockIndex) {
        self.unlink(slot);
    }

    fn on_move(&mut self, from: Slot, to: Slot) {
        let segment = usize::from(self.links.tag(from));
        self.links.rename(&mut self.segments[segment], from, to);
        *self.hashes.get_mut(to.0) = *self.hashes.get(from.0);
    }

    /// The protected segment, probation, the window, each from the most recent on; duels may decide otherwise.
    fn visit_hottest_first(&self, visit: &mut dyn FnMut(Slot) -> ControlFlow<()>) {
        let segments = [PROTECTED, PROBATION, WINDOW].into_iter();
        let _ = segments
            .flat_map(|segment| self.links.iter(&self.segments[usize::from(segment)]))
            .try_for_each(visit);
    }

    fn footprint_bytes(&self) -> u64 {
        self.links.footprint_bytes() + self.hashes.footprint_bytes() + self.sketch.footprint_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Model, check_against, trace};

    /// A sketch that is there before the first block is, whose first use would else not be counted.
    fn sketch() -> Sketch {
        let mut sketch = Sketch::new();
        sketch.reserve(64).unwrap();
        sketch
    }

    #[test]
    fn a_hand_traced_run() {
        // Capacity 4: window 1, main 3 of which round(2.4) = 2 protected. 1 2 3 4: each newcomer sends the one before to probation (3 2 1), window 4.
        let mut run = trace(WTinyLfu { sketch: sketch(), ..WTinyLfu::new() }, 4, &[1, 2, 3, 4]);
        assert_eq!(run.order_blocks(), [3, 2, 1, 4]);
        // 5: 4 was used once, as 1 was: a tie, the newcomer 4 leaves.
        run.access(5);
        assert_eq!((run.evicted.as_slice(), run.order_blocks()), ([4].as_slice(), vec![3, 2, 1, 5]));
        // 5 again, then 6: 5 was used twice, 1 once: 1 leaves, 5 goes to probation.
        for block in [5, 6] {
            run.access(block);
        }
        assert_eq!((run.evicted.as_slice(), run.order_blocks()), ([4, 1].as_slice(), vec![5, 3, 2, 6]));
        // 2, 3 and 5 are used: two stay protected (5 3), 2 falls back to probation.
        for block in [2, 3, 5] {
            run.access(block);
        }
        assert_eq!(run.order_blocks(), [5, 3, 2, 6]);
        // 4 was used once before it left; with its second use it meets 2, used twice: the tie goes against it once 7 comes. 6 leaves first.
        for block in [4, 7] {
            run.access(block);
        }
        assert_eq!((run.evicted.as_slice(), run.order_blocks()), ([4, 1, 6, 4].as_slice(), vec![5, 3, 2, 7]));
    }

    /// Window, probation, protected, most recent first; uses come from the sketch itself, which has tests of its own.
    struct Naive {
        segments: [Vec<u64>; 3],
        sketch: Sketch,
        capacity: usize,
    }

    impl Naive {
        fn window(&self) -> usize {
            ((self.capacity as f64 * 0.01).round() as usize).max(1)
        }
        fn overflow(&mut self, segment: usize, most: usize) {
            for _ in 0..2 {
                if self.segments[segment].len() > most {
                    let last = self.segments[segment].pop().unwrap();
                    self.segments[1].insert(0, last);
                }
            }
        }
        fn uses(&self, block: u64) -> u64 {
            self.sketch.estimate(sketch_hash(BlockIndex(block)))
        }
    }

    impl Model for Naive {
        fn set_capacity(&mut self, capacity: usize) {
            self.capacity = capacity;
        }
        fn miss(&mut self, block: u64) {
            self.sketch.count(sketch_hash(BlockIndex(block)));
        }
        fn admits(&mut self, _: u64, insertion: Insertion, capacity: usize) -> bool {
            insertion != Insertion::PrewarmTail || self.order().len() < capacity
        }
        fn victim(&mut self, insertion: Option<Insertion>, _: usize) -> u64 {
            let main = self.segments[1].last().or(self.segments[2].last()).copied();
            let least = if insertion == Some(Insertion::Miss) { self.window() } else { self.window() + 1 };
            let Some(main) = main else { return *self.segments[0].last().unwrap() };
            if self.segments[0].len() < least {
                return main;
            }
            let candidate = *self.segments[0].last().unwrap();
            if self.uses(candidate) <= self.uses(main) {
                return candidate;
            }
            self.segments[0].pop();
            self.segments[1].insert(0, candidate);
            main
        }
        fn hit(&mut self, block: u64) {
            self.sketch.count(sketch_hash(BlockIndex(block)));
            let in_window = self.segments[0].contains(&block);
            self.remove(block);
            let segment = if in_window { 0 } else { 2 };
            self.segments[segment].insert(0, block);
            if !in_window {
                let main = self.capacity.saturating_sub(self.window());
                self.overflow(2, (main as f64 * 0.8).round() as usize);
            }
        }
        fn insert(&mut self, block: u64, insertion: Insertion) {
            match insertion {
                Insertion::Miss => {
                    self.segments[0].insert(0, block);
                    self.overflow(0, self.window());
                }
                Insertion::Prewarm => self.segments[1].insert(0, block),
                Insertion::PrewarmTail => self.segments[1].push(block),
            }
        }
        fn remove(&mut self, block: u64) {
            self.segments.iter_mut().for_each(|segment| segment.retain(|kept| *kept != block));
        }
        fn order(&self) -> Vec<u64> {
            [self.segments[2].as_slice(), &self.segments[1], &self.segments[0]].concat()
        }
    }

    #[test]
    fn it_agrees_with_three_lists() {
        check_against(
            || WTinyLfu { sketch: sketch(), ..WTinyLfu::new() },
            || Naive { segments: Default::default(), sketch: sketch(), capacity: 0 },
        );
    }
}
