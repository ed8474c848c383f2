//! One established connection: requests out, replies in. No call waits for the socket.
//!
//! It is not a thread and not a life cycle: whoever has something to send, or knows that something came, calls, from any
//! thread. It decides nothing about requests that were in flight when it was lost; its lane does.
//!
//! Invariants: a job is in the queue, in `sent`, or ended; nothing is completed while the conversation is locked, so that
//! who is told may submit at once; a lost connection takes no job any more.

use super::job::{Job, Step};
use super::stream::{Connected, RECEIVE_BYTES, Stream};
use super::unflushed::Withheld;
use super::{CLOSED, MAY_NOT_BE_SAFE, Shared};
use crate::extents::ExtentList;
use crate::pending::{EINVAL, EIO, EPERM};
use crate::pool::locked;
use crate::request::OriginOperation;
use forebay_nbd::client::{Event, Export, Operation, ReplyError, Session, SubmitError};
use forebay_nbd::wire::ErrorCode;
use forebay_nbd::{RunId, Succeeds};
use rustix::event::epoll::{self, EventData, EventFlags};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// Bytes of reads in flight on one connection, besides the one that passes it (ours).
const LANE_READ_BYTES_MAX: u64 = 64 << 20;
/// Bytes that wait for the socket, above which no more are encoded, besides the request that passes it (ours).
const GATHER_BYTES: usize = 128 << 10;

const OTHER_RUN: &str = "the export is served by another run of a server by now";

static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

struct Sent {
    job: Job,
    /// Bytes of this protocol request.
    bytes: u64,
    /// What came of a read.
    buffer: Vec<u8>,
    /// What came of a block status.
    extents: ExtentList,
    at: Instant,
}

/// A request that is over, or not sent here, and why.
enum Ended {
    /// There was nothing to send for it.
    Nothing(Job),
    /// It could not be asked of this server.
    Refused(Job, SubmitError),
    /// A flush that must not be sent on this connection.
    Withheld(Job, Withheld),
    /// Its reply came.
    Answered(Sent, Result<(), ReplyError>),
}

impl Ended {
    /// Whether the server, which offers `export`, said that it changed something, and not that this is safe.
    fn may_be_lost(&self, export: &Export) -> bool {
        let Ended::Answered(Sent { job, .. }, Ok(())) = self else { return false };
        !job.is_flush() && job.operation.changes_content() && !job.is_forced(export)
    }

    /// Whether the server did not take it, since it is shutting down.
    fn is_turned_away(&self, export: &Export) -> bool {
        matches!(self, Ended::Answered(_, Err(error)) if turns_away(error, export))
    }
}

/// How a connection ended.
#[derive(Clone)]
pub(super) struct End {
    /// Why.
    pub(super) reason: String,
    /// Who ended it in order, so that all of its answers came; `None` too for a server that does not say which run it is of.
    pub(super) run: Option<RunId>,
    /// Who lets another connection succeed it.
    pub(super) succeeds: Option<Succeeds>,
    /// The server has ended in order: what was in flight was never taken, and what it acknowledged is safe.
    pub(super) said_farewell: bool,
}

impl End {
    /// Whether an attempt to connect may say that nothing is lost of what was acknowledged.
    pub(super) fn is_undecided(&self) -> bool {
        !self.said_farewell && (self.run.is_some() || self.succeeds.is_some())
    }
}

/// One established connection.
pub(super) struct Connection {
    index: usize,
    requests_max: usize,
    export: Export,
    stream: Stream,
    /// Requests sent and not answered.
    load: AtomicUsize,
    /// Whether another request may be taken.
    has_room: AtomicBool,
    is_lost: AtomicBool,
    /// It has answered nothing yet.
    is_unheard: AtomicBool,
    conversation: Mutex<Conversation>,
}

struct Conversation {
    session: Session,
    /// What was in flight on the connection that this one succeeds: it goes out before anything else.
    again: VecDeque<Job>,
    sent: BTreeMap<u64, Sent>,
    read_bytes: u64,
    next_cookie: u64,
    lost: Option<String>,
    /// The server ended it, behind whole messages.
    ended_in_order: bool,
    /// The server takes no more requests and waits for its clients to leave: this one does when all is answered.
    is_leaving: bool,
    /// The server's last word was that it ends, has everything safe, and did not take what it did not answer.
    said_farewell: bool,
    /// Encoded; the socket took the first `unsent_from` bytes, half of it at most.
    unsent: Vec<u8>,
    unsent_from: usize,
    awaits_writable: bool,
    /// Received and not parsed: the first `input_len` bytes.
    input: Vec<u8>,
    input_len: usize,
}

