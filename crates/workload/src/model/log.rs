//! What was generated so far, request by request: which extent was used last a given number of requests ago.
//!
//! Every request with bytes has a position, and is *live* until what starts where it does is used again. A reuse is described by how many requests ago the use before it was
//! (its reuse time). To generate one, the live request nearest to that position is taken whose extent will do: a look at two places of memory,
//! whatever the length of the trace. That reuse *times* are kept, and with them LRU depths, is the theory of average eviction times (Hu et al., AET, ATC '16,
//! section 3): the curve of hit ratios follows from the distribution of reuse times.
//!
//! Invariant: at most one live request for what starts anywhere, as far as callers say which they take. Bounded: the last [`Log::reach`] positions at least, and at most
//! twice as many, of 20 bytes each.

/// Positions that are searched on either side of a wanted one for an extent that will do.
const NEAR: usize = 128;
/// Positions that are looked at in one go.
const BLOCK: usize = 32;
/// Positions after a used one that are searched for what follows it.
const FOLLOWING: u64 = 64;

/// Volume and offset in one number: 4,096 volumes, and the lower 52 bits of the offset.
#[inline]
pub(super) fn extent_key(volume: u32, offset: u64) -> u64 {
    u64::from(volume) << OFFSET_BITS | offset & OFFSET
}

/// The offset of a key.
#[inline]
pub(super) fn key_offset(key: u64) -> u64 {
    key & OFFSET
}

/// The volume of a key.
#[inline]
pub(super) fn key_volume(key: u64) -> u32 {
    (key >> OFFSET_BITS) as u32
}

const OFFSET_BITS: u32 = 52;
/// The largest offset that a key has.
pub(super) const OFFSET: u64 = (1 << OFFSET_BITS) - 1;

/// What is to be known of an extent to tell whether it will do in place of another one, in 31 bits; 0 is nothing.
///
/// From the highest bit, what matters most first: whether it is anything; volume; kind; how long a run it began; whether it was used once, 2 to 3, 4 to 15 times or more; and where it lies
/// within 512 KiB, in 16 KiB (which tells the disk of a stripe, and the die of flash). Kinds beyond 512 share their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(i32);

impl Mark {
    const NOTHING: Mark = Mark(0);
    const LIVE: i32 = 1 << 30;
    /// Marks that differ by less are equal; equal but for where they lie; and for how often they were used; and for their runs; and for their kinds.
    const DIFFERENCES: [i32; 5] = [1, 1 << 5, 1 << 7, 1 << 9, 1 << 18];
    /// Of one kind.
    const OF_KIND: i32 = Mark::DIFFERENCES[3];

    #[inline]
    pub(super) fn new(start: u64, kind: u32, run: Run, uses: u16) -> Mark {
        let uses = match uses {
            0..=1 => 0,
            2..=3 => 1,
            4..=15 => 2,
            _ => 3,
        };
        let (volume, kind) = ((key_volume(start) & 4_095) as i32, (kind & 511) as i32);
        let aligned = (start >> 14) as i32 & 31;
        Mark(Mark::LIVE | volume << 18 | kind << 9 | (run as i32) << 7 | uses << 5 | aligned)
    }

    /// The less, the more alike they are.
    #[inline]
    fn difference(self, other: Mark) -> i32 {
        self.0 ^ other.0
    }
}

/// How many requests of a window go on, one after the other, from a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// It goes on itself.
    Within = 0,
    /// None does.
    Alone = 1,
    /// At most 15.
    Short = 2,
    /// More.
    Long = 3,
}

impl Run {
    /// That of so many requests, the first one counted.
    pub(super) fn of(requests: u32) -> Run {
        match requests {
            0..=1 => Run::Alone,
            2..=16 => Run::Short,
            _ => Run::Long,
        }
    }
}

/// What is known of a position, beside its mark.
#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u64,
    /// The number of the extent; [`Log::COPY`] for what lies where no extent of the original does.
    extent: u32,
    uses: u16,
}

/// The log.
#[derive(Clone, Debug)]
pub(super) struct Log {
    /// By position less `base`; in a list of their own, as a search looks at marks only.
    marks: Vec<Mark>,
    /// What else is known of each; in one place of memory, as all of it is asked for at once.
    entries: Vec<Entry>,
    base: u64,
    reach: usize,
}

impl Log {
    /// In place of an extent's number.
    pub(super) const COPY: u32 = u32::MAX;

    /// One that remembers the last `reach` positions.
    pub(super) fn new(reach: usize) -> Log {
        // Room for all of it is asked for once; what is not used takes no memory.
        let room = 2 * reach.max(1);
        Log {
            marks: Vec::with_capacity(room),
            entries: Vec::with_capacity(room),
            base: 0,
            reach: reach.max(1),
        }
    }

