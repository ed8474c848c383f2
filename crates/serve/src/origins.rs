//! From configured origins to open ones: files, exports, places on disk groups, and the layers over them.

use crate::config::{Config, DiskBacking, LayerConfig, OriginConfig, VolumeConfig, places};
use forebay_appliance::OriginStamp;
use forebay_cache::flash::Stamp;
use forebay_control::{OriginId, OriginSpec};
use forebay_nbd::Transport;
use forebay_origin::layer::{Delay, ErrorInjection, LayerError, Log, Rate};
use forebay_origin::{
    ConnectError, DiskGroupDevice, FileOrigin, FileOriginOptions, Lineage, MemoryImage, MemoryOrigin,
    NbdOrigin, OpenError, Origin, Timer, VolumeBacking,
};
use forebay_tls::{ClientTls, TlsFilesError};
use forebay_units::mix64;
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// Why an origin cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OriginFailure {
    /// A file, a device or a disk group.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// An export.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The certificates for an export over TLS.
    #[error(transparent)]
    Tls(#[from] TlsFilesError),
    /// A layer's parameter.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// A layer's file, or a thread.
    #[error("cannot stack a layer on the origin")]
    System(#[from] io::Error),
    /// A place on a disk group.
    #[error("{message}")]
    Place {
        /// What is wrong with it.
        message: String,
    },
}

impl OriginFailure {
    /// Whether the origin is there, and a lease keeps us out of it.
    pub(crate) fn is_kept_out(&self) -> bool {
        matches!(self, OriginFailure::Connect(error) if error.is_kept_out())
    }
}

/// What origins share: disk groups and the timer of layers.
pub(crate) struct OriginShop {
    groups: BTreeMap<String, Arc<DiskGroupDevice>>,
    timer: Option<Arc<Timer>>,
    /// Which run of which client the daemon is, where that is kept.
    lineage: Option<Lineage>,
}

impl OriginShop {
    /// Starts the disk groups, and a timer where a layer needs one.
    pub(crate) fn start(config: &Config, lineage: Option<Lineage>) -> Result<OriginShop, OriginFailure> {
        let mut groups = BTreeMap::new();
        for group in &config.disk_groups {
            let device = DiskGroupDevice::start_behind(group.array, group.parameters.clone())?;
            groups.insert(group.name.clone(), device);
        }
        let delays = |layer: &LayerConfig| matches!(layer, LayerConfig::Delay(_) | LayerConfig::Rate(_));
        let needs_timer = config.volumes.iter().any(|volume| volume.layers.iter().any(delays));
        let timer = if needs_timer { Some(Timer::start()?) } else { None };
        Ok(OriginShop { groups, timer, lineage })
    }

    /// Opens the origin of the volume at `index`, layers included. Connecting to an export may take its timeout.
    pub(crate) fn open(&self, config: &Config, index: usize) -> Result<Arc<dyn Origin>, OriginFailure> {
        self.open_as(config, index, &config.volumes[index].origin)
    }

    /// Likewise, with `origin` below the layers in place of the configured one.
    pub(crate) fn open_as(
        &self,
        config: &Config,
        index: usize,
        origin: &OriginConfig,
    ) -> Result<Arc<dyn Origin>, OriginFailure> {
        let volume = &config.volumes[index];
        let mut origin = self.open_bare(config, index, volume, origin)?;
        for layer in &volume.layers {
            let timer = || Arc::clone(self.timer.as_ref().expect("started where a layer needs it"));
            origin = match layer {
                LayerConfig::Delay(parameters) => Arc::new(Delay::new(origin, timer(), *parameters)),
                LayerConfig::Error(parameters) => Arc::new(ErrorInjection::new(origin, *parameters)?),
                LayerConfig::Rate(parameters) => Arc::new(Rate::new(origin, timer(), *parameters)?),
                LayerConfig::Log(parameters) => Arc::new(Log::new(origin, parameters.clone())?),
            };
        }
        Ok(origin)
    }

    fn open_bare(
        &self,
        config: &Config,
        index: usize,
        volume: &VolumeConfig,
        origin: &OriginConfig,
    ) -> Result<Arc<dyn Origin>, OriginFailure> {
        Ok(match origin {
            OriginConfig::File { .. }
            | OriginConfig::BlockDevice { .. }
            | OriginConfig::Nbd { .. }
            | OriginConfig::Memory { .. }
            | OriginConfig::Image(_) => {
                // Who changes nothing has nothing that could come late, and copies of one machine may share what they read.
                let lineage = self.lineage.as_ref().filter(|_| !volume.read_only);
                open_alone(origin, volume.read_only, lineage)?
            }
            OriginConfig::DiskGroup { group, backing, offset } => {
                let read_only = volume.read_only;
                let place = |message: String| OriginFailure::Place { message };
                let device = self
                    .groups
                    .get(group)
                    .ok_or_else(|| place(format!("there is no disk group `{group}`")))?;
                let offset = match (offset, places(config).swap_remove(index)) {
                    (Some(offset), _) => *offset,
                    (None, Some(Ok(found))) => found.offset,
                    (None, Some(Err(message))) => return Err(place(message)),
                    (None, None) => return Err(place("its place on the disk group is not known".to_owned())),
                };
                let backing = match backing {
                    DiskBacking::File(path) => VolumeBacking::File { path: path.clone(), read_only },
                    DiskBacking::Memory(size) => VolumeBacking::Memory(Arc::new(MemoryImage::new(*size))),
                    DiskBacking::Image(image) => VolumeBacking::Memory(Arc::clone(image)),
                };
                Arc::new(device.volume(backing, offset)?)
            }
        })
    }
}

/// Opens an origin that needs nobody else: not one on a disk group. With a `lineage`, an export is told who connects, and in which run.
pub(crate) fn open_alone(
    origin: &OriginConfig,
    read_only: bool,
    lineage: Option<&Lineage>,
) -> Result<Arc<dyn Origin>, OriginFailure> {
    Ok(match origin {
        OriginConfig::File { path, workers } | OriginConfig::BlockDevice { path, workers } => {
            let options = FileOriginOptions { read_only, workers: *workers, ..FileOriginOptions::default() };
            Arc::new(FileOrigin::open(path, options)?)
        }
        OriginConfig::Nbd { uri, options, tls } => {
            let believes = uri.tls_verify_peer.unwrap_or(true);
            let authorities = tls.authorities.as_deref().filter(|_| believes);
            let identity =
                tls.identity.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path()));
            let tls = match uri.tls_required {
                true => Some(ClientTls::load(authorities, identity)?),
                false => None,
            };
            Arc::new(NbdOrigin::connect_secured(uri, tls, *options, lineage)?)
        }
        OriginConfig::Memory { size } => Arc::new(MemoryOrigin::new(Arc::new(MemoryImage::new(*size)))),
        OriginConfig::Image(image) => Arc::new(MemoryOrigin::new(Arc::clone(image))),
        OriginConfig::DiskGroup { group, .. } => {
            return Err(OriginFailure::Place { message: format!("it is on the disk group `{group}`") });
        }
    })
}

