//! What becomes of requests when a lane of the NBD origin is lost and connects again: to the same server, to another run of it, or to nobody for a while.

use super::conformance::SIZE;
use super::nbd::{Driven, connect, quick, until, warnings};
use super::nbd_server::{Action, Server, export};
use super::support::{Collector, Outcome, errno, read, run, submit, write};
use forebay_nbd::wire::Command;
use forebay_nbd::{ExportInfo, RunId, StorageId, Succeeds};
use forebay_origin::{
    NbdOrigin, NbdOriginOptions, Origin, OriginError, OriginOperation, OriginRequest, OriginRequestId,
    OriginState, OriginStatistics, Unflushed,
};
use forebay_units::{ByteRange, Nanos};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[test]
fn a_lost_write_is_never_sent_again_and_may_be_applied_late() {
    let server = Server::start(export(SIZE));
    let origin = connect(&server, NbdOriginOptions { connections: 1, ..quick() });
    run(&origin, write(0, b"old")).unwrap();
    server.script(|request| match request.command {
        Command::Write => Action::CutAndApplyLate,
        _ => Action::Serve,
    });
    let outcome = run(&origin, write(0, b"new"));
    assert!(matches!(outcome, Err(OriginError::OutcomeUnknown { .. })), "{outcome:?}");
    server.script(|_| Action::Serve);
    // The connection is back, and the server still shows the old content ...
    assert_eq!(run(&origin, read(0, 3)), Ok(b"old".to_vec()));
    assert_eq!(origin.statistics().in_doubt, 1);
    // ... until it applies the write that nobody waits for any more: why the origin cannot call it settled.
    assert_eq!(server.apply_late(), 1);
    assert_eq!(run(&origin, read(0, 3)), Ok(b"new".to_vec()));
    assert_eq!(server.commands(Command::Write).len(), 2);
    origin.settle();
    let statistics = origin.statistics();
    assert_eq!((statistics.in_doubt, statistics.reconnects, statistics.state), (0, 1, OriginState::Up));
}

#[test]
fn a_server_that_fences_settles_by_a_new_connection() {
    let server = Server::start(export(SIZE));
    let origin = connect(&server, NbdOriginOptions { connections: 1, fences_on_disconnect: true, ..quick() });
    server.script(|request| if request.command == Command::Write { Action::Cut } else { Action::Serve });
    server.refuse(true);
    let collector = Collector::new();
    submit(&origin, 1, write(0, b"new"), &collector);
    until("the loss", || matches!(origin.statistics().state, OriginState::Down { .. }));
    // Nothing is known, so nothing is said, while there is no new connection.
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(collector.count(), 0);
    server.refuse(false);
    assert_eq!(errno(&collector.wait(1)[&1]), Some(5));
    assert_eq!((server.connections(), origin.statistics().in_doubt), (2, 0));

    // And if there is none in time, the outcome is unknown after all, until there is one.
    let options = NbdOriginOptions {
        connections: 1,
        fences_on_disconnect: true,
        wait_for_origin: Nanos::millis(20),
        ..quick()
    };
    let origin = connect(&server, options);
    server.refuse(true);
    let outcome = run(&origin, write(0, b"new"));
    assert!(matches!(outcome, Err(OriginError::OutcomeUnknown { .. })), "{outcome:?}");
    assert_eq!((origin.statistics().in_doubt, origin.is_settled()), (1, false));
    server.refuse(false);
    until("its word", || origin.is_settled());
    assert_eq!(origin.statistics().in_doubt, 0);
}

/// A lane that is in the middle of connecting to a server that hangs does not keep what waits for it.
#[test]
fn what_a_fence_would_settle_does_not_wait_for_an_attempt_to_connect() {
    for is_abandoned in [false, true] {
        let wait_for_origin = if is_abandoned { Nanos::secs(3600) } else { Nanos::millis(20) };
        let server = Server::start(export(SIZE));
        let options = NbdOriginOptions {
            connections: 1,
            fences_on_disconnect: true,
            connect_timeout: Nanos::secs(3600),
            wait_for_origin,
            ..quick()
        };
        let origin = connect(&server, options);
        server.script(|request| if request.command == Command::Write { Action::Cut } else { Action::Serve });
        server.fall_silent();
        let collector = Collector::new();
        submit(&origin, 1, write(0, b"new"), &collector);
        until("an attempt to connect", || server.connections() == 2);
        if is_abandoned {
            origin.abandon();
        }
        let outcome = collector.wait(1).remove(&1).unwrap();
        assert!(matches!(outcome, Err(OriginError::OutcomeUnknown { .. })), "{outcome:?}");
        assert_eq!(origin.statistics().in_doubt, 1);
    }
}

