//! Fitting: one pass over a trace, in memory that does not grow with its length.
//!
//! What is bounded, and how: ranges are split in four up to a level that is lowered when more than 2^18 different transitions
//! occur; sizes beyond 1,024 different ones are rounded up to powers of two; of many windows only some are kept; segments of the
//! schedule are merged. Volumes and their names are the trace's own: a record of 4 KiB for each.

use super::arrivals::{GapCounter, octave};
use super::footprint::Footprint;
use super::history::{Extent, History, extent_key};
use super::plain;
use super::schedule::{Observed, thin};
use super::windows::{Library, rounded};
use super::{
    ANY, About, Gaps, Kind, Link, MODEL_SCHEMA, Model, Phase, Place, Segment, StateModel, Step, Transition,
    VolumeModel, Window,
};
use foldhash::fast::FixedState;
use forebay_trace::{Operation, Request, block_key};
use forebay_units::{BlockSize, Nanos};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use thiserror::Error;

/// The finest level: 4^5 = 1,024 ranges a volume.
pub(super) const LEVEL_MAX: u32 = 5;
/// Areas within which relative places are kept, and how many of them.
const AREA_BYTES: u64 = 64 << 20;
const AREAS_MAX: usize = 1 << 17;
/// Blocks by which is known what was used, and how many times 64 of them; beyond, all is forgotten.
const USED_BYTES: u64 = 4_096;
const USED_MAX: usize = 1 << 20;
/// Volumes of a model.
const VOLUMES_MAX: usize = 1 << 12;
const CELLS: usize = 1 << (2 * LEVEL_MAX);
/// Different (phase, from, to, kind, link) above which ranges get coarser.
const ROWS_MAX: usize = 1 << 18;
/// Different types and sizes above which sizes are rounded.
const KINDS_MAX: usize = 1 << 10;
/// Types and sizes of a model.
const KINDS_KEPT: usize = 256;
/// Requests of a window that is given a phase as a whole.
const WINDOW: usize = 256;
/// Requests of the first window, which also tells long inter-arrival times from short ones.
const WINDOW_FIRST: usize = 1_024;
/// Requests of a segment before anything is merged.
const SEGMENT: u64 = 32;
/// Distance of two mixtures of requests (0: alike, 2: nothing in common) above which they are different phases.
const PHASE_DISTANCE: f64 = 0.7;
/// Cells of a mixture.
const MIXTURE: usize = 64;
/// The unit in which depths of the history are counted.
pub(super) const DEPTH_BYTES: u64 = 512;
/// Requests whose ends a stream may go on from.
pub(super) const HEADS: usize = 16;

/// How large a model may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FitOptions {
    /// The level; `None` chooses the first at which the IOPS of a simulated device change by less than 2 %.
    pub level: Option<u32>,
    /// Phases at most, 1 to 16.
    pub phases_max: usize,
    /// Segments of the schedule at most, at least 1.
    pub segments_max: usize,
    /// Transitions that are kept apart at most; the rarest beyond share one row per state they lead to.
    pub transitions_max: usize,
    /// Requests that are kept as steps of windows, at most; at least one window of 256 is.
    pub steps_max: usize,
    /// The block in which the footprint is counted.
    pub block_size: BlockSize,
}

impl Default for FitOptions {
    fn default() -> FitOptions {
        FitOptions {
            level: None,
            phases_max: 8,
            segments_max: 2_048,
            transitions_max: 8_192,
            steps_max: 1 << 17,
            block_size: BlockSize::DEFAULT,
        }
    }
}

/// Why there is no model.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FitError {
    /// The trace has no requests, or none of the volumes asked for.
    #[error("the trace has no requests to fit a model to")]
    NoRequests,
    /// More volumes than a model holds.
    #[error("the trace has more than {max} volumes: fit a model to some of them")]
    TooManyVolumes {
        /// The most.
        max: usize,
    },
}

type Map<V> = HashMap<u64, V, FixedState>;

/// What is known of a volume while fitting.
#[derive(Clone, Debug)]
struct Volume {
    /// The root range is `[0, 2^root_shift)`.
    root_shift: u32,
    end: u64,
    requests: u64,
    /// State by cell of the finest level, `u32::MAX` where none.
    states: Box<[u32]>,
    /// Where the last requests ended, the newest at `newest`.
    heads: [u64; HEADS],
    /// Where they started.
    starts: [u64; HEADS],
    newest: usize,
}

