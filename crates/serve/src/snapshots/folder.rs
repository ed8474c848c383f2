//! The folder of snapshots: files of several volumes, perhaps of several hosts, each whole or not there.
//!
//! A snapshot of a volume is named after the volume's identity and its place in the series, so that another host that serves the same origin
//! under the same name finds it. It is written beside, flushed, and renamed. Only files of one's own volumes are read, and removed when
//! they are old; nothing here is ever needed for truth.

use forebay_cache::flash::VolumeId;
use forebay_cache::snapshot::{HEADER_BYTES, SlotError, Snapshot, SnapshotError};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// What the name of a snapshot ends with.
const SUFFIX: &str = ".fbsnap";

/// The largest place in a series that is read: far beyond any time.
const PLACE_MAX: u64 = 1 << 62;
/// The largest place that the next one follows: many are left behind it. What is above is nobody's, and the first to be removed.
const FOLLOWED_MAX: u64 = 1 << 61;
/// Longer files are not read (ours: 150 million blocks).
const FILE_BYTES_MAX: u64 = 256 << 20;
/// No more is read of one series (ours).
pub(super) const SERIES_BYTES_MAX: u64 = 512 << 20;
/// A file that was begun so long ago will not be finished.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Why a file or a slot is not used.
#[derive(Debug, Error)]
pub(crate) enum Unusable {
    #[error(transparent)]
    Unread(#[from] io::Error),
    #[error(transparent)]
    Refused(#[from] SnapshotError),
    #[error("it has {found} bytes, expected at most {FILE_BYTES_MAX}")]
    Long { found: u64 },
    #[error(transparent)]
    Slot(#[from] SlotError),
    #[error("its blocks have {found} bytes, expected {expected}")]
    BlockSize { found: u32, expected: u64 },
}

/// The snapshots of one volume.
#[derive(Debug)]
pub(crate) struct Series {
    /// Oldest first.
    pub(crate) snapshots: Vec<Snapshot>,
    /// Where, and why.
    pub(crate) refused: Vec<(String, Unusable)>,
}

/// The folder.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotFolder {
    path: PathBuf,
}

impl SnapshotFolder {
    pub(crate) fn new(path: PathBuf) -> SnapshotFolder {
        SnapshotFolder { path }
    }

    fn prefix(volume: VolumeId) -> String {
        format!("{:032x}-", volume.0)
    }

    /// The files of a volume with their places in the series, newest first. What is no file is left out.
    fn files(&self, volume: VolumeId) -> io::Result<Vec<(u64, PathBuf)>> {
        let prefix = SnapshotFolder::prefix(volume);
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let sequence = name.to_str().and_then(|name| name.strip_prefix(&prefix)?.strip_suffix(SUFFIX));
            // A place is a time in milliseconds, or one more than the one before. Behind a larger one nothing would find any.
            let is_place = |sequence: &u64| *sequence <= PLACE_MAX;
            let Some(sequence) = sequence.and_then(|found| found.parse().ok().filter(is_place)) else {
                continue;
            };
            // Whoever opens a FIFO waits for another who does; what is no file is none of ours.
            if fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_file()) {
                files.push((sequence, entry.path()));
            }
        }
        files.sort_unstable_by(|a, b| (b.0 <= FOLLOWED_MAX, b).cmp(&(a.0 <= FOLLOWED_MAX, a)));
        Ok(files)
    }

    /// The place of the newest snapshot of a volume, whatever is in it; `None` where there is none.
    pub(crate) fn newest(&self, volume: VolumeId) -> io::Result<Option<u64>> {
        let first = self.files(volume)?.first().map(|(sequence, _)| *sequence);
        Ok(first.filter(|sequence| *sequence <= FOLLOWED_MAX))
    }

