//! An application: a real NBD client session, which writes and reads back, and connects again whenever its connection ends.

use super::node::{CELL, CELLS};
use super::wires::{Destination, Parts, Peer, Place};
use super::world::{Event, World, note};
use crate::history::{cell_bytes, version_in};
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
                self.connect(Peer::Application(index), Place::Application, Destination::Proxy)
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

    fn ask(&mut self, index: usize, kind: Kind, first: u64, cells: u64) {
        let fua = kind == Kind::Write && self.percent(20);
        let started = self.tick();
        let version = if kind == Kind::Write { 1_000 + self.number() } else { 0 };
        let (offset, length) = (first * CELL, (cells * CELL) as u32);
        let operation = match kind {
            Kind::Read => Operation::Read { offset, length, dont_fragment: false },
            Kind::Write => Operation::Write { offset, length, fua },
            Kind::Flush => Operation::Flush,
        };
        let application = &mut self.applications[index];
        let cookie = application.next_cookie;
        application.next_cookie += 1;
        let mut output = Vec::new();
        let session = application.session.as_mut().expect("it is ready");
        session.submit(cookie, operation, &mut output).expect("the export offers it");
        if kind == Kind::Write {
            for cell in first..first + cells {
                output.extend(cell_bytes(version, cell, CELL));
                self.history.write(cell, version, started, fua);
            }
        }
        application.outbox.extend(output);
        let data = if kind == Kind::Read { vec![0xdd; length as usize] } else { Vec::new() };
        application.asked.insert(cookie, Asked { kind, first, cells, version, fua, started, data });
        self.course.requests += 1;
        note!(self, "application {index} asks {cookie}: {operation:?}, version {version}");
        self.empty_outbox(Peer::Application(index));
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
        let (mut consumed, mut is_refused) = (0, false);
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
                ClientEvent::Ready(_) => application.is_ready = true,
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
            }
            (Kind::Write, false) => {
                cells.for_each(|cell| self.history.write_doubted(cell, asked.version, end));
            }
            (Kind::Flush, true) if unsure_before == 0 => self.history.flushed(asked.started),
            (Kind::Flush, true) => self.applications[index].unsure_before = 0,
            _ => {}
        }
    }

    /// Its connection is gone, with its proxy. What becomes of what it had asked it cannot know, but that nothing of it comes over what it is told by the next one that it has written.
    pub(super) fn application_lost(&mut self, index: usize) {
        let now = self.tick();
        let application = &mut self.applications[index];
        (application.connection, application.session, application.is_ready) = (None, None, false);
        application.input.clear();
        application.outbox.clear();
        let asked = std::mem::take(&mut application.asked);
        application.unsure_before = now;
        // What it was told until now it cannot take for safe.
        (self.untold_loss, self.doubted_through, self.false_word) = (None, now, None);
        // It may have been on its way; the next run of the proxy has to say it.
        self.kept_quiet = None;
        for change in asked.values().filter(|asked| asked.kind == Kind::Write) {
            let cells = change.first..change.first + change.cells;
            cells.for_each(|cell| self.history.write_doubted(cell, change.version, now));
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
