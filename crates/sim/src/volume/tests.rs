//! Reads around a quota of nothing, as the daemon's volume machine has them (`reading.rs` there).

use super::{Cache, Volume, World};
use crate::calendar::Planned;
use crate::load::Asked;
use crate::origin::Origin;
use crate::scenario::{OriginKind, OriginTable, Replacement, TierTable};
use crate::tier::Tier;
use forebay_control::{VolumeId, ZoneRange};
use forebay_locality::{LiveConfig, LiveObserver};
use forebay_policy::PolicyKind;
use forebay_policy::placement::Admission;
use forebay_units::{BlockSize, Bytes, Nanos};

/// A volume of 256 blocks with a cache of `quota` of them under LRU, on sixteen servers.
pub(crate) fn volume_of(quota: u64, service: Nanos) -> (World, Volume) {
    let mut world = World::new(Nanos::ZERO);
    let table = OriginTable {
        service: Some(service),
        servers: Some(16),
        ..OriginTable::new("o", OriginKind::Servers)
    };
    world.origins.push(Origin::new(&table, 1).unwrap());
    world.caches.push(Cache::new(Replacement::Policy(PolicyKind::Lru), quota, 256));
    let locality = LiveObserver::new(LiveConfig::default(), Nanos::ZERO);
    let size = (1 << 20, BlockSize::DEFAULT);
    (world, Volume::new(0, (0, 0), size, (0, 0), None, locality))
}

/// Takes what is planned until `until`; when requests of clients were answered by the origin.
pub(crate) fn run(volume: &mut Volume, world: &mut World, until: Nanos) -> Vec<Nanos> {
    let mut answered = Vec::new();
    while let Some((at, planned)) = world.calendar.next() {
        if at > until {
            world.calendar.plan(at, planned);
            break;
        }
        world.now = at;
        match planned {
            Planned::Served { flight, queue } => {
                let device = world.flights[flight].device as usize;
                world.origins[device].served(at, flight, queue, &mut world.calendar);
            }
            Planned::Answer { flight } => {
                if !world.answered_alone(flight) {
                    volume.answer(world, flight, &mut answered);
                }
            }
            Planned::Prewarm { .. } => volume.wake_prewarm(world),
            other => unreachable!("nobody plans {other:?}"),
        }
    }
    answered.into_iter().map(|(_, at)| at).collect()
}

const SERVICE: Nanos = Nanos::millis(10);

fn at(ms: u64) -> Nanos {
    Nanos::millis(ms)
}

/// Block 7 is asked for; whether it was a hit.
fn ask(volume: &mut Volume, world: &mut World, ms: u64, writes: bool) -> bool {
    world.now = at(ms);
    let asked = Asked { first: 7, end: 8, offset: 7 << 12, bytes: 4_096, writes };
    volume.ask(world, asked, 0, world.now).is_some()
}

fn reads(volume: &mut Volume, world: &mut World, ms: u64) -> bool {
    ask(volume, world, ms, false)
}

fn writes(volume: &mut Volume, world: &mut World, ms: u64) {
    ask(volume, world, ms, true);
}

fn resident(volume: &Volume, world: &World) -> u32 {
    volume.statistics(world).resident_blocks
}

#[test]
fn without_a_quota_reads_of_the_same_block_go_to_the_origin_each_by_itself() {
    let (mut world, mut volume) = volume_of(0, SERVICE);
    reads(&mut volume, &mut world, 0);
    reads(&mut volume, &mut world, 4);
    assert_eq!(run(&mut volume, &mut world, at(100)), [at(10), at(14)]);
    assert!(!reads(&mut volume, &mut world, 20));
    // With one the second joins the first, and the third hits.
    let (mut world, mut volume) = volume_of(1, SERVICE);
    reads(&mut volume, &mut world, 0);
    reads(&mut volume, &mut world, 4);
    assert_eq!(run(&mut volume, &mut world, at(100)), [at(10), at(10)]);
    assert!(reads(&mut volume, &mut world, 20));
}

#[test]
fn what_was_asked_for_without_a_quota_is_neither_joined_nor_kept_once_there_is_one() {
    let (mut world, mut volume) = volume_of(0, SERVICE);
    reads(&mut volume, &mut world, 0);
    volume.set_quota(&mut world, 4);
    reads(&mut volume, &mut world, 4);
    assert_eq!(run(&mut volume, &mut world, at(12)), [at(10)]);
    assert_eq!(resident(&volume, &world), 0);
    // That of the second is.
    reads(&mut volume, &mut world, 13);
    assert_eq!(run(&mut volume, &mut world, at(100)), [at(14), at(14)]);
    assert_eq!(resident(&volume, &world), 1);
}

