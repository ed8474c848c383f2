//! Which bytes of an origin are there: runs of bytes with one state, as [`OriginOperation::BlockStatus`] is answered.
//!
//! The bytes of an answer are those of the NBD protocol (`doc/proto.md`, "`NBD_REPLY_TYPE_BLOCK_STATUS`"), in its `base:allocation`
//! context, so that nobody between an origin and a client has to copy them: [`forebay_nbd::wire::Extents`] reads them.
//!
//! [`OriginOperation::BlockStatus`]: crate::OriginOperation::BlockStatus

use forebay_nbd::wire::{AllocationFlags, Extent};

/// Extents of one answer, at most (ours: 32 KiB of them). An answer may end before the range does; who wants to know more asks again.
pub const EXTENTS_MAX: usize = 4096;

/// The extents of one answer, while they are collected: neighbours of the same state are one.
///
/// Invariant: together they are no longer than the range that was asked about; none is empty.
#[derive(Clone, Debug)]
pub struct ExtentList {
    bytes: Vec<u8>,
    last: Option<Extent>,
    /// Bytes of the range that were not described yet.
    left: u64,
    extents_max: usize,
}

impl ExtentList {
    /// A list for a range of `length` bytes, of which only the first extent is wanted if `one_extent`.
    pub fn new(length: u64, one_extent: bool) -> ExtentList {
        let extents_max = if one_extent { 1 } else { EXTENTS_MAX };
        // The protocol's lengths have 32 bits; a multiple of every smallest block is left.
        ExtentList { bytes: Vec::new(), last: None, left: length.min(1 << 31), extents_max }
    }

    /// The answer of who does not know: all of it is allocated, and may hold anything. It is always true.
    pub fn allocated(length: u64) -> Vec<u8> {
        let mut list = ExtentList::new(length, true);
        list.push(length, AllocationFlags::NONE);
        list.into_bytes()
    }

    /// The next `length` bytes are in this state. Flags without a meaning are dropped, and so is what passes the end of the range.
    /// Whether more is wanted.
    pub fn push(&mut self, length: u64, flags: AllocationFlags) -> bool {
        let flags = AllocationFlags(flags.0 & AllocationFlags::KNOWN.0);
        // At most 2^31, and so are all together.
        let length = length.min(self.left) as u32;
        if length > 0 {
            match &mut self.last {
                Some(last) if last.flags == flags => last.length += length,
                last => {
                    let is_full = self.bytes.len() / 8 + usize::from(last.is_some()) >= self.extents_max;
                    if is_full {
                        self.left = 0;
                        return false;
                    }
                    if let Some(last) = last.replace(Extent { length, flags }) {
                        self.bytes.extend_from_slice(&last.encode());
                    }
                }
            }
            self.left -= u64::from(length);
        }
        self.left > 0
    }

    /// The answer.
    pub fn into_bytes(mut self) -> Vec<u8> {
        if let Some(last) = self.last {
            self.bytes.extend_from_slice(&last.encode());
        }
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_nbd::wire::Extents;

    const DATA: AllocationFlags = AllocationFlags::NONE;
    const HOLE: AllocationFlags = AllocationFlags(3);

    fn listed(list: ExtentList) -> Vec<(u32, u32)> {
        Extents::new(&list.into_bytes()).map(|extent| (extent.length, extent.flags.0)).collect()
    }

    #[test]
    fn neighbours_of_one_state_are_one_and_the_end_is_the_range_s() {
        let mut list = ExtentList::new(100, false);
        assert!(list.push(10, DATA) && list.push(0, HOLE) && list.push(5, DATA) && list.push(20, HOLE));
        // Bit 4 has no meaning: still the hole.
        assert!(list.push(5, AllocationFlags(19)));
        assert!(!list.push(1000, DATA) && !list.push(1, HOLE));
        assert_eq!(listed(list), [(15, 0), (25, 3), (60, 0)]);
        assert_eq!(ExtentList::allocated(7), Extent { length: 7, flags: DATA }.encode());
        assert!(listed(ExtentList::new(7, false)).is_empty());
    }

    #[test]
    fn one_extent_is_whole_and_many_have_an_end() {
        let mut list = ExtentList::new(100, true);
        assert!(list.push(10, HOLE) && list.push(10, HOLE) && !list.push(10, DATA) && !list.push(10, HOLE));
        assert_eq!(listed(list), [(20, 3)]);
        let mut list = ExtentList::new(u64::MAX, false);
        let pushed =
            (0..10_000).take_while(|at| list.push(512, if at % 2 == 0 { DATA } else { HOLE })).count();
        assert_eq!((pushed, listed(list).len()), (EXTENTS_MAX, EXTENTS_MAX));
        assert_eq!(
            listed({
                let mut list = ExtentList::new(u64::MAX, false);
                list.push(u64::MAX, HOLE);
                list
            }),
            [(1 << 31, 3)]
        );
    }
}
