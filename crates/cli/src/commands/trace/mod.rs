//! `forebay trace`: look at traces, describe and convert them.

mod convert;
mod head;
mod info;
mod stats;

use crate::failure::Failure;

/// What can be done with a trace.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum TraceCommand {
    Info(info::InfoArgs),
    Stats(stats::StatsArgs),
    Head(head::HeadArgs),
    Convert(convert::ConvertArgs),
}

/// Runs `command` to its end.
pub(crate) fn run(command: TraceCommand) -> Result<(), Failure> {
    match command {
        TraceCommand::Info(args) => info::run(&args),
        TraceCommand::Stats(args) => stats::run(&args),
        TraceCommand::Head(args) => head::run(&args),
        TraceCommand::Convert(args) => convert::run(&args),
    }
}
