//! How a volume ends in order: nothing new is begun, what is in flight completes, and where somebody goes by that, the origin flushes behind all of it.

use super::{Kind, VolumeMachine};
use forebay_cache::flash::FlashPartition;

/// Where the flush before the end is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LastFlush {
    NotAsked,
    Asked,
    /// Or what the origin said in place of flushing.
    Ended(Result<(), String>),
}

impl VolumeMachine {
    /// Refuses new requests and ends the warm-up; what is in flight completes.
    pub fn drain(&mut self) {
        self.draining = true;
        self.release();
        self.cancel_prewarm();
        self.cancel_migrations();
    }

    /// Likewise, and the origin flushes behind it, also for a volume without flash: [`VolumeMachine::is_safe`] says whether it did.
    pub fn drain_and_flush(&mut self) {
        self.drain();
        self.flushes_at_end = true;
    }

    /// Whether a volume that drains has something to do yet.
    pub(super) fn is_stopping(&self) -> bool {
        let awaits_flush = !self.is_read_only() && !matches!(self.last_flush, LastFlush::Ended(_));
        let is_quiet = self.flash.as_ref().is_none_or(FlashPartition::is_quiet);
        !is_quiet || (awaits_flush && (self.flash.is_some() || self.flushes_at_end))
    }

    /// Of a volume that drains: when clients and origin are done with everything, writes to flash what is buffered, and flushes the origin: flash must not hold at the next
    /// start what a failing power takes from the origin, nor may a client be told that this cannot be lost.
    pub(super) fn stop(&mut self) {
        if self.requests_in_flight() > 0
            || self.at_origin > 0
            || !self.queue.is_empty()
            || !self.flash_queue.is_empty()
        {
            return;
        }
        if let Some(flash) = &mut self.flash {
            flash.seal_open();
        }
        let is_wanted = self.flash.is_some() || self.flushes_at_end;
        if is_wanted && self.last_flush == LastFlush::NotAsked && !self.is_read_only() {
            self.last_flush = LastFlush::Asked;
            self.enqueue(Kind::LastFlush);
        }
    }

    /// What the origin of a volume that drains said in place of flushing behind the last request.
    pub(crate) fn last_flush_failure(&self) -> Option<&str> {
        let LastFlush::Ended(Err(reason)) = &self.last_flush else { return None };
        Some(reason)
    }

    /// Whether all that was acknowledged is on stable storage, and nothing will change it any more: the volume was drained, everything in flight ended, nothing is in doubt,
    /// and the origin has flushed it all, never failed to, and owes nobody the word of a failure.
    pub fn is_safe(&self) -> bool {
        self.has_ended_well() && self.owed_flush_error.is_none()
    }

    fn has_ended_well(&self) -> bool {
        let is_flushed =
            self.is_read_only() || (self.last_flush == LastFlush::Ended(Ok(())) && !self.flush_failed);
        self.draining && self.is_idle() && self.doubt.is_empty() && is_flushed
    }

    /// The tier on flash of a volume that is gone, and whether what it holds is true for as long as nobody changes the origin: it ended well.
    pub fn into_flash(mut self) -> Option<(FlashPartition, bool)> {
        let is_true = self.has_ended_well();
        self.flash.take().map(|flash| (flash, is_true))
    }
}
