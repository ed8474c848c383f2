//! Feeds requests to a curve builder and to working set windows, and takes the results together.

use forebay_locality::{
    CurveBuilder, CurveOptions, Method, MissRatioCurve, Requests, Unit, WorkingSetSummary, WorkingSetWindows,
    resolve_sizes, volume_block_key,
};
use forebay_trace::{Operation, Request};
use forebay_units::{BlockSize, Nanos, SizeSpec};

/// Points of a default curve at most: more cannot be seen, and every consumer interpolates.
const CURVE_POINTS_MAX: usize = 200;

/// The shares of the footprint that the default table shows, in per cent.
const SHARES: [f64; 12] = [0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 75.0, 100.0];

/// What is collected of one stream: all volumes together, or one of them.
pub(super) struct Tracker {
    builder: CurveBuilder,
    options: CurveOptions,
    /// Whether a request counts its bytes at its first block, which no [`Unit`] does.
    request_bytes: bool,
    windows: Vec<(Nanos, WorkingSetWindows)>,
}

/// One point asked for or chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) size_blocks: u64,
    pub(super) miss_ratio: f64,
}

/// What was found of one stream.
pub(super) struct Measurement {
    pub(super) name: String,
    /// Counted accesses, or bytes where they are weighted.
    pub(super) accesses: u64,
    pub(super) footprint_blocks: u64,
    pub(super) working_sets: Vec<(Nanos, WorkingSetSummary)>,
    /// The curve, thinned.
    pub(super) curve: MissRatioCurve,
    /// How far the thinned curve may be from the one that was found, in miss ratio.
    pub(super) curve_error_max: f64,
    /// The sizes asked for, or a selection up to the footprint.
    pub(super) table: Vec<Point>,
}

impl Tracker {
    pub(super) fn new(options: CurveOptions, request_bytes: bool, windows: &[Nanos]) -> Tracker {
        let windows = windows.iter().map(|window| (*window, WorkingSetWindows::tumbling(*window))).collect();
        Tracker { builder: CurveBuilder::new(options), options, request_bytes, windows }
    }

    /// Counts the reads and writes among `requests`.
    pub(super) fn add(&mut self, requests: &[Request]) {
        if self.windows.is_empty() && !self.request_bytes {
            // The common case of large traces; nothing but the builder is in its loop.
            for request in requests {
                match request.operation {
                    Operation::Read => self.builder.request(request.volume.0, request.range(), true),
                    Operation::Write => self.builder.request(request.volume.0, request.range(), false),
                    Operation::Flush | Operation::Discard | Operation::Other => {}
                }
            }
            return;
        }
        for request in requests {
            if matches!(request.operation, Operation::Read | Operation::Write) {
                self.add_one(request, request.volume.0);
            }
        }
    }

    /// Counts `request`, which is a read or a write, in a stream that holds a single volume.
    pub(super) fn add_alone(&mut self, request: &Request) {
        self.add_one(request, 0);
    }

    fn add_one(&mut self, request: &Request, volume: u32) {
        let is_read = request.operation == Operation::Read;
        if !is_read && self.options.requests == Requests::Reads {
            return;
        }
        let mut blocks = request.range().blocks(self.options.block_size);
        if self.request_bytes {
            let counted = is_read || self.options.requests == Requests::All;
            if let Some(first) = blocks.clone().next() {
                let weight = if counted { request.length } else { 0 };
                self.builder.access(volume_block_key(volume, first.0), weight);
            }
        } else {
            self.builder.request(volume, request.range(), is_read);
        }
        if self.options.unit == Unit::Request {
            blocks.end = blocks.end.min(blocks.first + 1);
        }
        for (_, windows) in &mut self.windows {
            for block in blocks {
                windows.access(volume_block_key(volume, block.0), request.time);
            }
        }
    }

    /// The curve at `sizes`, or at sizes of our choice where there are none.
    pub(super) fn finish(self, name: String, sizes: &[SizeSpec], block_size: BlockSize) -> Measurement {
        let result = self.builder.finish();
        let footprint_blocks = result.footprint_blocks();
        let working_sets: Vec<(Nanos, WorkingSetSummary)> =
            self.windows.iter().map(|(window, windows)| (*window, windows.summary())).collect();
        let working_set = |window: Nanos| {
            let found = working_sets.iter().find(|(known, _)| *known == window);
            found.map_or(0, |(_, summary)| summary.mean_blocks.round() as u64)
        };
        let wanted = if sizes.is_empty() {
            let mut wanted: Vec<u64> = SHARES
                .iter()
                .map(|share| ((share / 100.0 * footprint_blocks as f64).round() as u64).max(1))
                .collect();
            wanted.dedup();
            wanted
        } else {
            resolve_sizes(sizes, block_size, footprint_blocks, working_set)
        };
        let (curve, mut curve_error_max) = result.curve().thinned(CURVE_POINTS_MAX);
        if self.options.method != Method::Exact {
            // What thinning adds is nothing beside what estimating does, and that is not known here.
            curve_error_max = f64::NAN;
        }
        let ratios = result.miss_ratios_at(&wanted);
        let point = |(size_blocks, miss_ratio)| Point { size_blocks, miss_ratio };
        Measurement {
            name,
            accesses: result.accesses(),
            footprint_blocks,
            working_sets,
            curve,
            curve_error_max,
            table: wanted.into_iter().zip(ratios).map(point).collect(),
        }
    }
}
