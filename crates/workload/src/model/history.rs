//! What was requested so far, as an LRU stack of extents: where an extent lies relative to those that were used last, and which extent
//! lies there.
//!
//! Every request is an entry at a place in time; an extent that is requested again moves to a new place on top. Workloads repeat
//! themselves: after an extent, the one that followed it last time is likely. So a place is named relative to one of some *cursors*, the places
//! where extents were last found, or to the top: by the number of live entries between. What is near none of them is named by its depth.
//! The fitter names places, the generator finds them again; that both use this one structure makes generated reuse that of the original.
//!
//! Invariant: sums count exactly the live entries. Bounded: at most [`ENTRIES_MAX`] live entries; the oldest fall off. About
//! 40 bytes each.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Live entries at most.
pub(crate) const ENTRIES_MAX: usize = 1 << 19;
/// Places in time until they are dealt out anew.
const PLACES: usize = 2 * ENTRIES_MAX;
/// Places of a leaf, and leaves of a group, whose bytes are summed.
const FAN: usize = 64;
/// Cursors, the most recently used first, and the top.
pub(crate) const CURSORS: usize = 5;
/// The number of the top among the cursors.
pub(crate) const TOP: usize = CURSORS - 1;
/// Steps from a cursor: from 8 live entries before it to 15 after it.
pub(crate) const STEPS_BACK: i32 = 8;
/// One more than the last step.
pub(crate) const STEPS_ON: i32 = 16;
/// Words of 64 places that are searched for live entries; what is further is not near.
const WORDS_NEAR: usize = 64;
/// Adjoining extents that one request takes at most.
const ADJOINING_MAX: usize = 1 << 10;

const NONE: u32 = u32::MAX;

/// Where a place lies relative to a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Relation {
    /// Which cursor, or [`TOP`].
    pub(crate) cursor: usize,
    /// Live entries between: 0 is the next newer one, -1 the next older.
    pub(crate) step: i32,
}

/// An extent in the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Volume and offset in one number.
    pub(crate) start: u64,
    pub(crate) length: u64,
    /// Whether it was written, when it was used last.
    pub(crate) is_written: bool,
    /// How often what starts there was used.
    pub(crate) uses: u32,
}

/// The stack.
#[derive(Clone, Debug)]
pub(crate) struct History {
    /// By place; without length where nothing lives.
    entries: Vec<Extent>,
    /// A bit for each place with a live entry.
    live: Vec<u64>,
    leaves: Vec<u64>,
    groups: Vec<u64>,
    next: usize,
    count: usize,
    total: u64,
    pushed: u64,
    renewals: Renewals,
    place_of: HashMap<u64, u32, FixedState>,
    /// Places where extents were found, the last one first.
    cursors: [u32; TOP],
}

/// When places were dealt out anew, and what became of them.
#[derive(Clone, Debug, Default)]
struct Renewals {
    /// How many extents had been pushed, and how many were kept, the last time and the time before.
    last: (u64, usize),
    before: (u64, usize),
    /// The last time: new places by groups of old ones.
    kept: Vec<u32>,
}

/// Volume and offset in one number: 4,096 volumes, and the lower 52 bits of the offset.
#[inline]
pub(crate) fn extent_key(volume: u32, offset: u64) -> u64 {
    u64::from(volume) << OFFSET_BITS | offset & OFFSET
}

/// The offset of a key.
#[inline]
pub(crate) fn key_offset(key: u64) -> u64 {
    key & OFFSET
}

/// The volume of a key.
#[inline]
pub(crate) fn key_volume(key: u64) -> u32 {
    (key >> OFFSET_BITS) as u32
}

const OFFSET_BITS: u32 = 52;
const OFFSET: u64 = (1 << OFFSET_BITS) - 1;

impl History {
    /// One that takes no memory and no extents.
    pub(crate) fn empty() -> History {
        History {
            entries: Vec::new(),
            live: Vec::new(),
            leaves: Vec::new(),
            groups: Vec::new(),
            next: 0,
            count: 0,
            total: 0,
            pushed: 0,
            renewals: Renewals::default(),
            place_of: HashMap::default(),
            cursors: [NONE; TOP],
        }
    }

