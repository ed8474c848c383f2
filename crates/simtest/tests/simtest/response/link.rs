//! The way from a daemon to its origin: a real NBD client session on the simulated network, and what becomes of requests when a connection is lost.
//!
//! The rules are those of the NBD origin (`crates/origin/src/nbd`), with one connection: only what looks is sent again; a change that was sent and
//! not answered has an unknown outcome; a flush fails, and so does the next one behind a loss of which acknowledged changes may be the victims, unless the server ended
//! the connection in order and says then that it keeps us out; what was never sent says so. Whoever changes them there changes them here.

use super::wires::{Destination, Parts, Peer};
use super::world::{Event, World, note};
use forebay_nbd::RunId;
use forebay_nbd::client::{Config, Event as ClientEvent, Operation, ProtocolError, Session};
use forebay_origin::{OriginCompletion, OriginError, OriginOperation, OriginRequest};
use std::collections::{BTreeMap, VecDeque};

/// A read is sent at most so many times.
const READ_SENDS_MAX: u32 = 3;
/// How long what was not sent waits for a connection, and an answer is waited for.
const WAITS_NS: u64 = 300_000_000;
pub(super) const ANSWERS_WITHIN_NS: u64 = 80_000_000;

struct Job {
    request: OriginRequest,
    waits_since: u64,
    sent_at: u64,
    losses: u32,
    /// Changes acknowledged when this flush was sent.
    covers: u64,
    /// Bytes of a read.
    data: Vec<u8>,
}

/// One way to an origin.
pub(super) struct Link {
    pub(super) node: u64,
    pub(super) to: Destination,
    pub(super) connection: Option<u64>,
    pub(super) is_ready: bool,
    /// It was left for another way, and does nothing any more.
    is_abandoned: bool,
    session: Option<Session>,
    input: Vec<u8>,
    outbox: VecDeque<u8>,
    queue: VecDeque<Job>,
    sent: BTreeMap<u64, Job>,
    next_cookie: u64,
    acknowledged: u64,
    flushed_through: u64,
    flush_must_fail: bool,
    /// Which run of the server let us in last.
    run: Option<RunId>,
    /// A connection ended in order: the next attempt says what of it is lost, these flushes among it.
    undecided: Option<Vec<Job>>,
    /// The run that keeps us out, and has what it acknowledged.
    kept_by: Option<RunId>,
}

impl Link {
    /// What was acknowledged and not flushed may be lost.
    fn note_loss(&mut self) {
        self.flush_must_fail |= self.acknowledged > self.flushed_through;
    }
}

impl World {
    /// A link of `node`, which begins to connect.
    pub(super) fn open_link(&mut self, node: u64, to: Destination) -> u64 {
        let id = self.number();
        let link = Link {
            node,
            to,
            connection: None,
            is_ready: false,
            is_abandoned: false,
            session: None,
            input: Vec::new(),
            outbox: VecDeque::new(),
            queue: VecDeque::new(),
            sent: BTreeMap::new(),
            next_cookie: 1,
            acknowledged: 0,
            flushed_through: 0,
            flush_must_fail: false,
            run: None,
            undecided: None,
            kept_by: None,
        };
        self.links.insert(id, link);
        self.schedule(0, Event::Link(id));
        id
    }

    /// Connects if it has to, and gives up what has waited too long.
    pub(super) fn tend_link(&mut self, id: u64) {
        let now = self.now;
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.is_abandoned {
            return;
        }
        if self.nodes.get(&link.node).is_some_and(|node| node.hangs) {
            return self.schedule(1_000_000, Event::Link(id));
        }
        let overdue = link.sent.values().next().is_some_and(|job| now - job.sent_at > ANSWERS_WITHIN_NS);
        let (to, connection) = (link.to, link.connection);
        let mut given_up = Vec::new();
        if link.connection.is_none() || !link.is_ready {
            let late = |job: &Job| now - job.waits_since > WAITS_NS;
            while link.queue.front().is_some_and(late) {
                given_up.extend(link.queue.pop_front());
            }
        }
        let node = link.node;
        for job in given_up {
            self.unreachable(node, id, job);
        }
        match connection {
            Some(connection) if overdue => {
                note!(self, "link {id} has waited too long for an answer");
                self.cut(connection);
            }
            Some(_) => {}
            None => {
                let place = self.nodes[&node].place;
                if let Some((connection, export)) = self.connect(Peer::Link(id), place, to) {
                    let link = self.links.get_mut(&id).expect("looked up above");
                    link.connection = Some(connection);
                    link.session = Some(Session::new(Config { block_status: false, ..Config::new(export) }));
                } else {
                    self.decide(id, None);
                }
            }
        }
        let delay = 1_000_000 + self.delay();
        self.schedule(delay, Event::Link(id));
    }

