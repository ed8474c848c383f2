//! The thread that moves the bytes of all tunnels of one owner.

use crate::files::{ClientTls, ServerTls};
use crate::tunnel::{PIECE_BYTES, Pumped, Tunnel, Unsent};
use forebay_units::{Nanos, Sparing};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::time::Timespec;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;

const WAKE: u64 = u64::MAX;

/// How long one side may take for what is left when the other has closed (ours).
const LINGER: Duration = Duration::from_secs(5);

/// Of connections that fail so many are told one by one, and then how many more a minute (ours): anybody can have a handshake fail, as often as they like.
const TOLD_AT_ONCE_MAX: u32 = 8;
const TOLD_EVERY: Nanos = Nanos::secs(60);

/// Ciphertext that one tunnel holds at most, in bytes: a piece and what the records add to it.
const CIPHERTEXT_BYTES_MAX: usize = PIECE_BYTES + (16 << 10);

/// Why no TLS connection to a server came about.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsConnectError {
    /// What is to be verified cannot be a name.
    #[error("`{name}` is neither a host name nor an address that a certificate could be for")]
    Name {
        /// The name.
        name: String,
    },
    /// The handshake failed: a certificate was not believed, by us or by the server, or there is nothing in common.
    #[error("TLS handshake failed")]
    Handshake {
        /// Why.
        source: io::Error,
    },
    /// The system has no socket, or no thread.
    #[error("cannot start a TLS tunnel")]
    System {
        /// Why.
        source: io::Error,
    },
}

struct Shared {
    wake: OwnedFd,
    new: Mutex<Vec<Tunnel>>,
    ends: AtomicBool,
    open: AtomicUsize,
    /// Handshakes.
    failed: AtomicU64,
}

