//! Where steps start, told as shortly as what was told before allows, and only those uses that do not follow from it.

use super::super::placement::LANES;
use super::super::windows::{Use, Whereabouts};
use super::super::{AreaModel, StateModel};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

/// Requests whose ends one may go on from, and how many different distances to steps like it are remembered.
const HEADS: usize = 16;
const DISTANCES: usize = 16;
/// Earlier steps at the same place that are looked at for the longest stretch that comes again.
const OCCURRENCES: usize = 24;
/// Blocks by which is known what was used, as while fitting.
const USED_BYTES: u64 = 4_096;
/// How much further an earlier step may be than one of the last distances says, to be told by that.
const MORE_MAX: i64 = 200;
/// Longer requests count as so long.
const LENGTH_MAX: u64 = 64 << 20;

/// Where a step starts, on paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Where {
    /// `.`: where the step before it in its window ended.
    On,
    /// `=2`: like the step as many steps before it as one of the last distances says; 0 is the last one.
    Like(usize),
    /// `=2+5`: like the step so many more steps before it, or fewer. In place of that distance this is the last one then.
    Near(usize, i32),
    /// `-7`: where the step so many steps before it started, over all windows. That is the last distance then.
    Back(usize),
    /// `1+8`: so many units behind where the latest request but so many ended, or before it. One that was gone on from is forgotten.
    Behind(usize, i64),
    /// `7@8`: in an area, so many units from its start.
    At(u32, u32),
}

/// Whether what a step touches was used before, on paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Told {
    /// As follows from what was told before.
    Follows,
    /// `n`: it was not used.
    New,
    /// `u`: it was; of what starts where the step before it ended.
    Used,
    /// `a9`: an earlier request started there, so many requests ago.
    Again(u64),
    /// `i9`: its last block was used about so many requests ago.
    Inside(u64),
}

/// A place of a step on paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place(Where, Told);

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Where::On => out.write_str("."),
            Where::Like(distance) => write!(out, "={distance}"),
            Where::Near(distance, more) => write!(out, "={distance}{more:+}"),
            Where::Back(steps) => write!(out, "-{steps}"),
            Where::Behind(head, units) => write!(out, "{head}{units:+}"),
            Where::At(area, units) => write!(out, "{area}@{units}"),
        }?;
        match self.1 {
            Told::Follows => Ok(()),
            Told::New => out.write_str("n"),
            Told::Used => out.write_str("u"),
            Told::Again(ago) => write!(out, "a{ago}"),
            Told::Inside(ago) => write!(out, "i{ago}"),
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let refused = || {
            format!(
                "`{text}`: expected `.`, `=distance`, `=distance+more`, `=distance-fewer`, `-steps`, `head+units`, `head-units` or `area@units`, and perhaps `n`, `u`, `aAGO` or `iAGO`"
            )
        };
        fn parsed<T: FromStr>(digits: &str) -> Option<T> {
            digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
        }
        let place = || {
            let split = text.find(|c: char| c.is_ascii_lowercase()).unwrap_or(text.len());
            let (at, told) = text.split_at(split);
            let ago = || parsed(&told[1..]).filter(|&ago: &u64| ago > 0);
            let told = match told.as_bytes() {
                [] => Told::Follows,
                b"n" => Told::New,
                b"u" => Told::Used,
                [b'a', ..] => Told::Again(ago()?),
                [b'i', ..] => Told::Inside(ago()?),
                _ => return None,
            };
            let at = if at == "." {
                Where::On
            } else if let Some(distance) = at.strip_prefix('=') {
                match distance.find(['+', '-']) {
                    None => Where::Like(parsed(distance)?),
                    Some(sign) => {
                        let (distance, more) = distance.split_at(sign);
                        let number: i32 = parsed(&more[1..])?;
                        Where::Near(parsed(distance)?, if more.starts_with('-') { -number } else { number })
                    }
                }
            } else if let Some(steps) = at.strip_prefix('-') {
                Where::Back(parsed(steps)?)
            } else if let Some((area, units)) = at.split_once('@') {
                Where::At(parsed(area)?, parsed(units)?)
            } else {
                let (head, units) = at.split_at(at.find(['+', '-'])?);
                let number: i64 = parsed(&units[1..])?;
                Where::Behind(parsed(head)?, if units.starts_with('-') { -number } else { number })
            };
            Some(Place(at, told))
        };
        place().ok_or_else(refused)
    }
}

