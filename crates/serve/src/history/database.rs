//! The database: its layout, its upgrades, and what is written, deleted and read in it.
//!
//! It is *not* a thread, and waits for another writer for [`BUSY`] at most. Invariant: a database of a later version, or of something
//! else, is left as it is.

use super::stamps::Stamps;
use super::{Batch, DatedDecision, word};
use crate::config::HistoryConfig;
use rusqlite::{Connection, OpenFlags, params};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use thiserror::Error;

/// The version of the layout that this code writes.
pub const VERSION: i64 = 2;
/// Marks the file as ours: `FBAY`.
const APPLICATION_ID: i64 = 0x4642_4159;
/// How long another writer may hold the database.
const BUSY: Duration = Duration::from_secs(2);

const SCHEMA: &str = "
CREATE TABLE volume (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;
CREATE TABLE interval (
    volume INTEGER NOT NULL REFERENCES volume (id),
    at_unix_ms INTEGER NOT NULL,
    span_ms INTEGER NOT NULL,
    reads INTEGER NOT NULL,
    writes INTEGER NOT NULL,
    bytes_read INTEGER NOT NULL,
    bytes_written INTEGER NOT NULL,
    errors INTEGER NOT NULL,
    iops REAL NOT NULL,
    read_mean_us REAL, read_p50_us REAL, read_p95_us REAL, read_p99_us REAL,
    write_mean_us REAL, write_p50_us REAL, write_p95_us REAL, write_p99_us REAL,
    hit_ratio REAL,
    quota_bytes INTEGER NOT NULL,
    used_bytes INTEGER NOT NULL,
    conforming_share REAL,
    working_set_bytes INTEGER,
    PRIMARY KEY (volume, at_unix_ms)
) STRICT, WITHOUT ROWID;
CREATE INDEX interval_at ON interval (at_unix_ms);
CREATE TABLE decision (
    id INTEGER PRIMARY KEY,
    at_unix_ms INTEGER NOT NULL,
    volume TEXT NOT NULL,
    kind TEXT NOT NULL,
    summary TEXT NOT NULL,
    json TEXT NOT NULL
) STRICT;
CREATE INDEX decision_at ON decision (at_unix_ms);
CREATE INDEX decision_volume ON decision (volume, at_unix_ms);
";

/// What makes a layout of the next version of one of version 1, of one of version 2, and so on.
const UPGRADES: [&str; (VERSION - 1) as usize] =
    ["ALTER TABLE interval ADD COLUMN working_set_bytes INTEGER;"];

/// Why a database cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// It is something else.
    #[error(
        "`{path}` is a database of something else (application id {found:#x}, expected {APPLICATION_ID:#x})"
    )]
    Stranger {
        /// Where.
        path: String,
        /// What it says.
        found: i64,
    },
    /// It was written by a later version.
    #[error(
        "`{path}` has layout version {found}, expected at most {VERSION}: it was written by a later forebay"
    )]
    Version {
        /// Where.
        path: String,
        /// What it says.
        found: i64,
    },
    /// The database says no.
    #[error("history `{path}`: {source}")]
    Database {
        /// Where.
        path: String,
        /// Why.
        source: rusqlite::Error,
    },
}

/// Device and number of a file.
type FileNumber = (u64, u64);

/// A database of this name, its log and the index of that.
pub(super) fn names_of(path: &str) -> [String; 3] {
    ["", "-wal", "-shm"].map(|suffix| format!("{path}{suffix}"))
}

/// Which files have these names, as far as there are any.
fn files_of(path: &str) -> [Option<FileNumber>; 3] {
    let number = |name: String| std::fs::metadata(name).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    names_of(path).map(number)
}

/// An open history.
pub struct Database {
    path: String,
    connection: Connection,
    /// Its file, and what SQLite has beside it.
    files: [Option<FileNumber>; 3],
}

