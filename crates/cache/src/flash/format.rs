//! What is written on the device besides blocks: superblock, records of volumes, headers of index segments. Version 2.
//!
//! Pure: bytes to values and back. Everything is little-endian, a whole sector of 4 KiB (an index segment has its own header), and ends
//! in the XXH3-64 of all bytes before, seeded with where it belongs, so that a sector that was written elsewhere is not believed.

use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The version of the layout that this code writes. It reads the first one, too, which had no starts.
pub const FORMAT_VERSION: u32 = 2;

/// The unit of everything besides index segments, in bytes.
pub const SECTOR: usize = 4096;

const SUPERBLOCK_MAGIC: [u8; 8] = *b"FBFLASH\0";
const RECORD_MAGIC: [u8; 8] = *b"FBVOLUME";
const INDEX_MAGIC: [u8; 8] = *b"FBINDEX\0";
const CHECKSUM_AT: usize = SECTOR - 8;

/// Bytes of an index segment before its payload.
pub const INDEX_HEADER_BYTES: usize = 64;

/// Marks the last index segment of a volume.
pub(crate) const NO_SEGMENT: u32 = u32::MAX;

/// Which volume: a hash of its name and of where its origin is, so that another origin under the same name is another volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeId(pub u128);

impl VolumeId {
    /// The identity of the volume `name` whose data is at `origin`.
    pub fn new(name: &str, origin: &str) -> VolumeId {
        let mut bytes = Vec::with_capacity(name.len() + origin.len() + 8);
        bytes.extend_from_slice(&(name.len() as u64).to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(origin.as_bytes());
        VolumeId(xxhash_rust::xxh3::xxh3_128(&bytes))
    }
}

/// Why bytes are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Nothing was ever written here.
    #[error("the sector is empty")]
    Empty,
    /// Something that is not ours.
    #[error("magic is {found:02x?}, expected {expected:02x?}")]
    Magic {
        /// What is there.
        found: [u8; 8],
        /// What should be.
        expected: [u8; 8],
    },
    /// Written by another version.
    #[error("version is `{found}`, expected `{FORMAT_VERSION}`; what it holds can be dropped without loss")]
    Version {
        /// What is there.
        found: u32,
    },
    /// Torn, misdirected or rotten.
    #[error("checksum is {found:#018x}, expected {expected:#018x}")]
    Checksum {
        /// What the content has.
        found: u64,
        /// What is written.
        expected: u64,
    },
    /// A value that nobody writes.
    #[error("`{field}` is `{found}`, which is out of range")]
    Field {
        /// Which.
        field: &'static str,
        /// Its value.
        found: u64,
    },
}

/// How a device is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a segment, a power of two of at least 4 KiB.
    pub segment_bytes: u32,
    /// How many segments there are.
    pub segments: u32,
    /// How many volumes may have a record.
    pub records: u32,
}

impl Geometry {
    /// The geometry of a device of `size_bytes`; `None` if not even two segments fit.
    pub fn of_device(size_bytes: u64, segment_bytes: u32, records: u32) -> Option<Geometry> {
        let geometry = Geometry { segment_bytes, segments: 0, records };
        let segments = size_bytes.checked_sub(geometry.first_segment())? / u64::from(segment_bytes);
        let segments = segments.min(u64::from(NO_SEGMENT - 1)) as u32;
        (segments >= 2).then_some(Geometry { segments, ..geometry })
    }

    /// Where the first segment starts: behind superblock and both copies of the records, at a multiple of a segment.
    pub fn first_segment(&self) -> u64 {
        let sectors = 1 + 2 * u64::from(self.records);
        (sectors * SECTOR as u64).next_multiple_of(u64::from(self.segment_bytes))
    }

    /// Where a segment starts.
    pub fn segment_offset(&self, segment: u32) -> u64 {
        self.first_segment() + u64::from(segment) * u64::from(self.segment_bytes)
    }

    /// Where copy 0 or 1 of a record is. The copies of a record are not neighbours.
    pub fn record_offset(&self, record: u32, copy: u32) -> u64 {
        (1 + u64::from(copy) * u64::from(self.records) + u64::from(record)) * SECTOR as u64
    }

    /// The first byte that is not used.
    pub fn end(&self) -> u64 {
        self.segment_offset(self.segments)
    }
}

