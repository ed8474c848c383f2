//! One load on one array, with and without a tier, under each admission.

use super::loads::{LoadKind, PHASE, VOLUME, requests};
use crate::load::{RecordedRequest, Traces};
use crate::outcome::{LatencySummary, Outcome};
use crate::scenario::{
    ArrayTable, ArrivalKind, CacheTable, DiskName, FlashTable, LoadTable, ObserveTable, OriginKind,
    OriginTable, Queue, Raid, Scenario, Sizing, TierTable, TierUse, TierWrites, VolumeTable,
};
use crate::simulation::{RunError, Simulation};
use forebay_control::ControlConfig;
use forebay_control::eafc::EafcRules;
use forebay_policy::placement::Admission;
use forebay_units::{Bytes, Nanos};
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The unit in which parts of a recorded volume that are never touched are left out.
const ZONE: u64 = 1 << 20;

/// The interval of series.
const INTERVAL: Nanos = Nanos(10_000_000_000);

/// A volume's block unless requests ask for a smaller one, and the least: a sector.
const BLOCK: Bytes = Bytes(4 << 10);
const SECTOR: Bytes = Bytes(512);

/// The largest block, of a sector to [`BLOCK`], at whose bounds all requests begin and end. A simulated volume takes whole blocks, and writes that share one go one after the other; an array
/// knows no such blocks, and a host whose partition begins at an odd sector would have every write of a sequential run wait for the one before.
fn block_of(requests: &[RecordedRequest]) -> Bytes {
    let bits =
        requests.iter().fold(BLOCK.get(), |bits, request| bits | request.offset | u64::from(request.length));
    Bytes((1 << bits.trailing_zeros()).max(SECTOR.get()))
}

/// A load on an array.
#[derive(Clone, Debug)]
pub struct Bench {
    kind: LoadKind,
    seed: u64,
    duration: Nanos,
    requests: Arc<[RecordedRequest]>,
    volume_bytes: u64,
    /// The volume's block: writes that share one go one after the other.
    block: Bytes,
    tier: TierTable,
}

/// An instant of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SeriesRow {
    /// The end of an interval, in seconds.
    pub at_s: f64,
    /// Mean response time in it.
    pub mean_ms: Option<f64>,
    /// The threshold in force.
    pub threshold: Option<u16>,
    /// The share of reads that the tier answered.
    pub read_hits: f64,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunRow {
    /// Which admission; none without a tier.
    pub admission: Option<String>,
    /// Bytes of the tier.
    pub tier_bytes: u64,
    /// Mean response time of the measured part, reads and writes together.
    pub mean_ms: f64,
    /// The 99th percentile of the measured part.
    pub p99_ms: f64,
    /// The same of the first two minutes, in which most is moved: the mean of its intervals' percentiles.
    pub p99_filling_ms: f64,
    /// Requests per second of the measured part.
    pub iops: f64,
    /// The share of reads that the tier answered, and of writes that it took, in the measured part.
    pub read_hits: f64,
    /// See `read_hits`.
    pub write_hits: f64,
    /// Bytes that migrations brought in or took back, in the whole run.
    pub migrated_bytes: u64,
    /// Bytes written to the tier's device by migrations, in the whole run.
    pub promoted_bytes: u64,
    /// Bytes written to the tier's device, by migrations and clients, in the whole run.
    pub flash_bytes: u64,
    /// Requests shed.
    pub shed: u64,
    /// By interval.
    pub series: Vec<SeriesRow>,
}

/// A volume with nothing set.
pub(super) fn volume(name: &str, size: u64, load: Vec<LoadTable>) -> VolumeTable {
    VolumeTable {
        name: name.to_owned(),
        origin: Some("array".to_owned()),
        appliance: None,
        size: Bytes(size),
        block_size: None,
        cache: None,
        may_cache: false,
        minimum: Bytes::ZERO,
        maximum: None,
        tier: None,
        load,
    }
}

