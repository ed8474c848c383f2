//! An LRU stack of the extents that were generated, addressed by depth in blocks.
//!
//! Every request is an entry at a place in time; places are dealt out in ascending order. Rings hold the entries of one state and
//! length in order of time, so that an entry of the wanted kind near a wanted depth is found by two searches: depth to place by a
//! Fenwick tree over the blocks of all entries, place to entry by bisection in the ring.
//!
//! Invariant: the tree counts exactly the entries that live. Bounded: at most [`ENTRIES_MAX`] live entries; the oldest fall
//! off. About 30 bytes each.

/// Live entries at most.
pub(crate) const ENTRIES_MAX: usize = 1 << 19;
/// Places in time until they are dealt out anew.
const PLACES: usize = 2 * ENTRIES_MAX;
/// Places per leaf of the tree.
const LEAF: usize = 64;
/// The start of an entry that was used again since, or fell off.
const DEAD: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    place: u32,
    start: u64,
}

/// The entries of one state and length.
#[derive(Clone, Debug, Default)]
struct Ring {
    entries: Vec<Entry>,
    dead: usize,
}

/// Which entry was used last, for a stream that goes on along the entries of an older one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trail {
    ring: u32,
    place: u32,
    /// Places are renumbered; a trail from before is lost.
    generation: u32,
}

/// The stack.
#[derive(Clone, Debug)]
pub(crate) struct Stack {
    /// Blocks of the entry at each place, 0 for none.
    blocks: Vec<u32>,
    ring_of: Vec<u32>,
    tree: Vec<u64>,
    next: usize,
    /// No entry before it lives.
    oldest: usize,
    live: usize,
    total: u64,
    generation: u32,
    rings: Vec<Ring>,
}

impl Stack {
    pub(crate) fn new(rings: usize) -> Stack {
        Stack {
            blocks: vec![0; PLACES],
            ring_of: vec![0; PLACES],
            tree: vec![0; PLACES / LEAF + 1],
            next: 0,
            oldest: 0,
            live: 0,
            total: 0,
            generation: 0,
            rings: vec![Ring::default(); rings],
        }
    }

    /// Puts an extent on top.
    pub(crate) fn push(&mut self, ring: u32, start: u64, blocks: u32) -> Trail {
        if self.next == PLACES {
            self.renumber();
        }
        if self.live == ENTRIES_MAX {
            self.drop_oldest();
        }
        let place = self.next;
        self.next += 1;
        self.blocks[place] = blocks.max(1);
        self.ring_of[place] = ring;
        self.add(place, i64::from(blocks.max(1)));
        self.live += 1;
        let ring_entries = &mut self.rings[ring as usize];
        if ring_entries.dead > 16 + ring_entries.entries.len() / 2 {
            ring_entries.entries.retain(|entry| entry.start != DEAD);
            ring_entries.dead = 0;
        }
        ring_entries.entries.push(Entry { place: place as u32, start });
        Trail { ring, place: place as u32, generation: self.generation }
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

    /// How many places lie between the top and `place`.
    pub(crate) fn age(&self, place: u32) -> usize {
        self.next - place as usize
    }

    /// The live entry of `ring` whose place is nearest to `place`: its index in the ring, and its place.
    pub(crate) fn nearest(&self, ring: u32, place: u32) -> Option<(usize, u32)> {
        let entries = &self.rings[ring as usize].entries;
        let at = entries.partition_point(|entry| entry.place < place);
        let above = entries[at..].iter().position(|entry| entry.start != DEAD).map(|by| at + by);
        if let Some(found) = above.filter(|&found| entries[found].place == place) {
            return Some((found, place));
        }
        let below = entries[..at].iter().rposition(|entry| entry.start != DEAD);
        let far = |found: usize| entries[found].place.abs_diff(place);
        let found = match (above, below) {
            (Some(above), Some(below)) if far(below) < far(above) => below,
            (Some(above), _) => above,
            (None, below) => below?,
        };
        Some((found, entries[found].place))
    }

    /// Takes an entry out; its start and the trail to what was used after it.
    pub(crate) fn take(&mut self, ring: u32, index: usize) -> (u64, Trail) {
        let entry = &mut self.rings[ring as usize].entries[index];
        let (start, place) = (std::mem::replace(&mut entry.start, DEAD), entry.place);
        self.rings[ring as usize].dead += 1;
        self.remove(place as usize);
        (start, Trail { ring, place, generation: self.generation })
    }

    /// The start of an entry that stays where it is.
    pub(crate) fn start(&self, ring: u32, index: usize) -> u64 {
        self.rings[ring as usize].entries[index].start
    }

    /// Takes the entry that was used after the one of `trail` if it is of `ring` and starts at `start`.
    pub(crate) fn take_following(&mut self, trail: Trail, ring: u32, start: u64) -> Option<Trail> {
        if trail.generation != self.generation {
            return None;
        }
        let entries = &self.rings[ring as usize].entries;
        let at = entries.partition_point(|entry| entry.place <= trail.place);
        // Another stream's entries may stand between.
        let found = entries[at..].iter().take(8).position(|entry| entry.start == start)?;
        Some(self.take(ring, at + found).1)
    }

    fn add(&mut self, place: usize, by: i64) {
        self.total = self.total.wrapping_add_signed(by);
        let mut node = place / LEAF + 1;
        while node < self.tree.len() {
            self.tree[node] = self.tree[node].wrapping_add_signed(by);
            node += node & node.wrapping_neg();
        }
    }

    fn remove(&mut self, place: usize) {
        self.add(place, -i64::from(self.blocks[place]));
        self.blocks[place] = 0;
        self.live -= 1;
    }

    fn drop_oldest(&mut self) {
        while self.blocks[self.oldest] == 0 {
            self.oldest += 1;
        }
        let place = self.oldest;
        let ring = &mut self.rings[self.ring_of[place] as usize];
        let index = ring.entries.partition_point(|entry| (entry.place as usize) < place);
        ring.entries[index].start = DEAD;
        ring.dead += 1;
        self.remove(place);
    }

    /// Moves the live entries to the first places, in order.
    #[cold]
    fn renumber(&mut self) {
        let mut renamed = vec![0u32; PLACES];
        let mut next = 0;
        for place in 0..PLACES {
            if self.blocks[place] > 0 {
                (self.blocks[next], self.ring_of[next]) = (self.blocks[place], self.ring_of[place]);
                renamed[place] = next as u32;
                next += 1;
            }
        }
        self.blocks[next..].fill(0);
        for ring in &mut self.rings {
            ring.entries.retain(|entry| entry.start != DEAD);
            ring.entries.iter_mut().for_each(|entry| entry.place = renamed[entry.place as usize]);
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
        (self.next, self.oldest, self.live) = (next, 0, next);
        self.generation += 1;
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
        assert_eq!(stack.nearest(0, 1), Some((1, 2)));
        assert_eq!(stack.nearest(1, 0), Some((0, 1)));
        let (start, trail) = stack.take(0, 0);
        assert_eq!((start, stack.place_at(3), stack.place_at(4)), (100, Some(1), None));
        assert_eq!(stack.take_following(trail, 0, 999), None);
        assert!(stack.take_following(trail, 0, 300).is_some());
        assert_eq!(stack.nearest(0, 0), None);
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
                let (index, found) = stack.nearest(ring, place).unwrap();
                assert_eq!((found, stack.take(ring, index).0), (place, start));
                list.retain(|entry| entry.1 != start);
                assert_eq!(stack.total, list.iter().map(|entry| u64::from(entry.2)).sum::<u64>());
            }
        }
        assert!(stack.generation > 1);
    }
}
