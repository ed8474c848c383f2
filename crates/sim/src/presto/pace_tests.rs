//! What the clients of a volume feel while the cache of another on the same disks is loaded at the daemon's pace, on virtual time. The daemon's own
//! counterpart, in real time, is `cargo run -p forebay-serve --example foreground`.

use forebay_control::prewarm::{Pace, TICK_MS};
use forebay_devmodel::{
    DiskCompletion, DiskGroup, DiskGroupParameters, DiskParameters, DiskRequest, DiskRequestId,
    DiskRequestKind,
};
use forebay_units::{ByteRange, Nanos, mix64};
use forebay_workload::{LatencyHistogram, exponential, random};

const VOLUME: u64 = 512 << 20;
/// Of each 128 KiB of the loaded volume the first half is loaded.
const STRIDE: u64 = 128 << 10;
const READ: u64 = STRIDE / 2;
const OUTSTANDING_MAX: usize = 4;
/// Numbers of requests that load begin here.
const LOADS: u64 = 1 << 60;

/// What a window came to.
struct Felt {
    latencies: LatencyHistogram,
    loaded_bytes: u64,
    utilisation: f64,
}

/// Reads of 4 KiB at random places, `rate` per second, for `seconds`; a cache is loaded meanwhile if there is a rate to `start` with.
fn window(rate: f64, seconds: u64, start: Option<u64>, seed: u64) -> Felt {
    let disk = DiskParameters::rpm_15000(1 << 30);
    let mut group = DiskGroup::new(DiskGroupParameters::striped(4, disk)).unwrap();
    let idle = group.observe(Nanos::ZERO);
    let mut random = random(seed);
    let mut pace = start.map(|start| Pace::new(start, 512 << 20));
    let mut latencies = LatencyHistogram::new();
    let (mut arrived, mut next_load, mut outstanding, mut load) = (Vec::<Nanos>::new(), Nanos::ZERO, 0, 0);
    let mut due = Nanos::ZERO;
    let mut tick = Nanos::millis(TICK_MS);
    let (mut waits, mut waited_ns, mut loaded_bytes) = (0, 0, 0);
    let mut done: Vec<DiskCompletion> = Vec::new();
    let end = Nanos::secs(seconds);
    loop {
        let rate_now = pace.as_ref().map_or(0, Pace::bytes_per_second);
        let may_load = rate_now > 0 && outstanding < OUTSTANDING_MAX;
        let events = [Some(due), Some(tick), group.next_event(), may_load.then_some(next_load)];
        let now = events.into_iter().flatten().min().unwrap();
        if now >= end {
            let seen = group.observe(now);
            let utilisation = seen.utilisation_since(&idle);
            return Felt { latencies, loaded_bytes, utilisation };
        }
        group.advance(now, &mut done);
        for completion in done.drain(..) {
            if completion.id.0 >= LOADS {
                outstanding -= 1;
                loaded_bytes += READ;
            } else {
                let latency = completion.at.saturating_since(arrived[completion.id.0 as usize]);
                latencies.record(latency);
                waits += 1;
                waited_ns += latency.0;
            }
        }
        if now == tick {
            tick = tick.saturating_add(Nanos::millis(TICK_MS));
            if let Some(pace) = &mut pace {
                pace.tick(waits, waited_ns);
                let pause = Nanos(READ * 1_000_000_000 / pace.bytes_per_second().max(1));
                next_load = next_load.min(now.saturating_add(pause));
            }
            (waits, waited_ns) = (0, 0);
        }
        let mut read = |id, offset, length| {
            let range = ByteRange::new(offset, length);
            group
                .submit(now, DiskRequest { id: DiskRequestId(id), kind: DiskRequestKind::Read, range })
                .unwrap();
        };
        if now == due {
            let number = arrived.len() as u64;
            arrived.push(now);
            read(number, mix64(number ^ seed << 32) % (VOLUME / 4096) * 4096, 4096);
            due = due.saturating_add(Nanos((exponential(1e9 / rate, &mut random)) as u64));
        }
        if may_load && now >= next_load {
            read(LOADS + load, VOLUME + load * STRIDE % VOLUME, READ);
            load += 1;
            outstanding += 1;
            next_load = next_load.max(now).saturating_add(Nanos(READ * 1_000_000_000 / rate_now));
        }
    }
}

#[test]
fn who_shares_the_disks_hardly_feels_that_a_cache_is_loaded() {
    // The disks are 60 % busy without. 4 MiB/s is where the daemon begins with a volume of this kind.
    let (rate, start) = (740.0, 4 << 20);
    for (seconds, most) in [(12, 1.2), (60, 1.15)] {
        let (mut with, mut without) = (LatencyHistogram::new(), LatencyHistogram::new());
        let (mut loaded_bytes, mut utilisation) = (0, 0.0);
        for seed in 20..36 {
            let felt = window(rate, seconds, Some(start), seed);
            with.merge(&felt.latencies);
            loaded_bytes += felt.loaded_bytes;
            let alone = window(rate, seconds, None, seed);
            without.merge(&alone.latencies);
            utilisation += alone.utilisation / 16.0;
        }
        assert!((0.57..0.63).contains(&utilisation), "{utilisation}");
        let p99 = |latencies: &LatencyHistogram| latencies.percentile(99.0).unwrap().as_millis_f64();
        let ratio = p99(&with) / p99(&without);
        let loaded = loaded_bytes as f64 / f64::from(1 << 20) / 16.0 / seconds as f64;
        println!("{seconds} s: p99 {ratio:.3} times as long, {loaded:.2} MiB/s");
        assert!(ratio < most, "{ratio} in {seconds} s");
        assert!(loaded > 1.0, "{loaded} MiB/s in {seconds} s");
    }
}
