//! Blocks of several volumes as one kind of key.

use crate::{Request, VolumeIndex};
use forebay_units::{BlockIndex, BlockRange, BlockSize, mix64};

/// The key of `block` of `volume` for structures over a whole trace.
///
/// For volume 0 it is the block index itself, so that a trace of one volume keeps its numbers; for the others both
/// are mixed. Two blocks of different volumes share a key with the probability of a 64-bit hash collision (n blocks:
/// about n^2 / 2^65). Ours.
pub const fn block_key(volume: VolumeIndex, block: BlockIndex) -> u64 {
    if volume.0 == 0 { block.0 } else { mix64(block.0 ^ mix64(volume.0 as u64)) }
}

/// The blocks that `request` touches, from that of its first to that of its last byte; none for a request without
/// bytes.
pub const fn split_into_blocks(request: &Request, block_size: BlockSize) -> BlockRange {
    request.range().blocks(block_size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_kept_apart() {
        let key = |volume, block| block_key(VolumeIndex(volume), BlockIndex(block));
        assert_eq!(key(0, 7), 7);
        assert_ne!(key(1, 7), key(2, 7));
        assert_ne!(key(1, 7), key(1, 8));
        let keys: std::collections::HashSet<u64> =
            (0..20).flat_map(|volume| (0..1000).map(move |block| key(volume, block))).collect();
        assert_eq!(keys.len(), 20_000);
    }
}