/// How flash knows at the next start that nobody changed the `origin` of a volume meanwhile: by a file's times as long as the system runs, or by the operator's
/// word.
pub(crate) fn origin_stamp(volume: &VolumeConfig, origin: &Arc<dyn Origin>) -> OriginStamp {
    if matches!(
        &volume.origin,
        // Memory is lost at the end, whatever anybody says.
        OriginConfig::Memory { .. }
            | OriginConfig::Image(_)
            | OriginConfig::DiskGroup { backing: DiskBacking::Memory(_) | DiskBacking::Image(_), .. }
    ) {
        return OriginStamp::unknown();
    }
    let start = if volume.sole_writer { Some(0) } else { system_start() };
    let origin = Arc::clone(origin);
    let (size_bytes, vouched) = (origin.traits().size_bytes, volume.sole_writer);
    OriginStamp::new(move || {
        // Blocks behind its end may be there of a file that was cut while it was served.
        if origin.metadata().is_some_and(|now| now.is_file() && now.len() < size_bytes) {
            return None;
        }
        let seen = start.and_then(|start| file_stamp(start, || origin.metadata()));
        seen.map(Stamp::Seen).or(vouched.then_some(Stamp::Vouched { size_bytes }))
    })
}

/// A number for this start of the system.
fn system_start() -> Option<u64> {
    let start = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(start.trim().bytes().fold(0, |number, byte| mix64(number ^ u64::from(byte))))
}

