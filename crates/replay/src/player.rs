//! The player: issues a load at its times, and waits for the last answers.
//!
//! Issuing and receiving are apart: the thread that calls [`Player::play`] issues, and each completion is settled on the
//! thread that brings it. Nothing that completes late makes an issue late, except by the stated bound on requests in flight.

use crate::filler::Filler;
use crate::ledger::{Books, Ledger, Outstanding};
use crate::load::{AfterWait, Due, Load, PlayOptions};
use crate::pace::Pacer;
use crate::progress::Progress;
use crate::report::{Fidelity, GaveUp, PlayReport};
use crate::shadow::Shadow;
use forebay_origin::{CompletionSink, Origin, OriginOperation, OriginRequest, OriginRequestId};
use forebay_trace::Operation;
use forebay_units::{ByteRange, Nanos};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thiserror::Error;

/// How many requests that are due at the same moment are handed to the connection in one call (ours).
const BATCH_MAX: usize = 64;

/// How often a waiting player looks whether it is to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Why a load could not be played to its end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlayError {
    /// A request of the load does not fit the volume.
    #[error(
        "request {index} reads or writes {range:?}, but the volume ends at byte {size_bytes} and is \
         addressed in units of {unit_bytes}"
    )]
    OutsideVolume {
        /// Its place in the load.
        index: u64,
        /// What it asks for.
        range: ByteRange,
        /// The volume's size.
        size_bytes: u64,
        /// The volume's unit; a sector where content is checked.
        unit_bytes: u64,
    },
    /// The load has no request to play.
    #[error("the load is empty: expected at least one read or write")]
    Empty,
}

/// Drives one volume. One that checks keeps its shadow from run to run, because the volume keeps its content.
pub struct Player {
    shadow: Option<Shadow>,
    filler: Filler,
    progress: Arc<Progress>,
}

impl Player {
    /// A player that checks every byte of the volume that `shadow` describes, and holds back writes to sectors that are
    /// being written.
    pub fn new(shadow: Shadow) -> Player {
        Player { shadow: Some(shadow), ..Player::unchecked(0, Arc::default()) }
    }

    /// A player that checks nothing and holds nothing back; writes carry bytes made from `seed`. It counts in `progress`.
    pub fn unchecked(seed: u64, progress: Arc<Progress>) -> Player {
        Player { shadow: None, filler: Filler::new(seed), progress }
    }

    /// The same player, counting in `progress`.
    #[must_use]
    pub fn with_progress(self, progress: Arc<Progress>) -> Player {
        Player { progress, ..self }
    }

    /// The shadow of one that checks, for checks of the whole volume after the runs.
    pub fn shadow(&self) -> Option<&Shadow> {
        self.shadow.as_ref()
    }

    /// Plays `load` through `connection` until it ends, its duration is over, or `stop` is set, and waits for the last answers.
    /// Its thread's timer slack stays at the finest.
    ///
    /// # Errors
    /// [`PlayError`]; wrong content, errors of the server and a run that was given up are no such error, they are in the report.
    pub fn play(
        &mut self,
        connection: &Arc<dyn Origin>,
        load: Load<'_>,
        options: PlayOptions,
        stop: &AtomicBool,
    ) -> Result<PlayReport, PlayError> {
        let start = options.start.unwrap_or_else(Instant::now);
        let traits = connection.traits();
        let (unit_bytes, size_bytes) = match &self.shadow {
            Some(shadow) => (u64::from(traits.block_size_min).max(512), shadow.size_bytes()),
            None => (u64::from(traits.block_size_min), traits.size_bytes),
        };
        let books = Books::new(self.shadow.take(), start, options.interval, options.give_up_after);
        let ledger = Arc::new(Ledger::new(books, Arc::clone(&self.progress)));
        let mut run = Run {
            is_checked: ledger.books().shadow.is_some(),
            filler: &mut self.filler,
            connection,
            sink: Arc::clone(&ledger) as Arc<dyn CompletionSink>,
            ledger: &ledger,
            start,
            end: options.duration.map(|duration| start + duration),
            give_up_after: options.give_up_after,
            stop,
            unit_bytes,
            size_bytes,
            issued: 0,
            held: VecDeque::new(),
            batch: Vec::with_capacity(BATCH_MAX),
            fidelity: Fidelity::default(),
            gave_up: None,
        };
        let result = match load {
            Load::Open { requests, outstanding_max, after_wait } => {
                run.play_open(requests, outstanding_max.max(1), after_wait)
            }
            Load::Closed { outstanding, next } => run.play_closed(outstanding.max(1), next),
        };
        run.issue_batch();
        run.drain();
        let (fidelity, gave_up) = (run.fidelity, run.gave_up);
        let mut books = ledger.books();
        books.close();
        self.shadow = books.shadow.take();
        let report = std::mem::take(&mut books.report);
        result.map(|()| PlayReport { fidelity, gave_up, ..report })
    }
}

