//! The pause in which a volume changes its origin, by hand.

use super::flash_tests::{flash_submissions, machine_with_a_block_on_flash};
use super::tests::{BLOCK, SIZE, complete, fail, machine, ranges, read, replies, submissions, write};
use super::*;
use forebay_origin::{OriginError, OriginOperation, OriginRequest, OriginTraits};
use forebay_units::{ByteRange, Bytes, Nanos};
use std::sync::mpsc::channel;

const SETTLED: Leave = Leave { settled: true, drops_cache: false };

fn is_flush(request: &forebay_origin::OriginRequest) -> bool {
    request.operation == OriginOperation::Flush
}

#[test]
fn what_is_at_the_origin_ends_then_it_is_flushed_then_the_other_gets_what_waited() {
    let mut machine = machine(10);
    read(&mut machine, 1, 0, BLOCK);
    let cached = submissions(&mut machine);
    complete(&mut machine, &cached[0], 7);
    replies(&mut machine);
    write(&mut machine, 2, 2 * BLOCK, 512, 8);
    read(&mut machine, 3, 4 * BLOCK, 512);
    let requests = submissions(&mut machine);
    assert_eq!(requests.len(), 2);
    machine.hold(Leave::default()).unwrap();
    assert_eq!(machine.hold(Leave::default()), Err(HoldError::Already));
    // What comes now waits; hits do not.
    write(&mut machine, 4, 6 * BLOCK, 512, 9);
    read(&mut machine, 5, 8 * BLOCK, 512);
    assert_eq!(read(&mut machine, 6, 0, BLOCK), Some(vec![7; 4096]));
    assert_eq!((submissions(&mut machine), machine.hold_state()), (vec![], Some(HoldState::Waiting(2))));
    complete(&mut machine, &requests[0], 0);
    assert_eq!(submissions(&mut machine), []);
    complete(&mut machine, &requests[1], 5);
    let flush = submissions(&mut machine);
    assert!(flush.len() == 1 && is_flush(&flush[0]));
    assert_eq!((submissions(&mut machine), machine.hold_state()), (vec![], Some(HoldState::Waiting(1))));
    complete(&mut machine, &flush[0], 0);
    assert_eq!((submissions(&mut machine), machine.hold_state()), (vec![], Some(HoldState::Held)));
    let traits = machine.settings_origin();
    machine.change_origin(&traits);
    assert_eq!(machine.hold_state(), None);
    assert_eq!(ranges(&submissions(&mut machine)), [(6 * BLOCK, 512), (8 * BLOCK, BLOCK)]);
    assert_eq!(read(&mut machine, 7, 0, BLOCK), Some(vec![7; 4096]), "what is cached stays");
    assert_eq!(replies(&mut machine), [(2, Ok(vec![])), (3, Ok(vec![5; 512]))]);
}

#[test]
fn what_is_cached_is_dropped_where_that_is_asked_for() {
    let mut machine = machine(10);
    read(&mut machine, 1, 0, BLOCK);
    let cached = submissions(&mut machine);
    complete(&mut machine, &cached[0], 7);
    machine.hold(Leave { drops_cache: true, ..Leave::default() }).unwrap();
    let flush = submissions(&mut machine);
    complete(&mut machine, &flush[0], 0);
    let traits = machine.settings_origin();
    machine.change_origin(&traits);
    assert_eq!(read(&mut machine, 2, 0, BLOCK), None);
}

#[test]
fn doubt_keeps_a_volume_where_it_is() {
    let mut machine = machine(10);
    write(&mut machine, 1, 2 * BLOCK, 512, 8);
    let requests = submissions(&mut machine);
    machine.hold(Leave::default()).unwrap();
    fail(&mut machine, &requests[0], OriginError::OutcomeUnknown { context: String::new(), asked: None });
    assert_eq!(submissions(&mut machine), []);
    let first = ByteRange::new(2 * BLOCK, BLOCK);
    let in_doubt = HoldError::InDoubt { first };
    assert_eq!(machine.hold_state(), Some(HoldState::Failed(in_doubt.clone())));
    machine.release();
    assert_eq!(machine.hold(Leave::default()), Err(in_doubt));
    read(&mut machine, 2, 0, 512);
    assert_eq!(submissions(&mut machine).len(), 1, "it goes on as before");
    machine.settle();
    assert_eq!(machine.hold(Leave::default()), Ok(()));
}