/// What changes with every change of a regular file: its times, down to the nanosecond, beside its number, its size, and the `start` of the system
/// since which they are told. It is that of the file which is open: another one may have its name by now.
///
/// A loss of power may take the times of a change and leave the change: `fdatasync` has Linux keep what was written, and not when. So over a start of the
/// system they are no proof, unless it is known otherwise (0) that there was no such change.
fn file_stamp(start: u64, look: impl Fn() -> Option<Metadata>) -> Option<[u8; 32]> {
    // The clock of file times may stand still for some milliseconds: a change within the same tick would leave them as they are. So they
    // are believed only when they are older than that.
    for _ in 0..20 {
        let metadata = look().filter(Metadata::is_file)?;
        let times = [(metadata.mtime(), metadata.mtime_nsec()), (metadata.ctime(), metadata.ctime_nsec())];
        let nanos = times.map(|(seconds, nanos)| i128::from(seconds) * 1_000_000_000 + i128::from(nanos));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_nanos() as i128;
        if nanos.iter().all(|at| now - at > 100_000_000) {
            let words = [nanos[0] as u64 ^ start, nanos[1] as u64, metadata.ino(), metadata.len()];
            let mut stamp = [0; 32];
            for (bytes, word) in stamp.chunks_mut(8).zip(words) {
                bytes.copy_from_slice(&word.to_le_bytes());
            }
            return Some(stamp);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

/// Which volumes compete for the same storage: those of one disk group, file system, device or NBD server.
///
/// Returns the origin of each volume, and what is known of each origin.
pub(crate) fn competition(config: &Config) -> (Vec<OriginId>, Vec<OriginSpec>) {
    let mut specs: Vec<OriginSpec> = Vec::new();
    let mut ids = Vec::with_capacity(config.volumes.len());
    for volume in &config.volumes {
        let (name, servers) = match &volume.origin {
            OriginConfig::DiskGroup { group, .. } => {
                let found = config.disk_groups.iter().find(|found| found.name == *group);
                (format!("disk group {group}"), found.map(|group| f64::from(group.parameters.spindles)))
            }
            OriginConfig::Nbd { uri, .. } => match &uri.transport {
                Transport::Tcp { host, port } => (format!("NBD server {host}:{port}"), None),
                Transport::Unix { path } => (format!("NBD server {}", path.display()), None),
            },
            OriginConfig::Memory { .. } | OriginConfig::Image(_) => {
                (format!("memory of {}", volume.name), None)
            }
            origin => {
                let path = origin.path().expect("the others have paths");
                match std::fs::metadata(path) {
                    Ok(metadata) if metadata.file_type().is_block_device() => {
                        (format!("device {}", metadata.rdev()), None)
                    }
                    Ok(metadata) => (format!("file system {}", metadata.dev()), None),
                    // It is not there yet; what it shares is not known then.
                    Err(_) => (format!("origin of {}", volume.name), None),
                }
            }
        };
        let id = match specs.iter().find(|spec| spec.name == name) {
            Some(spec) => spec.id,
            None => {
                let id = OriginId(specs.len() as u32);
                specs.push(OriginSpec { id, name, servers, service_cv2: None, service: None });
                id
            }
        };
        ids.push(id);
    }
    (ids, specs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DiskGroupConfig, OriginTls};
    use forebay_nbd::{ExportInfo, RunId, Succeeds, Succession, Uri, server};
    use forebay_origin::NbdOriginOptions;
    use forebay_units::Bytes;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    #[test]
    fn the_times_of_a_file_are_proof_until_the_system_is_started_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        std::fs::write(&path, "before").unwrap();
        let stamp = |start| file_stamp(start, || path.metadata().ok()).expect("the clock of files moves on");
        assert_eq!(stamp(1), stamp(1));
        assert_ne!(stamp(1), stamp(2));
        // Who vouches for the file does so over starts of the system, and its times are looked at all the same.
        let of = |sole_writer| {
            let mut volume = VolumeConfig::new("db", OriginConfig::File { path: path.clone(), workers: 1 });
            volume.sole_writer = sole_writer;
            origin_stamp(&volume, &open_alone(&volume.origin, false, None).unwrap()).take()
        };
        let started = system_start().expect("Linux numbers its starts");
        assert_eq!(of(false), Some(Stamp::Seen(stamp(started))));
        let before = of(true);
        assert_eq!(before, Some(Stamp::Seen(stamp(0))));
        std::fs::write(&path, "behind").unwrap();
        assert_ne!(of(true), before);
    }

    #[test]
    fn a_file_that_was_cut_while_it_was_served_proves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        std::fs::write(&path, [7; 8192]).unwrap();
        for sole_writer in [false, true] {
            let mut volume = VolumeConfig::new("db", OriginConfig::File { path: path.clone(), workers: 1 });
            volume.sole_writer = sole_writer;
            let stamp = origin_stamp(&volume, &open_alone(&volume.origin, false, None).unwrap());
            let cut_to = |bytes| std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(bytes);
            cut_to(4096).unwrap();
            assert_eq!(stamp.take(), None);
            cut_to(8192).unwrap();
            assert!(stamp.take().is_some());
        }
    }

    #[test]
    fn a_file_that_was_changed_is_another_one_although_its_time_was_put_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        std::fs::write(&path, "before").unwrap();
        let stamp = || file_stamp(1, || path.metadata().ok()).expect("the clock of files moves on");
        let (before, modified) = (stamp(), path.metadata().unwrap().modified().unwrap());
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_modified(modified).unwrap();
        assert_eq!(path.metadata().unwrap().modified().unwrap(), modified);
        assert_ne!(stamp(), before);
    }

    #[test]
    fn what_has_no_times_is_as_it_was_by_the_operators_word_alone_and_memory_never() {
        let memory = OriginConfig::Memory { size: Bytes::kib(4) };
        let uri = "nbd://storage/db".parse().unwrap();
        let (options, tls) = (NbdOriginOptions::default(), OriginTls::default());
        let export = OriginConfig::Nbd { uri, options, tls };
        let opened = open_alone(&memory, false, None).unwrap();
        let told = |origin: &OriginConfig, sole_writer| {
            let volume = VolumeConfig { sole_writer, ..VolumeConfig::new("db", origin.clone()) };
            origin_stamp(&volume, &opened).take()
        };
        assert_eq!(told(&export, false), None);
        assert_eq!(told(&export, true), Some(Stamp::Vouched { size_bytes: 4096 }));
        assert_eq!([told(&memory, false), told(&memory, true)], [None, None]);
    }

    #[test]
    fn who_shares_a_server_a_file_system_or_disks_competes_and_memory_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, [0; 512]).unwrap();
            OriginConfig::File { path, workers: 1 }
        };
        let export = |uri: &str| {
            let (options, tls) = (NbdOriginOptions::default(), OriginTls::default());
            OriginConfig::Nbd { uri: uri.parse().unwrap(), options, tls }
        };
        let memory = || OriginConfig::Memory { size: Bytes::kib(4) };
        let disks = || {
            let backing = DiskBacking::Memory(Bytes::kib(4));
            OriginConfig::DiskGroup { group: "disks".to_owned(), backing, offset: None }
        };
        let origins = [
            export("nbd://storage/a"),
            export("nbd://storage/b"),
            export("nbd://storage:9999/a"),
            file("a.img"),
            file("b.img"),
            memory(),
            memory(),
            disks(),
            disks(),
        ];
        let volumes = origins.into_iter().zip("abcdefghi".chars());
        let volumes = volumes.map(|(origin, name)| VolumeConfig::new(name.to_string(), origin));
        let mut config = Config::new(volumes.collect());
        config.disk_groups = vec![DiskGroupConfig::new("disks")];
        let spindles = config.disk_groups[0].parameters.spindles;
        let (ids, specs) = competition(&config);
        assert_eq!(ids.iter().map(|id| id.0).collect::<Vec<_>>(), [0, 0, 1, 2, 2, 3, 4, 5, 5]);
        assert_eq!(specs[5].servers, Some(f64::from(spindles)));
    }

    /// Lets somebody in, once; at which place.
    fn place_of_next(listener: &UnixListener) -> Succession {
        let (mut stream, _) = listener.accept().unwrap();
        let run = RunId(1);
        let succeeds = Some(Succeeds { run, storage: None, keeper: Some(run) });
        let exports = vec![ExportInfo { succeeds, ..ExportInfo::new("disk", 1 << 20) }];
        let (mut output, mut input) = (Vec::new(), Vec::new());
        let mut session = server::Session::new(server::Config::default(), &mut output);
        while !session.is_transmitting() {
            stream.write_all(&output).unwrap();
            output.clear();
            let mut chunk = [0; 4096];
            let bytes = stream.read(&mut chunk).unwrap();
            input.extend_from_slice(&chunk[..bytes]);
            loop {
                let parsed = session.receive(&input, &exports, &mut output).unwrap();
                let needs_more = parsed.event == server::Event::NeedMore;
                input.drain(..parsed.consumed);
                if needs_more || session.is_transmitting() {
                    break;
                }
            }
        }
        stream.write_all(&output).unwrap();
        session.succession().expect("it names one")
    }

    #[test]
    fn every_export_that_is_written_hears_which_run_this_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let uri = Uri::unix(&path, "disk");
        let options = NbdOriginOptions { connections: 1, ..NbdOriginOptions::default() };
        let origin = OriginConfig::Nbd { uri, options, tls: OriginTls::default() };
        let mut config = Config::new(vec![VolumeConfig::new("db", origin.clone()); 2]);
        config.volumes[1].read_only = true;
        let shop = OriginShop::start(&config, Some(Lineage::new(7, 3))).unwrap();
        let place = |open: &dyn Fn() -> Result<Arc<dyn Origin>, OriginFailure>| {
            std::thread::scope(|scope| {
                let place = scope.spawn(|| place_of_next(&listener));
                drop(open().unwrap());
                place.join().unwrap()
            })
        };
        assert_eq!(place(&|| shop.open(&config, 0)), Succession::of(7, 3, 0, 0));
        // Wherever it is sent.
        assert_eq!(place(&|| shop.open_as(&config, 0, &origin)), Succession::of(7, 3, 1, 0));
        assert_eq!(place(&|| shop.open(&config, 1)).generation(), 0, "it changes nothing");
        let shop = OriginShop::start(&config, None).unwrap();
        assert_eq!(place(&|| shop.open(&config, 0)).generation(), 0);
    }
}
