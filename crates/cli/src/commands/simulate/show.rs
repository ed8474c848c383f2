//! Results of simulations for people, for programs, and as a picture.

use super::{Candidate, RequestsArg, SimulateArgs, UnitArg};
use crate::failure::Failure;
use crate::output::{Output, bytes, count};
use forebay_cache::Outcome;
use forebay_report::{Axis, Chart, Quantity, Series, Table};
use forebay_trace::Format;
use forebay_units::BlockSize;
use serde::Serialize;

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct SimulateJson {
    schema: &'static str,
    format: &'static str,
    seed: u64,
    block_bytes: u64,
    requests: &'static str,
    unit: &'static str,
    skipped: u64,
    without_bytes: u64,
    accesses: u64,
    footprint_blocks: u64,
    footprint_bytes: u64,
    results: Vec<ResultJson>,
}

/// One policy at one size.
#[derive(Debug, Serialize)]
struct ResultJson {
    policy: &'static str,
    size_blocks: u64,
    size_bytes: u64,
    accesses: u64,
    misses: u64,
    miss_ratio: f64,
    byte_miss_ratio: f64,
}

/// Everything that is shown.
pub(super) struct Shown<'a> {
    pub(super) args: &'a SimulateArgs,
    pub(super) format: Format,
    pub(super) block_size: BlockSize,
    pub(super) skipped: u64,
    pub(super) without_bytes: u64,
    pub(super) accesses: u64,
    pub(super) footprint_blocks: u64,
    pub(super) sizes: &'a [u64],
    pub(super) candidates: &'a [Candidate],
    /// For each candidate each size.
    pub(super) outcomes: &'a [Outcome],
}

impl Shown<'_> {
    fn size_bytes(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(self.block_size.bytes())
    }

    /// Each candidate with its outcomes by size.
    fn rows(&self) -> impl Iterator<Item = (Candidate, impl Iterator<Item = (u64, Outcome)>)> {
        self.candidates.iter().zip(self.outcomes.chunks(self.sizes.len())).map(|(candidate, outcomes)| {
            (*candidate, self.sizes.iter().copied().zip(outcomes.iter().copied()))
        })
    }

    pub(super) fn json(&self) -> SimulateJson {
        let result = |candidate: Candidate, size_blocks: u64, outcome: Outcome| ResultJson {
            policy: candidate.name(),
            size_blocks,
            size_bytes: self.size_bytes(size_blocks),
            accesses: outcome.accesses,
            misses: outcome.misses,
            miss_ratio: outcome.miss_ratio(),
            byte_miss_ratio: outcome.byte_miss_ratio(),
        };
        let results = self.rows().flat_map(|(candidate, outcomes)| {
            outcomes.map(move |(size, outcome)| result(candidate, size, outcome))
        });
        SimulateJson {
            schema: "forebay.simulate/1",
            format: self.format.name(),
            seed: self.args.seed,
            block_bytes: self.block_size.bytes(),
            requests: match self.args.requests {
                RequestsArg::All => "all",
                RequestsArg::Reads => "reads",
                RequestsArg::ReadHits => "read-hits",
            },
            unit: if self.args.unit() == UnitArg::Block { "block" } else { "request" },
            skipped: self.skipped,
            without_bytes: self.without_bytes,
            accesses: self.accesses,
            footprint_blocks: self.footprint_blocks,
            footprint_bytes: self.size_bytes(self.footprint_blocks),
            results: results.collect(),
        }
    }

    pub(super) fn print(&self, output: &mut Output) -> Result<(), Failure> {
        output.line(format_args!(
            "{} trace, {} accesses, footprint {} ({} blocks)",
            self.format,
            count(self.accesses),
            bytes(self.size_bytes(self.footprint_blocks)),
            count(self.footprint_blocks)
        ))?;
        if self.skipped > 0 {
            output.line(format_args!("{} malformed records were skipped", count(self.skipped)))?;
        }
        if self.without_bytes > 0 {
            let count = count(self.without_bytes);
            output.line(format_args!("{count} requests without bytes touch no block, and are no access"))?;
        }
        let per = match self.args.unit() {
            UnitArg::Block => format!("access to a block of {}", self.block_size),
            UnitArg::Request => "request".to_owned(),
        };
        output.line(format_args!("\nmisses per {per}, by policy and size"))?;
        self.print_ratios(output, Outcome::miss_ratio)?;
        output.line("\nbytes missed per byte accessed")?;
        self.print_ratios(output, Outcome::byte_miss_ratio)
    }

    fn print_ratios(&self, output: &mut Output, ratio: fn(&Outcome) -> f64) -> Result<(), Failure> {
        let headings: Vec<String> =
            self.sizes.iter().map(|size| format!(">{}", bytes(self.size_bytes(*size)))).collect();
        let mut table = Table::new(std::iter::once("policy").chain(headings.iter().map(String::as_str)));
        for (candidate, outcomes) in self.rows() {
            let cells = outcomes.map(|(_, outcome)| format!("{:.4}", ratio(&outcome)));
            table.push(std::iter::once(candidate.name().to_owned()).chain(cells));
        }
        output.table(&table)
    }

    pub(super) fn chart(&self) -> Chart {
        let title = match self.args.input.paths.first().and_then(|path| path.file_name()) {
            Some(name) => format!("Miss ratio of {} by policy", name.to_string_lossy()),
            None => "Miss ratio by policy".to_owned(),
        };
        let x = Axis::linear("cache size", Quantity::Bytes);
        let mut chart = Chart::new(title, x, Axis::linear("miss ratio", Quantity::Ratio));
        for (candidate, outcomes) in self.rows() {
            let mut points: Vec<(f64, f64)> = outcomes
                .map(|(size, outcome)| (self.size_bytes(size) as f64, outcome.miss_ratio()))
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            chart = chart.with_series(Series::line(candidate.name(), points));
        }
        chart.with_description(format!(
            "Simulated misses per access of {} policies at {} sizes; between the sizes lines are drawn.",
            self.candidates.len(),
            self.sizes.len()
        ))
    }
}
