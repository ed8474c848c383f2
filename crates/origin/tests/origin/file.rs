//! What only files promise: locks, errors that name the path, a bounded queue, bytes that are really there.

use super::nbd::warnings;
use super::support::{Collector, errno, on_ring, read, run, submit, write};
use forebay_origin::{
    CompletionSink, FileOrigin, FileOriginOptions, OpenError, Origin, OriginCompletion, OriginOperation,
    OriginState,
};
use forebay_prerequisite::skip;
use forebay_units::ByteRange;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Condvar, Mutex};

const READ_ONLY: FileOriginOptions = FileOriginOptions { read_only: true, workers: 2, in_flight_max: 64 };

#[test]
fn what_cannot_be_opened_is_named_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let open = |path: &std::path::Path| FileOrigin::open(path, FileOriginOptions::default()).err().unwrap();
    let missing = directory.path().join("missing");
    assert!(matches!(open(&missing), OpenError::NotFound { .. }));
    assert!(open(&missing).to_string().contains(missing.to_str().unwrap()));
    assert!(matches!(open(directory.path()), OpenError::Directory { .. }));
    assert!(matches!(
        FileOrigin::open(directory.path(), READ_ONLY).err().unwrap(),
        OpenError::Directory { .. }
    ));
    assert!(matches!(open(std::path::Path::new("/dev/null")), OpenError::NotStorage { .. }));
    let empty = directory.path().join("empty");
    File::create(&empty).unwrap();
    assert!(matches!(open(&empty), OpenError::Empty { .. }));
}

#[test]
fn one_writer_or_many_readers() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(8192).unwrap();
    let open = |options| FileOrigin::open(file.path(), options);
    let writer = open(FileOriginOptions::default()).unwrap();
    assert!(matches!(open(FileOriginOptions::default()).err().unwrap(), OpenError::Locked { .. }));
    assert!(matches!(open(READ_ONLY).err().unwrap(), OpenError::Locked { .. }));
    drop(writer);
    let (first, second) = (open(READ_ONLY).unwrap(), open(READ_ONLY).unwrap());
    assert!(matches!(open(FileOriginOptions::default()).err().unwrap(), OpenError::Locked { .. }));
    assert!(first.traits().read_only && !first.traits().can_trim);
    assert_eq!(errno(&run(&first, write(0, b"x"))), Some(1));
    assert_eq!(run(&first, OriginOperation::Flush), Ok(Vec::new()));
    assert_eq!(run(&second, read(0, 3)), Ok(vec![0; 3]));
}

#[test]
fn writes_reach_the_file_and_a_trim_gives_space_back() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let origin = FileOrigin::open(file.path(), FileOriginOptions::default()).unwrap();
    run(&origin, write(4096, &[9; 65_536])).unwrap();
    run(&origin, OriginOperation::Flush).unwrap();
    let mut bytes = [0; 8];
    file.as_file().read_exact_at(&mut bytes, 4092).unwrap();
    assert_eq!(bytes, [0, 0, 0, 0, 9, 9, 9, 9]);
    let before = file.as_file().metadata().unwrap().blocks();
    run(&origin, OriginOperation::Trim { range: ByteRange::new(0, 1 << 20), fua: true }).unwrap();
    let metadata = fs::metadata(file.path()).unwrap();
    assert!(metadata.blocks() < before, "{} blocks of {before} are left", metadata.blocks());
    assert_eq!(metadata.len(), 1 << 20);
}

#[test]
fn a_file_that_got_shorter_answers_with_an_error_and_says_why() {
    let warnings = warnings();
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(8192).unwrap();
    let origin = FileOrigin::open(file.path(), FileOriginOptions::default()).unwrap();
    file.as_file().set_len(6000).unwrap();
    assert_eq!(run(&origin, read(0, 6000)).unwrap().len(), 6000);
    assert_eq!(origin.statistics().state, OriginState::Up);
    for _ in 0..2 {
        assert_eq!(errno(&run(&origin, read(4096, 4096))), Some(5));
    }
    let statistics = origin.statistics();
    let reason = "size is 6000 bytes, was 8192".to_owned();
    assert_eq!((statistics.errors, statistics.state), (2, OriginState::Down { reason }));
    let told = warnings.of(file.path().to_str().unwrap());
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("found=6000 expected=8192"), "{told:?}");
    file.as_file().set_len(8192).unwrap();
    assert_eq!(origin.statistics().state, OriginState::Up);
}

