//! Hot zones: which large ranges draw more than a share of the accesses (lossy counting; Manku and Motwani, VLDB '02).

use forebay_units::mix64;

#[derive(Clone, Copy, Debug)]
struct Entry {
    zone: u64,
    /// Counted since the entry was made, up to 2^32 - 1; 0 marks an empty slot.
    count: u32,
    /// What may have been counted before the entry was made and then dropped.
    missed: u32,
}

const EMPTY: Entry = Entry { zone: 0, count: 0, missed: 0 };

/// A zone and how often it was accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneCount {
    /// The zone's number: its first block divided by the blocks per zone.
    pub zone: u64,
    /// At most the true number of accesses, and less by at most the counter's error bound.
    pub count: u64,
}

/// Lossy counting in bounded memory.
///
/// The paper ends a bucket after every `1 / epsilon` accesses and then drops what cannot have been counted more often than the
/// number of buckets. Here a bucket ends only when the table is full (ours): nothing is dropped that there is room for, and the
/// error bound, which is the number of buckets, is as low as the memory allows. By the paper's argument (theorem 4.2) it is at
/// most `epsilon * n + 1` after `n` accesses counted one by one for any `epsilon` with `ln(epsilon * n) / epsilon` at most half the entries.
///
/// Every zone with more than `error_bound()` accesses is listed, no count is above the true one, and none is below by more than
/// `error_bound()`.
#[derive(Clone, Debug)]
pub struct LossyCounter {
    entries: Box<[Entry]>,
    len: usize,
    /// The home slot is the product's top bits.
    shift: u32,
    /// What any zone that is not in the table may have been counted; the paper's bucket number.
    bound: u32,
    total: u64,
}

impl LossyCounter {
    /// A counter with `entries` entries, rounded up to a power of two of at least 16; up to three quarters are used.
    pub fn new(entries: usize) -> LossyCounter {
        let slots = entries.max(16).next_power_of_two();
        LossyCounter {
            entries: vec![EMPTY; slots].into_boxed_slice(),
            len: 0,
            shift: 64 - slots.trailing_zeros(),
            bound: 0,
            total: 0,
        }
    }

