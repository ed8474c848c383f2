//! Limits requests and bytes per second.

use super::{HELD_MAX, Layer, LayerError, pass_on, pass_on_at, with_counts};
use crate::pending::Counters;
use crate::pool::locked;
use crate::request::{CompletionSink, Origin, OriginOperation, OriginRequest};
use crate::statistics::OriginStatistics;
use crate::timer::Timer;
use forebay_units::Nanos;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The longest that a request is held (ours): far beyond what anybody waits for, and well within what a clock can say.
const HOLD_MAX_S: f64 = 365.0 * 86_400.0;

/// The limits; none by default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateParameters {
    /// Requests per second, above 0 and with a finite reciprocal; flushes count. `None`: no limit.
    pub requests_per_second: Option<f64>,
    /// Bytes per second, above 0 and with a finite reciprocal; only reads and writes count. `None`: no limit.
    pub bytes_per_second: Option<f64>,
    /// How much unused allowance is kept, as the time in which it collects; 100 ms by default (ours), at most 1 h.
    pub burst: Nanos,
}

impl Default for RateParameters {
    fn default() -> RateParameters {
        RateParameters { requests_per_second: None, bytes_per_second: None, burst: Nanos::millis(100) }
    }
}

/// A token bucket, kept as the instant at which it would be full again (the generic cell rate algorithm, ITU-T I.371):
/// no thread has to fill it.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    seconds_per_token: f64,
    /// Seconds since the layer's start.
    full_at: f64,
}

impl Bucket {
    /// When a request of `tokens` that comes at `now` may go; takes the tokens.
    fn take(&mut self, now: f64, burst: f64, tokens: f64) -> f64 {
        let full_at = self.full_at.max(now);
        self.full_at = full_at + tokens * self.seconds_per_token;
        now.max(full_at - burst)
    }
}

/// A layer that lets no more through than so many requests and bytes per second; the rest waits, in order.
///
/// At most [`HELD_MAX`] requests are between it and their completions; above it, `EBUSY`. None is held for longer than a year.
pub struct Rate {
    inner: Arc<dyn Origin>,
    timer: Arc<Timer>,
    started: Instant,
    burst: f64,
    /// Requests, then bytes.
    buckets: Mutex<[Option<Bucket>; 2]>,
    counters: Arc<Counters>,
}

impl Rate {
    /// Stacks the layer on `inner`, with full buckets.
    ///
    /// # Errors
    /// [`LayerError`] for a rate that is not above 0, or so low that a token takes for ever, or a burst above 1 h.
    pub fn new(
        inner: Arc<dyn Origin>,
        timer: Arc<Timer>,
        parameters: RateParameters,
    ) -> Result<Rate, LayerError> {
        let error = |name, found, expected| LayerError { layer: "rate", name, found, expected };
        let bucket = |name, rate: Option<f64>| match rate {
            None => Ok(None),
            Some(rate) if rate.is_finite() && rate > 0.0 && rate.recip().is_finite() => {
                Ok(Some(Bucket { seconds_per_token: rate.recip(), full_at: 0.0 }))
            }
            Some(rate) => {
                Err(error(name, format!("{rate:e}"), "a finite number above 0 whose reciprocal is finite"))
            }
        };
        if parameters.burst > Nanos::secs(3600) {
            return Err(error("burst", parameters.burst.to_string(), "at most 1h"));
        }
        let buckets = [
            bucket("requests_per_second", parameters.requests_per_second)?,
            bucket("bytes_per_second", parameters.bytes_per_second)?,
        ];
        Ok(Rate {
            inner,
            timer,
            started: Instant::now(),
            burst: parameters.burst.as_secs_f64(),
            buckets: Mutex::new(buckets),
            counters: Counters::new(HELD_MAX),
        })
    }

    /// When the request may go, in seconds since the layer's start; takes its tokens.
    fn release(&self, now: f64, operation: &OriginOperation) -> f64 {
        let bytes = match operation {
            OriginOperation::Read { .. } | OriginOperation::Write { .. } => operation.range().length as f64,
            _ => 0.0,
        };
        let mut buckets = locked(&self.buckets);
        let mut at = now;
        for (bucket, tokens) in buckets.iter_mut().zip([1.0, bytes]) {
            if let Some(bucket) = bucket {
                at = at.max(bucket.take(now, self.burst, tokens));
            }
        }
        at.min(now + HOLD_MAX_S)
    }
}

impl Layer for Rate {
    fn inner(&self) -> &dyn Origin {
        &*self.inner
    }

    fn pass(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        let Some(pending) = self.counters.admit(request.id, sink) else {
            return;
        };
        let now = self.started.elapsed().as_secs_f64();
        let at = self.release(now, &request.operation);
        if at <= now {
            return pass_on(&*self.inner, request, pending);
        }
        pass_on_at(&self.timer, self.started + Duration::from_secs_f64(at), &self.inner, request, pending);
    }

    fn describe_over(&self, inner: &str) -> String {
        format!("rate limit over {inner}")
    }

    fn counted(&self, inner: OriginStatistics) -> OriginStatistics {
        with_counts(inner, &self.counters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_lets_a_burst_through_and_then_keeps_the_rate() {
        // 100 tokens a second, 50 ms of burst: from full, 1 token costs 10 ms. Requests at 0 go at once until the
        // bucket is 50 ms in debt: the first six (debts 0 to 50 ms before each), then one every 10 ms.
        let mut bucket = Bucket { seconds_per_token: 0.01, full_at: 0.0 };
        let times: Vec<i64> = (0..9).map(|_| (bucket.take(0.0, 0.05, 1.0) * 1000.0).round() as i64).collect();
        assert_eq!(times, [0, 0, 0, 0, 0, 0, 10, 20, 30]);
        // After a pause that is long enough it is full again, and no fuller.
        let times: Vec<i64> =
            (0..8).map(|_| (bucket.take(10.0, 0.05, 1.0) * 1000.0).round() as i64).collect();
        assert_eq!(times, [10_000, 10_000, 10_000, 10_000, 10_000, 10_000, 10_010, 10_020]);
    }
}