/// Recorded requests, handed in beside the scenario.
pub(super) fn recorded(from: Nanos) -> LoadTable {
    LoadTable { from, arrivals: ArrivalKind::Trace, trace: Some(String::new()), ..LoadTable::idle() }
}

/// An array of fast disks in pairs with a shared cache, and a solid-state disk beside it.
pub(super) fn scenario(
    name: &str,
    (spindles, cache): (u32, Bytes),
    tier: Option<TierTable>,
    volume: Vec<VolumeTable>,
    (seed, duration, measure_from): (u64, Nanos, Nanos),
) -> Scenario {
    let array = OriginTable {
        spindles: Some(spindles),
        disk: Some(DiskName::Rpm15000),
        raid: Some(Raid::Level1),
        queue: Some(Queue::CLook),
        array: Some(ArrayTable {
            cache,
            page: None,
            latency: None,
            dirty_share_max: None,
            flush_share: None,
            flush_after: None,
            flush_outstanding_max: None,
        }),
        ..OriginTable::new("array", OriginKind::Disks)
    };
    let flash = FlashTable {
        capacity: Bytes::gib(8),
        channels: None,
        dies_per_channel: None,
        page: None,
        pages_per_block: None,
        spare_share: None,
        filled_share: Some(0.0),
        read: None,
        program: None,
        erase: None,
        latency: None,
        reads_first: None,
    };
    let ssd = OriginTable { flash: Some(flash), ..OriginTable::new("flash", OriginKind::Ssd) };
    Scenario {
        name: name.to_owned(),
        about: String::new(),
        duration,
        seed,
        measure_from,
        cache: CacheTable {
            sizing: Sizing::Fixed,
            hit_latency: Nanos::ZERO,
            interval: INTERVAL,
            ..CacheTable::default()
        },
        observe: ObserveTable::default(),
        control: ControlConfig::default(),
        eafc: EafcRules::default(),
        tier,
        origin: vec![array, ssd],
        appliance: Vec::new(),
        volume,
        objective: Vec::new(),
        reservation: Vec::new(),
        expected: Vec::new(),
    }
}

impl Bench {
    /// A load of `rate` requests per second for so long, of which the second half is measured, or of phases all but the first two.
    pub fn new(kind: LoadKind, rate: f64, size: Bytes, duration: Nanos, seed: u64) -> Bench {
        let requests = requests(kind, rate, duration, seed);
        let tier = TierTable { writes: TierWrites::Home, ..TierTable::new("flash", size) };
        Bench { kind, seed, duration, requests, volume_bytes: VOLUME, block: BLOCK, tier }
    }

    /// A recorded load, zones of 1 MiB that it never touches left out, sped up or slowed down to `rate` requests per second on average, with a tier of a tenth of the chunks that it touches; the second half is measured.
    ///
    /// # Panics
    /// If there are no requests, or all have one time.
    pub fn recorded(requests: &[RecordedRequest], rate: f64, seed: u64) -> Bench {
        let first = requests.first().expect("there are requests").at;
        let span = requests.iter().map(|request| request.at).max().unwrap_or(first).saturating_since(first);
        assert!(span > Nanos::ZERO, "all requests have one time");
        let speed = requests.len() as f64 / rate / span.as_secs_f64();
        let end = |request: &RecordedRequest| request.offset + u64::from(request.length);
        let zones_of = |request: &RecordedRequest| request.offset / ZONE..=(end(request) - 1) / ZONE;
        let zones: BTreeSet<u64> = requests.iter().flat_map(zones_of).collect();
        let zones: Vec<u64> = zones.into_iter().collect();
        // Zones that a request spans are all touched, so that they stay neighbours.
        let moved = |offset: u64| {
            let rank = zones.binary_search(&(offset / ZONE)).expect("it is touched") as u64;
            rank * ZONE + offset % ZONE
        };
        let mut late = Nanos::ZERO;
        let requests: Arc<[RecordedRequest]> = requests
            .iter()
            .map(|request| {
                let at = (request.at.saturating_since(first).0 as f64 * speed) as u64;
                late = late.max(Nanos(at));
                RecordedRequest { at: late, offset: moved(request.offset), ..*request }
            })
            .collect();
        let duration = Nanos(late.0.next_multiple_of(INTERVAL.0).max(2 * INTERVAL.0));
        let chunk = TierTable::new("flash", Bytes::ZERO).chunk().get();
        let volume_bytes = zones.len() as u64 * ZONE;
        let touched: BTreeSet<u64> =
            requests.iter().flat_map(|request| request.offset / chunk..=(end(request) - 1) / chunk).collect();
        let size = Bytes((touched.len() as u64 / 10).max(64) * chunk);
        let tier = TierTable { writes: TierWrites::Home, ..TierTable::new("flash", size) };
        let block = block_of(&requests);
        Bench { kind: LoadKind::Recorded, seed, duration, requests, volume_bytes, block, tier }
    }

