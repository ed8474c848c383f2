//! Load and working set over time, in bins that grow with the trace: whenever there are too many, neighbours are merged.

use super::WorkingSetBin;
use forebay_locality::DistinctSketch;
use forebay_units::Nanos;
use serde::Serialize;

/// Bins of the load while it is counted, and bins of the working set (ours).
const BINS_MAX: usize = 1 << 14;
const SKETCHES_MAX: usize = 128;

/// Bins that are told (ours).
const BINS_TOLD: usize = 512;

/// Windows in which the peak is looked for.
const PEAK_WINDOWS: [Nanos; 4] = [Nanos::secs(1), Nanos::secs(10), Nanos::secs(60), Nanos::secs(3600)];

/// The load in a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RateBin {
    /// Since the first request, in seconds.
    pub from_s: f64,
    /// Reads per second.
    pub reads_per_s: f64,
    /// Writes per second.
    pub writes_per_s: f64,
    /// Other requests per second.
    pub other_per_s: f64,
    /// Bytes read per second.
    pub read_bytes_per_s: f64,
    /// Bytes written per second.
    pub written_bytes_per_s: f64,
}

/// The busiest window of a length, against the average. Windows do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Peak {
    /// Length of a window, in seconds.
    pub window_s: f64,
    /// Requests per second in the busiest one.
    pub requests_per_s: f64,
    /// That, over the average of the whole trace.
    pub to_average: f64,
}

#[derive(Clone, Copy, Default)]
struct Bin {
    requests: [u64; 3],
    bytes: [u64; 3],
}

#[derive(Clone, Copy, Default)]
struct PeakWindow {
    at: u64,
    requests: u64,
    most: u64,
}

pub(super) struct RateCounter {
    width: u64,
    bins: Vec<Bin>,
    sketch_width: u64,
    sketches: Vec<DistinctSketch>,
    sketch_at: usize,
    peaks: [PeakWindow; PEAK_WINDOWS.len()],
}

/// What was counted.
pub(super) struct Rates {
    pub(super) bins: Vec<RateBin>,
    pub(super) peaks: Vec<Peak>,
    /// Requests in each whole bin of this length.
    pub(super) requests: Vec<f64>,
    pub(super) bin_s: f64,
    pub(super) working_sets: Vec<WorkingSetBin>,
}

impl RateCounter {
    pub(super) fn new() -> RateCounter {
        RateCounter {
            width: Nanos::secs(1).0,
            bins: vec![Bin::default()],
            sketch_width: Nanos::secs(1).0,
            sketches: vec![DistinctSketch::new()],
            sketch_at: 0,
            peaks: [PeakWindow::default(); PEAK_WINDOWS.len()],
        }
    }

    /// A request of `kind` (0 read, 1 write, 2 other) so long after the first; ascending.
    pub(super) fn add(&mut self, since_start: Nanos, kind: usize, bytes: u64) {
        while since_start.0 / self.width >= BINS_MAX as u64 {
            self.width *= 2;
            self.bins = self.bins.chunks(2).map(|pair| pair.iter().fold(Bin::default(), merged)).collect();
        }
        let at = (since_start.0 / self.width) as usize;
        if at >= self.bins.len() {
            self.bins.resize(at + 1, Bin::default());
        }
        self.bins[at].requests[kind] += 1;
        self.bins[at].bytes[kind] = self.bins[at].bytes[kind].saturating_add(bytes);
        for (peak, window) in self.peaks.iter_mut().zip(PEAK_WINDOWS) {
            let at = since_start.0 / window.0;
            if at != peak.at {
                *peak = PeakWindow { at, requests: 0, most: peak.most };
            }
            peak.requests += 1;
            peak.most = peak.most.max(peak.requests);
        }
        while since_start.0 / self.sketch_width >= SKETCHES_MAX as u64 {
            self.sketch_width *= 2;
            self.sketches = self.sketches.chunks(2).map(union).collect();
        }
        self.sketch_at = (since_start.0 / self.sketch_width) as usize;
        if self.sketch_at >= self.sketches.len() {
            self.sketches.resize_with(self.sketch_at + 1, DistinctSketch::new);
        }
    }

