//! What was acknowledged and not flushed, and which run of the server keeps it: where that may be lost, the next flush says so.

use super::{Queue, Shared};
use crate::pool::locked;
use crate::request::Unflushed;
use forebay_nbd::RunId;
use forebay_nbd::wire::TransmissionFlags;
use std::sync::atomic::Ordering;

/// Stands for the keeper of what a server of ours acknowledges that promises nothing, since its volume is in doubt: whoever takes its place cannot tell whether it is with them. No run has this number.
pub(super) const UNTOLD: RunId = RunId(0);

impl Shared {
    /// An attempt said that what `run` acknowledged is kept by it, which lets us in no more.
    pub(super) fn is_kept(&self, lane: usize, run: RunId) {
        let mut queue = locked(&self.queue);
        if queue.let_in_by == Some(run) {
            queue.kept_by = Some(run);
        } else {
            // Another run let another lane in since, before this was known.
            self.note_loss();
        }
        queue.undecided[lane] = false;
    }

    /// This run has ended, with all that it acknowledged on stable storage.
    pub(super) fn has_all_safe(&self, run: RunId) {
        let queue = locked(&self.queue);
        // If another one let a lane in since, some of what was acknowledged is its.
        if queue.let_in_by == Some(run) {
            let acknowledged = self.writes_acknowledged.load(Ordering::SeqCst);
            self.flushed_through.fetch_max(acknowledged, Ordering::SeqCst);
        }
    }

    /// A server of this run is there, on whatever lane. What another one acknowledged may be lost, also where the connection on which it did is not known to be: a flush that this
    /// run answers does not speak of it.
    pub(super) fn meets(&self, run: Option<RunId>) {
        let mut queue = locked(&self.queue);
        let before = run.and_then(|run| queue.met.replace(run));
        drop(queue);
        if before.is_some() && before != run {
            self.note_loss();
        }
    }

    /// A connection is about to be used, of a server of this run if it says so: what an earlier run kept when it let us in no more may be lost with it. What this run keeps
    /// is looked after from here on by who has the connection, and notes when that is lost: so there must be one.
    pub(super) fn let_in_by(&self, queue: &mut Queue, run: Option<RunId>, keeper: Option<RunId>) {
        queue.let_in_by = run;
        queue.keeper = keeper;
        let is_kept_elsewhere = queue.keeper_of_unflushed.zip(keeper).is_some_and(|(of, here)| of != here);
        if !self.owes_something() {
            queue.keeper_of_unflushed = keeper;
        } else if is_kept_elsewhere && !queue.has_inherited {
            // The server knows whether that was lost, but it may be gone before anybody asks.
            queue.kept_through = self.writes_acknowledged.load(Ordering::SeqCst);
            self.flush_for_ourselves(queue);
        } else if is_kept_elsewhere {
            // The server acknowledged nothing of that itself, and would not say so.
            (queue.keeper_of_unflushed, queue.has_inherited) = (keeper, false);
            self.loss_stands.store(true, Ordering::SeqCst);
            self.note_loss();
        }
        if queue.kept_by.take().is_some_and(|kept_by| run != Some(kept_by)) {
            self.note_loss();
        }
    }

    /// A connection was lost: what was acknowledged and not flushed may be lost with it.
    pub(super) fn note_loss(&self) {
        if self.has_unflushed() {
            self.owe_loss();
        }
    }

    /// Whether there is anything that the server may lose.
    fn has_unflushed(&self) -> bool {
        self.export.flags.contains(TransmissionFlags::SEND_FLUSH)
            && !self.options.keeps_acknowledged_writes
            && self.writes_acknowledged.load(Ordering::SeqCst) > self.flushed_through.load(Ordering::SeqCst)
    }

    /// Whether a flush has to speak of something yet, or somebody has to hear of a loss.
    fn owes_something(&self) -> bool {
        self.has_unflushed() || self.flush_must_fail.load(Ordering::SeqCst)
    }

    /// A flush was answered that speaks of the first `through` writes that were acknowledged.
    pub(super) fn flushed(&self, through: u64) {
        self.flushed_through.fetch_max(through, Ordering::SeqCst);
        let mut queue = locked(&self.queue);
        // What came later is with whoever keeps it now. A loss that nobody has heard of is with who kept it then.
        let is_of_now = through >= queue.kept_through && !self.flush_must_fail.load(Ordering::SeqCst);
        if is_of_now || !self.owes_something() {
            (queue.keeper_of_unflushed, queue.has_inherited) = (queue.keeper, false);
        }
    }

    pub(super) fn unflushed(&self) -> Option<Unflushed> {
        let keeper = locked(&self.queue).keeper_of_unflushed;
        let is_lost = self.loss_stands.load(Ordering::SeqCst);
        self.owes_something().then_some(Unflushed { keeper, is_lost })
    }

    /// As though it had been acknowledged here: whoever loses it from now on, the next flush says so. If somebody else keeps it than who would be asked to flush, it may be lost already.
    pub(super) fn inherit(&self, unflushed: Unflushed) {
        let mut queue = locked(&self.queue);
        let is_kept_elsewhere = unflushed.keeper == Some(UNTOLD)
            || unflushed.keeper.zip(queue.keeper).is_some_and(|(of, here)| of != here);
        if !is_kept_elsewhere {
            (queue.keeper_of_unflushed, queue.has_inherited) = (unflushed.keeper.or(queue.keeper), true);
        }
        queue.kept_through = self.writes_acknowledged.fetch_add(1, Ordering::SeqCst) + 1;
        if is_kept_elsewhere || unflushed.is_lost {
            // Whoever takes the place of this way, too, has to hear of it, although it may be at the same run.
            self.loss_stands.store(true, Ordering::SeqCst);
            self.note_loss();
        } else if self.has_unflushed() && !queue.over() {
            self.flush_for_ourselves(&mut queue);
        }
        drop(queue);
        self.go_on();
    }

    /// What was acknowledged may be lost, and nobody who flushes has heard of it: the next one does, and who waits to be sent.
    pub(super) fn owe_loss(&self) {
        // In the order opposite to that in which a flush looks at them, so that none passes between the two.
        self.flush_must_fail.store(true, Ordering::SeqCst);
        self.losses.fetch_add(1, Ordering::SeqCst);
    }
}
