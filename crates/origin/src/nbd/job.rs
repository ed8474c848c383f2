//! A request on its way to an NBD server, which may take several of the protocol's requests.

use super::unflushed::{UnflushedChanges, Withheld};
use super::{Queue, Shared};
use crate::extents::ExtentList;
use crate::pending::{EIO, Pending};
use crate::pool::locked;
use crate::request::{CompletionSink, OriginCompletion, OriginError, OriginOperation, OriginRequestId};
use forebay_nbd::RunId;
use forebay_nbd::client::{Export, Operation};
use forebay_nbd::wire::TransmissionFlags;
use forebay_units::ByteRange;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Zeroes are written in pieces of this size where the server offers no command for them.
const ZEROES_BYTES: u64 = 1 << 20;
/// Longest trim, zeroing or block status in one request: the protocol's length has 32 bits; a multiple of every smallest block.
const RANGE_BYTES_MAX: u64 = 1 << 31;
/// A request is sent at most so many times to a server of which nothing more is known (ours).
const SENDS_MAX: u32 = 3;

pub(super) struct Job {
    pub(super) pending: Pending,
    pub(super) operation: OriginOperation,
    /// When it was asked for.
    pub(super) asked_at: Instant,
    /// When it began to wait for a connection.
    pub(super) waits_since: Instant,
    /// Bytes of the range that are done.
    done: u64,
    /// All bytes are done, and a flush stands in for the FUA that the server does not offer.
    flushing: bool,
    /// How often a connection was lost under it, and when first.
    losses: u32,
    lost_at: Option<Instant>,
    /// Of a flush: its answer may have been lost with a connection, and it may have been the server's only word of lost data.
    pub(super) may_be_answered: bool,
    /// Changes acknowledged when the flush was sent.
    pub(super) covers: u64,
    /// Losses of acknowledged changes when the flush was asked for; of a change with FUA, when the first of it was sent.
    pub(super) losses_before: u64,
    /// Nobody asked for it but we, and nobody else would hear of an error.
    pub(super) is_ours: bool,
}

/// Who asks for nothing but an answer.
struct Nobody;

impl CompletionSink for Nobody {
    fn complete(&self, _: OriginCompletion) {}
}

/// Counts flushes of ours that are not over.
struct Ours(Arc<AtomicU64>);

impl CompletionSink for Ours {
    fn complete(&self, _: OriginCompletion) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shared {
    /// Something that has an answer and changes nothing; `None` where so much is asked that another one has.
    pub(super) fn question(&self) -> Option<Job> {
        let nobody: Arc<dyn CompletionSink> = Arc::new(Nobody);
        let pending = self.counters.admit(OriginRequestId(u64::MAX), &nobody)?;
        let range = ByteRange::new(0, self.export.block_sizes.min.max(1).into());
        Some(Job::new(pending, OriginOperation::Read { range }))
    }

    /// Queues a flush of ours, for what was acknowledged by whom only we know of: while it is not answered, nobody else could tell that it was lost, and no other flush goes out.
    /// None where so much is asked that another one has.
    pub(super) fn flush_for_ourselves(&self, queue: &mut Queue) {
        queue.own_flushes.fetch_add(1, Ordering::SeqCst);
        let ours: Arc<dyn CompletionSink> = Arc::new(Ours(Arc::clone(&queue.own_flushes)));
        // Where it is not admitted the sink hears of that, too.
        if let Some(pending) = self.counters.admit(OriginRequestId(u64::MAX), &ours) {
            let losses_before = locked(&self.unflushed).losses();
            let job = Job::new(pending, OriginOperation::Flush);
            queue.jobs.push_back(Job { is_ours: true, losses_before, ..job });
        }
    }
}

/// What to do next for a job.
pub(super) enum Step {
    /// Send this; `zeroes` of payload follow, or the data of the write.
    Send { operation: Operation, zeroes: u64 },
    /// There is nothing to send: it is done.
    Nothing,
}

impl Job {
    pub(super) fn new(pending: Pending, operation: OriginOperation) -> Job {
        let now = Instant::now();
        Job {
            pending,
            operation,
            asked_at: now,
            waits_since: now,
            done: 0,
            flushing: false,
            losses: 0,
            lost_at: None,
            may_be_answered: false,
            covers: 0,
            losses_before: 0,
            is_ours: false,
        }
    }

    /// One that may tell of a loss is about to be sent to this run of the server: notes of what it speaks if it is a flush, or that stands in for its FUA later.
    pub(super) fn speak_of(
        &mut self,
        unflushed: &UnflushedChanges,
        run: Option<RunId>,
    ) -> Result<(), Withheld> {
        if self.is_flush() {
            self.covers = unflushed.send_flush(run, self.losses_before)?;
        } else if self.done == 0 {
            self.losses_before = unflushed.losses();
        }
        Ok(())
    }

    /// A connection was lost under it, the server of which lets others succeed it or not. Whether it may be sent again: for `patience`, if it does, since that is the same run then
    /// and the network is to blame; else so often that a request which the server does not survive is not sent for ever.
    pub(super) fn may_go_again(&mut self, is_succeeded: bool, patience: Duration) -> bool {
        self.losses += 1;
        let lost_at = *self.lost_at.get_or_insert_with(Instant::now);
        self.losses < SENDS_MAX || (is_succeeded && lost_at.elapsed() < patience)
    }

    /// Whether its answer may be the server's only word of lost data: a change with FUA syncs, too.
    pub(super) fn may_tell_of_loss(&self) -> bool {
        self.is_flush() || self.operation.fua()
    }

