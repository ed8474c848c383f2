//! Snapshots: which blocks of a volume were cached at an instant, and how much each mattered then, as bytes.
//!
//! Pure: blocks to bytes and back; where the bytes are kept is not its business, nor what a score means ([`SCORE_MAX`] + 1 steps, of whoever
//! wrote it). A snapshot is a hint about what to load and never about what is true, so one that is damaged or of another volume is
//! refused as a whole and nothing is lost.
//!
//! Invariant: what [`Snapshot::parse`] accepts yields ascending blocks below the volume's size; no input makes it panic or allocate more
//! than a small multiple of the input's length. The layout is documented in `docs/reference/snapshot-format.md`.

mod chunk;
mod error;
mod slot;
mod stretch;

pub use error::{SnapshotError, WriteError};
pub use slot::{SLOT_HEADER_BYTES, SlotError, SlotHeader};

use crate::flash::VolumeId;
use chunk::{ChunkRef, Scores};
use stretch::{Gathered, SPARSE_BLOCKS, StretchRef};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The version of the layout that this code writes. It reads those since version 2, too.
pub const SNAPSHOT_VERSION: u32 = 4;
const OLDEST_VERSION: u32 = 2;
/// Blocks of a chunk.
pub const CHUNK_BLOCKS: u64 = 1 << 16;
/// The largest score.
pub const SCORE_MAX: u8 = 15;

const MAGIC: [u8; 8] = *b"FBSNAP\0\0";
/// Blocks of the largest volume: chunks have 32-bit numbers.
const VOLUME_BLOCKS_MAX: u64 = 1 << 47;
/// Bytes of a snapshot's header.
pub const HEADER_BYTES: usize = 104;
const CHECKSUM_BYTES: usize = 8;
/// So that these bytes are not believed as something else, and nothing else as these.
const CHECKSUM_SEED: u64 = 0x736e_6170_7368_6f74;
/// Flag: blocks have scores.
const SCORED: u32 = 1;

/// Of what, and when, a snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotHeader {
    /// Of which volume.
    pub volume: VolumeId,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks of the volume; at most 2^47.
    pub volume_blocks: u64,
    /// Its place in the series, rising.
    pub sequence: u64,
    /// When it was taken, in seconds since 1970.
    pub taken_at_unix_s: u64,
    /// How the cache was used until then.
    pub activity: Activity,
}

/// How a cache was used in the time before a snapshot: what tells whether loading it again is worth it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Blocks that reads asked for,
    pub lookups: u64,
    /// those of them that the cache had,
    pub hits: u64,
    /// and in how many milliseconds.
    pub span_ms: u64,
    /// Distinct blocks that were read in the observation's window; 0: not observed.
    pub working_set_blocks: u64,
    /// How many blocks the cache could hold.
    pub quota_blocks: u64,
}

impl Activity {
    /// Both together, the later one second.
    pub fn then(self, later: Activity) -> Activity {
        Activity {
            lookups: self.lookups.saturating_add(later.lookups),
            hits: self.hits.saturating_add(later.hits),
            span_ms: self.span_ms.saturating_add(later.span_ms),
            working_set_blocks: self.working_set_blocks.max(later.working_set_blocks),
            quota_blocks: later.quota_blocks,
        }
    }
}

/// Writes a snapshot, block after block. `O(1)` amortised per block; at most two bytes of memory per block besides what is being filled: a chunk or a stretch, at most a MiB.
#[derive(Debug)]
pub struct SnapshotWriter {
    header: SnapshotHeader,
    scored: bool,
    bytes: Vec<u8>,
    chunks: u32,
    /// The chunk being filled.
    chunk: u64,
    places: Vec<u16>,
    scores: Vec<u8>,
    /// The sparse chunks before it.
    gathered: Gathered,
}

impl SnapshotWriter {
    /// Nothing cached. `scored` says whether scores are kept.
    ///
    /// # Errors
    /// [`WriteError::VolumeTooLarge`].
    pub fn new(header: SnapshotHeader, scored: bool) -> Result<SnapshotWriter, WriteError> {
        if header.volume_blocks > VOLUME_BLOCKS_MAX {
            return Err(WriteError::VolumeTooLarge { blocks: header.volume_blocks });
        }
        Ok(SnapshotWriter {
            header,
            scored,
            bytes: vec![0; HEADER_BYTES],
            chunks: 0,
            chunk: 0,
            places: Vec::new(),
            scores: Vec::new(),
            gathered: Gathered::default(),
        })
    }

