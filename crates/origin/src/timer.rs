//! One thread that runs small actions at their instants, shared by all layers that delay.

use crate::pool::locked;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

type Action = Box<dyn FnOnce() + Send>;

struct Entry {
    at: Instant,
    sequence: u64,
    action: Action,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.sequence == other.sequence
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The earliest is the greatest; equal instants in order of scheduling.
    fn cmp(&self, other: &Entry) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

struct Queue {
    entries: BinaryHeap<Entry>,
    next_sequence: u64,
    closing: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

/// Runs actions at their instants, at most 65,536 waiting ones. Actions must not block.
///
/// An action runs some 60 us after its instant on an idle machine, later on a busy one. Dropping the timer runs
/// what waits at once, so that nothing that depends on it is left without an answer.
pub struct Timer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Timer {
    /// Actions that may wait at a time (ours).
    pub const WAITING_MAX: usize = 65_536;

    /// Starts a timer.
    ///
    /// # Errors
    /// Where the system has no thread left.
    pub fn start() -> io::Result<Arc<Timer>> {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue { entries: BinaryHeap::new(), next_sequence: 0, closing: false }),
            wake: Condvar::new(),
        });
        let for_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("origin-timer".into()).spawn(move || run(&for_thread))?;
        Ok(Arc::new(Timer { shared, thread: Some(thread) }))
    }

    /// Has `action` run at `at`; `false`, and dropped, where the maximum waits already.
    pub(crate) fn schedule(&self, at: Instant, action: Action) -> bool {
        let mut queue = locked(&self.shared.queue);
        if queue.entries.len() >= Timer::WAITING_MAX {
            // Dropping the action completes its request: not under the lock.
            drop(queue);
            drop(action);
            return false;
        }
        let sequence = queue.next_sequence;
        queue.next_sequence += 1;
        queue.entries.push(Entry { at, sequence, action });
        let first = queue.entries.peek().is_some_and(|entry| entry.sequence == sequence);
        drop(queue);
        if first {
            self.shared.wake.notify_one();
        }
        true
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        locked(&self.shared.queue).closing = true;
        self.shared.wake.notify_all();
        if let Some(thread) =
            self.thread.take().filter(|thread| thread.thread().id() != thread::current().id())
        {
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared) {
    let mut queue = locked(&shared.queue);
    loop {
        let now = Instant::now();
        let closing = queue.closing;
        let due = queue.entries.peek().is_some_and(|entry| closing || entry.at <= now);
        if due {
            let entry = queue.entries.pop().expect("an entry was seen");
            drop(queue);
            (entry.action)();
            queue = locked(&shared.queue);
            continue;
        }
        if closing {
            return;
        }
        queue = match queue.entries.peek().map(|entry| entry.at - now) {
            None => shared.wake.wait(queue).unwrap_or_else(PoisonError::into_inner),
            Some(wait) => shared.wake.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner).0,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn actions_run_in_order_of_time_and_a_drop_runs_the_rest() {
        let (sender, receiver) = channel();
        let timer = Timer::start().unwrap();
        let now = Instant::now();
        for (name, after) in [("third", 3600), ("second", 0), ("fourth", 7200), ("first", 0)] {
            let sender = sender.clone();
            let at = if name == "first" {
                now - Duration::from_millis(1)
            } else {
                now + Duration::from_secs(after)
            };
            assert!(timer.schedule(at, Box::new(move || sender.send((name, Instant::now())).unwrap())));
        }
        let (first, second) = (receiver.recv().unwrap(), receiver.recv().unwrap());
        let mut early = [first.0, second.0];
        early.sort_unstable();
        assert_eq!(early, ["first", "second"]);
        assert!(receiver.try_recv().is_err());
        drop(timer);
        assert_eq!(receiver.recv().unwrap().0, "third");
        assert_eq!(receiver.recv().unwrap().0, "fourth");
    }

    #[test]
    fn it_refuses_above_its_maximum() {
        let timer = Timer::start().unwrap();
        let later = Instant::now() + Duration::from_secs(3600);
        for _ in 0..Timer::WAITING_MAX {
            assert!(timer.schedule(later, Box::new(|| {})));
        }
        assert!(!timer.schedule(later, Box::new(|| panic!("an action that was refused ran"))));
    }
}
