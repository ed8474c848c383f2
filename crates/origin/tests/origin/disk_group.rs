//! What only the emulated disk group promises: modelled time, neighbours, and writes that are made when they complete.

use super::support::{Collector, errno, read, run, submit, write};
use forebay_devmodel::{DiskGroupParameters, DiskParameters};
use forebay_origin::{DiskGroupDevice, MemoryImage, OpenError, Origin, OriginError, VolumeBacking};
use forebay_units::{Bytes, Nanos};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn fixed(spindles: u32, service: Nanos) -> DiskGroupParameters {
    DiskGroupParameters::striped(spindles, DiskParameters::fixed_service(1 << 30, service))
}

fn memory(bytes: u64) -> VolumeBacking {
    VolumeBacking::Memory(Arc::new(MemoryImage::new(Bytes(bytes))))
}

#[test]
fn time_passes_as_the_model_says_and_lateness_does_not_add_up() {
    // 40 requests wait for one disk that takes 5 ms for each: the last completes 200 ms after the first began, however
    // late single completions are. Never earlier; later only by what one completion is late.
    let device = DiskGroupDevice::start(fixed(1, Nanos::millis(5))).unwrap();
    let volume = device.volume(memory(1 << 20), 0).unwrap();
    let collector = Collector::new();
    let started = Instant::now();
    for id in 0..40 {
        submit(&volume, id, read(id * 4096, 4096), &collector);
    }
    let submitted = started.elapsed();
    assert!(collector.wait(40).values().all(Result::is_ok));
    let elapsed = started.elapsed();
    let statistics = device.statistics();
    println!("40 x 5 ms took {elapsed:?}; {statistics:?}");
    assert!(elapsed >= Duration::from_millis(200), "{elapsed:?}");
    let slack = Duration::from(statistics.lateness_max) + submitted + Duration::from_millis(100);
    assert!(elapsed <= Duration::from_millis(200) + slack, "{elapsed:?}, {statistics:?}");
    assert_eq!((statistics.completed, statistics.busy), (40, Nanos::millis(200)));
    assert_eq!(volume.statistics().device.unwrap().spindles, 1);
}

#[test]
fn a_neighbour_on_the_group_is_felt() {
    // The neighbour's 20 requests of 4 ms are ahead in the queue of the one disk.
    let device = DiskGroupDevice::start(fixed(1, Nanos::millis(4))).unwrap();
    let (victim, neighbour) =
        (device.volume(memory(1 << 20), 0).unwrap(), device.volume(memory(1 << 20), 1 << 20).unwrap());
    let collector = Collector::new();
    for id in 0..20 {
        submit(&neighbour, id, read(0, 512), &collector);
    }
    let started = Instant::now();
    run(&victim, read(0, 512)).unwrap();
    assert!(started.elapsed() >= Duration::from_millis(60), "{:?}", started.elapsed());
    // Everything that came before it has completed by then: the order of completions is the model's.
    assert_eq!(collector.count(), 20);
}

#[test]
fn a_write_is_made_when_it_completes_and_not_before() {
    let image = Arc::new(MemoryImage::new(Bytes(8192)));
    let device = DiskGroupDevice::start(fixed(1, Nanos::secs(3600))).unwrap();
    let volume = device.volume(VolumeBacking::Memory(Arc::clone(&image)), 0).unwrap();
    let collector = Collector::new();
    submit(&volume, 1, write(0, b"new"), &collector);
    submit(&volume, 2, read(0, 3), &collector);
    drop((volume, device));
    for (_, outcome) in collector.wait(2) {
        assert!(matches!(outcome, Err(OriginError::Unreachable { .. })), "{outcome:?}");
    }
    let mut bytes = [1; 3];
    image.read_at(0, &mut bytes);
    assert_eq!(bytes, [0; 3]);
}

#[test]
fn the_group_is_bounded_over_all_its_volumes() {
    let parameters = DiskGroupParameters { outstanding_max: 3, ..fixed(1, Nanos::secs(3600)) };
    let device = DiskGroupDevice::start(parameters).unwrap();
    let (first, second) =
        (device.volume(memory(8192), 0).unwrap(), device.volume(memory(8192), 8192).unwrap());
    let collector = Collector::new();
    for id in 0..2 {
        submit(&first, id, read(0, 1), &collector);
    }
    submit(&second, 2, read(0, 1), &collector);
    assert_eq!(collector.count(), 0);
    submit(&second, 3, read(0, 1), &collector);
    assert_eq!(errno(&collector.wait(1)[&3]), Some(16));
    assert_eq!((first.statistics().in_flight, second.statistics().in_flight), (2, 1));
    drop((first, second, device));
    collector.wait(4);
}

#[test]
fn volumes_have_places_of_their_own() {
    let device = DiskGroupDevice::start(fixed(2, Nanos::micros(10))).unwrap();
    let first = device.volume(memory(1 << 20), 1 << 20).unwrap();
    let open = |offset| device.volume(memory(1 << 20), offset).err();
    assert!(matches!(open((1 << 20) + 1), Some(OpenError::OverlapsInGroup { .. })));
    assert!(matches!(open((2 << 30) - 1), Some(OpenError::BeyondGroup { .. })));
    assert!(open(2 << 20).is_none());
    drop(first);
    assert!(open(1 << 20).is_none());
    let nothing = DiskGroupDevice::start(DiskGroupParameters::striped(0, DiskParameters::rpm_7200(1 << 30)));
    assert!(matches!(nothing.err(), Some(OpenError::Parameter { .. })));
}
