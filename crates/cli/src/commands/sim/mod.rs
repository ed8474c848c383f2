//! `forebay sim`: runs a scenario on virtual time, with the daemon's own controller.

mod place;
mod show;
mod traces;

use crate::document::Document;
use crate::failure::Failure;
use crate::output::{self, OutputArgs, say, writable, write_report};
use crate::whole::{ANY, whole};
use forebay_sim::{DrawJob, RunError, Scenario, Simulation};
use forebay_units::{Nanos, with_causes};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

/// Run a scenario on virtual time, with the daemon's own controller.
///
/// The scenario names devices, caches, workloads and objectives in TOML; docs/reference/scenario.md describes its keys, the folder scenarios/ holds some. Printed
/// are, per volume: rate, latencies, hit ratio, quota, and the share of windows that kept each objective; then what the
/// controller did. The same scenario, traces, seed and version give the same events, which the hash stands for. An objective
/// that was not kept is an answer, not an error: the status is 0.
#[derive(Debug, clap::Args)]
pub(crate) struct SimArgs {
    /// The scenario (TOML), `-` for standard input; paths in it are relative to its folder
    #[arg(value_name = "SCENARIO")]
    scenario: PathBuf,

    /// Chooses everything random [range: 0 to 2^64 - 1; default: the scenario's, 1 unless set there]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(ANY))]
    seed: Option<u64>,

    /// Play the whole plan of the scenario within this time, a short form for trying it: what is planned for an instant moves nearer, rates and
    /// intervals stay [range: one control interval and more; default: as long as the scenario says]
    #[arg(long, value_name = "TIME")]
    within: Option<Nanos>,

    #[command(flatten)]
    output: OutputArgs,

    /// Write a self-contained HTML report with charts over time to this file
    #[arg(long, value_name = "FILE", value_parser = writable(), help_heading = "Output")]
    report: Option<PathBuf>,
}

pub(crate) fn run(args: &SimArgs) -> Result<(), Failure> {
    let document = Document::read(&args.scenario)?;
    let scenario: Scenario = document.parse()?;
    let scenario = match args.within {
        Some(within) if within < scenario.cache.interval => {
            let interval = scenario.cache.interval;
            return Err(Failure::usage(format!(
                "`--within` is {within}, expected one control interval of this scenario ({interval}) and more"
            )));
        }
        Some(within) => scenario.within(within),
        None => scenario,
    };
    // Before the traces: what is wrong is said at once.
    scenario.check().map_err(|error| place::failure(&document, error.key(), &error))?;
    let folder = args.scenario.parent().unwrap_or(Path::new(""));
    let traces = traces::read(&document, &scenario, folder)?;
    let simulation = Simulation::new(&scenario, &traces, args.seed).map_err(|error| match error {
        RunError::Scenario(error) => place::failure(&document, error.key(), &error),
        other => Failure::new(with_causes(&other)),
    })?;
    let outcome = helped(simulation).run();
    for flag in &outcome.flags {
        say(format_args!("note: `{}`: {}", flag.key, flag.message));
    }
    let shown = show::Shown { scenario: &scenario, outcome: &outcome };
    output::show(
        |output| if args.output.json { output.json(&shown.json()) } else { shown.print(output) },
        || write_report(args.report.as_ref(), || shown.report()),
    )
}

/// The same run; requests are drawn for it on a thread of their own where there is a processor for that.
fn helped(simulation: Simulation<'_>) -> Simulation<'_> {
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        return simulation;
    }
    let (hand, jobs) = mpsc::channel();
    let drawing = move || jobs.into_iter().for_each(DrawJob::run);
    match thread::Builder::new().name("draw".to_owned()).spawn(drawing) {
        // Jobs that get lost are done by the simulation; the thread ends with it.
        Ok(_) => simulation.with_helper(move |job| drop(hand.send(job))),
        Err(_) => simulation,
    }
}
