//! A volume on virtual time: its partition, what is in flight on it, and the rules of the daemon's volume machine.
//!
//! Reads fill, join reads that are under way, and never insert what a write overlaps: what they missed of that enters with what the write wrote. Where nothing is
//! cached they go to the origin each by itself, and bring nothing, though a quota be granted before they are answered.
//! Writes go to the origin first, in their order where they overlap, and neither allocate otherwise nor touch recency. It is *not* the machine itself: a shrinking
//! quota is in force at once, misses that wait are not merged, and there are no errors.

mod cache;
mod runs;
#[cfg(test)]
pub(crate) mod tests;
mod warming;
mod world;

pub(crate) use cache::Cache;
pub(crate) use world::{Flight, OnItsWay, Purpose, World};

use crate::interval::Recorder;
use crate::load::Asked;
use crate::outcome::ChosenPolicy;
use crate::slab::NONE;
use crate::tier::{Home, Piece};
use forebay_cache::{Inserted, Insertion, Refusal, Statistics};
use forebay_control::prewarm::resident_ranges;
use forebay_locality::LiveObserver;
use forebay_units::{BlockRange, BlockSize, ByteRange, Bytes, Nanos};
use runs::Runs;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use warming::Prewarm;
use world::Client;

/// Requests of a volume at its origin at most, as in the daemon.
const ORIGIN_REQUESTS_MAX: u32 = 256;

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
    joinable: Runs<u32>,
    /// The last write of every block that one is under way or waits for.
    writing: Runs<u32>,
    /// Blocks that a read missed while a write of them was under way, and since when: the next write of all of them that is sent no earlier
    /// leaves them cached.
    wanted: Runs<Nanos>,
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
            joinable: Runs::default(),
            writing: Runs::default(),
            wanted: Runs::default(),
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
        self.recorder.read(asked.offset, asked.bytes);
        let mut client = NONE;
        let mut run = asked.first..asked.first;
        let mut joined = NONE;
        let caches_nothing = self.caches_nothing(world);
        for block in asked.first..asked.end {
            if world.caches[self.cache.0].lookup(self.cache.1 + block) {
                continue;
            }
            if client == NONE {
                let bytes = asked.bytes as u32;
                client = world.clients.insert(Client {
                    started,
                    arrived_in: self.recorder.interval,
                    parts: 0,
                    bytes,
                    load,
                    writes: false,
                    asked_origin: false,
                });
            }
            if !caches_nothing && let Some(flight) = self.joinable.get(block) {
                if flight != joined {
                    joined = flight;
                    self.wait(world, client, flight);
                }
                continue;
            }
            if run.end != block {
                self.fill(world, run.clone(), client);
                self.passed(world, run.end..block);
                run = block..block;
            }
            run.end = block + 1;
        }
        if client == NONE {
            self.passed(world, run.end..asked.end);
            let answered = now + world.hit_latency;
            let at = self.back(world, answered, false, asked.bytes);
            self.recorder.hit(now, answered, at.saturating_since(started));
            return Some(at);
        }
        let rest = run.end..asked.end;
        self.fill(world, run, client);
        self.passed(world, rest);
        self.recorder.more_outstanding(now, false);
        self.pump(world);
        None
    }

    /// Memory has these blocks, or they are on their way for others: where there is a tier, sequential runs go on over them.
    fn passed(&self, world: &mut World, blocks: Range<u64>) {
        if let Some(tier) = &mut world.tier
            && tier.serves(self.number)
        {
            let (start, end) = (self.byte(blocks.start), self.byte(blocks.end));
            tier.placement.passed(self.number, start, end - start);
        }
    }

    /// Whether reads go to the origin each by itself, as they do in the daemon where neither memory nor flash has a quota and nothing is left of an earlier
    /// one: here nothing ever is. A place on the tier is such a quota, also while the tier is switched off.
    fn caches_nothing(&self, world: &World) -> bool {
        world.caches[self.cache.0].quota_blocks() == 0
            && !world.tier.as_ref().is_some_and(|tier| tier.serves(self.number))
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
            whole_first: 0,
            whole_end: 0,
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
        let caches_nothing = self.caches_nothing(world);
        self.each_part(world, Purpose::Fill, blocks, |volume, world, part| {
            let blocks = part.first..part.end;
            let overlaps = volume.writing.any(&blocks);
            let flight = world.flights.insert(Flight { marked: caches_nothing || overlaps, ..part });
            volume.wait(world, client, flight);
            if caches_nothing {
                // Nobody joins it, and what it brings is kept nowhere.
            } else if overlaps {
                volume.want(world.now, blocks);
            } else {
                volume.joinable.put(blocks, flight);
            }
            volume.queue.push_back(flight);
        });
    }

    fn write(&mut self, world: &mut World, asked: Asked, load: u32, started: Nanos) {
        let now = world.now;
        self.recorder.write(asked.bytes);
        self.recorder.more_outstanding(now, true);
        let bytes = asked.bytes as u32;
        let client = world.clients.insert(Client {
            started,
            arrived_in: self.recorder.interval,
            parts: 0,
            bytes,
            load,
            writes: true,
            asked_origin: false,
        });
        // Of what is no multiple of a block the first and the last one may be changed in part.
        let edges = u64::from(asked.bytes != (asked.end - asked.first) << self.block_size.shift());
        self.each_part(world, Purpose::Write, asked.first..asked.end, |volume, world, part| {
            let whole_first = part.first.max(asked.first + edges);
            let whole_end = part.end.min(asked.end - edges);
            let flight = world.flights.insert(Flight { whole_first, whole_end, ..part });
            volume.wait(world, client, flight);
            let mut after = NONE;
            for (_, before) in volume.writing.parts(part.first..part.end) {
                if before != after
                    // A write may meet the same one again behind another: it waits for it once.
                    && world.chains.first(world.flights[before].dependents) != Some(flight)
                {
                    after = before;
                    let head = world.flights[before].dependents;
                    world.flights[before].dependents = world.chains.push(head, flight);
                    world.flights[flight].waits_for += 1;
                }
            }
            volume.writing.set(part.first..part.end, flight);
            if world.flights[flight].waits_for == 0 {
                volume.send_write(world, flight);
            }
        });
        self.pump(world);
    }

    /// From now on, reads under way that a write overlaps bring nothing to keep.
    fn send_write(&mut self, world: &mut World, flight: u32) {
        let (first, end) = (world.flights[flight].first, world.flights[flight].end);
        let caches_nothing = self.caches_nothing(world);
        loop {
            let Some((_, fill)) = self.joinable.parts(first..end).next() else { break };
            let overtaken = world.flights[fill];
            world.flights[fill].marked = true;
            self.forget_joinable(world, fill);
            // What is loaded for nobody is left to be loaded again.
            if !caches_nothing && overtaken.waiters != NONE {
                self.want(world.now, overtaken.first..overtaken.end);
            }
        }
        self.queue.push_back(flight);
    }

    /// A read missed these blocks: those that are being written enter with what the write wrote.
    fn want(&mut self, now: Nanos, blocks: std::ops::Range<u64>) {
        for (part, _) in self.writing.parts(blocks) {
            self.wanted.set_rest(part, now);
        }
    }

    fn forget_joinable(&mut self, world: &World, fill: u32) {
        self.joinable.clear_value(world.flights[fill].first..world.flights[fill].end, fill);
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
                let latency = at.saturating_since(waiting.started);
                self.recorder.done(world.now, waiting.arrived_in, latency, waiting.writes);
                if let Some(tier) = &mut world.tier
                    && waiting.asked_origin
                {
                    tier.placement.answered(world.now, done.asked, at.saturating_since(waiting.started));
                }
                answered.push((waiting.load, at));
            }
        }
        world.flights.free(flight);
        self.pump(world);
        world.begin_promotions();
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
        if !self.wanted.is_empty() {
            let last = self.writing.parts(done.first..done.end).filter(|(_, last)| *last == flight);
            let last: Vec<Range<u64>> = last.map(|(part, _)| part).collect();
            let whole = done.whole_first..done.whole_end;
            let enter = self.wanted.parts(whole).filter(|(_, since)| done.sent >= *since);
            let enter: Vec<Range<u64>> = enter.map(|(part, _)| part).collect();
            for part in enter {
                for block in part.clone() {
                    world.caches[self.cache.0].insert(self.cache.1 + block, Insertion::Miss);
                }
                self.wanted.clear(&part);
            }
            for part in last {
                self.wanted.clear(&part);
            }
        }
        self.writing.clear_value(done.first..done.end, flight);
        let mut dependents = done.dependents;
        while let Some((next, rest)) = world.chains.pop(dependents) {
            dependents = rest;
            world.flights[next].waits_for -= 1;
            if world.flights[next].waits_for == 0 {
                self.send_write(world, next);
            }
        }
    }

    /// What its cache has done; with a shared one, for all.
    pub(crate) fn statistics(&self, world: &World) -> Statistics {
        world.caches[self.cache.0].statistics()
    }

    /// The policy that its cache came to, where it chooses.
    pub(crate) fn chosen(&self, world: &World) -> Option<ChosenPolicy> {
        world.caches[self.cache.0].chosen()
    }

    /// What its cache holds of it, where that can be told.
    pub(crate) fn resident(&self, world: &World) -> Option<Arc<[BlockRange]>> {
        let first = self.cache.1;
        let blocks = self.block_size.blocks_for(Bytes(self.size));
        let mut listed = world.caches[self.cache.0].resident()?;
        listed.retain(|(block, _)| (first..first + blocks).contains(block));
        listed.iter_mut().for_each(|(block, _)| *block -= first);
        Some(resident_ranges(listed).into())
    }

    /// Sets its quota, in force at once.
    pub(crate) fn set_quota(&self, world: &mut World, blocks: u64) {
        world.caches[self.cache.0].set_quota(blocks);
    }
}
