//! HTTP for people, programs and controllers: metrics, state, explanations; reservations, quotas, loading, placement, draining,
//! leases and the controller's switch for those who may change something.
//!
//! On the unix socket, which is its owner's alone, everything is allowed. Over TCP it only reads, and only on loopback: every user of the
//! machine can reach such a port, and so can web pages in their browsers. With a token (`http.token`) TCP answers nobody without it, and
//! whoever has it may do everything.
//! It runs on a thread of its own, never on the data path. At most 64 connections are served at once over TCP, and as many on the socket; the
//! others wait, for a second at most where there are connections on which nobody asks anything.

use crate::bounded_listener::Bounded;
use crate::config::HttpConfig;
use crate::daemon::Shared;
use crate::lease::{self, LeaseError, LeaseRequest};
use crate::loading::PrewarmError;
use crate::orders::OrderError;
use crate::placing::{PlacingError, PlacingRequest};
use crate::reservation::{ReservationError, ReservationRequest};
use crate::route::{self, RouteError, RouteRequest};
use crate::status::ReservationStatus;
use crate::switch::{self, SwitchError, SwitchRequest, Switched};
use crate::{listing, loading, metrics, objects, observed, orders, placing, report};
use axum::Router;
use axum::body::Bytes;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{DefaultBodyLimit, Path as UrlPath, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use axum::serve::IncomingStream;
use forebay_appliance::{Refusals, RetargetError, RetargetFailure, SocketFile, remove_stale_socket};
use forebay_units::Secret;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use tokio::sync::oneshot;

/// Connections of a listener at once (ours). Of each its own: who may come over TCP must not keep the owner from the socket.
const CONNECTIONS_MAX: usize = 64;

/// Connections that wait to be accepted, as the standard library has it.
const BACKLOG: i32 = 128;

/// Sockets that are bound and not served yet.
pub(crate) struct Listeners {
    tcp: Option<std::net::TcpListener>,
    unix: Option<(SocketFile, std::os::unix::net::UnixListener)>,
}

impl Listeners {
    /// Binds what is configured; the error says where.
    pub(crate) fn open(config: &HttpConfig) -> Result<Listeners, (String, io::Error)> {
        let mut listeners = Listeners { tcp: None, unix: None };
        if let Some(address) = config.listen {
            let open = || {
                let listener = std::net::TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok(listener)
            };
            listeners.tcp = Some(open().map_err(|error| (address.to_string(), error))?);
        }
        if let Some(path) = &config.socket {
            let open = || {
                remove_stale_socket(path).map_err(io::Error::other)?;
                let socket = bind_private(path)?;
                let file = SocketFile::of(path);
                rustix::net::listen(&socket, BACKLOG)?;
                Ok((file, socket.into()))
            };
            listeners.unix = Some(open().map_err(|error| (path.display().to_string(), error))?);
        }
        Ok(listeners)
    }
}

/// A socket at `path` that is its owner's alone. Before anybody listens on it everybody is refused, so that nobody comes in while it is not.
fn bind_private(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(socket)
}

/// A running server; dropping it ends it.
pub(crate) struct HttpServer {
    address: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Serves a daemon on a thread of its own; `None` if there is nothing to listen on.
    pub(crate) fn of_daemon(listeners: Listeners, shared: &Arc<Shared>) -> io::Result<Option<HttpServer>> {
        // A request that hangs must not keep the daemon alive.
        let token = shared.config.http.token.clone();
        let changing = router(Arc::downgrade(shared), true);
        let over_tcp = match token {
            Some(token) => with_token(changing.clone(), token, Arc::downgrade(shared)),
            None => router(Arc::downgrade(shared), false),
        };
        HttpServer::start(listeners, over_tcp, changing)
    }

    /// Serves on a thread of its own; `None` if there is nothing to listen on.
    pub(crate) fn start(
        mut listeners: Listeners,
        over_tcp: Router,
        on_socket: Router,
    ) -> io::Result<Option<HttpServer>> {
        if listeners.tcp.is_none() && listeners.unix.is_none() {
            return Ok(None);
        }
        let address = listeners.tcp.as_ref().map(std::net::TcpListener::local_addr).transpose()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name("http".to_owned()).spawn(move || {
            let served = runtime.block_on(async {
                if let Some(listener) = listeners.tcp.take() {
                    let inner = tokio::net::TcpListener::from_std(listener)?;
                    let service = over_tcp.into_make_service_with_connect_info::<Peer>();
                    tokio::spawn(async move {
                        told(axum::serve(Bounded::new(inner, CONNECTIONS_MAX), service).await);
                    });
                }
                if let Some((file, listener)) = &listeners.unix {
                    let inner = tokio::net::UnixListener::from_std(listener.try_clone()?)?;
                    tracing::debug!(path = %file.path().display(), "HTTP on a unix socket");
                    tokio::spawn(async move {
                        told(axum::serve(Bounded::new(inner, CONNECTIONS_MAX), on_socket).await);
                    });
                }
                let _ = stopped.await;
                Ok::<(), io::Error>(())
            });
            if let Err(error) = served {
                tracing::error!(%error, "HTTP is not served");
            }
            drop(listeners);
        })?;
        Ok(Some(HttpServer { address, stop: Some(stop), thread: Some(thread) }))
    }

    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn told(ended: io::Result<()>) {
    if let Err(error) = ended {
        tracing::error!(%error, "HTTP ended");
    }
}

/// Who asks over TCP.
#[derive(Clone, Copy)]
struct Peer(SocketAddr);

impl Connected<IncomingStream<'_, Bounded<tokio::net::TcpListener>>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Bounded<tokio::net::TcpListener>>) -> Peer {
        Peer(*stream.remote_addr())
    }
}

