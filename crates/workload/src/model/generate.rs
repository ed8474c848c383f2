//! Generating: a stream of requests that a model describes, of any length, in constant memory.
//!
//! Windows are played in the original's order, each as often as it stands for requests, with its own inter-arrival times; all times are then stretched by one factor, so that the mean
//! intensity of any run is the model's. What a seed chooses is where areas lie, and all of the paper's chain ([`Fidelity::Plain`]).

use super::chain::Chain;
use super::log::{Log, Mark, OFFSET, extent_key, key_offset, key_volume};
use super::placement::Placement;
use super::script::{Line, Script, Start, Tie};
use super::strata::Table;
use super::{Kind, Link, Model, ModelError, Step, Use, Whereabouts};
use crate::generator::{Random, exponential, random};
use forebay_trace::{BATCH_REQUESTS, Operation, Request, ThreadNumber, VolumeIndex};
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
    /// Requests per second on average, before the intensity; `None`: the model's, and of one without times all come at time 0.
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

impl KindTable {
    fn new(kind: &Kind) -> KindTable {
        let table = Table::new(kind.sectors.iter().map(|(_, count)| *count as f64));
        let sectors = || kind.sectors.iter().map(|(sector, _)| u64::from(*sector)).collect();
        KindTable {
            operation: kind.operation,
            length: kind.bytes,
            sectors: table.map(|table| (table, sectors())),
        }
    }
}

/// What random addresses of the plain chain are multiples of, but for their sectors.
const PLAIN_BYTES: u64 = 4_096;
/// Reuse times are about the same if they differ by this share of the longer one, or by so many requests.
const TIMES_ALIKE: f64 = 0.1;
const TIMES_CLOSE: u64 = 64;
/// Requests that are remembered, at least and at most.
const REACH: std::ops::RangeInclusive<u64> = 1 << 12..=1 << 21;

/// A request of the window in play.
#[derive(Clone, Copy, Debug)]
struct Made {
    start: u64,
    end: u64,
    /// Its position in the log.
    position: u64,
    /// Where in the log the use before it was.
    before: Option<u64>,
    /// Where it ends in the first play.
    own_end: u64,
}

/// Generates requests.
#[derive(Clone, Debug)]
pub struct Generator {
    random: Random,
    /// The paper's chain, where only that is generated from.
    plain: Option<Chain>,
    /// The paper's weights of threads, for the plain chain: not known, then as in the model.
    threads: Option<Table>,
    script: Script,
    kinds: Vec<KindTable>,
    /// By state: volume, first byte, bytes.
    states: Vec<(u32, u64, u64)>,
    placement: Placement,
    /// Whether every request of the original is played, and none of them twice.
    knows_all: bool,
    log: Log,
    /// By extent of the original: the position after the one where it was used where it is in the first play; 0 without one.
    last_used: Vec<u64>,
    volume_bytes: Vec<u64>,
    /// Where the last request of each volume ended, for the plain chain.
    ends: Vec<u64>,
    intensity: f64,
    /// The state that the chain is in.
    state: u32,
    time_ns: f64,
    pace: Pace,
    /// What the steps of the window in play came to.
    made: Vec<Made>,
    resolution_ns: u64,
    left: u64,
    volume_names: Vec<String>,
}

/// When requests come.
#[derive(Clone, Copy, Debug)]
enum Pace {
    /// Inter-arrival times of windows are multiplied by a factor, and a time is added to them.
    Stretched { factor: f64, more_ns: f64 },
    /// All of them are equal: there were no times.
    Constant { ns: f64 },
}

