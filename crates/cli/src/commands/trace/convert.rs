//! `forebay trace convert`: any trace in Forebay's own compact format.

use crate::failure::{Context, Failure};
use crate::input::{self, InputArgs};
use crate::output::{Output, count, output_failure, say};
use forebay_trace::{ForebayWriter, TraceReader};
use forebay_units::BlockSize;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;

/// Writes a trace in Forebay's own compact binary format (.fbt), which is read several times faster than text.
///
/// Volumes, times, operations, byte ranges and latencies are kept. Several files become one, merged by time.
#[derive(Debug, clap::Args)]
pub(crate) struct ConvertArgs {
    #[command(flatten)]
    input: InputArgs,

    /// The file to write, `-` for standard output; must not exist unless --force
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &ConvertArgs) -> Result<(), Failure> {
    let mut reader = input::open_trace(&args.input, BlockSize::DEFAULT)?;
    if args.output.as_os_str() == "-" {
        if io::stdout().is_terminal() {
            return Err(Failure::usage("a binary trace is not written to a terminal")
                .with_hint("name a file with --output FILE"));
        }
        let written = convert(&mut reader, Output::new())?.map_err(output_failure)?;
        say(format_args!("{} requests written", count(written)));
        return Ok(());
    }
    let shown = args.output.display();
    // The name appears only when the content is whole: a trace that is cut short looks like a shorter trace.
    if !args.force && args.output.exists() {
        return Err(Failure::new(format!("`{shown}` exists")).with_hint("replace it with --force"));
    }
    let mut partial = args.output.clone().into_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let result = File::create(&partial)
        .context(format_args!("cannot create `{}`", partial.display()))
        .and_then(|file| convert(&mut reader, BufWriter::new(file)))
        .and_then(|result| result.context(format_args!("cannot write `{}`", partial.display())))
        .and_then(|written| {
            std::fs::rename(&partial, &args.output).context(format_args!("cannot name `{shown}`"))?;
            Ok(written)
        });
    match result {
        Ok(written) => {
            say(format_args!("{} requests written to {shown}", count(written)));
            Ok(())
        }
        Err(failure) => {
            // What cannot be removed is left: the failure that led here matters more.
            let _ = std::fs::remove_file(&partial);
            Err(failure)
        }
    }
}

/// Reads `reader` to its end into `write`; how many requests that were. The outer failure is the trace's, the inner
/// error the output's.
fn convert(reader: &mut TraceReader, write: impl Write) -> Result<io::Result<u64>, Failure> {
    let mut writer = match ForebayWriter::new(write) {
        Ok(writer) => writer,
        Err(error) => return Ok(Err(error)),
    };
    let mut written = 0;
    let mut batch = Vec::new();
    loop {
        let got = reader.next_batch(&mut batch).map_err(input::trace_failure)?;
        if got == 0 {
            return Ok(writer.finish().and_then(|mut inner| inner.flush()).map(|()| written));
        }
        if let Err(error) = writer.write(&batch, reader.volumes()) {
            return Ok(Err(error));
        }
        written += got as u64;
    }
}
