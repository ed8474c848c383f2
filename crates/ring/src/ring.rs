//! The io_uring of a thread: operations go in, and come out with their buffers.
//!
//! A ring belongs to one thread (`IORING_SETUP_SINGLE_ISSUER`), which need not be told of each completion: the kernel keeps them until the thread asks
//! (`IORING_SETUP_DEFER_TASKRUN`), so that one call submits all there is to submit and takes all there is to take.
//!
//! A descriptor wakes the thread (the ring's own does not, while completions wait to be asked for). It does so only while the thread has nothing to look at: from the end of
//! [`ThreadRing::proceed`] to the next.
//!
//! What the kernel refuses for want of memory stays in the queue and is offered again; new operations go to threads meanwhile. What it refuses for longer than
//! [`STUCK_MAX`], or for good, ends the ring: what the kernel has not seen is done by threads, as are reads that it has; of writes and syncs
//! that it has, the outcome is unknown. Their memory is never freed then.

use crate::buffer::{Buffer, Buffers};
use crate::file::{FileError, Flight, Operation};
use crate::refused::RingRefused;
use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode, squeue};
use rustix::event::{EventfdFlags, eventfd};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

/// Operations that a ring holds; more go to threads (ours).
pub const RING_OPERATIONS_MAX: usize = 256;

/// Threads of the kernel's own that it may use for a ring, for files that it knows the end of, and as many for others (ours).
const KERNEL_THREADS_MAX: u32 = 16;

/// How long the kernel may refuse to take anything before the ring is given up (ours).
pub const STUCK_MAX: Duration = Duration::from_secs(1);

/// How soon the kernel is offered again what it had no memory for.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// How soon a ring is looked at that holds operations although nothing woke its thread: should a wake-up be lost, this is what it costs.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// How long the end of a ring waits for what the kernel has.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// Rounds of operations that are submitted by the ends of others, before the caller goes on.
const ROUNDS_MAX: usize = 4;

const EINTR: i32 = 4;
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const EBUSY: i32 = 16;
const EOPNOTSUPP: i32 = 95;
const ETIME: i32 = 62;
const ECANCELED: i32 = 125;

thread_local! {
    /// The ring of this thread.
    static RING: RefCell<Option<Rc<RefCell<Ring>>>> = const { RefCell::new(None) };
}

/// The ring of the calling thread, if it has one. None while the thread ends.
fn ring_of_thread() -> Option<Rc<RefCell<Ring>>> {
    RING.try_with(|ring| ring.borrow().clone()).ok().flatten()
}

/// Puts an operation into the ring of the calling thread, or gives it to a thread.
pub(crate) fn push(flight: Flight) {
    let refused = match ring_of_thread() {
        Some(ring) => ring.borrow_mut().push(flight),
        None => Err(flight),
    };
    if let Err(flight) = refused {
        flight.give_to_thread();
    }
}

/// The role of driving a ring for the calling thread: until it is dropped, what the thread asks of files goes into that ring. It cannot leave the thread.
#[derive(Debug)]
pub struct ThreadRing {
    ring: Rc<RefCell<Ring>>,
    /// What the kernel counts up when something has ended.
    wake: OwnedFd,
    stays_here: PhantomData<*const ()>,
}

