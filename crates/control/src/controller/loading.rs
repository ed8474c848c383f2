//! Loading: what is loaded into a cache before it is asked for.

use super::Controller;
use super::ordering::Order;
use super::scenes::Scenes;
use super::volume::Volume;
use crate::decision::{Action, DecisionKind, Fact, StepOutcome};
use crate::feedback::fill_intervals;
use crate::foresight::Peak;
use crate::inventory::VolumeId;
use crate::observation::{Observation, VolumeObservation, ZoneHeat};
use crate::warmup::{self, Warmup, WarmupInput};
use forebay_locality::MissRatioCurve;
use forebay_units::{BlockRange, Bytes, Nanos};
use std::collections::BTreeMap;

/// What tells which blocks a cache will be asked for; its fields are those of [`WarmupInput`].
struct Heat<'a> {
    zones: &'a [ZoneHeat],
    accesses: u64,
    earlier: Vec<u64>,
    resident: Option<&'a [BlockRange]>,
    curve: Option<&'a MissRatioCurve>,
}

impl<'a> Heat<'a> {
    /// What was hot in a time of need, of whose load no curve is known.
    fn of_peak(peak: &'a Peak, earlier: Vec<u64>) -> Heat<'a> {
        let (zones, accesses, resident) = (&peak.zones, peak.zone_accesses, peak.was_resident());
        Heat { zones, accesses, earlier, resident, curve: None }
    }
}

impl Controller {
    /// Has what grew loaded, where that helps, and what is taken back no longer; the blocks that come into it in an interval.
    pub(super) fn order_loading(
        &self,
        observation: &Observation,
        observed: Option<&VolumeObservation>,
        order: &Order,
        outcome: &mut StepOutcome,
    ) -> f64 {
        let &Order { id, before, blocks, utilisation } = order;
        let volume = &self.volumes[&id];
        let interval_s = observation.interval.as_secs_f64().max(1e-9);
        let by_misses = volume.recent(self.config.recent_intervals).miss_rate * interval_s;
        if blocks > before {
            let warmup = observed.map(|observed| self.warm_up(id, observed, blocks, utilisation));
            let rate = warmup
                .map(|warmup| self.tell_warm_up(observation.at, id, warmup, "in the last peak", outcome));
            let loaded = |rate: u64| rate as f64 * interval_s / volume.block_bytes() as f64;
            return rate.map_or(by_misses, |rate| by_misses.max(loaded(rate)));
        }
        if observed.is_some_and(|observed| observed.cache.prewarming) && blocks == 0 {
            outcome.actions.push(Action::CancelPrewarm { volume: id });
            let summary = format!("loading for {} stops: its cache is taken back", volume.spec.name);
            let stopped = DecisionKind::PrewarmCancelled;
            outcome.decisions.push(self.decision(observation.at, id, stopped, summary, Vec::new()));
        }
        by_misses
    }

    /// What to load into a volume's cache that grows to so many `blocks`.
    pub(super) fn warm_up(
        &self,
        id: VolumeId,
        observed: &VolumeObservation,
        blocks: u64,
        utilisation: f64,
    ) -> Warmup {
        let volume = &self.volumes[&id];
        // Before a peak what is hot now says nothing: what was hot in the last ones does.
        let foreseen = volume.foreseen.as_ref().filter(|_| self.awaits_peak(id));
        let rules = &self.config.foresight;
        let within_s = foreseen.map(|foreseen| {
            let buckets = foreseen.from.saturating_sub(volume.past.now());
            buckets as f64 * rules.bucket_intervals as f64 * self.interval_s
        });
        let heat = match foreseen {
            Some(foreseen) => Heat::of_peak(&foreseen.peak, foreseen.earlier_zones.clone()),
            None => self.heat_now(id, observed),
        };
        self.decide_warm_up(id, observed, &heat, (blocks, within_s, utilisation))
    }

    /// The cache of a volume is another one than before, with nothing in it, or its controller does not know what it holds: an appliance dies, or leaves a host that is drained, and the
    /// next one takes its place. What it is asked for was seen by the one before, so with the next step that is loaded. A first one is loaded when it is granted, and of none nothing is; unknown
    /// volumes are ignored.
    pub fn made_anew(&mut self, id: VolumeId) {
        if let Some(grant) = self.volumes.get_mut(&id).and_then(|volume| volume.grant.as_mut()) {
            grant.made_anew = grant.was_there;
        }
    }

