//! Clients and waits that the tests share.

use forebay_nbd::Uri;
use forebay_origin::{
    CompletionSink, NbdOrigin, NbdOriginOptions, Origin, OriginCompletion, OriginError, OriginOperation,
    OriginRequest, OriginRequestId,
};
use forebay_serve::Daemon;
use forebay_units::{ByteRange, Nanos};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

struct Completions(Sender<OriginCompletion>);

impl CompletionSink for Completions {
    fn complete(&self, completion: OriginCompletion) {
        let _ = self.0.send(completion);
    }
}

/// A client of a volume over real NBD connections.
pub(crate) struct Client {
    origin: NbdOrigin,
    sink: Arc<dyn CompletionSink>,
    completions: Receiver<OriginCompletion>,
    next: u64,
}

impl Client {
    pub(crate) fn connect(uri: &str) -> Client {
        Client::with(uri, NbdOriginOptions::default())
    }

    /// One that waits for no server that has disconnected it.
    pub(crate) fn impatient(uri: &str) -> Client {
        let wait_for_origin = Nanos::millis(50);
        Client::with(uri, NbdOriginOptions { wait_for_origin, ..NbdOriginOptions::default() })
    }

    fn with(uri: &str, options: NbdOriginOptions) -> Client {
        let uri: Uri = uri.parse().expect("the daemon prints URIs that can be read");
        let options = NbdOriginOptions { connections: 1, ..options };
        let origin = NbdOrigin::connect(&uri, options).expect("the volume is served");
        let (sender, completions) = channel();
        Client { origin, sink: Arc::new(Completions(sender)), completions, next: 0 }
    }

    pub(crate) fn submit(&mut self, operation: OriginOperation) {
        self.next += 1;
        self.origin.submit(OriginRequest { id: OriginRequestId(self.next), operation }, &self.sink);
    }

    pub(crate) fn wait(&mut self) -> Result<Vec<u8>, OriginError> {
        self.completions.recv_timeout(Duration::from_secs(20)).expect("an answer within 20 s").result
    }

    pub(crate) fn read(&mut self, offset: u64, length: u64) -> Result<Vec<u8>, OriginError> {
        self.submit(OriginOperation::Read { range: ByteRange::new(offset, length) });
        self.wait()
    }

    pub(crate) fn write(&mut self, offset: u64, data: Vec<u8>) -> Result<(), OriginError> {
        self.submit(OriginOperation::Write { offset, data, fua: false });
        self.wait().map(drop)
    }
}

/// Waits until `done` says so.
pub(crate) fn eventually(what: &str, within: Duration, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + within;
    while !done() {
        assert!(Instant::now() < deadline, "{what}: not within {within:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits for the end of the interval after the one that runs, so that what happened before is in it.
pub(crate) fn next_intervals(daemon: &Daemon) {
    let now = daemon.intervals();
    eventually("two control intervals", Duration::from_secs(20), || daemon.intervals() >= now + 2);
}

/// Tells other threads of a test to stop, also when the test fails.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
