//! Block status: what the origin says is allocated, as far as that is safe to tell.
//!
//! The origin is asked each time, behind everything that was acknowledged, so its answer shows every acknowledged change. It may show changes
//! that are not, too: a block that is cached is served old until then, and nobody may be told that it reads as zeroes and then read what it held
//! before. So at the moment of the answer, blocks of changes in flight and blocks in doubt are "allocated", which promises nothing. Changes that
//! began and ended while the origin was asked do no harm: the answer is from before or after them, and whatever is cached now is what it
//! says or newer.

use super::super::request::{Errno, Reply, RequestTag};
use super::{Kind, VolumeMachine};
use forebay_nbd::wire::{AllocationFlags, Extents};
use forebay_origin::{ExtentList, OriginError};
use forebay_units::{BlockRange, ByteRange};

impl VolumeMachine {
    pub(super) fn describe(&mut self, tag: RequestTag, range: ByteRange, one_extent: bool) {
        match self.check(range, false) {
            Err(errno) => self.refuse(tag, errno),
            Ok(()) if range.length == 0 => self.refuse(tag, Errno::INVALID),
            Ok(()) => {
                self.statuses += 1;
                self.enqueue(Kind::Status { tag, range, one_extent });
            }
        }
    }

    pub(super) fn status_ended(
        &mut self,
        tag: RequestTag,
        range: ByteRange,
        one_extent: bool,
        result: Result<Vec<u8>, OriginError>,
    ) {
        self.statuses -= 1;
        let result = match result {
            // An origin that answers with something else is not believed.
            Ok(extents) => self.safe_extents(range, one_extent, &extents).ok_or(Errno::IO),
            Err(error) => Err(Errno(error.errno())),
        };
        self.reply(Reply::new(tag, result));
    }

    /// The part of the origin's answer that may be told, and at least something; `None` if it is no answer.
    fn safe_extents(&self, range: ByteRange, one_extent: bool, extents: &[u8]) -> Option<Vec<u8>> {
        if extents.is_empty() || !extents.len().is_multiple_of(8) {
            return None;
        }
        let mut sure_end = range.end();
        if let Some(unsure) = self.first_unsure(range) {
            if unsure.offset <= range.offset {
                return Some(ExtentList::allocated(unsure.end().min(range.end()) - range.offset));
            }
            sure_end = unsure.offset;
        }
        let mut list = ExtentList::new(sure_end - range.offset, one_extent);
        for (length, flags) in whole_units(range, self.settings.origin.block_size_min.max(1).into(), extents)?
        {
            if !list.push(length, flags) {
                break;
            }
        }
        Some(list.into_bytes())
    }

    /// The first bytes of `range` of which the origin may know more than clients may be told.
    fn first_unsure(&self, range: ByteRange) -> Option<ByteRange> {
        let blocks = range.blocks(self.settings.block_size);
        let runs = [self.writes.first_changing(blocks), self.doubt.first_overlapping(blocks)];
        let first = runs.into_iter().flatten().min_by_key(|run: &BlockRange| run.first)?;
        Some(self.bytes_of(first))
    }
}

/// The extents, such that each ends where a unit does, or where `range` does: a unit has the flags that all of its bytes have. If not even
/// one unit is described, it is allocated. `None` for an extent without bytes.
fn whole_units(range: ByteRange, unit: u64, extents: &[u8]) -> Option<Vec<(u64, AllocationFlags)>> {
    let mut whole = Vec::new();
    let mut begun: Option<(u64, AllocationFlags)> = None;
    let mut at = range.offset;
    for extent in Extents::new(extents) {
        if extent.length == 0 {
            return None;
        }
        let (mut length, flags) = (u64::from(extent.length).min(range.end() - at), extent.flags);
        at += length;
        if let Some((have, common)) = &mut begun {
            let more = length.min(unit - *have);
            *have += more;
            common.0 &= flags.0;
            length -= more;
            if *have < unit {
                continue;
            }
            whole.extend(begun.take());
        }
        let rest = length % unit;
        if length > rest {
            whole.push((length - rest, flags));
        }
        begun = (rest > 0).then_some((rest, flags));
    }
    if at == range.end() {
        whole.extend(begun);
    } else if whole.is_empty() {
        whole.push((unit.min(range.length), AllocationFlags::NONE));
    }
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_nbd::wire::Extent;

    fn units(range: (u64, u64), unit: u64, extents: &[(u32, u32)]) -> Option<Vec<(u64, u32)>> {
        let bytes: Vec<u8> = extents
            .iter()
            .flat_map(|(length, flags)| Extent { length: *length, flags: AllocationFlags(*flags) }.encode())
            .collect();
        let whole = whole_units(ByteRange::new(range.0, range.1), unit, &bytes)?;
        Some(whole.into_iter().map(|(length, flags)| (length, flags.0)).collect())
    }

    #[test]
    fn units_have_the_flags_that_all_of_their_bytes_have() {
        assert_eq!(units((512, 4096), 1, &[(100, 3), (3996, 0)]), Some(vec![(100, 3), (3996, 0)]));
        // 512 3 | 88 3, 200 2, 224 0 -> 0 | 512 0 | 64 0, 448 3 -> 0; the rest is not known.
        let mixed = [(600, 3), (200, 2), (800, 0), (448, 3), (100, 3)];
        assert_eq!(units((0, 8192), 512, &mixed), Some(vec![(512, 3), (512, 0), (512, 0), (512, 0)]));
        // The last unit of a volume may be short; what passes the end is cut off.
        assert_eq!(units((0, 700), 512, &[(600, 3), (4000, 2)]), Some(vec![(512, 3), (188, 2)]));
        // Less than a unit: nothing is known of it.
        assert_eq!(units((0, 4096), 512, &[(100, 3)]), Some(vec![(512, 0)]));
        assert_eq!(units((0, 4096), 512, &[(512, 3), (0, 0)]), None);
    }
}
