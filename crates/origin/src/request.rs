//! What an origin is asked and what it answers: plain data, shared by real origins and simulated ones.

use crate::statistics::OriginStatistics;
use forebay_nbd::{RunId, StorageId};
use forebay_units::ByteRange;
use std::fmt;
use std::fs::Metadata;
use std::os::fd::BorrowedFd;

/// The number that pairs a request with its completion; chosen by who submits, unique among its outstanding ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OriginRequestId(pub u64);

/// What is asked of an origin. Ranges lie inside the origin's size; who submits has checked that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginOperation {
    /// Bytes of the range.
    Read {
        /// Which bytes.
        range: ByteRange,
    },
    /// These bytes at this offset; `fua`: on stable storage before the completion.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
        /// Force unit access.
        fua: bool,
    },
    /// All writes completed before this was submitted to stable storage.
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
        /// If it cannot be done faster than by writing zeroes, it is to fail at once with `ENOTSUP`, and without having changed
        /// anything. Asked only of an origin that says it can ([`OriginTraits::can_fast_zero`]).
        fast: bool,
    },
    /// Which bytes of the range are allocated, and which read as zeroes. The answer is [`crate::ExtentList`]'s: it may end before the
    /// range does, but describes some of it. "Allocated" is always a true answer; "reads as zeroes" is given only of bytes that
    /// read so at some moment between submission and completion.
    BlockStatus {
        /// Which bytes; not empty.
        range: ByteRange,
        /// Only the first extent is of interest.
        one_extent: bool,
    },
}

impl OriginOperation {
    /// The bytes touched or asked about; empty for a flush.
    pub fn range(&self) -> ByteRange {
        match self {
            OriginOperation::Read { range }
            | OriginOperation::Trim { range, .. }
            | OriginOperation::WriteZeroes { range, .. }
            | OriginOperation::BlockStatus { range, .. } => *range,
            OriginOperation::Write { offset, data, .. } => ByteRange::new(*offset, data.len() as u64),
            OriginOperation::Flush => ByteRange::default(),
        }
    }

    /// Whether what it changes is to be on stable storage before the completion (force unit access).
    pub fn fua(&self) -> bool {
        match self {
            OriginOperation::Write { fua, .. }
            | OriginOperation::Trim { fua, .. }
            | OriginOperation::WriteZeroes { fua, .. } => *fua,
            OriginOperation::Read { .. } | OriginOperation::Flush | OriginOperation::BlockStatus { .. } => {
                false
            }
        }
    }

    /// Whether the content may change.
    pub fn changes_content(&self) -> bool {
        !self.only_looks() && *self != OriginOperation::Flush
    }

    /// Whether it leaves everything as it is, so that it may be asked again.
    pub fn only_looks(&self) -> bool {
        matches!(self, OriginOperation::Read { .. } | OriginOperation::BlockStatus { .. })
    }
}

/// A request to an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginRequest {
    /// Pairs it with its completion.
    pub id: OriginRequestId,
    /// What is asked.
    pub operation: OriginOperation,
}

/// The one answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginCompletion {
    /// The request's number.
    pub id: OriginRequestId,
    /// The bytes read (exactly as many as asked for), the extents of a block status, empty for every other operation; or why not.
    pub result: Result<Vec<u8>, OriginError>,
}

/// Why an origin did not do what it was asked. The kinds are those that the data path acts on differently.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OriginError {
    /// The origin answered with an error (errno as in Linux); what it holds of a failed write is not known.
    Failed {
        /// The errno, as in Linux.
        errno: i32,
        /// What was being done, for the log.
        context: String,
    },
    /// The connection was lost or timed out before the answer: a write may yet be applied *later* by a stranger's
    /// origin, so it is never sent again and its blocks stay in doubt until the origin is settled. Of a flush it is not known what it made
    /// durable; one that [`OriginError::Failed`] was answered so, perhaps for the only time.
    OutcomeUnknown {
        /// What was being done, for the log.
        context: String,
        /// What was asked for, where the origin still has it: once somebody has seen to it that nothing more comes of that, it may be asked of another way to the same data.
        asked: Option<Box<OriginOperation>>,
    },
    /// The origin cannot be reached and the request was never sent.
    Unreachable {
        /// What was being done, for the log.
        context: String,
        /// What was to be done, where the origin still has it: it may be asked of another way to the same data.
        unsent: Option<Box<OriginOperation>>,
    },
}

impl OriginError {
    /// The errno to answer a client with.
    pub fn errno(&self) -> i32 {
        match self {
            OriginError::Failed { errno, .. } => *errno,
            OriginError::OutcomeUnknown { .. } | OriginError::Unreachable { .. } => 5,
        }
    }
}

impl fmt::Display for OriginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OriginError::Failed { errno, context } => write!(f, "origin answered errno {errno}: {context}"),
            OriginError::OutcomeUnknown { context, .. } => {
                write!(f, "outcome unknown, connection lost: {context}")
            }
            OriginError::Unreachable { context, .. } => write!(f, "origin unreachable: {context}"),
        }
    }
}

impl std::error::Error for OriginError {}

