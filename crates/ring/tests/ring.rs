//! One suite for both ways: operations go into the ring of the calling thread, or to threads, and nobody can tell by what comes of them.

use forebay_prerequisite::skip;
use forebay_ring::{
    FileError, FileIo, Operation, RING_BYTES_MAX, RING_OPERATIONS_MAX, RingRefused, ThreadRing, Threads,
};
use proptest::prelude::*;
use rustix::event::epoll;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

type Told = (usize, Result<Vec<u8>, FileError>);

/// Who carries operations out, and a file to ask.
struct Way {
    ring: Option<ThreadRing>,
    io: FileIo,
    sender: Sender<Told>,
    receiver: Receiver<Told>,
    _threads: Threads,
}

/// Runs `test` with a ring, and without. A system without io_uring says so aloud, and fails where `CI=true`.
fn both_ways(test: impl Fn(Option<ThreadRing>)) {
    test(None);
    match ThreadRing::install() {
        Ok(ring) => test(Some(ring)),
        Err(RingRefused::Taken) => panic!("a test left its ring behind"),
        Err(refused) => skip("a ring", refused),
    }
}

impl Way {
    fn new(ring: Option<ThreadRing>, file: File, alignment: usize) -> Way {
        let threads = Threads::start("test", 3).unwrap();
        let io = FileIo::new(Arc::new(file), alignment, &threads);
        let (sender, receiver) = channel();
        Way { ring, io, sender, receiver, _threads: threads }
    }

    fn submit(&self, number: usize, operation: Operation) {
        let sender = self.sender.clone();
        self.io.submit(operation, move |outcome| sender.send((number, outcome)).unwrap());
    }

    /// Waits for the ends of `count` operations, which have the numbers from 0 on.
    fn wait(&self, count: usize) -> Vec<Result<Vec<u8>, FileError>> {
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut all: Vec<Option<_>> = (0..count).map(|_| None).collect();
        let mut missing = count;
        while missing > 0 {
            assert!(Instant::now() < deadline, "{missing} of {count} have not ended");
            if let Some(ring) = &self.ring {
                ring.proceed();
            }
            let wait = if self.ring.is_some() { Duration::from_micros(100) } else { Duration::from_secs(1) };
            let Ok((number, outcome)) = self.receiver.recv_timeout(wait) else { continue };
            assert!(all[number].replace(outcome).is_none(), "{number} ended twice");
            missing -= 1;
        }
        assert!(self.receiver.try_recv().is_err());
        all.into_iter().flatten().collect()
    }

    fn run(&self, operation: Operation) -> Result<Vec<u8>, FileError> {
        self.submit(0, operation);
        self.wait(1).remove(0)
    }
}

fn errno(outcome: &Result<Vec<u8>, FileError>) -> Option<i32> {
    match outcome {
        Err(FileError::Failed(error)) => error.raw_os_error(),
        _ => None,
    }
}

fn read(offset: u64, length: usize) -> Operation {
    Operation::Read { offset, length }
}

fn write(offset: u64, data: &[u8]) -> Operation {
    Operation::Write { offset, data: data.to_vec() }
}

fn open_direct(path: &Path) -> Option<File> {
    let flags = OFlags::DIRECT.bits() as i32;
    OpenOptions::new().read(true).write(true).create(true).truncate(false).custom_flags(flags).open(path).ok()
}

