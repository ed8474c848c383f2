//! What a run came to, as `forebay demo --json` prints it: schema `forebay.demo/1`, described in docs/reference/json.md.

use super::drive::{CacheSample, PhaseResult, Played};
use super::stage::{self, CACHE_BYTES, IOPS_MIN, LATENCY_MAX, ORDERS, REPORTS, SPEED, VOLUME_BYTES, WINDOW};
use super::verdict::{self, Check, Kept, Window};
use forebay_serve::DatedDecision;
use forebay_serve::status::{Curve, CurvePoint};
use forebay_trace::{Operation, Request};
use forebay_units::{BlockSize, Nanos};
use serde::Serialize;
use std::collections::HashSet;

/// Names the layout.
pub(super) const SCHEMA: &str = "forebay.demo/1";

/// The whole run.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    schema: &'static str,
    /// Whether both objectives were restored and every byte was right.
    pub(super) passed: bool,
    /// Why not.
    pub(super) failures: Vec<String>,
    pub(super) seed: u64,
    pub(super) setup: Setup,
    pub(super) phases: Vec<PhaseOutcome>,
    pub(super) restoration: Restoration,
    pub(super) cache: CacheOutcome,
    pub(super) decisions: Vec<DecisionOutcome>,
    pub(super) check: Check,
    pub(super) curve: Vec<CurvePoint>,
    pub(super) windows: Vec<Window>,
}

#[derive(Debug, Serialize)]
pub(super) struct Setup {
    pub(super) spindles: u32,
    pub(super) volume_bytes: u64,
    pub(super) cache_capacity_bytes: u64,
    pub(super) recording_requests: u64,
    pub(super) recording_speed: f64,
    pub(super) reader_outstanding: usize,
    pub(super) control_interval_s: f64,
    pub(super) window_s: f64,
    pub(super) objectives: Vec<ObjectiveOutcome>,
}

#[derive(Debug, Serialize)]
pub(super) struct ObjectiveOutcome {
    pub(super) volume: &'static str,
    pub(super) objective: String,
    pub(super) bound: f64,
    pub(super) unit: &'static str,
}

#[derive(Debug, Serialize)]
pub(super) struct PhaseOutcome {
    pub(super) name: &'static str,
    #[serde(skip)]
    pub(super) title: &'static str,
    pub(super) from_s: f64,
    pub(super) seconds: u64,
    pub(super) forebay: bool,
    pub(super) workloads: Vec<WorkloadOutcome>,
}

#[derive(Debug, Serialize)]
pub(super) struct WorkloadOutcome {
    pub(super) volume: &'static str,
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) iops: f64,
    pub(super) read_latency_mean_ms: Option<f64>,
    pub(super) read_latency_p50_ms: Option<f64>,
    pub(super) read_latency_p90_ms: Option<f64>,
    pub(super) read_latency_p99_ms: Option<f64>,
    /// How late requests of the recording were sent; absent for the reader.
    pub(super) lateness_p99_ms: Option<f64>,
    pub(super) windows: usize,
    pub(super) windows_conforming: usize,
    pub(super) conforming_share: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct Restoration {
    /// In words.
    pub(super) rule: String,
    pub(super) judged_windows: usize,
    pub(super) conforming_share_min: f64,
    pub(super) orders_conforming_share: f64,
    pub(super) reports_conforming_share: f64,
    /// From the start of the phase with Forebay, when both objectives were violated, to sustained conformance.
    pub(super) orders_sustained_after_s: Option<f64>,
    pub(super) reports_sustained_after_s: Option<f64>,
    pub(super) both_sustained_after_s: Option<f64>,
    /// The same, from the controller's first word of a violation.
    pub(super) both_sustained_after_found_s: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(super) struct CacheOutcome {
    pub(super) volume: &'static str,
    /// Given at the end, at most, and used at the end.
    pub(super) quota_bytes: u64,
    pub(super) quota_bytes_max: u64,
    /// On average over the phase with Forebay.
    pub(super) quota_bytes_mean: f64,
    pub(super) used_bytes: u64,
    /// Given to `reports` at most.
    pub(super) reports_quota_bytes_max: u64,
    /// Distinct blocks that the recording reads.
    pub(super) footprint_bytes: u64,
    /// Distinct blocks read in a window of `working_set_window_s`, by the daemon's live estimate.
    pub(super) working_set_bytes: u64,
    pub(super) working_set_window_s: f64,
    #[serde(skip)]
    pub(super) samples: Vec<CacheSample>,
}

#[derive(Debug, Serialize)]
pub(super) struct DecisionOutcome {
    /// Seconds since the first phase began.
    pub(super) at_s: f64,
    pub(super) volume: String,
    pub(super) kind: forebay_control::DecisionKind,
    pub(super) summary: String,
}

/// What was seen, from which the outcome is worked out.
pub(super) struct Seen<'a> {
    pub(super) seed: u64,
    pub(super) recording: &'a [Request],
    pub(super) phases: Vec<PhaseResult>,
    pub(super) samples: Vec<CacheSample>,
    pub(super) check: Check,
    pub(super) decisions: Vec<DatedDecision>,
    /// When the first phase began, milliseconds since 1970.
    pub(super) started_unix_ms: i64,
    pub(super) curve: Option<Curve>,
}

