//! What serves an origin's requests on virtual time: disks, an array, a solid-state disk, or equal servers.

use crate::scenario::{Distribution, OriginKind, OriginTable, Queues};
use forebay_devmodel::{
    Array, DiskCompletion, DiskGroup, DiskGroupObservation, DiskRequest, DiskRequestId, DiskRequestKind,
    ParameterError, Ssd,
};
use forebay_units::{ByteRange, Nanos, nearest};
use forebay_workload::generator::{Random, exponential, random, unit};
use std::collections::VecDeque;

/// Equal servers behind one queue, or with a queue each; first in, first out.
#[derive(Debug)]
pub(crate) struct Servers {
    count: u32,
    /// By queue: how many serve it now, and what waits.
    queues: Vec<(u32, VecDeque<(u32, u64)>)>,
    /// Servers of one queue.
    per_queue: u32,
    unit: u64,
    service: Nanos,
    spread: Nanos,
    nanos_per_byte: f64,
    distribution: Distribution,
    random: Random,
    busy: u32,
    busy_time: u128,
    since: Nanos,
}

impl Servers {
    fn new(table: &OriginTable, seed: u64) -> Servers {
        let count = table.servers.unwrap_or(1);
        let queues = match table.queues.unwrap_or_default() {
            Queues::Shared => 1,
            Queues::Each => count,
        };
        Servers {
            count,
            queues: vec![(0, VecDeque::new()); queues as usize],
            per_queue: count / queues,
            unit: table.stripe_unit.map_or(64 << 10, forebay_units::Bytes::get),
            service: table.service.unwrap_or(Nanos::ZERO),
            spread: table.service_spread.unwrap_or(Nanos::ZERO),
            nanos_per_byte: table.nanos_per_byte(),
            distribution: table.distribution.unwrap_or_default(),
            random: random(seed),
            busy: 0,
            busy_time: 0,
            since: Nanos::ZERO,
        }
    }

    fn pass(&mut self, now: Nanos) {
        self.busy_time += u128::from(self.busy) * u128::from(now.saturating_since(self.since).0);
        self.since = now;
    }

    fn span(&mut self, bytes: u64) -> Nanos {
        let mean = self.service.0 as f64;
        let base = match self.distribution {
            Distribution::Constant => mean,
            Distribution::Exponential => exponential(mean, &mut self.random),
            Distribution::Uniform => mean + (2.0 * unit(&mut self.random) - 1.0) * self.spread.0 as f64,
        };
        Nanos(nearest(base + bytes as f64 * self.nanos_per_byte))
    }

    /// A request arrives: its queue, and the span of its service if it begins now.
    pub(crate) fn arrive(&mut self, now: Nanos, flight: u32, range: ByteRange) -> (u32, Option<Nanos>) {
        let at = match self.queues.len() as u64 {
            1 => 0,
            queues => (range.offset / self.unit % queues) as usize,
        };
        let (busy, waiting) = &mut self.queues[at];
        if *busy == self.per_queue {
            waiting.push_back((flight, range.length));
            return (at as u32, None);
        }
        *busy += 1;
        self.pass(now);
        self.busy += 1;
        (at as u32, Some(self.span(range.length)))
    }

    /// A request of a queue is done; the one that begins now, with the span of its service.
    pub(crate) fn done(&mut self, now: Nanos, queue: u32) -> Option<(u32, Nanos)> {
        self.pass(now);
        let (busy, waiting) = &mut self.queues[queue as usize];
        match waiting.pop_front() {
            Some((flight, bytes)) => Some((flight, self.span(bytes))),
            None => {
                *busy -= 1;
                self.busy -= 1;
                None
            }
        }
    }
}

/// A device of any kind.
#[derive(Debug)]
pub(crate) enum Device {
    /// Disks, with what they were seen to have done.
    Disks(Box<DiskGroup>, DiskGroupObservation),
    /// The same behind an array's cache.
    Array(Box<Array>, DiskGroupObservation),
    /// Flash, with the busy time of its dies when last asked.
    Ssd(Box<Ssd>, Nanos),
    /// Servers, with their busy time when last asked.
    Servers(Box<Servers>, u128),
}

