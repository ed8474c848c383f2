//! Flushes that are under way together, by hand: the origin tells one of them of a loss, and all of them hear.

use super::tests::{complete, fail, machine, machine_with, replies, submissions};
use super::*;
use forebay_origin::{OriginCompletion, OriginError, OriginRequest};
use forebay_units::Nanos;
use std::sync::mpsc::channel;

fn full() -> OriginError {
    OriginError::Failed { errno: 28, context: "full".to_owned() }
}

fn ask(machine: &mut VolumeMachine, tag: u64) -> Vec<OriginRequest> {
    machine.request(Nanos::ZERO, RequestTag(tag), ClientOperation::Flush);
    submissions(machine)
}

fn full_replies(machine: &mut VolumeMachine) -> Vec<Reply> {
    let mut replies = Vec::new();
    machine.take_replies(&mut replies);
    replies
}

/// Whichever answer comes first, and whichever was asked for first.
#[test]
fn a_flush_that_overtakes_the_failure_of_another_fails_as_well() {
    for (fails, succeeds) in [(0, 1), (1, 0)] {
        let mut machine = machine(10);
        let asked = [ask(&mut machine, 0), ask(&mut machine, 1)].concat();
        complete(&mut machine, &asked[succeeds], 0);
        assert_eq!(replies(&mut machine), [], "the other may be told of a loss in its place");
        fail(&mut machine, &asked[fails], full());
        let told = full_replies(&mut machine);
        assert_eq!(told.iter().map(|reply| reply.tag.0 as usize).collect::<Vec<_>>(), [fails, succeeds]);
        assert!(told.iter().all(|reply| reply.is_said_once && reply.result == Err(Errno(28))), "{told:?}");
        let next = ask(&mut machine, 2);
        complete(&mut machine, &next[0], 0);
        assert_eq!(replies(&mut machine), [(2, Ok(vec![]))]);
    }
}

/// From when the client asked to when it is told, which may be when another flush has ended.
#[test]
fn flushes_that_succeed_have_a_latency_and_count_for_nothing_else() {
    let mut machine = machine(10);
    let mut ask_at = |at, tag| {
        machine.request(Nanos::millis(at), RequestTag(tag), ClientOperation::Flush);
        submissions(&mut machine).remove(0)
    };
    let [first, second, third] = [(0, 0), (100, 1), (150, 2)].map(|(at, tag)| ask_at(at, tag));
    let mut end_at = |at, request: &OriginRequest, result| {
        machine.complete(Nanos::millis(at), OriginCompletion { id: request.id, result });
        machine.take_replies(&mut Vec::new());
        machine.observe(Nanos::millis(at), false)
    };
    // The first was there as well: it may be told of a loss.
    assert_eq!(end_at(200, &second, Ok(Vec::new())).latencies.flushes.count(), 0);
    assert_eq!(end_at(300, &first, Ok(Vec::new())).latencies.flushes.count(), 0, "so may the third");
    let seen = end_at(400, &third, Ok(Vec::new()));
    let flushes = &seen.latencies.flushes;
    assert_eq!((flushes.count(), flushes.sum_ns()), (3, 950_000_000), "400, 300 and 250 ms");
    assert_eq!((seen.latencies.writes.count(), seen.counters.waits), (0, 0));

    // A failure is fast or slow, and no latency.
    let failed = ask(&mut machine, 3);
    fail(&mut machine, &failed[0], full());
    assert_eq!(machine.observe(Nanos::millis(500), false).latencies.flushes.count(), 3);
}

#[test]
fn a_flush_that_waits_to_be_sent_while_another_fails_fails_as_well() {
    let limits = VolumeLimits { origin_requests_max: 1, ..VolumeLimits::default() };
    let mut machine = machine_with(10, limits);
    let asked = [ask(&mut machine, 0), ask(&mut machine, 1)].concat();
    assert_eq!(asked.len(), 1);
    fail(&mut machine, &asked[0], full());
    let asked = submissions(&mut machine);
    complete(&mut machine, &asked[0], 0);
    assert_eq!(replies(&mut machine), [(0, Err(Errno(28))), (1, Err(Errno(28)))]);
}

/// As when clients are about to be brought elsewhere: who asks for that is not told that all is safe, and no client hears twice.
#[test]
fn flushes_of_clients_and_those_ahead_of_a_change_fail_with_each_other() {
    for client_fails in [true, false] {
        let mut machine = machine(10);
        let client = ask(&mut machine, 1);
        let (told, answer) = channel();
        machine.flush_ahead(told);
        let ahead = submissions(&mut machine);
        let (fails, succeeds) = if client_fails { (&client, &ahead) } else { (&ahead, &client) };
        complete(&mut machine, &succeeds[0], 0);
        assert!(replies(&mut machine).is_empty() && answer.try_recv().is_err());
        fail(&mut machine, &fails[0], full());
        assert_eq!(replies(&mut machine), [(1, Err(Errno(28)))]);
        assert!(matches!(answer.try_recv(), Ok(Err(HoldError::NotFlushed { .. }))));
        let next = ask(&mut machine, 2);
        complete(&mut machine, &next[0], 0);
        assert_eq!(replies(&mut machine), [(2, Ok(vec![]))], "{client_fails}");
    }
}

/// Linux tells whoever syncs next, also behind a single write.
#[test]
fn a_flush_fails_with_a_forced_write_that_was_there_with_it() {
    for (error, result) in [
        (OriginError::Failed { errno: 5, context: String::new() }, Err(Errno::IO)),
        // Of that the write alone hears: there was no room for it.
        (full(), Ok(vec![])),
    ] {
        let mut machine = machine(10);
        let operation = ClientOperation::Write { offset: 0, data: vec![1; 512], fua: true };
        machine.request(Nanos::ZERO, RequestTag(1), operation);
        let forced = submissions(&mut machine);
        let flush = ask(&mut machine, 2);
        complete(&mut machine, &flush[0], 0);
        assert_eq!(replies(&mut machine), []);
        let errno = Errno(error.errno());
        fail(&mut machine, &forced[0], error);
        let mut told = replies(&mut machine);
        told.sort_by_key(|(tag, _)| *tag);
        assert_eq!(told, [(1, Err(errno)), (2, result)]);
    }
}

#[test]
fn a_flush_that_never_came_to_the_origin_is_no_other_ones() {
    let mut machine = machine(10);
    let asked = [ask(&mut machine, 0), ask(&mut machine, 1)].concat();
    complete(&mut machine, &asked[1], 0);
    fail(&mut machine, &asked[0], OriginError::Unreachable { context: String::new(), unsent: None });
    let told = replies(&mut machine);
    assert!(told[0].1.is_err() && told[1] == (1, Ok(vec![])), "{told:?}");
}
