//! What serves an origin's requests on virtual time: a group of disks, or equal servers behind one queue.

use crate::scenario::{Distribution, OriginKind, OriginTable};
use forebay_devmodel::{
    DiskCompletion, DiskGroup, DiskGroupObservation, DiskRequest, DiskRequestId, DiskRequestKind,
    ParameterError,
};
use forebay_units::{ByteRange, Nanos};
use forebay_workload::generator::{Random, exponential, random};
use std::collections::VecDeque;

/// Equal servers behind one queue, first in first out.
#[derive(Debug)]
pub(crate) struct Servers {
    count: u32,
    busy: u32,
    waiting: VecDeque<(u32, u64)>,
    service: Nanos,
    nanos_per_byte: f64,
    exponential: bool,
    random: Random,
    busy_time: u128,
    since: Nanos,
}

impl Servers {
    fn new(table: &OriginTable, seed: u64) -> Servers {
        Servers {
            count: table.servers.unwrap_or(1),
            busy: 0,
            waiting: VecDeque::new(),
            service: table.service.unwrap_or(Nanos::ZERO),
            nanos_per_byte: table.nanos_per_byte(),
            exponential: table.distribution == Some(Distribution::Exponential),
            random: random(seed),
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
        let base = if self.exponential { exponential(mean, &mut self.random) } else { mean };
        Nanos((base + bytes as f64 * self.nanos_per_byte).round() as u64)
    }

    /// A request arrives; the span of its service if it begins now.
    pub(crate) fn arrive(&mut self, now: Nanos, flight: u32, bytes: u64) -> Option<Nanos> {
        if self.busy == self.count {
            self.waiting.push_back((flight, bytes));
            return None;
        }
        self.pass(now);
        self.busy += 1;
        Some(self.span(bytes))
    }

    /// A request is done; the one that begins now, with the span of its service.
    pub(crate) fn done(&mut self, now: Nanos) -> Option<(u32, Nanos)> {
        self.pass(now);
        match self.waiting.pop_front() {
            Some((flight, bytes)) => Some((flight, self.span(bytes))),
            None => {
                self.busy -= 1;
                None
            }
        }
    }
}

/// A device of either kind.
#[derive(Debug)]
pub(crate) enum Device {
    /// Disks, with what they were seen to have done.
    Disks(Box<DiskGroup>, DiskGroupObservation),
    /// Servers, with their busy time when last asked.
    Servers(Box<Servers>, u128),
}

impl Device {
    pub(crate) fn new(table: &OriginTable, seed: u64) -> Result<Device, ParameterError> {
        Ok(match table.kind {
            OriginKind::Disks => {
                let group = DiskGroup::new(table.disks())?;
                let seen = group.observe(Nanos::ZERO);
                Device::Disks(Box::new(group), seen)
            }
            OriginKind::Servers => Device::Servers(Box::new(Servers::new(table, seed)), 0),
        })
    }

    /// How many requests are served at once.
    pub(crate) fn servers(&self) -> u32 {
        match self {
            Device::Disks(group, _) => group.parameters().spindles,
            Device::Servers(servers, _) => servers.count,
        }
    }

    /// The mean share of time that disks or servers were busy since this was last asked, `interval` ago.
    pub(crate) fn utilisation(&mut self, now: Nanos, interval: Nanos) -> f64 {
        match self {
            Device::Disks(group, seen) => {
                let late = group.observe(now);
                let share = late.utilisation_since(seen);
                *seen = late;
                share
            }
            Device::Servers(servers, seen) => {
                servers.pass(now);
                let busy = servers.busy_time - std::mem::replace(seen, servers.busy_time);
                busy as f64 / (interval.0.max(1) as f64 * f64::from(servers.count))
            }
        }
    }
}

/// A request to a disk group, numbered by its flight.
pub(crate) fn disk_request(flight: u32, writes: bool, range: ByteRange) -> DiskRequest {
    let kind = if writes { DiskRequestKind::Write } else { DiskRequestKind::Read };
    DiskRequest { id: DiskRequestId(u64::from(flight)), kind, range }
}

/// The flight of a completion.
pub(crate) fn flight_of(completion: &DiskCompletion) -> u32 {
    completion.id.0 as u32
}
