//! Snapshots on the origin's own storage: a table of headers and slots, in a range of a file, a block device or an export that is reserved for them, so that
//! whoever reaches the data reaches them too, whatever became of the host that took them. The layout is in `docs/reference/snapshot-format.md`.
//!
//! Every slot holds one snapshot of one volume. Its bytes are written and flushed before the header that tells of them, so a write that is cut short leaves a header
//! and bytes that do not belong together: they are refused, and the other slots are as they were. The headers lie together because all of them are read for each
//! snapshot, from storage that others wait for.
//!
//! Several hosts may share a range. Whose lease has a lower epoch than what is there of the volume writes nothing. Where no lock keeps two from writing to one slot at once, a writer takes possession of it
//! first, as in Fischer's mutual exclusion: it looks at the header, writes its own within [`Sharing::settle`], waits as long, and goes on only if its own is still there. Whoever saw the header before has
//! written by then, or knows that it was late; so one of them at most goes on, whatever their order, and the others step aside to another slot. Their clocks need not agree, but run alike.
//!
//! Invariants: only slots are written that were all zeros when they were first claimed, or that a header claims, so that a range that was named by mistake stays as it is; the newest snapshot of a
//! volume is not written over before it has expired; no two that share a range write to a slot at once.
//!
//! Source: Fischer's algorithm, in L. Lamport, "A fast mutual exclusion algorithm", ACM TOCS 5(1), 1987, §2.

use super::folder::{SERIES_BYTES_MAX, Series, Unusable, read_snapshot};
use forebay_cache::flash::VolumeId;
use forebay_cache::snapshot::{SLOT_HEADER_BYTES, SlotError, SlotHeader, Snapshot};
use forebay_origin::{
    CompletionSink, Origin, OriginCompletion, OriginError, OriginOperation, OriginRequest, OriginRequestId,
};
use forebay_units::ByteRange;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use thiserror::Error;

/// What everything in a range is a multiple of.
const UNIT: u64 = SLOT_HEADER_BYTES as u64;
/// Longer than any request of an origin that is of use.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of one request, if the origin takes so many.
const PIECE_BYTES: u64 = 1 << 20;
/// A claim without a snapshot that is so old was abandoned, whatever host's clock says so (ours).
const CLAIM_ABANDONED_S: u64 = 60;
/// Slots that are tried before a snapshot is given up.
const ATTEMPTS: usize = 4;

/// What keeps hosts that share a range apart where no lock does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharing {
    /// Who writes: drawn at random, so that no two agree.
    pub(crate) writer: u32,
    /// Within it a header is looked at and written; the same for all that share the range.
    pub(crate) settle: Duration,
}

/// Why the range is not read or written.
#[derive(Debug, Error)]
pub(crate) enum RingError {
    #[error(transparent)]
    Origin(#[from] OriginError),
    #[error("no answer within {} s", ANSWER_WITHIN.as_secs())]
    Silent,
    #[error("the range ends at {end}, behind the origin's end at {size}")]
    BeyondEnd { end: u64, size: u64 },
    #[error("a snapshot of {found} bytes does not fit into a slot for {most}")]
    TooLong { found: u64, most: u64 },
    #[error(
        "each of its {slots} slots holds the newest snapshot of a volume, or something that is none: expected a range that was zeros when it was reserved, with more slots than volumes"
    )]
    Full { slots: u64 },
    #[error("a host whose lease has epoch {found} has taken the volume over from epoch {own}")]
    Overtaken { found: u64, own: u64 },
    #[error("slot {slot} was taken by another host at the same moment")]
    Lost { slot: u64 },
    #[error("slot {slot} was claimed after {took:?}, expected within {settle:?}: another host may have it")]
    Late { slot: u64, took: Duration, settle: Duration },
}

/// What it took to write a snapshot.
#[derive(Debug)]
pub(crate) struct Written {
    /// Snapshots that it was written over.
    pub(crate) lost: usize,
    /// Why it was not written to slots that were tried before.
    pub(crate) aside: Vec<RingError>,
}

/// The range.
pub(crate) struct SnapshotRing {
    origin: Arc<dyn Origin>,
    range: ByteRange,
    slot_bytes: u64,
    /// Slots that have no header and are not empty: somebody else's.
    occupied: BTreeSet<u64>,
    /// None where a lock keeps others out.
    sharing: Option<Sharing>,
}

/// What a header says.
#[derive(Debug, PartialEq)]
enum Slot {
    /// It is zeros: nobody has claimed it.
    Empty,
    Claimed(SlotHeader),
    /// It begins as a header does, and is damaged.
    Damaged(SlotError),
    Foreign,
}

