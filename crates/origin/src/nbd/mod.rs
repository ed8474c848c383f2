//! An NBD export as an origin: several connections, pipelined requests, reconnection.
//!
//! What is sent again after a lost connection to any server: reads, and questions about block status, which change nothing. A write (trim, zeroing) that was in flight has an
//! unknown outcome: the server may have applied it, or may apply it later, when the connection is long gone.
//!
//! A server of ours says that connections succeed one another ([`forebay_nbd::Succession`]). Each lane names its own succession, and what was in flight on a connection of it, changes
//! and flushes too, waits until the next one is made, for at most `wait_for_origin`. If that is of the same run of the export, all of it goes out on that one before anything else, so
//! that it is begun when everything is over that came before; and nothing that was acknowledged is lost. What changes no more by being made twice is then made once or twice, with nothing of ours between: a
//! caller has no two changes of one range in flight, or bears either order.
//!
//! A server of ours that ends in order says so with its last word on each connection: what is in flight then was never taken, and waits as though it had not been sent, for whoever serves the export next; and
//! what was acknowledged is safe.
//!
//! Of all other servers, and of another run, nothing that a client can observe tells it that a write is over, so that it is never settled by itself:
//!
//! * by default it completes as [`OriginError::OutcomeUnknown`](crate::OriginError::OutcomeUnknown), and stays in doubt until an
//!   operator declares otherwise ([`Origin::settle`]);
//! * for a server that is known to finish or to drop everything of a lost connection before it accepts a new one
//!   ([`NbdOriginOptions::fences_on_disconnect`]) the completion is held back until a new connection is made, and is
//!   then `Failed` with `EIO`: what the blocks hold is not known, but it will not change any more.
//!
//! A flush in flight on a lost connection fails with `EIO`. So does the next flush after it where writes without FUA had been
//! acknowledged since the last one, because a server that was restarted may have lost them
//! ([`NbdOriginOptions::keeps_acknowledged_writes`]), and so does a flush that waited to be sent meanwhile: one of a client, or one
//! that stands in for FUA. The same holds behind a flush that stood in for FUA and failed: it spoke of all writes, the server may say so once only, and who asked
//! for FUA hears of one.
//!
//! But a server that gives the export to others while it lives loses nothing. Where one says which run it is of ([`forebay_nbd::RunId`]), ends a connection in order, and the
//! same run then keeps us out, it did not take what it did not answer. A flush of those waits as though it had never been sent, and no flush need fail.
//!
//! Source: the NBD protocol document (`doc/proto.md`); the rules above are ours.

#[cfg(test)]
mod answers;
mod connection;
mod doubts;
mod job;
mod lane;
mod lineage;
mod options;
mod reactor;
mod stream;
mod unflushed;

pub use lineage::Lineage;
pub use options::NbdOriginOptions;
pub use stream::{ConnectError, KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES, keep_alive};
pub use unflushed::{UnflushedChanges, Withheld};

use crate::pending::{Counters, EIO};
use crate::pool::locked;
use crate::request::{
    CompletionSink, Origin, OriginOperation, OriginRequest, OriginTraits, Reactor, Unflushed,
};
use crate::statistics::{OriginState, OriginStatistics};
use connection::Connection;
use doubts::Doubts;
use forebay_nbd::client::Export;
use forebay_nbd::wire::TransmissionFlags;
use forebay_nbd::{RunId, Succession, Uri};
use forebay_tls::{ClientTls, Tunnels};
use forebay_units::Nanos;
use job::Job;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use stream::{Secured, connect};

/// Connections to one export, at most.
const CONNECTIONS_MAX: usize = Succession::LANES as usize;

const CLOSED: &str = "origin closed";

/// What a flush says behind the loss of a connection.
const MAY_NOT_BE_SAFE: &str =
    "a connection was lost, or a flush for FUA failed, since writes were acknowledged: they may not be safe";

/// Requests in flight on a connection from which on others share the load (ours: fewer go out and come back in one call each).
const LOAD_SHARED_FROM: usize = 16;

/// A request that was in flight on a lost connection, of which a later attempt of its lane may say more: to be sent again where the server lets connections succeed one
/// another; a change that is over, where the server fences; a flush that the server never took.
struct Held {
    lane: usize,
    job: Job,
    since: Instant,
}

