//! A controller for appliances elsewhere: what `forebay control` starts.
//!
//! Each interval it hears of every volume (from `forebay watch` and appliances, or a Prometheus server), asks `control::Controller`, and hands what
//! that decides to `control::response`, whose orders it has carried out by providers, leases and proxies. It decides nothing itself.
//!
//! Invariants: the journal is on disk before an order is begun; what is not heard of, or cannot be so, is told and causes nothing.

mod carrying;
mod config;
mod making;
mod observing;
mod prometheus;
mod showing;
mod source;
mod tables;

pub use config::{FleetConfig, FleetConfigError};
pub use tables::{HostTable, ObjectiveTable, PrometheusTable, ProviderTable, RouteTable, VolumeTable};

use crate::clock::{ClockWatch, Moment, Stamp, unix_ms};
use crate::config::{HttpConfig, is_readable_by_others};
use crate::history::{Batch, DatedDecision, History};
use crate::http::{HttpServer, Listeners};
use crate::kept::{self, Hold};
use crate::past;
use crate::pilot::panic_text;
use carrying::{Carriers, Report, id_of};
use forebay_control::response::{
    ApplianceId, Journal, Order, Outcome, RecoverError, Responses, VolumeRoute, Wish,
};
use forebay_control::{
    Action, ControlConfig, Controller, Decision, HostId, HostObservation, HostSpec, Observation, OriginId,
    OriginObservation, OriginSpec, StepOutcome, VolumeId, VolumeSpec,
};
use forebay_units::{BlockSize, Bytes, Nanos, Secret};
use observing::Observer;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
#[cfg(test)]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Decisions that are kept in memory; a history keeps more.
const DECISIONS_MAX: usize = 10_000;
/// How long the loop waits for a report before it looks for what is due (ours).
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Why a controller did not start. Nothing of it runs then.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FleetStartError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] FleetConfigError),
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
    pub(crate) state: Mutex<FleetState>,
    stopping: Mutex<bool>,
    wake: Condvar,
    #[cfg(test)]
    panics_next_step: AtomicBool,
}

/// What is told of it.
#[derive(Default)]
pub(crate) struct FleetState {
    pub(crate) decisions: VecDeque<DatedDecision>,
    pub(crate) volumes: Vec<crate::status::VolumeStatus>,
    pub(crate) steps: u64,
    pub(crate) last_step: Duration,
    pub(crate) granted_bytes: u64,
    pub(crate) is_dead: bool,
    pub(crate) restarts: u64,
    pub(crate) last_panic: Option<String>,
}

