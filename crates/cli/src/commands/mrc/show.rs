//! A curve for people, for programs, and as a picture.

use super::measure::{Measurement, Point};
use super::{MrcArgs, RequestsArg, UnitArg, WeightArg};
use crate::failure::Failure;
use crate::output::{Output, bytes, count};
use forebay_locality::Method;
use forebay_report::{Axis, Chart, Quantity, Series, Table};
use forebay_trace::Format;
use forebay_units::{BlockSize, Nanos, printable};
use serde::Serialize;

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct MrcJson<'a> {
    schema: &'static str,
    format: &'static str,
    method: &'static str,
    /// Share of the blocks sampled at the end, where it is fixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<f64>,
    /// Memory of the estimator, where that is fixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
    seed: u64,
    block_bytes: u64,
    requests: &'static str,
    unit: &'static str,
    weight: &'static str,
    skipped: u64,
    without_bytes: u64,
    #[serde(flatten)]
    all: CurveJson<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    volumes: Option<Vec<VolumeJson<'a>>>,
}

/// The curve of one stream.
#[derive(Debug, Serialize)]
struct CurveJson<'a> {
    accesses: u64,
    footprint_blocks: u64,
    footprint_bytes: u64,
    working_sets: Vec<WorkingSetJson>,
    /// `exact`, `thinned` (of an exact curve) or `estimated`.
    points: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinned_error_max: Option<f64>,
    curve: Vec<PointJson>,
}

/// The curve of one volume.
#[derive(Debug, Serialize)]
struct VolumeJson<'a> {
    volume: &'a str,
    #[serde(flatten)]
    curve: CurveJson<'a>,
}

#[derive(Debug, Serialize)]
struct WorkingSetJson {
    window_s: f64,
    windows: u64,
    mean_blocks: f64,
    max_blocks: u64,
    whole: bool,
    rest_s: f64,
}

#[derive(Debug, Serialize)]
struct PointJson {
    size_blocks: u64,
    size_bytes: u64,
    miss_ratio: f64,
}

/// Everything that is shown.
pub(super) struct Shown<'a> {
    pub(super) args: &'a MrcArgs,
    pub(super) method: Method,
    pub(super) format: Format,
    pub(super) block_size: BlockSize,
    pub(super) skipped: u64,
    pub(super) without_bytes: u64,
    pub(super) all: &'a Measurement,
    pub(super) volumes: &'a [Measurement],
}

impl<'a> Shown<'a> {
    fn size_bytes(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(self.block_size.bytes())
    }

