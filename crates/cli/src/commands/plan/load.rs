//! From traces to loads: one pass over each trace, however many volumes of the plan it holds.

use super::config::{Estimator, PlanConfig, TraceConfig, VolumeConfig};
use super::recording::{Kept, Recording};
use crate::document::Document;
use crate::failure::{Context, Failure};
use crate::input::{self, trace_failure_by_keys};
use crate::output::{count, say};
use forebay_control::plan::{PlanLoad, PlanVolume, WindowLoad};
use forebay_locality::{
    CurveBuilder, CurveOptions, Method, Requests, Unit, WorkingSetWindows, volume_block_key,
};
use forebay_trace::{Ids, Operation, ReadOptions, Request, TraceError, TraceReader, VolumeIndex};
use forebay_units::{BlockSize, Bytes, Nanos};
use forebay_workload::Streams;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// More windows than this in one trace are taken for a mistake in `window` or in the trace's times (ours): 1.2 years of 10 s.
const WINDOWS_MAX: u64 = 4_000_000;

/// Requests within so many services of a block at its origin are counted together, to tell how much they come in bursts
/// (ours; among 1/5 to 20 of them what was predicted of recorded loads is nearest to what queues come to).
const INSTANT_SERVICES: f64 = 5.0;

/// Points of a curve that the planner gets at most. Already 200 keep every recorded trace that we know within 0.0014.
const CURVE_POINTS_MAX: usize = 2_000;

/// A volume with what its trace says.
pub(super) struct Loaded {
    pub(super) volume: PlanVolume,
    /// What is to be known of the order of its requests, in a sentence.
    pub(super) disorder: Option<String>,
    /// Its requests, where they are to be played.
    pub(super) recording: Option<Recording>,
}

/// A trace of the plan that was opened, with its first requests.
struct Opened<'a> {
    trace: &'a TraceConfig,
    /// The plan's volumes that name it.
    sharing: Vec<usize>,
    reader: TraceReader,
    batch: Vec<Request>,
}

/// The plan's volumes with what their traces say, in the order of the file; with their requests if `keeps` them.
///
/// Times count from the earliest request of all traces. That is looked for among their first ones; where a later one is earlier still, all
/// are read once more for it. Pipes are not: of what comes through one, such a request counts as one at the beginning.
pub(super) fn read_volumes(
    document: &Document,
    config: &PlanConfig,
    keeps: bool,
) -> Result<Vec<Loaded>, Failure> {
    let opened = open_traces(document, config)?;
    let begin = opened.iter().flat_map(|opened| &opened.batch).map(|request| request.time).min();
    let may_read_again =
        config.volumes.iter().all(|volume| volume.trace.paths.iter().all(|path| is_kept(path)));
    if let Some(loaded) =
        read_traces(document, config, opened, begin.unwrap_or_default(), may_read_again, keeps)?
    {
        return Ok(loaded);
    }
    let mut begin = Nanos::MAX;
    for Opened { sharing, mut reader, mut batch, .. } in open_traces(document, config)? {
        while !batch.is_empty() {
            begin = batch.iter().map(|request| request.time).fold(begin, Nanos::min);
            reader.next_batch(&mut batch).map_err(failed(document, &config.volumes[sharing[0]]))?;
        }
    }
    read_traces(document, config, open_traces(document, config)?, begin, true, keeps)?
        .ok_or_else(|| Failure::new("a trace has changed while it was read"))
}

/// What is wrong with a trace is told with the volume that names it.
fn failed(document: &Document, volume: &VolumeConfig) -> impl Fn(TraceError) -> Failure {
    move |error| {
        let failure = trace_failure_by_keys(error);
        failure.placed(|message| document.failure(&volume.span, message))
    }
}

/// Whether what is read there is there afterwards.
fn is_kept(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() || metadata.is_dir())
}

/// Each trace once, however many volumes name it.
fn open_traces<'a>(document: &Document, config: &'a PlanConfig) -> Result<Vec<Opened<'a>>, Failure> {
    let mut all: Vec<Opened<'_>> = Vec::new();
    for (at, volume) in config.volumes.iter().enumerate() {
        let trace = &volume.trace;
        if let Some(known) = all.iter_mut().find(|known| known.trace == trace) {
            known.sharing.push(at);
            continue;
        }
        let options = ReadOptions {
            format: trace.format,
            skip_malformed: trace.skip_malformed,
            ids: trace.ids,
            page_size: config.block_size,
            event: trace.event,
            read_ahead: trace.read_ahead,
            time_unit: trace.time_unit,
        };
        let failed = failed(document, volume);
        let mut reader = TraceReader::open(input::open(&trace.paths)?, &options).map_err(&failed)?;
        if !reader.format().has_time() {
            let path = trace.paths[0].display();
            return Err(Failure::new(format!("`{path}` is a {} trace, which has no times", reader.format()))
                .with_hint("a plan needs load over time; `forebay mrc` needs none"));
        }
        let mut batch = Vec::new();
        reader.next_batch(&mut batch).map_err(&failed)?;
        all.push(Opened { trace, sharing: vec![at], reader, batch });
    }
    Ok(all)
}

