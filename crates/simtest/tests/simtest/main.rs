//! The data path under seeded faults: real NBD sessions, service, volume machines and caches; simulated network, origins and clock.
//!
//! One seed is one run. A failure prints seed and commit, and the last things that happened; `FOREBAY_SEED=<seed> cargo test -p
//! forebay-simtest` replays it. `FOREBAY_SEED_COUNT` runs as many seeds (default 2,000), from `FOREBAY_SEED_FIRST` on (default 0);
//! `FOREBAY_MINUTES` goes on for as long as that instead. docs/internals/simtest.md says what is simulated and what is checked.

mod client;
mod controller;
mod daemon;
mod disturbance;
mod flash;
mod network;
mod origin;
mod response;
mod ring;
mod traffic;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};
use world::{Course, World};

/// Seeds of an ordinary run of the suite.
const SEED_COUNT: u64 = 2_000;

/// How much of what happened is shown of a run that failed; all of it in a replay.
const LOG_LINES: usize = 120;

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is `{value}`, expected a number")))
}

fn run(seed: u64) -> Course {
    let mut world = World::new(seed, false);
    world.run();
    world.course
}

fn commit() -> String {
    let output = std::process::Command::new("git")
        .args(["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty", "--abbrev=12"])
        .output();
    let commit = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    commit
        .and_then(|text| String::from_utf8(text).ok())
        .map_or("unknown".to_owned(), |text| text.trim().to_owned())
}

/// Runs a seed; if it fails, runs it again to tell what happened.
fn run_or_tell(seed: u64, place: u64) -> Course {
    match catch_unwind(|| run(seed)) {
        Ok(course) => course,
        Err(panic) => {
            eprintln!("simtest: seed {seed} fails, number {place} of this run, commit {}", commit());
            let mut world = World::new(seed, true);
            let again = catch_unwind(AssertUnwindSafe(|| world.run()));
            let log = world.log.take().unwrap_or_default();
            let shown = if number("FOREBAY_SEED").is_some() { log.len() } else { LOG_LINES.min(log.len()) };
            for line in &log[log.len() - shown..] {
                eprintln!("{line}");
            }
            if again.is_ok() {
                eprintln!("simtest: seed {seed} does not fail again: something besides the seed decides");
            }
            eprintln!("simtest: replay with FOREBAY_SEED={seed} cargo test -p forebay-simtest");
            resume_unwind(panic)
        }
    }
}

#[test]
fn every_seed_keeps_the_promises() {
    if let Some(seed) = number("FOREBAY_SEED") {
        println!("simtest: seed {seed}: {:?}", run_or_tell(seed, 1));
        return;
    }
    let first = number("FOREBAY_SEED_FIRST").unwrap_or(0);
    let minutes = number("FOREBAY_MINUTES").map(|minutes| Duration::from_secs(60 * minutes));
    let count = number("FOREBAY_SEED_COUNT").unwrap_or(SEED_COUNT);
    let start = Instant::now();
    let (mut seeds, mut all) = (0, Course::default());
    while minutes.map_or(seeds < count, |minutes| start.elapsed() < minutes) {
        let course = run_or_tell(first + seeds, seeds + 1);
        seeds += 1;
        all.events += course.events;
        all.requests += course.requests;
        all.answers += course.answers;
        all.errors += course.errors;
        all.hits += course.hits;
        all.flash_hits += course.flash_hits;
        all.migrations += course.migrations;
        all.corrupt += course.corrupt;
        all.saved += course.saved;
        all.recovered += course.recovered;
        all.crashes += course.crashes;
        all.zeroes += course.zeroes;
        all.decided += course.decided;
        all.orders += course.orders;
        all.controller_deaths += course.controller_deaths;
        all.in_ring += course.in_ring;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "simtest: {seeds} seeds from {first} on in {seconds:.1} s ({:.0} per second): {all:?}",
        seeds as f64 / seconds
    );
    // A simulation in which nothing happens proves nothing.
    if seeds >= 100 {
        assert!(
            all.answers > 50 * seeds
                && all.hits > 5 * seeds
                && all.errors > seeds
                && all.flash_hits > seeds
                && all.migrations > seeds
                && all.corrupt > seeds / 20
                && all.recovered > seeds / 4
                && all.crashes > seeds / 20
                && all.zeroes > seeds
                && all.orders > seeds
                && all.controller_deaths > seeds / 20
                && all.in_ring > 10 * seeds
        );
    }
}

#[test]
fn a_seed_takes_the_same_course_each_time() {
    for seed in 0..25 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

/// What the fuzzers were given, and what they found, goes through the same code on every run of the suite.
#[test]
fn the_corpus_of_the_fuzzers_passes() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in forebay_simtest::fuzz::TARGETS {
        let mut files: Vec<_> = std::fs::read_dir(corpus.join(name))
            .unwrap_or_else(|error| panic!("corpus `{name}`: {error}"))
            .map(|entry| entry.expect("the corpus can be read").path())
            .collect();
        files.sort();
        assert!(!files.is_empty(), "the corpus of `{name}` is empty");
        for file in files {
            let input = std::fs::read(&file).expect("the corpus can be read");
            if let Err(panic) = catch_unwind(|| target(&input)) {
                eprintln!("simtest: {} fails", file.display());
                resume_unwind(panic);
            }
        }
    }
}
