//! A volume on virtual time: its partition, what is in flight on it, and the rules of the daemon's volume machine.
//!
//! Reads fill, join reads that are under way, and never insert what a write overlaps; writes go to the origin first, in
//! their order where they overlap, and neither allocate nor touch recency. It is *not* the machine itself: a shrinking
//! quota is in force at once, misses that wait are not merged, and there are no errors.

use crate::appliance::Appliance;
use crate::calendar::{Calendar, Planned};
use crate::interval::Recorder;
use crate::load::Asked;
use crate::origin::Origin;
use crate::outcome::ChosenPolicy;
use crate::scenario::Replacement;
use crate::slab::{Chains, NONE, Slab};
use crate::tier::{Home, Piece, Step, Tier};
use foldhash::fast::FixedState;
use forebay_cache::{
    AdaptivePartition, Inserted, Insertion, Partition, Progress, Refusal, SELECTABLE, Statistics,
};
use forebay_control::ZoneRange;
use forebay_locality::LiveObserver;
use forebay_policy::placement::Age;
use forebay_policy::{Fifo, Lru, Policy, PolicyKind, TwoPool};
use forebay_units::{BlockIndex, BlockSize, ByteRange, Nanos};
use hashbrown::HashMap;
use std::collections::VecDeque;

/// Requests of a volume at its origin at most, as in the daemon.
const ORIGIN_REQUESTS_MAX: u32 = 256;
/// Reads of a warm-up at the origin at most, and the bytes of one, as in the daemon.
const PREWARM_OUTSTANDING_MAX: u32 = 4;
const PREWARM_READ_BYTES: u64 = 256 << 10;

/// By block: which flight.
type Blocks = HashMap<u64, u32, FixedState>;

/// A partition with one of the policies.
#[derive(Debug)]
pub(crate) enum Cache {
    TwoPool(Box<Partition<TwoPool>>),
    Lru(Box<Partition<Lru>>),
    Fifo(Box<Partition<Fifo>>),
    /// Any other policy, behind a pointer.
    Other(Box<Partition<Box<dyn Policy + Send>>>),
    /// Whichever suits best at the time.
    Adaptive(Box<AdaptivePartition>),
}

macro_rules! each {
    ($cache:expr, $partition:ident => $what:expr, $adaptive:ident => $other:expr) => {
        match $cache {
            Cache::TwoPool($partition) => $what,
            Cache::Lru($partition) => $what,
            Cache::Fifo($partition) => $what,
            Cache::Other($partition) => $what,
            Cache::Adaptive($adaptive) => $other,
        }
    };
}

impl Cache {
    /// Of `quota` blocks, which may become `most`.
    pub(crate) fn new(replacement: Replacement, quota: u64, most: u64) -> Cache {
        match replacement {
            Replacement::Policy(PolicyKind::TwoPool) => {
                Cache::TwoPool(Box::new(Partition::new(TwoPool::default(), quota, 0)))
            }
            Replacement::Policy(PolicyKind::Lru) => {
                Cache::Lru(Box::new(Partition::new(Lru::new(), quota, 0)))
            }
            Replacement::Policy(PolicyKind::Fifo) => {
                Cache::Fifo(Box::new(Partition::new(Fifo::new(), quota, 0)))
            }
            Replacement::Policy(other) => {
                Cache::Other(Box::new(Partition::new(other.new_policy(), quota, 0)))
            }
            Replacement::Adaptive => {
                Cache::Adaptive(Box::new(AdaptivePartition::new(&SELECTABLE, quota, most, 0)))
            }
        }
    }

    #[inline]
    fn lookup(&mut self, block: u64) -> bool {
        let block = BlockIndex(block);
        each!(self, partition => partition.lookup(block).is_some(), adaptive => adaptive.lookup(block))
    }

    fn holds(&self, block: u64) -> bool {
        let block = BlockIndex(block);
        each!(self, partition => partition.peek(block).is_some(), adaptive => adaptive.holds(block))
    }

    fn insert(&mut self, block: u64, insertion: Insertion) -> Inserted {
        let block = BlockIndex(block);
        each!(self, partition => partition.insert(block, insertion), adaptive => adaptive.insert(block, insertion))
    }

