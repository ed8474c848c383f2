//! The subcommands: one module each, with its arguments, its `run`, and its JSON output.

mod capture;
mod demo;
mod explain;
mod mrc;
mod plan;
mod repro;
mod serve;
mod sim;
mod simulate;
mod status;
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
    /// Find what caches under other policies would have missed
    Simulate(simulate::SimulateArgs),
    // Its help is that of its arguments, at length.
    Sim(sim::SimArgs),
    /// Run the evaluation of a published paper again, beside its figures
    #[command(subcommand)]
    Repro(repro::ReproCommand),
    /// Show two objectives violated and restored, on emulated disks
    Demo(demo::DemoArgs),
    /// Record what clients ask of a volume, as a trace
    Capture(capture::CaptureArgs),
    /// Serve volumes over NBD, with caches in front of those that need them
    Serve(serve::ServeArgs),
    /// Show how the volumes of a running daemon do
    Status(status::StatusArgs),
    /// Say why each decision about a volume was made
    Explain(explain::ExplainArgs),
}

/// Runs `command` to its end.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Trace(command) => trace::run(command),
        Command::Mrc(args) => mrc::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Repro(command) => repro::run(command),
        Command::Demo(args) => demo::run(&args),
        Command::Capture(args) => capture::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Explain(args) => explain::run(&args),
    }
}
