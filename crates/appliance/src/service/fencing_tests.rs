//! Clients by entrances of every epoch, a lease that rises at any moment and returns, clients that leave in the middle: once a fence is answered,
//! nothing of whom it keeps out is at the origin; and what a client asked once it was fenced is never done, not even when its way is open again.

use super::tests::{machine, shaken_hands};
use super::*;
use forebay_nbd::client;
use forebay_origin::{OriginCompletion, OriginOperation};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What happens next; numbers choose among whatever there is.
#[derive(Clone, Debug)]
enum Step {
    Connect(u64),
    Write { client: usize, block: u64, pieces: usize },
    Finish { client: usize },
    Complete { request: usize, fails: bool },
    Leave { client: usize },
    Raise { by: u64, named: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..4u64).prop_map(Step::Connect),
        8 => (0..20usize, 0..8u64, 1..3usize).prop_map(|(client, block, pieces)| Step::Write { client, block, pieces }),
        4 => (0..20usize).prop_map(|client| Step::Finish { client }),
        8 => (0..20usize, 0..8u8).prop_map(|(request, fails)| Step::Complete { request, fails: fails == 0 }),
        1 => (0..20usize).prop_map(|client| Step::Leave { client }),
        1 => (1..3u64, any::<bool>()).prop_map(|(by, named)| Step::Raise { by, named }),
    ];
    proptest::collection::vec(step, 1..120)
}

struct Peer {
    session: client::Session,
    key: SlabKey,
    entrance: Entrance,
    /// Nothing that it asks from now on may be done, whoever holds the lease later.
    is_fenced: bool,
    /// Of the write that was begun: its number, and what the client has not sent of it.
    unsent: Option<(u64, Vec<u8>)>,
}

/// A write's number is what its block holds.
fn block_of(write: u64) -> Vec<u8> {
    write.to_le_bytes().repeat(512)
}

/// What the checker knows of a write.
struct Write {
    entrance: Entrance,
    /// It was asked, to its last byte, by a client that was not fenced then.
    may_be_done: bool,
}

