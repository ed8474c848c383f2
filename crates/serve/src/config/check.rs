//! The rules that a configuration must keep, whether it was read or made in code.

use super::flash_shares::flash_shares;
use super::problem::Finding;
use super::snapshot_place::snapshot_place;
use super::written::written_files;
use super::{
    CacheConfig, Config, DiskBacking, LayerConfig, OnAbsent, OriginConfig, OriginTls, VolumeConfig,
    machine_memory,
};
use crate::route::leads_back;
use forebay_appliance::{BoundAddress, FLASH_ALIGNMENT, FLASH_VOLUMES_MAX, ListenerConfig};
use forebay_devmodel::{Array, DiskGroup};
use forebay_units::{ByteRange, Bytes, Nanos};
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Volumes of one daemon (ours; the data path has no such bound).
const VOLUMES_MAX: usize = 4096;
const LAYERS_MAX: usize = 16;
/// One segment that is filled while another is written.
const FLASH_QUOTA_MIN: Bytes = Bytes::mib(2);
const OBJECTIVES_MAX: usize = 16;
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// Of the volumes of one daemon.
pub(crate) const BLOCK_SIZE_MAX: Bytes = Bytes::kib(64);
pub(crate) use forebay_actuate::provision::SOCKET_BYTES_MAX;

/// Adds everything that is wrong with `config` to `findings`.
pub(super) fn check(config: &Config, findings: &mut Vec<Finding>) {
    listeners(config, findings);
    volumes(config, findings);
    flash_shares(config, findings);
    groups(config, findings);
    origins(config, findings);
    kept(config, findings);
    written_files(config, findings);
    memory(config, findings);
    control(config, findings);
}

pub(crate) fn is_same_file(a: &Path, b: &Path) -> bool {
    match (std::fs::metadata(a), std::fs::metadata(b)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => std::path::absolute(a).ok() == std::path::absolute(b).ok(),
    }
}

/// Why nobody can listen at `path`.
pub(crate) fn trouble_of_socket(path: &Path) -> Option<String> {
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let shown = path.display();
    if !folder.is_dir() {
        Some(format!("the folder `{}` of the socket does not exist", folder.display()))
    } else if path.symlink_metadata().is_ok_and(|metadata| !metadata.file_type().is_socket()) {
        Some(format!("`{shown}` exists and is no socket"))
    } else if path.as_os_str().len() > SOCKET_BYTES_MAX {
        Some(format!(
            "`{shown}` is longer than {SOCKET_BYTES_MAX} bytes, the most that a unix socket's path may be"
        ))
    } else {
        None
    }
}

/// Whether a volume can be called so.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
}

const NEITHER_SECRET_NOR_TLS: &str = "is not loopback: whoever reaches it could read and write every volume, since it has \
     neither a secret nor TLS that asks clients for a certificate; expected a unix socket, a loopback address, `tls = \"required\"` \
     and `tls.client_authorities`, or a `secret` for every volume";

fn listeners(config: &Config, findings: &mut Vec<Finding>) {
    let mut seen: Vec<String> = Vec::new();
    let mut twice = |key: String, name: String, findings: &mut Vec<Finding>| {
        if seen.contains(&name) {
            findings.push(Finding::new(key, format!("`{name}` is listened on twice")));
        } else {
            seen.push(name);
        }
    };
    let socket = |key: &str, path: &Path, findings: &mut Vec<Finding>| {
        findings.extend(trouble_of_socket(path).map(|message| Finding::new(key, message)));
    };
    let asks_clients = config.tls.as_ref().is_some_and(|tls| tls.client_authorities.is_some());
    for (at, listener) in config.listen.iter().enumerate() {
        let key = format!("listen[{at}]");
        let (mut listener, mut offers, mut requires) = (listener, false, false);
        while let ListenerConfig::Tls { listener: inner, required } = listener {
            (listener, offers, requires) = (inner, true, requires || *required);
        }
        if offers && config.tls.is_none() {
            findings.push(
                Finding::new(&key, "offers TLS, and there is no certificate")
                    .hint("[tls]\ncertificate = \"server-cert.pem\"\nkey = \"server-key.pem\""),
            );
        }
        match listener {
            ListenerConfig::Unix { path } => {
                socket(&key, path, findings);
                twice(key, path.display().to_string(), findings);
            }
            ListenerConfig::Tcp { address, .. } => {
                let is_guarded = requires && asks_clients || config.every_volume_has_a_secret();
                if !address.ip().is_loopback() && !is_guarded {
                    findings.push(Finding::new(&key, format!("`{address}` {NEITHER_SECRET_NOR_TLS}")));
                }
                if address.port() != 0 {
                    twice(key, address.to_string(), findings);
                }
            }
            ListenerConfig::Tls { .. } => unreachable!("unwrapped above"),
        }
    }
    if let Some(address) = config.http.listen {
        if !address.ip().is_loopback() && config.http.token.is_none() {
            let message = format!(
                "`{address}` is not loopback: the state of every volume would be open to whoever reaches it, since there is \
                 no `http.token`; expected one, or a loopback address"
            );
            findings.push(Finding::new("http.listen", message));
        }
        if address.port() != 0 {
            twice("http.listen".into(), address.to_string(), findings);
        }
    }
    if let Some(path) = &config.http.socket {
        socket("http.socket", path, findings);
        twice("http.socket".into(), path.display().to_string(), findings);
    }
}

