//! The blocks of a sample in the order of their last use, in a fixed amount of memory.

use crate::recency::Recency;

/// The mark of an empty slot; positions stay below it.
const EMPTY: u16 = u16::MAX;
/// Positions in time per sample.
const POSITIONS_PER_SAMPLE: usize = 3;
/// The most samples, as positions in time must fit 16 bits.
pub(crate) const SAMPLES_MAX: usize = 20_000;

/// Hashes of blocks by open addressing, each with the position of its last use. The hash is a bijection, so it stands for the
/// key; 10 bytes per slot. Who owns it keeps it below the number of samples it was made for.
#[derive(Clone, Debug)]
pub(crate) struct SampleTable {
    hashes: Box<[u64]>,
    positions: Box<[u16]>,
    recency: Recency,
    samples_max: usize,
}

impl SampleTable {
    /// A table for at most `samples` hashes, of which one more may be there for a moment.
    pub(crate) fn new(samples: usize) -> SampleTable {
        debug_assert!(samples <= SAMPLES_MAX);
        let slots = Self::slots_for(samples);
        SampleTable {
            hashes: vec![0; slots].into_boxed_slice(),
            positions: vec![EMPTY; slots].into_boxed_slice(),
            recency: Recency::new(samples * POSITIONS_PER_SAMPLE),
            samples_max: samples,
        }
    }

    /// The bytes of a table for `samples`.
    pub(crate) const fn bytes_for(samples: usize) -> usize {
        Self::slots_for(samples) * 10 + Recency::bytes_for(samples * POSITIONS_PER_SAMPLE)
    }

    /// At most 90% full: probes are short enough for what is sampled rarely.
    const fn slots_for(samples: usize) -> usize {
        samples + samples.div_ceil(9) + 1
    }

    /// Bytes held, without the table itself.
    pub(crate) fn bytes(&self) -> usize {
        self.hashes.len() * size_of::<u64>() + self.positions.len() * size_of::<u16>() + self.recency.bytes()
    }

    /// How many hashes it was made for.
    pub(crate) fn samples_max(&self) -> usize {
        self.samples_max
    }

    /// How many hashes are there.
    pub(crate) fn len(&self) -> usize {
        self.recency.live()
    }

    fn home(&self, hash: u64) -> usize {
        // The low half: the high one is what a threshold is about.
        (((hash & 0xffff_ffff) * self.hashes.len() as u64) >> 32) as usize
    }

    fn next(&self, at: usize) -> usize {
        if at + 1 == self.hashes.len() { 0 } else { at + 1 }
    }

    /// An access: how many hashes, it included, were used since its last one; `None` where it was not there, as it is now.
    #[inline]
    pub(crate) fn touch(&mut self, hash: u64) -> Option<usize> {
        if self.recency.room() == 0 {
            self.compact();
        }
        let now = self.recency.next() as u16;
        let mut at = self.home(hash);
        while self.positions[at] != EMPTY && self.hashes[at] != hash {
            at = self.next(at);
        }
        if self.positions[at] == EMPTY {
            self.hashes[at] = hash;
            self.positions[at] = now;
            self.recency.push();
            return None;
        }
        let before = usize::from(std::mem::replace(&mut self.positions[at], now));
        let distance = self.recency.after(before) + 1;
        self.recency.clear(before);
        self.recency.push();
        Some(distance)
    }

    #[cold]
    fn compact(&mut self) {
        self.recency.begin_compaction();
        for position in &mut self.positions {
            if *position != EMPTY {
                *position = self.recency.rank_compacting(usize::from(*position)) as u16;
            }
        }
        self.recency.end_compaction(self.samples_max * POSITIONS_PER_SAMPLE);
    }

    /// The hashes that are there, in no order.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = u64> {
        self.hashes
            .iter()
            .zip(&self.positions)
            .filter(|(_, position)| **position != EMPTY)
            .map(|(hash, _)| *hash)
    }

    /// Forgets the hashes above `threshold`.
    pub(crate) fn keep_up_to(&mut self, threshold: u64) {
        let begin = self.empty_slot();
        for (position, &hash) in self.positions.iter_mut().zip(&self.hashes) {
            if *position != EMPTY && hash > threshold {
                self.recency.clear(usize::from(*position));
                *position = EMPTY;
            }
        }
        self.settle(begin);
    }

    /// Forgets all but the `count` hashes that were used last.
    pub(crate) fn keep_newest(&mut self, count: usize) {
        let begin = self.empty_slot();
        let first = self.recency.keep_last(count);
        self.recency.begin_compaction();
        for position in &mut self.positions {
            if *position != EMPTY {
                *position = match usize::from(*position) {
                    before if before < first => EMPTY,
                    kept => self.recency.rank_compacting(kept) as u16,
                };
            }
        }
        self.recency.end_compaction(self.samples_max * POSITIONS_PER_SAMPLE);
        self.settle(begin);
    }

    fn empty_slot(&self) -> usize {
        let empty = self.positions.iter().position(|&position| position == EMPTY);
        empty.expect("a table has more slots than samples")
    }

    /// Slots were emptied: takes everybody back to the first place from its home on that is empty by now. Beginning behind a place that was empty before,
    /// each passes only over places that are settled already (linear probing; Knuth, TAOCP 6.4).
    fn settle(&mut self, begin: usize) {
        for at in (begin + 1..self.hashes.len()).chain(0..begin) {
            let position = std::mem::replace(&mut self.positions[at], EMPTY);
            if position != EMPTY {
                let hash = self.hashes[at];
                let mut to = self.home(hash);
                while self.positions[to] != EMPTY {
                    to = self.next(to);
                }
                (self.hashes[to], self.positions[to]) = (hash, position);
            }
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.positions.fill(EMPTY);
        self.recency = Recency::new(self.samples_max * POSITIONS_PER_SAMPLE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_units::mix64;

    /// Against a plain list, the newest last, with everything that forgets.
    #[test]
    fn it_is_a_list_in_the_order_of_last_use() {
        let mut table = SampleTable::new(300);
        let mut list: Vec<u64> = Vec::new();
        for step in 0..50_000u64 {
            let hash = mix64(mix64(step) % 400);
            let before = list.iter().position(|&known| known == hash);
            assert_eq!(table.touch(hash), before.map(|at| list.len() - at), "step {step}");
            before.map(|at| list.remove(at));
            list.push(hash);
            match mix64(step ^ 7) % 1_000 {
                0 => {
                    table.clear();
                    list.clear();
                }
                1 => {
                    table.keep_up_to(u64::MAX / 2);
                    list.retain(|&known| known <= u64::MAX / 2);
                }
                _ if list.len() == 300 => {
                    table.keep_newest(100);
                    list.drain(..200);
                }
                _ => {}
            }
            assert_eq!(table.len(), list.len());
        }
        let (mut kept, mut known) = (table.hashes().collect::<Vec<_>>(), list);
        kept.sort_unstable();
        known.sort_unstable();
        assert_eq!(kept, known);
        assert!(table.bytes() <= SampleTable::bytes_for(300));
    }
}
