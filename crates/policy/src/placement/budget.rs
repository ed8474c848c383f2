//! How fast chunks may be moved: a token bucket whose rate rises steadily and is halved when requests that meet a migration become slower than those that do not.
//!
//! It moves nothing and waits for nobody. Sources: SANCache, MSST 2006 (the migration rate is controlled); additive increase and multiplicative decrease as in congestion control. All numbers
//! are ours.

use super::Placing;
use forebay_units::Nanos;

/// The percentile that is watched, as the share above it.
const TAIL: f64 = 0.01;
/// Requests that met a migration, after which is judged, and at least so long after the last time.
const JUDGED: u32 = 400;
const JUDGED_AFTER: Nanos = Nanos(1_000_000_000);
/// Requests that met none, without which nothing can be judged: migrations pause until there are so many.
const CLEAR: u32 = 100;
/// The rate is halved if more than this share is above the tail, beyond twice the share of those that met none and what both stray by chance; it rises up to this share beyond theirs.
const HARMED_HALVE: f64 = 0.015;
const HARMED_RISE: f64 = 0.005;

/// Requests since the last judgement, and those of them that took longer than the tail.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    count: u32,
    above: u32,
}

impl Seen {
    fn add(&mut self, above: bool) {
        self.count += 1;
        self.above += u32::from(above);
    }

    fn share(self) -> f64 {
        f64::from(self.above) / f64::from(self.count.max(1))
    }

    /// The variance of the share where one in a hundred is above the tail.
    fn variance(self) -> f64 {
        TAIL * (1.0 - TAIL) / f64::from(self.count.max(1))
    }
}

/// The bucket, and what is known of foreground latency.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    rate: f64,
    tokens: f64,
    filled: Nanos,
    /// The 99th percentile of all requests, in nanoseconds; 0 before the first one.
    tail: f64,
    met: Seen,
    clear: Seen,
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
            tail: 0.0,
            met: Seen::default(),
            clear: Seen::default(),
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
        // There is nothing to compare with: pause.
        let blind = self.met.count >= JUDGED && self.clear.count < CLEAR;
        let taken = self.tokens >= bytes && !blind;
        if taken {
            self.tokens -= bytes;
        }
        taken
    }

    /// A client's request took `latency`; whether chunks were being moved then.
    pub(super) fn answered(&mut self, now: Nanos, latency: Nanos, met: bool, placing: &Placing) {
        let latency = latency.0 as f64;
        let above = latency > self.tail && self.tail > 0.0;
        // A step of 5 % of the estimate, up for one in a hundred and down for the others, has the percentile as its rest.
        if self.tail == 0.0 {
            self.tail = latency;
        } else if above {
            self.tail += 0.05 * self.tail;
        } else {
            self.tail -= 0.05 * self.tail * TAIL / (1.0 - TAIL);
        }
        if met {
            self.met.add(above);
        } else {
            self.clear.add(above);
        }
        if self.met.count < JUDGED
            || self.clear.count < CLEAR
            || now.saturating_since(self.judged) < JUDGED_AFTER
        {
            return;
        }
        let (met, clear) = (self.met.share(), self.clear.share());
        // Of `met - 2 * clear`. Without it the rate of a load whose hot set moves is halved by chance more often than it rises.
        let strays = (self.met.variance() + 4.0 * self.clear.variance()).sqrt();
        let (least, most) = (placing.bytes_per_second_min as f64, placing.bytes_per_second_max as f64);
        if met > 2.0 * clear + HARMED_HALVE + strays {
            self.rate = (self.rate / 2.0).clamp(least, most);
            self.tokens = 0.0;
            self.halvings += 1;
        } else if met <= clear + HARMED_RISE {
            self.rate = (self.rate + most / 32.0).clamp(least, most);
        }
        (self.met, self.clear, self.judged) = (Seen::default(), Seen::default(), now);
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

    /// 400 requests that meet a migration and 100 that do not, of which so many in a hundred take long; after half a million quick ones.
    fn judge(budget: &mut Budget, placing: &Placing, second: u64, met: u64, clear: u64) {
        let latency = |number: u64, long: u64| Nanos(if number % 100 < long { 9_000 } else { 1_000 });
        budget.tail = 2_000.0;
        for number in 0..100 {
            budget.answered(Nanos::secs(second), latency(number, clear), false, placing);
            budget.tail = 2_000.0;
        }
        for number in 0..400 {
            budget.answered(Nanos::secs(second), latency(number, met), true, placing);
            budget.tail = 2_000.0;
        }
    }

    #[test]
    fn the_rate_is_halved_by_harm_and_comes_back_steadily() {
        let placing = placing();
        let mut budget = Budget::new(&placing);
        // 6 % against 1 %: more than 2 x 1 + 1.5, and the root of 1 % of 99 % of (1 / 400 + 4 / 100), which is 2.05.
        judge(&mut budget, &placing, 2, 6, 1);
        assert_eq!((budget.rate(), budget.halvings), (1_600.0, 1));
        // 5 % against 1 %: in between.
        judge(&mut budget, &placing, 4, 5, 1);
        assert_eq!(budget.rate(), 1_600.0);
        // All are slow, whether or not they meet a migration: it is not to blame. 3,200 / 32 more.
        judge(&mut budget, &placing, 6, 50, 50);
        assert_eq!(budget.rate(), 1_700.0);
        for second in 10..30 {
            judge(&mut budget, &placing, second, 50, 1);
        }
        assert_eq!(budget.rate(), 100.0);
    }

    #[test]
    fn it_pauses_where_there_is_nothing_to_compare_with() {
        let placing = placing();
        let mut budget = Budget::new(&placing);
        assert!(!budget.take(Nanos::ZERO, 1));
        for _ in 0..400 {
            budget.answered(Nanos::secs(1), Nanos(1_000), true, &placing);
        }
        assert!(!budget.take(Nanos::secs(2), 100));
        for _ in 0..100 {
            budget.answered(Nanos::secs(2), Nanos(1_000), false, &placing);
        }
        assert!(budget.take(Nanos::secs(2), 100));
    }

    #[test]
    fn the_tail_is_the_99th_percentile() {
        let placing = placing();
        let mut budget = Budget::new(&placing);
        for number in 0..100_000u64 {
            budget.answered(Nanos::ZERO, Nanos(1_000 + number * 7_919 % 1_000), false, &placing);
        }
        assert!((1_900.0..2_100.0).contains(&budget.tail), "{}", budget.tail);
    }
}