    /// The home slot: multiplicative hashing (Knuth, TAOCP 6.4), as neighbouring zones are the common case and it keeps them apart.
    #[inline]
    fn home(&self, zone: u64) -> usize {
        (zone.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    /// Counts `accesses` accesses to `zone`, at least one; they raise the paper's bound by as many as they are.
    #[inline]
    pub fn add(&mut self, zone: u64, accesses: u32) {
        self.total += u64::from(accesses);
        let mask = self.entries.len() - 1;
        let mut at = self.home(zone);
        loop {
            let entry = &mut self.entries[at & mask];
            if entry.zone == zone && entry.count > 0 {
                entry.count = entry.count.saturating_add(accesses);
                return;
            }
            if entry.count == 0 {
                *entry = Entry { zone, count: accesses, missed: self.bound };
                self.len += 1;
                if self.len > mask - mask / 4 {
                    self.prune();
                }
                return;
            }
            at += 1;
        }
    }

    /// Ends as many buckets as it takes until at most half of the entries are used.
    #[cold]
    #[inline(never)]
    fn prune(&mut self) {
        let mut kept: Vec<Entry> = self.entries.iter().filter(|entry| entry.count > 0).copied().collect();
        while kept.len() > self.entries.len() / 2 {
            self.bound = self.bound.saturating_add(1);
            kept.retain(|entry| entry.count.saturating_add(entry.missed) > self.bound);
        }
        self.entries.fill(EMPTY);
        self.len = kept.len();
        let mask = self.entries.len() - 1;
        for entry in kept {
            let mut at = self.home(entry.zone) & mask;
            while self.entries[at].count > 0 {
                at = (at + 1) & mask;
            }
            self.entries[at] = entry;
        }
    }

    /// All accesses counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// By how much a count may be too low, and how often a zone that is not listed may have been accessed.
    pub fn error_bound(&self) -> u64 {
        u64::from(self.bound)
    }

    /// Zones that may have more than `share` of all accesses: all that have, and none with less than `share` minus the error
    /// bound. Hottest first, ties by zone.
    pub fn above(&self, share: f64) -> Vec<ZoneCount> {
        let least = share * self.total as f64 - f64::from(self.bound);
        let mut zones: Vec<ZoneCount> = self
            .entries
            .iter()
            .filter(|entry| entry.count > 0 && f64::from(entry.count) >= least)
            .map(|entry| ZoneCount { zone: entry.zone, count: u64::from(entry.count) })
            .collect();
        zones.sort_by(|a, b| b.count.cmp(&a.count).then(a.zone.cmp(&b.zone)));
        zones
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.fill(EMPTY);
        (self.len, self.bound, self.total) = (0, 0, 0);
    }

    /// Bytes held; while pruning, up to three quarters as much again.
    pub fn bytes(&self) -> usize {
        size_of::<LossyCounter>() + self.entries.len() * size_of::<Entry>()
    }
}

/// Requests of a window that are counted one by one. Of those that follow, one of every [`SAMPLED_OF`] is (ours: a zone with a
/// thousandth of the accesses has been counted 131 times by then).
const COUNTED_ALL: u32 = 1 << 17;
/// One request, drawn at random, of so many stands for all of them.
const SAMPLED_OF: u32 = 16;

/// The hot zones of a window of time.
///
/// Counts are exact, but for `error_bound`, while the window has had 131,072 requests at most. Of later ones every sixteenth, on average, is counted
/// sixteen times: the standard error of a count is then at most sqrt(15 * count), 12% for a thousandth of a million accesses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ZoneWindow {
    /// Hottest first.
    pub zones: Vec<ZoneCount>,
    /// All accesses of the window, where some are sampled within one group of sixteen.
    pub accesses: u64,
    /// By how much a count may be too low, besides the error of sampling.
    pub error_bound: u64,
}

impl ZoneWindow {
    /// How alike two windows are: the share of accesses to hot zones that they have in common, which is the sum over zones of
    /// the smaller of the two shares; 0 for disjoint ones, 1 for equal ones (ours).
    pub fn overlap(&self, other: &ZoneWindow) -> f64 {
        let total = |window: &ZoneWindow| window.zones.iter().map(|zone| zone.count).sum::<u64>() as f64;
        let (mine, theirs) = (total(self), total(other));
        if mine == 0.0 || theirs == 0.0 {
            return 0.0;
        }
        let mut counts: Vec<(u64, u64)> = other.zones.iter().map(|zone| (zone.zone, zone.count)).collect();
        counts.sort_unstable();
        let common = self.zones.iter().filter_map(|zone| {
            let found = counts.binary_search_by_key(&zone.zone, |entry| entry.0).ok()?;
            Some((zone.count as f64 / mine).min(counts[found].1 as f64 / theirs))
        });
        common.sum()
    }
}

/// Hot zones of the window that runs, of the last complete one, and of the one before.
#[derive(Clone, Debug)]
pub struct HotZones {
    counter: LossyCounter,
    zone_shift: u32,
    share: f64,
    /// Requests until one is counted, that one included.
    until_counted: u32,
    /// Requests left that are counted one by one.
    left_of_all: u32,
    /// Those that follow the counted one in its group of [`SAMPLED_OF`].
    rest_of_group: u32,
    /// The next draws, below a bit that says where they end; and how often they were renewed, from which they follow.
    draws: u64,
    refills: u64,
    last: ZoneWindow,
    before: ZoneWindow,
}

impl HotZones {
    /// Zones of 2^`zone_shift` blocks; hot is what has more than `share` of the accesses, counted in `entries` entries.
    pub fn new(zone_shift: u32, share: f64, entries: usize) -> HotZones {
        let counter = LossyCounter::new(entries);
        HotZones {
            counter,
            zone_shift,
            share,
            until_counted: 1,
            left_of_all: COUNTED_ALL,
            rest_of_group: 0,
            draws: 1,
            refills: 0,
            last: ZoneWindow::default(),
            before: ZoneWindow::default(),
        }
    }

    /// Counts a request for `blocks` blocks from `first_block` on: one access to each zone it touches.
    #[inline]
    pub fn add(&mut self, first_block: u64, blocks: u64) {
        if self.is_next_counted() {
            self.count(first_block, blocks);
        }
    }

