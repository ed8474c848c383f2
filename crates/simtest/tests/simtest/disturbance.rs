//! What the origins answer, and what happens to everybody: errors, lost connections, crashes, quotas, warm-ups, removals.

use crate::network::{Pipe, ServerEnd};
use crate::origin::{AtOrigin, Fate};
use crate::ring::Ended;
use crate::world::{Answered, Daemon, Event, Life, NO_VERSION, Volume, World, note};
use forebay_appliance::service::SlabKey;
use forebay_appliance::volume::{ListingPiece, PrewarmPlan};
use forebay_cache::{Insertion, Progress};
use forebay_linear::version_in;
use forebay_origin::{OriginCompletion, OriginError, OriginOperation, OriginRequest};
use forebay_units::{ByteRange, Bytes, Nanos};
use rand::Rng;
use std::sync::mpsc::channel;

impl World {
    // ---- Origins ----------------------------------------------------------------------------------------------

    /// A request reaches an origin, perhaps by the worker's ring, which may carry it out before its call returns.
    pub(crate) fn submit_to_origin(
        &mut self,
        index: usize,
        key: SlabKey,
        request: OriginRequest,
        in_ring: bool,
        at_once: bool,
    ) {
        let now = self.tick();
        let is_change = request.operation.changes_content();
        let mut fate = self.draw_fate(is_change);
        if matches!(fate, Fate::Fails { .. })
            && matches!(request.operation, OriginOperation::WriteZeroes { fast: true, .. })
        {
            fate = Fate::Fails { errno: 95 };
        }
        note!(self, "origin {index} is asked {:?}: {:?}, {fate:?}", request.id, Brief(&request.operation));
        let version = if matches!(request.operation, OriginOperation::Trim { .. }) {
            // What a trimmed range reads as is the origin's affair: something new.
            let version = self.version();
            let Volume { origin, history, .. } = &mut self.volumes[index];
            let range = request.operation.range();
            origin.cells(range).for_each(|cell| history.write(cell, version, now, false));
            version
        } else {
            0
        };
        let incarnation = self.daemon.incarnation;
        let volume = &mut self.volumes[index];
        if is_change {
            // They may share a block, but nothing of what is changed.
            let range = request.operation.range();
            for other in volume.origin.requests.values() {
                assert!(
                    !other.request.operation.changes_content()
                        || other.incarnation != incarnation
                        || other.volume != key
                        || !other.request.operation.range().overlaps(range),
                    "two changes of one unit are at the origin at once: {other:?} and {:?}",
                    Brief(&request.operation)
                );
            }
        }
        let serial = volume.origin.submit(request, (incarnation, key), version, now, fate, in_ring);
        self.course.in_ring += u64::from(in_ring);
        if at_once {
            let is_over = self.volumes[index].origin.work(serial, usize::MAX, &mut self.random);
            assert!(is_over, "nothing is left to do");
            self.close_request(index, serial);
            return self.answer(index, serial);
        }
        let delay = self.delay() / 2;
        self.schedule(delay, Event::Work { volume: index, serial });
    }

    pub(crate) fn work(&mut self, index: usize, serial: u64) {
        let count = [1, 3, 8, usize::MAX][self.random.random_range(0..4)];
        let delay = self.delay() / 2;
        let origin = &mut self.volumes[index].origin;
        if !origin.requests.contains_key(&serial) {
            return; // A crash ended it.
        }
        if origin.work(serial, count, &mut self.random) {
            self.end_request(index, serial, delay);
        } else {
            self.schedule(delay, Event::Work { volume: index, serial });
        }
    }

    /// The origin is done with a request; its answer is on the way.
    pub(crate) fn end_request(&mut self, index: usize, serial: u64, delay: u64) {
        self.close_request(index, serial);
        self.schedule(delay, Event::Answer { volume: index, serial });
    }

    fn close_request(&mut self, index: usize, serial: u64) {
        let now = self.tick();
        let origin = &mut self.volumes[index].origin;
        let mut request = origin.requests.remove(&serial).expect("the caller looked");
        let is_flush = request.request.operation == OriginOperation::Flush;
        if is_flush && request.fate == Fate::Done && origin.next_flush_fails {
            request.fate = Fate::Fails { errno: 5 };
        }
        origin.next_flush_fails &= !is_flush;
        if request.fate == Fate::Done {
            origin.complete(serial, &request, now);
        }
        self.answers.insert((index, serial), request);
    }

