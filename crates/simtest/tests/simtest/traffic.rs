//! What clients do: connect, ask, hear, judge the answers, leave.

use crate::client::{Asked, AskedKind};
use crate::network::{Connection, Pipe, ServerEnd};
use crate::world::{Event, NO_VERSION, Volume, World, note};
use forebay_linear::{cell_bytes, version_in};
use forebay_nbd::client::{Config, Event as ClientEvent, Operation, ReplyError, Session};
use forebay_nbd::wire::{AllocationFlags, ErrorCode};
use forebay_units::ByteRange;
use rand::Rng;

impl World {
    /// A client does its next thing.
    pub(crate) fn think(&mut self, index: usize) {
        self.clients[index].is_scheduled = false;
        if self.is_ending && self.last_look.is_none() && self.clients[index].connection.is_none() {
            return;
        }
        if self.budget == 0 && self.clients[index].connection.is_none() {
            return;
        }
        let Some(id) = self.clients[index].connection else { return self.connect(index) };
        let client = &self.clients[index];
        if !client.is_ready || client.is_leaving {
            return;
        }
        if let Some(kind) = self.last_look {
            if self.budget > 0 {
                self.budget = 0;
                let size = self.volumes[self.clients[index].volume].origin.traits.size_bytes;
                self.ask(index, kind, ByteRange::new(0, size));
            }
            return;
        }
        if self.is_ending || self.budget == 0 {
            return;
        }
        if client.asked.len() < client.depth {
            self.budget -= 1;
            let (kind, range) = self.draw_request(index);
            self.ask(index, kind, range);
            if self.percent(1) {
                note!(self, "client {index} says goodbye on connection {id}");
                let client = &mut self.clients[index];
                let mut output = Vec::new();
                client.session.as_mut().expect("it is ready").disconnect(&mut output);
                client.outbox.extend(output);
                client.is_leaving = true;
                self.empty_outbox(index);
            }
        }
        self.think_soon(index);
    }

    fn connect(&mut self, index: usize) {
        let id = self.next_connection;
        self.next_connection += 1;
        let structured_replies = self.percent(60);
        let client = &mut self.clients[index];
        let config = Config { structured_replies, ..Config::new(self.volumes[client.volume].name.clone()) };
        client.session = Some(Session::new(config));
        client.connection = Some(id);
        (client.is_ready, client.is_leaving, client.is_forsaken) = (false, false, false);
        client.input.clear();
        client.outbox.clear();
        let capacity = [300, 4_096, 1 << 20][self.random.random_range(0..3)];
        let piece_max = [13, 700, 1 << 20, 1 << 20][self.random.random_range(0..4)];
        note!(self, "client {index} opens connection {id}");
        self.connections.insert(
            id,
            Connection {
                client: index,
                to_server: Pipe::default(),
                to_client: Pipe::default(),
                server: ServerEnd::Closed,
                capacity,
                piece_max,
                is_cut: false,
            },
        );
        self.connections_most = self.connections_most.max(self.connections.len());
        self.accept(id);
    }

    /// A kind of request, and a range of whole cells: mostly short, mostly in a corner of the volume where all meet.
    fn draw_request(&mut self, index: usize) -> (AskedKind, ByteRange) {
        let volume = self.clients[index].volume;
        let cells = self.volumes[volume].origin.cell_count();
        let cell = self.volumes[volume].origin.cell;
        let reach = if self.percent(70) { cells.min(20) } else { cells };
        let first = self.random.random_range(0..reach);
        let longest = if self.percent(85) { 6 } else { 40 };
        let length = self.random.random_range(1..=longest).min(cells - first);
        let range = ByteRange::new(first * cell, length * cell);
        let kind = match self.random.random_range(0..100) {
            0..48 => AskedKind::Read,
            48..79 => AskedKind::Write,
            79..83 => AskedKind::Trim,
            83..88 if (first..first + length).all(|cell| !self.volumes[volume].zeroed.contains(&cell)) => {
                AskedKind::WriteZeroes
            }
            83..92 => AskedKind::Flush,
            92..95 => AskedKind::Cache,
            _ => AskedKind::BlockStatus,
        };
        (kind, range)
    }

