//! One volume's share of the flash tier: a log of segments, oldest first out, and the index of what is in them.
//!
//! Sans-I/O: it says what to write where ([`FlashPartition::take_write`]), is told what became of it, says where a block can be read
//! ([`FlashPartition::address`]) and judges what was read ([`FlashPartition::judge`]). Blocks that were not written yet are answered
//! from its buffers. It is *not* an eviction policy: blocks enter when memory evicts them, and leave with their segment. What memory
//! evicts again while its copy is in the older half of the log enters anew, so that what is used does not leave.
//!
//! Memory: 12 + 8 bytes of index and 8 of checksum for each place of a segment that it has, and about 40 for each segment: less than 29
//! bytes per block of 4 KiB in segments of 1 MiB (a test asserts it). Invariants: see the module above.

use super::format::{Geometry, VolumeId};
use super::index::{IndexEntry, IndexFrame, IndexItem};
use super::pool::SegmentPool;
use forebay_policy::{SLOTS_MAX, SegmentedVec, Slot, SlotTable};
use forebay_units::{BlockIndex, BlockRange, BlockSize, mix64};
use std::collections::VecDeque;
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Writing,
    Stored,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    segment: u32,
    live: u32,
    sequence: u64,
    /// How many frames had been opened when it was: its age, in segments.
    born: u64,
    state: State,
}

/// The segment that is being filled.
#[derive(Debug)]
struct Open {
    frame: u32,
    used: u32,
    bytes: Vec<u8>,
}

/// A segment on its way to the device.
#[derive(Debug)]
struct Writing {
    frame: u32,
    sequence: u64,
    bytes: Vec<u8>,
}

