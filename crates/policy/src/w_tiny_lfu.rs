//! W-TinyLFU: newcomers pass a small window, and enter the main area only if they were used more often than who must leave for them.
//!
//! Idea: frequency decides who stays, counted for all blocks, also those not here, in a sketch that ages; the window lets bursts
//! gather their frequency.
//! Source: Einziger, Friedman and Manes, "TinyLFU: a highly efficient cache admission policy", ACM TOS 13(4), 2017, section 4: an LRU window
//! of 1 per cent, a main area by SLRU with 80 per cent protected. The window's share climbs the hill of the hit ratio: Einziger, Eytan, Friedman and Manes,
//! "Adaptive software cache management", Middleware '18, section 3.1; step, decay and restart as in Caffeine.
//! Deviations: no doorkeeper; ageing is spread over time (see `sketch.rs`); the climber's sample is ours. A window that grows takes the places of those who
//! leave next, none is moved. Warm-up at the head enters probation directly, at the tail the end of probation.
//! Invariant: the tag of a slot names its segment; segments are above their shares only after a shrink, until enough calls moved the excess.

use crate::sketch::{Sketch, sketch_hash};
use crate::{Incoming, Insertion, Links, List, Policy, SegmentedVec, Slot};
use forebay_units::BlockIndex;
use std::collections::TryReserveError;
use std::ops::ControlFlow;

const WINDOW: u8 = 0;
const PROBATION: u8 = 1;
const PROTECTED: u8 = 2;

/// What the window is at first, and what the climber leaves it at least and at most.
const WINDOW_START: f64 = 0.01;
const WINDOW_MIN: f64 = 0.01;
const WINDOW_MAX: f64 = 0.8;
/// A sample of the climber: so many accesses for each slot, and not fewer than these. Ours, with the two above.
const SAMPLE_PER_SLOT: u64 = 4;
const SAMPLE_MIN: u64 = 1000;
/// The climber's step, as a share of all slots; what each step leaves of it; and the change of the hit ratio that makes it start anew.
const STEP: f64 = 0.0625;
const STEP_DECAY: f64 = 0.98;
const RESTART: f64 = 0.05;

/// Hill climbing: the window grows or shrinks as long as the hit ratio does not fall by it, then turns.
#[derive(Debug)]
struct Climber {
    hits: u64,
    accesses: u64,
    /// Of the sample before; nothing before the first.
    hit_ratio: Option<f64>,
    /// What is added to the share at the next turn.
    step: f64,
    share: f64,
}

impl Climber {
    const fn new() -> Climber {
        Climber { hits: 0, accesses: 0, hit_ratio: None, step: STEP, share: WINDOW_START }
    }

    /// Counts an access; whether the share is another after it.
    #[inline]
    fn count(&mut self, hit: bool, capacity: u32) -> bool {
        self.hits += u64::from(hit);
        self.accesses += 1;
        self.accesses >= (SAMPLE_PER_SLOT * u64::from(capacity)).max(SAMPLE_MIN) && self.climb()
    }

    #[cold]
    fn climb(&mut self) -> bool {
        let hit_ratio = self.hits as f64 / self.accesses as f64;
        (self.hits, self.accesses) = (0, 0);
        let Some(before) = self.hit_ratio.replace(hit_ratio) else { return false };
        let change = hit_ratio - before;
        let amount = if change >= 0.0 { self.step } else { -self.step };
        self.step = if change.abs() >= RESTART { STEP.copysign(amount) } else { STEP_DECAY * amount };
        let share = self.share;
        self.share = (share + amount).clamp(WINDOW_MIN, WINDOW_MAX);
        self.share != share
    }
}

/// W-TinyLFU; 16 bytes per slot and 8 per slot for the sketch.
#[derive(Debug)]
pub struct WTinyLfu {
    links: Links,
    /// The sketch's hash of the block of each slot, for the duel of two residents.
    hashes: SegmentedVec<u64>,
    /// Window, probation, protected: each the most recent in front.
    segments: [List; 3],
    sketch: Sketch,
    climber: Climber,
    capacity: u32,
    window_capacity: u32,
    protected_capacity: u32,
}

