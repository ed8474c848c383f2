//! Prints what an order of loading that is learnt from visits brings over the daemon's own score: on PRESTO's volumes, and on recorded ones.
//!
//! `cargo run --release -p forebay-sim --example orders -- --seeds 682..684` runs PRESTO's volumes, `--learnt` with the learnt way and its rehearsal (minutes).
//! `--traces DIR` runs the recorded volumes of a folder, in blocks of 4 KiB, or with `--objects` in PRESTO's objects, as `forebay repro presto --traces` does: they fail at each of
//! `--cuts .3,.5,.7` of their time, and load as much as the daemon decides, in its bands, or with `--strict` strictly in the order of the score; `--only PART,PART` takes traces whose name
//! holds a PART. What a node that failed leaves are the daemon's snapshots, with numbers of visits that the daemon's do not have. Nothing random but PRESTO's seeds.

mod load;
mod node;
mod order;
mod pace;

use forebay_control::prewarm::{Heuristic, Takeover, TakeoverInput, decide_takeover};
use forebay_control::warmup::WarmupRules;
use forebay_sim::RecordedRequest;
use forebay_sim::presto::{
    Entry, Experiment, FAILURE, Goal, HM1_BYTES, HM3_BYTES, HORIZON, Load, Loading, Metric, SECONDS,
    SpanWeights, Way,
};
use forebay_units::Nanos;
use forebay_workload::presto::SYN6GB;
use load::{BLOCK_BYTES, Looks};
use node::{Cache, Left, Reached, serve_until, take_over};
use order::{Known, Order};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// PRESTO's cache, its limits, its rate, and its accesses between snapshots.
const CACHE_BYTES: u64 = 6 << 30;
const LIMITS: [u64; 4] = [5, 10, 25, 50];
const RATE: u64 = 100 << 20;
const SNAPSHOT_EVERY: usize = 100_000;
/// Rates at which the daemon was seen to load, and one above.
const SLOW_RATES: [u64; 3] = [1 << 20, 4 << 20, 16 << 20];
/// Rates of recorded volumes besides the one that is decided.
const TRACE_RATES: [u64; 2] = [1 << 20, 1 << 18];
/// The bytes of an object on average.
const OBJECT_BYTES: u64 = (HM1_BYTES + HM3_BYTES) / 2;

struct Asked {
    seeds: Vec<u64>,
    traces: Option<PathBuf>,
    only: Vec<String>,
    cuts: Vec<f64>,
    strict: bool,
    learnt: bool,
    objects: bool,
}

fn asked() -> Asked {
    let mut asked = Asked {
        seeds: vec![681],
        traces: None,
        only: Vec::new(),
        cuts: vec![0.3, 0.5, 0.7],
        strict: false,
        learnt: false,
        objects: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_else(|| panic!("`{word}` needs a value"));
        match word.as_str() {
            "--seeds" => asked.seeds = value().split(',').flat_map(seeds).collect(),
            "--traces" => asked.traces = Some(value().into()),
            "--only" => asked.only = value().split(',').map(str::to_owned).collect(),
            "--cuts" => asked.cuts = value().split(',').map(cut).collect(),
            "--strict" => asked.strict = true,
            "--learnt" => asked.learnt = true,
            "--objects" => asked.objects = true,
            other => panic!(
                "`{other}` is not known: expected --seeds, --traces, --only, --cuts, --strict, --learnt or --objects"
            ),
        }
    }
    asked
}

fn cut(part: &str) -> f64 {
    let found = part.parse().ok().filter(|share| (0.0..1.0).contains(share));
    found.unwrap_or_else(|| {
        panic!("`{part}` is no place in a trace: expected a share of its time, as in `.5`")
    })
}

/// A seed, or a range as in `682..684`, its end included.
fn seeds(part: &str) -> std::ops::RangeInclusive<u64> {
    let parse =
        |text: &str| text.parse().unwrap_or_else(|_| panic!("`{text}` is no seed: expected a number"));
    match part.split_once("..") {
        Some((first, last)) => parse(first)..=parse(last),
        None => parse(part)..=parse(part),
    }
}

/// Runs jobs on two threads, and gives what they found in their order.
fn side_by_side<T: Send>(count: usize, job: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < count);
        std::iter::from_fn(take).map(|at| (at, job(at))).collect::<Vec<_>>()
    };
    let mut all: Vec<(usize, T)> = std::thread::scope(|scope| {
        let threads = [scope.spawn(worker), scope.spawn(worker)];
        threads.into_iter().flat_map(|thread| thread.join().expect("a job ends")).collect()
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, found)| found).collect()
}

fn main() {
    let asked = asked();
    match &asked.traces {
        Some(folder) => recorded(folder, &asked),
        None => asked.seeds.iter().for_each(|seed| presto(*seed, asked.learnt)),
    }
}

fn row(name: &str, found: &[f64]) {
    let cells: Vec<String> = found.iter().map(|of| format!("{of:.3}")).collect();
    println!("  {name:55} {}", cells.join("  "));
}

