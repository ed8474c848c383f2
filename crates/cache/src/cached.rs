//! A partition with its bytes: what the data path uses.
//!
//! It does not decide what may be inserted (the data path knows which fills are too old) and talks to no origin.

use crate::{Inserted, MemoryStore, Partition, Progress, Refusal, Statistics, StepChange};
use forebay_policy::{Insertion, Policy, Slot, TwoPool};
use forebay_units::{BlockIndex, BlockRange, BlockSize, Bytes};

/// How many bytes a step copies at most, unless a single block is larger (ours).
const STEP_BYTES: u64 = 1 << 20;

/// Bookkeeping and bytes of one workload's share of the memory tier.
///
/// Every slot holds a whole block. The last block of a volume may be shorter than a block: it is inserted with the bytes that there
/// are, the rest reads as zeros, and the caller, who knows the volume's size, takes the part that exists.
///
/// Dropping a large partition unmaps all its chunks at once; on a thread that serves others, set its quota to 0 and step first.
#[derive(Debug)]
pub struct CachePartition<P = TwoPool> {
    partition: Partition<P>,
    store: MemoryStore,
}

impl<P: Policy> CachePartition<P> {
    /// An empty partition of `quota_blocks` blocks of `block_size`; `seed` as in [`Partition::new`]. Memory is taken as it fills.
    pub fn new(policy: P, block_size: BlockSize, quota_blocks: u64, seed: u64) -> CachePartition<P> {
        CachePartition {
            partition: Partition::new(policy, quota_blocks, seed),
            store: MemoryStore::new(block_size),
        }
    }

    /// The content of `block`, a whole block; counts a hit or a miss, and a hit is a use.
    #[inline]
    pub fn get(&mut self, block: BlockIndex) -> Option<&[u8]> {
        let slot = self.partition.lookup(block)?;
        Some(self.store.read(slot))
    }

    /// Where the content of `block` is; counts and uses as [`CachePartition::get`]. Good for [`CachePartition::bytes_in`] until
    /// the partition is next changed.
    #[inline]
    pub fn locate(&mut self, block: BlockIndex) -> Option<Slot> {
        self.partition.lookup(block)
    }

    /// As [`Partition::anticipate_hits`].
    pub fn anticipate(&self, blocks: &[BlockIndex]) {
        self.partition.anticipate_hits(blocks);
    }

    /// The content of a block that was located, a whole block.
    ///
    /// # Panics
    /// If `slot` is none that [`CachePartition::locate`] returned since the partition was last changed, at least where its memory
    /// was given back.
    #[inline]
    pub fn bytes_in(&self, slot: Slot) -> &[u8] {
        self.store.read(slot)
    }

    /// The content of `block`, without counting or using it.
    #[inline]
    pub fn peek(&self, block: BlockIndex) -> Option<&[u8]> {
        Some(self.store.read(self.partition.peek(block)?))
    }

    /// As [`Partition::is_full`].
    pub fn is_full(&self) -> bool {
        self.partition.is_full()
    }

    /// Whether `block` is resident; counts nothing.
    #[inline]
    pub fn contains(&self, block: BlockIndex) -> bool {
        self.partition.peek(block).is_some()
    }

    /// Counts `look_ups` that the data path did not make, because the cache could not answer for the block at that time.
    pub fn bypass(&mut self, look_ups: u64) {
        self.partition.bypass(look_ups);
    }

    /// Inserts `block` with its content; of a block that is present already only the content changes, not its place in the order.
    ///
    /// `data` is one block, or less for the last block of a volume (the rest reads as zeros). If there is no memory, the block
    /// is refused and the cache is as if it had evicted the victim.
    ///
    /// # Panics
    /// If `data` is longer than a block or `block` is beyond [`crate::BLOCK_MAX`].
    pub fn insert(&mut self, block: BlockIndex, data: &[u8], insertion: Insertion) -> Inserted {
        self.insert_demoting(block, data, insertion, |_, _| ())
    }

