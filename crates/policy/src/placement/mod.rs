//! Placement on a chunk tier: which chunks of which volumes belong on fast storage, decided by how often they were used of late.
//!
//! *Most recently frequently used*: accesses are counted by chunk, counts are cooled by subtraction, and a chunk whose count reaches a threshold is placed, if there is room or it is hotter than the
//! coldest that is there. Sequential runs do not count, and an access counts only as far as the array's own cache would not have answered it. The threshold is fixed, or follows what is best at the
//! moment; migrations are paced. The same tier with plain LRU, LARC or demand admission is there for comparison.
//!
//! It is *not* an eviction policy of a block cache ([`crate::Policy`] is that), it moves nothing and holds no bytes: whoever serves requests asks where a chunk is ([`Placement::request`]), carries out
//! the promotions that are due ([`Placement::due`]), and says how they ended ([`Placement::moved`]) and how long answers took ([`Placement::answered`]). It knows no clock but the times that it is told.
//!
//! Invariants: a place of the tier belongs to at most one chunk; a chunk is at the origin, on its way, or in a place; nothing is allocated after the start but for switches and by [`Placement::set`]. Every list has its maximum in [`Shape`] or [`Placing`].
//!
//! Sources: SANCache (Ari, Gottwals and Henze, MSST 2006); US8688904 (cooling by subtraction); LARC (Huang et al., MSST 2013). Chunk size, windows and steps are published nowhere: all
//! numbers here are ours.

mod adaptation;
mod admission;
mod budget;
mod coldest;
mod earned;
mod heat;
mod placing;
mod reach;
mod recency;
mod runs;
mod shape;
mod statistics;
mod switches;
mod threshold;
mod touch;
mod worth;

pub use admission::{Admission, UnknownAdmission};
pub use placing::Placing;
pub use reach::Age;
pub use shape::{Shape, ShapeError};
pub use statistics::PlacementStatistics;
pub use switches::SwitchesFull;
pub use threshold::GRID;
pub use touch::{Chunk, Demotion, Promotion, Request, Touch, Where};

use adaptation::Adaptation;
use budget::Budget;
use coldest::Coldest;
use earned::Earned;
use forebay_units::Nanos;
use heat::Heat;
use reach::Reach;
use recency::Larc;
use runs::Runs;
use std::collections::{BTreeMap, VecDeque};
use switches::{SWITCHES_MAX, Switches};
use threshold::{Counted, Pace};
use worth::Worth;

/// One access, in the units in which counts are kept.
const COUNT: u64 = 16;
/// No count is higher: what was hot for days must be able to cool.
const COUNT_MAX: u64 = 512 * COUNT;
/// The share of the tier's mean count that is subtracted, and the places by which that is estimated.
const COOLED_SHARE: u64 = 4;
const MEAN_PLACES: u32 = 256;
/// The bytes by which is counted how much was asked for.
const ASKED: u64 = 4 << 10;
/// The bit of a mark that says that the chunk is on its way; below it the place, counted from 1.
const MOVING: u32 = 1 << 31;

/// The decision: counts, who is in the tier, and what is to be moved.
///
/// A request costs `O(log capacity)` per chunk. Memory, taken at the start: 37 bytes per tracked chunk and 21 per place, 8 more per tracked chunk for LARC; for the adaptive threshold some 130 per
/// tracked chunk of the sample, which is all chunks of a tier of fewer than 2,048 and one in 64 of one of 65,536 (so some 2 bytes per chunk there).
#[derive(Debug)]
pub struct Placement {
    shape: Shape,
    placing: Placing,
    heat: Heat,
    /// By place: the slot of its chunk in `heat`.
    owners: Vec<u32>,
    free: Vec<u32>,
    coldest: Coldest,
    runs: Runs,
    reach: Reach,
    worth: Worth,
    budget: Budget,
    earned: Earned,
    adaptation: Adaptation,
    larc: Option<Larc>,
    switches: Switches,
    moving: u32,
    /// Those among them that have not set out, with the time of the request that brought each about, oldest first: `moving_max` at most.
    waiting: VecDeque<(Nanos, Promotion)>,
    /// How many of those, from the front, are due.
    due: usize,
    /// Chunks on their way back, whose places are taken meanwhile.
    leaving: u32,
    /// Blocks of 4 KiB that were asked for, the clock of ages; wraps after 16 TiB.
    asked: u32,
    /// The latest time that was told.
    now: Nanos,
    /// The migration whose time is taken: which chunk, and since when.
    timed: Option<(u64, Nanos)>,
    /// Counts since the last cooling, in sixteenths.
    warmed: u64,
    /// Keys of the orders that count nothing.
    sequence: u64,
    window_ends: Nanos,
    statistics: PlacementStatistics,
}

