//! The parts of the evaluation: each is independent of the others, and they run on as many threads as there are processors.

use crate::commands::repro::jobs::side_by_side;
use crate::failure::Failure;
use crate::output::say;
use forebay_sim::RunError;
use forebay_sim::hybrid_store::{
    InvertedRow, PERCENTILES, PUBLISHED, Reading, Setup, Sizes, Varying, inverted, sizes, varying,
};
use forebay_units::Bytes;
use serde::Serialize;
use std::time::Instant;

/// The layout of the JSON.
const SCHEMA: &str = "forebay.repro-hybrid-store/1";

/// The cache that two workloads share, at the paper's scale (ours).
const SHARED: Bytes = Bytes(32_000_000_000);

/// Everything that was found.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    schema: &'static str,
    pub(super) seed: u64,
    /// How much smaller everything was asked to be.
    pub(super) scale: u32,
    /// Virtual time of a run.
    pub(super) duration_s: f64,
    /// What the paper says, and what is ours, in words.
    pub(super) assumptions: Vec<String>,
    pub(super) readings: Vec<ReadingFound>,
    pub(super) varying: Vec<Varying>,
    pub(super) inverted: Vec<InvertedRow>,
}

/// A reading and its sizes.
#[derive(Debug, Serialize)]
pub(super) struct ReadingFound {
    pub(super) reading: Reading,
    #[serde(flatten)]
    pub(super) sizes: Sizes,
}

enum Part {
    Sizes(Box<Sizes>),
    Varying(Varying),
    Inverted(Vec<InvertedRow>),
}

/// Runs all parts; `quick` takes one percentile.
pub(super) fn run(setups: &[Setup], quick: bool) -> Result<Found, Failure> {
    let percentiles: &[f64] = if quick { &PERCENTILES[..1] } else { &PERCENTILES };
    // The longest parts first. The last ones are of the first reading, which fits the paper.
    let mut jobs: Vec<Box<dyn Fn() -> Result<Part, RunError> + Sync>> = Vec::new();
    let began = Instant::now();
    let tell = move |setup: &Setup, what: &str| {
        say(format_args!("{:>5.0} s  {}: {what}", began.elapsed().as_secs_f64(), setup.reading.name));
    };
    for setup in setups {
        jobs.push(Box::new(move || {
            Ok(Part::Sizes(Box::new(sizes(setup, percentiles, &mut |what| tell(setup, what))?)))
        }));
    }
    let first = &setups[0];
    for (objective_ms, ..) in PUBLISHED.results.into_iter().take(if quick { 1 } else { 2 }) {
        jobs.push(Box::new(move || {
            Ok(Part::Varying(varying(first, objective_ms, &mut |what| tell(first, what))?))
        }));
    }
    jobs.push(Box::new(move || Ok(Part::Inverted(inverted(first, SHARED, &mut |what| tell(first, what))?))));

    let results = side_by_side(jobs.len(), |at| jobs[at]());
    let mut found = Found {
        schema: SCHEMA,
        seed: first.seed,
        scale: first.scale,
        duration_s: first.duration.as_secs_f64(),
        assumptions: assumptions(first),
        readings: Vec::new(),
        varying: Vec::new(),
        inverted: Vec::new(),
    };
    for (at, result) in results.into_iter().enumerate() {
        match result.map_err(|error| Failure::new(error.to_string()))? {
            Part::Sizes(sizes) => {
                found.readings.push(ReadingFound { reading: setups[at].reading, sizes: *sizes });
            }
            Part::Varying(varying) => found.varying.push(varying),
            Part::Inverted(rows) => found.inverted = rows,
        }
    }
    Ok(found)
}

fn assumptions(setup: &Setup) -> Vec<String> {
    let threads = 20.0 / 8e-3;
    [
        "The paper's: 5,000 requests/s of 20 threads, a working set of 70 GB, 160 GB of flash that caches reads, objectives of 8 and 3 ms \
         for the average latency, conformance percentiles of 75, 80, 90 and 99; 15 and 36 GB for its controller, 70 GB for vanilla LRU."
            .to_owned(),
        format!(
            "Ours: which blocks are popular and what the disks are (each reading says), and that requests arrive at random at 5,000/s \
             whatever is answered: 20 threads that wait for every answer would ask for {threads:.0}/s at 8 ms and never for 5,000.",
        ),
        "Ours: reads alone, blocks of 64 KiB, one block a request, 0.2 ms for a hit, no use of the 16 GB of RAM; windows and control \
         intervals of 10 s; disks with a queue each and evenly spread service times."
            .to_owned(),
        "Ours: gain, clamps, the width of the min-max range (0.1) and the history (10 intervals, cleared by each decision) of the paper's \
         controller; it begins with a quarter of the flash."
            .to_owned(),
        "Ours: the phases of the varying load (the paper's; two thirds of the rate; the paper's; half the working set; the paper's), and the \
         split of the inverted objectives (a fifth of the load wants 3 ms, the rest 8 ms, half of the working set each; one shared LRU and static halves have 32 GB for both, who decides sizes may take of the flash)."
            .to_owned(),
        format!(
            "Rate, working set and disks are about {} times smaller than that, which leaves the load of every disk as it is; sizes are \
             printed as if they were not. Runs last {:.0} s of virtual time, of which the second half counts.",
            setup.scale,
            setup.duration.as_secs_f64()
        ),
        "Hindsight is the least static size with which the same share of windows conforms, by bisection under the same policy: LRU for the \
         paper's laws, the daemon's two pools for Forebay."
            .to_owned(),
    ]
    .into()
}