fn router(shared: Weak<Shared>, changes: bool) -> Router {
    let changing = if changes {
        Router::new()
            .route("/api/v1/controller", put(switch_controller))
            .route("/api/v1/reservations", post(reserve))
            .route("/api/v1/reservations/{id}", delete(cancel_reservation))
            .route(
                "/api/v1/volumes/{volume}/prewarm",
                post(prewarm).layer(DefaultBodyLimit::max(orders::PREWARM_BYTES_MAX)).delete(cancel_prewarm),
            )
            .route("/api/v1/volumes/{volume}/lease", post(raise_lease))
            .route("/api/v1/volumes/{volume}/placement", post(place))
            .route("/api/v1/volumes/{volume}/route", post(change_route))
            .route("/api/v1/volumes/{volume}/quota", put(set_quota))
            .route("/api/v1/volumes/{volume}/drain", post(drain))
    } else {
        let refused = || async { error(StatusCode::FORBIDDEN, ONLY_READ) };
        Router::new()
            .route("/api/v1/controller", put(refused))
            .route("/api/v1/reservations", post(refused))
            .route("/api/v1/reservations/{id}", delete(refused))
            .route("/api/v1/volumes/{volume}/prewarm", post(refused).delete(refused))
            .route("/api/v1/volumes/{volume}/lease", post(refused))
            .route("/api/v1/volumes/{volume}/placement", post(refused))
            .route("/api/v1/volumes/{volume}/route", post(refused))
            .route("/api/v1/volumes/{volume}/quota", put(refused))
            .route("/api/v1/volumes/{volume}/drain", post(refused))
    };
    let routes = Router::new()
        .route("/healthz", get(health))
        .route("/metrics", get(metrics_of))
        .route("/api/v1/status", get(status))
        .route("/api/v1/intervals", get(intervals))
        .route("/api/v1/explain/{volume}", get(explain))
        .route("/api/v1/interference", get(interference))
        .route("/api/v1/volumes/{volume}/curve", get(curve))
        .route("/api/v1/volumes/{volume}/resident", get(resident))
        .merge(changing);
    serves(routes).with_state(shared)
}

/// For who starts the daemon again where it does not serve any more.
async fn health(State(shared): State<Weak<Shared>>) -> Response {
    let gone = shared.upgrade().map_or(0, |shared| shared.appliance.workers_gone());
    match illness(gone) {
        None => "ok\n".into_response(),
        Some(what) => error(StatusCode::SERVICE_UNAVAILABLE, &what),
    }
}

fn illness(workers_gone: usize) -> Option<String> {
    (workers_gone > 0).then(|| {
        format!(
            "{workers_gone} of the threads that serve volumes panicked, which is a bug (the log says where): start the daemon again, so that their volumes are served"
        )
    })
}

