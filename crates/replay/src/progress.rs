//! How far a run is, for whoever looks on from another thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a run; all of them only rise.
#[derive(Debug, Default)]
pub struct Progress {
    pub(crate) issued: AtomicU64,
    pub(crate) answered: AtomicU64,
    pub(crate) errors: AtomicU64,
}

impl Progress {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    /// Requests issued.
    pub fn issued(&self) -> u64 {
        self.issued.load(Ordering::Relaxed)
    }

    /// Requests answered without an error.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Requests answered with an error.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }
}
