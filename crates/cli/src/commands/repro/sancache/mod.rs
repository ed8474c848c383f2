//! `forebay repro sancache`: placement of chunks on a tier of fast storage, SANCache's evaluation.

mod parts;
mod show;

use crate::commands::repro::telling::tell;
use crate::failure::Failure;
use crate::output::{OutputArgs, writable};
use std::path::PathBuf;

/// Run the evaluation of SANCache (a cache in the storage network, 2006) again.
///
/// Loads like SPC-1 and TPC-C, loads with phases, and a write flood are run on an array with a shared cache, with tiers of flash of growing sizes on which chunks are placed: by a threshold that adapts,
/// by every fixed one of 1, 2, 4 to 256, and by demand, LARC and LRU admission. The numbers of the slides' figures are lost, so their words stand beside ours; what is ours is said. Everything
/// is simulated; a seed repeats it. Minutes of two processors.
#[derive(Debug, clap::Args)]
pub(crate) struct SancacheArgs {
    /// One load and one size, short runs and few thresholds: seconds instead of minutes; says little
    #[arg(long)]
    quick: bool,

    /// Run on the traces of this folder in place of the loads above: the busiest volume of each file that has times and at least 10,000
    /// requests, at 400 requests per second on average or as many as the array keeps up with, with a tier of a tenth of the chunks
    /// that it touches
    #[arg(long, value_name = "DIR", conflicts_with = "quick")]
    traces: Option<PathBuf>,

    /// Chooses everything random [range: 0 to 2^64 - 1]
    #[arg(long, value_name = "N", default_value_t = 101)]
    seed: u64,

    #[command(flatten)]
    output: OutputArgs,

    /// Write a self-contained HTML report with plots to this file
    #[arg(long, value_name = "FILE", value_parser = writable(), help_heading = "Output")]
    report: Option<PathBuf>,
}

pub(crate) fn run(args: &SancacheArgs) -> Result<(), Failure> {
    let found = parts::run(args.seed, args.quick, args.traces.as_deref())?;
    tell(&found, &args.output, args.report.as_ref(), show::print, show::report)
}
