//! One connection's life: connect, send and receive until it is lost, decide about what was in flight, again.

use super::job::{Job, Step};
use super::stream::{Connected, RECEIVE_BYTES, Stream, connect};
use super::{Queue, Shared};
use crate::pending::{EINVAL, EIO, EPERM};
use crate::pool::locked;
use crate::request::OriginOperation;
use forebay_nbd::client::{Event, Export, Session, SubmitError};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Requests in flight on one connection (ours).
pub(super) const LANE_REQUESTS_MAX: usize = 128;
/// Bytes of reads in flight on one connection, besides the one that passes it (ours).
const LANE_READ_BYTES_MAX: u64 = 64 << 20;
/// Bytes that are gathered into one call of the system (ours).
const GATHER_BYTES: usize = 128 << 10;
/// How often a reader looks for requests that have waited too long.
const TICK: Duration = Duration::from_millis(100);
/// A read is sent at most so many times (ours).
const READ_SENDS_MAX: u32 = 3;

static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

struct Sent {
    job: Job,
    /// Bytes of this protocol request.
    bytes: u64,
    /// Where a read's bytes go.
    buffer: Vec<u8>,
    at: Instant,
}

/// One established connection, shared by its sender and its receiver.
struct Connection<'a> {
    shared: &'a Shared,
    stream: &'a Stream,
    export: Export,
    conversation: Mutex<Conversation>,
}

struct Conversation {
    session: Session,
    sent: BTreeMap<u64, Sent>,
    read_bytes: u64,
    next_cookie: u64,
    lost: Option<String>,
}

impl Conversation {
    fn is_full(&self) -> bool {
        self.sent.len() >= LANE_REQUESTS_MAX || self.read_bytes >= LANE_READ_BYTES_MAX
    }
}

/// Runs a lane until the origin closes or fails. `first` is the connection that the origin was opened with.
pub(super) fn run(shared: &Shared, index: usize, first: Option<Connected>) {
    let mut next = first;
    let mut held: Vec<(Job, Instant)> = Vec::new();
    let mut backoff = shared.options.backoff_min;
    let mut was_connected = false;
    loop {
        let attempt = match next.take() {
            Some(connected) => Ok(connected),
            None => connect(&shared.uri, LANE_REQUESTS_MAX, shared.options.connect_timeout.into()),
        };
        match attempt {
            Ok(connected) => {
                if let Some(change) = shared.changed(&connected.export) {
                    shared.fail(format!("export came back different: {change}"));
                } else if let Some(stream) = register(shared, index, &connected) {
                    if was_connected {
                        shared.reconnects.fetch_add(1, Ordering::Relaxed);
                        tracing::info!(target: "forebay::origin", uri = %shared.uri, "connected again");
                    }
                    was_connected = true;
                    backoff = shared.options.backoff_min;
                    settle_by_fence(&mut held);
                    held = converse(shared, connected);
                    stream.shut_down();
                    unregister(shared, index);
                } else {
                    unregister(shared, index);
                }
            }
            Err(error) => {
                let mut reason = error.to_string();
                let mut source = std::error::Error::source(&error);
                while let Some(cause) = source {
                    reason = format!("{reason}: {cause}");
                    source = cause.source();
                }
                note_down(shared, reason);
            }
        }
        give_up_overdue(shared, &mut held);
        if !wait_before_retry(shared, backoff.into()) {
            for (job, _) in held {
                in_doubt(shared, job, "origin closed before the write was settled");
            }
            return;
        }
        backoff = forebay_units::Nanos((backoff.0 * 2).min(shared.options.backoff_max.0));
    }
}

/// Makes the connection known, so that closing can end it; `None` when closing has begun.
fn register(shared: &Shared, index: usize, connected: &Connected) -> Option<Stream> {
    let ours = connected.stream.try_clone().ok()?;
    let theirs = connected.stream.try_clone().ok()?;
    let mut queue = locked(&shared.queue);
    if queue.over() {
        return None;
    }
    queue.streams[index] = Some(theirs);
    queue.lanes_up[index] = true;
    queue.down_reason.clear();
    drop(queue);
    shared.change.notify_all();
    Some(ours)
}

fn unregister(shared: &Shared, index: usize) {
    let mut queue = locked(&shared.queue);
    queue.streams[index] = None;
    queue.lanes_up[index] = false;
    drop(queue);
    shared.change.notify_all();
}

fn note_down(shared: &Shared, reason: String) {
    let mut queue = locked(&shared.queue);
    if queue.down_reason != reason {
        tracing::warn!(target: "forebay::origin", uri = %shared.uri, reason, "origin connection");
        queue.down_reason = reason;
    }
}

/// A new connection to a server that fences: what was in flight on the old one is over, applied or not.
fn settle_by_fence(held: &mut Vec<(Job, Instant)>) {
    for (job, _) in held.drain(..) {
        job.fail(EIO, "connection lost before the answer; settled by the server's fence");
    }
}

