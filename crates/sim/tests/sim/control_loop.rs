//! The daemon's controller on simulated volumes: it finds violations, grants, corrects and takes back.

use crate::{run, scenario};
use forebay_control::DecisionKind;
use forebay_control::conformance::Verdict;
use forebay_sim::{Scenario, Simulation, Traces, WindowRow};
use forebay_units::{Bytes, Nanos};

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

/// Who was idle until it began to interfere is found with the violation that it causes.
#[test]
fn a_neighbour_that_begins_is_found_at_once() {
    let texts = [
        (include_str!("../../../../scenarios/noisy-neighbour.toml"), "neighbour may interfere with db"),
        (include_str!("../../../../scenarios/array-write-flood.toml"), "batch may interfere with mail"),
    ];
    for (text, expected) in texts {
        for seed in [1, 2, 3] {
            let text = text.replace("duration = \"1800s\"", "duration = \"700s\"");
            let outcome = run(&scenario(&text), seed);
            let judged = outcome.decisions.iter().find(|one| one.kind == DecisionKind::InterferenceJudged);
            let judged = judged.expect("a violation was found");
            println!("seed {seed}: {} at {}: {:?}", judged.summary, judged.at, judged.facts);
            assert_eq!(judged.summary, expected, "seed {seed}: {:?}", judged.facts);
        }
    }
}

