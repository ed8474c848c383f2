//! `forebay trace stats`: what a workload is like.

use crate::failure::Failure;
use crate::input::{self, InputArgs, parse_block_size};
use crate::output::{Output, OutputArgs, bytes, count, writable, write_report};
use forebay_report::{Axis, Cells, Chart, Quantity, Report, Series, Table};
use forebay_units::{BlockSize, printable};
use forebay_workload::LatencyHistogram;
use forebay_workload::profile::{HeatMap, Profile, Profiler, RateBin, Sizes};
use serde::Serialize;
use std::path::PathBuf;

/// The layout of the JSON.
const SCHEMA: &str = "forebay.trace-stats/1";

/// Describe the workload in a trace: mix, sizes, runs, burstiness, periods, working set, popularity, heat.
///
/// One pass in bounded memory, whatever the trace's length. What is estimated or sampled says so.
#[derive(Debug, clap::Args)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    input: InputArgs,

    /// The size of a block, for working set, popularity and reuse [range: powers of two, 512B to 16MiB; default: 4KiB, or the
    /// page of traces that count pages]
    #[arg(long, value_name = "SIZE", value_parser = parse_block_size)]
    block: Option<BlockSize>,

    #[command(flatten)]
    output: OutputArgs,

    /// Write an HTML report with charts into this file
    #[arg(long, value_name = "FILE", value_parser = writable(), help_heading = "Output")]
    report: Option<PathBuf>,
}

#[derive(Serialize)]
struct Json<'a> {
    schema: &'static str,
    format: &'static str,
    skipped: u64,
    volume_names: &'a [String],
    #[serde(flatten)]
    profile: &'a Profile,
}

pub(crate) fn run(args: &StatsArgs) -> Result<(), Failure> {
    let mut reader = input::open_trace(&args.input, args.block.unwrap_or(BlockSize::DEFAULT))?;
    let block_size = args.block.or(reader.natural_block()).unwrap_or(BlockSize::DEFAULT);
    let mut profiler = Profiler::new(block_size, reader.format().has_time());
    let mut batch = Vec::new();
    while reader.next_batch(&mut batch).map_err(input::trace_failure)? > 0 {
        profiler.add(&batch);
    }
    input::tell_early(&reader);
    let profile = profiler.with_early_by(reader.early_by()).finish();
    write_report(args.report.as_ref(), || page(&profile, reader.volumes()))?;
    let mut output = Output::new();
    if args.output.json {
        output.json(&Json {
            schema: SCHEMA,
            format: reader.format().name(),
            skipped: reader.skipped(),
            volume_names: reader.volumes(),
            profile: &profile,
        })?;
    } else {
        output.table(&summary(&profile))?;
        if let Some(heat) = hottest(&profile) {
            output.line("")?;
            output.text(&heat_text(heat, reader.volumes()))?;
        }
    }
    output.finish()
}

