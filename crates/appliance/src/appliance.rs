//! The handle of a running data path: start, change volumes, observe, stop. For daemons, demonstrations and tests.
//!
//! It is not on the path of any request: workers serve whether anybody holds the handle, asks it, or is stuck. Every method
//! may be called from any thread, waits for a worker's turn (well under a millisecond unless said otherwise), and never
//! for I/O.

mod errors;
mod settings;

pub use errors::{AddVolumeError, CommandError, LeaseError, StartError, WorkerGone};
pub use settings::{ApplianceConfig, VolumeConfig, VolumeFlashConfig};

use crate::clock::Clock;
use crate::driver::{
    Acceptor, AcceptorHandle, BoundAddress, FLASH_ALIGNMENT, FLASH_SEGMENT_BYTES, Inbox, Listener,
    ListenerConfig, Message, TlsAcceptor, VolumeFlash, Worker,
};
use crate::refusals::RefusedCounts;
use crate::service::{Directory, DirectoryEntry, Entrance, Lease, NAME_BYTES_MAX, ServiceLimits, new_run};
use crate::slab::SlabKey;
use crate::volume::{
    ClientAddress, FlashPlacing, ListedBlock, ListingPiece, Prewarm, PrewarmPlan, VolumeMachine,
    VolumeObservation, VolumePulse, VolumeSettings,
};
use forebay_cache::flash::{FlashError, FlashVolumeSettings, VolumeId};
use forebay_nbd::server::Config;
use forebay_nbd::{BlockSizes, ExportInfo};
use forebay_origin::{OriginStatistics, OriginTraits};
use forebay_ring::{Engine, EngineChoice};
use forebay_tls::Tunnels;
use forebay_units::{Bytes, Nanos, mix64};
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel, sync_channel};
use std::sync::{Arc, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// One volume as it was at an instant; owned.
#[derive(Clone, Debug)]
pub struct VolumeSnapshot {
    /// Its name.
    pub name: String,
    /// Size in bytes.
    pub size: Bytes,
    /// Refuses every change.
    pub read_only: bool,
    /// Clients that chose it and are still here.
    pub connections: usize,
    /// What its machine observed.
    pub observation: VolumeObservation,
    /// What and where its origin is, for people.
    pub origin: String,
    /// What its origin is and can do.
    pub origin_traits: OriginTraits,
    /// What its origin says of itself.
    pub origin_statistics: OriginStatistics,
}

/// How a volume, or all of them, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Drained {
    /// Everything in flight was answered.
    Completely,
    /// So it was, but the origin failed the flush behind the last request: what it acknowledged may not be on stable storage. The log says which, and why.
    NotFlushed,
    /// The time was over first: some clients got no answer, and requests may still be at the origin.
    TimedOut,
}

struct WorkerThread {
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
    volumes: AtomicUsize,
}

/// A running data path. Dropping it shuts it down at once; [`Appliance::shutdown`] does so in order.
pub struct Appliance {
    clock: Clock,
    directory: Arc<RwLock<Directory>>,
    workers: Vec<WorkerThread>,
    acceptor: Arc<AcceptorHandle>,
    acceptor_thread: Option<JoinHandle<()>>,
    listeners: Vec<BoundAddress>,
    connections: Arc<AtomicUsize>,
    refused: Arc<RefusedCounts>,
    limits: ServiceLimits,
    io: Engine,
    /// Ends after the workers, whose last replies it hands on.
    tunnels: Option<Arc<Tunnels>>,
}

