//! Comparing two traces: the validation table of DCIO (table I), and what it leaves out.
//!
//! A trace is measured in two passes: [`Measured`] counts what needs no device, [`LatencyTrial`] plays the trace on a simulated group of
//! disks, which has to know first how large the volumes are. [`compare`] sets two measured traces side by side.
//!
//! Bounds are the paper's figures for Messenger, but for IOPS (1 %) and the hit ratio curve (0.02), which are ours.

use foldhash::fast::FixedState;
use forebay_devmodel::{
    DiskCompletion, DiskGroup, DiskGroupParameters, DiskParameters, DiskRequest, DiskRequestId,
    DiskRequestKind, ParameterError, Ssd, SsdParameters,
};
use forebay_locality::{CurveBuilder, CurveOptions, MissRatioCurve};
use forebay_trace::{Operation, Request};
use forebay_units::{ByteRange, Nanos};
use hashbrown::HashMap;
use serde::Serialize;
use std::collections::BTreeMap;

/// Fewest requests, and shortest span in seconds, of an original whose rows are judged; others are reported.
pub const JUDGED: (u64, f64) = (100_000, 600.0);

/// Zones by which addresses are compared.
const ZONE_BYTES: u64 = 1 << 20;
/// Sizes at which hit ratio curves are compared, on either scale.
const CURVE_SIZES: u64 = 128;

/// How often something occurs.
type Counts<K> = HashMap<K, u64, FixedState>;

/// What a trace is like, but for its latency on a device.
#[derive(Debug)]
pub struct Measured {
    /// Requests.
    pub requests: u64,
    /// Requests that read.
    pub reads: u64,
    /// Requests that write.
    pub writes: u64,
    /// From the first to the last request.
    pub span: Nanos,
    /// Requests that do not start where the one before them in their volume ended.
    pub random: u64,
    sizes: Counts<u64>,
    /// By volume: requests, and where the last one ended.
    pub volumes: Vec<(u64, u64)>,
    /// Requests by the number of their thread, the first one for those of none that is known.
    pub threads: Vec<u64>,
    /// Inter-arrival times by their bucket.
    gaps: Vec<u64>,
    zones: Counts<(u32, u64)>,
    first: Option<Nanos>,
    last: Nanos,
    ends: Vec<u64>,
    builder: Option<CurveBuilder>,
    curve: MissRatioCurve,
    footprint: u64,
}

impl Default for Measured {
    fn default() -> Measured {
        Measured::new()
    }
}

impl Measured {
    /// Nothing seen yet, and no curve is found: it is that of no requests.
    pub fn without_curve() -> Measured {
        Measured { builder: None, ..Measured::new() }
    }

    /// Nothing seen yet. Memory grows with the distinct blocks (about 40 bytes each), not with the length.
    pub fn new() -> Measured {
        Measured {
            requests: 0,
            reads: 0,
            writes: 0,
            span: Nanos::ZERO,
            random: 0,
            sizes: Counts::default(),
            volumes: Vec::new(),
            threads: Vec::new(),
            gaps: Vec::new(),
            zones: Counts::default(),
            first: None,
            last: Nanos::ZERO,
            ends: Vec::new(),
            builder: Some(CurveBuilder::new(CurveOptions::default())),
            curve: MissRatioCurve::new(Vec::new()),
            footprint: 0,
        }
    }

    /// The next requests; a time that steps back counts as the one before.
    pub fn requests(&mut self, requests: &[Request]) {
        for request in requests {
            self.request(request);
        }
    }