#[test]
fn what_is_written_is_read_and_the_ends_of_a_file_are_where_they_should_be() {
    both_ways(|ring| {
        let way = Way::new(ring, tempfile::tempfile().unwrap(), 1);
        assert_eq!(way.run(write(100, b"abc")).unwrap(), b"");
        assert_eq!(way.run(Operation::Sync).unwrap(), b"");
        assert_eq!(way.run(read(99, 4)).unwrap(), b"\0abc");
        assert_eq!(way.run(read(50, 0)).unwrap(), b"");
        assert_eq!(way.run(write(7, b"")).unwrap(), b"");
        // Beyond the end, half beyond it, and where no file ends.
        for bad in [read(103, 1), read(102, 2), read(1 << 40, 4096)] {
            let outcome = way.run(bad);
            assert!(
                matches!(&outcome, Err(FileError::Failed(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof),
                "{outcome:?}"
            );
        }
        for offset in [u64::MAX, u64::MAX - 1, 1 << 63] {
            assert_eq!(errno(&way.run(read(offset, 1))), Some(22));
            assert_eq!(errno(&way.run(write(offset, b"x"))), Some(22));
        }
        assert_eq!(way.run(read(102, 1)).unwrap(), b"c");
        // Longer than what goes into a ring, and just as long.
        for length in [RING_BYTES_MAX, RING_BYTES_MAX + 1, RING_BYTES_MAX * 5] {
            let data: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            way.run(write(4096, &data)).unwrap();
            assert!(way.run(read(4096, length)).unwrap() == data);
        }
    });
}

#[test]
fn errors_of_the_system_are_told_as_they_are() {
    both_ways(|ring| {
        let full = OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
        let way = Way::new(ring, full, 1);
        assert_eq!(errno(&way.run(write(0, &[1; 512]))), Some(28));
        assert_eq!(way.run(read(0, 512)).unwrap(), [0; 512]);
        assert_eq!(errno(&way.run(Operation::Sync)), Some(22));
    });
    both_ways(|ring| {
        let way = Way::new(ring, File::open("/dev/null").unwrap(), 1);
        assert_eq!(errno(&way.run(write(0, b"x"))), Some(9));
        assert!(way.run(read(0, 1)).is_err());
    });
}

#[test]
fn memory_is_aligned_where_a_file_asks_for_it() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    both_ways(|ring| {
        let Some(file) = open_direct(&directory.path().join("direct")) else {
            return skip(directory.path().display(), "no file past the page cache");
        };
        file.set_len(1 << 20).unwrap();
        let way = Way::new(ring, file, 4096);
        for (number, length) in [512, 4096, 8192, 65_536, RING_BYTES_MAX, 1 << 20].into_iter().enumerate() {
            let data = vec![number as u8 + 1; length];
            way.run(write(0, &data)).unwrap();
            assert!(way.run(read(0, length)).unwrap() == data, "{length}");
        }
        // Memory is used again by operations of other lengths; none sees what another left there.
        for step in 0..64u64 {
            let length = 4096 << (step % 4);
            way.run(write(step * 4096, &vec![step as u8; length])).unwrap();
            assert!(way.run(read(step * 4096, length)).unwrap() == vec![step as u8; length], "{step}");
        }
        // Offsets that a device does not know are refused, not rounded.
        assert_eq!(errno(&way.run(read(1, 512))), Some(22));
        assert_eq!(errno(&way.run(write(3, &[0; 512]))), Some(22));
    });
}

#[test]
fn more_than_a_ring_holds_is_carried_out_all_the_same() {
    both_ways(|ring| {
        let way = Way::new(ring, tempfile::tempfile().unwrap(), 1);
        let count = RING_OPERATIONS_MAX * 3;
        for number in 0..count {
            way.submit(number, write(number as u64 * 8, &(number as u64).to_le_bytes()));
        }
        if let Some(ring) = &way.ring {
            assert_eq!(ring.in_flight(), RING_OPERATIONS_MAX);
        }
        assert!(way.wait(count).iter().all(Result::is_ok));
        for number in 0..count {
            way.submit(number, read(number as u64 * 8, 8));
        }
        for (number, outcome) in way.wait(count).into_iter().enumerate() {
            assert_eq!(outcome.unwrap(), (number as u64).to_le_bytes());
        }
    });
}

#[test]
fn a_ring_wakes_who_watches_it() {
    let Ok(ring) = ThreadRing::install() else { return both_ways(|_| {}) };
    let way = Way::new(Some(ring), tempfile::tempfile().unwrap(), 1);
    let ring = way.ring.as_ref().unwrap();
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&epoll, ring.fd(), epoll::EventData::new_u64(1), flags).unwrap();
    let is_woken = |tv_sec: i64| {
        let timeout = rustix::time::Timespec { tv_sec, tv_nsec: 0 };
        let mut events = Vec::with_capacity(4);
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)).unwrap() == 1
    };
    for round in 0..200 {
        way.submit(0, write(0, &[1; 4096]));
        assert_eq!(ring.proceed_within(), Some(Duration::ZERO), "the kernel was not told yet");
        ring.proceed();
        // Whatever has ended since was noticed by then, or wakes.
        while ring.in_flight() > 0 {
            assert!(ring.proceed_within() == Some(Duration::ZERO) || is_woken(20), "{round}");
            ring.proceed();
        }
        way.wait(1);
        assert_eq!(ring.proceed_within(), None);
    }
}

#[test]
fn other_threads_than_the_ring_s_own_are_served_by_threads() {
    let Ok(ring) = ThreadRing::install() else { return both_ways(|_| {}) };
    let way = Way::new(Some(ring), tempfile::tempfile().unwrap(), 1);
    std::thread::scope(|scope| {
        let (io, sender) = (way.io.clone(), way.sender.clone());
        scope.spawn(move || {
            io.submit(write(0, b"x"), move |outcome| sender.send((0, outcome)).unwrap());
        });
    });
    assert_eq!(way.ring.as_ref().unwrap().in_flight(), 0);
    assert!(way.wait(1)[0].is_ok());
}

