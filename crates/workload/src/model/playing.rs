//! Playing the schedule: how many requests come in which span.

use super::Model;
use super::generate::{GenerateError, GenerateOptions};
use forebay_units::Nanos;

/// Plays the segments.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    /// Requests and seconds.
    segments: Vec<(u64, f64)>,
    at: usize,
    /// Requests of a segment are multiplied by this.
    count_factor: f64,
    /// Seconds of a segment are multiplied by this.
    time_factor: f64,
    carry: f64,
    /// Time of segments in which no request fell.
    owed_ns: f64,
    /// What is left of the segment.
    requests: u64,
    ns: f64,
    /// The number of the request of the original that the next one is like.
    original: f64,
    /// Without times: the span between requests.
    constant_ns: Option<f64>,
}

/// What is made together: a segment, or a part of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) requests: u64,
    pub(super) ns: f64,
    /// The number of the request of the original that its first one is like.
    first: f64,
    /// Requests of the original for each of its own.
    scale: f64,
}

impl Part {
    /// The number of the request of the original that its `made`-th one is like.
    pub(super) fn original(&self, made: u64) -> u64 {
        (self.first + made as f64 * self.scale) as u64
    }
}

impl Schedule {
    /// The schedule that the options ask for, and how many requests that is.
    ///
    /// # Errors
    /// [`GenerateError::NoTimes`].
    pub(super) fn new(
        model: &Model,
        options: &GenerateOptions,
        intensity: f64,
    ) -> Result<(Schedule, u64), GenerateError> {
        let span = model.seconds() / intensity;
        let timed = span > 0.0;
        let all = model.requests();
        let wanted = options.duration.map(Nanos::as_secs_f64);
        let (cycles, requests) = match (timed, wanted) {
            (true, Some(wanted)) => {
                let cycles = (wanted / span).round().max(1.0);
                let count = all as f64 * wanted / span;
                (cycles, (count.round() as u64).max(1))
            }
            (true, None) => match options.requests {
                Some(requests) => ((requests as f64 / all as f64).ceil().max(1.0), requests),
                None => (1.0, all),
            },
            (false, Some(wanted)) => match (options.rate, options.requests) {
                (Some(rate), _) => (1.0, ((wanted * rate * intensity).round() as u64).max(1)),
                (None, Some(requests)) => (1.0, requests),
                (None, None) => return Err(GenerateError::NoTimes),
            },
            (false, None) => (1.0, options.requests.unwrap_or(all)),
        };
        let stretch = match (timed, wanted) {
            (true, Some(wanted)) => wanted / (cycles * span),
            _ => 1.0,
        };
        let constant_ns = match (timed, options.rate) {
            (true, _) => None,
            (false, Some(rate)) => Some(1e9 / (rate * intensity)),
            (false, None) => Some(0.0),
        };
        let schedule = Schedule {
            segments: model.schedule.iter().map(|segment| (segment.requests, segment.seconds)).collect(),
            at: 0,
            count_factor: stretch,
            time_factor: stretch / intensity,
            carry: 0.0,
            owed_ns: 0.0,
            requests: 0,
            ns: 0.0,
            original: 0.0,
            constant_ns,
        };
        Ok((schedule, requests))
    }

    /// Without times: the span between requests.
    pub(super) fn constant_ns(&self) -> Option<f64> {
        self.constant_ns
    }

    /// The next part, of at most `requests_max` requests.
    pub(super) fn part(&mut self, requests_max: u64) -> Part {
        if self.requests == 0 {
            self.next_segment();
        }
        let requests = self.requests.min(requests_max);
        let ns = self.ns * requests as f64 / self.requests as f64;
        let part = Part { requests, ns, first: self.original, scale: 1.0 / self.count_factor };
        self.requests -= requests;
        self.ns -= ns;
        self.original += requests as f64 / self.count_factor;
        part
    }

    /// The next segment in which a request falls.
    fn next_segment(&mut self) {
        loop {
            let (requests, seconds) = self.segments[self.at];
            if self.at == 0 {
                self.original = 0.0;
            }
            self.at = (self.at + 1) % self.segments.len();
            let exact = requests as f64 * self.count_factor + self.carry;
            // Rounding up what is nearly whole, so that no request is lost to arithmetic.
            let count = (exact + 1e-6).floor();
            self.carry = exact - count;
            self.owed_ns += seconds * self.time_factor * 1e9;
            if count >= 1.0 {
                self.requests = count as u64;
                self.ns = std::mem::take(&mut self.owed_ns);
                return;
            }
        }
    }
}
