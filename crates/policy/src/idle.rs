//! Whether a pool of blocks that were used again lies idle, while what leaves the pool of newcomers is asked for again soon.
//!
//! Idea: a pool that no scan can empty is not emptied by anything else either, where nothing is used twice before it leaves the other pool: what was
//! warmed and is never asked for, or the working set of before, stays, and a loop that would fit into the cache is missed whole, for ever.
//! A scan looks the same, but for one thing: what it pushes out is not asked for again.
//!
//! Time is cut into *spans* of as many misses as the cache has blocks. A block that was not used since a span began is *unused*. Of one block in
//! [`SAMPLE`] it is remembered that it left as a newcomer. If at the end of a span at least one in [`UNUSED`] blocks of the pool is unused, and at least one in [`AGAIN`] of the
//! sampled misses had been hits with the room of the pool, the unused blocks give way in the next. So do fewer, if they stayed unused for a span more (one in [`UNUSED`] of
//! them at least), in which one in [`AGAIN`] of the sampled misses had been hits with the room of those few: a loop that just fits, beside a little of the working set of
//! before, misses a part of each round for ever. The rule and its numbers are ours.
//!
//! It knows no block by itself but those few: who is unused is a mark in the tags of the pool, which is turned when a new count begins: with every span, but where the unused are to be known for longer. There are two
//! marks, so who was unused in one count is taken for used in the next: what is counted is never more than there is.

use crate::recent::Recent;
use forebay_units::{BlockIndex, mix64};
use std::collections::TryReserveError;

/// One block in so many is sampled (a power of two).
const SAMPLE: u32 = 64;
/// One sampled miss in so many is to have left lately.
const AGAIN: u32 = 2;
/// One block of the pool in so many is to be unused.
const UNUSED: u32 = 2;
/// Sampled misses that say something.
const SAMPLED_MIN: u32 = 16;

/// The two tags of the blocks of the pool, which are odd; others have even ones.
const TAG: u8 = 1;
const MARKED: u8 = 3;

/// Whether a block with this tag is of the pool.
#[inline]
pub(crate) fn is_of_pool(tag: u8) -> bool {
    tag & 1 == 1
}

/// What is counted of one pool.
#[derive(Debug)]
pub(crate) struct Idle {
    left: Recent,
    /// The tag of those who were used since the count began: [`TAG`] or [`MARKED`].
    tag: u8,
    /// How many were not.
    unused: u32,
    misses: u32,
    sampled: u32,
    /// The sampled misses that had been hits with the room of the pool, and with that of the `known`.
    again: u32,
    again_in_known: u32,
    /// How many were unused when the span began, if the marks still tell of them.
    known: u32,
    /// [`sampled_at_most`] of them.
    known_sampled: u32,
    gives_way: bool,
}

fn is_sampled(block: BlockIndex) -> bool {
    // The low half says where it is remembered.
    mix64(block.0) >> (64 - SAMPLE.trailing_zeros()) == 0
}

/// How many sampled newcomers leave at most while `blocks` leave, but for chance (two deviations).
fn sampled_at_most(blocks: u32) -> u32 {
    let sampled = blocks.div_ceil(SAMPLE);
    sampled + 2 * sampled.isqrt()
}

impl Idle {
    pub(crate) const fn new() -> Idle {
        Idle {
            left: Recent::new(),
            tag: TAG,
            unused: 0,
            misses: 0,
            sampled: 0,
            again: 0,
            again_in_known: 0,
            known: 0,
            known_sampled: 0,
            gives_way: false,
        }
    }

    pub(crate) fn reserve(&mut self, slots: u32) -> Result<(), TryReserveError> {
        self.left.reserve(slots.div_ceil(SAMPLE))
    }

    pub(crate) fn release(&mut self, slots: u32) {
        self.left.release(slots.div_ceil(SAMPLE));
    }

    pub(crate) fn footprint_bytes(&self) -> u64 {
        self.left.footprint_bytes()
    }

    /// The tag of a block of the pool that is used now.
    #[inline]
    pub(crate) fn tag(&self) -> u8 {
        self.tag
    }

    /// A block with this tag is used, or leaves.
    #[inline]
    pub(crate) fn ends(&mut self, tag: u8) {
        // Without a branch: which of the two it is cannot be predicted.
        self.unused -= u32::from(is_of_pool(tag) & (tag != self.tag));
    }

    /// Whether the unused blocks of the pool leave before newcomers do.
    #[inline]
    pub(crate) fn gives_way(&self) -> bool {
        self.gives_way && self.unused > 0
    }

    /// A newcomer leaves that nobody asked for again.
    #[inline]
    pub(crate) fn leaves(&mut self, block: BlockIndex) {
        if is_sampled(block) {
            self.left.remember(block);
        }
    }

    /// A block enters that was missed; the pool has `pool` of the cache's `capacity` blocks.
    #[inline]
    pub(crate) fn enters(&mut self, block: BlockIndex, pool: u32, capacity: u32) {
        self.misses = self.misses.saturating_add(1);
        if is_sampled(block) {
            self.sampled += 1;
            if let Some(age) = self.left.take_age(block, sampled_at_most(pool)) {
                self.again += 1;
                self.again_in_known += u32::from(age <= self.known_sampled);
            }
        }
        if self.misses >= capacity && self.sampled >= SAMPLED_MIN {
            self.end_span(pool);
        }
    }

