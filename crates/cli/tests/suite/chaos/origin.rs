//! A stranger's NBD server that keeps what it holds apart from what a loss of power would leave, and that can be told to misbehave.
//!
//! What a connection that ended has asked for and was not begun is dropped before the next connection is taken: `fences_on_disconnect`.

use super::draw::Draw;
use crate::ledger::SECTOR;
use forebay_nbd::server::{Config, Event, Payload, ReplyEncoder, Request, Session};
use forebay_nbd::wire::{Command, ErrorCode};
use forebay_nbd::{BlockSizes, ExportInfo};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Requests of one connection that may wait for their delay.
const WAITING_MAX: usize = 64;
/// A loss of power leaves so many of 100 sectors that were not flushed.
const LEFT_PERCENT: usize = 30;

/// How it behaves.
#[derive(Clone, Copy, Default)]
pub(super) struct Manners {
    /// So many of 100 fail.
    pub(super) reads_failing: usize,
    pub(super) writes_failing: usize,
    pub(super) flushes_failing: usize,
    /// Answers take up to so long, each its own time.
    pub(super) delay: Duration,
    /// Takes requests and answers none.
    pub(super) is_stalled: bool,
    /// Takes nobody new.
    pub(super) refuses: bool,
}

struct Connection {
    stream: UnixStream,
    /// Nothing of it is begun any more. Set and looked at under the lock of the disk.
    is_over: AtomicBool,
    waiting: AtomicUsize,
    /// Answers go out whole.
    sending: Mutex<()>,
}

impl Connection {
    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Whether the other end has closed it.
    fn is_left(&self) -> bool {
        let mut polled = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&now)).is_ok()
            && polled[0].revents().intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR)
    }

    fn send(&self, bytes: &[u8]) -> bool {
        let _whole = self.sending.lock().expect("nobody panics while it is held");
        (&self.stream).write_all(bytes).is_ok()
    }
}

struct Disk {
    live: Vec<u8>,
    stable: Vec<u8>,
    /// Sectors that no flush covers.
    dirty: BTreeSet<usize>,
    manners: Manners,
    draw: Draw,
    connections: Vec<Arc<Connection>>,
}

struct Shared {
    disk: Mutex<Disk>,
    /// The manners have changed, or a connection is over.
    changed: Condvar,
    export: ExportInfo,
    config: Config,
    is_closing: AtomicBool,
}

pub(super) struct Origin {
    shared: Arc<Shared>,
    pub(super) path: PathBuf,
}

impl Origin {
    /// One that serves `db` of `bytes` zeroes at `path`.
    pub(super) fn start(path: &Path, bytes: usize, mut draw: Draw) -> Origin {
        let listener = UnixListener::bind(path).expect("the folder takes sockets");
        let min = draw.of(&[1, SECTOR as u32]);
        let export = ExportInfo {
            trim: true,
            write_zeroes: true,
            multi_conn: true,
            block_sizes: BlockSizes { min, ..BlockSizes::default() },
            ..ExportInfo::new("db", bytes as u64)
        };
        let config = Config {
            structured_replies: draw.percent(50),
            payload_whole_bytes_max: 32 << 20,
            ..Config::default()
        };
        let disk = Disk {
            live: vec![0; bytes],
            stable: vec![0; bytes],
            dirty: BTreeSet::new(),
            manners: Manners::default(),
            draw,
            connections: Vec::new(),
        };
        let shared = Arc::new(Shared {
            disk: Mutex::new(disk),
            changed: Condvar::new(),
            export,
            config,
            is_closing: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || accepting.accept(&listener));
        Origin { shared, path: path.to_owned() }
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.shared.disk()
    }

    /// From now on it behaves like this.
    pub(super) fn behave(&self, manners: Manners) {
        self.disk().manners = manners;
        self.shared.changed.notify_all();
    }

    /// Ends all connections.
    pub(super) fn cut(&self) {
        self.disk().cut();
        self.shared.changed.notify_all();
    }

    /// Loses power, and takes nobody before it is told to behave. The sectors that are not what they were.
    pub(super) fn lose(&self) -> Vec<usize> {
        let mut disk = self.disk();
        disk.cut();
        disk.manners = Manners { refuses: true, ..Manners::default() };
        let Disk { live, stable, dirty, draw, .. } = &mut *disk;
        let mut gone = Vec::new();
        for sector in std::mem::take(dirty) {
            let bytes = sector * SECTOR..(sector + 1) * SECTOR;
            if draw.percent(LEFT_PERCENT) {
                stable[bytes.clone()].copy_from_slice(&live[bytes.clone()]);
            }
            if live[bytes.clone()] != stable[bytes.clone()] {
                gone.push(sector);
                live[bytes.clone()].copy_from_slice(&stable[bytes]);
            }
        }
        self.shared.changed.notify_all();
        gone
    }

    /// What it holds, and what a loss of power would leave.
    pub(super) fn images(&self) -> [Vec<u8>; 2] {
        let disk = self.disk();
        [disk.live.clone(), disk.stable.clone()]
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::Relaxed);
        self.cut();
        self.behave(Manners::default());
        let _ = UnixStream::connect(&self.path);
    }
}

