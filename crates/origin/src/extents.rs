//! Which bytes of an origin are there: runs of bytes with one state, as [`OriginOperation::BlockStatus`] is answered.
//!
//! The bytes of an answer are those of the NBD protocol (`doc/proto.md`, "`NBD_REPLY_TYPE_BLOCK_STATUS`"), in its `base:allocation`
//! context, so that nobody between an origin and a client has to copy them: [`forebay_nbd::wire::Extents`] reads them.
//!
//! [`OriginOperation::BlockStatus`]: crate::OriginOperation::BlockStatus

use forebay_nbd::wire::{AllocationFlags, Extent};

/// Extents of one answer, at most (ours: 32 KiB of them). An answer may end before the range does; who wants to know more asks again.
pub const EXTENTS_MAX: usize = 4096;

/// Holes and zeroes of at least so many bytes are told whatever the range that was asked about (ours).
const TOLD_BYTES: u64 = 64 << 10;
/// Shorter ones are told if they are at least this share of it (ours): who asks about a little wants to know it exactly.
const TOLD_SHARE: u64 = 64;

/// The extents of one answer, while they are collected: neighbours of the same state are one.
///
/// A hole that is short beside the range that was asked about is told as allocated, which is always true. A file into which 4 KiB were written here and
/// there is thousands of extents, and who asks for one of them at a time, as QEMU does, would ask thousands of times.
///
/// Invariant: together they are no longer than the range that was asked about; none is empty; no byte has a flag that it was not given.
#[derive(Clone, Debug)]
pub struct ExtentList {
    bytes: Vec<u8>,
    /// The last one whose flags are settled.
    last: Option<Extent>,
    /// Behind it, what has one state so far.
    run: Option<Extent>,
    /// Bytes of the range that were not described yet.
    left: u64,
    extents_max: usize,
    /// States that may yet begin, short holes included: an answer takes no longer to find than it is worth.
    runs_left: usize,
    /// What is shorter is not told to be a hole.
    told_bytes_min: u64,
}

impl ExtentList {
    /// A list for a range of `length` bytes, of which only the first extent is wanted if `one_extent`.
    pub fn new(length: u64, one_extent: bool) -> ExtentList {
        let extents_max = if one_extent { 1 } else { EXTENTS_MAX };
        // The protocol's lengths have 32 bits; a multiple of every smallest block is left.
        let left = length.min(1 << 31);
        let told_bytes_min = (length / TOLD_SHARE).min(TOLD_BYTES);
        let runs_left = EXTENTS_MAX;
        ExtentList { bytes: Vec::new(), last: None, run: None, left, extents_max, runs_left, told_bytes_min }
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
            self.left -= u64::from(length);
            match &mut self.run {
                Some(run) if run.flags == flags => run.length += length,
                _ => {
                    self.end_run();
                    if self.runs_left == 0 {
                        self.left = 0;
                        return false;
                    }
                    self.runs_left -= 1;
                    self.run = Some(Extent { length, flags });
                }
            }
            if self.has_no_place() {
                (self.run, self.left) = (None, 0);
            }
        }
        self.left > 0
    }

    /// What a run is told as.
    fn told(&self, run: Extent) -> Extent {
        let is_short = u64::from(run.length) < self.told_bytes_min;
        Extent { flags: if is_short { AllocationFlags::NONE } else { run.flags }, ..run }
    }

    /// Whether the run is one extent too many, however it goes on.
    fn has_no_place(&self) -> bool {
        let (Some(last), Some(run)) = (self.last, self.run) else { return false };
        // A short hole may become a long one, but is allocated like what is before it until then.
        let differs = last.flags != self.told(run).flags;
        differs && self.bytes.len() / 8 + 1 >= self.extents_max
    }

    /// The run is over: it is part of the last extent, or the next.
    fn end_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        let run = self.told(run);
        match &mut self.last {
            Some(last) if last.flags == run.flags => last.length += run.length,
            last => {
                if let Some(last) = last.replace(run) {
                    self.bytes.extend_from_slice(&last.encode());
                }
            }
        }
    }

    /// The answer.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.end_run();
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
    fn a_hole_that_is_short_beside_the_question_is_not_told() {
        const KIB: u64 = 1 << 10;
        // Of 1 MiB, holes of 16 KiB and more are told: 4 + 4 + 8 allocated, 16 of a hole in two pieces, 4 + 4 allocated.
        let states = [(4, DATA), (4, HOLE), (8, DATA), (8, HOLE), (8, HOLE), (4, DATA), (4, HOLE)];
        let all = |one_extent| {
            let mut list = ExtentList::new(1 << 20, one_extent);
            let _ = states.iter().all(|(kib, flags)| list.push(kib * KIB, *flags));
            listed(list)
        };
        assert_eq!(all(false), [(16 << 10, 0), (16 << 10, 3), (8 << 10, 0)]);
        assert_eq!(all(true), [(16 << 10, 0)]);
        // Who asks about 64 KiB is told of 1 KiB.
        let mut list = ExtentList::new(64 * KIB, false);
        assert!(
            list.push(4 * KIB, DATA)
                && list.push(KIB, HOLE)
                && list.push(KIB / 2, DATA)
                && list.push(KIB / 2, HOLE)
        );
        assert_eq!(listed(list), [(4096, 0), (1024, 3), (1024, 0)]);
        // However large the question, 64 KiB are told.
        let mut list = ExtentList::new(1 << 30, false);
        assert!(list.push(64 * KIB - 512, HOLE) && list.push(512, DATA) && list.push(64 * KIB, HOLE));
        assert_eq!(listed(list), [(64 << 10, 0), (64 << 10, 3)]);
    }

    #[test]
    fn one_extent_is_whole_and_many_have_an_end() {
        let mut list = ExtentList::new(100, true);
        assert!(list.push(10, HOLE) && list.push(10, HOLE) && !list.push(10, DATA) && !list.push(10, HOLE));
        assert_eq!(listed(list), [(20, 3)]);
        let mut list = ExtentList::new(u64::MAX, false);
        let pushed =
            (0..10_000).take_while(|at| list.push(64 << 10, if at % 2 == 0 { DATA } else { HOLE })).count();
        assert_eq!((pushed, listed(list).len()), (EXTENTS_MAX, EXTENTS_MAX));
        // Short holes count, though they are not told.
        let mut list = ExtentList::new(u64::MAX, true);
        let pushed =
            (0..10_000).take_while(|at| list.push(512, if at % 2 == 0 { DATA } else { HOLE })).count();
        assert_eq!((pushed, listed(list)), (EXTENTS_MAX, vec![(EXTENTS_MAX as u32 * 512, 0)]));
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