fn presto(seed: u64, learnt: bool) {
    let end = FAILURE.saturating_add(Nanos::secs(u64::from(SECONDS)));
    let load = Load::generate(&SYN6GB, seed, end);
    // The slides' objects of two sizes by worth per byte, then one size alone, as a volume's blocks are.
    for both in [true, false] {
        presto_orders(seed, &load, both);
    }
    let experiment = Experiment::new(load, CACHE_BYTES, FAILURE);
    let failed = experiment.fail(&[SNAPSHOT_EVERY]);
    for metric in [Metric::LookUps, Metric::Both] {
        println!(
            "seed {seed}, as `forebay repro presto` does it, {metric:?}, mean over 5 minutes, at {LIMITS:?} %:"
        );
        let goal = Goal { metric, span: SpanWeights::Cumulative, horizon: HORIZON };
        let mut ways = vec![("cold", Way::Cold, Entry::Tail)];
        ways.extend(
            Heuristic::PUBLISHED.map(|score| (score.name(), Way::Scored(score, SNAPSHOT_EVERY), Entry::Head)),
        );
        ways.push(("fixed order by all visits", Way::Fixed(goal), Entry::Tail));
        if learnt {
            ways.push(("the learnt way", Way::Learnt(goal), Entry::Tail));
        }
        ways.push(("knows the future", Way::Ideal(goal), Entry::Tail));
        let found = side_by_side(ways.len() * LIMITS.len(), |at| {
            let (_, way, entry) = ways[at / LIMITS.len()];
            let limit = CACHE_BYTES / 100 * LIMITS[at % LIMITS.len()];
            goal.reached(&failed.run(way, Loading { limit, rate: Some(RATE), entry }).1)
        });
        ways.iter().zip(found.chunks(LIMITS.len())).for_each(|((name, ..), found)| row(name, found));
    }
}

/// All orders from the daemon's snapshots.
fn presto_orders(seed: u64, load: &Load, both: bool) {
    let looks = Looks::of_objects(load, both);
    let failure = looks.position((FAILURE.0 / 1_000_000) as u32);
    let left = serve_until(&looks, failure, CACHE_BYTES);
    let known = Known::new(&looks, failure, &left.snapshots);
    let (what, thing_bytes) = match both {
        true => ("both objects, worth per byte", OBJECT_BYTES),
        false => ("large objects alone", HM3_BYTES),
    };
    println!(
        "seed {seed}, {what}: look-ups found, mean over 5 minutes, at {LIMITS:?} % and 100 MiB/s | with half of the cache at 1, 4, 16 MiB/s | of the whole window likewise"
    );
    let found = side_by_side(Order::ALL.len(), |at| {
        let order = Order::ALL[at];
        let mut scored = known.scored(order);
        // Worth at a pace is not divided: then small ones would have it all.
        if both && !matches!(order, Order::Paced(_)) {
            scored.iter_mut().for_each(|(score, thing)| *score /= looks.bytes(*thing as u32) as f64);
        }
        let run = |percent: u64, rate: u64| {
            let (things, _) = known.order(order, &scored, usize::MAX, thing_bytes as f64 / rate as f64, true);
            let cache = Cache::new(&looks.kind, CACHE_BYTES);
            take_over(&looks, failure, cache, &things, CACHE_BYTES / 100 * percent, rate)
        };
        let slow = SLOW_RATES.map(|rate| run(50, rate));
        let fast = LIMITS.map(|percent| run(percent, RATE).mean);
        [
            fast.to_vec(),
            slow.iter().map(|run| run.mean).collect(),
            slow.iter().map(|run| run.window).collect(),
        ]
        .concat()
    });
    Order::ALL.iter().zip(found).for_each(|(order, found)| row(&order.name(), &found));
}

/// What the daemon decides: how much is loaded, and how fast.
fn decided(left: &Left, known: usize, capacity_bytes: u64, thing_bytes: u64) -> Takeover {
    let reused = |newest: &node::Snapshot| newest.told.iter().filter(|told| told.used_again).count() as u64;
    let input = TakeoverInput {
        blocks: known as u64,
        reused_blocks: left.snapshots.last().map_or(0, reused),
        working_set_blocks: left.lately_things,
        lookups_per_s: left.lately_looks as f64 / f64::from(HORIZON),
        hit_ratio: (left.lately_looks > 0).then(|| left.lately_hits as f64 / left.lately_looks as f64),
        hit_ratio_before: None,
        quota_blocks: capacity_bytes / thing_bytes,
        resident_blocks: 0,
        block_bytes: thing_bytes,
    };
    decide_takeover(&input, &WarmupRules::default())
}

/// What an order reached, by rate, and the reads that loading takes.
type OrderFound = (Vec<Reached>, usize);

/// A failure of a recorded volume.
struct VolumeFound {
    decision: String,
    cold: f64,
    warm: f64,
    /// By order; none if nothing is loaded.
    orders: Option<Vec<OrderFound>>,
}

