//! The pages of an array's cache: which are there, which are dirty, who goes next.
//!
//! Clean pages in order of use, dirty ones in the order in which they became dirty; those being destaged in neither. It
//! knows no disks. Every operation is constant in expectation; nothing depends on the order of a hash table.

use foldhash::fast::FixedState;
use forebay_units::Nanos;
use hashbrown::HashMap;

const NONE: u32 = u32::MAX;
const CLEAN: usize = 0;
const DIRTY: usize = 1;

/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    Clean,
    Dirty,
    /// On its way to the disks; `again`: written meanwhile.
    Destaging {
        again: bool,
    },
}

#[derive(Clone, Debug)]
struct Slot {
    page: u64,
    state: Page,
    since: Nanos,
    before: u32,
    after: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Pages {
    capacity: u64,
    index: HashMap<u64, u32, FixedState>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// First and last of the clean (first: used longest ago) and of the dirty (first: dirty longest).
    ends: [(u32, u32); 2],
    dirty: u64,
}

impl Pages {
    pub(crate) fn new(capacity: u64) -> Pages {
        Pages {
            capacity,
            index: HashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            ends: [(NONE, NONE); 2],
            dirty: 0,
        }
    }

    /// Pages dirty or being destaged.
    pub(crate) fn dirty(&self) -> u64 {
        self.dirty
    }

    pub(crate) fn state(&self, page: u64) -> Option<Page> {
        self.index.get(&page).map(|&slot| self.slots[slot as usize].state)
    }

    pub(crate) fn is_dirty(&self, page: u64) -> bool {
        self.state(page).is_some_and(|state| state != Page::Clean)
    }

    /// The page that became dirty first and is not on its way, and when it did.
    pub(crate) fn first_dirty(&self) -> Option<(u64, Nanos)> {
        let first = self.ends[DIRTY].0;
        (first != NONE).then(|| (self.slots[first as usize].page, self.slots[first as usize].since))
    }

    /// When that page became dirty.
    pub(crate) fn oldest_dirty(&self) -> Option<Nanos> {
        self.first_dirty().map(|(_, since)| since)
    }

    fn unlink(&mut self, list: usize, slot: u32) {
        let (before, after) = (self.slots[slot as usize].before, self.slots[slot as usize].after);
        match before {
            NONE => self.ends[list].0 = after,
            before => self.slots[before as usize].after = after,
        }
        match after {
            NONE => self.ends[list].1 = before,
            after => self.slots[after as usize].before = before,
        }
    }

    fn push(&mut self, list: usize, slot: u32) {
        let last = std::mem::replace(&mut self.ends[list].1, slot);
        (self.slots[slot as usize].before, self.slots[slot as usize].after) = (last, NONE);
        match last {
            NONE => self.ends[list].0 = slot,
            last => self.slots[last as usize].after = slot,
        }
    }

    /// Whether a page is there; if so it was used now.
    pub(crate) fn touch(&mut self, page: u64) -> bool {
        let Some(&slot) = self.index.get(&page) else { return false };
        if self.slots[slot as usize].state == Page::Clean {
            self.unlink(CLEAN, slot);
            self.push(CLEAN, slot);
        }
        true
    }

    /// A place for a new page, if need be that of the clean one used longest ago; `None` where all are dirty.
    fn place(&mut self, page: u64, state: Page, since: Nanos) -> Option<u32> {
        if self.index.len() as u64 >= self.capacity {
            let oldest = self.ends[CLEAN].0;
            if oldest == NONE {
                return None;
            }
            self.remove(oldest);
        }
        let entry = Slot { page, state, since, before: NONE, after: NONE };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = entry;
                slot
            }
            None => {
                self.slots.push(entry);
                (self.slots.len() - 1) as u32
            }
        };
        self.index.insert(page, slot);
        Some(slot)
    }

    /// Takes a page that is clean or dirty and waits.
    fn remove(&mut self, slot: u32) {
        let clean = self.slots[slot as usize].state == Page::Clean;
        self.unlink(if clean { CLEAN } else { DIRTY }, slot);
        self.dirty -= u64::from(!clean);
        self.index.remove(&self.slots[slot as usize].page);
        self.free.push(slot);
    }

    /// A page was read from the disks.
    pub(crate) fn fill(&mut self, page: u64) {
        if self.index.contains_key(&page) {
            return;
        }
        if let Some(slot) = self.place(page, Page::Clean, Nanos::ZERO) {
            self.push(CLEAN, slot);
        }
    }

    /// A page is written at `now`; the caller made sure that one more may be dirty.
    pub(crate) fn write(&mut self, page: u64, now: Nanos) {
        match self.index.get(&page).copied() {
            None => {
                let slot = self.place(page, Page::Dirty, now).expect("not all pages may be dirty");
                self.push(DIRTY, slot);
                self.dirty += 1;
            }
            Some(slot) => match self.slots[slot as usize].state {
                Page::Clean => {
                    self.unlink(CLEAN, slot);
                    (self.slots[slot as usize].state, self.slots[slot as usize].since) = (Page::Dirty, now);
                    self.push(DIRTY, slot);
                    self.dirty += 1;
                }
                // It leaves once for all writes until then.
                Page::Dirty => {}
                Page::Destaging { .. } => {
                    self.slots[slot as usize].state = Page::Destaging { again: true };
                }
            },
        }
    }

    /// A dirty page goes on its way.
    pub(crate) fn destage(&mut self, page: u64) {
        let slot = self.index[&page];
        self.unlink(DIRTY, slot);
        self.slots[slot as usize].state = Page::Destaging { again: false };
    }

    /// It has arrived.
    pub(crate) fn destaged(&mut self, page: u64, now: Nanos) {
        let slot = self.index[&page];
        let entry = &mut self.slots[slot as usize];
        if entry.state == (Page::Destaging { again: true }) {
            (entry.state, entry.since) = (Page::Dirty, now);
            self.push(DIRTY, slot);
        } else {
            entry.state = Page::Clean;
            self.dirty -= 1;
            self.push(CLEAN, slot);
        }
    }

    /// A page is superseded; one that is on its way stays until it has arrived.
    pub(crate) fn forget(&mut self, page: u64) {
        if let Some(&slot) = self.index.get(&page)
            && !matches!(self.slots[slot as usize].state, Page::Destaging { .. })
        {
            self.remove(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_pages_leave_by_use_and_dirty_ones_stay() {
        let mut pages = Pages::new(3);
        pages.write(1, Nanos(5));
        pages.fill(2);
        pages.fill(3);
        assert!(pages.touch(2));
        pages.fill(4);
        assert_eq!((pages.state(3), pages.state(2), pages.dirty()), (None, Some(Page::Clean), 1));
        pages.destage(1);
        pages.write(1, Nanos(7));
        pages.destaged(1, Nanos(9));
        assert_eq!(pages.first_dirty(), Some((1, Nanos(9))));
        pages.destage(1);
        pages.destaged(1, Nanos(10));
        // 2 was used longest ago by now, then 4, then 1.
        pages.write(5, Nanos(11));
        pages.write(6, Nanos(12));
        assert_eq!((pages.state(2), pages.state(4), pages.state(1)), (None, None, Some(Page::Clean)));
        pages.forget(5);
        assert_eq!((pages.first_dirty(), pages.dirty()), (Some((6, Nanos(12))), 1));
        pages.write(7, Nanos(13));
        pages.write(1, Nanos(14));
        pages.fill(9);
        assert_eq!((pages.state(9), pages.dirty()), (None, 3));
    }
}
