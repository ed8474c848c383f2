//! The head of a live curve: sizes for which its sample is too coarse.
//!
//! Of a hot block a sample sees every access or none. So a sampled curve is off by as much as such blocks are used, up to a size of some
//! hundred sampled blocks: from there on the accesses of hot blocks are hits whether they were sampled or not. A cache that is
//! small beside its working set lies below that.
//!
//! *Levels* look at what lies below (ours): samples at fixed rates, each a quarter of the one before, the first of everything, which
//! forget what has not been used for some hundred of their blocks. Of each only distances count that are long enough for its rate and
//! short enough to be remembered, so that levels follow one another without a gap up to where the main sample is fine enough. Each says
//! which share of the accesses whose distance is at least so long has just that distance; the product of what is left of them is the
//! curve (Kaplan and Meier, JASA 53, 1958), since a level that has just begun to look knows only of many accesses that their
//! distance is longer than what it has seen so far.
//!
//! They look in *bursts* (Hirzel and Chilimbi, Bursty Tracing, FDDO 2001) that begin at least four seconds after one another: all the time at a
//! thousand of a level's accesses a second, and at no more than that on average whatever the rate of the workload.

use crate::loglinear::{bucket_of, bucket_start};
use crate::sample_table::SampleTable;
use crate::{CurvePoint, MissRatioCurve};
use forebay_units::Nanos;

/// Sampled blocks from which on a size is estimated well enough (ours).
const FINE: usize = 128;
/// Each level samples a fourth of the one before.
const STEP_SHIFT: u32 = 2;
/// The longest distance that a level looks at, in sampled blocks: where the next one is fine enough.
const DEPTH: usize = FINE << STEP_SHIFT;
/// Levels at most: the last one reaches to half a million blocks.
const LEVELS_MAX: usize = 6;
/// Sampled accesses of a burst.
const BURST: u32 = 4_096;
/// From the beginning of one burst to that of the next, at least.
const BURSTS_APART: Nanos = Nanos::secs(4);
/// Sizes so many times larger than where the sample begins to speak are its own (ours).
const TAIL: u64 = 8;
/// What is missed beside first touches is taken for so much at least, so that it can be compared (ours).
const ABOVE_MIN: f64 = 1e-9;
/// Accesses that a share rests on at least; with fewer the main sample says it.
const TOLD_BY_MIN: u64 = 64;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct CurveHead {
    levels: Vec<Level>,
    /// The largest hash that any level looks at now; `None` where none does.
    threshold: Option<u64>,
    /// When the next level looks again.
    resumes: Nanos,
}

#[derive(Clone, Debug)]
struct Level {
    shift: u32,
    table: SampleTable,
    state: State,
    /// Of the older and of the younger epoch.
    counts: [Counts; 2],
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Has been looking since then, and looks at so many more sampled accesses.
    Looks { since: Nanos, left: u32 },
    /// Looks again from then on.
    Rests { until: Nanos },
}

/// Accesses by distance in sampled blocks, by buckets.
#[derive(Clone, Debug)]
struct Counts {
    /// This is their distance.
    reused: Box<[u32]>,
    /// Their distance is longer.
    longer: Box<[u32]>,
}

impl Counts {
    fn new() -> Counts {
        let none = || vec![0; bucket_of(DEPTH as u64) + 1].into_boxed_slice();
        Counts { reused: none(), longer: none() }
    }

    fn bytes(&self) -> usize {
        (self.reused.len() + self.longer.len()) * size_of::<u32>()
    }
}

impl Level {
    fn new(shift: u32, now: Nanos) -> Level {
        Level {
            shift,
            table: SampleTable::new(2 * DEPTH),
            state: State::Looks { since: now, left: BURST },
            counts: [Counts::new(), Counts::new()],
        }
    }

    fn threshold(&self) -> u64 {
        u64::MAX >> self.shift
    }

    fn access(&mut self, hash: u64) {
        let seen = self.table.len();
        let distance = self.table.touch(hash).filter(|&distance| distance <= DEPTH);
        for counts in &mut self.counts {
            let count = match distance {
                Some(distance) => &mut counts.reused[bucket_of(distance as u64)],
                None => &mut counts.longer[bucket_of(seen.min(DEPTH) as u64)],
            };
            *count = count.saturating_add(1);
        }
        if self.table.len() == 2 * DEPTH {
            self.table.keep_newest(DEPTH);
        }
    }

    /// By bucket of the older epoch, in its range: the size in blocks that the bucket reaches to, and of the accesses whose distance is at least
    /// as long as it begins the share that ends in it; `None` where too few say so.
    fn shares(&self) -> impl Iterator<Item = (u64, Option<f64>)> {
        let Counts { reused, longer } = &self.counts[0];
        let first = if self.shift == 0 { 1 } else { bucket_of(FINE as u64 + 1) };
        let last = bucket_of(DEPTH as u64);
        let counts = reused[first..].iter().chain(&longer[first..]);
        let mut at_risk: u64 = counts.map(|&count| u64::from(count)).sum();
        (first..=last).map(move |bucket| {
            let (reused, longer) = (u64::from(reused[bucket]), u64::from(longer[bucket]));
            let end = bucket_start(bucket + 1).min(DEPTH as u64 + 1);
            // Of those that leave within a bucket of several distances a half is taken to have left before.
            let early = if end - bucket_start(bucket) > 1 { longer / 2 } else { 0 };
            let asked = at_risk - early;
            at_risk -= reused + longer;
            ((end - 1) << self.shift, (asked >= TOLD_BY_MIN).then(|| reused as f64 / asked as f64))
        })
    }
}

