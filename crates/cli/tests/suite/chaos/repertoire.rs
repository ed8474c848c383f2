//! What clients of a daemon ask for besides reads, writes and flushes: requests whose borders are not those of sectors, trims, block status, and that something be cached.

use super::client::{Lane, Unanswered, bytes, place};
use super::draw::Draw;
use super::truth::Outcome;
use crate::ledger::{SECTOR, content};
use Unanswered::{Broken, Failed};
use forebay_nbd::client::Operation;
use forebay_nbd::wire::{AllocationFlags, TransmissionFlags};

/// Asks for something.
pub(super) fn ask_anything(lane: &mut Lane<'_>, draw: &mut Draw) -> Result<(), Unanswered> {
    let sectors = lane.volume.truth.sectors;
    let count = draw.of(&[1, 3, 8, 8, 8, 8, 16, 64, 256]);
    // Half meet in an eighth of it.
    let area = if draw.percent(50) { sectors / 8 } else { sectors };
    let mut first = draw.below(area - count + 1);
    if draw.percent(70) {
        first = first / 8 * 8;
    }
    let what = draw.below(100);
    if lane.export().flags.contains(TransmissionFlags::READ_ONLY) && !(0..52).contains(&what) {
        return lane.read(first, count);
    }
    match what {
        0..40 => lane.read(first, count),
        40..44 => lane.read_odd(first, count, draw),
        44..48 => lane.have_cached(first, count),
        48..52 => lane.ask_for_status(first, count),
        52..74 => lane.write(first, count, false, false),
        74..80 => lane.write_in_pieces(first, count, draw.percent(20), draw),
        80..84 => lane.write(first, count, draw.percent(20), true),
        84..88 => lane.trim(first, count, draw.percent(20)),
        88..94 => lane.flush(),
        _ => lane.write(first, count, true, false),
    }
}

impl Lane<'_> {
    /// A border near the begin of a sector: as near as the export's units allow.
    fn border(&self, sector: usize, draw: &mut Draw) -> usize {
        let unit = self.export().block_sizes.min as usize;
        let border = sector * SECTOR + draw.below(SECTOR);
        border / unit * unit
    }

    /// Reads more than these sectors at both ends.
    fn read_odd(&mut self, first: usize, count: usize, draw: &mut Draw) -> Result<(), Unanswered> {
        if first == 0 || first + count >= self.volume.truth.sectors {
            return self.read(first, count);
        }
        let (begin, end) = (self.border(first - 1, draw), self.border(first + count, draw));
        let floors = self.volume.truth.reading(first, count);
        let length = (end - begin) as u32;
        let answer = self.ask(Operation::Read { offset: begin as u64, length, dont_fragment: false }, &[]);
        let kept = first * SECTOR - begin..(first + count) * SECTOR - begin;
        let known = answer.as_ref().map(|bytes| &bytes[kept]);
        self.judge_read(first, known, &floors)?;
        answer.map(drop)
    }

    /// Writes them as several requests at once.
    fn write_in_pieces(
        &mut self,
        first: usize,
        count: usize,
        fua: bool,
        draw: &mut Draw,
    ) -> Result<(), Unanswered> {
        let Some(version) = self.volume.truth.write_in_pieces(first, count) else { return Ok(()) };
        let mut data = vec![0; count * SECTOR];
        for (at, sector) in data.chunks_exact_mut(SECTOR).enumerate() {
            content((first + at) as u64, version, sector);
        }
        let (begin, end) = (first * SECTOR, (first + count) * SECTOR);
        let mut borders: Vec<usize> =
            (0..1 + draw.below(3)).map(|_| self.border(first + draw.below(count), draw)).collect();
        borders.extend([begin, end]);
        borders.sort_unstable();
        borders.dedup();
        let pieces: Vec<_> = borders
            .windows(2)
            .map(|border| {
                let (offset, length) = (border[0] as u64, (border[1] - border[0]) as u32);
                (Operation::Write { offset, length, fua }, &data[border[0] - begin..border[1] - begin])
            })
            .collect();
        let answers = self.ask_all(&pieces);
        let (outcome, result) = match answers {
            Ok(answers) if answers.iter().all(|answer| answer.result.is_ok()) => {
                (Outcome::Done { is_kept: fua }, Ok(()))
            }
            Ok(_) => (Outcome::Failed, Err(Failed)),
            Err(error) => (Outcome::Unknown, Err(error)),
        };
        self.volume.truth.written(version, outcome);
        result
    }

    /// What is there then is what was, or zeroes.
    fn trim(&mut self, first: usize, count: usize, fua: bool) -> Result<(), Unanswered> {
        if !self.export().flags.contains(TransmissionFlags::SEND_TRIM) {
            return Ok(());
        }
        let Some(version) = self.volume.truth.write(first, count, true) else { return Ok(()) };
        let answer = self.ask(Operation::Trim { offset: place(first), length: bytes(count), fua }, &[]);
        let outcome = match &answer {
            Ok(_) => Outcome::Hinted,
            Err(Failed) => Outcome::Failed,
            Err(_) => Outcome::Unknown,
        };
        self.volume.truth.written(version, outcome);
        answer.map(drop)
    }

    fn have_cached(&mut self, first: usize, count: usize) -> Result<(), Unanswered> {
        if !self.export().flags.contains(TransmissionFlags::SEND_CACHE) {
            return Ok(());
        }
        let answer = self.ask(Operation::Cache { offset: place(first), length: bytes(count) }, &[]);
        answer.map(drop)
    }

    /// Who says that something is zeroes is held to it as though it had been read.
    fn ask_for_status(&mut self, first: usize, count: usize) -> Result<(), Unanswered> {
        if !self.export().block_status {
            return Ok(());
        }
        let floors = self.volume.truth.reading(first, count);
        let (offset, length) = (place(first), bytes(count));
        let mut answers =
            self.ask_all(&[(Operation::BlockStatus { offset, length, one_extent: false }, &[])])?;
        let answer = answers.remove(0);
        answer.result.map_err(|_| Failed)?;
        let mut at = place(first) as usize;
        for extent in answer.extents {
            let until = at + extent.length as usize;
            let whole = at.div_ceil(SECTOR)..(until / SECTOR).min(first + count);
            if extent.flags.contains(AllocationFlags::ZERO) && !whole.is_empty() {
                let floors = floors.of(whole.start - first, whole.len());
                let told = self.volume.truth.zeroes(whole.start, whole.len(), &floors);
                told.map_err(|error| Broken(format!("by block status: {error}")))?;
            }
            at = until;
        }
        Ok(())
    }
}
