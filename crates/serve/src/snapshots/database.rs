//! Snapshots in a store of state: a database, which hosts may share where their file system's locks hold.
//!
//! A snapshot is a row, written together with what it makes superfluous or not at all. The database is open no longer than for one request. Unlike the
//! history's it has no write-ahead log, whose shared memory hosts could not share. Whose lease has a lower epoch than what is there of the volume writes nothing.

use super::folder::{SERIES_BYTES_MAX, Series, read_snapshot};
use forebay_cache::flash::VolumeId;
use forebay_cache::snapshot::SnapshotHeader;
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior, params};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// Marks the file as ours: `FBSN`.
const APPLICATION_ID: i64 = 0x4642_534e;
/// The version of the layout.
const VERSION: i64 = 1;
/// How a file begins that is a database of SQLite's.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// Of its first page: the header, and that of the table of tables.
const FIRST_PAGE_BYTES: u64 = 108;
/// A page of a table that has no others below it.
const LEAF: u8 = 13;
/// How long another host may have the database.
const BUSY: Duration = Duration::from_secs(5);

const SCHEMA: &str = "
CREATE TABLE snapshot (
    id INTEGER PRIMARY KEY,
    volume BLOB NOT NULL,
    epoch INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    taken_at_unix_s INTEGER NOT NULL,
    bytes BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX snapshot_place ON snapshot (volume, epoch, sequence);
";

/// Why the database is not used.
#[derive(Debug, Error)]
pub(crate) enum DatabaseError {
    #[error("the folder `{}` is not there", folder.display())]
    NoFolder { folder: PathBuf },
    #[error("it is no database")]
    NoDatabase,
    #[error("it cannot be read")]
    Unreadable(#[source] io::Error),
    #[error("it is a database of something else (application id {found:#x}, expected {APPLICATION_ID:#x})")]
    Stranger { found: i64 },
    #[error("it has layout version {found}, expected {VERSION}: it was written by a later forebay")]
    Version { found: i64 },
    #[error("a host whose lease has epoch {found} has taken the volume over from epoch {own}")]
    Overtaken { found: i64, own: i64 },
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
}

/// The database.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotDatabase {
    path: PathBuf,
}

/// SQLite's integers have a sign; places in a series and seconds are far below.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Why the file at `path` could not be the database, as far as its first page shows: nothing is written, and nobody else is kept from it. `None` where it
/// could, or is not there yet.
pub(crate) fn trouble_of_database(path: &Path) -> Option<DatabaseError> {
    let mut journal = path.as_os_str().to_owned();
    journal.push("-journal");
    // What a dead host had begun is undone first.
    if !path.is_file() || Path::new(&journal).exists() {
        return None;
    }
    // SQLite's file format, sections 1.3 and 1.6: the header, and the page that holds the names of tables.
    let mut page = Vec::new();
    match File::open(path).and_then(|file| file.take(FIRST_PAGE_BYTES).read_to_end(&mut page)) {
        Err(error) => return Some(DatabaseError::Unreadable(error)),
        Ok(0) => return None,
        Ok(_) if !page.starts_with(MAGIC) || page.len() < FIRST_PAGE_BYTES as usize => {
            return Some(DatabaseError::NoDatabase);
        }
        Ok(_) => {}
    }
    let number = |at: usize| i64::from(i32::from_be_bytes(page[at..at + 4].try_into().expect("four bytes")));
    let has_no_tables = page[100] == LEAF && page[103..105] == [0, 0];
    match (number(68), number(60)) {
        (APPLICATION_ID, VERSION) => None,
        (APPLICATION_ID, found) => Some(DatabaseError::Version { found }),
        (0, 0) if has_no_tables => None,
        (found, _) => Some(DatabaseError::Stranger { found }),
    }
}

impl SnapshotDatabase {
    pub(crate) fn new(path: &Path) -> SnapshotDatabase {
        SnapshotDatabase { path: path.to_owned() }
    }

    /// Opens it; `None` where nothing was ever written and it `is_read`.
    fn open(&self, is_read: bool) -> Result<Option<Connection>, DatabaseError> {
        let folder = self.path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            return Err(DatabaseError::NoFolder { folder: folder.to_owned() });
        }
        if is_read && !self.path.exists() {
            return Ok(None);
        }
        // Not for reading alone: a write that a dead host had begun is first undone.
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        flags.set(OpenFlags::SQLITE_OPEN_CREATE, !is_read);
        let mut connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(BUSY)?;
        connection.execute_batch("PRAGMA synchronous = EXTRA;")?;
        let number = |connection: &Connection, name: &str| {
            connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0))
        };
        if number(&connection, "user_version")? == 0 && !is_read {
            // Whoever comes second finds it made.
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let tables: i64 =
                transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
            if tables == 0 && number(&transaction, "application_id")? == 0 {
                transaction.execute_batch(&format!(
                    "{SCHEMA} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};"
                ))?;
            }
            transaction.commit()?;
        }
        match (number(&connection, "application_id")?, number(&connection, "user_version")?) {
            (APPLICATION_ID, VERSION) => Ok(Some(connection)),
            // Made by a host that has not come to its first snapshot.
            (0, 0) if is_read => Ok(None),
            (APPLICATION_ID, found) => Err(DatabaseError::Version { found }),
            (found, _) => Err(DatabaseError::Stranger { found }),
        }
    }

    /// The place of a volume's newest snapshot in its series; `None` where there is none.
    pub(crate) fn newest(&self, volume: VolumeId) -> Result<Option<u64>, DatabaseError> {
        let Some(connection) = self.open(true)? else { return Ok(None) };
        let newest: Option<i64> = connection.query_row(
            "SELECT max(sequence) FROM snapshot WHERE volume = ?1",
            [volume.0.to_be_bytes()],
            |row| row.get(0),
        )?;
        Ok(newest.map(|sequence| sequence.max(0) as u64))
    }

    /// Writes a snapshot durably, of a volume that is served under a lease of this `epoch`, and removes all but the `keep` newest and what was taken before
    /// `expired`. How many that were.
    pub(crate) fn write(
        &self,
        header: &SnapshotHeader,
        bytes: &[u8],
        epoch: u64,
        keep: usize,
        expired: u64,
    ) -> Result<usize, DatabaseError> {
        let Some(mut connection) = self.open(false)? else { return Ok(0) };
        let volume = header.volume.0.to_be_bytes();
        let own = signed(epoch);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let found: Option<i64> = transaction
            .query_row("SELECT max(epoch) FROM snapshot WHERE volume = ?1", [volume], |row| row.get(0))
            .optional()?
            .flatten();
        if let Some(found) = found.filter(|found| *found > own) {
            return Err(DatabaseError::Overtaken { found, own });
        }
        transaction.execute(
            "INSERT INTO snapshot (volume, epoch, sequence, taken_at_unix_s, bytes) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![volume, own, signed(header.sequence), signed(header.taken_at_unix_s), bytes],
        )?;
        let removed = transaction.execute(
            "DELETE FROM snapshot WHERE volume = ?1 AND (taken_at_unix_s < ?2 OR id NOT IN
                (SELECT id FROM snapshot WHERE volume = ?1 ORDER BY epoch DESC, sequence DESC LIMIT ?3))",
            params![volume, signed(expired), keep as i64],
        )?;
        transaction.commit()?;
        Ok(removed)
    }

    /// Reads the newest `most` snapshots of a volume that were not taken before `expired`. What cannot be used is left out and told.
    pub(crate) fn read(
        &self,
        volume: VolumeId,
        block_bytes: u64,
        most: usize,
        expired: u64,
    ) -> Result<Series, DatabaseError> {
        let mut series = Series { snapshots: Vec::new(), refused: Vec::new() };
        let Some(connection) = self.open(true)? else { return Ok(series) };
        let mut statement = connection.prepare(
            "SELECT sequence, bytes FROM snapshot WHERE volume = ?1 AND taken_at_unix_s >= ?2
             ORDER BY epoch DESC, sequence DESC LIMIT ?3",
        )?;
        let mut rows = statement.query(params![volume.0.to_be_bytes(), signed(expired), most as i64])?;
        let mut bytes_read = 0;
        while let Some(row) = rows.next()? {
            let (sequence, bytes): (i64, Vec<u8>) = (row.get(0)?, row.get(1)?);
            bytes_read += bytes.len() as u64;
            match read_snapshot(bytes, volume, block_bytes) {
                Ok(snapshot) => series.snapshots.push(snapshot),
                Err(reason) => {
                    series.refused.push((format!("{}, snapshot {sequence}", self.path.display()), reason));
                }
            }
            if bytes_read > SERIES_BYTES_MAX {
                break;
            }
        }
        // Oldest first: clocks of hosts differ, their epochs do not lie.
        series.snapshots.reverse();
        Ok(series)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_cache::snapshot::{Activity, SnapshotWriter};

    const OURS: VolumeId = VolumeId(7);

    fn header(volume: VolumeId, sequence: u64, block_bytes: u32) -> SnapshotHeader {
        SnapshotHeader {
            volume,
            block_bytes,
            volume_blocks: 100,
            sequence,
            taken_at_unix_s: sequence,
            activity: Activity::default(),
        }
    }

    fn bytes(header: SnapshotHeader) -> Vec<u8> {
        let mut writer = SnapshotWriter::new(header, true).unwrap();
        writer.push(header.sequence % 100, 1).unwrap();
        writer.finish()
    }

    fn sequences(series: &Series) -> Vec<u64> {
        series.snapshots.iter().map(|snapshot| snapshot.header().sequence).collect()
    }

    #[test]
    fn the_newest_are_kept_what_is_damaged_is_refused_and_a_lower_epoch_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("snapshots.db");
        let database = SnapshotDatabase::new(&path);
        assert_eq!(database.newest(OURS).unwrap(), None);
        assert!(database.read(OURS, 4096, 9, 0).unwrap().snapshots.is_empty() && !path.exists());
        let write = |header: SnapshotHeader, epoch| database.write(&header, &bytes(header), epoch, 3, 2);
        // The first is too old at once; of five three are kept. Another volume's count by themselves.
        assert_eq!(write(header(OURS, 1, 4096), 0).unwrap(), 1);
        let removed: Vec<usize> = (3..8).map(|at| write(header(OURS, at, 4096), 0).unwrap()).collect();
        assert_eq!(removed, [0, 0, 0, 1, 1]);
        assert_eq!(write(header(VolumeId(8), 99, 4096), 0).unwrap(), 0);
        assert_eq!(database.newest(OURS).unwrap(), Some(7));
        // Another host takes over, whose clock is behind: what it writes is newer nevertheless, and the first writes no more.
        write(header(OURS, 2, 4096), 1).unwrap();
        assert_eq!(sequences(&database.read(OURS, 4096, 9, 0).unwrap()), [6, 7, 2]);
        let late = write(header(OURS, 50, 4096), 0).unwrap_err();
        assert!(matches!(late, DatabaseError::Overtaken { found: 1, own: 0 }), "{late}");
        assert_eq!(sequences(&database.read(OURS, 4096, 2, 3).unwrap()), [6, 7]);
        // Damaged, of another volume, of other blocks: refused, and the rest is used.
        let connection = Connection::open(&path).unwrap();
        for (sequence, bytes) in [
            (10, bytes(header(OURS, 10, 4096))[..50].to_vec()),
            (11, bytes(header(VolumeId(8), 11, 4096))),
            (12, bytes(header(OURS, 12, 512))),
        ] {
            let volume = OURS.0.to_be_bytes();
            connection.execute("INSERT INTO snapshot (volume, epoch, sequence, taken_at_unix_s, bytes) VALUES (?1, 1, ?2, ?2, ?3)", params![volume, sequence, bytes]).unwrap();
        }
        let series = database.read(OURS, 4096, 9, 0).unwrap();
        assert_eq!(sequences(&series), [6, 7, 2]);
        let reasons: Vec<String> = series.refused.iter().map(|(_, reason)| reason.to_string()).collect();
        for (reason, wanted) in reasons.iter().zip(["512 bytes, expected 4096", "is of volume", "50 bytes"]) {
            assert!(reason.contains(wanted), "{reasons:?}");
        }
        assert_eq!(reasons.len(), 3);
    }

    #[test]
    fn what_is_somebody_elses_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other.db");
        let database = SnapshotDatabase::new(&path);
        let write = || database.write(&header(OURS, 1, 4096), &bytes(header(OURS, 1, 4096)), 0, 3, 0);
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE theirs (a)").unwrap();
        assert!(matches!(write(), Err(DatabaseError::Stranger { found: 0 })));
        // Who only looks sees the same.
        let seen = || trouble_of_database(&path);
        assert!(matches!(seen(), Some(DatabaseError::Stranger { found: 0 })));
        std::fs::remove_file(&path).unwrap();
        assert!(seen().is_none() && !path.exists());
        std::fs::write(&path, []).unwrap();
        assert!(seen().is_none());
        write().unwrap();
        assert!(seen().is_none());
        Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 2").unwrap();
        assert!(matches!(write(), Err(DatabaseError::Version { found: 2 })));
        assert!(matches!(seen(), Some(DatabaseError::Version { found: 2 })));
        assert!(matches!(database.read(OURS, 4096, 9, 0), Err(DatabaseError::Version { found: 2 })));
        std::fs::write(&path, [1; 8192]).unwrap();
        assert!(matches!(database.newest(OURS), Err(DatabaseError::Database(_))));
        assert!(matches!(seen(), Some(DatabaseError::NoDatabase)));
        assert_eq!(std::fs::read(&path).unwrap(), [1; 8192]);
    }

    #[test]
    fn two_hosts_write_at_once_and_nothing_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("snapshots.db");
        std::thread::scope(|scope| {
            for volume in [OURS, VolumeId(8)] {
                let database = SnapshotDatabase::new(&path);
                scope.spawn(move || {
                    for at in 1..=8 {
                        let header = header(volume, at, 4096);
                        database.write(&header, &bytes(header), 0, 100, 0).unwrap();
                    }
                });
            }
        });
        for volume in [OURS, VolumeId(8)] {
            let series = SnapshotDatabase::new(&path).read(volume, 4096, 100, 0).unwrap();
            assert_eq!(sequences(&series), (1..=8).collect::<Vec<_>>());
        }
    }
}