/// How much is generated: requests, how many for each of the original in a round over it, and in which span, where there are times.
fn amount(
    model: &Model,
    options: &GenerateOptions,
    intensity: f64,
) -> Result<(u64, f64, Option<f64>), GenerateError> {
    let (all, span) = (model.about.requests, model.about.seconds / intensity);
    let wanted = options.duration.map(Nanos::as_secs_f64);
    if span > 0.0 {
        let Some(wanted) = wanted else {
            let requests = options.requests.unwrap_or(all);
            return Ok((requests, 1.0, Some(span * requests as f64 / all as f64)));
        };
        // A whole number of rounds, so that what the original had at some time has its share.
        let rounds = (wanted / span).round().max(1.0);
        let requests = (all as f64 * wanted / span).round().max(1.0);
        return Ok((requests as u64, wanted / (rounds * span), Some(wanted)));
    }
    let requests = match (wanted, options.rate, options.requests) {
        (Some(wanted), Some(rate), _) => ((wanted * rate * intensity).round() as u64).max(1),
        (Some(_), None, None) => return Err(GenerateError::NoTimes),
        (_, _, requests) => requests.unwrap_or(all),
    };
    Ok((requests, 1.0, None))
}

impl Generator {
    /// A generator for `model`.
    ///
    /// # Errors
    /// [`GenerateError`]: a model that does not hold together, options out of range.
    pub fn new(model: &Model, options: &GenerateOptions) -> Result<Generator, GenerateError> {
        model.check()?;
        Generator::of_checked(model, options)
    }