/// The first sector of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// How the device is divided.
    pub geometry: Geometry,
    /// Drawn when the device was formatted: nothing that was written before is believed after.
    pub device_id: u64,
    /// The number of the last start that served anything; 0 before the first.
    pub start: u64,
}

/// What a record says of the index that it points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// The volume is being served, or was when somebody pulled the plug: there is no index.
    InUse,
    /// The volume was stopped in order: the index is what it held.
    Clean,
}

/// What is known on the device of one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The device's number.
    pub device_id: u64,
    /// Which volume.
    pub volume: VolumeId,
    /// Rises with each start and each stop.
    pub epoch: u64,
    /// The epoch of the stop that wrote the index.
    pub index_epoch: u64,
    /// Whether there is an index.
    pub state: RecordState,
    /// The origin's stamp when the volume was stopped, as the device keeps it.
    pub stamp: [u8; 32],
    /// The volume's unit of caching in bytes.
    pub block_bytes: u32,
    /// First segment of the index, and how many there are.
    pub index_first: u32,
    /// How many segments the index has.
    pub index_segments: u32,
    /// How many blocks the index names.
    pub blocks: u64,
}

/// What an index segment begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexHeader {
    /// The device's number.
    pub device_id: u64,
    /// Which volume.
    pub volume: VolumeId,
    /// The epoch of the stop that wrote it.
    pub epoch: u64,
    /// Which segment of the index this is, from 0.
    pub ordinal: u32,
    /// The next one; `u32::MAX`: there is none.
    pub next: u32,
    /// How many bytes follow the header.
    pub payload_bytes: u32,
}

fn put(sector: &mut [u8], at: usize, bytes: &[u8]) {
    sector[at..at + bytes.len()].copy_from_slice(bytes);
}

fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[at..at + N]);
    value
}

fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(get(bytes, at))
}

fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(get(bytes, at))
}

fn finish(mut sector: Vec<u8>, seed: u64) -> Vec<u8> {
    let checksum = xxh3_64_with_seed(&sector[..CHECKSUM_AT], seed);
    put(&mut sector, CHECKSUM_AT, &checksum.to_le_bytes());
    sector
}

fn check_sector(sector: &[u8], magic: [u8; 8], seed: u64) -> Result<(), FormatError> {
    assert_eq!(sector.len(), SECTOR, "a sector has {SECTOR} bytes");
    let found = get::<8>(sector, 0);
    if found != magic {
        let is_empty = sector.iter().all(|byte| *byte == 0);
        return Err(if is_empty {
            FormatError::Empty
        } else {
            FormatError::Magic { found, expected: magic }
        });
    }
    let (found, expected) = (xxh3_64_with_seed(&sector[..CHECKSUM_AT], seed), get_u64(sector, CHECKSUM_AT));
    if found == expected { Ok(()) } else { Err(FormatError::Checksum { found, expected }) }
}

impl Superblock {
    /// The sector.
    pub fn encode(&self) -> Vec<u8> {
        let mut sector = vec![0; SECTOR];
        put(&mut sector, 0, &SUPERBLOCK_MAGIC);
        put(&mut sector, 8, &FORMAT_VERSION.to_le_bytes());
        put(&mut sector, 12, &self.geometry.segment_bytes.to_le_bytes());
        put(&mut sector, 16, &self.geometry.segments.to_le_bytes());
        put(&mut sector, 20, &self.geometry.records.to_le_bytes());
        put(&mut sector, 24, &self.device_id.to_le_bytes());
        put(&mut sector, 32, &self.start.to_le_bytes());
        finish(sector, 0)
    }

    /// The superblock in `sector`.
    ///
    /// # Errors
    /// [`FormatError`]; the version is looked at before the checksum, so that another version's layout is not called damage.
    ///
    /// # Panics
    /// If `sector` is not [`SECTOR`] bytes.
    pub fn decode(sector: &[u8]) -> Result<Superblock, FormatError> {
        assert_eq!(sector.len(), SECTOR, "a sector has {SECTOR} bytes");
        let version = get_u32(sector, 8);
        if get::<8>(sector, 0) == SUPERBLOCK_MAGIC && !(1..=FORMAT_VERSION).contains(&version) {
            return Err(FormatError::Version { found: version });
        }
        check_sector(sector, SUPERBLOCK_MAGIC, 0)?;
        let geometry = Geometry {
            segment_bytes: get_u32(sector, 12),
            segments: get_u32(sector, 16),
            records: get_u32(sector, 20),
        };
        let field = |field, found: u32| Err(FormatError::Field { field, found: found.into() });
        if !geometry.segment_bytes.is_power_of_two() || geometry.segment_bytes < SECTOR as u32 {
            return field("segment_bytes", geometry.segment_bytes);
        }
        if geometry.segments < 2 || geometry.segments == NO_SEGMENT {
            return field("segments", geometry.segments);
        }
        if geometry.records == 0 || geometry.records > 1 << 16 {
            return field("records", geometry.records);
        }
        Ok(Superblock { geometry, device_id: get_u64(sector, 24), start: get_u64(sector, 32) })
    }
}

