//! `forebay repro interference`: who interferes with whom, scored where the answer is known.

use crate::commands::repro::telling::tell;
use crate::failure::Failure;
use crate::output::{Output, OutputArgs, count, writable};
use crate::whole::{ANY, whole};
use forebay_control::interference::InterferenceRules;
use forebay_control::interference::planted::{Course, Planted, PlantedSpec, Score};
use forebay_report::{Report, Table};
use serde::Serialize;
use std::path::PathBuf;

/// The layout of the JSON.
const SCHEMA: &str = "forebay.repro-interference/1";

/// Ten seconds each: half an hour.
const INTERVALS: usize = 180;
const WORKLOADS: usize = 50;

/// What precision and recall are to be at least.
const AIM: f64 = 0.95;

/// Standard deviations of the logarithm of latency; parts by which all loads rise and fall together; whether clients wait for answers. All
/// combinations are scored of loads that keep levels for a while, the least of both of all other courses.
const NOISES: [f64; 4] = [0.02, 0.05, 0.1, 0.2];
const TIDES: [f64; 2] = [0.0, 0.2];
const WAITING: [bool; 2] = [false, true];

/// Plant interference among 50 workloads in sets of 2 to 5, and score the daemon's judgement of who interferes with whom.
///
/// Half an hour of intervals of 10 s. Loads keep levels for a while, are on and off, swing, follow slopes, or take one step; the latency of a workload rises with the load of its whole set as that of a queue does,
/// with noise on its logarithm. Of all pairs of workloads, precision is the share of those found that were planted, recall the share
/// found of those whose planted slowdown is at least twice the noise; `-` where nothing was found, or there was nothing to find. Dynamite (2012) finds sets so and publishes no scores; what is planted
/// is ours. The same seed gives the same numbers.
#[derive(Debug, clap::Args)]
pub(crate) struct InterferenceArgs {
    /// Chooses loads, sets and noise; the following numbers do for further draws [range: 0 to 2^64 - 1]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(ANY), default_value_t = 1)]
    seed: u64,

    /// How many draws of each kind are scored together [range: 1 to 1000]
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole::<u32>(1..=1_000))]
    draws: u32,

    /// Only this standard deviation of the logarithm of latency [range: 0.001 to 2; default: 0.02 to 0.2]
    #[arg(long, value_name = "X", value_parser = parse_noise)]
    noise: Option<f64>,

    #[command(flatten)]
    output: OutputArgs,

    /// Write a self-contained HTML report to this file
    #[arg(long, value_name = "FILE", value_parser = writable(), help_heading = "Output")]
    report: Option<PathBuf>,
}

fn parse_noise(text: &str) -> Result<f64, String> {
    let noise = text.parse().ok().filter(|noise| (0.001..=2.0).contains(noise));
    noise.ok_or_else(|| format!("`{text}` is not a number from 0.001 to 2"))
}

#[derive(Serialize)]
struct Found {
    schema: &'static str,
    seed: u64,
    draws: u32,
    workloads: usize,
    intervals: usize,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    course: &'static str,
    noise: f64,
    tide: f64,
    clients_wait: bool,
    strong_pairs: u32,
    strong_found: u32,
    found_planted: u32,
    found_not_planted: u32,
    /// Absent where nothing was found.
    precision: Option<f64>,
    /// Absent where there was nothing to find.
    recall: Option<f64>,
    /// Absent where either is.
    met: Option<bool>,
}

pub(crate) fn run(args: &InterferenceArgs) -> Result<(), Failure> {
    let rules = InterferenceRules::default();
    let noises = args.noise.map_or(NOISES.to_vec(), |noise| vec![noise]);
    let levels = WAITING.into_iter().flat_map(|closed| TIDES.map(|tide| (Course::Levels, tide, closed)));
    let others = Course::ALL.into_iter().filter(|course| *course != Course::Levels);
    let kinds = levels.chain(others.map(|course| (course, 0.0, false)));
    let cases = kinds.flat_map(|(course, tide, closed)| {
        noises.iter().map(move |&noise| PlantedSpec {
            workloads: WORKLOADS,
            intervals: INTERVALS,
            course,
            noise,
            tide,
            closed,
        })
    });
    let row = |spec: PlantedSpec| {
        let score = (0..u64::from(args.draws))
            .map(|draw| Planted::new(&spec, args.seed.wrapping_add(draw)).score(&spec, &rules))
            .fold(Score::default(), |sum, score| sum.plus(&score));
        Row {
            course: spec.course.name(),
            noise: spec.noise,
            tide: spec.tide,
            clients_wait: spec.closed,
            strong_pairs: score.strong,
            strong_found: score.strong_found,
            found_planted: score.found_true,
            found_not_planted: score.found_false,
            precision: score.precision(),
            recall: score.recall(),
            met: (score.precision().zip(score.recall()))
                .map(|(precision, recall)| precision >= AIM && recall >= AIM),
        }
    };
    let found = Found {
        schema: SCHEMA,
        seed: args.seed,
        draws: args.draws,
        workloads: WORKLOADS,
        intervals: INTERVALS,
        rows: cases.map(row).collect(),
    };
    tell(&found, &args.output, args.report.as_ref(), print, report)
}

fn table(found: &Found) -> Table {
    let caption = format!(
        "{} draws of {} workloads in sets of 2 to 5, {} intervals of 10 s, from seed {} on",
        found.draws, found.workloads, found.intervals, found.seed
    );
    let headings = [
        "loads",
        ">noise",
        ">move together by",
        "clients wait",
        ">precision",
        ">recall",
        ">strong pairs",
        "at least .95",
    ];
    let share = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), |share| format!("{share:.3}"));
    let mut table = Table::new(headings).with_caption(caption);
    for row in &found.rows {
        table.push([
            row.course.to_owned(),
            row.noise.to_string(),
            format!("{:.0} %", row.tide * 100.0),
            if row.clients_wait { "yes" } else { "no" }.to_owned(),
            share(row.precision),
            share(row.recall),
            count(row.strong_pairs.into()),
            row.met.map_or("-", |met| if met { "yes" } else { "no" }).to_owned(),
        ]);
    }
    table
}

fn print(found: &Found, output: &mut Output) -> Result<(), Failure> {
    output.table(&table(found))
}

fn report(found: &Found) -> Report {
    Report::new("Who interferes with whom", format!("planted interference, seed {}", found.seed))
        .table(table(found))
}