    fn request(&mut self, request: &Request) {
        self.requests += 1;
        match request.operation {
            Operation::Read => self.reads += 1,
            Operation::Write => self.writes += 1,
            _ => {}
        }
        match self.first {
            None => (self.first, self.last) = (Some(request.time), request.time),
            Some(_) => {
                let gap = request.time.saturating_since(self.last).0;
                let bucket = gap_bucket(gap) as usize;
                if bucket >= self.gaps.len() {
                    self.gaps.resize(bucket + 1, 0);
                }
                self.gaps[bucket] += 1;
                self.last = self.last.max(request.time);
            }
        }
        let volume = request.volume.0 as usize;
        if volume >= self.volumes.len() {
            self.volumes.resize(volume + 1, (0, 0));
            self.ends.resize(volume + 1, u64::MAX);
        }
        let thread = usize::from(request.thread.0);
        if thread >= self.threads.len() {
            self.threads.resize(thread + 1, 0);
        }
        self.threads[thread] += 1;
        let end = request.offset + request.length;
        let (count, bytes) = &mut self.volumes[volume];
        *count += 1;
        *bytes = (*bytes).max(end);
        *self.sizes.entry(request.length).or_default() += 1;
        if request.length == 0 {
            return;
        }
        self.random += u64::from(std::mem::replace(&mut self.ends[volume], end) != request.offset);
        *self.zones.entry((request.volume.0, request.offset / ZONE_BYTES)).or_default() += 1;
        if let Some(builder) = &mut self.builder {
            access(builder, request);
        }
    }

    /// Must be called when all requests were given.
    pub fn finish(&mut self) {
        self.span = self.last.saturating_since(self.first.unwrap_or_default());
        if let Some(builder) = self.builder.take() {
            self.finish_curve(builder);
        }
    }

    /// Finds the curve of what was measured without one; `requests` are all of it.
    pub(crate) fn find_curve(&mut self, options: CurveOptions, requests: &[Request]) {
        let mut builder = CurveBuilder::new(options);
        requests
            .iter()
            .filter(|request| request.length > 0)
            .for_each(|request| access(&mut builder, request));
        self.finish_curve(builder);
    }

    fn finish_curve(&mut self, builder: CurveBuilder) {
        let result = builder.finish();
        self.footprint = result.footprint_blocks();
        self.curve = result.curve();
    }

    /// Requests per second; `None` without times.
    pub fn iops(&self) -> Option<f64> {
        (self.span > Nanos::ZERO).then(|| self.requests as f64 / self.span.as_secs_f64())
    }

    /// The LRU miss ratio curve of all requests but discards, in blocks of 4 KiB.
    pub fn curve(&self) -> &MissRatioCurve {
        &self.curve
    }

    /// Distinct blocks of 4 KiB, but for those that were only discarded.
    pub fn footprint_blocks(&self) -> u64 {
        self.footprint
    }

    /// Volumes by their number of requests, the busiest first.
    fn ranks(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.volumes.len()).collect();
        order.sort_by_key(|&volume| (std::cmp::Reverse(self.volumes[volume].0), volume));
        order
    }

    /// Whether any request has a thread that is known.
    fn has_threads(&self) -> bool {
        self.threads.iter().skip(1).any(|&count| count > 0)
    }

    /// Shares of the requests: of those without a known thread, and then by thread, the busiest first; or, without `threads`, by volume.
    fn weights(&self, threads: bool) -> Vec<f64> {
        let (unknown, mut counts) = match threads {
            true => (self.threads.first().copied(), self.threads.iter().skip(1).copied().collect()),
            false => (None, self.volumes.iter().map(|&(count, _)| count).collect::<Vec<u64>>()),
        };
        counts.retain(|&count| count > 0);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        unknown.into_iter().chain(counts).map(|count| self.share(count)).collect()
    }

    /// Requests by the rank of their volume and zone.
    fn zones_by_rank(&self) -> BTreeMap<(u32, u64), u64> {
        let mut rank_of = vec![0u32; self.volumes.len()];
        (0u32..).zip(self.ranks()).for_each(|(rank, volume)| rank_of[volume] = rank);
        self.zones.iter().map(|(&(volume, zone), &count)| ((rank_of[volume as usize], zone), count)).collect()
    }

    fn share(&self, part: u64) -> f64 {
        part as f64 / self.requests.max(1) as f64
    }
}

