//! Stops and starts by hand, and under every fault of a device.

use super::super::device::{FaultyFlash, FlashFaults, MemoryFlash};
use super::super::format::VolumeId;
use super::super::partition::Appended;
use super::*;
use forebay_units::{BlockIndex, BlockRange, BlockSize};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SETTINGS: TierSettings =
    TierSettings { segment_bytes: 4096, records: 3, device_id: 77, epoch_floor: 1 };

fn volume(number: u128, stamp: u8) -> VolumeSettings {
    VolumeSettings {
        volume: VolumeId(number),
        stamp: Some(Stamp::Seen([stamp; 32])),
        read_only: false,
        block_size: BlockSize::new(Bytes(512)).unwrap(),
        quota_segments: 6,
        seed: 3,
    }
}

fn content(value: u64) -> Vec<u8> {
    value.to_le_bytes().repeat(64)
}

/// What the data path would do, at once.
fn append(device: &dyn FlashDevice, partition: &mut FlashPartition, block: u64, value: u64) -> Appended {
    let appended = partition.append(BlockIndex(block), &content(value));
    proceed(device, partition);
    appended
}

fn proceed(device: &dyn FlashDevice, partition: &mut FlashPartition) {
    while let Some(write) = partition.take_write() {
        let result = device.write(write.offset, &write.data);
        partition.write_ended(write.sequence, result.is_ok());
    }
}

fn read(device: &dyn FlashDevice, partition: &mut FlashPartition, block: u64) -> Option<Vec<u8>> {
    let block = BlockIndex(block);
    if let Some(bytes) = partition.buffered(block) {
        return Some(bytes.to_vec());
    }
    let address = partition.address(block)?;
    // A sector at a time, as devices do.
    let first = address.offset / SECTOR as u64 * SECTOR as u64;
    let bytes = device
        .read(first, SECTOR)
        .ok()
        .map(|sector| sector[(address.offset - first) as usize..][..512].to_vec());
    partition.judge(block, address, bytes.as_deref()).then(|| bytes.expect("it was judged"))
}

fn stop(device: &dyn FlashDevice, tier: &FlashTier, mut partition: FlashPartition, stamp: u8) -> Option<u64> {
    partition.seal_open();
    proceed(device, &mut partition);
    match tier.save(partition, Some(Stamp::Seen([stamp; 32]))) {
        Ok(Saved::Kept { blocks }) => Some(blocks),
        _ => None,
    }
}

#[test]
fn a_stop_in_order_keeps_what_can_be_proved() {
    // 7 sectors of superblock and records, then 20 segments of 8 blocks of 512 bytes.
    let device = Arc::new(MemoryFlash::new(vec![0; 27 * 4096]));
    let (tier, opened) = FlashTier::open(device.clone(), &SETTINGS).unwrap();
    assert_eq!((opened, tier.geometry().segments), (Opened::New, 20));
    let (mut partition, recovery) = tier.load(&volume(1, 4)).unwrap();
    assert_eq!(recovery, Recovery::New);
    assert!(matches!(tier.load(&volume(1, 4)), Err(FlashError::Twice)));
    // 60 blocks in 6 segments of 8: the first 12 leave with theirs (16), 44 are left.
    (0..60).for_each(|block| assert_eq!(append(&*device, &mut partition, block, block), Appended::Yes));
    assert_eq!(partition.resident_blocks(), 44);
    assert_eq!(stop(&*device, &tier, partition, 4), Some(44));
    let open = || FlashTier::open(device.clone(), &SETTINGS).unwrap().0;
    let tier = open();
    let (mut partition, recovery) = tier.load(&volume(1, 4)).unwrap();
    assert_eq!(recovery, Recovery::Kept { blocks: 44 });
    for block in 16..60 {
        assert_eq!(read(&*device, &mut partition, block), Some(content(block)));
    }
    assert_eq!(stop(&*device, &tier, partition, 4), Some(44));
    // Another stamp, no stamp, another block size, another volume: nothing is believed, and the record is revoked each time.
    let mut others = [volume(1, 5), volume(1, 4), volume(1, 4), volume(2, 4)];
    others[1].stamp = None;
    others[2].block_size = BlockSize::DEFAULT;
    let expected = [Recovery::OriginDiffers, Recovery::Unprovable, Recovery::BlockSizeChanged, Recovery::New];
    let saved = device.read(0, 27 * 4096).unwrap();
    for (other, expected) in others.iter().zip(expected) {
        device.write(0, &saved).unwrap();
        let (partition, recovery) = open().load(other).unwrap();
        assert_eq!((recovery, partition.resident_blocks()), (expected, 0));
        if other.volume == VolumeId(1) {
            assert_eq!(open().load(&volume(1, 4)).unwrap().1, Recovery::Unclean);
        }
    }
    // Every sector of index and records that is damaged is noticed; blocks are judged when they are read.
    device.write(0, &saved).unwrap();
    let mut kept = 0;
    for sector in 1..27 {
        device.write(0, &saved).unwrap();
        device.change(|bytes| bytes[sector * 4096 + 80] ^= 1);
        match open().load(&volume(1, 4)).unwrap() {
            (mut partition, Recovery::Kept { .. }) => {
                kept += 1;
                for block in 0..60 {
                    assert!(
                        read(&*device, &mut partition, block).is_none_or(|found| found == content(block))
                    );
                }
            }
            (partition, _) => assert!(partition.is_empty()),
        }
    }
    assert!(kept > 12, "{kept}");
}

