//! Puts together what people and programs are told.

use crate::clock::unix_ms;
use crate::config::{CacheConfig, VolumeConfig, machine_memory, memory_available};
use crate::daemon::{Shared, State};
use crate::history::{DatedDecision, word};
use crate::interfering::Interferences;
use crate::loading::LoadState;
use crate::monitor::{Monitor, Track};
use crate::reservation::{Reservation, ReservationError, ReservationRequest};
use crate::status::{
    CacheStatus, ControllerStatus, Curve, CurvePoint, Explanation, FlashStatus, HistoryStatus, IoStatus,
    LatencyStatus, MemoryStatus, ObjectiveStatus, OriginStatus, PlacementStatus, PrewarmStatus,
    ReservationStatus, SizeStatus, SnapshotsStatus, Status, VolumeFlashStatus, VolumeStatus, state_of,
};
use forebay_appliance::VolumeSnapshot;
use forebay_appliance::volume::{PlacingObservation, PrewarmEnd, PrewarmProgress, VolumeObservation};
use forebay_control::conformance::Verdict;
use forebay_origin::{OriginState, OriginStatistics};
use forebay_units::{BlockSize, Nanos};
use forebay_workload::LatencySnapshot;
use std::sync::atomic::{AtomicU64, Ordering};

/// An origin that has not answered a request for so long is told of (ours: no disk that works takes as long).
const UNANSWERED_AFTER: Nanos = Nanos::secs(5);

pub(crate) fn status(shared: &Shared) -> Status {
    // Never under the lock of the state: nobody holds both.
    let reservations_trouble = shared.books.reservations().trouble();
    let reservations = reservations(shared, |_| true);
    let state = shared.state();
    let volumes: Vec<VolumeStatus> =
        shared.config.volumes.iter().map(|config| volume(shared, &state, config)).collect();
    let (trouble, rows_written, rows_lost) = shared.history.as_ref().map_or((None, 0, 0), |history| {
        let counters = history.counters();
        let written = counters.written.load(Ordering::Relaxed);
        (counters.trouble(), written, counters.lost.load(Ordering::Relaxed))
    });
    Status {
        schema: "forebay.status/1".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        at_unix_ms: unix_ms(),
        uptime_s: shared.started.elapsed().as_secs_f64(),
        listen: shared.appliance.listeners().iter().map(ToString::to_string).collect(),
        connections: shared.appliance.connections() as u64,
        controller: controller(shared, &state),
        cache: CacheStatus {
            capacity_bytes: shared.config.cache_memory.get(),
            granted_bytes: volumes.iter().map(|volume| volume.quota_bytes).sum(),
            used_bytes: volumes.iter().map(|volume| volume.used_bytes).sum(),
        },
        memory: memory(),
        flash: shared.flash.as_ref().map(|flash| FlashStatus {
            path: flash.path().display().to_string(),
            capacity_bytes: flash.capacity().get(),
            taken_bytes: flash.taken().get(),
            direct: flash.is_direct(),
            trouble: state.flash_trouble.clone(),
        }),
        io: IoStatus {
            engine: shared.appliance.io().name().to_owned(),
            reason: shared.appliance.io().reason().map(str::to_owned),
        },
        history: HistoryStatus { enabled: shared.history.is_some(), trouble, rows_written, rows_lost },
        snapshots: snapshots(shared),
        reservations,
        reservations_trouble,
        journal_trouble: None,
        drained: Vec::new(),
        volumes,
    }
}

/// The memory of the machine, or of the control group.
pub(crate) fn memory() -> MemoryStatus {
    MemoryStatus { total_bytes: machine_memory().get(), available_bytes: memory_available().get() }
}

/// Why no snapshot can be read or written now.
fn snapshots_trouble(shared: &Shared) -> Option<String> {
    shared.snapshot_store.as_ref()?.trouble()
}

