//! Players against volumes in memory that misbehave as told.

use super::*;
use crate::content::Content;
use crate::replay::{Feed, Pace, ReplayOptions, replay};
use crate::report::LATE_FROM;
use forebay_origin::{MemoryImage, MemoryOrigin, OriginCompletion, OriginError, OriginTraits};
use forebay_trace::{Request, ThreadNumber, VolumeIndex};
use forebay_units::Bytes;
use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

const SECTOR: usize = crate::SECTOR_BYTES;
const VOLUME_BYTES: u64 = 64 * 4096;

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    LosesWrites,
    FailsWrites,
    /// Answers so many requests, and then none.
    StopsAfter(u64),
    /// Answers so many requests, and the others with an error.
    FailsAfter(u64),
    /// Answers one request with an error.
    FailsOnce,
    /// Answers a write only once a read was submitted after it.
    WritesWaitForReads,
    /// Answers only when as many requests wait.
    AnswersInGroupsOf(usize),
}

type Waiting = Vec<(OriginRequest, Arc<dyn CompletionSink>)>;

/// Answers at once from memory, apart from its fault.
struct MemoryVolume {
    memory: MemoryOrigin,
    writes: AtomicU64,
    requests: AtomicU64,
    waiting: Mutex<Waiting>,
    fault: Fault,
}

impl MemoryVolume {
    fn holding(content: Content, fault: Fault) -> Arc<dyn Origin> {
        let image = Arc::new(MemoryImage::new(Bytes(VOLUME_BYTES)));
        let mut bytes = [0; SECTOR];
        for sector in 0..VOLUME_BYTES / SECTOR as u64 {
            content.fill_sector(sector, 0, &mut bytes);
            image.write_at(sector * SECTOR as u64, &bytes);
        }
        Arc::new(MemoryVolume {
            memory: MemoryOrigin::new(image),
            writes: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            waiting: Mutex::default(),
            fault,
        })
    }
}

impl Origin for MemoryVolume {
    fn traits(&self) -> OriginTraits {
        self.memory.traits()
    }

    fn submit(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        let answered = self.requests.fetch_add(1, Ordering::Relaxed);
        let is_change = request.operation.changes_content();
        let is_faulty_write = is_change && self.writes.fetch_add(1, Ordering::Relaxed) % 3 == 2;
        let fail = |id| {
            let result = Err(OriginError::Failed { errno: 5, context: "as told".into() });
            sink.complete(OriginCompletion { id, result });
        };
        match self.fault {
            Fault::LosesWrites if is_faulty_write => {
                sink.complete(OriginCompletion { id: request.id, result: Ok(Vec::new()) });
            }
            Fault::FailsWrites if is_faulty_write => {
                // It fails, and yet is carried out.
                let id = request.id;
                self.memory.submit(request, &(Arc::new(Nobody) as Arc<dyn CompletionSink>));
                fail(id);
            }
            Fault::StopsAfter(count) if answered >= count => {
                self.waiting.lock().unwrap().push((request, Arc::clone(sink)));
            }
            Fault::FailsAfter(count) if answered >= count => fail(request.id),
            Fault::FailsOnce if answered == 0 => fail(request.id),
            Fault::WritesWaitForReads if is_change => {
                self.waiting.lock().unwrap().push((request, Arc::clone(sink)));
            }
            Fault::WritesWaitForReads => {
                self.memory.submit(request, sink);
                let waiting = std::mem::take(&mut *self.waiting.lock().unwrap());
                waiting.into_iter().for_each(|(request, sink)| self.memory.submit(request, &sink));
            }
            Fault::AnswersInGroupsOf(count) => {
                let mut waiting = self.waiting.lock().unwrap();
                waiting.push((request, Arc::clone(sink)));
                if waiting.len() >= count {
                    let group = std::mem::take(&mut *waiting);
                    drop(waiting);
                    group.into_iter().for_each(|(request, sink)| self.memory.submit(request, &sink));
                }
            }
            _ => self.memory.submit(request, sink),
        }
    }

