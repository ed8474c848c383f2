//! An LRU stack of the extents that were generated, addressed by depth in blocks.
//!
//! Every request is an entry at a place in time; places are dealt out in ascending order. Rings hold the places of the entries of one
//! state and length in order of time, so that an entry of the wanted kind near a wanted depth is found by two searches: depth to
//! place by a Fenwick tree over the blocks of all entries, place to entry by bisection in the ring.
//!
//! Invariant: the tree counts exactly the entries that live. Bounded: at most [`ENTRIES_MAX`] live entries; the oldest fall
//! off. About 45 bytes each.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Live entries at most.
pub(crate) const ENTRIES_MAX: usize = 1 << 19;
/// Places in time until they are dealt out anew.
const PLACES: usize = 2 * ENTRIES_MAX;
/// Places per leaf of the tree.
const LEAF: usize = 64;

/// The entries of one state and length.
#[derive(Clone, Debug, Default)]
struct Ring {
    places: Vec<u32>,
    dead: usize,
}

/// The stack.
#[derive(Clone, Debug)]
pub(crate) struct Stack {
    /// Blocks of the entry at each place, 0 for none.
    blocks: Vec<u32>,
    starts: Vec<u64>,
    ring_of: Vec<u32>,
    tree: Vec<u64>,
    next: usize,
    /// No entry before it lives.
    oldest: usize,
    live: usize,
    total: u64,
    rings: Vec<Ring>,
    /// Live entries by where they start.
    place_of: HashMap<u64, u32, FixedState>,
}

impl Stack {
    pub(crate) fn new(rings: usize) -> Stack {
        Stack {
            blocks: vec![0; PLACES],
            starts: vec![0; PLACES],
            ring_of: vec![0; PLACES],
            tree: vec![0; PLACES / LEAF + 1],
            next: 0,
            oldest: 0,
            live: 0,
            total: 0,
            rings: vec![Ring::default(); rings],
            place_of: HashMap::default(),
        }
    }

    /// Puts an extent on top.
    pub(crate) fn push(&mut self, ring: u32, start: u64, blocks: u32) {
        if self.next == PLACES {
            self.renumber();
        }
        if self.live == ENTRIES_MAX {
            self.drop_oldest();
        }
        let place = self.next;
        self.next += 1;
        self.blocks[place] = blocks.max(1);
        self.starts[place] = start;
        self.ring_of[place] = ring;
        self.add(place, i64::from(blocks.max(1)));
        self.live += 1;
        let ring = &mut self.rings[ring as usize];
        if ring.dead > 16 + ring.places.len() / 2 {
            ring.places.retain(|&place| self.blocks[place as usize] > 0);
            ring.dead = 0;
        }
        ring.places.push(place as u32);
        self.place_of.insert(start, place as u32);
    }

    /// Blocks of all live entries.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Whether entries have fallen off.
    pub(crate) fn is_full(&self) -> bool {
        self.live == ENTRIES_MAX
    }

    /// The place of the entry that holds the block at `depth`, 1 being the newest; `None` beyond the bottom.
    pub(crate) fn place_at(&self, depth: u64) -> Option<u32> {
        if depth > self.total {
            return None;
        }
        // The first place whose sum of blocks up to it passes what lies below the block.
        let mut below = self.total - depth.max(1);
        let mut node = 0;
        let mut step = PLACES / LEAF;
        while step > 0 {
            if node + step <= PLACES / LEAF && self.tree[node + step] <= below {
                node += step;
                below -= self.tree[node];
            }
            step /= 2;
        }
        let mut place = node * LEAF;
        while u64::from(self.blocks[place]) <= below {
            below -= u64::from(self.blocks[place]);
            place += 1;
        }
        Some(place as u32)
    }

    /// The depth of the deepest block of the entry at `place`, at the granularity of a leaf of the tree.
    pub(crate) fn depth_of(&self, place: u32) -> u64 {
        let (mut below, mut node) = (0, place as usize / LEAF);
        while node > 0 {
            below += self.tree[node];
            node &= node - 1;
        }
        if self.next - (place as usize) < 4 * LEAF {
            // Near the top a leaf is much.
            return self.blocks[place as usize..self.next].iter().map(|&blocks| u64::from(blocks)).sum();
        }
        self.total - below
    }

    /// How many places lie between the top and `place`.
    pub(crate) fn age(&self, place: u32) -> usize {
        self.next - place as usize
    }

    /// The place of the live entry of `ring` that is nearest to `place`.
    pub(crate) fn nearest(&self, ring: u32, place: u32) -> Option<u32> {
        let places = &self.rings[ring as usize].places;
        let lives = |at: &&u32| self.blocks[**at as usize] > 0;
        let at = places.partition_point(|&other| other < place);
        let above = places[at..].iter().find(lives).copied();
        if above == Some(place) {
            return above;
        }
        let below = places[..at].iter().rev().find(lives).copied();
        match (above, below) {
            (Some(above), Some(below)) if place - below < above - place => Some(below),
            (Some(above), _) => Some(above),
            (None, below) => below,
        }
    }

    /// The place of the next older live entry, or the place itself where there is none.
    pub(crate) fn older(&self, place: u32) -> u32 {
        let older = (0..place as usize).rev().take(LEAF).find(|&at| self.blocks[at] > 0);
        older.map_or(place, |at| at as u32)
    }

    /// Start and blocks of the entry at a place.
    pub(crate) fn entry(&self, place: u32) -> (u64, u32) {
        (self.starts[place as usize], self.blocks[place as usize])
    }

