//! What volumes share: the calendar, the origins, and everything in flight.

use super::cache::Cache;
use crate::appliance::Appliance;
use crate::calendar::{Calendar, Planned};
use crate::load::Asked;
use crate::origin::Origin;
use crate::slab::{Chains, Slab};
use crate::tier::{Step, Tier};
use forebay_policy::placement::Age;
use forebay_units::{ByteRange, Nanos};

/// What a flight is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Fill,
    Prewarm(u32),
    Write,
    /// A write that is copied to the tier.
    Copy,
    /// A step of a migration to the tier, by its number.
    Migration(u32, Step),
}

impl Purpose {
    pub(super) fn writes(self) -> bool {
        match self {
            Purpose::Fill | Purpose::Prewarm(_) => false,
            Purpose::Write | Purpose::Copy => true,
            Purpose::Migration(_, step) => matches!(step, Step::Write | Step::WriteBack),
        }
    }
}

/// A request to the origin or to the tier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) volume: u32,
    pub(crate) purpose: Purpose,
    /// A write overlaps it, or nothing was cached when it was asked for: nobody joins it, and what it brings is not inserted.
    pub(crate) marked: bool,
    pub(crate) first: u64,
    pub(crate) end: u64,
    /// Of a write: the blocks of which it changes every byte.
    pub(crate) whole_first: u64,
    pub(crate) whole_end: u64,
    /// Client requests that wait for it.
    pub(crate) waiters: u32,
    /// Writes that must come after it.
    pub(crate) dependents: u32,
    /// Writes that it must come after.
    pub(crate) waits_for: u32,
    /// Which origin or tier serves it, and which bytes of that it is about.
    pub(crate) device: u32,
    pub(crate) range: ByteRange,
    /// Where a tier wants to know how long its origin took: the age of the chunk.
    pub(crate) age: Option<Age>,
    /// When it was sent.
    pub(crate) sent: Nanos,
    /// When a client asked for it: it may have waited for earlier writes of the same blocks.
    pub(crate) asked: Nanos,
}

/// A client's request that is not answered yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    pub(super) started: Nanos,
    /// The control interval in which it arrived.
    pub(super) arrived_in: u32,
    pub(super) parts: u32,
    pub(super) bytes: u32,
    /// The load that it belongs to.
    pub(super) load: u32,
    pub(super) writes: bool,
    /// Whether some of it took the origin, not the tier alone.
    pub(super) asked_origin: bool,
}

/// A request on its way from its client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnItsWay {
    pub(crate) volume: u32,
    pub(crate) load: u32,
    pub(crate) asked: Asked,
    pub(crate) started: Nanos,
}

/// What volumes share: the calendar, the origins, and everything in flight.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) now: Nanos,
    pub(crate) calendar: Calendar,
    pub(crate) origins: Vec<Origin>,
    pub(crate) appliances: Vec<Appliance>,
    /// Partitions, or the one cache that volumes share.
    pub(crate) caches: Vec<Cache>,
    pub(crate) on_their_way: Slab<OnItsWay>,
    pub(crate) flights: Slab<Flight>,
    pub(super) clients: Slab<Client>,
    pub(super) chains: Chains,
    pub(crate) hit_latency: Nanos,
    pub(crate) tier: Option<Box<Tier>>,
}

impl World {
    pub(crate) fn new(hit_latency: Nanos) -> World {
        World { hit_latency, ..World::default() }
    }

    /// A request sets out to its device.
    pub(crate) fn set_out(&mut self, flight: u32) {
        let now = self.now;
        let at = &mut self.flights[flight];
        at.sent = now;
        let (writes, length) = (at.purpose.writes(), at.range.length);
        match self.origins[at.device as usize].set_out(now, flight, writes, length) {
            Some(at) => self.calendar.plan(at, Planned::Submit { flight }),
            None => self.submit(flight),
        }
    }

    /// A request reaches its device.
    pub(crate) fn submit(&mut self, flight: u32) {
        let at = self.flights[flight];
        let origin = &mut self.origins[at.device as usize];
        origin.submit(at.device, self.now, flight, at.purpose.writes(), at.range, &mut self.calendar);
    }

    /// Client requests that are not answered yet, and requests to origins.
    pub(crate) fn in_flight(&self) -> (usize, usize) {
        (self.clients.used() + self.on_their_way.used(), self.flights.used())
    }
}
