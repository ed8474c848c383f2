//! Generating: a stream of requests that a model describes, of any length, in constant memory.
//!
//! Counts and spans of the schedule's segments are kept exactly, so that the mean intensity of any run is the model's: a run that is
//! shorter or longer than the schedule plays a whole number of schedules, each stretched to fit. Everything else is drawn, stratified
//! (see `strata`), from one seeded generator.

use super::placement::Placement;
use super::stack::{Stack, Trail};
use super::strata::Table;
use super::{Gaps, Link, Model, ModelError, Transition};
use crate::generator::{Random, exponential, random, unit};
use foldhash::fast::FixedState;
use forebay_trace::{BATCH_REQUESTS, Operation, Request, VolumeIndex};
use forebay_units::{Nanos, mix64};
use hashbrown::HashMap;
use rand::Rng;
use std::collections::{BTreeMap, VecDeque};
use thiserror::Error;

/// Which model is generated from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fidelity {
    /// Everything that the model knows.
    #[default]
    Full,
    /// The paper's chain alone: one phase, exponential inter-arrival times with the mean of the transition, uniform addresses
    /// in the state's range.
    Plain,
}

/// What is generated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GenerateOptions {
    /// Chooses everything random.
    pub seed: u64,
    /// Span; `None`: as long as the original, divided by the intensity.
    pub duration: Option<Nanos>,
    /// Requests at most; `None`: what the duration holds, or as many as the original where there are no times.
    pub requests: Option<u64>,
    /// Inter-arrival times are divided by it; `None` is 1.
    pub intensity: Option<f64>,
    /// Requests per second for a model without times; `None`: all of them come at time 0.
    pub rate: Option<f64>,
    /// From what.
    pub fidelity: Fidelity,
}

/// Why nothing is generated.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// The model does not hold together.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// An option is out of range.
    #[error("{option} is {found}: expected {expected}")]
    Option {
        /// Which.
        option: &'static str,
        /// What was found.
        found: f64,
        /// What would do.
        expected: &'static str,
    },
    /// A duration was asked for, and neither the model nor the options know a rate.
    #[error(
        "the model has no times, so a duration says nothing about it: give a rate or a number of requests"
    )]
    NoTimes,
}

/// A transition, resolved.
#[derive(Clone, Copy, Debug)]
struct Row {
    to: u32,
    kind: u32,
    link: Link,
    /// Index into the reuse tables, `u32::MAX` for none.
    reuse: u32,
    ring: u32,
    gap_us: f64,
}

/// The chain of a phase.
#[derive(Clone, Debug)]
struct Chain {
    rows: Vec<Row>,
    /// By state: which rows, and the table over them; its last entry stands for the marginal one.
    from: Vec<Option<(u32, u32, Table)>>,
    /// Rows that may follow on any state, and the table over them.
    any: Option<(u32, u32, Table)>,
    /// Over all rows: where a phase is entered in a state that it has not.
    all: Table,
}

#[derive(Clone, Debug)]
struct ReuseTable {
    /// Entry 0 is what is new.
    table: Table,
    depths: Vec<(u64, u64)>,
    /// Depths that were drawn before the stack was that deep: something new was used in their place, and they are used in place
    /// of something new later.
    owed: VecDeque<u64>,
}

impl ReuseTable {
    /// A depth of at most `total`, or `None` for something new.
    fn draw(&mut self, total: u64, random: &mut Random) -> Option<u64> {
        let drawn = self.table.draw(random);
        if drawn == 0 {
            return self.owed.pop_front_if(|depth| *depth <= total);
        }
        let (from, to) = self.depths[drawn - 1];
        let depth = from + random.random_range(0..=to - from);
        if depth <= total {
            return Some(depth);
        }
        if self.owed.len() < OWED_MAX {
            self.owed.push_back(depth);
        }
        None
    }
}

/// Depths that are remembered per table; more are drawn only where the stack never gets that deep.
const OWED_MAX: usize = 1 << 12;

/// Where a request ended, and what it used.
#[derive(Clone, Copy, Debug)]
struct Head {
    end: u64,
    trail: Option<Trail>,
}

const NOWHERE: Head = Head { end: u64::MAX, trail: None };

/// Draws inter-arrival times of a phase.
#[derive(Clone, Debug)]
struct GapTables {
    short: Option<(Table, Vec<(f64, f64)>)>,
    long: Option<(Table, Vec<(f64, f64)>)>,
    /// How much likelier a long time is after a long one than on average, and after a short one.
    after_long: f64,
    after_short: f64,
}

