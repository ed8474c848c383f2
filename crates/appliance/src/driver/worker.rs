//! A worker thread: its event loop, its sockets, its origins.
//!
//! One turn: wait; receive from every socket that has something; take completions and commands; let the volumes proceed;
//! send to every client what it has coming, in one system call each.

use super::batching::BatchWait;
use super::draining::{Draining, Ending};
use super::flash::{OriginStamp, VolumeFlash};
use super::inbox::{ConnectionGuard, Content, Inbox, Message, VolumeSink};
use super::parting::Parting;
use super::retarget::Holding;
use super::socket::{Received, Socket};
use super::{EVENTS_MAX, RECEIVE_BYTES};
use crate::clock::Clock;
use crate::service::{FenceError, Lease, Service, ServiceLimits};
use crate::slab::SlabKey;
use forebay_nbd::RunId;
use forebay_origin::{CompletionSink, Origin, OriginRequest, Reactor};
use forebay_ring::{EngineChoice, RingRefused, ThreadRing};
use forebay_units::Nanos;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::time::Timespec;
use std::collections::HashMap;
use std::io::IoSlice;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::Duration;

/// The event that is no connection: the inbox. No key of a connection has this value, since generations start at 0.
const WAKE: u64 = u64::MAX;

/// The event of the worker's ring; no connection's either.
const RING: u64 = u64::MAX - 1;

/// Set in the event of a volume's origin that this worker drives; the rest is the volume's key. Indices of keys are far below it.
const ORIGIN: u64 = 1 << 31;

/// Rounds of completions that arrive while they are handled, before replies are sent.
const ROUNDS_MAX: usize = 4;

/// How often stalled clients are looked for.
const STALL_CHECK: Nanos = Nanos::secs(1);

/// A run that is nobody's: who keeps what is acknowledged behind us is asked for in its name.
const NOBODY: RunId = RunId(0);

pub(super) struct Client {
    pub(super) socket: Socket,
    interest: EventFlags,
    _guard: ConnectionGuard,
}

