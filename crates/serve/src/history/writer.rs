//! The thread that writes the history, and its bounded queue.
//!
//! Invariant: who has something to keep never waits. What is lost is counted, and a database that fails is tried again.

use super::database::Database;
use super::stamps::Stamps;
use super::{Batch, DatedDecision, PRUNE};
use crate::config::HistoryConfig;
use crate::trouble::Trouble;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Batches that may wait (ours: hours at the default interval).
const QUEUE_MAX: usize = 1024;
/// Decisions of earlier runs that are told again.
const DECISIONS_TOLD: usize = 1000;
/// How often a database that could not be opened is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// How it goes, for people.
#[derive(Debug, Default)]
pub(crate) struct HistoryCounters {
    pub(crate) written: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) failures: AtomicU64,
    /// What is wrong now; `None` when the last write worked.
    trouble: Mutex<Option<String>>,
    /// What is wrong with the file beside it, in which peaks are kept.
    past: Mutex<Trouble>,
}

impl HistoryCounters {
    /// What is wrong now, with the database or with the file beside it.
    pub(crate) fn trouble(&self) -> Option<String> {
        let database = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let past = self.past().told().map(|reason| format!("peaks are not kept: {reason}"));
        match (database, past) {
            (Some(database), Some(past)) => Some(format!("{database}; {past}")),
            (database, past) => database.or(past),
        }
    }

    pub(crate) fn past(&self) -> MutexGuard<'_, Trouble> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}

/// The writing thread, seen from those who have something to keep.
pub(crate) struct History {
    sender: Option<SyncSender<Batch>>,
    counters: Arc<HistoryCounters>,
    thread: Option<JoinHandle<()>>,
    /// What earlier runs decided, oldest first.
    pub(crate) earlier: Vec<DatedDecision>,
}

impl History {
    /// Opens the database, or tries again later where that fails.
    pub(crate) fn start(config: HistoryConfig) -> std::io::Result<History> {
        let counters = Arc::new(HistoryCounters::default());
        let mut earlier = Vec::new();
        let database = match Database::open(&config) {
            Ok(database) => {
                earlier = database.decisions(None, DECISIONS_TOLD).unwrap_or_default();
                Some(database)
            }
            Err(error) => {
                tracing::error!(%error, "no history is kept; serving goes on");
                counters.failures.fetch_add(1, Ordering::Relaxed);
                counters.set_trouble(Some(error.to_string()));
                None
            }
        };
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let for_thread = Arc::clone(&counters);
        let thread = thread::Builder::new()
            .name("history".to_owned())
            .spawn(move || write(&config, database, &receiver, &for_thread))?;
        Ok(History { sender: Some(sender), counters, thread: Some(thread), earlier })
    }

    pub(crate) fn counters(&self) -> &Arc<HistoryCounters> {
        &self.counters
    }

    /// Has `batch` written when there is time; never waits.
    pub(crate) fn keep(&self, batch: Batch) {
        let rows = batch.rows();
        let sent = self.sender.as_ref().map(|sender| sender.try_send(batch));
        if let Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) = sent {
            self.counters.lost.fetch_add(rows, Ordering::Relaxed);
        }
    }
}

