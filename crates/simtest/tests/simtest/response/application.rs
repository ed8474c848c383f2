//! An application: a real NBD client session, which writes and reads back, and connects again whenever its connection ends.

use super::node::{CELL, CELLS};
use super::wires::{Destination, Parts, Peer, Place};
use super::world::{Event, World, note};
use forebay_linear::{cell_bytes, version_in};
use forebay_nbd::client::{Config, Event as ClientEvent, Operation, Session};
use rand::Rng;
use std::collections::{BTreeMap, VecDeque};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Flush,
}

struct Asked {
    kind: Kind,
    first: u64,
    cells: u64,
    version: u64,
    fua: bool,
    started: u64,
    data: Vec<u8>,
}

/// One application.
pub(super) struct Application {
    pub(super) connection: Option<u64>,
    session: Option<Session>,
    is_ready: bool,
    input: Vec<u8>,
    outbox: VecDeque<u8>,
    asked: BTreeMap<u64, Asked>,
    next_cookie: u64,
    depth: usize,
    is_scheduled: bool,
    /// Its connection was lost: what a flush on the next one covers is for it to know.
    unsure_before: u64,
}

impl Application {
    pub(super) fn new(depth: usize) -> Application {
        Application {
            connection: None,
            session: None,
            is_ready: false,
            input: Vec::new(),
            outbox: VecDeque::new(),
            asked: BTreeMap::new(),
            next_cookie: 1,
            depth,
            is_scheduled: false,
            unsure_before: 0,
        }
    }

    pub(super) fn waits(&self) -> bool {
        !self.asked.is_empty()
    }
}

impl World {
    pub(super) fn think_after(&mut self, index: usize, delay: u64) {
        if !std::mem::replace(&mut self.applications[index].is_scheduled, true) {
            self.schedule(delay, Event::Think(index));
        }
    }

    pub(super) fn think(&mut self, index: usize) {
        self.applications[index].is_scheduled = false;
        let application = &self.applications[index];
        let (is_ready, room) = (application.is_ready, application.asked.len() < application.depth);
        if application.connection.is_none()
            && (self.budget > 0 || application.waits())
            && let Some((connection, export)) =
                self.connect(Peer::Application(index), Place::Application, self.where_clients_connect())
        {
            let application = &mut self.applications[index];
            application.connection = Some(connection);
            application.session = Some(Session::new(Config { block_status: false, ..Config::new(export) }));
            application.is_ready = false;
        }
        if is_ready && room && self.budget > 0 {
            self.budget -= 1;
            let first = if self.percent(70) {
                self.random.random_range(0..12)
            } else {
                self.random.random_range(0..CELLS)
            };
            let cells = self.random.random_range(1..=6).min(CELLS - first);
            let kind = match self.random.random_range(0..100) {
                0..46 => Kind::Read,
                46..93 if self.may_come_twice(first, cells) => Kind::Read,
                46..93 => Kind::Write,
                _ => Kind::Flush,
            };
            self.ask(index, kind, first, cells);
        }
        if self.budget > 0
            || self.applications[index].waits()
            || self.applications[index].connection.is_none()
        {
            let pause = self.random.random_range(0..3_600_000) + self.delay();
            let pause = if self.percent(30) { pause / 50 } else { pause };
            self.think_after(index, pause);
        }
    }

    /// Whether a change of these cells is under way that may be made again, over one that is asked for now. No guest does that to itself, which has one path to its disk.
    fn may_come_twice(&self, first: u64, cells: u64) -> bool {
        let overlaps = |asked: &Asked| {
            asked.kind == Kind::Write && asked.first < first + cells && first < asked.first + asked.cells
        };
        self.address.is_some() && self.applications.iter().any(|of| of.asked.values().any(overlaps))
    }

    fn where_clients_connect(&self) -> Destination {
        if self.address.is_some() { Destination::Address } else { Destination::Proxy }
    }

