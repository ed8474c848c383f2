//! Holds requests back for a while before they go on.

use super::{HELD_MAX, Layer, pass_on, pass_on_at, with_counts};
use crate::pending::Counters;
use crate::pool::locked;
use crate::request::{CompletionSink, Origin, OriginOperation, OriginRequest};
use crate::statistics::OriginStatistics;
use crate::timer::Timer;
use forebay_units::Nanos;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long requests are held back; everything is 0 by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelayParameters {
    /// Reads, and questions about block status.
    pub read: Nanos,
    /// Writes, trims and zeroes.
    pub write: Nanos,
    /// Flushes.
    pub flush: Nanos,
    /// Each request that is delayed gets up to this much more, uniformly at random.
    pub jitter: Nanos,
    /// Seeds the jitter.
    pub seed: u64,
}

/// A layer that holds requests back before they go on. With jitter they may overtake each other.
///
/// At most [`HELD_MAX`] requests are between it and their completions; above it, `EBUSY`.
pub struct Delay {
    inner: Arc<dyn Origin>,
    timer: Arc<Timer>,
    parameters: DelayParameters,
    random: Mutex<Xoshiro256PlusPlus>,
    counters: Arc<Counters>,
}

impl Delay {
    /// Stacks the layer on `inner`.
    pub fn new(inner: Arc<dyn Origin>, timer: Arc<Timer>, parameters: DelayParameters) -> Delay {
        let random = Mutex::new(Xoshiro256PlusPlus::seed_from_u64(parameters.seed));
        Delay { inner, timer, parameters, random, counters: Counters::new(HELD_MAX) }
    }

    fn delay_of(&self, operation: &OriginOperation) -> Duration {
        let fixed = match operation {
            OriginOperation::Read { .. } | OriginOperation::BlockStatus { .. } => self.parameters.read,
            OriginOperation::Flush => self.parameters.flush,
            _ => self.parameters.write,
        };
        if fixed == Nanos::ZERO {
            return Duration::ZERO;
        }
        let jitter = match self.parameters.jitter.0 {
            0 => 0,
            most => locked(&self.random).random_range(0..=most),
        };
        Duration::from(fixed.saturating_add(Nanos(jitter)))
    }
}

impl Layer for Delay {
    fn inner(&self) -> &dyn Origin {
        &*self.inner
    }

    fn pass(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        let Some(pending) = self.counters.admit(request.id, sink) else {
            return;
        };
        let delay = self.delay_of(&request.operation);
        if delay.is_zero() {
            return pass_on(&*self.inner, request, pending);
        }
        pass_on_at(&self.timer, Instant::now() + delay, &self.inner, request, pending);
    }

    fn describe_over(&self, inner: &str) -> String {
        format!("delay over {inner}")
    }

    fn counted(&self, inner: OriginStatistics) -> OriginStatistics {
        with_counts(inner, &self.counters)
    }
}
