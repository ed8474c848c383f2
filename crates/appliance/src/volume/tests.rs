//! The machine by hand: one rule per test, with a volume of 4 KiB blocks and an origin that the test plays itself.

use super::flash_tests::machine_with_flash;
use super::*;
use forebay_cache::Insertion;
use forebay_nbd::wire::{AllocationFlags, Extent, Extents};
use forebay_origin::{OriginCompletion, OriginError, OriginOperation, OriginRequest, OriginTraits};
use forebay_units::{BlockSize, ByteRange, Bytes, Nanos, Ratio};

pub(super) const BLOCK: u64 = 4096;
/// Ten blocks and 100 bytes.
pub(super) const SIZE: u64 = 10 * BLOCK + 100;

pub(super) fn machine(quota_blocks: u64) -> VolumeMachine {
    machine_with(quota_blocks, VolumeLimits::default())
}

pub(super) fn machine_with(quota_blocks: u64, limits: VolumeLimits) -> VolumeMachine {
    let settings = VolumeSettings {
        origin: OriginTraits {
            size_bytes: SIZE,
            read_only: false,
            block_size_min: 512,
            block_size_preferred: 4096,
            request_bytes_max: 16384,
            can_trim: true,
            can_fast_zero: true,
            can_multi_conn: true,
        },
        read_only: false,
        block_size: BlockSize::DEFAULT,
        quota: Bytes(quota_blocks * BLOCK),
        single_touch_share: Ratio::clamped(0.2),
        seed: 1,
        locality: None,
        limits,
    };
    VolumeMachine::new(settings, Nanos::ZERO).unwrap()
}

pub(super) fn read(machine: &mut VolumeMachine, tag: u64, offset: u64, length: u64) -> Option<Vec<u8>> {
    let mut output = Vec::new();
    let range = ByteRange::new(offset, length);
    let outcome = machine.read(Nanos::ZERO, RequestTag(tag), range, &mut output);
    (outcome == ReadOutcome::Served).then_some(output)
}

pub(super) fn submissions(machine: &mut VolumeMachine) -> Vec<OriginRequest> {
    let mut requests = Vec::new();
    machine.take_submissions(Nanos::ZERO, &mut requests);
    requests
}

pub(super) fn replies(machine: &mut VolumeMachine) -> Vec<(u64, Result<Vec<u8>, Errno>)> {
    let mut replies = Vec::new();
    machine.take_replies(&mut replies);
    replies.into_iter().map(|reply| (reply.tag.0, reply.result)).collect()
}

/// Completes a request; reads are answered with bytes of `fill`.
pub(super) fn complete(machine: &mut VolumeMachine, request: &OriginRequest, fill: u8) {
    let data = match &request.operation {
        OriginOperation::Read { range } => vec![fill; range.length as usize],
        _ => Vec::new(),
    };
    machine.complete(Nanos::ZERO, OriginCompletion { id: request.id, result: Ok(data) });
}

pub(super) fn fail(machine: &mut VolumeMachine, request: &OriginRequest, error: OriginError) {
    machine.complete(Nanos::ZERO, OriginCompletion { id: request.id, result: Err(error) });
}

pub(super) fn write(machine: &mut VolumeMachine, tag: u64, offset: u64, length: usize, fill: u8) {
    let operation = ClientOperation::Write { offset, data: vec![fill; length], fua: false };
    machine.request(Nanos::ZERO, RequestTag(tag), operation);
}

pub(super) fn ranges(requests: &[OriginRequest]) -> Vec<(u64, u64)> {
    requests
        .iter()
        .map(|request| request.operation.range())
        .map(|range| (range.offset, range.length))
        .collect()
}

#[test]
fn readers_of_one_block_make_one_origin_read() {
    let mut machine = machine(10);
    for tag in 0..5 {
        assert_eq!(read(&mut machine, tag, 100 + tag, 200), None);
    }
    let requests = submissions(&mut machine);
    assert_eq!(ranges(&requests), [(0, BLOCK)]);
    complete(&mut machine, &requests[0], 7);
    assert_eq!(replies(&mut machine), (0..5).map(|tag| (tag, Ok(vec![7; 200]))).collect::<Vec<_>>());
    assert_eq!(read(&mut machine, 9, 0, BLOCK), Some(vec![7; 4096]));
    assert_eq!(machine.counters().reads_coalesced, 4);
}