    /// Adds a block; blocks come in ascending order. Scores above [`SCORE_MAX`] count as that.
    ///
    /// # Errors
    /// [`WriteError::Order`] and [`WriteError::BeyondEnd`]; the block is then not added.
    pub fn push(&mut self, block: u64, score: u8) -> Result<(), WriteError> {
        if block >= self.header.volume_blocks {
            return Err(WriteError::BeyondEnd { block, blocks: self.header.volume_blocks });
        }
        let (chunk, place) = (block / CHUNK_BLOCKS, (block % CHUNK_BLOCKS) as u16);
        let before = self.places.last().map(|last| self.chunk * CHUNK_BLOCKS + u64::from(*last));
        if chunk < self.chunk || before.is_some_and(|before| before >= block) {
            return Err(WriteError::Order { block, before: before.unwrap_or(self.chunk * CHUNK_BLOCKS) });
        }
        if chunk > self.chunk {
            self.close_chunk();
            self.chunk = chunk;
        }
        self.places.push(place);
        if self.scored {
            self.scores.push(score.min(SCORE_MAX));
        }
        Ok(())
    }

    fn close_chunk(&mut self) {
        if self.places.is_empty() {
            return;
        }
        let (index, shortest) = (self.chunk as u32, chunk::shortest(&self.places));
        if self.places.len() >= SPARSE_BLOCKS || !self.gather(index, shortest.chunk_bytes(&self.scores)) {
            self.close_stretch();
            chunk::write(index, &self.places, shortest, &self.scores, &mut self.bytes);
            self.chunks += 1;
        }
        self.places.clear();
        self.scores.clear();
    }

    /// Whether the chunk is taken into the stretch, or a new one.
    fn gather(&mut self, index: u32, bytes_alone: usize) -> bool {
        self.gathered.take(index, &self.places, &self.scores, bytes_alone) || {
            self.close_stretch() && self.gathered.take(index, &self.places, &self.scores, bytes_alone)
        }
    }

    /// Writes the stretch; whether there was one.
    fn close_stretch(&mut self) -> bool {
        let is_written = self.gathered.write(&mut self.bytes);
        self.chunks += u32::from(is_written);
        is_written
    }

    /// The snapshot's bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.close_chunk();
        self.close_stretch();
        let header = &self.header;
        let mut fields = Vec::with_capacity(HEADER_BYTES);
        fields.extend_from_slice(&MAGIC);
        fields.extend_from_slice(&SNAPSHOT_VERSION.to_le_bytes());
        fields.extend_from_slice(&header.block_bytes.to_le_bytes());
        fields.extend_from_slice(&header.volume.0.to_le_bytes());
        fields.extend_from_slice(&header.volume_blocks.to_le_bytes());
        fields.extend_from_slice(&header.sequence.to_le_bytes());
        fields.extend_from_slice(&header.taken_at_unix_s.to_le_bytes());
        fields.extend_from_slice(&self.chunks.to_le_bytes());
        fields.extend_from_slice(&(if self.scored { SCORED } else { 0 }).to_le_bytes());
        let Activity { lookups, hits, span_ms, working_set_blocks, quota_blocks } = header.activity;
        for field in [lookups, hits, span_ms, working_set_blocks, quota_blocks] {
            fields.extend_from_slice(&field.to_le_bytes());
        }
        self.bytes[..HEADER_BYTES].copy_from_slice(&fields);
        seal(&mut self.bytes);
        self.bytes
    }
}

/// A snapshot that was checked. It keeps its bytes, and decodes chunks when they are asked for.
#[derive(Clone, Debug)]
pub struct Snapshot {
    header: SnapshotHeader,
    scored: bool,
    bytes: Vec<u8>,
    parts: Vec<Part>,
    blocks: u64,
}

/// A chunk, or several sparse ones.
#[derive(Clone, Debug)]
enum Part {
    Chunk(ChunkRef),
    Stretch(StretchRef),
}

impl Part {
    /// Its first and its last chunk.
    fn chunks(&self) -> (u32, u32) {
        match self {
            Part::Chunk(chunk) => (chunk.index, chunk.index),
            Part::Stretch(stretch) => (stretch.first, stretch.last),
        }
    }