fn volumes(config: &Config, findings: &mut Vec<Finding>) {
    if config.volumes.is_empty() {
        findings.push(Finding::new("volume", "there is no `[[volume]]`: expected at least one"));
    }
    if config.volumes.len() > VOLUMES_MAX {
        let message = format!("{} volumes: expected at most {VOLUMES_MAX}", config.volumes.len());
        findings.push(Finding::new("volume", message));
    }
    let on_flash = config.volumes.iter().filter(|volume| volume.flash > Bytes::ZERO).count();
    if on_flash > FLASH_VOLUMES_MAX as usize {
        let message = format!("{on_flash} volumes on flash: expected at most {FLASH_VOLUMES_MAX}");
        findings.push(Finding::new("flash", message));
    }
    let mut names = BTreeMap::new();
    for (at, volume) in config.volumes.iter().enumerate() {
        let key = |key: &str| format!("volume[{at}].{key}");
        let name = &volume.name;
        if config.leases.is_some() && name.contains('@') {
            let message =
                format!("`{name}` has an `@`, behind which clients of a leased volume name their epoch");
            findings.push(Finding::new(key("name"), message));
        }
        if !is_name(name) {
            let message = format!(
                "`{}` is no name: expected 1 to {NAME_BYTES_MAX} bytes without control characters",
                name.escape_debug()
            );
            findings.push(Finding::new(key("name"), message));
        } else if let Some(first) = names.insert(name.as_str(), at) {
            let message = format!("the name `{name}` is that of volume {} too", first + 1);
            findings.push(Finding::new(key("name"), message));
        }
        if volume.objectives.len() > OBJECTIVES_MAX {
            let message =
                format!("{} objectives: expected at most {OBJECTIVES_MAX}", volume.objectives.len());
            findings.push(Finding::new(key("objective"), message));
        }
        for (index, objective) in volume.objectives.iter().enumerate() {
            if let Err(error) = objective.check() {
                findings.push(Finding::new(key(&format!("objective[{index}]")), error.to_string()));
            }
        }
        if volume.layers.len() > LAYERS_MAX {
            let message = format!("{} layers: expected at most {LAYERS_MAX}", volume.layers.len());
            findings.push(Finding::new(key("layers"), message));
        }
        if let Some(observe) = config.observe
            && observe.zone_size.get() < volume.block_size.bytes()
        {
            findings.push(Finding::new(
                "observe.zone_size",
                format!("a zone is smaller than a block of volume `{name}`"),
            ));
        }
        if volume.flash > Bytes::ZERO {
            let wrong = match &config.flash {
                None => Some("there is no `[flash]` to hold it".to_owned()),
                Some(_) if volume.flash < FLASH_QUOTA_MIN => {
                    Some(format!("{} is too little: expected at least {FLASH_QUOTA_MIN}", volume.flash))
                }
                Some(_) if volume.block_size.bytes() < FLASH_ALIGNMENT as u64 => Some(format!(
                    "blocks of {} are too small for flash: expected at least 4KiB",
                    volume.block_size
                )),
                Some(_) => None,
            };
            findings.extend(wrong.map(|message| Finding::new(key("flash"), message)));
        } else if volume.flash_admission.is_some() {
            let message = "the volume has no flash: `flash` is not set, or 0";
            findings.push(Finding::new(key("flash_admission"), message.to_owned()));
        }
        if let CacheConfig::Controlled { may_cache: false, minimum, .. } = volume.cache
            && minimum > Bytes::ZERO
        {
            let message =
                format!("`false` beside a `minimum` of {minimum}, which is a cache that it always has");
            let hint = format!("cache = \"{minimum}\", for a quota that the controller never changes");
            findings.push(Finding::new(key("may_cache"), message).hint(hint));
        }
        if let CacheConfig::Controlled { minimum, maximum: Some(maximum), .. } = volume.cache
            && minimum > maximum
        {
            let message = format!("{maximum} is below `minimum`, which is {minimum}");
            findings.push(Finding::new(key("maximum"), message));
        }
    }
}

