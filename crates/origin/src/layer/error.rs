//! Answers some requests with an error in place of carrying them out.

use super::{Layer, LayerError};
use crate::pool::locked;
use crate::request::{CompletionSink, Origin, OriginCompletion, OriginError, OriginOperation, OriginRequest};
use crate::statistics::OriginStatistics;
use forebay_units::ByteRange;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Which requests fail, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorParameters {
    /// The share of the matching requests that fail, 0 to 1; 1 by default.
    pub probability: f64,
    /// The errno that they are answered with, 1 to 4,095; 5 (`EIO`) by default.
    pub errno: i32,
    /// Reads match, and questions about block status; true by default.
    pub reads: bool,
    /// Writes, trims and zeroes match; true by default.
    pub writes: bool,
    /// Flushes match; false by default.
    pub flushes: bool,
    /// Only requests that touch this range match (flushes touch none and match all the same); everywhere by default.
    pub range: Option<ByteRange>,
    /// Seeds the choice.
    pub seed: u64,
}

impl Default for ErrorParameters {
    fn default() -> ErrorParameters {
        ErrorParameters {
            probability: 1.0,
            errno: 5,
            reads: true,
            writes: true,
            flushes: false,
            range: None,
            seed: 0,
        }
    }
}

/// A layer that fails some requests. A request that fails so never reaches the origin beneath.
///
/// It is active from the start; [`ErrorInjection::set_active`] switches it while requests run.
pub struct ErrorInjection {
    inner: Arc<dyn Origin>,
    parameters: ErrorParameters,
    active: AtomicBool,
    injected: AtomicU64,
    random: Mutex<Xoshiro256PlusPlus>,
}

impl ErrorInjection {
    /// Stacks the layer on `inner`.
    ///
    /// # Errors
    /// [`LayerError`] for a probability that is none or an errno that is none.
    pub fn new(inner: Arc<dyn Origin>, parameters: ErrorParameters) -> Result<ErrorInjection, LayerError> {
        let error = |name, found, expected| Err(LayerError { layer: "error", name, found, expected });
        if !(0.0..=1.0).contains(&parameters.probability) {
            return error("probability", parameters.probability.to_string(), "from 0 to 1");
        }
        if !(1..=4095).contains(&parameters.errno) {
            return error("errno", parameters.errno.to_string(), "from 1 to 4095");
        }
        Ok(ErrorInjection {
            inner,
            parameters,
            active: AtomicBool::new(true),
            injected: AtomicU64::new(0),
            random: Mutex::new(Xoshiro256PlusPlus::seed_from_u64(parameters.seed)),
        })
    }

    /// Switches the injection on or off.
    pub fn set_active(&self, active: bool) {
        self.active.store(active, Ordering::Relaxed);
    }

    /// How many requests were failed here.
    pub fn injected(&self) -> u64 {
        self.injected.load(Ordering::Relaxed)
    }

    fn fails(&self, operation: &OriginOperation) -> bool {
        let parameters = &self.parameters;
        let in_range = || parameters.range.is_none_or(|range| range.overlaps(operation.range()));
        let matches = match operation {
            OriginOperation::Read { .. } | OriginOperation::BlockStatus { .. } => {
                parameters.reads && in_range()
            }
            OriginOperation::Flush => parameters.flushes,
            _ => parameters.writes && in_range(),
        };
        matches
            && self.active.load(Ordering::Relaxed)
            && (parameters.probability >= 1.0
                || locked(&self.random).random::<f64>() < parameters.probability)
    }
}

impl Layer for ErrorInjection {
    fn inner(&self) -> &dyn Origin {
        &*self.inner
    }

    fn pass(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        if !self.fails(&request.operation) {
            return self.inner.submit(request, sink);
        }
        self.injected.fetch_add(1, Ordering::Relaxed);
        let context = "injected by the error layer".into();
        let result = Err(OriginError::Failed { errno: self.parameters.errno, context });
        sink.complete(OriginCompletion { id: request.id, result });
    }

    fn describe_over(&self, inner: &str) -> String {
        format!("error injection over {inner}")
    }

    fn counted(&self, inner: OriginStatistics) -> OriginStatistics {
        let injected = self.injected();
        OriginStatistics { requests: inner.requests + injected, errors: inner.errors + injected, ..inner }
    }
}