    fn method_name(&self) -> &'static str {
        match self.method {
            Method::Exact => "exact",
            Method::ShardsRate(_) | Method::ShardsSize(_) => "shards",
            Method::Aet(_) => "aet",
            Method::WorkingSet => "wss",
        }
    }

    pub(super) fn json(&self) -> MrcJson<'a> {
        let (rate, memory_bytes) = match self.method {
            Method::ShardsRate(rate) | Method::Aet(rate) => (Some(rate), None),
            Method::ShardsSize(memory) => (None, Some(memory.0)),
            Method::Exact | Method::WorkingSet => (None, None),
        };
        let volume = |measurement: &'a Measurement| VolumeJson {
            volume: &measurement.name,
            curve: self.curve_json(measurement),
        };
        MrcJson {
            schema: "forebay.mrc/1",
            format: self.format.name(),
            method: self.method_name(),
            rate,
            memory_bytes,
            seed: self.args.estimating.seed,
            block_bytes: self.block_size.bytes(),
            requests: match self.args.counting.requests {
                RequestsArg::All => "all",
                RequestsArg::Reads => "reads",
                RequestsArg::ReadHits => "read-hits",
            },
            unit: if self.args.unit() == UnitArg::Block { "block" } else { "request" },
            weight: if self.args.counting.weight == WeightArg::Requests { "requests" } else { "bytes" },
            skipped: self.skipped,
            without_bytes: self.without_bytes,
            all: self.curve_json(self.all),
            volumes: self.args.counting.per.map(|_| self.volumes.iter().map(volume).collect()),
        }
    }

    fn curve_json(&self, measurement: &Measurement) -> CurveJson<'a> {
        let exact = self.method == Method::Exact;
        let asked = !self.args.sizes.is_empty();
        let thinned = exact && !asked && measurement.curve_error_max > 0.0;
        let of = |point: &Point| PointJson {
            size_blocks: point.size_blocks,
            size_bytes: self.size_bytes(point.size_blocks),
            miss_ratio: point.miss_ratio,
        };
        let whole = measurement.curve.points().iter();
        let whole = whole.map(|point| Point { size_blocks: point.size_blocks, miss_ratio: point.miss_ratio });
        CurveJson {
            accesses: measurement.accesses,
            footprint_blocks: measurement.footprint_blocks,
            footprint_bytes: self.size_bytes(measurement.footprint_blocks),
            working_sets: measurement
                .working_sets
                .iter()
                .map(|(window, summary)| WorkingSetJson {
                    window_s: window.as_secs_f64(),
                    windows: summary.windows,
                    mean_blocks: summary.mean_blocks,
                    max_blocks: summary.max_blocks,
                    whole: summary.whole,
                    rest_s: summary.rest.as_secs_f64(),
                })
                .collect(),
            points: match (exact, thinned) {
                (true, true) => "thinned",
                (true, false) => "exact",
                (false, _) => "estimated",
            },
            thinned_error_max: thinned.then_some(measurement.curve_error_max),
            curve: match (measurement.accesses, asked) {
                (0, _) => Vec::new(),
                (_, true) => measurement.table.iter().map(of).collect(),
                (_, false) => whole.map(|point| of(&point)).collect(),
            },
        }
    }

    pub(super) fn print(&self, output: &mut Output) -> Result<(), Failure> {
        let method = match self.method {
            Method::Exact => "exact LRU".to_owned(),
            Method::ShardsRate(rate) => format!("LRU estimated by SHARDS at rate {rate}"),
            Method::ShardsSize(memory) => format!("LRU estimated by SHARDS in {memory}"),
            Method::Aet(rate) if rate < 1.0 => format!("LRU estimated by AET at rate {rate}"),
            Method::Aet(_) => "LRU estimated by AET".to_owned(),
            Method::WorkingSet => "LRU estimated from the working set's derivative".to_owned(),
        };
        let counted = match (self.args.unit(), self.args.counting.weight) {
            (UnitArg::Block, WeightArg::Requests) => format!("per access to a block of {}", self.block_size),
            (UnitArg::Request, WeightArg::Requests) => "per request".to_owned(),
            (_, WeightArg::Bytes) => "per byte".to_owned(),
        };
        output.line(format_args!("{} trace, {method}, miss ratio {counted}", self.format))?;
        if self.skipped > 0 {
            output.line(format_args!("{} malformed records were skipped", count(self.skipped)))?;
        }
        if self.without_bytes > 0 {
            let count = count(self.without_bytes);
            output.line(format_args!("{count} requests without bytes touch no block, and are no access"))?;
        }
        output.line("")?;
        self.print_one(output, self.all)?;
        for volume in self.volumes {
            output.line("")?;
            self.print_one(output, volume)?;
        }
        Ok(())
    }

    fn print_one(&self, output: &mut Output, measurement: &Measurement) -> Result<(), Failure> {
        let name = match self.volumes {
            [] => String::new(),
            _ => format!("{}: ", printable(&measurement.name)),
        };
        let accesses = match self.args.counting.weight {
            WeightArg::Requests => format!("{} accesses", count(measurement.accesses)),
            WeightArg::Bytes => format!("{} accessed", bytes(measurement.accesses)),
        };
        let footprint = measurement.footprint_blocks;
        output.line(format_args!(
            "{name}{accesses}, footprint {} ({} blocks)",
            bytes(self.size_bytes(footprint)),
            count(footprint)
        ))?;
        for (window, summary) in &measurement.working_sets {
            let of = match (summary.whole, summary.rest) {
                (true, Nanos::ZERO) => format!("{} windows", count(summary.windows)),
                (true, rest) => {
                    format!(
                        "{} windows, without the last {rest}, which are no whole one",
                        count(summary.windows)
                    )
                }
                (false, rest) => format!("all {rest}, which are no whole window"),
            };
            output.line(format_args!(
                "working set over {window}: {} mean, {} largest, of {of}",
                bytes(self.size_bytes(summary.mean_blocks.round() as u64)),
                bytes(self.size_bytes(summary.max_blocks)),
            ))?;
        }
        if measurement.accesses == 0 {
            return output.line("no access that counts, so there is no curve");
        }
        let mut table = Table::new([">cache", ">blocks", ">of footprint", ">miss ratio", ">hit ratio"]);
        for point in &measurement.table {
            table.push([
                bytes(self.size_bytes(point.size_blocks)),
                count(point.size_blocks),
                format!("{:.1}%", point.size_blocks as f64 * 100.0 / footprint.max(1) as f64),
                format!("{:.4}", point.miss_ratio),
                format!("{:.4}", 1.0 - point.miss_ratio),
            ]);
        }
        output.table(&table)
    }

    /// All volumes together where no more is asked for, else the eight volumes with most accesses.
    pub(super) fn chart(&self) -> Chart {
        let x = if self.args.log_sizes {
            Axis::log("cache size", Quantity::Bytes)
        } else {
            Axis::linear("cache size", Quantity::Bytes)
        };
        let method = if self.method == Method::Exact { "LRU" } else { "LRU, estimated" };
        let title = match self.args.input.paths.first().and_then(|path| path.file_name()) {
            Some(name) => format!("Miss ratio of {} ({method})", name.to_string_lossy()),
            None => format!("Miss ratio ({method})"),
        };
        let mut chart = Chart::new(title, x, Axis::linear("miss ratio", Quantity::Ratio));
        let mut streams: Vec<&Measurement> =
            self.volumes.iter().filter(|volume| volume.accesses > 0).collect();
        streams.sort_by_key(|volume| std::cmp::Reverse(volume.accesses));
        streams.truncate(8);
        if streams.len() < 2 {
            streams = vec![self.all];
        }
        for stream in &streams {
            // A logarithmic axis has no place for no cache at all, so it begins with one block.
            let first = u64::from(self.args.log_sizes);
            let mut points = vec![(self.size_bytes(first) as f64, stream.curve.miss_ratio_at(first))];
            let later = stream.curve.points().iter().filter(|point| point.size_blocks > first);
            points.extend(later.map(|point| (self.size_bytes(point.size_blocks) as f64, point.miss_ratio)));
            // A curve goes on at its lowest ratio: up to the footprint, so that all of the axis is told about.
            let end = self.size_bytes(stream.footprint_blocks) as f64;
            if let Some((size, ratio)) = points.last().copied()
                && size < end
            {
                points.push((end, ratio));
            }
            chart = chart.with_series(Series::line(stream.name.clone(), points));
        }
        if let [only] = streams[..] {
            for (window, summary) in &only.working_sets {
                let size = self.size_bytes(summary.mean_blocks.round() as u64);
                if size > 0 {
                    chart = chart
                        .with_marker(format!("mean working set ({window}): {}", bytes(size)), size as f64);
                }
            }
        }
        chart.with_description(format!(
            "The miss ratio falls from 1 without a cache to {:.3} with a cache of the whole footprint, {}.",
            self.all.curve.floor(),
            bytes(self.size_bytes(self.all.footprint_blocks))
        ))
    }
}
