//! Clients and volumes in memory: what a service answers, keeps and gives back.

use super::*;
use crate::volume::{Errno, VolumeLimits, VolumeSettings};
use forebay_nbd::{ExportInfo, RunId, Succeeds, Succession, client, server};
use forebay_origin::{OriginCompletion, OriginError, OriginRequestId, OriginTraits};
use forebay_units::{BlockSize, Bytes, Ratio};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::io::IoSlice;

pub(super) fn machine() -> VolumeMachine {
    let origin = OriginTraits {
        size_bytes: 1 << 20,
        read_only: false,
        block_size_min: 1,
        block_size_preferred: 4096,
        request_bytes_max: 1 << 20,
        can_trim: true,
        can_multi_conn: true,
        can_fast_zero: true,
    };
    let settings = VolumeSettings {
        origin,
        read_only: false,
        block_size: BlockSize::DEFAULT,
        quota: Bytes::ZERO,
        single_touch_share: Ratio::clamped(0.2),
        seed: 1,
        locality: None,
        limits: VolumeLimits::default(),
    };
    VolumeMachine::new(settings, Nanos::ZERO).expect("settings that go together")
}

/// Both ends of a connection whose handshake is over.
pub(super) fn shaken_hands() -> (client::Session, Session) {
    shaken_hands_at(None)
}

/// Likewise, of a client that has this place in a succession.
pub(super) fn shaken_hands_at(succession: Option<Succession>) -> (client::Session, Session) {
    shaken_hands_told(succession, Some(Succeeds { run: RunId(1), storage: None, keeper: None }))
}

/// Likewise, of a client that is told this, or that nothing is promised.
pub(super) fn shaken_hands_told(
    succession: Option<Succession>,
    succeeds: Option<Succeeds>,
) -> (client::Session, Session) {
    let exports = vec![ExportInfo { succeeds, ..ExportInfo::new("disk", 1 << 20) }];
    let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
    let mut server = Session::new(server::Config::default(), &mut to_client);
    let mut client = client::Session::new(client::Config { succession, ..client::Config::new("disk") });
    while !client.is_ready() {
        let parsed = client.receive(&to_client, &mut to_server).expect("a valid handshake").consumed;
        to_client.drain(..parsed);
        let parsed = server.receive(&to_server, &exports, &mut to_client).expect("likewise").consumed;
        to_server.drain(..parsed);
    }
    (client, server)
}