impl WTinyLfu {
    /// An empty order of capacity 0.
    pub const fn new() -> WTinyLfu {
        WTinyLfu {
            links: Links::new(),
            hashes: SegmentedVec::new(),
            segments: [List::EMPTY; 3],
            sketch: Sketch::new(),
            climber: Climber::new(),
            capacity: 0,
            window_capacity: 0,
            protected_capacity: 0,
        }
    }

    #[inline]
    fn observe(&mut self, hit: bool) {
        if self.climber.count(hit, self.capacity) {
            self.set_capacity(self.capacity);
        }
    }

    fn back(&self, segment: u8) -> Option<Slot> {
        self.segments[usize::from(segment)].back()
    }

    fn len(&self, segment: u8) -> u32 {
        self.segments[usize::from(segment)].len()
    }

    fn push(&mut self, slot: Slot, segment: u8) {
        self.links.push_front(&mut self.segments[usize::from(segment)], slot);
        self.links.set_tag(slot, segment);
    }

    fn unlink(&mut self, slot: Slot) -> u8 {
        let segment = self.links.tag(slot);
        self.links.unlink(&mut self.segments[usize::from(segment)], slot);
        segment
    }

    /// Sends the last of `from` to the front of probation while `from` is above `most`; at most two.
    fn overflow(&mut self, from: u8, most: u32) {
        for _ in 0..2 {
            if self.len(from) > most
                && let Some(last) = self.back(from)
            {
                self.unlink(last);
                self.push(last, PROBATION);
            }
        }
    }
}

impl Default for WTinyLfu {
    fn default() -> WTinyLfu {
        WTinyLfu::new()
    }
}

