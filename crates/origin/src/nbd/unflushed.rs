//! What was acknowledged and not flushed, and which run of the server keeps it: where that may be lost, the next flush says so.
//!
//! Pure: no clock, no sockets, no threads. [`NbdOrigin`](crate::NbdOrigin) has one for all its connections, and the simulation of the data path the same one for each way to an origin.

use crate::request::Unflushed;
use forebay_nbd::{RunId, Succeeds};

/// The keeper of what is kept by several, and of what a server of ours acknowledges that promises nothing, since its volume is in doubt: whoever takes the place of that way cannot tell whether it is
/// with them. No run has this number.
const UNKNOWN_KEEPER: RunId = RunId(0);

/// The changes that servers have acknowledged, as far as no flush has spoken of them, and what became of who keeps them.
///
/// Every method takes constant time.
#[derive(Clone, Debug, Default)]
pub struct UnflushedChanges {
    /// What is acknowledged may be lost at all: there is a flush, and the server does not keep everything anyhow.
    can_be_lost: bool,
    acknowledged: u64,
    flushed_through: u64,
    losses: u64,
    /// The next flush must say so.
    flush_must_fail: bool,
    /// It must whoever kept what was acknowledged: a sync failed that stood in a change with FUA, or what was kept by another run than the one that would be flushed.
    loss_stands: bool,
    /// Which run was there last.
    met: Option<RunId>,
    /// Who made the newest connection that could be used, if it said so.
    let_in_by: Option<RunId>,
    /// The run of a server that lets us in no more, and has what it acknowledged.
    kept_by: Option<RunId>,
    /// Who keeps what the newest connection acknowledges until it is flushed, and who keeps what there is of that.
    keeper: Option<RunId>,
    keeper_of_unflushed: Option<RunId>,
    /// That is with another one than now at most as far as so many acknowledged changes.
    kept_through: u64,
    /// Some of that was acknowledged on a way that this one took the place of.
    has_inherited: bool,
}

/// Why a flush is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// What it was to make safe may be lost since it was asked for, and a flush of what is left would say otherwise: it fails.
    TooLate,
    /// The export is there in another run by now, of which this one cannot speak: the connection is of no use any more.
    OtherRun,
}

impl UnflushedChanges {
    /// Nothing yet. `can_be_lost` says whether a server may lose what it has acknowledged; `first` is what the server said with the first connection, if there was one already: what is inherited is
    /// compared with that before a connection is used.
    pub fn new(can_be_lost: bool, first: Option<Succeeds>) -> UnflushedChanges {
        let keeper = first.and_then(|own| own.keeper);
        UnflushedChanges {
            can_be_lost,
            met: first.map(|own| own.run),
            keeper,
            keeper_of_unflushed: keeper,
            ..UnflushedChanges::default()
        }
    }

    /// How often acknowledged changes may have been lost, or a sync failed that spoke of them.
    pub fn losses(&self) -> u64 {
        self.losses
    }

    /// A flush is about to be sent to a server that promised to be this run, if it promised anything; it was asked for when there were so many losses. Returns the acknowledged changes of which its answer will
    /// speak.
    ///
    /// # Errors
    /// [`Withheld`] where it must not be sent.
    pub fn send_flush(&self, by: Option<RunId>, losses_before: u64) -> Result<u64, Withheld> {
        if losses_before != self.losses {
            return Err(Withheld::TooLate);
        }
        if differ(by, self.met) { Err(Withheld::OtherRun) } else { Ok(self.acknowledged) }
    }

    /// A server has acknowledged so many more changes without FUA, at least one; `by` is the run that it promised. To be told before anybody can see that its connection is lost.
    pub fn acknowledge(&mut self, changes: u64, by: Option<RunId>) {
        self.acknowledged += changes;
        if differ(by, self.met) {
            // It is another run that flushes are for since, and it is not known any more who keeps this.
            (self.keeper_of_unflushed, self.kept_through) = (Some(UNKNOWN_KEEPER), self.acknowledged);
            self.note_loss();
        }
    }

    /// A client asks for a flush: whether it has to fail, because of what may be lost and nobody who flushes has heard of. It is not told again.
    #[must_use]
    pub fn tell_of_loss(&mut self) -> bool {
        let is_owed = std::mem::take(&mut self.flush_must_fail);
        self.loss_stands &= !is_owed;
        is_owed
    }

    /// A flush succeeded that speaks of the first `through` changes that were acknowledged ([`UnflushedChanges::send_flush`]).
    pub fn flushed(&mut self, through: u64) {
        self.flushed_through = self.flushed_through.max(through);
        // What came later is with whoever keeps it now. A loss that nobody has heard of is with who kept it then.
        let is_of_now = through >= self.kept_through && !self.flush_must_fail;
        if is_of_now || !self.owes_something() {
            (self.keeper_of_unflushed, self.has_inherited) = (self.keeper, false);
        }
    }

    /// A sync failed that spoke of all that was acknowledged, and of which nobody who asked for a flush hears: the server may say so once only.
    pub fn sync_failed(&mut self) {
        self.loss_stands = true;
        self.owe_loss();
    }

    /// A connection was lost of which nothing more is known: what was acknowledged and not flushed may be lost with it.
    pub fn note_loss(&mut self) {
        if self.has_unflushed() {
            self.owe_loss();
        }
    }

    /// This run has ended, with all that it acknowledged on stable storage.
    pub fn ended_in_order(&mut self, run: RunId) {
        // If another one let us in since, some of what was acknowledged is its.
        if self.let_in_by == Some(run) {
            self.flushed_through = self.flushed_through.max(self.acknowledged);
        }
    }

