//! One connection: TLS towards the peer (outer), plain bytes towards ours (inner).
//!
//! Invariant: what waits in here is bounded: at most [`PLAIN_BYTES_MAX`] and what one receive brings towards the inner socket, at most one
//! piece of [`PIECE_BYTES`] (and its encryption) towards the outer. Above it the side that sends is not read.

use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use rustls::Connection;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Bytes read from the inner socket at once (ours: some records of TLS, which have 16 KiB each).
pub(crate) const PIECE_BYTES: usize = 128 << 10;

/// Decrypted bytes above which the peer is not read (ours).
const PLAIN_BYTES_MAX: usize = 128 << 10;

/// Rounds of one turn: 512 KiB of our side, or some 64 KiB of the peer, of whom the TLS library takes about a record at once (ours). Who is quick enough that there always is more would keep
/// all others of the thread waiting.
const ROUNDS_MAX: usize = 4;

/// How it goes on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pumped {
    /// Call again when one of the sockets is ready for this: outer, inner.
    Waits(EventFlags, EventFlags),
    /// It is over, with a reason if it did not end in good order.
    Over(Option<String>),
    /// Our side has left, and what it said and the peer has not taken is to go with it.
    GivenUp,
}

/// What becomes of what was sent into a tunnel and has not gone out when our side closes its socket: it is still sent, or given up.
#[derive(Clone, Debug, Default)]
pub struct Unsent(Arc<AtomicBool>);

impl Unsent {
    /// From now on it is given up, or not. At first it is not.
    pub fn give_up(&self, gives_up: bool) {
        self.0.store(gives_up, Ordering::Release);
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

pub(crate) struct Tunnel {
    pub(crate) outer: OwnedFd,
    pub(crate) inner: OwnedFd,
    connection: Connection,
    /// Decrypted and not yet taken by the inner socket, from `sent` on; what was is half of it and one receive at most.
    plain: Vec<u8>,
    sent: usize,
    outer_ended: bool,
    inner_ended: bool,
    unsent: Unsent,
    said_goodbye: bool,
    /// The peer takes nothing any more.
    is_deaf: bool,
    /// The inner socket is taken out of the epoll set, since its other end is closed.
    pub(crate) is_inner_gone: bool,
    /// The outer socket is taken out of it, since the peer has closed; what it said before may still be in the socket.
    pub(crate) is_outer_gone: bool,
    /// What is left must have gone by then.
    pub(crate) deadline: Option<Instant>,
    /// Who, for the log.
    pub(crate) peer: String,
}

/// A socket as the TLS library wants it.
struct Raw<'a>(&'a OwnedFd);

impl Read for Raw<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self.0, buffer, RecvFlags::empty())?.0)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Tunnel {
    pub(crate) fn new(
        outer: OwnedFd,
        inner: OwnedFd,
        connection: Connection,
        unsent: Unsent,
        peer: String,
    ) -> Tunnel {
        Tunnel {
            outer,
            inner,
            connection,
            plain: Vec::new(),
            sent: 0,
            outer_ended: false,
            inner_ended: false,
            unsent,
            said_goodbye: false,
            is_deaf: false,
            is_inner_gone: false,
            is_outer_gone: false,
            deadline: None,
            peer,
        }
    }

    /// Whether the peer still has to prove itself.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Moves bytes both ways as far as it goes without waiting, and as far as one turn goes. `piece` is scratch of [`PIECE_BYTES`].
    pub(crate) fn pump(&mut self, piece: &mut [u8]) -> Pumped {
        // Of a socket that was taken out of the epoll set nobody would tell that there is more, and there is an end to what is in it.
        let turn = if self.is_outer_gone || self.is_inner_gone { usize::MAX } else { ROUNDS_MAX };
        for _ in 0..turn {
            let mut progress = false;
            for step in
                [Tunnel::take_from_peer, Tunnel::give_to_inner, Tunnel::take_from_inner, Tunnel::give_to_peer]
            {
                if self.is_given_up() {
                    return Pumped::GivenUp;
                }
                match step(self, piece) {
                    Ok(moved) => progress |= moved,
                    Err(reason) => return Pumped::Over(Some(reason)),
                }
            }
            if self.is_over() {
                return Pumped::Over(None);
            }
            if !progress {
                break;
            }
        }
        let (mut outer, mut inner) = (EventFlags::empty(), EventFlags::empty());
        outer.set(EventFlags::IN, self.wants_peer());
        outer.set(EventFlags::OUT, self.wants_write());
        inner.set(EventFlags::IN, self.wants_inner());
        inner.set(EventFlags::OUT, self.sent < self.plain.len());
        Pumped::Waits(outer, inner)
    }