impl Outcome {
    pub(super) fn of(seen: Seen<'_>) -> Outcome {
        let windows_of = |name: &str| {
            seen.phases
                .iter()
                .find(|result| result.phase.name == name)
                .map_or(&[][..], |result| &result.windows)
        };
        let (without, with) = (windows_of("without"), windows_of("with"));
        let failures = verdict::failures(without, with, &seen.check);
        let with_from_s = with.first().map_or(0.0, |window| window.at_s);
        let decisions: Vec<DecisionOutcome> = seen
            .decisions
            .iter()
            .map(|dated| DecisionOutcome {
                at_s: (dated.at_unix_ms - seen.started_unix_ms) as f64 / 1e3,
                volume: dated.decision.volume_name.clone(),
                kind: dated.decision.kind,
                summary: dated.decision.summary.clone(),
            })
            .collect();
        let found =
            decisions.iter().find(|decision| decision.kind == forebay_control::DecisionKind::ViolationFound);
        let both: [Kept; 2] = [Window::orders_kept, Window::reports_kept];
        let both_after = verdict::sustained_after(with, &both);
        let judged = verdict::judged(with);
        let restoration = Restoration {
            rule: format!(
                "restored: of the last {} windows of {WINDOW} with Forebay at least {:.0} % conform, for each objective; sustained: \
                 {} windows in a row conform",
                verdict::JUDGED_WINDOWS,
                verdict::CONFORMING_MIN * 100.0,
                verdict::SUSTAINED_WINDOWS
            ),
            judged_windows: judged.len(),
            conforming_share_min: verdict::CONFORMING_MIN,
            orders_conforming_share: verdict::conforming_share(judged, Window::orders_kept),
            reports_conforming_share: verdict::conforming_share(judged, Window::reports_kept),
            orders_sustained_after_s: verdict::sustained_after(with, &[Window::orders_kept]),
            reports_sustained_after_s: verdict::sustained_after(with, &[Window::reports_kept]),
            both_sustained_after_s: both_after,
            both_sustained_after_found_s: both_after
                .zip(found)
                .map(|(after, found)| (after - (found.at_s - with_from_s)).max(0.0)),
        };
        let last = seen.samples.last();
        let most = |of: fn(&CacheSample) -> u64| seen.samples.iter().map(of).max().unwrap_or(0);
        let during = seen.samples.iter().filter(|sample| sample.at_s >= with_from_s);
        let quotas: Vec<f64> = during.map(|sample| sample.quota_bytes as f64).collect();
        let cache = CacheOutcome {
            volume: ORDERS,
            quota_bytes: last.map_or(0, |sample| sample.quota_bytes),
            quota_bytes_max: most(|sample| sample.quota_bytes),
            quota_bytes_mean: quotas.iter().sum::<f64>() / quotas.len().max(1) as f64,
            used_bytes: last.map_or(0, |sample| sample.used_bytes),
            reports_quota_bytes_max: most(|sample| sample.reports_quota_bytes),
            footprint_bytes: read_footprint(seen.recording),
            working_set_bytes: last.map_or(0, |sample| sample.working_set_bytes),
            working_set_window_s: stage::WORKING_SET_WINDOW.as_secs_f64(),
            samples: seen.samples.clone(),
        };
        Outcome {
            schema: SCHEMA,
            passed: failures.is_empty(),
            failures,
            seed: seen.seed,
            setup: setup(seen.recording),
            phases: seen.phases.iter().map(phase_outcome).collect(),
            restoration,
            cache,
            decisions,
            check: seen.check,
            curve: seen.curve.map(|curve| curve.curve).unwrap_or_default(),
            windows: seen.phases.iter().flat_map(|result| result.windows.iter().copied()).collect(),
        }
    }
}

