use super::*;
use forebay_cache::snapshot::{Activity, SnapshotHeader, SnapshotWriter};
use forebay_origin::{MemoryImage, MemoryOrigin, OriginTraits};
use forebay_units::Bytes;
use forebay_units::mix64;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const OURS: VolumeId = VolumeId(7);
const THEIRS: VolumeId = VolumeId(8);
const SLOT: u64 = 16 << 10;
const SLOTS: u64 = 5;
/// Behind what is not ours.
const RANGE: ByteRange = ByteRange { offset: 64 << 10, length: SLOTS * (SLOT + UNIT) };

fn snapshot(volume: VolumeId, sequence: u64) -> Vec<u8> {
    snapshot_by(0, volume, sequence)
}

/// As [`snapshot`], by another host, whose cache holds other blocks.
fn snapshot_by(host: u64, volume: VolumeId, sequence: u64) -> Vec<u8> {
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
    (0..8_000).for_each(|block| writer.push(block * 3 + (sequence + host) % 3, (block % 7) as u8).unwrap());
    let bytes = writer.finish();
    assert!(bytes.len() > 4096 && bytes.len() <= 8192, "{}", bytes.len());
    bytes
}

fn ring(origin: Arc<dyn Origin>) -> SnapshotRing {
    SnapshotRing::new(origin, RANGE, SLOT, BTreeSet::new(), None).unwrap()
}

fn image() -> Arc<MemoryImage> {
    Arc::new(MemoryImage::new(Bytes(256 << 10)))
}

fn on(image: &Arc<MemoryImage>) -> SnapshotRing {
    ring(Arc::new(MemoryOrigin::new(Arc::clone(image))))
}

fn put(ring: &mut SnapshotRing, volume: VolumeId, sequence: u64, keep: usize) -> Result<usize, RingError> {
    put_bytes(ring, volume, sequence, &snapshot(volume, sequence), keep).map(|written| written.lost)
}

