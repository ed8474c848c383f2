//! What must hold of changes that are not flushed, among servers that keep, crash, end, and lose their storage.

use super::*;
use proptest::prelude::*;

/// Two servers: one that keeps what it acknowledges, and one in front of a storage that does.
const SERVERS: usize = 2;
const LANES: usize = 2;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The lane's connection is lost if there is one, and the next one will be with this server.
    Meet { lane: usize, server: usize },
    /// It is, if nobody else does anything in between.
    Connect { lane: usize, server: usize },
    /// What the lane has met is used from now on.
    LetIn { lane: usize },
    /// Another way takes the place of this one, and its lane has a connection with this server.
    TakeOver { lane: usize, server: usize },
    /// A change comes by this lane, and is acknowledged.
    Change { lane: usize },
    /// A client's flush sets out on this lane.
    Flush { lane: usize },
    /// One of ours does, if one is due.
    OwnFlush { lane: usize },
    /// The server carries the lane's flush out.
    Serve { lane: usize },
    /// The answer arrives.
    Answer { lane: usize },
    /// This server ends without a word, and is there again with nothing at once.
    Crash { server: usize },
    /// What is behind the second server does.
    CrashStorage,
    /// This server ends in order, with a farewell on each lane that is connected with it.
    End { server: usize },
}

#[derive(Clone, Copy)]
struct Server {
    run: u64,
    keeper: u64,
    /// What it had acknowledged is lost, and nobody has heard of it.
    owes: bool,
}

#[derive(Clone, Copy)]
struct Flight {
    is_ours: bool,
    /// Changes acknowledged when it set out, of all ways.
    asked_at: usize,
    covers: u64,
    /// The answer, once the server has one.
    answer: Option<Result<(), ()>>,
}

#[derive(Clone, Copy, Default)]
struct Lane {
    /// With which server, and what that promised.
    with: Option<(usize, Succeeds)>,
    /// The run that had the last connection, unless it ended in order: what it acknowledged may be lost.
    undecided: Option<RunId>,
    /// What the next connection promises.
    met: Option<(usize, Succeeds)>,
    flight: Option<Flight>,
}

/// A change that was acknowledged and is not on stable storage.
struct Change {
    number: usize,
    keeper: u64,
    is_lost: bool,
}

/// Servers, connections, and what is true of the changes that were acknowledged.
struct World {
    changes: UnflushedChanges,
    lanes: [Lane; LANES],
    servers: [Server; SERVERS],
    numbers: u64,
    acknowledged: usize,
    /// What is not safe, and was not told of.
    unsafe_yet: Vec<Change>,
    own_flushes: u32,
}