/// Two caches serve the tighter of two objectives: how they divide the work is found with about a tenth less memory than they come to by
/// feedback alone, and in none of the runs at the cost of an objective (seed 31 parted at once: 109 MiB, and .80 of the windows).
#[test]
fn caches_that_serve_one_volume_divide_the_work_with_little_memory() {
    let scenario = scenario(include_str!("../../../../scenarios/inverted-objectives.toml"));
    let mut together = Vec::new();
    for seed in [31, 32, 33] {
        let outcome = run(&scenario, seed);
        let bytes =
            outcome.volumes.iter().map(|volume| volume.totals.quota_blocks_mean * volume.block_bytes as f64);
        together.push(bytes.sum::<f64>() / Bytes::mib(1).as_f64());
        let shares = outcome.volumes.iter().map(|volume| volume.objectives[0].conforming_share);
        println!(
            "seed {seed}: {:.1} MiB, {:?}",
            together[together.len() - 1],
            shares.clone().collect::<Vec<_>>()
        );
        assert!(shares.flatten().all(|share| share >= 0.95), "seed {seed}");
    }
    // 111 by feedback alone.
    let mean = together.iter().sum::<f64>() / together.len() as f64;
    assert!(mean < 105.0, "{together:?}");
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

/// From 100 to 400 s, in the middle of nothing: what is judged of an objective is what happened while it stood, to the end.
#[test]
fn an_objective_that_comes_and_goes_is_judged_for_as_long_as_it_stands() {
    let stands = |window: &str| {
        let text = DEMO
            .replace("600s", "500s")
            .replace("300s", "0s")
            .replace("window = \"5s\"", &format!("window = \"{window}\"\nfrom = \"100s\"\nuntil = \"400s\""));
        run(&scenario(&text), 2)
    };
    let ends = |outcome: &forebay_sim::Outcome| -> Vec<f64> {
        outcome.volumes[0].objectives[0].windows.iter().map(|row| row.at_s).collect()
    };
    // Twenty windows of 15 s, the last of which ends when it does.
    let expected: Vec<f64> = (1..=20).map(|window| f64::from(100 + 15 * window)).collect();
    assert_eq!(ends(&stands("15s")), expected);
    // Every window misses at first. Three that do are sustained: of 10 ms the two before it began would have been as well, so that the first one is.
    let outcome = stands("5s");
    assert_eq!(ends(&outcome).len(), 60);
    let found =
        outcome.decisions.iter().find(|decision| decision.kind == DecisionKind::ViolationFound).expect("one");
    assert_eq!(found.at, Nanos::secs(105));
}

#[test]
fn a_controller_that_begins_later_decides_nothing_before() {
    let later = DEMO.replace("interval = \"5s\"", "interval = \"5s\", control_from = \"200s\"");
    let outcome = run(&scenario(&later), 1);
    // Its first interval is the one from 200 s on; three of five windows must miss, and what it decides holds from 215 s on at the earliest.
    assert!(outcome.decisions.iter().all(|decision| decision.at > Nanos::secs(200)));
    let rows = &outcome.volumes[0].intervals;
    assert!(rows.iter().all(|row| row.at_s > 215.0 || row.quota_blocks == 0));
    assert!(rows.iter().any(|row| row.quota_blocks > 0));
}

/// Behind a long way many hits are with their clients at once, and none at the cache: who asks for little and gets it all misses no floor.
#[test]
fn a_load_of_hits_behind_a_long_way_does_not_seem_to_wait() {
    let text = r#"
        name = "far"
        duration = "60s"
        cache = { memory = "4MiB", interval = "5s", sizing = "fixed" }
        origin = [{ name = "o", type = "servers", servers = 8, service = "1ms" }]
        appliance = [{ name = "a", workers = 4, link_latency = "1ms" }]
        [[volume]]
        name = "v"
        size = "1MiB"
        cache = "1MiB"
        load = [{ arrivals = "poisson", rate = 1500, popularity = "uniform" }]
        [[objective]]
        volume = "v"
        iops = 2000
        window = "5s"
        "#;
    let outcome = run(&scenario(text), 1);
    let verdicts = outcome.volumes[0].objectives[0].windows.iter().skip(1).map(|window| window.verdict);
    assert!(outcome.volumes[0].intervals.last().unwrap().hit_ratio == Some(1.0));
    assert!(
        verdicts.clone().all(|verdict| verdict == Verdict::LowLoad),
        "{:?}",
        verdicts.collect::<Vec<_>>()
    );
}

/// As in the daemon: reads that hang among writes that complete miss what is promised of reads, and so do writes among reads.
#[test]
fn reads_that_hang_among_writes_are_a_violation_and_so_are_writes_among_reads() {
    let text = r#"
        name = "hangs"
        duration = "150s"
        cache = { memory = "64MiB", interval = "5s" }
        origin = [{ name = "o", type = "servers", servers = 4, service = "1ms", hangs = [
            { from = "60s", for = "25s", operations = "KIND" },
        ] }]
        [[volume]]
        name = "db"
        size = "1GiB"
        load = [{ arrivals = "poisson", rate = 80, read_share = SHARE }]
        [[objective]]
        volume = "db"
        latency = "20ms"
        operations = "KIND"
        window = "5s"
    "#;
    for (kind, share) in [("reads", "0.1"), ("writes", "0.9")] {
        let outcome = run(&scenario(&text.replace("KIND", kind).replace("SHARE", share)), 1);
        let db = &outcome.volumes[0];
        assert!(db.intervals.iter().all(|row| row.iops > 40.0), "the others complete");
        // One is 8 requests in a second, 40 in a window. Of 60 to 65 s nobody knows yet that what came does more than take its time; those of the
        // last window were held for up to 25 s.
        for row in &db.objectives[0].windows {
            let expected = match row.at_s {
                65.0 => Verdict::LowLoad,
                70.0..=90.0 => Verdict::Nonconforming,
                _ => Verdict::Conforming,
            };
            assert_eq!(
                (row.verdict, row.value.is_some()),
                (expected, !(65.0..=85.0).contains(&row.at_s)),
                "{kind} at {} s",
                row.at_s
            );
        }
        let found = outcome.decisions.iter().find(|one| one.kind == DecisionKind::ViolationFound);
        let at = found.expect("a violation").at;
        assert!(at > Nanos::secs(65) && at < Nanos::secs(85), "{kind} at {at}");
    }
}

/// One client whose requests take 21 ms: the first that reaches the origin in the tenth second waits for the end of both times.
#[test]
fn what_hangs_is_answered_when_that_is_over() {
    let text = r#"
        name = "hangs"
        duration = "60s"
        cache = { memory = "0B", interval = "1s", sizing = "fixed", hit_latency = "0s" }
        origin = [{ name = "o", type = "servers", servers = 1, service = "1ms", link_latency = "10ms", hangs = [
            { from = "30s", for = "5s" }, { from = "10s", for = "20s" },
        ] }]
        [[volume]]
        name = "db"
        size = "1GiB"
        load = [{ arrivals = "closed", clients = 1, think = "1ms" }]
    "#;
    let outcome = run(&scenario(text), 1);
    let rows = &outcome.volumes[0].intervals;
    for row in rows {
        // One may have been on its way back.
        let hangs = (11.5..35.5).contains(&row.at_s);
        assert!(row.at_s == 11.0 || hangs == (row.iops == 0.0), "{} at {} s", row.iops, row.at_s);
    }
    let longest = rows[35].latency.p99_ms.expect("answers");
    assert!((longest / 25_000.0 - 1.0).abs() < 0.01, "{longest} ms at {} s", rows[35].at_s);
}

#[test]
fn a_size_that_was_foretold_is_there_from_the_end_of_its_interval_on() {
    let text = DEMO
        .replace("cache = {", "cache = { sizing = \"fixed\",")
        .replace("size = \"2GiB\"", "size = \"2GiB\"\ncache = \"1MiB\"")
        .replace("rate = 600", "rate = 200")
        .replace("600s", "40s")
        .replace("300s", "0s");
    let (scenario, traces) = (scenario(&text), Traces::new());
    let simulation = Simulation::new(&scenario, &traces, Some(1)).expect("a good scenario");
    let outcome = simulation.with_size(Nanos::secs(22), 0, Bytes::mib(2)).run();
    // 22 s lies in the interval of 5 s that ends at 25 s.
    for row in &outcome.volumes[0].intervals {
        assert_eq!(row.quota_blocks, if row.at_s <= 25.0 { 256 } else { 512 }, "{}", row.at_s);
    }
}

#[test]
fn what_is_observed_is_observed_as_asked() {
    let seen = |observe: &str| {
        let text = DEMO
            .replace("cache = {", &format!("{observe}\ncache = {{"))
            .replace("600s", "60s")
            .replace("300s", "30s");
        run(&scenario(&text), 1).volumes[0].intervals.last().expect("intervals").working_set_blocks
    };
    // 600 requests/s: in 10 s fewer distinct blocks than in 30.
    let (short, long) = (seen("observe.window = \"10s\""), seen("observe.window = \"30s\""));
    assert!(short < long && short > 1_000, "{short} and {long}");
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
    // Also of a law that begins later.
    let mut later = scenario.clone();
    later.cache.control_from = forebay_units::Nanos::secs(100);
    assert!(forebay_sim::hindsight(&later, &traces, 1, 0, step).is_ok_and(|found| found.is_some()));
    // And of the paper's with rules of its own, which a static size has no use for.
    let mut eafc = scenario.clone();
    (eafc.cache.sizing, eafc.eafc.gain) = (forebay_sim::scenario::Sizing::Eafc, 0.6);
    assert!(forebay_sim::hindsight(&eafc, &traces, 1, 0, step).is_ok_and(|found| found.is_some()));
}

/// The load of the third phase is that of the first: its size is used at the end of the first interval that misses.
/// Two disks; the load changes after 800 s.
fn step(before: &str, after: &str) -> Scenario {
    scenario(&format!(
        r#"
        name = "step"
        duration = "900s"
        cache = {{ memory = "4GiB" }}
        origin = [{{ name = "o", type = "disks", spindles = 2, disk = "15000rpm" }}]
        [[volume]]
        name = "v"
        size = "8GiB"
        load = [
            {{ arrivals = "poisson", theta = 0.9, {before} }},
            {{ arrivals = "poisson", theta = 0.9, {after}, from = "800s" }},
        ]
        [[objective]]
        volume = "v"
        latency = "7ms"
        conforming_share = 0.99
        "#
    ))
}

#[test]
fn a_step_of_load_or_of_the_working_set_is_answered_in_the_interval_that_shows_it() {
    let step_of_load = step("rate = 1000, working_set = \"256MiB\"", "rate = 1400, working_set = \"256MiB\"");
    let step_of_set = step("rate = 1200, working_set = \"128MiB\"", "rate = 1200, working_set = \"256MiB\"");
    for (scenario, seed) in [(&step_of_load, 578), (&step_of_load, 579), (&step_of_set, 580)] {
        let outcome = run(scenario, seed);
        let windows = &outcome.volumes[0].objectives[0].windows;
        let missed = |window: &&WindowRow| window.verdict == Verdict::Nonconforming;
        let after: Vec<f64> = windows.iter().filter(missed).map(|window| window.at_s).collect();
        assert!(after.contains(&810.0), "seed {seed}: the step is none");
        // What piled up in the first window is worked off in the second, and perhaps the third.
        let late: Vec<&f64> = after.iter().filter(|at| (831.0..880.0).contains(*at)).collect();
        assert!(late.is_empty(), "seed {seed}: {late:?} of {after:?} miss");
    }
}

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
    let mut missed = 0;
    for seed in 1..=8 {
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
        // A quarter more until what waited is worked off, and then the size of before.
        assert!(third * 10 >= first * 9 && third * 10 <= first * 13, "seed {seed}: {third} and {first}");
        let settled = quota(1_180.0);
        assert!(settled * 10 <= first * 12, "seed {seed}: {settled} and {first}");
        let late = db.objectives[0].windows.iter().filter(|row| row.at_s > 1_140.0);
        missed += late.filter(|row| row.verdict == Verdict::Nonconforming).count();
    }
    // Of 128; one in twenty may, and the size that suffices is found anew. By chance a single run has up to three.
    assert!(missed <= 12, "{missed} windows miss");
}