    /// The answer of an origin reaches the daemon.
    pub(crate) fn answer(&mut self, index: usize, serial: u64) {
        let Some(mut request) = self.answers.remove(&(index, serial)) else { return };
        let range = request.request.operation.range();
        let context = String::new;
        let result = match request.fate {
            Fate::Done => Ok(self.volumes[index].origin.answer(&mut request)),
            Fate::Fails { errno } => Err(OriginError::Failed { errno, context: context() }),
            Fate::Unreachable => Err(OriginError::Unreachable { context: context(), unsent: None }),
            Fate::Lost => Err(OriginError::OutcomeUnknown { context: context(), asked: None }),
        };
        note!(
            self,
            "origin {index} answers {:?}: {:?}",
            request.request.id,
            result.as_ref().map(|data| data.len()).map_err(ToString::to_string)
        );
        let operation = &request.request.operation;
        let answered = Answered {
            volume: index,
            key: request.volume,
            completion: OriginCompletion { id: request.request.id, result },
            range,
            is_flush: *operation == OriginOperation::Flush,
            is_change: operation.changes_content(),
            is_forced: operation.fua(),
            version: match operation {
                OriginOperation::Write { offset, data, .. } => {
                    let cell = self.volumes[index].origin.cell;
                    version_in(&data[..cell as usize], offset / cell)
                }
                _ => NO_VERSION,
            },
            trimmed: (matches!(operation, OriginOperation::Trim { .. }) && request.fate == Fate::Done)
                .then_some(request.version),
        };
        if request.incarnation == self.daemon.incarnation {
            if request.in_ring {
                self.daemon.ring.end(Ended::Origin(answered));
            } else {
                self.daemon.inbox.push(answered);
            }
            self.wake_daemon();
        }
        if request.fate == Fate::Lost {
            self.volumes[index].origin.lose(serial, request);
        }
    }

    /// The connection to the origin breaks: whatever is under way has no answer; changes may still be applied later.
    fn lose_origin_connection(&mut self, index: usize) {
        note!(self, "origin {index} loses its connection");
        let serials: Vec<u64> = self.volumes[index].origin.requests.keys().copied().collect();
        for serial in serials {
            let request = self.volumes[index].origin.requests.get_mut(&serial).expect("listed above");
            request.fate = if request.request.operation.changes_content() {
                Fate::Lost
            } else {
                Fate::Fails { errno: 5 }
            };
            let delay = self.delay();
            self.end_request(index, serial, delay);
        }
    }

    /// The origin stops and starts again: what was not flushed may be gone, and nothing that was lost comes back.
    fn crash_origin(&mut self, index: usize, cache_survives: bool) {
        note!(self, "origin {index} crashes");
        self.course.crashes += 1;
        let origin = &mut self.volumes[index].origin;
        origin.end_ghosts(&mut self.random);
        for (serial, mut request) in origin.end_requests(&mut self.random) {
            request.fate = if request.request.operation.changes_content() {
                Fate::Lost
            } else {
                Fate::Fails { errno: 5 }
            };
            self.answers.insert((index, serial), request);
            let delay = self.delay();
            self.schedule(delay, Event::Answer { volume: index, serial });
        }
        let now = self.tick();
        let Volume { origin, history, .. } = &mut self.volumes[index];
        origin.crash(history, cache_survives, now, &mut self.random);
    }

    /// Who runs the origin makes sure that nothing lost will come back, and says so.
    pub(crate) fn settle(&mut self, index: usize) {
        note!(self, "volume {index} is settled");
        self.volumes[index].origin.end_ghosts(&mut self.random);
        // Answers come before commands.
        self.take_inbox();
        if let Some(machine) = self.machine(index) {
            machine.settle();
        }
        let now = self.tick();
        for doubt in &mut self.volumes[index].doubts {
            doubt.to = doubt.to.min(now);
        }
        self.wake_daemon();
    }

    // ---- The daemon -------------------------------------------------------------------------------------------

    /// The daemon is killed and started again; its origins end what it had asked of them, in part or whole, before
    /// it comes back (as a file that is locked does).
    pub(crate) fn crash_daemon(&mut self, power_fails: bool) {
        note!(self, "the daemon is killed");
        self.course.crashes += 1;
        let now = self.tick();
        for index in 0..self.volumes.len() {
            let Volume { origin, doubts, .. } = &mut self.volumes[index];
            origin.end_requests(&mut self.random);
            self.answers.retain(|(volume, _), _| *volume != index);
            origin.end_ghosts(&mut self.random);
            doubts.iter_mut().for_each(|doubt| doubt.to = doubt.to.min(now));
        }
        let ids: Vec<u64> = self.connections.keys().copied().collect();
        for id in ids {
            let connection = self.connections.get_mut(&id).expect("listed above");
            connection.to_client.cut(&mut self.random);
            connection.is_cut = true;
            connection.server = ServerEnd::Closed;
            connection.to_server = Pipe { is_ended: true, ..Pipe::default() };
            let client = connection.client;
            self.schedule_arrival(id, false);
            if self.clients[client].connection == Some(id) {
                self.clients[client].is_forsaken = true;
            }
        }
        let next_turn = self.daemon.next_turn;
        self.daemon = Daemon::new(self.daemon.incarnation + 1, self.limits);
        self.daemon.next_turn = next_turn;
        self.crash_flash(power_fails);
        for index in 0..self.volumes.len() {
            self.serve_volume(index);
        }
    }

