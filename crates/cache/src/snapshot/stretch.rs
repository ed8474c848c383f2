//! A stretch: sparse chunks one after the other, whose gaps are Rice codes. Where one block in a thousand is cached, a chunk's header and gaps of whole bytes would cost more than
//! its blocks tell; a stretch has one header for up to 65,536 blocks, and less than half a bit per block above the entropy of gaps at random.
//!
//! Source: R. F. Rice, "Some practical universal noiseless coding techniques", JPL 79-22, 1979.

use super::CHUNK_BLOCKS;
use super::chunk::{self, ChunkRef, Scores, write_stretch_header};

/// Sparse: fewer blocks of a chunk are cached. Others are left to codes that are faster to read (ours).
pub(super) const SPARSE_BLOCKS: usize = 1024;
/// As many as a header can count.
const STRETCH_BLOCKS_MAX: usize = 1 << 16;
/// Low bits of the largest volume's largest gap.
const LOW_BITS_MAX: u8 = 46;
/// Blocks between two places of a stretch where reading may begin.
const ENTRY_EVERY: usize = 128;

/// How many bits `gaps` take with so many low bits: each its low bits, a one, and as many zeros as what is above them.
fn code_bits(gaps: &[u64], low_bits: u8) -> u64 {
    gaps.iter().map(|gap| (gap >> low_bits) + 1 + u64::from(low_bits)).sum()
}

/// About how many low bits suit `count` gaps, above 0, of such a sum.
fn low_bits_of(sum: u64, count: usize) -> u8 {
    (((sum / count as u64).max(1)).ilog2() as u8).min(LOW_BITS_MAX)
}

/// What is gathered for a stretch that is not written yet.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// The chunk of its first block.
    first: u32,
    /// The block behind its last one.
    next: u64,
    /// Blocks left out before each, and their sum.
    gaps: Vec<u64>,
    sum: u64,
    scores: Vec<u8>,
    /// Bits that each score takes.
    score_bits: usize,
    /// The chunk's own gaps.
    tried: Vec<u64>,
}

impl Gathered {
    pub(super) fn is_empty(&self) -> bool {
        self.gaps.is_empty()
    }

    /// Whether it took a sparse chunk, which by itself would take so many bytes. If it did not, it is to be written, and may then take it as its first.
    pub(super) fn take(&mut self, chunk: u32, places: &[u16], scores: &[u8], bytes_alone: usize) -> bool {
        let begin = u64::from(chunk) * CHUNK_BLOCKS;
        let (is_first, first) = (self.is_empty(), begin + u64::from(places[0]));
        let mut next = first;
        self.tried.clear();
        self.tried.extend(places.iter().map(|place| {
            let block = begin + u64::from(*place);
            let gap = block - next;
            next = block + 1;
            gap
        }));
        let own: u64 = self.tried.iter().sum::<u64>() + u64::from(places[0]);
        let own_bits = |gaps: &mut Vec<u64>| {
            gaps[0] = u64::from(places[0]);
            code_bits(gaps, low_bits_of(own, places.len()))
        };
        let bits_each = Scores::bits_each(scores);
        let score_bits = (scores.len() * bits_each) as u64;
        if is_first {
            // Two bytes more than by itself are made good by the next chunk's header; if none follows, it is written by itself.
            let header_bits = 8 * ChunkRef::HEADER_BYTES as u64;
            let is_worth =
                own_bits(&mut self.tried) + score_bits + header_bits <= 8 * bytes_alone as u64 + 16;
            if is_worth {
                (self.first, self.next, self.sum, self.score_bits) = (chunk, next, own, bits_each);
                self.gaps.append(&mut self.tried);
                self.scores.extend_from_slice(scores);
            }
            return is_worth;
        }
        if self.gaps.len() + places.len() > STRETCH_BLOCKS_MAX || bits_each != self.score_bits {
            return false;
        }
        let own_bits = own_bits(&mut self.tried) + 8 * ChunkRef::HEADER_BYTES as u64 + 8;
        self.tried[0] = first - self.next;
        let sum = self.sum + self.tried.iter().sum::<u64>();
        let bits = code_bits(&self.tried, low_bits_of(sum, self.gaps.len() + places.len()));
        if bits > own_bits || bits + score_bits > 8 * bytes_alone as u64 {
            return false;
        }
        self.gaps.append(&mut self.tried);
        self.scores.extend_from_slice(scores);
        (self.next, self.sum) = (next, sum);
        true
    }

