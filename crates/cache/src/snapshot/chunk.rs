//! A chunk: which of 65,536 blocks are cached, in the shortest of four codes, and their scores.

/// Bytes before a chunk's payload: its number (4), the code (1), nothing (1), blocks minus one (2), bytes of the code (4).
pub(super) const CHUNK_HEADER_BYTES: usize = 12;
const BITMAP_BYTES: usize = 8_192;

/// One bit per block.
const BITMAP: u8 = 0;
/// For each block the gap since the one before, minus one; 255 stands for a gap of 255 that goes on.
const GAPS: u8 = 1;
/// For each run of blocks its first place and its length minus one, two bytes each.
const RUNS: u8 = 2;
/// Two bytes per block.
const LIST: u8 = 3;

/// Appends a chunk. `places` ascend and are not empty; `scores` has as many, or none.
pub(super) fn write(index: u32, places: &[u16], scores: &[u8], bytes: &mut Vec<u8>) {
    let count = places.len();
    let (mut gap_bytes, mut runs, mut next) = (0, 0, 0u32);
    for &place in places {
        let gap = u32::from(place) - next;
        gap_bytes += 1 + (gap / 255) as usize;
        runs += usize::from(gap > 0 || next == 0);
        next = u32::from(place) + 1;
    }
    let codes = [(4 * runs, RUNS), (gap_bytes, GAPS), (2 * count, LIST), (BITMAP_BYTES, BITMAP)];
    let (length, code) = codes.into_iter().min().unwrap_or((BITMAP_BYTES, BITMAP));
    bytes.extend_from_slice(&index.to_le_bytes());
    bytes.extend_from_slice(&[code, 0]);
    bytes.extend_from_slice(&((count - 1) as u16).to_le_bytes());
    bytes.extend_from_slice(&(length as u32).to_le_bytes());
    let begin = bytes.len();
    match code {
        RUNS => {
            let mut at = 0;
            while at < count {
                let first = places[at];
                let mut length = 1;
                while at + length < count
                    && u32::from(places[at + length]) == u32::from(first) + length as u32
                {
                    length += 1;
                }
                bytes.extend_from_slice(&first.to_le_bytes());
                bytes.extend_from_slice(&((length - 1) as u16).to_le_bytes());
                at += length;
            }
        }
        GAPS => {
            let mut next = 0u32;
            for &place in places {
                let mut gap = u32::from(place) - next;
                while gap >= 255 {
                    bytes.push(255);
                    gap -= 255;
                }
                bytes.push(gap as u8);
                next = u32::from(place) + 1;
            }
        }
        LIST => places.iter().for_each(|place| bytes.extend_from_slice(&place.to_le_bytes())),
        _ => {
            bytes.resize(begin + BITMAP_BYTES, 0);
            for &place in places {
                bytes[begin + usize::from(place / 8)] |= 1 << (place % 8);
            }
        }
    }
    debug_assert_eq!(bytes.len() - begin, length);
    for pair in scores.chunks(2) {
        bytes.push(pair[0] | pair.get(1).map_or(0, |second| second << 4));
    }
}

const WRONG_COUNT: &str = "it does not have as many blocks as it says";

/// How many blocks gaps stand for, and the last place. Sums alone, which the processor does many at a time.
fn check_gaps(code: &[u8]) -> Result<(u32, u16), &'static str> {
    let left_out: u64 = code.iter().map(|&byte| u64::from(byte)).sum();
    let count = code.iter().map(|&byte| u64::from(byte < 255)).sum::<u64>();
    if count == 0 || code.last() == Some(&255) {
        return Err("a gap goes on behind its end");
    }
    let last = u16::try_from(left_out + count - 1).map_err(|_| "a gap leads out of it")?;
    Ok((count as u32, last))
}

/// Where a chunk is.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkRef {
    pub(super) index: u32,
    code: u8,
    pub(super) count: u32,
    /// Where the code begins and ends, and the chunk ends.
    code_at: usize,
    scores_at: usize,
    pub(super) end: usize,
}

