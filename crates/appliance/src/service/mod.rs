//! The service of one worker: connections in the transmission phase and the volumes that they use; bytes in, bytes out.
//!
//! It owns no socket, no thread and no clock: a driver hands received bytes and the time in, and sends what [`Service`] has
//! to send. A connection comes here after its handshake, when its volume, and so its worker, is known.
//!
//! Invariants: a reply is written only for a connection that is still the one that asked (keys carry a generation), so
//! a client that left harms nobody; a connection is parsed only while it, its volume and its worker are below their
//! limits, so memory is bounded whatever clients send or fail to read.

mod directory;
mod hits;
mod limits;
mod output;

pub(crate) use directory::{Directory, DirectoryEntry, NAME_BYTES_MAX};
pub use hits::SendNow;
pub use limits::ServiceLimits;
pub use output::Output;

pub use crate::slab::SlabKey;

use crate::slab::Slab;
use crate::volume::{ClientOperation, Errno, InPlaceOutcome, Place, Reply, RequestTag, VolumeMachine};
use forebay_nbd::ExportInfo;
use forebay_nbd::server::{
    CONTEXT_ID_ALLOCATION, Disconnect, Event, Payload, ProtocolError, ReplyEncoder, Request, Session,
};
use forebay_nbd::wire::{AllocationFlags, Command, ErrorCode, Extent, LinuxErrno};
use forebay_origin::{OriginCompletion, OriginRequest};
use forebay_units::Nanos;
use hits::Hits;

/// Hits of at least this length are sent from the cache, shorter ones are copied first (ours: a copy of 4 KiB costs the same as
/// two more pieces in a system call).
const IN_PLACE_BYTES_MIN: u64 = 16 << 10;

/// One client in the transmission phase.
#[derive(Debug)]
struct Connection {
    session: Session,
    replies: ReplyEncoder,
    volume: SlabKey,
    /// Received and not parsed yet.
    input: Vec<u8>,
    /// The write whose payload is being received.
    receiving: Option<(Request, Vec<u8>)>,
    output: Output,
    /// Requests in flight, and the bytes that they hold.
    in_flight: usize,
    held_bytes: usize,
    /// In the list of connections that the driver should look at.
    is_dirty: bool,
    /// In the list of connections that wait for room.
    is_waiting: bool,
    /// Why it will be closed.
    closing: Option<Closing>,
    /// There is input that was left for the next turn, or for better times.
    has_leftover: bool,
    /// Bytes that the request holds which was left because there was no room for it.
    wants: usize,
    /// When the payload that is being received was announced.
    receiving_since: Nanos,
    /// When the client last had taken [`PROGRESS_BYTES`], or had nothing to take; and what it took since.
    taken_at: Nanos,
    taken_bytes: usize,
}

/// What a client takes of its replies within `stalled_client_max`, if it reads at all (ours).
const PROGRESS_BYTES: usize = 256 << 10;

/// Whether a worker that holds `total` bytes, of `max`, takes a request of `bytes` more of a connection that holds `own`.
///
/// The first half of the memory is for whoever comes first. Of the second half each of the `connections` has an equal share, so that
/// those who fill the first, and do not take their replies, cannot keep the others out. A request that is longer than all that gets
/// its turn when nothing else is held.
fn admits(total: usize, max: usize, connections: usize, own: usize, bytes: usize) -> bool {
    let half = max / 2;
    total == 0 || total + bytes <= half || (total + bytes <= max && own + bytes <= half / connections.max(1))
}

/// How a connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Closing {
    /// The client asked for it: its requests are answered first.
    InOrder(Disconnect),
    /// At once.
    Now,
}

#[derive(Debug)]
struct VolumeEntry {
    machine: VolumeMachine,
    is_touched: bool,
    is_active: bool,
}

/// A request that waits for its reply.
#[derive(Debug)]
struct Pending {
    connection: SlabKey,
    volume: SlabKey,
    request: Request,
    held_bytes: usize,
}

/// What a driver should do for a connection now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// Receive more.
    pub receive: bool,
    /// Send.
    pub send: bool,
    /// Close, after trying to send what there is once.
    pub close: bool,
    /// Let it parse what it holds ([`Service::resume`]).
    pub resume: bool,
}

/// The connections and volumes of one worker.
#[derive(Debug)]
pub struct Service {
    limits: ServiceLimits,
    connections: Slab<Connection>,
    volumes: Slab<VolumeEntry>,
    pending: Slab<Pending>,
    dirty: Vec<SlabKey>,
    touched: Vec<SlabKey>,
    /// Volumes that have something to do when time passes.
    active: Vec<SlabKey>,
    /// Connections that may not go on because their volume or the worker is at a limit.
    waiting: Vec<SlabKey>,
    held_bytes: usize,
    /// Memory was given back since connections were last looked at that wait for some.
    has_freed: bool,
    /// Empty between calls.
    hits: Hits,
    scratch_places: Vec<Place>,
    scratch_replies: Vec<Reply>,
    scratch_submissions: Vec<OriginRequest>,
    /// Requests for the flash device.
    flash_submissions: Vec<(SlabKey, OriginRequest)>,
}

