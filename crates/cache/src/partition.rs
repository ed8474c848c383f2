//! One workload's share of a cache: look-up, insertion, invalidation, and a quota that changes while it serves.
//!
//! Pure bookkeeping: no bytes, no I/O, no clock. It is not the place where races between fills and writes are decided; the data
//! path decides what may be inserted.
//!
//! Invariants: `resident <= quota` whenever no step is due; slots in use are below `slots_in_use()`, which comes down to the
//! quota by steps; look-ups = hits + misses + bypasses; insertions = resident + evictions + invalidations.

use crate::foretold::Foretold;
use forebay_policy::{
    ANTICIPATED, Incoming, Insertion, Policy, SLOTS_MAX, Slot, SlotTable, TwoPool, Upcoming,
};
use forebay_units::{BlockIndex, BlockRange};
use std::collections::TryReserveError;
use std::ops::ControlFlow;

/// The largest index of a block: 2^52 - 1, that is 16 EiB in blocks of 4 KiB.
pub const BLOCK_MAX: BlockIndex = BlockIndex((1 << 52) - 1);

/// The largest quota, in blocks: 4 TiB in blocks of 4 KiB.
pub const QUOTA_BLOCKS_MAX: u64 = SLOTS_MAX as u64 / 2;

/// How many look-ups [`Partition::anticipate`] looks at.
pub const ANTICIPATED_MAX: usize = ANTICIPATED;

/// What became of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The block is in `slot`; `evicted` had to leave for it.
    New {
        /// Where it is.
        slot: Slot,
        /// Who left, if the partition was full.
        evicted: Option<BlockIndex>,
    },
    /// The block was there already; its place in the order is unchanged.
    Present(Slot),
    /// The block did not enter.
    Refused(Refusal),
}

/// Why a block did not enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The quota is 0.
    NoQuota,
    /// The policy keeps something better.
    Policy,
    /// The machine has no memory for another slot. The next insertion evicts instead of growing.
    OutOfMemory,
}

/// What a step does to a slot whose content is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepChange {
    /// The block leaves.
    Evicted {
        /// Which.
        block: BlockIndex,
        /// Where it was.
        slot: Slot,
    },
    /// Its block goes to another slot.
    Moved {
        /// Where it was.
        from: Slot,
        /// Where it will be.
        to: Slot,
    },
}

/// How far a change of the quota is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The quota is in force and all memory above it is given back.
    Settled,
    /// This many blocks are still to leave, and this many slots to be given back.
    Pending {
        /// Resident blocks above the quota.
        blocks_over: u32,
        /// Slots above the quota.
        slots_over: u32,
    },
}

/// Counters since the partition was made, and its size now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Look-ups that found their block.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Look-ups that the data path did not make, because the cache could not answer for the block at that time.
    pub bypasses: u64,
    /// Blocks inserted, for whatever reason.
    pub insertions: u64,
    /// Those of them that warm-up inserted.
    pub prewarmed: u64,
    /// Insertions that were refused, for whatever reason.
    pub refusals: u64,
    /// Blocks that left for others, or because the quota shrank.
    pub evictions: u64,
    /// Blocks that left because they were no longer true.
    pub invalidations: u64,
    /// Blocks moved to other slots so that memory could be given back.
    pub relocations: u64,
    /// Blocks resident now.
    pub resident_blocks: u32,
    /// The quota in blocks now.
    pub quota_blocks: u32,
    /// How many blocks may be resident: the quota, or less since the machine refused memory (until the quota is set again).
    pub limit_blocks: u32,
}

/// The bookkeeping of one partition, with the policy `P`.
#[derive(Debug)]
pub struct Partition<P = TwoPool> {
    slots: SlotTable,
    policy: P,
    quota: u32,
    /// The quota, or less since the machine refused memory: from there on, insertions evict instead of growing.
    limit: u32,
    counters: Statistics,
    foretold: Foretold,
}