impl World {
    fn new() -> World {
        let servers = [Server { run: 1, keeper: 1, owes: false }, Server { run: 2, keeper: 3, owes: false }];
        World {
            changes: UnflushedChanges::new(true, None),
            lanes: [Lane::default(); LANES],
            servers,
            numbers: 3,
            acknowledged: 0,
            unsafe_yet: Vec::new(),
            own_flushes: 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn promise(&self, server: usize) -> Succeeds {
        let Server { run, keeper, .. } = self.servers[server];
        Succeeds { run: RunId(run), storage: None, keeper: Some(RunId(keeper)) }
    }

    /// The server that a lane's connection is still with: it ends those that it told of another keeper.
    fn server(&self, lane: usize) -> Option<usize> {
        let (server, promise) = self.lanes[lane].with?;
        (promise == self.promise(server)).then_some(server)
    }

    /// A client hears of an error: it takes all that came before for lost.
    fn told(&mut self) {
        self.unsafe_yet.clear();
    }

    fn disconnect(&mut self, lane: usize, says_farewell: bool) {
        let Lane { with, flight, .. } = std::mem::take(&mut self.lanes[lane]);
        let Some((_, promise)) = with else { return };
        match flight {
            Some(flight) if !flight.is_ours => self.told(),
            _ => {}
        }
        if !says_farewell {
            self.lanes[lane].undecided = Some(promise.run);
        }
    }

    fn meet(&mut self, lane: usize, server: usize) {
        self.disconnect(lane, false);
        let promise = self.promise(server);
        self.changes.meet(Some(promise));
        self.lanes[lane].met = Some((server, promise));
        if self.lanes[lane].undecided.take().is_some_and(|before| before != promise.run) {
            self.changes.note_loss();
        }
    }

    fn let_in(&mut self, lane: usize) {
        let Some((server, promise)) = self.lanes[lane].met.take() else { return };
        self.own_flushes += u32::from(self.changes.let_in(Some(promise), None));
        self.lanes[lane].with = Some((server, promise));
    }

    fn connect(&mut self, lane: usize, server: usize) {
        self.meet(lane, server);
        self.let_in(lane);
    }

    fn lose(&mut self, kept_by: u64) -> bool {
        let lost = self.unsafe_yet.iter_mut().filter(|change| change.keeper == kept_by);
        lost.map(|change| change.is_lost = true).count() > 0
    }

    /// Whether a flush may set out on this lane.
    fn is_free(&self, lane: usize) -> bool {
        let is_undecided = self.lanes.iter().any(|lane| lane.undecided.is_some());
        self.server(lane).is_some() && self.lanes[lane].flight.is_none() && !is_undecided
    }

    fn set_out(&mut self, lane: usize, is_ours: bool) {
        let run = self.lanes[lane].with.map(|(_, promise)| promise.run);
        match self.changes.send_flush(run, self.changes.losses()) {
            Ok(covers) => {
                let asked_at = self.acknowledged;
                let flight = Flight { is_ours, asked_at, covers, answer: None };
                self.lanes[lane].flight = Some(flight);
            }
            Err(_) => self.disconnect(lane, false),
        }
    }

    /// What can happen next, the likelier the more often it is there.
    fn possible(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let has_unsafe = !self.unsafe_yet.is_empty();
        for server in 0..SERVERS {
            for lane in 0..LANES {
                steps.extend([Step::Meet { lane, server }, Step::Connect { lane, server }]);
                steps.extend(has_unsafe.then_some(Step::TakeOver { lane, server }));
            }
            steps.extend(has_unsafe.then_some(Step::Crash { server }));
            steps.extend(has_unsafe.then_some(Step::End { server }));
        }
        steps.extend(has_unsafe.then_some(Step::CrashStorage));
        let in_flight = || self.lanes.iter().filter_map(|lane| lane.flight);
        for (lane, state) in self.lanes.iter().enumerate() {
            let is_served = self.server(lane).is_some();
            if is_served && self.unsafe_yet.len() < 4 {
                steps.extend([Step::Change { lane }; 4]);
            }
            if self.is_free(lane) && self.own_flushes == 0 && in_flight().next().is_none() {
                steps.extend([Step::Flush { lane }; 4]);
            }
            if self.is_free(lane) && self.own_flushes > 0 && !in_flight().any(|flight| flight.is_ours) {
                steps.extend([Step::OwnFlush { lane }; 4]);
            }
            match state.flight.map(|flight| flight.answer) {
                Some(None) if is_served => steps.extend([Step::Serve { lane }; 4]),
                Some(Some(_)) => steps.extend([Step::Answer { lane }; 4]),
                _ => {}
            }
            steps.extend(state.met.map(|_| Step::LetIn { lane }));
        }
        steps
    }

    fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Meet { lane, server } => self.meet(lane, server),
            Step::Connect { lane, server } => self.connect(lane, server),
            Step::LetIn { lane } => self.let_in(lane),
            Step::TakeOver { lane, server } => {
                let old = std::mem::replace(&mut self.changes, UnflushedChanges::new(true, None));
                (0..LANES).for_each(|lane| self.disconnect(lane, false));
                self.lanes = [Lane::default(); LANES];
                self.own_flushes = 0;
                self.connect(lane, server);
                if let Some(unflushed) = old.unflushed() {
                    self.own_flushes += u32::from(self.changes.inherit(unflushed));
                }
            }
            Step::Change { lane } => {
                let server = self.server(lane).expect("it is connected");
                let keeper = self.servers[server].keeper;
                self.unsafe_yet.push(Change { number: self.acknowledged, keeper, is_lost: false });
                self.acknowledged += 1;
                self.changes.acknowledge(1, Some(RunId(self.servers[server].run)));
            }
            Step::Flush { .. } if self.changes.tell_of_loss() => self.told(),
            Step::Flush { lane } => self.set_out(lane, false),
            Step::OwnFlush { lane } => self.set_out(lane, true),
            Step::Serve { lane } => {
                let server = self.server(lane).expect("it is connected");
                let answer = self.serve(server);
                self.lanes[lane].flight.as_mut().expect("it is in flight").answer = Some(answer);
            }
            Step::Answer { lane } => {
                let flight = self.lanes[lane].flight.take().expect("it is in flight");
                self.answer(flight)?;
            }
            Step::Crash { server } => {
                let Server { run, keeper, .. } = self.servers[server];
                let next = self.number();
                self.servers[server].owes = false;
                self.servers[server].run = next;
                if run == keeper {
                    self.lose(keeper);
                    self.servers[server].keeper = next;
                }
            }
            Step::CrashStorage => {
                let keeper = self.servers[1].keeper;
                // It knows of what it has acknowledged itself.
                self.servers[1].owes |= self.lose(keeper);
                self.servers[1].keeper = self.number();
            }
            Step::End { server } => {
                let Server { run, keeper, owes } = self.servers[server];
                if owes {
                    // It says no farewell, since its last flush fails.
                    return Ok(());
                }
                let ended: Vec<usize> =
                    (0..LANES).filter(|lane| self.server(*lane) == Some(server)).collect();
                self.unsafe_yet.retain(|change| change.keeper != keeper);
                let next = self.number();
                self.servers[server].run = next;
                if run == keeper {
                    self.servers[server].keeper = next;
                }
                for lane in ended {
                    self.changes.ended_in_order(RunId(run));
                    self.disconnect(lane, true);
                }
            }
        }
        Ok(())
    }

