//! What devices can serve at all: the arithmetic behind refusals and flags.

use super::{DiskName, OriginKind, OriginTable, Queue};
use forebay_devmodel::{DiskGroupParameters, DiskParameters, QueueDiscipline};
use forebay_units::{Bytes, Nanos};

/// Reordering a disk's queue gains at most this factor over serving random requests in turn (ours).
const REORDERING_MAX: f64 = 4.0;

/// What an origin serves of small random requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Capacity {
    /// Disks or servers.
    pub(super) servers: f64,
    /// Mean time of one random request without a queue.
    pub(super) service: Nanos,
    /// Requests per second in turn: `servers / service`.
    pub(super) typical: f64,
    /// Requests per second that it never exceeds, whatever the order.
    pub(super) at_most: f64,
}

impl OriginTable {
    /// The disk group's parameters.
    pub(crate) fn disks(&self) -> DiskGroupParameters {
        let capacity = self.disk_capacity.unwrap_or(Bytes::gib(64)).get();
        let mut disk = match self.disk.unwrap_or_default() {
            DiskName::Rpm7200 => DiskParameters::rpm_7200(capacity),
            DiskName::Rpm15000 => DiskParameters::rpm_15000(capacity),
            DiskName::Fixed => {
                DiskParameters::fixed_service(capacity, self.service.unwrap_or(Nanos::millis(5)))
            }
        };
        if let Some(seek) = self.seek_average {
            let scale = |part: Nanos| {
                let average = u128::from(disk.seek_average.0.max(1));
                Nanos((u128::from(part.0) * u128::from(seek.0) / average) as u64)
            };
            (disk.seek_track, disk.seek_full) = match disk.seek_average {
                // A disk without seeks gets them all alike, as in the daemon.
                Nanos::ZERO => (seek, seek),
                _ => (scale(disk.seek_track), scale(disk.seek_full)),
            };
            disk.seek_average = seek;
        }
        if let Some(rotation) = self.rotation {
            disk.rotation = rotation;
        }
        if let Some(rate) = self.transfer_per_second {
            (disk.rate_outer_bytes_s, disk.rate_inner_bytes_s) = (rate.get(), rate.get());
        }
        let mut parameters = DiskGroupParameters::striped(self.spindles.unwrap_or(4), disk);
        if let Some(unit) = self.stripe_unit {
            parameters.stripe_unit_bytes = unit.get();
        }
        parameters.discipline = match self.queue.unwrap_or_default() {
            Queue::Fifo => QueueDiscipline::Fifo,
            Queue::CLook => QueueDiscipline::CLook,
            Queue::ShortestPositioning => QueueDiscipline::ShortestPositioning,
        };
        // Every volume bounds what it sends, so that the group itself never refuses.
        parameters.outstanding_max = 1 << 24;
        parameters
    }

    /// Nanoseconds per byte of one server; 0 for none.
    pub(crate) fn nanos_per_byte(&self) -> f64 {
        self.transfer_per_second.map_or(0.0, |rate| 1e9 / rate.as_f64().max(1.0))
    }

    /// What this origin can serve of requests of `bytes`.
    pub(super) fn capacity(&self, bytes: u64) -> Capacity {
        let (servers, positioning, rate, gain) = match self.kind {
            OriginKind::Servers => {
                let rate = self.transfer_per_second.map_or(0.0, Bytes::as_f64);
                let service = self.service.unwrap_or(Nanos::ZERO).as_secs_f64();
                (f64::from(self.servers.unwrap_or(1)), service, rate, 1.0)
            }
            OriginKind::Disks => {
                let group = self.disks();
                let disk = &group.disk;
                let positioning = disk.service_overhead + disk.seek_average + Nanos(disk.rotation.0 / 2);
                let rate = (disk.rate_outer_bytes_s + disk.rate_inner_bytes_s) as f64 / 2.0;
                let moves = disk.seek_average > Nanos::ZERO || disk.rotation > Nanos::ZERO;
                let gain = if moves { REORDERING_MAX } else { 1.0 };
                (f64::from(group.spindles), positioning.as_secs_f64(), rate, gain)
            }
        };
        let transfer = if rate > 0.0 { bytes as f64 / rate } else { 0.0 };
        let service = positioning + transfer;
        let typical = if service > 0.0 { servers / service } else { f64::INFINITY };
        Capacity { servers, service: Nanos::from_secs_f64(service), typical, at_most: typical * gain }
    }
}