impl ThreadRing {
    /// Makes a ring for the calling thread, and tries it.
    ///
    /// # Errors
    /// [`RingRefused`]: the thread goes on without one.
    pub fn install() -> Result<ThreadRing, RingRefused> {
        if ring_of_thread().is_some() {
            return Err(RingRefused::Taken);
        }
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| RingRefused::Setup { source: error.into() })?;
        let ring = Rc::new(RefCell::new(Ring::new(wake.as_fd())?));
        RING.set(Some(Rc::clone(&ring)));
        Ok(ThreadRing { ring, wake, stays_here: PhantomData })
    }

    /// Changes (is written to) when [`ThreadRing::proceed`] has something to do. It is never read, so watch it for edges (`EPOLLET`).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Tells the kernel what was asked since the last call, and everybody what has ended. Does not wait. A system call only if there is something to
    /// tell or to take.
    pub fn proceed(&self) {
        for _ in 0..ROUNDS_MAX {
            let ended = self.ring.borrow_mut().proceed();
            let is_idle = ended.is_empty();
            ended.into_iter().for_each(End::tell);
            // Whose end was told may have asked for more.
            if is_idle {
                return;
            }
        }
    }

    /// How soon [`ThreadRing::proceed`] must be called although the descriptor is not readable; `None`: need not.
    pub fn proceed_within(&self) -> Option<Duration> {
        let mut ring = self.ring.borrow_mut();
        match (ring.has_unsubmitted(), ring.stuck_since) {
            (true, Some(_)) => Some(RETRY_AFTER),
            (true, None) => Some(Duration::ZERO),
            (false, _) if ring.has_something() => Some(Duration::ZERO),
            (false, _) => (ring.flights.count > 0).then_some(LOOK_AFTER),
        }
    }

    /// Whether the ring takes operations; not if it was given up.
    pub fn is_usable(&self) -> bool {
        self.ring.borrow().uring.is_some()
    }

    /// Operations in the ring.
    pub fn in_flight(&self) -> usize {
        self.ring.borrow().flights.count
    }

    #[cfg(test)]
    fn with<R>(&self, change: impl FnOnce(&mut Ring) -> R) -> R {
        change(&mut self.ring.borrow_mut())
    }
}

impl Drop for ThreadRing {
    /// Ends what is in the ring, and waits for that for 5 s at most.
    fn drop(&mut self) {
        let _ = RING.try_with(RefCell::take);
        let deadline = Instant::now() + DRAIN_MAX;
        loop {
            let ended = self.ring.borrow_mut().drain(deadline);
            if ended.is_empty() {
                return;
            }
            ended.into_iter().for_each(End::tell);
        }
    }
}

/// What is in the ring, by its number, which is that of its entry.
#[derive(Default)]
struct Flights {
    places: Vec<Option<(Flight, Buffer)>>,
    free: Vec<u32>,
    count: usize,
}

impl Flights {
    fn insert(&mut self, flight: Flight, buffer: Buffer) -> u32 {
        self.count += 1;
        match self.free.pop() {
            Some(key) => {
                self.places[key as usize] = Some((flight, buffer));
                key
            }
            None => {
                self.places.push(Some((flight, buffer)));
                self.places.len() as u32 - 1
            }
        }
    }

    fn remove(&mut self, key: u64) -> Option<(Flight, Buffer)> {
        let flight = self.places.get_mut(usize::try_from(key).ok()?)?.take()?;
        self.count -= 1;
        self.free.push(key as u32);
        Some(flight)
    }
}

/// An operation that left the ring.
enum End {
    /// It ended.
    Told(Flight, Result<Vec<u8>, FileError>),
    /// It was not carried out as asked, and is done anew.
    Anew(Flight),
}

impl End {
    fn tell(self) {
        match self {
            End::Told(flight, outcome) => (flight.done)(outcome),
            End::Anew(flight) => flight.give_to_thread(),
        }
    }
}

struct Ring {
    /// None once it was given up.
    uring: Option<IoUring>,
    flights: Flights,
    /// Those that the kernel has not taken yet, in the order of the queue.
    unsubmitted: VecDeque<u32>,
    /// Since when the kernel takes nothing.
    stuck_since: Option<Instant>,
    buffers: Buffers,
    /// What tests let go wrong: the next submissions, and the results of operations.
    #[cfg(test)]
    faults: tests::Faults,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("in_flight", &self.flights.count).finish_non_exhaustive()
    }
}

