//! Where areas lie: at places of their ranges that a seed chooses, in the original's order; and where other plays of a window find room for what is new.
//!
//! An area is moved by multiples of [`LANES`] areas where its range has room for that, so that what lay on one disk of a striped group lies on one again: bursts wait
//! for disks. Lanes are as many as make that true of groups of 2, 3, 4, 5, 6, 8, 10, 12, 15 and 16 disks with units up to 4 MiB that are powers of two (ours).

use super::Model;
use super::log::extent_key;
use crate::generator::{Random, random};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use rand::Rng;
use std::collections::BTreeMap;

/// Places of areas go round so many lanes.
pub(crate) const LANES: u64 = 15;
/// The unit in which room for other plays is dealt out.
const GRAIN_BYTES: u64 = 64 << 10;
/// Grains of which is known whether they are used, by one entry of a map.
const GRAINS: u64 = 64;
/// What is new in another play lies a multiple of this away: what lay on one disk of a striped group lies on one again.
const STRIDE_GRAINS: u64 = LANES * 16;
/// By how many of them all areas of a volume may be moved: so many for every 4 GiB, at least and at most.
const SHIFTS: std::ops::RangeInclusive<u64> = 4..=64;
/// Places that are tried for room in one go.
const TRIES: u64 = 8_192;
/// Entries of volumes up to 4 TiB in all are held one by one, which takes 8 MiB; of larger ones only those that are used.
const DENSE_MAX: u64 = 1 << 20;
/// What is used from so many grains on in one piece is kept as a piece (ours, 256 MiB): a model that says so of much, over and over, takes neither more time nor memory than it
/// has steps.
const PIECE_GRAINS: u64 = 64 * GRAINS;
/// Copies that are remembered at most; beyond, all are made anew.
const COPIES_MAX: usize = 1 << 16;

#[derive(Clone, Copy, Debug)]
struct Area {
    volume: u32,
    first_byte: u64,
    /// Where room for a grain, and for more of them, is looked for first.
    tried: [u64; 2],
    /// For so many grains in a row there is none.
    no_room_for: u64,
}

/// Which grains are used: a bit each, by entries of [`GRAINS`] of them.
#[derive(Clone, Debug)]
enum Bits {
    /// By volume where its entries begin, and all of them.
    Dense(Vec<usize>, Vec<u64>),
    /// Those that have any, by volume and number.
    Sparse(HashMap<u64, u64, FixedState>),
}

impl Bits {
    fn new(volume_entries: &[u64]) -> Bits {
        let all = volume_entries.iter().fold(0u64, |sum, &entries| sum.saturating_add(entries));
        if all > DENSE_MAX {
            return Bits::Sparse(HashMap::default());
        }
        let mut next = 0;
        let first = |&entries: &u64| {
            next += entries as usize;
            next - entries as usize
        };
        Bits::Dense(volume_entries.iter().map(first).collect(), vec![0; all as usize])
    }

    #[inline]
    fn get(&self, volume: u32, entry: u64) -> u64 {
        match self {
            Bits::Dense(firsts, all) => all[firsts[volume as usize] + entry as usize],
            Bits::Sparse(some) => some.get(&extent_key(volume, entry)).copied().unwrap_or(0),
        }
    }

    #[inline]
    fn get_mut(&mut self, volume: u32, entry: u64) -> &mut u64 {
        match self {
            Bits::Dense(firsts, all) => &mut all[firsts[volume as usize] + entry as usize],
            Bits::Sparse(some) => some.entry(extent_key(volume, entry)).or_insert(0),
        }
    }
}

/// The entries that hold the grains from `first` up to `end`, each with the bits of those grains.
fn entries(first: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let bits = move |entry: u64| {
        let low = first.max(entry * GRAINS) - entry * GRAINS;
        let high = end.min((entry + 1) * GRAINS) - entry * GRAINS;
        (entry, (u64::MAX >> (GRAINS - (high - low))) << low)
    };
    (first / GRAINS..end.div_ceil(GRAINS)).filter(move |_| first < end).map(bits)
}