    fn describe(&self) -> String {
        "memory".into()
    }
}

struct Nobody;

impl CompletionSink for Nobody {
    fn complete(&self, _: OriginCompletion) {}
}

fn options() -> PlayOptions {
    PlayOptions::for_duration(Duration::from_secs(60), Duration::from_secs(1))
}

fn play_closed(fault: Fault) -> PlayReport {
    let shadow = Shadow::new(Content::new(1), VOLUME_BYTES);
    let connection = MemoryVolume::holding(Content::new(1), fault);
    let mut player = Player::new(shadow);
    let mut state = 0u64;
    let mut next = || {
        state += 1;
        let random = forebay_units::mix64(state);
        let operation = if random.is_multiple_of(3) { Operation::Write } else { Operation::Read };
        let range = ByteRange::new((random >> 8) % 63 * 4096, if random & 8 == 0 { 4096 } else { 8192 });
        (state <= 2_000).then_some((operation, range))
    };
    let load = Load::Closed { outstanding: 8, next: &mut next };
    player.play(&connection, load, options(), &AtomicBool::new(false)).unwrap()
}

#[test]
fn an_honest_volume_passes_and_every_byte_is_checked() {
    let report = play_closed(Fault::None);
    assert_eq!((report.requests, report.errors, report.wrong_count, report.gave_up), (2_000, 0, 0, None));
    assert!(report.bytes_checked > 1_000 * 4096);
    let counted = report.reads.count() + report.writes.count();
    let by_interval: u64 =
        report.intervals.iter().map(|interval| interval.reads.count() + interval.writes.count()).sum();
    assert_eq!((counted, by_interval), (2_000, 2_000));
}

#[test]
fn lost_writes_are_found() {
    let report = play_closed(Fault::LosesWrites);
    assert!(report.wrong_count > 0);
    assert!(report.wrong[0].found.contains("stale"), "{:?}", report.wrong[0]);
}

#[test]
fn failed_writes_are_counted_and_allow_either_version() {
    let report = play_closed(Fault::FailsWrites);
    assert!(report.errors > 100 && report.wrong_count == 0, "{:?}", report.wrong);
    assert!(report.first_error.unwrap().contains("as told"));
    assert_eq!(report.errors, report.intervals.iter().map(|interval| interval.errors).sum::<u64>());
}

fn due(micros: u64, operation: Operation, offset: u64, length: u64) -> Due {
    Due {
        at: Nanos::micros(micros),
        operation,
        range: ByteRange::new(offset, length),
        thread: ThreadNumber::UNKNOWN,
    }
}

fn play_open(
    player: &mut Player,
    connection: &Arc<dyn Origin>,
    dues: &[Due],
    outstanding_max: usize,
    after_wait: AfterWait,
) -> Result<PlayReport, PlayError> {
    let mut requests = dues.iter().copied();
    let load = Load::Open { requests: &mut requests, outstanding_max, after_wait };
    let options = PlayOptions { give_up_after: Duration::from_millis(40), ..options() };
    player.play(connection, load, options, &AtomicBool::new(false))
}

