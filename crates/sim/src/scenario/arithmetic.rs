//! What devices can serve at all: the arithmetic behind refusals and flags.

use super::{ApplianceTable, DiskName, Distribution, OriginKind, OriginTable, Queue, Raid};
use forebay_devmodel::{
    ArrayCache, DiskBuffer, DiskGroupParameters, DiskParameters, LaneParameters, Layout, QueueDiscipline,
    SsdParameters,
};
use forebay_units::{Bytes, Nanos};

/// Random requests that an origin is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Part {
    /// Per second.
    pub(super) rate: f64,
    /// Bytes of each.
    pub(super) bytes: u64,
    /// The share of them that changes data.
    pub(super) writes: f64,
}

/// What an origin serves of random requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Capacity {
    /// Disks or servers; where one does a part that no other does, and is the busiest, that one.
    pub(super) servers: f64,
    /// The one is the disk with all parity.
    pub(super) is_parity: bool,
    /// Mean time of one random access without a queue.
    pub(super) service: Nanos,
    /// That has the average seek of a whole disk in it: where data take a part of it, less.
    has_seek: bool,
    /// Accesses that a request costs, were all servers as busy as the busiest is.
    pub(super) accesses: f64,
    /// Requests per second in turn: `servers / (service * accesses)`.
    pub(super) typical: f64,
    /// Requests per second that it never exceeds, wherever they are and whatever the order.
    pub(super) at_most: f64,
}

impl Capacity {
    /// That of so many servers of which each does one request at a time.
    fn of_requests(servers: f64, service: f64) -> Capacity {
        let rate = if service > 0.0 { servers / service } else { f64::INFINITY };
        let service = Nanos::from_secs_f64(service);
        Capacity {
            servers,
            is_parity: false,
            service,
            has_seek: false,
            accesses: 1.0,
            typical: rate,
            at_most: rate,
        }
    }

    /// `servers` and what a request takes of them, in words.
    pub(super) fn said(&self) -> String {
        let seek = if self.has_seek { ", by the average seek of a whole disk" } else { "" };
        format!("{} at {} each{}{seek}", self.who(), self.service, each_costs(self.accesses))
    }

    /// `servers` in words.
    pub(super) fn who(&self) -> String {
        if self.is_parity { "1 parity disk".to_owned() } else { self.servers.to_string() }
    }
}

/// What it adds to "so many at so much each" that a request costs more `accesses` than one.
pub(super) fn each_costs(accesses: f64) -> String {
    if accesses > 1.0 + 1e-9 { format!(", at {accesses:.1} accesses a request") } else { String::new() }
}

/// What it adds to "serve so many at most" that this is so many times what is served of places all over the disks, in turn.
pub(super) fn all_in_one_place(times: f64) -> String {
    if times > 1.0 + 1e-9 {
        format!(" ({times:.1} times what they serve in turn, were all in one place)")
    } else {
        String::new()
    }
}

/// What disks have to do: accesses, and the bytes of all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Work {
    accesses: f64,
    bytes: f64,
}

impl Work {
    fn new(accesses: u64, bytes: u64) -> Work {
        Work { accesses: accesses as f64, bytes: bytes as f64 }
    }

    fn times(self, factor: f64) -> Work {
        Work { accesses: self.accesses * factor, bytes: self.bytes * factor }
    }

    fn plus(self, other: Work) -> Work {
        Work { accesses: self.accesses + other.accesses, bytes: self.bytes + other.bytes }
    }

    /// Seconds that it takes one disk which needs so long for an access, and so long for a byte.
    fn seconds(self, access: f64, byte: f64) -> f64 {
        self.accesses * access + self.bytes * byte
    }

    /// The least that it takes one disk, of whose accesses each begins and ends half a turn after the one before on average.
    fn seconds_least(self, overhead: f64, half_turn: f64, byte: f64) -> f64 {
        self.accesses * overhead + (self.accesses * half_turn).max(self.bytes * byte)
    }
}

/// The least that a read of `bytes` is for the disks of a group, wherever it begins.
fn read_work(layout: Layout, spindles: u32, unit: u64, bytes: u64) -> Work {
    let across = match layout {
        // Its units go round all spindles, row after row.
        Layout::RotatedParity => spindles,
        _ => layout.data_spindles(spindles),
    };
    Work::new(bytes.div_ceil(unit).min(across.into()), bytes)
}

