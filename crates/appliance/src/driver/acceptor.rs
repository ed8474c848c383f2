//! The acceptor thread: listeners and handshakes, until a client has chosen an export and belongs to a worker.
//!
//! Invariant: at most [`HANDSHAKES_MAX`] handshakes at once, each with a deadline and with bounded buffers, so that slow
//! or silent clients cost a bounded amount and keep nobody out for long: where others wait, who began first gives way after [`CROWDED_TIME_MAX`]. Who asks much and quickly has a
//! turn like anybody: what is received at once is answered as far as [`HANDSHAKE_OUTPUT_BYTES_MAX`], and nothing is received behind what was not.

use super::inbox::{ConnectionGuard, Inbox, Message};
use super::socket::{Received, Socket};
use super::{CROWDED_TIME_MAX, EVENTS_MAX, HANDSHAKE_TIME_MAX, HANDSHAKES_MAX, Listener, RECEIVE_BYTES};
use crate::clock::Clock;
use crate::refusals::{Door, Reason, RefusedCounts};
use crate::service::{Directory, Output, Refused};
use crate::slab::{Slab, SlabKey};
use forebay_nbd::server::{Config, Event, ProtocolError, Session, TlsPolicy};
use forebay_tls::{ServerTls, Tunnels};
use forebay_units::{Nanos, Sparing};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::time::Timespec;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

/// The event that wakes the thread to end.
const WAKE: u64 = u64::MAX;
/// Listener `i` has this plus `i`; keys of handshakes lie below, since a generation would have to reach 2^31 first.
const LISTENERS: u64 = 1 << 63;

/// Answers of a handshake that its client has not taken, above which no more of its questions are answered (ours). One answer may pass
/// it: a list of all exports.
const HANDSHAKE_OUTPUT_BYTES_MAX: usize = 64 << 10;

/// How long no connection is accepted after the system had no file descriptor left for one.
const ACCEPT_PAUSE: Nanos = Nanos::millis(100);
/// That none can be accepted is told once in so long (ours).
const ACCEPT_TOLD_EVERY: Nanos = Nanos::secs(60);

struct Handshake {
    socket: Socket,
    session: Session,
    input: Vec<u8>,
    output: Output,
    began: Nanos,
    guard: ConnectionGuard,
    interest: EventFlags,
    /// Questions were received that are answered in a later turn, since there were answers enough for one.
    is_behind: bool,
    /// The client asked for TLS: it begins once the answer was sent. Until then nothing of it is received.
    starts_tls: bool,
    requires_tls: bool,
    /// Why something was refused to it already: who asks a hundred times on a connection was refused once.
    refused: Vec<Reason>,
}

impl Handshake {
    /// Says why a client does not get what it wants, the first time.
    fn refuse(
        &mut self,
        now: Nanos,
        door: &mut Door,
        reason: Reason,
        why: &str,
        error: Option<&dyn Display>,
    ) {
        if !self.refused.contains(&reason) {
            self.refused.push(reason);
            door.refuse(now, reason, &self.socket.peer, why, error);
        }
    }

    /// Says why a client that did without TLS, and was told nothing else, got nothing.
    fn note_refusal(&mut self, now: Nanos, door: &mut Door) {
        if self.requires_tls && !self.session.is_tls() && self.refused.is_empty() {
            self.refuse(now, door, Reason::Tls, "client left without TLS, which is required here", None);
        }
    }
}

/// What clients that ask for TLS are given.
#[derive(Clone)]
pub(crate) struct TlsAcceptor {
    pub(crate) certificates: ServerTls,
    pub(crate) tunnels: Arc<Tunnels>,
}

/// What ends the thread.
pub(crate) struct AcceptorHandle {
    wake: OwnedFd,
    ends: AtomicBool,
}

