//! How the evaluation is shown: tables for people, a report with plots.

use super::parts::{Found, IsolationFound, LoadFound};
use crate::commands::repro::recorded::left_out_table;
use crate::failure::Failure;
use crate::output::{Output, bytes};
use forebay_report::{Axis, Chart, Quantity, Report, Series, Table};
use forebay_sim::sancache::RunRow;

fn row(table: &mut Table, row: &RunRow) {
    table.push([
        row.admission.clone().unwrap_or_else(|| "no tier".to_owned()),
        format!("{:.3}", row.mean_ms),
        format!("{:.2}", row.p99_ms),
        format!("{:.2}", row.p99_filling_ms),
        format!("{:.0}", row.iops),
        format!("{:.3}", row.read_hits),
        format!("{:.3}", row.write_hits),
        bytes(row.migrated_bytes),
        bytes(row.flash_bytes),
    ]);
}

fn load(found: &LoadFound) -> Table {
    let mut table = Table::new([
        "placed by",
        ">mean ms",
        ">p99 ms",
        ">p99 filling",
        ">requests/s",
        ">read hits",
        ">write hits",
        ">migrated",
        ">written to flash",
    ])
    .with_caption(format!("{}, a tier of {}", found.name, bytes(found.tier_bytes)));
    row(&mut table, &found.without);
    found.rows.iter().for_each(|found| row(&mut table, found));
    table
}

/// The adaptive threshold against what is wanted of it.
fn verdicts(found: &Found) -> Table {
    let mut table = Table::new([
        "load",
        ">tier",
        "best fixed",
        "by phase",
        ">mean to it",
        ">migrated to it",
        ">flash to demand's",
        ">at equal hits",
        ">read hits above",
        ">p99 filling to none",
    ])
    .with_caption("The adaptive threshold against the best fixed one, demand admission, and no tier");
    for load in &found.loads {
        let verdict = &load.verdict;
        let times = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        table.push([
            load.name.clone(),
            bytes(load.tier_bytes),
            verdict.best_static.clone(),
            verdict.best_by_phase.as_ref().map_or_else(|| "-".to_owned(), |best| best.join(", ")),
            format!("{:.3}", verdict.mean_to_best_static),
            times(verdict.migrated_to_best_static),
            times(verdict.flash_to_demand),
            times(verdict.flash_to_demand_at_equal_hits),
            format!("{:+.3}", verdict.hits_above_demand),
            format!("{:.2}", verdict.p99_filling_to_without),
        ]);
    }
    table
}

fn isolation(isolation: &IsolationFound) -> Table {
    let mut table = Table::new(["LUN1", ">mean ms", ">to alone", "the slides"])
        .with_caption(format!("Isolation: a tier of {} for LUN1", bytes(isolation.tier_bytes)));
    let alone = isolation.found.alone_ms;
    for (what, mean, slides) in [
        ("alone", alone, "numbers lost"),
        ("with the write flood", isolation.found.flooded_ms, "adversely affected"),
        ("with the flood and the tier", isolation.found.restored_ms, "acceptable again"),
    ] {
        table.push([
            what.to_owned(),
            format!("{mean:.3}"),
            format!("{:.2}", mean / alone),
            slides.to_owned(),
        ]);
    }
    table
}

/// Prints all tables.
pub(super) fn print(found: &Found, output: &mut Output) -> Result<(), Failure> {
    output.line(format_args!("SANCache's evaluation again; simulated, seed {}\n", found.seed))?;
    for load_found in &found.loads {
        output.line(load(load_found).to_text())?;
    }
    output.line(verdicts(found).to_text())?;
    if let Some(found) = &found.isolation {
        output.line(isolation(found).to_text())?;
    }
    for (name, reason) in &found.left_out {
        output.line(format_args!("left out: {name}: {reason}"))?;
    }
    Ok(())
}

fn response_over_time(found: &LoadFound) -> Chart {
    let mut chart = Chart::new(
        format!("{}, a tier of {}: mean response time", found.name, bytes(found.tier_bytes)),
        Axis::linear("time", Quantity::Time),
        Axis::linear("response time", Quantity::Time),
    );
    let best = &found.verdict.best_static;
    let wanted = |row: &&RunRow| {
        row.admission.as_ref().is_none_or(|name| name == "adaptive" || name == best || name == "demand")
    };
    for row in std::iter::once(&found.without).chain(&found.rows).filter(wanted) {
        let points = row.series.iter().filter_map(|row| Some((row.at_s, row.mean_ms? / 1_000.0))).collect();
        chart =
            chart.with_series(Series::line(row.admission.clone().unwrap_or("no tier".to_owned()), points));
    }
    chart
}

fn victim(isolation: &IsolationFound) -> Chart {
    let rows = &isolation.found.series;
    let points = rows.iter().filter_map(|row| Some((row.at_s, row.mean_ms? / 1_000.0))).collect();
    Chart::new(
        "LUN1: alone, flooded, and with its tier",
        Axis::linear("time", Quantity::Time),
        Axis::linear("mean response time", Quantity::Time),
    )
    .with_series(Series::line("LUN1", points))
}

/// The report.
pub(super) fn report(found: &Found) -> Report {
    let mut report = Report::new(
        "Placement on a tier of fast storage",
        format!("SANCache's evaluation again, seed {}", found.seed),
    )
    .heading("What the slides say");
    for said in &found.published {
        report = report.paragraph(*said);
    }
    report = report.heading("What is ours");
    for assumed in &found.assumptions {
        report = report.paragraph(assumed);
    }
    report = report.heading("The threshold that adapts").table(verdicts(found));
    for found in &found.loads {
        report = report.table(load(found)).chart(response_over_time(found));
    }
    if let Some(found) = &found.isolation {
        report = report.heading("Isolation").table(isolation(found)).chart(victim(found));
    }
    match left_out_table(&found.left_out) {
        Some(table) => report.table(table),
        None => report,
    }
}
