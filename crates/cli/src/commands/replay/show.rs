//! How a replay is shown: tables for people, JSON for programs.

use super::Outcome;
use crate::failure::Failure;
use crate::output::{Output, bytes, count};
use forebay_replay::{Fidelity, IntervalReport, LATE_FROM};
use forebay_report::Table;
use forebay_units::Nanos;
use forebay_workload::{LatencyHistogram, LatencySnapshot};
use serde::Serialize;
use std::cmp::Ordering;

/// The layout of the JSON.
const SCHEMA: &str = "forebay.replay/1";

#[derive(Serialize)]
struct Json<'a> {
    schema: &'static str,
    format: &'static str,
    target: &'a str,
    target_bytes: u64,
    trace_bytes: u64,
    fit: String,
    pace: &'static str,
    speed: f64,
    intensity: f64,
    rate: Option<f64>,
    whole_seconds: Option<String>,
    outstanding_max: usize,
    threads: u16,
    seed: u64,
    verified: bool,
    requests: RequestsJson,
    answered: u64,
    errors: u64,
    first_error: Option<&'a str>,
    bytes_checked: u64,
    torn_reads: u64,
    wrong_reads: u64,
    gave_up: Option<String>,
    interrupted: bool,
    fidelity: FidelityJson,
    reads: LatencyJson,
    writes: LatencyJson,
    interval_s: f64,
    intervals: Vec<IntervalJson>,
}

#[derive(Serialize)]
struct RequestsJson {
    taken: u64,
    left_out: u64,
    widened: u64,
    moved: u64,
    cut: u64,
    split: u64,
    out_of_order: u64,
    reordered: u64,
    not_issued: u64,
}

#[derive(Serialize)]
struct FidelityJson {
    issued: u64,
    error_median_s: Option<f64>,
    error_p99_s: Option<f64>,
    error_max_s: Option<f64>,
    late: u64,
    late_from_s: f64,
    stretch: Option<f64>,
    bound_hit: u64,
    bound_waited_s: f64,
    held_back: u64,
}

#[derive(Serialize)]
struct LatencyJson {
    count: u64,
    mean_s: Option<f64>,
    p50_s: Option<f64>,
    p90_s: Option<f64>,
    p99_s: Option<f64>,
    p999_s: Option<f64>,
    max_s: Option<f64>,
}

#[derive(Serialize)]
struct IntervalJson {
    from_s: f64,
    bytes: u64,
    errors: u64,
    reads: LatencyJson,
    writes: LatencyJson,
}

fn seconds(value: Option<Nanos>) -> Option<f64> {
    value.map(Nanos::as_secs_f64)
}

impl LatencyJson {
    fn of(latency: &LatencySnapshot) -> LatencyJson {
        let percentile = |percentile| seconds(latency.percentile(percentile));
        LatencyJson {
            count: latency.count(),
            mean_s: seconds(latency.mean()),
            p50_s: percentile(50.0),
            p90_s: percentile(90.0),
            p99_s: percentile(99.0),
            p999_s: percentile(99.9),
            max_s: percentile(100.0),
        }
    }
}

impl FidelityJson {
    fn of(fidelity: &Fidelity) -> FidelityJson {
        let error = &fidelity.issue_error;
        FidelityJson {
            issued: error.count(),
            error_median_s: seconds(error.percentile(50.0)),
            error_p99_s: seconds(error.percentile(99.0)),
            error_max_s: seconds(error.max()),
            late: fidelity.late,
            late_from_s: LATE_FROM.as_secs_f64(),
            stretch: fidelity.stretch(),
            bound_hit: fidelity.bound_hit,
            bound_waited_s: fidelity.bound_waited.as_secs_f64(),
            held_back: fidelity.held_back,
        }
    }
}

impl<'a> Json<'a> {
    fn of(outcome: &'a Outcome<'a>) -> Json<'a> {
        let (args, report, counts) = (outcome.args, &outcome.report, &outcome.counts);
        let interval = |interval: &IntervalReport| IntervalJson {
            from_s: interval.from.as_secs_f64(),
            bytes: interval.bytes,
            errors: interval.errors,
            reads: LatencyJson::of(&interval.reads),
            writes: LatencyJson::of(&interval.writes),
        };
        Json {
            schema: SCHEMA,
            format: outcome.format,
            target: &outcome.target,
            target_bytes: outcome.target_bytes,
            trace_bytes: outcome.extent_bytes,
            fit: args.placing.fit.to_string(),
            pace: args.timing.pace.word(),
            speed: args.timing.speed,
            intensity: args.timing.intensity,
            rate: args.timing.rate,
            whole_seconds: (args.timing.goes_by_times() && outcome.survey.has_whole_seconds())
                .then(|| args.timing.whole_seconds.to_string()),
            outstanding_max: outcome.outstanding_max,
            threads: args.issuing.threads,
            seed: outcome.seed,
            verified: args.placing.verify,
            requests: RequestsJson {
                taken: counts.taken,
                left_out: counts.left_out,
                widened: counts.widened,
                moved: counts.moved,
                cut: counts.cut,
                split: counts.split,
                out_of_order: counts.out_of_order,
                reordered: outcome.survey.steps_back,
                not_issued: outcome.not_issued,
            },
            answered: report.requests,
            errors: report.errors,
            first_error: report.first_error.as_deref(),
            bytes_checked: report.bytes_checked,
            torn_reads: report.torn_count,
            wrong_reads: report.wrong_count,
            gave_up: report.gave_up.as_ref().map(ToString::to_string),
            interrupted: outcome.interrupted,
            fidelity: FidelityJson::of(&report.fidelity),
            reads: LatencyJson::of(&report.reads.snapshot()),
            writes: LatencyJson::of(&report.writes.snapshot()),
            interval_s: args.interval.as_secs_f64(),
            intervals: report.intervals.iter().map(interval).collect(),
        }
    }
}