#[test]
fn adjacent_misses_of_a_batch_merge_up_to_the_longest_request() {
    let mut machine = machine(20);
    for block in 0..6 {
        read(&mut machine, block, block * BLOCK, BLOCK);
    }
    // The origin takes 16 KiB, four blocks: 0..4 and 4..6.
    let requests = submissions(&mut machine);
    assert_eq!(ranges(&requests), [(0, 4 * BLOCK), (4 * BLOCK, 2 * BLOCK)]);
    // Submitted reads are not lengthened any more.
    read(&mut machine, 6, 6 * BLOCK, BLOCK);
    assert_eq!(ranges(&submissions(&mut machine)), [(6 * BLOCK, BLOCK)]);
    assert_eq!(machine.counters().reads_merged, 4);
}

#[test]
fn the_last_block_is_as_long_as_it_is() {
    let mut machine = machine(20);
    read(&mut machine, 0, 9 * BLOCK + 10, BLOCK + 90);
    let requests = submissions(&mut machine);
    assert_eq!(ranges(&requests), [(9 * BLOCK, BLOCK + 100)]);
    complete(&mut machine, &requests[0], 3);
    assert_eq!(replies(&mut machine), [(0, Ok(vec![3; 4186]))]);
    assert_eq!(read(&mut machine, 1, 10 * BLOCK, 100), Some(vec![3; 100]));
    let mut output = Vec::new();
    let beyond = machine.read(Nanos::ZERO, RequestTag(2), ByteRange::new(10 * BLOCK, 101), &mut output);
    assert_eq!(beyond, ReadOutcome::Refused(Errno::INVALID));
    let overflow = machine.read(Nanos::ZERO, RequestTag(3), ByteRange::new(u64::MAX, 2), &mut output);
    assert_eq!(overflow, ReadOutcome::Refused(Errno::INVALID));
    assert_eq!(read(&mut machine, 4, 5, 0), Some(Vec::new()));
}

#[test]
fn without_a_quota_requests_pass_as_they_are() {
    let mut machine = machine(0);
    // 700..1,300 in units of 512: 512..1,536.
    read(&mut machine, 0, 700, 600);
    let requests = submissions(&mut machine);
    assert_eq!(ranges(&requests), [(512, 1024)]);
    complete(&mut machine, &requests[0], 1);
    assert_eq!(replies(&mut machine), [(0, Ok(vec![1; 600]))]);
    // Longer than the origin's 16 KiB: in pieces.
    read(&mut machine, 1, 0, 5 * BLOCK);
    let requests = submissions(&mut machine);
    assert_eq!(ranges(&requests), [(0, 16384), (16384, 4096)]);
    complete(&mut machine, &requests[1], 2);
    assert_eq!(replies(&mut machine), []);
    complete(&mut machine, &requests[0], 1);
    assert_eq!(replies(&mut machine), [(1, Ok([vec![1; 16384], vec![2; 4096]].concat()))]);
    assert_eq!(read(&mut machine, 2, 0, 512), None);
}

#[test]
fn a_fill_that_a_write_overtook_answers_its_readers_and_is_dropped() {
    let mut machine = machine(10);
    read(&mut machine, 0, 0, BLOCK);
    let fill = submissions(&mut machine);
    write(&mut machine, 1, 512, 512, 9);
    let change = submissions(&mut machine);
    // A later reader does not join the old fill.
    read(&mut machine, 2, 0, BLOCK);
    let second = submissions(&mut machine);
    assert_eq!(ranges(&second), [(0, BLOCK)]);
    complete(&mut machine, &change[0], 0);
    complete(&mut machine, &fill[0], 1);
    assert_eq!(replies(&mut machine), [(1, Ok(vec![])), (0, Ok(vec![1; 4096]))]);
    complete(&mut machine, &second[0], 2);
    assert_eq!(machine.counters().fills_dropped, 2);
    assert_eq!(read(&mut machine, 3, 0, BLOCK), None, "neither fill may have been inserted");
}