/// Which grains are used.
#[derive(Clone, Debug)]
struct Used {
    bits: Bits,
    /// Long pieces, by volume and first grain: the grain behind the last. Pieces neither overlap nor meet.
    pieces: BTreeMap<(u32, u64), u64>,
}

impl Used {
    fn new(volume_entries: &[u64]) -> Used {
        Used { bits: Bits::new(volume_entries), pieces: BTreeMap::new() }
    }

    /// Takes the grains from `first` up to `end`.
    fn take(&mut self, volume: u32, first: u64, end: u64) {
        if end.saturating_sub(first) < PIECE_GRAINS {
            entries(first, end).for_each(|(entry, bits)| *self.bits.get_mut(volume, entry) |= bits);
            return;
        }
        let (mut first, mut end) = (first, end);
        while let Some((&key, &other_end)) = self.pieces.range((volume, 0)..=(volume, end)).next_back()
            && other_end >= first
        {
            self.pieces.remove(&key);
            (first, end) = (first.min(key.1), end.max(other_end));
        }
        self.pieces.insert((volume, first), end);
    }

    /// Whether none of the grains from `first` up to `end` is taken.
    fn is_free(&self, volume: u32, first: u64, end: u64) -> bool {
        let before = self.pieces.range((volume, 0)..(volume, end)).next_back();
        before.is_none_or(|(_, &other_end)| other_end <= first)
            && entries(first, end).all(|(entry, bits)| self.bits.get(volume, entry) & bits == 0)
    }
}

/// Places areas.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    areas: Vec<Area>,
    /// By volume, in entries.
    volume_entries: Vec<u64>,
    used: Used,
    /// First byte, and how many grains from there on, by area, grain of it, and play.
    copies: HashMap<(u32, u32, u32), (u64, u64), FixedState>,
    /// By how many grains what is new was moved last, by area and play. What lay near lies near again.
    moved: HashMap<(u32, u32), i64, FixedState>,
}

impl Placement {
    pub(crate) fn new(model: &Model, seed: u64) -> Placement {
        let bytes = model.area_bytes;
        let volume_bytes = model.volumes.iter().map(|volume| volume.bytes);
        // Areas begin where the original's do but for a shift, so that one more may be needed.
        let volume_places: Vec<u64> =
            volume_bytes.map(|volume| volume.saturating_sub(1) / bytes + 2).collect();
        let shifts =
            |volume: u32| (model.volumes[volume as usize].bytes >> 32).clamp(*SHIFTS.start(), *SHIFTS.end());
        let mut random = random(seed);
        let mut areas = Vec::with_capacity(model.areas.len());
        for of_volume in model.areas.chunk_by(|a, b| volume_of(model, a.state) == volume_of(model, b.state)) {
            let volume = volume_of(model, of_volume[0].state);
            let bounds: Vec<Bounds> = of_volume
                .iter()
                .map(|area| {
                    let state = &model.states[area.state as usize];
                    let last = (state.first_byte + (state.bytes - 1)) / bytes + 1;
                    Bounds {
                        first: (state.first_byte / bytes).saturating_sub(1),
                        last: last.min(volume_places[volume as usize] - 1),
                        lane: u64::from(area.lane),
                    }
                })
                .collect();
            // All of a volume is moved together, too, as there is little choice of places where most are used.
            let shift = random.random_range(0..shifts(volume)) * STRIDE_GRAINS * GRAIN_BYTES;
            for place in places(&bounds, &mut random) {
                let place = place.min(volume_places[volume as usize] - 1);
                areas.push(Area {
                    volume,
                    first_byte: place.saturating_mul(bytes).saturating_add(shift),
                    tried: [0; 2],
                    no_room_for: u64::MAX,
                });
            }
        }
        let entries = |(volume, places): (u32, &u64)| {
            let shifted = shifts(volume) * STRIDE_GRAINS * GRAIN_BYTES;
            places.saturating_mul(bytes).saturating_add(shifted).div_ceil(GRAIN_BYTES * GRAINS)
        };
        let volume_entries: Vec<u64> = (0..).zip(&volume_places).map(entries).collect();
        Placement {
            areas,
            used: Used::new(&volume_entries),
            volume_entries,
            copies: HashMap::default(),
            moved: HashMap::default(),
        }
    }

