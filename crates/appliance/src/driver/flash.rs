//! The flash device of an appliance: one file or block device, read and written past the host's page cache, in the io_uring of the worker that asks or by
//! threads.
//!
//! Requests may come from any worker, are done in any order, and are answered like an origin's. At most [`FLASH_REQUESTS_MAX`] wait;
//! above that the answer is an error, which for a read is a miss. Start and stop of volumes ([`FlashTier`]) do their I/O here, too, on the
//! thread that asks. It is *not* what judges whether bytes are right: partitions do.

use forebay_cache::flash::{
    FlashDevice, FlashError, FlashTier, Geometry, Opened, Stamp, TierSettings, VolumeId,
};
use forebay_origin::{
    CompletionSink, Origin, OriginCompletion, OriginError, OriginOperation, OriginRequest, open_patiently,
};
use forebay_ring::{FileError, FileIo, Operation, Threads};
use forebay_units::{Bytes, mix64};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// Requests that may wait for the device.
pub const FLASH_REQUESTS_MAX: usize = 4096;

/// Bytes of a segment: flash takes them as one write, and a volume has five of them in memory at most.
pub const FLASH_SEGMENT_BYTES: u32 = 1 << 20;

/// Volumes that a device remembers.
pub const FLASH_VOLUMES_MAX: u32 = 255;

/// What reads and writes past the page cache must be aligned to, in memory and on the device: the most that devices ask for.
pub const FLASH_ALIGNMENT: usize = 4096;

/// Threads that read and write what no ring does, at most (ours: with 16, a device sees 16 requests at once).
const THREADS_MAX: usize = 16;

const EBUSY: i32 = 16;
const EIO: i32 = 5;

/// Why a flash device cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FlashOpenError {
    /// The system refuses.
    #[error("cannot open the flash device `{path}`")]
    Io {
        /// Which.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// Another process has it.
    #[error("the flash device `{path}` is in use by another process")]
    Locked {
        /// Which.
        path: PathBuf,
    },
    /// It is a directory, a socket or the like.
    #[error("the flash device `{path}` is neither a file nor a block device")]
    NotStorage {
        /// Which.
        path: PathBuf,
    },
    /// The file is there, but is not as large as it is said to be.
    #[error("the flash file `{path}` has `{found}`, expected `{expected}`; remove it to have it made anew")]
    Size {
        /// Which.
        path: PathBuf,
        /// What it has.
        found: Bytes,
        /// What was set.
        expected: Bytes,
    },
    /// The block device is smaller than what of it is to be used.
    #[error(
        "the flash device `{path}` has `{found}`, expected at least `{expected}`; use less, or a larger one"
    )]
    DeviceSize {
        /// Which.
        path: PathBuf,
        /// What it has.
        found: Bytes,
        /// What was set.
        expected: Bytes,
    },
    /// What is on it.
    #[error("`{path}`: {source}")]
    Flash {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        source: FlashError,
    },
}

/// Where the flash device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlashConfig {
    /// A file, which is made if it is not there, or a block device.
    pub path: PathBuf,
    /// Bytes of it; `None`: all of it, which must be there then.
    pub size: Option<Bytes>,
}

/// Bytes for blocks on a device of `size`: whole segments behind what tells of volumes; zero where it is too small for two.
pub fn flash_capacity(size: Bytes) -> Bytes {
    Geometry::of_device(size.0, FLASH_SEGMENT_BYTES, FLASH_VOLUMES_MAX).map_or(Bytes::ZERO, capacity_of)
}

fn capacity_of(geometry: Geometry) -> Bytes {
    Bytes(u64::from(geometry.segments) * u64::from(geometry.segment_bytes))
}

/// What has become of a flash file that is read and written on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlashMissing {
    /// It has no name any more.
    Removed,
    /// Another file has its path.
    Replaced,
    /// Nothing is found at its path, and it has another name.
    Elsewhere(io::ErrorKind),
}

impl std::fmt::Display for FlashMissing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FlashMissing::Removed => write!(f, "the file was removed"),
            FlashMissing::Replaced => write!(f, "what is there now is another file"),
            FlashMissing::Elsewhere(kind) => write!(f, "the file is not there any more ({kind})"),
        }
    }
}

/// An open flash device with its tier, for all volumes of an appliance.
pub struct FlashStore {
    tier: FlashTier,
    device: Arc<FlashFile>,
    opened: Opened,
    /// Ends after everything that was asked of it was done.
    _threads: Threads,
}

impl std::fmt::Debug for FlashStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlashStore").field("path", &self.device.path).finish_non_exhaustive()
    }
}