impl Ring {
    fn new(wake: BorrowedFd<'_>) -> Result<Ring, RingRefused> {
        let setup = |source| RingRefused::Setup { source };
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .build(RING_OPERATIONS_MAX as u32)
            .map_err(setup)?;
        let unable = |what| Err(RingRefused::Unable { what });
        if !uring.params().is_feature_nodrop() {
            return unable("keep completions");
        }
        if !uring.params().is_feature_ext_arg() {
            return unable("wait for a limited time");
        }
        let mut probe = Probe::new();
        uring.submitter().register_probe(&mut probe).map_err(setup)?;
        for (code, what) in
            [(opcode::Read::CODE, "read"), (opcode::Write::CODE, "write"), (opcode::Fsync::CODE, "sync")]
        {
            if !probe.is_supported(code) {
                return unable(what);
            }
        }
        // What cannot be done at once is done by threads of the kernel's; it would start one for each operation on a device. A kernel that cannot be
        // told so is no worse off than without.
        let _ = uring.submitter().register_iowq_max_workers(&mut [KERNEL_THREADS_MAX; 2]);
        uring.submitter().register_eventfd(wake.as_raw_fd()).map_err(setup)?;
        let mut ring = Ring {
            uring: Some(uring),
            flights: Flights::default(),
            unsubmitted: VecDeque::new(),
            stuck_since: None,
            buffers: Buffers::default(),
            #[cfg(test)]
            faults: tests::Faults::default(),
        };
        // A filter may let rings be made, and not be used.
        ring.enqueue(&opcode::Nop::new().build());
        let uring = ring.uring.as_mut().expect("it was just made");
        uring.submit_and_wait(1).map_err(setup)?;
        let result = uring.completion().next().map(|completion| completion.result());
        if result == Some(0) { Ok(ring) } else { unable("do nothing") }
    }

    fn has_unsubmitted(&self) -> bool {
        !self.unsubmitted.is_empty()
    }

    /// Takes an operation in, or gives it back.
    fn push(&mut self, mut flight: Flight) -> Result<(), Flight> {
        if self.uring.is_none() || self.stuck_since.is_some() || self.flights.count >= RING_OPERATIONS_MAX {
            return Err(flight);
        }
        let buffer = flight.take_buffer(&mut self.buffers);
        let fd = Fd(flight.io.file().as_raw_fd());
        let key = self.flights.insert(flight, buffer);
        let (flight, buffer) = self.flights.places[key as usize].as_mut().expect("it was just inserted");
        let length = buffer.len() as u32;
        // From here on until the completion, nobody touches the bytes of the buffer.
        let entry = match &flight.operation {
            Operation::Read { offset, .. } => {
                opcode::Read::new(fd, buffer.bytes_mut().as_mut_ptr(), length).offset(*offset).build()
            }
            Operation::Write { offset, .. } => {
                opcode::Write::new(fd, buffer.bytes().as_ptr(), length).offset(*offset).build()
            }
            Operation::Sync => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
        };
        self.unsubmitted.push_back(key);
        self.enqueue(&entry.user_data(key.into()));
        Ok(())
    }

    /// Writes an entry into the queue, where the kernel finds it at the next submission.
    #[allow(unsafe_code)]
    fn enqueue(&mut self, entry: &squeue::Entry) {
        let uring = self.uring.as_mut().expect("the caller has seen it");
        // SAFETY: the entry is a NOP, or names the file and the memory of the flight that `push` inserted under its number. Both live until the
        // kernel is done with them: a flight is removed when its completion was taken, or by `give_up`, which first closes the ring, so that no entry
        // is taken any more, and then leaks the buffer of every flight that was. The memory is on the heap, of its own `Vec`, which nothing
        // grows, shrinks, or frees meanwhile, so it stays where it is when the flight or the table moves; and nothing reads or
        // writes it, so the kernel's accesses are the only ones. The file is kept open by the flight.
        let pushed = unsafe { uring.submission().push(entry) };
        assert!(pushed.is_ok(), "the queue has a place for each of {RING_OPERATIONS_MAX} operations");
    }