impl<P: Policy> Partition<P> {
    /// An empty partition of `quota_blocks` blocks, which takes memory as it fills.
    ///
    /// `policy` is empty. `seed` makes the collisions of its index unpredictable to clients; the order of blocks does not
    /// depend on it. A quota above [`QUOTA_BLOCKS_MAX`] is taken as that.
    pub fn new(mut policy: P, quota_blocks: u64, seed: u64) -> Partition<P> {
        let quota = clamp_quota(quota_blocks);
        policy.set_capacity(quota);
        Partition {
            slots: SlotTable::new(seed),
            policy,
            quota,
            limit: quota,
            counters: Statistics::default(),
            foretold: Foretold::new(),
        }
    }

    /// Looks `block` up for a client: counts a hit or a miss, and tells the policy.
    #[inline]
    pub fn lookup(&mut self, block: BlockIndex) -> Option<Slot> {
        let found = self.slots.find(block);
        match found {
            Some(slot) => self.touch(slot, block),
            None => self.miss(block),
        }
        found
    }

    /// Looks `block` up, `likely` to be where [`Partition::anticipate`] says, and inserts it if it is not there, as a simulation does; whether it was there.
    ///
    /// # Panics
    /// If `block` is beyond [`BLOCK_MAX`].
    #[inline]
    pub fn access(&mut self, block: BlockIndex, likely: Option<Slot>) -> bool {
        assert!(block <= BLOCK_MAX, "block {} is beyond the largest index {}", block.0, BLOCK_MAX.0);
        match self.slots.find_near(block, likely) {
            Some(slot) => {
                self.touch(slot, block);
                true
            }
            None => {
                self.miss(block);
                self.insert_absent(block, Insertion::Miss, |_, _| ());
                false
            }
        }
    }

    /// Has what look-ups read first fetched. The first of three steps, best each a batch of look-ups after the one before:
    /// [`Partition::fetch_slots`], [`Partition::anticipate`]. They change nothing, and may be left out; but most of what a look-up takes is waiting for memory.
    #[inline]
    pub fn fetch_buckets(&self, upcoming: &mut Upcoming) {
        self.slots.fetch_buckets(upcoming);
    }

    /// Has what look-ups read next fetched.
    #[inline]
    pub fn fetch_slots(&self, upcoming: &mut Upcoming) {
        self.slots.fetch_slots(upcoming);
    }

    /// Has fetched what look-ups, and insertions of what misses, will need of the policy, and says where the blocks are likely to be.
    pub fn anticipate(&self, upcoming: &mut Upcoming) {
        self.slots.anticipate(upcoming);
        let mut hits = [Slot(0); ANTICIPATED_MAX];
        let mut others = [BlockIndex(0); ANTICIPATED_MAX];
        let (mut hit_count, mut other_count) = (0, 0);
        // Without a branch, as in the table.
        for (at, block) in upcoming.blocks().iter().enumerate() {
            let slot = upcoming.likely(at);
            hits[hit_count] = slot.unwrap_or(Slot(0));
            others[other_count] = *block;
            hit_count += usize::from(slot.is_some());
            other_count += usize::from(slot.is_none());
        }
        self.policy.anticipate(&hits[..hit_count], &others[..other_count]);
    }

    /// Has fetched what evictions to come will need, each in three steps that are some evictions apart: what is in the slot, the bucket of its block, and its chain and what
    /// the policy has of it. To be called for each eviction.
    #[inline]
    fn fetch_evictions(&mut self) {
        // Two for one: so the first victims, or those behind a change of the order, catch up.
        for _ in 0..2 {
            let Some(victim) = self.policy.fetch_victim_ahead() else { continue };
            self.slots.fetch(victim);
            let (bucket, chain) = self.foretold.push(victim);
            if let Some(block) = self.block_in(bucket) {
                self.slots.fetch_bucket(block);
            }
            if let Some(block) = self.block_in(chain) {
                self.slots.fetch_chain(block);
                self.policy.anticipate(&[], &[block]);
            }
        }
    }

