//! A store that may hang: it is asked on threads of its own, so that nobody has to wait for it when the daemon ends.
//!
//! While the daemon serves it may take its time. From the beginning of the end on it has [`AT_END`] for each answer, and [`AT_END_IN_ALL`] for all. A thread that is given up goes on until its answer comes
//! or the process ends; it holds nothing of the data path, and what it writes is whole or not there (`folder`, `database`, `ring`).

use super::{SnapshotStore, StoreError};
use crate::daemon::Shared;
use crate::trouble::Trouble;
use forebay_units::with_causes;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long an answer is waited for once the daemon ends: longer than a disk that is busy takes to write and flush some megabytes, and than a slot that is shared takes to claim (ours).
pub(crate) const AT_END: Duration = Duration::from_secs(3);
/// How long all answers together are waited for then, where each comes, but slowly (ours).
pub(crate) const AT_END_IN_ALL: Duration = Duration::from_secs(10);
/// Whoever has not answered for so long may never do: it is told meanwhile (ours; longer than a range's own patience).
const LATE: Duration = Duration::from_secs(15);
/// How often it is looked whether the daemon ends.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The store, asked so.
pub(crate) struct PatientStore {
    store: Arc<SnapshotStore>,
    /// It hung at the end: whoever comes now waits no more.
    is_given_up: AtomicBool,
    place: String,
    trouble: Mutex<Trouble>,
}

impl PatientStore {
    pub(crate) fn new(store: SnapshotStore) -> PatientStore {
        let place = store.place().to_string();
        let trouble = Mutex::default();
        PatientStore { store: Arc::new(store), is_given_up: AtomicBool::new(false), place, trouble }
    }

    /// Why no snapshot can be read or written now; `None` where the last answer was one.
    pub(crate) fn trouble(&self) -> Option<String> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.told().map(str::to_owned)
    }

    /// Notes whether the store is of use, and tells the log.
    fn note(&self, trouble: Option<String>) {
        let mut known = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match trouble {
            Some(error) if known.is_news(&error) => {
                tracing::warn!(
                    place = self.place,
                    error,
                    "snapshots are neither read nor written; it is tried again"
                );
            }
            None if known.is_over() => {
                tracing::info!(place = self.place, "snapshots are read and written again");
            }
            _ => {}
        }
    }

    /// What the store answers, for whoever needs it also when the daemon ends.
    ///
    /// # Errors
    /// What the store says, or [`StoreError::Hangs`].
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        shared: &Shared,
        question: impl FnOnce(&SnapshotStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.ask_within(|| shared.stopped_at(), AT_END, question)
    }

    /// The same for whom no answer is of use once the daemon ends.
    ///
    /// # Errors
    /// What the store says, or [`StoreError::Hangs`].
    pub(crate) fn ask_while_serving<T: Send + 'static>(
        &self,
        shared: &Shared,
        question: impl FnOnce(&SnapshotStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.ask_within(|| shared.stopped_at(), Duration::ZERO, question)
    }

    fn ask_within<T: Send + 'static>(
        &self,
        stopped_at: impl Fn() -> Option<Instant>,
        at_end: Duration,
        question: impl FnOnce(&SnapshotStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let hangs = |since: Instant| Err(StoreError::Hangs { waited: since.elapsed() });
        let began = Instant::now();
        if self.is_given_up.load(Ordering::Relaxed) {
            return hangs(stopped_at().unwrap_or(began));
        }
        let (sender, answers) = channel();
        let store = Arc::clone(&self.store);
        let thread = thread::Builder::new().name("snapshot-store".to_owned()).spawn(move || {
            // Nobody may wait any more.
            let _ = sender.send(question(&store));
        })?;
        loop {
            match answers.recv_timeout(LOOK_EVERY) {
                Ok(answer) => {
                    match &answer {
                        Ok(_) => self.note(None),
                        Err(error) if !error.is_of_one_volume() => self.note(Some(with_causes(error))),
                        Err(_) => {}
                    }
                    return answer;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let panic = thread.join().expect_err("who answers nothing panicked");
                    std::panic::resume_unwind(panic);
                }
                Err(RecvTimeoutError::Timeout) if began.elapsed() >= LATE => {
                    self.note(Some(format!("it has not answered for {} s", LATE.as_secs())));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let Some(stopped_at) = stopped_at() else { continue };
            let since = began.max(stopped_at);
            if since.elapsed() < at_end && stopped_at.elapsed() < AT_END_IN_ALL {
                continue;
            }
            // Who does not wait at all knows nothing of whether it hangs.
            if at_end > Duration::ZERO {
                self.is_given_up.store(true, Ordering::Relaxed);
            }
            return hangs(since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshots::SnapshotPlace;
    use std::sync::mpsc::Receiver;

    #[test]
    fn a_store_that_hangs_is_waited_for_once_and_a_little_at_the_end_and_as_long_as_it_takes_before() {
        let store = PatientStore::new(SnapshotStore::new(SnapshotPlace::Folder("nowhere".into())));
        let (go_on, hung) = channel::<()>();
        let hang = move |hung: Receiver<()>| {
            move |_: &SnapshotStore| {
                let _ = hung.recv();
                Ok(())
            }
        };
        // The daemon serves for 100 ms.
        let ends = Instant::now() + Duration::from_millis(100);
        let stopped_at = || (Instant::now() >= ends).then_some(ends);
        let at_end = Duration::from_millis(200);
        let given_up = store.ask_within(stopped_at, at_end, hang(hung)).unwrap_err();
        assert!(matches!(&given_up, StoreError::Hangs { waited } if *waited >= at_end), "{given_up}");
        assert!(!given_up.is_of_one_volume() && ends.elapsed() >= at_end);
        // Whoever comes behind it does not wait, and asks nothing.
        let next = store.ask_within(stopped_at, Duration::from_secs(600), |_| Ok(()));
        assert!(matches!(next, Err(StoreError::Hangs { .. })), "{next:?}");
        drop(go_on);
        // While the daemon serves, an answer may take longer than that.
        let store = PatientStore::new(SnapshotStore::new(SnapshotPlace::Folder("nowhere".into())));
        let slow = |_: &SnapshotStore| {
            thread::sleep(Duration::from_millis(300));
            Ok(7)
        };
        assert_eq!(store.ask_within(|| None, at_end, slow).unwrap(), 7);
        let ended = Instant::now();
        let dropped = store.ask_within(|| Some(ended), Duration::ZERO, slow);
        assert!(matches!(dropped, Err(StoreError::Hangs { .. })) && ended.elapsed() < at_end);
    }
}