    /// Has what caches held loaded into those that were made in their place.
    pub(super) fn reload(
        &mut self,
        observation: &Observation,
        observed: &BTreeMap<VolumeId, &VolumeObservation>,
        scenes: &Scenes,
        outcome: &mut StepOutcome,
    ) {
        let is_anew = |volume: &Volume| volume.grant.as_ref().is_some_and(|grant| grant.made_anew);
        let anew = self.volumes.iter().filter(|(_, volume)| is_anew(volume));
        let ids: Vec<VolumeId> = anew.map(|(id, _)| *id).collect();
        for id in ids {
            let is_in_place = |seen: &&&VolumeObservation| seen.cache.quota_blocks > 0;
            let Some(&seen) = observed.get(&id).filter(is_in_place) else { continue };
            let volume = &self.volumes[&id];
            let peak = volume.past.newest_peak().filter(|peak| peak.zone_accesses > 0);
            let grant = volume.grant.as_ref().expect("made anew");
            // Of one that was taken over it is not known.
            let held = Some(grant.held).filter(|held| *held > 0);
            let held = held.or_else(|| Some(peak?.blocks)).unwrap_or(grant.blocks).min(grant.blocks);
            let blocks = grant.blocks;
            // Who is started anew finds the one that was there; and what grew with this step is loaded already.
            let is_there = 2 * seen.cache.used_blocks >= held;
            let loads = |action: &Action| matches!(action, Action::Prewarm { volume, .. } if *volume == id);
            let mut rate = None;
            if !is_there && !outcome.actions.iter().any(loads) {
                let utilisation = self.utilisation(observation, scenes, id);
                // Who is started anew has seen none; that they changed meanwhile nothing says.
                let earlier = |peak: &Peak| {
                    let known = volume.earlier_zones.front().cloned();
                    known.unwrap_or_else(|| peak.zones.iter().map(|zone| zone.zone).collect())
                };
                let heat = peak.map_or_else(
                    || self.heat_now(id, seen),
                    |peak| Heat {
                        resident: peak.was_resident_of(held),
                        curve: volume.curve.as_deref(),
                        ..Heat::of_peak(peak, earlier(peak))
                    },
                );
                let warmup = self.decide_warm_up(id, seen, &heat, (blocks, None, utilisation));
                rate = Some(self.tell_warm_up(observation.at, id, warmup, "before", outcome));
            }
            let volume = self.volumes.get_mut(&id).expect("listed");
            volume.grant.as_mut().expect("made anew").made_anew = false;
            if let Some(rate) = rate {
                let loaded = rate as f64 * self.interval_s / volume.block_bytes() as f64;
                let missed = volume.recent(self.config.recent_intervals).miss_rate * self.interval_s;
                volume.steady = 0;
                let grant = volume.grant.as_mut().expect("made anew");
                grant.emptied(fill_intervals(blocks, loaded.max(missed)));
            }
        }
    }

    /// What is hot now.
    fn heat_now<'a>(&'a self, id: VolumeId, observed: &'a VolumeObservation) -> Heat<'a> {
        let volume = &self.volumes[&id];
        Heat {
            zones: &observed.zones,
            accesses: observed.zone_accesses,
            earlier: volume.earlier_zones.front().cloned().unwrap_or_default(),
            resident: None,
            curve: volume.curve.as_deref(),
        }
    }

    /// Decides by `heat` what is loaded into a cache of so many blocks, in so many seconds at most, from an origin that is so busy.
    fn decide_warm_up(
        &self,
        id: VolumeId,
        observed: &VolumeObservation,
        heat: &Heat<'_>,
        (blocks, within_s, utilisation): (u64, Option<f64>, f64),
    ) -> Warmup {
        let volume = &self.volumes[&id];
        let input = WarmupInput {
            zones: heat.zones,
            accesses: heat.accesses,
            earlier: &heat.earlier,
            zone_blocks: observed.zone_blocks,
            volume_blocks: volume.spec.block_size.blocks_for(volume.spec.size),
            block_bytes: volume.block_bytes(),
            resident: heat.resident,
            within_s,
            curve: heat.curve,
            room_blocks: blocks.saturating_sub(observed.cache.used_blocks),
            utilisation,
        };
        warmup::decide(&input, &self.config.warmup)
    }

