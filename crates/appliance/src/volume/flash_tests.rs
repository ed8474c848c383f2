//! The tier on flash by hand: what goes there, what is answered from it, and what a change leaves of it.

use super::tests::{BLOCK, complete, machine_with, ranges, read, replies, submissions, write};
use super::*;
use forebay_cache::flash::{FlashPartition, Geometry, PartitionSettings, SegmentPool, VolumeId};
use forebay_origin::{OriginCompletion, OriginError, OriginOperation, OriginRequest};
use forebay_policy::placement::{Admission, Placing};
use forebay_units::{BlockSize, ByteRange, Bytes, Nanos};

pub(super) fn machine_with_flash(quota_blocks: u64) -> VolumeMachine {
    machine_with_flash_and(quota_blocks, VolumeLimits::default())
}

fn machine_with_flash_and(quota_blocks: u64, limits: VolumeLimits) -> VolumeMachine {
    let geometry = Geometry { segment_bytes: BLOCK as u32, segments: 8, records: 1 };
    let mut machine = machine_with(quota_blocks, limits);
    machine.attach_flash(FlashPartition::new(PartitionSettings {
        device_id: 1,
        volume: VolumeId(2),
        geometry,
        block_size: BlockSize::DEFAULT,
        quota_segments: 8,
        next_sequence: 1,
        seed: 3,
        pool: SegmentPool::new(geometry.segments),
    }));
    machine
}

pub(super) fn flash_submissions(machine: &mut VolumeMachine) -> Vec<OriginRequest> {
    let mut requests = Vec::new();
    machine.take_flash_submissions(Nanos::ZERO, &mut requests);
    requests
}

/// Reads a block that the origin fills with `fill`.
pub(super) fn fill(machine: &mut VolumeMachine, block: u64, fill: u8) {
    assert_eq!(read(machine, 1000 + block, block * BLOCK, 1), None);
    let requests = submissions(machine);
    assert_eq!((requests.len(), flash_submissions(machine).len()), (1, 0));
    complete(machine, &requests[0], fill);
    assert_eq!(replies(machine), [(1000 + block, Ok(vec![fill]))]);
}

/// Writes what waits for flash, and returns where block after block went.
pub(super) fn demote_all(machine: &mut VolumeMachine) -> Vec<u64> {
    let mut offsets = Vec::new();
    for request in flash_submissions(machine) {
        offsets.push(request.operation.range().offset);
        complete(machine, &request, 0);
    }
    offsets
}

/// Memory holds the second block, which is 0xb, and the flash device the first, which is 0xa.
pub(super) fn machine_with_a_block_on_flash() -> VolumeMachine {
    let mut machine = machine_with_flash(1);
    fill(&mut machine, 0, 0xa);
    fill(&mut machine, 1, 0xb);
    demote_all(&mut machine);
    machine
}

#[test]
fn what_memory_evicts_is_found_on_flash_and_comes_back() {
    let mut machine = machine_with_flash(1);
    fill(&mut machine, 0, 0xa);
    fill(&mut machine, 1, 0xb);
    // Block 0 made room. As long as it is on its way, its buffer answers.
    assert_eq!(read(&mut machine, 1, 0, 2), None);
    assert_eq!(replies(&mut machine), [(1, Ok(vec![0xa; 2]))]);
    let offsets = demote_all(&mut machine);
    assert_eq!(offsets.len(), 1);
    assert_eq!(read(&mut machine, 2, 5, 3), None);
    let asked = flash_submissions(&mut machine);
    assert_eq!(asked[0].operation, OriginOperation::Read { range: ByteRange::new(offsets[0], BLOCK) });
    // A second reader joins.
    assert_eq!(read(&mut machine, 3, 0, 1), None);
    complete(&mut machine, &asked[0], 0xa);
    assert_eq!(replies(&mut machine), [(2, Ok(vec![0xa; 3])), (3, Ok(vec![0xa]))]);
    // It is in memory again, for which block 1 went to flash.
    assert_eq!(read(&mut machine, 4, 0, 1), Some(vec![0xa]));
    assert_eq!((demote_all(&mut machine).len(), submissions(&mut machine).len()), (1, 0));
    let seen = machine.observe(Nanos::ZERO, false);
    let flash = seen.flash.unwrap();
    assert_eq!(
        (seen.counters.reads_flash, flash.statistics.hits, flash.statistics.resident_blocks),
        (3, 2, 2)
    );
}