/// Two closed loops on four disks, of which each gets some 240 requests/s.
const RESERVED: &str = r#"
    name = "reserved"
    duration = "900s"
    cache = { memory = "64MiB", interval = "5s" }
    origin = [{ name = "o", type = "disks", spindles = 4 }]
    [[volume]]
    name = "a"
    size = "2GiB"
    load = [{ arrivals = "closed", clients = 4, theta = 1.0, working_set = "64MiB" }]
    [[volume]]
    name = "b"
    size = "2GiB"
    load = [{ arrivals = "closed", clients = 4, theta = 1.0, working_set = "64MiB" }]
"#;

#[test]
fn contended_memory_does_not_go_back_and_forth_with_bursts() {
    // A burst of half a minute every three minutes needs some 20 MiB, the neighbour some 15 all the time; there are 26 in all.
    let mut loads = String::new();
    for burst in 0..15 {
        let load = |from: u32, rate: u32| {
            let from = if from == 0 { String::new() } else { format!("from = \"{from}s\", ") };
            format!(
                "{{ {from}arrivals = \"poisson\", rate = {rate}, theta = 0.6, working_set = \"48MiB\" }},\n"
            )
        };
        loads += &load(burst * 180, 20);
        loads += &load(burst * 180 + 150, 900);
    }
    let text = format!(
        r#"
        name = "bursts"
        duration = "2700s"
        measure_from = "900s"
        cache = {{ memory = "26MiB", interval = "5s" }}
        origin = [{{ name = "a", type = "disks", spindles = 2 }}, {{ name = "b", type = "disks", spindles = 2 }}]
        [[volume]]
        name = "bursting"
        origin = "a"
        size = "1GiB"
        load = [{loads}]
        [[volume]]
        name = "even"
        origin = "b"
        size = "1GiB"
        load = [{{ arrivals = "poisson", rate = 700, theta = 0.6, working_set = "48MiB" }}]
        [[objective]]
        volume = "bursting"
        latency = "10ms"
        window = "5s"
        [[objective]]
        volume = "even"
        latency = "10ms"
        window = "5s"
        "#
    );
    let outcome = run(&scenario(&text), 1);
    let mut excess = 0.0;
    for volume in &outcome.volumes {
        let late = |at_s: f64| at_s > outcome.measure_from_s;
        let rows = volume.objectives[0].windows.iter().filter(|row| late(row.at_s));
        let beyond: Vec<f64> =
            rows.map(|row| (row.value.unwrap_or(0.0) / 0.010 - 1.0).clamp(0.0, 100.0)).collect();
        let quotas: Vec<u64> =
            volume.intervals.iter().filter(|row| late(row.at_s)).map(|row| row.quota_blocks).collect();
        let moved: u64 = quotas.windows(2).map(|two| two[0].abs_diff(two[1])).sum();
        let mean = beyond.iter().sum::<f64>() / beyond.len() as f64;
        println!(
            "{mean:.2} beyond the bound, {moved} blocks moved, {:?}",
            volume.objectives[0].conforming_share
        );
        // By the moment alone 75,000 and 19,000 blocks are moved.
        assert!(moved < 12_000, "{moved} blocks moved");
        excess += mean;
    }
    // By the moment alone 22.3: every burst finds its cache cold.
    assert!(excess < 7.0, "{excess} beyond the bounds on average");
}

