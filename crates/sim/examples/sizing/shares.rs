//! What the master makes of recorded loads that together need more memory than there is, against shares in proportion.
//!
//! Each load keeps its own origin and objective. Its need is the least static cache that hindsight would give it alone; the memory is a part of
//! the sum of the needs. A share is that part of a load's need, times its weight: somebody who gives such shares knows every need.

use crate::cases::Case;
use crate::judge::{self, Optima};
use forebay_control::conformance::Verdict;
use forebay_sim::scenario::{Scenario, Sizing};
use forebay_sim::{Outcome, Simulation};
use forebay_units::Bytes;
use std::sync::Mutex;

/// Loads that share memory, by the names of their cases.
const SETS: [&[&str]; 4] = [
    &["trace-cloudphysics", "trace-websearch"],
    &["trace-websearch", "trace-pgbench"],
    &["trace-cloudphysics", "trace-websearch", "trace-pgbench"],
    &["trace-cloudphysics", "trace-websearch", "trace-webserver"],
];
/// How much of the sum of their needs there is.
const PARTS: [f64; 3] = [0.3, 0.5, 0.8];
/// What the first one's objective weighs, where the others' weigh 1.
const WEIGHTS: [f64; 2] = [1.0, 4.0];
/// What a window is beyond its bound counts for at most: one that hangs is as bad as any.
const EXCESS_MAX: f64 = 100.0;
/// Violations that differ by less are alike, relative to the larger.
const ALIKE: f64 = 0.01;

/// What somebody's sizes came to.
struct Violated {
    /// Sum over the objectives of weight times the mean over the judged windows of what they were beyond the bound, relative to it.
    excess: f64,
    /// The same of the share of windows that missed.
    missed: f64,
    bytes: Vec<f64>,
    /// The mean excess of each.
    each: Vec<f64>,
}

fn violated(outcome: &Outcome, weights: &[f64]) -> Violated {
    let (mut excess, mut missed, mut each) = (0.0, 0.0, Vec::new());
    for (volume, weight) in outcome.volumes.iter().zip(weights) {
        let objective = &volume.objectives[0];
        let windows: Vec<f64> = objective
            .windows
            .iter()
            .filter(|row| row.at_s > outcome.measure_from_s && row.verdict != Verdict::LowLoad)
            .map(|row| match row.verdict {
                Verdict::Conforming => 0.0,
                _ => row.value.map_or(EXCESS_MAX, |value| (value / objective.bound - 1.0).min(EXCESS_MAX)),
            })
            .collect();
        let count = windows.len().max(1) as f64;
        let mean = windows.iter().sum::<f64>() / count;
        each.push(mean);
        excess += weight * mean;
        missed += weight * windows.iter().filter(|&&excess| excess > 0.0).count() as f64 / count;
    }
    let bytes = (outcome.volumes.iter())
        .map(|volume| volume.totals.quota_blocks_mean * volume.block_bytes as f64)
        .collect();
    Violated { excess, missed, bytes, each }
}

/// The loads of some cases, each on its own origin, with so much memory together.
fn together(members: &[&Case], weights: &[f64], memory: f64) -> Case {
    let mut all = Case {
        name: "shares".to_owned(),
        scenario: members[0].scenario.clone(),
        traces: forebay_sim::Traces::new(),
        step_s: 0.0,
        restored_intervals: 0,
    };
    let Scenario { origin, volume, objective, .. } = &mut all.scenario;
    origin.clear();
    volume.clear();
    objective.clear();
    for (at, member) in members.iter().enumerate() {
        let mut the_origin = member.scenario.origin[0].clone();
        the_origin.name = format!("o{at}");
        let mut the_volume = member.scenario.volume[0].clone();
        (the_volume.name, the_volume.origin) = (format!("v{at}"), Some(format!("o{at}")));
        let mut the_objective = member.scenario.objective[0].clone();
        (the_objective.volume, the_objective.weight) = (format!("v{at}"), weights[at]);
        origin.push(the_origin);
        volume.push(the_volume);
        objective.push(the_objective);
        for ((_, load), trace) in &member.traces {
            all.traces.insert((at, *load), trace.clone());
        }
    }
    all.scenario.cache.memory = Bytes(memory as u64);
    all
}

/// Runs the law (no `sizes`) or fixed sizes.
fn run(case: &Case, seed: u64, sizes: Option<&[f64]>, weights: &[f64], decisions: bool) -> Violated {
    let mut scenario = case.scenario.clone();
    if let Some(sizes) = sizes {
        scenario.cache.sizing = Sizing::Fixed;
        for (volume, bytes) in scenario.volume.iter_mut().zip(sizes) {
            (volume.minimum, volume.maximum, volume.cache) = (Bytes::ZERO, None, Some(Bytes(*bytes as u64)));
        }
    }
    let simulation = Simulation::new(&scenario, &case.traces, Some(seed));
    match simulation {
        Ok(simulation) => {
            let outcome = simulation.run();
            if decisions {
                tell(&outcome);
            }
            violated(&outcome, weights)
        }
        Err(error) => panic!("{}: {error}", case.name),
    }
}

