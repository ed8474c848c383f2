//! Our readers and writers against the tools whose formats they speak: blkparse and fio.

use crate::support::{folder, json, succeed};
use forebay_prerequisite::{programs, recorded};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn run(folder: &Path, program: &str, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(program).args(arguments).current_dir(folder).output().expect("it is installed");
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

fn info(path: &Path) -> Value {
    json("forebay.trace-info/1", ["trace", "info", path.to_str().expect("UTF-8"), "--json"])
}

/// blkparse's text of a real binary trace says what our binary reader says.
#[test]
fn blkparse_reads_binary_traces_as_we_do() {
    let Some(archive) = recorded("hadoop_eternity8.blktrace-raw.tar.zst") else { return };
    if !programs("blkparse on a recorded blktrace", &["blkparse", "tar"], false) {
        return;
    }
    let folder = folder();
    let tar = zstd::decode_all(std::fs::File::open(&archive).expect("it is there")).expect("it is zstd");
    std::fs::write(folder.path().join("trace.tar"), tar).expect("there is room");
    run(folder.path(), "tar", &["-xf", "trace.tar", "--transform", "s,.*/,,"]);
    // blkparse stops at the first processor whose file is missing, which is number 2 here: both read the files before it.
    let set = folder.path().join("set");
    std::fs::create_dir(&set).expect("a folder can be made");
    for file in ["sdb.blktrace.0", "sdb.blktrace.1"] {
        std::fs::rename(folder.path().join(file), set.join(file)).expect("both are in the archive");
    }
    run(&set, "blkparse", &["-q", "-i", "sdb", "-o", "sdb.txt"]);
    let (binary, text) = (info(&set), info(&set.join("sdb.txt")));
    assert_eq!((&binary["format"], &text["format"]), (&"blktrace".into(), &"blkparse".into()));
    assert!(binary["requests"].as_u64().expect("a number") > 4_000);
    for field in ["requests", "reads", "writes", "bytes_read", "bytes_written", "footprint_blocks"] {
        assert_eq!(binary[field], text[field], "{field}");
    }
}

/// What fio logs we read, and what we write fio replays: as many requests, and at the times that are meant (microseconds:
/// read as milliseconds, two seconds of requests would take half an hour).
#[test]
fn fio_logs_and_replays() {
    if !programs("fio's request logs", &["fio"], false) {
        return;
    }
    let folder = folder();
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    run(
        folder.path(),
        "fio",
        &[
            "--name=log",
            "--filename=disk",
            "--size=16M",
            "--rw=randrw",
            "--bs=4k",
            "--number_ios=400",
            "--rate_iops=100,100",
            "--randseed=7",
            "--write_iolog=log.txt",
        ],
    );
    let logged = info(Path::new(&path("log.txt")));
    assert_eq!(logged["format"], "fio-iolog");
    assert_eq!(
        logged["requests"].as_u64().expect("a number") - logged["other"].as_u64().expect("a number"),
        400
    );
    let seconds = logged["duration_s"].as_f64().expect("a number");
    assert!((1.5..20.0).contains(&seconds), "400 requests at 200/s lasted {seconds} s by the log");

    succeed(["trace", "convert", &path("log.txt"), "--to", "fio-iolog", "--output", &path("ours.txt")]);
    let replayed = run(
        folder.path(),
        "fio",
        &[
            "--name=replay",
            "--ioengine=sync",
            "--read_iolog=ours.txt",
            "--output-format=json",
            "--output=replayed.json",
        ],
    );
    drop(replayed);
    let text = std::fs::read_to_string(path("replayed.json")).expect("fio wrote it");
    let replayed: Value =
        serde_json::from_str(&text[text.find('{').expect("JSON")..]).expect("fio prints JSON");
    let job = &replayed["jobs"][0];
    let done = job["read"]["total_ios"].as_u64().expect("a number")
        + job["write"]["total_ios"].as_u64().expect("a number");
    assert_eq!(done, 400);
    let bytes = job["read"]["io_bytes"].as_u64().expect("a number");
    assert_eq!(Some(bytes), logged["bytes_read"].as_u64());
    let ran_ms = job["job_runtime"].as_u64().expect("a number");
    assert!(
        ran_ms as f64 >= 900.0 * seconds,
        "replayed in {ran_ms} ms what took {seconds} s: the unit of time is wrong"
    );
}
