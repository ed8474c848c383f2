//! Clients of a volume that ends in order, while the origin answers in any order: what was taken is answered, unless the origin fails it by then; nothing else is begun, nobody hears of an error for
//! the end, and who is told that all is safe can believe it, and has heard of all that it asked.

use super::tests::{machine, shaken_hands_at};
use super::*;
use forebay_nbd::{Succession, client};
use forebay_origin::{OriginCompletion, OriginError, OriginOperation};
use proptest::prelude::*;
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Done,
    Failed,
    Unknown,
}

/// What happens next; numbers choose among whatever there is.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write { client: usize, block: u64 },
    Flush { client: usize },
    Complete { request: usize, how: How },
    Break { client: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let how = prop_oneof![40 => Just(How::Done), 1 => Just(How::Failed), 1 => Just(How::Unknown)];
    let step = prop_oneof![
        9 => (0..4usize, 0..6u64).prop_map(|(client, block)| Step::Write { client, block }),
        3 => (0..4usize).prop_map(|client| Step::Flush { client }),
        8 => (0..20usize, how).prop_map(|(request, how)| Step::Complete { request, how }),
        1 => (0..4usize).prop_map(|client| Step::Break { client }),
    ];
    proptest::collection::vec(step, 0..60)
}

struct Peer {
    session: client::Session,
    key: SlabKey,
    is_succeeded: bool,
    /// Cookies of what it asked before the end began,
    asked: BTreeSet<u64>,
    /// and those of flushes among them.
    flushes: BTreeSet<u64>,
    is_broken: bool,
}

struct Scene {
    service: Service,
    volume: SlabKey,
    peers: Vec<Peer>,
    at_origin: Vec<OriginRequest>,
    begun: usize,
    /// Something went wrong of which somebody may not know.
    is_unsafe: bool,
    /// Whether the end has begun, and whether the origin has failed anything since.
    is_at_end: bool,
    has_failed_at_end: bool,
}

impl Scene {
    fn turn(&mut self) {
        let mut submissions = Vec::new();
        self.service.turn(Nanos::ZERO, &mut submissions);
        self.begun += submissions.len();
        self.at_origin.extend(submissions.into_iter().map(|(_, request)| request));
    }

    fn ask(&mut self, client: usize, cookie: u64, operation: client::Operation) {
        let peer = &mut self.peers[client];
        if peer.is_broken {
            return;
        }
        let mut sent = Vec::new();
        peer.session.submit(cookie, operation, &mut sent).unwrap();
        if let client::Operation::Write { length, .. } = operation {
            sent.resize(sent.len() + length as usize, 1);
        }
        peer.asked.insert(cookie);
        if matches!(operation, client::Operation::Flush) {
            peer.flushes.insert(cookie);
        }
        self.service.received(Nanos::ZERO, peer.key, &sent);
    }

    fn complete(&mut self, request: usize, how: How) {
        if self.at_origin.is_empty() {
            return;
        }
        let request = self.at_origin.swap_remove(request % self.at_origin.len());
        let is_flush = request.operation == OriginOperation::Flush;
        let result = match how {
            How::Done => Ok(Vec::new()),
            // A flush that is not answered has failed, as far as anybody knows.
            How::Unknown if !is_flush => {
                Err(OriginError::OutcomeUnknown { context: String::new(), asked: None })
            }
            How::Failed | How::Unknown => Err(OriginError::Failed { errno: 5, context: String::new() }),
        };
        self.is_unsafe |= how == How::Unknown || (is_flush && result.is_err());
        self.has_failed_at_end |= self.is_at_end && result.is_err();
        self.service.complete(Nanos::ZERO, self.volume, OriginCompletion { id: request.id, result });
    }

    fn step(&mut self, number: u64, step: Step) {
        match step {
            Step::Write { client, block } => {
                let write = client::Operation::Write { offset: block * 4096, length: 4096, fua: false };
                self.ask(client, number, write);
            }
            Step::Flush { client } => self.ask(client, number, client::Operation::Flush),
            Step::Complete { request, how } => self.complete(request, how),
            Step::Break { client } => {
                self.peers[client].is_broken = true;
                self.service.forget(self.peers[client].key);
            }
        }
        self.turn();
    }

    /// What came to a client: the cookies that were answered, and which of them with an error; and whether the end was a farewell.
    fn heard(&mut self, client: usize) -> (BTreeSet<u64>, BTreeSet<u64>, bool) {
        let peer = &mut self.peers[client];
        let (mut output, mut said_farewell) = (Vec::new(), false);
        let (mut done, mut failed) = (BTreeSet::new(), BTreeSet::new());
        self.service.output(peer.key).expect("it is here").copy_to(&mut output);
        self.service.sent(Nanos::ZERO, peer.key, output.len());
        while !output.is_empty() {
            assert!(!said_farewell, "the farewell is the last word");
            let parsed = peer.session.receive(&output, &mut Vec::new()).unwrap();
            let consumed = parsed.consumed;
            match parsed.event {
                client::Event::Done { cookie, result } => {
                    if let Err(error) = result {
                        assert_ne!(error.number, 108, "{cookie}");
                        failed.insert(cookie);
                    }
                    assert!(done.insert(cookie), "{cookie}");
                }
                client::Event::Farewell => said_farewell = true,
                event => panic!("{event:?}"),
            }
            output.drain(..consumed);
        }
        (done, failed, said_farewell)
    }
}

