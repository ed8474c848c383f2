//! What every origin must do, run on each of them and on stacks of layers.

use super::support::{Collector, errno, extents, on_ring, read, run, status, submit, write};
use forebay_devmodel::{DiskGroupParameters, DiskParameters};
use forebay_origin::layer::{
    Delay, DelayParameters, ErrorInjection, ErrorParameters, Log, LogParameters, Rate, RateParameters,
};
use forebay_origin::{
    DiskGroupDevice, FileOrigin, FileOriginOptions, MemoryImage, MemoryOrigin, Origin, OriginOperation,
    Timer, VolumeBacking,
};
use forebay_units::{ByteRange, Bytes, Nanos};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::Arc;

/// No multiple of any block.
pub(crate) const SIZE: u64 = (1 << 20) + 777;

/// Runs the whole suite; `make` gives a fresh origin of [`SIZE`] zeroes each time.
pub(crate) fn conform(make: &dyn Fn() -> Arc<dyn Origin>) {
    reads_return_what_was_written(&*make());
    extents_are_true(&*make());
    the_ends_are_where_they_should_be(&*make());
    fast_zeroes_are_there_or_refused(&*make());
    concurrent_requests_complete_once(&make());
    a_drop_completes_what_is_in_flight(make());
}

fn reads_return_what_was_written(origin: &dyn Origin) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut model = vec![0u8; SIZE as usize];
    for step in 0..150u32 {
        let offset = random.random_range(0..SIZE);
        let length = random.random_range(1..=(SIZE - offset).min(70_000));
        let range = ByteRange::new(offset, length);
        let bytes = &mut model[offset as usize..(offset + length) as usize];
        let operation = match random.random_range(0..8) {
            0..4 => {
                random.fill(bytes);
                OriginOperation::Write { offset, data: bytes.to_vec(), fua: step % 16 == 0 }
            }
            4 => {
                bytes.fill(0);
                OriginOperation::WriteZeroes { range, may_trim: true, fua: step % 3 == 0, fast: false }
            }
            5 => {
                bytes.fill(0);
                OriginOperation::WriteZeroes { range, may_trim: false, fua: false, fast: false }
            }
            6 => {
                // Every origin of the suite promises zeroes after a trim of what lies beneath it.
                bytes.fill(0);
                OriginOperation::Trim { range, fua: false }
            }
            _ => OriginOperation::Flush,
        };
        assert_eq!(run(origin, operation.clone()), Ok(Vec::new()), "{operation:?}");
        let offset = random.random_range(0..SIZE);
        let length = random.random_range(0..=(SIZE - offset).min(70_000));
        let expected = &model[offset as usize..(offset + length) as usize];
        assert!(run(origin, read(offset, length)).unwrap() == expected, "step {step}: {offset}+{length}");
    }
    assert!(run(origin, read(0, SIZE)).unwrap() == model);
    let statistics = origin.statistics();
    assert_eq!((statistics.requests, statistics.errors, statistics.in_flight), (301, 0, 0));
}

/// What is said to read as zeroes does, at every moment; and the whole range can be asked about, piece by piece.
fn extents_are_true(origin: &dyn Origin) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
    let mut model = vec![0u8; SIZE as usize];
    for step in 0..60u32 {
        let offset = random.random_range(0..SIZE);
        let length = random.random_range(1..=(SIZE - offset).min(200_000));
        let range = ByteRange::new(offset, length);
        let (byte, operation) = match random.random_range(0..4) {
            0 => (0, OriginOperation::Trim { range, fua: false }),
            1 => {
                (0, OriginOperation::WriteZeroes { range, may_trim: step % 2 == 0, fua: false, fast: false })
            }
            _ => (7, OriginOperation::Write { offset, data: vec![7; length as usize], fua: false }),
        };
        model[offset as usize..range.end() as usize].fill(byte);
        run(origin, operation).unwrap();
        let (mut at, end) = (random.random_range(0..SIZE), SIZE);
        let one_extent = step % 3 == 0;
        while at < end {
            let range = ByteRange::new(at, end - at);
            let described = extents(run(origin, OriginOperation::BlockStatus { range, one_extent }));
            assert!(!one_extent || described.len() == 1);
            for (length, flags) in described {
                assert!(length > 0 && at + length <= end && flags <= 3, "{length} at {at}: {flags}");
                let bytes = &model[at as usize..(at + length) as usize];
                assert!(flags & 2 == 0 || bytes.iter().all(|byte| *byte == 0), "{at}+{length} holds data");
                at += length;
            }
        }
    }
    assert_eq!(errno(&run(origin, status(SIZE - 1, 2))), Some(22));
}

