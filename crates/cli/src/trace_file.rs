//! Writing traces: to a file that appears only when it is whole, or to standard output.

use crate::failure::{Context, Failure};
use crate::input::trace_failure;
use crate::output::{Output, count, output_failure, say, write_whole};
use forebay_trace::{Request, TraceReader, TraceWriter, WriteFormat, Written};
use forebay_workload::model::Generator;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Where requests come from.
pub(crate) trait Requests {
    /// Clears `out` and fills it with the next requests; how many, 0 at the end.
    fn next_batch(&mut self, out: &mut Vec<Request>) -> Result<usize, Failure>;

    /// The names of the volumes so far.
    fn volumes(&self) -> &[String];
}

impl Requests for TraceReader {
    fn next_batch(&mut self, out: &mut Vec<Request>) -> Result<usize, Failure> {
        TraceReader::next_batch(self, out).map_err(trace_failure)
    }

    fn volumes(&self) -> &[String] {
        TraceReader::volumes(self)
    }
}

impl Requests for Generator {
    fn next_batch(&mut self, out: &mut Vec<Request>) -> Result<usize, Failure> {
        Ok(Generator::next_batch(self, out))
    }

    fn volumes(&self) -> &[String] {
        Generator::volumes(self)
    }
}

/// Whether something is there that would be lost. What goes into a pipe or /dev/null replaces nothing.
fn holds_data(target: &Path) -> bool {
    std::fs::metadata(target).is_ok_and(|metadata| {
        let kind = metadata.file_type();
        !kind.is_char_device() && !kind.is_fifo()
    })
}

/// Refuses to write where nobody would want it: over a file, or binary to a terminal.
pub(crate) fn check(target: &Path, format: WriteFormat, force: bool) -> Result<(), Failure> {
    if target.as_os_str() == "-" {
        if io::stdout().is_terminal() && matches!(format, WriteFormat::Forebay | WriteFormat::OracleGeneral) {
            return Err(Failure::usage("a binary trace is not written to a terminal")
                .with_hint("name a file with --output FILE"));
        }
        return Ok(());
    }
    check_replacing(target, force)
}

/// Refuses to write over a file unless that is wanted.
pub(crate) fn check_replacing(target: &Path, force: bool) -> Result<(), Failure> {
    if force || target.as_os_str() == "-" || !holds_data(target) {
        return Ok(());
    }
    Err(Failure::new(format!("`{}` exists", target.display())).with_hint("replace it with --force"))
}

/// Writes all of `requests` to `target`, `-` for standard output, and says what became of them.
pub(crate) fn write(requests: &mut impl Requests, target: &Path, format: WriteFormat) -> Result<(), Failure> {
    if target.as_os_str() == "-" {
        let written = copy(requests, format, Output::new())?.map_err(output_failure)?;
        tell(&written, "standard output");
        return Ok(());
    }
    let written = write_whole(target, |path| {
        // It is told by the name that was given, not by that of a part.
        let shown = target.display();
        let file = File::create(path).context(format_args!("cannot create `{shown}`"))?;
        let written = copy(requests, format, BufWriter::with_capacity(256 << 10, file))?;
        written.context(format_args!("cannot write `{shown}`"))
    })?;
    tell(&written, &target.display().to_string());
    Ok(())
}

/// Writes all of `requests` into `write`. The outer failure is the requests', the inner error the output's.
fn copy(
    requests: &mut impl Requests,
    format: WriteFormat,
    write: impl Write + 'static,
) -> Result<io::Result<Written>, Failure> {
    let mut writer = match TraceWriter::new(format, write) {
        Ok(writer) => writer,
        Err(error) => return Ok(Err(error)),
    };
    let mut batch = Vec::new();
    while requests.next_batch(&mut batch)? > 0 {
        if let Err(error) = writer.write(&batch, requests.volumes()) {
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
    if written.threads_lost > 0 {
        let lost = count(written.threads_lost);
        say(format_args!("{lost} requests lose their thread: the format records none"));
    }
    if written.operations_lost > 0 {
        let lost = count(written.operations_lost);
        say(format_args!("{lost} writes become reads: the format records no operation"));
    }
    if written.times_cut > 0 {
        let cut = count(written.times_cut);
        say(format_args!("{cut} requests are moved to the last time before theirs that the format can say"));
    }
    if written.latencies_lost > 0 {
        let lost = count(written.latencies_lost);
        say(format_args!("{lost} requests lose their latency: the format records none"));
    }
}