#[test]
fn a_block_that_a_read_missed_enters_with_what_a_change_makes_of_it() {
    let mut machine = machine(10);
    // The read came first, and sees the change that overtook it.
    read(&mut machine, 0, 0, BLOCK);
    let fill = submissions(&mut machine);
    write(&mut machine, 1, 0, 2 * BLOCK as usize, 9);
    let change = submissions(&mut machine);
    complete(&mut machine, &change[0], 0);
    assert_eq!(read(&mut machine, 2, 0, BLOCK), Some(vec![9; 4096]));
    complete(&mut machine, &fill[0], 1);
    assert_eq!(replies(&mut machine), [(1, Ok(vec![])), (0, Ok(vec![9; 4096]))]);
    // Nobody had asked for the second block.
    assert_eq!(read(&mut machine, 3, BLOCK, BLOCK), None);
    assert_eq!(machine.counters().changes_entered, 1);

    // The read comes while the change waits to be sent: the last block of the volume, which is short.
    let last = (10 * BLOCK, 100);
    write(&mut machine, 4, last.0, 100, 8);
    assert_eq!(read(&mut machine, 5, last.0, last.1), None);
    let requests = submissions(&mut machine);
    assert_eq!(ranges(&requests), [(BLOCK, BLOCK), last, last]);
    complete(&mut machine, &requests[1], 0);
    assert_eq!(read(&mut machine, 6, last.0, last.1), Some(vec![8; 100]));
}

#[test]
fn a_block_that_was_wanted_too_late_enters_with_the_next_change() {
    let mut machine = machine(10);
    write(&mut machine, 0, 0, BLOCK as usize, 7);
    let first = submissions(&mut machine);
    write(&mut machine, 1, 0, BLOCK as usize, 8);
    // What the first one writes is with the origin alone by now.
    read(&mut machine, 2, 0, BLOCK);
    let fill = submissions(&mut machine);
    complete(&mut machine, &first[0], 0);
    assert_eq!(machine.counters().changes_entered, 0);
    let second = submissions(&mut machine);
    assert_eq!(read(&mut machine, 3, 0, BLOCK), None);
    complete(&mut machine, &second[0], 0);
    assert_eq!(read(&mut machine, 4, 0, BLOCK), Some(vec![8; 4096]));
    complete(&mut machine, &fill[0], 7);
    assert!(replies(&mut machine).contains(&(2, Ok(vec![8; 4096]))), "the cached block is not older");
}

#[test]
fn no_other_block_enters_with_a_change() {
    let reads_during = |operation: ClientOperation, fails: bool| {
        let mut machine = machine(10);
        read(&mut machine, 0, 0, BLOCK);
        let fill = submissions(&mut machine);
        machine.request(Nanos::ZERO, RequestTag(1), operation);
        for change in submissions(&mut machine) {
            if fails {
                fail(&mut machine, &change, OriginError::Failed { errno: 5, context: String::new() });
            } else {
                complete(&mut machine, &change, 0);
            }
        }
        complete(&mut machine, &fill[0], 1);
        replies(&mut machine);
        (read(&mut machine, 2, 0, BLOCK), machine.counters().changes_entered)
    };
    let whole = ByteRange::new(0, BLOCK);
    let write = |length| ClientOperation::Write { offset: 0, data: vec![9; length], fua: false };
    let zeroes = |range| ClientOperation::WriteZeroes { range, may_trim: false, fua: false, fast: false };
    assert_eq!(reads_during(zeroes(whole), false), (Some(vec![0; 4096]), 1));
    assert_eq!(reads_during(zeroes(ByteRange::new(0, BLOCK - 512)), false), (None, 0));
    assert_eq!(reads_during(write(4096 - 512), false), (None, 0));
    assert_eq!(reads_during(write(4096), true), (None, 0));
    assert_eq!(reads_during(ClientOperation::Trim { range: whole, fua: false }, false), (None, 0));

    // What is loaded for nobody is left to be loaded again.
    let mut machine = machine(10);
    machine.request(Nanos::ZERO, RequestTag(0), ClientOperation::Cache { range: whole });
    let load = submissions(&mut machine);
    machine.request(Nanos::ZERO, RequestTag(1), write(4096));
    let change = submissions(&mut machine);
    complete(&mut machine, &change[0], 0);
    complete(&mut machine, &load[0], 1);
    assert_eq!((read(&mut machine, 2, 0, BLOCK), machine.counters().changes_entered), (None, 0));
}

