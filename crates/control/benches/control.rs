//! One control step for 10,000 volumes on 100 origins and 100 hosts: calm, with a hundredth of them violating, with all of them, and with every second one cached
//! (its minimum is guaranteed, and what is ordered is full at the next step and answers a sixth of its reads) while a hundredth violate.
//! `--smoke` runs a small case. Prints the time of a step and a hash of all decisions and actions.
//!
//! `--quiet HOURS VOLUMES FIRST LAST` runs days in which every objective is kept instead, one for each seed: loads that follow the hours, windows that stray, spikes
//! of one window or two, seldom, and volumes that pause, beginning and ending within a window. It fails if anything is done.

use forebay_control::{
    Action, CacheObservation, ControlConfig, Controller, HostId, HostSpec, Objective, Observation,
    Operations, OriginId, OriginSpec, VolumeId, VolumeObservation, VolumeSpec,
};
use forebay_locality::{CurvePoint, MissRatioCurve};
use forebay_units::{BlockSize, Bytes, Nanos, mix64};
use forebay_workload::{LatencyHistogram, LatencySnapshot, exponential, random, statistics};
use std::sync::Arc;
use std::time::Instant;

fn latencies(count: u64, mean_s: f64, seed: u64) -> LatencySnapshot {
    let (mut histogram, mut random) = (LatencyHistogram::new(), random(seed));
    (0..count).for_each(|_| histogram.record(Nanos::from_secs_f64(exponential(mean_s, &mut random))));
    histogram.snapshot()
}

/// Steps of `volumes` volumes of which `violating` are too slow, and, where `cached`, every second one has a cache: (25th percentile, median, longest) in
/// milliseconds, the hash, and how many caches there are at the end.
fn run(
    volumes: u32,
    origins: u32,
    violating: u32,
    cached: bool,
    steps: u64,
) -> ((f64, f64, f64), u64, usize) {
    let specs = (0..origins).map(|id| OriginSpec {
        id: OriginId(id),
        name: format!("origin-{id}"),
        servers: Some(12.0),
        service_cv2: None,
        service: None,
    });
    let hosts =
        (0..origins).map(|id| HostSpec::new(HostId(id), format!("host-{id}"), id / 20, Bytes::mib(640)));
    let mut controller = Controller::new(
        ControlConfig::default(),
        Bytes::mib(640 * u64::from(origins)),
        hosts.collect(),
        specs.collect(),
    )
    .expect("defaults");
    for id in 0..volumes {
        let objective = Objective::mean_latency(Nanos::millis(10), Operations::All).over(Nanos::secs(10));
        controller
            .register(VolumeSpec {
                id: VolumeId(id),
                name: format!("volume-{id}"),
                size: Bytes::gib(10),
                block_size: BlockSize::DEFAULT,
                origin: OriginId(id % origins),
                host: HostId(id * 7 % origins),
                objectives: vec![objective],
                may_cache: true,
                minimum: if cached && id % 2 == 0 { Bytes::mib(1) } else { Bytes::ZERO },
                maximum: None,
            })
            .expect("a good volume");
    }
    let curve = Arc::new(MissRatioCurve::new(
        (1..=100)
            .map(|at| CurvePoint { size_blocks: at * 5_000, miss_ratio: 0.9 - 0.006 * at as f64 })
            .collect(),
    ));
    let pools: Vec<(LatencySnapshot, LatencySnapshot)> =
        (0..16).map(|seed| (latencies(300, 0.004, seed), latencies(300, 0.015, seed + 100))).collect();
    let hits: Vec<LatencySnapshot> = (0..16).map(|seed| latencies(60, 0.000_2, seed + 200)).collect();
    let mut quotas = vec![0u64; volumes as usize];
    let mut times = Vec::new();
    let mut hash = 0u64;
    for step in 1..=steps {
        let observed = (0..volumes).map(|id| {
            let pool = &pools[(mix64(u64::from(id) << 20 | step) % 16) as usize];
            let slow = (id / origins).is_multiple_of((volumes / violating.max(1)).max(1)) && violating > 0;
            let mut observed = VolumeObservation::idle(VolumeId(id), Nanos::secs(10));
            observed.misses = if slow { pool.1.clone() } else { pool.0.clone() };
            let quota = quotas[id as usize];
            if cached && quota > 0 {
                observed.hits = hits[(mix64(u64::from(id) << 20 | step) % 16) as usize].clone();
                observed.cache = CacheObservation {
                    quota_blocks: quota,
                    used_blocks: quota,
                    ..CacheObservation::default()
                };
            }
            observed.arrivals = 300;
            observed.outstanding_max = 9;
            observed.idle = Nanos::secs(5);
            observed.curve = Some(Arc::clone(&curve));
            observed.curve_accesses = 10_000;
            observed.working_set_blocks = 100_000;
            observed
        });
        let observation = Observation {
            at: Nanos::secs(10 * step),
            interval: Nanos::secs(10),
            volumes: observed.collect(),
            ..Observation::default()
        };
        let start = Instant::now();
        let outcome = controller.step(&observation);
        times.push(start.elapsed().as_secs_f64() * 1e3);
        for decision in &outcome.decisions {
            hash = mix64(hash ^ u64::from(decision.volume.0) ^ (decision.kind as u64) << 32);
        }
        for action in &outcome.actions {
            if let Action::SetQuota { volume, blocks, .. } = action {
                hash = mix64(hash ^ u64::from(volume.0) << 40 ^ blocks);
                quotas[volume.0 as usize] = *blocks;
            }
        }
    }
    let of = |percentile| statistics::percentile(&times, percentile).expect("steps");
    let longest = times.iter().copied().fold(0.0, f64::max);
    ((of(25.0), of(50.0), longest), hash, quotas.iter().filter(|blocks| **blocks > 0).count())
}