impl Client {
    /// Sends what it takes; if the connection broke, whatever is left will find that out again.
    fn send_now(&self, slices: &[IoSlice<'_>]) -> usize {
        self.socket.send_slices(slices).unwrap_or(0)
    }
}

/// A volume's origin, and where it puts its completions.
struct OriginPath {
    /// What of it this worker drives: its completions then come without another thread in between.
    reactor: Option<Box<dyn Reactor>>,
    origin: Arc<dyn Origin>,
    /// Who kept what is acknowledged there when it was last asked.
    keeper: Option<RunId>,
    flash: Option<VolumeFlash>,
    sink: Arc<dyn CompletionSink>,
}

/// A lease was raised, and somebody waits until nothing of whom it fences is at the origin.
struct Fencing {
    volume: SlabKey,
    lease: Lease,
    deadline: Nanos,
    reply: SyncSender<Result<(), FenceError>>,
}

/// The state of one worker thread.
pub(crate) struct Worker {
    inbox: Arc<Inbox>,
    epoll: OwnedFd,
    pub(super) service: Service,
    clients: HashMap<SlabKey, Client>,
    pub(super) parting: Parting,
    origins: HashMap<SlabKey, OriginPath>,
    clock: Clock,
    buffer: Vec<u8>,
    /// Connections that hold input for their next turn.
    resumable: Vec<SlabKey>,
    /// Volumes that got requests in this turn.
    batch_volumes: Vec<SlabKey>,
    pub(super) draining: Vec<Draining>,
    /// No drain lasts longer.
    pub(super) drains_until: Option<Nanos>,
    fencing: Vec<Fencing>,
    /// Volumes that are about to change their origin.
    pub(super) holding: Vec<Holding>,
    /// Something was let go on after the volumes had their turn.
    goes_on: bool,
    pub(super) ending: Option<Ending>,
    /// Threads that write what flash is to keep.
    pub(super) saving: Vec<JoinHandle<()>>,
    batch_wait: BatchWait,
    stall_check_at: Nanos,
}

impl Worker {
    pub(crate) fn new(
        inbox: Arc<Inbox>,
        limits: ServiceLimits,
        batch_wait: Duration,
        clock: Clock,
    ) -> rustix::io::Result<Worker> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, inbox.wake_fd(), EventData::new_u64(WAKE), EventFlags::IN)?;
        Ok(Worker {
            inbox,
            epoll,
            service: Service::new(limits),
            clients: HashMap::new(),
            parting: Parting::default(),
            origins: HashMap::new(),
            clock,
            buffer: vec![0; RECEIVE_BYTES],
            resumable: Vec::new(),
            batch_volumes: Vec::new(),
            draining: Vec::new(),
            drains_until: None,
            fencing: Vec::new(),
            holding: Vec::new(),
            goes_on: false,
            ending: None,
            saving: Vec::new(),
            batch_wait: BatchWait::new(batch_wait),
            stall_check_at: Nanos::ZERO,
        })
    }

    /// Closes the inbox when the thread ends, by a panic too: who waits for an answer is told that there is none.
    fn closes_inbox(&self) -> impl Drop + use<> {
        struct Closes(Arc<Inbox>);
        impl Drop for Closes {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    tracing::error!(
                        "a worker thread panicked; its volumes are not served until they are removed and added again"
                    );
                }
                self.0.close();
            }
        }
        Closes(self.inbox.clone())
    }

    /// Runs until it is told to shut down and all its volumes are drained.
    ///
    /// It reads and writes files in a ring of its own, if `io` says so and the kernel allows it; `started` is told. Where it must and cannot, it ends at once.
    pub(crate) fn run(mut self, io: EngineChoice, started: &SyncSender<Result<(), RingRefused>>) {
        let ring = match io {
            EngineChoice::Threads => Ok(None),
            EngineChoice::Auto | EngineChoice::IoUring => self.install_ring().map(Some),
        };
        let may_go_on = ring.is_ok() || io == EngineChoice::Auto;
        let (ring, result) = match ring {
            Ok(ring) => (ring, Ok(())),
            Err(refused) => (None, Err(refused)),
        };
        let _ = started.send(result);
        if !may_go_on {
            return;
        }
        let _closes = self.closes_inbox();
        self.inbox.own();
        // The default slack of 50 us would make a wait of 32 us one of 82.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS_MAX);
        let mut content = Content::default();
        let mut submissions = Vec::new();
        let mut looks = Vec::new();
        loop {
            events.clear();
            let timeout = self.timeout(ring.as_ref());
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "epoll_wait failed");
                    return;
                }
            }
            let now = self.clock.now();
            let mut requests = 0;
            for key in std::mem::take(&mut self.resumable) {
                requests += self.resume(now, key);
            }
            for event in &events {
                let (data, flags) = (event.data, event.flags);
                if data.u64() == WAKE {
                    self.inbox.clear_wake();
                } else if data.u64() == RING {
                    // It is looked at in every turn.
                } else if data.u64() & ORIGIN != 0 {
                    self.proceed(SlabKey(data.u64() & !ORIGIN));
                } else {
                    let key = SlabKey(data.u64());
                    requests += self.receive(now, key, flags);
                    looks.push(key);
                }
            }
            let mut at = now;
            for round in 0..ROUNDS_MAX {
                if round > 0 {
                    at = self.clock.now();
                }
                if self.inbox.has_content() {
                    // Whoever observes may end an interval: the hits that arrived in it were served in it.
                    self.end_batches(now);
                    self.take_inbox(&mut content, at);
                }
                self.service.turn(at, &mut submissions);
                let mut submitted = !submissions.is_empty();
                self.submit(&mut submissions);
                self.service.take_flash_submissions(&mut submissions);
                submitted |= !submissions.is_empty();
                self.submit_to_flash(&mut submissions);
                if let Some(ring) = &ring {
                    ring.proceed();
                }
                if !submitted && !self.inbox.has_content() {
                    break;
                }
            }
            self.end_batches(now);
            self.look_at_changed(now, &mut looks);
            if now >= self.stall_check_at {
                self.stall_check_at = now.saturating_add(STALL_CHECK);
                self.service.close_stalled(now);
                self.settle_what_is_over();
                if self.service.has_told_keepers() {
                    self.service.volume_keys().into_iter().for_each(|volume| self.look_at_keeper(volume));
                }
            }
            self.service.sum_up_refusals(now);
            self.parting.end_late(now);
            self.goes_on = !self.holding.is_empty() && self.check_held(now);
            if !self.fencing.is_empty() {
                self.check_fenced(now);
            }
            if !self.draining.is_empty() {
                self.check_drained(now);
            }
            if self.has_ended(now) {
                return;
            }
            let clock = &self.clock;
            let wait = self.batch_wait.after(requests, || clock.now().saturating_since(now).into());
            if !wait.is_zero() {
                std::thread::sleep(wait);
            }
        }
    }

    fn install_ring(&self) -> Result<ThreadRing, RingRefused> {
        let ring = ThreadRing::install()?;
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&self.epoll, ring.fd(), EventData::new_u64(RING), flags)
            .map_err(|error| RingRefused::Setup { source: error.into() })?;
        Ok(ring)
    }

    fn timeout(&self, ring: Option<&ThreadRing>) -> Option<Timespec> {
        let mut wake_at = self.service.wake_at();
        if let Some(span) = ring.and_then(ThreadRing::proceed_within) {
            let at = self.clock.now().saturating_add(span.into());
            wake_at = Some(wake_at.map_or(at, |wake_at| wake_at.min(at)));
        }
        if !self.resumable.is_empty() || self.goes_on || self.inbox.has_content() {
            wake_at = Some(Nanos::ZERO);
        }
        let deadlines = self.draining.iter().map(|draining| draining.deadline);
        let deadlines = deadlines.chain(self.fencing.iter().map(|fencing| fencing.deadline));
        let deadlines = deadlines.chain(self.parting.wake_at()).chain(self.service.refusals_due());
        let deadlines = deadlines.chain(self.ending.as_ref().map(|ending| ending.deadline));
        for deadline in deadlines.chain(self.holding.iter().map(Holding::deadline)) {
            wake_at = Some(wake_at.map_or(deadline, |at| at.min(deadline)));
        }
        let has_to_look = self.service.has_told_keepers() || !self.service.volumes_in_doubt().is_empty();
        if self.service.held_bytes() > 0 || has_to_look {
            wake_at = Some(wake_at.map_or(self.stall_check_at, |at| at.min(self.stall_check_at)));
        }
        let span = wake_at?.saturating_since(self.clock.now());
        Timespec::try_from(Duration::from(span)).ok()
    }

    /// Origins that know by themselves that what they left open is over end the doubt of their volumes.
    fn settle_what_is_over(&mut self) {
        for volume in self.service.volumes_in_doubt().to_vec() {
            let is_over = self.origins.get(&volume).is_some_and(|path| path.origin.is_settled());
            if is_over && let Some(machine) = self.service.volume(volume) {
                machine.settle();
            }
        }
    }

    /// Has clients of a volume hear of it if what is acknowledged is kept by another one now.
    fn look_at_keeper(&mut self, volume: SlabKey) {
        let Some(path) = self.origins.get_mut(&volume) else { return };
        // Of an origin that keeps it itself it is always the same.
        let keeper = path.origin.keeper(NOBODY);
        if std::mem::replace(&mut path.keeper, keeper) != keeper {
            self.service.is_kept_by(volume, &|own| path.origin.keeper(own));
        }
    }

    /// Notes the volume that got `requests` requests.
    fn count_batch(&mut self, key: SlabKey, requests: usize) -> usize {
        if requests > 0
            && let Some(volume) = self.service.volume_of(key)
            && !self.batch_volumes.contains(&volume)
        {
            self.batch_volumes.push(volume);
        }
        requests
    }

    fn resume(&mut self, now: Nanos, key: SlabKey) -> usize {
        let Some(client) = self.clients.get(&key) else { return 0 };
        let requests = self.service.resume_sending(now, key, &mut |slices| client.send_now(slices));
        self.count_batch(key, requests)
    }

    fn receive(&mut self, now: Nanos, key: SlabKey, flags: EventFlags) -> usize {
        let Some(client) = self.clients.get(&key) else {
            self.parting.receive(key, &mut self.buffer);
            return 0;
        };
        if !client.interest.contains(EventFlags::IN) {
            // Nothing is wanted of it now, and it is gone: what it has coming cannot be delivered.
            if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
                self.service.close(key);
            }
            return 0;
        }
        if !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            return 0;
        }
        match client.socket.receive(&mut self.buffer) {
            Received::Bytes(count) => {
                let bytes = &self.buffer[..count];
                let send = &mut |slices: &[IoSlice<'_>]| client.send_now(slices);
                let requests = self.service.received_sending(now, key, bytes, send);
                self.count_batch(key, requests)
            }
            Received::Nothing => 0,
            Received::End => {
                tracing::debug!(peer = %client.socket.peer, "client left");
                self.service.close(key);
                0
            }
        }
    }

    fn submit(&mut self, submissions: &mut Vec<(SlabKey, OriginRequest)>) {
        let mut rest = submissions.drain(..).peekable();
        while let Some((volume, _)) = rest.peek() {
            let volume = *volume;
            let path = self.origins.get(&volume).expect("a volume's origin lives as long as it");
            let mut requests =
                std::iter::from_fn(|| rest.next_if(|(next, _)| *next == volume).map(|(_, request)| request));
            path.origin.submit_all(&mut requests, &path.sink);
        }
    }

    fn submit_to_flash(&mut self, submissions: &mut Vec<(SlabKey, OriginRequest)>) {
        for (volume, request) in submissions.drain(..) {
            let path = self.origins.get(&volume).expect("a volume's origin lives as long as it");
            let flash = path.flash.as_ref().expect("who asks the device has one");
            flash.store.submit(request, &path.sink);
        }
    }

    /// Lets the origin of a volume act on what came for it; completions go to the inbox, which is looked at in this turn.
    fn proceed(&mut self, volume: SlabKey) {
        if let Some(OriginPath { reactor: Some(reactor), .. }) = self.origins.get(&volume) {
            reactor.proceed();
        }
    }

    /// Takes the role of driving an origin, if it has one to take.
    fn drive(&self, volume: SlabKey, origin: &dyn Origin) -> Option<Box<dyn Reactor>> {
        let reactor = origin.reactor()?;
        let data = EventData::new_u64(volume.0 | ORIGIN);
        match epoll::add(&self.epoll, reactor.fd(), data, EventFlags::IN) {
            Ok(()) => Some(reactor),
            Err(error) => {
                tracing::warn!(%error, "epoll_ctl failed; the origin uses a thread of its own");
                None
            }
        }
    }

    /// The origin of a volume that is there.
    pub(super) fn origin_of(&self, volume: SlabKey) -> Arc<dyn Origin> {
        self.origins.get(&volume).expect("a volume's origin lives as long as it").origin.clone()
    }

    /// Another origin takes the place of a volume's, at which nothing is; the old one.
    pub(super) fn replace_origin(&mut self, volume: SlabKey, origin: Arc<dyn Origin>) -> Arc<dyn Origin> {
        let path = self.origins.get_mut(&volume).expect("a volume's origin lives as long as it");
        if let Some(reactor) = path.reactor.take() {
            let _ = epoll::delete(&self.epoll, reactor.fd());
        }
        let old = std::mem::replace(&mut path.origin, origin.clone());
        if let Some(flash) = &mut path.flash {
            // The stamp that proves at the next start that nobody changed the origin is the old one's.
            flash.stamp = OriginStamp::unknown();
            flash.origin = origin.clone();
        }
        let reactor = self.drive(volume, &*origin);
        self.origins.get_mut(&volume).expect("as above").reactor = reactor;
        old
    }

    pub(super) fn forget_origin(&mut self, volume: SlabKey) -> Option<VolumeFlash> {
        let OriginPath { reactor, flash, .. } = self.origins.remove(&volume)?;
        if let Some(reactor) = reactor {
            // What it waits on may live on with the origin.
            let _ = epoll::delete(&self.epoll, reactor.fd());
        }
        flash
    }

    /// Looks at `keys`, and at whatever else the service has changed; they are empty afterwards.
    pub(super) fn look_at_changed(&mut self, now: Nanos, keys: &mut Vec<SlabKey>) {
        self.service.take_dirty(keys);
        for key in keys.drain(..) {
            self.look(now, key);
        }
    }

    /// Sends what there is to send, and does what else the connection wishes.
    fn look(&mut self, now: Nanos, key: SlabKey) {
        let Some(client) = self.clients.get_mut(&key) else { return };
        while let Some(output) = self.service.output(key).filter(|output| !output.is_empty()) {
            match client.socket.send(output) {
                Ok(0) => break,
                Ok(count) => self.service.sent(now, key, count),
                Err(error) => {
                    tracing::debug!(peer = %client.socket.peer, %error, "client left");
                    self.service.close(key);
                    break;
                }
            }
        }
        let Some(wishes) = self.service.wishes(key) else {
            self.clients.remove(&key);
            return;
        };
        if wishes.close {
            self.service.forget(key);
            // Closing the socket takes it out of the epoll set.
            if let Some(client) = self.clients.remove(&key).filter(|_| wishes.parts)
                && self.is_listened_to(key, &client)
            {
                self.parting.begin(now, key, client);
            }
            return;
        }
        if wishes.resume {
            self.resumable.push(key);
        }
        let mut interest = EventFlags::empty();
        interest.set(EventFlags::IN, wishes.receive);
        interest.set(EventFlags::OUT, wishes.send);
        if interest != client.interest {
            match epoll::modify(&self.epoll, &client.socket, EventData::new_u64(key.0), interest) {
                Ok(()) => client.interest = interest,
                Err(error) => {
                    tracing::error!(%error, "epoll_ctl failed; client disconnected");
                    self.service.forget(key);
                    self.clients.remove(&key);
                }
            }
        }
    }

    /// Whether what the client sends, or that it leaves, is heard of from here on.
    fn is_listened_to(&self, key: SlabKey, client: &Client) -> bool {
        epoll::modify(&self.epoll, &client.socket, EventData::new_u64(key.0), EventFlags::IN).is_ok()
    }

    /// The requests that were received at `started` have been answered as far as they could be.
    fn end_batches(&mut self, started: Nanos) {
        if self.batch_volumes.is_empty() {
            return;
        }
        let end = self.clock.now();
        for volume in std::mem::take(&mut self.batch_volumes) {
            self.service.end_batch(volume, started, end);
        }
    }

    fn take_inbox(&mut self, content: &mut Content, now: Nanos) {
        self.inbox.take(content);
        let mut looked_at = None;
        for (volume, completion) in content.completions.drain(..) {
            // Before the answer is passed on, which another keeper may have given.
            if looked_at.replace(volume) != Some(volume) && self.service.has_told_keepers() {
                self.look_at_keeper(volume);
            }
            self.service.complete(now, volume, completion);
        }
        for message in content.messages.drain(..) {
            self.take_message(message, now);
        }
    }

    fn take_message(&mut self, message: Message, now: Nanos) {
        match message {
            Message::Open { socket, session, input, output, volume, entrance, guard } => {
                socket.enlarge_send_buffer();
                let told = session.told();
                let key = self.service.open(now, *session, volume, entrance, input, output);
                self.service.comes_from(key, socket.client);
                let keeper = |own| self.origins.get(&volume).and_then(|path| path.origin.keeper(own));
                if told.is_some_and(|told| keeper(told.run) != told.keeper) {
                    // It has become another one since the client was told.
                    self.service.close(key);
                }
                let data = EventData::new_u64(key.0);
                if let Err(error) = epoll::add(&self.epoll, &socket, data, EventFlags::empty()) {
                    tracing::error!(%error, "epoll_ctl failed; client disconnected");
                    self.service.forget(key);
                    return;
                }
                self.clients.insert(key, Client { socket, interest: EventFlags::empty(), _guard: guard });
            }
            Message::AddVolume { machine, origin, flash, reply } => {
                let volume = self.service.add_volume(*machine);
                let sink = Arc::new(VolumeSink { volume, inbox: self.inbox.clone() });
                let reactor = self.drive(volume, &*origin);
                self.origins.insert(
                    volume,
                    OriginPath { reactor, keeper: origin.keeper(NOBODY), origin, flash, sink },
                );
                let is_in_doubt = self.service.doubt(volume).expect("added above");
                let _ = reply.send((volume, is_in_doubt));
            }
            Message::Command { volume, command } => command(self.service.volume(volume), now),
            Message::Fence { volume, lease, timeout, reply } => {
                self.service.fence(volume, lease);
                let deadline = now.saturating_add(timeout.into());
                self.fencing.push(Fencing { volume, lease, deadline, reply });
            }
            Message::IsEnteredBy { volume, entrance, reply } => {
                let _ = reply.send(self.service.is_entered_by(volume, entrance));
            }
            Message::Hold { volume, leave, timeout, reply } => {
                self.hold(volume, leave, now, now.saturating_add(timeout.into()), reply);
            }
            Message::Resume { volume, origin, reply } => {
                let _ = reply.send(self.resume_held(volume, now, origin));
            }
            Message::RemoveVolume { volume, timeout, reply } => {
                self.remove(now, volume, timeout, reply);
            }
            Message::Hurry { timeout } => self.hurry(now.saturating_add(timeout.into())),
            Message::Shutdown { timeout, reply } => self.end(now, timeout, reply),
        }
    }

    fn check_fenced(&mut self, now: Nanos) {
        for fencing in std::mem::take(&mut self.fencing) {
            let in_flight = self.service.fenced_in_flight(fencing.volume);
            let overtaken = self.service.lease(fencing.volume).filter(|now| *now != fencing.lease);
            let answer = match self.service.peek(fencing.volume) {
                None => Err(FenceError::Gone),
                Some(_) if let Some(now) = overtaken => Err(FenceError::Overtaken { now }),
                Some(_) if in_flight > 0 && now < fencing.deadline => {
                    self.fencing.push(fencing);
                    continue;
                }
                Some(_) if in_flight > 0 => Err(FenceError::NotDrained { in_flight }),
                // What is in doubt stays so whoever comes: nobody's writes are let over it, and nothing of it is cached here. So no write of those that
                // are kept out stands over another one, however late it is applied.
                Some(_) => Ok(()),
            };
            let _ = fencing.reply.send(answer);
        }
    }
}