impl Appliance {
    /// Starts threads, opens listeners, adds volumes. Nothing listens unless everything worked.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left behind then.
    pub fn start(config: ApplianceConfig) -> Result<Appliance, StartError> {
        let listeners = config.listeners.iter().map(Listener::open).collect::<Result<Vec<_>, _>>()?;
        let offers_tls = |listener: &ListenerConfig| matches!(listener, ListenerConfig::Tls { .. });
        let tls = match config.tls {
            Some(certificates) => {
                Some(TlsAcceptor { certificates, tunnels: Arc::new(Tunnels::start("tls")?) })
            }
            None if config.listeners.iter().any(offers_tls) => return Err(StartError::NoCertificate),
            None => None,
        };
        let clock = Clock::start();
        let directory = Arc::new(RwLock::new(Directory::default()));
        let acceptor = Arc::new(AcceptorHandle::new().map_err(io::Error::from)?);
        let mut appliance = Appliance {
            clock,
            directory: directory.clone(),
            workers: Vec::new(),
            acceptor: acceptor.clone(),
            acceptor_thread: None,
            listeners: listeners.iter().map(|listener| listener.address.clone()).collect(),
            connections: Arc::default(),
            refused: Arc::default(),
            limits: config.limits,
            io: match config.io {
                EngineChoice::Threads => Engine::Threads { reason: "as configured".to_owned() },
                EngineChoice::Auto | EngineChoice::IoUring => Engine::IoUring,
            },
            tunnels: tls.as_ref().map(|tls| tls.tunnels.clone()),
        };
        for index in 0..config.workers.max(1) {
            let inbox = Arc::new(Inbox::new().map_err(io::Error::from)?);
            let worker = Worker::new(inbox.clone(), config.limits, config.batch_wait, clock)
                .map_err(io::Error::from)?;
            let (started, answer) = sync_channel(1);
            let thread = std::thread::Builder::new()
                .name(format!("worker-{index}"))
                .spawn(move || worker.run(config.io, &started))?;
            appliance.workers.push(WorkerThread {
                inbox,
                thread: Some(thread),
                volumes: AtomicUsize::new(0),
            });
            match answer.recv().map_err(|_| io::Error::other("a worker thread ended at its start"))? {
                Ok(()) => {}
                Err(refused) if config.io == EngineChoice::IoUring => return Err(StartError::Io(refused)),
                Err(refused) => appliance.io = Engine::Threads { reason: refused.to_string() },
            }
        }
        tracing::info!(io = %appliance.io, "how files are read and written");
        for volume in config.volumes {
            appliance.add_volume(volume)?;
        }
        let nbd = Config { payload_bytes_max: config.limits.request_bytes_max, ..Config::default() };
        let inboxes = appliance.workers.iter().map(|worker| worker.inbox.clone()).collect();
        let thread = Acceptor::new(
            acceptor,
            listeners,
            nbd,
            tls,
            directory,
            inboxes,
            appliance.connections.clone(),
            config.connections_max,
            appliance.refused.clone(),
            clock,
        )
        .map_err(io::Error::from)?;
        appliance.acceptor_thread =
            Some(std::thread::Builder::new().name("acceptor".to_owned()).spawn(move || thread.run())?);
        Ok(appliance)
    }

    /// Where it listens, in the order of the configuration, with the ports that were chosen.
    pub fn listeners(&self) -> &[BoundAddress] {
        &self.listeners
    }

    /// How files are read and written.
    pub fn io(&self) -> &Engine {
        &self.io
    }

    /// The time on the data path's clock, to which all times in snapshots refer.
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// The names of all volumes, sorted.
    pub fn volumes(&self) -> Vec<String> {
        self.read().entries.keys().cloned().collect()
    }

