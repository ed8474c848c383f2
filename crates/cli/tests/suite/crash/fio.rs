//! The second opinion on kills: fio writes blocks that carry checksums, one at a time, and keeps the list of those that were acknowledged.

use super::{Daemon, PATIENCE, SIZE_BYTES, cycles, prepare, socket, wait_until};
use crate::support::{folder, seed};
use forebay_prerequisite::programs;
use forebay_units::mix64;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn fio(folder: &Path, name: &str, arguments: &[String]) -> Command {
    let mut command = Command::new("fio");
    command
        .current_dir(folder)
        .arg(format!("--name={name}"))
        .args(["--ioengine=nbd", "--bs=4k", "--output-format=json"])
        .arg(format!("--uri=nbd+unix:///db?socket={}", socket(folder).display()))
        .arg(format!("--size={SIZE_BYTES}"))
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

/// Starts fio's writes of this cycle; they end when the daemon does. One at a time: with sixteen, fio 3.33 listed up
/// to 15 blocks a kill as written that were not there, and a client that counts its acknowledgements itself (`ledger.rs`) misses none.
fn start_writing(folder: &Path, randseed: u64) -> Child {
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
fn fio_finds_what_was_acknowledged_before_a_kill() {
    if !programs("kill -9 under fio", &["fio"], false) {
        return;
    }
    let (seed, cycles) = (seed(), cycles().div_ceil(4));
    println!("crash under fio: {cycles} kills from FOREBAY_SEED={seed}");
    let folder = folder();
    let folder = folder.path();
    let disk = folder.join("disk");
    prepare(folder, SIZE_BYTES, "4MiB");
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
        let mut writer = start_writing(folder, randseed);
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
    println!("crash under fio: {verified} acknowledged blocks verified after {cycles} kills");
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