impl Device {
    pub(crate) fn new(table: &OriginTable, seed: u64) -> Result<Device, ParameterError> {
        Ok(match (table.kind, table.array_cache()) {
            (OriginKind::Disks, None) => {
                let group = DiskGroup::new(table.disks())?;
                let seen = group.observe(Nanos::ZERO);
                Device::Disks(Box::new(group), seen)
            }
            (OriginKind::Disks, Some(cache)) => {
                let array = Array::new(table.disks(), cache)?;
                let seen = array.observe(Nanos::ZERO).group;
                Device::Array(Box::new(array), seen)
            }
            (OriginKind::Ssd, _) => Device::Ssd(Box::new(Ssd::new(table.ssd())?), Nanos::ZERO),
            (OriginKind::Servers, _) => Device::Servers(Box::new(Servers::new(table, seed)), 0),
        })
    }

    /// Hands a request on. Devices with a calendar of their own say when they are next due; servers, when the request
    /// is done if it begins at once.
    pub(crate) fn submit(&mut self, now: Nanos, flight: u32, writes: bool, range: ByteRange) -> Submitted {
        let fits = "volumes lie within the device, and its maximum is above theirs";
        match self {
            Device::Disks(group, _) => group.submit(now, request(flight, writes, range)).expect(fits),
            Device::Array(array, _) => array.submit(now, request(flight, writes, range)).expect(fits),
            Device::Ssd(ssd, _) => ssd.submit(now, request(flight, writes, range)).expect(fits),
            Device::Servers(servers, _) => {
                let (queue, span) = servers.arrive(now, flight, range);
                return Submitted::Server { queue, span };
            }
        }
        Submitted::Queued
    }

    /// When [`Device::advance`] has something to do.
    #[inline]
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        match self {
            Device::Disks(group, _) => group.next_event(),
            Device::Array(array, _) => array.next_event(),
            Device::Ssd(ssd, _) => ssd.next_event(),
            Device::Servers(..) => None,
        }
    }

    /// Takes what is due until `now`.
    pub(crate) fn advance(&mut self, now: Nanos, completions: &mut Vec<DiskCompletion>) {
        match self {
            Device::Disks(group, _) => group.advance(now, completions),
            Device::Array(array, _) => array.advance(now, completions),
            Device::Ssd(ssd, _) => ssd.advance(now, completions),
            Device::Servers(..) => {}
        }
    }

    /// How many requests are served at once.
    pub(crate) fn servers(&self) -> u32 {
        match self {
            Device::Disks(group, _) => group.parameters().spindles,
            Device::Array(array, _) => array.group().parameters().spindles,
            Device::Ssd(ssd, _) => ssd.dies(),
            Device::Servers(servers, _) => servers.count,
        }
    }

    /// The mean share of time that disks, dies or servers were busy since this was last asked, `interval` ago.
    pub(crate) fn utilisation(&mut self, now: Nanos, interval: Nanos) -> f64 {
        let capacity = interval.0.max(1) as f64 * f64::from(self.servers());
        match self {
            Device::Disks(group, seen) => {
                let late = group.observe(now);
                let share = late.utilisation_since(seen);
                *seen = late;
                share
            }
            Device::Array(array, seen) => {
                let late = array.observe(now).group;
                let share = late.utilisation_since(seen);
                *seen = late;
                share
            }
            Device::Ssd(ssd, seen) => {
                let busy = ssd.observe(now).dies_busy;
                (busy - std::mem::replace(seen, busy)).0 as f64 / capacity
            }
            Device::Servers(servers, seen) => {
                servers.pass(now);
                let busy = servers.busy_time - std::mem::replace(seen, servers.busy_time);
                busy as f64 / capacity
            }
        }
    }
}

/// What became of a request.
pub(crate) enum Submitted {
    /// The device tells when.
    Queued,
    /// A server's queue has it, and serves it for so long if it begins now.
    Server { queue: u32, span: Option<Nanos> },
}

/// A request to a device, numbered by its flight.
fn request(flight: u32, writes: bool, range: ByteRange) -> DiskRequest {
    let kind = if writes { DiskRequestKind::Write } else { DiskRequestKind::Read };
    DiskRequest { id: DiskRequestId(u64::from(flight)), kind, range }
}

/// The flight of a completion.
pub(crate) fn flight_of(completion: &DiskCompletion) -> u32 {
    completion.id.0 as u32
}
