//! What a tier and its volumes are opened with, what was found, and what can go wrong.

use super::super::format::VolumeId;
use super::records::REVOCATIONS_MAX;
use forebay_units::{BlockSize, Bytes};
use std::io;
use thiserror::Error;

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

/// By what it is known that nobody changed an origin while its volume was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// What the origin looks like, such that it looks different if anybody changed it since.
    Seen([u8; 32]),
    /// Somebody vouches that only who has this device changes it. Nothing shows what a start did to it by another name, or on another way to its data, so
    /// the last start that served anything must have served the volume, too.
    Vouched {
        /// The origin's size: what lay behind an end that it had meanwhile is not what is there when it has grown again.
        size_bytes: u64,
    },
}

impl Stamp {
    /// What is kept of it on the device by a start.
    pub(super) fn kept_by(self, start: u64) -> [u8; 32] {
        match self {
            Stamp::Seen(bytes) => bytes,
            Stamp::Vouched { size_bytes } => {
                let mut bytes = [b'v'; 32];
                bytes[16..24].copy_from_slice(&size_bytes.to_le_bytes());
                bytes[24..].copy_from_slice(&start.to_le_bytes());
                bytes
            }
        }
    }
}

/// Which volume is to be loaded, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct VolumeSettings {
    /// Which volume.
    pub volume: VolumeId,
    /// The origin's stamp now; `None`: nobody can know whether it was changed.
    pub stamp: Option<Stamp>,
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
    /// The origin does not look as it did: it was changed meanwhile, has another size, or its looks prove no more that it was not, since the system was started anew.
    OriginDiffers,
    /// Somebody vouches for the origin, and the last start did not serve it by this name and this way: it may have written to it by another.
    NotServed,
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
        "flash device holds something else (it starts with {found:02x?}); to use it all the same, clear all of it (`blkdiscard -z` of a device, or remove the file)"
    )]
    Foreign {
        /// Its first bytes.
        found: [u8; 8],
    },
    /// The device begins as an empty one does, and holds something that is not ours, which is not overwritten.
    #[error(
        "flash device begins with zeros, and holds something that is not Forebay's from byte {offset} on; to use it all the same, clear all of it (`blkdiscard -z` of a device, or remove the file)"
    )]
    NotEmpty {
        /// Where it was seen.
        offset: u64,
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