fn groups(config: &Config, findings: &mut Vec<Finding>) {
    let mut names: Vec<&str> = Vec::new();
    for (at, group) in config.disk_groups.iter().enumerate() {
        let key = |key: &str| format!("disk_group[{at}].{key}");
        if group.name.is_empty() {
            findings.push(Finding::new(key("name"), "an empty text is no name"));
        } else if names.contains(&group.name.as_str()) {
            findings.push(Finding::new(key("name"), format!("there is another disk group `{}`", group.name)));
        }
        names.push(&group.name);
        let made = DiskGroup::new(group.parameters.clone());
        let made = made.map(drop).and_then(|()| match &group.array {
            Some(cache) => Array::new(group.parameters.clone(), *cache).map(drop),
            None => Ok(()),
        });
        if let Err(error) = made {
            findings.push(Finding::new(format!("disk_group[{at}]"), error.to_string()));
        }
    }
    for (at, volume) in config.volumes.iter().enumerate() {
        if let OriginConfig::DiskGroup { group, .. } = &volume.origin
            && !names.contains(&group.as_str())
        {
            let known: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            let finding = Finding::new(
                format!("volume[{at}].origin.group"),
                format!("there is no disk group `{group}`"),
            );
            findings.push(match known.is_empty() {
                true => finding.hint("declare it as `[[disk_group]]`"),
                false => finding.hint(format!("the disk groups are {}", known.join(", "))),
            });
        }
    }
    for (at, place) in places(config).into_iter().enumerate() {
        let key = format!("volume[{at}].origin.offset");
        match place {
            Some(Err(message)) => findings.push(Finding::new(key, message)),
            Some(Ok(place)) => {
                let OriginConfig::DiskGroup { group: name, .. } = &config.volumes[at].origin else {
                    continue;
                };
                let Some(group) = config.disk_groups.iter().find(|group| group.name == *name) else {
                    continue;
                };
                let Ok(model) = DiskGroup::new(group.parameters.clone()) else { continue };
                let capacity = model.capacity_bytes();
                if place.offset.checked_add(place.length).is_none_or(|end| end > capacity) {
                    let (from, size, end) = (Bytes(place.offset), Bytes(place.length), Bytes(capacity));
                    let message = format!(
                        "a volume of {size} at {from} passes the end of disk group `{name}` at {end}"
                    );
                    findings.push(Finding::new(key, message).hint("raise `disk_capacity` or `spindles`"));
                }
            }
            None => {}
        }
    }
}

/// Where each volume lies on its disk group: `None` for those that are on none, an error where that cannot be said.
pub(crate) fn places(config: &Config) -> Vec<Option<Result<ByteRange, String>>> {
    let mut placed: BTreeMap<&str, Vec<(ByteRange, &str)>> = BTreeMap::new();
    let mut places = Vec::with_capacity(config.volumes.len());
    for volume in &config.volumes {
        let OriginConfig::DiskGroup { group, backing, offset } = &volume.origin else {
            places.push(None);
            continue;
        };
        let size = match backing {
            DiskBacking::Memory(size) => Some(*size),
            DiskBacking::Image(image) => Some(image.size()),
            DiskBacking::File(path) => std::fs::metadata(path).ok().map(|metadata| size_of(&metadata)),
        };
        let others = placed.entry(group).or_default();
        let next = others.iter().map(|(place, _)| place.end()).max().unwrap_or(0);
        let place = match (size, offset) {
            // Its file is not there yet, and this is said elsewhere unless that is allowed.
            (None, Some(_)) => None,
            (None, None) if volume.on_absent == OnAbsent::Fail => None,
            (None, None) => Some(Err(format!(
                "volume `{}` waits for its file, so that its place on the disk group is not known: set `offset`",
                volume.name
            ))),
            (Some(size), offset) => {
                let place = ByteRange::new(offset.unwrap_or(next), size.get());
                match others.iter().find(|(other, _)| other.overlaps(place)) {
                    Some((other, name)) => Some(Err(format!(
                        "volume `{}` at {} overlaps volume `{name}` at {} of disk group `{group}`",
                        volume.name,
                        Bytes(place.offset),
                        Bytes(other.offset)
                    ))),
                    None => {
                        others.push((place, &volume.name));
                        Some(Ok(place))
                    }
                }
            }
        };
        places.push(place);
    }
    places
}

