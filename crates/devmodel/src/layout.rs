//! How the address space of a group is laid over its spindles, and what a write costs there.
//!
//! Pure geometry: it knows no time and no queue. Redundancy is counted in requests to disks only, since no data is held:
//! every spindle is there, none is being rebuilt. Source of the levels and of the small-write penalty: Patterson, Gibson
//! and Katz, "A case for redundant arrays of inexpensive disks (RAID)", SIGMOD 1988.

use forebay_units::ByteRange;

/// How a group spreads its addresses over its spindles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Layout {
    /// Stripe units go round the spindles, without redundancy (RAID 0).
    #[default]
    Striped,
    /// Spindles 2 n and 2 n + 1 hold the same, and stripe units go round the pairs (RAID 1; with more than one pair
    /// also called 10). A read takes the copy with the shorter queue, then the nearer heads; a write takes both.
    Mirrored,
    /// Stripe units go round all spindles but the last, which holds their parity (RAID 4).
    DedicatedParity,
    /// As many units of data, with the parity on another spindle in every row (RAID 5, left-symmetric).
    RotatedParity,
}

/// The part of a request that falls to one spindle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskPart {
    /// Which spindle, from 0.
    pub spindle: u32,
    /// Which bytes of that spindle.
    pub range: ByteRange,
}

/// What has to be done for a write, as steps that are independent of each other: in each, all reads come before all
/// writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WritePlan {
    /// The parts of all steps, one step after the other, reads before writes.
    pub parts: Vec<DiskPart>,
    /// Of every step: how many reads and how many writes.
    pub steps: Vec<(u32, u32)>,
}

impl WritePlan {
    fn clear(&mut self) {
        self.parts.clear();
        self.steps.clear();
    }

    /// Ends a step of `reads` reads that began at part number `from`.
    fn end_step(&mut self, from: usize, reads: usize) {
        let parts = self.parts.len() - from;
        if parts > 0 {
            self.steps.push((reads as u32, (parts - reads) as u32));
        }
    }
}

impl Layout {
    /// Spindles' worth of data of a group of `spindles`.
    pub fn data_spindles(self, spindles: u32) -> u32 {
        match self {
            Layout::Striped => spindles,
            Layout::Mirrored => spindles / 2,
            Layout::DedicatedParity | Layout::RotatedParity => spindles.saturating_sub(1),
        }
    }

    /// Whether a group may have so many spindles: what would do, if not.
    pub(crate) fn check(self, spindles: u32) -> Result<(), &'static str> {
        match self {
            Layout::Striped if spindles == 0 => Err("from 1 to 1024"),
            Layout::Mirrored if spindles < 2 || !spindles.is_multiple_of(2) => {
                Err("an even number for RAID 1")
            }
            Layout::DedicatedParity | Layout::RotatedParity if spindles < 3 => {
                Err("at least 3 for RAID 4 and 5")
            }
            _ => Ok(()),
        }
    }

    /// The parts of `range` that hold its data, at most one per spindle, since what a long request touches of a spindle
    /// is contiguous there (with [`Layout::RotatedParity`] apart from units of parity, which the heads pass over as they
    /// read). They are added to `parts` in the order in which the range touches the spindles first. Mirrored data are
    /// named by their first copy.
    ///
    /// An empty range has no parts. Cost is linear in the number of spindles touched (for rotated parity its square),
    /// not in the length.
    pub fn split(self, spindles: u32, stripe_unit_bytes: u64, range: ByteRange, parts: &mut Vec<DiskPart>) {
        let data = u64::from(self.data_spindles(spindles));
        match self {
            Layout::Striped | Layout::DedicatedParity => {
                split_striped(data, stripe_unit_bytes, range, parts);
            }
            Layout::Mirrored => {
                let from = parts.len();
                split_striped(data, stripe_unit_bytes, range, parts);
                parts[from..].iter_mut().for_each(|part| part.spindle *= 2);
            }
            Layout::RotatedParity => {
                Rows { layout: self, spindles, unit: stripe_unit_bytes }.split(range, parts);
            }
        }
    }

    /// What a write of `range` takes; `plan` is overwritten.
    ///
    /// With parity, rows that are written whole take one step of writes alone. A row written in part takes whichever
    /// needs fewer reads: the old data and the old parity (read-modify-write: four requests for a small write), or the
    /// rest of the row (reconstruct-write); equal numbers: the former (Linux md takes the latter then).
    pub fn plan_write(self, spindles: u32, stripe_unit_bytes: u64, range: ByteRange, plan: &mut WritePlan) {
        plan.clear();
        if range.length == 0 {
            return;
        }
        match self {
            Layout::Striped => {
                self.split(spindles, stripe_unit_bytes, range, &mut plan.parts);
                plan.end_step(0, 0);
            }
            Layout::Mirrored => {
                self.split(spindles, stripe_unit_bytes, range, &mut plan.parts);
                for at in 0..plan.parts.len() {
                    let first = plan.parts[at];
                    plan.parts.push(DiskPart { spindle: first.spindle + 1, ..first });
                }
                plan.end_step(0, 0);
            }
            Layout::DedicatedParity | Layout::RotatedParity => {
                Rows { layout: self, spindles, unit: stripe_unit_bytes }.plan_write(range, plan);
            }
        }
    }
}