#[test]
fn reads_are_sent_again_but_not_for_ever() {
    let server = Server::start(export(SIZE));
    let origin = connect(&server, quick());
    run(&origin, write(4096, b"here")).unwrap();
    let cuts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&cuts);
    server.script(move |request| {
        let cut = request.command == Command::Read && counted.fetch_add(1, Ordering::SeqCst) < 2;
        if cut { Action::Cut } else { Action::Serve }
    });
    assert_eq!(run(&origin, read(4096, 4)), Ok(b"here".to_vec()));
    assert_eq!(origin.statistics().reads_sent_again, 2);
    server.script(|request| if request.command == Command::Read { Action::Cut } else { Action::Serve });
    let outcome = run(&origin, read(4096, 4));
    assert!(matches!(outcome, Err(OriginError::Unreachable { .. })), "{outcome:?}");
}

#[test]
fn a_flush_after_a_loss_says_once_that_acknowledged_writes_may_be_gone() {
    for (keeps_acknowledged_writes, expected) in [(false, Some(5)), (true, None)] {
        let server = Server::start(export(SIZE));
        let options = NbdOriginOptions { connections: 1, keeps_acknowledged_writes, ..quick() };
        let origin = connect(&server, options);
        let lose = || {
            let before = origin.statistics().reconnects;
            server.cut_all();
            until("a new connection", || origin.statistics().reconnects > before);
        };
        run(&origin, write(0, b"x")).unwrap();
        run(&origin, OriginOperation::Flush).unwrap();
        lose();
        // Everything acknowledged was flushed before: there is nothing to report.
        assert_eq!(run(&origin, OriginOperation::Flush), Ok(Vec::new()));
        // What was forced to stable storage cannot be lost: so a file system's journal ends, and is then at rest.
        run(&origin, OriginOperation::Write { offset: 0, data: vec![1], fua: true }).unwrap();
        lose();
        assert_eq!(run(&origin, OriginOperation::Flush), Ok(Vec::new()));
        run(&origin, write(0, b"y")).unwrap();
        lose();
        assert_eq!(errno(&run(&origin, OriginOperation::Flush)), expected);
        assert_eq!(run(&origin, OriginOperation::Flush), Ok(Vec::new()));
    }
}

/// Whoever has the server fenced may ask again of another way what it has not answered, and only that.
#[test]
fn a_flush_that_is_cut_off_is_of_unknown_outcome_and_one_that_is_refused_has_failed() {
    for is_abandoned in [false, true] {
        let server = Server::start(export(SIZE));
        let origin = connect(&server, NbdOriginOptions { connections: 1, ..quick() });
        server.script(|request| if request.command == Command::Flush { Action::Fail } else { Action::Serve });
        assert_eq!(errno(&run(&origin, OriginOperation::Flush)), Some(28));
        server
            .script(|request| if request.command == Command::Flush { Action::Ignore } else { Action::Serve });
        let collector = Collector::new();
        submit(&origin, 1, OriginOperation::Flush, &collector);
        until("the flush at the server", || server.commands(Command::Flush).len() == 2);
        if is_abandoned {
            origin.abandon();
        } else {
            server.cut_all();
        }
        let outcome = collector.wait(1).remove(&1).unwrap();
        assert!(matches!(outcome, Err(OriginError::OutcomeUnknown { .. })), "{outcome:?}");
        assert_eq!(origin.statistics().in_doubt, 0, "nothing that it could change is in doubt");
    }
}

