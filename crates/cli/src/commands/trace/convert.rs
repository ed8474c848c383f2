//! `forebay trace convert`: any trace in Forebay's own compact format, or in one that other tools read.

use crate::failure::{Context, Failure};
use crate::input::{self, InputArgs};
use crate::output::{Output, count, output_failure, say};
use forebay_trace::{TraceReader, TraceWriter, WriteFormat, Written};
use forebay_units::BlockSize;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

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
    if args.output.as_os_str() == "-" {
        if io::stdout().is_terminal() && matches!(args.to, WriteFormat::Forebay | WriteFormat::OracleGeneral)
        {
            return Err(Failure::usage("a binary trace is not written to a terminal")
                .with_hint("name a file with --output FILE"));
        }
        let mut reader = input::open_trace(&args.input, BlockSize::DEFAULT)?;
        let written = convert(&mut reader, args.to, Output::new())?.map_err(output_failure)?;
        tell(&written, "standard output");
        return Ok(());
    }
    let shown = args.output.display();
    if !args.force && args.output.exists() {
        return Err(Failure::new(format!("`{shown}` exists")).with_hint("replace it with --force"));
    }
    let mut reader = input::open_trace(&args.input, BlockSize::DEFAULT)?;
    // The name appears only when the content is whole: a trace that is cut short looks like a shorter trace.
    let mut partial = args.output.clone().into_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    match convert_into(&mut reader, args.to, &partial, &args.output) {
        Ok(written) => {
            tell(&written, &shown.to_string());
            Ok(())
        }
        Err(failure) => {
            // What cannot be removed is left: the failure that led here matters more.
            let _ = std::fs::remove_file(&partial);
            Err(failure)
        }
    }
}

fn convert_into(
    reader: &mut TraceReader,
    format: WriteFormat,
    partial: &Path,
    target: &Path,
) -> Result<Written, Failure> {
    let file = File::create(partial).context(format_args!("cannot create `{}`", partial.display()))?;
    let written = convert(reader, format, BufWriter::new(file))?;
    let written = written.context(format_args!("cannot write `{}`", partial.display()))?;
    std::fs::rename(partial, target).context(format_args!("cannot name `{}`", target.display()))?;
    Ok(written)
}

/// Reads `reader` to its end into `write`. The outer failure is the trace's, the inner error the output's.
fn convert(
    reader: &mut TraceReader,
    format: WriteFormat,
    write: impl Write + 'static,
) -> Result<io::Result<Written>, Failure> {
    let mut writer = match TraceWriter::new(format, write) {
        Ok(writer) => writer,
        Err(error) => return Ok(Err(error)),
    };
    let mut batch = Vec::new();
    while reader.next_batch(&mut batch).map_err(input::trace_failure)? > 0 {
        if let Err(error) = writer.write(&batch, reader.volumes()) {
            return Ok(Err(error));
        }
    }
    Ok(writer.finish().map(|(_, written)| written))
}

/// Says what became of the requests.
fn tell(written: &Written, place: &str) {
    say(format_args!("{} requests written to {place}", count(written.requests)));
    if written.left_out > 0 {
        say(format_args!("{} requests left out: the format has no word for them", count(written.left_out)));
    }
    if written.widened > 0 {
        say(format_args!("{} requests widened to whole sectors", count(written.widened)));
    }
}
