//! The promise that every request is completed exactly once, kept by a type.

use crate::request::{CompletionSink, OriginCompletion, OriginError, OriginRequestId};
use crate::statistics::OriginStatistics;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const EPERM: i32 = 1;
pub(crate) const EIO: i32 = 5;
pub(crate) const EBUSY: i32 = 16;
pub(crate) const EINVAL: i32 = 22;
pub(crate) const ENOTSUP: i32 = 95;

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
        Some(Pending { id, begun: false, sink: Some(Arc::clone(sink)), counters: Arc::clone(self) })
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

/// A request that is owed its completion. Dropped without one, it is completed as never carried out, or as of unknown
/// outcome once it was begun.
pub(crate) struct Pending {
    id: OriginRequestId,
    begun: bool,
    sink: Option<Arc<dyn CompletionSink>>,
    counters: Arc<Counters>,
}

impl Pending {
    /// From here on a loss of the request leaves its outcome unknown.
    pub(crate) fn begin(&mut self) {
        self.begun = true;
    }

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
            self.send(Err(if self.begun {
                OriginError::OutcomeUnknown {
                    context: "request was begun and never finished".into(),
                    asked: None,
                }
            } else {
                OriginError::Unreachable {
                    context: "origin closed before the request was begun".into(),
                    unsent: None,
                }
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Collector(Mutex<Vec<OriginCompletion>>);

    impl CompletionSink for Collector {
        fn complete(&self, completion: OriginCompletion) {
            self.0.lock().unwrap().push(completion);
        }
    }

    #[test]
    fn a_request_that_is_dropped_is_completed_with_what_is_true_of_it() {
        let collector = Arc::new(Collector::default());
        let sink: Arc<dyn CompletionSink> = Arc::clone(&collector) as Arc<dyn CompletionSink>;
        let counters = Counters::new(2);
        let admit = |id| counters.admit(OriginRequestId(id), &sink);
        let (untouched, mut begun) = (admit(0).unwrap(), admit(1).unwrap());
        begun.begin();
        assert!(admit(2).is_none());
        drop((untouched, begun));
        admit(3).unwrap().complete(Ok(vec![1]));
        let kinds: Vec<_> = collector
            .0
            .lock()
            .unwrap()
            .iter()
            .map(|completion| match &completion.result {
                Ok(_) => (completion.id.0, "ok"),
                Err(OriginError::Failed { errno: EBUSY, .. }) => (completion.id.0, "busy"),
                Err(OriginError::Unreachable { .. }) => (completion.id.0, "unreachable"),
                Err(OriginError::OutcomeUnknown { .. }) => (completion.id.0, "unknown"),
                Err(OriginError::Failed { .. }) => (completion.id.0, "failed"),
            })
            .collect();
        assert_eq!(kinds, [(2, "busy"), (0, "unreachable"), (1, "unknown"), (3, "ok")]);
        let mut statistics = OriginStatistics::default();
        counters.add_to(&mut statistics);
        assert_eq!(
            (statistics.requests, statistics.errors, statistics.refused, statistics.in_flight),
            (3, 2, 1, 0)
        );
    }
}
