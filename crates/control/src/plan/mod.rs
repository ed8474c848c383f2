//! Planning offline: from loads, curves and objectives to cache sizes.
//!
//! The same model, sizing, ranking and allocation as the live controller, asked for every window of the loads instead
//! of the last interval. It is *not* a simulation: within a window loads are steady, caches are warm, and a backlog
//! does not carry over. Invariant: an allocation within a budget never exceeds it.

mod input;
mod output;
mod stage;

pub use input::{
    CacheTiers, FlashTier, PlanInput, PlanLoad, PlanOrigin, PlanVolume, StorageModel, WindowLoad,
};
pub use output::{
    Allocation, MissedObjective, ObjectiveOutcome, ObjectivePlan, OriginPlan, Performance, Plan,
    PlannedCache, PlannedSolution, Remedy, Unmet, VolumePlan,
};

use crate::allocation::{Claim, allocate, coupled};
use crate::objective::ObjectiveError;
use crate::sizing::{candidates, smallest, useful_max};
use crate::solutions::{Tenant, rank};
use forebay_units::Bytes;
use stage::{Evaluation, Stage};

/// Why no plan can be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Two volumes or two origins have one name.
    #[error("the name `{name}` is used twice")]
    NameTwice {
        /// The name.
        name: String,
    },
    /// A volume names an origin that is not there.
    #[error("volume `{volume}` lies on origin `{origin}`, which is not among the origins")]
    UnknownOrigin {
        /// The volume.
        volume: String,
        /// The name.
        origin: String,
    },
    /// Volumes of one origin have windows of different lengths.
    #[error(
        "volume `{volume}` has windows of {found_s} s, expected {expected_s} s as of the other volumes of its origin"
    )]
    WindowsDiffer {
        /// The volume.
        volume: String,
        /// Its windows.
        found_s: f64,
        /// Those of the others.
        expected_s: f64,
    },
    /// An objective cannot be judged.
    #[error("volume `{volume}` has an objective that cannot be judged")]
    Objective {
        /// The volume.
        volume: String,
        /// What is wrong with it.
        source: ObjectiveError,
    },
    /// A number is outside its range.
    #[error("`{field}` is {found}, expected {expected}")]
    OutOfRange {
        /// Which.
        field: &'static str,
        /// What it is.
        found: f64,
        /// What it may be.
        expected: &'static str,
    },
    /// The guaranteed caches alone exceed the budget.
    #[error("the minimum caches add up to {minimums}, expected at most the budget of {budget}")]
    MinimumsExceedBudget {
        /// Their sum.
        minimums: Bytes,
        /// The budget.
        budget: Bytes,
    },
}

fn check(input: &PlanInput) -> Result<(), PlanError> {
    let out_of_range = |field, found, expected| Err(PlanError::OutOfRange { field, found, expected });
    if !(0.0..1.0).contains(&input.margin) {
        return out_of_range("margin", input.margin, "a number from 0 to below 1");
    }
    let largest = input.volumes.iter().map(|volume| volume.block_size.bytes()).max().unwrap_or(0);
    if input.chunk.get() < largest || input.chunk.get() == 0 {
        return out_of_range("chunk", input.chunk.as_f64(), "at least the largest block size");
    }
    for origin in &input.origins {
        let model = &origin.model;
        if !(model.servers >= 1.0 && model.servers.is_finite()) {
            return out_of_range("servers", model.servers, "a number of at least 1");
        }
        if !(model.transfer > 0.0 && model.transfer.is_finite()) {
            return out_of_range("transfer", model.transfer, "a number above 0");
        }
        if !(model.service_cv2 >= 0.0 && model.service_cv2.is_finite()) {
            return out_of_range("service_cv2", model.service_cv2, "a number of at least 0");
        }
        if !(model.write_cost > 0.0 && model.write_cost.is_finite()) {
            return out_of_range("write_cost", model.write_cost, "a number above 0");
        }
    }
    if let Some(flash) = input.cache.flash
        && !(0.0..=1.0).contains(&flash.memory_share)
    {
        return out_of_range("memory_share", flash.memory_share, "a number from 0 to 1");
    }
    let twice = |names: Vec<&str>| {
        let mut names = names;
        names.sort_unstable();
        names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].to_owned())
    };
    let volumes = twice(input.volumes.iter().map(|volume| volume.name.as_str()).collect());
    let origins = twice(input.origins.iter().map(|origin| origin.name.as_str()).collect());
    if let Some(name) = volumes.or(origins) {
        return Err(PlanError::NameTwice { name });
    }
    for volume in &input.volumes {
        let name = || volume.name.clone();
        if !input.origins.iter().any(|origin| origin.name == volume.origin) {
            return Err(PlanError::UnknownOrigin { volume: name(), origin: volume.origin.clone() });
        }
        let first =
            input.volumes.iter().find(|other| other.origin == volume.origin).expect("itself at least");
        if volume.load.window != first.load.window {
            return Err(PlanError::WindowsDiffer {
                volume: name(),
                found_s: volume.load.window.as_secs_f64(),
                expected_s: first.load.window.as_secs_f64(),
            });
        }
        if volume.load.window.0 == 0 {
            return out_of_range("window", 0.0, "a span above 0");
        }
        for objective in &volume.objectives {
            objective.check().map_err(|source| PlanError::Objective { volume: name(), source })?;
        }
    }
    let minimums: Bytes = input.volumes.iter().map(|volume| volume.minimum).sum();
    match input.budget {
        Some(budget) if minimums > budget => Err(PlanError::MinimumsExceedBudget { minimums, budget }),
        _ => Ok(()),
    }
}