impl Policy for WTinyLfu {
    fn name(&self) -> &'static str {
        "w-tinylfu"
    }

    fn reserve(&mut self, slots: u32) -> Result<(), TryReserveError> {
        self.sketch.reserve(slots)?;
        self.hashes.try_extend_to(slots, 0)?;
        self.links.reserve(slots)
    }

    fn release(&mut self, slots: u32) {
        self.links.release(slots);
        self.hashes.truncate(slots);
        self.sketch.release(slots);
    }

    /// The window has its share, rounded, and at least one slot; four fifths of the rest, rounded, are protected.
    fn set_capacity(&mut self, blocks: u32) {
        self.capacity = blocks;
        self.window_capacity = ((f64::from(blocks) * self.climber.share).round() as u32).max(1);
        let main = blocks.saturating_sub(self.window_capacity);
        self.protected_capacity = (f64::from(main) * 0.8).round() as u32;
    }

    /// Refuses only warm-up at the tail of a full order: it would displace its better.
    fn admit(&mut self, incoming: Incoming) -> bool {
        incoming.insertion != Insertion::PrewarmTail
            || self.len(WINDOW) + self.len(PROBATION) + self.len(PROTECTED) < self.capacity
    }

    /// The duel: whoever of the last of the window, if that is full, and the last of probation was used less; the newcomer on a tie. A winner from the
    /// window goes to probation. When the quota shrinks, both segments of the main area stay as long as the window is above its share.
    fn victim(&mut self, incoming: Option<Incoming>) -> Option<Slot> {
        let main = self.back(PROBATION).or(self.back(PROTECTED));
        let from_window = match incoming.map(|incoming| incoming.insertion) {
            Some(Insertion::Miss) => self.len(WINDOW) >= self.window_capacity,
            Some(Insertion::Prewarm | Insertion::PrewarmTail) | None => {
                self.len(WINDOW) > self.window_capacity
            }
        };
        let candidate = if from_window || main.is_none() { self.back(WINDOW) } else { None };
        let (Some(candidate), Some(resident)) = (candidate, main) else { return candidate.or(main) };
        let uses = |slot: Slot| self.sketch.estimate(*self.hashes.get(slot.0));
        if uses(candidate) > uses(resident) {
            self.unlink(candidate);
            self.push(candidate, PROBATION);
            Some(resident)
        } else {
            Some(candidate)
        }
    }

    fn on_hit(&mut self, slot: Slot, _block: BlockIndex) {
        self.observe(true);
        self.sketch.count(*self.hashes.get(slot.0));
        if self.unlink(slot) == WINDOW {
            self.push(slot, WINDOW);
        } else {
            self.push(slot, PROTECTED);
            self.overflow(PROTECTED, self.protected_capacity);
        }
    }

    fn on_miss(&mut self, block: BlockIndex) {
        self.observe(false);
        self.sketch.count(sketch_hash(block));
    }

    fn on_insert(&mut self, slot: Slot, incoming: Incoming) {
        *self.hashes.get_mut(slot.0) = sketch_hash(incoming.block);
        match incoming.insertion {
            Insertion::Miss => {
                self.push(slot, WINDOW);
                // While there is room, nobody duels.
                self.overflow(WINDOW, self.window_capacity);
            }
            Insertion::Prewarm => self.push(slot, PROBATION),
            Insertion::PrewarmTail => {
                self.links.push_back(&mut self.segments[usize::from(PROBATION)], slot);
                self.links.set_tag(slot, PROBATION);
            }
        }
    }

    fn on_evict(&mut self, slot: Slot, _block: BlockIndex) {
        self.unlink(slot);
    }

    fn on_remove(&mut self, slot: Slot, _block: BlockIndex) {
        self.unlink(slot);
    }

    fn on_move(&mut self, from: Slot, to: Slot) {
        let segment = usize::from(self.links.tag(from));
        self.links.rename(&mut self.segments[segment], from, to);
        *self.hashes.get_mut(to.0) = *self.hashes.get(from.0);
    }

    /// The protected segment, probation, the window, each from the most recent on; duels may decide otherwise.
    fn visit_hottest_first(&self, visit: &mut dyn FnMut(Slot) -> ControlFlow<()>) {
        let segments = [PROTECTED, PROBATION, WINDOW].into_iter();
        let _ = segments
            .flat_map(|segment| self.links.iter(&self.segments[usize::from(segment)]))
            .try_for_each(visit);
    }

    fn footprint_bytes(&self) -> u64 {
        self.links.footprint_bytes() + self.hashes.footprint_bytes() + self.sketch.footprint_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Model, check_against, trace};
    use forebay_units::mix64;

    /// A sketch that is there before the first block is, whose first use would else not be counted.
    fn sketch() -> Sketch {
        let mut sketch = Sketch::new();
        sketch.reserve(64).unwrap();
        sketch
    }

    #[test]
    fn a_hand_traced_run() {
        // Capacity 4: window 1, main 3 of which round(2.4) = 2 protected. 1 2 3 4: each newcomer sends the one before to probation (3 2 1), window 4.
        let mut run = trace(WTinyLfu { sketch: sketch(), ..WTinyLfu::new() }, 4, &[1, 2, 3, 4]);
        assert_eq!(run.order_blocks(), [3, 2, 1, 4]);
        // 5: 4 was used once, as 1 was: a tie, the newcomer 4 leaves.
        run.access(5);
        assert_eq!((run.evicted.as_slice(), run.order_blocks()), ([4].as_slice(), vec![3, 2, 1, 5]));
        // 5 again, then 6: 5 was used twice, 1 once: 1 leaves, 5 goes to probation.
        for block in [5, 6] {
            run.access(block);
        }
        assert_eq!((run.evicted.as_slice(), run.order_blocks()), ([4, 1].as_slice(), vec![5, 3, 2, 6]));
        // 2, 3 and 5 are used: two stay protected (5 3), 2 falls back to probation.
        for block in [2, 3, 5] {
            run.access(block);
        }
        assert_eq!(run.order_blocks(), [5, 3, 2, 6]);
        // 4 was used once before it left; with its second use it meets 2, used twice: the tie goes against it once 7 comes. 6 leaves first.
        for block in [4, 7] {
            run.access(block);
        }
        assert_eq!((run.evicted.as_slice(), run.order_blocks()), ([4, 1, 6, 4].as_slice(), vec![5, 3, 2, 7]));
    }

    #[test]
    fn the_window_climbs_while_the_hit_ratio_does_not_fall_and_turns_when_it_does() {
        let mut climber = Climber::new();
        let mut sample = |hits: u64| {
            let changed = (0..SAMPLE_MIN).filter(|&at| climber.count(at < hits, 10)).count();
            (changed, climber.share, climber.step)
        };
        // The first sample is nobody's successor. 0.30 after 0.30 is no fall: up by a step, which decays.
        assert_eq!(sample(300), (0, 0.01, STEP));
        assert_eq!(sample(300), (1, 0.01 + STEP, STEP * STEP_DECAY));
        // 0.28: down again by the decayed step. 0.23: a loss of 0.05 turns it and starts anew.
        let share = 0.01 + STEP - STEP * STEP_DECAY;
        assert_eq!(sample(280), (1, share, -STEP * STEP_DECAY * STEP_DECAY));
        let (_, after, step) = sample(230);
        assert!(after > share && step == STEP, "{after} {step}");
        // However long it goes up, the main area keeps a fifth.
        for _ in 0..100 {
            sample(230);
        }
        assert_eq!(sample(230).1, WINDOW_MAX);
    }

    #[test]
    fn recency_calls_for_a_larger_window() {
        // Every block comes again within 30 steps, and then never: only the window can hold it until then.
        let uses = |steps: std::ops::Range<u64>| steps.flat_map(|at| [at + 30, at + mix64(at) % 30]);
        let mut run = trace(WTinyLfu::new(), 100, &[]);
        uses(0..30_000).for_each(|block| run.access(block));
        let share = run.policy.climber.share;
        assert!(share > 0.3, "{share}");
    }

    /// Window, probation, protected, most recent first; uses and the window's share come from sketch and climber themselves, which have
    /// tests of their own.
    struct Naive {
        segments: [Vec<u64>; 3],
        sketch: Sketch,
        climber: Climber,
        capacity: usize,
    }

    impl Naive {
        fn window(&self) -> usize {
            ((self.capacity as f64 * self.climber.share).round() as usize).max(1)
        }
        fn overflow(&mut self, segment: usize, most: usize) {
            for _ in 0..2 {
                if self.segments[segment].len() > most {
                    let last = self.segments[segment].pop().unwrap();
                    self.segments[1].insert(0, last);
                }
            }
        }
        fn uses(&self, block: u64) -> u64 {
            self.sketch.estimate(sketch_hash(BlockIndex(block)))
        }
    }

    impl Model for Naive {
        fn set_capacity(&mut self, capacity: usize) {
            self.capacity = capacity;
        }
        fn miss(&mut self, block: u64) {
            self.climber.count(false, self.capacity as u32);
            self.sketch.count(sketch_hash(BlockIndex(block)));
        }
        fn admits(&mut self, _: u64, insertion: Insertion, capacity: usize) -> bool {
            insertion != Insertion::PrewarmTail || self.order().len() < capacity
        }
        fn victim(&mut self, insertion: Option<Insertion>, _: usize) -> u64 {
            let main = self.segments[1].last().or(self.segments[2].last()).copied();
            let least = if insertion == Some(Insertion::Miss) { self.window() } else { self.window() + 1 };
            let Some(main) = main else { return *self.segments[0].last().unwrap() };
            if self.segments[0].len() < least {
                return main;
            }
            let candidate = *self.segments[0].last().unwrap();
            if self.uses(candidate) <= self.uses(main) {
                return candidate;
            }
            self.segments[0].pop();
            self.segments[1].insert(0, candidate);
            main
        }
        fn hit(&mut self, block: u64) {
            self.climber.count(true, self.capacity as u32);
            self.sketch.count(sketch_hash(BlockIndex(block)));
            let in_window = self.segments[0].contains(&block);
            self.remove(block);
            let segment = if in_window { 0 } else { 2 };
            self.segments[segment].insert(0, block);
            if !in_window {
                let main = self.capacity.saturating_sub(self.window());
                self.overflow(2, (main as f64 * 0.8).round() as usize);
            }
        }
        fn insert(&mut self, block: u64, insertion: Insertion) {
            match insertion {
                Insertion::Miss => {
                    self.segments[0].insert(0, block);
                    self.overflow(0, self.window());
                }
                Insertion::Prewarm => self.segments[1].insert(0, block),
                Insertion::PrewarmTail => self.segments[1].push(block),
            }
        }
        fn remove(&mut self, block: u64) {
            self.segments.iter_mut().for_each(|segment| segment.retain(|kept| *kept != block));
        }
        fn order(&self) -> Vec<u64> {
            [self.segments[2].as_slice(), &self.segments[1], &self.segments[0]].concat()
        }
    }

    #[test]
    fn it_agrees_with_three_lists() {
        check_against(
            || WTinyLfu { sketch: sketch(), ..WTinyLfu::new() },
            || Naive { segments: Default::default(), sketch: sketch(), climber: Climber::new(), capacity: 0 },
        );
    }
}
