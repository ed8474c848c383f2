//! The flash tier: blocks in large segments on a file or block device, and what makes them believable.
//!
//! [`FlashTier`] is one device: its layout, which segments are free, and which volume has how much of it. [`FlashPartition`] is one
//! volume's share while it is served: a log of segments and the index of what is in them. Both are sans-I/O in the data path: a
//! partition says which bytes to write where, and judges what was read. Only starting and stopping (open, load, save) do I/O, through
//! [`FlashDevice`], and may block. It is *not* the place where races between fills and changes are decided; the data path does that.
//!
//! # Invariants
//!
//! 1. What is read of a block is believed only if it has the checksum that is in memory for it, which is over device, volume, block,
//!    segment's number and content. So a torn, lost or misdirected write and a flipped bit are a miss, never an answer.
//! 2. A number of a segment is never given twice, in this start or any other: old content of a place never has the right checksum.
//! 3. An index found on the device is used only if both copies of the volume's record say that it was stopped in order, and the origin is
//!    provably as it was then. Both copies are revoked, durably and read back, before a volume that may be written is served.
//! 4. A segment belongs to one partition at most. That one of another volume's was overwritten nevertheless (by a late write of a volume
//!    that is gone) is invariant 1's to notice.
//! 5. At most [`WRITES_MAX`] segments of a partition are on their way to the device; above it, blocks are refused.
//!
//! Layout: docs/reference/flash-format.md.

mod device;
mod format;
mod index;
mod partition;
mod pool;
mod tier;

pub use device::{FaultyFlash, FlashDevice, FlashFaults, MemoryFlash};
pub use format::{
    FORMAT_VERSION, FormatError, Geometry, INDEX_HEADER_BYTES, IndexHeader, Record, RecordState, SECTOR,
    Superblock, VolumeId,
};
pub use index::{IndexEntry, IndexError, IndexFrame, IndexItem, IndexReader, IndexWriter};
pub use partition::{
    Appended, FlashAddress, FlashPartition, FlashStatistics, FlashWrite, PartitionSettings, WRITES_MAX,
};
pub use pool::SegmentPool;
pub use tier::{
    FlashError, FlashTier, Opened, Recovery, Saved, Stamp, TierSettings,
    VolumeSettings as FlashVolumeSettings,
};
