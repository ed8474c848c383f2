//! A layer over an origin that records every request which passes it, without ever waiting for the file.
//!
//! Requests go to a writer thread over a bounded queue. What does not fit is dropped and counted, and a recording with drops is
//! a failure: a trace with holes would give wrong curves. The recording is in order of submission, with the latency of each
//! request; a request whose answer does not come within the bound is written without.
//!
//! It is *not* the client's own view where the data path changes requests: see [`super`] for what differs.

use forebay_origin::layer::Layer;
use forebay_origin::{
    CompletionSink, Origin, OriginCompletion, OriginOperation, OriginRequest, OriginRequestId,
};
use forebay_trace::{ForebayWriter, Operation, Request, ThreadNumber, VolumeIndex};
use forebay_units::Nanos;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Events that may wait for the writer; two a request. 2 MiB or so.
const EVENTS_MAX: usize = 32_768;
/// Requests that wait in the writer for an earlier one's answer.
const WAITING_MAX: usize = 65_536;
/// zstd's level: fast enough for 100,000 requests a second on one core; archives are compressed again.
const ZSTD_LEVEL: i32 = 3;

enum Event {
    Submitted(Request),
    /// The submitted request of this number, counted from 0, was answered.
    Completed(u64, Nanos),
    /// Nothing follows.
    End,
}

/// What came of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Recorded {
    /// Requests in the trace.
    pub(super) requests: u64,
    /// Requests that are missing in it, because the writer could not keep up.
    pub(super) dropped: u64,
    /// Requests in it without a latency.
    pub(super) without_latency: u64,
    /// Requests in it that were answered with an error.
    pub(super) errors: u64,
    /// From the first to the last request.
    pub(super) duration: Nanos,
}

struct Shared {
    is_on: AtomicBool,
    /// When recording was first switched on: the trace's zero.
    begun: OnceLock<Instant>,
    /// Numbers and sends under one lock, so that requests are written in the order of their times.
    queue: Mutex<Queue>,
    dropped: AtomicU64,
    errors: AtomicU64,
}

struct Queue {
    events: SyncSender<Event>,
    next: u64,
}

/// The layer.
pub(super) struct Recorder {
    inner: Arc<dyn Origin>,
    shared: Arc<Shared>,
}

/// The end of a recorder that the command holds: switches it, and finishes the file.
pub(super) struct Recording {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<io::Result<Recorded>>>,
}

impl Recorder {
    /// Stacks a recorder on `inner` that writes a trace of the volume `name` to the file at `path`, compressed where the
    /// path ends in `.zst`. The file must not exist, unless `replace`.
    pub(super) fn start(
        inner: Arc<dyn Origin>,
        path: &Path,
        replace: bool,
        name: &str,
        is_on: bool,
    ) -> io::Result<(Recorder, Recording)> {
        let mut options = File::options();
        options.write(true);
        let file = if replace { options.create(true).truncate(true) } else { options.create_new(true) }
            .open(path)?;
        let is_compressed = path.extension().is_some_and(|extension| extension == "zst");
        let (events, receiver) = sync_channel(EVENTS_MAX);
        let volumes = vec![name.to_owned()];
        let writer = thread::Builder::new().name("recorder".into()).spawn(move || {
            let file = BufWriter::new(file);
            if is_compressed {
                let encoder = zstd::Encoder::new(file, ZSTD_LEVEL)?;
                let (recorded, encoder) = write(ForebayWriter::new(encoder)?, &volumes, &receiver)?;
                sync(encoder.finish()?)?;
                Ok(recorded)
            } else {
                let (recorded, file) = write(ForebayWriter::new(file)?, &volumes, &receiver)?;
                sync(file)?;
                Ok(recorded)
            }
        })?;
        let shared = Arc::new(Shared {
            is_on: AtomicBool::new(false),
            begun: OnceLock::new(),
            queue: Mutex::new(Queue { events, next: 0 }),
            dropped: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        });
        let recording = Recording { shared: Arc::clone(&shared), writer: Some(writer) };
        recording.switch(is_on);
        Ok((Recorder { inner, shared }, recording))
    }
}

