//! How fast virtual time passes: a two-hour scenario of 5,000 requests a second with disks, two workloads and the
//! controller. `--smoke` runs 20 s of it.

use forebay_sim::{DrawJob, Outcome, Scenario, Simulation, Traces};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

const SCENARIO: &str = include_str!("two-hours.toml");

fn main() {
    let smoke = std::env::args().any(|argument| argument == "--smoke" || argument == "--test");
    let mut scenario: Scenario = toml::from_str(SCENARIO).expect("a good scenario");
    if smoke {
        scenario.duration = forebay_units::Nanos::secs(20);
        scenario.measure_from = forebay_units::Nanos::ZERO;
    }
    let traces = Traces::new();
    let simulation = || Simulation::new(&scenario, &traces, None).expect("a good scenario");
    let outcome = timed("on one core", simulation());
    // As `forebay sim` does where there are two processors.
    let (hand, jobs) = mpsc::channel::<DrawJob>();
    thread::spawn(move || jobs.into_iter().for_each(DrawJob::run));
    let hand = move |job| hand.send(job).expect("the thread runs as long as it");
    assert_eq!(timed("on two cores", simulation().with_helper(hand)).hash, outcome.hash);
    for volume in &outcome.volumes {
        println!(
            "  {}: {:.0} requests/s, {:.2} ms, hit ratio {:.3}, quota {:.0} MiB, shed {}, conforming {:.3}",
            volume.volume,
            volume.totals.iops,
            volume.totals.latency.mean_ms.unwrap_or(f64::NAN),
            volume.totals.hit_ratio.unwrap_or(0.0),
            volume.totals.quota_blocks_mean * volume.block_bytes as f64 / f64::from(1 << 20),
            volume.totals.shed,
            volume.objectives[0].conforming_share.unwrap_or(f64::NAN),
        );
    }
}

fn timed(how: &str, simulation: Simulation<'_>) -> Outcome {
    let started = Instant::now();
    let outcome = simulation.run();
    let took = started.elapsed().as_secs_f64();
    println!(
        "{:.0} s of virtual time in {took:.2} s {how}: {} requests, {} events, {:.0} ns per request; hash {}",
        outcome.seconds,
        outcome.requests,
        outcome.events,
        took * 1e9 / outcome.requests as f64,
        outcome.hash,
    );
    outcome
}
