//! The runs of the evaluation: each is independent of the others, and they run on as many threads as there are processors.

use crate::commands::repro::jobs::side_by_side;
use crate::commands::repro::recorded;
use crate::failure::Failure;
use crate::output::say;
use forebay_policy::placement::{Admission, GRID};
use forebay_sim::sancache::{Bench, Isolation, IsolationSetup, LoadKind, PUBLISHED, RunRow};
use forebay_sim::scenario::TierWrites;
use forebay_sim::{RecordedRequest, RunError};
use forebay_units::{Bytes, Nanos};
use serde::Serialize;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// The layout of the JSON.
const SCHEMA: &str = "forebay.repro-sancache/1";

/// Everything that was found.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    schema: &'static str,
    pub(super) seed: u64,
    /// What becomes of writes to chunks of the tier.
    pub(super) writes: TierWrites,
    /// What the slides say, in words.
    pub(super) published: Vec<&'static str>,
    /// What is ours, in words.
    pub(super) assumptions: Vec<String>,
    pub(super) loads: Vec<LoadFound>,
    /// None where traces are run.
    pub(super) isolation: Option<IsolationFound>,
    /// Files of the folder that are no load, and why.
    pub(super) left_out: Vec<(String, String)>,
}

/// A load with a tier of one size.
#[derive(Debug, Serialize)]
pub(super) struct LoadFound {
    pub(super) load: LoadKind,
    pub(super) name: String,
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
    /// Its migrated bytes over that one's. None if that moved nothing.
    pub(super) migrated_to_best_static: Option<f64>,
    /// Its bytes written to flash over those of demand admission. None if that wrote nothing.
    pub(super) flash_to_demand: Option<f64>,
    /// The same over those of demand admission in a tier of the size at which that has as many read hits; between two sizes in proportion. None if no size that was tried is large or small enough, or that wrote nothing.
    pub(super) flash_to_demand_at_equal_hits: Option<f64>,
    /// Where phases take turns, the best fixed threshold of each by itself.
    pub(super) best_by_phase: Option<[String; 2]>,
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
    /// Demand admission in a tier of another size, of the loads of this group.
    Demand(usize, Box<RunRow>),
    Isolation(Box<Isolation>),
}

/// Loads, their rates, and the sizes of tiers in MiB.
const FULL: [(LoadKind, f64, &[u64], u64); 6] = [
    (LoadKind::FarPhases, 2_000.0, &[256], 1_200),
    (LoadKind::Phases, 800.0, &[256], 1_600),
    (LoadKind::Noisy, 800.0, &[256], 800),
    (LoadKind::Moving, 800.0, &[256], 800),
    (LoadKind::Spc1, 800.0, &[128, 256, 512, 1_024], 800),
    (LoadKind::Tpcc, 800.0, &[128, 256, 512, 1_024], 800),
];
const QUICK: [(LoadKind, f64, &[u64], u64); 1] = [(LoadKind::Spc1, 800.0, &[128], 60)];

/// The rate of recorded loads, and how often it is halved at most until the array keeps up without a tier: what is shed, and what waits behind it, says nothing of placement.
const RECORDED_RATE: f64 = 400.0;
const RECORDED_HALVINGS: i32 = 5;
/// Sizes at which demand admission is run besides: of the smallest tier of a load the first ones, of the largest the others, as powers of two.
const DEMAND_SMALLER: [u32; 3] = [3, 2, 1];
const DEMAND_LARGER: [u32; 2] = [1, 2];

/// A load with a tier of one size.
struct Planned {
    name: String,
    rate: f64,
    bench: Bench,
    /// Loads of one group differ by the tier's size alone.
    group: usize,
}

fn planned(seed: u64, writes: TierWrites, quick: bool) -> Vec<Planned> {
    let loads: &[(LoadKind, f64, &[u64], u64)] = if quick { &QUICK } else { &FULL };
    let mut benches = Vec::new();
    for (group, (kind, rate, sizes, seconds)) in loads.iter().enumerate() {
        let bench = Bench::new(*kind, *rate, Bytes::mib(sizes[0]), Nanos::secs(*seconds), seed);
        let bench = bench.with_writes(writes);
        benches.extend(sizes.iter().map(|size| Planned {
            name: kind.name().to_owned(),
            rate: *rate,
            bench: bench.with_size(Bytes::mib(*size)),
            group,
        }));
    }
    benches
}

/// Other sizes of the tier, for demand admission, with their groups.
fn demand_benches(benches: &[Planned]) -> Vec<(usize, Bench)> {
    let groups = benches.last().map_or(0, |last| last.group + 1);
    let mut others = Vec::new();
    for group in 0..groups {
        let of = || benches.iter().filter(|planned| planned.group == group).map(|planned| &planned.bench);
        let (Some(smallest), Some(largest)) =
            (of().min_by_key(|bench| bench.size()), of().max_by_key(|bench| bench.size()))
        else {
            continue;
        };
        let sizes = DEMAND_SMALLER.iter().map(|shift| smallest.size().get() >> shift);
        let sizes = sizes.chain(DEMAND_LARGER.iter().map(|shift| largest.size().get() << shift));
        // A tier has at least 16 chunks here, and its device 8 GiB.
        let sizes = sizes.filter(|size| (1 << 20..=4 << 30).contains(size));
        others.extend(sizes.map(|size| (group, largest.with_size(Bytes(size)))));
    }
    others
}