    /// Sets the quota, in force at once.
    pub(crate) fn set_quota(&mut self, blocks: u64) {
        each!(self, partition => {
            partition.set_quota(blocks);
            while partition.step(1 << 20, |_, _| {}) != Progress::Settled {}
        }, adaptive => adaptive.set_quota(blocks));
    }

    pub(crate) fn statistics(&self) -> Statistics {
        each!(self, partition => partition.statistics(), adaptive => adaptive.statistics())
    }

    /// What an adaptive one came to.
    pub(crate) fn chosen(&self) -> Option<ChosenPolicy> {
        let Cache::Adaptive(adaptive) = self else { return None };
        let selector = adaptive.selector();
        Some(ChosenPolicy { policy: selector.choice().name(), changes: selector.changes() })
    }
}

/// What a flight is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Fill,
    Prewarm(u32),
    Write,
    /// A write that is copied to the tier.
    Copy,
    /// A step of a migration to the tier, by its number.
    Migration(u32, Step),
}

impl Purpose {
    fn writes(self) -> bool {
        match self {
            Purpose::Fill | Purpose::Prewarm(_) => false,
            Purpose::Write | Purpose::Copy => true,
            Purpose::Migration(_, step) => matches!(step, Step::Write | Step::WriteBack),
        }
    }
}

/// A request to the origin or to the tier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) volume: u32,
    pub(crate) purpose: Purpose,
    /// A write overlaps it: what it brings is not inserted.
    pub(crate) marked: bool,
    pub(crate) first: u64,
    pub(crate) end: u64,
    /// Client requests that wait for it.
    pub(crate) waiters: u32,
    /// Writes that must come after it.
    pub(crate) dependents: u32,
    /// Writes that it must come after.
    pub(crate) waits_for: u32,
    /// Which origin or tier serves it, and which bytes of that it is about.
    pub(crate) device: u32,
    pub(crate) range: ByteRange,
    /// Where a tier wants to know how long its origin took: the age of the chunk.
    pub(crate) age: Option<Age>,
    /// When it was sent.
    pub(crate) sent: Nanos,
    /// When a client asked for it: it may have waited for earlier writes of the same blocks.
    pub(crate) asked: Nanos,
}

/// A client's request that is not answered yet.
#[derive(Clone, Copy, Debug)]
struct Client {
    started: Nanos,
    parts: u32,
    bytes: u32,
    /// The load that it belongs to.
    load: u32,
    writes: bool,
    /// Whether some of it took the origin, not the tier alone.
    asked_origin: bool,
}

/// A request on its way from its client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnItsWay {
    pub(crate) volume: u32,
    pub(crate) load: u32,
    pub(crate) asked: Asked,
    pub(crate) started: Nanos,
}

/// What volumes share: the calendar, the origins, and everything in flight.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) now: Nanos,
    pub(crate) calendar: Calendar,
    pub(crate) origins: Vec<Origin>,
    pub(crate) appliances: Vec<Appliance>,
    /// Partitions, or the one cache that volumes share.
    pub(crate) caches: Vec<Cache>,
    pub(crate) on_their_way: Slab<OnItsWay>,
    pub(crate) flights: Slab<Flight>,
    clients: Slab<Client>,
    chains: Chains,
    pub(crate) hit_latency: Nanos,
    pub(crate) tier: Option<Box<Tier>>,
}

impl World {
    pub(crate) fn new(hit_latency: Nanos) -> World {
        World { hit_latency, ..World::default() }
    }

    /// A request sets out to its device.
    pub(crate) fn set_out(&mut self, flight: u32) {
        let now = self.now;
        let at = &mut self.flights[flight];
        at.sent = now;
        let (writes, length) = (at.purpose.writes(), at.range.length);
        match self.origins[at.device as usize].set_out(now, flight, writes, length) {
            Some(at) => self.calendar.plan(at, Planned::Submit { flight }),
            None => self.submit(flight),
        }
    }

    /// A request reaches its device.
    pub(crate) fn submit(&mut self, flight: u32) {
        let at = self.flights[flight];
        let origin = &mut self.origins[at.device as usize];
        origin.submit(at.device, self.now, flight, at.purpose.writes(), at.range, &mut self.calendar);
    }