/// An area, and how many bytes into it.
type Start = (u32, u64);

/// A distance that a step told: so many steps, which are remembered in place of one that was.
#[derive(Clone, Copy, Debug)]
struct Distance {
    steps: usize,
    instead_of: Option<usize>,
}

/// Which areas follow on the one before them, by what a model says: next to each other, and on neighbouring lanes. Areas with as many others between them as there are lanes pass for neighbours; that
/// makes what is told longer, and not wrong.
pub(super) fn neighbours(model_areas: &[AreaModel], states: &[StateModel]) -> Vec<bool> {
    let volume = |area: &AreaModel| states.get(area.state as usize).map(|state| state.volume);
    let follows = |pair: &[AreaModel]| {
        let [one, next] = [&pair[0], &pair[1]];
        volume(one) == volume(next) && u64::from(next.lane) == (u64::from(one.lane) + 1) % LANES
    };
    model_areas.windows(2).map(follows).collect()
}

/// What is known of the steps so far, in the order of all windows; the same to who writes and who reads.
#[derive(Debug)]
pub(super) struct Known {
    /// Bytes of a unit, and of an area.
    unit: u64,
    area_bytes: u64,
    /// Whether an area is followed by the next one.
    is_followed: Vec<bool>,
    /// Where steps started, and which step before each started at the same place.
    starts: Vec<(Start, Option<u32>)>,
    last_at: HashMap<Start, u32, FixedState>,
    /// Where the last requests ended, the latest first.
    heads: VecDeque<Start>,
    /// The last distances to steps like one, the latest first.
    distances: VecDeque<usize>,
    /// Requests with bytes before the next step.
    position: u64,
    /// The last request with bytes that started somewhere.
    used_at: HashMap<Start, u64, FixedState>,
    /// By area and number of 64 blocks in it: blocks that were used, a bit each, and by which request last.
    used: HashMap<(u32, u64), (u64, u64), FixedState>,
}

impl Known {
    /// Nothing yet, of places that are multiples of so many sectors in areas of so many bytes, some of which are followed by the next one.
    pub(super) fn new(unit_sectors: u32, area_bytes: u64, is_followed: Vec<bool>) -> Known {
        Known {
            unit: u64::from(unit_sectors.max(1)) * 512,
            area_bytes: area_bytes.max(1),
            is_followed,
            starts: Vec::new(),
            last_at: HashMap::default(),
            heads: VecDeque::new(),
            distances: VecDeque::new(),
            position: 0,
            used_at: HashMap::default(),
            used: HashMap::default(),
        }
    }

    /// Requests with bytes before the next step.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// A window begins, before which there were so many requests with bytes.
    pub(super) fn begin(&mut self, position: u64) {
        self.position = position;
    }

    /// Where a step starts that goes on from the one before it, or at a place.
    fn start(&self, at: Whereabouts) -> Start {
        match at {
            Whereabouts::On { .. } => self.heads.front().copied().unwrap_or_default(),
            Whereabouts::At { area, sectors, .. } => (area, u64::from(sectors) * 512),
        }
    }

    /// So many bytes from a start on; in the area that this is in, if that is known.
    fn after(&self, (area, byte): Start, bytes: u64) -> Start {
        let (mut area, mut byte) = (area, byte.saturating_add(bytes));
        while byte >= self.area_bytes && self.is_followed.get(area as usize) == Some(&true) {
            (area, byte) = (area + 1, byte - self.area_bytes);
        }
        (area, byte)
    }

