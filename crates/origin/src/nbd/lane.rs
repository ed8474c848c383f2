//! One lane's life: connect, stay until the connection is lost, decide about what was in flight, again.

use super::connection::{Connection, End};
use super::job::Job;
use super::stream::{ConnectError, Connected, connect};
use super::unflushed::differ;
use super::{CLOSED, Shared};
use crate::pending::EIO;
use crate::pool::locked;
use crate::request::OriginOperation;
use forebay_nbd::{RunId, Succeeds};
use rustix::event::epoll::{self, EventData, EventFlags};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How often a lane looks for requests that have waited too long; more often where that is soon.
const TICK: Duration = Duration::from_millis(500);

/// Runs a lane until the origin closes or fails. `first` is the connection that the origin was opened with.
pub(super) fn run(shared: &Shared, index: usize, first: Option<Connected>) {
    let mut next = first;
    let mut place = shared.successions[index];
    let mut backoff = shared.options.backoff_min;
    let mut was_connected = false;
    let mut lost: Option<Lost> = None;
    loop {
        let attempt = match next.take() {
            Some(connected) => Ok(connected),
            None => {
                place.number += 1;
                place.lacks_flush = lost.as_ref().is_some_and(|lost| lost.lacks_flush);
                connect(
                    &shared.uri,
                    shared.secured.as_ref(),
                    shared.options.connection_requests_max,
                    place,
                    shared.options.connect_timeout.into(),
                )
            }
        };
        let is_refused = attempt.is_err();
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
                    locked(&shared.unflushed).meet(connected.export.succeeds);
                    let again = match lost.take() {
                        Some(lost) => lost.let_in(shared, index, connected.export.succeeds),
                        None => Vec::new(),
                    };
                    lost = Some(match register(shared, index, connected, again) {
                        Ok(connection) => stay(shared, index, &connection),
                        Err((end, again)) => part(shared, index, end, again),
                    });
                }
            }
            Err(error) => {
                if let Some(lost) = &mut lost {
                    lost.kept_out(shared, index, &error);
                }
                let mut reason = error.to_string();
                let mut source = std::error::Error::source(&error);
                while let Some(cause) = source {
                    reason = format!("{reason}: {cause}");
                    source = cause.source();
                }
                locked(&shared.queue).note_attempt(&error);
                note_down(shared, reason);
            }
        }
        if !wait_before_retry(shared, backoff.into(), is_refused) {
            return; // What is held is told of by whoever watches what waits.
        }
        backoff = forebay_units::Nanos((backoff.0 * 2).min(shared.options.backoff_max.0));
    }
}

/// A connection was lost, and one of the next attempts says what became of that which was in flight on it, and of what was acknowledged.
///
/// A server that lets connections succeed one another says so when the next one is made, if it is still the same run: then nothing is lost, and what was in flight is sent
/// again there, to be begun when everything of the lost connection is over. Another run on the same storage, which nobody else can have open, vouches for the end of what was in
/// flight as well, and so takes it again, but not for what was acknowledged.
///
/// A server that gives the export to others says which run it is of when it lets us in. If it ended the connection in order, all that it answered has come. If the same run then
/// says that others have the export now, it has lost nothing, and has not taken what it did not answer: a flush goes back as though it had never been sent, to be
/// sent here if we are let in again in time, or to be asked of another way. Whatever else comes of that attempt, it is as with any lost connection.
struct Lost {
    end: End,
    since: Instant,
    /// Whether what was acknowledged may be lost is not known yet.
    is_undecided: bool,
    /// A flush was in flight, or a change with FUA.
    lacks_flush: bool,
    /// A lease has kept us out since, so that others may have written.
    was_kept_out: bool,
}

impl Lost {
    /// The lane's connection ended so, with these requests on it.
    fn begin(shared: &Shared, index: usize, end: End, in_flight: Vec<Job>) -> Lost {
        if end.said_farewell {
            return Lost::take_back(shared, end, in_flight);
        }
        let is_undecided = end.is_undecided();
        let lacks_flush = in_flight.iter().any(Job::may_tell_of_loss);
        if !is_undecided {
            locked(&shared.unflushed).note_loss();
        }
        let (flushes, others): (Vec<Job>, Vec<Job>) =
            in_flight.into_iter().partition(|job| job.operation == OriginOperation::Flush);
        for mut job in flushes {
            let may_go_again =
                job.may_go_again(end.succeeds.is_some(), shared.options.wait_for_origin.into());
            let unheld = match is_undecided && may_go_again {
                true => {
                    job.may_be_answered = end.run.is_none();
                    shared.hold(index, job)
                }
                false => Some(job),
            };
            if let Some(mut job) = unheld {
                job.may_be_answered = false;
                // Not as failed: the server has said nothing, and who has it fenced may ask again by another way.
                shared.in_doubt(index, job, &end.reason);
            }
        }
        decide(shared, index, others, &end);
        // If a flush of ours is over with it, those that waited for that one go by other lanes.
        shared.go_on();
        Lost { end, since: Instant::now(), is_undecided, lacks_flush, was_kept_out: false }
    }