    /// Tells what was decided, of a cache that held what is loaded at the time `held`; the rate in bytes per second, 0 for none.
    fn tell_warm_up(
        &self,
        at: Nanos,
        id: VolumeId,
        warmup: Warmup,
        held: &str,
        outcome: &mut StepOutcome,
    ) -> u64 {
        let name = &self.volumes[&id].spec.name;
        match warmup {
            Warmup::Load { zones, were_resident, bytes, bytes_per_second, overlap } => {
                let (unit, what) = if were_resident {
                    ("ranges", format!("what it held {held} is"))
                } else {
                    ("zones", "hot zones are".to_owned())
                };
                let facts = vec![
                    Fact::number(unit, zones.len() as f64, ""),
                    Fact::number("size", bytes as f64, "bytes"),
                    Fact::number("rate", bytes_per_second as f64, "bytes/s"),
                    Fact::number("overlap", overlap, ""),
                ];
                let summary = format!("{} of {what} loaded into the cache of {name}", Bytes(bytes));
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
}

#[cfg(test)]
mod tests {
    use super::super::grant::Grant;
    use super::*;
    use crate::config::ControlConfig;
    use crate::inventory::{HostId, VolumeSpec};
    use crate::observation::CacheObservation;
    use crate::windows::Windows;

    const VOLUME: VolumeId = VolumeId(0);
    const QUOTA: u64 = 1_000;

    /// A volume of a thousand zones of a hundred blocks with a cache of [`QUOTA`] that holds `held`, needed at a time in which the zones 3 and 5 were hot and the cache was seen to hold `listed`.
    fn serving(held: u64, listed: Option<BlockRange>) -> Controller {
        let mut controller =
            Controller::new(ControlConfig::default(), Bytes::mib(100), Vec::new(), Vec::new()).unwrap();
        controller
            .register(VolumeSpec { id: VOLUME, size: Bytes(100_000 * 4096), ..VolumeSpec::any() })
            .unwrap();
        let volume = controller.volumes.get_mut(&VOLUME).unwrap();
        let mut grant = Grant::new(HostId(0), 100.0, Windows::assumed(0.05), 0);
        grant.changed(QUOTA, 0, 0, None);
        grant.serve(&[VOLUME]);
        volume.grant = Some(grant);
        volume.earlier_zones.push_back(vec![3, 5]);
        let zones = [3, 5].map(|zone| ZoneHeat { zone, accesses: 500 }).to_vec();
        let peak = Peak::new(0, QUOTA, vec![VOLUME]);
        let resident = listed.map(|range| vec![range].into());
        volume.past.begin(Peak { zones, zone_accesses: 1_000, resident, load: 100.0, ..peak });
        if held > 0 {
            step(&mut controller, held);
        }
        controller
    }

    /// What is loaded after an interval in which the cache held so many blocks, and how that is told.
    fn step(controller: &mut Controller, used_blocks: u64) -> Option<(Vec<(u64, u64)>, String)> {
        let interval = Nanos::secs(1);
        let cache = CacheObservation { quota_blocks: QUOTA, used_blocks, ..CacheObservation::default() };
        let seen = VolumeObservation {
            cache,
            arrivals: 100,
            zone_blocks: 100,
            ..VolumeObservation::idle(VOLUME, interval)
        };
        let at = Nanos::secs(controller.step + 1);
        let outcome =
            controller.step(&Observation { at, interval, volumes: vec![seen], ..Observation::default() });
        let loaded = |action: &Action| match action {
            Action::Prewarm { zones, .. } => {
                Some(zones.iter().map(|zone| (zone.first_block, zone.blocks)).collect())
            }
            _ => None,
        };
        let told =
            outcome.decisions.iter().find(|decision| decision.kind == DecisionKind::PrewarmStarted).cloned();
        Some((outcome.actions.iter().find_map(loaded)?, told.expect("it is told").summary))
    }

    #[test]
    fn what_a_cache_held_is_loaded_into_the_one_that_takes_its_place() {
        let listed = BlockRange { first: 7_000, end: 7_800 };
        let mut controller = serving(900, Some(listed));
        controller.made_anew(VOLUME);
        let (loaded, told) = step(&mut controller, 3).expect("something is loaded");
        assert_eq!(loaded, [(7_000, 800)]);
        assert!(told.contains("of what it held before is loaded"), "{told}");
        // Once; and until it has filled its windows say little.
        assert_eq!(step(&mut controller, 400), None);
        assert!(controller.volumes[&VOLUME].grant.as_ref().unwrap().learning > 0);
    }

    #[test]
    fn hot_zones_are_loaded_where_what_it_held_was_listed_too_early() {
        let mut controller = serving(900, Some(BlockRange { first: 7_000, end: 7_300 }));
        controller.made_anew(VOLUME);
        let zones = vec![(300, 100), (500, 100)];
        let loaded = |told: Option<(Vec<(u64, u64)>, String)>| told.map(|(loaded, _)| loaded);
        assert_eq!(loaded(step(&mut controller, 3)), Some(zones.clone()));
        // What was listed is all that the cache held.
        let mut controller = serving(500, Some(BlockRange { first: 7_000, end: 7_300 }));
        controller.made_anew(VOLUME);
        assert_eq!(loaded(step(&mut controller, 3)), Some(vec![(7_000, 300)]));
        let mut controller = serving(900, None);
        controller.made_anew(VOLUME);
        assert_eq!(loaded(step(&mut controller, 3)), Some(zones));
    }

    #[test]
    fn nothing_is_loaded_into_a_first_cache_or_into_one_that_is_found_as_it_was() {
        let listed = BlockRange { first: 7_000, end: 7_800 };
        // What a first one is loaded with was ordered with it.
        let mut first = serving(0, Some(listed));
        first.made_anew(VOLUME);
        assert_eq!(step(&mut first, 3), None);
        // A controller that is started anew has not seen the appliance before.
        let mut found = serving(0, Some(listed));
        found.volumes.get_mut(&VOLUME).unwrap().grant = None;
        found.take_over(VOLUME, HostId(0), QUOTA);
        let mut emptied = found.clone();
        found.made_anew(VOLUME);
        assert_eq!(step(&mut found, 700), None);
        emptied.volumes.get_mut(&VOLUME).unwrap().earlier_zones.clear();
        emptied.made_anew(VOLUME);
        assert!(step(&mut emptied, 3).is_some());
        // Nothing became of it.
        let mut same = serving(900, Some(listed));
        assert_eq!(step(&mut same, 3), None);
    }
}