impl Service {
    /// A service without volumes and connections.
    pub fn new(limits: ServiceLimits) -> Service {
        Service {
            limits,
            connections: Slab::new(),
            volumes: Slab::new(),
            pending: Slab::new(),
            dirty: Vec::new(),
            touched: Vec::new(),
            active: Vec::new(),
            waiting: Vec::new(),
            held_bytes: 0,
            has_freed: false,
            hits: Hits::default(),
            scratch_places: Vec::new(),
            scratch_replies: Vec::new(),
            scratch_submissions: Vec::new(),
            flash_submissions: Vec::new(),
        }
    }

    // ---- Volumes ----------------------------------------------------------------------------------------------

    /// A volume to serve.
    pub fn add_volume(&mut self, machine: VolumeMachine) -> SlabKey {
        self.volumes.insert(VolumeEntry { machine, is_touched: false, is_active: false })
    }

    /// The machine, to tell it a command; what follows from it happens at the next [`Service::turn`].
    pub fn volume(&mut self, volume: SlabKey) -> Option<&mut VolumeMachine> {
        touch(&mut self.volumes, &mut self.touched, volume);
        self.volumes.get_mut(volume).map(|entry| &mut entry.machine)
    }

    /// Every volume.
    pub fn volume_keys(&self) -> Vec<SlabKey> {
        self.volumes.iter().map(|(key, _)| key).collect()
    }

    /// Removes a volume; its connections are closed. Requests of it that are still at the origin complete into nothing.
    pub fn remove_volume(&mut self, volume: SlabKey) -> Option<VolumeMachine> {
        let entry = self.volumes.remove(volume)?;
        let its: Vec<SlabKey> =
            self.connections.iter().filter(|(_, c)| c.volume == volume).map(|(key, _)| key).collect();
        for key in its {
            self.close(key);
        }
        // What was not answered in time never will be, and holds nothing of the worker's budget any more.
        let unanswered: Vec<SlabKey> =
            self.pending.iter().filter(|(_, p)| p.volume == volume).map(|(key, _)| key).collect();
        for key in unanswered {
            let pending = self.pending.remove(key).expect("listed above");
            self.held_bytes -= pending.held_bytes;
        }
        self.has_freed = true;
        Some(entry.machine)
    }

    /// Whether every reply of the volume was taken by its clients.
    pub fn is_flushed(&self, volume: SlabKey) -> bool {
        self.connections.iter().filter(|(_, c)| c.volume == volume).all(|(_, c)| c.output.is_empty())
    }

    // ---- Connections ------------------------------------------------------------------------------------------

    /// A client that chose `volume`. `output` is what the handshake has not sent yet, `input` what it has not parsed.
    pub fn open(
        &mut self,
        now: Nanos,
        session: Session,
        volume: SlabKey,
        input: Vec<u8>,
        handshake_output: Vec<u8>,
    ) -> SlabKey {
        let mut output = Output::default();
        output.append(|buffer| buffer.extend_from_slice(&handshake_output));
        let has_leftover = !input.is_empty();
        let closing = self.volumes.get(volume).is_none().then_some(Closing::Now);
        self.held_bytes += output.len();
        let key = self.connections.insert(Connection {
            replies: session.replies(),
            session,
            volume,
            input,
            receiving: None,
            output,
            in_flight: 0,
            held_bytes: 0,
            is_dirty: false,
            is_waiting: false,
            closing,
            has_leftover,
            wants: 0,
            receiving_since: now,
            taken_at: now,
            taken_bytes: 0,
        });
        mark_dirty(&mut self.connections, &mut self.dirty, key);
        key
    }

    /// Forgets a connection whose socket is closed; its requests complete harmlessly.
    pub fn forget(&mut self, connection: SlabKey) {
        if let Some(connection) = self.connections.remove(connection) {
            self.held_bytes -= connection.output.len();
            if let Some((_, data)) = &connection.receiving {
                self.held_bytes -= data.capacity();
            }
            self.has_freed = true;
        }
    }

