//! A daemon: the storage side's `forebay watch`, an appliance, or the permanent proxy; or a server of others, which says nothing of itself. A real service and volume machine each, driven as the worker does it.

use super::link::{OWN_FLUSH, QUESTION};
use super::wires::{Connection, Destination, Parts, Peer, Place};
use super::world::{Event, WHILE_NS, World, note};
use crate::network::{Pipe, ServerEnd};
use forebay_appliance::service::{Entrance, Lease, Service, ServiceLimits, SlabKey};
use forebay_appliance::volume::{VolumeMachine, VolumeSettings};
use forebay_control::response::ApplianceId;
use forebay_linear::{History, version_in};
use forebay_nbd::server::{Config, Event as ServerEvent, Exports, Session};
use forebay_nbd::{BlockSizes, ExportInfo, RunId, StorageId, Succeeds, Succession};
use forebay_origin::{OriginCompletion, OriginOperation, OriginRequest, OriginRequestId};
use forebay_units::{BlockSize, Bytes, Nanos, Ratio};
use rand::Rng;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

pub(super) const BLOCK: u64 = 512;
pub(super) const CELL: u64 = 128;
pub(super) const CELLS: u64 = 61;
const ROUNDS_MAX: usize = 4;
/// A daemon that is told to end ends by then.
const ENDS_WITHIN_NS: u64 = 300_000_000;

/// What a daemon is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Storage,
    /// A stranger's, behind the storage side.
    Server,
    Appliance(ApplianceId),
    Proxy,
}

/// Where a daemon's data comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Disk,
    Link(u64),
}

/// A running daemon.
pub(super) struct Node {
    pub(super) role: Role,
    pub(super) place: Place,
    pub(super) service: Service,
    /// Known once the origin was reached.
    pub(super) volume: Option<SlabKey>,
    pub(super) source: Source,
    /// Who kept what is acknowledged there when it was last looked at.
    keeper: Option<RunId>,
    /// It runs, holds its connections, and does nothing.
    pub(super) hangs: bool,
    /// It ends in order.
    pub(super) leaves: bool,
    keys: BTreeMap<SlabKey, u64>,
    resumable: Vec<SlabKey>,
    looks: Vec<SlabKey>,
    pub(super) inbox: Vec<(u64, OriginCompletion)>,
    next_turn: Option<u64>,
    /// Its connections that were taken, and when.
    taken: BTreeMap<u64, u64>,
    /// Changes that it has begun at its origin and that are not over: of which version, and since when.
    under_way: BTreeMap<OriginRequestId, (u64, u64)>,
    /// The newest places of which it has begun something.
    begun: Vec<Succession>,
}

/// What a handshake finds.
struct Exported {
    is_served: bool,
    lease: Option<Lease>,
    run: RunId,
    succeeds: Option<Succeeds>,
}

/// The entrance that an export's name means; `None` for another volume. A name with an epoch is one of a leased volume only.
fn entrance_of(name: &str, is_leased: bool) -> Option<Entrance> {
    match name.strip_prefix("db")? {
        "" => Some(Entrance::Original),
        rest => rest.strip_prefix('@').filter(|_| is_leased)?.parse().ok().map(Entrance::Epoch),
    }
}

impl Exports for Exported {
    fn find(&self, name: &str) -> Option<ExportInfo> {
        let entrance = entrance_of(name, self.lease.is_some())?;
        let admitted = self.lease.is_none_or(|lease| lease.admits(entrance));
        (self.is_served && admitted).then(|| ExportInfo {
            block_sizes: BlockSizes { min: CELL as u32, preferred: BLOCK as u32, max: 1 << 20 },
            multi_conn: true,
            description: self.lease.map(|_| self.run.said_in("")).unwrap_or_default(),
            succeeds: self.succeeds,
            ..ExportInfo::new(name, CELLS * CELL)
        })
    }

    fn list(&self, _: &mut dyn FnMut(&str, &str)) {}

    fn refusal(&self, _: &str) -> Option<String> {
        self.lease.map(|_| self.run.said_in("the lease is held by others"))
    }
}

