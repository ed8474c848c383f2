//! Blocks that left and are remembered: one or two lists of them, found by block.
//!
//! Not a policy: who is remembered, and for how long, is the policy's to say. A ghost costs 28 bytes. Memory comes and goes with the
//! slots of residents, so that no call but `reserve` allocates.
//! Invariant: a ghost is in exactly one list; its tag names the list.

use crate::{Links, List, Slot, SlotTable};
use forebay_units::BlockIndex;
use std::collections::TryReserveError;

/// Ghosts in two lists, 0 and 1, each in the order of leaving, latest first.
#[derive(Debug)]
pub(crate) struct Ghosts {
    table: SlotTable,
    links: Links,
    lists: [List; 2],
}

impl Ghosts {
    pub(crate) fn new() -> Ghosts {
        // Whoever chooses blocks so that they collide here makes his own cache slower; the seed need not be secret.
        Ghosts { table: SlotTable::new(0), links: Links::new(), lists: [List::EMPTY; 2] }
    }

    /// Makes room for `ghosts` of them; never less than before.
    pub(crate) fn reserve(&mut self, ghosts: u32) -> Result<(), TryReserveError> {
        self.links.reserve(ghosts.max(self.table.len()))?;
        while self.table.len() < ghosts {
            self.table.grow()?;
        }
        Ok(())
    }

    /// Gives back room until that of `ghosts` is left, and forgets the ghosts that have none.
    pub(crate) fn release(&mut self, ghosts: u32, mut forgotten: impl FnMut(Slot)) {
        while self.table.len() > ghosts {
            let last = Slot(self.table.len() - 1);
            if self.table.block_in(last).is_some() {
                forgotten(last);
                self.forget(last);
            }
            self.table.shrink();
        }
        self.links.release(ghosts);
    }

    pub(crate) fn len(&self, list: usize) -> u32 {
        self.lists[list].len()
    }

    /// Where `block` is, if it is remembered.
    #[inline]
    pub(crate) fn find(&self, block: BlockIndex) -> Option<Slot> {
        self.table.find(block)
    }

    /// The list of the ghost in `place`.
    pub(crate) fn list_of(&self, place: Slot) -> usize {
        usize::from(self.links.tag(place))
    }

    /// The ghost of `list` that left first.
    pub(crate) fn oldest(&self, list: usize) -> Option<Slot> {
        self.lists[list].back()
    }

    /// Remembers `block`, which is no ghost, as the latest of `list`. Without room it is not remembered.
    pub(crate) fn push(&mut self, list: usize, block: BlockIndex) -> Option<Slot> {
        debug_assert!(self.table.find(block).is_none(), "block {} is a ghost already", block.0);
        let place = self.table.free()?;
        self.table.fill(place, block);
        self.links.push_front(&mut self.lists[list], place);
        self.links.set_tag(place, list as u8);
        Some(place)
    }

    /// Forgets the ghost in `place`.
    pub(crate) fn forget(&mut self, place: Slot) {
        let list = self.list_of(place);
        self.links.unlink(&mut self.lists[list], place);
        self.table.clear(place, u32::MAX);
    }

    /// Forgets the oldest of `list` while there are more than `most`, at most two: a smaller capacity must not make one call long.
    pub(crate) fn trim(&mut self, list: usize, most: u32) {
        for _ in 0..2 {
            if self.len(list) > most
                && let Some(oldest) = self.oldest(list)
            {
                self.forget(oldest);
            }
        }
    }

    pub(crate) fn footprint_bytes(&self) -> u64 {
        self.table.footprint_bytes() + self.links.footprint_bytes()
    }
}