    /// Marks a connection to be closed.
    pub fn close(&mut self, key: SlabKey) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.closing = Some(Closing::Now);
            mark_dirty(&mut self.connections, &mut self.dirty, key);
        }
    }

    /// Bytes came from a client; how many requests were parsed. All replies go to [`Service::output`].
    pub fn received(&mut self, now: Nanos, key: SlabKey, bytes: &[u8]) -> usize {
        self.received_sending(now, key, bytes, &mut |_| 0)
    }

    /// [`Service::received`]; replies to hits are sent at once by `send`, from where they are cached, if nothing waits before them.
    pub fn received_sending(&mut self, now: Nanos, key: SlabKey, bytes: &[u8], send: SendNow<'_>) -> usize {
        let Some(connection) = self.connections.get_mut(key) else { return 0 };
        if connection.input.is_empty() {
            let (consumed, requests) = self.parse(now, key, bytes, send);
            if let Some(connection) = self.connections.get_mut(key) {
                connection.input.extend_from_slice(&bytes[consumed..]);
            }
            requests
        } else {
            connection.input.extend_from_slice(bytes);
            self.resume_sending(now, key, send)
        }
    }

    /// Parses what is left of earlier input; how many requests were parsed. All replies go to [`Service::output`].
    pub fn resume(&mut self, now: Nanos, key: SlabKey) -> usize {
        self.resume_sending(now, key, &mut |_| 0)
    }

    /// [`Service::resume`], with `send` as in [`Service::received_sending`].
    pub fn resume_sending(&mut self, now: Nanos, key: SlabKey, send: SendNow<'_>) -> usize {
        let Some(connection) = self.connections.get_mut(key) else { return 0 };
        let mut input = std::mem::take(&mut connection.input);
        let (consumed, requests) = self.parse(now, key, &input, send);
        if let Some(connection) = self.connections.get_mut(key) {
            if consumed == input.len() {
                input.clear();
            } else {
                input.drain(..consumed);
            }
            connection.input = input;
        }
        requests
    }

    /// Parses and serves requests until the input is used up or a limit is reached: (bytes consumed, requests).
    fn parse(&mut self, now: Nanos, key: SlabKey, input: &[u8], send: SendNow<'_>) -> (usize, usize) {
        let Service { limits, connections, volumes, pending, dirty, touched, held_bytes, .. } = self;
        let clients = connections.len();
        let (hits, places) = (&mut self.hits, &mut self.scratch_places);
        let Some(connection) = connections.get_mut(key) else { return (input.len(), 0) };
        let Some(volume) = volumes.get_mut(connection.volume) else { return (input.len(), 0) };
        let output_before = connection.output.len();
        connection.has_leftover = false;
        connection.wants = 0;
        let (mut consumed, mut requests) = (0, 0);
        while connection.closing.is_none() {
            if requests >= limits.requests_per_turn_max {
                connection.has_leftover = consumed < input.len();
                break;
            }
            // A payload that was begun is taken to its end: what it will hold is counted already.
            if connection.receiving.is_none() {
                let total = *held_bytes + connection.output.len() - output_before + hits.len();
                let max = limits.held_per_worker_max.0 as usize;
                // Where any request would do, this one need not be looked at twice.
                let wants = match total + limits.request_bytes_max as usize <= max / 2 {
                    true => 0,
                    false => connection.session.next_request_bytes(&input[consumed..]).unwrap_or(0) as usize,
                };
                let own = connection.holds() + hits.len();
                let room = volume.machine.has_room() && admits(total, max, clients, own, wants);
                if !room || !connection.has_room(limits, hits.len()) {
                    connection.has_leftover = consumed < input.len();
                    connection.wants = wants;
                    break;
                }
            }
            let mut refused = Vec::new();
            let parsed = match connection.session.receive(&input[consumed..], &NoExports, &mut refused) {
                Ok(parsed) => parsed,
                Err(error) => {
                    log_protocol_error(&error);
                    connection.closing = Some(Closing::Now);
                    break;
                }
            };
            consumed += parsed.consumed;
            if let Event::Request { request, payload: Payload::None } = &parsed.event
                && request.command == Command::Read
            {
                places.clear();
                let outcome = volume.machine.read_in_place(now, request.range, places);
                if outcome == InPlaceOutcome::Served {
                    requests += 1;
                    let header = connection.replies.read_header(request);
                    if request.range.length >= IN_PLACE_BYTES_MIN || hits.len() > 0 {
                        hits.push(header, places);
                    } else {
                        connection.output.append(|output| {
                            output.extend_from_slice(&header);
                            places
                                .iter()
                                .for_each(|place| output.extend_from_slice(volume.machine.bytes_at(*place)));
                        });
                    }
                    continue;
                }
                hits.copy_to(&volume.machine, &mut connection.output);
                let tag = RequestTag(pending.next_key().0);
                requests += 1;
                match outcome {
                    InPlaceOutcome::Refused(errno) => connection.refuse(request.cookie, errno),
                    InPlaceOutcome::Missed(missed) => {
                        volume.machine.read_missed(now, tag, request.range, missed, places);
                        connection.wait(key, request, pending, held_bytes);
                    }
                    InPlaceOutcome::Served => unreachable!("handled above"),
                }
                continue;
            }
            if parsed.event == Event::NeedMore {
                break;
            }
            // The machine may be told something else now, and replies keep their order.
            hits.copy_to(&volume.machine, &mut connection.output);
            let request = match parsed.event {
                Event::Request { request, payload: Payload::Pending { bytes } } => {
                    let data = Vec::with_capacity(bytes as usize);
                    *held_bytes += data.capacity();
                    connection.receiving = Some((request, data));
                    connection.receiving_since = now;
                    continue;
                }
                Event::Request { request, payload: Payload::Whole(data) } => (request, data.to_vec()),
                Event::Request { request, payload: Payload::None } => (request, Vec::new()),
                Event::PayloadPart { bytes, remaining } => {
                    let (_, data) =
                        connection.receiving.as_mut().expect("a part follows the request that announced it");
                    data.extend_from_slice(bytes);
                    if remaining > 0 {
                        continue;
                    }
                    let (request, data) = connection.receiving.take().expect("looked at above");
                    *held_bytes -= data.capacity();
                    (request, data)
                }
                Event::Refused { code, reason, .. } => {
                    tracing::debug!(%code, %reason, "request refused");
                    connection.output.append(|output| output.extend_from_slice(&refused));
                    requests += 1;
                    continue;
                }
                Event::Disconnect(how) => {
                    connection.closing = Some(Closing::InOrder(how));
                    break;
                }
                Event::NeedMore | Event::Negotiated | Event::UpgradeTls | Event::ExportChosen(_) => {
                    unreachable!(
                        "handled above, or part of the handshake, which is over before a connection comes here"
                    )
                }
            };
            requests += 1;
            let (request, data) = request;
            let waits = connection.serve(now, pending.next_key(), &mut volume.machine, &request, data);
            if waits {
                connection.wait(key, &request, pending, held_bytes);
            }
        }
        hits.deliver(&volume.machine, &mut connection.output, send);
        *held_bytes += connection.output.len() - output_before;
        connection.note_output(now, output_before);
        let volume_key = connection.volume;
        touch(volumes, touched, volume_key);
        mark_dirty(connections, dirty, key);
        (consumed, requests)
    }

    // ---- Turns ------------------------------------------------------------------------------------------------

    /// The origin of `volume` answered, or the flash device.
    pub fn complete(&mut self, now: Nanos, volume: SlabKey, completion: OriginCompletion) {
        if let Some(entry) = self.volumes.get_mut(volume) {
            entry.machine.complete(now, completion);
            touch(&mut self.volumes, &mut self.touched, volume);
        }
    }

    /// Lets every volume that was touched, or whose time has come, proceed: replies go to their connections' output, requests
    /// for origins to `submissions`.
    pub fn turn(&mut self, now: Nanos, submissions: &mut Vec<(SlabKey, OriginRequest)>) {
        let active = std::mem::take(&mut self.active);
        for key in active {
            if let Some(entry) = self.volumes.get_mut(key) {
                entry.is_active = false;
                entry.machine.step();
                touch(&mut self.volumes, &mut self.touched, key);
            }
        }
        while let Some(key) = self.touched.pop() {
            let Some(entry) = self.volumes.get_mut(key) else { continue };
            entry.is_touched = false;
            entry.machine.take_submissions(now, &mut self.scratch_submissions);
            submissions.extend(self.scratch_submissions.drain(..).map(|request| (key, request)));
            entry.machine.take_flash_submissions(now, &mut self.scratch_submissions);
            self.flash_submissions.extend(self.scratch_submissions.drain(..).map(|request| (key, request)));
            entry.machine.take_replies(&mut self.scratch_replies);
            if !entry.is_active && (entry.machine.wants_step() || entry.machine.wake_at().is_some()) {
                entry.is_active = true;
                self.active.push(key);
            }
            let mut replies = std::mem::take(&mut self.scratch_replies);
            for reply in replies.drain(..) {
                self.answer(now, reply);
            }
            self.scratch_replies = replies;
        }
        // Limits that were reached may not be any more.
        self.has_freed = false;
        if !self.waiting.is_empty() {
            let mut waiting = std::mem::take(&mut self.waiting);
            waiting.retain(|key| {
                let Some(connection) = self.connections.get(*key) else { return false };
                if !self.has_shared_room(connection) {
                    return true;
                }
                self.connections.get_mut(*key).expect("looked up above").is_waiting = false;
                mark_dirty(&mut self.connections, &mut self.dirty, *key);
                false
            });
            self.waiting = waiting;
        }
    }

    /// Moves the requests for the flash device, of the turns until now, into `submissions`. They are answered through
    /// [`Service::complete`], as those for origins are.
    pub fn take_flash_submissions(&mut self, submissions: &mut Vec<(SlabKey, OriginRequest)>) {
        submissions.append(&mut self.flash_submissions);
    }

    /// The requests received at `started` were served as far as they could be.
    pub fn end_batch(&mut self, volume: SlabKey, started: Nanos, now: Nanos) {
        if let Some(entry) = self.volumes.get_mut(volume) {
            entry.machine.end_batch(started, now);
        }
    }

    /// When [`Service::turn`] should be called although nothing happened.
    pub fn wake_at(&self) -> Option<Nanos> {
        if self.has_freed && !self.waiting.is_empty() {
            return Some(Nanos::ZERO);
        }
        let of = |key: &SlabKey| {
            let machine = &self.volumes.get(*key)?.machine;
            if machine.wants_step() { Some(Nanos::ZERO) } else { machine.wake_at() }
        };
        self.active.iter().filter_map(of).min()
    }

    fn answer(&mut self, now: Nanos, reply: Reply) {
        let Some(pending) = self.pending.remove(SlabKey(reply.tag.0)) else {
            debug_assert!(false, "a reply to {:?}, which nobody waits for", reply.tag);
            return;
        };
        self.held_bytes -= pending.held_bytes;
        // The client may have left.
        let Some(connection) = self.connections.get_mut(pending.connection) else { return };
        connection.in_flight -= 1;
        connection.held_bytes -= pending.held_bytes;
        let before = connection.output.len();
        match reply.result {
            Ok(data) if pending.request.command == Command::Read => {
                let header = connection.replies.read_header(&pending.request);
                connection.output.append(|output| output.extend_from_slice(&header));
                connection.output.append_data(data);
            }
            Ok(_) => {
                let replies = connection.replies;
                connection.output.append(|output| replies.success(&pending.request, output));
            }
            Err(errno) => connection.refuse(pending.request.cookie, errno),
        }
        self.held_bytes += connection.output.len() - before;
        connection.note_output(now, before);
        mark_dirty(&mut self.connections, &mut self.dirty, pending.connection);
    }

    /// Moves the connections that the driver should look at into `keys`.
    pub fn take_dirty(&mut self, keys: &mut Vec<SlabKey>) {
        for key in &self.dirty {
            if let Some(connection) = self.connections.get_mut(*key) {
                connection.is_dirty = false;
            }
        }
        keys.append(&mut self.dirty);
    }

    /// What is to be sent to a client.
    pub fn output(&self, key: SlabKey) -> Option<&Output> {
        self.connections.get(key).map(|connection| &connection.output)
    }

    /// The client took `bytes` bytes.
    pub fn sent(&mut self, now: Nanos, key: SlabKey, bytes: usize) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.output.advance(bytes);
            connection.taken_bytes += bytes;
            if connection.output.is_empty() || connection.taken_bytes >= PROGRESS_BYTES {
                (connection.taken_at, connection.taken_bytes) = (now, 0);
            }
            self.held_bytes -= bytes;
            self.has_freed = true;
        }
    }

    /// Whether the connection's volume and the worker have room for another request.
    fn has_shared_room(&self, connection: &Connection) -> bool {
        let max = self.limits.held_per_worker_max.0 as usize;
        admits(self.held_bytes, max, self.connections.len(), connection.holds(), connection.wants)
            && self.volumes.get(connection.volume).is_some_and(|volume| volume.machine.has_room())
    }

    /// What the driver should do for a connection; `None` if it is gone.
    pub fn wishes(&mut self, key: SlabKey) -> Option<Wishes> {
        let connection = self.connections.get(key)?;
        let shared_room = self.has_shared_room(connection);
        let receiving = connection.receiving.is_some();
        let goes_on = connection.closing.is_none()
            && (receiving || (shared_room && connection.has_room(&self.limits, 0)));
        let close = match connection.closing {
            None => false,
            Some(Closing::InOrder(_)) => connection.in_flight == 0 && connection.output.is_empty(),
            Some(Closing::Now) => true,
        };
        let wishes = Wishes {
            receive: goes_on && !connection.has_leftover,
            send: !connection.output.is_empty(),
            close,
            resume: goes_on && connection.has_leftover,
        };
        if !shared_room && !receiving && !connection.is_waiting {
            self.connections.get_mut(key).expect("looked up above").is_waiting = true;
            self.waiting.push(key);
        }
        Some(wishes)
    }

    /// Marks the connections to be closed whose clients take nothing, or do not send what they announced, while memory is short.
    pub fn close_stalled(&mut self, now: Nanos) {
        if self.held_bytes <= self.limits.held_per_worker_max.0 as usize / 2 {
            return;
        }
        let is_stalled = |c: &Connection| {
            let late = |since| now.saturating_since(since) > self.limits.stalled_client_max;
            (!c.output.is_empty() && late(c.taken_at)) || (c.receiving.is_some() && late(c.receiving_since))
        };
        let stalled: Vec<SlabKey> =
            self.connections.iter().filter(|(_, c)| is_stalled(c)).map(|(key, _)| key).collect();
        for key in stalled {
            tracing::warn!(
                "client takes no replies, or sends no payload, while memory is short; disconnected"
            );
            self.close(key);
        }
    }

    /// Data of requests in flight and of replies not taken yet, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The volume of a connection.
    pub fn volume_of(&self, key: SlabKey) -> Option<SlabKey> {
        self.connections.get(key).map(|connection| connection.volume)
    }
}

