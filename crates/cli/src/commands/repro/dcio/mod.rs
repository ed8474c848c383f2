//! `forebay repro dcio`: the validation of the DCIO paper, on recorded traces.

mod show;
mod studies;
mod validate;

use crate::commands::repro::telling::tell;
use crate::failure::{Context, Failure};
use crate::output::{OutputArgs, writable};
use crate::whole::whole;
use std::path::PathBuf;

/// Run the validation of "Storage I/O Generation and Replay for Datacenter Applications" (2011) again, on recorded traces.
///
/// A model is fitted to each trace of a folder, a trace is generated from it, and the two are compared as in the paper's table, beside its
/// figures: also with another seed (variance from run to run), from the paper's chain alone, and from a chain without ranges, which is
/// what a generator without locality knows. Then both case studies, from the original and from the synthetic trace: a cache of solid state
/// before the disks, as large to the trace's footprint as the paper's 32 GB to its storage, and blocks rearranged in the order of their
/// first use. Files that are no traces, or have no times or fewer than 1,000 requests, are named and
/// left out. Traces of at least 100,000 requests over ten minutes are judged, the others are reported.
#[derive(Debug, clap::Args)]
pub(crate) struct DcioArgs {
    /// The folder of traces; every file is one
    #[arg(long, value_name = "DIR")]
    traces: PathBuf,

    /// Chooses everything random [range: 0 to 2^64 - 2]
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>(0..=u64::MAX - 1))]
    seed: u64,

    #[command(flatten)]
    output: OutputArgs,

    /// Write a self-contained HTML report to this file
    #[arg(long, value_name = "FILE", value_parser = writable(), help_heading = "Output")]
    report: Option<PathBuf>,
}

pub(crate) fn run(args: &DcioArgs) -> Result<(), Failure> {
    let shown = args.traces.display();
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(&args.traces).context(format_args!("cannot read the folder `{shown}`"))? {
        let path = entry.context(format_args!("cannot read the folder `{shown}`"))?.path();
        if path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    let mut found = validate::Found::new(args.seed);
    for path in &paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match validate::validate(path, name.clone(), args.seed) {
            Ok(Ok(trace)) => found.traces.push(trace),
            Ok(Err(reason)) => found.left_out.push((name, reason)),
            Err(failure) => found.left_out.push((name, failure.message().to_owned())),
        }
    }
    if found.traces.is_empty() {
        return Err(Failure::new(format!(
            "the folder `{shown}` holds no trace that a model can be fitted to"
        )));
    }
    tell(&found, &args.output, args.report.as_ref(), show::print, show::report)
}