    fn back(&self, steps: usize) -> Option<Start> {
        Some(self.starts[self.starts.len().checked_sub(steps)?..].first()?.0)
    }

    /// What is known then of a step of `length` bytes that starts there: what was used before, as far as that was told.
    fn step(&mut self, start: Start, length: u64, distance: Option<Distance>) -> Use {
        let number = self.starts.len() as u32;
        self.starts.push((start, self.last_at.insert(start, number)));
        if let Some(Distance { steps, instead_of }) = distance {
            if let Some(at) = instead_of {
                self.distances.remove(at);
            }
            self.distances.retain(|&known| known != steps);
            self.distances.push_front(steps);
            self.distances.truncate(DISTANCES);
        }
        if let Some(head) = self.heads.iter().position(|&head| head == start) {
            self.heads.remove(head);
        }
        self.heads.push_front(self.after(start, length));
        self.heads.truncate(HEADS);
        if length == 0 {
            return Use::New;
        }
        let now = self.position;
        self.position = now.saturating_add(1);
        let (mut before, mut last) = ((0, 0), 0);
        let (mut at, mut left) = (start, length.min(LENGTH_MAX));
        while left > 0 {
            // Blocks of one entry; an area is whole entries.
            let entry = at.1 / USED_BYTES / 64;
            let bytes = ((entry + 1).saturating_mul(64 * USED_BYTES).saturating_sub(at.1)).clamp(1, left);
            let first = (at.1 / USED_BYTES) & 63;
            last = (at.1.saturating_add(bytes - 1) / USED_BYTES) & 63;
            let used = self.used.entry((at.0, entry)).or_insert((0, 0));
            before = *used;
            used.0 |= (u64::MAX >> (63 - (last - first))) << first;
            used.1 = now;
            (at, left) = (self.after(at, bytes), left - bytes);
        }
        let ago = |before: u64| now.checked_sub(before).filter(|&ago| ago > 0);
        let inside = if before.0 >> last & 1 == 1 { ago(before.1) } else { None };
        match (self.used_at.insert(start, now).and_then(ago), inside) {
            (Some(ago), _) => Use::Again(ago),
            (None, Some(ago)) => Use::Inside(ago),
            (None, None) => Use::New,
        }
    }

    /// The place of the first of `steps` on paper, which are the rest of its window: where each is, and how many bytes it has.
    pub(super) fn write(&mut self, steps: &[(Whereabouts, u64)]) -> Place {
        let (at, length) = steps[0];
        let start = self.start(at);
        let (place, distance) = match at {
            Whereabouts::On { .. } => (Where::On, None),
            Whereabouts::At { area, .. } => self.shortest(start, area, steps),
        };
        let follows = self.step(start, length, distance);
        let told = match at {
            Whereabouts::On { is_new } => match (is_new, follows == Use::New) {
                (new, expected) if new == expected => Told::Follows,
                (true, _) => Told::New,
                (false, _) => Told::Used,
            },
            Whereabouts::At { used, .. } if used == follows => Told::Follows,
            Whereabouts::At { used: Use::New, .. } => Told::New,
            Whereabouts::At { used: Use::Again(ago), .. } => Told::Again(ago),
            Whereabouts::At { used: Use::Inside(ago), .. } => Told::Inside(ago),
        };
        Place(place, told)
    }

