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

    /// Changes without FUA that were acknowledged, ever.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// How often acknowledged changes may have been lost, or a sync failed that spoke of them. A flush that was asked for when there were fewer must not be sent: what it was to make safe may be
    /// lost, and a flush of what is left would say otherwise.
    pub fn losses(&self) -> u64 {
        self.losses
    }

    /// A server has acknowledged so many more changes without FUA. To be told before anybody can see that its connection is lost.
    pub fn acknowledge(&mut self, changes: u64) {
        self.acknowledged += changes;
    }

    /// A client asks for a flush: whether it has to fail, because of what may be lost and nobody who flushes has heard of. It is not told again.
    #[must_use]
    pub fn tell_of_loss(&mut self) -> bool {
        let is_owed = std::mem::take(&mut self.flush_must_fail);
        self.loss_stands &= !is_owed;
        is_owed
    }

    /// A flush was answered that speaks of the first `through` changes that were acknowledged: as many as were when it was sent.
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
fn differ(of: Option<RunId>, here: Option<RunId>) -> bool {
    of.zip(here).is_some_and(|(of, here)| of != here)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// The first two are in front of the same server, which keeps what they acknowledge; the others keep it themselves.
    const SERVERS: [(RunId, RunId); 4] =
        [(RunId(1), RunId(9)), (RunId(2), RunId(9)), (RunId(3), RunId(3)), (RunId(4), RunId(4))];

    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// The connection is lost if there is one, and the next one is with this server.
        Connect(usize),
        /// Another way takes the place of this one, and is with this server.
        TakeOver(usize),
        Write,
        Flush,
        /// This server ends without a word, with what it keeps; it is there again with nothing at once.
        Crash(usize),
        /// The server that we are with ends in order.
        End,
    }

    fn step() -> impl Strategy<Value = Step> {
        let server = 0..SERVERS.len();
        prop_oneof![
            2 => server.clone().prop_map(Step::Connect),
            1 => server.clone().prop_map(Step::TakeOver),
            4 => Just(Step::Write),
            3 => Just(Step::Flush),
            1 => server.prop_map(Step::Crash),
            1 => Just(Step::End),
        ]
    }

    /// Servers, and what is true of the changes that were acknowledged.
    #[derive(Default)]
    struct World {
        changes: UnflushedChanges,
        /// The server that we have a connection with.
        with: Option<usize>,
        /// The run that made the last connection, unless that ended in order: it is not known then whether what was acknowledged is lost.
        undecided: Option<RunId>,
        runs: [u64; SERVERS.len()],
        /// The runs that keep changes which are not on stable storage.
        volatile: BTreeSet<u64>,
        /// Changes are lost, and nobody has heard of it.
        is_lost: bool,
        /// Something happened that a flush may have to fail for.
        may_tell: bool,
    }

    impl World {
        fn promise(&self, server: usize) -> Succeeds {
            let (run, keeper) = SERVERS[server];
            // A run that crashed is followed by another one.
            let of_now = |of: RunId| RunId(of.0 + 100 * self.runs[server]);
            let keeper = if keeper == run { of_now(keeper) } else { keeper };
            Succeeds { run: of_now(run), storage: None, keeper: Some(keeper) }
        }

        fn keeper(&self, server: usize) -> u64 {
            self.promise(server).keeper.expect("all say so").0
        }

        fn connect(&mut self, server: usize) {
            let promise = self.promise(server);
            self.may_tell |= self.undecided.is_some_and(|run| run != promise.run);
            self.changes.meet(Some(promise));
            if self.undecided.take().is_some_and(|run| run != promise.run) {
                self.changes.note_loss();
            }
            let must_flush = self.changes.let_in(Some(promise), None);
            self.with = Some(server);
            self.undecided = Some(promise.run);
            if must_flush {
                self.flush_server(server);
            }
        }

        fn flush_server(&mut self, server: usize) {
            let covers = self.changes.acknowledged();
            self.volatile.remove(&self.keeper(server));
            self.changes.flushed(covers);
        }

        fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
            match step {
                Step::Connect(server) => self.connect(server),
                Step::TakeOver(server) => {
                    let old = std::mem::replace(&mut self.changes, UnflushedChanges::new(true, None));
                    self.undecided = None;
                    self.may_tell = true;
                    self.connect(server);
                    if let Some(unflushed) = old.unflushed()
                        && self.changes.inherit(unflushed)
                    {
                        self.flush_server(server);
                    }
                }
                Step::Write => {
                    if let Some(server) = self.with {
                        self.volatile.insert(self.keeper(server));
                        self.changes.acknowledge(1);
                    }
                }
                Step::Flush => {
                    let Some(server) = self.with else { return Ok(()) };
                    if self.changes.tell_of_loss() {
                        prop_assert!(self.may_tell, "told of a loss that nobody can have had");
                        // Whoever hears of it takes all that came before for lost.
                        self.is_lost = false;
                        self.volatile.clear();
                    } else {
                        self.flush_server(server);
                        prop_assert!(!self.is_lost, "a flush succeeded behind a loss");
                        prop_assert!(self.volatile.is_empty(), "a flush left {:?}", self.volatile);
                    }
                }
                Step::Crash(server) => {
                    let (run, keeper) = SERVERS[server];
                    if run == keeper {
                        self.is_lost |= self.volatile.remove(&self.keeper(server));
                    }
                    self.may_tell = true;
                    self.runs[server] += 1;
                    if self.with == Some(server) {
                        self.with = None;
                    }
                }
                Step::End => {
                    let Some(server) = self.with.take() else { return Ok(()) };
                    self.volatile.remove(&self.keeper(server));
                    self.changes.ended_in_order(self.promise(server).run);
                    self.undecided = None;
                    self.runs[server] += 1;
                    self.may_tell = true;
                }
            }
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn a_flush_succeeds_only_if_all_that_was_acknowledged_is_safe_or_was_told_of(
            steps in prop::collection::vec(step(), 1..60),
        ) {
            let mut world = World { changes: UnflushedChanges::new(true, None), ..World::default() };
            for step in steps {
                world.take(step)?;
            }
        }
    }

    #[test]
    fn what_cannot_be_lost_is_not_told_of() {
        let mut changes = UnflushedChanges::new(false, None);
        changes.acknowledge(3);
        changes.note_loss();
        assert!(!changes.tell_of_loss());
        assert_eq!((changes.losses(), changes.unflushed()), (0, None));
    }

    #[test]
    fn behind_a_server_of_others_we_keep_what_it_acknowledges() {
        let (own, server) = (RunId(7), RunId(1));
        let mut changes = UnflushedChanges::new(true, None);
        assert!(!changes.let_in(None, None));
        assert_eq!(changes.keeper(own), Some(own));
        let promise = Succeeds { run: server, storage: None, keeper: Some(server) };
        changes.meet(Some(promise));
        assert!(!changes.let_in(Some(promise), None));
        assert_eq!(changes.keeper(own), Some(server));
        // In doubt, it promises nothing, and who keeps what it acknowledges is not known.
        assert!(!changes.let_in(None, None));
        assert_eq!(changes.keeper(own), None);
        changes.acknowledge(1);
        let mut next = UnflushedChanges::new(true, Some(promise));
        assert!(!next.inherit(changes.unflushed().expect("it was not flushed")), "it may be lost already");
        assert!(next.tell_of_loss());
    }
}