impl FlashStore {
    /// Opens, locks and, where it is empty, formats the device.
    ///
    /// # Errors
    /// [`FlashOpenError`].
    pub fn open(config: &FlashConfig) -> Result<FlashStore, FlashOpenError> {
        let threads = Threads::start("flash", THREADS_MAX)
            .map_err(|source| FlashOpenError::Io { path: config.path.clone(), source })?;
        let is_locked = |error: &FlashOpenError| matches!(error, FlashOpenError::Locked { .. });
        let device = Arc::new(open_patiently(|| FlashFile::open(config, &threads), is_locked)?);
        let settings = tier_settings();
        let flash = |source| FlashOpenError::Flash { path: config.path.clone(), source };
        let (tier, opened) = FlashTier::open(device.clone(), &settings).map_err(flash)?;
        if let Opened::Formatted { why } = &opened {
            tracing::warn!(path = %config.path.display(), %why, "flash device formatted anew; what it held is dropped");
        }
        Ok(FlashStore { tier, device, opened, _threads: threads })
    }

    /// Which volume has how much of it.
    pub fn tier(&self) -> &FlashTier {
        &self.tier
    }

    /// Has the device forget a volume that is about to be served with changes, and without flash: a later start with flash must not believe what was there
    /// before. Blocks as the start of a volume with flash does.
    ///
    /// # Errors
    /// [`FlashOpenError::Flash`]; the volume must not be served with changes then.
    pub fn forget(&self, name: &str, origin: &dyn Origin) -> Result<(), FlashOpenError> {
        let forgotten = self.tier.forget(VolumeId::new(name, &origin.describe()));
        forgotten.map_err(|source| FlashOpenError::Flash { path: self.device.path.clone(), source })
    }

    /// How it was found.
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.device.path
    }

    /// What has become of the file at its path since it was opened: `None` while it is what is read and written. Device nodes come and go with the device's
    /// driver and say nothing. Asks the file system twice, so that it may block: not for the data path.
    pub fn missing(&self) -> Option<FlashMissing> {
        let FlashFile { io, path, .. } = &*self.device;
        let own = io.file().metadata().ok().filter(|own| own.is_file())?;
        let found = std::fs::metadata(path);
        if found.as_ref().is_ok_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino())) {
            return None;
        }
        match found {
            Ok(_) => Some(FlashMissing::Replaced),
            Err(_) if own.nlink() == 0 => Some(FlashMissing::Removed),
            Err(error) => Some(FlashMissing::Elsewhere(error.kind())),
        }
    }

    /// Whether it is read and written past the page cache; file systems in memory cannot.
    pub fn is_direct(&self) -> bool {
        self.device.is_direct
    }

    /// Bytes for blocks.
    pub fn capacity(&self) -> Bytes {
        capacity_of(self.tier.geometry())
    }

    /// Bytes of segments that volumes have, or that are kept for the next start.
    pub fn taken(&self) -> Bytes {
        Bytes(u64::from(self.tier.pool().taken()) * u64::from(self.tier.geometry().segment_bytes))
    }

    /// Starts a read or a write; its completion reaches `sink`.
    pub(crate) fn submit(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        self.device.submit(request, sink);
    }
}

fn tier_settings() -> TierSettings {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TierSettings {
        segment_bytes: FLASH_SEGMENT_BYTES,
        records: FLASH_VOLUMES_MAX,
        // Different from one formatting to the next is all that it must be.
        device_id: mix64(now.as_nanos() as u64 ^ u64::from(std::process::id()) << 48),
        epoch_floor: now.as_secs(),
    }
}

/// Why [`FlashStore::open`] could not have what is there now, as far as reading shows: nothing is written, and who has it keeps it. `None` where it
/// could, or where nothing is there yet.
pub fn trouble_of_flash(config: &FlashConfig) -> Option<FlashOpenError> {
    let path = &config.path;
    let examine = || {
        let io = |source| FlashOpenError::Io { path: path.clone(), source };
        let flags = OFlags::NONBLOCK.bits() as i32;
        let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(io)?;
        let kind = file.metadata().map_err(io)?.file_type();
        let found = file.seek(SeekFrom::End(0)).map_err(io)?;
        let size_bytes = match config.size {
            Some(_) if found == 0 && kind.is_file() => return Ok(()),
            _ => used_bytes(config, kind, found)?,
        };
        let flash = |source| FlashOpenError::Flash { path: path.clone(), source };
        FlashTier::examine(&SeenFlash { file, size_bytes }, &tier_settings()).map(drop).map_err(flash)
    };
    path.exists().then(examine)?.err()
}

/// What is used of a file or device that has `found` bytes.
fn used_bytes(config: &FlashConfig, kind: FileType, found: u64) -> Result<u64, FlashOpenError> {
    let Some(expected) = config.size else { return Ok(found) };
    let (path, found) = (config.path.clone(), Bytes(found));
    match kind.is_file() {
        true if found != expected => Err(FlashOpenError::Size { path, found, expected }),
        false if found < expected => Err(FlashOpenError::DeviceSize { path, found, expected }),
        _ => Ok(expected.0),
    }
}