/// A discard brings nothing into a cache, and may be as long as the volume.
fn access(builder: &mut CurveBuilder, request: &Request) {
    if request.operation != Operation::Discard {
        builder.request(request.volume.0, request.range(), request.operation == Operation::Read);
    }
}

/// Sixteen buckets per doubling of nanoseconds.
fn gap_bucket(ns: u64) -> u32 {
    match ns {
        0..16 => ns as u32,
        _ => (ns.ilog2() - 3) * 16 + ((ns >> (ns.ilog2() - 4)) & 15) as u32,
    }
}

/// How volumes lie on the simulated device: one behind the other, the busiest first, each as large as either trace needs.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceLayout {
    /// By rank: first byte on the device.
    starts: Vec<u64>,
    capacity: u64,
}

impl DeviceLayout {
    /// The layout for some traces, whose volumes are told apart by how busy they are.
    pub fn of(traces: &[&Measured]) -> DeviceLayout {
        let ranks: Vec<Vec<usize>> = traces.iter().map(|trace| trace.ranks()).collect();
        let volumes = ranks.iter().map(Vec::len).max().unwrap_or(0);
        let (mut starts, mut at) = (Vec::new(), 0u64);
        for rank in 0..volumes {
            starts.push(at);
            let of = |(trace, order): (&&Measured, &Vec<usize>)| {
                order.get(rank).map_or(0, |&volume| trace.volumes[volume].1)
            };
            let bytes = traces.iter().zip(&ranks).map(of).max().unwrap_or(0);
            at = at.saturating_add(bytes.checked_next_multiple_of(1 << 20).unwrap_or(u64::MAX));
        }
        DeviceLayout { starts, capacity: DeviceLayout::whole(at) }
    }

    /// The same volumes on a device of `bytes`, rounded up to MiB and to at least one; what lies beyond wraps around.
    pub fn on(self, bytes: u64) -> DeviceLayout {
        DeviceLayout { capacity: DeviceLayout::whole(bytes), ..self }
    }

    /// The nearest size above that a device can have.
    fn whole(bytes: u64) -> u64 {
        bytes.clamp(1 << 20, 1 << 62).next_multiple_of(1 << 20)
    }

    /// Whether a trace has the same latencies on `device` with another layout: those on flash do not depend on how large the volumes are, but for where the next one begins.
    pub(crate) fn is_alike_on(&self, device: Device, other: &DeviceLayout) -> bool {
        self.starts == other.starts && (device == Device::Flash || self.capacity == other.capacity)
    }

    /// Bytes of the device.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity
    }

    /// Where the volumes of `trace` start, in the order of their numbers.
    pub fn starts_of(&self, trace: &Measured) -> Vec<u64> {
        let mut starts = vec![0; trace.volumes.len()];
        for (rank, volume) in trace.ranks().into_iter().enumerate() {
            starts[volume] = self.starts[rank];
        }
        starts
    }
}

/// A simulated device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// A striped group of ten disks of 7,200 rpm, first in first out: the paper's server had ten disk partitions. Latencies are about
    /// where requests go: seeks, turns, and who waits for whom on one disk.
    Disks,
    /// A solid-state disk. Latencies are about when requests come, how large they are and what they do.
    Flash,
}

/// Spindles of [`Device::Disks`].
const SPINDLES: u32 = 10;

#[derive(Debug)]
enum Simulated {
    Disks(Box<DiskGroup>),
    Flash(Box<Ssd>),
}

impl Simulated {
    fn next_event(&self) -> Option<Nanos> {
        match self {
            Simulated::Disks(group) => group.next_event(),
            Simulated::Flash(ssd) => ssd.next_event(),
        }
    }

    fn advance(&mut self, now: Nanos, completions: &mut Vec<DiskCompletion>) {
        match self {
            Simulated::Disks(group) => group.advance(now, completions),
            Simulated::Flash(ssd) => ssd.advance(now, completions),
        }
    }

