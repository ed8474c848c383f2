//! Bytes for writes whose content does not matter, except that it must be neither zeroes nor compressible.

use forebay_units::mix64;

/// Bytes that are made once.
const POOL_BYTES: usize = 1 << 20;

/// Makes the content of unchecked writes.
pub(crate) struct Filler {
    pool: Vec<u8>,
    at: usize,
}

impl Filler {
    pub(crate) fn new(seed: u64) -> Filler {
        let words = (0..POOL_BYTES as u64 / 8).map(|index| mix64(seed ^ mix64(index)));
        Filler { pool: words.flat_map(u64::to_le_bytes).collect(), at: 0 }
    }

    /// `length` bytes, others than the last time.
    pub(crate) fn bytes(&mut self, length: u64) -> Vec<u8> {
        let mut left = length as usize;
        let mut data = Vec::with_capacity(left);
        while left > 0 {
            let part = left.min(self.pool.len() - self.at);
            data.extend_from_slice(&self.pool[self.at..self.at + part]);
            left -= part;
            self.at = (self.at + part) % self.pool.len();
        }
        // So that writes of one length do not come round to the same bytes.
        self.at = (self.at + 8) % self.pool.len();
        data
    }
}
