//! Threads and sockets: one acceptor for handshakes, and workers that own volumes and their connections.
//!
//! It decides nothing about requests: it moves bytes between sockets and the service, and requests between the service
//! and origins. Every fd is non-blocking; a thread waits in `epoll_wait` only. Nothing is shared between workers but the
//! directory, which is read during handshakes.

mod acceptor;
mod batching;
mod draining;
mod flash;
mod inbox;
mod listener;
mod mailbox;
#[cfg(test)]
mod mailbox_orders;
mod parting;
mod retarget;
mod socket;
mod worker;

/// What [`mailbox`] is made of; its tests have the same from `loom`.
mod primitives {
    pub(super) use std::sync::Mutex;
    pub(super) use std::sync::atomic::{AtomicBool, Ordering};
}

pub(crate) use acceptor::{Acceptor, AcceptorHandle, TlsAcceptor};
pub(crate) use flash::VolumeFlash;
pub use flash::{
    FLASH_ALIGNMENT, FLASH_REQUESTS_MAX, FLASH_SEGMENT_BYTES, FLASH_VOLUMES_MAX, FlashConfig, FlashMissing,
    FlashOpenError, FlashStore, OriginStamp, flash_capacity, trouble_of_flash,
};
pub(crate) use inbox::{Inbox, Message};
pub(crate) use listener::Listener;
pub use listener::{BoundAddress, ListenError, ListenerConfig, SocketFile, remove_stale_socket};
pub use retarget::RetargetError;
pub(crate) use worker::Worker;

use forebay_units::Nanos;
use std::time::Duration;

/// Handshakes at once; more clients wait in the kernel's queue of connections (ours).
pub const HANDSHAKES_MAX: usize = 256;

/// A client that has not chosen an export by then is disconnected (ours).
pub const HANDSHAKE_TIME_MAX: Nanos = Nanos::secs(10);

/// So long it may take at least, also where others wait for its place (ours).
pub(crate) const CROWDED_TIME_MAX: Nanos = Nanos::secs(1);

/// Bytes received at once, so that many requests are parsed per system call (ours).
pub const RECEIVE_BYTES: usize = 256 << 10;

/// What a local socket is asked to hold of replies that were sent and not taken (ours; the kernel accounts for its overhead too).
pub(crate) const SEND_BUFFER_BYTES: usize = 512 << 10;

/// Pieces per `sendmsg` (ours).
pub(crate) const SLICES_MAX: usize = 64;

/// Events per `epoll_wait` (ours).
pub(crate) const EVENTS_MAX: usize = 128;

/// How long a worker lets the next batch form at most; half of what the last turn took, if that is less (ours: a wait of a fixed
/// microsecond per request saved processor time on a slow machine and kept a client waiting on one twice as fast).
pub const BATCH_WAIT: Duration = Duration::from_micros(32);
