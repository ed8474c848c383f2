//! What a daemon is started with: made in code, or read from one TOML file. All that is wrong is said before anything starts.
//!
//! [`Config::read`] is for people: every error names file, line and key. [`Config::check`] judges a configuration that
//! was made in code by the same rules. Neither opens an origin, a socket or a database.

mod check;
mod file;
mod flash_shares;
mod keys;
mod machine;
mod problem;
mod reader;
mod snapshot_place;
mod spoken;
mod written;

pub(crate) use check::places;
pub(crate) use check::{
    BLOCK_SIZE_MAX, NAME_BYTES_MAX, SOCKET_BYTES_MAX, is_name, is_same_file, trouble_of_socket,
};
pub use keys::{KEYS, Key, TABLES, keys_of};
pub(crate) use machine::memory_total;
pub use machine::{machine_memory, memory_available};
pub use problem::{ConfigError, Problem};
pub(crate) use problem::{Finding, refused};
pub use spoken::spoken;

pub use crate::placing::{FlashAdmission, FlashRules, UnknownFlashAdmission};
pub use crate::snapshots::{SnapshotConfig, SnapshotPlace};
use forebay_appliance::volume::VolumeLimits;
use forebay_appliance::{EngineChoice, FlashConfig, ListenerConfig, ServiceLimits};
use forebay_control::{ControlConfig, Objective};
use forebay_devmodel::{ArrayCache, DiskGroupParameters, DiskParameters};
use forebay_locality::LiveConfig;
use forebay_nbd::Uri;
use forebay_origin::layer::{DelayParameters, ErrorParameters, LogParameters, RateParameters};
use forebay_origin::{MemoryImage, NbdOriginOptions};
use forebay_units::{BlockSize, Bytes, Secret};
use std::fmt;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Everything that a daemon is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where NBD clients connect.
    pub listen: Vec<ListenerConfig>,
    /// What clients that ask for TLS are shown; `None`: no listener offers it.
    pub tls: Option<TlsFiles>,
    /// The volumes.
    pub volumes: Vec<VolumeConfig>,
    /// Emulated disks that volumes share.
    pub disk_groups: Vec<DiskGroupConfig>,
    /// All fixed quotas, and what the controller may grant.
    pub cache_memory: Bytes,
    /// A second tier of cache; `None`: memory only.
    pub flash: Option<FlashConfig>,
    /// Who is let onto it, and how.
    pub flash_rules: FlashRules,
    /// How the locality of reads is observed; `None`: not at all.
    pub observe: Option<LiveConfig>,
    /// The controller.
    pub control: ControlSettings,
    /// How files are read and written.
    pub io: EngineChoice,
    /// Metrics and state.
    pub http: HttpConfig,
    /// What is kept across restarts; `None`: nothing.
    pub history: Option<HistoryConfig>,
    /// What the caches hold, kept for whoever serves the volumes next; `None`: it is not.
    pub snapshots: Option<SnapshotConfig>,
    /// The file in which reservations outlast a restart; `None`: they do not.
    pub reservations: Option<PathBuf>,
    /// The file that keeps the leases of all volumes; `None`: there are none, and everybody is let in.
    pub leases: Option<PathBuf>,
    /// The file that keeps where volumes were sent; `None`: after a restart they go to the origins of the configuration.
    pub routes: Option<PathBuf>,
    /// The file that keeps which client this daemon is to other Forebays, and in which run; `None`: a restart makes it another one.
    pub succession: Option<PathBuf>,
    /// Maxima of the data path.
    pub limits: Limits,
}

/// Certificates, in PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, what lies between it and its authority behind it.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Authorities of which a client's certificate must come; `None`: whoever knows the address is let in.
    pub client_authorities: Option<PathBuf>,
}

/// Whom to believe, and what to show, over TLS to an origin: PEM files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginTls {
    /// Authorities of which the server's certificate must come; the system's are not asked. `None` is only for URIs that say
    /// `tls-verify-peer=false`.
    pub authorities: Option<PathBuf>,
    /// Our certificate and its key, for servers that ask for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A volume.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// The NBD export's name.
    pub name: String,
    /// Where the data lives.
    pub origin: OriginConfig,
    /// What is stacked on the origin, the lowest first.
    pub layers: Vec<LayerConfig>,
    /// Refuses every change.
    pub read_only: bool,
    /// The unit of caching.
    pub block_size: BlockSize,
    /// Whether, and between which bounds, the controller sizes its cache.
    pub cache: CacheConfig,
    /// What it was promised.
    pub objectives: Vec<Objective>,
    /// What it may hold on flash.
    pub flash: Bytes,
    /// Who is let onto it; `None`: as [`Config::flash_rules`] say.
    pub flash_admission: Option<FlashAdmission>,
    /// Somebody vouches that nobody else writes to its origin, also while the daemon is stopped.
    pub sole_writer: bool,
    /// What an origin that is absent at the start means.
    pub on_absent: OnAbsent,
    /// Clients must name the export `NAME.SECRET`; `None`: whoever reaches a listener may use it.
    pub secret: Option<Secret>,
}

