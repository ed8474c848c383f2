//! Generating: a stream of requests that a model describes, of any length, in constant memory.
//!
//! Counts and spans of the schedule's segments are kept exactly, so that the mean intensity of any run is the model's: a run that is
//! shorter or longer than the schedule plays a whole number of schedules, each stretched to fit. Everything else is drawn, stratified
//! (see `strata`), from one seeded generator.

use super::chain::Chain;
use super::fit::DEPTH_BYTES;
use super::history::{Extent, History, Relation, extent_key, key_offset, key_volume};
use super::placement::Placement;
use super::playing::Schedule;
use super::script::{Due, Script, Tie};
use super::strata::Table;
use super::{Link, Model, ModelError, Place};
use crate::generator::{Random, exponential, random};
use forebay_trace::{BATCH_REQUESTS, Operation, Request, VolumeIndex};
use forebay_units::Nanos;
use rand::Rng;
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

/// A kind, resolved: type, length, and at which sectors of a block such requests start.
#[derive(Clone, Debug)]
struct KindTable {
    operation: Operation,
    length: u64,
    sectors: Option<(Table, Vec<u64>)>,
}

/// What random addresses of the plain chain are multiples of, but for their sectors.
const PLAIN_BYTES: u64 = 4_096;
/// Places on either side of a named one that are searched for an extent of the right volume.
const VOLUME_PLACES: u32 = 256;
/// Depths are about the same if they differ by this share of the larger one, or by so many bytes.
const DEPTHS_ALIKE: f64 = 0.1;
const DEPTHS_CLOSE: u64 = 1 << 20;
/// Inter-arrival times that are drawn together and then made to fill their span.
const CHUNK: u64 = 4_096;

/// Generates requests.
#[derive(Clone, Debug)]
pub struct Generator {
    random: Random,
    fidelity: Fidelity,
    /// The paper's chain.
    plain: Option<Chain>,
    script: Script,
    kinds: Vec<KindTable>,
    /// By state: volume, first byte, bytes.
    states: Vec<(u32, u64, u64)>,
    /// By volume: first bytes of its states, and which these are, in order.
    ranges: Vec<Vec<(u64, u32)>>,
    placement: Placement,
    history: History,
    volume_bytes: Vec<u64>,
    /// Where the last request of each volume ended, for the plain chain.
    ends: Vec<u64>,
    intensity: f64,
    schedule: Schedule,
    /// Volume, offset and kind of the last request.
    last: (u32, u64, u32),
    time_ns: f64,
    /// Inter-arrival times, whether they are long, and requests without their times.
    chunk: Vec<(f64, bool, Request)>,
    /// Where the steps of the window in play started, and their ends.
    made: Vec<(u64, u64)>,
    chunk_at: usize,
    resolution_ns: u64,
    left: u64,
    volume_names: Vec<String>,
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
        let (schedule, requests) = Schedule::new(model, options, intensity)?;
        let mut random = random(options.seed);
        let seed: u64 = random.random();
        let full = options.fidelity == Fidelity::Full;
        let plain = if full { None } else { Chain::new(&super::plain::merged(model), &model.states) };
        let kinds = model
            .kinds
            .iter()
            .map(|kind| KindTable {
                operation: kind.operation,
                length: kind.bytes,
                sectors: Table::new(kind.sectors.iter().map(|(_, count)| *count as f64)).map(|table| {
                    (table, kind.sectors.iter().map(|(sector, _)| u64::from(*sector)).collect())
                }),
            })
            .collect();
        let mut volume_bytes: Vec<u64> = model.volumes.iter().map(|volume| volume.bytes).collect();
        let mut ranges = vec![Vec::new(); model.volumes.len()];
        for (at, state) in (0..).zip(&model.states) {
            let bytes = &mut volume_bytes[state.volume as usize];
            *bytes = (*bytes).max(state.first_byte + state.bytes);
            ranges[state.volume as usize].push((state.first_byte, at));
        }
        ranges.iter_mut().for_each(|ranges| ranges.sort_unstable());
        let first = &model.states[0];
        Ok(Generator {
            random,
            fidelity: options.fidelity,
            plain,
            script: Script::new(model),
            kinds,
            states: model.states.iter().map(|state| (state.volume, state.first_byte, state.bytes)).collect(),
            ranges,
            placement: Placement::new(model, seed),
            history: if full { History::new() } else { History::empty() },
            volume_bytes,
            ends: vec![u64::MAX; model.volumes.len()],
            intensity,
            last: (first.volume, first.first_byte, 0),
            time_ns: 0.0,
            chunk: Vec::new(),
            made: Vec::new(),
            chunk_at: 0,
            // A resolution below a microsecond is nobody's clock.
            resolution_ns: if model.about.resolution_ns >= 1_000 && schedule.constant_ns().is_none() {
                model.about.resolution_ns
            } else {
                1
            },
            schedule,
            left: options.requests.map_or(requests, |most| most.min(requests)),
            volume_names: (0..model.volumes.len()).map(|volume| format!("volume-{volume}")).collect(),
        })
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
            return self.plain_request();
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