    pub(crate) fn new() -> History {
        History {
            entries: vec![Extent::default(); PLACES],
            live: vec![0; PLACES / 64],
            leaves: vec![0; PLACES / FAN],
            groups: vec![0; PLACES / FAN / FAN],
            ..History::empty()
        }
    }

    /// Bytes of all live entries.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The place of the live entry that starts at `start`.
    #[inline]
    pub(crate) fn starting_at(&self, start: u64) -> Option<u32> {
        self.place_of.get(&start).copied()
    }

    pub(crate) fn entry(&self, place: u32) -> &Extent {
        &self.entries[place as usize]
    }

    /// The cursor that a live place is nearest to, the one used last where several are; `None` where it is near none.
    pub(crate) fn relation(&self, place: u32) -> Option<Relation> {
        let mut best: Option<(i32, Relation)> = None;
        let top = Relation { cursor: TOP, step: -1 };
        let cursors = self.cursors.iter().enumerate().filter(|(_, at)| **at != NONE);
        // The top is a cursor behind the last entry.
        for (cursor, at) in
            cursors.map(|(cursor, &at)| (cursor, at as usize)).chain([(top.cursor, self.next)])
        {
            let limit = best.map_or(i32::MAX, |(distance, _)| distance);
            if let Some(step) = self.step(at, place as usize) {
                let distance = if step < 0 { -step - 1 } else { step };
                if distance < limit {
                    best = Some((distance, Relation { cursor, step }));
                }
            }
        }
        best.map(|(_, relation)| relation)
    }

    /// Live entries from `from` to the live `place`, as [`Relation::step`] counts them.
    fn step(&self, from: usize, place: usize) -> Option<i32> {
        let (low, high) = if place >= from { (from, place) } else { (place + 1, from) };
        if high / 64 - low / 64 > WORDS_NEAR {
            return None;
        }
        let most = if place >= from { STEPS_ON - 1 } else { STEPS_BACK - 1 };
        let between = self.count_live(low, high, most as u32)? as i32;
        Some(if place >= from { between } else { -between - 1 })
    }

    /// How many live entries have places from `low` to below `high`; `None` beyond `most`.
    fn count_live(&self, low: usize, high: usize, most: u32) -> Option<u32> {
        let mut count = 0;
        for word in low / 64..=(high.max(1) - 1) / 64 {
            let mut bits = self.live[word];
            if word == low / 64 {
                bits &= u64::MAX << (low % 64);
            }
            if word == high / 64 {
                bits &= (1u64 << (high % 64)) - 1;
            }
            count += bits.count_ones();
            if count > most {
                return None;
            }
        }
        Some(count)
    }

    /// The live place at a relation; `None` where there is none that near.
    pub(crate) fn at(&self, relation: Relation) -> Option<u32> {
        let from = if relation.cursor == TOP { self.next } else { self.cursors[relation.cursor] as usize };
        if from == NONE as usize {
            return None;
        }
        if relation.step >= 0 {
            self.newer(from, relation.step as u32)
        } else {
            self.older(from, (-relation.step - 1) as u32)
        }
    }

    /// The live place after `skip` others from `from` on.
    fn newer(&self, from: usize, mut skip: u32) -> Option<u32> {
        let first = from / 64;
        for word in first..(first + WORDS_NEAR).min(self.live.len()) {
            let mut bits = self.live[word];
            if word == first {
                bits &= u64::MAX << (from % 64);
            }
            let ones = bits.count_ones();
            if skip < ones {
                for _ in 0..skip {
                    bits &= bits - 1;
                }
                return Some((word * 64) as u32 + bits.trailing_zeros());
            }
            skip -= ones;
        }
        None
    }