/// As nbdkit does behind a SIGTERM: it waits for its clients to leave, and accepts nobody meanwhile.
#[test]
fn a_server_that_is_shutting_down_is_left_and_whoever_comes_next_is_asked() {
    let server = Server::start(export(SIZE));
    let origin = connect(&server, NbdOriginOptions { connections: 1, ..quick() });
    run(&origin, write(0, b"old")).unwrap();
    run(&origin, OriginOperation::Flush).unwrap();
    server.refuse(true);
    server.script(|_| Action::TurnAway);
    let collector = Collector::new();
    submit(&origin, 1, write(0, b"new"), &collector);
    submit(&origin, 2, read(4096, 4), &collector);
    submit(&origin, 3, OriginOperation::Flush, &collector);
    submit(&origin, 4, OriginOperation::Trim { range: ByteRange::new(8192, 4096), fua: false }, &collector);
    until("it is left", || server.farewells() == 1);
    until("nobody is there", || server.refusals() > 0);
    assert!(matches!(origin.statistics().state, OriginState::Down { .. }));
    assert_eq!(collector.count(), 0);
    server.script(|_| Action::Serve);
    server.refuse(false);
    let outcomes = collector.wait(4);
    assert!(outcomes.values().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(run(&origin, read(0, 3)), Ok(b"new".to_vec()));
    let statistics = origin.statistics();
    assert_eq!((statistics.in_doubt, statistics.reconnects, server.farewells()), (0, 1, 1));
}

/// What is under way there is waited for, and nothing else goes there.
#[test]
fn a_server_that_is_shutting_down_is_not_left_before_it_has_answered_all() {
    let server = Server::start(export(SIZE));
    let options = NbdOriginOptions { connections: 1, request_timeout: Nanos::secs(2), ..quick() };
    let origin = connect(&server, options);
    server.script_by_connections(|connections, request| match (connections, request.command) {
        (1, Command::Read) => Action::Ignore,
        (1, Command::Write) => Action::TurnAway,
        _ => Action::Serve,
    });
    let collector = Collector::new();
    submit(&origin, 1, read(0, 4), &collector);
    until("the read arrives", || server.commands(Command::Read).len() == 1);
    // They go out together, so that the answer to the second one comes behind the one that turns away the first.
    let trim = OriginOperation::Trim { range: ByteRange::new(8192, 4096), fua: false };
    let mut together = [(2, write(0, b"new")), (3, trim)]
        .map(|(id, operation)| OriginRequest { id: OriginRequestId(id), operation })
        .into_iter();
    origin.submit_all(&mut together, &collector.sink());
    assert!(collector.wait(1).contains_key(&3));
    submit(&origin, 4, write(4096, b"more"), &collector);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!((server.connections(), server.farewells(), collector.count()), (1, 0, 1));
    // No answer in time is the end of the connection.
    let outcomes = collector.wait(4);
    assert!(outcomes.values().all(Result::is_ok), "{outcomes:?}");
    let expected: [&[u8]; 3] = [b"new", b"new", b"more"];
    let mut written = server.written();
    written[1..].sort_by_key(Vec::len);
    assert_eq!((written.as_slice(), server.connections()), (expected.map(<[u8]>::to_vec).as_slice(), 2));
}

#[test]
fn a_flush_that_a_server_turns_away_as_it_shuts_down_does_not_speak_of_what_it_acknowledged() {
    let server = Server::start(export(SIZE));
    let origin = connect(&server, NbdOriginOptions { connections: 1, ..quick() });
    run(&origin, write(0, b"x")).unwrap();
    let turned_away = Arc::new(AtomicUsize::new(0));
    server.script(move |_| match turned_away.fetch_add(1, Ordering::SeqCst) {
        0 => Action::TurnAway,
        _ => Action::Serve,
    });
    assert_eq!(errno(&run(&origin, OriginOperation::Flush)), Some(5));
    // As behind a flush that was lost with its connection.
    assert_eq!(errno(&run(&origin, OriginOperation::Flush)), Some(5));
    assert_eq!(run(&origin, OriginOperation::Flush), Ok(Vec::new()));
    assert_eq!(server.commands(Command::Flush).len(), 2);
}

#[test]
fn what_is_turned_away_for_as_long_as_requests_wait_is_told_why() {
    let server = Server::start(export(SIZE));
    server.script(|_| Action::TurnAway);
    // Long enough to hear the server once, however slow the machine is.
    let options = NbdOriginOptions { connections: 1, wait_for_origin: Nanos::secs(2), ..quick() };
    let origin = connect(&server, options);
    assert_eq!(errno(&run(&origin, write(0, b"new"))), Some(108));
    // A server of ours ends with a farewell, and says this of an export that is removed.
    let server = Server::start(succeeding(7));
    let origin = connect(&server, NbdOriginOptions { connections: 1, ..quick() });
    server.script(|_| Action::TurnAway);
    assert_eq!(errno(&run(&origin, write(0, b"new"))), Some(108));
    assert_eq!((server.connections(), server.written().len()), (1, 1));
}

const RUN: RunId = RunId(7);

/// An origin that has written at a server that says which run it is of, and has not flushed.
fn written_at_run() -> (Server, NbdOrigin) {
    let server = Server::start(ExportInfo { description: RUN.said_in("a disk"), ..export(SIZE) });
    let origin = connect(&server, NbdOriginOptions { connections: 1, ..quick() });
    run(&origin, write(0, b"x")).unwrap();
    (server, origin)
}

fn ends_at(command: Command, action: Action) -> impl Fn(&forebay_nbd::server::Request) -> Action {
    move |request| if request.command == command { action } else { Action::Serve }
}

/// A server that has all that it acknowledged ended the connection in order, and gave the export to others: it did not take what it did not answer.
#[test]
fn a_flush_that_a_server_did_not_take_before_it_gave_the_export_to_others_is_asked_of_another_way() {
    let (server, origin) = written_at_run();
    server.keep_out(Some(RUN));
    server.script(ends_at(Command::Flush, Action::Cut));
    let collector = Collector::new();
    submit(&origin, 1, OriginOperation::Flush, &collector);
    let is_kept_out = |statistics: OriginStatistics| match statistics.state {
        OriginState::Down { reason } => reason.contains("given to others"),
        _ => false,
    };
    until("the refusal", || is_kept_out(origin.statistics()));
    // One that is asked now has not been lost either.
    submit(&origin, 2, OriginOperation::Flush, &collector);
    assert_eq!((collector.count(), server.commands(Command::Flush).len()), (0, 1));
    origin.abandon();
    for (number, outcome) in collector.wait(2) {
        let Err(OriginError::Unreachable { unsent, .. }) = outcome else { panic!("{number}: {outcome:?}") };
        assert_eq!(unsent.as_deref(), Some(&OriginOperation::Flush));
    }
    assert_eq!(origin.statistics().in_doubt, 0);
}

#[test]
fn a_flush_that_a_server_did_not_take_is_sent_when_it_lets_us_in_again_and_fails_at_another_run() {
    for (description, expected) in [
        (RUN.said_in("the disk"), None),
        (RunId(8).said_in("a disk"), Some(5)),
        ("a disk".to_owned(), Some(5)),
    ] {
        let (server, origin) = written_at_run();
        server.keep_out(Some(RUN));
        server.script(ends_at(Command::Flush, Action::Cut));
        let collector = Collector::new();
        submit(&origin, 1, OriginOperation::Flush, &collector);
        until("an attempt", || server.connections() > 2);
        server.script(|_| Action::Serve);
        server.set_export(ExportInfo { description, ..export(SIZE) });
        server.keep_out(None);
        assert_eq!(errno(&collector.wait(1)[&1]), expected);
        assert_eq!(run(&origin, OriginOperation::Flush).is_ok(), expected.is_none(), "it is owed once more");
        run(&origin, OriginOperation::Flush).unwrap();
    }
}

/// What may have lost what it acknowledged, or answered what did not come, is believed to.
#[test]
fn a_flush_of_a_lost_connection_fails_unless_the_server_is_known_to_have_ended_it() {
    let other = Some(RunId(8));
    for (kept_by, action) in [(other, Action::Cut), (None, Action::Cut), (Some(RUN), Action::CutInAnswer)] {
        let (server, origin) = written_at_run();
        server.keep_out(kept_by);
        server.script(ends_at(Command::Flush, action));
        let outcome = run(&origin, OriginOperation::Flush);
        assert!(
            matches!(outcome, Err(OriginError::OutcomeUnknown { .. })),
            "{kept_by:?} {action:?}: {outcome:?}"
        );
        server.script(|_| Action::Serve);
        server.keep_out(None);
        assert_eq!(errno(&run(&origin, OriginOperation::Flush)), Some(5), "{kept_by:?} {action:?}");
    }
    // Nor one that ended within what it read for others.
    let (server, origin) = written_at_run();
    server.keep_out(Some(RUN));
    server.script(|request| match request.command {
        Command::Read => Action::CutInAnswer,
        _ => Action::Ignore,
    });
    let collector = Collector::new();
    submit(&origin, 1, OriginOperation::Flush, &collector);
    submit(&origin, 2, OriginOperation::Read { range: ByteRange::new(0, 4096) }, &collector);
    let outcome = collector.wait(1).remove(&1);
    assert!(matches!(outcome, Some(Err(OriginError::OutcomeUnknown { .. }))), "{outcome:?}");
    // Nor one that does not say which run it is of.
    let server = Server::start(export(SIZE));
    let origin = connect(&server, NbdOriginOptions { connections: 1, ..quick() });
    server.keep_out(Some(RUN));
    server.script(ends_at(Command::Flush, Action::Cut));
    let outcome = run(&origin, OriginOperation::Flush);
    assert!(matches!(outcome, Err(OriginError::OutcomeUnknown { .. })), "{outcome:?}");
}

#[test]
fn no_flush_goes_out_on_another_connection_before_it_is_known_what_was_lost_with_one() {
    let server = Server::start(ExportInfo { description: RUN.said_in("a disk"), ..export(SIZE) });
    let options = NbdOriginOptions { connections: 2, connect_timeout: Nanos::secs(3600), ..quick() };
    let origin = connect(&server, options);
    until("two connections", || server.connections() == 2);
    run(&origin, write(0, b"x")).unwrap();
    server.fall_silent();
    server.cut_first();
    until("an attempt to connect", || server.connections() == 3);
    let collector = Collector::new();
    submit(&origin, 1, OriginOperation::Flush, &collector);
    // What is no flush goes by the other one.
    assert_eq!(run(&origin, read(0, 1)), Ok(b"x".to_vec()));
    assert_eq!((collector.count(), server.commands(Command::Flush).len()), (0, 0));
    origin.abandon();
    let outcome = collector.wait(1).remove(&1).unwrap();
    assert!(matches!(outcome, Err(OriginError::Unreachable { .. })), "{outcome:?}");
}

/// An export that lets connections succeed one another, in this run.
fn succeeding(run: u64) -> ExportInfo {
    ExportInfo { succeeds: Some(Succeeds { run: RunId(run), storage: None, keeper: None }), ..export(SIZE) }
}

#[test]
fn what_was_in_flight_goes_first_on_the_connection_that_succeeds_and_nothing_is_lost() {
    let server = Server::start(succeeding(7));
    let origin = connect(&server, NbdOriginOptions { connections: 1, ..quick() });
    run(&origin, write(0, b"safe")).unwrap();
    server.script(|_| Action::Ignore);
    let collector = Collector::new();
    submit(&origin, 1, write(4096, b"sent"), &collector);
    submit(&origin, 2, OriginOperation::Flush, &collector);
    submit(&origin, 3, write(8192, b"too"), &collector);
    until("all three arrive", || server.written().len() == 3 && server.commands(Command::Flush).len() == 1);
    server.refuse(true);
    server.cut_all();
    until("the loss", || matches!(origin.statistics().state, OriginState::Down { .. }));
    submit(&origin, 4, write(12288, b"later"), &collector);
    server.script(|_| Action::Serve);
    server.refuse(false);
    let outcomes = collector.wait(4);
    assert!(outcomes.values().all(Result::is_ok), "{outcomes:?}");
    let expected: [&[u8]; 6] = [b"safe", b"sent", b"too", b"sent", b"too", b"later"];
    assert_eq!(server.written(), expected);
    run(&origin, OriginOperation::Flush).unwrap();
    let statistics = origin.statistics();
    assert_eq!((statistics.in_doubt, statistics.changes_sent_again), (0, 2), "{statistics:?}");
}

/// A write is acknowledged, and another one and a flush are in flight at `then` when its place is taken by `now`: what they come to. What was acknowledged may be lost.
fn replaced(then: ExportInfo, now: ExportInfo) -> (Server, NbdOrigin, BTreeMap<u64, Outcome>) {
    let server = Server::start(then);
    let origin = connect(&server, NbdOriginOptions { connections: 1, ..quick() });
    run(&origin, write(0, b"safe")).unwrap();
    server.script(|_| Action::Ignore);
    let collector = Collector::new();
    submit(&origin, 1, write(4096, b"sent"), &collector);
    submit(&origin, 2, OriginOperation::Flush, &collector);
    until("both arrive", || server.written().len() == 2 && server.commands(Command::Flush).len() == 1);
    server.set_export(now);
    server.script(|_| Action::Serve);
    server.cut_all();
    let outcomes = collector.wait(2);
    assert_eq!(errno(&outcomes[&2]), Some(5), "whoever has the server fenced would ask again");
    assert_eq!(errno(&run(&origin, OriginOperation::Flush)), Some(5), "what was acknowledged may be lost");
    run(&origin, OriginOperation::Flush).unwrap();
    (server, origin, outcomes)
}

#[test]
fn another_run_succeeds_nobody() {
    // It says so of another run, or says nothing of it any more.
    for next in [succeeding(8), export(SIZE)] {
        let (server, origin, outcomes) = replaced(succeeding(7), next);
        assert!(matches!(outcomes[&1], Err(OriginError::OutcomeUnknown { .. })), "{outcomes:?}");
        assert_eq!((origin.statistics().in_doubt, server.written().len()), (1, 2), "it is not sent again");
    }
}

/// One lane cannot be made again before another run is there, while the connection of the other seems to stand.
#[test]
fn a_flush_at_another_run_does_not_speak_of_what_the_one_before_acknowledged() {
    let server = Server::start(succeeding(7));
    let wait_for_origin = Nanos::millis(200);
    let origin = connect(&server, NbdOriginOptions { connections: 2, wait_for_origin, ..quick() });
    until("two connections", || server.connections() == 2);
    run(&origin, write(0, b"safe")).unwrap();
    server.refuse(true);
    server.cut_first();
    until("an attempt to connect", || server.refusals() > 0);
    // That lane counts as lost, and whoever flushes has heard of it.
    while run(&origin, OriginOperation::Flush).is_err() {}
    run(&origin, write(0, b"lost")).unwrap();
    server.set_export(succeeding(8));
    server.refuse(false);
    until("a connection to another run", || origin.statistics().reconnects > 0);
    assert_eq!(
        errno(&run(&origin, OriginOperation::Flush)),
        Some(5),
        "that run 8 has what it was given says nothing"
    );
}

/// Whoever has the storage now that nobody else can have open knows that the run is over which had it; what that one acknowledged it does not know.
#[test]
fn another_run_on_the_same_storage_takes_what_was_in_flight_and_vouches_for_nothing() {
    let on = |run: u64, storage: Option<u64>| {
        let succeeds = Some(Succeeds { run: RunId(run), storage: storage.map(StorageId), keeper: None });
        ExportInfo { succeeds, ..export(SIZE) }
    };
    for (then, now, is_taken) in
        [(Some(5), Some(5), true), (Some(5), Some(6), false), (None, None, false), (Some(5), None, false)]
    {
        let (_server, origin, outcomes) = replaced(on(7, then), on(8, now));
        assert_eq!(outcomes[&1].is_ok(), is_taken, "{then:?} {now:?} {outcomes:?}");
        assert_eq!(origin.is_settled(), is_taken);
    }
}

/// A server of others tells nobody what it lost: who asked it finds out, and is the one to keep that until somebody flushes.
#[test]
fn who_keeps_what_is_acknowledged_is_the_last_of_ours() {
    let ours = |keeper: Option<u64>| {
        let keeper = keeper.map(RunId);
        ExportInfo { succeeds: Some(Succeeds { run: RunId(7), storage: None, keeper }), ..export(SIZE) }
    };
    for (told, expected) in [(export(SIZE), Some(9)), (ours(Some(5)), Some(5)), (ours(None), None)] {
        let server = Server::start(told);
        let origin = connect(&server, quick());
        assert_eq!(origin.keeper(RunId(9)), expected.map(RunId));
    }
}

/// Of two that a server has at once it tells one of a loss, once.
#[test]
fn no_flush_goes_out_beside_one_of_ours_which_nobody_else_would_hear_of() {
    let server = Server::start(succeeding(7));
    let origin = connect(&server, NbdOriginOptions { connections: 1, ..quick() });
    let (open, gate) = channel();
    let gate = Mutex::new(Some(gate));
    server.script(move |request| match request.command {
        Command::Flush => gate.lock().unwrap().take().map_or(Action::Serve, |gate: Receiver<()>| {
            // Its sender is gone only if the test has failed.
            let _ = gate.recv();
            Action::Fail
        }),
        _ => Action::Serve,
    });
    origin.inherit(Unflushed { keeper: None, is_lost: false });
    until("a flush of ours", || origin.statistics().in_flight == 1);
    let collector = Collector::new();
    submit(&origin, 1, OriginOperation::Flush, &collector);
    open.send(()).unwrap();
    let outcome = collector.wait(1).remove(&1).unwrap();
    assert_eq!(errno(&outcome), Some(5), "what it was to make safe is lost");
    assert_eq!(errno(&run(&origin, OriginOperation::Flush)), Some(5), "it is owed once more");
    run(&origin, OriginOperation::Flush).unwrap();
    // Nor does one of ours that is well keep others waiting.
    origin.inherit(Unflushed { keeper: None, is_lost: false });
    run(&origin, OriginOperation::Flush).unwrap();
}

/// With no other request that would have the queue looked at.
#[test]
fn a_flush_that_waited_for_one_of_ours_goes_on_where_that_is_lost_with_its_lane() {
    let server = Server::start(export(SIZE));
    let origin = connect(&server, NbdOriginOptions { connections: 2, ..quick() });
    until("two connections", || server.connections() == 2);
    let (open, gate) = channel();
    let gate = Mutex::new(Some(gate));
    server.script(move |request| match request.command {
        Command::Flush => gate.lock().unwrap().take().map_or(Action::Serve, |gate: Receiver<()>| {
            let _ = gate.recv();
            Action::Cut
        }),
        _ => Action::Serve,
    });
    origin.inherit(Unflushed { keeper: None, is_lost: false });
    until("a flush of ours", || origin.statistics().in_flight == 1);
    server.refuse(true);
    let collector = Collector::new();
    submit(&origin, 1, OriginOperation::Flush, &collector);
    open.send(()).unwrap();
    assert_eq!(
        errno(&collector.wait(1).remove(&1).unwrap()),
        Some(5),
        "what it was to make safe may be lost"
    );
    assert_eq!(origin.statistics().state, OriginState::Up, "the other lane is there");
}

#[test]
fn a_flush_waits_for_a_lane_that_is_lost_for_as_long_as_requests_wait_and_fails_then() {
    let server = Server::start(succeeding(7));
    let wait_for_origin = Nanos::millis(300);
    let origin = connect(&server, NbdOriginOptions { connections: 2, wait_for_origin, ..quick() });
    until("two connections", || server.connections() == 2);
    run(&origin, write(0, b"safe")).unwrap();
    server.refuse(true);
    server.cut_first();
    until("an attempt to connect", || server.refusals() > 0);
    // By the other one much goes on; whether the server has all that it acknowledged to the first is not known.
    assert_eq!(run(&origin, read(0, 4)), Ok(b"safe".to_vec()));
    let started = Instant::now();
    assert_eq!(errno(&run(&origin, OriginOperation::Flush)), Some(5));
    assert!(started.elapsed() >= Duration::from_millis(200), "{:?}", started.elapsed());
    assert_eq!(errno(&run(&origin, OriginOperation::Flush)), Some(5), "it is owed once more");
    run(&origin, OriginOperation::Flush).unwrap();
}

#[test]
fn a_flush_that_waited_to_be_sent_while_writes_may_be_lost_fails() {
    for (keeps_acknowledged_writes, expected) in [(false, Some(5)), (true, None)] {
        let server = Server::start(export(SIZE));
        let options = NbdOriginOptions {
            connections: 1,
            connection_requests_max: 1,
            keeps_acknowledged_writes,
            ..quick()
        };
        let origin = connect(&server, options);
        run(&origin, write(0, b"x")).unwrap();
        // The read has the only place on the connection, so that the flush waits behind it.
        server
            .script(|request| if request.command == Command::Read { Action::Ignore } else { Action::Serve });
        let collector = Collector::new();
        submit(&origin, 1, read(0, 1), &collector);
        until("the read at the server", || server.commands(Command::Read).len() == 1);
        submit(&origin, 2, OriginOperation::Flush, &collector);
        server.script(|_| Action::Serve);
        server.cut_all();
        let outcomes = collector.wait(2);
        assert_eq!((&outcomes[&1], errno(&outcomes[&2])), (&Ok(b"x".to_vec()), expected));
        // As behind a flush that was at the server.
        assert_eq!(errno(&run(&origin, OriginOperation::Flush)), expected);
        assert_eq!(run(&origin, OriginOperation::Flush), Ok(Vec::new()));
    }
}

#[test]
fn a_flush_that_stands_in_for_fua_fails_if_the_write_may_be_lost_before_it() {
    let long = 32 << 20;
    let server = Server::start(ExportInfo { fua: false, ..ExportInfo::new("disk", long) });
    let origin = connect(&server, NbdOriginOptions { connections: 1, ..quick() });
    server.script(move |request| match request.command {
        Command::Read if request.range.length == long => Action::Ignore,
        _ => Action::Serve,
    });
    // Two long reads are as many as a connection takes: the flush behind the write must wait for one of them.
    let fua = OriginOperation::Write { offset: 0, data: vec![7; 8], fua: true };
    let operations = [fua, read(0, 1), read(0, long), read(0, long)];
    let collector = Collector::new();
    let mut requests =
        (0..).zip(operations).map(|(id, operation)| OriginRequest { id: OriginRequestId(id), operation });
    origin.submit_all(&mut requests, &collector.sink());
    // Replies come in order: that to the write is here.
    assert_eq!(collector.wait(1).into_keys().collect::<Vec<_>>(), [1]);
    server.script(|_| Action::Serve);
    server.cut_all();
    assert_eq!(errno(&collector.wait(4)[&0]), Some(5));
    // A write that waits while there is no connection is as safe as any.
    server.refuse(true);
    server.cut_all();
    until("the loss", || matches!(origin.statistics().state, OriginState::Down { .. }));
    submit(&origin, 4, OriginOperation::Write { offset: 0, data: vec![8; 8], fua: true }, &collector);
    server.refuse(false);
    assert_eq!(collector.wait(5)[&4], Ok(Vec::new()));
    assert_eq!((server.commands(Command::Write).len(), server.bytes(0, 1)), (2, vec![8]));
}

/// As of nbdkit's file plugin: the system tells once that pages were lost, whoever made them.
#[test]
fn a_flush_that_stood_in_for_fua_and_failed_is_told_to_the_next_that_flushes() {
    let server = Server::start(ExportInfo { fua: false, ..ExportInfo::new("disk", SIZE) });
    let origin = connect(&server, NbdOriginOptions { connections: 1, ..quick() });
    run(&origin, write(0, b"x")).unwrap();
    server.script(|request| if request.command == Command::Flush { Action::Fail } else { Action::Serve });
    let fua = OriginOperation::Write { offset: 8, data: vec![7; 8], fua: true };
    assert_eq!(errno(&run(&origin, fua.clone())), Some(28));
    server.script(|_| Action::Serve);
    // Who does the same again makes safe what he writes, and does not hear of the rest.
    assert_eq!(run(&origin, fua), Ok(Vec::new()));
    assert_eq!(errno(&run(&origin, OriginOperation::Flush)), Some(5));
    assert_eq!(run(&origin, OriginOperation::Flush), Ok(Vec::new()));
}

#[test]
fn unsent_requests_wait_as_configured_or_not_at_all() {
    let server = Server::start(export(SIZE));
    let patient = connect(&server, quick());
    let hasty = connect(&server, NbdOriginOptions { wait_for_origin: Nanos::ZERO, ..quick() });
    until("all connections", || server.connections() == 8);
    server.refuse(true);
    server.cut_all();
    for origin in [&patient, &hasty] {
        until("the loss", || matches!(origin.statistics().state, OriginState::Down { .. }));
    }
    let outcome = run(&hasty, write(0, b"x"));
    assert!(matches!(outcome, Err(OriginError::Unreachable { .. })), "{outcome:?}");
    let collector = Collector::new();
    submit(&patient, 1, write(0, b"x"), &collector);
    assert_eq!(collector.count(), 0);
    server.refuse(false);
    assert_eq!(collector.wait(1)[&1], Ok(Vec::new()));
    assert_eq!(server.bytes(0, 1), b"x");
}

#[test]
fn an_export_that_comes_back_with_another_size_is_not_used() {
    let server = Server::start(export(SIZE));
    let origin = connect(&server, quick());
    server.set_export(export(SIZE - 1));
    server.cut_all();
    until("the failure", || matches!(origin.statistics().state, OriginState::Failed { .. }));
    let OriginState::Failed { reason } = origin.statistics().state else { unreachable!() };
    assert!(reason.contains(&SIZE.to_string()), "{reason}");
    let outcome = run(&origin, read(0, 1));
    assert!(matches!(outcome, Err(OriginError::Unreachable { .. })), "{outcome:?}");
}

#[test]
fn what_fails_for_good_is_told_once() {
    let warnings = warnings();
    let server = Server::start(export(SIZE));
    let uri = server.uri().shown().to_string();
    let origin = connect(&server, quick());
    server.set_export(export(SIZE - 1));
    server.cut_all();
    until("the failure", || matches!(origin.statistics().state, OriginState::Failed { .. }));
    // Whoever finds it failed next, as another connection does, says nothing more.
    origin.abandon();
    drop(origin);
    let told: Vec<_> = warnings.of(&uri).into_iter().filter(|line| line.contains("origin failed")).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains(&format!("size is {} bytes, was {SIZE}", SIZE - 1)), "{told:?}");
}