impl Conversation {
    fn has_room(&self, requests_max: usize) -> bool {
        self.lost.is_none()
            && !self.is_leaving
            && self.sent.len() < requests_max
            && self.read_bytes < LANE_READ_BYTES_MAX
            && self.unsent.len() - self.unsent_from < GATHER_BYTES
    }
}

impl Connection {
    /// The lane `index`'s connection, which has at most `requests_max` in flight; it is to be registered for what comes, and told what came behind the handshake.
    pub(super) fn new(index: usize, connected: Connected, requests_max: usize) -> io::Result<Connection> {
        let Connected { stream, session, export, received } = connected;
        stream.set_nonblocking()?;
        let mut input = received;
        let input_len = input.len();
        input.resize(RECEIVE_BYTES.max(session.receive_bytes_min()).max(input_len), 0);
        let conversation = Conversation {
            session,
            again: VecDeque::new(),
            sent: BTreeMap::new(),
            read_bytes: 0,
            next_cookie: 0,
            lost: None,
            ended_in_order: false,
            is_leaving: false,
            said_farewell: false,
            unsent: Vec::new(),
            unsent_from: 0,
            awaits_writable: false,
            input,
            input_len,
        };
        Ok(Connection {
            index,
            requests_max,
            export,
            stream,
            load: AtomicUsize::new(0),
            has_room: AtomicBool::new(true),
            is_lost: AtomicBool::new(false),
            is_unheard: AtomicBool::new(true),
            conversation: Mutex::new(conversation),
        })
    }

    /// Before anybody knows it: what it is to send first, in flight on the one that it succeeds.
    pub(super) fn begin_with(&self, again: Vec<Job>) {
        self.conversation().again = again.into();
    }

