//! What one thread is told by many: content behind a lock, and a flag that says whether anybody must be woken for it.
//!
//! Not here: how the owner is woken and what the content is. The file is compiled a second time for its tests, against `loom`'s primitives, which try every
//! order of the threads' steps that the memory model allows; hence the import from `super`.
//! Invariant: whatever was put in before the owner looks is seen by that look, or its `put` was asked to wake the owner after the look.

use super::primitives::{AtomicBool, Mutex, Ordering};

/// Content for one owner from any number of threads.
#[derive(Debug)]
pub(crate) struct Mailbox<C> {
    /// Nothing once the owner has ended: nobody will look any more.
    content: Mutex<Option<C>>,
    has_content: AtomicBool,
}

impl<C: Default> Mailbox<C> {
    pub(crate) fn new() -> Mailbox<C> {
        Mailbox { content: Mutex::new(Some(C::default())), has_content: AtomicBool::new(false) }
    }

    /// Adds to the content; whether the caller must wake the owner, who otherwise is awake or was woken already. Once closed nothing is added:
    /// what `put` owns is dropped, and with it, say, the sender that its caller waits on.
    pub(crate) fn put(&self, put: impl FnOnce(&mut C)) -> bool {
        {
            let mut content = self.content.lock().expect("nobody panics while holding a mailbox");
            let Some(content) = content.as_mut() else { return false };
            put(content);
        }
        // After the content: who sees the flag finds what it announces.
        !self.has_content.swap(true, Ordering::AcqRel)
    }

    /// Whether there is something to take. The owner asks after it took back its wake-up and before it waits for the next.
    pub(crate) fn has_content(&self) -> bool {
        self.has_content.load(Ordering::Acquire)
    }

    /// Exchanges the content for the empty `content`, whose memory is used again.
    pub(crate) fn take(&self, content: &mut C) {
        // The flag falls first: what is put in after it is announced anew.
        if self.has_content.swap(false, Ordering::AcqRel)
            && let Some(found) = self.content.lock().expect("nobody panics while holding a mailbox").as_mut()
        {
            std::mem::swap(content, found);
        }
    }

    /// The owner ends: everything in here, and everything put in from now on, is dropped.
    pub(crate) fn close(&self) {
        let content = self.content.lock().map(|mut content| content.take());
        // Outside of the lock: what is dropped may answer somebody who puts in something.
        drop(content);
    }
}