#[test]
fn a_file_that_was_replaced_says_that_what_is_written_will_be_lost() {
    let warnings = warnings();
    let folder = tempfile::tempdir().unwrap();
    let [path, other, new] = ["served", "other", "new"].map(|name| folder.path().join(name));
    for path in [&path, &new] {
        fs::write(path, [0; 8192]).unwrap();
    }
    let origin = FileOrigin::open(&path, FileOriginOptions::default()).unwrap();
    let flushed = || run(&origin, OriginOperation::Flush).map(|_| origin.statistics().danger).unwrap();
    assert_eq!(flushed(), None);
    // Under another name nothing is lost, but the next start finds nothing there, or another file.
    fs::rename(&path, &other).unwrap();
    assert!(flushed().expect("it was moved").contains("moved away from its path"));
    fs::rename(&other, &path).unwrap();
    assert_eq!(flushed(), None);
    fs::hard_link(&path, &other).unwrap();
    fs::rename(&new, &path).unwrap();
    for _ in 0..2 {
        assert!(flushed().expect("another has its name").contains("another file is at its path"));
    }
    fs::remove_file(&other).unwrap();
    for _ in 0..2 {
        assert!(flushed().expect("its last name is gone").contains("removed or replaced"));
    }
    assert_eq!(origin.statistics().state, OriginState::Up);
    let told = warnings.of(path.to_str().unwrap());
    assert_eq!(told.len(), 3, "{told:?}");
}

/// Holds every completion up until it is opened.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
    arrived: Mutex<usize>,
}

impl CompletionSink for Gate {
    fn complete(&self, _: OriginCompletion) {
        *self.arrived.lock().unwrap() += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(self.open.lock().unwrap(), |open| !*open).unwrap());
    }
}

#[test]
fn the_queue_is_bounded() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(8192).unwrap();
    let options = FileOriginOptions { workers: 1, in_flight_max: 3, ..FileOriginOptions::default() };
    let origin = FileOrigin::open(file.path(), options).unwrap();
    let gate = Arc::new(Gate::default());
    let sink: Arc<dyn CompletionSink> = Arc::clone(&gate) as Arc<dyn CompletionSink>;
    let request =
        forebay_origin::OriginRequest { id: forebay_origin::OriginRequestId(0), operation: read(0, 1) };
    origin.submit(request, &sink);
    // The only worker is held up in the first completion, so that everything else waits in the queue.
    while *gate.arrived.lock().unwrap() == 0 {
        std::thread::yield_now();
    }
    let collector = Collector::new();
    for id in 1..=4 {
        submit(&origin, id, read(0, 1), &collector);
    }
    assert_eq!(collector.count(), 1);
    assert_eq!(errno(&collector.wait(1)[&4]), Some(16));
    *gate.open.lock().unwrap() = true;
    gate.changed.notify_all();
    assert_eq!(collector.wait(4).values().filter(|outcome| outcome.is_ok()).count(), 3);
    assert_eq!(origin.statistics().refused, 1);
}

/// A loop device over a file; needs root. Its absence is said aloud, and is a failure where `CI=true`.
struct Loop(std::path::PathBuf);

