//! Holds requests back for a while before they go on.

use super::{HELD_MAX, pass_on, pass_on_at};
use crate::pending::Counters;
use crate::pool::locked;
use crate::request::{CompletionSink, Origin, OriginOperation, OriginRequest, OriginTraits, Unflushed};
use crate::statistics::OriginStatistics;
use crate::timer::Timer;
use forebay_nbd::{RunId, StorageId};
use forebay_units::Nanos;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fs::Metadata;
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

impl Origin for Delay {
    fn traits(&self) -> OriginTraits {
        self.inner.traits()
    }

    fn submit(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        let Some(pending) = self.counters.admit(request.id, sink) else {
            return;
        };
        let delay = self.delay_of(&request.operation);
        if delay.is_zero() {
            return pass_on(&*self.inner, request, pending);
        }
        pass_on_at(&self.timer, Instant::now() + delay, &self.inner, request, pending);
    }

    fn describe(&self) -> String {
        format!("delay over {}", self.inner.describe())
    }

    fn statistics(&self) -> OriginStatistics {
        let mut own = OriginStatistics::default();
        self.counters.add_to(&mut own);
        let inner = self.inner.statistics();
        // A request counts once: what the layer was given, with what only the layers beneath refused.
        OriginStatistics { refused: own.refused + inner.refused, ..with_counts(inner, &own) }
    }

    fn settle(&self) {
        self.inner.settle();
    }

    fn storage(&self) -> Option<StorageId> {
        self.inner.storage()
    }

    fn metadata(&self) -> Option<Metadata> {
        self.inner.metadata()
    }

    fn keeper(&self, own: RunId) -> Option<RunId> {
        self.inner.keeper(own)
    }

    fn refused_for(&self) -> Option<std::time::Duration> {
        self.inner.refused_for()
    }

    fn unflushed(&self) -> Option<Unflushed> {
        self.inner.unflushed()
    }

    fn inherit(&self, unflushed: Unflushed) {
        self.inner.inherit(unflushed);
    }

    fn is_settled(&self) -> bool {
        self.inner.is_settled()
    }

    fn abandon(&self) {
        self.inner.abandon();
    }
}

/// The statistics beneath with the counts of requests seen from the layer.
pub(super) fn with_counts(inner: OriginStatistics, own: &OriginStatistics) -> OriginStatistics {
    OriginStatistics { requests: own.requests, errors: own.errors, in_flight: own.in_flight, ..inner }
}