/// No cache that there is memory for keeps the objective of the one, and a small one takes away most of what it is violated by. The other keeps its own with all that there is, and
/// is little beyond its bound without some of it.
#[test]
fn who_is_beyond_help_gets_the_memory_that_is_worth_more_there() {
    let text = |weight: u32| {
        format!(
            r#"
        name = "beyond-help"
        duration = "900s"
        measure_from = "450s"
        cache = {{ memory = "24MiB", interval = "5s" }}
        origin = [{{ name = "a", type = "disks", spindles = 2 }}, {{ name = "b", type = "disks", spindles = 2 }}]
        [[volume]]
        name = "helpless"
        origin = "a"
        size = "1GiB"
        load = [{{ arrivals = "poisson", rate = 410, popularity = "uniform", working_set = "256MiB" }}]
        [[volume]]
        name = "served"
        origin = "b"
        size = "1GiB"
        load = [{{ arrivals = "poisson", rate = 700, theta = 0.6, working_set = "48MiB" }}]
        [[objective]]
        volume = "helpless"
        latency = "2ms"
        window = "5s"
        weight = {weight}
        [[objective]]
        volume = "served"
        latency = "10ms"
        window = "5s"
        "#
        )
    };
    let found = |weight: u32, seed: u64| {
        let outcome = run(&scenario(&text(weight)), seed);
        let [helpless, served] = &outcome.volumes[..] else { panic!("two volumes") };
        let late = |at_s: f64| at_s > outcome.measure_from_s;
        let rows = helpless.objectives[0].windows.iter().filter(|row| late(row.at_s));
        let values: Vec<f64> = rows.filter_map(|row| row.value).collect();
        let mean_s = values.iter().sum::<f64>() / values.len() as f64;
        let mib = helpless.totals.quota_blocks_mean * helpless.block_bytes as f64 / 1_048_576.0;
        let kept = served.objectives[0].conforming_share.expect("it is judged");
        println!("weight {weight}, seed {seed}: {mib:.1} MiB, {mean_s:.3} s, {kept:.3}");
        (mib, mean_s, kept)
    };
    // Where both weigh the same what the one would gain costs the other as much: it has what nobody wants. What the other gets first does nothing for it yet (on seeds 3 and 8 the
    // model says so): weighed by that alone it gets nothing.
    let kept = (1..=8).map(|seed| {
        let (mib, mean_s, kept) = found(1, seed);
        assert!(mib < 11.0 && mean_s > 3.0 && kept > 0.7, "seed {seed}: {mib} MiB, {mean_s} s, {kept}");
        kept
    });
    let mean = kept.sum::<f64>() / 8.0;
    assert!(mean > 0.9, "{mean}");
    // 5,000 times the bound without it (a hundred, since it hangs), 50 with it.
    let (mib, mean_s, _) = found(16, 7);
    assert!(mib > 20.0 && mean_s < 0.2, "{mib} MiB, {mean_s} s");
}