/// What two volumes must not share if either may write.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Identity {
    /// A file, whatever it is called.
    Inode(u64, u64),
    /// A block device, whatever its node is called.
    Device(u64),
    /// A file that is not there yet.
    Path(PathBuf),
    /// An export.
    Export(String),
}

impl Identity {
    fn of(origin: &OriginConfig) -> Option<Identity> {
        if let OriginConfig::Nbd { uri, .. } = origin {
            return Some(Identity::Export(uri.to_string()));
        }
        let path = origin.path()?;
        Some(match std::fs::metadata(path) {
            Ok(metadata) if metadata.file_type().is_block_device() => Identity::Device(metadata.rdev()),
            Ok(metadata) => Identity::Inode(metadata.dev(), metadata.ino()),
            Err(_) => Identity::Path(std::path::absolute(path).unwrap_or_else(|_| path.to_owned())),
        })
    }

    /// Whether a byte of the one may be a byte of the other.
    fn overlaps(&self, other: &Identity) -> bool {
        match (self, other) {
            (Identity::Device(a), Identity::Device(b)) => {
                a == b || whole_disk(*a) == Some(*b) || whole_disk(*b) == Some(*a)
            }
            _ => self == other,
        }
    }
}

/// Where Linux tells of a block device, whatever its node is called. The layout of device numbers is its own.
fn told_of(device: u64) -> PathBuf {
    let major = ((device >> 32) & 0xffff_f000) | ((device >> 8) & 0xfff);
    let minor = ((device >> 12) & 0xffff_ff00) | (device & 0xff);
    format!("/sys/dev/block/{major}:{minor}").into()
}

/// The disk that a partition lies on; `None` for what is no partition.
fn whole_disk(device: u64) -> Option<u64> {
    let node = std::fs::canonicalize(told_of(device)).ok()?;
    if !node.join("partition").exists() {
        return None;
    }
    let text = std::fs::read_to_string(node.parent()?.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    let (major, minor): (u64, u64) = (major.parse().ok()?, minor.parse().ok()?);
    Some(
        ((major & 0xffff_f000) << 32)
            | ((major & 0xfff) << 8)
            | ((minor & 0xffff_ff00) << 12)
            | (minor & 0xff),
    )
}

/// The size of a file or block device; 0 of a device that nothing is told of.
pub(super) fn size_of(metadata: &Metadata) -> Bytes {
    if !metadata.file_type().is_block_device() {
        return Bytes(metadata.len());
    }
    let sectors = std::fs::read_to_string(told_of(metadata.rdev()).join("size"));
    Bytes(sectors.ok().and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0) * 512)
}

fn origins(config: &Config, findings: &mut Vec<Finding>) {
    let mut identities: Vec<(Identity, usize)> = Vec::new();
    for (at, volume) in config.volumes.iter().enumerate() {
        let key = match &volume.origin {
            OriginConfig::DiskGroup { .. } => format!("volume[{at}].origin.path"),
            _ => format!("volume[{at}].origin"),
        };
        if let Some(path) = volume.origin.path()
            && let Err(finding) = file_origin(volume, path, &key)
        {
            findings.push(finding);
        }
        if let OriginConfig::Nbd { uri, tls, .. } = &volume.origin {
            let finding = |message: &str| Finding::new(format!("volume[{at}].origin"), message);
            if leads_back(uri, volume, &listened_at(config)) {
                let message =
                    format!("`{}` is volume `{}` itself, as it is served here", uri.shown(), volume.name);
                findings.push(finding(&message).hint("name the server that has its data"));
            }
            if uri.tls_required && tls.authorities.is_none() && uri.tls_verify_peer != Some(false) {
                findings.push(finding("asks for TLS, and nothing says whom to believe").hint(
                    "origin = { type = \"nbd\", uri = \"nbds://...\", authorities = \"ca-cert.pem\" }",
                ));
            }
            if !uri.tls_required && *tls != OriginTls::default() {
                findings.push(
                    finding("has certificates, and its URI does not ask for TLS")
                        .hint("write `nbds` for `nbd`"),
                );
            }
        }
        layers(volume, at, findings);
        let Some(identity) = Identity::of(&volume.origin) else { continue };
        let shared = identities.iter().find(|(other, first)| {
            other.overlaps(&identity) && !(volume.read_only && config.volumes[*first].read_only)
        });
        if let Some((_, first)) = shared {
            let (name, first) = (&volume.name, &config.volumes[*first].name);
            let message = format!(
                "volume `{name}` has the same origin as volume `{first}`: a write to the one would make the cache of the other wrong"
            );
            findings.push(
                Finding::new(&key, message)
                    .hint("give each volume an origin of its own, or make both `read_only`"),
            );
        }
        identities.push((identity, at));
    }
}