    /// The position of the next request.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.base + self.marks.len() as u64
    }

    /// Index of a live position.
    #[inline]
    fn live(&self, position: u64) -> Option<usize> {
        let at = usize::try_from(position.checked_sub(self.base)?).ok()?;
        self.marks.get(at).filter(|mark| **mark != Mark::NOTHING).map(|_| at)
    }

    /// Where the request at a live position starts.
    #[inline]
    pub(super) fn start_at(&self, position: u64) -> Option<u64> {
        self.live(position).map(|at| self.entries[at].start)
    }

    /// Which of the positions soon after one starts at `start`, and is live.
    #[inline]
    pub(super) fn following(&self, position: u64, start: u64) -> Option<u64> {
        (position + 1..=position + FOLLOWING).find(|&at| self.start_at(at) == Some(start))
    }

    /// How often what a live position has was used.
    #[inline]
    pub(super) fn uses_at(&self, position: u64) -> Option<u16> {
        self.live(position).map(|at| self.entries[at].uses)
    }

    /// The number of the extent at a live position.
    #[inline]
    pub(super) fn extent_at(&self, position: u64) -> Option<u32> {
        self.live(position).map(|at| self.entries[at].extent)
    }

    /// A request at the next position, that starts where the one at `before` did, if that is live; it no longer is then.
    #[inline]
    pub(super) fn push(&mut self, start: u64, kind: u32, run: Run, extent: u32, before: Option<u64>) {
        let before = before.and_then(|before| self.live(before));
        let uses = before.map_or(1, |before| self.entries[before].uses.saturating_add(1));
        if let Some(before) = before {
            self.marks[before] = Mark::NOTHING;
        }
        if self.marks.len() == 2 * self.reach {
            self.forget();
        }
        self.marks.push(Mark::new(start, kind, run, uses));
        self.entries.push(Entry { start, extent, uses });
    }

    #[cold]
    fn forget(&mut self) {
        self.marks.drain(..self.reach);
        self.entries.drain(..self.reach);
        self.base += self.reach as u64;
    }

    /// The live position nearest to `target`, among some on either side, that will do for `wanted`: `target` itself if that is of its kind, else the nearest that is
    /// like it in everything, else but for where it lies in a stripe, else but for how often it was used too, else but for its run, else of its volume.
    pub(super) fn nearest(&self, target: u64, wanted: Mark) -> Option<u64> {
        let length = self.marks.len();
        let at = (target.saturating_sub(self.base) as usize).min(length.checked_sub(1)?);
        // What lies there exactly goes on as it did: scans stay whole.
        if let Some(mark) = self.marks.get(at)
            && mark.difference(wanted) < Mark::OF_KIND
        {
            return Some(self.base + at as u64);
        }
        // By blocks on both sides: the least difference. What is alike in everything needs no look further.
        let (mut leasts, mut best) = ([i32::MAX; NEAR / BLOCK], i32::MAX);
        for (block, least) in leasts.iter_mut().enumerate() {
            let [newer, older] = self.blocks(at, block);
            *least = least_difference(newer, wanted).min(least_difference(older, wanted));
            best = best.min(*least);
            if best < Mark::DIFFERENCES[0] {
                break;
            }
        }
        let below = Mark::DIFFERENCES.into_iter().find(|&below| best < below)?;
        let block = leasts.iter().position(|&least| least < below)?;
        let [newer, older] = self.blocks(at, block);
        let is = |mark: &Mark| mark.difference(wanted) < below;
        let away = [newer.iter().position(is), older.iter().rev().position(is)];
        let index = match away {
            [Some(on), Some(back)] if back < on => at - block * BLOCK - 1 - back,
            [Some(on), _] => at + block * BLOCK + on,
            [None, Some(back)] => at - block * BLOCK - 1 - back,
            [None, None] => return None,
        };
        Some(self.base + index as u64)
    }

    /// The blocks of that number after an index, and before it.
    #[inline]
    fn blocks(&self, at: usize, block: usize) -> [&[Mark]; 2] {
        let length = self.marks.len();
        let on = |away: usize| (at + away * BLOCK).min(length);
        let back = |away: usize| at.saturating_sub(away * BLOCK);
        [&self.marks[on(block)..on(block + 1)], &self.marks[back(block + 1)..back(block)]]
    }
}

