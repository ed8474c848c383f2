//! Machines in QEMU's software emulation: each keeps a processor busy while it boots, and what is waited for is not there in time where more do at once than there are.

use std::sync::{Condvar, Mutex, PoisonError};

static RUNNING: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// A processor for a machine, until it is dropped.
pub(crate) struct Turn(());

/// Waits for a processor. A test takes one for all its machines, which it boots one after another.
pub(crate) fn turn() -> Turn {
    let most = std::thread::available_parallelism().map_or(1, usize::from);
    let (running, ended) = &RUNNING;
    let running = running.lock().unwrap_or_else(PoisonError::into_inner);
    *ended.wait_while(running, |running| *running >= most).unwrap_or_else(PoisonError::into_inner) += 1;
    Turn(())
}

impl Drop for Turn {
    fn drop(&mut self) {
        let (running, ended) = &RUNNING;
        *running.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ended.notify_one();
    }
}
