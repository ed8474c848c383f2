//! One volume's share of the flash tier: a log of segments, oldest first out, and the index of what is in them.
//!
//! Sans-I/O: it says what to write where ([`FlashPartition::take_write`]), is told what became of it, says where a block can be read
//! ([`FlashPartition::address`]) and judges what was read ([`FlashPartition::judge`]). Blocks that were not written yet are answered
//! from its buffers. It is *not* an eviction policy: blocks enter when memory evicts them, and leave with their segment. What memory
//! evicts again while its copy is in the older half of the log enters anew, so that what is used does not leave.
//!
//! Memory: 12 + 8 bytes of index and 8 of checksum for each place of a segment that it has, and about 40 for each segment: less than 29
//! bytes per block of 4 KiB in segments of 1 MiB (a test asserts it). Invariants: see the module above.

mod places;
mod segments;
#[cfg(test)]
mod tests;

use super::format::{Geometry, VolumeId};
use super::index::{IndexEntry, IndexFrame, IndexItem};
use super::pool::SegmentPool;
use forebay_units::{BlockIndex, BlockRange, BlockSize, mix64};
use places::Places;
use segments::{Frame, Open, State, Writing};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Segments of a partition that may be on their way to the device at once (ours: enough for any device to write all the time).
pub const WRITES_MAX: usize = 4;

/// What a partition is made from.
#[derive(Clone, Debug)]
pub struct PartitionSettings {
    /// Drawn when the device was formatted.
    pub device_id: u64,
    /// Which volume.
    pub volume: VolumeId,
    /// How the device is divided.
    pub geometry: Geometry,
    /// The unit of caching; a segment holds at least one.
    pub block_size: BlockSize,
    /// How many segments it may have.
    pub quota_segments: u32,
    /// The number of its next segment. No start of any volume on the device has given it or one above it.
    pub next_sequence: u64,
    /// Makes the collisions of the index unpredictable to clients.
    pub seed: u64,
    /// Where segments come from.
    pub pool: SegmentPool,
}

/// Where a block is on the device, and how to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashAddress {
    /// First byte on the device.
    pub offset: u64,
    /// The number of its segment.
    pub sequence: u64,
    /// The checksum that its content has.
    pub checksum: u64,
}

/// A segment to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlashWrite {
    /// Pairs it with its end ([`FlashPartition::write_ended`]).
    pub sequence: u64,
    /// First byte on the device.
    pub offset: u64,
    /// A whole segment.
    pub data: Vec<u8>,
}

/// What became of a block that was to enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// It is there, and will be written with its segment.
    Yes,
    /// It is not: there is no quota, no segment to be had, no memory, or the device does not keep up.
    Refused,
}

/// Counters since the partition was made, and its size now. Blocks, unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashStatistics {
    /// Answered from the device or from a buffer.
    pub hits: u64,
    /// Looked up and not there.
    pub misses: u64,
    /// Entered.
    pub appended: u64,
    /// Did not enter.
    pub refused: u64,
    /// Left with their segment.
    pub evictions: u64,
    /// Left because they were no longer true.
    pub invalidations: u64,
    /// Read, and not what was written: misses all of them.
    pub corrupt: u64,
    /// Not read because the device gave an error: misses.
    pub read_errors: u64,
    /// Segments that could not be written.
    pub write_errors: u64,
    /// Segments written.
    pub segments_written: u64,
    /// Recovered at start.
    pub recovered: u64,
    /// Resident now.
    pub resident_blocks: u32,
    /// Segments that it has now.
    pub segments: u32,
    /// Segments that it may have now.
    pub quota_segments: u32,
}

/// One volume's share of the flash tier. Dropping it gives its segments back.
#[derive(Debug)]
pub struct FlashPartition {
    settings: PartitionSettings,
    places: Places,
    frames: Vec<Frame>,
    /// Sealed frames, oldest first.
    order: VecDeque<u32>,
    open: Option<Open>,
    writing: Vec<Writing>,
    to_write: VecDeque<FlashWrite>,
    opened: u64,
    counters: FlashStatistics,
    /// Tells the tier that it is alive.
    served: Arc<()>,
}

impl FlashPartition {
    /// A partition without blocks.
    ///
    /// # Panics
    /// If not even one block fits into a segment.
    pub fn new(settings: PartitionSettings) -> FlashPartition {
        let per_segment = u64::from(settings.geometry.segment_bytes) >> settings.block_size.shift();
        assert!(per_segment > 0, "a block of {} does not fit into a segment", settings.block_size);
        FlashPartition {
            places: Places::new(per_segment as u32, settings.seed),
            frames: Vec::new(),
            order: VecDeque::new(),
            open: None,
            writing: Vec::new(),
            to_write: VecDeque::new(),
            opened: 0,
            counters: FlashStatistics::default(),
            served: Arc::default(),
            settings,
        }
    }

    // ---- Blocks -----------------------------------------------------------------------------------------------