    fn blocks(&self) -> u32 {
        match self {
            Part::Chunk(chunk) => chunk.count,
            Part::Stretch(stretch) => stretch.count(),
        }
    }
}

impl Snapshot {
    /// When a snapshot that begins with `bytes` was taken, as its header says, in seconds since 1970: nothing else is checked. `None` if that is not to be read there.
    pub fn taken_at_unix_s(bytes: &[u8]) -> Option<u64> {
        if bytes.len() < HEADER_BYTES || bytes[..8] != MAGIC {
            return None;
        }
        let is_known = (OLDEST_VERSION..=SNAPSHOT_VERSION).contains(&u32::from_le_bytes(take(bytes, 8)));
        is_known.then(|| u64::from_le_bytes(take(bytes, 48)))
    }

    /// Checks all of `bytes`, which must be a snapshot of `volume`.
    ///
    /// # Errors
    /// What is wrong with them, and where.
    pub fn parse(bytes: Vec<u8>, volume: VolumeId) -> Result<Snapshot, SnapshotError> {
        if bytes.len() < HEADER_BYTES + CHECKSUM_BYTES {
            return Err(SnapshotError::Short { found: bytes.len(), expected: HEADER_BYTES + CHECKSUM_BYTES });
        }
        if bytes[..8] != MAGIC {
            return Err(SnapshotError::Magic { found: take(&bytes, 0) });
        }
        let version = u32::from_le_bytes(take(&bytes, 8));
        if !(OLDEST_VERSION..=SNAPSHOT_VERSION).contains(&version) {
            return Err(SnapshotError::Version { found: version });
        }
        let end = bytes.len() - CHECKSUM_BYTES;
        let (found, expected) =
            (xxh3_64_with_seed(&bytes[..end], CHECKSUM_SEED), u64::from_le_bytes(take(&bytes, end)));
        if found != expected {
            return Err(SnapshotError::Checksum { found, expected });
        }
        let header = SnapshotHeader {
            block_bytes: u32::from_le_bytes(take(&bytes, 12)),
            volume: VolumeId(u128::from_le_bytes(take(&bytes, 16))),
            volume_blocks: u64::from_le_bytes(take(&bytes, 32)),
            sequence: u64::from_le_bytes(take(&bytes, 40)),
            taken_at_unix_s: u64::from_le_bytes(take(&bytes, 48)),
            activity: Activity {
                lookups: u64::from_le_bytes(take(&bytes, 64)),
                hits: u64::from_le_bytes(take(&bytes, 72)),
                span_ms: u64::from_le_bytes(take(&bytes, 80)),
                working_set_blocks: u64::from_le_bytes(take(&bytes, 88)),
                quota_blocks: u64::from_le_bytes(take(&bytes, 96)),
            },
        };
        if header.volume_blocks > VOLUME_BLOCKS_MAX {
            return Err(SnapshotError::VolumeTooLarge { blocks: header.volume_blocks });
        }
        if header.volume != volume {
            return Err(SnapshotError::Foreign { found: header.volume, expected: volume });
        }
        let flags = u32::from_le_bytes(take(&bytes, 60));
        if flags & !SCORED != 0 {
            return Err(SnapshotError::Flags { found: flags });
        }
        let scored = flags & SCORED != 0;
        let announced = u32::from_le_bytes(take(&bytes, 56));
        let mut parts: Vec<Part> = Vec::new();
        let (mut at, mut blocks) = (HEADER_BYTES, 0);
        let mut places = Vec::new();
        while at < end {
            let damaged = |what| SnapshotError::Chunk { at, what };
            let chunk = ChunkRef::read(&bytes[..end], at, scored).map_err(damaged)?;
            if parts.last().is_some_and(|before| before.chunks().1 >= chunk.index) {
                return Err(damaged("chunks are not in ascending order"));
            }
            let (part, last) = if chunk.is_stretch() {
                let (stretch, last) = StretchRef::check(&bytes, &chunk).map_err(damaged)?;
                (Part::Stretch(stretch), last)
            } else {
                let last = chunk.check(&bytes, &mut places).map_err(damaged)?;
                (Part::Chunk(chunk), u64::from(chunk.index) * CHUNK_BLOCKS + u64::from(last))
            };
            if last >= header.volume_blocks {
                return Err(damaged("a block lies beyond the volume's end"));
            }
            blocks += u64::from(part.blocks());
            at = chunk.end;
            parts.push(part);
        }
        if parts.len() != announced as usize {
            return Err(SnapshotError::Chunks { found: parts.len(), expected: announced });
        }
        Ok(Snapshot { header, scored, bytes, parts, blocks })
    }