/// A request of the window that is not yet in a phase.
#[derive(Clone, Copy, Debug)]
struct Event {
    row: u64,
    before_ns: u64,
    gap_ns: u64,
    mixture: u8,
}

/// Fields of a packed row: link, kind, to, kind before, from, phase.
const KIND: u32 = 3;
const TO: u32 = KIND + KIND_BITS;
const FROM_KIND: u32 = TO + STATE_BITS;
const FROM: u32 = FROM_KIND + KIND_BITS;
const PHASE: u32 = FROM + STATE_BITS;
const KIND_BITS: u32 = 11;
const STATE_BITS: u32 = 14;

fn field(key: u64, shift: u32, bits: u32) -> u32 {
    (key >> shift) as u32 & ((1 << bits) - 1)
}

/// Packs (from, kind before), (to, kind) and link. Phase and length of the time come in when they are known.
fn row_key(from: (u32, u32), to: (u32, u32), link: Link) -> u64 {
    u64::from(from.0) << FROM
        | u64::from(from.1) << FROM_KIND
        | u64::from(to.0) << TO
        | u64::from(to.1) << KIND
        | link as u64
}

/// The row that a key stands for, without its counts, and its phase.
fn row_of(key: u64) -> (usize, Transition) {
    let link = match key & 7 {
        0 => Link::Jump,
        1 => Link::Follow,
        2 => Link::Resume,
        3 => Link::Again,
        _ => Link::Along,
    };
    let row = Transition {
        from: field(key, FROM, STATE_BITS),
        from_kind: field(key, FROM_KIND, KIND_BITS),
        to: field(key, TO, STATE_BITS),
        kind: field(key, KIND, KIND_BITS),
        link,
        requests: 0,
        gap_us: 0.0,
    };
    ((key >> PHASE) as usize, row)
}

/// Fits a [`Model`] to requests in the order of the trace.
#[derive(Clone, Debug)]
pub struct ModelFitter {
    options: FitOptions,
    volumes: Vec<Option<Volume>>,
    /// Levels of the cells: at most [`LEVEL_MAX`].
    level: u32,
    states: Vec<(u32, u32)>,
    kinds: Vec<(Operation, u64, [u64; 8])>,
    kind_ids: HashMap<(u8, u64), u32, FixedState>,
    /// Count and sum of gaps in ns by row.
    rows: Map<(u64, f64)>,
    footprint: Footprint,
    history: History,
    library: Library,
    /// Steps of the window that is not yet in a phase, and the number of its first request.
    steps: Vec<Step>,
    steps_first: u64,
    /// Blocks that were used, a bit each, by 64 of them.
    used: Map<u64>,
    /// Number and first used byte of areas, by volume and place.
    area_ids: HashMap<(u32, u64), (u32, u64), FixedState>,
    /// Volume and first byte of areas.
    areas: Vec<(u32, u64)>,
    window: Vec<Event>,
    window_segments: Vec<Observed>,
    segment: Observed,
    segments: Vec<Observed>,
    phases: Vec<([f64; MIXTURE], u64)>,
    gaps: Vec<GapCounter>,
    /// The octave from which inter-arrival times are long, as the first window has it.
    long_from: Option<usize>,
    requests: u64,
    first: Option<Nanos>,
    last: Nanos,
    last_gap: u64,
    /// Greatest common divisor of all times.
    divisor: u64,
    stepped_back: u64,
    /// State and kind of the last request.
    at: Option<(u32, u32)>,
}