/// Runs everything, on our loads or on the traces of a folder.
pub(super) fn run(
    seed: u64,
    writes: TierWrites,
    quick: bool,
    traces: Option<&Path>,
) -> Result<Found, Failure> {
    let statics = GRID.iter().take(if quick { 3 } else { GRID.len() });
    let mut admissions: Vec<Option<Admission>> = vec![None, Some(Admission::Adaptive)];
    admissions.extend(statics.map(|count| Some(Admission::Threshold(*count))));
    admissions.extend([Admission::Demand, Admission::Larc, Admission::Lru].map(Some));
    let recorded = traces.map(recorded::read).transpose()?;
    let benches = match &recorded {
        None => planned(seed, writes, quick),
        Some(recorded) => {
            let planned = side_by_side(recorded.traces.len(), |group| {
                let (name, requests) = &recorded.traces[group];
                let (rate, bench) = sustained(requests, writes, seed)?;
                Ok(Planned { name: name.clone(), rate, bench, group })
            });
            let planned: Result<Vec<Planned>, RunError> = planned.into_iter().collect();
            planned.map_err(|error| Failure::new(error.to_string()))?
        }
    };
    let others = if quick { Vec::new() } else { demand_benches(&benches) };
    let isolation = IsolationSetup {
        rate: 800.0,
        flood_rate: 5_000.0,
        flood_outstanding: 64,
        cache: Bytes::mib(256),
        tier: Bytes::gib(4),
        writes,
        part: Nanos::secs(if quick { 180 } else { 300 }),
        seed,
    };
    let (benches, admissions) = (&benches, &admissions);
    let mut jobs: Vec<Box<dyn Fn() -> Result<Part, RunError> + Sync>> = Vec::new();
    if traces.is_none() {
        jobs.push(Box::new(move || Ok(Part::Isolation(Box::new(isolation.run()?)))));
    }
    for (at, planned) in benches.iter().enumerate() {
        for admission in admissions {
            jobs.push(Box::new(move || Ok(Part::Row(at, Box::new(planned.bench.run(*admission)?)))));
        }
    }
    for (group, bench) in &others {
        jobs.push(Box::new(move || Ok(Part::Demand(*group, Box::new(bench.run(Some(Admission::Demand))?)))));
    }
    let mut demand: Vec<Vec<(f64, u64)>> = vec![Vec::new(); benches.len()];
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
            Part::Row(at, row) => {
                if row.admission.as_deref() == Some("demand") {
                    demand[benches[at].group].push((row.read_hits, row.flash_bytes));
                }
                rows[at].push(*row);
            }
            Part::Demand(group, row) => demand[group].push((row.read_hits, row.flash_bytes)),
            Part::Isolation(found) => isolated = Some(*found),
        }
    }
    let loads = benches.iter().zip(rows).map(|(planned, rows)| load(planned, rows, &demand[planned.group]));
    Ok(Found {
        schema: SCHEMA,
        seed,
        writes,
        published: PUBLISHED.to_vec(),
        assumptions: assumptions(writes),
        loads: loads.collect(),
        isolation: isolated.map(|found| IsolationFound {
            tier_bytes: isolation.tier.get(),
            array_cache_bytes: isolation.cache.get(),
            restored_to_alone: found.restored_ms / found.alone_ms,
            found,
        }),
        left_out: recorded.map(|recorded| recorded.left_out).unwrap_or_default(),
    })
}

/// A recorded load at the highest of the rates at which nothing is shed without a tier; at the lowest one if there is none.
fn sustained(requests: &[RecordedRequest], writes: TierWrites, seed: u64) -> Result<(f64, Bench), RunError> {
    let mut halvings = 0;
    loop {
        let rate = RECORDED_RATE / 2.0f64.powi(halvings);
        let bench = Bench::recorded(requests, rate, seed).with_writes(writes);
        if halvings == RECORDED_HALVINGS || bench.run(None)?.shed == 0 {
            return Ok((rate, bench));
        }
        halvings += 1;
    }
}