    fn end_span(&mut self, pool: u32) {
        let least = self.sampled / AGAIN;
        let lies_idle = self.unused >= pool.div_ceil(UNUSED);
        let stayed = self.known > 0 && self.unused >= self.known.div_ceil(UNUSED);
        self.gives_way = lies_idle && self.again >= least || stayed && self.again_in_known >= least;
        if self.gives_way || lies_idle || self.known == 0 && self.unused > 0 {
            self.known = self.unused;
        } else {
            // There is no third tag: who was unused until now is taken for used in the next count, and can be unused in the one after it.
            self.tag ^= TAG ^ MARKED;
            (self.unused, self.known) = (pool - self.unused, 0);
        }
        self.known_sampled = sampled_at_most(self.known);
        (self.misses, self.sampled, self.again, self.again_in_known) = (0, 0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Incoming, Insertion, Policy, Slot, TwoPool};
    use forebay_units::BlockIndex;
    use std::collections::HashMap;

    const CAPACITY: u32 = 4_000;

    /// A partition of two pools.
    struct Partition {
        policy: TwoPool,
        slots: HashMap<u64, Slot>,
        blocks: Vec<u64>,
    }

    impl Partition {
        fn new() -> Partition {
            let mut policy = TwoPool::default();
            policy.set_capacity(CAPACITY);
            Partition { policy, slots: HashMap::new(), blocks: Vec::new() }
        }

        fn insert(&mut self, block: u64, insertion: Insertion) {
            let incoming = Incoming { block: BlockIndex(block), insertion };
            assert!(self.policy.admit(incoming));
            let slot = if self.blocks.len() < CAPACITY as usize {
                self.blocks.push(block);
                self.policy.reserve(self.blocks.len() as u32).expect("memory");
                Slot(self.blocks.len() as u32 - 1)
            } else {
                let slot = self.policy.victim(Some(incoming)).expect("it is full");
                let victim = std::mem::replace(&mut self.blocks[slot.0 as usize], block);
                self.policy.on_evict(slot, BlockIndex(victim));
                self.slots.remove(&victim);
                slot
            };
            self.policy.on_insert(slot, incoming);
            self.slots.insert(block, slot);
        }

        /// Looks up all of `blocks` in order, and gives the share of them that was there.
        fn ask(&mut self, blocks: impl Iterator<Item = u64>) -> f64 {
            let (mut hits, mut count) = (0u64, 0u64);
            for block in blocks {
                count += 1;
                match self.slots.get(&block) {
                    Some(slot) => {
                        hits += 1;
                        self.policy.on_hit(*slot, BlockIndex(block));
                    }
                    None => self.insert(block, Insertion::Miss),
                }
            }
            hits as f64 / count as f64
        }

        fn loops(&mut self, blocks: u64, rounds: u64) -> f64 {
            self.ask((0..rounds).flat_map(|_| 1_000_000..1_000_000 + blocks))
        }
    }

    #[test]
    fn a_loop_that_fits_is_kept_whatever_lay_idle_there_before() {
        for warmed in [true, false] {
            let mut partition = Partition::new();
            if warmed {
                (0..3_200).for_each(|block| partition.insert(block, Insertion::PrewarmTail));
            } else {
                partition.ask((0..2).flat_map(|_| 0..3_200));
            }
            let (first, then) = (partition.loops(3_900, 4), partition.loops(3_900, 2));
            assert!(then > 0.99, "warmed {warmed}: {first}, then {then}");
        }
    }

    /// Which of its blocks are sampled is chance: of 50 to be expected while 3,200 leave there may be 60.
    #[test]
    fn a_loop_that_fits_is_kept_whichever_blocks_are_sampled() {
        for start in (0..32).map(|number| 1_000_000 * number) {
            let mut partition = Partition::new();
            partition.ask((0..2).flat_map(|_| 500_000..503_200));
            let rounds = |count: u64| (0..count).flat_map(move |_| start..start + 3_900);
            let (first, then) = (partition.ask(rounds(6)), partition.ask(rounds(2)));
            assert!(then > 0.99, "from {start}: {first}, then {then}");
        }
    }

    #[test]
    fn what_was_in_use_until_a_loop_began_gives_way_though_a_part_of_it_lay_idle_before() {
        for idle in [0, 1, 800, 1_600] {
            let mut partition = Partition::new();
            partition.ask((0..2).flat_map(|_| 0..3_200));
            // All but `idle` blocks are used while what is read once goes by, for three spans.
            partition.ask((0..12_000).flat_map(|at| [idle + at % (3_200 - idle), 10_000_000 + at]));
            let (first, then) = (partition.loops(3_900, 8), partition.loops(3_900, 2));
            assert!(then > 0.99, "idle {idle}: {first}, then {then}");
        }
    }

    #[test]
    fn a_loop_that_just_fits_is_kept_though_a_little_of_the_pool_lies_idle() {
        for (idle, blocks) in [(40, 3_950), (100, 3_950), (400, 3_900), (1_000, 3_700), (1_000, 3_990)] {
            let mut partition = Partition::new();
            partition.ask((0..2).flat_map(|_| 0..3_200));
            let rounds = |count: u64| (0..count).flat_map(move |_| idle..idle + blocks);
            let (first, then) = (partition.ask(rounds(24)), partition.ask(rounds(2)));
            assert!(then > 0.99, "idle {idle} of {blocks}: {first}, then {then}");
        }
    }

    #[test]
    fn a_scan_empties_nothing_however_long() {
        let mut partition = Partition::new();
        partition.ask((0..2).flat_map(|_| 0..3_200));
        assert_eq!(partition.ask(1_000_000..1_400_000), 0.0);
        assert_eq!(partition.ask(0..3_200), 1.0);
    }

    #[test]
    fn of_a_loop_that_does_not_fit_the_part_that_is_used_stays() {
        let mut partition = Partition::new();
        partition.ask((0..2).flat_map(|_| 1_000_000..1_003_000));
        let found = partition.loops(8_000, 40);
        assert!(found > 0.374, "{found}");
    }
}
