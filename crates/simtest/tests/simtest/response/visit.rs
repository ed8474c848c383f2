//! Whoever moves an address has the old path flush before clients leave it, and again once they hear nothing of it any more: a client that names no run, as in
//! `actuate::export` and `actuate::route::address::flushing`. Whoever changes them there changes it here.

use super::wires::{Destination, Parts, Peer, Place};
use super::world::{Event, World, note};
use forebay_nbd::Succession;
use forebay_nbd::client::{Config, Event as ClientEvent, Operation, Session};
use std::collections::VecDeque;

/// A hundredth of how long is waited for either flush.
const FIRST_WITHIN_NS: u64 = 10_000_000;
const SECOND_WITHIN_NS: u64 = 2_500_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    First,
    Second,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visited {
    Flushed,
    NotFlushed,
    /// It shook hands, and did not say in time.
    Unanswered,
    /// Nobody is there.
    Nobody,
}

pub(super) struct Visit {
    order: u64,
    connection: u64,
    session: Session,
    input: Vec<u8>,
    outbox: VecDeque<u8>,
    has_asked: bool,
    began: u64,
}

impl World {
    /// Somebody is asked to flush; the visit, if somebody listens there.
    pub(super) fn visit(&mut self, order: u64, to: Destination, which: Which) -> Option<u64> {
        let id = self.number();
        let (connection, export) = self.connect(Peer::Visitor(id), Place::Controller, to)?;
        let succession = Some(Succession { id: self.number() << 32, number: 1, lacks_flush: false });
        let session = Session::new(Config { block_status: false, succession, ..Config::new(export) });
        let (input, outbox, began) = (Vec::new(), VecDeque::new(), self.tick());
        let has_asked = false;
        self.visits.insert(id, Visit { order, connection, session, input, outbox, has_asked, began });
        let within = if which == Which::First { FIRST_WITHIN_NS } else { SECOND_WITHIN_NS };
        self.schedule(within, Event::VisitOver(id));
        Some(id)
    }

    pub(super) fn visitor_parts(&mut self, id: u64) -> Option<Parts<'_>> {
        let visit = self.visits.get_mut(&id)?;
        Some(Parts { connection: visit.connection, outbox: &mut visit.outbox, input: &mut visit.input })
    }

    pub(super) fn visitor_hears(&mut self, id: u64) {
        let (mut consumed, mut output, mut end) = (0, Vec::new(), None);
        loop {
            let visit = self.visits.get_mut(&id).expect("its connection has it");
            let Ok(parsed) = visit.session.receive(&visit.input[consumed..], &mut output) else {
                // It is not let in.
                end = Some(Visited::Nobody);
                break;
            };
            consumed += parsed.consumed;
            match parsed.event {
                ClientEvent::NeedMore => break,
                ClientEvent::Ready(_) => {
                    visit.session.submit(0, Operation::Flush, &mut output).expect("the export offers it");
                    visit.has_asked = true;
                    // With it, so that an error is passed on whatever becomes of the visitor.
                    visit.session.disconnect(&mut output);
                }
                ClientEvent::Done { result: Ok(_), .. } => end = Some(Visited::Flushed),
                ClientEvent::Done { result: Err(_), .. } => end = Some(Visited::NotFlushed),
                _ => {}
            }
        }
        let visit = self.visits.get_mut(&id).expect("its connection has it");
        visit.input.drain(..consumed);
        visit.outbox.extend(output);
        self.empty_outbox(Peer::Visitor(id));
        if let Some(end) = end {
            self.end_visit(id, end);
        }
    }

    /// It says what it has heard.
    pub(super) fn end_visit(&mut self, id: u64, visited: Visited) {
        let Some(visit) = self.visits.remove(&id) else { return };
        note!(self, "a visit ends: {visited:?}");
        let node = self.connections.get(&visit.connection).map(|connection| connection.node);
        if visited == Visited::Flushed
            && self.loss_known_by.is_some()
            && self.loss_known_by == node
            && self.untold_loss.is_some_and(|at| at < visit.began)
        {
            note!(self, "a visitor is told that all is safe, and some of it is lost");
            let now = self.tick();
            self.false_word.get_or_insert(now);
        }
        self.leave_visit(visit.connection);
        self.visited(visit.order, id, visited);
    }

    /// Its socket is closed, behind all that was sent.
    fn leave_visit(&mut self, connection: u64) {
        if let Some(state) = self.connections.get_mut(&connection).filter(|connection| !connection.is_cut) {
            state.to_server.is_ended = true;
            self.schedule_arrival(connection, true);
        }
    }

    /// It has taken too long.
    pub(super) fn give_up_visit(&mut self, id: u64) {
        let Some(visit) = self.visits.get(&id) else { return };
        let visited = if visit.has_asked { Visited::Unanswered } else { Visited::Nobody };
        self.end_visit(id, visited);
    }

    /// Who made them is gone.
    pub(super) fn visitors_died(&mut self) {
        for visit in std::mem::take(&mut self.visits).into_values() {
            self.leave_visit(visit.connection);
        }
    }
}
