//! Connections that take the place of earlier ones of their client ([`forebay_nbd::Succession`]): nothing of them is begun before everything of those is over.

use super::connection::{Closing, Connection, Pending};
use super::{Service, mark_dirty};
use crate::slab::SlabKey;
use crate::volume::Errno;
use forebay_nbd::Succession;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Errors that are kept for successors, of each volume (ours; whoever comes then hears of those before).
const SAID_MAX: usize = 64;

/// What a connection finds whose client says that it takes the place of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Succeeded {
    /// So many of their requests are not over.
    Awaits(usize),
    /// One that takes its own place is here already.
    Late,
    /// The origin may yet make a change of theirs, or of others.
    InDoubt,
}

impl Connection {
    fn is_of(&self, volume: SlabKey, id: u64) -> bool {
        self.volume == volume && self.succession.is_some_and(|own| own.id == id)
    }
}

/// Errors of flushes that clients were sent whose connections are gone, by succession: whoever says that it lacks the answer to one has to hear of it.
#[derive(Debug, Default)]
pub(super) struct Said(VecDeque<(u64, Errno)>);

impl Said {
    /// Notes that of `id`; the error that there is no room for any more.
    fn note(&mut self, id: u64, errno: Errno) -> Option<Errno> {
        self.0.push_back((id, errno));
        (self.0.len() > SAID_MAX).then(|| self.0.pop_front().expect("it is too long").1)
    }

    fn take(&mut self, id: u64) -> Option<Errno> {
        let found = self.0.iter().rposition(|(of, _)| *of == id).map(|at| self.0[at].1);
        self.0.retain(|(of, _)| *of != id);
        found
    }
}

impl Service {
    /// A client takes this place. Of its earlier connections nothing more is taken from here on.
    ///
    /// The requests of those that are not over are told of by [`Service::over`] one by one, whatever became of the connections.
    pub(super) fn succeed(&mut self, volume: SlabKey, place: Succession) -> Succeeded {
        let is_later = |c: &Connection| {
            c.is_of(volume, place.id) && c.succession.is_some_and(|own| own.number >= place.number)
        };
        if self.connections.iter().any(|(_, c)| is_later(c)) {
            return Succeeded::Late;
        }
        let earlier: Vec<SlabKey> =
            self.connections.iter().filter(|(_, c)| c.is_of(volume, place.id)).map(|(key, _)| key).collect();
        for key in earlier {
            self.note_said(key);
            self.close(key);
        }
        if let Some(entry) = self.volumes.get_mut(volume)
            && let Some(errno) = entry.said.take(place.id).filter(|_| place.lacks_flush)
        {
            entry.machine.owe_flush_error(errno);
        }
        let Some(entry) = self.volumes.get(volume) else { return Succeeded::Awaits(0) };
        if entry.machine.is_in_doubt() {
            // Whoever chose just before it was told that it would be succeeded. The next one is not.
            entry.is_in_doubt.store(true, Ordering::Release);
            return Succeeded::InDoubt;
        }
        let its = self.pending.iter().filter(|(_, p)| p.volume == volume && p.succession == Some(place.id));
        Succeeded::Awaits(its.count())
    }

    /// The connection is about to be gone: what somebody has to hear of that its client was sent, or was to be.
    pub(super) fn note_said(&mut self, key: SlabKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let (unheard, said) = (connection.unheard.take(), connection.said.take());
        let id = connection.succession.map(|place| place.id);
        let Some(entry) = self.volumes.get_mut(connection.volume) else { return };
        let unheard = unheard.map(|(errno, _)| errno);
        let forgotten = said.zip(id).and_then(|(errno, id)| entry.said.note(id, errno));
        if let Some(errno) = unheard.or(forgotten) {
            entry.machine.owe_flush_error(errno);
        }
    }

    /// A request is over. If a successor of the connection by which it came has waited for it, it does no longer.
    pub(super) fn over(&mut self, pending: &Pending) {
        let Some(id) = pending.succession else { return };
        let is_here = |c: &Connection| c.closing != Some(Closing::Now);
        if self.connections.get(pending.connection).is_some_and(is_here) {
            return;
        }
        let waits = |c: &Connection| c.is_of(pending.volume, id) && c.awaits > 0 && c.closing.is_none();
        let Some(key) = self.connections.iter().find(|(_, c)| waits(c)).map(|(key, _)| key) else { return };
        let connection = self.connections.get_mut(key).expect("found above");
        connection.awaits -= 1;
        let is_in_doubt = self.volumes.get(pending.volume).is_none_or(|entry| entry.machine.is_in_doubt());
        if is_in_doubt {
            // It is not known that this is over, so that what the connection was promised does not hold.
            self.close(key);
        } else if connection.awaits == 0 {
            mark_dirty(&mut self.connections, &mut self.dirty, key);
        }
    }
}