    /// A generator for a model that is known to hold together. One without windows does for the plain chain, if it has no span.
    pub(super) fn of_checked(model: &Model, options: &GenerateOptions) -> Result<Generator, GenerateError> {
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
        let intensity = match options.rate {
            Some(rate) if model.about.seconds > 0.0 => {
                let own = model.about.requests as f64 / model.about.seconds;
                Some(intensity * rate / own).filter(|intensity| (1e-6..=1e6).contains(intensity)).ok_or(
                    GenerateError::Option {
                        option: "rate",
                        found: rate,
                        expected: "0.000001 to 1000000 times that of the model, the intensity included",
                    },
                )?
            }
            _ => intensity,
        };
        let (requests, factor, span) = amount(model, options, intensity)?;
        let mut random = random(options.seed);
        let any: u64 = random.random();
        let told = model.placements.len().max(1) as u64;
        let told = model.placements.get((options.seed % told) as usize);
        let mut placement = Placement::new(model, told.map_or(any, |&number| number.into()));
        let full = options.fidelity == Fidelity::Full;
        let plain = if full { None } else { Chain::new(&model.transitions, &model.states) };
        let known: f64 = model.thread_weights.iter().sum();
        let weights = std::iter::once((1.0 - known).max(0.0)).chain(model.thread_weights.iter().copied());
        let threads = if full || model.thread_weights.is_empty() { None } else { Table::new(weights) };
        let kinds: Vec<KindTable> = model.kinds.iter().map(KindTable::new).collect();
        let mut volume_bytes: Vec<u64> = model.volumes.iter().map(|volume| volume.bytes).collect();
        for state in &model.states {
            let bytes = &mut volume_bytes[state.volume as usize];
            *bytes = (*bytes).max(state.first_byte + state.bytes);
        }
        let script = Script::new(model, factor);
        if full {
            for (volume, bytes) in (0..).zip(&mut volume_bytes) {
                // What ends beyond the offsets of keys would be another volume's.
                *bytes = (*bytes).max(placement.volume_bytes(volume)).min(OFFSET);
            }
            for line in script.parts.iter().flat_map(|part| &part.lines) {
                if let Start::At { area, sectors, run_bytes, .. } = line.start {
                    let (volume, byte) = placement.byte(area, sectors);
                    placement.use_up(volume, byte, run_bytes);
                }
            }
        }
        // What is played once and whole needs no names: everything is where the original had it.
        let knows_all = script.is_whole() && requests <= model.about.requests;
        let pace = match (span, options.rate) {
            (None, rate) => Pace::Constant { ns: rate.map_or(0.0, |rate| 1e9 / (rate * intensity)) },
            (Some(span), _) => {
                let (wanted, found) = (span * 1e9, script.span_ns(requests));
                let spread = if found > 0.0 { 0.0 } else { wanted / requests as f64 };
                Pace::Stretched { factor: if found > 0.0 { wanted / found } else { 0.0 }, more_ns: spread }
            }
        };
        Ok(Generator {
            random,
            plain,
            threads,
            kinds,
            states: model.states.iter().map(|state| (state.volume, state.first_byte, state.bytes)).collect(),
            placement,
            log: Log::new(if full && !knows_all { reach(model) } else { 1 }),
            last_used: if full && !knows_all { vec![0; script.extents] } else { Vec::new() },
            script,
            knows_all,
            volume_bytes,
            ends: vec![u64::MAX; model.volumes.len()],
            intensity,
            state: 0,
            time_ns: 0.0,
            // A resolution below a microsecond is nobody's clock.
            resolution_ns: match pace {
                Pace::Stretched { .. } if model.about.resolution_ns >= 1_000 => model.about.resolution_ns,
                _ => 1,
            },
            pace,
            made: Vec::new(),
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

    #[inline]
    fn request(&mut self) -> Request {
        if self.plain.is_some() {
            return self.plain_request();
        }
        let (part, number) = self.script.next();
        let part = &self.script.parts[part];
        let (line, play) = (part.lines[number], part.plays - 1);
        self.time_ns += match self.pace {
            Pace::Stretched { factor, more_ns } => line.gap_ns as f64 * factor + more_ns,
            Pace::Constant { ns } => ns,
        };
        self.step(&line, play, number)
    }

    fn time(&self) -> Nanos {
        let ns = self.time_ns as u64;
        Nanos(ns - ns % self.resolution_ns)
    }

    /// The paper's request: where the last one of its volume ended, or anywhere in the range.
    fn plain_request(&mut self) -> Request {
        let chain = self.plain.as_mut().expect("the plain model has one chain");
        let row = chain.draw(self.state, &mut self.random);
        self.time_ns += match self.pace {
            Pace::Constant { ns } => ns,
            Pace::Stretched { .. } => exponential(row.gap_us / self.intensity * 1e3, &mut self.random),
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
        self.state = row.to;
        let random = &mut self.random;
        let thread = self.threads.as_mut().map_or(0, |threads| threads.draw(random) as u16);
        self.request_of(volume, offset, row.kind, ThreadNumber(thread))
    }

    fn sector(&mut self, kind: u32) -> u64 {
        match &mut self.kinds[kind as usize].sectors {
            None => 0,
            Some((table, sectors)) => sectors[table.draw(&mut self.random)],
        }
    }

    fn request_of(&self, volume: u32, offset: u64, kind: u32, thread: ThreadNumber) -> Request {
        let KindTable { operation, length, .. } = self.kinds[kind as usize];
        let (time, latency, volume) = (self.time(), Nanos::MAX, VolumeIndex(volume));
        Request { time, offset, length, latency, volume, thread, operation }
    }

    /// The request of a step of a window that was played `play` times before.
    #[inline]
    fn step(&mut self, line: &Line, play: u32, number: usize) -> Request {
        let length = self.kinds[line.kind as usize].length;
        let (start, own, before) = match line.start {
            Start::On => {
                let last = self.made[number - 1];
                let before = last.before.and_then(|before| self.log.following(before, last.end));
                (last.end, last.own_end, before)
            }
            Start::At { area, sectors, used, tie, .. } => {
                let (volume, byte) = self.placement.byte(area, sectors);
                let own = extent_key(volume, byte);
                if length == 0 {
                    self.remember(number, own, own, 0, None);
                    return self.request_of(volume, 0, line.kind, line.thread);
                }
                let tied = match tie {
                    Tie::None => None,
                    Tie::Same(back) => {
                        let made = self.made[number - usize::from(back)];
                        Some((made.start, Some(made.position)))
                    }
                    Tie::Follow(back) => {
                        let made = self.made[number - usize::from(back)];
                        Some((made.end, made.before.and_then(|before| self.log.following(before, made.end))))
                    }
                };
                let (start, before) = match used {
                    _ if self.knows_all => (own, None),
                    // The first play is where the original was.
                    Use::New if play == 0 => (own, None),
                    Use::New => match tied {
                        Some((start, None)) => (start, None),
                        _ => (self.room(line, play).unwrap_or(own), None),
                    },
                    Use::Inside(_) if play == 0 => (own, None),
                    Use::Inside(ago) => tied.unwrap_or_else(|| self.again(ago, own, line, None, play)),
                    Use::Again(ago) => self.again(ago, own, line, tied, play),
                };
                (start, own, before)
            }
        };
        let volume = key_volume(start);
        let offset = key_offset(start).min(self.volume_bytes[volume as usize].saturating_sub(length));
        let start = extent_key(volume, offset);
        let position = self.log.next();
        let mut before = before;
        if !self.knows_all {
            // Whose the place is where the first play of all has this one's, or the one's before it.
            let extent = if own == start {
                let known = self.last_used[line.extent as usize].checked_sub(1);
                before = before.or(known.filter(|&known| self.log.start_at(known) == Some(start)));
                line.extent
            } else {
                before.and_then(|before| self.log.extent_at(before)).unwrap_or(Log::COPY)
            };
            if let Some(last) = self.last_used.get_mut(extent as usize) {
                *last = position + 1;
            }
            self.log.push(start, line.kind, line.run, extent, before);
        }
        self.remember(number, start, own, length, before);
        self.request_of(volume, offset, line.kind, line.thread)
    }

    /// Where another play of a window has what is new in it.
    fn room(&mut self, line: &Line, play: u32) -> Option<u64> {
        let Start::At { area, sectors, run_bytes, .. } = line.start else { return None };
        let (volume, _) = self.placement.byte(area, sectors);
        Some(extent_key(volume, self.placement.copy(area, sectors, run_bytes, play)))
    }

    fn remember(&mut self, number: usize, start: u64, own: u64, length: u64, before: Option<u64>) {
        self.made.truncate(number);
        let position = self.log.next().wrapping_sub(1);
        self.made.push(Made { start, end: start + length, position, before, own_end: own + length });
    }

    /// Where a step starts that started with an earlier extent `ago` requests before, and the position of that extent's last use.
    #[inline]
    fn again(
        &mut self,
        ago: u64,
        own: u64,
        line: &Line,
        tied: Option<(u64, Option<u64>)>,
        play: u32,
    ) -> (u64, Option<u64>) {
        let now = self.log.next();
        let is_about = |position: u64| {
            let found = now - position;
            let allowed = (found.max(ago) as f64 * TIMES_ALIKE) as u64 + TIMES_CLOSE;
            found.abs_diff(ago) <= allowed
        };
        // What a tie leads to, or the extent of the first play, if it was used at about that time.
        if let Some((start, Some(position))) = tied
            && is_about(position)
        {
            return (start, Some(position));
        }
        let last = self.last_used[line.extent as usize].checked_sub(1);
        let last = last.filter(|&last| self.log.start_at(last) == Some(own));
        if let Some(last) = last
            && (play == 0 || is_about(last))
        {
            return (own, Some(last));
        }
        if play == 0 && self.script.is_in_burst() {
            // It was used last in a window that is left out. In a burst it matters more who waits for whom than that something is used again.
            return (own, None);
        }
        // Else one that was, as long and used as often, best where it waits for the same disk.
        let uses = last.and_then(|last| self.log.uses_at(last)).unwrap_or(1);
        match self.log.nearest(now.saturating_sub(ago), Mark::new(own, line.kind, line.run, uses)) {
            Some(found) => (self.log.start_at(found).expect("what is found is live"), Some(found)),
            None => (own, last),
        }
    }
}

/// How many requests are to be remembered to find all that the model uses again.
fn reach(model: &Model) -> usize {
    let agos = model.windows.iter().flat_map(|window: &super::Window| &window.steps).map(|step: &Step| {
        match step.at {
            Whereabouts::At { used: Use::Again(ago) | Use::Inside(ago), .. } => ago,
            _ => 0,
        }
    });
    let most = agos.max().unwrap_or(0).saturating_mul(5) / 4;
    most.clamp(*REACH.start(), *REACH.end()) as usize
}
