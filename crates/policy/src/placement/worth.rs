//! What hits and migrations are worth, by how long origin and tier take: a read that a disk would have served is the unit.
//!
//! Such a read spares its own time, and others their wait for it. How much of both is the others' wait is the *load*: next to nothing where disks are idle, nearly all where they are not. A migration is
//! worth less nothing but others' wait, so it costs what its accesses do, times the load. So does a write that the array's cache takes at once and a disk takes later; for the client it spares the
//! difference between origin and tier, which is below zero where the tier is slower.
//!
//! How busy the disks are is not seen, but guessed from the reads that took one: where nobody waits, their mean is not far above the quick ones among them. It is *not* a model of
//! the origin, and knows no number of disks. The waits are those of Pollaczek and Khinchine's formula for one queue; all else, and all numbers, are ours.

use forebay_units::Nanos;

/// Samples that a mean goes back at most, and those of them that the end of a window leaves.
const REMEMBERED: f64 = 1_024.0;
const KEPT: f64 = 0.5;
/// Reads at an idle disk that every window begins with. None of the windows before is kept: what disks are busy with changes within seconds, and a rush that is remembered where few reads follow has
/// its chunks taken for worth their writes.
const IDLE_READS: f64 = 16.0;
/// The share of the quick reads, and the largest step towards what the quickest of them take.
const QUICK: f64 = 0.1;
const STEP: f64 = 0.003;
/// What the mean of an idle disk's random reads is, in quick ones: seeks and rotation differ.
const IDLE: f64 = 2.0;
/// What a random read takes before any was seen, in reads that are just too slow to have come from the array's cache.
const PRIOR: f64 = 4.0;
/// How far a window takes what a write is worth up to what it is worth now.
const RISES: f64 = 1.0 / 16.0;
/// What wear adds to the load.
const WEAR: f64 = 0.02;
/// Half of one and the squared variation of random reads.
const WAIT: f64 = 0.55;

/// A mean of the latest samples, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    samples: f64,
    value: f64,
}

impl Mean {
    fn add(&mut self, sample: f64, weight: f64) {
        self.samples = (self.samples + weight).min(REMEMBERED);
        self.value += (sample - self.value) * weight / self.samples;
    }
}

/// How long the origin and the tier take.
#[derive(Clone, Debug)]
pub(super) struct Worth {
    /// Reads of the origin that took a disk, and what the quickest tenth of them takes at most.
    reads: Mean,
    quick: f64,
    /// Reads of the origin that took no disk, and of the tier.
    array_reads: Mean,
    tier_reads: Mean,
    origin_writes: Writes,
    tier_writes: Writes,
    migrations: Mean,
    /// What an access takes at most that took no disk, in nanoseconds.
    fast_latency: f64,
}

/// Writes of one place.
#[derive(Clone, Copy, Debug, Default)]
struct Writes {
    took: Mean,
    /// The same with the wait for earlier writes of the same blocks.
    with_wait: Mean,
    /// What one is worth to a chunk that is there.
    worth: f64,
}

impl Writes {
    fn add(&mut self, took: Nanos, with_wait: Nanos) {
        self.took.add(took.0 as f64, 1.0);
        self.with_wait.add(with_wait.0 as f64, 1.0);
    }

    /// How often the time of one is waited: more than once where writes of the same blocks wait for each other.
    fn times(&self) -> f64 {
        (self.with_wait.value / self.took.value.max(1.0)).max(1.0)
    }
}

impl Worth {
    /// Knows nothing yet, and takes the disks for idle; `fast_latency` is what a read takes at most that took no disk.
    pub(super) fn new(fast_latency: Nanos) -> Worth {
        let read = PRIOR * fast_latency.0 as f64;
        Worth {
            reads: Mean { samples: IDLE_READS, value: read },
            quick: read / IDLE,
            array_reads: Mean::default(),
            tier_reads: Mean::default(),
            origin_writes: Writes::default(),
            tier_writes: Writes::default(),
            migrations: Mean::default(),
            fast_latency: fast_latency.0 as f64,
        }
    }

    /// A read of the origin that took a disk.
    pub(super) fn disk_read(&mut self, latency: Nanos) {
        let latency = latency.0 as f64;
        self.reads.add(latency, 1.0);
        // Steps whose rest is the percentile.
        if latency > self.quick {
            self.quick += STEP * self.quick * QUICK;
        } else {
            self.quick -= STEP * self.quick * (1.0 - QUICK);
        }
    }

    /// A read of the origin that took no disk.
    pub(super) fn array_read(&mut self, latency: Nanos) {
        self.array_reads.add(latency.0 as f64, 1.0);
    }

    /// A read of the tier.
    pub(super) fn tier_read(&mut self, latency: Nanos) {
        self.tier_reads.add(latency.0 as f64, 1.0);
    }

    /// A write that the origin took.
    pub(super) fn origin_wrote(&mut self, took: Nanos, with_wait: Nanos) {
        self.origin_writes.add(took, with_wait);
    }