    /// Client connections, handshakes included.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Clients that were sent away before they had a volume, by a word for why; every word, from the start on.
    pub fn refused(&self) -> Vec<(&'static str, u64)> {
        self.refused.by_word(self.tunnels.as_ref().map_or(0, |tunnels| tunnels.failed()))
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Directory> {
        self.directory.read().expect("nobody panics while holding the directory")
    }

    /// Adds a volume; clients may choose it when this returns.
    ///
    /// # Errors
    /// [`AddVolumeError`].
    pub fn add_volume(&self, config: VolumeConfig) -> Result<(), AddVolumeError> {
        let name = config.name.clone();
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(AddVolumeError::Name { bytes: name.len() });
        }
        if self.read().entries.contains_key(&name) {
            return Err(AddVolumeError::Exists { name });
        }
        let (worker, thread) = self
            .workers
            .iter()
            .enumerate()
            .min_by_key(|(_, worker)| {
                let has_ended = worker.inbox.ended().load(Ordering::Acquire);
                (has_ended, worker.volumes.load(Ordering::Relaxed))
            })
            .expect("there is at least one worker");
        let origin_traits = config.origin.traits();
        // Secret enough against clients that would collide on purpose: nothing that they see depends on it but time.
        let seed = mix64(self.clock.now().0 ^ u64::from(std::process::id()) << 32);
        let settings = VolumeSettings {
            origin: origin_traits,
            read_only: config.read_only,
            block_size: config.block_size,
            quota: config.quota,
            single_touch_share: config.single_touch_share,
            seed,
            locality: config.locality,
            limits: config.limits,
        };
        let mut machine = VolumeMachine::new(settings, self.clock.now())
            .map_err(|source| AddVolumeError::Settings { name: name.clone(), source })?;
        let flash = config
            .flash
            .as_ref()
            .map(|flash| attach_flash(&config, flash, &mut machine, seed))
            .transpose()?;
        let export = self.export(&config, &machine, &origin_traits);
        let (reply, answer) = sync_channel(1);
        let origin = config.origin.clone();
        thread.inbox.send(Message::AddVolume { machine: Box::new(machine), origin, flash, reply });
        let (volume, is_in_doubt) = answer.recv().map_err(|_| WorkerGone { worker })?;
        let mut directory = self.write();
        if directory.entries.contains_key(&name) {
            // Two callers added the same name at the same time; the first one stays.
            drop(directory);
            let (reply, _) = sync_channel(1);
            thread.inbox.send(Message::RemoveVolume { volume, timeout: Duration::ZERO, reply });
            return Err(AddVolumeError::Exists { name });
        }
        thread.volumes.fetch_add(1, Ordering::Relaxed);
        if let Some(lease) = config.lease {
            // Before anybody can choose it, so nobody is fenced and nothing is to be waited for.
            let (reply, _) = sync_channel(1);
            thread.inbox.send(Message::Fence { volume, lease, timeout: Duration::ZERO, reply });
        }
        let connections = Arc::default();
        let VolumeConfig { origin, lease, secret, .. } = config;
        let run = new_run();
        let worker_ended = thread.inbox.ended().clone();
        let entry = DirectoryEntry {
            export,
            worker,
            worker_ended,
            volume,
            is_in_doubt,
            connections,
            origin,
            lease,
            secret,
            run,
        };
        directory.entries.insert(name, entry);
        Ok(())
    }

    fn export(&self, config: &VolumeConfig, machine: &VolumeMachine, origin: &OriginTraits) -> ExportInfo {
        let min = origin.block_size_min.clamp(1, 1 << 16);
        let max = self.limits.request_bytes_max;
        ExportInfo {
            description: config.description.clone(),
            read_only: machine.is_read_only(),
            trim: origin.can_trim,
            write_zeroes: true,
            fast_zero: origin.can_fast_zero,
            cache: true,
            block_status: true,
            multi_conn: origin.can_multi_conn,
            block_sizes: BlockSizes {
                min,
                preferred: (config.block_size.bytes() as u32).max(origin.block_size_preferred).max(512),
                max: max - max % min,
            },
            ..ExportInfo::new(config.name.clone(), origin.size_bytes)
        }
    }