    fn ask(&mut self, index: usize, kind: AskedKind, range: ByteRange) {
        let (fua, flag) = (self.percent(20), self.percent(50));
        let is_fast = kind == AskedKind::WriteZeroes && self.percent(50);
        let started = self.tick();
        let volume = self.clients[index].volume;
        let cell_size = self.volumes[volume].origin.cell;
        let version = match kind {
            AskedKind::Write => self.version(),
            AskedKind::WriteZeroes => 0,
            _ => NO_VERSION,
        };
        let Volume { origin, history, zeroed, .. } = &mut self.volumes[volume];
        let client = &mut self.clients[index];
        let session = client.session.as_mut().expect("it is ready");
        let (offset, length) = (range.offset, range.length as u32);
        let operation = match kind {
            AskedKind::Read => {
                let df = session.export().is_some_and(|export| export.structured_replies) && flag;
                Operation::Read { offset, length, dont_fragment: df }
            }
            AskedKind::Write => Operation::Write { offset, length, fua },
            AskedKind::WriteZeroes => {
                Operation::WriteZeroes { offset, length, fua, no_hole: flag, fast_zero: is_fast }
            }
            AskedKind::Trim => Operation::Trim { offset, length, fua },
            AskedKind::Flush => Operation::Flush,
            AskedKind::Cache => Operation::Cache { offset, length },
            AskedKind::BlockStatus if session.export().is_some_and(|export| export.block_status) => {
                Operation::BlockStatus { offset, length, one_extent: flag && self.last_look.is_none() }
            }
            AskedKind::BlockStatus => return,
        };
        let cookie = client.next_cookie;
        client.next_cookie += 1;
        let mut output = Vec::new();
        session.submit(cookie, operation, &mut output).expect("a request that the server offers");
        if kind == AskedKind::Write {
            origin.cells(range).for_each(|cell| output.extend(cell_bytes(version, cell, cell_size)));
        }
        if version != NO_VERSION {
            for cell in origin.cells(range) {
                history.write(cell, version, started, fua);
                if version == 0 {
                    zeroed.insert(cell);
                }
            }
        }
        client.outbox.extend(output);
        let data = if kind == AskedKind::Read { vec![0xdd; range.length as usize] } else { Vec::new() };
        let extents = Vec::new();
        client.asked.insert(cookie, Asked { started, kind, range, version, data, extents });
        self.course.requests += 1;
        note!(self, "client {index} asks {cookie}: {operation:?} of volume {volume}, version {version}");
        self.empty_outbox(index);
    }

    pub(crate) fn version(&mut self) -> u64 {
        self.next_version += 1;
        self.next_version
    }

    /// Hands the client's bytes to its connection as far as that takes them.
    pub(crate) fn empty_outbox(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let Some(id) = client.connection else { return };
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.is_cut {
            client.outbox.clear();
            return;
        }
        let count = client.outbox.len().min(connection.to_server.room(connection.capacity));
        let bytes: Vec<u8> = client.outbox.drain(..count).collect();
        connection.to_server.send(&bytes);
        self.schedule_arrival(id, true);
    }

    /// Bytes of the daemon, or the end of them, arrive.
    pub(crate) fn arrive_at_client(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.to_client.is_scheduled = false;
        let index = connection.client;
        if self.clients[index].connection != Some(id) {
            connection.to_client = Pipe { is_ended: true, ..Pipe::default() };
            return self.forget_connection_if_over(id);
        }
        if self.clients[index].deaf_until > self.now {
            connection.to_client.is_scheduled = true;
            let delay = self.clients[index].deaf_until - self.now;
            return self.schedule(delay, Event::Arrival { connection: id, to_server: false });
        }
        if connection.to_client.is_empty() {
            if connection.to_client.is_ended {
                self.connection_ended(index, id);
            }
            return;
        }
        let bytes = connection.to_client.take(connection.piece_max, &mut self.random);
        self.clients[index].input.extend_from_slice(&bytes);
        self.room_for_server(id);
        self.hear(index);
        self.schedule_arrival(id, false);
    }

