//! How fast a cache is loaded: as fast as those who use the same storage do not feel.
//!
//! What they would see without the loading is measured, not assumed: of every [`CYCLE`] ticks the last [`RESTS`] load nothing, and the waits of the
//! foreground then are the measure for those while it loads. What is compared is the mean, which a tenth of a second tells well enough; a tail
//! rises with it: on emulated disks that are 60 % busy, by what is in `sim::presto`'s tests. No device is assumed, and the measure moves with the load. All of it is ours.
//!
//! Invariant: the rate is between [`RATE_MIN`], or the largest that it was given if that is less, and this largest one; rests are rests.

/// The length of a tick, in milliseconds.
pub const TICK_MS: u64 = 100;
/// Ticks of a cycle,
pub const CYCLE: u32 = 8;
/// and those at its end that load nothing: in the first what was under way ends, the others are measured.
pub const RESTS: u32 = 2;
/// Bytes per second that are loaded at least, if that many are allowed, but for rests: without any it would never end.
pub const RATE_MIN: u64 = 256 << 10;
/// Waits longer by this share are felt.
const TOLERANCE: f64 = 0.04;
/// What a cycle leaves of the sums of those before.
const MEMORY: f64 = 0.7;
/// Fewer waits say nothing,
const WAITS_MIN: f64 = 12.0;
/// and fewer in a whole cycle of them mean that nobody is there to feel it.
const NOBODY: f64 = 3.0;
/// One step down, and the largest, where it is felt far more than it may be.
const DOWN: f64 = 0.75;
const DOWN_MOST: f64 = 0.5;
const UP: f64 = 1.25;
/// Until it was felt for the first time.
const FIRST_UP: f64 = 1.5;

/// Waits of the foreground: how many, and how long all together. Old ones fade.
#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    count: f64,
    ns: f64,
}

impl Waits {
    fn add(&mut self, count: u64, ns: u64) {
        self.count += count as f64;
        self.ns += ns as f64;
    }

    fn mean(self) -> f64 {
        self.ns / self.count
    }

    fn fade(&mut self) {
        self.count *= MEMORY;
        self.ns *= MEMORY;
    }
}

/// The pace of one load.
#[derive(Clone, Debug)]
pub struct Pace {
    rate: f64,
    rate_min: f64,
    rate_max: f64,
    tick: u32,
    loading: Waits,
    resting: Waits,
    /// Waits of this cycle.
    cycle: u64,
    was_felt: bool,
}

impl Pace {
    /// Begins at `start` bytes per second and never passes `most`, of which at least one is taken.
    pub fn new(start: u64, most: u64) -> Pace {
        let rate_max = most.max(1) as f64;
        let rate_min = rate_max.min(RATE_MIN as f64);
        Pace {
            rate: (start as f64).clamp(rate_min, rate_max),
            rate_min,
            rate_max,
            tick: 0,
            loading: Waits::default(),
            resting: Waits::default(),
            cycle: 0,
            was_felt: false,
        }
    }

    /// Bytes per second in this tick; 0 in a rest.
    pub fn bytes_per_second(&self) -> u64 {
        if self.tick >= CYCLE - RESTS { 0 } else { self.rate as u64 }
    }

    /// A tick ended, in which the foreground waited `waits` times at the storage, `waited_ns` all together.
    pub fn tick(&mut self, waits: u64, waited_ns: u64) {
        self.cycle += waits;
        // What ends in the first tick of either kind began in the other.
        if (1..CYCLE - RESTS).contains(&self.tick) {
            self.loading.add(waits, waited_ns);
        } else if self.tick > CYCLE - RESTS {
            self.resting.add(waits, waited_ns);
        }
        self.tick += 1;
        if self.tick == CYCLE {
            self.tick = 0;
            self.adapt();
        }
    }

