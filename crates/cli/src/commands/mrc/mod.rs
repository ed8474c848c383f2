//! `forebay mrc`: how the miss ratio falls with the size of the cache.

mod measure;
mod show;

use crate::failure::Failure;
use crate::input::{self, InputArgs, parse_block_size};
use crate::output::{self, OutputArgs, count, say, writable, write_chart};
use crate::whole::{ANY, whole};
use forebay_locality::{CurveOptions, Method, Requests, Unit};
use forebay_trace::{Ids, Operation, Request};
use forebay_units::{BlockSize, Bytes, Nanos, SizeSpec};
use measure::{Measurement, Tracker};
use std::path::PathBuf;

/// Find how the miss ratio falls with the size of the cache.
///
/// Requests are byte ranges; they are split into blocks, and every block touched is one access. Traces that count pages take
/// a page as a block. Requests without bytes touch no block: they are counted apart. Miss ratios are 0 to 1; first touches are misses at every
/// size.
#[derive(Debug, clap::Args)]
pub(crate) struct MrcArgs {
    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    counting: CountingArgs,

    #[command(flatten)]
    estimating: EstimatingArgs,

    /// Exactly these cache sizes, separated by commas [default: a selection up to the footprint]
    ///
    /// Blocks (`1000`), bytes (`64MiB`; a block or more, rounded up to whole ones), a share of the footprint (`10%`), or of the mean working set over windows of a
    /// length (`0.5wss(600s)`). Without this, the table has shares of the footprint, and JSON the curve in at most 200 points, an
    /// exact one thinned with the error stated.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_size)]
    sizes: Vec<SizeSpec>,

    /// Measure the working set over windows of this length too, as in `600s`; may be repeated [default: none, for it costs more
    /// than the curve; range: above 0]
    ///
    /// Windows follow on each other from the first access on. What comes after the last whole one is left out, as a part of a window holds less; a
    /// trace that is shorter than a window is measured as one. Both are told.
    #[arg(long, value_name = "WINDOW", value_parser = parse_window)]
    wss: Vec<Nanos>,

    #[command(flatten)]
    output: OutputArgs,

    /// Draw the curve into this SVG file
    #[arg(long, value_name = "FILE", value_parser = writable(), help_heading = "Output")]
    svg: Option<PathBuf>,

    /// Draw sizes on a logarithmic axis
    #[arg(long, requires = "svg", help_heading = "Output")]
    log_sizes: bool,
}

/// What counts as an access.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What is counted")]
struct CountingArgs {
    /// The size of a block [range: powers of two, 512B to 16MiB]
    #[arg(long, value_name = "SIZE", default_value_t = BlockSize::DEFAULT, value_parser = parse_block_size)]
    block: BlockSize,

    /// `all`: reads and writes are accesses; `reads`: writes are ignored; `read-hits`: writes fill, only reads are counted
    #[arg(long, value_enum, default_value_t = RequestsArg::All)]
    requests: RequestsArg,

    /// `block`: an access per block touched; `request`: one per request, keyed by its first block, as object-cache simulators
    /// count [default: block; request with --ids objects]
    #[arg(long, value_enum)]
    unit: Option<UnitArg>,

    /// `requests`: every access counts one, misses per access; `bytes`: it counts its bytes, misses per byte
    #[arg(long, value_enum, default_value_t = WeightArg::Requests)]
    weight: WeightArg,

    /// A curve for each volume besides the one for all
    #[arg(long, value_enum)]
    per: Option<PerArg>,
}

/// How the curve is found.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "How it is found")]
struct EstimatingArgs {
    /// `exact`: one pass, 24 to 60 bytes per distinct block; `shards`: a sample of the blocks; `aet`: from reuse times;
    /// `wss`: from the working set's derivative, the papers' baseline
    #[arg(long, value_enum, default_value_t = MethodArg::Exact)]
    method: MethodArg,

    /// Share of the blocks that `shards` and `aet` sample [range: above 0, at most 1; default: `aet` 1]
    #[arg(long, value_name = "R", value_parser = parse_rate)]
    rate: Option<f64>,

    /// Memory of `shards` in place of a fixed rate [range: 32KiB to 256KiB, which hold about 1,400 to 20,000 samples; default: 256KiB,
    /// without --rate]
    #[arg(long, value_name = "SIZE", conflicts_with = "rate", value_parser = parse_memory)]
    memory: Option<Bytes>,

