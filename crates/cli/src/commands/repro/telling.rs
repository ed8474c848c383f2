//! How what an evaluation found is handed over: as JSON or tables, and as a report if one is asked for.

use crate::failure::{Context, Failure};
use crate::output::{self, Output, OutputArgs, say, write_file};
use forebay_report::Report;
use serde::Serialize;
use std::path::PathBuf;

/// Prints `found`, and writes its report to `report`.
pub(super) fn tell<T: Serialize>(
    found: &T,
    args: &OutputArgs,
    report: Option<&PathBuf>,
    print: impl FnOnce(&T, &mut Output) -> Result<(), Failure>,
    draw: impl FnOnce(&T) -> Report,
) -> Result<(), Failure> {
    output::show(
        |output| if args.json { output.json(found) } else { print(found, output) },
        || {
            if let Some(path) = report {
                write_file(path, &draw(found).to_html().context("the report cannot be written")?)?;
                say(format_args!("report written to {}", path.display()));
            }
            Ok(())
        },
    )
}
