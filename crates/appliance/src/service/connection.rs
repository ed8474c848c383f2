//! One client in the transmission phase: its session, what it holds, and its requests that wait for their replies.
//!
//! Invariant: `in_flight` and `held_bytes` are those of the entries of the service's table of pending requests that name it.

use super::succeeding::Said;
use super::writers::FailedFlush;
use super::{Entrance, Output, ServiceLimits, VolumeEntry};
use crate::slab::{Slab, SlabKey};
use crate::volume::{ClientAddress, ClientOperation, Errno, RequestTag};
use forebay_nbd::Succession;
use forebay_nbd::server::{Disconnect, ReplyEncoder, Request, Session};
use forebay_nbd::wire::{Command, ErrorCode, LinuxErrno};
use forebay_origin::EXTENTS_MAX;
use forebay_units::Nanos;

/// What the answer to a block status holds, at most.
pub(super) const STATUS_BYTES_MAX: u32 = 8 * EXTENTS_MAX as u32;

/// One client in the transmission phase.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) session: Session,
    pub(super) replies: ReplyEncoder,
    pub(super) volume: SlabKey,
    /// By which way its requests come.
    pub(super) entrance: Entrance,
    /// From where.
    pub(super) client: ClientAddress,
    /// Whose place it takes, as its client says.
    pub(super) succession: Option<Succession>,
    /// Requests of those whose place it takes that are not over: nothing of it is begun before they are.
    pub(super) awaits: usize,
    /// What its client has not heard of: the answer to the first flush of it.
    pub(super) lacks: Option<Errno>,
    /// Received and not parsed yet.
    pub(super) input: Vec<u8>,
    /// The write whose payload is being received.
    pub(super) receiving: Option<(Request, Vec<u8>)>,
    pub(super) output: Output,
    /// The error of a flush that somebody must hear of, and how much of the output the client takes until it has: what goes to one that left is heard by nobody.
    pub(super) unheard: Option<(Errno, usize)>,
    /// The last such error that its client was sent. Who succeeds it may not have heard of it.
    pub(super) said: Option<Errno>,
    /// Likewise, while no later flush of it has succeeded.
    pub(super) failed_last: Option<FailedFlush>,
    /// Requests in flight, and the bytes that they hold.
    pub(super) in_flight: usize,
    pub(super) held_bytes: usize,
    /// In the list of connections that the driver should look at.
    pub(super) is_dirty: bool,
    /// In the list of connections that wait for room.
    pub(super) is_waiting: bool,
    /// Why it will be closed.
    pub(super) closing: Option<Closing>,
    /// Something that it asked is not answered, and is to be asked again where it connects next.
    pub(super) asks_again: bool,
    /// Its client has said farewell, whether it stays for what it is owed or not.
    pub(super) has_taken_leave: bool,
    /// There is input that was left for the next turn, or for better times.
    pub(super) has_leftover: bool,
    /// Bytes that the request holds which was left because there was no room for it.
    pub(super) wants: usize,
    /// When the payload that is being received was announced.
    pub(super) receiving_since: Nanos,
    /// When the client last had taken [`PROGRESS_BYTES`], or had nothing to take; and what it took since.
    pub(super) taken_at: Nanos,
    pub(super) taken_bytes: usize,
}

/// How a connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// The client asked for it: its requests are answered first.
    InOrder(Disconnect),
    /// Nothing more is taken of it: it was fenced off, or its volume has ended. What it asked before is answered first, and it hears the end.
    Parting,
    /// Nothing more is taken of it, and it stays until its volume has ended.
    Leaving,
    /// At once.
    Now,
    /// At once, and what is answered from here on its client must not hear here.
    Unanswered,
}

/// A request that waits for its reply.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) connection: SlabKey,
    pub(super) volume: SlabKey,
    pub(super) entrance: Entrance,
    pub(super) succession: Option<Succession>,
    pub(super) request: Request,
    /// Of a flush: which acknowledged changes it covers.
    pub(super) covers: u64,
    pub(super) held_bytes: usize,
}

