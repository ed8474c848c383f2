//! The service of one worker: connections in the transmission phase and the volumes that they use; bytes in, bytes out.
//!
//! It owns no socket, no thread and no clock: a driver hands received bytes and the time in, and sends what [`Service`] has
//! to send. A connection comes here after its handshake, when its volume, and so its worker, is known.
//!
//! Invariants: a reply is written only for a connection that is still the one that asked (keys carry a generation), so
//! a client that left harms nobody; a connection is parsed only while it, its volume and its worker are below their
//! limits, so memory is bounded whatever clients send or fail to read.

mod connection;
mod directory;
#[cfg(test)]
mod fencing_tests;
mod hits;
mod lease;
mod leaving;
#[cfg(test)]
mod leaving_tests;
mod limits;
mod output;
mod receiving;
#[cfg(test)]
mod runs_tests;
mod succeeding;
#[cfg(test)]
mod succeeding_tests;
#[cfg(test)]
mod tests;
mod turns;
mod writers;
#[cfg(test)]
mod writers_tests;

pub(crate) use directory::{Directory, DirectoryEntry, NAME_BYTES_MAX, Refused, new_run};
pub use hits::SendNow;
pub use lease::{Entrance, Holder, Lease, RaiseError};
pub use limits::ServiceLimits;
pub use output::Output;

pub use crate::slab::SlabKey;

use crate::refusals::Refusals;
use crate::slab::Slab;
use crate::volume::{ClientAddress, Place, Reply, VolumeMachine};
use connection::{Closing, Connection, Pending};
use forebay_nbd::Succession;
use forebay_nbd::server::Session;
use forebay_origin::OriginRequest;
use forebay_units::Nanos;
use hits::Hits;
use limits::admits;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use succeeding::{Said, Succeeded};
use thiserror::Error;
use writers::Writers;

/// What a client takes of its replies within `stalled_client_max`, if it reads at all (ours).
const PROGRESS_BYTES: usize = 256 << 10;

#[derive(Debug)]
struct VolumeEntry {
    machine: VolumeMachine,
    /// Who is let in; `None`: everybody.
    lease: Option<Lease>,
    /// What clients may not have heard of.
    said: Said,
    writers: Writers,
    /// Whether a write of its has an unknown outcome; the directory has it, too.
    is_in_doubt: Arc<AtomicBool>,
    is_touched: bool,
    is_active: bool,
    /// It ends, in order.
    is_leaving: bool,
}

impl VolumeEntry {
    /// A client that is here at `place` is not served. It flushes elsewhere from here on, where nobody knows what an earlier run of it was told: whoever flushes here
    /// next hears of that.
    fn leave_word(&mut self, place: Option<Succession>) {
        if let Some(errno) = place.and_then(|place| self.said.inherited_by(place)) {
            self.machine.owe_flush_error(errno);
        }
    }
}

