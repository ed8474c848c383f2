//! Clients are moved to appliances on demand and back, again and again, while they work: by a permanent proxy, by QEMU's block graph, by an address.
//!
//! Each time a new appliance is started before the storage side, which `forebay watch` guards by a lease; clients go through it and return, and it is
//! killed. fio verifies what it wrote, nbdcopy reads all of it, and a client of ours writes and reads back every block and takes the time of each
//! request; or a whole virtual machine writes to its disk and reads back. No request may fail and no byte may be wrong. `FOREBAY_REROUTES` says how often each way, a few times
//! unless set; where it is set the pauses, which are printed, are held to their bounds.

pub(crate) mod address;
pub(crate) mod graph;
pub(crate) mod guest;
mod proxy;

use crate::client::Client;
use crate::support::{Running, SetOnDrop, file, folder, secret_file, spawn, wait_for};
use forebay_actuate::api::ApiAddress;
use forebay_actuate::route::{LeaseHolder, StorageLease};
use forebay_actuate::{Control, Deadline, Endpoint, Passage, Pause, Route, RouteError};
use forebay_nbd::Uri;
use forebay_nbd::client::Operation;
use forebay_units::mix64;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// fio's part, and behind it that of the client of ours.
const FIO_BYTES: u64 = 16 * MIB;
const OWN_BYTES: u64 = 4 * MIB;
const BLOCK: u64 = 4096;

/// For how long a client may be held back where it keeps its connection, but for one move in a hundred.
const PAUSE_P99_MAX: Duration = Duration::from_millis(50);

