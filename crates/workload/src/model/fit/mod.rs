//! Fitting: one pass over a trace, in memory that does not grow with its length.
//!
//! What is bounded, and how: ranges are split in four up to a level that is lowered when more than 2^18 different transitions
//! occur; sizes beyond 1,024 different ones are rounded up to powers of two; of many windows only some are kept. Volumes and their names are the
//! trace's own: a record of 4 KiB for each.

mod gaps;
mod kinds;
mod phases;
mod places;
mod ranges;
mod rows;
mod sample;
mod steps;
mod threads;

use super::footprint::Footprint;
use super::plain;
use super::windows::{Step, Whereabouts, Window, rounded};
use super::{About, LevelIops, Link, MODEL_SCHEMA, Model, VolumeModel};
use forebay_trace::{REQUEST_BYTES_MAX, Request, ThreadNumber, VolumeIndex, block_key};
use forebay_units::{BlockSize, Nanos};
use kinds::Kinds;
use phases::{Arrival, Phases, mixture_cell};
use places::{Found, Places};
use ranges::{LEVEL_MAX, Ranges};
use rows::{RowKey, Rows};
use sample::{Sample, Tally};
use thiserror::Error;
use threads::Threads;

/// Volumes of a model.
const VOLUMES_MAX: usize = 1 << 12;
/// Requests of a window, which has a phase as a whole.
const WINDOW: usize = 256;
/// Requests of the first stretch that has a phase, as it also tells long inter-arrival times from short ones.
const STRETCH_FIRST: usize = 1_024;
/// Ends of volumes are told to the next multiple.
const END_BYTES: u64 = 1 << 20;
/// Requests whose ends a stream may go on from.
const HEADS: usize = 16;

/// Steps of a model whose number is not given, at most.
pub const STEPS_MAX: usize = 1 << 19;

/// How large a model may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FitOptions {
    /// The level; `None` chooses the first at which the IOPS of a simulated device change by less than 2 %.
    pub level: Option<u32>,
    /// Phases at most, 1 to 16.
    pub phases_max: usize,
    /// Transitions that are kept apart at most; the rarest beyond share one row per state they lead to.
    pub transitions_max: usize,
    /// Requests that are kept as steps of windows, at most; at least one window of 256 is. `None` chooses the fewest with which what is generated is like the trace, up to
    /// [`STEPS_MAX`].
    pub steps: Option<usize>,
    /// The block in which the footprint is counted.
    pub block_size: BlockSize,
}