#[test]
fn a_want_goes_on_from_a_change_of_a_part_and_ends_where_its_block_entered() {
    let entered = |machine: &VolumeMachine| machine.counters().changes_entered;
    let trim = ClientOperation::Trim { range: ByteRange::new(0, BLOCK), fua: false };
    let part = ClientOperation::Write { offset: 0, data: vec![1; 512], fua: false };
    for first in [trim, part] {
        let mut machine = machine(10);
        machine.request(Nanos::ZERO, RequestTag(0), first);
        write(&mut machine, 1, 0, BLOCK as usize, 2);
        assert_eq!(read(&mut machine, 2, 0, 1), None);
        let requests = submissions(&mut machine);
        complete(&mut machine, &requests[0], 0);
        complete(&mut machine, &requests[1], 1);
        let second = submissions(&mut machine);
        complete(&mut machine, &second[0], 0);
        assert_eq!((entered(&machine), read(&mut machine, 3, 0, 1)), (1, Some(vec![2])));
    }
    // One read, and writes of its block that wait for each other: where there is flash alone, too.
    for mut machine in [machine(10), machine_with_flash(0)] {
        write(&mut machine, 0, 0, BLOCK as usize, 1);
        assert_eq!(read(&mut machine, 1, 0, 1), None);
        let requests = submissions(&mut machine);
        let mut change = requests[0].clone();
        for tag in 2..8 {
            write(&mut machine, tag, 0, BLOCK as usize, tag as u8);
            complete(&mut machine, &change, 0);
            change = submissions(&mut machine).remove(0);
        }
        assert_eq!(entered(&machine), 1);
    }
}

#[test]
fn a_block_that_entered_flash_with_a_change_is_not_taken_off_by_the_read_that_wanted_it() {
    let mut machine = machine_with_flash(0);
    write(&mut machine, 0, 0, BLOCK as usize, 7);
    assert_eq!(read(&mut machine, 1, 0, 1), None);
    let requests = submissions(&mut machine);
    complete(&mut machine, &requests[0], 0);
    complete(&mut machine, &requests[1], 1);
    assert_eq!(replies(&mut machine), [(0, Ok(vec![])), (1, Ok(vec![7]))]);
    let flash = machine.observe(Nanos::ZERO, false).flash.unwrap();
    assert_eq!((flash.statistics.resident_blocks, machine.counters().changes_entered), (1, 1));
}

/// The first block is cached, and all of it is 1.
fn machine_with_a_block_of_ones() -> VolumeMachine {
    let mut machine = machine(10);
    read(&mut machine, 0, 0, BLOCK);
    let fill = submissions(&mut machine);
    complete(&mut machine, &fill[0], 1);
    replies(&mut machine);
    machine
}

#[test]
fn a_cached_block_is_served_old_until_the_write_is_done() {
    let mut machine = machine_with_a_block_of_ones();
    write(&mut machine, 1, 512, 512, 9);
    let change = submissions(&mut machine);
    assert_eq!(read(&mut machine, 2, 512, 4), Some(vec![1; 4]));
    assert_eq!(replies(&mut machine), [], "not before the origin");
    complete(&mut machine, &change[0], 0);
    assert_eq!(replies(&mut machine), [(1, Ok(vec![]))]);
    assert_eq!(read(&mut machine, 3, 510, 4), Some(vec![1, 1, 9, 9]));
}

#[test]
fn changes_that_share_a_block_and_no_unit_go_together_and_both_are_in_what_is_cached() {
    for (first, second) in [(0, 1), (1, 0)] {
        let mut machine = machine_with_a_block_of_ones();
        write(&mut machine, 1, 512, 512, 8);
        write(&mut machine, 2, 1024, 512, 9);
        let change = submissions(&mut machine);
        assert_eq!(change.len(), 2);
        complete(&mut machine, &change[first], 0);
        assert_eq!(replies(&mut machine), [(1 + first as u64, Ok(vec![]))]);
        // Of the other one nothing is seen yet.
        let seen = [[8, 1], [1, 9]][first];
        assert_eq!(read(&mut machine, 3, 1023, 2), Some(seen.to_vec()));
        complete(&mut machine, &change[second], 0);
        assert_eq!(read(&mut machine, 4, 1023, 2), Some(vec![8, 9]));
        assert_eq!(read(&mut machine, 5, 511, 1), Some(vec![1]));
    }
    // What is not cached does not enter before both have ended.
    let mut machine = machine(10);
    write(&mut machine, 1, 512, 512, 8);
    write(&mut machine, 2, 1024, 512, 9);
    let change = submissions(&mut machine);
    complete(&mut machine, &change[0], 0);
    for (tag, cached) in [(3, false), (4, false), (5, true)] {
        if cached {
            complete(&mut machine, &change[1], 0);
        }
        assert_eq!(read(&mut machine, tag, 0, BLOCK), None);
        let fill = submissions(&mut machine);
        complete(&mut machine, &fill[0], 5);
        assert_eq!(read(&mut machine, 10 + tag, 0, 1), cached.then(|| vec![5]));
        submissions(&mut machine).iter().for_each(|fill| complete(&mut machine, fill, 5));
    }
}

