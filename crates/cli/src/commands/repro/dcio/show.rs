//! How the validation is shown.

use super::studies::Study;
use super::validate::{Found, TraceFound};
use crate::commands::model::compare::{deviation, table};
use crate::commands::repro::recorded::left_out_table;
use crate::failure::Failure;
use crate::output::{Output, bytes, count};
use forebay_report::{Report, Table};
use forebay_workload::study::{PAPER_CACHING_SPEEDUP, PAPER_DEFRAGMENTATION_SPEEDUP};

/// The paper's table I: metric as ours is called, its original and synthetic values, and its deviation.
const PUBLISHED: [(&str, &str, &str, &str); 7] = [
    ("read-write", "1.8:1", "1.8:1", "0 %"),
    ("random", "83.67 %", "82.51 %", "-1.38 %"),
    ("sizes", "8K(87 %) 64K(7.4 %) 1K(1.6 %)", "8K(88 %) 64K(7.8 %) 1K(1.7 %)", "0.33 %"),
    ("thread-weights", "19 % 11.6 %", "19 % 11.68 %", "0 to 0.05 %"),
    ("inter-arrival", "4.63 ms", "4.78 ms", "3.1 %"),
    ("iops", "255.14", "263.27", "3.1 %"),
    ("latency", "8.09 ms", "8.48 ms", "4.8 %"),
];

fn published() -> Table {
    let mut table = Table::new(["metric", "original", "synthetic", ">deviation"])
        .with_caption("The paper's table I (Messenger)");
    for (metric, original, synthetic, deviation) in PUBLISHED {
        table.push([metric, original, synthetic, deviation]);
    }
    table
}

/// A row per trace.
fn overview(found: &Found) -> Table {
    let mut table = Table::new([
        "trace",
        ">requests",
        ">level",
        ">model",
        ">held",
        ">run to run",
        "beyond",
        ">curve",
        ">plain",
        ">no locality",
        ">latency",
        ">plain",
        ">no locality",
    ])
    .with_caption(
        "Every trace: rows beyond their bounds; error of the hit ratio curve, and of the latency on disks",
    );
    for trace in &found.traces {
        let of = |comparison: &forebay_workload::compare::Comparison, metric: &str| {
            comparison.rows.iter().find(|row| row.metric == metric).map_or_else(|| "-".to_owned(), deviation)
        };
        table.push([
            trace.name.clone(),
            count(trace.requests),
            trace.level.to_string(),
            format!("{} kB", trace.model_bytes.div_ceil(1_000)),
            format!("{:.0} %", trace.steps_held as f64 / trace.requests as f64 * 100.0),
            format!("{:+.3} %", trace.run_to_run),
            beyond(trace),
            of(&trace.model, "hit-ratio-curve"),
            of(&trace.plain, "hit-ratio-curve"),
            of(&trace.without_locality, "hit-ratio-curve"),
            of(&trace.model, "latency"),
            of(&trace.plain, "latency"),
            of(&trace.without_locality, "latency"),
        ]);
    }
    table
}

fn beyond(trace: &TraceFound) -> String {
    use forebay_workload::compare::Verdict;
    if !trace.model.judged {
        return "not judged".to_owned();
    }
    let rows = trace.model.rows.iter().filter(|row| row.verdict == Verdict::Beyond);
    let names: Vec<&str> = rows.map(|row| row.metric).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn levels(found: &Found) -> Table {
    let mut table =
        Table::new(["trace", ">chosen", "requests/s by level (states)"]).with_caption("Choice of the level");
    for trace in &found.traces {
        let steps: Vec<String> = trace
            .levels
            .iter()
            .map(|level| format!("{}: {:.1} ({})", level.level, level.iops, level.states))
            .collect();
        table.push([trace.name.clone(), trace.level.to_string(), steps.join(", ")]);
    }
    table
}

/// The case studies, from the original and from the synthetic trace.
fn studies(found: &Found) -> Table {
    let mut table = Table::new([
        "trace",
        ">cache",
        ">read hits",
        ">synthetic",
        ">saved",
        ">synthetic",
        ">sequential",
        ">rearranged",
        ">synthetic",
        ">saved",
        ">synthetic",
    ])
    .with_caption(format!(
        "Case studies: the share of the mean latency on disks that a cache of solid state saves (the paper's average: {}), and \
         that rearranging saves ({})",
        percent(PAPER_CACHING_SPEEDUP),
        percent(PAPER_DEFRAGMENTATION_SPEEDUP)
    ));
    for trace in &found.traces {
        let studies = &trace.studies;
        let of = |value: &dyn Fn(&Study) -> f64| {
            [&studies.original, &studies.synthetic]
                .map(|study| study.as_ref().map_or_else(|| "-".to_owned(), |study| percent(value(study))))
        };
        let [hits, hits_synthetic] = of(&|study| study.read_hit_ratio);
        let [cached, cached_synthetic] = of(&|study| study.caching.saved);
        let [sequential, _] = of(&|study| study.sequential[0]);
        let [moved, moved_synthetic] = of(&|study| study.sequential[1]);
        let [saved, saved_synthetic] = of(&|study| study.defragmentation.saved);
        table.push([
            trace.name.clone(),
            bytes(studies.cache_blocks * forebay_units::BlockSize::DEFAULT.bytes()),
            hits,
            hits_synthetic,
            cached,
            cached_synthetic,
            sequential,
            moved,
            moved_synthetic,
            saved,
            saved_synthetic,
        ]);
    }
    table
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

pub(super) fn print(found: &Found, output: &mut Output) -> Result<(), Failure> {
    output.table(&published())?;
    for trace in found.traces.iter().filter(|trace| trace.model.judged) {
        output.line(format_args!("\n{}\n", trace.name))?;
        output.table(&table(&trace.model))?;
    }
    for table in
        [Some(overview(found)), Some(studies(found)), Some(levels(found)), left_out_table(&found.left_out)]
            .into_iter()
            .flatten()
    {
        output.line("")?;
        output.table(&table)?;
    }
    Ok(())
}

pub(super) fn report(found: &Found) -> Report {
    let subtitle = format!("{} traces, seed {}", found.traces.len(), found.seed);
    let mut report = Report::new("Storage I/O generation and replay, run again", subtitle)
        .table(published())
        .table(overview(found))
        .table(studies(found))
        .table(levels(found));
    for trace in &found.traces {
        report = report
            .heading(trace.name.clone())
            .paragraph(format!("{} requests in {:.0} s.", count(trace.requests), trace.seconds))
            .table(table(&trace.model));
    }
    match left_out_table(&found.left_out) {
        Some(table) => report.table(table),
        None => report,
    }
}