impl Record {
    /// Whether a sector begins as one does; it may be damaged, or of another device.
    pub fn is_one(sector: &[u8]) -> bool {
        sector.starts_with(&RECORD_MAGIC)
    }

    /// A copy of a record belongs to one device and one place on it.
    fn seed(device_id: u64, place: u64) -> u64 {
        device_id ^ (place << 1 | 1)
    }

    /// The sector, to be written at byte `offset` of the device.
    pub fn encode(&self, offset: u64) -> Vec<u8> {
        let mut sector = vec![0; SECTOR];
        put(&mut sector, 0, &RECORD_MAGIC);
        put(&mut sector, 8, &self.device_id.to_le_bytes());
        put(&mut sector, 16, &self.volume.0.to_le_bytes());
        put(&mut sector, 32, &self.epoch.to_le_bytes());
        sector[40] = u8::from(self.state == RecordState::Clean);
        put(&mut sector, 48, &self.stamp);
        put(&mut sector, 80, &self.block_bytes.to_le_bytes());
        put(&mut sector, 84, &self.index_first.to_le_bytes());
        put(&mut sector, 88, &self.index_segments.to_le_bytes());
        put(&mut sector, 96, &self.blocks.to_le_bytes());
        put(&mut sector, 104, &self.index_epoch.to_le_bytes());
        finish(sector, Record::seed(self.device_id, offset))
    }

    /// The record in `sector`, which was read at byte `offset` of the device `device_id`.
    ///
    /// # Errors
    /// [`FormatError`].
    ///
    /// # Panics
    /// If `sector` is not [`SECTOR`] bytes.
    pub fn decode(sector: &[u8], device_id: u64, offset: u64) -> Result<Record, FormatError> {
        check_sector(sector, RECORD_MAGIC, Record::seed(device_id, offset))?;
        let state = match sector[40] {
            0 => RecordState::InUse,
            1 => RecordState::Clean,
            found => return Err(FormatError::Field { field: "state", found: found.into() }),
        };
        Ok(Record {
            device_id: get_u64(sector, 8),
            volume: VolumeId(u128::from_le_bytes(get(sector, 16))),
            epoch: get_u64(sector, 32),
            state,
            stamp: get(sector, 48),
            block_bytes: get_u32(sector, 80),
            index_first: get_u32(sector, 84),
            index_segments: get_u32(sector, 88),
            blocks: get_u64(sector, 96),
            index_epoch: get_u64(sector, 104),
        })
    }
}

impl IndexHeader {
    /// Writes header and checksum into the front of `segment`, whose payload is there already.
    ///
    /// # Panics
    /// If the payload does not fit into `segment`.
    pub fn encode(&self, segment: &mut [u8]) {
        put(segment, 0, &INDEX_MAGIC);
        put(segment, 8, &self.device_id.to_le_bytes());
        put(segment, 16, &self.volume.0.to_le_bytes());
        put(segment, 32, &self.epoch.to_le_bytes());
        put(segment, 40, &self.ordinal.to_le_bytes());
        put(segment, 44, &self.next.to_le_bytes());
        put(segment, 48, &self.payload_bytes.to_le_bytes());
        put(segment, 52, &[0; 4]);
        let checksum = IndexHeader::checksum(segment, self.payload_bytes as usize);
        put(segment, 56, &checksum.to_le_bytes());
    }

    fn checksum(segment: &[u8], payload_bytes: usize) -> u64 {
        let payload = &segment[INDEX_HEADER_BYTES..INDEX_HEADER_BYTES + payload_bytes];
        xxh3_64_with_seed(payload, xxh3_64_with_seed(&segment[..56], 0))
    }