#[test]
fn an_unknown_outcome_stays_in_doubt_until_it_is_settled() {
    let mut machine = machine(10);
    write(&mut machine, 0, 0, 512, 9);
    write(&mut machine, 1, 0, 1024, 8);
    write(&mut machine, 7, 1024, 512, 7);
    let change = submissions(&mut machine);
    assert_eq!(
        change.len(),
        2,
        "the second shares a unit with the first and waits, the third a block and no unit"
    );
    fail(&mut machine, &change[0], OriginError::OutcomeUnknown { context: String::new(), asked: None });
    assert_eq!(replies(&mut machine), [(0, Err(Errno::IO)), (1, Err(Errno::IO))]);
    // What is at the origin beside it is done or not as ever; what comes now is refused.
    write(&mut machine, 8, 1024, 512, 7);
    complete(&mut machine, &change[1], 0);
    assert_eq!(replies(&mut machine), [(7, Ok(vec![])), (8, Err(Errno::IO))]);
    assert_eq!(machine.observe(Nanos::ZERO, false).in_doubt, [ByteRange::new(0, BLOCK)]);
    // Reads pass, each by itself, and leave nothing.
    for tag in [2, 3] {
        assert_eq!(read(&mut machine, tag, 0, 512), None);
    }
    let reads = submissions(&mut machine);
    assert_eq!(reads.len(), 2);
    machine.settle();
    // Reads that started in doubt are not inserted after it either.
    reads.iter().for_each(|request| complete(&mut machine, request, 5));
    assert_eq!(read(&mut machine, 4, 0, 512), None);
    let fill = submissions(&mut machine);
    complete(&mut machine, &fill[0], 6);
    assert_eq!(read(&mut machine, 5, 0, 512), Some(vec![6; 512]));
    write(&mut machine, 6, 0, 512, 1);
    assert_eq!(submissions(&mut machine).len(), 1);
}

#[test]
fn doubt_that_is_widened_over_a_change_keeps_its_blocks_out() {
    let limits = VolumeLimits { doubt_runs_max: 1, ..VolumeLimits::default() };
    let mut machine = machine_with(10, limits);
    read(&mut machine, 0, 2 * BLOCK, BLOCK);
    let overtaken = submissions(&mut machine);
    for (tag, block) in [(1, 0), (2, 2), (3, 4)] {
        write(&mut machine, tag, block * BLOCK, BLOCK as usize, 9);
    }
    let changes = submissions(&mut machine);
    for lost in [&changes[0], &changes[2]] {
        fail(&mut machine, lost, OriginError::OutcomeUnknown { context: String::new(), asked: None });
    }
    assert_eq!(machine.observe(Nanos::ZERO, false).in_doubt, [ByteRange::new(0, 5 * BLOCK)]);
    complete(&mut machine, &changes[1], 0);
    complete(&mut machine, &overtaken[0], 1);
    assert_eq!(read(&mut machine, 4, 2 * BLOCK, BLOCK), None);
    assert_eq!(machine.counters().changes_entered, 0);
}

#[test]
fn an_error_of_the_origin_reaches_every_reader_and_is_not_cached() {
    let mut machine = machine(10);
    read(&mut machine, 0, 0, 512);
    read(&mut machine, 1, 512, 512);
    let fill = submissions(&mut machine);
    fail(&mut machine, &fill[0], OriginError::Failed { errno: 5, context: String::new() });
    assert_eq!(replies(&mut machine), [(0, Err(Errno::IO)), (1, Err(Errno::IO))]);
    assert_eq!(read(&mut machine, 2, 0, 512), None);
    let fill = submissions(&mut machine);
    // An answer of the wrong length is not believed.
    machine.complete(Nanos::ZERO, OriginCompletion { id: fill[0].id, result: Ok(vec![0; 12]) });
    assert_eq!(replies(&mut machine), [(2, Err(Errno::IO))]);
}

#[test]
fn warm_up_skips_what_is_there_and_stops_where_there_is_no_room() {
    // At the head too it displaces nothing: what is there was asked for, and of what is loaded the best came first.
    [Insertion::PrewarmTail, Insertion::Prewarm].into_iter().for_each(warm_up_stops_where_there_is_no_room);
}

