//! The controller: one step per control interval, a state machine per volume, every decision kept with its inputs.
//!
//! A step takes the observation in, judges, corrects what was granted, answers sustained violations with caches,
//! takes back what is superfluous, and lets the master cut everything to the capacity. Invariant, asserted on every
//! step: the quotas ordered never exceed the capacity. State per volume is bounded by the configuration.

mod adopting;
mod analysing;
mod contention;
mod correcting;
mod flooding;
mod foreseeing;
mod grant;
mod interfering;
mod judging;
mod loading;
mod master;
mod ordering;
mod parting;
mod party;
mod past;
mod placing;
mod removing;
mod resizing;
mod sample;
mod scene;
mod scenes;
mod spare;
mod status;
mod track;
mod unhelped;
mod volume;

pub use interfering::OriginInterference;
pub use past::{Past, RecallError};
pub use status::{ObjectiveStatus, VolumeStatus};
pub use volume::VolumeState;

use crate::config::{ConfigError, ControlConfig};
use crate::decision::{Decision, DecisionKind, Fact, StepOutcome};
use crate::inventory::{HostId, HostSpec, OriginId, OriginSpec, VolumeId, VolumeSpec, VolumeSpecError};
use crate::observation::{HostObservation, Observation, VolumeObservation};
use forebay_units::{Bytes, Nanos};
use past::Awaited;
use placing::HostUse;
use scenes::Scenes;
use std::collections::{BTreeMap, VecDeque};
use volume::Volume;

/// Decides; see the module's page.
#[derive(Clone, Debug)]
pub struct Controller {
    config: ControlConfig,
    capacity: Bytes,
    hosts: Vec<HostSpec>,
    /// By host: what it said that it can still give, and what was granted on it by then.
    hosts_said: BTreeMap<HostId, (HostObservation, HostUse)>,
    origins: BTreeMap<OriginId, OriginSpec>,
    /// By origin: the servers fitted, and at which step.
    fits: BTreeMap<OriginId, (u64, Option<f64>)>,
    volumes: BTreeMap<VolumeId, Volume>,
    /// By origin: how busy it said it was in the last intervals, the newest last; at most `recent_intervals`.
    busy: BTreeMap<OriginId, VecDeque<f64>>,
    /// By origin: the service time last seen, in seconds.
    services: BTreeMap<OriginId, f64>,
    step: u64,
    /// The length of the last interval, in seconds.
    interval_s: f64,
    /// When the last interval ended, and how often they do.
    last: Option<(Nanos, Nanos)>,
    /// The past of volumes that are not registered, and that were or are to be.
    awaited: BTreeMap<VolumeId, Awaited>,
}

/// A change of a quota that a step wants.
struct Change {
    blocks: u64,
    kind: DecisionKind,
    summary: String,
    facts: Vec<Fact>,
    /// By how much the model says that the level of the windows changes.
    ratio: Option<f64>,
    /// The size that this is a step towards; at most `blocks` where it is none.
    wanted: u64,
    /// What is to be kept of it once what waited at the origin is worked off.
    kept_after: Option<u64>,
    /// Whose objectives it is for, beside those that the partition serves already.
    serves: Vec<VolumeId>,
    /// It is of memory that nobody wants.
    is_spare: bool,
}

impl Change {
    /// A change that is the whole of what is wanted, for those that the partition serves already.
    fn new(blocks: u64, kind: DecisionKind, summary: String, facts: Vec<Fact>) -> Change {
        Change {
            blocks,
            kind,
            summary,
            facts,
            ratio: None,
            wanted: 0,
            kept_after: None,
            serves: Vec::new(),
            is_spare: false,
        }
    }
}

