//! The outcome for people: tables in the terminal and a page with plots.

use super::outcome::{Outcome, Way, WaySecond};
use crate::failure::Failure;
use crate::output::{Output, bytes, count};
use forebay_report::{Axis, Chart, Quantity, Report, Series, Table};

fn ratio(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.3}"))
}

fn ms(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.1} ms"))
}

fn sums(found: &Outcome) -> Table {
    let caption = format!(
        "Who takes over (a warm cache: {:.3} of reads hit; means of {} takeovers each)",
        found.warm_hit_ratio, found.ways[0].repeats
    );
    let headings = ["begins", ">hit ratio", ">read mean", ">p99", ">95 % of warm after", ">loaded"];
    let mut table = Table::new(headings).with_caption(caption);
    for way in &found.ways {
        table.push([
            way.begins.to_owned(),
            format!("{:.3}", way.hit_ratio),
            ms(way.read_mean_ms),
            ms(way.read_p99_ms),
            way.warm_after_s.map_or(format!("not in {} s", way.seconds.len()), |after| format!("{after} s")),
            bytes(way.loaded_bytes),
        ]);
    }
    table
}

fn seconds(found: &Outcome) -> Table {
    let headings = [">second", ">hit ratio", ">cold", ">read mean", ">cold", ">p99", ">cold"];
    let mut table = Table::new(headings).with_caption("Second by second, with snapshots and cold");
    let [with, cold] = [&found.ways[0], &found.ways[1]].map(|way: &Way| &way.seconds);
    for (at, (with, cold)) in with.iter().zip(cold).enumerate() {
        table.push([
            (at + 1).to_string(),
            ratio(with.hit_ratio),
            ratio(cold.hit_ratio),
            ms(with.read_mean_ms),
            ms(cold.read_mean_ms),
            ms(with.read_p99_ms),
            ms(cold.read_p99_ms),
        ]);
    }
    table
}

fn checked(found: &Outcome) -> String {
    format!(
        "{} bytes that were read were compared with what they must be: {} reads were wrong. {} requests were in flight when the first daemon was killed.",
        count(found.bytes_checked),
        found.wrong_reads,
        found.lost_at_kill
    )
}

pub(super) fn print(found: &Outcome, output: &mut Output) -> Result<(), Failure> {
    output.table(&seconds(found))?;
    output.line("")?;
    output.table(&sums(found))?;
    output.line("")?;
    output.line(checked(found))
}

fn chart(found: &Outcome, title: &str, axis: Axis, of: fn(&WaySecond) -> Option<f64>) -> Chart {
    let mut chart = Chart::new(title, Axis::linear("since it takes requests", Quantity::Time), axis);
    for way in &found.ways {
        let points =
            (1..).zip(&way.seconds).filter_map(|(second, found)| Some((f64::from(second), of(found)?)));
        chart = chart.with_series(Series::line(way.begins, points.collect()));
    }
    chart
}

pub(super) fn report(found: &Outcome) -> Report {
    let latency = || Axis::linear("latency", Quantity::Latency);
    let about = format!(
        "A volume of {} on four emulated disks of 15,000 rpm, {:.0} requests/s (a tenth of them writes, nine tenths to {} of it), a cache of {}. The first daemon is killed \
         with SIGKILL under load after {} s; those that take over are processes of their own, and make the same requests. Hits are the daemon's counters, latencies the client's.",
        bytes(found.volume_bytes),
        found.requests_per_s,
        bytes(found.hot_bytes),
        bytes(found.cache_bytes),
        found.warm_s
    );
    let hits =
        chart(found, "Hit ratio", Axis::linear("of reads", Quantity::Ratio), |second| second.hit_ratio);
    Report::new("Failover, with snapshots and cold", format!("seed {}", found.seed))
        .paragraph(about)
        .table(sums(found))
        .chart(hits.with_level("warm", found.warm_hit_ratio))
        .chart(chart(found, "Mean latency of reads", latency(), |second| Some(second.read_mean_ms? / 1e3)))
        .chart(chart(found, "99th percentile of the latency of reads", latency(), |second| {
            Some(second.read_p99_ms? / 1e3)
        }))
        .paragraph(checked(found))
        .table(seconds(found))
}