    /// The live place after `skip` others from the one before `from` down.
    fn older(&self, from: usize, mut skip: u32) -> Option<u32> {
        let first = from / 64;
        for word in (first.saturating_sub(WORDS_NEAR)..=first.min(self.live.len() - 1)).rev() {
            let mut bits = self.live[word];
            if word == first {
                bits &= (1u64 << (from % 64)) - 1;
            }
            let ones = bits.count_ones();
            if skip < ones {
                for _ in 0..skip {
                    bits &= !(1 << bits.ilog2());
                }
                return Some((word * 64) as u32 + bits.ilog2());
            }
            skip -= ones;
        }
        None
    }

    /// How many extents were pushed.
    pub(crate) fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Bytes of the entries newer than the one that was pushed after `pushed` others; about so many where places were dealt out anew since.
    pub(crate) fn depth_since(&self, pushed: u64) -> u64 {
        let Renewals { last, before, kept } = &self.renewals;
        let place = match (pushed.checked_sub(last.0), pushed.checked_sub(before.0)) {
            (Some(since), _) => last.1 + since as usize,
            // Of those that were pushed between the last two times, some were kept, in their order.
            (None, Some(since)) => kept[(before.1 + since as usize) / FAN / FAN] as usize,
            (None, None) => 0,
        };
        self.depth_of(place.min(self.next.saturating_sub(1)) as u32)
    }

    /// Bytes of the entries newer than the one at `place`.
    pub(crate) fn depth_of(&self, place: u32) -> u64 {
        let place = place as usize;
        let (leaf, group) = (place / FAN, place / FAN / FAN);
        let mut above: u64 = self.entries[place + 1..(leaf + 1) * FAN].iter().map(|entry| entry.length).sum();
        above += self.leaves[leaf + 1..(group + 1) * FAN].iter().sum::<u64>();
        let last = (self.next / FAN / FAN).min(self.groups.len() - 1);
        if group < last {
            above += self.groups[group + 1..=last].iter().sum::<u64>();
        }
        above
    }

    /// The place of the live entry that holds the byte below `depth` bytes; `None` beyond the bottom.
    pub(crate) fn place_at(&self, depth: u64) -> Option<u32> {
        if depth >= self.total {
            return None;
        }
        let mut left = depth;
        let mut group = (self.next / FAN / FAN).min(self.groups.len() - 1);
        while self.groups[group] <= left {
            left -= self.groups[group];
            group -= 1;
        }
        let mut leaf = group * FAN + FAN - 1;
        while self.leaves[leaf] <= left {
            left -= self.leaves[leaf];
            leaf -= 1;
        }
        let mut place = leaf * FAN + FAN - 1;
        while self.entries[place].length <= left {
            left -= self.entries[place].length;
            place -= 1;
        }
        Some(place as u32)
    }

    /// The live place nearest to `place` whose entry is `wanted`, among so many places on either side.
    pub(crate) fn nearest(&self, place: u32, reach: u32, wanted: impl Fn(&Extent) -> bool) -> Option<u32> {
        let is = |at: u32| {
            let entry = &self.entries[at as usize];
            entry.length > 0 && wanted(entry)
        };
        (0..reach).find_map(|away| {
            let newer = Some(place + away).filter(|&newer| (newer as usize) < self.next && is(newer));
            newer.or_else(|| place.checked_sub(away).filter(|&older| is(older)))
        })
    }

    /// An extent was found at `place`, near the cursor of `relation` or near none: a cursor is there from now on.
    pub(crate) fn found(&mut self, relation: Option<Relation>, place: u32) {
        // What is near the top says nothing about where others will be.
        let cursor = match relation {
            Some(Relation { cursor: TOP, .. }) => return,
            Some(relation) => relation.cursor,
            None => TOP - 1,
        };
        self.cursors[..=cursor].rotate_right(1);
        self.cursors[0] = place;
    }

