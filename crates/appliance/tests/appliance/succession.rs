//! An origin of ours at a server of ours, between which connections break at any moment, or which is started anew: no client hears of it, and no change comes late.

use super::client::Client;
use super::origins::HeldOrigin;
use super::scene::{MIB, PATIENCE, Scene, memory, scene, until};
use forebay_appliance::{
    Appliance, ApplianceConfig, Drained, ListenerConfig, RetargetError, RetargetFailure, RetargetOptions,
    ServiceLimits, VolumeConfig,
};
use forebay_nbd::client::Operation;
use forebay_origin::layer::{Delay, DelayParameters};
use forebay_origin::{
    CompletionSink, NbdOrigin, NbdOriginOptions, Origin, OriginCompletion, OriginError, OriginOperation,
    OriginRequest, OriginRequestId, OriginState, OriginTraits, Timer, Unflushed,
};
use forebay_units::{ByteRange, Nanos};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const BLOCKS: u64 = 48;
const BLOCK: usize = 4096;

/// Passes bytes on between clients and a server, until it is told to break.
struct Relay {
    path: PathBuf,
    pairs: Arc<Mutex<Vec<Pair>>>,
    closing: Arc<AtomicBool>,
    /// Nobody is passed on.
    is_down: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Pair {
    client: UnixStream,
    server: UnixStream,
    /// Only the client sees that it is broken. What it had sent goes on to the server, and then nothing, for a while.
    is_half_open: Arc<AtomicBool>,
}

impl Relay {
    fn start(path: &Path, server: &Path, seed: u64) -> Relay {
        let listener = UnixListener::bind(path).unwrap();
        let pairs = Arc::new(Mutex::new(Vec::new()));
        let closing = Arc::new(AtomicBool::new(false));
        let is_down = Arc::new(AtomicBool::new(false));
        let (to, for_thread, ends, down) =
            (server.to_owned(), pairs.clone(), closing.clone(), is_down.clone());
        let thread = std::thread::spawn(move || {
            for (number, client) in (0u64..).zip(listener.incoming()) {
                let client = client.unwrap();
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                if down.load(Ordering::SeqCst) {
                    continue;
                }
                let server = UnixStream::connect(&to).unwrap();
                let is_half_open = Arc::new(AtomicBool::new(false));
                let copies = || (client.try_clone().unwrap(), server.try_clone().unwrap());
                let ((to_client, from_server), (from_client, to_server)) = (copies(), copies());
                let late = is_half_open.clone();
                let random = Xoshiro256PlusPlus::seed_from_u64(seed ^ number);
                std::thread::spawn(move || pass_on(from_client, to_server, &late, random));
                std::thread::spawn(move || {
                    let (mut from, mut to) = (from_server, to_client);
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
                for_thread.lock().unwrap().push(Pair { client, server, is_half_open });
            }
        });
        Relay { path: path.to_owned(), pairs, closing, is_down, thread: Some(thread) }
    }

    /// Breaks every connection, or one.
    fn cut(&self, random: &mut impl Rng, all: bool) -> usize {
        let mut pairs = self.pairs.lock().unwrap();
        let count = if all { pairs.len() } else { pairs.len().min(1) };
        for _ in 0..count {
            let at = random.random_range(0..pairs.len());
            let pair = pairs.swap_remove(at);
            if random.random_bool(0.5) {
                pair.is_half_open.store(true, Ordering::SeqCst);
            } else {
                let _ = pair.server.shutdown(Shutdown::Both);
            }
            let _ = pair.client.shutdown(Shutdown::Both);
        }
        count
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::SeqCst);
        let _ = UnixStream::connect(&self.path);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn pass_on(mut from: UnixStream, mut to: UnixStream, late: &AtomicBool, mut random: impl Rng) {
    let mut chunk = vec![0; 32 << 10];
    loop {
        let bytes = from.read(&mut chunk).unwrap_or(0);
        if random.random_bool(0.5) {
            std::thread::sleep(Duration::from_micros(random.random_range(0..4000)));
        }
        if late.load(Ordering::SeqCst) {
            // By now the client may be there again.
            std::thread::sleep(Duration::from_millis(random.random_range(0..60)));
        }
        if bytes == 0 || to.write_all(&chunk[..bytes]).is_err() {
            break;
        }
    }
    if late.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(random.random_range(0..100)));
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// Notes which version of a block is written when, and whether it was asked to flush since.
struct Witness {
    inner: Arc<dyn Origin>,
    written: Mutex<Vec<(u64, u64)>>,
    is_flushed: AtomicBool,
    fails_flushes: AtomicBool,
}

impl Witness {
    fn new() -> Arc<Witness> {
        Arc::new(Witness {
            inner: memory(MIB).1,
            written: Mutex::default(),
            is_flushed: AtomicBool::new(true),
            fails_flushes: AtomicBool::new(false),
        })
    }
}

impl Origin for Witness {
    fn traits(&self) -> OriginTraits {
        self.inner.traits()
    }

    fn submit(&self, request: OriginRequest, sink: &Arc<dyn CompletionSink>) {
        if let OriginOperation::Write { offset, data, .. } = &request.operation {
            let version = u64::from_le_bytes(data[..8].try_into().unwrap());
            self.written.lock().unwrap().push((offset / BLOCK as u64, version));
            self.is_flushed.store(false, Ordering::SeqCst);
        }
        if request.operation == OriginOperation::Flush {
            if self.fails_flushes.load(Ordering::SeqCst) {
                let failed = OriginError::Failed { errno: 5, context: "told to".to_owned() };
                return sink.complete(OriginCompletion { id: request.id, result: Err(failed) });
            }
            self.is_flushed.store(true, Ordering::SeqCst);
        }
        self.inner.submit(request, sink);
    }

    fn describe(&self) -> String {
        "witness".to_owned()
    }
}

struct Answers(Mutex<Sender<OriginCompletion>>);

impl CompletionSink for Answers {
    fn complete(&self, completion: OriginCompletion) {
        // Nobody listens any more once a test is over.
        let _ = self.0.lock().unwrap().send(completion);
    }
}

fn answers() -> (Arc<dyn CompletionSink>, Receiver<OriginCompletion>) {
    let (sender, receiver) = channel();
    (Arc::new(Answers(Mutex::new(sender))), receiver)
}

fn options() -> NbdOriginOptions {
    NbdOriginOptions {
        connections: 3,
        backoff_min: Nanos::millis(1),
        backoff_max: Nanos::millis(20),
        ..NbdOriginOptions::default()
    }
}

/// Writes take a few milliseconds and overtake each other.
fn slowly(origin: Arc<dyn Origin>, seed: u64) -> Arc<dyn Origin> {
    let delays = DelayParameters {
        read: Nanos::micros(100),
        write: Nanos::micros(200),
        flush: Nanos::millis(2),
        jitter: Nanos::millis(8),
        seed,
    };
    Arc::new(Delay::new(origin, Timer::start().unwrap(), delays))
}

/// A server whose writes take a few milliseconds and overtake each other, the way to it through a relay, and who saw what was written.
fn stage(seed: u64) -> (Scene, Relay, Arc<Witness>) {
    let witness = Witness::new();
    let slow = slowly(witness.clone(), seed);
    let scene = scene(vec![VolumeConfig::new("disk", slow)], ServiceLimits::default());
    let path = scene.path.with_file_name("relay.sock");
    let relay = Relay::start(&path, &scene.path, seed);
    (scene, relay, witness)
}

fn origin_through(relay: &Relay, options: NbdOriginOptions) -> NbdOrigin {
    NbdOrigin::connect(&forebay_nbd::Uri::unix(&relay.path, "disk"), options).unwrap()
}

fn block_of(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(BLOCK / 8)
}

/// Each block is written, read and written again for 4 s, one request at a time, beside flushes, while `disturb` does so between answers: every answer is good, every read finds what
/// was written last, and at the origin no version comes behind a newer one. How many flushes there were.
fn keep_asking(origin: &NbdOrigin, witness: &Witness, mut disturb: impl FnMut()) -> usize {
    let (sink, answers) = answers();
    // By block, the last version asked for, and whether its read is in flight.
    let mut versions = [(0u64, true); BLOCKS as usize];
    let ask = |versions: &mut [(u64, bool); BLOCKS as usize], block: u64| {
        let (version, reads) = &mut versions[block as usize];
        *reads = !*reads;
        let offset = block * BLOCK as u64;
        let operation = if *reads {
            OriginOperation::Read { range: ByteRange::new(offset, BLOCK as u64) }
        } else {
            *version += 1;
            OriginOperation::Write { offset, data: block_of(*version), fua: version.is_multiple_of(7) }
        };
        origin.submit(OriginRequest { id: OriginRequestId(block), operation }, &sink);
    };
    let flush = || {
        let request = OriginRequest { id: OriginRequestId(BLOCKS), operation: OriginOperation::Flush };
        origin.submit(request, &sink);
    };
    (0..BLOCKS).for_each(|block| ask(&mut versions, block));
    flush();
    let started = Instant::now();
    let mut flushes = 0;
    let mut in_flight = BLOCKS + 1;
    while in_flight > 0 {
        let answer = answers.recv_timeout(PATIENCE).expect("an answer to each request");
        let block = answer.id.0;
        let data = answer.result.unwrap_or_else(|error| panic!("{block}: {error}"));
        let is_over = started.elapsed() > Duration::from_secs(4);
        if block == BLOCKS {
            flushes += 1;
        } else if versions[block as usize].1 {
            assert!(data == block_of(versions[block as usize].0), "block {block} is not what it was");
        }
        match (is_over, block) {
            (true, _) => in_flight -= 1,
            (false, BLOCKS) => flush(),
            (false, block) => ask(&mut versions, block),
        }
        if !is_over {
            disturb();
        }
    }
    let mut newest = [0; BLOCKS as usize];
    for (block, version) in &*witness.written.lock().unwrap() {
        let newest = &mut newest[*block as usize];
        assert!(*version >= *newest, "version {version} of block {block} came behind {newest}");
        *newest = *version;
    }
    assert_eq!(newest.to_vec(), versions.map(|(version, _)| version).to_vec());
    flushes
}

#[test]
fn who_is_at_a_server_of_ours_hears_nothing_of_broken_connections() {
    let seed = 2_611;
    println!("seed {seed}");
    let (_scene, relay, witness) = stage(seed);
    let origin = origin_through(&relay, options());
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut last_cut, mut cuts) = (Instant::now(), 0);
    let flushes = keep_asking(&origin, &witness, || {
        if last_cut.elapsed() > Duration::from_millis(30) {
            let all = random.random_bool(0.3);
            cuts += relay.cut(&mut random, all);
            last_cut = Instant::now();
        }
    });
    let statistics = origin.statistics();
    assert!(cuts > 40 && flushes > 20, "{cuts} cuts, {flushes} flushes");
    assert!(statistics.changes_sent_again > 40 && statistics.in_doubt == 0, "{statistics:?}");
}

/// A server of a volume whose runs know nothing of each other.
struct Runs {
    origin: Arc<dyn Origin>,
    directory: tempfile::TempDir,
    now: Option<Appliance>,
}

impl Runs {
    fn begin(origin: Arc<dyn Origin>) -> Runs {
        let mut runs = Runs { origin, directory: tempfile::tempdir().unwrap(), now: None };
        runs.start();
        runs
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("nbd.sock")
    }

    fn start(&mut self) {
        let volumes = vec![VolumeConfig::new("disk", self.origin.clone())];
        let listeners = vec![ListenerConfig::Unix { path: self.path() }];
        let config = ApplianceConfig { listeners, volumes, ..ApplianceConfig::default() };
        self.now = Some(Appliance::start(config).unwrap());
    }

    fn kill(&mut self) {
        self.now = None;
    }

    fn stop(&mut self) -> Drained {
        self.now.take().unwrap().shutdown(PATIENCE)
    }
}

/// They are not on storage that nobody else can have open, so that nothing but the farewell tells that what was in flight may be asked of the next one.
#[test]
fn who_is_at_a_server_of_ours_hears_nothing_of_its_being_started_anew_in_order() {
    let seed = 2_612;
    println!("seed {seed}");
    let witness = Witness::new();
    let mut runs = Runs::begin(slowly(witness.clone(), seed));
    let origin = NbdOrigin::connect(&forebay_nbd::Uri::unix(runs.path(), "disk"), options()).unwrap();
    let (mut last_start, mut starts) = (Instant::now(), 0);
    let flushes = keep_asking(&origin, &witness, || {
        if last_start.elapsed() > Duration::from_millis(100) {
            assert_eq!(runs.stop(), Drained::Completely);
            assert!(witness.is_flushed.load(Ordering::SeqCst), "what was acknowledged is safe");
            runs.start();
            starts += 1;
            last_start = Instant::now();
        }
    });
    let statistics = origin.statistics();
    assert!(starts > 10 && flushes > 20, "{starts} starts, {flushes} flushes");
    assert!(statistics.changes_sent_again == 0 && statistics.in_doubt == 0, "{statistics:?}");
}

/// A server that ends in order, but whose origin does not flush, vouches for nothing.
#[test]
fn the_next_flush_fails_where_a_server_could_not_flush_at_its_end() {
    let witness = Witness::new();
    let mut runs = Runs::begin(witness.clone());
    let single = NbdOriginOptions { connections: 1, ..options() };
    let origin = NbdOrigin::connect(&forebay_nbd::Uri::unix(runs.path(), "disk"), single).unwrap();
    let (sink, answers) = answers();
    let ask = |operation| {
        origin.submit(OriginRequest { id: OriginRequestId(1), operation }, &sink);
        answers.recv_timeout(PATIENCE).unwrap().result
    };
    let write = |version| OriginOperation::Write { offset: 0, data: block_of(version), fua: false };
    for (version, fails) in [(1, true), (2, false)] {
        assert!(ask(write(version)).is_ok());
        witness.fails_flushes.store(fails, Ordering::SeqCst);
        assert_eq!(runs.stop(), if fails { Drained::NotFlushed } else { Drained::Completely });
        witness.fails_flushes.store(false, Ordering::SeqCst);
        runs.start();
        until("a connection to the next run", || origin.statistics().state == OriginState::Up);
        assert_eq!(ask(OriginOperation::Flush).is_err(), fails);
        // One that waited until the loss was known fails, and the next one does.
        let mut flushes = (0..2).map(|_| ask(OriginOperation::Flush));
        assert!(flushes.any(|result| result.is_ok()));
    }
}

/// A way to the disk of these.
fn way_to(runs: &Runs) -> Arc<NbdOrigin> {
    Arc::new(NbdOrigin::connect(&forebay_nbd::Uri::unix(runs.path(), "disk"), options()).unwrap())
}

const WRITE: Operation = Operation::Write { offset: 0, length: BLOCK as u32, fua: false };

/// An appliance before this storage side, a proxy before that, and a client of it whose change was acknowledged.
fn written_through_an_appliance(storage: &Runs) -> (Runs, Scene, Client) {
    let appliance = Runs::begin(way_to(storage));
    let front = scene(vec![VolumeConfig::new("disk", way_to(&appliance))], ServiceLimits::default());
    let mut client = Client::connect(&front.path, "disk").unwrap();
    assert!(client.call(WRITE, &block_of(1)).unwrap().is_ok());
    (appliance, front, client)
}

/// A client's changes stand on an appliance, which is gone, and at its storage side, which is fenced and goes on by another way: it has what it told the appliance, if it is the same run.
/// One that was started since may have lost it, and only who was told by the appliance knows that there was something.
#[test]
fn what_a_storage_side_lost_behind_an_appliance_that_is_gone_is_told_by_the_way_that_takes_its_place() {
    for is_started_anew in [false, true] {
        let mut storage = Runs::begin(memory(MIB).1);
        let (mut appliance, front, mut client) = written_through_an_appliance(&storage);
        appliance.kill();
        if is_started_anew {
            storage.kill();
            storage.start();
        }
        let settled = RetargetOptions { settled: true, ..RetargetOptions::default() };
        // The first way is left before anybody flushes there, for one at the same run: what it owes goes along.
        front.appliance.retarget("disk", way_to(&storage), settled).map(drop).unwrap();
        let direct = way_to(&storage);
        front.appliance.retarget("disk", direct.clone(), settled).map(drop).unwrap();
        let mut flush = || client.call(Operation::Flush, &[]).unwrap().is_err();
        assert_eq!([flush(), flush()], [is_started_anew, false]);
        // What it takes on it can lose, too, until it is flushed.
        assert!(client.call(WRITE, &block_of(2)).unwrap().is_ok());
        storage.kill();
        storage.start();
        // Of its three connections only the first is sure to have stood before.
        until("the next run", || direct.statistics().reconnects >= 1);
        assert!(client.call(Operation::Flush, &[]).unwrap().is_err());
    }
}

/// Nobody can drain an appliance that is gone. Who knows that it does not come back is told so, and not when the time is over; who waits for it has it drained when it is back.
#[test]
fn an_appliance_that_is_gone_is_drained_by_nobody() {
    // What waits is a flush ahead, what a client asked for, and the comparison of the data.
    for (read_only, asks) in [(false, true), (true, true), (true, false)] {
        let storage = Runs::begin(memory(MIB).1);
        let mut appliance = Runs::begin(way_to(&storage));
        let volume = VolumeConfig { read_only, ..VolumeConfig::new("disk", way_to(&appliance)) };
        let front = scene(vec![volume], ServiceLimits::default());
        let origin = || front.appliance.observe("disk", false).unwrap().origin;
        let mut client = Client::connect(&front.path, "disk").unwrap();
        let (by_appliance, direct) = (origin(), way_to(&storage));
        appliance.kill();
        if asks {
            client.read(0, 512).unwrap();
        }
        let waits = RetargetOptions { timeout: 10 * PATIENCE, ..RetargetOptions::default() };
        let leaves = RetargetOptions { refused: Duration::from_millis(200), ..waits };
        let failed = front.appliance.retarget("disk", direct.clone(), leaves).map(drop).unwrap_err();
        let source = RetargetError::NobodyThere;
        assert_eq!(failed, RetargetFailure::Refused { name: "disk".to_owned(), source });
        assert_eq!(origin(), by_appliance);
        std::thread::scope(|scope| {
            let moved = scope.spawn(|| front.appliance.retarget("disk", direct, waits).map(drop));
            appliance.start();
            moved.join().unwrap().unwrap();
        });
        assert!(!asks || client.finish_one().unwrap().1.is_ok());
        assert_ne!(origin(), by_appliance);
    }
}

/// An appliance ends in order, and it is its own last flush that its storage side fails: nobody else has asked. Its client asks by the way that takes its place.
#[test]
fn what_an_appliance_was_told_by_its_last_flush_is_told_by_the_way_that_takes_its_place() {
    let witness = Witness::new();
    let storage = Runs::begin(witness.clone());
    let (mut appliance, front, mut client) = written_through_an_appliance(&storage);
    witness.fails_flushes.store(true, Ordering::SeqCst);
    assert_eq!(appliance.stop(), Drained::NotFlushed);
    witness.fails_flushes.store(false, Ordering::SeqCst);
    drop(appliance);
    let settled = RetargetOptions { settled: true, ..RetargetOptions::default() };
    front.appliance.retarget("disk", way_to(&storage), settled).map(drop).unwrap();
    let mut flush = || client.call(Operation::Flush, &[]).unwrap().is_err();
    assert_eq!([flush(), flush()], [true, false]);
}

/// A storage side is updated, in order, before anybody flushes: all is safe. Then the appliance that it was acknowledged by is gone, and only the storage side could say so, which is another run.
#[test]
fn what_an_update_of_the_storage_side_made_safe_is_not_taken_for_lost_when_an_appliance_is_gone() {
    let mut storage = Runs::begin(memory(MIB).1);
    let mut appliance = Runs::begin(way_to(&storage));
    let by_appliance = way_to(&appliance);
    let front = scene(vec![VolumeConfig::new("disk", by_appliance.clone())], ServiceLimits::default());
    let mut client = Client::connect(&front.path, "disk").unwrap();
    assert!(client.call(WRITE, &block_of(1)).unwrap().is_ok());
    assert!(by_appliance.unflushed().is_some());
    assert_eq!(storage.stop(), Drained::Completely);
    storage.start();
    until("the front knows that it is safe", || by_appliance.unflushed().is_none());
    appliance.kill();
    let settled = RetargetOptions { settled: true, ..RetargetOptions::default() };
    front.appliance.retarget("disk", way_to(&storage), settled).map(drop).unwrap();
    assert!(client.call(Operation::Flush, &[]).unwrap().is_ok());
}

/// What another way had acknowledged nobody behind this one knows of: it is made safe at once, and if that fails, whoever flushes next hears of it.
#[test]
fn what_is_inherited_is_made_safe_at_once() {
    let witness = Witness::new();
    let runs = Runs::begin(witness.clone());
    let origin = NbdOrigin::connect(&forebay_nbd::Uri::unix(runs.path(), "disk"), options()).unwrap();
    let (sink, answers) = answers();
    let flush = || {
        origin.submit(OriginRequest { id: OriginRequestId(1), operation: OriginOperation::Flush }, &sink);
        answers.recv_timeout(PATIENCE).unwrap().result
    };
    let inherit = || {
        witness.is_flushed.store(false, Ordering::SeqCst);
        origin.inherit(Unflushed { keeper: None, is_lost: false });
    };
    inherit();
    until("a flush of its own", || origin.unflushed().is_none());
    assert!(witness.is_flushed.load(Ordering::SeqCst) && flush().is_ok());
    witness.fails_flushes.store(true, Ordering::SeqCst);
    inherit();
    until("it failed", || origin.unflushed().is_some_and(|unflushed| unflushed.is_lost));
    witness.fails_flushes.store(false, Ordering::SeqCst);
    assert!(flush().is_err() && flush().is_ok());
}

/// A break that lasts longer than requests wait costs a client what was in flight. What becomes of that is not known then, until a connection of the same run says that it is
/// over: nobody else has to.
#[test]
fn what_a_long_break_left_in_doubt_is_settled_by_the_connection_behind_it() {
    let held = HeldOrigin::new(memory(MIB).1);
    let storage = scene(vec![VolumeConfig::new("disk", held.clone())], ServiceLimits::default());
    let relay = Relay::start(&storage.path.with_file_name("relay.sock"), &storage.path, 1);
    let impatient = NbdOriginOptions { connections: 1, wait_for_origin: Nanos::millis(100), ..options() };
    let origin: Arc<dyn Origin> = Arc::new(origin_through(&relay, impatient));
    let front = scene(vec![VolumeConfig::new("disk", origin.clone())], ServiceLimits::default());
    let mut client = Client::connect(&front.path, "disk").unwrap();
    let mut call = |operation, data: &[u8]| client.call(operation, data).unwrap();
    let write = Operation::Write { offset: 0, length: 4096, fua: false };
    let doubt = || front.appliance.observe("disk", false).unwrap().observation.in_doubt;
    std::thread::scope(|scope| {
        let lost = scope.spawn(|| call(write, &block_of(1)));
        held.wait_for(1);
        relay.is_down.store(true, Ordering::SeqCst);
        relay.cut(&mut Xoshiro256PlusPlus::seed_from_u64(1), true);
        assert!(lost.join().unwrap().is_err());
    });
    assert!(call(write, &block_of(2)).is_err(), "the first one may come later");
    relay.is_down.store(false, Ordering::SeqCst);
    until("another connection", || origin.statistics().reconnects > 0);
    // It is at the storage side yet.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!((origin.statistics().in_doubt, doubt().len()), (1, 1));
    held.open();
    until("the end of the doubt", || doubt().is_empty());
    assert!(call(write, &block_of(3)).is_ok());
    let read = Operation::Read { offset: 0, length: 4096, dont_fragment: false };
    assert_eq!(call(read, &[]), Ok(block_of(3)));
}
