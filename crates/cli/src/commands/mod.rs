//! The subcommands: one module each, with its arguments, its `run`, and its JSON output.

mod capture;
mod mrc;
mod plan;
mod trace;

use crate::failure::Failure;

/// What `forebay` can do.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Look at block I/O traces and convert them
    #[command(subcommand)]
    Trace(trace::TraceCommand),
    /// Find how the miss ratio falls with the size of the cache
    Mrc(mrc::MrcArgs),
    /// Say how much cache each volume needs for its objectives
    Plan(plan::PlanArgs),
    /// Record what clients ask of a volume, as a trace
    Capture(capture::CaptureArgs),
}

/// Runs `command` to its end.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Trace(command) => trace::run(command),
        Command::Mrc(args) => mrc::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Capture(args) => capture::run(&args),
    }
}
