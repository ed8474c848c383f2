//! What can be wrong with a snapshot, and with what is to become one.

use super::SNAPSHOT_VERSION;
use crate::flash::VolumeId;
use thiserror::Error;

/// Why bytes are not used as a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Cut off.
    #[error("it has {found} bytes, expected at least {expected}")]
    Short {
        /// What is there.
        found: usize,
        /// Header and checksum.
        expected: usize,
    },
    /// Something else.
    #[error("it is no snapshot: it begins with {found:02x?}")]
    Magic {
        /// Its first bytes.
        found: [u8; 8],
    },
    /// Written by another version.
    #[error("version is `{found}`, expected `{SNAPSHOT_VERSION}`; it can be deleted without loss")]
    Version {
        /// What is there.
        found: u32,
    },
    /// Damaged or cut off.
    #[error("its checksum is {expected:016x}, but its bytes have {found:016x}: it is damaged")]
    Checksum {
        /// Of the bytes.
        found: u64,
        /// What they should have.
        expected: u64,
    },
    /// Of another volume, or of one by the same name with another origin.
    #[error("it is of volume {:032x}, expected {:032x}", found.0, expected.0)]
    Foreign {
        /// Of which it is.
        found: VolumeId,
        /// Of which it should be.
        expected: VolumeId,
    },
    /// More blocks than a volume may have.
    #[error("its volume has {blocks} blocks, expected at most 2^47")]
    VolumeTooLarge {
        /// How many it says.
        blocks: u64,
    },
    /// Flags that this version does not know.
    #[error("flags are {found:#x}, of which only 0x1 is known")]
    Flags {
        /// What is there.
        found: u32,
    },
    /// A chunk is not what it should be.
    #[error("the chunk at byte {at} is damaged: {what}")]
    Chunk {
        /// Where it begins.
        at: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// Chunks are missing, or there are too many.
    #[error("it has {found} chunks, expected {expected}")]
    Chunks {
        /// How many there are.
        found: usize,
        /// How many the header says.
        expected: u32,
    },
}

/// Why a snapshot cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// Blocks must rise.
    #[error("block {block} comes after block {before}, expected ascending blocks")]
    Order {
        /// The block.
        block: u64,
        /// The one before.
        before: u64,
    },
    /// The volume has no such block.
    #[error("block {block} lies beyond the volume's {blocks} blocks")]
    BeyondEnd {
        /// The block.
        block: u64,
        /// Blocks of the volume.
        blocks: u64,
    },
    /// Chunks have 32-bit numbers.
    #[error("the volume has {blocks} blocks, expected at most 2^47")]
    VolumeTooLarge {
        /// Blocks of the volume.
        blocks: u64,
    },
}