/// `routes`, with what every server answers.
pub(crate) fn serves<S: Clone + Send + Sync + 'static>(routes: Router<S>) -> Router<S> {
    let nothing = || async {
        error(StatusCode::NOT_FOUND, "there is nothing here; docs/reference/json.md lists what there is")
    };
    routes.fallback(nothing).layer(map_response(in_our_layout))
}

/// Of what the library says, as much is told.
const SAID_BYTES_MAX: usize = 4_096;

/// What the library refuses before a handler is asked, as a method or a body that is too long, in the layout of all other errors.
async fn in_our_layout(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_json = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if is_json || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let (head, body) = response.into_parts();
    let said = axum::body::to_bytes(body, SAID_BYTES_MAX).await.unwrap_or_default();
    let message = match status {
        StatusCode::METHOD_NOT_ALLOWED => {
            "this address takes other methods; docs/reference/json.md lists them, and appliance.md those of orders"
        }
        StatusCode::PAYLOAD_TOO_LARGE => "the body is longer than what is taken here",
        _ => std::str::from_utf8(&said)
            .ok()
            .filter(|said| !said.is_empty())
            .unwrap_or("the request is refused"),
    };
    let mut told = error(status, message);
    told.headers_mut().extend(head.headers.get(header::ALLOW).map(|allow| (header::ALLOW, allow.clone())));
    told
}

pub(crate) fn error(status: StatusCode, message: &str) -> Response {
    let body = serde_json::json!({ "schema": "forebay.error/1", "error": message });
    (status, axum::Json(body)).into_response()
}

