//! The plan held against the simulator: its traces, played at devices like its origins through caches of the sizes that it planned; and the
//! smallest caches with which that goes well.

use super::devices::{Devices, fill_disks};
use super::recording::Recording;
use crate::failure::Failure;
use crate::output::{count, say};
use forebay_control::plan::{Plan, PlanInput, PlanVolume};
use forebay_sim::scenario::{
    ArrivalKind, CacheTable, LoadTable, ObjectiveTable, OriginKind, Scenario, Sizing, VolumeTable,
};
use forebay_sim::{Outcome, RunError, SizeRange, Traces, VolumeSeries, least_sizes, with_caches};
use forebay_units::{Bytes, Nanos, with_causes};
use serde::Serialize;

/// What the simulator says.
#[derive(Debug, Serialize)]
pub(super) struct Simulated {
    /// What chose everything random.
    pub(super) seed: u64,
    /// Virtual time of a run, in seconds: whole windows.
    pub(super) seconds: f64,
    /// Requests of all volumes that a run plays.
    pub(super) requests: u64,
    /// Runs that were needed.
    pub(super) runs: u32,
    /// One per volume, in the order of the plan.
    pub(super) volumes: Vec<SimulatedVolume>,
    /// The smallest caches in sum.
    pub(super) total_bytes: u64,
    /// What it rests on, in sentences.
    pub(super) basis: Vec<String>,
}

/// A volume in the simulator.
#[derive(Debug, Serialize)]
pub(super) struct SimulatedVolume {
    pub(super) volume: String,
    /// The cache that the plan chose: within the budget where there is one.
    pub(super) planned_bytes: u64,
    /// The smallest that was found.
    pub(super) smallest_bytes: u64,
    pub(super) objectives: Vec<SimulatedObjective>,
}

/// An objective in the simulator.
#[derive(Debug, Serialize)]
pub(super) struct SimulatedObjective {
    /// In words, without the plan's margin.
    pub(super) objective: String,
    /// Share of the windows that must conform.
    pub(super) conforming_share_wanted: f64,
    /// With the planned caches.
    pub(super) with_planned: Kept,
    /// With the smallest.
    pub(super) with_smallest: Kept,
}

/// How an objective fares in a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Kept {
    /// Whether it is kept; what was never asked for is.
    pub(super) met: bool,
    /// Share of the windows with enough load that conform; absent where no window has enough.
    pub(super) conforming_share: Option<f64>,
}

/// Plays the plan; windows before number `first_window` are not judged. Cost: see [`least_sizes`]; the requests are held in memory, 24 bytes
/// each.
///
/// # Errors
/// A scenario that the simulator refuses, as with an objective below a hit.
pub(super) fn simulate(
    input: &PlanInput,
    plan: &Plan,
    devices: Devices,
    recordings: Vec<Recording>,
    first_window: u64,
    seed: u64,
) -> Result<Simulated, Failure> {
    let failed = |error: RunError| Failure::new(with_causes(&error));
    let window = input.volumes.iter().map(|volume| volume.load.window).max().unwrap_or(Nanos::secs(10));
    // As many windows as the plan judges, the last one too where it is filled to half or more.
    let windows = input.volumes.iter().map(|volume| volume.load.windows.len() as u64).max().unwrap_or(1);
    let duration = Nanos((first_window + windows) * window.0);
    // Windows are whole control intervals, of an hour at most.
    let interval = Nanos(window.0 / window.0.div_ceil(Nanos::secs(3_600).0));
    let (mut requests, mut left_out) = (0, 0);
    let mut traces = Traces::new();
    let mut volumes = Vec::new();
    for (at, (volume, recording)) in input.volumes.iter().zip(recordings).enumerate() {
        let block = volume.block_size.bytes();
        volumes.push(VolumeTable {
            name: volume.name.clone(),
            origin: Some(volume.origin.clone()),
            appliance: None,
            size: Bytes(recording.size.get().max(1).div_ceil(block) * block),
            block_size: Some(Bytes(block)),
            cache: None,
            may_cache: volume.may_cache,
            minimum: Bytes::ZERO,
            maximum: None,
            tier: None,
            load: vec![LoadTable {
                arrivals: ArrivalKind::Trace,
                trace: Some(volume.name.clone()),
                ..LoadTable::idle()
            }],
        });
        let played = recording.requests.iter().filter(|request| request.at <= duration).count() as u64;
        requests += played;
        left_out += recording.requests.len() as u64 - played;
        traces.insert((at, 0), recording.requests.into());
    }
    let Devices { mut origins, deviations } = devices;
    fill_disks(&mut origins, &volumes);
    let promised = |volume: &PlanVolume| {
        let tightened = volume.objectives.iter().map(|objective| objective.tightened(input.margin));
        tightened.map(|objective| ObjectiveTable::of(&volume.name, &objective)).collect::<Vec<_>>()
    };
    let scenario = Scenario {
        name: "plan".to_owned(),
        about: String::new(),
        duration,
        seed,
        measure_from: Nanos(first_window * window.0),
        cache: CacheTable {
            hit_latency: input.cache.flash.map_or(input.cache.memory_latency, |flash| flash.latency),
            sizing: Sizing::Fixed,
            interval,
            ..CacheTable::default()
        },
        observe: Default::default(),
        control: Default::default(),
        eafc: Default::default(),
        tier: None,
        origin: origins,
        appliance: Vec::new(),
        objective: input.volumes.iter().flat_map(promised).collect(),
        volume: volumes,
        reservation: Vec::new(),
        expected: Vec::new(),
    };
    scenario.check().map_err(|error| Failure::new(with_causes(&error)))?;
    say(format_args!(
        "simulating: some 10 to 20 runs of {} requests over {duration} each, more where volumes share an origin",
        count(requests)
    ));
    let chosen = plan.within_budget.as_ref().unwrap_or(&plan.recommendation);
    let planned: Vec<Bytes> = chosen.caches.iter().map(|cache| Bytes(cache.bytes)).collect();
    let with_planned = with_caches(&scenario, &traces, seed, &planned).map_err(failed)?;
    let ranges: Vec<SizeRange> = input
        .volumes
        .iter()
        .zip(&plan.recommendation.caches)
        .map(|(volume, recommended)| {
            let block = volume.block_size.bytes();
            let whole = |bytes: u64, unit: u64| bytes.div_ceil(unit).saturating_mul(unit);
            let least = whole(volume.minimum.get(), block);
            let beyond = if volume.may_cache { volume.footprint.get().saturating_sub(least) } else { 0 };
            let most = least.saturating_add(whole(beyond, input.chunk.get()));
            let guess = recommended.bytes.clamp(least, most);
            SizeRange { least: Bytes(least), guess: Bytes(guess), most: Bytes(most) }
        })
        .collect();
    let found = least_sizes(&scenario, &traces, seed, &ranges, input.chunk).map_err(failed)?;
    Ok(Simulated {
        seed,
        seconds: duration.as_secs_f64(),
        requests,
        runs: found.runs + 1,
        volumes: volumes_of(input, &planned, &with_planned, &found.caches, &found.outcome),
        total_bytes: found.caches.iter().map(|cache| cache.get()).sum(),
        basis: basis(&scenario, input, deviations, left_out),
    })
}

