//! Writes of unknown outcome, and who can say that they are over: the next connection of the same succession, or an operator.

use super::connection::Connection;
use super::job::Job;
use super::{Queue, Shared};
use crate::pool::locked;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Writes in doubt that were in flight on connections of one lane: of those of the same run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doubts {
    /// A connection that succeeds can say that they are over.
    pub(super) open: u64,
    /// There is one, and it has not answered yet.
    pub(super) awaited: u64,
}

impl Shared {
    /// A lane has another connection. If it succeeds the lost one, its first answer says that what the lost ones left in doubt is over; whether there is anything.
    pub(super) fn may_settle(&self, lane: usize, is_succeeded: bool) -> bool {
        let mut queue = locked(&self.queue);
        let doubts = &mut queue.doubts[lane];
        let open = std::mem::take(&mut doubts.open);
        // Of another run nobody will ever say: they stay in the count until an operator does.
        doubts.awaited = if is_succeeded { doubts.awaited + open } else { 0 };
        doubts.awaited > 0
    }

    /// The connection `by`, which succeeds, has answered.
    pub(super) fn settle_lane(&self, lane: usize, by: &Connection) {
        let mut queue = locked(&self.queue);
        // Who stood still since an answer came may speak of a connection that is gone.
        if !queue.connections[lane].as_ref().is_some_and(|now| std::ptr::eq(Arc::as_ptr(now), by)) {
            return;
        }
        let over = std::mem::take(&mut queue.doubts[lane].awaited);
        // Under the lock, as all that changes it.
        let before = self.in_doubt.load(Ordering::Relaxed);
        self.in_doubt.store(before - over, Ordering::Relaxed);
        drop(queue);
        if over > 0 {
            tracing::info!(target: "forebay::origin", uri = %self.uri.shown(), over, "writes of unknown outcome are over");
        }
    }

    /// Completes a request that was in flight on a connection of this lane as of unknown outcome; a change is in doubt from then on.
    pub(super) fn in_doubt(&self, lane: usize, job: Job, what: &str) {
        self.count_doubt(&mut locked(&self.queue), lane, &job);
        job.give_up(what);
    }

    /// Counts a change that is about to be given up.
    pub(super) fn count_doubt(&self, queue: &mut Queue, lane: usize, job: &Job) {
        if !job.is_flush() {
            queue.doubts[lane].open += 1;
            self.in_doubt.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An operator says that all of them are over.
    pub(super) fn settle(&self) {
        let mut queue = locked(&self.queue);
        queue.doubts.fill(Doubts::default());
        self.in_doubt.store(0, Ordering::Relaxed);
    }
}
