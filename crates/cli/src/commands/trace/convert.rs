//! `forebay trace convert`: any trace in Forebay's own compact format, or in one that other tools read.

use crate::failure::Failure;
use crate::input::{self, InputArgs};
use crate::trace_file;
use forebay_trace::WriteFormat;
use forebay_units::BlockSize;
use std::path::PathBuf;

/// Write a trace in another format.
///
/// By default Forebay's own compact binary one, which keeps everything.
///
/// Several files become one, merged by time. What the other formats cannot say is left out or widened, and counted.
#[derive(Debug, clap::Args)]
pub(crate) struct ConvertArgs {
    #[command(flatten)]
    input: InputArgs,

    /// The format to write: `forebay`, `msr`, `spc`, `fio-iolog` (version 3) or `oracle-general`
    #[arg(long, value_name = "FORMAT", default_value_t = WriteFormat::Forebay)]
    to: WriteFormat,

    /// The file to write, `-` for standard output; must not exist unless --force
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &ConvertArgs) -> Result<(), Failure> {
    trace_file::check(&args.output, args.to, args.force)?;
    let mut reader = input::open_trace(&args.input, BlockSize::DEFAULT)?;
    trace_file::write(&mut reader, &args.output, args.to)?;
    input::tell_early(&reader);
    Ok(())
}