/// A device that is looked at and not used.
struct SeenFlash {
    file: File,
    size_bytes: u64,
}

impl FlashDevice for SeenFlash {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// By what it is known that nobody changed an origin while its volume was stopped: a function, asked at start and at stop, when nothing is in
/// flight; `None` where nobody can know.
#[derive(Clone)]
pub struct OriginStamp(Arc<dyn Fn() -> Option<Stamp> + Send + Sync>);

impl OriginStamp {
    /// The function.
    pub fn new(take: impl Fn() -> Option<Stamp> + Send + Sync + 'static) -> OriginStamp {
        OriginStamp(Arc::new(take))
    }

    /// Nobody can know: what flash holds is dropped at the stop.
    pub fn unknown() -> OriginStamp {
        OriginStamp::new(|| None)
    }

    /// The stamp now.
    pub fn take(&self) -> Option<Stamp> {
        (self.0)()
    }
}

impl std::fmt::Debug for OriginStamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OriginStamp(..)")
    }
}

/// A volume's way to its flash.
pub(crate) struct VolumeFlash {
    pub(crate) name: String,
    pub(crate) store: Arc<FlashStore>,
    pub(crate) stamp: OriginStamp,
    /// Kept open, and so locked, until the last stamp was taken: nobody changes it before that.
    pub(crate) origin: Arc<dyn Origin>,
}

/// The open device and how much is asked of it.
struct FlashFile {
    io: FileIo,
    path: PathBuf,
    size_bytes: u64,
    is_direct: bool,
    in_flight: AtomicUsize,
}

impl FlashFile {
    fn open(config: &FlashConfig, threads: &Threads) -> Result<FlashFile, FlashOpenError> {
        let path = &config.path;
        let io = |source| FlashOpenError::Io { path: path.clone(), source };
        let is_device = std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device());
        let open = |flags: OFlags| {
            // Without O_NONBLOCK the open of a FIFO would wait for a peer; with O_EXCL Linux refuses a device that is mounted.
            let flags = flags | OFlags::NONBLOCK | if is_device { OFlags::EXCL } else { OFlags::empty() };
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(!is_device && config.size.is_some()).truncate(false);
            options.mode(0o600).custom_flags(flags.bits() as i32).open(path)
        };
        let (mut file, is_direct) = match open(OFlags::DIRECT) {
            Ok(file) => (file, true),
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                (open(OFlags::empty()).map_err(io)?, false)
            }
            Err(error) if error.raw_os_error() == Some(EBUSY) => {
                return Err(FlashOpenError::Locked { path: path.clone() });
            }
            Err(error) => return Err(io(error)),
        };
        let kind = file.metadata().map_err(io)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(FlashOpenError::NotStorage { path: path.clone() });
        }
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(FlashOpenError::Locked { path: path.clone() }),
            Err(errno) => return Err(io(errno.into())),
        }
        let mut size_bytes = file.seek(SeekFrom::End(0)).map_err(io)?;
        if let Some(expected) = config.size
            && size_bytes == 0
            && kind.is_file()
        {
            file.set_len(expected.0).map_err(io)?;
            size_bytes = expected.0;
        }
        let size_bytes = used_bytes(config, kind, size_bytes)?;
        // Also where the page cache is not passed: the copy is the same.
        let io = FileIo::new(Arc::new(file), FLASH_ALIGNMENT, threads);
        Ok(FlashFile { io, path: path.clone(), size_bytes, is_direct, in_flight: AtomicUsize::new(0) })
    }

    fn submit(self: &Arc<Self>, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        let OriginRequest { id, operation } = request;
        let operation = match operation {
            OriginOperation::Read { range } => {
                Operation::Read { offset: range.offset, length: range.length as usize }
            }
            OriginOperation::Write { offset, data, .. } => Operation::Write { offset, data },
            _ => unreachable!("flash is only read and written"),
        };
        if self.in_flight.fetch_add(1, Ordering::Relaxed) >= FLASH_REQUESTS_MAX {
            self.in_flight.fetch_sub(1, Ordering::Relaxed);
            let context = "the flash device has too much to do".to_owned();
            return sink.complete(OriginCompletion {
                id,
                result: Err(OriginError::Failed { errno: EBUSY, context }),
            });
        }
        let (device, sink) = (Arc::clone(self), Arc::clone(sink));
        self.io.submit(operation, move |result| {
            device.in_flight.fetch_sub(1, Ordering::Relaxed);
            let result = result.map_err(|error| device.failed(&error));
            sink.complete(OriginCompletion { id, result });
        });
    }

    fn failed(&self, error: &FileError) -> OriginError {
        let errno = match error {
            FileError::Failed(error) => error.raw_os_error(),
            _ => None,
        };
        OriginError::Failed {
            errno: errno.unwrap_or(EIO),
            context: format!("flash device `{}`: {error}", self.path.display()),
        }
    }
}