impl GapTables {
    fn new(gaps: &Gaps) -> GapTables {
        let side = |long: bool| {
            let of: Vec<_> = gaps
                .histogram
                .iter()
                .filter(|bucket| ((bucket.from_us + bucket.to_us) / 2.0 >= gaps.long_from_us) == long)
                .collect();
            let table = Table::new(of.iter().map(|bucket| bucket.requests as f64))?;
            Some((table, of.iter().map(|bucket| (bucket.from_us * 1e3, bucket.to_us * 1e3)).collect()))
        };
        let h2 = &gaps.hyper_exponential;
        let relative = |share: f64| if h2.long > 0.0 { (share / h2.long).clamp(0.05, 20.0) } else { 1.0 };
        GapTables {
            short: side(false),
            long: side(true),
            after_long: relative(h2.long_after_long),
            after_short: relative(h2.long_after_short),
        }
    }

    /// A time in nanoseconds.
    fn draw(&mut self, long: bool, random: &mut Random) -> f64 {
        let side = if long { &mut self.long } else { &mut self.short };
        let Some((table, ranges)) = side else { return 0.0 };
        let (from, to) = ranges[table.draw(random)];
        if from == to { from } else { from + unit(random) * (to - from) }
    }
}

/// Inter-arrival times that are drawn together and then made to fill their span.
const CHUNK: u64 = 4_096;

/// Generates requests.
#[derive(Clone, Debug)]
pub struct Generator {
    random: Random,
    fidelity: Fidelity,
    chains: Vec<Chain>,
    gaps: Vec<GapTables>,
    reuse: Vec<ReuseTable>,
    kinds: Vec<(Operation, u64, Option<(Table, Vec<u64>)>)>,
    /// By state: volume, first byte, bytes.
    states: Vec<(u32, u64, u64)>,
    rings_of_state: Vec<Vec<(u32, u64)>>,
    placements: Vec<Placement>,
    stack: Stack,
    volume_bytes: Vec<u64>,
    heads: Vec<([Head; super::fit::HEADS], usize)>,
    block_shift: u32,
    schedule: Schedule,
    /// The state of the last request.
    at: u32,
    time_ns: f64,
    chunk: Vec<f64>,
    chunk_at: usize,
    resolution_ns: u64,
    left: u64,
    volume_names: Vec<String>,
}

/// Plays the segments.
#[derive(Clone, Debug)]
struct Schedule {
    segments: Vec<(u32, u64, f64, u64)>,
    at: usize,
    /// Requests of a segment are multiplied by this.
    count_factor: f64,
    /// Seconds of a segment are multiplied by this.
    time_factor: f64,
    carry: f64,
    /// Time of segments in which no request fell.
    owed_ns: f64,
    phase: u32,
    /// What is left of the segment.
    requests: u64,
    ns: f64,
    bursts: u64,
    after_long: bool,
    /// Without times: the span between requests.
    constant_ns: Option<f64>,
}

