//! Who receives: the thread of an event loop that took the role ([`Attached`]), or else a thread of the origin's own.
//!
//! Both may receive at the same time, for as long as it takes our own thread to notice that it is not needed: a connection is
//! locked while its messages are taken, so each is acted on once.

use super::Shared;
use crate::pool::locked;
use crate::request::Reactor;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventFlags};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::time::Timespec;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// The event that is no connection.
pub(super) const WAKE: u64 = u64::MAX;

/// How soon our own thread notices that somebody else receives.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Receives until the origin closes, while nobody else does.
pub(super) fn run(shared: &Shared) {
    loop {
        let queue = locked(&shared.queue);
        let is_idle = || shared.is_attached.load(Ordering::SeqCst);
        let waited = shared.change.wait_while(queue, |queue| !queue.closing && is_idle());
        let is_closing = waited.unwrap_or_else(PoisonError::into_inner).closing;
        if is_closing {
            return;
        }
        proceed(shared, &TICK);
    }
}

/// Waits for the sockets, and acts on what they have.
fn proceed(shared: &Shared, timeout: &Timespec) {
    // As many as there may be connections, and the wake-up.
    let mut events = Vec::with_capacity(17);
    // An interrupted wait has found nothing; the next one will.
    if epoll::wait(&shared.epoll, spare_capacity(&mut events), Some(timeout)).is_err() {
        return;
    }
    for event in &events {
        let (data, flags) = (event.data.u64(), event.flags);
        if data == WAKE {
            let _ = rustix::io::read(&shared.wake, &mut [0; 8]);
            continue;
        }
        let connection = locked(&shared.queue).connections.get(data as usize).cloned().flatten();
        // It may have ended meanwhile.
        let Some(connection) = connection else { continue };
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            connection.receive(shared);
        }
        if flags.contains(EventFlags::OUT) {
            connection.writable(shared);
        }
    }
}

/// The role of the receiver, held by an event loop.
pub(super) struct Attached {
    shared: Arc<Shared>,
}

impl Attached {
    pub(super) fn new(shared: &Arc<Shared>) -> Option<Attached> {
        let was_attached = shared.is_attached.swap(true, Ordering::SeqCst);
        (!was_attached).then(|| Attached { shared: Arc::clone(shared) })
    }
}

impl Reactor for Attached {
    fn fd(&self) -> BorrowedFd<'_> {
        self.shared.epoll.as_fd()
    }

    fn proceed(&self) {
        proceed(&self.shared, &AT_ONCE);
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.shared.is_attached.store(false, Ordering::SeqCst);
        // Under the lock, so that a thread that has just looked does not miss it.
        drop(locked(&self.shared.queue));
        self.shared.change.notify_all();
    }
}
