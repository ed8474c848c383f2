//! Sockets of an NBD client, and the handshake over them.

use forebay_nbd::client::{Config, Event, Export, ProtocolError, Session};
use forebay_nbd::server::TlsPolicy;
use forebay_nbd::wire::OptionReply;
use forebay_nbd::{RunId, Succession};
use forebay_nbd::{Transport, Uri};
use forebay_tls::{ClientTls, TlsConnectError, Tunnels, Unsent};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Bytes received at a time.
pub(super) const RECEIVE_BYTES: usize = 256 << 10;

/// Silence after which it is asked whether a peer is there still (ours, as are the next two),
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// how long for an answer is waited,
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// and how often it is asked before the connection counts as lost.
pub const KEEPALIVE_PROBES: u32 = 8;

/// Why no export could be opened at a server. All but [`ConnectError::Tls`] may pass.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URI asks for TLS.
    #[error("`{uri}` asks for TLS, and nothing says whom to believe")]
    Tls {
        /// The server.
        uri: String,
    },
    /// The TLS handshake failed.
    #[error("no TLS with `{uri}`")]
    TlsHandshake {
        /// The server.
        uri: String,
        /// Why.
        source: TlsConnectError,
    },
    /// Nobody answers there.
    #[error("cannot connect to `{uri}`")]
    Connect {
        /// The server.
        uri: String,
        /// What the system said.
        source: io::Error,
    },
    /// The server answers, but not so that the export could be opened.
    #[error("server at `{uri}` did not open the export")]
    Handshake {
        /// The server.
        uri: String,
        /// What went wrong.
        source: Box<forebay_nbd::client::ProtocolError>,
    },
    /// The connection broke during the handshake.
    #[error("connection to `{uri}` broke during the handshake")]
    Broken {
        /// The server.
        uri: String,
        /// What the system said.
        source: io::Error,
    },
    /// The export holds no bytes.
    #[error("export `{uri}` has a size of 0 bytes")]
    Empty {
        /// The server.
        uri: String,
    },
    /// A thread could not be started.
    #[error("cannot start a thread for the origin")]
    Thread {
        /// What the system said.
        source: io::Error,
    },
}

impl ConnectError {
    /// Whether nobody listens there: the system there says so by itself, or ours of a socket's path.
    pub(super) fn is_refused(&self) -> bool {
        use io::ErrorKind::{ConnectionRefused, NotFound};
        match self {
            ConnectError::Connect { source, .. } => matches!(source.kind(), ConnectionRefused | NotFound),
            _ => false,
        }
    }

    /// Whether a server is there that has the export, and a lease keeps us out of it.
    pub fn is_kept_out(&self) -> bool {
        self.kept_by().is_some()
    }

    /// Which run of a server keeps the export from us, if that is why.
    pub(super) fn kept_by(&self) -> Option<RunId> {
        match self {
            ConnectError::Handshake { source, .. } => match &**source {
                ProtocolError::Refused { reply, message, .. }
                    if *reply == OptionReply::ErrPolicy.number() =>
                {
                    RunId::found_in(message)
                }
                _ => None,
            },
            _ => None,
        }
    }
}

pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// The clear end of a connection over TLS.
    Tunnel(UnixStream, Unsent),
}

impl Stream {
    fn dial(transport: &Transport, timeout: Duration) -> io::Result<Stream> {
        match transport {
            Transport::Unix { path } => Ok(Stream::Unix(dial_unix(path, timeout)?)),
            Transport::Tcp { host, port } => {
                let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "host name has no address");
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, timeout) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            keep_alive(&stream)?;
                            return Ok(Stream::Tcp(stream));
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }

    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_nonblocking(true),
            Stream::Unix(stream) | Stream::Tunnel(stream, _) => stream.set_nonblocking(true),
        }
    }

    pub(super) fn set_timeouts(&self, read: Duration, write: Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => {
                stream.set_read_timeout(Some(read))?;
                stream.set_write_timeout(Some(write))
            }
            Stream::Unix(stream) | Stream::Tunnel(stream, _) => {
                stream.set_read_timeout(Some(read))?;
                stream.set_write_timeout(Some(write))
            }
        }
    }

    /// Whether what was written and not yet sent is given up when the socket is closed, also by the end of the process. Else the system goes on to send it by itself, over TCP for a
    /// quarter of an hour: a change of which a client was told that it failed would come behind those of the connection that took the place of this one.
    pub(super) fn gives_up_unsent(&self, gives_up: bool) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => {
                Ok(sockopt::set_socket_linger(stream, gives_up.then_some(Duration::ZERO))?)
            }
            // What was written is at the other end already.
            Stream::Unix(_) => Ok(()),
            Stream::Tunnel(_, unsent) => {
                unsent.give_up(gives_up);
                Ok(())
            }
        }
    }

    /// Ends the conversation, also for a thread that is in the middle of a call.
    pub(super) fn shut_down(&self) {
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Stream::Unix(stream) | Stream::Tunnel(stream, _) => stream.shutdown(Shutdown::Both),
        };
    }
}