fn split_striped(spindles: u64, unit: u64, range: ByteRange, parts: &mut Vec<DiskPart>) {
    if range.length == 0 {
        return;
    }
    let (first, inside) = (range.offset / unit, range.offset % unit);
    if range.length <= unit - inside {
        // Most requests are of one unit, for which half of the divisions do.
        let (row, spindle) = (first / spindles, first % spindles);
        let range = ByteRange::new(row * unit + inside, range.length);
        return parts.push(DiskPart { spindle: spindle as u32, range });
    }
    let last = (range.end() - 1) / unit;
    for start in first..=last.min(first + spindles - 1) {
        let spindle = start % spindles;
        // The last unit of the range on this spindle, a whole number of rounds after the first.
        let end = start + (last - start) / spindles * spindles;
        let low = start / spindles * unit + if start == first { inside } else { 0 };
        let high = end / spindles * unit + if end == last { (range.end() - 1) % unit + 1 } else { unit };
        parts.push(DiskPart { spindle: spindle as u32, range: ByteRange::new(low, high - low) });
    }
}

/// Rows of stripe units with a unit of parity each.
#[derive(Clone, Copy)]
struct Rows {
    layout: Layout,
    spindles: u32,
    unit: u64,
}

impl Rows {
    fn width(&self) -> u64 {
        u64::from(self.spindles) - 1
    }

    fn parity(&self, row: u64) -> u32 {
        match self.layout {
            Layout::RotatedParity => self.spindles - 1 - (row % u64::from(self.spindles)) as u32,
            _ => self.spindles - 1,
        }
    }

    /// The spindle of unit number `column` of the data of `row`.
    fn spindle(&self, row: u64, column: u64) -> u32 {
        match self.layout {
            Layout::RotatedParity => (self.parity(row) + 1 + column as u32) % self.spindles,
            _ => column as u32,
        }
    }

    fn split(&self, range: ByteRange, parts: &mut Vec<DiskPart>) {
        if range.length == 0 {
            return;
        }
        let from = parts.len();
        let (first, last) = (range.offset / self.unit, (range.end() - 1) / self.unit);
        // Of every spindle the first unit of the range lies in its first two rows' worth, and the last in its last.
        let near = 2 * self.width() + 1;
        let head = first..=last.min(first + near);
        let tail = last.saturating_sub(near).max(head.end() + 1)..=last;
        for number in head.chain(tail) {
            let (row, column) = (number / self.width(), number % self.width());
            let low = row * self.unit + if number == first { range.offset % self.unit } else { 0 };
            let high =
                row * self.unit + if number == last { (range.end() - 1) % self.unit + 1 } else { self.unit };
            let spindle = self.spindle(row, column);
            match parts[from..].iter_mut().find(|part| part.spindle == spindle) {
                Some(part) => part.range.length = high - part.range.offset,
                None => parts.push(DiskPart { spindle, range: ByteRange::new(low, high - low) }),
            }
        }
    }