#[test]
fn what_was_asked_for_with_a_quota_is_not_joined_while_there_is_none() {
    let (mut world, mut volume) = volume_of(4, SERVICE);
    reads(&mut volume, &mut world, 0);
    volume.set_quota(&mut world, 0);
    reads(&mut volume, &mut world, 2);
    // It is again when there is one, and what it brings is kept.
    volume.set_quota(&mut world, 4);
    reads(&mut volume, &mut world, 4);
    assert_eq!(run(&mut volume, &mut world, at(100)), [at(10), at(10), at(12)]);
    assert_eq!(resident(&volume, &world), 1);
}

#[test]
fn what_a_write_overtakes_without_a_quota_does_not_enter_with_it() {
    for (between, entered) in [(4, 1), (0, 0)] {
        let (mut world, mut volume) = volume_of(4, SERVICE);
        reads(&mut volume, &mut world, 0);
        volume.set_quota(&mut world, between);
        writes(&mut volume, &mut world, 2);
        volume.set_quota(&mut world, 4);
        run(&mut volume, &mut world, at(100));
        assert_eq!(resident(&volume, &world), entered, "{between} blocks when it was sent");
    }
    // Nor does what is missed while it is under way.
    for (between, entered) in [(4, 1), (0, 0)] {
        let (mut world, mut volume) = volume_of(4, SERVICE);
        writes(&mut volume, &mut world, 0);
        volume.set_quota(&mut world, between);
        reads(&mut volume, &mut world, 1);
        volume.set_quota(&mut world, 4);
        writes(&mut volume, &mut world, 2);
        run(&mut volume, &mut world, at(100));
        assert_eq!(resident(&volume, &world), entered, "{between} blocks when it was missed");
    }
}

#[test]
fn a_warm_up_ends_with_the_quota_and_its_reads_are_not_joined_then() {
    let (mut world, mut volume) = volume_of(256, SERVICE);
    volume.warm(&mut world, &[ZoneRange { first_block: 0, blocks: 256 }], 1 << 40);
    reads(&mut volume, &mut world, 2);
    volume.set_quota(&mut world, 0);
    reads(&mut volume, &mut world, 4);
    assert!(!volume.is_warming() || volume.prewarm.ranges.is_empty());
    assert_eq!(run(&mut volume, &mut world, at(100)), [at(10), at(14)]);
    assert!(!volume.is_warming());
}

#[test]
fn reads_of_parts_of_blocks_in_their_order_are_sequential() {
    let (mut world, mut volume) = volume_of(0, SERVICE);
    for offset in (0..16_384).step_by(1_024) {
        let first = offset >> 12;
        let asked = Asked { first, end: first + 1, offset, bytes: 1_024, writes: false };
        volume.ask(&mut world, asked, 0, Nanos::ZERO);
    }
    let (statistics, locality) = (volume.statistics(&world), volume.locality.snapshot(Nanos::ZERO));
    let (seen, _) = volume.recorder.end(VolumeId(0), at(10_000), statistics, false, &locality);
    // All but the first.
    assert_eq!((seen.arrivals, seen.sequential_share), (16, 15.0 / 16.0));
}

#[test]
fn a_sequential_run_goes_on_over_what_memory_has() {
    let (mut world, mut volume) = volume_of(256, Nanos::micros(1));
    let flash = OriginTable { service: Some(Nanos::micros(1)), ..OriginTable::new("f", OriginKind::Servers) };
    world.origins.push(Origin::new(&flash, 1).unwrap());
    let read = |world: &mut World, volume: &mut Volume, first: u64, blocks: u64| {
        let (offset, bytes) = (first << 12, blocks << 12);
        let asked = Asked { first, end: first + blocks, offset, bytes, writes: false };
        volume.ask(world, asked, 0, world.now);
        let until = world.now + Nanos::millis(1);
        run(volume, world, until);
    };
    [3, 4, 7, 11].into_iter().for_each(|block| read(&mut world, &mut volume, block, 1));
    let table = TierTable { admission: Admission::Threshold(1), ..TierTable::new("f", Bytes::mib(1)) };
    world.tier = Some(Box::new(Tier::new(&table, 1, vec![volume.home()], vec![true]).unwrap()));
    // All of it is there; the first part; the middle; the end.
    for (first, blocks) in [(0, 1), (1, 1), (2, 1), (3, 2), (5, 2), (7, 2), (9, 1), (10, 3), (13, 1)] {
        read(&mut world, &mut volume, first, blocks);
    }
    let statistics = world.tier.unwrap().placement.statistics();
    // Blocks 0, 1, 2, 5 and 6, 8, 9, 10, 12, 13: the first is no run yet.
    assert_eq!((statistics.reads, statistics.sequential), (9, 8), "{statistics:?}");
}
