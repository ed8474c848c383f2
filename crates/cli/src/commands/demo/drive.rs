//! The phases: which workloads are played when, and what was seen of them and of the daemon.

use super::stage::{ORDERS, READER_BYTES, READER_OUTSTANDING, REPORTS, SPEED, VOLUME_BYTES, WINDOW};
use super::verdict::{Check, Window};
use crate::failure::{Context, Failure};
use forebay_nbd::Uri;
use forebay_origin::{NbdOrigin, NbdOriginOptions, Origin};
use forebay_replay::{AfterWait, Due, Load, PlayOptions, PlayReport, Player};
use forebay_serve::Daemon;
use forebay_trace::{Operation, Request};
use forebay_units::{ByteRange, Nanos, mix64};
use forebay_workload::LatencyHistogram;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How often the daemon is asked how it stands.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The recorded requests are sent whatever the answers, up to so many in flight.
const RECORDING_OUTSTANDING_MAX: usize = 512;
/// Reads of the check through NBD after the last phase, and their length.
const SAMPLE_READS: u64 = 256;
const SAMPLE_BYTES: u64 = 64 << 10;

/// One phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    /// As in the results.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) seconds: u64,
    pub(super) orders: bool,
    pub(super) reports: bool,
    pub(super) forebay: bool,
}

/// All phases, in their order.
pub(super) const PHASES: [Phase; 4] = [
    Phase {
        name: "orders_alone",
        title: "orders alone",
        seconds: 10,
        orders: true,
        reports: false,
        forebay: false,
    },
    Phase {
        name: "reports_alone",
        title: "reports alone",
        seconds: 10,
        orders: false,
        reports: true,
        forebay: false,
    },
    Phase {
        name: "without",
        title: "together, without Forebay",
        seconds: 20,
        orders: true,
        reports: true,
        forebay: false,
    },
    Phase {
        name: "with",
        title: "together, with Forebay",
        seconds: 45,
        orders: true,
        reports: true,
        forebay: true,
    },
];

/// What all phases last together.
pub(super) fn seconds_total() -> u64 {
    PHASES.iter().map(|phase| phase.seconds).sum()
}

/// A workload in a phase.
#[derive(Debug)]
pub(super) struct Played {
    pub(super) reads: LatencyHistogram,
    pub(super) writes: LatencyHistogram,
    /// How late requests of the recording were sent; empty for the reader.
    pub(super) lateness: LatencyHistogram,
    windows: Vec<(Option<Nanos>, u64)>,
}

/// What became of a phase.
#[derive(Debug)]
pub(super) struct PhaseResult {
    pub(super) phase: Phase,
    /// Seconds since the first phase began.
    pub(super) from_s: f64,
    pub(super) orders: Option<Played>,
    pub(super) reports: Option<Played>,
    pub(super) windows: Vec<Window>,
}

/// How the cache of `orders` stood at an instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CacheSample {
    pub(super) at_s: f64,
    pub(super) quota_bytes: u64,
    pub(super) used_bytes: u64,
    pub(super) reports_quota_bytes: u64,
    pub(super) working_set_bytes: u64,
}

/// The clients of both volumes, and what they know of them.
pub(super) struct Drive<'a> {
    daemon: &'a Daemon,
    recording: &'a [Request],
    orders: Player,
    reports: Player,
    connections: [Arc<dyn Origin>; 2],
    /// The reader's place in its random sequence.
    state: u64,
    started: Instant,
    recorded_s: f64,
    pub(super) samples: Vec<CacheSample>,
    pub(super) check: Check,
}

