//! Recorded volumes, most of which are of high locality as the slides' RealCSE is: what the daemon decides about them by itself, and what that brings.

use crate::commands::repro::jobs::side_by_side;
use crate::commands::repro::recorded;
use crate::failure::Failure;
use crate::output::{Output, say};
use forebay_control::prewarm::{Heuristic, Takeover};
use forebay_report::{Report, Table};
use forebay_sim::RecordedRequest;
use forebay_sim::presto::{Entry, Experiment, HM1_BYTES, HM3_BYTES, HORIZON, Load, Loading, Metric, Way};
use forebay_units::Nanos;
use serde::Serialize;
use std::path::Path;

/// The layout of the JSON.
const SCHEMA: &str = "forebay.repro-presto-recorded/1";
/// The slides' cache.
const CACHE_BYTES: u64 = 6 << 30;
/// The slides' rate and limit where they compare rates on RealCSE.
const RATE: u64 = 50 << 20;
const LIMIT_PERCENT: u64 = 25;
/// Snapshots until the failure.
const SNAPSHOTS: usize = 24;

/// What was found.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    schema: &'static str,
    cache_bytes: u64,
    volumes: Vec<VolumeFound>,
    /// Files that are no load, and why.
    left_out: Vec<(String, String)>,
}

/// A recorded volume. Ratios are per look-up, in the five minutes after the failure.
#[derive(Debug, Serialize)]
struct VolumeFound {
    name: String,
    accesses_per_second: f64,
    failure_s: f64,
    /// Bytes of the objects of the extents that it ever touches.
    object_bytes: u64,
    /// Whether anything is loaded, and the decision as `forebay explain` words it.
    loads: bool,
    decision: String,
    /// What was loaded, and what the slides' k-Recent loads with a quarter of the cache.
    loaded_bytes: u64,
    recent_loaded_bytes: u64,
    cold: f64,
    decided: f64,
    recent: f64,
    /// A node that did not fail.
    warm: f64,
}

/// Runs on the traces of a folder.
pub(super) fn run(folder: &Path) -> Result<Found, Failure> {
    let recorded::Recorded { traces, mut left_out } = recorded::read(folder)?;
    let needed = 2 * u64::from(HORIZON);
    let (long, short): (Vec<_>, Vec<_>) =
        traces.into_iter().partition(|(_, requests)| span(requests) >= Nanos::secs(needed));
    left_out.extend(short.into_iter().map(|(name, requests)| {
        let found = span(&requests).as_secs_f64();
        (name, format!("it lasts {found:.0} s, expected at least {needed}"))
    }));
    left_out.sort();
    if long.is_empty() {
        for (name, reason) in &left_out {
            say(format_args!("left out: {name}: {reason}"));
        }
        let shown = folder.display();
        return Err(Failure::new(format!(
            "the folder `{shown}` holds no trace of {needed} s with times and enough requests"
        )));
    }
    let volumes = side_by_side(long.len(), |at| volume(&long[at].0, &long[at].1));
    Ok(Found { schema: SCHEMA, cache_bytes: CACHE_BYTES, volumes, left_out })
}

fn span(requests: &[RecordedRequest]) -> Nanos {
    let ends = |at: Option<&RecordedRequest>| at.map_or(Nanos::ZERO, |request| request.at);
    ends(requests.last()).saturating_since(ends(requests.first()))
}

/// The node fails half way.
fn volume(name: &str, requests: &[RecordedRequest]) -> VolumeFound {
    let failure = Nanos(span(requests).0 / 2);
    let load = Load::recorded(requests);
    let (before, accesses) = (load.position(failure), load.accesses.len());
    let experiment = Experiment::new(load, CACHE_BYTES, failure);
    let every = (before / SNAPSHOTS).max(1);
    let failed = experiment.fail(&[every]);
    let takeover = failed.takeover(every);
    let how = |entry| Loading { limit: CACHE_BYTES / 100 * LIMIT_PERCENT, rate: Some(RATE), entry };
    let ratio = |way, entry| {
        let (_, run) = failed.run(way, how(entry));
        (Metric::LookUps.window(&run.seconds[..HORIZON as usize]), run.prewarmed_bytes)
    };
    let (decided, loaded_bytes) = ratio(Way::Decided(every), Entry::Tail);
    let (recent, recent_loaded_bytes) = ratio(Way::Scored(Heuristic::Recent, every), Entry::Head);
    VolumeFound {
        name: name.to_owned(),
        accesses_per_second: accesses as f64 / span(requests).as_secs_f64(),
        failure_s: failure.as_secs_f64(),
        object_bytes: u64::from(experiment.load().objects.extents()) * (HM1_BYTES + HM3_BYTES),
        loads: matches!(takeover, Takeover::Load { .. }),
        decision: takeover.summary(name, (HM1_BYTES + HM3_BYTES) / 2),
        loaded_bytes,
        recent_loaded_bytes,
        cold: ratio(Way::Cold, Entry::Head).0,
        decided,
        recent,
        warm: ratio(Way::Warm, Entry::Head).0,
    }
}

fn table(found: &Found) -> Table {
    let mut table = Table::new([
        "volume",
        ">accesses/s",
        ">cold",
        ">as decided",
        ">k-Recent, 25 %",
        ">did not fail",
        ">loaded",
        ">of the cache",
        ">k-Recent loads",
    ])
    .with_caption(
        "Recorded volumes: look-ups found in the five minutes after a failure, and what is loaded. The slides' RealCSE, which was not published: 0.92 to 0.95",
    );
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    for volume in &found.volumes {
        table.push([
            volume.name.clone(),
            format!("{:.1}", volume.accesses_per_second),
            format!("{:.3}", volume.cold),
            format!("{:.3}", volume.decided),
            format!("{:.3}", volume.recent),
            format!("{:.3}", volume.warm),
            mib(volume.loaded_bytes),
            format!("{:.3} %", 100.0 * volume.loaded_bytes as f64 / found.cache_bytes as f64),
            mib(volume.recent_loaded_bytes),
        ]);
    }
    table
}

/// Prints the table and the decisions.
pub(super) fn print(found: &Found, output: &mut Output) -> Result<(), Failure> {
    output.line(table(found).to_text())?;
    for volume in &found.volumes {
        output.line(&volume.decision)?;
    }
    for (name, reason) in &found.left_out {
        output.line(format!("left out: {name}: {reason}"))?;
    }
    Ok(())
}

/// The report.
pub(super) fn report(found: &Found) -> Report {
    let mut report = Report::new("Prewarming of recorded volumes", "What the daemon decides by itself")
        .paragraph("Volumes of the traces of a folder, at their own pace, from a cache of PRESTO's metadata objects of 6 GiB; the node fails half way.")
        .table(table(found));
    for volume in &found.volumes {
        report = report.paragraph(volume.decision.clone());
    }
    match recorded::left_out_table(&found.left_out) {
        Some(table) => report.table(table),
        None => report,
    }
}
