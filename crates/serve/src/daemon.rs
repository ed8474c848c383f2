//! The running daemon: what `forebay serve` starts, and what demonstrations and tests start in their own process.
//!
//! Invariant: the data path depends on nothing else here. Controller, HTTP and history may panic, hang or fail, and
//! clients are served.

use crate::books::Books;
use crate::clock::unix_ms;
use crate::config::{CacheConfig, Config, ConfigError, OnAbsent, VolumeConfig};
use crate::history::{DatedDecision, History};
use crate::http::{HttpServer, Listeners};
use crate::interfering::{InterferenceTables, Interferences};
use crate::lease::{self, LeaseError, LeaseRequest, LeaseStatus, LeasesUnreadable};
use crate::listing;
use crate::loading::{self, LoadChoice, PrewarmError};
use crate::monitor::Monitor;
use crate::origins::{OriginFailure, OriginShop, competition, origin_stamp};
use crate::pilot;
use crate::placing::{self, PlacingError, PlacingRequest};
use crate::reservation::{ReservationError, ReservationRequest};
use crate::route::{self, RouteError, RouteRequest, Routed, RoutesUnreadable};
use crate::snapshots::{self, SnapshotCounters, SnapshotStore};
use crate::status::{ControllerState, Curve, Explanation, ReservationStatus, Status};
use crate::switch::{Switch, SwitchError, Switched};
use forebay_appliance::{
    AddVolumeError, Appliance, ApplianceConfig, BoundAddress, Drained, FlashOpenError, FlashStore,
    ListenerConfig, VolumeConfig as ServedVolume, VolumeFlashConfig,
};
use forebay_control::{OriginId, OriginSpec};
use forebay_locality::LiveConfig;
use forebay_nbd::Uri;
use forebay_origin::Origin;
use forebay_tls::{ServerTls, TlsFilesError};
use forebay_units::{Bytes, mix64, with_causes};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
#[cfg(test)]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Decisions that are kept in memory; a history keeps more.
const DECISIONS_MAX: usize = 10_000;
/// Pause before an absent origin is tried again.
const ABSENT_RETRY: Duration = Duration::from_millis(500);

