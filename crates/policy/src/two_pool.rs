//! Two pools: blocks touched once, and blocks touched again.
//!
//! Idea: a scan touches its blocks once. It can empty the small single-touch pool but never the multi-touch pool, which
//! holds what was used twice.
//! Source: the cache that PRESTO warms (two LRU pools, single-touch 20 % and multi-touch 80 %; miss: single-touch; hit in
//! single-touch: multi-touch, most recent; the victim of multi-touch leaves; warm-up: multi-touch).
//!
//! Where we deviate (ours): the borders are soft. In the original a pool has its own capacity, so a cold cache fills only a
//! fifth of its room, and a promotion into a full multi-touch pool evicts at once. Here a pool may use room that the other
//! does not need; the next insertion takes it back from the pool that is above its share. Whenever the cache is full
//! and no promotion happened since the last miss, both pools are at the sizes that hard borders would give.
//! Invariant: the tag of a slot names its pool; each pool is in the order of last use, most recent first.

use crate::{Incoming, Insertion, Links, List, Policy, Slot};
use forebay_units::{BlockIndex, Ratio};
use std::collections::TryReserveError;
use std::ops::ControlFlow;

const SINGLE: u8 = 0;
const MULTI: u8 = 1;

/// Single-touch and multi-touch LRU pools; 8 bytes per slot.
#[derive(Debug)]
pub struct TwoPool {
    links: Links,
    single: List,
    multi: List,
    share: Ratio,
    capacity: u32,
    /// How many blocks the single-touch pool keeps when both pools want room.
    single_capacity: u32,
}

impl TwoPool {
    /// An empty order of capacity 0, whose single-touch pool has the share `single` of the capacity (PRESTO: 0.2).
    pub const fn new(single: Ratio) -> TwoPool {
        TwoPool {
            links: Links::new(),
            single: List::EMPTY,
            multi: List::EMPTY,
            share: single,
            capacity: 0,
            single_capacity: 0,
        }
    }

    /// How many blocks were touched once.
    pub fn single_touch_blocks(&self) -> u32 {
        self.single.len()
    }

    /// How many blocks were touched again, or warmed.
    pub fn multi_touch_blocks(&self) -> u32 {
        self.multi.len()
    }

    /// Whether the block in `slot`, which holds one, was touched again, or warmed.
    pub fn is_multi_touch(&self, slot: Slot) -> bool {
        self.links.tag(slot) == MULTI
    }

    fn multi_capacity(&self) -> u32 {
        self.capacity - self.single_capacity
    }

    fn resident(&self) -> u32 {
        self.single.len() + self.multi.len()
    }

    fn pool(&mut self, slot: Slot) -> (&mut Links, &mut List) {
        let list = if self.links.tag(slot) == MULTI { &mut self.multi } else { &mut self.single };
        (&mut self.links, list)
    }

    fn remove(&mut self, slot: Slot) {
        let (links, list) = self.pool(slot);
        links.unlink(list, slot);
    }
}

impl Default for TwoPool {
    /// The single-touch pool has a fifth, as in PRESTO.
    fn default() -> TwoPool {
        TwoPool::new(Ratio::of(1, 5))
    }
}

