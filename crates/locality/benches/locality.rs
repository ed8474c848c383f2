//! How fast and how large the estimators are. `--smoke` runs a hundredth of the work.
//!
//! Each line names the workload and prints references per second, memory, and a hash of the resulting curve, which must not
//! differ between runs or machines. The best of three runs is printed, in time on the processor where the system tells it (Linux),
//! so that other processes disturb less.

use forebay_locality::{
    ExactLru, FixedRate, FixedSize, LiveConfig, LiveObserver, MissRatioCurve, ReuseTimes,
};
use forebay_units::{Nanos, mix64};
use std::io::{Read, Seek, SeekFrom, Write};
use std::time::Instant;

/// `count` references to `blocks` blocks, block `i` with a weight of `1 / (i + 1)^0.9`, numbers scattered.
fn zipf(count: usize, blocks: u64) -> Vec<u64> {
    let mut cumulative: Vec<f64> = Vec::with_capacity(blocks as usize);
    let mut sum = 0.0;
    for rank in 0..blocks {
        sum += ((rank + 1) as f64).powf(-0.9);
        cumulative.push(sum);
    }
    // An index by the leading share of the sum makes the search short.
    let cells = 1usize << 16;
    let starts: Vec<usize> = (0..=cells)
        .map(|cell| cumulative.partition_point(|&c| c < sum * cell as f64 / cells as f64))
        .collect();
    (0..count as u64)
        .map(|step| {
            let uniform = (mix64(step) >> 11) as f64 / (1u64 << 53) as f64;
            let cell = (uniform * cells as f64) as usize;
            let (low, high) = (starts[cell], starts[cell + 1].min(cumulative.len() - 1) + 1);
            let rank = low + cumulative[low..high].partition_point(|&c| c < uniform * sum);
            (rank as u64).min(blocks - 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24
        })
        .collect()
}

fn hash_of(curve: &MissRatioCurve) -> u64 {
    curve.points().iter().fold(0, |hash, point| mix64(hash ^ point.size_blocks) ^ point.miss_ratio.to_bits())
}

/// Seconds that this thread ran, or of the clock where the system does not tell.
struct Stopwatch {
    start: Instant,
    ran: Option<u64>,
}

impl Stopwatch {
    fn start() -> Stopwatch {
        Stopwatch { ran: Self::ran(), start: Instant::now() }
    }

    fn ran() -> Option<u64> {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        text.split(' ').next()?.parse().ok()
    }

    fn seconds(&self) -> f64 {
        let elapsed = self.start.elapsed().as_secs_f64();
        let ran = self.ran.and_then(|before| Some((Self::ran()? - before) as f64 / 1e9));
        // What ran is told in ticks of some milliseconds: too coarse for short runs.
        ran.filter(|_| elapsed > 0.1).unwrap_or(elapsed)
    }
}

/// The best seconds of several runs, and the last result.
fn best<T>(runs: usize, mut run: impl FnMut() -> T) -> (f64, T) {
    let mut seconds = f64::INFINITY;
    let mut result = None;
    for _ in 0..runs {
        drop(result.take());
        let watch = Stopwatch::start();
        result = Some(run());
        seconds = seconds.min(watch.seconds());
    }
    (seconds, result.expect("there is at least one run"))
}

fn line(name: &str, references: usize, seconds: f64, rest: &str, hash: u64) {
    let speed = references as f64 / seconds / 1e6;
    println!("{name:<34} {speed:>9.2} M references/s  {rest}  hash {hash:016x}");
}

fn main() {
    let smoke = std::env::args().any(|argument| argument == "--smoke" || argument == "--test");
    let (factor, runs) = if smoke { (100, 1) } else { (1, 3) };
    let keys = zipf(20_000_000 / factor, 4_000_000 / factor as u64);

    let (seconds, exact) = best(runs, || {
        let mut lru = ExactLru::new();
        keys.chunks(4_096).for_each(|chunk| lru.access_batch(chunk));
        lru
    });
    let blocks = exact.footprint_blocks() as f64;
    let memory = format!(
        "{blocks} blocks, {:.1} bytes per block, {:.1} at the peak",
        exact.bytes() as f64 / blocks,
        exact.bytes_peak() as f64 / blocks
    );
    line("exact, zipf(0.9)", keys.len(), seconds, &memory, hash_of(&exact.curve()));

    let (seconds, shards) = best(runs, || {
        let mut shards = FixedSize::with_bytes(128 << 10, 0);
        keys.chunks(4_096).for_each(|chunk| shards.access_batch(chunk));
        shards
    });
    let state = format!("{} bytes, rate {:.4}", shards.bytes(), shards.rate());
    line("shards 128KiB, zipf(0.9)", keys.len(), seconds, &state, hash_of(&shards.curve()));

    let (seconds, times) = best(runs.min(1), || {
        let mut times = ReuseTimes::new();
        keys.iter().for_each(|&key| times.access(key, 1));
        times
    });
    line("aet, zipf(0.9)", keys.len(), seconds, "all blocks", hash_of(&times.aet_curve()));

    let (seconds, mut live) = best(runs, || {
        let mut live = LiveObserver::new(LiveConfig::default(), Nanos::ZERO);
        for (step, &key) in keys.iter().enumerate() {
            live.observe_read(key % (1 << 30), 1, Nanos::micros(10 * step as u64));
        }
        live
    });
    let end = Nanos::micros(10 * keys.len() as u64);
    let state = format!("{} bytes, {:.1} ns per request", live.bytes(), seconds * 1e9 / keys.len() as f64);
    line("live observer, zipf(0.9)", keys.len(), seconds, &state, hash_of(&live.snapshot(end).curve));

    end_to_end(&keys, runs);
}

/// SHARDS at rate 0.001 from a file of 24-byte oracleGeneral records (time u32, object u64, size u32, next access i64) that was
/// just written, so it is read from the page cache.
fn end_to_end(keys: &[u64], runs: usize) {
    const RECORD: usize = 24;
    let path = std::env::temp_dir().join(format!("forebay-locality-bench-{}.bin", std::process::id()));
    let mut file =
        std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    let mut bytes = Vec::with_capacity(RECORD << 16);
    for chunk in keys.chunks(1 << 16) {
        bytes.clear();
        for &key in chunk {
            bytes.extend_from_slice(&0u32.to_le_bytes());
            bytes.extend_from_slice(&key.to_le_bytes());
            bytes.extend_from_slice(&4_096u32.to_le_bytes());
            bytes.extend_from_slice(&(-1i64).to_le_bytes());
        }
        file.write_all(&bytes).unwrap();
    }
    std::fs::remove_file(&path).unwrap();
    let mut buffer = vec![0; RECORD << 13];
    let mut batch = vec![0u64; 1 << 13];
    let (seconds, shards) = best(runs, || {
        let mut shards = FixedRate::new(0.001, 0);
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut filled = 0;
        loop {
            let count = file.read(&mut buffer[filled..]).unwrap();
            if count == 0 {
                break shards;
            }
            filled += count;
            let records = filled / RECORD;
            for (key, record) in batch.iter_mut().zip(buffer[..records * RECORD].chunks_exact(RECORD)) {
                *key = u64::from_le_bytes(record[4..12].try_into().unwrap());
            }
            shards.access_batch(&batch[..records]);
            buffer.copy_within(records * RECORD..filled, 0);
            filled -= records * RECORD;
        }
    });
    let state = format!("{} bytes", shards.bytes());
    line("shards 0.001, from a cached file", keys.len(), seconds, &state, hash_of(&shards.curve()));
    let (seconds, shards) = best(runs, || {
        let mut shards = FixedRate::new(0.001, 0);
        keys.chunks(1 << 13).for_each(|chunk| shards.access_batch(chunk));
        shards
    });
    line("shards 0.001, from memory", keys.len(), seconds, &state, hash_of(&shards.curve()));
}
