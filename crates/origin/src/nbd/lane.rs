//! One lane's life: connect, stay until the connection is lost, decide about what was in flight, again.

use super::Shared;
use super::connection::{Connection, End};
use super::job::Job;
use super::stream::{ConnectError, Connected, connect};
use crate::pending::EIO;
use crate::pool::locked;
use crate::request::OriginOperation;
use forebay_nbd::RunId;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How often a lane looks for requests that have waited too long; more often where that is soon.
const TICK: Duration = Duration::from_millis(500);
/// A read, or a question about block status, is sent at most so many times (ours).
const READ_SENDS_MAX: u32 = 3;

/// Runs a lane until the origin closes or fails. `first` is the connection that the origin was opened with.
pub(super) fn run(shared: &Shared, index: usize, first: Option<Connected>) {
    let mut next = first;
    let mut backoff = shared.options.backoff_min;
    let mut was_connected = false;
    let mut undecided: Option<Undecided> = None;
    loop {
        let attempt = match next.take() {
            Some(connected) => Ok(connected),
            None => connect(
                &shared.uri,
                shared.secured.as_ref(),
                shared.options.connection_requests_max,
                shared.options.connect_timeout.into(),
            ),
        };
        if let Some(undecided) = undecided.take() {
            undecided.decide(shared, index, attempt.as_ref().err().and_then(ConnectError::kept_by));
        }
        match attempt {
            Ok(connected) => {
                if let Some(change) = shared.changed(&connected.export) {
                    shared.fail(format!("export came back different: {change}"));
                } else {
                    if was_connected {
                        shared.reconnects.fetch_add(1, Ordering::Relaxed);
                        tracing::info!(target: "forebay::origin", uri = %shared.uri.shown(), "connected again");
                    }
                    was_connected = true;
                    backoff = shared.options.backoff_min;
                    // Before anybody can use the connection: what follows sees that this is over.
                    settle_by_fence(shared, index);
                    match register(shared, index, connected) {
                        Some(connection) => undecided = stay(shared, index, &connection),
                        None => unregister(shared, index),
                    }
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
        if !wait_before_retry(shared, backoff.into()) {
            return; // What is held is told of by whoever watches what waits.
        }
        backoff = forebay_units::Nanos((backoff.0 * 2).min(shared.options.backoff_max.0));
    }
}

/// A connection was lost, and the next attempt says whether the server that ended it is there still, has what it acknowledged, and keeps us out.
///
/// It said which run it is of when it let us in. If it ended the connection in order, all that it answered has come. If the same run then says that others have the
/// export now, it has lost nothing, and has not taken what it did not answer: a flush goes back as though it had never been sent, to be sent here if we are let in again
/// in time, or to be asked of another way. Whatever else comes of the attempt, it is as with any lost connection.
struct Undecided {
    run: RunId,
    reason: String,
}

impl Undecided {
    /// The lane's connection is lost, with these flushes on it; `None`: no attempt can say more.
    fn begin(shared: &Shared, index: usize, end: &End, flushes: Vec<Job>) -> Option<Undecided> {
        let Some(run) = end.run else {
            shared.note_loss();
            // Not as failed: the server has said nothing, and who has it fenced may ask again by another way.
            flushes.into_iter().for_each(|job| job.outcome_unknown(&end.reason));
            return None;
        };
        for job in flushes {
            if let Some(job) = shared.hold(index, job) {
                job.outcome_unknown(&end.reason);
            }
        }
        Some(Undecided { run, reason: end.reason.clone() })
    }

    /// The attempt is over; `kept_by` says who keeps us out, if that is what came of it.
    fn decide(self, shared: &Shared, index: usize, kept_by: Option<RunId>) {
        let is_kept = kept_by == Some(self.run);
        if !is_kept {
            shared.note_loss();
        }
        let flushes = shared.take_held(index, true);
        shared.is_decided(index, self.run, is_kept);
        for held in flushes {
            if is_kept {
                // It waits since it was asked: who asked it may not wait for us any longer than that.
                shared.put_back(held.job);
            } else {
                held.job.outcome_unknown(&self.reason);
            }
        }
        // Flushes that came meanwhile wait, too.
        shared.go_on();
    }
}

/// Makes the connection known to who sends and who receives; `None` when closing has begun, or it broke.
fn register(shared: &Shared, index: usize, connected: Connected) -> Option<Arc<Connection>> {
    let run = RunId::found_in(&connected.export.description);
    let connection = match Connection::new(index, connected, shared.options.connection_requests_max) {
        Ok(connection) => Arc::new(connection),
        Err(error) => {
            note_down(shared, format!("socket cannot be used: {error}"));
            return None;
        }
    };
    {
        let mut queue = locked(&shared.queue);
        if queue.over() {
            return None;
        }
        let event = EventData::new_u64(index as u64);
        if let Err(error) = epoll::add(&shared.epoll, connection.stream(), event, EventFlags::IN) {
            drop(queue);
            note_down(shared, format!("socket cannot be waited for: {error}"));
            return None;
        }
        shared.let_in_by(&mut queue, run);
        queue.connections[index] = Some(Arc::clone(&connection));
        queue.lanes_up[index] = true;
        queue.down_reason.clear();
    }
    shared.change.notify_all();
    connection.receive_leftover(shared);
    shared.pump();
    Some(connection)
}

fn unregister(shared: &Shared, index: usize) {
    let mut queue = locked(&shared.queue);
    queue.connections[index] = None;
    queue.lanes_up[index] = false;
    drop(queue);
    shared.change.notify_all();
}

fn note_down(shared: &Shared, reason: String) {
    let mut queue = locked(&shared.queue);
    if queue.down_reason != reason {
        tracing::warn!(target: "forebay::origin", uri = %shared.uri.shown(), reason, "origin connection");
        queue.down_reason = reason;
    }
}

/// A new connection to a server that fences: what was in flight on the old one is over, applied or not.
fn settle_by_fence(shared: &Shared, index: usize) {
    for held in shared.take_held(index, false) {
        held.job.fail(EIO, "connection lost before the answer; settled by the server's fence");
    }
}

/// `false` when the origin closes or has failed.
fn wait_before_retry(shared: &Shared, time: Duration) -> bool {
    let queue = locked(&shared.queue);
    let waited = shared.change.wait_timeout_while(queue, time, |queue| !queue.over());
    !waited.unwrap_or_else(PoisonError::into_inner).0.over()
}

/// Waits until the connection is lost or the origin closes; what the next attempt will tell.
fn stay(shared: &Shared, index: usize, connection: &Connection) -> Option<Undecided> {
    let tick = TICK.min(Duration::from(shared.options.request_timeout) / 4).max(Duration::from_millis(1));
    let mut was_overdue = false;
    loop {
        let queue = locked(&shared.queue);
        let waited = shared
            .change
            .wait_timeout_while(queue, tick, |queue| !queue.over() && !connection.is_lost())
            .unwrap_or_else(PoisonError::into_inner);
        let is_over = waited.0.over();
        drop(waited);
        if is_over || connection.is_lost() {
            break;
        }
        let mut overdue = connection.overdue(shared);
        if overdue.is_some() {
            // Who receives may be stuck, or all of us stood still: then the answer is there. Of TLS it may yet have to be decrypted: hence the second look.
            while connection.receive(shared) {}
            overdue = connection.overdue(shared);
        }
        match overdue {
            Some(reason) if was_overdue => connection.lose(shared, &reason),
            overdue => was_overdue = overdue.is_some(),
        }
    }
    let (end, in_flight) = connection.end(shared);
    // Before it shows that the connection is gone: a flush that would be told of a loss waits until it is known whether there is one.
    locked(&shared.queue).undecided[index] = end.run.is_some();
    unregister(shared, index);
    note_down(shared, end.reason.clone());
    let is_flush = |job: &Job| job.operation == OriginOperation::Flush;
    let (flushes, others) = in_flight.into_iter().partition(is_flush);
    let undecided = Undecided::begin(shared, index, &end, flushes);
    decide(shared, index, others, &end.reason);
    undecided
}

/// What becomes of requests but flushes that were in flight on a lost connection: only what changes nothing is sent again.
fn decide(shared: &Shared, index: usize, jobs: Vec<Job>, reason: &str) {
    let mut again = Vec::new();
    let over = locked(&shared.queue).over();
    for mut job in jobs {
        if job.operation.only_looks() {
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
        } else if !shared.options.fences_on_disconnect {
            shared.in_doubt(job, reason);
        } else if let Some(job) = shared.hold(index, job) {
            shared.in_doubt(job, reason);
        }
    }
    shared.reads_sent_again.fetch_add(again.len() as u64, Ordering::Relaxed);
    for job in again.into_iter().rev() {
        shared.put_back(job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OriginError;
    use crate::nbd::answers::Answers;
    use crate::nbd::{NbdOrigin, NbdOriginOptions};
    use crate::request::{CompletionSink, Origin, OriginRequest, OriginRequestId};
    use forebay_nbd::{ExportInfo, Uri, server};
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::mpsc::channel;

    /// Lets a client in as a server of this run does, and says no more.
    fn let_in(listener: &UnixListener, run: RunId) -> UnixStream {
        let (mut stream, _) = listener.accept().unwrap();
        let exports =
            vec![ExportInfo { description: run.said_in("disk"), ..ExportInfo::new("disk", 1 << 20) }];
        let (mut output, mut input) = (Vec::new(), Vec::new());
        let mut session = server::Session::new(server::Config::default(), &mut output);
        while !session.is_transmitting() {
            stream.write_all(&output).unwrap();
            output.clear();
            let mut chunk = [0; 4096];
            let bytes = stream.read(&mut chunk).unwrap();
            input.extend_from_slice(&chunk[..bytes]);
            loop {
                let parsed = session.receive(&input, &exports, &mut output).unwrap();
                let (consumed, needs_more) =
                    (parsed.consumed, matches!(parsed.event, server::Event::NeedMore));
                input.drain(..consumed);
                if needs_more || session.is_transmitting() {
                    break;
                }
            }
        }
        stream.write_all(&output).unwrap();
        stream
    }

    #[test]
    fn a_connection_that_nobody_can_use_takes_over_nothing_of_what_a_run_keeps() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let (keeps, other) = (RunId(1), RunId(2));
        let server = std::thread::spawn(move || [keeps, keeps, other].map(|run| let_in(&listener, run)));
        let uri = Uri::unix(&path, "disk");
        let options = NbdOriginOptions { connections: 1, ..NbdOriginOptions::default() };
        let origin = NbdOrigin::connect(&uri, options).unwrap();
        let shared = &origin.shared;
        let is_down = |queue: &mut super::super::Queue| queue.connections[0].is_none();
        drop(shared.change.wait_while(locked(&shared.queue), is_down).unwrap());
        // It acknowledged a write, and lets us in no more.
        shared.writes_acknowledged.store(1, Ordering::SeqCst);
        locked(&shared.queue).kept_by = Some(keeps);
        let connected = || connect(&uri, None, 128, Duration::from_secs(20)).unwrap();
        let unusable = connected();
        epoll::add(&shared.epoll, &unusable.stream, EventData::new_u64(0), EventFlags::empty()).unwrap();
        assert!(register(shared, 0, unusable).is_none(), "the socket is waited for already");
        // Whoever is let in by another run does not find what was kept.
        assert!(register(shared, 0, connected()).is_some());
        let (sender, answers) = channel();
        let sink: Arc<dyn CompletionSink> = Arc::new(Answers(sender));
        let request = OriginRequest { id: OriginRequestId(1), operation: OriginOperation::Flush };
        origin.submit(request, &sink);
        let outcome = answers.recv_timeout(Duration::from_secs(20)).unwrap().result;
        assert!(matches!(outcome, Err(OriginError::Failed { .. })), "{outcome:?}");
        drop(origin);
        server.join().unwrap();
    }
}
