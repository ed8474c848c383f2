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

use clap::{CommandFactory, FromArgMatches, Parser};
use std::io::{self, Write};
use std::process::ExitCode;

/// The version, with the commit where the source was a checkout of one when this was built.
const VERSION: &str = env!("FOREBAY_VERSION");
/// That commit.
const COMMIT: Option<&str> = option_env!("FOREBAY_COMMIT");

/// How big should the cache be, in front of which volume, and when?
///
/// Forebay answers that from traces (trace, mrc, plan) and in front of live volumes.
#[derive(Debug, Parser)]
#[command(
    name = "forebay",
    version = VERSION,
    max_term_width = 110,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct CommandLine {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let mut command = with_numbers(CommandLine::command());
    let found = command.try_get_matches_from_mut(std::env::args_os());
    let line = found.and_then(|mut found| {
        CommandLine::from_arg_matches_mut(&mut found).map_err(|told| told.format(&mut command))
    });
    let line = match line {
        Ok(line) => line,
        Err(told) => return tell(&told),
    };
    match commands::run(line.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// The same command, of which every option reads a negative number as its value. It refuses most of them, and says what it expects; left to itself clap takes
/// them for flags, and advises to write `-- -1`, which no option reads.
fn with_numbers(command: clap::Command) -> clap::Command {
    let option = |arg: clap::Arg| match !arg.is_positional() && arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    };
    command.mut_args(option).mut_subcommands(with_numbers)
}

/// Shows what the command line itself asks for (`--help`, `--version`), which is output like any other, or says what is wrong with it.
fn tell(told: &clap::Error) -> ExitCode {
    match told.print().and_then(|()| io::stdout().flush()) {
        Err(error) if !told.use_stderr() => output::output_failure(error).report(),
        // Standard error may be closed; then there is nobody to tell.
        _ => ExitCode::from(u8::try_from(told.exit_code()).unwrap_or(2)),
    }
}
