//! The player: submits a load at its times, checks what comes back, and keeps count per interval.

use crate::shadow::Shadow;
use forebay_origin::{
    CompletionSink, Origin, OriginCompletion, OriginError, OriginOperation, OriginRequest, OriginRequestId,
};
use forebay_trace::{Operation, Request};
use forebay_units::{ByteRange, Nanos};
use forebay_workload::LatencyHistogram;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use thiserror::Error;

/// How many wrong reads are kept in full; all are counted.
const WRONG_KEPT_MAX: usize = 16;

/// How long after the end of a phase the last replies may take before the connection counts as dead.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// What is played.
pub enum Load<'a> {
    /// Open loop: each request at its time, whatever the others do, with at most `outstanding_max` in flight.
    Trace {
        /// In time order; ranges beyond the volume, flushes apart, are an error before anything is played.
        requests: &'a [Request],
        /// 2.0 plays twice as fast.
        speed: f64,
        /// Begin again at the end, until the phase ends.
        repeat: bool,
        /// Bound on requests in flight; a request that has to wait for it is late, and lateness is reported.
        outstanding_max: usize,
    },
    /// Closed loop: always `outstanding` requests in flight.
    Closed {
        /// How many clients, each with one request in flight.
        outstanding: usize,
        /// What the next request is: an operation that is a read or a write, and its whole sectors.
        next: &'a mut (dyn FnMut() -> (Operation, ByteRange) + Send),
    },
}

/// How it is played.
#[derive(Clone, Copy, Debug)]
pub struct PlayOptions {
    /// How long new requests are submitted.
    pub duration: Duration,
    /// The length of the intervals that are reported.
    pub interval: Duration,
}

/// What happened in one interval, by the time of completion.
#[derive(Clone, Debug)]
pub struct IntervalReport {
    /// Start of the interval, since the phase began.
    pub from: Nanos,
    /// Latencies of reads, from submission to completion.
    pub reads: LatencyHistogram,
    /// Latencies of writes and flushes, from submission to completion.
    pub writes: LatencyHistogram,
    /// Bytes read and written.
    pub bytes: u64,
}

/// One read whose bytes were not among the allowed ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongContent {
    /// Which bytes were read.
    pub range: ByteRange,
    /// What was wrong with them.
    pub found: String,
}

/// What a phase came to.
#[derive(Clone, Debug)]
pub struct PlayReport {
    /// Per interval, ascending.
    pub intervals: Vec<IntervalReport>,
    /// Requests completed.
    pub requests: u64,
    /// Bytes of reads that were checked.
    pub bytes_checked: u64,
    /// Reads with a wrong byte.
    pub wrong_count: u64,
    /// The first of them.
    pub wrong: Vec<WrongContent>,
    /// Requests that the server answered with an error.
    pub errors: u64,
    /// The first such error, in words.
    pub first_error: Option<String>,
    /// How late requests of an open loop were submitted.
    pub lateness: LatencyHistogram,
}

/// Why a phase could not be played to its end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlayError {
    /// A request of the load does not fit the volume.
    #[error(
        "request {index} reads or writes {range:?}, but the volume has whole sectors up to byte {size_bytes}"
    )]
    OutsideVolume {
        /// Its place in the load.
        index: usize,
        /// What it asks for.
        range: ByteRange,
        /// The volume's size.
        size_bytes: u64,
    },
    /// The load has no request to play.
    #[error("the load is empty: expected at least one read or write")]
    Empty,
    /// Replies stopped coming.
    #[error("{outstanding} requests were still unanswered {seconds} s after the end of the phase")]
    Stuck {
        /// How many.
        outstanding: usize,
        /// How long was waited.
        seconds: u64,
    },
}

struct ChannelSink(Mutex<Sender<OriginCompletion>>);

impl CompletionSink for ChannelSink {
    fn complete(&self, completion: OriginCompletion) {
        // The receiver outlives the phase unless the phase was given up; then nobody wants the answer.
        let _ = self.0.lock().expect("no panic while sending").send(completion);
    }
}

struct Outstanding {
    operation: Operation,
    range: ByteRange,
    submitted: Instant,
    lowest: Vec<u32>,
}

/// Drives one volume; keeps its shadow from phase to phase, because the volume keeps its content.
pub struct Player {
    shadow: Shadow,
    next_id: u64,
}

