//! The pause in which a volume changes its origin: what is at the origin completes, what was acknowledged is flushed, nothing new goes out.
//!
//! Another origin is another way to the *same data*: who asks for the change vouches for that, so what is cached stays true. The machine sees to the
//! rest: no request is at the old origin when the new one gets its first, and none is lost or sent twice. Clients' requests wait in the
//! machine meanwhile, in the tables and below the maxima that they wait in anyway; hits are served.

use super::{InFlight, Kind, VolumeMachine};
use crate::slab::SlabKey;
use forebay_origin::{
    OriginCompletion, OriginError, OriginOperation, OriginRequest, OriginRequestId, OriginTraits,
};
use forebay_units::{BlockRange, ByteRange, Bytes, Nanos};
use std::sync::mpsc::Sender;
use thiserror::Error;

/// Flushes ahead of changes of the origin at most, whether anybody waits for them still or not (ours): an origin that hangs keeps each.
const FLUSHES_AHEAD_MAX: usize = 8;

/// Where a volume is on the way to its pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// What is at the origin completes.
    Draining,
    /// So does the flush.
    Flushing,
    /// Nothing is at the origin.
    Held,
    /// It is not to be had; waits for [`VolumeMachine::release`].
    Failed(HoldError),
}

/// How far a pause is, for who asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldState {
    /// Requests are still at the origin: so many.
    Waiting(usize),
    /// Nothing is at the origin, and what was acknowledged is on stable storage there.
    Held,
    /// It is not to be had.
    Failed(HoldError),
}

/// Why a volume cannot be held.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HoldError {
    /// It is held already.
    #[error("it is on its way to another origin already")]
    Already,
    /// It is being removed.
    #[error("it is being removed")]
    Removed,
    /// The old origin may apply lost writes later, when the new one has served others.
    #[error(
        "writes of unknown outcome may yet be applied by the old origin, the first at {}+{}: settle them first, or, where the old origin cannot apply them any more, say `--settled`",
        .first.offset, .first.length
    )]
    InDoubt {
        /// The first range of them.
        first: ByteRange,
    },
    /// Others, whose changes of its origin came to nothing, have left so many flushes at an origin that does not answer.
    #[error("{waiting} flushes ahead of changes of its origin wait for it already")]
    Crowded {
        /// How many.
        waiting: usize,
    },
    /// The old origin did not flush: what clients were told is written might be seen by one origin only.
    #[error("the old origin did not flush: {reason}")]
    NotFlushed {
        /// What it said.
        reason: String,
    },
}

/// Why an origin cannot take the place of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnfitError {
    /// The sizes differ.
    #[error("it has {found}, the old one {expected}: it is other data")]
    Size {
        /// Of the new one.
        found: Bytes,
        /// Of the old one.
        expected: Bytes,
    },
    /// Clients were told that they may write.
    #[error("it is read-only, and the volume is not")]
    ReadOnly,
    /// Clients were told that they may use smaller units.
    #[error("its smallest unit is {found}, and clients were told {expected}")]
    SmallestUnit {
        /// Of the new one.
        found: Bytes,
        /// Of the old one.
        expected: Bytes,
    },
    /// Requests that wait may be longer.
    #[error("its longest request is {found}, expected at least {expected}")]
    LongestRequest {
        /// Of the new one.
        found: Bytes,
        /// What the volume uses.
        expected: Bytes,
    },
    /// Clients were told that they may ask for zeroes that are fast.
    #[error("it cannot make zeroes fast, and clients were told that the volume can")]
    FastZeroes,
}

/// On which terms an origin is left for another way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leave {
    /// Nothing that was asked of the origin can change data any more, because it was fenced. Then it need not be flushed (whoever fenced it has what it acknowledged, for any path), doubt is
    /// none, and what the origin gives up is asked of the next one, where the origin still has it: whether a change was made is not known, but nothing more comes of it, and no
    /// other change of its blocks has been begun since, so that it is made by being made again.
    pub settled: bool,
    /// What is cached is forgotten, for who does not rely on both being the same data. A change that may have been made fails then: others may have written since.
    pub drops_cache: bool,
}