    /// The shortest way to tell the place in an area of the first of `steps`, and the distance to a step like it.
    fn shortest(&self, start: Start, area: u32, steps: &[(Whereabouts, u64)]) -> (Where, Option<Distance>) {
        let number = self.starts.len();
        let is_like = |&distance: &usize| self.back(distance) == Some(start);
        if let Some((at, &distance)) =
            self.distances.iter().enumerate().find(|(_, distance)| is_like(distance))
        {
            return (Where::Like(at), Some(Distance { steps: distance, instead_of: None }));
        }
        // As few digits as may be.
        let digits = |units: i64| units.unsigned_abs().checked_ilog10().unwrap_or(0);
        let heads = self.heads.iter().enumerate().filter(|(_, head)| head.0 == area);
        let behind = heads.filter_map(|(at, head)| {
            let bytes = start.1 as i64 - i64::try_from(head.1).ok()?;
            (bytes % self.unit as i64 == 0).then(|| (at, bytes / self.unit as i64))
        });
        let behind = behind.min_by_key(|&(at, units)| (digits(units) + digits(at as i64), at));
        let mut starts: Option<Vec<Start>> = None;
        let mut longest: Option<(usize, usize)> = None;
        let mut occurrence = self.last_at.get(&start).copied();
        for _ in 0..OCCURRENCES {
            let Some(at) = occurrence else { break };
            let distance = number - at as usize;
            let starts = starts.get_or_insert_with(|| self.starts_of(steps));
            let like = self.starts[at as usize..].iter().zip(starts).take_while(|(a, b)| a.0 == **b).count();
            if longest.is_none_or(|longest| like > longest.0) {
                longest = Some((like, distance));
            }
            occurrence = self.starts[at as usize].1;
        }
        match (longest, behind) {
            (Some((like, distance)), behind) if like > 1 || behind.is_none_or(|behind| behind.1 != 0) => {
                self.distance(distance)
            }
            (_, behind) => {
                let at = start.1 / self.unit;
                let digits_at = digits(area.into()) + digits(at as i64);
                match behind {
                    Some((head, units)) if digits(units) + digits(head as i64) <= digits_at => {
                        (Where::Behind(head, units), None)
                    }
                    _ => (Where::At(area, at as u32), None),
                }
            }
        }
    }

    /// The shortest way to tell a distance that is none of the last ones.
    fn distance(&self, steps: usize) -> (Where, Option<Distance>) {
        let more = |&known: &usize| steps as i64 - known as i64;
        let near = self.distances.iter().enumerate().min_by_key(|(_, known)| more(known).abs());
        match near.map(|(at, known)| (at, more(known))) {
            Some((at, more)) if more.abs() <= MORE_MAX => {
                (Where::Near(at, more as i32), Some(Distance { steps, instead_of: Some(at) }))
            }
            _ => (Where::Back(steps), Some(Distance { steps, instead_of: None })),
        }
    }

    /// Where steps start, the first of which is the next one.
    fn starts_of(&self, steps: &[(Whereabouts, u64)]) -> Vec<Start> {
        let mut end = None;
        let start = |&(at, length): &(Whereabouts, u64)| {
            let start = match (at, end) {
                (Whereabouts::On { .. }, Some(end)) => end,
                _ => self.start(at),
            };
            end = Some(self.after(start, length));
            start
        };
        steps.iter().map(start).collect()
    }