/// One volume's share of the flash tier. Dropping it gives its segments back.
#[derive(Debug)]
pub struct FlashPartition {
    settings: PartitionSettings,
    /// Blocks per segment.
    per_segment: u32,
    /// Frame `f` owns the slots from `f * per_segment` on.
    table: SlotTable,
    checksums: SegmentedVec<u64>,
    frames: Vec<Frame>,
    /// Sealed frames, oldest first.
    order: VecDeque<u32>,
    open: Option<Open>,
    writing: Vec<Writing>,
    to_write: VecDeque<FlashWrite>,
    opened: u64,
    counters: FlashStatistics,
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
            per_segment: per_segment as u32,
            table: SlotTable::new(settings.seed),
            checksums: SegmentedVec::new(),
            frames: Vec::new(),
            order: VecDeque::new(),
            open: None,
            writing: Vec::new(),
            to_write: VecDeque::new(),
            opened: 0,
            counters: FlashStatistics::default(),
            settings,
        }
    }

    // ---- Blocks -----------------------------------------------------------------------------------------------

    /// Whether `block` is resident; counts nothing.
    #[inline]
    pub fn contains(&self, block: BlockIndex) -> bool {
        self.table.find(block).is_some()
    }

    /// Whether nothing is resident.
    pub fn is_empty(&self) -> bool {
        self.table.occupied() == 0
    }

    /// Resident blocks.
    pub fn resident_blocks(&self) -> u32 {
        self.table.occupied()
    }

    /// The content of `block`, as long as it was not written to the device.
    pub fn buffered(&self, block: BlockIndex) -> Option<&[u8]> {
        let (frame, place) = self.find(block)?;
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
        let (frame, place) = self.find(block)?;
        let found = self.frames[frame as usize];
        (found.state == State::Stored).then(|| self.address_of(found, frame, place))
    }

    fn address_of(&self, found: Frame, frame: u32, place: u32) -> FlashAddress {
        let offset = self.settings.geometry.segment_offset(found.segment)
            + (u64::from(place) << self.settings.block_size.shift());
        let checksum = *self.checksums.get(frame * self.per_segment + place);
        FlashAddress { offset, sequence: found.sequence, checksum }
    }

    fn find(&self, block: BlockIndex) -> Option<(u32, u32)> {
        let slot = self.table.find(block)?;
        Some((slot.0 / self.per_segment, slot.0 % self.per_segment))
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
        let Some((frame, _)) = self.find(block) else { return false };
        let age = |frame: u32| self.opened - self.frames[frame as usize].born;
        let oldest = self.order.front().map_or(0, |oldest| age(*oldest));
        age(frame) <= oldest / 2
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
        let is_full = open.used == self.per_segment;
        self.counters.appended += 1;
        if is_full {
            self.seal();
        }
        Appended::Yes
    }

    fn enter(&mut self, frame: u32, place: u32, block: BlockIndex, checksum: u64) {
        let slot = frame * self.per_segment + place;
        self.table.fill(Slot(slot), block);
        *self.checksums.get_mut(slot) = checksum;
        self.frames[frame as usize].live += 1;
    }

    /// Takes the block out of the index; counts nothing.
    fn take_out(&mut self, block: BlockIndex) -> bool {
        let Some(slot) = self.table.find(block) else { return false };
        self.table.clear(slot, 0);
        self.frames[(slot.0 / self.per_segment) as usize].live -= 1;
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
        if blocks.count() <= u64::from(self.table.len() / 16).max(1) {
            for block in blocks {
                self.remove(block);
            }
            return;
        }
        for slot in 0..self.table.len() {
            if let Some(block) = self.table.block_in(Slot(slot))
                && (blocks.first..blocks.end).contains(&block.0)
            {
                self.remove(block);
            }
        }
    }

    // ---- Segments ---------------------------------------------------------------------------------------------

    /// Makes a frame the open one: a new one if quota and pool allow, or else the oldest, whose blocks leave.
    fn open_segment(&mut self) -> bool {
        if self.writing.len() >= WRITES_MAX || self.settings.quota_segments == 0 {
            return false;
        }
        let frame = if (self.frames.len() as u64) < u64::from(self.settings.quota_segments) {
            self.new_frame()
        } else {
            None
        };
        let Some(frame) = frame.or_else(|| self.reclaim_oldest()) else { return false };
        let sequence = self.settings.next_sequence;
        self.settings.next_sequence += 1;
        self.opened += 1;
        let found = &mut self.frames[frame as usize];
        (found.sequence, found.born, found.state) = (sequence, self.opened, State::Open);
        debug_assert_eq!(found.live, 0);
        let bytes = Vec::with_capacity(self.settings.geometry.segment_bytes as usize);
        self.open = Some(Open { frame, used: 0, bytes });
        true
    }

    fn new_frame(&mut self) -> Option<u32> {
        let segment = self.settings.pool.take()?;
        let frame = self.grow(segment);
        if frame.is_none() {
            self.settings.pool.give(segment);
        }
        frame
    }

    /// A frame more, for a segment that is ours; `None` if there is no memory for it.
    fn grow(&mut self, segment: u32) -> Option<u32> {
        let slots = self.table.len();
        if u64::from(slots) + u64::from(self.per_segment) > u64::from(SLOTS_MAX) {
            return None;
        }
        let has_memory = self.frames.try_reserve(1).is_ok()
            && self.checksums.try_extend_to(slots + self.per_segment, 0).is_ok()
            && (0..self.per_segment).all(|_| self.table.grow().is_ok());
        if !has_memory {
            self.shrink_to(slots);
            return None;
        }
        self.frames.push(Frame { segment, live: 0, sequence: 0, born: self.opened, state: State::Stored });
        Some(self.frames.len() as u32 - 1)
    }

    fn shrink_to(&mut self, slots: u32) {
        while self.table.len() > slots {
            self.table.shrink();
        }
        self.checksums.truncate(slots);
    }

    /// Empties the oldest frame and takes it out of the order, if it is on the device.
    fn reclaim_oldest(&mut self) -> Option<u32> {
        let frame = *self.order.front()?;
        if self.frames[frame as usize].state != State::Stored {
            return None;
        }
        self.order.pop_front();
        self.counters.evictions += self.clear(frame);
        Some(frame)
    }

    /// Takes all blocks out of a frame; how many.
    fn clear(&mut self, frame: u32) -> u64 {
        let first = frame * self.per_segment;
        let mut cleared = 0;
        for slot in first..first + self.per_segment {
            if self.table.block_in(Slot(slot)).is_some() {
                self.table.clear(Slot(slot), 0);
                cleared += 1;
            }
        }
        self.frames[frame as usize].live = 0;
        cleared
    }

    /// Sends the open frame on its way.
    fn seal(&mut self) {
        let Some(Open { frame, used, mut bytes }) = self.open.take() else { return };
        if used == 0 {
            self.remove_frame(frame);
            return;
        }
        bytes.resize(self.settings.geometry.segment_bytes as usize, 0);
        let found = &mut self.frames[frame as usize];
        found.state = State::Writing;
        let (sequence, offset) = (found.sequence, self.settings.geometry.segment_offset(found.segment));
        self.order.push_back(frame);
        self.to_write.push_back(FlashWrite { sequence, offset, data: bytes.clone() });
        self.writing.push(Writing { frame, sequence, bytes });
    }

    /// Sends what is buffered on its way, although its segment is not full: the partition is about to be stopped. At most one segment more
    /// than [`WRITES_MAX`] is on its way then.
    pub fn seal_open(&mut self) {
        self.seal();
    }

    /// The next segment to write.
    pub fn take_write(&mut self) -> Option<FlashWrite> {
        self.to_write.pop_front()
    }

    /// Whether a segment is to be written or on its way.
    pub fn is_writing(&self) -> bool {
        !self.writing.is_empty()
    }

    /// Whether everything that it holds is on the device.
    pub fn is_quiet(&self) -> bool {
        self.open.is_none() && self.writing.is_empty()
    }

    /// The write `sequence` ended. If it failed, its blocks leave and its segment is given back.
    pub fn write_ended(&mut self, sequence: u64, is_done: bool) {
        let Some(at) = self.writing.iter().position(|writing| writing.sequence == sequence) else { return };
        let Writing { frame, .. } = self.writing.swap_remove(at);
        if is_done {
            self.frames[frame as usize].state = State::Stored;
            self.counters.segments_written += 1;
        } else {
            self.counters.write_errors += 1;
            self.counters.evictions += self.clear(frame);
            self.order.retain(|other| *other != frame);
            self.remove_frame(frame);
        }
    }

    /// Gives an empty frame's segment back; the last frame takes its place.
    fn remove_frame(&mut self, frame: u32) {
        debug_assert_eq!(self.frames[frame as usize].live, 0);
        self.settings.pool.give(self.frames[frame as usize].segment);
        let last = self.frames.len() as u32 - 1;
        if frame != last {
            let (from, to) = (last * self.per_segment, frame * self.per_segment);
            for place in 0..self.per_segment {
                if self.table.block_in(Slot(from + place)).is_some() {
                    self.table.relocate(Slot(from + place), Slot(to + place), 0);
                    *self.checksums.get_mut(to + place) = *self.checksums.get(from + place);
                }
            }
            self.frames[frame as usize] = self.frames[last as usize];
            let renamed =
                self.order.iter_mut().chain(self.writing.iter_mut().map(|writing| &mut writing.frame));
            for number in renamed.chain(self.open.iter_mut().map(|open| &mut open.frame)) {
                if *number == last {
                    *number = frame;
                }
            }
        }
        self.frames.pop();
        self.shrink_to(last * self.per_segment);
    }

    // ---- Quota ------------------------------------------------------------------------------------------------

    /// Sets the quota; [`FlashPartition::step`] puts a smaller one in force.
    pub fn set_quota(&mut self, quota_segments: u32) {
        self.settings.quota_segments = quota_segments;
    }

    /// The quota in segments.
    pub fn quota_segments(&self) -> u32 {
        self.settings.quota_segments
    }

    /// Whether [`FlashPartition::step`] has something to do now.
    pub fn wants_step(&self) -> bool {
        self.frames.len() as u64 > u64::from(self.settings.quota_segments)
            && (self.open.as_ref().is_some_and(|_| self.settings.quota_segments == 0)
                || self
                    .order
                    .front()
                    .is_some_and(|oldest| self.frames[*oldest as usize].state == State::Stored))
    }

    /// Gives one segment above the quota back, the oldest; a few tens of microseconds.
    pub fn step(&mut self) {
        if !self.wants_step() {
            return;
        }
        if let Some(frame) = self.reclaim_oldest() {
            self.remove_frame(frame);
        } else if let Some(open) = self.open.take() {
            self.counters.evictions += self.clear(open.frame);
            self.remove_frame(open.frame);
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
            for place in 0..self.per_segment {
                let slot = frame * self.per_segment + place;
                if let Some(block) = self.table.block_in(Slot(slot)) {
                    let checksum = *self.checksums.get(slot);
                    visit(IndexItem::Entry(IndexEntry { place, block: block.0, checksum }));
                }
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
            resident_blocks: self.table.occupied(),
            segments: self.segments(),
            quota_segments: self.settings.quota_segments,
            ..self.counters
        }
    }

    /// Memory of the index in bytes, by the capacity of its allocations.
    pub fn footprint_bytes(&self) -> u64 {
        self.table.footprint_bytes()
            + self.checksums.footprint_bytes()
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

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_units::Bytes;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn settings(segments: u32, per_segment: u32, quota_segments: u32) -> PartitionSettings {
        let geometry = Geometry { segment_bytes: per_segment * 512, segments, records: 1 };
        PartitionSettings {
            device_id: 1,
            volume: VolumeId(2),
            geometry,
            block_size: BlockSize::new(Bytes(512)).unwrap(),
            quota_segments,
            next_sequence: 1 << 32,
            seed: 5,
            pool: SegmentPool::new(segments),
        }
    }

    fn content(value: u64) -> Vec<u8> {
        value.to_le_bytes().repeat(64)
    }

    /// A device that does what it is told at once, unless it is told not to.
    struct Device {
        bytes: Vec<u8>,
    }

    impl Device {
        fn new(settings: &PartitionSettings) -> Device {
            Device { bytes: vec![0; settings.geometry.end() as usize] }
        }

        fn write(&mut self, write: &FlashWrite) {
            let at = write.offset as usize;
            self.bytes[at..at + write.data.len()].copy_from_slice(&write.data);
        }

        fn read(&self, address: FlashAddress) -> Vec<u8> {
            self.bytes[address.offset as usize..][..512].to_vec()
        }
    }

    /// What the partition says `block` holds; a block that fails its judgement is gone.
    fn read(partition: &mut FlashPartition, device: &Device, block: u64) -> Option<Vec<u8>> {
        let block = BlockIndex(block);
        if let Some(bytes) = partition.buffered(block) {
            return Some(bytes.to_vec());
        }
        let address = partition.address(block)?;
        let bytes = device.read(address);
        let is_right = partition.judge(block, address, Some(&bytes));
        assert!(is_right || partition.address(block) != Some(address));
        is_right.then_some(bytes)
    }

    #[test]
    fn the_oldest_segment_leaves_and_what_was_used_stays() {
        let settings = settings(9, 2, 2);
        let mut device = Device::new(&settings);
        let mut partition = FlashPartition::new(settings);
        let mut append = |partition: &mut FlashPartition, block| {
            assert_eq!(partition.append(BlockIndex(block), &content(block)), Appended::Yes);
            while let Some(write) = partition.take_write() {
                device.write(&write);
                partition.write_ended(write.sequence, true);
            }
        };
        (0..4).for_each(|block| append(&mut partition, block));
        // Two segments of two: 0, 1 and 2, 3. The first is one segment old, the second none.
        assert!(
            !partition.keeps(BlockIndex(0))
                && partition.keeps(BlockIndex(2))
                && !partition.keeps(BlockIndex(9))
        );
        append(&mut partition, 0);
        // The first segment was reclaimed for it: 1 left.
        assert!(!partition.contains(BlockIndex(1)));
        append(&mut partition, 4);
        let found: Vec<u64> = (0..6).filter(|block| partition.contains(BlockIndex(*block))).collect();
        assert_eq!(found, [0, 2, 3, 4]);
        for block in found {
            assert_eq!(read(&mut partition, &device, block), Some(content(block)));
        }
        assert_eq!((partition.statistics().hits, partition.settings.pool.taken()), (4, 2));
        partition.set_quota(0);
        while partition.wants_step() {
            partition.step();
        }
        assert_eq!((partition.resident_blocks(), partition.settings.pool.taken()), (0, 0));
        assert_eq!(partition.append(BlockIndex(1), &content(1)), Appended::Refused);
    }

    #[test]
    fn torn_lost_misdirected_and_rotten_blocks_are_misses() {
        let settings = settings(9, 2, 8);
        let mut device = Device::new(&settings);
        let mut partition = FlashPartition::new(settings);
        let mut writes = Vec::new();
        for block in 0..8 {
            partition.append(BlockIndex(block), &content(block));
            writes.extend(partition.take_write());
        }
        for write in &writes {
            partition.write_ended(write.sequence, true);
        }
        // Blocks 0, 1: written, one bit of 1 flips. 2, 3: lost. 4, 5: torn in the middle of 5. 6, 7: written to where 0, 1 are.
        device.write(&writes[0]);
        device.bytes[writes[0].offset as usize + 600] ^= 4;
        let mut torn = writes[2].clone();
        torn.data.truncate(700);
        device.write(&torn);
        let answers: Vec<bool> = (0..8).map(|block| read(&mut partition, &device, block).is_some()).collect();
        assert_eq!(answers, [true, false, false, false, true, false, false, false]);
        let misdirected = FlashWrite { offset: writes[0].offset, ..writes[3].clone() };
        device.write(&misdirected);
        assert_eq!(read(&mut partition, &device, 0), None);
        assert_eq!(partition.statistics().corrupt, 7);
        assert_eq!(partition.resident_blocks(), 1);
    }

    #[test]
    fn an_older_content_of_the_same_block_at_the_same_place_is_not_believed() {
        let settings = settings(2, 1, 1);
        let mut device = Device::new(&settings);
        let mut partition = FlashPartition::new(settings);
        for value in [7, 7, 8] {
            partition.append(BlockIndex(3), &content(value));
            let write = partition.take_write().unwrap();
            if value == 7 && device.bytes.iter().all(|byte| *byte == 0) {
                device.write(&write);
            }
            partition.write_ended(write.sequence, true);
        }
        // The second and third write were lost: what is there is block 3 with the content of the first.
        assert_eq!(read(&mut partition, &device, 3), None);
    }

    #[test]
    fn the_index_is_at_most_32_bytes_per_block() {
        // Method: the capacity of every allocation of the index, divided by the resident blocks: 1 GiB of 4 KiB blocks in segments of
        // 1 MiB. Blocks of the test are 512 bytes in segments of 128 KiB, which makes 256 to a segment as well.
        let settings = settings(1100, 256, 1024);
        let mut partition = FlashPartition::new(settings);
        for block in 0..1024 * 256u64 {
            assert_eq!(partition.append(BlockIndex(block * 3), &[0; 512]), Appended::Yes);
            while let Some(write) = partition.take_write() {
                partition.write_ended(write.sequence, true);
            }
        }
        let per_block = partition.footprint_bytes() as f64 / f64::from(partition.resident_blocks());
        assert!(per_block <= 30.0, "{per_block} bytes per block");
        assert_eq!(partition.buffered_bytes(), 0);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Append { block: u64 },
        Invalidate { first: u64, count: u64 },
        Read { block: u64 },
        End { which: usize, is_done: bool },
        Quota(u32),
        GiveBack,
        Rot { at: usize },
        Seal,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            12 => (0u64..40).prop_map(|block| Step::Append { block }),
            2 => (0u64..40, 0u64..20).prop_map(|(first, count)| Step::Invalidate { first, count }),
            8 => (0u64..40).prop_map(|block| Step::Read { block }),
            5 => (0usize..8, 0u32..8).prop_map(|(which, luck)| Step::End { which, is_done: luck > 0 }),
            1 => (0u32..8).prop_map(Step::Quota),
            2 => Just(Step::GiveBack),
            1 => any::<usize>().prop_map(|at| Step::Rot { at }),
            1 => Just(Step::Seal),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn what_is_answered_is_what_was_appended_last(steps in prop::collection::vec(step(), 0..200), per_segment in 1u32..5) {
            let settings = settings(10, per_segment, 5);
            let pool = settings.pool.clone();
            let mut device = Device::new(&settings);
            let first = settings.geometry.first_segment() as usize;
            let mut partition = FlashPartition::new(settings);
            // What is true of each block that may be resident.
            let mut model: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
            let mut underway: Vec<FlashWrite> = Vec::new();
            let (mut value, mut rotten) = (1000, false);
            for step in steps {
                match step {
                    Step::Append { block } => {
                        value += 1;
                        let before = partition.contains(BlockIndex(block));
                        match partition.append(BlockIndex(block), &content(value)) {
                            Appended::Yes => { model.insert(block, content(value)); }
                            // What was here stays: the data path invalidates what it could not replace.
                            Appended::Refused => prop_assert!(before == partition.contains(BlockIndex(block))),
                        }
                    }
                    Step::Invalidate { first, count } => {
                        partition.invalidate(BlockRange { first, end: first + count });
                        (first..first + count).for_each(|block| { model.remove(&block); });
                        prop_assert!((first..first + count).all(|block| !partition.contains(BlockIndex(block))));
                    }
                    Step::Read { block } => {
                        let was_here = partition.contains(BlockIndex(block));
                        match read(&mut partition, &device, block) {
                            Some(bytes) => prop_assert_eq!(Some(&bytes), model.get(&block)),
                            None => prop_assert!(!was_here || rotten),
                        }
                    }
                    Step::End { which, is_done } if !underway.is_empty() => {
                        let write = underway.swap_remove(which % underway.len());
                        if is_done {
                            device.write(&write);
                        }
                        partition.write_ended(write.sequence, is_done);
                    }
                    Step::End { .. } => {}
                    Step::Quota(quota) => partition.set_quota(quota),
                    Step::GiveBack => partition.step(),
                    Step::Rot { at } => {
                        let place = first + at % (device.bytes.len() - first);
                        device.bytes[place] ^= 0x10;
                        rotten = true;
                    }
                    Step::Seal => partition.seal_open(),
                }
                underway.extend(std::iter::from_fn(|| partition.take_write()));
                prop_assert!(underway.len() <= WRITES_MAX + 1);
                prop_assert_eq!(pool.taken(), partition.segments());
                let live: u32 = partition.frames.iter().map(|frame| frame.live).sum();
                prop_assert_eq!(live, partition.resident_blocks());
            }
            let mut blocks = 0;
            for write in std::mem::take(&mut underway) {
                device.write(&write);
                partition.write_ended(write.sequence, true);
            }
            while partition.wants_step() { partition.step(); }
            prop_assert!(partition.segments() <= partition.quota_segments().max(u32::from(partition.open.is_some())));
            for block in 0..60 {
                if let Some(bytes) = read(&mut partition, &device, block) {
                    prop_assert_eq!(Some(&bytes), model.get(&block));
                    blocks += 1;
                }
            }
            prop_assert!(blocks <= partition.segments() * per_segment);
            drop(partition);
            prop_assert_eq!(pool.taken(), 0);
        }
    }
}
