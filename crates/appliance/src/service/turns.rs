//! Turns: what origins answered goes in, what volumes want of them comes out, and replies go to their connections.

use super::connection::{Closing, Connection, Pending};
use super::writers::client_of;
use super::{Service, mark_dirty, touch};
use crate::slab::SlabKey;
use crate::volume::Reply;
use forebay_nbd::server::{CONTEXT_ID_ALLOCATION, ReplyEncoder, ReplyFormat, Request};
use forebay_nbd::wire::{Command, Extents};
use forebay_origin::{OriginCompletion, OriginRequest};
use forebay_units::Nanos;
use std::sync::atomic::Ordering;

/// Reads of at least this length that the origin answers with zeroes are answered with a hole, if the client understands them (ours:
/// shorter ones are cheaper to send than to look at).
const HOLE_BYTES_MIN: u64 = 16 << 10;

fn may_be_hole(replies: ReplyEncoder, request: &Request) -> bool {
    request.command == Command::Read
        && request.range.length >= HOLE_BYTES_MIN
        && replies.format() == ReplyFormat::Structured
        && !request.dont_fragment()
}

/// Data that is not zero mostly says so at once; what is goes through one comparison with itself.
fn is_zero(data: &[u8]) -> bool {
    data.is_empty() || (data[0] == 0 && data[1..] == data[..data.len() - 1])
}

impl Service {
    /// The origin of `volume` answered, or the flash device.
    pub fn complete(&mut self, now: Nanos, volume: SlabKey, completion: OriginCompletion) {
        if let Some(entry) = self.volumes.get_mut(volume) {
            entry.machine.complete(now, completion);
            touch(&mut self.volumes, &mut self.touched, volume);
        }
    }

    /// Lets every volume that was touched, or whose time has come, proceed: replies go to their connections' output, requests
    /// for origins to `submissions`.
    pub fn turn(&mut self, now: Nanos, submissions: &mut Vec<(SlabKey, OriginRequest)>) {
        let active = std::mem::take(&mut self.active);
        for key in active {
            if let Some(entry) = self.volumes.get_mut(key) {
                entry.is_active = false;
                entry.machine.step();
                touch(&mut self.volumes, &mut self.touched, key);
            }
        }
        while let Some(key) = self.touched.pop() {
            let Some(entry) = self.volumes.get_mut(key) else { continue };
            entry.is_touched = false;
            entry.machine.take_submissions(now, &mut self.scratch_submissions);
            submissions.extend(self.scratch_submissions.drain(..).map(|request| (key, request)));
            entry.machine.take_flash_submissions(now, &mut self.scratch_submissions);
            self.flash_submissions.extend(self.scratch_submissions.drain(..).map(|request| (key, request)));
            entry.machine.take_replies(&mut self.scratch_replies);
            if entry.machine.is_in_doubt() != entry.is_in_doubt.load(Ordering::Relaxed) {
                entry.is_in_doubt.store(entry.machine.is_in_doubt(), Ordering::Release);
                self.in_doubt.retain(|volume| *volume != key);
                if entry.machine.is_in_doubt() {
                    self.in_doubt.push(key);
                }
            }
            if !entry.is_active && (entry.machine.wants_step() || entry.machine.wake_at().is_some()) {
                entry.is_active = true;
                self.active.push(key);
            }
            let mut replies = std::mem::take(&mut self.scratch_replies);
            for reply in replies.drain(..) {
                self.answer(now, reply);
            }
            self.scratch_replies = replies;
        }
        // Limits that were reached may not be any more.
        self.has_freed = false;
        if !self.waiting.is_empty() {
            let mut waiting = std::mem::take(&mut self.waiting);
            waiting.retain(|key| {
                let Some(connection) = self.connections.get(*key) else { return false };
                if !self.has_shared_room(connection) {
                    return true;
                }
                self.connections.get_mut(*key).expect("looked up above").is_waiting = false;
                mark_dirty(&mut self.connections, &mut self.dirty, *key);
                false
            });
            self.waiting = waiting;
        }
    }

    /// Moves the requests for the flash device, of the turns until now, into `submissions`. They are answered through
    /// [`Service::complete`], as those for origins are.
    pub fn take_flash_submissions(&mut self, submissions: &mut Vec<(SlabKey, OriginRequest)>) {
        submissions.append(&mut self.flash_submissions);
    }

    /// The requests received at `started` were served as far as they could be.
    pub fn end_batch(&mut self, volume: SlabKey, started: Nanos, now: Nanos) {
        if let Some(entry) = self.volumes.get_mut(volume) {
            entry.machine.end_batch(started, now);
        }
    }

    /// When [`Service::turn`] should be called although nothing happened.
    pub fn wake_at(&self) -> Option<Nanos> {
        if self.has_freed && !self.waiting.is_empty() {
            return Some(Nanos::ZERO);
        }
        let of = |key: &SlabKey| {
            let machine = &self.volumes.get(*key)?.machine;
            if machine.wants_step() { Some(Nanos::ZERO) } else { machine.wake_at() }
        };
        self.active.iter().filter_map(of).min()
    }