struct Phase<'a> {
    shadow: &'a mut Shadow,
    next_id: &'a mut u64,
    connection: &'a Arc<dyn Origin>,
    sink: Arc<dyn CompletionSink>,
    completions: Receiver<OriginCompletion>,
    outstanding: BTreeMap<u64, Outstanding>,
    started: Instant,
    interval: Duration,
    report: PlayReport,
}

impl Player {
    /// A player for the volume that `shadow` describes.
    pub fn new(shadow: Shadow) -> Player {
        Player { shadow, next_id: 0 }
    }

    /// The shadow, for checks of the whole volume after the phases.
    pub fn shadow(&self) -> &Shadow {
        &self.shadow
    }

    /// Plays `load` through `connection` until its duration is over or `stop` is set, and waits for the last replies.
    ///
    /// # Errors
    /// [`PlayError`]; wrong content and errors of the server are no such error, they are in the report.
    pub fn play(
        &mut self,
        connection: &Arc<dyn Origin>,
        load: Load<'_>,
        options: PlayOptions,
        stop: &AtomicBool,
    ) -> Result<PlayReport, PlayError> {
        let (sender, completions) = channel();
        let mut phase = Phase {
            shadow: &mut self.shadow,
            next_id: &mut self.next_id,
            connection,
            sink: Arc::new(ChannelSink(Mutex::new(sender))),
            completions,
            outstanding: BTreeMap::new(),
            started: Instant::now(),
            interval: options.interval,
            report: PlayReport {
                intervals: Vec::new(),
                requests: 0,
                bytes_checked: 0,
                wrong_count: 0,
                wrong: Vec::new(),
                errors: 0,
                first_error: None,
                lateness: LatencyHistogram::new(),
            },
        };
        let end = phase.started + options.duration;
        match load {
            Load::Trace { requests, speed, repeat, outstanding_max } => {
                phase.play_trace(requests, speed, repeat, outstanding_max, end, stop)?;
            }
            Load::Closed { outstanding, next } => phase.play_closed(outstanding, next, end, stop)?,
        }
        phase.drain()?;
        Ok(phase.report)
    }
}

