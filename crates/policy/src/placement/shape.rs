//! How large a tier is.

use std::fmt::{self, Display};

/// How large the tier is; fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a chunk: a power of two from 4 KiB to 16 MiB; 64 KiB by default.
    pub chunk_bytes: u64,
    /// Places of the tier, 1 to 2^30.
    pub capacity_chunks: u32,
    /// Chunks whose counts are remembered, those in the tier among them: from twice the capacity to 2^30.
    pub tracked_chunks: u32,
}

impl Shape {
    /// A tier of `bytes` in chunks of `chunk_bytes` that remembers four times as many chunks as it holds.
    pub fn new(bytes: u64, chunk_bytes: u64) -> Shape {
        let chunks = (bytes / chunk_bytes.max(1)).min(1 << 28) as u32;
        Shape { chunk_bytes, capacity_chunks: chunks, tracked_chunks: chunks.saturating_mul(4).max(64) }
    }

    /// Whether such a tier can be.
    ///
    /// # Errors
    /// [`ShapeError`] says what is out of its range.
    pub fn check(&self) -> Result<(), ShapeError> {
        let wrong = |what, found, expected| Err(ShapeError { what, found, expected });
        if !self.chunk_bytes.is_power_of_two() || !(1 << 12..=1 << 24).contains(&self.chunk_bytes) {
            return wrong("chunk", self.chunk_bytes, "a power of two from 4 KiB to 16 MiB");
        }
        if !(1..=1 << 30).contains(&self.capacity_chunks) {
            return wrong("capacity in chunks", self.capacity_chunks.into(), "1 to 2^30");
        }
        if self.tracked_chunks > 1 << 30 || self.tracked_chunks / 2 < self.capacity_chunks {
            return wrong("tracked chunks", self.tracked_chunks.into(), "twice the capacity, to 2^30");
        }
        Ok(())
    }
}

impl Default for Shape {
    /// 1 GiB in chunks of 64 KiB.
    fn default() -> Shape {
        Shape::new(1 << 30, 64 << 10)
    }
}

/// A tier that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeError {
    /// What is out of its range.
    pub what: &'static str,
    /// What it is.
    pub found: u64,
    /// What it may be.
    pub expected: &'static str,
}

impl Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, expected {}", self.what, self.found, self.expected)
    }
}

impl std::error::Error for ShapeError {}
