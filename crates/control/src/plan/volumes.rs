//! The plan of each volume by itself, and the remedies for those that miss their objectives.

use super::input::{PlanInput, PlanVolume, WindowLoad};
use super::output::{ObjectivePlan, PlannedCache, PlannedSolution, Remedy, Unmet, VolumePlan};
use super::stage::{Evaluation, GOAL_SLACK, Stage};
use super::{chunk_blocks, most};
use crate::sizing::{candidates, smallest};
use crate::solutions::{Solution, Tenant, rank, with_least_pairs};
use forebay_units::Bytes;

pub(super) fn plan_volume(
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
    let largest = most(input, stage, place);
    let sizing = (!volume.objectives.is_empty()).then(|| {
        // A volume that keeps its bound without a cache needs none, margin or not.
        if without.excess()[place] <= 0.0 {
            return crate::sizing::Sizing {
                blocks: base[place],
                excess: without.excess()[place],
                reached: true,
            };
        }
        let beyond = smallest(largest - base[place], chunk_blocks(input, volume), -input.margin, |more| {
            with_size(base[place] + more).excess()[place]
        });
        crate::sizing::Sizing { blocks: base[place] + beyond.blocks, ..beyond }
    });
    let blocks = sizing.filter(|sizing| sizing.reached).map_or(largest, |sizing| sizing.blocks);
    let with = with_size(blocks);
    let smallest_cache = sizing.filter(|sizing| sizing.reached).map(|_| blocks * block_bytes);
    let totals = volume.load.windows.iter().fold(WindowLoad::default(), |sum, window| WindowLoad {
        reads: sum.reads + window.reads,
        writes: sum.writes + window.writes,
        bytes_read: sum.bytes_read + window.bytes_read,
        bytes_written: sum.bytes_written + window.bytes_written,
        squares: 0,
    });
    let per = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    VolumePlan {
        volume: volume.name.clone(),
        origin: volume.origin.clone(),
        requests_per_second: volume.load.rate_mean(),
        requests_per_second_peak: volume.load.rate_max(),
        window_s: volume.load.window.as_secs_f64(),
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

/// `sizes`, ascending, rounded up to whole chunks beyond `base`; without those that it covers.
fn whole_chunks(sizes: Vec<u64>, base: u64, chunk_blocks: u64) -> Vec<u64> {
    let mut sizes: Vec<u64> = sizes
        .into_iter()
        .filter(|&size| size > base)
        .map(|size| base + (size - base).div_ceil(chunk_blocks) * chunk_blocks)
        .collect();
    sizes.dedup();
    sizes
}

/// The volumes that miss an objective with caches of `base`, each with the ranked ways to mend it.
pub(super) fn solutions_of(
    input: &PlanInput,
    stage: &Stage<'_>,
    base: &[u64],
    without: &Evaluation,
) -> Vec<(usize, Vec<Solution>)> {
    let tenants: Vec<Tenant> = stage
        .volumes
        .iter()
        .enumerate()
        .map(|(place, volume)| {
            let blocks_max = most(input, stage, place);
            Tenant {
                eligible: volume.may_cache && blocks_max > base[place],
                blocks: base[place],
                blocks_max,
                chunk_blocks: chunk_blocks(input, volume),
                block_bytes: volume.block_size.bytes(),
                // Ours: a load whose busiest window is four times the mean is one that peaks.
                peaking: volume.load.rate_max() > 4.0 * volume.load.rate_mean(),
                stable: true,
                candidates: whole_chunks(
                    candidates(&volume.curve, blocks_max),
                    base[place],
                    chunk_blocks(input, volume),
                ),
            }
        })
        .collect();
    let excess = without.excess();
    let predicted = |blocks: &[u64]| stage.evaluate(blocks).excess();
    let (goal, free) = (-input.margin, free_of(input));
    let mended = |place| {
        let ranked = rank(place, &tenants, goal, free, |_| true, predicted);
        (place, with_least_pairs(place, &tenants, goal, free, predicted, ranked))
    };
    (0..stage.volumes.len()).filter(|&place| excess[place] > 0.0).map(mended).collect()
}

fn free_of(input: &PlanInput) -> Bytes {
    input.budget.unwrap_or(Bytes(u64::MAX))
}

/// What of `solved` is told.
pub(super) fn remedies_of(
    input: &PlanInput,
    stage: &Stage<'_>,
    base: &[u64],
    without: &Evaluation,
    solved: &[(usize, Vec<Solution>)],
) -> Vec<Remedy> {
    let excess = without.excess();
    let free = free_of(input);
    let largest: Vec<u64> = (0..stage.volumes.len()).map(|place| most(input, stage, place)).collect();
    solved
        .iter()
        .map(|&(place, ref ranked)| {
            let reached = ranked.iter().any(|solution| solution.reached);
            // Solutions that miss the goal are made small, so the largest caches may come nearer to it.
            let best = ranked.iter().map(|solution| solution.excess).fold(excess[place], f64::min);
            let best = if reached { best } else { best.min(stage.evaluate(&largest).excess()[place]) };
            let is_kept = best <= 0.0;
            let short = (!reached && best > -input.margin + GOAL_SLACK).then(|| Unmet {
                excess: best,
                reason: if ranked.is_empty() {
                    "no volume on its origin may be cached to any use".to_owned()
                } else {
                    short_of(best, input.margin, stage.volumes[place])
                },
            });
            let (unmet, margin_unmet) = if is_kept { (None, short) } else { (short, None) };
            // Where none has the margin, those that keep the bound are ways to mend it.
            let mends = |solution: &&Solution| solution.reached || !reached && solution.excess <= 0.0;
            let solutions = ranked.iter().filter(mends).map(|solution| {
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
                        _ if !solution.reached => "keeps the bound, not the margin",
                        (true, ..) => "needs more than the budget",
                        (_, false, _) => "makes another volume miss its objective",
                        (_, _, true) => "caches a load that peaks, which counts as a quarter dearer",
                        _ => "ranked by its cost",
                    }
                    .to_owned(),
                }
            });
            Remedy {
                volume: stage.volumes[place].name.clone(),
                solutions: solutions.collect(),
                unmet,
                margin_unmet,
            }
        })
        .collect()
}

/// How far from its bound, or from the margin below it, the best caches leave a volume.
fn short_of(best: f64, margin: f64, volume: &PlanVolume) -> String {
    let beyond = if best > 0.0 { "beyond" } else { "within" };
    let wanted =
        if margin > 0.0 { format!(" (wanted: {:.1} % within)", margin * 100.0) } else { String::new() };
    // A recording that begins with a cold cache has many: whoever reads this may want to judge it later.
    let has_reads = volume.load.windows.iter().any(|window| window.reads > 0);
    let firsts = match volume.curve.floor() {
        floor if has_reads && floor > 0.0 => {
            format!("; {:.1} % of its block reads are first ones, which no cache answers", floor * 100.0)
        }
        _ => String::new(),
    };
    format!("with the best caches it is {:.1} % {beyond} its bound{wanted}{firsts}", best.abs() * 100.0)
}
