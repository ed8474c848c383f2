//! Belady's MIN: the block whose next use is farthest away leaves. It needs the future, so it is a bound and not a choice.
//!
//! Idea: no policy that takes in every block that misses has fewer misses. (One that may refuse blocks can have fewer.)
//! Source: Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966; optimality: Mattson et
//! al., IBM Systems Journal 9(2), 1970.
//! Not for a daemon: a use costs `O(log n)`, and the future must be known.
//! Invariant: `place[heap[i]] = i` for every resident slot; no slot is used later than its parent in the heap.

use crate::{Incoming, Insertion, Policy, Slot};
use forebay_units::BlockIndex;
use std::collections::TryReserveError;
use std::ops::ControlFlow;
use std::sync::Arc;

/// The next use of a block that is not used again.
const NEVER: u32 = u32::MAX;

/// For each look-up of a trace, which look-up is the next one of the same block that counts, unless another one that does not count comes before: that fills the cache for nothing.
#[derive(Clone, Debug)]
pub struct Future(Arc<[u32]>);

impl Future {
    /// The future of a trace whose blocks are numbered densely from 0. `O(n)`, 4 bytes per look-up and distinct block.
    ///
    /// # Panics
    /// If there are 2^32 - 1 look-ups or more.
    pub fn of(blocks: impl DoubleEndedIterator<Item = u32> + ExactSizeIterator) -> Future {
        Future::of_counted(blocks.map(|block| (block, true)))
    }

    /// The same where some look-ups do not count, whether they miss or not. (To have a block at such a one is worth nothing, as though it were another block from there on; so MIN is the bound here, too.)
    ///
    /// # Panics
    /// As [`Future::of`].
    pub fn of_counted(lookups: impl DoubleEndedIterator<Item = (u32, bool)> + ExactSizeIterator) -> Future {
        let count = lookups.len();
        assert!(count < NEVER as usize, "{count} look-ups are more than {}", NEVER - 1);
        let mut next = vec![NEVER; count];
        let mut last: Vec<u32> = Vec::new();
        for (at, (block, counts)) in lookups.enumerate().rev() {
            let block = block as usize;
            if block >= last.len() {
                last.resize(block + 1, NEVER);
            }
            next[at] = std::mem::replace(&mut last[block], if counts { at as u32 } else { NEVER });
        }
        Future(next.into())
    }
}

/// MIN over a known future; 12 bytes per slot, besides the future.
///
/// Look-ups must come exactly in the order of the trace; those beyond it are of blocks that are never used again.
#[derive(Debug)]
pub struct Belady {
    future: Future,
    /// Look-ups seen so far.
    now: usize,
    /// The next use of the block that was looked up last.
    next: u32,
    /// Slots as a binary heap, farthest next use at the root.
    heap: Vec<u32>,
    /// By slot: the next use, and the place in the heap.
    uses: Vec<u32>,
    place: Vec<u32>,
    capacity: u32,
}

impl Belady {
    /// An empty order of capacity 0 that knows `future`.
    pub fn new(future: Future) -> Belady {
        Belady {
            future,
            now: 0,
            next: NEVER,
            heap: Vec::new(),
            uses: Vec::new(),
            place: Vec::new(),
            capacity: 0,
        }
    }

    fn look_up(&mut self) {
        self.next = self.future.0.get(self.now).copied().unwrap_or(NEVER);
        self.now += 1;
    }

    fn use_at(&self, place: usize) -> u32 {
        self.uses[self.heap[place] as usize]
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.place[self.heap[a] as usize] = a as u32;
        self.place[self.heap[b] as usize] = b as u32;
    }

    fn sift_up(&mut self, mut at: usize) {
        while at > 0 && self.use_at(at) > self.use_at((at - 1) / 2) {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let children = 2 * at + 1..(2 * at + 3).min(self.heap.len());
            match children.max_by_key(|child| self.use_at(*child)) {
                Some(child) if self.use_at(child) > self.use_at(at) => {
                    self.swap(at, child);
                    at = child;
                }
                _ => return,
            }
        }
    }

    fn remove(&mut self, slot: Slot) {
        let at = self.place[slot.0 as usize] as usize;
        let last = self.heap.len() - 1;
        self.swap(at, last);
        self.heap.pop();
        if at < last {
            self.sift_up(at);
            self.sift_down(at);
        }
    }
}