    /// Writes a snapshot, durably.
    pub(crate) fn write(&self, volume: VolumeId, sequence: u64, bytes: &[u8]) -> io::Result<()> {
        let name = format!("{}{sequence:020}{SUFFIX}", SnapshotFolder::prefix(volume));
        let beside = self.path.join(format!("{name}.{}.tmp", std::process::id()));
        let written = (|| {
            let mut file = File::create(&beside)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&beside, self.path.join(name))?;
            File::open(&self.path)?.sync_all()
        })();
        if written.is_err() {
            let _ = fs::remove_file(&beside);
        }
        written
    }

    /// Removes what there is no room for, where the folder is full: what is no longer wanted of a volume, or else its oldest snapshot, but never its
    /// only one. How many were removed.
    pub(crate) fn make_room(&self, volume: VolumeId, keep: usize, expired_unix_s: u64) -> io::Result<usize> {
        let removed = self.expire(volume, keep, expired_unix_s)?;
        let files = self.files(volume)?;
        match files.last().filter(|_| removed == 0 && files.len() > 1) {
            Some((_, oldest)) => fs::remove_file(oldest).map(|()| 1),
            None => Ok(removed),
        }
    }

    /// Removes what is no longer wanted of a volume: all but the `keep` newest, what was taken before `expired_unix_s`, and what was begun and abandoned. How
    /// many snapshots were removed.
    pub(crate) fn expire(&self, volume: VolumeId, keep: usize, expired_unix_s: u64) -> io::Result<usize> {
        let (mut removed, mut failed) = (0, None);
        for (at, (_, path)) in self.files(volume)?.iter().enumerate() {
            // What does not say when it was taken was there when it was last written.
            let is_expired = || {
                let at = taken_at_unix_s(path).or_else(|| {
                    Some(modified(path)?.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
                });
                at.is_some_and(|at| at < expired_unix_s)
            };
            if at >= keep || is_expired() {
                match fs::remove_file(path) {
                    Ok(()) => removed += 1,
                    // Another host was faster.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    // The others go all the same.
                    Err(error) => failed = Some(error),
                }
            }
        }
        let prefix = SnapshotFolder::prefix(volume);
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_begun =
                name.to_str().is_some_and(|name| name.starts_with(&prefix) && name.ends_with(".tmp"));
            let is_abandoned = || modified(&entry.path())?.elapsed().ok().map(|since| since > ABANDONED);
            if is_begun && is_abandoned() == Some(true) {
                let _ = fs::remove_file(entry.path());
            }
        }
        failed.map_or(Ok(removed), Err)
    }

    /// Reads the newest `most` snapshots of a volume that were not taken before `expired_unix_s`. What cannot be used is left out and told.
    pub(crate) fn read(
        &self,
        volume: VolumeId,
        block_bytes: u64,
        most: usize,
        expired_unix_s: u64,
    ) -> io::Result<Series> {
        let mut series = Series { snapshots: Vec::new(), refused: Vec::new() };
        let mut bytes_read = 0;
        let files = self.files(volume)?.into_iter();
        let valid = files.filter(|(_, path)| taken_at_unix_s(path).is_none_or(|at| at >= expired_unix_s));
        for (_, path) in valid.take(most) {
            match read_one(&path, volume, block_bytes) {
                Ok(snapshot) => {
                    bytes_read += snapshot.encoded_bytes() as u64;
                    series.snapshots.push(snapshot);
                }
                Err(reason) => series.refused.push((path.display().to_string(), reason)),
            }
            if bytes_read > SERIES_BYTES_MAX {
                break;
            }
        }
        series.snapshots.sort_by_key(|snapshot| snapshot.header().sequence);
        Ok(series)
    }
}

/// When the snapshot in a file was taken, as it says itself.
fn taken_at_unix_s(path: &Path) -> Option<u64> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    File::open(path).ok()?.take(HEADER_BYTES as u64).read_to_end(&mut header).ok()?;
    Snapshot::taken_at_unix_s(&header)
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

fn read_one(path: &Path, volume: VolumeId, block_bytes: u64) -> Result<Snapshot, Unusable> {
    let found = fs::metadata(path)?.len();
    if found > FILE_BYTES_MAX {
        return Err(Unusable::Long { found });
    }
    read_snapshot(fs::read(path)?, volume, block_bytes)
}

