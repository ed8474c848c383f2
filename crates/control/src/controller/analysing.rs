//! Analysing: what interferes with a violated volume, and which caches would mend it at the least cost.

use super::flooding::VAIN_INTERVALS;
use super::party::Party;
use super::placing::HostsFree;
use super::scene::Scene;
use super::scenes::Scenes;
use super::{Change, Controller};
use crate::cacheability::{self, Character, NotCacheable};
use crate::decision::{Alternative, Decision, DecisionKind, Fact, StepOutcome};
use crate::feedback::Law;
use crate::interference::Interference;
use crate::inventory::VolumeId;
use crate::performance::OVERLOADED;
use crate::removal::Removed;
use crate::sizing::{candidates, useful_max};
use crate::solutions::{Solution, Tenant, rank};
use forebay_units::{Bytes, Nanos};
use std::collections::BTreeMap;

/// The least part of the excess that a cache which cannot keep the objective must take away (ours).
const BEST_EFFORT_MIN: f64 = 0.2;

/// Solutions that a decision tells at most (ours).
const ALTERNATIVES_MAX: usize = 8;

/// A violated volume, and what there is to mend it with.
struct Plight<'a> {
    /// Its own among the parties of the scene.
    place: usize,
    judged: &'a [(usize, Interference)],
    open: &'a Open,
    /// Blocks of every party once what was decided so far is done.
    planned: &'a [u64],
    free: Bytes,
    hosts_free: &'a HostsFree,
}

fn is_reached(solutions: &[Solution]) -> bool {
    solutions.first().is_some_and(|best| best.reached)
}

/// What can be said of caches for the parties of a scene.
pub(super) struct Open {
    /// Whether each can be cached, or cached further.
    parties: Vec<bool>,
    /// Caches of which more is to come, in words.
    awaited: Vec<String>,
    /// The curve of one that may matter is not known yet.
    pub(super) curve_missing: bool,
    /// Nothing but reuse or memory keeps the violated one from being cached.
    pub(super) may_help: bool,
}