fn the_ends_are_where_they_should_be(origin: &dyn Origin) {
    let traits = origin.traits();
    assert_eq!(traits.size_bytes, SIZE);
    assert!(!traits.read_only && traits.block_size_min.is_power_of_two());
    assert_eq!(run(origin, write(SIZE - 1, b"x")), Ok(Vec::new()));
    assert_eq!(run(origin, read(SIZE - 1, 1)), Ok(b"x".to_vec()));
    assert_eq!(run(origin, read(SIZE, 0)), Ok(Vec::new()));
    for bad in [read(SIZE, 1), read(SIZE - 1, 2), read(u64::MAX, 2), write(SIZE, b"x")] {
        assert_eq!(errno(&run(origin, bad.clone())), Some(22), "{bad:?}");
    }
    assert_eq!(run(origin, read(SIZE - 2, 2)), Ok(b"\0x".to_vec()));
}

fn fast_zeroes_are_there_or_refused(origin: &dyn Origin) {
    run(origin, write(0, &[7; 20_000])).unwrap();
    let mut model = vec![7; 20_000];
    for (offset, length, may_trim) in
        [(4096, 8192, true), (100, 300, true), (12_288, 4096, false), (19_000, 7, false)]
    {
        let range = ByteRange::new(offset, length);
        let outcome = run(origin, OriginOperation::WriteZeroes { range, may_trim, fua: false, fast: true });
        match errno(&outcome) {
            None => model[offset as usize..(offset + length) as usize].fill(0),
            errno => assert_eq!(errno, Some(95), "{outcome:?}"),
        }
        assert!(
            outcome.is_err() || origin.traits().can_fast_zero,
            "{range:?} was zeroed by who says that it cannot"
        );
        assert!(run(origin, read(0, 20_000)).unwrap() == model, "{range:?}: {outcome:?}");
    }
}

fn concurrent_requests_complete_once(origin: &Arc<dyn Origin>) {
    let collector = Collector::new();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (origin, collector) = (Arc::clone(origin), Arc::clone(&collector));
            scope.spawn(move || {
                for step in 0..50u64 {
                    let id = thread * 1000 + step;
                    let place = id % 61 * 16_384;
                    match step % 3 {
                        0 => submit(&*origin, id, write(place, &[id as u8; 512]), &collector),
                        1 => submit(&*origin, id, read(place, 4096), &collector),
                        _ => submit(&*origin, id, OriginOperation::Flush, &collector),
                    }
                }
            });
        }
    });
    for (id, outcome) in collector.wait(200) {
        let expected = if id % 1000 % 3 == 1 { 4096 } else { 0 };
        assert_eq!(outcome.unwrap().len(), expected);
    }
}

fn a_drop_completes_what_is_in_flight(origin: Arc<dyn Origin>) {
    let collector = Collector::new();
    for id in 0..64 {
        submit(&*origin, id, if id % 2 == 0 { read(0, 512) } else { write(0, &[7; 512]) }, &collector);
    }
    drop(origin);
    collector.wait(64);
}

