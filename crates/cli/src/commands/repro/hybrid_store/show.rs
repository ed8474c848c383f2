//! How the evaluation is shown: tables for people, a report with plots.

use super::parts::{Found, ReadingFound};
use crate::failure::Failure;
use crate::output::Output;
use forebay_report::{Axis, Card, Chart, Quantity, Report, Series, Status, Table};
use forebay_sim::hybrid_store::{LawRow, PERCENTILES, PUBLISHED, Varying};

fn gigabytes(bytes: f64) -> String {
    format!("{:.1} GB", bytes / 1e9)
}

fn maybe(bytes: Option<f64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), gigabytes)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn percentile(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0} %"))
}

fn laws(found: &ReadingFound) -> Table {
    let caption = format!("Sizes: {}", found.reading.name);
    let mut table = Table::new([
        "objective",
        ">percentile",
        "who decides",
        ">size",
        ">saved",
        ">windows kept",
        ">mean",
        ">hindsight",
        ">of hindsight",
        ">settled",
    ])
    .with_caption(caption);
    for (objective_ms, paper, saved) in PUBLISHED.results {
        let objective = format!("{objective_ms} ms");
        let mut row = |percentile: String, who: &str, rest: [String; 7]| {
            let mut cells = vec![objective.clone(), percentile, who.to_owned()];
            cells.extend(rest);
            table.push(cells);
        };
        let none = || "-".to_owned();
        // The paper recommends 75 %, and does not say of which percentile its table is.
        row(
            "75 %?".into(),
            "the paper's EAFC",
            [
                gigabytes(paper.as_f64()),
                percent(saved),
                "\"close to 100 %\"".into(),
                none(),
                none(),
                none(),
                none(),
            ],
        );
        for optimum in found.sizes.optima.iter().filter(|row| row.objective_ms == objective_ms) {
            row(
                percentile(Some(optimum.percentile)),
                &format!("hindsight, {}", optimum.policy),
                [
                    maybe(optimum.bytes),
                    optimum.saved.map_or_else(none, percent),
                    none(),
                    none(),
                    maybe(optimum.bytes),
                    none(),
                    none(),
                ],
            );
        }
        for law in found.sizes.laws.iter().filter(|row| row.objective_ms == objective_ms) {
            row(
                percentile(law.percentile),
                law.law,
                [
                    gigabytes(law.bytes_mean),
                    percent(law.saved),
                    percent(law.conforming_share),
                    format!("{:.2} ms", law.mean_ms),
                    maybe(law.hindsight_bytes),
                    law.ratio.map_or_else(none, |ratio| format!("{ratio:.3}")),
                    law.settled_s.map_or_else(|| "never".to_owned(), |at| format!("{at:.0} s")),
                ],
            );
        }
    }
    table
}

fn phases(varying: &Varying) -> Table {
    let mut table = Table::new([
        "who decides",
        ">phase",
        ">requests/s",
        ">working set",
        ">hindsight, lru",
        ">size",
        ">windows kept",
        ">kept again after",
    ])
    .with_caption(format!(
        "Varying load and working set, objective {} ms, percentile 75",
        varying.objective_ms
    ));
    for row in &varying.rows {
        table.push([
            row.law.to_owned(),
            row.phase.to_string(),
            format!("{:.0}", row.rate),
            gigabytes(row.working_set),
            maybe(row.optimum_bytes),
            gigabytes(row.bytes_mean),
            percent(row.conforming_share),
            row.conforming_after_s.map_or_else(|| "never".to_owned(), |after| format!("{after:.0} s")),
        ]);
    }
    table
}

fn inverted(found: &Found) -> Table {
    let mut table =
        Table::new(["who decides", "workload", ">objective", ">mean", ">windows kept", ">size", ">together"])
            .with_caption("Two workloads, the busier with the looser objective");
    for row in &found.inverted {
        table.push([
            row.law.to_owned(),
            row.workload.to_owned(),
            format!("{} ms", row.objective_ms),
            format!("{:.2} ms", row.mean_ms),
            percent(row.conforming_share),
            maybe(row.bytes_mean),
            gigabytes(row.bytes_together),
        ]);
    }
    table
}

