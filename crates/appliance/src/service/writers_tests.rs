//! A flush that the origin fails is told by it once; each client whose changes it may have lost hears of it.

use super::succeeding_tests::{Flusher, end, failed, scene};
use super::*;
use crate::volume::Errno;
use forebay_nbd::client;
use forebay_origin::OriginError;

fn done() -> Result<Vec<u8>, OriginError> {
    Ok(Vec::new())
}

/// A proxy that says which run it is, on one of its lanes.
fn proxy(run: u32, lane: u32) -> Succession {
    Succession::of(7, run, 0, lane)
}

/// An appliance, which says nothing of runs.
fn appliance(number: u64) -> Succession {
    Succession { id: 99, number, lacks_flush: false }
}

/// A volume with a proxy and an appliance.
fn clients() -> (Service, SlabKey, Flusher, Flusher) {
    let (mut service, volume) = scene();
    let direct = Flusher::come(&mut service, volume, proxy(1, 0));
    let other = Flusher::come(&mut service, volume, appliance(0));
    (service, volume, direct, other)
}

fn write(service: &mut Service, volume: SlabKey, flusher: &mut Flusher, fua: bool) {
    let write = client::Operation::Write { offset: 0, length: 4096, fua };
    let request = flusher.ask(service, write).expect("it goes to the origin");
    end(service, volume, &request, done());
    assert_eq!(flusher.answer(service), Some(true));
}

/// As when an appliance ends in order just before clients are sent to it, and the storage side has lost its origin for a while: that flush was the only one to fail.
#[test]
fn a_flush_that_another_client_was_told_had_failed_fails_whoever_has_changes_of_its_own() {
    let (mut service, volume, mut direct, mut other) = clients();
    write(&mut service, volume, &mut direct, false);
    assert_eq!(other.flush(&mut service, failed()), Some(false));
    // The other lane's, which is the same client's.
    let mut lane = Flusher::come(&mut service, volume, proxy(1, 1));
    assert_eq!(lane.flush(&mut service, done()), Some(false));
    assert_eq!(direct.flush(&mut service, done()), Some(true));
    assert_eq!(other.flush(&mut service, done()), Some(true));
}

#[test]
fn whoever_has_nothing_that_may_be_lost_hears_of_no_error() {
    let (mut service, volume, mut direct, mut other) = clients();
    // On stable storage by itself, or covered by a flush, whoever asked for that.
    write(&mut service, volume, &mut direct, true);
    assert_eq!(other.flush(&mut service, failed()), Some(false));
    assert_eq!(direct.flush(&mut service, done()), Some(true));
    write(&mut service, volume, &mut direct, false);
    assert_eq!(other.flush(&mut service, done()), Some(true));
    assert_eq!(other.flush(&mut service, failed()), Some(false));
    assert_eq!(direct.flush(&mut service, done()), Some(true));
    // A flush that was asked for before a change was acknowledged does not cover it.
    let early = other.ask(&mut service, client::Operation::Flush).unwrap();
    write(&mut service, volume, &mut direct, false);
    end(&mut service, volume, &early, done());
    assert_eq!(other.answer(&mut service), Some(true));
    assert_eq!(other.flush(&mut service, failed()), Some(false));
    assert_eq!(direct.flush(&mut service, done()), Some(false));
}

/// It goes by another way from here on, so that whoever flushes next hears of it; and so does it, or its next run, if it comes back.
#[test]
fn who_is_gone_is_not_forgotten() {
    for is_gone_before in [true, false] {
        let (mut service, volume, mut direct, mut other) = clients();
        write(&mut service, volume, &mut direct, false);
        if is_gone_before {
            service.forget(direct.key);
        }
        assert_eq!(other.flush(&mut service, failed()), Some(false));
        service.forget(direct.key);
        assert_eq!(other.flush(&mut service, done()), Some(false), "{is_gone_before}");
        assert_eq!(other.flush(&mut service, done()), Some(true));
        let mut next = Flusher::come(&mut service, volume, proxy(2, 0));
        assert_eq!(next.flush(&mut service, done()), Some(false));
        assert_eq!(next.flush(&mut service, done()), Some(true));
    }
}

/// Its answer was not taken, so that nobody has heard.
#[test]
fn an_error_that_a_client_was_owed_and_that_it_did_not_take_is_told_by_the_next_flush() {
    let (mut service, volume, mut direct, mut other) = clients();
    write(&mut service, volume, &mut direct, false);
    assert_eq!(other.flush(&mut service, failed()), Some(false));
    assert!(direct.ask(&mut service, client::Operation::Flush).is_none(), "the origin is not asked");
    service.forget(direct.key);
    assert_eq!(other.flush(&mut service, done()), Some(false));
}

