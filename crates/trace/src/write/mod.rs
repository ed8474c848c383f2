//! Writers: one per format that `convert` can produce. Each takes requests and a `Write`; none opens files.
//!
//! Only our own format can say everything. What another cannot say is changed as little as possible and counted, or
//! left out and counted ([`Written`]); nothing is lost in silence.

mod fio_iolog;
mod forebay;
mod msr;
mod oracle_general;
mod spc;

pub use forebay::ForebayWriter;

use crate::{Request, ThreadNumber};
use forebay_units::Nanos;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

/// A format that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteFormat {
    /// Our own: everything is kept.
    Forebay,
    /// MSR Cambridge CSV: reads and writes; times in 100 ns from 1970-01-01 on; a volume `web_0` is disk 0 of host
    /// `web`, any other name `x` disk 0 of host `x`; all volumes in one file.
    Msr,
    /// SPC: reads and writes; the volume's number is the ASU; a start inside a 512-byte sector moves to its begin.
    Spc,
    /// fio iolog version 3: reads, writes, discards and flushes; times in microseconds.
    FioIolog,
    /// oracleGeneral: reads and writes, whose operation is lost; times in seconds; the id is the sector plus 2^44 times
    /// the volume's number (ours). The index of the next access is computed, so that 24 bytes per request and about 20
    /// per distinct id are held in memory until the end.
    OracleGeneral,
}

impl WriteFormat {
    /// The unit in which it says times.
    const fn time_unit(self) -> Nanos {
        match self {
            WriteFormat::Forebay | WriteFormat::Spc => Nanos(1),
            WriteFormat::Msr => Nanos(100),
            WriteFormat::FioIolog => Nanos::micros(1),
            WriteFormat::OracleGeneral => Nanos::secs(1),
        }
    }
}

/// Every format that can be written, by name.
pub const WRITE_FORMATS: [(WriteFormat, &str); 5] = [
    (WriteFormat::Forebay, "forebay"),
    (WriteFormat::Msr, "msr"),
    (WriteFormat::Spc, "spc"),
    (WriteFormat::FioIolog, "fio-iolog"),
    (WriteFormat::OracleGeneral, "oracle-general"),
];

/// A text that names no format that can be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{found}` is not a format that can be written: expected one of {}", WRITE_FORMATS.map(|format| format.1).join(", "))]
pub struct ParseWriteFormatError {
    /// What was found.
    pub found: String,
}

impl FromStr for WriteFormat {
    type Err = ParseWriteFormatError;

    fn from_str(text: &str) -> Result<WriteFormat, ParseWriteFormatError> {
        let found = WRITE_FORMATS.iter().find(|format| format.1.eq_ignore_ascii_case(text.trim()));
        found.map(|format| format.0).ok_or_else(|| ParseWriteFormatError { found: text.to_owned() })
    }
}

impl fmt::Display for WriteFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(WRITE_FORMATS[*self as usize].1)
    }
}

/// What became of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Requests in the output.
    pub requests: u64,
    /// Requests that the format cannot say: other operations than it knows, or no bytes.
    pub left_out: u64,
    /// Requests in the output whose range was widened, because it did not start on a sector.
    pub widened: u64,
    /// Requests given whose thread is known, and lost, because the format records none.
    pub threads_lost: u64,
    /// Requests given whose latency is known, and lost, because the format records none.
    pub latencies_lost: u64,
    /// Requests in the output that are no reads, and are taken for reads, because the format records no operation.
    pub operations_lost: u64,
    /// Requests given whose time is between two that the format can say, and is cut to the earlier.
    pub times_cut: u64,
}

/// What every writer does; `volumes` are the names so far, whose list may have grown since the last call.
trait Encode<W> {
    fn write(&mut self, requests: &[Request], volumes: &[String], written: &mut Written) -> io::Result<()>;
    fn finish(self: Box<Self>) -> io::Result<W>;
}

/// Writes a trace in any of the formats. [`TraceWriter::finish`] must be called.
pub struct TraceWriter<W: Write> {
    encoder: Box<dyn Encode<W>>,
    keeps_threads: bool,
    keeps_latencies: bool,
    time_unit: Nanos,
    written: Written,
}