    /// The paper's request: where the last one of its volume ended, or anywhere in the range.
    fn plain_request(&mut self) -> Request {
        let chain = self.plain.as_mut().expect("the plain model has one chain");
        let at = (state_at(&self.ranges, self.last.0, self.last.1), self.last.2);
        let row = chain.draw(at, &mut self.random);
        self.time_ns += match self.schedule.constant_ns() {
            Some(constant) => constant,
            None => exponential(row.gap_us / self.intensity * 1e3, &mut self.random),
        };
        let (volume, first, bytes) = self.states[row.to as usize];
        let length = self.kinds[row.kind as usize].length;
        let sector = self.sector(row.kind);
        let (end, room) = (self.ends[volume as usize], self.volume_bytes[volume as usize]);
        let sequential = matches!(row.link, Link::Follow | Link::Along);
        let offset = if length == 0 {
            0
        } else if sequential && end.saturating_add(length) <= room {
            end
        } else {
            let places = (bytes / PLAIN_BYTES).max(1);
            let at = first + self.random.random_range(0..places) * PLAIN_BYTES + sector * 512;
            at.min(room.saturating_sub(length)) / 512 * 512
        };
        if length > 0 {
            self.ends[volume as usize] = offset + length;
        }
        // The range that the chain has chosen, whatever the address: as the paper has it.
        self.last = (volume, first, row.kind);
        self.request_of(volume, offset, row.kind)
    }

    fn sector(&mut self, kind: u32) -> u64 {
        match &mut self.kinds[kind as usize].sectors {
            None => 0,
            Some((table, sectors)) => sectors[table.draw(&mut self.random)],
        }
    }

    fn request_of(&self, volume: u32, offset: u64, kind: u32) -> Request {
        let KindTable { operation, length, .. } = self.kinds[kind as usize];
        let (time, latency, volume) = (self.time(), Nanos::MAX, VolumeIndex(volume));
        Request { time, offset, length, latency, volume, operation }
    }

