//! Leases through real sockets: who names which epoch, who is let in, and when a fence is answered.

use super::client::Client;
use super::origins::{HeldOrigin, Loser, Trap};
use super::scene::{MIB, PATIENCE, Scene, SetOnDrop, memory, scene, until};
use forebay_appliance::{
    FenceError, Holder, Lease, LeaseError, RetargetOptions, ServiceLimits, VolumeConfig,
};
use forebay_nbd::client::Operation;
use forebay_nbd::{RunId, Uri};
use forebay_origin::{MemoryOrigin, NbdOrigin, NbdOriginOptions, Origin, OriginState};
use forebay_units::Nanos;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn leased(origin: Arc<dyn Origin>) -> Scene {
    let volume = VolumeConfig { lease: Some(Lease::FIRST), ..VolumeConfig::new("disk", origin) };
    scene(vec![volume], ServiceLimits::default())
}

fn named(epoch: u64) -> Lease {
    Lease { epoch, holder: Holder::Named }
}

fn original(epoch: u64) -> Lease {
    Lease { epoch, holder: Holder::Original }
}

const READ: Operation = Operation::Read { offset: 0, length: 512, dont_fragment: false };

#[test]
fn names_say_who_comes_and_the_lease_who_is_let_in() {
    let scene = leased(memory(MIB).1);
    let is_let_in = |name: &str| match Client::connect(&scene.path, name) {
        Ok(_) => true,
        Err(error) => {
            assert!(error.to_string().contains("lease"), "{name}: {error}");
            false
        }
    };
    let let_in = || ["disk", "disk@0", "disk@1", "disk@2"].map(is_let_in);
    assert_eq!(let_in(), [true, false, true, true]);
    scene.appliance.raise_lease("disk", named(1), PATIENCE).unwrap();
    assert_eq!(let_in(), [false, false, true, true]);
    scene.appliance.raise_lease("disk", original(2), PATIENCE).unwrap();
    assert_eq!(let_in(), [true, false, false, false]);
    let stale = scene.appliance.raise_lease("disk", named(2), PATIENCE);
    assert!(matches!(stale, Err(LeaseError::Stale { .. })), "{stale:?}");
    assert_eq!(scene.appliance.lease("disk"), Ok(Some(original(2))));
    let unknown = Client::connect(&scene.path, "other@1").map(|_| ()).unwrap_err();
    assert!(unknown.to_string().contains("there is no such export"), "{unknown}");
}

#[test]
fn a_fence_waits_for_what_is_at_the_origin_and_for_no_longer_than_it_is_told() {
    let (image, inner) = memory(MIB);
    let origin = HeldOrigin::new(inner);
    let scene = leased(origin.clone());
    let mut client = Client::connect(&scene.path, "disk").unwrap();
    client.write(0, &[7; 4096]).unwrap();
    origin.wait_for(1);
    // Who left may still be heard of.
    drop(client);
    let fenced = scene.appliance.raise_lease("disk", named(1), Duration::from_millis(20));
    let source = FenceError::NotDrained { in_flight: 1 };
    assert_eq!(fenced, Err(LeaseError::Fence { name: "disk".to_owned(), source }));
    std::thread::scope(|scope| {
        let again = scope.spawn(|| {
            scene.appliance.raise_lease("disk", named(1), PATIENCE).unwrap();
            let mut found = [0; 4096];
            image.read_at(0, &mut found);
            assert_eq!(found, [7; 4096], "the write was at the origin when the fence was answered");
        });
        origin.open();
        again.join().unwrap();
    });
}

/// Whoever runs the storage may need hours to say that a lost write is lost; that keeps nobody from another way to it.
#[test]
fn a_write_of_unknown_outcome_hinders_no_fence_and_stays_in_doubt_behind_it() {
    let (image, inner) = memory(MIB);
    let volume = VolumeConfig {
        lease: Some(Lease::FIRST),
        quota: forebay_units::Bytes(MIB),
        ..VolumeConfig::new("disk", Arc::new(Loser(inner)))
    };
    let scene = scene(vec![volume], ServiceLimits::default());
    let mut client = Client::connect(&scene.path, "disk").unwrap();
    let answer = |client: &mut Client| client.finish_one().unwrap().1;
    client.write(0, &[7; 4096]).unwrap();
    assert!(answer(&mut client).is_err());
    scene.appliance.raise_lease("disk", named(1), PATIENCE).unwrap();
    let mut next = Client::connect(&scene.path, "disk@1").unwrap();
    next.write(4096, &[8; 4096]).unwrap();
    assert!(answer(&mut next).is_ok());
    // The lost write is applied after all: nobody has written over it, nor is anything of before cached.
    let read = |client: &mut Client| {
        client.read(0, 4096).unwrap();
        answer(client).unwrap()
    };
    next.write(512, &[9; 512]).unwrap();
    assert!(answer(&mut next).is_err());
    assert_eq!(read(&mut next), vec![0; 4096]);
    image.write_at(0, &[7; 4096]);
    assert_eq!(read(&mut next), vec![7; 4096]);
    assert_eq!(scene.appliance.observe("disk", false).unwrap().observation.in_doubt.len(), 1);
}

