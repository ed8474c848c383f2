//! What becomes of requests when a lane of the NBD origin is lost and connects again: to the same server, to another run of it, or to nobody for a while.

use super::conformance::SIZE;
use super::nbd::{Driven, connect, quick, until, warnings};
use super::nbd_flushes::succeeding;
use super::nbd_server::{Action, Server, export};
use super::support::{Collector, errno, read, run, submit, write};
use forebay_nbd::wire::Command;
use forebay_origin::{
    NbdOriginOptions, Origin, OriginError, OriginOperation, OriginRequest, OriginRequestId, OriginState,
};
use forebay_units::{ByteRange, Nanos};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

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