    /// The same with another tier.
    #[must_use]
    pub fn with_size(&self, size: Bytes) -> Bench {
        Bench { tier: TierTable { size, ..self.tier.clone() }, ..self.clone() }
    }

    /// The same with a tier that does so with writes; as on the slides, their chunks' home is the tier unless set.
    #[must_use]
    pub fn with_writes(&self, writes: TierWrites) -> Bench {
        Bench { tier: TierTable { writes, ..self.tier.clone() }, ..self.clone() }
    }

    /// Which load.
    pub fn kind(&self) -> LoadKind {
        self.kind
    }

    /// The size of the tier.
    pub fn size(&self) -> Bytes {
        self.tier.size
    }

    /// The array's cache: that of the phases is small, so that what comes back after a second has to be read again.
    fn array_cache(&self) -> Bytes {
        match self.kind {
            LoadKind::Spc1 | LoadKind::Lun1 | LoadKind::Tpcc => Bytes::mib(64),
            LoadKind::Noisy
            | LoadKind::Moving
            | LoadKind::Phases
            | LoadKind::FarPhases
            | LoadKind::Recorded => Bytes::mib(16),
        }
    }

    fn measure_from(&self) -> Nanos {
        match self.kind {
            LoadKind::Phases | LoadKind::FarPhases => Nanos(PHASE.0 * 2).min(Nanos(self.duration.0 / 2)),
            _ => Nanos(self.duration.0 / 2),
        }
    }

    /// Runs it under an admission, or without a tier.
    ///
    /// # Errors
    /// [`RunError`] where the load does not fit the devices.
    pub fn run(&self, admission: Option<Admission>) -> Result<RunRow, RunError> {
        let tier = admission.map(|admission| TierTable { admission, ..self.tier.clone() });
        let used = admission.map(|_| TierUse { from: Nanos::ZERO, until: None });
        let volumes = vec![VolumeTable {
            tier: used,
            block_size: Some(self.block),
            ..volume("lun1", self.volume_bytes, vec![recorded(Nanos::ZERO)])
        }];
        let run = (self.seed, self.duration, self.measure_from());
        let scenario = scenario(self.kind.name(), (12, self.array_cache()), tier, volumes, run);
        let traces = Traces::from([((0, 0), self.requests.clone())]);
        Ok(self.row(admission, &Simulation::new(&scenario, &traces, None)?.run()))
    }

    /// In which of the phases that take turns an instant of the measured part is, 0 or 1, by the middle of the interval that ends then; none where there are none.
    pub fn phase_at(&self, end_s: f64) -> Option<usize> {
        let phased = matches!(self.kind, LoadKind::Phases | LoadKind::FarPhases);
        let (end, interval) = (end_s, INTERVAL.as_secs_f64());
        if !phased || end <= self.measure_from().as_secs_f64() {
            return None;
        }
        Some(((end - interval / 2.0) / PHASE.as_secs_f64()) as usize % 2)
    }