impl CurveHead {
    pub(crate) fn new() -> CurveHead {
        CurveHead { levels: Vec::new(), threshold: None, resumes: Nanos::MAX }
    }

    pub(crate) fn bytes(&self) -> usize {
        let of = |level: &Level| level.table.bytes() + level.counts.iter().map(Counts::bytes).sum::<usize>();
        self.levels.capacity() * size_of::<Level>() + self.levels.iter().map(of).sum::<usize>()
    }

    /// The largest hash that it looks at; `None` where it looks at nothing now.
    pub(crate) fn threshold(&self) -> Option<u64> {
        self.threshold
    }

    /// It is `now`, and the main sample has one block in `scale`.
    pub(crate) fn follow(&mut self, scale: f64, now: Nanos) {
        let reach = |levels: usize| match levels {
            0 => 1.0,
            _ => ((DEPTH as u64) << (STEP_SHIFT * (levels as u32 - 1))) as f64 / FINE as f64,
        };
        while self.levels.len() < LEVELS_MAX && reach(self.levels.len()) < scale {
            self.levels.push(Level::new(STEP_SHIFT * self.levels.len() as u32, now));
            self.look();
        }
        if now >= self.resumes {
            for level in &mut self.levels {
                if matches!(level.state, State::Rests { until } if until <= now) {
                    level.state = State::Looks { since: now, left: BURST };
                }
            }
            self.look();
        }
    }

    /// What follows from the states of the levels.
    fn look(&mut self) {
        (self.threshold, self.resumes) = (None, Nanos::MAX);
        for level in &self.levels {
            match level.state {
                State::Looks { .. } => self.threshold = self.threshold.max(Some(level.threshold())),
                State::Rests { until } => self.resumes = self.resumes.min(until),
            }
        }
    }

    /// An access. `O(levels log DEPTH)`.
    pub(crate) fn access(&mut self, hash: u64, now: Nanos) {
        let mut ended = false;
        for level in &mut self.levels {
            let State::Looks { since, left } = level.state else { continue };
            if hash > level.threshold() {
                // The others look at less.
                break;
            }
            level.access(hash);
            let until = since.saturating_add(BURSTS_APART);
            level.state = match left - 1 {
                0 if until <= now => State::Looks { since: now, left: BURST },
                0 => {
                    // What goes by meanwhile is not seen.
                    level.table.clear();
                    ended = true;
                    State::Rests { until }
                }
                left => State::Looks { since, left },
            };
        }
        if ended {
            self.look();
        }
    }

    /// Ends an epoch: the younger one becomes the older one, if it is `complete`.
    pub(crate) fn rotate(&mut self, complete: bool) {
        for level in &mut self.levels {
            let younger = std::mem::replace(&mut level.counts[1], Counts::new());
            if complete {
                level.counts[0] = younger;
            }
        }
    }

