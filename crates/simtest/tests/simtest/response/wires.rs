//! Who reaches whom, and connections between them: bytes arrive late and in pieces; what is cut arrives in part, at a server perhaps much later.

use super::node::Source;
use super::visit::Visited;
use super::world::{Event, WHILE_NS, World};
use crate::network::{Pipe, ServerEnd};
use forebay_control::response::ApplianceId;
use rand::Rng;
use std::collections::VecDeque;

/// Something that can be cut off from something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Application,
    Storage,
    /// The server of others behind the storage side.
    Server,
    Host(u32),
    Controller,
}

/// What somebody connects to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// The storage side, by the volume's name, or naming an epoch.
    Storage(Option<u64>),
    Server,
    Appliance(ApplianceId),
    Proxy,
    /// Whoever has the address.
    Address,
}

/// Who asks on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Link(u64),
    Application(usize),
    /// Who has a path flush before it is left.
    Visitor(u64),
}

pub(super) struct Connection {
    pub(super) peer: Peer,
    pub(super) node: u64,
    pub(super) to_server: Pipe,
    pub(super) to_client: Pipe,
    pub(super) server: ServerEnd,
    /// The handshake is over, this export was chosen, and the worker has not taken the connection yet.
    pub(super) chosen: Option<String>,
    pub(super) is_cut: bool,
    /// What was under way to the server lies in the network until then.
    pub(super) late_until: u64,
}

impl Connection {
    /// Nothing more of what its client sent arrives, but its end.
    pub(super) fn lose_what_is_under_way(&mut self) {
        self.late_until = 0;
        self.to_server =
            Pipe { is_scheduled: self.to_server.is_scheduled, is_ended: true, ..Pipe::default() };
    }
}

/// The asking end of a connection.
pub(super) struct Parts<'a> {
    pub(super) connection: u64,
    pub(super) outbox: &'a mut VecDeque<u8>,
    pub(super) input: &'a mut Vec<u8>,
}

impl World {
    pub(super) fn reaches(&self, from: Place, to: Place) -> bool {
        let lives = |place: Place| !matches!(place, Place::Host(host) if self.hosts[host as usize].is_dead);
        let is_cut = |(a, b, until): &(Place, Place, u64)| {
            self.now < *until && ((*a, *b) == (from, to) || (*b, *a) == (from, to))
        };
        lives(from) && lives(to) && !self.cuts.iter().any(is_cut)
    }

    /// Opens a connection, if somebody listens there; its number, and the export's name.
    pub(super) fn connect(&mut self, peer: Peer, from: Place, to: Destination) -> Option<(u64, String)> {
        let to = if to == Destination::Address { self.behind_address()? } else { to };
        let (node, export) = match to {
            Destination::Storage(epoch) => {
                (self.storage?, epoch.map_or_else(|| "db".to_owned(), |epoch| format!("db@{epoch}")))
            }
            Destination::Server => (self.server?, "db".to_owned()),
            Destination::Appliance(appliance) => (*self.appliances.get(&appliance)?, "db".to_owned()),
            Destination::Proxy => (self.proxy?, "db".to_owned()),
            Destination::Address => unreachable!("somebody has it"),
        };
        let state = &self.nodes[&node];
        if !self.reaches(from, state.place) || state.volume.is_none() || state.leaves {
            return None;
        }
        let hangs = state.hangs;
        let mut server = self.server_hello();
        let mut to_client = Pipe::default();
        if let (ServerEnd::Handshake { output, .. }, false) = (&mut server, hangs) {
            to_client.send(&std::mem::take(output));
        }
        let id = self.number();
        let connection = Connection {
            peer,
            node,
            to_server: Pipe::default(),
            to_client,
            server,
            chosen: None,
            is_cut: false,
            late_until: 0,
        };
        self.connections.insert(id, connection);
        self.schedule_arrival(id, false);
        Some((id, export))
    }

    pub(super) fn schedule_arrival(&mut self, id: u64, to_server: bool) {
        let delay = self.delay() / 4;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let pipe = if to_server { &mut connection.to_server } else { &mut connection.to_client };
        if !pipe.is_scheduled && (pipe.is_ended || !pipe.is_empty()) {
            pipe.is_scheduled = true;
            self.schedule(delay, Event::Arrival { connection: id, to_server });
        }
    }

    pub(super) fn arrive_at_server_in_time(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if self.now < connection.late_until {
            let delay = connection.late_until - self.now;
            return self.schedule(delay, Event::Arrival { connection: id, to_server: true });
        }
        self.arrive_at_server(id);
    }

