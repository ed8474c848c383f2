//! The index as a stream of bytes: frame after frame, oldest first, cut into the payloads of index segments wherever they end.
//!
//! Pure, and streaming on both sides: an index of a terabyte is never in memory as bytes. A frame is 16 bytes (segment, live blocks,
//! number), and each live block of it 20 (place in the segment, block, checksum).

use thiserror::Error;

const FRAME_BYTES: usize = 16;
const ENTRY_BYTES: usize = 20;

/// A segment of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexFrame {
    /// Where on the device.
    pub segment: u32,
    /// How many entries follow.
    pub live: u32,
    /// The number that is part of its blocks' checksums.
    pub sequence: u64,
}

/// A block of the frame before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Which place of the segment, counted in blocks.
    pub place: u32,
    /// Which block of the volume.
    pub block: u64,
    /// The checksum that its content has.
    pub checksum: u64,
}

/// What an index consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexItem {
    /// A frame; its entries follow.
    Frame(IndexFrame),
    /// A block of it.
    Entry(IndexEntry),
}

/// Why an index is not one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IndexError {
    /// A frame that has more blocks than fit.
    #[error("a frame has `{found}` blocks, at most `{most}` fit into a segment")]
    Frame {
        /// What is there.
        found: u32,
        /// What fits.
        most: u32,
    },
    /// An entry outside of its segment, or out of order.
    #[error("a block is at place `{found}` of a segment, expected at least `{least}` and less than `{most}`")]
    Place {
        /// What is there.
        found: u32,
        /// Places rise.
        least: u32,
        /// What fits.
        most: u32,
    },
    /// The end came in the middle.
    #[error("the index ends in the middle of a frame")]
    End,
}

/// Reads an index, piece by piece.
#[derive(Debug)]
pub struct IndexReader {
    per_segment: u32,
    rest: Vec<u8>,
    entries_left: u32,
    next_place: u32,
}

impl IndexReader {
    /// A reader of an index whose segments have `per_segment` blocks.
    pub fn new(per_segment: u32) -> IndexReader {
        IndexReader { per_segment, rest: Vec::new(), entries_left: 0, next_place: 0 }
    }

    /// Takes the next piece, and hands what is complete of it to `item`.
    ///
    /// # Errors
    /// [`IndexError`]; what was handed out before may be wrong as well, so all of it is to be dropped.
    pub fn read(&mut self, piece: &[u8], mut item: impl FnMut(IndexItem)) -> Result<(), IndexError> {
        let mut at = 0;
        // What was left of the piece before is completed first, byte by byte as long as it must be.
        let mut joined = std::mem::take(&mut self.rest);
        while !joined.is_empty() {
            let wanted = self.next_bytes();
            if joined.len() < wanted {
                let more = (wanted - joined.len()).min(piece.len() - at);
                joined.extend_from_slice(&piece[at..at + more]);
                at += more;
            }
            if joined.len() < wanted {
                self.rest = joined;
                return Ok(());
            }
            debug_assert_eq!(joined.len(), wanted);
            item(self.parse(&joined)?);
            joined.clear();
        }
        while piece.len() - at >= self.next_bytes() {
            let bytes = self.next_bytes();
            item(self.parse(&piece[at..at + bytes])?);
            at += bytes;
        }
        self.rest.extend_from_slice(&piece[at..]);
        Ok(())
    }

    /// There is no further piece.
    ///
    /// # Errors
    /// [`IndexError::End`] if something is incomplete.
    pub fn finish(&self) -> Result<(), IndexError> {
        if self.rest.is_empty() && self.entries_left == 0 { Ok(()) } else { Err(IndexError::End) }
    }

    fn next_bytes(&self) -> usize {
        if self.entries_left == 0 { FRAME_BYTES } else { ENTRY_BYTES }
    }

    fn parse(&mut self, bytes: &[u8]) -> Result<IndexItem, IndexError> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let most = self.per_segment;
        if self.entries_left == 0 {
            let frame = IndexFrame { segment: word(0), live: word(4), sequence: long(8) };
            if frame.live > most {
                return Err(IndexError::Frame { found: frame.live, most });
            }
            (self.entries_left, self.next_place) = (frame.live, 0);
            return Ok(IndexItem::Frame(frame));
        }
        let entry = IndexEntry { place: word(0), block: long(4), checksum: long(12) };
        if entry.place < self.next_place || entry.place >= most {
            return Err(IndexError::Place { found: entry.place, least: self.next_place, most });
        }
        (self.entries_left, self.next_place) = (self.entries_left - 1, entry.place + 1);
        Ok(IndexItem::Entry(entry))
    }
}

/// Writes an index into payloads of at most `payload_bytes`.
#[derive(Debug)]
pub struct IndexWriter {
    payload_bytes: usize,
    payload: Vec<u8>,
}