impl Policy for TwoPool {
    fn name(&self) -> &'static str {
        "two-pool"
    }

    fn reserve(&mut self, slots: u32) -> Result<(), TryReserveError> {
        self.links.reserve(slots)
    }

    fn release(&mut self, slots: u32) {
        self.links.release(slots);
    }

    /// The share is rounded to the nearest block. With at least two blocks and a share above 0, one is single-touch: else
    /// no block could ever be touched twice.
    fn set_capacity(&mut self, blocks: u32) {
        self.capacity = blocks;
        let exact = (f64::from(blocks) * self.share.get()).round() as u32;
        let least = u32::from(blocks >= 2 && self.share.get() > 0.0);
        self.single_capacity = exact.clamp(least, blocks);
    }

    /// Refuses only warm-up at the tail when neither is there room nor is the single-touch pool above its share.
    fn admit(&mut self, incoming: Incoming) -> bool {
        incoming.insertion != Insertion::PrewarmTail
            || self.resident() < self.capacity
            || self.resident() == self.capacity && self.multi.len() < self.multi_capacity()
    }

    /// Somebody of the pool that would else be above its share. When the quota shrinks, the single-touch pool goes down to
    /// its share before multi-touch blocks leave.
    fn victim(&mut self, incoming: Option<Incoming>) -> Option<Slot> {
        let (single, multi) = (self.single.back(), self.multi.back());
        let from_single = match incoming.map(|incoming| incoming.insertion) {
            Some(Insertion::Miss) => self.single.len() >= self.single_capacity,
            Some(Insertion::Prewarm | Insertion::PrewarmTail) | None => {
                self.single.len() > self.single_capacity
            }
        };
        if from_single { single.or(multi) } else { multi.or(single) }
    }

    #[inline]
    fn on_hit(&mut self, slot: Slot, _block: BlockIndex) {
        if self.multi.front() == Some(slot) {
            return;
        }
        let (links, list) = self.pool(slot);
        links.unlink(list, slot);
        self.links.push_front(&mut self.multi, slot);
        self.links.set_tag(slot, MULTI);
    }

    fn on_insert(&mut self, slot: Slot, incoming: Incoming) {
        let tag = match incoming.insertion {
            Insertion::Miss => {
                self.links.push_front(&mut self.single, slot);
                SINGLE
            }
            Insertion::Prewarm => {
                self.links.push_front(&mut self.multi, slot);
                MULTI
            }
            Insertion::PrewarmTail => {
                self.links.push_back(&mut self.multi, slot);
                MULTI
            }
        };
        self.links.set_tag(slot, tag);
    }

    fn on_evict(&mut self, slot: Slot, _block: BlockIndex) {
        self.remove(slot);
    }

    fn on_remove(&mut self, slot: Slot, _block: BlockIndex) {
        self.remove(slot);
    }

    fn on_move(&mut self, from: Slot, to: Slot) {
        let (links, list) = self.pool(from);
        links.rename(list, from, to);
    }

    fn anticipate(&self, hits: &[Slot], _others: &[BlockIndex]) {
        self.links.anticipate(hits);
    }

    fn likely_victims(&self, victims: &mut [Slot]) -> usize {
        self.links.last(&self.single, victims)
    }

    /// The multi-touch pool, then the single-touch pool, each from the most recent on.
    fn visit_hottest_first(&self, visit: &mut dyn FnMut(Slot) -> ControlFlow<()>) {
        let _ = self.links.iter(&self.multi).chain(self.links.iter(&self.single)).try_for_each(visit);
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
        // Capacity 5: single-touch 1, multi-touch 4. 1..5 fill the room (single 5 4 3 2 1), 2 and 3 are promoted
        // (multi 3 2, single 5 4 1). 6: single has 3 >= 1, so 1 leaves; 7: 4 leaves.
        let mut run = trace(TwoPool::default(), 5, &[1, 2, 3, 4, 5, 2, 3, 6, 7]);
        assert_eq!((run.evicted.as_slice(), run.hits), ([1, 4].as_slice(), 2));
        assert_eq!(run.order_blocks(), [3, 2, 7, 6, 5]);
        // 5, 6 and 7 are promoted: multi 7 6 5 3 2 is one above its share, single is empty. 8: 2, the victim of multi, leaves.
        for block in [5, 6, 7, 8] {
            run.access(block);
        }
        assert_eq!(run.evicted, [1, 4, 2]);
        assert_eq!(run.order_blocks(), [7, 6, 5, 3, 8]);
        // A scan goes through the single-touch pool alone.
        for block in 100..200 {
            run.access(block);
        }
        assert_eq!(run.order_blocks(), [7, 6, 5, 3, 199]);
    }

    #[test]
    fn warm_up_goes_to_multi_touch_at_the_head_or_in_score_order_at_the_tail() {
        let mut run = trace(TwoPool::default(), 5, &[1, 2]);
        run.insert(10, Insertion::Prewarm);
        run.insert(11, Insertion::Prewarm);
        run.insert(20, Insertion::PrewarmTail);
        assert_eq!(run.order_blocks(), [11, 10, 20, 2, 1]);
        // Full; single-touch is 1 above its share: room for one more at the tail, then no more.
        run.insert(21, Insertion::PrewarmTail);
        run.insert(22, Insertion::PrewarmTail);
        assert_eq!((run.order_blocks(), run.evicted.as_slice()), (vec![11, 10, 20, 21, 2], [1].as_slice()));
        // At the head of a full multi-touch pool its own victim leaves.
        run.insert(12, Insertion::Prewarm);
        assert_eq!(
            (run.order_blocks(), run.evicted.as_slice()),
            (vec![12, 11, 10, 20, 2], [1, 21].as_slice())
        );
    }

    #[test]
    fn shares_of_small_capacities() {
        for (capacity, single) in [(0, 0), (1, 0), (2, 1), (3, 1), (5, 1), (8, 2), (100, 20)] {
            let mut policy = TwoPool::default();
            policy.set_capacity(capacity);
            assert_eq!(policy.single_capacity, single, "capacity {capacity}");
        }
        let mut none = TwoPool::new(Ratio::ZERO);
        none.set_capacity(10);
        assert_eq!(none.single_capacity, 0);
    }

    /// Two vectors, most recent first.
    #[derive(Default)]
    struct Naive {
        single: Vec<u64>,
        multi: Vec<u64>,
    }

    fn single_share(capacity: usize) -> usize {
        ((capacity as f64 * 0.2).round() as usize).max(usize::from(capacity >= 2))
    }

    impl Model for Naive {
        fn admits(&mut self, _: u64, insertion: Insertion, capacity: usize) -> bool {
            let resident = self.single.len() + self.multi.len();
            let multi_share = capacity - single_share(capacity);
            insertion != Insertion::PrewarmTail
                || resident < capacity
                || resident == capacity && self.multi.len() < multi_share
        }
        fn victim(&mut self, insertion: Option<Insertion>, capacity: usize) -> u64 {
            // Whoever would be above its share with the newcomer in.
            let newcomer = usize::from(insertion == Some(Insertion::Miss));
            let single_first = self.single.len() + newcomer > single_share(capacity);
            let (first, second) =
                if single_first { (&self.single, &self.multi) } else { (&self.multi, &self.single) };
            *first.last().or(second.last()).unwrap()
        }
        fn hit(&mut self, block: u64) {
            self.remove(block);
            self.multi.insert(0, block);
        }
        fn insert(&mut self, block: u64, insertion: Insertion) {
            match insertion {
                Insertion::Miss => self.single.insert(0, block),
                Insertion::Prewarm => self.multi.insert(0, block),
                Insertion::PrewarmTail => self.multi.push(block),
            }
        }
        fn remove(&mut self, block: u64) {
            self.single.retain(|kept| *kept != block);
            self.multi.retain(|kept| *kept != block);
        }
        fn order(&self) -> Vec<u64> {
            [self.multi.as_slice(), &self.single].concat()
        }
    }

    #[test]
    fn it_agrees_with_two_lists() {
        check_against(TwoPool::default, Naive::default);
    }

    #[test]
    fn it_needs_at_most_nine_bytes_per_slot() {
        let mut policy = TwoPool::default();
        policy.reserve(1 << 20).unwrap();
        let per_slot = policy.footprint_bytes() as f64 / f64::from(1 << 20);
        assert!(per_slot <= 9.0, "{per_slot} bytes");
    }
}