impl ModelFitter {
    /// Nothing seen yet.
    pub fn new(options: FitOptions) -> ModelFitter {
        ModelFitter {
            options: FitOptions {
                phases_max: options.phases_max.clamp(1, 16),
                segments_max: options.segments_max.max(1),
                transitions_max: options.transitions_max.max(1),
                level: options.level.map(|level| level.min(LEVEL_MAX)),
                ..options
            },
            volumes: Vec::new(),
            level: LEVEL_MAX,
            states: Vec::new(),
            kinds: Vec::new(),
            kind_ids: HashMap::default(),
            rows: HashMap::default(),
            footprint: Footprint::new(),
            history: History::new(),
            library: Library::new(options.steps_max.div_ceil(WINDOW)),
            steps: Vec::with_capacity(WINDOW_FIRST),
            steps_first: 0,
            used: HashMap::default(),
            area_ids: HashMap::default(),
            areas: Vec::new(),
            window: Vec::with_capacity(WINDOW_FIRST),
            window_segments: Vec::new(),
            segment: Observed::new(),
            segments: Vec::new(),
            phases: Vec::new(),
            gaps: Vec::new(),
            long_from: None,
            requests: 0,
            first: None,
            last: Nanos::ZERO,
            last_gap: 0,
            divisor: 0,
            stepped_back: 0,
            at: None,
        }
    }

    /// The next requests.
    ///
    /// # Errors
    /// [`FitError::TooManyVolumes`].
    pub fn requests(&mut self, requests: &[Request]) -> Result<(), FitError> {
        for request in requests {
            if request.volume.0 as usize >= VOLUMES_MAX {
                return Err(FitError::TooManyVolumes { max: VOLUMES_MAX });
            }
            self.request(request);
        }
        Ok(())
    }

    fn request(&mut self, request: &Request) {
        let gap = self.gap(request.time);
        let volume = request.volume.0 as usize;
        if volume >= self.volumes.len() {
            self.volumes.resize(volume + 1, None);
        }
        if self.volumes[volume].is_none() {
            self.volumes[volume] = Some(Volume {
                root_shift: 2 * LEVEL_MAX + 12,
                end: 0,
                requests: 0,
                states: vec![u32::MAX; CELLS].into_boxed_slice(),
                heads: [u64::MAX; HEADS],
                starts: [u64::MAX; HEADS],
                newest: 0,
            });
        }
        let end = request.offset + request.length;
        self.grow(volume, end);
        // What has no bytes happens where the last request was.
        let kind = self.kind(request);
        let seen = self.volumes[volume].as_mut().expect("it was made above");
        seen.requests += 1;
        let shift = seen.root_shift - 2 * self.level;
        // Beyond 2^63 the last cell takes what is left.
        let cell_of = |byte: u64| (byte >> shift).min((1 << (2 * self.level)) - 1) as usize;
        let (stream, to) = if request.length == 0 {
            let last = seen.starts[seen.newest];
            (None, cell_of(if last == u64::MAX { 0 } else { last }))
        } else {
            seen.end = seen.end.max(end);
            let place = |back: usize| (seen.newest + HEADS - back) % HEADS;
            let stream = (0..HEADS).find(|&back| seen.heads[place(back)] == request.offset);
            if let Some(back) = stream {
                // The stream goes on: its old end is nobody's any more.
                seen.heads[place(back)] = u64::MAX;
            }
            seen.newest = (seen.newest + 1) % HEADS;
            seen.heads[seen.newest] = end;
            seen.starts[seen.newest] = request.offset;
            (stream, cell_of(request.offset))
        };
        let seen = self.volumes[volume].as_mut().expect("it was made above");
        let state = seen.states[to];
        let to = if state != u32::MAX { state } else { self.new_state(volume, to) };
        let inside = request.length > 0 && self.use_up(request);
        let again = self.again(request);
        let (area, from) = self.area(request.volume.0, request.offset);
        // Areas that could not be told apart share one; elsewhere both are of the same.
        let sectors = ((request.offset % AREA_BYTES) as i64 - (from % AREA_BYTES) as i64) / 512;
        self.steps.push(Step {
            kind,
            gap_ns: rounded(gap),
            area,
            sectors,
            again,
            inside: inside && again.is_none(),
        });
        if request.length > 0 {
            let blocks = request.range().blocks(self.options.block_size);
            blocks.for_each(|block| self.footprint.add(block_key(request.volume, block)));
        }
        let link = match (again, stream) {
            (None, None) => Link::Jump,
            (None, Some(0)) => Link::Follow,
            (None, Some(_)) => Link::Resume,
            (Some(_), Some(0)) => Link::Along,
            (Some(_), _) => Link::Again,
        };
        let mixture = self.mixture(volume, to, kind);
        self.window.push(Event {
            row: row_key(self.at.unwrap_or((to, kind)), (to, kind), link),
            before_ns: self.last_gap,
            gap_ns: gap,
            mixture,
        });
        self.at = Some((to, kind));
        self.last_gap = gap;
        self.segment.requests += 1;
        self.segment.ns += gap;
        self.segment.octaves[octave(gap)] += 1;
        if self.segment.requests == SEGMENT {
            self.window_segments.push(std::mem::replace(&mut self.segment, Observed::new()));
        }
        if self.window.len() == if self.long_from.is_none() { WINDOW_FIRST } else { WINDOW } {
            self.close_window();
        }
    }