    /// It was said that what this run acknowledged is kept by it, which lets us in no more.
    pub fn kept_out_by(&mut self, run: RunId) {
        if self.let_in_by == Some(run) {
            self.kept_by = Some(run);
        } else {
            // Another run let us in since, before this was known.
            self.note_loss();
        }
    }

    /// A server is there that promises this. What another run acknowledged may be lost, also where the connection on which it did is not known to be: a flush that this run answers does not speak of it.
    pub fn meet(&mut self, succeeds: Option<Succeeds>) {
        let Some(run) = succeeds.map(|own| own.run) else { return };
        if self.met.replace(run).is_some_and(|before| before != run) {
            self.note_loss();
        }
    }

    /// A connection is about to be used, of a server that promises this; of one that promises nothing, `said` is the run that it said else, if any. What an earlier run kept when it let us in no more may be
    /// lost with it. What this run keeps is looked after from here on by who has the connection, and notes when that is lost: so there must be one.
    ///
    /// Returns whether to flush, although no client asked for it: until that is answered nobody else could tell that something was lost, and no other flush may go out, which would succeed beside
    /// ours if ours is the one that is told.
    #[must_use]
    pub fn let_in(&mut self, succeeds: Option<Succeeds>, said: Option<RunId>) -> bool {
        // Another lane may have met another run since this one was met.
        self.meet(succeeds);
        let run = succeeds.map(|own| own.run).or(said);
        self.let_in_by = run;
        self.keeper_of_unflushed = self.keeper_of_all();
        // One that has told its run before, and promises nothing now, is in doubt.
        let unknown = self.met.map(|_| UNKNOWN_KEEPER);
        self.keeper = succeeds.map_or(unknown, |own| own.keeper);
        let mut must_flush = false;
        let is_kept_elsewhere = differ(self.keeper_of_unflushed, self.keeper);
        if !self.owes_something() {
            self.keeper_of_unflushed = self.keeper;
        } else if is_kept_elsewhere && !self.has_inherited {
            // The server knows whether that was lost, but it may be gone before anybody asks.
            self.kept_through = self.acknowledged;
            must_flush = true;
        } else if is_kept_elsewhere {
            // The server acknowledged nothing of that itself, and would not say so.
            (self.keeper_of_unflushed, self.has_inherited) = (self.keeper, false);
            self.loss_stands = true;
            self.note_loss();
        }
        if self.kept_by.take().is_some_and(|kept_by| run != Some(kept_by)) {
            self.note_loss();
        }
        must_flush
    }

    /// Who keeps what is acknowledged from now on until it is flushed, as far as is known: `own`, the run of who asks, behind a server of others, which tells nobody what it lost. We find out, and keep
    /// that until somebody flushes. `None` where it is not known.
    pub fn keeper(&self, own: RunId) -> Option<RunId> {
        if self.met.is_none() { Some(own) } else { self.keeper.filter(|keeper| *keeper != UNKNOWN_KEEPER) }
    }

    /// What whoever takes the place of this way to the data has to know of it, if anything.
    pub fn unflushed(&self) -> Option<Unflushed> {
        let unflushed = Unflushed { keeper: self.keeper_of_all(), is_lost: self.loss_stands };
        self.owes_something().then_some(unflushed)
    }

    /// This way takes the place of another one, which has this unflushed: as though it had been acknowledged here, whoever loses it from now on, the next flush says so. If somebody else keeps it than
    /// who would be asked to flush, it may be lost already. Returns whether to flush, as [`UnflushedChanges::let_in`] does.
    #[must_use]
    pub fn inherit(&mut self, unflushed: Unflushed) -> bool {
        let is_kept_elsewhere =
            unflushed.keeper == Some(UNKNOWN_KEEPER) || differ(unflushed.keeper, self.keeper);
        if !is_kept_elsewhere {
            (self.keeper_of_unflushed, self.has_inherited) = (unflushed.keeper.or(self.keeper), true);
        }
        self.acknowledged += 1;
        self.kept_through = self.acknowledged;
        if is_kept_elsewhere || unflushed.is_lost {
            // Whoever takes the place of this way, too, has to hear of it, although it may be at the same run.
            self.loss_stands = true;
            self.note_loss();
            return false;
        }
        self.has_unflushed()
    }

    /// Who keeps all that is not flushed: nobody does where the newest of it is with another one than what came before.
    fn keeper_of_all(&self) -> Option<RunId> {
        let has_newer = self.can_be_lost && self.acknowledged > self.kept_through.max(self.flushed_through);
        let is_divided = has_newer && differ(self.keeper_of_unflushed, self.keeper);
        if is_divided { Some(UNKNOWN_KEEPER) } else { self.keeper_of_unflushed }
    }

    /// What was acknowledged may be lost, and nobody who flushes has heard of it: the next one does, and who waits to be sent.
    fn owe_loss(&mut self) {
        self.flush_must_fail = true;
        self.losses += 1;
    }

    /// Whether there is anything that the server may lose.
    fn has_unflushed(&self) -> bool {
        self.can_be_lost && self.acknowledged > self.flushed_through
    }

    /// Whether a flush has to speak of something yet, or somebody has to hear of a loss.
    fn owes_something(&self) -> bool {
        self.has_unflushed() || self.flush_must_fail
    }
}

/// Whether both are known, and are not the same.
pub(super) fn differ(of: Option<RunId>, here: Option<RunId>) -> bool {
    of.zip(here).is_some_and(|(of, here)| of != here)
}

#[cfg(test)]
#[path = "unflushed_tests.rs"]
mod tests;