fn snapshots(shared: &Shared) -> Option<SnapshotsStatus> {
    let config = shared.config.snapshots.as_ref()?;
    let counters = &shared.snapshot_counters;
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Some(SnapshotsStatus {
        directory: config.place.to_string(),
        taken: of(&counters.taken),
        bytes: of(&counters.bytes),
        failed: of(&counters.failed),
        expired: of(&counters.expired),
        used: of(&counters.used),
        refused: of(&counters.refused),
        trouble: snapshots_trouble(shared),
    })
}

fn prewarm(progress: PrewarmProgress, load: Option<&LoadState>) -> PrewarmStatus {
    let remaining = progress.remaining_bytes.get();
    let running = progress.ended.is_none();
    let speed = load.and_then(|load| load.speed).filter(|_| running);
    PrewarmStatus {
        total_bytes: progress.total_bytes.get(),
        remaining_bytes: remaining,
        loaded_bytes: progress.loaded_bytes.get(),
        skipped_bytes: progress.skipped_bytes.get(),
        failed_bytes: progress.failed_bytes.get(),
        running,
        ended: progress.ended.map(|end| {
            match end {
                PrewarmEnd::Done => "done",
                PrewarmEnd::Full => "full",
                PrewarmEnd::Cancelled => "cancelled",
            }
            .to_owned()
        }),
        source: load.map(|load| load.source.to_owned()),
        bytes_per_second: speed.map(|speed| speed.loaded.round() as u64),
        ends_in_s: speed.filter(|speed| speed.done > 0.0).map(|speed| remaining as f64 / speed.done),
    }
}

/// The reservations that `wanted` says, what has ended left out.
fn reservations(shared: &Shared, wanted: impl Fn(&Reservation) -> bool) -> Vec<ReservationStatus> {
    let book = shared.books.reservations();
    let now = unix_ms();
    let wanted =
        book.all().iter().filter(|reservation| reservation.until_unix_ms > now && wanted(reservation));
    wanted.map(|reservation| reservation_status(reservation, book.is_kept(), now)).collect()
}

fn reservation_status(reservation: &Reservation, kept: bool, now_unix_ms: i64) -> ReservationStatus {
    let active = reservation.is_active(now_unix_ms);
    ReservationStatus { reservation: reservation.clone(), active, kept, unproven: Vec::new() }
}

pub(crate) fn reserve(
    shared: &Shared,
    request: ReservationRequest,
) -> Result<ReservationStatus, ReservationError> {
    let unproven = possible(shared, &request)?;
    let mut book = shared.books.reservations();
    let now = unix_ms();
    let made = book.make(request, &shared.config.volumes, now)?;
    tracing::info!(?made, "a reservation is made");
    Ok(ReservationStatus { unproven, ..reservation_status(&made, book.is_kept(), now) })
}

/// Refuses a latency below that of hits: what no cache can keep would have all of them grow for nothing. Returns the volumes of which that is not known yet.
fn possible(shared: &Shared, request: &ReservationRequest) -> Result<Vec<String>, ReservationError> {
    let mut unproven = Vec::new();
    // What is no latency at all is told by who checks the rest.
    let Some(latency_s) = request.latency_s.filter(|latency_s| *latency_s > 0.0) else { return Ok(unproven) };
    let state = shared.state();
    for name in &request.volumes {
        let least = state.monitors.get(name).and_then(|monitor| monitor.hit_least);
        if least.is_none() {
            unproven.push(name.clone());
        }
        if let Some(least) = least.filter(|least| latency_s < least.as_secs_f64()) {
            return Err(ReservationError::Refused {
                field: "latency_s",
                found: format!("{latency_s}, which is {}", Nanos::from_secs_f64(latency_s)),
                expected: format!(
                    "at least {least}: so long took the hits of `{name}` in the interval in which they were fastest"
                ),
            });
        }
    }
    Ok(unproven)
}