#[test]
fn a_flush_that_fails_is_told_to_the_next_client_that_flushes() {
    let mut machine = machine(10);
    machine.hold(Leave::default()).unwrap();
    let flush = submissions(&mut machine);
    fail(&mut machine, &flush[0], OriginError::Failed { errno: 28, context: "full".to_owned() });
    assert!(matches!(machine.hold_state(), Some(HoldState::Failed(HoldError::NotFlushed { .. }))));
    machine.release();
    expect_told_once(&mut machine);
}

/// A client asks for a flush; what is at the origin then.
fn flush(machine: &mut VolumeMachine, tag: u64) -> Vec<OriginRequest> {
    machine.request(Nanos::ZERO, RequestTag(tag), ClientOperation::Flush);
    submissions(machine)
}

/// The next client that flushes is told at once of an error that it is owed, and the one behind it has the origin flush.
fn expect_told_once(machine: &mut VolumeMachine) {
    assert_eq!(flush(machine, 1), []);
    assert_eq!(replies(machine), [(1, Err(Errno(28)))]);
    let asked = flush(machine, 2);
    complete(machine, &asked[0], 0);
    assert_eq!(replies(machine), [(2, Ok(vec![]))], "it is told once");
}

/// Who asked for it may have given up long ago.
#[test]
fn a_flush_ahead_that_fails_is_told_to_the_next_client_that_flushes() {
    let mut machine = machine(10);
    for is_heard in [true, false] {
        let (told, answer) = channel();
        let answer = is_heard.then_some(answer);
        machine.flush_ahead(told);
        let flush = submissions(&mut machine);
        assert!(flush.len() == 1 && is_flush(&flush[0]));
        fail(&mut machine, &flush[0], OriginError::Failed { errno: 28, context: "full".to_owned() });
        if let Some(answer) = answer {
            assert!(matches!(answer.recv(), Ok(Err(HoldError::NotFlushed { .. }))));
        }
        expect_told_once(&mut machine);
    }
    machine.drain();
    let (told, answer) = channel();
    machine.flush_ahead(told);
    assert_eq!(answer.recv(), Ok(Err(HoldError::Removed)));
}

#[test]
fn what_a_fenced_origin_gives_up_is_asked_of_the_next_but_for_changes_that_it_has_no_more() {
    let mut machine = machine(10);
    write(&mut machine, 1, 0, 512, 8);
    write(&mut machine, 2, 2 * BLOCK, 512, 9);
    read(&mut machine, 3, 4 * BLOCK, 512);
    machine.request(Nanos::ZERO, RequestTag(4), ClientOperation::Flush);
    let requests = submissions(&mut machine);
    machine.hold(SETTLED).unwrap();
    let context = String::new;
    fail(&mut machine, &requests[0], OriginError::OutcomeUnknown { context: context(), asked: None });
    let unsent = Some(Box::new(requests[1].operation.clone()));
    fail(&mut machine, &requests[1], OriginError::Unreachable { context: context(), unsent });
    fail(&mut machine, &requests[2], OriginError::OutcomeUnknown { context: context(), asked: None });
    fail(&mut machine, &requests[3], OriginError::OutcomeUnknown { context: context(), asked: None });
    assert_eq!((submissions(&mut machine), machine.hold_state()), (vec![], Some(HoldState::Held)));
    assert_eq!(replies(&mut machine), [(1, Err(Errno::IO))]);
    let traits = machine.settings_origin();
    machine.change_origin(&traits);
    let again = submissions(&mut machine);
    assert_eq!(again.len(), 3);
    for request in &requests[1..] {
        assert!(again.iter().any(|again| again.operation == request.operation), "{request:?}");
    }
    again.iter().for_each(|request| complete(&mut machine, request, 5));
    let mut answered = replies(&mut machine);
    answered.sort_by_key(|reply| reply.0);
    assert_eq!(answered, [(2, Ok(vec![])), (3, Ok(vec![5; 512])), (4, Ok(vec![]))]);
    // What may have been made is no longer in doubt: it is over.
    write(&mut machine, 5, 0, 512, 8);
    assert_eq!(submissions(&mut machine).len(), 1);
}