/// The least that a write of `bytes` is for the disks that hold its data, and for those that hold its parity, wherever it begins.
///
/// Each is a bound of its own: where the least of one is not that of the other, no place has both. Whole rows are written without
/// a read; what is left of a row reads the old data and parity, or the rest of the row, as [`Layout::plan_write`] does.
fn write_work(layout: Layout, spindles: u32, unit: u64, bytes: u64) -> (Work, Work) {
    match layout {
        Layout::DedicatedParity | Layout::RotatedParity => {}
        Layout::Mirrored => return (read_work(layout, spindles, unit, bytes).times(2.0), Work::default()),
        _ => return (read_work(layout, spindles, unit, bytes), Work::default()),
    }
    let width = u64::from(layout.data_spindles(spindles));
    let row = width * unit;
    let (rows, rest) = (bytes / row, bytes % row);
    let (mut data, mut parity) = match rows {
        0 => (Work::default(), Work::default()),
        // One contiguous piece of each disk, however many rows.
        _ => (Work::new(width, rows * row), Work::new(1, rows * unit)),
    };
    let touched = rest.div_ceil(unit);
    if touched > 0 {
        let is_partial = touched > 1 && !rest.is_multiple_of(unit);
        let others = width - touched + u64::from(is_partial);
        let others_bytes = (width - touched) * rest.min(unit);
        data = data.plus(Work::new(touched + touched.min(others), rest + rest.min(others_bytes)));
        // Who reads the rest of the row reads no old parity. Beside whole rows a longer head or tail may do so, too.
        let times = if 2 * touched >= width || rows > 0 { 1 } else { 2 };
        parity = parity.plus(Work::new(times, times * rest.min(unit)));
    }
    (data, parity)
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
            (disk.seek_track, disk.seek_full) = (scale(disk.seek_track), scale(disk.seek_full));
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

    /// Whether what follows the request before it costs less than a random one: disks move, or read on before they are asked.
    pub(super) fn favours_sequential(&self) -> bool {
        let moves = self.disk != Some(DiskName::Fixed);
        self.kind == OriginKind::Disks && (moves || self.buffer.is_some() || self.array.is_some())
    }

    /// What this origin can serve of random requests in the proportion of these `parts`: time and accesses are those of a request on average.
    /// Where they begin is taken to be what costs least.
    pub(super) fn capacity(&self, parts: &[Part]) -> Capacity {
        let all: f64 = parts.iter().map(|part| part.rate).sum();
        let shares = parts.iter().filter(|part| part.rate > 0.0).map(|part| (part.rate / all, *part));
        let shares: Vec<(f64, Part)> = shares.collect();
        let mean =
            |of: &dyn Fn(&Part) -> f64| shares.iter().map(|(share, part)| share * of(part)).sum::<f64>();
        match self.kind {
            OriginKind::Servers => {
                let byte = self.transfer_per_second.map_or(0.0, |rate| 1.0 / rate.as_f64());
                let service = self.service.unwrap_or(Nanos::ZERO).as_secs_f64();
                let service = mean(&|part| service + part.bytes as f64 * byte);
                Capacity::of_requests(f64::from(self.servers.unwrap_or(1)), service)
            }
            OriginKind::Disks => self.capacity_of_disks(&shares),
            OriginKind::Ssd => {
                let ssd = self.ssd();
                let pages = |part: &Part| part.bytes.div_ceil(ssd.page_bytes.max(1)) as f64;
                // Cleaning, and reading before a write of part of a page, come on top: it is never more.
                let (read, program) = (ssd.read.as_secs_f64(), ssd.program.as_secs_f64());
                let die = mean(&|part| pages(part) * (read * (1.0 - part.writes) + program * part.writes));
                // What is read passes a channel alone, and what is written by whole pages.
                let carried = mean(&|part| {
                    part.bytes as f64 * (1.0 - part.writes)
                        + pages(part) * ssd.page_bytes as f64 * part.writes
                });
                let channels = f64::from(ssd.channels);
                let dies = Capacity::of_requests(channels * f64::from(ssd.dies_per_channel), die);
                let channels = Capacity::of_requests(channels, carried / ssd.channel_bytes_s as f64);
                if channels.typical < dies.typical { channels } else { dies }
            }
        }
    }

    fn capacity_of_disks(&self, shares: &[(f64, Part)]) -> Capacity {
        let group = self.disks();
        let (disk, unit, layout) = (&group.disk, group.stripe_unit_bytes.max(1), group.layout);
        let (servers, data_disks) =
            (f64::from(group.spindles), f64::from(layout.data_spindles(group.spindles)).max(1.0));
        let access = (disk.service_overhead + disk.seek_average + Nanos(disk.rotation.0 / 2)).as_secs_f64();
        let (mut data, mut parity, mut bytes) = (Work::default(), Work::default(), 0.0);
        for (share, part) in shares {
            let (reads, writes) = (share * (1.0 - part.writes), share * part.writes);
            let read = read_work(layout, group.spindles, unit, part.bytes);
            let (written, of_parity) = write_work(layout, group.spindles, unit, part.bytes);
            data = data.plus(read.times(reads)).plus(written.times(writes));
            parity = parity.plus(of_parity.times(writes));
            bytes += share * part.bytes.min(unit) as f64;
        }
        // Seconds of every disk, or of the busiest.
        let seconds = |of: &dyn Fn(Work) -> f64| match layout {
            // The parity disk does its part alone.
            Layout::DedicatedParity => of(parity).max(of(data) / data_disks),
            _ => of(data.plus(parity)) / servers,
        };
        let per_byte = |rate: f64| if rate > 0.0 { 1.0 / rate } else { 0.0 };
        let (outer, inner) = (disk.rate_outer_bytes_s as f64, disk.rate_inner_bytes_s as f64);
        let usual = per_byte((outer + inner) / 2.0);
        let typical = seconds(&|work| work.seconds(access, usual));
        let is_parity = layout == Layout::DedicatedParity
            && parity.seconds(access, usual) > data.seconds(access, usual) / data_disks;
        let servers = if is_parity { 1.0 } else { servers };
        // Of what lies side by side no head seeks anything, and who takes what is near first need not wait for the platters.
        let half_turn = match group.discipline {
            QueueDiscipline::Fifo => Nanos(disk.rotation.0 / 2),
            _ => Nanos::ZERO,
        };
        let (overhead, half_turn) = (disk.service_overhead.as_secs_f64(), half_turn.as_secs_f64());
        let least = match self.array.is_some() || self.buffer.is_some() {
            // What an array's cache or a disk's buffer takes is no device's time, and may be all.
            true => 0.0,
            false => seconds(&|work| work.seconds_least(overhead, half_turn, per_byte(outer.max(inner)))),
        };
        let rate = |seconds: f64| if seconds > 0.0 { 1.0 / seconds } else { f64::INFINITY };
        let service = access + bytes * usual;
        Capacity {
            servers,
            is_parity,
            service: Nanos::from_secs_f64(service),
            has_seek: disk.seek_average > Nanos::ZERO,
            accesses: if service > 0.0 { typical * servers / service } else { 1.0 },
            typical: rate(typical),
            at_most: rate(least),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_devmodel::WritePlan;
    use forebay_units::ByteRange;

    #[test]
    fn no_place_costs_less_than_the_least_that_is_counted() {
        const UNIT: u64 = 4;
        for layout in [Layout::Striped, Layout::Mirrored, Layout::DedicatedParity, Layout::RotatedParity] {
            for spindles in (3u32..=7).filter(|n| layout != Layout::Mirrored || n.is_multiple_of(2)) {
                let row = UNIT * u64::from(layout.data_spindles(spindles));
                for bytes in 1..=3 * row {
                    let least = read_work(layout, spindles, UNIT, bytes);
                    let (data, parity) = write_work(layout, spindles, UNIT, bytes);
                    let mut read_least = f64::INFINITY;
                    let mut written_least = f64::INFINITY;
                    for offset in 0..row * u64::from(spindles) {
                        let range = ByteRange::new(offset, bytes);
                        let mut parts = Vec::new();
                        layout.split(spindles, UNIT, range, &mut parts);
                        read_least = read_least.min(parts.len() as f64);
                        let mut plan = WritePlan::default();
                        layout.plan_write(spindles, UNIT, range, &mut plan);
                        written_least = written_least.min(plan.parts.len() as f64);
                        let moved: u64 = plan.parts.iter().map(|part| part.range.length).sum();
                        let said = format!("{layout:?} of {spindles}: {bytes} bytes at {offset}");
                        assert!(plan.parts.len() as f64 >= data.accesses + parity.accesses, "{said}");
                        assert!(moved as f64 >= data.bytes + parity.bytes, "{said}");
                        if layout == Layout::DedicatedParity {
                            let of_parity = |part: &&forebay_devmodel::DiskPart| part.spindle == spindles - 1;
                            let there = plan.parts.iter().filter(of_parity);
                            let moved_there: u64 = there.clone().map(|part| part.range.length).sum();
                            let there = there.count();
                            assert!(there as f64 >= parity.accesses, "{said}");
                            assert!(moved_there as f64 >= parity.bytes, "{said}");
                            assert!((plan.parts.len() - there) as f64 >= data.accesses, "{said}");
                            assert!((moved - moved_there) as f64 >= data.bytes, "{said}");
                        }
                    }
                    // And it is no looser than it must be: exact, but for a request or two of parity beside unequal parts.
                    assert!(read_least == least.accesses, "{layout:?} of {spindles}: {bytes} bytes");
                    let counted = data.accesses + parity.accesses;
                    assert!(written_least - counted <= 1.0, "{layout:?} of {spindles}: {bytes} bytes");
                }
            }
        }
    }
}
