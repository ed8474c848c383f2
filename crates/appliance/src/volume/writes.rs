//! Changes in flight: writes, trims and zeroes, with a FIFO list of those that wait. They are serialised by the origin's smallest unit.
//!
//! Those that share a block of the cache and no unit are in flight together: a run of writes that does not begin with a block, as behind a partition
//! at an odd sector, is no chain. The block counts as being changed until the last of them has ended.
//!
//! Invariants: the changes in flight are disjoint in units; a change waits only for what overlaps it and came before
//! it, in flight or waiting, so that none starves; a change in flight has at least one part at the origin.

use super::ranges::{RangeMap, RangeSet};
use super::request::{Errno, RequestTag};
use crate::slab::{Slab, SlabKey};
use forebay_origin::OriginOperation;
use forebay_units::{BlockRange, BlockSize, ByteRange, Nanos};
use std::collections::VecDeque;

/// What a change does to its range.
#[derive(Debug)]
pub(crate) enum Change {
    /// The bytes are kept here until they are handed to the origin; empty where all went into one part.
    Write {
        data: Vec<u8>,
    },
    Trim,
    WriteZeroes {
        may_trim: bool,
        fast: bool,
    },
}

/// A change in flight or waiting.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) tag: RequestTag,
    pub(crate) started: Nanos,
    pub(crate) range: ByteRange,
    pub(crate) blocks: BlockRange,
    /// The blocks of which it changes every byte.
    pub(crate) whole: BlockRange,
    /// What a client's read missed of its blocks since it is in flight: what of that it changes as a whole enters with what it makes of it, the rest
    /// is wanted of the next change. Runs, at most one for two blocks.
    pub(crate) wanted: RangeSet,
    pub(crate) change: Change,
    pub(crate) fua: bool,
    /// First byte that was not yet made into a part.
    pub(crate) cursor: u64,
    /// Parts at the origin or on their way.
    pub(crate) parts_pending: usize,
    pub(crate) error: Option<Errno>,
    /// With it the origin may have told of more than the change's own bytes, and will not again: a sync failed.
    pub(crate) is_said_once: bool,
    /// Memory holds none of its blocks: they left with its first part that was done.
    pub(crate) is_emptied: bool,
}

/// One part of a change: one origin request.
#[derive(Debug)]
pub(crate) struct WritePart {
    pub(crate) write: SlabKey,
    pub(crate) range: ByteRange,
    /// A copy of the bytes for blocks that are cached or enter, where the origin was given the only other one.
    pub(crate) kept: Option<Vec<u8>>,
    /// Gone once submitted.
    pub(crate) operation: Option<OriginOperation>,
    /// A way that was left may have made it, and it is asked of the next one.
    pub(crate) is_asked_again: bool,
}

/// The table of changes.
#[derive(Debug)]
pub(crate) struct Writes {
    pub(crate) writes: Slab<Write>,
    /// Changes in flight: runs of units, not of blocks.
    held: RangeMap,
    waiting: VecDeque<SlabKey>,
    /// The smallest unit of the origin, in bytes, and how many of them a block is.
    unit: u64,
    units_per_block: u64,
}

impl Writes {
    /// `unit`: the origin's smallest, in bytes; those of two requests that share none are at the origin in any order.
    pub(crate) fn new(unit: u32, block_size: BlockSize) -> Writes {
        let unit = u64::from(unit.max(1));
        debug_assert!(block_size.bytes().is_multiple_of(unit));
        let units_per_block = block_size.bytes() / unit;
        Writes {
            writes: Slab::new(),
            held: RangeMap::default(),
            waiting: VecDeque::new(),
            unit,
            units_per_block,
        }
    }

    /// The units that a range touches.
    fn units(&self, range: ByteRange) -> BlockRange {
        BlockRange { first: range.offset / self.unit, end: range.end().div_ceil(self.unit) }
    }

    fn units_of_blocks(&self, blocks: BlockRange) -> BlockRange {
        BlockRange { first: blocks.first * self.units_per_block, end: blocks.end * self.units_per_block }
    }

    /// Whether a change is in flight that touches any of `blocks`.
    pub(crate) fn changes(&self, blocks: BlockRange) -> bool {
        self.held.overlaps(self.units_of_blocks(blocks))
    }

