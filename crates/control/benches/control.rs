//! One control step for 10,000 volumes on 100 origins and 100 hosts: calm, with a hundredth of them violating, and with all of them.
//! `--smoke` runs a small case. Prints the time of a step and a hash of all decisions and actions.

use forebay_control::{
    Action, ControlConfig, Controller, HostId, HostSpec, Objective, Observation, Operations, OriginId,
    OriginSpec, VolumeId, VolumeObservation, VolumeSpec,
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

/// Steps of `volumes` volumes of which `violating` are too slow: (25th percentile, median, longest) in milliseconds, and the hash.
fn run(volumes: u32, origins: u32, violating: u32, steps: u64) -> (f64, f64, f64, u64) {
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
                minimum: Bytes::ZERO,
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
    let mut times = Vec::new();
    let mut hash = 0u64;
    for step in 1..=steps {
        let observed = (0..volumes).map(|id| {
            let pool = &pools[(mix64(u64::from(id) << 20 | step) % 16) as usize];
            let slow = (id / origins).is_multiple_of((volumes / violating.max(1)).max(1)) && violating > 0;
            let mut observed = VolumeObservation::idle(VolumeId(id), Nanos::secs(10));
            observed.misses = if slow { pool.1.clone() } else { pool.0.clone() };
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
            }
        }
    }
    let of = |percentile| statistics::percentile(&times, percentile).expect("steps");
    (of(25.0), of(50.0), times.iter().copied().fold(0.0, f64::max), hash)
}

fn main() {
    let smoke = std::env::args().any(|argument| argument == "--smoke" || argument == "--test");
    let (volumes, origins, steps) = if smoke { (200, 10, 12) } else { (10_000, 100, 80) };
    println!("control step, {volumes} volumes on {origins} origins, {steps} steps");
    for (name, violating) in [("calm", 0), ("1 % violating", volumes / 100), ("all violating", volumes)] {
        let (quarter, median, longest, hash) = run(volumes, origins, violating, steps);
        println!(
            "{name:>14}: p25 {quarter:.2} ms, median {median:.2} ms, longest {longest:.2} ms, hash {hash:016x}"
        );
    }
}