/// Has the system notice within three minutes of silence that the host behind a TCP connection is gone: after [`KEEPALIVE_IDLE`] it asks every
/// [`KEEPALIVE_INTERVAL`], [`KEEPALIVE_PROBES`] times. Without it nobody who only waits would ever hear of that.
///
/// # Errors
/// What the system says.
pub fn keep_alive(socket: impl AsFd) -> io::Result<()> {
    sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_PROBES)?;
    Ok(sockopt::set_socket_keepalive(&socket, true)?)
}

/// Connects to a Unix socket. A server that accepts nobody lets its queue fill up, and then Linux waits for a place in it for as long as one may send.
fn dial_unix(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
    let address = match path.as_os_str().as_bytes().split_first() {
        Some((0, name)) => SocketAddrUnix::new_abstract_name(name)?,
        _ => SocketAddrUnix::new(path)?,
    };
    loop {
        return match rustix::net::connect(&socket, &address) {
            Ok(()) => Ok(socket.into()),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Err(io::ErrorKind::TimedOut.into()),
            Err(error) => Err(error.into()),
        };
    }
}

impl From<Stream> for OwnedFd {
    fn from(stream: Stream) -> OwnedFd {
        match stream {
            Stream::Tcp(stream) => stream.into(),
            Stream::Unix(stream) | Stream::Tunnel(stream, _) => stream.into(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) | Stream::Tunnel(stream, _) => stream.as_fd(),
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).read(buffer),
            Stream::Unix(stream) | Stream::Tunnel(stream, _) => (&*stream).read(buffer),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).write(bytes),
            Stream::Unix(stream) | Stream::Tunnel(stream, _) => (&*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stream that is of use until an instant, however little of what it waits for comes at a time.
struct Until {
    stream: Stream,
    deadline: Instant,
}

impl Until {
    /// The stream, which waits until the deadline at most.
    fn stream(&self) -> io::Result<&Stream> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no end of the handshake in time"));
        }
        self.stream.set_timeouts(left, left)?;
        Ok(&self.stream)
    }
}

impl Read for Until {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream()?.read(buffer)
    }
}