    fn row(&self, admission: Option<Admission>, outcome: &Outcome) -> RunRow {
        let volume = &outcome.volumes[0];
        let tier = outcome.tier.as_ref();
        let rows = |at: usize| tier.map(|tier| tier.intervals[at]);
        let series = volume.intervals.iter().enumerate().map(|(at, row)| SeriesRow {
            at_s: row.at_s,
            mean_ms: row.latency.mean_ms,
            threshold: rows(at).and_then(|row| row.threshold),
            read_hits: rows(at).map_or(0.0, |row| row.totals.read_hit_ratio()),
        });
        let sum = |of: &dyn Fn(&crate::tier::TierTotals) -> u64| {
            tier.map_or(0, |tier| tier.intervals.iter().map(|row| of(&row.totals)).sum())
        };
        let totals = tier.map(|tier| tier.totals).unwrap_or_default();
        // One that is too long to be told is no short one.
        let p99 = |latency: &LatencySummary| latency.p99_ms.or((latency.count > 0).then_some(f64::INFINITY));
        let filling: Vec<f64> =
            volume.intervals.iter().take(12).filter_map(|row| p99(&row.latency)).collect();
        RunRow {
            admission: admission.map(|admission| admission.to_string()),
            tier_bytes: admission.map_or(0, |_| self.tier.size.get()),
            mean_ms: volume.totals.latency.mean_ms.unwrap_or(0.0),
            p99_ms: p99(&volume.totals.latency).unwrap_or(0.0),
            p99_filling_ms: filling.iter().sum::<f64>() / filling.len().max(1) as f64,
            iops: volume.totals.iops,
            read_hits: totals.read_hit_ratio(),
            write_hits: totals.write_hits as f64 / totals.writes.max(1) as f64,
            migrated_bytes: sum(&|totals| totals.promoted_bytes + totals.demoted_bytes),
            promoted_bytes: sum(&|totals| totals.promoted_bytes),
            flash_bytes: sum(&|totals| totals.flash_bytes()),
            shed: volume.totals.shed,
            series: series.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sequential run of writes of 64 KiB from this sector on: twenty times 60 of them, 50 us apart, every second.
    fn run_from(sector: u64) -> Vec<RecordedRequest> {
        let write = |number: u64| RecordedRequest {
            at: Nanos::millis(1_000 * (number / 60)) + Nanos::micros(50 * (number % 60)),
            offset: sector * SECTOR.get() + number * (64 << 10),
            length: 64 << 10,
            writes: true,
        };
        (0..1_200).map(write).collect()
    }

    #[test]
    fn writes_that_share_no_byte_do_not_wait_for_each_other() {
        let mean_ms = |sector| Bench::recorded(&run_from(sector), 60.0, 1).run(None).unwrap().mean_ms;
        let (aligned, odd) = (mean_ms(0), mean_ms(63));
        // The array's cache takes each in 200 us. One after the other, the last of 60 would have waited for 59 x (200 - 50) us.
        assert!((0.2..0.21).contains(&aligned), "{aligned}");
        assert!((0.2..0.21).contains(&odd), "{odd}");
    }

    #[test]
    fn a_block_is_what_all_requests_begin_and_end_at() {
        let request = |offset, length| RecordedRequest { at: Nanos::ZERO, offset, length, writes: true };
        for (requests, block) in [
            (vec![request(0, 8 << 10), request(64 << 10, 4 << 10)], 4 << 10),
            (vec![request(0, 8 << 10), request(63 * 512, 4 << 10)], 512),
            (vec![request(2 << 10, 6 << 10)], 2 << 10),
            (vec![request(0, 100)], 512),
        ] {
            assert_eq!(block_of(&requests), Bytes(block), "{requests:?}");
        }
    }
}
