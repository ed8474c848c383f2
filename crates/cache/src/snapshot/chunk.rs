//! A chunk: which of 65,536 blocks are cached, in the shortest of five codes, and their scores.

const BITMAP_BYTES: usize = 8_192;

/// One bit per block.
const BITMAP: u8 = 0;
/// For each block the gap since the one before, minus one; 255 stands for a gap of 255 that goes on.
const GAPS: u8 = 1;
/// For each run of blocks its first place and its length minus one, two bytes each.
const RUNS: u8 = 2;
/// Two bytes per block.
const LIST: u8 = 3;
/// For each block the gap since the one before, minus one, in half-bytes: three bits of it, the lowest first, and whether more follow.
const HALVES: u8 = 4;
/// It takes longer to read than the others, and is written only where it is shorter than these parts of the shortest of them.
const HALVES_WORTH: (usize, usize) = (7, 8);
/// Not a chunk, but many of them: a stretch.
const STRETCH: u8 = 5;

/// How scores are kept, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scores {
    code: u8,
    at: usize,
}

impl Scores {
    /// Half a byte each.
    const HALVES: u8 = 0;
    /// A bit each: none is above 1.
    const BITS: u8 = 1;

    fn code_for(scores: &[u8]) -> u8 {
        if !scores.is_empty() && scores.iter().all(|score| *score <= 1) {
            Scores::BITS
        } else {
            Scores::HALVES
        }
    }

    /// Bits that one of them takes.
    pub(super) fn bits_each(scores: &[u8]) -> usize {
        if Scores::code_for(scores) == Scores::BITS { 1 } else { 4 }
    }

    /// Appends them.
    pub(super) fn write(scores: &[u8], bytes: &mut Vec<u8>) {
        if Scores::code_for(scores) == Scores::BITS {
            let byte = |eight: &[u8]| (0..).zip(eight).fold(0, |byte, (at, score)| byte | score << at);
            bytes.extend(scores.chunks(8).map(byte));
        } else {
            bytes.extend(scores.chunks(2).map(|pair| pair[0] | pair.get(1).map_or(0, |second| second << 4)));
        }
    }

    /// The score of block number `at`.
    pub(super) fn get(&self, bytes: &[u8], at: usize) -> u8 {
        match self.code {
            Scores::BITS => bytes[self.at + at / 8] >> (at % 8) & 1,
            _ => bytes[self.at + at / 2] >> (at % 2 * 4) & 15,
        }
    }
}

/// The shortest code of a chunk's places, and how many bytes it takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shortest {
    code: u8,
    pub(super) code_bytes: usize,
}

impl Shortest {
    /// Bytes of the chunk: header, code and scores.
    pub(super) fn chunk_bytes(self, scores: &[u8]) -> usize {
        ChunkRef::HEADER_BYTES + self.code_bytes + (scores.len() * Scores::bits_each(scores)).div_ceil(8)
    }
}

/// The shortest code for `places`, which ascend and are not empty.
pub(super) fn shortest(places: &[u16]) -> Shortest {
    let count = places.len();
    let (mut gap_bytes, mut gap_halves, mut runs, mut next) = (0, 0, 0, 0u32);
    for &place in places {
        let gap = u32::from(place) - next;
        gap_bytes += 1 + (gap / 255) as usize;
        gap_halves += halves(gap);
        runs += usize::from(gap > 0 || next == 0);
        next = u32::from(place) + 1;
    }
    let codes = [(4 * runs, RUNS), (gap_bytes, GAPS), (2 * count, LIST), (BITMAP_BYTES, BITMAP)];
    let (mut length, mut code) = codes.into_iter().min().unwrap_or((BITMAP_BYTES, BITMAP));
    if gap_halves.div_ceil(2) * HALVES_WORTH.1 <= length * HALVES_WORTH.0 {
        (length, code) = (gap_halves.div_ceil(2), HALVES);
    }
    Shortest { code, code_bytes: length }
}

/// Appends what comes before a code: number of the first chunk (4), the code (1), how scores are kept (1), blocks minus one (2), bytes of the code (4).
fn write_header(index: u32, code: Shortest, count: usize, scores: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&index.to_le_bytes());
    bytes.extend_from_slice(&[code.code, Scores::code_for(scores)]);
    bytes.extend_from_slice(&((count - 1) as u16).to_le_bytes());
    bytes.extend_from_slice(&(code.code_bytes as u32).to_le_bytes());
}

/// As [`write_header`], of a stretch.
pub(super) fn write_stretch_header(
    first: u32,
    count: usize,
    code_bytes: usize,
    scores: &[u8],
    bytes: &mut Vec<u8>,
) {
    write_header(first, Shortest { code: STRETCH, code_bytes }, count, scores, bytes);
}