    fn submit(&mut self, now: Nanos, request: DiskRequest) -> bool {
        match self {
            Simulated::Disks(group) => group.submit(now, request).is_ok(),
            Simulated::Flash(ssd) => ssd.submit(now, request).is_ok(),
        }
    }
}

/// Requests that wait at most; beyond, they are dropped.
const OUTSTANDING_MAX: usize = 1 << 24;
/// Bytes of the simulated flash: addresses beyond it wrap, as its latency does not depend on them.
const FLASH_BYTES: u64 = 64 << 30;

/// Plays a trace on a simulated device, open loop: requests arrive at their times, whatever waits.
#[derive(Debug)]
pub struct LatencyTrial {
    device: Simulated,
    starts: Vec<u64>,
    capacity: u64,
    now: Nanos,
    arrivals: std::collections::VecDeque<Nanos>,
    /// The id of the first of `arrivals`.
    oldest: u64,
    completions: Vec<DiskCompletion>,
    sum_ns: u128,
    completed: u64,
}

impl LatencyTrial {
    /// A trial of `trace` on a device with volumes as in `layout`.
    ///
    /// # Errors
    /// What the device says to its parameters.
    pub fn new(
        device: Device,
        layout: &DeviceLayout,
        trace: &Measured,
    ) -> Result<LatencyTrial, ParameterError> {
        let (device, capacity) = match device {
            Device::Disks => {
                let each = layout.capacity.div_ceil(u64::from(SPINDLES)).next_multiple_of(1 << 20);
                let mut parameters = DiskGroupParameters::striped(SPINDLES, DiskParameters::rpm_7200(each));
                parameters.outstanding_max = OUTSTANDING_MAX;
                (Simulated::Disks(Box::new(DiskGroup::new(parameters)?)), layout.capacity)
            }
            Device::Flash => {
                let mut parameters = SsdParameters::typical(FLASH_BYTES);
                parameters.outstanding_max = OUTSTANDING_MAX;
                (Simulated::Flash(Box::new(Ssd::new(parameters)?)), FLASH_BYTES)
            }
        };
        Ok(LatencyTrial {
            device,
            starts: layout.starts_of(trace),
            capacity,
            now: Nanos::ZERO,
            arrivals: std::collections::VecDeque::new(),
            oldest: 0,
            completions: Vec::new(),
            sum_ns: 0,
            completed: 0,
        })
    }

    /// The next requests. Those without bytes, and what is neither read nor written, do not reach the device.
    pub fn requests(&mut self, requests: &[Request]) {
        for request in requests {
            self.now = self.now.max(request.time);
            self.advance(self.now);
            let kind = match request.operation {
                Operation::Write => DiskRequestKind::Write,
                Operation::Read => DiskRequestKind::Read,
                _ => continue,
            };
            let start = self.starts.get(request.volume.0 as usize).copied().unwrap_or(0);
            let offset = start.saturating_add(request.offset) % self.capacity;
            let length = request.length.min(self.capacity - offset);
            if length == 0 {
                continue;
            }
            let id = DiskRequestId(self.oldest + self.arrivals.len() as u64);
            if self.device.submit(self.now, DiskRequest { id, kind, range: ByteRange::new(offset, length) }) {
                self.arrivals.push_back(self.now);
            }
        }
    }

    fn advance(&mut self, until: Nanos) {
        while self.device.next_event().is_some_and(|at| at <= until) {
            let at = self.device.next_event().expect("there was one");
            self.device.advance(at, &mut self.completions);
            for completion in self.completions.drain(..) {
                let arrival = self.arrivals[(completion.id.0 - self.oldest) as usize];
                self.sum_ns += u128::from(completion.at.saturating_since(arrival).0);
                self.completed += 1;
                self.arrivals[(completion.id.0 - self.oldest) as usize] = Nanos::MAX;
            }
            while self.arrivals.front() == Some(&Nanos::MAX) {
                self.arrivals.pop_front();
                self.oldest += 1;
            }
        }
    }