    /// All three steps for those of `blocks` that hit: for who inserts what misses only later. At most [`ANTICIPATED_MAX`] blocks at a time; more are not
    /// looked at.
    pub fn anticipate_hits(&self, blocks: &[BlockIndex]) {
        let mut upcoming = Upcoming::of(blocks.iter().copied());
        self.slots.fetch_buckets(&mut upcoming);
        self.slots.fetch_slots(&mut upcoming);
        self.slots.anticipate(&mut upcoming);
        let mut hits = [Slot(0); ANTICIPATED_MAX];
        let found = (0..upcoming.blocks().len()).filter_map(|at| upcoming.likely(at));
        let count = hits.iter_mut().zip(found).map(|(hit, slot)| *hit = slot).count();
        self.policy.anticipate(&hits[..count], &[]);
    }

    /// Where `block` is; counts nothing and tells nobody.
    #[inline]
    pub fn peek(&self, block: BlockIndex) -> Option<Slot> {
        self.slots.find(block)
    }

    fn touch(&mut self, slot: Slot, block: BlockIndex) {
        self.counters.hits += 1;
        self.policy.on_hit(slot, block);
    }

    fn miss(&mut self, block: BlockIndex) {
        self.counters.misses += 1;
        self.policy.on_miss(block);
    }

    /// Counts `look_ups` that the data path did not make.
    pub fn bypass(&mut self, look_ups: u64) {
        self.counters.bypasses += look_ups;
    }

    /// The block in `slot`; `None` if the slot is free or does not exist.
    pub fn block_in(&self, slot: Slot) -> Option<BlockIndex> {
        (slot.0 < self.slots.len()).then(|| self.slots.block_in(slot)).flatten()
    }

    /// Inserts `block`, and evicts another one if the partition is full.
    ///
    /// The content of a new block's slot is whatever was there before: the caller writes it.
    ///
    /// # Panics
    /// If `block` is beyond [`BLOCK_MAX`].
    pub fn insert(&mut self, block: BlockIndex, insertion: Insertion) -> Inserted {
        self.insert_demoting(block, insertion, |_, _| ())
    }

    /// As [`Partition::insert`]; `demote` is told of the block that leaves, and its slot, whose content is still there.
    ///
    /// # Panics
    /// As [`Partition::insert`].
    #[inline]
    pub fn insert_demoting(
        &mut self,
        block: BlockIndex,
        insertion: Insertion,
        demote: impl FnOnce(BlockIndex, Slot),
    ) -> Inserted {
        assert!(block <= BLOCK_MAX, "block {} is beyond the largest index {}", block.0, BLOCK_MAX.0);
        match self.slots.find(block) {
            Some(slot) => Inserted::Present(slot),
            None => self.insert_absent(block, insertion, demote),
        }
    }

    /// Inserts `block`, which is not there.
    #[inline]
    fn insert_absent(
        &mut self,
        block: BlockIndex,
        insertion: Insertion,
        demote: impl FnOnce(BlockIndex, Slot),
    ) -> Inserted {
        if self.quota == 0 {
            return self.refuse(Refusal::NoQuota);
        }
        let incoming = Incoming { block, insertion };
        if !self.policy.admit(incoming) {
            return self.refuse(Refusal::Policy);
        }
        let left = if self.is_full() { self.choose_victim(Some(incoming), demote) } else { None };
        let slot = match left {
            // Where no other slot is free, this one is the next to be filled.
            Some((slot, _)) if self.slots.free().is_none() => {
                self.slots.replace(slot, block);
                slot
            }
            _ => {
                if let Some((slot, _)) = left {
                    self.slots.clear(slot, self.quota);
                }
                let Some(slot) = self.slots.free().or_else(|| self.grow()) else {
                    self.stop_growing();
                    return self.refuse(Refusal::OutOfMemory);
                };
                self.slots.fill(slot, block);
                slot
            }
        };
        self.policy.on_insert(slot, incoming);
        if left.is_some() {
            self.fetch_evictions();
        }
        self.counters.insertions += 1;
        self.counters.prewarmed += u64::from(insertion != Insertion::Miss);
        Inserted::New { slot, evicted: left.map(|(_, block)| block) }
    }