/// Appends a chunk. `places` ascend and are not empty, `shortest` is theirs; `scores` has as many, or none.
pub(super) fn write(index: u32, places: &[u16], shortest: Shortest, scores: &[u8], bytes: &mut Vec<u8>) {
    let (count, code) = (places.len(), shortest.code);
    write_header(index, shortest, count, scores, bytes);
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
        HALVES => {
            let (mut next, mut half) = (0u32, None);
            for &place in places {
                let mut gap = u32::from(place) - next;
                next = u32::from(place) + 1;
                loop {
                    let value = (gap & 7) as u8 | u8::from(gap > 7) << 3;
                    match half.take() {
                        None => half = Some(value),
                        Some(low) => bytes.push(low | value << 4),
                    }
                    gap >>= 3;
                    if gap == 0 {
                        break;
                    }
                }
            }
            bytes.extend(half);
        }
        LIST => places.iter().for_each(|place| bytes.extend_from_slice(&place.to_le_bytes())),
        _ => {
            bytes.resize(begin + BITMAP_BYTES, 0);
            for &place in places {
                bytes[begin + usize::from(place / 8)] |= 1 << (place % 8);
            }
        }
    }
    debug_assert_eq!(bytes.len() - begin, shortest.code_bytes);
    Scores::write(scores, bytes);
}

/// How many half-bytes a gap takes.
fn halves(gap: u32) -> usize {
    (32 - gap.leading_zeros()).div_ceil(3).max(1) as usize
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

/// Where a chunk is, or a stretch, which has the same header.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkRef {
    pub(super) index: u32,
    code: u8,
    pub(super) count: u32,
    /// Where the code begins and ends, and the chunk ends.
    pub(super) code_at: usize,
    pub(super) code_end: usize,
    pub(super) scores: Scores,
    pub(super) end: usize,
}

impl ChunkRef {
    /// Bytes before a chunk's code.
    pub(super) const HEADER_BYTES: usize = 12;

    /// Reads the header at `at`.
    pub(super) fn read(bytes: &[u8], at: usize, scored: bool) -> Result<ChunkRef, &'static str> {
        if bytes.len() - at < ChunkRef::HEADER_BYTES {
            return Err("its header is cut off");
        }
        let count = u32::from(u16::from_le_bytes(super::take(bytes, at + 6))) + 1;
        let length = u32::from_le_bytes(super::take(bytes, at + 8)) as usize;
        let code_at = at + ChunkRef::HEADER_BYTES;
        let score_code = bytes[at + 5];
        let scores = match (scored, score_code) {
            (false, 0) => 0,
            (true, Scores::HALVES) => (count as usize).div_ceil(2),
            (true, Scores::BITS) => (count as usize).div_ceil(8),
            _ => return Err("how its scores are kept is unknown"),
        };
        if bytes.len() - code_at < length || bytes.len() - code_at - length < scores {
            return Err("it is longer than what is left");
        }
        let code_end = code_at + length;
        let index = u32::from_le_bytes(super::take(bytes, at));
        let code = bytes[at + 4];
        let end = code_end + scores;
        let scores = Scores { code: score_code, at: code_end };
        Ok(ChunkRef { index, code, count, code_at, code_end, scores, end })
    }

    /// Whether it is many chunks.
    pub(super) fn is_stretch(&self) -> bool {
        self.code == STRETCH
    }

    /// Its places, ascending; `places` is cleared first.
    pub(super) fn decode(&self, bytes: &[u8], places: &mut Vec<u16>) -> Result<(), &'static str> {
        places.clear();
        places.reserve(self.count as usize);
        let code = &bytes[self.code_at..self.code_end];
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
            HALVES => {
                let mut halves = code.iter().flat_map(|byte| [byte & 15, byte >> 4]);
                let mut next = 0u32;
                for _ in 0..self.count {
                    let (mut gap, mut shift) = (0, 0);
                    loop {
                        let half =
                            halves.next().filter(|_| shift < 18).ok_or("a gap goes on behind its end")?;
                        gap |= u32::from(half & 7) << shift;
                        shift += 3;
                        if half < 8 {
                            break;
                        }
                    }
                    let place = u16::try_from(next + gap).map_err(|_| "a gap leads out of it")?;
                    places.push(place);
                    next = u32::from(place) + 1;
                }
                // What is left is the half that fills a byte.
                if halves.next().is_some_and(|half| half > 0) || halves.next().is_some() {
                    return Err(WRONG_COUNT);
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
            let (count, last) = check_gaps(&bytes[self.code_at..self.code_end])?;
            return if count == self.count { Ok(last) } else { Err(WRONG_COUNT) };
        }
        self.decode(bytes, places)?;
        places.last().copied().ok_or(WRONG_COUNT)
    }
}
