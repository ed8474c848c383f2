//! Connections that take the place of earlier ones of their client ([`forebay_nbd::Succession`]): nothing of them is begun before everything of those is over.

use super::connection::{Closing, Connection, Pending};
use super::writers::FailedFlush;
use super::{Entrance, Lease, Service, VolumeEntry, mark_dirty};
use crate::slab::SlabKey;
use crate::volume::Errno;
use forebay_nbd::server::Disconnect;
use forebay_nbd::wire::Command;
use forebay_nbd::{RunId, Succession};
use std::collections::VecDeque;

/// Errors that are kept for successors, of each volume (ours; whoever comes then hears of those before).
const SAID_MAX: usize = 64;

/// So often at most an error is told again because a client that knows nothing of successions may not have heard it (ours). A break just behind the answer is rare, and three in a row are no chance; but there are
/// clients that never say farewell, and one that flushes once per connection would hear of the same loss for good.
const TOLD_AGAIN_MAX: u32 = 2;

/// What a connection finds whose client says that it takes the place of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Succeeded {
    Awaits {
        /// So many of their requests are not over.
        requests: usize,
        /// What its client has to hear of where it asks for a flush.
        lacks: Option<Errno>,
        /// What it has heard, and may have told nobody.
        heard: Option<FailedFlush>,
    },
    /// One that takes its own place is here already, or what such a one asked.
    Late,
    /// The origin may yet make a change of theirs, or of others.
    InDoubt,
}

/// Whether who is at `own` makes a connection at `place` one that comes too late.
fn is_late(place: Succession, own: Succession) -> bool {
    own.takes_place_of(place) || (own.id, own.number) == (place.id, place.number)
}

/// What somebody was sent, or was to be, whose connection is gone.
#[derive(Debug)]
struct Note {
    /// The place of the last one that it was sent.
    place: Succession,
    entrance: Entrance,
    errno: Errno,
    /// The flush that failed last, where no later one of that connection succeeded.
    last: Option<FailedFlush>,
}

/// Errors of flushes, and of changes that were to be on stable storage, whose connections are gone. Whoever says
/// that it lacks such an answer has to hear of it, whoever else has. So has the next run of a client, which cannot say: what the one before heard may have gone no further. And so has whoever flushes
/// behind a fence that keeps out who was told last, and was killed maybe before it had told its own clients: they are there now.
#[derive(Debug, Default)]
pub(super) struct Said(VecDeque<Note>);

