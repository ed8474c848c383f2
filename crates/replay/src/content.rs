//! Verifiable content: every sector says where it belongs and which write it came from.

use forebay_units::mix64;
use std::ops::RangeInclusive;
use thiserror::Error;

/// Content is made and checked in sectors of 512 bytes, the smallest unit that block devices address.
pub const SECTOR_BYTES: usize = 512;

/// The content of one volume as a function of (seed, sector, version); version 0 is the initial content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    seed: u64,
}

/// A sector whose bytes are not those of any version of that sector.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ContentError {
    /// The sector does not carry this volume's and this sector's mark: it is another's, zeroed or corrupt.
    #[error(
        "sector {sector} does not hold its own content: found mark {found:#018x}, expected {expected:#018x}"
    )]
    Foreign {
        /// Which sector.
        sector: u64,
        /// The mark found.
        found: u64,
        /// The mark of this volume and sector.
        expected: u64,
    },
    /// Mark and version are right, a later byte is not.
    #[error("sector {sector} claims version {version} but differs from it at byte {byte}")]
    Corrupt {
        /// Which sector.
        sector: u64,
        /// The version that it claims.
        version: u32,
        /// The first wrong byte within the sector.
        byte: usize,
    },
}

impl Content {
    /// The content of the volume that `seed` names; different volumes need different seeds.
    pub fn new(seed: u64) -> Content {
        Content { seed }
    }

    fn mark(self, sector: u64) -> u64 {
        mix64(self.seed ^ mix64(sector))
    }

    /// The word at `index` (from 1) of a sector: xor of a counter-mode stream, so that equal prefixes do not repeat.
    fn word(key: u64, index: u64) -> u64 {
        mix64(key.wrapping_add(index.wrapping_mul(0xa076_1d64_78bd_642f)))
    }

    /// Whether each aligned word of `bytes` is that of one of `versions` of `sector`, so that a read of it was torn by writes to it, and nothing
    /// else is wrong with it.
    ///
    /// # Panics
    /// If `bytes` is not one sector long.
    pub fn is_mixture(self, sector: u64, versions: RangeInclusive<u32>, bytes: &[u8]) -> bool {
        let words = bytes.chunks_exact(8).enumerate();
        let mut sectors = versions.map(|version| {
            let mut of_version = [0; SECTOR_BYTES];
            self.fill_sector(sector, version, &mut of_version);
            of_version
        });
        assert_eq!(bytes.len(), SECTOR_BYTES, "content is checked sector by sector");
        let mut is_known = [false; SECTOR_BYTES / 8];
        let is_whole = |is_known: &[bool]| is_known.iter().all(|is_known| *is_known);
        sectors.any(|of_version| {
            for (index, word) in words.clone() {
                is_known[index] |= word == &of_version[8 * index..8 * index + 8];
            }
            is_whole(&is_known)
        })
    }

    /// Writes `version` of `sector` over `bytes`.
    ///
    /// # Panics
    /// If `bytes` is not one sector long.
    pub fn fill_sector(self, sector: u64, version: u32, bytes: &mut [u8]) {
        assert_eq!(bytes.len(), SECTOR_BYTES, "content is made sector by sector");
        let mark = self.mark(sector);
        let key = mark ^ u64::from(version);
        bytes[..8].copy_from_slice(&mark.to_le_bytes());
        bytes[8..16].copy_from_slice(&u64::from(version).to_le_bytes());
        for (index, word) in bytes[16..].chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&Content::word(key, index as u64).to_le_bytes());
        }
    }

    /// The version that `bytes` holds of `sector`, after comparing every byte with it.
    ///
    /// # Errors
    /// [`ContentError`] if the bytes are not exactly some version of this sector.
    ///
    /// # Panics
    /// If `bytes` is not one sector long.
    pub fn version_of(self, sector: u64, bytes: &[u8]) -> Result<u32, ContentError> {
        assert_eq!(bytes.len(), SECTOR_BYTES, "content is checked sector by sector");
        let word_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let expected = self.mark(sector);
        let found = word_at(0);
        if found != expected {
            return Err(ContentError::Foreign { sector, found, expected });
        }
        let claimed = word_at(8);
        let version = claimed as u32;
        if u64::from(version) != claimed {
            return Err(ContentError::Corrupt { sector, version, byte: 12 });
        }
        let key = expected ^ claimed;
        for index in 0..(SECTOR_BYTES as u64 - 16) / 8 {
            let at = 16 + 8 * index as usize;
            let wanted = Content::word(key, index).to_le_bytes();
            if let Some(byte) = (0..8).find(|byte| bytes[at + byte] != wanted[*byte]) {
                return Err(ContentError::Corrupt { sector, version, byte: at + byte });
            }
        }
        Ok(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_recognised_and_every_flipped_bit_is_found() {
        let content = Content::new(7);
        let mut bytes = [0; SECTOR_BYTES];
        for version in [0, 1, 77, u32::MAX] {
            content.fill_sector(12, version, &mut bytes);
            assert_eq!(content.version_of(12, &bytes), Ok(version));
            for bit in 0..SECTOR_BYTES * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(content.version_of(12, &bytes).is_err(), "bit {bit} of version {version}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn a_sector_that_writes_tore_is_told_from_one_that_is_corrupt() {
        let content = Content::new(7);
        let of = |version| {
            let mut bytes = [0; SECTOR_BYTES];
            content.fill_sector(12, version, &mut bytes);
            bytes
        };
        let torn = |at: usize| [&of(3)[..at], &of(4)[at..256], &of(5)[256..]].concat();
        for at in [16, 128, 248] {
            assert!(content.version_of(12, &torn(at)).is_err());
            assert!(content.is_mixture(12, 3..=5, &torn(at)) && content.is_mixture(12, 0..=9, &torn(at)));
            // A version that cannot be there is none of the parts.
            for versions in [3..=4, 4..=5, 5..=5] {
                assert!(!content.is_mixture(12, versions, &torn(at)));
            }
            assert!(!content.is_mixture(13, 3..=5, &torn(at)));
            for byte in 0..SECTOR_BYTES {
                let mut corrupt = torn(at);
                corrupt[byte] ^= 1;
                // A version of another word is one of a version that is there.
                assert!((8..16).contains(&byte) || !content.is_mixture(12, 3..=5, &corrupt), "byte {byte}");
            }
        }
    }

    #[test]
    fn another_sector_another_volume_and_zeroes_are_foreign() {
        let mut bytes = [0; SECTOR_BYTES];
        assert!(matches!(Content::new(7).version_of(12, &bytes), Err(ContentError::Foreign { .. })));
        Content::new(7).fill_sector(12, 1, &mut bytes);
        assert!(matches!(Content::new(7).version_of(13, &bytes), Err(ContentError::Foreign { .. })));
        assert!(matches!(Content::new(8).version_of(12, &bytes), Err(ContentError::Foreign { .. })));
    }
}