impl Placement {
    /// An empty tier, there for all volumes and clients.
    ///
    /// # Errors
    /// [`ShapeError`] says what is out of its range.
    pub fn new(shape: Shape, placing: Placing) -> Result<Placement, ShapeError> {
        shape.check()?;
        let capacity = shape.capacity_chunks;
        let mut placement = Placement {
            heat: Heat::new(shape.tracked_chunks),
            owners: vec![0; capacity as usize],
            free: (0..capacity).rev().collect(),
            coldest: Coldest::new(capacity, capacity),
            runs: Runs::new(),
            reach: Reach::new(),
            worth: Worth::new(placing.fast_latency),
            budget: Budget::new(&placing),
            earned: Earned::new(capacity),
            adaptation: Adaptation::new(),
            larc: None,
            switches: Switches { by_default: true, volumes: BTreeMap::new(), clients: BTreeMap::new() },
            moving: 0,
            waiting: VecDeque::new(),
            due: 0,
            leaving: 0,
            asked: 0,
            now: Nanos::ZERO,
            timed: None,
            warmed: 0,
            sequence: 0,
            window_ends: Nanos::ZERO,
            statistics: PlacementStatistics::default(),
            shape,
            placing,
        };
        placement.take_up();
        Ok(placement)
    }

    /// For as many promotions as may wait at once.
    fn make_room(&mut self) {
        let at_once = self.placing.moving_max.min(self.shape.capacity_chunks) as usize;
        self.waiting.reserve(at_once.saturating_sub(self.waiting.len()));
    }

    /// What the admission in force needs besides.
    fn take_up(&mut self) {
        self.make_room();
        self.adaptation.set(self.placing.admission == Admission::Adaptive, &self.shape);
        let larc = self.placing.admission == Admission::Larc;
        self.larc = larc.then(|| Larc {
            remembered: Coldest::new(self.shape.tracked_chunks, self.shape.capacity_chunks),
            target: 0.1 * f64::from(self.shape.capacity_chunks),
        });
    }

    /// How large it is.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// How is placed now.
    pub fn placing(&self) -> &Placing {
        &self.placing
    }

    /// Places otherwise from now on. What is in the tier stays; counts are forgotten if they order the tier and did not before, or no longer do; then the cost is linear in the chunks.
    pub fn set(&mut self, placing: Placing) {
        let (old, new) = (self.placing.admission, placing.admission);
        self.placing = placing;
        self.budget.set(&placing);
        if old == new {
            self.make_room();
            return;
        }
        if old.counts() != new.counts() || old == Admission::Larc {
            self.heat.reset();
            let places: Vec<u32> = self.coldest.iter().collect();
            self.coldest.clear();
            for place in places {
                let (heat, owners) = (&self.heat, &self.owners);
                self.coldest.insert(place, |place| heat.key(owners[place as usize]));
            }
        }
        self.take_up();
    }

    /// Whether volumes without a switch of their own use the tier.
    pub fn set_default(&mut self, on: bool) {
        self.switches.by_default = on;
    }

    /// Whether a volume uses the tier from now on. If not, none of its chunks enters but those that are on their way, whose places were somebody's; those that are there are served from there and are
    /// the first to leave. Nothing leaves before another comes: a place that nobody wants is no gain, and a tier that takes writes has the only copy of some, which it goes on taking and writes back when
    /// they leave, as ever. Cost is then linear in the tier's chunks.
    ///
    /// # Errors
    /// [`SwitchesFull`] if 4,096 others have a switch.
    pub fn set_volume(&mut self, volume: u32, on: bool) -> Result<(), SwitchesFull> {
        let switches = &mut self.switches.volumes;
        if switches.len() >= SWITCHES_MAX && !switches.contains_key(&volume) {
            return Err(SwitchesFull);
        }
        switches.insert(volume, on);
        if !on {
            for place in 0..self.shape.capacity_chunks {
                let slot = self.owners[place as usize];
                if self.coldest.holds(place) && Chunk::of_id(self.heat.chunk(slot)).volume == volume {
                    self.heat.set_key(slot, 0);
                    let (heat, owners) = (&self.heat, &self.owners);
                    self.coldest.changed(place, |place| heat.key(owners[place as usize]));
                }
            }
        }
        Ok(())
    }