struct Queue {
    jobs: VecDeque<Job>,
    held: Vec<Held>,
    closing: bool,
    failed: Option<String>,
    lanes_up: Vec<bool>,
    /// When the first of the lanes came up that are.
    up_since: Option<Instant>,
    /// Since when every attempt to connect has been refused, with no lane up.
    refused_since: Option<Instant>,
    /// Connections made.
    connects: u64,
    /// By lane.
    doubts: Vec<Doubts>,
    /// Lanes of which an attempt to connect says whether what was acknowledged may be lost: no flush goes out before that.
    undecided: Vec<bool>,
    connections: Vec<Option<Arc<Connection>>>,
    down_reason: String,
    /// Flushes that nobody asked for but we, and that are not over.
    own_flushes: Arc<AtomicU64>,
}

impl Queue {
    /// Whether nothing will be sent any more.
    fn over(&self) -> bool {
        self.closing || self.failed.is_some()
    }

    fn cut_connections(&self) {
        self.connections.iter().flatten().for_each(|connection| connection.stream().shut_down());
    }

    /// The place of the request that may be sent next.
    fn next(&self) -> Option<usize> {
        if self.over() {
            return None;
        }
        let is_undecided = self.undecided.contains(&true);
        // Of two flushes side by side the server tells one alone of a loss: if that is ours, the other one must not be sent.
        let awaits_ours = self.own_flushes.load(Ordering::SeqCst) > 0;
        let is_held = |job: &Job| job.is_flush() && (is_undecided || (awaits_ours && !job.is_ours));
        self.jobs.iter().position(|job| !is_held(job))
    }

    fn take_job(&mut self) -> Option<Job> {
        self.jobs.remove(self.next()?)
    }

    fn is_up(&self) -> bool {
        self.lanes_up.contains(&true)
    }

    fn set_up(&mut self, lane: usize, is_up: bool) {
        self.lanes_up[lane] = is_up;
        self.up_since = self.is_up().then(|| self.up_since.unwrap_or_else(Instant::now));
        self.connects += u64::from(is_up);
        if is_up {
            self.refused_since = None;
        }
    }

    /// An attempt to connect failed so.
    fn note_attempt(&mut self, error: &ConnectError) {
        self.refused_since = match error.is_refused() && !self.is_up() {
            true => Some(self.refused_since.unwrap_or_else(Instant::now)),
            false => None,
        };
    }

    /// The connection that the next requests go to, and how many may be in flight on it then: the first one with few, so that
    /// requests go out side by side in one call; with many, the one with the fewest.
    fn choose(&self) -> Option<(Arc<Connection>, usize)> {
        let with_room = || self.connections.iter().flatten().filter(|connection| connection.has_room());
        if let Some(first) = with_room().find(|connection| connection.load() < LOAD_SHARED_FROM) {
            return Some((Arc::clone(first), LOAD_SHARED_FROM));
        }
        let least = with_room().min_by_key(|connection| connection.load())?;
        Some((Arc::clone(least), least.load() + LOAD_SHARED_FROM))
    }
}

struct Shared {
    uri: Uri,
    secured: Option<Secured>,
    options: NbdOriginOptions,
    export: Export,
    queue: Mutex<Queue>,
    /// Of all lanes together. Who has it locked locks nothing else.
    unflushed: Mutex<UnflushedChanges>,
    /// Of each lane, in which its connections take each other's place: that of the first one.
    successions: Vec<Succession>,
    /// The sockets of the connections, by lane, and `wake`.
    epoll: OwnedFd,
    /// Ends the wait of whoever waits for the sockets.
    wake: OwnedFd,
    /// Somebody else than our own thread receives.
    is_attached: AtomicBool,
    counters: Arc<Counters>,
    /// Told when a lane goes up or down, a reactor comes or leaves, or it is over.
    change: Condvar,
    reconnects: AtomicU64,
    reads_sent_again: AtomicU64,
    changes_sent_again: AtomicU64,
    in_doubt: AtomicU64,
}

impl Shared {
    /// What is worse about an export that came back, if anything.
    fn changed(&self, now: &Export) -> Option<String> {
        use TransmissionFlags as Flags;
        let before = &self.export;
        if now.size_bytes != before.size_bytes {
            return Some(format!("size is {} bytes, was {}", now.size_bytes, before.size_bytes));
        }
        let lost = |flag| before.flags.contains(flag) && !now.flags.contains(flag);
        if now.flags.contains(Flags::READ_ONLY) != before.flags.contains(Flags::READ_ONLY) {
            return Some("read-only has changed".into());
        }
        if lost(Flags::SEND_FLUSH) || lost(Flags::CAN_MULTI_CONN) {
            return Some("flush or its reach over connections is no longer offered".into());
        }
        let (new, old) = (now.block_sizes, before.block_sizes);
        (new.min > old.min || new.max < old.max).then(|| "block sizes are stricter".into())
    }

