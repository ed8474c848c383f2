//! Clients that come again and again in a few successions, and clients that do not say, while the origin answers in any order: what comes on a connection reaches the
//! origin when nothing of its predecessors is there any more or will be, and it does get there.

use super::tests::{machine, shaken_hands_at};
use super::*;
use forebay_nbd::{RunId, Succession, client};
use forebay_origin::{OriginCompletion, OriginError, OriginOperation};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// How the origin ends a request.
#[derive(Clone, Copy, Debug)]
enum How {
    Done,
    Failed,
    Unknown,
}

/// In which succession a client comes.
#[derive(Clone, Copy, Debug)]
enum Which {
    /// It does not say.
    None,
    /// One of a client that says nothing of runs.
    Random(u64),
    /// A lane of the current run of one that does, or of the run before.
    OfRun { client: u64, instance: u32, lane: u32, is_past: bool },
}

/// What happens next; numbers choose among whatever there is.
#[derive(Clone, Debug)]
enum Step {
    /// With `late`, an attempt that its client had given up and that arrives behind its next one.
    Connect {
        succession: Which,
        late: bool,
    },
    /// A client is killed, and started anew. What it has sent is there, and the server does not know.
    Begin {
        client: u64,
    },
    Write {
        client: usize,
        block: u64,
    },
    Complete {
        request: usize,
        how: How,
    },
    /// What is of unknown outcome is over.
    Settle,
    Leave {
        client: usize,
    },
    /// The driver looks at the connections that changed.
    Look,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let of_run = (0..2u64, 0..2u32, 0..2u32, 0..8u8).prop_map(|(client, instance, lane, past)| {
        Which::OfRun { client, instance, lane, is_past: past == 0 }
    });
    let succession = prop_oneof![4 => (0..2u64).prop_map(Which::Random), 6 => of_run, 1 => Just(Which::None)];
    let how = prop_oneof![14 => Just(How::Done), 1 => Just(How::Failed), 1 => Just(How::Unknown)];
    let step = prop_oneof![
        4 => (succession, 0..6u8).prop_map(|(succession, late)| Step::Connect { succession, late: late == 0 }),
        1 => (0..2u64).prop_map(|client| Step::Begin { client }),
        9 => (0..20usize, 0..6u64).prop_map(|(client, block)| Step::Write { client, block }),
        7 => (0..20usize, how).prop_map(|(request, how)| Step::Complete { request, how }),
        1 => Just(Step::Settle),
        1 => (0..20usize).prop_map(|client| Step::Leave { client }),
        6 => Just(Step::Look),
    ];
    proptest::collection::vec(step, 1..150)
}

struct Peer {
    session: client::Session,
    key: SlabKey,
    place: Option<Succession>,
}

struct Scene {
    service: Service,
    volume: SlabKey,
    peers: Vec<Peer>,
    /// By number: who asked it, and whether its client may expect an answer.
    writes: BTreeMap<u64, (SlabKey, Option<Succession>)>,
    at_origin: Vec<(OriginRequest, u64)>,
    /// Of unknown outcome, and not settled.
    unknown: Vec<u64>,
    had_doubt: bool,
    seen: Vec<u64>,
    /// Of which something came to the origin.
    came: Vec<Succession>,
    /// Which run each client is in, by its number.
    runs: [u32; 2],
    /// Connections of each lane, of each run.
    numbers: BTreeMap<(u64, u32), u64>,
}

impl Scene {
    /// What was asked and may go to the origin goes there.
    fn turn(&mut self) -> Result<(), TestCaseError> {
        let mut submissions = Vec::new();
        self.service.turn(Nanos::ZERO, &mut submissions);
        for (_, request) in submissions {
            let OriginOperation::Write { data, .. } = &request.operation else { panic!("{request:?}") };
            let write = u64::from_le_bytes(data[..8].try_into().unwrap());
            if let Some(place) = self.writes[&write].1 {
                let behind = self.came.iter().find(|other| other.takes_place_of(place));
                prop_assert!(behind.is_none(), "write {write} of {place:?} comes behind that of {behind:?}");
                if !self.came.contains(&place) {
                    self.came.push(place);
                }
                let of_others = |other: Option<Succession>| {
                    other.is_some_and(|other| place.takes_place_of(other) || other.takes_place_of(place))
                };
                let stray = self.at_origin.iter().find(|(_, other)| of_others(self.writes[other].1));
                let stray = stray.map(|(_, other)| other);
                prop_assert!(stray.is_none(), "write {write} is begun while {stray:?} is not over");
                let lost = self.unknown.iter().find(|other| of_others(self.writes[other].1));
                prop_assert!(lost.is_none(), "write {write} is begun while {lost:?} may yet be made");
            }
            self.seen.push(write);
            self.at_origin.push((request, write));
        }
        Ok(())
    }

