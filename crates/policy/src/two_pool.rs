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
//!
//! Also ours: a multi-touch pool that lies idle gives way to newcomers that are asked for again ([`Idle`]).
//!
//! Warmed blocks may have a **partition of their own** instead ([`TwoPool::open_own_partition`], [`OwnPartition`]): a block of it that is used goes to multi-touch.
//! Invariant: the tag of a slot names its pool (multi-touch has both of [`Idle`]'s); each pool is in the order of last use, most recent first.

use crate::idle::{Idle, is_of_pool};
use crate::{Incoming, Insertion, Links, List, OwnPartition, Policy, Slot};
use forebay_units::{BlockIndex, Ratio};
use std::collections::TryReserveError;
use std::ops::ControlFlow;

const SINGLE: u8 = 0;
/// Warmed, in the partition of its own, and not used since.
const OWN: u8 = 2;

/// Single-touch and multi-touch LRU pools; 8 bytes per slot, and 0.25 for who left lately.
#[derive(Debug)]
pub struct TwoPool {
    links: Links,
    single: List,
    multi: List,
    share: Ratio,
    capacity: u32,
    /// How many blocks the single-touch pool keeps when both pools want room.
    single_capacity: u32,
    own: List,
    /// The room of those, in blocks; warm-up at the tail goes there while it is open.
    own_room: OwnPartition,
    idle: Idle,
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
            own: List::EMPTY,
            own_room: OwnPartition::NONE,
            idle: Idle::new(),
        }
    }

    /// From now on warm-up at the tail goes to a partition of its own of at most `blocks`; the pools keep what is left, the single-touch pool's share and a
    /// block at least. What is there of an earlier one counts; 0 gives all of that up, whose blocks then leave before others.
    pub fn open_own_partition(&mut self, blocks: u32) {
        self.share_out(OwnPartition::NONE);
        let kept = self.single_capacity.max(1);
        self.share_out(OwnPartition::open(blocks.into(), self.capacity.into(), kept.into()));
    }

    /// No more goes to the partition of its own: the pools have the room that it did not need.
    pub fn close_own_partition(&mut self) {
        if self.own_room.is_open() {
            self.own_room.close(self.own.len().into());
            self.share_out(self.own_room);
        }
    }

    /// How many warmed blocks are in a partition of their own.
    pub fn own_partition_blocks(&self) -> u32 {
        self.own.len()
    }

    /// Sets the room of the partition of its own aside, and shares out the rest. With at least two blocks and a share above 0, one is single-touch: else
    /// no block could ever be touched twice.
    fn share_out(&mut self, own: OwnPartition) {
        self.own_room = own;
        let left = self.capacity - self.own_capacity();
        let exact = (f64::from(left) * self.share.get()).round() as u32;
        let least = u32::from(left >= 2 && self.share.get() > 0.0);
        self.single_capacity = exact.clamp(least, left);
    }

    /// A block of the partition of its own leaves it for the multi-touch pool, or for good, and its room goes with it.
    fn give_room(&mut self) {
        if self.own_room.give(self.own.len().into(), 1) {
            // Shares are as ever.
            self.share_out(self.own_room);
        }
    }

    fn own_capacity(&self) -> u32 {
        self.own_room.room() as u32
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
        self.links.tag(slot) != SINGLE
    }

    fn multi_capacity(&self) -> u32 {
        self.capacity - self.own_capacity() - self.single_capacity
    }

    fn resident(&self) -> u32 {
        self.single.len() + self.multi.len() + self.own.len()
    }

    fn pool(&mut self, slot: Slot) -> (&mut Links, &mut List) {
        let list = match self.links.tag(slot) {
            tag if is_of_pool(tag) => &mut self.multi,
            OWN => &mut self.own,
            _ => &mut self.single,
        };
        (&mut self.links, list)
    }

    #[inline]
    fn remove(&mut self, slot: Slot) {
        self.idle.ends(self.links.tag(slot));
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
        self.idle.reserve(slots)?;
        self.links.reserve(slots)
    }

    fn release(&mut self, slots: u32) {
        self.links.release(slots);
        self.idle.release(slots);
    }

    /// Shares are rounded to the nearest block. A partition of warmed blocks shrinks with the capacity, and does not grow with it.
    fn set_capacity(&mut self, blocks: u32) {
        let mut own = self.own_room;
        own.resize(self.capacity.into(), blocks.into());
        self.capacity = blocks;
        self.share_out(own);
    }

    /// Refuses only warm-up at the tail: where the partition of its own is full, and without one when neither is there room nor is the single-touch
    /// pool above its share.
    fn admit(&mut self, incoming: Incoming) -> bool {
        if incoming.insertion == Insertion::PrewarmTail && self.own_room.is_open() {
            return self.own_room.takes(self.own.len().into(), 1);
        }
        incoming.insertion != Insertion::PrewarmTail
            || self.resident() < self.capacity
            || self.resident() == self.capacity && self.multi.len() < self.multi_capacity()
    }

    /// Somebody of the pool that would else be above its share; of the partition of warmed blocks only what is beyond its room, or if nobody else is there. When the quota shrinks, the single-touch pool goes down to
    /// its share before multi-touch blocks leave.
    fn victim(&mut self, incoming: Option<Incoming>) -> Option<Slot> {
        if !self.own_room.keeps(self.own.len().into()) {
            return self.own.back();
        }
        let (single, multi) = (self.single.back(), self.multi.back());
        if incoming.is_some_and(|incoming| incoming.insertion == Insertion::Miss) && self.idle.gives_way() {
            return multi;
        }
        let from_single = match incoming.map(|incoming| incoming.insertion) {
            Some(Insertion::Miss) => self.single.len() >= self.single_capacity,
            Some(Insertion::Prewarm | Insertion::PrewarmTail) | None => {
                self.single.len() > self.single_capacity
            }
        };
        let victim = if from_single { single.or(multi) } else { multi.or(single) };
        victim.or(self.own.back())
    }

    #[inline]
    fn on_hit(&mut self, slot: Slot, _block: BlockIndex) {
        let tag = self.idle.tag();
        if self.multi.front() == Some(slot) && self.links.tag(slot) == tag {
            return;
        }
        if self.links.tag(slot) == OWN {
            self.give_room();
        }
        self.remove(slot);
        self.links.push_front(&mut self.multi, slot);
        self.links.set_tag(slot, tag);
    }

    fn on_insert(&mut self, slot: Slot, incoming: Incoming) {
        let tag = match incoming.insertion {
            Insertion::Miss => {
                self.idle.enters(incoming.block, self.multi.len(), self.capacity);
                self.links.push_front(&mut self.single, slot);
                SINGLE
            }
            Insertion::Prewarm => {
                self.links.push_front(&mut self.multi, slot);
                self.idle.tag()
            }
            Insertion::PrewarmTail if self.own_room.is_open() => {
                self.links.push_back(&mut self.own, slot);
                OWN
            }
            Insertion::PrewarmTail => {
                self.links.push_back(&mut self.multi, slot);
                self.idle.tag()
            }
        };
        self.links.set_tag(slot, tag);
    }

    fn on_evict(&mut self, slot: Slot, block: BlockIndex) {
        if self.links.tag(slot) == SINGLE {
            self.idle.leaves(block);
        }
        self.remove(slot);
    }

    fn on_remove(&mut self, slot: Slot, _block: BlockIndex) {
        if self.links.tag(slot) == OWN && !self.own_room.is_open() {
            self.give_room();
        }
        self.remove(slot);
    }

    fn on_move(&mut self, from: Slot, to: Slot) {
        let (links, list) = self.pool(from);
        links.rename(list, from, to);
    }

    fn anticipate(&self, hits: &[Slot], _others: &[BlockIndex]) {
        self.links.anticipate(hits);
    }

    #[inline]
    fn fetch_victim_ahead(&mut self) -> Option<Slot> {
        self.links.fetch_ahead(&mut self.single)
    }

    /// The partition of warmed blocks while the pools cannot take it, the multi-touch pool, the single-touch pool, each from the most recent on; what is left
    /// of a partition that was given up.
    fn visit_hottest_first(&self, visit: &mut dyn FnMut(Slot) -> ControlFlow<()>) {
        let own = |wanted| (wanted == (self.own_room.room() > 0)).then(|| self.links.iter(&self.own));
        let pools = self.links.iter(&self.multi).chain(self.links.iter(&self.single));
        let _ = own(true)
            .into_iter()
            .flatten()
            .chain(pools)
            .chain(own(false).into_iter().flatten())
            .try_for_each(visit);
    }

    fn footprint_bytes(&self) -> u64 {
        self.links.footprint_bytes() + self.idle.footprint_bytes()
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
    fn a_partition_of_their_own_keeps_warmed_blocks_until_they_are_used() {
        // Capacity 10: single-touch 2, multi-touch 8. With 5 set aside, 1 and 4 are left.
        let mut run = trace(TwoPool::default(), 10, &[1, 2, 3, 4, 5, 6, 7, 8]);
        run.policy.open_own_partition(5);
        assert_eq!((run.policy.own_capacity(), run.policy.single_capacity), (5, 1));
        // 20 and 21 take free room; 22 to 24 what single-touch has beyond its share: 1, 2 and 3 leave. There is no room for 25.
        for block in 20..26 {
            assert_eq!(run.insert(block, Insertion::PrewarmTail), block < 25, "{block}");
        }
        assert_eq!(run.evicted, [1, 2, 3]);
        assert_eq!(run.order_blocks(), [20, 21, 22, 23, 24, 8, 7, 6, 5, 4]);
        run.policy.close_own_partition();
        // A scan, and blocks used again, go through the pools alone.
        (100..120).for_each(|block| run.access(block));
        (116..120).for_each(|block| run.access(block));
        (200..204).for_each(|block| run.access(block));
        assert_eq!(run.order_blocks()[..5], [20, 21, 22, 23, 24]);
        // 23 is used: its room is multi-touch's, which keeps five then.
        run.access(23);
        assert_eq!(run.order_blocks(), [20, 21, 22, 24, 23, 119, 118, 117, 116, 203]);
        (300..310).for_each(|block| run.access(block));
        assert_eq!(run.order_blocks(), [20, 21, 22, 24, 23, 119, 118, 117, 116, 309]);
        // Half of the capacity is half of each; then the partition is given up, and goes first.
        run.capacity = 5;
        run.policy.set_capacity(5);
        (0..5).for_each(|_| run.evict(None));
        assert_eq!(run.order_blocks(), [20, 21, 23, 119, 309]);
        run.policy.open_own_partition(0);
        assert_eq!(run.order_blocks(), [23, 119, 309, 20, 21]);
        (400..402).for_each(|block| run.access(block));
        assert_eq!(run.order_blocks(), [23, 119, 401, 400, 309]);
        assert_eq!((run.policy.own_capacity(), run.policy.single_capacity), (0, 1));
    }

    /// The parts of `docs/reference/policies/README.md`: of two blocks one is single-touch, of one none.
    #[test]
    fn parts_of_tiny_caches_are_as_documented() {
        for (capacity, single) in [(0, 0), (1, 0), (2, 1), (3, 1), (7, 1), (8, 2), (10, 2)] {
            let mut run = trace(TwoPool::default(), capacity, &[]);
            assert_eq!(run.policy.single_capacity, single);
            if capacity > 0 {
                // All blocks twice, and two more: newcomers have the single-touch pool's part, and a place where it has none.
                let twice = (0..2).flat_map(|_| 0..capacity as u64);
                twice.chain([98, 99]).for_each(|block| run.access(block));
                let of_both = (run.policy.single_touch_blocks(), run.policy.multi_touch_blocks());
                let newcomers = single.max(1);
                assert_eq!(of_both, (newcomers.min(2), capacity as u32 - newcomers.min(2)));
            }
        }
    }

    #[test]
    fn without_room_for_a_partition_of_its_own_warm_up_goes_where_it_goes_without_one() {
        // The only block is single-touch's share.
        let mut run = trace(TwoPool::default(), 1, &[]);
        run.policy.open_own_partition(5);
        assert!(run.insert(20, Insertion::PrewarmTail));
        // A quota that comes when loading has begun, and one that goes and comes back meanwhile.
        for before in [0, 10] {
            let mut run = trace(TwoPool::default(), before, &[]);
            run.policy.open_own_partition(5);
            for capacity in [0, 10] {
                run.capacity = capacity;
                run.policy.set_capacity(capacity as u32);
            }
            assert!(run.insert(20, Insertion::PrewarmTail), "{before}");
            assert_eq!((run.policy.own_partition_blocks(), run.order_blocks()), (0, vec![20]));
        }
    }

    #[test]
    fn room_that_a_partition_of_warmed_blocks_does_not_need_is_given_back() {
        let mut run = trace(TwoPool::default(), 10, &[]);
        // All that is asked for but single-touch's share.
        run.policy.open_own_partition(99);
        assert_eq!(run.policy.own_capacity(), 8);
        (20..23).for_each(|block| assert!(run.insert(block, Insertion::PrewarmTail)));
        // One that is no longer true while more is loaded leaves its room to the next, and afterwards to the pools.
        run.policy.on_remove(Slot(run.slots.remove(&20).unwrap()), BlockIndex(20));
        assert_eq!(run.policy.own_capacity(), 8);
        run.policy.close_own_partition();
        assert_eq!((run.policy.own_capacity(), run.policy.single_capacity), (2, 2));
        run.policy.on_remove(Slot(run.slots.remove(&21).unwrap()), BlockIndex(21));
        assert_eq!(run.policy.own_capacity(), 1);
        // What is warmed now goes where it goes without such a partition.
        run.insert(30, Insertion::PrewarmTail);
        assert_eq!((run.order_blocks(), run.policy.own_partition_blocks()), (vec![22, 30], 1));
        run.access(22);
        assert_eq!((run.policy.own_capacity(), run.policy.own_partition_blocks()), (0, 0));
    }

    #[test]
    fn whatever_is_asked_the_shares_fit_and_whoever_is_there_is_listed_once() {
        use proptest::prelude::*;
        let operations = prop::collection::vec((0u8..12, 0u64..40), 0..300);
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(96));
        let check = |(capacity, operations): (usize, Vec<(u8, u64)>)| {
            let mut run = trace(TwoPool::default(), capacity, &[]);
            for (operation, block) in operations {
                let present = run.slots.contains_key(&block);
                let own_before: Vec<u64> = run.order_blocks();
                let safe = run.policy.own.len().min(run.policy.own_capacity()) as usize;
                let is_kept = run.policy.own.len() <= run.policy.own_capacity();
                match operation {
                    0 if present => {
                        run.policy.on_remove(Slot(run.slots[&block]), BlockIndex(block));
                        run.slots.remove(&block);
                    }
                    1 => run.policy.open_own_partition(block as u32),
                    2 => run.policy.close_own_partition(),
                    3 => {
                        run.capacity = 1 + block as usize % 16;
                        run.policy.set_capacity(run.capacity as u32);
                        while run.slots.len() > run.capacity {
                            run.evict(None);
                        }
                    }
                    4..8 if !present => {
                        run.insert(block, Insertion::PrewarmTail);
                    }
                    8 if !present => {
                        run.insert(block, Insertion::Prewarm);
                    }
                    _ => {
                        let hit = run.slots.contains_key(&block);
                        run.access(block);
                        // A miss takes nothing from the partition.
                        if !hit && is_kept && run.policy.own_capacity() > 0 {
                            prop_assert_eq!(&run.order_blocks()[..safe], &own_before[..safe]);
                        }
                    }
                }
                let policy = &run.policy;
                prop_assert!(policy.own_capacity() + policy.single_capacity <= policy.capacity);
                let mut order = run.order_blocks();
                order.sort_unstable();
                order.dedup();
                prop_assert_eq!(order.len(), run.slots.len());
                prop_assert!(order.len() <= run.capacity);
            }
            Ok(())
        };
        runner.run(&(1usize..16, operations), check).unwrap();
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
