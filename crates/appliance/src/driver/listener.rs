//! Listening sockets: unix and TCP, and the rules for both.

use super::socket::Socket;
use crate::volume::ClientAddress;
use forebay_nbd::server::TlsPolicy;
use forebay_origin::keep_alive;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerConfig {
    /// A unix socket at this path. One that is there already is replaced if nobody listens on it.
    Unix {
        /// Where.
        path: PathBuf,
    },
    /// A TCP port. Port 0 takes a free one.
    Tcp {
        /// Where.
        address: SocketAddr,
        /// Listens beyond loopback, where whoever reaches the port reads and writes the volumes, unless TLS is required and asks clients
        /// for certificates.
        allow_remote: bool,
    },
    /// One of the others, where clients may ask for TLS ([`crate::ApplianceConfig::tls`]).
    Tls {
        /// Where.
        listener: Box<ListenerConfig>,
        /// Nothing is answered without TLS.
        required: bool,
    },
}

/// Where a listener really listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoundAddress {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP port; never port 0.
    Tcp(SocketAddr),
}

impl fmt::Display for BoundAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BoundAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            BoundAddress::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// Why a listener could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Beyond loopback without being allowed to.
    #[error(
        "tcp address `{address}` is not loopback: whoever reaches it could read and write every volume; it must be allowed explicitly"
    )]
    NotLoopback {
        /// What was asked for.
        address: SocketAddr,
    },
    /// Another process serves there.
    #[error("unix socket `{}` is in use by another process", path.display())]
    InUse {
        /// Where.
        path: PathBuf,
    },
    /// Something else has that name.
    #[error("`{}` exists and is no socket", path.display())]
    NotASocket {
        /// Where.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot listen on `{address}`")]
    System {
        /// Where.
        address: String,
        /// Why.
        source: io::Error,
    },
}

