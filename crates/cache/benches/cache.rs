//! What a look-up costs, how much memory a block needs, and how long the slowest step of an 8 GiB change takes.
//!
//! `cargo bench -p forebay-cache --bench cache` runs 20 M Zipf(0.9) references over 4 M blocks in a cache of 400,000 blocks, and
//! an 8 GiB change of the quota (less where less memory is available). `-- --smoke` runs a hundredth of both, so that the
//! suite can; `-- --simulate` ends after the simulations of LRU and S3-FIFO, `-- --no-quota` before the change of the
//! quota. Lines of look-ups end with a hash of the results: the same seed must give the same hash on every machine.

use forebay_cache::{Access, CachePartition, Inserted, Insertion, Partition, Progress, Simulation};
use forebay_policy::{Belady, Fifo, Future, Lru, Policy, PolicyKind, S3Fifo, TwoPool};
use forebay_units::{BlockIndex, BlockSize, mix64};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::time::{Duration, Instant};

const SEED: u64 = 42;

/// Zipf by rejection and inversion (Hörmann and Derflinger, ACM TOMACS 6(3), 1996); exponent not 1.
struct Zipf {
    items: f64,
    exponent: f64,
    low: f64,
    high: f64,
    shift: f64,
}

impl Zipf {
    fn new(items: u64, exponent: f64) -> Zipf {
        let mut zipf = Zipf { items: items as f64, exponent, low: 0.0, high: 0.0, shift: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(items as f64 + 0.5);
        zipf.shift = 2.0 - zipf.inverse(zipf.integral(2.5) - 2f64.powf(-exponent));
        zipf
    }

    fn integral(&self, x: f64) -> f64 {
        (x.powf(1.0 - self.exponent) - 1.0) / (1.0 - self.exponent)
    }

    fn inverse(&self, y: f64) -> f64 {
        (1.0 + y * (1.0 - self.exponent)).powf(1.0 / (1.0 - self.exponent))
    }

    /// A rank from 1.
    fn sample(&self, random: &mut impl Rng) -> u64 {
        loop {
            let y = self.high + random.random::<f64>() * (self.low - self.high);
            let x = self.inverse(y);
            let rank = (x + 0.5).floor().clamp(1.0, self.items);
            if rank - x <= self.shift || y >= self.integral(rank + 0.5) - rank.powf(-self.exponent) {
                return rank as u64;
            }
        }
    }
}

/// References over `blocks` blocks, the ranks scattered over the volume.
fn references(count: usize, blocks: u64) -> Vec<u32> {
    let zipf = Zipf::new(blocks, 0.9);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    // A bijection over the power of two above, walked until it lands within the volume.
    let mask = blocks.next_power_of_two() - 1;
    let scatter = |rank: u64| {
        let mut at = rank - 1;
        loop {
            at = at.wrapping_mul(0x9e37_79b1) & mask;
            at ^= at >> 11;
            if at < blocks {
                return at as u32;
            }
        }
    };
    (0..count).map(|_| scatter(zipf.sample(&mut random))).collect()
}

fn look_ups<P: Policy>(policy: P, references: &[u32], slots: u64) {
    let name = policy.name();
    let mut partition = Partition::new(policy, slots, SEED);
    let mut hash = 0u64;
    let (start, processor) = (Instant::now(), processor_time());
    for block in references {
        let block = BlockIndex(u64::from(*block));
        if partition.lookup(block).is_none()
            && let Inserted::New { evicted: Some(left), .. } = partition.insert(block, Insertion::Miss)
        {
            hash = (hash ^ left.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
    let (elapsed, processor) = (start.elapsed(), processor_time() - processor);
    let statistics = partition.statistics();
    println!(
        "look-ups  {name:<9} {:6.2} M requests/s ({:6.2} M per processor second)  {:5.1} ns each  miss ratio {:.4}  {:.1} bytes per block, {:.1} MB  hash {:016x}",
        references.len() as f64 / elapsed.as_secs_f64() / 1e6,
        references.len() as f64 / processor.as_secs_f64() / 1e6,
        elapsed.as_secs_f64() * 1e9 / references.len() as f64,
        statistics.misses as f64 / references.len() as f64,
        partition.footprint_bytes() as f64 / f64::from(partition.resident_blocks()),
        partition.footprint_bytes() as f64 / 1e6,
        mix64(hash ^ statistics.misses),
    );
}

/// What the simulator does with the same references: it knows them in advance and so has their memory fetched together.
fn simulate<P: Policy>(policy: P, references: &[u32], slots: u64) {
    let name = policy.name();
    let mut simulation = Simulation::new(policy, slots, SEED);
    let mut batch = Vec::with_capacity(4096);
    let (start, processor) = (Instant::now(), processor_time());
    for references in references.chunks(4096) {
        batch.clear();
        batch.extend(references.iter().map(|block| Access { block: *block, bytes: 4096 }));
        simulation.feed(&batch);
    }
    let (elapsed, processor) = (start.elapsed(), processor_time() - processor);
    let (outcome, footprint) = (simulation.outcome(), simulation.partition().footprint_bytes());
    println!(
        "simulate  {name:<11} {:6.2} M requests/s ({:6.2} M per processor second)  miss ratio {:.4}  {:5.1} bytes per block, {:5.1} MB  hash {:016x}",
        references.len() as f64 / elapsed.as_secs_f64() / 1e6,
        references.len() as f64 / processor.as_secs_f64() / 1e6,
        outcome.miss_ratio(),
        footprint as f64 / slots as f64,
        footprint as f64 / 1e6,
        mix64(mix64(outcome.misses) ^ outcome.missed_bytes),
    );
}

fn single_operations<P: Policy>(policy: P, slots: u64) {
    let name = policy.name();
    let mut partition = Partition::new(policy, slots, SEED);
    let each = |elapsed: Duration| elapsed.as_secs_f64() * 1e9 / slots as f64;
    let scattered = |at: u64| BlockIndex(mix64(at) >> 12);
    let start = Instant::now();
    let mut grown = 0u64;
    for at in 0..slots {
        grown += u64::from(matches!(partition.insert(scattered(at), Insertion::Miss), Inserted::New { .. }));
    }
    let insert_growing = each(start.elapsed());
    let start = Instant::now();
    // A stride through the slots that is prime to their number, so that no two neighbours share a line.
    let hits = (0..slots).filter(|at| partition.lookup(scattered(at * 7919 % slots)).is_some()).count();
    let hit = each(start.elapsed());
    let start = Instant::now();
    let misses = (slots..2 * slots).filter(|at| partition.lookup(scattered(*at)).is_none()).count();
    let miss = each(start.elapsed());
    let start = Instant::now();
    let mut replaced = 0u64;
    for at in 2 * slots..3 * slots {
        let inserted = partition.insert(scattered(at), Insertion::Miss);
        replaced += u64::from(matches!(inserted, Inserted::New { evicted: Some(_), .. }));
    }
    let insert_evicting = each(start.elapsed());
    println!(
        "single    {name:<9} hit {hit:5.1} ns  miss {miss:5.1} ns  insert growing {insert_growing:5.1} ns, evicting \
         {insert_evicting:5.1} ns  hash {:016x}",
        mix64(mix64(mix64(hits as u64) ^ misses as u64) ^ grown << 32 ^ replaced),
    );
}

/// How long each call took, until one was the last: on the wall, and of this thread's processor time. On a machine that is shared
/// the wall also shows when others ran.
struct Slowest {
    calls: Vec<Duration>,
    processor: Duration,
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Slowest {
    fn of(mut call: impl FnMut() -> bool) -> Slowest {
        let mut found = Slowest { calls: Vec::new(), processor: Duration::ZERO };
        loop {
            let (start, processor) = (Instant::now(), processor_time());
            let done = call();
            found.calls.push(start.elapsed());
            found.processor = found.processor.max(processor_time() - processor);
            if done {
                return found;
            }
        }
    }

    fn print(mut self, what: &str) {
        self.calls.sort_unstable();
        let micros = |at: usize| self.calls[at].as_secs_f64() * 1e6;
        println!(
            "quota     {what:<28} {:>8} calls in {:6.3} s, p50 {:6.1} us, p99.9 {:6.1} us, slowest {:7.1} us (processor {:6.1} us)",
            self.calls.len(),
            self.calls.iter().sum::<Duration>().as_secs_f64(),
            micros(self.calls.len() / 2),
            micros(self.calls.len() * 999 / 1000),
            micros(self.calls.len() - 1),
            self.processor.as_secs_f64() * 1e6,
        );
    }
}

/// Fills a partition, halves its quota with clients reading on, and takes it away; every call is timed.
fn quota_change(blocks: u64) {
    let mut cache = CachePartition::new(TwoPool::default(), BlockSize::DEFAULT, blocks, SEED);
    let data = vec![7u8; 4096];
    let mut next = 0;
    Slowest::of(|| {
        cache.insert(BlockIndex(next), &data, Insertion::Miss);
        next += 1;
        next == blocks
    })
    .print(&format!("fill {} MiB", blocks >> 8));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let touched: Vec<_> = (0..blocks / 3).map(|_| BlockIndex(random.random_range(0..blocks))).collect();
    for block in &touched {
        cache.get(*block);
    }
    let footprint = cache.footprint_bytes() as f64 / f64::from(cache.resident_blocks());
    let mut slowest_get = Duration::ZERO;
    for (what, quota) in [("halve, 256 slots a step", blocks / 2), ("to nothing, 256 slots a step", 0)] {
        cache.set_quota(quota);
        let mut at = 0;
        Slowest::of(|| {
            cache.step(256) == Progress::Settled || {
                let start = Instant::now();
                std::hint::black_box(cache.get(touched[at % touched.len()]).is_some());
                slowest_get = slowest_get.max(start.elapsed());
                at += 1;
                false
            }
        })
        .print(what);
        if quota > 0 {
            let kept = touched.iter().filter(|block| cache.contains(**block)).count();
            println!("quota     of {} touched twice {kept} are kept in {quota} blocks", touched.len());
        }
    }
    println!(
        "quota     slowest hit in between {:.1} us, bookkeeping {footprint:.1} bytes per block, held at the end {}",
        slowest_get.as_secs_f64() * 1e6,
        cache.held_bytes()
    );
}

/// How many blocks of 4 KiB a change may have on this machine: 8 GiB, or half of the memory that Linux calls available.
fn blocks_that_fit() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available_kib = text.lines().find_map(|line| {
        line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    available_kib.map_or(1 << 18, |kib| kib / 8).min(2 << 20)
}

fn main() {
    let smoke = std::env::args().any(|argument| argument == "--smoke" || argument == "--test");
    let scale = if smoke { 100 } else { 1 };
    let (count, blocks, slots) = (20_000_000 / scale, 4_000_000 / scale as u64, 400_000 / scale as u64);
    let references = references(count, blocks);
    println!("{count} Zipf(0.9) references over {blocks} blocks, cache of {slots} blocks");
    for _ in 0..if smoke { 1 } else { 3 } {
        simulate(Lru::new(), &references, slots);
        simulate(S3Fifo::new(), &references, slots);
    }
    if std::env::args().any(|argument| argument == "--simulate") {
        return;
    }
    for _ in 0..if smoke { 1 } else { 3 } {
        look_ups(Lru::new(), &references, slots);
        look_ups(TwoPool::default(), &references, slots);
        look_ups(Fifo::new(), &references, slots);
    }
    for kind in PolicyKind::ALL {
        simulate(kind.new_policy(), &references, slots);
    }
    simulate(Belady::new(Future::of(references.iter().copied())), &references, slots);
    if std::env::args().any(|argument| argument == "--no-quota") {
        return;
    }
    drop(references);
    single_operations(Lru::new(), slots);
    single_operations(TwoPool::default(), slots);
    quota_change(blocks_that_fit() / scale as u64);
}
