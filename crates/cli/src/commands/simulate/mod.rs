//! `forebay simulate`: what caches of given sizes under given policies would have missed of a trace.

mod accesses;
mod run;
mod show;

use super::mrc::{RequestsArg, UnitArg, check_sizes, parse_size};
use crate::failure::Failure;
use crate::input::{self, InputArgs, parse_block_size};
use crate::output::{self, OutputArgs, count, say, writable, write_chart};
use crate::whole::{ANY, whole};
use accesses::Splitter;
use forebay_cache::{Access, QUOTA_BLOCKS_MAX, SELECTABLE};
use forebay_locality::resolve_sizes;
use forebay_policy::{Future, PolicyKind};
use forebay_trace::{Ids, TraceReader};
use forebay_units::{BlockSize, Nanos, SizeSpec};
use run::{Crew, Job};
use std::path::PathBuf;
use std::sync::Arc;

/// Find what caches under other policies would have missed.
///
/// The caches are the daemon's own, without bytes; they are cold at the start, and every miss is filled. Requests are byte ranges; they are
/// split into blocks, and every block touched is one access. The trace is read once, whatever the number of policies and sizes. It is held in
/// memory (8 bytes per access) only where the future or the footprint must be known before the first access is made: for `belady`, and for
/// sizes that are shares. Requests without bytes touch no block: they are counted apart. Objects are not simulated by their sizes: every block, or object, takes one place.
#[derive(Debug, clap::Args)]
pub(crate) struct SimulateArgs {
    #[command(flatten)]
    input: InputArgs,

    /// Which policies, separated by commas: `fifo`, `clock`, `sieve`, `lru`, `slru`, `two-pool`, `2q`, `lfu`, `arc`, `arc-integer`, `lirs`,
    /// `s3-fifo`, `w-tinylfu`, `adaptive` (whichever of six suits best at the time, by miniature simulations), the bounds `none` (no cache) and `belady` (knows the future), or `all`
    #[arg(long, value_name = "POLICIES", value_delimiter = ',', default_value = "all", value_parser = parse_policy)]
    policy: Vec<Wanted>,

    /// The sizes of the caches, separated by commas
    ///
    /// Blocks (`1000`), bytes (`64MiB`; a block or more, rounded up to whole ones), a share of the footprint (`10%`), or of the mean working set over windows of a
    /// length (`0.5wss(600s)`).
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "1%,5%,10%,20%,50%", value_parser = parse_size)]
    sizes: Vec<SizeSpec>,

    /// The size of a block [range: powers of two, 512B to 16MiB]
    #[arg(long, value_name = "SIZE", default_value_t = BlockSize::DEFAULT, value_parser = parse_block_size, help_heading = "What is counted")]
    block: BlockSize,

    /// `all`: reads and writes are accesses; `reads`: writes are ignored; `read-hits`: writes fill, only reads are counted
    #[arg(long, value_enum, default_value_t = RequestsArg::All, help_heading = "What is counted")]
    requests: RequestsArg,

    /// `block`: an access per block touched; `request`: one per request, keyed by its first block, as object-cache simulators
    /// count [default: block; request with --ids objects]
    #[arg(long, value_enum, help_heading = "What is counted")]
    unit: Option<UnitArg>,

    /// Chooses how the index of each cache hashes, which no result depends on, and the blocks that `adaptive` samples [range: 0 to
    /// 2^64 - 1]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(ANY), default_value_t = 0)]
    seed: u64,

    #[command(flatten)]
    output: OutputArgs,

    /// Draw the miss ratios into this SVG file
    #[arg(long, value_name = "FILE", value_parser = writable(), help_heading = "Output")]
    svg: Option<PathBuf>,
}

/// What `--policy` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    All,
    One(Candidate),
}

/// A policy, or a bound on all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Candidate {
    /// No cache at all.
    None,
    Policy(PolicyKind),
    /// Whichever suits best at the time.
    Adaptive,
    /// The fewest misses that are possible.
    Belady,
}

