//! Where new data of a state goes: runs at places that were not used before, clustered in zones as the original's are.

use super::StateModel;
use super::fit::ZONE_BYTES;
use crate::generator::Scatter;

/// Bytes that sectors and residues are counted in.
const SECTOR: u64 = 512;
const RESIDUE: u64 = 4_096;

/// The free places of a range: slots of about a run's length. Zones come in an order that a seed chooses, and each is filled as far as
/// the original filled its own, in an order that the seed chooses too. No table: constant memory.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    first: u64,
    end: u64,
    slot: u64,
    zone: u64,
    zones: Scatter,
    within: Scatter,
    slots_per_zone: u64,
    filled_per_zone: u64,
    slots: u64,
    used: u64,
}

impl Placement {
    /// The places of a state.
    pub(crate) fn new(state: &StateModel, seed: u64) -> Placement {
        let slot = state.run_bytes.clamp(1, 1 << 40).next_multiple_of(RESIDUE);
        let zone = slot.max(ZONE_BYTES).min(state.bytes.max(slot));
        let zones = (state.bytes / zone).clamp(1, 1 << 40);
        let slots_per_zone = (zone / slot).max(1);
        let density = state.new_bytes as f64 / (state.zones.max(1) * slot) as f64;
        let filled_per_zone = (density.ceil() as u64).clamp(1, slots_per_zone);
        Placement {
            first: state.first_byte,
            end: state.first_byte + state.bytes,
            slot,
            zone,
            zones: Scatter::new(zones, seed),
            within: Scatter::new(slots_per_zone, seed),
            slots_per_zone,
            filled_per_zone,
            slots: zones * slots_per_zone,
            used: 0,
        }
    }

    /// The start of a slot by its order of use: first every zone's share, then what the zones have left.
    fn slot(&self, order: u64) -> u64 {
        let zones = self.slots / self.slots_per_zone;
        let first_round = zones * self.filled_per_zone;
        let (zone, within) = if order < first_round {
            (order / self.filled_per_zone, order % self.filled_per_zone)
        } else {
            let left = (self.slots_per_zone - self.filled_per_zone).max(1);
            let order = order - first_round;
            (order / left % zones, self.filled_per_zone + order % left)
        };
        let within = self.within.apply(within % self.slots_per_zone);
        self.first + self.zones.apply(zone) * self.zone + within * self.slot
    }

    /// A place for a new run that begins with `bytes` bytes at the given sector of a block. When all slots were used, they
    /// are used again in the same order.
    pub(crate) fn place(&mut self, bytes: u64, sector: u64) -> u64 {
        let at = align(self.slot(self.used % self.slots), sector);
        self.used += 1;
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
        align(self.slot((self.used + self.slots - 1 - back % used.max(1)) % self.slots), sector)
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

    fn state(first_byte: u64, bytes: u64, run_bytes: u64, zones: u64, new_bytes: u64) -> StateModel {
        StateModel { volume: 0, first_byte, bytes, run_bytes, zones, new_bytes }
    }

    #[test]
    fn places_differ_until_the_range_is_full() {
        // Four zones of 256 slots, of which a quarter is to be filled first.
        let mut placement = Placement::new(&state(1 << 20, 4 << 20, 4_096, 4, 1 << 20), 7);
        let places: Vec<u64> = (0..1_024).map(|_| placement.place(4_096, 0)).collect();
        assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), 1_024);
        assert!(places.iter().all(|at| ((1 << 20)..(5 << 20)).contains(at) && at % 4_096 == 0));
        assert!(places.windows(2).filter(|pair| pair[1] == pair[0] + 4_096).count() < 40);
        let zones = |places: &[u64]| places.iter().map(|at| at >> 20).collect::<BTreeSet<_>>().len();
        assert_eq!([zones(&places[..64]), zones(&places[..128]), zones(&places[..256])], [1, 2, 4]);
        assert_eq!((placement.earlier(0, 0), placement.earlier(1_023, 0)), (places[1_023], places[0]));
        assert_eq!(placement.place(4_096, 0), places[0]);
    }

    #[test]
    fn what_is_too_large_ends_with_the_range() {
        let mut placement = Placement::new(&state(0, 10_240, 1 << 30, 1, 10_240), 1);
        assert_eq!(placement.place(8_192, 3), 1_536);
        assert_eq!(placement.place(8_192, 7), 2_048);
        assert_eq!(placement.place(1 << 20, 0), 0);
    }
}
