//! Counts of accesses by chunk, cooled by subtraction, in bounded memory. It does not know who is placed where, only who must be remembered.
//!
//! Cooling subtracts the same from all, so it is done once: a *floor* rises instead, and a count is what lies above it. What was below it at its next access begins at
//! the floor again, which is subtraction that stops at zero. The order of those that have sunk below is kept: the one that did so first is the coldest.
//!
//! Source: SANCache, MSST 2006 ("cool candidates periodically"); US8688904 (subtracting an amount every interval). All numbers are ours.

use crate::{Slot, SlotTable};
use forebay_units::BlockIndex;

/// Entries that are looked at for one that makes room.
const SWEEP: u32 = 16;
/// What a chunk may owe, in sixteenths: as much as an access.
const DEBT_MAX: u8 = 16;
/// The count, in sixteenths, at which a loss weighs twice as much as at zero.
const WORN_TWICE: i64 = 8 * 16;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// The count above the floor, in sixteenths.
    value: u64,
    /// When it was last accessed, on the owner's clock.
    last: u32,
    /// Whatever the owner says of it; who has any is never forgotten.
    mark: u32,
}

/// Chunks that are remembered, at most so many. 37 bytes each.
#[derive(Debug)]
pub(super) struct Heat {
    table: SlotTable,
    entries: Vec<Entry>,
    /// By slot: what was to be taken from a count that was zero, in sixteenths.
    debts: Vec<u8>,
    floor: u64,
    hand: u32,
}

impl Heat {
    /// Remembers nobody, and at most `most`.
    pub(super) fn new(most: u32) -> Heat {
        let mut table = SlotTable::new(0);
        for _ in 0..most {
            table.grow().expect("memory of a tier is taken at its start");
        }
        Heat {
            table,
            entries: vec![Entry::default(); most as usize],
            debts: vec![0; most as usize],
            floor: 0,
            hand: 0,
        }
    }

    pub(super) fn find(&self, chunk: u64) -> Option<u32> {
        self.table.find(BlockIndex(chunk)).map(|slot| slot.0)
    }

    /// The chunk in `slot`, which is remembered.
    pub(super) fn chunk(&self, slot: u32) -> u64 {
        self.table.block_in(Slot(slot)).expect("a slot that is used holds a chunk").0
    }

    /// The slot of `chunk`, remembered from now on; whether it was before. `None` where sixteen others are all hotter or marked: then the coldest of them is cooled by a sixteenth,
    /// so that who comes often enough gets in.
    pub(super) fn remember(&mut self, chunk: u64, tick: u32) -> Option<(u32, bool)> {
        if let Some(slot) = self.find(chunk) {
            return Some((slot, true));
        }
        let slot = match self.table.free() {
            Some(slot) => slot.0,
            None => {
                let slot = self.sweep()?;
                self.forget(slot);
                slot
            }
        };
        self.table.fill(Slot(slot), BlockIndex(chunk));
        self.entries[slot as usize] = Entry { value: self.floor, last: tick, mark: 0 };
        Some((slot, false))
    }

    fn sweep(&mut self) -> Option<u32> {
        let slots = self.table.len();
        let mut coldest: Option<(u64, u32)> = None;
        for _ in 0..SWEEP.min(slots) {
            let at = self.hand;
            self.hand = (self.hand + 1) % slots;
            let entry = self.entries[at as usize];
            if entry.mark == 0 && coldest.is_none_or(|coldest| (entry.value, at) < coldest) {
                coldest = Some((entry.value, at));
            }
        }
        let (value, at) = coldest?;
        if value <= self.floor {
            return Some(at);
        }
        self.entries[at as usize].value -= 1;
        None
    }

    /// Forgets the chunk in `slot`.
    pub(super) fn forget(&mut self, slot: u32) {
        self.table.clear(Slot(slot), u32::MAX);
        self.entries[slot as usize] = Entry::default();
        self.debts[slot as usize] = 0;
    }

    /// How far the owner's clock has gone since the last access, which is now.
    pub(super) fn touch(&mut self, slot: u32, tick: u32) -> u32 {
        tick.wrapping_sub(std::mem::replace(&mut self.entries[slot as usize].last, tick))
    }

