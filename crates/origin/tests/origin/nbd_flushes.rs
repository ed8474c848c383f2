//! What a flush at an NBD server may say: of what was acknowledged by which run, over lost connections, other runs, other keepers and flushes of our own.

use super::conformance::SIZE;
use super::nbd::{connect, quick, until};
use super::nbd_server::{Action, Server, export};
use super::support::{Collector, Outcome, errno, read, run, submit, write};
use forebay_nbd::wire::Command;
use forebay_nbd::{ExportInfo, RunId, StorageId, Succeeds};
use forebay_origin::{
    NbdOrigin, NbdOriginOptions, Origin, OriginError, OriginOperation, OriginRequest, OriginRequestId,
    OriginState, OriginStatistics, Unflushed,
};
use forebay_units::{ByteRange, Nanos};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

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
pub(super) fn succeeding(run: u64) -> ExportInfo {
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

/// An origin with two lanes that has written "safe", of which one has lost its connection and finds nobody.
fn with_a_lost_lane(wait_for_origin: Nanos) -> (Server, NbdOrigin) {
    let server = Server::start(succeeding(7));
    let origin = connect(&server, NbdOriginOptions { connections: 2, wait_for_origin, ..quick() });
    until("two connections", || server.connections() == 2);
    run(&origin, write(0, b"safe")).unwrap();
    server.refuse(true);
    server.cut_first();
    until("an attempt to connect", || server.refusals() > 0);
    (server, origin)
}

/// One lane cannot be made again before another run is there, while the connection of the other seems to stand.
#[test]
fn a_flush_at_another_run_does_not_speak_of_what_the_one_before_acknowledged() {
    let (server, origin) = with_a_lost_lane(Nanos::millis(200));
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

/// The server of the old run lives on, and so does a connection with it.
#[test]
fn connections_with_another_run_end_when_one_with_the_newest_is_made() {
    let server = Server::start(succeeding(7));
    let origin = connect(&server, NbdOriginOptions { connections: 2, ..quick() });
    until("two connections", || server.connections() == 2);
    server.set_export(succeeding(8));
    server.cut_first();
    until("both are with the new run", || origin.statistics().reconnects == 2);
    run(&origin, write(0, b"new")).unwrap();
    run(&origin, OriginOperation::Flush).unwrap();
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

/// It says nothing while its volume is in doubt, and is told from a server of others by what it said before. Who takes its place cannot tell whether what it acknowledged then is with it.
#[test]
fn what_a_server_of_ours_acknowledges_that_promises_nothing_may_be_lost_wherever_we_go_on() {
    let ours = |run: u64| {
        let succeeds = Some(Succeeds { run: RunId(run), storage: None, keeper: Some(RunId(5)) });
        ExportInfo { succeeds, ..export(SIZE) }
    };
    for (before, then, is_lost) in
        [(ours(7), ours(7), false), (ours(7), export(SIZE), true), (export(SIZE), export(SIZE), false)]
    {
        let server = Server::start(before);
        let origin = connect(&server, NbdOriginOptions { connections: 1, ..quick() });
        server.set_export(then);
        server.cut_all();
        until("it is there again", || origin.statistics().reconnects == 1);
        run(&origin, write(0, b"kept")).unwrap();
        let unflushed = origin.unflushed().expect("it was not flushed");
        let next = Server::start(ours(8));
        let next = connect(&next, quick());
        next.inherit(unflushed);
        assert_eq!(errno(&run(&next, OriginOperation::Flush)), is_lost.then_some(5), "{unflushed:?}");
        run(&next, OriginOperation::Flush).unwrap();
    }
}

/// Has `origin` flush for itself, which the server answers like this once somebody says so; it serves all else.
fn flush_of_ours(
    server: &Server,
    origin: &NbdOrigin,
    answer: impl Fn() -> Action + Send + Sync + 'static,
) -> Sender<()> {
    let (open, gate) = channel();
    let gate = Mutex::new(Some(gate));
    server.script(move |request| match request.command {
        Command::Flush => gate.lock().unwrap().take().map_or(Action::Serve, |gate: Receiver<()>| {
            // Its sender is gone only if the test has failed.
            let _ = gate.recv();
            answer()
        }),
        _ => Action::Serve,
    });
    origin.inherit(Unflushed { keeper: None, is_lost: false });
    until("a flush of ours", || origin.statistics().in_flight == 1);
    open
}

/// Of two that a server has at once it tells one of a loss, once.
#[test]
fn no_flush_goes_out_beside_one_of_ours_which_nobody_else_would_hear_of() {
    let server = Server::start(succeeding(7));
    let origin = connect(&server, NbdOriginOptions { connections: 1, ..quick() });
    let open = flush_of_ours(&server, &origin, || Action::Fail);
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
    let open = flush_of_ours(&server, &origin, || Action::Cut);
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
    let (_server, origin) = with_a_lost_lane(Nanos::millis(300));
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
