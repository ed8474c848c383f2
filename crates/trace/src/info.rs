//! What `trace info` says about a trace: counts, bytes, span and footprint, in one pass.

use crate::{Format, Operation, Request, TraceReader, split_into_blocks};
use forebay_units::{BlockSize, Nanos};
use hashbrown::HashMap;
use serde::Serialize;
use std::collections::BTreeMap;

/// The name and version of [`TraceInfo`]'s fields when serialized.
pub const TRACE_INFO_SCHEMA: &str = "forebay.trace-info/1";

/// What is known of a whole trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceInfo {
    /// [`TRACE_INFO_SCHEMA`].
    pub schema: &'static str,
    /// The format, as given or detected.
    pub format: &'static str,
    /// Requests; always `reads + writes + other`.
    pub requests: u64,
    /// Reads; read-ahead too where the options make it a read.
    pub reads: u64,
    /// Writes. In blktrace and blkparse a flush counts here as well as in `flushes`: the kernel marks it as a write
    /// (an empty one), and so count its own tools. In other formats it counts as other.
    pub writes: u64,
    /// Discards, operations that the record leaves blank or that are none of these, and flushes as stated above.
    pub other: u64,
    /// Flushes, wherever they count.
    pub flushes: u64,
    /// Malformed records that were skipped as allowed.
    pub skipped: u64,
    /// Records that are no requests.
    pub ignored: u64,
    /// Requests before the smallest time of the first that were read, where times are counted from an epoch: what is read
    /// has them at 0.
    pub before_start: u64,
    /// Seconds from the smallest to the largest time; 0 where the format has no times.
    pub duration_s: f64,
    /// The volumes' names, in order of first appearance.
    pub volumes: Vec<String>,
    /// Bytes of all reads.
    pub bytes_read: u64,
    /// Bytes of all writes.
    pub bytes_written: u64,
    /// Distinct (volume, 4 KiB block) that any request touches, whatever its operation. Exact. Where the trace counts
    /// pages or opaque ids, a page is a block of its own size.
    pub footprint_blocks: u64,
}

/// From the smallest to the largest time of a trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimeSpan {
    ends: Option<(Nanos, Nanos)>,
}

impl TimeSpan {
    /// Takes the time of a request.
    #[inline]
    pub fn add(&mut self, time: Nanos) {
        self.ends = Some(self.ends.map_or((time, time), |(first, last)| (first.min(time), last.max(time))));
    }

    /// How long it is; `None` of nothing. Times before the trace's zero stand at it: the earliest of them was `early_by` before, which is
    /// [`TraceReader::early_by`] once all was read.
    pub fn length(&self, early_by: Nanos) -> Option<Nanos> {
        self.ends.map(|(first, last)| last.saturating_since(first).saturating_add(early_by))
    }
}

/// Collects [`TraceInfo`] from batches of requests.
pub struct TraceInfoCollector {
    info: TraceInfo,
    flushes_are_writes: bool,
    block_size: BlockSize,
    span: TimeSpan,
    footprint: Footprint,
}

impl TraceInfoCollector {
    /// For a trace of `format` whose footprint counts blocks of `block_size`.
    pub fn new(format: Format, block_size: BlockSize) -> TraceInfoCollector {
        TraceInfoCollector {
            info: TraceInfo {
                schema: TRACE_INFO_SCHEMA,
                format: format.name(),
                requests: 0,
                reads: 0,
                writes: 0,
                other: 0,
                flushes: 0,
                skipped: 0,
                ignored: 0,
                before_start: 0,
                duration_s: 0.0,
                volumes: Vec::new(),
                bytes_read: 0,
                bytes_written: 0,
                footprint_blocks: 0,
            },
            flushes_are_writes: matches!(format, Format::Blktrace | Format::Blkparse),
            block_size,
            span: TimeSpan::default(),
            footprint: Footprint::default(),
        }
    }