    /// Power fails at the daemon and at all origins.
    pub(crate) fn host_crash(&mut self) {
        note!(self, "power fails");
        self.crash_daemon(true);
        for index in 0..self.volumes.len() {
            self.crash_origin(index, false);
            self.volumes[index].origin.next_flush_fails = false;
        }
    }

    // ---- Everything else --------------------------------------------------------------------------------------

    /// Something happens that nobody asked for.
    pub(crate) fn disturb(&mut self) {
        self.check_volumes();
        let is_away = self.volumes.iter().any(|volume| !matches!(volume.life, Life::Served { .. }));
        if !self.is_ending || is_away || self.volumes.iter().any(|volume| volume.origin.has_ghosts()) {
            let delay = 2 * self.delay() + 1_000;
            self.schedule(delay, Event::Disturb);
        }
        let index = self.random.random_range(0..self.volumes.len());
        self.return_volumes();
        if self.is_ending {
            return self.settle(index);
        }
        let faults = self.faults;
        match self.random.random_range(0..100) {
            0..15 => self.set_quota(index),
            15..30 => self.prewarm(index),
            30..33 => {
                if let Some(machine) = self.machine(index) {
                    machine.cancel_prewarm();
                }
            }
            33..45 => self.volumes[index].origin.haunt(&mut self.random),
            45..50 => self.settle(index),
            50..58 if faults.cuts => self.cut(),
            58..63 if faults.deafness => {
                let client = self.random.random_range(0..self.clients.len());
                self.clients[client].deaf_until = self.now + self.random.random_range(0..2_000_000);
            }
            63..66 if faults.connection_loss => self.lose_origin_connection(index),
            66..69 if faults.origin_crash => self.crash_origin(index, true),
            69..71 if faults.daemon_crash => {
                if faults.origin_crash && self.percent(50) {
                    self.host_crash();
                } else {
                    self.crash_daemon(false);
                }
            }
            71..75 if faults.removal => self.remove(index),
            75..82 => self.disturb_flash(index),
            82 if faults.ring_trouble => self.give_up_ring(),
            82..86 => self.set_prewarm_rate(index),
            86..90 => self.list_resident(index),
            _ => {}
        }
    }

    /// A connection breaks, at any moment and for both sides.
    fn cut(&mut self) {
        if self.connections.is_empty() {
            return;
        }
        let place = self.random.random_range(0..self.connections.len());
        let (&id, connection) = self.connections.iter_mut().nth(place).expect("counted above");
        if connection.is_cut {
            return;
        }
        connection.to_server.cut(&mut self.random);
        connection.to_client.cut(&mut self.random);
        connection.is_cut = true;
        let client = connection.client;
        if self.clients[client].connection == Some(id) {
            self.clients[client].is_forsaken = true;
        }
        note!(self, "connection {id} of client {client} is cut");
        self.schedule_arrival(id, true);
        self.schedule_arrival(id, false);
    }

    fn set_quota(&mut self, index: usize) {
        let quota = Bytes(self.volumes[index].block * self.random.random_range(0..18));
        note!(self, "volume {index} gets {quota}");
        if let Some(machine) = self.machine(index) {
            machine.set_quota(quota);
            self.wake_daemon();
        }
    }

    fn prewarm(&mut self, index: usize) {
        let (size, cell) = (self.volumes[index].origin.traits.size_bytes, self.volumes[index].origin.cell);
        let ranges = (0..self.random.random_range(1..4))
            .map(|_| {
                let first = self.random.random_range(0..size / cell);
                let length = self.random.random_range(1..=12).min(size / cell - first);
                ByteRange::new(first * cell, length * cell)
            })
            .collect();
        let bytes_per_second = self.percent(50).then_some(Bytes(cell * 400_000));
        let insertion = [Insertion::Prewarm, Insertion::PrewarmTail][self.random.random_range(0..2)];
        if !matches!(self.volumes[index].life, Life::Served { .. }) {
            return; // Nobody can name it any more.
        }
        note!(self, "volume {index} is warmed up: {ranges:?}");
        if let Some(machine) = self.machine(index) {
            machine.prewarm(PrewarmPlan { ranges, bytes_per_second, insertion, own_partition: false });
            self.wake_daemon();
        }
    }

    fn set_prewarm_rate(&mut self, index: usize) {
        let cell = self.volumes[index].origin.cell;
        let rate = [None, Some(Bytes::ZERO), Some(Bytes(cell * 100_000))][self.random.random_range(0..3)];
        let now = Nanos(self.now);
        if let Some(machine) = self.machine(index) {
            machine.set_prewarm_rate(now, rate);
            self.wake_daemon();
        }
    }

