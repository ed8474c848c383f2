//! Ordering: the master cuts every wish to the capacity, then quotas and warm-ups become actions, the shrinking first.

use super::grant::Grant;
use super::master::{self, Want};
use super::placing::HostsUsed;
use super::scenes::Scenes;
use super::volume::Volume;
use super::{Change, Controller};
use crate::decision::{Action, Decision, DecisionKind, Fact, StepOutcome};
use crate::feedback::fill_intervals;
use crate::inventory::{HostId, VolumeId};
use crate::observation::{Observation, VolumeObservation};
use crate::performance::OVERLOADED;
use crate::windows::Windows;
use forebay_units::{Bytes, Nanos};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Intervals after which a quota that is not in force is ordered again (ours).
const REPEAT_AFTER: usize = 3;

/// What a volume is to have: what it asks for now, or what it has at stake in contended memory if that is more and nothing speaks against it.
pub(super) fn wanted(volume: &Volume, change: Option<&Change>) -> u64 {
    let asked = change.map_or(volume.blocks(), |change| change.blocks);
    match (&volume.stake, change.map(|change| change.kind)) {
        (_, Some(DecisionKind::Removed | DecisionKind::NothingHelps)) | (None, _) => asked,
        // Its maximum may have been lowered since.
        (Some(stake), _) => stake.wants(asked).min(volume.spec.blocks_max()).max(asked),
    }
}

/// A quota that the master granted.
pub(super) struct Order {
    pub(super) id: VolumeId,
    pub(super) before: u64,
    pub(super) blocks: u64,
    /// How busy the origin is.
    pub(super) utilisation: f64,
}