/// How often each way; `few` unless it is set.
fn reroutes(few: u64) -> u64 {
    std::env::var("FOREBAY_REROUTES").ok().and_then(|count| count.parse().ok()).unwrap_or(few)
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

/// The storage side, and what comes and goes before it.
struct Scene {
    folder: tempfile::TempDir,
    storage: Running,
    appliance: Option<Running>,
    epoch: u64,
    /// Requests of the client of ours that were answered.
    answered: Arc<AtomicU64>,
}

impl Scene {
    /// `forebay watch` before a file; `more` goes into its configuration.
    fn new(namespace: Option<&str>, listen: &str, secret: &str) -> Scene {
        let folder = folder();
        file(&folder, "db.img", []);
        std::fs::File::create(folder.path().join("db.img"))
            .and_then(|image| image.set_len(FIO_BYTES + OWN_BYTES))
            .expect("a sparse file can be made");
        let mut scene = Scene {
            folder,
            storage: Running(Vec::new()),
            appliance: None,
            epoch: 0,
            answered: Arc::default(),
        };
        let text = format!(
            "listen = [\"unix:storage.sock\"{listen}]\nleases.path = \"leases.json\"\n\
             [http]\nlisten = \"off\"\nsocket = \"storage-http.sock\"\n\
             [[volume]]\nname = \"db\"\norigin = \"db.img\"\n{secret}"
        );
        scene.configuration("storage", &text);
        scene.start_storage(namespace);
        scene
    }

    /// Starts the storage side, anew if it runs.
    fn start_storage(&mut self, namespace: Option<&str>) {
        self.storage = Running(Vec::new());
        let sockets = ["storage.sock", "storage-http.sock"].map(|name| self.path(name));
        for socket in &sockets {
            let _ = std::fs::remove_file(socket);
        }
        let configuration = self.path("storage.toml");
        let watch = ["watch".as_ref(), configuration.as_os_str()];
        self.storage.0.push(spawn(namespace, env!("CARGO_BIN_EXE_forebay"), watch));
        sockets.iter().for_each(|socket| wait_for(socket));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn configuration(&self, name: &str, text: &str) -> PathBuf {
        secret_file(&self.folder, &format!("{name}.toml"), text)
    }

    /// Waits until clients have worked on the path that they are on now: one request at most of those that are counted is of the last.
    fn wait_for_work(&self) {
        let (before, end) = (self.answered.load(Ordering::Relaxed), Instant::now() + Duration::from_secs(60));
        while self.answered.load(Ordering::Relaxed) < before + 20 {
            assert!(Instant::now() < end, "clients do not go on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn control(&self, socket: &str) -> Control {
        Control { address: ApiAddress::Unix(self.path(socket)), token: None }
    }

    fn lease(&self) -> StorageLease {
        StorageLease { control: self.control("storage-http.sock"), volume: "db".to_owned() }
    }

    /// An export on a socket here.
    fn export(&self, socket: &str, name: &str) -> Endpoint {
        Endpoint::new(Uri::unix(self.path(socket), name))
    }

    /// An appliance in the place of the last one, which reaches the storage side by `epoch`. Its cache is empty: while clients were elsewhere it
    /// would have become old.
    fn start_appliance(&mut self, namespace: Option<&str>, listen: &str, secret: &str, epoch: u64) {
        self.appliance = None;
        let export = if secret.is_empty() { "db".to_owned() } else { format!("db.{SECRET}") };
        let origin = Uri::unix(self.path("storage.sock"), format!("{export}@{epoch}"));
        let text = format!(
            "listen = [\"unix:appliance-{epoch}.sock\"{listen}]\ncontrol.enabled = false\ncache.memory = \"16MiB\"\n\
             [http]\nlisten = \"off\"\n\
             [[volume]]\nname = \"db\"\norigin = \"{origin}\"\ncache = \"16MiB\"\n{secret}"
        );
        let configuration = self.configuration("appliance", &text);
        let serve = ["serve".as_ref(), configuration.as_os_str()];
        self.appliance = Some(Running(vec![spawn(namespace, env!("CARGO_BIN_EXE_forebay"), serve)]));
        wait_for(&self.path(&format!("appliance-{epoch}.sock")));
    }

    /// To an appliance and back: the pauses of both. The storage side fences who was left, behind each switch.
    fn there_and_back(&mut self, route: &dyn Route) -> [Pause; 2] {
        let (pause_there, back) = self.there(route);
        self.wait_for_work();
        let (to, home) = (self.storage_side(back), back - 1);
        let pause_back = self.switch(route, to, back, LeaseHolder::Original, home);
        self.wait_for_work();
        self.appliance = None;
        [pause_there, pause_back]
    }

    /// To an appliance: the pause, and the epoch of the way back, one above that at which the lease goes home.
    fn there(&mut self, route: &dyn Route) -> (Pause, u64) {
        let (there, back) = (self.epoch + 1, self.epoch + 3);
        self.epoch = back;
        self.start_appliance(None, "", "", there);
        let to = self.export(&format!("appliance-{there}.sock"), "db");
        (self.switch(route, to, there, LeaseHolder::Named, there), back)
    }

    /// The storage side, as who names this epoch calls it.
    fn storage_side(&self, epoch: u64) -> Endpoint {
        self.export("storage.sock", &format!("db@{epoch}"))
    }

    /// Back from an appliance that is dead, behind a fence.
    fn back_from_the_dead(&self, route: &dyn Route, back: u64) -> Result<Pause, RouteError> {
        self.lease().raise(back - 1, LeaseHolder::Original, soon()).unwrap();
        let passage = Passage { to: self.storage_side(back), epoch: back, settled: true, comes_back: true };
        let pause = route.switch(&passage, soon())?;
        assert_eq!(route.now(soon()).unwrap(), passage.to);
        Ok(pause)
    }

    fn switch(&self, route: &dyn Route, to: Endpoint, epoch: u64, holder: LeaseHolder, fence: u64) -> Pause {
        let passage = Passage { to, epoch, settled: false, comes_back: true };
        let pause = route.switch(&passage, soon()).unwrap_or_else(|error| panic!("{passage:?}: {error}"));
        self.lease().raise(fence, holder, soon()).unwrap();
        assert_eq!(route.now(soon()).unwrap(), passage.to);
        // Again: they are there.
        assert_eq!(route.switch(&passage, soon()).unwrap(), Pause(Duration::ZERO));
        // What is late has no effect.
        let late = Passage { epoch: epoch.saturating_sub(2), ..passage };
        assert!(epoch < 2 || route.switch(&late, soon()).is_err_and(|error| error.had_no_effect()));
        pause
    }
}

/// What both sides show over a network.
pub(crate) const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Clients of the export `db` on a socket: fio, nbdcopy, and one of ours.
struct Clients {
    socket: PathBuf,
    folder: PathBuf,
    answered: Arc<AtomicU64>,
}

impl Clients {
    fn new(scene: &Scene, socket: &str) -> Clients {
        let (socket, folder) = (scene.path(socket), scene.folder.path().to_owned());
        Clients { socket, folder, answered: Arc::clone(&scene.answered) }
    }

    /// Has one of them write a block that it does not flush.
    fn write_once(&self) {
        let write = Operation::Write { offset: 0, length: BLOCK as u32, fua: false };
        self.ask_once(write, &content(0, 1)).expect("it is written");
    }

    /// Has one of them ask for this.
    fn ask_once(&self, operation: Operation, data: &[u8]) -> Result<Vec<u8>, String> {
        let mut client: Client<()> = Client::connect(&self.socket, "db").expect("somebody serves");
        client.ask(operation, data, ());
        client.send();
        loop {
            let answers = client.receive().expect("the connection stays");
            if let Some(answer) = answers.into_iter().next() {
                return answer.result;
            }
        }
    }

    /// Lets them work while `moves` moves them; its pauses are printed, and judged by `p99_max`.
    fn work(&self, name: &str, p99_max: Duration, moves: impl FnOnce() -> Vec<Pause>) {
        let uri = Uri::unix(&self.socket, "db").to_string();
        let stop = AtomicBool::new(false);
        let (pauses, latencies) = std::thread::scope(|scope| {
            let fio = scope.spawn(|| work_with_fio(&uri, &self.folder, &stop));
            let copies = scope.spawn(|| copy(&uri, &stop));
            let own = scope.spawn(|| verify(&self.socket, &stop, &self.answered));
            let pauses = {
                let _stop = SetOnDrop(&stop);
                moves()
            };
            assert!(fio.join().expect("fio finds no wrong byte") > 0);
            assert!(copies.join().expect("nbdcopy finds no error") > 0);
            (pauses, own.join().expect("no request of ours fails"))
        });
        judge(name, pauses, p99_max);
        println!(
            "{name}: {} requests of a client at depth 1, p50 {:?} p99.9 {:?} longest {:?}",
            latencies.len(),
            at(&latencies, 0.5),
            at(&latencies, 0.999),
            at(&latencies, 1.0),
        );
    }
}

/// Prints pauses, and holds them to their bound where that is asked for.
fn judge(name: &str, pauses: Vec<Pause>, p99_max: Duration) {
    let mut pauses: Vec<Duration> = pauses.into_iter().map(|Pause(pause)| pause).collect();
    pauses.sort_unstable();
    let (p50, p99) = (at(&pauses, 0.5), at(&pauses, 0.99));
    println!(
        "{name}: {} re-routes, pauses p50 {p50:?} p99 {p99:?} longest {:?}",
        pauses.len(),
        at(&pauses, 1.0)
    );
    // Beside whatever else a machine does a pause says nothing: it is judged where that is asked for.
    let is_judged = std::env::var_os("FOREBAY_REROUTES").is_some();
    assert!(!is_judged || p99 <= p99_max, "p99 of the pauses is {p99:?}, expected at most {p99_max:?}");
}

/// The value below which this share of `sorted` lies.
fn at(sorted: &[Duration], share: f64) -> Duration {
    let index = (sorted.len() as f64 * share).ceil() as usize;
    sorted[index.clamp(1, sorted.len()) - 1]
}

/// Has fio write and verify, over and over; how often it did.
fn work_with_fio(uri: &str, folder: &Path, stop: &AtomicBool) -> u32 {
    let mut runs = 0;
    while !stop.load(Ordering::Relaxed) || runs == 0 {
        let output = Command::new("fio")
            .args(["--name=w", "--ioengine=nbd", "--rw=randrw", "--bs=4k", "--iodepth=8", "--verify=crc32c"])
            .args(["--verify_fatal=1", "--verify_backlog=128", "--io_size=8m", "--output-format=terse"])
            .args([format!("--size={FIO_BYTES}"), format!("--uri={uri}"), format!("--randseed={runs}")])
            .current_dir(folder)
            .output()
            .expect("fio runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stdout));
        runs += 1;
    }
    runs
}

/// Has nbdcopy read all of it, over and over; how often it did.
fn copy(uri: &str, stop: &AtomicBool) -> u32 {
    let mut runs = 0;
    while !stop.load(Ordering::Relaxed) || runs == 0 {
        let output = Command::new("nbdcopy").args([uri, "null:"]).output().expect("nbdcopy runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        runs += 1;
    }
    runs
}

/// What a block of ours holds after so many writes of it.
fn content(block: u64, version: u64) -> Vec<u8> {
    let words =
        (0..BLOCK / 8).map(|word| if version == 0 { 0 } else { mix64(version << 32 | block << 10 | word) });
    words.flat_map(u64::to_le_bytes).collect()
}

/// Writes and reads back, one request at a time; the time that each took, sorted.
fn verify(socket: &Path, stop: &AtomicBool, answered: &AtomicU64) -> Vec<Duration> {
    let mut client: Client<()> = Client::connect(socket, "db").expect("somebody serves");
    let mut call = |operation: Operation, data: &[u8]| {
        let began = Instant::now();
        client.ask(operation, data, ());
        client.send();
        loop {
            let answers = client.receive().expect("the connection stays");
            if let Some(answer) = answers.into_iter().next() {
                return (answer.result.expect("no request fails"), began.elapsed());
            }
        }
    };
    let mut versions = vec![0u64; (OWN_BYTES / BLOCK) as usize];
    let mut latencies = Vec::new();
    for step in 0u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        answered.store(step, Ordering::Relaxed);
        let block = mix64(step) % versions.len() as u64;
        let (offset, length) = (FIO_BYTES + block * BLOCK, BLOCK as u32);
        let version = &mut versions[block as usize];
        if mix64(step ^ 0x55).is_multiple_of(3) {
            *version += 1;
            latencies
                .push(call(Operation::Write { offset, length, fua: false }, &content(block, *version)).1);
        } else {
            let (found, latency) = call(Operation::Read { offset, length, dont_fragment: false }, &[]);
            assert!(
                found == content(block, *version),
                "block {block} is not what was written last ({version})"
            );
            latencies.push(latency);
        }
    }
    latencies.sort_unstable();
    latencies
}
