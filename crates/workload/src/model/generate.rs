//! Generating: a stream of requests that a model describes, of any length, in constant memory.
//!
//! Counts and spans of the schedule's segments are kept exactly, so that the mean intensity of any run is the model's: a run that is
//! shorter or longer than the schedule plays a whole number of schedules, each stretched to fit. Everything else is drawn, stratified
//! (see `strata`), from one seeded generator.

use super::placement::Placement;
use super::stack::Stack;
use super::steering::{Steering, octave_of};
use super::strata::Table;
use super::{ANY, Gaps, Link, Model, ModelError, StateModel, Transition};
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
    /// Whether it comes after a long inter-arrival time.
    long: bool,
    /// Its class in the balance.
    class: u32,
}

/// Keeps types, sizes, links and volumes of the requests at their shares: classes of these that are ahead are drawn less often.
#[derive(Clone, Debug, Default)]
struct Balance {
    /// By kind, link and volume.
    classes: HashMap<(u32, u8, u32), u32, FixedState>,
    shares: Vec<f64>,
    counts: Vec<f64>,
    accept: Vec<f64>,
    total: f64,
}

impl Balance {
    /// The class of a kind, link and volume, whose share `requests` add to.
    fn class(&mut self, kind: u32, link: Link, volume: u32, requests: f64) -> u32 {
        let next = self.shares.len() as u32;
        let class = *self.classes.entry((kind, link as u8, volume)).or_insert(next);
        if class == next {
            self.shares.push(0.0);
            self.counts.push(0.0);
            self.accept.push(1.0);
        }
        self.shares[class as usize] += requests;
        class
    }

    #[inline]
    fn count(&mut self, class: u32) {
        self.counts[class as usize] += 1.0;
        self.total += 1.0;
        if self.total % BALANCE_INTERVAL == 0.0 {
            self.correct();
        }
    }

    fn correct(&mut self) {
        let all: f64 = self.shares.iter().sum();
        for ((accept, share), count) in self.accept.iter_mut().zip(&self.shares).zip(&self.counts) {
            let wanted = share / all * self.total;
            // An interval's worth of deviation is a factor of e.
            let deviation = (wanted - count) / (share / all * BALANCE_INTERVAL + 2.0);
            // What is behind is always taken: a rare class that cannot catch up must not hold up the others.
            *accept = deviation.clamp(-4.0, 0.0).exp();
        }
    }
}

/// Where an entry starts in the stack: volume and offset in one number.
const STACK_OFFSET: u64 = (1 << STACK_VOLUME) - 1;
const STACK_VOLUME: u32 = 52;

#[inline]
fn stack_key(volume: u32, offset: u64) -> u64 {
    u64::from(volume) << STACK_VOLUME | offset & STACK_OFFSET
}

/// Requests between two corrections.
const BALANCE_INTERVAL: f64 = 256.0;

/// Rows that follow on something, and the table over them; its last entry stands for the rows of the next coarser step.
#[derive(Clone, Debug)]
struct Step {
    first: u32,
    count: u32,
    table: Table,
}

/// The chain of a phase.
#[derive(Clone, Debug)]
struct Chain {
    rows: Vec<Row>,
    /// By state and kind.
    from_both: HashMap<(u32, u32), Step, FixedState>,
    /// By state.
    from_state: Vec<Option<Step>>,
    /// Rows that may follow on anything.
    from_any: Option<Step>,
    /// Over all rows, for what this phase does not know.
    all: Table,
    balance: Balance,
    /// The share of long inter-arrival times.
    long: f64,
}

#[derive(Clone, Debug)]
struct ReuseTable {
    /// Entry 0 is what is new.
    table: Table,
    depths: Vec<(u64, u64)>,
    /// Octaves of the entries.
    octaves: Vec<u8>,
    /// Depths that were drawn before the stack was that deep: something new was used in their place, and they are used in place
    /// of something new later.
    owed: VecDeque<u64>,
}