    fn unreachable(&mut self, node: u64, link: u64, job: Job) {
        let unsent = Some(Box::new(job.request.operation));
        let error = OriginError::Unreachable { context: String::new(), unsent };
        self.complete(node, link, OriginCompletion { id: job.request.id, result: Err(error) });
    }

    fn fail(&mut self, node: u64, link: u64, job: &Job, errno: i32) {
        let error = OriginError::Failed { errno, context: String::new() };
        self.complete(node, link, OriginCompletion { id: job.request.id, result: Err(error) });
    }

    /// An attempt to connect is over; `kept_by` says who keeps us out, if that is what came of it.
    fn decide(&mut self, id: u64, kept_by: Option<RunId>) {
        let now = self.now;
        let link = self.links.get_mut(&id).expect("the caller looked");
        let Some(flushes) = link.undecided.take() else { return };
        let is_kept = link.run.is_some() && kept_by == link.run;
        if is_kept {
            note!(self, "link {id} is kept out, with {} flushes that were not taken", flushes.len());
            self.course.flushes_kept += flushes.len() as u64;
            let link = self.links.get_mut(&id).expect("looked up above");
            link.kept_by = kept_by;
            flushes.into_iter().for_each(|job| link.queue.push_front(Job { waits_since: now, ..job }));
        } else {
            link.note_loss();
            flushes.into_iter().for_each(|job| self.outcome_unknown(id, &job));
        }
    }

    fn outcome_unknown(&mut self, id: u64, job: &Job) {
        let node = self.links[&id].node;
        let error = OriginError::OutcomeUnknown { context: String::new() };
        self.complete(node, id, OriginCompletion { id: job.request.id, result: Err(error) });
    }

    /// A daemon asks its origin.
    pub(super) fn submit_to_link(&mut self, id: u64, request: OriginRequest) {
        let now = self.now;
        let link = self.links.get_mut(&id).expect("a daemon has its link");
        let node = link.node;
        let job = Job { request, waits_since: now, sent_at: 0, losses: 0, covers: 0, data: Vec::new() };
        if link.is_abandoned {
            return self.unreachable(node, id, job);
        }
        if job.request.operation == OriginOperation::Flush && std::mem::take(&mut link.flush_must_fail) {
            return self.fail(node, id, &job, 5);
        }
        link.queue.push_back(job);
        self.pump_link(id);
    }

    /// Sends what waits.
    fn pump_link(&mut self, id: u64) {
        let now = self.now;
        let Some(link) = self.links.get_mut(&id).filter(|link| link.is_ready) else { return };
        let session = link.session.as_mut().expect("it is ready");
        while let Some(mut job) = link.queue.pop_front() {
            let range = job.request.operation.range();
            let (offset, length) = (range.offset, range.length as u32);
            let operation = match &job.request.operation {
                OriginOperation::Read { .. } => Operation::Read { offset, length, dont_fragment: false },
                OriginOperation::Write { fua, .. } => Operation::Write { offset, length, fua: *fua },
                OriginOperation::Flush => Operation::Flush,
                other => panic!("nobody here asks for {other:?}"),
            };
            let mut output = Vec::new();
            session.submit(link.next_cookie, operation, &mut output).expect("the export offers it");
            if let OriginOperation::Write { data, .. } = &job.request.operation {
                output.extend_from_slice(data);
            }
            job.covers = link.acknowledged;
            job.sent_at = now;
            if matches!(operation, Operation::Read { .. }) {
                job.data = vec![0; length as usize];
            }
            link.outbox.extend(output);
            link.sent.insert(link.next_cookie, job);
            link.next_cookie += 1;
        }
        self.empty_outbox(Peer::Link(id));
    }

