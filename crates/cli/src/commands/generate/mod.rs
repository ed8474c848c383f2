//! `forebay generate`: a trace from a few parameters.

mod slide;
mod specification;

use crate::document::Document;
use crate::failure::Failure;
use crate::trace_file;
use crate::whole::{ANY, whole};
use forebay_trace::{BATCH_REQUESTS, Request, WriteFormat};
use forebay_units::{Bytes, Nanos};
use forebay_workload::parametric;
use std::path::PathBuf;

/// Generate a trace from a specification of a few parameters.
///
/// A TOML file with loads: rates, ranges, patterns (uniform, Zipf, scans and loops, strides, hotspots, PRESTO's clusters), sizes, reads,
/// spans of time, daily curves; docs/reference/generate.md describes it. The YAML of PRESTO's slides is accepted too (a file that
/// ends in .yaml or .yml): one volume of clusters in hotspots. The same file and seed give the same trace.
#[derive(Debug, clap::Args)]
pub(crate) struct GenerateArgs {
    /// The specification, TOML or the slides' YAML; `-` for TOML from standard input
    #[arg(value_name = "SPEC")]
    specification: PathBuf,

    /// The file to write, `-` for standard output; must not exist unless --force
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,

    /// The format to write: `forebay`, `msr`, `spc`, `fio-iolog` (version 3) or `oracle-general`
    #[arg(long, value_name = "FORMAT", default_value_t = WriteFormat::Forebay)]
    format: WriteFormat,

    /// Replace the file if it exists
    #[arg(long)]
    force: bool,

    /// Span of the trace [default: what the specification says, else 1h]
    #[arg(long, value_name = "SPAN")]
    duration: Option<Nanos>,

    /// The size of the volume of the slides' YAML, which says none
    #[arg(long, value_name = "SIZE", default_value = "100GiB")]
    size: Bytes,

    /// Chooses everything random [range: 0 to 2^64 - 1]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(ANY), default_value_t = 1)]
    seed: u64,
}

/// Span where nobody says one.
const DURATION: Nanos = Nanos::secs(3_600);

pub(crate) fn run(args: &GenerateArgs) -> Result<(), Failure> {
    trace_file::check(&args.output, args.format, args.force)?;
    let document = Document::read(&args.specification)?;
    let extension = args.specification.extension().and_then(|extension| extension.to_str());
    let specification = match extension {
        Some("yaml" | "yml") => slide::parse(&document, args.size, args.duration.unwrap_or(DURATION))?,
        _ => specification::parse(&document, args.duration)?,
    };
    if specification.duration == Nanos::ZERO {
        return Err(Failure::new("the span of the trace is 0s, expected one above: nothing happens in none")
            .with_hint("set `duration` in the specification, or `--duration`"));
    }
    let mut requests = Generated(parametric::Requests::new(specification, args.seed));
    trace_file::write(&mut requests, &args.output, args.format)
}

/// Requests in batches.
struct Generated(parametric::Requests);

impl trace_file::Requests for Generated {
    fn next_batch(&mut self, out: &mut Vec<Request>) -> Result<usize, Failure> {
        out.clear();
        out.extend(self.0.by_ref().take(BATCH_REQUESTS));
        Ok(out.len())
    }

    fn volumes(&self) -> &[String] {
        self.0.volumes()
    }
}