    fn answer(&mut self, now: Nanos, reply: Reply) {
        let Some(pending) = self.pending.remove(SlabKey(reply.tag.0)) else {
            debug_assert!(false, "a reply to {:?}, which nobody waits for", reply.tag);
            return;
        };
        self.held_bytes -= pending.held_bytes;
        self.owe_flush_error(&pending, &reply);
        self.note_writer(&pending, &reply);
        self.over(&pending);
        // The client may have left.
        let Some(connection) = self.connections.get_mut(pending.connection) else { return };
        connection.in_flight -= 1;
        connection.held_bytes -= pending.held_bytes;
        if connection.closing == Some(Closing::Unanswered) {
            return;
        }
        // Whoever ends cannot wait for an origin to come back, and whoever serves next can: the client asks again, there. What a flush says is of what came before, and is told.
        if reply.result.is_err()
            && pending.request.command != Command::Flush
            && !reply.is_said_once
            && connection.closing == Some(Closing::Leaving)
        {
            connection.asks_again = true;
            mark_dirty(&mut self.connections, &mut self.dirty, pending.connection);
            return;
        }
        let before = connection.output.len();
        match reply.result {
            Ok(data) if may_be_hole(connection.replies, &pending.request) && is_zero(&data) => {
                let (replies, request) = (connection.replies, &pending.request);
                connection
                    .output
                    .append(|output| replies.hole_chunk(request.cookie, request.range, true, output));
            }
            Ok(data) if pending.request.command == Command::Read => {
                let header = connection.replies.read_header(&pending.request);
                connection.output.append(|output| output.extend_from_slice(&header));
                connection.output.append_data(data);
            }
            Ok(extents) if pending.request.command == Command::BlockStatus => {
                let (replies, cookie) = (connection.replies, pending.request.cookie);
                let extents = Extents::new(&extents);
                connection
                    .output
                    .append(|output| replies.block_status(cookie, CONTEXT_ID_ALLOCATION, extents, output));
            }
            Ok(_) => {
                if pending.request.command == Command::Flush {
                    connection.failed_last = None;
                }
                let replies = connection.replies;
                connection.output.append(|output| replies.success(&pending.request, output));
            }
            Err(errno) => {
                connection.refuse(pending.request.cookie, errno);
                if reply.is_said_once && !connection.ends_at_once() {
                    connection.unheard = Some((errno, connection.output.len()));
                    let entry = self.volumes.get(pending.volume);
                    connection.failed_last =
                        entry.map(|entry| entry.writers.failed_now(errno, reply.told_before));
                    connection.said = Some(errno);
                }
            }
        }
        self.held_bytes += connection.output.len() - before;
        connection.note_output(now, before);
        mark_dirty(&mut self.connections, &mut self.dirty, pending.connection);
    }

    /// Who has changes that no flush covers has to hear that one failed, whoever asked for it.
    fn note_writer(&mut self, pending: &Pending, reply: &Reply) {
        let (place, volume) = (pending.succession, pending.volume);
        let Some(entry) = self.volumes.get_mut(volume) else { return };
        let changes =
            matches!(pending.request.command, Command::Write | Command::Trim | Command::WriteZeroes);
        match &reply.result {
            Ok(_) if pending.request.command == Command::Flush => entry.writers.flushed(pending.covers),
            Ok(_) if changes && !pending.request.fua() => {
                if let Some(errno) = entry.writers.acknowledge(place) {
                    entry.machine.owe_flush_error(errno);
                }
            }
            Err(errno) if reply.is_said_once => {
                // Where its client is gone, nobody is told yet.
                let is_here = |c: &Connection| !c.ends_at_once();
                if self.connections.get(pending.connection).is_some_and(is_here)
                    && entry.writers.failed(place, *errno)
                {
                    self.owe_for_absent(volume);
                }
            }
            _ => {}
        }
    }

    /// Has whoever flushes next hear of what clients are owed that have no connection.
    pub(super) fn owe_for_absent(&mut self, volume: SlabKey) {
        let Some(entry) = self.volumes.get_mut(volume).filter(|entry| !entry.writers.have_heard()) else {
            return;
        };
        let connections = &self.connections;
        let is_here = |client: Option<u64>| {
            connections
                .iter()
                .any(|(_, c)| c.volume == volume && !c.ends_at_once() && client_of(c.succession) == client)
        };
        if let Some(errno) = entry.writers.owed_to_absent(is_here) {
            entry.machine.owe_flush_error(errno);
        }
    }

    /// The client of a flush that failed may be gone, or about to be; another one that flushes hears of it then.
    fn owe_flush_error(&mut self, pending: &Pending, reply: &Reply) {
        let is_here = |c: &Connection| !c.ends_at_once();
        if let (true, Err(errno)) = (reply.is_said_once, &reply.result)
            && !self.connections.get(pending.connection).is_some_and(is_here)
            && let Some(entry) = self.volumes.get_mut(pending.volume)
        {
            entry.machine.owe_flush_error(*errno);
            // Somebody else may hear of that first, and its own client would ask again and hear of a success.
            if let Some(place) = pending.succession {
                entry.note_said(place, pending.entrance, *errno, None);
            }
        }
    }
}
