//! What a workload is like, in one pass and bounded memory: mix, sizes, runs, arrivals and their burstiness, rates and periods,
//! working set over time, popularity, reuse, and where on the volumes it all happened.
//!
//! It is a description for people, not a model: nothing is generated from it (see [`crate::model`]), and it holds no curve of
//! hit ratios (see `locality`). Requests come in order of time as far as their recorder kept it; a time that steps back counts as
//! the latest before.
//!
//! Memory: about 4 MiB, and 0.3 MiB for each of the first [`heat::VOLUMES_MAX`] volumes, whatever the trace's length. What is sampled
//! says so, with its rate.

pub mod burst;
pub mod heat;
pub mod period;
pub mod popularity;
mod rates;
mod runs;
mod sizes;

pub use burst::{Burstiness, Dispersion};
pub use heat::HeatMap;
pub use period::Periodicity;
pub use popularity::{Popularity, Reuse, ZipfFit};
pub use rates::{Peak, RateBin};
pub use runs::Runs;
pub use sizes::{SizeShare, Sizes};

use crate::LatencyHistogram;
use burst::BurstCounter;
use forebay_trace::{Operation, Request, TimeSpan, block_key, split_into_blocks};
use forebay_units::{BlockIndex, BlockSize, Nanos, mix64};
use popularity::PopularityCounter;
use rates::RateCounter;
use runs::RunCounter;
use serde::Serialize;
use sizes::SizeCounter;

/// Blocks of a request beyond this many (64 MiB of 4 KiB) count as requests and bytes, but not towards the working set, popularity
/// and reuse (ours): one discard of a device must not cost hours.
pub const BLOCKS_MAX: u64 = 1 << 14;

/// What a workload is like. Numbers that the trace does not tell are `None`, never 0.
#[derive(Clone, Debug, Serialize)]
pub struct Profile {
    /// Requests of any kind.
    pub requests: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Operations without a name.
    pub other: u64,
    /// Bytes of all reads.
    pub bytes_read: u64,
    /// Bytes of all writes.
    pub bytes_written: u64,
    /// Volumes with a request.
    pub volumes: u64,
    /// Whose requests they were; `None` where no thread is known.
    pub threads: Option<Threads>,
    /// From the smallest to the largest time, in seconds; `None` where there are no times.
    pub span_s: Option<f64>,
    /// Times that lie before an earlier one.
    pub steps_back: u64,
    /// Whether all times are whole seconds apart: nothing is known of gaps and bursts within a second.
    pub whole_seconds: bool,
    /// Sizes of reads.
    pub read_sizes: Sizes,
    /// Sizes of writes.
    pub write_sizes: Sizes,
    /// Randomness and sequential runs of reads and writes together.
    pub runs: Runs,
    /// Gaps between one request and the next.
    pub gaps: Option<Gaps>,
    /// How bursty arrivals are, by scale.
    pub burstiness: Option<Burstiness>,
    /// Requests and bytes over time.
    pub rates: Vec<RateBin>,
    /// Busiest windows against the average.
    pub peaks: Vec<Peak>,
    /// Whether load comes and goes with the hour and the day.
    pub periods: Vec<Periodicity>,
    /// Size of a block in bytes, for what follows.
    pub block_bytes: u64,
    /// Working set over time.
    pub working_sets: Vec<WorkingSetBin>,
    /// Distinct blocks of the whole trace: exact up to [`popularity::SAMPLES_MAX`], then to about half a per cent (one standard error).
    pub footprint_blocks: u64,
    /// How accesses are spread over blocks.
    pub popularity: Option<Popularity>,
    /// How soon blocks are accessed again.
    pub reuse: Option<Reuse>,
    /// Requests with more blocks than [`BLOCKS_MAX`], whose other blocks were left out of the last four.
    pub long_requests: u64,
    /// Where on each volume requests went, over time; of the first volumes only.
    pub heat: Vec<HeatMap>,
}

/// Whose requests they were.
#[derive(Clone, Debug, Serialize)]
pub struct Threads {
    /// Threads with a request.
    pub count: u64,
    /// The share of requests whose thread is known.
    pub known_share: f64,
    /// The shares of the busiest threads, at most [`THREADS_TOLD`] of them, in all requests.
    pub weights: Vec<f64>,
}

/// Threads whose weights a profile tells.
pub const THREADS_TOLD: usize = 16;