pub(crate) fn memory() -> Arc<dyn Origin> {
    Arc::new(MemoryOrigin::new(Arc::new(MemoryImage::new(Bytes(SIZE)))))
}

#[test]
fn memory_conforms() {
    conform(&memory);
}

#[test]
fn a_file_conforms_by_threads_and_in_a_ring() {
    let directory = tempfile::tempdir().unwrap();
    let count = std::cell::Cell::new(0);
    let make = || -> Arc<dyn Origin> {
        let path = directory.path().join(count.replace(count.get() + 1).to_string());
        std::fs::File::create(&path).unwrap().set_len(SIZE).unwrap();
        Arc::new(FileOrigin::open(&path, FileOriginOptions::default()).unwrap())
    };
    conform(&make);
    if on_ring(make()).is_ok() {
        conform(&|| Arc::new(on_ring(make()).unwrap()));
    }
}

fn quick_group() -> Arc<DiskGroupDevice> {
    let disk = DiskParameters::fixed_service(1 << 30, Nanos::micros(200));
    DiskGroupDevice::start(DiskGroupParameters::striped(3, disk)).unwrap()
}

#[test]
fn a_disk_group_conforms_on_memory_and_on_a_file() {
    conform(&|| {
        let backing = VolumeBacking::Memory(Arc::new(MemoryImage::new(Bytes(SIZE))));
        Arc::new(quick_group().volume(backing, 12_345).unwrap())
    });
    let directory = tempfile::tempdir().unwrap();
    let count = std::cell::Cell::new(0);
    conform(&|| {
        let path = directory.path().join(count.replace(count.get() + 1).to_string());
        std::fs::File::create(&path).unwrap().set_len(SIZE).unwrap();
        Arc::new(quick_group().volume(VolumeBacking::File { path, read_only: false }, 0).unwrap())
    });
}

#[test]
fn every_layer_conforms() {
    let timer = Timer::start().unwrap();
    let delays = DelayParameters {
        read: Nanos::micros(50),
        write: Nanos::micros(100),
        jitter: Nanos::micros(50),
        ..DelayParameters::default()
    };
    conform(&|| Arc::new(Delay::new(memory(), Arc::clone(&timer), delays)));
    conform(&|| {
        let error = ErrorInjection::new(memory(), ErrorParameters::default()).unwrap();
        error.set_active(false);
        Arc::new(error)
    });
    let rates = RateParameters { requests_per_second: Some(20_000.0), ..RateParameters::default() };
    conform(&|| Arc::new(Rate::new(memory(), Arc::clone(&timer), rates).unwrap()));
    conform(&|| {
        Arc::new(Log::new(memory(), LogParameters { trace: true, ..LogParameters::default() }).unwrap())
    });
}

#[test]
fn a_stack_of_all_layers_on_a_disk_group_conforms() {
    let timer = Timer::start().unwrap();
    let directory = tempfile::tempdir().unwrap();
    conform(&|| {
        let backing = VolumeBacking::Memory(Arc::new(MemoryImage::new(Bytes(SIZE))));
        let group: Arc<dyn Origin> = Arc::new(quick_group().volume(backing, 0).unwrap());
        let rates = RateParameters { bytes_per_second: Some(1e9), ..RateParameters::default() };
        let rate: Arc<dyn Origin> = Arc::new(Rate::new(group, Arc::clone(&timer), rates).unwrap());
        let delays = DelayParameters { write: Nanos::micros(20), ..DelayParameters::default() };
        let delay: Arc<dyn Origin> = Arc::new(Delay::new(rate, Arc::clone(&timer), delays));
        let none = ErrorParameters { probability: 0.0, ..ErrorParameters::default() };
        let error: Arc<dyn Origin> = Arc::new(ErrorInjection::new(delay, none).unwrap());
        let file = Some(directory.path().join("log"));
        Arc::new(Log::new(error, LogParameters { name: "stack".into(), file, trace: false }).unwrap())
    });
}
