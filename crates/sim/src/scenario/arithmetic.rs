//! What devices can serve at all: the arithmetic behind refusals and flags.

use super::{ApplianceTable, DiskName, Distribution, OriginKind, OriginTable, Queue, Raid};
use forebay_devmodel::{
    ArrayCache, DiskBuffer, DiskGroupParameters, DiskParameters, LaneParameters, Layout, QueueDiscipline,
    SsdParameters,
};
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
        if let Some(table) = &self.buffer {
            let typical = DiskBuffer::typical();
            let bytes = |value: Option<Bytes>, unset: u64| value.map_or(unset, Bytes::get);
            disk.buffer = DiskBuffer {
                segments: table.segments.unwrap_or(typical.segments),
                segment_bytes: bytes(table.segment, typical.segment_bytes),
                read_ahead_bytes: bytes(table.read_ahead, typical.read_ahead_bytes),
                interface_bytes_s: bytes(table.interface_per_second, typical.interface_bytes_s),
            };
        }
        let mut parameters = DiskGroupParameters::striped(self.spindles.unwrap_or(4), disk);
        parameters.layout = match self.raid.unwrap_or_default() {
            Raid::Level0 => Layout::Striped,
            Raid::Level1 => Layout::Mirrored,
            Raid::Level4 => Layout::DedicatedParity,
            Raid::Level5 => Layout::RotatedParity,
        };
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

    /// The array's cache, where there is one.
    pub(crate) fn array_cache(&self) -> Option<ArrayCache> {
        let table = self.array.as_ref()?;
        let typical = ArrayCache::new(table.cache.get());
        let percent =
            |share: Option<f64>, unset: u64| share.map_or(unset, |share| (share * 100.0).round() as u64);
        Some(ArrayCache {
            page_bytes: table.page.map_or(typical.page_bytes, Bytes::get),
            latency: table.latency.unwrap_or(typical.latency),
            dirty_percent_max: percent(table.dirty_share_max, typical.dirty_percent_max),
            flush_percent: percent(table.flush_share, typical.flush_percent)
                .min(percent(table.dirty_share_max, typical.dirty_percent_max)),
            flush_after: table.flush_after.unwrap_or(typical.flush_after),
            flush_outstanding_max: table
                .flush_outstanding_max
                .map_or(typical.flush_outstanding_max, |count| count as usize),
            ..typical
        })
    }

    /// The SSD's parameters.
    pub(crate) fn ssd(&self) -> SsdParameters {
        let Some(table) = &self.flash else { return SsdParameters::typical(0) };
        let typical = SsdParameters::typical(table.capacity.get());
        SsdParameters {
            channels: table.channels.unwrap_or(typical.channels),
            dies_per_channel: table.dies_per_channel.unwrap_or(typical.dies_per_channel),
            page_bytes: table.page.map_or(typical.page_bytes, Bytes::get),
            pages_per_block: table.pages_per_block.unwrap_or(typical.pages_per_block),
            spare_share: table.spare_share.unwrap_or(typical.spare_share),
            filled_share: table.filled_share.unwrap_or(typical.filled_share),
            read: table.read.unwrap_or(typical.read),
            program: table.program.unwrap_or(typical.program),
            erase: table.erase.unwrap_or(typical.erase),
            channel_bytes_s: self.transfer_per_second.map_or(typical.channel_bytes_s, Bytes::get),
            latency: table.latency.unwrap_or(typical.latency),
            reads_first: table.reads_first.unwrap_or(typical.reads_first),
            outstanding_max: 1 << 24,
            ..typical
        }
    }

    /// One direction of the link.
    pub(crate) fn link(&self) -> LaneParameters {
        lane(self.link_latency, Nanos::ZERO, self.link_per_second)
    }

    /// Nanoseconds per byte of one server; 0 for none.
    pub(crate) fn nanos_per_byte(&self) -> f64 {
        self.transfer_per_second.map_or(0.0, |rate| 1e9 / rate.as_f64().max(1.0))
    }

    /// Whether its requests of one length take no less than on average.
    pub(super) fn takes_as_long(&self) -> bool {
        self.kind == OriginKind::Servers && self.distribution.unwrap_or_default() == Distribution::Constant
    }

    /// What a random request of `bytes` takes at least on average, without a queue; `None` where some never reach what is slow.
    pub(super) fn random_least(&self, bytes: u64) -> Option<Nanos> {
        if self.array.is_some() || self.buffer.is_some() {
            return None;
        }
        // Parts of a longer one are done side by side.
        let bytes = bytes.min(self.stripe_unit.map_or(64 << 10, Bytes::get));
        let (positioning, rate) = match self.kind {
            OriginKind::Servers => (self.service?, self.transfer_per_second.map_or(0, Bytes::get)),
            OriginKind::Disks => {
                let group = self.disks();
                // Seeks may be short. Half a turn passes on average, unless the disk takes what is near first.
                let turn = match group.discipline {
                    QueueDiscipline::Fifo => Nanos(group.disk.rotation.0 / 2),
                    _ => Nanos::ZERO,
                };
                let rate = group.disk.rate_outer_bytes_s.max(group.disk.rate_inner_bytes_s);
                (group.disk.service_overhead + turn, rate)
            }
            OriginKind::Ssd => return None,
        };
        let transfer = if rate > 0 { bytes as f64 / rate as f64 } else { 0.0 };
        Some(positioning + Nanos::from_secs_f64(transfer))
    }

    /// What this origin can serve of random requests of `bytes`, of which a share of `writes` change data.
    pub(super) fn capacity(&self, bytes: u64, writes: f64) -> Capacity {
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
                // What an array's cache or a disk's buffer takes is no device's time, and may be all.
                let cached = self.array.is_some() || self.buffer.is_some();
                let gain = if moves { REORDERING_MAX } else { 1.0 };
                let gain = if cached { f64::INFINITY } else { gain };
                (f64::from(group.spindles), positioning.as_secs_f64(), rate, gain)
            }
            OriginKind::Ssd => {
                let ssd = self.ssd();
                let dies = f64::from(ssd.channels * ssd.dies_per_channel);
                let pages = bytes.div_ceil(ssd.page_bytes.max(1)) as f64;
                // Cleaning, and reading before a write of part of a page, come on top: it is never more.
                let die = ssd.read.as_secs_f64() * (1.0 - writes) + ssd.program.as_secs_f64() * writes;
                (dies, die * pages, 0.0, 1.0)
            }
        };
        let transfer = if rate > 0.0 { bytes as f64 / rate } else { 0.0 };
        let service = positioning + transfer;
        // What a request costs in disks' requests, and how many disks share that evenly.
        // Of three disks the third is read in place of the old data and the old parity.
        let parity = if servers > 3.0 { 2.0 } else { 1.0 };
        let cost = match (self.kind, self.raid.unwrap_or_default()) {
            (OriginKind::Disks, Raid::Level1) => 1.0 + writes,
            (OriginKind::Disks, Raid::Level5) => 1.0 + (1.0 + parity) * writes,
            // The parity disk does so many requests for a write and none for a read.
            (OriginKind::Disks, Raid::Level4) => {
                let data = (1.0 + writes) / (servers - 1.0).max(1.0);
                (parity * writes).max(data) * servers
            }
            _ => 1.0,
        };
        // Longer requests may fill rows of parity and cost less.
        let small = bytes <= self.stripe_unit.map_or(64 << 10, Bytes::get);
        let rate = |cost: f64| if service > 0.0 { servers / service / cost } else { f64::INFINITY };
        let (typical, at_most) = (rate(cost), rate(if small { cost } else { 1.0 }) * gain);
        Capacity { servers, service: Nanos::from_secs_f64(service), typical, at_most }
    }
}

fn lane(latency: Nanos, item: Nanos, bytes_per_second: Option<Bytes>) -> LaneParameters {
    LaneParameters { latency, item, bytes_per_second: bytes_per_second.map_or(0, Bytes::get) }
}

impl ApplianceTable {
    /// One direction of the link to its clients.
    pub(crate) fn link(&self) -> LaneParameters {
        lane(self.link_latency, Nanos::ZERO, self.link_per_second)
    }

    /// A worker.
    pub(crate) fn worker(&self) -> LaneParameters {
        lane(Nanos::ZERO, self.request_time, self.copy_per_second)
    }

    /// The shortest time of a request of `bytes` besides the cache's.
    pub(super) fn least(&self, bytes: u64) -> Nanos {
        let over = |rate: Option<Bytes>| {
            rate.map_or(Nanos::ZERO, |rate| Nanos::from_secs_f64(bytes as f64 / rate.as_f64().max(1.0)))
        };
        let link = self.link_latency + self.link_latency + over(self.link_per_second);
        link + self.request_time + over(self.copy_per_second)
    }
}
