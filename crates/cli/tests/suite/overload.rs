//! Hundreds of clients that mean no good beside one that does: the daemon's memory stays under its written bound, and the good one is
//! served.
//!
//! The bound is that of `docs/internals/appliance.md`, with the limits of this daemon. How long a turn of the daemon takes is the machine's
//! affair, and only printed; that the good client is answered in the turn after that in which it asked is held by `service/tests.rs` of
//! `appliance`. Here it must get on at all, while the others have come and gone.

use crate::client::Client;
use crate::daemon::Daemon;
use crate::support::{SetOnDrop, folder};
use forebay_nbd::client::Operation;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const VOLUME: u64 = 256 * MIB;
const HELD_PER_WORKER: u64 = 64 * MIB;

/// Clients of each kind; 500 in all, with the good one and the handshakes that never end.
const GREEDY: usize = 100;
const ANNOUNCERS: usize = 100;
const PIPELINERS: usize = 100;
const SILENT: usize = 199;

/// What the good client gets done beside the others. One that is let in only when one of them is told to go, after `stalled_client`, is
/// not through before `PATIENCE` is over.
const READS: u64 = 4000;
const PATIENCE: Duration = Duration::from_secs(120);
/// How often the others come and go meanwhile.
const ROUNDS: usize = 4;

fn start() -> Daemon {
    let folder = folder();
    let at = folder.path().display();
    std::fs::File::create(folder.path().join("disk")).unwrap().set_len(VOLUME).unwrap();
    let configuration = format!(
        "listen = \"unix:{at}/socket\"\n[http]\nlisten = \"off\"\n[observe]\nenabled = false\n\
         [limits]\nworkers = 1\nheld_per_worker = \"64MiB\"\nstalled_client = \"2s\"\n\
         [[volume]]\nname = \"db\"\norigin = \"disk\"\ncache = \"16MiB\"\n"
    );
    Daemon::start(folder, configuration)
}

/// A line of `/proc/PID/status`, in bytes.
fn memory(daemon: &Daemon, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.child.id())).expect("it runs");
    let line = status.lines().find(|line| line.starts_with(what)).expect("the kernel says it");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
}

/// A connection that says `requests` after its handshake, and never reads what it is answered.
fn say(socket: &Path, requests: &[(Operation, usize)]) -> Option<UnixStream> {
    let mut client = Client::connect(socket, "db")?;
    for (operation, bytes) in requests {
        client.ask(*operation, &vec![7; *bytes], ());
    }
    Some(client.send_without_waiting())
}

/// Answered reads per second of a client with eight 4 KiB reads in flight, until `is_enough` of them, and the slowest.
fn good_reads(client: &mut Client<Instant>, mut is_enough: impl FnMut(u64) -> bool) -> (f64, Duration) {
    let (start, mut count, mut slowest) = (Instant::now(), 0, Duration::ZERO);
    let mut at = 0;
    while !is_enough(count) || client.in_flight() > 0 {
        while client.in_flight() < 8 && !is_enough(count) {
            at = (at + 1) % 1024;
            let operation = Operation::Read { offset: at * 4096, length: 4096, dont_fragment: false };
            client.ask(operation, &[], Instant::now());
        }
        client.send();
        for answer in client.receive().expect("the daemon serves") {
            answer.result.expect("a healthy file can be read");
            count += 1;
            slowest = slowest.max(answer.what.elapsed());
        }
        assert!(
            start.elapsed() < PATIENCE,
            "starved: {count} reads in {PATIENCE:?}, the slowest {slowest:?}"
        );
    }
    (count as f64 / start.elapsed().as_secs_f64(), slowest)
}

