//! What a controller of a fleet tells of itself, in the same words as a daemon: `forebay status` and `forebay explain` ask it alike.

use super::asking;
use super::config::FleetConfig;
use super::observing::{Health, Last, Observer};
use super::tables::{PrometheusTable, VolumeTable};
use super::{FleetShared, FleetState, home, id_of, metrics};
use crate::clock::unix_ms;
use crate::history::word;
use crate::http::{error, serves};
use crate::interfering::Interferences;
use crate::metrics::CONTENT_TYPE;
use crate::report::latency;
use crate::status::{
    CacheStatus, ControllerStatus, Explanation, HistoryStatus, IoStatus, LatencyStatus, ObjectiveStatus,
    OriginStatus, SizeStatus, Status, VolumeStatus, state_of,
};
use axum::Router;
use axum::extract::{Path as UrlPath, Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use forebay_control::response::{ResponseStatus, Responses};
use forebay_control::{Controller, HostId, VolumeId};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// What is answered on its socket.
pub(super) fn router(shared: &Arc<FleetShared>) -> Router {
    let routes = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/metrics", get(told_metrics))
        .route("/api/v1/status", get(told_status))
        .route("/api/v1/explain/{volume}", get(told_explanation))
        .route("/api/v1/interference", get(told_interference))
        .merge(asking::routes());
    serves(routes).with_state(Arc::downgrade(shared))
}

/// What is answered over TCP: the same, but nothing is changed for anybody.
pub(super) fn reading(shared: &Arc<FleetShared>) -> Router {
    router(shared).layer(from_fn(async |request: Request, next: Next| {
        if matches!(*request.method(), Method::GET | Method::HEAD) {
            return next.run(request).await;
        }
        let why = "over TCP nothing is changed: use the unix socket, `socket`, which is its owner's alone";
        error(StatusCode::FORBIDDEN, why)
    }))
}

async fn told_status(State(shared): State<Weak<FleetShared>>) -> Response {
    match shared.upgrade() {
        Some(shared) => axum::Json(status(&shared)).into_response(),
        None => error(StatusCode::SERVICE_UNAVAILABLE, "the controller is stopping"),
    }
}

async fn told_metrics(State(shared): State<Weak<FleetShared>>) -> Response {
    match shared.upgrade() {
        Some(shared) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], metrics::render(&shared)).into_response(),
        None => error(StatusCode::SERVICE_UNAVAILABLE, "the controller is stopping"),
    }
}

async fn told_interference(State(shared): State<Weak<FleetShared>>) -> Response {
    match shared.upgrade() {
        Some(shared) => {
            let tables = shared.state().interference.all();
            axum::Json(Interferences::of(&tables)).into_response()
        }
        None => error(StatusCode::SERVICE_UNAVAILABLE, "the controller is stopping"),
    }
}

async fn told_explanation(
    State(shared): State<Weak<FleetShared>>,
    UrlPath(volume): UrlPath<String>,
) -> Response {
    let Some(shared) = shared.upgrade() else {
        return error(StatusCode::SERVICE_UNAVAILABLE, "the controller is stopping");
    };
    let state = shared.state();
    let Some(status) = state.volumes.iter().find(|of| of.name == volume).cloned() else {
        let what = format!("there is no volume `{volume}`, or nothing of it is known");
        return error(StatusCode::NOT_FOUND, &what);
    };
    let of = |dated: &&crate::DatedDecision| dated.decision.volume_name == volume;
    let decisions = state.decisions.iter().filter(of).cloned().collect();
    let controller = Some(controller(&shared, &state));
    drop(state);
    let schema = "forebay.explain/1".to_owned();
    axum::Json(Explanation {
        schema,
        volume,
        status,
        controller,
        reservations: Vec::new(),
        snapshots_trouble: None,
        decisions,
    })
    .into_response()
}

pub(super) fn controller(shared: &FleetShared, state: &FleetState) -> ControllerStatus {
    ControllerStatus {
        state: shared.controller_state(state),
        interval_s: shared.config.interval.as_secs_f64(),
        steps: state.steps,
        last_step_s: state.last_step.as_secs_f64(),
        restarts: state.restarts,
        last_panic: state.last_panic.clone(),
        switched_at_unix_ms: shared.switch.at_unix_ms(),
    }
}