/// Reads all of them, with times since `begin`; `None` where a request is earlier, and they may be read again.
fn read_traces(
    document: &Document,
    config: &PlanConfig,
    opened: Vec<Opened<'_>>,
    begin: Nanos,
    may_read_again: bool,
    keeps: bool,
) -> Result<Option<Vec<Loaded>>, Failure> {
    let mut collected: Vec<Option<Loaded>> = config.volumes.iter().map(|_| None).collect();
    for trace in opened {
        let Some(volumes) = read_trace(document, config, trace, begin, may_read_again, keeps)? else {
            return Ok(None);
        };
        for (index, loaded) in volumes {
            collected[index] = Some(loaded);
        }
    }
    Ok(Some(collected.into_iter().map(|volume| volume.expect("every volume has a trace")).collect()))
}

/// Reads one trace into the plan's volumes that share it; `None` where a request is earlier than `begin`, and it may be read again.
fn read_trace(
    document: &Document,
    config: &PlanConfig,
    opened: Opened<'_>,
    begin: Nanos,
    may_read_again: bool,
    keeps: bool,
) -> Result<Option<Vec<(usize, Loaded)>>, Failure> {
    let Opened { trace, sharing, mut reader, mut batch } = opened;
    let block_size = reader.natural_block().unwrap_or(config.block_size);
    let mut streams: Vec<Stream> = sharing
        .iter()
        .map(|index| Stream::new(*index, &config.volumes[*index], config, block_size, keeps))
        .collect();
    let (mut count, mut earliest, mut latest) = (0u64, Nanos::MAX, Nanos::ZERO);
    while !batch.is_empty() {
        if may_read_again && batch.iter().any(|request| request.time < begin) {
            return Ok(None);
        }
        batch.iter_mut().for_each(|request| request.time = request.time.saturating_since(begin));
        count += batch.len() as u64;
        let times = batch.iter().map(|request| request.time);
        (earliest, latest) = times.fold((earliest, latest), |(a, b), time| (a.min(time), b.max(time)));
        for stream in &mut streams {
            stream.find_volume(&reader);
            for request in &batch {
                stream.add(request).context(format_args!("`{}`", trace.paths[0].display()))?;
            }
        }
        reader.next_batch(&mut batch).map_err(failed(document, &config.volumes[sharing[0]]))?;
    }
    input::tell_early(&reader);
    if count > 1 && earliest == latest {
        let path = trace.paths[0].display();
        return Err(Failure::new(format!(
            "all {count} requests of `{path}` are at one instant, expected load over time"
        ))
        .with_hint("a plan needs load over time; `forebay mrc` needs none"));
    }
    // A mean gap after the last request.
    let gap = latest.0.saturating_sub(earliest.0) / count.saturating_sub(1).max(1);
    let end = Nanos(latest.0.saturating_add(gap));
    if count > 1 && end < config.window {
        let (path, window) = (trace.paths[0].display(), config.window);
        say(format_args!(
            "warning: `{path}` lasts {end}, less than one window of {window}: objectives are judged on that alone"
        ));
    }
    let mut volumes = Vec::new();
    for mut stream in streams {
        let index = stream.index;
        let volume = &config.volumes[index];
        if stream.is_empty() {
            return Err(nothing_found(document, volume, &reader));
        }
        if stream.windows.len() as u64 <= config.first_window {
            let seconds = stream.windows.len() as u64 * config.window.0;
            return Err(document.failure(
                &config.measure_from_span,
                format!(
                    "the last request of volume `{}` is before it, in the first {}",
                    volume.name,
                    Nanos(seconds)
                ),
            ));
        }
        let (kept, path) = (stream.kept.take(), trace.paths[0].display());
        let recording = kept.map(|kept| kept.finish().map_err(Failure::new)).transpose();
        let recording = recording.context(format_args!("`{path}`"))?;
        let disorder = stream.steps_back.disorder(&volume.name);
        let volume = stream.finish(volume, config, block_size, end);
        volumes.push((index, Loaded { volume, disorder, recording }));
    }
    Ok(Some(volumes))
}