/// Why a daemon did not start. Nothing of it runs then.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An origin cannot be opened.
    #[error("volume `{volume}` cannot be served")]
    Origin {
        /// The volume.
        volume: String,
        /// Why; boxed, since it may carry a TLS error.
        source: Box<OriginFailure>,
    },
    /// The emulated disks cannot be started.
    #[error("the emulated disks cannot be started")]
    Disks {
        /// Why; boxed for the same reason.
        source: Box<OriginFailure>,
    },
    /// The data path cannot be started.
    #[error(transparent)]
    Appliance(#[from] forebay_appliance::StartError),
    /// The flash device cannot be used.
    #[error(transparent)]
    Flash(#[from] FlashOpenError),
    /// The certificates cannot be used.
    #[error("TLS cannot be offered")]
    Tls {
        /// Why.
        source: TlsFilesError,
    },
    /// HTTP cannot listen.
    #[error("cannot listen for HTTP on `{address}`")]
    Http {
        /// Where.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// A file that outlasts the daemon is in other hands.
    #[error("`{}` cannot be used: {reason}", path.display())]
    Kept {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Who may be let in is not known.
    #[error(transparent)]
    Leases(#[from] LeasesUnreadable),
    /// Where volumes go is not known.
    #[error(transparent)]
    Routes(#[from] RoutesUnreadable),
    /// The system has no threads for it.
    #[error("cannot start the threads of the daemon")]
    System(#[from] io::Error),
}

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
    pub(crate) snapshot_store: Option<SnapshotStore>,
    pub(crate) snapshot_counters: SnapshotCounters,
    stopping: Mutex<bool>,
    wake: Condvar,
    #[cfg(test)]
    pub(crate) panics_next_step: AtomicBool,
}

/// What is remembered from interval to interval.
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
        while !*stopping {
            let now = Instant::now();
            if now >= at {
                return true;
            }
            stopping = self.wake.wait_timeout(stopping, at - now).unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        *self.stopping.lock().unwrap_or_else(PoisonError::into_inner) = true;
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
    /// Checks `config`, opens origins and listeners, and serves.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs and no socket is left behind then.
    pub fn start(mut config: Config) -> Result<Daemon, StartError> {
        config.check()?;
        let books = Books::open(&mut config)?;
        let tls = config
            .tls
            .as_ref()
            .map(|files| ServerTls::load(&files.certificate, &files.key, files.client_authorities.as_deref()))
            .transpose()
            .map_err(|source| StartError::Tls { source })?;
        let lease_of = |volume: &str| books.leases().and_then(|book| book.of(volume));
        let flash = config.flash.as_ref().map(FlashStore::open).transpose()?.map(Arc::new);
        let shop =
            OriginShop::start(&config).map_err(|source| StartError::Disks { source: Box::new(source) })?;
        let mut absent = BTreeMap::new();
        let mut opened = Vec::new();
        for (index, volume) in config.volumes.iter().enumerate() {
            match shop.open(&config, index) {
                Ok(origin) => opened.push((volume, origin)),
                // Where it was sent may be gone, and who sent it must find somebody to send it elsewhere.
                Err(error) if volume.on_absent == OnAbsent::Wait || books.routes().sends(&volume.name) => {
                    let reason = with_causes(&error);
                    tracing::warn!(
                        volume = volume.name,
                        reason,
                        "origin is absent; the volume is exported once it is there"
                    );
                    absent.insert(volume.name.clone(), reason);
                }
                Err(source) => {
                    let source = Box::new(source);
                    return Err(StartError::Origin { volume: volume.name.clone(), source });
                }
            }
        }
        let listeners = Listeners::open(&config.http)
            .map_err(|(address, source)| StartError::Http { address, source })?;
        // Behind what may fail: flash hears of a start that serves.
        let served = |(volume, origin): (&VolumeConfig, _)| {
            let lease = lease_of(&volume.name);
            Ok(ServedVolume { lease, ..served_volume(&config, volume, origin, flash.as_ref())? })
        };
        let served = opened.into_iter().map(served).collect::<Result<_, StartError>>()?;
        let workers = match config.limits.workers {
            0 => thread::available_parallelism().map_or(1, usize::from).min(4),
            workers => workers,
        };
        let appliance = Appliance::start(ApplianceConfig {
            listeners: config.listen.clone(),
            tls,
            workers: workers.min(config.volumes.len()),
            connections_max: config.limits.connections,
            limits: config.limits.service,
            io: config.io,
            volumes: served,
            ..ApplianceConfig::default()
        })?;
        let mut history = config.history.clone().map(History::start).transpose()?;
        let earlier =
            history.as_mut().map(|history| std::mem::take(&mut history.earlier)).unwrap_or_default();
        let waits = !absent.is_empty();
        let enabled = config.control.enabled;
        let origins = competition(&config);
        let snapshot_store =
            config.snapshots.as_ref().map(|snapshots| SnapshotStore::new(snapshots.place.clone()));
        let shared = Arc::new(Shared {
            config,
            appliance,
            flash,
            history,
            started: Instant::now(),
            started_unix_ms: unix_ms(),
            origins,
            books,
            shop,
            snapshot_store,
            snapshot_counters: SnapshotCounters::default(),
            switch: Switch::new(enabled),
            steps: AtomicU64::new(0),
            state: Mutex::new(State {
                monitors: BTreeMap::new(),
                decisions: earlier.into(),
                decision_counts: BTreeMap::new(),
                action_counts: BTreeMap::new(),
                absent,
                leaving: BTreeMap::new(),
                judged: BTreeMap::new(),
                interference: InterferenceTables::default(),
                utilisation: BTreeMap::new(),
                dead: false,
                restarts: 0,
                last_panic: None,
                last_step: Duration::ZERO,
            }),
            stopping: Mutex::new(false),
            wake: Condvar::new(),
            #[cfg(test)]
            panics_next_step: AtomicBool::new(false),
        });
        let mut daemon = Daemon { shared: Some(Arc::clone(&shared)), threads: Vec::new(), http: None };
        daemon.http = HttpServer::of_daemon(listeners, &shared)?;
        let for_pilot = Arc::clone(&shared);
        let pilot =
            thread::Builder::new().name("control".to_owned()).spawn(move || pilot::run(&for_pilot))?;
        daemon.threads.push(pilot);
        {
            let mut loads = shared.books.loads();
            let begins = shared.config.volumes.iter().filter(|volume| starts_with_cache(volume));
            begins.for_each(|volume| loads.begins(&volume.name));
        }
        let for_loader = Arc::clone(&shared);
        let loader =
            thread::Builder::new().name("loading".to_owned()).spawn(move || loading::run(&for_loader))?;
        daemon.threads.push(loader);
        let for_lister = Arc::clone(&shared);
        let lister =
            thread::Builder::new().name("listing".to_owned()).spawn(move || listing::run(&for_lister))?;
        daemon.threads.push(lister);
        if let Some(config) = shared.config.snapshots.clone() {
            let shared = Arc::clone(&shared);
            let thread = thread::Builder::new()
                .name("snapshots".to_owned())
                .spawn(move || snapshots::run(&shared, &config))?;
            daemon.threads.push(thread);
        }
        if waits {
            let thread = thread::Builder::new()
                .name("absent-origins".to_owned())
                .spawn(move || wait_for_origins(&shared))?;
            daemon.threads.push(thread);
        }
        Ok(daemon)
    }

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

/// A volume in the data path's words.
///
/// # Errors
/// [`FlashOpenError`]: the device cannot be had to forget what it holds of a volume that has no flash any more.
fn served_volume(
    config: &Config,
    volume: &VolumeConfig,
    origin: Arc<dyn Origin>,
    flash: Option<&Arc<FlashStore>>,
) -> Result<ServedVolume, FlashOpenError> {
    let has_flash = volume.flash > Bytes::ZERO;
    let is_read_only = volume.read_only || origin.traits().read_only;
    if let Some(store) = flash.filter(|_| !has_flash && !is_read_only) {
        store.forget(&volume.name, &*origin)?;
    }
    let quota = match volume.cache {
        CacheConfig::Fixed(quota) => quota,
        CacheConfig::Controlled { .. } => Bytes::ZERO,
    };
    // Which blocks are sampled must not be the same for all volumes, or their errors would be.
    let seed = volume.name.bytes().fold(0, |seed, byte| mix64(seed ^ u64::from(byte)));
    Ok(ServedVolume {
        block_size: volume.block_size,
        quota,
        read_only: volume.read_only,
        locality: config.observe.map(|observe| LiveConfig { block_size: volume.block_size, seed, ..observe }),
        limits: config.limits.volume,
        secret: volume.secret.clone(),
        flash: flash.filter(|_| has_flash).map(|store| VolumeFlashConfig {
            store: Arc::clone(store),
            quota: volume.flash,
            placing: config
                .flash_rules
                .placing(volume.flash_admission.unwrap_or(config.flash_rules.admission)),
            left_out: config.flash_rules.left_out.clone(),
            stamp: origin_stamp(volume, &origin),
        }),
        ..ServedVolume::new(volume.name.clone(), origin)
    })
}

/// Whether a volume has a cache as soon as it is served; others get theirs from the controller.
fn starts_with_cache(volume: &VolumeConfig) -> bool {
    matches!(volume.cache, CacheConfig::Fixed(quota) if quota > Bytes::ZERO)
}

/// Exports volumes whose origins were absent as they appear.
fn wait_for_origins(shared: &Shared) {
    while shared.sleep_until(Instant::now() + ABSENT_RETRY) {
        let absent: Vec<String> = shared.state().absent.keys().cloned().collect();
        if absent.is_empty() {
            return;
        }
        for (index, volume) in shared.config.volumes.iter().enumerate() {
            if !absent.contains(&volume.name) {
                continue;
            }
            // Each may take its timeout, and whoever stops does not wait for all of them.
            if shared.is_stopping() {
                return;
            }
            // Nor does whoever sends another volume elsewhere, so this one is opened first.
            let opened = crate::route::open(shared, index).map_err(|error| with_causes(&error));
            let _one = shared.books.changes_of_routes();
            // It may have been sent elsewhere meanwhile, where it begins at once.
            if !shared.state().absent.contains_key(&volume.name) {
                continue;
            }
            if let Err(reason) = opened.and_then(|origin| begin(shared, index, origin)) {
                shared.state().absent.insert(volume.name.clone(), reason);
            }
        }
    }
}

/// Exports a volume that was absent, on an origin that is there; why not, if not.
pub(crate) fn begin(shared: &Shared, index: usize, origin: Arc<dyn Origin>) -> Result<(), String> {
    let volume = &shared.config.volumes[index];
    // Locked, so that no lease is raised between the look and the start.
    let leases = shared.books.leases();
    let served = ServedVolume {
        lease: leases.as_ref().and_then(|book| book.of(&volume.name)),
        ..served_volume(&shared.config, volume, origin, shared.flash.as_ref())
            .map_err(|error| with_causes(&error))?
    };
    match shared.appliance.add_volume(served) {
        Ok(()) | Err(AddVolumeError::Exists { .. }) => {}
        Err(error) => return Err(with_causes(&error)),
    }
    drop(leases);
    tracing::info!(volume = volume.name, "origin is there; the volume is exported");
    shared.state().absent.remove(&volume.name);
    if starts_with_cache(volume) {
        shared.books.loads().begins(&volume.name);
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{OriginConfig, OriginTls};
    use forebay_origin::NbdOriginOptions;
    use forebay_units::Nanos;
    use std::net::TcpListener;
    use std::path::Path;
    use std::sync::mpsc::channel;

    /// A volume that waits for its origin, a server that listens and says nothing.
    fn waits_for(name: &str, server: &TcpListener, connect_timeout: Nanos) -> VolumeConfig {
        let uri = format!("nbd://{}/{name}", server.local_addr().unwrap()).parse().unwrap();
        let options = NbdOriginOptions { connect_timeout, ..NbdOriginOptions::default() };
        let origin = OriginConfig::Nbd { uri, options, tls: OriginTls::default() };
        VolumeConfig { on_absent: OnAbsent::Wait, ..VolumeConfig::new(name, origin) }
    }

    /// A daemon that finds out at its start that these servers are gone.
    fn started(folder: &Path, volumes: Vec<VolumeConfig>, gone: &[&TcpListener]) -> Daemon {
        let mut config = Config::new(volumes);
        config.listen = vec![ListenerConfig::Unix { path: folder.join("nbd.sock") }];
        thread::scope(|scope| {
            scope.spawn(|| gone.iter().for_each(|server| drop(server.accept().unwrap())));
            Daemon::start(config).unwrap()
        })
    }

    fn server() -> TcpListener {
        TcpListener::bind("127.0.0.1:0").unwrap()
    }

    #[test]
    fn a_route_is_changed_while_another_volume_waits_for_its_origin() {
        let folder = tempfile::tempdir().unwrap();
        let memory = |name: &str| VolumeConfig::new(name, OriginConfig::Memory { size: Bytes::mib(1) });
        let mut storage = Config::new(vec![memory("one"), memory("two")]);
        storage.listen = vec![ListenerConfig::Unix { path: folder.path().join("storage.sock") }];
        let storage = Daemon::start(storage).unwrap();
        let [one, two] = ["one", "two"].map(|name| storage.uris(name).remove(0));
        let absent = server();
        let there = VolumeConfig::new(
            "there",
            OriginConfig::Nbd {
                uri: one.parse().unwrap(),
                options: NbdOriginOptions::default(),
                tls: OriginTls::default(),
            },
        );
        let late = waits_for("late", &absent, Nanos::secs(3600));
        let daemon = started(folder.path(), vec![late, there], &[&absent]);
        // Somebody takes the connection, and does not say a word.
        let (silent, _) = absent.accept().unwrap();
        drop(absent);
        let (sender, answer) = channel();
        thread::scope(|scope| {
            let request: RouteRequest = serde_json::from_value(serde_json::json!({ "to": two })).unwrap();
            let daemon = &daemon;
            scope.spawn(move || sender.send(daemon.route("there", &request).map(|routed| routed.route)));
            let routed = answer.recv_timeout(Duration::from_secs(20));
            drop(silent);
            assert_eq!(routed.expect("it waits for the other volume").unwrap().to, Some(two));
        });
        daemon.shutdown();
        storage.shutdown();
    }

    #[test]
    fn who_stops_waits_for_one_absent_origin_and_not_for_all() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (server(), server());
        let volumes =
            vec![waits_for("first", &first, Nanos::secs(3600)), waits_for("second", &second, Nanos::secs(1))];
        let daemon = started(folder.path(), volumes, &[&first, &second]);
        let (silent, _) = first.accept().unwrap();
        daemon.shared().stop();
        drop(silent);
        daemon.shutdown();
        second.set_nonblocking(true).unwrap();
        assert!(second.accept().is_err(), "the second was tried after the stop");
    }
}