#[test]
fn a_reservation_is_what_its_objectives_are_and_is_kept_while_it_stands() {
    let reserved = format!(
        "{RESERVED}[[reservation]]\nvolumes = [\"a\", \"b\"]\niops = 900\nlatency = \"1s\"\nfrom = \"200s\"\nfor = \"400s\"\n"
    );
    // The same, said of each volume: half of the rate, judged by interval, above others, from 200 to 600 s.
    let objective = |volume: &str, bound: &str| {
        let rest = "window = \"5s\"\npriority = 1\nfrom = \"200s\"\nuntil = \"600s\"";
        format!("[[objective]]\nvolume = \"{volume}\"\n{bound}\n{rest}\n")
    };
    let mut stated = RESERVED.to_owned();
    for volume in ["a", "b"] {
        stated += &objective(volume, "iops = 450");
        stated += &objective(volume, "latency = \"1s\"");
    }
    let (found, expected) = (run(&scenario(&reserved), 3), run(&scenario(&stated), 3));
    assert_eq!((&found.hash, &found.decisions), (&expected.hash, &expected.decisions));

    let both = &found.reservations[0];
    assert_eq!((both.from_s, both.until_s, both.intervals), (200.0, 600.0, 80));
    assert!(both.reached_share.unwrap() >= 0.8 && both.iops_mean.unwrap() >= 900.0, "{both:?}");
    let together = |from: f64, until: f64| {
        let of = |at: usize| {
            let rows = found.volumes[at].intervals.iter().filter(|row| row.at_s > from && row.at_s <= until);
            rows.map(|row| row.iops).sum::<f64>() * 5.0 / (until - from)
        };
        of(0) + of(1)
    };
    let (before, during) = (together(0.0, 200.0), together(200.0, 600.0));
    assert!((during / both.iops_mean.unwrap() - 1.0).abs() < 1e-9, "{during}");
    assert!(before < 700.0, "{before}");
    for volume in &found.volumes {
        let quota = |at_s: f64| volume.intervals.iter().find(|row| row.at_s >= at_s).unwrap().quota_blocks;
        assert_eq!(quota(200.0), 0, "nothing is promised yet");
        assert!(quota(500.0) > 0);
        let parts: Vec<Option<usize>> = volume.objectives.iter().map(|part| part.reservation).collect();
        assert_eq!(parts, [Some(0), Some(0)]);
    }
}

