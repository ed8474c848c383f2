//! The courses of the case study, side by side, and what follows from them.

use crate::commands::repro::jobs::side_by_side;
use crate::failure::Failure;
use crate::output::say;
use forebay_sim::RunError;
use forebay_sim::dynamite::{
    COURSES, Course, CourseResult, CurveRow, Interfering, STAGES, Setup, SizeGiven, Stage, WORKLOADS, curves,
    interfering, run as run_course, size_given,
};
use serde::Serialize;
use std::time::Instant;

/// The layout of the JSON.
const SCHEMA: &str = "forebay.repro-dynamite/1";

/// Everything that was found.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    schema: &'static str,
    pub(super) seed: u64,
    /// By how much all was shorter and smaller than the paper's.
    pub(super) hurry: u32,
    /// What the paper says, and what is ours, in words.
    pub(super) assumptions: Vec<String>,
    /// Floors of the main workload's peak and of the reader, in requests per second.
    pub(super) floors: [f64; 2],
    pub(super) workloads: [&'static str; 3],
    pub(super) courses: Vec<CourseResult>,
    pub(super) interference: Interfering,
    /// Sizes given, and the least that works; empty unless asked for.
    pub(super) sizes: Vec<SizeGiven>,
    /// Of the main workload and of the reader.
    pub(super) curves: [Vec<CurveRow>; 2],
}

pub(super) fn run(setup: &Setup, quick: bool, sizes: bool) -> Result<Found, Failure> {
    let began = Instant::now();
    // The longest first; in the end in the order of the figures.
    let mut courses: Vec<Course> =
        COURSES.into_iter().filter(|course| !quick || course.periods() == 1).collect();
    courses.sort_by_key(|course| std::cmp::Reverse(course.periods()));
    let ran = side_by_side(courses.len(), |at| {
        let course = courses[at];
        let (result, outcome) = run_course(setup, course)?;
        let is_given = result.cache_bytes[0].iter().any(|bytes| *bytes > 0);
        let size = if sizes && is_given { Some(size_given(setup, course)?) } else { None };
        say(format_args!("{:>5.0} s  {}", began.elapsed().as_secs_f64(), course.name()));
        Ok((result, (course == Course::CoLocated).then(|| interfering(&outcome)), size))
    });
    let mut results = Vec::new();
    let mut interference = None;
    let mut sizes = Vec::new();
    for ran in ran {
        let (result, found, size) = ran.map_err(|error: RunError| Failure::new(error.to_string()))?;
        interference = interference.or(found);
        results.push(result);
        sizes.extend(size);
    }
    let place = |of: Course| COURSES.iter().position(|course| *course == of);
    results.sort_by_key(|result| place(result.course));
    sizes.sort_by_key(|size: &SizeGiven| place(size.course));
    if !sizes.is_empty() {
        let others: Vec<Stage> = STAGES.into_iter().filter(|stage| *stage != setup.stage).collect();
        let given = side_by_side(others.len(), |at| {
            size_given(&Setup { stage: others[at], ..*setup }, Course::Forebay)
        });
        for size in given {
            sizes.push(size.map_err(|error| Failure::new(error.to_string()))?);
        }
        say(format_args!("{:>5.0} s  sizes on other disks", began.elapsed().as_secs_f64()));
    }
    Ok(Found {
        schema: SCHEMA,
        seed: setup.seed,
        hurry: setup.hurry,
        assumptions: assumptions(setup),
        floors: setup.floors(),
        workloads: WORKLOADS,
        courses: results,
        interference: interference.expect("the co-located course is always run"),
        sizes,
        curves: curves(setup),
    })
}

fn assumptions(setup: &Setup) -> Vec<String> {
    let [main, reader] = setup.floors();
    vec![
        "The paper's: 11 disks of 15,000 rpm in RAID 4; a spike until minute 7, a calm until 48, a peak until 75; floors of 1,800 requests/s for USR-1 and 5,000 for the \
         reader; 16 requests outstanding; intervals of 10 s; a violation is answered after seven minutes."
            .to_owned(),
        format!(
            "Ours: the trace is not here; a load of the same phases stands in for it, which at its peak asks for 1,350 requests/s (swaying by a tenth from minute to minute, 95 % reads, \
             Zipf 0.9 over {}) and for 120 otherwise, elsewhere on its volume; it begins again after 120 minutes. The reader asks for 1,000/s, 13 outstanding, at random over 140 GiB. Requests \
             beyond what may be outstanding are dropped; the paper's wait. The floors that follow are {main:.0} and {reader:.0}: of 11 disks at random 5,000 \
             requests/s are not to be had, so that much of the paper's must have come out of the filer's own cache.",
            setup.peak_set(),
        ),
        format!(
            "Ours: no array cache, disks that serve in turn, {} of memory for the appliance (a third more than the peak reads, as the paper's 4 GB are to its 3), which is there at once. \
             In proactive courses the peak has come in two periods before, and the season is found in them; the paper takes its prediction for given.",
            setup.memory(),
        ),
    ]
}