#[test]
fn a_volume_that_is_served_without_its_share_is_forgotten() {
    let device = Arc::new(MemoryFlash::new(vec![0; 27 * 4096]));
    let open = || FlashTier::open(device.clone(), &SETTINGS).unwrap().0;
    let tier = open();
    let [mut partition, mut other] = [1, 2].map(|number| tier.load(&volume(number, 4)).unwrap().0);
    assert_eq!(append(&*device, &mut partition, 7, 7), Appended::Yes);
    assert_eq!(append(&*device, &mut other, 7, 7), Appended::Yes);
    assert!(matches!(tier.forget(VolumeId(1)), Err(FlashError::Twice)));
    assert_eq!((stop(&*device, &tier, partition, 4), stop(&*device, &tier, other, 4)), (Some(1), Some(1)));
    let tier = open();
    tier.forget(VolumeId(1)).unwrap();
    tier.forget(VolumeId(3)).unwrap();
    let tier = open();
    assert_eq!(tier.load(&volume(1, 4)).unwrap().1, Recovery::Unclean);
    assert_eq!(tier.load(&volume(2, 4)).unwrap().1, Recovery::Kept { blocks: 1 });
}

/// As when a volume has another name for a start, or another way to its data: the device does not see that it is the same.
#[test]
fn a_volume_that_somebody_vouches_for_is_believed_only_if_the_last_start_served_it() {
    let device = Arc::new(MemoryFlash::new(vec![0; 27 * 4096]));
    let open = || FlashTier::open(device.clone(), &SETTINGS).unwrap().0;
    let sized = |number, size_bytes| VolumeSettings {
        stamp: Some(Stamp::Vouched { size_bytes }),
        ..volume(number, 0)
    };
    let vouched = |number| sized(number, 8192);
    let (seen, recovered) = (volume(3, 4), Recovery::Kept { blocks: 1 });
    // One after the other they begin, and then they end.
    let serve = |tier: &FlashTier, volumes: &[VolumeSettings]| -> Vec<Recovery> {
        let begun: Vec<_> = volumes.iter().map(|settings| tier.load(settings).unwrap()).collect();
        let ended = volumes.iter().zip(begun).map(|(settings, (mut partition, recovery))| {
            if partition.is_empty() {
                assert_eq!(append(&*device, &mut partition, 7, 7), Appended::Yes);
            }
            partition.seal_open();
            proceed(&*device, &mut partition);
            assert_eq!(tier.save(partition, settings.stamp).unwrap(), Saved::Kept { blocks: 1 });
            recovery
        });
        ended.collect()
    };
    let both = [seen, vouched(1)];
    assert_eq!(serve(&open(), &both), [Recovery::New; 2]);
    // A start that does not come as far as to serve anything is none.
    drop(open());
    let tier = open();
    assert_eq!(serve(&tier, &both), [recovered; 2]);
    assert_eq!(serve(&tier, &both), [recovered; 2]);
    // By another name, with a share or without one.
    assert_eq!(serve(&open(), &[vouched(2)]), [Recovery::New]);
    assert_eq!(serve(&open(), &both), [recovered, Recovery::NotServed]);
    open().forget(VolumeId(2)).unwrap();
    assert_eq!(serve(&open(), &both), [recovered, Recovery::NotServed]);
    // Cut, and grown again: what lay behind the end is not kept for it.
    assert_eq!(serve(&open(), &[seen, sized(1, 512)]), [recovered, Recovery::OriginDiffers]);
    assert_eq!(serve(&open(), &both), [recovered, Recovery::OriginDiffers]);
    // Read-only ones are kept without being saved, in each start that serves them.
    let read_only = VolumeSettings { read_only: true, ..vouched(1) };
    for _ in 0..3 {
        assert_eq!(open().load(&read_only).unwrap().1, recovered);
    }
    open().forget(VolumeId(2)).unwrap();
    assert_eq!(open().load(&read_only).unwrap().1, Recovery::NotServed);
}