/// Why a fence cannot be vouched for. Whom the lease does not admit is refused all the same.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FenceError {
    /// Requests of fenced clients were still at the origin when the time was over.
    #[error("{in_flight} requests of fenced clients were still at the origin when the time was over")]
    NotDrained {
        /// How many.
        in_flight: usize,
    },
    /// The lease was raised again before the fence was answered: whom it kept out may be let in by now.
    #[error("the lease was raised to epoch {} before this fence was answered", .now.epoch)]
    Overtaken {
        /// What holds.
        now: Lease,
    },
    /// The volume is being removed.
    #[error("the volume is gone")]
    Gone,
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
    /// But so that the client hears of all that was sent, and of the end in order.
    pub parts: bool,
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
    /// Volumes in doubt.
    in_doubt: Vec<SlabKey>,
    /// Connections that wait for requests of those whose place they take.
    awaiting: Vec<SlabKey>,
    /// Connections that may not go on because their volume or the worker is at a limit.
    waiting: Vec<SlabKey>,
    held_bytes: usize,
    /// Memory was given back since connections were last looked at that wait for some.
    has_freed: bool,
    /// Connections whose clients were told who keeps what is acknowledged.
    told: usize,
    /// Clients that were let in and sent away.
    refusals: Refusals,
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
            in_doubt: Vec::new(),
            awaiting: Vec::new(),
            waiting: Vec::new(),
            held_bytes: 0,
            has_freed: false,
            told: 0,
            refusals: Refusals::default(),
            hits: Hits::default(),
            scratch_places: Vec::new(),
            scratch_replies: Vec::new(),
            scratch_submissions: Vec::new(),
            flash_submissions: Vec::new(),
        }
    }

    /// A volume to serve.
    pub fn add_volume(&mut self, machine: VolumeMachine) -> SlabKey {
        self.volumes.insert(VolumeEntry {
            machine,
            lease: None,
            said: Said::default(),
            writers: Writers::default(),
            is_in_doubt: Arc::default(),
            is_touched: false,
            is_active: false,
            is_leaving: false,
        })
    }

    /// Whether a write of the volume has an unknown outcome, as of the last [`Service::turn`] that it was part of.
    pub fn doubt(&self, volume: SlabKey) -> Option<Arc<AtomicBool>> {
        self.volumes.get(volume).map(|entry| entry.is_in_doubt.clone())
    }

    /// The volumes that have writes of unknown outcome, as of the last [`Service::turn`].
    pub fn volumes_in_doubt(&self) -> &[SlabKey] {
        &self.in_doubt
    }

    /// The machine, to tell it a command; what follows from it happens at the next [`Service::turn`].
    pub fn volume(&mut self, volume: SlabKey) -> Option<&mut VolumeMachine> {
        touch(&mut self.volumes, &mut self.touched, volume);
        self.volumes.get_mut(volume).map(|entry| &mut entry.machine)
    }

    /// The machine, to look at.
    pub fn peek(&self, volume: SlabKey) -> Option<&VolumeMachine> {
        self.volumes.get(volume).map(|entry| &entry.machine)
    }

    /// Every volume.
    pub fn volume_keys(&self) -> Vec<SlabKey> {
        self.volumes.iter().map(|(key, _)| key).collect()
    }

    /// Removes a volume; its connections are closed. Requests of it that are still at the origin complete into nothing.
    pub fn remove_volume(&mut self, volume: SlabKey) -> Option<VolumeMachine> {
        let entry = self.volumes.remove(volume)?;
        self.in_doubt.retain(|key| *key != volume);
        for key in self.connections_of(volume) {
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

    /// From here on requests are served only of whom `lease` admits. Other connections are closed, once what they asked before is answered: what a client sends
    /// long ago must not be done when its way is open again. They get no errors, which would reach the application: a client that connects again asks again where it is let in.
    pub fn fence(&mut self, volume: SlabKey, lease: Lease) {
        let Some(entry) = self.volumes.get_mut(volume) else { return };
        entry.lease = Some(lease);
        let is_fenced =
            |c: &Connection| c.volume == volume && !lease.admits(c.entrance) && c.closing.is_none();
        let fenced: Vec<SlabKey> =
            self.connections.iter().filter(|(_, c)| is_fenced(c)).map(|(key, _)| key).collect();
        for key in fenced {
            let connection = self.connections.get_mut(key).expect("found above");
            connection.closing = Some(Closing::Parting);
            entry.leave_word(connection.succession);
            // Killed before it has told anybody, its next run would ask by another way.
            if let Some(last) = connection.failed_last.take() {
                entry.machine.owe_flush_error(last.errno);
            }
            mark_dirty(&mut self.connections, &mut self.dirty, key);
        }
        // Nor may one have told anybody that is gone: an appliance, say, whose clients ask by another way, too.
        if let Some(errno) = entry.said.left_by_fenced(lease) {
            entry.machine.owe_flush_error(errno);
        }
    }

    /// Whom the volume lets in; `None`: everybody.
    pub fn lease(&self, volume: SlabKey) -> Option<Lease> {
        self.volumes.get(volume).and_then(|entry| entry.lease)
    }

    /// Whether a client is connected to the volume by this entrance.
    pub fn is_entered_by(&self, volume: SlabKey, entrance: Entrance) -> bool {
        self.connections
            .iter()
            .any(|(_, c)| (c.volume, c.entrance) == (volume, entrance) && c.closing.is_none())
    }

    /// How many requests of clients whom the volume's lease does not admit have not been answered by the origin; those of clients that
    /// left are among them.
    pub fn fenced_in_flight(&self, volume: SlabKey) -> usize {
        let Some(lease) = self.lease(volume) else { return 0 };
        self.pending.iter().filter(|(_, p)| p.volume == volume && !lease.admits(p.entrance)).count()
    }

    /// A client that chose `volume` by a name that means `entrance`. `output` is what the handshake has not sent yet, `input` what it has not parsed.
    pub fn open(
        &mut self,
        now: Nanos,
        session: Session,
        volume: SlabKey,
        entrance: Entrance,
        input: Vec<u8>,
        handshake_output: Vec<u8>,
    ) -> SlabKey {
        let mut output = Output::default();
        output.append(|buffer| buffer.extend_from_slice(&handshake_output));
        let has_leftover = !input.is_empty();
        let succession = session.succession();
        let succeeded = succession.map(|place| self.succeed(volume, place, session.told().is_some()));
        let closing = match self.volumes.get_mut(volume) {
            None => Some(Closing::Now),
            // The lease may have been raised since the client chose.
            Some(entry) if entry.lease.is_some_and(|lease| !lease.admits(entrance)) => {
                entry.leave_word(succession);
                Some(Closing::Parting)
            }
            Some(entry) if entry.is_leaving => Some(Closing::Leaving),
            Some(_) => match succeeded {
                Some(Succeeded::Late | Succeeded::InDoubt) => Some(Closing::Now),
                Some(Succeeded::Awaits { .. }) | None => None,
            },
        };
        let (awaits, lacks, heard) = match succeeded {
            Some(Succeeded::Awaits { requests, lacks, heard }) => (requests, lacks, heard),
            Some(Succeeded::Late | Succeeded::InDoubt) | None => (0, None, None),
        };
        self.held_bytes += output.len();
        self.told += usize::from(session.told().is_some());
        let key = self.connections.insert(Connection {
            replies: session.replies(),
            session,
            volume,
            entrance,
            client: ClientAddress::Unknown,
            succession,
            awaits,
            lacks,
            input,
            receiving: None,
            output,
            unheard: None,
            said: None,
            failed_last: heard,
            in_flight: 0,
            held_bytes: 0,
            is_dirty: false,
            is_waiting: false,
            closing,
            asks_again: false,
            has_taken_leave: false,
            has_leftover,
            wants: 0,
            receiving_since: now,
            taken_at: now,
            taken_bytes: 0,
        });
        if awaits > 0 {
            self.awaiting.push(key);
        }
        mark_dirty(&mut self.connections, &mut self.dirty, key);
        key
    }

    /// A connection's client is known.
    pub fn comes_from(&mut self, connection: SlabKey, client: ClientAddress) {
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.client = client;
        }
    }

    /// Forgets a connection whose socket is closed; its requests complete harmlessly.
    pub fn forget(&mut self, connection: SlabKey) {
        self.note_said(connection);
        self.awaiting.retain(|key| *key != connection);
        if let Some(connection) = self.connections.remove(connection) {
            self.told -= usize::from(connection.session.told().is_some());
            self.held_bytes -= connection.output.len();
            if let Some((_, data)) = &connection.receiving {
                self.held_bytes -= data.capacity();
            }
            self.has_freed = true;
            self.owe_for_absent(connection.volume);
        }
    }

    /// Marks a connection to be closed.
    pub fn close(&mut self, key: SlabKey) {
        if let Some(connection) = self.connections.get_mut(key) {
            if !connection.ends_at_once() {
                connection.closing = Some(Closing::Now);
            }
            mark_dirty(&mut self.connections, &mut self.dirty, key);
        }
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
            if !connection.ends_at_once() {
                let unheard = connection.unheard.map(|(errno, left)| (errno, left.saturating_sub(bytes)));
                connection.unheard = unheard.filter(|(_, left)| *left > 0);
            }
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
            && connection.awaits == 0
            && (receiving || (shared_room && connection.has_room(&self.limits, 0)));
        let close = match connection.closing {
            None => false,
            Some(Closing::Leaving) => false,
            Some(Closing::InOrder(_) | Closing::Parting) => {
                connection.in_flight == 0 && connection.output.is_empty()
            }
            Some(Closing::Now | Closing::Unanswered) => true,
        };
        let wishes = Wishes {
            receive: goes_on && !connection.has_leftover,
            send: !connection.output.is_empty(),
            close,
            parts: connection.closing == Some(Closing::Parting),
            resume: goes_on && connection.has_leftover,
        };
        if !shared_room && !receiving && !connection.is_waiting {
            self.connections.get_mut(key).expect("looked up above").is_waiting = true;
            self.waiting.push(key);
        }
        Some(wishes)
    }

    /// Whether a client that has taken all of its replies waits for memory. There may be some, but not as much as its request asks for.
    fn starves(&self, key: SlabKey) -> bool {
        self.connections.get(key).is_some_and(|connection| {
            let may_go_on = connection.closing.is_none() && connection.output.is_empty();
            let volume = self.volumes.get(connection.volume);
            may_go_on && connection.wants > 0 && volume.is_some_and(|volume| volume.machine.has_room())
        })
    }

    /// Marks the connections to be closed whose clients take nothing, or do not send what they announced, while memory is short.
    pub fn close_stalled(&mut self, now: Nanos) {
        let is_short = self.held_bytes > self.limits.held_per_worker_max.0 as usize / 2;
        if !is_short && !self.waiting.iter().any(|key| self.starves(*key)) {
            return;
        }
        let is_stalled = |c: &Connection| {
            let late = |since| now.saturating_since(since) > self.limits.stalled_client_max;
            (!c.output.is_empty() && late(c.taken_at)) || (c.receiving.is_some() && late(c.receiving_since))
        };
        let stalled: Vec<SlabKey> =
            self.connections.iter().filter(|(_, c)| is_stalled(c)).map(|(key, _)| key).collect();
        for key in stalled {
            let why = "client takes no replies, or sends no payload, while memory is short; disconnected";
            self.refusals.tell(now, None, why, None);
            self.close(key);
        }
    }

    /// Tells the log how many clients were sent away of whom nothing was told, if it is time.
    pub fn sum_up_refusals(&mut self, now: Nanos) {
        self.refusals.sum_up(now);
    }

    /// When [`Service::sum_up_refusals`] has something to tell.
    pub fn refusals_due(&self) -> Option<Nanos> {
        self.refusals.due()
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
