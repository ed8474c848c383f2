//! One flash device from start to stop: formatted, volumes loaded and saved. The only code of the flash tier that blocks.
//!
//! What makes a recovered index right: it was saved after the last change of the volume had ended; the origin has the stamp that it had
//! then; and both copies of the record were revoked, durably, before the volume could be changed again. Anything less is an empty cache.

use super::device::FlashDevice;
use super::format::{
    FormatError, Geometry, INDEX_HEADER_BYTES, IndexHeader, NO_SEGMENT, Record, RecordState, SECTOR,
    Superblock, VolumeId,
};
use super::index::{IndexItem, IndexReader, IndexWriter};
use super::partition::{FlashPartition, PartitionSettings};
use super::pool::SegmentPool;
use forebay_units::{BlockSize, Bytes};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// How often a revocation is tried before the device is given up (ours).
const REVOCATIONS_MAX: usize = 3;

/// What a tier is opened with.
#[derive(Clone, Copy, Debug)]
pub struct TierSettings {
    /// Bytes of a segment: a power of two of at least 4 KiB. 1 MiB is large enough for flash to take it as one.
    pub segment_bytes: u32,
    /// How many volumes may be remembered.
    pub records: u32,
    /// The number that the device gets if it is formatted; random.
    pub device_id: u64,
    /// A number that never falls from one start to the next, such as the time in seconds, in case that the device forgot its own.
    pub epoch_floor: u64,
}

/// How a device was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// As it was left.
    Found,
    /// It was empty, and is formatted now.
    New,
    /// It was ours, but could not be used, and is formatted anew; what it held is dropped.
    Formatted {
        /// Why.
        why: String,
    },
}

/// Which volume is to be loaded, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct VolumeSettings {
    /// Which volume.
    pub volume: VolumeId,
    /// What the origin looks like now, such that it looks different if anybody changed it since; `None`: nobody can know.
    pub stamp: Option<[u8; 32]>,
    /// Nobody can change the volume through us: an index stays valid while it is served.
    pub read_only: bool,
    /// The unit of caching.
    pub block_size: BlockSize,
    /// How many segments it may have.
    pub quota_segments: u32,
    /// Makes the collisions of the index unpredictable to clients.
    pub seed: u64,
}

/// What was found of a volume's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// They are here.
    Kept {
        /// How many.
        blocks: u64,
    },
    /// The volume was not here before.
    New,
    /// The last stop was not in order, so that writes may have happened after what is on the device.
    Unclean,
    /// Nobody can know whether the origin was changed meanwhile.
    Unprovable,
    /// The origin was changed meanwhile.
    OriginChanged,
    /// The volume was cached in blocks of another size.
    BlockSizeChanged,
    /// The index cannot be read, or is not what was written.
    IndexDamaged,
}

/// What became of a volume that was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// The next start will find it.
    Kept {
        /// How many blocks.
        blocks: u64,
    },
    /// Nobody will be able to know whether the origin was changed meanwhile, so nothing was kept.
    Unprovable,
}

/// Why the flash tier cannot do something.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FlashError {
    /// The device gave an error.
    #[error("flash device: {doing} failed")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The device holds something that is not ours, which is not overwritten.
    #[error(
        "flash device holds something else (it starts with {found:02x?}); to use it all the same, clear its first 4 KiB"
    )]
    Foreign {
        /// Its first bytes.
        found: [u8; 8],
    },
    /// There is no room for anything.
    #[error("flash device of `{found}` is too small for two segments of `{segment}`")]
    TooSmall {
        /// Its size.
        found: Bytes,
        /// The size of a segment.
        segment: Bytes,
    },
    /// The device does not keep what is written, so that a later start might believe what is no longer true.
    #[error(
        "flash device does not keep what is written: a record of a volume could not be revoked in {REVOCATIONS_MAX} attempts"
    )]
    NotRevoked,
    /// All records are of volumes that are served.
    #[error("flash device has records for `{most}` volumes, and all are served")]
    TooManyVolumes {
        /// How many there are.
        most: u32,
    },
    /// The volume is served already.
    #[error("the volume is on the flash device already")]
    Twice,
}

