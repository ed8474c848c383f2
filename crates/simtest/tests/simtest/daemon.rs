//! The daemon's driver without sockets and threads: handshakes, turns of the worker, removal of volumes. It does what `driver` in
//! `appliance` does, in the same order, with simulated connections and origins.

use crate::network::ServerEnd;
use crate::ring::InRing;
use crate::world::{Answered, Daemon, Doubt, Event, Failure, Life, Volume, World, note};
use forebay_appliance::service::{Entrance, SlabKey};
use forebay_nbd::server::{Config, Event as ServerEvent, Session};
use forebay_nbd::wire::{ErrorCode, LinuxErrno};
use forebay_origin::{OriginError, OriginRequest};
use forebay_units::Nanos;
use rand::Rng;

/// Rounds of completions per turn, as in the driver.
const ROUNDS_MAX: usize = 4;

impl World {
    /// A connection reaches the daemon.
    pub(crate) fn accept(&mut self, id: u64) {
        let config = Config {
            payload_bytes_max: self.limits.request_bytes_max,
            payload_whole_bytes_max: [600, 64 << 10][self.random.random_range(0..2)],
            ..Config::default()
        };
        let mut output = Vec::new();
        let session = Session::new(config, &mut output);
        let connection = self.connections.get_mut(&id).expect("just made");
        connection.server = ServerEnd::Handshake { session: Box::new(session), input: Vec::new(), output };
        self.send_handshake(id);
    }

    /// Lets the worker take a turn soon.
    pub(crate) fn wake_daemon(&mut self) {
        let delay = if self.percent(50) { 0 } else { self.random.random_range(0..20_000) };
        self.wake_daemon_at(self.now + delay);
    }

    fn wake_daemon_at(&mut self, at: u64) {
        if self.daemon.next_turn.is_none_or(|next| at < next) {
            self.daemon.next_turn = Some(at);
            self.schedule(at.saturating_sub(self.now), Event::Turn);
        }
    }

    pub(crate) fn schedule_arrival(&mut self, id: u64, to_server: bool) {
        let delay = self.delay() / 4;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let pipe = if to_server { &mut connection.to_server } else { &mut connection.to_client };
        if !pipe.is_scheduled && (pipe.is_ended || !pipe.is_empty()) {
            pipe.is_scheduled = true;
            self.schedule(delay, Event::Arrival { connection: id, to_server });
        }
    }

    /// Bytes of a client, or the end of them, arrive.
    pub(crate) fn arrive_at_server(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.to_server.is_scheduled = false;
        let key = match connection.server {
            ServerEnd::Closed => return self.forget_connection_if_over(id),
            ServerEnd::Open { key, receives: false } => {
                // The socket hung up, which is told unasked.
                if connection.is_cut {
                    self.daemon.service.close(key);
                    self.wake_daemon();
                }
                return;
            }
            ServerEnd::Open { key, .. } => Some(key),
            ServerEnd::Handshake { .. } => None,
        };
        if connection.to_server.is_empty() {
            if connection.to_server.is_ended {
                match key {
                    Some(key) => self.daemon.service.close(key),
                    None => self.close_server_end(id),
                }
                self.wake_daemon();
            }
            return;
        }
        let bytes = connection.to_server.take(connection.piece_max, &mut self.random);
        let client = connection.client;
        match key {
            Some(key) => {
                let requests = self.daemon.service.received(Nanos(self.now), key, &bytes);
                self.count_batch(key, requests);
                self.daemon.looks.push(key);
            }
            None => self.shake_hands(id, &bytes),
        }
        self.empty_outbox(client);
        self.schedule_arrival(id, true);
        self.wake_daemon();
    }

    /// Notes the volume whose requests were parsed.
    fn count_batch(&mut self, key: SlabKey, requests: usize) {
        if requests > 0
            && let Some(volume) = self.daemon.service.volume_of(key)
        {
            self.daemon.batch.insert(volume);
        }
    }