impl Slot {
    fn parse(bytes: &[u8], slot: u64) -> Slot {
        match SlotHeader::parse(bytes, slot) {
            Ok(header) => Slot::Claimed(header),
            Err(SlotError::Foreign) if is_zero(bytes) => Slot::Empty,
            Err(SlotError::Foreign) => Slot::Foreign,
            Err(damage) => Slot::Damaged(damage),
        }
    }
}

impl SnapshotRing {
    /// Slots of `slot_bytes` in `range` of `origin`; all three numbers are multiples of 4 KiB. Of some slots it may be known that they are `occupied`. Without `sharing` nobody else writes there.
    pub(crate) fn new(
        origin: Arc<dyn Origin>,
        range: ByteRange,
        slot_bytes: u64,
        occupied: BTreeSet<u64>,
        sharing: Option<Sharing>,
    ) -> Result<SnapshotRing, RingError> {
        let (end, size) = (range.offset + range.length, origin.traits().size_bytes);
        if end > size {
            return Err(RingError::BeyondEnd { end, size });
        }
        Ok(SnapshotRing { origin, range, slot_bytes, occupied, sharing })
    }

    /// The slots that were found to be somebody else's.
    pub(crate) fn into_occupied(self) -> BTreeSet<u64> {
        self.occupied
    }

    fn slots(&self) -> u64 {
        slots(self.range.length, self.slot_bytes)
    }

    fn header_place(&self, slot: u64) -> u64 {
        self.range.offset + slot * UNIT
    }

    fn place(&self, slot: u64) -> u64 {
        self.header_place(self.slots()) + slot * self.slot_bytes
    }

    /// What the headers say, by slot.
    fn table(&self) -> Result<Vec<Slot>, RingError> {
        let bytes = self.read_bytes(self.range.offset, self.slots() * UNIT)?;
        Ok(bytes.chunks(SLOT_HEADER_BYTES).zip(0..).map(|(bytes, slot)| Slot::parse(bytes, slot)).collect())
    }

    /// What the header of a slot says now.
    fn slot(&self, slot: u64) -> Result<Slot, RingError> {
        Ok(Slot::parse(&self.read_bytes(self.header_place(slot), UNIT)?, slot))
    }

    /// The place of the newest snapshot of a volume in its series, whatever is in it.
    pub(crate) fn newest(&self, volume: VolumeId) -> Result<Option<u64>, RingError> {
        let table = self.table()?;
        let of_volume = table.iter().filter_map(|slot| match slot {
            Slot::Claimed(header) if header.volume == volume => Some(header.sequence),
            _ => None,
        });
        Ok(of_volume.max())
    }

