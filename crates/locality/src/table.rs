//! A hash table from block keys to stamps, as small and as friendly to the memory system as we can make it.
//!
//! Open addressing, linear probing, the home slot by multiplication (so that capacities need not be powers of two and
//! growth by half keeps the table between 53% and 80% full). It is not a general map: stamps are never absent, there is no
//! iteration order worth relying on, and nothing is ever removed.

use forebay_units::{mix64, prefetch};

/// A value that a [`KeyTable`] keeps beside a key; one value marks an empty slot.
pub(crate) trait Stamp: Copy + PartialEq {
    /// The mark of an empty slot; never stored.
    const EMPTY: Self;
}

impl Stamp for u32 {
    const EMPTY: u32 = u32::MAX;
}

impl Stamp for u64 {
    const EMPTY: u64 = u64::MAX;
}

/// The key stands in two halves so that a slot with a `u32` stamp takes 12 bytes, not 16.
#[derive(Clone, Copy, Debug)]
struct Slot<S> {
    low: u32,
    high: u32,
    stamp: S,
}

impl<S: Stamp> Slot<S> {
    fn is(&self, key: u64) -> bool {
        self.low == key as u32 && self.high == (key >> 32) as u32
    }

    fn key(&self) -> u64 {
        u64::from(self.high) << 32 | u64::from(self.low)
    }
}

/// How many keys are looked up together in [`KeyTable::warm`].
pub(crate) const BATCH: usize = 32;

/// Keys with their stamps.
#[derive(Clone, Debug)]
pub(crate) struct KeyTable<S> {
    slots: Vec<Slot<S>>,
    len: usize,
    /// The largest number of bytes that were held at once, counting both tables while growing.
    bytes_peak: usize,
}

const SLOTS_MIN: usize = 1 << 10;

impl<S: Stamp> KeyTable<S> {
    pub(crate) fn new() -> KeyTable<S> {
        let mut table = KeyTable { slots: vec![Self::EMPTY_SLOT; SLOTS_MIN], len: 0, bytes_peak: 0 };
        table.bytes_peak = table.bytes();
        table
    }