    /// Where the earlier extent lies that the request starts with, if there is one; it is on top of the history then.
    fn again(&mut self, request: &Request) -> Option<Place> {
        if request.length == 0 {
            return None;
        }
        let start = extent_key(request.volume.0, request.offset);
        let place = self.history.starting_at(start).map(|at| self.name(at));
        self.history.push(Extent { start, length: request.length });
        place
    }

    /// Whether the last block of a request was used before; all its blocks are used now.
    fn use_up(&mut self, request: &Request) -> bool {
        if self.used.len() >= USED_MAX {
            self.used.clear();
        }
        let start = extent_key(request.volume.0, request.offset);
        let (first, last) = (start / USED_BYTES, (start + request.length - 1) / USED_BYTES);
        // What goes on along a stream may share its first block with it.
        let before = self.used.get(&(last / 64)).copied().unwrap_or(0);
        let mut at = first;
        while at <= last {
            let until = (at | 63).min(last);
            *self.used.entry(at / 64).or_insert(0) |= (u64::MAX >> (63 - (until - at))) << (at & 63);
            at = until + 1;
        }
        before >> (last & 63) & 1 == 1
    }

    /// The number of the area of a byte, and its first used byte.
    fn area(&mut self, volume: u32, offset: u64) -> (u32, u64) {
        let place = offset / AREA_BYTES;
        // More areas than can be told apart share them.
        let place = if self.areas.len() >= AREAS_MAX && !self.area_ids.contains_key(&(volume, place)) {
            let (other, byte) = self.areas[(place % AREAS_MAX as u64) as usize];
            return self.area_ids[&(other, byte / AREA_BYTES)];
        } else {
            place
        };
        let areas = &mut self.areas;
        *self.area_ids.entry((volume, place)).or_insert_with(|| {
            areas.push((volume, place * AREA_BYTES));
            // Blocks stay blocks.
            (areas.len() as u32 - 1, offset / USED_BYTES * USED_BYTES)
        })
    }

    /// The name of a live place; a cursor is there then.
    fn name(&mut self, at: u32) -> Place {
        let relation = self.history.relation(at);
        let place = match relation {
            Some(relation) => Place::near(relation),
            None => Place::Far(self.history.depth_of(at) / DEPTH_BYTES),
        };
        self.history.found(relation, at);
        place
    }

    /// The time since the last request; 0 for the first one and for steps back.
    fn gap(&mut self, time: Nanos) -> u64 {
        self.requests += 1;
        let Some(first) = self.first else {
            (self.first, self.last) = (Some(time), time);
            return 0;
        };
        if time < self.last {
            self.stepped_back += 1;
            return 0;
        }
        if self.divisor != 1 {
            self.divisor = greatest_common_divisor(self.divisor, time.saturating_since(first).0);
        }
        time.0 - std::mem::replace(&mut self.last, time).0
    }

    fn kind(&mut self, request: &Request) -> u32 {
        let operation = request.operation as u8;
        let sector = (request.offset % self.options.block_size.bytes().min(4_096)) / 512;
        let mut bytes = request.length;
        if self.kinds.len() >= KINDS_MAX - 5 * 40 && !self.kind_ids.contains_key(&(operation, bytes)) {
            bytes = bytes.next_power_of_two();
        }
        let id = *self.kind_ids.entry((operation, bytes)).or_insert_with(|| {
            self.kinds.push((request.operation, bytes, [0; 8]));
            self.kinds.len() as u32 - 1
        });
        self.kinds[id as usize].2[sector as usize & 7] += 1;
        id
    }