fn answer<T>(shared: &Weak<Shared>, of: impl FnOnce(&Shared) -> Option<T>, volume: &str) -> Response
where
    T: serde::Serialize,
{
    match shared.upgrade() {
        None => error(StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping"),
        Some(shared) => match of(&shared) {
            Some(found) => axum::Json(found).into_response(),
            None => error(
                StatusCode::NOT_FOUND,
                &format!("there is no volume `{volume}`, or nothing of it is known"),
            ),
        },
    }
}

const ONLY_READ: &str = "over TCP nothing is changed without a token: use the unix socket, `http.socket`, which is its owner's alone, or set `http.token`";

/// Answers only those who show `token`; whether there is a server at all (`/healthz`) is no secret.
fn with_token(router: Router, token: Secret, shared: Weak<Shared>) -> Router {
    let (token, refusals) = (Arc::new(token), Arc::new(Mutex::new(Refusals::default())));
    router.layer(from_fn(move |request: Request, next: Next| {
        let (token, refusals, shared) = (Arc::clone(&token), Arc::clone(&refusals), Weak::clone(&shared));
        async move {
            let shown = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
            let shown = shown.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
            if request.uri().path() == "/healthz" || token.is(shown) {
                return next.run(request).await;
            }
            if let Some(shared) = shared.upgrade() {
                let peer = request.extensions().get::<ConnectInfo<Peer>>().map(|peer| peer.0.0);
                tell_no_token(&shared, peer, &refusals);
            }
            let refused = error(
                StatusCode::UNAUTHORIZED,
                "the token is missing or wrong: expected `Authorization: Bearer TOKEN`",
            );
            ([(header::WWW_AUTHENTICATE, "Bearer")], refused).into_response()
        }
    }))
}

/// Counts who showed no token, or a wrong one, and tells the log of the first few; of the others in sums.
fn tell_no_token(shared: &Arc<Shared>, peer: Option<SocketAddr>, refusals: &Arc<Mutex<Refusals>>) {
    shared.tokens_refused.fetch_add(1, Ordering::Relaxed);
    let now = shared.appliance.now();
    let peer = peer.map(|peer| format!("tcp:{peer}"));
    let mut told = refusals.lock().unwrap_or_else(PoisonError::into_inner);
    let was_due = told.due();
    told.tell(now, peer.as_deref(), "client of HTTP shows no token, or a wrong one; refused", None);
    if let Some(due) = told.due().filter(|_| was_due.is_none()) {
        let (refusals, shared) = (Arc::clone(refusals), Arc::downgrade(shared));
        tokio::spawn(async move {
            tokio::time::sleep(due.saturating_since(now).into()).await;
            if let Some(shared) = shared.upgrade() {
                refusals.lock().unwrap_or_else(PoisonError::into_inner).sum_up(shared.appliance.now());
            }
        });
    }
}

fn reservation_answer(
    shared: &Weak<Shared>,
    of: impl FnOnce(&Shared) -> Result<ReservationStatus, ReservationError>,
) -> Response {
    let Some(shared) = shared.upgrade() else {
        return error(StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping");
    };
    match of(&shared) {
        Ok(reservation) => {
            let mut body = serde_json::json!(reservation);
            body["schema"] = "forebay.reservation/1".into();
            axum::Json(body).into_response()
        }
        Err(wrong) => {
            let status = match wrong {
                ReservationError::Refused { .. } => StatusCode::BAD_REQUEST,
                ReservationError::Full => StatusCode::CONFLICT,
                ReservationError::Unknown { .. } => StatusCode::NOT_FOUND,
                ReservationError::NotKept { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            };
            error(status, &wrong.to_string())
        }
    }
}

async fn reserve(State(shared): State<Weak<Shared>>, body: Bytes) -> Response {
    let request = match objects::read::<ReservationRequest>(&body) {
        Ok(request) => request,
        Err(wrong) => {
            return error(StatusCode::BAD_REQUEST, &format!("the reservation is not understood: {wrong}"));
        }
    };
    apart(move || reservation_answer(&shared, |shared| report::reserve(shared, request))).await
}

async fn cancel_reservation(State(shared): State<Weak<Shared>>, UrlPath(id): UrlPath<u64>) -> Response {
    apart(move || reservation_answer(&shared, |shared| report::cancel_reservation(shared, id))).await
}

/// The answer of what may wait for a disk, an origin or a thread that serves volumes, or take its time: others are answered meanwhile, `/healthz` with them.
async fn apart(answer: impl FnOnce() -> Response + Send + 'static) -> Response {
    let told = tokio::task::spawn_blocking(answer).await;
    told.unwrap_or_else(|_| error(StatusCode::INTERNAL_SERVER_ERROR, "it ended in a panic"))
}

/// The answer to an order for a volume: `schema` and `volume`, and what `of` adds.
fn order_answer(
    shared: &Weak<Shared>,
    schema: &str,
    volume: &str,
    of: impl FnOnce(&Shared) -> Result<serde_json::Value, OrderError>,
) -> Response {
    let Some(shared) = shared.upgrade() else {
        return error(StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping");
    };
    match of(&shared) {
        Ok(mut body) => {
            body["schema"] = schema.into();
            body["volume"] = volume.into();
            axum::Json(body).into_response()
        }
        Err(wrong) => {
            let status = match wrong {
                OrderError::NotUnderstood { .. } => StatusCode::BAD_REQUEST,
                OrderError::Controlled { .. } | OrderError::TooMuch { .. } => StatusCode::CONFLICT,
                OrderError::Prewarm(PrewarmError::NoSnapshots | PrewarmError::NoCache { .. }) => {
                    StatusCode::CONFLICT
                }
                OrderError::Prewarm(PrewarmError::Command(_)) | OrderError::Command(_) => {
                    StatusCode::NOT_FOUND
                }
            };
            error(status, &wrong.to_string())
        }
    }
}

async fn switch_controller(State(shared): State<Weak<Shared>>, body: Bytes) -> Response {
    // What the controller decided may be on its way to the caches.
    switched(body, move |enabled| Some(switch::switch(&*shared.upgrade()?, enabled))).await
}

/// Answers who pauses or resumes a controller, which `switch` does; it says nothing where that is stopping.
pub(crate) async fn switched(
    body: Bytes,
    switch: impl FnOnce(bool) -> Option<Result<Switched, SwitchError>> + Send + 'static,
) -> Response {
    let request = match objects::read::<SwitchRequest>(&body) {
        Ok(request) => request,
        Err(wrong) => {
            return error(StatusCode::BAD_REQUEST, &format!("the switch is not understood: {wrong}"));
        }
    };
    apart(move || match switch(request.enabled) {
        None => error(StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping"),
        Some(Ok(switched)) => {
            let mut body = serde_json::json!(switched);
            body["schema"] = "forebay.controller/1".into();
            axum::Json(body).into_response()
        }
        Some(Err(wrong)) => error(StatusCode::CONFLICT, &wrong.to_string()),
    })
    .await
}

async fn prewarm(
    State(shared): State<Weak<Shared>>,
    UrlPath(volume): UrlPath<String>,
    body: Bytes,
) -> Response {
    apart(move || {
        order_answer(&shared, "forebay.prewarm/1", &volume, |shared| orders::prewarm(shared, &volume, &body))
    })
    .await
}

async fn cancel_prewarm(State(shared): State<Weak<Shared>>, UrlPath(volume): UrlPath<String>) -> Response {
    apart(move || {
        order_answer(&shared, "forebay.prewarm/1", &volume, |shared| {
            loading::cancel(shared, &volume)?;
            Ok(serde_json::json!({}))
        })
    })
    .await
}

async fn set_quota(
    State(shared): State<Weak<Shared>>,
    UrlPath(volume): UrlPath<String>,
    body: Bytes,
) -> Response {
    apart(move || {
        order_answer(&shared, "forebay.quota/1", &volume, |shared| orders::set_quota(shared, &volume, &body))
    })
    .await
}

async fn drain(
    State(shared): State<Weak<Shared>>,
    UrlPath(volume): UrlPath<String>,
    body: Bytes,
) -> Response {
    apart(move || {
        order_answer(&shared, "forebay.drain/1", &volume, |shared| orders::drain(shared, &volume, &body))
    })
    .await
}

async fn raise_lease(
    State(shared): State<Weak<Shared>>,
    UrlPath(volume): UrlPath<String>,
    body: Bytes,
) -> Response {
    let request = match objects::read::<LeaseRequest>(&body) {
        Ok(request) => request,
        Err(wrong) => {
            return error(StatusCode::BAD_REQUEST, &format!("the lease is not understood: {wrong}"));
        }
    };
    apart(move || match shared.upgrade() {
        None => error(StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping"),
        Some(shared) => match lease::raise(&shared, &volume, request) {
            Ok(lease) => {
                let mut body = serde_json::json!(lease);
                body["schema"] = "forebay.lease/1".into();
                body["volume"] = volume.into();
                axum::Json(body).into_response()
            }
            Err(wrong) => {
                let status = match wrong {
                    LeaseError::Refused { .. } => StatusCode::BAD_REQUEST,
                    LeaseError::NotConfigured | LeaseError::Stale { .. } => StatusCode::CONFLICT,
                    LeaseError::Command(_) => StatusCode::NOT_FOUND,
                    LeaseError::NotKept { .. } => StatusCode::INTERNAL_SERVER_ERROR,
                    LeaseError::NotDrained { .. } => StatusCode::SERVICE_UNAVAILABLE,
                };
                error(status, &wrong.to_string())
            }
        },
    })
    .await
}

async fn place(
    State(shared): State<Weak<Shared>>,
    UrlPath(volume): UrlPath<String>,
    body: Bytes,
) -> Response {
    let request = match objects::read::<PlacingRequest>(&body) {
        Ok(request) => request,
        Err(wrong) => {
            return error(StatusCode::BAD_REQUEST, &format!("the placement is not understood: {wrong}"));
        }
    };
    apart(move || {
        let Some(shared) = shared.upgrade() else {
            return error(StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping");
        };
        match placing::set(&shared, &volume, &request) {
            Ok(()) => {
                let mut body = serde_json::json!(request);
                body["schema"] = "forebay.placement/1".into();
                body["volume"] = volume.into();
                axum::Json(body).into_response()
            }
            Err(wrong) => {
                let status = match wrong {
                    PlacingError::Admission(_) | PlacingError::LeaveOut(_) | PlacingError::Rate { .. } => {
                        StatusCode::BAD_REQUEST
                    }
                    PlacingError::NoFlash { .. } | PlacingError::Chunk { .. } => StatusCode::CONFLICT,
                    PlacingError::Command(_) => StatusCode::NOT_FOUND,
                };
                error(status, &wrong.to_string())
            }
        }
    })
    .await
}

async fn change_route(
    State(shared): State<Weak<Shared>>,
    UrlPath(volume): UrlPath<String>,
    body: Bytes,
) -> Response {
    let request = match objects::read::<RouteRequest>(&body) {
        Ok(request) => request,
        Err(wrong) => {
            return error(StatusCode::BAD_REQUEST, &format!("the route is not understood: {wrong}"));
        }
    };
    apart(move || match shared.upgrade() {
        None => error(StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping"),
        Some(shared) => match route::change(&shared, &volume, &request) {
            Ok(routed) => {
                let mut body = serde_json::json!(routed);
                body["schema"] = "forebay.route/1".into();
                body["volume"] = volume.into();
                axum::Json(body).into_response()
            }
            Err(wrong) => {
                let status = match wrong {
                    RouteError::Refused { .. } => StatusCode::BAD_REQUEST,
                    RouteError::Unknown { .. } => StatusCode::NOT_FOUND,
                    RouteError::Unreachable { .. } => StatusCode::BAD_GATEWAY,
                    // The old way is as good as before, and the new one answers: who is told otherwise would fence the old one, and then nothing is compared.
                    RouteError::Kept(RetargetFailure::Refused {
                        source: RetargetError::Unfit(_) | RetargetError::OtherData { .. },
                        ..
                    }) => StatusCode::UNPROCESSABLE_ENTITY,
                    RouteError::Kept(_) | RouteError::Unsettled { .. } => StatusCode::CONFLICT,
                    RouteError::NotKept { .. } | RouteError::AskedAgain { .. } => {
                        StatusCode::INTERNAL_SERVER_ERROR
                    }
                };
                error(status, &wrong.to_string())
            }
        },
    })
    .await
}

async fn metrics_of(State(shared): State<Weak<Shared>>) -> Response {
    apart(move || match shared.upgrade() {
        None => error(StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping"),
        Some(shared) => {
            ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::render(&shared)).into_response()
        }
    })
    .await
}

async fn status(State(shared): State<Weak<Shared>>) -> Response {
    apart(move || answer(&shared, |shared| Some(report::status(shared)), "")).await
}

async fn intervals(State(shared): State<Weak<Shared>>) -> Response {
    apart(move || answer(&shared, |shared| Some(observed::intervals(shared)), "")).await
}

async fn explain(State(shared): State<Weak<Shared>>, UrlPath(volume): UrlPath<String>) -> Response {
    apart(move || answer(&shared, |shared| report::explain(shared, &volume), &volume)).await
}

async fn interference(State(shared): State<Weak<Shared>>) -> Response {
    apart(move || answer(&shared, |shared| Some(report::interference(shared)), "")).await
}

async fn resident(State(shared): State<Weak<Shared>>, UrlPath(volume): UrlPath<String>) -> Response {
    apart(move || answer(&shared, |shared| listing::resident(shared, &volume), &volume)).await
}

async fn curve(State(shared): State<Weak<Shared>>, UrlPath(volume): UrlPath<String>) -> Response {
    apart(move || answer(&shared, |shared| report::curve(shared, &volume), &volume)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn who_has_lost_a_worker_is_ill() {
        assert_eq!(illness(0), None);
        assert!(
            illness(1).is_some_and(|what| what.starts_with("1 of the threads that serve volumes panicked"))
        );
    }

    #[test]
    fn a_socket_is_its_owners_alone_before_anybody_can_connect() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("http.sock");
        let socket = bind_private(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(UnixStream::connect(&path).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        rustix::net::listen(&socket, BACKLOG).unwrap();
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn a_socket_that_another_daemon_put_in_its_place_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("http.sock");
        let config = HttpConfig { listen: None, socket: Some(path.clone()), token: None };
        let first = Listeners::open(&config).unwrap_or_else(|(at, error)| panic!("{at}: {error}"));
        std::fs::remove_file(&path).unwrap();
        let second = Listeners::open(&config).unwrap_or_else(|(at, error)| panic!("{at}: {error}"));
        drop(first);
        UnixStream::connect(&path).expect("the second is still found");
        drop(second);
        assert!(!path.exists());
    }
}
