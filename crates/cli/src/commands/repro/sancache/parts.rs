//! The runs of the evaluation: each is independent of the others, and they run on as many threads as there are processors.

use crate::commands::repro::jobs::side_by_side;
use crate::failure::Failure;
use crate::output::say;
use forebay_policy::placement::{Admission, GRID};
use forebay_sim::RunError;
use forebay_sim::sancache::{Bench, Isolation, IsolationSetup, LoadKind, PUBLISHED, RunRow};
use forebay_units::{Bytes, Nanos};
use serde::Serialize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// The layout of the JSON.
const SCHEMA: &str = "forebay.repro-sancache/1";

/// Everything that was found.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    schema: &'static str,
    pub(super) seed: u64,
    /// What the slides say, in words.
    pub(super) published: Vec<&'static str>,
    /// What is ours, in words.
    pub(super) assumptions: Vec<String>,
    pub(super) loads: Vec<LoadFound>,
    pub(super) isolation: IsolationFound,
}

/// A load with a tier of one size.
#[derive(Debug, Serialize)]
pub(super) struct LoadFound {
    pub(super) load: LoadKind,
    pub(super) name: &'static str,
    pub(super) requests_per_second: f64,
    pub(super) tier_bytes: u64,
    /// Without a tier.
    pub(super) without: RunRow,
    pub(super) rows: Vec<RunRow>,
    pub(super) verdict: Verdict,
}

/// Held against what is wanted.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    /// The fixed threshold with the best mean response time.
    pub(super) best_static: String,
    /// The adaptive one's mean response time over that one's.
    pub(super) mean_to_best_static: f64,
    /// Its migrated bytes over that one's.
    pub(super) migrated_to_best_static: f64,
    /// Its bytes written to flash over those of demand admission.
    pub(super) flash_to_demand: f64,
    /// Its read hits less those of demand admission.
    pub(super) hits_above_demand: f64,
    /// Its 99th percentile while the tier fills over that without a tier.
    pub(super) p99_filling_to_without: f64,
}

/// The isolation experiment.
#[derive(Debug, Serialize)]
pub(super) struct IsolationFound {
    pub(super) tier_bytes: u64,
    pub(super) array_cache_bytes: u64,
    /// The restored mean over that alone.
    pub(super) restored_to_alone: f64,
    #[serde(flatten)]
    pub(super) found: Isolation,
}

enum Part {
    Row(usize, Box<RunRow>),
    Isolation(Box<Isolation>),
}

/// Loads, their rates, and the sizes of tiers in MiB.
const FULL: [(LoadKind, f64, &[u64], u64); 5] = [
    (LoadKind::Phases, 800.0, &[256], 1_600),
    (LoadKind::Noisy, 800.0, &[256], 800),
    (LoadKind::Moving, 800.0, &[256], 800),
    (LoadKind::Spc1, 800.0, &[128, 256, 512, 1_024], 800),
    (LoadKind::Tpcc, 800.0, &[128, 256, 512, 1_024], 800),
];
const QUICK: [(LoadKind, f64, &[u64], u64); 1] = [(LoadKind::Spc1, 800.0, &[128], 60)];