    /// Somebody asks what is cached, and mostly waits for it.
    fn list_resident(&mut self, index: usize) {
        let (sender, pieces) = channel();
        if let Some(machine) = self.machine(index) {
            machine.list_resident(sender);
            self.wake_daemon();
        }
        if self.percent(80) {
            self.listeners.push((index, pieces));
        }
        // What earlier ones were told lies in their volume, and an end is the end.
        let listener = self.random.random_range(0..=self.listeners.len());
        if listener < self.listeners.len() {
            let (index, pieces) = self.listeners.swap_remove(listener);
            let origin = &self.volumes[index].origin;
            let told: Vec<ListingPiece> = pieces.try_iter().collect();
            for (at, piece) in told.iter().enumerate() {
                match piece {
                    ListingPiece::End => assert_eq!(at + 1, told.len(), "blocks after the end"),
                    ListingPiece::Blocks(blocks) => assert!(
                        blocks.iter().all(|listed| listed.block().0 * 512 < origin.traits.size_bytes),
                        "a block outside of volume {index} is cached"
                    ),
                }
            }
        }
    }

    /// A volume is taken away, with some time for what is in flight.
    pub(crate) fn remove(&mut self, index: usize) {
        let Life::Served { key } = self.volumes[index].life else { return };
        let patience = if self.is_ending || self.percent(30) { 50_000_000 } else { 500_000 };
        let deadline = self.now + self.random.random_range(0..patience);
        note!(self, "volume {index} is to go");
        self.daemon.exports.remove(&self.volumes[index].name);
        self.daemon.service.volume(key).expect("it is served").drain();
        self.volumes[index].life = Life::Draining { key, deadline };
        self.volumes[index].drained_at = u64::MAX;
        for client in self.clients.iter_mut().filter(|client| client.volume == index) {
            client.is_forsaken = true;
        }
        self.wake_daemon();
    }

    /// Volumes that were taken away come back, once their origins have ended what was asked of them before.
    fn return_volumes(&mut self) {
        for index in 0..self.volumes.len() {
            let is_over = self.volumes[index].origin.requests.is_empty()
                && !self.answers.keys().any(|(volume, _)| *volume == index)
                && !self.daemon.ring.has_of(index);
            if self.volumes[index].life != Life::Gone || !is_over || (!self.is_ending && self.percent(80)) {
                continue;
            }
            self.settle(index);
            note!(self, "volume {index} is back");
            self.volumes[index].drained_at = self.tick();
            self.serve_volume(index);
        }
    }

    /// What the daemon says of its volumes makes sense.
    fn check_volumes(&mut self) {
        let now = Nanos(self.now);
        let connections = self.connections_most;
        for index in 0..self.volumes.len() {
            let end_interval = self.percent(10);
            let block = self.volumes[index].block;
            let limits = self.volumes[index].limits;
            let Some(machine) = self.machine(index) else { continue };
            let seen = machine.observe(now, end_interval);
            if seen.quota_progress == Progress::Settled {
                assert!(seen.resident_bytes <= seen.quota_bytes, "more is resident than the quota: {seen:?}");
            }
            assert!(seen.held_bytes >= seen.resident_bytes);
            assert!(seen.origin_in_flight <= limits.origin_requests_max);
            // A payload that was begun is taken to its end: one request more per connection, which may have ended since.
            assert!(seen.requests_in_flight <= limits.requests_max + connections);
            assert!(seen.counters.reads_hit <= seen.counters.reads);
            assert!(seen.in_doubt.iter().all(|range| range.offset.is_multiple_of(block)));
            self.course.hits = self.course.hits.max(seen.counters.reads_hit);
            if let Some(flash) = seen.flash {
                let statistics = flash.statistics;
                assert!(seen.counters.reads_flash + seen.counters.reads_hit <= seen.counters.reads);
                assert!(flash.resident_bytes.0 <= flash.held_bytes.0 + block);
                self.course.flash_hits = self.course.flash_hits.max(statistics.hits);
                let kept = flash.placing.map_or(0, |placing| placing.statistics.promotions_kept);
                self.course.migrations = self.course.migrations.max(kept);
                self.course.corrupt = self.course.corrupt.max(statistics.corrupt);
            }
        }
    }
}

/// An operation without its data.
struct Brief<'a>(&'a OriginOperation);

impl std::fmt::Debug for Brief<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let range = self.0.range();
        match self.0 {
            OriginOperation::Write { fua, .. } => write!(f, "Write {{ {range:?}, fua: {fua} }}"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// An answer on its way.
pub(crate) type Answers = std::collections::BTreeMap<(usize, u64), AtOrigin>;