fn setup(recording: &[Request]) -> Setup {
    Setup {
        spindles: stage::SPINDLES,
        volume_bytes: VOLUME_BYTES,
        cache_capacity_bytes: CACHE_BYTES.get(),
        recording_requests: recording.len() as u64,
        recording_speed: SPEED,
        reader_outstanding: stage::READER_OUTSTANDING,
        control_interval_s: stage::CONTROL_INTERVAL.as_secs_f64(),
        window_s: WINDOW.as_secs_f64(),
        objectives: vec![
            ObjectiveOutcome {
                volume: ORDERS,
                objective: format!("mean latency of reads at most {LATENCY_MAX}"),
                bound: LATENCY_MAX.as_millis_f64(),
                unit: "ms",
            },
            ObjectiveOutcome {
                volume: REPORTS,
                objective: format!("at least {IOPS_MIN} requests/s"),
                bound: IOPS_MIN,
                unit: "requests/s",
            },
        ],
    }
}

/// Distinct blocks of 4 KiB that the recording reads, in bytes.
fn read_footprint(recording: &[Request]) -> u64 {
    let reads = recording.iter().filter(|request| request.operation == Operation::Read && request.length > 0);
    let blocks: HashSet<u64> =
        reads.flat_map(|request| request.range().blocks(BlockSize::DEFAULT)).map(|block| block.0).collect();
    blocks.len() as u64 * BlockSize::DEFAULT.bytes()
}

fn phase_outcome(result: &PhaseResult) -> PhaseOutcome {
    let workload = |volume, played: &Option<Played>, kept: Kept| {
        let played = played.as_ref()?;
        let ms = |latency: Option<Nanos>| latency.map(Nanos::as_millis_f64);
        let conforming = result.windows.iter().filter(|window| kept(window) == Some(true)).count();
        Some(WorkloadOutcome {
            volume,
            reads: played.reads.count(),
            writes: played.writes.count(),
            iops: (played.reads.count() + played.writes.count()) as f64 / result.phase.seconds as f64,
            read_latency_mean_ms: ms(played.reads.mean()),
            read_latency_p50_ms: ms(played.reads.percentile(50.0)),
            read_latency_p90_ms: ms(played.reads.percentile(90.0)),
            read_latency_p99_ms: ms(played.reads.percentile(99.0)),
            lateness_p99_ms: ms(played.lateness.percentile(99.0)),
            windows: result.windows.len(),
            windows_conforming: conforming,
            conforming_share: verdict::conforming_share(&result.windows, kept),
        })
    };
    PhaseOutcome {
        name: result.phase.name,
        title: result.phase.title,
        from_s: result.from_s,
        seconds: result.phase.seconds,
        forebay: result.phase.forebay,
        workloads: [
            workload(ORDERS, &result.orders, Window::orders_kept),
            workload(REPORTS, &result.reports, Window::reports_kept),
        ]
        .into_iter()
        .flatten()
        .collect(),
    }
}