/// Gaps between the arrivals of requests.
#[derive(Clone, Debug, Serialize)]
pub struct Gaps {
    /// The mean, in seconds.
    pub mean_s: f64,
    /// Squared coefficient of variation: 1 for a Poisson process, 0 for a metronome.
    pub squared_cv: f64,
    /// Percentiles (per cent, seconds), to 1 %; what is shorter than a microsecond is one, and what is longer than 100 s is that.
    pub percentiles: Vec<(f64, f64)>,
}

/// A stretch of time and the distinct blocks accessed in it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct WorkingSetBin {
    /// Since the first request, in seconds.
    pub from_s: f64,
    /// Distinct blocks in this stretch, estimated to about 2.3 %.
    pub blocks: u64,
    /// Distinct blocks from the start to the end of this stretch, estimated likewise.
    pub footprint_blocks: u64,
}

/// Percentiles of gaps that a profile tells.
const GAP_PERCENTILES: [f64; 7] = [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 99.0];

/// Collects a [`Profile`].
pub struct Profiler {
    has_time: bool,
    block_size: BlockSize,
    counts: [u64; 5],
    bytes: [u64; 2],
    first: Option<Nanos>,
    span: TimeSpan,
    early_by: Nanos,
    latest: Nanos,
    steps_back: u64,
    whole_seconds: bool,
    sizes: [SizeCounter; 2],
    runs: RunCounter,
    gaps: LatencyHistogram,
    gap_squares: f64,
    burst: BurstCounter,
    rates: RateCounter,
    popularity: PopularityCounter,
    long_requests: u64,
    heat: Vec<heat::HeatCounter>,
    /// Requests by volume.
    volumes: Vec<u64>,
    /// Requests by number of the thread; the first one is of those whose thread is not known.
    threads: Vec<u64>,
}

impl Profiler {
    /// For a trace that counts working sets in blocks of `block_size`, and whose times mean something if it `has_time`.
    pub fn new(block_size: BlockSize, has_time: bool) -> Profiler {
        Profiler {
            has_time,
            block_size,
            counts: [0; 5],
            bytes: [0; 2],
            first: None,
            span: TimeSpan::default(),
            early_by: Nanos::ZERO,
            latest: Nanos::ZERO,
            steps_back: 0,
            whole_seconds: true,
            sizes: [SizeCounter::default(), SizeCounter::default()],
            runs: RunCounter::default(),
            gaps: LatencyHistogram::new(),
            gap_squares: 0.0,
            burst: BurstCounter::new(),
            rates: RateCounter::new(),
            popularity: PopularityCounter::new(),
            long_requests: 0,
            heat: Vec::new(),
            volumes: Vec::new(),
            threads: Vec::new(),
        }
    }

    /// Counts `requests`. About 0.2 us a request, and 20 ns for each block.
    pub fn add(&mut self, requests: &[Request]) {
        for request in requests {
            self.add_one(request);
        }
    }

    fn add_one(&mut self, request: &Request) {
        self.counts[request.operation as usize] += 1;
        let index = request.volume.0 as usize;
        if self.volumes.len() <= index {
            self.volumes.resize(index + 1, 0);
        }
        self.volumes[index] += 1;
        let thread = usize::from(request.thread.0);
        if self.threads.len() <= thread {
            self.threads.resize(thread + 1, 0);
        }
        self.threads[thread] += 1;
        let since_start = self.arrive(request.time);
        let kind = match request.operation {
            Operation::Read => 0,
            Operation::Write => 1,
            _ => return self.rates.add(since_start, 2, 0),
        };
        self.bytes[kind] = self.bytes[kind].saturating_add(request.length);
        self.rates.add(since_start, kind, request.length);
        self.sizes[kind].add(request.length);
        if request.length == 0 {
            return;
        }
        self.runs.add(request);
        if index < heat::VOLUMES_MAX {
            while self.heat.len() <= index {
                self.heat.push(heat::HeatCounter::new());
            }
            self.heat[index].add(since_start, request.offset);
        }
        let blocks = split_into_blocks(request, self.block_size);
        self.long_requests += u64::from(blocks.end - blocks.first > BLOCKS_MAX);
        for block in blocks.first..blocks.end.min(blocks.first + BLOCKS_MAX) {
            let hash = mix64(block_key(request.volume, BlockIndex(block)));
            self.rates.touch(hash);
            self.popularity.access(hash, since_start);
        }
    }