    /// Client requests that are not answered yet, and requests to origins.
    pub(crate) fn in_flight(&self) -> (usize, usize) {
        (self.clients.used() + self.on_their_way.used(), self.flights.used())
    }
}

/// A warm-up that goes on.
#[derive(Debug, Default)]
struct Prewarm {
    ranges: VecDeque<(u64, u64)>,
    bytes_per_second: u64,
    next_at: Nanos,
    outstanding: u32,
    generation: u32,
    planned: bool,
}

/// A volume.
#[derive(Debug)]
pub(crate) struct Volume {
    number: u32,
    origin: u32,
    /// Where it begins on its origin.
    base: u64,
    size: u64,
    block_size: BlockSize,
    /// The place of its cache, and of its first block there.
    cache: (usize, u64),
    /// Its appliance and its worker there.
    pub(crate) appliance: Option<(usize, usize)>,
    pub(crate) locality: LiveObserver,
    pub(crate) recorder: Recorder,
    /// Reads under way that others may join.
    joinable: Blocks,
    /// The last write of every block that one is under way or waits for.
    writing: Blocks,
    queue: VecDeque<u32>,
    at_origin: u32,
    prewarm: Prewarm,
}

impl Volume {
    pub(crate) fn new(
        number: u32,
        (origin, base): (u32, u64),
        (size, block_size): (u64, BlockSize),
        cache: (usize, u64),
        appliance: Option<(usize, usize)>,
        locality: LiveObserver,
    ) -> Volume {
        Volume {
            number,
            origin,
            base,
            size,
            block_size,
            cache,
            appliance,
            locality,
            recorder: Recorder::new(),
            joinable: Blocks::default(),
            writing: Blocks::default(),
            queue: VecDeque::new(),
            at_origin: 0,
            prewarm: Prewarm::default(),
        }
    }

    /// Where it lies.
    pub(crate) fn home(&self) -> Home {
        Home { origin: self.origin, base: self.base, size: self.size }
    }

    /// When an answer that is ready at `at` is back at its client.
    fn back(&self, world: &mut World, at: Nanos, writes: bool, bytes: u64) -> Nanos {
        match self.appliance {
            Some((appliance, _)) => world.appliances[appliance].answer(at, writes, bytes),
            None => at,
        }
    }

    /// A client's request, sent at `started`, arrives. Returns when it was answered if it was a hit.
    pub(crate) fn ask(
        &mut self,
        world: &mut World,
        asked: Asked,
        load: u32,
        started: Nanos,
    ) -> Option<Nanos> {
        let now = world.now;
        if asked.writes {
            self.write(world, asked, load, started);
            return None;
        }
        self.locality.observe_read(asked.first, asked.end - asked.first, now);
        self.recorder.read(asked.first << self.block_size.shift(), asked.bytes);
        let mut client = NONE;
        let mut run = asked.first..asked.first;
        let mut joined = NONE;
        for block in asked.first..asked.end {
            if world.caches[self.cache.0].lookup(self.cache.1 + block) {
                continue;
            }
            if client == NONE {
                let bytes = asked.bytes as u32;
                client = world.clients.insert(Client {
                    started,
                    parts: 0,
                    bytes,
                    load,
                    writes: false,
                    asked_origin: false,
                });
            }
            if let Some(&flight) = self.joinable.get(&block) {
                if flight != joined {
                    joined = flight;
                    self.wait(world, client, flight);
                }
                continue;
            }
            if run.end != block {
                self.fill(world, run.clone(), client);
                run = block..block;
            }
            run.end = block + 1;
        }
        if client == NONE {
            let at = self.back(world, now + world.hit_latency, false, asked.bytes);
            self.recorder.hit(at.saturating_since(started));
            return Some(at);
        }
        self.fill(world, run, client);
        self.recorder.more_outstanding(now);
        self.pump(world);
        None
    }

    fn wait(&self, world: &mut World, client: u32, flight: u32) {
        world.clients[client].parts += 1;
        world.flights[flight].waiters = world.chains.push(world.flights[flight].waiters, client);
    }