fn give_up_overdue(shared: &Shared, held: &mut Vec<(Job, Instant)>) {
    let wait = Duration::from(shared.options.wait_for_origin);
    let (overdue, rest) = held.drain(..).partition(|(_, since)| since.elapsed() >= wait);
    *held = rest;
    for (job, _) in overdue {
        in_doubt(shared, job, "connection lost before the answer and not made again in time");
    }
}

fn in_doubt(shared: &Shared, job: Job, what: &str) {
    shared.in_doubt.fetch_add(1, Ordering::Relaxed);
    job.outcome_unknown(what);
}

/// `false` when the origin closes or has failed.
fn wait_before_retry(shared: &Shared, time: Duration) -> bool {
    let queue = locked(&shared.queue);
    let waited = shared.change.wait_timeout_while(queue, time, |queue| !queue.over());
    !waited.unwrap_or_else(PoisonError::into_inner).0.over()
}

/// Sends and receives until the connection is lost. Returns the writes that a fence will settle.
fn converse(shared: &Shared, connected: Connected) -> Vec<(Job, Instant)> {
    let Connected { stream, session, export, received } = connected;
    let request_timeout = Duration::from(shared.options.request_timeout);
    let timeouts = stream.set_timeouts(TICK.min(request_timeout), request_timeout);
    let conversation =
        Conversation { session, sent: BTreeMap::new(), read_bytes: 0, next_cookie: 0, lost: None };
    let connection = Connection { shared, stream: &stream, export, conversation: Mutex::new(conversation) };
    if let Err(error) = timeouts {
        connection.lose(&format!("socket takes no timeouts: {error}"));
    }
    std::thread::scope(|scope| {
        let receiver = std::thread::Builder::new().name("nbd-receive".into());
        if let Err(error) = receiver.spawn_scoped(scope, || connection.receive(received)) {
            connection.lose(&format!("no thread to receive with: {error}"));
        }
        connection.send();
    });
    let conversation = connection.conversation.into_inner().unwrap_or_else(PoisonError::into_inner);
    let reason = conversation.lost.unwrap_or_else(|| "connection closed".into());
    note_down(shared, reason.clone());
    shared.note_loss();
    decide(shared, conversation.sent.into_values().map(|sent| sent.job), &reason)
}

/// What becomes of requests that were in flight on a lost connection: only reads are sent again.
fn decide(shared: &Shared, jobs: impl DoubleEndedIterator<Item = Job>, reason: &str) -> Vec<(Job, Instant)> {
    let mut held = Vec::new();
    let mut again = Vec::new();
    let over = locked(&shared.queue).over();
    for mut job in jobs {
        if matches!(job.operation, OriginOperation::Read { .. }) {
            job.losses += 1;
            if job.losses >= READ_SENDS_MAX || over {
                job.unreachable(reason);
            } else {
                job.waits_since = Instant::now();
                again.push(job);
            }
        } else if job.is_flush() {
            // The content of a write that waits for its flush was acknowledged: only its durability is not known.
            job.fail(EIO, reason);
        } else if shared.options.fences_on_disconnect && !over {
            held.push((job, Instant::now()));
        } else {
            in_doubt(shared, job, reason);
        }
    }
    shared.reads_sent_again.fetch_add(again.len() as u64, Ordering::Relaxed);
    for job in again.into_iter().rev() {
        shared.put_back(job);
    }
    held
}

