//! What the array's own cache holds, as far as answers tell: which share of requests is answered without a disk, by how much was asked for since their chunk was last accessed.
//!
//! A chunk that is used again soon is served by the array's cache anyway; placing it would keep it twice. So an access counts only as much as it would have been slow. It does not
//! see blocks, only chunks, and knows no size of the array's cache. Ages are bytes that were asked for, not time: what a cache still holds in a rush is gone sooner, and after it stays longer. The idea of leaving short reuse to the array is SANCache's (MSST 2006: exclusivity, "complements recency-based array
//! caches"); this way to infer it, and all numbers, are ours.

use super::COUNT;
use forebay_units::Nanos;

/// A tick is 2^20 ns, about a millisecond; the clock of migrations.
const TICK_SHIFT: u32 = 20;
/// Answers of an age that are remembered, before both counts are halved.
const REMEMBERED: u32 = 1_024;
/// Answers of an age that are taken for slow before any was seen.
const PRIOR: u32 = 8;
const AGES: usize = 33;

/// An age, as the power of two above the blocks of 4 KiB that were asked for since; 32 for "never before".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age(pub(super) u8);

impl Age {
    pub(super) const NEVER: Age = Age(32);

    pub(super) fn of(blocks: u32) -> Age {
        Age((u32::BITS - blocks.leading_zeros()).min(31) as u8)
    }
}

/// The clock of migrations; wraps after 52 days.
pub(super) fn tick(now: Nanos) -> u32 {
    (now.0 >> TICK_SHIFT) as u32
}

/// By age: answers, and those among them that took a disk.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    answers: [u32; AGES],
    slow: [u32; AGES],
}

impl Reach {
    pub(super) fn new() -> Reach {
        Reach { answers: [PRIOR; AGES], slow: [PRIOR; AGES] }
    }

    /// The origin has answered a read of a chunk of that age.
    pub(super) fn answered(&mut self, age: Age, slow: bool) {
        let at = usize::from(age.0);
        self.answers[at] += 1;
        self.slow[at] += u32::from(slow);
        if self.answers[at] >= REMEMBERED {
            self.answers[at] /= 2;
            self.slow[at] /= 2;
        }
    }

    /// How much a read of that age counts, in sixteenths.
    pub(super) fn weight(&self, age: Age) -> u64 {
        let at = usize::from(age.0);
        (u64::from(self.slow[at]) * COUNT + u64::from(self.answers[at]) / 2) / u64::from(self.answers[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_array_answers_does_not_count() {
        let mut reach = Reach::new();
        assert_eq!(reach.weight(Age::NEVER), 16);
        // 24 fast answers: 8 of 32 were slow, a quarter of 16.
        for _ in 0..24 {
            reach.answered(Age::of(3), false);
        }
        assert_eq!((reach.weight(Age::of(3)), reach.weight(Age::of(4))), (4, 16));
        // Ages 2 and 3 are one class.
        assert_eq!(Age::of(2), Age::of(3));
        // The array's cache is taken by somebody else: after some 1,000 slow answers it is forgotten that it ever helped.
        for _ in 0..2_000 {
            reach.answered(Age::of(3), true);
        }
        assert_eq!(reach.weight(Age::of(3)), 16);
    }

    #[test]
    fn ages_have_classes() {
        assert_eq!([0, 1, 2, 4, u32::MAX].map(|blocks| Age::of(blocks).0), [0, 1, 2, 3, 31]);
        assert_eq!(tick(Nanos::secs(1)), 953);
    }

    #[test]
    fn an_array_that_helped_for_long_is_soon_known_to_help_no_more() {
        let mut reach = Reach::new();
        (0..100_000).for_each(|_| reach.answered(Age::of(3), false));
        assert_eq!(reach.weight(Age::of(3)), 0);
        (0..2_000).for_each(|_| reach.answered(Age::of(3), true));
        assert!(reach.weight(Age::of(3)) > 8, "{}", reach.weight(Age::of(3)));
    }
}
