//! Extents of a block status reply.

use super::AllocationFlags;

/// Bytes of one extent on the wire.
const EXTENT_BYTES: usize = 8;

/// Consecutive bytes with one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// How many bytes; not 0.
    pub length: u32,
    /// Their state, in the `base:allocation` context.
    pub flags: AllocationFlags,
}

impl Extent {
    /// Its bytes.
    pub fn encode(&self) -> [u8; EXTENT_BYTES] {
        let mut bytes = [0; EXTENT_BYTES];
        bytes[..4].copy_from_slice(&self.length.to_be_bytes());
        bytes[4..].copy_from_slice(&self.flags.0.to_be_bytes());
        bytes
    }

    /// From its bytes.
    pub fn decode(bytes: &[u8; EXTENT_BYTES]) -> Extent {
        let [a, b, c, d, e, f, g, h] = *bytes;
        Extent {
            length: u32::from_be_bytes([a, b, c, d]),
            flags: AllocationFlags(u32::from_be_bytes([e, f, g, h])),
        }
    }
}

/// Extents still in the bytes that they came in; iterates without copying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents<'a>(&'a [u8]);

impl<'a> Extents<'a> {
    /// The extents in `bytes`; a rest shorter than an extent is not looked at.
    pub const fn new(bytes: &'a [u8]) -> Extents<'a> {
        Extents(bytes)
    }
}

impl Iterator for Extents<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        let (extent, rest) = self.0.split_first_chunk::<EXTENT_BYTES>()?;
        self.0 = rest;
        Some(Extent::decode(extent))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.0.len() / EXTENT_BYTES;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Extents<'_> {}