    /// The server has ended, with all that it acknowledged safe. What was in flight it did not take: it waits for whoever serves the export next.
    fn take_back(shared: &Shared, end: End, in_flight: Vec<Job>) -> Lost {
        for mut job in in_flight.into_iter().rev() {
            job.waits_since = Instant::now();
            shared.put_back(job);
        }
        Lost { end, since: Instant::now(), is_undecided: false, lacks_flush: false, was_kept_out: false }
    }

    /// There is a connection again, on which the server succeeds earlier ones if it says so: what is to be sent on it first.
    fn let_in(mut self, shared: &Shared, index: usize, succeeds: Option<Succeeds>) -> Vec<Job> {
        let promises = succeeds.zip(self.end.succeeds);
        let is_over = promises.is_some_and(|(now, then)| now.comes_after(&then));
        if promises.is_some_and(|(now, then)| now.run == then.run) {
            locked(&shared.queue).undecided[index] = false;
        } else {
            self.is_gone(shared, index);
        }
        if self.was_kept_out {
            // Made again, a change could come over what others wrote behind the lease.
            for job in shared.take_held(index, |job| !job.is_flush()) {
                shared.in_doubt(index, job, &self.end.reason);
            }
        }
        if is_over {
            let mut jobs = shared.take_held(index, |_| true);
            jobs.iter_mut().for_each(|job| job.may_be_answered = false);
            if shared.may_settle(index, true) && jobs.is_empty() {
                jobs.extend(shared.question());
            }
            let changes = jobs.iter().filter(|job| job.operation.changes_content()).count();
            shared.changes_sent_again.fetch_add(changes as u64, Ordering::Relaxed);
            return jobs;
        }
        let is_fenced = shared.options.fences_on_disconnect;
        for job in shared.take_held(index, |job| !job.is_flush()) {
            if is_fenced {
                job.fail(EIO, "connection lost before the answer; settled by the server's fence");
            } else {
                shared.in_doubt(index, job, &self.end.reason);
            }
        }
        // What was given up before is settled by the fence as well.
        if shared.may_settle(index, is_fenced) { shared.question().into_iter().collect() } else { Vec::new() }
    }

    /// An attempt did not succeed. If a server was there that does not let us in, no later one says more.
    fn kept_out(&mut self, shared: &Shared, index: usize, error: &ConnectError) {
        let kept_by = error.kept_by();
        let is_refused = matches!(error, ConnectError::Handshake { .. });
        if let Some(run) = kept_by
            && self.is_undecided
            && self.end.run == kept_by
        {
            let flushes = shared.take_held(index, Job::is_flush);
            {
                let mut queue = locked(&shared.queue);
                locked(&shared.unflushed).kept_out_by(run);
                queue.undecided[index] = false;
            }
            self.is_undecided = false;
            // They wait since they were asked: who asked may not wait for us any longer than that.
            flushes.into_iter().for_each(|job| shared.put_back(job));
            // Those that came meanwhile wait, too.
            shared.go_on();
        } else if is_refused || self.end.succeeds.is_none() || self.is_late(shared) {
            self.is_gone(shared, index);
        }
        self.was_kept_out |= kept_by.is_some();
        // Whom a lease keeps out, somebody has fenced, who sends those that asked elsewhere, where what is out is asked again: until then it is
        // held, for as long as requests wait. Any other refusal says that nobody has the export any more.
        if is_refused && kept_by.is_none() && !shared.options.fences_on_disconnect {
            for job in shared.take_held(index, |job| !job.is_flush()) {
                shared.in_doubt(index, job, &self.end.reason);
            }
        }
    }

    /// What was acknowledged may be lost, and nobody knows what became of the flushes.
    fn is_gone(&mut self, shared: &Shared, index: usize) {
        if !std::mem::take(&mut self.is_undecided) {
            return;
        }
        locked(&shared.unflushed).note_loss();
        let flushes = shared.take_held(index, Job::is_flush);
        locked(&shared.queue).undecided[index] = false;
        flushes.into_iter().for_each(|job| shared.in_doubt(index, job, &self.end.reason));
        shared.go_on();
    }