/// A socket that has room for `room` bytes.
fn take_some(slices: &[IoSlice<'_>], room: &mut usize, stream: &mut Vec<u8>) -> usize {
    let before = stream.len();
    for slice in slices {
        let taken = slice.len().min(*room);
        *room -= taken;
        stream.extend_from_slice(&slice[..taken]);
    }
    stream.len() - before
}

/// Hits and misses in any mix, sockets that take any part at any time: the client gets what it asked for.
#[test]
fn replies_that_are_sent_from_the_cache_are_the_same_however_the_socket_takes_them() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let byte_at = |offset: u64| (offset / 512) as u8 ^ (offset % 509) as u8;
    for round in 0..60 {
        let mut service = Service::new(ServiceLimits {
            // In some rounds so low that requests are left for later.
            output_per_connection_max: Bytes::kib(if round % 3 == 0 { 16 } else { 256 }),
            ..ServiceLimits::default()
        });
        let mut machine = machine();
        machine.set_quota(Bytes::kib(200));
        let volume = service.add_volume(machine);
        let (mut client, server) = shaken_hands();
        let connection =
            service.open(Nanos::ZERO, server, volume, Entrance::Original, Vec::new(), Vec::new());
        let (mut wanted, mut got) = (Vec::new(), Vec::new());
        let mut stream = Vec::new();
        for batch in 0..12 {
            let mut asked = Vec::new();
            for request in 0..random.random_range(1..12u64) {
                let offset = random.random_range(0..(600 << 10));
                let length = random.random_range(1..40_000);
                let read = client::Operation::Read { offset, length, dont_fragment: false };
                let cookie = batch * 100 + request;
                client.submit(cookie, read, &mut asked).expect("a valid request");
                let bytes: Vec<u8> = (offset..offset + u64::from(length)).map(byte_at).collect();
                wanted.push((cookie, offset, bytes));
            }
            let mut room = random.random_range(0..60_000);
            let mut take = |slices: &[IoSlice<'_>]| take_some(slices, &mut room, &mut stream);
            service.received_sending(Nanos::ZERO, connection, &asked, &mut take);
            loop {
                let mut submissions = Vec::new();
                service.turn(Nanos::ZERO, &mut submissions);
                let submitted = submissions.len();
                for (volume, request) in submissions {
                    let range = request.operation.range();
                    let data = (range.offset..range.end()).map(byte_at).collect();
                    let completion = OriginCompletion { id: request.id, result: Ok(data) };
                    service.complete(Nanos::ZERO, volume, completion);
                }
                let output = service.output(connection).expect("the client stays");
                let count = output.len();
                output.copy_to(&mut stream);
                service.sent(Nanos::ZERO, connection, count);
                let resumes = service.wishes(connection).expect("the client stays").resume;
                if resumes {
                    let mut room = random.random_range(0..60_000);
                    let mut take = |slices: &[IoSlice<'_>]| take_some(slices, &mut room, &mut stream);
                    service.resume_sending(Nanos::ZERO, connection, &mut take);
                } else if submitted == 0 && count == 0 {
                    break;
                }
            }
        }
        let mut unused = Vec::new();
        loop {
            let parsed = client.receive(&stream, &mut unused).expect("a valid reply");
            match parsed.event {
                client::Event::NeedMore => break,
                client::Event::Data { cookie, offset, bytes } => {
                    got.push((cookie, offset, bytes.to_vec()));
                }
                client::Event::Done { result, .. } => assert_eq!(result, Ok(())),
                event => panic!("unexpected: {event:?}"),
            }
            let consumed = parsed.consumed;
            stream.drain(..consumed);
        }
        assert_eq!((service.held_bytes(), stream.len()), (0, 0));
        got.sort();
        wanted.sort();
        assert!(got == wanted, "round {round}: {} of {} replies", got.len(), wanted.len());
    }
}

#[test]
fn whoever_announces_payloads_and_sends_none_keeps_nobody_out_for_long() {
    let limits = ServiceLimits { held_per_worker_max: Bytes::kib(1028), ..ServiceLimits::default() };
    let mut service = Service::new(limits);
    let volume = service.add_volume(machine());
    let connect = |service: &mut Service| {
        let (client, server) = shaken_hands();
        (client, service.open(Nanos::ZERO, server, volume, Entrance::Original, Vec::new(), Vec::new()))
    };
    let write = |length| client::Operation::Write { offset: 0, length, fua: false };
    let mut silent = Vec::new();
    for index in 0..4 {
        let (mut client, key) = connect(&mut service);
        let mut asked = Vec::new();
        client
            .submit(1, write(if index == 0 { 512 } else { 400 } << 10), &mut asked)
            .expect("a valid request");
        service.received(Nanos::ZERO, key, &asked);
        silent.push(key);
    }
    // One of them has its 512 KiB; for the others there is no room, and the bound holds.
    assert_eq!(service.held_bytes(), 512 << 10);
    assert_eq!(silent.iter().filter(|key| service.wishes(**key).unwrap().receive).count(), 1);
    // A client with small requests is served beside them.
    let (mut client, key) = connect(&mut service);
    let mut asked = Vec::new();
    client
        .submit(1, client::Operation::Read { offset: 0, length: 4096, dont_fragment: false }, &mut asked)
        .unwrap();
    assert_eq!(service.received(Nanos::ZERO, key, &asked), 1);
    // The one that sends nothing is told to go, and the next has its turn.
    let late = Nanos::secs(31);
    service.close_stalled(late);
    let gone: Vec<&SlabKey> = silent.iter().filter(|key| service.wishes(**key).unwrap().close).collect();
    assert_eq!(gone, [&silent[0]]);
    service.forget(silent[0]);
    assert_eq!(service.wake_at(), Some(Nanos::ZERO), "those that wait are looked at again");
    service.turn(late, &mut Vec::new());
    assert!(service.wishes(silent[1]).unwrap().resume);
    assert_eq!(service.resume(late, silent[1]), 0);
    assert_eq!(service.held_bytes(), (400 << 10) + 4096);
}

/// Replies that nobody takes leave less of the first half than a long request needs, which is more than a share of the second.
#[test]
fn who_takes_no_replies_does_not_keep_a_long_request_waiting_for_ever() {
    let held_per_worker_max = Bytes::kib(64);
    let mut service = Service::new(ServiceLimits { held_per_worker_max, ..ServiceLimits::default() });
    let volume = service.add_volume(machine());
    let ask = |service: &mut Service, kib: u32| {
        let (mut client, server) = shaken_hands();
        let key = service.open(Nanos::ZERO, server, volume, Entrance::Original, Vec::new(), Vec::new());
        let mut asked = Vec::new();
        let read = client::Operation::Read { offset: 0, length: kib << 10, dont_fragment: false };
        client.submit(1, read, &mut asked).expect("a valid request");
        service.received(Nanos::ZERO, key, &asked);
        key
    };
    let deaf = ask(&mut service, 20);
    let mut submissions = Vec::new();
    service.turn(Nanos::ZERO, &mut submissions);
    let (volume, request) = submissions.remove(0);
    service.complete(Nanos::ZERO, volume, OriginCompletion { id: request.id, result: Ok(vec![1; 20 << 10]) });
    service.turn(Nanos::ZERO, &mut submissions);
    // Nobody waits: who reads later may do so.
    let late = Nanos::secs(31);
    service.close_stalled(late);
    assert!(!service.wishes(deaf).unwrap().close);
    let long = ask(&mut service, 24);
    let wishes = service.wishes(long).unwrap();
    assert_eq!((wishes.resume, wishes.close, service.held_bytes() < 32 << 10), (false, false, true));
    service.close_stalled(Nanos::secs(29));
    assert!(!service.wishes(deaf).unwrap().close);
    service.close_stalled(late);
    assert!(service.wishes(deaf).unwrap().close);
    service.forget(deaf);
    service.turn(late, &mut submissions);
    assert!(service.wishes(long).unwrap().resume);
    assert_eq!(service.resume(late, long), 1);
}

#[test]
fn a_volume_taken_away_in_the_middle_gives_back_what_its_requests_held() {
    let mut service = Service::new(ServiceLimits::default());
    let volume = service.add_volume(machine());
    let (mut client, server) = shaken_hands();
    let connection = service.open(Nanos::ZERO, server, volume, Entrance::Original, Vec::new(), Vec::new());
    let mut asked = Vec::new();
    let read = client::Operation::Read { offset: 0, length: 4096, dont_fragment: false };
    client.submit(1, read, &mut asked).expect("a valid request");
    assert_eq!(service.received(Nanos::ZERO, connection, &asked), 1);
    let mut submissions = Vec::new();
    service.turn(Nanos::ZERO, &mut submissions);
    assert_eq!((submissions.len(), service.held_bytes()), (1, 4096));
    service.remove_volume(volume);
    assert_eq!((service.held_bytes(), service.pending.len()), (0, 0));
    // What the origin answers now is of no interest to anybody.
    let (volume, request) = submissions.remove(0);
    service.complete(Nanos::ZERO, volume, OriginCompletion { id: request.id, result: Ok(vec![0; 4096]) });
    service.turn(Nanos::ZERO, &mut submissions);
    assert_eq!(service.held_bytes(), 0);
}

/// One of many clients takes its replies; the others ask for all that they may, and never take any. However long that goes on, the one
/// is answered in the turn after that in which it asked: its request goes to the origin in the first, and its reply leaves in the second.
#[test]
fn who_takes_replies_is_answered_in_the_next_turn_whatever_others_do() {
    const GREEDY: usize = 200;
    // Of the half that is shared, 8 KiB for each.
    let held = Bytes::kib(2 * 8 * (GREEDY as u64 + 1));
    let mut service = Service::new(ServiceLimits { held_per_worker_max: held, ..ServiceLimits::default() });
    let volume = service.add_volume(machine());
    let connect = |service: &mut Service| {
        let (client, server) = shaken_hands();
        (client, service.open(Nanos::ZERO, server, volume, Entrance::Original, Vec::new(), Vec::new()))
    };
    let mut greedy: Vec<_> = (0..GREEDY).map(|_| connect(&mut service)).collect();
    let (mut good, good_key) = connect(&mut service);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
    let mut at_origin: Vec<(SlabKey, OriginRequest)> = Vec::new();
    let (mut asked_in, mut answered, mut most_held) = (None, 0, 0);
    for turn in 0..400u64 {
        let now = Nanos::millis(turn);
        if asked_in.is_none() {
            let mut asked = Vec::new();
            let read = client::Operation::Read { offset: turn * 512, length: 4096, dont_fragment: false };
            good.submit(turn, read, &mut asked).expect("a valid request");
            asked_in = Some(turn);
            // Behind all others.
            greedy_turn(&mut service, &mut greedy, turn, &mut random);
            service.received(now, good_key, &asked);
        } else {
            greedy_turn(&mut service, &mut greedy, turn, &mut random);
        }
        for (volume, request) in std::mem::take(&mut at_origin) {
            let data = vec![3; request.operation.range().length as usize];
            service.complete(now, volume, OriginCompletion { id: request.id, result: Ok(data) });
        }
        service.turn(now, &mut at_origin);
        most_held = most_held.max(service.held_bytes());
        let count = service.output(good_key).expect("it stays").len();
        if count > 0 {
            service.sent(now, good_key, count);
            let asked_in: u64 = asked_in.take().expect("it asked");
            assert_eq!(turn - asked_in, 1, "answered in turn {turn}, asked in {asked_in}");
            answered += 1;
        }
    }
    assert_eq!(answered, 200, "every second turn");
    assert!(most_held <= held.0 as usize, "{most_held} bytes are held, of {held}");
    // They did take all that they could have.
    assert!(most_held > held.0 as usize / 2 - (64 << 10), "{most_held}");
}

/// Whoever may say more asks for another read of any length.
fn greedy_turn(
    service: &mut Service,
    greedy: &mut [(client::Session, SlabKey)],
    turn: u64,
    random: &mut Xoshiro256PlusPlus,
) {
    for (client, key) in greedy {
        let wishes = service.wishes(*key).expect("it stays");
        if wishes.resume {
            service.resume(Nanos::millis(turn), *key);
        } else if wishes.receive {
            let mut asked = Vec::new();
            let length = random.random_range(512..64 << 10);
            let read = client::Operation::Read { offset: 0, length, dont_fragment: false };
            // Its session may know that too much is under way.
            if client.submit(turn, read, &mut asked).is_ok() {
                service.received(Nanos::millis(turn), *key, &asked);
            }
        }
    }
}

/// A client that flushes: its session, its connection, and the flush at the origin.
fn flush(service: &mut Service, volume: SlabKey) -> (client::Session, SlabKey, OriginRequestId) {
    let (client, connection, id) = ask_for_flush(service, volume);
    (client, connection, id.expect("a flush is at the origin"))
}

/// The same; none is at the origin where the client is told at once that an earlier one failed.
fn ask_for_flush(
    service: &mut Service,
    volume: SlabKey,
) -> (client::Session, SlabKey, Option<OriginRequestId>) {
    let (mut client, server) = shaken_hands();
    let connection = service.open(Nanos::ZERO, server, volume, Entrance::Original, Vec::new(), Vec::new());
    let mut asked = Vec::new();
    client.submit(1, client::Operation::Flush, &mut asked).expect("a valid request");
    service.received(Nanos::ZERO, connection, &asked);
    let mut submissions = Vec::new();
    service.turn(Nanos::ZERO, &mut submissions);
    assert!(submissions.len() <= 1, "one flush is at the origin");
    (client, connection, submissions.first().map(|(_, request)| request.id))
}

/// Whether a client that stays is told that its flush, which the origin does, is done.
fn flushes_well(service: &mut Service, volume: SlabKey) -> bool {
    let (mut client, connection, id) = ask_for_flush(service, volume);
    if let Some(id) = id {
        service.complete(Nanos::ZERO, volume, OriginCompletion { id, result: Ok(Vec::new()) });
        service.turn(Nanos::ZERO, &mut Vec::new());
    }
    let mut stream = Vec::new();
    service.output(connection).expect("the client stays").copy_to(&mut stream);
    let parsed = client.receive(&stream, &mut Vec::new()).expect("a valid reply");
    let client::Event::Done { result, .. } = parsed.event else { panic!("{:?}", parsed.event) };
    result.is_ok()
}

/// An origin may say it once only, and nobody heard it.
#[test]
fn a_failed_flush_of_a_client_that_left_is_told_to_the_next_client_that_flushes() {
    let mut service = Service::new(ServiceLimits::default());
    let volume = service.add_volume(machine());
    for is_forgotten in [true, false] {
        let (_, connection, id) = flush(&mut service, volume);
        if is_forgotten {
            service.forget(connection);
        } else {
            service.close(connection);
        }
        let failed = OriginError::Failed { errno: 28, context: String::new() };
        service.complete(Nanos::ZERO, volume, OriginCompletion { id, result: Err(failed) });
        service.turn(Nanos::ZERO, &mut Vec::new());
        assert!(!flushes_well(&mut service, volume));
        assert!(flushes_well(&mut service, volume));
    }
}

/// Its client did not take the answer as a whole; or its system did, and its connection ended without a word, so that it may ask again and take the answer to that. One that says farewell has it.
#[test]
fn a_failed_flush_whose_answer_was_not_taken_is_told_to_the_next_client_that_flushes() {
    let mut service = Service::new(ServiceLimits::default());
    let volume = service.add_volume(machine());
    for (not_taken, has_left, says_farewell) in
        [(0, false, false), (1, false, false), (0, true, false), (0, false, true)]
    {
        let (mut client, connection, id) = flush(&mut service, volume);
        let failed = OriginError::Failed { errno: 28, context: String::new() };
        service.complete(Nanos::ZERO, volume, OriginCompletion { id, result: Err(failed) });
        service.turn(Nanos::ZERO, &mut Vec::new());
        let bytes = service.output(connection).expect("the client stays").len();
        service.sent(Nanos::ZERO, connection, 1);
        if has_left {
            service.close(connection);
        }
        service.sent(Nanos::ZERO, connection, bytes - 1 - not_taken);
        if says_farewell {
            let mut farewell = Vec::new();
            client.disconnect(&mut farewell);
            service.received(Nanos::ZERO, connection, &farewell);
        }
        service.forget(connection);
        assert_eq!(flushes_well(&mut service, volume), says_farewell);
        assert!(flushes_well(&mut service, volume));
    }
}

/// Such clients never say whether they have heard, and none of their flushes would succeed again.
#[test]
fn clients_that_flush_once_per_connection_and_leave_without_a_word_hear_of_a_loss_so_often_and_no_more() {
    let mut service = Service::new(ServiceLimits::default());
    let volume = service.add_volume(machine());
    let lost = Err(OriginError::Failed { errno: 5, context: String::new() });
    let mut flush_and_vanish = |result: Result<Vec<u8>, OriginError>| {
        let (mut client, connection, id) = ask_for_flush(&mut service, volume);
        if let Some(id) = id {
            service.complete(Nanos::ZERO, volume, OriginCompletion { id, result });
            service.turn(Nanos::ZERO, &mut Vec::new());
        }
        let mut stream = Vec::new();
        service.output(connection).expect("the client stays").copy_to(&mut stream);
        service.sent(Nanos::ZERO, connection, stream.len());
        service.forget(connection);
        let parsed = client.receive(&stream, &mut Vec::new()).expect("a valid reply");
        let client::Event::Done { result, .. } = parsed.event else { panic!("{:?}", parsed.event) };
        result.is_ok()
    };
    // What is lost anew is new.
    for (number, is_lost) in [true, false, false, true, false, false].into_iter().enumerate() {
        let result = if is_lost { lost.clone() } else { Ok(Vec::new()) };
        assert!(!flush_and_vanish(result), "flush {number}");
    }
    assert!(flush_and_vanish(Ok(Vec::new())));
}

/// The origin was never asked, so the next flush hears from itself what there is to say.
#[test]
fn a_flush_of_a_client_that_left_and_that_was_never_sent_fails_no_other() {
    let mut service = Service::new(ServiceLimits::default());
    let volume = service.add_volume(machine());
    let unreachable = OriginError::Unreachable { context: String::new(), unsent: None };
    let (_, connection, id) = flush(&mut service, volume);
    service.forget(connection);
    service.complete(Nanos::ZERO, volume, OriginCompletion { id, result: Err(unreachable.clone()) });
    service.turn(Nanos::ZERO, &mut Vec::new());
    assert!(flushes_well(&mut service, volume));
    // An error that is owed for another reason is, also behind one that was never sent.
    let (_, connection, id) = flush(&mut service, volume);
    service.volume(volume).unwrap().owe_flush_error(Errno::IO);
    service.forget(connection);
    service.complete(Nanos::ZERO, volume, OriginCompletion { id, result: Err(unreachable) });
    service.turn(Nanos::ZERO, &mut Vec::new());
    assert!(!flushes_well(&mut service, volume));
    assert!(flushes_well(&mut service, volume));
}

#[test]
fn long_reads_of_nothing_but_zeroes_are_answered_with_a_hole() {
    let mut service = Service::new(ServiceLimits::default());
    let volume = service.add_volume(machine());
    let (mut client, server) = shaken_hands();
    let connection = service.open(Nanos::ZERO, server, volume, Entrance::Original, Vec::new(), Vec::new());
    // (length, DF, a byte in the middle, what comes)
    let cases = [
        (16384, false, 0, "hole"),
        (16384, true, 0, "data"),
        (8192, false, 0, "data"),
        (16384, false, 9, "data"),
    ];
    for (cookie, (length, dont_fragment, byte, expected)) in (0..).zip(cases) {
        let mut asked = Vec::new();
        let read = client::Operation::Read { offset: 512, length, dont_fragment };
        client.submit(cookie, read, &mut asked).expect("a valid request");
        service.received(Nanos::ZERO, connection, &asked);
        let mut submissions = Vec::new();
        service.turn(Nanos::ZERO, &mut submissions);
        for (volume, request) in submissions {
            let mut data = vec![0; request.operation.range().length as usize];
            data[length as usize / 2] = byte;
            service.complete(Nanos::ZERO, volume, OriginCompletion { id: request.id, result: Ok(data) });
        }
        service.turn(Nanos::ZERO, &mut Vec::new());
        let (mut stream, mut came) = (Vec::new(), Vec::new());
        let output = service.output(connection).expect("the client stays");
        output.copy_to(&mut stream);
        service.sent(Nanos::ZERO, connection, stream.len());
        let mut at = 0;
        loop {
            let parsed = client.receive(&stream[at..], &mut Vec::new()).expect("a valid reply");
            at += parsed.consumed;
            match parsed.event {
                client::Event::NeedMore => break,
                client::Event::Hole { range, .. } => {
                    came.push("hole");
                    assert_eq!((range.offset, range.length), (512, u64::from(length)));
                }
                client::Event::Data { .. } => came.push("data"),
                client::Event::Done { result, .. } => assert_eq!(result, Ok(())),
                event => panic!("unexpected: {event:?}"),
            }
        }
        assert_eq!(came, [expected], "{length} bytes, DF {dont_fragment}, {byte}");
    }
    assert_eq!(service.held_bytes(), 0);
}