impl Said {
    /// Notes what was said; the error that there is no room for any more.
    fn note(&mut self, note: Note) -> Option<Errno> {
        self.0.retain(|of| !is_of_lane_and_run(of.place, note.place));
        self.0.push_back(note);
        (self.0.len() > SAID_MAX).then(|| self.0.pop_front().expect("it is too long").errno)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What one has heard at earlier places that names no run, takes this one, and lacks nothing: with its last flush, so that it may have told nobody: an appliance whose clients have not asked since.
    fn heard(&self, place: Succession) -> Option<FailedFlush> {
        let is_earlier = |of: &&Note| is_of_lane_and_run(of.place, place) && place.takes_place_of(of.place);
        let last = self.0.iter().rfind(is_earlier).and_then(|of| of.last);
        last.filter(|_| is_nameless(place) && !place.lacks_flush)
    }

    /// What a client has not heard that takes this place. What was said at later places is not its to have heard, or not; of what was said to an earlier run it knows nothing.
    fn lacks(&mut self, place: Succession) -> Option<Errno> {
        let is_earlier = |of: &Note| is_of_lane_and_run(of.place, place) && place.takes_place_of(of.place);
        if !place.lacks_flush {
            self.0.retain(|of| !is_earlier(of));
        }
        // It stays until the client says that it lacks nothing: this connection may break, too.
        self.0.iter().find(|of| is_earlier(of)).map(|of| of.errno)
    }

    /// What was said to earlier runs of the client at `place`, which asks for a flush. It is to be told now, by whichever of its connections, and is not kept any more.
    pub(super) fn inherited_by(&mut self, place: Succession) -> Option<Errno> {
        let last = self.0.iter().rfind(|of| place.inherits_from(of.place)).map(|of| of.errno)?;
        self.0.retain(|of| !place.inherits_from(of.place));
        Some(last)
    }

    /// What those were told last whom `lease` keeps out. It is to be told by the next flush, once.
    pub(super) fn left_by_fenced(&mut self, lease: Lease) -> Option<Errno> {
        let fenced = self.0.iter_mut().filter(|of| of.last.is_some() && !lease.admits(of.entrance));
        let last = fenced.fold(None, |_, of| {
            of.last = None;
            Some(of.errno)
        });
        // An epoch that is over is never let in again, and who names no run has no next one.
        let may_come = |of: &Note| lease.admits(of.entrance) || of.entrance == Entrance::Original;
        self.0.retain(|of| may_come(of) || !is_nameless(of.place));
        last
    }
}

/// One of ours that does not say which run of whom it is.
fn is_nameless(place: Succession) -> bool {
    place.client().is_none()
}

fn is_of_lane_and_run(one: Succession, other: Succession) -> bool {
    one.id == other.id && one.generation() == other.generation()
}

impl VolumeEntry {
    /// Keeps an error for whoever comes behind `place`, and for those behind a fence, where nobody else hears of it.
    pub(super) fn note_said(
        &mut self,
        place: Succession,
        entrance: Entrance,
        errno: Errno,
        last: Option<FailedFlush>,
    ) {
        if let Some(forgotten) = self.said.note(Note { place, entrance, errno, last }) {
            self.machine.owe_flush_error(forgotten);
        }
    }
}

impl Service {
    /// A client takes this place. Of its earlier connections nothing more is taken from here on.
    ///
    /// The requests of those that are not over are told of by [`Service::over`] one by one, whatever became of the connections.
    pub(super) fn succeed(&mut self, volume: SlabKey, place: Succession, is_told: bool) -> Succeeded {
        let is_late = |own: Option<Succession>| own.is_some_and(|own| is_late(place, own));
        let takes_place = |own: Option<Succession>| own.is_some_and(|own| place.takes_place_of(own));
        if self.connections.iter().any(|(_, c)| c.volume == volume && is_late(c.succession))
            || self.pending.iter().any(|(_, p)| p.volume == volume && is_late(p.succession))
        {
            return Succeeded::Late;
        }
        let is_earlier = |c: &Connection| c.volume == volume && takes_place(c.succession);
        let earlier: Vec<SlabKey> =
            self.connections.iter().filter(|(_, c)| is_earlier(c)).map(|(key, _)| key).collect();
        let inherits = |own: Option<Succession>| own.is_some_and(|own| place.inherits_from(own));
        let orphans = earlier
            .iter()
            .filter(|key| inherits(self.connections.get(**key).and_then(|c| c.succession)))
            .count();
        if orphans > 0 {
            // Lanes that come next find none.
            tracing::info!(
                connections = orphans,
                run = place.generation(),
                "a client was started anew; nothing more is taken of what its earlier run had sent"
            );
        }
        for key in earlier {
            self.note_said(key);
            self.close(key);
        }
        let Some(entry) = self.volumes.get_mut(volume) else { return Succeeded::Late };
        if entry.machine.is_in_doubt() && is_told {
            // Whoever chose just before it was told that it would be succeeded. The next one is not, and waits for what can be waited for: blocks in doubt are written by nobody.
            return Succeeded::InDoubt;
        }
        let heard = entry.said.heard(place).filter(|failed| entry.writers.is_last(failed));
        let lacks = entry.said.lacks(place);
        let is_its = |p: &Pending| p.volume == volume && takes_place(p.succession);
        let requests = self.pending.iter().filter(|(_, p)| is_its(p)).count();
        Succeeded::Awaits { requests, lacks, heard }
    }

    /// Who keeps what is acknowledged may be another one now: asked with the run that a client was told, `keeper` says so. Who was told of another one has its connection ended, so that it hears of
    /// this when it makes the next one, before it is answered anything that this one vouches for: it may have inherited what the one before kept, of which nobody else knows.
    ///
    /// To be called before any answer is handed in that came from there.
    pub fn is_kept_by(&mut self, volume: SlabKey, keeper: &dyn Fn(RunId) -> Option<RunId>) {
        let is_wrong = |c: &Connection| {
            let told = c.session.told().filter(|_| c.volume == volume && !c.ends_at_once());
            told.is_some_and(|told| keeper(told.run) != told.keeper)
        };
        let mut wrong: Vec<SlabKey> =
            self.connections.iter().filter(|(_, c)| is_wrong(c)).map(|(key, _)| key).collect();
        if wrong.is_empty() {
            return;
        }
        let entry = self.volumes.get_mut(volume).expect("it has connections");
        if entry.machine.is_in_doubt() {
            // What comes next would be promised nothing, and have doubts of its own. The next flush says that something may be lost, and one that is under way must not say otherwise.
            entry.machine.owe_flush_error(Errno::IO);
            let vouches = |p: &Pending| p.request.command == Command::Flush || p.request.fua();
            wrong.retain(|key| self.pending.iter().any(|(_, p)| p.connection == *key && vouches(p)));
        }
        for key in wrong {
            self.connections.get_mut(key).expect("found above").closing = Some(Closing::Unanswered);
            mark_dirty(&mut self.connections, &mut self.dirty, key);
        }
    }