    /// Takes note of a request; whether it is one that must be counted.
    #[inline]
    pub(crate) fn is_next_counted(&mut self) -> bool {
        self.until_counted -= 1;
        self.until_counted == 0
    }

    /// Counts the request that [`HotZones::is_next_counted`] asked for.
    #[inline(never)]
    pub(crate) fn count(&mut self, first_block: u64, blocks: u64) {
        let accesses = if self.left_of_all > 0 { 1 } else { SAMPLED_OF };
        self.left_of_all = self.left_of_all.saturating_sub(1);
        self.until_counted = 1;
        if self.left_of_all == 0 {
            let before = self.draw();
            self.until_counted += self.rest_of_group + before;
            self.rest_of_group = SAMPLED_OF - 1 - before;
        }
        let zone = first_block >> self.zone_shift;
        self.counter.add(zone, accesses);
        if blocks > 1 {
            let last = first_block.saturating_add(blocks - 1) >> self.zone_shift;
            (zone + 1..=last).for_each(|zone| self.counter.add(zone, accesses));
        }
    }

    /// How many requests of the next group come before the one that is counted.
    #[inline]
    fn draw(&mut self) -> u32 {
        if self.draws == 1 {
            self.refills += 1;
            // 2^60 is a power of 16, so that the bit ends up alone.
            self.draws = mix64(self.refills) >> 4 | 1 << 60;
        }
        let before = self.draws as u32 % SAMPLED_OF;
        self.draws /= u64::from(SAMPLED_OF);
        before
    }

    /// Ends the window.
    pub fn rotate(&mut self) {
        let current = self.current();
        self.before = std::mem::replace(&mut self.last, current);
        self.counter.clear();
        (self.until_counted, self.left_of_all, self.rest_of_group) = (1, COUNTED_ALL, 0);
    }

    /// The window that runs.
    pub fn current(&self) -> ZoneWindow {
        ZoneWindow {
            zones: self.counter.above(self.share),
            accesses: self.counter.total(),
            error_bound: self.counter.error_bound(),
        }
    }

    /// The last complete window.
    pub fn last(&self) -> &ZoneWindow {
        &self.last
    }

    /// The window before the last.
    pub fn before(&self) -> &ZoneWindow {
        &self.before
    }

    /// The base-2 logarithm of the blocks per zone.
    pub fn zone_shift(&self) -> u32 {
        self.zone_shift
    }

