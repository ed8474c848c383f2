//! A client whose process was killed and is started anew, of which the server knows by its number alone: what it had sent is over, or never taken, before anything of its next run is begun.

use super::succeeding_tests::{Flusher, end, failed, scene};
use super::tests::shaken_hands_told;
use super::*;
use forebay_nbd::client;
use forebay_nbd::server::Disconnect;
use forebay_origin::OriginError;

/// Those of one block wait for each other.
fn write(block: u64) -> client::Operation {
    client::Operation::Write { offset: 4096 * block, length: 4096, fua: false }
}

/// The first connection of a lane, of an origin that a run of a client has opened.
fn at(client: u64, run: u32, instance: u32, lane: u32) -> Succession {
    Succession::of(client, run, instance, lane)
}

fn after(place: Succession) -> Succession {
    Succession { number: place.number + 1, ..place }
}

fn done() -> Result<Vec<u8>, OriginError> {
    Ok(Vec::new())
}

/// Who comes while the volume is in doubt.
fn promised_nothing(service: &mut Service, volume: SlabKey, place: Succession) -> Flusher {
    let (client, server) = shaken_hands_told(Some(place), None);
    let key = service.open(Nanos::ZERO, server, volume, Entrance::Original, Vec::new(), Vec::new());
    Flusher { client, key }
}

fn is_closed(service: &mut Service, key: SlabKey) -> bool {
    service.wishes(key).is_none_or(|wishes| wishes.close)
}

/// What comes to the origin of what a connection holds.
fn resumed(service: &mut Service, flusher: &Flusher) -> usize {
    service.resume(Nanos::ZERO, flusher.key);
    let mut submissions = Vec::new();
    service.turn(Nanos::ZERO, &mut submissions);
    submissions.len()
}

#[test]
fn every_lane_of_the_next_run_waits_for_the_requests_of_every_lane_of_the_one_before() {
    let (mut service, volume) = scene();
    let mut asked = Vec::new();
    let mut old = Vec::new();
    for lane in 0..2 {
        let mut flusher = Flusher::come(&mut service, volume, at(7, 1, 0, lane));
        asked.push(flusher.ask(&mut service, write(lane.into())).expect("it goes to the origin"));
        old.push(flusher);
    }
    // The server has seen that the first of them is gone, and not of the other.
    service.forget(old[0].key);
    let mut new: Vec<Flusher> =
        (0..3).map(|lane| Flusher::come(&mut service, volume, at(7, 2, 0, lane))).collect();
    for (block, flusher) in (5..).zip(&mut new) {
        assert!(
            flusher.ask(&mut service, write(block)).is_none(),
            "it is begun before what an earlier run had sent is over"
        );
    }
    end(&mut service, volume, &asked[0], done());
    for flusher in &new {
        assert_eq!(resumed(&mut service, flusher), 0, "one is not over");
    }
    end(&mut service, volume, &asked[1], failed());
    for flusher in &new {
        assert!(service.wishes(flusher.key).unwrap().resume);
        assert_eq!(resumed(&mut service, flusher), 1);
    }
}

#[test]
fn what_an_earlier_run_had_sent_and_nobody_had_read_is_never_taken() {
    let (mut service, volume) = scene();
    let mut old: Vec<Flusher> =
        (0..2).map(|instance| Flusher::come(&mut service, volume, at(7, 1, instance, 3))).collect();
    Flusher::come(&mut service, volume, at(7, 2, 0, 0));
    for flusher in &mut old {
        assert!(is_closed(&mut service, flusher.key));
        assert!(flusher.ask(&mut service, write(0)).is_none(), "it comes over what the next run writes");
    }
}

#[test]
fn who_comes_late_of_an_earlier_run_is_refused() {
    let (mut service, volume) = scene();
    let mut new = Flusher::come(&mut service, volume, at(7, 2, 0, 0));
    let mut late = Flusher::come(&mut service, volume, at(7, 1, 4, 1));
    assert!(is_closed(&mut service, late.key));
    assert!(late.ask(&mut service, write(0)).is_none());
    // Also while nothing is left of the next run but what it asked.
    let request = new.ask(&mut service, write(0)).expect("it is let in");
    service.forget(new.key);
    let mut late = Flusher::come(&mut service, volume, at(7, 1, 5, 0));
    assert!(late.ask(&mut service, write(0)).is_none());
    end(&mut service, volume, &request, done());
}