#[test]
fn five_hundred_clients_that_mean_no_good_neither_fill_memory_nor_starve_others() {
    let daemon = start();
    let socket = daemon.path("socket");
    let mut good: Client<Instant> = Client::connect(&socket, "db").expect("the daemon serves");
    let (alone, _) = good_reads(&mut good, |count| count >= READS);
    let before = memory(&daemon, "VmRSS");

    let largest = 32 << 20;
    let read = |length| Operation::Read { offset: 64 << 20, length, dont_fragment: false };
    let write = |length| Operation::Write { offset: 64 << 20, length, fua: false };
    let (over, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (beside, slowest) = std::thread::scope(|scope| {
        // Handshakes that dribble.
        scope.spawn(|| {
            let mut silent: Vec<UnixStream> =
                (0..SILENT).filter_map(|_| UnixStream::connect(&socket).ok()).collect();
            while !over.load(Ordering::Relaxed) {
                for stream in &mut silent {
                    let _ = stream.write_all(b"I");
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        // Again and again, since those that are in the way are told to go.
        for part in 0..2 {
            let (over, rounds, socket) = (&over, &rounds, &socket);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let mut streams = Vec::new();
                    for index in 0..(GREEDY + ANNOUNCERS + PIPELINERS) / 2 {
                        let requests: Vec<(Operation, usize)> = match (index + part) % 3 {
                            // The longest reads, whose answers nobody takes.
                            0 => vec![(read(largest), 0); 8],
                            // The longest writes, of which only the beginning comes.
                            1 => vec![(write(largest), 100_000)],
                            // As many small reads as there can be.
                            _ => vec![(read(65_536), 0); 256],
                        };
                        streams.extend(say(socket, &requests));
                    }
                    for _ in 0..60 {
                        if over.load(Ordering::Relaxed) {
                            break;
                        }
                        std::thread::sleep(Duration::from_millis(50));
                    }
                    // One byte each: a client that dribbles is not one that reads.
                    for stream in &mut streams {
                        let _ = stream.set_read_timeout(Some(Duration::from_millis(1)));
                        let _ = stream.read(&mut [0]);
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(Duration::from_millis(500));
        // The others stop when this fails, too, or the scope would wait for them for ever.
        let _over = SetOnDrop(&over);
        good_reads(&mut good, |count| count >= READS && rounds.load(Ordering::Relaxed) >= ROUNDS)
    });
    let peak = memory(&daemon, "VmHWM");
    println!(
        "overload: {alone:.0} reads/s alone, {beside:.0} beside 500 clients (slowest {slowest:?}); {} MiB before, {} MiB at most",
        before / MIB,
        peak / MIB
    );
    // Requests and replies of the worker, twice; what is received and not parsed; handshakes; and what the origin's threads hold.
    let bound = 2 * HELD_PER_WORKER + 500 * 512 * 1024 + 256 * 512 * 1024 + 8 * u64::from(largest);
    assert!(
        peak - before <= bound,
        "{} MiB more than before, {} MiB allowed",
        (peak - before) / MIB,
        bound / MIB
    );
}

/// The lines of the log on clients that were sent away: those on one, and the sums of many.
#[test]
fn a_loop_of_bad_handshakes_does_not_fill_the_log() {
    const LOOPS: usize = 500;
    let daemon = start();
    for round in 0..LOOPS {
        let mut stream = UnixStream::connect(daemon.path("socket")).unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        // Flags that nobody has, or a word in the place of an option.
        let said: &[u8] = if round % 2 == 0 { &[0xff; 4] } else { b"\0\0\0\x01GET / HTTP/1.1\r\n\r\n" };
        stream.write_all(said).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let log = daemon.log();
    let lines = log.lines().filter(|line| line.contains("WARN")).collect::<Vec<_>>();
    assert!((1..20).contains(&lines.len()), "{} lines: {:?}", lines.len(), &lines[..lines.len().min(20)]);
    assert!(lines[0].contains("client breaks the protocol; disconnected"), "{}", lines[0]);
    // Who means well is let in.
    assert!(Client::<()>::connect(&daemon.path("socket"), "db").is_some());
}
