//! The one binary, `forebay`: reads the command line, runs the subcommand, says what went wrong.
//!
//! Data go to standard output and words to standard error; status 0 is success, 1 a failure, 2 a wrong command line.
//! Every subcommand is a module of `commands` with its arguments, its `run` and its JSON output.

mod commands;
mod document;
mod failure;
mod input;
mod interrupt;
mod log;
mod open_files;
mod output;
mod recorded;
mod trace_file;
mod whole;

use clap::Parser;
use std::process::ExitCode;

/// How big should the cache be, in front of which volume, and when?
///
/// Forebay answers that from traces (trace, mrc, plan) and in front of live volumes.
#[derive(Debug, Parser)]
#[command(
    name = "forebay",
    version,
    max_term_width = 110,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct CommandLine {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    match commands::run(CommandLine::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