    /// Writes a snapshot, durably, over what is worth least: of this volume the oldest of `keep`, or one that was taken before `expired_unix_s`; else a slot that is free or
    /// damaged; else the oldest of any volume that has a newer one or that expired. Where another host takes a slot at the same moment, another is tried.
    pub(crate) fn write(
        &mut self,
        header: SlotHeader,
        bytes: &[u8],
        keep: usize,
        expired_unix_s: u64,
    ) -> Result<Written, RingError> {
        if bytes.len() as u64 > self.slot_bytes {
            return Err(RingError::TooLong { found: bytes.len() as u64, most: self.slot_bytes });
        }
        let header = SlotHeader { writer: self.sharing.map_or(0, |sharing| sharing.writer), ..header };
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(SLOT_HEADER_BYTES), 0);
        let (mut avoided, mut aside) = (BTreeSet::new(), Vec::new());
        loop {
            let table = self.table()?;
            let (slot, lost) = self.choose(&table, header, keep, expired_unix_s, &avoided)?;
            let error = match self.fill(slot, &table[slot as usize], header, &padded) {
                Ok(()) => return Ok(Written { lost, aside }),
                Err(error) => error,
            };
            let is_taken = matches!(error, RingError::Lost { .. } | RingError::Late { .. });
            if !is_taken || aside.len() + 1 >= ATTEMPTS {
                return Err(error);
            }
            avoided.insert(slot);
            aside.push(error);
        }
    }

    /// Which slot is written, and how many snapshots are lost for it.
    fn choose(
        &mut self,
        table: &[Slot],
        header: SlotHeader,
        keep: usize,
        expired_unix_s: u64,
        avoided: &BTreeSet<u64>,
    ) -> Result<(u64, usize), RingError> {
        let mut used: Vec<(u64, SlotHeader)> = Vec::new();
        for (slot, found) in (0..).zip(table) {
            if let Slot::Claimed(found) = found {
                if found.volume == header.volume && found.epoch > header.epoch {
                    return Err(RingError::Overtaken { found: found.epoch, own: header.epoch });
                }
                used.extend((found.snapshot_bytes > 0).then_some((slot, *found)));
            }
        }
        let is_newest = |header: &SlotHeader| {
            !used.iter().any(|(_, other)| other.volume == header.volume && age(other) > age(header))
        };
        let own = || used.iter().filter(|(_, other)| other.volume == header.volume);
        let open = |(slot, _): &&(u64, SlotHeader)| !avoided.contains(slot);
        let oldest_own =
            own().filter(|(_, other)| !is_newest(other)).filter(open).min_by_key(|(_, other)| age(other));
        let over_own = oldest_own
            .filter(|(_, oldest)| own().count() >= keep.max(2) || oldest.taken_at_unix_s < expired_unix_s);
        if let Some((slot, _)) = over_own {
            return Ok((*slot, 1));
        }
        if let Some(slot) = self.find_free(table, header, avoided)? {
            return Ok((slot, 0));
        }
        let spare =
            used.iter().filter(|(_, other)| !is_newest(other) || other.taken_at_unix_s < expired_unix_s);
        let oldest = spare.filter(open).min_by_key(|(_, other)| other.taken_at_unix_s);
        Ok((oldest.ok_or(RingError::Full { slots: self.slots() })?.0, 1))
    }

    /// A slot that holds no snapshot and is ours to write.
    fn find_free(
        &mut self,
        table: &[Slot],
        header: SlotHeader,
        avoided: &BTreeSet<u64>,
    ) -> Result<Option<u64>, RingError> {
        let slots = self.slots();
        let begin = ((header.volume.0 ^ u128::from(header.writer)) % u128::from(slots)) as u64;
        for slot in (begin..slots).chain(0..begin).filter(|slot| !avoided.contains(slot)) {
            match &table[slot as usize] {
                Slot::Damaged(_) => return Ok(Some(slot)),
                Slot::Claimed(found) if found.snapshot_bytes == 0 => {
                    let since_s = header.taken_at_unix_s.abs_diff(found.taken_at_unix_s);
                    if self.sharing.is_none() || since_s >= CLAIM_ABANDONED_S {
                        return Ok(Some(slot));
                    }
                }
                Slot::Empty if !self.occupied.contains(&slot) => {
                    if is_zero(&self.read_bytes(self.place(slot), self.slot_bytes)?) {
                        return Ok(Some(slot));
                    }
                    self.occupied.insert(slot);
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Writes a snapshot to a slot in which this was `found`.
    fn fill(&self, slot: u64, found: &Slot, header: SlotHeader, padded: &[u8]) -> Result<(), RingError> {
        let claim = SlotHeader { snapshot_bytes: 0, ..header };
        let written = (|| {
            match self.sharing {
                Some(sharing) => self.take_possession(slot, found, claim, sharing)?,
                // What is written from now on is not taken for somebody else's, even if it is cut short.
                None if matches!(found, Slot::Empty) => self.write_header(slot, claim)?,
                None => {}
            }
            self.write_bytes(self.place(slot), padded)?;
            self.ask(OriginOperation::Flush)?;
            self.expect_header(slot, claim)?;
            self.write_header(slot, header)?;
            self.expect_header(slot, header)
        })();
        // After an answer nothing of ours is on its way to the slot: whoever comes next may have it at once.
        if let (Some(_), Err(RingError::Origin(OriginError::Failed { .. }))) = (self.sharing, &written)
            && self.expect_header(slot, claim).is_ok()
        {
            let _ = self.write_header(slot, SlotHeader { taken_at_unix_s: 0, ..claim });
        }
        written
    }

    /// Makes a slot ours, in which this was `found`, if nobody else does.
    fn take_possession(
        &self,
        slot: u64,
        found: &Slot,
        claim: SlotHeader,
        sharing: Sharing,
    ) -> Result<(), RingError> {
        let settle = sharing.settle;
        let began = Instant::now();
        if self.slot(slot)? != *found {
            return Err(RingError::Lost { slot });
        }
        self.write_bytes(self.header_place(slot), &claim.to_bytes(slot))?;
        let took = began.elapsed();
        if took > settle {
            return Err(RingError::Late { slot, took, settle });
        }
        self.ask(OriginOperation::Flush)?;
        std::thread::sleep(settle);
        self.expect_header(slot, claim)
    }

    /// That no other host has written to the slot's header since we did, where others might.
    fn expect_header(&self, slot: u64, header: SlotHeader) -> Result<(), RingError> {
        match self.sharing {
            Some(_) if self.slot(slot)? != Slot::Claimed(header) => Err(RingError::Lost { slot }),
            _ => Ok(()),
        }
    }

    fn write_header(&self, slot: u64, header: SlotHeader) -> Result<(), RingError> {
        self.write_bytes(self.header_place(slot), &header.to_bytes(slot))?;
        self.ask(OriginOperation::Flush)?;
        Ok(())
    }

    /// Reads the newest `most` snapshots of a volume that were taken at `expired_unix_s` or later. What cannot be used is left out and told.
    pub(crate) fn read(
        &self,
        volume: VolumeId,
        block_bytes: u64,
        most: usize,
        expired_unix_s: u64,
    ) -> Result<Series, RingError> {
        let mut series = Series { snapshots: Vec::new(), refused: Vec::new() };
        let mut found = Vec::new();
        for (slot, claimed) in (0..).zip(self.table()?) {
            match claimed {
                Slot::Claimed(header) => {
                    let is_wanted = header.volume == volume && header.taken_at_unix_s >= expired_unix_s;
                    found.extend((is_wanted && header.snapshot_bytes > 0).then_some((slot, header)));
                }
                // Nobody knows whose it was.
                Slot::Damaged(damage) => series.refused.push((self.name(slot), Unusable::Slot(damage))),
                Slot::Empty | Slot::Foreign => {}
            }
        }
        found.sort_by_key(|(_, header)| Reverse(age(header)));
        let mut bytes_read = 0;
        for (slot, header) in found.into_iter().take(most) {
            match self.read_slot(slot, header, block_bytes)? {
                Ok(snapshot) => series.snapshots.push(snapshot),
                Err(reason) => series.refused.push((self.name(slot), reason)),
            }
            bytes_read += header.snapshot_bytes;
            if bytes_read > SERIES_BYTES_MAX {
                break;
            }
        }
        series.snapshots.reverse();
        Ok(series)
    }

    fn read_slot(
        &self,
        slot: u64,
        header: SlotHeader,
        block_bytes: u64,
    ) -> Result<Result<Snapshot, Unusable>, RingError> {
        let length = header.snapshot_bytes.min(self.slot_bytes);
        let mut bytes = self.read_bytes(self.place(slot), length.next_multiple_of(UNIT))?;
        bytes.truncate(length as usize);
        Ok(read_snapshot(bytes, header.volume, block_bytes).and_then(|snapshot| {
            match snapshot.header().sequence {
                found if found == header.sequence => Ok(snapshot),
                found => Err(SlotError::Sequence { found, expected: header.sequence }.into()),
            }
        }))
    }

    fn name(&self, slot: u64) -> String {
        format!("slot {slot} at {} of {}", self.place(slot), self.origin.describe())
    }

    fn read_bytes(&self, offset: u64, length: u64) -> Result<Vec<u8>, RingError> {
        let mut bytes = Vec::with_capacity(length as usize);
        while (bytes.len() as u64) < length {
            let done = bytes.len() as u64;
            let piece = self.piece().min(length - done);
            bytes.extend(self.ask(OriginOperation::Read { range: ByteRange::new(offset + done, piece) })?);
        }
        Ok(bytes)
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<(), RingError> {
        let piece = self.piece();
        for (number, data) in (0..).zip(bytes.chunks(piece as usize)) {
            let offset = offset + number * piece;
            self.ask(OriginOperation::Write { offset, data: data.to_vec(), fua: false })?;
        }
        Ok(())
    }

    /// Bytes of one request: a multiple of 4 KiB.
    fn piece(&self) -> u64 {
        let most = u64::from(self.origin.traits().request_bytes_max).min(PIECE_BYTES);
        (most / UNIT).max(1) * UNIT
    }

    fn ask(&self, operation: OriginOperation) -> Result<Vec<u8>, RingError> {
        let answer = Arc::new(Answer::default());
        let sink: Arc<dyn CompletionSink> = Arc::clone(&answer) as Arc<dyn CompletionSink>;
        self.origin.submit(OriginRequest { id: OriginRequestId(0), operation }, &sink);
        answer.wait()
    }
}

/// How many slots of `slot_bytes`, each with its header, are in so many bytes.
pub(crate) fn slots(range_bytes: u64, slot_bytes: u64) -> u64 {
    range_bytes / slot_bytes.saturating_add(UNIT)
}

/// What of two of a volume is newer. Clocks of hosts differ; their epochs do not lie.
fn age(header: &SlotHeader) -> (u64, u64) {
    (header.epoch, header.sequence)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// One completion, for the thread that waits for it.
#[derive(Default)]
struct Answer {
    completion: Mutex<Option<OriginCompletion>>,
    arrived: Condvar,
}

impl CompletionSink for Answer {
    fn complete(&self, completion: OriginCompletion) {
        *self.completion.lock().unwrap_or_else(PoisonError::into_inner) = Some(completion);
        self.arrived.notify_all();
    }
}

impl Answer {
    fn wait(&self) -> Result<Vec<u8>, RingError> {
        let until = Instant::now() + ANSWER_WITHIN;
        let mut completion = self.completion.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(completion) = completion.take() {
                return Ok(completion.result?);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(RingError::Silent);
            }
            completion =
                self.arrived.wait_timeout(completion, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests;
