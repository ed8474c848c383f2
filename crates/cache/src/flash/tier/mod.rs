//! One flash device from start to stop: formatted, volumes loaded and saved. The only code of the flash tier that blocks.
//!
//! What makes a recovered index right: it was saved after the last change of the volume had ended; the origin has the stamp that it had
//! then; and both copies of the record were revoked, durably, before the volume could be changed again. Where the origin shows nothing of changes
//! (its stamp is somebody's word), that is so only if no start has served anything since: it may have had another name for the volume, or another way to
//! its data. Anything less is an empty cache.

mod records;
mod settings;
mod stored_index;
#[cfg(test)]
mod tests;

pub use settings::{FlashError, Opened, Recovery, Saved, Stamp, TierSettings, VolumeSettings};

use super::device::FlashDevice;
use super::format::{FormatError, Geometry, NO_SEGMENT, Record, RecordState, SECTOR, Superblock, VolumeId};
use super::partition::{FlashPartition, PartitionSettings};
use super::pool::SegmentPool;
use forebay_units::Bytes;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

fn io_error(doing: &'static str) -> impl FnOnce(io::Error) -> FlashError {
    move |source| FlashError::Io { doing, source }
}

#[derive(Clone, Debug, Default)]
struct Slot {
    /// What both copies say, if they say the same.
    record: Option<Record>,
    /// Alive as long as the share of the volume is, which may end without a word: with the thread that had it.
    served: Weak<()>,
    /// Segments that nobody else may have: of a volume that is stopped, its blocks and its index; of one that is served, its index for as
    /// long as that is good.
    held: Vec<u32>,
}

impl Slot {
    fn is_served(&self) -> bool {
        self.served.strong_count() > 0
    }

    /// The volume is no longer served.
    fn release(&mut self, pool: &SegmentPool) {
        self.served = Weak::new();
        self.held.drain(..).for_each(|segment| pool.give(segment));
    }
}

#[derive(Debug)]
struct State {
    slots: Vec<Slot>,
    next_epoch: u64,
    /// The device knows of this start.
    is_begun: bool,
}

/// One flash device, shared by all volumes.
pub struct FlashTier {
    device: Arc<dyn FlashDevice>,
    /// As it was found, or formatted: its start is the one before this.
    superblock: Superblock,
    pool: SegmentPool,
    state: Mutex<State>,
}

impl std::fmt::Debug for FlashTier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlashTier").field("superblock", &self.superblock).finish_non_exhaustive()
    }
}

/// Sectors that are looked at all over a device that seems to be empty, and at its end (ours).
const PROBES: u64 = 256;

/// Where a device whose first sector is empty holds what is not ours; `None` where nothing is seen.
///
/// Many kinds of storage leave the first sector blank (btrfs begins at 64 KiB, ZFS at 16 KiB, md may end with its superblock). All that comes before the first
/// segment is looked at. Where none of it is a record of ours, as there is on a device of ours whose first sector was cleared to have it forget, a sample of the rest is, too.
fn foreign(device: &dyn FlashDevice, geometry: Geometry) -> io::Result<Option<u64>> {
    let is_blank = |sector: &[u8]| sector.iter().all(|byte| *byte == 0);
    let mut has_ours = false;
    for offset in (0..geometry.segment_offset(0)).step_by(SECTOR) {
        let sector = device.read(offset, SECTOR)?;
        has_ours |= Record::is_one(&sector);
        if !is_blank(&sector) && !Record::is_one(&sector) {
            return Ok(Some(offset));
        }
    }
    if has_ours {
        return Ok(None);
    }
    let sectors = device.size_bytes() / SECTOR as u64;
    let spread =
        (0..PROBES).map(|probe| (u128::from(probe) * u128::from(sectors) / u128::from(PROBES)) as u64);
    for sector in spread.chain(sectors.saturating_sub(PROBES)..sectors) {
        let offset = sector * SECTOR as u64;
        if !is_blank(&device.read(offset, SECTOR)?) {
            return Ok(Some(offset));
        }
    }
    Ok(None)
}

impl FlashTier {
    /// How [`FlashTier::open`] would find a device, with the superblock that it would have then. Reads alone.
    ///
    /// # Errors
    /// [`FlashError`]: the device gives errors, is too small, or holds something that is not ours.
    pub fn examine(
        device: &dyn FlashDevice,
        settings: &TierSettings,
    ) -> Result<(Superblock, Opened), FlashError> {
        let size = device.size_bytes();
        let segment = Bytes(settings.segment_bytes.into());
        let geometry = Geometry::of_device(size, settings.segment_bytes, settings.records)
            .ok_or(FlashError::TooSmall { found: Bytes(size), segment })?;
        let sector = device.read(0, SECTOR).map_err(io_error("reading the superblock"))?;
        let formatted = Superblock { geometry, device_id: settings.device_id, start: 0 };
        Ok(match Superblock::decode(&sector) {
            Ok(found) if found.geometry == geometry => (found, Opened::Found),
            Ok(found) => {
                let why = format!("it is divided as {:?}, expected {geometry:?}", found.geometry);
                (formatted, Opened::Formatted { why })
            }
            Err(FormatError::Empty) => {
                let foreign = foreign(device, geometry).map_err(io_error("looking whether it is empty"))?;
                if let Some(offset) = foreign {
                    return Err(FlashError::NotEmpty { offset });
                }
                (formatted, Opened::New)
            }
            Err(FormatError::Magic { found, .. }) => return Err(FlashError::Foreign { found }),
            Err(error) => {
                let why = format!("superblock: {error}");
                (formatted, Opened::Formatted { why })
            }
        })
    }