/// A snapshot of `volume`, with blocks of this size.
pub(super) fn read_snapshot(
    bytes: Vec<u8>,
    volume: VolumeId,
    block_bytes: u64,
) -> Result<Snapshot, Unusable> {
    let snapshot = Snapshot::parse(bytes, volume)?;
    let found = snapshot.header().block_bytes;
    if u64::from(found) != block_bytes {
        return Err(Unusable::BlockSize { found, expected: block_bytes });
    }
    Ok(snapshot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_cache::snapshot::{Activity, SnapshotHeader, SnapshotWriter};

    const OURS: VolumeId = VolumeId(7);

    fn bytes(volume: VolumeId, sequence: u64, block_bytes: u32) -> Vec<u8> {
        let header = SnapshotHeader {
            volume,
            block_bytes,
            volume_blocks: 100,
            sequence,
            taken_at_unix_s: 0,
            activity: Activity::default(),
        };
        let mut writer = SnapshotWriter::new(header, true).unwrap();
        writer.push(sequence % 100, 1).unwrap();
        writer.finish()
    }

    /// Whoever follows it goes on from there, and finds none of what follows.
    #[test]
    fn a_place_beyond_any_time_is_not_followed_and_is_the_first_to_go() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = SnapshotFolder::new(temporary.path().to_owned());
        for sequence in [7, PLACE_MAX - 2, PLACE_MAX, FOLLOWED_MAX + 1] {
            folder.write(OURS, sequence, &bytes(OURS, sequence, 4096)).unwrap();
        }
        assert_eq!(folder.newest(OURS).unwrap(), Some(7));
        folder.write(OURS, 8, &bytes(OURS, 8, 4096)).unwrap();
        assert_eq!(folder.newest(OURS).unwrap(), Some(8));
        let kept = |most| {
            let series = folder.read(OURS, 4096, most, 0).unwrap();
            series.snapshots.iter().map(|found| found.header().sequence).collect::<Vec<_>>()
        };
        assert_eq!(kept(2), [7, 8]);
    }

    #[test]
    fn what_is_damaged_or_foreign_is_refused_and_the_rest_is_used() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = SnapshotFolder::new(temporary.path().to_owned());
        assert_eq!(folder.newest(OURS).unwrap(), None);
        for sequence in [3, 1, 2, 9] {
            folder.write(OURS, sequence, &bytes(OURS, sequence, 4096)).unwrap();
        }
        folder.write(VolumeId(8), 5, &bytes(VolumeId(8), 5, 4096)).unwrap();
        // A foreign one under our name, one of other blocks, one that is cut short, one that was not finished.
        folder.write(OURS, 4, &bytes(VolumeId(8), 4, 4096)).unwrap();
        folder.write(OURS, 5, &bytes(OURS, 5, 512)).unwrap();
        folder.write(OURS, 6, &bytes(OURS, 6, 4096)[..50]).unwrap();
        fs::write(temporary.path().join(format!("{:032x}-7.fbsnap.1.tmp", OURS.0)), "begun").unwrap();
        // And one behind which there is no place.
        for last in [u64::MAX, i64::MAX as u64, PLACE_MAX + 1] {
            let last = temporary.path().join(format!("{:032x}-{last}.fbsnap", OURS.0));
            fs::write(&last, bytes(OURS, 99, 4096)).unwrap();
        }
        // What is no file, and has a name like ours: who opened the FIFO would wait for ever.
        let named = |sequence: u64| temporary.path().join(format!("{:032x}-{sequence}.fbsnap", OURS.0));
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, named(70), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        fs::create_dir(named(71)).unwrap();
        let series = folder.read(OURS, 4096, 100, 0).unwrap();
        let sequences: Vec<u64> = series.snapshots.iter().map(|found| found.header().sequence).collect();
        assert_eq!(sequences, [1, 2, 3, 9]);
        let reasons: Vec<String> = series.refused.iter().map(|(_, reason)| reason.to_string()).collect();
        assert_eq!(reasons.len(), 3);
        for (reason, wanted) in reasons.iter().zip(["50 bytes", "512 bytes, expected 4096", "is of volume"]) {
            assert!(reason.contains(wanted), "{reason}");
        }
        // The three newest are 9 and the two that are refused.
        let newest = folder.read(OURS, 4096, 3, 0).unwrap();
        assert_eq!(
            (newest.snapshots.len(), newest.refused.len(), folder.newest(OURS).unwrap()),
            (1, 2, Some(9))
        );
        // Two are kept, and the other volume's, and what was begun a moment ago.
        assert_eq!(folder.expire(OURS, 2, 0).unwrap(), 5);
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 9);
        // The one that says that it is of 1970, and the one that says nothing.
        assert_eq!(folder.expire(OURS, 2, u64::MAX).unwrap(), 2);
        assert_eq!(folder.read(VolumeId(8), 4096, 9, 0).unwrap().snapshots.len(), 1);
    }
}