impl FlashDevice for FlashFile {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        self.io.carry_out(&Operation::Read { offset, length })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.io.carry_out(&Operation::Write { offset, data: data.to_vec() }).map(drop)
    }

    fn sync(&self) -> io::Result<()> {
        self.io.carry_out(&Operation::Sync).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_cache::flash::{FlashVolumeSettings, Recovery};
    use forebay_origin::OriginRequestId;
    use forebay_units::{BlockSize, ByteRange};
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};

    struct Sink(Mutex<Sender<OriginCompletion>>);

    impl CompletionSink for Sink {
        fn complete(&self, completion: OriginCompletion) {
            let _ = self.0.lock().expect("no test panics in here").send(completion);
        }
    }

    /// Its node is nothing to remove.
    #[test]
    fn a_device_that_is_too_small_is_not_to_be_removed() {
        let directory = tempfile::tempdir().unwrap();
        let file = std::fs::metadata(directory.path()).unwrap().file_type();
        let config = FlashConfig { path: "/dev/loop7".into(), size: Some(Bytes::mib(64)) };
        // What is no file is a device here; one of its own takes rights that tests do not have.
        let told = used_bytes(&config, file, 0).unwrap_err().to_string();
        assert!(
            told.contains("`/dev/loop7` has `0B`, expected at least `64MiB`") && !told.contains("remove"),
            "{told}"
        );
        assert_eq!(used_bytes(&config, file, 96 << 20).unwrap(), 64 << 20);
    }

    #[test]
    fn a_file_is_made_locked_read_and_written() {
        let directory = tempfile::tempdir().unwrap();
        let config = FlashConfig { path: directory.path().join("flash"), size: Some(Bytes::mib(8)) };
        let store = FlashStore::open(&config).unwrap();
        // 1 + 2 * 255 sectors of 4 KiB are less than 2 MiB: six segments are left.
        assert_eq!((store.opened(), store.capacity()), (&Opened::New, Bytes::mib(6)));
        assert_eq!(
            (flash_capacity(Bytes::mib(8)), flash_capacity(Bytes::mib(3))),
            (Bytes::mib(6), Bytes::ZERO)
        );
        assert!(matches!(FlashStore::open(&config), Err(FlashOpenError::Locked { .. })));
        let (sender, receiver) = channel();
        let sink: Arc<dyn CompletionSink> = Arc::new(Sink(Mutex::new(sender)));
        let data: Vec<u8> = (0..1 << 20).map(|at: u32| (at >> 7) as u8).collect();
        let ask = |id, operation| {
            store.submit(OriginRequest { id: OriginRequestId(id), operation }, &sink);
            receiver.recv().unwrap()
        };
        let written = ask(1, OriginOperation::Write { offset: 3 << 20, data: data.clone(), fua: false });
        assert_eq!((written.id, written.result), (OriginRequestId(1), Ok(Vec::new())));
        let range = ByteRange::new((3 << 20) + 8192, 4096);
        assert_eq!(ask(2, OriginOperation::Read { range }).result, Ok(data[8192..12288].to_vec()));
        let range = ByteRange::new(9 << 20, 4096);
        assert!(matches!(ask(3, OriginOperation::Read { range }).result, Err(OriginError::Failed { .. })));
        drop(store);
        let other = FlashConfig { size: Some(Bytes::mib(9)), ..config.clone() };
        assert!(matches!(FlashStore::open(&other), Err(FlashOpenError::Size { .. })));
        assert!(matches!(trouble_of_flash(&other), Some(FlashOpenError::Size { .. })));
        let store = FlashStore::open(&FlashConfig { size: None, ..config }).unwrap();
        assert_eq!(store.opened(), &Opened::Found);
        // Whoever looks at it keeps nobody from it, and changes nothing.
        assert!(trouble_of_flash(&FlashConfig { path: store.path().to_owned(), size: None }).is_none());
        let none = directory.path().join("none");
        assert!(
            trouble_of_flash(&FlashConfig { path: none.clone(), size: None }).is_none() && !none.exists()
        );
        let settings = FlashVolumeSettings {
            volume: VolumeId::new("disk", "memory"),
            stamp: None,
            read_only: false,
            block_size: BlockSize::DEFAULT,
            quota_segments: 3,
            seed: 1,
        };
        let (partition, recovery) = store.tier().load(&settings).unwrap();
        assert_eq!((recovery, partition.quota_segments(), store.taken()), (Recovery::New, 3, Bytes::ZERO));
    }
}