impl Connection {
    /// Bytes that its requests and replies hold.
    fn holds(&self) -> usize {
        let receiving = self.receiving.as_ref().map_or(0, |(_, data)| data.capacity());
        self.held_bytes + self.output.len() + receiving
    }

    /// Replies were added to the `before` bytes that waited.
    fn note_output(&mut self, now: Nanos, before: usize) {
        if before == 0 {
            (self.taken_at, self.taken_bytes) = (now, 0);
        }
    }

    /// Whether another request may be parsed, with `more` bytes of replies besides the output.
    fn has_room(&self, limits: &ServiceLimits, more: usize) -> bool {
        self.in_flight < limits.requests_per_connection_max
            && ((self.output.len() + more) as u64) < limits.output_per_connection_max.0
            && (self.held_bytes as u64) < limits.held_per_connection_max.0
    }

    fn refuse(&mut self, cookie: u64, errno: Errno) {
        let replies = self.replies;
        let code = ErrorCode::from_linux(LinuxErrno(errno.0));
        self.output.append(|output| replies.error(cookie, code, "", output));
    }

    /// Notes that `request`, which the machine was told with the next tag of `pending`, waits for its reply.
    fn wait(
        &mut self,
        key: SlabKey,
        request: &Request,
        pending: &mut Slab<Pending>,
        held_bytes_of_worker: &mut usize,
    ) {
        let held_bytes = match request.command {
            Command::Read | Command::Write => request.range.length as usize,
            _ => 0,
        };
        self.in_flight += 1;
        self.held_bytes += held_bytes;
        *held_bytes_of_worker += held_bytes;
        pending.insert(Pending { connection: key, volume: self.volume, request: *request, held_bytes });
    }