    /// A class of requests, for telling phases apart: sixteenth of the volume, type, and size in three steps.
    fn mixture(&self, volume: usize, state: u32, kind: u32) -> u8 {
        let (operation, bytes, _) = self.kinds[kind as usize];
        let area = u64::from(self.states[state as usize].1 >> (2 * self.level).saturating_sub(4));
        let size = u64::from(bytes > 8 << 10) + u64::from(bytes > 64 << 10);
        let class = (volume as u64) << 32 | area << 8 | (operation as u64) << 4 | size;
        (forebay_units::mix64(class) % MIXTURE as u64) as u8
    }

    fn new_state(&mut self, volume: usize, cell: usize) -> u32 {
        if self.states.len() + 16 > 1 << STATE_BITS {
            self.coarsen();
            // The level is lower now, so the cell is another one.
            let cell = cell >> 2;
            let seen = self.volumes[volume].as_ref().expect("the volume has requests");
            if seen.states[cell] != u32::MAX {
                return seen.states[cell];
            }
            return self.add_state(volume, cell);
        }
        self.add_state(volume, cell)
    }

    fn add_state(&mut self, volume: usize, cell: usize) -> u32 {
        let state = self.states.len() as u32;
        self.states.push((volume as u32, cell as u32));
        self.volumes[volume].as_mut().expect("the volume has requests").states[cell] = state;
        state
    }

    /// Makes the root of `volume` reach to `end`.
    fn grow(&mut self, volume: usize, end: u64) {
        let seen = self.volumes[volume].as_ref().expect("the volume has requests");
        let mut shift = seen.root_shift;
        while shift < 63 && end > 1 << shift {
            shift += 2;
        }
        let shift = shift.min(63);
        if shift > seen.root_shift {
            // Cells merge: every `by` bits of them are one.
            let by = shift - seen.root_shift;
            let occupied = seen.requests > 0;
            self.volumes[volume].as_mut().expect("the volume has requests").root_shift = shift;
            if occupied {
                self.remap(|of, cell| if of as usize == volume { cell >> by } else { cell });
            }
        }
    }

    fn coarsen(&mut self) {
        if self.level > 0 {
            self.level -= 1;
            self.remap(|_, cell| cell >> 2);
        }
    }

    /// Gives every state its new cell; states with one cell become one.
    fn remap(&mut self, cell_of: impl Fn(u32, u32) -> u32) {
        let old = std::mem::take(&mut self.states);
        for volume in self.volumes.iter_mut().flatten() {
            volume.states.fill(u32::MAX);
        }
        let mut renamed = Vec::with_capacity(old.len());
        for (volume, cell) in old {
            let cell = cell_of(volume, cell);
            let known = self.volumes[volume as usize].as_ref().expect("it has states").states[cell as usize];
            renamed.push(if known != u32::MAX {
                known
            } else {
                self.add_state(volume as usize, cell as usize)
            });
        }
        let name = |key: u64, shift: u32| {
            let state = renamed[field(key, shift, STATE_BITS) as usize];
            (key & !(((1 << STATE_BITS) - 1) << shift)) | u64::from(state) << shift
        };
        let rename_row = |key: u64| name(name(key, FROM), TO);
        let rows = std::mem::take(&mut self.rows);
        for (key, (count, sum)) in rows {
            let row = self.rows.entry(rename_row(key)).or_insert((0, 0.0));
            row.0 += count;
            row.1 += sum;
        }
        self.window.iter_mut().for_each(|event| event.row = rename_row(event.row));
        self.at = self.at.map(|(state, kind)| (renamed[state as usize], kind));
    }