impl Generator {
    /// A generator for `model`.
    ///
    /// # Errors
    /// [`GenerateError`]: a model that does not hold together, options out of range.
    pub fn new(model: &Model, options: &GenerateOptions) -> Result<Generator, GenerateError> {
        model.check()?;
        let intensity = options.intensity.unwrap_or(1.0);
        if !(1e-6..=1e6).contains(&intensity) {
            return Err(GenerateError::Option {
                option: "intensity",
                found: intensity,
                expected: "0.000001 to 1000000",
            });
        }
        if let Some(rate) = options.rate.filter(|rate| !(1e-6..=1e12).contains(rate)) {
            return Err(GenerateError::Option { option: "rate", found: rate, expected: "0.000001 to 1e12" });
        }
        let span = model.seconds() / intensity;
        let timed = span > 0.0;
        let schedule_requests = model.requests();
        let wanted = options.duration.map(Nanos::as_secs_f64);
        let (cycles, requests) = match (timed, wanted) {
            (true, Some(wanted)) => {
                let cycles = (wanted / span).round().max(1.0);
                let count = schedule_requests as f64 * wanted / span;
                (cycles, (count.round() as u64).max(1))
            }
            (true, None) => match options.requests {
                Some(requests) => ((requests as f64 / schedule_requests as f64).ceil().max(1.0), requests),
                None => (1.0, schedule_requests),
            },
            (false, Some(wanted)) => match (options.rate, options.requests) {
                (Some(rate), _) => (1.0, ((wanted * rate * intensity).round() as u64).max(1)),
                (None, Some(requests)) => (1.0, requests),
                (None, None) => return Err(GenerateError::NoTimes),
            },
            (false, None) => (1.0, options.requests.unwrap_or(schedule_requests)),
        };
        let stretch = match (timed, wanted) {
            (true, Some(wanted)) => wanted / (cycles * span),
            _ => 1.0,
        };
        let mut random = random(options.seed);
        let seed: u64 = random.random();
        let rings = Rings::of(model);
        let reuse_ids: HashMap<(u32, u32, u32), u32, FixedState> = (0..)
            .zip(&model.reuse)
            .map(|(at, reuse)| ((reuse.phase.unwrap_or(u32::MAX), reuse.state, reuse.kind), at))
            .collect();
        let plain = options.fidelity == Fidelity::Plain;
        let phases: Vec<Vec<Transition>> = if plain {
            vec![super::plain::merged(model)]
        } else {
            model.phases.iter().map(|phase| phase.transitions.clone()).collect()
        };
        let chains = (0..)
            .zip(&phases)
            .map(|(phase, transitions)| {
                Chain::new(transitions, model.states.len(), |row| {
                    let key = |phase| reuse_ids.get(&(phase, row.to, row.kind)).copied();
                    Row {
                        to: row.to,
                        kind: row.kind,
                        link: row.link,
                        reuse: key(phase).or_else(|| key(u32::MAX)).unwrap_or(u32::MAX),
                        ring: rings.of_row(model, row),
                        gap_us: row.gap_us / intensity,
                    }
                })
            })
            .collect();
        let reuse = model
            .reuse
            .iter()
            .map(|reuse| {
                let weights =
                    std::iter::once(reuse.new).chain(reuse.depths.iter().map(|bucket| bucket.blocks));
                let table = Table::new(weights.map(|weight| weight as f64));
                ReuseTable {
                    // Nothing is known: everything is new.
                    table: table.or_else(|| Table::new(std::iter::once(1.0))).expect("a weight of 1"),
                    depths: reuse
                        .depths
                        .iter()
                        .map(|bucket| (bucket.from.max(1), bucket.to.max(1)))
                        .collect(),
                    owed: VecDeque::new(),
                }
            })
            .collect();
        let kinds = model
            .kinds
            .iter()
            .map(|kind| {
                let sectors = Table::new(kind.sectors.iter().map(|(_, count)| *count as f64)).map(|table| {
                    (table, kind.sectors.iter().map(|(sector, _)| u64::from(*sector)).collect())
                });
                (kind.operation, kind.bytes, sectors)
            })
            .collect();
        let placements = (0u64..)
            .zip(&model.states)
            .map(|(at, state)| {
                Placement::new(state.first_byte, state.bytes, state.run_bytes, mix64(seed ^ at))
            })
            .collect();
        let mut volume_bytes: Vec<u64> = model.volumes.iter().map(|volume| volume.bytes).collect();
        for state in &model.states {
            let bytes = &mut volume_bytes[state.volume as usize];
            *bytes = (*bytes).max(state.first_byte + state.bytes);
        }
        let constant_ns = match (timed, options.rate) {
            (true, _) => None,
            (false, Some(rate)) => Some(1e9 / (rate * intensity)),
            (false, None) => Some(0.0),
        };
        let mut generator = Generator {
            random,
            fidelity: options.fidelity,
            chains,
            gaps: model.phases.iter().map(|phase| GapTables::new(&phase.gaps)).collect(),
            reuse,
            kinds,
            states: model.states.iter().map(|state| (state.volume, state.first_byte, state.bytes)).collect(),
            rings_of_state: rings.by_state(model.states.len()),
            placements,
            stack: Stack::new(rings.ids.len()),
            volume_bytes,
            heads: vec![([NOWHERE; super::fit::HEADS], 0); model.volumes.len()],
            block_shift: model.block_bytes.trailing_zeros(),
            schedule: Schedule {
                segments: model.schedule.iter().map(|&segment| segment.into()).collect(),
                at: 0,
                count_factor: stretch,
                time_factor: stretch / intensity,
                carry: 0.0,
                owed_ns: 0.0,
                phase: 0,
                requests: 0,
                ns: 0.0,
                bursts: 0,
                after_long: false,
                constant_ns,
            },
            at: 0,
            time_ns: 0.0,
            chunk: Vec::new(),
            chunk_at: 0,
            // A resolution below a microsecond is nobody's clock.
            resolution_ns: if model.about.resolution_ns >= 1_000 && constant_ns.is_none() {
                model.about.resolution_ns
            } else {
                1
            },
            left: options.requests.map_or(requests, |most| most.min(requests)),
            volume_names: (0..model.volumes.len()).map(|volume| format!("volume-{volume}")).collect(),
        };
        let chain = &mut generator.chains[0];
        let first = chain.all.draw(&mut generator.random);
        generator.at = chain.rows[first].to;
        Ok(generator)
    }