    /// A write that the tier took in place of the origin.
    pub(super) fn tier_wrote(&mut self, took: Nanos, with_wait: Nanos) {
        self.tier_writes.add(took, with_wait);
    }

    /// A migration from its beginning to its end.
    pub(super) fn migrated(&mut self, took: Nanos) {
        self.migrations.add(took.0 as f64, 1.0);
    }

    /// How long a migration takes.
    pub(super) fn migration(&self) -> Nanos {
        Nanos(self.migrations.value as u64)
    }

    /// A window ends: what was seen before it counts less.
    pub(super) fn end_window(&mut self) {
        // Who is placed stays, so a rush must not decide what writes will be worth: it goes up slowly, and down at once.
        let now = [self.write_now(&self.origin_writes), self.write_now(&self.tier_writes)];
        for (writes, now) in [&mut self.origin_writes, &mut self.tier_writes].into_iter().zip(now) {
            writes.worth = if now > writes.worth { writes.worth + RISES * (now - writes.worth) } else { now };
            writes.took.samples *= KEPT;
            writes.with_wait.samples *= KEPT;
        }
        for mean in [&mut self.array_reads, &mut self.tier_reads, &mut self.migrations] {
            mean.samples *= KEPT;
        }
        // Where few reads take a disk nobody waits, however long they waited before.
        self.reads = Mean { samples: IDLE_READS, value: IDLE * self.quick };
    }

    /// How long others wait for one more read, of that and what the read itself takes, 0 to 1.
    pub(super) fn load(&self) -> f64 {
        // A read takes 1 + WAIT * x services, x = utilization / (1 - utilization). One more adds to that, for all others together, WAIT * x * (1 + x).
        let own = (self.reads.value / (IDLE * self.quick)).max(1.0);
        let x = (own - 1.0) / WAIT;
        let others = (own - 1.0) * (1.0 + x);
        others / (others + own)
    }

    /// What a migration costs, of what it costs at a busy origin: some of it always, for it wears flash.
    pub(super) fn migrating(&self) -> f64 {
        (self.load() + WEAR).min(1.0)
    }

    /// What a read is worth that the tier answers in place of the origin, which would have taken a disk for this share of them.
    pub(super) fn read(&self, slow: f64) -> f64 {
        let load = self.load();
        if self.tier_reads.samples == 0.0 || self.array_reads.samples == 0.0 {
            return slow;
        }
        let disk = self.reads.value.max(1.0);
        let origin = slow * disk + (1.0 - slow) * self.array_reads.value;
        ((1.0 - load) * (origin - self.tier_reads.value) / disk + load * slow).clamp(-1.0, 1.0)
    }

    /// What a write is worth that the tier takes in place of the origin, in reads of a disk, to a chunk that is in the tier or not.
    pub(super) fn write(&self, in_tier: bool) -> f64 {
        if in_tier { self.tier_writes.worth } else { self.origin_writes.worth }
    }