#[test]
fn a_device_of_version_1_keeps_what_its_origins_show() {
    let device = Arc::new(MemoryFlash::new(vec![0; 27 * 4096]));
    let open = || FlashTier::open(device.clone(), &SETTINGS).unwrap();
    let (tier, _) = open();
    // What it kept of an origin that somebody vouched for was always the same, and said nothing of its size.
    for (number, stamp) in [(1, 4), (2, b'v')] {
        let mut partition = tier.load(&volume(number, stamp)).unwrap().0;
        assert_eq!(append(&*device, &mut partition, 7, 7), Appended::Yes);
        assert_eq!(stop(&*device, &tier, partition, stamp), Some(1));
    }
    device.change(|bytes| {
        bytes[8] = 1;
        bytes[32..40].fill(0);
        let checksum = xxhash_rust::xxh3::xxh3_64_with_seed(&bytes[..SECTOR - 8], 0);
        bytes[SECTOR - 8..SECTOR].copy_from_slice(&checksum.to_le_bytes());
    });
    let (tier, opened) = open();
    assert_eq!(opened, Opened::Found);
    assert_eq!(tier.load(&volume(1, 4)).unwrap().1, Recovery::Kept { blocks: 1 });
    let vouched = VolumeSettings { stamp: Some(Stamp::Vouched { size_bytes: 8192 }), ..volume(2, 0) };
    assert_eq!(tier.load(&vouched).unwrap().1, Recovery::OriginDiffers);
    // Who knows of no starts must not use it again.
    assert_eq!(device.read(8, 1).unwrap(), [2]);
}

/// As when the thread that serves it panics: nobody is left to give it back.
#[test]
fn a_share_that_ends_without_a_word_leaves_its_volume_and_its_segments_to_the_next() {
    let device = Arc::new(MemoryFlash::new(vec![0; 27 * 4096]));
    let tier = FlashTier::open(device.clone(), &SETTINGS).unwrap().0;
    for read_only in [false, true] {
        let settings = VolumeSettings { read_only, ..volume(1, 4) };
        let mut partition = tier.load(&settings).unwrap().0;
        assert_eq!(append(&*device, &mut partition, 7, 7), Appended::Yes);
        stop(&*device, &tier, partition, 4).unwrap();
        let mut partition = tier.load(&settings).unwrap().0;
        assert_eq!(append(&*device, &mut partition, 8, 8), Appended::Yes);
        assert!(matches!(tier.load(&settings), Err(FlashError::Twice)));
        drop(partition);
        let (partition, recovery) = tier.load(&settings).unwrap();
        let expected = if read_only { Recovery::Kept { blocks: 1 } } else { Recovery::Unclean };
        assert_eq!((recovery, partition.contains(BlockIndex(8))), (expected, false));
        tier.discard(partition);
        assert_eq!(tier.pool().taken(), 0);
    }
}