impl Controller {
    /// Answers violations that nothing serves yet, or that what serves them cannot mend.
    pub(super) fn analyse(
        &mut self,
        at: Nanos,
        violated: &[VolumeId],
        scenes: &mut Scenes,
        changes: &mut BTreeMap<VolumeId, Change>,
        outcome: &mut StepOutcome,
    ) {
        // By whom it is served. What is found for one that is violated changes that of itself alone.
        let mut serving: BTreeMap<VolumeId, Vec<VolumeId>> = BTreeMap::new();
        for (cached, volume) in self.volumes.iter().filter(|_| !violated.is_empty()) {
            for served in volume.grant.iter().flat_map(|grant| &grant.serves) {
                serving.entry(*served).or_default().push(*cached);
            }
        }
        let mut analyses = 0;
        for &id in violated {
            if analyses == self.config.analyses_max {
                break;
            }
            let volume = &self.volumes[&id];
            // What was found in calmer times says nothing of a burst.
            let bursts = || volume.grant.is_none() && volume.is_bursting();
            if self.step < volume.analyse_from && !bursts() {
                continue;
            }
            // What serves it is still filling or may still grow: feedback has the word. What its host has no room for does not come.
            let served = serving.get(&id).into_iter().flatten().any(|cached| {
                let other = &self.volumes[cached];
                other.grant.as_ref().is_some_and(|grant| {
                    let can_grow = || self.room_blocks(*cached) > other.blocks();
                    let guard = grant.guard.min(self.config.feedback.guard_max);
                    !grant.is_spare
                        && grant.blocks > other.blocks_min()
                        && (grant.age <= guard + self.config.feedback.grow_after
                            || (grant.effort.is_some_and(|effort| effort.intervals < VAIN_INTERVALS)
                                && can_grow())
                            || changes
                                .get(cached)
                                .is_some_and(|change| change.blocks <= other.blocks() || can_grow()))
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
        let planned = self.planned(scene, changes);
        if let Some(served) = self.under_way(at, victim, scene, &planned, changes, outcome) {
            self.join(victim, &served, changes);
            return;
        }
        let judged = self.judge_neighbours(scene, place);
        outcome.decisions.push(self.tell_interference(at, victim, scene, &judged));

        let open = self.open_to_caches(at, victim, scene, &judged, outcome);
        let ordered: u64 = (planned.iter().zip(&scene.parties))
            .map(|(blocks, party)| {
                blocks.saturating_sub(party.blocks) * self.volumes[&party.id].block_bytes()
            })
            .sum();
        let hosts_free = self.hosts_free();
        let plight = Plight {
            place,
            judged: &judged,
            open: &open,
            planned: &planned,
            free: self.capacity.saturating_sub(self.claimed()).saturating_sub(Bytes(ordered)),
            hosts_free: &hosts_free,
        };
        let (solutions, limited) = self.solutions(scene, &plight);
        let is_limited = limited.is_some() && is_reached(&solutions);
        let scene = if is_limited { limited.as_ref().unwrap_or(scene) } else { scene };
        let before = scene.excess(&planned)[place];
        let best = solutions.first().filter(|best| {
            best.reached || before.max(0.0) - best.excess >= BEST_EFFORT_MIN * before.max(0.05)
        });
        let tracks = self.volumes[&victim].tracks.iter();
        let observed = tracks.filter_map(|track| track.last).map(|last| last.excess);
        let mut facts = vec![
            Fact::number("observed_excess", observed.fold(f64::NEG_INFINITY, f64::max), ""),
            Fact::number("predicted_excess_now", before, ""),
            Fact::number("goal_excess", -self.config.sizing_margin, ""),
            Fact::number("origin_utilisation", scene.utilisation, ""),
            Fact::number("origin_servers", scene.origin.servers, ""),
            Fact::text("model", scene.basis),
            Fact::number("free", self.free_told(plight.free, &hosts_free).as_f64(), "bytes"),
        ];
        let alternatives = self.alternatives(scene, &solutions, best.is_some(), plight.free);
        let name = self.volumes[&victim].spec.name.clone();
        let Some(best) = best else {
            if let Some(Removed { volume, blocks }) = self.missed(victim, changes) {
                self.give_back(victim, volume, blocks, changes);
                return;
            }
            let why = self.why_nothing_helps(scene, &plight, &solutions, before);
            let mut decision = self.nothing_helps(at, victim, &open, why, facts);
            decision.alternatives = alternatives;
            outcome.decisions.push(decision);
            self.do_without(victim, limited.as_ref().unwrap_or(scene), place, &planned, &open, changes);
            return;
        };
        facts.push(Fact::number("predicted_excess", best.excess, ""));
        facts.push(Fact::number("cost", best.cost.as_f64(), "bytes"));
        let promise = match (best.reached, best.sizes.len()) {
            (true, 1) => "is predicted to keep",
            (true, _) => "are predicted to keep",
            (false, 1) => "cannot keep, but comes nearest to,",
            (false, _) => "cannot keep, but come nearest to,",
        };
        let summary = format!("{} {promise} the objective of {name}", self.describe(scene, best));
        let mut decision = self.decision(at, victim, DecisionKind::SolutionChosen, summary, facts);
        decision.alternatives = alternatives;
        outcome.decisions.push(decision);
        self.adopt(victim, scene, &planned, best, changes);
    }

    /// Caches that are being ordered or filled are for `victim`, too.
    fn join(&mut self, victim: VolumeId, served: &[VolumeId], changes: &mut BTreeMap<VolumeId, Change>) {
        for id in served {
            match changes.get_mut(id) {
                Some(change) => change.serves.push(victim),
                None => {
                    let grant = self.volumes.get_mut(id).and_then(|volume| volume.grant.as_mut());
                    let grant = grant.expect("a cache that fills was granted");
                    grant.serve(&[victim]);
                    grant.is_spare = false;
                }
            }
        }
    }

    /// What mends it, the best first, and the scene with limited neighbours, if that was asked: it holds of the solutions if they reach the goal then.
    fn solutions(&self, scene: &Scene, plight: &Plight<'_>) -> (Vec<Solution>, Option<Scene>) {
        let solutions = self.ranked(scene, plight, false);
        if is_reached(&solutions) {
            return (solutions, None);
        }
        // Neighbours whose load was not seen to matter share the origin all the same: better than nothing.
        let is_wider = plight.judged.iter().any(|(_, judged)| !judged.is_likely());
        let solutions = if is_wider { self.ranked(scene, plight, true) } else { solutions };
        if is_reached(&solutions) {
            return (solutions, None);
        }
        // A load of which some is turned away looks like a loop, which would ask for more whatever it is given, and yet its rate may be limited elsewhere.
        let Some(limited) = scene.with_limited_neighbours(plight.place) else { return (solutions, None) };
        let others = self.ranked(&limited, plight, true);
        (if is_reached(&others) { others } else { solutions }, Some(limited))
    }

    /// Caches for the violated one and the neighbours that matter to it, or (`wide`) may.
    fn ranked(&self, scene: &Scene, plight: &Plight<'_>, wide: bool) -> Vec<Solution> {
        let Plight { place, judged, open, planned, free, hosts_free } = *plight;
        let eligible = |other: usize| {
            open.parties[other]
                && (other == place
                    || judged.iter().any(|(at, judged)| *at == other && (wide || judged.is_likely())))
        };
        let tenants: Vec<Tenant> = (0..scene.parties.len())
            .map(|at| self.tenant(scene, at, planned[at], eligible(at).then_some(hosts_free)))
            .collect();
        let fits = |sizes: &[(usize, u64)]| {
            let sizes: Vec<(VolumeId, u64)> =
                sizes.iter().map(|&(at, blocks)| (scene.parties[at].id, blocks)).collect();
            self.hosts_hold(hosts_free, &sizes)
        };
        rank(place, &tenants, -self.config.sizing_margin, free, fits, scene.trials(planned))
    }

    fn alternatives(
        &self,
        scene: &Scene,
        solutions: &[Solution],
        is_chosen: bool,
        free: Bytes,
    ) -> Vec<Alternative> {
        let alternative = |(rank, solution): (usize, &Solution)| Alternative {
            description: self.describe(scene, solution),
            cost: solution.cost,
            predicted_excess: if solution.excess.is_finite() { solution.excess } else { 1e9 },
            chosen: rank == 0 && is_chosen,
            reason: self.reason(scene, solution, rank, free),
        };
        solutions.iter().take(ALTERNATIVES_MAX).enumerate().map(alternative).collect()
    }

    /// Which of the parties that may matter to `victim` can be cached (further), and why others cannot.
    fn open_to_caches(
        &self,
        at: Nanos,
        victim: VolumeId,
        scene: &Scene,
        judged: &[(usize, Interference)],
        outcome: &mut StepOutcome,
    ) -> Open {
        let mut open = Open {
            parties: vec![false; scene.parties.len()],
            awaited: Vec::new(),
            curve_missing: false,
            may_help: true,
        };
        for (party, cacheable) in scene.parties.iter().zip(&mut open.parties) {
            let relevant =
                party.id == victim || judged.iter().any(|(other, _)| scene.parties[*other].id == party.id);
            if !relevant {
                continue;
            }
            // Where what there is is not filled, more would help nobody yet, and what can be cached no further may be mended by what is still to come.
            let filled = party.used() * 20 >= party.blocks * 19 || self.config.feedback.law == Law::Plain;
            let awaited = self.awaited(party.id).filter(|_| !filled);
            match self.check_cacheable(scene, party) {
                Ok(()) => *cacheable = filled,
                Err(reason) => {
                    open.curve_missing |= matches!(reason, NotCacheable::CurveUnknown { .. });
                    open.may_help &= party.id != victim
                        || matches!(reason, NotCacheable::NoReuse { .. } | NotCacheable::NoMemory);
                    if awaited.is_none() {
                        outcome.decisions.push(self.tell_not_cacheable(at, party.id, victim, &reason));
                    }
                }
            }
            open.awaited.extend(awaited);
        }
        open
    }

    fn tell_not_cacheable(
        &self,
        at: Nanos,
        id: VolumeId,
        victim: VolumeId,
        reason: &NotCacheable,
    ) -> Decision {
        let volume = &self.volumes[&id];
        let reason = match (reason, &volume.forbidden) {
            (NotCacheable::Forbidden, Some(why)) => why.clone(),
            _ => reason.to_string(),
        };
        let summary = format!("a cache cannot help {}: {reason}", volume.spec.name);
        let violated = &self.volumes[&victim].spec.name;
        let facts = vec![Fact::text("reason", reason), Fact::text("violated", violated)];
        self.decision(at, id, DecisionKind::NotCacheable, summary, facts)
    }

    /// Why none of the solutions is one; `None` where a cache that is still to come is awaited.
    fn why_nothing_helps(
        &self,
        scene: &Scene,
        plight: &Plight<'_>,
        solutions: &[Solution],
        before: f64,
    ) -> Option<String> {
        let Plight { open, planned, hosts_free, .. } = *plight;
        if !open.awaited.is_empty() {
            return None;
        }
        let most = |at: usize| self.tenant(scene, at, planned[at], Some(hosts_free)).blocks_max;
        let could_grow = || (0..scene.parties.len()).any(|at| open.parties[at] && most(at) > planned[at]);
        let why = match (solutions.first(), open.curve_missing) {
            (_, true) => "the curves of what could be cached are not known yet".to_owned(),
            (Some(best), _) => {
                format!(
                    "the best that a cache can do leaves it {:.0} % beyond its objective",
                    best.excess * 100.0
                )
            }
            (None, _) if !could_grow() => "no workload on its origin can be cached any further".to_owned(),
            (None, _) if before <= -self.config.sizing_margin => {
                format!(
                    "the model says that what there is keeps it, {:.0} % within its bound",
                    -before * 100.0
                )
            }
            (None, _) => "the model says that a cache of any size changes next to nothing".to_owned(),
        };
        Some(why)
    }

    /// Says that no cache mends the violation of `victim`, and why, or what it waits for.
    fn nothing_helps(
        &self,
        at: Nanos,
        victim: VolumeId,
        open: &Open,
        why: Option<String>,
        mut facts: Vec<Fact>,
    ) -> Decision {
        let name = &self.volumes[&victim].spec.name;
        let Some(why) = why else {
            facts.extend(open.awaited.iter().map(|awaited| Fact::text("cache", awaited)));
            let summary = format!("{}; {name} waits for that", open.awaited.join(" and "));
            return self.decision(at, victim, DecisionKind::CacheAwaited, summary, facts);
        };
        let why = match self.hosts.is_empty() {
            true => why,
            false => format!("{why} ({})", self.rooms(&mut facts)),
        };
        facts.push(Fact::text("reason", why.clone()));
        let summary = format!("no cache mends the violation of {name}: {why}");
        self.decision(at, victim, DecisionKind::NothingHelps, summary, facts)
    }

    /// The blocks of every party once what this step has decided so far is done.
    fn planned(&self, scene: &Scene, changes: &BTreeMap<VolumeId, Change>) -> Vec<u64> {
        let planned = |party: &Party| {
            let wanted = self.volumes[&party.id].grant.as_ref().map_or(0, |grant| grant.wanted);
            let ordered = changes.get(&party.id).map_or(0, |change| change.blocks.max(change.wanted));
            ordered.max(wanted).max(party.blocks)
        };
        scene.parties.iter().map(planned).collect()
    }

    /// The parties whose caches take away a good part of what the party at `place` would be beyond its objective without
    /// them.
    pub(super) fn relieving(&self, scene: &Scene, place: usize, planned: &[u64]) -> Vec<VolumeId> {
        let with = scene.excess(planned)[place].max(0.0);
        let relieves = |&at: &usize| {
            let mut blocks = planned.to_vec();
            blocks[at] = 0;
            let without = scene.excess(&blocks)[place].max(0.0);
            without - with >= BEST_EFFORT_MIN * without.max(0.05)
        };
        let cached = (0..planned.len()).filter(|&at| at != place && planned[at] > 0);
        cached.filter(relieves).map(|at| scene.parties[at].id).collect()
    }

    /// The caches on this origin that are ordered in this step or still fill, if they are predicted to keep the objective
    /// of `victim` once they are full: then it needs no cache of its own. `None` where they are not, or there are none.
    fn under_way(
        &self,
        at: Nanos,
        victim: VolumeId,
        scene: &Scene,
        planned: &[u64],
        changes: &BTreeMap<VolumeId, Change>,
        outcome: &mut StepOutcome,
    ) -> Option<Vec<VolumeId>> {
        let fills = |party: &Party| {
            let volume = &self.volumes[&party.id];
            changes.get(&party.id).is_some_and(|change| change.blocks > party.blocks)
                || (party.blocks > 0 && volume.is_filling(&self.config.feedback))
        };
        let filling: Vec<&Party> = scene.parties.iter().filter(|party| fills(party)).collect();
        let place = scene.place(victim)?;
        let excess = scene.excess(planned)[place];
        if filling.is_empty() || excess > 0.0 {
            return None;
        }
        let names: Vec<&str> =
            filling.iter().map(|party| self.volumes[&party.id].spec.name.as_str()).collect();
        let name = &self.volumes[&victim].spec.name;
        let (caches, are) = if names.len() == 1 { ("cache", "is") } else { ("caches", "are") };
        let summary = format!(
            "the {caches} of {}, once full, {are} predicted to keep the objective of {name} too",
            names.join(" and of ")
        );
        let facts = vec![
            Fact::number("predicted_excess_now", scene.excess(&scene.blocks_used())[place], ""),
            Fact::number("predicted_excess", excess, ""),
        ];
        outcome.decisions.push(self.decision(at, victim, DecisionKind::SolutionChosen, summary, facts));
        Some(filling.iter().map(|party| party.id).collect())
    }

    /// The cache of a volume in words, where there is more to come of it: it is still to be made, or it fills.
    fn awaited(&self, id: VolumeId) -> Option<String> {
        let volume = &self.volumes[&id];
        let grant = volume.grant.as_ref().filter(|grant| grant.blocks > 0)?;
        let (name, size) = (&volume.spec.name, Bytes(grant.blocks * volume.block_bytes()));
        let host = self.hosts.iter().find(|host| host.id == grant.host);
        let place = host.map_or_else(String::new, |host| format!(" on {}", host.name));
        if let Some(step) = grant.awaited_since {
            if let Some(why) = &volume.hindered {
                return Some(format!("the cache of {name} ({size}) is not made for now: {why}"));
            }
            let since = Nanos::from_secs_f64((self.step - step) as f64 * self.interval_s);
            return Some(format!(
                "the cache of {name} ({size}{place}) is being made ready, for {since} so far"
            ));
        }
        let fills = volume.is_filling(&self.config.feedback) || volume.becomes_more();
        let used = Bytes(volume.used_blocks * volume.block_bytes());
        fills.then(|| format!("the cache of {name} ({used} of {size}{place}) is being filled"))
    }

    /// Interference of the busiest neighbours with the party at `place`.
    fn judge_neighbours(&self, scene: &Scene, place: usize) -> Vec<(usize, Interference)> {
        let mut neighbours: Vec<usize> = (0..scene.parties.len())
            .filter(|&other| other != place && scene.parties[other].recent.origin_rate() > 0.0)
            .collect();
        let busy = |other: usize| scene.parties[other].recent.origin_rate();
        neighbours.sort_by(|&a, &b| busy(b).total_cmp(&busy(a)).then(a.cmp(&b)));
        neighbours.truncate(self.config.neighbours_max);
        let ids: Vec<VolumeId> = neighbours.iter().map(|&other| scene.parties[other].id).collect();
        neighbours.into_iter().zip(self.judge_interference(scene.parties[place].id, &ids)).collect()
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
                Interference::Correlated(correlation) => {
                    ("its load and the latency go together", Some(correlation))
                }
                Interference::Stepped(_) => ("took one step together", None),
                Interference::SharedOrigin => ("shares the origin", None),
                Interference::Absent(correlation) => {
                    ("its load and the latency do not go together", Some(correlation))
                }
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
                facts.extend(
                    correlation.granger.map(|granger| Fact::number("granger", granger, "deviations")),
                );
            }
            if let Interference::Stepped(step) = judged {
                facts.push(Fact::number("step_ago", step.ago as f64, "intervals"));
                facts.push(Fact::number("lag", step.lag as f64, "intervals"));
                facts.push(Fact::number("load_before", step.load_before, "requests/s"));
                facts.push(Fact::number("load_after", step.load_after, "requests/s"));
                facts.push(Fact::number("latency_ratio", step.latency_ratio, ""));
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

    fn check_cacheable(&self, scene: &Scene, party: &Party) -> Result<(), NotCacheable> {
        let volume = &self.volumes[&party.id];
        let recent = &party.recent;
        let reads = recent.hit_rate + recent.miss_rate;
        let character = Character {
            read_share: if recent.rate() > 0.0 { reads / recent.rate() } else { 1.0 },
            curve: party.curve(),
            blocks_max: self.blocks_ceiling(party.id),
            quota_blocks: party.blocks,
            refused_blocks: volume.refused_blocks,
            curve_accesses: volume.curve_accesses,
            invalidation_share: (party.blocks > 0 && recent.filled > 0.0)
                .then(|| recent.invalidated / recent.filled),
            // An origin that is asked for more than it can serve does not even serve what it prefetches.
            sequential_share: if scene.utilisation < OVERLOADED { volume.sequential_share } else { 0.0 },
            may_cache: volume.spec.may_cache,
        };
        cacheability::check(&character, &self.config.cacheability)
    }

    /// A party that has `blocks` as solutions know it: one that is eligible may have a cache on what hosts can free.
    fn tenant(&self, scene: &Scene, at: usize, blocks: u64, eligible_on: Option<&HostsFree>) -> Tenant {
        let party = &scene.parties[at];
        let volume = &self.volumes[&party.id];
        let eligible = eligible_on.is_some();
        let curve = party.curve().filter(|_| eligible);
        let useful = curve.map_or(0, |curve| useful_max(curve, self.blocks_ceiling(party.id)));
        let room = eligible_on.map_or(0, |free| self.room_blocks_in(party.id, free));
        let blocks_max = useful.min(room).max(blocks);
        Tenant {
            eligible,
            blocks,
            blocks_max,
            chunk_blocks: volume.chunk_blocks(self.config.chunk_bytes),
            block_bytes: volume.block_bytes(),
            peaking: eligible && volume.is_peaking(&party.recent),
            stable: !eligible || volume.is_stable(&party.recent),
            candidates: curve.map_or_else(Vec::new, |curve| candidates(curve, blocks_max)),
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
}

#[cfg(test)]
mod tests;
