//! A whole replay: one thread prepares what is due, one or several players issue it, each through its own connection.

use crate::load::{AfterWait, Due, Load, PlayOptions};
use crate::player::{PlayError, Player};
use crate::report::PlayReport;
use forebay_origin::Origin;
use forebay_trace::{Operation, ThreadNumber};
use forebay_units::ByteRange;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use thiserror::Error;

/// How many requests are handed to a player at once, and how many such parts may wait for it (ours).
const PART_REQUESTS: usize = 512;
const PARTS_AHEAD: usize = 64;

/// How long the players have to be ready before the first request is due (ours).
const LEAD: Duration = Duration::from_millis(50);

/// By what a replay's requests are issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At their times, whatever became of those before.
    Open,
    /// At their times, moved by every wait for room: the recorded gaps stay.
    Closed,
    /// As soon as there is room.
    Fast,
}

/// How a trace is replayed.
#[derive(Clone, Copy, Debug)]
pub struct ReplayOptions {
    /// By what requests are issued.
    pub pace: Pace,
    /// Whether all requests of a recorded thread go to the same player; those of none that is known, and all without it, are dealt out in turn.
    pub by_thread: bool,
    /// Bound on requests in flight, over all players.
    pub outstanding_max: usize,
    /// The length of the intervals that are reported.
    pub interval: Duration,
    /// For how long requests are issued in a closed loop ([`Pace::Closed`] and [`Pace::Fast`]), whatever is left; in an open one the times of what is due say it.
    pub duration: Option<Duration>,
    /// For how long no request may succeed before the replay is given up.
    pub give_up_after: Duration,
}

/// Why a replay came to no end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplayError<E: std::error::Error + 'static> {
    /// What was to be played could not be prepared.
    #[error(transparent)]
    Feed(E),
    /// It could not be played.
    #[error(transparent)]
    Play(#[from] PlayError),
}

/// Where whoever prepares a replay puts what is due.
pub struct Feed<'a> {
    parts: Vec<(Vec<Due>, SyncSender<Vec<Due>>)>,
    next: usize,
    by_thread: bool,
    stop: &'a AtomicBool,
}

impl Feed<'_> {
    /// Hands on what is due, in order of time, and empties `dues`. Waits while the players have enough. `false` when nobody
    /// wants more.
    pub fn hand_on(&mut self, dues: &mut Vec<Due>) -> bool {
        for due in dues.drain(..) {
            let player = match due.thread {
                ThreadNumber(number @ 1..) if self.by_thread => (usize::from(number) - 1) % self.parts.len(),
                _ => {
                    let next = (self.next + 1) % self.parts.len();
                    std::mem::replace(&mut self.next, next)
                }
            };
            self.parts[player].0.push(due);
            // All players get their parts together, or one with few requests would get them too late.
            let is_full = self.parts[player].0.len() >= PART_REQUESTS;
            if is_full
                && !self.parts.iter_mut().all(|(part, sender)| sender.send(std::mem::take(part)).is_ok())
            {
                return false;
            }
        }
        !self.stop.load(Ordering::Relaxed)
    }
}

/// Plays what `feed` hands on, by one player for each of `targets`: a player and its own connection to the volume. Requests are
/// dealt out in turn, or by thread, so players that check what they read must not share a volume.
///
/// # Errors
/// [`ReplayError`]; what the volume did is in the report.
///
/// # Panics
/// If there is no target.
pub fn replay<E: std::error::Error + Send + 'static>(
    targets: &mut [(Player, Arc<dyn Origin>)],
    feed: impl FnOnce(&mut Feed<'_>) -> Result<(), E> + Send,
    options: ReplayOptions,
    stop: &AtomicBool,
) -> Result<PlayReport, ReplayError<E>> {
    assert!(!targets.is_empty(), "a replay needs a target");
    let outstanding_max = options.outstanding_max.div_ceil(targets.len());
    let (senders, receivers): (Vec<_>, Vec<_>) = targets.iter().map(|_| sync_channel(PARTS_AHEAD)).unzip();
    let (fed, reports) = std::thread::scope(|scope| {
        let feeding = scope.spawn(move || {
            let parts = senders.into_iter().map(|sender| (Vec::new(), sender)).collect();
            let mut outlet = Feed { parts, next: 0, by_thread: options.by_thread, stop };
            let result = feed(&mut outlet);
            for (part, sender) in outlet.parts {
                // A player that has ended wants nothing more.
                let _ = sender.send(part);
            }
            result
        });
        // The first requests are ready before the clock starts.
        let firsts: Vec<Vec<Due>> =
            receivers.iter().map(|receiver| receiver.recv().unwrap_or_default()).collect();
        let start = Instant::now() + if options.pace == Pace::Fast { Duration::ZERO } else { LEAD };
        let play_options = PlayOptions {
            duration: options.duration.filter(|_| options.pace != Pace::Open),
            interval: options.interval,
            start: Some(start),
            give_up_after: options.give_up_after,
        };
        let players: Vec<_> = targets
            .iter_mut()
            .zip(receivers.into_iter().zip(firsts))
            .map(|((player, connection), (parts, first))| {
                scope.spawn(move || {
                    let dues = Parts { parts, part: first.into_iter() };
                    play_part(player, connection, dues, options.pace, outstanding_max, play_options, stop)
                })
            })
            .collect();
        let reports: Vec<Result<PlayReport, PlayError>> =
            players.into_iter().map(|player| player.join().expect("players do not panic")).collect();
        (feeding.join().expect("preparing does not panic"), reports)
    });
    fed.map_err(ReplayError::Feed)?;
    let mut whole: Option<PlayReport> = None;
    for report in reports {
        match (report, &mut whole) {
            // Fewer requests than players: the others have nothing to do.
            (Err(PlayError::Empty), _) => {}
            (Err(error), _) => return Err(error.into()),
            (Ok(report), Some(whole)) => whole.merge(report),
            (Ok(report), none) => *none = Some(report),
        }
    }
    whole.ok_or(ReplayError::Play(PlayError::Empty))
}

fn play_part(
    player: &mut Player,
    connection: &Arc<dyn Origin>,
    mut dues: Parts,
    pace: Pace,
    outstanding_max: usize,
    options: PlayOptions,
    stop: &AtomicBool,
) -> Result<PlayReport, PlayError> {
    let after_wait = match pace {
        Pace::Open => AfterWait::CatchUp,
        Pace::Closed => AfterWait::Shift,
        Pace::Fast => {
            let mut next =
                || dues.next().map(|due: Due| -> (Operation, ByteRange) { (due.operation, due.range) });
            let load = Load::Closed { outstanding: outstanding_max, next: &mut next };
            return player.play(connection, load, options, stop);
        }
    };
    let load = Load::Open { requests: &mut dues, outstanding_max, after_wait };
    player.play(connection, load, options, stop)
}

/// What is due to one player.
struct Parts {
    parts: Receiver<Vec<Due>>,
    part: std::vec::IntoIter<Due>,
}

impl Iterator for Parts {
    type Item = Due;

    fn next(&mut self) -> Option<Due> {
        loop {
            if let Some(due) = self.part.next() {
                return Some(due);
            }
            self.part = self.parts.recv().ok()?.into_iter();
        }
    }
}