impl ReuseTable {
    /// A depth of at most `total`, or `None` for something new. Draws are accepted with the probability of their octave; where the
    /// table has too little of what is wanted, it is drawn without the table.
    fn draw(&mut self, total: u64, steering: &Steering, random: &mut Random) -> Option<u64> {
        let mut drawn = self.table.draw(random);
        for tries in 0.. {
            let accept = steering.accept[self.octaves[drawn] as usize];
            if accept >= 1.0 || unit(random) < accept {
                break;
            }
            if tries == DEPTH_DRAWS_MAX {
                return steering.most_wanted(total, random);
            }
            drawn = self.table.draw(random);
        }
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

/// An entry of the right state and length is taken if its age is within this factor of the wanted one.
const NEAR: f64 = 1.25;
/// Draws from a table of depths before what is wanted most is taken.
const DEPTH_DRAWS_MAX: usize = 4;
/// How unwelcome a stream into what is new can get.
const WELCOME_LEAST: f64 = 0.6;
/// Draws after which the most welcome of them is taken.
const DRAWS_MAX: usize = 8;
/// Depths that are remembered per table; more are drawn only where the stack never gets that deep.
const OWED_MAX: usize = 1 << 12;

/// Where a request ended, and what it used.
#[derive(Clone, Copy, Debug)]
struct Head {
    start: u64,
    length: u64,
    end: u64,
    state: u32,
    operation: Operation,
}

const NOWHERE: Head =
    Head { start: u64::MAX, length: 0, end: u64::MAX, state: 0, operation: Operation::Other };

impl Head {
    /// The stream, which goes on elsewhere now.
    fn take(&mut self) -> Head {
        let stream = *self;
        self.end = u64::MAX;
        stream
    }
}

/// Draws inter-arrival times of a phase.
#[derive(Clone, Debug)]
struct GapTables {
    short: Option<(Table, Vec<(f64, f64)>)>,
    long: Option<(Table, Vec<(f64, f64)>)>,
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
        GapTables { short: side(false), long: side(true) }
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
    /// Type, length, and at which sectors of a block they start.
    kinds: Vec<(Operation, u64, Option<Sectors>)>,
    /// By state: volume, first byte, bytes.
    states: Vec<(u32, u64, u64)>,
    placements: Vec<Placement>,
    stack: Stack,
    volume_bytes: Vec<u64>,
    /// Kinds by type and length, rings by state and length.
    kind_ids: HashMap<(u8, u64), u32, FixedState>,
    rings: HashMap<(u32, u64), u32, FixedState>,
    heads: Vec<([Head; super::fit::HEADS], usize)>,
    block_shift: u32,
    schedule: Schedule,
    /// State and kind of the last request.
    at: (u32, u32),

    time_ns: f64,
    /// Inter-arrival times, whether they are long, and requests without their times.
    chunk: Vec<(f64, bool, Request)>,
    chunk_at: usize,
    resolution_ns: u64,
    left: u64,
    volume_names: Vec<String>,
    steering: Steering,
}

/// A table over sectors of a block.
type Sectors = (Table, Vec<u64>);

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
                let resolve = |row: &Transition| {
                    let key = |phase| reuse_ids.get(&(phase, row.to, row.kind)).copied();
                    Row {
                        to: row.to,
                        kind: row.kind,
                        link: row.link,
                        reuse: key(phase).or_else(|| key(u32::MAX)).unwrap_or(u32::MAX),
                        ring: rings.of_row(model, row),
                        gap_us: row.gap_us / intensity,
                        long: row.long,
                        class: 0,
                    }
                };
                Chain::new(transitions, &model.states, resolve)
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
                    octaves: std::iter::once(0)
                        .chain(reuse.depths.iter().map(|bucket| octave_of(bucket.from) as u8))
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
        let placements =
            (0u64..).zip(&model.states).map(|(at, state)| Placement::new(state, mix64(seed ^ at))).collect();
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
            placements,
            stack: Stack::new(2 * rings.ids.len()),
            volume_bytes,
            kind_ids: (0..)
                .zip(&model.kinds)
                .map(|(at, kind)| ((kind.operation as u8, kind.bytes), at))
                .collect(),
            rings: rings.ids.iter().map(|(&of, &ring)| (of, 2 * ring)).collect(),
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
                constant_ns,
            },
            at: (0, 0),
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
            steering: Steering::new(model),
            volume_names: (0..model.volumes.len()).map(|volume| format!("volume-{volume}")).collect(),
        };
        let first = generator.chains[0].all.draw(&mut generator.random);
        let first = generator.chains[0].rows[first];
        generator.at = (first.to, first.kind);
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
        if self.fidelity == Fidelity::Plain {
            let row = self.chains[0].draw(self.at, &mut self.random);
            self.time_ns += match self.schedule.constant_ns {
                Some(constant) => constant,
                None => exponential(row.gap_us * 1e3, &mut self.random),
            };
            return self.place(&row);
        }
        if self.chunk_at == self.chunk.len() {
            self.fill_chunk();
        }
        let (gap, _, mut request) = self.chunk[self.chunk_at];
        self.chunk_at += 1;
        self.time_ns += gap;
        request.time = self.time();
        request
    }

    fn time(&self) -> Nanos {
        let ns = self.time_ns as u64;
        Nanos(ns - ns % self.resolution_ns)
    }

    /// The request of a transition, now.
    fn place(&mut self, row: &Row) -> Request {
        self.at = (row.to, row.kind);
        let (volume, first, bytes) = self.states[row.to as usize];
        let (operation, length, sectors) = &mut self.kinds[row.kind as usize];
        let (operation, length) = (*operation, *length);
        let sector = match sectors {
            None => 0,
            Some((table, sectors)) => sectors[table.draw(&mut self.random)],
        };
        let offset = match (length, self.fidelity) {
            (0, _) => 0,
            (_, Fidelity::Plain) => self.plain_offset(row, volume, first, bytes, length, sector),
            (_, Fidelity::Full) => self.offset(row, volume, length, sector),
        };
        let (time, latency, volume) = (self.time(), Nanos::MAX, VolumeIndex(volume));
        Request { time, offset, length, latency, volume, operation }
    }

    /// How welcome it is that a stream goes on at `end`: as much as blocks of the depth that it finds there are wanted.
    fn welcome_at(&self, volume: u32, end: u64) -> f64 {
        let octave = match self.stack.starting_at(stack_key(volume, end)) {
            None => 0,
            Some(place) => {
                let stretch = self.stack.total() as f64 / self.steering.footprint().max(1) as f64;
                octave_of((self.stack.depth_of(place) as f64 / stretch.max(1.0)) as u64)
            }
        };
        self.steering.accept[octave].max(WELCOME_LEAST)
    }

    /// How welcome a transition is now: that of the place to which a stream would go on, if it is one.
    fn welcome(&self, row: &Row) -> f64 {
        let (volume, ..) = self.states[row.to as usize];
        let (heads, newest) = &self.heads[volume as usize];
        match row.link {
            Link::Jump | Link::Again => 1.0,
            Link::Follow => self.welcome_at(volume, heads[*newest].end),
            Link::Resume => self.resumed(row).map_or(WELCOME_LEAST, |(_, welcome)| welcome),
        }
    }

    /// The stream in the range that is the most welcome to go on, the newest of equals: where it stands among the heads.
    fn resumed(&self, row: &Row) -> Option<(usize, f64)> {
        let (volume, first, bytes) = self.states[row.to as usize];
        let (heads, newest) = &self.heads[volume as usize];
        let mut best: Option<(usize, f64)> = None;
        for back in 1..heads.len() {
            let at = (newest + heads.len() - back) % heads.len();
            if heads[at].end != u64::MAX && (first..first + bytes).contains(&heads[at].end) {
                let welcome = self.welcome_at(volume, heads[at].end);
                if best.is_none_or(|(_, best)| welcome > best) {
                    best = Some((at, welcome));
                }
                if welcome >= 0.5 {
                    break;
                }
            }
        }
        best
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

    /// Our address: along a stream, or as a request before, or by reuse, or new.
    fn offset(&mut self, row: &Row, volume: u32, length: u64, sector: u64) -> u64 {
        let resumed = if row.link == Link::Resume { self.resumed(row) } else { None };
        let (heads, newest) = &mut self.heads[volume as usize];
        let room = self.volume_bytes[volume as usize];
        let count = heads.len();
        let newest = *newest;
        let places = (0..count).map(|back| (newest + count - back) % count);
        let mut again = None;
        let head = match row.link {
            Link::Jump => None,
            Link::Follow => Some(heads[newest].take()),
            Link::Resume => resumed.map(|(at, _)| heads[at].take()),
            Link::Again => {
                // As `repeat` chose.
                let operation = self.kinds[row.kind as usize].0;
                let mut alike = places.filter(|&at| heads[at].length == length && heads[at].state == row.to);
                let first = alike.next();
                let found = first
                    .filter(|&at| heads[at].operation == operation)
                    .or_else(|| alike.find(|&at| heads[at].operation == operation))
                    .or(first);
                again = found.map(|at| heads[at].start);
                None
            }
        };
        let head = head.filter(|head| head.end != u64::MAX && head.end.saturating_add(length) <= room);
        let (offset, old) = match (head, again) {
            (Some(Head { end: start, .. }), _) | (None, Some(start)) => {
                (start.min(room.saturating_sub(length)), self.stack.starting_at(stack_key(volume, start)))
            }
            (None, None) => self.jump(row, length, sector),
        };
        let last = (offset + length - 1) >> self.block_shift;
        let blocks = (last - (offset >> self.block_shift) + 1).min(u64::from(u32::MAX)) as u32;
        if let Some(place) = old {
            self.stack.take(place, blocks, stack_key(volume, offset + length));
        }
        let ring = row.ring + u32::from(matches!(row.link, Link::Follow | Link::Resume));
        self.stack.push(ring, stack_key(volume, offset), blocks);
        self.steering.observe(volume, offset >> self.block_shift, blocks, self.schedule.phase as usize);
        let (heads, newest) = &mut self.heads[volume as usize];
        *newest = (*newest + 1) % heads.len();
        let (operation, ..) = self.kinds[row.kind as usize];
        heads[*newest] = Head { start: offset, length, end: offset + length, state: row.to, operation };
        offset
    }

    /// A random request: an extent of the wanted depth with its place in the stack, or a new one.
    fn jump(&mut self, row: &Row, length: u64, sector: u64) -> (u64, Option<u32>) {
        // What fell off the stack lies beyond its bottom: such depths end there.
        let footprint = self.steering.footprint().max(1);
        let total = if self.stack.is_full() { u64::MAX } else { footprint };
        let reuse = self.reuse.get_mut(row.reuse as usize);
        let depth = reuse.and_then(|reuse| reuse.draw(total, &self.steering, &mut self.random));
        let placement = &mut self.placements[row.to as usize];
        let Some(depth) = depth else { return (placement.place(length, sector), None) };
        // Extents overlap, so that the stack counts some blocks twice.
        let stretch = (self.stack.total() as f64 / footprint as f64).max(1.0);
        let Some(place) = self.stack.place_at((depth as f64 * stretch) as u64) else {
            return (placement.earlier(self.random.random_range(0..=placement.used()), sector), None);
        };
        let wanted = self.stack.age(place) as f64;
        let near = self.stack.nearest(row.ring, place).filter(|&near| {
            let age = self.stack.age(near) as f64;
            (age / wanted).max(wanted / age) <= NEAR
        });
        // The depth matters more than the range: else whatever lies there, but not what a stream would go on into.
        let (heads, newest) = &self.heads[self.states[row.to as usize].0 as usize];
        let next = heads[*newest].end;
        let stream = |place: u32| self.stack.entry(place).0 & STACK_OFFSET == next;
        let place = near.filter(|&near| !stream(near)).unwrap_or(place);
        let place = if stream(place) && place > 0 { self.stack.older(place) } else { place };
        (self.stack.entry(place).0 & STACK_OFFSET, Some(place))
    }

    /// Makes `row` a repetition of the newest request that is like it: same type and state, else same type, else any.
    fn repeat(&mut self, phase: usize, row: &mut Row) {
        let (volume, ..) = self.states[row.to as usize];
        let (heads, newest) = &self.heads[volume as usize];
        let operation = self.kinds[row.kind as usize].0;
        let used = (0..heads.len())
            .map(|back| &heads[(newest + heads.len() - back) % heads.len()])
            .filter(|head| head.start != u64::MAX);
        let alike = |head: &&Head| u8::from(head.operation == operation) * 2 + u8::from(head.state == row.to);
        // The first of the best, as `max_by_key` takes the last.
        let Some(head) = used.rev().max_by_key(alike) else { return };
        let Some(&kind) = self.kind_ids.get(&(operation as u8, head.length)) else { return };
        let Some(&ring) = self.rings.get(&(head.state, head.length)) else { return };
        let class = self.chains[phase].balance.classes.get(&(kind, Link::Again as u8, volume));
        (row.to, row.kind, row.ring, row.class) = (head.state, kind, ring, *class.unwrap_or(&row.class));
    }

    /// A transition that may follow.
    fn draw(&mut self, phase: usize) -> Row {
        let mut row = self.chains[phase].draw(self.at, &mut self.random);
        if row.link == Link::Again {
            self.repeat(phase, &mut row);
        }
        row
    }

    /// The transition of the next request: drawn until balance, bursts and reuse welcome it.
    fn next_row(&mut self, phase: usize, odds: [f64; 2]) -> Row {
        let mut row = self.draw(phase);
        let mut best = 0.0;
        for tried in 0..DRAWS_MAX {
            let drawn = if tried == 0 { row } else { self.draw(phase) };
            let accept = self.chains[phase].balance.accept[drawn.class as usize]
                * odds[usize::from(drawn.long)]
                * self.welcome(&drawn);
            if accept > best {
                (row, best) = (drawn, accept);
            }
            if accept >= 1.0 || unit(&mut self.random) < accept {
                row = drawn;
                break;
            }
        }
        self.chains[phase].balance.count(row.class);
        row
    }

    /// Draws the transitions of the next part of the segment with their inter-arrival times, and makes these fill its span.
    fn fill_chunk(&mut self) {
        let schedule = &mut self.schedule;
        if schedule.requests == 0 {
            schedule.next_segment();
        }
        let count = schedule.requests.min(CHUNK);
        let share = count as f64 / schedule.requests as f64;
        let span = schedule.ns * share;
        let bursts = schedule.bursts as f64 * share;
        schedule.requests -= count;
        schedule.ns -= span;
        schedule.bursts -= bursts.round() as u64;
        self.chunk.clear();
        self.chunk_at = 0;
        let phase = schedule.phase as usize;
        let (constant_ns, natural) = (schedule.constant_ns, self.chains[phase].long);
        let (mut left, mut short_sum, mut long_sum) = (bursts, 0.0, 0.0);
        for drawn in 0..count {
            // The odds of a long time are those of the chain, times what brings the segment to its bursts.
            let wanted = (left / (count - drawn) as f64).clamp(0.0, 1.0);
            let factor = wanted * (1.0 - natural) / ((1.0 - wanted) * natural).max(1e-9);
            let odds = if factor > 1.0 { [1.0 / factor, 1.0] } else { [1.0, factor] };
            let row = self.next_row(phase, odds);
            left -= if row.long { 1.0 } else { 0.0 };
            let gap = match constant_ns {
                Some(constant) => constant,
                None => self.gaps[phase].draw(row.long, &mut self.random),
            };
            *(if row.long { &mut long_sum } else { &mut short_sum }) += gap;
            let request = self.place(&row);
            self.chunk.push((gap, row.long, request));
        }
        if constant_ns.is_some() {
            return;
        }
        // All times are scaled where a little will do. Else long times take what short ones leave, and where there is not enough,
        // both shrink.
        let factor = if short_sum + long_sum > 0.0 { span / (short_sum + long_sum) } else { 0.0 };
        let (short_factor, long_factor) =
            if long_sum > 0.0 && short_sum < span && !(0.67..1.5).contains(&factor) {
                (1.0, (span - short_sum) / long_sum)
            } else {
                (factor, factor)
            };
        let spread = if short_sum + long_sum > 0.0 { 0.0 } else { span / count as f64 };
        for (gap, long, _) in &mut self.chunk {
            *gap = spread + *gap * if *long { long_factor } else { short_factor };
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
    fn new(transitions: &[Transition], states: &[StateModel], resolve: impl Fn(&Transition) -> Row) -> Chain {
        let mut sorted: Vec<&Transition> = transitions.iter().filter(|row| row.requests > 0).collect();
        // What left by coarser rows comes last of its step.
        sorted.sort_by_key(|row| (row.from, row.from_kind, row.to == ANY));
        let mut chain = Chain {
            rows: Vec::new(),
            from_both: HashMap::default(),
            from_state: vec![None; states.len()],
            from_any: None,
            all: Table::new(std::iter::once(1.0)).expect("a weight of 1"),
            balance: Balance::default(),
            long: 0.0,
        };
        let mut weights = Vec::new();
        for group in sorted.chunk_by(|a, b| (a.from, a.from_kind) == (b.from, b.from_kind)) {
            let first = chain.rows.len() as u32;
            for row in group.iter().filter(|row| row.to != ANY) {
                let class = chain.balance.class(
                    row.kind,
                    row.link,
                    states[row.to as usize].volume,
                    row.requests as f64,
                );
                chain.rows.push(Row { class, ..resolve(row) });
                weights.push(row.requests as f64);
                chain.long += if row.long { row.requests as f64 } else { 0.0 };
            }
            let count = chain.rows.len() as u32 - first;
            let Some(table) = Table::new(group.iter().map(|row| row.requests as f64)) else { continue };
            let step = Step { first, count, table };
            match (group[0].from, group[0].from_kind) {
                (ANY, _) => chain.from_any = Some(step),
                (state, ANY) => chain.from_state[state as usize] = Some(step),
                both => {
                    chain.from_both.insert(both, step);
                }
            }
        }
        chain.long /= weights.iter().sum::<f64>();
        chain.all =
            Table::new(weights.into_iter()).expect("the model was checked: every phase has a transition");
        chain
    }

    /// A row that may follow on `at`.
    #[inline]
    fn draw(&mut self, at: (u32, u32), random: &mut Random) -> Row {
        let steps =
            [self.from_both.get_mut(&at), self.from_state[at.0 as usize].as_mut(), self.from_any.as_mut()];
        for step in steps.into_iter().flatten() {
            let drawn = step.table.draw(random) as u32;
            if drawn < step.count {
                return self.rows[(step.first + drawn) as usize];
            }
        }
        self.rows[self.all.draw(random)]
    }
}

/// Numbers for (state, length): the rings of the stack.
struct Rings {
    ids: BTreeMap<(u32, u64), u32>,
}

impl Rings {
    fn of(model: &Model) -> Rings {
        let mut ids = BTreeMap::new();
        let rows = model.phases.iter().flat_map(|phase| &phase.transitions);
        for row in rows.filter(|row| row.to != ANY) {
            let next = ids.len() as u32;
            ids.entry((row.to, model.kinds[row.kind as usize].bytes)).or_insert(next);
        }
        Rings { ids }
    }

    fn of_row(&self, model: &Model, row: &Transition) -> u32 {
        // Two rings each: of the starts of runs, and of what follows on them.
        2 * self.ids[&(row.to, model.kinds[row.kind as usize].bytes)]
    }
}