/// The disks and vanilla under a reading, in a line.
fn vanilla(found: &ReadingFound) -> String {
    let without = match found.sizes.uncached_mean_ms {
        Some(ms) => format!("without a cache requests take {ms:.1} ms"),
        None => "without a cache the disks can never serve the load".to_owned(),
    };
    format!(
        "{}{}: {without}; vanilla LRU takes {:.2} ms and used {} of its {}; {} runs",
        found.reading.name,
        if found.reading.fits { " (chosen to fit the paper's sizes)" } else { "" },
        found.sizes.vanilla_mean_ms,
        gigabytes(found.sizes.vanilla_used_bytes),
        gigabytes(found.sizes.vanilla_bytes),
        found.sizes.runs,
    )
}

pub(super) fn print(found: &Found, output: &mut Output) -> Result<(), Failure> {
    output.line(format_args!(
        "SLO-aware Hybrid Store (MSST 2012), run again; simulated, seed {}\n",
        found.seed
    ))?;
    for assumption in &found.assumptions {
        output.line(format_args!("* {assumption}"))?;
    }
    for reading in &found.readings {
        output.line(format_args!("\n{}\n", vanilla(reading)))?;
        output.table(&laws(reading))?;
    }
    for varying in &found.varying {
        output.line("")?;
        output.table(&phases(varying))?;
    }
    output.line("")?;
    output.table(&inverted(found))
}

/// The size of a law at the percentile that the paper recommends.
fn recommended<'a>(found: &'a ReadingFound, law: &str, objective_ms: f64) -> Option<&'a LawRow> {
    found.sizes.laws.iter().find(|row| {
        row.law == law && row.objective_ms == objective_ms && row.percentile == Some(PERCENTILES[0])
    })
}

pub(super) fn report(found: &Found) -> Report {
    let mut report = Report::new(
        "SLO-aware Hybrid Store, run again",
        format!("simulated, seed {}, {:.0} s of virtual time a run", found.seed, found.duration_s),
    );
    report = report.note(
        Status::Plain,
        "Simulated: devices are models, no byte was moved. Forebay's controller is the daemon's.",
    );
    let first = &found.readings[0];
    let mut cards = Vec::new();
    for (objective_ms, _, saved) in PUBLISHED.results {
        for law in ["EAFC, max threshold", "EAFC, min-max range", "Forebay"] {
            if let Some(row) = recommended(first, law, objective_ms) {
                let detail = format!(
                    "of vanilla's cache saved at {objective_ms} ms (the paper: {:.0} %), {} of the windows kept",
                    saved * 100.0,
                    percent(row.conforming_share)
                );
                cards.push(Card::new(law, percent(row.saved), detail));
            }
        }
    }
    report = report.cards(cards);
    for assumption in &found.assumptions {
        report = report.paragraph(assumption.clone());
    }
    for reading in &found.readings {
        report = report.heading(reading.reading.name).paragraph(vanilla(reading)).table(laws(reading));
        report = report.chart(needs(reading));
        for (objective_ms, ..) in PUBLISHED.results {
            report = report.chart(sizes_over_time(reading, objective_ms));
        }
        if reading.sizes.laws.iter().any(|row| row.percentile.is_some_and(|value| value > PERCENTILES[0])) {
            for (objective_ms, ..) in PUBLISHED.results {
                report = report.chart(sizes_by_percentile(reading, objective_ms));
            }
        }
    }
    report = report.heading("Varying load and working set");
    for varying in &found.varying {
        report = report.table(phases(varying));
        let title = |what: &str| format!("{what}, objective {} ms", varying.objective_ms);
        let time = || Axis::linear("time", Quantity::Time);
        let mut sizes = Chart::new(title("Size"), time(), Axis::linear("size", Quantity::Bytes));
        for (law, points) in &varying.series {
            sizes = sizes.with_series(Series::step(*law, points.clone()));
        }
        let mut latencies =
            Chart::new(title("Mean latency"), time(), Axis::log("latency", Quantity::Latency))
                .with_level("objective", varying.objective_ms / 1e3);
        for (law, points) in &varying.latencies {
            latencies = latencies.with_series(Series::step(*law, points.clone()));
        }
        report = report.chart(sizes).chart(latencies);
    }
    report.heading("Inverted objectives").table(inverted(found))
}