/// What is true of an origin for as long as it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginTraits {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Refuses every change.
    pub read_only: bool,
    /// Smallest unit and alignment that it accepts, in bytes: a power of two.
    pub block_size_min: u32,
    /// Unit that it likes best, in bytes: a power of two.
    pub block_size_preferred: u32,
    /// Longest request that it accepts, in bytes.
    pub request_bytes_max: u32,
    /// Whether trims do anything.
    pub can_trim: bool,
    /// Whether zeroes are, mostly, made faster than by writing them.
    pub can_fast_zero: bool,
    /// Whether a flush on one path covers writes acknowledged on another.
    pub can_multi_conn: bool,
}

/// Where completions go; called from the origin's threads, or from the thread that submits or drives a [`Reactor`], so it must not block: it queues and wakes.
pub trait CompletionSink: Send + Sync {
    /// Takes one completion.
    fn complete(&self, completion: OriginCompletion);
}

/// A storage system that holds a volume's data.
///
/// Requests may complete in any order. Every submitted request is completed exactly once, after an error or a lost
/// connection too. `submit` does not block on I/O; when the origin's own queue (its maximum is in its documentation) is
/// full it answers `Failed` with `EBUSY` rather than grow.
pub trait Origin: Send + Sync {
    /// Size and abilities.
    fn traits(&self) -> OriginTraits;

    /// Starts a request; its completion reaches `sink`, perhaps before this returns.
    fn submit(&self, request: OriginRequest, sink: &std::sync::Arc<dyn CompletionSink>);

    /// Starts requests, in their order, like as many calls of [`Origin::submit`]; an origin may hand them on together.
    fn submit_all(
        &self,
        requests: &mut dyn Iterator<Item = OriginRequest>,
        sink: &std::sync::Arc<dyn CompletionSink>,
    ) {
        requests.for_each(|request| self.submit(request, sink));
    }

    /// The part of an origin that an event loop may drive instead of the origin's own thread, which saves a change of threads
    /// per completion; `None` if there is none, or somebody drives it already.
    fn reactor(&self) -> Option<Box<dyn Reactor>> {
        None
    }

    /// One line for people: what it is and where.
    fn describe(&self) -> String;

    /// What it has done and whether it can be reached; cheap enough to be asked every second.
    fn statistics(&self) -> OriginStatistics {
        OriginStatistics::default()
    }

    /// An operator declares that no write reported as [`OriginError::OutcomeUnknown`] until now will be applied any
    /// more, which only who runs the storage can know. The origin clears its count of writes in doubt; who keeps
    /// ranges in doubt clears them with it.
    fn settle(&self) {}

    /// A number for what it is on, where nobody else can have that open while it has: who had it open before, here, has let go of it, and nothing of theirs comes any more. `None` where that is not known.
    fn storage(&self) -> Option<StorageId> {
        None
    }

    /// What the system says now of the file that it has open: its number, its size and its times, whatever bears its name meanwhile. `None` where there is none.
    fn metadata(&self) -> Option<Metadata> {
        None
    }

    /// Whether it knows by itself that no write reported as [`OriginError::OutcomeUnknown`] until now can be applied any more: who keeps ranges in doubt may clear them. Not every
    /// origin can tell; cheap enough to be asked every second.
    fn is_settled(&self) -> bool {
        false
    }

    /// Who keeps what is acknowledged here until it is flushed, as far as is known now: the run of the last server on the way; `own`, the run of who asks, if there is none. `None` where that is a
    /// server of others.
    fn keeper(&self, own: RunId) -> Option<RunId> {
        Some(own)
    }

    /// For how long nobody has listened where it is: there is no connection, and each attempt at one was refused at once, as a machine does for a program that has ended. `None` where it
    /// can be reached, where nobody answers at all, and for an origin without connections.
    fn refused_for(&self) -> Option<std::time::Duration> {
        None
    }

    /// What it has acknowledged and not flushed, if it knows.
    fn unflushed(&self) -> Option<Unflushed> {
        None
    }

    /// It takes the place of another way to the same data, which had acknowledged this and is left without a flush: whoever keeps it may lose it before a flush here.
    fn inherit(&self, _: Unflushed) {}

    /// Nobody waits for the origin any more, and nothing of it can change data, which only who fenced it can know: what is on it completes now, as
    /// [`OriginError::Unreachable`] or of unknown outcome, and so does what is submitted from now on. An origin that always completes needs not do anything.
    fn abandon(&self) {}
}

/// Changes that were acknowledged, and not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unflushed {
    /// Who keeps them, where that is known.
    pub keeper: Option<RunId>,
    /// Some of them are lost, or may be, whoever kept them, and nobody who flushes has heard of it: a sync failed, or another run was to be flushed than had kept them.
    pub is_lost: bool,
}

/// What an event loop drives of an origin. While it lives, completions come from [`Reactor::proceed`], on the thread that
/// calls it; when it is dropped, the origin's own thread goes on.
pub trait Reactor: Send {
    /// Readable when there is something to do.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Does what there is to do, without waiting.
    fn proceed(&self);
}