#[test]
fn a_block_that_is_not_what_was_written_is_asked_of_the_origin() {
    let mut machine = machine_with_a_block_on_flash();
    assert_eq!(read(&mut machine, 1, 0, 1), None);
    let asked = flash_submissions(&mut machine);
    complete(&mut machine, &asked[0], 0xc);
    assert_eq!(replies(&mut machine), []);
    // Another reader joins what is asked of the origin now.
    assert_eq!(read(&mut machine, 2, 0, 1), None);
    let asked = submissions(&mut machine);
    assert_eq!((asked.len(), flash_submissions(&mut machine).len()), (1, 0));
    complete(&mut machine, &asked[0], 0xa);
    assert_eq!(replies(&mut machine), [(1, Ok(vec![0xa])), (2, Ok(vec![0xa]))]);
    assert_eq!(machine.observe(Nanos::ZERO, false).flash.unwrap().statistics.corrupt, 1);
}

#[test]
fn a_change_takes_its_blocks_off_flash_before_it_is_answered() {
    let mut machine = machine_with_a_block_on_flash();
    machine.request(
        Nanos::ZERO,
        RequestTag(1),
        ClientOperation::Write { offset: 0, data: vec![7; 512], fua: false },
    );
    let written = submissions(&mut machine);
    // Served old until the change is done, and not kept.
    assert_eq!(read(&mut machine, 2, 0, 1), None);
    let asked = flash_submissions(&mut machine);
    complete(&mut machine, &asked[0], 0xa);
    assert_eq!(replies(&mut machine), [(2, Ok(vec![0xa]))]);
    complete(&mut machine, &written[0], 0);
    assert_eq!(replies(&mut machine), [(1, Ok(Vec::new()))]);
    assert_eq!(read(&mut machine, 3, 0, 1), None);
    assert_eq!((flash_submissions(&mut machine).len(), submissions(&mut machine).len()), (0, 1));
}

/// As it leaves memory, and for the same reason: its blocks are not looked up part by part.
#[test]
fn a_long_change_takes_its_range_off_flash_with_the_first_part() {
    let limits = VolumeLimits { patched_blocks_max: 4, ..VolumeLimits::default() };
    for zeroes in [false, true] {
        let mut machine = machine_with_flash_and(1, limits);
        // One block of the second part, one behind the change, and one in memory.
        for block in [5, 6, 7] {
            fill(&mut machine, block, 0xa);
            demote_all(&mut machine);
        }
        let range = ByteRange::new(0, 6 * BLOCK);
        let operation = match zeroes {
            true => ClientOperation::WriteZeroes { range, may_trim: true, fua: false, fast: false },
            false => ClientOperation::Trim { range, fua: false },
        };
        machine.request(Nanos::ZERO, RequestTag(1), operation);
        let parts = submissions(&mut machine);
        assert_eq!(ranges(&parts), [(0, 4 * BLOCK), (4 * BLOCK, 2 * BLOCK)]);
        let on_flash = |machine: &mut VolumeMachine| {
            machine.observe(Nanos::ZERO, false).flash.unwrap().statistics.resident_blocks
        };
        assert_eq!(on_flash(&mut machine), 2);
        complete(&mut machine, &parts[0], 0);
        assert_eq!(on_flash(&mut machine), 1);
        // It is asked of the origin, and not kept: it may be as it was before the second part.
        assert_eq!(read(&mut machine, 2, 5 * BLOCK, 1), None);
        let asked = submissions(&mut machine);
        assert_eq!((asked.len(), flash_submissions(&mut machine).len()), (1, 0));
        complete(&mut machine, &asked[0], 0xa);
        assert_eq!(replies(&mut machine), [(2, Ok(vec![0xa]))]);
        complete(&mut machine, &parts[1], 0);
        assert_eq!(replies(&mut machine), [(1, Ok(Vec::new()))]);
        demote_all(&mut machine);
        // The one behind the change is on flash still.
        assert_eq!(read(&mut machine, 3, 6 * BLOCK, 1), None);
        assert_eq!((flash_submissions(&mut machine).len(), submissions(&mut machine).len()), (1, 0));
    }
}