    /// The driver does what connections wish for: it closes, and has what waits parsed.
    fn look(&mut self) {
        let mut dirty = Vec::new();
        self.service.take_dirty(&mut dirty);
        for key in dirty {
            let Some(wishes) = self.service.wishes(key) else { continue };
            if wishes.close {
                self.service.forget(key);
                self.peers.retain(|peer| peer.key != key);
            } else if wishes.resume {
                self.service.resume(Nanos::ZERO, key);
            }
        }
    }

    /// The next place of a lane; and whether who comes there may have asked for something.
    fn place(&mut self, which: Which, late: bool) -> (Option<Succession>, bool) {
        let first = match which {
            Which::None => return (None, true),
            // The same as that of a client, as far as it is told from others.
            Which::Random(id) => Succession { id: id << 24 | 0xabcde5, number: 9, lacks_flush: false },
            Which::OfRun { client, instance, lane, is_past } => {
                let now = self.runs[client as usize];
                let run = if is_past { (now - 1).max(1) } else { now };
                Succession::of(client, run, instance, lane)
            }
        };
        let next = self.numbers.entry((first.id, first.generation())).or_insert(first.number + 1);
        *next += u64::from(!late);
        let place = Succession { number: *next - u64::from(late), ..first };
        // One of a run before was in use when its process was killed. Whoever comes then must find the next run there to be known as late.
        let is_succeeded = |peer: &Peer| {
            peer.place.is_some_and(|own| own.inherits_from(place)) && self.service.wishes(peer.key).is_some()
        };
        let is_past =
            matches!(which, Which::OfRun { client, .. } if place.generation() < self.runs[client as usize]);
        (Some(place), !late && (!is_past || self.peers.iter().any(is_succeeded)))
    }

    fn complete(&mut self, request: usize, how: How) {
        let (request, write) = self.at_origin.swap_remove(request % self.at_origin.len());
        let result = match how {
            How::Done => Ok(Vec::new()),
            How::Failed => Err(OriginError::Failed { errno: 5, context: String::new() }),
            How::Unknown => {
                self.unknown.push(write);
                self.had_doubt = true;
                Err(OriginError::OutcomeUnknown { context: String::new(), asked: None })
            }
        };
        self.service.complete(Nanos::ZERO, self.volume, OriginCompletion { id: request.id, result });
    }
}

fn check(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut service = Service::new(ServiceLimits::default());
    let volume = service.add_volume(machine());
    let mut scene = Scene {
        service,
        volume,
        peers: Vec::new(),
        writes: BTreeMap::new(),
        at_origin: Vec::new(),
        unknown: Vec::new(),
        had_doubt: false,
        seen: Vec::new(),
        came: Vec::new(),
        runs: [1; 2],
        numbers: BTreeMap::new(),
    };
    for (number, step) in (1u64..).zip(steps) {
        match step {
            Step::Connect { succession, late } => {
                let (place, asks) = scene.place(succession, late);
                let (session, server) = shaken_hands_at(place);
                assert_eq!(server.succession(), place);
                let open = Entrance::Original;
                let key = scene.service.open(Nanos::ZERO, server, volume, open, Vec::new(), Vec::new());
                // Who gave an attempt up asks nothing by it.
                if asks {
                    scene.peers.push(Peer { session, key, place });
                }
            }
            Step::Begin { client } => scene.runs[client as usize] += 1,
            Step::Write { client, block } => {
                let index = client % scene.peers.len().max(1);
                let Some(peer) = scene.peers.get_mut(index) else { continue };
                let mut sent = Vec::new();
                let write = client::Operation::Write { offset: block * 4096, length: 4096, fua: false };
                peer.session.submit(number, write, &mut sent).unwrap();
                sent.extend(number.to_le_bytes().repeat(512));
                scene.writes.insert(number, (peer.key, peer.place));
                // What is on its way comes although the connection may have a successor.
                scene.service.received(Nanos::ZERO, peer.key, &sent);
            }
            Step::Complete { request, how } if !scene.at_origin.is_empty() => scene.complete(request, how),
            Step::Complete { .. } => {}
            Step::Leave { client } => {
                if !scene.peers.is_empty() {
                    let peer = scene.peers.swap_remove(client % scene.peers.len());
                    scene.service.forget(peer.key);
                }
            }
            Step::Settle => {
                scene.service.volume(volume).expect("it is here").settle();
                scene.unknown.clear();
            }
            Step::Look => scene.look(),
        }
        scene.turn()?;
    }
    // Everything is answered in the end, and whoever is here then has had what it asked done.
    for _ in 0..1000 {
        scene.look();
        scene.turn()?;
        if let Some(last) = scene.at_origin.len().checked_sub(1) {
            scene.complete(last, How::Done);
        }
    }
    let is_of_now = |place: Option<Succession>| {
        place.is_none_or(|place| !scene.came.iter().any(|other| other.inherits_from(place)))
    };
    let is_here = |key: SlabKey| scene.peers.iter().any(|peer| peer.key == key && is_of_now(peer.place));
    // What another write left in doubt is refused.
    let is_undone = |write: &u64, key| is_here(key) && !scene.had_doubt && !scene.seen.contains(write);
    let undone = scene.writes.iter().find(|(write, (key, _))| is_undone(write, *key));
    prop_assert!(undone.is_none(), "{undone:?} was never begun");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_of_a_connection_is_begun_before_its_predecessors_are_over(steps in steps()) {
        check(steps)?;
    }
}

