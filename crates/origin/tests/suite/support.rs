//! A sink that remembers every completion, and small helpers around it.

use forebay_nbd::wire::Extents;
use forebay_origin::{
    CompletionSink, Origin, OriginCompletion, OriginError, OriginOperation, OriginRequest, OriginRequestId,
};
use forebay_origin::{OriginStatistics, OriginTraits};
use forebay_ring::{RingRefused, ThreadRing};
use forebay_units::ByteRange;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) type Outcome = Result<Vec<u8>, OriginError>;

/// Remembers completions; a second completion of a request panics the test.
#[derive(Default)]
pub(crate) struct Collector {
    outcomes: Mutex<BTreeMap<u64, Vec<Outcome>>>,
    changed: Condvar,
}

impl CompletionSink for Collector {
    fn complete(&self, completion: OriginCompletion) {
        self.outcomes.lock().unwrap().entry(completion.id.0).or_default().push(completion.result);
        self.changed.notify_all();
    }
}

impl Collector {
    pub(crate) fn new() -> Arc<Collector> {
        Arc::new(Collector::default())
    }

    pub(crate) fn sink(self: &Arc<Collector>) -> Arc<dyn CompletionSink> {
        Arc::clone(self) as Arc<dyn CompletionSink>
    }

    /// How many requests have been completed.
    pub(crate) fn count(&self) -> usize {
        self.outcomes.lock().unwrap().len()
    }

    /// Waits until `count` requests are completed and returns their outcomes, each of which must be the only one.
    pub(crate) fn wait(&self, count: usize) -> BTreeMap<u64, Outcome> {
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut outcomes = self.outcomes.lock().unwrap();
        while outcomes.len() < count {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{} of {count} requests completed within 30 s", outcomes.len());
            outcomes = self.changed.wait_timeout(outcomes, left).unwrap().0;
        }
        outcomes
            .iter()
            .map(|(id, outcomes)| {
                assert_eq!(outcomes.len(), 1, "request {id} was completed more than once");
                (*id, outcomes[0].clone())
            })
            .collect()
    }
}

/// Submits one request and waits for its outcome.
pub(crate) fn run(origin: &dyn Origin, operation: OriginOperation) -> Outcome {
    let collector = Collector::new();
    origin.submit(OriginRequest { id: OriginRequestId(1), operation }, &collector.sink());
    collector.wait(1).remove(&1).unwrap()
}

pub(crate) fn submit(origin: &dyn Origin, id: u64, operation: OriginOperation, collector: &Arc<Collector>) {
    origin.submit(OriginRequest { id: OriginRequestId(id), operation }, &collector.sink());
}

pub(crate) fn read(offset: u64, length: u64) -> OriginOperation {
    OriginOperation::Read { range: ByteRange::new(offset, length) }
}

pub(crate) fn status(offset: u64, length: u64) -> OriginOperation {
    OriginOperation::BlockStatus { range: ByteRange::new(offset, length), one_extent: false }
}

/// The extents of a block status as (bytes, flags).
pub(crate) fn extents(outcome: Outcome) -> Vec<(u64, u32)> {
    let bytes = outcome.unwrap();
    assert!(!bytes.is_empty() && bytes.len().is_multiple_of(8));
    Extents::new(&bytes).map(|extent| (extent.length.into(), extent.flags.0)).collect()
}

pub(crate) fn write(offset: u64, data: &[u8]) -> OriginOperation {
    OriginOperation::Write { offset, data: data.to_vec(), fua: false }
}

pub(crate) fn errno(outcome: &Outcome) -> Option<i32> {
    match outcome {
        Err(OriginError::Failed { errno, .. }) => Some(*errno),
        _ => None,
    }
}

type Handed = (OriginRequest, Arc<dyn CompletionSink>);

/// An origin all of whose requests are submitted by a thread that drives a ring, as a worker of an appliance does.
pub(crate) struct OnRing {
    inner: Arc<dyn Origin>,
    requests: Mutex<Option<Sender<Handed>>>,
    thread: Option<JoinHandle<()>>,
}

impl OnRing {
    /// A system without io_uring says so aloud, and fails where `CI=true`.
    pub(crate) fn new(inner: Arc<dyn Origin>) -> Result<OnRing, RingRefused> {
        let (sender, requests) = channel();
        let (started, answer) = channel();
        let origin = Arc::clone(&inner);
        let thread = std::thread::spawn(move || match ThreadRing::install() {
            Ok(ring) => {
                started.send(Ok(())).unwrap();
                drive(&ring, &*origin, &requests);
            }
            Err(refused) => started.send(Err(refused)).unwrap(),
        });
        let result = answer.recv().unwrap();
        let origin = OnRing { inner, requests: Mutex::new(Some(sender)), thread: Some(thread) };
        if let Err(refused) = &result {
            println!("skipped: {refused}");
            assert!(std::env::var("CI").as_deref() != Ok("true"), "io_uring is needed where CI=true");
        }
        result.map(|()| origin)
    }
}

fn drive(ring: &ThreadRing, origin: &dyn Origin, requests: &Receiver<Handed>) {
    loop {
        let wait = if ring.in_flight() > 0 { Duration::from_micros(50) } else { Duration::from_secs(60) };
        match requests.recv_timeout(wait) {
            Ok((request, sink)) => {
                origin.submit(request, &sink);
                requests.try_iter().for_each(|(request, sink)| origin.submit(request, &sink));
            }
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
        }
        ring.proceed();
    }
}

impl Origin for OnRing {
    fn traits(&self) -> OriginTraits {
        self.inner.traits()
    }

    fn submit(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        let requests = self.requests.lock().unwrap();
        requests.as_ref().unwrap().send((request, Arc::clone(sink))).unwrap();
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn statistics(&self) -> OriginStatistics {
        self.inner.statistics()
    }
}

impl Drop for OnRing {
    fn drop(&mut self) {
        *self.requests.lock().unwrap() = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