    /// Whether `block` is resident; counts nothing.
    #[inline]
    pub fn contains(&self, block: BlockIndex) -> bool {
        self.places.find(block).is_some()
    }

    /// Whether nothing is resident.
    pub fn is_empty(&self) -> bool {
        self.places.occupied() == 0
    }

    /// Resident blocks.
    pub fn resident_blocks(&self) -> u32 {
        self.places.occupied()
    }

    /// The content of `block`, as long as it was not written to the device.
    pub fn buffered(&self, block: BlockIndex) -> Option<&[u8]> {
        let (frame, place) = self.places.find(block)?;
        let bytes = match self.frames[frame as usize].state {
            State::Stored => return None,
            State::Open => &self.open.as_ref().expect("an open frame has a buffer").bytes,
            State::Writing => {
                &self
                    .writing
                    .iter()
                    .find(|writing| writing.frame == frame)
                    .expect("a frame that is being written has a buffer")
                    .bytes
            }
        };
        let block_bytes = self.block_bytes();
        Some(&bytes[place as usize * block_bytes..][..block_bytes])
    }

    /// Where `block` can be read; `None` if it is not resident, or only in a buffer.
    pub fn address(&self, block: BlockIndex) -> Option<FlashAddress> {
        let (frame, place) = self.places.find(block)?;
        let found = self.frames[frame as usize];
        (found.state == State::Stored).then(|| self.address_of(found, frame, place))
    }

    fn address_of(&self, found: Frame, frame: u32, place: u32) -> FlashAddress {
        let offset = self.settings.geometry.segment_offset(found.segment)
            + (u64::from(place) << self.settings.block_size.shift());
        let checksum = self.places.checksum(frame, place);
        FlashAddress { offset, sequence: found.sequence, checksum }
    }

    /// Judges what was read of `block` at `address`; `None`: the device gave an error. True if it is what was written. If not, the block
    /// leaves, unless it was written elsewhere meanwhile.
    pub fn judge(&mut self, block: BlockIndex, address: FlashAddress, bytes: Option<&[u8]>) -> bool {
        if let Some(bytes) = bytes
            && self.checksum(block, address.sequence, bytes) == address.checksum
        {
            self.counters.hits += 1;
            return true;
        }
        if self.address(block) == Some(address) {
            match bytes {
                Some(_) => self.counters.corrupt += 1,
                None => self.counters.read_errors += 1,
            }
            self.remove(block);
        } else {
            // It left while it was read, and its segment may have been taken for others: no fault.
            self.counters.misses += 1;
        }
        false
    }

    /// The checksum of a block's content at its place.
    fn checksum(&self, block: BlockIndex, sequence: u64, bytes: &[u8]) -> u64 {
        let volume = self.settings.volume.0;
        let seed = [volume as u64, (volume >> 64) as u64, block.0, sequence]
            .iter()
            .fold(self.settings.device_id, |seed, part| mix64(seed ^ part));
        xxh3_64_with_seed(bytes, seed)
    }

    /// Counts blocks answered from a buffer.
    pub fn count_hit(&mut self) {
        self.counters.hits += 1;
    }

    /// Counts a block that was looked up and not there.
    pub fn count_miss(&mut self) {
        self.counters.misses += 1;
    }

    /// Whether `block`, which memory evicts, need not enter: it is here, and will be for a while.
    pub fn keeps(&self, block: BlockIndex) -> bool {
        let Some((frame, _)) = self.places.find(block) else { return false };
        let age = |frame: u32| self.opened - self.frames[frame as usize].born;
        // How old a segment gets before it is written anew: as old as the oldest, or more where there is room for others.
        let oldest = self.order.front().map_or(0, |oldest| age(*oldest));
        let quota = u64::from(self.settings.quota_segments);
        let has_room = (self.frames.len() as u64) < quota && self.settings.pool.has_room();
        let span = if has_room { oldest.max(quota - 1) } else { oldest };
        age(frame) <= span / 2
    }

    /// Lets `block` enter with its content, a whole block; the copy that was here leaves.
    ///
    /// # Panics
    /// If `bytes` is not a whole block.
    pub fn append(&mut self, block: BlockIndex, bytes: &[u8]) -> Appended {
        assert_eq!(bytes.len(), self.block_bytes(), "flash takes whole blocks");
        if self.open.is_none() && !self.open_segment() {
            self.counters.refused += 1;
            return Appended::Refused;
        }
        self.take_out(block);
        let open = self.open.as_ref().expect("opened above");
        let (frame, place) = (open.frame, open.used);
        let sequence = self.frames[frame as usize].sequence;
        let checksum = self.checksum(block, sequence, bytes);
        self.enter(frame, place, block, checksum);
        let open = self.open.as_mut().expect("opened above");
        open.bytes.extend_from_slice(bytes);
        open.used += 1;
        let is_full = open.used == self.places.per_segment();
        self.counters.appended += 1;
        if is_full {
            self.seal();
        }
        Appended::Yes
    }