    /// Whether the kernel has something to deliver, or did. It may say so a moment late, of what it has delivered already, and takes that back with the next delivery only: where
    /// nothing is under way there is none, and a thread that believed it would never sleep.
    fn has_something(&mut self) -> bool {
        if self.flights.count == 0 {
            return false;
        }
        let Some(uring) = &mut self.uring else { return false };
        let is_to_come = {
            let queue = uring.submission();
            queue.taskrun() || queue.cq_overflow()
        };
        is_to_come || !uring.completion().is_empty()
    }

    /// Submits and takes, without waiting. The thread is woken for what comes after the look that found nothing.
    fn proceed(&mut self) -> Vec<End> {
        let mut ended = Vec::new();
        if self.has_unsubmitted() || self.has_something() {
            if let Some(uring) = &mut self.uring {
                uring.completion().disable_eventfd();
            }
            self.submit(&mut ended);
            self.take(&mut ended);
            if let Some(uring) = &mut self.uring {
                uring.completion().enable_eventfd();
                // What came before is seen by who looks next, what comes after wakes.
                fence(Ordering::SeqCst);
            }
        }
        ended
    }

    /// Tells the kernel what is in the queue, and lets it deliver what has ended.
    fn submit(&mut self, ended: &mut Vec<End>) {
        // An interruption says nothing; a few of them in a row do not stop us from looking at the rest.
        for _ in 0..ROUNDS_MAX {
            match self.enter(None) {
                Ok(count) => {
                    self.submitted(count);
                    if self.unsubmitted.is_empty() {
                        self.stuck_since = None;
                        return;
                    }
                    if count == 0 {
                        break;
                    }
                }
                Err(error) => match error.raw_os_error() {
                    Some(EINTR) => {}
                    Some(EAGAIN | ENOMEM | EBUSY) => break,
                    _ => return self.give_up(&error, ended),
                },
            }
        }
        if self.unsubmitted.is_empty() {
            return;
        }
        let now = Instant::now();
        let since = *self.stuck_since.get_or_insert(now);
        if now - since > STUCK_MAX {
            self.give_up(&io::Error::from_raw_os_error(EAGAIN), ended);
        }
    }

    /// The system call; with a `timeout` it waits so long at most for one completion.
    fn enter(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        #[cfg(test)]
        if let Some(errno) = self.faults.next_enter() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let uring = self.uring.as_ref().expect("the caller has seen it");
        match timeout {
            None => uring.submit(),
            Some(timeout) => {
                let timeout = Timespec::from(timeout);
                uring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
        }
    }

    fn submitted(&mut self, count: usize) {
        if count > 0 {
            self.stuck_since = None;
        }
        self.unsubmitted.drain(..count.min(self.unsubmitted.len()));
    }

    /// Takes what has ended.
    fn take(&mut self, ended: &mut Vec<End>) {
        let Some(uring) = &mut self.uring else { return };
        for completion in uring.completion() {
            let Some((flight, buffer)) = self.flights.remove(completion.user_data()) else { continue };
            #[cfg(not(test))]
            let result = completion.result();
            #[cfg(test)]
            let result = self.faults.next_result(completion.result());
            ended.push(judge(flight, buffer, result, &mut self.buffers));
        }
    }

    /// Like [`Ring::proceed`], but waits for something to end while anything is in flight; at `deadline`, everything does.
    fn drain(&mut self, deadline: Instant) -> Vec<End> {
        let mut ended = Vec::new();
        while ended.is_empty() && self.flights.count > 0 && self.uring.is_some() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.give_up(&io::Error::from_raw_os_error(ETIME), &mut ended);
                break;
            }
            match self.enter(Some(left)) {
                Ok(count) => self.submitted(count),
                Err(error) => match error.raw_os_error() {
                    Some(EINTR | ETIME) => {}
                    Some(EAGAIN | ENOMEM | EBUSY) => std::thread::sleep(RETRY_AFTER),
                    _ => self.give_up(&error, &mut ended),
                },
            }
            self.take(&mut ended);
        }
        ended
    }

    /// Ends the ring, whatever the kernel has.
    fn give_up(&mut self, error: &io::Error, ended: &mut Vec<End>) {
        self.take(ended);
        tracing::error!(
            %error,
            in_flight = self.flights.count,
            "io_uring is given up; threads read and write from now on"
        );
        // Closes the descriptor: what the kernel has not taken, it never will.
        self.uring = None;
        let unsubmitted: Vec<u32> = self.unsubmitted.drain(..).collect();
        for key in 0..self.flights.places.len() as u32 {
            let Some((mut flight, buffer)) = self.flights.remove(key.into()) else { continue };
            if unsubmitted.contains(&key) {
                flight.put_back(buffer, &mut self.buffers);
                ended.push(End::Anew(flight));
                continue;
            }
            // The kernel may still use it.
            std::mem::forget(buffer);
            ended.push(match flight.operation {
                Operation::Read { .. } => End::Anew(flight),
                // A second sync would not be told of the error that the first one may have met.
                Operation::Write { .. } | Operation::Sync => {
                    End::Told(flight, Err(FileError::OutcomeUnknown))
                }
            });
        }
    }
}