impl World {
    /// Starts a daemon, which serves once it has reached its origin.
    pub(super) fn start_node(&mut self, role: Role, place: Place, origin: Option<Destination>) -> u64 {
        let id = self.number();
        let node = Node {
            role,
            place,
            service: Service::new(ServiceLimits::default()),
            volume: None,
            source: Source::Disk,
            keeper: Some(RunId(id)),
            hangs: false,
            leaves: false,
            keys: BTreeMap::new(),
            resumable: Vec::new(),
            looks: Vec::new(),
            inbox: Vec::new(),
            next_turn: None,
            taken: BTreeMap::new(),
            under_way: BTreeMap::new(),
            begun: Vec::new(),
        };
        self.nodes.insert(id, node);
        if role == Role::Proxy {
            self.proxy_runs += 1;
            self.proxy_origins = 0;
        }
        match origin {
            Some(to) => {
                let link = self.open_link(id, to);
                self.nodes.get_mut(&id).expect("just made").source = Source::Link(link);
            }
            None => self.serve_volume(id),
        }
        id
    }

    /// The origin is reached.
    pub(super) fn serve_volume(&mut self, id: u64) {
        let seed = self.random.random();
        let lease = self.leased.then_some(self.lease);
        let node = self.nodes.get_mut(&id).expect("the caller looked");
        let settings = VolumeSettings {
            origin: self.disk.traits,
            read_only: false,
            block_size: BlockSize::new(Bytes(BLOCK)).expect("a power of two"),
            quota: Bytes::ZERO,
            single_touch_share: Ratio::clamped(0.3),
            seed,
            locality: None,
            limits: Default::default(),
        };
        let machine = VolumeMachine::new(settings, Nanos(self.now)).expect("settings that go together");
        let volume = node.service.add_volume(machine);
        if let (Role::Storage, Some(lease)) = (node.role, lease) {
            node.service.fence(volume, lease);
        }
        node.volume = Some(volume);
    }

    pub(super) fn machine(&mut self, node: u64) -> Option<&mut VolumeMachine> {
        let node = self.nodes.get_mut(&node)?;
        node.service.volume(node.volume?)
    }

    /// It dies: its ends of all connections are gone, and what it had asked for goes on where that was.
    pub(super) fn kill_node(&mut self, id: u64) {
        let Some(node) = self.nodes.remove(&id) else { return };
        note!(self, "{:?} at {:?} is gone", node.role, node.place);
        // What was said to clients that it left in order, and the end, arrive although it is gone.
        let is_left = |c: &Connection| node.leaves && matches!(c.server, ServerEnd::Closed);
        let is_its = |c: &Connection| c.node == id && !is_left(c);
        let ids: Vec<u64> = self.connections.iter().filter(|(_, c)| is_its(c)).map(|(id, _)| *id).collect();
        for connection in ids {
            self.cut(connection);
            let connection = self.connections.get_mut(&connection).expect("listed above");
            connection.server = ServerEnd::Closed;
            connection.to_server = Pipe { is_ended: true, ..Pipe::default() };
        }
        let links: Vec<u64> =
            self.links.iter().filter(|(_, link)| link.node == id).map(|(id, _)| *id).collect();
        for link in links {
            self.close_link(link);
        }
        if node.role != Role::Proxy {
            // Whom it told of the error of a flush nobody else knows.
            (self.failed_flush, self.kept_quiet) = (None, None);
        }
        match node.role {
            Role::Appliance(appliance) => {
                self.appliances.remove(&appliance);
            }
            Role::Storage => {
                self.storage = None;
                if self.address.is_some() {
                    self.untold_loss = None;
                }
                if !self.is_far {
                    self.leave_disk();
                }
            }
            Role::Server => {
                self.server = None;
                self.leave_disk();
            }
            Role::Proxy => self.proxy_died(),
        }
    }

    pub(super) fn wake(&mut self, id: u64) {
        let delay = if self.percent(50) { 0 } else { self.random.random_range(0..20_000) };
        self.wake_at(id, self.now + delay);
    }