    /// Declares the origin unusable, for good.
    fn fail(&self, reason: String) {
        let mut queue = locked(&self.queue);
        // Every connection finds out by itself; the first one says so.
        if queue.failed.is_none() {
            tracing::error!(target: "forebay::origin", uri = %self.uri.shown(), reason, "origin failed");
            queue.failed = Some(reason);
        }
        queue.cut_connections();
        drop(queue);
        self.change.notify_all();
    }

    /// Hands what waits in the queue to connections with room. Called by whoever put something there or made room, so that
    /// nothing waits that could go.
    fn pump(&self) {
        loop {
            let queue = locked(&self.queue);
            if queue.next().is_none() {
                return;
            }
            let Some((connection, load_max)) = queue.choose() else { return };
            drop(queue);
            connection.fill(self, load_max);
        }
    }

    /// Puts a request back to the front, to be sent next.
    fn put_back(&self, job: Job) {
        let mut queue = locked(&self.queue);
        if queue.over() {
            let reason = queue.failed.clone().unwrap_or_else(|| CLOSED.into());
            drop(queue);
            return job.unreachable(&reason);
        }
        queue.jobs.push_front(job);
        let is_up = queue.is_up();
        drop(queue);
        self.sendable(is_up);
    }

    /// Holds a request back until its lane has, or cannot have, a connection again, at most for as long as requests wait for one; gives it back if nothing will be sent any more.
    fn hold(&self, lane: usize, job: Job) -> Option<Job> {
        let mut queue = locked(&self.queue);
        if queue.over() {
            return Some(job);
        }
        queue.held.push(Held { lane, job, since: Instant::now() });
        drop(queue);
        self.change.notify_all();
        None
    }

    /// Takes those of the held requests of a lane.
    fn take_held(&self, lane: usize, which: impl Fn(&Job) -> bool) -> Vec<Job> {
        let mut queue = locked(&self.queue);
        let its = |held: &Held| held.lane == lane && which(&held.job);
        let (its, rest): (Vec<Held>, Vec<Held>) = queue.held.drain(..).partition(its);
        queue.held = rest;
        its.into_iter().map(|held| held.job).collect()
    }

    /// This way to the data takes the place of another one, which has this unflushed.
    fn inherit(&self, unflushed: Unflushed) {
        let mut queue = locked(&self.queue);
        let must_flush = locked(&self.unflushed).inherit(unflushed);
        if must_flush && !queue.over() {
            self.flush_for_ourselves(&mut queue);
        }
        drop(queue);
        self.go_on();
    }

    /// What waits goes out, as far as it may.
    fn go_on(&self) {
        let is_up = locked(&self.queue).is_up();
        self.sendable(is_up);
    }

    /// Something was put into the queue.
    fn sendable(&self, is_up: bool) {
        if is_up {
            self.pump();
        } else {
            // It may have to be given up in time.
            self.change.notify_all();
        }
    }
}

/// An export of an NBD server.
///
/// Dropping it completes what waits as `Unreachable`, and writes in flight as `OutcomeUnknown`: wait for the
/// completions first.
pub struct NbdOrigin {
    shared: Arc<Shared>,
    traits: OriginTraits,
    counters: Arc<Counters>,
    threads: Vec<JoinHandle<()>>,
}

impl NbdOrigin {
    /// Connects, opens the export that `uri` names, and starts the connections' threads.
    ///
    /// Size and abilities are those of this moment. If the export comes back with another size or with less, the
    /// origin goes into [`OriginState::Failed`] and every request completes as `Unreachable`.
    ///
    /// # Errors
    /// [`ConnectError`] where that cannot be done now; trying again later is up to the caller.
    pub fn connect(uri: &Uri, options: NbdOriginOptions) -> Result<NbdOrigin, ConnectError> {
        NbdOrigin::connect_secured(uri, None, options, None)
    }

