//! `forebay repro sancache`: placement of chunks on a tier of fast storage, SANCache's evaluation.

mod parts;
mod show;

use crate::commands::repro::telling::tell;
use crate::failure::Failure;
use crate::output::{OutputArgs, writable};
use crate::whole::{ANY, whole};
use forebay_sim::scenario::TierWrites;
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

    /// What becomes of writes to chunks that are placed: the tier takes them in place of the array, as on the slides, or they go
    /// through to the array and are copied, as in Forebay's daemon
    #[arg(long, value_name = "WAY", value_enum, default_value_t = Writes::Home)]
    writes: Writes,

    /// Chooses everything random [range: 0 to 2^64 - 1]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(ANY), default_value_t = 101)]
    seed: u64,

    #[command(flatten)]
    output: OutputArgs,

    /// Write a self-contained HTML report with plots to this file
    #[arg(long, value_name = "FILE", value_parser = writable(), help_heading = "Output")]
    report: Option<PathBuf>,
}

/// What becomes of writes.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Writes {
    Home,
    Through,
}

impl From<Writes> for TierWrites {
    fn from(writes: Writes) -> TierWrites {
        match writes {
            Writes::Home => TierWrites::Home,
            Writes::Through => TierWrites::Through,
        }
    }
}

pub(crate) fn run(args: &SancacheArgs) -> Result<(), Failure> {
    let found = parts::run(args.seed, args.writes.into(), args.quick, args.traces.as_deref())?;
    tell(&found, &args.output, args.report.as_ref(), show::print, show::report)
}
