//! Devices of a scenario: origins with their disks, arrays and flash, and appliances.

use super::default;
use super::text::{optional, text};
use forebay_control::Operations;
use forebay_units::{Bytes, Nanos};
use serde::Deserialize;

/// What an origin is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OriginKind {
    /// A group of disks, the model of the daemon's emulated disk group.
    Disks,
    /// Equal servers behind one queue or with one each: an array that can be described by a rate, or a closed form.
    Servers,
    /// A solid-state disk.
    Ssd,
}

/// Which disk a group is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum DiskName {
    /// A typical disk for capacity.
    #[default]
    #[serde(rename = "7200rpm")]
    Rpm7200,
    /// A typical disk for speed.
    #[serde(rename = "15000rpm")]
    Rpm15000,
    /// Holds every request for `service`.
    #[serde(rename = "fixed")]
    Fixed,
}

/// Which waiting request a disk serves next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// The oldest.
    #[default]
    Fifo,
    /// Upwards from the head, then from the lowest again: an elevator.
    CLook,
    /// The one that is reached first.
    ShortestPositioning,
}

/// The redundancy of a group of disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Raid {
    /// None: stripes.
    #[default]
    #[serde(rename = "0")]
    Level0,
    /// Pairs of copies, striped.
    #[serde(rename = "1")]
    Level1,
    /// Parity on the last disk.
    #[serde(rename = "4")]
    Level4,
    /// Parity that goes round.
    #[serde(rename = "5")]
    Level5,
}

/// How service times vary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// Not at all.
    #[default]
    Constant,
    /// Exponentially.
    Exponential,
    /// Evenly, by up to `service_spread` more or less than the mean.
    Uniform,
}

/// How servers are reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queues {
    /// One queue; whoever is free takes the oldest.
    #[default]
    Shared,
    /// One each; stripe units of `stripe_unit` go round, as over disks.
    Each,
}

/// An origin.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OriginTable {
    /// Its name.
    pub name: String,
    /// What it is made of.
    #[serde(rename = "type")]
    pub kind: OriginKind,
    /// Delay of the way to it, and of the way back; zero unless set.
    #[serde(default = "default::zero", deserialize_with = "text")]
    pub link_latency: Nanos,
    /// Bytes per second of the way to it, and of the way back; unbounded unless set.
    #[serde(default, deserialize_with = "optional")]
    pub link_per_second: Option<Bytes>,
    /// When it answers nothing that comes; never unless set.
    #[serde(default)]
    pub hangs: Vec<HangTable>,
    /// Disks: how many; 4 unless set.
    pub spindles: Option<u32>,
    /// Disks: which; `7200rpm` unless set.
    pub disk: Option<DiskName>,
    /// Disks: bytes of one; 64 GiB unless set.
    #[serde(default, deserialize_with = "optional")]
    pub disk_capacity: Option<Bytes>,
    /// Disks, and servers with a queue each: consecutive bytes on one; 64 KiB unless set.
    #[serde(default, deserialize_with = "optional")]
    pub stripe_unit: Option<Bytes>,
    /// Disks: their redundancy; `0` unless set.
    pub raid: Option<Raid>,
    /// Disks: which request is next; `fifo` unless set.
    pub queue: Option<Queue>,
    /// Disks: mean seek; the shortest and the longest scale with it.
    #[serde(default, deserialize_with = "optional")]
    pub seek_average: Option<Nanos>,
    /// Disks: a turn.
    #[serde(default, deserialize_with = "optional")]
    pub rotation: Option<Nanos>,
    /// Disks: their on-board cache; none unless set.
    pub buffer: Option<BufferTable>,
    /// Disks: the array's shared cache in front of them; none unless set.
    pub array: Option<ArrayTable>,
    /// SSD: what it is made of.
    pub flash: Option<FlashTable>,
    /// Servers: how many.
    pub servers: Option<u32>,
    /// Servers: whether they share a queue.
    pub queues: Option<Queues>,
    /// Servers and `fixed` disks: mean time of one request.
    #[serde(default, deserialize_with = "optional")]
    pub service: Option<Nanos>,
    /// Servers: how service times vary; `constant` unless set.
    pub distribution: Option<Distribution>,
    /// Servers, uniform: how far from the mean at most.
    #[serde(default, deserialize_with = "optional")]
    pub service_spread: Option<Nanos>,
    /// Bytes per second of one disk, server or channel of flash; as the device has it, else unbounded.
    #[serde(default, deserialize_with = "optional")]
    pub transfer_per_second: Option<Bytes>,
}

impl OriginTable {
    /// An origin with nothing set.
    pub fn new(name: &str, kind: OriginKind) -> OriginTable {
        OriginTable {
            name: name.to_owned(),
            kind,
            link_latency: Nanos::ZERO,
            link_per_second: None,
            hangs: Vec::new(),
            spindles: None,
            disk: None,
            disk_capacity: None,
            stripe_unit: None,
            raid: None,
            queue: None,
            seek_average: None,
            rotation: None,
            buffer: None,
            array: None,
            flash: None,
            servers: None,
            queues: None,
            service: None,
            distribution: None,
            service_spread: None,
            transfer_per_second: None,
        }
    }
}

