//! Where snapshots are: a folder, a range of an origin, or a database.

use super::SnapshotConfig;
use super::database::{DatabaseError, SnapshotDatabase};
use super::folder::{Series, SnapshotFolder};
use super::ring::{RingError, Sharing, SnapshotRing};
use crate::config::OriginConfig;
use crate::origins::{OriginFailure, open_alone};
use forebay_cache::flash::VolumeId;
use forebay_cache::snapshot::{SlotHeader, SnapshotHeader};
use forebay_origin::{OpenError, Origin};
use forebay_units::{ByteRange, Bytes};
use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Longer than another host takes to write a snapshot,
const UNLOCKED_WITHIN: Duration = Duration::from_secs(5);
/// and how often it is looked whether it has.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Longer than a read and a write of 4 KiB take, so that hosts rarely are late (ours). Hosts that share a range must agree.
const SETTLE: Duration = Duration::from_millis(250);

/// Where snapshots are kept.
#[derive(Clone, Debug)]
pub enum SnapshotPlace {
    /// In files of this folder.
    Folder(PathBuf),
    /// In a database.
    Database(PathBuf),
    /// In a range of a file, a block device or an export.
    Range {
        /// Which.
        origin: Box<OriginConfig>,
        /// Its bytes that are reserved for snapshots; offset and length are multiples of 4 KiB.
        range: ByteRange,
        /// Bytes of a slot: a multiple of 4 KiB. Two at least are in the range, each with 4 KiB for its header.
        slot: Bytes,
    },
}

impl SnapshotPlace {
    /// The origin in which the range lies.
    pub fn origin(&self) -> Option<&OriginConfig> {
        match self {
            SnapshotPlace::Range { origin, .. } => Some(origin),
            SnapshotPlace::Folder(_) | SnapshotPlace::Database(_) => None,
        }
    }
}

impl Display for SnapshotPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotPlace::Folder(path) | SnapshotPlace::Database(path) => write!(f, "{}", path.display()),
            SnapshotPlace::Range { origin, range, .. } => {
                write!(f, "bytes {} to {} of {origin:?}", range.offset, range.offset + range.length)
            }
        }
    }
}