impl Loop {
    fn over(path: &std::path::Path) -> Option<Loop> {
        let output = std::process::Command::new("losetup").args(["--find", "--show"]).arg(path).output();
        match output {
            Ok(output) if output.status.success() => {
                Some(Loop(String::from_utf8(output.stdout).unwrap().trim().into()))
            }
            other => {
                skip("a file system on a loop device", format_args!("{other:?}"));
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn zeroes_that_must_be_fast_become_holes() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec![7; 1 << 20]).unwrap();
    let changed = || {
        let metadata = file.as_file().metadata().unwrap();
        (metadata.ctime(), metadata.ctime_nsec())
    };
    let before = changed();
    let origin = FileOrigin::open(file.path(), FileOriginOptions::default()).unwrap();
    assert_eq!(changed(), before, "whether it can must be found out without changing anything");
    let blocks = || std::os::unix::fs::MetadataExt::blocks(&file.as_file().metadata().unwrap());
    let before = blocks();
    if !origin.traits().can_fast_zero {
        return skip(file.path().display(), "its file system makes no holes");
    }
    let range = ByteRange::new(0, 512 << 10);
    run(&origin, OriginOperation::WriteZeroes { range, may_trim: true, fua: true, fast: true }).unwrap();
    assert!(before - blocks() >= 900, "{before} blocks, then {}", blocks());
    assert!(run(&origin, read(0, 1 << 20)).unwrap() == [vec![0; 512 << 10], vec![7; 512 << 10]].concat());
    assert_eq!(file.as_file().metadata().unwrap().len(), 1 << 20);
}

#[test]
fn a_block_device_is_an_origin() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let Some(device) = Loop::over(file.path()) else {
        return;
    };
    let origin = FileOrigin::open(&device.0, FileOriginOptions::default()).unwrap();
    assert_eq!(origin.traits().size_bytes, 1 << 20);
    let other = FileOrigin::open(&device.0, FileOriginOptions::default());
    assert!(matches!(other.err(), Some(OpenError::Locked { .. })));
    let reader = FileOrigin::open(&device.0, READ_ONLY);
    assert!(matches!(reader.err(), Some(OpenError::Locked { .. })));
    run(&origin, write(0, &[3; 65_536])).unwrap();
    // Unaligned: the device cannot, so that zeroes are written. Aligned: it can.
    for range in [ByteRange::new(100, 1000), ByteRange::new(8192, 4096)] {
        for may_trim in [true, false] {
            run(&origin, OriginOperation::WriteZeroes { range, may_trim, fua: true, fast: false }).unwrap();
        }
    }
    // Fast: only aligned, and only where a hole may be made.
    assert!(origin.traits().can_fast_zero);
    for (offset, may_trim, expected) in
        [(16_384, true, None), (20_480, false, Some(95)), (20_481, true, Some(95)), (20_481, false, Some(95))]
    {
        let range = ByteRange::new(offset, 512);
        let outcome = run(&origin, OriginOperation::WriteZeroes { range, may_trim, fua: false, fast: true });
        assert_eq!(errno(&outcome), expected, "{range:?}: {outcome:?}");
    }
    run(&origin, OriginOperation::Trim { range: ByteRange::new(32_768, 4096), fua: false }).unwrap();
    run(&origin, OriginOperation::Trim { range: ByteRange::new(50_001, 3), fua: false }).unwrap();
    let bytes = run(&origin, read(0, 65_536)).unwrap();
    let zero = |at: usize| {
        (100..1100).contains(&at) || (8192..12_288).contains(&at) || (16_384..16_896).contains(&at)
    };
    for (at, byte) in bytes.iter().enumerate().filter(|(at, _)| !(32_768..36_864).contains(at)) {
        assert_eq!(*byte, if zero(at) { 0 } else { 3 }, "byte {at}");
    }
}

#[test]
fn a_block_device_that_got_shorter_says_so_where_a_write_finds_no_room() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let Some(device) = Loop::over(file.path()) else {
        return;
    };
    let origin = FileOrigin::open(&device.0, FileOriginOptions::default()).unwrap();
    file.as_file().set_len(1 << 19).unwrap();
    let status = std::process::Command::new("losetup").arg("--set-capacity").arg(&device.0).status();
    assert!(status.unwrap().success());
    assert_eq!(errno(&run(&origin, write(1 << 19, &[3; 4096]))), Some(28));
    let reason = "size is 524288 bytes, was 1048576".to_owned();
    assert_eq!(origin.statistics().state, OriginState::Down { reason });
}

