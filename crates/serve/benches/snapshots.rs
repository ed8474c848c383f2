//! What a snapshot of a partition of 16 GiB costs off the request path, from what the worker listed to bytes on disk: processor time, and bytes per cached block.
//!
//! The listing is in no order, as slots are after a while. Blocks lie at random, or in runs of 16, over volumes of four sizes. `--smoke` has a hundredth of the
//! blocks. Prints a hash of the bytes.

use forebay_appliance::volume::ListedBlock;
use forebay_cache::flash::VolumeId;
use forebay_cache::snapshot::{Activity, SnapshotHeader};
use forebay_serve::snapshot_of;
use forebay_units::{BlockIndex, mix64};
use std::io::Write;
use std::time::Instant;

/// Of 4 KiB.
const PARTITION_BLOCKS: u64 = 4 << 20;

/// Blocks in an order that is none: runs of `run` blocks, one in each `spread` times as many.
fn listing(blocks: u64, run: u64, spread: u64) -> Vec<ListedBlock> {
    let runs = blocks / run;
    let mut listed: Vec<ListedBlock> = (0..runs)
        .flat_map(|number| {
            let first = number * run * spread + mix64(number) % (run * (spread - 1) + 1);
            (first..first + run)
                .map(|block| ListedBlock::new(BlockIndex(block), mix64(block).is_multiple_of(3)))
        })
        .collect();
    listed.sort_unstable_by_key(|block| mix64(block.block().0));
    listed
}

/// Processor time of this thread, in milliseconds.
fn processor_ms() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e6
}

fn main() {
    let smoke = std::env::args().any(|argument| argument == "--smoke" || argument == "--test");
    let blocks = if smoke { PARTITION_BLOCKS / 100 } else { PARTITION_BLOCKS };
    for (run, spread) in [(16, 25), (1, 25), (1, 100), (1, 400), (1, 1600)] {
        let header = SnapshotHeader {
            volume: VolumeId(1),
            block_bytes: 4_096,
            volume_blocks: (blocks + run) * spread,
            sequence: 1,
            taken_at_unix_s: 0,
            activity: Activity::default(),
        };
        let listed = listing(blocks, run, spread);
        let count = listed.len();
        let (began, processor) = (Instant::now(), processor_ms());
        let bytes = snapshot_of(header, listed).expect("blocks of the volume");
        let encoded = processor_ms() - processor;
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&bytes).and_then(|()| file.sync_all()).expect("room on disk");
        let hash = bytes.iter().fold(0u64, |hash, byte| hash.rotate_left(5) ^ u64::from(*byte));
        println!(
            "{count} blocks in runs of {run} of a volume of {:.1} TiB: {:.2} bytes each; {:.0} ms of processor time, {encoded:.0} of it before it is written; {:.0} ms in all; \
             hash {hash:016x}",
            (count as u64 * spread * 4096) as f64 / 2f64.powi(40),
            bytes.len() as f64 / count as f64,
            processor_ms() - processor,
            began.elapsed().as_secs_f64() * 1e3,
        );
    }
}
