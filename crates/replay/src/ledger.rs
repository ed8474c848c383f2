//! What is in flight, and what came of the rest. Completions are settled on the thread that brings them, so that issuing
//! never waits for one.

use crate::progress::Progress;
use crate::report::{IntervalReport, PlayReport, WRONG_KEPT_MAX, WrongContent};
use crate::shadow::Shadow;
use forebay_origin::{CompletionSink, OriginCompletion, OriginError};
use forebay_trace::Operation;
use forebay_units::ByteRange;
use forebay_workload::LatencyHistogram;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// A request that was issued.
pub(crate) struct Outstanding {
    pub(crate) operation: Operation,
    pub(crate) range: ByteRange,
    pub(crate) issued: Instant,
    /// Of a checked read: the lowest version that each of its sectors may have.
    pub(crate) lowest: Vec<u32>,
}

/// The books of one run of one player.
pub(crate) struct Books {
    /// What is known of the volume's content; `None` where nothing is checked.
    pub(crate) shadow: Option<Shadow>,
    /// By request id.
    outstanding: Vec<Option<Outstanding>>,
    free: Vec<usize>,
    start: Instant,
    interval: Duration,
    /// The interval that is being counted; what is over is in the report.
    reads: LatencyHistogram,
    writes: LatencyHistogram,
    current: IntervalReport,
    /// For how long no request may succeed while some are asked.
    patience: Duration,
    /// Since when something was asked and nothing has succeeded.
    unsuccessful_since: Option<Instant>,
    /// Since when nothing that was entered is unanswered, the last of which was answered with an error.
    idle_since: Option<Instant>,
    pub(crate) report: PlayReport,
}

/// The books and who is to be woken about them.
pub(crate) struct Ledger {
    books: Mutex<Books>,
    in_flight: AtomicUsize,
    /// The issuing thread waits for a completion.
    issuer_waits: AtomicBool,
    issuer: Thread,
    progress: Arc<Progress>,
}

impl Books {
    pub(crate) fn new(
        shadow: Option<Shadow>,
        start: Instant,
        interval: Duration,
        patience: Duration,
    ) -> Books {
        Books {
            shadow,
            outstanding: Vec::new(),
            free: Vec::new(),
            start,
            interval: interval.max(Duration::from_millis(1)),
            reads: LatencyHistogram::new(),
            writes: LatencyHistogram::new(),
            current: IntervalReport::default(),
            patience,
            unsuccessful_since: None,
            idle_since: None,
            report: PlayReport::default(),
        }
    }

    /// Enters a request that is about to be issued; its id.
    pub(crate) fn enter(&mut self, request: Outstanding) -> u64 {
        // Of a longer silence nobody knows what would have come of a request in it.
        let was_silent = |idle| request.issued.saturating_duration_since(idle) > self.patience;
        if self.idle_since.take().is_some_and(was_silent) {
            self.unsuccessful_since = None;
        }
        self.unsuccessful_since.get_or_insert(request.issued);
        if let Some(slot) = self.free.pop() {
            self.outstanding[slot] = Some(request);
            return slot as u64;
        }
        self.outstanding.push(Some(request));
        (self.outstanding.len() - 1) as u64
    }

    /// Ends the intervals before `now`.
    fn turn_to(&mut self, now: Instant) {
        let since = now.saturating_duration_since(self.start).as_nanos();
        let slot = (since / self.interval.as_nanos()) as usize;
        while self.report.intervals.len() < slot {
            self.close_interval();
        }
    }

    fn close_interval(&mut self) {
        let next = self.interval.saturating_mul(self.report.intervals.len() as u32 + 1);
        let mut ended = std::mem::take(&mut self.current);
        self.current.from = next.into();
        ended.reads = self.reads.snapshot();
        ended.writes = self.writes.snapshot();
        self.report.reads.merge(&self.reads);
        self.report.writes.merge(&self.writes);
        self.reads.clear();
        self.writes.clear();
        self.report.intervals.push(ended);
    }

    /// Ends the last interval; nothing is settled after that.
    pub(crate) fn close(&mut self) {
        if !(self.reads.is_empty() && self.writes.is_empty() && self.current.errors == 0) {
            self.close_interval();
        }
    }

    fn settle(&mut self, completion: OriginCompletion, now: Instant) -> bool {
        let slot = completion.id.0 as usize;
        let done = self.outstanding[slot].take().expect("every completion answers one request, once");
        self.free.push(slot);
        // Of those entered: what is about to be issued is not in flight yet, and is waited for all the same.
        let is_last = self.free.len() == self.outstanding.len();
        self.turn_to(now);
        self.report.requests += 1;
        match completion.result {
            Ok(data) => {
                self.unsuccessful_since = (!is_last).then_some(now);
                self.idle_since = None;
                let latency = now.saturating_duration_since(done.issued).into();
                let is_read = done.operation == Operation::Read;
                if is_read { &mut self.reads } else { &mut self.writes }.record(latency);
                self.current.bytes += done.range.length;
                self.check(&done, &data);
                true
            }
            Err(error) => {
                self.idle_since = is_last.then_some(now);
                self.fail(&done, &error);
                false
            }
        }
    }