    /// Puts an extent of at least a byte on top. Its bytes are taken out of the entry that starts where it does, if there is one, and
    /// of those that adjoin it; what is left of them stays where it was.
    pub(crate) fn push(&mut self, mut extent: Extent) {
        extent.uses = 1;
        let mut left = extent.length;
        let mut start = extent.start;
        for _ in 0..ADJOINING_MAX {
            let Some(place) = self.place_of.remove(&start) else { break };
            let old = self.entries[place as usize];
            if start == extent.start {
                extent.uses = old.uses.saturating_add(1);
            }
            if old.length > left {
                // The rest has a start of its own; where that is another entry's already, it is forgotten.
                let rest = Extent { start: start + left, length: old.length - left, ..old };
                if self.place_of.try_insert(rest.start, place).is_ok() {
                    self.shrink(place, left);
                    self.entries[place as usize] = rest;
                } else {
                    self.remove(place);
                }
                break;
            }
            self.remove(place);
            left -= old.length;
            start += old.length;
            if left == 0 {
                break;
            }
        }
        if self.next == PLACES {
            self.renumber();
        }
        if self.count == ENTRIES_MAX {
            self.drop_oldest();
        }
        let place = self.next;
        self.next += 1;
        self.pushed += 1;
        self.entries[place] = extent;
        self.live[place / 64] |= 1 << (place % 64);
        self.leaves[place / FAN] += extent.length;
        self.groups[place / FAN / FAN] += extent.length;
        self.total += extent.length;
        self.count += 1;
        self.place_of.insert(extent.start, place as u32);
    }

    fn shrink(&mut self, place: u32, by: u64) {
        let place = place as usize;
        self.leaves[place / FAN] -= by;
        self.groups[place / FAN / FAN] -= by;
        self.total -= by;
    }

    /// Takes out an entry whose start is no longer in the map.
    fn remove(&mut self, place: u32) {
        let at = place as usize;
        self.shrink(place, self.entries[at].length);
        self.entries[at].length = 0;
        self.live[at / 64] &= !(1 << (at % 64));
        self.count -= 1;
    }

    fn drop_oldest(&mut self) {
        let word = self.live.iter().position(|&bits| bits != 0).expect("there are live entries");
        let place = word * 64 + self.live[word].trailing_zeros() as usize;
        self.place_of.remove(&self.entries[place].start);
        self.remove(place as u32);
    }