    /// The request of a step, without its time.
    #[inline]
    fn step(&mut self, due: &Due) -> Request {
        let Due { step, tie, play, number, .. } = *due;
        let length = self.kinds[step.kind as usize].length;
        // What is inside of earlier data is so in every play; what was new is new again in another place.
        let (volume, offset) =
            self.placement.byte(step.area, if step.inside { 0 } else { play }, step.sectors);
        if length == 0 {
            return self.request_of(volume, 0, step.kind);
        }
        let own = extent_key(volume, offset);
        let tied = match tie {
            Tie::None => None,
            Tie::Same(back) => Some(self.made[usize::from(number - back)].0),
            Tie::Follow(back) => Some(self.made[usize::from(number - back)].1),
        };
        let start = match step.again {
            // The first play is where the original was.
            None if play == 0 => own,
            None => tied.unwrap_or(own),
            Some(place) => {
                // What the first play is to find may not have been made. Then what lies at the place is next best, unless what starts where a
                // tie leads lies about as deep.
                let there = if play == 0 { self.history.starting_at(own) } else { None };
                let found = there.or_else(|| {
                    // A request stays in its volume.
                    let of_volume = |entry: &Extent| key_volume(entry.start) == volume;
                    let named = self.history.nearest(self.named(place)?, VOLUME_PLACES, of_volume)?;
                    let along = tied.and_then(|tied| self.history.starting_at(tied));
                    Some(along.filter(|&along| self.is_as_deep(along, named)).unwrap_or(named))
                });
                match found {
                    Some(found) => {
                        self.history.found(relation(place), found);
                        self.history.entry(found).start
                    }
                    None => own,
                }
            }
        };
        let volume = key_volume(start);
        let offset = key_offset(start).min(self.volume_bytes[volume as usize].saturating_sub(length));
        let start = extent_key(volume, offset);
        self.history.push(Extent { start, length });
        if self.made.len() <= usize::from(number) {
            self.made.resize(usize::from(number) + 1, (start, start));
        }
        self.made[usize::from(number)] = (start, start + length);
        self.request_of(volume, offset, step.kind)
    }

    /// The live extent at a place, or the deepest one where none is so deep; `None` where there is none.
    fn named(&self, place: Place) -> Option<u32> {
        match (place, relation(place)) {
            (Place::Far(depth), _) => {
                let deepest = self.history.total().checked_sub(1)?;
                self.history.place_at((depth * DEPTH_BYTES).min(deepest))
            }
            (_, Some(relation)) => self.history.at(relation),
            (_, None) => None,
        }
    }

    /// Whether two live extents lie about as deep.
    fn is_as_deep(&self, one: u32, other: u32) -> bool {
        if one == other {
            return true;
        }
        let [one, other] = [one, other].map(|place| self.history.depth_of(place));
        one.abs_diff(other) <= (one.max(other) as f64 * DEPTHS_ALIKE) as u64 + DEPTHS_CLOSE
    }

    /// Makes the requests of the next part of the segment with their inter-arrival times, and makes these fill its span.
    fn fill_chunk(&mut self) {
        let part = self.schedule.part(CHUNK);
        self.chunk.clear();
        self.chunk_at = 0;
        let (mut short_sum, mut long_sum) = (0.0, 0.0);
        for made in 0..part.requests {
            let due = self.script.next(part.original(made), &mut self.random);
            let gap = self.schedule.constant_ns().unwrap_or(due.step.gap_ns as f64);
            *(if due.is_long { &mut long_sum } else { &mut short_sum }) += gap;
            let request = self.step(&due);
            self.chunk.push((gap, due.is_long, request));
        }
        if self.schedule.constant_ns().is_some() {
            return;
        }
        // Each window has its times, the segment has its span. All times are scaled where a little will do. Else long times take what short ones
        // leave, and where there is not enough, both shrink.
        let sum = short_sum + long_sum;
        let factor = if sum > 0.0 { part.ns / sum } else { 0.0 };
        let (short_factor, long_factor) =
            if long_sum > 0.0 && short_sum < part.ns && !(0.67..1.5).contains(&factor) {
                (1.0, (part.ns - short_sum) / long_sum)
            } else {
                (factor, factor)
            };
        let spread = if sum > 0.0 { 0.0 } else { part.ns / part.requests as f64 };
        for (gap, is_long, _) in &mut self.chunk {
            *gap = spread + *gap * if *is_long { long_factor } else { short_factor };
        }
    }
}

/// The relation to a cursor that a place has, if it has one.
fn relation(place: Place) -> Option<Relation> {
    match place {
        Place::Near { cursor, step } => Some(Relation { cursor: cursor.into(), step: step.into() }),
        Place::Far(_) => None,
    }
}

/// The state that an offset lies in: the last one that starts at or before it.
fn state_at(ranges: &[Vec<(u64, u32)>], volume: u32, offset: u64) -> u32 {
    let ranges = &ranges[volume as usize];
    let after = ranges.partition_point(|(first, _)| *first <= offset);
    ranges.get(after.saturating_sub(1)).map_or(0, |(_, state)| *state)
}
