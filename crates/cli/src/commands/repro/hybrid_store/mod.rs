//! `forebay repro hybrid-store`: the sizes of the Hybrid Store paper, on virtual time.

mod parts;
mod show;

use crate::commands::repro::telling::tell;
use crate::failure::Failure;
use crate::output::{OutputArgs, writable};
use crate::whole::{ANY, whole};
use forebay_sim::hybrid_store::{READINGS, Setup};
use forebay_units::Nanos;
use std::path::PathBuf;

/// Run the evaluation of "SLO-aware Hybrid Store" (MSST 2012) again, on virtual time.
///
/// A SPECsfs-like load of 5,000 requests/s on a working set of 70 GB, with objectives of 8 and 3 ms: how much cache the paper's
/// controller takes (with both of its ways to shrink), how much Forebay's takes, how much vanilla LRU takes, and the least static size
/// that would have done, found by bisection. Then a load and a working set that change, and two workloads with inverted
/// objectives. The paper publishes neither which blocks are popular nor what the disks are: several readings are run, and what is ours is
/// said. Everything is simulated; a seed repeats it.
#[derive(Debug, clap::Args)]
pub(crate) struct HybridStoreArgs {
    /// One reading on one disk and one percentile: seconds instead of minutes
    #[arg(long, conflicts_with_all = ["scale", "duration"])]
    quick: bool,

    /// Make rate, working set and disks this much smaller, which leaves latencies as they are [range: 1 to 24]
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = whole::<u32>(1..=24))]
    scale: u32,

    /// Virtual time of a run, of which the second half counts [range: 10min to 24h]
    #[arg(long, value_name = "SPAN", default_value = "2400s", value_parser = parse_duration)]
    duration: Nanos,

    /// Chooses everything random [range: 0 to 2^64 - 1]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(ANY), default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    output: OutputArgs,

    /// Write a self-contained HTML report with plots to this file
    #[arg(long, value_name = "FILE", value_parser = writable(), help_heading = "Output")]
    report: Option<PathBuf>,
}

fn parse_duration(text: &str) -> Result<Nanos, String> {
    let span: Nanos = text.parse().map_err(|error| format!("{error}"))?;
    if span < Nanos::secs(600) || span > Nanos::secs(86_400) {
        return Err(format!("{span} is out of range, expected 10min to 24h"));
    }
    Ok(span)
}

pub(crate) fn run(args: &HybridStoreArgs) -> Result<(), Failure> {
    let setup = |reading| match args.quick {
        true => Setup { reading, scale: reading.spindles, seed: args.seed, duration: Nanos::secs(1_600) },
        false => Setup { reading, scale: args.scale, seed: args.seed, duration: args.duration },
    };
    let readings = if args.quick { &READINGS[..1] } else { &READINGS[..] };
    let setups: Vec<Setup> = readings.iter().copied().map(setup).collect();
    let result = parts::run(&setups, args.quick)?;
    tell(&result, &args.output, args.report.as_ref(), show::print, show::report)
}