fn warm_up_stops_where_there_is_no_room(insertion: Insertion) {
    let mut machine = machine(3);
    read(&mut machine, 0, BLOCK, BLOCK);
    let fill = submissions(&mut machine);
    complete(&mut machine, &fill[0], 1);
    let plan = PrewarmPlan {
        ranges: vec![ByteRange::new(0, 8 * BLOCK)],
        bytes_per_second: None,
        insertion,
        own_partition: false,
    };
    machine.prewarm(plan);
    let warm = submissions(&mut machine);
    // Block 1 is there; then four blocks, the origin's longest request, at a time.
    assert_eq!(ranges(&warm), [(0, BLOCK), (2 * BLOCK, 4 * BLOCK), (6 * BLOCK, 2 * BLOCK)]);
    warm.iter().for_each(|request| complete(&mut machine, request, 2));
    let progress = machine.prewarm_progress().unwrap();
    assert_eq!(progress.ended, Some(PrewarmEnd::Full));
    assert_eq!((progress.loaded_bytes, progress.skipped_bytes), (Bytes(2 * BLOCK), Bytes(BLOCK)));
    assert_eq!(read(&mut machine, 1, 0, 3 * BLOCK).map(|data| data.len()), Some(3 * 4096));
}

#[test]
fn warm_up_that_waits_for_the_origin_does_not_wait_for_the_time() {
    let mut machine = machine(3);
    let flushes = VolumeLimits::default().origin_requests_max as u64;
    (0..flushes).for_each(|tag| machine.request(Nanos::ZERO, RequestTag(tag), ClientOperation::Flush));
    let plan = PrewarmPlan {
        ranges: vec![ByteRange::new(0, BLOCK)],
        bytes_per_second: None,
        insertion: Insertion::Prewarm,
        own_partition: false,
    };
    machine.prewarm(plan);
    let at_origin = submissions(&mut machine);
    // All that the origin takes are flushes: who is woken at once would be woken for ever.
    assert_eq!((at_origin.len() as u64, machine.wake_at()), (flushes, None));
    complete(&mut machine, &at_origin[0], 0);
    assert_eq!(machine.wake_at(), Some(Nanos::ZERO));
    assert_eq!(ranges(&submissions(&mut machine)), [(0, BLOCK)]);
}

#[test]
fn a_drained_volume_refuses_and_finishes() {
    let mut machine = machine(3);
    write(&mut machine, 0, 0, 512, 1);
    machine.drain();
    write(&mut machine, 1, 4096, 512, 1);
    assert_eq!(replies(&mut machine), [(1, Err(Errno::SHUTDOWN))]);
    assert!(!machine.is_idle());
    let change = submissions(&mut machine);
    complete(&mut machine, &change[0], 0);
    assert_eq!(replies(&mut machine), [(0, Ok(vec![]))]);
    assert!(machine.is_idle());
}

#[test]
fn block_sizes_that_do_not_go_with_the_origin_are_refused() {
    let origin = OriginTraits {
        size_bytes: SIZE,
        read_only: false,
        block_size_min: 4096,
        block_size_preferred: 4096,
        request_bytes_max: 65536,
        can_trim: true,
        can_fast_zero: true,
        can_multi_conn: true,
    };
    let with = |block_size: u64| {
        let settings = VolumeSettings {
            origin,
            read_only: false,
            block_size: BlockSize::new(Bytes(block_size)).unwrap(),
            quota: Bytes::ZERO,
            single_touch_share: Ratio::clamped(0.2),
            seed: 1,
            locality: None,
            limits: VolumeLimits::default(),
        };
        VolumeMachine::new(settings, Nanos::ZERO).err()
    };
    assert!(matches!(with(2048), Some(VolumeSettingsError::BlockSizeBelowOrigin { .. })));
    assert!(matches!(with(131_072), Some(VolumeSettingsError::BlockSizeAboveOrigin { .. })));
    assert_eq!(with(65536), None);
}

/// 36 KiB are three parts of at most 16 KiB.
#[test]
fn zeroes_that_must_be_fast_stop_at_the_first_part_that_is_refused() {
    let zero = |machine: &mut VolumeMachine, tag, fast| {
        let range = ByteRange::new(0, 9 * BLOCK);
        let operation = ClientOperation::WriteZeroes { range, may_trim: true, fua: false, fast };
        machine.request(Nanos::ZERO, RequestTag(tag), operation);
    };
    let mut machine = machine(0);
    zero(&mut machine, 0, false);
    let all = submissions(&mut machine);
    assert_eq!(all.len(), 3);
    all.iter().for_each(|part| complete(&mut machine, part, 0));
    assert_eq!(replies(&mut machine), [(0, Ok(vec![]))]);

    zero(&mut machine, 1, true);
    let first = submissions(&mut machine);
    assert_eq!(ranges(&first), [(0, 4 * BLOCK)]);
    assert!(matches!(first[0].operation, OriginOperation::WriteZeroes { fast: true, .. }));
    fail(&mut machine, &first[0], OriginError::Failed { errno: 95, context: String::new() });
    assert_eq!(submissions(&mut machine), []);
    assert_eq!(replies(&mut machine), [(1, Err(Errno(95)))]);
    assert_eq!(machine.observe(Nanos::ZERO, false).counters.changes_failed, 0, "that is an answer");

    zero(&mut machine, 2, true);
    for part in [(0, 4 * BLOCK), (4 * BLOCK, 4 * BLOCK), (8 * BLOCK, BLOCK)] {
        let parts = submissions(&mut machine);
        assert_eq!(ranges(&parts), [part]);
        complete(&mut machine, &parts[0], 0);
    }
    assert_eq!(replies(&mut machine), [(2, Ok(vec![]))]);
}