impl<W: Write + 'static> TraceWriter<W> {
    /// Starts a trace in `format`. Give it a buffered writer; compression is the caller's.
    ///
    /// # Errors
    /// What `write` returns.
    pub fn new(format: WriteFormat, write: W) -> io::Result<TraceWriter<W>> {
        let encoder: Box<dyn Encode<W>> = match format {
            WriteFormat::Forebay => Box::new(ForebayWriter::new(write)?),
            WriteFormat::Msr => Box::new(msr::MsrWriter::new(write)),
            WriteFormat::Spc => Box::new(spc::SpcWriter::new(write)),
            WriteFormat::FioIolog => Box::new(fio_iolog::FioIologWriter::new(write)?),
            WriteFormat::OracleGeneral => Box::new(oracle_general::OracleGeneralWriter::new(write)),
        };
        Ok(TraceWriter {
            encoder,
            keeps_threads: format == WriteFormat::Forebay,
            keeps_latencies: matches!(format, WriteFormat::Forebay | WriteFormat::Msr),
            time_unit: format.time_unit(),
            written: Written::default(),
        })
    }

    /// Appends `requests`, whose volumes `volumes` names: the list of a reader, which may have grown since.
    ///
    /// # Errors
    /// `InvalidInput` for what the format can by no means say (each writer's limits are with [`WriteFormat`]), else
    /// what the underlying writer returns.
    pub fn write(&mut self, requests: &[Request], volumes: &[String]) -> io::Result<()> {
        if !self.keeps_threads {
            let known = requests.iter().filter(|request| request.thread != ThreadNumber::UNKNOWN);
            self.written.threads_lost += known.count() as u64;
        }
        if !self.keeps_latencies {
            let known = requests.iter().filter(|request| request.latency != Nanos::MAX);
            self.written.latencies_lost += known.count() as u64;
        }
        let is_cut = |request: &&Request| !request.time.0.is_multiple_of(self.time_unit.0);
        self.written.times_cut += requests.iter().filter(is_cut).count() as u64;
        self.encoder.write(requests, volumes, &mut self.written)
    }

    /// Writes what is left, flushes, and returns the underlying writer and what became of the requests.
    ///
    /// # Errors
    /// What the underlying writer returns.
    pub fn finish(self) -> io::Result<(W, Written)> {
        Ok((self.encoder.finish()?, self.written))
    }
}

/// Volume names made fit for a format; two volumes never get one name.
struct FittedNames {
    fit: fn(&str) -> String,
    names: Vec<String>,
    owners: HashMap<String, usize>,
}

impl FittedNames {
    fn new(fit: fn(&str) -> String) -> FittedNames {
        FittedNames { fit, names: Vec::new(), owners: HashMap::new() }
    }

    /// Takes the names that are new; returns the first of them.
    fn extend(&mut self, volumes: &[String]) -> io::Result<usize> {
        let known = self.names.len();
        for (number, volume) in volumes.iter().enumerate().skip(known) {
            let name = (self.fit)(volume);
            if let Some(owner) = self.owners.insert(name.clone(), number) {
                return Err(invalid(format!(
                    "volumes `{}` and `{volume}`, which would both be named `{name}` in this format",
                    volumes[owner]
                )));
            }
            self.names.push(name);
        }
        Ok(known)
    }

    fn of(&self, request: &Request) -> io::Result<&str> {
        let number = request.volume.0 as usize;
        self.names
            .get(number)
            .map(String::as_str)
            .ok_or_else(|| invalid(format!("volume {number} of {} volumes", self.names.len())))
    }
}

/// The sector at which the request starts and its bytes from there on.
fn from_sector(request: &Request, written: &mut Written) -> (u64, u64) {
    let inside = request.offset % 512;
    written.widened += u64::from(inside != 0);
    (request.offset / 512, request.length.saturating_add(inside))
}

fn invalid(found: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("cannot write {found}"))
}
