//! How fast chunks may be moved: a token bucket whose rate rises steadily and is halved when requests that meet a migration become slower than those of the
//! same tenth of a second that do not.
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
/// How long a spell is within which they are compared, at least, and how many that met none it has.
const SPELL: Nanos = Nanos(100_000_000);
const PEERS: u32 = 4;
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
}

/// Requests of one time, those that met a migration and those that did not. Only such are compared: migrations come in rushes, in which everybody waits, and most of those that met none ask between them.
#[derive(Clone, Copy, Debug, Default)]
struct Spell {
    since: Nanos,
    met: Seen,
    clear: Seen,
}

impl Spell {
    /// Whether there is nothing to compare with.
    fn is_blind(&self) -> bool {
        self.met.count >= JUDGED && self.clear.count < CLEAR
    }
}

/// What spells add up to, those that have both.
#[derive(Clone, Copy, Debug, Default)]
struct Compared {
    met: Seen,
    clear: u32,
    /// How many that met a migration would be above the tail by the shares of the others at the same time.
    expected: f64,
    /// The variance of those that are above it less twice the expected, by that of one.
    spread: f64,
}

impl Compared {
    fn with(self, spell: &Spell) -> Compared {
        let Spell { met, clear, .. } = *spell;
        if met.count == 0 || clear.count < PEERS {
            return self;
        }
        let (count, others) = (f64::from(met.count), f64::from(clear.count));
        Compared {
            met: Seen { count: self.met.count + met.count, above: self.met.above + met.above },
            clear: self.clear + clear.count,
            expected: self.expected + count * clear.share(),
            spread: self.spread + count + 4.0 * count * count / others,
        }
    }

    fn is_enough(&self) -> bool {
        self.met.count >= JUDGED && self.clear >= CLEAR
    }
}

/// The bucket, and what is known of foreground latency.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    rate: f64,
    /// What clients have brought it to, whatever the limit is; `None` where nothing but that keeps it down.
    felt: Option<f64>,
    tokens: f64,
    filled: Nanos,
    /// The 99th percentile of all requests, in nanoseconds; 0 before the first one.
    tail: f64,
    spell: Spell,
    compared: Compared,
    judged: Nanos,
    /// How often the rate was halved.
    pub(super) halvings: u64,
}

impl Budget {
    pub(super) fn new(placing: &Placing) -> Budget {
        Budget {
            rate: placing.bytes_per_second_max as f64,
            felt: None,
            tokens: 0.0,
            filled: Nanos::ZERO,
            tail: 0.0,
            spell: Spell::default(),
            compared: Compared::default(),
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
        // Where there is nothing to compare with, it pauses.
        let taken = self.tokens >= bytes && !self.spell.is_blind();
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
        if now.saturating_since(self.spell.since) >= SPELL
            && (self.spell.met.count == 0 || self.spell.clear.count >= PEERS && !self.spell.is_blind())
        {
            self.compared = self.compared.with(&self.spell);
            self.spell = Spell { since: now, ..Spell::default() };
        }
        match met {
            true => self.spell.met.add(above),
            false => self.spell.clear.add(above),
        }
        if now.saturating_since(self.judged) < JUDGED_AFTER || self.spell.is_blind() {
            return;
        }
        let compared = self.compared.with(&self.spell);
        if !compared.is_enough() {
            return;
        }
        let count = f64::from(compared.met.count);
        let (met, clear) = (compared.met.share(), compared.expected / count);
        // Of `met - 2 * clear`. Without it the rate of a load whose hot set moves is halved by chance more often than it rises.
        let usual = clear.clamp(TAIL, 0.5);
        let strays = (usual * (1.0 - usual) * compared.spread).sqrt() / count;
        let (least, most) = (placing.bytes_per_second_min as f64, placing.bytes_per_second_max as f64);
        if met > 2.0 * clear + HARMED_HALVE + strays {
            self.rate = (self.rate / 2.0).clamp(least, most);
            self.felt = Some(self.rate);
            self.tokens = 0.0;
            self.halvings += 1;
        } else if met <= clear + HARMED_RISE {
            self.rate = (self.rate + most / 32.0).clamp(least, most);
            if self.felt.is_some_and(|felt| self.rate >= felt) {
                self.felt = Some(self.rate).filter(|rate| *rate < most);
            }
        }
        (self.compared, self.spell, self.judged) =
            (Compared::default(), Spell { since: now, ..Spell::default() }, now);
    }

    /// Other limits hold from now on.
    pub(super) fn set(&mut self, placing: &Placing) {
        let (least, most) = (placing.bytes_per_second_min as f64, placing.bytes_per_second_max as f64);
        self.rate = self.felt.unwrap_or(most).clamp(least, most);
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
    fn a_time_that_is_told_late_brings_no_tokens_twice() {
        let mut budget = Budget::new(&placing());
        assert!(budget.take(Nanos::secs(1), 3_200));
        assert!(!budget.take(Nanos::ZERO, 1));
        assert!(!budget.take(Nanos::secs(1), 1));
    }

    #[test]
    fn what_only_the_limit_keeps_down_rises_with_it() {
        let limits = |most| Placing { bytes_per_second_max: most, ..placing() };
        let mut budget = Budget::new(&limits(3_200));
        budget.set(&limits(200));
        assert_eq!(budget.rate(), 200.0);
        budget.set(&limits(3_200));
        assert_eq!(budget.rate(), 3_200.0);
        // But what clients felt stays.
        (budget.rate, budget.felt) = (800.0, Some(800.0));
        budget.set(&limits(200));
        assert_eq!(budget.rate(), 200.0);
        budget.set(&limits(6_400));
        assert_eq!(budget.rate(), 800.0);
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
    fn a_rush_is_not_taken_for_harm() {
        let placing = placing();
        let mut budget = Budget::new(&placing);
        budget.rate = 1_600.0;
        let answer = |budget: &mut Budget, now, long: bool, met| {
            budget.tail = 2_000.0;
            budget.answered(now, Nanos(if long { 9_000 } else { 1_000 }), met, &placing);
        };
        for second in 1..=4 {
            // 300 quick ones, and no migration; then half of 500 are long, of which four in five meet one. By all of the second 50 % are long of those, and 12 % of the others.
            (0..300).for_each(|_| answer(&mut budget, Nanos::secs(second), false, false));
            let rush = Nanos::secs(second) + Nanos::millis(500);
            (0..500).for_each(|number| answer(&mut budget, rush, number % 2 == 0, number / 2 % 5 > 0));
        }
        // 3,200 / 32 more each time.
        assert_eq!((budget.rate(), budget.halvings), (2_000.0, 0));
        // Of others at the same time few are long: it is to blame.
        (0..500).for_each(|number| answer(&mut budget, Nanos::secs(6), number % 5 > 0, number % 5 > 0));
        assert_eq!((budget.rate(), budget.halvings), (1_000.0, 1));
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