    fn flight(&self, now: Nanos, purpose: Purpose, blocks: &std::ops::Range<u64>) -> Flight {
        Flight {
            volume: self.number,
            purpose,
            marked: false,
            first: blocks.start,
            end: blocks.end,
            waiters: NONE,
            dependents: NONE,
            waits_for: 0,
            device: self.origin,
            range: ByteRange::new(
                self.base + self.byte(blocks.start),
                self.byte(blocks.end) - self.byte(blocks.start),
            ),
            age: None,
            sent: Nanos::ZERO,
            asked: now,
        }
    }

    /// Where a block begins, or the volume ends.
    fn byte(&self, block: u64) -> u64 {
        (block << self.block_size.shift()).min(self.size)
    }

    /// Calls `each` with the parts of a request for blocks, each with its flight, which is on its way to the origin or to the tier, wherever its chunk is.
    fn each_part(
        &mut self,
        world: &mut World,
        purpose: Purpose,
        blocks: std::ops::Range<u64>,
        mut each: impl FnMut(&mut Volume, &mut World, Flight),
    ) {
        if !world.tier.as_ref().is_some_and(|tier| tier.serves(self.number)) {
            let flight = self.flight(world.now, purpose, &blocks);
            return each(self, world, flight);
        }
        world.route(self.number, self.byte(blocks.start), self.byte(blocks.end), purpose.writes());
        let mut routed = std::mem::take(world.pieces());
        for Piece { start, end, device, range, age } in routed.drain(..) {
            let shift = self.block_size.shift();
            let part = start >> shift..end.div_ceil(1 << shift);
            let flight = Flight { device, range, age, ..self.flight(world.now, purpose, &part) };
            each(self, world, flight);
        }
        *world.pieces() = routed;
    }

    fn fill(&mut self, world: &mut World, blocks: std::ops::Range<u64>, client: u32) {
        if blocks.is_empty() {
            return;
        }
        self.each_part(world, Purpose::Fill, blocks, |volume, world, part| {
            let blocks = part.first..part.end;
            let marked =
                !volume.writing.is_empty() && blocks.clone().any(|block| volume.writing.contains_key(&block));
            let flight = world.flights.insert(Flight { marked, ..part });
            volume.wait(world, client, flight);
            if !marked {
                for block in blocks {
                    volume.joinable.insert(block, flight);
                }
            }
            volume.queue.push_back(flight);
        });
    }

    fn write(&mut self, world: &mut World, asked: Asked, load: u32, started: Nanos) {
        let now = world.now;
        self.recorder.write(asked.bytes);
        self.recorder.more_outstanding(now);
        let bytes = asked.bytes as u32;
        let client = world.clients.insert(Client {
            started,
            parts: 0,
            bytes,
            load,
            writes: true,
            asked_origin: false,
        });
        self.each_part(world, Purpose::Write, asked.first..asked.end, |volume, world, part| {
            let flight = world.flights.insert(part);
            volume.wait(world, client, flight);
            let mut after = NONE;
            for block in part.first..part.end {
                if let Some(before) = volume.writing.insert(block, flight)
                    && before != after
                    // A write may meet the same one again behind another: it waits for it once.
                    && world.chains.first(world.flights[before].dependents) != Some(flight)
                {
                    after = before;
                    let head = world.flights[before].dependents;
                    world.flights[before].dependents = world.chains.push(head, flight);
                    world.flights[flight].waits_for += 1;
                }
            }
            if world.flights[flight].waits_for == 0 {
                volume.send_write(world, flight);
            }
        });
        self.pump(world);
    }

    /// From now on, reads under way that a write overlaps bring nothing to keep.
    fn send_write(&mut self, world: &mut World, flight: u32) {
        let (first, end) = (world.flights[flight].first, world.flights[flight].end);
        if !self.joinable.is_empty() {
            for block in first..end {
                if let Some(&fill) = self.joinable.get(&block) {
                    world.flights[fill].marked = true;
                    self.forget_joinable(world, fill);
                }
            }
        }
        self.queue.push_back(flight);
    }