fn nothing_found(document: &Document, volume: &VolumeConfig, reader: &TraceReader) -> Failure {
    let Some(wanted) = &volume.trace_volume else {
        return document.failure(&volume.trace_volume_span, "its trace holds neither a read nor a write");
    };
    let known = reader.volumes();
    let names: Vec<String> = known.iter().take(8).map(|name| format!("`{name}`")).collect();
    let more =
        if known.len() > names.len() { format!(" ... ({} in all)", known.len()) } else { String::new() };
    document
        .failure(
            &volume.trace_volume_span,
            format!("the trace holds no read or write of a volume `{wanted}`"),
        )
        .with_hint(format!("the trace holds {}{more}", names.join(", ")))
}

/// Five services of the volume's origin, and no more than a twentieth of a window.
fn instant(volume: &VolumeConfig, config: &PlanConfig, block_size: BlockSize) -> Nanos {
    let origin = config.origins.iter().find(|known| known.origin.name == volume.origin);
    let service = origin.map_or(0.0, |known| known.origin.model.service(block_size.bytes() as f64, 0.0));
    Nanos::from_secs_f64(service * INSTANT_SERVICES).clamp(Nanos(1), Nanos(config.window.0 / 20))
}

/// Requests whose time lies before that of an earlier one.
#[derive(Default)]
struct StepsBack {
    requests: u64,
    stepped: u64,
    latest: Nanos,
    /// By how much one of them lies before, at most.
    most: Nanos,
}

impl StepsBack {
    fn add(&mut self, time: Nanos) {
        self.requests += 1;
        self.stepped += u64::from(time < self.latest);
        self.most = self.most.max(self.latest.saturating_since(time));
        self.latest = self.latest.max(time);
    }

    /// What that does to the plan of `volume`; `None` where the times are in order.
    fn disorder(&self, volume: &str) -> Option<String> {
        (self.stepped > 0).then(|| {
            format!(
                "The times of {} of the {} requests of {volume} lie before that of one ahead of them in its trace, by up to {}: windows count each at \
                 its time, but the curve, what goes on behind what, and what comes in bursts are taken in the trace's order. Files that are read as \
                 one trace (`trace` as an array) are merged by time.",
                count(self.stepped),
                count(self.requests),
                self.most
            )
        })
    }
}

/// What is collected for one volume of the plan.
struct Stream {
    index: usize,
    /// Which volume of the trace, once its name was seen; all of them where `wanted` is `None`.
    wanted: Option<String>,
    found: Option<VolumeIndex>,
    /// How many of the trace's names were looked at.
    looked_at: usize,
    window: Nanos,
    /// Windows before this one are not judged: what is asked in them warms the cache.
    first_window: u64,
    block_size: BlockSize,
    unit: Unit,
    curve: CurveBuilder,
    working_set: WorkingSetWindows,
    windows: Vec<WindowLoad>,
    instant: Nanos,
    /// The instant of the last request, and the requests in it so far.
    counted: (u64, u64),
    /// Of each of the trace's volumes.
    streams: HashMap<VolumeIndex, Streams>,
    reads: u64,
    reads_sequential: u64,
    kept: Option<Kept>,
    steps_back: StepsBack,
}

impl Stream {
    fn new(
        index: usize,
        volume: &VolumeConfig,
        config: &PlanConfig,
        block_size: BlockSize,
        keeps: bool,
    ) -> Stream {
        let (method, seed) = match config.estimator {
            Estimator::Exact => (Method::Exact, 0),
            Estimator::Shards { rate, seed } => (Method::ShardsRate(rate), seed),
        };
        // A cache of ours is filled by reads; writes update what is there and change no order.
        let requests = Requests::Reads;
        // Ranges of neighbouring objects overlap: each is one block, whatever its size.
        let unit = if volume.trace.ids == Ids::Objects { Unit::Request } else { Unit::Block };
        let curve = CurveBuilder::new(CurveOptions { method, requests, unit, block_size, seed });
        Stream {
            index,
            wanted: volume.trace_volume.clone(),
            found: None,
            looked_at: 0,
            window: config.window,
            first_window: config.first_window,
            block_size,
            unit,
            curve,
            working_set: WorkingSetWindows::tumbling(config.working_set_window),
            windows: Vec::new(),
            instant: instant(volume, config, block_size),
            counted: (0, 0),
            streams: HashMap::new(),
            reads: 0,
            reads_sequential: 0,
            kept: keeps.then(Kept::default),
            steps_back: StepsBack::default(),
        }
    }

