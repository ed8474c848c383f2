//! Snapshots on the origin's own storage: a table of headers and slots, in a range of a file, a block device or an export that is reserved for them, so that
//! whoever reaches the data reaches them too, whatever became of the host that took them. The layout is in `docs/reference/snapshot-format.md`.
//!
//! Every slot holds one snapshot of one volume. Its bytes are written and flushed before the header that tells of them, so a write that is cut short leaves a header
//! and bytes that do not belong together: they are refused, and the other slots are as they were. The headers lie together because all of them are read for each
//! snapshot, from storage that others wait for.
//!
//! Several hosts may share a range. Whose lease has a lower epoch than what is there of the volume writes nothing. Two that write to one slot at once spoil it, and it is refused; each volume begins
//! to look for a free one at a place of its own, so that this is rare.
//!
//! Invariants: only slots are written that were all zeros when they were first claimed, or that a header claims, so that a range that was named by mistake stays as it is; the newest snapshot of a
//! volume is not written over before it has expired.

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
}

/// The range.
pub(crate) struct SnapshotRing {
    origin: Arc<dyn Origin>,
    range: ByteRange,
    slot_bytes: u64,
    /// Slots that have no header and are not empty: somebody else's.
    occupied: BTreeSet<u64>,
}

/// What a header says.
enum Slot {
    /// It is zeros: nobody has claimed it.
    Empty,
    Claimed(SlotHeader),
    /// It begins as a header does, and is damaged.
    Damaged(SlotError),
    Foreign,
}