impl VolumeMachine {
    /// Asks for a pause: [`VolumeMachine::hold_state`] tells when there is nothing at the origin. It lasts until
    /// [`VolumeMachine::change_origin`] or [`VolumeMachine::release`].
    ///
    /// # Errors
    /// [`HoldError`] if it is not to be had; nothing has changed then.
    pub fn hold(&mut self, leave: Leave) -> Result<(), HoldError> {
        if self.hold.is_some() {
            return Err(HoldError::Already);
        }
        if self.draining {
            return Err(HoldError::Removed);
        }
        if !leave.settled {
            self.check_settled()?;
        }
        self.leave = leave;
        self.hold = Some(Hold::Draining);
        Ok(())
    }

    fn check_settled(&self) -> Result<(), HoldError> {
        self.first_in_doubt().map_or(Ok(()), |first| Err(HoldError::InDoubt { first }))
    }

    /// How far the pause is; `None`: there is none, and none was asked for, or the volume is being removed.
    pub fn hold_state(&self) -> Option<HoldState> {
        Some(match self.hold.as_ref()? {
            Hold::Draining | Hold::Flushing => HoldState::Waiting(self.at_origin),
            Hold::Held => HoldState::Held,
            Hold::Failed(error) => HoldState::Failed(error.clone()),
        })
    }

    /// Ends the pause, or the way to it: requests go to the origin as before.
    pub fn release(&mut self) {
        (self.hold, self.leave) = (None, Leave::default());
    }

    /// The traits by which the volume is served.
    #[cfg(test)]
    pub(crate) fn settings_origin(&self) -> OriginTraits {
        self.settings.origin
    }

    /// Whether an origin with these traits can take the place of the volume's without breaking what clients were told.
    ///
    /// # Errors
    /// [`UnfitError`].
    pub fn check_fits(&self, origin: &OriginTraits) -> Result<(), UnfitError> {
        let old = &self.settings.origin;
        if origin.size_bytes != old.size_bytes {
            let (found, expected) = (Bytes(origin.size_bytes), Bytes(old.size_bytes));
            return Err(UnfitError::Size { found, expected });
        }
        if origin.read_only && !self.is_read_only() {
            return Err(UnfitError::ReadOnly);
        }
        if origin.block_size_min > old.block_size_min {
            let (found, expected) = (origin.block_size_min, old.block_size_min);
            return Err(UnfitError::SmallestUnit {
                found: Bytes(found.into()),
                expected: Bytes(expected.into()),
            });
        }
        if u64::from(origin.request_bytes_max) < self.part_bytes_max {
            let (found, expected) = (Bytes(origin.request_bytes_max.into()), Bytes(self.part_bytes_max));
            return Err(UnfitError::LongestRequest { found, expected });
        }
        if old.can_fast_zero && !origin.can_fast_zero && !self.is_read_only() {
            return Err(UnfitError::FastZeroes);
        }
        Ok(())
    }

    /// From here on requests go to another origin, and the pause is over.
    ///
    /// # Panics
    /// If the volume is not held, or the origin does not fit: the caller looked.
    pub fn change_origin(&mut self, origin: &OriginTraits) {
        assert_eq!(
            (self.hold.take(), self.at_origin),
            (Some(Hold::Held), 0),
            "only who is held changes the origin"
        );
        self.check_fits(origin).expect("the caller looked");
        let leave = std::mem::take(&mut self.leave);
        if leave.settled {
            self.settle();
        }
        if leave.drops_cache {
            let end = self.size_bytes().div_ceil(self.settings.block_size.bytes());
            // What the flash device is asked for is of the old origin, too.
            self.forget(BlockRange { first: 0, end });
        }
    }

    /// While the volume is held, or about to be: what may go to the origin is the flush, once all else has completed.
    pub(super) fn submit_held(&mut self, now: Nanos, requests: &mut Vec<OriginRequest>) {
        if self.hold != Some(Hold::Draining) || self.at_origin > 0 {
            return;
        }
        if let (false, Err(error)) = (self.leave.settled, self.check_settled()) {
            self.hold = Some(Hold::Failed(error));
            return;
        }
        if self.leave.settled || self.is_read_only() {
            self.hold = Some(Hold::Held);
            return;
        }
        let (flush, failures_seen) = (Some(self.overlapping.send()), self.overlapping.seen());
        let kind = Kind::HoldFlush { told: None };
        let key = self.in_flight.insert(InFlight { kind, submitted_at: now, flush, failures_seen });
        self.observer.counters.origin_requests += 1;
        self.at_origin += 1;
        self.hold = Some(Hold::Flushing);
        requests.push(OriginRequest { id: OriginRequestId(key.0), operation: OriginOperation::Flush });
    }

