//! How often blocks were used lately, estimated: a count-min sketch of four-bit counters that age.
//!
//! Estimates are never below the true count (up to 15, since the ageing that both went through), and above it only by collisions.
//! Source: count-min with four rows: Cormode and Muthukrishnan, J. Algorithms 55(1), 2005; counters of four bits and the halving of all counters
//! once the sample is full: TinyLFU, Einziger et al., ACM TOS 13(4), 2017, sections 3.3 and 3.4.1. Ours: the four counters of a block stand in one
//! cache line; halving goes on line by line, one line each time its share of a sample was counted, so that no call is long (and each line once a sample: there the
//! count of the sample is halved as well, so that after the first time half a sample is enough); the sketch grows by splitting lines
//! (linear hashing), both halves keeping the counts. The doorkeeper of section 3.4.2 is left out. Uses before the first slot is reserved, which
//! is the first of all, are not counted.

use crate::SegmentedVec;
use crate::bucket::{bucket_of, sibling};
use forebay_units::{BlockIndex, mix64};
use std::collections::TryReserveError;

/// A line: four rows of 32 counters of four bits.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([u64; 8]);

/// Slots per line: eight bytes a slot, 16 counters.
const SLOTS_PER_LINE: u32 = 8;
/// A sample is ten uses per slot.
const SAMPLE_PER_LINE: u32 = 10 * SLOTS_PER_LINE;
/// The low three bits of every counter.
const LOW_BITS: u64 = 0x7777_7777_7777_7777;

/// Use counts up to 15.
#[derive(Debug)]
pub(crate) struct Sketch {
    lines: SegmentedVec<Line>,
    /// Uses counted since a line was halved last.
    counted: u32,
    /// The line to halve next.
    hand: u32,
}

/// The hash of a block by which the sketch knows it: the low half chooses the line, the high half the counters.
#[inline]
pub(crate) fn sketch_hash(block: BlockIndex) -> u64 {
    mix64(block.0)
}

/// Word and shift of the counter of row `row`.
#[inline]
fn counter(hash: u64, row: usize) -> (usize, u32) {
    let bits = (hash >> (32 + 8 * row)) as usize & 31;
    (2 * row + bits / 16, (bits as u32 % 16) * 4)
}

impl Sketch {
    pub(crate) const fn new() -> Sketch {
        Sketch { lines: SegmentedVec::new(), counted: 0, hand: 0 }
    }

    pub(crate) fn reserve(&mut self, slots: u32) -> Result<(), TryReserveError> {
        while self.lines.len() < slots.div_ceil(SLOTS_PER_LINE) {
            let added = self.lines.len();
            let line = if added == 0 { Line([0; 8]) } else { *self.lines.get(sibling(added)) };
            self.lines.try_push(line)?;
        }
        Ok(())
    }

    pub(crate) fn release(&mut self, slots: u32) {
        self.lines.truncate(slots.div_ceil(SLOTS_PER_LINE));
    }

    /// Counts a use of the block of `hash`.
    #[inline]
    pub(crate) fn count(&mut self, hash: u64) {
        let lines = self.lines.len();
        if lines == 0 {
            return;
        }
        let line = self.lines.get_mut(bucket_of(hash as u32, lines));
        for row in 0..4 {
            let (word, shift) = counter(hash, row);
            let full = line.0[word] >> shift & 15 == 15;
            line.0[word] += u64::from(!full) << shift;
        }
        self.counted += 1;
        if self.counted >= SAMPLE_PER_LINE {
            self.counted = 0;
            self.hand = if self.hand + 1 < lines { self.hand + 1 } else { 0 };
            for word in &mut self.lines.get_mut(self.hand).0 {
                *word = *word >> 1 & LOW_BITS;
            }
        }
    }

    /// How often the block of `hash` was used lately, from 0 to 15.
    #[inline]
    pub(crate) fn estimate(&self, hash: u64) -> u64 {
        let lines = self.lines.len();
        if lines == 0 {
            return 0;
        }
        let line = self.lines.get(bucket_of(hash as u32, lines));
        let counts = (0..4).map(|row| {
            let (word, shift) = counter(hash, row);
            line.0[word] >> shift & 15
        });
        counts.min().unwrap_or(0)
    }

    pub(crate) fn footprint_bytes(&self) -> u64 {
        self.lines.footprint_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(block: u64) -> u64 {
        sketch_hash(BlockIndex(block))
    }

    #[test]
    fn counts_are_never_too_low_seldom_too_high_and_stop_at_15() {
        let mut sketch = Sketch::new();
        sketch.reserve(8_000).unwrap();
        // Block b is used b mod 8 times: 28,000 uses, 350 of the 1,000 lines are halved.
        for block in 0..8_000 {
            (0..block % 8).for_each(|_| sketch.count(hash(block)));
        }
        let (mut high, mut low) = (0, 0);
        for block in 0..8_000 {
            let found = sketch.estimate(hash(block));
            high += u32::from(found > block % 8);
            low += u32::from(found < block % 8 / 2);
        }
        assert_eq!(low, 0);
        assert!(high < 100, "{high}");
        (0..20).for_each(|_| sketch.count(hash(1 << 40)));
        assert_eq!(sketch.estimate(hash(1 << 40)), 15);
    }

    #[test]
    fn counts_age_by_half_per_sample_and_survive_growth() {
        let mut sketch = Sketch::new();
        sketch.reserve(64).unwrap();
        (0..8).for_each(|_| sketch.count(hash(5)));
        sketch.reserve(80_000).unwrap();
        assert_eq!(sketch.estimate(hash(5)), 8);
        sketch.release(64);
        assert_eq!(sketch.estimate(hash(5)), 8);
        // A sample is 640 uses; others are used up, each twice, and every line is halved once: 8 / 2 = 4, plus what collides.
        (0..632).for_each(|at| sketch.count(hash(1_000 + at / 2)));
        let found = sketch.estimate(hash(5));
        assert!((4..=6).contains(&found), "{found}");
    }
}