    fn forget_joinable(&mut self, world: &World, fill: u32) {
        for block in world.flights[fill].first..world.flights[fill].end {
            if self.joinable.get(&block) == Some(&fill) {
                self.joinable.remove(&block);
            }
        }
    }

    /// Sends what may go out.
    fn pump(&mut self, world: &mut World) {
        while self.at_origin < ORIGIN_REQUESTS_MAX
            && let Some(flight) = self.queue.pop_front()
        {
            self.at_origin += 1;
            if matches!(world.flights[flight].purpose, Purpose::Fill) {
                self.recorder.origin_read();
            }
            world.set_out(flight);
        }
        if !self.prewarm.ranges.is_empty() {
            self.pump_prewarm(world);
        }
    }

    /// The answer to a request arrives. `answered` is told of every client's request that it completes: its load, and
    /// when.
    pub(crate) fn answer(&mut self, world: &mut World, flight: u32, answered: &mut Vec<(u32, Nanos)>) {
        let done = world.flights[flight];
        self.at_origin -= 1;
        match done.purpose {
            Purpose::Write => self.written(world, flight),
            _ => self.filled(world, flight),
        }
        if let Some(tier) = &mut world.tier {
            let latency = world.now.saturating_since(done.sent);
            let with_wait = world.now.saturating_since(done.asked);
            match (done.purpose, done.age) {
                (Purpose::Fill, Some(age)) => tier.placement.origin_answered(age, latency),
                (Purpose::Fill, None) if done.device == tier.device => tier.placement.tier_answered(latency),
                (Purpose::Write, Some(_)) => tier.placement.origin_wrote(latency, with_wait),
                (Purpose::Write, None) if done.device == tier.device => {
                    tier.placement.tier_wrote(latency, with_wait);
                }
                _ => {}
            }
        }
        let asked_origin = world.tier.as_ref().is_none_or(|tier| done.device != tier.device);
        let mut waiters = world.flights[flight].waiters;
        while let Some((client, rest)) = world.chains.pop(waiters) {
            waiters = rest;
            world.clients[client].parts -= 1;
            world.clients[client].asked_origin |= asked_origin;
            let waiting = world.clients[client];
            if waiting.parts == 0 {
                world.clients.free(client);
                let at = world.now + world.hit_latency;
                let at = self.back(world, at, waiting.writes, waiting.bytes.into());
                self.recorder.done(world.now, at.saturating_since(waiting.started), waiting.writes);
                if let Some(tier) = &mut world.tier
                    && waiting.asked_origin
                {
                    tier.placement.answered(world.now, at.saturating_since(waiting.started));
                }
                answered.push((waiting.load, at));
            }
        }
        world.flights.free(flight);
        self.pump(world);
    }

    fn filled(&mut self, world: &mut World, flight: u32) {
        let done = world.flights[flight];
        let warms = matches!(done.purpose, Purpose::Prewarm(_)) && done.waiters == NONE;
        if !done.marked {
            self.forget_joinable(world, flight);
            let insertion = if warms { Insertion::PrewarmTail } else { Insertion::Miss };
            for block in done.first..done.end {
                let inserted = world.caches[self.cache.0].insert(self.cache.1 + block, insertion);
                if inserted == Inserted::Refused(Refusal::NoQuota) {
                    break;
                }
                if warms && matches!(inserted, Inserted::Refused(_)) {
                    // There is no room that warm-up may take.
                    self.prewarm.ranges.clear();
                    break;
                }
            }
        }
        if done.purpose == Purpose::Prewarm(self.prewarm.generation) {
            self.prewarm.outstanding -= 1;
        }
    }

    fn written(&mut self, world: &mut World, flight: u32) {
        let done = world.flights[flight];
        for block in done.first..done.end {
            if self.writing.get(&block) == Some(&flight) {
                self.writing.remove(&block);
            }
        }
        let mut dependents = done.dependents;
        while let Some((next, rest)) = world.chains.pop(dependents) {
            dependents = rest;
            world.flights[next].waits_for -= 1;
            if world.flights[next].waits_for == 0 {
                self.send_write(world, next);
            }
        }
    }