pub(crate) fn cancel_reservation(shared: &Shared, id: u64) -> Result<ReservationStatus, ReservationError> {
    let mut book = shared.books.reservations();
    let cancelled = book.cancel(id)?;
    tracing::info!(id, "a reservation is cancelled");
    Ok(reservation_status(&cancelled, book.is_kept(), unix_ms()))
}

fn volume(shared: &Shared, state: &State, config: &VolumeConfig) -> VolumeStatus {
    let name = &config.name;
    let monitor = state.monitors.get(name);
    // Of now; the last interval's where the worker does not answer.
    let now = shared.appliance.observe(name, false).ok();
    let is_gone = now.is_none() && shared.is_gone(state, name);
    let last = match now {
        Some(_) => None,
        None => monitor.and_then(|monitor| monitor.last_words(is_gone)),
    };
    let snapshot = now.as_ref().or(last.as_ref());
    let seen = snapshot.map(|snapshot| &snapshot.observation);
    let objectives: Vec<ObjectiveStatus> = match monitor {
        Some(monitor) => monitor.tracks.iter().map(objective).collect(),
        None => Monitor::new(
            forebay_control::VolumeId(0),
            &config.objectives,
            shared.config.control.interval.into(),
        )
        .tracks
        .iter()
        .map(objective)
        .collect(),
    };
    let (judged, serves) = state.judged.get(name).cloned().unwrap_or_default();
    let absent = state.absent.get(name);
    let word_of_state = if absent.is_some() {
        "absent".to_owned()
    } else if now.is_none() && !shared.appliance.volumes().contains(name) {
        "drained".to_owned()
    } else if judged.is_empty()
        && objectives.iter().any(|objective| objective.verdict.as_deref() == Some("nonconforming"))
    {
        "violating".to_owned()
    } else {
        let judged = if judged.is_empty() { "conforming".to_owned() } else { judged };
        state_of(judged, &objectives)
    };
    // Nothing is asked of one that is gone.
    let interval = monitor.filter(|_| !is_gone).map(|monitor| monitor.interval.clone()).unwrap_or_default();
    let block_bytes = config.block_size.bytes();
    VolumeStatus {
        name: name.clone(),
        uris: shared.uris(name),
        state: word_of_state,
        origin: origin(state, config, snapshot),
        size_bytes: snapshot.map_or(0, |snapshot| snapshot.size.get()),
        block_bytes,
        read_only: snapshot.map_or(config.read_only, |snapshot| snapshot.read_only),
        controlled: matches!(config.cache, CacheConfig::Controlled { may_cache: true, .. }),
        route: crate::route::told(shared, name),
        // The data path's word, which needs no lock that waits for a disk.
        lease: shared.appliance.lease(name).ok().flatten().map(Into::into),
        connections: snapshot.map_or(0, |snapshot| snapshot.connections as u64),
        requests_in_flight: seen.map_or(0, |seen| seen.requests_in_flight as u64),
        objectives,
        iops: interval.iops(),
        errors_per_s: interval.per_second(interval.errors),
        read_bytes_per_s: interval.per_second(interval.bytes_read),
        write_bytes_per_s: interval.per_second(interval.bytes_written),
        iops_series: monitor.map(|monitor| monitor.series.iter().copied().collect()).unwrap_or_default(),
        read_size: SizeStatus::of(interval.bytes_read, &interval.read_sizes, interval.reads),
        write_size: SizeStatus::of(interval.bytes_written, &interval.write_sizes, interval.writes),
        read_latency: latency(&interval.read_latency),
        write_latency: latency(&interval.write_latency),
        flush_latency: latency(&interval.flush_latency),
        hit_ratio: interval.hit_ratio,
        quota_bytes: seen.map_or(0, |seen| seen.quota_bytes.get()),
        used_bytes: seen.map_or(0, |seen| seen.resident_bytes.get()),
        refused_bytes: seen.map_or(0, |seen| refused_bytes(seen, config.block_size)),
        flash: seen.and_then(|seen| seen.flash).map(|flash| VolumeFlashStatus {
            quota_bytes: flash.quota_bytes.get(),
            used_bytes: flash.resident_bytes.get(),
            hits: flash.statistics.hits,
            misses: flash.statistics.misses,
            entered: flash.statistics.appended,
            damaged: flash.statistics.corrupt + flash.statistics.read_errors,
            write_errors: flash.statistics.write_errors,
            recovered: flash.statistics.recovered,
        }),
        placement: seen.and_then(|seen| seen.flash?.placing).map(placement),
        working_set_bytes: monitor
            .and_then(|monitor| monitor.working_set_bytes(config.block_size, is_gone))
            .unwrap_or(0),
        errors: seen.map_or(0, |seen| seen.counters.errors),
        prewarm: seen
            .and_then(|seen| seen.prewarm)
            .map(|progress| prewarm(progress, shared.books.loads().states.get(name))),
        serves,
    }
}

