//! What other threads tell a worker: completions of origins, new connections, commands.
//!
//! Invariant: whatever was sent before the worker looks is seen by that look or announced by the event fd, so that no
//! wake-up is lost (`mailbox.rs`); many messages cost one wake-up.

use super::flash::VolumeFlash;
use super::mailbox::Mailbox;
use super::retarget::{Resumed, RetargetError};
use super::socket::Socket;
use crate::appliance::Drained;
use crate::service::{Entrance, FenceError, Lease};
use crate::slab::SlabKey;
use crate::volume::{Leave, VolumeMachine};
use forebay_nbd::server::Session;
use forebay_origin::{CompletionSink, Origin, OriginCompletion};
use forebay_units::Nanos;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;
use std::time::Duration;

/// Counts a connection for as long as it lives.
#[derive(Debug)]
pub(crate) struct ConnectionGuard {
    counters: Vec<Arc<AtomicUsize>>,
}

impl ConnectionGuard {
    pub(crate) fn new(counter: &Arc<AtomicUsize>) -> ConnectionGuard {
        let mut guard = ConnectionGuard { counters: Vec::with_capacity(2) };
        guard.count(counter);
        guard
    }

    pub(crate) fn count(&mut self, counter: &Arc<AtomicUsize>) {
        counter.fetch_add(1, Ordering::Relaxed);
        self.counters.push(counter.clone());
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        for counter in &self.counters {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A command to a volume's machine, told the time; `None` if the volume is gone.
pub(crate) type VolumeCommand = Box<dyn FnOnce(Option<&mut VolumeMachine>, Nanos) + Send>;

/// What a worker is told.
pub(crate) enum Message {
    /// A client chose `volume`.
    Open {
        socket: Socket,
        session: Box<Session>,
        input: Vec<u8>,
        output: Vec<u8>,
        volume: SlabKey,
        entrance: Entrance,
        guard: ConnectionGuard,
    },
    /// A volume to own.
    AddVolume {
        machine: Box<VolumeMachine>,
        origin: Arc<dyn Origin>,
        flash: Option<VolumeFlash>,
        /// Where it is, and whether a write of it has an unknown outcome.
        reply: SyncSender<(SlabKey, Arc<AtomicBool>)>,
    },
    /// A command to one volume.
    Command { volume: SlabKey, command: VolumeCommand },
    /// Let only in whom the lease admits; answers when nothing of the others is at the origin any more.
    Fence { volume: SlabKey, lease: Lease, timeout: Duration, reply: SyncSender<Result<(), FenceError>> },
    /// Whether a client is there by this entrance.
    IsEnteredBy { volume: SlabKey, entrance: Entrance, reply: SyncSender<bool> },
    /// Hold a volume: answers when nothing is at its origin, which is left on these terms, or why that is not to be had. It goes on by itself when the time is over.
    Hold { volume: SlabKey, leave: Leave, timeout: Duration, reply: SyncSender<Result<Nanos, RetargetError>> },
    /// A volume that is held goes on, with another origin if there is one; answers with the old origin, and how long it was held.
    Resume { volume: SlabKey, origin: Option<Arc<dyn Origin>>, reply: SyncSender<Resumed> },
    /// Finish what is in flight on a volume and forget it; answers how that ended.
    RemoveVolume { volume: SlabKey, timeout: Duration, reply: SyncSender<Drained> },
    /// Take no longer for that, whatever was said or is said later.
    Hurry { timeout: Duration },
    /// Finish what is in flight on all volumes; then end, and answer with the worst of how they ended.
    Shutdown { timeout: Duration, reply: SyncSender<Drained> },
}

#[derive(Default)]
pub(crate) struct Content {
    pub(crate) messages: Vec<Message>,
    pub(crate) completions: Vec<(SlabKey, OriginCompletion)>,
}

/// The queue of one worker. Its length is bounded by the requests at origins, by the connections, and by the callers that
/// wait for the answers to their commands.
pub(crate) struct Inbox {
    mailbox: Mailbox<Content>,
    wake: OwnedFd,
    owner: OnceLock<ThreadId>,
    ended: Arc<AtomicBool>,
}

impl Inbox {
    pub(crate) fn new() -> rustix::io::Result<Inbox> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Inbox { mailbox: Mailbox::new(), wake, owner: OnceLock::new(), ended: Arc::default() })
    }

    /// The calling thread is the worker from here on.
    pub(crate) fn own(&self) {
        let _ = self.owner.set(std::thread::current().id());
    }

    pub(crate) fn wake_fd(&self) -> &OwnedFd {
        &self.wake
    }

    fn push(&self, push: impl FnOnce(&mut Content)) {
        // The worker itself looks before it waits.
        if self.mailbox.put(push) && self.owner.get() != Some(&std::thread::current().id()) {
            self.wake();
        }
    }

    /// Wakes the worker. A counter that is full wakes as well, so an error changes nothing.
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    pub(crate) fn send(&self, message: Message) {
        self.push(|content| content.messages.push(message));
    }

    pub(crate) fn has_content(&self) -> bool {
        self.mailbox.has_content()
    }

    /// Exchanges the content for the empty `content`, whose memory is used again.
    pub(crate) fn take(&self, content: &mut Content) {
        self.mailbox.take(content);
    }

    /// The worker ends: everything in here, and everything sent from now on, is dropped.
    pub(crate) fn close(&self) {
        self.ended.store(true, Ordering::Release);
        self.mailbox.close();
    }

    /// Whether the worker has ended, in order or by a panic: true before the connections end that it served.
    pub(crate) fn ended(&self) -> &Arc<AtomicBool> {
        &self.ended
    }

    /// Takes the event fd back to zero.
    pub(crate) fn clear_wake(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }
}

/// Where the origin of one volume puts its completions.
pub(crate) struct VolumeSink {
    pub(crate) volume: SlabKey,
    pub(crate) inbox: Arc<Inbox>,
}

impl CompletionSink for VolumeSink {
    fn complete(&self, completion: OriginCompletion) {
        self.inbox.push(|content| content.completions.push((self.volume, completion)));
    }
}