/// The volume with the most reads and writes.
fn hottest(profile: &Profile) -> Option<&HeatMap> {
    profile.heat.iter().max_by_key(|heat| heat.cells.iter().flatten().sum::<u64>())
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn maybe(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

fn seconds(value: f64) -> String {
    forebay_units::Nanos::from_secs_f64(value).to_string()
}

fn sizes_words(sizes: &Sizes) -> String {
    let common: Vec<String> = sizes
        .common
        .iter()
        .take(4)
        .map(|size| format!("{} {}", bytes(size.bytes), percent(size.share)))
        .collect();
    common.join(", ")
}

fn volumes_words(profile: &Profile) -> String {
    format!("{} {}", count(profile.volumes), if profile.volumes == 1 { "volume" } else { "volumes" })
}

fn summary(profile: &Profile) -> Table {
    let mut table = Table::new(["what", ">value", "remark"]);
    let mut row = |what: &str, value: String, remark: String| table.push([what.to_owned(), value, remark]);
    requests(profile, &mut row);
    arrivals(profile, &mut row);
    blocks(profile, &mut row);
    table
}

/// Takes a row: what it is of, its value, and a remark.
type Row<'a> = dyn FnMut(&str, String, String) + 'a;

/// What is asked: how much of which kind, how large, how sequential.
fn requests(profile: &Profile, row: &mut Row) {
    let share = |part: u64| percent(part as f64 / profile.requests.max(1) as f64);
    row("requests", count(profile.requests), format!("on {}", volumes_words(profile)));
    if let Some(threads) = &profile.threads {
        let mut remark: Vec<String> = threads.weights.iter().take(4).map(|&weight| percent(weight)).collect();
        if threads.count > remark.len() as u64 {
            remark.push("...".into());
        }
        let unknown = match 1.0 - threads.known_share {
            share if share > 0.0 => format!("; {} of none that is known", percent(share)),
            _ => String::new(),
        };
        row("threads", count(threads.count), format!("weights {}{unknown}", remark.join(", ")));
    }
    row("reads", share(profile.reads), format!("{} of {}", count(profile.reads), bytes(profile.bytes_read)));
    row(
        "writes",
        share(profile.writes),
        format!("{} of {}", count(profile.writes), bytes(profile.bytes_written)),
    );
    let others = [("flushes", profile.flushes), ("discards", profile.discards), ("other", profile.other)];
    for (what, value) in others.into_iter().filter(|(_, value)| *value > 0) {
        row(what, share(value), count(value));
    }
    for (what, sizes) in
        [("read size, mean", &profile.read_sizes), ("write size, mean", &profile.write_sizes)]
    {
        row(what, maybe(sizes.mean_bytes, |mean| bytes(mean as u64)), sizes_words(sizes));
    }
    let runs = &profile.runs;
    row(
        "random",
        maybe(runs.random_share, percent),
        "do not begin where the last request of the volume ended".into(),
    );
    row(
        "random, of 32 streams",
        maybe(runs.random_share_of_streams, percent),
        "nor where one of the last 32 did".into(),
    );
    row(
        "sequential run, mean",
        maybe(runs.run_bytes_mean, |mean| bytes(mean as u64)),
        format!("{} runs, longest {}", count(runs.runs), bytes(runs.run_bytes_max)),
    );
}

/// When it is asked.
fn arrivals(profile: &Profile, row: &mut Row) {
    match profile.span_s {
        Some(span) if span > 0.0 => {
            let rate = format!("{:.1} requests/s", profile.requests as f64 / span);
            row("duration", seconds(span), rate);
        }
        Some(_) => row("duration", "0s".into(), String::new()),
        None if profile.requests == 0 => row("duration", "-".into(), "there is no request".into()),
        None => row("duration", "-".into(), "the format has no times".into()),
    }
    if profile.steps_back > 0 {
        row("  steps back", count(profile.steps_back), "times before that of an earlier request".into());
    }
    if profile.whole_seconds {
        row("  whole seconds", "all".into(), "gaps and bursts below a second are not known".into());
    }
    if let Some(gaps) = &profile.gaps {
        let percentiles: Vec<String> = gaps
            .percentiles
            .iter()
            // The histogram does not tell shorter ones apart, nor longer ones.
            .map(|(percentile, gap)| match *gap {
                gap if gap < 1e-6 => format!("p{percentile} <1us"),
                gap if gap >= LatencyHistogram::HIGHEST.as_secs_f64() => format!("p{percentile} >100s"),
                gap => format!("p{percentile} {}", seconds(gap)),
            })
            .collect();
        row("gap, mean", seconds(gaps.mean_s), percentiles.join(", "));
        row("  squared variation", format!("{:.2}", gaps.squared_cv), "1 for Poisson arrivals".into());
    }
    if let Some(burst) = &profile.burstiness {
        for scale in burst
            .dispersion
            .iter()
            .filter(|scale| [0.001, 0.128, 1.024, 16.384, 131.072].contains(&scale.window_s))
        {
            let what = format!("dispersion over {}", seconds(scale.window_s));
            row(&what, format!("{:.1}", scale.index), "variance / mean of arrivals, 1 for Poisson".into());
        }
        let remark = match burst.hurst_scales_s {
            Some((from, to)) => {
                format!("aggregated variance, {} to {}, 0.5 is no memory", seconds(from), seconds(to))
            }
            None => "too few arrivals to tell".to_owned(),
        };
        row("Hurst exponent", maybe(burst.hurst, |hurst| format!("{hurst:.2}")), remark);
    }
    for peak in &profile.peaks {
        let what = format!("peak over {}", seconds(peak.window_s));
        row(
            &what,
            format!("{:.1} requests/s", peak.requests_per_s),
            format!("{:.1} times the average", peak.to_average),
        );
    }
    for period in &profile.periods {
        let what = if period.period == "day" { "daily period" } else { "hourly period" };
        let found = if period.found { "yes" } else { "not found" };
        let remark = format!(
            "confidence {:.3}, {} of the variance, {} cycles",
            period.confidence,
            percent(period.variance_share),
            period.cycles
        );
        row(what, found.into(), remark);
    }
}

/// Which blocks are asked for, and how often.
fn blocks(profile: &Profile, row: &mut Row) {
    // Rows that are told from a sample say so.
    let sampled = match &profile.popularity {
        Some(popularity) if popularity.sampling_rate < 1.0 => {
            format!("sampled, {} of the blocks", percent(popularity.sampling_rate))
        }
        _ => String::new(),
    };
    let and_sampled = |remark: String| match sampled.as_str() {
        "" => remark,
        sampled => format!("{remark}; {sampled}"),
    };
    let footprint = profile.footprint_blocks.saturating_mul(profile.block_bytes);
    let exact = profile.popularity.as_ref().is_none_or(|popularity| popularity.sampling_rate >= 1.0);
    let about = if exact { "" } else { "about " };
    let blocks =
        format!("{about}{} blocks of {}", count(profile.footprint_blocks), bytes(profile.block_bytes));
    row("footprint", bytes(footprint), blocks);
    if let Some(most) = profile.working_sets.iter().max_by_key(|bin| bin.blocks)
        && let [first, second, ..] = &profile.working_sets[..]
    {
        let what = format!("working set ({}), max", seconds(second.from_s - first.from_s));
        row(
            &what,
            bytes(most.blocks.saturating_mul(profile.block_bytes)),
            format!("at {}", seconds(most.from_s)),
        );
    }
    if let Some(popularity) = &profile.popularity {
        let hottest: Vec<String> = popularity
            .hottest
            .iter()
            .map(|(blocks, accesses)| format!("{}: {}", percent(*blocks), percent(*accesses)))
            .collect();
        row("accesses per block", format!("{:.2}", popularity.accesses_per_block), sampled.clone());
        row("touched once", percent(popularity.touched_once_share), and_sampled("of the blocks".into()));
        row(
            "hottest blocks",
            percent(popularity.hottest[2].1),
            and_sampled(format!("of accesses go to 10 % of the blocks; {}", hottest.join(", "))),
        );
        let fit = popularity.zipf;
        let remark = maybe(fit.map(|fit| fit.r_squared), |r| and_sampled(format!("R squared {r:.3}")));
        row("Zipf exponent", maybe(fit.map(|fit| fit.exponent), |exponent| format!("{exponent:.2}")), remark);
    }
    if let Some(reuse) = &profile.reuse {
        let after: Vec<String> = reuse
            .percentiles_s
            .iter()
            .map(|(percentile, time)| format!("p{percentile} {}", seconds(*time)))
            .collect();
        let remark = match after.is_empty() {
            true => "of accesses".to_owned(),
            false => format!("of accesses, after at most {}", after.join(", ")),
        };
        row("reuse", percent(reuse.share), and_sampled(remark));
    }
    if profile.long_requests > 0 {
        row(
            "long requests",
            count(profile.long_requests),
            "only their first blocks are in the rows from footprint on".into(),
        );
    }
}

/// Shades from nothing to the most.
const SHADES: [char; 10] = [' ', '.', ':', '-', '=', '+', '*', '#', '%', '@'];

/// The grid as text, highest addresses first: two columns and two rows in one character, so that it fits a terminal.
fn heat_text(heat: &HeatMap, volumes: &[String]) -> String {
    let columns = heat.cells.first().map_or(0, Vec::len);
    let merged: Vec<Vec<u64>> = heat
        .cells
        .chunks(2)
        .map(|pair| {
            let sum = |at: usize| pair.iter().flat_map(|row| &row[at..columns.min(at + 2)]).sum();
            (0..columns).step_by(2).map(sum).collect()
        })
        .collect();
    let most = merged.iter().flatten().max().map_or(0.0, |most| (*most as f64 + 1.0).ln());
    let shade = |cell: &u64| {
        let share = (*cell as f64 + 1.0).ln() / most;
        let least = usize::from(*cell > 0);
        SHADES[((share * (SHADES.len() - 1) as f64).round() as usize).max(least)]
    };
    let mut text = format!(
        "requests of volume `{}`: {} upwards, {} to the right; darker is more, by factors\n",
        printable(volume_name(heat, volumes)),
        bytes(heat.row_bytes.saturating_mul(heat.cells.len() as u64)),
        seconds(heat.column_s * columns as f64)
    );
    for row in merged.iter().rev() {
        let line: String = row.iter().map(shade).collect();
        text.push_str(&format!("|{}\n", line.trim_end()));
    }
    text.push_str(&format!("+{}\n", "-".repeat(columns.div_ceil(2))));
    text
}

fn volume_name<'a>(heat: &HeatMap, volumes: &'a [String]) -> &'a str {
    volumes.get(heat.volume).map_or("?", String::as_str)
}