    /// Moves the live entries to the first places, in order.
    #[cold]
    fn renumber(&mut self) {
        let mut renamed = [0u32; TOP];
        for (renamed, &cursor) in renamed.iter_mut().zip(&self.cursors) {
            let before = |cursor: usize| {
                self.live[..cursor / 64].iter().map(|bits| bits.count_ones()).sum::<u32>()
                    + (self.live[cursor / 64] & ((1 << (cursor % 64)) - 1)).count_ones()
            };
            *renamed = if cursor == NONE { NONE } else { before(cursor as usize) };
        }
        self.cursors = renamed;
        let mut kept = 0;
        self.renewals.kept.clear();
        for group in self.live.chunks(FAN * FAN / 64) {
            self.renewals.kept.push(kept);
            kept += group.iter().map(|bits| bits.count_ones()).sum::<u32>();
        }
        self.entries.retain(|entry| entry.length > 0);
        self.next = self.entries.len();
        self.renewals.before = std::mem::replace(&mut self.renewals.last, (self.pushed, self.next));
        self.entries.resize(PLACES, Extent::default());
        self.live.fill(0);
        self.leaves.fill(0);
        self.groups.fill(0);
        for (place, entry) in self.entries[..self.next].iter().enumerate() {
            self.live[place / 64] |= 1 << (place % 64);
            self.leaves[place / FAN] += entry.length;
            self.groups[place / FAN / FAN] += entry.length;
            *self.place_of.get_mut(&entry.start).expect("every live entry is in the map") = place as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::random;
    use rand::Rng;

    fn push(history: &mut History, start: u64, length: u64) {
        history.push(Extent { start, length, is_written: false, uses: 0 });
    }

    #[test]
    fn names_by_hand() {
        let mut history = History::new();
        // Places 0 to 4, with 10 bytes each.
        (0..5).for_each(|at| push(&mut history, at * 100, 10));
        let place = |history: &History, start| history.starting_at(start).unwrap();
        // From the top down: 400 is the newest.
        let top = |step| Some(Relation { cursor: TOP, step });
        assert_eq!(history.relation(place(&history, 400)), top(-1));
        assert_eq!(history.relation(place(&history, 200)), top(-3));
        assert_eq!((history.depth_of(0), history.depth_of(4)), (40, 0));
        assert_eq!(
            [0, 9, 10, 49, 50].map(|depth| history.place_at(depth)),
            [Some(4), Some(4), Some(3), Some(0), None]
        );
        // 100 is found by its depth and requested again: 200 is the next one after the cursor, 0 the one before it.
        history.found(None, 1);
        push(&mut history, 100, 10);
        assert_eq!(history.relation(place(&history, 200)), Some(Relation { cursor: 0, step: 0 }));
        assert_eq!(history.relation(place(&history, 0)), Some(Relation { cursor: 0, step: -1 }));
        // As near to the cursor as to the top: the cursor names it.
        assert_eq!(history.relation(place(&history, 100)), top(-1));
        assert_eq!(history.at(Relation { cursor: 0, step: 1 }), Some(3));
        assert_eq!(history.at(Relation { cursor: 1, step: 0 }), None);
    }

    #[test]
    fn what_is_taken_is_taken_in_part_or_with_what_adjoins() {
        let mut history = History::new();
        push(&mut history, 1_000, 30);
        // The first 10 bytes again: 20 are left at the old place, from 1,010 on.
        push(&mut history, 1_000, 10);
        assert_eq!(
            (history.starting_at(1_000), history.starting_at(1_010), history.total()),
            (Some(1), Some(0), 30)
        );
        assert_eq!(*history.entry(0), Extent { start: 1_010, length: 20, is_written: false, uses: 1 });
        // 25 bytes take the 10, and 15 of the 20.
        push(&mut history, 1_000, 25);
        assert_eq!(
            (history.starting_at(1_000), history.starting_at(1_025), history.total()),
            (Some(2), Some(0), 30)
        );
        assert_eq!(history.starting_at(1_010), None);
    }

    /// Against a list, through several renumberings and with entries that fall off: what is named is found again.
    #[test]
    fn it_agrees_with_a_list() {
        let (mut history, mut random) = (History::new(), random(9));
        // (start, length), the oldest first.
        let mut list: std::collections::VecDeque<(u64, u64)> = std::collections::VecDeque::new();
        for step in 0..(3 * PLACES as u64) {
            let length = random.random_range(1..5);
            push(&mut history, step * 10, length);
            list.push_back((step * 10, length));
            if list.len() > ENTRIES_MAX {
                list.pop_front();
            }
            if step % 50_021 != 50_000 {
                continue;
            }
            let total: u64 = list.iter().map(|(_, length)| length).sum();
            assert_eq!(history.total(), total);
            let depth = random.random_range(0..total);
            let mut above = 0;
            let at = list.iter().rposition(|(_, length)| {
                above += length;
                above > depth
            });
            let (start, length) = list[at.unwrap()];
            let place = history.place_at(depth).unwrap();
            // Of those that were pushed since places were dealt out anew the number tells the place; of others about.
            let ago = (list.len() - 1 - at.unwrap()) as u64;
            let since = history.depth_since(history.pushed() - 1 - ago);
            assert!(since.abs_diff(above - length) <= total / 50, "{since} for {}", above - length);
            assert_eq!(history.entry(place).start, start);
            assert_eq!(history.depth_of(place), above - length);
            // Eight that are found near each other after it.
            history.found(None, place);
            for _ in 0..8 {
                let steps = random.random_range(-STEPS_BACK..STEPS_ON);
                let relation = Relation { cursor: 0, step: steps };
                let Some(near) = history.at(relation) else { continue };
                let named = history.relation(near).unwrap();
                assert_eq!(history.at(named), Some(near), "{relation:?} {named:?}");
                history.found(Some(relation), near);
            }
        }
    }
}
