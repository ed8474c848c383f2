//! Threads and sockets: one acceptor for handshakes, and workers that own volumes and their connections.
//!
//! It decides nothing about requests: it moves bytes between sockets and the service, and requests between the service
//! and origins. Every fd is non-blocking; a thread waits in `epoll_wait` only. Nothing is shared between workers but the
//! directory, which is read during handshakes.

mod acceptor;
mod inbox;
mod listener;
mod socket;
mod worker;

pub(crate) use acceptor::{Acceptor, AcceptorHandle};
pub(crate) use inbox::{Inbox, Message};
pub use listener::{BoundAddress, ListenError, ListenerConfig};
pub(crate) use listener::Listener;
pub(crate) use worker::Worker;

use forebay_units::Nanos;
use std::time::Duration;

/// Handshakes at once; more clients wait in the kernel's queue of connections (ours).
pub const HANDSHAKES_MAX: usize = 256;

/// A client that has not chosen an export by then is disconnected (ours).
pub const HANDSHAKE_TIME_MAX: Nanos = Nanos::secs(10);

/// Bytes received at once, so that many requests are parsed per system call (ours).
pub const RECEIVE_BYTES: usize = 256 << 10;

/// Pieces per `sendmsg` (ours).
pub(crate) const SLICES_MAX: usize = 64;

/// Events per `epoll_wait` (ours).
pub(crate) const EVENTS_MAX: usize = 128;

/// How long a worker lets a batch form after one that held more than one request (ours; the figures are in
/// `docs/internals/appliance.md`).
pub const BATCH_WAIT: Duration = Duration::from_micros(20);