    /// Serves one request that is no read; true if its reply comes later, to the tag `key`.
    #[inline]
    fn serve(
        &mut self,
        now: Nanos,
        key: SlabKey,
        machine: &mut VolumeMachine,
        request: &Request,
        data: Vec<u8>,
    ) -> bool {
        let tag = RequestTag(key.0);
        let (range, fua) = (request.range, request.fua());
        let operation = match request.command {
            Command::Write => ClientOperation::Write { offset: range.offset, data, fua },
            Command::Flush => ClientOperation::Flush,
            Command::Trim => ClientOperation::Trim { range, fua },
            Command::WriteZeroes => {
                ClientOperation::WriteZeroes { range, may_trim: request.may_make_hole(), fua }
            }
            Command::Cache => ClientOperation::Cache { range },
            Command::BlockStatus => {
                // Everything is allocated, as far as we know: always a true answer.
                let length = u32::try_from(range.length).unwrap_or(u32::MAX);
                let extent = Extent { length, flags: AllocationFlags::default() };
                let replies = self.replies;
                self.output.append(|output| {
                    replies.block_status(request.cookie, CONTEXT_ID_ALLOCATION, &[extent], output);
                });
                return false;
            }
            _ => {
                self.refuse(request.cookie, Errno::INVALID);
                return false;
            }
        };
        machine.request(now, tag, operation);
        true
    }
}

