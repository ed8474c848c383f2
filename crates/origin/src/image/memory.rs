//! Bytes in memory, in chunks that exist once they are written.

use super::Image;
use crate::extents::ExtentList;
use crate::request::{OriginError, OriginOperation};
use forebay_nbd::wire::AllocationFlags;
use forebay_units::{ByteRange, Bytes};
use std::sync::{PoisonError, RwLock};

const CHUNK_BYTES: u64 = 64 << 10;

/// A volume's bytes in memory: zeroes until written, and then in chunks of 64 KiB that are allocated when touched.
///
/// Memory is what was written, rounded up to chunks, plus 32 bytes per chunk of its size. It is lost with the process.
pub struct MemoryImage {
    size_bytes: u64,
    chunks: Vec<RwLock<Option<Box<[u8]>>>>,
}

impl MemoryImage {
    /// An image of `size` zeroes.
    pub fn new(size: Bytes) -> MemoryImage {
        let chunks = (0..size.0.div_ceil(CHUNK_BYTES)).map(|_| RwLock::new(None)).collect();
        MemoryImage { size_bytes: size.0, chunks }
    }

    /// Its size.
    pub fn size(&self) -> Bytes {
        Bytes(self.size_bytes)
    }

    /// Copies bytes out of the image.
    ///
    /// # Panics
    /// Where the range passes the end.
    pub fn read_at(&self, offset: u64, target: &mut [u8]) {
        let mut done = 0;
        self.each_chunk(offset, target.len() as u64, |chunk, inside| {
            let part = &mut target[done..done + inside.len()];
            match &*chunk.read().unwrap_or_else(PoisonError::into_inner) {
                Some(bytes) => part.copy_from_slice(&bytes[inside.clone()]),
                None => part.fill(0),
            }
            done += inside.len();
        });
    }

    /// Copies bytes into the image.
    ///
    /// # Panics
    /// Where the range passes the end.
    pub fn write_at(&self, offset: u64, source: &[u8]) {
        let mut done = 0;
        self.each_chunk(offset, source.len() as u64, |chunk, inside| {
            let part = &source[done..done + inside.len()];
            let mut chunk = chunk.write().unwrap_or_else(PoisonError::into_inner);
            let bytes = chunk.get_or_insert_with(|| vec![0; CHUNK_BYTES as usize].into_boxed_slice());
            bytes[inside.clone()].copy_from_slice(part);
            done += inside.len();
        });
    }

    /// Zeroes over the range; whole chunks are given back.
    ///
    /// # Panics
    /// Where the range passes the end.
    pub fn zero(&self, offset: u64, length: u64) {
        self.each_chunk(offset, length, |chunk, inside| {
            let mut chunk = chunk.write().unwrap_or_else(PoisonError::into_inner);
            if inside.len() as u64 == CHUNK_BYTES {
                *chunk = None;
            } else if let Some(bytes) = chunk.as_mut() {
                bytes[inside.clone()].fill(0);
            }
        });
    }

    /// Chunks that were never written, or were given back, are holes.
    fn extents(&self, range: ByteRange, one_extent: bool) -> Vec<u8> {
        let mut list = ExtentList::new(range.length, one_extent);
        self.each_chunk(range.offset, range.length, |chunk, inside| {
            let is_there = chunk.read().unwrap_or_else(PoisonError::into_inner).is_some();
            let hole = AllocationFlags::HOLE.with(AllocationFlags::ZERO);
            list.push(inside.len() as u64, AllocationFlags::NONE.with_if(!is_there, hole));
        });
        list.into_bytes()
    }

    fn each_chunk(
        &self,
        offset: u64,
        length: u64,
        mut visit: impl FnMut(&RwLock<Option<Box<[u8]>>>, std::ops::Range<usize>),
    ) {
        let end = offset.checked_add(length).filter(|end| *end <= self.size_bytes);
        let end =
            end.unwrap_or_else(|| panic!("bytes {offset}+{length} pass the end at {}", self.size_bytes));
        let mut at = offset;
        while at < end {
            let chunk = at / CHUNK_BYTES;
            let stop = end.min((chunk + 1) * CHUNK_BYTES);
            let start = chunk * CHUNK_BYTES;
            visit(&self.chunks[chunk as usize], (at - start) as usize..(stop - start) as usize);
            at = stop;
        }
    }
}

impl Image for MemoryImage {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_only(&self) -> bool {
        false
    }

    fn sync_blocks(&self) -> bool {
        false
    }

    fn can_fast_zero(&self) -> bool {
        // Nothing is handed over, and whole chunks are given back.
        true
    }

    fn apply(&self, operation: &OriginOperation) -> Result<Vec<u8>, OriginError> {
        match operation {
            OriginOperation::Read { range } => {
                let mut bytes = vec![0; range.length as usize];
                self.read_at(range.offset, &mut bytes);
                return Ok(bytes);
            }
            OriginOperation::Write { offset, data, .. } => self.write_at(*offset, data),
            OriginOperation::Trim { range, .. } | OriginOperation::WriteZeroes { range, .. } => {
                self.zero(range.offset, range.length);
            }
            OriginOperation::BlockStatus { range, one_extent } => {
                return Ok(self.extents(*range, *one_extent));
            }
            OriginOperation::Flush => {}
        }
        Ok(Vec::new())
    }

    fn sync(&self) -> Result<(), OriginError> {
        Ok(())
    }

    fn describe(&self) -> String {
        format!("memory of {}", self.size())
    }
}