    /// Whether a client's accesses count and bring chunks in; it is served from the tier in any case.
    ///
    /// # Errors
    /// [`SwitchesFull`] if 4,096 others have a switch.
    pub fn set_client(&mut self, client: u32, on: bool) -> Result<(), SwitchesFull> {
        let switches = &mut self.switches.clients;
        if switches.len() >= SWITCHES_MAX && !switches.contains_key(&client) {
            return Err(SwitchesFull);
        }
        switches.insert(client, on);
        Ok(())
    }

    /// The threshold in force; `None` where counts do not decide.
    pub fn threshold(&self) -> Option<u16> {
        match self.placing.admission {
            Admission::Threshold(count) => Some(count),
            Admission::Adaptive => Some(self.adaptation.threshold()),
            _ => None,
        }
    }

    /// Bytes per second that may be moved now.
    pub fn pace(&self) -> f64 {
        self.budget.rate()
    }

    /// Chunks in the tier, and on their way to it.
    pub fn held(&self) -> (u32, u32) {
        (self.coldest.len(), self.moving)
    }

    /// What was done.
    pub fn statistics(&self) -> PlacementStatistics {
        PlacementStatistics {
            threshold_changes: self.adaptation.changes(),
            threshold_reversals: self.adaptation.reversals(),
            halvings: self.budget.halvings,
            ..self.statistics
        }
    }

    /// The memory it holds, in bytes.
    pub fn footprint_bytes(&self) -> u64 {
        let larc = self.larc.as_ref().map_or(0, |larc| larc.remembered.footprint_bytes());
        let waiting = (self.waiting.capacity() * size_of::<(Nanos, Promotion)>()) as u64;
        let lists = 4 * (self.owners.capacity() + self.free.capacity()) as u64 + waiting;
        self.heat.footprint_bytes()
            + self.coldest.footprint_bytes()
            + lists
            + larc
            + self.adaptation.footprint_bytes()
            + self.earned.footprint_bytes()
    }

    /// Where a chunk is, without an access.
    pub fn find(&self, chunk: Chunk) -> Where {
        self.heat.find(chunk.id()).map_or(Where::Origin, |slot| self.place_of(slot))
    }

    fn place_of(&self, slot: u32) -> Where {
        match self.heat.mark(slot) {
            0 => Where::Origin,
            mark if mark & MOVING != 0 => Where::Moving,
            mark => Where::Tier(mark - 1),
        }
    }

    /// A client's request arrives: calls `each` with every chunk that it touches, in their order. Which of them are to be promoted tells [`Placement::due`], once it was [answered](Placement::answered).
    ///
    /// # Panics
    /// In debug builds, for a volume of 2^20 or above, or beyond 2^32 chunks of one.
    pub fn request(&mut self, now: Nanos, request: Request, mut each: impl FnMut(Touch)) {
        if request.length == 0 {
            return;
        }
        self.now = self.now.max(now);
        self.end_window(now);
        let end = request.offset + request.length;
        self.asked = self.asked.wrapping_add(request.length.div_ceil(ASKED) as u32);
        let sequential = self.runs.continues(request.volume, request.offset, end);
        let on = self.switches.are_on(request.volume, request.client);
        let shift = self.shape.chunk_bytes.trailing_zeros();
        for index in request.offset >> shift..=(end - 1) >> shift {
            let chunk = Chunk { volume: request.volume, index };
            self.statistics.sequential += u64::from(sequential);
            each(self.touch(now, chunk, request.writes, on, sequential));
        }
    }

    /// A client's read of `length` bytes, or a part of one, is answered by a cache above: it is none of what is counted here, but a sequential run goes on over it. `O(1)`.
    pub fn passed(&mut self, volume: u32, offset: u64, length: u64) {
        if length > 0 {
            self.runs.goes_on(volume, offset, offset.saturating_add(length));
        }
    }