fn io_error(doing: &'static str) -> impl FnOnce(io::Error) -> FlashError {
    move |source| FlashError::Io { doing, source }
}

#[derive(Clone, Debug, Default)]
struct Slot {
    /// What both copies say, if they say the same.
    record: Option<Record>,
    is_served: bool,
    /// Segments that nobody else may have: of a volume that is stopped, its blocks and its index; of one that is served, its index for as
    /// long as that is good.
    held: Vec<u32>,
}

impl Slot {
    /// The volume is no longer served.
    fn release(&mut self, pool: &SegmentPool) {
        self.is_served = false;
        self.held.drain(..).for_each(|segment| pool.give(segment));
    }
}

#[derive(Debug)]
struct State {
    slots: Vec<Slot>,
    next_epoch: u64,
}

/// One flash device, shared by all volumes.
pub struct FlashTier {
    device: Arc<dyn FlashDevice>,
    superblock: Superblock,
    pool: SegmentPool,
    state: Mutex<State>,
}

impl std::fmt::Debug for FlashTier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlashTier").field("superblock", &self.superblock).finish_non_exhaustive()
    }
}

impl FlashTier {
    /// Opens a device, and formats it where it is empty, or ours and of no use.
    ///
    /// # Errors
    /// [`FlashError`]: the device gives errors, is too small, or holds something that is not ours.
    pub fn open(
        device: Arc<dyn FlashDevice>,
        settings: &TierSettings,
    ) -> Result<(FlashTier, Opened), FlashError> {
        let size = device.size_bytes();
        let segment = Bytes(settings.segment_bytes.into());
        let geometry = Geometry::of_device(size, settings.segment_bytes, settings.records)
            .ok_or(FlashError::TooSmall { found: Bytes(size), segment })?;
        let sector = device.read(0, SECTOR).map_err(io_error("reading the superblock"))?;
        let (superblock, opened) = match Superblock::decode(&sector) {
            Ok(found) if found.geometry == geometry => (found, Opened::Found),
            Ok(found) => {
                let why = format!("it is divided as {:?}, expected {geometry:?}", found.geometry);
                (Superblock { geometry, device_id: settings.device_id }, Opened::Formatted { why })
            }
            Err(FormatError::Empty) => (Superblock { geometry, device_id: settings.device_id }, Opened::New),
            Err(FormatError::Magic { found, .. }) => return Err(FlashError::Foreign { found }),
            Err(error) => {
                let why = format!("superblock: {error}");
                (Superblock { geometry, device_id: settings.device_id }, Opened::Formatted { why })
            }
        };
        if opened != Opened::Found {
            device.write(0, &superblock.encode()).map_err(io_error("writing the superblock"))?;
            device.sync().map_err(io_error("syncing the superblock"))?;
        }
        let mut state = State {
            slots: vec![Slot::default(); geometry.records as usize],
            next_epoch: settings.epoch_floor.max(1),
        };
        for (number, slot) in (0..).zip(&mut state.slots) {
            let mut copies = [None, None];
            for (copy, found) in (0..).zip(&mut copies) {
                let offset = geometry.record_offset(number, copy);
                // One that cannot be read now may be read at another start, and be old by then: nothing is done without it.
                let sector = device.read(offset, SECTOR).map_err(io_error("reading a record"))?;
                *found = Record::decode(&sector, superblock.device_id, offset).ok();
                if let Some(record) = found {
                    state.next_epoch = state.next_epoch.max(record.epoch + 1);
                }
            }
            if copies[0] == copies[1] {
                slot.record = copies[0];
            }
        }
        let pool = SegmentPool::new(geometry.segments);
        Ok((FlashTier { device, superblock, pool, state: Mutex::new(state) }, opened))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the device is divided.
    pub fn geometry(&self) -> Geometry {
        self.superblock.geometry
    }

    /// Its free segments.
    pub fn pool(&self) -> &SegmentPool {
        &self.pool
    }

    /// The share of a volume that is about to be served, with what can be proved of its blocks. May block for as long as reading the
    /// index takes. When this returns, a start after a crash will not believe what was found here (unless the volume is read-only).
    ///
    /// # Errors
    /// [`FlashError`]; the volume must not be served with changes then, since the device may still say that its index is good.
    pub fn load(&self, settings: &VolumeSettings) -> Result<(FlashPartition, Recovery), FlashError> {
        let mut state = self.lock();
        let is_its = |slot: &Slot| slot.record.is_some_and(|record| record.volume == settings.volume);
        let number = match state.slots.iter().position(is_its) {
            Some(number) if state.slots[number].is_served => return Err(FlashError::Twice),
            Some(number) => number,
            // An empty record, or one of a volume that nobody serves now.
            None => {
                let free = state.slots.iter().position(|slot| slot.record.is_none() && !slot.is_served);
                let free = free.or_else(|| state.slots.iter().position(|slot| !slot.is_served));
                free.ok_or(FlashError::TooManyVolumes { most: self.geometry().records })?
            }
        };
        state.slots[number].release(&self.pool);
        let record = state.slots[number].record.filter(|record| record.volume == settings.volume);
        let epoch = state.next_epoch;
        state.next_epoch += 1;
        let mut partition = self.partition(settings, epoch);
        let mut index = Vec::new();
        let recovery = match self.judge(record, settings) {
            Ok(record) => match self.read_index(&record, &mut partition, &mut index) {
                Some(blocks) => Recovery::Kept { blocks },
                None => {
                    partition = self.partition(settings, epoch);
                    Recovery::IndexDamaged
                }
            },
            Err(recovery) => recovery,
        };
        while partition.wants_step() {
            partition.step();
        }
        let is_kept = matches!(recovery, Recovery::Kept { .. });
        let record = match record {
            // Nothing that we serve can make the index untrue; but the numbers of segments must not be given again.
            Some(record) if settings.read_only && is_kept => Record { epoch, ..record },
            _ => Record {
                device_id: self.superblock.device_id,
                volume: settings.volume,
                epoch,
                index_epoch: 0,
                state: RecordState::InUse,
                stamp: [0; 32],
                block_bytes: settings.block_size.bytes() as u32,
                index_first: NO_SEGMENT,
                index_segments: 0,
                blocks: 0,
            },
        };
        self.establish(number as u32, &record)?;
        if record.state == RecordState::Clean {
            index.retain(|segment| self.pool.claim(*segment));
            state.slots[number].held = index;
        }
        state.slots[number].record = Some(record);
        state.slots[number].is_served = true;
        Ok((partition, recovery))
    }

    fn partition(&self, settings: &VolumeSettings, epoch: u64) -> FlashPartition {
        FlashPartition::new(PartitionSettings {
            device_id: self.superblock.device_id,
            volume: settings.volume,
            geometry: self.superblock.geometry,
            block_size: settings.block_size,
            quota_segments: settings.quota_segments,
            next_sequence: epoch << 32,
            seed: settings.seed,
            pool: self.pool.clone(),
        })
    }

    /// Whether the index that a record points to may be believed.
    fn judge(&self, record: Option<Record>, settings: &VolumeSettings) -> Result<Record, Recovery> {
        let record = record.ok_or(Recovery::New)?;
        if record.state != RecordState::Clean {
            return Err(Recovery::Unclean);
        }
        if u64::from(record.block_bytes) != settings.block_size.bytes() {
            return Err(Recovery::BlockSizeChanged);
        }
        let stamp = settings.stamp.ok_or(Recovery::Unprovable)?;
        if stamp == record.stamp { Ok(record) } else { Err(Recovery::OriginChanged) }
    }

    /// Reads the index into the partition; how many blocks it names, or `None` if anything about it is wrong.
    fn read_index(
        &self,
        record: &Record,
        partition: &mut FlashPartition,
        index: &mut Vec<u32>,
    ) -> Option<u64> {
        let geometry = self.geometry();
        let per_segment = geometry.segment_bytes / record.block_bytes;
        let mut reader = IndexReader::new(per_segment);
        let (mut segment, mut blocks, mut is_taken) = (record.index_first, 0, false);
        for ordinal in 0..record.index_segments {
            if segment >= geometry.segments {
                return None;
            }
            let bytes =
                self.device.read(geometry.segment_offset(segment), geometry.segment_bytes as usize).ok()?;
            let (header, payload) = IndexHeader::decode(&bytes).ok()?;
            let expected = IndexHeader {
                device_id: record.device_id,
                volume: record.volume,
                epoch: record.index_epoch,
                ordinal,
                ..header
            };
            if header != expected {
                return None;
            }
            let read = reader.read(payload, |item| match item {
                // A segment that another volume has by now is not ours any more.
                IndexItem::Frame(frame) => {
                    is_taken = frame.segment < geometry.segments && self.pool.claim(frame.segment);
                    if is_taken && !partition.restore_frame(frame) {
                        self.pool.give(frame.segment);
                        is_taken = false;
                    }
                }
                IndexItem::Entry(entry) => {
                    blocks += 1;
                    if is_taken {
                        partition.restore_entry(entry);
                    }
                }
            });
            read.ok()?;
            index.push(segment);
            segment = header.next;
        }
        reader.finish().ok()?;
        (blocks == record.blocks && segment == NO_SEGMENT).then(|| u64::from(partition.resident_blocks()))
    }

    /// Makes both copies of a record say what `record` says, and makes sure: what they said before is revoked.
    fn establish(&self, number: u32, record: &Record) -> Result<(), FlashError> {
        let geometry = self.geometry();
        for _ in 0..REVOCATIONS_MAX {
            self.write_record(number, record)?;
            let is_there = |copy| {
                let offset = geometry.record_offset(number, copy);
                let sector = self.device.read(offset, SECTOR).ok()?;
                Record::decode(&sector, self.superblock.device_id, offset).ok()
            };
            if is_there(0) == Some(*record) && is_there(1) == Some(*record) {
                return Ok(());
            }
        }
        Err(FlashError::NotRevoked)
    }

    fn write_record(&self, number: u32, record: &Record) -> Result<(), FlashError> {
        for copy in 0..2 {
            let offset = self.geometry().record_offset(number, copy);
            self.device.write(offset, &record.encode(offset)).map_err(io_error("writing a record"))?;
        }
        self.device.sync().map_err(io_error("syncing a record"))
    }

    /// The volume is no longer served: keeps its blocks for the next start. Every change of it has ended, nothing of it is in doubt, and
    /// `stamp` is what the origin looks like after that. Blocks for as long as writing the index takes.
    ///
    /// # Errors
    /// [`FlashError`]; the next start will find nothing then.
    ///
    /// # Panics
    /// If something is on its way to the device.
    pub fn save(&self, mut partition: FlashPartition, stamp: Option<[u8; 32]>) -> Result<Saved, FlashError> {
        assert!(partition.is_quiet(), "a partition is saved while it is being written");
        let mut state = self.lock();
        let volume = partition.settings().volume;
        let found = state
            .slots
            .iter()
            .position(|slot| slot.is_served && slot.record.is_some_and(|r| r.volume == volume));
        let Some(number) = found else { return Ok(Saved::Unprovable) };
        state.slots[number].release(&self.pool);
        let Some(stamp) = stamp else { return Ok(Saved::Unprovable) };
        let epoch = state.next_epoch;
        state.next_epoch += 1;
        let mut index = Vec::new();
        let result = self.write_index(&mut partition, epoch, &mut index);
        let result = result.and_then(|()| {
            // Blocks and index are stable before anything points to them.
            self.device.sync().map_err(io_error("syncing an index"))?;
            let blocks = u64::from(partition.resident_blocks());
            let record = Record {
                device_id: self.superblock.device_id,
                volume,
                epoch,
                index_epoch: epoch,
                state: RecordState::Clean,
                stamp,
                block_bytes: partition.settings().block_size.bytes() as u32,
                index_first: index.first().copied().unwrap_or(NO_SEGMENT),
                index_segments: index.len() as u32,
                blocks,
            };
            self.write_record(number as u32, &record)?;
            Ok(record)
        });
        match result {
            Ok(record) => {
                state.slots[number].record = Some(record);
                state.slots[number].held = partition.keep();
                state.slots[number].held.append(&mut index);
                Ok(Saved::Kept { blocks: record.blocks })
            }
            Err(error) => {
                index.into_iter().for_each(|segment| self.pool.give(segment));
                Err(error)
            }
        }
    }

    /// Writes the index into segments of its own, for which the oldest blocks leave if there are no others.
    fn write_index(
        &self,
        partition: &mut FlashPartition,
        epoch: u64,
        index: &mut Vec<u32>,
    ) -> Result<(), FlashError> {
        let geometry = self.geometry();
        let payload_bytes = geometry.segment_bytes as usize - INDEX_HEADER_BYTES;
        loop {
            let bytes = IndexWriter::bytes(partition.segments().into(), partition.resident_blocks().into());
            let needed = bytes.div_ceil(payload_bytes as u64) as usize;
            if index.len() >= needed {
                index.drain(needed..).for_each(|segment| self.pool.give(segment));
                break;
            }
            match self.pool.take() {
                Some(segment) => index.push(segment),
                None if partition.drop_oldest() => {}
                None => {
                    return Err(io_error("finding room for an index")(io::ErrorKind::StorageFull.into()));
                }
            }
        }
        let volume = partition.settings().volume;
        let mut ordinal = 0;
        let mut result = Ok(());
        let mut write = |payload: Vec<u8>| {
            if result.is_err() {
                return;
            }
            let mut segment = vec![0; (INDEX_HEADER_BYTES + payload.len()).next_multiple_of(SECTOR)];
            segment[INDEX_HEADER_BYTES..INDEX_HEADER_BYTES + payload.len()].copy_from_slice(&payload);
            let header = IndexHeader {
                device_id: self.superblock.device_id,
                volume,
                epoch,
                ordinal: ordinal as u32,
                next: index.get(ordinal + 1).copied().unwrap_or(NO_SEGMENT),
                payload_bytes: payload.len() as u32,
            };
            header.encode(&mut segment);
            result = self.device.write(geometry.segment_offset(index[ordinal]), &segment);
            ordinal += 1;
        };
        let mut writer = IndexWriter::new(payload_bytes);
        partition.visit_index(|item| {
            if let Some(payload) = writer.write(item) {
                write(payload);
            }
        });
        if let Some(payload) = writer.finish() {
            write(payload);
        }
        debug_assert!(result.is_err() || ordinal == index.len());
        result.map_err(io_error("writing an index"))
    }

    /// The volume is no longer served, and its blocks are dropped. Takes no longer for a large cache than for a small one, but for the
    /// memory of the index.
    pub fn discard(&self, partition: FlashPartition) {
        let volume = partition.settings().volume;
        let mut state = self.lock();
        for slot in &mut state.slots {
            if slot.record.is_some_and(|record| record.volume == volume) {
                slot.release(&self.pool);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::device::{FaultyFlash, FlashFaults, MemoryFlash};
    use super::super::partition::Appended;
    use super::*;
    use forebay_units::{BlockIndex, BlockRange};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const SETTINGS: TierSettings =
        TierSettings { segment_bytes: 4096, records: 3, device_id: 77, epoch_floor: 1 };

    fn volume(number: u128, stamp: u8) -> VolumeSettings {
        VolumeSettings {
            volume: VolumeId(number),
            stamp: Some([stamp; 32]),
            read_only: false,
            block_size: BlockSize::new(Bytes(512)).unwrap(),
            quota_segments: 6,
            seed: 3,
        }
    }

    fn content(value: u64) -> Vec<u8> {
        value.to_le_bytes().repeat(64)
    }

    /// What the data path would do, at once.
    fn append(device: &dyn FlashDevice, partition: &mut FlashPartition, block: u64, value: u64) -> Appended {
        let appended = partition.append(BlockIndex(block), &content(value));
        proceed(device, partition);
        appended
    }

    fn proceed(device: &dyn FlashDevice, partition: &mut FlashPartition) {
        while let Some(write) = partition.take_write() {
            let result = device.write(write.offset, &write.data);
            partition.write_ended(write.sequence, result.is_ok());
        }
    }

    fn read(device: &dyn FlashDevice, partition: &mut FlashPartition, block: u64) -> Option<Vec<u8>> {
        let block = BlockIndex(block);
        if let Some(bytes) = partition.buffered(block) {
            return Some(bytes.to_vec());
        }
        let address = partition.address(block)?;
        // A sector at a time, as devices do.
        let first = address.offset / SECTOR as u64 * SECTOR as u64;
        let bytes = device
            .read(first, SECTOR)
            .ok()
            .map(|sector| sector[(address.offset - first) as usize..][..512].to_vec());
        partition.judge(block, address, bytes.as_deref()).then(|| bytes.expect("it was judged"))
    }

    fn stop(
        device: &dyn FlashDevice,
        tier: &FlashTier,
        mut partition: FlashPartition,
        stamp: u8,
    ) -> Option<u64> {
        partition.seal_open();
        proceed(device, &mut partition);
        match tier.save(partition, Some([stamp; 32])) {
            Ok(Saved::Kept { blocks }) => Some(blocks),
            _ => None,
        }
    }

    #[test]
    fn a_stop_in_order_keeps_what_can_be_proved() {
        // 7 sectors of superblock and records, then 20 segments of 8 blocks of 512 bytes.
        let device = Arc::new(MemoryFlash::new(vec![0; 27 * 4096]));
        let (tier, opened) = FlashTier::open(device.clone(), &SETTINGS).unwrap();
        assert_eq!((opened, tier.geometry().segments), (Opened::New, 20));
        let (mut partition, recovery) = tier.load(&volume(1, 4)).unwrap();
        assert_eq!(recovery, Recovery::New);
        assert!(matches!(tier.load(&volume(1, 4)), Err(FlashError::Twice)));
        // 60 blocks in 6 segments of 8: the first 12 leave with theirs (16), 44 are left.
        (0..60).for_each(|block| assert_eq!(append(&*device, &mut partition, block, block), Appended::Yes));
        assert_eq!(partition.resident_blocks(), 44);
        assert_eq!(stop(&*device, &tier, partition, 4), Some(44));
        let open = || FlashTier::open(device.clone(), &SETTINGS).unwrap().0;
        let tier = open();
        let (mut partition, recovery) = tier.load(&volume(1, 4)).unwrap();
        assert_eq!(recovery, Recovery::Kept { blocks: 44 });
        for block in 16..60 {
            assert_eq!(read(&*device, &mut partition, block), Some(content(block)));
        }
        assert_eq!(stop(&*device, &tier, partition, 4), Some(44));
        // Another stamp, no stamp, another block size, another volume: nothing is believed, and the record is revoked each time.
        let mut others = [volume(1, 5), volume(1, 4), volume(1, 4), volume(2, 4)];
        others[1].stamp = None;
        others[2].block_size = BlockSize::DEFAULT;
        let expected =
            [Recovery::OriginChanged, Recovery::Unprovable, Recovery::BlockSizeChanged, Recovery::New];
        let saved = device.read(0, 27 * 4096).unwrap();
        for (other, expected) in others.iter().zip(expected) {
            device.write(0, &saved).unwrap();
            let (partition, recovery) = open().load(other).unwrap();
            assert_eq!((recovery, partition.resident_blocks()), (expected, 0));
            if other.volume == VolumeId(1) {
                assert_eq!(open().load(&volume(1, 4)).unwrap().1, Recovery::Unclean);
            }
        }
        // Every sector of index and records that is damaged is noticed; blocks are judged when they are read.
        device.write(0, &saved).unwrap();
        let mut kept = 0;
        for sector in 1..27 {
            device.write(0, &saved).unwrap();
            device.change(|bytes| bytes[sector * 4096 + 80] ^= 1);
            match open().load(&volume(1, 4)).unwrap() {
                (mut partition, Recovery::Kept { .. }) => {
                    kept += 1;
                    for block in 0..60 {
                        assert!(
                            read(&*device, &mut partition, block).is_none_or(|found| found == content(block))
                        );
                    }
                }
                (partition, _) => assert!(partition.is_empty()),
            }
        }
        assert!(kept > 12, "{kept}");
    }

    #[test]
    fn a_read_only_volume_is_kept_through_a_crash() {
        let device = Arc::new(MemoryFlash::new(vec![0; 27 * 4096]));
        let open = || FlashTier::open(device.clone(), &SETTINGS).unwrap().0;
        let settings = VolumeSettings { read_only: true, ..volume(1, 4) };
        let tier = open();
        let mut partition = tier.load(&settings).unwrap().0;
        (0..20).for_each(|block| assert_eq!(append(&*device, &mut partition, block, block), Appended::Yes));
        assert_eq!(stop(&*device, &tier, partition, 4), Some(20));
        for _ in 0..3 {
            // Each start adds blocks and never stops; what was saved stays, unless it was written over.
            let tier = open();
            let (mut partition, recovery) = tier.load(&settings).unwrap();
            assert_eq!(recovery, Recovery::Kept { blocks: 20 });
            (0..20).for_each(|block| assert_eq!(read(&*device, &mut partition, block), Some(content(block))));
            (30..40)
                .for_each(|block| assert_eq!(append(&*device, &mut partition, block, block), Appended::Yes));
            std::mem::forget(partition);
        }
        // Who may write revokes it.
        let _ = open().load(&volume(1, 4)).unwrap();
        assert_eq!(open().load(&settings).unwrap().1, Recovery::Unclean);
    }

    #[test]
    fn what_is_not_ours_is_not_overwritten() {
        let device = Arc::new(MemoryFlash::new([0xeb, 0x3c, 0x90].repeat(40_960)));
        assert!(matches!(
            FlashTier::open(device, &SETTINGS),
            Err(FlashError::Foreign { found: [0xeb, 0x3c, ..] })
        ));
        let device = Arc::new(MemoryFlash::new(vec![0; 8 * 4096]));
        assert!(matches!(FlashTier::open(device, &SETTINGS), Err(FlashError::TooSmall { .. })));
    }

    #[test]
    fn a_device_that_loses_writes_is_not_trusted_with_a_volume() {
        let faults = FlashFaults { lose_percent: 100, ..FlashFaults::default() };
        let device = Arc::new(FaultyFlash::new(27 * 4096, 1));
        let tier = FlashTier::open(device.clone(), &SETTINGS).unwrap().0;
        let partition = tier.load(&volume(1, 4)).unwrap().0;
        assert_eq!(stop(&*device, &tier, partition, 4), Some(0));
        device.set_faults(faults);
        assert!(matches!(tier.load(&volume(1, 4)), Err(FlashError::NotRevoked)));
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// A miss is filled and demoted.
        Append(u64),
        /// A client writes: the block leaves.
        Write(u64),
        Read(u64),
        /// Stops in order, and starts again.
        Restart,
        /// Power fails, perhaps while stopping or starting, when the device has done so many things more.
        Crash {
            while_stopping: bool,
            after: u64,
        },
        /// Somebody else changes the origin while we are away.
        Foreign(u64),
        Rot,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            12 => (0u64..60).prop_map(Step::Append),
            3 => (0u64..60).prop_map(Step::Write),
            6 => (0u64..60).prop_map(Step::Read),
            1 => Just(Step::Restart),
            1 => (any::<bool>(), 0u64..12).prop_map(|(while_stopping, after)| Step::Crash { while_stopping, after }),
            1 => (0u64..60).prop_map(Step::Foreign),
            1 => Just(Step::Rot),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn nothing_untrue_survives_any_fault(steps in prop::collection::vec(step(), 0..150), seed in any::<u64>(),
                                             percents in (0u64..8, 0u64..8, 0u64..8, 0u64..8)) {
            let device = Arc::new(FaultyFlash::new(27 * 4096, seed));
            let faults = FlashFaults { tear_percent: percents.0, lose_percent: percents.1, misdirect_percent: percents.2,
                                       fail_percent: percents.3 };
            // The origin: content of each block, and how often it was changed.
            let (mut origin, mut stamp) = (BTreeMap::<u64, u64>::new(), 0u8);
            let mut value = 1000;
            let mut running: Option<(FlashTier, FlashPartition)> = None;
            for step in steps {
                let mut start = false;
                match step {
                    Step::Append(block) => if let Some((_, partition)) = &mut running {
                        let value = *origin.entry(block).or_insert(block);
                        // The data path inserts what it has read of the origin.
                        append(&*device, partition, block, value);
                    },
                    Step::Write(block) => if let Some((_, partition)) = &mut running {
                        value += 1;
                        origin.insert(block, value);
                        // Where somebody vouches for the origin, its stamp tells nothing of our own changes.
                        stamp = stamp.wrapping_add((seed % 2) as u8);
                        partition.invalidate(BlockRange { first: block, end: block + 1 });
                    },
                    Step::Read(block) => if let Some((_, partition)) = &mut running
                        && let Some(found) = read(&*device, partition, block) {
                            prop_assert_eq!(found, content(origin.get(&block).copied().unwrap_or(block)));
                    },
                    Step::Restart => {
                        if let Some((tier, partition)) = running.take() {
                            stop(&*device, &tier, partition, stamp);
                        }
                        start = true;
                    }
                    Step::Crash { while_stopping, after } => {
                        if let Some((tier, partition)) = running.take() {
                            device.stop_after(Some(after));
                            if while_stopping {
                                stop(&*device, &tier, partition, stamp);
                            }
                            device.crash();
                        }
                        start = true;
                    }
                    Step::Foreign(block) => if running.is_none() {
                        value += 1;
                        origin.insert(block, value);
                        stamp = stamp.wrapping_add(1);
                    },
                    Step::Rot => device.flip_bit(),
                }
                if start && seed % 5 != 0 || running.is_none() {
                    device.set_faults(faults);
                    let tier = FlashTier::open(device.clone(), &SETTINGS);
                    if let Ok((tier, _)) = tier && let Ok((partition, _)) = tier.load(&volume(1, stamp)) {
                        running = Some((tier, partition));
                    }
                }
            }
            if let Some((_, partition)) = &mut running {
                for block in 0..60 {
                    if let Some(found) = read(&*device, partition, block) {
                        prop_assert_eq!(found, content(origin.get(&block).copied().unwrap_or(block)));
                    }
                }
            }
        }
    }
}