    /// Adds to the count, to at most `most`, or takes from it, down to zero; what is taken beyond that is owed, up to [`DEBT_MAX`], and paid before anything is added. A high count is worn faster, in
    /// proportion to it: what a rush has brought must not take as long again to be paid off by accesses that cost. It stays above zero where accesses save more than they cost.
    pub(super) fn add(&mut self, slot: u32, sixteenths: i64, most: u64) {
        let (value, debt) = (&mut self.entries[slot as usize].value, &mut self.debts[slot as usize]);
        let had = value.saturating_sub(self.floor) as i64;
        let worn = sixteenths.min(0) * had / WORN_TWICE;
        let count = had - i64::from(*debt) + sixteenths + worn;
        *debt = (-count).clamp(0, DEBT_MAX.into()) as u8;
        *value = self.floor + count.clamp(0, most as i64) as u64;
    }

    /// Whether the chunk in `slot` owes as much as it may.
    pub(super) fn owes(&self, slot: u32) -> bool {
        self.debts[slot as usize] >= DEBT_MAX
    }

    /// The count in sixteenths.
    pub(super) fn count(&self, slot: u32) -> u64 {
        self.entries[slot as usize].value.saturating_sub(self.floor)
    }

    /// What orders chunks from cold to hot: the count, and among those at zero, the ones first that got there first.
    pub(super) fn key(&self, slot: u32) -> u64 {
        self.entries[slot as usize].value
    }

    /// Gives the chunk a key in place of a count, for orders that count nothing.
    pub(super) fn set_key(&mut self, slot: u32, key: u64) {
        self.entries[slot as usize].value = key;
    }

    pub(super) fn mark(&self, slot: u32) -> u32 {
        self.entries[slot as usize].mark
    }

    pub(super) fn set_mark(&mut self, slot: u32, mark: u32) {
        self.entries[slot as usize].mark = mark;
    }

    /// Subtracts from every count.
    pub(super) fn cool(&mut self, sixteenths: u64) {
        self.floor += sixteenths;
    }

    /// Forgets every count, and who has no mark.
    pub(super) fn reset(&mut self) {
        for slot in 0..self.table.len() {
            if self.table.block_in(Slot(slot)).is_none() {
                continue;
            }
            if self.entries[slot as usize].mark == 0 {
                self.forget(slot);
            } else {
                self.entries[slot as usize].value = 0;
            }
        }
        self.floor = 0;
    }