    /// Gives the window a phase, and counts what is in it.
    fn close_window(&mut self) {
        if self.window.is_empty() {
            return;
        }
        self.long_from.get_or_insert_with(|| {
            let mut counter = GapCounter::new();
            self.window.iter().for_each(|event| counter.add(event.before_ns, event.gap_ns));
            counter.border()
        });
        let mut mixture = [0.0; MIXTURE];
        let share = 1.0 / self.window.len() as f64;
        self.window.iter().for_each(|event| mixture[event.mixture as usize] += share);
        let phase = self.phase_of(&mixture);
        for event in &self.window {
            let row = self.rows.entry(event.row | (phase as u64) << PHASE).or_insert((0, 0.0));
            row.0 += 1;
            row.1 += event.gap_ns as f64;
            self.gaps[phase].add(event.before_ns, event.gap_ns);
        }
        self.window.clear();
        for part in self.steps.chunks(WINDOW) {
            self.library.add(Window { first: self.steps_first, phase: phase as u32, steps: part.to_vec() });
            self.steps_first += part.len() as u64;
        }
        self.steps.clear();
        for mut segment in self.window_segments.drain(..) {
            segment.phase = phase as u32;
            self.segments.push(segment);
        }
        if self.segments.len() >= 2 * self.options.segments_max + WINDOW {
            thin(&mut self.segments, self.options.segments_max);
        }
        while self.level > 0 && self.rows.len() > ROWS_MAX {
            self.coarsen();
        }
    }

    /// The phase nearest to a mixture, or a new one: one pass of leader clustering.
    fn phase_of(&mut self, mixture: &[f64; MIXTURE]) -> usize {
        let distance =
            |other: &[f64; MIXTURE]| -> f64 { mixture.iter().zip(other).map(|(a, b)| (a - b).abs()).sum() };
        let nearest = self
            .phases
            .iter()
            .map(|(centre, _)| distance(centre))
            .enumerate()
            .min_by(|a, b| a.1.total_cmp(&b.1));
        let phase = match nearest {
            Some((phase, far)) if far <= PHASE_DISTANCE || self.phases.len() == self.options.phases_max => {
                phase
            }
            _ => {
                self.phases.push(([0.0; MIXTURE], 0));
                self.gaps.push(GapCounter::new());
                self.phases.len() - 1
            }
        };
        let (centre, windows) = &mut self.phases[phase];
        *windows += 1;
        for (centre, share) in centre.iter_mut().zip(mixture) {
            *centre += (share - *centre) / *windows as f64;
        }
        phase
    }

    /// The model of everything seen.
    ///
    /// # Errors
    /// [`FitError::NoRequests`] where nothing was.
    pub fn finish(mut self) -> Result<Model, FitError> {
        if self.requests == 0 {
            return Err(FitError::NoRequests);
        }
        if self.segment.requests > 0 {
            self.window_segments.push(std::mem::replace(&mut self.segment, Observed::new()));
        }
        self.close_window();
        thin(&mut self.segments, self.options.segments_max);
        self.merge_kinds();
        // What it knows is in the steps now, and copies of the rest are made below.
        self.history = History::empty();
        self.used = HashMap::default();
        let levels = match self.options.level {
            Some(level) => {
                while self.level > level {
                    self.coarsen();
                }
                Vec::new()
            }
            None => {
                let (level, levels) = self.choose_level();
                while self.level > level {
                    self.coarsen();
                }
                levels
            }
        };
        Ok(self.model(levels))
    }

    /// Gives rare sizes the nearest of the common ones of their type.
    fn merge_kinds(&mut self) {
        if self.kinds.len() <= KINDS_KEPT {
            return;
        }
        let counts: Vec<u64> = self.kinds.iter().map(|kind| kind.2.iter().sum()).collect();
        let mut order: Vec<usize> = (0..self.kinds.len()).collect();
        order.sort_by_key(|&kind| (std::cmp::Reverse(counts[kind]), kind));
        let mut kept: Vec<usize> = order[..KINDS_KEPT].to_vec();
        // A type is never lost.
        for &kind in &order[KINDS_KEPT..] {
            if !kept.iter().any(|&of| self.kinds[of].0 == self.kinds[kind].0) {
                kept.push(kind);
            }
        }
        let log = |kind: usize| (self.kinds[kind].1.max(1) as f64).ln();
        let renamed: Vec<u64> = (0..self.kinds.len())
            .map(|kind| {
                let of_type =
                    kept.iter().enumerate().filter(|(_, of)| self.kinds[**of].0 == self.kinds[kind].0);
                let far = |of: usize| (log(of) - log(kind)).abs();
                let nearest = of_type.min_by(|a, b| far(*a.1).total_cmp(&far(*b.1)));
                nearest.expect("every type was kept").0 as u64
            })
            .collect();
        let mut kinds: Vec<_> =
            kept.iter().map(|&kind| (self.kinds[kind].0, self.kinds[kind].1, [0; 8])).collect();
        for (kind, &name) in renamed.iter().enumerate() {
            let sectors = &mut kinds[name as usize].2;
            sectors.iter_mut().zip(self.kinds[kind].2).for_each(|(sum, count)| *sum += count);
        }
        self.kinds = kinds;
        let name = |key: u64, shift: u32| {
            let kind = renamed[field(key, shift, KIND_BITS) as usize];
            (key & !(((1 << KIND_BITS) - 1) << shift)) | kind << shift
        };
        for (key, (count, sum)) in std::mem::take(&mut self.rows) {
            let row = self.rows.entry(name(name(key, FROM_KIND), KIND)).or_insert((0, 0.0));
            row.0 += count;
            row.1 += sum;
        }
        for step in self.library.steps_mut() {
            step.kind = renamed[step.kind as usize] as u32;
        }
    }