/// Runs everything.
pub(super) fn run(seed: u64, quick: bool) -> Result<Found, Failure> {
    let loads: &[(LoadKind, f64, &[u64], u64)] = if quick { &QUICK } else { &FULL };
    let statics = GRID.iter().take(if quick { 3 } else { GRID.len() });
    let mut admissions: Vec<Option<Admission>> = vec![None, Some(Admission::Adaptive)];
    admissions.extend(statics.map(|count| Some(Admission::Threshold(*count))));
    admissions.extend([Admission::Demand, Admission::Larc, Admission::Lru].map(Some));
    let mut benches = Vec::new();
    for (kind, rate, sizes, seconds) in loads {
        let bench = Bench::new(*kind, *rate, Bytes::mib(sizes[0]), Nanos::secs(*seconds), seed);
        benches.extend(sizes.iter().map(|size| (*rate, bench.with_size(Bytes::mib(*size)))));
    }
    let isolation = IsolationSetup {
        rate: if quick { 200.0 } else { 800.0 },
        flood_rate: 5_000.0,
        flood_outstanding: 64,
        cache: Bytes::mib(256),
        tier: Bytes::gib(4),
        part: Nanos::secs(if quick { 20 } else { 300 }),
        seed,
    };
    let (benches, admissions) = (&benches, &admissions);
    let mut jobs: Vec<Box<dyn Fn() -> Result<Part, RunError> + Sync>> =
        vec![Box::new(move || Ok(Part::Isolation(Box::new(isolation.run()?))))];
    for (at, (_, bench)) in benches.iter().enumerate() {
        for admission in admissions {
            jobs.push(Box::new(move || Ok(Part::Row(at, Box::new(bench.run(*admission)?)))));
        }
    }
    let mut rows: Vec<Vec<RunRow>> = benches.iter().map(|_| Vec::new()).collect();
    let mut isolated = None;
    let (ended, began) = (AtomicUsize::new(0), Instant::now());
    let results = side_by_side(jobs.len(), |at| {
        let result = jobs[at]();
        let count = ended.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_multiple_of(10) {
            say(format_args!("{:>5.0} s  {count} of {} runs", began.elapsed().as_secs_f64(), jobs.len()));
        }
        result
    });
    for result in results {
        match result.map_err(|error| Failure::new(error.to_string()))? {
            Part::Row(at, row) => rows[at].push(*row),
            Part::Isolation(found) => isolated = Some(*found),
        }
    }
    let loads = benches.iter().zip(rows).map(|((rate, bench), rows)| load(bench, *rate, rows));
    let found = isolated.expect("the isolation experiment is one of the jobs");
    Ok(Found {
        schema: SCHEMA,
        seed,
        published: PUBLISHED.to_vec(),
        assumptions: assumptions(),
        loads: loads.collect(),
        isolation: IsolationFound {
            tier_bytes: isolation.tier.get(),
            array_cache_bytes: isolation.cache.get(),
            restored_to_alone: found.restored_ms / found.alone_ms,
            found,
        },
    })
}

fn load(bench: &Bench, rate: f64, mut rows: Vec<RunRow>) -> LoadFound {
    let without = rows.remove(0);
    let named = |name: &str| rows.iter().find(|row| row.admission.as_deref() == Some(name));
    let statics =
        rows.iter().filter(|row| row.admission.as_deref().is_some_and(|name| name.starts_with("threshold")));
    let best = statics.min_by(|a, b| a.mean_ms.total_cmp(&b.mean_ms)).expect("there are fixed thresholds");
    let adaptive = named("adaptive").expect("it was run");
    let demand = named("demand").expect("it was run");
    let ratio = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let verdict = Verdict {
        best_static: best.admission.clone().unwrap_or_default(),
        mean_to_best_static: adaptive.mean_ms / best.mean_ms,
        migrated_to_best_static: ratio(adaptive.migrated_bytes, best.migrated_bytes),
        flash_to_demand: ratio(adaptive.flash_bytes, demand.flash_bytes),
        hits_above_demand: adaptive.read_hits - demand.read_hits,
        p99_filling_to_without: adaptive.p99_filling_ms / without.p99_filling_ms,
    };
    LoadFound {
        load: bench.kind(),
        name: bench.kind().name(),
        requests_per_second: rate,
        tier_bytes: bench.size().get(),
        without,
        rows,
        verdict,
    }
}

fn assumptions() -> Vec<String> {
    [
        "Ours: an array of 12 disks of 15,000 turns in pairs, 64 MiB of cache (16 for the loads with phases, 256 for the isolation experiment), one solid-state disk as the tier, chunks of 64 KiB; \
         chunks that are placed live on the tier until they leave, writes included, as on the slides.",
        "SPC-1-like: its eight streams over three units by the specification's shares, read shares and sizes; its hierarchical reuse is Zipf's law (exponent 1) over scattered extents of 256 KiB. \
         TPC-C-like: pages of stock and customers of 80 warehouses by NURand, an order area and a log; the database's own cache is left out. 16 GiB, 800 requests/s at random instants.",
        "Noisy: 40 % of the accesses to 48 MiB that stay, 60 % in bursts of three within 64 KiB that never come back. Moving: 95 % to 192 MiB that are others every 15 s. Phases: both in turns of 200 s.",
        "Measured: the second half of a run, of phases all but the first two. Filling: the first two minutes. Migrated and written bytes: the whole run.",
        "Isolation: LUN1 is the first unit's four streams on 2 GiB at 800/s; the flood, as many writes as the array takes with 64 outstanding, begins after 300 s and the tier after 600 s; the last 300 of \
         1,800 s are measured.",
    ]
    .map(str::to_owned)
    .to_vec()
}