pub(super) fn failed() -> Result<Vec<u8>, OriginError> {
    Err(OriginError::Failed { errno: 5, context: "lost".to_owned() })
}

/// Who asks for flushes.
pub(super) struct Flusher {
    pub(super) client: client::Session,
    pub(super) key: SlabKey,
}

impl Flusher {
    pub(super) fn come(service: &mut Service, volume: SlabKey, place: Succession) -> Flusher {
        Flusher::come_by(service, volume, Some(place), Entrance::Original)
    }

    pub(super) fn come_by(
        service: &mut Service,
        volume: SlabKey,
        place: Option<Succession>,
        entrance: Entrance,
    ) -> Flusher {
        let (client, server) = shaken_hands_at(place);
        let key = service.open(Nanos::ZERO, server, volume, entrance, Vec::new(), Vec::new());
        Flusher { client, key }
    }

    /// What comes to the origin of it.
    pub(super) fn ask(
        &mut self,
        service: &mut Service,
        operation: client::Operation,
    ) -> Option<OriginRequest> {
        let mut asked = Vec::new();
        self.client.submit(1, operation, &mut asked).unwrap();
        if let client::Operation::Write { length, .. } = operation {
            asked.resize(asked.len() + length as usize, 1);
        }
        service.received(Nanos::ZERO, self.key, &asked);
        let mut submissions = Vec::new();
        service.turn(Nanos::ZERO, &mut submissions);
        submissions.pop().map(|(_, request)| request)
    }

    /// Whether it was done, once the socket has taken the answer.
    pub(super) fn answer(&mut self, service: &mut Service) -> Option<bool> {
        let mut answer = Vec::new();
        service.output(self.key)?.copy_to(&mut answer);
        service.sent(Nanos::ZERO, self.key, answer.len());
        while !answer.is_empty() {
            let parsed = self.client.receive(&answer, &mut Vec::new()).unwrap();
            let consumed = parsed.consumed;
            if let client::Event::Done { result, .. } = parsed.event {
                return Some(result.is_ok());
            }
            answer.drain(..consumed);
        }
        None
    }

    /// Whether it was done, where the origin ends it so if it is asked.
    pub(super) fn flush(
        &mut self,
        service: &mut Service,
        result: Result<Vec<u8>, OriginError>,
    ) -> Option<bool> {
        let volume = service.volume_of(self.key)?;
        if let Some(request) = self.ask(service, client::Operation::Flush) {
            end(service, volume, &request, result);
        }
        self.answer(service)
    }
}

pub(super) fn end(
    service: &mut Service,
    volume: SlabKey,
    request: &OriginRequest,
    result: Result<Vec<u8>, OriginError>,
) {
    service.complete(Nanos::ZERO, volume, OriginCompletion { id: request.id, result });
    service.turn(Nanos::ZERO, &mut Vec::new());
}

const LACKS: bool = true;

fn place(id: u64, number: u64, lacks_flush: bool) -> Succession {
    Succession { id, number, lacks_flush }
}

pub(super) fn scene() -> (Service, SlabKey) {
    let mut service = Service::new(ServiceLimits::default());
    let volume = service.add_volume(machine());
    (service, volume)
}