impl Policy for Belady {
    fn name(&self) -> &'static str {
        "belady"
    }

    fn reserve(&mut self, slots: u32) -> Result<(), TryReserveError> {
        let slots = slots as usize;
        for vector in [&mut self.uses, &mut self.place] {
            vector.try_reserve(slots.saturating_sub(vector.len()))?;
            vector.resize(slots.max(vector.len()), NEVER);
        }
        self.heap.try_reserve(slots.saturating_sub(self.heap.len()))
    }

    fn release(&mut self, slots: u32) {
        self.uses.truncate(slots as usize);
        self.place.truncate(slots as usize);
    }

    fn set_capacity(&mut self, blocks: u32) {
        self.capacity = blocks;
    }

    /// Refuses only warm-up at the tail of a full order, about whose future nothing is known.
    fn admit(&mut self, incoming: Incoming) -> bool {
        incoming.insertion != Insertion::PrewarmTail || self.heap.len() < self.capacity as usize
    }

    fn victim(&mut self, _incoming: Option<Incoming>) -> Option<Slot> {
        self.heap.first().map(|slot| Slot(*slot))
    }

    fn on_hit(&mut self, slot: Slot, _block: BlockIndex) {
        self.look_up();
        // Later than before, but for what was warmed and taken to be never used.
        self.uses[slot.0 as usize] = self.next;
        self.sift_up(self.place[slot.0 as usize] as usize);
        self.sift_down(self.place[slot.0 as usize] as usize);
    }

    fn on_miss(&mut self, _block: BlockIndex) {
        self.look_up();
    }

    /// Warm-up is taken to be never used: its next use is not known.
    fn on_insert(&mut self, slot: Slot, incoming: Incoming) {
        let next = if incoming.insertion == Insertion::Miss { self.next } else { NEVER };
        let at = self.heap.len();
        self.uses[slot.0 as usize] = next;
        self.place[slot.0 as usize] = at as u32;
        self.heap.push(slot.0);
        self.sift_up(at);
    }

    fn on_evict(&mut self, slot: Slot, _block: BlockIndex) {
        self.remove(slot);
    }

    fn on_remove(&mut self, slot: Slot, _block: BlockIndex) {
        self.remove(slot);
    }

    fn on_move(&mut self, from: Slot, to: Slot) {
        let (from, to) = (from.0 as usize, to.0 as usize);
        self.uses[to] = self.uses[from];
        self.place[to] = self.place[from];
        self.heap[self.place[to] as usize] = to as u32;
    }

    /// The next to be used first. `O(n log n)`.
    fn visit_hottest_first(&self, visit: &mut dyn FnMut(Slot) -> ControlFlow<()>) {
        let mut slots = self.heap.clone();
        slots.sort_by_key(|slot| self.uses[*slot as usize]);
        let _ = slots.into_iter().map(Slot).try_for_each(visit);
    }

    /// With the future, which all that know it share.
    fn footprint_bytes(&self) -> u64 {
        let own = self.heap.capacity() + self.uses.capacity() + self.place.capacity();
        4 * (own + self.future.0.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::trace;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn belady(blocks: &[u64]) -> Belady {
        Belady::new(Future::of(blocks.iter().map(|block| *block as u32)))
    }

    #[test]
    fn a_hand_traced_run() {
        // The classic string with 3 slots: 7 0 1 miss; 2 evicts 7 (used at 17; 0 at 4, 1 at 13); 0 hits; 3 evicts 1; 0 hits; 4 evicts 0
        // (10; 2 at 8, 3 at 9); 2 3 hit; 0 evicts 4; 3 2 hit; 1 evicts 3; 2 0 1 hit; 7 evicts 2; 0 1 hit: 9 misses of 20.
        let blocks = [7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1];
        let run = trace(belady(&blocks), 3, &blocks);
        assert_eq!(run.hits, 11);
        assert_eq!(run.evicted[..4], [7, 1, 0, 4]);
    }

    /// The fewest misses with any choice of victims, by trying them all.
    fn fewest_misses(
        blocks: &[u64],
        resident: Vec<u64>,
        slots: usize,
        known: &mut BTreeMap<(usize, Vec<u64>), u64>,
    ) -> u64 {
        let Some((block, rest)) = blocks.split_first() else { return 0 };
        if resident.contains(block) {
            return fewest_misses(rest, resident, slots, known);
        }
        let key = (blocks.len(), resident);
        if let Some(found) = known.get(&key) {
            return *found;
        }
        let resident = key.1.clone();
        let mut next = |without: Option<usize>| {
            let mut resident = resident.clone();
            if let Some(at) = without {
                resident.remove(at);
            }
            resident.push(*block);
            resident.sort_unstable();
            1 + fewest_misses(rest, resident, slots, known)
        };
        let found = if resident.len() < slots {
            next(None)
        } else {
            (0..slots).map(|at| next(Some(at))).min().unwrap()
        };
        known.insert(key, found);
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]
        #[test]
        fn no_choice_of_victims_is_better(
            slots in 1usize..4,
            blocks in prop::collection::vec(0u64..6, 0..22),
        ) {
            let run = trace(belady(&blocks), slots, &blocks);
            let misses = blocks.len() as u64 - run.hits;
            prop_assert_eq!(misses, fewest_misses(&blocks, Vec::new(), slots, &mut BTreeMap::new()));
        }
    }

    #[test]
    fn what_was_warmed_has_a_next_use_once_it_is_used() {
        // 1 and 2 are warmed. 1 is used, and will be at 3; so 2 leaves for 3, which is used at 2, and 1 stays.
        let mut run = trace(belady(&[1, 3, 3, 1, 4]), 2, &[]);
        run.insert(1, Insertion::Prewarm);
        run.insert(2, Insertion::Prewarm);
        [1, 3, 3, 1].into_iter().for_each(|block| run.access(block));
        assert_eq!((run.evicted.as_slice(), run.hits), ([2].as_slice(), 3));
    }

    #[test]
    fn the_future_of_a_few_look_ups() {
        // 0 1 0 2 1: next uses 2, 4, never, never, never.
        assert_eq!(*Future::of([0, 1, 0, 2, 1].into_iter()).0, [2, 4, NEVER, NEVER, NEVER]);
        assert!(Future::of([].into_iter()).0.is_empty());
        // A look-up that does not count fills for nothing: nobody need keep a block for it.
        let lookups = [(0, true), (1, true), (0, false), (0, true), (1, true)];
        assert_eq!(*Future::of_counted(lookups.into_iter()).0, [NEVER, 4, 3, NEVER, NEVER]);
    }
}