    /// It goes on where it stood still: what has come meanwhile it hears now.
    pub(super) fn resume(&mut self, id: u64) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        (node.hangs, node.next_turn) = (false, None);
        let (role, place) = (node.role, node.place);
        note!(self, "{role:?} at {place:?} goes on");
        for connection in self.connections.values_mut() {
            if connection.node == id
                && let ServerEnd::Handshake { output, .. } = &mut connection.server
            {
                connection.to_client.send(&std::mem::take(output));
            }
        }
        let heard: Vec<u64> = self.connections.keys().copied().collect();
        for connection in heard {
            self.schedule(0, Event::Enter(connection));
            self.schedule_arrival(connection, true);
            self.schedule_arrival(connection, false);
        }
        self.wake(id);
    }

    fn wake_at(&mut self, id: u64, at: u64) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.next_turn.is_none_or(|next| at < next) {
            node.next_turn = Some(at);
            self.schedule(at.saturating_sub(now), Event::Turn(id));
        }
    }

    /// A connection's bytes, or their end, arrive at a daemon.
    pub(super) fn arrive_at_server(&mut self, id: u64) {
        let now = Nanos(self.now);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.to_server.is_scheduled = false;
        let node_id = connection.node;
        let Some(node) = self.nodes.get_mut(&node_id) else { return self.forget_if_over(id) };
        if node.hangs || connection.chosen.is_some() {
            return;
        }
        let key = match connection.server {
            ServerEnd::Closed => return self.forget_if_over(id),
            ServerEnd::Open { key, receives: false } => {
                if connection.is_cut {
                    node.service.close(key);
                    self.wake(node_id);
                }
                return;
            }
            ServerEnd::Open { key, .. } => Some(key),
            ServerEnd::Handshake { .. } => None,
        };
        if connection.to_server.is_empty() {
            if connection.to_server.is_ended {
                match key {
                    Some(key) => node.service.close(key),
                    None => self.close_server_end(id),
                }
                self.wake(node_id);
            }
            return;
        }
        let bytes = connection.to_server.take(usize::MAX, &mut self.random);
        let peer = connection.peer;
        match key {
            Some(key) => {
                node.service.received(now, key, &bytes);
                node.looks.push(key);
            }
            None => self.shake_hands(id, &bytes),
        }
        self.empty_outbox(peer);
        self.schedule_arrival(id, true);
        self.wake(node_id);
    }

    /// Who keeps what a daemon acknowledges.
    fn keeper_behind(&self, node: u64) -> Option<RunId> {
        match self.nodes[&node].source {
            Source::Disk => Some(RunId(node)),
            Source::Link(link) => self.links[&link].unflushed.keeper(RunId(node)),
        }
    }

    /// As the worker does before it takes in answers, and once a second.
    fn look_at_keeper(&mut self, id: u64) {
        let keeper = self.keeper_behind(id);
        let node = self.nodes.get_mut(&id).expect("looked up above");
        if let Some(volume) = node.volume
            && std::mem::replace(&mut node.keeper, keeper) != keeper
        {
            node.service.is_kept_by(volume, &|_| keeper);
        }
    }

    fn shake_hands(&mut self, id: u64, bytes: &[u8]) {
        let node_id = self.connections[&id].node;
        let keeper = self.keeper_behind(node_id);
        let connection = self.connections.get_mut(&id).expect("the caller looked");
        let node = self.nodes.get_mut(&node_id).expect("the caller looked");
        let is_storage = node.role == Role::Storage;
        let is_a_strangers = node.role == Role::Server || (is_storage && !self.leased);
        let run = RunId(node_id);
        // Of a disk that only its daemon has open, whichever daemon that is since the machine started.
        let storage = (is_storage && !self.is_far).then_some(StorageId(self.boots));
        let succeeds = Succeeds { run, storage, keeper };
        let doubt = node.volume.and_then(|volume| node.service.doubt(volume));
        let is_in_doubt = doubt.is_none_or(|doubt| doubt.load(Ordering::Acquire));
        let exports = Exported {
            is_served: node.volume.is_some(),
            lease: (is_storage && self.leased).then_some(self.lease),
            run,
            succeeds: (!is_in_doubt && !is_a_strangers).then_some(succeeds),
        };
        let ServerEnd::Handshake { session, input, output } = &mut connection.server else { return };
        input.extend_from_slice(bytes);
        let (mut consumed, mut chosen, mut is_over) = (0, None, false);
        while chosen.is_none() && !is_over {
            match session.receive(&input[consumed..], &exports, output) {
                Ok(parsed) => {
                    consumed += parsed.consumed;
                    match parsed.event {
                        ServerEvent::NeedMore => break,
                        ServerEvent::ExportChosen(export) => chosen = Some(export.name),
                        ServerEvent::Disconnect(_) => is_over = true,
                        _ => {}
                    }
                }
                Err(_) => is_over = true,
            }
        }
        input.drain(..consumed);
        let sent: Vec<u8> = std::mem::take(output);
        connection.to_client.send(&sent);
        self.schedule_arrival(id, false);
        if is_over {
            return self.close_server_end(id);
        }
        if chosen.is_some() {
            self.connections.get_mut(&id).expect("the caller looked").chosen = chosen;
            let delay = (self.delay() / 4).max(self.held_up_for(id));
            if !self.is_kept_at_the_door(id) {
                self.schedule(delay, Event::Enter(id));
            }
        }
    }

    /// The worker takes a connection whose export was chosen, however long ago.
    pub(super) fn enter(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let node_id = connection.node;
        let Some(node) = self.nodes.get(&node_id).filter(|node| !node.hangs) else { return };
        let is_leased = node.role == Role::Storage && self.leased;
        let Some(name) = connection.chosen.take() else { return };
        if self.is_forgotten(id) {
            return self.close_server_end(id);
        }
        let connection = self.connections.get_mut(&id).expect("looked up above");
        let ServerEnd::Handshake { session, input, .. } =
            std::mem::replace(&mut connection.server, ServerEnd::Closed)
        else {
            return;
        };
        let entrance = entrance_of(&name, is_leased).expect("it was found by this name");
        let keeper = self.keeper_behind(node_id);
        let now = self.tick();
        let node = self.nodes.get_mut(&node_id).expect("looked up above");
        let volume = node.volume.expect("it was found");
        let told = session.told();
        let key = node.service.open(Nanos(self.now), *session, volume, entrance, input, Vec::new());
        node.taken.insert(id, now);
        if node.service.wishes(key).is_some_and(|wishes| !(wishes.close || wishes.receive || wishes.resume)) {
            self.course.overtaking += 1;
        }
        if told.is_some_and(|told| told.keeper != keeper) {
            node.service.close(key);
        }
        let connection = self.connections.get_mut(&id).expect("looked up above");
        connection.server = ServerEnd::Open { key, receives: true };
        node.keys.insert(key, id);
        self.schedule_arrival(id, true);
        self.wake(node_id);
    }

    /// Whether connections of a later run were there, and none is any more: nothing is known of it then. The acceptor hands connections on in their order, so that nobody is taken so late.
    fn is_forgotten(&self, id: u64) -> bool {
        let Some(place) = self.places.get(&id) else { return false };
        let node = &self.nodes[&self.connections[&id].node];
        let inherits = |connection: &u64| {
            self.places.get(connection).is_some_and(|successor| successor.inherits_from(*place))
        };
        node.taken.keys().any(inherits) && !node.keys.values().any(inherits)
    }

    pub(super) fn server_hello(&mut self) -> ServerEnd {
        let mut output = Vec::new();
        let session = Session::new(Config { payload_whole_bytes_max: 600, ..Config::default() }, &mut output);
        ServerEnd::Handshake { session: Box::new(session), input: Vec::new(), output }
    }

    fn close_server_end(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let (ServerEnd::Open { key, .. }, Some(node)) =
            (&connection.server, self.nodes.get_mut(&connection.node))
        {
            node.service.forget(*key);
            node.keys.remove(key);
        }
        connection.server = ServerEnd::Closed;
        connection.to_client.is_ended = true;
        self.schedule_arrival(id, false);
    }

    /// The client of this connection took bytes.
    pub(super) fn room_for_server(&mut self, id: u64) {
        let Some(connection) = self.connections.get(&id) else { return };
        let node_id = connection.node;
        if let (ServerEnd::Open { key, .. }, Some(node)) = (&connection.server, self.nodes.get_mut(&node_id))
        {
            node.looks.push(*key);
            self.wake(node_id);
        }
    }

    pub(super) fn turn_now(&mut self, id: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.next_turn = Some(self.now);
            self.turn(id);
        }
    }

    /// One turn of a worker.
    pub(super) fn turn(&mut self, id: u64) {
        let now = Nanos(self.now);
        let Some(node) = self.nodes.get_mut(&id).filter(|node| !node.hangs) else { return };
        if node.next_turn.is_none_or(|at| at > now.0) {
            return;
        }
        node.next_turn = None;
        for key in std::mem::take(&mut node.resumable) {
            node.service.resume(now, key);
        }
        for _ in 0..ROUNDS_MAX {
            let Some(node) = self.nodes.get(&id) else { return };
            if !node.inbox.is_empty() || self.random.random_bool(0.05) {
                self.look_at_keeper(id);
            }
            let node = self.nodes.get_mut(&id).expect("looked up above");
            if let Some(volume) = node.volume {
                for (_, completion) in std::mem::take(&mut node.inbox) {
                    node.under_way.remove(&completion.id);
                    node.service.complete(now, volume, completion);
                }
            }
            let mut submissions = Vec::new();
            node.service.turn(now, &mut submissions);
            let source = node.source;
            let is_done = submissions.is_empty() && node.inbox.is_empty();
            for (key, request) in submissions {
                self.begins(id, &request);
                match source {
                    Source::Disk => self.submit_to_disk(key, request),
                    Source::Link(link) => self.submit_to_link(link, request),
                }
            }
            if is_done {
                break;
            }
        }
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let mut looks = std::mem::take(&mut node.looks);
        node.service.take_dirty(&mut looks);
        for key in looks {
            self.look(id, key);
        }
        self.check_orders(id);
        if self.check_left(id) {
            return;
        }
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if !node.resumable.is_empty() || !node.inbox.is_empty() {
            return self.wake(id);
        }
        if let Some(at) = node.service.wake_at() {
            self.wake_at(id, at.0.max(now.0));
        }
    }

    /// What a server promises to whom it lets succeed others: nothing of a connection is begun before everything is over of those whose place it takes, and nothing of those after that.
    ///
    /// A version says by which connections its change may have come; where it was sent again there are several.
    fn begins(&mut self, id: u64, request: &OriginRequest) {
        let OriginOperation::Write { offset, data, .. } = &request.operation else { return };
        let version = version_in(&data[..CELL as usize], offset / CELL);
        let now = self.tick();
        let node = self.nodes.get_mut(&id).expect("it takes a turn");
        node.under_way.insert(request.id, (version, now));
        let Some([connection]) = self.carried.get(&(id, version)).map(Vec::as_slice) else { return };
        // Clients have none.
        let Some(&place) = self.places.get(connection) else { return };
        let successor = node.begun.iter().find(|begun| begun.takes_place_of(place));
        assert_eq!(
            successor, None,
            "version {version}, which came at {place:?}, is begun after one of who took its place"
        );
        let taken = node.taken[connection];
        for (earlier, began) in node.under_way.values().filter(|(_, began)| *began < taken) {
            let came_by = self.carried.get(&(id, *earlier)).into_iter().flatten();
            let places = came_by.filter_map(|by| self.places.get(by));
            let succeeded = places.copied().find(|earlier| place.takes_place_of(*earlier));
            assert_eq!(
                succeeded, None,
                "version {version}, which came at {place:?}, is begun while version {earlier} is under way, since {began}"
            );
        }
        node.begun.retain(|begun| !place.takes_place_of(*begun));
        if !node.begun.contains(&place) {
            node.begun.push(place);
        }
    }

    /// It is told to end in order.
    pub(super) fn begin_to_leave(&mut self, id: u64) {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| !node.leaves) else { return };
        node.leaves = true;
        if let Some(volume) = node.volume {
            node.service.leave(volume);
        }
        let (role, place) = (node.role, node.place);
        note!(self, "{role:?} at {place:?} is told to end");
        self.schedule(ENDS_WITHIN_NS, Event::Overdue(id));
        self.wake(id);
    }

    /// It has ended, in order or because its time is over; the storage side and the proxy are back after a while.
    pub(super) fn end_node(&mut self, id: u64) {
        let Some(role) = self.nodes.get(&id).map(|node| node.role) else { return };
        self.kill_node(id);
        match role {
            Role::Storage => {
                if self.percent(50) && !self.is_far {
                    self.power_fails();
                }
                self.schedule(WHILE_NS / 4, Event::Back(Place::Storage));
            }
            Role::Server => unreachable!("nobody tells it to end"),
            Role::Proxy => self.schedule(WHILE_NS / 10, Event::Back(Place::Application)),
            Role::Appliance(_) => {}
        }
    }

    /// Whether it has ended, in order: its clients have heard all there was to hear.
    fn check_left(&mut self, id: u64) -> bool {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.leaves) else { return false };
        let is_idle = |volume| node.service.peek(volume).is_none_or(|machine| machine.is_idle());
        if !node.volume.is_none_or(is_idle) {
            return false;
        }
        if let Some(volume) = node.volume {
            node.service.bid_farewell(volume);
        }
        let mut changed = Vec::new();
        node.service.take_dirty(&mut changed);
        for key in changed {
            self.look(id, key);
        }
        let Some(node) = self.nodes.get(&id) else { return true };
        let has_parted = node.volume.is_none_or(|volume| node.service.has_parted(volume));
        if has_parted {
            // The others break off, as they did in the runs that failed once.
            if self.is_nameless {
                let its: Vec<u64> =
                    self.links.iter().filter(|(_, link)| link.node == id).map(|(id, _)| *id).collect();
                its.into_iter().for_each(|link| self.leave_by_link(link));
            }
            self.end_node(id);
        }
        has_parted
    }

    /// Sends what there is to send.
    fn look(&mut self, node_id: u64, key: SlabKey) {
        let Some(node) = self.nodes.get_mut(&node_id) else { return };
        let Some(&id) = node.keys.get(&key) else { return };
        let connection = self.connections.get_mut(&id).expect("an open connection is there");
        let mut bytes = Vec::new();
        while let Some(output) = node.service.output(key).filter(|output| !output.is_empty()) {
            if connection.is_cut {
                node.service.close(key);
                break;
            }
            bytes.clear();
            output.copy_to(&mut bytes);
            connection.to_client.send(&bytes);
            node.service.sent(Nanos(self.now), key, bytes.len());
        }
        let wishes = node.service.wishes(key).expect("it was not forgotten");
        if wishes.resume {
            node.resumable.push(key);
        }
        connection.server = ServerEnd::Open { key, receives: wishes.receive };
        let goes_on = wishes.receive || connection.is_cut;
        self.schedule_arrival(id, false);
        if wishes.close {
            return self.close_server_end(id);
        }
        if goes_on {
            self.schedule_arrival(id, true);
        }
    }

    /// An origin's answer reaches a daemon, if it is still the way that it uses.
    pub(super) fn complete(&mut self, node_id: u64, link: u64, completion: OriginCompletion) {
        let Some(node) = self.nodes.get_mut(&node_id) else { return };
        if node.source == Source::Link(link) && ![QUESTION, OWN_FLUSH].contains(&completion.id) {
            node.inbox.push((link, completion));
            self.wake(node_id);
        }
    }

    /// What a client hears of this connection, and says on it.
    pub(super) fn parts(&mut self, peer: Peer) -> Option<Parts<'_>> {
        match peer {
            Peer::Link(link) => self.link_parts(link),
            Peer::Application(index) => self.application_parts(index),
            Peer::Visitor(visit) => self.visitor_parts(visit),
        }
    }
}

/// A history of a volume that holds what it was given first.
pub(super) fn first_history() -> History {
    let mut history = History::new(CELLS);
    for cell in 0..CELLS {
        history.write(cell, cell + 1, 0, true);
        history.write_acknowledged(cell, cell + 1, 0);
    }
    history
}