impl FleetShared {
    pub(crate) fn state(&self) -> MutexGuard<'_, FleetState> {
        // Who panicked while holding it left plain data behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        let journal_file = config.state.join("responses.json");
        let hold = Hold::take(&journal_file).map_err(|reason| unusable(&journal_file, reason))?;
        let was_there = secret_file(&config.state).exists();
        let secret = secret(&config.state).map_err(|(path, reason)| unusable(&path, reason))?;
        let kept = kept::read::<Journal>(&journal_file).map_err(|reason| unusable(&journal_file, reason))?;
        let http = HttpConfig { listen: None, socket: Some(config.socket.clone()), token: None };
        let listeners = Listeners::open(&http)
            .map_err(|(address, source)| FleetStartError::Socket { address, source })?;
        let history = config.history.clone().map(crate::config::HistoryConfig::new).map(History::start);
        let mut history = history.transpose()?;
        let earlier = history.as_mut().map(|history| std::mem::take(&mut history.earlier));
        let started = Instant::now();
        let (reporter, reports) = channel();
        let carriers = Carriers::start(&config, secret, started, &reporter)?;
        let (hosts, routes) = (hosts(&config), routes(&config, &carriers));
        let mut rules = config.response;
        rules.cost.memory_bytes = rules.cost.memory_bytes.max(carriers.overhead().get());
        let responses = match kept {
            Some(journal) => Responses::recover(journal, rules, hosts.clone(), routes)?,
            None => {
                let mut responses = Responses::new(rules, hosts.clone());
                routes.into_iter().for_each(|(id, route)| responses.register(id, route));
                // Who is not moved never was, and its lease is somebody else's.
                let moved = config.volume.iter().enumerate().filter(|(_, volume)| volume.route.is_some());
                moved.for_each(|(index, _)| responses.adopt_unknown(id_of(index)));
                if was_there {
                    // The journal is lost, and what it told of may run on. Nobody ordered one every second since 1970.
                    responses.number_from(ApplianceId(unix_ms().max(0) as u64 / 1000));
                }
                responses
            }
        };
        let shared = Arc::new(FleetShared {
            history,
            started,
            state: Mutex::new(FleetState {
                decisions: earlier.unwrap_or_default().into(),
                ..FleetState::default()
            }),
            stopping: Mutex::new(false),
            wake: Condvar::new(),
            #[cfg(test)]
            panics_next_step: AtomicBool::new(false),
            config,
        });
        let http = HttpServer::start(listeners, showing::router(&shared), showing::router(&shared))?;
        let observer = Observer::new(&shared.config);
        let for_loop = Arc::clone(&shared);
        let thread = thread::Builder::new().name("fleet".to_owned()).spawn(move || {
            Loop {
                shared: for_loop,
                carriers,
                responses,
                observer,
                journal_file,
                _hold: hold,
                journal_changes: None,
                controller: None,
                hosts,
                registered: BTreeMap::new(),
            }
            .run(&reports);
        })?;
        Ok(Fleet { shared, thread: Some(thread), http })
    }

    /// What it was started with.
    pub fn config(&self) -> &FleetConfig {
        &self.shared.config
    }

    /// What it tells of itself.
    pub fn status(&self) -> crate::status::Status {
        showing::status(&self.shared)
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

/// The secret that appliances are told, made with the first start.
fn secret(state: &Path) -> Result<Secret, (PathBuf, String)> {
    let path = secret_file(state);
    let wrong = |reason: String| (path.clone(), reason);
    if let Some(text) = kept::read::<String>(&path).map_err(wrong)? {
        if is_readable_by_others(&path) {
            tracing::warn!(path = %path.display(), "others could read the secret of the appliances; from now on its owner alone can");
            kept::replace(&path, &text).map_err(|error| wrong(error.to_string()))?;
        }
        return Secret::new(text).ok_or_else(|| wrong("it holds no secret".to_owned()));
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
        ..HostSpec::new(HostId(index as u32), &host.name, host.rack, host.memory)
    };
    config.host.iter().enumerate().map(host).collect()
}

fn home(config: &FleetConfig, volume: &VolumeTable) -> HostId {
    let at = config.host.iter().position(|host| host.name == volume.home);
    HostId(at.expect("the configuration was checked") as u32)
}

fn routes(config: &FleetConfig, carriers: &Carriers) -> Vec<(VolumeId, VolumeRoute)> {
    let route = |(index, volume): (usize, &VolumeTable)| {
        let unfit = |(at, host)| Some((HostId(at as u32), config::unfit(host, volume)?.to_owned()));
        let route = VolumeRoute {
            name: volume.name.clone(),
            draining: carriers.draining(id_of(index)),
            leased: volume.lease().is_some(),
            home: home(config, volume),
            unfit: config.host.iter().enumerate().filter_map(unfit).collect(),
        };
        (id_of(index), route)
    };
    config.volume.iter().enumerate().map(route).collect()
}

/// Which volumes compete, by the word for their array.
fn origins(config: &FleetConfig) -> (Vec<OriginId>, Vec<OriginSpec>) {
    let mut words: Vec<String> = Vec::new();
    let mut of = Vec::new();
    for volume in &config.volume {
        let watch = || volume.watch.as_ref().map_or_else(|| volume.name.clone(), ToString::to_string);
        let word = volume.array.clone().unwrap_or_else(watch);
        let at = words.iter().position(|known| *known == word).unwrap_or_else(|| {
            words.push(word);
            words.len() - 1
        });
        of.push(OriginId(at as u32));
    }
    let spec = |(at, name): (usize, String)| OriginSpec {
        id: OriginId(at as u32),
        name,
        servers: None,
        service_cv2: None,
        service: None,
    };
    (of, words.into_iter().enumerate().map(spec).collect())
}

/// What is to be done at `now`. A turn may take seconds where appliances hang: what was reported meanwhile is heard first, or it would count as lost.
fn due(responses: &mut Responses, reports: &Receiver<Report>, now: Nanos) -> Vec<Order> {
    reports.try_iter().for_each(|(order, outcome)| responses.report(order, outcome, now));
    responses.step(now)
}

struct Loop {
    shared: Arc<FleetShared>,
    carriers: Carriers,
    responses: Responses,
    observer: Observer,
    journal_file: PathBuf,
    /// On the journal, and with it on the folder.
    _hold: Hold,
    /// Which state of the responses is on disk.
    journal_changes: Option<u64>,
    controller: Option<Controller>,
    hosts: Vec<HostSpec>,
    /// The sizes of the volumes that the controller knows.
    registered: BTreeMap<VolumeId, u64>,
}

impl Loop {
    fn now(&self) -> Nanos {
        Nanos::from(self.shared.started.elapsed())
    }

    fn run(mut self, reports: &Receiver<Report>) {
        let interval = Duration::from_nanos(self.shared.config.interval.0);
        let mut next = Instant::now() + interval;
        let past_every = self.shared.config.control.foresight.bucket_intervals as u64;
        let mut clock = ClockWatch::default();
        while !self.shared.is_stopping() {
            clock.tell(Moment::now());
            match reports.recv_timeout(LOOK_EVERY.min(next.saturating_duration_since(Instant::now()))) {
                Ok((order, outcome)) => {
                    let now = self.now();
                    self.responses.report(order, outcome, now);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let mut decisions = Vec::new();
            if Instant::now() >= next {
                decisions = self.turn();
                let steps = self.shared.state().steps;
                if steps.is_multiple_of(past_every) {
                    self.keep_past();
                }
                // Late turns are left out rather than caught up with.
                while next <= Instant::now() {
                    next += interval;
                }
            }
            self.go_on(reports);
            decisions.extend(self.responses.decisions());
            self.remember(decisions);
        }
        self.keep_past();
    }

    /// Hears of everything, and has the controller decide.
    fn turn(&mut self) -> Vec<Decision> {
        let began = Instant::now();
        let now = self.now();
        let heard = self.observer.hear(&self.shared.config, now, &self.responses, &self.carriers);
        let mut decisions = heard.decisions;
        let mut observation = Observation {
            at: now,
            interval: self.shared.config.interval,
            volumes: heard.volumes,
            ..Observation::default()
        };
        let (of, _) = origins(&self.shared.config);
        let mut busy: BTreeMap<OriginId, f64> = BTreeMap::new();
        for (id, utilisation) in heard.utilisation {
            let known = busy.entry(of[id.0 as usize]).or_default();
            *known = known.max(utilisation);
        }
        let said = |(origin, utilisation)| OriginObservation { origin, utilisation: Some(utilisation) };
        observation.origins = busy.into_iter().map(said).collect();
        let beside = self.responses.beside();
        let room =
            |host: &HostSpec| HostObservation { host: host.id, free: self.responses.free(host.id), beside };
        observation.hosts = self.hosts.iter().map(room).collect();
        match catch_unwind(AssertUnwindSafe(|| self.decide(&heard.sizes, &observation))) {
            Ok(None) => {}
            Ok(Some(outcome)) => {
                decisions.extend(outcome.decisions);
                for action in outcome.actions {
                    self.act(action, &observation);
                }
            }
            Err(panic) => self.died(panic_text(&*panic)),
        }
        let volumes =
            showing::volumes(&self.shared.config, &self.observer, &self.responses, self.controller.as_ref());
        let mut state = self.shared.state();
        state.granted_bytes = volumes.iter().map(|volume| volume.quota_bytes).sum();
        state.volumes = volumes;
        state.steps += 1;
        state.last_step = began.elapsed();
        decisions
    }

    /// Asks the controller, once there is one.
    fn decide(&mut self, sizes: &BTreeMap<VolumeId, u64>, observation: &Observation) -> Option<StepOutcome> {
        self.register(sizes);
        let controller = self.controller.as_mut()?;
        for id in self.registered.keys() {
            let host = self.responses.status(*id).and_then(|status| status.host);
            controller.located(*id, host, self.responses.most(*id));
        }
        #[cfg(test)]
        assert!(!self.shared.panics_next_step.swap(false, Ordering::Relaxed), "injected by a test");
        let outcome = controller.step(observation);
        self.shared.state().is_dead = false;
        Some(outcome)
    }

    /// The next turn has another controller, which takes over the caches that are there. What is under way goes on.
    fn died(&mut self, what: String) {
        tracing::error!(what, "the controller died; what is under way goes on, and it is started again");
        self.controller = None;
        self.registered.clear();
        let mut state = self.shared.state();
        (state.is_dead, state.last_panic) = (true, Some(what));
        state.restarts += 1;
    }

    /// Tells the controller of volumes whose size is known now; one that already has a cache is taken over with it.
    fn register(&mut self, sizes: &BTreeMap<VolumeId, u64>) {
        let config = &self.shared.config;
        let (of, specs) = origins(config);
        let new: Vec<(VolumeId, u64)> = (sizes.iter())
            .filter(|(id, size)| self.registered.get(id) != Some(size) && **size > 0)
            .map(|(id, size)| (*id, *size))
            .collect();
        if new.is_empty() {
            return;
        }
        let first = self.controller.is_none();
        let capacity = Bytes(self.hosts.iter().map(|host| host.capacity.get()).sum());
        let hosts = self.hosts.clone();
        let controller = self.controller.get_or_insert_with(|| {
            // Memory of hosts that no appliance uses is theirs.
            let rules = ControlConfig { spare_share: 0.0, ..config.control.clone() };
            Controller::new(rules, capacity, hosts, specs).expect("the configuration was checked")
        });
        for (id, size) in new {
            let volume = &config.volume[id.0 as usize];
            let block_size = BlockSize::new(volume.block_size).expect("the configuration was checked");
            let spec = VolumeSpec {
                id,
                name: volume.name.clone(),
                size: Bytes(size),
                block_size,
                origin: of[id.0 as usize],
                host: home(config, volume),
                objectives: config.objectives(&volume.name),
                may_cache: volume.route.is_some() && volume.watch.is_some(),
                minimum: Bytes::ZERO,
                maximum: None,
            };
            if let Err(error) = controller.register(spec) {
                tracing::error!(volume = volume.name, %error, "the controller refuses the volume");
            }
            // Also one that is only on its way: else nobody would take it back.
            if let Some(status) = self.responses.status(id).filter(|status| status.wanted_bytes > 0) {
                let host = status.host.unwrap_or_else(|| home(config, volume));
                controller.take_over(id, host, status.wanted_bytes / block_size.bytes());
            }
            self.registered.insert(id, size);
        }
        if first && let Some(history) = &config.history {
            past::recall(&past::file_of(history), controller, &Stamp::now(), config.interval);
        }
    }

    fn act(&mut self, action: Action, observation: &Observation) {
        let config = &self.shared.config;
        let block = |id: VolumeId| config.volume[id.0 as usize].block_size.get();
        match action {
            Action::SetQuota { volume, blocks: 0, .. } => {
                self.responses.give_back(volume, "its cache is taken back");
            }
            Action::SetQuota { volume, host, blocks } => {
                let seen = observation.volumes.iter().find(|seen| seen.volume == volume);
                let seconds = observation.interval.as_secs_f64();
                // To a power of two, so that it is another wish only where it matters.
                let rate = seen
                    .map_or(0.0, |seen| (seen.completed() as f64 / seconds).max(1.0).log2().ceil().exp2());
                let cache = Bytes(blocks * block(volume));
                self.responses.want(volume, Wish { cache, flash: Bytes::ZERO, rate, host: Some(host) });
            }
            Action::Prewarm { volume, zones, bytes_per_second } => {
                self.responses.warm(volume, zones, bytes_per_second);
            }
            // What is being loaded ends with its cache.
            Action::CancelPrewarm { .. } => {}
            Action::ListResident { volume } => self.observer.list(volume),
            other => tracing::error!(?other, "an action that this controller does not know"),
        }
    }

    /// Asks the responses what is due, keeps the journal, and has it carried out.
    fn go_on(&mut self, reports: &Receiver<Report>) {
        let now = self.now();
        let mut orders = due(&mut self.responses, reports, now);
        if self.journal_changes != Some(self.responses.changes()) {
            match kept::replace(&self.journal_file, &self.responses.journal()) {
                Ok(()) => self.journal_changes = Some(self.responses.changes()),
                Err(error) => {
                    tracing::error!(path = %self.journal_file.display(), %error, "the journal cannot be written; nothing is begun");
                    // Who is not asked would be taken for one that does not answer, and be given up.
                    let (asking, others) = orders.into_iter().partition(|order| order.what.only_asks());
                    orders = asking;
                    self.refuse(others, &error);
                }
            }
        }
        orders.into_iter().for_each(|order| self.carriers.take(order));
    }

    fn refuse(&mut self, orders: Vec<Order>, error: &io::Error) {
        let now = self.now();
        for order in orders {
            let why = format!("the journal cannot be written: {error}");
            self.responses.report(order.id, Outcome::Refused(why), now);
        }
    }

    fn keep_past(&self) {
        if let (Some(controller), Some(history)) = (&self.controller, &self.shared.config.history) {
            past::keep(&past::file_of(history), controller, Stamp::now(), self.shared.config.interval);
        }
    }

    fn remember(&self, decisions: Vec<Decision>) {
        if decisions.is_empty() {
            return;
        }
        let at_unix_ms = unix_ms();
        let dated: Vec<DatedDecision> =
            decisions.into_iter().map(|decision| DatedDecision { at_unix_ms, decision }).collect();
        for DatedDecision { decision, .. } in &dated {
            tracing::info!(volume = decision.volume_name, kind = ?decision.kind, "{}", decision.summary);
        }
        let mut state = self.shared.state();
        for decision in &dated {
            if state.decisions.len() == DECISIONS_MAX {
                state.decisions.pop_front();
            }
            state.decisions.push_back(decision.clone());
        }
        drop(state);
        if let Some(history) = &self.shared.history {
            history.keep(Batch { intervals: Vec::new(), decisions: dated });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Daemon;
    use crate::config::{Config, OriginConfig, VolumeConfig};
    use crate::status::{ControllerState, Status};
    use forebay_control::response::{Draining, ResponseRules, What};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_secret_of_appliances_stays_the_same_and_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret.json");
        let made = secret(folder.path()).unwrap();
        assert!(!is_readable_by_others(&path));
        // As earlier versions left it.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(secret(folder.path()).unwrap(), made);
        assert!(!is_readable_by_others(&path));
    }

    #[test]
    fn a_controller_that_panics_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let volume = VolumeConfig::new("db", OriginConfig::Memory { size: Bytes::mib(1) });
        let mut storage = Config::new(vec![volume]);
        storage.control.interval = Duration::from_millis(100);
        storage.http.socket = Some(folder.path().join("watch.sock"));
        let storage = Daemon::start(storage).unwrap();
        let file = folder.path().join("control.toml");
        let text = r#"
            socket = "control.sock"
            state = "state"
            interval = "100ms"
            [[host]]
            name = "h1"
            memory = "16MiB"
            [[volume]]
            name = "db"
            home = "h1"
            origin = "nbd+unix:///db?socket=nowhere.sock"
            watch = "unix:watch.sock"
            leased = false
            "#;
        std::fs::write(&file, text).unwrap();
        let fleet = Fleet::start(FleetConfig::read(&file).unwrap()).unwrap();
        let wait = |what: &str, done: &dyn Fn(&Status) -> bool| {
            let deadline = Instant::now() + Duration::from_secs(20);
            while !done(&fleet.status()) {
                assert!(Instant::now() < deadline, "{what}");
                thread::sleep(Duration::from_millis(5));
            }
        };
        wait("the volume is not heard of", &|status| {
            status.volumes.first().is_some_and(|of| of.size_bytes > 0)
        });
        fleet.shared.panics_next_step.store(true, Ordering::Relaxed);
        wait("it does not panic", &|status| status.controller.restarts == 1);
        assert_eq!(fleet.status().controller.last_panic.as_deref(), Some("injected by a test"));
        let steps = fleet.status().controller.steps;
        wait("it does not come back", &|status| {
            status.controller.state == ControllerState::Running && status.controller.steps >= steps + 3
        });
        drop(fleet);
        storage.shutdown();
    }

    #[test]
    fn a_lost_journal_is_told_and_nothing_is_done_before_the_route_says_what_was_done() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("control.toml");
        let text = r#"
            socket = "control.sock"
            state = "state"
            interval = "100ms"
            [[host]]
            name = "h1"
            memory = "16MiB"
            [[volume]]
            name = "db"
            home = "h1"
            origin = "nbd+unix:///db?socket=nowhere.sock"
            watch = "unix:watch.sock"
            route = { type = "proxy", server = "unix:proxy.sock" }
            leased = false
            "#;
        std::fs::write(&file, text).unwrap();
        let start = || Fleet::start(FleetConfig::read(&file).unwrap()).unwrap();
        let wait = |fleet: &Fleet, step: &str| {
            let deadline = Instant::now() + Duration::from_secs(20);
            let of = |status: Status| status.volumes.first().map(|of| of.origin.description.clone());
            while !of(fleet.status()).is_some_and(|description| description.contains(step)) {
                assert!(Instant::now() < deadline, "never {step}");
                thread::sleep(Duration::from_millis(5));
            }
        };
        let journal = folder.path().join("state/responses.json");
        let next_appliance = || {
            let journal: serde_json::Value = kept::read(&journal).unwrap().unwrap();
            journal["next_appliance"].as_u64().unwrap()
        };
        let fleet = start();
        wait(&fleet, "looking what was done before");
        assert_eq!(next_appliance(), 1);
        drop(fleet);
        std::fs::remove_file(&journal).unwrap();
        // Nor after a restart in the middle of it.
        drop(start());
        let fleet = start();
        wait(&fleet, "looking what was done before");
        assert!(next_appliance() > 1_700_000_000, "numbers of before are used again");
        let volume = VolumeConfig::new("db", OriginConfig::Memory { size: Bytes::mib(1) });
        let mut proxy = Config::new(vec![volume]);
        proxy.http.socket = Some(folder.path().join("proxy.sock"));
        let proxy = Daemon::start(proxy).unwrap();
        wait(&fleet, "original route");
        drop(fleet);
        proxy.shutdown();
    }

    #[test]
    fn the_lease_of_a_volume_that_is_only_watched_stays_its_holders() {
        let folder = tempfile::tempdir().unwrap();
        let volume = VolumeConfig::new("db", OriginConfig::Memory { size: Bytes::mib(1) });
        let mut storage = Config::new(vec![volume]);
        storage.control.interval = Duration::from_millis(100);
        storage.http.socket = Some(folder.path().join("watch.sock"));
        storage.leases = Some(folder.path().join("leases.json"));
        let storage = Daemon::start(storage.watching().unwrap()).unwrap();
        let raise = serde_json::json!({ "epoch": 5, "holder": "named" });
        storage.raise_lease("db", serde_json::from_value(raise).unwrap()).unwrap();
        let file = folder.path().join("control.toml");
        let text = r#"
            socket = "control.sock"
            state = "state"
            interval = "100ms"
            [[host]]
            name = "h1"
            memory = "16MiB"
            [[volume]]
            name = "db"
            home = "h1"
            origin = "nbd+unix:///db?socket=nowhere.sock"
            watch = "unix:watch.sock"
            "#;
        std::fs::write(&file, text).unwrap();
        let fleet = Fleet::start(FleetConfig::read(&file).unwrap()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while fleet.status().controller.steps < 5 {
            assert!(Instant::now() < deadline, "it stands still");
            thread::sleep(Duration::from_millis(5));
        }
        drop(fleet);
        assert_eq!(storage.status().volumes[0].lease.as_ref().map(|lease| lease.epoch), Some(5));
        storage.shutdown();
    }

    #[test]
    fn who_cannot_write_its_journal_asks_on() {
        let folder = tempfile::tempdir().unwrap();
        let volume = VolumeConfig::new("db", OriginConfig::Memory { size: Bytes::mib(1) });
        let mut proxy = Config::new(vec![volume]);
        proxy.http.socket = Some(folder.path().join("proxy.sock"));
        let proxy = Daemon::start(proxy).unwrap();
        // Nothing can be written beside it.
        std::fs::create_dir_all(folder.path().join("state/responses.json.new")).unwrap();
        let file = folder.path().join("control.toml");
        let text = r#"
            socket = "control.sock"
            state = "state"
            interval = "100ms"
            [[host]]
            name = "h1"
            memory = "16MiB"
            [[volume]]
            name = "db"
            home = "h1"
            origin = "nbd+unix:///db?socket=nowhere.sock"
            watch = "unix:watch.sock"
            route = { type = "proxy", server = "unix:proxy.sock" }
            leased = false
            "#;
        std::fs::write(&file, text).unwrap();
        let fleet = Fleet::start(FleetConfig::read(&file).unwrap()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let of = |status: Status| status.volumes.first().map(|of| of.origin.description.clone());
        while !of(fleet.status()).is_some_and(|description| description.contains("original route")) {
            assert!(Instant::now() < deadline, "the route is not asked");
            thread::sleep(Duration::from_millis(5));
        }
        assert!(!folder.path().join("state/responses.json").exists());
        drop(fleet);
        proxy.shutdown();
    }

    #[test]
    fn what_was_reported_during_a_slow_turn_is_not_lost() {
        let host = HostSpec::new(HostId(0), "h1", 0, Bytes::gib(4));
        let mut responses = Responses::new(ResponseRules::default(), vec![host]);
        for index in 0..3 {
            let route = VolumeRoute {
                name: format!("v{index}"),
                draining: Draining::ByItself,
                leased: false,
                home: HostId(0),
                unfit: Vec::new(),
            };
            responses.register(id_of(index), route);
            let wish = Wish { cache: Bytes::mib(16), flash: Bytes::ZERO, rate: 64.0, host: None };
            responses.want(id_of(index), wish);
        }
        let (reporter, reports) = channel();
        let starts: Vec<_> = (1..4).flat_map(|at| due(&mut responses, &reports, Nanos::secs(at))).collect();
        assert_eq!(starts.len(), 3);
        starts.iter().for_each(|order| reporter.send((order.id, Outcome::Done)).unwrap());
        // Long after each of them counts as lost, if nothing is heard.
        let next = due(&mut responses, &reports, Nanos::secs(100));
        assert!(
            next.len() == 3 && next.iter().all(|order| matches!(order.what, What::Probe { .. })),
            "{next:?}"
        );
    }

    #[test]
    fn a_folder_of_state_is_one_controllers() {
        let folder = tempfile::tempdir().unwrap();
        let config = |socket: &str| {
            let file = folder.path().join("control.toml");
            let text = format!(
                r#"
                socket = "{socket}"
                state = "state"
                [[host]]
                name = "h1"
                memory = "16MiB"
                [[volume]]
                name = "db"
                home = "h1"
                origin = "nbd+unix:///db?socket=/nowhere.sock"
                watch = "unix:/nowhere-http.sock"
                "#
            );
            std::fs::write(&file, text).unwrap();
            FleetConfig::read(&file).unwrap()
        };
        let first = Fleet::start(config("one.sock")).unwrap();
        let refused = Fleet::start(config("two.sock")).err().map(|error| error.to_string());
        assert!(
            refused.as_ref().is_some_and(|error| error.contains("another process has it")),
            "{refused:?}"
        );
        drop(first);
        drop(Fleet::start(config("two.sock")).unwrap());
    }
}
