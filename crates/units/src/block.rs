//! Blocks, the unit of caching, and the byte ranges that requests are.

use crate::Bytes;
use std::fmt;

/// The size of a block: a power of two from 512 bytes to 16 MiB; 4 KiB unless set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockSize {
    shift: u8,
}

/// A block size that is no power of two from 512 bytes to 16 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizeError {
    /// What was found.
    pub found: Bytes,
}

impl fmt::Display for BlockSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block size `{}` is not a power of two from 512B to 16MiB", self.found)
    }
}

impl std::error::Error for BlockSizeError {}

impl BlockSize {
    /// 4 KiB, the default everywhere.
    pub const DEFAULT: BlockSize = BlockSize { shift: 12 };

    /// The block size of `bytes` bytes.
    ///
    /// # Errors
    /// [`BlockSizeError`] unless it is a power of two from 512 bytes to 16 MiB.
    pub const fn new(bytes: Bytes) -> Result<BlockSize, BlockSizeError> {
        if bytes.0.is_power_of_two() && bytes.0 >= 512 && bytes.0 <= 16 << 20 {
            Ok(BlockSize { shift: bytes.0.trailing_zeros() as u8 })
        } else {
            Err(BlockSizeError { found: bytes })
        }
    }

    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        1 << self.shift
    }

    /// The base-2 logarithm of the size in bytes.
    pub const fn shift(self) -> u32 {
        self.shift as u32
    }

    /// The block that holds the byte at `offset`.
    pub const fn block_of(self, offset: u64) -> BlockIndex {
        BlockIndex(offset >> self.shift)
    }

    /// How many blocks are needed for `bytes`, the last one perhaps in part.
    pub const fn blocks_for(self, bytes: Bytes) -> u64 {
        bytes.0.div_ceil(1 << self.shift)
    }
}

impl Default for BlockSize {
    fn default() -> BlockSize {
        BlockSize::DEFAULT
    }
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Bytes(self.bytes()).fmt(f)
    }
}

/// The position of a block in its volume, from 0; never a count and never a byte offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockIndex(pub u64);

impl BlockIndex {
    /// The byte offset at which the block starts.
    pub const fn offset(self, block_size: BlockSize) -> u64 {
        self.0 << block_size.shift()
    }
}

/// The bytes `offset..offset + length` of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// The first byte, from the start of the volume.
    pub offset: u64,
    /// How many bytes; 0 is an empty range.
    pub length: u64,
}

impl ByteRange {
    /// The range of `length` bytes from `offset`; its end must not pass `u64::MAX`.
    pub const fn new(offset: u64, length: u64) -> ByteRange {
        ByteRange { offset, length }
    }

    /// One past the last byte; `u64::MAX` where that cannot be said.
    pub const fn end(self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    /// Whether the two ranges share a byte.
    pub const fn overlaps(self, other: ByteRange) -> bool {
        self.offset < other.end() && other.offset < self.end()
    }

    /// The blocks touched, from that of the first byte to that of the *last* byte: a request that is not aligned
    /// touches one block more than its length suggests. An empty range touches none.
    pub const fn blocks(self, block_size: BlockSize) -> BlockRange {
        if self.length == 0 {
            let at = self.offset >> block_size.shift();
            return BlockRange { first: at, end: at };
        }
        BlockRange {
            first: self.offset >> block_size.shift(),
            end: ((self.end() - 1) >> block_size.shift()) + 1,
        }
    }

    /// How many bytes of this range lie in `block`.
    pub const fn bytes_in(self, block: BlockIndex, block_size: BlockSize) -> u64 {
        let start = block.offset(block_size);
        let end = start.saturating_add(block_size.bytes());
        let low = if self.offset > start { self.offset } else { start };
        let high = if self.end() < end { self.end() } else { end };
        high.saturating_sub(low)
    }
}

/// A run of blocks `first..end`; iterates over [`BlockIndex`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// The index of the first block.
    pub first: u64,
    /// One past the index of the last block.
    pub end: u64,
}

impl BlockRange {
    /// How many blocks.
    pub const fn count(self) -> u64 {
        self.end - self.first
    }

    /// Whether the run holds no block.
    pub const fn is_empty(self) -> bool {
        self.first >= self.end
    }

    /// Whether the two runs share a block.
    pub const fn overlaps(self, other: BlockRange) -> bool {
        self.first < other.end && other.first < self.end
    }
}

impl Iterator for BlockRange {
    type Item = BlockIndex;

    fn next(&mut self) -> Option<BlockIndex> {
        if self.first >= self.end {
            return None;
        }
        let block = BlockIndex(self.first);
        self.first += 1;
        Some(block)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.end - self.first) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for BlockRange {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unaligned_request_touches_the_block_of_its_last_byte() {
        // 4,095..4,097 lies in blocks 0 and 1, although it is two bytes long: ceil(2 / 4096) would say one.
        let range = ByteRange::new(4095, 2);
        let blocks: Vec<_> = range.blocks(BlockSize::DEFAULT).collect();
        assert_eq!(blocks, [BlockIndex(0), BlockIndex(1)]);
        assert_eq!(range.bytes_in(BlockIndex(0), BlockSize::DEFAULT), 1);
        assert_eq!(range.bytes_in(BlockIndex(1), BlockSize::DEFAULT), 1);
        assert_eq!(range.bytes_in(BlockIndex(2), BlockSize::DEFAULT), 0);
    }

    #[test]
    fn aligned_and_empty_ranges() {
        assert_eq!(ByteRange::new(8192, 4096).blocks(BlockSize::DEFAULT), BlockRange { first: 2, end: 3 });
        assert!(ByteRange::new(8192, 0).blocks(BlockSize::DEFAULT).is_empty());
        assert!(!ByteRange::new(0, 10).overlaps(ByteRange::new(10, 1)));
        assert!(ByteRange::new(0, 11).overlaps(ByteRange::new(10, 1)));
    }

    #[test]
    fn block_sizes_are_powers_of_two_in_range() {
        assert_eq!(BlockSize::new(Bytes(4096)), Ok(BlockSize::DEFAULT));
        for bad in [0, 256, 4095, 32 << 20] {
            assert_eq!(BlockSize::new(Bytes(bad)), Err(BlockSizeError { found: Bytes(bad) }));
        }
        assert_eq!(BlockSize::DEFAULT.blocks_for(Bytes(4097)), 2);
    }
}