    fn ask(&mut self, index: usize, kind: Kind, first: u64, cells: u64) {
        let fua = kind == Kind::Write && self.percent(20);
        let started = self.tick();
        let version = if kind == Kind::Write { 1_000 + self.number() } else { 0 };
        if kind == Kind::Write {
            (first..first + cells).for_each(|cell| self.history.write(cell, version, started, fua));
        }
        let application = &mut self.applications[index];
        let cookie = application.next_cookie;
        application.next_cookie += 1;
        let data = if kind == Kind::Read { vec![0xdd; (cells * CELL) as usize] } else { Vec::new() };
        application.asked.insert(cookie, Asked { kind, first, cells, version, fua, started, data });
        self.course.requests += 1;
        self.send(index, cookie);
        self.empty_outbox(Peer::Application(index));
    }

    fn send(&mut self, index: usize, cookie: u64) {
        let application = &mut self.applications[index];
        let asked = &application.asked[&cookie];
        let (offset, length) = (asked.first * CELL, (asked.cells * CELL) as u32);
        let operation = match asked.kind {
            Kind::Read => Operation::Read { offset, length, dont_fragment: false },
            Kind::Write => Operation::Write { offset, length, fua: asked.fua },
            Kind::Flush => Operation::Flush,
        };
        let mut output = Vec::new();
        let session = application.session.as_mut().expect("it is ready");
        session.submit(cookie, operation, &mut output).expect("the export offers it");
        if asked.kind == Kind::Write {
            let cells = asked.first..asked.first + asked.cells;
            cells.for_each(|cell| output.extend(cell_bytes(asked.version, cell, CELL)));
        }
        let version = asked.version;
        application.outbox.extend(output);
        if let Some(by) = application.connection
            && version > 0
        {
            let node = self.connections[&by].node;
            self.carried.entry((node, version)).or_default().push(by);
        }
        note!(self, "application {index} asks {cookie}: {operation:?}, version {version}");
    }