/// Makes a plan.
///
/// Cost: some hundreds of evaluations of an origin's windows (at most 256 are looked at) for each of its volumes.
///
/// # Errors
/// [`PlanError`] says which part of the input is wrong and what was expected.
pub fn plan(input: &PlanInput) -> Result<Plan, PlanError> {
    check(input)?;
    let stages: Vec<(Stage<'_>, Vec<usize>)> = input
        .origins
        .iter()
        .map(|origin| {
            let members: Vec<usize> =
                (0..input.volumes.len()).filter(|&at| input.volumes[at].origin == origin.name).collect();
            let volumes = members.iter().map(|&at| &input.volumes[at]).collect();
            (Stage::new(origin, volumes, input.cache), members)
        })
        .collect();
    let mut volumes: Vec<Option<VolumePlan>> = vec![None; input.volumes.len()];
    let mut remedies = Vec::new();
    let mut origins = Vec::new();
    let mut recommended = vec![0u64; input.volumes.len()];
    for ((stage, members), origin) in stages.iter().zip(&input.origins) {
        let base = minimums(stage);
        let without = stage.evaluate(&base);
        for (place, &at) in members.iter().enumerate() {
            let planned = plan_volume(input, stage, place, &base, &without);
            volumes[at] = Some(planned);
        }
        remedies.extend(remedies_of(input, stage, &base, &without));
        let sizes = recommend(input, stage, &base);
        for (place, &at) in members.iter().enumerate() {
            recommended[at] = sizes[place];
        }
        origins.push(OriginPlan {
            origin: origin.name.clone(),
            utilisation: without.utilisation,
            utilisation_peak: without.utilisation_peak,
            utilisation_with: stage.evaluate(&sizes).utilisation,
        });
    }
    let within_budget = input.budget.map(|budget| {
        let sizes = within(input, &stages, &recommended, budget);
        allocation(input, &stages, &sizes)
    });
    Ok(Plan {
        volumes: volumes.into_iter().map(|volume| volume.expect("every volume has an origin")).collect(),
        origins,
        remedies,
        recommendation: allocation(input, &stages, &recommended),
        within_budget,
        basis: basis(input),
    })
}

fn basis(input: &PlanInput) -> Vec<String> {
    vec![
        "Latencies come from a queueing model, not from a measurement: each origin is a number of equal queues with \
         the service times of its storage model."
            .to_owned(),
        "Hit ratios come from the miss ratio curve of each volume (LRU, warm cache), per block read; each is taken as \
         the hit ratio of requests."
            .to_owned(),
        format!(
            "Loads are taken as steady within a window; of more than {} windows every n-th by total load is looked at, \
             with the busiest; a backlog does not carry over to the next window.",
            stage::WINDOWS_MAX
        ),
        format!("Sizes leave a margin of {:.0} % below each bound and are multiples of {}.", input.margin * 100.0, input.chunk),
    ]
}

fn minimums(stage: &Stage<'_>) -> Vec<u64> {
    stage.volumes.iter().map(|volume| volume.block_size.blocks_for(volume.minimum)).collect()
}

/// The most blocks that still buy something for a volume.
fn most(stage: &Stage<'_>, place: usize) -> u64 {
    let volume = stage.volumes[place];
    let minimum = volume.block_size.blocks_for(volume.minimum);
    if !volume.may_cache {
        return minimum;
    }
    useful_max(&volume.curve, u64::MAX / volume.block_size.bytes()).max(minimum)
}

fn chunk_blocks(input: &PlanInput, volume: &PlanVolume) -> u64 {
    (input.chunk.get() / volume.block_size.bytes()).max(1)
}

fn plan_volume(
    input: &PlanInput,
    stage: &Stage<'_>,
    place: usize,
    base: &[u64],
    without: &Evaluation,
) -> VolumePlan {
    let volume = stage.volumes[place];
    let block_bytes = volume.block_size.bytes();
    let with_size = |blocks: u64| {
        let mut sizes = base.to_vec();
        sizes[place] = blocks;
        stage.evaluate(&sizes)
    };
    let largest = most(stage, place);
    let sizing = (!volume.objectives.is_empty()).then(|| {
        // A volume that keeps its bound without a cache needs none, margin or not.
        if without.excess()[place] <= 0.0 {
            return crate::sizing::Sizing {
                blocks: base[place],
                excess: without.excess()[place],
                reached: true,
            };
        }
        smallest(largest, chunk_blocks(input, volume), -input.margin, |blocks| {
            with_size(blocks.max(base[place])).excess()[place]
        })
    });
    let blocks = sizing
        .map_or(largest, |sizing| if sizing.reached { sizing.blocks.max(base[place]) } else { largest });
    let with = with_size(blocks);
    let smallest_cache = sizing.filter(|sizing| sizing.reached).map(|_| blocks * block_bytes);
    let totals = volume.load.windows.iter().fold(WindowLoad::default(), |sum, window| WindowLoad {
        reads: sum.reads + window.reads,
        writes: sum.writes + window.writes,
        bytes_read: sum.bytes_read + window.bytes_read,
        bytes_written: sum.bytes_written + window.bytes_written,
    });
    let window_s = volume.load.window.as_secs_f64();
    let per = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let peak = volume.load.windows.iter().map(|window| window.reads + window.writes).max().unwrap_or(0);
    VolumePlan {
        volume: volume.name.clone(),
        origin: volume.origin.clone(),
        requests_per_second: per(totals.reads + totals.writes, volume.load.windows.len() as u64) / window_s,
        requests_per_second_peak: peak as f64 / window_s,
        window_s,
        read_share: per(totals.reads, totals.reads + totals.writes),
        read_bytes_mean: per(totals.bytes_read, totals.reads),
        write_bytes_mean: per(totals.bytes_written, totals.writes),
        footprint_bytes: volume.footprint.get(),
        working_set_bytes: volume.working_set.get(),
        working_set_window_s: volume.working_set_window.as_secs_f64(),
        objectives: volume
            .objectives
            .iter()
            .enumerate()
            .map(|(at, objective)| ObjectivePlan {
                objective: objective.to_string(),
                bound: objective.bound(),
                unit: objective.unit(),
                conforming_share_wanted: objective.conforming_share,
                without: without.outcomes[place][at],
                with: with.outcomes[place][at],
            })
            .collect(),
        smallest_cache_bytes: smallest_cache,
        miss_ratio: 1.0 - stage.hits(place, blocks).1,
        without: without.performance[place],
        with: with.performance[place],
        saved_against_working_set: smallest_cache
            .filter(|_| volume.working_set > Bytes::ZERO)
            .map(|bytes| 1.0 - bytes as f64 / volume.working_set.as_f64()),
    }
}

fn remedies_of(input: &PlanInput, stage: &Stage<'_>, base: &[u64], without: &Evaluation) -> Vec<Remedy> {
    let tenants: Vec<Tenant> = stage
        .volumes
        .iter()
        .enumerate()
        .map(|(place, volume)| {
            let blocks_max = most(stage, place);
            let windows = &volume.load.windows;
            let all: u64 = windows.iter().map(|window| window.reads + window.writes).sum();
            let peak = windows.iter().map(|window| window.reads + window.writes).max().unwrap_or(0);
            Tenant {
                eligible: volume.may_cache && blocks_max > base[place],
                blocks: base[place],
                blocks_max,
                chunk_blocks: chunk_blocks(input, volume),
                block_bytes: volume.block_size.bytes(),
                // Ours: a load whose busiest window is four times the mean is one that peaks.
                peaking: peak as f64 * windows.len() as f64 > 4.0 * all as f64,
                stable: true,
                candidates: candidates(&volume.curve, blocks_max),
            }
        })
        .collect();
    let excess = without.excess();
    let free = input.budget.unwrap_or(Bytes(u64::MAX));
    (0..stage.volumes.len())
        .filter(|&place| excess[place] > 0.0)
        .map(|place| {
            let ranked = rank(place, &tenants, -input.margin, free, |blocks| stage.evaluate(blocks).excess());
            let unmet = (!ranked.iter().any(|solution| solution.reached)).then(|| {
                let best = ranked.iter().map(|solution| solution.excess).fold(excess[place], f64::min);
                let reason = if ranked.is_empty() {
                    "no volume on its origin may be cached to any use".to_owned()
                } else {
                    format!(
                        "with the best caches it is {:.1} % beyond its bound (goal: {:.1} %)",
                        best * 100.0,
                        -input.margin * 100.0
                    )
                };
                Unmet { excess: best, reason }
            });
            let solutions = ranked.iter().filter(|solution| solution.reached).map(|solution| {
                let mut blocks = base.to_vec();
                solution.sizes.iter().for_each(|&(at, size)| blocks[at] = size);
                let after = stage.evaluate(&blocks).excess();
                PlannedSolution {
                    caches: solution
                        .sizes
                        .iter()
                        .map(|&(at, size)| PlannedCache {
                            volume: stage.volumes[at].name.clone(),
                            bytes: size * stage.volumes[at].block_size.bytes(),
                        })
                        .collect(),
                    cost_bytes: solution.cost.get(),
                    predicted_excess: solution.excess,
                    still_violated: (0..after.len())
                        .filter(|&at| at != place && after[at] > 0.0)
                        .map(|at| stage.volumes[at].name.clone())
                        .collect(),
                    reason: match (solution.cost > free, solution.harmed.is_empty(), solution.peaking) {
                        (true, ..) => "needs more than the budget",
                        (_, false, _) => "makes another volume miss its objective",
                        (_, _, true) => "caches a load that peaks, which counts as a quarter dearer",
                        _ => "ranked by its cost",
                    }
                    .to_owned(),
                }
            });
            Remedy { volume: stage.volumes[place].name.clone(), solutions: solutions.collect(), unmet }
        })
        .collect()
}

/// Caches that keep what can be kept, as little in sum as is found: from the largest useful sizes each is shrunk as
/// far as all volumes allow, in several orders; the least sum wins. A local optimum.
fn recommend(input: &PlanInput, stage: &Stage<'_>, base: &[u64]) -> Vec<u64> {
    let count = stage.volumes.len();
    let start: Vec<u64> = (0..count).map(|place| most(stage, place)).collect();
    let best = stage.evaluate(&start).excess();
    // What even the largest caches do not keep comes within 2 % of what they give (ours).
    let goals: Vec<f64> = best
        .iter()
        .map(|&best| if best <= -input.margin { -input.margin } else { best + best.abs() * 0.02 })
        .collect();
    let shortfall = |blocks: &[u64]| {
        stage
            .evaluate(blocks)
            .excess()
            .iter()
            .zip(&goals)
            .map(|(excess, goal)| excess - goal)
            .fold(f64::NEG_INFINITY, f64::max)
    };
    let without = stage.evaluate(base).excess();
    if without.iter().all(|&excess| excess <= 0.0) {
        return base.to_vec();
    }
    let bytes = |sizes: &[u64]| -> u128 {
        sizes
            .iter()
            .zip(&stage.volumes)
            .map(|(&size, volume)| u128::from(size) * u128::from(volume.block_size.bytes()))
            .sum()
    };
    (0..count.min(6))
        .map(|first| {
            let mut sizes = start.clone();
            for place in (0..count).map(|step| (first + step) % count) {
                let volume = stage.volumes[place];
                let beyond = sizes[place].saturating_sub(base[place]);
                let sizing = smallest(beyond, chunk_blocks(input, volume), 1e-9, |more| {
                    let mut tried = sizes.clone();
                    tried[place] = base[place] + more;
                    shortfall(&tried)
                });
                if sizing.reached {
                    sizes[place] = base[place] + sizing.blocks;
                }
            }
            sizes
        })
        .min_by_key(|sizes| bytes(sizes))
        .unwrap_or(start)
}

/// The allocation of `budget` that violates least, in blocks of every volume.
fn within(
    input: &PlanInput,
    stages: &[(Stage<'_>, Vec<usize>)],
    recommended: &[u64],
    budget: Bytes,
) -> Vec<u64> {
    let volumes = &input.volumes;
    let bytes = |at: usize, blocks: u64| blocks * volumes[at].block_size.bytes();
    let least: Vec<u64> = volumes.iter().map(|volume| volume.block_size.blocks_for(volume.minimum)).collect();
    if (0..volumes.len()).map(|at| u128::from(bytes(at, recommended[at]))).sum::<u128>()
        <= u128::from(budget.get())
    {
        return recommended.to_vec();
    }
    let guaranteed: u64 = (0..volumes.len()).map(|at| bytes(at, least[at])).sum();
    let free = budget.get().saturating_sub(guaranteed);
    // At most 64 chunks: costs are asked for every one of them (ours).
    let unit = input.chunk.get().max(free.div_ceil(64)).max(1);
    let chunks = (free / unit) as usize;
    let blocks_of =
        |at: usize, chunks: usize| least[at] + chunks as u64 * unit / volumes[at].block_size.bytes();
    let mut most_chunks = vec![0usize; volumes.len()];
    let mut claims: Vec<Claim> = vec![Claim { priority: 0, minimum: 0, cost: vec![0.0] }; volumes.len()];
    for (stage, members) in stages {
        for (place, &at) in members.iter().enumerate() {
            let largest = most(stage, place).saturating_sub(least[at]) * volumes[at].block_size.bytes();
            most_chunks[at] = (largest.div_ceil(unit) as usize).min(chunks);
            let cost = (0..=most_chunks[at])
                .map(|chunks| {
                    let mut sizes: Vec<u64> = members.iter().map(|&other| recommended[other]).collect();
                    sizes[place] = blocks_of(at, chunks);
                    stage.evaluate(&sizes).weighted_violation(&stage.volumes)
                })
                .collect();
            let priority =
                volumes[at].objectives.iter().map(|objective| objective.priority).max().unwrap_or(0);
            claims[at] = Claim { priority, minimum: 0, cost };
        }
    }
    let separate = allocate(chunks, &claims);
    let limits: Vec<(usize, usize)> = most_chunks.iter().map(|&most| (0, most)).collect();
    // Caches relieve neighbours: improve the separate optimum by the cost of all together, where that is affordable
    // and no priorities forbid it.
    let one_priority = claims.windows(2).all(|pair| pair[0].priority == pair[1].priority);
    let given = if volumes.len() <= 4 && one_priority {
        coupled(chunks, separate, &limits, 12, |chunks| {
            stages
                .iter()
                .map(|(stage, members)| {
                    let sizes: Vec<u64> = members.iter().map(|&at| blocks_of(at, chunks[at])).collect();
                    stage.evaluate(&sizes).weighted_violation(&stage.volumes)
                })
                .sum()
        })
    } else {
        separate
    };
    (0..volumes.len()).map(|at| blocks_of(at, given[at])).collect()
}

fn allocation(input: &PlanInput, stages: &[(Stage<'_>, Vec<usize>)], blocks: &[u64]) -> Allocation {
    let caches: Vec<PlannedCache> = input
        .volumes
        .iter()
        .zip(blocks)
        .map(|(volume, &blocks)| PlannedCache {
            volume: volume.name.clone(),
            bytes: blocks * volume.block_size.bytes(),
        })
        .collect();
    let mut missed = Vec::new();
    let mut weighted_violation = 0.0;
    for (stage, members) in stages {
        let sizes: Vec<u64> = members.iter().map(|&at| blocks[at]).collect();
        let evaluation = stage.evaluate(&sizes);
        weighted_violation += evaluation.weighted_violation(&stage.volumes);
        for (volume, outcomes) in stage.volumes.iter().zip(&evaluation.outcomes) {
            for (objective, outcome) in
                volume.objectives.iter().zip(outcomes).filter(|(_, outcome)| !outcome.met)
            {
                missed.push(MissedObjective {
                    volume: volume.name.clone(),
                    objective: objective.to_string(),
                    excess: outcome.excess,
                });
            }
        }
    }
    Allocation {
        total_bytes: caches.iter().map(|cache| cache.bytes).sum(),
        caches,
        weighted_violation,
        missed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objective::{Objective, Operations};
    use forebay_locality::{CurvePoint, MissRatioCurve};
    use forebay_units::{BlockSize, Nanos};
    use std::sync::Arc;

    fn volume(name: &str, reads_per_second: u64, bound_ms: Option<u64>) -> PlanVolume {
        let window = WindowLoad {
            reads: reads_per_second * 10,
            bytes_read: reads_per_second * 10 * 4_096,
            ..WindowLoad::default()
        };
        // Misses fall in a straight line to 0.1 at 10,000 blocks.
        let curve = MissRatioCurve::new(vec![CurvePoint { size_blocks: 10_000, miss_ratio: 0.1 }]);
        PlanVolume {
            name: name.to_owned(),
            origin: "group".to_owned(),
            block_size: BlockSize::DEFAULT,
            load: PlanLoad {
                window: Nanos::secs(10),
                windows: vec![window; 20],
                closed_loop: None,
                sequential_share: 0.0,
            },
            curve: Arc::new(curve),
            footprint: Bytes(12_000 * 4_096),
            working_set: Bytes(10_000 * 4_096),
            working_set_window: Nanos::secs(600),
            objectives: bound_ms
                .map(|bound| Objective::mean_latency(Nanos::millis(bound), Operations::Reads))
                .into_iter()
                .collect(),
            may_cache: true,
            minimum: Bytes::ZERO,
        }
    }

    fn input(volumes: Vec<PlanVolume>) -> PlanInput {
        // One server, 10 ms exponential whatever the size: M/M/1.
        let model = StorageModel {
            servers: 1.0,
            positioning: Nanos::millis(10),
            transfer: 1e15,
            write_cost: 1.0,
            service_cv2: 1.0,
        };
        PlanInput {
            volumes,
            origins: vec![PlanOrigin { name: "group".to_owned(), model }],
            cache: CacheTiers { memory_latency: Nanos::ZERO, flash: None },
            budget: None,
            chunk: Bytes(4_096),
            margin: 0.0,
        }
    }

    #[test]
    fn the_smallest_cache_by_hand() {
        // 80/s on 100/s: 10 / 0.2 = 50 ms. With miss ratio m: m x 10 / (1 - 0.8 m) = 10 ms at m = 1 / 1.8 = 0.5556,
        // which the line 1 - 0.9 s / 10,000 reaches at 4,938.3 blocks.
        let plan = plan(&input(vec![volume("db", 80, Some(10))])).unwrap();
        let db = &plan.volumes[0];
        assert!((db.without.latency_s - 0.050).abs() < 1e-4, "{db:?}");
        let blocks = db.smallest_cache_bytes.unwrap() / 4_096;
        assert!((4_938..=4_942).contains(&blocks), "{blocks}");
        assert!((db.with.latency_s - 0.010).abs() < 1e-4);
        assert!((db.saved_against_working_set.unwrap() - 0.506).abs() < 1e-3);
        assert!((db.requests_per_second, db.requests_per_second_peak, db.read_share) == (80.0, 80.0, 1.0));
        assert!(db.objectives[0].with.met && !db.objectives[0].without.met);
        assert_eq!(plan.recommendation.total_bytes, blocks * 4_096);
        assert_eq!(
            plan.remedies[0].solutions[0].caches,
            [PlannedCache { volume: "db".to_owned(), bytes: blocks * 4_096 }]
        );
        assert!((plan.origins[0].utilisation - 0.8).abs() < 1e-9);
    }

    #[test]
    fn a_neighbour_may_be_the_cheaper_one_to_cache() {
        let mut scan = volume("scan", 60, None);
        scan.curve = Arc::new(MissRatioCurve::new(vec![CurvePoint { size_blocks: 500, miss_ratio: 0.0 }]));
        // The victim is a write load: no cache in front of it helps. 30 + 60 on 100/s: 100 ms; without the scan 14.3.
        let mut log = volume("log", 0, None);
        log.load.windows =
            vec![WindowLoad { writes: 300, bytes_written: 300 * 4_096, ..WindowLoad::default() }; 20];
        log.objectives = vec![Objective::mean_latency(Nanos::millis(20), Operations::Writes)];
        let plan = plan(&input(vec![log, scan])).unwrap();
        assert_eq!(plan.volumes[0].smallest_cache_bytes, None);
        let best = &plan.remedies[0].solutions[0];
        assert_eq!(best.caches.len(), 1);
        assert_eq!(best.caches[0].volume, "scan");
        // 10 / (1 - u) = 20 ms at u = 0.5: the scan's misses must fall to 20/s, m = 1/3, 333.3 blocks.
        assert!((334..=336).contains(&(best.caches[0].bytes / 4_096)), "{best:?}");
        assert!(plan.recommendation.missed.is_empty());
    }

    #[test]
    fn what_cannot_be_kept_is_said_and_by_how_much() {
        // At best m = 0.1: 0.1 x 10 / (1 - 0.08) = 1.087 ms against 1 ms: 8.7 % beyond.
        let plan = plan(&input(vec![volume("db", 80, Some(1))])).unwrap();
        assert_eq!(plan.volumes[0].smallest_cache_bytes, None);
        let unmet = plan.remedies[0].unmet.as_ref().unwrap();
        assert!((0.086..0.11).contains(&unmet.excess), "{unmet:?}");
        assert_eq!(plan.recommendation.missed.len(), 1);
    }

    #[test]
    fn a_budget_goes_where_it_mends_most_and_is_kept() {
        let mut two = input(vec![volume("a", 45, Some(10)), volume("b", 40, Some(10))]);
        let free = plan(&two).unwrap();
        assert!(free.recommendation.missed.is_empty());
        let budget = Bytes(free.recommendation.total_bytes / 2);
        two.budget = Some(budget);
        let tight = plan(&two).unwrap().within_budget.unwrap();
        assert!(tight.total_bytes <= budget.get());
        let nothing = 2.0 * (10.0 / (1.0 - 0.85) / 10.0 - 1.0);
        assert!(tight.weighted_violation > 0.0 && tight.weighted_violation < nothing / 2.0, "{tight:?}");
        two.budget = Some(Bytes(free.recommendation.total_bytes));
        assert!(plan(&two).unwrap().within_budget.unwrap().missed.is_empty());
    }

    #[test]
    fn a_share_of_the_windows_decides() {
        // One window in twenty is ten times as busy; 95 % must conform, so it does not count; with 96 % it does.
        let mut db = volume("db", 9, Some(20));
        db.load.windows[7].reads *= 10;
        assert_eq!(plan(&input(vec![db.clone()])).unwrap().volumes[0].smallest_cache_bytes, Some(0));
        db.objectives[0].conforming_share = 0.96;
        assert!(plan(&input(vec![db])).unwrap().volumes[0].smallest_cache_bytes.unwrap() > 0);
    }

    #[test]
    fn bad_input_is_refused_by_name() {
        let good = input(vec![volume("a", 10, None), volume("b", 10, None)]);
        assert!(plan(&good).is_ok());
        let mut bad = good.clone();
        bad.volumes[1].name = "a".to_owned();
        assert_eq!(plan(&bad).unwrap_err(), PlanError::NameTwice { name: "a".to_owned() });
        let mut bad = good.clone();
        bad.volumes[1].origin = "x".to_owned();
        assert!(matches!(plan(&bad).unwrap_err(), PlanError::UnknownOrigin { .. }));
        let mut bad = good.clone();
        bad.volumes[1].load.window = Nanos::secs(1);
        assert!(matches!(plan(&bad).unwrap_err(), PlanError::WindowsDiffer { .. }));
        let mut bad = good.clone();
        bad.origins[0].model.servers = 0.0;
        assert!(matches!(plan(&bad).unwrap_err(), PlanError::OutOfRange { field: "servers", .. }));
        let mut bad = good;
        bad.volumes[0].minimum = Bytes(10);
        bad.budget = Some(Bytes(5));
        assert!(matches!(plan(&bad).unwrap_err(), PlanError::MinimumsExceedBudget { .. }));
    }
}