pub(super) fn status(shared: &FleetShared) -> Status {
    let state = shared.state();
    let (trouble, rows_written, rows_lost) = shared.history.as_ref().map_or((None, 0, 0), |history| {
        let counters = history.counters();
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        (counters.trouble(), of(&counters.written), of(&counters.lost))
    });
    Status {
        schema: "forebay.status/1".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        at_unix_ms: unix_ms(),
        uptime_s: shared.started.elapsed().as_secs_f64(),
        listen: Vec::new(),
        connections: 0,
        controller: controller(shared, &state),
        cache: CacheStatus {
            capacity_bytes: shared.config.host.iter().map(|host| host.memory.get()).sum(),
            granted_bytes: state.granted_bytes,
            used_bytes: state.volumes.iter().map(|volume| volume.used_bytes).sum(),
        },
        memory: crate::report::memory(),
        flash: None,
        io: IoStatus::default(),
        history: HistoryStatus { enabled: shared.history.is_some(), trouble, rows_written, rows_lost },
        snapshots: None,
        reservations: Vec::new(),
        reservations_trouble: None,
        journal_trouble: state.journal_trouble.clone(),
        drained: state.turn.drained.clone(),
        volumes: state.volumes.clone(),
    }
}

/// Every volume as it stands.
pub(super) fn volumes(
    config: &FleetConfig,
    observer: &Observer,
    responses: &Responses,
    controller: Option<&Controller>,
) -> Vec<VolumeStatus> {
    let each = |(index, volume): (usize, &VolumeTable)| {
        volume_status(config, volume, id_of(index), observer, responses, controller)
    };
    config.volume.iter().enumerate().map(each).collect()
}