    /// Takes a volume away: no new clients; requests in flight complete, for at most `timeout`, while new ones get
    /// `ESHUTDOWN`; then its clients are disconnected. Waits for that.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn remove_volume(&self, name: &str, timeout: Duration) -> Result<Drained, CommandError> {
        let entry = {
            let mut directory = self.write();
            directory.entries.remove(name)
        };
        let Some(DirectoryEntry { worker, volume, .. }) = entry else {
            return Err(CommandError::Unknown { name: name.to_owned() });
        };
        let (reply, answer) = sync_channel(1);
        self.workers[worker].inbox.send(Message::RemoveVolume { volume, timeout, reply });
        let drained = answer.recv().map_err(|_| WorkerGone { worker })?;
        self.workers[worker].volumes.fetch_sub(1, Ordering::Relaxed);
        Ok(drained)
    }

    /// Removals that wait, and those to come, wait for at most `timeout` from now on: for who is about to shut down.
    pub fn hurry(&self, timeout: Duration) {
        self.workers.iter().for_each(|worker| worker.inbox.send(Message::Hurry { timeout }));
    }

    pub(crate) fn inbox(&self, worker: usize) -> &Inbox {
        &self.workers[worker].inbox
    }

    pub(crate) fn write(&self) -> std::sync::RwLockWriteGuard<'_, Directory> {
        self.directory.write().expect("nobody panics while holding the directory")
    }

    pub(crate) fn entry(&self, name: &str) -> Result<DirectoryEntry, CommandError> {
        let unknown = || CommandError::Unknown { name: name.to_owned() };
        self.read().entries.get(name).cloned().ok_or_else(unknown)
    }

    fn command<R: Send + 'static>(
        &self,
        worker: usize,
        volume: SlabKey,
        command: impl FnOnce(&mut VolumeMachine, Nanos) -> R + Send + 'static,
    ) -> Receiver<Option<R>> {
        let (reply, answer) = sync_channel(1);
        let command = Box::new(move |machine: Option<&mut VolumeMachine>, now: Nanos| {
            let _ = reply.send(machine.map(|machine| command(machine, now)));
        });
        self.workers[worker].inbox.send(Message::Command { volume, command });
        answer
    }

    pub(crate) fn run<R: Send + 'static>(
        &self,
        name: &str,
        command: impl FnOnce(&mut VolumeMachine, Nanos) -> R + Send + 'static,
    ) -> Result<R, CommandError> {
        let entry = self.entry(name)?;
        let answer = self.command(entry.worker, entry.volume, command);
        let result = answer.recv().map_err(|_| WorkerGone { worker: entry.worker })?;
        result.ok_or_else(|| CommandError::Unknown { name: name.to_owned() })
    }

    /// Sets a volume's quota; whole blocks of it are used. Growth is at once; a smaller quota is put in force in small steps
    /// between requests, which [`VolumeObservation::quota_progress`] tells.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn set_quota(&self, name: &str, quota: Bytes) -> Result<(), CommandError> {
        self.run(name, move |machine, _| machine.set_quota(quota))
    }

    /// Sets a volume's quota on flash; whole segments of it are used. A smaller one is put in force in small steps between requests. Without
    /// effect on a volume that has no flash.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn set_flash_quota(&self, name: &str, quota: Bytes) -> Result<(), CommandError> {
        self.run(name, move |machine, _| machine.set_flash_quota(quota))
    }

    /// Lets onto a volume's flash what `how` says from now on; `None`: whatever memory evicts. What is there stays. Without effect on a volume
    /// that has no flash.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn set_flash_placing(&self, name: &str, how: Option<FlashPlacing>) -> Result<(), CommandError> {
        self.run(name, move |machine, _| machine.set_flash_placing(how))
    }

    /// Requests of these clients, and of no others, bring nothing onto a volume's flash from now on, where chunks are placed on it; they are answered from it as
    /// everybody's are.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn leave_out_of_flash(
        &self,
        name: &str,
        clients: BTreeSet<ClientAddress>,
    ) -> Result<(), CommandError> {
        self.run(name, move |machine, _| machine.leave_out_of_flash(clients))
    }

    /// Starts a warm-up in place of the one that goes on; [`VolumeObservation::prewarm`] tells how far it is.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn prewarm(&self, name: &str, plan: PrewarmPlan) -> Result<(), CommandError> {
        // A long list is put in shape here, not on the worker.
        let (size, block_size) = self.run(name, |machine, _| (machine.size_bytes(), machine.block_size()))?;
        let prewarm = Prewarm::new(plan, size, block_size);
        self.run(name, move |machine, _| machine.start_prewarm(prewarm))
    }

    /// Sets the rate of the warm-up, if one goes on: bytes per second at most, 0: none for now; `None`: as fast as its outstanding reads allow.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn set_prewarm_rate(&self, name: &str, rate: Option<Bytes>) -> Result<(), CommandError> {
        self.run(name, move |machine, now| machine.set_prewarm_rate(now, rate))
    }

    /// What a volume has in memory, in no order. The worker tells it in pieces between requests; this waits for the last: some 20 ns per
    /// block. A block that moved meanwhile may be in it twice, or be missing.
    ///
    /// # Errors
    /// [`CommandError`], also if the volume ended before all was told.
    pub fn list_resident(&self, name: &str) -> Result<Vec<ListedBlock>, CommandError> {
        let (sender, pieces) = channel();
        self.run(name, move |machine, _| machine.list_resident(sender))?;
        let mut listed = Vec::new();
        loop {
            match pieces.recv() {
                Ok(ListingPiece::Blocks(blocks)) => listed.extend_from_slice(&blocks),
                Ok(ListingPiece::End) => return Ok(listed),
                Err(_) => return Err(CommandError::Unknown { name: name.to_owned() }),
            }
        }
    }

    /// The little of a volume that is asked for often; for the rest there is [`Appliance::observe`].
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn pulse(&self, name: &str) -> Result<VolumePulse, CommandError> {
        self.run(name, |machine, now| machine.pulse(now))
    }

    /// Ends the warm-up, if one goes on.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn cancel_prewarm(&self, name: &str) -> Result<(), CommandError> {
        self.run(name, |machine, _| machine.cancel_prewarm())
    }

    /// An operator declares that no write of unknown outcome will be applied any more: ranges in doubt are served and
    /// cached again. Only who runs the storage can know.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn settle(&self, name: &str) -> Result<(), CommandError> {
        self.entry(name)?.origin.settle();
        self.run(name, |machine, _| machine.settle())
    }

    /// Who is let in to a volume; `None`: everybody.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn lease(&self, name: &str) -> Result<Option<Lease>, CommandError> {
        Ok(self.entry(name)?.lease)
    }

    /// Raises a volume's lease to `lease`: from here on only whom it admits is let in and served. Waits, for at most `timeout`, until of the
    /// others nothing is at the origin; only when this returns well is that so. Raised to what holds already, it waits again.
    ///
    /// # Errors
    /// [`LeaseError`]; after [`LeaseError::Fence`] the lease is raised, and this can be called again to go on waiting.
    pub fn raise_lease(&self, name: &str, lease: Lease, timeout: Duration) -> Result<(), LeaseError> {
        let owned = || name.to_owned();
        let (worker, answer) = {
            let mut directory = self.write();
            let entry = directory.entries.get_mut(name);
            let entry = entry.ok_or_else(|| CommandError::Unknown { name: owned() })?;
            let now = entry.lease.ok_or_else(|| LeaseError::NotLeased { name: owned() })?;
            let raised = now.raised(lease).map_err(|source| LeaseError::Stale { name: owned(), source })?;
            entry.lease = Some(raised);
            // Sent under the lock: two that raise it reach the worker in the order of their epochs.
            let (reply, answer) = sync_channel(1);
            let fence = Message::Fence { volume: entry.volume, lease: raised, timeout, reply };
            self.workers[entry.worker].inbox.send(fence);
            (entry.worker, answer)
        };
        let fenced = answer.recv().map_err(|_| CommandError::Worker(WorkerGone { worker }))?;
        fenced.map_err(|source| LeaseError::Fence { name: owned(), source })
    }

    /// Whether a client is connected to the volume `name` by this entrance. By an epoch nobody is where there is no lease.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn is_entered_by(&self, name: &str, entrance: Entrance) -> Result<bool, CommandError> {
        let entry = self.entry(name)?;
        let (reply, answer) = sync_channel(1);
        self.inbox(entry.worker).send(Message::IsEnteredBy { volume: entry.volume, entrance, reply });
        answer.recv().map_err(|_| WorkerGone { worker: entry.worker }.into())
    }

    /// What is known of one volume. `end_interval` starts a new interval of latencies; of several observers only one, the
    /// controller, should.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn observe(&self, name: &str, end_interval: bool) -> Result<VolumeSnapshot, CommandError> {
        let entry = self.entry(name)?;
        let answer = self.ask(&entry, end_interval);
        snapshot(&entry, &answer)
    }

    /// What is known of every volume, sorted by name. Volumes that end meanwhile are missing, and those whose worker has ended. All workers
    /// are asked before the first answer is waited for.
    pub fn observe_all(&self, end_interval: bool) -> Vec<VolumeSnapshot> {
        let entries: Vec<DirectoryEntry> = self.read().entries.values().cloned().collect();
        let asked: Vec<_> = entries.iter().map(|entry| (entry, self.ask(entry, end_interval))).collect();
        // An interval that was ended is told to nobody else, so whoever answers is heard.
        asked.into_iter().filter_map(|(entry, answer)| snapshot(entry, &answer).ok()).collect()
    }

    fn ask(&self, entry: &DirectoryEntry, end_interval: bool) -> Receiver<Option<VolumeObservation>> {
        self.command(entry.worker, entry.volume, move |machine, now| machine.observe(now, end_interval))
    }

    /// Workers that have panicked: their volumes are not served any more. A bug; the log says which.
    pub fn workers_gone(&self) -> usize {
        let gone = |worker: &&WorkerThread| worker.thread.as_ref().is_some_and(JoinHandle::is_finished);
        self.workers.iter().filter(gone).count()
    }

    /// Stops listening, lets what is in flight complete for at most `timeout`, has origins flush where clients go by that, disconnects everybody, and ends the threads. What clients ask meanwhile is not
    /// refused, but left for whoever serves them next. Flash keeps what
    /// it holds of each volume that was flushed in time; with a `timeout` of zero, which is what dropping does, it keeps nothing.
    pub fn shutdown(mut self, timeout: Duration) -> Drained {
        self.end(timeout)
    }

    fn end(&mut self, timeout: Duration) -> Drained {
        self.acceptor.end();
        if let Some(thread) = self.acceptor_thread.take() {
            let _ = thread.join();
        }
        let mut answers = Vec::new();
        for worker in &self.workers {
            if worker.thread.is_some() {
                let (reply, answer) = sync_channel(1);
                worker.inbox.send(Message::Shutdown { timeout, reply });
                answers.push(answer);
            }
        }
        let ended = answers.iter().map(|answer| answer.recv().unwrap_or(Drained::TimedOut));
        let drained = ended.max().unwrap_or(Drained::Completely);
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take() {
                let _ = thread.join();
            }
        }
        drained
    }
}