    /// The same, of what was seen of late; which chunks are often written at once is told by where they are.
    fn write_now(&self, there: &Writes) -> f64 {
        let origin = self.origin_writes.took.value;
        // Until it is known, a write to the tier spares what the origin needs beyond an access that takes no disk.
        let tier = match self.tier_writes.took.samples > 0.0 {
            true => self.tier_writes.took.value,
            false => self.fast_latency.min(origin),
        };
        let spared = there.times() * (origin - tier);
        let load = self.load();
        ((1.0 - load) * spared / self.reads.value.max(1.0) + load).clamp(-1.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Disk reads, one in five of 2 ms and the others of 4, each so many times as long; the tenth quickest are among the former.
    fn reads(worth: &mut Worth, count: u64, times: u64) {
        for number in 0..count {
            worth.disk_read(Nanos::millis(times * if number % 5 == 0 { 2 } else { 4 }));
        }
    }

    #[test]
    fn the_load_is_what_others_wait() {
        let mut worth = Worth::new(Nanos::millis(1));
        assert_eq!(worth.load(), 0.0);
        // Quick ones take 2 ms, so that an idle disk's mean is 4 ms: nobody waits.
        reads(&mut worth, 1_000, 1);
        assert!(worth.load() < 0.05, "{worth:?}");
        // Others wait, and the quickest stay as they are.
        for number in 0..4_000u64 {
            worth.disk_read(Nanos::millis(if number % 5 == 0 { 2 } else { 9 }));
        }
        // Mean (2 + 4 x 9) / 5 = 7.6 ms: own = 1.9, x = 0.9 / 0.55 = 1.64, others = 0.9 x 2.64 = 2.37; 2.37 / 4.27 = 0.56.
        assert!((0.5..0.62).contains(&worth.load()), "{}", worth.load());
        // Few reads follow: it is forgotten with the window. Four that still waited, of 9 ms, beside 16 of twice the quickest, some 2 ms: mean 5 ms, own = 1.25, x = 0.45, others = 0.36; 0.36 / 1.61 = 0.23.
        worth.end_window();
        assert_eq!(worth.load(), 0.0);
        (0..4).for_each(|_| worth.disk_read(Nanos::millis(9)));
        assert!((0.18..0.28).contains(&worth.load()), "{}", worth.load());
        // Enough that wait, and it is busy again: 64 of 9 ms, mean 8 ms, own = 2, x = 1.8, others = 2.8; 0.58.
        (0..60).for_each(|_| worth.disk_read(Nanos::millis(9)));
        assert!((0.5..0.65).contains(&worth.load()), "{}", worth.load());
    }

    #[test]
    fn a_write_is_worth_nothing_while_it_is_not_known_that_the_tier_is_quicker() {
        let mut worth = Worth::new(Nanos::millis(1));
        let wrote = |worth: &mut Worth, took| (0..100).for_each(|_| worth.origin_wrote(took, took));
        // The array takes it at once, disks idle: nobody would gain.
        wrote(&mut worth, Nanos::micros(200));
        (0..100).for_each(|_| worth.end_window());
        assert_eq!((worth.write(false), worth.write(true)), (0.0, 0.0));
        // It takes 3 ms, of which an access without a disk spares 2, half of a random read's 4 ms; what it is worth rises slowly.
        (0..200).for_each(|_| {
            wrote(&mut worth, Nanos::millis(3));
            worth.end_window();
        });
        assert!((0.45..=0.5).contains(&worth.write(false)), "{}", worth.write(false));
        // The tier turns out to take 0.2 ms: 2.8 of 4 ms.
        (0..200).for_each(|_| {
            wrote(&mut worth, Nanos::millis(3));
            worth.tier_wrote(Nanos::micros(200), Nanos::micros(200));
            worth.end_window();
        });
        assert!((0.65..=0.7).contains(&worth.write(false)), "{}", worth.write(false));
    }

    #[test]
    fn a_write_that_the_array_takes_at_once_is_worth_less_than_nothing_at_idle_disks() {
        let mut worth = Worth::new(Nanos::millis(1));
        reads(&mut worth, 1_000, 1);
        for _ in 0..100 {
            worth.origin_wrote(Nanos::micros(200), Nanos::micros(200));
            worth.tier_wrote(Nanos::micros(700), Nanos::micros(700));
        }
        worth.end_window();
        // -0.5 ms of 3.6 ms.
        assert!((-0.16..-0.08).contains(&worth.write(false)), "{}", worth.write(false));
        // The array's cache is full. It goes up by a sixteenth of the way a window, and down at once.
        (0..2_000).for_each(|_| worth.origin_wrote(Nanos::millis(50), Nanos::millis(50)));
        worth.end_window();
        let first = worth.write(false);
        assert!((-0.1..0.0).contains(&first), "{first}");
        (0..64).for_each(|_| worth.end_window());
        assert!(worth.write(false) > 0.9, "{}", worth.write(false));
        (0..4_000).for_each(|_| worth.origin_wrote(Nanos::micros(200), Nanos::micros(200)));
        worth.end_window();
        assert!(worth.write(false) < -0.08, "{}", worth.write(false));
    }

    #[test]
    fn writes_that_wait_for_each_other_count_as_often_as_they_wait() {
        let mut worth = Worth::new(Nanos::millis(1));
        reads(&mut worth, 1_000, 1);
        for _ in 0..100 {
            worth.origin_wrote(Nanos::micros(200), Nanos::micros(200));
            worth.tier_wrote(Nanos::micros(700), Nanos::micros(2_100));
        }
        worth.end_window();
        // Of the tier's chunks three times -0.5 ms of 3.6 ms, of the others once.
        assert!((-0.45..-0.36).contains(&worth.write(true)), "{}", worth.write(true));
        assert!((-0.16..-0.08).contains(&worth.write(false)), "{}", worth.write(false));
    }

    #[test]
    fn a_read_that_the_array_answers_sooner_is_worth_less_than_nothing() {
        let mut worth = Worth::new(Nanos::millis(1));
        reads(&mut worth, 1_000, 1);
        assert_eq!((worth.read(0.0), worth.read(0.75)), (0.0, 0.75));
        for _ in 0..100 {
            worth.array_read(Nanos::micros(200));
            worth.tier_read(Nanos::micros(560));
        }
        // (0.2 - 0.56) / 3.6 = -0.1, and (3.6 - 0.56) / 3.6 = 0.84.
        assert!((-0.11..-0.09).contains(&worth.read(0.0)), "{}", worth.read(0.0));
        assert!((0.82..0.87).contains(&worth.read(1.0)), "{}", worth.read(1.0));
    }

    #[test]
    fn a_migration_costs_little_where_disks_are_idle() {
        let mut worth = Worth::new(Nanos::millis(1));
        assert_eq!(worth.migrating(), WEAR);
        reads(&mut worth, 1_000, 1);
        (0..1_000).for_each(|_| worth.disk_read(Nanos::millis(200)));
        assert!(worth.migrating() > 0.95, "{}", worth.migrating());
        assert_eq!(worth.migration(), Nanos::ZERO);
        worth.migrated(Nanos::millis(4));
        worth.migrated(Nanos::millis(6));
        assert_eq!(worth.migration(), Nanos::millis(5));
    }
}