#[test]
fn a_load_is_played_in_order_and_what_does_not_fit_is_refused() {
    let request = |micros, operation, length| Request {
        time: Nanos::micros(micros),
        offset: 0,
        length,
        latency: Nanos::MAX,
        thread: ThreadNumber::UNKNOWN,
        volume: VolumeIndex(0),
        operation,
    };
    let recorded = [
        request(100, Operation::Write, 4096),
        request(200, Operation::Discard, 4096),
        request(300, Operation::Read, 4096),
        request(1_000, Operation::Flush, 0),
        request(5_000, Operation::Read, 512),
    ];
    // The discard is not taken: its outcome could not be checked. The last read comes after the end.
    let mut dues: Vec<Due> = Due::recorded(&recorded, 1.0, Some(Nanos::millis(4))).collect();
    assert_eq!(dues.iter().map(|due| due.at.0 / 1000).collect::<Vec<_>>(), [0, 200, 900]);
    let connection = MemoryVolume::holding(Content::new(1), Fault::None);
    let mut player = Player::new(Shadow::new(Content::new(1), VOLUME_BYTES));
    let report = play_open(&mut player, &connection, &dues, 4, AfterWait::CatchUp).unwrap();
    assert_eq!((report.requests, report.bytes_checked, report.wrong_count), (3, 4096, 0));
    assert_eq!((report.fidelity.issue_error.count(), report.fidelity.bound_hit), (3, 0));
    dues.push(due(2_000, Operation::Read, 63 * 4096, 8192));
    let beyond = play_open(&mut player, &connection, &dues, 4, AfterWait::CatchUp);
    assert!(matches!(beyond, Err(PlayError::OutsideVolume { index: 3, .. })));
    let empty = play_open(&mut player, &connection, &[], 4, AfterWait::CatchUp);
    assert!(matches!(empty, Err(PlayError::Empty)));
}

#[test]
fn a_write_that_must_wait_holds_nothing_else_up() {
    let connection = MemoryVolume::holding(Content::new(1), Fault::WritesWaitForReads);
    let mut player = Player::new(Shadow::new(Content::new(1), VOLUME_BYTES));
    // The second write waits for the first, whose answer waits for the read, which must not wait for the second. The
    // third overlaps the second alone and must not overtake it. The last read lets the second complete, the next the third.
    let dues = [
        due(0, Operation::Write, 0, 4096),
        due(10, Operation::Write, 0, 4096),
        due(20, Operation::Write, 0, 4096),
        due(30, Operation::Read, 8192, 4096),
        due(10_000, Operation::Read, 8192, 4096),
        due(20_000, Operation::Read, 0, 4096),
    ];
    let report = play_open(&mut player, &connection, &dues, 8, AfterWait::CatchUp).unwrap();
    assert_eq!((report.requests, report.wrong_count, report.errors), (6, 0, 0), "{:?}", report.wrong);
    assert_eq!((report.fidelity.held_back, report.fidelity.issue_error.count()), (2, 6));
    // All three writes were made, in their order: version 3 is what the sector holds.
    assert_eq!(player.shadow().unwrap().submit_read(ByteRange::new(0, 512)), [3]);
}

#[test]
fn a_write_that_must_wait_holds_no_other_client_of_a_closed_loop_up() {
    let connection = MemoryVolume::holding(Content::new(1), Fault::WritesWaitForReads);
    let mut player = Player::new(Shadow::new(Content::new(1), VOLUME_BYTES));
    let play = |player: &mut Player, outstanding, requests: &[(Operation, u64)]| {
        let mut requests = requests.iter();
        let mut next =
            || requests.next().map(|(operation, offset)| (*operation, ByteRange::new(*offset, 4096)));
        let load = Load::Closed { outstanding, next: &mut next };
        let options = PlayOptions { give_up_after: Duration::from_millis(40), ..options() };
        player.play(&connection, load, options, &AtomicBool::new(false)).unwrap()
    };
    use Operation::{Read, Write};
    // Three clients: the second's write waits for the first's, whose answer waits for the third's read. The next read lets the second complete.
    let report = play(&mut player, 3, &[(Write, 0), (Write, 0), (Read, 8192), (Read, 12_288)]);
    assert_eq!((report.requests, report.wrong_count, report.errors), (4, 0, 0), "{:?}", report.wrong);
    assert_eq!((report.fidelity.held_back, report.gave_up), (1, None));
    assert_eq!(player.shadow().unwrap().submit_read(ByteRange::new(0, 512)), [2]);
    // Two clients, of whom both wait: there is nobody who could read.
    let report = play(&mut player, 2, &[(Write, 0), (Write, 0), (Read, 8192)]);
    assert!(report.gave_up.is_some(), "three were outstanding");
}