impl ChunkRef {
    /// Reads the header at `at`.
    pub(super) fn read(bytes: &[u8], at: usize, scored: bool) -> Result<ChunkRef, &'static str> {
        if bytes.len() - at < CHUNK_HEADER_BYTES {
            return Err("its header is cut off");
        }
        let count = u32::from(u16::from_le_bytes(super::take(bytes, at + 6))) + 1;
        let length = u32::from_le_bytes(super::take(bytes, at + 8)) as usize;
        let code_at = at + CHUNK_HEADER_BYTES;
        let scores = if scored { (count as usize).div_ceil(2) } else { 0 };
        if bytes.len() - code_at < length || bytes.len() - code_at - length < scores {
            return Err("it is longer than what is left");
        }
        let scores_at = code_at + length;
        let index = u32::from_le_bytes(super::take(bytes, at));
        Ok(ChunkRef { index, code: bytes[at + 4], count, code_at, scores_at, end: scores_at + scores })
    }

    /// Its places, ascending; `places` is cleared first.
    pub(super) fn decode(&self, bytes: &[u8], places: &mut Vec<u16>) -> Result<(), &'static str> {
        places.clear();
        places.reserve(self.count as usize);
        let code = &bytes[self.code_at..self.scores_at];
        match self.code {
            BITMAP => {
                if code.len() != BITMAP_BYTES {
                    return Err("its bitmap is not 8,192 bytes long");
                }
                for (at, word) in code.chunks_exact(8).enumerate() {
                    let mut word = u64::from_le_bytes(super::take(word, 0));
                    while word != 0 {
                        places.push((at * 64) as u16 + word.trailing_zeros() as u16);
                        word &= word - 1;
                    }
                }
            }
            GAPS => {
                let (count, _) = check_gaps(code)?;
                let mut next = 0u32;
                if code.len() == count as usize {
                    // No gap is long: as many bytes as blocks.
                    places.extend(code.iter().map(|&gap| {
                        let place = next + u32::from(gap);
                        next = place + 1;
                        place as u16
                    }));
                } else {
                    for &byte in code {
                        next += u32::from(byte);
                        if byte < 255 {
                            places.push(next as u16);
                            next += 1;
                        }
                    }
                }
            }
            RUNS => {
                if !code.len().is_multiple_of(4) {
                    return Err("a run is cut off");
                }
                let mut next = 0u32;
                for run in code.chunks_exact(4) {
                    let first = u32::from(u16::from_le_bytes(super::take(run, 0)));
                    let end = first + u32::from(u16::from_le_bytes(super::take(run, 2))) + 1;
                    if first < next || end > 1 << 16 {
                        return Err("runs overlap or lead out of it");
                    }
                    places.extend((first..end).map(|place| place as u16));
                    next = end;
                }
            }
            LIST => {
                if !code.len().is_multiple_of(2) {
                    return Err("a place is cut off");
                }
                places.extend(code.chunks_exact(2).map(|place| u16::from_le_bytes(super::take(place, 0))));
                if !places.is_sorted_by(|a, b| a < b) {
                    return Err("places are not in ascending order");
                }
            }
            _ => return Err("its code is unknown"),
        }
        if places.len() == self.count as usize { Ok(()) } else { Err(WRONG_COUNT) }
    }

    /// Checks it as [`ChunkRef::decode`] does, and returns its last place. Gaps are checked without being decoded.
    pub(super) fn check(&self, bytes: &[u8], places: &mut Vec<u16>) -> Result<u16, &'static str> {
        if self.code == GAPS {
            let (count, last) = check_gaps(&bytes[self.code_at..self.scores_at])?;
            return if count == self.count { Ok(last) } else { Err(WRONG_COUNT) };
        }
        self.decode(bytes, places)?;
        places.last().copied().ok_or(WRONG_COUNT)
    }

    /// The score of its block number `at`.
    pub(super) fn score(&self, bytes: &[u8], at: usize) -> u8 {
        bytes[self.scores_at + at / 2] >> (at % 2 * 4) & 15
    }
}