impl Controller {
    /// Lets the master cut all wants to the capacity, and orders what changed: shrinking first.
    pub(super) fn apply(
        &mut self,
        observation: &Observation,
        observed: &BTreeMap<VolumeId, &VolumeObservation>,
        scenes: &mut Scenes,
        mut changes: BTreeMap<VolumeId, Change>,
        outcome: &mut StepOutcome,
    ) {
        // What was taken over may be more than there is now.
        if changes.is_empty() && self.granted() <= self.capacity {
            return;
        }
        self.cut_to_hosts(observation.at, &mut changes, outcome);
        let ids: Vec<VolumeId> = self
            .volumes
            .iter()
            .filter(|(id, volume)| volume.grant.is_some() || changes.contains_key(id))
            .map(|(id, _)| *id)
            .collect();
        let asked = |volumes: &BTreeMap<VolumeId, Volume>, id: VolumeId| {
            changes.get(&id).map_or(volumes[&id].blocks(), |change| change.blocks)
        };
        let wanted = |volumes: &BTreeMap<VolumeId, Volume>| -> Vec<(VolumeId, u64)> {
            ids.iter().map(|id| (*id, wanted(&volumes[id], changes.get(id)))).collect()
        };
        let bytes = |volumes: &BTreeMap<VolumeId, Volume>, wanted: &[(VolumeId, u64)]| -> u128 {
            let bytes =
                |&(id, blocks): &(VolumeId, u64)| u128::from(blocks) * u128::from(volumes[&id].block_bytes());
            wanted.iter().map(bytes).sum()
        };
        let mut wants = wanted(&self.volumes);
        let short = bytes(&self.volumes, &wants) > u128::from(self.capacity.get());
        if short {
            self.contend(&wants, |id| changes.contains_key(&id), scenes);
            wants = wanted(&self.volumes);
        }
        let total = bytes(&self.volumes, &wants);
        let wants: Vec<Want> = wants
            .into_iter()
            .map(|(id, blocks)| {
                let scene = short.then(|| self.scene_place(scenes, id));
                let volume = &self.volumes[&id];
                let change = changes.get(&id);
                let served = volume
                    .grant
                    .iter()
                    .flat_map(|grant| grant.serves.iter().copied())
                    .chain(change.iter().flat_map(|change| change.serves.iter().copied()));
                let priority = served
                    .filter_map(|id| self.volumes.get(&id))
                    .flat_map(|served| served.spec.objectives.iter().map(|objective| objective.priority))
                    .max()
                    .unwrap_or(0);
                Want {
                    volume: id,
                    block_bytes: volume.block_bytes(),
                    blocks,
                    goal: change.map_or(0, |change| change.wanted),
                    is_asked: blocks == asked(&self.volumes, id),
                    stake: volume.stake.clone().filter(|_| short),
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
            // What it does not ask for now is no news.
            let is_cut = blocks < asked(&self.volumes, id);
            if is_cut {
                outcome.decisions.push(self.tell_short(observation.at, want, blocks, total));
            }
            if let Some(volume) = self.volumes.get_mut(&id)
                && let Some(grant) = &mut volume.grant
                && is_cut
            {
                (grant.limited_until, grant.tried) = (self.step + self.config.retry_after as u64, None);
            }
            if blocks != before {
                orders.push((id, before, blocks));
            } else if let Some(change) = changes.get(&id)
                && let Some(grant) = &mut self.volumes.get_mut(&id).expect("wanted").grant
            {
                grant.serve(&change.serves);
                grant.is_spare &= change.is_spare;
            }
        }
        // The largest first: what is small finds room elsewhere more easily.
        orders.sort_by_key(|&(id, before, blocks)| (blocks > before, Reverse(self.growth(id, blocks)), id));
        let mut used = self.hosts_used();
        for (id, before, blocks) in orders {
            let change = changes.remove(&id);
            let utilisation = self.utilisation(observation, scenes, id);
            let order = Order { id, before, blocks, utilisation };
            let was = self.volumes[&id].placed();
            self.order(observation, observed.get(&id).copied(), order, change, &used, outcome);
            used.change(was, self.volumes[&id].placed());
        }
        debug_assert_eq!(used, self.hosts_used());
    }

    /// How busy a volume's origin is: as it says itself, else by the model, else taken as busy.
    pub(super) fn utilisation(&self, observation: &Observation, scenes: &Scenes, id: VolumeId) -> f64 {
        let origin = self.volumes[&id].spec.origin;
        let said =
            observation.origins.iter().find(|said| said.origin == origin).and_then(|said| said.utilisation);
        let modelled = || scenes.by_origin.get(&origin).map(|&index| scenes.list[index].utilisation);
        said.or_else(modelled).unwrap_or(1.0)
    }

    /// Cuts what is to grow to what its host has room for, so that what grows in vain is told once in a while, and others may help in its place.
    fn cut_to_hosts(
        &mut self,
        at: Nanos,
        changes: &mut BTreeMap<VolumeId, Change>,
        outcome: &mut StepOutcome,
    ) {
        let free = self.hosts_free();
        for (&id, change) in changes {
            let volume = &self.volumes[&id];
            let (before, room) = (volume.blocks(), self.room_blocks_in(id, &free));
            if before == 0 || change.blocks <= room.max(before) {
                continue;
            }
            let (size, most) =
                (Bytes(change.blocks * volume.block_bytes()), Bytes(room * volume.block_bytes()));
            let mut facts = vec![
                Fact::number("wanted", change.blocks as f64, "blocks"),
                Fact::number("given", room as f64, "blocks"),
            ];
            let sums = self.rooms(&mut facts);
            let summary = format!("the cache of {} gets {most} of {size}: {sums}", volume.spec.name);
            outcome.decisions.push(self.decision(at, id, DecisionKind::CapacityShort, summary, facts));
            change.blocks = room;
            let limited = self.step + self.config.retry_after as u64;
            let grant = self.volumes.get_mut(&id).and_then(|volume| volume.grant.as_mut());
            grant.expect("a cache that grows was granted").limited_until = limited;
        }
    }

    fn tell_short(&self, at: Nanos, want: &Want, blocks: u64, total: u128) -> Decision {
        let name = &self.volumes[&want.volume].spec.name;
        let mut facts = vec![
            Fact::number("wanted", want.blocks as f64, "blocks"),
            Fact::number("given", blocks as f64, "blocks"),
            Fact::number("wanted_by_all", total as f64, "bytes"),
            Fact::number("capacity", self.capacity.as_f64(), "bytes"),
        ];
        let cost = |blocks| want.stake.as_ref().and_then(|stake| stake.cost(blocks, |_| 1.0));
        for (name, blocks) in [("cost_without", 0), ("cost_given", blocks), ("cost_wanted", want.blocks)] {
            facts.extend(cost(blocks).map(|cost| Fact::number(name, cost, "")));
        }
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
        mut order: Order,
        change: Option<Change>,
        used: &HostsUsed,
        outcome: &mut StepOutcome,
    ) {
        let (id, before) = (order.id, order.before);
        let placed = self.volumes[&id].grant.as_ref().filter(|grant| grant.blocks > 0);
        let host = placed.map(|grant| grant.host).or_else(|| self.choose_host(id, order.blocks, used));
        let Some(host) = host else {
            outcome.decisions.push(self.tell_no_host(observation.at, &order));
            return;
        };
        // Others may have taken room in this very step.
        if order.blocks > before {
            order.blocks = self.fit_host(id, order.blocks, used);
        }
        if order.blocks == before {
            return;
        }
        let Change { blocks, kind, summary, facts, serves, is_spare, ratio, wanted, kept_after } =
            self.ordered(&order, change);
        outcome.decisions.push(self.decision(observation.at, id, kind, summary, facts));
        outcome.actions.push(Action::SetQuota { volume: id, host, blocks });
        let fill_rate = self.order_loading(observation, observed, &order, outcome);
        let load = self.load_with(id, &serves);
        let volume = self.volumes.get_mut(&id).expect("an ordered volume is registered");
        if blocks == 0 {
            volume.grant = None;
            return;
        }
        // After a small step what was seen before it still tells of the load.
        if volume.grant.is_none() || blocks.abs_diff(before) * 10 > before {
            volume.steady = 0;
        }
        // Ours: what is assumed of the windows' noise is what the margin leaves room for, one window in twenty beyond it.
        let windows = Windows::assumed(self.config.sizing_margin.max(0.01) / 1.645);
        let grant = volume.grant.get_or_insert_with(|| Grant::new(host, load, windows, self.step));
        let failed = grant.shrunk_from.is_some() && blocks > before;
        if failed {
            grant.insufficient = Some(grant.insufficient.unwrap_or(0).max(before));
        }
        // What waited at the origin until now is answered late in the interval after the fill.
        let overloaded = blocks > before && order.utilisation >= OVERLOADED;
        let fill = fill_intervals(blocks.saturating_sub(before), fill_rate);
        grant.changed(blocks, fill, usize::from(overloaded), ratio);
        (grant.wanted, grant.kept_after, grant.is_spare) = (wanted, kept_after, is_spare);
        grant.is_own = true;
        if grant.serve(&serves) {
            grant.rate_at_grant = load;
            grant.removal = Default::default();
        }
        if kind == DecisionKind::Removed {
            grant.serves.retain(|served| *served == id);
            grant.removal = Default::default();
        }
    }

    fn tell_no_host(&self, at: Nanos, order: &Order) -> Decision {
        let mut facts = vec![Fact::number("size", order.blocks as f64, "blocks")];
        let (size, sums) = (self.growth(order.id, order.blocks), self.rooms(&mut facts));
        let name = &self.volumes[&order.id].spec.name;
        let summary = format!("no host has {size} for the cache of {name}: {sums}");
        self.decision(at, order.id, DecisionKind::NothingHelps, summary, facts)
    }

    /// The change as it is ordered: what was asked for, where it goes that way, or what others leave of it.
    fn ordered(&self, order: &Order, change: Option<Change>) -> Change {
        let &Order { id, before, blocks, .. } = order;
        let volume = &self.volumes[&id];
        let grows = blocks > before;
        let (kind, why) = match grows {
            true => {
                (DecisionKind::Grown, "gets back what it needed before: others need less of the memory now")
            }
            false => (DecisionKind::Shrunk, "gives way to others that violate more without it"),
        };
        let facts = vec![
            Fact::number("size_before", before as f64, "blocks"),
            Fact::number("size_after", blocks as f64, "blocks"),
        ];
        let name = &volume.spec.name;
        let left = Change::new(blocks, kind, format!("the cache of {name} {why}"), facts);
        let Some(change) = change else { return Change { is_spare: volume.is_spare(), ..left } };
        let ratio = change.ratio.filter(|_| change.blocks == blocks);
        let kept_after = change.kept_after.filter(|&kept| kept < blocks);
        if (change.blocks > before) == grows {
            return Change { blocks, ratio, kept_after, ..change };
        }
        let Change { serves, is_spare, wanted, .. } = change;
        Change { serves, is_spare, wanted, ratio, kept_after, ..left }
    }

    /// Requests per second of all whom a cache serves, and of `more`.
    fn load_with(&self, id: VolumeId, more: &[VolumeId]) -> f64 {
        let serves = self.volumes[&id].grant.iter().flat_map(|grant| &grant.serves);
        let served: BTreeSet<VolumeId> = serves.chain(more).copied().collect();
        let served = served.iter().filter_map(|id| self.volumes.get(id));
        served.map(|served| served.recent(self.config.recent_intervals).rate()).sum()
    }

    /// Takes a cache over that another controller granted, or a person ordered meanwhile, and that is in force: its size is corrected as that of any other, and what
    /// passes the capacity, which may have been more then, is taken back with the next interval. Unknown volumes are ignored.
    pub fn take_over(&mut self, id: VolumeId, host: HostId, blocks: u64) {
        let (margin, step) = (self.config.sizing_margin, self.step);
        let Some(volume) = self.volumes.get_mut(&id).filter(|volume| volume.blocks() != blocks) else {
            return;
        };
        if blocks == 0 {
            volume.grant = None;
            return;
        }
        let blocks = blocks.min(volume.spec.blocks_max());
        let assumed = || Grant::new(host, 0.0, Windows::assumed(margin.max(0.01) / 1.645), step);
        let grant = volume.grant.get_or_insert_with(assumed);
        grant.changed(blocks, 0, 0, None);
        (grant.is_own, grant.was_there) = (false, true);
        grant.serve(&[id]);
    }

    /// Says where a volume's cache is in fact, if it is anywhere: whoever made it may have had to go elsewhere than was chosen; and how large it could be at most, there or
    /// elsewhere. Unknown volumes are ignored.
    pub fn located(&mut self, id: VolumeId, host: Option<HostId>, most: Bytes) {
        let Some(volume) = self.volumes.get_mut(&id) else { return };
        volume.room_blocks = Some(most.get() / volume.block_bytes());
        if let (Some(grant), Some(host)) = (&mut volume.grant, host) {
            grant.host = host;
        }
    }

    /// Says why the cache that was ordered for a volume is not being made for now, where it is not. Unknown volumes are ignored.
    pub fn hindered(&mut self, id: VolumeId, why: Option<String>) {
        if let Some(volume) = self.volumes.get_mut(&id) {
            volume.hindered = why;
        }
    }

    /// Orders again what did not come into force.
    pub(super) fn repeat(&mut self, outcome: &mut StepOutcome) {
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
}

#[cfg(test)]
mod tests {
    use super::super::contention::Stake;
    use super::*;
    use crate::config::ControlConfig;
    use crate::inventory::{OriginId, VolumeSpec};
    use crate::observation::OriginObservation;

    /// As of a controller that is started anew with less memory on its hosts.
    #[test]
    fn what_is_taken_over_is_cut_to_the_capacity() {
        let config = ControlConfig { chunk_bytes: 1 << 20, ..ControlConfig::default() };
        let mut controller = Controller::new(config, Bytes::mib(10), Vec::new(), Vec::new()).unwrap();
        let ids = [VolumeId(0), VolumeId(1)];
        for id in ids {
            let minimum = if id == ids[1] { Bytes::mib(1) } else { Bytes::ZERO };
            let spec = VolumeSpec { id, size: Bytes::gib(1), minimum, ..VolumeSpec::any() };
            controller.register(spec).unwrap();
            controller.take_over(id, HostId(0), Bytes::mib(8).get() / 4096);
        }
        assert_eq!(controller.granted(), Bytes::mib(16));
        let interval = Nanos::secs(10);
        let volumes = ids.iter().map(|id| VolumeObservation::idle(*id, interval)).collect();
        let outcome =
            controller.step(&Observation { at: interval, interval, volumes, ..Observation::default() });
        assert!(controller.granted() <= Bytes::mib(10), "{}", controller.granted());
        assert!(controller.volumes[&ids[1]].blocks() >= 256, "less than it is guaranteed");
        let shrinks = |action: &Action| matches!(action, Action::SetQuota { blocks, .. } if *blocks < 2048);
        assert!(outcome.actions.iter().any(shrinks), "{outcome:?}");
        assert!(outcome.decisions.iter().any(|decision| decision.kind == DecisionKind::CapacityShort));
    }

    #[test]
    fn what_is_at_stake_is_kept_up_to_the_maximum_and_not_when_the_cache_is_removed() {
        let spec = |maximum| VolumeSpec { maximum, ..VolumeSpec::any() };
        let mut volume = Volume::new(spec(None));
        let change = |kind| Change::new(10, kind, String::new(), Vec::new());
        let shrinks = change(DecisionKind::Shrunk);
        assert_eq!(wanted(&volume, Some(&shrinks)), 10);
        // Less than 100 blocks has cost it ten times its bound.
        let mut stake = Stake::new(100, 10_000, 0);
        stake.weigh(1, 10, [0], |_, blocks| if blocks < 100 { 10.0 } else { 0.0 });
        volume.stake = Some(stake);
        assert_eq!(wanted(&volume, Some(&shrinks)), 100);
        assert_eq!(wanted(&volume, Some(&change(DecisionKind::Removed))), 10);
        volume.spec = spec(Some(Bytes::kib(160)));
        assert_eq!(wanted(&volume, Some(&shrinks)), 40);
    }

    /// Three volumes with caches of 100 blocks each.
    fn three() -> Controller {
        let mut controller =
            Controller::new(ControlConfig::default(), Bytes::mib(64), Vec::new(), Vec::new()).unwrap();
        for id in (1..=3).map(VolumeId) {
            controller.register(VolumeSpec { id, ..VolumeSpec::any() }).unwrap();
            controller.take_over(id, HostId(0), 100);
        }
        controller
    }

    fn grant(controller: &mut Controller, id: u32) -> &mut Grant {
        controller.volumes.get_mut(&VolumeId(id)).unwrap().grant.as_mut().unwrap()
    }

    /// Orders these sizes; `said` is how busy the origin is, if it says so.
    fn ordered(controller: &mut Controller, sizes: &[(u32, u64)], said: Option<f64>) -> Vec<(u32, u64)> {
        let change = |&(id, blocks): &(u32, u64)| {
            let kind = if blocks > 100 { DecisionKind::Grown } else { DecisionKind::Shrunk };
            (VolumeId(id), Change::new(blocks, kind, String::new(), Vec::new()))
        };
        let origins = vec![OriginObservation { origin: OriginId(1), utilisation: said }];
        let observation = Observation { interval: Nanos::secs(1), origins, ..Observation::default() };
        let changes = sizes.iter().map(change).collect();
        let mut outcome = StepOutcome::default();
        controller.apply(&observation, &BTreeMap::new(), &mut Scenes::default(), changes, &mut outcome);
        let quota = |action: &Action| match action {
            Action::SetQuota { volume, blocks, .. } => Some((volume.0, *blocks)),
            _ => None,
        };
        outcome.actions.iter().filter_map(quota).collect()
    }

    /// So that what is there at any moment never exceeds the capacity.
    #[test]
    fn what_shrinks_is_ordered_before_what_grows_and_the_largest_growth_comes_first() {
        let mut controller = three();
        let sizes = [(1, 300), (2, 500), (3, 10)];
        assert_eq!(ordered(&mut controller, &sizes, None), [(3, 10), (2, 500), (1, 300)]);
    }

    #[test]
    fn what_was_seen_before_a_step_of_a_tenth_still_tells_of_the_load_and_before_a_larger_one_does_not() {
        let steady = |blocks: u64| {
            let mut controller = three();
            controller.volumes.get_mut(&VolumeId(1)).unwrap().steady = 5;
            ordered(&mut controller, &[(1, blocks)], None);
            controller.volumes[&VolumeId(1)].steady
        };
        assert_eq!([89, 90, 110, 111].map(steady), [0, 5, 5, 0]);
    }

    #[test]
    fn what_waited_is_awaited_only_where_a_cache_grows_before_an_origin_that_is_overloaded() {
        let drain = |blocks: u64, said: Option<f64>| {
            let mut controller = three();
            ordered(&mut controller, &[(1, blocks)], said);
            grant(&mut controller, 1).drain
        };
        // An origin that says nothing, and that nothing is known of, is taken for busy.
        let seen = [(150, Some(1.0)), (150, Some(0.3)), (150, None), (50, Some(1.0))];
        assert_eq!(seen.map(|(blocks, said)| drain(blocks, said)), [1, 0, 1, 0]);
    }

    #[test]
    fn a_size_that_was_shrunk_to_and_has_to_grow_again_did_not_suffice() {
        let insufficient = |shrunk_from: Option<u64>, blocks: u64| {
            let mut controller = three();
            grant(&mut controller, 1).shrunk_from = shrunk_from;
            ordered(&mut controller, &[(1, blocks)], None);
            grant(&mut controller, 1).insufficient
        };
        assert_eq!(insufficient(Some(200), 150), Some(100));
        assert_eq!(insufficient(None, 150), None);
        assert_eq!(insufficient(Some(200), 50), None);
    }

    #[test]
    fn what_is_left_of_a_cache_that_is_taken_back_is_for_its_own_volume_alone() {
        let mut controller = three();
        grant(&mut controller, 1).serves = vec![VolumeId(1), VolumeId(2)];
        let change = Change::new(10, DecisionKind::Removed, String::new(), Vec::new());
        let observation = Observation { interval: Nanos::secs(1), ..Observation::default() };
        let (changes, mut outcome) = ([(VolumeId(1), change)].into(), StepOutcome::default());
        controller.apply(&observation, &BTreeMap::new(), &mut Scenes::default(), changes, &mut outcome);
        assert_eq!(
            (grant(&mut controller, 1).blocks, &grant(&mut controller, 1).serves[..]),
            (10, &[VolumeId(1)][..])
        );
    }

    #[test]
    fn a_quota_that_is_not_in_force_is_ordered_again_every_three_intervals() {
        let repeated = |mismatch: usize, age: usize| {
            let mut controller = three();
            (grant(&mut controller, 1).mismatch, grant(&mut controller, 1).age) = (mismatch, age);
            let mut count = || {
                let mut outcome = StepOutcome::default();
                controller.repeat(&mut outcome);
                outcome.actions.len()
            };
            [count(), count()]
        };
        assert_eq!(repeated(3, 3), [1, 0]);
        // It takes a while until what has just been ordered is in force.
        assert_eq!([repeated(2, 9), repeated(3, 2)], [[0, 0]; 2]);
    }

    #[test]
    fn loading_stops_where_a_cache_is_taken_back_and_goes_on_where_it_shrinks() {
        let stopped = |blocks: u64, prewarming: bool| {
            let mut observed = VolumeObservation::idle(VolumeId(1), Nanos::secs(1));
            observed.cache.prewarming = prewarming;
            let order = Order { id: VolumeId(1), before: 100, blocks, utilisation: 0.5 };
            let observation = Observation { interval: Nanos::secs(1), ..Observation::default() };
            let mut outcome = StepOutcome::default();
            three().order_loading(&observation, Some(&observed), &order, &mut outcome);
            outcome.actions == [Action::CancelPrewarm { volume: VolumeId(1) }]
        };
        assert_eq!(
            [(0, true), (0, false), (50, true)].map(|(blocks, loads)| stopped(blocks, loads)),
            [true, false, false]
        );
    }

    #[test]
    fn what_is_taken_over_keeps_to_the_maximum_and_what_is_known_already_is_no_change() {
        let mut controller = three();
        controller.volumes.get_mut(&VolumeId(1)).unwrap().spec.maximum = Some(Bytes(40 * 4096));
        controller.take_over(VolumeId(1), HostId(0), 200);
        assert_eq!(controller.volumes[&VolumeId(1)].blocks(), 40);
        grant(&mut controller, 2).age = 7;
        controller.take_over(VolumeId(2), HostId(0), 100);
        assert_eq!(grant(&mut controller, 2).age, 7);
        controller.take_over(VolumeId(2), HostId(0), 0);
        assert!(controller.volumes[&VolumeId(2)].grant.is_none());
    }

    #[test]
    fn a_cache_is_where_whoever_made_it_says() {
        let mut controller = three();
        controller.located(VolumeId(1), Some(HostId(3)), Bytes::mib(1));
        assert_eq!(grant(&mut controller, 1).host, HostId(3));
        controller.located(VolumeId(1), None, Bytes::mib(1));
        assert_eq!(grant(&mut controller, 1).host, HostId(3));
    }

    #[test]
    fn what_is_given_is_told_as_what_it_is_and_what_was_predicted_of_another_size_is_no_part_of_it() {
        let asks = |blocks: u64| {
            let change = Change::new(300, DecisionKind::Grown, "it grows".to_owned(), Vec::new());
            let change =
                Change { ratio: Some(0.5), kept_after: Some(250), serves: vec![VolumeId(2)], ..change };
            let order = Order { id: VolumeId(1), before: 100, blocks, utilisation: 0.5 };
            let given = three().ordered(&order, Some(change));
            assert_eq!((given.blocks, &given.serves[..]), (blocks, &[VolumeId(2)][..]));
            (given.kind, given.summary == "it grows", given.ratio, given.kept_after)
        };
        assert_eq!(asks(300), (DecisionKind::Grown, true, Some(0.5), Some(250)));
        assert_eq!(asks(260), (DecisionKind::Grown, true, None, Some(250)));
        assert_eq!(asks(250), (DecisionKind::Grown, true, None, None));
        // Others are worse off without the memory: what asked to grow has to shrink.
        assert_eq!(asks(50), (DecisionKind::Shrunk, false, None, None));
    }

    #[test]
    fn a_cache_of_spare_memory_that_is_wanted_as_it_is_is_a_cache_like_any_other_and_none_becomes_spare_so() {
        let is_spare = |was: bool, change_is: bool| {
            let mut controller = three();
            grant(&mut controller, 1).is_spare = was;
            let change = Change::new(100, DecisionKind::Grown, String::new(), Vec::new());
            let changes = [(VolumeId(1), Change { is_spare: change_is, ..change })].into();
            let observation = Observation { interval: Nanos::secs(1), ..Observation::default() };
            let mut outcome = StepOutcome::default();
            controller.apply(&observation, &BTreeMap::new(), &mut Scenes::default(), changes, &mut outcome);
            assert!(outcome.actions.is_empty());
            grant(&mut controller, 1).is_spare
        };
        assert_eq!(
            [(true, false), (true, true), (false, true)].map(|(was, is)| is_spare(was, is)),
            [false, true, false]
        );
    }

    #[test]
    fn a_size_that_is_ordered_is_its_own_until_somebody_else_gives_another() {
        let mut controller = three();
        let id = VolumeId(1);
        let before = grant(&mut controller, 1).blocks;
        let change = Change::new(before / 2, DecisionKind::Shrunk, String::new(), Vec::new());
        let observation = Observation { interval: Nanos::secs(1), ..Observation::default() };
        let mut outcome = StepOutcome::default();
        let changes = [(id, change)].into();
        assert!(!grant(&mut controller, 1).is_own);
        controller.apply(&observation, &BTreeMap::new(), &mut Scenes::default(), changes, &mut outcome);
        assert!(outcome.actions.len() == 1 && grant(&mut controller, 1).is_own, "{:?}", outcome.actions);
        controller.take_over(id, HostId(0), before / 2);
        assert!(grant(&mut controller, 1).is_own, "that is what was ordered");
        controller.take_over(id, HostId(0), before);
        assert!(!grant(&mut controller, 1).is_own);
    }
}