    pub(super) fn is_flush(&self) -> bool {
        self.flushing || self.operation == OriginOperation::Flush
    }

    /// Whether it is at the flush behind a change for which the server offers no FUA.
    pub(super) fn stands_in_for_fua(&self) -> bool {
        self.flushing
    }

    /// What to send next to a server that offers `export`.
    pub(super) fn step(&self, export: &Export) -> Step {
        use TransmissionFlags as Flags;
        let offers = |flag| export.flags.contains(flag);
        let send = |operation| Step::Send { operation, zeroes: 0 };
        if self.is_flush() {
            // A server without flush has nothing that a flush would do, or nothing that we could ask of it.
            return if offers(Flags::SEND_FLUSH) { send(Operation::Flush) } else { Step::Nothing };
        }
        let range = self.operation.range();
        let left = range.length - self.done;
        let offset = range.offset + self.done;
        if left == 0 {
            return Step::Nothing;
        }
        let can_fua = offers(Flags::SEND_FUA);
        match &self.operation {
            OriginOperation::Read { .. } => {
                send(Operation::Read { offset, length: left as u32, dont_fragment: false })
            }
            OriginOperation::Write { fua, .. } => {
                send(Operation::Write { offset, length: left as u32, fua: *fua && can_fua })
            }
            // A trim is a hint: who cannot, need not.
            OriginOperation::Trim { .. } if !offers(Flags::SEND_TRIM) => Step::Nothing,
            OriginOperation::Trim { fua, .. } => {
                let length = left.min(RANGE_BYTES_MAX) as u32;
                send(Operation::Trim { offset, length, fua: *fua && can_fua })
            }
            OriginOperation::WriteZeroes { may_trim, fua, fast, .. } => {
                let fua = *fua && can_fua;
                // Sent also to a server that came back without fast zeroes: the session refuses it then.
                if *fast || offers(Flags::SEND_WRITE_ZEROES) {
                    let length = left.min(RANGE_BYTES_MAX) as u32;
                    return send(Operation::WriteZeroes {
                        offset,
                        length,
                        fua,
                        no_hole: !may_trim,
                        fast_zero: *fast,
                    });
                }
                let zeroes = left.min(ZEROES_BYTES).min(u64::from(export.block_sizes.max));
                Step::Send { operation: Operation::Write { offset, length: zeroes as u32, fua }, zeroes }
            }
            OriginOperation::BlockStatus { .. } if !export.block_status => Step::Nothing,
            OriginOperation::BlockStatus { one_extent, .. } => {
                let length = left.min(RANGE_BYTES_MAX) as u32;
                send(Operation::BlockStatus { offset, length, one_extent: *one_extent })
            }
            OriginOperation::Flush => unreachable!("flushes are handled above"),
        }
    }

    /// Notes that `bytes` more of the range are done; whether more must be sent.
    pub(super) fn advance(&mut self, bytes: u64, export: &Export) -> bool {
        if self.is_flush() {
            return false;
        }
        self.done += bytes;
        (self.losses, self.lost_at) = (0, None);
        if self.done < self.operation.range().length {
            return true;
        }
        self.flushing = self.operation.fua() && !self.is_forced(export);
        self.flushing
    }

    /// Whether a change is on stable storage once the server has acknowledged it: FUA was asked for, and the server offers it.
    pub(super) fn is_forced(&self, export: &Export) -> bool {
        self.operation.fua() && export.flags.contains(TransmissionFlags::SEND_FUA)
    }

    /// What was being done, for messages.
    pub(super) fn context(&self, what: &str) -> String {
        let name = match self.operation {
            OriginOperation::Read { .. } => "read",
            OriginOperation::Write { .. } => "write",
            OriginOperation::Flush => "flush",
            OriginOperation::Trim { .. } => "trim",
            OriginOperation::WriteZeroes { .. } => "zeroing",
            OriginOperation::BlockStatus { .. } => "block status",
        };
        let range = self.operation.range();
        format!("{name} of {}+{}: {what}", range.offset, range.length)
    }

    /// There was nothing to send: a server that cannot say what is allocated leaves all of it so.
    pub(super) fn nothing(self) {
        let answer = match self.operation {
            OriginOperation::BlockStatus { range, .. } => ExtentList::allocated(range.length),
            _ => Vec::new(),
        };
        self.pending.complete(Ok(answer));
    }

    /// It will not be sent (any further).
    pub(super) fn unreachable(self, what: &str) {
        if self.done > 0 && self.operation.changes_content() {
            // Pieces of it were acknowledged: it is not true that nothing was sent.
            return self.fail(EIO, what);
        }
        let context = self.context(what);
        let unsent = Some(Box::new(self.operation));
        self.pending.complete(Err(OriginError::Unreachable { context, unsent }));
    }

    /// It was in flight on a connection that is lost, and nothing more will be heard of it.
    pub(super) fn give_up(self, what: &str) {
        if self.stands_in_for_fua() {
            // The content of a change that waits for its flush was acknowledged: only its durability is not known.
            return self.fail(EIO, what);
        }
        self.outcome_unknown(what);
    }

    pub(super) fn fail(self, errno: i32, what: &str) {
        let context = self.context(what);
        self.pending.complete(Err(OriginError::Failed { errno, context }));
    }

    pub(super) fn outcome_unknown(self, what: &str) {
        if self.may_be_answered && self.is_flush() {
            // Whoever has the server fenced would ask for it by another way, and hear of a success.
            return self.fail(EIO, what);
        }
        let context = self.context(what);
        let asked = Some(Box::new(self.operation));
        self.pending.complete(Err(OriginError::OutcomeUnknown { context, asked }));
    }
}