impl Controller {
    /// A controller for `capacity` bytes of cache on `hosts`. Without hosts, all cache is where each volume's host says.
    ///
    /// # Errors
    /// [`ConfigError`] for a parameter outside its range.
    pub fn new(
        config: ControlConfig,
        capacity: Bytes,
        hosts: Vec<HostSpec>,
        origins: Vec<OriginSpec>,
    ) -> Result<Controller, ConfigError> {
        config.check()?;
        let origins = origins.into_iter().map(|origin| (origin.id, origin)).collect();
        Ok(Controller {
            config,
            capacity,
            hosts,
            hosts_said: BTreeMap::new(),
            origins,
            fits: BTreeMap::new(),
            volumes: BTreeMap::new(),
            busy: BTreeMap::new(),
            services: BTreeMap::new(),
            step: 0,
            interval_s: 1.0,
            last: None,
            awaited: BTreeMap::new(),
        })
    }

    /// Adds a volume, or replaces its specification: its history stays. Of an objective that is set anew what was before counts, where its first window
    /// misses: what it asks for may have been missed for long. Those that stay keep their windows.
    ///
    /// # Errors
    /// [`VolumeSpecError`] where it cannot be judged or its minimum does not fit.
    pub fn register(&mut self, spec: VolumeSpec) -> Result<(), VolumeSpecError> {
        spec.check()?;
        // What is guaranteed already fits; ten thousand volumes are not to be added up for each that asks for nothing.
        if spec.minimum > Bytes::ZERO {
            let others = self.volumes.values().filter(|volume| volume.spec.id != spec.id);
            let others: u64 = others.map(|volume| volume.blocks_min() * volume.block_bytes()).sum();
            let guaranteed =
                Bytes(others + spec.block_size.blocks_for(spec.minimum) * spec.block_size.bytes());
            if guaranteed > self.capacity {
                return Err(VolumeSpecError::MinimumsExceedCapacity {
                    volume: spec.name,
                    guaranteed,
                    capacity: self.capacity,
                });
            }
        }
        match self.volumes.get_mut(&spec.id) {
            Some(volume) => {
                if volume.spec.objectives != spec.objectives {
                    volume.set_objectives(
                        &spec.objectives,
                        Nanos::from_secs_f64(self.interval_s),
                        &self.config,
                    );
                    // They say what another promise cost.
                    (volume.stake, volume.unhelped) = Default::default();
                }
                volume.spec = spec;
            }
            None => {
                let mut volume = Volume::new(spec);
                let awaited = self.awaited.remove(&volume.spec.id);
                if let Some(awaited) = awaited.filter(|awaited| awaited.name == volume.spec.name) {
                    (volume.past, volume.counted) = (awaited.history, awaited.since);
                }
                self.volumes.insert(volume.spec.id, volume);
            }
        }
        Ok(())
    }

    /// Says why a volume may have no cache where not its own configuration forbids one: told to people in place of that. Nothing follows from it.
    pub fn say_why_forbidden(&mut self, id: VolumeId, why: String) {
        if let Some(volume) = self.volumes.get_mut(&id) {
            volume.forbidden = Some(why);
        }
    }

    /// Forgets a volume; its quota counts as free from now on. What is remembered of its load is kept for when it is registered again.
    pub fn forget(&mut self, id: VolumeId) {
        if let Some(volume) = self.volumes.remove(&id).filter(|volume| !volume.past.is_empty()) {
            let since = volume.counted.or(self.last.map(|(at, _)| at));
            self.awaited.insert(id, Awaited { name: volume.spec.name, history: volume.past, since });
        }
        for volume in self.volumes.values_mut() {
            if let Some(grant) = &mut volume.grant {
                grant.serves.retain(|served| *served != id);
                grant.parted.retain(|served| *served != id);
            }
        }
    }

    /// All the cache there is.
    pub fn capacity(&self) -> Bytes {
        self.capacity
    }

    /// The bytes of all quotas that were ordered.
    pub fn granted(&self) -> Bytes {
        Bytes(self.volumes.values().map(|volume| volume.blocks() * volume.block_bytes()).sum())
    }