impl Connection<'_> {
    fn conversation(&self) -> MutexGuard<'_, Conversation> {
        locked(&self.conversation)
    }

    /// Ends the connection; the first reason stays.
    fn lose(&self, reason: &str) {
        self.conversation().lost.get_or_insert_with(|| reason.to_owned());
        self.stream.shut_down();
        // Under the lock of the queue, so that a sender that has just looked does not miss it.
        drop(locked(&self.shared.queue));
        self.shared.wake_all();
    }

    /// Sends requests until the connection is lost.
    fn send(&self) {
        let mut output = Vec::new();
        while let Some(job) = self.next_job() {
            output.clear();
            let mut next = Some(job);
            while let Some(job) = next.take() {
                if !self.encode(job, &mut output) {
                    return;
                }
                if output.len() < GATHER_BYTES && self.has_room() {
                    next = locked(&self.shared.queue).take_job();
                }
            }
            if !output.is_empty()
                && let Err(error) = (&mut &*self.stream).write_all(&output)
            {
                return self.lose(&format!("sending failed: {error}"));
            }
            output.shrink_to(GATHER_BYTES * 8);
        }
        let mut conversation = self.conversation();
        if conversation.lost.is_none() && conversation.sent.is_empty() {
            output.clear();
            conversation.session.disconnect(&mut output);
            let _ = (&mut &*self.stream).write_all(&output);
        }
        drop(conversation);
        self.lose("origin closed");
    }

    fn has_room(&self) -> bool {
        let conversation = self.conversation();
        conversation.lost.is_none() && !conversation.is_full()
    }

    /// Waits for a request that may be sent; `None` once the connection is lost or the origin closes.
    fn next_job(&self) -> Option<Job> {
        let mut queue: MutexGuard<'_, Queue> = locked(&self.shared.queue);
        loop {
            if queue.over() || self.conversation().lost.is_some() {
                if !queue.jobs.is_empty() {
                    // We may have been the one that was told of it.
                    self.shared.work.notify_one();
                }
                return None;
            }
            let turn = if self.has_room() {
                if let Some(job) = queue.take_job() {
                    return Some(job);
                }
                &self.shared.work
            } else {
                &self.shared.room
            };
            queue = turn.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Encodes a request and remembers it; `false` when the connection is lost and the request went back.
    fn encode(&self, mut job: Job, output: &mut Vec<u8>) -> bool {
        let Step::Send { operation, zeroes } = job.step(&self.export) else {
            job.pending.complete(Ok(Vec::new()));
            return true;
        };
        if job.is_flush() {
            job.covers = self.shared.writes_acknowledged.load(Ordering::SeqCst);
        }
        let mut conversation = self.conversation();
        if conversation.lost.is_some() {
            drop(conversation);
            self.shared.put_back(job);
            return false;
        }
        let cookie = conversation.next_cookie;
        conversation.next_cookie += 1;
        let before = output.len();
        if let Err(error) = conversation.session.submit(cookie, operation, output) {
            drop(conversation);
            output.truncate(before);
            let errno = match error {
                SubmitError::ReadOnly => EPERM,
                SubmitError::NotOffered { .. } => 95,
                SubmitError::Full { .. } | SubmitError::NotReady => EIO,
                _ => EINVAL,
            };
            job.fail(errno, &error.to_string());
            return true;
        }
        use forebay_nbd::client::Operation;
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
        let buffer =
            if matches!(operation, Operation::Read { .. }) { vec![0; bytes as usize] } else { Vec::new() };
        conversation.read_bytes += buffer.len() as u64;
        job.pending.begin();
        conversation.sent.insert(cookie, Sent { job, bytes, buffer, at: Instant::now() });
        true
    }

    /// Receives replies until the connection is lost.
    fn receive(&self, mut input: Vec<u8>) {
        let mut chunk = vec![0; RECEIVE_BYTES];
        let mut checked = Instant::now();
        loop {
            if let Err(reason) = self.parse(&mut input) {
                return self.lose(&reason);
            }
            if checked.elapsed() >= TICK {
                checked = Instant::now();
                if let Some(reason) = self.overdue() {
                    return self.lose(&reason);
                }
            }
            match (&mut &*self.stream).read(&mut chunk) {
                Ok(0) => return self.lose("server closed the connection"),
                Ok(bytes) => input.extend_from_slice(&chunk[..bytes]),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
                    ) =>
                {
                    if self.conversation().lost.is_some() {
                        return;
                    }
                }
                Err(error) => return self.lose(&format!("receiving failed: {error}")),
            }
        }
    }

    /// The oldest request, if it has waited too long. Cookies grow with time.
    fn overdue(&self) -> Option<String> {
        let timeout = self.shared.options.request_timeout;
        let conversation = self.conversation();
        let (_, oldest) = conversation.sent.first_key_value()?;
        (oldest.at.elapsed() > timeout.into())
            .then(|| oldest.job.context(&format!("no answer within {timeout}")))
    }

    /// Acts on the messages in `input`, and drops them from it.
    fn parse(&self, input: &mut Vec<u8>) -> Result<(), String> {
        let mut finished = Vec::new();
        let mut output = Vec::new();
        let mut done = 0;
        let mut guard = self.conversation();
        let was_full = guard.is_full();
        let result = loop {
            let Conversation { session, sent, read_bytes, .. } = &mut *guard;
            let parsed = match session.receive(&input[done..], &mut output) {
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
                        request.buffer[start..start + bytes.len()].copy_from_slice(bytes);
                    }
                }
                Event::Done { cookie, result } => {
                    if let Some(request) = sent.remove(&cookie) {
                        *read_bytes -= request.buffer.len() as u64;
                        finished.push((request, result));
                    }
                }
                Event::Closed => break Err("server ended the conversation".into()),
                _ => {}
            }
        };
        drop(guard);
        input.drain(..done);
        let freed = was_full && !finished.is_empty();
        for (sent, reply) in finished {
            self.finish(sent, reply);
        }
        if freed {
            drop(locked(&self.shared.queue));
            self.shared.room.notify_all();
        }
        result
    }

    fn finish(&self, sent: Sent, reply: Result<(), forebay_nbd::client::ReplyError>) {
        let Sent { mut job, bytes, buffer, .. } = sent;
        if let Err(error) = reply {
            return job.fail(error.code.to_linux().0, &error.to_string());
        }
        if job.is_flush() {
            self.shared.flushed_through.fetch_max(job.covers, Ordering::SeqCst);
        } else if job.operation.changes_content() {
            self.shared.writes_acknowledged.fetch_add(1, Ordering::SeqCst);
        }
        if job.advance(bytes, &self.export) {
            self.shared.put_back(job);
        } else {
            job.pending.complete(Ok(buffer));
        }
    }
}
