//! The daemon's controller on simulated volumes: it finds violations, grants, corrects and takes back.

use crate::{run, scenario};
use forebay_control::DecisionKind;

const DEMO: &str = r#"
    name = "violated"
    duration = "600s"
    measure_from = "300s"
    cache = { memory = "64MiB", interval = "5s" }
    origin = [{ name = "o", type = "disks", spindles = 4 }]
    [[volume]]
    name = "db"
    size = "2GiB"
    load = [{ arrivals = "poisson", rate = 600, theta = 1.0, working_set = "64MiB" }]
    [[objective]]
    volume = "db"
    latency = "10ms"
    window = "5s"
"#;

#[test]
fn a_violation_is_mended_by_a_cache_that_stays_within_the_capacity() {
    let outcome = run(&scenario(DEMO), 1);
    let kinds: Vec<DecisionKind> = outcome.decisions.iter().map(|decision| decision.kind).collect();
    for kind in [
        DecisionKind::ViolationFound,
        DecisionKind::SolutionChosen,
        DecisionKind::Granted,
        DecisionKind::ViolationEnded,
    ] {
        assert!(kinds.contains(&kind), "{kind:?} in {kinds:?}");
    }
    let db = &outcome.volumes[0];
    let objective = &db.objectives[0];
    assert_eq!(objective.met, Some(true), "{:?}", objective.conforming_share);
    assert!(db.intervals.iter().all(|row| row.quota_blocks * 4_096 <= 64 << 20));
    println!(
        "conforming {:?}, quota {:.0} blocks, last violation {:?} s",
        objective.conforming_share, db.totals.quota_blocks_mean, objective.last_violation_s
    );
}

#[test]
fn an_objective_that_comes_and_goes_brings_its_cache_and_takes_it_back() {
    let text = DEMO
        .replace("duration = \"600s\"", "duration = \"900s\"")
        .replace("latency = \"10ms\"", "latency = \"10ms\"\nfrom = \"100s\"\nuntil = \"400s\"");
    let outcome = run(&scenario(&text), 2);
    let rows = &outcome.volumes[0].intervals;
    let quota = |at_s: f64| rows.iter().find(|row| row.at_s >= at_s).expect("within the run").quota_blocks;
    assert_eq!(quota(100.0), 0);
    assert!(quota(395.0) > 0);
    assert!(outcome.volumes[0].objectives[0].windows.iter().all(|row| row.at_s > 100.0 && row.at_s <= 400.0));
}

#[test]
fn the_optimum_in_hindsight_suffices_and_a_step_less_does_not() {
    // 200 s of a small problem: 4 servers of 10 ms serve 400/s, 600/s are asked for.
    let scenario = scenario(
        r#"
        name = "hindsight"
        duration = "400s"
        measure_from = "200s"
        cache = { memory = "32MiB", interval = "5s" }
        origin = [{ name = "o", type = "servers", servers = 4, service = "10ms", distribution = "exponential" }]
        [[volume]]
        name = "db"
        size = "1GiB"
        load = [{ arrivals = "poisson", rate = 600, theta = 0.9, working_set = "32MiB", outstanding_max = 200 }]
        [[objective]]
        volume = "db"
        latency = "8ms"
        window = "5s"
        "#,
    );
    let traces = forebay_sim::Traces::new();
    let step = forebay_units::Bytes::kib(128);
    let found = forebay_sim::hindsight(&scenario, &traces, 1, 0, step).unwrap().expect("an objective");
    println!("{found:?}, ratio {:?}", found.ratio());
    let optimum = found.optimum_bytes.expect("32 MiB hold everything");
    assert!(optimum > 0 && optimum <= 16 << 20, "{found:?}");
    let share = |bytes: u64| {
        let mut fixed = scenario.clone();
        fixed.cache.sizing = forebay_sim::scenario::Sizing::Fixed;
        fixed.volume[0].cache = Some(forebay_units::Bytes(bytes));
        run(&fixed, 1).volumes[0].objectives[0].conforming_share.unwrap()
    };
    assert!(share(optimum) >= found.conforming_share);
    assert!(share(optimum - step.get()) < found.conforming_share);
}

/// The load of the third phase is that of the first: its size is used at the end of the first interval that misses.
#[test]
fn the_size_of_a_remembered_phase_is_used_within_an_interval() {
    let scenario = scenario(
        r#"
        name = "phases"
        duration = "1300s"
        cache = { memory = "128MiB", interval = "10s" }
        origin = [{ name = "o", type = "servers", servers = 3, service = "5ms", distribution = "exponential" }]
        [[volume]]
        name = "db"
        size = "1GiB"
        load = [
            { arrivals = "poisson", rate = 1000, theta = 0.9, working_set = "64MiB" },
            { from = "600s", arrivals = "poisson", rate = 700, theta = 0.9, working_set = "64MiB" },
            { from = "1100s", arrivals = "poisson", rate = 1000, theta = 0.9, working_set = "64MiB" },
        ]
        [[objective]]
        volume = "db"
        latency = "6ms"
        "#,
    );
    for seed in [1, 2, 3] {
        let outcome = run(&scenario, seed);
        let db = &outcome.volumes[0];
        let quota = |at_s: f64| {
            let row = db.intervals.iter().find(|row| row.at_s >= at_s).expect("within the run");
            row.quota_blocks
        };
        let (first, second, third) = (quota(600.0), quota(1_100.0), quota(1_120.0));
        let recalled = outcome.decisions.iter().find(|decision| {
            decision.kind == DecisionKind::PhaseRemembered && decision.at > forebay_units::Nanos::secs(1_100)
        });
        println!(
            "phases, seed {seed}: {first}, {second}, {third} blocks, recalled {:?}",
            recalled.map(|d| d.at)
        );
        assert!(second < first, "seed {seed}: {second} of {first}");
        let recalled = recalled.unwrap_or_else(|| panic!("seed {seed}: nothing is remembered"));
        assert!(recalled.at <= forebay_units::Nanos::secs(1_110), "seed {seed}: {}", recalled.at);
        assert!(third.abs_diff(first) * 10 <= first, "seed {seed}: {third} and {first}");
        let late = db.objectives[0].windows.iter().filter(|row| row.at_s > 1_140.0);
        let missed = late.filter(|row| row.verdict == forebay_control::conformance::Verdict::Nonconforming);
        assert!(missed.count() <= 2, "seed {seed}");
    }
}
