//! A controller for appliances elsewhere: what `forebay control` starts.
//!
//! Each interval it hears of every volume (from `forebay watch` and appliances, or a Prometheus server), asks `control::Controller`, and hands what
//! that decides to `control::response`, whose orders it has carried out by providers, leases and proxies. It decides nothing itself.
//!
//! Invariants: the journal is on disk before an order is begun; what is not heard of, or cannot be so, is told and causes nothing.

mod asking;
mod carrying;
mod checking;
mod config;
mod draining;
mod making;
mod metrics;
mod objective;
mod observing;
mod places;
mod prometheus;
mod reading;
mod resuming;
mod showing;
mod source;
mod strays;
mod tables;
mod turning;

pub use config::FleetConfig;
pub use objective::ObjectiveTable;
pub use tables::{HostTable, PrometheusTable, ProviderTable, RouteTable, VolumeTable};

use crate::clock::unix_ms;
use crate::config::{ConfigError, HttpConfig, is_readable_by_others};
use crate::history::{DatedDecision, History};
use crate::http::{HttpServer, Listeners};
use crate::interfering::InterferenceTables;
use crate::kept::{self, Hold};
use crate::status::ControllerState;
use crate::supervised::{Supervised, panic_text};
use crate::switch::{Switch, Switched};
use carrying::{Carriers, id_of};
use forebay_actuate::secrets;
use forebay_control::response::{ApplianceId, Draining, RecoverError, Responses, VolumeRoute};
use forebay_control::{HostId, HostSpec, VolumeId};
use forebay_units::Secret;
use observing::Observer;
use serde::Deserialize;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
#[cfg(test)]
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use strays::Strays;
use thiserror::Error;
use turning::Loop;