/// 28 bytes may ask for 4 GiB, whose blocks are not looked up one by one.
#[test]
fn long_zeroes_and_trims_empty_their_range_with_the_first_part_that_is_done() {
    let limits = VolumeLimits { patched_blocks_max: 4, ..VolumeLimits::default() };
    let cached = |machine: &mut VolumeMachine| -> Vec<u64> {
        (0..10).filter(|block| read(machine, 100 + block, block * BLOCK, BLOCK).is_some()).collect()
    };
    let zeroes = |blocks| ClientOperation::WriteZeroes {
        range: ByteRange::new(0, blocks * BLOCK),
        may_trim: true,
        fua: false,
        fast: true,
    };
    let trim = ClientOperation::Trim { range: ByteRange::new(0, 6 * BLOCK), fua: false };
    // What is cached once the first part was done, and of a longer one that was refused.
    for (operation, fails, expected) in [
        (zeroes(4), false, (0..10).collect()),
        (zeroes(6), false, (6..10).collect()),
        (trim, false, (6..10).collect()),
        (zeroes(6), true, (4..10).collect::<Vec<u64>>()),
    ] {
        let told = format!("{operation:?}, fails: {fails}");
        let changed = if told.contains("16384") { 4 } else { 6 };
        let mut machine = machine_with(10, limits);
        cached(&mut machine);
        submissions(&mut machine).iter().for_each(|fill| complete(&mut machine, fill, 7));
        replies(&mut machine);
        machine.request(Nanos::ZERO, RequestTag(1), operation);
        let parts = submissions(&mut machine);
        if fails {
            fail(&mut machine, &parts[0], OriginError::Failed { errno: 95, context: String::new() });
        } else {
            complete(&mut machine, &parts[0], 0);
        }
        assert_eq!(cached(&mut machine), expected, "{told}");
        // What is missed meanwhile enters with what the rest of the change makes of it.
        let mut rest = parts[1..].to_vec();
        rest.extend(submissions(&mut machine));
        for part in rest {
            let fill = if matches!(part.operation, OriginOperation::Read { .. }) { 9 } else { 0 };
            complete(&mut machine, &part, fill);
        }
        submissions(&mut machine).iter().for_each(|part| complete(&mut machine, part, 0));
        // A block behind the change, and of one that was refused, is as it was; else it is zero.
        let content = |block| if fails || block >= changed { 7 } else { 0 };
        for block in 4..10 {
            let bytes = read(&mut machine, 200 + block, block * BLOCK, BLOCK);
            assert!(bytes.is_none_or(|bytes| bytes == vec![content(block); 4096]), "block {block}: {told}");
        }
    }
}

// ---- Flash ----------------------------------------------------------------------------------------------------

