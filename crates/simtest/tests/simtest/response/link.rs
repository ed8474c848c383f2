//! The way from a daemon to its origin: a real NBD client session on the simulated network, and what becomes of requests when a connection is lost.
//!
//! What was acknowledged and not flushed is kept by the origin's own `UnflushedChanges`. The other rules are those of the NBD origin (`crates/origin/src/nbd`), with one connection: what looks is sent again; so is
//! everything else at a server that lets connections succeed one another, when the next one is made. At others a change that was sent and not answered has an unknown outcome, and a flush fails, unless the
//! server ended the connection in order and says then that it keeps us out (behind the storage side is one of those that end what a lost connection asked before they take the next one, `fences_on_disconnect`: a change waits for
//! that, fails, and is in doubt no more); what was never sent says so, and so does what a server did not take that said farewell. Whoever changes them there changes them here.

use super::node::{CELL, Role, Source};
use super::wires::{Destination, Parts, Peer};
use super::world::{Event, World, note};
use forebay_linear::version_in;
use forebay_nbd::client::{Config, Event as ClientEvent, Operation, ProtocolError, Session};
use forebay_nbd::{RunId, Succeeds, Succession};
use forebay_origin::{
    OriginCompletion, OriginError, OriginOperation, OriginRequest, OriginRequestId, UnflushedChanges,
};
use forebay_units::ByteRange;
use rand::Rng;
use std::collections::{BTreeMap, VecDeque};

/// A request is sent at most so many times to a server of which nothing more is known.
const SENDS_MAX: u32 = 3;
/// How long what was not sent, or is to be sent again, waits for a connection, and an answer is waited for.
const WAITS_NS: u64 = 300_000_000;
pub(super) const ANSWERS_WITHIN_NS: u64 = 80_000_000;

/// Asks for nothing but an answer.
pub(super) const QUESTION: OriginRequestId = OriginRequestId(u64::MAX);
/// Nobody waits for its answer.
pub(super) const OWN_FLUSH: OriginRequestId = OriginRequestId(u64::MAX - 1);

struct Job {
    request: OriginRequest,
    waits_since: u64,
    sent_at: u64,
    /// How often a connection was lost under it, and when first.
    losses: u32,
    lost_at: u64,
    /// Of a flush: its answer may have been lost.
    may_be_answered: bool,
    /// Losses of acknowledged changes when it came.
    losses_before: u64,
    /// Changes acknowledged when this flush was sent.
    covers: u64,
    /// Bytes of a read.
    data: Vec<u8>,
}

impl Job {
    fn is_flush(&self) -> bool {
        self.request.operation == OriginOperation::Flush
    }

    fn wants_fua(&self) -> bool {
        matches!(self.request.operation, OriginOperation::Write { fua: true, .. })
    }

    fn may_go_again(&mut self, is_succeeded: bool, now: u64) -> bool {
        if self.losses == 0 {
            self.lost_at = now;
        }
        self.losses += 1;
        self.losses < SENDS_MAX || (is_succeeded && now - self.lost_at < WAITS_NS)
    }
}

/// A connection was lost of which the next attempts say more.
struct Lost {
    /// Who ended it in order.
    run: Option<RunId>,
    succeeds: Option<Succeeds>,
    /// Whether what was acknowledged may be lost is not known.
    is_undecided: bool,
    lacks_flush: bool,
    /// A lease has kept us out since.
    was_kept_out: bool,
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
    pub(super) unflushed: UnflushedChanges,
    place: Succession,
    /// Of the connection: the run that the server said of the export, and whom it lets succeed it.
    run: Option<RunId>,
    succeeds: Option<Succeeds>,
    said_farewell: bool,
    is_unheard: bool,
    lost: Option<Lost>,
    /// What was in flight on it, and since when it waits for the next one.
    held: Vec<(Job, u64)>,
    /// Changes in doubt that a connection which succeeds can say are over; and of which there is one that has not answered yet.
    open: u64,
    awaited: u64,
    in_doubt: u64,
}

impl Link {
    /// The way to the same data that this one takes the place of; what it had acknowledged is this one's from here on.
    pub(super) fn take_the_place_of(&mut self, old: &Link, now: u64) {
        if let Some(unflushed) = old.unflushed.unflushed()
            && self.unflushed.inherit(unflushed)
        {
            self.flush_of_ours(now);
        }
    }

