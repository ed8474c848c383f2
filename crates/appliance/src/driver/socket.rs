//! A client's socket, whatever its family: receive and send without blocking and without signals.

use crate::service::Output;
use crate::volume::ClientAddress;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendFlags, sendmsg, sockopt};
use std::io::IoSlice;

/// A connected, non-blocking stream socket.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    /// Who, for the log.
    pub(crate) peer: String,
    /// Who, to tell clients apart.
    pub(crate) client: ClientAddress,
}

/// What came of receiving.
pub(crate) enum Received {
    /// This many bytes.
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// The client left, or the connection broke.
    End,
}

impl Socket {
    pub(crate) fn new(fd: OwnedFd, peer: String, client: ClientAddress) -> Socket {
        Socket { fd, peer, client }
    }

    /// The descriptor, for who speaks with the client in its own way.
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Lets a local socket hold more replies that its client has not taken yet: with the system's default the worker waits until
    /// the client has taken three quarters of them, and the client then until the worker has woken. Best effort; the system's own
    /// maximum (`net.core.wmem_max`) applies. TCP grows by itself.
    pub(crate) fn enlarge_send_buffer(&self) {
        if sockopt::socket_domain(&self.fd) == Ok(AddressFamily::UNIX) {
            let _ = sockopt::set_socket_send_buffer_size(&self.fd, super::SEND_BUFFER_BYTES);
        }
    }

    /// No answer follows; the client may still send.
    pub(crate) fn end_sending(&self) -> Result<(), Errno> {
        rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Write)
    }

    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Received {
        loop {
            return match rustix::io::read(&self.fd, &mut *buffer) {
                Ok(0) => Received::End,
                Ok(count) => Received::Bytes(count),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Received::Nothing,
                Err(_) => Received::End,
            };
        }
    }

    /// Sends as much as the socket takes; how many bytes, or that the connection broke.
    pub(crate) fn send(&self, output: &Output) -> Result<usize, Errno> {
        let mut slices = [IoSlice::new(&[]); super::SLICES_MAX];
        let count = output.slices(&mut slices);
        self.send_slices(&slices[..count])
    }

    /// [`Socket::send`] of pieces, in order.
    pub(crate) fn send_slices(&self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        loop {
            let mut no_control = SendAncillaryBuffer::default();
            return match sendmsg(&self.fd, slices, &mut no_control, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Ok(0),
                result => result,
            };
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