fn volumes_of(
    input: &PlanInput,
    planned: &[Bytes],
    with_planned: &Outcome,
    smallest: &[Bytes],
    with_smallest: &Outcome,
) -> Vec<SimulatedVolume> {
    let kept = |series: &VolumeSeries, number: usize| {
        let outcome = &series.objectives[number];
        Kept { met: outcome.met != Some(false), conforming_share: outcome.conforming_share }
    };
    let of_volume = |at: usize| {
        let volume = &input.volumes[at];
        let objectives = volume.objectives.iter().enumerate().map(|(number, objective)| SimulatedObjective {
            objective: objective.to_string(),
            conforming_share_wanted: objective.conforming_share,
            with_planned: kept(&with_planned.volumes[at], number),
            with_smallest: kept(&with_smallest.volumes[at], number),
        });
        SimulatedVolume {
            volume: volume.name.clone(),
            planned_bytes: planned[at].get(),
            smallest_bytes: smallest[at].get(),
            objectives: objectives.collect(),
        }
    };
    (0..input.volumes.len()).map(of_volume).collect()
}

fn basis(scenario: &Scenario, input: &PlanInput, deviations: Vec<String>, left_out: u64) -> Vec<String> {
    let mut basis = vec![
        "By simulation: the requests of the traces at the times that they have, caches with the daemon's policy that begin empty and never \
         change their size. Other days have other requests."
            .to_owned(),
    ];
    for origin in &scenario.origin {
        let name = &origin.name;
        basis.push(match (origin.kind, origin.spindles, origin.disk_capacity) {
            (OriginKind::Disks, Some(spindles), Some(capacity)) => format!(
                "{name} is simulated as {spindles} disks of {capacity} with a typical on-board cache, which its volumes fill: on larger ones seeks would be \
                 shorter."
            ),
            _ => format!(
                "{name} is simulated as {} servers with a queue each, to which 64 KiB at a time belong; sequential requests take as long as others.",
                origin.servers.unwrap_or(1)
            ),
        });
    }
    basis.extend(deviations);
    if left_out > 0 {
        basis.push(format!(
            "{} requests at the end are not played: they fill less than half a window, which is not judged.",
            count(left_out)
        ));
    }
    if input.cache.flash.is_some() {
        basis.push("Every hit takes as long as one in flash there.".to_owned());
    }
    if input.margin > 0.0 {
        basis.push(format!(
            "The margin of {:.0} % below each bound is kept there, too.",
            input.margin * 100.0
        ));
    }
    basis
}