    /// The curve whose head is that of the older epoch, and the rest that of `sampled`, which rests on one block in `scale`. `O(points)`.
    ///
    /// Where they meet the two differ, by chance. The first level sees everything, and what each of the others adds is about as uncertain as the sample
    /// is: each is led to where they meet by its part of the difference, so that the first level's sizes and large ones stay as they are.
    pub(crate) fn refine(&self, sampled: MissRatioCurve, scale: f64) -> MissRatioCurve {
        let levels = self.levels.iter().take_while(|level| f64::from(1u32 << level.shift) < scale).count();
        if levels == 0 {
            return sampled;
        }
        // First touches are known from the sample.
        let floor = sampled.floor();
        let mut points = Vec::new();
        let (mut size, mut longer) = (0u64, 1.0f64);
        for (next, ends) in self.levels[..levels].iter().flat_map(Level::shares) {
            let left = match ends {
                Some(ends) => 1.0 - ends,
                None => sampled.miss_ratio_at(next) / sampled.miss_ratio_at(size).max(f64::MIN_POSITIVE),
            };
            (size, longer) = (next, (longer * left).clamp(floor, 1.0));
            points.push(CurvePoint { size_blocks: size, miss_ratio: longer });
        }
        let above = |ratio: f64| (ratio - floor).max(ABOVE_MIN);
        let apart = (above(longer) / above(sampled.miss_ratio_at(size))).ln();
        let share = (levels - 1) as f64 / levels as f64;
        let led = |point: CurvePoint, by: f64| CurvePoint {
            miss_ratio: (floor + (point.miss_ratio - floor) * by.exp()).clamp(0.0, 1.0),
            ..point
        };
        // How much of the way from one size to another, by their logarithms, lies behind a third.
        let way = |at: u64, from: u64, to: u64| {
            ((at as f64 / from as f64).ln() / (to as f64 / from as f64).ln()).clamp(0.0, 1.0)
        };
        let begin = DEPTH as u64;
        for point in points.iter_mut().filter(|point| point.size_blocks > begin) {
            *point = led(*point, -share * apart * way(point.size_blocks, begin, size));
        }
        let rest = sampled.points().iter().filter(|point| point.size_blocks > size);
        points.extend(rest.map(|point| {
            led(*point, (1.0 - share) * apart * (1.0 - way(point.size_blocks, size, TAIL * size)))
        }));
        MissRatioCurve::new(points)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_units::mix64;

    fn curve(points: &[(u64, f64)]) -> MissRatioCurve {
        let point = |&(size_blocks, miss_ratio)| CurvePoint { size_blocks, miss_ratio };
        MissRatioCurve::new(points.iter().map(point).collect())
    }

    #[test]
    fn levels_reach_as_far_as_the_sample_is_too_coarse() {
        let levels = |scale| {
            let mut head = CurveHead::new();
            head.follow(scale, Nanos::ZERO);
            (head.levels.len(), head.threshold())
        };
        assert_eq!(levels(1.0), (0, None));
        assert_eq!(levels(1.5), (1, Some(u64::MAX))); // up to 512 blocks, where the sample knows 128 x 1.5
        assert_eq!(levels(4.0), (1, Some(u64::MAX)));
        assert_eq!(levels(17.0), (3, Some(u64::MAX))); // 512 x 4 blocks are fewer than 128 x 17
        assert_eq!(levels(1e9).0, LEVELS_MAX);
        // What says nothing yet changes nothing, and a sample of everything is left as it is.
        let sampled = curve(&[(64, 0.8), (640, 0.5), (6_400, 0.1)]);
        let mut head = CurveHead::new();
        head.follow(64.0, Nanos::ZERO);
        for size in [1, 60, 64, 300, 640, 3_000, 6_400, 10_000] {
            let (found, expected) =
                (head.refine(sampled.clone(), 64.0).miss_ratio_at(size), sampled.miss_ratio_at(size));
            assert!((found - expected).abs() < 2e-3, "{size} blocks: {found} for {expected}");
        }
        (0..5_000).for_each(|step| head.access(mix64(step % 100), Nanos::millis(step)));
        assert_eq!(head.refine(sampled.clone(), 1.0), sampled);
        let empty = MissRatioCurve::new(Vec::new());
        assert_eq!(head.refine(empty.clone(), 1.0), empty);
    }

    #[test]
    fn a_loop_over_few_blocks_is_told_whatever_the_sample_says() {
        // A hundred blocks, one after the other: none is hit in a cache of 99, all are in one of 100; nothing is new after the first round.
        let mut head = CurveHead::new();
        head.follow(4.0, Nanos::ZERO);
        (0..20_000).for_each(|step| head.access(mix64(step % 100), Nanos::millis(step)));
        let refined = head.refine(curve(&[(40, 0.4), (200, 0.005)]), 4.0);
        assert!(refined.miss_ratio_at(99) > 0.99 && refined.miss_ratio_at(100) < 0.01, "{refined:?}");
    }

    #[test]
    fn no_more_is_looked_at_the_faster_it_goes() {
        // A million accesses a second for twenty seconds: five bursts of each level.
        let mut head = CurveHead::new();
        head.follow(100.0, Nanos::ZERO);
        let mut looked = 0u64;
        let levels = head.levels.len() as u64;
        for step in 0..20_000_000u64 {
            let (hash, now) = (mix64(step), Nanos::micros(step));
            if head.threshold().is_some_and(|threshold| hash <= threshold) {
                head.access(hash, now);
                looked += 1;
            }
            // Who is not looked at is the sample's, of which one in a hundred wakes the others.
            if step % 100 == 0 {
                head.follow(100.0, now);
            }
        }
        let most = levels * 5 * u64::from(BURST);
        assert!(looked > most / 2 && looked <= most, "{looked} of at most {most}");
    }

    #[test]
    fn the_younger_epoch_takes_over_what_it_has_seen() {
        let mut head = CurveHead::new();
        head.follow(4.0, Nanos::ZERO);
        let run = |head: &mut CurveHead, steps: std::ops::Range<u64>, blocks: u64| {
            for step in steps {
                head.access(mix64(step % blocks), Nanos::millis(step));
                head.follow(4.0, Nanos::millis(step));
            }
            head.refine(curve(&[(40, 0.4), (400, 0.005)]), 4.0)
        };
        run(&mut head, 0..20_000, 10);
        head.rotate(false); // the first epoch ends, and answers on
        let both = run(&mut head, 20_000..40_000, 100);
        assert!((0.45..0.55).contains(&both.miss_ratio_at(50)), "{both:?}");
        head.rotate(true);
        let younger = head.refine(curve(&[(40, 0.4), (400, 0.005)]), 4.0);
        assert!(younger.miss_ratio_at(50) > 0.95, "{younger:?}");
    }
}