impl VolumeConfig {
    /// A writable volume of 4 KiB blocks under the controller, without layers and objectives.
    pub fn new(name: impl Into<String>, origin: OriginConfig) -> VolumeConfig {
        VolumeConfig {
            name: name.into(),
            origin,
            layers: Vec::new(),
            read_only: false,
            block_size: BlockSize::DEFAULT,
            cache: CacheConfig::default(),
            objectives: Vec::new(),
            flash: Bytes::ZERO,
            flash_admission: None,
            sole_writer: false,
            on_absent: OnAbsent::Fail,
            secret: None,
        }
    }
}

/// Who says how large a volume's cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheConfig {
    /// The configuration: this quota, for ever.
    Fixed(Bytes),
    /// The controller.
    Controlled {
        /// Whether it may grant any.
        may_cache: bool,
        /// What it always leaves.
        minimum: Bytes,
        /// What it never exceeds; `None`: the volume's size.
        maximum: Option<Bytes>,
    },
}

impl Default for CacheConfig {
    fn default() -> CacheConfig {
        CacheConfig::Controlled { may_cache: true, minimum: Bytes::ZERO, maximum: None }
    }
}

/// Where a volume's data lives.
#[derive(Clone)]
pub enum OriginConfig {
    /// A regular file.
    File {
        /// Where.
        path: PathBuf,
        /// Threads that make the blocking calls.
        workers: usize,
    },
    /// A block device.
    BlockDevice {
        /// Where.
        path: PathBuf,
        /// Threads that make the blocking calls.
        workers: usize,
    },
    /// An export of another NBD server.
    Nbd {
        /// Server and export.
        uri: Uri,
        /// How it is used.
        options: NbdOriginOptions,
        /// For a URI that asks for TLS.
        tls: OriginTls,
    },
    /// A place on an emulated disk group.
    DiskGroup {
        /// The group's name.
        group: String,
        /// What holds the bytes.
        backing: DiskBacking,
        /// Where the volume begins; `None`: behind the volume before.
        offset: Option<u64>,
    },
    /// Zeroes in memory, lost at the end.
    Memory {
        /// The volume's size.
        size: Bytes,
    },
    /// Bytes in memory that somebody else holds as well. In code only.
    Image(Arc<MemoryImage>),
}

impl OriginConfig {
    /// A regular file with the defaults.
    pub fn file(path: impl Into<PathBuf>) -> OriginConfig {
        OriginConfig::File { path: path.into(), workers: 8 }
    }

    /// The file or device that it opens, if it does.
    pub fn path(&self) -> Option<&Path> {
        match self {
            OriginConfig::File { path, .. }
            | OriginConfig::BlockDevice { path, .. }
            | OriginConfig::DiskGroup { backing: DiskBacking::File(path), .. } => Some(path),
            _ => None,
        }
    }
}

impl fmt::Debug for OriginConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OriginConfig::File { path, .. } => write!(f, "file {}", path.display()),
            OriginConfig::BlockDevice { path, .. } => write!(f, "block device {}", path.display()),
            OriginConfig::Nbd { uri, .. } => write!(f, "{}", uri.shown()),
            OriginConfig::DiskGroup { group, backing, offset } => {
                write!(f, "{backing:?} on disk group {group} at {offset:?}")
            }
            OriginConfig::Memory { size } => write!(f, "memory of {size}"),
            OriginConfig::Image(image) => write!(f, "image of {}", image.size()),
        }
    }
}

/// What holds the bytes of a volume on a disk group.
#[derive(Clone)]
pub enum DiskBacking {
    /// A file or block device.
    File(PathBuf),
    /// Memory of this size.
    Memory(Bytes),
    /// Memory that somebody else holds as well. In code only.
    Image(Arc<MemoryImage>),
}