impl Drop for Ring {
    /// Only where [`ThreadRing`] was forgotten there is anything left.
    fn drop(&mut self) {
        if self.flights.count > 0 && self.uring.is_some() {
            let mut ended = Vec::new();
            self.give_up(&io::Error::other("its thread ended"), &mut ended);
            ended.into_iter().for_each(End::tell);
        }
    }
}

/// What the kernel's `result` means for an operation.
fn judge(mut flight: Flight, buffer: Buffer, result: i32, buffers: &mut Buffers) -> End {
    if result >= 0 && result as usize == buffer.len() {
        let outcome = match flight.operation {
            Operation::Read { .. } => buffers.finish(buffer),
            Operation::Write { .. } | Operation::Sync => Vec::new(),
        };
        return End::Told(flight, Ok(outcome));
    }
    flight.put_back(buffer, buffers);
    // Not done, or not all of it. A sync has no parts, and the next one would not be told what this one met.
    let is_unfinished = result >= 0 || [EINTR, EAGAIN, ENOMEM, EOPNOTSUPP, ECANCELED].contains(&-result);
    if is_unfinished && flight.operation != Operation::Sync {
        return End::Anew(flight);
    }
    End::Told(flight, Err(io::Error::from_raw_os_error(-result).into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::FileIo;
    use crate::threads::Threads;
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel};

    /// What goes wrong next.
    #[derive(Default)]
    pub(super) struct Faults {
        enters: VecDeque<Option<i32>>,
        every_enter: Option<i32>,
        results: VecDeque<Option<i32>>,
    }

    impl Faults {
        pub(super) fn next_enter(&mut self) -> Option<i32> {
            self.enters.pop_front().flatten().or(self.every_enter)
        }

        pub(super) fn next_result(&mut self, result: i32) -> i32 {
            self.results.pop_front().flatten().unwrap_or(result)
        }
    }

    /// A file of 64 KiB in which each 4 KiB hold their number, a ring, and a thread.
    struct Scene {
        ring: ThreadRing,
        io: FileIo,
        file: Arc<File>,
        threads: Threads,
    }

    fn scene() -> Scene {
        let file = Arc::new(tempfile::tempfile().unwrap());
        for block in 0..16u64 {
            file.write_all_at(&[block as u8; 4096], block * 4096).unwrap();
        }
        let threads = Threads::start("test", 2).unwrap();
        let io = FileIo::new(Arc::clone(&file), 1, &threads);
        let ring = ThreadRing::install().expect("these tests need a kernel with io_uring");
        Scene { ring, io, file, threads }
    }

    type Told = Receiver<(u64, Result<Vec<u8>, FileError>)>;

    impl Scene {
        /// Reads blocks 0 to `reads`, and writes a block of ones to each of the 4 from 12 on if `writes`.
        fn ask(&self, reads: u64, writes: bool) -> Told {
            let (sender, told) = channel();
            for block in 0..reads {
                let sender = sender.clone();
                self.io.submit(Operation::Read { offset: block * 4096, length: 4096 }, move |outcome| {
                    sender.send((block, outcome)).unwrap();
                });
            }
            for block in if writes { 12..16 } else { 0..0u64 } {
                let sender = sender.clone();
                let operation = Operation::Write { offset: block * 4096, data: vec![1; 4096] };
                self.io.submit(operation, move |outcome| sender.send((block, outcome)).unwrap());
            }
            told
        }

        /// Proceeds until `count` were told, each once.
        fn told(&self, told: &Told, count: usize) -> Vec<(u64, Result<Vec<u8>, FileError>)> {
            let deadline = Instant::now() + Duration::from_secs(20);
            let mut all = Vec::new();
            while all.len() < count {
                assert!(Instant::now() < deadline, "{} of {count} were told", all.len());
                self.ring.proceed();
                all.extend(told.recv_timeout(Duration::from_millis(1)));
            }
            self.ring.proceed();
            assert!(told.try_recv().is_err(), "one was told twice");
            all.sort_by_key(|(block, _)| *block);
            all
        }
    }

    fn expect_all(all: Vec<(u64, Result<Vec<u8>, FileError>)>, reads: u64) {
        for (block, outcome) in all {
            let expected = if block < reads { vec![block as u8; 4096] } else { Vec::new() };
            assert_eq!(outcome.unwrap(), expected, "{block}");
        }
    }

    #[test]
    fn what_the_kernel_has_no_memory_for_is_offered_again_and_the_rest_goes_to_threads() {
        let scene = scene();
        scene.ring.with(|ring| ring.faults.enters = [EINTR, EAGAIN, ENOMEM, EBUSY].map(Some).into());
        let told = scene.ask(3, true);
        assert_eq!((scene.ring.in_flight(), scene.ring.proceed_within()), (7, Some(Duration::ZERO)));
        scene.ring.proceed();
        assert_eq!((scene.ring.in_flight(), scene.ring.proceed_within()), (7, Some(RETRY_AFTER)));
        let meanwhile = scene.ask(2, false);
        assert_eq!(scene.ring.in_flight(), 7);
        expect_all(scene.told(&meanwhile, 2), 2);
        expect_all(scene.told(&told, 7), 3);
        assert_eq!((scene.ring.in_flight(), scene.ring.proceed_within()), (0, None));
        assert!(scene.ring.is_usable());
        let mut byte = [0; 1];
        scene.file.read_exact_at(&mut byte, 13 * 4096).unwrap();
        assert_eq!(byte, [1]);
    }

    #[test]
    fn a_ring_that_takes_nothing_for_too_long_is_given_up_and_threads_do_all_of_it() {
        let scene = scene();
        let told = scene.ask(3, true);
        scene.ring.with(|ring| {
            ring.faults.every_enter = Some(EAGAIN);
            ring.stuck_since = Instant::now().checked_sub(STUCK_MAX * 2);
        });
        scene.ring.proceed();
        assert!(!scene.ring.is_usable());
        expect_all(scene.told(&told, 7), 3);
        let told = scene.ask(5, true);
        assert_eq!(scene.ring.in_flight(), 0);
        expect_all(scene.told(&told, 9), 5);
    }

    #[test]
    fn when_a_ring_breaks_reads_are_done_anew_and_writes_are_in_doubt() {
        let scene = scene();
        let told = scene.ask(3, true);
        scene.io.submit(Operation::Sync, |outcome| {
            assert!(matches!(outcome, Err(FileError::OutcomeUnknown)), "{outcome:?}");
        });
        scene.ring.with(|ring| {
            // The kernel has them, and nobody has looked what became of them.
            let count = ring.enter(None).unwrap();
            assert_eq!(count, 8);
            ring.submitted(count);
            ring.faults.every_enter = Some(9);
        });
        // One more that the kernel has not seen.
        let unseen = scene.ask(1, false);
        scene.ring.proceed();
        assert!(!scene.ring.is_usable());
        expect_all(scene.told(&unseen, 1), 1);
        let all = scene.told(&told, 7);
        expect_all(
            all[..3].iter().map(|(block, told)| (*block, Ok(told.as_ref().unwrap().clone()))).collect(),
            3,
        );
        // A file's writes are the kernel's threads' to do, and their ends wait until they are asked for.
        for (block, outcome) in &all[3..] {
            assert!(matches!(outcome, Err(FileError::OutcomeUnknown)), "{block}: {outcome:?}");
        }
    }

    #[test]
    fn a_result_that_is_not_what_was_asked_is_done_anew_and_an_error_is_told() {
        let scene = scene();
        // A short read, an interrupted one, a cancelled one; a short write, one of no bytes; one that fails.
        let results = [100, -EINTR, -ECANCELED, 1, 0, -EAGAIN, -5];
        scene.ring.with(|ring| ring.faults.results = results.map(Some).into());
        // In the order of completion, which on a file in memory is that of submission or that of the kernel's threads; so every one is asked alone.
        let (mut failed, mut told_all) = (0, Vec::new());
        for block in [0, 1, 2, 12, 13, 14, 3u64] {
            let (sender, told) = channel();
            let operation = match block {
                12.. => Operation::Write { offset: block * 4096, data: vec![1; 4096] },
                _ => Operation::Read { offset: block * 4096, length: 4096 },
            };
            scene.io.submit(operation, move |outcome| sender.send((block, outcome)).unwrap());
            for (block, outcome) in scene.told(&told, 1) {
                match outcome {
                    Err(FileError::Failed(error)) if error.raw_os_error() == Some(5) => failed += 1,
                    outcome => told_all.push((block, outcome)),
                }
            }
        }
        assert_eq!((failed, told_all.len()), (1, 6));
        expect_all(told_all, 3);
        for block in 12..15u64 {
            let mut bytes = [0; 4096];
            scene.file.read_exact_at(&mut bytes, block * 4096).unwrap();
            assert_eq!(bytes, [1; 4096], "{block}");
        }
        // A sync is never done twice: the second would not be told what the first met.
        scene.ring.with(|ring| ring.faults.results = [Some(-EINTR)].into());
        let (sender, told) = channel();
        scene.io.submit(Operation::Sync, move |outcome| sender.send((0, outcome)).unwrap());
        assert!(matches!(scene.told(&told, 1)[0].1, Err(FileError::Failed(_))));
    }

    #[test]
    fn a_ring_that_is_dropped_or_forgotten_tells_every_end() {
        let Scene { ring, io, file, threads } = scene();
        let scene = Scene { ring, io, file, threads };
        let told = scene.ask(12, true);
        assert_eq!(scene.ring.in_flight(), 16);
        let Scene { ring, io, file, threads } = scene;
        drop(ring);
        assert_eq!(told.try_iter().count(), 16, "a drop waits for what is in flight");
        // A thread that forgets its ring.
        let forgotten = std::thread::spawn(move || {
            let ring = ThreadRing::install().unwrap();
            let scene = Scene { ring, io, file, threads };
            let told = scene.ask(12, false);
            std::mem::forget(scene.ring);
            (told, scene.threads)
        });
        let (told, threads) = forgotten.join().unwrap();
        drop(threads);
        expect_all(told.try_iter().collect(), 12);
    }

    #[test]
    fn a_thread_has_one_ring_and_may_have_another_after_it() {
        let scene = scene();
        assert!(matches!(ThreadRing::install(), Err(RingRefused::Taken)));
        drop(scene.ring);
        assert!(ThreadRing::install().is_ok());
    }
}
