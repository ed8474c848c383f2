//! Planning offline: from loads, curves and objectives to cache sizes.
//!
//! The same model, sizing, ranking and allocation as the live controller, asked for every window of the loads instead
//! of the last interval. It is *not* a simulation: within a window loads are steady, hit ratios are those of all windows
//! together, and a backlog does not carry over. Invariant: an allocation within a budget never exceeds it.

mod error;
mod input;
mod output;
mod sizes;
mod stage;
mod volumes;

pub use error::{PlanError, whole_blocks};
pub use input::{
    CacheTiers, FlashTier, PlanInput, PlanLoad, PlanOrigin, PlanVolume, StorageModel, WindowLoad,
};
pub use output::{
    Allocation, MissedObjective, ObjectiveOutcome, ObjectivePlan, OriginPlan, Performance, Plan,
    PlannedCache, PlannedSolution, Remedy, Unmet, VolumePlan,
};

use crate::sizing::useful_max;
use error::check;
use sizes::{recommend, within};
use stage::Stage;
use volumes::{plan_volume, remedies_of, solutions_of};

/// Makes a plan.
///
/// Cost: some hundreds of evaluations of an origin's windows (at most 256 are looked at) for each of its volumes, some 1,500 more for
/// each that is violated among several, and at most some 6,000 more where several share it.
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
        let solved = solutions_of(input, stage, &base, &without);
        remedies.extend(remedies_of(input, stage, &base, &without, &solved));
        let sizes = recommend(input, stage, &base, &solved);
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
        "Hit ratios come from the miss ratio curve of each volume (LRU), per block read; each is taken as the hit ratio of \
         requests. What was read before what is judged is in the cache; the first read of any other block misses at every size."
            .to_owned(),
        format!(
            "Loads are taken as steady within a window; of more than {} windows every n-th by total load is looked at, \
             with the busiest; a backlog does not carry over to the next window.",
            stage::WINDOWS_MAX
        ),
        "Requests that come in bursts wait for one another, by how much more their number in some five service times deviates than \
         that of independent ones; longer bursts within a window are left out."
            .to_owned(),
        "Windows deviate by chance from what is predicted of them: shares of windows are those that are to be expected, so that half of \
         all runs keep a little less. Where a size is just enough and that will not do, set `margin`."
            .to_owned(),
        format!(
            "Sizes leave a margin of {:.0} % below each bound and are multiples of {}, beyond what is guaranteed.",
            input.margin * 100.0, input.chunk
        ),
    ]
}

fn minimums(stage: &Stage<'_>) -> Vec<u64> {
    stage.volumes.iter().map(|volume| volume.block_size.blocks_for(volume.minimum)).collect()
}

/// The most blocks that still buy something for a volume: its minimum, and whole chunks.
fn most(input: &PlanInput, stage: &Stage<'_>, place: usize) -> u64 {
    let volume = stage.volumes[place];
    let minimum = volume.block_size.blocks_for(volume.minimum);
    if !volume.may_cache {
        return minimum;
    }
    let chunk = chunk_blocks(input, volume);
    let useful = useful_max(&volume.curve, (u64::MAX / volume.block_size.bytes()).saturating_sub(chunk));
    minimum + useful.saturating_sub(minimum).div_ceil(chunk) * chunk
}