    fn refuse(&mut self, refusal: Refusal) -> Inserted {
        self.counters.refusals += 1;
        Inserted::Refused(refusal)
    }

    fn grow(&mut self) -> Option<Slot> {
        self.policy.reserve(self.slots.len() + 1).ok()?;
        self.slots.grow().ok()
    }

    /// Makes the blocks resident now the limit until the quota is set again: a cache that cannot grow goes on with what it has.
    fn stop_growing(&mut self) {
        self.limit = self.slots.occupied().clamp(1, self.quota.max(1));
        self.policy.set_capacity(self.limit);
    }

    /// Has the policy choose a block that leaves its order, and counts it; its slot is to be cleared, or filled with another one.
    #[inline]
    fn choose_victim(
        &mut self,
        incoming: Option<Incoming>,
        demote: impl FnOnce(BlockIndex, Slot),
    ) -> Option<(Slot, BlockIndex)> {
        let slot = self.policy.victim(incoming)?;
        let block = self.slots.block_in(slot).expect("the policy orders occupied slots only");
        demote(block, slot);
        self.policy.on_evict(slot, block);
        self.counters.evictions += 1;
        Some((slot, block))
    }

    /// Removes `block` because it is no longer true; returns where it was.
    pub fn remove(&mut self, block: BlockIndex) -> Option<Slot> {
        let slot = self.slots.find(block)?;
        self.policy.on_remove(slot, block);
        self.slots.clear(slot, self.quota);
        self.counters.invalidations += 1;
        Some(slot)
    }

    /// Undoes the insertion of `block`, because the store has no memory for its slot, and stops growing.
    pub(crate) fn take_back(&mut self, block: BlockIndex) {
        if let Some(slot) = self.slots.find(block) {
            self.policy.on_remove(slot, block);
            // To the back of the free list: slots that have memory are to be reused first.
            self.slots.clear(slot, 0);
            self.counters.invalidations += 1;
            self.counters.refusals += 1;
            self.stop_growing();
        }
    }

    /// Removes what is resident of `blocks`; returns how many were.
    ///
    /// Cost: a look-up per block of the range or a read of all slots in use (2 ns each), whatever is less.
    pub fn remove_range(&mut self, blocks: BlockRange) -> u64 {
        let before = self.slots.occupied();
        if blocks.is_empty() || before == 0 {
            return 0;
        }
        // Reading the slots in their order costs a sixteenth of looking blocks up, or less.
        if blocks.count() <= u64::from(self.slots.len() / 16) {
            for block in blocks {
                self.remove(block);
            }
        } else {
            for slot in 0..self.slots.len() {
                if let Some(block) = self.slots.block_in(Slot(slot))
                    && (blocks.first..blocks.end).contains(&block.0)
                {
                    self.remove(block);
                }
            }
        }
        u64::from(before - self.slots.occupied())
    }

    /// Sets the quota, in blocks; [`Partition::step`] puts it in force. Growth needs no step. `O(1)`.
    pub fn set_quota(&mut self, quota_blocks: u64) {
        self.quota = clamp_quota(quota_blocks);
        self.limit = self.quota;
        self.policy.set_capacity(self.quota);
    }

    /// Whether another block enters only if one leaves.
    pub fn is_full(&self) -> bool {
        self.slots.occupied() >= self.limit
    }

    /// The quota in blocks.
    pub fn quota_blocks(&self) -> u32 {
        self.quota
    }