    /// Likewise, with what a URI that asks for TLS (`nbds://`, `nbds+unix://`) needs: whom to believe, and what to show. The server's
    /// certificate must be for the URI's `tls-hostname`, else its host, else `localhost`.
    ///
    /// With a `lineage`, servers of ours take nothing more of what earlier runs of it have sent to the same volume, from the first connection on.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect_secured(
        uri: &Uri,
        tls: Option<ClientTls>,
        options: NbdOriginOptions,
        lineage: Option<&Lineage>,
    ) -> Result<NbdOrigin, ConnectError> {
        let secured = match tls {
            Some(tls) => {
                let tunnels =
                    Tunnels::start("nbd-origin-tls").map_err(|source| ConnectError::Thread { source })?;
                Some(Secured { tls, tunnels: Arc::new(tunnels) })
            }
            None => None,
        };
        let Some((lineage, instance)) = lineage.and_then(|lineage| Some((lineage, lineage.take()?))) else {
            return NbdOrigin::start(uri, secured, options, lineage::random_lanes());
        };
        let started = NbdOrigin::start(uri, secured, options, lineage.lanes(instance));
        if let Err(error) = &started
            && !matches!(error, ConnectError::Thread { .. })
        {
            // No lane had begun.
            lineage.give_back(instance);
        }
        started
    }

    fn start(
        uri: &Uri,
        secured: Option<Secured>,
        options: NbdOriginOptions,
        successions: Vec<Succession>,
    ) -> Result<NbdOrigin, ConnectError> {
        let options = options.within_range();
        let requests_max = options.connection_requests_max;
        let timeout = options.connect_timeout.into();
        let first = connect(uri, secured.as_ref(), requests_max, successions[0], timeout)?;
        let export = first.export.clone();
        if export.size_bytes == 0 {
            return Err(ConnectError::Empty { uri: uri.shown().to_string() });
        }
        let multi = export.flags.contains(TransmissionFlags::CAN_MULTI_CONN);
        let lanes = if multi { options.connections.clamp(1, CONNECTIONS_MAX) } else { 1 };
        let read_only = export.flags.contains(TransmissionFlags::READ_ONLY);
        if !read_only && !export.flags.contains(TransmissionFlags::SEND_FLUSH) {
            tracing::warn!(target: "forebay::origin", uri = %uri.shown(), "server offers no flush: nothing tells when writes are safe");
        }
        let traits = OriginTraits {
            size_bytes: export.size_bytes,
            read_only,
            block_size_min: export.block_sizes.min,
            block_size_preferred: export.block_sizes.preferred,
            request_bytes_max: export.block_sizes.max.min(crate::image::REQUEST_BYTES_MAX),
            can_trim: export.flags.contains(TransmissionFlags::SEND_TRIM) && !read_only,
            can_fast_zero: export.flags.contains(TransmissionFlags::SEND_FAST_ZERO) && !read_only,
            can_multi_conn: multi || lanes == 1,
        };
        let counters = Counters::new(options.in_flight_max.max(1));
        let can_be_lost =
            export.flags.contains(TransmissionFlags::SEND_FLUSH) && !options.keeps_acknowledged_writes;
        let unflushed = UnflushedChanges::new(can_be_lost, export.succeeds);
        let system = |errno: rustix::io::Errno| ConnectError::Thread { source: errno.into() };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(system)?;
        epoll::add(&epoll, &wake, EventData::new_u64(reactor::WAKE), EventFlags::IN).map_err(system)?;
        let shared = Arc::new(Shared {
            uri: uri.clone(),
            secured,
            options,
            export,
            queue: Mutex::new(Queue {
                jobs: VecDeque::new(),
                held: Vec::new(),
                closing: false,
                failed: None,
                lanes_up: vec![false; lanes],
                up_since: None,
                refused_since: None,
                connects: 0,
                doubts: vec![Doubts::default(); lanes],
                undecided: vec![false; lanes],
                connections: (0..lanes).map(|_| None).collect(),
                down_reason: String::new(),
                own_flushes: Arc::default(),
            }),
            unflushed: Mutex::new(unflushed),
            successions,
            epoll,
            wake,
            is_attached: AtomicBool::new(false),
            counters: Arc::clone(&counters),
            change: Condvar::new(),
            reconnects: AtomicU64::new(0),
            reads_sent_again: AtomicU64::new(0),
            changes_sent_again: AtomicU64::new(0),
            in_doubt: AtomicU64::new(0),
        });
        // The first lane has its connection already.
        locked(&shared.queue).set_up(0, true);
        let mut origin = NbdOrigin { shared, traits, counters, threads: Vec::new() };
        let thread_error = |source| ConnectError::Thread { source };
        let mut first = Some(first);
        for index in 0..lanes {
            let (shared, first) = (Arc::clone(&origin.shared), first.take());
            let builder = thread::Builder::new().name(format!("nbd-origin-{index}"));
            origin
                .threads
                .push(builder.spawn(move || lane::run(&shared, index, first)).map_err(thread_error)?);
        }
        let shared = Arc::clone(&origin.shared);
        let builder = thread::Builder::new().name("nbd-origin-io".into());
        origin.threads.push(builder.spawn(move || reactor::run(&shared)).map_err(thread_error)?);
        let shared = Arc::clone(&origin.shared);
        let builder = thread::Builder::new().name("nbd-origin-wait".into());
        origin.threads.push(builder.spawn(move || expire(&shared)).map_err(thread_error)?);
        Ok(origin)
    }
}

