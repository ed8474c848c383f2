//! How fast chunks may be moved: a token bucket whose rate rises steadily and is halved when requests that meet a migration become slower than those that do not.
//!
//! It moves nothing and waits for nobody. Sources: SANCache, MSST 2006 (the migration rate is controlled); additive increase and multiplicative decrease as in congestion control. All numbers
//! are ours.

use super::Placing;
use forebay_units::Nanos;

/// The percentile that is watched, as the share above it.
const TAIL: f64 = 0.01;
/// How far above it a request counts as harmed.
const HARM: f64 = 1.1;
/// Requests that met a migration, after which is judged; at least so long after the last time.
const JUDGED: u32 = 200;
const JUDGED_AFTER: Nanos = Nanos(1_000_000_000);
/// Up to such a share of harmed requests the rate rises; above this, it is halved.
const HARMED_RISE: f64 = 0.012;
const HARMED_HALVE: f64 = 0.02;

/// The bucket, and what is known of foreground latency.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    rate: f64,
    tokens: f64,
    filled: Nanos,
    /// The 99th percentile of requests that met no migration, in nanoseconds; 0 before the first one.
    clear_tail: f64,
    met: u32,
    harmed: u32,
    judged: Nanos,
    /// How often the rate was halved.
    pub(super) halvings: u64,
}

impl Budget {
    pub(super) fn new(placing: &Placing) -> Budget {
        Budget {
            rate: placing.bytes_per_second_max as f64,
            tokens: 0.0,
            filled: Nanos::ZERO,
            clear_tail: 0.0,
            met: 0,
            harmed: 0,
            judged: Nanos::ZERO,
            halvings: 0,
        }
    }

    /// Bytes per second now.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// Takes `bytes` if they are there. A second's worth is kept at most, and `bytes` at least.
    pub(super) fn take(&mut self, now: Nanos, bytes: u64) -> bool {
        let bytes = bytes as f64;
        let passed = now.saturating_since(self.filled).as_secs_f64();
        self.filled = self.filled.max(now);
        self.tokens = (self.tokens + passed * self.rate).min(self.rate.max(bytes));
        let taken = self.tokens >= bytes;
        if taken {
            self.tokens -= bytes;
        }
        taken
    }

    /// A client's request took `latency`; whether chunks were being moved then.
    pub(super) fn answered(&mut self, now: Nanos, latency: Nanos, met: bool, placing: &Placing) {
        let latency = latency.0 as f64;
        if !met {
            // A step of 5 % of the estimate, up for one in a hundred and down for the others, has the percentile as its rest.
            if self.clear_tail == 0.0 {
                self.clear_tail = latency;
            } else if latency > self.clear_tail {
                self.clear_tail += 0.05 * self.clear_tail;
            } else {
                self.clear_tail -= 0.05 * self.clear_tail * TAIL / (1.0 - TAIL);
            }
            return;
        }
        self.met += 1;
        self.harmed += u32::from(self.clear_tail > 0.0 && latency > HARM * self.clear_tail);
        if self.met < JUDGED || now.saturating_since(self.judged) < JUDGED_AFTER {
            return;
        }
        let share = f64::from(self.harmed) / f64::from(self.met);
        let (least, most) = (placing.bytes_per_second_min as f64, placing.bytes_per_second_max as f64);
        if share > HARMED_HALVE {
            self.rate = (self.rate / 2.0).clamp(least, most);
            self.tokens = 0.0;
            self.halvings += 1;
        } else if share <= HARMED_RISE {
            self.rate = (self.rate + most / 32.0).clamp(least, most);
        }
        (self.met, self.harmed, self.judged) = (0, 0, now);
    }

    /// Other limits hold from now on.
    pub(super) fn set(&mut self, placing: &Placing) {
        self.rate = self.rate.clamp(placing.bytes_per_second_min as f64, placing.bytes_per_second_max as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placing() -> Placing {
        Placing { bytes_per_second_min: 100, bytes_per_second_max: 3_200, ..Placing::default() }
    }

    #[test]
    fn tokens_come_with_time() {
        let mut budget = Budget::new(&placing());
        assert!(!budget.take(Nanos::ZERO, 1_600));
        // Half a second: 1,600 bytes.
        assert!(budget.take(Nanos::millis(500), 1_600));
        assert!(!budget.take(Nanos::millis(500), 1));
        // A minute later a second's worth is there, no more.
        assert!(budget.take(Nanos::secs(60), 3_200));
        assert!(!budget.take(Nanos::secs(60), 1));
    }

    #[test]
    fn more_than_a_seconds_worth_is_saved_for_one_chunk() {
        let mut budget = Budget::new(&placing());
        assert!(!budget.take(Nanos::secs(1), 6_400));
        assert!(budget.take(Nanos::secs(2), 6_400));
    }

    #[test]
    fn the_rate_is_halved_by_harm_and_comes_back_steadily() {
        let placing = placing();
        let mut budget = Budget::new(&placing);
        for number in 0..10_000u64 {
            budget.answered(Nanos::ZERO, Nanos(1_000 + number % 100), false, &placing);
        }
        // 4 of 100 requests that meet a migration take twice the tail.
        let harm = |budget: &mut Budget, second: u64, of_hundred: u64| {
            for number in 0..200 {
                let latency = if number % 100 < of_hundred { 2_200 } else { 1_000 };
                budget.answered(Nanos::secs(second), Nanos(latency), true, &placing);
            }
        };
        harm(&mut budget, 2, 4);
        assert_eq!((budget.rate(), budget.halvings), (1_600.0, 1));
        // Between the two marks nothing changes: 3 of 200.
        for number in 0..200 {
            budget.answered(Nanos::secs(4), Nanos(if number < 3 { 2_200 } else { 1_000 }), true, &placing);
        }
        assert_eq!(budget.rate(), 1_600.0);
        harm(&mut budget, 6, 0);
        assert_eq!(budget.rate(), 1_700.0);
        for second in 10..30 {
            harm(&mut budget, second, 50);
        }
        assert_eq!(budget.rate(), 100.0);
    }
}
