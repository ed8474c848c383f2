//! Where requests start: areas, and what was used before.

use super::super::AreaModel;
use super::super::log::extent_key;
use super::super::placement::LANES;
use super::super::windows::{Use, Whereabouts};
use super::ranges::Ranges;
use foldhash::fast::FixedState;
use forebay_trace::Request;
use hashbrown::HashMap;

/// Bytes of an area.
pub(super) const AREA_BYTES: u64 = 64 << 20;
/// Areas that are told apart; beyond, volumes that have none get one.
const AREAS_MAX: usize = 1 << 17;
/// The areas of a volume begin somewhere below a multiple of this from its first used byte, so that what is aligned stays so.
const ALIGNED_BYTES: u64 = 1 << 20;
/// Blocks by which is known what was used, and how many times 64 of them; beyond, all is forgotten. So many fill a map of 2^20 entries, of 25 bytes each; with one more it would have twice as many.
const USED_BYTES: u64 = 4_096;
const USED_MAX: usize = 7 << 17;
/// Starts whose last use is known: so many at least, and twice as many at most.
const STARTS: usize = 1 << 19;

/// Which requests started last at some place, for as many places as fit, the ones used last.
#[derive(Clone, Debug, Default)]
struct Starts {
    /// Numbers of requests by their starts, once young has as many as there may be: of those before.
    young: HashMap<u64, u64, FixedState>,
    old: HashMap<u64, u64, FixedState>,
}

impl Starts {
    /// The number of the request that started at `start` last; it is `number` from now on.
    #[inline]
    fn replace(&mut self, start: u64, number: u64) -> Option<u64> {
        let before = match self.young.insert(start, number) {
            None if !self.old.is_empty() => self.old.get(&start).copied(),
            before => before,
        };
        if self.young.len() == STARTS {
            // The room of the older ones is used again.
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        before
    }
}

/// What is known of a volume.
#[derive(Clone, Debug, Default)]
struct OfVolume {
    /// How far into an area of its own byte 0 is, once a request has bytes.
    lag: Option<u64>,
    areas: Vec<u32>,
    /// The place of the last request with bytes.
    last: Option<(u32, u32)>,
}

/// Areas and what was used of them.
#[derive(Clone, Debug)]
pub(super) struct Places {
    starts: Starts,
    /// Requests with bytes.
    requests: u64,
    /// Blocks that were used, a bit each, by 64 of them; and the number of the last request that used one of these.
    used: HashMap<u64, (u64, u64), FixedState>,
    volumes: Vec<OfVolume>,
    ids: HashMap<(u32, u64), u32, FixedState>,
    /// Volume and number in it by area.
    areas: Vec<(u32, u64)>,
    /// The area looked up last.
    last: Option<((u32, u64), u32)>,
}

/// What is to be known of a request's place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) at: Whereabouts,
    /// How many requests ago what it touches was used last, if it was.
    pub(super) ago: Option<u64>,
}

impl Found {
    pub(super) fn is_again(&self) -> bool {
        matches!(self.at, Whereabouts::At { used: Use::Again(_), .. })
    }
}

impl Places {
    pub(super) fn new() -> Places {
        Places {
            starts: Starts::default(),
            requests: 0,
            used: HashMap::default(),
            volumes: Vec::new(),
            ids: HashMap::default(),
            areas: Vec::new(),
            last: None,
        }
    }

    /// Requests with bytes so far.
    pub(super) fn requests(&self) -> u64 {
        self.requests
    }

    /// The place of the next request, and what is known of it; it is used then.
    pub(super) fn find(&mut self, request: &Request) -> Found {
        let volume = request.volume.0;
        if request.length == 0 {
            let (area, sectors) = self.of_last(volume);
            return Found { at: Whereabouts::At { area, sectors, used: Use::New }, ago: None };
        }
        let (area, sectors) = self.area(volume, request.offset);
        let now = self.requests;
        self.requests += 1;
        let inside = self.use_up(request).map(|before| now - before);
        let again = self.starts.replace(extent_key(volume, request.offset), now).map(|before| now - before);
        let used = match (again, inside) {
            (Some(ago), _) => Use::Again(ago),
            (None, Some(ago)) => Use::Inside(ago),
            (None, None) => Use::New,
        };
        Found { at: Whereabouts::At { area, sectors, used }, ago: again.or(inside) }
    }