#[test]
fn an_end_may_ask_for_more() {
    both_ways(|ring| {
        let way = Way::new(ring, tempfile::tempfile().unwrap(), 1);
        let (io, sender) = (way.io.clone(), way.sender.clone());
        // A write, and at its end a sync, and at its end a read.
        way.io.submit(write(0, b"chain"), move |outcome| {
            outcome.unwrap();
            let (next, last) = (io.clone(), sender);
            io.submit(Operation::Sync, move |outcome| {
                outcome.unwrap();
                next.submit(read(0, 5), move |outcome| last.send((0, outcome)).unwrap());
            });
        });
        assert_eq!(way.wait(1).remove(0).unwrap(), b"chain");
    });
}

#[test]
fn threads_finish_what_they_have_when_they_are_dropped_and_start_as_they_are_needed() {
    let count = |name: &str| {
        std::fs::read_dir("/proc/self/task")
            .unwrap()
            .filter(|task| {
                let comm = task.as_ref().unwrap().path().join("comm");
                std::fs::read_to_string(comm).is_ok_and(|comm| comm.starts_with(name))
            })
            .count()
    };
    let threads = Threads::start("counted", 3).unwrap();
    let (sender, receiver) = channel();
    let (open, gate) = channel::<()>();
    let gate = Arc::new(std::sync::Mutex::new(gate));
    for number in 0..20 {
        let (sender, gate) = (sender.clone(), gate.clone());
        threads.submit(Box::new(move || {
            // The first holds the lock until the gate opens, the others wait for the lock.
            let _ = gate.lock().unwrap().recv();
            sender.send(number).unwrap();
        }));
    }
    // A thread has its name a moment after it started.
    let deadline = Instant::now() + Duration::from_secs(20);
    while count("counted") < 3 {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    assert_eq!(count("counted"), 3);
    drop(open);
    let handle = threads.handle();
    drop(threads);
    assert_eq!(receiver.try_iter().count(), 20);
    assert!(handle.submit(Box::new(|| ())).is_err());
}

#[derive(Clone, Debug)]
enum Step {
    Read(u16, u16),
    Write(u16, u16, u8),
    Sync,
    Settle,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (any::<u16>(), 1..9000u16).prop_map(|(offset, length)| Step::Read(offset, length)),
        3 => (any::<u16>(), 1..9000u16, any::<u8>()).prop_map(|(offset, length, byte)| Step::Write(offset, length, byte)),
        1 => Just(Step::Sync),
        2 => Just(Step::Settle),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Reads in flight beside writes see, in each byte, what was there before or what one of the writes put there; afterwards the file is as a
    /// vector is, where writes in flight together did not overlap.
    #[test]
    fn both_ways_do_the_same(steps in steps()) {
        both_ways(|ring| {
            let file = tempfile::tempfile().unwrap();
            file.set_len(80_000).unwrap();
            let way = Way::new(ring, file.try_clone().unwrap(), 1);
            let mut model = vec![0u8; 80_000];
            let mut writes: Vec<(usize, usize, u8)> = Vec::new();
            let mut reads: Vec<(usize, usize, usize)> = Vec::new();
            let mut count = 0;
            for step in steps.iter().chain([&Step::Settle]) {
                match *step {
                    Step::Read(offset, length) => {
                        way.submit(count, read(offset.into(), length.into()));
                        reads.push((count, offset.into(), length.into()));
                        count += 1;
                    }
                    Step::Write(offset, length, byte) => {
                        let (start, end) = (usize::from(offset), usize::from(offset) + usize::from(length));
                        if writes.iter().any(|(from, to, _)| start < *to && *from < end) {
                            continue;
                        }
                        way.submit(count, write(offset.into(), &vec![byte; length.into()]));
                        writes.push((start, end, byte));
                        count += 1;
                    }
                    Step::Sync => {
                        way.submit(count, Operation::Sync);
                        count += 1;
                    }
                    Step::Settle => {
                        let outcomes = way.wait(std::mem::take(&mut count));
                        let before = model.clone();
                        for (start, end, byte) in writes.drain(..) {
                            model[start..end].fill(byte);
                        }
                        for (number, offset, length) in reads.drain(..) {
                            let bytes = outcomes[number].as_ref().unwrap();
                            assert_eq!(bytes.len(), length);
                            for (at, byte) in (offset..).zip(bytes) {
                                assert!(*byte == before[at] || *byte == model[at], "byte {at}");
                            }
                        }
                        assert!(outcomes.iter().all(Result::is_ok));
                    }
                }
            }
            let mut found = vec![0; 80_000];
            file.read_exact_at(&mut found, 0).unwrap();
            assert!(found == model);
        });
    }
}