#[test]
fn neither_another_origin_of_the_run_nor_another_client_is_disturbed() {
    let (mut service, volume) = scene();
    let mut first = Flusher::come(&mut service, volume, at(7, 2, 0, 0));
    let request = first.ask(&mut service, write(0)).unwrap();
    let random = Succession { id: at(7, 1, 0, 0).id + 9, number: 5, lacks_flush: false };
    let others = [at(7, 2, 0, 1), at(7, 2, 1, 0), at(8, 1, 0, 0), at(9, 3, 0, 1), random];
    for (block, place) in (1..).zip(others) {
        let mut other = Flusher::come(&mut service, volume, place);
        assert!(other.ask(&mut service, write(block)).is_some(), "{place:?} waits for somebody else");
    }
    end(&mut service, volume, &request, done());
    assert_eq!(first.answer(&mut service), Some(true));
}

/// The process that was told of it is gone, and its own clients may never have heard: the run that takes its place tells them.
#[test]
fn the_next_run_hears_once_of_the_error_of_a_flush_that_an_earlier_one_may_not_have_told() {
    for is_answered in [true, false] {
        let (mut service, volume) = scene();
        let mut old = Flusher::come(&mut service, volume, at(7, 1, 0, 2));
        let request = old.ask(&mut service, client::Operation::Flush).unwrap();
        if is_answered {
            end(&mut service, volume, &request, failed());
            assert_eq!(old.answer(&mut service), Some(false));
        }
        let mut new: Vec<Flusher> =
            (0..2).map(|lane| Flusher::come(&mut service, volume, at(7, 2, 0, lane))).collect();
        if !is_answered {
            end(&mut service, volume, &request, failed());
            // Somebody else hears of it in time.
            let mut other = Flusher::come(&mut service, volume, at(8, 1, 0, 0));
            assert_eq!(other.flush(&mut service, done()), Some(false));
        }
        // A connection that breaks before anybody asks for a flush takes nothing along.
        service.forget(new[0].key);
        new[0] = Flusher::come(&mut service, volume, after(at(7, 2, 0, 0)));
        assert_eq!(new[0].flush(&mut service, done()), Some(false), "it has not heard of it");
        for flusher in &mut new {
            assert_eq!(flusher.flush(&mut service, done()), Some(true), "it has");
        }
        // The answer may have been lost, and its client says so; nobody else of it hears of it again.
        service.forget(new[0].key);
        let lacks = Succession { lacks_flush: true, number: at(7, 2, 0, 0).number + 2, ..at(7, 2, 0, 0) };
        let mut again = Flusher::come(&mut service, volume, lacks);
        assert_eq!(again.flush(&mut service, done()), Some(false));
        assert_eq!(new[1].flush(&mut service, done()), Some(true));
    }
}

/// It asks for a flush by another way then, of which this server knows only who stands there.
#[test]
fn what_an_earlier_run_was_told_is_told_to_whoever_flushes_next_where_the_next_run_is_fenced() {
    // Who was let in before may come only behind the fence.
    for comes_late in [false, true] {
        let (mut service, volume) = scene();
        let mut old = Flusher::come(&mut service, volume, at(7, 1, 0, 0));
        assert_eq!(old.flush(&mut service, failed()), Some(false));
        service.forget(old.key);
        let lanes =
            |service: &mut Service| [0, 1].map(|lane| Flusher::come(service, volume, at(7, 2, 0, lane)));
        let early = (!comes_late).then(|| lanes(&mut service));
        service.fence(volume, Lease { epoch: 1, holder: Holder::Named });
        let mut lanes = early.unwrap_or_else(|| lanes(&mut service));
        let (client, server) =
            shaken_hands_told(Some(Succession { id: 3, number: 1, lacks_flush: false }), None);
        let entrance = Entrance::Epoch(1);
        let key = service.open(Nanos::ZERO, server, volume, entrance, Vec::new(), Vec::new());
        let mut holder = Flusher { client, key };
        for lane in &mut lanes {
            assert!(lane.ask(&mut service, client::Operation::Flush).is_none(), "it is fenced");
        }
        assert_eq!(holder.flush(&mut service, done()), Some(false), "nobody has heard of it");
        assert_eq!(holder.flush(&mut service, done()), Some(true), "it has");
    }
}

/// The run that was told is there when the fence comes, and killed before it has told anybody; its next run goes by the other way at once.
#[test]
fn what_a_run_was_told_last_before_a_fence_is_told_by_the_other_way_too() {
    for (flushes_again, is_done) in [(false, Some(false)), (true, Some(true))] {
        let (mut service, volume) = scene();
        let mut old = Flusher::come(&mut service, volume, at(7, 1, 0, 0));
        assert_eq!(old.flush(&mut service, failed()), Some(false));
        // It has gone on, so that who asked it for that has heard.
        if flushes_again {
            assert_eq!(old.flush(&mut service, done()), Some(true));
        }
        service.fence(volume, Lease { epoch: 1, holder: Holder::Named });
        let (client, server) =
            shaken_hands_told(Some(Succession { id: 3, number: 1, lacks_flush: false }), None);
        let key = service.open(Nanos::ZERO, server, volume, Entrance::Epoch(1), Vec::new(), Vec::new());
        let mut holder = Flusher { client, key };
        assert_eq!(holder.flush(&mut service, done()), is_done);
        service.forget(old.key);
        assert_eq!(holder.flush(&mut service, done()), Some(true), "once is enough");
    }
}