impl SnapshotRing {
    /// Slots of `slot_bytes` in `range` of `origin`; all three numbers are multiples of 4 KiB. Of some slots it may be known that they are `occupied`.
    pub(crate) fn new(
        origin: Arc<dyn Origin>,
        range: ByteRange,
        slot_bytes: u64,
        occupied: BTreeSet<u64>,
    ) -> Result<SnapshotRing, RingError> {
        let (end, size) = (range.offset + range.length, origin.traits().size_bytes);
        if end > size {
            return Err(RingError::BeyondEnd { end, size });
        }
        Ok(SnapshotRing { origin, range, slot_bytes, occupied })
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
        let slot = |(bytes, slot): (&[u8], u64)| match SlotHeader::parse(bytes, slot) {
            Ok(header) => Slot::Claimed(header),
            Err(SlotError::Foreign) if is_zero(bytes) => Slot::Empty,
            Err(SlotError::Foreign) => Slot::Foreign,
            Err(damage) => Slot::Damaged(damage),
        };
        Ok(bytes.chunks(SLOT_HEADER_BYTES).zip(0..).map(slot).collect())
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
    /// damaged; else the oldest of any volume that has a newer one or that expired. How many were lost for it.
    pub(crate) fn write(
        &mut self,
        header: SlotHeader,
        bytes: &[u8],
        keep: usize,
        expired_unix_s: u64,
    ) -> Result<usize, RingError> {
        if bytes.len() as u64 > self.slot_bytes {
            return Err(RingError::TooLong { found: bytes.len() as u64, most: self.slot_bytes });
        }
        let table = self.table()?;
        let mut used: Vec<(u64, SlotHeader)> = Vec::new();
        for (slot, found) in (0..).zip(&table) {
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
        let oldest_own = own().min_by_key(|(_, other)| age(other));
        let over_own = oldest_own.filter(|(_, oldest)| {
            own().count() >= keep.max(2) || own().count() > 1 && oldest.taken_at_unix_s < expired_unix_s
        });
        let (slot, lost) = match over_own {
            Some((slot, _)) => (*slot, 1),
            None => match self.claim_free(&table, header)? {
                Some(slot) => (slot, 0),
                None => {
                    let spare = used
                        .iter()
                        .filter(|(_, other)| !is_newest(other) || other.taken_at_unix_s < expired_unix_s);
                    let oldest = spare.min_by_key(|(_, other)| other.taken_at_unix_s);
                    (oldest.ok_or(RingError::Full { slots: self.slots() })?.0, 1)
                }
            },
        };
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(SLOT_HEADER_BYTES), 0);
        self.write_bytes(self.place(slot), &padded)?;
        self.ask(OriginOperation::Flush)?;
        self.write_header(slot, header)?;
        Ok(lost)
    }

    /// A slot that holds no snapshot and is ours to write.
    fn claim_free(&mut self, table: &[Slot], header: SlotHeader) -> Result<Option<u64>, RingError> {
        let slots = self.slots();
        let begin = (header.volume.0 % u128::from(slots)) as u64;
        for slot in (begin..slots).chain(0..begin) {
            match &table[slot as usize] {
                Slot::Damaged(_) => return Ok(Some(slot)),
                Slot::Claimed(found) if found.snapshot_bytes == 0 => return Ok(Some(slot)),
                Slot::Empty if !self.occupied.contains(&slot) => {
                    if is_zero(&self.read_bytes(self.place(slot), self.slot_bytes)?) {
                        // What is written from now on is not taken for somebody else's, even if it is cut short.
                        self.write_header(slot, SlotHeader { snapshot_bytes: 0, ..header })?;
                        return Ok(Some(slot));
                    }
                    self.occupied.insert(slot);
                }
                _ => {}
            }
        }
        Ok(None)
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
mod tests {
    use super::*;
    use forebay_cache::snapshot::{Activity, SnapshotHeader, SnapshotWriter};
    use forebay_origin::{MemoryImage, MemoryOrigin, OriginTraits};
    use forebay_units::Bytes;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const OURS: VolumeId = VolumeId(7);
    const THEIRS: VolumeId = VolumeId(8);
    const SLOT: u64 = 16 << 10;
    const SLOTS: u64 = 5;
    /// Behind what is not ours.
    const RANGE: ByteRange = ByteRange { offset: 64 << 10, length: SLOTS * (SLOT + UNIT) };

    fn snapshot(volume: VolumeId, sequence: u64) -> Vec<u8> {
        let header = SnapshotHeader {
            volume,
            block_bytes: 4096,
            volume_blocks: 24_010,
            sequence,
            taken_at_unix_s: sequence,
            activity: Activity::default(),
        };
        let mut writer = SnapshotWriter::new(header, true).unwrap();
        // Other blocks each time, and so many of scores so different that they take two requests of 4 KiB.
        (0..8_000).for_each(|block| writer.push(block * 3 + sequence % 3, (block % 7) as u8).unwrap());
        let bytes = writer.finish();
        assert!(bytes.len() > 4096 && bytes.len() <= 8192, "{}", bytes.len());
        bytes
    }

    fn ring(origin: Arc<dyn Origin>) -> SnapshotRing {
        SnapshotRing::new(origin, RANGE, SLOT, BTreeSet::new()).unwrap()
    }

    fn image() -> Arc<MemoryImage> {
        Arc::new(MemoryImage::new(Bytes(256 << 10)))
    }

    fn on(image: &Arc<MemoryImage>) -> SnapshotRing {
        ring(Arc::new(MemoryOrigin::new(Arc::clone(image))))
    }

    fn put(
        ring: &mut SnapshotRing,
        volume: VolumeId,
        sequence: u64,
        keep: usize,
    ) -> Result<usize, RingError> {
        let bytes = snapshot(volume, sequence);
        let snapshot_bytes = bytes.len() as u64;
        ring.write(
            SlotHeader { volume, sequence, taken_at_unix_s: sequence, snapshot_bytes, epoch: 0 },
            &bytes,
            keep,
            0,
        )
    }

    fn sequences(ring: &SnapshotRing, volume: VolumeId) -> (Vec<u64>, usize) {
        let series = ring.read(volume, 4096, 100, 0).unwrap();
        (series.snapshots.iter().map(|found| found.header().sequence).collect(), series.refused.len())
    }

    /// Carries out so many writes less one, of the next one only the first bytes, and nothing after that.
    struct Dies {
        inner: MemoryOrigin,
        left: AtomicUsize,
        torn_bytes: usize,
    }

    impl Origin for Dies {
        fn traits(&self) -> OriginTraits {
            OriginTraits { request_bytes_max: 4096, ..self.inner.traits() }
        }

        fn submit(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
            if !request.operation.changes_content() {
                return self.inner.submit(request, sink);
            }
            match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
                Ok(2..) => self.inner.submit(request, sink),
                died => {
                    if let (Ok(_), OriginOperation::Write { offset, data, fua }) = (died, &request.operation)
                    {
                        let data = data[..self.torn_bytes].to_vec();
                        let torn = OriginOperation::Write { offset: *offset, data, fua: *fua };
                        let ignored: Arc<dyn CompletionSink> = Arc::new(Answer::default());
                        self.inner.submit(OriginRequest { id: request.id, operation: torn }, &ignored);
                    }
                    let error = OriginError::Unreachable { context: "killed".to_owned(), unsent: None };
                    sink.complete(OriginCompletion { id: request.id, result: Err(error) });
                }
            }
        }

        fn describe(&self) -> String {
            "an origin that dies".to_owned()
        }
    }

    #[test]
    fn another_host_reads_what_was_written_and_the_oldest_give_way() {
        let image = image();
        let mut first = on(&image);
        for sequence in 1..=4 {
            assert_eq!(put(&mut first, OURS, sequence, 3).unwrap(), usize::from(sequence == 4));
        }
        put(&mut first, THEIRS, 50, 3).unwrap();
        put(&mut first, THEIRS, 51, 3).unwrap();
        let mut second = on(&image);
        assert_eq!(sequences(&second, OURS), (vec![2, 3, 4], 0));
        assert_eq!(second.newest(OURS).unwrap(), Some(4));
        assert_eq!(sequences(&second, THEIRS), (vec![50, 51], 0));
        assert_eq!(second.newest(VolumeId(9)).unwrap(), None);
        // All five slots are used: a third volume takes the oldest that is nobody's newest; what expired is not read.
        assert_eq!(put(&mut second, VolumeId(9), 99, 3).unwrap(), 1);
        assert_eq!(sequences(&first, OURS), (vec![3, 4], 0));
        assert_eq!(first.read(OURS, 4096, 100, 4).unwrap().snapshots.len(), 1);
        assert_eq!(first.read(OURS, 4096, 1, 0).unwrap().snapshots[0].header().sequence, 4);
        assert!(matches!(
            first.read(OURS, 512, 1, 0).unwrap().refused[..],
            [(_, Unusable::BlockSize { .. })]
        ));
    }

    #[test]
    fn a_write_that_is_cut_short_anywhere_loses_only_itself_and_what_it_was_to_replace() {
        // With two slots free a place is claimed first: four writes. With none, three.
        for (theirs, changes_in_all) in [(0, 4), (1, 3)] {
            for (torn_bytes, left) in [20, 50, 512, 4096]
                .iter()
                .flat_map(|torn| (1..=changes_in_all).map(move |left| (*torn, left)))
            {
                let case = format!("{theirs} of theirs, {torn_bytes} bytes of write {left}");
                let image = image();
                let mut healthy = on(&image);
                for sequence in 1..=3 {
                    put(&mut healthy, OURS, sequence, 9).unwrap();
                }
                put(&mut healthy, THEIRS, 50, 9).unwrap();
                for sequence in 0..theirs {
                    put(&mut healthy, THEIRS, 51 + sequence, 9).unwrap();
                }
                let inner = MemoryOrigin::new(Arc::clone(&image));
                let mut dying = ring(Arc::new(Dies { inner, left: AtomicUsize::new(left), torn_bytes }));
                put(&mut dying, OURS, 4, 9).unwrap_err();
                let (found, refused) = sequences(&on(&image), OURS);
                // Whole if only the answer to the last write was lost; 1 is lost where it was being replaced.
                assert!(found.ends_with(&[2, 3]) || found.ends_with(&[2, 3, 4]), "{case}: {found:?}");
                assert!(theirs > 0 || found[0] == 1, "{case}: {found:?}");
                assert!(refused <= 1, "{case}: {refused} refused");
                assert!(sequences(&on(&image), THEIRS).0.starts_with(&[50]), "{case}");
                // What was cut short is not in the way.
                let after = put(&mut on(&image), OURS, 5, 9).unwrap();
                assert!(after <= 1, "{case}");
                let (found, _) = sequences(&on(&image), OURS);
                assert!(found.ends_with(&[3, 5]) || found.ends_with(&[3, 4, 5]), "{case}: {found:?}");
            }
            // One more write is enough for all.
            let image = image();
            let mut healthy = on(&image);
            for sequence in 1..=3 {
                put(&mut healthy, OURS, sequence, 9).unwrap();
            }
            for sequence in 0..=theirs {
                put(&mut healthy, THEIRS, 50 + sequence, 9).unwrap();
            }
            let left = AtomicUsize::new(changes_in_all + 1);
            let inner = MemoryOrigin::new(Arc::clone(&image));
            put(&mut ring(Arc::new(Dies { inner, left, torn_bytes: 0 })), OURS, 4, 9).unwrap();
        }
    }

    #[test]
    fn what_is_foreign_is_left_as_it_is_and_what_is_damaged_is_refused() {
        let image = image();
        // Somebody's data where two headers would be, and at the end of a slot whose header would be empty.
        let data: [(u64, &[u8]); 3] = [
            (RANGE.offset, &[0xab; 4096]),
            (RANGE.offset + UNIT, &[0xab; 1]),
            (RANGE.offset + SLOTS * UNIT + 4 * SLOT - 1, &[0xab; 1]),
        ];
        image.write_at(0, &vec![0xab; RANGE.offset as usize]);
        image.write_at(RANGE.offset + RANGE.length, &vec![0xab; 4096]);
        data.iter().for_each(|(at, bytes)| image.write_at(*at, bytes));
        let mut ring = on(&image);
        for sequence in 1..=4 {
            put(&mut ring, OURS, sequence, 24).unwrap();
        }
        assert_eq!(sequences(&ring, OURS), (vec![3, 4], 0));
        // The newest of two volumes are not given up for a third, unless they expired.
        put(&mut ring, THEIRS, 50, 24).unwrap();
        let full = put(&mut ring, VolumeId(9), 60, 24).unwrap_err();
        assert!(matches!(full, RingError::Full { slots: SLOTS }), "{full}");
        let read = |at: u64, length: usize| {
            let mut bytes = vec![0; length];
            image.read_at(at, &mut bytes);
            bytes
        };
        for (at, bytes) in data {
            assert!(read(at, bytes.len()) == bytes, "{at}");
        }
        assert!(read(0, RANGE.offset as usize).iter().all(|byte| *byte == 0xab));
        assert!(read(RANGE.offset + RANGE.length, 4096).iter().all(|byte| *byte == 0xab));
        // A bit of each of the two snapshots: one in its bytes, one in its header.
        let places: Vec<u64> =
            (0..SLOTS).filter(|slot| read(RANGE.offset + slot * UNIT, 6) == b"FBSLOT").collect();
        assert_eq!(places.len(), 2);
        for at in [RANGE.offset + SLOTS * UNIT + places[0] * SLOT + 900, RANGE.offset + places[1] * UNIT + 40]
        {
            image.write_at(at, &[read(at, 1)[0] ^ 4]);
        }
        let (ours, theirs) = (sequences(&ring, OURS), sequences(&ring, THEIRS));
        assert_eq!((ours.0.len(), theirs.0.len()), (0, 0));
        // The damaged header is told to both, as nobody knows whose it was.
        assert_eq!(ours.1 + theirs.1, 3);
        // And they are used again.
        put(&mut ring, OURS, 70, 24).unwrap();
        assert_eq!(sequences(&ring, OURS).0, [70]);
        let header = SlotHeader {
            volume: VolumeId(9),
            sequence: 80,
            taken_at_unix_s: 80,
            snapshot_bytes: 0,
            epoch: 0,
        };
        let bytes = snapshot(VolumeId(9), 80);
        let header = SlotHeader { snapshot_bytes: bytes.len() as u64, ..header };
        assert_eq!(ring.write(header, &bytes, 24, 75).unwrap(), 1);
        assert_eq!(sequences(&ring, VolumeId(9)).0, [80]);
    }

    #[test]
    fn who_was_overtaken_writes_nothing_and_two_that_write_to_one_slot_spoil_nothing_else() {
        let image = image();
        let (mut old, mut new) = (on(&image), on(&image));
        let put = |ring: &mut SnapshotRing, sequence, epoch| {
            let bytes = snapshot(OURS, sequence);
            let snapshot_bytes = bytes.len() as u64;
            let header =
                SlotHeader { volume: OURS, sequence, taken_at_unix_s: sequence, snapshot_bytes, epoch };
            ring.write(header, &bytes, 3, 0)
        };
        put(&mut old, 100, 1).unwrap();
        // The clock of who takes over is behind: its snapshot is the newer one all the same.
        put(&mut new, 90, 2).unwrap();
        let refused = put(&mut old, 101, 1).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "a host whose lease has epoch 2 has taken the volume over from epoch 1"
        );
        assert_eq!(sequences(&new, OURS), (vec![100, 90], 0));
        // The old one had its bytes written over those of the new one, or their headers crossed.
        let slot = (0..SLOTS).find(|slot| match &new.table().unwrap()[*slot as usize] {
            Slot::Claimed(header) => header.sequence == 90,
            _ => false,
        });
        let place = new.place(slot.unwrap());
        let other = snapshot(OURS, 101);
        image.write_at(place, &other);
        let series = new.read(OURS, 4096, 9, 0).unwrap();
        assert_eq!(series.snapshots.len(), 1);
        assert_eq!(
            series.refused[0].1.to_string(),
            "it is snapshot 101, and the header of its slot tells of 90"
        );
        image.write_at(place, &snapshot(THEIRS, 90));
        let series = new.read(OURS, 4096, 9, 0).unwrap();
        assert!(matches!(series.refused[..], [(_, Unusable::Refused(_))]), "{:?}", series.refused);
        image.write_at(place, &other[..4096]);
        assert_eq!(sequences(&new, OURS), (vec![100], 1));
    }

    #[test]
    fn a_range_that_is_not_there_and_a_snapshot_that_is_too_long_are_refused() {
        let small: Arc<dyn Origin> =
            Arc::new(MemoryOrigin::new(Arc::new(MemoryImage::new(Bytes(100 << 10)))));
        assert!(matches!(
            SnapshotRing::new(small, RANGE, SLOT, BTreeSet::new()),
            Err(RingError::BeyondEnd { end: 167_936, size: 102_400 })
        ));
        let header =
            SlotHeader { volume: OURS, sequence: 1, taken_at_unix_s: 1, snapshot_bytes: 20_000, epoch: 0 };
        let refused = on(&image()).write(header, &[0; 20_000], 3, 0).unwrap_err();
        assert_eq!(refused.to_string(), "a snapshot of 20000 bytes does not fit into a slot for 16384");
    }
}