    fn touch(&mut self, now: Nanos, chunk: Chunk, writes: bool, on: bool, sequential: bool) -> Touch {
        let admission = self.placing.admission;
        let counts = on && !(sequential && self.placing.skip_sequential && admission.selects());
        let found = self.heat.find(chunk.id());
        let age = found.map_or(Age::NEVER, |slot| Age::of(self.heat.touch(slot, self.asked)));
        let at = found.map_or(Where::Origin, |slot| self.place_of(slot));
        let here = u64::from(matches!(at, Where::Tier(_)));
        if writes {
            self.statistics.writes += 1;
            self.statistics.write_hits += here;
        } else {
            self.statistics.reads += 1;
            self.statistics.read_hits += here;
        }
        let mut touch = Touch { chunk, at, age, demotion: None };
        if !counts {
            return touch;
        }
        let promotion = match admission {
            Admission::Lru => self.touch_by_recency(now, chunk, at, writes),
            Admission::Larc => self.touch_by_larc(now, chunk, at, writes),
            _ => self.touch_by_count(now, chunk, at, age, writes),
        };
        self.waiting.extend(promotion.map(|promotion| (now, promotion)));
        touch.demotion = self.demote(now, chunk, at);
        touch
    }

    /// The slot of `place`'s chunk has another key.
    fn reorder(&mut self, at: Where) {
        if let Where::Tier(place) = at {
            let (heat, owners) = (&self.heat, &self.owners);
            self.coldest.changed(place, |place| heat.key(owners[place as usize]));
        }
    }

    fn touch_by_count(
        &mut self,
        now: Nanos,
        chunk: Chunk,
        at: Where,
        age: Age,
        writes: bool,
    ) -> Option<Promotion> {
        let weight = match self.placing.exclusive {
            true => self.reach.weight(age),
            false => COUNT,
        };
        let sixteenths = if writes { self.write_sixteenths(at) } else { self.read_sixteenths(weight) };
        self.cool();
        self.earned.access(at != Where::Origin);
        let counted = Counted { chunk: chunk.id(), sixteenths, tick: reach::tick(now) };
        self.adaptation.access(now, counted, self.ghosts_pace());
        if let Where::Tier(place) = at {
            let saved = sixteenths as f64 / COUNT as f64;
            self.adaptation.saved(saved);
            self.earned.saved(place, saved);
        }
        let (slot, _) = self.heat.remember(chunk.id(), self.asked)?;
        self.heat.add(slot, sixteenths, COUNT_MAX);
        self.warmed += sixteenths.max(0) as u64;
        self.reorder(at);
        if at != Where::Origin || sixteenths <= 0 {
            return None;
        }
        let count = self.heat.count(slot);
        match self.threshold() {
            Some(threshold) if !reaches(count, threshold) => None,
            Some(_) => self.promote(now, slot, Some(count)),
            None => self.promote(now, slot, None),
        }
    }

    /// What a write counts to a chunk that is `at`: less than is stated where the array's cache takes it as quickly.
    fn write_sixteenths(&self, at: Where) -> i64 {
        match self.placing.write_sixteenths() {
            taken @ 1.. if self.placing.exclusive => {
                (taken as f64 * self.worth.write(matches!(at, Where::Tier(_)))).round() as i64
            }
            sixteenths => sixteenths,
        }
    }

    /// What a read counts of which this many sixteenths take a disk: less than nothing where the array's cache answers sooner than the tier.
    fn read_sixteenths(&self, slow: u64) -> i64 {
        match self.placing.exclusive {
            true => (COUNT as f64 * self.worth.read(slow as f64 / COUNT as f64)).round() as i64,
            false => slow as i64,
        }
    }

    /// What a migration costs now, in random accesses of the origin.
    fn cost(&self) -> f64 {
        self.placing.migration_cost * self.worth.migrating()
    }

    fn ghosts_pace(&self) -> Pace {
        let migration = self.worth.migration();
        let at_once = f64::from(self.placing.moving_max) / migration.as_secs_f64().max(1e-6);
        Pace {
            margin: self.placing.margin_sixteenths(),
            cost: self.cost(),
            ticks: reach::tick(migration),
            chunks_per_second: at_once.min(self.budget.rate() / self.shape.chunk_bytes as f64),
        }
    }

    /// Everything cools if enough was counted since the last time.
    fn cool(&mut self) {
        let every = self.placing.cooling.max(1e-6) * f64::from(self.shape.capacity_chunks) * COUNT as f64;
        if self.warmed as f64 >= every {
            self.warmed = 0;
            self.statistics.coolings += 1;
            let sixteenths = (self.mean_count() / COOLED_SHARE).max(COUNT);
            self.heat.cool(sixteenths);
            self.adaptation.cool(sixteenths);
        }
    }

