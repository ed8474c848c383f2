//! `forebay trace info`: what is in a trace, counted in one pass.

use crate::failure::Failure;
use crate::input::{self, InputArgs};
use crate::output::{Output, OutputArgs, bytes, count};
use forebay_report::Table;
use forebay_trace::TraceInfo;
use forebay_units::{BlockSize, Nanos};
use serde::Serialize;

/// Count what is in a trace: requests, bytes, volumes, time, distinct blocks.
///
/// Reads all of it.
#[derive(Debug, clap::Args)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct InfoJson<'a> {
    schema: &'static str,
    format: &'a str,
    requests: u64,
    reads: u64,
    writes: u64,
    other: u64,
    flushes: u64,
    skipped: u64,
    ignored: u64,
    before_start: u64,
    duration_s: f64,
    volumes: usize,
    volume_names: &'a [String],
    bytes_read: u64,
    bytes_written: u64,
    footprint_blocks: u64,
    footprint_block_bytes: u64,
}

pub(crate) fn run(args: &InfoArgs) -> Result<(), Failure> {
    let mut reader = input::open_trace(&args.input, BlockSize::DEFAULT)?;
    let info = TraceInfo::of(&mut reader).map_err(input::trace_failure)?;
    let block_size = reader.natural_block().unwrap_or(BlockSize::DEFAULT);
    let mut output = Output::new();
    if args.output.json {
        output.json(&InfoJson {
            schema: info.schema,
            format: info.format,
            requests: info.requests,
            reads: info.reads,
            writes: info.writes,
            other: info.other,
            flushes: info.flushes,
            skipped: info.skipped,
            ignored: info.ignored,
            before_start: info.before_start,
            duration_s: info.duration_s,
            volumes: info.volumes.len(),
            volume_names: &info.volumes,
            bytes_read: info.bytes_read,
            bytes_written: info.bytes_written,
            footprint_blocks: info.footprint_blocks,
            footprint_block_bytes: block_size.bytes(),
        })?;
    } else {
        output.table(&table(&info, block_size, reader.format().has_time()))?;
    }
    output.finish()
}

fn table(info: &TraceInfo, block_size: BlockSize, has_time: bool) -> Table {
    let mut table = Table::new(["what", ">count", "remark"]);
    let share = |part: u64| {
        if info.requests == 0 {
            String::new()
        } else {
            format!("{:.1}%", part as f64 * 100.0 / info.requests as f64)
        }
    };
    table.push(["format", info.format, ""]);
    table.push(["requests".to_owned(), count(info.requests), String::new()]);
    table.push([
        "  reads".to_owned(),
        count(info.reads),
        format!("{} of {}", share(info.reads), bytes(info.bytes_read)),
    ]);
    table.push([
        "  writes".to_owned(),
        count(info.writes),
        format!("{} of {}", share(info.writes), bytes(info.bytes_written)),
    ]);
    table.push(["  other".to_owned(), count(info.other), "discards, flushes, unnamed operations".to_owned()]);
    if info.skipped > 0 {
        table.push(["skipped".to_owned(), count(info.skipped), "malformed records".to_owned()]);
    }
    if info.ignored > 0 {
        table.push(["ignored".to_owned(), count(info.ignored), "records that are no requests".to_owned()]);
    }
    let rate = if info.duration_s > 0.0 {
        format!("{:.1} requests/s", info.requests as f64 / info.duration_s)
    } else if has_time {
        String::new()
    } else {
        "the format has no times".to_owned()
    };
    table.push(["duration".to_owned(), Nanos::from_secs_f64(info.duration_s).to_string(), rate]);
    if info.before_start > 0 {
        let early = "earlier than all of the first 4,096 requests: working sets, models and copies have them at the start";
        table.push(["  too early".to_owned(), count(info.before_start), early.to_owned()]);
    }
    let mut names: Vec<&str> = info.volumes.iter().take(4).map(String::as_str).collect();
    if info.volumes.len() > names.len() {
        names.push("...");
    }
    table.push(["volumes".to_owned(), count(info.volumes.len() as u64), names.join(", ")]);
    table.push([
        "footprint".to_owned(),
        count(info.footprint_blocks),
        format!(
            "distinct blocks of {block_size}: {}",
            bytes(info.footprint_blocks.saturating_mul(block_size.bytes()))
        ),
    ]);
    table
}