    /// Appends the stretch, if there is one, and begins anew; whether there was one. If it is a single chunk, that is written by itself where that is shorter.
    pub(super) fn write(&mut self, bytes: &mut Vec<u8>) -> bool {
        if self.is_empty() {
            return false;
        }
        let about = low_bits_of(self.sum, self.gaps.len());
        let near = about.saturating_sub(1)..=(about + 1).min(LOW_BITS_MAX);
        let low_bits = near.min_by_key(|low_bits| code_bits(&self.gaps, *low_bits)).unwrap_or(about);
        let length = 1 + code_bits(&self.gaps, low_bits).div_ceil(8) as usize;
        if (self.next - 1) / CHUNK_BLOCKS == u64::from(self.first) {
            let mut next = 0;
            let place = |gap: &u64| {
                next += gap + 1;
                (next - 1) as u16
            };
            let places: Vec<u16> = self.gaps.iter().map(place).collect();
            let shortest = chunk::shortest(&places);
            if shortest.code_bytes <= length {
                chunk::write(self.first, &places, shortest, &self.scores, bytes);
                self.clear();
                return true;
            }
        }
        write_stretch_header(self.first, self.gaps.len(), length, &self.scores, bytes);
        bytes.push(low_bits);
        let (mut held, mut held_bits) = (0u64, 0);
        let mut put = |value: u64, bits: u32| {
            held |= value << held_bits;
            held_bits += bits;
            while held_bits >= 8 {
                bytes.push(held as u8);
                held >>= 8;
                held_bits -= 8;
            }
        };
        for gap in &self.gaps {
            let mut above = gap >> low_bits;
            while above >= 32 {
                put(0, 32);
                above -= 32;
            }
            put(1 << above, above as u32 + 1);
            let low = gap & ((1 << low_bits) - 1);
            put(low & 0xff_ffff, u32::from(low_bits).min(24));
            put(low >> 24, u32::from(low_bits).saturating_sub(24));
        }
        if held_bits > 0 {
            bytes.push(held as u8);
        }
        Scores::write(&self.scores, bytes);
        self.clear();
        true
    }

    fn clear(&mut self) {
        self.gaps.clear();
        self.scores.clear();
    }
}

/// Reads gaps.
struct Gaps<'a> {
    bytes: &'a [u8],
    /// The bit that is read next.
    at: u64,
    low_bits: u8,
}

impl Gaps<'_> {
    /// The next 57 bits or more, the first one lowest; behind the end zeros.
    fn bits(&self) -> u64 {
        let from = (self.at / 8) as usize;
        let word = match self.bytes.get(from..from + 8) {
            Some(eight) => u64::from_le_bytes(super::take(eight, 0)),
            None => {
                let rest = self.bytes.get(from..).unwrap_or_default();
                rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
            }
        };
        word >> (self.at % 8)
    }

    /// The next gap; none if it is cut off or larger than any volume.
    fn next(&mut self) -> Option<u64> {
        let mut above = 0;
        let mut bits = self.bits();
        // Rarely: a gap is many times what most are.
        while bits.trailing_zeros() >= 56 - u32::from(LOW_BITS_MAX) {
            let zeros = u64::from(bits.trailing_zeros().min(32));
            above += zeros;
            self.at += zeros;
            if self.at >= self.bytes.len() as u64 * 8 {
                return None;
            }
            bits = self.bits();
        }
        let zeros = bits.trailing_zeros();
        above += u64::from(zeros);
        if above > super::VOLUME_BLOCKS_MAX >> self.low_bits {
            return None;
        }
        let low = bits >> (zeros + 1) & ((1 << self.low_bits) - 1);
        self.at += u64::from(zeros) + 1 + u64::from(self.low_bits);
        (self.at <= self.bytes.len() as u64 * 8).then_some(above << self.low_bits | low)
    }
}

