//! How fast `forebay mrc` is from end to end: process start, reading from the page cache, decoding, estimating, printing.
//! `--smoke` runs a hundredth of the work.
//!
//! The trace is an uncompressed oracleGeneral file of Zipf(0.9) references to 4 M objects of 4 KiB. Each line prints references per
//! second of the clock and of processor time (user and system, to 10 ms), best of five runs, and a hash of the printed
//! JSON, which must not differ between runs or machines. The named target is 100 M references/s at R = 0.001.

use forebay_units::mix64;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const OBJECTS: u64 = 4_000_000;

/// Writes `count` references; ranks follow the inverse of a power law's continuous distribution, scattered over the ids.
fn write_trace(path: &Path, count: u64) -> std::io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, std::fs::File::create(path)?);
    let top = (OBJECTS as f64).powf(0.1);
    for step in 0..count {
        let uniform = (mix64(step) >> 11) as f64 / (1u64 << 53) as f64;
        let rank = (1.0 + uniform * (top - 1.0)).powf(10.0) as u64 - 1;
        let object = rank.min(OBJECTS - 1) * 2_654_435_761 % OBJECTS;
        let mut record = [0; 24];
        record[..4].copy_from_slice(&((step / 10_000) as u32).to_le_bytes());
        record[4..12].copy_from_slice(&(object * 8).to_le_bytes());
        record[12..16].copy_from_slice(&4096u32.to_le_bytes());
        record[16..].copy_from_slice(&(-1i64).to_le_bytes());
        file.write_all(&record)?;
    }
    file.flush()
}

/// Seconds of the clock, seconds of processor time, and what was printed. The shell's `times` tells of its children.
fn run(trace: &Path, args: &[&str]) -> (f64, f64, String) {
    let start = Instant::now();
    let output = Command::new("sh")
        .args(["-c", "\"$0\" mrc \"$@\" && times", env!("CARGO_BIN_EXE_forebay"), "--json"])
        .args(args)
        .arg(trace)
        .stderr(Stdio::inherit())
        .output()
        .expect("a shell");
    let elapsed = start.elapsed().as_secs_f64();
    let text = String::from_utf8(output.stdout).expect("text");
    let (json, times) = text.rsplit_once("}\n").expect("JSON, then times");
    let of_children = times.lines().nth(1).expect("times of children");
    let seconds = |time: &str| {
        let (minutes, seconds) = time.trim_end_matches('s').split_once('m').expect("as in 0m0.10s");
        minutes.parse::<f64>().expect("minutes") * 60.0 + seconds.parse::<f64>().expect("seconds")
    };
    (elapsed, of_children.split(' ').map(seconds).sum(), json.to_owned())
}

fn main() {
    let smoke = std::env::args().any(|arg| arg == "--smoke");
    let count: u64 = if smoke { 200_000 } else { 20_000_000 };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("zipf.oracleGeneral");
    write_trace(&trace, count).expect("room for the trace");
    println!("{count} references in {} MB, from the page cache", count * 24 / 1_000_000);
    for (name, args) in [
        ("shards 0.001, per request", &["--method", "shards", "--rate", "0.001", "--unit", "request"][..]),
        ("shards 0.001, per block", &["--method", "shards", "--rate", "0.001"]),
        ("shards in 128 KiB, per block", &["--method", "shards", "--memory", "128KiB"]),
        ("exact, per block, with working set", &["--method", "exact"]),
    ] {
        let runs: Vec<_> = (0..if smoke { 1 } else { 5 }).map(|_| run(&trace, args)).collect();
        let clock = runs.iter().map(|run| run.0).fold(f64::INFINITY, f64::min);
        let processor = runs.iter().map(|run| run.1).fold(f64::INFINITY, f64::min).max(0.01);
        let hash = runs[0].2.bytes().fold(0, |hash, byte| mix64(hash ^ u64::from(byte)));
        let rate = |seconds: f64| count as f64 / seconds / 1e6;
        println!(
            "{name:36} {:7.1} M/s by the clock {:7.1} M/s of processor time  hash {hash:016x}",
            rate(clock),
            rate(processor)
        );
    }
}