    /// As [`CachePartition::insert`]; `demote` is told of the block that leaves, with its content.
    ///
    /// # Panics
    /// As [`CachePartition::insert`].
    pub fn insert_demoting(
        &mut self,
        block: BlockIndex,
        data: &[u8],
        insertion: Insertion,
        demote: impl FnOnce(BlockIndex, &[u8]),
    ) -> Inserted {
        let block_bytes = self.store.block_size().bytes();
        assert!(data.len() as u64 <= block_bytes, "{} bytes for a block of {block_bytes}", data.len());
        let CachePartition { partition, store } = self;
        let inserted =
            partition.insert_demoting(block, insertion, |victim, slot| demote(victim, store.read(slot)));
        match inserted {
            Inserted::Refused(_) => return inserted,
            Inserted::New { slot, .. } => {
                if self.store.reserve(slot).is_err() {
                    self.partition.take_back(block);
                    return Inserted::Refused(Refusal::OutOfMemory);
                }
                self.store.write_whole(slot, data);
            }
            Inserted::Present(slot) => self.store.write_whole(slot, data),
        }
        inserted
    }

    /// Changes the content of `block` from byte `offset` of the block on, if it is resident; returns whether it is. No use is counted.
    ///
    /// # Panics
    /// If the data passes the end of the block.
    pub fn patch(&mut self, block: BlockIndex, offset: usize, data: &[u8]) -> bool {
        let found = self.partition.peek(block);
        if let Some(slot) = found {
            self.store.write(slot, offset, data);
        }
        found.is_some()
    }

    /// Removes what is resident of `blocks`; returns how many were. Cost as [`Partition::remove_range`].
    pub fn invalidate(&mut self, blocks: BlockRange) -> u64 {
        self.partition.remove_range(blocks)
    }

    /// Sets the quota in blocks; [`CachePartition::step`] puts it in force. `O(1)`.
    pub fn set_quota(&mut self, quota_blocks: u64) {
        self.partition.set_quota(quota_blocks);
    }

    /// The quota in blocks.
    pub fn quota_blocks(&self) -> u32 {
        self.partition.quota_blocks()
    }

    /// How far the change of the quota is.
    pub fn progress(&self) -> Progress {
        self.partition.progress()
    }

    /// Works off at most `budget` slots of a shrunken quota, and gives back the chunks that become free.
    ///
    /// Each slot costs at most one copied block, each chunk one unmapping. Whatever the budget, a step copies at most 1 MiB (or one block,
    /// if that is larger): with blocks of 4 KiB those are 256 slots and about 0.1 ms (`benches/cache.rs` measures the slowest).
    pub fn step(&mut self, budget: u32) -> Progress {
        self.step_demoting(budget, |_, _| ())
    }

    /// As [`CachePartition::step`]; `demote` is told of each block that leaves, with its content.
    pub fn step_demoting(&mut self, budget: u32, mut demote: impl FnMut(BlockIndex, &[u8])) -> Progress {
        let store = &mut self.store;
        let budget = budget.min((STEP_BYTES / store.block_size().bytes()).max(1) as u32);
        let progress = self.partition.step_demoting(budget, |change| match change {
            StepChange::Evicted { block, slot } => demote(block, store.read(slot)),
            StepChange::Moved { from, to } => store.copy(from, to),
        });
        self.store.release(self.partition.slots_in_use(), usize::MAX);
        progress
    }

    /// The counters.
    pub fn statistics(&self) -> Statistics {
        self.partition.statistics()
    }

    /// Resident blocks.
    pub fn resident_blocks(&self) -> u32 {
        self.partition.resident_blocks()
    }

    /// Resident blocks as bytes of data.
    pub fn resident_bytes(&self) -> Bytes {
        Bytes(u64::from(self.partition.resident_blocks()) * self.store.block_size().bytes())
    }

    /// Memory mapped for data, in bytes: whole chunks.
    pub fn held_bytes(&self) -> Bytes {
        self.store.held_bytes()
    }

    /// Memory besides the data, in bytes, by the capacity of its allocations.
    pub fn footprint_bytes(&self) -> u64 {
        self.partition.footprint_bytes() + self.store.footprint_bytes()
    }

    /// The size of a block.
    pub fn block_size(&self) -> BlockSize {
        self.store.block_size()
    }

    /// The `count` hottest blocks, hottest first, for a snapshot. `O(count)`.
    pub fn hottest(&self, count: usize) -> Vec<BlockIndex> {
        self.partition.hottest(count)
    }

    /// The bookkeeping, to ask it for more.
    pub fn partition(&self) -> &Partition<P> {
        &self.partition
    }
}

impl CachePartition {
    /// As [`TwoPool::open_own_partition`].
    pub fn open_own_partition(&mut self, blocks: u64) {
        self.partition.open_own_partition(blocks);
    }

