//! `forebay control`: a violation is answered by an appliance, through the death of the controller and of the appliance, and clients notice nothing.
//!
//! A storage side whose every request takes 8 ms is watched; a client reads and writes through a permanent proxy. What it reads is what it wrote.

use crate::support::{file, folder, json, succeed};
use forebay_nbd::Uri;
use forebay_origin::{
    CompletionSink, NbdOrigin, NbdOriginOptions, Origin, OriginCompletion, OriginOperation, OriginRequest,
    OriginRequestId,
};
use forebay_serve::Daemon;
use forebay_serve::config::Config;
use forebay_units::{ByteRange, mix64};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

const BLOCKS: u64 = 256;
/// Requests that the client has outstanding.
const OUTSTANDING: u64 = 8;

struct Answers(Sender<OriginCompletion>);

impl CompletionSink for Answers {
    fn complete(&self, completion: OriginCompletion) {
        let _ = self.0.send(completion);
    }
}

/// Reads all blocks again and again, and writes one in sixteen, until it is told to stop; checks every byte.
fn drive(uri: Uri, stop: &AtomicBool, done: &AtomicU64) {
    let origin = NbdOrigin::connect(&uri, NbdOriginOptions::default()).expect("the proxy lets clients in");
    let (sender, answers) = channel();
    let sink: Arc<dyn CompletionSink> = Arc::new(Answers(sender));
    let mut versions = vec![0u8; BLOCKS as usize];
    // Blocks whose last write was answered with an error: it may have been done or not.
    let mut open = vec![false; BLOCKS as usize];
    let mut state = 1u64;
    // Each of the requests has blocks of its own, so that what is read is known.
    let mut begin = |lane: u64, versions: &mut [u8]| {
        state = mix64(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
        let block = lane * (BLOCKS / OUTSTANDING) + state % (BLOCKS / OUTSTANDING);
        let operation = if (state >> 40).is_multiple_of(16) {
            versions[block as usize] = versions[block as usize].wrapping_add(1);
            let data = vec![versions[block as usize]; 4096];
            OriginOperation::Write { offset: block * 4096, data, fua: false }
        } else {
            OriginOperation::Read { range: ByteRange::new(block * 4096, 4096) }
        };
        let reads = matches!(operation, OriginOperation::Read { .. });
        origin.submit(OriginRequest { id: OriginRequestId(lane), operation }, &sink);
        (block, reads)
    };
    let mut out: Vec<(u64, bool)> = (0..OUTSTANDING).map(|lane| begin(lane, &mut versions)).collect();
    let mut waiting = OUTSTANDING;
    while waiting > 0 {
        let answer = answers.recv_timeout(Duration::from_secs(60)).expect("the proxy answers");
        let (block, reads) = out[answer.id.0 as usize];
        let (version, open) = (versions[block as usize], &mut open[block as usize]);
        match answer.result {
            Ok(data) if reads => {
                let is = |version: u8| data.iter().all(|byte| *byte == version);
                let good = is(version) || (*open && is(version.wrapping_sub(1)));
                assert!(good, "block {block} is stale or wrong");
            }
            Ok(_) => *open = false,
            Err(error) if reads => panic!("a read of block {block}: {error}"),
            Err(_) => *open = true,
        }
        done.fetch_add(1, Ordering::Relaxed);
        if stop.load(Ordering::Relaxed) {
            waiting -= 1;
        } else {
            out[answer.id.0 as usize] = begin(answer.id.0, &mut versions);
        }
    }
}

/// The controller as a process; killed with its test.
struct Controller(Child);

impl Controller {
    fn start(folder: &Path) -> Controller {
        let log =
            std::fs::File::options().create(true).append(true).open(folder.join("control.log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_forebay"))
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

/// Ends appliances that a test leaves behind.
struct Appliances<'a>(&'a Path);

impl Appliances<'_> {
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

impl Drop for Appliances<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn a_violation_is_answered_by_an_appliance_whatever_dies() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    file(&folder, "db.img", vec![0; 1 << 20]);
    file(
        &folder,
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
        &folder,
        "proxy.toml",
        format!(
            "listen = [\"unix:{}\"]\nroutes.path = \"{}\"\nhttp.listen = \"off\"\nhttp.socket = \"{}\"\ncontrol.enabled = false\n\
             [[volume]]\nname = \"db\"\norigin = {{ type = \"nbd\", uri = \"nbd+unix:///db?socket={}\" }}\ncache = \"0\"\n",
            path("proxy.sock"),
            path("routes.json"),
            path("proxy-http.sock"),
            path("watch.sock"),
        ),
    );
    file(
        &folder,
        "control.toml",
        format!(
            "socket = \"control.sock\"\nstate = \"state\"\nhistory = \"history.db\"\ninterval = \"200ms\"\n\
             control.removal.sustained = 5\n\
             control.violation = {{ windows = 5, nonconforming = 4 }}\n\
             response = {{ probe_every_ms = 200, probe_within_ms = 1000, retry_first_ms = 200, rest_first_ms = 1000 }}\n\
             [[host]]\nname = \"h1\"\nmemory = \"256MiB\"\n\
             [[volume]]\nname = \"db\"\nhome = \"h1\"\norigin = \"nbd+unix:///db?socket={}\"\nwatch = \"unix:{}\"\nproxy = \"unix:{}\"\n\
             [[objective]]\nvolume = \"db\"\nlatency = \"4ms\"\n",
            path("watch.sock"),
            path("watch-http.sock"),
            path("proxy-http.sock"),
        ),
    );
    let configured = |name: &str| Config::read(&folder.path().join(name)).expect("a good configuration");
    let watch = Daemon::start(configured("watch.toml").watching().unwrap()).unwrap();
    let proxy = Daemon::start(configured("proxy.toml")).unwrap();
    let appliances = Appliances(folder.path());
    let mut controller = Controller::start(folder.path());
    let server = format!("unix:{}", path("control.sock"));

    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let uri: Uri = proxy.uris("db")[0].parse().unwrap();
    // Answers of the controller; while it starts there are none.
    let explained = || -> Option<Value> {
        let run = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["explain", "db", "--json", "--server", &server])
            .output()
            .unwrap();
        serde_json::from_slice(&run.stdout).ok()
    };
    let step = |told: &Value| told["status"]["origin"]["description"].as_str().unwrap_or_default().to_owned();
    let wait = |what: &str, good: &dyn Fn(&Value) -> bool| {
        let until = Instant::now() + Duration::from_secs(40);
        let mut last = Value::Null;
        while Instant::now() < until {
            if let Some(told) = explained() {
                if good(&told) {
                    return;
                }
                last = told;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let log = std::fs::read_to_string(folder.path().join("control.log")).unwrap_or_default();
        panic!("{what} does not come; last: {last:#}\n{log}");
    };
    let has = |told: &Value, kind: &str| {
        let decisions = told["decisions"].as_array().cloned().unwrap_or_default();
        decisions.iter().filter(|decision| decision["kind"] == kind).count()
    };
    std::thread::scope(|scope| {
        // Also where a check fails the client ends.
        struct Stops<'a>(&'a AtomicBool);
        impl Drop for Stops<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let stops = Stops(&stop);
        scope.spawn(|| drive(uri, &stop, &done));
        wait("a cache in place", &|told| has(told, "cache_in_place") == 1);
        wait("the end of the violation", &|told| has(told, "violation_ended") == 1);
        let lease = watch.status().volumes[0].lease.expect("it has leases");
        assert_eq!((lease.epoch, lease.holder), (1, forebay_serve::lease::LeaseHolder::Named));
        assert_eq!(appliances.pids().len(), 1);

        // Another controller goes on with it.
        controller.kill();
        let before = done.load(Ordering::Relaxed);
        controller = Controller::start(folder.path());
        wait("the appliance in the hands of the next controller", &|told| {
            step(told).contains("serving: appliance 1 on h1")
        });
        assert!(done.load(Ordering::Relaxed) > before, "clients go on without a controller");
        let told = succeed(["explain", "db", "--server", &server]);
        assert!(told.contains("cache in place") && told.contains("violation ended"), "{told}");
        let status = json("forebay.status/1", ["status", "--json", "--server", &server]);
        assert_eq!(status["volumes"][0]["name"], "db");

        // The appliance dies: another takes its place, and nothing that was acknowledged is lost.
        appliances.kill();
        wait("another appliance", &|told| {
            has(told, "cache_in_place") == 2 && has(told, "appliance_failed") == 1
        });
        assert!(has(&explained().expect("it answers"), "original_route") == 1);

        // The appliance goes when nobody asks for anything.
        drop(stops);
    });
    wait("the original route", &|told| {
        has(told, "original_route") == 2 && step(told).contains("original route")
    });
    let lease = watch.status().volumes[0].lease.expect("it has leases");
    assert_eq!(lease.holder, forebay_serve::lease::LeaseHolder::Original);
    // It is stopped once its clients are gone, so a moment later.
    wait("the end of the appliance", &|_| appliances.pids().is_empty());
    // Only what was sent to the appliance that died and not answered.
    assert!(proxy.status().volumes[0].errors <= OUTSTANDING);
}