fn chunk_blocks(input: &PlanInput, volume: &PlanVolume) -> u64 {
    (input.chunk.get() / volume.block_size.bytes()).max(1)
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
        weighted_violation += evaluation.weighted_violation(&stage.volumes, |_| 1.0);
        for (volume, outcomes) in stage.volumes.iter().zip(&evaluation.outcomes) {
            for (objective, outcome) in
                volume.objectives.iter().zip(outcomes).filter(|(_, outcome)| !outcome.met)
            {
                missed.push(MissedObjective {
                    volume: volume.name.clone(),
                    objective: objective.to_string(),
                    excess: outcome.excess_or_slack(),
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
    use forebay_units::{BlockSize, Bytes, Nanos};
    use std::sync::Arc;

    /// Windows that are so long that nothing is left to chance in them: what comes out can be had by hand.
    const WINDOW_S: u64 = 10_000_000;

    pub(super) fn volume(name: &str, reads_per_second: u64, bound_ms: Option<u64>) -> PlanVolume {
        let window = WindowLoad {
            reads: reads_per_second * WINDOW_S,
            bytes_read: reads_per_second * WINDOW_S * 4_096,
            ..WindowLoad::default()
        };
        // Misses fall in a straight line to 0.1 at 10,000 blocks.
        let curve = MissRatioCurve::new(vec![CurvePoint { size_blocks: 10_000, miss_ratio: 0.1 }]);
        PlanVolume {
            name: name.to_owned(),
            origin: "group".to_owned(),
            block_size: BlockSize::DEFAULT,
            load: PlanLoad {
                window: Nanos::secs(WINDOW_S),
                windows: vec![window; 20],
                window_last: Nanos::secs(WINDOW_S),
                closed_loop: None,
                sequential_share: 0.0,
                instant: Nanos::millis(50),
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

    pub(super) fn input(volumes: Vec<PlanVolume>) -> PlanInput {
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
        log.load.windows = vec![
            WindowLoad {
                writes: 30 * WINDOW_S,
                bytes_written: 30 * WINDOW_S * 4_096,
                ..WindowLoad::default()
            };
            20
        ];
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
    fn what_windows_deviate_by_is_reckoned_with() {
        // 80/s in windows of 10 s, a hundredth and a hundred times of that.
        let planned = |window_s: u64, conforming_share: f64| {
            let mut db = volume("db", 80, Some(10));
            let mut window = db.load.windows[0];
            window.reads = 80 * window_s;
            window.bytes_read = window.reads * 4_096;
            db.load = PlanLoad {
                window: Nanos::secs(window_s),
                windows: vec![window; 200],
                window_last: Nanos::secs(window_s),
                ..db.load
            };
            db.objectives[0].conforming_share = conforming_share;
            let plan = plan(&input(vec![db])).unwrap();
            let outcome = plan.volumes[0].objectives[0].with;
            // Not more than it takes: one of 200 windows may miss beyond the share, by half.
            let told = outcome.conforming_share.unwrap();
            let least = conforming_share - 0.5 / 200.0;
            assert!(outcome.met && told >= least - 1e-6 && told < least + 0.004, "{outcome:?}");
            plan.volumes[0].smallest_cache_bytes.unwrap() / 4_096
        };
        let sizes = [1_000, 10, 1].map(|window_s| planned(window_s, 0.95));
        assert!(sizes[0] > 4_942 && sizes[0] < sizes[1] && sizes[1] < sizes[2], "{sizes:?}");
        let shares = [0.9, 0.95, 0.99, 1.0].map(|share| planned(10, share));
        assert!(shares.is_sorted() && shares[0] < shares[3], "{shares:?}");
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
    fn a_margin_that_cannot_be_had_leaves_the_objective_kept() {
        // At best 1.087 ms against 10 ms: 89.1 % within, where 95 % are wanted.
        let mut one = input(vec![volume("db", 80, Some(10))]);
        one.margin = 0.95;
        let plan = plan(&one).unwrap();
        let remedy = &plan.remedies[0];
        let short = remedy.margin_unmet.as_ref().unwrap();
        assert!(remedy.unmet.is_none() && (-0.892..-0.89).contains(&short.excess), "{remedy:?}");
        assert!(short.reason.contains("89.1 % within its bound (wanted: 95.0 % within)"), "{short:?}");
        // The best is that of the largest cache; what is recommended comes near to it with less.
        let db = &plan.volumes[0];
        assert_eq!((db.smallest_cache_bytes, db.objectives[0].with.excess), (None, Some(short.excess)));
        assert!(db.objectives[0].with.met && plan.recommendation.missed.is_empty());
        let way = &remedy.solutions[0];
        assert!(way.predicted_excess > short.excess && way.predicted_excess < 0.0, "{way:?}");
        // A bound that is missed is no matter of the margin.
        let missed = super::plan(&PlanInput { volumes: vec![volume("db", 80, Some(1))], ..one }).unwrap();
        let remedy = &missed.remedies[0];
        assert!(remedy.margin_unmet.is_none() && remedy.solutions.is_empty(), "{remedy:?}");
        let unmet = remedy.unmet.as_ref().unwrap();
        assert!(unmet.reason.contains("8.8 % beyond its bound (wanted: 95.0 % within)"), "{unmet:?}");
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
    fn a_budget_that_cannot_keep_a_promise_violates_least_where_what_is_recommended_stops_before() {
        let mut one = input(vec![volume("db", 80, Some(1))]);
        let free = plan(&one).unwrap();
        let best = free.remedies[0].unmet.as_ref().unwrap().excess;
        // Within 2 % of what the largest cache gives.
        assert!(free.recommendation.weighted_violation > best, "{:?}", free.recommendation);
        assert!(free.recommendation.weighted_violation <= best * 1.02 + 1e-9, "{:?}", free.recommendation);
        one.budget = Some(Bytes::gib(1));
        let within = plan(&one).unwrap().within_budget.unwrap();
        assert!((within.weighted_violation - best).abs() < 1e-9, "{within:?}, {best}");
    }

    #[test]
    fn sizes_are_whole_chunks_with_a_budget_and_without() {
        let chunk = Bytes::mib(1);
        for (budget_mib, minimum) in [(33, 0), (50, 0), (77, 0), (1_000, 0), (40, 8_192)] {
            let mut three = input(["a", "b", "c"].map(|name| volume(name, 45, Some(1))).to_vec());
            (three.chunk, three.budget) = (chunk, Some(Bytes::mib(budget_mib)));
            three.volumes[1].minimum = Bytes(minimum);
            let plan = plan(&three).unwrap();
            let within = plan.within_budget.unwrap();
            assert!(within.total_bytes <= Bytes::mib(budget_mib).get(), "{within:?}");
            let solutions = plan.remedies.iter().flat_map(|remedy| &remedy.solutions);
            let ranked = solutions.map(|solution| &solution.caches);
            let beyond_minimum =
                |cache: &PlannedCache| cache.bytes - if cache.volume == "b" { minimum } else { 0 };
            let mut sizes: Vec<u64> = [&within.caches, &plan.recommendation.caches]
                .into_iter()
                .chain(ranked)
                .flatten()
                .map(beyond_minimum)
                .collect();
            sizes.extend(
                plan.volumes
                    .iter()
                    .zip([0, minimum, 0])
                    .filter_map(|(volume, least)| volume.smallest_cache_bytes.map(|bytes| bytes - least)),
            );
            assert!(sizes.iter().any(|size| *size > 0));
            assert!(sizes.iter().all(|size| size % chunk.get() == 0), "{budget_mib} MiB: {sizes:?}");
        }
    }

    #[test]
    fn two_caches_that_mend_one_volume_are_whole_chunks_too() {
        // Both curves have a corner at 70 blocks, where the first of two caches is tried: 280 KiB, of chunks of 1 MiB.
        let corner = [(70, 0.7), (10_000, 0.1)];
        let corner = corner.map(|(size_blocks, miss_ratio)| CurvePoint { size_blocks, miss_ratio });
        let curve = Arc::new(MissRatioCurve::new(corner.to_vec()));
        for minimum in [0, 8_192] {
            let mut two = input(["a", "b"].map(|name| volume(name, 45, Some(20))).to_vec());
            two.chunk = Bytes::mib(1);
            two.volumes.iter_mut().for_each(|volume| volume.curve = Arc::clone(&curve));
            two.volumes[1].minimum = Bytes(minimum);
            let plan = plan(&two).unwrap();
            let solutions: Vec<_> = plan.remedies.iter().flat_map(|remedy| &remedy.solutions).collect();
            assert!(solutions.iter().any(|solution| solution.caches.len() == 2), "{solutions:?}");
            for cache in solutions.iter().flat_map(|solution| &solution.caches) {
                let least = if cache.volume == "b" { minimum } else { 0 };
                assert_eq!((cache.bytes - least) % two.chunk.get(), 0, "{solutions:?}");
            }
        }
    }

    #[test]
    fn a_last_window_is_as_long_as_it_is_filled() {
        // A fifth of a window of 80/s, alone or behind a whole one: 0.8 of the server either way, and 50 ms.
        for whole in [0, 1] {
            let mut db = volume("db", 80, Some(20));
            db.load.windows.truncate(whole + 1);
            db.load.windows[whole].reads = 80 * WINDOW_S / 5;
            db.load.window_last = Nanos::secs(WINDOW_S / 5);
            let plan = plan(&input(vec![db])).unwrap();
            let db = &plan.volumes[0];
            assert!((db.requests_per_second - 80.0).abs() < 1e-9, "{db:?}");
            assert!((db.requests_per_second_peak - 80.0).abs() < 1e-9, "{db:?}");
            assert!((db.without.latency_worst_s - 0.050).abs() < 1e-4 && !db.objectives[0].without.met);
        }
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
    fn an_objective_that_no_window_judges_has_no_numbers_and_one_that_none_conforms_to_has_no_sign() {
        // 20 reads a second never ask for 500; 80/s on 100/s take 50 ms, never 10.
        let mut idle = volume("idle", 20, None);
        idle.objectives = vec![Objective::iops_floor(500.0)];
        let busy = PlanVolume { origin: "other".to_owned(), ..volume("busy", 80, Some(10)) };
        let mut both = input(vec![idle, busy]);
        both.origins.push(PlanOrigin { name: "other".to_owned(), ..both.origins[0].clone() });
        let plan = plan(&both).unwrap();
        let none = ObjectiveOutcome { met: true, conforming_share: None, value: None, excess: None };
        assert_eq!(plan.volumes[0].objectives[0].without, none);
        let missed = plan.volumes[1].objectives[0].without;
        assert!(!missed.met && missed.conforming_share.unwrap().is_sign_positive(), "{missed:?}");
        assert!(plan.recommendation.missed.is_empty() && plan.volumes[0].smallest_cache_bytes == Some(0));
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
        for chunk in [0, 2_048, 10_000] {
            let bad = PlanInput { chunk: Bytes(chunk), ..good.clone() };
            assert!(matches!(plan(&bad).unwrap_err(), PlanError::OutOfRange { field: "chunk", .. }));
        }
        let mut bad = good;
        bad.volumes[0].minimum = Bytes(10);
        bad.budget = Some(Bytes(5));
        assert!(matches!(plan(&bad).unwrap_err(), PlanError::MinimumsExceedBudget { .. }));
    }
}