/// Others may have written since, on data that are not the same: what may have been made already must not be made again over theirs.
#[test]
fn a_change_that_may_have_been_made_is_not_made_on_other_data() {
    let mut machine = machine(10);
    write(&mut machine, 1, 0, 512, 8);
    let sent = submissions(&mut machine);
    machine.hold(Leave { settled: true, drops_cache: true }).unwrap();
    let asked = Some(Box::new(sent[0].operation.clone()));
    fail(&mut machine, &sent[0], OriginError::OutcomeUnknown { context: String::new(), asked });
    assert_eq!(replies(&mut machine), [(1, Err(Errno::IO))]);
}

/// Whoever has writes out on an appliance that dies hears of no error: they are made by the next way, once more perhaps, and nothing of that range was begun meanwhile.
#[test]
fn a_change_that_a_fenced_origin_may_have_made_is_made_by_the_next() {
    let mut machine = machine(10);
    write(&mut machine, 1, 0, 512, 8);
    let sent = submissions(&mut machine);
    // It waits for the first to end.
    write(&mut machine, 2, 0, 512, 9);
    assert_eq!(submissions(&mut machine), []);
    machine.hold(SETTLED).unwrap();
    let asked = Some(Box::new(sent[0].operation.clone()));
    fail(&mut machine, &sent[0], OriginError::OutcomeUnknown { context: String::new(), asked });
    assert_eq!((submissions(&mut machine), machine.hold_state()), (vec![], Some(HoldState::Held)));
    assert_eq!(replies(&mut machine), []);
    let traits = machine.settings_origin();
    machine.change_origin(&traits);
    let again = submissions(&mut machine);
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].operation, sent[0].operation);
    complete(&mut machine, &again[0], 0);
    assert_eq!(replies(&mut machine), [(1, Ok(vec![]))]);
    let second = submissions(&mut machine);
    assert_eq!(second.len(), 1, "nothing is in doubt");
    complete(&mut machine, &second[0], 0);
    assert_eq!(replies(&mut machine), [(2, Ok(vec![]))]);
}

/// Whoever lets others write by another way waits for it: they see what the first way made, and would be overwritten.
#[test]
fn what_may_be_made_twice_is_awaited_by_who_asks() {
    let mut machine = machine(10);
    for at in 0..3 {
        write(&mut machine, at, at * BLOCK, 512, 8);
    }
    let mut sent = submissions(&mut machine);
    let traits = machine.settings_origin();
    // A second way that may have made them changes nothing of it.
    for _ in 0..2 {
        machine.hold(SETTLED).unwrap();
        for request in &sent {
            let asked = Some(Box::new(request.operation.clone()));
            fail(&mut machine, request, OriginError::OutcomeUnknown { context: String::new(), asked });
        }
        assert_eq!(submissions(&mut machine), []);
        machine.change_origin(&traits);
        sent = submissions(&mut machine);
    }
    let (told, answer) = channel();
    assert_eq!((sent.len(), machine.when_none_is_asked_again(told)), (3, 3));
    complete(&mut machine, &sent[0], 0);
    // Whatever comes of it, it is over there.
    fail(&mut machine, &sent[1], OriginError::Failed { errno: 5, context: String::new() });
    assert!(answer.try_recv().is_err());
    complete(&mut machine, &sent[2], 0);
    assert_eq!(answer.try_recv(), Ok(()));
    let (told, answer) = channel();
    assert_eq!((machine.when_none_is_asked_again(told), answer.try_recv()), (0, Ok(())));
}

#[test]
fn what_a_way_that_was_left_was_never_sent_is_not_awaited() {
    let mut machine = machine(10);
    write(&mut machine, 1, 0, 512, 8);
    let sent = submissions(&mut machine);
    machine.hold(SETTLED).unwrap();
    let unsent = Some(Box::new(sent[0].operation.clone()));
    fail(&mut machine, &sent[0], OriginError::Unreachable { context: String::new(), unsent });
    submissions(&mut machine);
    let traits = machine.settings_origin();
    machine.change_origin(&traits);
    assert_eq!(submissions(&mut machine).len(), 1);
    let (told, answer) = channel();
    assert_eq!((machine.when_none_is_asked_again(told), answer.try_recv()), (0, Ok(())));
}