/// Where NBD clients are to connect.
fn listened_at(config: &Config) -> Vec<BoundAddress> {
    let at = |mut listener: &ListenerConfig| loop {
        match listener {
            ListenerConfig::Tls { listener: inner, .. } => listener = inner,
            ListenerConfig::Unix { path } => break BoundAddress::Unix(path.clone()),
            ListenerConfig::Tcp { address, .. } => break BoundAddress::Tcp(*address),
        }
    };
    config.listen.iter().map(at).collect()
}

fn file_origin(volume: &VolumeConfig, path: &Path, key: &str) -> Result<(), Finding> {
    let name = path.display();
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(_) if volume.on_absent == OnAbsent::Wait => return Ok(()),
        Err(error) => {
            let finding = Finding::new(key, format!("cannot open origin `{name}`: {error}"));
            return Err(match error.kind() {
                std::io::ErrorKind::NotFound => {
                    finding.hint("create it with the size of the volume, or set `on_absent = \"wait\"`")
                }
                _ => finding,
            });
        }
    };
    if let Some(message) = unfit(&volume.origin, path, &metadata) {
        return Err(Finding::new(key, message));
    }
    if metadata.is_file() && metadata.len() == 0 {
        let finding = Finding::new(key, format!("origin `{name}` has a size of 0 bytes"));
        return Err(finding.hint("create it with the size of the volume, as in `truncate -s 10G`"));
    }
    Ok(())
}

/// Why what is at `path` is not what `origin` is said to be.
pub(super) fn unfit(origin: &OriginConfig, path: &Path, metadata: &Metadata) -> Option<String> {
    let kind = metadata.file_type();
    let expected = match origin {
        OriginConfig::BlockDevice { .. } if !kind.is_block_device() => "a block device",
        _ if !kind.is_block_device() && !kind.is_file() => "a file or a block device",
        _ => return None,
    };
    let found = if kind.is_dir() {
        "a directory"
    } else if kind.is_file() {
        "a file"
    } else {
        "something else"
    };
    Some(format!("origin `{}` is {found}: expected {expected}", path.display()))
}

fn layers(volume: &VolumeConfig, at: usize, findings: &mut Vec<Finding>) {
    let hour = Nanos::secs(3600);
    for (index, layer) in volume.layers.iter().enumerate() {
        let mut wrong = |key: &str, message: String| {
            findings.push(Finding::new(format!("volume[{at}].layers[{index}].{key}"), message));
        };
        match layer {
            LayerConfig::Error(error) => {
                if !(0.0..=1.0).contains(&error.probability) {
                    wrong("probability", format!("{} is out of range: expected 0 to 1", error.probability));
                }
                if !(1..=4095).contains(&error.errno) {
                    wrong("errno", format!("{} is out of range: expected 1 to 4095", error.errno));
                }
            }
            LayerConfig::Rate(rate) => {
                for (key, rate) in [
                    ("requests_per_second", rate.requests_per_second),
                    ("bytes_per_second", rate.bytes_per_second),
                ] {
                    let is_rate = |rate: &f64| rate.is_finite() && *rate > 0.0 && rate.recip().is_finite();
                    if let Some(rate) = rate.filter(|rate| !is_rate(rate)) {
                        wrong(
                            key,
                            format!(
                                "{rate:e} is out of range: expected a number above 0 whose reciprocal is finite"
                            ),
                        );
                    }
                }
                if rate.burst > hour {
                    wrong("burst", format!("{} is out of range: expected at most {hour}", rate.burst));
                }
            }
            LayerConfig::Delay(_) | LayerConfig::Log(_) => {}
        }
    }
}