fn mark_dirty(connections: &mut Slab<Connection>, dirty: &mut Vec<SlabKey>, key: SlabKey) {
    if let Some(connection) = connections.get_mut(key)
        && !connection.is_dirty
    {
        connection.is_dirty = true;
        dirty.push(key);
    }
}

fn touch(volumes: &mut Slab<VolumeEntry>, touched: &mut Vec<SlabKey>, key: SlabKey) {
    if let Some(entry) = volumes.get_mut(key)
        && !entry.is_touched
    {
        entry.is_touched = true;
        touched.push(key);
    }
}

fn log_protocol_error(error: &ProtocolError) {
    tracing::warn!(%error, "client breaks the protocol; disconnected");
}

/// After the handshake nobody asks for exports.
struct NoExports;

impl forebay_nbd::server::Exports for NoExports {
    fn find(&self, _: &str) -> Option<ExportInfo> {
        None
    }

    fn list(&self, _: &mut dyn FnMut(&str, &str)) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::{VolumeLimits, VolumeSettings};
    use forebay_nbd::{client, server};
    use forebay_origin::OriginTraits;
    use forebay_units::{BlockSize, Bytes, Ratio};
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;
    use std::io::IoSlice;

    fn machine() -> VolumeMachine {
        let origin = OriginTraits {
            size_bytes: 1 << 20,
            read_only: false,
            block_size_min: 1,
            block_size_preferred: 4096,
            request_bytes_max: 1 << 20,
            can_trim: true,
            can_multi_conn: true,
        };
        let settings = VolumeSettings {
            origin,
            read_only: false,
            block_size: BlockSize::DEFAULT,
            quota: Bytes::ZERO,
            single_touch_share: Ratio::clamped(0.2),
            seed: 1,
            locality: None,
            limits: VolumeLimits::default(),
        };
        VolumeMachine::new(settings, Nanos::ZERO).expect("settings that go together")
    }