impl Drop for Appliance {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

/// Finds on flash what can be proved of a volume, and gives it to the machine.
fn attach_flash(
    config: &VolumeConfig,
    flash: &VolumeFlashConfig,
    machine: &mut VolumeMachine,
    seed: u64,
) -> Result<VolumeFlash, AddVolumeError> {
    let name = config.name.clone();
    let most = Bytes(FLASH_SEGMENT_BYTES.into());
    let found = config.block_size;
    if found.bytes() < FLASH_ALIGNMENT as u64 || found.bytes() > most.0 {
        return Err(AddVolumeError::FlashBlockSize { name, found });
    }
    let settings = FlashVolumeSettings {
        volume: VolumeId::new(&name, &config.origin.describe()),
        stamp: flash.stamp.take(),
        read_only: machine.is_read_only(),
        block_size: config.block_size,
        // What is not there is no room, whatever is promised: what is placed must fit.
        quota_segments: u32::try_from(flash.quota.min(flash.store.capacity()).0 / most.0).unwrap_or(u32::MAX),
        seed,
    };
    let (partition, recovery) = flash
        .store
        .tier()
        .load(&settings)
        .map_err(|error| AddVolumeError::Flash { name: name.clone(), reason: reasons(&error) })?;
    tracing::info!(volume = %name, ?recovery, "flash is found");
    machine.attach_flash(partition);
    machine.set_flash_placing(flash.placing);
    machine.leave_out_of_flash(flash.left_out.clone());
    let VolumeFlashConfig { store, stamp, .. } = flash.clone();
    Ok(VolumeFlash { name, store, stamp, origin: config.origin.clone() })
}

/// An error with all its causes.
fn reasons(error: &FlashError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn snapshot(
    entry: &DirectoryEntry,
    answer: &Receiver<Option<VolumeObservation>>,
) -> Result<VolumeSnapshot, CommandError> {
    let observation = answer.recv().map_err(|_| WorkerGone { worker: entry.worker })?;
    let name = entry.export.name.clone();
    let Some(observation) = observation else { return Err(CommandError::Unknown { name }) };
    Ok(VolumeSnapshot {
        name,
        size: Bytes(entry.export.size_bytes),
        read_only: entry.export.read_only,
        connections: entry.connections.load(Ordering::Relaxed),
        observation,
        origin: entry.origin.describe(),
        origin_traits: entry.origin.traits(),
        origin_statistics: entry.origin.statistics(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_origin::{MemoryImage, MemoryOrigin};

    #[test]
    fn who_observes_hears_of_all_volumes_but_those_of_a_worker_that_panicked() {
        let volume = |name: &str| {
            VolumeConfig::new(name, Arc::new(MemoryOrigin::new(Arc::new(MemoryImage::new(Bytes::mib(1))))))
        };
        let volumes = ["a", "b", "c", "d"].map(volume).to_vec();
        let appliance = Appliance::start(ApplianceConfig { volumes, ..ApplianceConfig::default() }).unwrap();
        let names = || -> Vec<String> {
            appliance.observe_all(true).into_iter().map(|snapshot| snapshot.name).collect()
        };
        assert_eq!(names(), ["a", "b", "c", "d"]);
        let gone = appliance.run("a", |_, _| -> () { panic!("injected by a test") });
        assert!(matches!(gone, Err(CommandError::Worker(_))));
        // The volumes are shared out in turn.
        assert_eq!(names(), ["b", "d"]);
    }
}