    /// Whether other lanes have had a connection for so long, while this one finds none, that flushes should not wait for it any more.
    fn is_late(&self, shared: &Shared) -> bool {
        let up_since = locked(&shared.queue).up_since;
        up_since.is_some_and(|up| up.max(self.since).elapsed() >= shared.options.wait_for_origin.into())
    }
}

/// Makes the connection known to who sends and who receives, and sends `again` on it. Else, when closing has begun or it broke, it has ended so, and `again` was not sent.
fn register(
    shared: &Shared,
    index: usize,
    connected: Connected,
    again: Vec<Job>,
) -> Result<Arc<Connection>, (End, Vec<Job>)> {
    let succeeds = connected.export.succeeds;
    let said = RunId::found_in(&connected.export.description);
    let ended = |reason, again| Err((End { reason, run: None, succeeds, said_farewell: false }, again));
    let connection = match Connection::new(index, connected, shared.options.connection_requests_max) {
        Ok(connection) => Arc::new(connection),
        Err(error) => return ended(format!("socket cannot be used: {error}"), again),
    };
    let of_other_runs: Vec<Arc<Connection>>;
    {
        let mut queue = locked(&shared.queue);
        if queue.over() {
            return ended(CLOSED.to_owned(), again);
        }
        let event = EventData::new_u64(index as u64);
        if let Err(error) = epoll::add(&shared.epoll, connection.stream(), event, EventFlags::IN) {
            drop(queue);
            return ended(format!("socket cannot be waited for: {error}"), again);
        }
        connection.begin_with(again);
        let must_flush = locked(&shared.unflushed).let_in(succeeds, said);
        if must_flush {
            shared.flush_for_ourselves(&mut queue);
        }
        let others = queue.connections.iter().flatten();
        of_other_runs = others.filter(|other| differ(other.run(), connection.run())).cloned().collect();
        queue.connections[index] = Some(Arc::clone(&connection));
        queue.set_up(index, true);
        queue.down_reason.clear();
    }
    // Their servers may live on, and answer for themselves alone.
    of_other_runs.iter().for_each(|other| other.leave_to_another(shared));
    shared.change.notify_all();
    connection.receive_leftover(shared);
    connection.fill(shared, 0);
    shared.pump();
    Ok(connection)
}

/// The lane's connection is no more; its requests are looked after.
fn part(shared: &Shared, index: usize, end: End, in_flight: Vec<Job>) -> Lost {
    let mut queue = locked(&shared.queue);
    // Together with it: a flush that would be told of a loss waits until it is known whether there is one.
    queue.undecided[index] = end.is_undecided();
    queue.connections[index] = None;
    queue.set_up(index, false);
    // It has said nothing of them; the next one may.
    let doubts = &mut queue.doubts[index];
    doubts.open += std::mem::take(&mut doubts.awaited);
    drop(queue);
    shared.change.notify_all();
    note_down(shared, end.reason.clone());
    Lost::begin(shared, index, end, in_flight)
}

/// Tells, once, why there is no connection: no warning if we ended it ourselves.
fn note_down(shared: &Shared, reason: String) {
    let mut queue = locked(&shared.queue);
    if queue.closing || reason == CLOSED {
        tracing::debug!(target: "forebay::origin", uri = %shared.uri.shown(), reason, "origin connection");
    } else if queue.down_reason != reason {
        tracing::warn!(target: "forebay::origin", uri = %shared.uri.shown(), reason, "origin connection");
        queue.down_reason = reason;
    }
}

/// `false` when the origin closes or has failed.
fn wait_before_retry(shared: &Shared, time: Duration, is_refused: bool) -> bool {
    let queue = locked(&shared.queue);
    // Where another lane finds the server there again, who found nobody has nothing more to wait for.
    let seen = queue.connects;
    let is_there = |queue: &super::Queue| is_refused && queue.connects != seen;
    let goes_on = |queue: &mut super::Queue| !queue.over() && !is_there(queue);
    let waited = shared.change.wait_timeout_while(queue, time, goes_on);
    !waited.unwrap_or_else(PoisonError::into_inner).0.over()
}

/// Waits until the connection is lost or the origin closes; what an attempt will tell.
fn stay(shared: &Shared, index: usize, connection: &Connection) -> Lost {
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
    part(shared, index, end, in_flight)
}