#[test]
fn a_read_only_volume_is_kept_through_a_crash() {
    let device = Arc::new(MemoryFlash::new(vec![0; 27 * 4096]));
    let open = || FlashTier::open(device.clone(), &SETTINGS).unwrap().0;
    let settings = VolumeSettings { read_only: true, ..volume(1, 4) };
    let tier = open();
    let mut partition = tier.load(&settings).unwrap().0;
    (0..20).for_each(|block| assert_eq!(append(&*device, &mut partition, block, block), Appended::Yes));
    assert_eq!(stop(&*device, &tier, partition, 4), Some(20));
    for _ in 0..3 {
        // Each start adds blocks and never stops; what was saved stays, unless it was written over.
        let tier = open();
        let (mut partition, recovery) = tier.load(&settings).unwrap();
        assert_eq!(recovery, Recovery::Kept { blocks: 20 });
        (0..20).for_each(|block| assert_eq!(read(&*device, &mut partition, block), Some(content(block))));
        (30..40).for_each(|block| assert_eq!(append(&*device, &mut partition, block, block), Appended::Yes));
        std::mem::forget(partition);
    }
    // Who may write revokes it.
    let _ = open().load(&volume(1, 4)).unwrap();
    assert_eq!(open().load(&settings).unwrap().1, Recovery::Unclean);
}

#[test]
fn what_is_not_ours_is_not_overwritten() {
    let device = Arc::new(MemoryFlash::new([0xeb, 0x3c, 0x90].repeat(40_960)));
    assert!(matches!(
        FlashTier::open(device, &SETTINGS),
        Err(FlashError::Foreign { found: [0xeb, 0x3c, ..] })
    ));
    // Many begin with a blank sector; in a large one the middle is sampled.
    for (size, place) in [(32, 1), (32, 8), (32, 31), (32_768, 384), (32_768, 32_767)] {
        let mut bytes = vec![0; size * 4096];
        bytes[place * 4096 + 4095] = 1;
        let opened = FlashTier::open(Arc::new(MemoryFlash::new(bytes)), &SETTINGS);
        let found = opened.map(|(_, opened)| opened);
        let seen = matches!(found, Err(FlashError::NotEmpty { offset }) if offset == place as u64 * 4096);
        assert!(seen, "{size}, {place}: {found:?}");
    }
    let used: Vec<u8> = [vec![0; 16 * 4096], vec![7; 32_752 * 4096]].concat();
    assert!(matches!(
        FlashTier::open(Arc::new(MemoryFlash::new(used)), &SETTINGS),
        Err(FlashError::NotEmpty { .. })
    ));
    let device = Arc::new(MemoryFlash::new(vec![0; 8 * 4096]));
    assert!(matches!(FlashTier::open(device, &SETTINGS), Err(FlashError::TooSmall { .. })));
}

#[test]
fn one_of_ours_whose_first_sector_was_cleared_is_made_anew() {
    let device = Arc::new(MemoryFlash::new(vec![0; 27 * 4096]));
    let tier = FlashTier::open(device.clone(), &SETTINGS).unwrap().0;
    let mut partition = tier.load(&volume(1, 4)).unwrap().0;
    (0..20).for_each(|block| assert_eq!(append(&*device, &mut partition, block, block), Appended::Yes));
    assert_eq!(stop(&*device, &tier, partition, 4), Some(20));
    drop(tier);
    device.write(0, &[0; 4096]).unwrap();
    // As each formatting has.
    let settings = TierSettings { device_id: SETTINGS.device_id + 1, ..SETTINGS };
    let (tier, opened) = FlashTier::open(device, &settings).unwrap();
    assert_eq!(opened, Opened::New);
    assert_eq!(tier.load(&volume(1, 4)).unwrap().1, Recovery::New);
}