    /// The mean latency, everything completed; `None` where nothing reached the device.
    pub fn finish(mut self) -> Option<Nanos> {
        self.advance(Nanos::MAX);
        (self.completed > 0).then(|| Nanos((self.sum_ns / u128::from(self.completed)) as u64))
    }
}

/// What a row comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Within its bound.
    Within,
    /// Beyond it.
    Beyond,
    /// It has no bound, or the trace is too short to be judged, or has nothing to compare.
    NotJudged,
}

/// A row of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// A short name that does not change.
    pub metric: &'static str,
    /// The original's value, as text.
    pub original: String,
    /// The synthetic trace's.
    pub synthetic: String,
    /// How far apart they are, in the unit below; `None` where one of them has no value.
    pub deviation: Option<f64>,
    /// `%` of the original's value, `points` (of a percentage), or `` for a distance from 0 to 1.
    pub unit: &'static str,
    /// What the deviation is.
    pub measure: &'static str,
    /// The most that is good.
    pub bound: Option<f64>,
    /// Whether it is.
    pub verdict: Verdict,
}

/// Two traces side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Whether the original is long enough for its rows to be judged.
    pub judged: bool,
    /// The rows, the paper's first.
    pub rows: Vec<Row>,
}

impl Comparison {
    /// Whether no judged row is beyond its bound.
    pub fn within(&self) -> bool {
        self.rows.iter().all(|row| row.verdict != Verdict::Beyond)
    }

    /// The deviation of a metric.
    pub fn deviation(&self, metric: &str) -> Option<f64> {
        self.rows.iter().find(|row| row.metric == metric)?.deviation
    }
}

/// Relative deviation in per cent; `None` where the original is 0 and the other is not.
fn relative(original: f64, synthetic: f64) -> Option<f64> {
    if original == 0.0 {
        (synthetic == 0.0).then_some(0.0)
    } else {
        Some((synthetic / original - 1.0) * 100.0)
    }
}

/// The largest difference of two distributions (Kolmogorov and Smirnov), from counts by ascending keys.
fn kolmogorov_smirnov<K: Ord + Copy>(a: &BTreeMap<K, u64>, b: &BTreeMap<K, u64>) -> Option<f64> {
    let total = |of: &BTreeMap<K, u64>| of.values().sum::<u64>() as f64;
    let (total_a, total_b) = (total(a), total(b));
    if total_a == 0.0 || total_b == 0.0 {
        return None;
    }
    let keys: std::collections::BTreeSet<K> = a.keys().chain(b.keys()).copied().collect();
    let (mut sum, mut worst) = (0.0f64, 0.0f64);
    for key in keys {
        sum += a.get(&key).map_or(0.0, |&count| count as f64 / total_a);
        sum -= b.get(&key).map_or(0.0, |&count| count as f64 / total_b);
        worst = worst.max(sum.abs());
    }
    Some(worst)
}

/// The mean absolute difference of two curves over sizes up to `footprint`, evenly spaced and evenly spaced in their logarithm: the
/// larger of the two means.
pub fn curve_error(a: &MissRatioCurve, b: &MissRatioCurve, footprint: u64) -> f64 {
    let footprint = footprint.max(2);
    let linear: Vec<u64> = (1..=CURVE_SIZES).map(|at| (footprint * at / CURVE_SIZES).max(1)).collect();
    let log: Vec<u64> = (1..=CURVE_SIZES)
        .map(|at| (footprint as f64).powf(at as f64 / CURVE_SIZES as f64).round().max(1.0) as u64)
        .collect();
    a.mean_absolute_error(b, &linear).max(a.mean_absolute_error(b, &log))
}

/// Compares two measured traces; `latencies` are those of their trials on disks and on flash, original first.
pub fn compare(original: &Measured, synthetic: &Measured, latencies: [[Option<Nanos>; 2]; 2]) -> Comparison {
    let mut comparison = compare_bounded(original, synthetic, latencies);
    let at = comparison.rows.iter().position(|row| row.metric == "thread-weights").unwrap_or(0);
    comparison.rows.insert(at, mean_size(original, synthetic));
    comparison.rows.extend(distances(original, synthetic));
    comparison
}