    /// Of what, and when, it is.
    pub fn header(&self) -> &SnapshotHeader {
        &self.header
    }

    /// How many blocks were cached.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The length of its bytes.
    pub fn encoded_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Visits the numbers of the chunks that have a cached block, ascending. `O(blocks)` where they are sparse.
    pub fn for_each_chunk(&self, mut visit: impl FnMut(u32)) {
        for part in &self.parts {
            match part {
                Part::Chunk(chunk) => visit(chunk.index),
                Part::Stretch(stretch) => {
                    let mut last = None;
                    stretch.visit(&self.bytes, |_, block| {
                        let chunk = (block / CHUNK_BLOCKS) as u32;
                        if last.replace(chunk) != Some(chunk) {
                            visit(chunk);
                        }
                    });
                }
            }
        }
    }

    /// The places, within chunk number `index`, of the blocks that were cached, ascending; `places` is cleared first.
    pub fn places(&self, index: u32, places: &mut Vec<u16>) {
        self.places_and_scores(index, places);
    }

    /// As [`Snapshot::places`], with where scores are kept and the number there of the first block; none where nothing was cached.
    fn places_and_scores(&self, index: u32, places: &mut Vec<u16>) -> Option<(Scores, usize)> {
        places.clear();
        let behind = self.parts.partition_point(|part| part.chunks().0 <= index);
        let part = self.parts[..behind].last().filter(|part| part.chunks().1 >= index)?;
        Some(match part {
            Part::Chunk(chunk) => {
                let decoded = chunk.decode(&self.bytes, places);
                debug_assert!(decoded.is_ok(), "what was parsed decodes again");
                (chunk.scores, 0)
            }
            Part::Stretch(stretch) => (stretch.scores, stretch.places(&self.bytes, index, places)),
        })
    }

    /// As [`Snapshot::places`], of blocks with a score of at least `least` alone; none where no scores were kept and `least` is above 0.
    pub fn places_scored(&self, index: u32, least: u8, places: &mut Vec<u16>) {
        let kept = self.places_and_scores(index, places);
        if least == 0 {
            return;
        }
        match kept.filter(|_| self.scored) {
            Some((scores, mut at)) => places.retain(|_| {
                at += 1;
                scores.get(&self.bytes, at - 1) >= least
            }),
            None => places.clear(),
        }
    }

    /// Visits each block that was cached with its score, ascending; the score is 0 where none were kept.
    pub fn for_each(&self, mut visit: impl FnMut(u64, u8)) {
        let score = |scores: &Scores, at| if self.scored { scores.get(&self.bytes, at) } else { 0 };
        let mut places = Vec::new();
        for part in &self.parts {
            match part {
                Part::Chunk(chunk) => {
                    let decoded = chunk.decode(&self.bytes, &mut places);
                    debug_assert!(decoded.is_ok(), "what was parsed decodes again");
                    for (at, place) in places.iter().enumerate() {
                        visit(
                            u64::from(chunk.index) * CHUNK_BLOCKS + u64::from(*place),
                            score(&chunk.scores, at),
                        );
                    }
                }
                Part::Stretch(stretch) => {
                    stretch.visit(&self.bytes, |at, block| visit(block, score(&stretch.scores, at)));
                }
            }
        }
    }
}

/// Appends the checksum that fits `bytes`: what a writer ends with, and a fuzzer needs to get past.
pub fn seal(bytes: &mut Vec<u8>) {
    let checksum = xxh3_64_with_seed(bytes, CHECKSUM_SEED);
    bytes.extend_from_slice(&checksum.to_le_bytes());
}

/// `N` bytes at `at`; the caller has checked that they are there.
fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut taken = [0; N];
    taken.copy_from_slice(&bytes[at..at + N]);
    taken
}

#[cfg(test)]
mod tests;