    /// Looks for the wanted volume among the names that the reader learnt with the last batch.
    fn find_volume(&mut self, reader: &TraceReader) {
        if let Some(wanted) = &self.wanted
            && self.found.is_none()
        {
            let new = &reader.volumes()[self.looked_at..];
            let at = new.iter().position(|name| name == wanted);
            self.found = at.map(|at| VolumeIndex((self.looked_at + at) as u32));
            self.looked_at = reader.volumes().len();
        }
    }

    fn add(&mut self, request: &Request) -> Result<(), Failure> {
        let is_read = match request.operation {
            Operation::Read => true,
            Operation::Write => false,
            Operation::Flush | Operation::Discard | Operation::Other => return Ok(()),
        };
        // A single volume keeps its own block numbers, several are told apart by number.
        let volume = match (&self.wanted, self.found) {
            (None, _) => request.volume.0,
            (Some(_), Some(found)) if found == request.volume => 0,
            (Some(_), _) => return Ok(()),
        };
        if let Some(kept) = &mut self.kept {
            kept.add(request).map_err(Failure::new)?;
        }
        self.steps_back.add(request.time);
        let window = request.time.0 / self.window.0;
        if window >= WINDOWS_MAX {
            return Err(Failure::new(format!(
                "a request {} behind the first makes more than {WINDOWS_MAX} windows of {}",
                request.time, self.window
            ))
            .with_hint("set a larger `window`, or look at the times with `forebay trace info`"));
        }
        if self.windows.len() <= window as usize {
            self.windows.resize(window as usize + 1, WindowLoad::default());
        }
        let instant = request.time.0 / self.instant.0;
        if instant != self.counted.0 {
            self.counted = (instant, 0);
        }
        self.counted.1 += 1;
        let load = &mut self.windows[window as usize];
        // One more squares to 2 n - 1 more.
        load.squares += 2 * self.counted.1 - 1;
        let streams = self.streams.entry(request.volume).or_default();
        let continues = streams.request(request.range()).continues.is_some();
        let is_judged = window >= self.first_window;
        if is_read {
            load.reads += 1;
            load.bytes_read = load.bytes_read.saturating_add(request.length);
            self.reads += u64::from(is_judged);
            self.reads_sequential += u64::from(is_judged && continues);
        } else {
            load.writes += 1;
            load.bytes_written = load.bytes_written.saturating_add(request.length);
        }
        if is_judged {
            self.curve.request(volume, request.range(), is_read);
        } else {
            self.curve.warm(volume, request.range(), is_read);
        }
        let mut blocks = request.range().blocks(self.block_size);
        if self.unit == Unit::Request {
            blocks.end = blocks.end.min(blocks.first + 1);
        }
        for block in blocks {
            self.working_set.access(volume_block_key(volume, block.0), request.time);
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// The volume of a trace that lasts until `end`. A last window of which that is less than half is left out where others
    /// have requests: few requests in a short time say little of a rate.
    fn finish(
        mut self,
        volume: &VolumeConfig,
        config: &PlanConfig,
        block_size: BlockSize,
        end: Nanos,
    ) -> PlanVolume {
        let first = config.first_window as usize;
        let last = self.windows.len().saturating_sub(1);
        let filled = end.0.saturating_sub(last as u64 * self.window.0).min(self.window.0);
        let mut window_last = if filled == 0 { self.window } else { Nanos(filled) };
        let has_others = self.windows[first..last].iter().any(|load| load.reads + load.writes > 0);
        if window_last.0 < self.window.0 / 2 && has_others {
            self.windows.pop();
            window_last = self.window;
        }
        self.windows.drain(..first);
        let bytes = |blocks: u64| Bytes(blocks.saturating_mul(block_size.bytes()));
        let sequential_share =
            if self.reads == 0 { 0.0 } else { self.reads_sequential as f64 / self.reads as f64 };
        PlanVolume {
            name: volume.name.clone(),
            origin: volume.origin.clone(),
            block_size,
            load: PlanLoad {
                window: self.window,
                windows: self.windows,
                window_last,
                closed_loop: volume.closed_loop,
                sequential_share,
                instant: self.instant,
            },
            curve: Arc::new(self.curve.finish().curve().thinned(CURVE_POINTS_MAX).0),
            footprint: bytes(self.working_set.footprint_blocks()),
            working_set: bytes(self.working_set.summary().max_blocks),
            working_set_window: config.working_set_window,
            objectives: volume.objectives.clone(),
            may_cache: volume.may_cache,
            minimum: volume.minimum,
        }
    }
}