    /// A block with this hash, of the request that was added last.
    #[inline]
    pub(super) fn touch(&mut self, hash: u64) {
        self.sketches[self.sketch_at].add_hash(hash);
    }

    /// What was counted over `span`, if there are times.
    pub(super) fn finish(self, span: Option<Nanos>) -> Rates {
        let bin_s = self.width as f64 / 1e9;
        let Some(span) = span else {
            return Rates {
                bins: Vec::new(),
                peaks: Vec::new(),
                requests: Vec::new(),
                bin_s,
                working_sets: Vec::new(),
            };
        };
        let total: u64 = self.bins.iter().flat_map(|bin| bin.requests).sum();
        let average = total as f64 / span.as_secs_f64();
        let peaks = PEAK_WINDOWS.iter().zip(&self.peaks).filter(|(window, _)| **window <= span);
        let peaks = peaks.map(|(window, peak)| {
            let requests_per_s = peak.most as f64 / window.as_secs_f64();
            Peak { window_s: window.as_secs_f64(), requests_per_s, to_average: requests_per_s / average }
        });
        let together = self.bins.len().div_ceil(BINS_TOLD).max(1);
        let mut starts: Vec<usize> = (0..self.bins.len()).step_by(together).collect();
        // The last stretch ends with the trace. One that is much shorter than the others would show a rate that nobody saw: it is part of
        // the one before.
        let told_s = together as f64 * bin_s;
        if starts.len() > 1 && span.as_secs_f64() - starts[starts.len() - 1] as f64 * bin_s < told_s / 2.0 {
            starts.pop();
        }
        let ends = starts.iter().skip(1).copied().chain([self.bins.len()]);
        let bins = starts.iter().zip(ends).map(|(&start, end)| {
            let (from_s, bins) = (start as f64 * bin_s, &self.bins[start..end]);
            let length_s = (bins.len() as f64 * bin_s).min(span.as_secs_f64() - from_s).max(1e-9);
            let bin = bins.iter().fold(Bin::default(), merged);
            let per_s = |count: u64| count as f64 / length_s;
            RateBin {
                from_s,
                reads_per_s: per_s(bin.requests[0]),
                writes_per_s: per_s(bin.requests[1]),
                other_per_s: per_s(bin.requests[2]),
                read_bytes_per_s: per_s(bin.bytes[0]),
                written_bytes_per_s: per_s(bin.bytes[1]),
            }
        });
        let whole = (span.0 / self.width) as usize;
        let mut footprint = DistinctSketch::new();
        let working_sets = self.sketches.iter().enumerate().map(|(index, sketch)| {
            footprint.merge(sketch);
            WorkingSetBin {
                from_s: index as f64 * self.sketch_width as f64 / 1e9,
                blocks: sketch.estimate(),
                footprint_blocks: footprint.estimate(),
            }
        });
        Rates {
            working_sets: working_sets.collect(),
            bins: bins.collect(),
            peaks: peaks.collect(),
            requests: self
                .bins
                .iter()
                .take(whole)
                .map(|bin| bin.requests.iter().sum::<u64>() as f64)
                .collect(),
            bin_s,
        }
    }
}

fn merged(left: Bin, right: &Bin) -> Bin {
    let add = |a: [u64; 3], b: [u64; 3]| [0, 1, 2].map(|at| a[at].saturating_add(b[at]));
    Bin { requests: add(left.requests, right.requests), bytes: add(left.bytes, right.bytes) }
}

fn union(sketches: &[DistinctSketch]) -> DistinctSketch {
    let mut all = DistinctSketch::new();
    sketches.iter().for_each(|sketch| all.merge(sketch));
    all
}
