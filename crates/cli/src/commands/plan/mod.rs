//! `forebay plan`: from traces, objectives and a storage model to cache sizes.

mod config;
mod devices;
mod load;
mod recording;
mod show;
mod simulate;

use crate::failure::{Context, Failure};
use crate::output::{self, OutputArgs, say, writable, write_chart, write_report};
use crate::whole::{ANY, whole};
use config::PlanConfig;
use forebay_control::plan::PlanInput;
use std::path::PathBuf;

/// Say how much cache each volume needs for its objectives.
///
/// The plan file names traces, objectives and a storage model; docs/reference/plan.md describes its keys, examples/plan.toml
/// is one. Printed are, per volume: load, footprint, working set, the smallest cache that keeps the objective, predicted
/// latencies without and with it, and what was saved against caching the whole working set; the ways to mend each violated
/// objective, best first; and with a budget the allocation that violates least. An objective that cannot be met is an answer,
/// not an error: the status is 0.
#[derive(Debug, clap::Args)]
pub(crate) struct PlanArgs {
    /// The plan file (TOML), `-` for standard input; paths in it are relative to its folder
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Play the traces in the simulator, too, with the planned caches, and find the smallest that keep what can be kept there: some 10 to
    /// 20 runs, and up to as many for each volume of an origin that has several
    #[arg(long)]
    simulate: bool,

    /// With --simulate: chooses what is random of the simulated origins [range: 0 to 2^64 - 1]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(ANY), default_value_t = 1, requires = "simulate")]
    seed: u64,

    #[command(flatten)]
    output: OutputArgs,

    /// Draw the volumes' miss ratio curves with the chosen sizes into this SVG file
    #[arg(long, value_name = "FILE", value_parser = writable(), help_heading = "Output")]
    svg: Option<PathBuf>,

    /// Write a self-contained HTML report to this file
    #[arg(long, value_name = "FILE", value_parser = writable(), help_heading = "Output")]
    report: Option<PathBuf>,
}

pub(crate) fn run(args: &PlanArgs) -> Result<(), Failure> {
    let (document, config) = PlanConfig::read(&args.file)?;
    let devices = args.simulate.then(|| devices::devices(&document, &config)).transpose()?;
    let loaded = load::read_volumes(&document, &config, args.simulate)?;
    let (mut volumes, mut recordings, mut disorder) = (Vec::new(), Vec::new(), Vec::new());
    for loaded in loaded {
        volumes.push(loaded.volume);
        recordings.extend(loaded.recording);
        disorder.extend(loaded.disorder);
    }
    disorder.iter().for_each(|told| say(format_args!("warning: {told}")));
    let input = PlanInput {
        volumes,
        origins: config.origins.into_iter().map(|known| known.origin).collect(),
        cache: config.cache,
        budget: config.budget,
        chunk: config.chunk,
        margin: config.margin,
    };
    let mut plan = forebay_control::plan::plan(&input).context(format_args!("`{}`", args.file.display()))?;
    plan.basis.extend(disorder);
    let simulated = devices
        .map(|devices| simulate::simulate(&input, &plan, devices, recordings, config.first_window, args.seed))
        .transpose()
        .context(format_args!("`{}` cannot be simulated", args.file.display()))?;
    let shown = show::Shown {
        file: args.file.display().to_string(),
        input: &input,
        plan: &plan,
        simulated: simulated.as_ref(),
    };
    output::show(
        |output| if args.output.json { output.json(&shown.json()) } else { shown.print(output) },
        || {
            write_chart(args.svg.as_ref(), || shown.chart())?;
            write_report(args.report.as_ref(), || shown.report())
        },
    )
}