impl fmt::Debug for DiskBacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskBacking::File(path) => write!(f, "file {}", path.display()),
            DiskBacking::Memory(size) => write!(f, "memory of {size}"),
            DiskBacking::Image(image) => write!(f, "image of {}", image.size()),
        }
    }
}

/// A layer over an origin.
#[derive(Clone, Debug, PartialEq)]
pub enum LayerConfig {
    /// Holds requests back.
    Delay(DelayParameters),
    /// Fails requests.
    Error(ErrorParameters),
    /// Lets no more through.
    Rate(RateParameters),
    /// Notes requests.
    Log(LogParameters),
}

/// What an origin that is absent at the start means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnAbsent {
    /// The daemon does not start.
    #[default]
    Fail,
    /// The other volumes are served; this one is exported once its origin is there.
    Wait,
}

/// An emulated disk group.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskGroupConfig {
    /// How volumes refer to it.
    pub name: String,
    /// What it is.
    pub parameters: DiskGroupParameters,
    /// The array's cache in front of the disks, which all volumes share; `None`: the disks alone.
    pub array: Option<ArrayCache>,
}

impl DiskGroupConfig {
    /// Four disks of 7,200 rpm and 64 GiB each.
    pub fn new(name: impl Into<String>) -> DiskGroupConfig {
        let disk = DiskParameters::rpm_7200(Bytes::gib(64).get());
        DiskGroupConfig { name: name.into(), parameters: DiskGroupParameters::striped(4, disk), array: None }
    }
}

/// The controller.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlSettings {
    /// Whether caches are granted and taken back.
    pub enabled: bool,
    /// How often volumes are observed and decisions made.
    pub interval: Duration,
    /// Its parameters.
    pub rules: ControlConfig,
}

impl Default for ControlSettings {
    fn default() -> ControlSettings {
        ControlSettings { enabled: true, interval: Duration::from_secs(10), rules: ControlConfig::default() }
    }
}

/// Metrics and state for people and programs of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    /// A loopback address, or with a token any; `None`: not over TCP.
    pub listen: Option<SocketAddr>,
    /// A unix socket; `None`: not there.
    pub socket: Option<PathBuf>,
    /// Over TCP only who shows it is answered, and may change what the unix socket may; `None`: anybody is, and only reads.
    pub token: Option<Secret>,
}

/// Where `forebay status` asks unless it is told otherwise.
pub const HTTP_DEFAULT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9809);

/// What is kept across restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryConfig {
    /// The database.
    pub path: PathBuf,
    /// Older rows are deleted.
    pub retention: Duration,
    /// Intervals kept at most, whatever their age.
    pub rows_max: u64,
}

impl HistoryConfig {
    /// A week, at most two million intervals, in the database at `path`.
    pub fn new(path: impl Into<PathBuf>) -> HistoryConfig {
        HistoryConfig { path: path.into(), retention: Duration::from_secs(7 * 86_400), rows_max: 2_000_000 }
    }
}

/// Maxima of the data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Threads that serve volumes; 0: one per core, at most 4.
    pub workers: usize,
    /// Clients at once.
    pub connections: usize,
    /// Of each worker.
    pub service: ServiceLimits,
    /// Of each volume.
    pub volume: VolumeLimits,
    /// How long what is in flight may take at the end.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            workers: 0,
            connections: 4096,
            service: ServiceLimits::default(),
            volume: VolumeLimits::default(),
            drain: Duration::from_secs(30),
        }
    }
}

/// Into what a configuration names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looks {
    Nowhere,
    /// What keeps a daemon from starting.
    AtStart,
}

impl Config {
    /// These volumes, nothing listening yet, no HTTP and no history, everything else as by default.
    pub fn new(volumes: Vec<VolumeConfig>) -> Config {
        Config {
            listen: Vec::new(),
            tls: None,
            volumes,
            disk_groups: Vec::new(),
            cache_memory: Bytes(machine_memory().get() / 4),
            flash: None,
            flash_rules: FlashRules::default(),
            observe: Some(LiveConfig::default()),
            control: ControlSettings::default(),
            io: EngineChoice::Auto,
            http: HttpConfig { listen: None, socket: None, token: None },
            history: None,
            snapshots: None,
            reservations: None,
            leases: None,
            routes: None,
            succession: None,
            limits: Limits::default(),
        }
    }