    fn take_held(&mut self, which: impl Fn(&Job) -> bool) -> Vec<Job> {
        let (its, rest): (Vec<_>, Vec<_>) = self.held.drain(..).partition(|(job, _)| which(job));
        self.held = rest;
        its.into_iter().map(|(job, _)| job).collect()
    }

    /// Takes what is to be sent next: no flush goes out beside one of ours.
    fn next(&mut self) -> Option<Job> {
        let is_ours = |job: &Job| job.request.id == OWN_FLUSH;
        let held = self.held.iter().map(|(job, _)| job);
        let awaits_ours = self.queue.iter().chain(self.sent.values()).chain(held).any(is_ours);
        let may_go = |job: &Job| !job.is_flush() || is_ours(job) || !awaits_ours;
        self.queue.remove(self.queue.iter().position(may_go)?)
    }

    fn question(&self, now: u64) -> Job {
        let operation = OriginOperation::Read { range: ByteRange::new(0, CELL) };
        self.job(OriginRequest { id: QUESTION, operation }, now)
    }

    fn flush_of_ours(&mut self, now: u64) {
        let request = OriginRequest { id: OWN_FLUSH, operation: OriginOperation::Flush };
        let job = self.job(request, now);
        self.queue.push_back(job);
    }

    fn job(&self, request: OriginRequest, now: u64) -> Job {
        Job {
            request,
            waits_since: now,
            sent_at: 0,
            losses: 0,
            lost_at: 0,
            may_be_answered: false,
            losses_before: self.unflushed.losses(),
            covers: 0,
            data: Vec::new(),
        }
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
            unflushed: UnflushedChanges::new(true, None),
            place: self.first_place(node, id),
            run: None,
            succeeds: None,
            said_farewell: false,
            is_unheard: true,
            lost: None,
            held: Vec::new(),
            open: 0,
            awaited: 0,
            in_doubt: 0,
        };
        self.links.insert(id, link);
        self.schedule(0, Event::Link(id));
        id
    }

    /// The proxy says which run of it this is, unless it is without `[succession]`; an appliance is started once, and is nobody's next run.
    fn first_place(&mut self, node: u64, id: u64) -> Succession {
        if self.nodes[&node].role != Role::Proxy || self.is_nameless {
            return Succession { id, number: 0, lacks_flush: false };
        }
        self.proxy_origins += 1;
        Succession::of(1, self.proxy_runs, self.proxy_origins, 0)
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
        let (overdue_held, rest): (Vec<_>, Vec<_>) =
            link.held.drain(..).partition(|(_, since)| now - since > WAITS_NS);
        link.held = rest;
        for job in given_up {
            self.unreachable(node, id, job);
        }
        for (job, _) in overdue_held {
            self.in_doubt(id, &job);
        }
        self.settle_what_is_over(id);
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
                    link.place.number += 1;
                    link.place.lacks_flush = link.lost.as_ref().is_some_and(|lost| lost.lacks_flush);
                    let succession = Some(link.place);
                    self.places.insert(connection, link.place);
                    let config = Config { block_status: false, succession, ..Config::new(export) };
                    link.session = Some(Session::new(config));
                } else {
                    self.kept_out(id, None, false);
                }
            }
        }
        let delay = 1_000_000 + self.delay();
        self.schedule(delay, Event::Link(id));
    }

    /// As the worker does once a second: an origin that knows by itself that what it left open is over ends the doubt of its volume.
    fn settle_what_is_over(&mut self, id: u64) {
        let Some(link) = self.links.get(&id).filter(|link| link.in_doubt == 0) else { return };
        let node = link.node;
        if self.nodes.get(&node).is_none_or(|state| state.source != Source::Link(id)) {
            return;
        }
        if self.machine(node).is_some_and(|machine| machine.is_in_doubt()) && self.random.random_bool(0.1) {
            self.machine(node).expect("looked at above").settle();
            self.course.settled_by_itself += 1;
            self.wake(node);
        }
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

    /// An attempt did not succeed; `kept_by` says who keeps us out, if that is what came of it. If a server was there that does not let us in, no later attempt says more.
    fn kept_out(&mut self, id: u64, kept_by: Option<RunId>, is_refused: bool) {
        let now = self.now;
        let link = self.links.get_mut(&id).expect("the caller looked");
        let Some(lost) = &mut link.lost else { return };
        if let Some(run) = kept_by
            && lost.is_undecided
            && lost.run == kept_by
        {
            lost.is_undecided = false;
            link.unflushed.kept_out_by(run);
            let flushes = link.take_held(Job::is_flush);
            note!(self, "link {id} is kept out, with {} flushes that were not taken", flushes.len());
            self.course.flushes_kept += flushes.len() as u64;
            let link = self.links.get_mut(&id).expect("looked up above");
            flushes.into_iter().for_each(|job| link.queue.push_front(Job { waits_since: now, ..job }));
        } else if is_refused || lost.succeeds.is_none() {
            self.is_gone(id);
        }
        if let Some(lost) = &mut self.links.get_mut(&id).expect("looked up above").lost {
            lost.was_kept_out |= kept_by.is_some();
        }
        if is_refused && kept_by.is_none() && self.links[&id].to != Destination::Server {
            let link = self.links.get_mut(&id).expect("looked up above");
            let changes = link.take_held(|job| !job.is_flush());
            changes.iter().for_each(|job| self.in_doubt(id, job));
        }
    }

    /// What was acknowledged may be lost, and nobody knows what became of the flushes.
    fn is_gone(&mut self, id: u64) {
        let link = self.links.get_mut(&id).expect("the caller looked");
        if !link.lost.as_mut().is_some_and(|lost| std::mem::take(&mut lost.is_undecided)) {
            return;
        }
        link.unflushed.note_loss();
        let flushes = link.take_held(Job::is_flush);
        flushes.iter().for_each(|job| self.in_doubt(id, job));
    }

    /// There is a connection again, on which the server succeeds earlier ones if it says so: what is held goes out on it first.
    fn let_in(&mut self, id: u64) {
        let now = self.now;
        let link = self.links.get_mut(&id).expect("the caller looked");
        let succeeds = link.succeeds;
        link.unflushed.meet(succeeds);
        let promises = succeeds.zip(link.lost.as_ref().and_then(|lost| lost.succeeds));
        let is_over = promises.is_some_and(|(now, then)| now.comes_after(&then));
        if promises.is_none_or(|(now, then)| now.run != then.run) {
            self.is_gone(id);
        }
        let link = self.links.get_mut(&id).expect("looked up above");
        if link.lost.as_ref().is_some_and(|lost| lost.was_kept_out) {
            let changes = link.take_held(|job| !job.is_flush());
            changes.iter().for_each(|job| self.in_doubt(id, job));
        }
        let link = self.links.get_mut(&id).expect("looked up above");
        if link.lost.take().is_some() {
            let open = std::mem::take(&mut link.open);
            link.awaited = if is_over { link.awaited + open } else { 0 };
            if is_over {
                let mut jobs = link.take_held(|_| true);
                if link.awaited > 0 && jobs.is_empty() {
                    jobs.push(link.question(now));
                }
                let changes = jobs.iter().filter(|job| job.request.operation.changes_content()).count();
                jobs.iter_mut().for_each(|job| job.may_be_answered = false);
                jobs.into_iter().rev().for_each(|job| link.queue.push_front(job));
                self.course.sent_again += changes as u64;
            } else {
                // A stranger's server that fences: nothing changes any more, whatever the blocks hold.
                let is_fenced = link.to == Destination::Server;
                link.awaited += if is_fenced { open } else { 0 };
                let question = link.question(now);
                if link.awaited > 0 {
                    link.queue.push_front(question);
                }
                let changes = link.take_held(|job| !job.is_flush());
                let node = link.node;
                for job in &changes {
                    if is_fenced { self.fail(node, id, job, 5) } else { self.in_doubt(id, job) }
                }
            }
        }
        let link = self.links.get_mut(&id).expect("looked up above");
        if link.unflushed.let_in(succeeds, link.run) {
            link.flush_of_ours(now);
        }
    }

    /// It will not be known what became of a request that was in flight; a change is in doubt from then on.
    fn in_doubt(&mut self, id: u64, job: &Job) {
        let link = self.links.get_mut(&id).expect("the caller looked");
        let node = link.node;
        if !job.is_flush() {
            link.open += 1;
            link.in_doubt += 1;
        } else if job.may_be_answered {
            return self.fail(node, id, job, 5);
        }
        self.outcome_unknown(id, job);
    }

    fn outcome_unknown(&mut self, id: u64, job: &Job) {
        let node = self.links[&id].node;
        let asked = Some(Box::new(job.request.operation.clone()));
        let error = OriginError::OutcomeUnknown { context: String::new(), asked };
        self.complete(node, id, OriginCompletion { id: job.request.id, result: Err(error) });
    }

    /// A daemon asks its origin.
    pub(super) fn submit_to_link(&mut self, id: u64, request: OriginRequest) {
        let now = self.now;
        let link = self.links.get_mut(&id).expect("a daemon has its link");
        let node = link.node;
        let job = link.job(request, now);
        if link.is_abandoned {
            return self.unreachable(node, id, job);
        }
        if job.is_flush() && link.unflushed.tell_of_loss() {
            note!(self, "link {id} of {:?} tells of a loss", self.nodes[&node].role);
            return self.fail(node, id, &job, 5);
        }
        link.queue.push_back(job);
        self.pump_link(id);
    }

    /// Sends what waits.
    fn pump_link(&mut self, id: u64) {
        let now = self.now;
        let mut too_late = Vec::new();
        let Some(link) = self.links.get_mut(&id).filter(|link| link.is_ready) else { return };
        let node = link.node;
        while let Some(mut job) = link.next() {
            if job.is_flush() {
                // There is one connection, so that no other run can be there.
                match link.unflushed.send_flush(link.succeeds.map(|own| own.run), job.losses_before) {
                    Ok(covers) => job.covers = covers,
                    Err(_) => {
                        too_late.push(job);
                        continue;
                    }
                }
            }
            let range = job.request.operation.range();
            let (offset, length) = (range.offset, range.length as u32);
            let operation = match &job.request.operation {
                OriginOperation::Read { .. } => Operation::Read { offset, length, dont_fragment: false },
                OriginOperation::Write { fua, .. } => Operation::Write { offset, length, fua: *fua },
                OriginOperation::Flush => Operation::Flush,
                other => panic!("nobody here asks for {other:?}"),
            };
            let mut output = Vec::new();
            let session = link.session.as_mut().expect("it is ready");
            session.submit(link.next_cookie, operation, &mut output).expect("the export offers it");
            if let OriginOperation::Write { data, .. } = &job.request.operation {
                output.extend_from_slice(data);
                let connection = link.connection.expect("it is ready");
                let of =
                    (self.connections[&connection].node, version_in(&data[..CELL as usize], offset / CELL));
                let came_by = self.carried.entry(of).or_default();
                if !came_by.contains(&connection) {
                    came_by.push(connection);
                }
            }
            job.sent_at = now;
            if matches!(operation, Operation::Read { .. }) {
                job.data = vec![0; length as usize];
            }
            link.outbox.extend(output);
            link.sent.insert(link.next_cookie, job);
            link.next_cookie += 1;
        }
        self.empty_outbox(Peer::Link(id));
        too_late.iter().for_each(|job| self.fail(node, id, job, 5));
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
        let Link { session, input, sent, is_ready, said_farewell, .. } = link;
        let Some(session) = session else { return };
        let mut consumed = 0;
        let (mut is_over, mut kept_by, mut opened) = (false, None, None);
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
                    opened = Some((RunId::found_in(&export.description), export.succeeds));
                }
                ClientEvent::Farewell => *said_farewell = true,
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
        for (job, result) in &ended {
            let is_change = job.request.operation.changes_content();
            if is_change && !job.wants_fua() && result.is_ok() {
                link.unflushed.acknowledge(1, link.succeeds.map(|own| own.run));
            }
        }
        if link.said_farewell
            && let Some(succeeds) = link.succeeds
        {
            link.unflushed.ended_in_order(succeeds.run);
        }
        if (link.said_farewell || !ended.is_empty()) && std::mem::take(&mut link.is_unheard) {
            link.in_doubt -= std::mem::take(&mut link.awaited);
        }
        self.empty_outbox(Peer::Link(id));
        for (job, result) in ended {
            if job.is_flush() {
                let is_ours = job.request.id == OWN_FLUSH;
                note!(
                    self,
                    "link {id} of {:?} hears of its flush, {is_ours} {}",
                    self.nodes[&node].role,
                    result.is_ok()
                );
            }
            let link = self.links.get_mut(&id).expect("looked up above");
            if let Err(error) = result {
                let errno = error.code.to_linux().0;
                if job.request.id == OWN_FLUSH || (job.wants_fua() && errno == 5) {
                    link.unflushed.sync_failed();
                }
                self.fail(node, id, &job, errno);
                continue;
            }
            if job.is_flush() {
                link.unflushed.flushed(job.covers);
            }
            self.complete(node, id, OriginCompletion { id: job.request.id, result: Ok(job.data) });
        }
        if let (true, Some(connection)) = (is_over, connection) {
            self.kept_out(id, kept_by, true);
            self.cut(connection);
        }
        if let Some((run, succeeds)) = opened {
            let link = self.links.get_mut(&id).expect("looked up above");
            (link.run, link.succeeds, link.said_farewell, link.is_unheard) = (run, succeeds, false, true);
            self.let_in(id);
        }
        self.pump_link(id);
    }

    /// The connection is gone.
    pub(super) fn link_lost(&mut self, id: u64) {
        let now = self.now;
        let Some(link) = self.links.get_mut(&id) else { return };
        let is_cut = link.connection.is_none_or(|connection| self.connections[&connection].is_cut);
        let was_ready = link.is_ready;
        let ended_in_order = was_ready && !is_cut && link.input.is_empty() && !link.is_abandoned;
        (link.connection, link.session, link.is_ready) = (None, None, false);
        link.input.clear();
        link.outbox.clear();
        link.open += std::mem::take(&mut link.awaited);
        if !was_ready {
            return self.kept_out(id, None, false);
        }
        let said_farewell = std::mem::take(&mut link.said_farewell);
        let (succeeds, run) = (link.succeeds.take(), link.run.filter(|_| ended_in_order));
        let is_undecided = !said_farewell && !link.is_abandoned && (run.is_some() || succeeds.is_some());
        let sent: Vec<Job> = std::mem::take(&mut link.sent).into_values().collect();
        let may_tell = |job: &Job| job.is_flush() || job.wants_fua();
        let lacks_flush = !said_farewell && sent.iter().any(may_tell);
        link.lost = Some(Lost { run, succeeds, is_undecided, lacks_flush, was_kept_out: false });
        if said_farewell && !link.is_abandoned {
            note!(self, "link {id} heard a farewell, with {} requests that were not taken", sent.len());
            self.course.not_taken += sent.len() as u64;
            let link = self.links.get_mut(&id).expect("looked up above");
            sent.into_iter().rev().for_each(|job| link.queue.push_front(Job { waits_since: now, ..job }));
            return;
        }
        if !is_undecided {
            link.unflushed.note_loss();
        }
        let (node, to, is_over) = (link.node, link.to, link.is_abandoned);
        let mut again = Vec::new();
        for mut job in sent {
            let may_go_again = job.may_go_again(succeeds.is_some(), now) && !is_over;
            if job.request.operation.only_looks() {
                job.waits_since = now;
                if may_go_again {
                    again.push(job);
                } else {
                    self.unreachable(node, id, job);
                }
                continue;
            }
            let is_held =
                if job.is_flush() { is_undecided } else { succeeds.is_some() || to == Destination::Server };
            if is_held && may_go_again {
                job.may_be_answered = job.is_flush() && run.is_none();
                self.links.get_mut(&id).expect("looked up above").held.push((job, now));
            } else {
                job.may_be_answered = false;
                self.in_doubt(id, &job);
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
        let held = std::mem::take(&mut link.held);
        for job in std::mem::take(&mut link.queue) {
            self.unreachable(node, id, job);
        }
        held.iter().for_each(|(job, _)| self.in_doubt(id, job));
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

    /// Its daemon ends in order: the server hears so, behind all that was asked.
    pub(super) fn leave_by_link(&mut self, id: u64) {
        let Some(mut link) = self.links.remove(&id) else { return };
        let (Some(id), Some(session)) = (link.connection, &mut link.session) else { return };
        let Some(connection) = self.connections.get_mut(&id).filter(|connection| !connection.is_cut) else {
            return;
        };
        let mut farewell = Vec::new();
        session.disconnect(&mut farewell);
        connection.to_server.send(&farewell);
        connection.to_server.is_ended = true;
        self.schedule_arrival(id, true);
    }
}