/// Completes what has waited too long for a connection, and everything once it is over. Lanes do not: they may be in the middle of connecting.
fn expire(shared: &Shared) {
    let wait = Duration::from(shared.options.wait_for_origin);
    let is_late = |since: Instant| since.elapsed() >= wait;
    let mut queue = locked(&shared.queue);
    loop {
        if queue.over() {
            let reason = queue.failed.clone().unwrap_or_else(|| CLOSED.into());
            let rest = std::mem::take(&mut queue.jobs);
            let held = std::mem::take(&mut queue.held);
            let closing = queue.closing;
            drop(queue);
            rest.into_iter().for_each(|job| job.unreachable(&reason));
            held.into_iter().for_each(|held| shared.in_doubt(held.lane, held.job, &reason));
            if closing {
                return;
            }
            queue = locked(&shared.queue);
            let woken = shared.change.wait_timeout_while(queue, Duration::from_secs(1), |queue| {
                !queue.closing && queue.jobs.is_empty()
            });
            queue = woken.unwrap_or_else(PoisonError::into_inner).0;
            continue;
        }
        let is_down = !queue.is_up();
        let (overdue, rest): (VecDeque<Job>, _) =
            queue.jobs.drain(..).partition(|job| is_down && is_late(job.waits_since));
        queue.jobs = rest;
        let (held, rest): (Vec<Held>, _) = queue.held.drain(..).partition(|held| is_late(held.since));
        queue.held = rest;
        // Before the lane can have its next connection, which is asked about what is in doubt by then.
        held.iter().for_each(|held| shared.count_doubt(&mut queue, held.lane, &held.job));
        if !overdue.is_empty() || !held.is_empty() {
            let reason = queue.down_reason.clone();
            drop(queue);
            overdue.into_iter().for_each(|job| job.unreachable(&reason));
            let what = "connection lost before the answer and not made again in time";
            held.into_iter().for_each(|held| held.job.give_up(what));
            queue = locked(&shared.queue);
            continue;
        }
        let jobs = queue.jobs.iter().filter(|_| is_down).map(|job| job.waits_since);
        let since = jobs.chain(queue.held.iter().map(|held| held.since)).min();
        let left = since.map(|since| wait.saturating_sub(since.elapsed()));
        let most = Duration::from_secs(1);
        let pause = left.map_or(most, |left| left.clamp(Duration::from_millis(1), most));
        queue = shared.change.wait_timeout(queue, pause).unwrap_or_else(PoisonError::into_inner).0;
    }
}

impl Origin for NbdOrigin {
    fn traits(&self) -> OriginTraits {
        self.traits
    }

    fn submit(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        self.submit_all(&mut std::iter::once(request), sink);
    }

    fn submit_all(&self, requests: &mut dyn Iterator<Item = OriginRequest>, sink: &Arc<dyn CompletionSink>) {
        let mut jobs = requests.filter_map(|request| self.prepare(request, sink)).peekable();
        if jobs.peek().is_none() {
            return;
        }
        // Collected first: who is told of a refusal may submit again, so nothing is locked while requests are looked at.
        let mut jobs: VecDeque<Job> = jobs.collect();
        let mut queue = locked(&self.shared.queue);
        if let Some(reason) = queue.failed.clone() {
            drop(queue);
            return jobs.into_iter().for_each(|job| job.unreachable(&reason));
        }
        queue.jobs.append(&mut jobs);
        let is_up = queue.is_up();
        drop(queue);
        self.shared.sendable(is_up);
    }