    /// Header and payload of a segment.
    ///
    /// # Errors
    /// [`FormatError`].
    ///
    /// # Panics
    /// If `segment` is shorter than a header.
    pub fn decode(segment: &[u8]) -> Result<(IndexHeader, &[u8]), FormatError> {
        let found = get::<8>(segment, 0);
        if found != INDEX_MAGIC {
            return Err(FormatError::Magic { found, expected: INDEX_MAGIC });
        }
        let payload_bytes = get_u32(segment, 48);
        if payload_bytes as usize > segment.len() - INDEX_HEADER_BYTES {
            return Err(FormatError::Field { field: "payload_bytes", found: payload_bytes.into() });
        }
        let (found, expected) =
            (IndexHeader::checksum(segment, payload_bytes as usize), get_u64(segment, 56));
        if found != expected {
            return Err(FormatError::Checksum { found, expected });
        }
        let header = IndexHeader {
            device_id: get_u64(segment, 8),
            volume: VolumeId(u128::from_le_bytes(get(segment, 16))),
            epoch: get_u64(segment, 32),
            ordinal: get_u32(segment, 40),
            next: get_u32(segment, 44),
            payload_bytes,
        };
        Ok((header, &segment[INDEX_HEADER_BYTES..INDEX_HEADER_BYTES + payload_bytes as usize]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            device_id: 7,
            volume: VolumeId::new("disk", "file `/x`"),
            epoch: 3,
            index_epoch: 2,
            state: RecordState::Clean,
            stamp: [9; 32],
            block_bytes: 4096,
            index_first: 5,
            index_segments: 2,
            blocks: 77,
        }
    }

    #[test]
    fn a_device_is_divided_without_overlap() {
        // 1 + 2 * 64 sectors of 4 KiB are 516 KiB: the first segment of 1 MiB is the second MiB.
        let geometry = Geometry::of_device(10 << 20, 1 << 20, 64).unwrap();
        assert_eq!((geometry.first_segment(), geometry.segments, geometry.end()), (1 << 20, 9, 10 << 20));
        assert_eq!(geometry.record_offset(0, 0), 4096);
        assert_eq!(geometry.record_offset(63, 1), 4096 * 128);
        assert_eq!(Geometry::of_device((3 << 20) - 1, 1 << 20, 64), None);
        assert_eq!(Geometry::of_device(1000, 1 << 20, 64), None);
    }

    #[test]
    fn what_is_written_is_read_and_every_flipped_bit_is_noticed() {
        let superblock = Superblock {
            geometry: Geometry { segment_bytes: 1 << 20, segments: 9, records: 64 },
            device_id: 0x1234_5678_9abc_def0,
            start: 3,
        };
        let sector = superblock.encode();
        assert_eq!(Superblock::decode(&sector), Ok(superblock));
        let written = record().encode(8192);
        assert_eq!(Record::decode(&written, 7, 8192), Ok(record()));
        for bit in 0..SECTOR * 8 {
            let mut damaged = sector.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&damaged).is_err(), "bit {bit}");
            let mut damaged = written.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::decode(&damaged, 7, 8192).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_record_elsewhere_or_of_another_device_is_not_believed() {
        let written = record().encode(8192);
        assert!(matches!(Record::decode(&written, 7, 4096), Err(FormatError::Checksum { .. })));
        assert!(matches!(Record::decode(&written, 8, 8192), Err(FormatError::Checksum { .. })));
        assert_eq!(Record::decode(&[0; SECTOR], 7, 4096), Err(FormatError::Empty));
        assert!(matches!(Superblock::decode(&written), Err(FormatError::Magic { .. })));
        let mut later = Superblock::encode(&Superblock {
            geometry: Geometry { segment_bytes: 4096, segments: 2, records: 1 },
            device_id: 1,
            start: 0,
        });
        later[8] = 3;
        assert_eq!(Superblock::decode(&later), Err(FormatError::Version { found: 3 }));
        later[8] = 0;
        assert_eq!(Superblock::decode(&later), Err(FormatError::Version { found: 0 }));
    }

    #[test]
    fn the_layout_of_a_record_is_the_documented_one() {
        let written = record().encode(8192);
        assert_eq!(&written[..8], b"FBVOLUME");
        assert_eq!((written[8], written[32], written[40], written[48]), (7, 3, 1, 9));
        assert_eq!((written[80], written[81], written[84], written[88]), (0, 16, 5, 2));
        assert_eq!((written[96], written[104]), (77, 2));
    }
}