/// It was to make durable what the fence made durable: a client that heard of it would take what it wrote for lost.
#[test]
fn a_flush_of_ours_that_a_fenced_origin_gives_up_is_no_error_of_any_client() {
    let mut machine = machine(10);
    machine.hold(Leave::default()).unwrap();
    let given_up = submissions(&mut machine);
    assert!(given_up.len() == 1 && is_flush(&given_up[0]));
    // It does not answer; somebody fences it.
    machine.release();
    machine.hold(SETTLED).unwrap();
    fail(&mut machine, &given_up[0], OriginError::OutcomeUnknown { context: String::new(), asked: None });
    assert_eq!((submissions(&mut machine), machine.hold_state()), (vec![], Some(HoldState::Held)));
    let traits = machine.settings_origin();
    machine.change_origin(&traits);
    machine.request(Nanos::ZERO, RequestTag(1), ClientOperation::Flush);
    let flushes = submissions(&mut machine);
    assert!(flushes.iter().all(is_flush));
    flushes.iter().for_each(|flush| complete(&mut machine, flush, 0));
    assert_eq!(replies(&mut machine), [(1, Ok(vec![]))]);
}

/// An origin may say once only that data are lost, and a fence brings none back: also where it says so when it is left already, since what it had on it completes.
#[test]
fn a_failure_that_an_origin_told_is_told_to_a_client_also_behind_a_fence() {
    let failed = || OriginError::Failed { errno: 28, context: "full".to_owned() };
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Whose {
        Ahead,
        OfTheHold,
        Clients,
    }
    for whose in [Whose::Ahead, Whose::OfTheHold, Whose::Clients] {
        for is_late in [false, true] {
            let mut machine = machine(10);
            let (told, _answer) = channel();
            let asked = match whose {
                Whose::Ahead => {
                    machine.flush_ahead(told);
                    submissions(&mut machine)
                }
                Whose::OfTheHold => {
                    machine.hold(Leave::default()).unwrap();
                    let asked = submissions(&mut machine);
                    machine.release();
                    asked
                }
                Whose::Clients => flush(&mut machine, 1),
            };
            assert!(asked.len() == 1 && is_flush(&asked[0]));
            if !is_late {
                fail(&mut machine, &asked[0], failed());
            }
            machine.hold(SETTLED).unwrap();
            if is_late {
                fail(&mut machine, &asked[0], failed());
            }
            assert_eq!((submissions(&mut machine), machine.hold_state()), (vec![], Some(HoldState::Held)));
            let traits = machine.settings_origin();
            machine.change_origin(&traits);
            assert_eq!(submissions(&mut machine), [], "{whose:?} {is_late}");
            if whose != Whose::Clients {
                expect_told_once(&mut machine);
                continue;
            }
            assert_eq!(replies(&mut machine), [(1, Err(Errno(28)))], "{whose:?} {is_late}");
            let next = flush(&mut machine, 2);
            complete(&mut machine, &next[0], 0);
            assert_eq!(replies(&mut machine), [(2, Ok(vec![]))], "it is told once");
        }
    }
}

/// It was never sent, so the origin has said nothing: it will say to the next one whether anything is lost.
#[test]
fn a_flush_of_ours_that_never_came_to_the_origin_is_no_error_of_any_client() {
    let mut machine = machine(10);
    let unreachable = || OriginError::Unreachable { context: String::new(), unsent: None };
    let (told, answer) = channel();
    machine.flush_ahead(told);
    let flush = submissions(&mut machine);
    fail(&mut machine, &flush[0], unreachable());
    assert!(matches!(answer.recv(), Ok(Err(HoldError::NotFlushed { .. }))));
    machine.hold(Leave::default()).unwrap();
    let flush = submissions(&mut machine);
    fail(&mut machine, &flush[0], unreachable());
    assert!(matches!(machine.hold_state(), Some(HoldState::Failed(HoldError::NotFlushed { .. }))));
    machine.release();
    machine.request(Nanos::ZERO, RequestTag(1), ClientOperation::Flush);
    let flush = submissions(&mut machine);
    complete(&mut machine, &flush[0], 0);
    assert_eq!(replies(&mut machine), [(1, Ok(vec![]))]);
}

