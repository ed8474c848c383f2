//! The promise that every request is completed exactly once, kept by a type.

use crate::request::{CompletionSink, OriginCompletion, OriginError, OriginRequestId};
use crate::statistics::OriginStatistics;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const EPERM: i32 = 1;
pub(crate) const EIO: i32 = 5;
pub(crate) const EBUSY: i32 = 16;
pub(crate) const EINVAL: i32 = 22;

/// Counters of an origin and the bound on what is in flight on it.
#[derive(Debug)]
pub(crate) struct Counters {
    requests: AtomicU64,
    errors: AtomicU64,
    refused: AtomicU64,
    in_flight: AtomicU64,
    in_flight_max: u64,
}

impl Counters {
    pub(crate) fn new(in_flight_max: usize) -> Arc<Counters> {
        Arc::new(Counters {
            requests: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            in_flight_max: in_flight_max as u64,
        })
    }

    /// Takes a request on, or answers it with `EBUSY` where the maximum is in flight already.
    pub(crate) fn admit(
        self: &Arc<Counters>,
        id: OriginRequestId,
        sink: &Arc<dyn CompletionSink>,
    ) -> Option<Pending> {
        if self.in_flight.fetch_add(1, Ordering::Relaxed) >= self.in_flight_max {
            self.in_flight.fetch_sub(1, Ordering::Relaxed);
            self.refused.fetch_add(1, Ordering::Relaxed);
            let context = format!("{} requests in flight are the maximum", self.in_flight_max);
            sink.complete(OriginCompletion {
                id,
                result: Err(OriginError::Failed { errno: EBUSY, context }),
            });
            return None;
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        Some(Pending { id, sink: Some(Arc::clone(sink)), counters: Arc::clone(self) })
    }

    /// Adds these counters to `statistics`.
    pub(crate) fn add_to(&self, statistics: &mut OriginStatistics) {
        statistics.requests += self.requests.load(Ordering::Relaxed);
        statistics.errors += self.errors.load(Ordering::Relaxed);
        statistics.refused += self.refused.load(Ordering::Relaxed);
        statistics.in_flight += self.in_flight.load(Ordering::Relaxed);
    }

    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// A request that is owed its completion. Dropped without one, it is completed as never carried out, which is true
/// wherever the drop is possible: before the request was begun. Who has begun one must complete it.
pub(crate) struct Pending {
    id: OriginRequestId,
    sink: Option<Arc<dyn CompletionSink>>,
    counters: Arc<Counters>,
}

impl Pending {
    pub(crate) fn complete(mut self, result: Result<Vec<u8>, OriginError>) {
        self.send(result);
    }

    fn send(&mut self, result: Result<Vec<u8>, OriginError>) {
        if let Some(sink) = self.sink.take() {
            if result.is_err() {
                self.counters.errors.fetch_add(1, Ordering::Relaxed);
            }
            // Counted down first, so that who submits from within the completion finds the place free.
            self.counters.in_flight.fetch_sub(1, Ordering::Relaxed);
            sink.complete(OriginCompletion { id: self.id, result });
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.sink.is_some() {
            self.send(Err(OriginError::Unreachable {
                context: "origin closed before the request was begun".into(),
            }));
        }
    }
}
