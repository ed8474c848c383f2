//! Prints how near the controller's sizing comes to the least static cache that hindsight would choose.
//!
//! `cargo run --release -p forebay-sim --example sizing -- --seeds 101,201..210` runs every case of `cases` under each law and
//! finds the optimum by bisection; `--only PART` takes the cases whose name holds PART, `--laws model,plain` the laws,
//! `--runs` prints every run, `--optima FILE` keeps what was found between runs (it depends on cases, seeds and the simulator, not on the law), and
//! `--shares` instead holds the master against shares in proportion where recorded loads need more memory than there is, and
//! `--decisions` prints what the controller did. With several seeds it says besides what who knows the other seeds' optima would reach. Cases on the shared traces need their folder in `FOREBAY_TRACES`.

mod bound;
mod cases;
mod judge;
mod shares;

use judge::{Judged, Optima};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// What the command line asks for.
struct Asked {
    seeds: Vec<u64>,
    only: Vec<String>,
    laws: Vec<String>,
    optima: Option<String>,
    decisions: bool,
    runs: bool,
    shares: bool,
    threads: usize,
}

fn asked() -> Asked {
    let mut asked = Asked {
        seeds: vec![1],
        only: Vec::new(),
        laws: vec!["model".to_owned(), "plain".to_owned()],
        optima: None,
        decisions: false,
        runs: false,
        shares: false,
        threads: 2,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_else(|| panic!("`{word}` needs a value"));
        let list = |text: String| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        match word.as_str() {
            "--seeds" => {
                let parts = list(value());
                asked.seeds = parts.iter().flat_map(|part| seeds(part)).collect();
            }
            "--only" => asked.only = list(value()),
            "--laws" => asked.laws = list(value()),
            "--optima" => asked.optima = Some(value()),
            "--threads" => asked.threads = value().parse().expect("a number of threads"),
            "--decisions" => asked.decisions = true,
            "--runs" => asked.runs = true,
            "--shares" => asked.shares = true,
            other => panic!(
                "`{other}` is not known: expected --seeds, --only, --laws, --optima, --threads, --decisions, --runs or --shares"
            ),
        }
    }
    asked
}

/// A seed, or a range as in `201..210`, its end included.
fn seeds(part: &str) -> std::ops::RangeInclusive<u64> {
    let parse = |text: &str| text.parse().unwrap_or_else(|_| panic!("`{text}` is no seed"));
    match part.split_once("..") {
        Some((first, last)) => parse(first)..=parse(last),
        None => parse(part)..=parse(part),
    }
}

fn main() {
    let asked = asked();
    let cases: Vec<cases::Case> = cases::all()
        .into_iter()
        .filter(|case| asked.only.is_empty() || asked.only.iter().any(|part| case.name.contains(part)))
        .collect();
    let optima = Mutex::new(Optima::read(asked.optima.as_deref()));
    if asked.shares {
        return shares::print(&cases, &asked.seeds, &optima, asked.decisions);
    }
    let jobs: Mutex<Vec<(usize, u64)>> = Mutex::new(
        asked
            .seeds
            .iter()
            .rev()
            .flat_map(|&seed| (0..cases.len()).rev().map(move |case| (case, seed)))
            .collect(),
    );
    let results: Mutex<BTreeMap<(usize, u64), Vec<Judged>>> = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..asked.threads {
            scope.spawn(|| {
                loop {
                    let Some((at, seed)) = jobs.lock().expect("no panic").pop() else { break };
                    let found = judge::judge(&cases[at], seed, &asked.laws, &optima, asked.decisions);
                    results.lock().expect("no panic").insert((at, seed), found);
                }
            });
        }
    });
    let results = results.into_inner().expect("no panic");
    if asked.runs {
        judge::print_runs(&cases, &asked.laws, &results);
    }
    judge::print(&cases, &asked.laws, &results);
    judge::print_steps(&cases, &asked.laws, &results);
    bound::print(&cases, &results);
}
