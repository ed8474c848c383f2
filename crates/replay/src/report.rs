//! What a run came to: answers, content, and how faithfully it was issued.

use forebay_units::{ByteRange, Nanos};
use forebay_workload::{LatencyHistogram, LatencySnapshot};
use std::fmt;

/// How many wrong reads are kept in full; all are counted.
pub(crate) const WRONG_KEPT_MAX: usize = 16;

/// From which error of its issue time on a request counts as late (ours).
pub const LATE_FROM: Nanos = Nanos::millis(1);

/// What happened in one interval, by the time of completion.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IntervalReport {
    /// Start of the interval, since the run began.
    pub from: Nanos,
    /// Latencies of successful reads, from their issue to their completion.
    pub reads: LatencySnapshot,
    /// Latencies of successful writes, flushes and discards, from their issue to their completion.
    pub writes: LatencySnapshot,
    /// Bytes read and written.
    pub bytes: u64,
    /// Requests answered with an error.
    pub errors: u64,
}

/// One read whose bytes were not among the allowed ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongContent {
    /// Which bytes were read.
    pub range: ByteRange,
    /// What was wrong with them.
    pub found: String,
}

/// Why a run ended before its load.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GaveUp {
    /// No request succeeded for too long.
    NoSuccess {
        /// For how long.
        after: Nanos,
        /// Requests issued and not answered at that moment.
        outstanding: u64,
    },
    /// The last answers did not come.
    Unanswered {
        /// How long they were waited for.
        after: Nanos,
        /// How many.
        outstanding: u64,
    },
}

impl fmt::Display for GaveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GaveUp::NoSuccess { after, outstanding } => {
                write!(f, "no request succeeded for {after}; {outstanding} were unanswered")
            }
            GaveUp::Unanswered { after, outstanding } => {
                write!(f, "{outstanding} requests were still unanswered {after} after the end")
            }
        }
    }
}

/// How faithfully the times of a load were kept.
///
/// A request's error is the time from when it was due to when it had been handed to the connection, together with
/// those that were due at the same moment: encoding and the system call count. A request is never issued early.
#[derive(Clone, Debug, Default)]
pub struct Fidelity {
    /// Errors of the issue times; a microsecond is the finest that percentiles tell.
    pub issue_error: LatencyHistogram,
    /// Requests issued [`LATE_FROM`] or more after their time.
    pub late: u64,
    /// Requests that had to wait because as many as allowed were in flight.
    pub bound_hit: u64,
    /// How long issuing stood still for that, in all.
    pub bound_waited: Nanos,
    /// Writes that waited for an earlier one to the same sectors, as checked content demands.
    pub held_back: u64,
    /// Of the first request: (when it was due, when it was issued), since the start of the run.
    pub first: Option<(Nanos, Nanos)>,
    /// The same of the last one.
    pub last: Option<(Nanos, Nanos)>,
}

impl Fidelity {
    /// Notes that a request that was recorded for `due`, and moved to `shifted` by waits, had been issued at `issued`; all since
    /// the start of the run.
    pub(crate) fn note(&mut self, due: Nanos, shifted: Nanos, issued: Nanos) {
        let error = issued.saturating_since(shifted);
        self.issue_error.record(error);
        self.late += u64::from(error >= LATE_FROM);
        self.first.get_or_insert((due, issued));
        self.last = Some((due, issued));
    }

    /// How much longer the run took from its first request to its last than it should have: 1.0 is as recorded, 1.081 is
    /// 8.1 % longer. `None` where there are not two requests at different times.
    pub fn stretch(&self) -> Option<f64> {
        let ((first_due, first_issued), (last_due, last_issued)) = (self.first?, self.last?);
        let intended = last_due.saturating_since(first_due).0;
        (intended > 0).then(|| last_issued.saturating_since(first_issued).0 as f64 / intended as f64)
    }

    /// Adds another player's part of the same run.
    pub(crate) fn merge(&mut self, other: &Fidelity) {
        self.issue_error.merge(&other.issue_error);
        self.late += other.late;
        self.bound_hit += other.bound_hit;
        self.bound_waited += other.bound_waited;
        self.held_back += other.held_back;
        self.first = [self.first, other.first].into_iter().flatten().min();
        self.last = [self.last, other.last].into_iter().flatten().max();
    }
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct PlayReport {
    /// Per interval, ascending, without gaps, from the start of the run to the last answer.
    pub intervals: Vec<IntervalReport>,
    /// Latencies of successful reads.
    pub reads: LatencyHistogram,
    /// Latencies of successful writes, flushes and discards.
    pub writes: LatencyHistogram,
    /// Requests answered, with errors too.
    pub requests: u64,
    /// Bytes of reads that were checked.
    pub bytes_checked: u64,
    /// Reads that returned parts of several versions of a sector, because writes to it were under way. They are not wrong.
    pub torn_count: u64,
    /// Reads with a wrong byte.
    pub wrong_count: u64,
    /// The first of them.
    pub wrong: Vec<WrongContent>,
    /// Requests that were answered with an error.
    pub errors: u64,
    /// The first such error, in words.
    pub first_error: Option<String>,
    /// How faithfully the load was issued; without a request for a closed loop, which has no times.
    pub fidelity: Fidelity,
    /// Why the run ended before its load, if it did.
    pub gave_up: Option<GaveUp>,
}

impl PlayReport {
    /// Adds another player's part of the same run.
    pub(crate) fn merge(&mut self, other: PlayReport) {
        for (index, theirs) in other.intervals.into_iter().enumerate() {
            match self.intervals.get_mut(index) {
                Some(ours) => {
                    ours.reads.merge(&theirs.reads);
                    ours.writes.merge(&theirs.writes);
                    ours.bytes += theirs.bytes;
                    ours.errors += theirs.errors;
                }
                None => self.intervals.push(theirs),
            }
        }
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        self.requests += other.requests;
        self.bytes_checked += other.bytes_checked;
        self.torn_count += other.torn_count;
        self.wrong_count += other.wrong_count;
        self.wrong.extend(other.wrong);
        self.wrong.truncate(WRONG_KEPT_MAX);
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.fidelity.merge(&other.fidelity);
        self.gave_up = self.gave_up.take().or(other.gave_up);
    }
}