    /// Names of the volumes, for a writer: `volume-0` and so on, as a model knows no others.
    pub fn volumes(&self) -> &[String] {
        &self.volume_names
    }

    /// Bytes of the volumes: no request ends beyond them.
    pub(crate) fn volume_bytes(&self) -> &[u64] {
        &self.volume_bytes
    }

    /// Requests that are still to come.
    pub fn remaining(&self) -> u64 {
        self.left
    }

    /// Clears `out` and fills it with the next requests; how many, 0 at the end.
    pub fn next_batch(&mut self, out: &mut Vec<Request>) -> usize {
        out.clear();
        let count = self.left.min(BATCH_REQUESTS as u64);
        for _ in 0..count {
            let request = self.request();
            out.push(request);
        }
        self.left -= count;
        out.len()
    }

    fn request(&mut self) -> Request {
        let row = if self.fidelity == Fidelity::Plain {
            let row = self.chains[0].next(self.at, &mut self.random);
            self.time_ns += match self.schedule.constant_ns {
                Some(constant) => constant,
                None => exponential(row.gap_us * 1e3, &mut self.random),
            };
            row
        } else {
            self.tick();
            let phase = self.schedule.phase as usize;
            self.chains[phase].next(self.at, &mut self.random)
        };
        let (volume, first, bytes) = self.states[row.to as usize];
        let (operation, length, sectors) = &mut self.kinds[row.kind as usize];
        let (operation, length) = (*operation, *length);
        let sector = match sectors {
            None => 0,
            Some((table, sectors)) => sectors[table.draw(&mut self.random)],
        };
        let ns = self.time_ns as u64;
        let time = Nanos(ns - ns % self.resolution_ns);
        let volume_index = VolumeIndex(volume);
        self.at = row.to;
        if length == 0 {
            return Request { time, offset: 0, length, latency: Nanos::MAX, volume: volume_index, operation };
        }
        let offset = if self.fidelity == Fidelity::Plain {
            self.plain_offset(&row, volume, first, bytes, length, sector)
        } else {
            self.offset(&row, volume, length, sector)
        };
        Request { time, offset, length, latency: Nanos::MAX, volume: volume_index, operation }
    }

    /// The paper's address: where the last request ended, or anywhere in the range.
    fn plain_offset(
        &mut self,
        row: &Row,
        volume: u32,
        first: u64,
        bytes: u64,
        length: u64,
        sector: u64,
    ) -> u64 {
        let end = self.heads[volume as usize].0[0].end;
        let offset =
            if row.link == Link::Follow && end.saturating_add(length) <= self.volume_bytes[volume as usize] {
                end
            } else {
                let block = 1u64 << self.block_shift.max(12);
                let places = (bytes / block).max(1);
                let at = first + self.random.random_range(0..places) * block + sector * 512;
                at.min(self.volume_bytes[volume as usize].saturating_sub(length)) / 512 * 512
            };
        self.heads[volume as usize].0[0].end = offset + length;
        offset
    }

    /// Our address: along a stream, or by reuse, or new.
    fn offset(&mut self, row: &Row, volume: u32, length: u64, sector: u64) -> u64 {
        let (heads, newest) = &mut self.heads[volume as usize];
        let room = self.volume_bytes[volume as usize];
        let head = match row.link {
            Link::Jump => None,
            Link::Follow => Some(heads[*newest]),
            Link::Resume => {
                let (_, first, bytes) = self.states[row.to as usize];
                let found = (1..heads.len())
                    .map(|back| (*newest + heads.len() - back) % heads.len())
                    .find(|&at| (first..first + bytes).contains(&heads[at].end));
                found.map(|at| std::mem::replace(&mut heads[at], NOWHERE))
            }
        };
        let head = head.filter(|head| head.end != u64::MAX && head.end.saturating_add(length) <= room);
        let (offset, mut trail) = match head {
            Some(head) => {
                let taken = head.trail.and_then(|trail| self.stack.take_following(trail, row.ring, head.end));
                (head.end, taken)
            }
            None => self.jump(row, length, sector),
        };
        let blocks = ((offset + length - 1) >> self.block_shift) - (offset >> self.block_shift) + 1;
        let pushed = self.stack.push(row.ring, offset, blocks.min(u64::from(u32::MAX)) as u32);
        // What was used after the old entry of this run, else what is used after this one.
        let trail = *trail.get_or_insert(pushed);
        let (heads, newest) = &mut self.heads[volume as usize];
        *newest = (*newest + 1) % heads.len();
        heads[*newest] = Head { end: offset + length, trail: Some(trail) };
        offset
    }