impl Write for Until {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl From<Until> for OwnedFd {
    fn from(until: Until) -> OwnedFd {
        until.stream.into()
    }
}

/// An open export, with what was received behind the handshake.
pub(super) struct Connected {
    pub(super) stream: Stream,
    pub(super) session: Session,
    pub(super) export: Export,
    pub(super) received: Vec<u8>,
}

/// What connections over TLS need.
pub(super) struct Secured {
    pub(super) tls: ClientTls,
    pub(super) tunnels: Arc<Tunnels>,
}

impl Secured {
    /// A stream over TLS on `stream`, whose server has agreed to it, within `timeout`.
    fn upgrade(&self, uri: &Uri, stream: Stream, timeout: Duration) -> Result<Stream, ConnectError> {
        let name = match (&uri.tls_hostname, &uri.transport) {
            (Some(name), _) | (None, Transport::Tcp { host: name, .. }) => name,
            // What other clients verify on a socket of this machine.
            (None, Transport::Unix { .. }) => "localhost",
        };
        let until = Until { stream, deadline: Instant::now() + timeout };
        match self.tunnels.connect(&self.tls, name, until) {
            Ok((socket, unsent)) => Ok(Stream::Tunnel(socket.into(), unsent)),
            Err(source) => Err(ConnectError::TlsHandshake { uri: uri.shown().to_string(), source }),
        }
    }
}

/// Connects and opens the export, over TLS if the URI asks for it; takes at most about three times `timeout`.
pub(super) fn connect(
    uri: &Uri,
    secured: Option<&Secured>,
    requests_max: usize,
    succession: Succession,
    timeout: Duration,
) -> Result<Connected, ConnectError> {
    let text = || uri.shown().to_string();
    let secured = match (uri.tls_required, secured) {
        (false, _) => None,
        (true, Some(secured)) => Some(secured),
        (true, None) => return Err(ConnectError::Tls { uri: text() }),
    };
    let mut stream = Stream::dial(&uri.transport, timeout)
        .map_err(|source| ConnectError::Connect { uri: text(), source })?;
    let broken = |source| ConnectError::Broken { uri: text(), source };
    stream.set_timeouts(timeout, timeout).map_err(broken)?;
    let mut deadline = Instant::now() + timeout;
    let tls = if secured.is_some() { TlsPolicy::Required } else { TlsPolicy::Off };
    let succession = Some(succession);
    let config = Config { tls, requests_max, succession, ..Config::new(uri.export.clone()) };
    let mut session = Session::new(config);
    let mut received = Vec::new();
    let mut chunk = vec![0; 16 << 10];
    let mut output = Vec::new();
    loop {
        let mut done = 0;
        let mut ready = None;
        let mut upgrades = false;
        while ready.is_none() && !upgrades {
            let parsed = session
                .receive(&received[done..], &mut output)
                .map_err(|source| ConnectError::Handshake { uri: text(), source: Box::new(source) })?;
            done += parsed.consumed;
            match parsed.event {
                Event::Ready(export) => ready = Some(export),
                Event::NeedMore => break,
                Event::UpgradeTls => upgrades = true,
                _ => {}
            }
        }
        received.drain(..done);
        (&stream).write_all(&output).map_err(broken)?;
        output.clear();
        if upgrades {
            if !received.is_empty() {
                let what = "server sent bytes in the clear behind its agreement to TLS";
                return Err(broken(io::Error::new(io::ErrorKind::InvalidData, what)));
            }
            let secured = secured.expect("TLS was asked for");
            // For the end of the process; the tunnel takes it back where it ends in order.
            stream.gives_up_unsent(true).map_err(broken)?;
            stream = secured.upgrade(uri, stream, timeout)?;
            stream.set_timeouts(timeout, timeout).map_err(broken)?;
            deadline = Instant::now() + timeout;
            session.tls_established(&mut output);
            (&stream).write_all(&output).map_err(broken)?;
            output.clear();
            continue;
        }
        if let Some(export) = ready {
            stream.gives_up_unsent(true).map_err(broken)?;
            return Ok(Connected { stream, session, export, received });
        }
        if Instant::now() >= deadline {
            return Err(broken(io::Error::new(io::ErrorKind::TimedOut, "no end of the handshake in time")));
        }
        match (&stream).read(&mut chunk) {
            Ok(0) => return Err(broken(io::ErrorKind::UnexpectedEof.into())),
            Ok(bytes) => received.extend_from_slice(&chunk[..bytes]),
            // A socket with a timeout says so when the process was stopped and goes on.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(broken(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_host_that_is_gone_is_noticed_over_tcp() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let transport = Transport::Tcp { host: "127.0.0.1".to_owned(), port };
        let stream = Stream::dial(&transport, Duration::from_secs(20)).unwrap();
        assert_eq!(sockopt::socket_keepalive(&stream), Ok(true));
        assert_eq!(sockopt::tcp_keepidle(&stream), Ok(KEEPALIVE_IDLE));
        assert_eq!(sockopt::tcp_keepintvl(&stream), Ok(KEEPALIVE_INTERVAL));
        assert_eq!(sockopt::tcp_keepcnt(&stream), Ok(KEEPALIVE_PROBES));
    }

    /// It agrees to TLS, and then sends a record that is never whole, a byte now and then.
    fn serve_drops(mut stream: UnixStream) {
        let mut told = [0; 20];
        stream.write_all(b"NBDMAGICIHAVEOPT\0\x03").unwrap();
        stream.read_exact(&mut told).unwrap();
        // The magic number of replies, to STARTTLS, an acknowledgement without data.
        let mut answer = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
        answer.extend([0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0]);
        stream.write_all(&answer).unwrap();
        // The client speaks first.
        stream.read_exact(&mut told).unwrap();
        let mut record = [0x16, 3, 3, 0x40, 0].into_iter().chain(std::iter::repeat(0));
        while stream.write_all(&[record.next().unwrap()]).is_ok() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_server_that_says_little_at_a_time_in_its_tls_handshake_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || serve_drops(listener.accept().unwrap().0));
        let secured = Secured {
            tls: ClientTls::load(None, None).unwrap(),
            tunnels: Arc::new(Tunnels::start("tls").unwrap()),
        };
        let uri = Uri { tls_required: true, ..Uri::unix(&path, "disk") };
        let (sender, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let timeout = Duration::from_millis(200);
            let _ = sender.send(
                connect(
                    &uri,
                    Some(&secured),
                    16,
                    Succession { id: 7, number: 1, lacks_flush: false },
                    timeout,
                )
                .err(),
            );
        });
        let error = told.recv_timeout(Duration::from_secs(20)).expect("it waits for ever").unwrap();
        assert!(matches!(error, ConnectError::TlsHandshake { .. }), "{error:?}");
        server.join().unwrap();
    }
}