fn load(planned: &Planned, mut rows: Vec<RunRow>, demand_by_size: &[(f64, u64)]) -> LoadFound {
    let bench = &planned.bench;
    let without = rows.remove(0);
    let named = |name: &str| rows.iter().find(|row| row.admission.as_deref() == Some(name));
    let statics =
        rows.iter().filter(|row| row.admission.as_deref().is_some_and(|name| name.starts_with("threshold")));
    let best = statics.min_by(|a, b| a.mean_ms.total_cmp(&b.mean_ms)).expect("there are fixed thresholds");
    let adaptive = named("adaptive").expect("it was run");
    let demand = named("demand").expect("it was run");
    let verdict = Verdict {
        best_static: best.admission.clone().unwrap_or_default(),
        mean_to_best_static: adaptive.mean_ms / best.mean_ms,
        migrated_to_best_static: ratio(adaptive.migrated_bytes, best.migrated_bytes as f64),
        flash_to_demand: ratio(adaptive.flash_bytes, demand.flash_bytes as f64),
        flash_to_demand_at_equal_hits: written_at(demand_by_size, adaptive.read_hits)
            .and_then(|bytes| ratio(adaptive.flash_bytes, bytes)),
        best_by_phase: best_by_phase(bench, &rows),
        hits_above_demand: adaptive.read_hits - demand.read_hits,
        p99_filling_to_without: adaptive.p99_filling_ms / without.p99_filling_ms,
    };
    LoadFound {
        load: bench.kind(),
        name: planned.name.clone(),
        requests_per_second: planned.rate,
        tier_bytes: bench.size().get(),
        without,
        rows,
        verdict,
    }
}

/// Bytes over others; of none nothing is a multiple.
fn ratio(bytes: u64, others: f64) -> Option<f64> {
    (others > 0.0).then(|| bytes as f64 / others)
}

/// What demand admission writes to flash where it has this share of hits, by what it has and writes in tiers of several sizes.
fn written_at(by_size: &[(f64, u64)], hits: f64) -> Option<f64> {
    let mut points = by_size.to_vec();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let pair = points.windows(2).find(|pair| (pair[0].0..=pair[1].0).contains(&hits))?;
    let ((low, at_low), (high, at_high)) = (pair[0], pair[1]);
    let share = if high > low { (hits - low) / (high - low) } else { 0.0 };
    Some(at_low as f64 * (1.0 - share) + at_high as f64 * share)
}

/// The fixed threshold with the best mean of each of two phases that take turns.
fn best_by_phase(bench: &Bench, rows: &[RunRow]) -> Option<[String; 2]> {
    let mean = |row: &RunRow, phase: usize| {
        let of_phase = row.series.iter().filter(|at| bench.phase_at(at.at_s) == Some(phase));
        let means: Vec<f64> = of_phase.filter_map(|at| at.mean_ms).collect();
        (!means.is_empty()).then(|| means.iter().sum::<f64>() / means.len() as f64)
    };
    let best = |phase: usize| {
        let statics = rows.iter().filter_map(|row| {
            let name = row.admission.as_ref().filter(|name| name.starts_with("threshold"))?;
            Some((mean(row, phase)?, name))
        });
        statics.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name.clone())
    };
    Some([best(0)?, best(1)?])
}

fn assumptions(writes: TierWrites) -> Vec<String> {
    let taken = match writes {
        TierWrites::Home => {
            "chunks that are placed live on the tier until they leave, writes included, as on the slides."
        }
        TierWrites::Through => {
            "writes to chunks that are placed go to the array, and to their copies on the tier, too, as Forebay's daemon has it; on the slides chunks that are placed live on the tier until they leave."
        }
    };
    let array = format!(
        "Ours: an array of 12 disks of 15,000 turns in pairs, 64 MiB of cache (16 for the loads with phases and recorded ones, 256 for the isolation experiment), one solid-state disk as the tier, chunks of 64 KiB; \
         {taken}",
    );
    [
        array.as_str(),
        "SPC-1-like: its eight streams over three units by the specification's shares, read shares and sizes; its hierarchical reuse is Zipf's law (exponent 1) over scattered extents of 256 KiB. \
         TPC-C-like: pages of stock and customers of 80 warehouses by NURand, an order area and a log; the database's own cache is left out. 16 GiB, 800 requests/s at random instants.",
        "Noisy: 40 % of the accesses to 48 MiB that stay, 60 % in bursts of three within 64 KiB that never come back. Moving: 95 % to 192 MiB that are others every 15 s. Phases: both in turns of 200 s. Phases far apart: the same at 2,000 requests/s with bursts of five.",
        "Recorded: the busiest volume of a trace, zones of 1 MiB that it never touches left out, at 400 requests/s on average (sped up or slowed down), or half, a quarter, ... of that where the array would have to shed requests, a tier of a tenth of the chunks that it touches, 16 MiB of the array's cache.",
        "Measured: the second half of a run, of phases all but the first two. Filling: the first two minutes. Migrated and written bytes: the whole run.",
        "Isolation: LUN1 is the first unit's four streams on 2 GiB at 800/s; the flood, as many writes as the array takes with 64 outstanding, begins after 300 s and the tier after 600 s; the last 300 of \
         1,800 s are measured.",
    ]
    .map(str::to_owned)
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_no_multiple_of_nothing() {
        assert_eq!((ratio(3, 2.0), ratio(0, 2.0)), (Some(1.5), Some(0.0)));
        // Six chunks beside a fixed threshold that moves none are not 393,216 times as much.
        assert_eq!((ratio(393_216, 0.0), ratio(0, 0.0)), (None, None));
    }
}