    /// A random request: an extent of the wanted depth, or a new one.
    fn jump(&mut self, row: &Row, length: u64, sector: u64) -> (u64, Option<Trail>) {
        // What fell off the stack lies beyond its bottom: such depths end there.
        let total = if self.stack.is_full() { u64::MAX } else { self.stack.total() };
        let reuse = self.reuse.get_mut(row.reuse as usize);
        let depth = reuse.and_then(|reuse| reuse.draw(total, &mut self.random));
        let placement = &mut self.placements[row.to as usize];
        let Some(depth) = depth else { return (placement.place(length, sector), None) };
        let Some(place) = self.stack.place_at(depth) else {
            return (placement.earlier(self.random.random_range(0..=placement.used()), sector), None);
        };
        let wanted = self.stack.age(place) as f64;
        let near = |stack: &Stack, ring: u32| {
            let (index, found) = stack.nearest(ring, place)?;
            let age = stack.age(found) as f64;
            Some(((age / wanted).max(wanted / age), index))
        };
        let own = near(&self.stack, row.ring);
        if let Some((_, index)) = own.filter(|(far, _)| *far <= 1.5) {
            let (start, trail) = self.stack.take(row.ring, index);
            return (start, Some(trail));
        }
        // A longer extent of about that age, of which the first part is used.
        let mut best: Option<(f64, u32, usize)> = own.map(|(far, index)| (far, row.ring, index));
        for &(ring, bytes) in &self.rings_of_state[row.to as usize] {
            if bytes > length
                && let Some((far, index)) = near(&self.stack, ring)
                && best.is_none_or(|(best, ..)| far < best / 1.5)
            {
                best = Some((far, ring, index));
            }
        }
        match best {
            Some((_, ring, index)) if ring == row.ring => {
                let (start, trail) = self.stack.take(ring, index);
                (start, Some(trail))
            }
            Some((_, ring, index)) => (self.stack.start(ring, index), None),
            None => (placement.place(length, sector), None),
        }
    }

    /// Advances the time to the next request.
    fn tick(&mut self) {
        if let Some(constant) = self.schedule.constant_ns {
            if self.schedule.requests == 0 {
                self.schedule.next_segment();
            }
            self.schedule.requests -= 1;
            self.time_ns += constant;
            return;
        }
        if self.chunk_at == self.chunk.len() {
            self.fill_chunk();
        }
        self.time_ns += self.chunk[self.chunk_at];
        self.chunk_at += 1;
    }

    /// Draws the inter-arrival times of the next part of the segment, and makes them fill its span.
    fn fill_chunk(&mut self) {
        let schedule = &mut self.schedule;
        if schedule.requests == 0 {
            schedule.next_segment();
        }
        let count = schedule.requests.min(CHUNK);
        let share = count as f64 / schedule.requests as f64;
        let span = schedule.ns * share;
        let bursts = ((schedule.bursts as f64 * share).round() as u64).min(count);
        schedule.requests -= count;
        schedule.ns -= span;
        schedule.bursts -= bursts;
        self.chunk.clear();
        self.chunk_at = 0;
        let tables = &mut self.gaps[schedule.phase as usize];
        let (mut left, mut short_sum, mut long_sum) = (bursts, 0.0, 0.0);
        // Long times are kept negative until they are made to fit.
        for drawn in 0..count {
            let relative = if schedule.after_long { tables.after_long } else { tables.after_short };
            let even = left as f64 / (count - drawn) as f64;
            // Odds, so that a certainty stays one.
            let odds = even * relative;
            let long = left > 0 && unit(&mut self.random) * (odds + 1.0 - even) < odds;
            schedule.after_long = long;
            left -= u64::from(long);
            let gap = tables.draw(long, &mut self.random);
            if long {
                long_sum += gap;
                self.chunk.push(-gap - 1.0);
            } else {
                short_sum += gap;
                self.chunk.push(gap);
            }
        }
        // Long times take what short ones leave; where there is not enough, both shrink.
        let (short_factor, long_factor) = if long_sum > 0.0 && short_sum < span {
            (1.0, (span - short_sum) / long_sum)
        } else if short_sum + long_sum > 0.0 {
            let factor = span / (short_sum + long_sum);
            (factor, factor)
        } else {
            (0.0, 0.0)
        };
        let spread = if short_sum + long_sum > 0.0 { 0.0 } else { span / count as f64 };
        for gap in &mut self.chunk {
            *gap = spread + if *gap < 0.0 { (-*gap - 1.0) * long_factor } else { *gap * short_factor };
        }
    }
}