    pub(super) fn application_parts(&mut self, index: usize) -> Option<Parts<'_>> {
        let application = &mut self.applications[index];
        Some(Parts {
            connection: application.connection?,
            outbox: &mut application.outbox,
            input: &mut application.input,
        })
    }

    pub(super) fn application_hears(&mut self, index: usize) {
        let (mut consumed, mut is_refused, mut is_back) = (0, false, false);
        let mut output = Vec::new();
        loop {
            let application = &mut self.applications[index];
            let session = application.session.as_mut().expect("it is connected");
            let parsed = match session.receive(&application.input[consumed..], &mut output) {
                Ok(parsed) => parsed,
                Err(error) => {
                    assert!(!application.is_ready, "application {index} is answered rubbish: {error}");
                    is_refused = true;
                    break;
                }
            };
            consumed += parsed.consumed;
            match parsed.event {
                ClientEvent::NeedMore => break,
                ClientEvent::Ready(_) => {
                    application.is_ready = true;
                    is_back = true;
                }
                ClientEvent::Data { cookie, offset, bytes } => {
                    let asked = application.asked.get_mut(&cookie).expect("the session knows its cookies");
                    let at = (offset - asked.first * CELL) as usize;
                    asked.data[at..at + bytes.len()].copy_from_slice(bytes);
                }
                ClientEvent::Done { cookie, result } => self.answered(index, cookie, result.is_ok()),
                _ => {}
            }
        }
        let application = &mut self.applications[index];
        application.input.drain(..consumed);
        application.outbox.extend(output);
        if is_back {
            // What came by an address is asked again, as QEMU's driver does it.
            let again: Vec<u64> = application.asked.keys().copied().collect();
            again.into_iter().for_each(|cookie| self.send(index, cookie));
        }
        self.empty_outbox(Peer::Application(index));
        if let (true, Some(id)) = (is_refused, self.applications[index].connection) {
            self.cut(id);
        }
        self.think_after(index, 0);
    }

    fn answered(&mut self, index: usize, cookie: u64, is_ok: bool) {
        let end = self.tick();
        let application = &mut self.applications[index];
        let asked = application.asked.remove(&cookie).expect("the session knows its cookies");
        let unsure_before = application.unsure_before;
        note!(self, "application {index} is answered {cookie}: {}", if is_ok { "done" } else { "an error" });
        self.course.answers += 1;
        self.course.errors += u64::from(!is_ok);
        self.course.failed_reads += u64::from(!is_ok && asked.kind == Kind::Read);
        let cells = asked.first..asked.first + asked.cells;
        if asked.kind == Kind::Flush || asked.fua {
            if !is_ok {
                (self.failed_flush, self.kept_quiet) = (None, None);
                (self.untold_loss, self.doubted_through) = (None, end);
                // It was on its way already when another one was told that all is safe.
                self.false_word = self.false_word.filter(|at| asked.started > *at);
            } else if asked.kind == Kind::Flush
                && unsure_before == 0
                && self.untold_loss.is_some_and(|at| at < asked.started)
                && self.is_loss_known()
            {
                note!(self, "application {index} is told that all is safe, and some of it is lost");
                self.false_word.get_or_insert(end);
            }
        }
        if asked.kind == Kind::Flush && is_ok && self.failed_flush.is_some_and(|at| at < asked.started) {
            note!(
                self,
                "application {index} is told that all is safe, and nobody has heard of a flush that failed"
            );
            self.kept_quiet.get_or_insert(end);
        }
        match (asked.kind, is_ok) {
            (Kind::Read, true) => {
                for (cell, bytes) in cells.zip(asked.data.chunks(CELL as usize)) {
                    self.history.read(cell, version_in(bytes, cell), asked.started, end);
                }
            }
            (Kind::Write, true) => {
                cells.for_each(|cell| self.history.write_acknowledged(cell, asked.version, end));
                self.take_account(index, asked.version);
            }
            (Kind::Write, false) => {
                cells.for_each(|cell| self.history.write_doubted(cell, asked.version, end));
            }
            (Kind::Flush, true) if unsure_before == 0 => self.history.flushed(asked.started),
            (Kind::Flush, true) => self.applications[index].unsure_before = 0,
            _ => {}
        }
    }

    /// Its connection is gone. If its server is gone as well, what becomes of what it had asked it cannot know, but that nothing of it comes over what it is told by the next one that it has written; who
    /// comes by an address asks again where that leads.
    pub(super) fn application_lost(&mut self, index: usize) {
        let now = self.tick();
        let application = &mut self.applications[index];
        let connection = application.connection.take().and_then(|id| self.connections.get(&id));
        let is_left = connection.is_some_and(|connection| self.nodes.contains_key(&connection.node));
        (application.session, application.is_ready) = (None, false);
        application.input.clear();
        application.outbox.clear();
        if self.address.is_none() || !is_left {
            application.unsure_before = now;
            // What it was told until now it cannot take for safe.
            (self.untold_loss, self.doubted_through, self.false_word) = (None, now, None);
            // It may have been on its way; the next run of the proxy has to say it.
            self.kept_quiet = None;
        }
        if self.address.is_none() {
            let asked = std::mem::take(&mut application.asked);
            for change in asked.values().filter(|asked| asked.kind == Kind::Write) {
                let cells = change.first..change.first + change.cells;
                cells.for_each(|cell| self.history.write_doubted(cell, change.version, now));
            }
        }
        self.course.disconnects += 1;
        self.think_after(index, 0);
    }

    /// Reads all of the volume; whether it was answered, and without an error.
    pub(super) fn read_everything(&mut self) -> bool {
        // Another application may hear meanwhile what was lost.
        let failed = self.course.failed_reads;
        for _ in 0..10_000 {
            if self.applications[0].is_ready {
                break;
            }
            self.budget = 1;
            if self.applications[0].connection.is_none() {
                self.think_after(0, 1_000_000);
            }
            if !self.step() {
                break;
            }
            self.budget = 0;
        }
        self.budget = 0;
        if !self.applications[0].is_ready {
            return false;
        }
        self.ask(0, Kind::Read, 0, CELLS);
        let until = self.now + 2_000_000_000;
        while self.applications[0].waits() && self.now < until && self.step() {}
        !self.applications[0].waits() && self.course.failed_reads == failed
    }
}