impl Candidate {
    fn name(self) -> &'static str {
        match self {
            Candidate::None => "none",
            Candidate::Policy(kind) => kind.name(),
            Candidate::Adaptive => "adaptive",
            Candidate::Belady => "belady",
        }
    }
}

fn parse_policy(name: &str) -> Result<Wanted, String> {
    Ok(match name {
        "all" => Wanted::All,
        "none" => Wanted::One(Candidate::None),
        "adaptive" => Wanted::One(Candidate::Adaptive),
        "belady" => Wanted::One(Candidate::Belady),
        name => Wanted::One(Candidate::Policy(
            name.parse().map_err(|error| format!("{error}, adaptive, none, belady, all"))?,
        )),
    })
}

impl SimulateArgs {
    fn unit(&self) -> UnitArg {
        let objects = self.input.reading.ids == Ids::Objects;
        self.unit.unwrap_or(if objects { UnitArg::Request } else { UnitArg::Block })
    }

    /// The policies in the order they were named, each once; `all` is the bounds around all policies.
    fn candidates(&self) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for wanted in &self.policy {
            match wanted {
                Wanted::One(candidate) => candidates.push(*candidate),
                Wanted::All => {
                    candidates.push(Candidate::None);
                    candidates.extend(PolicyKind::ALL.map(Candidate::Policy));
                    candidates.extend([Candidate::Adaptive, Candidate::Belady]);
                }
            }
        }
        let mut seen = Vec::new();
        candidates.retain(|candidate| {
            let new = !seen.contains(candidate);
            seen.push(*candidate);
            new
        });
        candidates
    }

    /// Whether a cache can only be built once the whole trace is known.
    fn needs_all(&self, candidates: &[Candidate]) -> bool {
        let relative = |size: &SizeSpec| matches!(size, SizeSpec::Footprint(_) | SizeSpec::WorkingSet { .. });
        candidates.contains(&Candidate::Belady) || self.sizes.iter().any(relative)
    }

    fn windows(&self, has_time: bool) -> Result<Vec<Nanos>, Failure> {
        let windows = self.sizes.iter().filter_map(|size| match size {
            SizeSpec::WorkingSet { window, .. } => Some(*window),
            _ => None,
        });
        let mut windows: Vec<Nanos> = windows.collect();
        if !has_time && !windows.is_empty() {
            return Err(Failure::new("working sets are over windows of time, and this format has no times")
                .with_hint("give sizes in blocks, bytes or shares of the footprint (`10%`)"));
        }
        windows.sort_unstable();
        windows.dedup();
        Ok(windows)
    }
}

pub(crate) fn run(args: &SimulateArgs) -> Result<(), Failure> {
    let mut reader = input::open_trace(&args.input, args.block)?;
    let block_size = reader.natural_block().unwrap_or(args.block);
    check_sizes(&args.sizes, block_size)?;
    let windows = args.windows(reader.format().has_time())?;
    let mut splitter = Splitter::new(block_size, args.requests, args.unit(), &windows);
    let candidates = args.candidates();
    let outcomes = if args.needs_all(&candidates) {
        let mut batches = Vec::new();
        each_batch(&mut reader, &mut splitter, |batch| batches.push(batch))?;
        let sizes = sizes(args, block_size, &splitter)?;
        let future =
            candidates.contains(&Candidate::Belady).then(|| future_of(&batches, &splitter)).transpose()?;
        let crew = Crew::start(jobs(&candidates, &sizes, future.as_ref(), args.seed));
        batches.into_iter().for_each(|batch| crew.feed(&batch));
        crew.finish()
    } else {
        let sizes = sizes(args, block_size, &splitter)?;
        let crew = Crew::start(jobs(&candidates, &sizes, None, args.seed));
        each_batch(&mut reader, &mut splitter, |batch| crew.feed(&batch))?;
        crew.finish()
    };
    input::tell_early(&reader);
    if splitter.clipped() > 0 {
        say(format_args!(
            "{} requests of 4 GiB or more count as one of 4 GiB each: byte miss ratios are not theirs; `--unit block` counts all of their bytes",
            count(splitter.clipped())
        ));
    }
    if splitter.accesses() == 0 {
        return Err(args.requests.no_access(
            splitter.without_bytes(),
            reader.skipped(),
            "nothing to simulate",
        ));
    }
    let sizes = sizes(args, block_size, &splitter)?;
    let result = show::Shown {
        args,
        format: reader.format(),
        block_size,
        skipped: reader.skipped(),
        without_bytes: splitter.without_bytes(),
        accesses: splitter.accesses(),
        footprint_blocks: splitter.footprint_blocks(),
        sizes: &sizes,
        candidates: &candidates,
        outcomes: &outcomes,
    };
    output::show(
        |output| if args.output.json { output.json(&result.json()) } else { result.print(output) },
        || write_chart(args.svg.as_ref(), || result.chart()),
    )
}