    /// Reads and checks the file at `path`; paths in it are relative to its folder.
    ///
    /// # Errors
    /// [`ConfigError`] with everything that is wrong.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        Config::read_and(path, Looks::AtStart)
    }

    /// The same without opening what it names, certificates say: for who only asks a daemon that is started with it, and may not be let in to them.
    ///
    /// # Errors
    /// [`ConfigError`] with everything that is wrong.
    pub fn read_alone(path: &Path) -> Result<Config, ConfigError> {
        Config::read_and(path, Looks::Nowhere)
    }

    fn read_and(path: &Path, looks: Looks) -> Result<Config, ConfigError> {
        let file = path.display().to_string();
        match read_text(path) {
            Ok(text) => {
                let folder = path.parent().unwrap_or(Path::new(""));
                let config = file::parse(&file, &text, folder, looks)?;
                match mode_for_others(path).filter(|_| config.holds_secrets()) {
                    Some(mode) => Err(ConfigError { file, problems: vec![shown_to_others(path, mode)] }),
                    None => Ok(config),
                }
            }
            Err(error) => Err(unreadable(&file, &error)),
        }
    }

    /// Reads and checks `text`, which came from `file`; paths in it are relative to `folder`.
    ///
    /// # Errors
    /// [`ConfigError`] with everything that is wrong.
    pub fn parse(file: &str, text: &str, folder: &Path) -> Result<Config, ConfigError> {
        file::parse(file, text, folder, Looks::AtStart)
    }

    /// The same for the storage side: observed and fenced, without a cache and without a controller.
    ///
    /// # Errors
    /// [`ConfigError`] if it has no leases, or asks for a cache.
    pub fn watching(mut self) -> Result<Config, ConfigError> {
        let mut findings = Vec::new();
        if self.leases.is_none() {
            let finding = problem::Finding::new(
                "leases",
                "missing table `[leases]`: who is let in must outlast a restart",
            );
            findings.push(finding.hint("leases.path = \"/var/lib/forebay/leases.json\""));
        }
        for (at, volume) in self.volumes.iter_mut().enumerate() {
            let caches = match volume.cache {
                CacheConfig::Fixed(quota) => quota > Bytes::ZERO,
                CacheConfig::Controlled { minimum, maximum, .. } => {
                    minimum > Bytes::ZERO || maximum.is_some()
                }
            };
            if caches || volume.flash > Bytes::ZERO {
                let message = format!("volume `{}` asks for a cache, and what watches has none", volume.name);
                findings.push(problem::Finding::new(format!("volume[{at}]"), message));
            }
            volume.cache = CacheConfig::Fixed(Bytes::ZERO);
        }
        (self.cache_memory, self.control.enabled) = (Bytes::ZERO, false);
        problem::refused(findings)?;
        Ok(self)
    }

    /// The same under a controller elsewhere: quotas are what is set, or guaranteed, until it orders others.
    #[must_use]
    pub fn steered_elsewhere(mut self) -> Config {
        self.control.enabled = false;
        for volume in &mut self.volumes {
            if let CacheConfig::Controlled { minimum, .. } = volume.cache {
                volume.cache = CacheConfig::Fixed(minimum);
            }
        }
        self
    }

    /// What fixed quotas leave to the controller.
    pub(crate) fn controllers_memory(&self) -> Bytes {
        let fixed = self.volumes.iter().map(|volume| match volume.cache {
            CacheConfig::Fixed(quota) => quota.get(),
            CacheConfig::Controlled { .. } => 0,
        });
        Bytes(fixed.fold(self.cache_memory.get(), u64::saturating_sub))
    }

    /// Whether it must be kept from others.
    fn holds_secrets(&self) -> bool {
        self.http.token.is_some()
            || self.volumes.iter().any(|volume| volume.secret.is_some())
            || self.uris().any(|(_, uri)| uri.has_password())
    }

    /// What in the file at `path`, from which it was read, looks like a secret that others may read, in a sentence each.
    ///
    /// Not refused as what surely is one: an export of somebody else's may have a name that looks so (`disk.` and a UUID), and a daemon that served yesterday
    /// is not to fail for it.
    pub fn cautions(&self, path: &Path) -> Vec<String> {
        let mut told = cautions(path, self.uris());
        let place = self.snapshots.as_ref().and_then(|snapshots| snapshot_place::absent(&snapshots.place));
        let keys = self.key_files().filter_map(|(key, path)| {
            // A group of those who may (as Debian's `ssl-cert`) is usual.
            let mode = mode_for_others(path).filter(|mode| mode & 0o007 != 0)?;
            let path = path.display();
            Some(format!("`{key}`: everybody on this machine may read the private key in `{path}`: its mode is {mode:04o}, expected 0600 or 0640; chmod o= {path}"))
        });
        told.extend(keys);
        told.extend(place.map(|(key, absent)| {
            format!(
                "`{key}`: {absent}; no snapshot is read or written until it is there, which is tried again"
            )
        }));
        told
    }

    /// The files of private keys that it names, with the key of each.
    fn key_files(&self) -> impl Iterator<Item = (String, &Path)> {
        let own = self.tls.iter().map(|files| ("tls.key".to_owned(), &*files.key));
        let to_origins = self.volumes.iter().enumerate().filter_map(|(at, volume)| match &volume.origin {
            OriginConfig::Nbd { tls, .. } => {
                Some((format!("volume[{at}].origin.key"), &*tls.identity.as_ref()?.1))
            }
            _ => None,
        });
        own.chain(to_origins)
    }

    /// The NBD servers that it names, with the key of each.
    fn uris(&self) -> impl Iterator<Item = (String, &Uri)> {
        let volumes = self.volumes.iter().enumerate().filter_map(|(at, volume)| match &volume.origin {
            OriginConfig::Nbd { uri, .. } => Some((format!("volume[{at}].origin"), uri)),
            _ => None,
        });
        let place = self.snapshots.as_ref().and_then(|snapshots| match &snapshots.place {
            SnapshotPlace::Range { origin, .. } => match &**origin {
                OriginConfig::Nbd { uri, .. } => Some(("snapshots.origin".to_owned(), uri)),
                _ => None,
            },
            _ => None,
        });
        volumes.chain(place)
    }

    /// Whether nobody uses a volume without its secret.
    pub(crate) fn every_volume_has_a_secret(&self) -> bool {
        self.volumes.iter().all(|volume| volume.secret.is_some())
    }

    /// Checks what was made in code, by the same rules.
    ///
    /// # Errors
    /// [`ConfigError`] with everything that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        let mut findings = Vec::new();
        check::check(self, &mut findings);
        problem::refused(findings)
    }
}