/// The rows of [`compare`] that have a bound: the others take longer to tell.
pub(crate) fn compare_bounded(
    original: &Measured,
    synthetic: &Measured,
    latencies: [[Option<Nanos>; 2]; 2],
) -> Comparison {
    let judged = original.requests >= JUDGED.0 && original.span.as_secs_f64() >= JUDGED.1;
    let mut rows = Vec::new();
    let mut push =
        |metric, values: [String; 2], deviation: Option<f64>, unit, measure, bound: Option<f64>| {
            let verdict = match (deviation, bound) {
                (Some(deviation), Some(bound)) if judged => {
                    if deviation.abs() <= bound {
                        Verdict::Within
                    } else {
                        Verdict::Beyond
                    }
                }
                _ => Verdict::NotJudged,
            };
            let [original, synthetic] = values;
            rows.push(Row { metric, original, synthetic, deviation, unit, measure, bound, verdict });
        };
    let both = |of: &dyn Fn(&Measured) -> String| [of(original), of(synthetic)];
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    let points = |of: &dyn Fn(&Measured) -> f64| Some((of(synthetic) - of(original)) * 100.0);

    let reads = |trace: &Measured| trace.reads as f64 / (trace.reads + trace.writes).max(1) as f64;
    let ratio = |trace: &Measured| match (trace.reads, trace.writes) {
        (reads, 0) => format!("{reads}:0"),
        (reads, writes) if reads >= writes => format!("{:.2}:1", reads as f64 / writes as f64),
        (0, writes) => format!("0:{writes}"),
        (reads, writes) => format!("1:{:.2}", writes as f64 / reads as f64),
    };
    push("read-write", both(&ratio), points(&reads), "points", "share of reads", Some(0.5));
    let random = |trace: &Measured| trace.share(trace.random);
    let deviation = relative(random(original), random(synthetic));
    push("random", both(&|trace| percent(random(trace))), deviation, "%", "relative", Some(1.38));

    let mut commonest: Vec<(u64, u64)> = original.sizes.iter().map(|(&size, &count)| (count, size)).collect();
    commonest.sort_unstable_by(|a, b| b.cmp(a));
    commonest.truncate(3);
    let share_of = |trace: &Measured, size: u64| trace.share(trace.sizes.get(&size).copied().unwrap_or(0));
    let sizes = |trace: &Measured| {
        let parts: Vec<String> = commonest
            .iter()
            .map(|&(_, size)| {
                format!("{}({:.1} %)", forebay_units::Bytes(size), share_of(trace, size) * 100.0)
            })
            .collect();
        parts.join(" ")
    };
    let apart: f64 =
        commonest.iter().map(|&(_, size)| (share_of(synthetic, size) - share_of(original, size)).abs()).sum();
    let deviation = Some(apart / commonest.len().max(1) as f64 * 100.0);
    push("sizes", both(&sizes), deviation, "points", "mean over the three commonest", Some(0.33));

    // A volume is a thread where the original records none.
    let of_threads = original.has_threads();
    let weights = [original, synthetic].map(|trace| trace.weights(of_threads));
    let weight = |of: &[f64], rank: usize| of.get(rank).copied().unwrap_or(0.0);
    let apart = (0..weights[0].len().max(weights[1].len()))
        .map(|rank| (weight(&weights[1], rank) - weight(&weights[0], rank)).abs())
        .fold(0.0, f64::max);
    let (first, measure) = match of_threads {
        true => (1, "largest over the threads"),
        false => (0, "largest over the volumes"),
    };
    let shown = |of: &Vec<f64>| -> String {
        let parts: Vec<String> = of.iter().skip(first).take(3).map(|&weight| percent(weight)).collect();
        parts.join(" ")
    };
    let values = [shown(&weights[0]), shown(&weights[1])];
    push("thread-weights", values, Some(apart * 100.0), "points", measure, Some(0.05));

    let gap = |trace: &Measured| {
        (trace.requests > 1).then(|| trace.span.as_millis_f64() / (trace.requests - 1) as f64)
    };
    let timed = original.span > Nanos::ZERO;
    let maybe = |value: Option<f64>, unit: &str| match value {
        Some(value) if timed => format!("{value:.3} {unit}"),
        _ => "-".to_owned(),
    };
    let relative_of = |of: &dyn Fn(&Measured) -> Option<f64>| {
        if timed { relative(of(original)?, of(synthetic)?) } else { None }
    };
    let relative_gap = relative_of(&gap);
    push(
        "inter-arrival",
        both(&|p| maybe(gap(p), "ms")),
        relative_gap,
        "%",
        "relative, of the mean",
        Some(3.1),
    );
    let iops = relative_of(&Measured::iops);
    push("iops", both(&|p| maybe(p.iops(), "/s")), iops, "%", "relative", Some(1.0));
    for (metric, latencies) in ["latency", "latency-flash"].into_iter().zip(latencies) {
        let latency = latencies.map(|latency| latency.map(|latency| latency.as_millis_f64()));
        let deviation = match latency {
            [Some(original), Some(synthetic)] if timed => relative(original, synthetic),
            _ => None,
        };
        let values = latency.map(|latency| maybe(latency, "ms"));
        push(metric, values, deviation, "%", "relative, of the mean", Some(4.8));
    }

    let footprint = original.footprint;
    let error = curve_error(&original.curve, &synthetic.curve, footprint);
    let floor = |trace: &Measured| format!("{} at most", percent(1.0 - trace.curve.floor()));
    push("hit-ratio-curve", both(&floor), Some(error), "", "mean absolute error", Some(0.02));
    Comparison { judged, rows }
}

