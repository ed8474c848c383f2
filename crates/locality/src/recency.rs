//! The order of last use: one bit per position in time, counted by blocks of 256 bits in a Fenwick tree.
//!
//! Positions are dealt out ascending; a set bit is the last use of some key. How many keys were used after a position is a
//! reuse distance. When the positions run out, the owner renumbers its stamps with [`Recency::begin_compaction`] and
//! [`Recency::rank_compacting`]. After Bennett and Kruskal (IBM J. R&D 1975) and Olken (1981), with bits for the leaves as they
//! are never more than a few per key.

const WORDS_PER_BLOCK: usize = 4;
const BITS_PER_BLOCK: usize = 64 * WORDS_PER_BLOCK;

/// Bits in order of time. Invariant: the tree covers exactly the blocks *before* the block of the next position; the bits
/// of that last block are counted by looking at them.
#[derive(Clone, Debug)]
pub(crate) struct Recency {
    blocks: Vec<[u64; WORDS_PER_BLOCK]>,
    /// Fenwick tree, 1-based: `tree[i]` sums the `i & -i` blocks that end with block `i - 1`.
    tree: Vec<u32>,
    /// The next position.
    next: usize,
    /// How many bits are set.
    live: usize,
}

impl Recency {
    /// Room for `positions`, rounded up to a multiple of 256.
    pub(crate) fn new(positions: usize) -> Recency {
        let blocks = positions.div_ceil(BITS_PER_BLOCK).max(1);
        Recency { blocks: vec![[0; WORDS_PER_BLOCK]; blocks], tree: vec![0; blocks + 1], next: 0, live: 0 }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<[u64; WORDS_PER_BLOCK]>() + self.tree.capacity() * size_of::<u32>()
    }

    /// The bytes of a structure with room for `positions`.
    pub(crate) const fn bytes_for(positions: usize) -> usize {
        let blocks = positions.div_ceil(BITS_PER_BLOCK);
        blocks * size_of::<[u64; WORDS_PER_BLOCK]>() + (blocks + 1) * size_of::<u32>()
    }

    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// How many positions are left.
    pub(crate) fn room(&self) -> usize {
        self.blocks.len() * BITS_PER_BLOCK - self.next
    }

    /// The position that [`Recency::push`] deals out next.
    pub(crate) fn next(&self) -> usize {
        self.next
    }

    /// Sets the bit of the next position. There must be room.
    #[inline]
    pub(crate) fn push(&mut self) {
        let at = self.next;
        self.blocks[at / BITS_PER_BLOCK][at / 64 % WORDS_PER_BLOCK] |= 1 << (at % 64);
        self.live += 1;
        self.next += 1;
        if self.next.is_multiple_of(BITS_PER_BLOCK) {
            self.close(at / BITS_PER_BLOCK);
        }
    }

    /// Adds the block at `index` to the tree, now that it takes no more positions.
    fn close(&mut self, index: usize) {
        let node = index + 1;
        let mut sum = ones(&self.blocks[index]);
        let mut child = 1;
        while child < node & node.wrapping_neg() {
            sum += self.tree[node - child];
            child <<= 1;
        }
        self.tree[node] = sum;
    }

    /// How many bits are set after the position `at`.
    #[inline]
    pub(crate) fn after(&self, at: usize) -> usize {
        let block = at / BITS_PER_BLOCK;
        let mut upto = ones_upto(&self.blocks[block], at % BITS_PER_BLOCK);
        let mut node = block;
        while node > 0 {
            upto += self.tree[node];
            node &= node - 1;
        }
        self.live - upto as usize
    }

    /// Clears the bit of the position `at`, which must be set.
    #[inline]
    pub(crate) fn clear(&mut self, at: usize) {
        let block = at / BITS_PER_BLOCK;
        let word = &mut self.blocks[block][at / 64 % WORDS_PER_BLOCK];
        debug_assert!(*word >> (at % 64) & 1 == 1, "position {at} is not set");
        *word &= !(1 << (at % 64));
        self.live -= 1;
        let closed = self.next / BITS_PER_BLOCK;
        let mut node = block + 1;
        while node <= closed {
            self.tree[node] -= 1;
            node += node & node.wrapping_neg();
        }
    }