/// What leaves memory for a block that enters with a change was changed by it too.
#[test]
fn what_makes_room_for_a_changed_block_goes_to_flash_changed() {
    let mut machine = machine_with_flash(1);
    fill(&mut machine, 1, 0xb);
    assert_eq!(read(&mut machine, 1, 0, 1), None);
    let overtaken = submissions(&mut machine);
    write(&mut machine, 2, 0, 2 * BLOCK as usize, 7);
    let change = submissions(&mut machine);
    complete(&mut machine, &change[0], 0);
    assert_eq!(read(&mut machine, 3, 0, 1), Some(vec![7]), "it entered");
    demote_all(&mut machine);
    assert_eq!(read(&mut machine, 4, BLOCK, 1), None, "the other one is on flash");
    let asked = flash_submissions(&mut machine);
    complete(&mut machine, &asked[0], 7);
    complete(&mut machine, &overtaken[0], 0);
    let answers = replies(&mut machine);
    assert!(answers.contains(&(4, Ok(vec![7]))), "{answers:?}");
    // A checksum of anything else on flash would have sent the read to the origin.
    assert_eq!(submissions(&mut machine).len(), 0);
}

#[test]
fn a_marked_fill_takes_what_it_brought_off_flash() {
    let mut machine = machine_with_flash(1);
    assert_eq!(read(&mut machine, 1, 0, 1), None);
    let old_fill = submissions(&mut machine).remove(0);
    let write = |tag| (RequestTag(tag), ClientOperation::Write { offset: 0, data: vec![7; 512], fua: false });
    let (tag, operation) = write(2);
    machine.request(Nanos::ZERO, tag, operation);
    let written = submissions(&mut machine);
    complete(&mut machine, &written[0], 0);
    replies(&mut machine);
    // The block is filled anew, and goes to flash.
    fill(&mut machine, 0, 0xa);
    fill(&mut machine, 1, 0xb);
    demote_all(&mut machine);
    // A second change is applied but not complete when the old fill looks: its reader sees it, and so must who comes later.
    let (tag, operation) = write(3);
    machine.request(Nanos::ZERO, tag, operation);
    assert_eq!(submissions(&mut machine).len(), 1);
    complete(&mut machine, &old_fill, 7);
    assert_eq!(replies(&mut machine), [(1, Ok(vec![7]))]);
    assert_eq!(read(&mut machine, 4, 0, 1), None);
    assert_eq!((flash_submissions(&mut machine).len(), submissions(&mut machine).len()), (0, 1));
}

#[test]
fn a_placement_hears_nothing_of_the_migrations_of_one_before_it() {
    let mut machine = machine_with_flash(1);
    let placing = Placing { admission: Admission::Lru, ..Placing::default() };
    let how = FlashPlacing { placing, chunk: Bytes(2 * BLOCK) };
    machine.set_flash_placing(Some(how));
    fill(&mut machine, 4, 7);
    let migration = submissions(&mut machine);
    assert_eq!(
        ranges(&migration),
        [(5 * BLOCK, BLOCK)],
        "the other block of its chunk is on its way to flash"
    );
    machine.set_flash_placing(None);
    machine.set_flash_placing(Some(how));
    complete(&mut machine, &migration[0], 7);
    let placing = machine.observe(Nanos::ZERO, false).flash.and_then(|flash| flash.placing);
    assert_eq!(placing.map(|placing| (placing.placed_chunks, placing.moving_chunks)), Some((0, 0)));
}

/// As where a read of a run joins the migration of its chunk, the rest of which is in memory then.
#[test]
fn a_sequential_run_goes_on_over_what_memory_answers() {
    let mut machine = machine_with_flash(8);
    [3, 4, 7].into_iter().for_each(|block| fill(&mut machine, block, 7));
    let placing = Placing { admission: Admission::Threshold(1), ..Placing::default() };
    machine.set_flash_placing(Some(FlashPlacing { placing, chunk: Bytes(2 * BLOCK) }));
    // Of the last two memory has the first block.
    for (offset, length) in [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 2), (7, 2), (9, 1)] {
        if read(&mut machine, 10 + offset, offset * BLOCK, length * BLOCK).is_none() {
            for request in submissions(&mut machine) {
                complete(&mut machine, &request, 7);
            }
            replies(&mut machine);
        }
    }
    let placing = machine.observe(Nanos::ZERO, false).flash.and_then(|flash| flash.placing).unwrap();
    // Chunks, of blocks 0, 1, 2, 5 and 6, 8, 9: the first one is no run yet.
    assert_eq!((placing.statistics.reads, placing.statistics.sequential), (7, 6), "{placing:?}");
}