/// Reads the trace to its end, and passes it on as accesses.
fn each_batch(
    reader: &mut TraceReader,
    splitter: &mut Splitter,
    mut pass_on: impl FnMut(Arc<[Access]>),
) -> Result<(), Failure> {
    let mut requests = Vec::new();
    while reader.next_batch(&mut requests).map_err(input::trace_failure)? > 0 {
        splitter.count_without_bytes(&requests);
        splitter.add_all(&requests, &mut pass_on)?;
    }
    splitter.rest().into_iter().for_each(pass_on);
    Ok(())
}

/// The sizes in blocks, in the order given. Shares need the whole trace behind them.
fn sizes(args: &SimulateArgs, block_size: BlockSize, splitter: &Splitter) -> Result<Vec<u64>, Failure> {
    let footprint = splitter.footprint_blocks();
    let sizes = resolve_sizes(&args.sizes, block_size, footprint, |window| splitter.working_set(window));
    match sizes.iter().find(|size| **size > QUOTA_BLOCKS_MAX) {
        Some(size) => Err(Failure::usage(format!(
            "a cache of {size} blocks is too large: expected at most {QUOTA_BLOCKS_MAX}"
        ))),
        None => Ok(sizes),
    }
}

fn future_of(batches: &[Arc<[Access]>], splitter: &Splitter) -> Result<Future, Failure> {
    let ranks = splitter.ranks();
    let accesses = batches.iter().flat_map(|batch| batch.iter());
    // An access that is not counted has no bytes.
    let blocks: Vec<(u32, bool)> =
        accesses.map(|access| (ranks.rank(access.block), access.bytes > 0)).collect();
    if blocks.len() >= u32::MAX as usize {
        return Err(Failure::new(format!(
            "`belady` knows the future of at most {} accesses, and the trace has {}",
            u32::MAX - 1,
            blocks.len()
        )));
    }
    Ok(Future::of_counted(blocks.into_iter()))
}

/// Every policy at every size, in this order.
fn jobs(candidates: &[Candidate], sizes: &[u64], future: Option<&Future>, seed: u64) -> Vec<Job> {
    let at = |candidate: &Candidate, size: u64| match (candidate, future) {
        (Candidate::Policy(kind), _) => Job::of(kind.new_policy(), size, seed),
        (Candidate::Adaptive, _) => Job::adaptive(&SELECTABLE, size, seed),
        (Candidate::Belady, Some(future)) => Job::belady(future.clone(), size, seed),
        (Candidate::None | Candidate::Belady, _) => Job::of(PolicyKind::Fifo.new_policy(), 0, seed),
    };
    candidates.iter().flat_map(|candidate| sizes.iter().map(|size| at(candidate, *size))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_by_name() {
        assert_eq!(parse_policy("arc"), Ok(Wanted::One(Candidate::Policy(PolicyKind::Arc))));
        assert_eq!(parse_policy("belady"), Ok(Wanted::One(Candidate::Belady)));
        let error = parse_policy("mru").unwrap_err();
        assert!(
            error.contains("`mru` is not a policy")
                && error.ends_with("w-tinylfu, adaptive, none, belady, all"),
            "{error}"
        );
    }
}