    /// A connection breaks: part of what is under way still arrives, at the server perhaps much later.
    pub(super) fn cut(&mut self, id: u64) {
        let late = if self.percent(30) { self.random.random_range(0..4 * WHILE_NS) } else { 0 };
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.is_cut {
            return;
        }
        connection.to_server.cut(&mut self.random);
        connection.to_client.cut(&mut self.random);
        connection.is_cut = true;
        let node = connection.node;
        let is_by_address = self.address.is_some() && matches!(connection.peer, Peer::Application(_));
        if is_by_address || self.is_a_strangers(node) {
            self.connections.get_mut(&id).expect("looked up above").lose_what_is_under_way();
        }
        if is_by_address {
            // Who names nothing connects again to the same server, and has to hope that nothing of before comes late, as at any.
        } else if self.is_a_strangers(node) {
            self.end_at_storage();
        } else {
            let connection = self.connections.get_mut(&id).expect("looked up above");
            connection.late_until = connection.late_until.max(self.now + late);
        }
        self.schedule_arrival(id, true);
        self.schedule_arrival(id, false);
    }

    /// A client's connection ends since its address has moved: what it had sent may be taken long after.
    pub(super) fn sever(&mut self, id: u64) {
        let late = if self.percent(50) { self.random.random_range(0..4 * WHILE_NS) } else { 0 };
        let Some(connection) = self.connections.get_mut(&id).filter(|connection| !connection.is_cut) else {
            return;
        };
        connection.to_server.cut(&mut self.random);
        connection.to_client.cut(&mut self.random);
        connection.is_cut = true;
        connection.late_until = connection.late_until.max(self.now + late);
        self.schedule_arrival(id, true);
        self.schedule_arrival(id, false);
    }

    /// Hands the client's bytes to its connection.
    pub(super) fn empty_outbox(&mut self, peer: Peer) {
        let Some(parts) = self.parts(peer) else { return };
        let id = parts.connection;
        let bytes: Vec<u8> = parts.outbox.drain(..).collect();
        let Some(connection) = self.connections.get_mut(&id).filter(|connection| !connection.is_cut) else {
            return;
        };
        connection.to_server.send(&bytes);
        self.schedule_arrival(id, true);
    }

    pub(super) fn arrive_at_client(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.to_client.is_scheduled = false;
        let peer = connection.peer;
        if let Peer::Link(link) = peer
            && let Some(node) = self.links.get(&link).and_then(|link| self.nodes.get(&link.node))
            && node.hangs
        {
            return; // It hears it when it goes on.
        }
        let is_used = self.parts(peer).is_some_and(|parts| parts.connection == id);
        let connection = self.connections.get_mut(&id).expect("looked up above");
        if !is_used {
            connection.to_client = Pipe { is_ended: true, ..Pipe::default() };
            return self.forget_if_over(id);
        }
        if connection.to_client.is_empty() {
            if connection.to_client.is_ended {
                connection.to_server.is_ended = true;
                match peer {
                    Peer::Link(link) => self.link_lost(link),
                    Peer::Application(index) => self.application_lost(index),
                    Peer::Visitor(visit) => self.end_visit(visit, Visited::Nobody),
                }
                self.schedule_arrival(id, true);
                self.forget_if_over(id);
            }
            return;
        }
        let bytes = connection.to_client.take(usize::MAX, &mut self.random);
        self.parts(peer).expect("looked up above").input.extend_from_slice(&bytes);
        self.room_for_server(id);
        match peer {
            Peer::Link(link) => {
                self.link_hears(link);
                self.link_opened(link);
            }
            Peer::Application(index) => self.application_hears(index),
            Peer::Visitor(visit) => self.visitor_hears(visit),
        }
        self.schedule_arrival(id, false);
    }

    /// A daemon whose origin is reached begins to serve, and whoever waits for a link goes on.
    fn link_opened(&mut self, id: u64) {
        let Some(link) = self.links.get(&id).filter(|link| link.is_ready) else { return };
        let node = link.node;
        let state = &self.nodes[&node];
        if state.volume.is_none() && state.source == Source::Link(id) {
            self.serve_volume(node);
        }
        self.check_orders(node);
    }

    pub(super) fn forget_if_over(&mut self, id: u64) {
        let Some(connection) = self.connections.get(&id) else { return };
        let (peer, is_over) = (connection.peer, matches!(connection.server, ServerEnd::Closed));
        if is_over && self.parts(peer).is_none_or(|parts| parts.connection != id) {
            self.connections.remove(&id);
        }
    }
}