    /// Opens a device, and formats it where it is empty, or ours and of no use.
    ///
    /// # Errors
    /// As [`FlashTier::examine`].
    pub fn open(
        device: Arc<dyn FlashDevice>,
        settings: &TierSettings,
    ) -> Result<(FlashTier, Opened), FlashError> {
        let (superblock, opened) = FlashTier::examine(&*device, settings)?;
        let geometry = superblock.geometry;
        if opened != Opened::Found {
            device.write(0, &superblock.encode()).map_err(io_error("writing the superblock"))?;
            device.sync().map_err(io_error("syncing the superblock"))?;
        }
        let mut state = State {
            slots: vec![Slot::default(); geometry.records as usize],
            next_epoch: settings.epoch_floor.max(1),
            is_begun: false,
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
            Some(number) if state.slots[number].is_served() => return Err(FlashError::Twice),
            Some(number) => number,
            // An empty record, or one of a volume that nobody serves now.
            None => {
                let free = state.slots.iter().position(|slot| slot.record.is_none() && !slot.is_served());
                let free = free.or_else(|| state.slots.iter().position(|slot| !slot.is_served()));
                free.ok_or(FlashError::TooManyVolumes { most: self.geometry().records })?
            }
        };
        self.begin(&mut state)?;
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
            Some(record) if settings.read_only && is_kept => {
                let stamp = settings.stamp.map_or(record.stamp, |stamp| stamp.kept_by(self.start()));
                Record { epoch, stamp, ..record }
            }
            _ => self.in_use(settings.volume, epoch, settings.block_size.bytes() as u32),
        };
        self.establish(number as u32, &record)?;
        if record.state == RecordState::Clean {
            index.retain(|segment| self.pool.claim(*segment));
            state.slots[number].held = index;
        }
        state.slots[number].record = Some(record);
        state.slots[number].served = partition.serve();
        Ok((partition, recovery))
    }

    /// Has the device forget a volume that is about to be served with changes, and without a share. No later start could know of them: the stamp of an origin
    /// for which somebody vouches is the same whatever we write. When this returns, no start will believe what was found here.
    ///
    /// # Errors
    /// [`FlashError`]; the volume must not be served with changes then, as with [`FlashTier::load`].
    pub fn forget(&self, volume: VolumeId) -> Result<(), FlashError> {
        let mut state = self.lock();
        self.begin(&mut state)?;
        let found = state.slots.iter().zip(0..).find_map(|(slot, number)| {
            let record = slot.record.filter(|record| record.volume == volume)?;
            Some((number, record))
        });
        let Some((number, record)) = found else { return Ok(()) };
        if state.slots[number as usize].is_served() {
            return Err(FlashError::Twice);
        }
        state.slots[number as usize].release(&self.pool);
        let record = self.in_use(volume, state.next_epoch, record.block_bytes);
        state.next_epoch += 1;
        self.establish(number, &record)?;
        state.slots[number as usize].record = Some(record);
        Ok(())
    }

    /// A record that points to nothing.
    fn in_use(&self, volume: VolumeId, epoch: u64, block_bytes: u32) -> Record {
        Record {
            device_id: self.superblock.device_id,
            volume,
            epoch,
            index_epoch: 0,
            state: RecordState::InUse,
            stamp: [0; 32],
            block_bytes,
            index_first: NO_SEGMENT,
            index_segments: 0,
            blocks: 0,
        }
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
        // A volume may begin later than others, when its origin is there.
        let is_kept = |start| stamp.kept_by(start) == record.stamp;
        match stamp {
            _ if is_kept(self.superblock.start) || is_kept(self.start()) => Ok(record),
            Stamp::Seen(_) => Err(Recovery::OriginDiffers),
            Stamp::Vouched { size_bytes } if record.stamp[16..24] != size_bytes.to_le_bytes() => {
                Err(Recovery::OriginDiffers)
            }
            Stamp::Vouched { .. } => Err(Recovery::NotServed),
        }
    }

    /// The volume is no longer served: keeps its blocks for the next start. Every change of it has ended, nothing of it is in doubt, and
    /// `stamp` is what the origin looks like after that. Blocks for as long as writing the index takes.
    ///
    /// # Errors
    /// [`FlashError`]; the next start will find nothing then.
    ///
    /// # Panics
    /// If something is on its way to the device.
    pub fn save(&self, mut partition: FlashPartition, stamp: Option<Stamp>) -> Result<Saved, FlashError> {
        assert!(partition.is_quiet(), "a partition is saved while it is being written");
        let mut state = self.lock();
        let volume = partition.settings().volume;
        let found = state
            .slots
            .iter()
            .position(|slot| slot.is_served() && slot.record.is_some_and(|r| r.volume == volume));
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
                stamp: stamp.kept_by(self.start()),
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
