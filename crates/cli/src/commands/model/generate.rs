//! `forebay model generate`: a model becomes a trace.

use crate::failure::{Context, Failure};
use crate::trace_file;
use crate::whole::{ANY, whole};
use forebay_trace::WriteFormat;
use forebay_units::Nanos;
use forebay_workload::model::{Fidelity, GenerateOptions, Generator};
use std::path::PathBuf;

/// Generate a trace from a model.
///
/// Any length, in constant memory. The mean intensity is the model's whatever the duration, or what `--rate` says: a whole number of the model's schedules is
/// played, each stretched to fit. The same model, options and seed give the same trace.
#[derive(Debug, clap::Args)]
pub(crate) struct GenerateArgs {
    /// The model, as `forebay model fit` wrote it; `-` for standard input
    #[arg(value_name = "MODEL")]
    model: PathBuf,

    /// The file to write, `-` for standard output; must not exist unless --force
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,

    /// The format to write: `forebay`, `msr`, `spc`, `fio-iolog` (version 3) or `oracle-general`
    #[arg(long, value_name = "FORMAT", default_value_t = WriteFormat::Forebay)]
    format: WriteFormat,

    /// Replace the file if it exists
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    what: WhatArgs,

    /// The paper's chain alone, without the intensity over time and without windows
    #[arg(long)]
    plain: bool,
}

/// How much is generated, and from which seed.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What is generated")]
struct WhatArgs {
    /// Span of the trace [default: that of the original, divided by the intensity; range: above 0]
    #[arg(long, value_name = "SPAN", value_parser = parse_duration)]
    duration: Option<Nanos>,

    /// Requests at most [default: what the duration holds; range: at least 1]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..=u64::MAX))]
    requests: Option<u64>,

    /// Divide inter-arrival times by this [range: 0.000001 to 1000000]
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    intensity: f64,

    /// Requests per second on average, times the intensity: times of the model are stretched to it [default: the model's; of a trace without
    /// times, all come at time 0]
    #[arg(long, value_name = "RATE")]
    rate: Option<f64>,

    /// Chooses everything random [range: 0 to 2^64 - 1]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(ANY), default_value_t = 1)]
    seed: u64,
}

fn parse_duration(text: &str) -> Result<Nanos, String> {
    match text.parse::<Nanos>() {
        Ok(Nanos::ZERO) => Err("a duration must be above 0".to_owned()),
        Ok(span) => Ok(span),
        Err(error) => Err(error.to_string()),
    }
}

pub(crate) fn run(args: &GenerateArgs) -> Result<(), Failure> {
    trace_file::check(&args.output, args.format, args.force)?;
    let model = super::read(&args.model)?;
    let options = GenerateOptions {
        seed: args.what.seed,
        duration: args.what.duration,
        requests: args.what.requests,
        intensity: Some(args.what.intensity),
        rate: args.what.rate,
        fidelity: if args.plain { Fidelity::Plain } else { Fidelity::Full },
    };
    let mut generator = Generator::new(&model, &options).context("nothing can be generated")?;
    drop(model);
    trace_file::write(&mut generator, &args.output, args.format)
}
