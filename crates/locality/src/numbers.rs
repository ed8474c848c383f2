//! Small numbers for the blocks of a trace: who keeps something per block then needs 32 bits for it.
//!
//! Idea: blocks of a volume lie close together, so a table of *pages* of 64 neighbours is a fraction of a table of blocks and stays in the processor's
//! caches; the number of a block is that of its page, in order of appearance, and its place there. A bit says which places were
//! seen. Numbers are *not* dense, [`BlockNumbers::ranks`] makes them so once all are known. It is ours.
//! Invariant: a block keeps its number, and no two blocks share one.

use crate::table::KeyTable;
use crate::volume_block_key;
use forebay_units::prefetch;

/// A page has so many blocks, as many as a word has bits.
const PAGE_SHIFT: u32 = 6;
const PAGE_MASK: u64 = (1 << PAGE_SHIFT) - 1;
/// So many pages get a number; blocks of any other have one of their own.
const PAGES_MAX: usize = 1 << (31 - PAGE_SHIFT);
/// Numbers from here on are of blocks without a page.
const SINGLES: u32 = 1 << 31;

/// See the module. At most 4 bytes per block where they lie close together, 26 to 33 where each has a page for itself.
#[derive(Clone, Debug)]
pub struct BlockNumbers {
    pages: KeyTable<u32>,
    /// By page: which of its blocks were seen.
    seen: Vec<u64>,
    singles: KeyTable<u32>,
    pages_max: usize,
    paged: u64,
}

/// Where the page of a block is looked for first.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageHome(u32);

impl Default for BlockNumbers {
    fn default() -> BlockNumbers {
        BlockNumbers::new()
    }
}

impl BlockNumbers {
    /// No block has been seen.
    pub fn new() -> BlockNumbers {
        BlockNumbers::with_pages_max(PAGES_MAX)
    }

    fn with_pages_max(pages_max: usize) -> BlockNumbers {
        let table = KeyTable::new();
        BlockNumbers { pages: table.clone(), seen: Vec::new(), singles: table, pages_max, paged: 0 }
    }

    /// The number of `block` of the volume numbered `volume`; `None` if it has none yet and there is none left, which some 4 thousand million
    /// distinct blocks take, or 1.2 thousand million scattered ones.
    ///
    /// Blocks of different volumes share a number with the probability of a 64-bit collision, as of [`volume_block_key`].
    #[inline]
    pub fn number(&mut self, volume: u32, block: u64) -> Option<u32> {
        let page_key = volume_block_key(volume, block >> PAGE_SHIFT);
        let next = self.seen.len();
        let page = if next < self.pages_max {
            let page = self.pages.find_or_store(page_key, next as u32) as usize;
            if page == next {
                self.seen.push(0);
            }
            page
        } else if let Some(page) = self.pages.find(page_key) {
            page as usize
        } else {
            return self.single(volume_block_key(volume, block));
        };
        Some(self.number_in(page, block))
    }

    /// The number of `block`, which lies in the page with the number `page`.
    #[inline]
    fn number_in(&mut self, page: usize, block: u64) -> u32 {
        let place = (block & PAGE_MASK) as u32;
        let seen = &mut self.seen[page];
        self.paged += u64::from(*seen >> place & 1 == 0);
        *seen |= 1 << place;
        (page as u32) << PAGE_SHIFT | place
    }

    /// As [`BlockNumbers::number`], for who had [`BlockNumbers::fetch_key`] look at where the page of this block should stand: there it is found without
    /// a search. Right for any `near`.
    #[inline]
    pub fn number_near(&mut self, near: PageHome, volume: u32, block: u64) -> Option<u32> {
        match self.pages.find_at(near.0, volume_block_key(volume, block >> PAGE_SHIFT)) {
            Some(page) => Some(self.number_in(page as usize, block)),
            None => self.number(volume, block),
        }
    }

    /// Has fetched from memory what [`BlockNumbers::number_near`] reads first for this block. To be called well before it, and before [`BlockNumbers::fetch_page`].
    #[inline]
    pub fn fetch_key(&self, volume: u32, block: u64) -> PageHome {
        PageHome(self.pages.fetch(volume_block_key(volume, block >> PAGE_SHIFT)))
    }

    /// Has fetched what [`BlockNumbers::number_near`] reads last, unless another page stands where that of the block should.
    #[inline]
    pub fn fetch_page(&self, home: PageHome) {
        // Without a branch on whether it is the right one, which nobody could foresee.
        if let Some(seen) = self.seen.get(self.pages.stamp_at(home.0) as usize) {
            prefetch(seen);
        }
    }