/// A row without a bound.
fn reported(
    metric: &'static str,
    values: [String; 2],
    deviation: Option<f64>,
    unit: &'static str,
    measure: &'static str,
) -> Row {
    let [original, synthetic] = values;
    Row { metric, original, synthetic, deviation, unit, measure, bound: None, verdict: Verdict::NotJudged }
}

fn mean_size(original: &Measured, synthetic: &Measured) -> Row {
    let bytes = [original, synthetic].map(|trace| {
        trace.sizes.iter().map(|(&size, &count)| size as f64 * count as f64).sum::<f64>()
            / trace.requests.max(1) as f64
    });
    let values = bytes.map(|bytes| format!("{:.2} KiB", bytes / 1024.0));
    reported("mean-size", values, relative(bytes[0], bytes[1]), "%", "relative")
}

/// Distances of distributions.
fn distances(original: &Measured, synthetic: &Measured) -> [Row; 3] {
    let both = [original, synthetic];
    let footprint = original.footprint.max(2);
    let sizes = (0..=CURVE_SIZES).map(|at| (footprint as f64).powf(at as f64 / CURVE_SIZES as f64) as u64);
    let worst = sizes
        .map(|size| (original.curve.miss_ratio_at(size) - synthetic.curve.miss_ratio_at(size)).abs())
        .fold(0.0, f64::max);
    let blocks = both.map(|trace| format!("{} blocks", trace.footprint));
    let zones = both.map(Measured::zones_by_rank);
    let touched = [0, 1].map(|at: usize| format!("{} MiB touched", zones[at].len()));
    let gaps = both.map(|trace| -> BTreeMap<usize, u64> { trace.gaps.iter().copied().enumerate().collect() });
    let distance = match original.span > Nanos::ZERO {
        true => kolmogorov_smirnov(&gaps[0], &gaps[1]),
        false => None,
    };
    const MEASURE: &str = "Kolmogorov-Smirnov";
    [
        reported("reuse-distances", blocks, Some(worst), "", MEASURE),
        reported("addresses", touched, kolmogorov_smirnov(&zones[0], &zones[1]), "", MEASURE),
        reported("inter-arrival-times", [String::new(), String::new()], distance, "", MEASURE),
    ]
}
