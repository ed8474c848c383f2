//! What may be asked of a controller of a fleet beside what it tells: to decide nothing for a while. What only who serves a volume does is refused, with whom to ask.
//!
//! Invariant: once a pause is answered, nothing that was decided before it becomes a wish any more. What was wished for is carried through: appliances that are
//! being started come to serve, and who is on one that dies is brought back.

use super::FleetShared;
use super::tables::{RouteTable, VolumeTable};
use crate::http::{error, switched};
use crate::switch::Switched;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path as UrlPath, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{delete, post, put};
use std::sync::{PoisonError, Weak};

type Asked = State<Weak<FleetShared>>;

/// The addresses at which it is asked.
pub(super) fn routes() -> Router<Weak<FleetShared>> {
    let served = || post(of_who_serves);
    let sized = || post(of_its_cache).put(of_its_cache).delete(of_its_cache);
    Router::new()
        .route("/api/v1/controller", put(switch_controller))
        .route("/api/v1/reservations", post(reservations))
        .route("/api/v1/reservations/{id}", delete(reservations))
        .route("/api/v1/volumes/{volume}/lease", served())
        .route("/api/v1/volumes/{volume}/route", served())
        .route("/api/v1/volumes/{volume}/drain", served())
        .route("/api/v1/volumes/{volume}/prewarm", sized())
        .route("/api/v1/volumes/{volume}/quota", sized())
        .route("/api/v1/volumes/{volume}/placement", sized())
}

/// Pauses or resumes the controller.
pub(super) fn switch(shared: &FleetShared, enabled: bool) -> Switched {
    let _one = shared.wishing.lock().unwrap_or_else(PoisonError::into_inner);
    let was_enabled = shared.switch.set(enabled);
    if enabled != was_enabled {
        tracing::info!(enabled, "controller switched");
    }
    Switched { enabled, was_enabled, state: shared.controller_state(&shared.state()) }
}

async fn switch_controller(State(shared): Asked, body: Bytes) -> Response {
    switched(body, move |enabled| Some(Ok(switch(&*shared.upgrade()?, enabled)))).await
}

async fn reservations() -> Response {
    let why = "a controller of volumes that others serve takes no reservations: what it promises is in its file (`[[objective]]`)";
    error(StatusCode::CONFLICT, why)
}

async fn of_who_serves(State(shared): Asked, UrlPath(volume): UrlPath<String>) -> Response {
    refuse(&shared, &volume, |table| {
        let whom = who_serves(table).join(", or ");
        format!("`{volume}` is not served here but looked after: ask {whom}, by `--server`")
    })
}

async fn of_its_cache(State(shared): Asked, UrlPath(volume): UrlPath<String>) -> Response {
    refuse(&shared, &volume, |_| {
        format!(
            "`{volume}` is not served here but looked after: this controller alone says how large its cache is and what is loaded into it (`forebay explain`); `forebay pause` has it stay as it is"
        )
    })
}

fn refuse(shared: &Weak<FleetShared>, volume: &str, why: impl FnOnce(&VolumeTable) -> String) -> Response {
    let Some(shared) = shared.upgrade() else {
        return error(StatusCode::SERVICE_UNAVAILABLE, "the controller is stopping");
    };
    match shared.config.volume.iter().find(|table| table.name == volume) {
        Some(table) => error(StatusCode::CONFLICT, &why(table)),
        None => error(StatusCode::NOT_FOUND, &format!("there is no volume `{volume}`")),
    }
}

/// Who has its data and its clients, and where they answer.
fn who_serves(volume: &VolumeTable) -> Vec<String> {
    let side = volume.watch.as_ref().map(|address| format!("the storage side (`{address}`)"));
    let proxy = match &volume.route {
        Some(RouteTable::Proxy { server, .. }) => Some(format!("the proxy (`{server}`)")),
        _ => None,
    };
    let whom: Vec<String> = side.into_iter().chain(proxy).collect();
    if whom.is_empty() { vec!["who serves it".to_owned()] } else { whom }
}
