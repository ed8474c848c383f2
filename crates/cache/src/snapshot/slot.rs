//! The header of a slot in a reserved range: which snapshot the slot holds. The layout is in `docs/reference/snapshot-format.md`.

use super::HEADER_BYTES as SNAPSHOT_HEADER_BYTES;
use crate::flash::VolumeId;
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of a header, and what everything in a range is a multiple of.
pub const SLOT_HEADER_BYTES: usize = 4096;

const MAGIC: [u8; 8] = *b"FBSLOT\0\0";
const VERSION: u32 = 1;
/// What is checked, and where the checksum is.
const CHECKED: usize = 72;
/// So that these bytes are not believed as something else.
const CHECKSUM_SEED: u64 = 0x736e_6170_736c_6f74;

/// Which snapshot a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotHeader {
    /// Of which volume.
    pub volume: VolumeId,
    /// Its place in the volume's series, rising.
    pub sequence: u64,
    /// When it was taken, in seconds since 1970.
    pub taken_at_unix_s: u64,
    /// Bytes of the snapshot; 0 in a slot that was claimed and holds none yet.
    pub snapshot_bytes: u64,
    /// The epoch of the lease under which the volume was served; 0 without leases.
    pub epoch: u64,
    /// Who wrote it: a number drawn at random; 0 where a lock keeps others out.
    pub writer: u32,
}

/// Why a slot is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SlotError {
    /// It does not begin as a slot does.
    #[error("it does not begin as a slot of snapshots does")]
    Foreign,
    /// Another version.
    #[error("its slot has version {found}, expected {VERSION}")]
    Version {
        /// What it says.
        found: u32,
    },
    /// Its checksum does not fit.
    #[error("the header of its slot is damaged: checksum {found:016x}, expected {expected:016x}")]
    Checksum {
        /// What it says.
        found: u64,
        /// What its bytes have.
        expected: u64,
    },
    /// It is another slot's.
    #[error("it is the header of slot {found}, expected {expected}")]
    Misplaced {
        /// What it says.
        found: u64,
        /// Where it is.
        expected: u64,
    },
    /// No snapshot is so short.
    #[error("it tells of a snapshot of {found} bytes")]
    Length {
        /// What it says.
        found: u64,
    },
    /// It was written while the slot was, by another host.
    #[error("it is snapshot {found}, and the header of its slot tells of {expected}")]
    Sequence {
        /// What the snapshot says.
        found: u64,
        /// What the header says.
        expected: u64,
    },
}

impl SlotHeader {
    /// The header's bytes, as of slot number `slot`.
    pub fn to_bytes(&self, slot: u64) -> Vec<u8> {
        let mut bytes = vec![0; SLOT_HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.writer.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.volume.0.to_le_bytes());
        for (at, value) in [
            (32, self.sequence),
            (40, self.taken_at_unix_s),
            (48, self.snapshot_bytes),
            (56, slot),
            (64, self.epoch),
        ] {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        let checksum = xxh3_64_with_seed(&bytes[..CHECKED], CHECKSUM_SEED);
        bytes[CHECKED..CHECKED + 8].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a header that stands in slot number `slot`.
    ///
    /// # Errors
    /// [`SlotError`]; too few bytes are [`SlotError::Foreign`].
    pub fn parse(bytes: &[u8], slot: u64) -> Result<SlotHeader, SlotError> {
        if bytes.len() < CHECKED + 8 || bytes[..8] != MAGIC {
            return Err(SlotError::Foreign);
        }
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let version = number(8) as u32;
        if version != VERSION {
            return Err(SlotError::Version { found: version });
        }
        let (found, expected) = (number(CHECKED), xxh3_64_with_seed(&bytes[..CHECKED], CHECKSUM_SEED));
        if found != expected {
            return Err(SlotError::Checksum { found, expected });
        }
        if number(56) != slot {
            return Err(SlotError::Misplaced { found: number(56), expected: slot });
        }
        if (1..SNAPSHOT_HEADER_BYTES as u64).contains(&number(48)) {
            return Err(SlotError::Length { found: number(48) });
        }
        Ok(SlotHeader {
            volume: VolumeId(u128::from(number(16)) | u128::from(number(24)) << 64),
            sequence: number(32),
            taken_at_unix_s: number(40),
            snapshot_bytes: number(48),
            epoch: number(64),
            writer: (number(8) >> 32) as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: SlotHeader = SlotHeader {
        volume: VolumeId(7 << 70 | 5),
        sequence: 9,
        taken_at_unix_s: 1_700_000_000,
        snapshot_bytes: 500,
        epoch: 6,
        writer: 0xabcd_ef01,
    };

    #[test]
    fn a_header_comes_back_and_every_changed_bit_is_seen() {
        let bytes = HEADER.to_bytes(3);
        assert_eq!(bytes.len(), SLOT_HEADER_BYTES);
        assert_eq!(SlotHeader::parse(&bytes, 3), Ok(HEADER));
        for bit in 0..(CHECKED + 8) * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(SlotHeader::parse(&changed, 3).is_err(), "bit {bit}");
        }
        for length in 0..CHECKED + 8 {
            assert!(SlotHeader::parse(&bytes[..length], 3).is_err());
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let said = |bytes: &[u8], slot| SlotHeader::parse(bytes, slot).unwrap_err();
        assert_eq!(said(&HEADER.to_bytes(3), 4), SlotError::Misplaced { found: 3, expected: 4 });
        assert_eq!(
            said(&SlotHeader { snapshot_bytes: 9, ..HEADER }.to_bytes(3), 3),
            SlotError::Length { found: 9 }
        );
        assert_eq!(said(&[0; 4096], 0), SlotError::Foreign);
        let mut newer = HEADER.to_bytes(3);
        newer[8] = 2;
        assert_eq!(said(&newer, 3), SlotError::Version { found: 2 });
    }
}
