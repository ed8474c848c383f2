//! What a partition holds, told a piece at a time, so that no turn of the worker takes long: what snapshots are made of.
//!
//! It is no picture of one instant: blocks come, leave and move meanwhile. One that moves may be told twice, or not at all. Invariant: each
//! step looks at [`LISTING_STEP_SLOTS`] slots at most.

use forebay_cache::CachePartition;
use forebay_policy::{Slot, TwoPool};
use forebay_units::BlockIndex;
use std::sync::mpsc::Sender;

/// Slots that one step looks at (ours; some microseconds).
pub const LISTING_STEP_SLOTS: u32 = 1024;

/// A block that was resident, and whether it had been used again since it came (or was warmed): 8 bytes. Ordered by block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedBlock(u64);

impl ListedBlock {
    /// `block` is below 2^52.
    pub fn new(block: BlockIndex, used_again: bool) -> ListedBlock {
        ListedBlock(block.0 << 1 | u64::from(used_again))
    }

    /// Which block.
    pub fn block(self) -> BlockIndex {
        BlockIndex(self.0 >> 1)
    }

    /// Whether it was in the multi-touch pool.
    pub fn used_again(self) -> bool {
        self.0 & 1 == 1
    }
}

/// A part of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListingPiece {
    /// Some blocks, in no order.
    Blocks(Vec<ListedBlock>),
    /// There are no more. A listing without it is not whole.
    End,
}

/// A listing in progress.
#[derive(Debug)]
pub(crate) struct Listing {
    next_slot: u32,
    listener: Sender<ListingPiece>,
}

impl Listing {
    pub(crate) fn new(listener: Sender<ListingPiece>) -> Listing {
        Listing { next_slot: 0, listener }
    }

    /// Looks at some more slots; whether that was all, or nobody listens any more.
    pub(crate) fn step(&mut self, cache: &CachePartition<TwoPool>) -> bool {
        let partition = cache.partition();
        let end = self.next_slot.saturating_add(LISTING_STEP_SLOTS).min(partition.slots_in_use());
        let listed = |slot| {
            let block = partition.block_in(Slot(slot))?;
            Some(ListedBlock::new(block, partition.policy().is_multi_touch(Slot(slot))))
        };
        let blocks: Vec<ListedBlock> = (self.next_slot..end).filter_map(listed).collect();
        self.next_slot = end;
        let is_heard = blocks.is_empty() || self.listener.send(ListingPiece::Blocks(blocks)).is_ok();
        let is_done = end >= partition.slots_in_use();
        if is_done {
            let _ = self.listener.send(ListingPiece::End);
        }
        is_done || !is_heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_cache::Insertion;
    use forebay_units::BlockSize;
    use std::sync::mpsc::channel;

    #[test]
    fn pieces_are_bounded_and_together_they_are_what_is_resident() {
        let size = BlockSize::new(forebay_units::Bytes(512)).unwrap();
        let mut cache = CachePartition::new(TwoPool::default(), size, 3000, 0);
        (0..2500).for_each(|block| {
            cache.insert(BlockIndex(block * 7), &[1], Insertion::Miss);
        });
        cache.get(BlockIndex(14));
        let (sender, pieces) = channel();
        let mut listing = Listing::new(sender);
        // 1,024 + 1,024 + 452 slots.
        assert_eq!([0; 3].map(|_| listing.step(&cache)), [false, false, true]);
        drop(listing);
        let mut pieces: Vec<ListingPiece> = pieces.iter().collect();
        assert_eq!(pieces.pop(), Some(ListingPiece::End));
        let mut all = Vec::new();
        for piece in pieces {
            let ListingPiece::Blocks(mut blocks) = piece else { panic!("two ends") };
            assert!(blocks.len() <= LISTING_STEP_SLOTS as usize);
            all.append(&mut blocks);
        }
        all.sort_unstable();
        let expected = (0..2500).map(|block| ListedBlock::new(BlockIndex(block * 7), block == 2));
        assert!(all.into_iter().eq(expected));
        // Nobody listens: it is over at once.
        let (sender, pieces) = channel();
        drop(pieces);
        assert!(Listing::new(sender).step(&cache));
    }
}