/// Why snapshots are not read or written.
#[derive(Debug, Error)]
pub(crate) enum StoreError {
    #[error(transparent)]
    Folder(#[from] io::Error),
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    Open(#[from] OriginFailure),
    #[error(transparent)]
    Ring(#[from] RingError),
    #[error("it has not answered within {:.1} s, and the daemon ends", waited.as_secs_f64())]
    Hangs { waited: Duration },
}

impl StoreError {
    /// Whether it says nothing of the snapshots of other volumes, which may still be written.
    pub(crate) fn is_of_one_volume(&self) -> bool {
        match self {
            StoreError::Ring(error) => matches!(
                error,
                RingError::TooLong { .. }
                    | RingError::Overtaken { .. }
                    | RingError::Full { .. }
                    | RingError::Lost { .. }
            ),
            StoreError::Database(error) => matches!(error, DatabaseError::Overtaken { .. }),
            // Another may have room where an older snapshot of its own is.
            StoreError::Folder(error) => is_full(error),
            StoreError::Open(_) | StoreError::Hangs { .. } => false,
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// The snapshots of all volumes.
pub(crate) struct SnapshotStore {
    place: SnapshotPlace,
    /// Slots of the range that are somebody else's, as far as they were looked at. Held while the range is used: one request at a time, and whoever reads sees what was written.
    occupied: Mutex<BTreeSet<u64>>,
    sharing: Option<Sharing>,
}

impl SnapshotStore {
    pub(crate) fn new(place: SnapshotPlace) -> SnapshotStore {
        // A file is locked for all hosts that have it open; a device on this host alone, and an export not at all.
        let is_locked = place.origin().is_none_or(|origin| matches!(origin, OriginConfig::File { .. }));
        // The keys of a hasher are drawn at random.
        let writer = RandomState::new().hash_one(std::process::id()) as u32;
        let sharing = (!is_locked).then_some(Sharing { writer, settle: SETTLE });
        SnapshotStore { place, occupied: Mutex::default(), sharing }
    }

    /// Where they are.
    pub(crate) fn place(&self) -> &SnapshotPlace {
        &self.place
    }

    /// Has the folder, the database or the range answer. The range is open no longer than for that, since a file is locked as long and other hosts use it too.
    fn with<T>(
        &self,
        folder: impl FnOnce(&SnapshotFolder) -> io::Result<T>,
        database: impl FnOnce(&SnapshotDatabase) -> Result<T, DatabaseError>,
        ring: impl FnOnce(&mut SnapshotRing) -> Result<T, RingError>,
    ) -> Result<T, StoreError> {
        let (origin, range, slot) = match &self.place {
            SnapshotPlace::Folder(path) => return Ok(folder(&SnapshotFolder::new(path.clone()))?),
            SnapshotPlace::Database(path) => return Ok(database(&SnapshotDatabase::new(path))?),
            SnapshotPlace::Range { origin, range, slot } => (origin, *range, slot.get()),
        };
        let mut occupied = self.occupied.lock().unwrap_or_else(PoisonError::into_inner);
        let mut open =
            SnapshotRing::new(open_soon(origin)?, range, slot, std::mem::take(&mut occupied), self.sharing)?;
        let result = ring(&mut open);
        *occupied = open.into_occupied();
        Ok(result?)
    }

    /// The place of a volume's newest snapshot in its series; `None` where there is none.
    pub(crate) fn newest(&self, volume: VolumeId) -> Result<Option<u64>, StoreError> {
        self.with(
            |folder| folder.newest(volume),
            |database| database.newest(volume),
            |ring| ring.newest(volume),
        )
    }

    /// Writes a snapshot durably, of a volume that is served under a lease of this `epoch` (0: without), and drops what is no longer wanted of it. How many that were.
    pub(crate) fn write(
        &self,
        header: &SnapshotHeader,
        bytes: &[u8],
        epoch: u64,
        config: &SnapshotConfig,
    ) -> Result<usize, StoreError> {
        let volume = header.volume;
        let expired = before(header.taken_at_unix_s, config.expire);
        self.with(
            |folder| {
                let mut dropped = 0;
                while let Err(error) = folder.write(volume, header.sequence, bytes) {
                    // The new one says more than old ones do, which would keep it out for good.
                    match if is_full(&error) { folder.make_room(volume, config.keep, expired)? } else { 0 } {
                        0 => return Err(error),
                        count => dropped += count,
                    }
                }
                Ok(dropped + folder.expire(volume, config.keep, expired)?)
            },
            |database| database.write(header, bytes, epoch, config.keep, expired),
            |ring| {
                let slot = SlotHeader {
                    volume,
                    sequence: header.sequence,
                    taken_at_unix_s: header.taken_at_unix_s,
                    snapshot_bytes: bytes.len() as u64,
                    epoch,
                    writer: 0,
                };
                let written = ring.write(slot, bytes, config.keep, expired)?;
                for reason in written.aside {
                    tracing::info!(%reason, "a snapshot went to another slot");
                }
                Ok(written.lost)
            },
        )
    }

    /// Reads a volume's newest snapshots. What cannot be used is left out and told.
    pub(crate) fn read(
        &self,
        volume: VolumeId,
        block_bytes: u64,
        config: &SnapshotConfig,
        now_unix_s: u64,
    ) -> Result<Series, StoreError> {
        let expired = before(now_unix_s, config.expire);
        self.with(
            |folder| folder.read(volume, block_bytes, config.keep, expired),
            |database| database.read(volume, block_bytes, config.keep, expired),
            |ring| ring.read(volume, block_bytes, config.keep, expired),
        )
    }
}

/// Opens the origin, waiting a little for whoever has it locked.
fn open_soon(origin: &OriginConfig) -> Result<Arc<dyn Origin>, OriginFailure> {
    let until = Instant::now() + UNLOCKED_WITHIN;
    loop {
        match open_alone(origin, false, None) {
            Err(OriginFailure::Open(OpenError::Locked { .. })) if Instant::now() < until => {
                std::thread::sleep(LOOK_AGAIN);
            }
            opened => return opened,
        }
    }
}

/// So long before an instant.
fn before(unix_s: u64, span: Duration) -> u64 {
    unix_s.saturating_sub(span.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_cache::snapshot::{Activity, SnapshotWriter};

    #[test]
    fn every_store_goes_by_when_a_snapshot_was_taken() {
        let folder = tempfile::tempdir().unwrap();
        let range = folder.path().join("range.img");
        std::fs::write(&range, vec![0; 1 << 20]).unwrap();
        let origin = Box::new(OriginConfig::file(range));
        let places = [
            SnapshotPlace::Folder(folder.path().to_owned()),
            SnapshotPlace::Database(folder.path().join("snapshots.db")),
            SnapshotPlace::Range { origin, range: ByteRange::new(0, 1 << 20), slot: Bytes::kib(64) },
        ];
        let volume = VolumeId(7);
        for place in places {
            let config = SnapshotConfig { place, expire: Duration::from_secs(60), ..SnapshotConfig::new("") };
            let store = SnapshotStore::new(config.place.clone());
            let write = |sequence, taken_at_unix_s| {
                let header = SnapshotHeader {
                    volume,
                    block_bytes: 4096,
                    volume_blocks: 100,
                    sequence,
                    taken_at_unix_s,
                    activity: Activity::default(),
                };
                let mut writer = SnapshotWriter::new(header, true).unwrap();
                writer.push(sequence, 1).unwrap();
                store.write(&header, &writer.finish(), 0, &config).unwrap()
            };
            let read = |now| -> Vec<u64> {
                let series = store.read(volume, 4096, &config, now).unwrap();
                assert!(series.refused.is_empty(), "{series:?}");
                series.snapshots.iter().map(|snapshot| snapshot.header().sequence).collect()
            };
            let lost = [(1, 1000), (2, 1030), (4, 1040)].map(|(sequence, at)| write(sequence, at));
            assert_eq!(lost, [0; 3], "{}", config.place);
            assert_eq!(read(1060), [1, 2, 4], "{}", config.place);
            assert_eq!(read(1061), [2, 4], "{}", config.place);
            assert_eq!(read(1101), [0; 0], "{}", config.place);
            // What expired goes with the next one.
            assert_eq!(write(5, 1065), 1, "{}", config.place);
            assert_eq!(read(1000), [2, 4, 5], "{}", config.place);
            // One of a host whose clock is ahead: it expires by that clock.
            assert!(write(6, 9000) >= 1, "{}", config.place);
            assert_eq!(read(9060).last(), Some(&6), "{}", config.place);
            assert_eq!(read(9061), [0; 0], "{}", config.place);
        }
    }

    #[test]
    fn what_keeps_one_snapshot_from_being_written_need_not_keep_others() {
        let folder = |kind: ErrorKind| StoreError::from(io::Error::from(kind));
        for (error, is_of_one) in [
            (folder(ErrorKind::StorageFull), true),
            (folder(ErrorKind::QuotaExceeded), true),
            (folder(ErrorKind::PermissionDenied), false),
            (RingError::TooLong { found: 2, most: 1 }.into(), true),
            (RingError::Overtaken { found: 2, own: 1 }.into(), true),
            (RingError::Silent.into(), false),
            (DatabaseError::Overtaken { found: 2, own: 1 }.into(), true),
            (DatabaseError::NoDatabase.into(), false),
        ] {
            assert_eq!(error.is_of_one_volume(), is_of_one, "{error}");
        }
    }
}