pub(super) fn print(outcome: &Outcome<'_>) -> Result<(), Failure> {
    let mut output = Output::new();
    if outcome.args.output.json {
        output.json(&Json::of(outcome))?;
        return output.finish();
    }
    output.table(&summary(outcome))?;
    output.line("")?;
    output.table(&latencies(outcome))?;
    if outcome.args.per_interval {
        output.line("")?;
        output.table(&intervals(outcome))?;
    }
    output.finish()
}

fn time(value: Option<Nanos>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Of how many requests of the trace those that were played are: of all, of the first ones, or of several rounds over it.
fn of_the_trace(outcome: &Outcome<'_>) -> String {
    let until = outcome.counts.taken + outcome.counts.left_out;
    let all = outcome.survey.playable() + outcome.survey.unplayable;
    match until.cmp(&all) {
        Ordering::Less => format!("of the first {} of the trace's {}", count(until), count(all)),
        Ordering::Equal => format!("of the trace's {}", count(all)),
        Ordering::Greater => format!("of {}, as the trace's {} came round", count(until), count(all)),
    }
}

fn summary(outcome: &Outcome<'_>) -> Table {
    let (report, counts, fidelity) = (&outcome.report, &outcome.counts, &outcome.report.fidelity);
    let mut table = Table::new(["what", ">value", "remark"]);
    let mut row = |what: &str, value: String, remark: String| table.push([what.to_owned(), value, remark]);
    row("target", bytes(outcome.target_bytes), outcome.target.clone());
    row("requests played", count(counts.taken), of_the_trace(outcome));
    for (what, value, remark) in [
        ("  not issued", outcome.not_issued, "the run was over before"),
        ("  left out", counts.left_out, "of no length or kind, of other volumes, or not for this target"),
        ("  moved", counts.moved, "lie elsewhere, because the target is smaller than the trace"),
        ("  cut", counts.cut, "shorter, because they are longer than the target"),
        ("  widened", counts.widened, "to whole units of the target"),
        ("  split", counts.split, "longer than the target takes at once"),
        ("  out of order", counts.out_of_order, "recorded too late to be put in their place"),
    ] {
        if value > 0 {
            row(what, count(value), remark.to_owned());
        }
    }
    row(
        "answered",
        count(report.requests - report.errors),
        format!("{} with an error", count(report.errors)),
    );
    if let Some(error) = &report.first_error {
        row("  first error", String::new(), error.clone());
    }
    if outcome.args.placing.verify {
        let wrong = format!("{} reads with a wrong byte", count(report.wrong_count));
        row("checked", bytes(report.bytes_checked), wrong);
        if report.torn_count > 0 {
            let remark = "met a write that was under way, and saw a part of it".to_owned();
            row("  torn reads", count(report.torn_count), remark);
        }
    }
    let error = &fidelity.issue_error;
    if !error.is_empty() {
        row(
            "issue error, median",
            time(error.percentile(50.0)),
            "how late requests were issued; none was early".to_owned(),
        );
        row("issue error, p99", time(error.percentile(99.0)), String::new());
        row("issue error, max", time(error.max()), String::new());
        let share = fidelity.late as f64 / error.count() as f64;
        row("late", count(fidelity.late), format!("{:.3} %, by {LATE_FROM} or more", share * 100.0));
        if let Some(stretch) = fidelity.stretch() {
            row("stretch", format!("{stretch:.5}"), "of the run, 1 is as scheduled".to_owned());
        }
        let waited = format!(
            "waited for room below {} in flight, {} in all",
            count(outcome.outstanding_max as u64),
            fidelity.bound_waited
        );
        row("bound hit", count(fidelity.bound_hit), waited);
    }
    if fidelity.held_back > 0 {
        row(
            "held back",
            count(fidelity.held_back),
            "writes that waited for one to the same sectors".to_owned(),
        );
    }
    if let Some(gave_up) = &report.gave_up {
        row("given up", String::new(), gave_up.to_string());
    }
    table
}

fn latencies(outcome: &Outcome<'_>) -> Table {
    let mut table = Table::new(["latency", ">count", ">mean", ">p50", ">p90", ">p99", ">p99.9", ">max"]);
    let mut row = |what: &str, latency: &LatencyHistogram| {
        let percentile = |percentile| time(latency.percentile(percentile));
        table.push([
            what.to_owned(),
            count(latency.count()),
            time(latency.mean()),
            percentile(50.0),
            percentile(90.0),
            percentile(99.0),
            percentile(99.9),
            time(latency.max()),
        ]);
    };
    row("reads", &outcome.report.reads);
    row("writes", &outcome.report.writes);
    table
}

fn intervals(outcome: &Outcome<'_>) -> Table {
    let mut table = Table::new([
        ">from (s)",
        ">reads",
        ">p50",
        ">p99",
        ">max",
        ">writes",
        ">p50",
        ">p99",
        ">max",
        ">bytes",
        ">errors",
    ]);
    for interval in &outcome.report.intervals {
        let of = |latency: &LatencySnapshot| {
            let percentile = |percentile| time(latency.percentile(percentile));
            [count(latency.count()), percentile(50.0), percentile(99.0), percentile(100.0)]
        };
        let from = [format!("{:.1}", interval.from.as_secs_f64())];
        let rest = [bytes(interval.bytes), count(interval.errors)];
        table.push([&from[..], &of(&interval.reads), &of(&interval.writes), &rest].concat());
    }
    table
}
