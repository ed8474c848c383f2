//! Where new data of a state goes: runs at places that were not used before, scattered over the state's range.

use crate::generator::Scatter;

/// Bytes that sectors and residues are counted in.
const SECTOR: u64 = 512;
const RESIDUE: u64 = 4_096;

/// The free places of a range: slots of about a run's length in an order that a seed chooses. No table: constant memory.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    first: u64,
    end: u64,
    slot: u64,
    scatter: Scatter,
    slots: u64,
    used: u64,
}

impl Placement {
    /// The range of `bytes` from `first` on, for runs of about `run` bytes.
    pub(crate) fn new(first: u64, bytes: u64, run: u64, seed: u64) -> Placement {
        let slot = run.clamp(1, 1 << 40).next_multiple_of(RESIDUE);
        let slots = (bytes / slot).clamp(1, 1 << 40);
        Placement { first, end: first + bytes, slot, scatter: Scatter::new(slots, seed), slots, used: 0 }
    }

    /// A place for a new run that begins with `bytes` bytes at the given sector of a block. When all slots were used, they
    /// are used again in the same order.
    pub(crate) fn place(&mut self, bytes: u64, sector: u64) -> u64 {
        let slot = self.scatter.apply(self.used % self.slots);
        self.used += 1;
        let at = align(self.first + slot * self.slot, sector);
        if at.saturating_add(bytes) <= self.end {
            return at;
        }
        // The last place of the range that fits, if any does.
        let last = self.end.saturating_sub(bytes).max(self.first);
        let aligned = align(last.saturating_sub(RESIDUE - SECTOR).max(self.first), sector);
        if aligned <= last { aligned } else { last / SECTOR * SECTOR }
    }

    /// A place that was handed out before, the `back`-th one ago; what the stack forgot may still be asked for.
    pub(crate) fn earlier(&self, back: u64, sector: u64) -> u64 {
        let used = self.used.min(self.slots);
        let slot = self.scatter.apply((self.used + self.slots - 1 - back % used.max(1)) % self.slots);
        align(self.first + slot * self.slot, sector)
    }

    /// How many places were handed out and not yet again.
    pub(crate) fn used(&self) -> u64 {
        self.used.min(self.slots)
    }
}

/// The first byte from `from` on that lies at `sector` of a block.
fn align(from: u64, sector: u64) -> u64 {
    let residue = sector * SECTOR;
    let base = from / RESIDUE * RESIDUE + residue;
    if base >= from { base } else { base + RESIDUE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn places_differ_until_the_range_is_full() {
        let mut placement = Placement::new(1 << 20, 1 << 20, 4_096, 7);
        let places: Vec<u64> = (0..256).map(|_| placement.place(4_096, 0)).collect();
        assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), 256);
        assert!(places.iter().all(|at| ((1 << 20)..(2 << 20)).contains(at) && at % 4_096 == 0));
        assert!(places.windows(2).filter(|pair| pair[1] == pair[0] + 4_096).count() < 10);
        assert_eq!((placement.earlier(0, 0), placement.earlier(255, 0)), (places[255], places[0]));
        assert_eq!(placement.place(4_096, 0), places[0]);
    }

    #[test]
    fn what_is_too_large_ends_with_the_range() {
        let mut placement = Placement::new(0, 10_240, 1 << 30, 1);
        assert_eq!(placement.place(8_192, 3), 1_536);
        assert_eq!(placement.place(8_192, 7), 2_048);
        assert_eq!(placement.place(1 << 20, 0), 0);
    }
}
