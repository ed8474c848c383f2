//! The running daemon: what `forebay serve` starts, and what demonstrations and tests start in their own process.
//!
//! Invariant: the data path depends on nothing else here. Controller, HTTP and history may panic, hang or fail, and
//! clients are served.

mod absent;
mod start;

pub(crate) use absent::begin;
pub use start::StartError;

use crate::books::Books;
use crate::config::Config;
use crate::history::{DatedDecision, History};
use crate::http::HttpServer;
use crate::interfering::{InterferenceTables, Interferences};
use crate::lease::{self, LeaseError, LeaseRequest, LeaseStatus};
use crate::loading::{self, LoadChoice, PrewarmError};
use crate::monitor::Monitor;
use crate::origins::OriginShop;
use crate::placing::{self, PlacingError, PlacingRequest};
use crate::reservation::{ReservationError, ReservationRequest};
use crate::route::{self, RouteError, RouteRequest, Routed};
use crate::snapshots::{PatientStore, SnapshotCounters};
use crate::status::{ControllerState, Curve, Explanation, ReservationStatus, Status};
use crate::switch::{Switch, SwitchError, Switched};
use forebay_appliance::{Appliance, BoundAddress, Drained, FlashStore, ListenerConfig};
use forebay_control::{OriginId, OriginSpec};
use forebay_nbd::Uri;
use forebay_units::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
#[cfg(test)]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Decisions that are kept in memory; a history keeps more.
const DECISIONS_MAX: usize = 10_000;
/// What all threads of the daemon see.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) appliance: Appliance,
    pub(crate) flash: Option<Arc<FlashStore>>,
    pub(crate) history: Option<History>,
    pub(crate) started: Instant,
    pub(crate) started_unix_ms: i64,
    /// Of each volume, in the order of the configuration, and of each origin.
    pub(crate) origins: (Vec<OriginId>, Vec<OriginSpec>),
    pub(crate) switch: Switch,
    pub(crate) steps: AtomicU64,
    pub(crate) state: Mutex<State>,
    pub(crate) books: Books,
    pub(crate) shop: OriginShop,
    pub(crate) snapshot_store: Option<PatientStore>,
    pub(crate) snapshot_counters: SnapshotCounters,
    /// Requests over HTTP that showed no token, or a wrong one.
    pub(crate) tokens_refused: AtomicU64,
    /// Since when the daemon ends.
    stopping: Mutex<Option<Instant>>,
    wake: Condvar,
    #[cfg(test)]
    pub(crate) panics_next_step: AtomicBool,
}