    fn adapt(&mut self) {
        let up = if self.was_felt { UP } else { FIRST_UP };
        if (self.cycle as f64) < NOBODY {
            self.rate *= up;
        } else if self.loading.count.min(self.resting.count) >= WAITS_MIN {
            let excess = self.loading.mean() / self.resting.mean().max(1.0) - 1.0;
            // One standard error, of waits that stray as much as they are long.
            let error = (1.0 / self.loading.count + 1.0 / self.resting.count).sqrt();
            if excess > TOLERANCE + error {
                self.rate *= ((TOLERANCE + error) / excess).clamp(DOWN_MOST, DOWN);
                self.was_felt = true;
            } else if excess < TOLERANCE {
                self.rate *= up;
            }
        }
        self.rate = self.rate.clamp(self.rate_min, self.rate_max);
        self.cycle = 0;
        self.loading.fade();
        self.resting.fade();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_workload::{exponential, random};

    const MIB: u64 = 1 << 20;

    #[test]
    fn one_tick_in_four_is_a_rest() {
        let mut pace = Pace::new(10 * MIB, 64 * MIB);
        let mut rates = Vec::new();
        for _ in 0..CYCLE {
            rates.push(pace.bytes_per_second() / MIB);
            pace.tick(0, 0);
        }
        assert_eq!(rates, [10, 10, 10, 10, 10, 10, 0, 0]);
        // Nobody was there: half as much again, up to the most there is.
        assert_eq!(pace.bytes_per_second(), 15 * MIB);
        (0..5 * CYCLE).for_each(|_| pace.tick(0, 0));
        assert_eq!(pace.bytes_per_second(), 64 * MIB);
    }

    #[test]
    fn what_is_felt_is_told_by_enough_waits_of_the_ticks_that_are_measured() {
        /// A cycle of so many `waits` a tick, each of so many milliseconds in that tick.
        fn cycle(pace: &mut Pace, waits: u64, ms: [u64; CYCLE as usize]) -> u64 {
            ms.iter().for_each(|ms| pace.tick(waits, waits * ms * 1_000_000));
            pace.bytes_per_second()
        }
        // Twice as long while it loads is felt far more than it may be: half as fast at once, and slower again only from there.
        let felt = [2, 2, 2, 2, 2, 2, 1, 1];
        let mut pace = Pace::new(16 * MIB, 64 * MIB);
        assert_eq!(cycle(&mut pace, 400, felt), 8 * MIB);
        // Nobody is there any more: up by a quarter, since it was felt before.
        assert_eq!(cycle(&mut pace, 0, felt), 10 * MIB);
        // What began before the loading, or while it still loaded, says nothing.
        let carried = [100, 1, 1, 1, 1, 1, 1, 1];
        assert_eq!(cycle(&mut Pace::new(16 * MIB, 64 * MIB), 400, carried), 24 * MIB);
        let carried = [2, 2, 2, 2, 2, 2, 100, 1];
        assert_eq!(cycle(&mut Pace::new(16 * MIB, 64 * MIB), 400, carried), 8 * MIB);
        // Of one wait in a rest it is not known what a wait is, however many cycles there are.
        let mut pace = Pace::new(16 * MIB, 64 * MIB);
        (0..50).for_each(|_| assert_eq!(cycle(&mut pace, 1, felt), 16 * MIB));
    }

    #[test]
    fn a_maximum_below_the_least_rate_holds() {
        for most in [1, 100_000, RATE_MIN - 1] {
            for start in [0, most, MIB] {
                let mut pace = Pace::new(start, most);
                for _ in 0..10 * CYCLE {
                    assert!(
                        [0, most].contains(&pace.bytes_per_second()),
                        "{} of {most}",
                        pace.bytes_per_second()
                    );
                    pace.tick(0, 0);
                }
            }
        }
    }

    /// An open queue: waits are exponential around `1 / (1 - load)` ms, and loading adds to the load. What the rate comes to, as a mean
    /// over the second half of a minute, and by how much waits were longer meanwhile.
    fn settle(load: f64, waits_per_tick: u64, full_rate: u64, seed: u64) -> (f64, f64) {
        let mut pace = Pace::new(MIB, 64 * MIB);
        let mut random = random(seed);
        let (mut rates, mut excess, mut ticks) = (0.0, 0.0, 0.0);
        for tick in 0..600 {
            let rate = pace.bytes_per_second();
            let load_now = (load + rate as f64 / full_rate as f64).min(0.99);
            let mean_ns = 1e6 / (1.0 - load_now);
            let waited: f64 = (0..waits_per_tick).map(|_| exponential(mean_ns, &mut random)).sum();
            if tick >= 300 {
                rates += rate as f64;
                excess += (1.0 - load) / (1.0 - load_now) - 1.0;
                ticks += 1.0;
            }
            pace.tick(waits_per_tick, waited as u64);
        }
        (rates / ticks, excess / ticks)
    }

    #[test]
    fn it_settles_where_it_is_hardly_felt_and_uses_what_is_free() {
        let settled = |load, full_rate| -> Vec<(f64, f64)> {
            let settled = (0..8).map(|seed| settle(load, 40, full_rate, seed));
            settled.map(|(rate, excess)| (rate / MIB as f64, excess)).collect()
        };
        let mean = |settled: &[(f64, f64)]| settled.iter().map(|(rate, _)| rate / 8.0).sum::<f64>();
        // 60 % load, a device that gives 200 MiB/s in all: an excess of 4 % is reached at 3.1 MiB/s.
        let busy = settled(0.6, 200 * MIB);
        assert!(busy.iter().all(|(rate, excess)| *excess < 0.1 && *rate > 0.5), "{busy:.3?}");
        assert!((2.0..4.5).contains(&mean(&busy)), "{busy:.3?}");
        // A device that does not feel it at all.
        let free = settled(0.2, 1 << 50);
        assert!(mean(&free) > 35.0 && free.iter().all(|(rate, _)| *rate > 20.0), "{free:.3?}");
        // One that nearly stands still already: little more than the least.
        let full = settled(0.95, 200 * MIB);
        assert!(full.iter().all(|(rate, _)| *rate < 1.0), "{full:.3?}");
    }
}