    /// Whether the quota is in force and all memory above it was given back.
    pub fn progress(&self) -> Progress {
        let blocks_over = self.slots.occupied().saturating_sub(self.quota);
        let slots_over = self.slots.len().saturating_sub(self.quota);
        if slots_over == 0 { Progress::Settled } else { Progress::Pending { blocks_over, slots_over } }
    }

    /// Works off at most `budget` slots of a shrunken quota: the coldest blocks leave first, then the blocks in the highest slots move to
    /// free slots below, and the table gets shorter.
    ///
    /// `moved(from, to)` is called for each block that moves, before anything else happens to either slot. `O(budget)`.
    pub fn step(&mut self, budget: u32, mut moved: impl FnMut(Slot, Slot)) -> Progress {
        self.step_demoting(budget, |change| {
            if let StepChange::Moved { from, to } = change {
                moved(from, to);
            }
        })
    }

    /// As [`Partition::step`], but tells of the blocks that leave, too, while the content of their slots is still there.
    pub fn step_demoting(&mut self, budget: u32, mut changed: impl FnMut(StepChange)) -> Progress {
        for _ in 0..budget {
            if self.slots.occupied() > self.quota {
                let left =
                    self.choose_victim(None, |block, slot| changed(StepChange::Evicted { block, slot }));
                if let Some((slot, _)) = left {
                    self.slots.clear(slot, self.quota);
                }
                continue;
            }
            if self.slots.len() <= self.quota {
                break;
            }
            let last = Slot(self.slots.len() - 1);
            if let Some(block) = self.slots.block_in(last) {
                // There is a free slot: occupied <= quota < slots. It is not `last`, which is occupied.
                let to = self.slots.free().expect("fewer blocks than slots leave a slot free");
                changed(StepChange::Moved { from: last, to });
                self.slots.relocate(last, to, self.quota);
                self.policy.on_move(last, to);
                self.counters.relocations += 1;
                debug_assert_eq!(self.slots.block_in(to), Some(block));
            }
            self.slots.shrink();
            self.policy.release(self.slots.len());
        }
        self.progress()
    }

    /// Slots that exist: no resident block is in a slot from this number on.
    pub fn slots_in_use(&self) -> u32 {
        self.slots.len()
    }

    /// Resident blocks.
    pub fn resident_blocks(&self) -> u32 {
        self.slots.occupied()
    }

