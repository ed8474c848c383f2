//! Which clients have changes acknowledged that no flush covers yet. An origin tells once that a flush failed, to whoever asked; but each of several clients would take its own next flush,
//! which succeeds, for the word that its changes are safe. So each of them hears.
//!
//! A client is who says which run of which client it is ([`Succession::client`]); all others count as one, since nothing tells whose connections are whose.
//! Invariant: at most [`WRITERS_MAX`] clients are known; what one was owed that is forgotten for another is handed to the caller.

use crate::volume::Errno;
use forebay_nbd::Succession;

/// Of so many clients at most it is known (ours): a volume has a proxy or two, and appliances, which are one.
const WRITERS_MAX: usize = 64;

#[derive(Debug)]
struct Writer {
    client: Option<u64>,
    /// The number of its last change that was acknowledged.
    last: u64,
    /// The error of a flush that another client was told.
    owed: Option<Errno>,
    /// It had no connection then, or has none any more, so that whoever flushes next was to hear of it as well.
    is_passed_on: bool,
}

/// A flush that failed, as a client was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FailedFlush {
    pub(super) errno: Errno,
    /// How often others had been told the same ([`crate::volume::Reply::told_before`]).
    pub(super) told_before: u32,
    /// How many flushes of the volume had succeeded by then.
    flushes: u64,
}

/// The clients of one volume.
#[derive(Debug, Default)]
pub(super) struct Writers {
    /// Changes acknowledged so far, but for those that were on stable storage with that.
    acknowledged: u64,
    /// How many of them a flush covers that succeeded.
    flushed: u64,
    /// How many flushes succeeded.
    flushes: u64,
    writers: Vec<Writer>,
}

/// Whose a connection at this place is.
pub(super) fn client_of(place: Option<Succession>) -> Option<u64> {
    place.and_then(Succession::client)
}

impl Writers {
    /// A change of the client at `place` is acknowledged, and may still be lost; the error that there is no room to owe any more.
    pub(super) fn acknowledge(&mut self, place: Option<Succession>) -> Option<Errno> {
        self.acknowledged += 1;
        let client = client_of(place);
        if let Some(writer) = self.writers.iter_mut().find(|writer| writer.client == client) {
            writer.last = self.acknowledged;
            return None;
        }
        let flushed = self.flushed;
        self.writers.retain(|writer| writer.owed.is_some() || writer.last > flushed);
        let forgotten = if self.writers.len() == WRITERS_MAX { self.writers.remove(0).owed } else { None };
        self.writers.push(Writer { client, last: self.acknowledged, owed: None, is_passed_on: false });
        forgotten
    }

    /// What a flush that is asked for now covers.
    pub(super) fn covers(&self) -> u64 {
        self.acknowledged
    }

    /// A flush succeeded that covers so much.
    pub(super) fn flushed(&mut self, covers: u64) {
        self.flushed = self.flushed.max(covers);
        self.flushes += 1;
    }

    /// A flush that fails now, of which so many were told before.
    pub(super) fn failed_now(&self, errno: Errno, told_before: u32) -> FailedFlush {
        FailedFlush { errno, told_before, flushes: self.flushes }
    }

    /// Whether none has succeeded since.
    pub(super) fn is_last(&self, failed: &FailedFlush) -> bool {
        failed.flushes == self.flushes
    }

    /// The client at `place` is told that a flush failed. All others whose changes may be lost have to hear of it; whether there are any.
    pub(super) fn failed(&mut self, place: Option<Succession>, errno: Errno) -> bool {
        let (client, flushed) = (client_of(place), self.flushed);
        let mut is_owed = false;
        for writer in &mut self.writers {
            if writer.client == client {
                (writer.last, writer.owed) = (0, None);
            } else if writer.last > flushed {
                (writer.last, writer.owed, writer.is_passed_on) = (0, Some(errno), false);
                is_owed = true;
            }
        }
        is_owed
    }

    /// What the client at `place`, which asks for a flush, has to hear; it is told now.
    pub(super) fn owed(&mut self, place: Option<Succession>) -> Option<Errno> {
        let client = client_of(place);
        self.writers.iter_mut().find(|writer| writer.client == client)?.owed.take()
    }

    /// What clients have not heard that are not here: they may flush elsewhere from here on, by way of somebody who is. Once for each; they are told if they come back, too.
    pub(super) fn owed_to_absent(&mut self, is_here: impl Fn(Option<u64>) -> bool) -> Option<Errno> {
        let mut owed = None;
        for writer in &mut self.writers {
            if writer.owed.is_some() && !writer.is_passed_on && !is_here(writer.client) {
                (owed, writer.is_passed_on) = (writer.owed, true);
            }
        }
        owed
    }

    /// Whether everybody has heard of all errors.
    pub(super) fn have_heard(&self) -> bool {
        self.writers.iter().all(|writer| writer.owed.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(client: u64, generation: u32) -> Option<Succession> {
        Some(Succession::of(client, generation, 0, 0))
    }

    #[test]
    fn whoever_has_changes_that_may_be_lost_hears_once() {
        let mut writers = Writers::default();
        let appliance = Some(Succession { id: 77, number: 3, lacks_flush: false });
        for place in [run(1, 1), appliance, None] {
            assert_eq!(writers.acknowledge(place), None);
        }
        // Told to the appliance, which is one with the stranger: another client is left.
        assert!(writers.failed(appliance, Errno::IO));
        assert!(!writers.have_heard());
        assert_eq!((writers.owed(None), writers.owed(appliance)), (None, None));
        // While it is away others hear of it once; it is told itself, whichever run of it comes.
        assert_eq!(writers.owed_to_absent(|client| client == Some(1)), None);
        assert_eq!(
            (writers.owed_to_absent(|_| false), writers.owed_to_absent(|_| false)),
            (Some(Errno::IO), None)
        );
        assert_eq!((writers.owed(run(1, 2)), writers.owed(run(1, 1))), (Some(Errno::IO), None));
        assert!(writers.have_heard() && !writers.failed(appliance, Errno::IO));
        // What it is told of its own settles what it was owed.
        writers.acknowledge(run(1, 2));
        assert!(writers.failed(None, Errno::IO) && !writers.failed(run(1, 2), Errno::IO));
        assert_eq!(writers.owed(run(1, 2)), None);
    }

    #[test]
    fn what_a_flush_covers_cannot_be_lost() {
        let mut writers = Writers::default();
        writers.acknowledge(run(1, 1));
        let covers = writers.covers();
        writers.acknowledge(run(2, 1));
        writers.flushed(covers);
        assert!(writers.failed(None, Errno::IO));
        assert_eq!((writers.owed(run(1, 1)), writers.owed(run(2, 1))), (None, Some(Errno::IO)));
    }

    #[test]
    fn of_too_many_the_first_is_forgotten_and_its_error_is_not() {
        let mut writers = Writers::default();
        for client in 0..WRITERS_MAX as u64 {
            assert_eq!(writers.acknowledge(run(client, 1)), None);
        }
        assert!(writers.failed(None, Errno::IO));
        assert_eq!(writers.acknowledge(run(1_000, 1)), Some(Errno::IO));
        assert_eq!((writers.owed(run(0, 1)), writers.owed(run(1, 1))), (None, Some(Errno::IO)));
        // Who is flushed and has heard makes room first.
        writers.flushed(writers.covers());
        assert_eq!(writers.acknowledge(run(1_001, 1)), None);
    }
}
