//! The tables of a group of disks that is emulated.

use super::super::DiskGroupConfig;
use super::super::reader::Table;
use super::{ANY, FileReader, HOUR};
use forebay_devmodel::{
    ArrayCache, DiskBuffer, DiskGroupParameters, DiskParameters, Layout, QueueDiscipline,
};
use forebay_units::{Bytes, Nanos};

impl FileReader<'_> {
    pub(super) fn disk_group(&self, table: &Table<'_>) -> DiskGroupConfig {
        let name = table.text("name").unwrap_or_else(|| {
            if !table.has("name") {
                table.wrong("name", "missing key `name`");
            }
            String::new()
        });
        let capacity =
            table.bytes("disk_capacity", Bytes::mib(1), Bytes(64 << 40)).unwrap_or(Bytes::gib(64)).get();
        let second = Nanos::secs(1);
        let kind = table.word("disk", &[("7200rpm", 0), ("15000rpm", 1), ("fixed", 2)]).unwrap_or(0);
        let service = table.span("service", Nanos(1), Nanos::secs(10));
        let mut disk = match (kind, service) {
            (0, _) => DiskParameters::rpm_7200(capacity),
            (1, _) => DiskParameters::rpm_15000(capacity),
            (_, service) => {
                if !table.has("service") {
                    table.wrong("service", "missing key `service`, which a `fixed` disk needs");
                }
                DiskParameters::fixed_service(capacity, service.unwrap_or(Nanos::millis(5)))
            }
        };
        if kind != 2 && table.has("service") {
            table.wrong("service", "`service` is for `disk = \"fixed\"`: this disk seeks and turns");
        }
        if let Some(seek) = table.span("seek_average", Nanos::ZERO, second) {
            let scale = |part: Nanos| {
                let average = u128::from(disk.seek_average.0.max(1));
                Nanos((u128::from(part.0) * u128::from(seek.0) / average) as u64)
            };
            (disk.seek_track, disk.seek_full) = match disk.seek_average {
                // A disk without seeks gets them all alike.
                Nanos::ZERO => (seek, seek),
                _ => (scale(disk.seek_track), scale(disk.seek_full)),
            };
            disk.seek_average = seek;
        }
        if let Some(rotation) = table.span("rotation", Nanos::ZERO, second) {
            disk.rotation = rotation;
        }
        if let Some(rate) = table.bytes("transfer_per_second", Bytes::kib(64), ANY) {
            (disk.rate_outer_bytes_s, disk.rate_inner_bytes_s) = (rate.get(), rate.get());
        }
        let spindles = table.count("spindles", 1, 1024).unwrap_or(4) as u32;
        let mut parameters = DiskGroupParameters::striped(spindles, disk);
        if let Some(unit) = table.bytes("stripe_unit", Bytes(512), Bytes::gib(1)) {
            parameters.stripe_unit_bytes = unit.get();
        }
        let disciplines = [
            ("fifo", QueueDiscipline::Fifo),
            ("c-look", QueueDiscipline::CLook),
            ("shortest-positioning", QueueDiscipline::ShortestPositioning),
        ];
        parameters.discipline = table.word("discipline", &disciplines).unwrap_or_default();
        parameters.queue_depth = table.count("queue_depth", 1, 65_536).unwrap_or(32) as usize;
        parameters.outstanding_max = table.count("outstanding_max", 1, 1 << 20).unwrap_or(4096) as usize;
        let raids = [
            ("0", Layout::Striped),
            ("1", Layout::Mirrored),
            ("4", Layout::DedicatedParity),
            ("5", Layout::RotatedParity),
        ];
        if let Some(layout) = table.word("raid", &raids) {
            parameters.layout = layout;
        }
        if let Some(table) = table.table("buffer", "disk_group.buffer") {
            let typical = DiskBuffer::typical();
            let bytes = |key, least, most, unset| table.bytes(key, least, most).map_or(unset, Bytes::get);
            parameters.disk.buffer = DiskBuffer {
                segments: table.count("segments", 1, 256).map_or(typical.segments, |count| count as u32),
                segment_bytes: bytes("segment", Bytes(512), Bytes::gib(1), typical.segment_bytes),
                read_ahead_bytes: bytes("read_ahead", Bytes::ZERO, Bytes::gib(1), typical.read_ahead_bytes),
                interface_bytes_s: bytes(
                    "interface_per_second",
                    Bytes::kib(64),
                    ANY,
                    typical.interface_bytes_s,
                ),
            };
        }
        let array = table.table("array", "disk_group.array").map(|table| Self::array(&table));
        DiskGroupConfig { name, parameters, array }
    }

    pub(super) fn array(table: &Table<'_>) -> ArrayCache {
        if !table.has("cache") {
            table.wrong("cache", "missing key `cache`");
        }
        let cache = table.bytes("cache", Bytes::kib(256), Bytes::gib(1024)).unwrap_or(Bytes::gib(1));
        let typical = ArrayCache::new(cache.get());
        let percent = |key, most, unset: u64| {
            let Some(share) = table.number(key, 0.0, true, most) else { return unset };
            let percent = (share * 100.0).round();
            if (share * 100.0 - percent).abs() > 1e-6 {
                table.wrong(key, format!("found {share}, expected a share in steps of 0.01"));
            }
            percent as u64
        };
        let dirty_percent_max = percent("dirty_share_max", 0.9, typical.dirty_percent_max);
        ArrayCache {
            page_bytes: table.bytes("page", Bytes(512), Bytes::mib(1)).map_or(typical.page_bytes, Bytes::get),
            latency: table.span("latency", Nanos::ZERO, Nanos::secs(1)).unwrap_or(typical.latency),
            dirty_percent_max,
            flush_percent: percent("flush_share", 0.9, typical.flush_percent).min(dirty_percent_max),
            flush_after: table.span("flush_after", Nanos::ZERO, HOUR).unwrap_or(typical.flush_after),
            flush_outstanding_max: table
                .count("flush_outstanding_max", 1, 65_536)
                .map_or(typical.flush_outstanding_max, |count| count as usize),
            ..typical
        }
    }
}
