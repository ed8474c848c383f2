//! How what an evaluation found is handed over: as JSON or tables, and as a report if one is asked for.

use crate::failure::Failure;
use crate::output::{self, Output, OutputArgs, write_report};
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
        || write_report(report, || draw(found)),
    )
}
