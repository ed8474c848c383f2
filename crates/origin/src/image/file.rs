//! Bytes of a file or block device.

use super::Image;
use crate::extents::ExtentList;
use crate::open_error::OpenError;
use crate::pending::{EBUSY, EIO, ENOTSUP};
use crate::pool::locked;
use crate::request::{OriginError, OriginOperation};
use forebay_nbd::StorageId;
use forebay_nbd::wire::AllocationFlags;
use forebay_ring::{Operation, carry_out};
use forebay_units::{ByteRange, mix64};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock, fstatfs};
use rustix::io::Errno;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// How long a file may be in other hands before it is refused (ours). Who was killed lets go of it only when the system has ended what it
/// had under way, which with io_uring is a moment after it is gone, and not before: until then it might still write. And udev
/// locks a device when it has a look at it.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);

/// Opens something that is to be ours alone, and tries again for 3 s as long as somebody else has it.
///
/// # Errors
/// Those of `open`.
pub fn open_patiently<T, E>(
    mut open: impl FnMut() -> Result<T, E>,
    is_locked: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let end = Instant::now() + LOCK_PATIENCE;
    loop {
        match open() {
            Err(error) if is_locked(&error) && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

/// An open file or block device, locked as long as it is open: exclusively where it may be written, shared where not.
pub(crate) struct FileImage {
    file: Arc<File>,
    path: PathBuf,
    size_bytes: u64,
    read_only: bool,
    is_device: bool,
    /// What it is, if nobody else has it open for writing.
    storage: Option<StorageId>,
    /// Whether holes can be punched, as far as that can be told without punching any.
    can_fast_zero: bool,
    /// Cleared when the file system says that it cannot.
    can_punch: AtomicBool,
    can_zero: AtomicBool,
    /// Why a sync has failed: the system may have dropped the pages, so that a later success proves nothing.
    sync_failed: OnceLock<String>,
    /// One sync at a time: see `Syncs`.
    syncing: Mutex<()>,
    /// The size that was found last, and said, while it is less than that at opening.
    shrunk_to: Mutex<Option<u64>>,
    /// It had a name at opening.
    had_name: bool,
    /// What became of its name by the last sync, which was said.
    name_lost: Mutex<Option<NameLost>>,
}

/// What became of the name by which a file was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameLost {
    /// It has no name any more.
    Removed,
    /// Another file has it.
    Replaced,
    /// Nobody has it.
    Moved,
}

impl NameLost {
    /// What comes of what is written.
    fn words(self) -> &'static str {
        match self {
            NameLost::Removed => {
                "the file was removed or replaced: what is written to it is lost when it is closed"
            }
            NameLost::Replaced => {
                "another file is at its path: what is written goes to the one that was opened, which has another name now, and the next start serves the other"
            }
            NameLost::Moved => {
                "the file was moved away from its path: what is written goes to it, and the next start does not find it"
            }
        }
    }
}

impl FileImage {
    pub(crate) fn open(path: &Path, read_only: bool) -> Result<FileImage, OpenError> {
        let is_locked = |error: &OpenError| matches!(error, OpenError::Locked { .. });
        open_patiently(|| FileImage::open_now(path, read_only), is_locked)
    }

    fn open_now(path: &Path, read_only: bool) -> Result<FileImage, OpenError> {
        // Without O_NONBLOCK the open of a FIFO would wait for a peer before we can see what it is.
        let mut flags = OFlags::NONBLOCK;
        let is_device = fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device());
        if is_device && !read_only {
            // Linux refuses this for a device that is mounted or part of something else.
            flags |= OFlags::EXCL;
        }
        let opened =
            OpenOptions::new().read(true).write(!read_only).custom_flags(flags.bits() as i32).open(path);
        let mut file = opened.map_err(|error| match error.raw_os_error() {
            Some(EBUSY) => OpenError::Locked { path: path.to_path_buf() },
            _ => OpenError::from_io(path, read_only, error),
        })?;
        let io_error = |source| OpenError::Io { path: path.to_path_buf(), source };
        let metadata = file.metadata().map_err(io_error)?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            return Err(OpenError::Directory { path: path.to_path_buf() });
        }
        if !kind.is_file() && !kind.is_block_device() {
            return Err(OpenError::NotStorage { path: path.to_path_buf() });
        }
        let lock = if read_only {
            FlockOperation::NonBlockingLockShared
        } else {
            FlockOperation::NonBlockingLockExclusive
        };
        loop {
            match flock(&file, lock) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) => return Err(OpenError::Locked { path: path.to_path_buf() }),
                Err(Errno::INTR) => {}
                Err(other) => return Err(io_error(other.into())),
            }
        }
        // The end of a block device is its size; its metadata says 0.
        let size_bytes = file.seek(SeekFrom::End(0)).map_err(io_error)?;
        if size_bytes == 0 {
            return Err(OpenError::Empty { path: path.to_path_buf() });
        }
        let can_fast_zero = !read_only && can_make_holes(&file, is_device);
        let storage = if read_only { None } else { storage_of(&file, is_device) };
        Ok(FileImage {
            file: Arc::new(file),
            path: path.to_path_buf(),
            size_bytes,
            read_only,
            is_device,
            storage,
            can_fast_zero,
            can_punch: AtomicBool::new(true),
            can_zero: AtomicBool::new(true),
            sync_failed: OnceLock::new(),
            syncing: Mutex::new(()),
            shrunk_to: Mutex::new(None),
            had_name: metadata.nlink() > 0,
            name_lost: Mutex::new(None),
        })
    }

    /// What it is, if nobody else has it open for writing.
    pub(crate) fn storage(&self) -> Option<StorageId> {
        self.storage
    }

    /// The file.
    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// That `what` of `range` ended with `error`.
    pub(crate) fn failed(&self, what: &str, range: ByteRange, error: &io::Error) -> OriginError {
        let errno = error.raw_os_error().unwrap_or(EIO);
        let (path, offset, length) = (self.path.display(), range.offset, range.length);
        self.look_at_size();
        OriginError::Failed { errno, context: format!("{what} {offset}+{length} of `{path}`: {error}") }
    }

    /// Finds out whether it is shorter than at opening, which is the reason of failures that the system calls otherwise, and logs each size once.
    fn look_at_size(&self) {
        let mut shrunk_to = locked(&self.shrunk_to);
        // Moves the file's position, which nobody uses.
        let Ok(found) = rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0)) else { return };
        let now = (found < self.size_bytes).then_some(found);
        if now.is_some() && now != *shrunk_to {
            let (path, expected) = (self.path.display(), self.size_bytes);
            tracing::error!(target: "forebay::origin", %path, found, expected, "origin is shorter than at its opening: requests behind its end fail");
        }
        *shrunk_to = now;
    }

    /// What is wrong with its size, if a request failed by that and it is so still.
    pub(crate) fn shrunk(&self) -> Option<String> {
        // Nothing is asked of the system as long as nothing fails.
        if locked(&self.shrunk_to).is_some() {
            self.look_at_size();
        }
        locked(&self.shrunk_to).map(|found| format!("size is {found} bytes, was {}", self.size_bytes))
    }

    /// What a sync comes to without asking the system, if that is known.
    pub(crate) fn sync_is_decided(&self) -> Option<Result<(), OriginError>> {
        if self.read_only {
            return Some(Ok(()));
        }
        self.sync_failed.get().map(|reason| {
            let error = format!("an earlier sync failed and nothing tells what it lost: {reason}");
            Err(self.failed("sync", ByteRange::default(), &io::Error::other(error)))
        })
    }

    /// Finds out whether it still has its name, which others can take from it, and logs once that it has not. Behind a sync a server that it may be
    /// on has just answered.
    fn look_at_name(&self) {
        if !self.had_name || self.is_device {
            return;
        }
        let Ok(own) = self.file.metadata() else { return };
        let lost = match fs::metadata(&self.path) {
            _ if own.nlink() == 0 => Some(NameLost::Removed),
            Ok(found) if (found.dev(), found.ino()) == (own.dev(), own.ino()) => None,
            Ok(_) => Some(NameLost::Replaced),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(NameLost::Moved),
            // Whoever may not look there, say, knows nothing of it.
            Err(_) => None,
        };
        let before = std::mem::replace(&mut *locked(&self.name_lost), lost);
        if let Some(lost) = lost.filter(|_| before != lost) {
            let (path, lost) = (self.path.display(), lost.words());
            tracing::error!(target: "forebay::origin", %path, lost, "origin is not the file at its path any more");
        }
    }

    /// What is lost, or may be, as far as syncs have found that out.
    pub(crate) fn danger(&self) -> Option<String> {
        if let Some(reason) = self.sync_failed.get() {
            return Some(format!(
                "a flush failed: what was written before may be lost, and no flush succeeds until it is opened anew: {reason}"
            ));
        }
        locked(&self.name_lost).map(|lost| lost.words().to_owned())
    }

    /// What a sync comes to that the system answered with `result`. The system tells of a loss once, so no other one may have run beside it.
    pub(crate) fn synced(&self, result: io::Result<()>) -> Result<(), OriginError> {
        self.look_at_name();
        result.map_err(|error| {
            if self.sync_failed.set(error.to_string()).is_ok() {
                let path = self.path.display();
                tracing::error!(target: "forebay::origin", %path, %error, "origin failed a flush: what was written before may be lost, and no flush succeeds until it is opened anew");
            }
            self.failed("sync", ByteRange::default(), &error)
        })
    }

    /// Asks the file system to do it; `false` where it cannot, so that it must be done otherwise.
    fn allocate(&self, can: &AtomicBool, flags: FallocateFlags, range: ByteRange) -> io::Result<bool> {
        if range.length == 0 {
            return Ok(true);
        }
        if !can.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match fallocate(&self.file, flags | FallocateFlags::KEEP_SIZE, range.offset, range.length) {
            Ok(()) => Ok(true),
            Err(Errno::INTR) => Ok(false),
            // An unaligned range of a block device; the next range may be aligned.
            Err(Errno::INVAL) => Ok(false),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV) => {
                can.store(false, Ordering::Relaxed);
                Ok(false)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Where the file system has data, and where it has none. Of a device nothing is known.
    ///
    /// `lseek` moves the file's position, which nobody uses. What was written and is not on the disk yet is data to it.
    fn extents(&self, range: ByteRange, one_extent: bool) -> io::Result<Vec<u8>> {
        if self.is_device {
            return Ok(ExtentList::allocated(range.length));
        }
        let seek = |place| rustix::fs::seek(&self.file, place);
        extents_by(range, one_extent, seek, || Ok(self.file.metadata()?.len()))
    }

    fn write_zeroes(&self, range: ByteRange) -> io::Result<()> {
        let mut at = range.offset;
        while at < range.end() {
            let length = (range.end() - at).min(ZEROES.len() as u64);
            self.file.write_all_at(&ZEROES[..length as usize], at)?;
            at += length;
        }
        Ok(())
    }
}

/// The extents of `range` in a file of `size` bytes, as its file system answers `seek`, while others may change the file.
fn extents_by(
    range: ByteRange,
    one_extent: bool,
    seek: impl Fn(rustix::fs::SeekFrom) -> Result<u64, Errno>,
    size: impl Fn() -> io::Result<u64>,
) -> io::Result<Vec<u8>> {
    let mut list = ExtentList::new(range.length, one_extent);
    let hole = AllocationFlags::HOLE.with(AllocationFlags::ZERO);
    let mut at = range.offset;
    loop {
        let data = match seek(rustix::fs::SeekFrom::Data(at)) {
            Ok(data) => data.min(range.end()),
            // No data from here to the end; which may have come nearer.
            Err(Errno::NXIO) => size()?.min(range.end()),
            // The file system does not tell.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(ExtentList::allocated(range.length)),
            Err(errno) => return Err(errno.into()),
        };
        if !list.push(data.saturating_sub(at), hole) {
            return Ok(list.into_bytes());
        }
        let next = match seek(rustix::fs::SeekFrom::Hole(data)) {
            Ok(next) => next,
            Err(Errno::NXIO) => return Err(io::Error::from_raw_os_error(EIO)),
            Err(errno) => return Err(errno.into()),
        };
        if next <= range.offset {
            // A hole was made at the first byte since it was data: nothing is known, and an answer is not empty.
            return Ok(ExtentList::allocated(range.length));
        }
        if next <= at || !list.push(next.saturating_sub(data), AllocationFlags::NONE) {
            return Ok(list.into_bytes());
        }
        at = next;
    }
}

/// File systems of this machine that make holes: ext4 (and what its driver mounts), XFS, Btrfs, F2FS and tmpfs, by the magic numbers of `statfs(2)`.
const MAKE_HOLES: [u32; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994];

/// What a file is that is locked exclusively, or a device that is opened so that nobody else can: the same inode, or device, since the system started. Whoever has the lock knows that the process is gone which had it
/// before, with its io_uring, and that Linux carries out what is asked now behind what that one had asked. Only of file systems of this machine: what is under way to a server outlives who sent it.
fn storage_of(file: &File, is_device: bool) -> Option<StorageId> {
    let is_here = is_device || fstatfs(file).is_ok_and(|system| MAKE_HOLES.contains(&(system.f_type as u32)));
    if !is_here {
        return None;
    }
    let metadata = file.metadata().ok()?;
    let start = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let mut id = start.trim().bytes().fold(0, |id, byte| mix64(id ^ u64::from(byte)));
    let place = if is_device { [1, metadata.rdev(), 0] } else { [0, metadata.dev(), metadata.ino()] };
    place.iter().for_each(|part| id = mix64(id ^ part));
    // 0 means none where it is told.
    Some(StorageId(id.max(1)))
}

/// Whether holes can be punched, without trying it: even a hole behind the end of a file changes when it was modified. Of a device,
/// Linux says in `sysfs` whether it zeroes ranges itself, and punching a hole never falls back to writing (`blkdev_fallocate`).
fn can_make_holes(file: &File, is_device: bool) -> bool {
    if is_device {
        let Ok(metadata) = file.metadata() else { return false };
        let number = metadata.rdev();
        let device = format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
        // A partition's queue is that of the device that it is on.
        let of = |queue: &str| fs::read_to_string(format!("{device}/{queue}/write_zeroes_max_bytes")).ok();
        let most = of("queue").or_else(|| of("../queue"));
        return most.is_some_and(|most| most.trim().parse::<u64>().is_ok_and(|most| most > 0));
    }
    fstatfs(file).is_ok_and(|system| MAKE_HOLES.contains(&(system.f_type as u32)))
}

impl Image for FileImage {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn sync_blocks(&self) -> bool {
        true
    }

    fn can_fast_zero(&self) -> bool {
        self.can_fast_zero
    }

    fn apply(&self, operation: &OriginOperation) -> Result<Vec<u8>, OriginError> {
        let range = operation.range();
        match operation {
            OriginOperation::Read { .. } => {
                let read = Operation::Read { offset: range.offset, length: range.length as usize };
                return carry_out(&self.file, 1, &read)
                    .map_err(|error| self.failed("read of", range, &error));
            }
            OriginOperation::Write { data, .. } => self
                .file
                .write_all_at(data, range.offset)
                .map_err(|error| self.failed("write of", range, &error))?,
            OriginOperation::Trim { .. } => {
                // Where the file system cannot, nothing is done: a trim is a hint.
                self.allocate(&self.can_punch, FallocateFlags::PUNCH_HOLE, range)
                    .map_err(|error| self.failed("trim of", range, &error))?;
            }
            OriginOperation::WriteZeroes { may_trim, fast, .. } => {
                let punched = *may_trim
                    && self
                        .allocate(&self.can_punch, FallocateFlags::PUNCH_HOLE, range)
                        .map_err(|error| self.failed("zeroing of", range, &error))?;
                // Linux writes the zeroes itself where a device cannot zero a range without making a hole.
                let may_ask = !(*fast && self.is_device);
                let zeroed = punched
                    || may_ask
                        && self
                            .allocate(&self.can_zero, FallocateFlags::ZERO_RANGE, range)
                            .map_err(|error| self.failed("zeroing of", range, &error))?;
                if !zeroed && *fast {
                    let context =
                        format!("zeroing of {}+{} is no faster than a write", range.offset, range.length);
                    return Err(OriginError::Failed { errno: ENOTSUP, context });
                }
                if !zeroed {
                    self.write_zeroes(range).map_err(|error| self.failed("zeroing of", range, &error))?;
                }
            }
            OriginOperation::BlockStatus { one_extent, .. } => {
                return self
                    .extents(range, *one_extent)
                    .map_err(|error| self.failed("block status of", range, &error));
            }
            OriginOperation::Flush => {}
        }
        Ok(Vec::new())
    }

    fn sync(&self) -> Result<(), OriginError> {
        let _one = locked(&self.syncing);
        match self.sync_is_decided() {
            Some(result) => result,
            None => self.synced(self.file.sync_data()),
        }
    }

    fn describe(&self) -> String {
        format!("file `{}`", self.path.display())
    }

    fn metadata(&self) -> Option<Metadata> {
        self.file.metadata().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::SeekFrom::{Data, Hole};

    #[test]
    fn a_hole_that_is_made_meanwhile_leaves_an_answer() {
        let range = ByteRange::new(4096, 8192);
        // Whatever is asked for begins where it is asked: data where a hole is a moment later.
        let made = |place| match place {
            Data(at) | Hole(at) => Ok(at),
            _ => Err(Errno::INVAL),
        };
        let found = extents_by(range, false, made, || Ok(1 << 20)).unwrap();
        assert_eq!(found, ExtentList::allocated(8192));
        // The same behind 4 KiB of data: what is known is told.
        let later = |place| match place {
            Hole(4096) => Ok(8192),
            place => made(place),
        };
        let found = extents_by(range, false, later, || Ok(1 << 20)).unwrap();
        assert_eq!(found, ExtentList::allocated(4096));
    }
}