#[test]
fn no_request_is_early_and_late_ones_do_not_move_the_others() {
    let connection = MemoryVolume::holding(Content::new(1), Fault::None);
    let mut player = Player::unchecked(1, Arc::default());
    let dues: Vec<Due> = (0..400).map(|at| due(at * 250, Operation::Write, at % 64 * 4096, 4096)).collect();
    let report = play_open(&mut player, &connection, &dues, 64, AfterWait::CatchUp).unwrap();
    assert_eq!((report.requests, report.fidelity.issue_error.count()), (400, 400));
    // The first was issued at its time or later, and the last no earlier than 99.75 ms after the start.
    let ((_, first), (last_due, last)) = (report.fidelity.first.unwrap(), report.fidelity.last.unwrap());
    assert!(first >= Nanos::ZERO && last >= last_due && last_due == Nanos::micros(99_750));
}

#[test]
fn the_bound_is_said_and_a_closed_loop_keeps_the_gaps_after_it() {
    // Four requests wait for each other, and two may be in flight: the third waits for room that never comes.
    let stuck = MemoryVolume::holding(Content::new(1), Fault::AnswersInGroupsOf(4));
    let dues: Vec<Due> = (0..8).map(|at| due(at * 100, Operation::Read, 0, 512)).collect();
    let mut player = Player::unchecked(1, Arc::default());
    let report = play_open(&mut player, &stuck, &dues, 2, AfterWait::CatchUp).unwrap();
    assert_eq!((report.requests, report.fidelity.bound_hit), (0, 1));
    assert!(report.fidelity.bound_waited >= Nanos::millis(40));
    assert!(matches!(report.gave_up, Some(GaveUp::NoSuccess { outstanding: 2, .. })), "{:?}", report.gave_up);

    // A volume that answers each request 5 ms late, of which one may be in flight: 20 requests 1 ms apart.
    let dues: Vec<Due> = (0..20).map(|at| due(at * 1_000, Operation::Read, 0, 512)).collect();
    for (after_wait, is_moved) in [(AfterWait::CatchUp, false), (AfterWait::Shift, true)] {
        let slow: Arc<dyn Origin> = Arc::new(forebay_origin::layer::Delay::new(
            MemoryVolume::holding(Content::new(1), Fault::None),
            forebay_origin::Timer::start().unwrap(),
            forebay_origin::layer::DelayParameters { read: Nanos::millis(5), ..Default::default() },
        ));
        let report = play_open(&mut player, &slow, &dues, 1, after_wait).unwrap();
        assert_eq!(report.requests, 20);
        let late = report.fidelity.late;
        assert!(if is_moved { late < 15 } else { late > 15 }, "{after_wait:?}: {late} late");
        // Either way the run takes as long as its answers.
        assert!(report.fidelity.stretch().unwrap() > 4.0);
    }
}

#[test]
fn a_volume_that_stops_or_fails_ends_the_run_with_what_was_done() {
    let dues: Vec<Due> = (0..1_000).map(|at| due(at * 200, Operation::Read, 0, 512)).collect();
    let mut player = Player::unchecked(1, Arc::default());
    let stops = MemoryVolume::holding(Content::new(1), Fault::StopsAfter(10));
    let report = play_open(&mut player, &stops, &dues, 2_000, AfterWait::CatchUp).unwrap();
    assert_eq!((report.requests, report.errors), (10, 0));
    assert!(matches!(report.gave_up, Some(GaveUp::NoSuccess { .. })), "{:?}", report.gave_up);

    let fails = MemoryVolume::holding(Content::new(1), Fault::FailsAfter(10));
    let report = play_open(&mut player, &fails, &dues, 2_000, AfterWait::CatchUp).unwrap();
    assert!(report.errors > 10 && report.errors < 990, "{}", report.errors);
    assert_eq!(report.requests, report.errors + 10);
    assert!(matches!(report.gave_up, Some(GaveUp::NoSuccess { outstanding: 0, .. })));

    // It answers all but the last three: those are waited for, and the run is whole up to them.
    let stops = MemoryVolume::holding(Content::new(1), Fault::StopsAfter(17));
    let report = play_open(&mut player, &stops, &dues[..20], 64, AfterWait::CatchUp).unwrap();
    assert_eq!(report.requests, 17);
    assert!(
        matches!(report.gave_up, Some(GaveUp::Unanswered { outstanding: 3, .. })),
        "{:?}",
        report.gave_up
    );
}