    /// Bytes of a volume: no area ends beyond.
    pub(crate) fn volume_bytes(&self, volume: u32) -> u64 {
        self.volume_entries[volume as usize].saturating_mul(GRAINS * GRAIN_BYTES)
    }

    /// Volume and byte so many sectors into an area.
    #[inline]
    pub(crate) fn byte(&self, area: u32, sectors: u32) -> (u32, u64) {
        let area = &self.areas[area as usize];
        (area.volume, area.first_byte.saturating_add(u64::from(sectors) * 512))
    }

    /// Says that a range is used, so that no copy comes to lie there; nor does it where the volume has ended.
    pub(crate) fn use_up(&mut self, volume: u32, byte: u64, length: u64) {
        let end = self.volume_entries[volume as usize] * GRAINS;
        let last = (byte.saturating_add(length.max(1) - 1) / GRAIN_BYTES).min(end - 1);
        self.used.take(volume, byte / GRAIN_BYTES, last + 1);
    }

    /// The byte where another play of a window has what its first play has so many sectors into an area: in room of its own, as near as there is some for
    /// `run_bytes`, so that what was new is new again. In a volume without room it is where the first play has it.
    #[inline]
    pub(crate) fn copy(&mut self, area: u32, sectors: u32, run_bytes: u64, play: u32) -> u64 {
        let byte = u64::from(sectors) * 512;
        let grain = (byte / GRAIN_BYTES) as u32;
        let needed = (byte % GRAIN_BYTES + run_bytes).div_ceil(GRAIN_BYTES).max(1);
        let first = match self.copies.get(&(area, grain, play)) {
            Some(&(first, grains)) if grains >= needed => first,
            _ => self.find_room(area, grain, needed, play),
        };
        first + byte % GRAIN_BYTES
    }

    fn find_room(&mut self, area: u32, grain: u32, needed: u64, play: u32) -> u64 {
        if self.copies.len() >= COPIES_MAX {
            self.copies.clear();
        }
        if self.moved.len() >= COPIES_MAX {
            self.moved.clear();
        }
        let Area { volume, first_byte, tried, no_room_for } = self.areas[area as usize];
        let own = first_byte / GRAIN_BYTES + u64::from(grain);
        let end = self.volume_entries[volume as usize] * GRAINS;
        let free = |by: i64| {
            let at = own.checked_add_signed(by).filter(|&at| at + needed <= end)?;
            self.used.is_free(volume, at, at + needed).then_some((at, by))
        };
        let with_the_others = self.moved.get(&(area, play)).and_then(|&by| free(by));
        let kind = usize::from(needed > 1);
        let tries = if needed < no_room_for { tried[kind]..tried[kind] + TRIES } else { 0..0 };
        let found = with_the_others.or_else(|| {
            tries.clone().find_map(|at| {
                let away = ((at / 2 + 1) * STRIDE_GRAINS) as i64;
                free(if at % 2 == 0 { away } else { -away })
            })
        });
        let (first, by) = found.unwrap_or((own, 0));
        if by != 0 {
            self.use_up(volume, first * GRAIN_BYTES, needed * GRAIN_BYTES);
        }
        let known = &mut self.areas[area as usize];
        if by == 0 {
            known.no_room_for = known.no_room_for.min(needed);
        } else if with_the_others.is_none() {
            known.tried[kind] = (by.unsigned_abs() / STRIDE_GRAINS - 1) * 2 + u64::from(by < 0);
        }
        if by != 0 {
            self.moved.insert((area, play), by);
        }
        self.copies.insert((area, grain, play), (first * GRAIN_BYTES, needed));
        first * GRAIN_BYTES
    }
}