impl Drop for History {
    /// Writes what waits; each batch may take as long as another writer holds the database.
    fn drop(&mut self) {
        self.sender.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn write(
    config: &HistoryConfig,
    mut database: Option<Database>,
    receiver: &Receiver<Batch>,
    counters: &HistoryCounters,
) {
    let mut opened_at = Some(Instant::now());
    let mut pruned_at: Option<Instant> = None;
    let mut stamps = Stamps::default();
    let mut trouble = Trouble::default();
    loop {
        let batch = match receiver.recv_timeout(PRUNE) {
            Ok(batch) => batch,
            Err(RecvTimeoutError::Timeout) => Batch::default(),
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if let Some(lost) = database.take_if(|open| open.has_lost_its_name()) {
            tracing::warn!(path = %config.path.display(), "the file of the history was removed or replaced: what has its name is opened, and made where there is none");
            lost.abandon();
            opened_at = None;
        }
        if database.is_none() && opened_at.is_none_or(|at| at.elapsed() >= RETRY) {
            opened_at = Some(Instant::now());
            match Database::open(config) {
                Ok(opened) => database = Some(opened),
                Err(error) => counters.set_trouble(Some(error.to_string())),
            }
        }
        let Some(open) = &mut database else {
            counters.lost.fetch_add(batch.rows(), Ordering::Relaxed);
            continue;
        };
        stamps.take(&batch, Instant::now());
        let mut result = open.write(&batch);
        let lost = if result.is_err() { batch.rows() } else { 0 };
        if result.is_ok() && pruned_at.is_none_or(|at| at.elapsed() >= PRUNE) {
            pruned_at = Some(Instant::now());
            result = open.prune(config, &stamps);
        }
        counters.written.fetch_add(batch.rows() - lost, Ordering::Relaxed);
        counters.lost.fetch_add(lost, Ordering::Relaxed);
        match result {
            Ok(()) => {
                // Where there was nothing to write that says nothing.
                if batch.rows() > 0 && trouble.is_over() {
                    tracing::info!(lost = counters.lost.load(Ordering::Relaxed), "history is written again");
                }
                counters.set_trouble(None);
            }
            Err(error) => {
                let error = open.error(error).to_string();
                if trouble.is_news(&error) {
                    tracing::warn!(error, lost, "history is not written; serving goes on");
                }
                counters.failures.fetch_add(1, Ordering::Relaxed);
                counters.set_trouble(Some(error));
            }
        }
    }
    if let Some(lost) = database.filter(Database::has_lost_its_name) {
        lost.abandon();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::IntervalRow;
    use crate::history::database::names_of;
    use rusqlite::Connection;
    use std::path::Path;

    fn row(volume: &str, at_unix_ms: i64) -> IntervalRow {
        IntervalRow { volume: volume.to_owned(), at_unix_ms, span_ms: 1000, ..IntervalRow::default() }
    }

    #[test]
    fn what_a_broken_database_loses_is_counted_and_nobody_waits() {
        let folder = tempfile::tempdir().unwrap();
        let config = HistoryConfig::new(folder.path().join("corrupt.db"));
        std::fs::write(&config.path, [0x55; 8192]).unwrap();
        let history = History::start(config).unwrap();
        let counters = Arc::clone(history.counters());
        history.keep(Batch { intervals: vec![row("db", 1), row("db", 2)], decisions: Vec::new() });
        drop(history);
        assert_eq!(counters.lost.load(Ordering::Relaxed), 2);
        assert_eq!(counters.written.load(Ordering::Relaxed), 0);
        assert!(counters.trouble().unwrap().contains("corrupt.db"));
    }

    #[test]
    fn a_database_that_is_removed_is_made_anew_and_one_that_is_replaced_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let config = HistoryConfig::new(folder.path().join("history.db"));
        let history = History::start(config.clone()).unwrap();
        let counters = Arc::clone(history.counters());
        let keep = |at| {
            let before = counters.written.load(Ordering::Relaxed) + counters.lost.load(Ordering::Relaxed);
            history.keep(Batch { intervals: vec![row("db", at)], decisions: Vec::new() });
            while counters.written.load(Ordering::Relaxed) + counters.lost.load(Ordering::Relaxed) == before {
                thread::yield_now();
            }
            (counters.written.load(Ordering::Relaxed), counters.trouble())
        };
        assert_eq!(keep(1), (1, None));
        std::fs::remove_file(&config.path).unwrap();
        assert_eq!([keep(2), keep(3)], [(2, None), (3, None)]);
        assert_eq!(Database::read(&config.path).unwrap().intervals("db").unwrap(), 2);
        let beside = || names_of(config.path.to_str().unwrap()).map(|name| Path::new(&name).exists());
        assert_eq!(beside(), [true; 3]);
        let other = folder.path().join("other.db");
        Connection::open(&other)
            .unwrap()
            .execute_batch("CREATE TABLE t (a); PRAGMA application_id = 7;")
            .unwrap();
        std::fs::rename(&other, &config.path).unwrap();
        let (written, trouble) = keep(4);
        assert_eq!(written, 3, "{trouble:?}");
        assert!(
            trouble.as_ref().is_some_and(|told| told.contains("a database of something else")),
            "{trouble:?}"
        );
    }
}