    const EMPTY_SLOT: Slot<S> = Slot { low: 0, high: 0, stamp: S::EMPTY };

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<S>>()
    }

    pub(crate) fn bytes_peak(&self) -> usize {
        self.bytes_peak
    }

    fn home(&self, key: u64) -> usize {
        ((u128::from(mix64(key)) * self.slots.len() as u128) >> 64) as usize
    }

    /// Makes room for `more` further keys, so that slots stay where they are while these are inserted.
    pub(crate) fn reserve(&mut self, more: usize) {
        while (self.len + more) * 5 > self.slots.len() * 4 {
            self.grow();
        }
    }

    fn grow(&mut self) {
        let slots = self.slots.len() + self.slots.len() / 2;
        let old = std::mem::replace(&mut self.slots, vec![Self::EMPTY_SLOT; slots]);
        self.bytes_peak = self.bytes_peak.max(self.bytes() + old.len() * size_of::<Slot<S>>());
        for slot in old {
            if slot.stamp != S::EMPTY {
                let mut at = self.home(slot.key());
                while self.slots[at].stamp != S::EMPTY {
                    at = self.next(at);
                }
                self.slots[at] = slot;
            }
        }
    }

    fn next(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    /// Looks at the home slots of up to [`BATCH`] keys: the misses of the processor's caches then overlap instead of
    /// following each other. The result is a hint for [`KeyTable::replace_from`] and stays good until the table grows.
    pub(crate) fn warm(&self, keys: &[u64], homes: &mut [u32; BATCH]) {
        for (home, &key) in homes.iter_mut().zip(keys) {
            let at = self.home(key);
            let slot = &self.slots[at];
            // The top bit says that the key is not in its home slot, so that the load cannot be optimised away.
            *home = at as u32 | u32::from(!(slot.is(key) && slot.stamp != S::EMPTY)) << 31;
        }
    }

    /// Has the home slot of `key` fetched from memory, and says which it is until the table grows.
    #[inline]
    pub(crate) fn fetch(&self, key: u64) -> u32 {
        let home = self.home(key);
        prefetch(&self.slots[home]);
        home as u32
    }

    /// What stands in the slot `at`: a stamp, or the mark of an empty slot, as in a slot that is not there.
    #[inline]
    pub(crate) fn stamp_at(&self, at: u32) -> S {
        self.slots.get(at as usize).map_or(S::EMPTY, |slot| slot.stamp)
    }

    /// The stamp of `key`, if it stands in the slot `at`.
    #[inline]
    pub(crate) fn find_at(&self, at: u32, key: u64) -> Option<S> {
        let slot = self.slots.get(at as usize)?;
        (slot.is(key) && slot.stamp != S::EMPTY).then_some(slot.stamp)
    }

    /// Stores `stamp` for `key`, whose hint came from [`KeyTable::warm`]; yields the stamp before. There must be room.
    #[inline]
    pub(crate) fn replace_from(&mut self, hint: u32, key: u64, stamp: S) -> Option<S> {
        let at = (hint & !(1 << 31)) as usize;
        if hint >> 31 == 0 {
            return Some(std::mem::replace(&mut self.slots[at].stamp, stamp));
        }
        self.replace_at(at, key, stamp)
    }

    /// Stores `stamp` for `key`; yields the stamp before.
    pub(crate) fn replace(&mut self, key: u64, stamp: S) -> Option<S> {
        self.reserve(1);
        let at = self.home(key);
        self.replace_at(at, key, stamp)
    }

    fn replace_at(&mut self, mut at: usize, key: u64, stamp: S) -> Option<S> {
        debug_assert!(stamp != S::EMPTY, "the mark of an empty slot is no stamp");
        loop {
            let slot = &mut self.slots[at];
            if slot.stamp == S::EMPTY {
                *slot = Slot { low: key as u32, high: (key >> 32) as u32, stamp };
                self.len += 1;
                assert!(self.slots.len() < 1 << 31, "more than 2^31 slots are not supported");
                return None;
            }
            if slot.is(key) {
                return Some(std::mem::replace(&mut slot.stamp, stamp));
            }
            at = self.next(at);
        }
    }

    /// The stamp of `key`, which becomes `stamp` if it has none.
    #[inline]
    pub(crate) fn find_or_store(&mut self, key: u64, stamp: S) -> S {
        let mut at = self.home(key);
        loop {
            let slot = &self.slots[at];
            if slot.stamp == S::EMPTY {
                self.replace(key, stamp);
                return stamp;
            }
            if slot.is(key) {
                return slot.stamp;
            }
            at = self.next(at);
        }
    }

    /// The stamp of `key`.
    pub(crate) fn find(&self, key: u64) -> Option<S> {
        let mut at = self.home(key);
        loop {
            let slot = &self.slots[at];
            if slot.stamp == S::EMPTY {
                return None;
            }
            if slot.is(key) {
                return Some(slot.stamp);
            }
            at = self.next(at);
        }
    }

    /// Rewrites every stamp.
    pub(crate) fn map_stamps(&mut self, mut map: impl FnMut(S) -> S) {
        for slot in &mut self.slots {
            if slot.stamp != S::EMPTY {
                slot.stamp = map(slot.stamp);
            }
        }
    }

    /// Every key with its stamp, in no order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, S)> + '_ {
        self.slots.iter().filter(|slot| slot.stamp != S::EMPTY).map(|slot| (slot.key(), slot.stamp))
    }

    /// Every stamp, in no order.
    pub(crate) fn stamps(&self) -> impl Iterator<Item = S> + '_ {
        self.slots.iter().map(|slot| slot.stamp).filter(|stamp| *stamp != S::EMPTY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn it_agrees_with_a_map_while_it_grows() {
        let mut table = KeyTable::<u32>::new();
        let mut map = BTreeMap::new();
        for step in 0..20_000u32 {
            // Keys repeat, and include 0 and the largest one.
            let key = match mix64(u64::from(step)) % 6_000 {
                0 => u64::MAX,
                other => other - 1,
            };
            assert_eq!(table.find(key), map.get(&key).copied(), "step {step}");
            if step % 3 == 0 {
                assert_eq!(table.find_or_store(key, step), *map.entry(key).or_insert(step), "step {step}");
            } else {
                assert_eq!(table.replace(key, step), map.insert(key, step), "step {step}");
            }
        }
        assert_eq!(table.len(), map.len());
        let mut stamps: Vec<u32> = table.stamps().collect();
        let mut expected: Vec<u32> = map.into_values().collect();
        stamps.sort_unstable();
        expected.sort_unstable();
        assert_eq!(stamps, expected);
        // At most 80% full, and 12 bytes a slot.
        assert_eq!(size_of::<Slot<u32>>(), 12);
        assert!(table.len() * 5 <= table.slots.len() * 4);
    }
}