#[test]
fn what_placements_did_goes_on_to_count_when_another_begins() {
    let mut machine = machine_with_flash(1);
    let how = |admission| FlashPlacing {
        placing: Placing { admission, ..Placing::default() },
        chunk: Bytes(2 * BLOCK),
    };
    machine.set_flash_placing(Some(how(Admission::Lru)));
    fill(&mut machine, 4, 7);
    let placed = |machine: &mut VolumeMachine| {
        let placing = machine.observe(Nanos::ZERO, false).flash.and_then(|flash| flash.placing).unwrap();
        (placing.statistics.promotions, placing.in_all.promotions, placing.in_all.reads)
    };
    assert_eq!(placed(&mut machine), (1, 1, 1));
    // Another quota, another unit, none in between.
    machine.set_flash_quota(Bytes(1 << 20));
    assert_eq!(placed(&mut machine), (0, 1, 1));
    machine.set_flash_placing(Some(FlashPlacing { chunk: Bytes(4 * BLOCK), ..how(Admission::Lru) }));
    assert_eq!(placed(&mut machine), (0, 1, 1));
    machine.set_flash_placing(None);
    machine.set_flash_placing(Some(how(Admission::Larc)));
    assert_eq!(placed(&mut machine), (0, 1, 1));
    machine.set_flash_placing(Some(how(Admission::Lru)));
    fill(&mut machine, 8, 7);
    assert_eq!(placed(&mut machine), (1, 2, 2));
}

/// What memory evicts of chunks that are placed is written to flash, again where its copy there is old.
#[test]
fn who_is_left_out_has_nothing_written_to_flash_whatever_is_read() {
    let mut machine = machine_with_flash(1);
    let placing = Placing { admission: Admission::Lru, ..Placing::default() };
    machine.set_flash_placing(Some(FlashPlacing { placing, chunk: Bytes(BLOCK) }));
    let [counted, left_out] = ["uid:1", "uid:2"].map(|client| client.parse().unwrap());
    machine.leave_out_of_flash([left_out].into());
    machine.asked_by(counted);
    for block in 0..5 {
        fill(&mut machine, block, 0xa);
        demote_all(&mut machine);
    }
    let entered = |machine: &mut VolumeMachine| {
        let flash = machine.observe(Nanos::ZERO, false).flash.unwrap();
        (flash.statistics.appended, flash.statistics.invalidations, flash.placing.unwrap().placed_chunks)
    };
    assert_eq!(entered(&mut machine).0, 4, "the last one is in memory");
    // Blocks 0 to 3 are on flash; a change takes block 3 off it, whose chunk keeps its place.
    write(&mut machine, 1, 3 * BLOCK, BLOCK as usize, 7);
    let change = submissions(&mut machine);
    complete(&mut machine, &change[0], 0);
    assert_eq!(replies(&mut machine), [(1, Ok(Vec::new()))]);
    let before = entered(&mut machine);
    machine.asked_by(left_out);
    for block in [0, 1, 2, 3].repeat(3) {
        assert_eq!(read(&mut machine, 2, block * BLOCK, 1), None, "it did not enter memory");
        let (asked, of_flash) = (submissions(&mut machine), flash_submissions(&mut machine));
        assert_eq!((asked.len(), of_flash.len()), if block == 3 { (1, 0) } else { (0, 1) });
        let content = if block == 3 { 7 } else { 0xa };
        complete(&mut machine, asked.iter().chain(&of_flash).next().unwrap(), content);
        assert_eq!(replies(&mut machine), [(2, Ok(vec![content]))]);
        assert_eq!(demote_all(&mut machine), [], "block {block}");
    }
    assert_eq!((entered(&mut machine), before.0), (before, 4));
    // What somebody else waits for as well is cached as ever.
    assert_eq!(read(&mut machine, 3, 0, 1), None);
    let asked = flash_submissions(&mut machine);
    machine.asked_by(counted);
    assert_eq!(read(&mut machine, 4, 0, 1), None);
    complete(&mut machine, &asked[0], 0xa);
    assert_eq!(replies(&mut machine), [(3, Ok(vec![0xa])), (4, Ok(vec![0xa]))]);
    assert_eq!(read(&mut machine, 5, 0, 1), Some(vec![0xa]));
}

#[test]
fn flash_is_kept_only_after_a_flush() {
    for flushes in [true, false] {
        let mut machine = machine_with_flash(1);
        fill(&mut machine, 0, 0xa);
        fill(&mut machine, 1, 0xb);
        machine.drain();
        let asked = submissions(&mut machine);
        assert_eq!(asked[0].operation, OriginOperation::Flush);
        demote_all(&mut machine);
        assert!(!machine.is_idle());
        let failed = OriginError::Failed { errno: 5, context: String::new() };
        let result = if flushes { Ok(Vec::new()) } else { Err(failed) };
        machine.complete(Nanos::ZERO, OriginCompletion { id: asked[0].id, result });
        assert!(machine.is_idle());
        assert_eq!(machine.into_flash().unwrap().1, flushes);
    }
}