    #[cold]
    fn single(&mut self, key: u64) -> Option<u32> {
        // The table holds fewer than 2^31 slots, a fifth of which stay empty.
        if self.singles.len() >= 1_200_000_000 {
            return self.singles.find(key).map(|at| SINGLES + at);
        }
        let next = self.singles.len() as u32;
        Some(SINGLES + self.singles.find_or_store(key, next))
    }

    /// Distinct blocks that were seen.
    pub fn distinct(&self) -> u64 {
        self.paged + self.singles.len() as u64
    }

    /// Dense numbers in place of those given so far, from 0. 4 bytes per page.
    ///
    /// # Panics
    /// If there are 2^32 or more.
    pub fn ranks(&self) -> Ranks<'_> {
        let mut before = Vec::with_capacity(self.seen.len());
        let mut sum = 0;
        for seen in &self.seen {
            before.push(sum);
            sum += seen.count_ones();
        }
        assert!(u32::try_from(self.distinct()).is_ok(), "{} blocks are too many to rank", self.distinct());
        Ranks { numbers: self, before, paged: sum }
    }
}

/// Dense numbers for blocks, by their number.
#[derive(Debug)]
pub struct Ranks<'a> {
    numbers: &'a BlockNumbers,
    /// By page: distinct blocks of all pages before.
    before: Vec<u32>,
    paged: u32,
}

impl Ranks<'_> {
    /// How many of the blocks that were seen have a smaller number than `number`, which was given to one of them.
    #[inline]
    pub fn rank(&self, number: u32) -> u32 {
        if number >= SINGLES {
            return self.paged + (number - SINGLES);
        }
        let (page, place) = ((number >> PAGE_SHIFT) as usize, number & PAGE_MASK as u32);
        let below = self.numbers.seen[page] & ((1 << place) - 1);
        self.before[page] + below.count_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_units::mix64;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn neighbours_are_numbered_by_hand() {
        // 130 lies in page 2 at place 2, 131 beside it; 7 in page 0; page 0 of volume 1 is another.
        let mut numbers = BlockNumbers::new();
        let asked = [(0, 130), (0, 7), (0, 131), (1, 7), (0, 130)];
        let found = asked.map(|(volume, block)| numbers.number(volume, block));
        assert_eq!(found, [2, 64 + 7, 3, 128 + 7, 2].map(Some));
        assert_eq!(numbers.distinct(), 4);
        let ranks = numbers.ranks();
        assert_eq!([2, 3, 64 + 7, 128 + 7].map(|number| ranks.rank(number)), [0, 1, 2, 3]);
    }

    #[test]
    fn every_block_keeps_a_number_of_its_own_whatever_lies_where() {
        // Dense, scattered over all of 64 bits, and both with few pages, so that most blocks are single ones.
        for (pages_max, spread) in [(PAGES_MAX, 5_000), (PAGES_MAX, u64::MAX), (10, 5_000), (10, u64::MAX)] {
            let mut numbers = BlockNumbers::with_pages_max(pages_max);
            let mut known: BTreeMap<(u32, u64), u32> = BTreeMap::new();
            let mut found_before = PageHome::default();
            for step in 0..30_000u64 {
                let random = mix64(step);
                // Not mixed as keys are, which would make keys of different volumes meet.
                let key = ((random >> 60) as u32 % 3, mix64(random % 4_000 + 1_000_000) % spread);
                // Whoever looks ahead may ask for blocks that nobody has seen; what is found there may be of before the table grew.
                let home = numbers.fetch_key(key.0, key.1);
                numbers.fetch_page(home);
                let near = [home, found_before, PageHome(random as u32)][step as usize % 3];
                found_before = home;
                let number = numbers.number_near(near, key.0, key.1).expect("there are enough");
                assert_eq!(*known.entry(key).or_insert(number), number);
                assert_eq!(numbers.number(key.0, key.1), Some(number));
            }
            let distinct: BTreeSet<u32> = known.values().copied().collect();
            assert_eq!((distinct.len(), numbers.distinct()), (known.len(), known.len() as u64));
            // Ranks are dense, and in the order of the numbers.
            let ranks = numbers.ranks();
            let found: Vec<u32> = distinct.iter().map(|number| ranks.rank(*number)).collect();
            assert_eq!(found, (0..known.len() as u32).collect::<Vec<_>>());
        }
    }
}