/// What is remembered from interval to interval.
#[derive(Default)]
pub(crate) struct State {
    /// By volume.
    pub(crate) monitors: BTreeMap<String, Monitor>,
    /// Oldest first, earlier runs first.
    pub(crate) decisions: VecDeque<DatedDecision>,
    /// By kind, of this run.
    pub(crate) decision_counts: BTreeMap<String, u64>,
    /// By action and outcome.
    pub(crate) action_counts: BTreeMap<(&'static str, &'static str), u64>,
    /// Volumes that are not exported yet, and why.
    pub(crate) absent: BTreeMap<String, String>,
    /// What is wrong with the place of the flash file.
    pub(crate) flash_trouble: Option<String>,
    /// Volumes that are being drained, with the quotas that they have until they are gone.
    pub(crate) leaving: BTreeMap<String, Bytes>,
    /// What the controller said last, by volume: its word for the state, and whom its cache serves.
    pub(crate) judged: BTreeMap<String, (String, Vec<String>)>,
    /// Who interfered with whom.
    pub(crate) interference: InterferenceTables,
    /// The share of time that the disks of a volume's origin were busy.
    pub(crate) utilisation: BTreeMap<String, f64>,
    pub(crate) dead: bool,
    pub(crate) restarts: u64,
    pub(crate) last_panic: Option<String>,
    pub(crate) last_step: Duration,
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // Who panicked while holding it left plain numbers behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until `at`; `false` if the daemon stops.
    pub(crate) fn sleep_until(&self, at: Instant) -> bool {
        let mut stopping = self.stopping.lock().unwrap_or_else(PoisonError::into_inner);
        while stopping.is_none() {
            let now = Instant::now();
            if now >= at {
                return true;
            }
            stopping = self.wake.wait_timeout(stopping, at - now).unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    fn is_stopping(&self) -> bool {
        self.stopped_at().is_some()
    }

    /// Since when the daemon ends; `None` while it serves.
    pub(crate) fn stopped_at(&self) -> Option<Instant> {
        *self.stopping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        *self.stopping.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.wake.notify_all();
    }

    pub(crate) fn controller_state(&self, state: &State) -> ControllerState {
        if !self.switch.is_on() {
            ControllerState::Disabled
        } else if state.dead {
            ControllerState::Dead
        } else {
            ControllerState::Running
        }
    }

    /// Whether a volume was drained, so that what it had is free.
    pub(crate) fn is_gone(&self, state: &State, volume: &str) -> bool {
        let has_room = state.absent.contains_key(volume) || state.leaving.contains_key(volume);
        !has_room && self.appliance.volumes().iter().all(|served| served != volume)
    }

    /// How clients name a volume, one URI per listener.
    pub(crate) fn uris(&self, volume: &str) -> Vec<String> {
        let uri = |address: &BoundAddress| match address {
            BoundAddress::Unix(path) => {
                Uri::unix(std::path::absolute(path).unwrap_or_else(|_| path.clone()), volume)
            }
            BoundAddress::Tcp(address) => Uri::tcp(address.ip().to_string(), address.port(), volume),
        };
        let listeners = self.appliance.listeners().iter().zip(&self.config.listen);
        let uri = |(address, config): (&BoundAddress, &ListenerConfig)| {
            let tls_required = matches!(config, ListenerConfig::Tls { required: true, .. });
            Uri { tls_required, ..uri(address) }.to_string()
        };
        listeners.map(uri).collect()
    }
}

/// A running daemon. Dropping it stops it at once; [`Daemon::shutdown`] lets what is in flight complete.
pub struct Daemon {
    shared: Option<Arc<Shared>>,
    threads: Vec<JoinHandle<()>>,
    http: Option<HttpServer>,
}

impl Daemon {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        self.shared.as_ref().expect("only shutdown takes it")
    }

    /// The data path.
    pub fn appliance(&self) -> &Appliance {
        &self.shared().appliance
    }

    /// What it was started with.
    pub fn config(&self) -> &Config {
        &self.shared().config
    }

    /// How clients name a volume, one URI per listener, in the order of the configuration.
    pub fn uris(&self, volume: &str) -> Vec<String> {
        self.shared().uris(volume)
    }

    /// Where HTTP is answered over TCP, with the port that was chosen.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().and_then(HttpServer::address)
    }

    /// Where HTTP is answered on a unix socket.
    pub fn http_socket(&self) -> Option<PathBuf> {
        self.config().http.socket.clone()
    }

    /// Everything about now.
    pub fn status(&self) -> Status {
        crate::report::status(self.shared())
    }

    /// What was decided about a volume, oldest first; earlier runs too where a history is kept.
    pub fn decisions(&self, volume: &str) -> Vec<DatedDecision> {
        crate::report::decisions(self.shared(), volume)
    }

    /// Why a volume is served as it is; `None` for an unknown one.
    pub fn explain(&self, volume: &str) -> Option<Explanation> {
        crate::report::explain(self.shared(), volume)
    }

    /// Who interferes with whom, of late.
    pub fn interference(&self) -> Interferences {
        crate::report::interference(self.shared())
    }

    /// The live curve of a volume; `None` where there is none.
    pub fn curve(&self, volume: &str) -> Option<Curve> {
        crate::report::curve(self.shared(), volume)
    }

    /// The metrics, as `/metrics` has them.
    pub fn metrics(&self) -> String {
        crate::metrics::render(self.shared())
    }

    /// Resumes the controller, or pauses it. Paused, quotas stay as they are once this returns, and observation goes on. Resumed, it goes on from
    /// those that are in force.
    ///
    /// # Errors
    /// [`SwitchError`]; it is as before then.
    pub fn set_controller_enabled(&self, enabled: bool) -> Result<Switched, SwitchError> {
        crate::switch::switch(self.shared(), enabled)
    }