/// A time in which an origin hangs: what comes then waits until it is over, what came before is answered.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HangTable {
    /// When it begins.
    #[serde(deserialize_with = "text")]
    pub from: Nanos,
    /// How long it lasts.
    #[serde(rename = "for", deserialize_with = "text")]
    pub span: Nanos,
    /// Which requests hang; all unless set.
    #[serde(default)]
    pub operations: Operations,
}

impl HangTable {
    /// When a request that comes at `at` is let on; `None` where it does not hang.
    pub(crate) fn holds(&self, at: Nanos, writes: bool) -> Option<Nanos> {
        let until = self.from.saturating_add(self.span);
        let is_meant = match self.operations {
            Operations::Reads => !writes,
            Operations::Writes => writes,
            Operations::All => true,
        };
        (is_meant && self.from <= at && at < until).then_some(until)
    }
}

/// A disk's on-board cache; a typical one unless set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferTable {
    /// Streams that are told apart; 32 unless set.
    pub segments: Option<u32>,
    /// Bytes of a segment; 2 MiB unless set.
    #[serde(default, deserialize_with = "optional")]
    pub segment: Option<Bytes>,
    /// Bytes that an idle disk reads on; 1 MiB unless set.
    #[serde(default, deserialize_with = "optional")]
    pub read_ahead: Option<Bytes>,
    /// Bytes per second from it to the host; 550 MB unless set.
    #[serde(default, deserialize_with = "optional")]
    pub interface_per_second: Option<Bytes>,
}

/// An array's shared cache.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayTable {
    /// Its size.
    #[serde(deserialize_with = "text")]
    pub cache: Bytes,
    /// The unit of caching; 16 KiB unless set.
    #[serde(default, deserialize_with = "optional")]
    pub page: Option<Bytes>,
    /// Every request's time in the controller; 200 us unless set.
    #[serde(default, deserialize_with = "optional")]
    pub latency: Option<Nanos>,
    /// Share of the pages that may be dirty; 0.5 unless set, 0: writes go through.
    pub dirty_share_max: Option<f64>,
    /// Share above which dirty pages are destaged at once; 0.1 unless set.
    pub flush_share: Option<f64>,
    /// Age at which dirty pages are destaged; 5 s unless set.
    #[serde(default, deserialize_with = "optional")]
    pub flush_after: Option<Nanos>,
    /// Destaging writes outstanding at most; 32 unless set.
    pub flush_outstanding_max: Option<u32>,
}

/// A solid-state disk.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashTable {
    /// Its size.
    #[serde(deserialize_with = "text")]
    pub capacity: Bytes,
    /// Channels; 8 unless set.
    pub channels: Option<u32>,
    /// Dies of each; 4 unless set.
    pub dies_per_channel: Option<u32>,
    /// Bytes of a page; 16 KiB unless set.
    #[serde(default, deserialize_with = "optional")]
    pub page: Option<Bytes>,
    /// Pages of a block; 256 unless set.
    pub pages_per_block: Option<u32>,
    /// Flash beyond the capacity; 0.07 unless set.
    pub spare_share: Option<f64>,
    /// Share that holds data at the beginning; 1 unless set.
    pub filled_share: Option<f64>,
    /// Time to read a page; 60 us unless set.
    #[serde(default, deserialize_with = "optional")]
    pub read: Option<Nanos>,
    /// Time to program a page; 600 us unless set.
    #[serde(default, deserialize_with = "optional")]
    pub program: Option<Nanos>,
    /// Time to erase a block; 3 ms unless set.
    #[serde(default, deserialize_with = "optional")]
    pub erase: Option<Nanos>,
    /// Every request's time in the controller; 20 us unless set.
    #[serde(default, deserialize_with = "optional")]
    pub latency: Option<Nanos>,
    /// Waiting reads go first; true unless set.
    pub reads_first: Option<bool>,
}

/// An appliance: clients reach it over a link, and each of its workers owns some of its volumes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApplianceTable {
    /// Its name.
    pub name: String,
    /// Workers; its volumes go round them. 1 unless set.
    pub workers: Option<u32>,
    /// A worker's time for a request; zero unless set.
    #[serde(default = "default::zero", deserialize_with = "text")]
    pub request_time: Nanos,
    /// Bytes per second that a worker copies; unbounded unless set.
    #[serde(default, deserialize_with = "optional")]
    pub copy_per_second: Option<Bytes>,
    /// Delay of the way from its clients, and of the way back; zero unless set.
    #[serde(default = "default::zero", deserialize_with = "text")]
    pub link_latency: Nanos,
    /// Bytes per second of the way from its clients, and of the way back; unbounded unless set.
    #[serde(default, deserialize_with = "optional")]
    pub link_per_second: Option<Bytes>,
}