    /// The mean count in the tier, in sixteenths, by a sample of its places.
    fn mean_count(&self) -> u64 {
        let step = (self.shape.capacity_chunks / MEAN_PLACES).max(1) as usize;
        let held = (0..self.shape.capacity_chunks).step_by(step).filter(|place| self.coldest.holds(*place));
        let (sum, count) = held.fold((0, 0), |(sum, count), place| {
            (sum + self.heat.count(self.owners[place as usize]), count + 1)
        });
        sum / u64::max(count, 1)
    }

    /// A place for the chunk in `slot`: a free one, or that of the coldest, which must be colder than `count` by the margin where one is given.
    fn promote(&mut self, now: Nanos, slot: u32, count: Option<u64>) -> Option<Promotion> {
        let coldest = match self.free.last() {
            Some(_) => None,
            None => {
                let place = self.coldest.first()?;
                let coldest = self.heat.count(self.owners[place as usize]);
                if count.is_some_and(|count| count < coldest + self.placing.margin_sixteenths()) {
                    return None;
                }
                Some(place)
            }
        };
        let selects = self.placing.admission.selects();
        // A fixed threshold is that and nothing else.
        if self.placing.admission == Admission::Adaptive && !self.earned.lets_in() {
            self.statistics.unearned += 1;
            return None;
        }
        if self.waiting.len() as u32 >= self.placing.moving_max
            || selects && !self.budget.take(now, self.shape.chunk_bytes)
        {
            self.statistics.deferred += 1;
            return None;
        }
        self.adaptation.migrates(self.cost());
        let (place, displaced) = match coldest {
            None => (self.free.pop().expect("one is free"), None),
            Some(place) => (place, Some(self.displace(place))),
        };
        self.earned.came(place);
        self.owners[place as usize] = slot;
        self.heat.set_mark(slot, (place + 1) | MOVING);
        self.moving += 1;
        self.statistics.promotions += 1;
        self.timed.get_or_insert((self.heat.chunk(slot), now));
        Some(Promotion { chunk: Chunk::of_id(self.heat.chunk(slot)), place, displaced })
    }

    /// Has the chunk, which is `at`, leave if its accesses have cost all that they had saved, and as much as an access besides.
    fn demote(&mut self, now: Nanos, chunk: Chunk, at: Where) -> Option<Demotion> {
        let Where::Tier(place) = at else { return None };
        let slot = self.owners[place as usize];
        if !self.placing.admission.selects() || !self.heat.owes(slot) {
            return None;
        }
        // Where the tier takes writes, it has to be written back.
        let moves = self.placing.write_weight > 0.0;
        if self.under_way() >= self.placing.moving_max
            || moves && !self.budget.take(now, self.shape.chunk_bytes)
        {
            self.statistics.deferred += 1;
            return None;
        }
        let (heat, owners) = (&self.heat, &self.owners);
        self.coldest.remove(place, |place| heat.key(owners[place as usize]));
        self.earned.left(place);
        self.let_go(slot);
        self.leaving += 1;
        self.statistics.left += 1;
        Some(Demotion { chunk, place })
    }

    /// A demotion has ended: its place is free.
    ///
    /// # Panics
    /// If none was under way.
    pub fn left(&mut self, place: u32) {
        self.leaving = self.leaving.checked_sub(1).expect("a chunk is leaving");
        self.free.push(place);
    }

    fn displace(&mut self, place: u32) -> Chunk {
        let slot = self.owners[place as usize];
        let (heat, owners) = (&self.heat, &self.owners);
        self.coldest.remove(place, |place| heat.key(owners[place as usize]));
        self.statistics.displaced += 1;
        self.adaptation.displaces();
        self.earned.left(place);
        self.let_go(slot)
    }

    /// The chunk in `slot` has no place any more.
    fn let_go(&mut self, slot: u32) -> Chunk {
        let chunk = Chunk::of_id(self.heat.chunk(slot));
        self.heat.set_mark(slot, 0);
        if !self.placing.admission.counts() {
            self.heat.forget(slot);
        }
        chunk
    }