    fn reactor(&self) -> Option<Box<dyn Reactor>> {
        reactor::Attached::new(&self.shared).map(|attached| Box::new(attached) as Box<dyn Reactor>)
    }

    fn describe(&self) -> String {
        format!("NBD export {}", self.shared.uri.shown())
    }

    fn statistics(&self) -> OriginStatistics {
        let queue = locked(&self.shared.queue);
        let state = match &queue.failed {
            Some(reason) => OriginState::Failed { reason: reason.clone() },
            None if queue.is_up() => OriginState::Up,
            None => OriginState::Down { reason: queue.down_reason.clone() },
        };
        let waiting = queue.jobs.iter().chain(queue.held.iter().map(|held| &held.job));
        let waiting = waiting.map(|job| job.asked_at).min();
        let connections: Vec<Arc<Connection>> = queue.connections.iter().flatten().cloned().collect();
        drop(queue);
        // A conversation is locked before the queue, never behind it.
        let sent = connections.iter().filter_map(|connection| connection.oldest_asked_at());
        let oldest = sent.chain(waiting).min();
        let mut statistics = OriginStatistics {
            state,
            oldest_in_flight: oldest.map_or(Nanos::ZERO, |asked_at| asked_at.elapsed().into()),
            reconnects: self.shared.reconnects.load(Ordering::Relaxed),
            reads_sent_again: self.shared.reads_sent_again.load(Ordering::Relaxed),
            changes_sent_again: self.shared.changes_sent_again.load(Ordering::Relaxed),
            in_doubt: self.shared.in_doubt.load(Ordering::Relaxed),
            ..OriginStatistics::default()
        };
        self.counters.add_to(&mut statistics);
        statistics
    }

    fn settle(&self) {
        self.shared.settle();
    }

    fn keeper(&self, own: RunId) -> Option<RunId> {
        locked(&self.shared.unflushed).keeper(own)
    }

    fn unflushed(&self) -> Option<Unflushed> {
        locked(&self.shared.unflushed).unflushed()
    }

    fn inherit(&self, unflushed: Unflushed) {
        self.shared.inherit(unflushed);
    }

    fn refused_for(&self) -> Option<Duration> {
        locked(&self.shared.queue).refused_since.map(|since| since.elapsed())
    }

    fn is_settled(&self) -> bool {
        self.shared.in_doubt.load(Ordering::Relaxed) == 0
    }

    fn abandon(&self) {
        self.shared.fail("it was left for another way to the same data".to_owned());
    }
}

impl Drop for NbdOrigin {
    fn drop(&mut self) {
        locked(&self.shared.queue).closing = true;
        self.shared.change.notify_all();
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
        // Lanes leave politely when nothing is in flight; a call that is stuck is cut off. A thread that is still
        // connecting after that ends by itself and touches nothing that is ours.
        self.wait_for_threads(Duration::from_millis(200));
        locked(&self.shared.queue).cut_connections();
        self.wait_for_threads(Duration::from_millis(500));
    }
}

impl NbdOrigin {
    /// Takes a request on; `None` if it is answered already.
    fn prepare(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) -> Option<Job> {
        let pending = self.counters.admit(request.id, sink)?;
        if let Err(error) = crate::image::check(&request.operation, &self.traits) {
            pending.complete(Err(error));
            return None;
        }
        let mut job = Job::new(pending, request.operation);
        if job.operation == OriginOperation::Flush {
            let mut unflushed = locked(&self.shared.unflushed);
            job.losses_before = unflushed.losses();
            if unflushed.tell_of_loss() {
                drop(unflushed);
                job.fail(EIO, MAY_NOT_BE_SAFE);
                return None;
            }
        }
        if job.operation != OriginOperation::Flush && job.operation.range().length == 0 {
            job.pending.complete(Ok(Vec::new()));
            return None;
        }
        Some(job)
    }

    fn wait_for_threads(&mut self, time: Duration) {
        let deadline = Instant::now() + time;
        loop {
            self.threads.retain(|thread| !thread.is_finished());
            if self.threads.is_empty() || Instant::now() >= deadline {
                return;
            }
            thread::sleep(Duration::from_micros(200));
        }
    }
}
