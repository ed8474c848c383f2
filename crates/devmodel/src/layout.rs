//! How the address space of a group is laid over its spindles.

use forebay_units::ByteRange;

/// How a group spreads its addresses over its spindles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Layout {
    /// Stripe units go round the spindles, without redundancy (RAID 0).
    #[default]
    Striped,
}

/// The part of a request that falls to one spindle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskPart {
    /// Which spindle, from 0.
    pub spindle: u32,
    /// Which bytes of that spindle.
    pub range: ByteRange,
}

impl Layout {
    /// The parts of `range`, at most one per spindle, since what a long request touches of a spindle is contiguous
    /// there. They are added to `parts` in the order in which the range touches the spindles first.
    ///
    /// An empty range has no parts. Cost is linear in the number of spindles touched, not in the length.
    pub fn split(self, spindles: u32, stripe_unit_bytes: u64, range: ByteRange, parts: &mut Vec<DiskPart>) {
        match self {
            Layout::Striped => split_striped(u64::from(spindles), stripe_unit_bytes, range, parts),
        }
    }
}

fn split_striped(spindles: u64, unit: u64, range: ByteRange, parts: &mut Vec<DiskPart>) {
    if range.length == 0 {
        return;
    }
    let (first, last) = (range.offset / unit, (range.end() - 1) / unit);
    for start in first..=last.min(first + spindles - 1) {
        let spindle = start % spindles;
        // The last unit of the range on this spindle, a whole number of rounds after the first.
        let end = start + (last - start) / spindles * spindles;
        let low = start / spindles * unit + if start == first { range.offset % unit } else { 0 };
        let high = end / spindles * unit + if end == last { (range.end() - 1) % unit + 1 } else { unit };
        parts.push(DiskPart { spindle: spindle as u32, range: ByteRange::new(low, high - low) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_over_two_rounds_is_one_part_per_spindle() {
        // Units of 10 on 3 spindles. 5..75 covers units 0 (from 5) to 7 (to 5): spindle 0 has units 0, 3, 6, that is
        // its own bytes 5..30; spindle 1 has 1, 4, 7 up to the middle: 0..25; spindle 2 has 2, 5: 0..20.
        let mut parts = Vec::new();
        Layout::Striped.split(3, 10, ByteRange::new(5, 70), &mut parts);
        let part = |spindle, offset, length| DiskPart { spindle, range: ByteRange::new(offset, length) };
        assert_eq!(parts, [part(0, 5, 25), part(1, 0, 25), part(2, 0, 20)]);
    }

    proptest! {
        #[test]
        fn it_is_byte_by_byte_striping(spindles in 1u32..6, unit in 1u64..9, offset in 0u64..100, length in 0u64..100) {
            let mut parts = Vec::new();
            Layout::Striped.split(spindles, unit, ByteRange::new(offset, length), &mut parts);
            let mut naive = std::collections::BTreeSet::new();
            for byte in offset..offset + length {
                let (stripe, inside) = (byte / unit, byte % unit);
                naive.insert((stripe % u64::from(spindles), stripe / u64::from(spindles) * unit + inside));
            }
            let mut split = std::collections::BTreeSet::new();
            for part in &parts {
                for byte in part.range.offset..part.range.end() {
                    prop_assert!(split.insert((u64::from(part.spindle), byte)));
                }
            }
            prop_assert_eq!(split, naive);
            prop_assert!(parts.len() <= spindles as usize);
        }
    }
}
