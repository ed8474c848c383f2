//! Opening traces: paths, folders and standard input become the named byte streams that `trace` reads.
//!
//! Decompression, archives and detection are `trace`'s; this is the only place where trace files are opened.

use crate::failure::{Context, Failure};
use crate::output::{count, say};
use crate::whole::{ANY, whole};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use forebay_trace::{
    BlockEvent, FORMATS, Format, Ids, ReadAhead, ReadOptions, Source, TimeUnit, TraceError, TraceReader,
};
use forebay_units::{BlockSize, Bytes};
use std::cmp::Ordering;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Which trace to read and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct InputArgs {
    /// Files of one trace, a folder of them, or `-` for standard input
    ///
    /// Files may be compressed (gzip, zstd, xz, bzip2) or stand in a tar archive. Of a folder, the blktrace files of one
    /// device (`NAME.blktrace.N`) are taken where there are any, else its CSV files where there are any, else all its files.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
}

/// How to read where a format leaves a choice.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Reading the trace")]
pub(crate) struct ReadingArgs {
    /// The trace's format [default: detected by content]
    #[arg(long, value_name = "FORMAT", value_parser = format_parser())]
    pub(crate) format: Option<Format>,

    /// Skip and count up to N malformed records instead of failing at the first [range: 0 to 2^64 - 1]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(ANY), default_value_t = 0)]
    pub(crate) skip_malformed: u64,

    /// What ids in oracleGeneral and LCS are: `sectors` of 512 bytes, `blocks` of the page size, or opaque `objects`
    #[arg(long, value_name = "IDS", default_value_t = Ids::Sectors)]
    pub(crate) ids: Ids,

    /// The page of formats that count pages, and of `--ids blocks|objects` [range: powers of two, 512B to 16MiB; default:
    /// the block size]
    #[arg(long, value_name = "SIZE", value_parser = parse_block_size)]
    pub(crate) page_size: Option<BlockSize>,

    /// Which event of blktrace and blkparse is a request: `queue` (Q, arrival) or `issue` (D, to the driver)
    #[arg(long, value_name = "EVENT", default_value_t = BlockEvent::Queue)]
    pub(crate) event: BlockEvent,

    /// What read-ahead is: `read`, `other` (kept apart) or `exclude` [default: `other` in blkreplay, `read` in blktrace and
    /// blkparse]
    #[arg(long, value_name = "WHAT")]
    pub(crate) read_ahead: Option<ReadAhead>,

    /// The unit of times that a format does not state: `ns`, `us`, `ms` or `s` [default: for DiskSim ms where the first times
    /// have a decimal point, else ns; for fio iolog version 3 us]
    #[arg(long, value_name = "UNIT")]
    pub(crate) time_unit: Option<TimeUnit>,
}

impl ReadingArgs {
    /// The options for `trace`; pages are blocks of `block_size` unless told otherwise.
    pub(crate) fn options(&self, block_size: BlockSize) -> ReadOptions {
        ReadOptions {
            format: self.format,
            skip_malformed: self.skip_malformed,
            ids: self.ids,
            page_size: self.page_size.unwrap_or(block_size),
            event: self.event,
            read_ahead: self.read_ahead,
            time_unit: self.time_unit,
        }
    }
}

fn format_parser() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(FORMATS.map(|format| PossibleValue::new(format.name).help(format.description)))
        .try_map(|name| name.parse::<Format>())
}

/// A block size from its text, for the command line.
pub(crate) fn parse_block_size(text: &str) -> Result<BlockSize, String> {
    let bytes: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    BlockSize::new(bytes).map_err(|error| error.to_string())
}

/// Opens `paths` as the sources of one trace.
pub(crate) fn open(paths: &[PathBuf]) -> Result<Vec<Source>, Failure> {
    let mut sources = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            if paths.len() > 1 {
                return Err(Failure::usage("`-` (standard input) cannot be combined with other paths"));
            }
            sources.push(Source::new("standard input", io::stdin()));
            continue;
        }
        let shown = path.display();
        let metadata = std::fs::metadata(path).context(format_args!("cannot open `{shown}`"))?;
        if metadata.is_dir() {
            for file in trace_files_of(path)? {
                sources.push(open_file(&file)?);
            }
        } else {
            sources.push(open_file(path)?);
        }
    }
    Ok(sources)
}

/// Opens the trace that `args` name; pages are blocks of `block_size` unless `args` say otherwise.
pub(crate) fn open_trace(args: &InputArgs, block_size: BlockSize) -> Result<TraceReader, Failure> {
    TraceReader::open(open(&args.paths)?, &args.reading.options(block_size)).map_err(trace_failure)
}

/// Says what the times of `reader`, which was read to its end, lost.
pub(crate) fn tell_early(reader: &TraceReader) {
    if reader.before_start() > 0 {
        say(format_args!(
            "note: {} requests, by {} at most, are earlier than all of the first 4,096: they are taken to be at the trace's start",
            count(reader.before_start()),
            reader.early_by()
        ));
    }
}

fn open_file(path: &Path) -> Result<Source, Failure> {
    let shown = path.display();
    // EMFILE on Linux: one trace of thousands of files, all of which are read side by side.
    let file = File::open(path).map_err(|error| {
        let failure = Failure::new(format!("cannot open `{shown}`: {error}"));
        if error.raw_os_error() == Some(24) {
            failure.with_hint("raise the limit with `ulimit -n`")
        } else {
            failure
        }
    })?;
    Ok(Source::new(shown.to_string(), file))
}