    /// Counts `requests`.
    pub fn add(&mut self, requests: &[Request]) {
        let info = &mut self.info;
        info.requests += requests.len() as u64;
        for request in requests {
            match request.operation {
                Operation::Read => {
                    info.reads += 1;
                    info.bytes_read = info.bytes_read.saturating_add(request.length);
                }
                Operation::Write => {
                    info.writes += 1;
                    info.bytes_written = info.bytes_written.saturating_add(request.length);
                }
                Operation::Flush => {
                    info.flushes += 1;
                    *(if self.flushes_are_writes { &mut info.writes } else { &mut info.other }) += 1;
                }
                Operation::Discard | Operation::Other => info.other += 1,
            }
            self.span.add(request.time);
            let blocks = split_into_blocks(request, self.block_size);
            self.footprint.insert(request.volume.0, blocks.first, blocks.end);
        }
    }

    /// What was counted, with the names and counters of `reader`.
    pub fn finish(mut self, reader: &TraceReader) -> TraceInfo {
        self.info.volumes = reader.volumes().to_vec();
        self.info.skipped = reader.skipped();
        self.info.ignored = reader.ignored();
        self.info.before_start = reader.before_start();
        self.info.duration_s = self.span.length(reader.early_by()).unwrap_or(Nanos::ZERO).as_secs_f64();
        self.info.footprint_blocks = self.footprint.count();
        self.info
    }
}

impl TraceInfo {
    /// Reads `reader` to its end.
    ///
    /// # Errors
    /// What reading yields.
    pub fn of(reader: &mut TraceReader) -> Result<TraceInfo, crate::TraceError> {
        let block_size = reader.natural_block().unwrap_or(BlockSize::DEFAULT);
        let mut collector = TraceInfoCollector::new(reader.format(), block_size);
        let mut batch = Vec::new();
        while reader.next_batch(&mut batch)? > 0 {
            collector.add(&batch);
        }
        Ok(collector.finish(reader))
    }
}

/// Blocks per chunk of the bitmap below: 4,096 bits are 512 bytes.
const CHUNK_SHIFT: u32 = 12;
const CHUNK_WORDS: usize = (1 << CHUNK_SHIFT) / 64;
/// A chunk that is a list of up to this many 16-bit positions takes less memory than one that is a bitmap.
const LIST_MAX: usize = 64;

/// Runs of at least this many whole chunks (1 GiB of 4 KiB blocks) are kept as runs: a discard of a whole device, or a
/// request as long as the address space, must cost neither time nor memory.
const RUN_CHUNKS_MIN: u64 = 64;

/// The distinct blocks of a trace, exactly: per 4,096 neighbouring blocks a short sorted list or a bitmap, as in
/// roaring bitmaps (Chambi et al., 2016). A block costs from one bit (dense) to about 40 bytes (alone in its chunk).
#[derive(Default)]
pub(crate) struct Footprint {
    chunks: HashMap<(u32, u64), Chunk, foldhash::fast::FixedState>,
    /// Long runs of whole chunks per volume, from first chunk to one past the last; disjoint, not adjacent.
    runs: BTreeMap<(u32, u64), u64>,
}

enum Chunk {
    /// Positions in ascending order.
    List(Vec<u16>),
    Bitmap(Box<[u64; CHUNK_WORDS]>),
    Full,
}

impl Footprint {
    /// Adds the blocks `first..end` of `volume`.
    pub(crate) fn insert(&mut self, volume: u32, first: u64, end: u64) {
        let (run_first, run_end) = (first.div_ceil(1 << CHUNK_SHIFT), end >> CHUNK_SHIFT);
        if run_end.saturating_sub(run_first) >= RUN_CHUNKS_MIN {
            self.insert_chunks(volume, first, run_first << CHUNK_SHIFT);
            self.insert_run(volume, run_first, run_end);
            self.insert_chunks(volume, run_end << CHUNK_SHIFT, end);
        } else {
            self.insert_chunks(volume, first, end);
        }
    }

