//! The mailbox under every order of its threads' steps: nothing is lost, nobody sleeps for ever, and what is closed keeps nothing.

use loom::sync::{Arc, Condvar, Mutex as LoomMutex};
use loom::thread;

/// What the mailbox is made of here; [`super`] has the same from `std`.
mod primitives {
    pub(super) use loom::sync::Mutex;
    pub(super) use loom::sync::atomic::{AtomicBool, Ordering};
}

#[allow(clippy::duplicate_mod, reason = "the same code on other primitives is the point")]
#[path = "mailbox.rs"]
mod mailbox;

use mailbox::Mailbox;

/// As an event fd: it stays signalled until it is cleared. Loom ends a run in which the owner waits for ever with a panic.
struct Wake {
    signalled: LoomMutex<bool>,
    changed: Condvar,
}

impl Wake {
    fn wake(&self) {
        *self.signalled.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn wait_and_clear(&self) {
        let mut signalled = self.signalled.lock().unwrap();
        while !*signalled {
            signalled = self.changed.wait(signalled).unwrap();
        }
        *signalled = false;
    }
}

#[test]
fn what_is_put_in_is_taken_once_and_nobody_sleeps_through_it() {
    const SENDERS: u32 = 2;
    loom::model(|| {
        let wake = Wake { signalled: LoomMutex::new(false), changed: Condvar::new() };
        let shared = Arc::new((Mailbox::<Vec<u32>>::new(), wake));
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (mailbox, wake) = &*shared;
                    if mailbox.put(|content| content.push(sender)) {
                        wake.wake();
                    }
                })
            })
            .collect();
        // The worker's loop: look, wait only if there was nothing, take.
        let (mailbox, wake) = &*shared;
        let (mut seen, mut content) = (Vec::new(), Vec::new());
        while seen.len() < SENDERS as usize {
            if !mailbox.has_content() {
                wake.wait_and_clear();
            }
            mailbox.take(&mut content);
            seen.append(&mut content);
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        seen.sort_unstable();
        assert_eq!(seen, [0, 1]);
    });
}

#[test]
fn the_owner_may_put_in_something_itself_and_finds_it_before_it_waits() {
    loom::model(|| {
        let wake = Wake { signalled: LoomMutex::new(false), changed: Condvar::new() };
        let shared = Arc::new((Mailbox::<Vec<u32>>::new(), wake));
        let other = shared.clone();
        let sender = thread::spawn(move || {
            let (mailbox, wake) = &*other;
            if mailbox.put(|content| content.push(1)) {
                wake.wake();
            }
        });
        let (mailbox, wake) = &*shared;
        // The owner wakes nobody: it is awake.
        mailbox.put(|content| content.push(0));
        let (mut seen, mut content) = (Vec::new(), Vec::new());
        while seen.len() < 2 {
            if !mailbox.has_content() {
                wake.wait_and_clear();
            }
            mailbox.take(&mut content);
            seen.append(&mut content);
        }
        sender.join().unwrap();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1]);
    });
}

#[test]
fn what_comes_after_the_end_is_dropped() {
    loom::model(|| {
        let token = std::sync::Arc::new(());
        let mailbox = Arc::new(Mailbox::<Vec<std::sync::Arc<()>>>::new());
        let (sent, other) = (token.clone(), mailbox.clone());
        let sender = thread::spawn(move || other.put(move |content| content.push(sent)));
        mailbox.close();
        sender.join().unwrap();
        // Put in before or after: the end left nothing, so who waits for what was sent is told.
        assert_eq!(std::sync::Arc::strong_count(&token), 1);
    });
}