    /// The blocks of the first change in flight that touches any of `blocks`.
    pub(crate) fn first_changing(&self, blocks: BlockRange) -> Option<BlockRange> {
        let run = self.held.first_overlapping(self.units_of_blocks(blocks))?;
        let per_block = self.units_per_block;
        Some(BlockRange { first: run.first / per_block, end: run.end.div_ceil(per_block) })
    }

    /// A client's read missed `blocks`: what changes in flight make of them enters when they have ended.
    pub(crate) fn want(&mut self, blocks: BlockRange) {
        for key in self.held.holders(self.units_of_blocks(blocks)) {
            self.writes.get_mut(key).expect("a change in flight is in the table").want(blocks);
        }
    }

    /// How many changes wait for others.
    pub(crate) fn waiting_len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes a change in; true if it may start now, false if it waits.
    pub(crate) fn admit(&mut self, write: Write) -> (SlabKey, bool) {
        let units = self.units(write.range);
        let waits_there = |key: &SlabKey| {
            self.writes.get(*key).is_some_and(|other| self.units(other.range).overlaps(units))
        };
        let blocked = self.held.overlaps(units) || self.waiting.iter().any(waits_there);
        let key = self.writes.insert(write);
        if blocked {
            self.waiting.push_back(key);
        } else {
            self.held.insert(units, key);
        }
        (key, !blocked)
    }

    /// Takes a change out whose parts have all ended.
    pub(crate) fn finish(&mut self, key: SlabKey) -> Write {
        let write = self.writes.remove(key).expect("a change is in the table until its last part ended");
        debug_assert!(write.parts_pending == 0);
        self.held.remove(self.units(write.range), key);
        write
    }

    /// Takes out the waiting changes that may start now; they are in flight from here on.
    pub(crate) fn startable(&mut self) -> Vec<SlabKey> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let mut started = Vec::new();
        // Units of those that go on waiting: who came later must not pass them.
        let mut claimed = RangeSet::default();
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|key| {
            let range = self.writes.get(*key).expect("waiting changes are in the table").range;
            let units = self.units(range);
            if self.held.overlaps(units) || claimed.overlaps(units) {
                claimed.insert(units);
                return true;
            }
            self.held.insert(units, *key);
            started.push(*key);
            false
        });
        self.waiting = waiting;
        started
    }
}

/// The blocks that both have.
pub(crate) fn common(one: BlockRange, other: BlockRange) -> BlockRange {
    let first = one.first.max(other.first);
    BlockRange { first, end: one.end.min(other.end).max(first) }
}

impl Write {
    /// Where the part that starts at the cursor ends: at most `part_bytes_max` further, and at the start of a block, so
    /// that no two parts touch one block.
    pub(crate) fn next_part_end(&self, part_bytes_max: u64, block_size: BlockSize) -> u64 {
        debug_assert!(part_bytes_max >= block_size.bytes());
        let reach = self.cursor + part_bytes_max;
        if reach >= self.range.end() {
            self.range.end()
        } else {
            reach >> block_size.shift() << block_size.shift()
        }
    }

    /// A client's read missed `blocks` while it is in flight.
    pub(crate) fn want(&mut self, blocks: BlockRange) {
        self.wanted.insert(common(self.blocks, blocks));
    }

