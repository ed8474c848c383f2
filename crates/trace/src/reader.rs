//! Reading a whole trace: sources are expanded, their format is told, they are decoded and merged by time.
//!
//! Several sources form one trace: files of several volumes, of one CPU each, or of consecutive hours. They are
//! merged by time without being sorted: each source keeps its own order, steps back included. Sources of formats
//! without times follow each other.

use crate::detect::{DetectError, HEAD_BYTES, detect};
use crate::formats::{self, Decoder};
use crate::input::{BUFFER_BYTES, Input, SHARED_BUFFER_BYTES};
use crate::source::{Source, expand};
use crate::state::{State, ThreadTable, VolumeTable};
use crate::{Format, Ids, ReadOptions, Request, TraceError, VolumeIndex};
use forebay_units::{BlockSize, Nanos};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How many requests a batch holds at most.
pub const BATCH_REQUESTS: usize = 4096;

/// A trace that is being read.
pub struct TraceReader {
    format: Format,
    natural_block: Option<BlockSize>,
    streams: Vec<Stream>,
    /// The next request of each stream that has one, if there are several: time, then the stream's number.
    heads: BinaryHeap<Reverse<(Nanos, usize)>>,
    state: State,
    begun: bool,
    failed: bool,
}

/// One source with its decoder and what it decoded ahead.
struct Stream {
    input: Input,
    decoder: Box<dyn Decoder>,
    ahead: Vec<Request>,
    at: usize,
    /// What comes behind the last request of `ahead`.
    failure: Option<TraceError>,
}

impl Stream {
    /// Decodes the next requests ahead; none at the end. A failure is told once those before it were handed out.
    fn refill(&mut self, state: &mut State) -> Result<(), TraceError> {
        self.at = 0;
        self.ahead.clear();
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        match self.decoder.decode(&mut self.input, state, &mut self.ahead) {
            Err(error) if !self.ahead.is_empty() => self.failure = Some(error),
            result => result?,
        }
        Ok(())
    }
}

impl TraceReader {
    /// Opens the trace that `sources` form.
    ///
    /// Compression and tar archives are told by content and taken off; members of an archive are sources like any
    /// other. All sources must have one format, which is detected by content unless `options` names it.
    ///
    /// # Errors
    /// [`TraceError::NoSources`], [`TraceError::Detect`], [`TraceError::MixedFormats`], and what reading the first
    /// bytes may yield.
    pub fn open(sources: Vec<Source>, options: &ReadOptions) -> Result<TraceReader, TraceError> {
        let mut plain = Vec::new();
        for source in sources {
            plain.extend(expand(source)?);
        }
        let buffer_bytes = if plain.len() > 1 { SHARED_BUFFER_BYTES } else { BUFFER_BYTES };
        let mut inputs: Vec<Input> = plain.into_iter().map(|plain| Input::new(plain, buffer_bytes)).collect();
        let mut format = options.format;
        if format.is_none() {
            format = detect_all(&mut inputs)?;
        }
        let format = format.ok_or(TraceError::NoSources)?;
        if inputs.is_empty() {
            return Err(TraceError::NoSources);
        }
        if options.ids != Ids::default() && !format.has_ids() {
            return Err(TraceError::NoIds { format });
        }
        let mut streams = Vec::new();
        for mut input in inputs {
            let decoder = formats::decoder(format, &mut input, options)?;
            streams.push(Stream { input, decoder, ahead: Vec::new(), at: 0, failure: None });
        }
        let state = State {
            volumes: VolumeTable::default(),
            threads: ThreadTable::default(),
            base: 0,
            before_start: 0,
            early_by: 0,
            skipped: 0,
            skip_malformed: options.skip_malformed,
            ignored: 0,
        };
        let natural_block = formats::natural_block(format, options);
        Ok(TraceReader {
            format,
            natural_block,
            streams,
            heads: BinaryHeap::new(),
            state,
            begun: false,
            failed: false,
        })
    }

    /// Clears `out` and fills it with the next requests, at most [`BATCH_REQUESTS`] of them; returns how many, 0 at
    /// the end of the trace.
    ///
    /// # Errors
    /// Every [`TraceError`] of reading. `out` then holds the requests before the failure that were not yet handed
    /// out, and later calls return 0.
    pub fn next_batch(&mut self, out: &mut Vec<Request>) -> Result<usize, TraceError> {
        out.clear();
        if self.failed {
            return Ok(0);
        }
        let result = if !self.begun {
            self.begun = true;
            self.begin(out)
        } else if let [stream] = &mut self.streams[..] {
            stream.decoder.decode(&mut stream.input, &mut self.state, out)
        } else {
            self.merge(out)
        };
        match result {
            Ok(()) => Ok(out.len()),
            Err(error) => {
                self.failed = true;
                Err(error)
            }
        }
    }