impl IndexWriter {
    /// A writer of payloads of `payload_bytes`, but for the last.
    ///
    /// # Panics
    /// If nothing would fit.
    pub fn new(payload_bytes: usize) -> IndexWriter {
        assert!(payload_bytes > ENTRY_BYTES, "a payload of {payload_bytes} bytes holds no entry");
        IndexWriter { payload_bytes, payload: Vec::new() }
    }

    /// The bytes of an index of `frames` frames and `blocks` blocks.
    pub fn bytes(frames: u64, blocks: u64) -> u64 {
        frames * FRAME_BYTES as u64 + blocks * ENTRY_BYTES as u64
    }

    /// Adds an item; a payload that is full by it.
    pub fn write(&mut self, item: IndexItem) -> Option<Vec<u8>> {
        match item {
            IndexItem::Frame(frame) => {
                self.payload.extend_from_slice(&frame.segment.to_le_bytes());
                self.payload.extend_from_slice(&frame.live.to_le_bytes());
                self.payload.extend_from_slice(&frame.sequence.to_le_bytes());
            }
            IndexItem::Entry(entry) => {
                self.payload.extend_from_slice(&entry.place.to_le_bytes());
                self.payload.extend_from_slice(&entry.block.to_le_bytes());
                self.payload.extend_from_slice(&entry.checksum.to_le_bytes());
            }
        }
        if self.payload.len() < self.payload_bytes {
            return None;
        }
        let rest = self.payload.split_off(self.payload_bytes);
        Some(std::mem::replace(&mut self.payload, rest))
    }

    /// The last payload, if anything is left.
    pub fn finish(self) -> Option<Vec<u8>> {
        (!self.payload.is_empty()).then_some(self.payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn items(frames: &[Vec<(u32, u64)>]) -> Vec<IndexItem> {
        let mut items = Vec::new();
        for (number, blocks) in frames.iter().enumerate() {
            let mut blocks = blocks.clone();
            blocks.sort_unstable();
            blocks.dedup_by_key(|(place, _)| *place);
            items.push(IndexItem::Frame(IndexFrame {
                segment: number as u32 * 3,
                live: blocks.len() as u32,
                sequence: number as u64 + 100,
            }));
            items.extend(blocks.iter().map(|(place, block)| {
                IndexItem::Entry(IndexEntry { place: *place, block: *block, checksum: block.wrapping_mul(7) })
            }));
        }
        items
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn an_index_survives_any_cut(frames in prop::collection::vec(prop::collection::vec((0u32..16, any::<u64>()), 0..12), 0..8),
                                     payload_bytes in 21usize..200, piece in 1usize..64) {
            let items = items(&frames);
            let mut writer = IndexWriter::new(payload_bytes);
            let mut payloads: Vec<Vec<u8>> = items.iter().filter_map(|item| writer.write(*item)).collect();
            payloads.extend(writer.finish());
            prop_assert!(payloads.iter().rev().skip(1).all(|payload| payload.len() == payload_bytes));
            let bytes = payloads.concat();
            let entries = items.iter().filter(|item| matches!(item, IndexItem::Entry(_))).count() as u64;
            prop_assert_eq!(bytes.len() as u64, IndexWriter::bytes(frames.len() as u64, entries));
            let (mut reader, mut found) = (IndexReader::new(16), Vec::new());
            for piece in bytes.chunks(piece) {
                reader.read(piece, |item| found.push(item)).unwrap();
            }
            reader.finish().unwrap();
            prop_assert_eq!(found, items);
            if !bytes.is_empty() {
                let mut reader = IndexReader::new(16);
                reader.read(&bytes[..bytes.len() - 1], |_| ()).unwrap();
                prop_assert_eq!(reader.finish(), Err(IndexError::End));
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let frame = |live: u32| {
            let mut bytes = vec![0; 16];
            bytes[4..8].copy_from_slice(&live.to_le_bytes());
            bytes
        };
        let read = |bytes: &[u8]| IndexReader::new(8).read(bytes, |_| ());
        assert_eq!(read(&frame(9)), Err(IndexError::Frame { found: 9, most: 8 }));
        let mut bytes = frame(2);
        bytes.extend([8, 0, 0, 0].iter().chain(&[0; 16]));
        assert_eq!(read(&bytes), Err(IndexError::Place { found: 8, least: 0, most: 8 }));
        // Twice the same place.
        let mut bytes = frame(2);
        bytes.extend([3, 0, 0, 0].iter().chain(&[0; 16]));
        bytes.extend([3, 0, 0, 0].iter().chain(&[0; 16]));
        assert_eq!(read(&bytes), Err(IndexError::Place { found: 3, least: 4, most: 8 }));
    }
}