#[test]
fn silence_after_an_error_is_no_reason_to_give_up() {
    let connection = MemoryVolume::holding(Content::new(1), Fault::FailsOnce);
    let mut player = Player::unchecked(1, Arc::default());
    // Nothing is asked for much longer than a volume may take to succeed.
    let dues = [0, 300_000].map(|at| due(at, Operation::Read, 0, 512));
    let report = play_open(&mut player, &connection, &dues, 8, AfterWait::CatchUp).unwrap();
    assert_eq!((report.requests, report.errors, report.gave_up), (2, 1, None));
}

#[test]
fn several_players_share_a_replay() {
    for (pace, count) in [(Pace::Open, 3_000), (Pace::Closed, 3_000), (Pace::Fast, 3_000), (Pace::Open, 2)] {
        let progress = Arc::new(Progress::default());
        let mut targets: Vec<(Player, Arc<dyn Origin>)> = (0..3)
            .map(|seed| {
                let player = Player::unchecked(seed, Arc::clone(&progress));
                (player, MemoryVolume::holding(Content::new(1), Fault::None))
            })
            .collect();
        let feed = |feed: &mut Feed<'_>| {
            for at in 0..count {
                feed.hand_on(&mut vec![due(at * 10, Operation::Read, 0, 512)]);
            }
            Ok::<(), Infallible>(())
        };
        let options = ReplayOptions {
            pace,
            by_thread: false,
            outstanding_max: 64,
            interval: Duration::from_millis(10),
            duration: None,
            give_up_after: Duration::from_secs(5),
        };
        let report = replay(&mut targets, feed, options, &AtomicBool::new(false)).unwrap();
        assert_eq!((report.requests, progress.issued(), progress.answered()), (count, count, count));
        let by_interval: u64 = report.intervals.iter().map(|interval| interval.reads.count()).sum();
        assert_eq!(by_interval, count);
        if pace == Pace::Open {
            assert_eq!(report.fidelity.issue_error.count(), count);
            assert_eq!(report.fidelity.first.unwrap().0, Nanos::ZERO);
            assert_eq!(report.fidelity.last.unwrap().0, Nanos::micros((count - 1) * 10));
        }
    }
    let nothing = |_: &mut Feed<'_>| Ok::<(), Infallible>(());
    let options = ReplayOptions {
        pace: Pace::Open,
        by_thread: false,
        outstanding_max: 1,
        interval: Duration::from_secs(1),
        duration: None,
        give_up_after: Duration::from_secs(1),
    };
    let mut targets =
        [(Player::unchecked(1, Arc::default()), MemoryVolume::holding(Content::new(1), Fault::None))];
    let empty = replay(&mut targets, nothing, options, &AtomicBool::new(false));
    assert!(matches!(empty, Err(crate::ReplayError::Play(PlayError::Empty))));
}

#[test]
fn a_closed_loop_ends_with_its_duration_whatever_is_left() {
    for pace in [Pace::Fast, Pace::Closed] {
        let mut targets =
            [(Player::unchecked(1, Arc::default()), MemoryVolume::holding(Content::new(1), Fault::None))];
        let mut is_refused = false;
        // More than is played in any such time, and an end all the same where the duration is none.
        let feed = |feed: &mut Feed<'_>| {
            let began = Instant::now();
            while !is_refused && began.elapsed() < Duration::from_secs(20) {
                is_refused = !feed.hand_on(&mut vec![due(0, Operation::Read, 0, 512); 512]);
            }
            Ok::<(), Infallible>(())
        };
        let options = ReplayOptions {
            pace,
            by_thread: false,
            outstanding_max: 4,
            interval: Duration::from_secs(1),
            duration: Some(Duration::from_millis(200)),
            give_up_after: Duration::from_secs(5),
        };
        let report = replay(&mut targets, feed, options, &AtomicBool::new(false)).unwrap();
        assert!(is_refused && report.requests > 0 && report.gave_up.is_none(), "{pace:?}");
    }
}