fn sync(file: BufWriter<File>) -> io::Result<()> {
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

impl Recording {
    /// Switches recording on or off. Requests in flight when it is switched off are in the trace.
    pub(super) fn switch(&self, is_on: bool) {
        if is_on {
            self.shared.begun.get_or_init(Instant::now);
        }
        self.shared.is_on.store(is_on, Ordering::Release);
    }

    /// Whether the writer ended early, which is because the file cannot be written.
    pub(super) fn has_failed(&self) -> bool {
        self.writer.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the recording: what waits is written, the file is complete and on stable storage.
    pub(super) fn finish(mut self) -> io::Result<Recorded> {
        self.switch(false);
        let events = self.shared.queue.lock().expect("nobody panics with the queue").events.clone();
        // Where the writer is gone, it says below why.
        let _ = events.send(Event::End);
        let writer = self.writer.take().expect("taken only here");
        let recorded = writer.join().map_err(|_| io::Error::other("the writer thread panicked"))??;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Ok(Recorded { dropped: get(&self.shared.dropped), errors: get(&self.shared.errors), ..recorded })
    }
}

/// Writes what comes over `events`, in order of submission.
fn write<W: Write>(
    mut writer: ForebayWriter<W>,
    volumes: &[String],
    events: &Receiver<Event>,
) -> io::Result<(Recorded, W)> {
    let mut recorded = Recorded::default();
    let mut waiting: VecDeque<Request> = VecDeque::new();
    let (mut first_waiting, mut first_time) = (0u64, None);
    let mut ready = Vec::new();
    let mut is_over = false;
    while !is_over {
        match events.recv() {
            Ok(Event::Submitted(request)) => waiting.push_back(request),
            Ok(Event::Completed(number, latency)) => {
                // One that was written without its latency is no longer there.
                let place =
                    number.checked_sub(first_waiting).and_then(|place| waiting.get_mut(place as usize));
                if let Some(request) = place {
                    request.latency = latency;
                }
            }
            Ok(Event::End) | Err(_) => is_over = true,
        }
        while let Some(request) = waiting.front() {
            if request.latency == Nanos::MAX && waiting.len() <= WAITING_MAX && !is_over {
                break;
            }
            recorded.requests += 1;
            recorded.without_latency += u64::from(request.latency == Nanos::MAX);
            recorded.duration = request.time.saturating_since(*first_time.get_or_insert(request.time));
            ready.push(*request);
            waiting.pop_front();
            first_waiting += 1;
        }
        writer.write(&ready, volumes)?;
        ready.clear();
    }
    Ok((recorded, writer.finish()?))
}

impl Layer for Recorder {
    fn inner(&self) -> &dyn Origin {
        &*self.inner
    }

    fn pass(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        let Some(operation) =
            operation(&request.operation).filter(|_| self.shared.is_on.load(Ordering::Acquire))
        else {
            return self.inner.submit(request, sink);
        };
        let begun = *self.shared.begun.get_or_init(Instant::now);
        let range = request.operation.range();
        let mut record = Request {
            time: Nanos::ZERO,
            offset: range.offset,
            length: range.length,
            latency: Nanos::MAX,
            thread: ThreadNumber::UNKNOWN,
            volume: VolumeIndex(0),
            operation,
        };
        let mut queue = self.shared.queue.lock().expect("nobody panics with the queue");
        let came = Instant::now();
        record.time = came.duration_since(begun).into();
        let number = queue.next;
        if queue.events.try_send(Event::Submitted(record)).is_err() {
            drop(queue);
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            return self.inner.submit(request, sink);
        }
        queue.next += 1;
        drop(queue);
        let watch =
            Watch { sink: Arc::clone(sink), id: request.id, shared: Arc::clone(&self.shared), came, number };
        let watch: Arc<dyn CompletionSink> = Arc::new(watch);
        self.inner.submit(request, &watch);
    }

    fn describe_over(&self, inner: &str) -> String {
        format!("{inner}, recorded")
    }
}

/// What the trace format calls an operation; a question about block status moves no data, and is none of a trace's.
fn operation(operation: &OriginOperation) -> Option<Operation> {
    Some(match operation {
        OriginOperation::Read { .. } => Operation::Read,
        OriginOperation::Write { .. } | OriginOperation::WriteZeroes { may_trim: false, .. } => {
            Operation::Write
        }
        OriginOperation::Trim { .. } | OriginOperation::WriteZeroes { .. } => Operation::Discard,
        OriginOperation::Flush => Operation::Flush,
        OriginOperation::BlockStatus { .. } => return None,
    })
}

/// Passes a completion on and records its latency.
struct Watch {
    sink: Arc<dyn CompletionSink>,
    id: OriginRequestId,
    shared: Arc<Shared>,
    came: Instant,
    number: u64,
}

impl CompletionSink for Watch {
    fn complete(&self, completion: OriginCompletion) {
        let latency = self.came.elapsed().into();
        if completion.result.is_err() {
            self.shared.errors.fetch_add(1, Ordering::Relaxed);
        }
        let queue = self.shared.queue.lock().expect("nobody panics with the queue");
        // Where there is no room the request is written without a latency, and counted there.
        let _ = queue.events.try_send(Event::Completed(self.number, latency));
        drop(queue);
        self.sink.complete(OriginCompletion { id: self.id, result: completion.result });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_origin::{MemoryImage, MemoryOrigin};
    use forebay_trace::{ReadOptions, Source, TraceReader};
    use forebay_units::{ByteRange, Bytes};
    use std::sync::mpsc::{Sender, channel};

    struct Answers(Mutex<Sender<OriginCompletion>>);

    impl CompletionSink for Answers {
        fn complete(&self, completion: OriginCompletion) {
            self.0.lock().unwrap().send(completion).unwrap();
        }
    }

    fn read_back(path: &Path) -> (Vec<Request>, Vec<String>) {
        let source = Source::new("recording", File::open(path).unwrap());
        let mut reader = TraceReader::open(vec![source], &ReadOptions::default()).unwrap();
        let (mut batch, mut all) = (Vec::new(), Vec::new());
        while reader.next_batch(&mut batch).unwrap() > 0 {
            all.extend_from_slice(&batch);
        }
        (all, reader.volumes().to_vec())
    }

    #[test]
    fn what_passes_while_it_is_on_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.fbt.zst");
        let memory = Arc::new(MemoryOrigin::new(Arc::new(MemoryImage::new(Bytes(1 << 20)))));
        let (recorder, recording) = Recorder::start(memory, &path, false, "db", false).unwrap();
        let (sender, answers) = channel();
        let sink: Arc<dyn CompletionSink> = Arc::new(Answers(Mutex::new(sender)));
        let submit =
            |id, operation| recorder.submit(OriginRequest { id: OriginRequestId(id), operation }, &sink);
        let read = |offset| OriginOperation::Read { range: ByteRange::new(offset, 512) };
        submit(1, read(0));
        recording.switch(true);
        submit(2, OriginOperation::Write { offset: 4096, data: vec![7; 8192], fua: true });
        submit(3, read(4096));
        submit(4, OriginOperation::Flush);
        let range = ByteRange::new(0, 512);
        submit(40, OriginOperation::BlockStatus { range, one_extent: false });
        submit(5, OriginOperation::Trim { range: ByteRange::new(0, 4096), fua: false });
        submit(
            6,
            OriginOperation::WriteZeroes {
                range: ByteRange::new(0, 4096),
                may_trim: false,
                fua: false,
                fast: false,
            },
        );
        recording.switch(false);
        submit(7, read(512));
        assert!(!recording.has_failed());
        let recorded = recording.finish().unwrap();
        assert_eq!(
            answers.try_iter().map(|answer| answer.id.0).collect::<Vec<_>>(),
            [1, 2, 3, 4, 40, 5, 6, 7]
        );
        assert_eq!(
            (recorded.requests, recorded.dropped, recorded.without_latency, recorded.errors),
            (5, 0, 0, 0)
        );
        let (requests, volumes) = read_back(&path);
        assert_eq!(volumes, ["db"]);
        let seen: Vec<_> = requests.iter().map(|r| (r.operation, r.offset, r.length)).collect();
        assert_eq!(
            seen,
            [
                (Operation::Write, 4096, 8192),
                (Operation::Read, 4096, 512),
                (Operation::Flush, 0, 0),
                (Operation::Discard, 0, 4096),
                (Operation::Write, 0, 4096)
            ]
        );
        assert!(requests.iter().all(|request| request.latency < Nanos::secs(60)));
        assert!(requests.is_sorted_by_key(|request| request.time));
        // A file that is there is not replaced unless asked to.
        let memory = Arc::new(MemoryOrigin::new(Arc::new(MemoryImage::new(Bytes(1 << 20)))));
        assert!(Recorder::start(memory, &path, false, "db", false).is_err());
    }

    #[test]
    fn the_writer_keeps_the_order_and_does_not_wait_for_ever() {
        let request = |micros| Request {
            time: Nanos::micros(micros),
            offset: 0,
            length: 512,
            latency: Nanos::MAX,
            thread: ThreadNumber::UNKNOWN,
            volume: VolumeIndex(0),
            operation: Operation::Read,
        };
        let (events, receiver) = sync_channel(200_000);
        // Number 0 is answered never, 1 before 0, and so many follow that 0 is given up: 0 is written without its latency.
        for number in 0..=WAITING_MAX as u64 {
            events.send(Event::Submitted(request(number))).unwrap();
            if number > 0 {
                events.send(Event::Completed(number, Nanos::micros(3))).unwrap();
            }
        }
        // Its answer comes too late.
        events.send(Event::Completed(0, Nanos::micros(3))).unwrap();
        events.send(Event::End).unwrap();
        let volumes = ["v".to_owned()];
        let (recorded, _) = write(ForebayWriter::new(Vec::new()).unwrap(), &volumes, &receiver).unwrap();
        assert_eq!((recorded.requests, recorded.without_latency), (WAITING_MAX as u64 + 1, 1));
        assert_eq!(recorded.duration, Nanos::micros(WAITING_MAX as u64));
    }
}
