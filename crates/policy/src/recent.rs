//! Whether a block left lately: fingerprints with the time of leaving, in one cache line per look-up.
//!
//! Not exact: of more than eight blocks that fall into one line the oldest is forgotten early (about 3 per cent of them at the
//! usual load), and a stranger is taken for a block that left with a probability below 2^-28.
//! Source: S3-FIFO, SOSP '23, section 4.2, which proposes such a table for its ghosts. That it grows line by line (linear hashing) is ours.
//! Invariant: an entry stands in the line of its fingerprint.

use crate::SegmentedVec;
use crate::bucket::{bucket_of, sibling};
use forebay_units::{BlockIndex, mix64, prefetch};
use std::collections::TryReserveError;

/// Entries per line.
const WAYS: usize = 8;
/// Slots per line: with at most as many ghosts as slots a line has four on average, since a line that is not yet split serves two.
const SLOTS_PER_LINE: u32 = 4;

/// Fingerprints and times, the latest first: so the last is the oldest. What was never there, or was taken, is 0 at the end.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line {
    hashes: [u32; WAYS],
    times: [u32; WAYS],
}

impl Line {
    const EMPTY: Line = Line { hashes: [0; WAYS], times: [0; WAYS] };

    /// Puts an entry before all others; the last is forgotten.
    #[inline]
    fn push(&mut self, hash: u32, time: u32) {
        self.hashes.copy_within(..WAYS - 1, 1);
        self.times.copy_within(..WAYS - 1, 1);
        (self.hashes[0], self.times[0]) = (hash, time);
    }

    /// Takes the entry at `way` out.
    fn remove(&mut self, way: usize) {
        self.hashes.copy_within(way + 1.., way);
        self.times.copy_within(way + 1.., way);
        (self.hashes[WAYS - 1], self.times[WAYS - 1]) = (0, 0);
    }
}

/// The blocks that left lately, in order of time.
#[derive(Debug)]
pub(crate) struct Recent {
    lines: SegmentedVec<Line>,
    /// How many were remembered, from a start at which all entries of 0 are long past.
    time: u32,
}

fn fingerprint(block: BlockIndex) -> u32 {
    mix64(block.0) as u32
}

impl Recent {
    pub(crate) const fn new() -> Recent {
        Recent { lines: SegmentedVec::new(), time: 1 << 31 }
    }

    pub(crate) fn reserve(&mut self, slots: u32) -> Result<(), TryReserveError> {
        while self.lines.len() < slots.div_ceil(SLOTS_PER_LINE) {
            let added = self.lines.len();
            self.lines.try_push(Line::EMPTY)?;
            if added == 0 {
                continue;
            }
            let from = sibling(added);
            let whole = std::mem::replace(self.lines.get_mut(from), Line::EMPTY);
            // The oldest first, so that both lines are in the order of time.
            for (hash, time) in
                whole.hashes.into_iter().zip(whole.times).rev().filter(|entry| *entry != (0, 0))
            {
                self.lines.get_mut(bucket_of(hash, added + 1)).push(hash, time);
            }
        }
        Ok(())
    }

    /// Gives back the lines that `slots` do not need; who is in them is forgotten.
    pub(crate) fn release(&mut self, slots: u32) {
        self.lines.truncate(slots.div_ceil(SLOTS_PER_LINE));
    }

    #[inline]
    fn line(&mut self, hash: u32) -> Option<&mut Line> {
        let lines = self.lines.len();
        (lines > 0).then(|| self.lines.get_mut(bucket_of(hash, lines)))
    }

    /// Whether `block` is one of the last `window` that were remembered; it is forgotten.
    #[inline]
    pub(crate) fn take(&mut self, block: BlockIndex, window: u32) -> bool {
        self.take_age(block, window).is_some()
    }

    /// How many were remembered since `block`, itself included, if at most `window` were; it is forgotten.
    #[inline]
    pub(crate) fn take_age(&mut self, block: BlockIndex, window: u32) -> Option<u32> {
        let (hash, time) = (fingerprint(block), self.time);
        let line = self.line(hash)?;
        // Without a branch per entry: which one it is cannot be predicted.
        let mut found = line
            .hashes
            .iter()
            .enumerate()
            .fold(0u32, |found, (way, entry)| found | u32::from(*entry == hash) << way);
        let mut age = None;
        // A block that left while the window was too short to know it may stand there twice once the window has grown.
        while found != 0 {
            // The latest of two is before the other, which is to be taken first so that both ways hold.
            let way = found.ilog2();
            found ^= 1 << way;
            let since = time.wrapping_sub(line.times[way as usize]);
            if since <= window {
                line.remove(way as usize);
                age = Some(since);
            }
        }
        age
    }

    /// Remembers `block`, in place of the oldest of its line.
    #[inline]
    pub(crate) fn remember(&mut self, block: BlockIndex) {
        let (hash, time) = (fingerprint(block), self.time);
        let Some(line) = self.line(hash) else { return };
        line.push(hash, time);
        self.time = time.wrapping_add(1);
    }

    /// Has the lines of `blocks` fetched.
    pub(crate) fn anticipate(&self, blocks: &[BlockIndex]) {
        let lines = self.lines.len();
        if lines > 0 {
            blocks.iter().for_each(|block| prefetch(self.lines.get(bucket_of(fingerprint(*block), lines))));
        }
    }

    pub(crate) fn footprint_bytes(&self) -> u64 {
        self.lines.footprint_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_a_window_are_known_and_most_of_a_full_one() {
        let mut recent = Recent::new();
        for slots in 0..=1_000 {
            recent.reserve(slots).unwrap();
        }
        for block in 0..5_000 {
            recent.remember(BlockIndex(block));
        }
        // Of the last 900 a few lost their places; nobody before them is known.
        let known = (0..5_000).filter(|block| recent.take(BlockIndex(*block), 900)).collect::<Vec<_>>();
        assert!(known[0] >= 4_100 && known.len() > 850, "{} from {}", known.len(), known[0]);
        // They were forgotten by being taken.
        assert!((0..5_000).all(|block| !recent.take(BlockIndex(block), 900)));
    }

    /// A seed of the property test of S3-FIFO: capacity 1 forgets at once, and capacity 4 knew the block twice.
    #[test]
    fn a_block_that_left_twice_is_forgotten_once() {
        let mut recent = Recent::new();
        recent.reserve(40).unwrap();
        for block in [10, 0, 10] {
            recent.remember(BlockIndex(block));
        }
        assert!(!recent.take(BlockIndex(0), 0));
        assert!(recent.take(BlockIndex(10), 3) && !recent.take(BlockIndex(10), 3));
        assert!(recent.take(BlockIndex(0), 3));
    }

    #[test]
    fn growth_keeps_what_is_known_and_shrinking_forgets() {
        let mut recent = Recent::new();
        recent.reserve(40).unwrap();
        (0..20).for_each(|block| recent.remember(BlockIndex(block)));
        recent.reserve(4_000).unwrap();
        assert!((0..20).all(|block| recent.take(BlockIndex(block), 20)));
        (0..20).for_each(|block| recent.remember(BlockIndex(block)));
        recent.release(0);
        assert!((0..20).all(|block| !recent.take(BlockIndex(block), 20)));
        // Without memory nothing is remembered, and nothing breaks.
        recent.remember(BlockIndex(1));
        assert!(!recent.take(BlockIndex(1), 1));
    }
}