    /// Chooses which blocks are sampled [range: 0 to 2^64 - 1]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(ANY), default_value_t = 0)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum RequestsArg {
    All,
    Reads,
    ReadHits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum UnitArg {
    Block,
    Request,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum WeightArg {
    Requests,
    Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PerArg {
    Volume,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum MethodArg {
    Exact,
    Shards,
    Aet,
    Wss,
}

impl RequestsArg {
    /// How many of `requests` would be accesses if they had bytes.
    pub(super) fn without_bytes(self, requests: &[Request]) -> u64 {
        let is_one = |request: &&Request| {
            request.length == 0
                && match request.operation {
                    Operation::Read => true,
                    Operation::Write => self != RequestsArg::Reads,
                    Operation::Flush | Operation::Discard | Operation::Other => false,
                }
        };
        requests.iter().filter(is_one).count() as u64
    }

    /// What is said of a trace in which nothing counts, so that `nothing` is to be done.
    pub(super) fn no_access(self, without_bytes: u64, skipped: u64, nothing: &str) -> Failure {
        let failure = Failure::new(format!("the trace holds no access that counts, so there is {nothing}"));
        if skipped > 0 {
            let skipped = count(skipped);
            return failure.with_hint(format!(
                "{skipped} malformed records were skipped; name another format with --format"
            ));
        }
        match (self, without_bytes) {
            (RequestsArg::All, 0) => failure,
            (RequestsArg::All, _) => failure.with_hint(format!("{without_bytes} requests have no bytes")),
            _ => failure.with_hint("count writes too with --requests all"),
        }
    }
}

/// The memory of `shards` where neither rate nor memory is given: all that it can use.
const SHARDS_MEMORY: Bytes = Bytes::kib(256);

pub(super) fn parse_size(text: &str) -> Result<SizeSpec, String> {
    match text.parse().map_err(|error| format!("{error}"))? {
        SizeSpec::Blocks(0) | SizeSpec::Bytes(Bytes::ZERO) => {
            Err("a cache of size 0 misses always: expected a size above 0".into())
        }
        size => Ok(size),
    }
}

/// Whether each of `sizes` that is said in bytes holds a block: one that does not would be rounded up to something else than was asked for.
///
/// # Errors
/// A wrong command line, with the first that does not.
pub(super) fn check_sizes(sizes: &[SizeSpec], block_size: BlockSize) -> Result<(), Failure> {
    let too_small = sizes.iter().find_map(|size| match size {
        SizeSpec::Bytes(bytes) if bytes.get() < block_size.bytes() => Some(bytes),
        _ => None,
    });
    match too_small {
        Some(bytes) => Err(Failure::usage(format!(
            "a cache of {} bytes holds no block of {} bytes: expected a block or more in `--sizes`, or a smaller `--block`",
            bytes.get(),
            block_size.bytes()
        ))),
        None => Ok(()),
    }
}

fn parse_window(text: &str) -> Result<Nanos, String> {
    match text.parse() {
        Ok(Nanos::ZERO) => Err("a window must be longer than 0".into()),
        Ok(window) => Ok(window),
        Err(error) => Err(format!("{error}")),
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().map_err(|error| error.to_string())?;
    if rate > 0.0 && rate <= 1.0 {
        Ok(rate)
    } else {
        Err(format!("{rate} is out of range: expected above 0, at most 1"))
    }
}

fn parse_memory(text: &str) -> Result<Bytes, String> {
    let memory: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    if (Bytes::kib(32)..=Bytes::kib(256)).contains(&memory) {
        Ok(memory)
    } else {
        Err(format!("{memory} is out of range: expected 32KiB to 256KiB"))
    }
}

impl MrcArgs {
    fn method(&self) -> Result<Method, Failure> {
        let EstimatingArgs { method, rate, memory, .. } = self.estimating;
        if memory.is_some() && method != MethodArg::Shards {
            return Err(Failure::usage("--memory is for --method shards"));
        }
        if rate.is_some() && matches!(method, MethodArg::Exact | MethodArg::Wss) {
            return Err(Failure::usage("--rate is for --method shards and --method aet"));
        }
        Ok(match (method, rate) {
            (MethodArg::Exact, _) => Method::Exact,
            (MethodArg::Wss, _) => Method::WorkingSet,
            (MethodArg::Aet, rate) => Method::Aet(rate.unwrap_or(1.0)),
            (MethodArg::Shards, Some(rate)) => Method::ShardsRate(rate),
            (MethodArg::Shards, None) => Method::ShardsSize(memory.unwrap_or(SHARDS_MEMORY)),
        })
    }

    fn unit(&self) -> UnitArg {
        let objects = self.input.reading.ids == Ids::Objects;
        self.counting.unit.unwrap_or(if objects { UnitArg::Request } else { UnitArg::Block })
    }
}

pub(crate) fn run(args: &MrcArgs) -> Result<(), Failure> {
    let method = args.method()?;
    let mut reader = input::open_trace(&args.input, args.counting.block)?;
    let block_size = reader.natural_block().unwrap_or(args.counting.block);
    check_sizes(&args.sizes, block_size)?;
    let options = CurveOptions {
        method,
        requests: match args.counting.requests {
            RequestsArg::All => Requests::All,
            RequestsArg::Reads => Requests::Reads,
            RequestsArg::ReadHits => Requests::ReadHits,
        },
        unit: match (args.unit(), args.counting.weight) {
            (UnitArg::Request, _) => Unit::Request,
            (UnitArg::Block, WeightArg::Requests) => Unit::Block,
            (UnitArg::Block, WeightArg::Bytes) => Unit::Byte,
        },
        block_size,
        seed: args.estimating.seed,
    };
    let windows = windows(args, reader.format().has_time())?;
    let request_bytes = args.unit() == UnitArg::Request && args.counting.weight == WeightArg::Bytes;
    let new_tracker = || Tracker::new(options, request_bytes, &windows);
    let mut all = new_tracker();
    let mut per_volume: Vec<Tracker> = Vec::new();
    let mut batch = Vec::new();
    let mut without_bytes = 0;
    while reader.next_batch(&mut batch).map_err(input::trace_failure)? > 0 {
        all.add(&batch);
        without_bytes += args.counting.requests.without_bytes(&batch);
        if args.counting.per.is_some() {
            per_volume.resize_with(reader.volumes().len(), new_tracker);
            for request in
                batch.iter().filter(|request| matches!(request.operation, Operation::Read | Operation::Write))
            {
                per_volume[request.volume.0 as usize].add_alone(request);
            }
        }
    }
    input::tell_early(&reader);
    let skipped = reader.skipped();
    let all = all.finish("all".to_owned(), &args.sizes, block_size);
    if all.accesses == 0 {
        return Err(args.counting.requests.no_access(without_bytes, skipped, "no curve"));
    }
    let volumes: Vec<Measurement> = per_volume
        .into_iter()
        .zip(reader.volumes())
        .map(|(tracker, name)| tracker.finish(name.clone(), &args.sizes, block_size))
        .collect();
    warn_of_small_samples(method, &all);
    let result = show::Shown {
        args,
        method,
        format: reader.format(),
        block_size,
        skipped,
        without_bytes,
        all: &all,
        volumes: &volumes,
    };
    output::show(
        |output| if args.output.json { output.json(&result.json()) } else { result.print(output) },
        || write_chart(args.svg.as_ref(), || result.chart()),
    )
}

/// The windows over which working sets are measured: those asked for, and those that sizes refer to.
fn windows(args: &MrcArgs, has_time: bool) -> Result<Vec<Nanos>, Failure> {
    let of_sizes = args.sizes.iter().filter_map(|size| match size {
        SizeSpec::WorkingSet { window, .. } => Some(*window),
        _ => None,
    });
    let mut windows: Vec<Nanos> = args.wss.iter().copied().chain(of_sizes).collect();
    if !has_time && !windows.is_empty() {
        return Err(Failure::new("working sets are over windows of time, and this format has no times")
            .with_hint("give sizes in blocks, bytes or shares of the footprint (`10%`)"));
    }
    windows.sort_unstable();
    windows.dedup();
    Ok(windows)
}

/// Below this many sampled blocks a curve is called rough (ours).
const SAMPLES_FEW: u64 = 1_000;

fn warn_of_small_samples(method: Method, all: &Measurement) {
    let rate = match method {
        Method::ShardsRate(rate) | Method::Aet(rate) if rate < 1.0 => rate,
        _ => return,
    };
    let sampled = (all.footprint_blocks as f64 * rate) as u64;
    if sampled < SAMPLES_FEW {
        say(format_args!(
            "note: only about {sampled} blocks were sampled, so the curve is rough; raise --rate, or use --method shards without it"
        ));
    }
}
