//! How the case study is shown: tables for people, a report with plots.

use super::parts::Found;
use crate::failure::Failure;
use crate::output::Output;
use forebay_report::{Axis, Card, Chart, Quantity, Report, Series, Status, Table};
use forebay_sim::dynamite::{Course, CourseResult, PUBLISHED};
use forebay_units::Bytes;

fn minutes(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

fn courses(found: &Found) -> Table {
    let mut table = Table::new([
        "course",
        ">cache made, min",
        ">the paper",
        ">last bad window, min",
        ">the paper",
        ">bad windows in the peak, min",
        ">sustained",
        ">elsewhere",
        ">usr-1 in the peak",
        ">reader",
        ">hit ratio",
        ">largest cache",
        ">loaded before",
    ])
    .with_caption("Figure 5: what is done, and what becomes of the floors (requests/s, minutes from the beginning of the period)");
    for course in &found.courses {
        let (made, effective) = published(course.course);
        table.push([
            course.course.name().to_owned(),
            minutes(course.granted_min),
            made,
            minutes(course.effective_min),
            effective,
            format!("{:.1}", course.violated_min),
            format!("{:.1}", course.sustained_min),
            format!("{:.1}", course.violated_elsewhere_min),
            format!("{:.0}", course.main_in_peak),
            format!("{:.0}", course.reader_in_peak),
            course.hit_ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            Bytes(course.cache_bytes[0].iter().copied().max().unwrap_or(0)).to_string(),
            Bytes(course.loaded_bytes).to_string(),
        ]);
    }
    table
}

/// When the paper's cache was made, and effective.
fn published(course: Course) -> (String, String) {
    let [made, effective] = PUBLISHED.reactive_min;
    match course {
        Course::CoLocated => {
            ("-".to_owned(), format!("{:.0}", PUBLISHED.phases_min[2] + PUBLISHED.longer_min))
        }
        Course::Reactive => (format!("{made:.0}"), format!("{effective:.0}")),
        Course::ReactiveWarm => (format!("{made:.0}"), "later".to_owned()),
        Course::Proactive => (format!("{:.0}", PUBLISHED.proactive_min), "earlier".to_owned()),
        Course::ProactiveWarm => (format!("{:.0}", PUBLISHED.proactive_min), "none".to_owned()),
        _ => ("-".to_owned(), "-".to_owned()),
    }
}

fn sizes(found: &Found) -> Table {
    let mut table = Table::new([
        "on",
        "course",
        ">given",
        ">intervals kept",
        ">least for 99 %",
        ">ratio",
        ">least for as many",
        ">ratio",
        ">over 5 draws",
        ">ratio",
    ])
    .with_caption(
        "Sizes in the second half of the peak, on average, and in how many of its intervals every floor was kept; beside them the least that keeps them in 99 % of \
         these intervals, in as many as the course did, and in 99 % of those of five draws of the load together, if it is there all along",
    );
    let bytes =
        |least: Option<u64>| least.map_or_else(|| "none".to_owned(), |least| Bytes(least).to_string());
    let times = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
    for size in &found.sizes {
        table.push([
            size.stage.name().to_owned(),
            size.course.name().to_owned(),
            Bytes(size.given_bytes as u64).to_string(),
            format!("{:.0} %", size.kept * 100.0),
            bytes(size.least_bytes),
            times(size.ratio()),
            bytes(size.least_for_as_many_bytes),
            times(size.ratio_for_as_many()),
            bytes(size.least_over_draws_bytes),
            times(size.ratio_over_draws()),
        ]);
    }
    table
}

fn interference(found: &Found) -> Table {
    let [main, reader, sys] = found.workloads;
    let mut table = Table::new(["slowed down", &format!(">by {main}"), &format!(">by {reader}"), &format!(">by {sys}"), ">set"])
        .with_caption(format!(
            "Figure 6 a: who interferes, when the violation is found (minute {:.0}); 0 is none. The paper: usr-1 and the reader with each other, sys with nobody",
            PUBLISHED.reactive_min[0]
        ));
    for (victim, row) in found.interference.scores.iter().enumerate() {
        let mut cells = vec![found.workloads[victim].to_owned()];
        cells.extend(row.iter().map(|score| format!("{score:.2}")));
        cells.push((found.interference.sets[victim] + 1).to_string());
        table.push(cells);
    }
    table
}

fn curves(found: &Found) -> Table {
    let [main, reader, _] = found.workloads;
    let mut table = Table::new([
        ">cache",
        &format!(">{main}, exact"),
        ">estimated",
        &format!(">{reader}, exact"),
        ">estimated",
    ])
    .with_caption(
        "Figure 7: miss ratios of the reads from the beginning of the peak until the paper's cache was made; the paper's are of what came before the peak",
    );
    for (one, other) in found.curves[0].iter().zip(&found.curves[1]).step_by(5) {
        table.push([
            Bytes(one.bytes).to_string(),
            format!("{:.3}", one.exact),
            format!("{:.3}", one.estimated),
            format!("{:.3}", other.exact),
            format!("{:.3}", other.estimated),
        ]);
    }
    table
}

pub(super) fn print(found: &Found, output: &mut Output) -> Result<(), Failure> {
    output.line(format_args!("Dynamite (2012), run again; simulated, seed {}\n", found.seed))?;
    for assumption in &found.assumptions {
        output.line(format_args!("* {assumption}"))?;
    }
    output.line("")?;
    output.table(&courses(found))?;
    output.line("")?;
    if !found.sizes.is_empty() {
        output.table(&sizes(found))?;
        output.line("")?;
    }
    output.table(&interference(found))?;
    output.line("")?;
    output.table(&curves(found))
}

pub(super) fn report(found: &Found) -> Report {
    let mut report = Report::new("Dynamite, run again", format!("simulated, seed {}", found.seed)).note(
        Status::Plain,
        "Simulated: devices are models, no byte was moved. The controller is the daemon's.",
    );
    let card = |course: &CourseResult| {
        let detail = "of the peak's 27 minutes had a floor missed";
        Card::new(course.course.name(), format!("{:.1} min", course.violated_min), detail)
    };
    report = report.cards(found.courses.iter().map(card).collect());
    for assumption in &found.assumptions {
        report = report.paragraph(assumption.clone());
    }
    report = report.heading("Figure 5").table(courses(found));
    for (workload, title) in ["usr-1", "reader"].into_iter().enumerate() {
        let mut chart = Chart::new(
            format!("Requests per second of {title}"),
            Axis::linear("time", Quantity::Time),
            Axis::linear("completed", Quantity::Count),
        )
        .with_level("floor", found.floors[workload]);
        // Who is not there in a course has no line in it.
        let runs = |course: &CourseResult| course.iops[workload].iter().any(|iops| *iops > 0.0);
        for (place, course) in found.courses.iter().enumerate().filter(|(_, course)| runs(course)) {
            let seconds = course.minutes.iter().map(|minute| minute * 60.0);
            let points: Vec<(f64, f64)> = seconds.zip(course.iops[workload].iter().copied()).collect();
            chart = chart.with_series(Series::line(course.course.name(), points).with_look(place));
        }
        report = report.chart(chart);
    }
    let mut caches = Chart::new(
        "Cache in front of usr-1",
        Axis::linear("time", Quantity::Time),
        Axis::linear("size", Quantity::Bytes),
    );
    let cached = |course: &CourseResult| course.cache_bytes[0].iter().any(|bytes| *bytes > 0);
    for (place, course) in found.courses.iter().enumerate().filter(|(_, course)| cached(course)) {
        let seconds = course.minutes.iter().map(|minute| minute * 60.0);
        let points: Vec<(f64, f64)> =
            seconds.zip(course.cache_bytes[0].iter().map(|bytes| *bytes as f64)).collect();
        caches = caches.with_series(Series::step(course.course.name(), points).with_look(place));
    }
    report = report.chart(caches);
    if !found.sizes.is_empty() {
        report = report.table(sizes(found));
    }
    report = report.heading("Figure 6").table(interference(found));
    let over_time = &found.interference.over_time;
    let scores = Chart::new(
        "Interference over time, both together and nothing done",
        Axis::linear("time", Quantity::Time),
        Axis::linear("score", Quantity::Ratio),
    )
    .with_series(Series::line(
        "usr-1 on the reader",
        over_time.iter().map(|row| (row.0 * 60.0, row.1)).collect::<Vec<_>>(),
    ))
    .with_series(Series::line(
        "the reader on usr-1",
        over_time.iter().map(|row| (row.0 * 60.0, row.2)).collect::<Vec<_>>(),
    ));
    report = report.chart(scores).heading("Figure 7").table(curves(found));
    let mut chart = Chart::new(
        "Miss ratio curves",
        Axis::linear("cache", Quantity::Bytes),
        Axis::linear("miss ratio", Quantity::Ratio),
    );
    for (workload, rows) in found.workloads.iter().zip(&found.curves) {
        let points = |of: fn(&forebay_sim::dynamite::CurveRow) -> f64| -> Vec<(f64, f64)> {
            rows.iter().map(|row| (row.bytes as f64, of(row))).collect()
        };
        chart = chart
            .with_series(Series::line(format!("{workload}, exact"), points(|row| row.exact)))
            .with_series(Series::line(format!("{workload}, estimated"), points(|row| row.estimated)));
    }
    report.chart(chart)
}