    fn insert_chunks(&mut self, volume: u32, first: u64, end: u64) {
        let mut at = first;
        while at < end {
            let chunk = at >> CHUNK_SHIFT;
            let from = (at & ((1 << CHUNK_SHIFT) - 1)) as u16;
            let to = (end - (chunk << CHUNK_SHIFT)).min(1 << CHUNK_SHIFT) as u16;
            let entry = self.chunks.entry((volume, chunk)).or_insert_with(|| Chunk::List(Vec::new()));
            entry.insert(from, to);
            at = (chunk + 1) << CHUNK_SHIFT;
        }
    }

    /// Adds a run of chunks and joins it with those that it touches.
    fn insert_run(&mut self, volume: u32, mut first: u64, mut end: u64) {
        while let Some((&key, &other_end)) = self.runs.range((volume, 0)..=(volume, end)).next_back() {
            if other_end < first {
                break;
            }
            first = first.min(key.1);
            end = end.max(other_end);
            self.runs.remove(&key);
        }
        self.runs.insert((volume, first), end);
    }

    /// How many distinct blocks; looks at every chunk.
    pub(crate) fn count(&self) -> u64 {
        let in_run = |volume, chunk| {
            let before = self.runs.range((volume, 0)..=(volume, chunk)).next_back();
            before.is_some_and(|(_, end)| chunk < *end)
        };
        let outside = self.chunks.iter().filter(|((volume, chunk), _)| !in_run(*volume, *chunk));
        let runs: u64 = self.runs.iter().map(|((_, first), end)| (end - first) << CHUNK_SHIFT).sum();
        outside.map(|(_, chunk)| chunk.count()).sum::<u64>() + runs
    }
}

impl Chunk {
    /// Adds the positions `from..to`.
    fn insert(&mut self, from: u16, to: u16) {
        if from == 0 && to == 1 << CHUNK_SHIFT {
            *self = Chunk::Full;
        }
        match self {
            Chunk::Full => {}
            Chunk::List(list) if list.len() + usize::from(to - from) <= LIST_MAX => {
                for position in from..to {
                    if let Err(at) = list.binary_search(&position) {
                        list.insert(at, position);
                    }
                }
            }
            Chunk::List(list) => {
                let mut bitmap = Box::new([0; CHUNK_WORDS]);
                for position in list {
                    bitmap[usize::from(*position) / 64] |= 1 << (*position % 64);
                }
                *self = Chunk::Bitmap(bitmap);
                self.insert(from, to);
            }
            Chunk::Bitmap(bitmap) => {
                for word in from / 64..to.div_ceil(64) {
                    let low = from.saturating_sub(word * 64);
                    let high = (to - word * 64).min(64);
                    bitmap[usize::from(word)] |= (u64::MAX >> (64 - (high - low))) << low;
                }
            }
        }
    }

    fn count(&self) -> u64 {
        match self {
            Chunk::List(list) => list.len() as u64,
            Chunk::Bitmap(bitmap) => bitmap.iter().map(|word| u64::from(word.count_ones())).sum(),
            Chunk::Full => 1 << CHUNK_SHIFT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn endless_requests_cost_nothing() {
        let mut footprint = Footprint::default();
        footprint.insert(0, 0, 1 << 52);
        footprint.insert(0, 5, 1 << 52);
        footprint.insert(1, 7, 9);
        assert_eq!(footprint.count(), (1 << 52) + 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn it_counts_as_a_set_does(
            ranges in prop::collection::vec(
                (0..2u32, 0..700_000u64, prop_oneof![1..200u64, 4_000..9_000u64, 270_000..400_000u64]),
                1..12,
            )
        ) {
            let mut footprint = Footprint::default();
            let mut set = HashSet::new();
            for (volume, first, count) in ranges {
                footprint.insert(volume, first, first + count);
                set.extend((first..first + count).map(|block| (volume, block)));
            }
            prop_assert_eq!(footprint.count(), set.len() as u64);
        }
    }
}