/// A machine with memory for `quota_blocks` and eight segments of one block each on flash.
#[test]
fn what_the_origin_says_is_told_but_for_what_is_not_settled() {
    let mut machine = machine(4);
    let ask = |machine: &mut VolumeMachine, tag, offset, length| {
        let range = ByteRange::new(offset, length);
        machine.request(
            Nanos::ZERO,
            RequestTag(tag),
            ClientOperation::BlockStatus { range, one_extent: false },
        );
        submissions(machine).pop().unwrap()
    };
    // The origin's answer: all of it is a hole.
    let hole = |machine: &mut VolumeMachine, request: &OriginRequest| {
        let length = request.operation.range().length as u32;
        let extent = Extent { length, flags: AllocationFlags(3) };
        machine
            .complete(Nanos::ZERO, OriginCompletion { id: request.id, result: Ok(extent.encode().to_vec()) });
        let (_, result) = replies(machine).pop().unwrap();
        Extents::new(&result.unwrap()).map(|extent| (extent.length, extent.flags.0)).collect::<Vec<_>>()
    };
    let question = ask(&mut machine, 1, 512, SIZE - 512);
    assert_eq!(
        question.operation,
        OriginOperation::BlockStatus { range: ByteRange::new(512, SIZE - 512), one_extent: false }
    );
    assert_eq!(hole(&mut machine, &question), [(SIZE as u32 - 512, 3)]);
    // A change of block 2 begins while the origin is asked: the answer ends where it begins, and promises nothing of what it changes.
    let (whole, inside) = (ask(&mut machine, 2, 0, SIZE), ask(&mut machine, 3, 10_000, 20_480));
    write(&mut machine, 4, 2 * BLOCK + 512, 512, 7);
    let part = submissions(&mut machine).pop().unwrap();
    assert_eq!(hole(&mut machine, &whole), [(2 * BLOCK as u32, 3)]);
    assert_eq!(hole(&mut machine, &inside), [(3 * BLOCK as u32 - 10_000, 0)]);
    // It is lost: its block is in doubt until it is settled.
    fail(&mut machine, &part, OriginError::OutcomeUnknown { context: String::new(), asked: None });
    assert_eq!(replies(&mut machine), [(4, Err(Errno::IO))]);
    let whole = ask(&mut machine, 5, 0, SIZE);
    assert_eq!(hole(&mut machine, &whole), [(2 * BLOCK as u32, 3)]);
    machine.settle();
    let whole = ask(&mut machine, 6, 0, SIZE);
    assert_eq!(hole(&mut machine, &whole), [(SIZE as u32, 3)]);
    // An error is told; an answer that is none is one.
    let question = ask(&mut machine, 7, 0, SIZE);
    fail(&mut machine, &question, OriginError::Failed { errno: 28, context: String::new() });
    let question = ask(&mut machine, 8, 0, SIZE);
    complete(&mut machine, &question, 0);
    assert_eq!(replies(&mut machine), [(7, Err(Errno::NO_SPACE)), (8, Err(Errno::IO))]);
    let beyond = ClientOperation::BlockStatus { range: ByteRange::new(SIZE, 1), one_extent: true };
    machine.request(Nanos::ZERO, RequestTag(9), beyond);
    assert_eq!(replies(&mut machine), [(9, Err(Errno::INVALID))]);
    assert!(machine.is_idle());
}

#[test]
fn what_the_origin_refuses_is_counted_and_is_no_latency() {
    let mut machine = machine(10);
    for offset in [0, 4 * BLOCK] {
        assert_eq!(read(&mut machine, offset + 1, offset, 512), None);
        write(&mut machine, offset + 2, offset + 2 * BLOCK, 512, 7);
    }
    for request in &submissions(&mut machine) {
        match request.operation.range().offset < 4 * BLOCK {
            true => fail(&mut machine, request, OriginError::Failed { errno: 5, context: String::new() }),
            false => complete(&mut machine, request, 0),
        }
    }
    let seen = machine.observe(Nanos::secs(1), true);
    let counted = (seen.counters.reads_failed, seen.counters.changes_failed, seen.counters.errors);
    assert_eq!(counted, (1, 1, 2));
    assert_eq!((seen.latencies.misses.count(), seen.latencies.writes.count()), (1, 1));
}

#[test]
fn what_hangs_since_before_an_interval_is_told_until_it_is_answered() {
    let mut machine = machine(10);
    assert_eq!(read(&mut machine, 1, 0, 512), None);
    write(&mut machine, 2, BLOCK, 512, 7);
    // Waits for the other.
    write(&mut machine, 3, BLOCK, 512, 8);
    let requests = submissions(&mut machine);
    let hung = |machine: &mut VolumeMachine, at| {
        let seen = machine.observe(Nanos::secs(at), true);
        (seen.reads_hung, seen.writes_hung)
    };
    assert_eq!(hung(&mut machine, 1), (0, 0), "they came in this interval");
    assert_eq!(hung(&mut machine, 2), (1, 2));
    let is_read = |request: &&OriginRequest| matches!(request.operation, OriginOperation::Read { .. });
    let write = requests.iter().find(|request| !is_read(request)).unwrap();
    complete(&mut machine, write, 0);
    assert_eq!(hung(&mut machine, 3), (1, 1));
    complete(&mut machine, requests.iter().find(is_read).unwrap(), 1);
    assert_eq!(hung(&mut machine, 4), (0, 1));
}
