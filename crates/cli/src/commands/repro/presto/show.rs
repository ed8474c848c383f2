//! How the evaluation is shown: tables for people, a report with plots.

use super::parts::{Aim, Found, OWN_PARTITION, REFERENCE, Row, best_and_bound};
use crate::failure::Failure;
use crate::output::Output;
use forebay_report::{Axis, Chart, Quantity, Report, Series, Table};
use forebay_sim::presto::Part;

fn ratio(value: f64) -> String {
    format!("{value:.3}")
}

fn none() -> String {
    "-".to_owned()
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

fn seconds(after: Option<u32>) -> String {
    after.map_or_else(|| "never".to_owned(), |after| format!("{after} s"))
}

fn volumes(found: &Found) -> Table {
    let mut table = Table::new([
        "volume",
        ">IOPS",
        ">the slides",
        ">wss80",
        ">the slides",
        ">working set of 600 s",
        ">the slides",
    ])
    .with_caption("Volumes, each by itself");
    for volume in &found.volumes {
        table.push([
            format!("syn{}", volume.id),
            volume.iops.to_string(),
            volume.published_iops.map_or_else(none, |iops| format!("{iops:.2}")),
            volume.wss80_mib.map_or_else(|| "above 2900 MiB".to_owned(), |size| format!("{size} MiB")),
            volume.published_wss80_mib.map_or_else(none, |size| format!("{size} MiB")),
            format!("{:.0} MiB", volume.runtime_wss_mib),
            volume.published_runtime_wss_mib.map_or_else(none, |size| format!("{size:.0} MiB")),
        ]);
    }
    table
}

fn snapshots(found: &Found) -> Table {
    let mut table = Table::new([
        ">accesses between",
        ">snapshots",
        ">objects in the last",
        ">bytes of each",
        ">bytes in all",
        ">the last, as written",
    ])
    .with_caption(
        "Snapshots until the failure, as plain bitmaps, and as the daemon writes them: what the node that fails sends and stores",
    );
    for series in &found.snapshots {
        table.push([
            series.every_accesses.to_string(),
            series.count.to_string(),
            series.objects_last.to_string(),
            series.bytes_each.to_string(),
            (series.bytes_each * series.count as u64).to_string(),
            series.encoded_bytes_last.to_string(),
        ]);
    }
    table
}

/// One of the tables, in the slides' columns: hit ratio per look-up since the failure.
fn part(found: &Found, title: &str) -> Table {
    let mut table = Table::new([
        "prewarmed by",
        "to maximise",
        ">snapshot every",
        ">limit",
        ">MiB/s",
        ">1 s",
        ">5 min",
        ">15 min",
        ">30 min",
        ">the slides, 1 s",
        ">5 min",
        ">15 min",
        ">30 min",
        ">both, 5 min",
        ">both, window",
        ">latency, 5 min",
        ">way to bound",
        ">95 % after",
        ">both after",
        ">loaded",
        ">in",
        ">fetched on misses",
    ])
    .with_caption(title);
    for row in found.rows.iter().filter(|row| row.part == title) {
        let published =
            |column: usize| row.published.map_or_else(none, |columns| format!("{:.2}", columns[column]));
        table.push([
            row.who.clone(),
            row.aim.map_or_else(none, |aim| aim.name().to_owned()),
            row.snapshot_every.map_or_else(none, |every| every.to_string()),
            format!("{} %", row.limit_percent),
            row.rate_mib_per_s.map_or_else(none, |rate| rate.to_string()),
            ratio(row.look_ups.first_second),
            ratio(row.look_ups.mean_5min),
            ratio(row.look_ups.mean_15min),
            ratio(row.look_ups.mean_30min),
            published(0),
            published(1),
            published(2),
            published(3),
            ratio(row.both.mean_5min),
            ratio(row.both.window_5min),
            ratio(row.latency.mean_5min),
            row.gap_closed.map_or_else(none, |closed| format!("{closed:.2}")),
            seconds(row.look_ups.warm_after_s),
            seconds(row.both.warm_after_s),
            mib(row.prewarmed_bytes),
            format!("{} s", row.prewarm_s),
            mib(row.missed_bytes),
        ]);
    }
    table
}

/// Ours against the best of the slides' scores and the bound, by what is to be maximised.
fn summary(found: &Found) -> Table {
    let mut table = Table::new([
        "to maximise",
        ">limit",
        ">slides' best",
        ">Forebay",
        ">knows the future",
        ">way to bound",
    ])
    .with_caption("Forebay's way, at 100 MiB/s: 5-minute mean (both objects: ratio of the 5 minutes)");
    for row in found.rows.iter().filter(|row| row.gap_closed.is_some()) {
        let (Some(aim), Some(closed)) = (row.aim, row.gap_closed) else { continue };
        let Some((best, bound)) = best_and_bound(&found.rows, row) else { continue };
        table.push([
            aim.name().to_owned(),
            format!("{} %", row.limit_percent),
            ratio(best),
            ratio(aim.of(row)),
            ratio(bound),
            format!("{closed:.2}"),
        ]);
    }
    table
}

/// Ours against what is wanted.
fn verdicts(found: &Found) -> Table {
    let mut table = Table::new([
        "to maximise",
        ">least way to bound (0.333)",
        ">at",
        ">25 % above k-Recent at 50 % (0)",
        ">more is worse by (0.002)",
        ">95 % after",
        ">cold",
        ">times as fast",
    ])
    .with_caption("What is wanted of Forebay's way, at 100 MiB/s");
    for verdict in &found.verdicts {
        let faster = match (verdict.warm_after_s, verdict.cold_after_s) {
            (Some(warm), Some(cold)) => format!("{:.0}", f64::from(cold) / f64::from(warm)),
            _ => none(),
        };
        table.push([
            verdict.aim.name().to_owned(),
            ratio(verdict.gap_closed_least),
            format!("{} %", verdict.at_limit_percent),
            format!("{:+.3}", verdict.quarter_above_half),
            ratio(verdict.more_is_worse_by),
            seconds(verdict.warm_after_s),
            seconds(verdict.cold_after_s),
            faster,
        ]);
    }
    table
}

fn parts(found: &Found) -> Vec<Table> {
    let titles = Part::ALL.map(Part::title).into_iter().chain([OWN_PARTITION, REFERENCE]);
    titles.map(|title| part(found, title)).filter(|table| !table.rows().is_empty()).collect()
}

/// Prints all tables.
pub(super) fn print(found: &Found, output: &mut Output) -> Result<(), Failure> {
    output
        .line(format_args!("PRESTO's evaluation again, {:?}; simulated, seed {}\n", found.set, found.seed))?;
    let mut tables = Vec::new();
    if !found.volumes.is_empty() {
        tables.push(volumes(found));
    }
    tables.push(snapshots(found));
    tables.extend(parts(found));
    if found.rows.iter().any(|row| row.gap_closed.is_some()) {
        tables.push(summary(found));
        tables.push(verdicts(found));
    }
    for table in tables {
        output.line(table.to_text())?;
    }
    Ok(())
}

fn over_time(found: &Found, limit_percent: u32) -> Chart {
    let mut chart = Chart::new(
        format!("Hit ratio per look-up since the failure, limit {limit_percent} %, 100 MiB/s"),
        Axis::linear("time since the failure", Quantity::Time),
        Axis::linear("hit ratio", Quantity::Ratio).with_range(0.0, 1.0),
    );
    let wanted = |row: &&Row| {
        row.part == REFERENCE
            || row.part == Part::SizeLimit.title()
                && row.limit_percent == limit_percent
                && matches!(row.aim, None | Some(Aim::LookUps))
                && matches!(row.who.as_str(), "k-Recent" | "k-Frequent" | "Forebay" | "knows the future")
    };
    for row in found.rows.iter().filter(wanted) {
        let points = row
            .series
            .iter()
            .enumerate()
            .step_by(5)
            .map(|(second, ratio)| (second as f64 + 1.0, *ratio))
            .collect();
        chart = chart.with_series(Series::line(row.who.clone(), points));
    }
    chart
}

/// The report.
pub(super) fn report(found: &Found) -> Report {
    let mut report = Report::new("Prewarming after a failure", format!("PRESTO's evaluation again, {:?}, seed {}", found.set, found.seed))
        .paragraph(
            "Volumes, object sizes, pools and heuristics are PRESTO's (slides and published simulator); levels lie above the slides', whose requests \
             were not published. Ratios are since the failure and per look-up where nothing else is said; \"both\" counts an access as a hit if both \
             of its objects are cached, \"latency\" weighs a look-up by what its fetch takes (ours: 500 us and 100 MB/s). \"Knows the future\" loads by \
             deadline what a cold node would miss, and gives up what is worth least per byte.",
        );
    if found.rows.iter().any(|row| row.gap_closed.is_some()) {
        report = report
            .heading("Forebay's way")
            .table(summary(found))
            .table(verdicts(found))
            .chart(over_time(found, 10))
            .chart(over_time(found, 100));
    }
    report = report.heading("Tables");
    for table in parts(found) {
        report = report.table(table);
    }
    report = report.heading("Costs at the source").table(snapshots(found));
    if !found.volumes.is_empty() {
        report = report.heading("Volumes").table(volumes(found));
    }
    report
}
