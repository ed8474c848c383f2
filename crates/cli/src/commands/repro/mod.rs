//! `forebay repro`: evaluations of published papers, run again.

mod dcio;
mod dynamite;
mod failover;
mod hybrid_store;
mod interference;
mod jobs;
mod presto;
mod recorded;
mod sancache;
mod telling;

use crate::failure::Failure;

/// Run the evaluation of a published paper again, and print its figures beside ours
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ReproCommand {
    // Its help is that of its arguments, at length.
    Dcio(dcio::DcioArgs),
    Dynamite(dynamite::DynamiteArgs),
    Failover(failover::FailoverArgs),
    HybridStore(hybrid_store::HybridStoreArgs),
    Interference(interference::InterferenceArgs),
    Presto(presto::PrestoArgs),
    Sancache(sancache::SancacheArgs),
}

pub(crate) fn run(command: ReproCommand) -> Result<(), Failure> {
    match command {
        ReproCommand::Dcio(args) => dcio::run(&args),
        ReproCommand::Dynamite(args) => dynamite::run(&args),
        ReproCommand::Failover(args) => failover::run(&args),
        ReproCommand::HybridStore(args) => hybrid_store::run(&args),
        ReproCommand::Interference(args) => interference::run(&args),
        ReproCommand::Presto(args) => presto::run(&args),
        ReproCommand::Sancache(args) => sancache::run(&args),
    }
}