fn placement(seen: PlacingObservation) -> PlacementStatus {
    let statistics = seen.statistics;
    PlacementStatus {
        admission: seen.admission.to_string(),
        threshold: seen.threshold,
        chunk_bytes: seen.chunk_bytes.get(),
        capacity_chunks: seen.capacity_chunks.into(),
        placed_chunks: seen.placed_chunks.into(),
        moving_chunks: seen.moving_chunks.into(),
        bytes_per_second: seen.bytes_per_second,
        clients_left_out: seen.clients_left_out as u64,
        reads: statistics.reads,
        read_hits: statistics.read_hits,
        promotions: statistics.promotions,
        displaced: statistics.displaced,
        left: statistics.left,
        deferred: statistics.deferred,
        threshold_changes: statistics.threshold_changes,
        halvings: statistics.halvings,
    }
}

/// Bytes of a cache's quota for which the system has no memory.
pub(crate) fn refused_bytes(seen: &VolumeObservation, block_size: BlockSize) -> u64 {
    let blocks = seen.cache.quota_blocks.saturating_sub(seen.cache.limit_blocks);
    u64::from(blocks) * block_size.bytes()
}

pub(crate) fn origin(
    state: &State,
    config: &VolumeConfig,
    snapshot: Option<&VolumeSnapshot>,
) -> OriginStatus {
    let Some(snapshot) = snapshot else {
        return OriginStatus {
            description: format!("{:?}", config.origin),
            state: "absent".to_owned(),
            reason: state.absent.get(&config.name).cloned(),
            in_doubt_bytes: 0,
            errors: 0,
            reconnects: 0,
            oldest_in_flight_s: 0.0,
            utilisation: None,
        };
    };
    let statistics = &snapshot.origin_statistics;
    let (word, reason) = match &statistics.state {
        OriginState::Up => ("up", statistics.danger.clone().or_else(|| unanswered(statistics))),
        OriginState::Down { reason } => ("down", Some(reason.clone())),
        OriginState::Failed { reason } => ("failed", Some(reason.clone())),
        _ => ("unknown", None),
    };
    OriginStatus {
        description: snapshot.origin.clone(),
        state: word.to_owned(),
        reason,
        in_doubt_bytes: snapshot.observation.in_doubt.iter().map(|range| range.length).sum(),
        errors: snapshot.observation.counters.origin_errors,
        reconnects: statistics.reconnects,
        oldest_in_flight_s: statistics.oldest_in_flight.as_secs_f64(),
        utilisation: state.utilisation.get(&config.name).copied(),
    }
}

/// That an origin whose connections stand has not answered for long, if it has not: it is down only once each of them was given up.
fn unanswered(statistics: &OriginStatistics) -> Option<String> {
    let oldest = statistics.oldest_in_flight;
    (oldest >= UNANSWERED_AFTER)
        .then(|| format!("the oldest of {} requests has had no answer for {oldest}", statistics.in_flight))
}