    fn serve(&mut self, server: usize) -> Result<(), ()> {
        let Server { keeper, owes, .. } = &mut self.servers[server];
        if std::mem::take(owes) {
            return Err(());
        }
        self.unsafe_yet.retain(|change| change.keeper != *keeper || change.is_lost);
        Ok(())
    }

    fn answer(&mut self, flight: Flight) -> Result<(), TestCaseError> {
        self.own_flushes -= u32::from(flight.is_ours);
        if flight.answer == Some(Err(())) {
            match flight.is_ours {
                true => self.changes.sync_failed(),
                false => self.told(),
            }
            return Ok(());
        }
        self.changes.flushed(flight.covers);
        let mut spoken_of = self.unsafe_yet.iter().filter(|change| change.number < flight.asked_at);
        if !flight.is_ours
            && let Some(change) = spoken_of.next()
        {
            let what = if change.is_lost { "is lost" } else { "is not safe" };
            return Err(TestCaseError::fail(format!("a flush succeeded, and a change {what}")));
        }
        Ok(())
    }
}

proptest! {
    // A second of a processor; the rarest of the rules is broken by one of seventy thousand.
    #![proptest_config(ProptestConfig::with_cases(200_000))]

    #[test]
    fn a_flush_succeeds_only_if_all_that_was_acknowledged_is_safe_or_was_told_of(
        draws in prop::collection::vec(any::<prop::sample::Index>(), 1..60),
    ) {
        let (mut world, mut taken) = (World::new(), Vec::new());
        for draw in draws {
            let step = *draw.get(&world.possible());
            taken.push(step);
            let outcome = world.take(step);
            prop_assert!(outcome.is_ok(), "{outcome:?} behind {taken:?}");
        }
    }
}

#[test]
fn a_flush_does_not_speak_of_what_was_acknowledged_while_it_was_under_way() {
    let mut world = World::new();
    let steps = [
        Step::Connect { lane: 0, server: 1 },
        Step::Change { lane: 0 },
        Step::Flush { lane: 0 },
        Step::Serve { lane: 0 },
        Step::Change { lane: 0 },
        // The second change is lost, and who has acknowledged it is gone before anybody hears of that.
        Step::CrashStorage,
        Step::Connect { lane: 1, server: 1 },
        Step::Answer { lane: 0 },
        Step::Crash { server: 1 },
        Step::TakeOver { lane: 0, server: 1 },
    ];
    steps.into_iter().for_each(|step| world.take(step).unwrap());
    assert!(world.changes.tell_of_loss());
}

#[test]
fn behind_one_run_no_flush_fails_whatever_breaks() {
    let promise = Succeeds { run: RunId(1), storage: None, keeper: Some(RunId(9)) };
    let mut changes = UnflushedChanges::new(true, Some(promise));
    for _ in 0..3 {
        changes.acknowledge(1, Some(promise.run));
        changes.meet(Some(promise));
        assert!(!changes.let_in(Some(promise), None));
        assert!(!changes.tell_of_loss());
    }
    let mut next = UnflushedChanges::new(true, Some(promise));
    assert!(next.inherit(changes.unflushed().expect("it was not flushed")), "whoever inherits flushes");
    assert!(!next.tell_of_loss());
}

#[test]
fn what_cannot_be_lost_is_not_told_of() {
    let mut changes = UnflushedChanges::new(false, None);
    changes.acknowledge(3, None);
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
    changes.acknowledge(1, None);
    let mut next = UnflushedChanges::new(true, Some(promise));
    assert!(!next.inherit(changes.unflushed().expect("it was not flushed")), "it may be lost already");
    assert!(next.tell_of_loss());
}