    /// Clears all set bits but the last `count`, and says where these begin. A compaction must follow: the tree still counts what is gone.
    pub(crate) fn keep_last(&mut self, count: usize) -> usize {
        let mut surplus = self.live.saturating_sub(count);
        self.live -= surplus;
        for (index, word) in self.blocks.as_flattened_mut().iter_mut().enumerate() {
            let ones = word.count_ones() as usize;
            if surplus < ones {
                for _ in 0..surplus {
                    *word &= *word - 1;
                }
                return index * 64 + word.trailing_zeros() as usize;
            }
            surplus -= ones;
            *word = 0;
        }
        self.next
    }

    /// Turns the tree into plain prefix sums, so that [`Recency::rank_compacting`] is cheap. Nothing else may be called
    /// until [`Recency::end_compaction`].
    pub(crate) fn begin_compaction(&mut self) {
        let mut sum = 0;
        for (block, prefix) in self.blocks.iter().zip(&mut self.tree) {
            *prefix = sum;
            sum += ones(block);
        }
    }

    /// The number of set bits before the position `at`: its position once compacted.
    #[inline]
    pub(crate) fn rank_compacting(&self, at: usize) -> usize {
        let block = at / BITS_PER_BLOCK;
        (self.tree[block] + ones_upto(&self.blocks[block], at % BITS_PER_BLOCK)) as usize - 1
    }

    /// Moves the set bits to the first positions, in order, and makes room for `positions` in all.
    pub(crate) fn end_compaction(&mut self, positions: usize) {
        let live = self.live;
        let blocks = positions.max(live + 1).div_ceil(BITS_PER_BLOCK);
        if blocks != self.blocks.len() {
            // Given back before the new ones are asked for: no more than one generation is held.
            self.blocks = Vec::new();
            self.tree = Vec::new();
            *self = Recency::new(positions.max(live + 1));
        } else {
            self.blocks.fill([0; WORDS_PER_BLOCK]);
            self.tree.fill(0);
        }
        (self.next, self.live) = (0, live);
        for (index, block) in self.blocks.iter_mut().enumerate().take(live / BITS_PER_BLOCK + 1) {
            for (word, bits) in block.iter_mut().enumerate() {
                let from = index * BITS_PER_BLOCK + word * 64;
                *bits = match live.saturating_sub(from) {
                    0 => 0,
                    count @ 1..64 => (1 << count) - 1,
                    _ => u64::MAX,
                };
            }
        }
        for index in 0..live / BITS_PER_BLOCK {
            self.close(index);
        }
        self.next = live;
    }
}

fn ones(block: &[u64; WORDS_PER_BLOCK]) -> u32 {
    block.iter().map(|word| word.count_ones()).sum()
}

/// How many of the first `last + 1` bits are set.
#[inline]
fn ones_upto(block: &[u64; WORDS_PER_BLOCK], last: usize) -> u32 {
    let word = last / 64;
    let mut sum = (block[word] << (63 - last % 64)).count_ones();
    for bits in &block[..word] {
        sum += bits.count_ones();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_units::mix64;

    /// Against a plain list of positions, through several compactions of both kinds (same size and larger).
    #[test]
    fn it_counts_as_a_list_of_positions_does() {
        let mut recency = Recency::new(1_000);
        let mut list: Vec<usize> = Vec::new();
        for step in 0..20_000u64 {
            if recency.room() == 0 {
                recency.begin_compaction();
                let ranks: Vec<usize> = list.iter().map(|&at| recency.rank_compacting(at)).collect();
                assert_eq!(ranks, (0..list.len()).collect::<Vec<_>>());
                list = ranks;
                recency.end_compaction(if step < 10_000 { 1_000 } else { 3_000 });
            }
            list.push(recency.next());
            recency.push();
            if list.len() > 700 || mix64(step).is_multiple_of(3) {
                let victim = (mix64(step ^ 77) % list.len() as u64) as usize;
                assert_eq!(recency.after(list[victim]), list.len() - 1 - victim);
                recency.clear(list.remove(victim));
            }
            assert_eq!(recency.live(), list.len());
        }
    }
}