#[test]
fn a_fence_that_another_overtakes_says_so() {
    let origin = HeldOrigin::new(memory(MIB).1);
    let scene = leased(origin.clone());
    let mut client = Client::connect(&scene.path, "disk").unwrap();
    client.write(0, &[7; 4096]).unwrap();
    origin.wait_for(1);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| scene.appliance.raise_lease("disk", named(1), PATIENCE));
        while scene.appliance.lease("disk") != Ok(Some(named(1))) {
            std::thread::yield_now();
        }
        // The write, still at the origin, is of one who is let in again: not to be heard of behind the first fence would be a lie.
        scene.appliance.raise_lease("disk", original(2), PATIENCE).unwrap();
        let source = FenceError::Overtaken { now: original(2) };
        assert_eq!(first.join().unwrap(), Err(LeaseError::Fence { name: "disk".to_owned(), source }));
    });
    origin.open();
}

/// Writers of every epoch write their epoch and a count over and over while the lease rises: behind the answer of a fence, what an
/// older epoch wrote stays as it was until a newer one writes there.
#[test]
fn no_writer_of_an_older_epoch_writes_behind_a_fence() {
    const BLOCKS: u64 = 16;
    let (image, origin) = memory(MIB);
    let scene = leased(origin);
    let (over, newest) = (AtomicBool::new(false), AtomicU64::new(0));
    let held = || {
        let mut words = [[0; 16]; BLOCKS as usize];
        words.iter_mut().zip(0..).for_each(|(words, block)| image.read_at(block * 4096, words));
        words
    };
    let write = |epoch: u64| {
        let Ok(mut client) = Client::connect(&scene.path, &format!("disk@{epoch}")) else {
            // On a busy machine the next epoch comes before this writer.
            assert!(newest.load(Ordering::SeqCst) > epoch, "epoch {epoch} is not let in");
            return 0;
        };
        let (mut count, mut acknowledged) = (0u64, 0u64);
        while !over.load(Ordering::SeqCst) {
            // Many at once, so that some are under way whenever it is fenced.
            for block in 0..BLOCKS {
                count += 1;
                let words = [epoch.to_le_bytes(), count.to_le_bytes()].concat();
                // A connection that was closed is told of by the answers that do not come.
                let _ = client.write(block * 4096, &words.repeat(256));
            }
            for _ in 0..BLOCKS {
                match client.finish_one() {
                    Ok((_, answer)) => {
                        answer.expect("what is answered is done");
                        acknowledged += 1;
                    }
                    Err(_) => {
                        assert!(newest.load(Ordering::SeqCst) > epoch, "nobody fenced epoch {epoch}");
                        return acknowledged;
                    }
                }
            }
        }
        acknowledged
    };
    std::thread::scope(|scope| {
        let ends = SetOnDrop(&over);
        let write = &write;
        let mut writers = Vec::new();
        for epoch in 1..=12u64 {
            writers.push(scope.spawn(move || write(epoch)));
            newest.store(epoch, Ordering::SeqCst);
            scene.appliance.raise_lease("disk", named(epoch), PATIENCE).unwrap();
            let then = held();
            let deadline = Instant::now() + Duration::from_millis(20);
            while Instant::now() < deadline {
                for (then, now) in then.iter().zip(held()) {
                    let writer = u64::from_le_bytes(now[..8].try_into().unwrap());
                    assert!(
                        writer >= epoch || now == *then,
                        "epoch {writer} wrote behind the fence of {epoch}"
                    );
                }
            }
        }
        drop(ends);
        let acknowledged: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        assert!(acknowledged > 0);
    });
    let mut client = Client::connect(&scene.path, "disk@12").unwrap();
    assert!(client.call(READ, &[]).unwrap().is_ok());
}

/// What was acknowledged and could not be flushed when it was drained is lost to the next.
#[test]
fn a_volume_that_is_added_again_is_of_another_run() {
    let volume = |origin| VolumeConfig { lease: Some(named(1)), ..VolumeConfig::new("disk", origin) };
    let scene = scene(vec![volume(memory(MIB).1)], ServiceLimits::default());
    let run = || {
        let refusal = Client::connect(&scene.path, "disk").map(|_| ()).unwrap_err();
        RunId::found_in(&refusal.to_string()).expect("a run")
    };
    let first = run();
    assert_eq!(run(), first);
    scene.appliance.remove_volume("disk", PATIENCE).unwrap();
    scene.appliance.add_volume(volume(memory(MIB).1)).unwrap();
    assert_ne!(run(), first);
}

/// A daemon in front of another one's export.
fn in_front_of(behind: &Scene, export: &str) -> (Scene, Arc<NbdOrigin>) {
    let origin = Arc::new(way_to(behind, export));
    (scene(vec![VolumeConfig::new("disk", origin.clone())], ServiceLimits::default()), origin)
}