    fn enter(&mut self, frame: u32, place: u32, block: BlockIndex, checksum: u64) {
        self.places.enter(frame, place, block, checksum);
        self.frames[frame as usize].live += 1;
    }

    /// Takes the block out of the index; counts nothing.
    fn take_out(&mut self, block: BlockIndex) -> bool {
        let Some(frame) = self.places.take_out(block) else { return false };
        self.frames[frame as usize].live -= 1;
        true
    }

    /// Removes `block` because it is no longer true, or not to be had; returns whether it was here.
    pub fn remove(&mut self, block: BlockIndex) -> bool {
        let was_here = self.take_out(block);
        self.counters.invalidations += u64::from(was_here);
        was_here
    }

    /// Removes what is resident of `blocks`. Cost: a look-up per block of the range or a read of all places, whatever is less.
    pub fn invalidate(&mut self, blocks: BlockRange) {
        if blocks.is_empty() || self.is_empty() {
            return;
        }
        if blocks.count() <= u64::from(self.places.count() / 16).max(1) {
            for block in blocks {
                self.remove(block);
            }
            return;
        }
        for place in 0..self.places.count() {
            if let Some(block) = self.places.block_at(place)
                && (blocks.first..blocks.end).contains(&block.0)
            {
                self.remove(block);
            }
        }
    }

    // ---- Start and stop ---------------------------------------------------------------------------------------

    /// A frame that was found on the device, whose segment is ours; its blocks follow. False if it does not go in.
    pub(crate) fn restore_frame(&mut self, frame: IndexFrame) -> bool {
        let Some(at) = self.grow(frame.segment) else { return false };
        self.opened += 1;
        (self.frames[at as usize].sequence, self.frames[at as usize].born) = (frame.sequence, self.opened);
        self.order.push_back(at);
        true
    }

    /// A block of the frame restored last.
    pub(crate) fn restore_entry(&mut self, entry: IndexEntry) {
        let frame = self.frames.len() as u32 - 1;
        self.take_out(BlockIndex(entry.block));
        self.enter(frame, entry.place, BlockIndex(entry.block), entry.checksum);
        self.counters.recovered += 1;
    }

    /// The index, oldest frame first. Nothing is open or on its way.
    pub(crate) fn visit_index(&self, mut visit: impl FnMut(IndexItem)) {
        debug_assert!(self.open.is_none() && self.writing.is_empty());
        for frame in &self.order {
            let Frame { segment, live, sequence, .. } = self.frames[*frame as usize];
            visit(IndexItem::Frame(IndexFrame { segment, live, sequence }));
            for (place, block, checksum) in self.places.of_frame(*frame) {
                visit(IndexItem::Entry(IndexEntry { place, block: block.0, checksum }));
            }
        }
    }

    /// Gives the oldest segment back, so that the index has room; false if there is none.
    pub(crate) fn drop_oldest(&mut self) -> bool {
        let oldest = self.reclaim_oldest();
        oldest.inspect(|frame| self.remove_frame(*frame)).is_some()
    }

    /// Forgets everything and keeps its segments taken: what is in them is to be found at the next start. Returns them.
    pub(crate) fn keep(mut self) -> Vec<u32> {
        std::mem::take(&mut self.frames).into_iter().map(|frame| frame.segment).collect()
    }

    /// Alive as long as the partition is.
    pub(crate) fn serve(&self) -> Weak<()> {
        Arc::downgrade(&self.served)
    }

    pub(crate) fn settings(&self) -> &PartitionSettings {
        &self.settings
    }

    /// Segments that it has.
    pub fn segments(&self) -> u32 {
        self.frames.len() as u32
    }

    fn block_bytes(&self) -> usize {
        self.settings.block_size.bytes() as usize
    }

    /// The size of a segment in bytes.
    pub fn segment_bytes(&self) -> u32 {
        self.settings.geometry.segment_bytes
    }

    /// The counters.
    pub fn statistics(&self) -> FlashStatistics {
        FlashStatistics {
            resident_blocks: self.places.occupied(),
            segments: self.segments(),
            quota_segments: self.settings.quota_segments,
            ..self.counters
        }
    }

    /// Memory of the index in bytes, by the capacity of its allocations.
    pub fn footprint_bytes(&self) -> u64 {
        self.places.footprint_bytes()
            + (self.frames.capacity() * size_of::<Frame>() + self.order.capacity() * size_of::<u32>()) as u64
    }

    /// Memory of blocks that are not on the device yet, in bytes: at most twice `WRITES_MAX + 1` segments, since what is on its way is
    /// here and with the device.
    pub fn buffered_bytes(&self) -> u64 {
        let segments = self.writing.len() + self.to_write.len() + usize::from(self.open.is_some());
        segments as u64 * u64::from(self.segment_bytes())
    }
}

impl Drop for FlashPartition {
    fn drop(&mut self) {
        for frame in &self.frames {
            self.settings.pool.give(frame.segment);
        }
    }
}
