//! A sink that remembers every completion, and small helpers around it.

use forebay_nbd::wire::Extents;
use forebay_origin::{
    CompletionSink, OnRing, OnRingError, Origin, OriginCompletion, OriginError, OriginOperation,
    OriginRequest, OriginRequestId,
};
use forebay_prerequisite::skip;
use forebay_units::ByteRange;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
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

/// An origin all of whose requests are submitted by a thread that drives a ring. A system without io_uring says so aloud, and fails where `CI=true`.
pub(crate) fn on_ring(inner: Arc<dyn Origin>) -> Result<OnRing, OnRingError> {
    let result = OnRing::new(inner);
    if let Err(refused) = &result {
        skip("an origin on a ring", refused);
    }
    result
}
