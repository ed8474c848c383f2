//! A store that may hang: it is asked on threads of its own, so that nobody has to wait for it when the daemon ends.
//!
//! While the daemon serves it may take its time. From the beginning of the end on it has [`AT_END`] for each answer, and [`AT_END_IN_ALL`] for all. A thread that is given up goes on until its answer comes
//! or the process ends; it holds nothing of the data path, and what it writes is whole or not there (`folder`, `database`, `ring`).

use super::{SnapshotStore, StoreError};
use crate::daemon::Shared;
use crate::trouble::Trouble;
use forebay_units::with_causes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    troubles: Mutex<Troubles>,
    /// Why no snapshot of a volume could be taken last, where that says nothing of others': a place that is full may have room where an older one of another is.
    untaken: Mutex<BTreeMap<String, Trouble>>,
}

/// What it is asked for: that it can be read says nothing of whether it can be written, as where it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Reading,
    Writing,
}

#[derive(Debug, Default)]
struct Troubles {
    reading: Trouble,
    writing: Trouble,
}

impl PatientStore {
    pub(crate) fn new(store: SnapshotStore) -> PatientStore {
        let place = store.place().to_string();
        let troubles = Mutex::default();
        let (is_given_up, untaken) = (AtomicBool::new(false), Mutex::default());
        PatientStore { store: Arc::new(store), is_given_up, place, troubles, untaken }
    }

    /// What is wrong with the store, or of which volumes alone none could be taken last, in words; `None` where what it was asked last was answered.
    pub(crate) fn trouble(&self) -> Option<String> {
        let troubles = self.troubles();
        let of = |told: Option<&str>, what: &str| told.map(|error| format!("{what}: {error}"));
        of(troubles.reading.told(), "they are neither read nor written")
            .or_else(|| of(troubles.writing.told(), "none is written"))
            .or_else(|| self.untaken_in_words())
    }

    fn untaken_in_words(&self) -> Option<String> {
        let untaken = self.untaken();
        let mut told = untaken.iter().filter_map(|(volume, trouble)| Some((volume, trouble.told()?)));
        let (volume, reason) = told.next()?;
        Some(match told.count() {
            0 => format!("none of `{volume}` is written: {reason}"),
            others => format!("none of `{volume}` is written, nor of {others} others: {reason}"),
        })
    }

    /// Notes why no snapshot of a volume could be taken, or that one was; whether that is news.
    pub(super) fn note_taking(&self, volume: &str, trouble: Option<&str>) -> bool {
        let mut untaken = self.untaken();
        match trouble {
            Some(reason) => untaken.entry(volume.to_owned()).or_default().is_news(reason),
            None => untaken.remove(volume).is_some_and(|mut trouble| trouble.is_over()),
        }
    }

    fn untaken(&self) -> MutexGuard<'_, BTreeMap<String, Trouble>> {
        self.untaken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it cannot even be read.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.troubles().reading.told().is_some()
    }

    fn troubles(&self) -> MutexGuard<'_, Troubles> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether the store is of this use, and tells the log.
    fn note(&self, of: Use, trouble: Option<String>) {
        let mut guard = self.troubles();
        let Troubles { reading, writing } = &mut *guard;
        let place = &self.place;
        match (of, trouble) {
            (Use::Reading, Some(error)) if reading.is_news(&error) => {
                tracing::warn!(place, error, "snapshots are neither read nor written; it is tried again");
            }
            (Use::Writing, Some(error)) if writing.is_news(&error) => {
                tracing::warn!(place, error, "no snapshot is taken; it is tried again");
            }
            (Use::Reading, None) if reading.is_over() => tracing::info!(place, "snapshots are read again"),
            // What can be written can be read.
            (Use::Writing, None) if reading.is_over() | writing.is_over() => {
                tracing::info!(place, "snapshots are taken again");
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
        self.ask_within(Use::Reading, || shared.stopped_at(), AT_END, question)
    }

    /// The same of what changes the store.
    ///
    /// # Errors
    /// What the store says, or [`StoreError::Hangs`].
    pub(crate) fn write<T: Send + 'static>(
        &self,
        shared: &Shared,
        question: impl FnOnce(&SnapshotStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.ask_within(Use::Writing, || shared.stopped_at(), AT_END, question)
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
        self.ask_within(Use::Reading, || shared.stopped_at(), Duration::ZERO, question)
    }

    fn ask_within<T: Send + 'static>(
        &self,
        of: Use,
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
                        Ok(_) => self.note(of, None),
                        Err(error) if !error.is_of_one_volume() => self.note(of, Some(with_causes(error))),
                        Err(_) => {}
                    }
                    return answer;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let panic = thread.join().expect_err("who answers nothing panicked");
                    std::panic::resume_unwind(panic);
                }
                Err(RecvTimeoutError::Timeout) if began.elapsed() >= LATE => {
                    self.note(of, Some(format!("it has not answered for {} s", LATE.as_secs())));
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
        let given_up = store.ask_within(Use::Reading, stopped_at, at_end, hang(hung)).unwrap_err();
        assert!(matches!(&given_up, StoreError::Hangs { waited } if *waited >= at_end), "{given_up}");
        assert!(!given_up.is_of_one_volume() && ends.elapsed() >= at_end);
        // Whoever comes behind it does not wait, and asks nothing.
        let next = store.ask_within(Use::Reading, stopped_at, Duration::from_secs(600), |_| Ok(()));
        assert!(matches!(next, Err(StoreError::Hangs { .. })), "{next:?}");
        drop(go_on);
        // While the daemon serves, an answer may take longer than that.
        let store = PatientStore::new(SnapshotStore::new(SnapshotPlace::Folder("nowhere".into())));
        let slow = |_: &SnapshotStore| {
            thread::sleep(Duration::from_millis(300));
            Ok(7)
        };
        assert_eq!(store.ask_within(Use::Reading, || None, at_end, slow).unwrap(), 7);
        let ended = Instant::now();
        let dropped = store.ask_within(Use::Reading, || Some(ended), Duration::ZERO, slow);
        assert!(matches!(dropped, Err(StoreError::Hangs { .. })) && ended.elapsed() < at_end);
    }

    #[test]
    fn that_it_can_be_read_does_not_end_that_it_cannot_be_written() {
        let store = PatientStore::new(SnapshotStore::new(SnapshotPlace::Folder("full".into())));
        let refused =
            || Err::<(), _>(StoreError::from(std::io::Error::from(std::io::ErrorKind::PermissionDenied)));
        let ask = |of, ok: bool| {
            let _ = store.ask_within(of, || None, AT_END, move |_| if ok { Ok(()) } else { refused() });
            (store.trouble().map(|told| told.split(':').next().unwrap().to_owned()), store.is_unreadable())
        };
        let (unwritten, unread) =
            ("none is written".to_owned(), "they are neither read nor written".to_owned());
        assert_eq!(ask(Use::Writing, false), (Some(unwritten.clone()), false));
        assert_eq!(ask(Use::Reading, true), (Some(unwritten.clone()), false));
        assert_eq!(ask(Use::Reading, false), (Some(unread), true));
        assert_eq!(ask(Use::Reading, true), (Some(unwritten), false));
        assert_eq!(ask(Use::Writing, true), (None, false));
    }
}