    /// The first level that leaves the IOPS of the simulated device within 2 % of those of the level before it.
    fn choose_level(&self) -> (u32, Vec<super::LevelIops>) {
        let mut found: Vec<super::LevelIops> = Vec::new();
        for level in 0..=self.level {
            let mut coarse = self.clone();
            while coarse.level > level {
                coarse.coarsen();
            }
            let model = coarse.model(Vec::new());
            let iops = plain::device_iops(&model);
            let settled = found.last().is_some_and(|last| (iops / last.iops - 1.0).abs() < 0.02);
            found.push(super::LevelIops { level, states: model.states.len() as u32, iops });
            if settled && level >= 2 {
                break;
            }
        }
        (found.last().map_or(0, |last| last.level), found)
    }

    fn model(&self, levels: Vec<super::LevelIops>) -> Model {
        let mut volumes = Vec::new();
        let mut volume_ids = vec![u32::MAX; self.volumes.len()];
        for (at, volume) in self.volumes.iter().enumerate() {
            if let Some(volume) = volume {
                volume_ids[at] = volumes.len() as u32;
                let weight = volume.requests as f64 / self.requests as f64;
                volumes.push(VolumeModel { bytes: volume.end.max(1), weight });
            }
        }
        let states: Vec<StateModel> = self
            .states
            .iter()
            .map(|&(volume, cell)| {
                let seen = self.volumes[volume as usize].as_ref().expect("it has states");
                let shift = seen.root_shift - 2 * self.level;
                let first_byte = u64::from(cell) << shift;
                let bytes = (1u64 << shift).min(seen.end.max(1).saturating_sub(first_byte)).max(1);
                let volume = volume_ids[volume as usize];
                StateModel { volume, first_byte, bytes }
            })
            .collect();
        // In order of their keys, so that the same trace gives the same model.
        let rows: BTreeMap<u64, (u64, f64)> = self.rows.iter().map(|(&key, &row)| (key, row)).collect();
        let long_from = self.long_from.unwrap_or(0);
        let state_of = |&(volume, byte): &(u32, u64)| {
            let seen = self.volumes[volume as usize].as_ref().expect("it has areas");
            // An area may begin before the ranges that were used of it.
            let cell = |byte: u64| (byte >> (seen.root_shift - 2 * self.level)) as usize;
            let cells = cell(byte)..=cell(byte + (AREA_BYTES - 1)).min(CELLS - 1);
            let mut states = cells.map(|cell| seen.states[cell]).filter(|state| *state != u32::MAX);
            states.next().unwrap_or(0)
        };
        // In the order of their addresses, which tells how they lie to each other and no more.
        let mut order: Vec<usize> = (0..self.areas.len()).collect();
        order.sort_unstable_by_key(|&area| self.areas[area]);
        let mut numbers = vec![0; order.len()];
        (0u32..).zip(&order).for_each(|(number, &area)| numbers[area] = number);
        let areas = order.iter().map(|&area| state_of(&self.areas[area])).collect();
        let mut windows = self.library.windows().to_vec();
        for step in windows.iter_mut().flat_map(|window| &mut window.steps) {
            step.area = numbers[step.area as usize];
        }
        let gaps: Vec<Gaps> = self.gaps.iter().map(|gaps| gaps.finish(long_from)).collect();
        let phases = self.phases(&rows, &gaps);
        let resolution_ns = self.divisor.max(1);
        Model {
            schema: MODEL_SCHEMA.to_owned(),
            about: About {
                requests: self.requests,
                seconds: self.last.saturating_since(self.first.unwrap_or_default()).as_secs_f64(),
                timed: self.divisor != 0,
                resolution_ns,
                stepped_back: self.stepped_back,
                footprint_blocks: self.footprint.count(),
            },
            block_bytes: self.options.block_size.bytes(),
            level: self.level,
            levels,
            volumes,
            kinds: self
                .kinds
                .iter()
                .map(|&(operation, bytes, sectors)| Kind {
                    operation,
                    bytes,
                    sectors: match sectors[1..] {
                        [0, 0, 0, 0, 0, 0, 0] => Vec::new(),
                        _ => (0u8..).zip(sectors).filter(|(_, count)| *count > 0).collect(),
                    },
                })
                .collect(),
            states,
            phases,
            area_bytes: AREA_BYTES,
            areas,
            windows,
            schedule: self
                .segments
                .iter()
                .map(|segment| Segment {
                    phase: segment.phase,
                    requests: segment.requests,
                    seconds: segment.ns as f64 / 1e9,
                    bursts: segment.octaves[long_from..].iter().map(|&count| u64::from(count)).sum(),
                })
                .collect(),
        }
    }