    /// Whether there are clients that have to hear of another keeper.
    pub fn has_told_keepers(&self) -> bool {
        self.told > 0
    }

    /// The connection is about to be gone: what somebody has to hear of that its client was sent, or was to be.
    pub(super) fn note_said(&mut self, key: SlabKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let (entrance, failed_last) = (connection.entrance, connection.failed_last.take());
        // What it has from an earlier one it passes on.
        let mut said = connection.said.take().or(failed_last.map(|failed| failed.errno));
        let unheard = connection.unheard.take();
        let mut last = failed_last;
        let has_taken_leave = connection.has_taken_leave;
        let has_left = connection.closing == Some(Closing::InOrder(Disconnect::Requested));
        let (place, volume) = (connection.succession, connection.volume);
        if let Some(entry) = self.volumes.get_mut(volume) {
            // Who leaves has all its answers. But the flush that failed last may have been its own, of which it has told nobody.
            let last_is_untold = failed_last.is_some_and(|failed| entry.writers.is_last(&failed));
            // Its clients ask its next run then, or by another way where it names no run, as an appliance does not; it may be gone before it has the answer.
            let has_next_run = !place.is_some_and(is_nameless);
            let never_comes_again = has_taken_leave && !has_next_run;
            said =
                said.filter(|_| if has_left { last_is_untold && has_next_run } else { !never_comes_again });
            // Who is fenced asks by another way from here on.
            let is_fenced = entry.lease.is_some_and(|lease| !lease.admits(entrance));
            let asks_elsewhere = (is_fenced && said.is_some()) || (never_comes_again && last_is_untold);
            let untold = failed_last.filter(|_| asks_elsewhere).map(|failed| failed.errno);
            // Who knows of no successions cannot say what it lacks: it asks again, by this way or another, and takes the answer to that.
            let cannot_say = failed_last.filter(|failed| {
                place.is_none() && !has_left && last_is_untold && failed.told_before < TOLD_AGAIN_MAX
            });
            if let Some(errno) = unheard.map(|(errno, _)| errno).or(untold) {
                entry.machine.owe_flush_error(errno);
                last = None;
            } else if let Some(failed) = cannot_say {
                entry.machine.owe_flush_error_again(failed.errno, failed.told_before + 1);
            }
            if let Some((place, errno)) = place.zip(said) {
                entry.note_said(place, entrance, errno, last);
            }
        }
    }

    /// A request is over. Successors of the connection by which it came, of several lanes maybe, have waited for it and do no longer.
    pub(super) fn over(&mut self, pending: &Pending) {
        let Some(place) = pending.succession.filter(|_| !self.awaiting.is_empty()) else { return };
        let is_here = |c: &Connection| !c.ends_at_once();
        if self.connections.get(pending.connection).is_some_and(is_here) {
            return;
        }
        let waits = |c: &Connection| {
            let takes_place = c.succession.is_some_and(|own| own.takes_place_of(place));
            c.volume == pending.volume && takes_place && c.closing.is_none()
        };
        let has_waited = |key: &SlabKey| self.connections.get(*key).is_some_and(waits);
        let successors: Vec<SlabKey> = self.awaiting.iter().copied().filter(has_waited).collect();
        let is_in_doubt = self.volumes.get(pending.volume).is_none_or(|entry| entry.machine.is_in_doubt());
        for key in successors {
            let connection = self.connections.get_mut(key).expect("found above");
            connection.awaits -= 1;
            if is_in_doubt && connection.session.told().is_some() {
                // It is not known that this is over, so that what the connection was promised does not hold.
                self.close(key);
            } else if connection.awaits == 0 {
                // What it waited for may be the flush of which it lacks the answer.
                if let Some(own) = connection.succession.filter(|own| own.lacks_flush)
                    && let Some(entry) = self.volumes.get_mut(pending.volume)
                {
                    connection.lacks = entry.said.lacks(own);
                }
                self.awaiting.retain(|waiting| *waiting != key);
                mark_dirty(&mut self.connections, &mut self.dirty, key);
            }
        }
    }
}