/// The origin says once that data was lost. The client of that flush may not have heard of it, though it was sent the answer: its successor does, if it says so.
#[test]
fn the_error_of_a_flush_is_told_to_the_successor_too() {
    let (mut service, volume) = scene();
    let mut flush = |number: u64, lacks_flush, result| {
        let mut flusher = Flusher::come(&mut service, volume, place(5, number, lacks_flush));
        let is_done = flusher.flush(&mut service, result).expect("an answer");
        if number.is_multiple_of(2) {
            // The server sees that it is gone before the next one comes.
            service.forget(flusher.key);
        }
        is_done
    };
    let done = || Ok(Vec::new());
    for first in [1, 2] {
        assert!(!flush(10 * first + first, !LACKS, failed()));
        assert!(!flush(10 * first + 3, LACKS, done()), "it has not heard of it");
        assert!(flush(10 * first + 4, !LACKS, done()), "it has, and said so");
        assert!(flush(10 * first + 5, LACKS, done()), "there is nothing more to hear of");
    }
}

/// An attempt that was given up before knows nothing of what was said since.
#[test]
fn a_late_attempt_does_not_take_the_error_of_a_flush_along() {
    let (mut service, volume) = scene();
    let mut third = Flusher::come(&mut service, volume, place(5, 3, !LACKS));
    // The socket takes the answer, and it is lost on the way.
    assert_eq!(third.flush(&mut service, failed()), Some(false));
    service.forget(third.key);
    let late = Flusher::come(&mut service, volume, place(5, 2, !LACKS));
    service.forget(late.key);
    for number in [4, 5] {
        // That one breaks, too, before its client has heard of it.
        let mut next = Flusher::come(&mut service, volume, place(5, number, LACKS));
        assert_eq!(next.flush(&mut service, Ok(Vec::new())), Some(false), "nobody has heard of it");
        service.forget(next.key);
    }
    let mut last = Flusher::come(&mut service, volume, place(5, 6, !LACKS));
    assert_eq!(last.flush(&mut service, Ok(Vec::new())), Some(true));
}

#[test]
fn another_client_does_not_hear_of_an_error_instead_of_who_lacks_its_answer() {
    let (mut service, volume) = scene();
    let mut first = Flusher::come(&mut service, volume, place(5, 1, !LACKS));
    let request = first.ask(&mut service, client::Operation::Flush).unwrap();
    service.forget(first.key);
    end(&mut service, volume, &request, failed());
    let mut other = Flusher::come(&mut service, volume, place(6, 1, !LACKS));
    assert_eq!(other.flush(&mut service, Ok(Vec::new())), Some(false), "it may be the last one");
    let mut second = Flusher::come(&mut service, volume, place(5, 2, LACKS));
    assert_eq!(second.flush(&mut service, Ok(Vec::new())), Some(false), "it was told to another one only");
    assert_eq!(second.flush(&mut service, Ok(Vec::new())), Some(true));
}

/// A change with FUA may be what a failed sync is told to.
#[test]
fn a_successor_that_waits_for_the_flush_itself_hears_of_its_error_whoever_flushes_before() {
    let (mut service, volume) = scene();
    let mut first = Flusher::come(&mut service, volume, place(5, 1, !LACKS));
    let asked = first.ask(&mut service, client::Operation::Flush).unwrap();
    service.forget(first.key);
    let mut second = Flusher::come(&mut service, volume, place(5, 2, LACKS));
    end(&mut service, volume, &asked, failed());
    let mut other = Flusher::come(&mut service, volume, place(6, 1, !LACKS));
    assert_eq!(other.flush(&mut service, Ok(Vec::new())), Some(false), "nobody was told");
    assert_eq!(second.flush(&mut service, Ok(Vec::new())), Some(false), "its own flush failed");
    assert_eq!(second.flush(&mut service, Ok(Vec::new())), Some(true));
}

#[test]
fn the_error_of_a_change_with_fua_is_told_to_the_successor_too() {
    let (mut service, volume) = scene();
    let write = client::Operation::Write { offset: 0, length: 4096, fua: true };
    let mut first = Flusher::come(&mut service, volume, place(5, 1, !LACKS));
    let request = first.ask(&mut service, write).unwrap();
    end(&mut service, volume, &request, failed());
    assert_eq!(first.answer(&mut service), Some(false));
    let mut second = Flusher::come(&mut service, volume, place(5, 2, LACKS));
    assert!(second.ask(&mut service, write).is_none());
    assert_eq!(second.answer(&mut service), Some(false), "it may not have heard of it");
    let request = second.ask(&mut service, write).unwrap();
    end(&mut service, volume, &request, Ok(Vec::new()));
    assert_eq!(second.answer(&mut service), Some(true));
}