    /// Which run the server promised to be.
    pub(super) fn run(&self) -> Option<RunId> {
        self.export.succeeds.map(|own| own.run)
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Requests without an answer; as of a moment ago.
    pub(super) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    /// Whether it takes another request; as of a moment ago. Who finds it false will see [`Shared::pump`] called when it is true again.
    pub(super) fn has_room(&self) -> bool {
        self.has_room.load(Ordering::Acquire)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    fn conversation(&self) -> MutexGuard<'_, Conversation> {
        locked(&self.conversation)
    }

    fn publish(&self, conversation: &Conversation) {
        self.load.store(conversation.sent.len(), Ordering::Relaxed);
        self.has_room.store(conversation.has_room(self.requests_max), Ordering::Release);
    }

    /// Ends the connection; the first reason stays.
    pub(super) fn lose(&self, shared: &Shared, reason: &str) {
        let mut conversation = self.conversation();
        self.lose_locked(&mut conversation, reason);
        drop(conversation);
        self.tell_lane(shared);
    }

    fn lose_locked(&self, conversation: &mut Conversation, reason: &str) {
        conversation.lost.get_or_insert_with(|| reason.to_owned());
        self.publish(conversation);
        self.is_lost.store(true, Ordering::Release);
        self.stream.shut_down();
    }

    /// Another run of the server is there: what this one answers says nothing of that.
    pub(super) fn leave_to_another(&self, shared: &Shared) {
        self.lose(shared, OTHER_RUN);
    }

    fn tell_lane(&self, shared: &Shared) {
        // Under the lock of the queue, so that a lane that has just looked does not miss it.
        drop(locked(&shared.queue));
        shared.change.notify_all();
    }

    /// Ends it, politely if nothing is in flight; how it ended, and what was in flight, oldest first.
    pub(super) fn end(&self, shared: &Shared) -> (End, Vec<Job>) {
        let mut conversation = self.conversation();
        let is_idle = conversation.sent.is_empty() && conversation.again.is_empty();
        if conversation.lost.is_none() && is_idle {
            self.say_farewell(&mut conversation);
        }
        self.lose_locked(&mut conversation, CLOSED);
        let reason = conversation.lost.clone().unwrap_or_default();
        let sent = std::mem::take(&mut conversation.sent);
        let again = std::mem::take(&mut conversation.again);
        self.publish(&conversation);
        let _ = epoll::delete(&shared.epoll, &self.stream);
        // What ends a tunnel in order may have ended otherwise at its other side.
        let ended_in_order = conversation.ended_in_order && shared.secured.is_none();
        let run = RunId::found_in(&self.export.description).filter(|_| ended_in_order);
        let in_flight = sent.into_values().map(|sent| sent.job).chain(again);
        let (succeeds, said_farewell) = (self.export.succeeds, conversation.said_farewell);
        (End { reason, run, succeeds, said_farewell }, in_flight.collect())
    }

    /// Leaves politely; nothing is under way.
    fn say_farewell(&self, conversation: &mut Conversation) {
        if !conversation.unsent.is_empty() {
            return;
        }
        let mut farewell = Vec::new();
        conversation.session.disconnect(&mut farewell);
        // Nothing else is under way, and this is to arrive.
        let _ = self.stream.gives_up_unsent(false);
        // Whoever does not take 28 bytes now will see that we left anyway.
        let _ = (&mut &self.stream).write(&farewell);
    }

    /// What the oldest request has waited for too long, if it has. Cookies grow with time.
    pub(super) fn overdue(&self, shared: &Shared) -> Option<String> {
        let timeout = shared.options.request_timeout;
        let conversation = self.conversation();
        let (_, oldest) = conversation.sent.first_key_value()?;
        (oldest.at.elapsed() > timeout.into())
            .then(|| oldest.job.context(&format!("no answer within {timeout}")))
    }

    /// When the oldest request on it was asked for.
    pub(super) fn oldest_asked_at(&self) -> Option<Instant> {
        let conversation = self.conversation();
        let sent = conversation.sent.values().map(|sent| &sent.job);
        sent.chain(&conversation.again).map(|job| job.asked_at).min()
    }

    /// Takes requests from the queue, at most until `load_max` are in flight, and sends as much as the socket takes. What is to be sent again comes first.
    pub(super) fn fill(&self, shared: &Shared, load_max: usize) {
        let mut ended = Vec::new();
        let mut guard = self.conversation();
        let conversation = &mut *guard;
        let mut broken = None;
        while conversation.lost.is_none() {
            while conversation.has_room(self.requests_max) {
                let again = conversation.again.pop_front();
                let next = || locked(&shared.queue).take_job();
                let may_take = conversation.sent.len() < load_max;
                let Some(job) = again.or_else(|| may_take.then(next).flatten()) else { break };
                ended.extend(self.encode(shared, conversation, job));
                if matches!(ended.last(), Some(Ended::Withheld(_, Withheld::OtherRun))) {
                    self.lose_locked(conversation, OTHER_RUN);
                }
            }
            if conversation.lost.is_some() || conversation.unsent.is_empty() {
                break;
            }
            match self.send(shared, conversation) {
                // Everything went out, so there may be room for more.
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    broken = Some(format!("sending failed: {error}"));
                    break;
                }
            }
        }
        if let Some(reason) = &broken {
            self.lose_locked(conversation, reason);
        }
        self.publish(conversation);
        let is_lost = conversation.lost.is_some();
        drop(guard);
        if is_lost {
            self.tell_lane(shared);
        }
        self.conclude(shared, ended);
    }