#[test]
fn a_device_that_loses_writes_is_not_trusted_with_a_volume() {
    let faults = FlashFaults { lose_percent: 100, ..FlashFaults::default() };
    let device = Arc::new(FaultyFlash::new(27 * 4096, 1));
    let tier = FlashTier::open(device.clone(), &SETTINGS).unwrap().0;
    let partition = tier.load(&volume(1, 4)).unwrap().0;
    assert_eq!(stop(&*device, &tier, partition, 4), Some(0));
    device.set_faults(faults);
    assert!(matches!(tier.load(&volume(1, 4)), Err(FlashError::NotRevoked)));
}

#[derive(Clone, Debug)]
enum Step {
    /// A miss is filled and demoted.
    Append(u64),
    /// A client writes: the block leaves.
    Write(u64),
    Read(u64),
    /// Stops in order, and starts again.
    Restart,
    /// Power fails, perhaps while stopping or starting, when the device has done so many things more.
    Crash {
        while_stopping: bool,
        after: u64,
    },
    /// Somebody else changes the origin while we are away.
    Foreign(u64),
    Rot,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0u64..60).prop_map(Step::Append),
        3 => (0u64..60).prop_map(Step::Write),
        6 => (0u64..60).prop_map(Step::Read),
        1 => Just(Step::Restart),
        1 => (any::<bool>(), 0u64..12).prop_map(|(while_stopping, after)| Step::Crash { while_stopping, after }),
        1 => (0u64..60).prop_map(Step::Foreign),
        1 => Just(Step::Rot),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn nothing_untrue_survives_any_fault(steps in prop::collection::vec(step(), 0..150), seed in any::<u64>(),
                                         percents in (0u64..8, 0u64..8, 0u64..8, 0u64..8)) {
        let device = Arc::new(FaultyFlash::new(27 * 4096, seed));
        let faults = FlashFaults { tear_percent: percents.0, lose_percent: percents.1, misdirect_percent: percents.2,
                                   fail_percent: percents.3 };
        // The origin: content of each block, and how often it was changed.
        let (mut origin, mut stamp) = (BTreeMap::<u64, u64>::new(), 0u8);
        let mut value = 1000;
        let mut running: Option<(FlashTier, FlashPartition)> = None;
        for step in steps {
            let mut start = false;
            match step {
                Step::Append(block) => if let Some((_, partition)) = &mut running {
                    let value = *origin.entry(block).or_insert(block);
                    // The data path inserts what it has read of the origin.
                    append(&*device, partition, block, value);
                },
                Step::Write(block) => if let Some((_, partition)) = &mut running {
                    value += 1;
                    origin.insert(block, value);
                    // Where somebody vouches for the origin, its stamp tells nothing of our own changes.
                    stamp = stamp.wrapping_add((seed % 2) as u8);
                    partition.invalidate(BlockRange { first: block, end: block + 1 });
                },
                Step::Read(block) => if let Some((_, partition)) = &mut running
                    && let Some(found) = read(&*device, partition, block) {
                        prop_assert_eq!(found, content(origin.get(&block).copied().unwrap_or(block)));
                },
                Step::Restart => {
                    if let Some((tier, partition)) = running.take() {
                        stop(&*device, &tier, partition, stamp);
                    }
                    start = true;
                }
                Step::Crash { while_stopping, after } => {
                    if let Some((tier, partition)) = running.take() {
                        device.stop_after(Some(after));
                        if while_stopping {
                            stop(&*device, &tier, partition, stamp);
                        }
                        device.crash();
                    }
                    start = true;
                }
                Step::Foreign(block) => if running.is_none() {
                    value += 1;
                    origin.insert(block, value);
                    stamp = stamp.wrapping_add(1);
                },
                Step::Rot => device.flip_bit(),
            }
            if start && seed % 5 != 0 || running.is_none() {
                device.set_faults(faults);
                let tier = FlashTier::open(device.clone(), &SETTINGS);
                if let Ok((tier, _)) = tier && let Ok((partition, _)) = tier.load(&volume(1, stamp)) {
                    running = Some((tier, partition));
                }
            }
        }
        if let Some((_, partition)) = &mut running {
            for block in 0..60 {
                if let Some(found) = read(&*device, partition, block) {
                    prop_assert_eq!(found, content(origin.get(&block).copied().unwrap_or(block)));
                }
            }
        }
    }
}