    fn plan_write(&self, range: ByteRange, plan: &mut WritePlan) {
        let row_bytes = self.width() * self.unit;
        let (offset, end) = (range.offset, range.end());
        let first_whole = offset.div_ceil(row_bytes);
        let end_whole = end / row_bytes;
        if first_whole >= end_whole {
            // No row is whole: one or two parts of rows.
            let border = first_whole * row_bytes;
            self.plan_part(offset, end.min(border.max(offset)), plan);
            self.plan_part(offset.max(border), end, plan);
            return;
        }
        self.plan_part(offset, first_whole * row_bytes, plan);
        let from = plan.parts.len();
        let whole = ByteRange::new(first_whole * self.unit, (end_whole - first_whole) * self.unit);
        plan.parts.extend((0..self.spindles).map(|spindle| DiskPart { spindle, range: whole }));
        plan.end_step(from, 0);
        self.plan_part(end_whole * row_bytes, end, plan);
    }

    /// A step for `offset..end`, which lies in one row and does not fill it.
    fn plan_part(&self, offset: u64, end: u64, plan: &mut WritePlan) {
        if offset >= end {
            return;
        }
        let row = offset / (self.width() * self.unit);
        let inside = |at: u64| at - row * self.width() * self.unit;
        let (first, last) = (inside(offset) / self.unit, (inside(end) - 1) / self.unit);
        // Which bytes of its unit every column changes; the parity of all of them changes.
        let changed = |column: u64| {
            let low = if column == first { inside(offset) % self.unit } else { 0 };
            let high = if column == last { (inside(end) - 1) % self.unit + 1 } else { self.unit };
            (low, high)
        };
        let (low, high) = match last - first {
            0 => changed(first),
            // The end of one unit and the beginning of the next: their parities may lie apart, and are one request.
            1 => (changed(first).0.min(changed(last).0), changed(first).1.max(changed(last).1)),
            _ => (0, self.unit),
        };
        let base = row * self.unit;
        let part = |spindle: u32, low: u64, high: u64| DiskPart {
            spindle,
            range: ByteRange::new(base + low, high - low),
        };
        let touched = last - first + 1;
        // What reconstruction reads: the untouched columns, and the rest of those changed only in part.
        let partly = (first..=last).filter(|&column| changed(column) != (low, high)).count() as u64;
        let from = plan.parts.len();
        // Beside the old data, the old parity.
        if touched < self.width() - touched + partly {
            (first..=last).for_each(|column| {
                let (low, high) = changed(column);
                plan.parts.push(part(self.spindle(row, column), low, high));
            });
            plan.parts.push(part(self.parity(row), low, high));
        } else {
            for column in 0..self.width() {
                if column < first || column > last || changed(column) != (low, high) {
                    plan.parts.push(part(self.spindle(row, column), low, high));
                }
            }
        }
        let reads = plan.parts.len() - from;
        for column in first..=last {
            let (low, high) = changed(column);
            plan.parts.push(part(self.spindle(row, column), low, high));
        }
        plan.parts.push(part(self.parity(row), low, high));
        plan.end_step(from, reads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn part(spindle: u32, offset: u64, length: u64) -> DiskPart {
        DiskPart { spindle, range: ByteRange::new(offset, length) }
    }

    #[test]
    fn a_request_over_two_rounds_is_one_part_per_spindle() {
        // Units of 10 on 3 spindles. 5..75 covers units 0 (from 5) to 7 (to 5): spindle 0 has units 0, 3, 6, that is
        // its own bytes 5..30; spindle 1 has 1, 4, 7 up to the middle: 0..25; spindle 2 has 2, 5: 0..20.
        let mut parts = Vec::new();
        Layout::Striped.split(3, 10, ByteRange::new(5, 70), &mut parts);
        assert_eq!(parts, [part(0, 5, 25), part(1, 0, 25), part(2, 0, 20)]);
        // The same on three pairs.
        parts.clear();
        Layout::Mirrored.split(6, 10, ByteRange::new(5, 70), &mut parts);
        assert_eq!(parts, [part(0, 5, 25), part(2, 0, 25), part(4, 0, 20)]);
    }

    #[test]
    fn parity_goes_round() {
        // Four spindles, units of 10: parity of rows 0..4 on 3, 2, 1, 0; row 0 has its data on 0, 1, 2, row 1 on 3, 0, 1.
        let mut parts = Vec::new();
        Layout::RotatedParity.split(4, 10, ByteRange::new(25, 15), &mut parts);
        // Bytes 25..30 are the end of unit 2 (row 0, spindle 2), 30..40 are unit 3 (row 1, spindle 3).
        assert_eq!(parts, [part(2, 5, 5), part(3, 10, 10)]);
        parts.clear();
        Layout::DedicatedParity.split(4, 10, ByteRange::new(25, 15), &mut parts);
        assert_eq!(parts, [part(2, 5, 5), part(0, 10, 10)]);
    }

    fn plan(layout: Layout, spindles: u32, offset: u64, length: u64) -> WritePlan {
        let mut plan = WritePlan::default();
        layout.plan_write(spindles, 10, ByteRange::new(offset, length), &mut plan);
        plan
    }

    #[test]
    fn writes_take_what_their_level_asks_for() {
        // A small write in unit 1 of row 0 of five spindles: old data and old parity, then both anew.
        let small = plan(Layout::RotatedParity, 5, 12, 4);
        assert_eq!(small.steps, [(2, 2)]);
        assert_eq!(small.parts, [part(1, 2, 4), part(4, 2, 4), part(1, 2, 4), part(4, 2, 4)]);
        // Three of the four units of a row: the fourth is read, and four are written.
        let most = plan(Layout::DedicatedParity, 5, 40, 30);
        assert_eq!(most.steps, [(1, 4)]);
        assert_eq!(
            most.parts,
            [part(3, 10, 10), part(0, 10, 10), part(1, 10, 10), part(2, 10, 10), part(4, 10, 10)]
        );
        // Two of the four: the other two are read, where the two and the parity would be three.
        let half = plan(Layout::DedicatedParity, 5, 40, 20);
        assert_eq!(half.steps, [(2, 3)]);
        assert_eq!(
            half.parts,
            [part(2, 10, 10), part(3, 10, 10), part(0, 10, 10), part(1, 10, 10), part(4, 10, 10)]
        );
        // One of three: two reads either way, of the old data and parity.
        let equal = plan(Layout::DedicatedParity, 4, 30, 10);
        assert_eq!(equal.parts, [part(0, 10, 10), part(3, 10, 10), part(0, 10, 10), part(3, 10, 10)]);
        // Two whole rows: five writes of two units each, nothing is read.
        let rows = plan(Layout::RotatedParity, 5, 40, 80);
        assert_eq!(rows.steps, [(0, 5)]);
        assert!(rows.parts.iter().all(|part| part.range == ByteRange::new(10, 20)));
        // The end of row 0, row 1, and the beginning of row 2.
        assert_eq!(plan(Layout::RotatedParity, 5, 35, 50).steps, [(2, 2), (0, 5), (2, 2)]);
        // Over the border of two rows.
        assert_eq!(plan(Layout::DedicatedParity, 5, 35, 10).steps, [(2, 2), (2, 2)]);
        // Both copies; and no penalty without redundancy.
        assert_eq!(
            plan(Layout::Mirrored, 4, 5, 10).parts,
            [part(0, 5, 5), part(2, 0, 5), part(1, 5, 5), part(3, 0, 5)]
        );
        assert_eq!(plan(Layout::Striped, 4, 5, 10).steps, [(0, 2)]);
        assert_eq!(plan(Layout::RotatedParity, 4, 5, 0), WritePlan::default());
    }

    fn bytes(parts: &[DiskPart]) -> BTreeSet<(u32, u64)> {
        parts
            .iter()
            .flat_map(|part| (part.range.offset..part.range.end()).map(|byte| (part.spindle, byte)))
            .collect()
    }

    /// Where each byte lies, and where the parity of its row, byte by byte.
    fn place(layout: Layout, spindles: u64, unit: u64, byte: u64) -> ((u32, u64), Option<(u32, u64)>) {
        let (number, inside) = (byte / unit, byte % unit);
        let data = u64::from(layout.data_spindles(spindles as u32));
        let (row, column) = (number / data, number % data);
        let at = row * unit + inside;
        match layout {
            Layout::Striped => ((column as u32, at), None),
            Layout::Mirrored => ((2 * column as u32, at), Some((2 * column as u32 + 1, at))),
            Layout::DedicatedParity => ((column as u32, at), Some((spindles as u32 - 1, at))),
            Layout::RotatedParity => {
                let parity = spindles - 1 - row % spindles;
                (((((parity + 1 + column) % spindles) as u32), at), Some((parity as u32, at)))
            }
        }
    }

    proptest! {
        #[test]
        fn it_is_byte_by_byte_striping(
            layout in prop::sample::select(vec![
                Layout::Striped, Layout::Mirrored, Layout::DedicatedParity, Layout::RotatedParity,
            ]),
            pairs in 2u64..4, odd in 0u64..2, unit in 1u64..9, offset in 0u64..200, length in 0u64..200,
        ) {
            let spindles = 2 * pairs + if layout == Layout::Mirrored { 0 } else { odd };
            let range = ByteRange::new(offset, length);
            let mut parts = Vec::new();
            layout.split(spindles as u32, unit, range, &mut parts);
            let places: Vec<_> = (offset..offset + length).map(|byte| place(layout, spindles, unit, byte)).collect();
            let data: BTreeSet<_> = places.iter().map(|(data, _)| *data).collect();
            let split = bytes(&parts);
            prop_assert!(split.is_superset(&data));
            let spindles_used: BTreeSet<u32> = parts.iter().map(|part| part.spindle).collect();
            prop_assert_eq!(spindles_used.len(), parts.len());
            if layout != Layout::RotatedParity {
                prop_assert_eq!(&split, &data);
            } else {
                // What lies between is parity, within one unit of every row touched.
                prop_assert!(split.len() <= data.len() + spindles as usize * (length / unit / spindles + 3) as usize * unit as usize);
            }
            // Writes: the data and the redundancy are written, no byte twice, and what a step reads is what it needs.
            let mut plan = WritePlan::default();
            layout.plan_write(spindles as u32, unit, range, &mut plan);
            let (mut at, mut written, mut count) = (0, BTreeSet::new(), 0);
            for (reads, writes) in &plan.steps {
                let (read, wrote) = plan.parts[at..at + (reads + writes) as usize].split_at(*reads as usize);
                at += (reads + writes) as usize;
                let (read, wrote) = (bytes(read), bytes(wrote));
                count += wrote.len();
                if *reads > 0 {
                    // Of every place in the row: either all of old data and parity that change are read, or all others.
                    let places: BTreeSet<u64> = wrote.iter().map(|(_, byte)| *byte).collect();
                    let complete = places.iter().all(|byte| {
                        let written: BTreeSet<u32> = wrote.iter().filter(|(_, at)| at == byte).map(|(s, _)| *s).collect();
                        let read: BTreeSet<u32> = read.iter().filter(|(_, at)| at == byte).map(|(s, _)| *s).collect();
                        written.is_subset(&read) || written.len() + read.len() >= spindles as usize
                    });
                    prop_assert!(complete, "{:?}", plan);
                }
                written.extend(wrote);
            }
            prop_assert_eq!(count, written.len());
            let redundant: BTreeSet<_> = places.iter().filter_map(|(_, redundant)| *redundant).collect();
            prop_assert!(written.is_superset(&data) && written.is_superset(&redundant));
            prop_assert!(written.difference(&data).all(|place| redundant.contains(place) || layout == Layout::DedicatedParity
                || layout == Layout::RotatedParity));
        }
    }
}
