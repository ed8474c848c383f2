//! Flushes: what the origin says to them, and who has to hear of one that failed.

use super::super::request::{Errno, Reply};
use super::ending::LastFlush;
use super::{HoldError, InFlight, Kind, VolumeMachine};
use forebay_origin::OriginError;
use forebay_units::Nanos;

/// The error of a flush of which a client has yet to hear.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwedError {
    pub(super) errno: Errno,
    /// As in [`super::super::request::Reply`].
    pub(super) told_before: u32,
}

/// Why a flush failed.
#[derive(Debug)]
struct FlushFailure {
    errno: Errno,
    reason: String,
    /// Whether the origin may say so only once.
    is_said_once: bool,
    /// Whether it was another one that the origin failed, of which others hear.
    is_of_another: bool,
}

impl FlushFailure {
    fn of_another(errno: Errno) -> FlushFailure {
        let reason = "another flush failed that was under way with it".to_owned();
        FlushFailure { errno, reason, is_said_once: true, is_of_another: true }
    }
}

impl From<OriginError> for FlushFailure {
    fn from(error: OriginError) -> FlushFailure {
        // One that never came to it has been told nothing: the next one is.
        let is_said_once = !matches!(error, OriginError::Unreachable { .. });
        let (errno, reason) = (Errno(error.errno()), error.to_string());
        FlushFailure { errno, reason, is_said_once, is_of_another: false }
    }
}

impl VolumeMachine {
    /// A flush failed of which no client has heard: one of ours, or that of a client that left. The origin may say it once only: a client that flushes next must not
    /// hear otherwise.
    ///
    /// Nothing but telling a client pays this debt: no later flush that succeeds, and no change of the origin, also not behind a fence. Whoever fenced the old way has what it
    /// *acknowledged*; that a flush failed says that some of this may be lost, and nothing here tells whether it is what the fence has. An error too many costs a client its
    /// fsync; one too few, data that it was told are safe.
    pub(crate) fn owe_flush_error(&mut self, errno: Errno) {
        self.owe_flush_error_again(errno, 0);
    }

    /// The same of an error that clients were told so often already, who may not have heard.
    pub(crate) fn owe_flush_error_again(&mut self, errno: Errno, told_before: u32) {
        // Of two words, neither may be taken for told more often than it was.
        let least = self.owed_flush_error.map_or(told_before, |owed| owed.told_before.min(told_before));
        self.owed_flush_error = Some(OwedError { errno, told_before: least });
    }

    /// A flush ended at the origin.
    pub(super) fn flush_ended(&mut self, now: Nanos, entry: InFlight, result: Result<Vec<u8>, OriginError>) {
        let number = entry.flush.expect("it was sent");
        match result.map_err(FlushFailure::from) {
            Ok(_) => self.overlapping.succeed(number, entry.failures_seen, entry.kind),
            Err(failure) => {
                self.flush_failed = true;
                if failure.is_said_once {
                    self.overlapping.fail(number, failure.errno);
                } else {
                    self.overlapping.end(number);
                }
                self.tell_flushed(now, entry.kind, Err(failure));
            }
        }
        self.tell_overlapping(now);
    }

    /// A change ended that was to be on stable storage with that: what the origin says of it may be its word of other changes.
    pub(super) fn forced_ended(
        &mut self,
        now: Nanos,
        entry: &InFlight,
        result: &Result<Vec<u8>, OriginError>,
    ) {
        let Some(number) = entry.flush else { return };
        match result {
            Err(error @ OriginError::Failed { .. }) if error.errno() == Errno::IO.0 => {
                self.overlapping.fail(number, Errno::IO);
            }
            _ => self.overlapping.end(number),
        }
        self.tell_overlapping(now);
    }

    /// Tells those of their success, or not, who have waited for others.
    fn tell_overlapping(&mut self, now: Nanos) {
        while let Some((kind, told)) = self.overlapping.take_told() {
            self.tell_flushed(now, kind, told.map_err(FlushFailure::of_another));
        }
    }

    fn tell_flushed(&mut self, now: Nanos, kind: Kind, result: Result<(), FlushFailure>) {
        match kind {
            Kind::Flush { tag, started } => {
                self.flushes -= 1;
                let owed = self.owed_flush_error.take();
                let is_new = result.as_ref().is_err_and(|failure| failure.is_said_once);
                let told_before = owed.filter(|_| !is_new).map_or(0, |owed| owed.told_before);
                let result = result.map(|()| Vec::new()).map_err(|failure| failure.errno);
                let reply = Reply::new(tag, owed.map_or(result, |owed| Err(owed.errno)));
                if reply.result.is_ok() {
                    self.observer.flushed(now.saturating_since(started));
                }
                self.reply(Reply { is_said_once: is_new || owed.is_some(), told_before, ..reply });
            }
            Kind::HoldFlush { told } => {
                let result = result.map_err(|failure| {
                    if failure.is_said_once && !failure.is_of_another {
                        self.owe_flush_error(failure.errno);
                    }
                    HoldError::NotFlushed { reason: failure.reason }
                });
                self.hold_flushed(told, result);
            }
            Kind::LastFlush => self.last_flush = LastFlush::Ended(result.map_err(|failure| failure.reason)),
            _ => unreachable!("only flushes end so"),
        }
    }
}