fn objective(track: &Track) -> ObjectiveStatus {
    let verdict = |verdict: Verdict| word(&verdict);
    ObjectiveStatus {
        objective: track.objective.to_string(),
        reservation: track.reservation,
        value: track.last.and_then(|judgement| judgement.value),
        bound: track.objective.bound(),
        unit: track.objective.unit().to_owned(),
        verdict: track.last.map(|judgement| verdict(judgement.verdict)),
        conforming_share: track.conforming_share(),
        conforming_share_target: track.objective.conforming_share,
        windows_conforming: track.windows[0],
        windows_nonconforming: track.windows[1],
        windows_low_load: track.windows[2],
    }
}

pub(crate) fn latency(latencies: &LatencySnapshot) -> LatencyStatus {
    let of = |percentile| {
        latencies.percentile(percentile).filter(|_| !latencies.is_empty()).map(Nanos::as_secs_f64)
    };
    LatencyStatus {
        mean_s: latencies.mean().map(Nanos::as_secs_f64),
        p50_s: of(50.0),
        p95_s: of(95.0),
        p99_s: of(99.0),
    }
}

pub(crate) fn decisions(shared: &Shared, volume: &str) -> Vec<DatedDecision> {
    shared.state().decisions.iter().filter(|dated| dated.decision.volume_name == volume).cloned().collect()
}

/// Who interferes with whom, of late.
pub(crate) fn interference(shared: &Shared) -> Interferences {
    let tables = shared.state().interference.all();
    Interferences::of(&tables)
}

pub(crate) fn controller(shared: &Shared, state: &State) -> ControllerStatus {
    ControllerStatus {
        state: shared.controller_state(state),
        interval_s: shared.config.control.interval.as_secs_f64(),
        steps: shared.steps.load(Ordering::Relaxed),
        last_step_s: state.last_step.as_secs_f64(),
        restarts: state.restarts,
        last_panic: state.last_panic.clone(),
        switched_at_unix_ms: shared.switch.at_unix_ms(),
    }
}

pub(crate) fn explain(shared: &Shared, name: &str) -> Option<Explanation> {
    let config = shared.config.volumes.iter().find(|volume| volume.name == name)?;
    let state = shared.state();
    let (status, controller) = (volume(shared, &state, config), controller(shared, &state));
    drop(state);
    Some(Explanation {
        schema: "forebay.explain/1".to_owned(),
        volume: name.to_owned(),
        status,
        controller: Some(controller),
        reservations: reservations(shared, |reservation| reservation.volumes.iter().any(|of| of == name)),
        snapshots_trouble: snapshots_trouble(shared),
        decisions: decisions(shared, name),
    })
}