    /// Starts a warm-up in place of the one that goes on.
    pub(crate) fn warm(&mut self, world: &mut World, zones: &[ZoneRange], bytes_per_second: u64) {
        let blocks = self.block_size.blocks_for(forebay_units::Bytes(self.size));
        let ranges = zones
            .iter()
            .map(|zone| (zone.first_block.min(blocks), (zone.first_block + zone.blocks).min(blocks)))
            .filter(|(first, end)| first < end)
            .collect();
        self.prewarm = Prewarm {
            ranges,
            bytes_per_second,
            next_at: world.now,
            outstanding: 0,
            generation: self.prewarm.generation.wrapping_add(1),
            planned: self.prewarm.planned,
        };
        self.pump(world);
    }

    /// Ends the warm-up; what it asked for is still inserted.
    pub(crate) fn cancel_warm(&mut self) {
        self.prewarm.ranges.clear();
    }

    /// Whether a warm-up goes on.
    pub(crate) fn is_warming(&self) -> bool {
        !self.prewarm.ranges.is_empty() || self.prewarm.outstanding > 0
    }

    /// The rate allows the next read of the warm-up.
    pub(crate) fn wake_prewarm(&mut self, world: &mut World) {
        self.prewarm.planned = false;
        self.pump(world);
    }

    /// What its cache has done; with a shared one, for all.
    pub(crate) fn statistics(&self, world: &World) -> Statistics {
        world.caches[self.cache.0].statistics()
    }

    /// The policy that its cache came to, where it chooses.
    pub(crate) fn chosen(&self, world: &World) -> Option<ChosenPolicy> {
        world.caches[self.cache.0].chosen()
    }

    /// Sets its quota, in force at once.
    pub(crate) fn set_quota(&self, world: &mut World, blocks: u64) {
        world.caches[self.cache.0].set_quota(blocks);
    }

    fn pump_prewarm(&mut self, world: &mut World) {
        if self.statistics(world).quota_blocks == 0 {
            self.prewarm.ranges.clear();
        }
        let most = (PREWARM_READ_BYTES >> self.block_size.shift()).max(1);
        while self.at_origin < ORIGIN_REQUESTS_MAX && self.prewarm.outstanding < PREWARM_OUTSTANDING_MAX {
            if self.prewarm.ranges.is_empty() {
                return;
            }
            if world.now < self.prewarm.next_at {
                if !self.prewarm.planned {
                    self.prewarm.planned = true;
                    world.calendar.plan(self.prewarm.next_at, Planned::Prewarm { volume: self.number });
                }
                return;
            }
            let Some(blocks) = self.next_warm_run(world, most) else { return };
            let bytes = (blocks.end - blocks.start) << self.block_size.shift();
            let span = u128::from(bytes) * 1_000_000_000 / u128::from(self.prewarm.bytes_per_second.max(1));
            self.prewarm.next_at =
                self.prewarm.next_at.max(world.now).saturating_add(Nanos(span.min(1 << 62) as u64));
            self.prewarm.outstanding += 1;
            let purpose = Purpose::Prewarm(self.prewarm.generation);
            let flight = world.flights.insert(self.flight(world.now, purpose, &blocks));
            for block in blocks {
                self.joinable.insert(block, flight);
            }
            // As in the daemon, behind the clients' requests, of which none waits here.
            self.at_origin += 1;
            world.set_out(flight);
        }
    }

    /// The next run of at most `most` blocks that are neither there nor on their way nor being written.
    fn next_warm_run(&mut self, world: &World, most: u64) -> Option<std::ops::Range<u64>> {
        let mut run: Option<std::ops::Range<u64>> = None;
        while let Some(front) = self.prewarm.ranges.front_mut() {
            if front.0 == front.1 {
                self.prewarm.ranges.pop_front();
                if run.is_some() {
                    break;
                }
                continue;
            }
            if run.as_ref().is_some_and(|run| run.end - run.start >= most) {
                break;
            }
            let block = front.0;
            let skip = world.caches[self.cache.0].holds(self.cache.1 + block)
                || self.joinable.contains_key(&block)
                || self.writing.contains_key(&block);
            if skip && run.is_some() {
                break;
            }
            if !skip {
                run.get_or_insert(block..block).end = block + 1;
            }
            front.0 += 1;
        }
        run
    }
}