/// The least difference of `marks` to a wanted one.
#[inline]
fn least_difference(marks: &[Mark], wanted: Mark) -> i32 {
    let least =
        |marks: &[Mark]| marks.iter().fold(i32::MAX, |least, mark| least.min(mark.difference(wanted)));
    // Of a whole block the compiler knows the number of marks.
    match <&[Mark; BLOCK]>::try_from(marks) {
        Ok(whole) => least(whole),
        Err(_) => least(marks),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::random;
    use rand::Rng;

    const PAGE: u64 = 16 << 10;

    fn used_again(log: &mut Log, position: u64) {
        let start = log.start_at(position).unwrap();
        log.push(start, 0, Run::Alone, Log::COPY, Some(position));
    }

    #[test]
    fn uses_by_hand() {
        let mut log = Log::new(100);
        // Positions 0 to 3, 32 pages apart: on the same disk.
        (0..4).for_each(|at| log.push(at * 32 * PAGE, 0, Run::Alone, at as u32, None));
        let wanted = |start, kind, uses| Mark::new(start, kind, Run::Alone, uses);
        assert_eq!(log.nearest(2, wanted(0, 0, 1)), Some(2));
        // 2 is used again and lies at 4 from now on, twice used.
        used_again(&mut log, 2);
        assert_eq!((log.start_at(2), log.start_at(4), log.uses_at(4)), (None, Some(64 * PAGE), Some(2)));
        // The older one of two that are as near; what is beyond the end is as near as the last one, and that is of the kind.
        assert_eq!(log.nearest(2, wanted(0, 0, 1)), Some(1));
        assert_eq!(log.nearest(99, wanted(0, 0, 1)), Some(4));
        // Another kind will do rather than nothing, another volume will not.
        assert_eq!(log.nearest(2, wanted(0, 7, 1)), Some(1));
        assert_eq!(log.nearest(2, wanted(extent_key(1, 0), 0, 1)), None);
        // What a scan had after 0.
        assert_eq!((log.following(0, 32 * PAGE), log.following(0, 5)), (Some(1), None));
        assert_eq!((log.extent_at(1), log.extent_at(4)), (Some(1), Some(Log::COPY)));
    }

    #[test]
    fn the_better_of_two_is_taken_though_it_is_further() {
        let mut log = Log::new(100);
        // Kinds 1, 1, 0, 2: only the first lies where the wanted one does in a stripe, only the second begins a run.
        let runs = [Run::Alone, Run::Long, Run::Alone, Run::Alone];
        for ((start, kind), run) in [(0, 1), (PAGE, 1), (2 * PAGE, 0), (3 * PAGE, 2)].into_iter().zip(runs) {
            log.push(start, kind, run, Log::COPY, None);
        }
        let nearest = |start, run, uses| log.nearest(3, Mark::new(start, 1, run, uses));
        assert_eq!(nearest(32 * PAGE, Run::Alone, 1), Some(0));
        assert_eq!(nearest(32 * PAGE, Run::Long, 1), Some(1));
        // Used more often is more alike than another run, and that more than another kind.
        assert_eq!(nearest(5 * PAGE, Run::Alone, 9), Some(0));
        assert_eq!(nearest(5 * PAGE, Run::Short, 1), Some(1));
    }

    /// Against a look at all positions; also over what is forgotten, and at both ends of what is not.
    #[test]
    fn it_agrees_with_a_look_at_all() {
        let (mut log, mut random) = (Log::new(500), random(4));
        let mut all: Vec<Mark> = Vec::new();
        for now in 0..5_000u64 {
            let (start, kind) = (random.random_range(0..1 << 30) / PAGE * PAGE, random.random_range(0..20));
            let target = random.random_range(now.saturating_sub(900)..=now);
            let run = if now % 3 == 0 { Run::Within } else { Run::Long };
            let wanted = Mark::new(start, kind, run, 1);
            let found = log.nearest(target, wanted);
            let base = log.base;
            assert!(now - base <= 1_000 && now - base >= now.min(500));
            let target = target.max(base);
            let alike = |below: i32| {
                let near = (target.saturating_sub(NEAR as u64).max(base)..(target + NEAR as u64).min(now))
                    .filter(|&at| all[at as usize].difference(wanted) < below);
                near.min_by_key(|&at| if at < target { 2 * (target - at) - 1 } else { 2 * (at - target) })
            };
            let exact = all.get(target as usize).filter(|mark| mark.difference(wanted) < Mark::OF_KIND);
            let expected = exact.map(|_| target).or_else(|| Mark::DIFFERENCES.into_iter().find_map(alike));
            assert_eq!(found, expected, "of {now}, wanted near {target}");
            // Every second use is of what was found.
            let before = found.filter(|_| now % 2 == 0);
            if let Some(before) = before {
                all[before as usize] = Mark::NOTHING;
            }
            let uses = before.and_then(|before| log.uses_at(before)).map_or(1, |uses| uses + 1);
            log.push(start, kind, run, Log::COPY, before);
            all.push(Mark::new(start, kind, run, uses));
        }
    }
}