/// Connections are cut at random while four clients read and write, and cut writes are applied at random later.
/// Each write reaches the server at most once, each request is completed once, and a read returns the last write
/// that was acknowledged or one that is in doubt.
#[test]
fn random_losses_never_double_a_write_and_never_lose_an_acknowledged_one() {
    for (fences_on_disconnect, is_driven) in [(false, false), (true, false), (false, true)] {
        let server = Server::start(export(SIZE));
        let origin = connect(&server, NbdOriginOptions { fences_on_disconnect, ..quick() });
        let origin: Box<dyn Origin> =
            if is_driven { Box::new(Driven::new(origin)) } else { Box::new(origin) };
        let origin = &*origin;
        let random = Mutex::new(Xoshiro256PlusPlus::seed_from_u64(11));
        server.script(move |_| match random.lock().unwrap().random_range(0..100) {
            0..2 => Action::Cut,
            2..4 if !fences_on_disconnect => Action::CutAndApplyLate,
            _ => Action::Serve,
        });
        let doubts = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for client in 0..4u64 {
                let (server, doubts) = (&server, &doubts);
                scope.spawn(move || {
                    let mut random = Xoshiro256PlusPlus::seed_from_u64(client);
                    // Per block what it may hold.
                    let mut may_hold = vec![vec![0u64]; 8];
                    for step in 1..=250u64 {
                        let block = random.random_range(0..8);
                        let offset = (client * 8 + block) * 4096;
                        let possible = &mut may_hold[block as usize];
                        if random.random_range(0..2) == 0 {
                            let number = client * 1_000_000 + step;
                            match run(origin, write(offset, &number.to_be_bytes())) {
                                // What was in doubt before may still come; the last acknowledged value is first.
                                Ok(_) => possible[0] = number,
                                Err(OriginError::Unreachable { .. }) => {}
                                Err(error) => {
                                    doubts.fetch_add(1, Ordering::SeqCst);
                                    let settled = matches!(error, OriginError::Failed { .. });
                                    assert_eq!(settled, fences_on_disconnect, "{error}");
                                    possible.push(number);
                                }
                            }
                        } else if let Ok(bytes) = run(origin, read(offset, 8)) {
                            let found = u64::from_be_bytes(bytes.try_into().unwrap());
                            assert!(
                                possible.contains(&found),
                                "block {block}: {found} is none of {possible:?}"
                            );
                        }
                        if random.random_range(0..20) == 0 {
                            server.apply_late();
                        }
                    }
                });
            }
        });
        let written = server.written();
        let distinct: std::collections::BTreeSet<_> = written.iter().collect();
        assert_eq!(distinct.len(), written.len(), "a write was sent twice");
        let statistics = origin.statistics();
        let doubts = doubts.into_inner() as u64;
        assert_eq!(statistics.in_doubt, if fences_on_disconnect { 0 } else { doubts });
        assert!(doubts > 0 && statistics.reconnects > 0 && statistics.reads_sent_again > 0, "{statistics:?}");
    }
}