    /// Makes a reservation; it begins and ends with a control interval.
    ///
    /// # Errors
    /// [`ReservationError`]; nothing has changed then.
    pub fn reserve(&self, request: ReservationRequest) -> Result<ReservationStatus, ReservationError> {
        crate::report::reserve(self.shared(), request)
    }

    /// Ends a reservation before its time; what it was.
    ///
    /// # Errors
    /// [`ReservationError`]; nothing has changed then.
    pub fn cancel_reservation(&self, id: u64) -> Result<ReservationStatus, ReservationError> {
        crate::report::cancel_reservation(self.shared(), id)
    }

    /// Has the cache of a volume loaded from its snapshots as chosen, whatever that gives; [`Daemon::status`] tells how far it is.
    ///
    /// # Errors
    /// [`PrewarmError`]; nothing has changed then.
    pub fn prewarm(&self, volume: &str, choice: LoadChoice) -> Result<(), PrewarmError> {
        loading::ask(self.shared(), volume, choice)
    }

    /// Stops loading the cache of a volume; what was loaded stays.
    ///
    /// # Errors
    /// [`PrewarmError`]; nothing has changed then.
    pub fn cancel_prewarm(&self, volume: &str) -> Result<(), PrewarmError> {
        loading::cancel(self.shared(), volume)
    }

    /// Raises the lease of a volume, and waits until nothing of whom it fences is at the origin. It is kept before this returns well, or with
    /// [`LeaseError::NotDrained`].
    ///
    /// # Errors
    /// [`LeaseError`].
    pub fn raise_lease(&self, volume: &str, request: LeaseRequest) -> Result<LeaseStatus, LeaseError> {
        lease::raise(self.shared(), volume, request)
    }

    /// Lets others onto a volume's flash from now on, until the daemon ends; [`Daemon::status`] tells what that does.
    ///
    /// # Errors
    /// [`PlacingError`]; nothing has changed then.
    pub fn place(&self, volume: &str, request: &PlacingRequest) -> Result<(), PlacingError> {
        placing::set(self.shared(), volume, request)
    }

    /// Sends a volume elsewhere while it serves, and waits until it goes there.
    ///
    /// # Errors
    /// [`RouteError`].
    pub fn route(&self, volume: &str, request: &RouteRequest) -> Result<Routed, RouteError> {
        route::change(self.shared(), volume, request)
    }

    /// Control intervals that have been observed so far: for who waits for the next one.
    pub fn intervals(&self) -> u64 {
        self.shared().steps.load(Ordering::Acquire)
    }

    /// Stops listening, lets what is in flight complete for at most `limits.drain`, writes the history and ends.
    pub fn shutdown(mut self) -> Drained {
        let drain = self.config().limits.drain;
        self.end(drain)
    }

    fn end(&mut self, drain: Duration) -> Drained {
        let Some(shared) = self.shared.take() else { return Drained::Completely };
        shared.stop();
        // HTTP ends with its last answer, and an order to drain may have most of a minute left.
        shared.appliance.hurry(drain);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        self.http.take();
        match Arc::into_inner(shared) {
            Some(Shared { appliance, history, .. }) => {
                let drained = appliance.shutdown(drain);
                drop(history);
                drained
            }
            // A thread that could not be joined holds on to it; the data path ends with the process.
            None => Drained::TimedOut,
        }
    }

    #[cfg(test)]
    pub(crate) fn panic_in_next_step(&self) {
        self.shared().panics_next_step.store(true, Ordering::Relaxed);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

/// Puts decisions where people find them.
pub(crate) fn remember(state: &mut State, decisions: &[DatedDecision]) {
    for dated in decisions {
        if state.decisions.len() == DECISIONS_MAX {
            state.decisions.pop_front();
        }
        *state.decision_counts.entry(crate::history::word(&dated.decision.kind)).or_default() += 1;
        state.decisions.push_back(dated.clone());
    }
}
