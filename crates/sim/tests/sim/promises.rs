//! What the `about` of each shipped scenario promises its reader is what it shows (those with recordings apart, which the tests of the command run).
//!
//! `FOREBAY_SCENARIO_SEEDS=41..50` looks at more seeds than one.

use crate::{run, scenario};
use forebay_control::DecisionKind;
use forebay_sim::{Outcome, VolumeSeries};

macro_rules! shipped {
    ($name:literal) => {
        include_str!(concat!("../../../../scenarios/", $name, ".toml"))
    };
}

fn seeds() -> Vec<u64> {
    let told = std::env::var("FOREBAY_SCENARIO_SEEDS").ok();
    let range = told.as_deref().and_then(|told| told.split_once(".."));
    let number = |text: &str| text.parse().expect("FOREBAY_SCENARIO_SEEDS is FIRST..LAST");
    range.map_or(vec![41], |(first, last)| (number(first)..=number(last)).collect())
}

/// Every seed's outcome of a scenario.
fn played(text: &str) -> impl Iterator<Item = (u64, Outcome)> + use<> {
    let scenario = scenario(text);
    seeds().into_iter().map(move |seed| (seed, run(&scenario, seed)))
}

fn volume<'a>(outcome: &'a Outcome, name: &str) -> &'a VolumeSeries {
    outcome.volumes.iter().find(|volume| volume.volume == name).expect("a volume of the scenario")
}

/// The share of its windows in which a volume kept its objective.
fn kept(outcome: &Outcome, name: &str) -> f64 {
    volume(outcome, name).objectives[0].conforming_share.expect("judged")
}

/// A mean over the intervals that end in a span of seconds.
fn mean(
    outcome: &Outcome,
    name: &str,
    span: (f64, f64),
    of: impl Fn(&forebay_sim::IntervalRow) -> f64,
) -> f64 {
    let rows = volume(outcome, name).intervals.iter().filter(|row| row.at_s > span.0 && row.at_s <= span.1);
    let values: Vec<f64> = rows.map(of).collect();
    values.iter().sum::<f64>() / values.len() as f64
}

fn quota(outcome: &Outcome, name: &str, span: (f64, f64)) -> f64 {
    mean(outcome, name, span, |row| row.quota_blocks as f64)
}

fn latency_ms(outcome: &Outcome, name: &str, span: (f64, f64)) -> f64 {
    mean(outcome, name, span, |row| row.latency.mean_ms.unwrap_or(0.0))
}

#[test]
fn a_policy_is_found_while_it_runs() {
    let text = shipped!("adaptive-policy");
    for (seed, outcome) in played(text) {
        let hits = |name| volume(&outcome, name).totals.hit_ratio.expect("reads");
        println!("seed {seed}: circle {:.3}, popular {:.3}", hits("circle"), hits("popular"));
        assert!(hits("circle") > 0.7 && hits("popular") > 0.6, "seed {seed}");
    }
    let lru = text.replace("policy = \"adaptive\"", "policy = \"lru\"");
    assert_ne!(lru, text);
    for (seed, outcome) in played(&lru) {
        assert!(volume(&outcome, "circle").totals.hit_ratio < Some(0.01), "seed {seed}");
    }
}

#[test]
fn a_write_flood_spoils_what_neither_a_cache_nor_a_tier_serves() {
    for (seed, outcome) in played(shipped!("array-write-flood")) {
        let [before, in_it, after] =
            [(60.0, 120.0), (130.0, 240.0), (290.0, 360.0)].map(|span| latency_ms(&outcome, "mail", span));
        println!("seed {seed}: {before:.2}, {in_it:.2}, {after:.2} ms, kept {:.3}", kept(&outcome, "mail"));
        assert!(before < 2.0 && in_it > 10.0 * before && after < 2.0, "seed {seed}");
        assert!(kept(&outcome, "mail") < 0.7, "seed {seed}");
    }
    for text in [shipped!("array-write-flood-cached"), shipped!("array-write-flood-tier")] {
        for (seed, outcome) in played(text) {
            println!("seed {seed}: kept {:.3}", kept(&outcome, "mail"));
            assert!(kept(&outcome, "mail") >= 0.95, "seed {seed}: {}", kept(&outcome, "mail"));
        }
    }
}

#[test]
fn a_reader_waits_behind_what_a_full_flash_disk_writes() {
    for (seed, outcome) in played(shipped!("flash-writes")) {
        let [before, after] =
            [(10.0, 60.0), (70.0, f64::MAX)].map(|span| latency_ms(&outcome, "reader", span));
        println!("seed {seed}: {before:.3} ms alone, {after:.3} ms beside the writer");
        assert!(after > 1.3 * before, "seed {seed}: {before} {after}");
    }
}