    /// One control interval. Volumes that are not registered are ignored.
    ///
    /// Cost is `O(volumes)` for those without trouble, and at most `analyses_max` analyses of an origin's volumes.
    pub fn step(&mut self, observation: &Observation) -> StepOutcome {
        self.step += 1;
        self.interval_s = observation.interval.as_secs_f64().max(1e-9);
        let every = if observation.every > Nanos::ZERO { observation.every } else { observation.interval };
        self.last = Some((observation.at, every.max(Nanos(1))));
        self.await_others(observation.at, every);
        let mut outcome = StepOutcome::default();
        let observed: BTreeMap<VolumeId, &VolumeObservation> =
            observation.volumes.iter().map(|volume| (volume.volume, volume)).collect();
        for (id, volume) in &mut self.volumes {
            if let Some(observed) = observed.get(id) {
                volume.observe(observed, observation.at, self.step, &self.config);
            } else {
                volume.tracks.iter_mut().for_each(|track| track.closed = false);
            }
        }
        self.see_unhelped();
        self.observe_origins(observation);
        self.observe_hosts(observation);
        let mut scenes = Scenes::default();
        let mut changes: BTreeMap<VolumeId, Change> = BTreeMap::new();
        let violated = self.judge(observation.at, &mut outcome);
        self.guarantee(&mut changes);
        self.correct(&mut scenes, &mut changes);
        self.foresee(observation.at, &observed, &mut scenes, &mut changes, &mut outcome);
        self.analyse(observation.at, &violated, &mut scenes, &mut changes, &mut outcome);
        self.weigh_stakes(&mut scenes);
        self.spare(observation.at, &mut scenes, &mut changes, &mut outcome);
        self.apply(observation, &observed, &mut scenes, changes, &mut outcome);
        self.reload(observation, &observed, &scenes, &mut outcome);
        self.remember(observation.at, &observed, &mut outcome);
        self.repeat(&mut outcome);
        self.settle_states();
        let (granted, capacity) = (self.granted(), self.capacity);
        assert!(granted <= capacity, "{granted} is granted of {capacity} in step {}", self.step);
        outcome
    }

    /// What windows that just ended without a cache say of it, by what arrived at the others of their origins.
    fn see_unhelped(&mut self) {
        let step = self.step;
        let arrived = |volume: &Volume| {
            let last = volume.history.back().filter(|last| last.step == step);
            last.map_or(0.0, |last| last.arrival_rate)
        };
        let mut arrivals: BTreeMap<OriginId, f64> = BTreeMap::new();
        for volume in self.volumes.values() {
            *arrivals.entry(volume.spec.origin).or_default() += arrived(volume);
        }
        for volume in self.volumes.values_mut() {
            let others = (arrivals[&volume.spec.origin] - arrived(volume)).max(0.0);
            volume.see_unhelped(others);
        }
    }

    /// Keeps how busy origins said they were; one that is silent is not known any more.
    fn observe_origins(&mut self, observation: &Observation) {
        let said: BTreeMap<OriginId, f64> =
            observation.origins.iter().filter_map(|said| Some((said.origin, said.utilisation?))).collect();
        self.busy.retain(|origin, _| said.contains_key(origin));
        for (origin, utilisation) in said {
            let kept = self.busy.entry(origin).or_default();
            if kept.len() >= self.config.recent_intervals {
                kept.pop_front();
            }
            kept.push_back(utilisation);
        }
    }

    fn decision(
        &self,
        at: Nanos,
        id: VolumeId,
        kind: DecisionKind,
        summary: String,
        facts: Vec<Fact>,
    ) -> Decision {
        Decision {
            at,
            volume: id,
            volume_name: self.volumes[&id].spec.name.clone(),
            kind,
            summary,
            facts,
            alternatives: Vec::new(),
        }
    }

    /// Guaranteed minimums are granted before anything else.
    fn guarantee(&self, changes: &mut BTreeMap<VolumeId, Change>) {
        for (id, volume) in &self.volumes {
            let minimum = volume.blocks_min();
            if volume.blocks() < minimum {
                let summary = format!("{} gets the cache that it is guaranteed", volume.spec.name);
                let facts = vec![Fact::number("minimum", minimum as f64, "blocks")];
                let change = Change::new(minimum, DecisionKind::Granted, summary, facts);
                changes.insert(*id, Change { serves: vec![*id], ..change });
            }
        }
    }
}