impl AcceptorHandle {
    pub(crate) fn new() -> rustix::io::Result<AcceptorHandle> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(AcceptorHandle { wake, ends: AtomicBool::new(false) })
    }

    pub(crate) fn end(&self) {
        self.ends.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// The state of the acceptor thread.
pub(crate) struct Acceptor {
    epoll: OwnedFd,
    handle: Arc<AcceptorHandle>,
    listeners: Vec<Listener>,
    accepting: bool,
    accept_again_at: Nanos,
    /// Times that the system had no connection to give: ten a second, where the process has no descriptor left.
    unaccepted: Sparing,
    door: Door,
    handshakes: Slab<Handshake>,
    config: Config,
    tls: Option<TlsAcceptor>,
    directory: Arc<RwLock<Directory>>,
    workers: Vec<Arc<Inbox>>,
    connections: Arc<AtomicUsize>,
    connections_max: usize,
    clock: Clock,
    buffer: Vec<u8>,
}

impl Acceptor {
    #[allow(clippy::too_many_arguments, reason = "wiring; each is named where it is called")]
    pub(crate) fn new(
        handle: Arc<AcceptorHandle>,
        listeners: Vec<Listener>,
        config: Config,
        tls: Option<TlsAcceptor>,
        directory: Arc<RwLock<Directory>>,
        workers: Vec<Arc<Inbox>>,
        connections: Arc<AtomicUsize>,
        connections_max: usize,
        refused: Arc<RefusedCounts>,
        clock: Clock,
    ) -> rustix::io::Result<Acceptor> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &handle.wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        for (index, listener) in listeners.iter().enumerate() {
            epoll::add(&epoll, listener, EventData::new_u64(LISTENERS + index as u64), EventFlags::IN)?;
        }
        Ok(Acceptor {
            epoll,
            handle,
            listeners,
            accepting: true,
            accept_again_at: Nanos::ZERO,
            unaccepted: Sparing::new(1, ACCEPT_TOLD_EVERY),
            door: Door::new(refused),
            handshakes: Slab::new(),
            config,
            tls,
            directory,
            workers,
            connections,
            connections_max,
            clock,
            buffer: vec![0; RECEIVE_BYTES],
        })
    }

    /// Runs until it is told to end.
    pub(crate) fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !self.handle.ends.load(Ordering::Acquire) {
            events.clear();
            let timeout = self.timeout();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "epoll_wait failed");
                    return;
                }
            }
            let now = self.clock.now();
            for event in &events {
                let data = event.data;
                match data.u64() {
                    WAKE => {}
                    listener if listener >= LISTENERS => self.accept(now, (listener - LISTENERS) as usize),
                    key => self.proceed(now, SlabKey(key)),
                }
            }
            self.end_late(now);
            self.sum_up(now);
            self.set_accepting(now);
        }
    }

    fn timeout(&self) -> Option<Timespec> {
        let oldest = self.oldest().map(|(_, began)| began);
        let mut at = oldest.map(|began| began.saturating_add(HANDSHAKE_TIME_MAX));
        if !self.accepting && self.accept_again_at > Nanos::ZERO {
            at = Some(at.map_or(self.accept_again_at, |at| at.min(self.accept_again_at)));
        } else if !self.accepting {
            at = oldest.map(|began| began.saturating_add(CROWDED_TIME_MAX));
        }
        let at = [at, self.unaccepted.due(), self.door.due()].into_iter().flatten().min();
        let span = at?.saturating_since(self.clock.now());
        Timespec::try_from(Duration::from(span)).ok()
    }

    fn accept(&mut self, now: Nanos, listener: usize) {
        while self.has_room(now) {
            let socket = match self.listeners[listener].accept() {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                Err(error) => {
                    if self.unaccepted.tells(now, || error.to_string()) {
                        let address = &self.listeners[listener].address;
                        tracing::warn!(%error, listener = %address, "cannot accept a connection; it is tried again, and told once a minute");
                    }
                    self.accept_again_at = now.saturating_add(ACCEPT_PAUSE);
                    return;
                }
            };
            if self.connections.load(Ordering::Relaxed) >= self.connections_max && !self.ends_oldest(now) {
                let most = format_args!("{} are the most", self.connections_max);
                let why = "too many connections; refused one";
                self.door.refuse(now, Reason::Limit, &socket.peer, why, Some(&most));
                continue;
            }
            if self.handshakes.len() >= HANDSHAKES_MAX {
                self.ends_oldest(now);
            }
            let mut output = Output::default();
            let tls = self.listeners[listener].tls;
            let config = Config { tls, ..self.config.clone() };
            let session = output.append(|output| Session::new(config, output));
            let handshake = Handshake {
                socket,
                session,
                input: Vec::new(),
                output,
                began: now,
                guard: ConnectionGuard::new(&self.connections),
                interest: EventFlags::IN,
                is_behind: false,
                starts_tls: false,
                requires_tls: tls == TlsPolicy::Required,
                refused: Vec::new(),
            };
            let key = self.handshakes.insert(handshake);
            let handshake = self.handshakes.get(key).expect("inserted above");
            let data = EventData::new_u64(key.0);
            if let Err(error) = epoll::add(&self.epoll, &handshake.socket, data, EventFlags::IN) {
                tracing::error!(%error, "epoll_ctl failed; client disconnected");
                self.handshakes.remove(key);
                continue;
            }
            self.proceed(now, key);
        }
    }

    /// The handshake that began first, and when.
    fn oldest(&self) -> Option<(SlabKey, Nanos)> {
        self.handshakes.iter().map(|(key, handshake)| (key, handshake.began)).min_by_key(|(_, began)| *began)
    }

    /// The handshake that began first, if it has had its time, so that who says nothing keeps nobody out for long.
    fn overdue(&self, now: Nanos) -> Option<SlabKey> {
        let has_had_its_time = |began: Nanos| now.saturating_since(began) >= CROWDED_TIME_MAX;
        self.oldest().filter(|(_, began)| has_had_its_time(*began)).map(|(key, _)| key)
    }

    /// Whether another one may begin, also in the place of one that has had its time.
    fn has_room(&self, now: Nanos) -> bool {
        self.handshakes.len() < HANDSHAKES_MAX || self.overdue(now).is_some()
    }

    /// Ends the handshake that began first, for who waits; whether it has had its time.
    fn ends_oldest(&mut self, now: Nanos) -> bool {
        let oldest = self.overdue(now).and_then(|key| self.handshakes.remove(key));
        if let Some(handshake) = &oldest {
            let why = "client has not chosen an export, and others wait; disconnected";
            self.door.refuse(now, Reason::Timeout, &handshake.socket.peer, why, None);
        }
        oldest.is_some()
    }

    /// Stops accepting while there is no room, and starts again.
    fn set_accepting(&mut self, now: Nanos) {
        if now >= self.accept_again_at {
            // Nobody has to wake for it any more.
            self.accept_again_at = Nanos::ZERO;
        }
        let accepting = self.accept_again_at == Nanos::ZERO && self.has_room(now);
        if accepting != self.accepting {
            self.accepting = accepting;
            let interest = if accepting { EventFlags::IN } else { EventFlags::empty() };
            for (index, listener) in self.listeners.iter().enumerate() {
                let data = EventData::new_u64(LISTENERS + index as u64);
                if let Err(error) = epoll::modify(&self.epoll, listener, data, interest) {
                    tracing::error!(%error, "epoll_ctl failed");
                }
            }
        }
    }

    /// Tells of what was not told one by one, if it is time.
    fn sum_up(&mut self, now: Nanos) {
        self.door.sum_up(now);
        if let Some((untold, error)) = self.unaccepted.untold(now) {
            tracing::warn!(
                error,
                untold,
                "cannot accept connections; it is tried again, and told once a minute"
            );
        }
    }

    fn end_late(&mut self, now: Nanos) {
        let late: Vec<SlabKey> = self
            .handshakes
            .iter()
            .filter(|(_, handshake)| now.saturating_since(handshake.began) >= HANDSHAKE_TIME_MAX)
            .map(|(key, _)| key)
            .collect();
        for key in late {
            if let Some(handshake) = self.handshakes.remove(key) {
                let why = "client chose no export in time; disconnected";
                self.door.refuse(now, Reason::Timeout, &handshake.socket.peer, why, None);
            }
        }
    }

    /// Receives, answers and sends as far as it goes without waiting, and as far as one turn goes.
    fn proceed(&mut self, now: Nanos, key: SlabKey) {
        let Some(handshake) = self.handshakes.get_mut(key) else { return };
        // Who does not take its answers is not asked for more questions.
        let received = match handshake.starts_tls || handshake.is_behind || !handshake.output.is_empty() {
            true => Received::Nothing,
            false => handshake.socket.receive(&mut self.buffer),
        };
        match received {
            Received::Bytes(count) => handshake.input.extend_from_slice(&self.buffer[..count]),
            Received::Nothing => {}
            Received::End => {
                handshake.note_refusal(now, &mut self.door);
                self.handshakes.remove(key);
                return;
            }
        }
        let mut chosen = None;
        let mut is_over = false;
        let mut is_too_many = false;
        let mut consumed = 0;
        {
            let directory = self.directory.read().expect("nobody panics while holding the directory");
            while !is_over
                && !handshake.starts_tls
                && chosen.is_none()
                && handshake.output.len() <= HANDSHAKE_OUTPUT_BYTES_MAX
            {
                let input = &handshake.input[consumed..];
                let session = &mut handshake.session;
                let parsed = handshake.output.append(|output| {
                    let parsed = session.receive(input, &*directory, output)?;
                    let event = match parsed.event {
                        Event::NeedMore => Step::Wait,
                        Event::ExportChosen(export) => Step::Chosen(export.name),
                        Event::Disconnect(_) => Step::Over,
                        Event::UpgradeTls => Step::Tls,
                        Event::ExportRefused { name, is_choice } => Step::Refused(name.to_owned(), is_choice),
                        _ => Step::Next,
                    };
                    Ok::<_, ProtocolError>((parsed.consumed, event))
                });
                match parsed {
                    Ok((count, step)) => {
                        consumed += count;
                        match step {
                            Step::Wait => break,
                            Step::Next => {}
                            Step::Over => is_over = true,
                            Step::Tls => handshake.starts_tls = true,
                            Step::Refused(name, is_choice) => {
                                let Refused { reason, why, of } = directory.refused(&name);
                                // Who only looks around is refused nothing; but a secret is guessed by any question.
                                if is_choice || reason == Reason::Secret {
                                    handshake.refuse(now, &mut self.door, reason, why, Some(&of));
                                }
                            }
                            Step::Chosen(name) => {
                                chosen = directory
                                    .resolve(&name)
                                    .map(|(entry, entrance)| (entry.clone(), entrance));
                                is_over = chosen.is_none();
                                let (connections, most) =
                                    (self.connections.load(Ordering::Relaxed), self.connections_max);
                                is_too_many = chosen
                                    .as_ref()
                                    .is_some_and(|(entry, _)| !directory.has_room(entry, connections, most));
                            }
                        }
                    }
                    // Its words have the name as it came, with what was shown as a secret.
                    Err(ProtocolError::UnknownExport { name }) => {
                        let Refused { reason, why, of } = directory.refused(&name);
                        handshake.refuse(now, &mut self.door, reason, why, Some(&of));
                        is_over = true;
                    }
                    Err(ProtocolError::TlsRequired) => is_over = true,
                    Err(error) => {
                        let why = "client breaks the protocol; disconnected";
                        handshake.refuse(now, &mut self.door, Reason::Protocol, why, Some(&error));
                        is_over = true;
                    }
                }
            }
        }
        if let Some((entry, _)) = chosen.as_ref().filter(|_| is_too_many) {
            let (name, has) = (&entry.export.name, entry.connections.load(Ordering::Relaxed));
            let of = format_args!(
                "volume `{name}` has {has} of {} at most; the rest is kept for others",
                self.connections_max
            );
            let why = "too many connections of one volume; refused one";
            handshake.refuse(now, &mut self.door, Reason::Limit, why, Some(&of));
            // It is not told that it has what it chose.
            self.handshakes.remove(key);
            return;
        }
        handshake.input.drain(..consumed);
        handshake.is_behind = handshake.output.len() > HANDSHAKE_OUTPUT_BYTES_MAX;
        while !handshake.output.is_empty() {
            match handshake.socket.send(&handshake.output) {
                Ok(0) => break,
                Ok(count) => handshake.output.advance(count),
                Err(_) => {
                    is_over = true;
                    break;
                }
            }
        }
        if handshake.starts_tls && !handshake.input.is_empty() {
            let why = "bytes in the clear behind the request for TLS; disconnected";
            handshake.refuse(now, &mut self.door, Reason::Tls, why, None);
            is_over = true;
        }
        if is_over {
            handshake.note_refusal(now, &mut self.door);
            self.handshakes.remove(key);
            return;
        }
        if handshake.starts_tls && handshake.output.is_empty() {
            return self.upgrade(key);
        }
        let Some((entry, entrance)) = chosen else { return self.set_interest(key) };
        let mut handshake = self.handshakes.remove(key).expect("looked up above");
        handshake.guard.count(&entry.connections);
        if let Err(error) = epoll::delete(&self.epoll, &handshake.socket) {
            tracing::error!(%error, "epoll_ctl failed; client disconnected");
            return;
        }
        tracing::debug!(peer = %handshake.socket.peer, volume = %entry.export.name, "client connected");
        let mut output = Vec::new();
        handshake.output.copy_to(&mut output);
        self.workers[entry.worker].send(Message::Open {
            socket: handshake.socket,
            session: Box::new(handshake.session),
            input: handshake.input,
            output,
            volume: entry.volume,
            entrance,
            guard: handshake.guard,
        });
    }

    /// Puts TLS between the client and its session.
    fn upgrade(&mut self, key: SlabKey) {
        let Some(mut handshake) = self.handshakes.remove(key) else { return };
        let Some(tls) = &self.tls else { return };
        let _ = epoll::delete(&self.epoll, &handshake.socket);
        let peer = format!("{} (TLS)", handshake.socket.peer);
        let client = handshake.socket.client;
        let inner = match tls.tunnels.accept(&tls.certificates, handshake.socket.into_fd(), &peer) {
            Ok(inner) => inner,
            Err(error) => return tracing::error!(peer, %error, "cannot begin TLS; client disconnected"),
        };
        handshake.socket = Socket::new(inner, peer, client);
        handshake.session.tls_established();
        handshake.starts_tls = false;
        handshake.interest = EventFlags::IN;
        let key = self.handshakes.insert(handshake);
        let handshake = self.handshakes.get(key).expect("inserted above");
        if let Err(error) =
            epoll::add(&self.epoll, &handshake.socket, EventData::new_u64(key.0), EventFlags::IN)
        {
            tracing::error!(%error, "epoll_ctl failed; client disconnected");
            self.handshakes.remove(key);
        }
    }

    fn set_interest(&mut self, key: SlabKey) {
        let Some(handshake) = self.handshakes.get_mut(key) else { return };
        // A client that does not take its answers is not asked for more questions. Who has taken them is told more as soon as it takes that.
        let is_asked = handshake.output.is_empty() && !handshake.is_behind;
        let interest = if is_asked { EventFlags::IN } else { EventFlags::OUT };
        if interest != handshake.interest {
            handshake.interest = interest;
            if epoll::modify(&self.epoll, &handshake.socket, EventData::new_u64(key.0), interest).is_err() {
                self.handshakes.remove(key);
            }
        }
    }
}