fn recorded(folder: &Path, asked: &Asked) {
    let wanted = |name: &str| asked.only.is_empty() || asked.only.iter().any(|part| name.contains(part));
    let traces = load::recorded(folder, wanted);
    // Room for twice what was touched before the failure, and for half of it. PRESTO's cache has room for all.
    let shares: &[f64] = if asked.objects { &[2.0] } else { &[2.0, 0.5] };
    let of = |(name, requests)| {
        asked.cuts.iter().flat_map(move |cut| shares.iter().map(move |share| (name, requests, *cut, *share)))
    };
    let jobs: Vec<(&String, &Vec<RecordedRequest>, f64, f64)> =
        traces.iter().map(|(name, requests)| (name, requests)).flat_map(of).collect();
    let found = side_by_side(jobs.len(), |at| volume(jobs[at].1, jobs[at].2, jobs[at].3, asked));
    let mut by_volume: BTreeMap<&String, Vec<Vec<OrderFound>>> = BTreeMap::new();
    for ((name, _, cut, share), found) in jobs.iter().zip(found) {
        let Some(found) = found else {
            println!("{name}, fails at {cut}: left out, as it is too short");
            continue;
        };
        println!(
            "{name}, fails at {cut}, cache {share}: cold {:.4}, did not fail {:.4}: {}",
            found.cold, found.warm, found.decision
        );
        if let Some(orders) = found.orders {
            println!(
                "  as decided {:.4}, 1 MiB/s {:.4}, .25 MiB/s {:.4}",
                orders[0].0[0].window, orders[0].0[1].window, orders[0].0[2].window
            );
            by_volume.entry(name).or_default().push(orders);
        }
    }
    println!(
        "Above used-again: mean, and least to most, of the failures of each volume, as decided, at 1 MiB/s and at .25 MiB/s; blocks per read"
    );
    for (at, order) in Order::ALL.iter().enumerate() {
        println!("  {}", order.name());
        for (name, failures) in &by_volume {
            let cell = |rate: usize| {
                let gain = |orders: &Vec<OrderFound>| orders[at].0[rate].window - orders[0].0[rate].window;
                let gains: Vec<f64> = failures.iter().map(gain).collect();
                let (least, most) = (
                    gains.iter().fold(1.0, |a: f64, b| a.min(*b)),
                    gains.iter().fold(-1.0, |a: f64, b| a.max(*b)),
                );
                format!("{:+.4} ({least:+.4} to {most:+.4})", gains.iter().sum::<f64>() / gains.len() as f64)
            };
            let things: usize = failures.iter().map(|orders| orders[at].0[0].ordered).sum();
            let reads: usize = failures.iter().map(|orders| orders[at].1).sum();
            println!(
                "    {name:45} {:2}  {}  {:.1}",
                failures.len(),
                [0, 1, 2].map(cell).join("  "),
                things as f64 / reads.max(1) as f64
            );
        }
    }
}

/// `None` if it is too short.
fn volume(requests: &[RecordedRequest], cut: f64, share: f64, asked: &Asked) -> Option<VolumeFound> {
    let (looks, thing_bytes) = match asked.objects {
        true => (Looks::of_objects(&Load::recorded(requests), true), OBJECT_BYTES),
        false => (Looks::of_blocks(requests), BLOCK_BYTES),
    };
    let span = looks.span_millis();
    let at = (f64::from(span) * cut) as u32;
    if at < 120_000 || span - at < HORIZON * 1_000 {
        return None;
    }
    let failure = looks.position(at);
    let mut touched: Vec<u32> = looks.looks[..failure].iter().map(|look| look.thing).collect();
    touched.sort_unstable();
    touched.dedup();
    let capacity =
        if asked.objects { CACHE_BYTES } else { (touched.len() as f64 * share) as u64 * BLOCK_BYTES };
    let left = serve_until(&looks, failure, capacity);
    let known = Known::new(&looks, failure, &left.snapshots);
    let takeover = decided(&left, known.count(), capacity, thing_bytes);
    let new = || Cache::new(&looks.kind, capacity);
    let of_order = |order: Order, blocks: u64, decided: u64| {
        let scored = known.scored(order);
        let mut reads = 0;
        let run = |rate: u64| {
            let seconds_each = thing_bytes as f64 / rate as f64;
            let (things, needed) = known.order(order, &scored, blocks as usize, seconds_each, asked.strict);
            reads = needed;
            take_over(&looks, failure, new(), &things, u64::MAX, rate)
        };
        let runs = std::iter::once(decided).chain(TRACE_RATES).map(run).collect::<Vec<_>>();
        (runs, reads)
    };
    let orders = match takeover {
        Takeover::Skip(_) => None,
        Takeover::Load { blocks, bytes_per_second, .. } => {
            Some(Order::ALL.map(|order| of_order(order, blocks, bytes_per_second)).into())
        }
    };
    let cold = take_over(&looks, failure, new(), &[], 0, 0).window;
    let decision = takeover.summary("it", thing_bytes);
    let warm = take_over(&looks, failure, left.cache, &[], 0, 0).window;
    Some(VolumeFound { decision, cold, warm, orders })
}