/// A device of 1 MiB of which nothing can be written: the file behind it is empty and may not grow. Linux notices when it writes its pages.
fn device_that_loses_writes() -> Option<Loop> {
    let memory = memfd_create("device", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&memory, 1 << 20).unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&memory));
    let device = Loop::over(std::path::Path::new(&path))?;
    ftruncate(&memory, 0).unwrap();
    fcntl_add_seals(&memory, SealFlags::GROW).unwrap();
    Some(device)
}

/// Linux tells of pages that it could not write once for each open file: of several syncs at once, one is told. Which of them looks first is chance; in so
/// many rounds the wrong one does.
#[test]
fn of_writes_that_are_lost_together_none_is_said_to_be_safe() {
    let Some(device) = device_that_loses_writes() else { return };
    let options = FileOriginOptions { workers: 4, ..FileOriginOptions::default() };
    let open = || Arc::new(FileOrigin::open(&device.0, options).unwrap());
    let all_fail = |round: u64, origin: &dyn Origin, operation: &dyn Fn(u64) -> OriginOperation| {
        let collector = Collector::new();
        (0..4).for_each(|id| submit(origin, id, operation(id), &collector));
        for (id, outcome) in collector.wait(4) {
            assert_eq!(errno(&outcome), Some(5), "round {round}, {id}: {outcome:?}");
        }
    };
    let data = |round: u64| vec![round as u8; 4096];
    for round in 0..4000 {
        let fua = |id| OriginOperation::Write { offset: id * 65_536, data: data(round), fua: true };
        all_fail(round, &*open(), &fua);
    }
    for round in 0..200 {
        let Ok(origin) = on_ring(open()) else { return };
        run(&origin, write(0, &data(round))).unwrap();
        all_fail(round, &origin, &|_| OriginOperation::Flush);
    }
}

#[test]
fn a_flush_that_failed_is_told_until_the_device_is_opened_anew() {
    let Some(device) = device_that_loses_writes() else { return };
    let warnings = warnings();
    // A name of its own: other tests lose writes too, perhaps of a device of that number.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    std::os::unix::fs::symlink(&device.0, &path).unwrap();
    let origin = FileOrigin::open(&path, FileOriginOptions::default()).unwrap();
    assert_eq!(origin.statistics().danger, None);
    run(&origin, write(0, &[7; 4096])).unwrap();
    for _ in 0..2 {
        run(&origin, OriginOperation::Flush).unwrap_err();
        let danger = origin.statistics().danger.expect("writes are lost");
        assert!(danger.contains("a flush failed") && danger.ends_with("(os error 5)"), "{danger}");
    }
    assert_eq!(origin.statistics().state, OriginState::Up);
    let told = warnings.of(path.to_str().unwrap());
    assert_eq!(told.len(), 1, "{told:?}");
}

#[test]
fn who_lets_go_in_a_moment_is_waited_for() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(4096).unwrap();
    let open = || FileOrigin::open(file.path(), FileOriginOptions::default());
    let first = open().unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(open);
        std::thread::sleep(std::time::Duration::from_millis(100));
        drop(first);
        second.join().unwrap().unwrap();
    });
}

/// One at a time has it, and the next one knows it again.
#[test]
fn a_file_that_is_open_to_be_written_is_known_again_by_who_has_it_next() {
    let directory = tempfile::tempdir().unwrap();
    let storage = |name: &str, read_only| {
        let path = directory.path().join(name);
        std::fs::File::options().create(true).append(true).open(&path).unwrap().set_len(1 << 20).unwrap();
        let options = FileOriginOptions { read_only, ..FileOriginOptions::default() };
        FileOrigin::open(&path, options).unwrap().storage()
    };
    let first = storage("a", false);
    assert!(first.is_some());
    assert_eq!(storage("a", false), first);
    assert_ne!(storage("b", false), first);
    // Others may have it, too.
    assert_eq!(storage("a", true), None);
    // Likewise where the path leads elsewhere.
    std::fs::rename(directory.path().join("b"), directory.path().join("a")).unwrap();
    assert_ne!(storage("a", false), first);
}
