//! `forebay trace`: look at traces and convert them.

mod convert;
mod head;
mod info;

use crate::failure::Failure;

/// What can be done with a trace.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum TraceCommand {
    Info(info::InfoArgs),
    Head(head::HeadArgs),
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