impl Connection {
    /// Whether nothing more is said to its client but what was before.
    pub(super) fn ends_at_once(&self) -> bool {
        matches!(self.closing, Some(Closing::Now | Closing::Unanswered))
    }

    /// Bytes that its requests and replies hold.
    pub(super) fn holds(&self) -> usize {
        let receiving = self.receiving.as_ref().map_or(0, |(_, data)| data.capacity());
        self.held_bytes + self.output.len() + receiving
    }

    /// Replies were added to the `before` bytes that waited.
    pub(super) fn note_output(&mut self, now: Nanos, before: usize) {
        if before == 0 {
            (self.taken_at, self.taken_bytes) = (now, 0);
        }
    }

    /// Whether another request may be parsed, with `more` bytes of replies besides the output.
    pub(super) fn has_room(&self, limits: &ServiceLimits, more: usize) -> bool {
        self.in_flight < limits.requests_per_connection_max
            && ((self.output.len() + more) as u64) < limits.output_per_connection_max.0
            && (self.held_bytes as u64) < limits.held_per_connection_max.0
    }

    pub(super) fn refuse(&mut self, cookie: u64, errno: Errno) {
        let replies = self.replies;
        let code = ErrorCode::from_linux(LinuxErrno(errno.0));
        self.output.append(|output| replies.error(cookie, code, "", output));
    }

    /// Notes that `request`, which the machine was told with the next tag of `pending`, waits for its reply.
    pub(super) fn wait(
        &mut self,
        key: SlabKey,
        request: &Request,
        covers: u64,
        pending: &mut Slab<Pending>,
        held_bytes_of_worker: &mut usize,
    ) {
        let held_bytes = match request.command {
            Command::Read | Command::Write => request.range.length as usize,
            Command::BlockStatus => STATUS_BYTES_MAX as usize,
            _ => 0,
        };
        self.in_flight += 1;
        self.held_bytes += held_bytes;
        *held_bytes_of_worker += held_bytes;
        pending.insert(Pending {
            connection: key,
            volume: self.volume,
            entrance: self.entrance,
            succession: self.succession,
            request: *request,
            covers,
            held_bytes,
        });
    }

    /// Serves one request that is no read; true if its reply comes later, to the tag `key`.
    #[inline]
    pub(super) fn serve(
        &mut self,
        now: Nanos,
        key: SlabKey,
        volume: &mut VolumeEntry,
        request: &Request,
        data: Vec<u8>,
    ) -> bool {
        let tag = RequestTag(key.0);
        let (range, fua) = (request.range, request.fua());
        let inherited = |said: &mut Said| said.inherited_by(self.succession?);
        if (request.command == Command::Flush || fua)
            && let Some(errno) = self.lacks.take().or_else(|| inherited(&mut volume.said))
        {
            (self.said, self.failed_last) = (Some(errno), Some(volume.writers.failed_now(errno, 0)));
            self.refuse(request.cookie, errno);
            return false;
        }
        if request.command == Command::Flush
            && let Some(errno) = volume.writers.owed(self.succession)
        {
            self.refuse(request.cookie, errno);
            (self.unheard, self.said) = (Some((errno, self.output.len())), Some(errno));
            self.failed_last = Some(volume.writers.failed_now(errno, 0));
            return false;
        }
        let operation = match request.command {
            Command::Write => ClientOperation::Write { offset: range.offset, data, fua },
            Command::Flush => ClientOperation::Flush,
            Command::Trim => ClientOperation::Trim { range, fua },
            Command::WriteZeroes => ClientOperation::WriteZeroes {
                range,
                may_trim: request.may_make_hole(),
                fua,
                fast: request.fast_zero(),
            },
            Command::Cache => ClientOperation::Cache { range },
            Command::BlockStatus => ClientOperation::BlockStatus { range, one_extent: request.one_extent() },
            _ => {
                self.refuse(request.cookie, Errno::INVALID);
                return false;
            }
        };
        volume.machine.request(now, tag, operation);
        true
    }
}
