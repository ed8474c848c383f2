//! `forebay trace`: look at traces and convert them.

mod convert;
mod head;
mod info;

use crate::failure::Failure;

/// What can be done with a trace.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum TraceCommand {
    /// Count what is in a trace: requests, bytes, volumes, time, distinct blocks
    Info(info::InfoArgs),
    /// Print the first requests of a trace
    Head(head::HeadArgs),
    /// Write a trace in another format
    Convert(convert::ConvertArgs),
}

/// Runs `command` to its end.
pub(crate) fn run(command: TraceCommand) -> Result<(), Failure> {
    match command {
        TraceCommand::Info(args) => info::run(&args),
        TraceCommand::Head(args) => head::run(&args),
        TraceCommand::Convert(args) => convert::run(&args),
    }
}