/// History, snapshots and what is kept of orders, but for the files themselves.
fn kept(config: &Config, findings: &mut Vec<Finding>) {
    if let Some(history) = &config.history {
        let (year, minute) = (Duration::from_secs(3650 * 86_400), Duration::from_secs(60));
        if history.retention < minute || history.retention > year {
            findings.push(Finding::new("history.retention", "out of range: expected 1 minute to 3650 days"));
        }
        if history.rows_max < 1000 {
            findings.push(Finding::new("history.rows_max", "out of range: expected at least 1000"));
        }
    }
    if let Some(snapshots) = &config.snapshots {
        snapshot_place(config, &snapshots.place, findings);
        let in_range = [
            ("every", snapshots.every >= Duration::from_millis(100), "at least 100ms"),
            ("every_requests", snapshots.every_requests >= 1, "at least 1"),
            ("keep", (1..=500).contains(&snapshots.keep), "1 to 500"),
            ("expire", snapshots.expire >= Duration::from_secs(60), "at least 1 minute"),
        ];
        for (key, _, expected) in in_range.iter().filter(|(_, good, _)| !good) {
            let message = format!("out of range: expected {expected}");
            findings.push(Finding::new(format!("snapshots.{key}"), message));
        }
    }
    if config.reservations.is_some() {
        findings.extend(without_changes(config, "reservations", "reservations are made"));
    }
    if config.leases.is_some() {
        findings.extend(without_changes(config, "leases", "leases are raised"));
    }
}

/// Of `section`, where nobody could change anything while the daemon runs.
fn without_changes(config: &Config, section: &str, what: &str) -> Option<Finding> {
    let http = &config.http;
    let can_change = http.socket.is_some() || (http.listen.is_some() && http.token.is_some());
    let message =
        format!("{what} over `http.socket`, or over `http.listen` with `http.token`; found neither");
    (!can_change).then(|| Finding::new(section, message).hint("http.socket = \"/run/forebay-http.sock\""))
}

fn memory(config: &Config, findings: &mut Vec<Finding>) {
    let machine = machine_memory();
    let most = Bytes(machine.get() / 10 * 9);
    let memory = config.cache_memory;
    if memory > most {
        let message = format!(
            "{memory} is more than nine tenths of the {machine} that this machine has: expected at most {most}"
        );
        findings.push(Finding::new("cache.memory", message));
    }
    let mut promised = 0u64;
    let mut held = memory.get();
    for (at, volume) in config.volumes.iter().enumerate() {
        let (key, bytes) = match volume.cache {
            CacheConfig::Fixed(quota) => ("cache", quota),
            CacheConfig::Controlled { minimum, .. } => ("minimum", minimum),
        };
        promised = promised.saturating_add(bytes.get());
        if promised > memory.get() && bytes > Bytes::ZERO {
            let message = format!(
                "with {bytes} for volume `{}` the fixed and guaranteed caches come to {}, and `cache.memory` is {memory}",
                volume.name,
                Bytes(promised)
            );
            findings.push(Finding::new(format!("volume[{at}].{key}"), message));
        }
        if let CacheConfig::Controlled { maximum: Some(maximum), .. } = volume.cache
            && maximum > memory
        {
            let message = format!("{maximum} is more than `cache.memory`, which is {memory}");
            findings.push(Finding::new(format!("volume[{at}].maximum"), message));
        }
        let (key, image) = match &volume.origin {
            OriginConfig::Memory { size } => ("size", *size),
            OriginConfig::DiskGroup { backing: DiskBacking::Memory(size), .. } => ("memory", *size),
            _ => continue,
        };
        held = held.saturating_add(image.get());
        if held > machine.get() {
            let message = format!(
                "with {image} for volume `{}` in memory, volumes and caches come to {}, and this machine has {machine}",
                volume.name,
                Bytes(held)
            );
            findings.push(Finding::new(format!("volume[{at}].origin.{key}"), message));
        }
    }
}

fn control(config: &Config, findings: &mut Vec<Finding>) {
    let interval = config.control.interval;
    if !(Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&interval) {
        let message = format!("{} is out of range: expected 100ms to 3600s", Nanos::from(interval));
        findings.push(Finding::new("control.interval", message));
    }
    for error in config.control.rules.wrong() {
        let message = format!("{} is out of range: expected {}", error.found, error.expected);
        findings.push(Finding::new(format!("control.{}", error.key), message));
    }
}