/// What static sizes come to: the curve from which hindsight reads its optimum.
fn needs(found: &ReadingFound) -> Chart {
    let curve = &found.sizes.curve;
    let points = |of: fn(&(f64, f64, f64)) -> f64| -> Vec<(f64, f64)> {
        curve.iter().map(|row| (row.0, of(row) / 1e3)).collect()
    };
    let mut chart = Chart::new(
        "Latency of static sizes under LRU",
        Axis::linear("size", Quantity::Bytes),
        Axis::log("latency", Quantity::Latency),
    )
    .with_series(Series::line("mean", points(|row| row.1)))
    .with_series(Series::line("75th percentile of windows", points(|row| row.2)));
    for (objective_ms, bytes, _) in PUBLISHED.results {
        chart = chart
            .with_level(format!("{objective_ms} ms"), objective_ms / 1e3)
            .with_marker(format!("the paper at {objective_ms} ms"), bytes.as_f64());
    }
    chart
}

fn sizes_over_time(found: &ReadingFound, objective_ms: f64) -> Chart {
    let mut chart = Chart::new(
        format!("Size over time, objective {objective_ms} ms, percentile 75"),
        Axis::linear("time", Quantity::Time),
        Axis::linear("size", Quantity::Bytes),
    );
    for law in ["EAFC, max threshold", "EAFC, min-max range", "Forebay"] {
        if let Some(row) = recommended(found, law, objective_ms) {
            chart = chart.with_series(Series::step(law, row.series.clone()));
        }
    }
    let published = PUBLISHED.results.iter().find(|(objective, ..)| *objective == objective_ms);
    if let Some((_, bytes, _)) = published {
        chart = chart.with_level("the paper", bytes.as_f64());
    }
    let optimum = found.sizes.optima.iter().find(|row| {
        row.policy == "lru" && row.objective_ms == objective_ms && row.percentile == PERCENTILES[0]
    });
    if let Some(bytes) = optimum.and_then(|row| row.bytes) {
        chart = chart.with_level("hindsight, lru", bytes);
    }
    chart
}

fn sizes_by_percentile(found: &ReadingFound, objective_ms: f64) -> Chart {
    let mut chart = Chart::new(
        format!("Size by conformance percentile, objective {objective_ms} ms"),
        Axis::linear("percentile", Quantity::Count).with_range(PERCENTILES[0], 100.0),
        Axis::linear("size", Quantity::Bytes),
    );
    for law in ["EAFC, max threshold", "EAFC, min-max range", "Forebay"] {
        let rows = found.sizes.laws.iter().filter(|row| row.law == law && row.objective_ms == objective_ms);
        let points: Vec<(f64, f64)> =
            rows.filter_map(|row| Some((row.percentile?, row.bytes_mean))).collect();
        if !points.is_empty() {
            chart = chart.with_series(Series::line(law, points));
        }
    }
    for policy in ["lru", "two-pool"] {
        let rows =
            found.sizes.optima.iter().filter(|row| row.policy == policy && row.objective_ms == objective_ms);
        let points: Vec<(f64, f64)> = rows.filter_map(|row| Some((row.percentile, row.bytes?))).collect();
        if !points.is_empty() {
            chart = chart.with_series(Series::line(format!("hindsight, {policy}"), points));
        }
    }
    chart
}