/// One look of a worker at its inbox may find both.
#[test]
fn a_doubt_that_a_successor_is_the_first_to_find_is_known_to_the_worker() {
    let (mut service, volume) = scene();
    let write = client::Operation::Write { offset: 0, length: 4096, fua: false };
    let mut first = Flusher::come(&mut service, volume, place(5, 1, !LACKS));
    let request = first.ask(&mut service, write).unwrap();
    let result = Err(OriginError::OutcomeUnknown { context: String::new(), asked: None });
    service.complete(Nanos::ZERO, volume, OriginCompletion { id: request.id, result });
    Flusher::come(&mut service, volume, place(5, 2, !LACKS));
    service.turn(Nanos::ZERO, &mut Vec::new());
    assert!(service.peek(volume).unwrap().is_in_doubt());
    assert_eq!(service.volumes_in_doubt(), [volume]);
    assert!(service.doubt(volume).unwrap().load(std::sync::atomic::Ordering::Relaxed));
}

/// What an appliance's client had before from another one, nobody but the two of them knows of: that the storage side was started anew between, and lost it, must not be followed by a flush that succeeds.
#[test]
fn who_was_told_of_another_keeper_hears_of_that_before_the_answer_to_a_flush() {
    // Those that shake hands here are told that nobody of ours keeps anything.
    for (keeper, is_heard) in [(None, true), (Some(RunId(7)), false)] {
        let (mut service, volume) = scene();
        let mut flusher = Flusher::come(&mut service, volume, place(5, 1, !LACKS));
        let request = flusher.ask(&mut service, client::Operation::Flush).unwrap();
        service.is_kept_by(volume, &|_| keeper);
        // Its successor comes before the answer.
        let mut next = Flusher::come(&mut service, volume, place(5, 2, LACKS));
        end(&mut service, volume, &request, Ok(Vec::new()));
        assert_eq!(flusher.answer(&mut service), is_heard.then_some(true));
        assert!(service.wishes(flusher.key).unwrap().close);
        service.forget(flusher.key);
        assert_eq!(next.flush(&mut service, failed()), Some(false));
    }
}

/// Behind such an end nothing would be promised, and what the client has in flight would be in doubt for good.
#[test]
fn who_was_told_of_another_keeper_of_a_volume_in_doubt_is_told_by_the_next_flush() {
    let (mut service, volume) = scene();
    let mut writer = Flusher::come(&mut service, volume, place(5, 1, !LACKS));
    let write = client::Operation::Write { offset: 0, length: 4096, fua: false };
    let request = writer.ask(&mut service, write).unwrap();
    end(
        &mut service,
        volume,
        &request,
        Err(OriginError::OutcomeUnknown { context: String::new(), asked: None }),
    );
    assert_eq!(writer.answer(&mut service), Some(false));
    service.volume(volume).unwrap().settle();
    assert_eq!(writer.flush(&mut service, Ok(Vec::new())), Some(true), "it is told of nothing twice");
    let mut flusher = Flusher::come(&mut service, volume, place(6, 1, !LACKS));
    let request = writer.ask(&mut service, write).unwrap();
    end(
        &mut service,
        volume,
        &request,
        Err(OriginError::OutcomeUnknown { context: String::new(), asked: None }),
    );
    assert_eq!(writer.answer(&mut service), Some(false));
    let flush = flusher.ask(&mut service, client::Operation::Flush).unwrap();
    service.is_kept_by(volume, &|_| Some(RunId(7)));
    assert!(!service.wishes(writer.key).unwrap().close);
    // One that is under way must not say that all is safe.
    end(&mut service, volume, &flush, Ok(Vec::new()));
    assert!(service.wishes(flusher.key).unwrap().close && flusher.answer(&mut service).is_none());
    assert_eq!(writer.flush(&mut service, Ok(Vec::new())), Some(false));
    // Nor does it hear so for good: before the next answer is taken in, its connection ends as well.
    service.is_kept_by(volume, &|_| Some(RunId(7)));
    writer.ask(&mut service, client::Operation::Flush).expect("the origin is asked");
    service.is_kept_by(volume, &|_| Some(RunId(7)));
    assert!(service.wishes(writer.key).unwrap().close);
}