    /// As [`TwoPool::close_own_partition`].
    pub fn close_own_partition(&mut self) {
        self.partition.close_own_partition();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_block_of_a_volume_may_be_short_and_patches_are_no_uses() {
        let mut cache = CachePartition::new(TwoPool::default(), BlockSize::DEFAULT, 4, 0);
        cache.insert(BlockIndex(8), &[9; 1000], Insertion::Miss);
        let found = cache.get(BlockIndex(8)).unwrap();
        assert_eq!((found.len(), found[999], found[1000]), (4096, 9, 0));
        cache.insert(BlockIndex(1), &[1; 4096], Insertion::Miss);
        assert!(cache.patch(BlockIndex(1), 4000, &[5; 96]));
        assert!(!cache.patch(BlockIndex(2), 0, &[5; 96]));
        assert_eq!(cache.peek(BlockIndex(1)).unwrap()[3999..4001], [1, 5]);
        // 8 was used again, 1 was only patched.
        assert_eq!(cache.hottest(2), [BlockIndex(8), BlockIndex(1)]);
        assert_eq!((cache.statistics().hits, cache.resident_bytes()), (1, Bytes(8192)));
    }

    #[test]
    fn looking_ahead_changes_nothing() {
        let mut cache = CachePartition::new(TwoPool::default(), BlockSize::DEFAULT, 8, 0);
        // More than are looked at, without anything in the cache, and with hits and misses.
        let blocks: Vec<BlockIndex> = (0..100).map(BlockIndex).collect();
        cache.anticipate(&blocks);
        for block in [3, 50, 7, 3] {
            cache.insert(BlockIndex(block), &[block as u8], Insertion::Miss);
        }
        let before = (cache.statistics(), cache.hottest(8));
        cache.anticipate(&blocks);
        assert_eq!((cache.statistics(), cache.hottest(8)), before);
    }

    #[test]
    fn a_quota_of_nothing_gives_all_data_back() {
        let mut cache = CachePartition::new(TwoPool::default(), BlockSize::DEFAULT, 1000, 0);
        for block in 0..1000 {
            cache.insert(BlockIndex(block), &[block as u8; 4096], Insertion::Miss);
        }
        assert_eq!(cache.held_bytes(), Bytes::mib(4));
        cache.set_quota(300);
        while cache.step(16) != Progress::Settled {}
        // 300 slots of 4 KiB are in one chunk of 2 MiB, 1,000 in two.
        assert_eq!((cache.held_bytes(), cache.resident_blocks()), (Bytes::mib(2), 300));
        for block in cache.hottest(300) {
            assert_eq!(cache.peek(block).unwrap(), [block.0 as u8; 4096]);
        }
        cache.set_quota(0);
        while cache.step(16) != Progress::Settled {}
        assert_eq!(cache.held_bytes(), Bytes::ZERO);
        assert!(cache.footprint_bytes() < 1_200_000);
    }

    #[test]
    fn a_step_is_bounded_by_bytes_too() {
        // Blocks of 512 KiB: two slots to a step, although ten are allowed.
        let size = BlockSize::new(Bytes::kib(512)).unwrap();
        let mut cache = CachePartition::new(TwoPool::default(), size, 8, 0);
        for block in 0..8 {
            cache.insert(BlockIndex(block), &[1], Insertion::Miss);
        }
        cache.set_quota(1);
        assert_eq!(cache.step(10), Progress::Pending { blocks_over: 5, slots_over: 7 });
    }

    #[test]
    fn bookkeeping_is_at_most_32_bytes_per_block() {
        // Method: the capacity of every allocation of index, order and store, divided by the resident blocks. A block of 512 bytes
        // keeps the data small; the bookkeeping is the same for every size of block.
        let size = BlockSize::new(Bytes(512)).unwrap();
        let blocks = 1 << 20;
        let mut cache = CachePartition::new(TwoPool::default(), size, blocks, 0);
        for block in 0..blocks {
            cache.insert(BlockIndex(block * 3), &[], Insertion::Miss);
        }
        let per_block = cache.footprint_bytes() as f64 / f64::from(cache.resident_blocks());
        assert!(per_block <= 32.0, "{per_block} bytes per block");
    }

    #[test]
    #[should_panic(expected = "4097 bytes for a block of 4096")]
    fn data_longer_than_a_block_panics() {
        CachePartition::new(TwoPool::default(), BlockSize::DEFAULT, 1, 0).insert(
            BlockIndex(0),
            &[0; 4097],
            Insertion::Miss,
        );
    }
}