    /// The chains: what is too rare to be kept apart is summed over the kind before, then over the state before.
    fn phases(&self, rows: &BTreeMap<u64, (u64, f64)>, gaps: &[Gaps]) -> Vec<Phase> {
        let mut phases: Vec<Phase> = gaps
            .iter()
            .map(|gaps| Phase { requests: 0, gaps: gaps.clone(), transitions: Vec::new() })
            .collect();
        // Rows of a level of detail by (phase, from, kind before, link, to, kind).
        type Key = (usize, u32, u32, u8, u32, u32);
        let mut detailed: BTreeMap<Key, (Transition, f64)> = BTreeMap::new();
        for (&key, &(count, sum)) in rows {
            let (phase, mut row) = row_of(key);
            row.requests = count;
            phases[phase].requests += count;
            let key = (phase, row.from, row.from_kind, row.link as u8, row.to, row.kind);
            detailed.insert(key, (row, sum));
        }
        let mut left = self.options.transitions_max;
        for step in 0..3 {
            // Half of what may be kept goes to each finer step; all that is left is the last one's.
            let most = if step < 2 { left / 2 } else { usize::MAX };
            let mut counts: Vec<u64> = detailed.values().map(|(row, _)| row.requests).collect();
            let rare = if counts.len() > most {
                counts.sort_unstable_by(|a, b| b.cmp(a));
                counts[most]
            } else {
                0
            };
            let mut coarser: BTreeMap<Key, (Transition, f64)> = BTreeMap::new();
            let mut rests: BTreeMap<(usize, u32, u32, u8), (Link, u64)> = BTreeMap::new();
            for ((phase, from, from_kind, link, to, kind), (mut row, sum)) in std::mem::take(&mut detailed) {
                if step == 2 || row.requests > rare {
                    row.gap_us = sum / row.requests as f64 / 1e3;
                    phases[phase].transitions.push(row);
                    left = left.saturating_sub(1);
                } else {
                    rests.entry((phase, from, from_kind, link)).or_insert((row.link, 0)).1 += row.requests;
                    row.from_kind = ANY;
                    row.from = if step == 0 { from } else { ANY };
                    let key = (phase, row.from, ANY, link, to, kind);
                    let summed = coarser.entry(key).or_insert((Transition { requests: 0, ..row }, 0.0));
                    summed.0.requests += row.requests;
                    summed.1 += sum;
                }
            }
            for ((phase, from, from_kind, _), (link, requests)) in rests {
                let row = Transition { from, from_kind, to: ANY, kind: 0, link, requests, gap_us: 0.0 };
                phases[phase].transitions.push(row);
            }
            detailed = coarser;
        }
        phases
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