/// An origin that hangs keeps each, and whoever tries to leave it may try for hours.
#[test]
fn flushes_ahead_are_bounded() {
    let mut machine = machine(10);
    let ahead = |machine: &mut VolumeMachine| {
        let (told, answer) = channel();
        machine.flush_ahead(told);
        answer.try_recv()
    };
    let waiting = (0..1_000).take_while(|_| ahead(&mut machine).is_err()).count();
    assert!((1..100).contains(&waiting), "{waiting} flushes wait");
    assert_eq!(ahead(&mut machine), Ok(Err(HoldError::Crowded { waiting })));
    let flushes = submissions(&mut machine);
    assert_eq!(flushes.len(), waiting);
    fail(&mut machine, &flushes[0], OriginError::Failed { errno: 28, context: "full".to_owned() });
    assert!(ahead(&mut machine).is_err(), "there is room for one");
}

#[test]
fn a_volume_that_is_removed_is_not_held() {
    let mut machine = machine(10);
    read(&mut machine, 1, 0, 512);
    machine.hold(Leave::default()).unwrap();
    assert_eq!(submissions(&mut machine).len(), 1, "the flush: the read still waits");
    machine.drain();
    assert_eq!((machine.hold_state(), machine.hold(Leave::default())), (None, Err(HoldError::Removed)));
    assert_eq!(ranges(&submissions(&mut machine)), [(0, BLOCK)]);
}

#[test]
fn what_clients_were_told_of_a_volume_stays_true() {
    let machine = machine(10);
    let old = machine.settings_origin();
    let unfit = |change: &dyn Fn(&mut OriginTraits)| {
        let mut traits = old;
        change(&mut traits);
        machine.check_fits(&traits).err()
    };
    assert_eq!(unfit(&|_| ()), None);
    assert_eq!(
        unfit(&|new| (new.block_size_min, new.request_bytes_max, new.can_trim) = (1, 1 << 20, false)),
        None
    );
    let (found, expected) = (Bytes(SIZE + 1), Bytes(SIZE));
    assert_eq!(unfit(&|new| new.size_bytes += 1), Some(UnfitError::Size { found, expected }));
    assert_eq!(unfit(&|new| new.read_only = true), Some(UnfitError::ReadOnly));
    assert!(matches!(unfit(&|new| new.block_size_min = 4096), Some(UnfitError::SmallestUnit { .. })));
    assert!(matches!(unfit(&|new| new.request_bytes_max = 8192), Some(UnfitError::LongestRequest { .. })));
    assert_eq!(unfit(&|new| new.can_fast_zero = false), Some(UnfitError::FastZeroes));
}

/// Whoever does not rely on both being the same data gets nothing of the old one from what the flash device was asked for before.
#[test]
fn what_is_dropped_does_not_come_back_from_the_flash_device() {
    let mut machine = machine_with_a_block_on_flash();
    assert_eq!(read(&mut machine, 1, 0, 1), None);
    let asked = flash_submissions(&mut machine);
    assert_eq!(asked.len(), 1);
    machine.hold(Leave { drops_cache: true, ..Leave::default() }).unwrap();
    let flush = submissions(&mut machine);
    complete(&mut machine, &flush[0], 0);
    assert_eq!((submissions(&mut machine), machine.hold_state()), (vec![], Some(HoldState::Held)));
    let traits = machine.settings_origin();
    machine.change_origin(&traits);
    complete(&mut machine, &asked[0], 0xa);
    assert_eq!(replies(&mut machine), [(1, Ok(vec![0xa]))], "it was asked before");
    assert_eq!(read(&mut machine, 2, 0, 1), None);
    assert_eq!((flash_submissions(&mut machine).len(), submissions(&mut machine).len()), (0, 1));
}
