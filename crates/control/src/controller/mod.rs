//! The controller: one step per control interval, a state machine per volume, every decision kept with its inputs.
//!
//! A step takes the observation in, judges, corrects what was granted, answers sustained violations with caches,
//! takes back what is superfluous, and lets the master cut everything to the capacity. Invariant, asserted on every
//! step: the quotas ordered never exceed the capacity. State per volume is bounded by the configuration.

mod master;
mod scene;
mod volume;

pub use volume::VolumeState;

use crate::cacheability::{self, Character, NotCacheable};
use crate::config::{ConfigError, ControlConfig};
use crate::conformance::Judgement;
use crate::decision::{Action, Alternative, Decision, DecisionKind, Fact, StepOutcome};
use crate::feedback::{Correction, FeedbackInput, HoldReason, Phase, correct, fill_intervals};
use crate::host;
use crate::interference::{Interference, interference};
use crate::inventory::{HostId, HostSpec, OriginId, OriginSpec, VolumeId, VolumeSpec, VolumeSpecError};
use crate::objective::Objective;
use crate::observation::{Observation, VolumeObservation};
use crate::removal::RemovalInput;
use crate::sizing::{candidates, smallest, useful_max};
use crate::solutions::{Solution, Tenant, rank};
use crate::violation::Assessment;
use crate::warmup::{self, Warmup, WarmupInput};
use forebay_units::{Bytes, Nanos};
use master::Want;
use scene::Scene;
use serde::Serialize;
use std::collections::BTreeMap;
use volume::{Grant, Volume};

/// Steps for which a fitted number of servers stands (ours).
const FIT_LASTS: u64 = 32;
/// Steps between two questions whether a partition is still needed (ours).
const REMOVAL_EVERY: u64 = 4;
/// Intervals after which a quota that is not in force is ordered again (ours).
const REPEAT_AFTER: usize = 3;
/// The least part of the excess that a cache which cannot keep the objective must take away (ours).
const BEST_EFFORT_MIN: f64 = 0.2;

/// Decides; see the module's page.
#[derive(Clone, Debug)]
pub struct Controller {
    config: ControlConfig,
    capacity: Bytes,
    hosts: Vec<HostSpec>,
    origins: BTreeMap<OriginId, OriginSpec>,
    /// By origin: the servers fitted, and at which step.
    fits: BTreeMap<OriginId, (u64, Option<f64>)>,
    volumes: BTreeMap<VolumeId, Volume>,
    step: u64,
}

/// Where a volume stands, for people.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VolumeStatus {
    /// Which volume.
    pub volume: VolumeId,
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub state: VolumeState,
    /// Its objectives, in their order.
    pub objectives: Vec<ObjectiveStatus>,
    /// The quota that was ordered.
    pub quota_blocks: u64,
    /// The volumes whose objectives its cache serves.
    pub serves: Vec<VolumeId>,
}

/// Where an objective stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectiveStatus {
    /// In words.
    pub objective: String,
    /// The number of the last window, in the unit of `bound`; absent where nothing completed.
    pub value: Option<f64>,
    /// The promised number.
    pub bound: f64,
    /// `s`, `requests/s` or `bytes/s`.
    pub unit: &'static str,
    /// What was said of the last window; absent before the first.
    pub verdict: Option<crate::conformance::Verdict>,
    /// Share of the last windows with enough load that conform; absent where there were none.
    pub conforming_share: Option<f64>,
}

/// A change of a quota that a step wants.
struct Change {
    blocks: u64,
    kind: DecisionKind,
    summary: String,
    facts: Vec<Fact>,
    serves: Option<VolumeId>,
}