    /// The counters.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            resident_blocks: self.slots.occupied(),
            quota_blocks: self.quota,
            limit_blocks: self.limit,
            ..self.counters
        }
    }

    /// Visits the resident blocks, hottest first, until `visit` breaks.
    pub fn visit_hottest_first(&self, visit: &mut dyn FnMut(BlockIndex, Slot) -> ControlFlow<()>) {
        self.policy.visit_hottest_first(&mut |slot| {
            let block = self.slots.block_in(slot).expect("the policy orders occupied slots only");
            visit(block, slot)
        });
    }

    /// The `count` hottest blocks, hottest first: what a snapshot for warm-up keeps. `O(count)`.
    pub fn hottest(&self, count: usize) -> Vec<BlockIndex> {
        let mut blocks = Vec::with_capacity(count.min(self.slots.occupied() as usize));
        if count > 0 {
            self.visit_hottest_first(&mut |block, _| {
                blocks.push(block);
                if blocks.len() < count { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
        }
        blocks
    }

    /// Puts `policy`, which is empty, in the place of the partition's own, which is dropped; all blocks stay.
    ///
    /// The order is handed over, hottest first; what else the old policy knew, as ghosts and counts, is lost. `O(resident blocks)` in one
    /// call, about 20 ns each: not for a data path that holds millions.
    ///
    /// # Errors
    /// The allocator's refusal; the partition is then as it was.
    pub fn replace_policy(&mut self, mut policy: P) -> Result<(), TryReserveError> {
        policy.set_capacity(self.limit);
        for slots in 1..=self.slots.len() {
            policy.reserve(slots)?;
        }
        self.visit_hottest_first(&mut |block, slot| {
            policy.on_insert(slot, Incoming { block, insertion: Insertion::PrewarmTail });
            ControlFlow::Continue(())
        });
        self.policy = policy;
        Ok(())
    }

    /// The policy, to ask it for figures of its own.
    pub fn policy(&self) -> &P {
        &self.policy
    }

    /// The memory of the bookkeeping, in bytes, by the capacity of its allocations.
    pub fn footprint_bytes(&self) -> u64 {
        self.slots.footprint_bytes() + self.policy.footprint_bytes()
    }
}

impl Partition<TwoPool> {
    /// As [`TwoPool::open_own_partition`].
    pub fn open_own_partition(&mut self, blocks: u64) {
        self.policy.open_own_partition(clamp_quota(blocks));
    }

    /// As [`TwoPool::close_own_partition`].
    pub fn close_own_partition(&mut self) {
        self.policy.close_own_partition();
    }
}

fn clamp_quota(blocks: u64) -> u32 {
    blocks.min(QUOTA_BLOCKS_MAX) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_policy::{Lru, PolicyKind};

    fn filled(quota: u64, blocks: &[u64]) -> Partition<Lru> {
        let mut partition = Partition::new(Lru::new(), quota, 0);
        for block in blocks {
            partition.insert(BlockIndex(*block), Insertion::Miss);
        }
        partition
    }

    #[test]
    fn a_hand_traced_shrink_evicts_the_coldest_and_moves_the_rest_down() {
        // Slots 0..5 hold 10..15. 10 and 11 are used, so the order is 11 10 15 14 13 12.
        let mut partition = filled(6, &[10, 11, 12, 13, 14, 15]);
        assert_eq!(partition.lookup(BlockIndex(10)), Some(Slot(0)));
        assert_eq!(partition.lookup(BlockIndex(11)), Some(Slot(1)));
        partition.set_quota(3);
        assert_eq!(partition.progress(), Progress::Pending { blocks_over: 3, slots_over: 3 });
        // Three steps evict 12, 13 and 14 (slots 2, 3 and 4).
        let mut moves = Vec::new();
        let progress = partition.step(3, |from, to| moves.push((from, to)));
        assert_eq!(progress, Progress::Pending { blocks_over: 0, slots_over: 3 });
        assert_eq!((moves.as_slice(), partition.hottest(9).len()), ([].as_slice(), 3));
        // 15 moves from slot 5 to slot 2, the only free one below 3; slots 5, 4 and 3 go.
        assert_eq!(partition.step(9, |from, to| moves.push((from, to))), Progress::Settled);
        assert_eq!(moves, [(Slot(5), Slot(2))]);
        assert_eq!(partition.slots_in_use(), 3);
        assert_eq!(partition.hottest(9), [11, 10, 15].map(BlockIndex));
        assert_eq!(partition.hottest(1), [BlockIndex(11)]);
        let statistics = partition.statistics();
        assert_eq!((statistics.evictions, statistics.relocations, statistics.insertions), (3, 1, 6));
    }

    #[test]
    fn what_enters_while_the_quota_shrinks_takes_a_slot_that_will_stay() {
        // 13, in slot 3, is the coldest; slot 0 is free. 20 is not to enter where 13 was, above the quota, to be moved down later.
        let mut partition = filled(6, &[10, 11, 12, 13, 14, 15]);
        partition.lookup(BlockIndex(11));
        partition.lookup(BlockIndex(12));
        assert_eq!(partition.remove(BlockIndex(10)), Some(Slot(0)));
        partition.set_quota(3);
        let inserted = partition.insert(BlockIndex(20), Insertion::Miss);
        assert!(
            matches!(inserted, Inserted::New { slot: Slot(0), evicted: Some(BlockIndex(13)) }),
            "{inserted:?}"
        );
    }

    #[test]
    fn a_quota_that_grows_is_in_force_at_once_and_one_of_zero_refuses() {
        let mut partition = filled(2, &[1, 2, 3]);
        assert_eq!(partition.resident_blocks(), 2);
        partition.set_quota(4);
        assert_eq!(partition.progress(), Progress::Settled);
        assert!(matches!(
            partition.insert(BlockIndex(4), Insertion::Miss),
            Inserted::New { evicted: None, .. }
        ));
        partition.set_quota(0);
        assert_eq!(partition.insert(BlockIndex(9), Insertion::Miss), Inserted::Refused(Refusal::NoQuota));
        // Until steps take them away, blocks go on serving.
        assert!(partition.lookup(BlockIndex(4)).is_some());
        assert_eq!(partition.step(100, |_, _| ()), Progress::Settled);
        assert_eq!((partition.resident_blocks(), partition.slots_in_use()), (0, 0));
        assert!(partition.lookup(BlockIndex(4)).is_none());
    }

    #[test]
    fn counters_reconcile() {
        let mut partition = filled(3, &[1, 2, 3, 4]);
        partition.insert(BlockIndex(7), Insertion::Prewarm);
        partition.lookup(BlockIndex(7));
        partition.lookup(BlockIndex(1));
        partition.bypass(5);
        assert_eq!(partition.remove(BlockIndex(1)), None);
        assert!(partition.remove(BlockIndex(7)).is_some());
        let found = partition.statistics();
        assert_eq!((found.hits, found.misses, found.bypasses), (1, 1, 5));
        assert_eq!((found.insertions, found.prewarmed), (5, 1));
        assert_eq!((found.evictions, found.invalidations, found.resident_blocks), (2, 1, 2));
    }

    #[test]
    fn a_cache_that_cannot_grow_goes_on_with_what_it_has() {
        let mut partition = filled(10, &[1, 2, 3]);
        // Slot 3 has no memory: block 4 does not enter, and from now on three blocks are the limit.
        partition.insert(BlockIndex(4), Insertion::Miss);
        partition.take_back(BlockIndex(4));
        assert_eq!(partition.statistics().limit_blocks, 3);
        assert_eq!(
            partition.insert(BlockIndex(5), Insertion::Miss),
            Inserted::New { slot: Slot(0), evicted: Some(BlockIndex(1)) }
        );
        partition.set_quota(10);
        assert_eq!(partition.statistics().limit_blocks, 10);
        assert_eq!(
            partition.insert(BlockIndex(6), Insertion::Miss),
            Inserted::New { slot: Slot(3), evicted: None }
        );
    }

    #[test]
    fn another_policy_takes_over_the_blocks_and_their_order() {
        for kind in PolicyKind::ALL {
            let policy: Box<dyn Policy + Send> = Box::new(Lru::new());
            let mut partition = Partition::new(policy, 40, 0);
            (0..60).for_each(|block| {
                partition.insert(BlockIndex(block), Insertion::Miss);
            });
            let before = partition.hottest(99);
            partition.replace_policy(kind.new_policy()).unwrap();
            assert_eq!((partition.policy().name(), partition.hottest(99)), (kind.name(), before));
            // It goes on as any other: full, and with one in, one out.
            assert!(matches!(
                partition.insert(BlockIndex(77), Insertion::Miss),
                Inserted::New { evicted: Some(_), .. }
            ));
        }
    }

    #[test]
    #[should_panic(expected = "beyond the largest index")]
    fn a_block_beyond_the_largest_index_panics() {
        filled(1, &[1 << 52]);
    }

    #[test]
    fn the_largest_index_and_a_huge_range_work() {
        let mut partition = filled(4, &[0, BLOCK_MAX.0, u64::from(u32::MAX)]);
        assert!(partition.lookup(BLOCK_MAX).is_some());
        // The range is far larger than the partition: its cost is that of the slots.
        assert_eq!(partition.remove_range(BlockRange { first: 1, end: u64::MAX }), 2);
        assert_eq!(partition.hottest(9), [BlockIndex(0)]);
    }
}
