//! `forebay control`: violations are answered by appliances, and clients notice nothing.
//!
//! A storage side whose every request takes 8 ms is watched; a client reads and writes. What it reads is what it wrote.

mod clock;
mod doubts;
mod drains;
mod drill;
mod prometheus;
mod proxy;
mod routes;
mod several;
mod site;
mod ssh;
mod successors;

use crate::support::{command, file, run};
use forebay_actuate::api::ApiAddress;
use forebay_actuate::{Control, Deadline};
use forebay_nbd::Uri;
use forebay_origin::{
    CompletionSink, NbdOrigin, NbdOriginOptions, Origin, OriginCompletion, OriginOperation, OriginRequest,
    OriginRequestId,
};
use forebay_units::{ByteRange, mix64};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const BLOCKS: u64 = 256;
/// Requests that the client has outstanding.
const OUTSTANDING: u64 = 8;

struct Answers(Sender<OriginCompletion>);

impl CompletionSink for Answers {
    fn complete(&self, completion: OriginCompletion) {
        let _ = self.0.send(completion);
    }
}

/// What a client knows of its blocks, from one connection to the next.
struct Ledger {
    /// For each block the version that it was last told to hold, and the oldest that it may hold: writes that were answered with an error were
    /// done or not.
    versions: Vec<(u8, u8)>,
    /// Requests that were answered with an error, and how many of them were reads.
    failed: u64,
    reads_failed: u64,
    state: u64,
}

impl Ledger {
    /// Of a volume of [`BLOCKS`] of zeros.
    fn new() -> Ledger {
        Ledger::of(BLOCKS)
    }

    fn of(blocks: u64) -> Ledger {
        Ledger { versions: vec![(0, 0); blocks as usize], failed: 0, reads_failed: 0, state: 1 }
    }

    /// The next request of one of those that are outstanding; each has blocks of its own, so that what is read is known.
    fn next(&mut self, lane: u64) -> (u64, OriginOperation) {
        self.state = mix64(self.state.wrapping_add(0x9e37_79b9_7f4a_7c15));
        let of_lane = self.versions.len() as u64 / OUTSTANDING;
        let block = lane * of_lane + self.state % of_lane;
        if !(self.state >> 40).is_multiple_of(16) {
            return (block, OriginOperation::Read { range: ByteRange::new(block * 4096, 4096) });
        }
        let (version, _) = &mut self.versions[block as usize];
        *version = version.wrapping_add(1);
        (block, OriginOperation::Write { offset: block * 4096, data: vec![*version; 4096], fua: false })
    }

    /// Takes an answer in.
    ///
    /// # Panics
    /// If what was read is not what was written.
    fn check(&mut self, block: u64, reads: bool, result: Result<Vec<u8>, String>) {
        let (version, oldest) = &mut self.versions[block as usize];
        match result {
            Ok(data) if reads => {
                let age = version.wrapping_sub(data[0]);
                let good = data.iter().all(|byte| *byte == data[0]) && age <= version.wrapping_sub(*oldest);
                assert!(good, "block {block} is stale or wrong: {}, expected {oldest} to {version}", data[0]);
            }
            Ok(_) => *oldest = *version,
            Err(_) => {
                self.failed += 1;
                self.reads_failed += u64::from(reads);
            }
        }
    }
}

/// What a client is told while it works, and tells.
#[derive(Default)]
struct Work {
    stop: AtomicBool,
    /// Requests that were answered.
    done: AtomicU64,
}

/// Reads all blocks again and again, and writes one in sixteen, until it is told to stop; checks every byte.
fn drive(uri: Uri, ledger: &mut Ledger, work: &Work) {
    let origin = NbdOrigin::connect(&uri, NbdOriginOptions::default()).expect("clients are let in");
    let (sender, answers) = channel();
    let sink: Arc<dyn CompletionSink> = Arc::new(Answers(sender));
    let begin = |lane: u64, ledger: &mut Ledger| {
        let (block, operation) = ledger.next(lane);
        let reads = matches!(operation, OriginOperation::Read { .. });
        origin.submit(OriginRequest { id: OriginRequestId(lane), operation }, &sink);
        (block, reads)
    };
    let mut out: Vec<(u64, bool)> = (0..OUTSTANDING).map(|lane| begin(lane, ledger)).collect();
    let mut waiting = OUTSTANDING;
    while waiting > 0 {
        let answer = answers.recv_timeout(Duration::from_secs(60)).expect("an answer");
        let (block, reads) = out[answer.id.0 as usize];
        ledger.check(block, reads, answer.result.map_err(|error| error.to_string()));
        work.done.fetch_add(1, Ordering::Relaxed);
        if work.stop.load(Ordering::Relaxed) {
            waiting -= 1;
        } else {
            out[answer.id.0 as usize] = begin(answer.id.0, ledger);
        }
    }
}

/// The controller as a process; killed with its test.
struct Controller(Child);