impl Default for FitOptions {
    fn default() -> FitOptions {
        FitOptions {
            level: None,
            phases_max: 8,
            transitions_max: 8_192,
            steps: None,
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

/// What is known of a volume while fitting.
#[derive(Clone, Debug)]
struct Volume {
    end: u64,
    requests: u64,
    /// Where the last requests ended, the newest at `newest`.
    heads: [u64; HEADS],
    newest: usize,
    /// Where the last request started, once there was one.
    last_start: Option<u64>,
}

impl Volume {
    fn new() -> Volume {
        Volume { end: 0, requests: 0, heads: [u64::MAX; HEADS], newest: 0, last_start: None }
    }

    /// Where it ends, as far as a model tells.
    fn bytes(&self) -> u64 {
        self.end.max(1).checked_next_multiple_of(END_BYTES).unwrap_or(u64::MAX)
    }

    /// Which of the last requests ended where this one starts: 0 is the last one. Its own end is known then.
    #[inline]
    fn stream(&mut self, request: &Request) -> Option<usize> {
        let place = |back: usize| (self.newest + HEADS - back) % HEADS;
        let stream = (0..HEADS).find(|&back| self.heads[place(back)] == request.offset);
        if let Some(back) = stream {
            // The stream goes on: its old end is nobody's any more.
            self.heads[place(back)] = u64::MAX;
        }
        self.newest = (self.newest + 1) % HEADS;
        self.heads[self.newest] = request.range().end();
        self.end = self.end.max(request.range().end());
        self.last_start = Some(request.offset);
        stream
    }
}

/// Fits a [`Model`] to requests in the order of the trace.
#[derive(Clone, Debug)]
pub struct ModelFitter {
    options: FitOptions,
    volumes: Vec<Option<Volume>>,
    ranges: Ranges,
    kinds: Kinds,
    rows: Rows,
    phases: Phases,
    threads: Threads,
    footprint: Footprint,
    places: Places,
    sample: Sample,
    /// The window that is not yet complete.
    steps: Vec<Step>,
    /// Requests with bytes before it.
    window_after: u64,
    tally: Tally,
    /// The stretch that has no phase yet.
    stretch: Vec<Arrival>,
    is_first_stretch: bool,
    requests: u64,
    first: Option<Nanos>,
    last: Nanos,
    last_gap: u64,
    /// Greatest common divisor of all times.
    divisor: u64,
    stepped_back: u64,
    /// Volume and state of the last request, and whether it had bytes.
    at: Option<(u32, u32, bool)>,
}

impl ModelFitter {
    /// Nothing seen yet.
    pub fn new(options: FitOptions) -> ModelFitter {
        let options = FitOptions {
            phases_max: options.phases_max.clamp(1, 16),
            transitions_max: options.transitions_max.max(1),
            level: options.level.map(|level| level.min(LEVEL_MAX)),
            ..options
        };
        ModelFitter {
            options,
            volumes: Vec::new(),
            ranges: Ranges::new(),
            kinds: Kinds::default(),
            rows: Rows::default(),
            phases: Phases::new(options.phases_max),
            threads: Threads::default(),
            footprint: Footprint::new(),
            places: Places::new(),
            // What is merged at the end, when all is known, keeps more.
            sample: Sample::new(options.steps.unwrap_or(0).max(STEPS_MAX).div_ceil(WINDOW)),
            steps: Vec::with_capacity(WINDOW),
            window_after: 0,
            tally: Tally::new(),
            stretch: Vec::with_capacity(STRETCH_FIRST),
            is_first_stretch: true,
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
            // Only a discard is longer than what a model may hold: it counts as long as that, as it may be longer than any device.
            self.request(&Request { length: request.length.min(REQUEST_BYTES_MAX), ..*request });
        }
        Ok(())
    }

    fn request(&mut self, request: &Request) {
        let gap = self.gap(request.time);
        let volume = request.volume.0 as usize;
        if volume >= self.volumes.len() {
            self.volumes.resize(volume + 1, None);
        }
        if let Some(renamed) = self.ranges.reach(volume, request.range().end()) {
            self.rename(&renamed);
        }
        let kind = self.kinds.count(request);
        let seen = self.volumes[volume].get_or_insert_with(Volume::new);
        seen.requests += 1;
        // What has no bytes happens where the last request was.
        let byte = if request.length == 0 { seen.last_start.unwrap_or(0) } else { request.offset };
        let stream = if request.length == 0 { None } else { seen.stream(request) };
        let to = loop {
            match self.ranges.state(volume, byte) {
                Some(state) => break state,
                None => self.coarsen(),
            }
        };
        let found = self.places.find(request);
        if request.length > 0 {
            let blocks = request.range().blocks(self.options.block_size);
            blocks.for_each(|block| self.footprint.add(block_key(request.volume, block)));
        }
        let goes_on = stream == Some(0);
        self.add_step(request, kind, gap, goes_on, found);
        let link = match (found.is_again(), stream) {
            (false, None) => Link::Jump,
            (false, Some(0)) => Link::Follow,
            (false, Some(_)) => Link::Resume,
            (true, Some(0)) => Link::Along,
            (true, _) => Link::Again,
        };
        let from = self.at.map_or(to, |(_, state, _)| state);
        let arrival = Arrival { before_ns: self.last_gap, gap_ns: gap, cell: self.cell(request, to) };
        self.stretch.push(arrival);
        self.rows.add(RowKey::new(from, (to, kind), link), gap);
        self.at = Some((request.volume.0, to, request.length > 0));
        self.last_gap = gap;
        if self.stretch.len() == if self.is_first_stretch { STRETCH_FIRST } else { WINDOW } {
            self.end_stretch();
        }
    }

    fn add_step(&mut self, request: &Request, kind: u32, gap: u64, goes_on: bool, found: Found) {
        // Only from the step before, not from one of another volume's in between.
        let follows = goes_on
            && !self.steps.is_empty()
            && self.at.is_some_and(|(volume, _, has_bytes)| volume == request.volume.0 && has_bytes);
        let is_new = found.ago.is_none();
        let at = if follows { Whereabouts::On { is_new } } else { found.at };
        self.steps.push(Step { kind, gap_ns: rounded(gap), at });
        self.tally.add(request, gap, goes_on, found.ago);
        self.threads.count(request.thread);
        if self.steps.len() == WINDOW {
            self.end_window();
        }
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

    /// A class of requests, for telling phases apart: sixteenth of the volume, type, and size in three steps.
    fn cell(&self, request: &Request, state: u32) -> u8 {
        let sixteenth = u64::from(self.ranges.sixteenth(state));
        let size = u64::from(request.length > 8 << 10) + u64::from(request.length > 64 << 10);
        let volume = u64::from(request.volume.0);
        mixture_cell(volume << 32 | sixteenth << 8 | (request.operation as u64) << 4 | size)
    }

    fn coarsen(&mut self) {
        if let Some(renamed) = self.ranges.coarsen() {
            self.rename(&renamed);
        }
    }

    fn rename(&mut self, renamed: &Vec<u32>) {
        self.rows.rename_states(renamed);
        if let Some((_, state, ..)) = &mut self.at {
            *state = renamed[*state as usize];
        }
    }

    fn end_window(&mut self) {
        let steps = std::mem::replace(&mut self.steps, Vec::with_capacity(WINDOW));
        if !steps.is_empty() {
            let after = std::mem::replace(&mut self.window_after, self.places.requests());
            let (stands_for, threads) = (steps.len() as u64, self.threads.end_window());
            self.sample.add(Window { stands_for, after, steps, threads }, self.tally.take());
        }
    }

    /// Gives the stretch a phase.
    fn end_stretch(&mut self) {
        if self.stretch.is_empty() {
            return;
        }
        self.is_first_stretch = false;
        self.phases.add(&self.stretch);
        self.stretch.clear();
        while self.ranges.level() > 0 && self.rows.are_too_many() {
            self.coarsen();
        }
    }

    /// The model of everything seen.
    ///
    /// # Errors
    /// [`FitError::NoRequests`] where nothing was.
    pub fn finish(mut self) -> Result<Model, FitError> {
        if self.requests == 0 {
            return Err(FitError::NoRequests);
        }
        self.end_stretch();
        self.end_window();
        self.at = None;
        let (mut windows, mut selection) = std::mem::replace(&mut self.sample, Sample::new(1)).finish();
        let renamed = self.kinds.merge();
        self.rows.rename_kinds(&renamed);
        let steps = windows.iter_mut().flat_map(|window| &mut window.steps);
        steps.for_each(|step| step.kind = renamed[step.kind as usize]);
        let mut model = self.frame();
        let levels = match self.options.level {
            Some(level) => {
                while self.ranges.level() > level {
                    self.coarsen();
                }
                Vec::new()
            }
            None => self.choose_level(&mut model),
        };
        self.fill(&mut model);
        let held: usize = windows.iter().map(|window| window.steps.len()).sum();
        let original = (self.options.steps.is_none() && held as u64 == self.requests)
            .then(|| self.originals(&model, &windows));
        gaps::tell_few(&mut windows);
        let (areas, numbers) = self.places.models(&self.ranges);
        for step in windows.iter_mut().flat_map(|window| &mut window.steps) {
            if let Whereabouts::At { area, .. } = &mut step.at {
                *area = numbers[*area as usize];
            }
        }
        let thread_weights = self.threads.models(&mut windows);
        let mut model = Model { levels, thread_weights, areas, windows, ..model };
        selection.count_kinds(&model.windows, &self.kinds.counts());
        // What was to be known while the trace was read takes no memory from the choice.
        let steps = self.options.steps;
        drop(self);
        match steps {
            None => steps::choose(&mut model, selection, original),
            Some(steps) if (steps as u64) < model.steps_held() => {
                selection.shrink(steps.div_ceil(WINDOW));
                selection.refine();
                model.windows = selection.of(&model.windows);
            }
            Some(_) => {}
        }
        Ok(model)
    }

    /// The trace itself, but for digits of its times, where windows hold all of it; volumes have the model's numbers.
    fn originals(&self, model: &Model, windows: &[Window]) -> Vec<Request> {
        let names = self.volume_names();
        let (mut time, mut volume, mut end) = (0, 0, 0);
        let mut all = Vec::with_capacity(self.requests as usize);
        for window in windows {
            let runs = window.threads.iter();
            let mut threads = runs.flat_map(|&(thread, steps)| std::iter::repeat_n(thread, steps as usize));
            for step in &window.steps {
                let kind = &model.kinds[step.kind as usize];
                time += step.gap_ns;
                if let Whereabouts::At { area, sectors, .. } = step.at {
                    (volume, end) = self.places.byte(area, sectors);
                }
                let offset = if kind.bytes == 0 { 0 } else { end };
                end += kind.bytes;
                all.push(Request {
                    time: Nanos(time),
                    offset,
                    length: kind.bytes,
                    latency: Nanos::MAX,
                    volume: VolumeIndex(names[volume as usize]),
                    thread: ThreadNumber(threads.next().unwrap_or_default()),
                    operation: kind.operation,
                });
            }
        }
        all
    }

    /// The model's numbers of volumes by the trace's.
    fn volume_names(&self) -> Vec<u32> {
        let known = self.volumes.iter().scan(0, |known, volume| {
            let name = *known;
            *known += u32::from(volume.is_some());
            Some(name)
        });
        known.collect()
    }

    /// Lowers the level to the first that leaves the IOPS of the simulated device within 2 % of those of the level before it.
    fn choose_level(&mut self, model: &mut Model) -> Vec<LevelIops> {
        let mut levels = vec![(self.ranges.clone(), self.rows.clone())];
        while self.ranges.level() > 0 {
            self.coarsen();
            levels.push((self.ranges.clone(), self.rows.clone()));
        }
        let mut found: Vec<LevelIops> = Vec::new();
        while let Some(coarsest) = levels.pop() {
            (self.ranges, self.rows) = coarsest;
            self.fill(model);
            let (level, iops) = (self.ranges.level(), plain::device_iops(model));
            let settled = found.last().is_some_and(|last| (iops / last.iops - 1.0).abs() < 0.02);
            found.push(LevelIops { level, states: model.states.len() as u32, iops });
            if settled && level >= 2 {
                break;
            }
        }
        found
    }

    /// Level, ranges and the chain as they are now.
    fn fill(&self, model: &mut Model) {
        let ends: Vec<u64> =
            self.volumes.iter().map(|volume| volume.as_ref().map_or(1, Volume::bytes)).collect();
        model.level = self.ranges.level();
        model.states = self.ranges.models(&ends, &self.volume_names());
        model.transitions = self.rows.transitions(self.options.transitions_max);
    }

    /// The model without what depends on its level.
    fn frame(&self) -> Model {
        let volume = |volume: &Volume| VolumeModel {
            bytes: volume.bytes(),
            weight: volume.requests as f64 / self.requests as f64,
        };
        Model {
            schema: MODEL_SCHEMA.to_owned(),
            about: About {
                requests: self.requests,
                seconds: self.last.saturating_since(self.first.unwrap_or_default()).as_secs_f64(),
                timed: self.divisor != 0,
                resolution_ns: self.divisor.max(1),
                stepped_back: self.stepped_back,
                footprint_blocks: self.footprint.count(),
            },
            block_bytes: self.options.block_size.bytes(),
            level: 0,
            levels: Vec::new(),
            steps: Vec::new(),
            placements: Vec::new(),
            volumes: self.volumes.iter().flatten().map(volume).collect(),
            thread_weights: Vec::new(),
            kinds: self.kinds.models(),
            states: Vec::new(),
            transitions: Vec::new(),
            phases: self.phases.models(),
            area_bytes: places::AREA_BYTES,
            areas: Vec::new(),
            windows: Vec::new(),
        }
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
