//! From sizes as people write them to blocks.

use forebay_units::{BlockSize, Nanos, SizeSpec};

/// The number of blocks that each of `specs` means, in the order given and at least 1 each.
///
/// Bytes are rounded up to whole blocks of `block_size`, shares of the footprint and of a working set to the nearest.
/// `working_set_blocks` gives the mean working set size over windows of the length it is asked for, in blocks.
pub fn resolve_sizes(
    specs: &[SizeSpec],
    block_size: BlockSize,
    footprint_blocks: u64,
    working_set_blocks: impl Fn(Nanos) -> u64,
) -> Vec<u64> {
    let share = |part: f64, whole: u64| (part * whole as f64).round() as u64;
    let blocks = specs.iter().map(|spec| match *spec {
        SizeSpec::Blocks(blocks) => blocks,
        SizeSpec::Bytes(bytes) => block_size.blocks_for(bytes),
        SizeSpec::Footprint(part) => share(part, footprint_blocks),
        SizeSpec::WorkingSet { multiple, window } => share(multiple, working_set_blocks(window)),
    });
    blocks.map(|blocks| blocks.max(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_by_hand() {
        let specs: Vec<SizeSpec> = ["1000", "64MiB", "4097B", "10%", "0.5wss(600s)", "0.001%"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        let wss = |window| if window == Nanos::secs(600) { 301 } else { 0 };
        // 64 MiB / 4 KiB = 16,384; 4,097 bytes need two blocks; 10% of 2,004 = 200; half of 301 = 150.5 rounds to 151.
        assert_eq!(resolve_sizes(&specs, BlockSize::DEFAULT, 2_004, wss), [1_000, 16_384, 2, 200, 151, 1]);
    }
}