    /// Nothing can come any more from either side, and all was handed on; what a peer says to nobody is not waited for.
    fn is_over(&self) -> bool {
        let peer_is_done = self.outer_ended && self.sent == self.plain.len();
        if self.is_handshaking() {
            return peer_is_done || self.is_inner_gone;
        }
        self.inner_ended && !self.wants_write() && (peer_is_done || self.is_inner_gone)
    }

    /// Our side has left without wanting what it said last to arrive. That the peer takes nothing any more is another matter: what it said is still handed on.
    fn is_given_up(&self) -> bool {
        (self.is_inner_gone || self.inner_ended && !self.is_deaf) && self.unsent.is_given_up()
    }

    fn wants_peer(&self) -> bool {
        !self.outer_ended && self.plain.len() - self.sent < PLAIN_BYTES_MAX
    }

    fn wants_inner(&self) -> bool {
        !self.inner_ended && !self.is_handshaking() && !self.wants_write()
    }

    fn wants_write(&self) -> bool {
        !self.is_deaf && self.connection.wants_write()
    }

    fn take_from_peer(&mut self, _: &mut [u8]) -> Result<bool, String> {
        if !self.wants_peer() {
            return Ok(false);
        }
        match self.connection.read_tls(&mut Raw(&self.outer)) {
            // An end without a farewell is the same to NBD, whose messages say how long they are.
            Ok(0) => self.end_outer(),
            Ok(_) => {}
            Err(error) if is_temporary(&error) => return Ok(false),
            Err(error) if self.is_handshaking() => return Err(format!("connection broke: {error}")),
            Err(_) => self.end_outer(),
        }
        let state = match self.connection.process_new_packets() {
            Ok(state) => state,
            Err(error) => {
                // The alert that tells the peer why.
                let _ = self.connection.write_tls(&mut Raw(&self.outer));
                return Err(error.to_string());
            }
        };
        if state.plaintext_bytes_to_read() > 0 {
            if self.sent > self.plain.len() / 2 {
                // Also where something always waits, so that what was sent would stay. Less is moved than was sent.
                self.plain.drain(..self.sent);
                self.sent = 0;
            }
            let start = self.plain.len();
            self.plain.resize(start + state.plaintext_bytes_to_read(), 0);
            let read = self.connection.reader().read_exact(&mut self.plain[start..]);
            read.map_err(|error| format!("decrypted bytes are not there: {error}"))?;
        }
        if state.peer_has_closed() {
            self.end_outer();
        }
        Ok(true)
    }

    fn end_outer(&mut self) {
        self.outer_ended = true;
    }

    fn give_to_inner(&mut self, _: &mut [u8]) -> Result<bool, String> {
        let mut progress = false;
        while self.sent < self.plain.len() {
            match send(&self.inner, &self.plain[self.sent..], SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(progress),
                Err(_) => {
                    // Our side has closed: what the peer still says is of no interest to anybody.
                    (self.sent, self.outer_ended) = (self.plain.len(), true);
                }
            }
            progress = true;
        }
        if self.outer_ended && !self.inner_ended && !self.said_goodbye {
            // Tells our side once that nothing more comes; it answers by closing.
            self.said_goodbye = true;
            let _ = shutdown(&self.inner, Shutdown::Write);
        }
        Ok(progress)
    }

    fn take_from_inner(&mut self, piece: &mut [u8]) -> Result<bool, String> {
        if !self.wants_inner() {
            // Before there is TLS our side says nothing; that it leaves shows as the end of its socket.
            return Ok(false);
        }
        match recv(&self.inner, &mut *piece, RecvFlags::empty()) {
            Ok((0, _)) | Err(Errno::CONNRESET | Errno::PIPE) => {
                self.inner_ended = true;
                self.connection.send_close_notify();
            }
            Ok((count, _)) => {
                let written = self.connection.writer().write_all(&piece[..count]);
                written.map_err(|error| format!("cannot encrypt: {error}"))?;
            }
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(error) => return Err(format!("socket of our side broke: {error}")),
        }
        Ok(true)
    }