#[test]
fn one_shared_lru_serves_the_looser_objective_better() {
    for (seed, outcome) in played(shipped!("inverted-objectives-shared")) {
        let totals = |name| volume(&outcome, name).totals.latency.mean_ms.expect("requests");
        println!("seed {seed}: loose {:.2} ms, tight {:.2} ms", totals("loose"), totals("tight"));
        assert!(totals("loose") < totals("tight") / 2.0, "seed {seed}");
        assert!(kept(&outcome, "loose") >= 0.95 && kept(&outcome, "tight") < 0.8, "seed {seed}");
    }
}

#[test]
fn a_load_that_doubles_gets_more_cache_for_as_long_as_it_lasts() {
    for (seed, outcome) in played(shipped!("load-step")) {
        let quotas =
            [(300.0, 600.0), (700.0, 1_200.0), (1_500.0, 1_800.0)].map(|span| quota(&outcome, "db", span));
        let is_remembered = outcome.decisions.iter().any(|one| one.kind == DecisionKind::PhaseRemembered);
        println!(
            "seed {seed}: {quotas:?} blocks, kept {:.3}, remembered {is_remembered}",
            kept(&outcome, "db")
        );
        assert!(quotas[1] > 2.0 * quotas[0] && quotas[2] < 0.6 * quotas[1] && is_remembered, "seed {seed}");
        // The second time its size is known, and given with the first window that shows it.
        assert!(quota(&outcome, "db", (1_810.0, 1_820.0)) > 0.8 * quotas[1], "seed {seed}");
        // In the windows of two steps up, of two hundred and ten, as well.
        assert!(kept(&outcome, "db") >= 0.88, "seed {seed}");
    }
}

#[test]
fn a_working_set_that_doubles_gets_more_cache_for_as_long_as_it_lasts() {
    for (seed, outcome) in played(shipped!("working-set-step")) {
        let quotas =
            [(300.0, 600.0), (800.0, 1_200.0), (1_500.0, 1_800.0)].map(|span| quota(&outcome, "db", span));
        println!("seed {seed}: {quotas:?} blocks, kept {:.3}", kept(&outcome, "db"));
        assert!(quotas[1] > 1.5 * quotas[0] && quotas[2] < 0.7 * quotas[1], "seed {seed}");
        assert!(kept(&outcome, "db") >= 0.92, "seed {seed}");
    }
}

#[test]
fn a_neighbour_that_interferes_is_answered_until_it_falls_silent() {
    for (seed, outcome) in played(shipped!("noisy-neighbour")) {
        let both = |span| quota(&outcome, "db", span) + quota(&outcome, "neighbour", span);
        let quotas = [(0.0, 200.0), (300.0, 1_400.0), (1_770.0, 1_800.0)].map(both);
        println!("seed {seed}: {quotas:?} blocks, kept {:.3}", kept(&outcome, "db"));
        assert!(quotas[0] == 0.0 && quotas[1] > 0.0 && quotas[2] == 0.0, "seed {seed}: {quotas:?}");
        assert!(kept(&outcome, "db") >= 0.9, "seed {seed}");
    }
}

#[test]
fn memory_that_is_short_goes_by_priority_then_weight_and_leaves_what_was_guaranteed() {
    for (seed, outcome) in played(shipped!("oversubscription")) {
        let bytes = |name| {
            let volume = volume(&outcome, name);
            volume.totals.quota_blocks_mean * volume.block_bytes as f64 / f64::from(1 << 20)
        };
        let [orders, mail, batch] = ["orders", "mail", "batch"].map(bytes);
        println!("seed {seed}: {orders:.1}, {mail:.1}, {batch:.1} MiB, kept {:.3}", kept(&outcome, "orders"));
        assert!(kept(&outcome, "orders") >= 0.95 && mail > batch && batch > 15.9, "seed {seed}");
    }
}

#[test]
fn a_reservation_is_reached_for_as_long_as_it_stands() {
    for (seed, outcome) in played(shipped!("reservation")) {
        let reserved = &outcome.reservations[0];
        let alone: f64 =
            ["first", "second"].iter().map(|name| mean(&outcome, name, (300.0, 600.0), |row| row.iops)).sum();
        println!(
            "seed {seed}: {alone:.0}/s before, {:?} in {:?}",
            reserved.iops_mean, reserved.reached_share
        );
        assert!(alone < 1_200.0, "seed {seed}");
        assert!(reserved.reached_share >= Some(0.95), "seed {seed}: {:?}", reserved.reached_share);
    }
}