impl Disk {
    fn cut(&mut self) {
        for connection in self.connections.drain(..) {
            connection.end();
        }
    }

    /// Carries a request out; its answer.
    fn carry_out(&mut self, request: &Request, data: &[u8], replies: ReplyEncoder) -> Vec<u8> {
        let (mut output, range) = (Vec::new(), request.range);
        let bytes = range.offset as usize..(range.offset + range.length) as usize;
        let manners = self.manners;
        let failing = match request.command {
            Command::Read => manners.reads_failing,
            Command::Flush => manners.flushes_failing,
            _ => manners.writes_failing,
        };
        if self.draw.percent(failing) {
            let is_change = !matches!(request.command, Command::Read | Command::Flush);
            if is_change && self.draw.percent(50) {
                let half = (bytes.len() / 2 / SECTOR) * SECTOR;
                self.change(bytes.start..bytes.start + half, data.get(..half));
            }
            replies.error(request.cookie, ErrorCode::Io, "as it was told to", &mut output);
            return output;
        }
        match request.command {
            Command::Read => {
                output.extend_from_slice(&replies.read_header(request));
                output.extend_from_slice(&self.live[bytes]);
                return output;
            }
            Command::Flush => {
                for sector in std::mem::take(&mut self.dirty) {
                    self.make_stable(sector);
                }
            }
            Command::Write => self.change(bytes.clone(), Some(data)),
            _ => self.change(bytes.clone(), None),
        }
        if request.fua() {
            for sector in bytes.start / SECTOR..bytes.end.div_ceil(SECTOR) {
                self.dirty.remove(&sector);
                self.make_stable(sector);
            }
        }
        replies.success(request, &mut output);
        output
    }

    /// Writes `data`, or zeroes.
    fn change(&mut self, bytes: std::ops::Range<usize>, data: Option<&[u8]>) {
        self.dirty.extend(bytes.start / SECTOR..bytes.end.div_ceil(SECTOR));
        match data {
            Some(data) => self.live[bytes].copy_from_slice(data),
            None => self.live[bytes].fill(0),
        }
    }

    fn make_stable(&mut self, sector: usize) {
        let bytes = sector * SECTOR..(sector + 1) * SECTOR;
        self.stable[bytes.clone()].copy_from_slice(&self.live[bytes]);
    }
}