    fn shake_hands(&mut self, id: u64, bytes: &[u8]) {
        let connection = self.connections.get_mut(&id).expect("the caller looked");
        let ServerEnd::Handshake { session, input, output } = &mut connection.server else { return };
        input.extend_from_slice(bytes);
        let (mut consumed, mut chosen, mut error, mut is_over) = (0, None, None, false);
        while chosen.is_none() && !is_over {
            match session.receive(&input[consumed..], &self.daemon.exports, output) {
                Ok(parsed) => {
                    consumed += parsed.consumed;
                    match parsed.event {
                        ServerEvent::NeedMore => break,
                        ServerEvent::ExportChosen(export) => chosen = Some(export.name),
                        ServerEvent::Disconnect(_) => is_over = true,
                        ServerEvent::Negotiated | ServerEvent::ExportRefused { .. } => {}
                        event => panic!("the handshake yields {event:?}"),
                    }
                }
                // A client that only speaks EXPORT_NAME cannot be told otherwise that a volume is away.
                Err(found) => (error, is_over) = (Some(found), true),
            }
        }
        input.drain(..consumed);
        if let Some(error) = error {
            note!(self, "the handshake of connection {id} ends: {error}");
        }
        self.send_handshake(id);
        if is_over {
            return self.close_server_end(id);
        }
        let Some(name) = chosen else { return };
        let volume = self.volumes.iter().find(|volume| volume.name == name).expect("exports are volumes");
        // The volume may have been taken away since: the stale key is the service's to notice.
        let (Life::Served { key: volume } | Life::Draining { key: volume, .. }) = volume.life else {
            return self.close_server_end(id);
        };
        let connection = self.connections.get_mut(&id).expect("the caller looked");
        let closed = ServerEnd::Closed;
        let ServerEnd::Handshake { session, input, output } =
            std::mem::replace(&mut connection.server, closed)
        else {
            return;
        };
        let key =
            self.daemon.service.open(Nanos(self.now), *session, volume, Entrance::Original, input, output);
        connection.server = ServerEnd::Open { key, receives: false };
        self.daemon.keys.insert(key, id);
    }

    fn send_handshake(&mut self, id: u64) {
        let connection = self.connections.get_mut(&id).expect("the caller looked");
        let ServerEnd::Handshake { output, .. } = &mut connection.server else { return };
        let count = output.len().min(connection.to_client.room(connection.capacity));
        let sent: Vec<u8> = output.drain(..count).collect();
        connection.to_client.send(&sent);
        self.schedule_arrival(id, false);
    }

    /// The daemon closes its end: what was sent still arrives.
    pub(crate) fn close_server_end(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let ServerEnd::Open { key, .. } = connection.server {
            self.daemon.service.forget(key);
            self.daemon.keys.remove(&key);
        }
        connection.server = ServerEnd::Closed;
        connection.to_client.is_ended = true;
        let (client, is_cut) = (connection.client, connection.is_cut);
        if is_cut || self.clients[client].connection != Some(id) {
            self.note_lost(client);
        }
        self.schedule_arrival(id, false);
    }

    /// The client took bytes: there is room for more.
    pub(crate) fn room_for_server(&mut self, id: u64) {
        let Some(connection) = self.connections.get(&id) else { return };
        match connection.server {
            ServerEnd::Handshake { .. } => self.send_handshake(id),
            ServerEnd::Open { key, .. } => {
                self.daemon.looks.push(key);
                self.wake_daemon();
            }
            ServerEnd::Closed => {}
        }
    }

    /// One turn of the worker.
    pub(crate) fn turn(&mut self) {
        if self.daemon.next_turn.is_none_or(|at| at > self.now) {
            return; // An earlier one has done what this was for.
        }
        self.daemon.next_turn = None;
        let now = Nanos(self.now);
        for key in std::mem::take(&mut self.daemon.resumable) {
            let requests = self.daemon.service.resume(now, key);
            self.count_batch(key, requests);
        }
        let (mut submissions, mut demotions) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS_MAX {
            self.take_inbox();
            self.daemon.service.turn(now, &mut submissions);
            self.daemon.service.take_flash_submissions(&mut demotions);
            let submitted = !submissions.is_empty() || !demotions.is_empty();
            for (key, request) in submissions.drain(..) {
                self.submit(key, request);
            }
            for (key, request) in demotions.drain(..) {
                if self.has_ring
                    && !request.operation.changes_content()
                    && self.daemon.ring.takes(&request.operation)
                {
                    self.daemon.ring.push(InRing::Flash { key, request });
                } else {
                    self.submit_to_flash(key, request, false, false);
                }
            }
            self.proceed_ring();
            if !submitted && self.daemon.inbox.is_empty() && self.daemon.flash_inbox.is_empty() {
                break;
            }
        }
        for volume in std::mem::take(&mut self.daemon.batch) {
            self.daemon.service.end_batch(volume, now, now.saturating_add(Nanos(100)));
        }
        let mut looks = std::mem::take(&mut self.daemon.looks);
        self.daemon.service.take_dirty(&mut looks);
        for key in looks {
            self.look(key);
        }
        if self.now >= self.daemon.stall_check_at {
            self.daemon.stall_check_at = self.now + 1_000_000_000;
            self.daemon.service.close_stalled(now);
        }
        self.check_drained();
        self.check_bounds();
        let Daemon { resumable, inbox, flash_inbox, .. } = &self.daemon;
        if !resumable.is_empty() || !inbox.is_empty() || !flash_inbox.is_empty() {
            self.wake_daemon();
        }
        if let Some(at) = self.daemon.service.wake_at() {
            self.wake_daemon_at(at.0.max(self.now));
        }
        if let Some(at) = self.daemon.ring.proceed_at(self.now) {
            self.wake_daemon_at(at);
        }
    }