/// What a step of the handshake asks of the loop.
enum Step {
    Wait,
    Next,
    Over,
    Tls,
    /// No such export for this client, and whether it would have been chosen.
    Refused(String, bool),
    Chosen(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::ListenerConfig;
    use crate::service::DirectoryEntry;
    use forebay_nbd::wire::{ClientFlags, OptionCode, OptionHeader};
    use forebay_nbd::{ExportInfo, RunId};
    use forebay_origin::{MemoryImage, MemoryOrigin};
    use forebay_units::Bytes;
    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::net::UnixStream;

    /// Volumes of which a list is longer than the answers of one turn.
    fn many_volumes() -> Directory {
        let origin = Arc::new(MemoryOrigin::new(Arc::new(MemoryImage::new(Bytes(1)))));
        let entry = |name: &String| DirectoryEntry {
            export: ExportInfo { description: "d".repeat(4096), ..ExportInfo::new(name, 1) },
            worker: 0,
            worker_ended: Arc::default(),
            volume: SlabKey(0),
            is_in_doubt: Arc::default(),
            connections: Arc::default(),
            origin: origin.clone(),
            lease: None,
            secret: None,
            run: RunId(1),
        };
        let names = (0..20).map(|index| format!("volume-{index}"));
        Directory { entries: names.map(|name| (name.clone(), entry(&name))).collect() }
    }

    /// What came, without waiting.
    fn take(client: &mut UnixStream) -> usize {
        let mut buffer = [0; 64 << 10];
        let mut taken = 0;
        loop {
            match client.read(&mut buffer) {
                Ok(0) => return taken,
                Ok(count) => taken += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return taken,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn acceptor_at(path: &std::path::Path, directory: Directory) -> Acceptor {
        let listeners = vec![Listener::open(&ListenerConfig::Unix { path: path.to_owned() }).unwrap()];
        Acceptor::new(
            Arc::new(AcceptorHandle::new().unwrap()),
            listeners,
            Config::default(),
            None,
            Arc::new(RwLock::new(directory)),
            Vec::new(),
            Arc::default(),
            2 * HANDSHAKES_MAX,
            Arc::default(),
            Clock::start(),
        )
        .unwrap()
    }

    #[test]
    fn a_pause_that_is_over_wakes_nobody_while_there_is_no_room() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let mut acceptor = acceptor_at(&path, Directory::default());
        let now = acceptor.clock.now();
        // There was no descriptor left a while ago.
        acceptor.accept_again_at = now;
        let connect = |_| UnixStream::connect(&path).unwrap();
        let mut clients: Vec<UnixStream> = Vec::new();
        while acceptor.handshakes.len() < HANDSHAKES_MAX {
            clients.extend((0..64).map(connect));
            acceptor.accept(now, 0);
        }
        acceptor.set_accepting(now);
        assert!(!acceptor.accepting);
        assert_ne!(acceptor.timeout(), Some(Timespec::default()), "it would not wait at all");
    }

    #[test]
    fn of_many_that_are_sent_away_those_that_were_not_told_of_are_summed_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let mut acceptor = acceptor_at(&path, Directory::default());
        let (begin, minute) = (acceptor.clock.now(), Nanos::secs(60));
        for _ in 0..20 {
            let mut client = UnixStream::connect(&path).unwrap();
            client.write_all(&[0xff; 4]).unwrap();
            acceptor.accept(begin, 0);
            let (key, _) = acceptor.handshakes.iter().next().expect("it is greeted");
            acceptor.proceed(begin, key);
        }
        assert_eq!(acceptor.handshakes.len(), 0);
        assert_eq!(acceptor.door.due(), Some(begin + minute));
        assert!(acceptor.timeout().is_some(), "nobody would sum up");
        acceptor.sum_up(begin + minute);
        assert_eq!(acceptor.door.due(), None);
        assert_eq!(acceptor.timeout(), None);
    }

    #[test]
    fn who_says_nothing_gives_way_to_others_that_wait() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let mut acceptor = acceptor_at(&path, many_volumes());
        let connect = |_| UnixStream::connect(&path).unwrap();
        let mut silent: Vec<UnixStream> = Vec::new();
        let second = |number: u64| Nanos::secs(number);
        for batch in 0..4 {
            silent.extend((0..64).map(connect));
            acceptor.accept(second(100 + batch), 0);
        }
        let mut good = connect(0);
        good.set_nonblocking(true).unwrap();
        let is_greeted = |client: &mut UnixStream| take(client) > 0;
        // Of those that began half a second ago nobody has had its time, and the oldest have.
        acceptor.set_accepting(Nanos(second(101).0 - 1));
        assert!(!acceptor.accepting);
        acceptor.accept(Nanos(second(101).0 - 1), 0);
        assert!(!is_greeted(&mut good));
        acceptor.set_accepting(second(101));
        assert!(acceptor.accepting);
        acceptor.accept(second(101), 0);
        assert!(is_greeted(&mut good));
        let is_gone = |client: &mut UnixStream| {
            client.set_nonblocking(true).unwrap();
            take(client);
            client.read(&mut [0]).is_ok_and(|count| count == 0)
        };
        assert_eq!(silent.iter_mut().filter_map(|client| is_gone(client).then_some(())).count(), 1);
        assert_eq!(acceptor.handshakes.len(), HANDSHAKES_MAX);
    }

    #[test]
    fn who_asks_more_than_one_turn_answers_is_not_received_before_that_is_answered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let mut acceptor = acceptor_at(&path, many_volumes());
        let mut client = UnixStream::connect(path).unwrap();
        client.set_nonblocking(true).unwrap();
        acceptor.accept(Nanos::ZERO, 0);
        let flags = ClientFlags::FIXED_NEWSTYLE.with(ClientFlags::NO_ZEROES);
        client.write_all(&flags.0.to_be_bytes()).unwrap();
        let mut questions = Vec::new();
        (0..4096).for_each(|_| OptionHeader::encode(OptionCode::List.number(), 0, &mut questions));
        let list_bytes = 20 * (20 + 4 + 4096 + "volume-10".len()) + 20;
        let mut asked = 0;
        let mut answered = 0;
        for _ in 0..100 {
            // It asks as much as the socket takes, and takes every answer at once.
            let rest = &questions[asked % questions.len()..];
            asked += client.write(rest).unwrap_or(0);
            let (key, _) = acceptor.handshakes.iter().next().expect("it breaks no rule");
            acceptor.proceed(Nanos::ZERO, key);
            let received = acceptor.handshakes.get(key).unwrap().input.len();
            assert!(received <= 2 * RECEIVE_BYTES, "{received} bytes were received and not answered");
            let turn = take(&mut client);
            assert!(turn <= HANDSHAKE_OUTPUT_BYTES_MAX + list_bytes, "{turn} bytes in one turn");
            answered += turn;
        }
        assert!(answered > 50 * list_bytes, "{answered}");
    }
}