fn volume_of(model: &Model, state: u32) -> u32 {
    model.states[state as usize].volume
}

/// Where an area may lie.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    first: u64,
    last: u64,
    lane: u64,
}

/// Ascending places within their bounds and on their lanes, chosen at random where there is a choice; where there is none, the next place on the lane.
fn places(bounds: &[Bounds], random: &mut Random) -> Vec<u64> {
    // The last place of each that leaves room for those after it.
    let mut latest = vec![0; bounds.len()];
    let mut next = u64::MAX;
    for (latest, area) in latest.iter_mut().zip(bounds).rev() {
        let last = area.last.min(next.saturating_sub(1));
        let over = (last % LANES + LANES - area.lane) % LANES;
        *latest = last.saturating_sub(over);
        next = *latest;
    }
    let mut least = 0;
    let place = |(area, &latest): (&Bounds, &u64)| {
        let first = area.first.max(least);
        let first = first + (area.lane + LANES - first % LANES) % LANES;
        let choices = latest.saturating_sub(first) / LANES + 1;
        let place = first + random.random_range(0..choices) * LANES;
        least = place + 1;
        place
    };
    bounds.iter().zip(&latest).map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::empty_model;
    use super::*;
    use crate::model::{AreaModel, StateModel, VolumeModel};

    const AREA: u64 = 64 << 20;

    /// Ranges of 64 areas each in one volume, and areas of the given states and lanes.
    fn model(ranges: u64, areas: &[(u32, u8)]) -> Model {
        let mut model = empty_model();
        model.area_bytes = AREA;
        model.volumes = vec![VolumeModel { bytes: ranges * 64 * AREA, weight: 1.0 }];
        model.states = (0..ranges)
            .map(|at| StateModel { volume: 0, first_byte: at * 64 * AREA, bytes: 64 * AREA })
            .collect();
        model.areas = areas.iter().map(|&area| AreaModel::from(area)).collect();
        model
    }

    fn placed(model: &Model, seed: u64) -> Vec<u64> {
        let placement = Placement::new(model, seed);
        let places: Vec<u64> = (0..model.areas.len() as u32).map(|area| placement.byte(area, 0).1).collect();
        let shift = places[0] % AREA;
        assert!(
            shift.is_multiple_of(STRIDE_GRAINS * GRAIN_BYTES)
                && places.iter().all(|place| place % AREA == shift)
        );
        places.iter().map(|place| place / AREA).collect()
    }

    #[test]
    fn areas_lie_in_their_ranges_on_their_lanes_and_in_order() {
        let areas = [(0, 3), (0, 4), (0, 3), (1, 0)];
        let model = model(2, &areas);
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..20 {
            let places = placed(&model, seed);
            assert!(places.is_sorted_by(|a, b| a < b) && places[2] <= 64 && places[3] >= 63, "{places:?}");
            assert!(places.iter().zip(areas).all(|(place, (_, lane))| place % LANES == u64::from(lane)));
            seen.insert(places);
        }
        assert!(seen.len() > 5, "a seed chooses: {seen:?}");
        let placement = Placement::new(&model, 1);
        // Within an area distances are kept.
        assert_eq!(placement.byte(1, 8).1 - placement.byte(1, 0).1, 4_096);
    }

    #[test]
    fn a_full_range_leaves_no_choice_and_too_many_areas_still_have_places() {
        // Every place of the first range, and the one beyond that an area of it may lie at.
        let areas: Vec<(u32, u8)> = (0..65).map(|at| (0, (at % LANES) as u8)).collect();
        assert_eq!(placed(&model(1, &areas), 5), (0..65).collect::<Vec<_>>());
        let same: Vec<(u32, u8)> = vec![(0, 0); 20];
        let places = placed(&model(1, &same), 5);
        assert!(places.iter().all(|&place| place <= 65), "{places:?}");
    }

    #[test]
    fn what_is_taken_in_bits_and_in_pieces_is_taken() {
        const ALL: u64 = 20 * PIECE_GRAINS;
        for seed in 0..20 {
            let mut random = random(seed);
            let mut range = || {
                let first = random.random_range(0..ALL);
                let longest = [4, 200, PIECE_GRAINS - 1, 3 * PIECE_GRAINS][random.random_range(0..4)];
                (first, (first + random.random_range(1..=longest)).min(ALL))
            };
            let large = if seed % 2 == 0 { 0 } else { DENSE_MAX };
            let mut used = Used::new(&[ALL / GRAINS, large]);
            let mut naive = vec![false; ALL as usize];
            for _ in 0..20 {
                let (first, end) = range();
                used.take(0, first, end);
                naive[first as usize..end as usize].fill(true);
                for _ in 0..50 {
                    let (first, end) = range();
                    let is_free = !naive[first as usize..end as usize].contains(&true);
                    assert_eq!(used.is_free(0, first, end), is_free, "{first}..{end}");
                    assert!(used.is_free(1, first, end.min(large * GRAINS)), "another volume");
                }
            }
            let pieces: Vec<(u64, u64)> =
                used.pieces.iter().map(|(&(_, first), &end)| (first, end)).collect();
            assert!(pieces.windows(2).all(|pair| pair[0].1 < pair[1].0), "{pieces:?}");
        }
    }

    /// A forged model of some kilobytes may say of any number of steps that each is as long as a request may be.
    #[test]
    fn long_steps_cost_no_more_than_short_ones() {
        let mut used = Used::new(&[u64::MAX / GRAINS]);
        let length = forebay_trace::REQUEST_BYTES_MAX / GRAIN_BYTES;
        for step in 0..10_000 {
            let first = step * 3 * length / 2;
            assert!(used.is_free(0, first, first + length));
            used.take(0, first, first + length);
        }
        assert!(matches!(&used.bits, Bits::Sparse(some) if some.is_empty()) && used.pieces.len() == 10_000);
    }

    /// 64 KiB are used at the start of an area; what another play has there is strides away, where it is again when it is asked for again.
    #[test]
    fn copies_lie_strides_away_in_free_room() {
        let small = Placement::new(&model(1, &[(0, 1)]), 5);
        assert!(matches!(small.used.bits, Bits::Dense(..)));
        // As what is used of large volumes is held.
        let large = Placement { used: Used::new(&[DENSE_MAX + 1]), ..small.clone() };
        assert!(matches!(large.used.bits, Bits::Sparse(_)));
        copies_of(small);
        copies_of(large);
    }

    fn copies_of(mut placement: Placement) {
        let (volume, own) = placement.byte(0, 0);
        let stride = STRIDE_GRAINS * GRAIN_BYTES;
        // Above is used, below is free.
        placement.use_up(volume, own + stride, 1);
        let first = placement.copy(0, 1, 4_096, 1);
        assert_eq!(own + 512 - first, stride);
        assert_eq!(placement.copy(0, 9, 4_096, 1), first + 4_096);
        // The next play lies elsewhere, and so does a run that the room was not for.
        let [next, long] = [placement.copy(0, 1, 4_096, 2), placement.copy(0, 1, 100 << 10, 1)];
        assert_eq!((next - 512 - own) % stride, 0);
        assert!(next != first && long != first && long != next);
        // Without room it is where the first play has it.
        placement.use_up(volume, 0, placement.volume_bytes(0));
        assert_eq!(placement.copy(0, 1, 4_096, 3), own + 512);
    }
}