/// A thread with any number of tunnels. Dropping it closes those whose sockets are still held, and hands on what is left in the others,
/// for at most five seconds.
pub struct Tunnels {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Tunnels {
    /// Starts the thread, called `name`.
    ///
    /// # Errors
    /// The system has no thread or file descriptor left.
    pub fn start(name: &str) -> io::Result<Tunnels> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared {
            wake,
            new: Mutex::default(),
            ends: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            failed: AtomicU64::new(0),
        });
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&set, &shared.wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || Mover::new(of_thread, set).run())?;
        Ok(Tunnels { shared, thread: Some(thread) })
    }

    /// Tunnels that are open, those that still hand on what is left included.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Handshakes that failed so far, but for those of sockets that were dropped before.
    pub fn failed(&self) -> u64 {
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// Serves TLS on `socket`, a connected one whose peer is about to begin with it. What the peer says then arrives at the socket
    /// that is returned (non-blocking), and what is sent there goes to the peer. A handshake that fails is logged with its
    /// reason, and shows as the end of that socket; how long it may take is up to the caller, who drops the socket.
    ///
    /// # Errors
    /// The system has no file descriptor left.
    pub fn accept(&self, tls: &ServerTls, socket: OwnedFd, peer: &str) -> io::Result<OwnedFd> {
        let connection = ServerConnection::new(Arc::clone(&tls.config)).map_err(io::Error::other)?;
        self.add(Connection::Server(connection), socket, Unsent::default(), peer)
    }

    /// Does the TLS handshake on `socket`, which blocks (with whatever timeouts were set on it), and returns the socket for the
    /// conversation in the clear, which blocks as well, and with it what says what becomes of what is not sent in the end. `server_name` is
    /// what the server's certificate must be for.
    ///
    /// # Errors
    /// [`TlsConnectError`].
    pub fn connect<S>(
        &self,
        tls: &ClientTls,
        server_name: &str,
        socket: S,
    ) -> Result<(OwnedFd, Unsent), TlsConnectError>
    where
        S: Read + Write + Into<OwnedFd>,
    {
        let system = |source: io::Error| TlsConnectError::System { source };
        let name = ServerName::try_from(server_name.to_owned())
            .map_err(|_| TlsConnectError::Name { name: server_name.to_owned() })?;
        let mut connection = ClientConnection::new(Arc::clone(&tls.config), name)
            .map_err(|error| TlsConnectError::Handshake { source: io::Error::other(error) })?;
        let mut socket = socket;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket).map_err(|source| TlsConnectError::Handshake { source })?;
        }
        let socket: OwnedFd = socket.into();
        rustix::io::ioctl_fionbio(&socket, true).map_err(|error| system(error.into()))?;
        let unsent = Unsent::default();
        let inner = self.add(Connection::Client(connection), socket, unsent.clone(), server_name);
        let inner = inner.map_err(system)?;
        rustix::io::ioctl_fionbio(&inner, false).map_err(|error| system(error.into()))?;
        Ok((inner, unsent))
    }

    fn add(
        &self,
        mut connection: Connection,
        socket: OwnedFd,
        unsent: Unsent,
        peer: &str,
    ) -> io::Result<OwnedFd> {
        connection.set_buffer_limit(Some(CIPHERTEXT_BYTES_MAX));
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let tunnel = Tunnel::new(socket, ours, connection, unsent, peer.to_owned());
        self.shared.new.lock().unwrap_or_else(PoisonError::into_inner).push(tunnel);
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        self.wake();
        Ok(theirs)
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for Tunnels {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Mover {
    shared: Arc<Shared>,
    epoll: OwnedFd,
    /// Even keys are outer sockets in the epoll set, odd ones (the same and one) inner sockets.
    tunnels: HashMap<u64, Tunnel>,
    next: u64,
    began: Instant,
    failures: Sparing,
}

impl Mover {
    fn new(shared: Arc<Shared>, epoll: OwnedFd) -> Mover {
        let failures = Sparing::new(TOLD_AT_ONCE_MAX, TOLD_EVERY);
        Mover { shared, epoll, tunnels: HashMap::new(), next: 0, began: Instant::now(), failures }
    }

    fn now(&self) -> Nanos {
        self.began.elapsed().into()
    }

    /// Tells how many connections failed of which nothing was told, if it is time.
    fn sum_up(&mut self) {
        if let Some((untold, last)) = self.failures.untold(self.now()) {
            tracing::warn!(untold, last, "more TLS connections failed than are told of one by one");
        }
    }

    fn run(mut self) {
        let mut events = Vec::with_capacity(64);
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let ends = self.shared.ends.load(Ordering::Acquire);
            events.clear();
            let timeout = if ends { Some(Timespec::default()) } else { self.timeout() };
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "epoll_wait failed; all TLS connections end");
                    return;
                }
            }
            for event in &events {
                let (data, flags) = (event.data.u64(), event.flags);
                if data == WAKE {
                    let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]);
                    self.take_new(&mut piece);
                } else {
                    self.on_event(data, flags, &mut piece);
                }
            }
            let now = Instant::now();
            let late = |tunnel: &Tunnel| tunnel.deadline.is_some_and(|deadline| now >= deadline);
            let late: Vec<u64> = self.tunnels.iter().filter(|(_, t)| late(t)).map(|(key, _)| *key).collect();
            for key in late {
                self.remove(key, None);
            }
            self.sum_up();
            if ends && events.is_empty() {
                // Nobody is left on our side of the others.
                self.tunnels.retain(|_, tunnel| tunnel.is_inner_gone);
                if self.tunnels.is_empty() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn timeout(&self) -> Option<Timespec> {
        let told = self.failures.due().map(|due| self.began + Duration::from(due));
        let at = self.tunnels.values().filter_map(|tunnel| tunnel.deadline).chain(told).min()?;
        Timespec::try_from(at.saturating_duration_since(Instant::now())).ok()
    }

    fn take_new(&mut self, piece: &mut [u8]) {
        let new = std::mem::take(&mut *self.shared.new.lock().unwrap_or_else(PoisonError::into_inner));
        for tunnel in new {
            let key = self.next;
            self.next += 2;
            let added = epoll::add(&self.epoll, &tunnel.outer, EventData::new_u64(key), EventFlags::empty())
                .and_then(|()| {
                    epoll::add(&self.epoll, &tunnel.inner, EventData::new_u64(key + 1), EventFlags::empty())
                });
            self.tunnels.insert(key, tunnel);
            match added {
                Ok(()) => self.pump(key, piece),
                Err(error) => self.remove(key, Some(format!("epoll_ctl failed: {error}"))),
            }
        }
    }

    fn on_event(&mut self, data: u64, flags: EventFlags, piece: &mut [u8]) {
        let key = data & !1;
        let Some(tunnel) = self.tunnels.get_mut(&key) else { return };
        let is_gone = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        if is_gone && data & 1 == 1 && !tunnel.is_inner_gone {
            // Our side has closed. An event that cannot be switched off would come again and again.
            tunnel.is_inner_gone = true;
            tunnel.deadline = Some(Instant::now() + LINGER);
            let _ = epoll::delete(&self.epoll, &tunnel.inner);
            if tunnel.is_handshaking() {
                return self.remove(key, Some("did not finish the handshake in time".to_owned()));
            }
        }
        if is_gone && data & 1 == 0 && !tunnel.is_outer_gone {
            // The peer has closed; what it said before waits in the socket and is handed on as our side takes it.
            tunnel.is_outer_gone = true;
            tunnel.deadline = Some(Instant::now() + LINGER);
            let _ = epoll::delete(&self.epoll, &tunnel.outer);
        }
        self.pump(key, piece);
    }

    fn pump(&mut self, key: u64, piece: &mut [u8]) {
        let Some(tunnel) = self.tunnels.get_mut(&key) else { return };
        let (outer, inner) = match tunnel.pump(piece) {
            Pumped::Waits(outer, inner) => (outer, inner),
            Pumped::Over(reason) => {
                if reason.is_none() {
                    // Whoever gave it away may want what is not sent to go with it (SO_LINGER of 0 s), but for an end in order: then all of it is to arrive.
                    let _ = set_socket_linger(&tunnel.outer, None);
                }
                return self.remove(key, reason);
            }
            Pumped::GivenUp => {
                // Nor does the system go on to send what it has.
                let _ = set_socket_linger(&tunnel.outer, Some(Duration::ZERO));
                return self.remove(key, None);
            }
        };
        let mut set = Ok(());
        if !tunnel.is_outer_gone {
            set = epoll::modify(&self.epoll, &tunnel.outer, EventData::new_u64(key), outer);
        }
        if !tunnel.is_inner_gone {
            set = set.and(epoll::modify(&self.epoll, &tunnel.inner, EventData::new_u64(key + 1), inner));
        }
        if let Err(error) = set {
            self.remove(key, Some(format!("epoll_ctl failed: {error}")));
        }
    }

    /// Closes both sockets of a tunnel.
    fn remove(&mut self, key: u64, reason: Option<String>) {
        let Some(tunnel) = self.tunnels.remove(&key) else { return };
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
        let Some(reason) = reason.filter(|reason| !reason.is_empty()) else {
            return tracing::debug!(peer = tunnel.peer, "TLS connection closed");
        };
        let what = match tunnel.is_handshaking() {
            true => {
                // Who gave it up itself knows.
                self.shared.failed.fetch_add(u64::from(!tunnel.is_inner_gone), Ordering::Relaxed);
                "TLS handshake failed; disconnected"
            }
            false => "TLS connection broke; disconnected",
        };
        let now = self.now();
        if self.failures.tells(now, || format!("{}: {what}: {reason}", tunnel.peer)) {
            tracing::warn!(peer = tunnel.peer, reason, "{what}");
        }
    }
}