    pub(super) fn link_parts(&mut self, id: u64) -> Option<Parts<'_>> {
        let link = self.links.get_mut(&id)?;
        Some(Parts { connection: link.connection?, outbox: &mut link.outbox, input: &mut link.input })
    }

    /// Bytes came.
    pub(super) fn link_hears(&mut self, id: u64) {
        let mut ended = Vec::new();
        let mut output = Vec::new();
        let link = self.links.get_mut(&id).expect("its connection has it");
        let Link { session, input, sent, is_ready, .. } = link;
        let Some(session) = session else { return };
        let mut consumed = 0;
        let (mut is_over, mut kept_by, mut let_in_by) = (false, None, None);
        loop {
            let parsed = match session.receive(&input[consumed..], &mut output) {
                Ok(parsed) => parsed,
                Err(error) => {
                    // It is not let in.
                    assert!(!*is_ready, "a link is answered rubbish");
                    is_over = true;
                    if let ProtocolError::Refused { message, .. } = &error {
                        kept_by = RunId::found_in(message);
                    }
                    break;
                }
            };
            consumed += parsed.consumed;
            match parsed.event {
                ClientEvent::NeedMore => break,
                ClientEvent::Ready(export) => {
                    *is_ready = true;
                    let_in_by = Some(RunId::found_in(&export.description));
                }
                ClientEvent::Data { cookie, offset, bytes } => {
                    let job = sent.get_mut(&cookie).expect("the session knows its cookies");
                    let at = (offset - job.request.operation.range().offset) as usize;
                    job.data[at..at + bytes.len()].copy_from_slice(bytes);
                }
                ClientEvent::Done { cookie, result } => {
                    ended.push((sent.remove(&cookie).expect("the session knows its cookies"), result));
                }
                _ => {}
            }
        }
        input.drain(..consumed);
        link.outbox.extend(output);
        let (node, connection) = (link.node, link.connection);
        self.empty_outbox(Peer::Link(id));
        for (job, result) in ended {
            if let Err(error) = result {
                self.fail(node, id, &job, error.code.to_linux().0);
                continue;
            }
            let link = self.links.get_mut(&id).expect("looked up above");
            if job.request.operation == OriginOperation::Flush {
                link.flushed_through = link.flushed_through.max(job.covers);
            } else if job.request.operation.changes_content() {
                link.acknowledged += 1;
            }
            self.complete(node, id, OriginCompletion { id: job.request.id, result: Ok(job.data) });
        }
        if let (true, Some(connection)) = (is_over, connection) {
            self.decide(id, kept_by);
            self.cut(connection);
        }
        if let Some(run) = let_in_by {
            self.decide(id, None);
            let link = self.links.get_mut(&id).expect("looked up above");
            if link.kept_by.take().is_some_and(|kept_by| run != Some(kept_by)) {
                link.note_loss();
            }
            link.run = run;
        }
        self.pump_link(id);
    }

    /// The connection is gone.
    pub(super) fn link_lost(&mut self, id: u64) {
        let now = self.now;
        let Some(link) = self.links.get_mut(&id) else { return };
        let is_cut = link.connection.is_none_or(|connection| self.connections[&connection].is_cut);
        let was_ready = link.is_ready;
        let ended_in_order =
            was_ready && !is_cut && link.run.is_some() && link.input.is_empty() && !link.is_abandoned;
        (link.connection, link.session, link.is_ready) = (None, None, false);
        link.input.clear();
        link.outbox.clear();
        if ended_in_order {
            link.undecided = Some(Vec::new());
        } else if was_ready {
            link.note_loss();
        }
        let (node, is_over) = (link.node, link.is_abandoned);
        let mut again = Vec::new();
        for mut job in std::mem::take(&mut link.sent).into_values() {
            if job.request.operation.only_looks() {
                job.losses += 1;
                job.waits_since = now;
                if job.losses < READ_SENDS_MAX && !is_over {
                    again.push(job);
                } else {
                    self.unreachable(node, id, job);
                }
            } else if ended_in_order && job.request.operation == OriginOperation::Flush {
                let link = self.links.get_mut(&id).expect("looked up above");
                link.undecided.as_mut().expect("it was made above").push(job);
            } else {
                self.outcome_unknown(id, &job);
            }
        }
        let link = self.links.get_mut(&id).expect("looked up above");
        again.into_iter().rev().for_each(|job| link.queue.push_front(job));
    }

    /// Gives up everything that is on it: the path was fenced.
    pub(super) fn abandon_link(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.is_abandoned = true;
        let (node, connection) = (link.node, link.connection);
        let undecided = link.undecided.take().unwrap_or_default();
        for job in std::mem::take(&mut link.queue) {
            self.unreachable(node, id, job);
        }
        undecided.iter().for_each(|job| self.outcome_unknown(id, job));
        match connection {
            Some(connection) => self.cut(connection),
            None => self.link_lost(id),
        }
    }

    /// Nothing is on it: it ends.
    pub(super) fn close_link(&mut self, id: u64) {
        if let Some(connection) = self.links.remove(&id).and_then(|link| link.connection) {
            self.cut(connection);
        }
    }
}
