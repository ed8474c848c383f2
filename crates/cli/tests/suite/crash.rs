//! The daemon is killed with SIGKILL under writes, again and again: after each restart, every write that it had acknowledged is there.
//!
//! fio writes blocks that carry checksums and keeps the list of those that were acknowledged; the moment of the kill is drawn from a
//! seed (`FOREBAY_SEED`; the time unless set, and printed). `FOREBAY_CRASH_CYCLES` kills more often than the 20 times of the suite.

use crate::support::{folder, prerequisites, seed};
use forebay_units::mix64;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CYCLES: u64 = 20;
const SIZE_BYTES: u64 = 16 << 20;

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

struct Daemon(Child);

impl Daemon {
    fn start(folder: &Path) -> Daemon {
        // A socket that a killed daemon left behind would look like this one's.
        let socket = folder.join("socket");
        let _ = std::fs::remove_file(&socket);
        let log = std::fs::File::options().append(true).create(true).open(folder.join("daemon.log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .arg("serve")
            .arg(folder.join("forebay.toml"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the binary runs");
        let daemon = Daemon(child);
        assert!(
            wait_until(PATIENCE, || std::os::unix::net::UnixStream::connect(&socket).is_ok()),
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

fn fio(folder: &Path, name: &str, arguments: &[String]) -> Command {
    let mut command = Command::new("fio");
    command
        .current_dir(folder)
        .arg(format!("--name={name}"))
        .args(["--ioengine=nbd", "--bs=4k", "--output-format=json"])
        .arg(format!("--uri=nbd+unix:///db?socket={}", folder.join("socket").display()))
        .arg(format!("--size={SIZE_BYTES}"))
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

/// How long anything may take on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts fio's writes of this cycle; they end when the daemon does. One at a time: with more, fio 3.33 lists as acknowledged what was still
/// in flight when its server died.
fn write(folder: &Path, randseed: u64) -> Child {
    let arguments =
        ["--rw=randwrite", "--verify=crc32c", "--do_verify=0", "--verify_state_save=1", "--iodepth=1"];
    let mut arguments: Vec<String> = arguments.map(String::from).into();
    arguments.push(format!("--randseed={randseed}"));
    fio(folder, "writer", &arguments).spawn().expect("fio runs")
}

/// Reads what fio was told to be written: how many blocks, and whether each held what was written.
fn verify(folder: &Path, randseed: u64) -> (u64, bool) {
    let arguments = [
        "--rw=randwrite",
        "--verify=crc32c",
        "--verify_state_load=1",
        "--verify_state_save=0",
        "--verify_only",
        "--verify_fatal=1",
    ];
    let mut arguments: Vec<String> = arguments.map(String::from).into();
    arguments.push(format!("--randseed={randseed}"));
    let output = fio(folder, "writer", &arguments).stderr(Stdio::piped()).output().expect("fio runs");
    if !output.status.success() {
        println!(
            "crash: fio: {}",
            String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default()
        );
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let start = text.find('{').unwrap_or_else(|| panic!("fio printed no JSON: {text}"));
    let end = text.rfind('}').expect("JSON ends");
    let result: serde_json::Value = serde_json::from_str(&text[start..=end]).expect("fio prints JSON");
    (result["jobs"][0]["read"]["total_ios"].as_u64().expect("a count"), output.status.success())
}

#[test]
fn a_killed_daemon_loses_no_acknowledged_write() {
    if !prerequisites("kill -9 under fio", &["fio"], false) {
        return;
    }
    let seed = seed();
    let cycles =
        std::env::var("FOREBAY_CRASH_CYCLES").map_or(CYCLES, |count| count.parse().expect("a number"));
    println!("crash: {cycles} kills from FOREBAY_SEED={seed}");
    let folder = folder();
    let folder = folder.path();
    let disk = folder.join("disk");
    std::fs::File::create(&disk).unwrap().set_len(SIZE_BYTES).unwrap();
    // The cache holds a quarter: blocks come and go while they are written.
    let configuration = format!(
        "listen = [\"unix:{}\"]\n[http]\nlisten = \"off\"\n[[volume]]\nname = \"db\"\norigin = \"disk\"\ncache = \"4MiB\"\n",
        folder.join("socket").display()
    );
    std::fs::write(folder.join("forebay.toml"), configuration).unwrap();
    let (mut verified, mut last) = (0, 0);
    for cycle in 0..cycles {
        let draw = mix64(seed ^ mix64(cycle + 1));
        let randseed = draw % 1_000_000 + 1;
        let daemon = Daemon::start(folder);
        let before = modified(&disk);
        let mut reader =
            fio(folder, "reader", &["--thread".into(), "--rw=randread".into(), "--rate_iops=3000".into()])
                .spawn()
                .expect("fio runs");
        let mut writer = write(folder, randseed);
        assert!(wait_until(PATIENCE, || modified(&disk) != before), "cycle {cycle}: fio does not write");
        std::thread::sleep(Duration::from_millis(draw >> 32 & 0xff));
        daemon.kill();
        // fio 3.33 may turn for ever when its server is gone; without the list that it writes at its end there is nothing to verify.
        let ended = wait_until(Duration::from_secs(3), || {
            writer.try_wait().expect("fio can be waited for").is_some()
        });
        for fio in [&mut writer, &mut reader] {
            let _ = fio.kill();
            fio.wait().expect("fio ends when it is killed");
        }
        let list = folder.join("local-writer-0-verify.state");
        if !ended || !list.exists() {
            println!("crash: cycle {cycle}: fio did not end by itself; nothing verified");
            continue;
        }

        let daemon = Daemon::start(folder);
        let (blocks, is_whole) = verify(folder, randseed);
        assert!(
            is_whole,
            "cycle {cycle} of FOREBAY_SEED={seed}: acknowledged writes are not there after the kill"
        );
        if cycle % 5 == 0 {
            // Again, now partly from the cache that the first pass filled.
            assert_eq!(verify(folder, randseed), (blocks, true), "cycle {cycle} of FOREBAY_SEED={seed}");
        }
        daemon.kill();
        std::fs::rename(&list, folder.join("last.state")).expect("the list was read");
        verified += blocks;
        last = randseed;
    }
    println!("crash: {verified} acknowledged blocks verified after {cycles} kills");
    assert!(verified > 2 * cycles, "{verified} blocks in {cycles} cycles prove little");

    // What finds nothing must be able to find something.
    std::fs::rename(folder.join("last.state"), folder.join("local-writer-0-verify.state"))
        .expect("a cycle was verified");
    std::fs::write(&disk, vec![0; SIZE_BYTES as usize]).unwrap();
    let _daemon = Daemon::start(folder);
    assert!(!verify(folder, last).1, "fio does not see that all data is gone");
}

fn modified(path: &Path) -> std::time::SystemTime {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).expect("the disk is there")
}