    fn check(&mut self, done: &Outstanding, data: &[u8]) {
        let Some(shadow) = &mut self.shadow else { return };
        match done.operation {
            Operation::Write => shadow.acknowledge_write(done.range),
            Operation::Read => match shadow.check_read(done.range, &done.lowest, data) {
                Ok(checked) => {
                    self.report.bytes_checked += checked.bytes;
                    self.report.torn_count += u64::from(checked.torn > 0);
                }
                Err(found) => {
                    self.report.wrong_count += 1;
                    if self.report.wrong.len() < WRONG_KEPT_MAX {
                        self.report.wrong.push(WrongContent { range: done.range, found });
                    }
                }
            },
            _ => {}
        }
    }

    fn fail(&mut self, done: &Outstanding, error: &OriginError) {
        if let (Operation::Write, Some(shadow)) = (done.operation, &mut self.shadow) {
            shadow.fail_write(done.range);
        }
        self.current.errors += 1;
        self.report.errors += 1;
        self.report.first_error.get_or_insert_with(|| error.to_string());
    }

    /// For how long something was asked and nothing has succeeded: to the last answer where there is an answer to everything.
    pub(crate) fn unsuccessful_for(&self, now: Instant) -> Duration {
        let until = self.idle_since.unwrap_or(now);
        self.unsuccessful_since.map_or(Duration::ZERO, |since| until.saturating_duration_since(since))
    }
}

impl Ledger {
    /// Books whose issuing thread is the current one.
    pub(crate) fn new(books: Books, progress: Arc<Progress>) -> Ledger {
        Ledger {
            books: Mutex::new(books),
            in_flight: AtomicUsize::new(0),
            issuer_waits: AtomicBool::new(false),
            issuer: std::thread::current(),
            progress,
        }
    }

    pub(crate) fn books(&self) -> MutexGuard<'_, Books> {
        // A panic while the books were open is reported by the thread that it ended.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests issued and not answered.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
    }

    /// Counts requests that are about to be issued.
    pub(crate) fn issuing(&self, count: usize) {
        self.in_flight.fetch_add(count, Ordering::SeqCst);
        Progress::add(&self.progress.issued, count as u64);
    }

    /// Waits on the issuing thread until a completion came since `in_flight` was `seen`, or for `wait`; or spuriously.
    pub(crate) fn wait_for_completion(&self, seen: usize, wait: Duration) {
        self.issuer_waits.store(true, Ordering::SeqCst);
        if self.in_flight() == seen {
            std::thread::park_timeout(wait);
        }
        self.issuer_waits.store(false, Ordering::SeqCst);
    }

    /// Likewise, without having looked: any completion from now on ends the wait.
    pub(crate) fn wait(&self, wait: Duration, until_completion: bool) {
        self.issuer_waits.store(until_completion, Ordering::SeqCst);
        std::thread::park_timeout(wait);
        self.issuer_waits.store(false, Ordering::SeqCst);
    }
}

impl CompletionSink for Ledger {
    fn complete(&self, completion: OriginCompletion) {
        let now = Instant::now();
        let mut books = self.books();
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        let succeeded = books.settle(completion, now);
        drop(books);
        Progress::add(if succeeded { &self.progress.answered } else { &self.progress.errors }, 1);
        if self.issuer_waits.load(Ordering::SeqCst) {
            self.issuer.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_origin::OriginRequestId;

    #[test]
    fn what_is_about_to_be_issued_is_waited_for_when_the_last_in_flight_is_answered() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let patience = Duration::from_secs(10);
        for succeeds in [true, false] {
            let mut books = Books::new(None, start, second, patience);
            let enter = |books: &mut Books| {
                let range = ByteRange::new(0, 512);
                books.enter(Outstanding {
                    operation: Operation::Read,
                    range,
                    issued: start,
                    lowest: Vec::new(),
                })
            };
            // The second is in the batch of the issuing thread yet.
            let (first, _) = (enter(&mut books), enter(&mut books));
            let result = if succeeds {
                Ok(Vec::new())
            } else {
                Err(OriginError::Failed { errno: 5, context: "as told".into() })
            };
            books.settle(OriginCompletion { id: OriginRequestId(first), result }, start + second);
            assert!(books.unsuccessful_for(start + 2 * patience) > patience, "{succeeds}");
        }
    }
}