    /// Notes the time of a request; the time since the first one.
    fn arrive(&mut self, time: Nanos) -> Nanos {
        if !self.has_time {
            return Nanos::ZERO;
        }
        let Some(first) = self.first else {
            self.first = Some(time);
            self.latest = time;
            self.span.add(time);
            self.burst.arrive(Nanos::ZERO);
            return Nanos::ZERO;
        };
        self.steps_back += u64::from(time < self.latest);
        let gap = time.saturating_since(self.latest);
        self.gaps.record(gap);
        self.gap_squares += gap.as_secs_f64() * gap.as_secs_f64();
        self.whole_seconds &= time.0.abs_diff(first.0).is_multiple_of(1_000_000_000);
        self.span.add(time);
        self.latest = self.latest.max(time);
        let since_start = self.latest.saturating_since(first);
        self.burst.arrive(since_start);
        since_start
    }

    /// The trace's smallest time was so long before its zero, at which it stands ([`forebay_trace::TraceReader::early_by`]). Only the span knows.
    #[must_use]
    pub fn with_early_by(self, early_by: Nanos) -> Profiler {
        Profiler { early_by, ..self }
    }

    /// What was counted.
    pub fn finish(self) -> Profile {
        let timed = self.span.length(Nanos::ZERO).filter(|span| *span > Nanos::ZERO);
        let [reads, writes, flushes, discards, other] = self.counts;
        let [read_sizes, write_sizes] = self.sizes.map(SizeCounter::finish);
        let requests = self.counts.iter().sum();
        let footprint_blocks = self.popularity.blocks();
        let (popularity, reuse) = self.popularity.finish();
        let rates = self.rates.finish(timed);
        Profile {
            requests,
            reads,
            writes,
            flushes,
            discards,
            other,
            bytes_read: self.bytes[0],
            bytes_written: self.bytes[1],
            volumes: self.volumes.iter().filter(|count| **count > 0).count() as u64,
            threads: threads(&self.threads),
            span_s: self.span.length(self.early_by).map(Nanos::as_secs_f64),
            steps_back: self.steps_back,
            whole_seconds: timed.is_some() && self.whole_seconds,
            read_sizes,
            write_sizes,
            runs: self.runs.finish(),
            gaps: timed.and_then(|_| gaps(&self.gaps, self.gap_squares)),
            burstiness: timed.and_then(|_| self.burst.finish()),
            periods: timed.map_or(Vec::new(), |_| period::find(&rates.requests, rates.bin_s)),
            rates: rates.bins,
            peaks: rates.peaks,
            block_bytes: self.block_size.bytes(),
            working_sets: rates.working_sets,
            footprint_blocks,
            popularity,
            // Without times nothing tells when a block was used again.
            reuse: reuse.map(|reuse| if timed.is_some() { reuse } else { reuse.without_times() }),
            long_requests: self.long_requests,
            heat: self.heat.into_iter().enumerate().filter_map(|(index, heat)| heat.finish(index)).collect(),
        }
    }
}

fn threads(counts: &[u64]) -> Option<Threads> {
    let requests = counts.iter().sum::<u64>() as f64;
    let mut known: Vec<u64> = counts.iter().skip(1).copied().filter(|&count| count > 0).collect();
    known.sort_unstable_by(|a, b| b.cmp(a));
    (!known.is_empty()).then(|| Threads {
        count: known.len() as u64,
        known_share: known.iter().sum::<u64>() as f64 / requests,
        weights: known.iter().take(THREADS_TOLD).map(|&count| count as f64 / requests).collect(),
    })
}

fn gaps(histogram: &LatencyHistogram, squares: f64) -> Option<Gaps> {
    let count = histogram.count() as f64;
    let mean_s = histogram.sum_ns() as f64 / 1e9 / count;
    let percentile = |percentile| Some((percentile, histogram.percentile(percentile)?.as_secs_f64()));
    (mean_s > 0.0).then(|| Gaps {
        mean_s,
        squared_cv: (squares / count / (mean_s * mean_s) - 1.0).max(0.0),
        percentiles: GAP_PERCENTILES.into_iter().filter_map(percentile).collect(),
    })
}

#[cfg(test)]
mod tests;