    /// Decodes the first batch of every stream and makes the smallest time among them the trace's zero.
    fn begin(&mut self, out: &mut Vec<Request>) -> Result<(), TraceError> {
        let state = &mut self.state;
        for stream in &mut self.streams {
            stream.refill(state)?;
        }
        if formats::times_are_absolute(self.format) {
            let smallest = |stream: &Stream| stream.ahead.iter().map(|request| request.time.0).min();
            state.base = self.streams.iter().filter_map(smallest).min().unwrap_or(0);
            for request in self.streams.iter_mut().flat_map(|stream| &mut stream.ahead) {
                request.time = Nanos(request.time.0 - state.base);
            }
        }
        if let [stream] = &mut self.streams[..] {
            std::mem::swap(out, &mut stream.ahead);
            stream.ahead = Vec::new();
            return stream.failure.take().map_or(Ok(()), Err);
        }
        for (number, stream) in self.streams.iter().enumerate() {
            if let Some(request) = stream.ahead.first() {
                self.heads.push(Reverse((request.time, number)));
            }
        }
        self.merge(out)
    }

    /// The next batch of several streams, by time and, at equal times, in the order of the sources.
    fn merge(&mut self, out: &mut Vec<Request>) -> Result<(), TraceError> {
        while out.len() < BATCH_REQUESTS {
            let Some(Reverse((_, number))) = self.heads.pop() else { break };
            let stream = &mut self.streams[number];
            // Whoever is first stays first until another head is earlier: runs are moved without the heap.
            let next = self.heads.peek().map_or((Nanos::MAX, usize::MAX), |head| head.0);
            loop {
                out.push(stream.ahead[stream.at]);
                stream.at += 1;
                if stream.at == stream.ahead.len() {
                    stream.refill(&mut self.state)?;
                }
                let Some(request) = stream.ahead.get(stream.at) else { break };
                if (request.time, number) > next || out.len() >= BATCH_REQUESTS {
                    self.heads.push(Reverse((request.time, number)));
                    break;
                }
            }
        }
        Ok(())
    }

    /// The format, as given or detected.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The names of the volumes seen so far; [`VolumeIndex`] is the position in it. Later batches may add names.
    pub fn volumes(&self) -> &[String] {
        self.state.volumes.names()
    }

    /// The name of `volume`.
    ///
    /// # Panics
    /// If no request of this trace had that volume so far.
    pub fn volume_name(&self, volume: VolumeIndex) -> &str {
        &self.state.volumes.names()[volume.0 as usize]
    }

    /// Malformed records that were skipped so far, as [`ReadOptions::skip_malformed`] allows.
    pub fn skipped(&self) -> u64 {
        self.state.skipped
    }

    /// Well-formed records so far that are no requests: headers, comments, other events, waits, marks.
    pub fn ignored(&self) -> u64 {
        self.state.ignored
    }

    /// Requests so far whose time lies before the smallest time of the first batch, which is the trace's zero; their
    /// time became 0.
    pub fn before_start(&self) -> u64 {
        self.state.before_start
    }

    /// By how much the earliest of the requests that [`TraceReader::before_start`] counts lies before the trace's zero.
    pub fn early_by(&self) -> Nanos {
        Nanos(self.state.early_by)
    }

    /// The page, where the trace counts pages or opaque ids: whoever splits into blocks takes a page as a block.
    pub fn natural_block(&self) -> Option<BlockSize> {
        self.natural_block
    }
}

/// The format that all of `inputs` have; `None` if there are none. Those without content, as the file of a processor that had nothing to do, say nothing about
/// it, unless all are so.
fn detect_all(inputs: &mut [Input]) -> Result<Option<Format>, TraceError> {
    let mut format = None;
    let mut empty = None;
    for input in inputs {
        let name = input.name.clone();
        let head = input.require(HEAD_BYTES)?;
        match detect(&head[..head.len().min(HEAD_BYTES)], Some(&name)) {
            Ok(found) => match format {
                Some(expected) if expected != found => {
                    return Err(TraceError::MixedFormats { file: name, found, expected });
                }
                _ => format = Some(found),
            },
            Err(error @ DetectError::Empty) => {
                empty.get_or_insert(TraceError::Detect { file: name, error });
            }
            Err(error) => return Err(TraceError::Detect { file: name, error }),
        }
    }
    match (format, empty) {
        (None, Some(error)) => Err(error),
        (format, _) => Ok(format),
    }
}

impl std::fmt::Debug for TraceReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceReader")
            .field("format", &self.format)
            .field("sources", &self.streams.iter().map(|stream| &stream.input.name).collect::<Vec<_>>())
            .field("volumes", &self.state.volumes.names().len())
            .finish_non_exhaustive()
    }
}
