//! An origin whose requests are submitted by one thread of its own, which drives a ring: what it reads and writes of files goes into that.
//!
//! For who asks from threads that have other things to do than to drive a ring. It is not a queue: what is handed over is submitted as soon as the thread
//! runs, and bounded by the origin inside.

use crate::layer::Layer;
use crate::pool::locked;
use crate::request::{CompletionSink, Origin, OriginRequest};
use forebay_ring::{RingRefused, ThreadRing};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::time::Timespec;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use thiserror::Error;

/// Requests that wait to be submitted, at most; more are submitted by whoever asks, without a ring (ours).
const INBOX_MAX: usize = 1 << 16;

/// Why there is none.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OnRingError {
    /// The thread has no ring.
    #[error(transparent)]
    Refused(#[from] RingRefused),
    /// The system gives no thread, or nothing to wake it with.
    #[error("cannot start a thread that drives a ring: {source}")]
    Thread {
        /// Why.
        #[source]
        source: io::Error,
    },
}

struct Inbox {
    requests: Vec<(OriginRequest, Arc<dyn CompletionSink>)>,
    is_closing: bool,
}

struct Shared {
    inbox: Mutex<Inbox>,
    wake: OwnedFd,
}

impl Shared {
    fn wake(&self) {
        // It fails only where the count is full, and then the thread wakes anyway.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// An origin behind a thread that drives a ring.
///
/// Dropping it submits what was handed over, and waits 5 s at most for what is in the ring.
pub struct OnRing {
    inner: Arc<dyn Origin>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl OnRing {
    /// Puts a thread with a ring in front of `inner`.
    ///
    /// # Errors
    /// [`OnRingError`]: `inner` works without one as well.
    pub fn new(inner: Arc<dyn Origin>) -> Result<OnRing, OnRingError> {
        let system = |source: rustix::io::Errno| OnRingError::Thread { source: source.into() };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(system)?;
        let events = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        epoll::add(&events, &wake, EventData::new_u64(0), EventFlags::IN).map_err(system)?;
        let inbox = Mutex::new(Inbox { requests: Vec::new(), is_closing: false });
        let shared = Arc::new(Shared { inbox, wake });
        let (told, answer) = channel();
        let (origin, of_thread) = (Arc::clone(&inner), Arc::clone(&shared));
        let thread = std::thread::Builder::new()
            .name("origin-ring".to_owned())
            .spawn(move || work(&*origin, &of_thread, &events, &told))
            .map_err(|source| OnRingError::Thread { source })?;
        let on_ring = OnRing { inner, shared, thread: Some(thread) };
        match answer.recv() {
            Ok(result) => result.map(|()| on_ring),
            Err(_) => Err(OnRingError::Thread { source: io::Error::other("it ended at once") }),
        }
    }
}

/// Submits what is handed over, and drives the ring, until it is closed.
fn work(origin: &dyn Origin, shared: &Shared, events: &OwnedFd, told: &Sender<Result<(), OnRingError>>) {
    let installed = ThreadRing::install().map_err(OnRingError::from).and_then(|ring| {
        epoll::add(events, ring.fd(), EventData::new_u64(1), EventFlags::IN | EventFlags::ET)
            .map_err(|source| OnRingError::Thread { source: source.into() })?;
        Ok(ring)
    });
    let ring = match installed {
        Ok(ring) => ring,
        Err(error) => {
            let _ = told.send(Err(error));
            return;
        }
    };
    let _ = told.send(Ok(()));
    let mut happened = Vec::with_capacity(2);
    let mut requests = Vec::new();
    loop {
        let is_closing = {
            let mut inbox = locked(&shared.inbox);
            std::mem::swap(&mut inbox.requests, &mut requests);
            inbox.is_closing
        };
        for (request, sink) in requests.drain(..) {
            origin.submit(request, &sink);
        }
        ring.proceed();
        if is_closing {
            return;
        }
        let timeout = ring.proceed_within().and_then(|within| Timespec::try_from(within).ok());
        happened.clear();
        // An interruption is one more turn.
        let _ = epoll::wait(events, spare_capacity(&mut happened), timeout.as_ref());
        let _ = rustix::io::read(&shared.wake, &mut [0u8; 8]);
    }
}

impl Layer for OnRing {
    fn inner(&self) -> &dyn Origin {
        &*self.inner
    }

    fn pass(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        self.pass_all(&mut std::iter::once(request), sink);
    }

    fn pass_all(&self, requests: &mut dyn Iterator<Item = OriginRequest>, sink: &Arc<dyn CompletionSink>) {
        let was_empty = {
            let mut inbox = locked(&self.shared.inbox);
            let was_empty = inbox.requests.is_empty();
            let room = INBOX_MAX.saturating_sub(inbox.requests.len());
            inbox.requests.extend((&mut *requests).take(room).map(|request| (request, Arc::clone(sink))));
            was_empty
        };
        if was_empty {
            self.shared.wake();
        }
        requests.for_each(|request| self.inner.submit(request, sink));
    }

    fn describe_over(&self, inner: &str) -> String {
        inner.to_owned()
    }
}

impl Drop for OnRing {
    fn drop(&mut self) {
        locked(&self.shared.inbox).is_closing = true;
        self.shared.wake();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
