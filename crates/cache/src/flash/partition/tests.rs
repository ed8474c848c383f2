//! The log and its index by hand, and against faulty devices.

use super::*;
use forebay_units::Bytes;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn settings(segments: u32, per_segment: u32, quota_segments: u32) -> PartitionSettings {
    let geometry = Geometry { segment_bytes: per_segment * 512, segments, records: 1 };
    PartitionSettings {
        device_id: 1,
        volume: VolumeId(2),
        geometry,
        block_size: BlockSize::new(Bytes(512)).unwrap(),
        quota_segments,
        next_sequence: 1 << 32,
        seed: 5,
        pool: SegmentPool::new(segments),
    }
}

fn content(value: u64) -> Vec<u8> {
    value.to_le_bytes().repeat(64)
}

/// A device that does what it is told at once, unless it is told not to.
struct Device {
    bytes: Vec<u8>,
}

impl Device {
    fn new(settings: &PartitionSettings) -> Device {
        Device { bytes: vec![0; settings.geometry.end() as usize] }
    }

    fn write(&mut self, write: &FlashWrite) {
        let at = write.offset as usize;
        self.bytes[at..at + write.data.len()].copy_from_slice(&write.data);
    }

    fn read(&self, address: FlashAddress) -> Vec<u8> {
        self.bytes[address.offset as usize..][..512].to_vec()
    }
}

/// What the partition says `block` holds; a block that fails its judgement is gone.
fn read(partition: &mut FlashPartition, device: &Device, block: u64) -> Option<Vec<u8>> {
    let block = BlockIndex(block);
    if let Some(bytes) = partition.buffered(block) {
        return Some(bytes.to_vec());
    }
    let address = partition.address(block)?;
    let bytes = device.read(address);
    let is_right = partition.judge(block, address, Some(&bytes));
    assert!(is_right || partition.address(block) != Some(address));
    is_right.then_some(bytes)
}

#[test]
fn the_oldest_segment_leaves_and_what_was_used_stays() {
    let settings = settings(9, 2, 2);
    let mut device = Device::new(&settings);
    let mut partition = FlashPartition::new(settings);
    let mut append = |partition: &mut FlashPartition, block| {
        assert_eq!(partition.append(BlockIndex(block), &content(block)), Appended::Yes);
        while let Some(write) = partition.take_write() {
            device.write(&write);
            partition.write_ended(write.sequence, true);
        }
    };
    (0..4).for_each(|block| append(&mut partition, block));
    // Two segments of two: 0, 1 and 2, 3. The first is one segment old, the second none.
    assert!(
        !partition.keeps(BlockIndex(0)) && partition.keeps(BlockIndex(2)) && !partition.keeps(BlockIndex(9))
    );
    append(&mut partition, 0);
    // The first segment was reclaimed for it: 1 left.
    assert!(!partition.contains(BlockIndex(1)));
    append(&mut partition, 4);
    let found: Vec<u64> = (0..6).filter(|block| partition.contains(BlockIndex(*block))).collect();
    assert_eq!(found, [0, 2, 3, 4]);
    for block in found {
        assert_eq!(read(&mut partition, &device, block), Some(content(block)));
    }
    assert_eq!((partition.statistics().hits, partition.settings.pool.taken()), (4, 2));
    partition.set_quota(0);
    while partition.wants_step() {
        partition.step();
    }
    assert_eq!((partition.resident_blocks(), partition.settings.pool.taken()), (0, 0));
    assert_eq!(partition.append(BlockIndex(1), &content(1)), Appended::Refused);
}

/// It will be there for a while: nothing is written anew before the quota is full.
#[test]
fn what_is_old_is_kept_as_it_is_while_there_is_room() {
    for (quota, keeps) in [(2, [false, true]), (3, [true, true]), (8, [true, true])] {
        let mut partition = FlashPartition::new(settings(9, 2, quota));
        for block in 0..4 {
            assert_eq!(partition.append(BlockIndex(block), &content(block)), Appended::Yes);
        }
        assert_eq!([0, 2].map(|block| partition.keeps(BlockIndex(block))), keeps, "{quota}");
    }
}

#[test]
fn torn_lost_misdirected_and_rotten_blocks_are_misses() {
    let settings = settings(9, 2, 8);
    let mut device = Device::new(&settings);
    let mut partition = FlashPartition::new(settings);
    let mut writes = Vec::new();
    for block in 0..8 {
        partition.append(BlockIndex(block), &content(block));
        writes.extend(partition.take_write());
    }
    for write in &writes {
        partition.write_ended(write.sequence, true);
    }
    // Blocks 0, 1: written, one bit of 1 flips. 2, 3: lost. 4, 5: torn in the middle of 5. 6, 7: written to where 0, 1 are.
    device.write(&writes[0]);
    device.bytes[writes[0].offset as usize + 600] ^= 4;
    let mut torn = writes[2].clone();
    torn.data.truncate(700);
    device.write(&torn);
    let answers: Vec<bool> = (0..8).map(|block| read(&mut partition, &device, block).is_some()).collect();
    assert_eq!(answers, [true, false, false, false, true, false, false, false]);
    let misdirected = FlashWrite { offset: writes[0].offset, ..writes[3].clone() };
    device.write(&misdirected);
    assert_eq!(read(&mut partition, &device, 0), None);
    assert_eq!(partition.statistics().corrupt, 7);
    assert_eq!(partition.resident_blocks(), 1);
}