fn volume_status(
    config: &FleetConfig,
    volume: &VolumeTable,
    id: VolumeId,
    observer: &Observer,
    responses: &Responses,
    controller: Option<&Controller>,
) -> VolumeStatus {
    let Last { seen, span, size_bytes, health, trouble, .. } = observer.last(id);
    let judged = controller.and_then(|controller| controller.status(id));
    let response = responses.status(id);
    // Of a volume that is left alone until its route can be told there is nothing to hear; and of one whose clients are on a way that they cannot leave nobody else tells.
    let is_to_be_told = |of: &&ResponseStatus| trouble.is_some() || of.route == "unknown";
    let hindered = response.as_ref().filter(is_to_be_told).and_then(ResponseStatus::hindrance);
    let origin_trouble = response.as_ref().and_then(|response| {
        let why = response.origin_trouble.as_ref()?;
        Some(format!("appliance {} has nothing of it: {why}", response.appliance?.0))
    });
    let said: Vec<String> = health.iter().filter_map(Health::trouble).collect();
    // What was heard before is not what is.
    let seen = seen.filter(|_| trouble.is_none());
    let per_second = |count: u64| seen.map_or(0.0, |_| count as f64 / span.as_secs_f64().max(1e-9));
    let mut reads = seen.map(|seen| seen.hits.clone()).unwrap_or_default();
    reads.merge(&seen.map(|seen| seen.misses.clone()).unwrap_or_default());
    let writes = seen.map(|seen| seen.writes.clone()).unwrap_or_default();
    let block_bytes = volume.block_size.get();
    let host_name = |host: HostId| config.host[host.0 as usize].name.clone();
    let mut description = volume.origin.shown().to_string();
    if let Some(response) = &response {
        match (response.appliance, response.host) {
            (Some(appliance), Some(host)) => {
                description = format!(
                    "{description}, {}: appliance {} on {}",
                    response.step,
                    appliance.0,
                    host_name(host)
                );
            }
            _ => {
                let home = host_name(home(config, volume));
                description = format!("{description}, {} from {home}", response.step);
            }
        }
    }
    let objective = |of: &forebay_control::ObjectiveStatus| ObjectiveStatus {
        objective: of.objective.clone(),
        reservation: None,
        value: of.value.filter(|_| trouble.is_none()),
        bound: of.bound,
        unit: of.unit.to_owned(),
        verdict: of.verdict.as_ref().map(word),
        conforming_share: of.conforming_share,
        conforming_share_target: of.conforming_share_target,
        windows_conforming: of.windows[0],
        windows_nonconforming: of.windows[1],
        windows_low_load: of.windows[2],
    };
    // Counters alone tell how long requests took on average.
    let is_counted = volume.watch.is_none() && response.as_ref().is_none_or(|of| of.appliance.is_none());
    let of_means = |of: LatencyStatus, buckets: fn(&PrometheusTable) -> &Option<String>| {
        let table = volume.prometheus.as_ref().filter(|_| is_counted);
        match table.is_some_and(|table| buckets(table).is_none()) {
            true => LatencyStatus { mean_s: of.mean_s, ..LatencyStatus::default() },
            false => of,
        }
    };
    let name_of = |id: &VolumeId| config.volume[id.0 as usize].name.clone();
    let objectives: Vec<ObjectiveStatus> =
        judged.iter().flat_map(|judged| judged.objectives.iter().map(objective)).collect();
    let state = match judged.as_ref().filter(|_| trouble.is_none()) {
        Some(judged) => state_of(word(&judged.state), &objectives),
        None => "unjudged".to_owned(),
    };
    let quota_bytes = response.map_or(0, |response| response.cache_bytes);
    VolumeStatus {
        name: volume.name.clone(),
        uris: Vec::new(),
        state,
        origin: OriginStatus {
            description,
            // Who would tell of it is not heard, or not to be relied on: that says nothing of the origin itself.
            state: match (trouble, &origin_trouble) {
                (Some(_), _) => "unknown".to_owned(),
                (None, Some(_)) => "down".to_owned(),
                (None, None) => health.iter().find_map(Health::not_up).unwrap_or("up").to_owned(),
            },
            reason: hindered
                .or_else(|| trouble.map(str::to_owned))
                .or(origin_trouble)
                .or_else(|| (!said.is_empty()).then(|| said.join("; "))),
            in_doubt_bytes: health.iter().map(|of| of.in_doubt_bytes).max().unwrap_or(0),
            errors: 0,
            reconnects: 0,
            oldest_in_flight_s: health.iter().map(|of| of.origin.oldest_in_flight_s).fold(0.0, f64::max),
            utilisation: None,
        },
        size_bytes,
        block_bytes,
        read_only: false,
        controlled: volume.route.is_some(),
        route: None,
        lease: None,
        connections: 0,
        requests_in_flight: 0,
        objectives,
        iops: per_second(seen.map_or(0, forebay_control::VolumeObservation::completed)),
        errors_per_s: per_second(seen.map_or(0, |seen| seen.reads_failed + seen.writes_failed)),
        read_bytes_per_s: per_second(seen.map_or(0, |seen| seen.bytes_read.get())),
        write_bytes_per_s: per_second(seen.map_or(0, |seen| seen.bytes_written.get())),
        iops_series: Vec::new(),
        hit_ratio: seen
            .filter(|seen| seen.reads() > 0)
            .map(|seen| seen.hits.count() as f64 / seen.reads() as f64),
        read_size: seen
            .map(|seen| {
                SizeStatus::of(seen.bytes_read.get(), &seen.read_sizes, seen.reads() + seen.reads_failed)
            })
            .unwrap_or_default(),
        write_size: seen
            .map(|seen| SizeStatus::of(seen.bytes_written.get(), &seen.write_sizes, 0))
            .unwrap_or_default(),
        read_latency: of_means(latency(&reads), |table| &table.read_buckets),
        write_latency: of_means(latency(&writes), |table| &table.write_buckets),
        flush_latency: LatencyStatus::default(),
        quota_bytes,
        used_bytes: seen.map_or(0, |seen| seen.cache.used_blocks * block_bytes),
        refused_bytes: health.iter().map(|of| of.refused_bytes).sum::<u64>().min(quota_bytes),
        flash: None,
        placement: None,
        working_set_bytes: seen.map_or(0, |seen| seen.working_set_blocks * block_bytes),
        errors: 0,
        prewarm: None,
        serves: judged.iter().flat_map(|judged| judged.serves.iter().map(name_of)).collect(),
    }
}