/// How much of a window a volume does nothing.
enum Pause {
    None,
    Half,
    Whole,
}

/// One volume in four stops once in four hours, from a few windows to an hour.
fn pauses(seed: u64, id: u32, step: u64) -> Pause {
    const ROUND: u64 = 4 * 360;
    if !mix64(seed ^ u64::from(id)).is_multiple_of(4) {
        return Pause::None;
    }
    let chance = mix64(seed << 52 ^ u64::from(id) << 32 ^ (step / ROUND) ^ 1 << 50);
    let from = chance % (ROUND - 362);
    let until = from + 2 + (chance >> 32) % 360;
    match step % ROUND {
        at if at == from || at == until => Pause::Half,
        at if (from..until).contains(&at) => Pause::Whole,
        _ => Pause::None,
    }
}

/// A day of volumes that keep their objectives; (actions, decisions).
fn quiet(hours: u64, volumes: u32, seed: u64) -> (usize, usize) {
    let origins = volumes.div_ceil(100);
    let specs = (0..origins).map(|id| OriginSpec {
        id: OriginId(id),
        name: format!("origin-{id}"),
        servers: None,
        service_cv2: None,
        service: None,
    });
    let mut controller =
        Controller::new(ControlConfig::default(), Bytes::gib(64), Vec::new(), specs.collect())
            .expect("defaults");
    for id in 0..volumes {
        let objective = match id % 2 {
            0 => Objective::mean_latency(Nanos::millis(10), Operations::All),
            _ => Objective::iops_floor(20.0),
        };
        controller
            .register(VolumeSpec {
                id: VolumeId(id),
                name: format!("volume-{id}"),
                size: Bytes::gib(10),
                block_size: BlockSize::DEFAULT,
                origin: OriginId(id % origins),
                host: HostId(0),
                objectives: vec![objective.over(Nanos::secs(10))],
                may_cache: true,
                minimum: Bytes::ZERO,
                maximum: None,
            })
            .expect("a good volume");
    }
    let curve = Arc::new(MissRatioCurve::new(
        (1..=50)
            .map(|at| CurvePoint { size_blocks: at * 2_000, miss_ratio: 1.0 - 0.015 * at as f64 })
            .collect(),
    ));
    // By load: 30 to 480 requests/s, with latencies that rise with it to 8 ms and stray.
    let pool: Vec<Vec<LatencySnapshot>> = (0..16)
        .map(|load| {
            let mean_s = 0.003 + 0.005 * load as f64 / 15.0;
            (0..8).map(|draw| latencies(300 * (load + 1), mean_s, seed << 16 | load << 8 | draw)).collect()
        })
        .collect();
    let spike: Vec<LatencySnapshot> =
        (0..8).map(|draw| latencies(900, 0.030, seed << 16 | 1 << 15 | draw)).collect();
    // Less than the floor of rates, since no more is asked for.
    let half: Vec<LatencySnapshot> =
        (0..8).map(|draw| latencies(120, 0.004, seed << 16 | 1 << 14 | draw)).collect();
    let (mut actions, mut decisions) = (0, 0);
    for step in 1..=hours * 360 {
        let observed = (0..volumes).map(|id| {
            let chance = mix64(seed << 52 ^ u64::from(id) << 32 ^ step);
            // Higher by day than by night, each volume at its own hour.
            let hour = (step as f64 / 360.0 + f64::from(id % 24)) / 24.0;
            let level = 7.5 + 6.0 * (std::f64::consts::TAU * hour).sin() + (chance % 3) as f64 - 1.0;
            let load = (level.round().max(0.0) as usize).min(15);
            // At most two windows in twenty-four; latency floors of rates stray likewise.
            let strays = mix64(seed << 52 ^ u64::from(id) << 32 ^ (step / 24) ^ 1 << 51).is_multiple_of(10)
                && step % 24 < 2;
            let mut observed = VolumeObservation::idle(VolumeId(id), Nanos::secs(10));
            let draw = (chance >> 8) as usize % 8;
            observed.misses = if strays { spike[draw].clone() } else { pool[load][draw].clone() };
            observed.outstanding_max = 9;
            observed.idle = Nanos::secs(3);
            match pauses(seed, id, step) {
                Pause::None => {}
                Pause::Half => {
                    observed.misses = half[draw].clone();
                    observed.idle = Nanos::secs(7);
                }
                Pause::Whole => {
                    observed.misses = LatencySnapshot::default();
                    observed.outstanding_max = 0;
                    observed.idle = Nanos::secs(10);
                }
            }
            observed.arrivals = observed.misses.count();
            observed.curve = Some(Arc::clone(&curve));
            observed.curve_accesses = 10_000;
            observed.working_set_blocks = 100_000;
            observed
        });
        let outcome = controller.step(&Observation {
            at: Nanos::secs(10 * step),
            interval: Nanos::secs(10),
            volumes: observed.collect(),
            ..Observation::default()
        });
        actions += outcome.actions.len();
        decisions += outcome.decisions.len();
    }
    (actions, decisions)
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--quiet") {
        let number = |after: usize| arguments.get(at + after).and_then(|text| text.parse::<u64>().ok());
        let [hours, volumes, first, last] = [1, 2, 3, 4].map(|after| number(after).expect("a number"));
        for seed in first..=last {
            let began = Instant::now();
            let (actions, decisions) = quiet(hours, volumes as u32, seed);
            println!(
                "quiet, seed {seed}: {hours} h of {volumes} volumes, {actions} actions, {decisions} decisions, {:.1} s",
                began.elapsed().as_secs_f64()
            );
            assert_eq!(actions, 0, "seed {seed}: something was done where every objective is kept");
        }
        return;
    }
    let smoke = std::env::args().any(|argument| argument == "--smoke" || argument == "--test");
    let (volumes, origins, steps) = if smoke { (200, 10, 12) } else { (10_000, 100, 80) };
    if smoke {
        let (actions, decisions) = quiet(2, 40, 1);
        assert_eq!(actions, 0, "something was done where every objective is kept");
        println!("quiet: 2 h of 40 volumes, no action, {decisions} decisions");
    }
    println!("control step, {volumes} volumes on {origins} origins, {steps} steps");
    let cases = [
        ("calm", 0, false),
        ("1 % violating", volumes / 100, false),
        ("all violating", volumes, false),
        ("half cached", volumes / 100, true),
    ];
    for (name, violating, cached) in cases {
        let ((quarter, median, longest), hash, caches) = run(volumes, origins, violating, cached, steps);
        println!(
            "{name:>14}: p25 {quarter:.2} ms, median {median:.2} ms, longest {longest:.2} ms, {caches} caches, hash {hash:016x}"
        );
    }
}