    /// An origin that was fenced gave a request up: it goes to the front of the queue, to be asked of the next one, if that is as though it had never
    /// been asked, or only been asked there. False if not.
    pub(super) fn asks_again(&mut self, key: SlabKey, completion: &mut OriginCompletion) -> bool {
        let Err(error) = &mut completion.result else { return false };
        let Some(entry) = self.in_flight.get_mut(key).filter(|_| self.leave.settled) else { return false };
        let is_lost = !matches!(error, OriginError::Failed { .. });
        let goes_back = match &mut entry.kind {
            Kind::Fill(fill) if is_lost && !fill.is_flash() => {
                fill.submitted = false;
                true
            }
            Kind::Status { .. } => is_lost,
            // What it was to make durable is the fence's, so asked of any path it is made so. But not where the origin itself says that it
            // failed: it may be its only word of data that were lost before the fence, which another path would not repeat.
            Kind::Flush { .. } | Kind::HoldFlush { .. } => is_lost,
            Kind::Part(part) => {
                let may_be_made = matches!(error, OriginError::OutcomeUnknown { .. });
                let left = match error {
                    OriginError::Unreachable { unsent, .. } => unsent.take(),
                    OriginError::OutcomeUnknown { asked, .. } if !self.leave.drops_cache => asked.take(),
                    _ => None,
                };
                part.operation = left.map(|operation| *operation);
                let goes_back = part.operation.is_some();
                if goes_back && may_be_made && !std::mem::replace(&mut part.is_asked_again, true) {
                    self.asked_again += 1;
                }
                goes_back
            }
            _ => false,
        };
        if goes_back {
            self.at_origin -= 1;
            self.queue.push_front(key);
        }
        goes_back
    }

    /// One that was asked again has ended.
    pub(super) fn answered_again(&mut self) {
        self.asked_again -= 1;
        if self.asked_again == 0
            && let Some(told) = self.none_asked_again.take()
        {
            let _ = told.send(());
        }
    }

    /// How many parts of changes, which a way that was left may have made, were asked of the next one and have not ended: until then whoever writes the same blocks by another
    /// way, and has seen them made, may be overwritten by them.
    pub fn asked_again(&self) -> usize {
        self.asked_again
    }

    /// The same; once there is none, `told` hears of it, if nobody else asks before that and the volume does not end first.
    pub(crate) fn when_none_is_asked_again(&mut self, told: Sender<()>) -> usize {
        match self.asked_again {
            0 => drop(told.send(())),
            _ => self.none_asked_again = Some(told),
        }
        self.asked_again
    }

    /// Flushes the origin ahead of a pause, so that little is left to flush when clients wait; `told` hears how that ended, if the volume does not end first. At most
    /// [`FLUSHES_AHEAD_MAX`] wait at a time. What the origin says of a failure is owed to the next client that flushes, whether anybody still listens or not.
    pub(crate) fn flush_ahead(&mut self, told: Sender<Result<(), HoldError>>) {
        if self.draining || self.is_read_only() {
            let _ = told.send(if self.draining { Err(HoldError::Removed) } else { Ok(()) });
            return;
        }
        let waiting = self.flushes_ahead;
        if waiting == FLUSHES_AHEAD_MAX {
            let _ = told.send(Err(HoldError::Crowded { waiting }));
            return;
        }
        self.flushes_ahead += 1;
        self.enqueue(Kind::HoldFlush { told: Some(told) });
    }

    /// A flush before the pause, or in it, ended.
    pub(super) fn hold_flushed(
        &mut self,
        told: Option<Sender<Result<(), HoldError>>>,
        flushed: Result<(), HoldError>,
    ) {
        match told {
            Some(told) => {
                self.flushes_ahead -= 1;
                let _ = told.send(flushed);
            }
            // Who was released meanwhile does not care.
            None if self.hold == Some(Hold::Flushing) => {
                self.hold = Some(flushed.map_or_else(Hold::Failed, |()| Hold::Held));
            }
            None => {}
        }
    }
}
