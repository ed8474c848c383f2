//! Clients with claims of every epoch, a lease that rises at any moment, clients that leave in the middle: once a fence is answered, nothing
//! of whom it keeps out is at the origin, or ever goes there again.

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
    number: u64,
    /// Of a write that was announced: what the client has not sent of it.
    unsent: Vec<u8>,
    next_cookie: u64,
}

/// Who wrote a block is what it holds.
fn block_of(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(512)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn once_a_fence_is_answered_nothing_of_whom_it_keeps_out_reaches_the_origin(steps in steps()) {
        let mut service = Service::new(ServiceLimits::default());
        let volume = service.add_volume(machine());
        let mut lease = Lease::FIRST;
        service.fence(volume, lease);
        let mut peers: Vec<Peer> = Vec::new();
        let mut at_origin: Vec<(OriginRequest, u64)> = Vec::new();
        // Which clients may never be heard of again, and how each came.
        let mut claims: BTreeMap<u64, Claim> = BTreeMap::new();
        let mut fenced: Vec<u64> = Vec::new();
        let mut waits_for_fence = false;
        for (number, step) in (1u64..).zip(steps) {
            match step {
                Step::Connect(ahead) => {
                    let claim = if ahead == 0 { Claim::Original } else { Claim::Epoch(lease.epoch + ahead - 1) };
                    // Whoever chose just before the lease was raised comes as well.
                    let (session, server) = shaken_hands();
                    let key = service.open(Nanos::ZERO, server, volume, claim, Vec::new(), Vec::new());
                    claims.insert(number, claim);
                    if !lease.admits(claim) {
                        fenced.push(number);
                    }
                    peers.push(Peer { session, key, number, unsent: Vec::new(), next_cookie: 1 });
                }
                Step::Write { client, block, pieces } => {
                    let count = peers.len();
                    let Some(peer) = peers.get_mut(client % count.max(1)).filter(|peer| peer.unsent.is_empty()) else { continue };
                    let mut sent = Vec::new();
                    let write = client::Operation::Write { offset: block * 4096, length: 4096, fua: false };
                    peer.session.submit(peer.next_cookie, write, &mut sent).unwrap();
                    peer.next_cookie += 1;
                    sent.extend(block_of(peer.number));
                    peer.unsent = if pieces > 1 { sent.split_off(sent.len() - 2000) } else { Vec::new() };
                    service.received(Nanos::ZERO, peer.key, &sent);
                }
                Step::Finish { client } => {
                    let count = peers.len();
                    let Some(peer) = peers.get_mut(client % count.max(1)) else { continue };
                    let rest = std::mem::take(&mut peer.unsent);
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
                    fenced.extend(claims.iter().filter(|(_, claim)| !lease.admits(**claim)).map(|(number, _)| *number));
                    waits_for_fence = true;
                }
            }
            let mut submissions = Vec::new();
            service.turn(Nanos::ZERO, &mut submissions);
            for (_, request) in submissions {
                let OriginOperation::Write { data, .. } = &request.operation else { panic!("{request:?}") };
                let writer = u64::from_le_bytes(data[..8].try_into().unwrap());
                prop_assert!(waits_for_fence || !fenced.contains(&writer), "a write of client {writer} is sent behind its fence");
                at_origin.push((request, writer));
            }
            if waits_for_fence && service.fenced_in_flight(volume) == 0 {
                waits_for_fence = false;
            }
            if !waits_for_fence {
                let stray = at_origin.iter().find(|(_, writer)| fenced.contains(writer) && !lease.admits(claims[writer]));
                prop_assert!(stray.is_none(), "a write of client {:?} is at the origin although the fence is answered", stray.map(|(_, writer)| writer));
            }
        }
    }
}

#[test]
fn who_is_fenced_is_told_so_and_is_not_let_in_when_the_lease_returns() {
    let mut service = Service::new(ServiceLimits::default());
    let volume = service.add_volume(machine());
    service.fence(volume, Lease::FIRST);
    let (mut client, server) = shaken_hands();
    let key = service.open(Nanos::ZERO, server, volume, Claim::Original, Vec::new(), Vec::new());
    let mut ask = |service: &mut Service, cookie| {
        let mut asked = Vec::new();
        let read = client::Operation::Read { offset: 0, length: 512, dont_fragment: false };
        client.submit(cookie, read, &mut asked).unwrap();
        service.received(Nanos::ZERO, key, &asked);
        let mut submissions = Vec::new();
        service.turn(Nanos::ZERO, &mut submissions);
        let mut stream = Vec::new();
        service.output(key).unwrap().copy_to(&mut stream);
        service.sent(Nanos::ZERO, key, stream.len());
        let event = client.receive(&stream, &mut Vec::new()).map(|parsed| format!("{:?}", parsed.event));
        (submissions, event.unwrap())
    };
    service.fence(volume, Lease { epoch: 1, holder: Holder::Named });
    let (submissions, event) = ask(&mut service, 1);
    assert!(submissions.is_empty() && event.contains("NotPermitted"), "{event}");
    service.fence(volume, Lease { epoch: 2, holder: Holder::Original });
    let (submissions, event) = ask(&mut service, 2);
    assert!(submissions.is_empty() && event.contains("NotPermitted"), "{event}");
    // Who comes anew by the same way is.
    let (_, server) = shaken_hands();
    let key = service.open(Nanos::ZERO, server, volume, Claim::Original, Vec::new(), Vec::new());
    assert!(service.wishes(key).is_some_and(|wishes| wishes.receive));
    assert!(!service.connections.get(key).unwrap().is_fenced);
}