pub(crate) fn curve(shared: &Shared, name: &str) -> Option<Curve> {
    let config = shared.config.volumes.iter().find(|volume| volume.name == name)?;
    let snapshot = shared.appliance.observe(name, false).ok()?;
    let locality = snapshot.observation.locality?;
    let block_bytes = config.block_size.bytes();
    let point = |point: &forebay_locality::CurvePoint| CurvePoint {
        size_blocks: point.size_blocks,
        size_bytes: point.size_blocks * block_bytes,
        miss_ratio: point.miss_ratio,
    };
    Some(Curve {
        schema: "forebay.curve/1".to_owned(),
        volume: name.to_owned(),
        block_bytes,
        span_s: snapshot.observation.at.saturating_since(locality.since).as_secs_f64(),
        accesses: locality.accesses,
        footprint_blocks: locality.footprint_blocks,
        sampling_rate: locality.sampling_rate,
        curve: locality.curve.points().iter().map(point).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Daemon;
    use crate::config::{Config, OriginConfig};
    use crate::monitor::tests::unused;
    use forebay_control::{Objective, Operations, VolumeId};
    use forebay_units::{ByteRange, Bytes};
    use std::time::{Duration, Instant};

    /// Two volumes, and a control loop that does not get to its first turn.
    fn config() -> Config {
        let volume = |name| VolumeConfig::new(name, OriginConfig::Memory { size: Bytes::mib(1) });
        let mut config = Config::new(["a", "b"].map(volume).into());
        config.control.interval = Duration::from_secs(3_600);
        config
    }

    #[test]
    fn a_reservation_is_told_of_its_volumes_until_it_is_over() {
        let daemon = Daemon::start(config()).unwrap();
        let reserve = |from_unix_ms| {
            let request = ReservationRequest {
                volumes: vec!["b".to_owned()],
                iops: Some(10.0),
                latency_s: None,
                duration_s: 60.0,
                from_unix_ms: Some(from_unix_ms),
                weight: None,
                priority: None,
            };
            daemon.reserve(request).unwrap()
        };
        let to_come = reserve(unix_ms() + 3_600_000);
        assert!(!to_come.active && !daemon.status().reservations[0].active);
        // It stands for three seconds more.
        assert!(reserve(unix_ms() - 57_000).active);
        let of = |volume: &str| daemon.explain(volume).unwrap().reservations.len();
        assert_eq!(of("a"), 0);
        let deadline = Instant::now() + Duration::from_secs(20);
        while daemon.status().reservations.len() > 1 {
            assert!(Instant::now() < deadline, "it is told when it is over");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!((of("a"), of("b")), (0, 1));
        daemon.shutdown();
    }

    #[test]
    fn why_nothing_can_be_promised_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reservations.json");
        std::fs::write(&path, "{}").unwrap();
        let mut config = Config { reservations: Some(path), ..config() };
        config.http.socket = Some(folder.path().join("http.sock"));
        let daemon = Daemon::start(config).unwrap();
        let told = daemon.status().reservations_trouble.unwrap_or_default();
        assert!(told.contains("reservations.json` cannot be read"), "{told}");
        daemon.shutdown();
    }

    #[test]
    fn an_origin_that_failed_is_told_with_its_reason_and_its_own_errors() {
        let mut seen = unused();
        let statistics = &mut seen.origin_statistics;
        statistics.state = OriginState::Failed { reason: "it is gone".to_owned() };
        let observation = &mut seen.observation;
        (observation.counters.errors, observation.counters.origin_errors) = (5, 7);
        observation.in_doubt = vec![ByteRange::new(0, 4_096), ByteRange::new(65_536, 8_192)];
        let config = config().volumes.remove(0);
        let told = origin(&State::default(), &config, Some(&seen));
        assert_eq!((told.state.as_str(), told.reason.as_deref()), ("failed", Some("it is gone")));
        assert_eq!((told.errors, told.in_doubt_bytes), (7, 12_288));
    }

    #[test]
    fn an_origin_that_has_not_answered_for_long_is_told_while_its_connections_stand() {
        let told_after = |oldest_in_flight| {
            let mut seen = unused();
            seen.origin_statistics.oldest_in_flight = oldest_in_flight;
            seen.origin_statistics.in_flight = 3;
            let config = config().volumes.remove(0);
            let told = origin(&State::default(), &config, Some(&seen));
            (told.state, told.reason, told.oldest_in_flight_s)
        };
        assert_eq!(told_after(Nanos::millis(4_900)), ("up".to_owned(), None, 4.9));
        let why = "the oldest of 3 requests has had no answer for 12s";
        assert_eq!(told_after(Nanos::secs(12)), ("up".to_owned(), Some(why.to_owned()), 12.0));
    }

    #[test]
    fn windows_are_told_by_their_verdicts() {
        let objective_of = Objective::mean_latency(Nanos::millis(1), Operations::All);
        let mut monitor = Monitor::new(VolumeId(0), &[objective_of], Nanos::secs(1));
        monitor.tracks[0].windows = [3, 2, 1];
        let told = objective(&monitor.tracks[0]);
        let windows = (told.windows_conforming, told.windows_nonconforming, told.windows_low_load);
        assert_eq!(windows, (3, 2, 1));
    }
}
