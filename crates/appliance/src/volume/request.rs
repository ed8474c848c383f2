//! What a client asks of a volume and what it is answered: plain data, without a protocol.

use forebay_policy::Slot;
use forebay_units::{BlockIndex, ByteRange, Bytes};

/// The number that pairs a request with its reply; chosen by who asks, unique among its outstanding ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestTag(pub u64);

/// What a client asks for besides reads, which have a path of their own ([`super::VolumeMachine::read`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientOperation {
    /// These bytes at this offset; `fua`: on stable storage before the reply.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
        /// Force unit access.
        fua: bool,
    },
    /// All writes acknowledged before this was asked to stable storage.
    Flush,
    /// The range's content is no longer needed.
    Trim {
        /// Which bytes.
        range: ByteRange,
        /// Force unit access.
        fua: bool,
    },
    /// Zeroes over the range.
    WriteZeroes {
        /// Which bytes.
        range: ByteRange,
        /// Whether holes may be made.
        may_trim: bool,
        /// Force unit access.
        fua: bool,
        /// Fail with `ENOTSUP` rather than be as slow as a write.
        fast: bool,
    },
    /// Load the range into the cache; answered when that is done.
    Cache {
        /// Which bytes.
        range: ByteRange,
    },
    /// Which bytes are allocated, and which read as zeroes.
    BlockStatus {
        /// Which bytes.
        range: ByteRange,
        /// Only the first extent.
        one_extent: bool,
    },
}

/// The one answer to a request that was not answered at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The request's number.
    pub tag: RequestTag,
    /// The bytes read (exactly as many as asked for), the extents of a block status ([`forebay_origin::ExtentList`]), empty for everything
    /// else; or the errno.
    pub result: Result<Vec<u8>, Errno>,
    /// Of a flush that failed: the origin may have said so once only, so that somebody must hear of it.
    pub is_said_once: bool,
    /// Likewise: how often others were told the same before it, whose connections ended so that they may not have heard.
    pub told_before: u32,
}

impl Reply {
    /// A reply that matters to who asked, and to nobody else.
    pub(crate) fn new(tag: RequestTag, result: Result<Vec<u8>, Errno>) -> Reply {
        Reply { tag, result, is_said_once: false, told_before: 0 }
    }
}

/// An error number as in Linux; what a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// Operation not permitted: a change of a read-only volume.
    pub const PERM: Errno = Errno(1);
    /// Input/output error.
    pub const IO: Errno = Errno(5);
    /// Invalid argument: outside the volume, not aligned as the origin needs it, or too long.
    pub const INVALID: Errno = Errno(22);
    /// No space: a write that passes the end of the volume.
    pub const NO_SPACE: Errno = Errno(28);
    /// Not supported: zeroes that are to be written fast or not at all, and are not.
    pub const NOT_SUPPORTED: Errno = Errno(95);
    /// The volume is being removed.
    pub const SHUTDOWN: Errno = Errno(108);
}

/// What became of a read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// All bytes came from the cache and were appended.
    Served,
    /// A [`Reply`] will follow; nothing was appended.
    Pending,
    /// Refused; nothing was appended and nothing follows.
    Refused(Errno),
}

/// What became of a read whose bytes are not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPlaceOutcome {
    /// All bytes are cached, at the places that were appended.
    Served,
    /// Not all of it is cached: [`super::VolumeMachine::read_missed`] must follow with this.
    Missed(Missed),
    /// Refused; nothing was appended and nothing follows.
    Refused(Errno),
}

/// A read that is not all cached: its blocks from `block` on are to be looked for elsewhere; those before were appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    pub(crate) block: BlockIndex,
}

/// Bytes of one cached block: good for [`super::VolumeMachine::bytes_at`] until the machine is next told anything but a read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub(crate) slot: Slot,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Place {
    /// How many bytes.
    pub fn bytes(self) -> usize {
        (self.end - self.start) as usize
    }
}

/// Maxima of one volume's machine. Every queue and table is bounded by them. The defaults are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeLimits {
    /// Client requests in flight, from which on [`super::VolumeMachine::has_room`] says no.
    pub requests_max: usize,
    /// Origin requests outstanding at once; more wait in the machine.
    pub origin_requests_max: usize,
    /// Longest origin read that misses of several requests are merged into.
    pub merge_bytes_max: Bytes,
    /// Parts of one long write that are outstanding at once.
    pub write_parts_max: usize,
    /// Longest part of a trim or of zeroes, so that no step visits too many blocks at once.
    pub zero_part_bytes_max: Bytes,
    /// Most blocks of a trim or of zeroes that are looked up one by one. A longer one empties its range, in memory and on flash: 28 bytes can ask for 4 GiB, and looking up a million blocks
    /// for each such request would take its worker from everybody else.
    pub patched_blocks_max: u64,
    /// Longest read, write or cache request.
    pub request_bytes_max: Bytes,
    /// Prewarm reads outstanding at once.
    pub prewarm_outstanding_max: usize,
    /// Length of one prewarm read.
    pub prewarm_read_bytes: Bytes,
    /// Runs of blocks in doubt that are kept apart; more are widened to one run that spans them.
    pub doubt_runs_max: usize,
    /// Flash reads outstanding at once; more wait in the machine.
    pub flash_reads_max: usize,
}

impl Default for VolumeLimits {
    fn default() -> VolumeLimits {
        VolumeLimits {
            requests_max: 4096,
            origin_requests_max: 256,
            merge_bytes_max: Bytes::kib(256),
            write_parts_max: 16,
            zero_part_bytes_max: Bytes::mib(64),
            patched_blocks_max: 1_024,
            request_bytes_max: Bytes::mib(32),
            prewarm_outstanding_max: 4,
            prewarm_read_bytes: Bytes::kib(256),
            doubt_runs_max: 4096,
            flash_reads_max: 128,
        }
    }
}