/// Why a controller did not start. Nothing of it runs then.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FleetStartError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// What it keeps cannot be read or written.
    #[error("what is kept at `{}` cannot be used: {reason}", path.display())]
    State {
        /// Where.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The journal cannot be gone on with.
    #[error(transparent)]
    Journal(#[from] RecoverError),
    /// Nothing could bring clients back from where they may be.
    #[error(
        "volume `{volume}` has {holds} and no `route` any more: put it back, with `drain = true` for the volume, and leave it out once `forebay status` says that the volume may be removed"
    )]
    RouteGone {
        /// Its name.
        volume: String,
        /// Its appliances, and where they are.
        holds: String,
    },
    /// Nobody would tell any more whether the cache of a volume is needed, nor could its lease be given back.
    #[error(
        "volume `{volume}` has {holds} and no `watch` any more: put it back, with `drain = true` for the volume, and leave it out once `forebay status` says that the volume may be removed"
    )]
    WatchGone {
        /// Its name.
        volume: String,
        /// Its appliances, and where they are.
        holds: String,
    },
    /// Its socket cannot be bound.
    #[error("cannot listen on `{address}`")]
    Socket {
        /// Where.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The system has no threads for it.
    #[error("cannot start the threads of the controller")]
    System(#[from] io::Error),
}

/// What the threads see.
pub(crate) struct FleetShared {
    pub(crate) config: FleetConfig,
    pub(crate) history: Option<History>,
    pub(crate) started: Instant,
    pub(crate) started_unix_ms: i64,
    pub(crate) state: Mutex<FleetState>,
    switch: Switch,
    /// Held while what was decided becomes wishes, and while the controller is switched.
    wishing: Mutex<()>,
    stopping: Mutex<bool>,
    wake: Condvar,
    #[cfg(test)]
    panics_next_step: AtomicBool,
    #[cfg(test)]
    panics_next_turn: AtomicBool,
}

/// What is told of it.
#[derive(Default)]
pub(crate) struct FleetState {
    pub(crate) decisions: VecDeque<DatedDecision>,
    /// By kind and volume, of this run.
    pub(crate) decision_counts: BTreeMap<String, BTreeMap<String, u64>>,
    pub(crate) volumes: Vec<crate::status::VolumeStatus>,
    pub(crate) turn: metrics::Turn,
    pub(crate) clock_steps: u64,
    pub(crate) steps: u64,
    pub(crate) last_step: Duration,
    pub(crate) granted_bytes: u64,
    pub(crate) is_dead: bool,
    pub(crate) restarts: u64,
    pub(crate) last_panic: Option<String>,
    /// Why there are no turns any more.
    pub(crate) failure: Option<String>,
    pub(crate) interference: InterferenceTables,
    /// Why the journal is not written.
    pub(crate) journal_trouble: Option<String>,
}

impl FleetShared {
    pub(crate) fn state(&self) -> MutexGuard<'_, FleetState> {
        // Who panicked while holding it left plain data behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the controller is.
    pub(crate) fn controller_state(&self, state: &FleetState) -> ControllerState {
        match (self.switch.is_on(), state.is_dead) {
            (false, _) => ControllerState::Disabled,
            (true, true) => ControllerState::Dead,
            (true, false) => ControllerState::Running,
        }
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running controller. Dropping it ends it; what it started goes on, and the next one goes on with that.
pub struct Fleet {
    shared: Arc<FleetShared>,
    thread: Option<JoinHandle<()>>,
    http: Option<HttpServer>,
}

impl Fleet {
    /// Starts a controller, which goes on where the one before it ended.
    ///
    /// # Errors
    /// [`FleetStartError`].
    pub fn start(config: FleetConfig) -> Result<Fleet, FleetStartError> {
        config.check()?;
        let unusable = |path: &Path, reason: String| FleetStartError::State { path: path.to_owned(), reason };
        std::fs::create_dir_all(&config.state).map_err(|error| unusable(&config.state, error.to_string()))?;
        let journal_file = resuming::journal_file(&config.state);
        let hold = Hold::take(&journal_file).map_err(|reason| {
            let advice = "one controller has a `state` at a time: end the other `forebay control` that has this one, or give each a `state` of its own";
            unusable(&journal_file, format!("{reason}; {advice}"))
        })?;
        let was_there = secret_file(&config.state).exists();
        let secret = secret(&config.state).map_err(|(path, reason)| unusable(&path, reason))?;
        let kept = resuming::journal(&config)?;
        let http = HttpConfig { listen: config.listen, socket: Some(config.socket.clone()), token: None };
        let listeners = Listeners::open(&http)
            .map_err(|(address, source)| FleetStartError::Socket { address, source })?;
        let history = config.history.clone().map(crate::config::HistoryConfig::new).map(History::start);
        let mut history = history.transpose()?;
        let earlier = history.as_mut().map(|history| std::mem::take(&mut history.earlier));
        let started = Instant::now();
        let (reporter, reports) = channel();
        let carriers = Carriers::start(&config, secret, started, &reporter)?;
        let draining = |id, _: &VolumeTable| carriers.draining(id);
        let (hosts, routes) = (hosts(&config), routes(&config, draining));
        let mut rules = config.response;
        rules.cost = config.cost();
        let mut responses = match kept {
            Some(journal) => Responses::recover(journal, rules, hosts.clone(), routes)?,
            None => {
                let mut responses = Responses::new(rules, hosts.clone());
                routes.into_iter().for_each(|(id, route)| responses.register(id, route));
                // Who is not moved never was, and its lease is somebody else's.
                let moved = config.volume.iter().enumerate().filter(|(_, volume)| volume.route.is_some());
                moved.for_each(|(index, _)| responses.adopt_unknown(id_of(index)));
                if was_there {
                    // Nobody ordered one every second since 1970.
                    responses.forget(ApplianceId(unix_ms().max(0) as u64 / 1000));
                }
                responses
            }
        };
        // Before anything is ordered: what the journal tells of may be drained since.
        responses.drain(draining::drained(&config));
        let shared = Arc::new(FleetShared {
            history,
            started,
            started_unix_ms: unix_ms(),
            state: Mutex::new(FleetState {
                decisions: earlier.unwrap_or_default().into(),
                ..FleetState::default()
            }),
            switch: Switch::new(true),
            wishing: Mutex::new(()),
            stopping: Mutex::new(false),
            wake: Condvar::new(),
            #[cfg(test)]
            panics_next_step: AtomicBool::new(false),
            #[cfg(test)]
            panics_next_turn: AtomicBool::new(false),
            config,
        });
        let http = HttpServer::start(listeners, showing::reading(&shared), showing::router(&shared))?;
        let observer = Observer::new(&shared.config);
        let for_loop = Arc::clone(&shared);
        let thread = thread::Builder::new().name("fleet".to_owned()).spawn(move || {
            let (shared, its) = (Arc::clone(&for_loop), for_loop);
            let turns = Loop {
                shared: its,
                carriers,
                responses,
                observer,
                journal_file,
                _hold: hold,
                journal_changes: None,
                journal_fails: false,
                supervised: Supervised::new(),
                hosts,
                was_off: false,
                registered: BTreeMap::new(),
                served_by: BTreeMap::new(),
                strays: Strays::new(),
            };
            // What it left half done only another one can go on with, by the journal.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| turns.run(&reports))) {
                let what = panic_text(&*panic);
                tracing::error!(what, "the control loop panicked, and ends");
                let mut state = shared.state();
                (state.is_dead, state.last_panic, state.failure) = (true, Some(what.clone()), Some(what));
            }
        })?;
        Ok(Fleet { shared, thread: Some(thread), http })
    }

    /// Whether a controller that is started with this could go on where the one before it ended, as `state` tells: looks, and starts nothing. `false` if it may not look.
    ///
    /// # Errors
    /// [`FleetStartError`], as at the start.
    pub fn check(config: &FleetConfig) -> Result<bool, FleetStartError> {
        resuming::check(config)
    }

    /// What it was started with.
    pub fn config(&self) -> &FleetConfig {
        &self.shared.config
    }

    /// Where it is asked over TCP, if it is.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().and_then(HttpServer::address)
    }

    /// What it tells of itself.
    pub fn status(&self) -> crate::status::Status {
        showing::status(&self.shared)
    }

    /// The metrics, as `/metrics` has them.
    pub fn metrics(&self) -> String {
        metrics::render(&self.shared)
    }

    /// Why it does nothing any more, if that is so: a bug. One that is started anew goes on where it ended.
    pub fn failure(&self) -> Option<String> {
        self.shared.state().failure.clone()
    }

    /// Pauses or resumes the controller. Nothing that it decided before a pause is begun any more when this returns; what was begun is carried through, and clients of an
    /// appliance that dies are brought back, as ever.
    pub fn set_controller_enabled(&self, enabled: bool) -> Switched {
        asking::switch(&self.shared, enabled)
    }

    /// What was decided, oldest first.
    pub fn decisions(&self) -> Vec<DatedDecision> {
        self.shared.state().decisions.iter().cloned().collect()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        *self.shared.stopping.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.http.take();
    }
}

/// Made with the first start.
fn secret_file(state: &Path) -> PathBuf {
    state.join("secret.json")
}

#[derive(Deserialize)]
#[serde(transparent)]
struct KeptSecret(#[serde(with = "secrets")] Secret);

/// The secret that appliances are told, made with the first start.
fn secret(state: &Path) -> Result<Secret, (PathBuf, String)> {
    let path = secret_file(state);
    let wrong = |reason: String| (path.clone(), reason);
    let expected = |reason| wrong(format!("{reason}; expected a secret, {} in quotes", Secret::FORM));
    if let Some(KeptSecret(secret)) = kept::read(&path).map_err(expected)? {
        if is_readable_by_others(&path) {
            tracing::warn!(path = %path.display(), "others could read the secret of the appliances; from now on its owner alone can");
            kept::replace(&path, &secret.reveal()).map_err(|error| wrong(error.to_string()))?;
        }
        return Ok(secret);
    }
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .map_err(|error| wrong(error.to_string()))?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    kept::replace(&path, &text).map_err(|error| wrong(error.to_string()))?;
    Secret::new(text).ok_or_else(|| wrong("no secret could be made".to_owned()))
}

fn hosts(config: &FleetConfig) -> Vec<HostSpec> {
    let host = |(index, host): (usize, &HostTable)| HostSpec {
        cpu_milli: host.cpus.map_or(u32::MAX, |cpus| (cpus * 1e3) as u32),
        provider: host.provider.shown(),
        ..HostSpec::new(HostId(index as u32), &host.name, host.rack, host.memory)
    };
    config.host.iter().enumerate().map(host).collect()
}

fn home(config: &FleetConfig, volume: &VolumeTable) -> HostId {
    let at = config.host.iter().position(|host| host.name == volume.home);
    HostId(at.expect("the configuration was checked") as u32)
}

fn routes(
    config: &FleetConfig,
    draining: impl Fn(VolumeId, &VolumeTable) -> Draining,
) -> Vec<(VolumeId, VolumeRoute)> {
    let route = |(index, volume): (usize, &VolumeTable)| {
        let unfit = |(at, host)| Some((HostId(at as u32), config::unfit(host, volume)?.to_owned()));
        let route = VolumeRoute {
            name: volume.name.clone(),
            draining: draining(id_of(index), volume),
            leased: volume.lease().is_some(),
            home: home(config, volume),
            unfit: config.host.iter().enumerate().filter_map(unfit).collect(),
            apart: apart(config, index),
            way: making::way(volume),
        };
        (id_of(index), route)
    };
    config.volume.iter().enumerate().map(route).collect()
}

/// Volumes whose appliances serve at the same port as those of the one with this number, on every address of their host: one of them is there at most.
fn apart(config: &FleetConfig, index: usize) -> Vec<(VolumeId, String)> {
    let Some(port) = making::port(&config.volume[index]) else { return Vec::new() };
    let others = config
        .volume
        .iter()
        .enumerate()
        .filter(|(at, other)| *at != index && making::port(other) == Some(port));
    let why =
        |name: &str| format!("has the appliance of volume `{name}`, which serves at port {port} as well");
    others.map(|(at, other)| (id_of(at), why(&other.name))).collect()
}

#[cfg(test)]
mod tests;