    fn give_to_peer(&mut self, _: &mut [u8]) -> Result<bool, String> {
        let mut progress = false;
        while self.wants_write() {
            match self.connection.write_tls(&mut Raw(&self.outer)) {
                Ok(_) => progress = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_temporary(&error) => break,
                Err(_) if self.is_handshaking() && self.outer_ended => return Err(String::new()),
                Err(_) if !self.is_handshaking() => {
                    // The peer left. What it said before is still handed on; then our side sees the end of its socket.
                    (self.is_deaf, self.inner_ended) = (true, true);
                    progress = true;
                }
                Err(error) => return Err(format!("connection broke: {error}")),
            }
        }
        Ok(progress)
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{ClientTls, ServerTls};
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::net::sockopt::set_socket_send_buffer_size;
    use rustls::pki_types::ServerName;
    use rustls::{ClientConnection, ServerConnection, StreamOwned};
    use std::os::unix::net::UnixStream;
    use std::path::Path;

    /// A tunnel whose peer has not begun, that peer, and our side.
    fn tunnel() -> (Tunnel, StreamOwned<ClientConnection, UnixStream>, UnixStream) {
        let pem =
            |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certificates/good").join(name);
        let server = ServerTls::load(&pem("server-cert.pem"), &pem("server-key.pem"), None).unwrap();
        let client = ClientTls::load(Some(&pem("ca-cert.pem")), None).unwrap();
        let (outer, peer) = UnixStream::pair().unwrap();
        let (inner, ours) = UnixStream::pair().unwrap();
        outer.set_nonblocking(true).unwrap();
        inner.set_nonblocking(true).unwrap();
        let connection = Connection::Server(ServerConnection::new(server.config).unwrap());
        let tunnel =
            Tunnel::new(outer.into(), inner.into(), connection, Unsent::default(), "test".to_owned());
        let name = ServerName::try_from("localhost").unwrap();
        let client = ClientConnection::new(Arc::clone(&client.config), name).unwrap();
        (tunnel, StreamOwned::new(client, peer), ours)
    }

    /// Waits until the tunnel goes on.
    fn wait(tunnel: &Tunnel, outer: EventFlags, inner: EventFlags) {
        let flags = |wanted: EventFlags| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, wanted.contains(EventFlags::IN));
            flags.set(PollFlags::OUT, wanted.contains(EventFlags::OUT));
            flags
        };
        let mut fds = [PollFd::new(&tunnel.outer, flags(outer)), PollFd::new(&tunnel.inner, flags(inner))];
        poll(&mut fds, None).unwrap();
    }

    /// The socket to our side holds less than a tunnel, as where `net.core.wmem_default` is small, and our side takes little at a time: something always waits.
    #[test]
    fn what_was_taken_is_given_up_although_more_always_waits() {
        const BYTES: usize = 256 << 20;
        let (mut tunnel, mut stream, ours) = tunnel();
        set_socket_send_buffer_size(&tunnel.inner, 16 << 10).unwrap();
        let sends = std::thread::spawn(move || {
            let piece = vec![7; 1 << 20];
            (0..BYTES / piece.len()).for_each(|_| stream.write_all(&piece).unwrap());
            stream.conn.send_close_notify();
            stream.flush().unwrap();
        });
        let takes = std::thread::spawn(move || {
            let mut piece = [0; 5000];
            let mut taken = 0;
            loop {
                match (&ours).read(&mut piece).unwrap() {
                    0 => return taken,
                    count => taken += count,
                }
            }
        });
        let mut piece = vec![0; PIECE_BYTES];
        let mut held_max = 0;
        while let Pumped::Waits(outer, inner) = tunnel.pump(&mut piece) {
            held_max = held_max.max(tunnel.plain.len());
            wait(&tunnel, outer, inner);
        }
        drop(tunnel);
        sends.join().unwrap();
        assert_eq!(takes.join().unwrap(), BYTES);
        assert!(held_max <= 2 * PLAIN_BYTES_MAX + (64 << 10), "{held_max} bytes are held");
    }

    #[test]
    fn who_has_much_to_say_leaves_others_a_turn() {
        const BYTES: usize = 100 << 10;
        let (mut tunnel, mut stream, mut ours) = tunnel();
        let mut piece = vec![0; PIECE_BYTES];
        let greets = std::thread::spawn(move || {
            stream.write_all(&[0]).unwrap();
            stream
        });
        ours.set_nonblocking(true).unwrap();
        loop {
            let Pumped::Waits(outer, inner) = tunnel.pump(&mut piece) else { panic!("it is over") };
            if ours.read(&mut piece).is_ok() {
                break;
            }
            wait(&tunnel, outer, inner);
        }
        // All of it is there before the tunnel looks.
        let mut stream = greets.join().unwrap();
        stream.write_all(&[7; BYTES]).unwrap();
        stream.flush().unwrap();
        let (mut taken, mut turns) = (0, 0);
        while taken < BYTES {
            turns += 1;
            let Pumped::Waits(outer, _) = tunnel.pump(&mut piece) else { panic!("it is over") };
            assert!(outer.contains(EventFlags::IN));
            while let Ok(count) = ours.read(&mut piece) {
                taken += count;
            }
            // The peer's records are taken piece by piece, so that a turn may end within one.
            assert!(turns < 1_000, "{taken} bytes have come");
        }
        assert!(turns > 1, "all of it is one turn");
    }
}