    /// Bytes held by the counter.
    pub fn bytes(&self) -> usize {
        self.counter.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn buckets_by_hand() {
        // 16 entries, of which 12 are used: zone 1 three times, zone 2 twice, ten others once. The thirteenth zone ends bucket 1:
        // all with 1 + 0 <= 1 go. Zone 50 is then noted with what it may have missed.
        let mut counter = LossyCounter::new(16);
        [1, 1, 1, 2, 2].into_iter().chain(3..13).for_each(|zone| counter.add(zone, 1));
        assert_eq!((counter.error_bound(), counter.above(0.0).len()), (0, 12));
        counter.add(13, 1);
        assert_eq!(counter.error_bound(), 1);
        assert_eq!(counter.above(0.0), [ZoneCount { zone: 1, count: 3 }, ZoneCount { zone: 2, count: 2 }]);
        counter.add(50, 1);
        assert_eq!(counter.above(0.0)[2], ZoneCount { zone: 50, count: 1 });
        // 17 accesses: a share of 0.2 is 3.4, less the bound 2.4.
        assert_eq!(counter.above(0.2), [ZoneCount { zone: 1, count: 3 }]);
        counter.clear();
        assert_eq!((counter.total(), counter.error_bound(), counter.above(0.0)), (0, 0, vec![]));
    }

    #[test]
    fn windows_rotate_and_overlap() {
        let mut zones = HotZones::new(8, 0.1, 64);
        zones.add(0, 1);
        zones.add(255, 2);
        assert_eq!(zones.current().zones, [ZoneCount { zone: 0, count: 2 }, ZoneCount { zone: 1, count: 1 }]);
        zones.rotate();
        assert_eq!((zones.last().accesses, zones.current().accesses), (3, 0));
        zones.add(256, 1);
        zones.add(512, 1);
        zones.rotate();
        // Shares 2/3, 1/3 before and 1/2, 1/2 now: only zone 1 in common: min(1/3, 1/2).
        assert!((zones.last().overlap(zones.before()) - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(zones.last().overlap(zones.last()), 1.0);
        assert_eq!(zones.last().overlap(&ZoneWindow::default()), 0.0);
    }

    #[test]
    fn long_windows_are_sampled_without_bias() {
        let mut zones = HotZones::new(8, 0.001, 8_192);
        let mut truth: BTreeMap<u64, u64> = BTreeMap::new();
        let mut add = |zones: &mut HotZones, step: u64| {
            // Every sixteenth request is for zone 7: a sample at fixed distances would see all of it or nothing.
            let random = mix64(step ^ 0x5eed);
            let zone = if step % 16 == 3 { 7 } else { (random % 400) * (random >> 32) % 400 };
            zones.add(zone << 8, 1);
            *truth.entry(zone).or_default() += 1;
        };
        let all = u64::from(COUNTED_ALL);
        (0..all).for_each(|step| add(&mut zones, step));
        assert_eq!(zones.current().accesses, all);
        let requests = 1_000_000;
        (all..requests).for_each(|step| add(&mut zones, step));
        let window = zones.current();
        assert!(window.accesses.abs_diff(requests) < u64::from(SAMPLED_OF), "{}", window.accesses);
        assert_eq!(window.error_bound, 0);
        let counted: BTreeMap<u64, u64> = window.zones.iter().map(|zone| (zone.zone, zone.count)).collect();
        let mut squares = (0.0, 0.0);
        for (zone, count) in truth.iter().filter(|(_, count)| **count * 500 > requests) {
            let error =
                (counted[zone] as f64 - *count as f64) / (f64::from(SAMPLED_OF - 1) * *count as f64).sqrt();
            assert!(error.abs() < 4.0, "zone {zone}: {} of {count}", counted[zone]);
            squares = (squares.0 + error * error, squares.1 + 1.0);
        }
        // The stated standard error is what is found, over some hundred zones, and not only an upper bound.
        assert!(squares.1 > 100.0 && (0.6..1.4).contains(&(squares.0 / squares.1)), "{squares:?}");
        zones.rotate();
        zones.add(0, 1);
        assert_eq!(zones.current().accesses, 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]
        /// The guarantees of the paper, with room and without it.
        #[test]
        fn guarantees_hold(
            stream in prop::collection::vec(prop_oneof![0u64..4, 0u64..40, 0u64..2_000], 1..3_000),
            entries in prop_oneof![Just(16usize), Just(256), Just(8_192)],
            share in 0.0f64..0.3,
            each in prop_oneof![Just(1u32), Just(SAMPLED_OF)],
        ) {
            let mut counter = LossyCounter::new(entries);
            let mut truth: BTreeMap<u64, u64> = BTreeMap::new();
            for &zone in &stream {
                counter.add(zone, each);
                *truth.entry(zone).or_default() += u64::from(each);
            }
            let n = stream.len() as f64 * f64::from(each);
            let bound = counter.error_bound();
            // The smallest epsilon for which the paper needs no more than half the entries.
            let epsilon = (1..1_000)
                .map(|step| f64::from(step) / 1_000.0)
                .find(|epsilon| (epsilon * n).ln().max(1.0) / epsilon <= entries as f64 / 2.0)
                .unwrap_or(1.0);
            prop_assert!(bound as f64 <= epsilon * n + f64::from(each), "bound {} of {}", bound, epsilon * n);
            let listed: BTreeMap<u64, u64> =
                counter.above(0.0).iter().map(|zone| (zone.zone, zone.count)).collect();
            prop_assert!(listed.len() <= entries);
            for (zone, &count) in &truth {
                let counted = listed.get(zone).copied().unwrap_or(0);
                prop_assert!(counted <= count && counted + bound >= count, "zone {} has {}: {}", zone, count, counted);
            }
            let hot = counter.above(share);
            for (zone, &count) in truth.iter().filter(|(_, count)| **count as f64 > share * n) {
                // What is above the share but not above the error bound may be missing.
                prop_assert!(count <= bound || hot.iter().any(|found| found.zone == *zone));
            }
        }
    }
}