impl<'a> Drive<'a> {
    /// Connects to both volumes of `daemon` on `socket`.
    pub(super) fn connect(
        daemon: &'a Daemon,
        socket: &Path,
        recording: &'a [Request],
        players: [Player; 2],
        seed: u64,
    ) -> Result<Drive<'a>, Failure> {
        let connect = |name: &str| -> Result<Arc<dyn Origin>, Failure> {
            let options = NbdOriginOptions { connections: 2, ..NbdOriginOptions::default() };
            let origin = NbdOrigin::connect(&Uri::unix(socket, name), options);
            Ok(Arc::new(origin.context(format_args!("cannot connect to volume `{name}`"))?))
        };
        let [orders, reports] = players;
        Ok(Drive {
            daemon,
            recording,
            orders,
            reports,
            connections: [connect(ORDERS)?, connect(REPORTS)?],
            state: mix64(seed ^ 3),
            started: Instant::now(),
            recorded_s: 0.0,
            samples: Vec::new(),
            check: Check::default(),
        })
    }

    /// The players with their shadows, for the comparison after the end.
    pub(super) fn into_players(self) -> ([Player; 2], Vec<CacheSample>, Check) {
        ([self.orders, self.reports], self.samples, self.check)
    }

    /// Plays one phase; `tell` hears how far it is, in seconds since the first one began.
    pub(super) fn play(
        &mut self,
        phase: Phase,
        stop: &AtomicBool,
        tell: &dyn Fn(f64, &CacheSample),
    ) -> Result<PhaseResult, Failure> {
        self.daemon.set_controller_enabled(phase.forebay)?;
        let from_s = self.started.elapsed().as_secs_f64();
        let duration = Duration::from_secs(phase.seconds);
        let options = PlayOptions::for_duration(duration, WINDOW.into());
        let recorded = self.next_part(phase);
        let Drive { orders, reports, connections, state, .. } = self;
        let mut next = || {
            *state = state.wrapping_add(1);
            let block = mix64(*state) % (VOLUME_BYTES / READER_BYTES);
            Some((Operation::Read, ByteRange::new(block * READER_BYTES, READER_BYTES)))
        };
        let (daemon, started) = (self.daemon, self.started);
        let mut samples = Vec::new();
        let (orders, reports) = std::thread::scope(|scope| {
            let orders = phase.orders.then(|| {
                let connection = &connections[0];
                scope.spawn(move || {
                    let mut requests = Due::recorded(recorded, SPEED, Some(duration.into()));
                    let load = Load::Open {
                        requests: &mut requests,
                        outstanding_max: RECORDING_OUTSTANDING_MAX,
                        after_wait: AfterWait::CatchUp,
                    };
                    orders.play(connection, load, options, stop)
                })
            });
            let reports = phase.reports.then(|| {
                let load = Load::Closed { outstanding: READER_OUTSTANDING, next: &mut next };
                let connection = &connections[1];
                scope.spawn(move || reports.play(connection, load, options, stop))
            });
            let is_over = || {
                orders.as_ref().is_none_or(|thread| thread.is_finished())
                    && reports.as_ref().is_none_or(|thread| thread.is_finished())
            };
            while !is_over() {
                std::thread::sleep(LOOK_EVERY);
                let sample = sample(daemon, started);
                tell(sample.at_s, &sample);
                samples.push(sample);
            }
            let join =
                |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().expect("players do not panic");
            (orders.map(join), reports.map(join))
        });
        self.samples.append(&mut samples);
        let orders = orders.transpose().context(format_args!("phase `{}`, volume `{ORDERS}`", phase.name))?;
        let reports =
            reports.transpose().context(format_args!("phase `{}`, volume `{REPORTS}`", phase.name))?;
        for report in [&orders, &reports].into_iter().flatten() {
            if let Some(gave_up) = &report.gave_up {
                return Err(Failure::new(format!("phase `{}`: {gave_up}", phase.name)));
            }
            self.note(report);
        }
        let (orders, reports) =
            (orders.map(|report| played(&report, phase)), reports.map(|report| played(&report, phase)));
        let windows = windows(phase, from_s, orders.as_ref(), reports.as_ref());
        Ok(PhaseResult { phase, from_s, orders, reports, windows })
    }

    /// The part of the recording that the phase plays: each goes on where the last one ended.
    fn next_part(&mut self, phase: Phase) -> &'a [Request] {
        if !phase.orders {
            return &[];
        }
        let (from, to) = (self.recorded_s, self.recorded_s + phase.seconds as f64 * SPEED);
        self.recorded_s = to;
        let at =
            |seconds: f64| self.recording.partition_point(|request| request.time.as_secs_f64() < seconds);
        &self.recording[at(from)..at(to)]
    }

    /// Reads a sample of both volumes through NBD, cache and disks, spread over all of them.
    pub(super) fn read_sample(&mut self, stop: &AtomicBool) -> Result<(), Failure> {
        for (player, connection) in [&mut self.orders, &mut self.reports].into_iter().zip(&self.connections) {
            let mut index = 0;
            let mut next = || {
                let range = ByteRange::new(index * (VOLUME_BYTES / SAMPLE_READS), SAMPLE_BYTES);
                index += 1;
                (index <= SAMPLE_READS).then_some((Operation::Read, range))
            };
            let options = PlayOptions::for_duration(Duration::from_secs(60), WINDOW.into());
            let load = Load::Closed { outstanding: 16, next: &mut next };
            let report = player.play(connection, load, options, stop).context("the sample at the end")?;
            let check = &mut self.check;
            add(check, &report);
        }
        Ok(())
    }

    fn note(&mut self, report: &PlayReport) {
        add(&mut self.check, report);
    }
}

fn add(check: &mut Check, report: &PlayReport) {
    check.bytes_read_checked += report.bytes_checked;
    check.wrong_reads += report.wrong_count;
    check.wrong.extend(report.wrong.iter().map(|wrong| format!("{:?}: {}", wrong.range, wrong.found)));
    check.wrong.truncate(16);
    check.errors += report.errors;
    if check.first_error.is_none() {
        check.first_error.clone_from(&report.first_error);
    }
}

fn sample(daemon: &Daemon, started: Instant) -> CacheSample {
    let status = daemon.status();
    let of = |name: &str| status.volumes.iter().find(|volume| volume.name == name);
    let orders = of(ORDERS);
    CacheSample {
        at_s: started.elapsed().as_secs_f64(),
        quota_bytes: orders.map_or(0, |volume| volume.quota_bytes),
        used_bytes: orders.map_or(0, |volume| volume.used_bytes),
        working_set_bytes: orders.map_or(0, |volume| volume.working_set_bytes),
        reports_quota_bytes: of(REPORTS).map_or(0, |volume| volume.quota_bytes),
    }
}

/// The phase's own windows; what completed after its end, while the last answers were waited for, is in the histograms only.
fn played(report: &PlayReport, phase: Phase) -> Played {
    let window = |at: usize| match report.intervals.get(at) {
        Some(interval) => (interval.reads.mean(), interval.reads.count()),
        None => (None, 0),
    };
    Played {
        reads: report.reads.clone(),
        writes: report.writes.clone(),
        lateness: report.fidelity.issue_error.clone(),
        windows: (0..phase.seconds as usize).map(window).collect(),
    }
}

fn windows(phase: Phase, from_s: f64, orders: Option<&Played>, reports: Option<&Played>) -> Vec<Window> {
    let span = WINDOW.as_secs_f64();
    (0..phase.seconds as usize)
        .map(|at| Window {
            at_s: from_s + at as f64 * span,
            orders_latency_ms: orders.and_then(|played| played.windows[at].0).map(Nanos::as_millis_f64),
            orders_reads_per_s: orders.map(|played| played.windows[at].1 as f64 / span),
            reports_iops: reports.map(|played| played.windows[at].1 as f64 / span),
        })
        .collect()
}