impl Controller {
    /// On `control.toml` in `folder`.
    fn start(folder: &Path, namespace: Option<&str>) -> Controller {
        let log =
            std::fs::File::options().create(true).append(true).open(folder.join("control.log")).unwrap();
        let child = command(namespace, env!("CARGO_BIN_EXE_forebay"))
            .arg("control")
            .arg(folder.join("control.toml"))
            .args(["--log", "debug"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the binary runs");
        Controller(child)
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The appliances of a controller whose files are in a folder. They outlive their controller, as they should, but not this, which is dropped behind it.
struct Appliances(PathBuf);

impl Appliances {
    fn pids(&self) -> Vec<u32> {
        let folder = self.0.join("state/hosts").display().to_string();
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let pid = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
        processes
            .filter_map(pid)
            .filter(|pid| {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).into_owned();
                line.contains(&folder) && line.contains("appliance")
            })
            .collect()
    }

    fn kill(&self) {
        for pid in self.pids() {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
    }
}

impl Drop for Appliances {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What the controller tells.
struct Telling<'a>(&'a Path);

impl Telling<'_> {
    fn server(&self) -> String {
        format!("unix:{}", self.0.join("control.sock").display())
    }

    /// What it tells Prometheus, by series.
    fn metrics(&self) -> BTreeMap<String, f64> {
        let control = Control { address: ApiAddress::Unix(self.0.join("control.sock")), token: None };
        let text = control.metrics(Deadline::after(Duration::from_secs(10))).expect("it answers");
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let sample = |line: &str| {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            (series.to_owned(), value.parse().expect("a number"))
        };
        samples.map(sample).collect()
    }

    /// What it says of a volume; nothing while it starts.
    fn explained(&self, volume: &str) -> Option<Value> {
        let run = run(["explain", volume, "--json", "--server", &self.server()]);
        serde_json::from_slice(&run.stdout).ok()
    }

    /// Waits until it tells of the volume `db` what is `good`; what it told.
    fn wait(&self, what: &str, good: impl Fn(&Value) -> bool) -> Value {
        self.wait_for("db", what, good)
    }

    fn wait_for(&self, volume: &str, what: &str, good: impl Fn(&Value) -> bool) -> Value {
        // Where virtual machines are emulated on a busy or cold machine, a cache that is too small at first grows step by step.
        let until = Instant::now() + Duration::from_secs(120);
        let mut last = Value::Null;
        while Instant::now() < until {
            if let Some(told) = self.explained(volume) {
                if good(&told) {
                    return told;
                }
                last = told;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let log = std::fs::read_to_string(self.0.join("control.log")).unwrap_or_default();
        panic!("{what} does not come; last: {last:#}\n{log}");
    }
}

/// Writes what a fleet on one machine needs: the volume `db` in `db.img`, `watch.toml` on the storage side, whose every request takes 8 ms, `proxy.toml` for clients,
/// and `control.toml`.
fn one_machine(folder: &TempDir) {
    let path = |name: &str| folder.path().join(name).display().to_string();
    file(folder, "db.img", vec![0; 1 << 20]);
    file(
        folder,
        "watch.toml",
        format!(
            "listen = [\"unix:{}\"]\nleases.path = \"{}\"\nhttp.listen = \"off\"\nhttp.socket = \"{}\"\ncontrol.interval = \"200ms\"\n\
             [[volume]]\nname = \"db\"\norigin = \"{}\"\nlayers = [{{ type = \"delay\", read = \"8ms\", write = \"8ms\" }}]\n",
            path("watch.sock"),
            path("leases.json"),
            path("watch-http.sock"),
            path("db.img"),
        ),
    );
    file(
        folder,
        "proxy.toml",
        format!(
            "listen = [\"unix:{}\"]\nroutes.path = \"{}\"\nhttp.listen = \"off\"\nhttp.socket = \"{}\"\ncontrol.enabled = false\ncontrol.interval = \"200ms\"\n\
             [[volume]]\nname = \"db\"\norigin = {{ type = \"nbd\", uri = \"nbd+unix:///db?socket={}\" }}\ncache = \"0\"\n",
            path("proxy.sock"),
            path("routes.json"),
            path("proxy-http.sock"),
            path("watch.sock"),
        ),
    );
    file(
        folder,
        "control.toml",
        format!(
            "socket = \"control.sock\"\nstate = \"state\"\nhistory = \"history.db\"\ninterval = \"200ms\"\n{HASTE}\
             response = {{ probe_every_ms = 200, probe_within_ms = 1000, retry_first_ms = 200, rest_first_ms = 1000 }}\n\
             [[host]]\nname = \"h1\"\nmemory = \"256MiB\"\n\
             [[volume]]\nname = \"db\"\nhome = \"h1\"\norigin = \"nbd+unix:///db?socket={}\"\nwatch = \"unix:{}\"\nroute = {{ type = \"proxy\", server = \"unix:{}\" }}\n\
             [[objective]]\nvolume = \"db\"\nlatency = \"4ms\"\n",
            path("watch.sock"),
            path("watch-http.sock"),
            path("proxy-http.sock"),
        ),
    );
}

/// The step that a volume's response is at, with its appliance.
fn step(told: &Value) -> &str {
    told["status"]["origin"]["description"].as_str().unwrap_or_default()
}

/// How many decisions of a kind there were.
fn count(told: &Value, kind: &str) -> usize {
    let decisions = told["decisions"].as_array().map(Vec::as_slice).unwrap_or_default();
    decisions.iter().filter(|decision| decision["kind"] == kind).count()
}

/// What a controller is told of times and steps in a test, in which everything is soon.
const HASTE: &str = "control.removal.sustained = 5\n\
    control.violation = { windows = 5, nonconforming = 4 }\n";