impl Database {
    /// Opens the database for writing, makes it if it is not there, and upgrades an older layout.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn open(config: &HistoryConfig) -> Result<Database, HistoryError> {
        let path = config.path.display().to_string();
        let wrong = |source| HistoryError::Database { path: path.clone(), source };
        let connection = Connection::open(&config.path).map_err(wrong)?;
        connection.busy_timeout(BUSY).map_err(wrong)?;
        let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let (id, version) =
            (number("application_id").map_err(wrong)?, number("user_version").map_err(wrong)?);
        let tables: i64 = connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .map_err(wrong)?;
        if id != APPLICATION_ID && (id != 0 || tables > 0) {
            return Err(HistoryError::Stranger { path, found: id });
        }
        if version > VERSION {
            return Err(HistoryError::Version { path, found: version });
        }
        if version == 0 {
            // All or nothing, so that a crash leaves no half of a layout.
            let script = format!(
                "PRAGMA journal_mode = WAL;
                 BEGIN IMMEDIATE; {SCHEMA}
                 PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT;"
            );
            connection.execute_batch(&script).map_err(wrong)?;
        } else if version < VERSION {
            let steps = UPGRADES[usize::try_from(version - 1).unwrap_or(0)..].concat();
            let script = format!("BEGIN IMMEDIATE; {steps} PRAGMA user_version = {VERSION}; COMMIT;");
            connection.execute_batch(&script).map_err(wrong)?;
        }
        // A crash of the machine may lose the last seconds, never the database.
        connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;").map_err(wrong)?;
        let files = files_of(&path);
        Ok(Database { path, connection, files })
    }

    /// Opens the database at `path` for reading.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn read(path: &Path) -> Result<Database, HistoryError> {
        let name = path.display().to_string();
        match Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY) {
            Ok(connection) => Ok(Database { files: files_of(&name), path: name, connection }),
            Err(source) => Err(HistoryError::Database { path: name, source }),
        }
    }

    /// Whether its file was removed, or another one has its name: what is written to it is lost when it is closed.
    pub(super) fn has_lost_its_name(&self) -> bool {
        files_of(&self.path)[0] != self.files[0]
    }

    /// Closes it where its file has lost its name. SQLite leaves its log there then, and would play it into whatever has the name when that is opened.
    pub(super) fn abandon(self) {
        let Database { path, connection, files } = self;
        drop(connection);
        let names = names_of(&path);
        for ((name, now), before) in names.iter().zip(files_of(&path)).zip(files).skip(1) {
            if before.is_some() && now == before {
                let _ = std::fs::remove_file(name);
            }
        }
    }

    pub(super) fn error(&self, source: rusqlite::Error) -> HistoryError {
        HistoryError::Database { path: self.path.clone(), source }
    }

    pub(super) fn write(&mut self, batch: &Batch) -> rusqlite::Result<()> {
        if batch.rows() == 0 {
            return Ok(());
        }
        let transaction = self.connection.transaction()?;
        {
            let mut volume = transaction.prepare_cached("INSERT OR IGNORE INTO volume (name) VALUES (?1)")?;
            let mut interval = transaction.prepare_cached(
                "INSERT OR REPLACE INTO interval VALUES ((SELECT id FROM volume WHERE name = ?1), ?2, ?3, ?4, ?5, ?6, \
                 ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)",
            )?;
            for row in &batch.intervals {
                volume.execute([&row.volume])?;
                let [read_mean, read_p50, read_p95, read_p99] = row.read_us;
                let [write_mean, write_p50, write_p95, write_p99] = row.write_us;
                interval.execute(params![
                    row.volume,
                    row.at_unix_ms,
                    row.span_ms,
                    row.reads as i64,
                    row.writes as i64,
                    row.bytes_read as i64,
                    row.bytes_written as i64,
                    row.errors as i64,
                    row.iops,
                    read_mean,
                    read_p50,
                    read_p95,
                    read_p99,
                    write_mean,
                    write_p50,
                    write_p95,
                    write_p99,
                    row.hit_ratio,
                    row.quota_bytes as i64,
                    row.used_bytes as i64,
                    row.conforming_share,
                    row.working_set_bytes.map(|bytes| bytes as i64),
                ])?;
            }
            let mut decision = transaction.prepare_cached(
                "INSERT INTO decision (at_unix_ms, volume, kind, summary, json) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?;
            for dated in &batch.decisions {
                let kind = word(&dated.decision.kind);
                let json = serde_json::to_string(&dated.decision).unwrap_or_default();
                let (name, summary) = (&dated.decision.volume_name, &dated.decision.summary);
                decision.execute(params![dated.at_unix_ms, name, kind, summary, json])?;
            }
        }
        transaction.commit()
    }

    /// Deletes what is too old or too much. Of what is too much goes first what says that it is of a time that has not come, then the oldest.
    pub(super) fn prune(&mut self, config: &HistoryConfig, stamps: &Stamps) -> rusqlite::Result<()> {
        let (Some(age_from), Some((last, _))) = (stamps.age_from(), stamps.last) else { return Ok(()) };
        let oldest = age_from.saturating_sub(i64::try_from(config.retention.as_millis()).unwrap_or(i64::MAX));
        self.connection.execute("DELETE FROM interval WHERE at_unix_ms < ?1", [oldest])?;
        self.connection.execute("DELETE FROM decision WHERE at_unix_ms < ?1", [oldest])?;
        let rows: i64 = self.connection.query_row("SELECT count(*) FROM interval", [], |row| row.get(0))?;
        let most = i64::try_from(config.rows_max).unwrap_or(i64::MAX);
        let mut excess = rows.saturating_sub(most);
        for of in
            ["WHERE at_unix_ms > ?1 ORDER BY at_unix_ms DESC", "WHERE at_unix_ms <= ?1 ORDER BY at_unix_ms"]
        {
            if excess > 0 {
                let keys = format!("SELECT volume, at_unix_ms FROM interval {of} LIMIT ?2");
                let delete = format!("DELETE FROM interval WHERE (volume, at_unix_ms) IN ({keys})");
                excess -= self.connection.execute(&delete, [last, excess])? as i64;
            }
        }
        self.connection
            .execute("DELETE FROM decision WHERE id <= (SELECT max(id) FROM decision) - ?1", [most])?;
        Ok(())
    }

    /// The last `count` decisions, oldest first; of one volume where it is named.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn decisions(&self, volume: Option<&str>, count: usize) -> Result<Vec<DatedDecision>, HistoryError> {
        let read = || -> rusqlite::Result<Vec<DatedDecision>> {
            let mut statement = self.connection.prepare(
                "SELECT at_unix_ms, json FROM decision WHERE ?1 IS NULL OR volume = ?1 ORDER BY id DESC LIMIT ?2",
            )?;
            let rows = statement.query_map(params![volume, count as i64], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
            })?;
            let mut decisions = Vec::new();
            for row in rows {
                let (at_unix_ms, json) = row?;
                // A kind that a later version made is not ours to tell.
                if let Ok(decision) = serde_json::from_str(&json) {
                    decisions.push(DatedDecision { at_unix_ms, decision });
                }
            }
            decisions.reverse();
            Ok(decisions)
        };
        read().map_err(|error| self.error(error))
    }

    /// How many intervals of `volume` are kept.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn intervals(&self, volume: &str) -> Result<u64, HistoryError> {
        let sql =
            "SELECT count(*) FROM interval JOIN volume ON volume.id = interval.volume WHERE volume.name = ?1";
        let count = self.connection.query_row(sql, [volume], |row| row.get::<_, i64>(0));
        count.map(|count| count as u64).map_err(|error| self.error(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::IntervalRow;
    use forebay_control::{Decision, DecisionKind, Fact, VolumeId};
    use forebay_units::Nanos;
    use std::time::Instant;

    fn row(volume: &str, at_unix_ms: i64) -> IntervalRow {
        IntervalRow { volume: volume.to_owned(), at_unix_ms, span_ms: 1000, ..IntervalRow::default() }
    }

    fn decision(at_unix_ms: i64) -> DatedDecision {
        let decision = Decision {
            at: Nanos::secs(1),
            volume: VolumeId(0),
            volume_name: "db".to_owned(),
            kind: DecisionKind::Granted,
            summary: "granted".to_owned(),
            facts: vec![Fact::number("size", 3.0, "blocks")],
            alternatives: Vec::new(),
        };
        DatedDecision { at_unix_ms, decision }
    }

    #[test]
    fn rows_come_back_and_old_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = HistoryConfig::new(folder.path().join("history.db"));
        config.retention = Duration::from_secs(60);
        config.rows_max = 3;
        let mut database = Database::open(&config).unwrap();
        let intervals = (0..6).map(|at| row("db", 100_000 + at * 20_000)).collect();
        let batch = Batch { intervals, decisions: vec![decision(90_000), decision(190_000)] };
        database.write(&batch).unwrap();
        let mut stamps = Stamps::default();
        stamps.take(&batch, Instant::now());
        assert_eq!(database.intervals("db").unwrap(), 6);
        // The newest is at 200 s: 140 s to 200 s stay, which are four; of these three.
        database.prune(&config, &stamps).unwrap();
        assert_eq!(database.intervals("db").unwrap(), 3);
        assert_eq!(database.decisions(Some("db"), 10).unwrap(), [decision(190_000)]);
        assert!(database.decisions(Some("other"), 10).unwrap().is_empty());
        drop(database);
        assert_eq!(Database::read(&config.path).unwrap().intervals("db").unwrap(), 3);
    }

    #[test]
    fn a_clock_that_is_years_ahead_for_a_while_takes_no_history_along() {
        const YEAR_MS: i64 = 365 * 86_400_000;
        let folder = tempfile::tempdir().unwrap();
        let mut config = HistoryConfig::new(folder.path().join("history.db"));
        config.retention = Duration::from_secs(3600);
        config.rows_max = 6;
        let mut database = Database::open(&config).unwrap();
        let (mut stamps, began) = (Stamps::default(), Instant::now());
        let mut ended = |at_s: u64, ahead_ms: i64| {
            let interval = row("db", 1_000_000_000 + at_s as i64 * 1000 + ahead_ms);
            let batch = Batch { intervals: vec![interval], decisions: Vec::new() };
            database.write(&batch).unwrap();
            stamps.take(&batch, began + Duration::from_secs(at_s));
            database.prune(&config, &stamps).unwrap();
            let mut statement =
                database.connection.prepare("SELECT at_unix_ms FROM interval ORDER BY at_unix_ms").unwrap();
            let all = statement.query_map([], |row| row.get::<_, i64>(0)).unwrap();
            all.map(|at| (at.unwrap() - 1_000_000_000) / 1000).collect::<Vec<_>>()
        };
        let (ahead, back) = (75 * YEAR_MS, -5 * YEAR_MS);
        assert_eq!(ended(0, 0), [0]);
        assert_eq!(ended(10, 0), [0, 10]);
        assert_eq!(ended(20, ahead), [0, 10, 20 + ahead / 1000]);
        assert_eq!(ended(30, 0).len(), 4);
        assert_eq!(ended(40, back), [40 + back / 1000, 0, 10, 30, 20 + ahead / 1000]);
        // What is of years ago is too old, as soon as the clock is right again.
        assert_eq!(ended(50, 0), [0, 10, 30, 50, 20 + ahead / 1000]);
        assert_eq!(ended(60, 0).len(), 6);
        // One too many: what has not come yet.
        assert_eq!(ended(70, 0), [0, 10, 30, 50, 60, 70]);
        assert_eq!(ended(80, 0), [10, 30, 50, 60, 70, 80]);
        assert_eq!(ended(3640, 0), [50, 60, 70, 80, 3640]);
    }

    #[test]
    fn a_database_of_the_first_layout_keeps_its_rows_and_takes_new_ones() {
        let folder = tempfile::tempdir().unwrap();
        let config = HistoryConfig::new(folder.path().join("history.db"));
        let first = SCHEMA.replace("    working_set_bytes INTEGER,\n", "");
        let old = Connection::open(&config.path).unwrap();
        let script = format!("{first} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1;");
        old.execute_batch(&script).unwrap();
        let kept = "INSERT INTO volume (name) VALUES ('db');
             INSERT INTO interval VALUES (1, 5, 1000, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 7, 7, NULL);";
        old.execute_batch(kept).unwrap();
        drop(old);
        // Twice: an upgraded one is not upgraded again.
        for _ in 0..2 {
            let mut database = Database::open(&config).unwrap();
            let new = IntervalRow { working_set_bytes: Some(4096), ..row("db", 6) };
            database.write(&Batch { intervals: vec![new], decisions: Vec::new() }).unwrap();
        }
        let database = Connection::open(&config.path).unwrap();
        let sizes = |at: i64| -> Option<i64> {
            let sql = "SELECT working_set_bytes FROM interval WHERE at_unix_ms = ?1";
            database.query_row(sql, [at], |row| row.get(0)).unwrap()
        };
        assert_eq!((sizes(5), sizes(6)), (None, Some(4096)));
    }

    #[test]
    fn strangers_and_later_versions_are_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let config = HistoryConfig::new(folder.path().join("other.db"));
        let other = Connection::open(&config.path).unwrap();
        other.execute_batch("CREATE TABLE mine (x)").unwrap();
        drop(other);
        assert!(matches!(Database::open(&config), Err(HistoryError::Stranger { found: 0, .. })));
        let config = HistoryConfig::new(folder.path().join("later.db"));
        drop(Database::open(&config).unwrap());
        Connection::open(&config.path).unwrap().execute_batch("PRAGMA user_version = 9").unwrap();
        assert!(matches!(Database::open(&config), Err(HistoryError::Version { found: 9, .. })));
        let config = HistoryConfig::new(folder.path().join("corrupt.db"));
        std::fs::write(&config.path, [0x55; 8192]).unwrap();
        assert!(matches!(Database::open(&config), Err(HistoryError::Database { .. })));
    }

    #[test]
    fn a_locked_database_loses_rows_and_recovers() {
        let folder = tempfile::tempdir().unwrap();
        let config = HistoryConfig::new(folder.path().join("history.db"));
        let mut database = Database::open(&config).unwrap();
        database.connection.busy_timeout(Duration::ZERO).unwrap();
        let other = Connection::open(&config.path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let batch = Batch { intervals: vec![row("db", 1)], decisions: Vec::new() };
        assert!(database.write(&batch).is_err());
        other.execute_batch("ROLLBACK").unwrap();
        database.write(&batch).unwrap();
        assert_eq!(database.intervals("db").unwrap(), 1);
    }
}