fn check(before: &[Step], after: &[Step], last: How) -> Result<(), TestCaseError> {
    let mut service = Service::new(ServiceLimits::default());
    let volume = service.add_volume(machine());
    let peers = [Some(1), Some(2), None, Some(3)].map(|id| {
        let place = id.map(|id| Succession { id, number: 1, lacks_flush: false });
        let (session, server) = shaken_hands_at(place);
        let key = service.open(Nanos::ZERO, server, volume, Entrance::Original, Vec::new(), Vec::new());
        let (asked, flushes) = (BTreeSet::new(), BTreeSet::new());
        Peer { session, key, is_succeeded: id.is_some(), asked, flushes, is_broken: false }
    });
    let mut scene = Scene {
        service,
        volume,
        peers: peers.into(),
        at_origin: Vec::new(),
        begun: 0,
        is_unsafe: false,
        is_at_end: false,
        has_failed_at_end: false,
    };
    (0u64..).zip(before).for_each(|(number, step)| scene.step(number, *step));
    let mut answered = vec![BTreeSet::new(); scene.peers.len()];
    for client in (0..answered.len()).filter(|client| !scene.peers[*client].is_broken).collect::<Vec<_>>() {
        answered[client] = scene.heard(client).0;
    }
    scene.service.leave(volume);
    scene.is_at_end = true;
    let asked: Vec<BTreeSet<u64>> = scene.peers.iter().map(|peer| peer.asked.clone()).collect();
    let is_listened_to = scene.peers.iter().any(|peer| peer.is_succeeded && !peer.is_broken);
    scene.turn();
    (1000u64..).zip(after).for_each(|(number, step)| scene.step(number, *step));
    while !scene.service.peek(volume).expect("it is here").is_idle() {
        let is_last = scene.at_origin.len() == 1 && scene.at_origin[0].operation == OriginOperation::Flush;
        prop_assert!(!scene.at_origin.is_empty(), "the volume waits for nothing");
        scene.complete(0, if is_last { last } else { How::Done });
        scene.turn();
    }
    let taken: usize = asked.iter().map(BTreeSet::len).sum();
    prop_assert!(scene.begun <= taken + 1, "{} begun of {taken}", scene.begun);
    let is_safe = is_listened_to && !scene.is_unsafe;
    scene.service.bid_farewell(volume);
    for (client, asked) in asked.into_iter().enumerate() {
        if scene.peers[client].is_broken {
            continue;
        }
        let (key, is_succeeded) = (scene.peers[client].key, scene.peers[client].is_succeeded);
        let (done, failed, said_farewell) = scene.heard(client);
        prop_assert!(failed.is_subset(&scene.peers[client].flushes), "{failed:?} are told to have failed");
        let heard: BTreeSet<u64> = answered[client].union(&done).copied().collect();
        let unheard: BTreeSet<u64> = asked.difference(&heard).copied().collect();
        prop_assert!(heard.is_subset(&asked));
        prop_assert!(unheard.is_empty() || scene.has_failed_at_end, "{unheard:?}");
        prop_assert!(unheard.is_disjoint(&scene.peers[client].flushes), "{unheard:?}");
        prop_assert_eq!(said_farewell, is_safe && is_succeeded && unheard.is_empty());
        let wishes = scene.service.wishes(key).expect("it is here");
        prop_assert!(wishes.close && wishes.parts);
        prop_assert!(!scene.service.has_parted(volume));
        scene.service.forget(key);
    }
    prop_assert!(scene.service.has_parted(volume));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn what_was_taken_is_answered_and_nothing_else_is_begun(
        before in steps(),
        after in steps(),
        last in prop_oneof![4 => Just(How::Done), 1 => Just(How::Failed)],
    ) {
        check(&before, &after, last)?;
    }
}

/// Whoever comes when the end has begun hears it, too, and is asked to do nothing.
#[test]
fn who_comes_too_late_hears_the_end() {
    let mut service = Service::new(ServiceLimits::default());
    let volume = service.add_volume(machine());
    service.leave(volume);
    let (_, server) = shaken_hands_at(None);
    let key = service.open(Nanos::ZERO, server, volume, Entrance::Original, Vec::new(), Vec::new());
    let wishes = service.wishes(key).unwrap();
    assert!(!wishes.receive && !wishes.close);
    service.bid_farewell(volume);
    let wishes = service.wishes(key).unwrap();
    assert!(wishes.close && wishes.parts);
}
