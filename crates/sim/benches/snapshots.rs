//! What snapshots and scores cost: writing one of 4 million of 100 million blocks, reading it, and scoring a series of 500.
//!
//! The blocks lie at random, which is the worst case for size and time. The series repeats eight snapshots, each of which is read and
//! checked anew every time, in batches of 16. `--smoke` has a hundredth of the blocks and ten snapshots. Prints a hash of the scores.

use forebay_cache::flash::VolumeId;
use forebay_cache::snapshot::{Activity, CHUNK_BLOCKS, Snapshot, SnapshotHeader, SnapshotWriter};
use forebay_control::prewarm::{Heuristic, ScoreTable};
use forebay_workload::{exponential, random};
use std::time::Instant;

const VOLUME: VolumeId = VolumeId(1);
const BATCH: usize = 16;

/// A snapshot of about one block in 25.
fn write(blocks: u64, sequence: u64) -> Vec<u8> {
    let header = SnapshotHeader {
        volume: VOLUME,
        block_bytes: 4_096,
        volume_blocks: blocks,
        sequence,
        taken_at_unix_s: 0,
        activity: Activity::default(),
    };
    let mut random = random(sequence);
    let mut writer = SnapshotWriter::new(header, true).expect("a volume of this size");
    let mut block = 0;
    while block < blocks {
        writer.push(block, (block % 16) as u8).expect("blocks ascend");
        block += 1 + exponential(24.5, &mut random) as u64;
    }
    writer.finish()
}

/// The most memory that this process ever held, in MiB.
fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib >> 10)
}

fn main() {
    let smoke = std::env::args().any(|argument| argument == "--smoke" || argument == "--test");
    let (blocks, series) = if smoke { (1_000_000, 10) } else { (100_000_000u64, 500) };
    let began = Instant::now();
    let first = write(blocks, 0);
    let wrote = began.elapsed();
    let began = Instant::now();
    let snapshot = Snapshot::parse(first.clone(), VOLUME).expect("what was written");
    let parsed = began.elapsed();
    let per_block = first.len() as f64 / snapshot.blocks() as f64;
    println!("one snapshot: {} blocks of {blocks}, {per_block:.2} bytes each", snapshot.blocks());
    println!(
        "  written in {:.0} ms (with drawing the blocks), read and checked in {:.0} ms",
        wrote.as_secs_f64() * 1e3,
        parsed.as_secs_f64() * 1e3
    );
    drop(snapshot);

    let files: Vec<Vec<u8>> = (0..8).map(|sequence| write(blocks, sequence)).collect();
    let began = Instant::now();
    let mut table = ScoreTable::new(Heuristic::FrerecentLinear, blocks as usize);
    let mut places = Vec::new();
    let mut done = 0;
    while done < series {
        let count = BATCH.min(series - done);
        let batch: Vec<Snapshot> = (done..done + count)
            .map(|number| {
                Snapshot::parse(files[number % files.len()].clone(), VOLUME).expect("what was written")
            })
            .collect();
        table.add_spans(count as u32, CHUNK_BLOCKS as usize, |chunk, number, add| {
            batch[number as usize].places(chunk as u32, &mut places);
            add(&places);
        });
        done += count;
    }
    let scored = began.elapsed();
    let hash = (0..blocks as usize)
        .fold(0u64, |hash, block| hash.rotate_left(5) ^ u64::from(table.score(block).to_bits()));
    println!("{series} snapshots scored in {:.2} s, hash {hash:016x}", scored.as_secs_f64());
    if let Some(peak) = peak_mib() {
        println!("most memory held: {peak} MiB");
    }
}
