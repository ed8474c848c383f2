//! One lane's life: connect, stay until the connection is lost, decide about what was in flight, again.

use super::Shared;
use super::connection::Connection;
use super::job::Job;
use super::stream::{Connected, connect};
use crate::pending::EIO;
use crate::pool::locked;
use crate::request::OriginOperation;
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
                        Some(connection) => stay(shared, index, &connection),
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
            return;
        }
        backoff = forebay_units::Nanos((backoff.0 * 2).min(shared.options.backoff_max.0));
    }
}

/// Makes the connection known to who sends and who receives; `None` when closing has begun, or it broke.
fn register(shared: &Shared, index: usize, connected: Connected) -> Option<Arc<Connection>> {
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
    for held in shared.take_held(index) {
        held.job.fail(EIO, "connection lost before the answer; settled by the server's fence");
    }
}

/// `false` when the origin closes or has failed.
fn wait_before_retry(shared: &Shared, time: Duration) -> bool {
    let queue = locked(&shared.queue);
    let waited = shared.change.wait_timeout_while(queue, time, |queue| !queue.over());
    !waited.unwrap_or_else(PoisonError::into_inner).0.over()
}

/// Waits until the connection is lost or the origin closes.
fn stay(shared: &Shared, index: usize, connection: &Connection) {
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
    let (reason, in_flight) = connection.end(shared);
    unregister(shared, index);
    note_down(shared, reason.clone());
    shared.note_loss();
    decide(shared, index, in_flight, &reason);
}

/// What becomes of requests that were in flight on a lost connection: only what changes nothing is sent again.
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
        } else if job.operation == OriginOperation::Flush {
            // Not as failed: the server has said nothing, and who has it fenced may ask again by another way.
            job.outcome_unknown(reason);
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