    /// The answers of origins reach their volumes.
    pub(crate) fn take_inbox(&mut self) {
        for (key, completion) in std::mem::take(&mut self.daemon.flash_inbox) {
            self.daemon.service.complete(Nanos(self.now), key, completion);
        }
        for answered in std::mem::take(&mut self.daemon.inbox) {
            let Answered { volume, key, completion, range, is_flush, is_change, is_forced, version, trimmed } =
                answered;
            let error = completion.result.as_ref().err().cloned();
            self.daemon.service.complete(Nanos(self.now), key, completion);
            let at = self.tick();
            let Volume { origin, history, failures, doubts, .. } = &mut self.volumes[volume];
            if let Some(error) = error {
                let code = ErrorCode::from_linux(LinuxErrno(error.errno()));
                failures.push(Failure {
                    at,
                    range,
                    code,
                    is_flush,
                    is_change,
                    is_forced,
                    version,
                    is_told: false,
                });
                if matches!(error, OriginError::OutcomeUnknown { .. }) {
                    doubts.push(Doubt { range, to: u64::MAX });
                }
            }
            // The client of a trim does not know what the range reads as: what is there counts from here on.
            if let Some(version) = trimmed {
                origin.cells(range).for_each(|cell| history.write_acknowledged(cell, version, at));
            }
        }
    }

    fn submit(&mut self, key: SlabKey, request: OriginRequest) {
        let serves =
            |life| matches!(life, Life::Served { key: of } | Life::Draining { key: of, .. } if of == key);
        let index =
            self.volumes.iter().position(|volume| serves(volume.life)).expect("a request is some volume's");
        if self.has_ring && self.daemon.ring.takes(&request.operation) {
            self.daemon.ring.push(InRing::Origin { volume: index, key, request });
        } else {
            self.submit_to_origin(index, key, request, false, false);
        }
    }

    /// Sends what there is to send, and does what else the connection wishes.
    fn look(&mut self, key: SlabKey) {
        let Some(&id) = self.daemon.keys.get(&key) else { return };
        let connection = self.connections.get_mut(&id).expect("an open connection is there");
        let mut bytes = Vec::new();
        while let Some(output) = self.daemon.service.output(key).filter(|output| !output.is_empty()) {
            if connection.is_cut {
                self.daemon.service.close(key);
                break;
            }
            let room = connection.to_client.room(connection.capacity).min(output.len());
            if room == 0 {
                break;
            }
            let count =
                if self.random.random_range(0..4) == 0 { self.random.random_range(1..=room) } else { room };
            bytes.clear();
            output.copy_to(&mut bytes);
            connection.to_client.send(&bytes[..count]);
            self.daemon.service.sent(Nanos(self.now), key, count);
        }
        self.schedule_arrival(id, false);
        let wishes = self.daemon.service.wishes(key).expect("it was not forgotten");
        if wishes.close {
            return self.close_server_end(id);
        }
        if wishes.resume {
            self.daemon.resumable.push(key);
        }
        let connection = self.connections.get_mut(&id).expect("looked up above");
        connection.server = ServerEnd::Open { key, receives: wishes.receive };
        if wishes.receive || connection.is_cut {
            self.schedule_arrival(id, true);
        }
    }

    /// Volumes on their way out leave when nothing of them is in flight, or their time is up.
    fn check_drained(&mut self) {
        for index in 0..self.volumes.len() {
            let Life::Draining { key, deadline } = self.volumes[index].life else { continue };
            let is_idle = self.daemon.service.volume(key).is_none_or(|machine| machine.is_idle());
            let is_done = is_idle && self.daemon.service.is_flushed(key);
            if !is_done && self.now < deadline {
                let at = (self.now + 50_000).min(deadline);
                self.wake_daemon_at(at);
                continue;
            }
            note!(self, "volume {index} is taken away, drained: {is_done}");
            let machine = self.daemon.service.remove_volume(key).expect("it was looked at above");
            self.volumes[index].life = Life::Gone;
            self.save_flash(index, machine);
            let mut closed = Vec::new();
            self.daemon.service.take_dirty(&mut closed);
            closed.into_iter().for_each(|key| self.look(key));
        }
    }

    /// Memory stays under its written bound, whatever clients do.
    fn check_bounds(&mut self) {
        let held = self.daemon.service.held_bytes() as u64;
        // Each connection may go above the worker's maximum by one request and its reply, also one that is gone and whose request
        // is still at the origin; 128 KiB is above the longest here.
        let most = self.limits.held_per_worker_max.0 + self.clients.len() as u64 * (128 << 10);
        assert!(held <= most, "the service holds {held} bytes, at most {most} are allowed");
    }
}