/// Whoever is told that all is safe would take it for that.
#[test]
fn nobody_is_bidden_farewell_while_somebody_has_not_heard() {
    for is_owed in [false, true] {
        let (mut service, volume, mut direct, mut other) = clients();
        if is_owed {
            write(&mut service, volume, &mut direct, false);
            // The word of a loss that the origin did not have itself: it flushes well ever after.
            service.volume(volume).unwrap().owe_flush_error(Errno::IO);
            assert_eq!(other.flush(&mut service, done()), Some(false));
        }
        service.leave(volume);
        let mut submissions = Vec::new();
        service.turn(Nanos::ZERO, &mut submissions);
        let (_, last) = submissions.pop().expect("the last flush");
        end(&mut service, volume, &last, done());
        service.bid_farewell(volume);
        let said = service.output(other.key).unwrap().len();
        assert_eq!(said == 0, is_owed);
    }
}

/// An appliance that ends in order flushes by itself, and has nobody to tell: its clients go by another way from here on. Whoever was killed comes back, as far as is known, until a fence keeps it out; but for who
/// could not say then whether it has heard.
#[test]
fn what_an_appliance_was_told_last_before_it_left_is_told_to_whoever_flushes_next() {
    let (named, nameless) = (Some(proxy(2, 0)), Some(appliance(0)));
    for (place, flushes_again, hears) in [
        (nameless, false, [true, true]),
        (nameless, true, [false, false]),
        (named, false, [false, true]),
        (None, false, [false, false]),
    ] {
        for (is_killed, hears) in [false, true].into_iter().zip(hears) {
            let (mut service, volume) = scene();
            let mut leaves = Flusher::come_by(&mut service, volume, place, Entrance::Epoch(1));
            let mut stays = Flusher::come(&mut service, volume, Succession::of(8, 1, 0, 0));
            write(&mut service, volume, &mut leaves, false);
            assert_eq!(leaves.flush(&mut service, failed()), Some(false));
            if flushes_again && !is_killed {
                // Perhaps on another of its connections.
                assert_eq!(stays.flush(&mut service, done()), Some(true));
            }
            if !is_killed {
                let mut farewell = Vec::new();
                leaves.client.disconnect(&mut farewell);
                service.received(Nanos::ZERO, leaves.key, &farewell);
            }
            service.forget(leaves.key);
            if is_killed {
                // Who knows of no successions comes back as anybody.
                assert_eq!(stays.flush(&mut service, done()), Some(place.is_some()), "{place:?}");
                if flushes_again {
                    // It has heard.
                    let back = Flusher::come(&mut service, volume, appliance(1));
                    service.forget(back.key);
                }
                service.fence(volume, Lease { epoch: 2, holder: Holder::Original });
            }
            let said = stays.flush(&mut service, done());
            assert_eq!(said, Some(!hears), "{place:?}, {flushes_again}, {is_killed}");
            assert_eq!(stays.flush(&mut service, done()), Some(true));
            // Nothing is kept for whoever never comes again, which would have a server that ends in order say that not all is safe.
            let keeps = !service.volumes.get(volume).unwrap().said.is_empty();
            assert_eq!(keeps, place == named, "{place:?}, {flushes_again}, {is_killed}");
        }
    }
}

/// Who has a path flush before clients leave it says farewell with that, and may be gone before it has taken leave of the answer.
#[test]
fn who_said_farewell_and_is_gone_before_the_end_does_not_come_again() {
    for is_torn in [false, true] {
        let (mut service, volume) = scene();
        let mut visitor = Flusher::come_by(&mut service, volume, Some(appliance(0)), Entrance::Original);
        assert_eq!(visitor.flush(&mut service, failed()), Some(false));
        let mut farewell = Vec::new();
        visitor.client.disconnect(&mut farewell);
        service.received(Nanos::ZERO, visitor.key, &farewell);
        if is_torn {
            service.close(visitor.key);
        }
        service.forget(visitor.key);
        assert!(service.volumes.get(volume).unwrap().said.is_empty());
        let mut stays = Flusher::come(&mut service, volume, Succession::of(8, 1, 0, 0));
        assert_eq!(stays.flush(&mut service, done()), Some(false), "{is_torn}");
        assert_eq!(stays.flush(&mut service, done()), Some(true));
    }
}

/// The original route may be its own again; what it lacks, whoever else has heard, is to be there for it then.
#[test]
fn what_was_said_is_kept_for_whoever_may_be_let_in_again() {
    for (entrance, keeps) in [(Entrance::Original, true), (Entrance::Epoch(1), false)] {
        let (mut service, volume) = scene();
        let mut lost = Flusher::come_by(&mut service, volume, Some(appliance(0)), entrance);
        assert_eq!(lost.flush(&mut service, failed()), Some(false));
        service.forget(lost.key);
        service.fence(volume, Lease { epoch: 2, holder: Holder::Named });
        assert_eq!(!service.volumes.get(volume).unwrap().said.is_empty(), keeps, "{entrance:?}");
    }
}
