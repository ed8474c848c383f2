//! Notes each request and how long it took.

use super::Layer;
use crate::pool::locked;
use crate::request::{
    CompletionSink, Origin, OriginCompletion, OriginOperation, OriginRequest, OriginRequestId,
};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Lines that may wait to be written to the file; above it, lines are dropped and counted (ours).
const LINES_MAX: usize = 8192;

/// More than any line has.
const LINE_BYTES_MAX: u64 = 8192;

/// What a line calls them.
const OPERATIONS: [&str; 6] = ["read", "write", "flush", "trim", "zero", "status"];

/// Where the notes go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogParameters {
    /// A name for the lines, as that of the volume; empty by default.
    pub name: String,
    /// A file that is made anew, which is not there, empty, or such a log of before; none by default.
    pub file: Option<PathBuf>,
    /// Also as `tracing` events of level debug, target `forebay::origin`; false by default.
    pub trace: bool,
}

/// A layer that notes each request when it completes: when it came, what it was, how long it took and how it ended.
///
/// A line of the file has these fields, separated by blanks: seconds since the layer's start at which the request came,
/// name (`-` if empty), operation, offset, length, latency in microseconds, `ok` or the errno.
pub struct Log {
    inner: Arc<dyn Origin>,
    shared: Arc<LogShared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

struct LogShared {
    name: String,
    trace: bool,
    started: Instant,
    lines: Mutex<Option<SyncSender<String>>>,
    lost: AtomicU64,
}

impl Log {
    /// Stacks the layer on `inner`.
    ///
    /// # Errors
    /// Where the file cannot be made or is something else, or the system has no thread left.
    pub fn new(inner: Arc<dyn Origin>, parameters: LogParameters) -> std::io::Result<Log> {
        let (lines, writer) = match parameters.file {
            None => (None, None),
            Some(path) => {
                let file = open_anew(&path)?;
                let (sender, receiver) = sync_channel(LINES_MAX);
                let thread =
                    thread::Builder::new().name("origin-log".into()).spawn(move || write(file, &receiver))?;
                (Some(sender), Some(thread))
            }
        };
        let name = if parameters.name.is_empty() { "-".into() } else { parameters.name };
        let shared = LogShared {
            name,
            trace: parameters.trace,
            started: Instant::now(),
            lines: Mutex::new(lines),
            lost: AtomicU64::new(0),
        };
        Ok(Log { inner, shared: Arc::new(shared), writer: Mutex::new(writer) })
    }

    /// Lines that were not written, because the file was too slow or because they came after the layer was dropped.
    pub fn lines_lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // The writer ends when nobody can send any more; it has written everything by then.
        locked(&self.shared.lines).take();
        let writer = locked(&self.writer).take();
        if let Some(thread) = writer {
            let _ = thread.join();
        }
    }
}

/// Opens the file at `path` without what it holds, which is refused unless that is a log of before.
fn open_anew(path: &Path) -> std::io::Result<File> {
    if let Some(trouble) = trouble_of_log(path) {
        return Err(std::io::Error::other(trouble));
    }
    // To its end at the time: who cuts it meanwhile, as logs are rotated, gets no hole.
    let file = File::options().append(true).create(true).open(path)?;
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Why no log of requests is written to the file at `path`, as far as can be seen without writing: it holds something else. `None` where it can be.
pub fn trouble_of_log(path: &Path) -> Option<String> {
    // What is no file holds nothing, or says so when it is written.
    if !std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        return None;
    }
    let shown = path.display();
    let mut first = Vec::new();
    let read = File::open(path)
        .and_then(|file| BufReader::new(file).take(LINE_BYTES_MAX).read_until(b'\n', &mut first));
    match read {
        Err(error) => Some(format!("cannot read what `{shown}` holds: {error}")),
        Ok(_) if first.is_empty() || is_line(&first) => None,
        Ok(_) => {
            Some(format!("`{shown}` holds something that is no log of requests, and is not overwritten"))
        }
    }
}

/// Whether it has the fields of a line. A file that was cut while it was written begins with zeros.
fn is_line(line: &[u8]) -> bool {
    let zeros = line.iter().take_while(|byte| **byte == 0).count();
    let line = &line[zeros..];
    if zeros > 0 && line.is_empty() {
        return true;
    }
    let Ok(line) = std::str::from_utf8(line) else { return false };
    let fields: Vec<&str> = line.split_whitespace().collect();
    // A name may hold blanks.
    let [seconds, .., operation, offset, length, latency, outcome] = fields.as_slice() else { return false };
    let is_number =
        |field: &&str| !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    OPERATIONS.contains(operation)
        && [seconds, offset, length, latency].into_iter().all(is_number)
        && (*outcome == "ok" || is_number(outcome))
}

fn write(file: File, lines: &Receiver<String>) {
    let mut file = BufWriter::new(file);
    while let Ok(line) = lines.recv() {
        let mut result = file.write_all(line.as_bytes());
        for line in lines.try_iter() {
            result = result.and_then(|()| file.write_all(line.as_bytes()));
        }
        if let Err(error) = result.and_then(|()| file.flush()) {
            tracing::warn!(target: "forebay::origin", %error, "log of requests cannot be written and ends");
            return;
        }
    }
}

struct Note {
    sink: Arc<dyn CompletionSink>,
    id: OriginRequestId,
    shared: Arc<LogShared>,
    came: Instant,
    operation: &'static str,
    offset: u64,
    length: u64,
}

impl CompletionSink for Note {
    fn complete(&self, completion: OriginCompletion) {
        let latency_us = self.came.elapsed().as_micros();
        let outcome = match &completion.result {
            Ok(_) => "ok".to_owned(),
            Err(error) => error.errno().to_string(),
        };
        let Note { operation, offset, length, .. } = self;
        let name = &self.shared.name;
        if self.shared.trace {
            tracing::debug!(target: "forebay::origin", name, operation, offset, length, latency_us, outcome, "request");
        }
        let came = self.came.duration_since(self.shared.started).as_secs_f64();
        let lines = locked(&self.shared.lines).clone();
        let line = || format!("{came:.6} {name} {operation} {offset} {length} {latency_us} {outcome}\n");
        if lines.is_some_and(|lines| lines.try_send(line()).is_err()) {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
        self.sink.complete(OriginCompletion { id: self.id, result: completion.result });
    }
}

impl Layer for Log {
    fn inner(&self) -> &dyn Origin {
        &*self.inner
    }

    fn pass(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        let range = request.operation.range();
        let note: Arc<dyn CompletionSink> = Arc::new(Note {
            sink: Arc::clone(sink),
            id: request.id,
            shared: Arc::clone(&self.shared),
            came: Instant::now(),
            operation: match request.operation {
                OriginOperation::Read { .. } => OPERATIONS[0],
                OriginOperation::Write { .. } => OPERATIONS[1],
                OriginOperation::Flush => OPERATIONS[2],
                OriginOperation::Trim { .. } => OPERATIONS[3],
                OriginOperation::WriteZeroes { .. } => OPERATIONS[4],
                OriginOperation::BlockStatus { .. } => OPERATIONS[5],
            },
            offset: range.offset,
            length: range.length,
        });
        self.inner.submit(request, &note);
    }

    fn describe_over(&self, inner: &str) -> String {
        format!("log over {inner}")
    }
}
