//! Which block is at each place of a partition's segments, and the checksum of its content.
//!
//! Frame `f` has the places, and so the slots of the table, from `f * per_segment` on.

use forebay_policy::{SLOTS_MAX, SegmentedVec, Slot, SlotTable};
use forebay_units::BlockIndex;

/// The index of a partition.
#[derive(Debug)]
pub(super) struct Places {
    per_segment: u32,
    table: SlotTable,
    checksums: SegmentedVec<u64>,
}

impl Places {
    pub(super) fn new(per_segment: u32, seed: u64) -> Places {
        Places { per_segment, table: SlotTable::compact(seed), checksums: SegmentedVec::new() }
    }

    /// Places per segment.
    pub(super) fn per_segment(&self) -> u32 {
        self.per_segment
    }

    /// How many hold a block.
    pub(super) fn occupied(&self) -> u32 {
        self.table.occupied()
    }

    /// The frame and the place in it of a block.
    #[inline]
    pub(super) fn find(&self, block: BlockIndex) -> Option<(u32, u32)> {
        let slot = self.table.find(block)?;
        Some((slot.0 / self.per_segment, slot.0 % self.per_segment))
    }

    pub(super) fn checksum(&self, frame: u32, place: u32) -> u64 {
        *self.checksums.get(frame * self.per_segment + place)
    }

    pub(super) fn enter(&mut self, frame: u32, place: u32, block: BlockIndex, checksum: u64) {
        let slot = frame * self.per_segment + place;
        self.table.fill(Slot(slot), block);
        *self.checksums.get_mut(slot) = checksum;
    }

    /// Takes a block out; the frame that it was in.
    pub(super) fn take_out(&mut self, block: BlockIndex) -> Option<u32> {
        let slot = self.table.find(block)?;
        self.table.clear(slot, 0);
        Some(slot.0 / self.per_segment)
    }

    /// How many there are, with and without a block.
    pub(super) fn count(&self) -> u32 {
        self.table.len()
    }

    /// The block at a place, counted over all frames.
    pub(super) fn block_at(&self, place: u32) -> Option<BlockIndex> {
        self.table.block_in(Slot(place))
    }

    /// The blocks of a frame: (place, block, checksum).
    pub(super) fn of_frame(&self, frame: u32) -> impl Iterator<Item = (u32, BlockIndex, u64)> {
        (0..self.per_segment).filter_map(move |place| {
            let block = self.table.block_in(Slot(frame * self.per_segment + place))?;
            Some((place, block, self.checksum(frame, place)))
        })
    }

    /// Takes all blocks out of a frame; how many.
    pub(super) fn clear(&mut self, frame: u32) -> u64 {
        let first = frame * self.per_segment;
        let mut cleared = 0;
        for slot in first..first + self.per_segment {
            if self.table.block_in(Slot(slot)).is_some() {
                self.table.clear(Slot(slot), 0);
                cleared += 1;
            }
        }
        cleared
    }

    /// Gives the blocks of one frame to another, which is empty.
    pub(super) fn relocate(&mut self, from: u32, to: u32) {
        let (from, to) = (from * self.per_segment, to * self.per_segment);
        for place in 0..self.per_segment {
            if self.table.block_in(Slot(from + place)).is_some() {
                self.table.relocate(Slot(from + place), Slot(to + place), 0);
                *self.checksums.get_mut(to + place) = *self.checksums.get(from + place);
            }
        }
    }

    /// Places for one frame more; false if there is no memory for them, or no number.
    pub(super) fn grow(&mut self) -> bool {
        let slots = self.table.len();
        if u64::from(slots) + u64::from(self.per_segment) > u64::from(SLOTS_MAX) {
            return false;
        }
        let has_memory = self.checksums.try_extend_to(slots + self.per_segment, 0).is_ok()
            && (0..self.per_segment).all(|_| self.table.grow().is_ok());
        if !has_memory {
            self.shrink_to_slots(slots);
        }
        has_memory
    }

    /// Gives up the places of all frames from `frames` on, which are empty.
    pub(super) fn shrink_to(&mut self, frames: u32) {
        self.shrink_to_slots(frames * self.per_segment);
    }

    fn shrink_to_slots(&mut self, slots: u32) {
        while self.table.len() > slots {
            self.table.shrink();
        }
        self.checksums.truncate(slots);
    }

    /// Memory in bytes, by the capacity of its allocations.
    pub(super) fn footprint_bytes(&self) -> u64 {
        self.table.footprint_bytes() + self.checksums.footprint_bytes()
    }
}