impl Shared {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().expect("nobody panics while it is held")
    }

    fn accept(self: &Arc<Shared>, listener: &UnixListener) {
        for stream in listener.incoming() {
            if self.is_closing.load(Ordering::Relaxed) {
                return;
            }
            let Ok(stream) = stream else { continue };
            let connection = Arc::new(Connection {
                stream,
                is_over: AtomicBool::new(false),
                waiting: AtomicUsize::new(0),
                sending: Mutex::new(()),
            });
            let mut disk = self.disk();
            disk.connections.retain(|other| {
                let is_left = other.is_left();
                if is_left {
                    other.end();
                }
                !is_left
            });
            if disk.manners.refuses {
                continue;
            }
            disk.connections.push(Arc::clone(&connection));
            drop(disk);
            self.changed.notify_all();
            let shared = Arc::clone(self);
            std::thread::spawn(move || {
                shared.serve(&connection);
                let _disk = shared.disk();
                connection.end();
            });
        }
    }

    fn serve(self: &Arc<Shared>, connection: &Arc<Connection>) {
        let exports = vec![self.export.clone()];
        let (mut input, mut output) = (Vec::new(), Vec::new());
        let mut session = Session::new(self.config.clone(), &mut output);
        let mut buffer = vec![0; 256 << 10];
        loop {
            let mut done = 0;
            loop {
                let Ok(parsed) = session.receive(&input[done..], &exports, &mut output) else { return };
                done += parsed.consumed;
                match parsed.event {
                    Event::NeedMore => break,
                    Event::Disconnect(_) => return,
                    Event::Request { request, payload } => {
                        let data = match payload {
                            Payload::Whole(bytes) => bytes,
                            _ => &[],
                        };
                        if !connection.send(&output)
                            || !self.answer(connection, request, data, session.replies())
                        {
                            return;
                        }
                        output.clear();
                    }
                    _ => {}
                }
            }
            input.drain(..done);
            if !connection.send(&output) {
                return;
            }
            output.clear();
            match (&connection.stream).read(&mut buffer) {
                Ok(count @ 1..) => input.extend_from_slice(&buffer[..count]),
                _ => return,
            }
        }
    }

    /// Answers a request, now or later; whether the connection goes on.
    fn answer(
        self: &Arc<Shared>,
        connection: &Arc<Connection>,
        request: Request,
        data: &[u8],
        replies: ReplyEncoder,
    ) -> bool {
        let mut disk = self.disk();
        while connection.waiting.load(Ordering::Relaxed) >= WAITING_MAX && !connection.is_over() {
            disk = self.changed.wait(disk).expect("nobody panics while it is held");
        }
        let delay = disk.manners.delay;
        if delay.is_zero() {
            drop(disk);
            return self.answer_now(connection, &request, data, replies);
        }
        let delay = disk.draw.up_to(delay.as_millis() as usize);
        drop(disk);
        connection.waiting.fetch_add(1, Ordering::Relaxed);
        let (shared, connection, data) = (Arc::clone(self), Arc::clone(connection), data.to_vec());
        std::thread::spawn(move || {
            std::thread::sleep(delay);
            shared.answer_now(&connection, &request, &data, replies);
            connection.waiting.fetch_sub(1, Ordering::Relaxed);
            let _disk = shared.disk();
            shared.changed.notify_all();
        });
        true
    }

    fn answer_now(
        &self,
        connection: &Connection,
        request: &Request,
        data: &[u8],
        replies: ReplyEncoder,
    ) -> bool {
        let mut disk = self.disk();
        while disk.manners.is_stalled && !connection.is_over() {
            disk = self.changed.wait(disk).expect("nobody panics while it is held");
        }
        if connection.is_over() {
            return false;
        }
        let answer = disk.carry_out(request, data, replies);
        drop(disk);
        connection.send(&answer)
    }
}

#[test]
fn a_loss_of_power_takes_most_of_what_was_not_flushed() {
    use forebay_nbd::client::Operation;
    let folder = crate::support::folder();
    let path = folder.path().join("o.sock");
    let origin = Origin::start(&path, 64 * SECTOR, Draw::new(1, 1));
    let patience = Duration::from_secs(60);
    let ask = |operation, data: &[u8]| {
        let mut client = crate::client::Client::connect_within(&path, "db", patience).expect("it serves");
        client.ask(operation, data, ());
        client.send();
        loop {
            if let Some(answer) = client.receive().expect("it answers").into_iter().next() {
                return answer.result;
            }
        }
    };
    let write = |sector: usize, fua| Operation::Write {
        offset: (sector * SECTOR) as u64,
        length: SECTOR as u32,
        fua,
    };
    ask(write(0, false), &[1; SECTOR]).unwrap();
    ask(Operation::Flush, &[]).unwrap();
    ask(write(1, true), &[2; SECTOR]).unwrap();
    for sector in 2..64 {
        ask(write(sector, false), &[3; SECTOR]).unwrap();
    }
    let gone = origin.lose();
    assert!(gone.len() > 20 && gone.len() < 62 && gone[0] > 1, "{gone:?}");
    let [live, stable] = origin.images();
    assert!(live == stable && live[..SECTOR] == [1; SECTOR] && live[SECTOR..2 * SECTOR] == [2; SECTOR]);
    assert!(gone.iter().all(|sector| live[sector * SECTOR] == 0));
    assert!(crate::client::Client::<()>::connect_within(&path, "db", patience).is_err());
    origin.behave(Manners { writes_failing: 100, ..Manners::default() });
    assert!(ask(write(0, false), &[4; SECTOR]).is_err());
}