    /// The place of the next step, that has `length` bytes.
    ///
    /// # Errors
    /// What is not there.
    pub(super) fn read(&mut self, place: Place, length: u64) -> Result<Whereabouts, String> {
        let Place(at, told) = place;
        let missing = |what: &str| format!("`{place}`: there is no such {what}");
        let (start, distance) = match at {
            Where::On => (self.heads.front().copied().ok_or_else(|| missing("step before it"))?, None),
            Where::Like(at) => {
                let distance = self.distances.get(at).copied().ok_or_else(|| missing("distance"))?;
                let start = self.back(distance).ok_or_else(|| missing("step"))?;
                (start, Some(Distance { steps: distance, instead_of: None }))
            }
            Where::Near(at, more) => {
                let distance = self.distances.get(at).ok_or_else(|| missing("distance"))?;
                let steps = distance.checked_add_signed(more as isize).ok_or_else(|| missing("step"))?;
                let start = self.back(steps).ok_or_else(|| missing("step"))?;
                (start, Some(Distance { steps, instead_of: Some(at) }))
            }
            Where::Back(steps) => {
                let start = self.back(steps).ok_or_else(|| missing("step"))?;
                (start, Some(Distance { steps, instead_of: None }))
            }
            Where::Behind(head, units) => {
                let (area, byte) = self.heads.get(head).copied().ok_or_else(|| missing("request"))?;
                let start =
                    units.checked_mul(self.unit as i64).and_then(|bytes| byte.checked_add_signed(bytes));
                ((area, start.ok_or_else(|| missing("place"))?), None)
            }
            Where::At(area, units) => ((area, u64::from(units).saturating_mul(self.unit)), None),
        };
        let follows = self.step(start, length, distance);
        if at == Where::On {
            let is_new = match told {
                Told::Follows => follows == Use::New,
                Told::New => true,
                Told::Used => false,
                Told::Again(_) | Told::Inside(_) => return Err(missing("use of a step that goes on")),
            };
            return Ok(Whereabouts::On { is_new });
        }
        let used = match told {
            Told::Follows => follows,
            Told::New => Use::New,
            Told::Used => return Err(missing("use of a step that does not go on")),
            Told::Again(ago) => Use::Again(ago),
            Told::Inside(ago) => Use::Inside(ago),
        };
        let sectors = u32::try_from(start.1 / 512).map_err(|_| missing("place"))?;
        Ok(Whereabouts::At { area: start.0, sectors, used })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_units::mix64;
    use rand::Rng;

    #[test]
    fn places_are_read_as_they_are_written() {
        for text in
            [".", ".n", ".u", "=0", "=15n", "=3+4", "=3-17a2", "-7a9", "0+0", "3-12i70", "12@345", "12@345n"]
        {
            assert_eq!(Place::from_str(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "x",
            "=",
            "-",
            "-+7",
            "3",
            "3+",
            "3*4",
            "@3",
            "3@",
            ".a",
            ".a0",
            "=1n1",
            "=1x",
            "=1+",
            "=1+-2",
            "1@2i+3",
            "=99999999999999999999",
        ] {
            let message = Place::from_str(text).unwrap_err();
            assert!(message.starts_with(&format!("`{text}`: expected `.`, ")), "{message}");
        }
    }

    /// A distance is told once; then what is like the step as many steps before it is told by the distance.
    #[test]
    fn what_comes_again_is_told_by_its_distance() {
        let mut known = Known::new(8, 64 << 20, Vec::new());
        let at = |sectors, used| Whereabouts::At { area: 3, sectors, used };
        let page = 4_096;
        let mut told = |at: Whereabouts| known.write(&[(at, page)]).to_string();
        assert_eq!(told(at(80, Use::New)), "3@10");
        assert_eq!(told(at(800, Use::New)), "0+89");
        // On from the first one; then from the other one, which is the latest but one.
        assert_eq!(told(at(88, Use::New)), "1+0");
        assert_eq!(told(Whereabouts::On { is_new: true }), ".");
        assert_eq!(told(at(80, Use::Again(4))), "-4");
        assert_eq!(told(at(800, Use::Again(4))), "=0");
        assert_eq!(told(at(88, Use::Again(4))), "=0");
        // What lies behind it was used four requests ago; to say otherwise is to be told.
        assert_eq!(told(Whereabouts::On { is_new: false }), ".");
        assert_eq!(told(Whereabouts::On { is_new: false }), ".u");
        assert_eq!(told(at(800, Use::Again(77))), "=0a77");
        assert_eq!(told(at(800, Use::New)), "=0-3n");
    }

    /// Steps of a few streams, of places that come again one by one and in stretches, and of new ones.
    fn steps(count: usize) -> Vec<(Whereabouts, u64)> {
        let mut random = crate::generator::random(7);
        let mut steps: Vec<(Whereabouts, u64)> = Vec::new();
        // How far back what is repeated lies, and for how many steps more.
        let mut repeated = (1, 0);
        while steps.len() < count {
            let number = random.random_range(0..1_000_u64);
            let length = [0, 512, 4_096, 4_096, 65_536][(number % 5) as usize];
            let used = match number % 7 {
                0 => Use::Again(number + 1),
                1 => Use::Inside(number + 1),
                _ => Use::New,
            };
            if repeated.1 > 0 {
                repeated.1 -= 1;
                steps.push(steps[steps.len() - repeated.0]);
                continue;
            }
            let is_kind = random.random_range(0..10);
            if is_kind < 3 && steps.len() > 10 {
                let back = random.random_range(1..steps.len().min(3_000));
                repeated = (back, random.random_range(0..6));
            } else if is_kind < 6 {
                steps.push((Whereabouts::On { is_new: number % 3 != 0 }, length));
            } else {
                let area = random.random_range(0..6);
                let near = if is_kind == 9 { 1 << 17 } else { 512 };
                steps.push((
                    Whereabouts::At { area, sectors: random.random_range(0..near / 8) * 8, used },
                    length,
                ));
            }
        }
        steps
    }

    /// Who writes and who reads remember the same: else each could be right by itself, and a file be read as another. The hash holds what files say:
    /// if both change alike, those that were written before are read wrongly, which takes a new version of the format.
    #[test]
    fn who_reads_knows_what_who_wrote_knew() {
        let steps = steps(4_000);
        let known = || Known::new(8, 64 << 20, vec![true, false, true, true, false, false]);
        let (mut writer, mut reader) = (known(), known());
        let mut kinds = [0; 6];
        let mut hash = 0;
        for at in 0..steps.len() {
            if at % 500 == 0 {
                writer.begin(at as u64 * 3);
                reader.begin(at as u64 * 3);
            }
            let end = steps.len().min(at + 40);
            // The first step follows on none.
            let (expected, length) = match steps[at] {
                (Whereabouts::On { .. }, length) if at == 0 => {
                    (Whereabouts::At { area: 0, sectors: 0, used: Use::New }, length)
                }
                step => step,
            };
            let rest: Vec<_> =
                std::iter::once((expected, length)).chain(steps[at + 1..end].iter().copied()).collect();
            let place = writer.write(&rest);
            let text = place.to_string();
            kinds[match place.0 {
                Where::On => 0,
                Where::Like(_) => 1,
                Where::Near(..) => 2,
                Where::Back(_) => 3,
                Where::Behind(..) => 4,
                Where::At(..) => 5,
            }] += 1;
            hash = text.bytes().fold(mix64(hash), |hash, byte| mix64(hash ^ u64::from(byte)));
            let read = reader.read(Place::from_str(&text).unwrap(), length);
            assert_eq!(read, Ok(expected), "step {at}, `{text}`");
            assert_eq!(reader.position(), writer.position(), "step {at}, `{text}`");
        }
        assert!(kinds.iter().all(|&count| count >= 10), "{kinds:?}");
        assert_eq!(hash, 928_221_498_084_845_624, "what files say has changed");
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let refused = |places: &[&str]| {
            let mut known = Known::new(1, 64 << 20, Vec::new());
            let read = |place: &&str| known.read(Place::from_str(place).unwrap(), 512);
            places.iter().map(read).find_map(Result::err).unwrap()
        };
        assert_eq!(refused(&["."]), "`.`: there is no such step before it");
        assert_eq!(refused(&["0@0", "=0"]), "`=0`: there is no such distance");
        assert_eq!(refused(&["0@0", "-2"]), "`-2`: there is no such step");
        assert_eq!(refused(&["0@0", "-0"]), "`-0`: there is no such step");
        assert_eq!(refused(&["0@0", "1+0"]), "`1+0`: there is no such request");
        assert_eq!(refused(&["0@0", "0-2"]), "`0-2`: there is no such place");
        assert_eq!(
            refused(&["0@0", "0+9223372036854775807"]),
            "`0+9223372036854775807`: there is no such place"
        );
        assert_eq!(refused(&["0@0", ".a3"]), "`.a3`: there is no such use of a step that goes on");
        assert_eq!(refused(&["0@0u"]), "`0@0u`: there is no such use of a step that does not go on");
    }
}