/// The file of a unix socket that listens. It is removed with this, unless something else has that name by then: another process may have removed it and listen there itself.
/// To be dropped before the socket: as long as that is open no other file has its number.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Its device and number there.
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    /// That of a socket which was just bound to `path`.
    pub fn of(path: &Path) -> SocketFile {
        SocketFile { path: path.to_owned(), identity: SocketFile::identity(path) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn identity(path: &Path) -> Option<(u64, u64)> {
        std::fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.identity.is_some() && SocketFile::identity(&self.path) == self.identity {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[derive(Debug)]
enum Kind {
    // In this order: it is that in which they are dropped.
    Unix(SocketFile, UnixListener),
    Tcp(TcpListener),
}

/// An open listener; a unix socket's file goes with it.
#[derive(Debug)]
pub(crate) struct Listener {
    kind: Kind,
    pub(crate) address: BoundAddress,
    pub(crate) tls: TlsPolicy,
}

impl Listener {
    /// # Errors
    /// [`ListenError`].
    pub(crate) fn open(config: &ListenerConfig) -> Result<Listener, ListenError> {
        let system = |address: String| |source| ListenError::System { address, source };
        match config {
            ListenerConfig::Unix { path } => {
                remove_stale_socket(path)?;
                let name = path.display().to_string();
                let listener = UnixListener::bind(path).map_err(system(name.clone()))?;
                let file = SocketFile::of(path);
                listener.set_nonblocking(true).map_err(system(name))?;
                Ok(Listener {
                    kind: Kind::Unix(file, listener),
                    address: BoundAddress::Unix(path.clone()),
                    tls: TlsPolicy::Off,
                })
            }
            ListenerConfig::Tcp { address, allow_remote } => {
                if !allow_remote && !address.ip().is_loopback() {
                    return Err(ListenError::NotLoopback { address: *address });
                }
                let listener = TcpListener::bind(address).map_err(system(address.to_string()))?;
                listener.set_nonblocking(true).map_err(system(address.to_string()))?;
                let bound = listener.local_addr().map_err(system(address.to_string()))?;
                let address = BoundAddress::Tcp(bound);
                Ok(Listener { kind: Kind::Tcp(listener), address, tls: TlsPolicy::Off })
            }
            ListenerConfig::Tls { listener, required } => {
                let mut listener = Listener::open(listener)?;
                if listener.tls != TlsPolicy::Required {
                    listener.tls = if *required { TlsPolicy::Required } else { TlsPolicy::Allowed };
                }
                Ok(listener)
            }
        }
    }

    /// The next client; `None` if none waits.
    pub(crate) fn accept(&self) -> io::Result<Option<Socket>> {
        let accepted = match &self.kind {
            Kind::Unix(file, listener) => listener.accept().and_then(|(stream, _)| {
                stream.set_nonblocking(true)?;
                let client = sockopt::socket_peercred(&stream)
                    .map_or(ClientAddress::Unknown, |peer| ClientAddress::User(peer.uid.as_raw()));
                Ok(Socket::new(stream.into(), format!("unix:{}", file.path().display()), client))
            }),
            Kind::Tcp(listener) => listener.accept().and_then(|(stream, peer)| {
                stream.set_nonblocking(true)?;
                // A reply must not wait for the next one.
                stream.set_nodelay(true)?;
                keep_alive(&stream)?;
                Ok(Socket::new(stream.into(), format!("tcp:{peer}"), ClientAddress::ip(peer.ip())))
            }),
        };
        match accepted {
            Ok(socket) => Ok(Some(socket)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl rustix::fd::AsFd for Listener {
    fn as_fd(&self) -> rustix::fd::BorrowedFd<'_> {
        match &self.kind {
            Kind::Unix(_, listener) => listener.as_fd(),
            Kind::Tcp(listener) => listener.as_fd(),
        }
    }
}

/// Removes the socket that a process which is gone left behind at `path`, if there is one. It never waits, also not for a process that is stopped and whose
/// queue of connections is full.
///
/// # Errors
/// [`ListenError::InUse`] if somebody may listen there, [`ListenError::NotASocket`] for anything else of that name, [`ListenError::System`].
pub fn remove_stale_socket(path: &Path) -> Result<(), ListenError> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(ListenError::NotASocket { path: path.to_owned() });
    }
    match try_connect(path) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path)
            .map_err(|source| ListenError::System { address: path.display().to_string(), source }),
        // It is there and we may not know, or somebody accepts: it is not ours to remove.
        _ => Err(ListenError::InUse { path: path.to_owned() }),
    }
}

/// Connects to a unix socket, or says [`Errno::AGAIN`] where Linux would wait for a place in the listener's queue.
fn try_connect(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_socket_that_nobody_serves_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nbd.sock");
        let config = ListenerConfig::Unix { path: path.clone() };
        let first = Listener::open(&config).unwrap();
        assert!(matches!(Listener::open(&config), Err(ListenError::InUse { .. })));
        drop(first);
        assert!(!path.exists());
        // Left behind: the std listener does not remove its file.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(Listener::open(&config).unwrap());
        std::fs::write(&path, "data").unwrap();
        assert!(matches!(Listener::open(&config), Err(ListenError::NotASocket { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"data");
    }

    #[test]
    fn a_socket_that_another_put_in_its_place_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nbd.sock");
        let config = ListenerConfig::Unix { path: path.clone() };
        let first = Listener::open(&config).unwrap();
        // As scripts do before they start a daemon.
        std::fs::remove_file(&path).unwrap();
        let second = Listener::open(&config).unwrap();
        drop(first);
        std::os::unix::net::UnixStream::connect(&path).expect("clients still find the second");
        drop(second);
        assert!(!path.exists());
    }

    /// As of a process that was stopped: it accepts nobody, and its queue of connections is full.
    #[test]
    fn a_socket_whose_queue_is_full_is_in_use_and_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nbd.sock");
        let stopped =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&stopped, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&stopped, 0).unwrap();
        let _waiting = std::os::unix::net::UnixStream::connect(&path).unwrap();
        let (sender, told) = std::sync::mpsc::channel();
        let asked = path.clone();
        std::thread::spawn(move || sender.send(remove_stale_socket(&asked)));
        let answer = told.recv_timeout(std::time::Duration::from_secs(20)).expect("it waits for ever");
        assert!(matches!(answer, Err(ListenError::InUse { .. })), "{answer:?}");
        assert!(path.exists());
    }

    #[test]
    fn a_client_whose_host_is_gone_is_noticed_over_tcp() {
        let address = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::open(&ListenerConfig::Tcp { address, allow_remote: false }).unwrap();
        let BoundAddress::Tcp(bound) = listener.address else { unreachable!() };
        let _client = std::net::TcpStream::connect(bound).unwrap();
        let accepted = loop {
            if let Some(accepted) = listener.accept().unwrap() {
                break accepted;
            }
            std::thread::yield_now();
        };
        assert_eq!(sockopt::socket_keepalive(&accepted), Ok(true));
        assert_eq!(sockopt::tcp_keepidle(&accepted), Ok(forebay_origin::KEEPALIVE_IDLE));
        assert_eq!(sockopt::tcp_keepintvl(&accepted), Ok(forebay_origin::KEEPALIVE_INTERVAL));
        assert_eq!(sockopt::tcp_keepcnt(&accepted), Ok(forebay_origin::KEEPALIVE_PROBES));
    }

    #[test]
    fn beyond_loopback_only_on_request() {
        let address = "0.0.0.0:0".parse().unwrap();
        let refused = Listener::open(&ListenerConfig::Tcp { address, allow_remote: false });
        assert!(matches!(refused, Err(ListenError::NotLoopback { .. })));
        let local = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::open(&ListenerConfig::Tcp { address: local, allow_remote: false }).unwrap();
        assert!(matches!(listener.address, BoundAddress::Tcp(bound) if bound.port() != 0));
    }
}