/// One run of a load.
struct Run<'a> {
    is_checked: bool,
    filler: &'a mut Filler,
    connection: &'a Arc<dyn Origin>,
    sink: Arc<dyn CompletionSink>,
    ledger: &'a Ledger,
    start: Instant,
    end: Option<Instant>,
    give_up_after: Duration,
    stop: &'a AtomicBool,
    unit_bytes: u64,
    size_bytes: u64,
    issued: u64,
    /// Writes that wait for an earlier one to the same sectors; what comes after them does not wait.
    held: VecDeque<Held>,
    batch: Vec<OriginRequest>,
    fidelity: Fidelity,
    gave_up: Option<GaveUp>,
}

/// A write that waits.
struct Held {
    /// When it was due: as recorded, and as moved by waits; nothing in a closed loop, which has no times.
    due: Option<(Nanos, Nanos)>,
    range: ByteRange,
}

impl Run<'_> {
    fn play_open(
        &mut self,
        requests: &mut (dyn Iterator<Item = Due> + Send),
        outstanding_max: usize,
        after_wait: AfterWait,
    ) -> Result<(), PlayError> {
        let pacer = Pacer::for_this_thread();
        let mut next = requests.next();
        if next.is_none() {
            return Err(PlayError::Empty);
        }
        // By how much all later requests are moved.
        let mut shift = Nanos::ZERO;
        let mut times: Vec<(Nanos, Nanos)> = Vec::with_capacity(BATCH_MAX);
        while let Some(first) = next {
            let at = first.at.saturating_add(shift);
            if !self.wait_until(&pacer, at) {
                return Ok(());
            }
            let waited = self.wait_for_room(outstanding_max);
            if after_wait == AfterWait::Shift {
                shift = shift.saturating_add(waited);
            }
            if self.is_over() {
                return Ok(());
            }
            let now = Instant::now();
            let since_start: Nanos = now.saturating_duration_since(self.start).into();
            let room = outstanding_max.saturating_sub(self.ledger.in_flight() + self.held.len()).max(1);
            times.clear();
            while let Some(due) = next {
                let at = due.at.saturating_add(shift);
                if at > since_start || times.len() >= room.min(BATCH_MAX) {
                    break;
                }
                self.check_fits(due.range)?;
                self.issued += 1;
                if due.operation == Operation::Write && self.must_wait(due.range) {
                    self.fidelity.held_back += 1;
                    self.held.push_back(Held { due: Some((due.at, at)), range: due.range });
                } else {
                    self.enter(due.operation, due.range, now);
                    times.push((due.at, at));
                }
                next = requests.next();
            }
            self.issue_batch();
            let issued = Instant::now().saturating_duration_since(self.start).into();
            for (due, shifted) in times.drain(..) {
                self.fidelity.note(due, shifted, issued);
            }
        }
        Ok(())
    }

    fn play_closed(
        &mut self,
        outstanding: usize,
        next: &mut (dyn FnMut() -> Option<(Operation, ByteRange)> + Send),
    ) -> Result<(), PlayError> {
        while !self.is_over() {
            self.release();
            let now = Instant::now();
            let in_flight = self.ledger.in_flight();
            let mut is_at_end = false;
            while in_flight + self.batch.len() + self.held.len() < outstanding {
                let Some((operation, range)) = next() else {
                    is_at_end = true;
                    break;
                };
                self.check_fits(range)?;
                self.issued += 1;
                if operation == Operation::Write && self.must_wait(range) {
                    // The client whose write it is waits with it; the others do not.
                    self.fidelity.held_back += 1;
                    self.held.push_back(Held { due: None, range });
                } else {
                    self.enter(operation, range, now);
                }
            }
            self.issue_batch();
            if is_at_end {
                return if self.issued == 0 { Err(PlayError::Empty) } else { Ok(()) };
            }
            let seen = self.ledger.in_flight();
            // One that is held waits for a write that is in flight.
            if seen > 0 && seen + self.held.len() >= outstanding {
                self.ledger.wait_for_completion(seen, LOOK_EVERY);
            }
        }
        Ok(())
    }

    fn check_fits(&self, range: ByteRange) -> Result<(), PlayError> {
        let whole =
            range.offset.is_multiple_of(self.unit_bytes) && range.length.is_multiple_of(self.unit_bytes);
        if whole && range.end() <= self.size_bytes {
            return Ok(());
        }
        let (size_bytes, unit_bytes) = (self.size_bytes, self.unit_bytes);
        Err(PlayError::OutsideVolume { index: self.issued, range, size_bytes, unit_bytes })
    }

    /// Whether nothing more is to be issued.
    fn is_over(&mut self) -> bool {
        self.gave_up.is_some()
            || self.stop.load(Ordering::Relaxed)
            || self.end.is_some_and(|end| Instant::now() >= end)
            || self.has_given_up()
    }

    fn has_given_up(&mut self) -> bool {
        let is_hopeless = self.ledger.books().unsuccessful_for(Instant::now()) > self.give_up_after;
        if is_hopeless && self.gave_up.is_none() {
            let outstanding = self.ledger.in_flight() as u64;
            self.gave_up = Some(GaveUp::NoSuccess { after: self.give_up_after.into(), outstanding });
        }
        is_hopeless
    }

    /// Waits until `at` after the start; `false` if the run is over before that.
    fn wait_until(&mut self, pacer: &Pacer, at: Nanos) -> bool {
        let Some(mut due) = self.start.checked_add(at.into()) else { return false };
        let mut is_issued = true;
        if let Some(end) = self.end.filter(|end| due >= *end) {
            // Not before its time: who prepares for several players takes one that has ended for the end of all.
            (due, is_issued) = (end, false);
        }
        let mut looked = Instant::now();
        loop {
            let now = pacer.wait(due.min(looked + LOOK_EVERY), self.ledger, !self.held.is_empty());
            self.release();
            if now >= due {
                return is_issued;
            }
            if now >= looked + LOOK_EVERY {
                looked = now;
                if self.is_over() {
                    return false;
                }
            }
        }
    }

    /// Waits while as many requests as allowed are in flight; how long that took.
    fn wait_for_room(&mut self, outstanding_max: usize) -> Nanos {
        let is_full = |run: &Run<'_>| run.ledger.in_flight() + run.held.len() >= outstanding_max;
        if !is_full(self) {
            return Nanos::ZERO;
        }
        let began = Instant::now();
        self.fidelity.bound_hit += 1;
        while is_full(self) && !self.is_over() {
            let seen = self.ledger.in_flight();
            self.ledger.wait_for_completion(seen, LOOK_EVERY);
            self.release();
        }
        let waited = began.elapsed().into();
        self.fidelity.bound_waited = self.fidelity.bound_waited.saturating_add(waited);
        waited
    }

    /// Adds a request to the batch.
    fn enter(&mut self, operation: Operation, range: ByteRange, now: Instant) {
        let mut books = self.ledger.books();
        let mut lowest = Vec::new();
        let origin_operation = match operation {
            Operation::Write => OriginOperation::Write {
                offset: range.offset,
                data: match &mut books.shadow {
                    Some(shadow) => shadow.submit_write(range),
                    None => self.filler.bytes(range.length),
                },
                fua: false,
            },
            Operation::Flush => OriginOperation::Flush,
            Operation::Discard => OriginOperation::Trim { range, fua: false },
            Operation::Read | Operation::Other => {
                if let Some(shadow) = &books.shadow {
                    lowest = shadow.submit_read(range);
                }
                OriginOperation::Read { range }
            }
        };
        let id = books.enter(Outstanding { operation, range, issued: now, lowest });
        drop(books);
        self.batch.push(OriginRequest { id: OriginRequestId(id), operation: origin_operation });
    }

    fn issue_batch(&mut self) {
        if !self.batch.is_empty() {
            self.ledger.issuing(self.batch.len());
            self.connection.submit_all(&mut self.batch.drain(..), &self.sink);
        }
    }

    /// Whether a write to `range` would overtake or meet an earlier write to one of its sectors.
    fn must_wait(&self, range: ByteRange) -> bool {
        self.is_checked
            && (self.held.iter().any(|held| held.range.overlaps(range))
                || self.ledger.books().shadow.as_ref().is_some_and(|shadow| shadow.is_written(range)))
    }

    /// Issues the held writes whose turn has come, in their order.
    fn release(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut dues = Vec::new();
        for held in std::mem::take(&mut self.held) {
            // Those that wait on stand in `held` again.
            if self.must_wait(held.range) {
                self.held.push_back(held);
            } else {
                self.enter(Operation::Write, held.range, now);
                dues.extend(held.due);
            }
        }
        self.issue_batch();
        let issued = Instant::now().saturating_duration_since(self.start).into();
        dues.into_iter().for_each(|(due, shifted)| self.fidelity.note(due, shifted, issued));
    }

    /// Waits for the last answers.
    fn drain(&mut self) {
        let deadline = Instant::now() + self.give_up_after;
        loop {
            self.release();
            let outstanding = self.ledger.in_flight();
            if self.gave_up.is_some() || (outstanding == 0 && self.held.is_empty()) {
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let outstanding = (outstanding + self.held.len()) as u64;
                self.gave_up = Some(GaveUp::Unanswered { after: self.give_up_after.into(), outstanding });
                return;
            }
            self.ledger.wait_for_completion(outstanding, left.min(LOOK_EVERY));
        }
    }
}

#[cfg(test)]
#[path = "player_tests.rs"]
mod tests;