    fn of_volume(&mut self, volume: u32) -> &mut OfVolume {
        let at = volume as usize;
        if at >= self.volumes.len() {
            self.volumes.resize(at + 1, OfVolume::default());
        }
        &mut self.volumes[at]
    }

    /// The place of what has no bytes: that of the last request that has. An address of its own, as a flush has 0, would tell where areas begin.
    fn of_last(&mut self, volume: u32) -> (u32, u32) {
        self.of_volume(volume).last.unwrap_or_else(|| (self.numbered((volume, 0)), 0))
    }

    /// The area of a byte, and how far into it that lies.
    fn area(&mut self, volume: u32, offset: u64) -> (u32, u32) {
        let lag = *self.of_volume(volume).lag.get_or_insert_with(|| {
            (AREA_BYTES - offset / ALIGNED_BYTES * ALIGNED_BYTES % AREA_BYTES) % AREA_BYTES
        });
        // The sum may not fit in 64 bits; its parts do.
        let within = offset % AREA_BYTES + lag;
        let place = offset / AREA_BYTES + within / AREA_BYTES;
        let found = (self.numbered((volume, place)), (within % AREA_BYTES / 512) as u32);
        self.of_volume(volume).last = Some(found);
        found
    }

    /// The area of a volume and number in it.
    fn numbered(&mut self, key: (u32, u64)) -> u32 {
        if let Some((last, area)) = self.last
            && last == key
        {
            return area;
        }
        let known = self.ids.get(&key).copied();
        let next = self.areas.len();
        let of_volume = &mut self.of_volume(key.0).areas;
        let area = match known {
            Some(area) => area,
            // More areas than can be told apart share those of their volume, which has one at least.
            None if next >= AREAS_MAX && !of_volume.is_empty() => {
                of_volume[(key.1 % of_volume.len() as u64) as usize]
            }
            None => {
                of_volume.push(next as u32);
                self.areas.push(key);
                self.ids.insert(key, next as u32);
                next as u32
            }
        };
        self.last = Some((key, area));
        area
    }

    /// Volume and byte so many sectors into an area: what [`Places::find`] was given.
    pub(super) fn byte(&self, area: u32, sectors: u32) -> (u32, u64) {
        (self.areas[area as usize].0, self.byte_within(area as usize, u64::from(sectors) * 512))
    }

    /// The byte of its volume that lies so many bytes into an area; the volume's first or last where that lies before or behind it.
    fn byte_within(&self, area: usize, bytes: u64) -> u64 {
        let (volume, place) = self.areas[area];
        let lag = self.volumes[volume as usize].lag.unwrap_or(0);
        let byte = u128::from(place) * u128::from(AREA_BYTES) + u128::from(bytes);
        byte.saturating_sub(lag.into()).try_into().unwrap_or(u64::MAX)
    }

    /// The number of an earlier request that used what lies about the last block of this one, if that was used before; all its blocks are used now.
    fn use_up(&mut self, request: &Request) -> Option<u64> {
        if self.used.len() >= USED_MAX {
            self.used.clear();
        }
        let start = extent_key(request.volume.0, request.offset);
        let (first, last) = (start / USED_BYTES, start.saturating_add(request.length - 1) / USED_BYTES);
        // What goes on along a stream may share its first block with it.
        let mut before = (0, 0);
        let mut at = first;
        while at <= last {
            let until = (at | 63).min(last);
            let used = self.used.entry(at / 64).or_insert((0, 0));
            before = *used;
            used.0 |= (u64::MAX >> (63 - (until - at))) << (at & 63);
            used.1 = self.requests - 1;
            at = until + 1;
        }
        (before.0 >> (last & 63) & 1 == 1).then_some(before.1)
    }

    /// Areas in the order of their addresses, which tells how they lie to each other and no more; and their new numbers.
    pub(super) fn models(&self, ranges: &Ranges) -> (Vec<AreaModel>, Vec<u32>) {
        let mut order: Vec<usize> = (0..self.areas.len()).collect();
        order.sort_unstable_by_key(|&area| self.areas[area]);
        let mut numbers = vec![0; order.len()];
        (0u32..).zip(&order).for_each(|(number, &area)| numbers[area] = number);
        let model = |&area: &usize| {
            let (volume, place) = self.areas[area];
            let from = self.byte_within(area, 0);
            AreaModel { state: ranges.state_within(volume, from, AREA_BYTES), lane: (place % LANES) as u8 }
        };
        (order.iter().map(model).collect(), numbers)
    }
}
