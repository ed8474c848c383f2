//! A volume changes its origin while it serves: the worker's part.
//!
//! The worker holds the volume, tells who asked once nothing is at the old origin, and goes on with the new one, or with the old one when it is told so
//! or the time is over. It waits for nothing and opens nothing: that is done by who asked, on a thread of its own.

use super::worker::Worker;
use crate::slab::SlabKey;
use crate::volume::{HoldError, HoldState, Leave, UnfitError};
use forebay_origin::Origin;
use forebay_units::Nanos;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use thiserror::Error;

/// Why a volume does not change its origin. It is served by the old one then, as before.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RetargetError {
    /// It cannot be held.
    #[error(transparent)]
    Hold(#[from] HoldError),
    /// Requests were still at the old origin when the time was over.
    #[error("{in_flight} requests were still at the old origin when the time was over")]
    NotDrained {
        /// How many.
        in_flight: usize,
    },
    /// Nobody is at the old origin who could complete what is at it.
    #[error("nobody listens at the old origin, which refuses connections: what is at it cannot be completed")]
    NobodyThere,
    /// The old origin was left, but what else had to be done took too long.
    #[error("the time was over before the other origin could take over")]
    TooLate,
    /// The other origin cannot take its place.
    #[error("the other origin does not fit: {0}")]
    Unfit(#[from] UnfitError),
    /// The other origin holds other data.
    #[error("the other origin holds other data: what is read from byte {at} on is not the same there")]
    OtherData {
        /// Where, in bytes.
        at: u64,
    },
    /// The two could not be compared.
    #[error("the origins cannot be compared: {reason}")]
    NotCompared {
        /// Why.
        reason: String,
    },
    /// The volume is being removed, or gone.
    #[error("the volume is gone")]
    Gone,
}

/// The origin that was left, or goes on, and how long the volume was held.
pub(crate) type Resumed = Result<(Arc<dyn Origin>, Nanos), RetargetError>;

/// A volume that is held, or is about to be.
pub(super) struct Holding {
    volume: SlabKey,
    began: Nanos,
    deadline: Nanos,
    /// Gone once it was answered.
    reply: Option<SyncSender<Result<Nanos, RetargetError>>>,
}

impl Holding {
    pub(super) fn deadline(&self) -> Nanos {
        self.deadline
    }
}

impl Worker {
    /// Begins to hold a volume.
    pub(super) fn hold(
        &mut self,
        volume: SlabKey,
        leave: Leave,
        now: Nanos,
        deadline: Nanos,
        reply: SyncSender<Result<Nanos, RetargetError>>,
    ) {
        let held = match self.service.volume(volume) {
            None => Err(RetargetError::Gone),
            Some(machine) => machine.hold(leave).map_err(RetargetError::from),
        };
        match held {
            Ok(()) => {
                if leave.settled {
                    self.origin_of(volume).abandon();
                }
                self.holding.push(Holding { volume, began: now, deadline, reply: Some(reply) });
            }
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    /// A volume that is held goes on, with `origin` if there is one.
    pub(super) fn resume_held(
        &mut self,
        volume: SlabKey,
        now: Nanos,
        origin: Option<Arc<dyn Origin>>,
    ) -> Resumed {
        let at = self.holding.iter().position(|holding| holding.volume == volume);
        let holding = self.holding.swap_remove(at.ok_or(RetargetError::TooLate)?);
        let span = now.saturating_since(holding.began);
        let machine = self.service.volume(volume).ok_or(RetargetError::Gone)?;
        let is_held = machine.hold_state() == Some(HoldState::Held);
        let Some(origin) = origin.filter(|_| is_held) else {
            machine.release();
            return if is_held { Ok((self.origin_of(volume), span)) } else { Err(RetargetError::TooLate) };
        };
        let traits = origin.traits();
        if let Err(unfit) = machine.check_fits(&traits) {
            machine.release();
            return Err(unfit.into());
        }
        machine.change_origin(&traits);
        if let Some(unflushed) = self.origin_of(volume).unflushed() {
            origin.inherit(unflushed);
        }
        Ok((self.replace_origin(volume, origin), span))
    }

    /// Answers who waits for volumes to be held, and lets those go on whose time is over; true if requests may go on because of that.
    pub(super) fn check_held(&mut self, now: Nanos) -> bool {
        let mut goes_on = false;
        let mut holding = std::mem::take(&mut self.holding);
        holding.retain_mut(|holding| {
            let answer = match self.service.peek(holding.volume).and_then(|machine| machine.hold_state()) {
                None => Err(RetargetError::Gone),
                Some(HoldState::Failed(error)) => Err(error.into()),
                Some(HoldState::Waiting(in_flight)) if now >= holding.deadline => {
                    Err(RetargetError::NotDrained { in_flight })
                }
                Some(HoldState::Waiting(_)) => return true,
                Some(HoldState::Held) if now >= holding.deadline => Err(RetargetError::TooLate),
                Some(HoldState::Held) => Ok(now.saturating_since(holding.began)),
            };
            let is_held = answer.is_ok();
            if let Some(reply) = holding.reply.take() {
                let _ = reply.send(answer);
            }
            if !is_held {
                goes_on = true;
                if let Some(machine) = self.service.volume(holding.volume) {
                    machine.release();
                }
            }
            is_held
        });
        self.holding = holding;
        goes_on
    }
}
