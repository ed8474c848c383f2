//! The request record that every reader yields and every writer takes.

use forebay_units::{ByteRange, Nanos};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    /// Bytes from the volume.
    Read = 0,
    /// Bytes to the volume.
    Write = 1,
    /// Acknowledged writes to stable storage; has no byte range.
    Flush = 2,
    /// Bytes no longer needed (discard, trim, write zeroes with unmap).
    Discard = 3,
    /// Anything else, or an operation that the record leaves blank.
    Other = 4,
}

/// The number of a volume in its trace, in order of first appearance; its name is kept by the reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeIndex(pub u32);

/// The number of a thread (or process) in its trace: 1, 2, ... in the order of their first requests. Whose number it was
/// on the recorded machine is not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadNumber(pub u16);

impl ThreadNumber {
    /// The format records none, or the trace had 65,535 others before (ours).
    pub const UNKNOWN: ThreadNumber = ThreadNumber(0);
}

/// One request of a trace: a byte range of a volume at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Since the trace's own start (the smallest time that its format can say it starts at, or the first request);
    /// not necessarily ascending: several public traces step back.
    pub time: Nanos,
    /// First byte, or the object's id times the page size where the format counts pages or objects.
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub length: u64,
    /// Service time as recorded, [`Nanos::MAX`] where the format has none.
    pub latency: Nanos,
    /// Which volume.
    pub volume: VolumeIndex,
    /// Whose request it was, as far as the format records that.
    pub thread: ThreadNumber,
    /// What was asked for.
    pub operation: Operation,
}

impl Request {
    /// The bytes asked for.
    pub const fn range(&self) -> ByteRange {
        ByteRange { offset: self.offset, length: self.length }
    }
}