    pub(super) fn footprint_bytes(&self) -> u64 {
        self.table.footprint_bytes()
            + (self.entries.capacity() * size_of::<Entry>() + self.debts.capacity()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::super::COUNT;
    use super::*;

    #[test]
    fn cooling_subtracts_from_all_and_stops_at_zero() {
        let mut heat = Heat::new(4);
        let (a, _) = heat.remember(10, 0).unwrap();
        let (b, _) = heat.remember(11, 0).unwrap();
        heat.add(a, 3 * COUNT as i64, 999);
        heat.add(b, COUNT as i64, 999);
        heat.cool(2 * COUNT);
        // 3 - 2 = 1 and 1 - 2 = 0.
        assert_eq!((heat.count(a), heat.count(b)), (COUNT, 0));
        // From zero, not from -1.
        heat.add(b, COUNT as i64, 999);
        assert_eq!(heat.count(b), COUNT);
        // Never below zero, never above the most; what lacks is owed, an access at most: 16 - 28 - 28 x 16 / 128 = -15, then no more than -16.
        heat.add(b, -28, 999);
        assert_eq!((heat.count(b), heat.owes(b)), (0, false));
        heat.add(b, -100, 999);
        assert_eq!((heat.count(b), heat.owes(b)), (0, true));
        // It is paid first.
        heat.add(b, 19, 999);
        assert_eq!((heat.count(b), heat.owes(b)), (3, false));
        heat.add(a, 5_000, 999);
        assert_eq!(heat.count(a), 999);
        // Who is remembered later begins at the floor.
        let (c, known) = heat.remember(12, 0).unwrap();
        assert_eq!((heat.count(c), known), (0, false));
    }

    #[test]
    fn what_a_rush_has_brought_is_soon_paid_off() {
        let mut heat = Heat::new(4);
        let (a, _) = heat.remember(10, 0).unwrap();
        heat.add(a, 96 * COUNT as i64, 9_999);
        // 1,536 - 8 - 8 x 1,536 / 128 = 1,432: it loses a sixteenth and a half access each time; by steps of half an access it would take 192.
        heat.add(a, -8, 9_999);
        assert_eq!(heat.count(a), 1_432);
        let left = (1..192).find(|_| {
            heat.add(a, -8, 9_999);
            heat.owes(a)
        });
        assert!(left.is_some_and(|accesses| accesses < 50), "{left:?}");
        // Who saves more than it costs stays: two of each three cost half of what the third saves, and as much again for what it has, at most.
        let (b, _) = heat.remember(11, 0).unwrap();
        for _ in 0..500 {
            heat.add(b, 16, 9_999);
            heat.add(b, -4, 9_999);
            heat.add(b, -4, 9_999);
            assert!(!heat.owes(b));
        }
        assert!(heat.count(b) >= COUNT, "{}", heat.count(b));
    }

    #[test]
    fn who_sank_first_is_the_coldest() {
        let mut heat = Heat::new(4);
        let (a, _) = heat.remember(10, 0).unwrap();
        heat.add(a, 16, 999);
        heat.cool(40);
        let (b, _) = heat.remember(11, 0).unwrap();
        heat.add(b, 1, 999);
        heat.cool(40);
        assert_eq!((heat.count(a), heat.count(b)), (0, 0));
        assert!(heat.key(a) < heat.key(b));
    }

    #[test]
    fn memory_is_bounded_and_who_insists_gets_in() {
        let mut heat = Heat::new(2);
        let (a, _) = heat.remember(10, 0).unwrap();
        let (b, _) = heat.remember(11, 0).unwrap();
        heat.set_mark(a, 1);
        heat.add(b, 3, 999);
        // 3, 2, 1 sixteenths are taken away first; then it goes, and the marked one stays.
        for _ in 0..3 {
            assert_eq!(heat.remember(12, 0), None);
        }
        assert_eq!(heat.remember(12, 0), Some((b, false)));
        assert_eq!((heat.find(10), heat.find(11)), (Some(a), None));
        assert_eq!(heat.chunk(b), 12);
    }

    #[test]
    fn ages_pass_the_end_of_the_ticks() {
        let mut heat = Heat::new(1);
        let (a, _) = heat.remember(10, u32::MAX).unwrap();
        assert_eq!(heat.touch(a, 4), 5);
    }

    #[test]
    fn whoever_is_coldest_makes_room_and_leaves_no_debt_behind() {
        for hot in [0, 1] {
            let mut heat = Heat::new(2);
            let slots = [10, 11].map(|chunk| heat.remember(chunk, 0).unwrap().0);
            heat.add(slots[hot], 3, 999);
            heat.add(slots[1 - hot], -16, 999);
            assert!(heat.owes(slots[1 - hot]));
            assert_eq!(heat.remember(12, 0), Some((slots[1 - hot], false)));
            assert!(!heat.owes(slots[1 - hot]));
        }
    }

    #[test]
    fn who_is_remembered_now_is_no_colder_than_who_sank_before() {
        let mut heat = Heat::new(4);
        let (a, _) = heat.remember(10, 0).unwrap();
        heat.add(a, 16, 999);
        heat.cool(40);
        let (b, _) = heat.remember(11, 0).unwrap();
        assert!(heat.key(b) > heat.key(a));
    }

    #[test]
    fn whoever_begins_again_keeps_who_is_marked_and_nobodys_count() {
        let mut heat = Heat::new(4);
        let [(a, _), (b, _)] = [10, 11].map(|chunk| heat.remember(chunk, 0).unwrap());
        heat.set_mark(a, 1);
        [a, b].into_iter().for_each(|slot| heat.add(slot, 30, 999));
        heat.reset();
        assert_eq!((heat.find(10), heat.find(11), heat.count(a)), (Some(a), None, 0));
    }
}