/// An appliance, say, that is killed with the error of a flush of its own, which it has told nobody; its clients come another way.
#[test]
fn what_somebody_was_told_last_that_is_killed_and_fenced_is_told_by_the_other_way() {
    for (flushes_again, comes_again, is_done) in
        [(false, false, false), (true, false, true), (false, true, false), (true, true, true)]
    {
        let (mut service, volume) = scene();
        let place = Succession { id: 9, number: 1, lacks_flush: false };
        let mut killed = Flusher::come(&mut service, volume, place);
        assert_eq!(killed.flush(&mut service, failed()), Some(false));
        if flushes_again {
            assert_eq!(killed.flush(&mut service, done()), Some(true));
        }
        service.forget(killed.key);
        // It lives, and has heard; only connections were lost. Clients of its own may not have asked since.
        if comes_again {
            let again = Flusher::come(&mut service, volume, Succession { number: 2, ..place });
            service.forget(again.key);
            Flusher::come(&mut service, volume, Succession { number: 3, ..place });
        }
        service.fence(volume, Lease { epoch: 1, holder: Holder::Named });
        let (client, server) =
            shaken_hands_told(Some(Succession { id: 3, number: 1, lacks_flush: false }), None);
        let key = service.open(Nanos::ZERO, server, volume, Entrance::Epoch(1), Vec::new(), Vec::new());
        let mut holder = Flusher { client, key };
        assert_eq!(holder.flush(&mut service, done()), Some(is_done), "{flushes_again} {comes_again}");
        service.fence(volume, Lease { epoch: 1, holder: Holder::Named });
        assert_eq!(holder.flush(&mut service, done()), Some(true), "once is enough");
    }
}

/// Its own last flush it tells nobody; of earlier ones whoever asked it has heard.
#[test]
fn the_next_run_hears_of_the_last_flush_of_one_that_left_in_order_and_of_no_other() {
    for (flushes_again, is_done) in [(false, false), (true, true)] {
        let (mut service, volume) = scene();
        let mut old = Flusher::come(&mut service, volume, at(7, 1, 0, 0));
        assert_eq!(old.flush(&mut service, failed()), Some(false));
        if flushes_again {
            assert_eq!(old.flush(&mut service, done()), Some(true));
        }
        let mut farewell = Vec::new();
        old.client.disconnect(&mut farewell);
        service.received(Nanos::ZERO, old.key, &farewell);
        assert_eq!(
            service.connections.get(old.key).unwrap().closing,
            Some(Closing::InOrder(Disconnect::Requested))
        );
        service.forget(old.key);
        let mut new = Flusher::come(&mut service, volume, at(7, 2, 0, 0));
        assert_eq!(new.flush(&mut service, done()), Some(is_done));
        assert_eq!(new.flush(&mut service, done()), Some(true), "once is enough");
    }
}

/// Blocks of a change of which the origin left open what became of it are written by nobody, so that nothing is promised; but the other blocks are.
#[test]
fn what_an_earlier_run_had_sent_to_a_volume_in_doubt_is_never_taken_either() {
    let (mut service, volume) = scene();
    let mut other = Flusher::come(&mut service, volume, at(8, 1, 0, 0));
    let request = other.ask(&mut service, write(9)).unwrap();
    let result = Err(OriginError::OutcomeUnknown { context: String::new(), asked: None });
    end(&mut service, volume, &request, result);
    let old = at(7, 1, 0, 0);
    let [mut taken, mut unread] =
        [old, at(7, 1, 0, 1)].map(|place| promised_nothing(&mut service, volume, place));
    let request = taken.ask(&mut service, write(0)).expect("it is not in doubt");
    let mut new = promised_nothing(&mut service, volume, at(7, 2, 0, 0));
    assert!(is_closed(&mut service, taken.key) && is_closed(&mut service, unread.key));
    assert!(unread.ask(&mut service, write(1)).is_none(), "it comes over what the next run writes");
    assert!(new.ask(&mut service, write(2)).is_none(), "what an earlier run had sent is not over");
    // Also this is left open.
    let result = Err(OriginError::OutcomeUnknown { context: String::new(), asked: None });
    end(&mut service, volume, &request, result);
    assert_eq!(resumed(&mut service, &new), 1);
    assert!(!is_closed(&mut service, new.key) && !is_closed(&mut service, other.key));
}