fn page(profile: &Profile, volumes: &[String]) -> Report {
    let subtitle = format!("{} requests on {}", count(profile.requests), volumes_words(profile));
    let mut report = Report::new("Workload", subtitle).table(summary(profile));
    let time = || Axis::linear("time", Quantity::Time);
    if profile.rates.len() > 1 {
        let series = |name: &str, of: fn(&RateBin) -> f64| {
            Series::step(name, profile.rates.iter().map(|bin| (bin.from_s, of(bin))).collect())
        };
        report = report
            .heading("Load")
            .chart(
                Chart::new("Requests per second", time(), Axis::linear("requests/s", Quantity::Count))
                    .with_series(series("reads", |bin| bin.reads_per_s))
                    .with_series(series("writes", |bin| bin.writes_per_s)),
            )
            .chart(
                Chart::new("Bytes per second", time(), Axis::linear("bytes/s", Quantity::Bytes))
                    .with_series(series("read", |bin| bin.read_bytes_per_s))
                    .with_series(series("written", |bin| bin.written_bytes_per_s)),
            );
    }
    if let Some(burst) = &profile.burstiness {
        let points = burst.dispersion.iter().filter(|scale| scale.index > 0.0);
        let points = points.map(|scale| (scale.window_s, scale.index)).collect();
        report = report.heading("Burstiness").chart(
            Chart::new(
                "Variance over mean of arrivals per window",
                Axis::log("window", Quantity::Latency),
                Axis::log("index of dispersion", Quantity::Count),
            )
            .with_series(Series::line("this workload", points))
            .with_level("Poisson", 1.0),
        );
    }
    if profile.working_sets.len() > 1 {
        let block = profile.block_bytes as f64;
        let points = |of: fn(&forebay_workload::profile::WorkingSetBin) -> u64| {
            profile.working_sets.iter().map(|bin| (bin.from_s, of(bin) as f64 * block)).collect()
        };
        let width = profile.working_sets[1].from_s - profile.working_sets[0].from_s;
        report = report.heading("Working set").chart(
            Chart::new("Distinct blocks", time(), Axis::linear("bytes", Quantity::Bytes))
                .with_series(Series::step(format!("in {}", seconds(width)), points(|bin| bin.blocks)))
                .with_series(Series::step("since the start", points(|bin| bin.footprint_blocks))),
        );
    }
    if let Some(popularity) = &profile.popularity {
        report = report.heading("Popularity").chart(
            Chart::new(
                "Accesses of a block by its rank",
                Axis::log("rank", Quantity::Count),
                Axis::log("accesses", Quantity::Count),
            )
            .with_series(Series::line("blocks", popularity.ranks.clone())),
        );
    }
    if !profile.heat.is_empty() {
        report = report.heading("Where requests go");
    }
    for heat in &profile.heat {
        let title = format!("Volume {}", volume_name(heat, volumes));
        let cells = Cells { width: heat.column_s, height: heat.row_bytes as f64, rows: heat.cells.clone() };
        report = report.chart(
            Chart::new(title, time(), Axis::linear("address", Quantity::Bytes))
                .with_description("Requests by time and address, the darker the more")
                .with_cells(cells),
        );
    }
    report
}
