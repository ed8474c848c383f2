//! What is played, and how: plain data.

use forebay_trace::{Operation, Request, ThreadNumber};
use forebay_units::{ByteRange, Nanos};
use std::time::{Duration, Instant};

/// A request of a load, and when it is to be issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Since the start of the run; ascending within a load.
    pub at: Nanos,
    /// A read, a write, a flush or a discard.
    pub operation: Operation,
    /// Which bytes; empty for a flush.
    pub range: ByteRange,
    /// Whose request it was.
    pub thread: ThreadNumber,
}

impl Due {
    /// `requests` at their times, counted from the first one, `speed` times as fast, up to `duration` where one is given.
    /// Only reads, writes and flushes are taken, and only those that touch a byte or are flushes.
    pub fn recorded(
        requests: &[Request],
        speed: f64,
        duration: Option<Nanos>,
    ) -> impl Iterator<Item = Due> + Send + '_ {
        let is_playable = |request: &&Request| match request.operation {
            Operation::Flush => true,
            Operation::Read | Operation::Write => request.length > 0,
            Operation::Discard | Operation::Other => false,
        };
        let playable = requests.iter().filter(is_playable);
        let first = playable.clone().next().map_or(Nanos::ZERO, |request| request.time);
        playable
            .map(move |request| Due {
                at: Nanos((request.time.saturating_since(first).0 as f64 / speed) as u64),
                operation: request.operation,
                range: request.range(),
                thread: request.thread,
            })
            .take_while(move |due| duration.is_none_or(|duration| due.at < duration))
    }
}

/// What is played.
pub enum Load<'a> {
    /// Each request at its time, whatever became of those before it.
    Open {
        /// In time order.
        requests: &'a mut (dyn Iterator<Item = Due> + Send),
        /// Bound on requests in flight, at least 1; a request that has to wait for room is late, counted, and reported.
        outstanding_max: usize,
        /// What a wait for room does to the requests after it.
        after_wait: AfterWait,
    },
    /// Closed loop: always `outstanding` requests in flight, without regard to time.
    Closed {
        /// How many clients, each with one request in flight; at least 1.
        outstanding: usize,
        /// The next request, or the end.
        next: &'a mut (dyn FnMut() -> Option<(Operation, ByteRange)> + Send),
    },
}

/// What happens to the times of later requests when one had to wait for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterWait {
    /// They keep them: an open loop, that catches up.
    CatchUp,
    /// They are moved by the wait: the recorded gaps between requests stay, as between those of a client that waits.
    Shift,
}

/// How it is played.
#[derive(Clone, Copy, Debug)]
pub struct PlayOptions {
    /// How long new requests are issued; `None`: to the end of the load.
    pub duration: Option<Duration>,
    /// The length of the intervals that are reported.
    pub interval: Duration,
    /// When the run begins; `None`: now. Several players that share a run share it.
    pub start: Option<Instant>,
    /// For how long no request may succeed, while some are asked, before the run is given up. Also how long the last answers are
    /// waited for.
    pub give_up_after: Duration,
}

impl PlayOptions {
    /// For `duration`, reported by `interval`, beginning now, given up after 30 s without an answer.
    pub fn for_duration(duration: Duration, interval: Duration) -> PlayOptions {
        PlayOptions {
            duration: Some(duration),
            interval,
            start: None,
            give_up_after: Duration::from_secs(30),
        }
    }
}