    /// Both ends of a connection whose handshake is over.
    fn shaken_hands() -> (client::Session, Session) {
        let exports = vec![ExportInfo::new("disk", 1 << 20)];
        let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
        let mut server = Session::new(server::Config::default(), &mut to_client);
        let mut client = client::Session::new(client::Config::new("disk"));
        while !client.is_ready() {
            let parsed = client.receive(&to_client, &mut to_server).expect("a valid handshake").consumed;
            to_client.drain(..parsed);
            let parsed = server.receive(&to_server, &exports, &mut to_client).expect("likewise").consumed;
            to_server.drain(..parsed);
        }
        (client, server)
    }

    /// A socket that has room for `room` bytes.
    fn take_some(slices: &[IoSlice<'_>], room: &mut usize, stream: &mut Vec<u8>) -> usize {
        let before = stream.len();
        for slice in slices {
            let taken = slice.len().min(*room);
            *room -= taken;
            stream.extend_from_slice(&slice[..taken]);
        }
        stream.len() - before
    }

    /// Hits and misses in any mix, sockets that take any part at any time: the client gets what it asked for.
    #[test]
    fn replies_that_are_sent_from_the_cache_are_the_same_however_the_socket_takes_them() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let byte_at = |offset: u64| (offset / 512) as u8 ^ (offset % 509) as u8;
        for round in 0..60 {
            let mut service = Service::new(ServiceLimits {
                // In some rounds so low that requests are left for later.
                output_per_connection_max: Bytes::kib(if round % 3 == 0 { 16 } else { 256 }),
                ..ServiceLimits::default()
            });
            let mut machine = machine();
            machine.set_quota(Bytes::kib(200));
            let volume = service.add_volume(machine);
            let (mut client, server) = shaken_hands();
            let connection = service.open(Nanos::ZERO, server, volume, Vec::new(), Vec::new());
            let (mut wanted, mut got) = (Vec::new(), Vec::new());
            let mut stream = Vec::new();
            for batch in 0..12 {
                let mut asked = Vec::new();
                for request in 0..random.random_range(1..12u64) {
                    let offset = random.random_range(0..(600 << 10));
                    let length = random.random_range(1..40_000);
                    let read = client::Operation::Read { offset, length, dont_fragment: false };
                    let cookie = batch * 100 + request;
                    client.submit(cookie, read, &mut asked).expect("a valid request");
                    let bytes: Vec<u8> = (offset..offset + u64::from(length)).map(byte_at).collect();
                    wanted.push((cookie, offset, bytes));
                }
                let mut room = random.random_range(0..60_000);
                let mut take = |slices: &[IoSlice<'_>]| take_some(slices, &mut room, &mut stream);
                service.received_sending(Nanos::ZERO, connection, &asked, &mut take);
                loop {
                    let mut submissions = Vec::new();
                    service.turn(Nanos::ZERO, &mut submissions);
                    let submitted = submissions.len();
                    for (volume, request) in submissions {
                        let range = request.operation.range();
                        let data = (range.offset..range.end()).map(byte_at).collect();
                        let completion = OriginCompletion { id: request.id, result: Ok(data) };
                        service.complete(Nanos::ZERO, volume, completion);
                    }
                    let output = service.output(connection).expect("the client stays");
                    let count = output.len();
                    output.copy_to(&mut stream);
                    service.sent(Nanos::ZERO, connection, count);
                    let resumes = service.wishes(connection).expect("the client stays").resume;
                    if resumes {
                        let mut room = random.random_range(0..60_000);
                        let mut take = |slices: &[IoSlice<'_>]| take_some(slices, &mut room, &mut stream);
                        service.resume_sending(Nanos::ZERO, connection, &mut take);
                    } else if submitted == 0 && count == 0 {
                        break;
                    }
                }
            }
            let mut unused = Vec::new();
            loop {
                let parsed = client.receive(&stream, &mut unused).expect("a valid reply");
                match parsed.event {
                    client::Event::NeedMore => break,
                    client::Event::Data { cookie, offset, bytes } => {
                        got.push((cookie, offset, bytes.to_vec()));
                    }
                    client::Event::Done { result, .. } => assert_eq!(result, Ok(())),
                    event => panic!("unexpected: {event:?}"),
                }
                let consumed = parsed.consumed;
                stream.drain(..consumed);
            }
            assert_eq!((service.held_bytes(), stream.len()), (0, 0));
            got.sort();
            wanted.sort();
            assert!(got == wanted, "round {round}: {} of {} replies", got.len(), wanted.len());
        }
    }

    #[test]
    fn memory_is_shared_by_hand() {
        // Of 64: the first 32 are for whoever comes first.
        assert!(admits(0, 64, 4, 0, 32) && admits(20, 64, 4, 20, 12) && !admits(20, 64, 4, 20, 13));
        // Of the other 32, each of four has 8, and nobody passes the end.
        assert!(admits(40, 64, 4, 0, 8) && !admits(40, 64, 4, 0, 9) && !admits(40, 64, 4, 5, 4));
        assert!(admits(56, 64, 4, 0, 8) && !admits(57, 64, 4, 0, 8));
        // What is longer than everything comes alone.
        assert!(admits(0, 64, 4, 0, 1000) && !admits(1, 64, 4, 0, 1000));
    }

    #[test]
    fn whoever_announces_payloads_and_sends_none_keeps_nobody_out_for_long() {
        let limits = ServiceLimits { held_per_worker_max: Bytes::kib(1028), ..ServiceLimits::default() };
        let mut service = Service::new(limits);
        let volume = service.add_volume(machine());
        let connect = |service: &mut Service| {
            let (client, server) = shaken_hands();
            (client, service.open(Nanos::ZERO, server, volume, Vec::new(), Vec::new()))
        };
        let write = |length| client::Operation::Write { offset: 0, length, fua: false };
        let mut silent = Vec::new();
        for index in 0..4 {
            let (mut client, key) = connect(&mut service);
            let mut asked = Vec::new();
            client
                .submit(1, write(if index == 0 { 512 } else { 400 } << 10), &mut asked)
                .expect("a valid request");
            service.received(Nanos::ZERO, key, &asked);
            silent.push(key);
        }
        // One of them has its 512 KiB; for the others there is no room, and the bound holds.
        assert_eq!(service.held_bytes(), 512 << 10);
        assert_eq!(silent.iter().filter(|key| service.wishes(**key).unwrap().receive).count(), 1);
        // A client with small requests is served beside them.
        let (mut client, key) = connect(&mut service);
        let mut asked = Vec::new();
        client
            .submit(1, client::Operation::Read { offset: 0, length: 4096, dont_fragment: false }, &mut asked)
            .unwrap();
        assert_eq!(service.received(Nanos::ZERO, key, &asked), 1);
        // The one that sends nothing is told to go, and the next has its turn.
        let late = Nanos::secs(31);
        service.close_stalled(late);
        let gone: Vec<&SlabKey> = silent.iter().filter(|key| service.wishes(**key).unwrap().close).collect();
        assert_eq!(gone, [&silent[0]]);
        service.forget(silent[0]);
        assert_eq!(service.wake_at(), Some(Nanos::ZERO), "those that wait are looked at again");
        service.turn(late, &mut Vec::new());
        assert!(service.wishes(silent[1]).unwrap().resume);
        assert_eq!(service.resume(late, silent[1]), 0);
        assert_eq!(service.held_bytes(), (400 << 10) + 4096);
    }

    #[test]
    fn a_volume_taken_away_in_the_middle_gives_back_what_its_requests_held() {
        let mut service = Service::new(ServiceLimits::default());
        let volume = service.add_volume(machine());
        let (mut client, server) = shaken_hands();
        let connection = service.open(Nanos::ZERO, server, volume, Vec::new(), Vec::new());
        let mut asked = Vec::new();
        let read = client::Operation::Read { offset: 0, length: 4096, dont_fragment: false };
        client.submit(1, read, &mut asked).expect("a valid request");
        assert_eq!(service.received(Nanos::ZERO, connection, &asked), 1);
        let mut submissions = Vec::new();
        service.turn(Nanos::ZERO, &mut submissions);
        assert_eq!((submissions.len(), service.held_bytes()), (1, 4096));
        service.remove_volume(volume);
        assert_eq!((service.held_bytes(), service.pending.len()), (0, 0));
        // What the origin answers now is of no interest to anybody.
        let (volume, request) = submissions.remove(0);
        service.complete(Nanos::ZERO, volume, OriginCompletion { id: request.id, result: Ok(vec![0; 4096]) });
        service.turn(Nanos::ZERO, &mut submissions);
        assert_eq!(service.held_bytes(), 0);
    }
}
