//! The outcome for people: tables in the terminal and a page with plots.

use super::outcome::Outcome;
use super::stage::{IOPS_MIN, LATENCY_MAX, ORDERS, REPORTS};
use crate::failure::Failure;
use crate::output::{Output, bytes, count};
use forebay_report::{Axis, Card, Chart, Quantity, Report, Series, Status, Table};

fn milliseconds(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.1} ms"))
}

fn seconds(value: Option<f64>) -> String {
    value.map_or_else(|| "never".into(), |value| format!("{value:.1} s"))
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A share of a whole that may be unknown.
fn share_of(part: u64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { percent(part as f64 / whole as f64) }
}

fn phases(outcome: &Outcome) -> Table {
    let mut table = Table::new([
        "phase",
        "volume",
        ">requests/s",
        ">read mean",
        ">p90",
        ">p99",
        "objective",
        ">windows kept",
    ])
    .with_caption("Each phase, as the clients saw it");
    for phase in &outcome.phases {
        for workload in &phase.workloads {
            let objective =
                outcome.setup.objectives.iter().find(|objective| objective.volume == workload.volume);
            table.push([
                phase.title.to_owned(),
                workload.volume.to_owned(),
                format!("{:.0}", workload.iops),
                milliseconds(workload.read_latency_mean_ms),
                milliseconds(workload.read_latency_p90_ms),
                milliseconds(workload.read_latency_p99_ms),
                objective.map_or_else(String::new, |objective| objective.objective.clone()),
                format!("{} of {}", workload.windows_conforming, workload.windows),
            ]);
        }
    }
    table
}

fn results(outcome: &Outcome) -> Table {
    let (cache, restoration) = (&outcome.cache, &outcome.restoration);
    let mut table = Table::new(["result", "value"]).with_caption("With Forebay");
    let judged = restoration.judged_windows;
    table.push([
        format!("{ORDERS}: last {judged} windows kept"),
        percent(restoration.orders_conforming_share),
    ]);
    table.push([
        format!("{REPORTS}: last {judged} windows kept"),
        percent(restoration.reports_conforming_share),
    ]);
    table.push([
        "from violation to sustained conformance, both".into(),
        seconds(restoration.both_sustained_after_s),
    ]);
    table.push([
        "  of that after the controller found it".into(),
        seconds(restoration.both_sustained_after_found_s),
    ]);
    table.push([
        format!("cache in front of {ORDERS} at the end"),
        format!("{} (at most {})", bytes(cache.quota_bytes), bytes(cache.quota_bytes_max)),
    ]);
    table.push([
        "  against what it reads in all (footprint)".into(),
        format!("{} of {}", share_of(cache.quota_bytes, cache.footprint_bytes), bytes(cache.footprint_bytes)),
    ]);
    table.push([
        format!("  against what it reads in {:.0} s (WSS)", cache.working_set_window_s),
        format!(
            "{} of {}",
            share_of(cache.quota_bytes, cache.working_set_bytes),
            bytes(cache.working_set_bytes)
        ),
    ]);
    table.push([format!("cache in front of {REPORTS}, at most"), bytes(cache.reports_quota_bytes_max)]);
    let check = &outcome.check;
    table.push(["bytes of reads checked".into(), count(check.bytes_read_checked)]);
    table.push(["bytes compared at the end".into(), count(check.bytes_compared_at_end)]);
    table.push([
        "wrong reads, wrong volumes, errors".into(),
        format!("{}, {}, {}", check.wrong_reads, check.wrong_volumes, check.errors),
    ]);
    table
}

fn decisions(outcome: &Outcome) -> Table {
    let mut table = Table::new([">at", "volume", "decision"]).with_caption("What the controller decided");
    for decision in &outcome.decisions {
        table.push([format!("{:.1} s", decision.at_s), decision.volume.clone(), decision.summary.clone()]);
    }
    table
}

/// Prints the tables.
pub(super) fn print(outcome: &Outcome, output: &mut Output) -> Result<(), Failure> {
    for table in [phases(outcome), decisions(outcome), results(outcome)] {
        output.table(&table)?;
        output.line("")?;
    }
    output.line(&outcome.restoration.rule)?;
    output.line(if outcome.passed {
        "passed: both objectives were restored, and every byte was right"
    } else {
        "failed"
    })
}

/// The page.
pub(super) fn page(outcome: &Outcome) -> Report {
    let (cache, restoration, check) = (&outcome.cache, &outcome.restoration, &outcome.check);
    let status = |good: bool| if good { Status::Good } else { Status::Bad };
    let kept = |share: f64| status(share >= restoration.conforming_share_min);
    let wrong = check.wrong_reads + check.wrong_volumes;
    let cards = vec![
        Card::new(
            format!("{ORDERS}: mean read latency at most {LATENCY_MAX}"),
            percent(restoration.orders_conforming_share),
            format!("of the last {} windows", restoration.judged_windows),
        )
        .with_status(kept(restoration.orders_conforming_share)),
        Card::new(
            format!("{REPORTS}: at least {IOPS_MIN} requests/s"),
            percent(restoration.reports_conforming_share),
            format!("of the last {} windows", restoration.judged_windows),
        )
        .with_status(kept(restoration.reports_conforming_share)),
        Card::new(
            "from violation to conformance",
            seconds(restoration.both_sustained_after_s),
            "both objectives, sustained",
        )
        .with_status(status(restoration.both_sustained_after_s.is_some())),
        Card::new(
            format!("cache in front of {ORDERS}"),
            bytes(cache.quota_bytes),
            format!(
                "{} of its footprint, {} of its {:.0} s working set",
                share_of(cache.quota_bytes, cache.footprint_bytes),
                share_of(cache.quota_bytes, cache.working_set_bytes),
                cache.working_set_window_s
            ),
        ),
        Card::new(
            "wrong bytes",
            count(wrong),
            format!("in {} bytes of reads", count(check.bytes_read_checked)),
        )
        .with_status(status(wrong == 0 && check.errors == 0)),
    ];
    let mut report = Report::new(
        "Forebay: two workloads on one disk group",
        "A recorded database and a random reader, alone, together, and together with Forebay",
    )
    .cards(cards);
    for failure in &outcome.failures {
        report = report.note(Status::Bad, failure.clone());
    }
    report = report
        .heading("What the clients saw")
        .paragraph(format!(
            "`{ORDERS}` plays a recording of PostgreSQL at its own times, `{REPORTS}` reads at random with {} requests always \
             outstanding. Both lie on {} emulated disks. A window is {:.0} s. {}.",
            outcome.setup.reader_outstanding, outcome.setup.spindles, outcome.setup.window_s, restoration.rule
        ))
        .chart(latency_chart(outcome))
        .chart(iops_chart(outcome))
        .table(phases(outcome))
        .heading("What Forebay did")
        .chart(quota_chart(outcome))
        .table(decisions(outcome));
    if !outcome.curve.is_empty() {
        report = report.chart(curve_chart(outcome));
    }
    report.table(results(outcome))
}

fn with_bands(mut chart: Chart, outcome: &Outcome) -> Chart {
    for phase in &outcome.phases {
        chart = chart.with_band(phase.title, phase.from_s, phase.from_s + phase.seconds as f64);
    }
    chart
}

fn time_axis(outcome: &Outcome) -> Axis {
    let end = outcome.phases.last().map_or(1.0, |phase| phase.from_s + phase.seconds as f64);
    Axis::linear("time", Quantity::Time).with_range(0.0, end)
}

fn latency_chart(outcome: &Outcome) -> Chart {
    let points =
        outcome.windows.iter().filter_map(|window| Some((window.at_s, window.orders_latency_ms? / 1e3)));
    let chart = Chart::new(
        format!("{ORDERS}: mean latency of reads"),
        time_axis(outcome),
        Axis::linear("latency", Quantity::Latency),
    )
    .with_series(Series::step(ORDERS, points.collect()))
    .with_level("objective: at most", LATENCY_MAX.as_secs_f64());
    with_bands(chart, outcome)
}

fn iops_chart(outcome: &Outcome) -> Chart {
    let points = outcome.windows.iter().filter_map(|window| Some((window.at_s, window.reports_iops?)));
    let chart = Chart::new(
        format!("{REPORTS}: requests per second"),
        time_axis(outcome),
        Axis::linear("requests per second", Quantity::Count),
    )
    .with_series(Series::step(REPORTS, points.collect()))
    .with_level("objective: at least", IOPS_MIN);
    with_bands(chart, outcome)
}

fn quota_chart(outcome: &Outcome) -> Chart {
    let samples = &outcome.cache.samples;
    let chart = Chart::new(
        format!("Cache in front of {ORDERS}"),
        time_axis(outcome),
        Axis::linear("bytes", Quantity::Bytes),
    )
    .with_series(Series::step("quota", samples.iter().map(|s| (s.at_s, s.quota_bytes as f64)).collect()))
    .with_series(Series::line("used", samples.iter().map(|s| (s.at_s, s.used_bytes as f64)).collect()));
    with_bands(chart, outcome)
}

fn curve_chart(outcome: &Outcome) -> Chart {
    let points = outcome.curve.iter().map(|point| (point.size_bytes as f64, point.miss_ratio)).collect();
    let mut chart = Chart::new(
        format!("{ORDERS}: miss ratio by cache size, as Forebay saw it at the end"),
        Axis::linear("cache size", Quantity::Bytes),
        Axis::linear("miss ratio", Quantity::Ratio),
    )
    .with_series(Series::line("live curve", points));
    if outcome.cache.quota_bytes > 0 {
        chart = chart.with_marker("given", outcome.cache.quota_bytes as f64);
    }
    chart
}