/// Longer configurations are not read: nobody writes so long a one, and a device may have no end (ours).
const TEXT_BYTES_MAX: u64 = 16 << 20;

/// The text of a configuration.
pub(crate) fn read_text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(TEXT_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > TEXT_BYTES_MAX {
        let most = Bytes(TEXT_BYTES_MAX);
        return Err(std::io::Error::other(format!("it is too long, expected a text of at most {most}")));
    }
    Ok(text)
}

pub(crate) fn is_readable_by_others(path: &Path) -> bool {
    mode_for_others(path).is_some()
}

/// The permissions of the file at `path`, where they let in others than its owner.
pub(crate) fn mode_for_others(path: &Path) -> Option<u32> {
    let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    Some(metadata.mode() & 0o777).filter(|mode| mode & 0o077 != 0)
}

/// What is to be said of `uris`, with their keys, that the file at `path` shows to others although they look like secrets.
pub(crate) fn cautions<'a>(path: &Path, uris: impl Iterator<Item = (String, &'a Uri)>) -> Vec<String> {
    let Some(mode) = mode_for_others(path) else { return Vec::new() };
    let secret = uris.map(|(key, uri)| (key, uri, uri.shown())).filter(|(_, uri, shown)| **uri != *shown);
    let words = |(key, _, shown): (String, &Uri, Uri)| {
        let path = path.display();
        format!(
            "`{path}`: `{key}` is `{shown}`, which looks as if it held a secret, and others than its owner may read it: its mode is {mode:04o}, expected 0600; chmod 600 {path}"
        )
    };
    secret.map(words).collect()
}

pub(crate) fn unreadable(file: &str, error: &std::io::Error) -> ConfigError {
    let message = format!("cannot read the configuration: {error}");
    let problem = Problem { line: None, key: String::new(), message, hint: None };
    ConfigError { file: file.to_owned(), problems: vec![problem] }
}

pub(crate) fn shown_to_others(path: &Path, mode: u32) -> Problem {
    Problem {
        line: None,
        key: String::new(),
        message: format!(
            "it holds secrets, and others than its owner may read it: its mode is {mode:04o}, expected 0600"
        ),
        hint: Some(format!("chmod 600 {}", path.display())),
    }
}
