//! How a daemon is started: what it needs is opened, the data path serves, and then the threads around it begin.
//!
//! Invariant: where any of it fails nothing runs, and no socket is left behind.

use super::absent::wait_for_origins;
use super::{Daemon, Shared, State};
use crate::books::Books;
use crate::clock::unix_ms;
use crate::config::{CacheConfig, Config, ConfigError, OnAbsent, VolumeConfig};
use crate::history::History;
use crate::http::{HttpServer, Listeners};
use crate::lease::LeasesUnreadable;
use crate::origins::{OriginFailure, OriginShop, competition, origin_stamp};
use crate::route::RoutesUnreadable;
use crate::snapshots::{self, PatientStore, SnapshotCounters, SnapshotStore};
use crate::succession::SuccessionUnusable;
use crate::switch::Switch;
use crate::{flash_file, listing, loading, pilot};
use forebay_appliance::{
    Appliance, ApplianceConfig, FlashOpenError, FlashStore, VolumeConfig as ServedVolume, VolumeFlashConfig,
};
use forebay_locality::LiveConfig;
use forebay_origin::Origin;
use forebay_tls::{ServerTls, TlsFilesError};
use forebay_units::{Bytes, mix64, with_causes};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
#[cfg(test)]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Instant;
use thiserror::Error;

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
    /// Which run this is, is not known, or cannot be kept.
    #[error(transparent)]
    Succession(#[from] SuccessionUnusable),
    /// The system has no threads for it.
    #[error("cannot start the threads of the daemon")]
    System(#[from] io::Error),
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
        let shop = OriginShop::start(&config, books.lineage().cloned())
            .map_err(|source| StartError::Disks { source: Box::new(source) })?;
        let Opened { there, absent } = Opened::of(&config, &books, &shop)?;
        let listeners = Listeners::open(&config.http)
            .map_err(|(address, source)| StartError::Http { address, source })?;
        // Behind what may fail: flash hears of a start that serves.
        let served = |(volume, origin): (&VolumeConfig, _)| {
            let lease = lease_of(&volume.name);
            Ok(ServedVolume { lease, ..served_volume(&config, volume, origin, flash.as_ref())? })
        };
        let served = there.into_iter().map(served).collect::<Result<_, StartError>>()?;
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
        let snapshot_store = config
            .snapshots
            .as_ref()
            .map(|snapshots| SnapshotStore::new(snapshots.place.clone()))
            .map(PatientStore::new);
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
            tokens_refused: AtomicU64::new(0),
            switch: Switch::new(enabled),
            steps: AtomicU64::new(0),
            state: Mutex::new(State { decisions: earlier.into(), absent, ..State::default() }),
            stopping: Mutex::new(None),
            wake: Condvar::new(),
            #[cfg(test)]
            panics_next_step: AtomicBool::new(false),
        });
        let mut daemon = Daemon { shared: Some(Arc::clone(&shared)), threads: Vec::new(), http: None };
        daemon.http = HttpServer::of_daemon(listeners, &shared)?;
        daemon.start_threads(waits)?;
        Ok(daemon)
    }

    /// Starts the threads around the data path.
    fn start_threads(&mut self, waits: bool) -> io::Result<()> {
        self.start_thread("control", pilot::run)?;
        {
            let shared = self.shared();
            let mut loads = shared.books.loads();
            let begins = shared.config.volumes.iter().filter(|volume| starts_with_cache(volume));
            begins.for_each(|volume| loads.begins(&volume.name));
        }
        self.start_thread("loading", loading::run)?;
        self.start_thread("listing", listing::run)?;
        if let Some(config) = self.shared().config.snapshots.clone() {
            self.start_thread("snapshots", move |shared| snapshots::run(shared, &config))?;
        }
        if self.shared().flash.is_some() {
            self.start_thread("flash-file", flash_file::run)?;
        }
        if waits {
            self.start_thread("absent-origins", wait_for_origins)?;
        }
        Ok(())
    }

    /// Starts a thread that is waited for when the daemon ends.
    fn start_thread(&mut self, name: &str, run: impl FnOnce(&Shared) + Send + 'static) -> io::Result<()> {
        let shared = Arc::clone(self.shared());
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared))?;
        self.threads.push(thread);
        Ok(())
    }
}

/// The origins of all volumes, as far as they are there.
struct Opened<'a> {
    there: Vec<(&'a VolumeConfig, Arc<dyn Origin>)>,
    /// Volumes that wait for theirs, and why.
    absent: BTreeMap<String, String>,
}

impl Opened<'_> {
    fn of<'a>(config: &'a Config, books: &Books, shop: &OriginShop) -> Result<Opened<'a>, StartError> {
        let mut opened = Opened { there: Vec::new(), absent: BTreeMap::new() };
        for (index, volume) in config.volumes.iter().enumerate() {
            match shop.open(config, index) {
                Ok(origin) => opened.there.push((volume, origin)),
                Err(error)
                    if volume.on_absent == OnAbsent::Wait
                        // Where it was sent may be gone, or that it was sent not be kept while others have its lease. Who sent it must find somebody to
                        // send it elsewhere.
                        || books.routes().sends(&volume.name)
                        || error.is_kept_out() =>
                {
                    let reason = with_causes(&error);
                    tracing::warn!(
                        volume = volume.name,
                        reason,
                        "origin is absent; the volume is exported once it is there"
                    );
                    opened.absent.insert(volume.name.clone(), reason);
                }
                Err(source) => {
                    let source = Box::new(source);
                    return Err(StartError::Origin { volume: volume.name.clone(), source });
                }
            }
        }
        Ok(opened)
    }
}

/// A volume in the data path's words.
///
/// # Errors
/// [`FlashOpenError`]: the device cannot be had to forget what it holds of a volume that has no flash any more.
pub(super) fn served_volume(
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
pub(super) fn starts_with_cache(volume: &VolumeConfig) -> bool {
    matches!(volume.cache, CacheConfig::Fixed(quota) if quota > Bytes::ZERO)
}