impl Phase<'_> {
    fn check_fits(&self, index: usize, range: ByteRange) -> Result<(), PlayError> {
        let size_bytes = self.shadow.size_bytes();
        let whole = range.offset.is_multiple_of(512) && range.length.is_multiple_of(512);
        if whole && range.end() <= size_bytes {
            Ok(())
        } else {
            Err(PlayError::OutsideVolume { index, range, size_bytes })
        }
    }

    fn play_trace(
        &mut self,
        requests: &[Request],
        speed: f64,
        repeat: bool,
        outstanding_max: usize,
        end: Instant,
        stop: &AtomicBool,
    ) -> Result<(), PlayError> {
        for (index, request) in requests.iter().enumerate() {
            self.check_fits(index, request.range())?;
        }
        let playable = |request: &&Request| {
            request.operation == Operation::Flush
                || (request.length > 0 && matches!(request.operation, Operation::Read | Operation::Write))
        };
        let playable: Vec<&Request> = requests.iter().filter(playable).collect();
        let (Some(first), Some(last)) = (playable.first(), playable.last()) else {
            return Err(PlayError::Empty);
        };
        let lap = Nanos(((last.time.saturating_since(first.time).0 + 1_000_000) as f64 / speed) as u64);
        let mut lap_start = self.started;
        // Writes that wait for an earlier one to the same sectors; what comes after them does not wait.
        let mut held_back = VecDeque::new();
        loop {
            for request in &playable {
                let offset = request.time.saturating_since(first.time).0 as f64 / speed;
                let due = lap_start + Duration::from_nanos(offset as u64);
                if due >= end || stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                self.settle_until(due, &mut held_back);
                while self.outstanding.len() + held_back.len() >= outstanding_max && Instant::now() < end {
                    self.settle_one(end.saturating_duration_since(Instant::now()));
                    self.release(&mut held_back);
                }
                if Instant::now() >= end {
                    return Ok(());
                }
                let (operation, range) = (request.operation, request.range());
                if operation == Operation::Write && self.must_wait(range, &held_back) {
                    held_back.push_back((due, range));
                } else {
                    self.submit_due(due, operation, range);
                }
            }
            if !repeat {
                while !held_back.is_empty() && Instant::now() < end {
                    self.settle_one(end.saturating_duration_since(Instant::now()));
                    self.release(&mut held_back);
                }
                return Ok(());
            }
            lap_start += Duration::from(lap);
        }
    }

    fn play_closed(
        &mut self,
        outstanding: usize,
        next: &mut (dyn FnMut() -> (Operation, ByteRange) + Send),
        end: Instant,
        stop: &AtomicBool,
    ) -> Result<(), PlayError> {
        if outstanding == 0 {
            return Err(PlayError::Empty);
        }
        let mut held_back = VecDeque::new();
        let mut index = 0;
        while Instant::now() < end && !stop.load(Ordering::Relaxed) {
            while self.outstanding.len() < outstanding {
                let (operation, range) = held_back.pop_front().unwrap_or_else(&mut *next);
                self.check_fits(index, range)?;
                if operation == Operation::Write && self.shadow.is_written(range) {
                    // Its turn comes when the write before it is answered.
                    held_back.push_back((operation, range));
                    break;
                }
                index += 1;
                self.submit(operation, range);
            }
            self.settle_one(end.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }

    fn submit(&mut self, operation: Operation, range: ByteRange) {
        let id = *self.next_id;
        *self.next_id += 1;
        let mut lowest = Vec::new();
        let request = match operation {
            Operation::Write => OriginOperation::Write {
                offset: range.offset,
                data: self.shadow.submit_write(range),
                fua: false,
            },
            Operation::Flush => OriginOperation::Flush,
            _ => {
                lowest = self.shadow.submit_read(range);
                OriginOperation::Read { range }
            }
        };
        self.outstanding.insert(id, Outstanding { operation, range, submitted: Instant::now(), lowest });
        self.connection.submit(OriginRequest { id: OriginRequestId(id), operation: request }, &self.sink);
    }

    fn submit_due(&mut self, due: Instant, operation: Operation, range: ByteRange) {
        self.report.lateness.record(Instant::now().saturating_duration_since(due).into());
        self.submit(operation, range);
    }

    /// Whether a write to `range` would overtake or meet an earlier write to one of its sectors.
    fn must_wait(&self, range: ByteRange, held_back: &VecDeque<(Instant, ByteRange)>) -> bool {
        self.shadow.is_written(range) || held_back.iter().any(|(_, earlier)| earlier.overlaps(range))
    }

    /// Submits the writes whose turn has come, in their order.
    fn release(&mut self, held_back: &mut VecDeque<(Instant, ByteRange)>) {
        let mut waiting = VecDeque::with_capacity(held_back.len());
        for (due, range) in held_back.drain(..) {
            if self.must_wait(range, &waiting) {
                waiting.push_back((due, range));
            } else {
                self.submit_due(due, Operation::Write, range);
            }
        }
        *held_back = waiting;
    }

    /// Takes completions until `due`.
    fn settle_until(&mut self, due: Instant, held_back: &mut VecDeque<(Instant, ByteRange)>) {
        // Also when `due` is over: a load that is late must not leave answers lying.
        while let Ok(completion) = self.completions.try_recv() {
            self.settle(completion);
        }
        self.release(held_back);
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.settle_one(left);
            self.release(held_back);
        }
    }

    /// Takes one completion, or returns after `wait`.
    fn settle_one(&mut self, wait: Duration) {
        match self.completions.recv_timeout(wait) {
            Ok(completion) => self.settle(completion),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => unreachable!("the phase holds a sender"),
        }
    }

    fn settle(&mut self, completion: OriginCompletion) {
        let now = Instant::now();
        let done =
            self.outstanding.remove(&completion.id.0).expect("every completion answers one request, once");
        let slot = (now.duration_since(self.started).as_nanos() / self.interval.as_nanos().max(1)) as usize;
        while self.report.intervals.len() <= slot {
            let from = self.interval * self.report.intervals.len() as u32;
            self.report.intervals.push(IntervalReport {
                from: from.into(),
                reads: LatencyHistogram::new(),
                writes: LatencyHistogram::new(),
                bytes: 0,
            });
        }
        let interval = &mut self.report.intervals[slot];
        self.report.requests += 1;
        let latency = now.duration_since(done.submitted).into();
        if done.operation == Operation::Read { &mut interval.reads } else { &mut interval.writes }
            .record(latency);
        match completion.result {
            Ok(data) => {
                interval.bytes += done.range.length;
                if done.operation == Operation::Write {
                    self.shadow.acknowledge_write(done.range);
                } else if done.operation == Operation::Read {
                    self.report.bytes_checked += done.range.length;
                    if let Err(found) = self.shadow.check_read(done.range, &done.lowest, &data) {
                        self.report.wrong_count += 1;
                        if self.report.wrong.len() < WRONG_KEPT_MAX {
                            self.report.wrong.push(WrongContent { range: done.range, found });
                        }
                    }
                }
            }
            Err(error) => self.fail(done, &error),
        }
    }

    fn fail(&mut self, done: Outstanding, error: &OriginError) {
        if done.operation == Operation::Write {
            self.shadow.fail_write(done.range);
        }
        self.report.errors += 1;
        self.report
            .first_error
            .get_or_insert_with(|| format!("{:?} of {:?}: {error}", done.operation, done.range));
    }

    fn drain(&mut self) -> Result<(), PlayError> {
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        while !self.outstanding.is_empty() {
            if Instant::now() >= deadline {
                let outstanding = self.outstanding.len();
                return Err(PlayError::Stuck { outstanding, seconds: DRAIN_TIMEOUT.as_secs() });
            }
            self.settle_one(Duration::from_millis(100));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Content;
    use forebay_origin::OriginTraits;
    use forebay_trace::VolumeIndex;

    /// Answers at once from memory; can be told to lose every third write or to answer it with an error.
    struct MemoryVolume {
        bytes: Mutex<Vec<u8>>,
        writes: std::sync::atomic::AtomicU64,
        fault: Fault,
    }

    #[derive(PartialEq)]
    enum Fault {
        None,
        LosesWrites,
        FailsWrites,
    }

    impl MemoryVolume {
        fn holding(shadow: &Shadow, fault: Fault) -> Arc<dyn Origin> {
            let mut bytes = vec![0; shadow.size_bytes() as usize];
            for (sector, bytes) in bytes.chunks_exact_mut(SECTOR).enumerate() {
                shadow.content().fill_sector(sector as u64, 0, bytes);
            }
            Arc::new(MemoryVolume { bytes: Mutex::new(bytes), writes: Default::default(), fault })
        }
    }

    const SECTOR: usize = crate::SECTOR_BYTES;

    impl Origin for MemoryVolume {
        fn traits(&self) -> OriginTraits {
            OriginTraits {
                size_bytes: self.bytes.lock().unwrap().len() as u64,
                read_only: false,
                block_size_min: 1,
                block_size_preferred: 4096,
                request_bytes_max: 1 << 25,
                can_trim: false,
                can_fast_zero: false,
                can_multi_conn: true,
            }
        }

        fn submit(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
            let mut bytes = self.bytes.lock().unwrap();
            let range = request.operation.range();
            let result = match request.operation {
                OriginOperation::Read { .. } => {
                    Ok(bytes[range.offset as usize..range.end() as usize].to_vec())
                }
                OriginOperation::Write { data, .. } => {
                    let faulty = self.writes.fetch_add(1, Ordering::Relaxed) % 3 == 2;
                    if !(faulty && self.fault == Fault::LosesWrites) {
                        bytes[range.offset as usize..range.end() as usize].copy_from_slice(&data);
                    }
                    if faulty && self.fault == Fault::FailsWrites {
                        Err(OriginError::Failed { errno: 5, context: "as told".into() })
                    } else {
                        Ok(Vec::new())
                    }
                }
                _ => Ok(Vec::new()),
            };
            sink.complete(OriginCompletion { id: request.id, result });
        }

        fn describe(&self) -> String {
            "memory".into()
        }
    }

    fn play_closed(fault: Fault) -> PlayReport {
        let shadow = Shadow::new(Content::new(1), 64 * 4096);
        let connection = MemoryVolume::holding(&shadow, fault);
        let mut player = Player::new(shadow);
        let mut state = 0u64;
        let stop = AtomicBool::new(false);
        let mut next = || {
            state += 1;
            if state >= 2_000 {
                stop.store(true, Ordering::Relaxed);
            }
            let random = forebay_units::mix64(state);
            let operation = if random.is_multiple_of(3) { Operation::Write } else { Operation::Read };
            (operation, ByteRange::new((random >> 8) % 63 * 4096, if random & 8 == 0 { 4096 } else { 8192 }))
        };
        let load = Load::Closed { outstanding: 8, next: &mut next };
        let options = PlayOptions { duration: Duration::from_secs(60), interval: Duration::from_secs(1) };
        player.play(&connection, load, options, &stop).unwrap()
    }

    #[test]
    fn an_honest_volume_passes_and_every_byte_is_checked() {
        let report = play_closed(Fault::None);
        assert!(report.requests >= 2_000 && report.errors == 0 && report.wrong_count == 0);
        assert!(report.bytes_checked > 1_000 * 4096);
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
    }

    #[test]
    fn a_trace_is_played_in_order_and_what_does_not_fit_is_refused() {
        let request = |micros, operation, offset, length| Request {
            time: Nanos::micros(micros),
            offset,
            length,
            latency: Nanos::MAX,
            volume: VolumeIndex(0),
            operation,
        };
        let shadow = Shadow::new(Content::new(1), 64 * 4096);
        let connection = MemoryVolume::holding(&shadow, Fault::None);
        let mut player = Player::new(shadow);
        let options = PlayOptions { duration: Duration::from_secs(60), interval: Duration::from_secs(1) };
        let stop = AtomicBool::new(false);
        let mut requests = vec![
            request(500, Operation::Write, 512, 1024),
            request(500, Operation::Flush, 0, 0),
            request(900, Operation::Discard, 0, 4096),
            request(1_000, Operation::Read, 0, 4096),
        ];
        let mut play = |requests: &[Request]| {
            let load = Load::Trace { requests, speed: 1.0, repeat: false, outstanding_max: 4 };
            player.play(&connection, load, options, &stop)
        };
        // The discard is not played: its outcome could not be checked.
        let report = play(&requests).unwrap();
        assert_eq!((report.requests, report.bytes_checked, report.wrong_count), (3, 4096, 0));
        assert_eq!(report.lateness.count(), 3);
        requests.push(request(2_000, Operation::Read, 63 * 4096, 8192));
        assert!(matches!(play(&requests), Err(PlayError::OutsideVolume { index: 4, .. })));
        assert!(matches!(play(&[]), Err(PlayError::Empty)));
    }

    /// Answers from memory, but a write only once a read was submitted after it.
    struct WritesWaitForReads {
        memory: Arc<dyn Origin>,
        waiting: Mutex<Vec<(OriginRequest, Arc<dyn CompletionSink>)>>,
    }

    impl Origin for WritesWaitForReads {
        fn traits(&self) -> OriginTraits {
            self.memory.traits()
        }

        fn submit(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
            if request.operation.changes_content() {
                return self.waiting.lock().unwrap().push((request, Arc::clone(sink)));
            }
            self.memory.submit(request, sink);
            for (request, sink) in self.waiting.lock().unwrap().drain(..) {
                self.memory.submit(request, &sink);
            }
        }

        fn describe(&self) -> String {
            self.memory.describe()
        }
    }

    #[test]
    fn a_write_that_must_wait_holds_nothing_else_up() {
        let request = |micros, operation, offset| Request {
            time: Nanos::micros(micros),
            offset,
            length: 4096,
            latency: Nanos::MAX,
            volume: VolumeIndex(0),
            operation,
        };
        let shadow = Shadow::new(Content::new(1), 64 * 4096);
        let memory = MemoryVolume::holding(&shadow, Fault::None);
        let connection: Arc<dyn Origin> =
            Arc::new(WritesWaitForReads { memory, waiting: Mutex::new(Vec::new()) });
        let mut player = Player::new(shadow);
        // The second write waits for the first, whose answer waits for the read, which must not wait for the second. The
        // third overlaps the second alone and must not overtake it. The last read lets the second complete, the next the third.
        let requests = [
            request(0, Operation::Write, 0),
            request(10, Operation::Write, 0),
            request(20, Operation::Write, 0),
            request(30, Operation::Read, 8192),
            request(20_000, Operation::Read, 8192),
            request(40_000, Operation::Read, 0),
        ];
        let load = Load::Trace { requests: &requests, speed: 1.0, repeat: false, outstanding_max: 8 };
        let options = PlayOptions { duration: Duration::from_secs(60), interval: Duration::from_secs(1) };
        let report = player.play(&connection, load, options, &AtomicBool::new(false)).unwrap();
        assert_eq!((report.requests, report.wrong_count, report.errors), (6, 0, 0), "{:?}", report.wrong);
        // All three writes were made, in their order: version 3 is what the sector holds.
        assert_eq!(player.shadow().submit_read(ByteRange::new(0, 512)), [3]);
    }
}