    /// Cuts the part `self.cursor..end` off.
    pub(crate) fn cut_part(&mut self, key: SlabKey, end: u64) -> WritePart {
        let range = ByteRange::new(self.cursor, end - self.cursor);
        let fua = self.fua;
        let operation = match &mut self.change {
            Change::Write { data } => {
                let bytes = if range == self.range {
                    std::mem::take(data)
                } else {
                    let from = (range.offset - self.range.offset) as usize;
                    data[from..from + range.length as usize].to_vec()
                };
                OriginOperation::Write { offset: range.offset, data: bytes, fua }
            }
            Change::Trim => OriginOperation::Trim { range, fua },
            Change::WriteZeroes { may_trim, fast } => {
                OriginOperation::WriteZeroes { range, may_trim: *may_trim, fua, fast: *fast }
            }
        };
        self.cursor = end;
        self.parts_pending += 1;
        WritePart { write: key, range, kept: None, operation: Some(operation), is_asked_again: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_units::Bytes;

    fn write(offset: u64, length: u64) -> Write {
        let range = ByteRange::new(offset, length);
        Write {
            tag: RequestTag(offset),
            started: Nanos::ZERO,
            range,
            blocks: range.blocks(BlockSize::DEFAULT),
            whole: BlockRange { first: 0, end: 0 },
            wanted: RangeSet::default(),
            change: Change::Trim,
            fua: false,
            cursor: offset,
            parts_pending: 0,
            error: None,
            is_said_once: false,
            is_emptied: false,
        }
    }

    #[test]
    fn overlapping_changes_go_in_the_order_in_which_they_came() {
        let mut writes = Writes::new(512, BlockSize::DEFAULT);
        let (first, started) = writes.admit(write(0, 100));
        assert!(started);
        // Shares a unit with the first, although no byte: it waits.
        let (second, started) = writes.admit(write(200, 8192));
        assert!(!started);
        // Shares a unit with the second only: it must not pass it.
        let (third, started) = writes.admit(write(8192, 4096));
        assert!(!started);
        let (fourth, started) = writes.admit(write(16384, 1));
        assert!(started);
        assert_eq!(writes.startable(), []);
        writes.finish(first);
        assert_eq!(writes.startable(), [second]);
        writes.finish(fourth);
        assert_eq!(writes.startable(), []);
        writes.finish(second);
        assert_eq!(writes.startable(), [third]);
        assert_eq!(writes.waiting_len(), 0);
    }

    #[test]
    fn a_block_is_being_changed_until_the_last_that_shares_it_has_ended() {
        let run = |first, end| BlockRange { first, end };
        let mut writes = Writes::new(512, BlockSize::DEFAULT);
        // A run from sector 63 on: each shares a block with the one before, and no sector.
        let sector = |at: u64| at * 512;
        let (first, started) = writes.admit(write(sector(63), sector(16)));
        assert!(started);
        let (second, started) = writes.admit(write(sector(79), sector(16)));
        assert!(started);
        // The last sector of the first, and what comes after the second.
        let (third, started) = writes.admit(write(sector(78), 512));
        assert!(!started);
        assert!(writes.admit(write(sector(95), 100)).1);
        // Sectors 63 to 78 are blocks 7 to 9, 79 to 94 blocks 9 to 11, and 95 is block 11 too.
        assert_eq!(writes.first_changing(run(0, 20)), Some(run(7, 10)));
        assert_eq!(writes.first_changing(run(10, 20)), Some(run(9, 12)));
        assert!(writes.changes(run(9, 10)) && !writes.changes(run(0, 7)) && !writes.changes(run(12, 20)));
        writes.finish(second);
        assert_eq!(writes.startable(), []);
        assert!(writes.changes(run(9, 10)) && !writes.changes(run(10, 11)) && writes.changes(run(11, 12)));
        writes.finish(first);
        assert_eq!(writes.startable(), [third]);
        assert!(writes.changes(run(9, 10)) && !writes.changes(run(7, 9)));
        // Where a unit is a byte, bytes count.
        let mut writes = Writes::new(1, BlockSize::DEFAULT);
        assert!(writes.admit(write(0, 100)).1 && writes.admit(write(100, 100)).1);
        assert!(!writes.admit(write(199, 1)).1 && writes.changes(run(0, 1)) && !writes.changes(run(1, 2)));
    }

    #[test]
    fn parts_end_where_blocks_start() {
        let block_size = BlockSize::new(Bytes(4096)).unwrap();
        let mut change = write(1000, 20_000);
        let mut ends = Vec::new();
        while change.cursor < change.range.end() {
            let end = change.next_part_end(8192, block_size);
            ends.push(change.cut_part(SlabKey(0), end).range.end());
        }
        // 1,000 + 8,192 = 9,192, down to block 2; then 8,192 each; the end is 21,000.
        assert_eq!(ends, [8192, 16384, 21_000]);
        assert_eq!(change.parts_pending, 3);
    }
}