/// What becomes of requests but flushes that were in flight on a lost connection. At once only what changes nothing is sent again.
fn decide(shared: &Shared, index: usize, jobs: Vec<Job>, end: &End) {
    let mut again = Vec::new();
    let over = locked(&shared.queue).over();
    for mut job in jobs {
        let may_go_again =
            job.may_go_again(end.succeeds.is_some(), shared.options.wait_for_origin.into()) && !over;
        if job.operation.only_looks() {
            if may_go_again {
                job.waits_since = Instant::now();
                again.push(job);
            } else {
                job.unreachable(&end.reason);
            }
        } else if job.is_flush() && end.succeeds.is_none() {
            shared.in_doubt(index, job, &end.reason);
        } else {
            let is_held = end.succeeds.is_some() || shared.options.fences_on_disconnect;
            let unheld = match is_held && may_go_again {
                true => shared.hold(index, job),
                false => Some(job),
            };
            if let Some(job) = unheld {
                shared.in_doubt(index, job, &end.reason);
            }
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
        locked(&shared.unflushed).acknowledge(1, None);
        locked(&shared.unflushed).kept_out_by(keeps);
        let place = origin.shared.successions[0];
        let connected = || connect(&uri, None, 128, place, Duration::from_secs(20)).unwrap();
        let unusable = connected();
        epoll::add(&shared.epoll, &unusable.stream, EventData::new_u64(0), EventFlags::empty()).unwrap();
        let nothing = Vec::new;
        assert!(register(shared, 0, unusable, nothing()).is_err(), "the socket is waited for already");
        // Whoever is let in by another run does not find what was kept.
        assert!(register(shared, 0, connected(), nothing()).is_ok());
        let (sender, answers) = channel();
        let sink: Arc<dyn CompletionSink> = Arc::new(Answers(sender));
        let request = OriginRequest { id: OriginRequestId(1), operation: OriginOperation::Flush };
        origin.submit(request, &sink);
        let outcome = answers.recv_timeout(Duration::from_secs(20)).unwrap().result;
        assert!(matches!(outcome, Err(OriginError::Failed { .. })), "{outcome:?}");
        drop(origin);
        server.join().unwrap();
    }

    #[test]
    fn a_change_of_whom_a_lease_keeps_out_is_held_and_of_whom_nobody_lets_in_is_told() {
        use forebay_nbd::client::ProtocolError;
        use forebay_nbd::wire::OptionReply;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let run = RunId(1);
        let server = std::thread::spawn(move || let_in(&listener, run));
        let uri = Uri::unix(&path, "disk");
        let options = NbdOriginOptions { connections: 1, ..NbdOriginOptions::default() };
        let origin = NbdOrigin::connect(&uri, options).unwrap();
        let shared = &origin.shared;
        let (sender, answers) = channel();
        let sink: Arc<dyn CompletionSink> = Arc::new(Answers(sender));
        let write = |id| {
            let operation = OriginOperation::Write { offset: 0, data: vec![1; 4096], fua: false };
            origin.prepare(OriginRequest { id: OriginRequestId(id), operation }, &sink).unwrap()
        };
        // A connection that others succeed is cut with the write on it.
        let succeeds = Some(Succeeds { run, storage: None, keeper: None });
        let end = End { reason: "cut".into(), run: None, succeeds, said_farewell: false };
        let mut lost = Lost::begin(shared, 0, end.clone(), vec![write(1)]);
        let refused = |reply: OptionReply, message: String| ConnectError::Handshake {
            uri: uri.to_string(),
            source: Box::new(ProtocolError::Refused { option: 7, reply: reply.number(), message }),
        };
        let policy = refused(OptionReply::ErrPolicy, run.said_in("others have the lease"));
        lost.kept_out(shared, 0, &policy);
        assert!(answers.try_recv().is_err() && shared.in_doubt.load(Ordering::Relaxed) == 0);
        lost.kept_out(shared, 0, &refused(OptionReply::ErrUnknown, "no such export".into()));
        let outcome = answers.recv_timeout(Duration::from_secs(20)).unwrap().result;
        assert!(matches!(outcome, Err(OriginError::OutcomeUnknown { asked: Some(_), .. })), "{outcome:?}");
        assert_eq!(shared.in_doubt.load(Ordering::Relaxed), 1);
        // Nor is it made again by whom the lease lets in later: others may have written the same blocks.
        for keeps_out in [false, true] {
            let mut lost = Lost::begin(shared, 0, end.clone(), vec![write(3)]);
            if keeps_out {
                lost.kept_out(shared, 0, &policy);
            }
            let again = lost.let_in(shared, 0, succeeds);
            let changes = again.iter().filter(|job| job.operation.changes_content());
            assert_eq!(changes.count(), usize::from(!keeps_out));
            again.into_iter().for_each(|job| job.fail(EIO, "over"));
            let outcome = answers.recv_timeout(Duration::from_secs(20)).unwrap().result;
            let is_unknown = matches!(outcome, Err(OriginError::OutcomeUnknown { .. }));
            assert_eq!(is_unknown, keeps_out, "{outcome:?}");
        }
        drop(origin);
        drop(server.join().unwrap());
    }
}