/// Where a stretch is. Its memory is a small multiple of its bytes.
#[derive(Clone, Debug)]
pub(super) struct StretchRef {
    /// The chunks of its first and last block.
    pub(super) first: u32,
    pub(super) last: u32,
    count: u32,
    low_bits: u8,
    /// Where its gaps begin and end, in bytes.
    gaps_at: usize,
    gaps_end: usize,
    pub(super) scores: Scores,
    /// For each [`ENTRY_EVERY`] blocks but the first: the block from which the next gap counts, and the bit of the gaps where that one is.
    entries: Vec<(u64, u64)>,
}

impl StretchRef {
    /// Checks a stretch; with its last block.
    pub(super) fn check(bytes: &[u8], header: &ChunkRef) -> Result<(StretchRef, u64), &'static str> {
        let (low_bits, code) =
            bytes[header.code_at..header.code_end].split_first().ok_or("its gaps are cut off")?;
        if *low_bits > LOW_BITS_MAX {
            return Err("its gaps have more low bits than the largest volume's");
        }
        let mut stretch = StretchRef {
            first: header.index,
            last: header.index,
            count: header.count,
            low_bits: *low_bits,
            gaps_at: header.code_at + 1,
            gaps_end: header.code_end,
            scores: header.scores,
            entries: Vec::with_capacity((header.count as usize - 1) / ENTRY_EVERY),
        };
        let mut gaps = Gaps { bytes: code, at: 0, low_bits: *low_bits };
        let mut next = u64::from(header.index) * CHUNK_BLOCKS;
        for number in 0..header.count as usize {
            if number > 0 && number.is_multiple_of(ENTRY_EVERY) {
                stretch.entries.push((next, gaps.at));
            }
            let gap = gaps.next().ok_or("a gap is cut off or leads out of the largest volume")?;
            if number == 0 && gap >= CHUNK_BLOCKS {
                return Err("it begins behind the chunk that it is said to begin in");
            }
            next = next.saturating_add(gap).saturating_add(1);
            if next > super::VOLUME_BLOCKS_MAX {
                return Err("a gap leads out of the largest volume");
            }
        }
        if gaps.bits() != 0 || gaps.at.div_ceil(8) != code.len() as u64 {
            return Err("it does not have as many blocks as it says");
        }
        stretch.last = ((next - 1) / CHUNK_BLOCKS) as u32;
        Ok((stretch, next - 1))
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Visits its blocks from the one of this number on, a multiple of [`ENTRY_EVERY`], with their numbers, as long as it is told to go on.
    fn visit_from(&self, bytes: &[u8], number: usize, mut visit: impl FnMut(usize, u64) -> bool) {
        let (mut next, at) = match number / ENTRY_EVERY {
            0 => (u64::from(self.first) * CHUNK_BLOCKS, 0),
            entry => self.entries[entry - 1],
        };
        let mut gaps = Gaps { bytes: &bytes[self.gaps_at..self.gaps_end], at, low_bits: self.low_bits };
        for number in number..self.count as usize {
            let gap = gaps.next();
            debug_assert!(gap.is_some(), "what was parsed decodes again");
            let block = next + gap.unwrap_or(0);
            if !visit(number, block) {
                return;
            }
            next = block + 1;
        }
    }

    /// Visits its blocks with their numbers, ascending.
    pub(super) fn visit(&self, bytes: &[u8], mut visit: impl FnMut(usize, u64)) {
        self.visit_from(bytes, 0, |number, block| {
            visit(number, block);
            true
        });
    }

    /// Appends the places of the blocks of a chunk; the number of the first of them. `O(log n)` and [`ENTRY_EVERY`] blocks besides.
    pub(super) fn places(&self, bytes: &[u8], chunk: u32, places: &mut Vec<u16>) -> usize {
        let begin = u64::from(chunk) * CHUNK_BLOCKS;
        let entry = self.entries.partition_point(|(next, _)| *next <= begin);
        let mut first = 0;
        self.visit_from(bytes, entry * ENTRY_EVERY, |number, block| {
            if block / CHUNK_BLOCKS == u64::from(chunk) {
                if places.is_empty() {
                    first = number;
                }
                places.push((block - begin) as u16);
            }
            block / CHUNK_BLOCKS <= u64::from(chunk)
        });
        first
    }
}