fn put_bytes(
    ring: &mut SnapshotRing,
    volume: VolumeId,
    sequence: u64,
    bytes: &[u8],
    keep: usize,
) -> Result<Written, RingError> {
    let snapshot_bytes = bytes.len() as u64;
    ring.write(
        SlotHeader { volume, sequence, taken_at_unix_s: sequence, snapshot_bytes, epoch: 0, writer: 0 },
        bytes,
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
                if let (Ok(_), OriginOperation::Write { offset, data, fua }) = (died, &request.operation) {
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
    assert!(matches!(first.read(OURS, 512, 1, 0).unwrap().refused[..], [(_, Unusable::BlockSize { .. })]));
}

#[test]
fn a_write_that_is_cut_short_anywhere_loses_only_itself_and_what_it_was_to_replace() {
    // With two slots free a place is claimed first: four writes. With none, three.
    for (theirs, changes_in_all) in [(0, 4), (1, 3)] {
        for (torn_bytes, left) in
            [20, 50, 512, 4096].iter().flat_map(|torn| (1..=changes_in_all).map(move |left| (*torn, left)))
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
    for at in [RANGE.offset + SLOTS * UNIT + places[0] * SLOT + 900, RANGE.offset + places[1] * UNIT + 40] {
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
        writer: 0,
    };
    let bytes = snapshot(VolumeId(9), 80);
    let header = SlotHeader { snapshot_bytes: bytes.len() as u64, ..header };
    assert_eq!(ring.write(header, &bytes, 24, 75).unwrap().lost, 1);
    assert_eq!(sequences(&ring, VolumeId(9)).0, [80]);
}

#[test]
fn who_was_overtaken_writes_nothing_and_two_that_write_to_one_slot_spoil_nothing_else() {
    let image = image();
    let (mut old, mut new) = (on(&image), on(&image));
    let put = |ring: &mut SnapshotRing, sequence, epoch| {
        let bytes = snapshot(OURS, sequence);
        let snapshot_bytes = bytes.len() as u64;
        let header = SlotHeader {
            volume: OURS,
            sequence,
            taken_at_unix_s: sequence,
            snapshot_bytes,
            epoch,
            writer: 0,
        };
        ring.write(header, &bytes, 3, 0)
    };
    put(&mut old, 100, 1).unwrap();
    // The clock of who takes over is behind: its snapshot is the newer one all the same.
    put(&mut new, 90, 2).unwrap();
    let refused = put(&mut old, 101, 1).unwrap_err();
    assert_eq!(refused.to_string(), "a host whose lease has epoch 2 has taken the volume over from epoch 1");
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
    assert_eq!(series.refused[0].1.to_string(), "it is snapshot 101, and the header of its slot tells of 90");
    image.write_at(place, &snapshot(THEIRS, 90));
    let series = new.read(OURS, 4096, 9, 0).unwrap();
    assert!(matches!(series.refused[..], [(_, Unusable::Refused(_))]), "{:?}", series.refused);
    image.write_at(place, &other[..4096]);
    assert_eq!(sequences(&new, OURS), (vec![100], 1));
}

#[test]
fn a_range_that_is_not_there_and_a_snapshot_that_is_too_long_are_refused() {
    let small: Arc<dyn Origin> = Arc::new(MemoryOrigin::new(Arc::new(MemoryImage::new(Bytes(100 << 10)))));
    assert!(matches!(
        SnapshotRing::new(small, RANGE, SLOT, BTreeSet::new(), None),
        Err(RingError::BeyondEnd { end: 167_936, size: 102_400 })
    ));
    let header = SlotHeader {
        volume: OURS,
        sequence: 1,
        taken_at_unix_s: 1,
        snapshot_bytes: 20_000,
        epoch: 0,
        writer: 0,
    };
    let refused = on(&image()).write(header, &[0; 20_000], 3, 0).unwrap_err();
    assert_eq!(refused.to_string(), "a snapshot of 20000 bytes does not fit into a slot for 16384");
}

/// Answers one operation with an error, or half of it and an error, and after that everything as it should.
struct FailsOnce {
    inner: MemoryOrigin,
    left: AtomicUsize,
    errno: i32,
}

impl Origin for FailsOnce {
    fn traits(&self) -> OriginTraits {
        OriginTraits { request_bytes_max: 4096, ..self.inner.traits() }
    }

    fn submit(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) != Ok(1) {
            return self.inner.submit(request, sink);
        }
        if let OriginOperation::Write { offset, data, fua } = request.operation {
            let half = OriginOperation::Write { offset, data: data[..data.len() / 2].to_vec(), fua };
            let ignored: Arc<dyn CompletionSink> = Arc::new(Answer::default());
            self.inner.submit(OriginRequest { id: request.id, operation: half }, &ignored);
        }
        let error = OriginError::Failed { errno: self.errno, context: "as it was told to".to_owned() };
        sink.complete(OriginCompletion { id: request.id, result: Err(error) });
    }

    fn describe(&self) -> String {
        "an origin that fails once".to_owned()
    }
}

#[test]
fn no_room_and_errors_at_any_step_are_told_and_the_next_one_is_written() {
    let settle = Duration::from_millis(1);
    for sharing in [None, Some(Sharing { writer: 5, settle })] {
        for errno in [28, 5] {
            // Until the write needs fewer operations than that: then none failed.
            let mut failed = 0;
            for left in 1.. {
                let image = image();
                let mut healthy = on(&image);
                (1..=3).for_each(|sequence| assert!(put(&mut healthy, OURS, sequence, 3).is_ok()));
                let origin = FailsOnce {
                    inner: MemoryOrigin::new(Arc::clone(&image)),
                    left: AtomicUsize::new(left),
                    errno,
                };
                let mut ring =
                    SnapshotRing::new(Arc::new(origin), RANGE, SLOT, BTreeSet::new(), sharing).unwrap();
                match put(&mut ring, OURS, 4, 3) {
                    Ok(_) => break,
                    Err(error) => assert!(error.to_string().contains(&format!("errno {errno}")), "{error}"),
                }
                failed += 1;
                // Of the three, the one that was to be replaced is lost at most; at once there is room for the next.
                let (found, _) = sequences(&healthy, OURS);
                assert!(found.ends_with(&[2, 3]) || found.ends_with(&[2, 3, 4]), "{left}: {found:?}");
                put(&mut ring, OURS, 5, 3).unwrap();
                let (found, refused) = sequences(&healthy, OURS);
                assert!(found.ends_with(&[3, 5]) || found.ends_with(&[3, 4, 5]), "{left}: {found:?}");
                assert!(refused <= 1, "{left}: {refused}");
            }
            // The table is five requests; then two for the bytes, one for the header, two flushes; shared: five reads of a header or a claim and a flush besides.
            assert!(failed >= if sharing.is_some() { 15 } else { 10 }, "{failed}");
        }
    }
}

/// Takes a while for each operation, sometimes long; what it writes of more than 4 KiB is not whole at once.
struct Slow {
    inner: MemoryOrigin,
    random: AtomicU64,
    long: Duration,
}

impl Origin for Slow {
    fn traits(&self) -> OriginTraits {
        OriginTraits { request_bytes_max: 4096, ..self.inner.traits() }
    }

    fn submit(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        let random = mix64(self.random.fetch_add(1, Ordering::Relaxed));
        let (before, after) = (random % 300, random >> 20 & 255);
        let wait = |micros| std::thread::sleep(Duration::from_micros(micros));
        wait(before);
        // Late at random: between what is read and what is written, or after.
        if random >> 40 & 7 == 0 {
            std::thread::sleep(self.long);
        }
        self.inner.submit(request, sink);
        wait(after);
    }

    fn describe(&self) -> String {
        "a slow origin".to_owned()
    }
}

#[test]
fn two_hosts_that_take_one_slot_at_the_same_moment_spoil_nothing_and_lose_what_a_late_claim_hits_at_most() {
    let settle = Duration::from_millis(3);
    let (mut met, mut lost_in_all) = (0, 0);
    for seed in 0..80u64 {
        let image = image();
        // Two volumes, or one that two hosts serve without leases, in the same millisecond; slots that are free, and a ring that is nearly full.
        let volumes = if seed % 2 == 0 { [OURS, THEIRS] } else { [OURS, OURS] };
        let used = if seed % 4 < 2 { 0 } else { 4 };
        let mut before = on(&image);
        (1..=used).for_each(|sequence| assert!(put(&mut before, OURS, sequence, 9).is_ok()));
        let write = |host: u64| {
            let volume = volumes[host as usize];
            let inner = MemoryOrigin::new(Arc::clone(&image));
            let origin = Slow { inner, random: AtomicU64::new(mix64(2 * seed + host)), long: settle * 2 };
            // Both begin to look at slot 2, whichever volume it is: 2 and 12 leave the same when divided by five.
            let sharing = Sharing { writer: (volume.0 as u32) ^ (2 + 10 * host as u32), settle };
            let mut ring =
                SnapshotRing::new(Arc::new(origin), RANGE, SLOT, BTreeSet::new(), Some(sharing)).unwrap();
            put_bytes(&mut ring, volume, 100, &snapshot_by(host, volume, 100), 9)
        };
        let results = std::thread::scope(|scope| {
            [0, 1].map(|host| scope.spawn(move || write(host))).map(|host| host.join().unwrap())
        });
        let (mut kept, mut refused) = (0, 0);
        for volume in &volumes[..if volumes[0] == volumes[1] { 1 } else { 2 }] {
            let (found, damaged) = sequences(&before, *volume);
            kept += found.iter().filter(|sequence| **sequence == 100).count();
            refused += damaged;
        }
        assert_eq!(refused, 0, "seed {seed}: {results:?}");
        let told = |result: &Result<Written, RingError>| match result {
            Ok(written) => (1, written.aside.iter().map(|reason| reason.to_string()).collect()),
            Err(reason) => (0, vec![reason.to_string()]),
        };
        let (written, reasons): (Vec<usize>, Vec<Vec<String>>) = results.iter().map(told).unzip();
        let written: usize = written.iter().sum();
        let late = reasons.iter().flatten().filter(|reason| reason.contains("expected within")).count();
        assert!(kept <= written && written - kept <= late, "seed {seed}: {kept} kept, {results:?}");
        met += usize::from(reasons.iter().flatten().next().is_some());
        lost_in_all += 2 - kept;
    }
    assert!(met >= 20, "they meet: {met}");
    assert!(lost_in_all <= 60, "{lost_in_all} of 160");
}