    /// A promotion has ended: the chunk is in its place, or (`kept` is false: an error, or a write that overtook it) it is not, and the place is free.
    ///
    /// # Panics
    /// If the chunk is not on its way.
    pub fn moved(&mut self, chunk: Chunk, kept: bool) {
        if let Some((_, began)) = self.timed.take_if(|(timed, _)| *timed == chunk.id()) {
            self.worth.migrated(self.now.saturating_since(began));
        }
        let slot = self.heat.find(chunk.id()).expect("a chunk on its way is remembered");
        let mark = self.heat.mark(slot);
        assert!(mark & MOVING != 0, "chunk {} of volume {} is not on its way", chunk.index, chunk.volume);
        let place = (mark & !MOVING) - 1;
        self.moving -= 1;
        if kept {
            self.statistics.promotions_kept += 1;
            self.heat.set_mark(slot, place + 1);
            if !self.switches.is_on(chunk.volume) {
                // It set out before its volume was switched off, and counts no more: as hot as it was it would stay for as long as others take to be hotter.
                self.heat.set_key(slot, 0);
            }
            let (heat, owners) = (&self.heat, &self.owners);
            self.coldest.insert(place, |place| heat.key(owners[place as usize]));
        } else {
            self.free.push(place);
            self.let_go(slot);
        }
    }

    /// A chunk in the tier is no longer true: its place is free. Nothing happens if it is not there.
    pub fn invalidate(&mut self, chunk: Chunk) {
        if let Some(slot) = self.heat.find(chunk.id())
            && let Where::Tier(place) = self.place_of(slot)
        {
            let (heat, owners) = (&self.heat, &self.owners);
            self.coldest.remove(place, |place| heat.key(owners[place as usize]));
            self.earned.left(place);
            self.free.push(place);
            self.let_go(slot);
        }
    }

    /// The origin has answered a read of a chunk whose touch had this age.
    pub fn origin_answered(&mut self, age: Age, latency: Nanos) {
        let slow = latency >= self.placing.fast_latency;
        self.reach.answered(age, slow);
        if slow {
            self.worth.disk_read(latency);
        } else {
            self.worth.array_read(latency);
        }
    }

    /// The tier has answered a read.
    pub fn tier_answered(&mut self, latency: Nanos) {
        self.worth.tier_read(latency);
    }

    /// The origin has answered a write: how long that took, and with the wait for earlier writes of the same blocks.
    pub fn origin_wrote(&mut self, latency: Nanos, with_wait: Nanos) {
        self.worth.origin_wrote(latency, with_wait);
    }

    /// The tier has taken a write in place of the origin; see [`Placement::origin_wrote`].
    pub fn tier_wrote(&mut self, latency: Nanos, with_wait: Nanos) {
        self.worth.tier_wrote(latency, with_wait);
    }

    /// A client's request for which the origin was asked, and which was told at `asked`, was answered after `latency`. What it has brought about, and what earlier ones have, is [due](Placement::due).
    pub fn answered(&mut self, now: Nanos, asked: Nanos, latency: Nanos) {
        self.now = self.now.max(now);
        // A chunk that waits is in nobody's way.
        let met = self.moving > self.waiting.len() as u32;
        self.budget.answered(now, latency, met, &self.placing);
        let due = self.waiting.iter().take_while(|(brought, _)| *brought <= asked).count();
        self.due = self.due.max(due);
    }

    /// Chunks that have set out, to the tier or back.
    fn under_way(&self) -> u32 {
        self.moving - self.waiting.len() as u32 + self.leaving
    }

    /// The next chunk that is to be moved now; to be asked for after every [`Placement::answered`], until there is none.
    ///
    /// A migration sets out behind the answer to the request that brought it about. Ahead of that request's own read it would have its client wait for the same disk, and beside it those who ask for what
    /// lies nearby would find both disks of a mirrored pair busy.
    pub fn due(&mut self) -> Option<Promotion> {
        if self.under_way() >= self.placing.moving_max {
            return None;
        }
        self.due = self.due.checked_sub(1)?;
        self.waiting.pop_front().map(|(_, promotion)| promotion)
    }

    fn end_window(&mut self, now: Nanos) {
        if now < self.window_ends {
            return;
        }
        // A window of few accesses says little: it goes on.
        if self.window_ends > Nanos::ZERO && self.adaptation.knows_little() {
            self.window_ends = now + self.placing.window;
            return;
        }
        self.adaptation.end_window(self.coldest.len(), self.shape.capacity_chunks);
        self.worth.end_window();
        self.earned.end_window();
        self.window_ends = now + self.placing.window;
    }
}

/// Whether a count reaches a threshold, rounded: accesses that the array might have answered count a little less than one.
fn reaches(count: u64, threshold: u16) -> bool {
    count + COUNT / 2 >= u64::from(threshold) * COUNT
}

#[cfg(test)]
mod tests;