    /// Sends what waits; whether all of it went out.
    fn send(&self, shared: &Shared, conversation: &mut Conversation) -> io::Result<bool> {
        while conversation.unsent_from < conversation.unsent.len() {
            match (&mut &self.stream).write(&conversation.unsent[conversation.unsent_from..]) {
                Ok(count) => conversation.unsent_from += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let is_done = conversation.unsent_from == conversation.unsent.len();
        if is_done {
            conversation.unsent.clear();
            conversation.unsent.shrink_to(GATHER_BYTES * 8);
            conversation.unsent_from = 0;
        } else if conversation.unsent_from > conversation.unsent.len() / 2 {
            // Under load something always waits, so that what was sent would stay. Less is moved than was sent.
            conversation.unsent.drain(..conversation.unsent_from);
            conversation.unsent_from = 0;
        }
        if conversation.awaits_writable == is_done {
            let mut interest = EventFlags::IN;
            interest.set(EventFlags::OUT, !is_done);
            epoll::modify(&shared.epoll, &self.stream, EventData::new_u64(self.index as u64), interest)?;
            conversation.awaits_writable = !is_done;
        }
        Ok(is_done)
    }

    /// Encodes a request and remembers it; or says how it ended without being sent.
    fn encode(&self, shared: &Shared, conversation: &mut Conversation, mut job: Job) -> Option<Ended> {
        let Step::Send { operation, zeroes } = job.step(&self.export) else {
            return Some(Ended::Nothing(job));
        };
        if job.may_tell_of_loss()
            && let Err(withheld) = job.speak_of(&locked(&shared.unflushed), self.run())
        {
            return Some(Ended::Withheld(job, withheld));
        }
        let cookie = conversation.next_cookie;
        conversation.next_cookie += 1;
        let output = &mut conversation.unsent;
        let before = output.len();
        if let Err(error) = conversation.session.submit(cookie, operation, output) {
            output.truncate(before);
            return Some(Ended::Refused(job, error));
        }
        let bytes = match operation {
            Operation::Read { length, .. }
            | Operation::Write { length, .. }
            | Operation::Trim { length, .. }
            | Operation::WriteZeroes { length, .. } => u64::from(length),
            _ => 0,
        };
        let mut left = zeroes as usize;
        while left > 0 {
            let part = left.min(ZEROES.len());
            output.extend_from_slice(&ZEROES[..part]);
            left -= part;
        }
        if let (OriginOperation::Write { data, .. }, Operation::Write { .. }) = (&job.operation, operation) {
            output.extend_from_slice(data);
        }
        let buffer = if matches!(operation, Operation::Read { .. }) {
            conversation.read_bytes += bytes;
            Vec::with_capacity(bytes as usize)
        } else {
            Vec::new()
        };
        let extents = match job.operation {
            OriginOperation::BlockStatus { range, one_extent } => ExtentList::new(range.length, one_extent),
            _ => ExtentList::new(0, true),
        };
        job.pending.begin();
        conversation.sent.insert(cookie, Sent { job, bytes, buffer, extents, at: Instant::now() });
        None
    }

    /// Sends what waited for the socket, and more.
    pub(super) fn writable(&self, shared: &Shared) {
        self.fill(shared, 0);
        if self.has_room() {
            shared.pump();
        }
    }

    /// Receives what came, at most once, and acts on it; whether anything came.
    pub(super) fn receive(&self, shared: &Shared) -> bool {
        let mut guard = self.conversation();
        let conversation = &mut *guard;
        if conversation.lost.is_some() {
            return false;
        }
        let result = match (&mut &self.stream).read(&mut conversation.input[conversation.input_len..]) {
            Ok(0) => {
                conversation.ended_in_order =
                    conversation.input_len == 0 && conversation.session.is_between_replies();
                Err("server closed the connection".to_owned())
            }
            Ok(bytes) => {
                conversation.input_len += bytes;
                Ok(())
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return false;
            }
            Err(error) => Err(format!("receiving failed: {error}")),
        };
        self.act(shared, guard, result);
        true
    }

    /// Acts on what came behind the handshake.
    pub(super) fn receive_leftover(&self, shared: &Shared) {
        self.act(shared, self.conversation(), Ok(()));
    }

    fn act(&self, shared: &Shared, mut guard: MutexGuard<'_, Conversation>, received: Result<(), String>) {
        let conversation = &mut *guard;
        let mut ended = Vec::new();
        let mut result = received.and_then(|()| parse(conversation, &mut ended));
        let said_farewell = conversation.said_farewell;
        if said_farewell {
            // Nothing more comes, and nothing more is taken.
            result = Err("server ended in order".to_owned());
        }
        conversation.is_leaving |= ended.iter().any(|end| end.is_turned_away(&self.export));
        if conversation.is_leaving && conversation.sent.is_empty() && result.is_ok() {
            self.say_farewell(conversation);
            result = Err("server is shutting down".to_owned());
        }
        // While nobody can see that the connection is lost: then it is counted what is lost with it.
        let acknowledged = ended.iter().filter(|end| end.may_be_lost(&self.export)).count() as u64;
        if acknowledged > 0 || said_farewell {
            let mut unflushed = locked(&shared.unflushed);
            if acknowledged > 0 {
                unflushed.acknowledge(acknowledged, self.run());
            }
            if said_farewell && let Some(run) = self.run() {
                unflushed.ended_in_order(run);
            }
        }
        if let Err(reason) = &result {
            self.lose_locked(conversation, reason);
        }
        self.publish(conversation);
        drop(guard);
        if result.is_err() {
            self.tell_lane(shared);
        }
        let answered = !ended.is_empty();
        if (said_farewell || ended.iter().any(|end| matches!(end, Ended::Answered(..))))
            && self.is_unheard.swap(false, Ordering::Relaxed)
        {
            shared.settle_lane(self.index, self);
        }
        self.conclude(shared, ended);
        if answered {
            shared.pump();
        }
    }

    /// Tells who waits; the conversation is not locked.
    fn conclude(&self, shared: &Shared, ended: Vec<Ended>) {
        for end in ended {
            match end {
                Ended::Nothing(job) => job.nothing(),
                Ended::Withheld(job, Withheld::TooLate) => job.fail(EIO, MAY_NOT_BE_SAFE),
                Ended::Withheld(job, Withheld::OtherRun) => shared.put_back(job),
                Ended::Refused(job, error) => {
                    let errno = match error {
                        SubmitError::ReadOnly => EPERM,
                        SubmitError::NotOffered { .. } => 95,
                        SubmitError::Full { .. } | SubmitError::NotReady => EIO,
                        _ => EINVAL,
                    };
                    job.fail(errno, &error.to_string());
                }
                Ended::Answered(sent, reply) => self.finish(shared, sent, reply),
            }
        }
    }

    fn finish(&self, shared: &Shared, sent: Sent, reply: Result<(), ReplyError>) {
        let Sent { mut job, bytes, buffer, extents, .. } = sent;
        if let Err(error) = reply {
            let patience = shared.options.wait_for_origin.into();
            if turns_away(&error, &self.export) && job.may_go_again(true, patience) {
                // Whoever serves the export next takes it.
                job.waits_since = Instant::now();
                return shared.put_back(job);
            }
            let errno = error.code.to_linux().0;
            if job.is_ours || job.stands_in_for_fua() || (job.is_forced(&self.export) && errno == EIO) {
                locked(&shared.unflushed).sync_failed();
            }
            return job.fail(error.code.to_linux().0, &error.to_string());
        }
        if matches!(job.operation, OriginOperation::BlockStatus { .. }) {
            return job.pending.complete(Ok(extents.into_bytes()));
        }
        if job.is_flush() {
            locked(&shared.unflushed).flushed(job.covers);
        }
        if job.advance(bytes, &self.export) {
            shared.put_back(job);
        } else {
            job.pending.complete(Ok(buffer));
        }
    }
}

/// Whether a server of others says so that it did not take the request, and is about to end: its clients must leave (NBD's protocol, "Terminating the transmission phase").
/// One of ours says a farewell when it ends, and answers like this where the export is removed and nobody serves it next: there it is the answer.
fn turns_away(error: &ReplyError, export: &Export) -> bool {
    error.code == ErrorCode::Shutdown && export.succeeds.is_none()
}

/// Acts on the messages in the input, and drops them from it.
fn parse(conversation: &mut Conversation, ended: &mut Vec<Ended>) -> Result<(), String> {
    let Conversation { session, sent, read_bytes, input, input_len, said_farewell, .. } = conversation;
    let mut output = Vec::new();
    let mut done = 0;
    let result = loop {
        let parsed = match session.receive(&input[done..*input_len], &mut output) {
            Ok(parsed) => parsed,
            Err(error) => break Err(format!("server broke the protocol: {error}")),
        };
        done += parsed.consumed;
        match parsed.event {
            Event::NeedMore => break Ok(()),
            Event::Data { cookie, offset, bytes } => {
                if let Some(request) = sent.get_mut(&cookie) {
                    // The session has checked that the bytes lie inside the request.
                    let start = (offset - request.job.operation.range().offset) as usize;
                    place(&mut request.buffer, start, bytes);
                }
            }
            Event::Extents { cookie, extents } => {
                if let Some(request) = sent.get_mut(&cookie) {
                    for extent in extents {
                        request.extents.push(extent.length.into(), extent.flags);
                    }
                }
            }
            Event::Done { cookie, result } => {
                if let Some(mut request) = sent.remove(&cookie) {
                    if matches!(request.job.operation, OriginOperation::Read { .. }) {
                        *read_bytes -= request.bytes;
                        if result.is_ok() {
                            // What no data came for is a hole; the session has checked that all was described.
                            request.buffer.resize(request.bytes as usize, 0);
                        }
                    }
                    ended.push(Ended::Answered(request, result));
                }
            }
            Event::Farewell => *said_farewell = true,
            Event::Closed => break Err("server ended the conversation".into()),
            _ => {}
        }
    };
    input.copy_within(done..*input_len, 0);
    *input_len -= done;
    result
}

/// Puts `bytes` at `start`, over zeroes where nothing was yet. Data mostly comes in order, and is then written once.
fn place(buffer: &mut Vec<u8>, start: usize, bytes: &[u8]) {
    if buffer.len() < start {
        buffer.resize(start, 0);
    }
    let overlap = (buffer.len() - start).min(bytes.len());
    buffer[start..start + overlap].copy_from_slice(&bytes[..overlap]);
    buffer.extend_from_slice(&bytes[overlap..]);
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