#[test]
fn a_player_whose_next_request_is_due_after_the_end_ends_nobody_elses_load() {
    let mut targets = [1, 2].map(|seed| {
        let connection = MemoryVolume::holding(Content::new(1), Fault::None);
        (Player::unchecked(seed, Arc::default()), connection)
    });
    let of = |thread, at| Due { thread: ThreadNumber(thread), ..due(at, Operation::Read, 0, 512) };
    let feed = |feed: &mut Feed<'_>| {
        let mut dues = vec![of(1, 100_000_000)];
        for _ in 0..20 {
            dues.extend(vec![of(2, 0); 512]);
            if !feed.hand_on(&mut dues) {
                break;
            }
            // The first player has looked at what it has meanwhile.
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok::<(), Infallible>(())
    };
    let options = ReplayOptions {
        pace: Pace::Closed,
        by_thread: true,
        outstanding_max: 8,
        interval: Duration::from_secs(1),
        duration: Some(Duration::from_secs(3)),
        give_up_after: Duration::from_secs(5),
    };
    let report = replay(&mut targets, feed, options, &AtomicBool::new(false)).unwrap();
    assert_eq!(report.requests, 20 * 512);
}

/// Threads 1 and 4 have the first of three players, thread 2 the second, which has one request in a hundred; the others are dealt out in turn.
#[test]
fn all_requests_of_a_thread_go_to_the_same_player() {
    let count = 60_000u64;
    let threads = |at: u64| if at % 100 == 99 { 2 } else { [1, 4][at as usize % 2] };
    let progress: Vec<Arc<Progress>> = (0..3).map(|_| Arc::default()).collect();
    let mut targets: Vec<(Player, Arc<dyn Origin>)> = (0..)
        .zip(&progress)
        .map(|(seed, progress)| {
            let player = Player::unchecked(seed, Arc::clone(progress));
            (player, MemoryVolume::holding(Content::new(1), Fault::None))
        })
        .collect();
    let feed = |feed: &mut Feed<'_>| {
        for at in 0..count {
            let due = due(at, Operation::Read, 0, 512);
            feed.hand_on(&mut vec![Due { thread: ThreadNumber(threads(at)), ..due }]);
        }
        let unknown = due(count, Operation::Read, 0, 512);
        feed.hand_on(&mut vec![unknown; 4]);
        Ok::<(), Infallible>(())
    };
    let options = ReplayOptions {
        pace: Pace::Fast,
        by_thread: true,
        outstanding_max: 64,
        interval: Duration::from_secs(1),
        duration: None,
        give_up_after: Duration::from_secs(5),
    };
    let report = replay(&mut targets, feed, options, &AtomicBool::new(false)).unwrap();
    assert_eq!(report.requests, count + 4);
    let issued: Vec<u64> = progress.iter().map(|progress| progress.issued()).collect();
    assert_eq!(issued, [count / 100 * 99 + 2, count / 100 + 1, 1]);
}

#[test]
fn late_is_a_millisecond() {
    let mut fidelity = Fidelity::default();
    let at = Nanos::millis;
    fidelity.note(at(0), at(0), at(1) - Nanos(1));
    assert_eq!((fidelity.late, fidelity.stretch()), (0, None));
    fidelity.note(at(100), at(100), at(100) + LATE_FROM);
    // 0.999999 ms late, then 1 ms late: 100.000001 ms in place of 100.
    assert_eq!(fidelity.late, 1);
    assert!((fidelity.stretch().unwrap() - 1.000_000_01).abs() < 1e-12);
}