/// A quota that the master granted.
struct Order {
    id: VolumeId,
    before: u64,
    blocks: u64,
    change: Option<Change>,
    /// How busy the origin is.
    utilisation: f64,
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
            origins,
            fits: BTreeMap::new(),
            volumes: BTreeMap::new(),
            step: 0,
        })
    }

    /// Adds a volume, or replaces its specification: its history stays, its windows start anew where the objectives
    /// differ.
    ///
    /// # Errors
    /// [`VolumeSpecError`] where it cannot be judged or its minimum does not fit.
    pub fn register(&mut self, spec: VolumeSpec) -> Result<(), VolumeSpecError> {
        spec.check()?;
        let others: u64 = self
            .volumes
            .values()
            .filter(|volume| volume.spec.id != spec.id)
            .map(|volume| volume.blocks_min() * volume.block_bytes())
            .sum();
        let guaranteed = Bytes(others + spec.block_size.blocks_for(spec.minimum) * spec.block_size.bytes());
        if guaranteed > self.capacity {
            return Err(VolumeSpecError::MinimumsExceedCapacity {
                volume: spec.name,
                guaranteed,
                capacity: self.capacity,
            });
        }
        match self.volumes.get_mut(&spec.id) {
            Some(volume) => {
                if volume.spec.objectives != spec.objectives {
                    volume.tracks = vec![volume::Track::default(); spec.objectives.len()];
                    volume.violated_since = None;
                    volume.analyse_from = 0;
                }
                volume.spec = spec;
            }
            None => {
                self.volumes.insert(spec.id, Volume::new(spec));
            }
        }
        Ok(())
    }

    /// Forgets a volume; its quota counts as free from now on.
    pub fn forget(&mut self, id: VolumeId) {
        self.volumes.remove(&id);
        for volume in self.volumes.values_mut() {
            if let Some(grant) = &mut volume.grant {
                grant.serves.retain(|served| *served != id);
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

    /// Where a volume stands; `None` for an unknown one.
    pub fn status(&self, id: VolumeId) -> Option<VolumeStatus> {
        let volume = self.volumes.get(&id)?;
        let objective = |(objective, track): (&Objective, &volume::Track)| ObjectiveStatus {
            objective: objective.to_string(),
            value: track.last.and_then(|judgement| judgement.value),
            bound: objective.bound(),
            unit: objective.unit(),
            verdict: track.last.map(|judgement| judgement.verdict),
            conforming_share: track.conforming_share(),
        };
        Some(VolumeStatus {
            volume: id,
            name: volume.spec.name.clone(),
            state: volume.state,
            objectives: volume.spec.objectives.iter().zip(&volume.tracks).map(objective).collect(),
            quota_blocks: volume.blocks(),
            serves: volume.grant.as_ref().map_or_else(Vec::new, |grant| grant.serves.clone()),
        })
    }

    /// One control interval. Volumes that are not registered are ignored.
    ///
    /// Cost is `O(volumes)` for those without trouble, and at most `analyses_max` analyses of an origin's volumes.
    pub fn step(&mut self, observation: &Observation) -> StepOutcome {
        self.step += 1;
        let mut outcome = StepOutcome::default();
        let observed: BTreeMap<VolumeId, &VolumeObservation> =
            observation.volumes.iter().map(|volume| (volume.volume, volume)).collect();
        for (id, volume) in &mut self.volumes {
            if let Some(observed) = observed.get(id) {
                volume.observe(observed, observation.interval, self.step, &self.config);
            } else {
                volume.tracks.iter_mut().for_each(|track| track.closed = false);
            }
        }
        let mut scenes = Scenes::default();
        let mut changes: BTreeMap<VolumeId, Change> = BTreeMap::new();
        let violated = self.judge(observation.at, &mut outcome);
        self.guarantee(&mut changes);
        self.correct(&mut scenes, &mut changes);
        self.analyse(observation.at, &violated, &mut scenes, &mut changes, &mut outcome);
        self.apply(observation, &observed, &mut scenes, changes, &mut outcome);
        self.repeat(&mut outcome);
        self.settle_states();
        debug_assert!(self.granted() <= self.capacity);
        outcome
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

    /// Step one: who violates. Returns those in violation, the highest priority and the worst first.
    fn judge(&mut self, at: Nanos, outcome: &mut StepOutcome) -> Vec<VolumeId> {
        let mut violated: Vec<(u8, f64, VolumeId)> = Vec::new();
        let mut decisions = Vec::new();
        let config = &self.config;
        for (id, volume) in &mut self.volumes {
            if volume.spec.objectives.is_empty() {
                continue;
            }
            let (assessment, worst) = volume.assess(config);
            let objective = volume.spec.objectives[worst];
            let last = volume.tracks[worst].last;
            let before = volume.state;
            let mut tell = |kind, summary: String| {
                let facts = objective_facts(&objective, last, assessment, config);
                decisions.push((*id, kind, summary, facts));
            };
            match assessment {
                Assessment::Violated { nonconforming } => {
                    if volume.violated_since.is_none() {
                        volume.violated_since = Some(at);
                        tell(
                            DecisionKind::ViolationFound,
                            format!(
                                "{} is violated: {nonconforming} of the last {} windows miss `{objective}`",
                                volume.spec.name, config.violation.windows
                            ),
                        );
                    }
                    let excess = last.map_or(0.0, |judgement| judgement.excess);
                    violated.push((objective.priority, excess, *id));
                }
                Assessment::Suspected { nonconforming } if volume.violated_since.is_none() => {
                    if before == VolumeState::Conforming {
                        tell(
                            DecisionKind::Suspected,
                            format!(
                                "{} missed `{objective}` in {nonconforming} of the last {} windows, too few to act",
                                volume.spec.name, config.violation.windows
                            ),
                        );
                    }
                    volume.state = VolumeState::Suspected;
                }
                Assessment::Kept if volume.violated_since.is_none() => {
                    if before == VolumeState::Suspected {
                        tell(
                            DecisionKind::SpikeIgnored,
                            format!("{} keeps `{objective}` again without help: a spike", volume.spec.name),
                        );
                    }
                    volume.state = VolumeState::Conforming;
                }
                Assessment::Suspected { .. } | Assessment::Kept => {}
            }
            if let Some(since) = volume.violated_since
                && volume.has_recovered(config)
            {
                volume.violated_since = None;
                volume.state = VolumeState::Conforming;
                let lasted = at.saturating_since(since);
                tell(
                    DecisionKind::ViolationEnded,
                    format!(
                        "{} keeps `{objective}` again, {lasted} after the violation was found",
                        volume.spec.name
                    ),
                );
            }
        }
        for (id, kind, summary, facts) in decisions {
            outcome.decisions.push(self.decision(at, id, kind, summary, facts));
        }
        violated.sort_by(|a, b| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
        violated.into_iter().map(|(_, _, id)| id).collect()
    }

    /// Guaranteed minimums are granted before anything else.
    fn guarantee(&self, changes: &mut BTreeMap<VolumeId, Change>) {
        for (id, volume) in &self.volumes {
            let minimum = volume.blocks_min();
            if volume.blocks() < minimum {
                changes.insert(
                    *id,
                    Change {
                        blocks: minimum,
                        kind: DecisionKind::Granted,
                        summary: format!("{} gets the cache that it is guaranteed", volume.spec.name),
                        facts: vec![Fact::number("minimum", minimum as f64, "blocks")],
                        serves: Some(*id),
                    },
                );
            }
        }
    }

    /// Feedback, phases and removal for every partition.
    fn correct(&mut self, scenes: &mut Scenes, changes: &mut BTreeMap<VolumeId, Change>) {
        let granted: Vec<VolumeId> =
            self.volumes.iter().filter(|(_, volume)| volume.grant.is_some()).map(|(id, _)| *id).collect();
        for id in granted {
            if changes.contains_key(&id) {
                continue;
            }
            let change = self.removal(id, scenes).or_else(|| self.feedback(id, scenes));
            if let Some(change) = change {
                changes.insert(id, change);
            }
        }
    }

    fn removal(&mut self, id: VolumeId, scenes: &mut Scenes) -> Option<Change> {
        let ask = (self.step + u64::from(id.0)).is_multiple_of(REMOVAL_EVERY);
        let served = self.volumes[&id].grant.as_ref()?.serves.clone();
        let excess_without = ask.then(|| {
            let (index, place) = self.scene_place(scenes, id);
            let scene = &scenes.list[index];
            let mut blocks = scene.blocks();
            blocks[place] = self.volumes[&id].blocks_min();
            worst_of(scene, &scene.excess(&blocks), &served)
        });
        // A beneficiary without load predicts nothing: only an answer with numbers counts.
        let excess_without = excess_without.filter(|excess| excess.is_finite());
        let config = &self.config;
        let load: f64 = served
            .iter()
            .filter_map(|id| self.volumes.get(id))
            .map(|v| v.recent(config.recent_intervals).rate())
            .sum();
        let volume = self.volumes.get_mut(&id)?;
        let recent = volume.recent(config.recent_intervals);
        let reads = recent.hit_rate + recent.miss_rate;
        let minimum = volume.blocks_min();
        let (used, name) = (volume.used_blocks, volume.spec.name.clone());
        let grant = volume.grant.as_mut()?;
        let input = RemovalInput {
            rate: load,
            rate_at_grant: grant.rate_at_grant,
            excess_without,
            hit_ratio: if reads > 0.0 { recent.hit_rate / reads } else { 0.0 },
            warm: used * 10 >= grant.blocks * 8,
        };
        let reason = grant.removal.observe(&input, &config.removal)?;
        if grant.blocks <= minimum {
            return None;
        }
        let mut facts = vec![
            Fact::number("size_before", grant.blocks as f64, "blocks"),
            Fact::number("load", input.rate, "requests/s"),
            Fact::number("load_at_grant", input.rate_at_grant, "requests/s"),
            Fact::number("hit_ratio", input.hit_ratio, ""),
            Fact::number("sustained", config.removal.sustained as f64, "intervals"),
        ];
        facts.extend(input.excess_without.map(|excess| Fact::number("predicted_excess_without", excess, "")));
        Some(Change {
            blocks: minimum,
            kind: DecisionKind::Removed,
            summary: format!("the cache of {name} is taken back: {reason}"),
            facts,
            serves: None,
        })
    }

    fn feedback(&mut self, id: VolumeId, scenes: &mut Scenes) -> Option<Change> {
        let step = self.step;
        let volume = &self.volumes[&id];
        let grant = volume.grant.as_ref()?;
        let error = grant
            .serves
            .iter()
            .filter_map(|served| self.volumes.get(served)?.closed_excess())
            .max_by(f64::total_cmp);
        let share = grant
            .serves
            .iter()
            .filter_map(|served| self.volumes.get(served))
            .flat_map(|served| served.spec.objectives.iter().map(|objective| objective.conforming_share))
            .fold(0.0, f64::max);
        let recent = volume.recent(self.config.recent_intervals);
        let intensity = if recent.backlogged { recent.outstanding * 100.0 } else { recent.arrival_rate };
        let reads = recent.hit_rate + recent.miss_rate;
        let phase = Phase::of(intensity, reads / recent.rate().max(1e-9), recent.working_set as u64);
        let chunk_blocks = volume.chunk_blocks(self.config.chunk_bytes);
        let (blocks_min, ceiling) = (volume.blocks_min(), self.blocks_ceiling(id));

        let volume = self.volumes.get_mut(&id)?;
        let remembered = volume.memory.recall(phase);
        let grant = volume.grant.as_mut()?;
        grant.see_phase(phase);
        if let Some(error) = error
            && grant.age > grant.guard.min(self.config.feedback.guard_max)
        {
            grant.push_error(error);
        }
        let errors: Vec<f64> = grant.errors.iter().copied().collect();
        let input = FeedbackInput {
            blocks: grant.blocks,
            chunk_blocks,
            blocks_min,
            blocks_max: ceiling.max(grant.blocks),
            errors: &errors,
            conforming_share: share,
            age: grant.age,
            guard: grant.guard,
            model_blocks: None,
            insufficient_blocks: grant.insufficient,
        };
        let limited = step < grant.limited_until;
        let mut correction = correct(&input, &self.config.feedback);
        let mut model = None;
        if matches!(correction, Correction::Grow { .. } | Correction::Shrink { .. }) {
            model = self.model_blocks(id, scenes);
            correction = correct(&FeedbackInput { model_blocks: model, ..input }, &self.config.feedback);
        }
        let volume = self.volumes.get_mut(&id)?;
        let name = volume.spec.name.clone();
        let grant = volume.grant.as_mut()?;
        let mut facts = vec![
            Fact::number("size_before", input.blocks as f64, "blocks"),
            Fact::number("intervals_since_change", input.age as f64, ""),
            Fact::number("windows_judged", errors.len() as f64, ""),
        ];
        facts.extend(model.map(|blocks| Fact::number("model_size", blocks as f64, "blocks")));
        match correction {
            Correction::Grow { blocks, error } if !limited => {
                facts.push(Fact::number("error", error, ""));
                grant.insufficient = Some(grant.insufficient.unwrap_or(0).max(grant.blocks));
                if let Some(known) = remembered.filter(|&known| known > blocks && known <= input.blocks_max) {
                    facts.push(Fact::number("size_after", known as f64, "blocks"));
                    return Some(Change {
                        blocks: known,
                        kind: DecisionKind::PhaseRemembered,
                        summary: format!("{name} gets the cache that sufficed in a phase like this one"),
                        facts,
                        serves: None,
                    });
                }
                facts.push(Fact::number("size_after", blocks as f64, "blocks"));
                let summary = format!(
                    "the cache of {name} grows: those it serves are {:.0} % beyond their objective",
                    error * 100.0
                );
                Some(Change { blocks, kind: DecisionKind::Grown, summary, facts, serves: None })
            }
            Correction::Shrink { blocks, error } => {
                facts.push(Fact::number("error", error, ""));
                facts.push(Fact::number("size_after", blocks as f64, "blocks"));
                let summary = format!(
                    "the cache of {name} shrinks: those it serves have {:.0} % of slack",
                    -error * 100.0
                );
                Some(Change { blocks, kind: DecisionKind::Shrunk, summary, facts, serves: None })
            }
            Correction::Hold(HoldReason::WithinBand) => {
                let blocks = grant.blocks;
                volume.memory.remember(phase, blocks);
                None
            }
            Correction::Grow { .. } | Correction::Exhausted { .. } | Correction::Hold(_) => None,
        }
        .filter(|change| change.blocks != input.blocks)
    }

    /// The smallest size that the model finds sufficient for those that a partition serves, others as they are.
    fn model_blocks(&mut self, id: VolumeId, scenes: &mut Scenes) -> Option<u64> {
        let served = self.volumes[&id].grant.as_ref()?.serves.clone();
        let chunk_blocks = self.volumes[&id].chunk_blocks(self.config.chunk_bytes);
        let ceiling = self.blocks_ceiling(id);
        let goal = -self.config.sizing_margin;
        let (index, place) = self.scene_place(scenes, id);
        let scene = &scenes.list[index];
        scene.parties[place].curve.as_ref()?;
        let base = scene.blocks();
        let sizing = smallest(ceiling, chunk_blocks, goal, |blocks| {
            let mut sizes = base.clone();
            sizes[place] = blocks;
            worst_of(scene, &scene.excess(&sizes), &served)
        });
        sizing.reached.then_some(sizing.blocks)
    }

    /// The most blocks that a cache of this volume may have: its own maximum and all the cache there is.
    fn blocks_ceiling(&self, id: VolumeId) -> u64 {
        let volume = &self.volumes[&id];
        volume.spec.blocks_max().min(self.capacity.get() / volume.block_bytes())
    }

    /// The scene of a volume's origin, built on first use in a step, and the volume's place in it.
    fn scene_place(&mut self, scenes: &mut Scenes, id: VolumeId) -> (usize, usize) {
        let origin = self.volumes[&id].spec.origin;
        let index = self.scene_of(scenes, origin);
        let place = scenes.list[index]
            .place(id)
            .expect("a scene holds all volumes of its origin that have a history");
        (index, place)
    }

    fn scene_of(&mut self, scenes: &mut Scenes, origin: OriginId) -> usize {
        if let Some(&index) = scenes.by_origin.get(&origin) {
            return index;
        }
        if scenes.members.is_empty() {
            for (id, volume) in &self.volumes {
                scenes.members.entry(volume.spec.origin).or_default().push(*id);
            }
        }
        let ids = scenes.members.get(&origin).cloned().unwrap_or_default();
        let spec = self.origins.get(&origin);
        let fitted = match (spec.and_then(|spec| spec.servers), self.fits.get(&origin)) {
            (Some(_), _) => None,
            (None, Some(&(at, fitted))) if self.step < at + FIT_LASTS || scenes.fitted => fitted,
            (None, known) => {
                // At most one fit in a step: it is the dearest thing that is done here.
                if scenes.fitted {
                    known.and_then(|known| known.1)
                } else {
                    scenes.fitted = true;
                    let volumes: Vec<&Volume> = ids.iter().map(|id| &self.volumes[id]).collect();
                    let fitted = scene::fit(spec, &volumes).or(known.and_then(|known| known.1));
                    // Nothing found yet: ask again soon.
                    let at =
                        if fitted.is_some() { self.step } else { (self.step + 8).saturating_sub(FIT_LASTS) };
                    self.fits.insert(origin, (at, fitted));
                    fitted
                }
            }
        };
        let scene = Scene::build(&ids, &self.volumes, spec, fitted, &self.config);
        scenes.list.push(scene);
        scenes.by_origin.insert(origin, scenes.list.len() - 1);
        scenes.list.len() - 1
    }

    /// Answers violations that nothing serves yet, or that what serves them cannot mend.
    fn analyse(
        &mut self,
        at: Nanos,
        violated: &[VolumeId],
        scenes: &mut Scenes,
        changes: &mut BTreeMap<VolumeId, Change>,
        outcome: &mut StepOutcome,
    ) {
        let mut analyses = 0;
        for &id in violated {
            if analyses == self.config.analyses_max {
                break;
            }
            let volume = &self.volumes[&id];
            if self.step < volume.analyse_from {
                continue;
            }
            // What serves it is still filling or may still grow: feedback has the word.
            let served = self.volumes.iter().any(|(cached, other)| {
                other.grant.as_ref().is_some_and(|grant| {
                    grant.serves.contains(&id)
                        && grant.blocks > other.blocks_min()
                        && (grant.age
                            <= grant.guard.min(self.config.feedback.guard_max)
                                + self.config.feedback.grow_after
                            || changes.contains_key(cached))
                })
            });
            if served {
                continue;
            }
            analyses += 1;
            self.analyse_one(at, id, scenes, changes, outcome);
        }
    }

    fn analyse_one(
        &mut self,
        at: Nanos,
        victim: VolumeId,
        scenes: &mut Scenes,
        changes: &mut BTreeMap<VolumeId, Change>,
        outcome: &mut StepOutcome,
    ) {
        let origin = self.volumes[&victim].spec.origin;
        let index = self.scene_of(scenes, origin);
        let scene = &scenes.list[index];
        let Some(place) = scene.place(victim) else { return };
        let judged = self.judge_neighbours(scene, place);
        outcome.decisions.push(self.tell_interference(at, victim, scene, &judged));

        let mut curve_missing = false;
        let mut cacheable = vec![false; scene.parties.len()];
        for (party, cacheable) in scene.parties.iter().zip(&mut cacheable) {
            let relevant =
                party.id == victim || judged.iter().any(|(other, _)| scene.parties[*other].id == party.id);
            if !relevant {
                continue;
            }
            match self.check_cacheable(party) {
                Ok(()) => *cacheable = true,
                Err(reason) => {
                    curve_missing |= matches!(reason, NotCacheable::CurveUnknown { .. });
                    let name = &self.volumes[&party.id].spec.name;
                    let facts = vec![
                        Fact::text("reason", reason.to_string()),
                        Fact::text("violated", &self.volumes[&victim].spec.name),
                    ];
                    let summary = format!("a cache cannot help {name}: {reason}");
                    outcome.decisions.push(self.decision(
                        at,
                        party.id,
                        DecisionKind::NotCacheable,
                        summary,
                        facts,
                    ));
                }
            }
        }
        let free = self.capacity.saturating_sub(self.granted());
        let goal = -self.config.sizing_margin;
        let ranked = |wide: bool| {
            let eligible = |other: usize| {
                cacheable[other]
                    && (other == place
                        || judged.iter().any(|(at, judged)| *at == other && (wide || judged.is_likely())))
            };
            let tenants: Vec<Tenant> =
                (0..scene.parties.len()).map(|at| self.tenant(scene, at, eligible(at))).collect();
            rank(place, &tenants, goal, free, |blocks| scene.excess(blocks))
        };
        let mut solutions = ranked(false);
        // Neighbours whose load was not seen to matter share the origin all the same: better than nothing.
        if !solutions.first().is_some_and(|best| best.reached)
            && judged.iter().any(|(_, judged)| !judged.is_likely())
        {
            solutions = ranked(true);
        }
        let before = scene.excess(&scene.blocks())[place];
        let observed = self.volumes[&victim]
            .tracks
            .iter()
            .filter_map(|track| track.last)
            .map(|last| last.excess)
            .fold(f64::NEG_INFINITY, f64::max);
        let best = solutions.first().filter(|best| {
            best.reached || before.max(0.0) - best.excess >= BEST_EFFORT_MIN * before.max(0.05)
        });
        let mut facts = vec![
            Fact::number("observed_excess", observed, ""),
            Fact::number("predicted_excess_now", before, ""),
            Fact::number("goal_excess", goal, ""),
            Fact::number("origin_utilisation", scene.utilisation, ""),
            Fact::number("origin_servers", scene.origin.servers, ""),
            Fact::text("model", scene.basis),
            Fact::number("free", free.as_f64(), "bytes"),
        ];
        let names = |solution: &Solution| self.describe(scene, solution);
        let alternatives: Vec<Alternative> = solutions
            .iter()
            .take(8)
            .enumerate()
            .map(|(rank, solution)| Alternative {
                description: names(solution),
                cost: solution.cost,
                predicted_excess: if solution.excess.is_finite() { solution.excess } else { 1e9 },
                chosen: rank == 0 && best.is_some(),
                reason: self.reason(scene, solution, rank, free),
            })
            .collect();
        let name = self.volumes[&victim].spec.name.clone();
        let Some(best) = best.cloned() else {
            let why = match (solutions.first(), curve_missing) {
                (_, true) => "the curves of what could be cached are not known yet".to_owned(),
                (Some(best), _) => format!(
                    "the best that a cache can do leaves it {:.0} % beyond its objective",
                    best.excess * 100.0
                ),
                (None, _) => "no workload on its origin can be cached any further".to_owned(),
            };
            facts.push(Fact::text("reason", why.clone()));
            let mut decision = self.decision(
                at,
                victim,
                DecisionKind::NothingHelps,
                format!("no cache mends the violation of {name}: {why}"),
                facts,
            );
            decision.alternatives = alternatives;
            outcome.decisions.push(decision);
            let wait = if curve_missing { 2 } else { self.config.retry_after as u64 };
            self.volumes.get_mut(&victim).expect("a violated volume is registered").analyse_from =
                self.step + wait;
            return;
        };
        facts.push(Fact::number("predicted_excess", best.excess, ""));
        facts.push(Fact::number("cost", best.cost.as_f64(), "bytes"));
        let promise =
            if best.reached { "is predicted to keep" } else { "cannot keep, but comes nearest to," };
        let summary = format!("{} {promise} the objective of {name}", names(&best));
        let mut decision = self.decision(at, victim, DecisionKind::SolutionChosen, summary, facts);
        decision.alternatives = alternatives;
        outcome.decisions.push(decision);
        for &(other, blocks) in &best.sizes {
            let cached = scene.parties[other].id;
            let party = &scene.parties[other];
            let facts = vec![
                Fact::number("size_before", party.blocks as f64, "blocks"),
                Fact::number("size_after", blocks as f64, "blocks"),
                Fact::number("hit_ratio_predicted", party.hit_ratio(blocks), ""),
                Fact::text("serves", name.clone()),
            ];
            let kind = if party.blocks == 0 { DecisionKind::Granted } else { DecisionKind::Grown };
            let summary = format!(
                "{} gets a cache of {} for {name}",
                self.volumes[&cached].spec.name,
                Bytes(blocks * self.volumes[&cached].block_bytes())
            );
            let larger = changes.get(&cached).is_none_or(|change| change.blocks < blocks);
            if larger {
                changes.insert(cached, Change { blocks, kind, summary, facts, serves: Some(victim) });
            }
        }
        self.volumes.get_mut(&victim).expect("a violated volume is registered").analyse_from =
            self.step + self.config.retry_after as u64;
    }

    /// Interference of the busiest neighbours with the party at `place`.
    fn judge_neighbours(&self, scene: &Scene, place: usize) -> Vec<(usize, Interference)> {
        let victim = &self.volumes[&scene.parties[place].id];
        let mut neighbours: Vec<usize> = (0..scene.parties.len())
            .filter(|&other| other != place && scene.parties[other].recent.origin_rate() > 0.0)
            .collect();
        let busy = |other: usize| scene.parties[other].recent.origin_rate();
        neighbours.sort_by(|&a, &b| busy(b).total_cmp(&busy(a)).then(a.cmp(&b)));
        neighbours.truncate(self.config.neighbours_max);
        neighbours
            .into_iter()
            .map(|other| {
                let aggressor = &self.volumes[&scene.parties[other].id];
                let pairs = aggressor.history.iter().rev().zip(victim.history.iter().rev());
                let mut pairs: Vec<(f64, f64)> = pairs
                    .filter(|(_, victim)| victim.origin_latency() > 0.0)
                    .map(|(aggressor, victim)| (aggressor.origin_rate(), victim.origin_latency()))
                    .collect();
                pairs.reverse();
                let (load, latency): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
                (other, interference(&load, &latency, true, &self.config.interference))
            })
            .collect()
    }

    fn tell_interference(
        &self,
        at: Nanos,
        victim: VolumeId,
        scene: &Scene,
        judged: &[(usize, Interference)],
    ) -> Decision {
        let mut facts = Vec::new();
        let mut likely = Vec::new();
        for (other, judged) in judged {
            let name = &self.volumes[&scene.parties[*other].id].spec.name;
            let (evidence, score) = match judged {
                Interference::Correlated(correlation) => ("changes together", Some(correlation)),
                Interference::SharedOrigin => ("shares the origin", None),
                Interference::Absent(correlation) => ("does not change together", Some(correlation)),
                Interference::Unknown => ("unknown", None),
            };
            facts.push(Fact::text("neighbour", format!("{name}: {evidence}")));
            facts.push(Fact::number(
                "neighbour_load",
                scene.parties[*other].recent.origin_rate(),
                "requests/s",
            ));
            if let Some(correlation) = score {
                facts.push(Fact::number("pearson", correlation.pearson, ""));
                facts.push(Fact::number("spearman", correlation.spearman, ""));
                facts.push(Fact::number("lag", correlation.lag as f64, "intervals"));
            }
            if judged.is_likely() {
                likely.push(name.as_str());
            }
        }
        let name = &self.volumes[&victim].spec.name;
        let summary = if likely.is_empty() {
            format!("no neighbour is seen to interfere with {name}")
        } else {
            format!("{} may interfere with {name}", likely.join(", "))
        };
        self.decision(at, victim, DecisionKind::InterferenceJudged, summary, facts)
    }

    fn check_cacheable(&self, party: &scene::Party) -> Result<(), NotCacheable> {
        let volume = &self.volumes[&party.id];
        let recent = &party.recent;
        let reads = recent.hit_rate + recent.miss_rate;
        let character = Character {
            read_share: if recent.rate() > 0.0 { reads / recent.rate() } else { 1.0 },
            curve: party.curve.as_deref(),
            curve_accesses: volume.curve_accesses,
            invalidation_share: (party.blocks > 0 && recent.filled > 0.0)
                .then(|| recent.invalidated / recent.filled),
            sequential_share: volume.sequential_share,
            may_cache: volume.spec.may_cache,
        };
        cacheability::check(&character, &self.config.cacheability)
    }

    fn tenant(&self, scene: &Scene, at: usize, eligible: bool) -> Tenant {
        let party = &scene.parties[at];
        let volume = &self.volumes[&party.id];
        let ceiling = self.blocks_ceiling(party.id);
        let blocks_max = party.curve.as_ref().map_or(0, |curve| useful_max(curve, ceiling)).max(party.blocks);
        Tenant {
            eligible,
            blocks: party.blocks,
            blocks_max,
            chunk_blocks: volume.chunk_blocks(self.config.chunk_bytes),
            block_bytes: volume.block_bytes(),
            peaking: eligible && volume.is_peaking(&party.recent),
            stable: !eligible || volume.is_stable(&party.recent),
            candidates: match (&party.curve, eligible) {
                (Some(curve), true) => candidates(curve, blocks_max),
                _ => Vec::new(),
            },
        }
    }

    fn describe(&self, scene: &Scene, solution: &Solution) -> String {
        let each = |&(at, blocks): &(usize, u64)| {
            let volume = &self.volumes[&scene.parties[at].id];
            format!("{} in front of {}", Bytes(blocks * volume.block_bytes()), volume.spec.name)
        };
        solution.sizes.iter().map(each).collect::<Vec<_>>().join(" and ")
    }

    fn reason(&self, scene: &Scene, solution: &Solution, rank: usize, free: Bytes) -> String {
        let mut reasons = Vec::new();
        if rank == 0 && solution.reached {
            reasons.push("costs least of those that keep the objective".to_owned());
        } else if !solution.reached {
            reasons.push(format!("leaves it {:.0} % beyond the objective", solution.excess * 100.0));
        } else {
            reasons.push("keeps the objective at a higher cost".to_owned());
        }
        if solution.peaking {
            reasons.push("caches a workload at its peak".to_owned());
        }
        if solution.unstable {
            reasons.push("caches a changing working set".to_owned());
        }
        if !solution.harmed.is_empty() {
            let harmed: Vec<&str> = solution
                .harmed
                .iter()
                .map(|&at| self.volumes[&scene.parties[at].id].spec.name.as_str())
                .collect();
            reasons.push(format!("harms {}", harmed.join(", ")));
        }
        if solution.cost > free {
            reasons.push("needs more than is free".to_owned());
        }
        reasons.join("; ")
    }

    /// Lets the master cut all wants to the capacity, and orders what changed: shrinking first.
    fn apply(
        &mut self,
        observation: &Observation,
        observed: &BTreeMap<VolumeId, &VolumeObservation>,
        scenes: &mut Scenes,
        mut changes: BTreeMap<VolumeId, Change>,
        outcome: &mut StepOutcome,
    ) {
        if changes.is_empty() {
            return;
        }
        let ids: Vec<VolumeId> = self
            .volumes
            .iter()
            .filter(|(id, volume)| volume.grant.is_some() || changes.contains_key(id))
            .map(|(id, _)| *id)
            .collect();
        let total: u128 = ids
            .iter()
            .map(|id| {
                let blocks = changes.get(id).map_or(self.volumes[id].blocks(), |change| change.blocks);
                u128::from(blocks) * u128::from(self.volumes[id].block_bytes())
            })
            .sum();
        let short = total > u128::from(self.capacity.get());
        let wants: Vec<Want> = ids
            .iter()
            .map(|&id| {
                let scene = short.then(|| self.scene_place(scenes, id));
                let volume = &self.volumes[&id];
                let change = changes.get(&id);
                let served = volume
                    .grant
                    .iter()
                    .flat_map(|grant| grant.serves.iter().copied())
                    .chain(change.and_then(|change| change.serves));
                let priority = served
                    .filter_map(|id| self.volumes.get(&id))
                    .flat_map(|served| served.spec.objectives.iter().map(|objective| objective.priority))
                    .max()
                    .unwrap_or(0);
                Want {
                    volume: id,
                    block_bytes: volume.block_bytes(),
                    blocks: change.map_or(volume.blocks(), |change| change.blocks),
                    blocks_min: volume.blocks_min(),
                    priority,
                    scene,
                }
            })
            .collect();
        let (quotas, _) = master::grant(&wants, &scenes.list, self.capacity.get(), self.config.chunk_bytes);
        let mut orders: Vec<(VolumeId, u64, u64)> = Vec::new();
        for want in &wants {
            let (id, before, blocks) =
                (want.volume, self.volumes[&want.volume].blocks(), quotas[&want.volume]);
            if blocks < want.blocks {
                outcome.decisions.push(self.tell_short(observation.at, want, blocks, total));
            }
            if let Some(volume) = self.volumes.get_mut(&id)
                && let Some(grant) = &mut volume.grant
                && blocks < want.blocks
            {
                grant.limited_until = self.step + self.config.retry_after as u64;
            }
            if blocks != before {
                orders.push((id, before, blocks));
            } else if let Some(change) = changes.get(&id)
                && let (Some(served), Some(grant)) =
                    (change.serves, &mut self.volumes.get_mut(&id).expect("wanted").grant)
                && !grant.serves.contains(&served)
            {
                grant.serves.push(served);
            }
        }
        orders.sort_by_key(|&(id, before, blocks)| (blocks > before, id));
        for (id, before, blocks) in orders {
            let change = changes.remove(&id);
            let utilisation = self.utilisation(observation, scenes, id);
            let order = Order { id, before, blocks, change, utilisation };
            self.order(observation, observed.get(&id).copied(), order, outcome);
        }
    }

    /// How busy a volume's origin is: as it says itself, else by the model, else taken as busy.
    fn utilisation(&self, observation: &Observation, scenes: &Scenes, id: VolumeId) -> f64 {
        let origin = self.volumes[&id].spec.origin;
        let said =
            observation.origins.iter().find(|said| said.origin == origin).and_then(|said| said.utilisation);
        let modelled = || scenes.by_origin.get(&origin).map(|&index| scenes.list[index].utilisation);
        said.or_else(modelled).unwrap_or(1.0)
    }

    fn tell_short(&self, at: Nanos, want: &Want, blocks: u64, total: u128) -> Decision {
        let name = &self.volumes[&want.volume].spec.name;
        let facts = vec![
            Fact::number("wanted", want.blocks as f64, "blocks"),
            Fact::number("given", blocks as f64, "blocks"),
            Fact::number("wanted_by_all", total as f64, "bytes"),
            Fact::number("capacity", self.capacity.as_f64(), "bytes"),
        ];
        let summary = format!(
            "{name} gets {blocks} of the {} blocks that it wants: all together want more than there is",
            want.blocks
        );
        self.decision(at, want.volume, DecisionKind::CapacityShort, summary, facts)
    }

    /// Orders one quota, and a warm-up for what grew.
    fn order(
        &mut self,
        observation: &Observation,
        observed: Option<&VolumeObservation>,
        order: Order,
        outcome: &mut StepOutcome,
    ) {
        let Order { id, before, blocks, change, utilisation } = order;
        let host = match self.volumes[&id].grant.as_ref().filter(|grant| grant.blocks > 0) {
            Some(grant) => grant.host,
            None => match self.choose_host(id, blocks) {
                Some(host) => host,
                None => {
                    let name = self.volumes[&id].spec.name.clone();
                    let summary = format!("no host has room for the cache of {name}");
                    let facts = vec![Fact::number("size", blocks as f64, "blocks")];
                    outcome.decisions.push(self.decision(
                        observation.at,
                        id,
                        DecisionKind::NothingHelps,
                        summary,
                        facts,
                    ));
                    return;
                }
            },
        };
        let blocks = if blocks > before { self.fit_host(id, host, before, blocks) } else { blocks };
        if blocks == before {
            return;
        }
        let (kind, summary, facts, serves) = match change {
            Some(change) => (change.kind, change.summary, change.facts, change.serves),
            None => {
                let name = &self.volumes[&id].spec.name;
                let summary = format!("the cache of {name} gives way to others that violate more without it");
                let facts = vec![
                    Fact::number("size_before", before as f64, "blocks"),
                    Fact::number("size_after", blocks as f64, "blocks"),
                ];
                (DecisionKind::Shrunk, summary, facts, None)
            }
        };
        outcome.decisions.push(self.decision(observation.at, id, kind, summary, facts));
        outcome.actions.push(Action::SetQuota { volume: id, host, blocks });
        let interval_s = observation.interval.as_secs_f64().max(1e-9);
        let mut fill_rate = self.volumes[&id].recent(self.config.recent_intervals).miss_rate * interval_s;
        if blocks > before {
            if let Some(warmup) = observed.map(|observed| self.warm_up(id, observed, blocks, utilisation)) {
                let rate = self.tell_warm_up(observation.at, id, warmup, outcome);
                fill_rate = fill_rate.max(rate as f64 * interval_s / self.volumes[&id].block_bytes() as f64);
            }
        } else if observed.is_some_and(|observed| observed.cache.prewarming) && blocks == 0 {
            outcome.actions.push(Action::CancelPrewarm { volume: id });
            let summary =
                format!("loading for {} stops: its cache is taken back", self.volumes[&id].spec.name);
            outcome.decisions.push(self.decision(
                observation.at,
                id,
                DecisionKind::PrewarmCancelled,
                summary,
                Vec::new(),
            ));
        }
        let load: f64 = {
            let mut served: Vec<VolumeId> =
                self.volumes[&id].grant.iter().flat_map(|grant| grant.serves.clone()).collect();
            served.extend(serves);
            served.sort_unstable();
            served.dedup();
            served
                .iter()
                .filter_map(|id| self.volumes.get(id))
                .map(|v| v.recent(self.config.recent_intervals).rate())
                .sum()
        };
        let volume = self.volumes.get_mut(&id).expect("an ordered volume is registered");
        if blocks == 0 {
            volume.grant = None;
            return;
        }
        let grant = volume.grant.get_or_insert_with(|| Grant::new(host, 0, load));
        let failed = grant.shrunk_from.is_some() && blocks > before;
        if failed {
            grant.insufficient = Some(grant.insufficient.unwrap_or(0).max(before));
        }
        grant.changed(blocks, fill_intervals(blocks.saturating_sub(before), fill_rate));
        if let Some(served) = serves.filter(|served| !grant.serves.contains(served)) {
            grant.serves.push(served);
            grant.rate_at_grant = load;
            grant.removal = Default::default();
        }
        if kind == DecisionKind::Removed {
            grant.serves.retain(|served| *served == id);
            grant.removal = Default::default();
        }
    }

    fn host_free(&self, host: &HostSpec) -> Bytes {
        let used = self
            .volumes
            .values()
            .filter(|volume| volume.grant.as_ref().is_some_and(|grant| grant.host == host.id))
            .map(|volume| volume.blocks() * volume.block_bytes())
            .sum();
        host.capacity.saturating_sub(Bytes(used))
    }

    fn choose_host(&self, id: VolumeId, blocks: u64) -> Option<HostId> {
        let volume = &self.volumes[&id];
        if self.hosts.is_empty() {
            return Some(volume.spec.host);
        }
        let free: Vec<Bytes> = self.hosts.iter().map(|host| self.host_free(host)).collect();
        host::choose(volume.spec.host, Bytes(blocks * volume.block_bytes()), &self.hosts, &free)
    }

    /// What of a growth fits on its host.
    fn fit_host(&self, id: VolumeId, host: HostId, before: u64, blocks: u64) -> u64 {
        let volume = &self.volumes[&id];
        match self.hosts.iter().find(|spec| spec.id == host) {
            Some(spec) => blocks.min(before + self.host_free(spec).get() / volume.block_bytes()),
            None => blocks,
        }
    }

    fn warm_up(&self, id: VolumeId, observed: &VolumeObservation, blocks: u64, utilisation: f64) -> Warmup {
        let volume = &self.volumes[&id];
        let earlier: Vec<u64> = volume.earlier_zones.front().cloned().unwrap_or_default();
        let input = WarmupInput {
            zones: &observed.zones,
            accesses: observed.zone_accesses,
            earlier: &earlier,
            zone_blocks: observed.zone_blocks,
            volume_blocks: volume.spec.block_size.blocks_for(volume.spec.size),
            block_bytes: volume.block_bytes(),
            room_blocks: blocks.saturating_sub(observed.cache.used_blocks),
            utilisation,
        };
        warmup::decide(&input, &self.config.warmup)
    }

    /// Tells what was decided; the rate in bytes per second, 0 for none.
    fn tell_warm_up(&self, at: Nanos, id: VolumeId, warmup: Warmup, outcome: &mut StepOutcome) -> u64 {
        let name = &self.volumes[&id].spec.name;
        match warmup {
            Warmup::Load { zones, bytes, bytes_per_second, overlap } => {
                let facts = vec![
                    Fact::number("zones", zones.len() as f64, ""),
                    Fact::number("size", bytes as f64, "bytes"),
                    Fact::number("rate", bytes_per_second as f64, "bytes/s"),
                    Fact::number("overlap", overlap, ""),
                ];
                let summary = format!("{} of hot zones are loaded into the cache of {name}", Bytes(bytes));
                outcome.decisions.push(self.decision(at, id, DecisionKind::PrewarmStarted, summary, facts));
                outcome.actions.push(Action::Prewarm { volume: id, zones, bytes_per_second });
                bytes_per_second
            }
            Warmup::Skip(reason) => {
                let summary = format!("nothing is loaded into the cache of {name}: {reason}");
                let facts = vec![Fact::text("reason", reason.to_string())];
                outcome.decisions.push(self.decision(at, id, DecisionKind::PrewarmSkipped, summary, facts));
                0
            }
        }
    }

    /// Orders again what did not come into force.
    fn repeat(&mut self, outcome: &mut StepOutcome) {
        for (id, volume) in &mut self.volumes {
            if let Some(grant) = &mut volume.grant
                && grant.mismatch >= REPEAT_AFTER
                && grant.age >= REPEAT_AFTER
            {
                grant.mismatch = 0;
                outcome.actions.push(Action::SetQuota {
                    volume: *id,
                    host: grant.host,
                    blocks: grant.blocks,
                });
            }
        }
    }

    fn settle_states(&mut self) {
        let mut filling: BTreeMap<VolumeId, bool> = BTreeMap::new();
        for volume in self.volumes.values() {
            if let Some(grant) = &volume.grant {
                for served in &grant.serves {
                    *filling.entry(*served).or_default() |=
                        grant.age <= grant.guard.min(self.config.feedback.guard_max);
                }
            }
        }
        for (id, volume) in &mut self.volumes {
            if volume.violated_since.is_some() {
                volume.state = match filling.get(id) {
                    None => VolumeState::Violating,
                    Some(true) => VolumeState::Acting,
                    Some(false) => VolumeState::Correcting,
                };
            }
        }
    }
}

/// The scenes of a step, by origin.
#[derive(Default)]
struct Scenes {
    list: Vec<Scene>,
    by_origin: BTreeMap<OriginId, usize>,
    members: BTreeMap<OriginId, Vec<VolumeId>>,
    /// Whether a number of servers was fitted in this step.
    fitted: bool,
}

/// The worst excess of some volumes; negative infinity for none.
fn worst_of(scene: &Scene, excess: &[f64], served: &[VolumeId]) -> f64 {
    served
        .iter()
        .filter_map(|id| scene.place(*id))
        .map(|place| excess[place])
        .fold(f64::NEG_INFINITY, f64::max)
}

fn objective_facts(
    objective: &Objective,
    last: Option<Judgement>,
    assessment: Assessment,
    config: &ControlConfig,
) -> Vec<Fact> {
    let nonconforming = match assessment {
        Assessment::Kept => 0,
        Assessment::Suspected { nonconforming } | Assessment::Violated { nonconforming } => nonconforming,
    };
    let mut facts = vec![
        Fact::text("objective", objective.to_string()),
        Fact::number("bound", objective.bound(), objective.unit()),
        Fact::number("windows_nonconforming", nonconforming as f64, ""),
        Fact::number("windows_looked_at", config.violation.windows as f64, ""),
    ];
    if let Some(last) = last {
        facts.extend(last.value.map(|value| Fact::number("observed", value, objective.unit())));
        facts.push(Fact::number("excess", last.excess, ""));
        facts.push(Fact::number("requests", last.requests as f64, ""));
    }
    facts
}