fn way_to(behind: &Scene, export: &str) -> NbdOrigin {
    let options =
        NbdOriginOptions { connections: 1, backoff_min: Nanos::millis(2), ..NbdOriginOptions::default() };
    NbdOrigin::connect(&Uri::unix(&behind.path, export), options).unwrap()
}

/// A controller that takes an appliance for dead fences it, and the appliance lives: what it did not get answered for its clients it keeps, until they are brought away. To
/// tell them that their flush failed would be untrue: whoever fenced has what it acknowledged.
#[test]
fn a_flush_at_an_appliance_that_is_fenced_is_done_by_the_next_way() {
    for asked_before in [true, false] {
        let (image, inner) = memory(MIB);
        let held = HeldOrigin::new(inner);
        let storage = leased(held.clone());
        storage.appliance.raise_lease("disk", named(1), PATIENCE).unwrap();
        let (appliance, path) = in_front_of(&storage, "disk@1");
        let (proxy, _) = in_front_of(&appliance, "disk");
        let mut client = Client::connect(&proxy.path, "disk").unwrap();
        let written = client.write(0, &[7; 4096]).unwrap();
        held.wait_for(1);
        let fence = |within| storage.appliance.raise_lease("disk", named(2), within);
        fence(Duration::ZERO).expect_err("the write is at the origin");
        // The connection is there until the write is answered, and nothing that comes on it now is taken.
        let flushed = asked_before.then(|| client.submit(Operation::Flush, &[]).unwrap());
        until("the flush on its way", || path.statistics().in_flight == 1 + u64::from(asked_before));
        held.open();
        fence(PATIENCE).unwrap();
        assert_eq!(client.finish_one().unwrap(), (written, Ok(vec![])));
        until("the end of the way", || path.statistics().state != OriginState::Up);
        let flushed = flushed.unwrap_or_else(|| client.submit(Operation::Flush, &[]).unwrap());
        until("the flush at the appliance", || path.statistics().in_flight == 1);
        let settled = RetargetOptions { settled: true, ..RetargetOptions::default() };
        proxy.appliance.retarget("disk", Arc::new(way_to(&storage, "disk@2")), settled).unwrap();
        assert_eq!(client.finish_one().unwrap(), (flushed, Ok(vec![])), "asked before: {asked_before}");
        let mut found = [0; 4096];
        image.read_at(0, &mut found);
        assert_eq!(found, [7; 4096]);
    }
}

/// With the worker goes what its origin had said of the flush, perhaps for the only time: taken for kept, the flush would be asked of the next way, and succeed.
#[test]
fn a_flush_at_a_volume_whose_worker_panicked_fails() {
    let (image, inner) = memory(MIB);
    let held = HeldOrigin::new(inner);
    let storage = leased(Arc::new(Trap(held.clone())));
    storage.appliance.raise_lease("disk", named(1), PATIENCE).unwrap();
    let (appliance, path) = in_front_of(&storage, "disk@1");
    let mut client = Client::connect(&appliance.path, "disk").unwrap();
    held.open();
    let write = Operation::Write { offset: 0, length: 4096, fua: false };
    assert!(client.call(write, &[7; 4096]).unwrap().is_ok());
    held.is_open.store(false, Ordering::SeqCst);
    let flushed = client.submit(Operation::Flush, &[]).unwrap();
    held.wait_for(1);
    storage.appliance.raise_lease("disk", named(2), Duration::ZERO).expect_err("the flush is at the origin");
    Client::connect(&storage.path, "disk@2").unwrap().read(MIB - 512, 512).unwrap();
    let is_kept_out = |state| matches!(state, OriginState::Down { reason } if reason.contains("lease"));
    until("the refusal", || is_kept_out(path.statistics().state));
    let again = leased(Arc::new(MemoryOrigin::new(image)));
    let settled = RetargetOptions { settled: true, ..RetargetOptions::default() };
    appliance.appliance.retarget("disk", Arc::new(way_to(&again, "disk")), settled).unwrap();
    let (answered, outcome) = client.finish_one().unwrap();
    assert_eq!((answered, outcome.is_err()), (flushed, true));
}

/// Also what the client sent meanwhile costs it no answer: over TCP a socket that is closed with something unread takes along what is on its way.
#[test]
fn who_is_fenced_hears_of_the_end_in_order_whatever_it_goes_on_sending() {
    let held = HeldOrigin::new(memory(MIB).1);
    let scene = leased(held.clone());
    let mut client = Client::connect(&scene.path, "disk").unwrap();
    let written = client.write(0, &[7; 4096]).unwrap();
    held.wait_for(1);
    scene.appliance.raise_lease("disk", named(1), Duration::ZERO).expect_err("the write is at the origin");
    client.submit(READ, &[]).unwrap();
    held.open();
    scene.appliance.raise_lease("disk", named(1), PATIENCE).unwrap();
    assert_eq!(client.finish_one().unwrap(), (written, Ok(vec![])));
    // Not a connection that was reset.
    let end = client.finish_one().unwrap_err();
    assert_eq!(end.kind(), std::io::ErrorKind::UnexpectedEof, "{end}");
    client.submit(READ, &[]).expect("it may go on sending for a while");
}
