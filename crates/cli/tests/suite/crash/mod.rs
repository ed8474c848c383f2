//! The daemon is killed with SIGKILL under writes, again and again: after each restart, every write that it had acknowledged is there.
//!
//! The clients are our own: they know exactly which replies reached them before the connection ended, with dozens of overlapping writes
//! in flight and readers beside them ([`crate::ledger`] judges). fio, one write at a time, is the second opinion. The moment of
//! each kill is drawn from a seed (`FOREBAY_SEED`; the time unless set, and printed). `FOREBAY_CRASH_CYCLES` kills more often than the
//! 20 times of the suite.

mod ext4;
mod fio;
mod postgresql;

use crate::client::Client;
use crate::ledger::{Ledger, SECTOR, content};
use crate::support::{folder, seed, serve};
use forebay_nbd::client::Operation;
use forebay_units::mix64;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CYCLES: u64 = 20;
const SIZE_BYTES: u64 = 16 << 20;
const SECTORS: usize = SIZE_BYTES as usize / SECTOR;

/// How long anything may take on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether `happened` says so before `time` is over.
fn wait_until(time: Duration, mut happened: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + time;
    while !happened() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

fn cycles() -> u64 {
    std::env::var("FOREBAY_CRASH_CYCLES").map_or(CYCLES, |count| count.parse().expect("a number"))
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("socket")
}

/// A volume `db` of `size` bytes over a new file `disk`, and the configuration that serves it.
fn prepare(folder: &Path, size: u64, cache: &str) {
    std::fs::File::create(folder.join("disk")).unwrap().set_len(size).unwrap();
    let configuration = format!(
        "listen = [\"unix:{}\"]\n[http]\nlisten = \"off\"\n[[volume]]\nname = \"db\"\norigin = \"disk\"\ncache = \"{cache}\"\n",
        socket(folder).display()
    );
    std::fs::write(folder.join("forebay.toml"), configuration).unwrap();
}

struct Daemon(Child);

impl Daemon {
    fn start(folder: &Path) -> Daemon {
        // A socket that a killed daemon left behind would look like this one's.
        let _ = std::fs::remove_file(socket(folder));
        let log = std::fs::File::options().append(true).create(true).open(folder.join("daemon.log")).unwrap();
        let child = serve(&folder.join("forebay.toml"), log);
        let daemon = Daemon(child);
        assert!(
            wait_until(PATIENCE, || std::os::unix::net::UnixStream::connect(socket(folder)).is_ok()),
            "the daemon does not listen: {}",
            std::fs::read_to_string(folder.join("daemon.log")).unwrap_or_default()
        );
        daemon
    }

    fn kill(mut self) {
        self.0.kill().expect("it runs until it is killed");
        self.0.wait().expect("it ends");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What all clients of a cycle share.
struct Scene<'a> {
    socket: PathBuf,
    ledger: &'a Mutex<Ledger>,
    acknowledged: AtomicU64,
    reads: AtomicU64,
    /// Most writes that were in flight when their connection ended.
    cut_off: AtomicU64,
}

/// Writes without a pause to the sectors from `first` on, of which there are `count`, until the daemon is gone. Ranges overlap and
/// rarely lie on blocks; half of them meet in a few sectors.
fn write(scene: &Scene<'_>, first: usize, count: usize, depth: usize, seed: u64) {
    let Some(mut client) = Client::connect(&scene.socket, "db") else { return };
    let mut data = Vec::new();
    for step in 0.. {
        while client.in_flight() < depth && !client.is_broken() {
            let draw = mix64(
                seed ^ mix64(step * 1000 + client.in_flight() as u64)
                    ^ mix64(scene.acknowledged.load(Ordering::Relaxed)),
            );
            let part = |at: u32, of: usize| (draw >> at) as usize % of;
            if part(0, 64) == 0 {
                client.ask(Operation::Flush, &[], None);
                continue;
            }
            let area = if part(8, 2) == 0 { 512 } else { count };
            let (start, length) = match part(16, 8) {
                // Whole blocks, anything up to eight blocks, and more than a request that is received in one piece.
                0..4 => (part(24, area / 8) * 8, 8),
                4..7 => (part(24, area - 64), 1 + part(40, 64)),
                _ => (part(24, area - 400), 129 + part(40, 271)),
            };
            let zeroes = part(50, 16) == 0;
            let fua = part(56, 16) == 0;
            let version = scene.ledger.lock().unwrap().send(first + start, length, zeroes);
            let (offset, bytes) = (((first + start) * SECTOR) as u64, (length * SECTOR) as u32);
            data.clear();
            if zeroes {
                let operation = Operation::WriteZeroes {
                    offset,
                    length: bytes,
                    fua,
                    no_hole: version.is_multiple_of(2),
                    fast_zero: false,
                };
                client.ask(operation, &[], Some(version));
            } else {
                data.resize(length * SECTOR, 0);
                for (at, sector) in data.chunks_exact_mut(SECTOR).enumerate() {
                    content((first + start + at) as u64, version, sector);
                }
                client.ask(Operation::Write { offset, length: bytes, fua }, &data, Some(version));
            }
        }
        client.send();
        let Some(answers) = client.receive() else { break };
        let mut ledger = scene.ledger.lock().unwrap();
        for answer in answers {
            answer.result.expect("a write to a healthy file succeeds");
            if let Some(version) = answer.what {
                ledger.acknowledge(version);
                scene.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    scene.cut_off.fetch_max(client.in_flight() as u64, Ordering::Relaxed);
}

/// Reads anything until the daemon is gone, and checks it.
fn read(scene: &Scene<'_>, depth: usize, seed: u64) -> Result<(), String> {
    let Some(mut client) = Client::connect(&scene.socket, "db") else { return Ok(()) };
    for step in 0.. {
        while client.in_flight() < depth && !client.is_broken() {
            let draw = mix64(seed ^ mix64(step * 1000 + client.in_flight() as u64)) as usize;
            let count = 1 + (draw >> 8) % 64;
            let area = if draw.is_multiple_of(2) { 512 } else { SECTORS };
            let first = (draw >> 20) % (area - count);
            let floors = scene.ledger.lock().unwrap().floors(first, count);
            let operation = Operation::Read {
                offset: (first * SECTOR) as u64,
                length: (count * SECTOR) as u32,
                dont_fragment: false,
            };
            client.ask(operation, &[], (first, floors));
        }
        client.send();
        let Some(answers) = client.receive() else { break };
        let mut ledger = scene.ledger.lock().unwrap();
        for answer in answers {
            let (first, floors) = answer.what;
            ledger.check(first, &answer.result?, &floors)?;
            scene.reads.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// The whole volume as the daemon serves it.
fn read_all(socket: &Path) -> Vec<u8> {
    let mut client = Client::connect(socket, "db").expect("the daemon serves");
    let mut volume = vec![0; SIZE_BYTES as usize];
    const PART: usize = 1 << 20;
    for at in (0..volume.len()).step_by(PART) {
        let operation = Operation::Read { offset: at as u64, length: PART as u32, dont_fragment: false };
        client.ask(operation, &[], at);
    }
    client.send();
    while client.in_flight() > 0 {
        for answer in client.receive().expect("the daemon serves") {
            let bytes = answer.result.expect("a healthy file can be read");
            volume[answer.what..answer.what + PART].copy_from_slice(&bytes);
        }
    }
    volume
}

#[test]
fn a_killed_daemon_loses_no_acknowledged_write() {
    let (seed, cycles) = (seed(), cycles());
    println!("crash: {cycles} kills from FOREBAY_SEED={seed}");
    let folder = folder();
    let folder = folder.path();
    // The cache holds a quarter: blocks come and go while they are written.
    prepare(folder, SIZE_BYTES, "4MiB");
    let ledger = Mutex::new(Ledger::new(SECTORS));
    let (mut acknowledged, mut reads, mut cut_off) = (0, 0, Vec::new());
    let settle = |cycle: u64| {
        let place = format!("after kill {cycle} of FOREBAY_SEED={seed}");
        let volume = read_all(&socket(folder));
        ledger.lock().unwrap().settle(&volume).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert!(
            read_all(&socket(folder)) == volume,
            "{place}: read again, partly from the cache, it is another"
        );
        assert!(
            std::fs::read(folder.join("disk")).unwrap() == volume,
            "{place}: the file holds something else"
        );
    };
    for cycle in 0..cycles {
        let draw = mix64(seed ^ mix64(cycle + 1));
        let daemon = Daemon::start(folder);
        settle(cycle);
        let scene = Scene {
            socket: socket(folder),
            ledger: &ledger,
            acknowledged: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            cut_off: AtomicU64::new(0),
        };
        std::thread::scope(|scope| {
            let half = SECTORS / 2;
            let scene = &scene;
            // Each has its own half, so that the order of the writes to a sector is known.
            let mut clients = vec![
                scope.spawn(move || {
                    write(scene, 0, half, 32, draw);
                    Ok(())
                }),
                scope.spawn(move || {
                    write(scene, half, half, 16, draw ^ 1);
                    Ok(())
                }),
            ];
            clients.extend((2..4).map(|index| scope.spawn(move || read(scene, 8, draw ^ index))));
            let started = wait_until(PATIENCE, || {
                scene.acknowledged.load(Ordering::Relaxed) > 200 && scene.reads.load(Ordering::Relaxed) > 50
            });
            std::thread::sleep(Duration::from_micros(draw >> 32 & 0x3ffff));
            daemon.kill();
            for client in clients {
                let result: Result<(), String> = client.join().expect("no client panics");
                result.unwrap_or_else(|error| panic!("before kill {cycle} of FOREBAY_SEED={seed}: {error}"));
            }
            assert!(started, "cycle {cycle}: the daemon does not answer");
        });
        acknowledged += scene.acknowledged.into_inner();
        reads += scene.reads.into_inner();
        cut_off.push(scene.cut_off.into_inner());
    }
    let daemon = Daemon::start(folder);
    settle(cycles);
    println!(
        "crash: {acknowledged} acknowledged writes and {reads} reads verified over {cycles} kills, which cut off up to {} writes each",
        cut_off.iter().max().expect("there was a kill")
    );
    let busy = cut_off.iter().filter(|writes| **writes >= 16).count() as u64;
    assert!(2 * busy > cycles, "too few kills met 16 writes in flight: {cut_off:?}");

    // What finds nothing must be able to find something: an acknowledged sector is exchanged for its version before.
    let mut client = Client::connect(&socket(folder), "db").expect("the daemon serves");
    let mut versions = Vec::new();
    for _ in 0..2 {
        let version = ledger.lock().unwrap().send(100, 1, false);
        let mut data = [0; SECTOR];
        content(100, version, &mut data);
        client.ask(
            Operation::Write { offset: 100 * SECTOR as u64, length: SECTOR as u32, fua: false },
            &data,
            version,
        );
        client.send();
        while client.in_flight() > 0 {
            for answer in client.receive().expect("the daemon serves") {
                answer.result.expect("a write to a healthy file succeeds");
                ledger.lock().unwrap().acknowledge(answer.what);
            }
        }
        versions.push(data);
    }
    drop(client);
    daemon.kill();
    let mut volume = std::fs::read(folder.join("disk")).unwrap();
    assert!(volume[100 * SECTOR..101 * SECTOR] == versions[1]);
    volume[100 * SECTOR..101 * SECTOR].copy_from_slice(&versions[0]);
    let error = ledger.lock().unwrap().settle(&volume).unwrap_err();
    assert!(error.contains("sector 100 "), "{error}");
}