/// Sizes and decisions, interval by interval.
fn tell(outcome: &Outcome) {
    let mut decisions = outcome.decisions.iter().peekable();
    for (at, row) in outcome.volumes[0].intervals.iter().enumerate() {
        let each = outcome.volumes.iter().filter_map(|volume| {
            let row = volume.intervals.get(at)?;
            let (hits, mean) = (row.hit_ratio.unwrap_or(0.0), row.latency.mean_ms.unwrap_or(0.0));
            Some(format!(
                "{:6}/{:6} hit {hits:.3} {:5.0}/s {mean:8.2} ms",
                row.used_blocks, row.quota_blocks, row.arrivals_per_second
            ))
        });
        println!("{:7.1} {}", row.at_s, each.collect::<Vec<_>>().join(" | "));
        while let Some(decision) = decisions.next_if(|decision| decision.at.as_secs_f64() <= row.at_s + 1e-9)
        {
            let facts: Vec<String> =
                decision.facts.iter().map(|fact| format!("{}={:?}", fact.name, fact.value)).collect();
            println!("        {:?} {} | {}", decision.kind, decision.summary, facts.join(" "));
        }
    }
}

/// Measures and prints; sets whose traces are not here are said to be skipped.
pub(crate) fn print(cases: &[Case], seeds: &[u64], optima: &Mutex<Optima>, decisions: bool) {
    println!(
        "recorded loads that need more memory than there is, seeds {seeds:?}: weighted excess over the bounds (weighted share of windows that \
         miss), sizes in MiB and the excess of each; shares are in proportion to needs times weights, or equal"
    );
    let (mut better, mut alike, mut all) = ([[0; 2]; 2], [[0; 2]; 2], 0);
    for set in SETS {
        let members: Vec<&Case> =
            set.iter().filter_map(|name| cases.iter().find(|case| case.name == *name)).collect();
        if members.len() < set.len() {
            eprintln!("skipped: {set:?} need traces that are not here");
            continue;
        }
        for &seed in seeds {
            let needs: Vec<f64> =
                members.iter().map(|case| judge::known_optimum(case, seed, None, optima).bytes()).collect();
            for (part, first) in PARTS.iter().flat_map(|part| WEIGHTS.map(|first| (part, first))) {
                let memory = part * needs.iter().sum::<f64>();
                let weights: Vec<f64> =
                    (0..members.len()).map(|at| if at == 0 { first } else { 1.0 }).collect();
                let case = together(&members, &weights, memory);
                let asked: Vec<f64> =
                    needs.iter().zip(&weights).map(|(need, weight)| need * weight).collect();
                let sum = asked.iter().sum::<f64>();
                let in_proportion: Vec<f64> = asked.iter().map(|asked| memory * asked / sum).collect();
                let equal = vec![memory / members.len() as f64; members.len()];
                let law = run(&case, seed, None, &weights, decisions);
                let shares =
                    [in_proportion, equal].map(|sizes| run(&case, seed, Some(&sizes), &weights, false));
                all += 1;
                for (at, share) in shares.iter().enumerate() {
                    let measures = [(share.excess, law.excess), (share.missed, law.missed)];
                    for (measure, (share, law)) in measures.into_iter().enumerate() {
                        if (share - law).abs() <= ALIKE * share.max(law) {
                            alike[measure][at] += 1;
                        } else {
                            better[measure][at] += usize::from(share > law);
                        }
                    }
                }
                let tell = |who: &Violated| {
                    let sizes: Vec<String> = (who.bytes.iter().zip(&who.each))
                        .map(|(bytes, each)| format!("{:.1}: {each:.2}", bytes / 1_048_576.0))
                        .collect();
                    format!("{:.3} ({:.2}) [{}]", who.excess, who.missed, sizes.join(", "))
                };
                println!(
                    "shares {} seed {seed}, {:.0} % of {:.1} MiB, weight {first}: master {}; in proportion {}; equal {}",
                    set.join("+").replace("trace-", ""),
                    part * 100.0,
                    needs.iter().sum::<f64>() / 1_048_576.0,
                    tell(&law),
                    tell(&shares[0]),
                    tell(&shares[1]),
                );
            }
        }
    }
    for (measure, what) in ["excess", "share of windows that miss"].into_iter().enumerate() {
        let ([in_proportion, equal], [as_proportion, as_equal]) = (better[measure], alike[measure]);
        println!(
            "by weighted {what} the master is better than shares in proportion in {in_proportion} of {all}, as good in {as_proportion}; than equal \
             shares in {equal}, as good in {as_equal}"
        );
    }
}
