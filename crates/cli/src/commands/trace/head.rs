//! `forebay trace head`: the first requests, as they were understood.

use crate::failure::Failure;
use crate::input::{self, InputArgs};
use crate::output::{Output, OutputArgs};
use crate::whole::whole;
use forebay_report::Table;
use forebay_trace::{Operation, Request};
use forebay_units::{BlockSize, Nanos};
use serde::Serialize;

/// Print the first requests of a trace.
///
/// They come in the order in which they are read.
#[derive(Debug, clap::Args)]
pub(crate) struct HeadArgs {
    #[command(flatten)]
    input: InputArgs,

    /// How many requests [range: 1 to 1000000]
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = whole::<u64>(1..=1_000_000))]
    count: u64,

    #[command(flatten)]
    output: OutputArgs,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct HeadJson<'a> {
    schema: &'static str,
    format: &'a str,
    requests: Vec<RequestJson<'a>>,
}

/// One request.
#[derive(Debug, Serialize)]
struct RequestJson<'a> {
    time_s: f64,
    volume: &'a str,
    operation: &'static str,
    offset: u64,
    length: u64,
    latency_s: Option<f64>,
}

/// The operation in one word.
fn word(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "read",
        Operation::Write => "write",
        Operation::Flush => "flush",
        Operation::Discard => "discard",
        Operation::Other => "other",
    }
}

pub(crate) fn run(args: &HeadArgs) -> Result<(), Failure> {
    let mut reader = input::open_trace(&args.input, BlockSize::DEFAULT)?;
    let wanted = args.count as usize;
    let mut requests: Vec<Request> = Vec::new();
    let mut batch = Vec::new();
    while requests.len() < wanted {
        let result = reader.next_batch(&mut batch);
        requests.extend(batch.iter().take(wanted - requests.len()));
        // A malformed record behind the requests that are asked for is not met.
        if requests.len() < wanted && result.map_err(input::trace_failure)? == 0 {
            break;
        }
    }
    let mut output = Output::new();
    if args.output.json {
        let row = |request: &Request| RequestJson {
            time_s: request.time.as_secs_f64(),
            volume: reader.volume_name(request.volume),
            operation: word(request.operation),
            offset: request.offset,
            length: request.length,
            latency_s: (request.latency != Nanos::MAX).then(|| request.latency.as_secs_f64()),
        };
        output.json(&HeadJson {
            schema: "forebay.trace-head/1",
            format: reader.format().name(),
            requests: requests.iter().map(row).collect(),
        })?;
    } else {
        let mut table = Table::new([">time (s)", "volume", "operation", ">offset", ">length", ">latency"]);
        for request in &requests {
            let latency =
                if request.latency == Nanos::MAX { "-".to_owned() } else { request.latency.to_string() };
            table.push([
                format!("{:.6}", request.time.as_secs_f64()),
                reader.volume_name(request.volume).to_owned(),
                word(request.operation).to_owned(),
                request.offset.to_string(),
                request.length.to_string(),
                latency,
            ]);
        }
        output.table(&table)?;
    }
    output.finish()
}
