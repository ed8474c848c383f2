//! `forebay repro presto`: prewarming after a failure, as PRESTO's slides have it, and Forebay's way.

mod parts;
mod recorded;
mod show;

use crate::commands::repro::telling::tell;
use crate::failure::Failure;
use crate::output::{OutputArgs, writable};
use crate::whole::{ANY, whole};
use std::path::PathBuf;

/// Run the evaluation of PRESTO (prewarming storage caches, 2019) again.
///
/// Six volumes are served from a cache of metadata objects for an hour and a half; then the node fails, and another takes over with a cold cache
/// that is prewarmed while it serves. All tables of the slides are run again (size limit, rate, snapshot rate, score), with the slides'
/// figures beside ours. Added are a cold node and one that never failed, an order that knows the future, scores per byte, and Forebay's own
/// way, which rehearses for the metric that is to be maximised. Everything is simulated; a seed repeats it.
#[derive(Debug, clap::Args)]
pub(crate) struct PrestoArgs {
    /// One table and no rehearsal: seconds instead of minutes
    #[arg(long)]
    quick: bool,

    /// Which volumes: `syn6gb` (the slides', with 6 GiB of cache) or `syn4gb` (ours, with 4 GiB: the slides do not say theirs)
    #[arg(long, value_name = "SET", default_value = "syn6gb", value_enum)]
    set: parts::Set,

    /// Run on the traces of this folder in place of the volumes above, at their own pace: the busiest volume of each file that has times, at
    /// least 10,000 requests and lasts 10 minutes fails half way, and what the daemon decides by itself to load is shown
    #[arg(long, value_name = "DIR", conflicts_with_all = ["quick", "set", "seed"])]
    traces: Option<PathBuf>,

    /// Chooses everything random [range: 0 to 2^64 - 1]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(ANY), default_value_t = 101)]
    seed: u64,

    #[command(flatten)]
    output: OutputArgs,

    /// Write a self-contained HTML report with plots to this file
    #[arg(long, value_name = "FILE", value_parser = writable(), help_heading = "Output")]
    report: Option<PathBuf>,
}

pub(crate) fn run(args: &PrestoArgs) -> Result<(), Failure> {
    if let Some(folder) = &args.traces {
        let found = recorded::run(folder)?;
        return tell(&found, &args.output, args.report.as_ref(), recorded::print, recorded::report);
    }
    let found = parts::run(args.set, args.seed, args.quick);
    tell(&found, &args.output, args.report.as_ref(), show::print, show::report)
}