impl Schedule {
    /// The next segment in which a request falls.
    fn next_segment(&mut self) {
        loop {
            let (phase, requests, seconds, bursts) = self.segments[self.at];
            self.at = (self.at + 1) % self.segments.len();
            let exact = requests as f64 * self.count_factor + self.carry;
            // Rounding up what is nearly whole, so that no request is lost to arithmetic.
            let count = (exact + 1e-6).floor();
            self.carry = exact - count;
            self.owed_ns += seconds * self.time_factor * 1e9;
            if count >= 1.0 {
                self.phase = phase;
                self.requests = count as u64;
                self.ns = std::mem::take(&mut self.owed_ns);
                self.bursts = ((bursts as f64 * count / requests as f64).round() as u64).min(self.requests);
                return;
            }
        }
    }
}

impl Chain {
    fn new(transitions: &[Transition], states: usize, resolve: impl Fn(&Transition) -> Row) -> Chain {
        let mut sorted: Vec<&Transition> = transitions.iter().filter(|row| row.requests > 0).collect();
        sorted.sort_by_key(|row| row.from);
        let rows: Vec<Row> = sorted.iter().map(|row| resolve(row)).collect();
        // What enters a state leaves it again: what is not kept apart is the rest.
        let mut surplus = vec![0.0; states];
        for row in &sorted {
            surplus[row.to as usize] += row.requests as f64;
            if row.from != Transition::ANY {
                surplus[row.from as usize] -= row.requests as f64;
            }
        }
        let weights = |from: usize, to: usize| sorted[from..to].iter().map(|row| row.requests as f64);
        let any_from = sorted.partition_point(|row| row.from != Transition::ANY);
        let any = Table::new(weights(any_from, sorted.len()))
            .map(|table| (any_from as u32, sorted.len() as u32, table));
        let mut from = vec![None; states];
        let mut at = 0;
        while at < any_from {
            let end = at + sorted[at..any_from].iter().take_while(|row| row.from == sorted[at].from).count();
            let state = sorted[at].from as usize;
            let rest = if any.is_some() { surplus[state].max(0.0) } else { 0.0 };
            let table = Table::new(weights(at, end).chain(std::iter::once(rest)));
            from[state] = table.map(|table| (at as u32, end as u32, table));
            at = end;
        }
        let all = Table::new(weights(0, sorted.len())).expect("the model was checked");
        Chain { rows, from, any, all }
    }

    #[inline]
    fn next(&mut self, at: u32, random: &mut Random) -> Row {
        if let Some((from, to, table)) = &mut self.from[at as usize] {
            let drawn = *from as usize + table.draw(random);
            if drawn < *to as usize {
                return self.rows[drawn];
            }
        }
        match &mut self.any {
            Some((from, _, table)) => self.rows[*from as usize + table.draw(random)],
            None => self.rows[self.all.draw(random)],
        }
    }
}

/// Numbers for (state, length): the rings of the stack.
struct Rings {
    ids: BTreeMap<(u32, u64), u32>,
}

impl Rings {
    fn of(model: &Model) -> Rings {
        let mut ids = BTreeMap::new();
        for row in model.phases.iter().flat_map(|phase| &phase.transitions) {
            let next = ids.len() as u32;
            ids.entry((row.to, model.kinds[row.kind as usize].bytes)).or_insert(next);
        }
        Rings { ids }
    }

    fn of_row(&self, model: &Model, row: &Transition) -> u32 {
        self.ids[&(row.to, model.kinds[row.kind as usize].bytes)]
    }

    /// Rings and lengths by state.
    fn by_state(&self, states: usize) -> Vec<Vec<(u32, u64)>> {
        let mut found = vec![Vec::new(); states];
        for (&(state, bytes), &ring) in &self.ids {
            found[state as usize].push((ring, bytes));
        }
        found
    }
}