fn check(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut service = Service::new(ServiceLimits::default());
    let volume = service.add_volume(machine());
    let mut lease = Lease::FIRST;
    service.fence(volume, lease);
    let mut peers: Vec<Peer> = Vec::new();
    let mut at_origin: Vec<(OriginRequest, u64)> = Vec::new();
    let mut writes: BTreeMap<u64, Write> = BTreeMap::new();
    let mut waits_for_fence = false;
    for (number, step) in (1u64..).zip(steps) {
        let choose = |peers: &[Peer], client: usize| client % peers.len().max(1);
        match step {
            Step::Connect(ahead) => {
                // Whoever chose just before the lease was raised comes as well.
                let entrance =
                    if ahead == 0 { Entrance::Original } else { Entrance::Epoch(lease.epoch + ahead - 1) };
                let (session, server) = shaken_hands();
                let key = service.open(Nanos::ZERO, server, volume, entrance, Vec::new(), Vec::new());
                peers.push(Peer { session, key, entrance, is_fenced: !lease.admits(entrance), unsent: None });
            }
            Step::Write { client, block, pieces } => {
                let index = choose(&peers, client);
                let Some(peer) = peers.get_mut(index).filter(|peer| peer.unsent.is_none()) else { continue };
                let mut sent = Vec::new();
                let write = client::Operation::Write { offset: block * 4096, length: 4096, fua: false };
                peer.session.submit(number, write, &mut sent).unwrap();
                sent.extend(block_of(number));
                let in_pieces = pieces > 1;
                writes.insert(
                    number,
                    Write { entrance: peer.entrance, may_be_done: !in_pieces && !peer.is_fenced },
                );
                peer.unsent = in_pieces.then(|| (number, sent.split_off(sent.len() - 2000)));
                service.received(Nanos::ZERO, peer.key, &sent);
            }
            Step::Finish { client } => {
                let index = choose(&peers, client);
                let Some(peer) = peers.get_mut(index) else { continue };
                let Some((write, rest)) = peer.unsent.take() else { continue };
                writes.get_mut(&write).expect("it was begun").may_be_done = !peer.is_fenced;
                service.received(Nanos::ZERO, peer.key, &rest);
            }
            Step::Complete { request, fails } => {
                if at_origin.is_empty() {
                    continue;
                }
                let (request, _) = at_origin.swap_remove(request % at_origin.len());
                let error = forebay_origin::OriginError::Failed { errno: 5, context: String::new() };
                let result = if fails { Err(error) } else { Ok(Vec::new()) };
                service.complete(Nanos::ZERO, volume, OriginCompletion { id: request.id, result });
            }
            Step::Leave { client } => {
                if !peers.is_empty() {
                    let peer = peers.swap_remove(client % peers.len());
                    service.forget(peer.key);
                }
            }
            Step::Raise { by, named } => {
                let holder = if named { Holder::Named } else { Holder::Original };
                lease = lease.raised(Lease { epoch: lease.epoch + by, holder }).unwrap();
                service.fence(volume, lease);
                for peer in &mut peers {
                    peer.is_fenced |= !lease.admits(peer.entrance);
                }
                waits_for_fence = true;
            }
        }
        let mut submissions = Vec::new();
        service.turn(Nanos::ZERO, &mut submissions);
        for (_, request) in submissions {
            let OriginOperation::Write { data, .. } = &request.operation else { panic!("{request:?}") };
            let write = u64::from_le_bytes(data[..8].try_into().unwrap());
            prop_assert!(
                writes[&write].may_be_done,
                "write {write} is done although its client was fenced before"
            );
            at_origin.push((request, write));
        }
        waits_for_fence &= service.fenced_in_flight(volume) > 0;
        if !waits_for_fence {
            let stray = at_origin.iter().find(|(_, write)| !lease.admits(writes[write].entrance));
            let stray = stray.map(|(_, write)| write);
            prop_assert!(stray.is_none(), "write {stray:?} is at the origin although the fence is answered");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn once_a_fence_is_answered_nothing_of_whom_it_keeps_out_reaches_the_origin(steps in steps()) {
        check(steps)?;
    }
}

/// Found by the test above: a write that waits behind another of its block is done when the lease is back with its client's way, in its turn.
#[test]
fn a_write_that_waited_is_done_when_its_way_is_open_again() {
    check(vec![
        Step::Connect(0),
        Step::Write { client: 0, block: 2, pieces: 1 },
        Step::Write { client: 0, block: 2, pieces: 1 },
        Step::Raise { by: 1, named: true },
        Step::Raise { by: 1, named: false },
        Step::Complete { request: 0, fails: true },
        Step::Complete { request: 0, fails: false },
    ])
    .unwrap();
}

#[test]
fn who_is_fenced_is_disconnected_and_is_not_let_in_when_the_lease_returns() {
    let mut service = Service::new(ServiceLimits::default());
    let volume = service.add_volume(machine());
    service.fence(volume, Lease::FIRST);
    let ask = |service: &mut Service, returns: bool| {
        let (mut client, server) = shaken_hands();
        let key = service.open(Nanos::ZERO, server, volume, Entrance::Original, Vec::new(), Vec::new());
        let epoch = service.volumes.get(volume).and_then(|entry| entry.lease).unwrap().epoch;
        service.fence(volume, Lease { epoch: epoch + 1, holder: Holder::Named });
        if returns {
            service.fence(volume, Lease { epoch: epoch + 2, holder: Holder::Original });
        }
        let mut asked = Vec::new();
        let read = client::Operation::Read { offset: 0, length: 512, dont_fragment: false };
        client.submit(1, read, &mut asked).unwrap();
        service.received(Nanos::ZERO, key, &asked);
        let mut submissions = Vec::new();
        service.turn(Nanos::ZERO, &mut submissions);
        assert!(submissions.is_empty() && service.output(key).unwrap().is_empty(), "nothing is done");
        assert!(service.wishes(key).is_some_and(|wishes| wishes.close && !wishes.receive));
    };
    ask(&mut service, true);
    ask(&mut service, false);
    service.fence(volume, Lease { epoch: 9, holder: Holder::Original });
    // Who comes anew by the same way is.
    let (_, server) = shaken_hands();
    let key = service.open(Nanos::ZERO, server, volume, Entrance::Original, Vec::new(), Vec::new());
    assert!(service.wishes(key).is_some_and(|wishes| wishes.receive));
}