    /// The place of the entry that starts at `start`.
    pub(crate) fn starting_at(&self, start: u64) -> Option<u32> {
        self.place_of.get(&start).copied()
    }

    /// Takes the first `blocks` blocks out of an entry. Its rest, if any, starts at `rest`.
    pub(crate) fn take(&mut self, place: u32, blocks: u32, rest: u64) {
        let at = place as usize;
        let taken = blocks.min(self.blocks[at]);
        self.add(at, -i64::from(taken));
        self.blocks[at] -= taken;
        // Another entry may have taken over the start.
        let start = self.starts[at];
        if self.place_of.get(&start) == Some(&place) {
            self.place_of.remove(&start);
        }
        if self.blocks[at] == 0 {
            self.live -= 1;
            self.rings[self.ring_of[at] as usize].dead += 1;
        } else {
            self.starts[at] = rest;
            self.place_of.entry(rest).or_insert(place);
        }
    }

    fn add(&mut self, place: usize, by: i64) {
        self.total = self.total.wrapping_add_signed(by);
        let mut node = place / LEAF + 1;
        while node < self.tree.len() {
            self.tree[node] = self.tree[node].wrapping_add_signed(by);
            node += node & node.wrapping_neg();
        }
    }

    fn drop_oldest(&mut self) {
        while self.blocks[self.oldest] == 0 {
            self.oldest += 1;
        }
        self.take(self.oldest as u32, u32::MAX, 0);
    }

    /// Moves the live entries to the first places, in order.
    #[cold]
    fn renumber(&mut self) {
        let mut renamed = vec![u32::MAX; PLACES];
        let mut next = 0;
        for (place, renamed) in renamed.iter_mut().enumerate() {
            if self.blocks[place] > 0 {
                self.blocks[next] = self.blocks[place];
                self.starts[next] = self.starts[place];
                self.ring_of[next] = self.ring_of[place];
                *renamed = next as u32;
                next += 1;
            }
        }
        self.blocks[next..].fill(0);
        for ring in &mut self.rings {
            ring.places.iter_mut().for_each(|place| *place = renamed[*place as usize]);
            ring.places.retain(|&place| place != u32::MAX);
            ring.dead = 0;
        }
        self.tree.fill(0);
        for leaf in 0..PLACES / LEAF {
            let sum: u64 = self.blocks[leaf * LEAF..][..LEAF].iter().map(|&blocks| u64::from(blocks)).sum();
            let node = leaf + 1;
            self.tree[node] += sum;
            let parent = node + (node & node.wrapping_neg());
            if parent < self.tree.len() {
                self.tree[parent] += self.tree[node];
            }
        }
        self.place_of.values_mut().for_each(|place| *place = renamed[*place as usize]);
        (self.next, self.oldest, self.live) = (next, 0, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::random;
    use rand::Rng;

    #[test]
    fn depths_by_hand() {
        let mut stack = Stack::new(2);
        stack.push(0, 100, 3);
        stack.push(1, 200, 1);
        stack.push(0, 300, 2);
        // From the top: 300 at depths 1 and 2, 200 at 3, 100 at 4 to 6.
        let places: Vec<_> = (1..=7).map(|depth| stack.place_at(depth)).collect();
        assert_eq!(places, [Some(2), Some(2), Some(1), Some(0), Some(0), Some(0), None]);
        // Ring 0 has places 0 and 2; 1 is as near to either: the newer one wins.
        assert_eq!((stack.nearest(0, 1), stack.nearest(1, 0)), (Some(2), Some(1)));
        // One block of the oldest is used again: it keeps two, from 101 on.
        stack.take(0, 1, 101);
        assert_eq!((stack.entry(0), stack.place_at(5), stack.place_at(6)), ((101, 2), Some(0), None));
        let places = [100, 101, 200, 300].map(|start| stack.starting_at(start));
        assert_eq!(places, [None, Some(0), Some(1), Some(2)]);
        stack.take(0, 2, 0);
        stack.take(2, 2, 0);
        assert_eq!((stack.nearest(0, 0), stack.total()), (None, 1));
    }

    /// Against a list, through several renumberings and with entries that fall off.
    #[test]
    fn it_agrees_with_a_list() {
        let mut stack = Stack::new(3);
        let mut list: std::collections::VecDeque<(u32, u64, u32)> = std::collections::VecDeque::new();
        let mut random = random(9);
        for step in 0..(3 * PLACES as u64) {
            let (ring, blocks) = (random.random_range(0..3), random.random_range(1..5));
            stack.push(ring, step, blocks);
            if list.len() == ENTRIES_MAX {
                list.pop_front();
            }
            list.push_back((ring, step, blocks));
            if step % 50_021 == 50_000 {
                let depth = random.random_range(1..=stack.total);
                let mut left = depth;
                let expected = list.iter().rev().find(|entry| {
                    let found = left <= u64::from(entry.2);
                    left = left.saturating_sub(u64::from(entry.2));
                    found
                });
                let &(ring, start, _) = expected.unwrap();
                let place = stack.place_at(depth).unwrap();
                assert_eq!((stack.nearest(ring, place), stack.entry(place).0), (Some(place), start));
                stack.take(place, u32::MAX, 0);
                list.retain(|entry| entry.1 != start);
                assert_eq!(stack.total, list.iter().map(|entry| u64::from(entry.2)).sum::<u64>());
            }
        }
    }
}