/// The files of the trace that the folder at `path` holds, in natural order of their names.
fn trace_files_of(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let shown = path.display();
    // With the name that is shown, as a file's own need not be text.
    let mut files: Vec<(String, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(path).context(format_args!("cannot read the folder `{shown}`"))? {
        let entry = entry.context(format_args!("cannot read the folder `{shown}`"))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Through links, as a file that is named on the command line would be.
        if !name.starts_with('.') && std::fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_file())
        {
            files.push((name, entry.path()));
        }
    }
    files.sort_by(|a, b| natural_order(&a.0, &b.0));
    let of_kind = |is_of_it: &dyn Fn(&str) -> bool| -> Vec<(String, PathBuf)> {
        files.iter().filter(|(name, _)| is_of_it(name)).cloned().collect()
    };
    let (per_cpu, csv) = (of_kind(&|name| blktrace_device(name).is_some()), of_kind(&is_csv));
    let chosen = if !per_cpu.is_empty() {
        let devices: Vec<&str> = per_cpu.iter().filter_map(|(name, _)| blktrace_device(name)).collect();
        if let Some(other) = devices.iter().find(|device| **device != devices[0]) {
            return Err(Failure::new(format!(
                "the folder `{shown}` holds blktrace files of several devices, `{}` and `{other}`",
                devices[0]
            ))
            .with_hint(format!("name the files of one: {shown}/{}.blktrace.*", devices[0])));
        }
        per_cpu
    } else if !csv.is_empty() {
        csv
    } else {
        files
    };
    if chosen.is_empty() {
        return Err(Failure::new(format!("the folder `{shown}` holds no file")));
    }
    Ok(chosen.into_iter().map(|(_, path)| path).collect())
}

/// The device of a per-CPU file `DEVICE.blktrace.CPU`.
fn blktrace_device(name: &str) -> Option<&str> {
    let (device, cpu) = name.split_once(".blktrace.")?;
    let digits = cpu.split('.').next().unwrap_or(cpu);
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some(device)
}

/// Whether `name` is that of a CSV file, perhaps compressed; Alibaba's list of devices is no trace.
fn is_csv(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let stem =
        [".gz", ".zst", ".xz", ".bz2"].into_iter().find_map(|end| lower.strip_suffix(end)).unwrap_or(&lower);
    stem.ends_with(".csv") && stem != "device_size.csv"
}

/// Text order in which runs of digits compare as numbers, so that CPU 10 comes after CPU 2.
fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a.as_bytes(), b.as_bytes());
    while let (Some(x), Some(y)) = (left.first(), right.first()) {
        if x.is_ascii_digit() && y.is_ascii_digit() {
            let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let (m, n) = (digits(left), digits(right));
            let number =
                |text: &[u8]| -> Vec<u8> { text.iter().copied().skip_while(|byte| *byte == b'0').collect() };
            let (p, q) = (number(&left[..m]), number(&right[..n]));
            let order = p.len().cmp(&q.len()).then_with(|| p.cmp(&q));
            if order != Ordering::Equal {
                return order;
            }
            (left, right) = (&left[m..], &right[n..]);
        } else if x != y {
            return x.cmp(y);
        } else {
            (left, right) = (&left[1..], &right[1..]);
        }
    }
    left.len().cmp(&right.len()).then_with(|| a.cmp(b))
}

/// The failure for an error of `trace`, with what to do next.
pub(crate) fn trace_failure(error: TraceError) -> Failure {
    failure_by(error, "--format", "--skip-malformed N")
}

/// The same where a file says how the trace is read, by keys.
pub(crate) fn trace_failure_by_keys(error: TraceError) -> Failure {
    failure_by(error, "`format`", "`skip_malformed`")
}

/// Likewise, where these say which format a trace has and how many bad records are left out.
fn failure_by(error: TraceError, format: &str, skip: &str) -> Failure {
    let hint = match &error {
        TraceError::Detect { .. } => {
            Some(format!("`forebay trace info --help` describes the formats that {format} takes"))
        }
        TraceError::MixedFormats { .. } => {
            Some("give the files of one trace, or convert each with `forebay trace convert`".to_owned())
        }
        TraceError::Malformed { skipped, .. } => Some(format!(
            "allow more than {skipped} such records with {skip}, or name another format with {format}"
        )),
        _ => None,
    };
    let failure = Failure::from(error);
    match hint {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_as_people_count() {
        let mut names = vec!["sdb.blktrace.10", "sdb.blktrace.2", "sdb.blktrace.0", "a", "sdb.blktrace.02"];
        names.sort_by(|a, b| natural_order(a, b));
        assert_eq!(names, ["a", "sdb.blktrace.0", "sdb.blktrace.02", "sdb.blktrace.2", "sdb.blktrace.10"]);
    }

    #[test]
    fn files_of_a_folder_are_told_by_their_names() {
        assert_eq!(blktrace_device("sdb.blktrace.12"), Some("sdb"));
        assert_eq!(blktrace_device("sdb.blktrace.12.gz"), Some("sdb"));
        assert_eq!(blktrace_device("sdb.blktrace.txt"), None);
        assert!(
            is_csv("hm_0.csv.gz") && is_csv("HM_0.CSV") && !is_csv("device_size.csv") && !is_csv("README.md")
        );
    }
}