#[test]
fn an_older_content_of_the_same_block_at_the_same_place_is_not_believed() {
    let settings = settings(2, 1, 1);
    let mut device = Device::new(&settings);
    let mut partition = FlashPartition::new(settings);
    for value in [7, 7, 8] {
        partition.append(BlockIndex(3), &content(value));
        let write = partition.take_write().unwrap();
        if value == 7 && device.bytes.iter().all(|byte| *byte == 0) {
            device.write(&write);
        }
        partition.write_ended(write.sequence, true);
    }
    // The second and third write were lost: what is there is block 3 with the content of the first.
    assert_eq!(read(&mut partition, &device, 3), None);
}

#[test]
fn the_index_is_at_most_32_bytes_per_block() {
    // Method: the capacity of every allocation of the index, divided by the resident blocks: 1 GiB of 4 KiB blocks in segments of
    // 1 MiB. Blocks of the test are 512 bytes in segments of 128 KiB, which makes 256 to a segment as well.
    let settings = settings(1100, 256, 1024);
    let mut partition = FlashPartition::new(settings);
    for block in 0..1024 * 256u64 {
        assert_eq!(partition.append(BlockIndex(block * 3), &[0; 512]), Appended::Yes);
        while let Some(write) = partition.take_write() {
            partition.write_ended(write.sequence, true);
        }
    }
    let per_block = partition.footprint_bytes() as f64 / f64::from(partition.resident_blocks());
    assert!(per_block <= 25.0, "{per_block} bytes per block");
    // All that memory holds on flash, too, four times as large: each block's share of the index of memory (28 bytes, tests of `cached`) and its own.
    assert!(28.0 / 4.0 + per_block <= 32.0, "{per_block} bytes per block");
    assert_eq!(partition.buffered_bytes(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Append { block: u64 },
    Invalidate { first: u64, count: u64 },
    Read { block: u64 },
    End { which: usize, is_done: bool },
    Quota(u32),
    GiveBack,
    Rot { at: usize },
    Seal,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0u64..40).prop_map(|block| Step::Append { block }),
        2 => (0u64..40, 0u64..20).prop_map(|(first, count)| Step::Invalidate { first, count }),
        8 => (0u64..40).prop_map(|block| Step::Read { block }),
        5 => (0usize..8, 0u32..8).prop_map(|(which, luck)| Step::End { which, is_done: luck > 0 }),
        1 => (0u32..8).prop_map(Step::Quota),
        2 => Just(Step::GiveBack),
        1 => any::<usize>().prop_map(|at| Step::Rot { at }),
        1 => Just(Step::Seal),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn what_is_answered_is_what_was_appended_last(steps in prop::collection::vec(step(), 0..200), per_segment in 1u32..5) {
        let settings = settings(10, per_segment, 5);
        let pool = settings.pool.clone();
        let mut device = Device::new(&settings);
        let first = settings.geometry.first_segment() as usize;
        let mut partition = FlashPartition::new(settings);
        // What is true of each block that may be resident.
        let mut model: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut underway: Vec<FlashWrite> = Vec::new();
        let (mut value, mut rotten) = (1000, false);
        for step in steps {
            match step {
                Step::Append { block } => {
                    value += 1;
                    let before = partition.contains(BlockIndex(block));
                    match partition.append(BlockIndex(block), &content(value)) {
                        Appended::Yes => { model.insert(block, content(value)); }
                        // What was here stays: the data path invalidates what it could not replace.
                        Appended::Refused => prop_assert!(before == partition.contains(BlockIndex(block))),
                    }
                }
                Step::Invalidate { first, count } => {
                    partition.invalidate(BlockRange { first, end: first + count });
                    (first..first + count).for_each(|block| { model.remove(&block); });
                    prop_assert!((first..first + count).all(|block| !partition.contains(BlockIndex(block))));
                }
                Step::Read { block } => {
                    let was_here = partition.contains(BlockIndex(block));
                    match read(&mut partition, &device, block) {
                        Some(bytes) => prop_assert_eq!(Some(&bytes), model.get(&block)),
                        None => prop_assert!(!was_here || rotten),
                    }
                }
                Step::End { which, is_done } if !underway.is_empty() => {
                    let write = underway.swap_remove(which % underway.len());
                    if is_done {
                        device.write(&write);
                    }
                    partition.write_ended(write.sequence, is_done);
                }
                Step::End { .. } => {}
                Step::Quota(quota) => partition.set_quota(quota),
                Step::GiveBack => partition.step(),
                Step::Rot { at } => {
                    let place = first + at % (device.bytes.len() - first);
                    device.bytes[place] ^= 0x10;
                    rotten = true;
                }
                Step::Seal => partition.seal_open(),
            }
            underway.extend(std::iter::from_fn(|| partition.take_write()));
            prop_assert!(underway.len() <= WRITES_MAX + 1);
            prop_assert_eq!(pool.taken(), partition.segments());
            let live: u32 = partition.frames.iter().map(|frame| frame.live).sum();
            prop_assert_eq!(live, partition.resident_blocks());
        }
        let mut blocks = 0;
        for write in std::mem::take(&mut underway) {
            device.write(&write);
            partition.write_ended(write.sequence, true);
        }
        while partition.wants_step() { partition.step(); }
        prop_assert!(partition.segments() <= partition.quota_segments().max(u32::from(partition.open.is_some())));
        for block in 0..60 {
            if let Some(bytes) = read(&mut partition, &device, block) {
                prop_assert_eq!(Some(&bytes), model.get(&block));
                blocks += 1;
            }
        }
        prop_assert!(blocks <= partition.segments() * per_segment);
        drop(partition);
        prop_assert_eq!(pool.taken(), 0);
    }
}