#[test]
fn hangs_move_nearer_with_the_rest_of_the_plan() {
    let text = r#"
        name = "hangs"
        duration = "1000s"
        origin = [{ name = "o", type = "servers", service = "1ms", hangs = [{ from = "500s", for = "200s" }] }]
        volume = [{ name = "v", size = "1GiB", load = [{ arrivals = "constant", rate = 100 }] }]
    "#;
    let outcome = run(&scenario(text).within(forebay_units::Nanos::secs(100)), 1);
    let silent = outcome.volumes[0].intervals.iter().filter(|row| row.iops == 0.0).map(|row| row.at_s);
    assert_eq!(silent.collect::<Vec<_>>(), [60.0, 70.0]);
}

#[test]
fn reservations_move_nearer_with_the_rest_of_the_plan() {
    let text = format!(
        "{RESERVED}[[reservation]]\nvolumes = [\"a\"]\nlatency = \"5ms\"\nfrom = \"300s\"\nfor = \"450s\"\n"
    );
    let short = scenario(&text).within(forebay_units::Nanos::secs(90));
    let table = &short.reservation[0];
    assert_eq!((table.from, table.until()), (forebay_units::Nanos::secs(30), forebay_units::Nanos::secs(75)));
}

#[test]
fn an_adaptive_cache_finds_the_policy_of_each_volume_whoever_sizes_it() {
    // A circle of 20 MiB: recency keeps nothing of it in 16 MiB, LIRS all that fits.
    let circle = |policy: &str, fixed: &str, popularity: &str| {
        let text = format!(
            r#"
            name = "circle"
            duration = "400s"
            measure_from = "200s"
            cache = {{ memory = "64MiB", interval = "5s", policy = "{policy}" }}
            origin = [{{ name = "o", type = "servers", servers = 4, service = "5ms" }}]
            [[volume]]
            name = "circle"
            size = "20MiB"
            {fixed}
            load = [{{ arrivals = "poisson", rate = 700, popularity = "{popularity}" }}]
            [[volume]]
            name = "popular"
            size = "1GiB"
            load = [{{ arrivals = "poisson", rate = 50, theta = 0.9, working_set = "32MiB" }}]
            [[objective]]
            volume = "circle"
            latency = "5200us"
            window = "5s"
            "#
        );
        run(&scenario(&text), 1)
    };
    let hits =
        |policy: &str| circle(policy, "cache = \"16MiB\"", "sequential").volumes[0].totals.hit_ratio.unwrap();
    let (lru, adaptive) = (hits("lru"), hits("adaptive"));
    assert!(lru == 0.0 && adaptive > 0.75, "hit ratios of {lru} and {adaptive}");
    // The controller sizes it: quotas change, and hold.
    let controlled = circle("adaptive", "", "zipf");
    let volume = &controlled.volumes[0];
    assert!(volume.adaptive.is_some() && volume.totals.quota_blocks_max > 0);
    for row in &volume.intervals {
        assert!(row.used_blocks <= row.quota_blocks, "{row:?}");
    }
    assert_eq!(circle("adaptive", "", "zipf").hash, controlled.hash);
    assert!(circle("lru", "", "zipf").volumes[0].adaptive.is_none());
}

#[test]
fn the_controller_grants_what_caches_of_a_fixed_size_leave() {
    let scenario = scenario(
        r#"
        name = "rest"
        duration = "300s"
        cache = { memory = "16MiB", interval = "5s" }
        origin = [{ name = "o", type = "servers", servers = 2, service = "5ms" }]
        [[volume]]
        name = "fixed"
        size = "1GiB"
        cache = "12MiB"
        load = [{ arrivals = "poisson", rate = 1, popularity = "uniform" }]
        [[volume]]
        name = "free"
        size = "1GiB"
        load = [{ arrivals = "poisson", rate = 350, theta = 0.9, working_set = "64MiB" }]
        [[objective]]
        volume = "free"
        latency = "1ms"
        window = "5s"
        "#,
    );
    let [fixed, free] = [0, 1].map(|at| run(&scenario, 1).volumes[at].totals.quota_blocks_max);
    assert_eq!(fixed, 3_072);
    assert!(free > 0 && free <= 1_024, "{free} blocks");
}