    fn connection_ended(&mut self, index: usize, id: u64) {
        note!(self, "connection {id} of client {index} ended");
        let client = &self.clients[index];
        if client.is_leaving && !client.is_forsaken {
            assert!(
                client.asked.is_empty(),
                "client {index} said goodbye, and its connection ended without answers to {:?}",
                client.asked
            );
        } else if !client.is_forsaken {
            assert!(!client.is_ready, "the daemon closed connection {id} for no reason");
        }
        if !client.is_leaving || client.is_forsaken {
            self.note_lost(index);
        }
        self.forsake(index, false);
        self.clients[index].connection = None;
        self.clients[index].is_ready = false;
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.to_server.is_ended = true;
            self.schedule_arrival(id, true);
        }
        self.forget_connection_if_over(id);
        self.think_soon(index);
    }

    /// A connection of this client ended without a farewell.
    pub(crate) fn note_lost(&mut self, index: usize) {
        let (volume, now) = (self.clients[index].volume, self.tick());
        self.volumes[volume].lost_at = now;
    }

    pub(crate) fn forget_connection_if_over(&mut self, id: u64) {
        let Some(connection) = self.connections.get(&id) else { return };
        let is_used = self.clients[connection.client].connection == Some(id);
        if matches!(connection.server, ServerEnd::Closed) && !is_used {
            self.connections.remove(&id);
        }
    }

    /// The client understands what it can of what it holds.
    fn hear(&mut self, index: usize) {
        let mut consumed = 0;
        let mut output = Vec::new();
        loop {
            let client = &mut self.clients[index];
            let session = client.session.as_mut().expect("it is connected");
            let parsed = match session.receive(&client.input[consumed..], &mut output) {
                Ok(parsed) => parsed,
                Err(error) if !client.is_ready => {
                    // The volume is away for now.
                    note!(self, "client {index}: {error}");
                    self.clients[index].is_forsaken = true;
                    return self.hang_up(index);
                }
                Err(error) => panic!("client {index} is answered rubbish: {error}"),
            };
            consumed += parsed.consumed;
            match parsed.event {
                ClientEvent::NeedMore => break,
                ClientEvent::Progress => {}
                ClientEvent::Ready(export) => {
                    let volume = &self.volumes[client.volume];
                    assert_eq!(export.size_bytes, volume.origin.traits.size_bytes);
                    client.is_ready = true;
                    self.think_soon(index);
                }
                ClientEvent::Data { cookie, offset, bytes } => {
                    let asked = client.asked.get_mut(&cookie).expect("the session knows its cookies");
                    let at = (offset - asked.range.offset) as usize;
                    asked.data[at..at + bytes.len()].copy_from_slice(bytes);
                }
                ClientEvent::Hole { cookie, range } => {
                    let asked = client.asked.get_mut(&cookie).expect("the session knows its cookies");
                    let at = (range.offset - asked.range.offset) as usize;
                    asked.data[at..at + range.length as usize].fill(0);
                }
                ClientEvent::Extents { cookie, extents } => {
                    let asked = client.asked.get_mut(&cookie).expect("the session knows its cookies");
                    let zero = AllocationFlags::ZERO;
                    let told = extents.map(|extent| (extent.length.into(), extent.flags.contains(zero)));
                    asked.extents.extend(told);
                }
                ClientEvent::Done { cookie, result } => self.answered(index, cookie, result),
                event => panic!("client {index} is told {event:?}"),
            }
        }
        let client = &mut self.clients[index];
        client.input.drain(..consumed);
        client.outbox.extend(output);
        self.empty_outbox(index);
    }

    /// The client leaves without a word.
    fn hang_up(&mut self, index: usize) {
        self.note_lost(index);
        self.forsake(index, false);
        let client = &mut self.clients[index];
        client.is_ready = false;
        let id = client.connection.take().expect("it is connected");
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.to_server.is_ended = true;
            self.schedule_arrival(id, true);
            self.schedule_arrival(id, false);
        }
        self.think_soon(index);
    }

    /// An answer: it must be one that the history allows.
    fn answered(&mut self, index: usize, cookie: u64, result: Result<(), ReplyError>) {
        let asked = self.clients[index].asked.remove(&cookie).expect("every request is answered once");
        let volume = self.clients[index].volume;
        self.course.answers += 1;
        if self.log.is_some() {
            let cell = self.volumes[volume].origin.cell as usize;
            let words: Vec<u64> = asked
                .data
                .chunks(cell)
                .map(|bytes| u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) >> 16)
                .collect();
            note!(self, "client {index} is answered {cookie}: {result:?}, versions {words:?}");
        }
        let now = self.tick();
        if let Err(error) = result {
            self.course.errors += 1;
            self.judge_error(volume, &asked, &error, now);
        } else {
            self.judge_success(volume, &asked, now);
        }
        self.think_soon(index);
    }

    fn judge_success(&mut self, volume: usize, asked: &Asked, now: u64) {
        let Volume { origin, history, .. } = &mut self.volumes[volume];
        match asked.kind {
            AskedKind::Read => {
                for (cell, bytes) in origin.cells(asked.range).zip(asked.data.chunks(origin.cell as usize)) {
                    history.read(cell, version_in(bytes, cell), asked.started, now);
                }
            }
            AskedKind::Write | AskedKind::WriteZeroes => {
                for cell in origin.cells(asked.range) {
                    assert!(
                        origin.written.contains(&(cell, asked.version)),
                        "version {} of cell {cell} of volume {volume} was acknowledged before the origin had it",
                        asked.version
                    );
                    history.write_acknowledged(cell, asked.version, now);
                }
            }
            AskedKind::Flush => {
                assert!(
                    origin.flushes.iter().any(|(submitted, _)| *submitted >= asked.started),
                    "a flush of volume {volume} was acknowledged that the origin has not done since it was asked for"
                );
                history.flushed(asked.started);
            }
            AskedKind::BlockStatus => {
                // "Reads as zeroes" is judged as a read of zeroes would be. When nothing goes on, everything is told.
                let is_last_look = self.last_look.is_some();
                let mut at = asked.range.offset;
                for (length, is_zero) in &asked.extents {
                    let told = ByteRange::new(at, *length);
                    at = told.end();
                    assert!(at <= asked.range.end(), "extents pass the end of {:?}", asked.range);
                    for cell in origin.cells(told) {
                        if *is_zero {
                            self.course.zeroes += 1;
                            history.read(cell, 0, asked.started, now);
                        }
                        assert!(
                            !is_last_look || *is_zero == (origin.held(cell) == 0),
                            "cell {cell} is said to be zero: {is_zero}, and the origin holds version {}",
                            origin.held(cell)
                        );
                    }
                }
                assert!(
                    !is_last_look || at == asked.range.end(),
                    "a volume at rest is not described as a whole"
                );
            }
            AskedKind::Trim | AskedKind::Cache => {}
        }
    }

    /// An error must be one that the origin made while the request was under way, or the end of the volume.
    fn judge_error(&mut self, volume: usize, asked: &Asked, error: &ReplyError, now: u64) {
        let Volume { origin, history, failures, doubts, lost_at, drained_at, block, limits, .. } =
            &mut self.volumes[volume];
        if asked.kind.changes_content() && asked.version != NO_VERSION {
            for cell in origin.cells(asked.range) {
                if origin.lost.contains(&(cell, asked.version)) {
                    history.write_doubted(cell, asked.version, now);
                } else {
                    history.write_failed(cell, asked.version, now);
                }
            }
        }
        if error.code == ErrorCode::from_linux(forebay_nbd::wire::LinuxErrno(108)) {
            assert!(*drained_at >= asked.started, "volume {volume} is said to be going, and is not");
            return;
        }
        let first = asked.range.offset / *block * *block;
        let asked_blocks = ByteRange::new(first, asked.range.end().next_multiple_of(*block) - first);
        let overlaps =
            |range: &ByteRange| range.offset < asked_blocks.end() && asked_blocks.offset < range.end();
        let failure = failures.iter_mut().find(|failure| {
            failure.code == error.code
                && match asked.kind {
                    AskedKind::Flush => {
                        (failure.is_flush || failure.is_forced)
                            && (failure.at >= asked.started || !failure.is_told || failure.at < *lost_at)
                    }
                    kind => {
                        failure.at >= asked.started
                            && kind.changes_content() == failure.is_change
                            && !failure.is_flush
                            && overlaps(&failure.range)
                    }
                }
        });
        let is_failure = failure.is_some();
        // An error of the same blocks may be another one's; and whose flush fails with another's is not known to be who has to hear of that.
        if let Some(failure) = failure {
            failure.is_told |= match asked.kind {
                AskedKind::Flush => failure.at < asked.started,
                _ => failure.version == asked.version,
            };
        }
        let is_doubt = asked.kind.changes_content()
            && error.code == ErrorCode::Io
            && doubts.iter().any(|doubt| {
                doubt.to >= asked.started && (limits.doubt_runs_max < 100 || overlaps(&doubt.range))
            });
        assert!(
            is_failure || is_doubt,
            "{:?} of {:?} of volume {volume} is answered with {:?}, which no origin said meanwhile",
            asked.kind,
            asked.range,
            error.code
        );
    }
}
