//! Where areas lie: at places of their ranges that a seed chooses, no two at the same while there is room.

use super::Model;
use super::history::extent_key;
use crate::generator::Scatter;
use foldhash::fast::FixedState;
use forebay_units::mix64;
use hashbrown::{HashMap, HashSet};

/// Places that are tried for a free one, before any will do.
const TRIES: u64 = 64;
/// What an area is shifted by within its place is a multiple of this.
const TURN_BYTES: u64 = 64 << 10;
/// Areas that were placed, at most; beyond, all are placed anew.
const PLACED_MAX: usize = 1 << 20;

/// A range of places.
#[derive(Clone, Debug)]
struct Range {
    volume: u32,
    /// Number of its first place in its volume.
    first: u64,
    places: u64,
    /// Its places in an order that the seed chooses, and how many were looked at.
    order: Scatter,
    looked: u64,
}

/// Places areas. Places are multiples of an area's size, so that areas do not overlap.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    area_bytes: u64,
    /// By state.
    ranges: Vec<Range>,
    /// By volume: all of it, for where a range is full, and its bytes.
    volumes: Vec<(Range, u64)>,
    /// The state of each area.
    states: Vec<u32>,
    /// First bytes of areas by number and play.
    placed: HashMap<(u32, u32), u64, FixedState>,
    taken: HashSet<u64, FixedState>,
    seed: u64,
}

impl Placement {
    pub(crate) fn new(model: &Model, seed: u64) -> Placement {
        let bytes = model.area_bytes;
        let range = |at: u64, volume: u32, from: u64, to: u64| {
            let (first, end) = (from / bytes, to.div_ceil(bytes).max(from / bytes + 1));
            let order = Scatter::new(end - first, mix64(seed ^ at));
            Range { volume, first, places: end - first, order, looked: 0 }
        };
        let ranges = (0..)
            .zip(&model.states)
            .map(|(at, state)| range(at, state.volume, state.first_byte, state.first_byte + state.bytes));
        let volumes = (0..)
            .zip(&model.volumes)
            .map(|(at, volume)| (range(u64::from(at) << 32, at, 0, volume.bytes), volume.bytes));
        let mut placement = Placement {
            area_bytes: bytes,
            ranges: ranges.collect(),
            volumes: volumes.collect(),
            states: model.areas.clone(),
            placed: HashMap::default(),
            taken: HashSet::default(),
            seed,
        };
        placement.place_first();
        placement
    }

    /// Places of the first play: those of a range in the order of the original's areas.
    fn place_first(&mut self) {
        let mut areas: Vec<Vec<u32>> = vec![Vec::new(); self.ranges.len()];
        (0u32..).zip(&self.states).for_each(|(area, &state)| areas[state as usize].push(area));
        for (state, areas) in areas.into_iter().enumerate() {
            let range = &mut self.ranges[state];
            let volume = range.volume;
            let free = areas.len().min(range.places.min(PLACED_MAX as u64) as usize);
            // A place that is cut off by the volume's end is for what was, too, if all places are used.
            let end = (self.volumes[volume as usize].1 / self.area_bytes).max(1);
            let whole = range.places.min(end.saturating_sub(range.first));
            let all = areas.len() as u64 > whole;
            let mut places: Vec<u64> = (0..range.places)
                .map(|at| range.first + range.order.apply(at))
                .filter(|&place| (all || place < end) && self.taken.insert(extent_key(volume, place)))
                .take(free)
                .collect();
            places.sort_unstable();
            // What has no place left gets one when it is used.
            for (area, place) in areas.into_iter().zip(places) {
                self.placed.insert((area, 0), place * self.area_bytes);
            }
        }
    }

    /// Volume and byte `sectors` sectors into an area. Each play of a window after its first has areas of its own, so that what was new is
    /// new again.
    #[inline]
    pub(crate) fn byte(&mut self, area: u32, play: u32, sectors: i64) -> (u32, u64) {
        let state = self.states[area as usize];
        let volume = self.ranges[state as usize].volume;
        let first = match self.placed.get(&(area, play)) {
            Some(&first) => first,
            None => self.place(area, play, state, volume),
        };
        // The last place of a volume may be smaller. Where in its place an area begins, the seed chooses.
        let room = self.area_bytes.min(self.volumes[volume as usize].1.saturating_sub(first)).max(1);
        let turn = mix64(self.seed ^ u64::from(area) << 32 ^ u64::from(play)) % (room / TURN_BYTES).max(1)
            * TURN_BYTES;
        let within = (turn as i64).wrapping_add(sectors.wrapping_mul(512)).rem_euclid(room as i64);
        (volume, first + within as u64)
    }

    #[cold]
    fn place(&mut self, area: u32, play: u32, state: u32, volume: u32) -> u64 {
        if self.placed.len() >= PLACED_MAX {
            self.placed.clear();
            self.taken.clear();
        }
        let (taken, bytes) = (&mut self.taken, self.area_bytes);
        let mut free = |range: &mut Range| {
            (0..range.places.min(TRIES)).find_map(|_| {
                let place = range.first + range.order.apply(range.looked % range.places);
                range.looked += 1;
                taken.insert(extent_key(volume, place)).then_some(place)
            })
        };
        let place =
            free(&mut self.ranges[state as usize]).or_else(|| free(&mut self.volumes[volume as usize].0));
        let place = place.unwrap_or_else(|| {
            let volume = &self.volumes[volume as usize].0;
            volume.first + mix64(self.seed ^ u64::from(area) << 32 ^ u64::from(play)) % volume.places
        });
        self.placed.insert((area, play), place * bytes);
        place * bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::empty_model;
    use super::*;
    use crate::model::{StateModel, VolumeModel};
    use std::collections::BTreeSet;

    const AREA: u64 = 1 << 20;

    /// Ranges of eight areas each in one volume.
    fn model(ranges: u64, areas: &[u32]) -> Model {
        let mut model = empty_model();
        model.area_bytes = AREA;
        model.volumes = vec![VolumeModel { bytes: ranges * 8 * AREA, weight: 1.0 }];
        model.states = (0..ranges)
            .map(|at| StateModel { volume: 0, first_byte: at * 8 * AREA, bytes: 8 * AREA })
            .collect();
        model.areas = areas.to_vec();
        model
    }

    #[test]
    fn areas_lie_apart_in_their_ranges_and_in_order() {
        let mut placement = Placement::new(&model(2, &[0, 0, 0, 1]), 5);
        let places: Vec<u64> = (0..4).map(|area| placement.byte(area, 0, 0).1 / AREA).collect();
        assert!(places.is_sorted() && places[2] < 8 && (8..16).contains(&places[3]), "{places:?}");
        // Another play of the same area lies elsewhere, and where a play lies stays as it is.
        assert_ne!(placement.byte(0, 1, 0).1 / AREA, places[0]);
        assert_eq!(placement.byte(0, 0, 0), placement.byte(0, 0, 0));
        // Within an area distances are kept, around its end.
        let (_, first) = placement.byte(1, 0, 0);
        let ahead = |sectors: i64| (placement.clone().byte(1, 0, sectors).1 + AREA - first) % AREA;
        assert_eq!([ahead(8), ahead(-8), ahead(2_047)], [4_096, AREA - 4_096, 2_047 * 512]);
    }

    #[test]
    fn a_full_range_spills_into_the_volume_and_a_full_volume_takes_any_place() {
        let mut placement = Placement::new(&model(2, &[0; 20]), 5);
        let places: Vec<u64> = (0..20).map(|area| placement.byte(area, 0, 0).1 / AREA).collect();
        assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), 16);
        assert!(places.iter().all(|place| *place < 16));
    }
}
