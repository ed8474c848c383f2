//! Loading: what is loaded into a cache before it is asked for.

use super::Controller;
use super::ordering::Order;
use super::scenes::Scenes;
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
        if blocks > before {
            let warmup = observed.map(|observed| self.warm_up(id, observed, blocks, utilisation));
            let rate = warmup
                .map(|warmup| self.tell_warm_up(observation.at, id, warmup, "in the last peak", outcome));
            return self.filled_per_interval(id, rate.unwrap_or(0));
        }
        if observed.is_some_and(|observed| observed.cache.prewarming) && blocks == 0 {
            outcome.actions.push(Action::CancelPrewarm { volume: id });
            let summary = format!("loading for {} stops: its cache is taken back", volume.spec.name);
            let stopped = DecisionKind::PrewarmCancelled;
            outcome.decisions.push(self.decision(observation.at, id, stopped, summary, Vec::new()));
        }
        self.filled_per_interval(id, 0)
    }

    /// The blocks that come into a cache in an interval, by misses or by loading at so many bytes per second, whatever is more.
    fn filled_per_interval(&self, id: VolumeId, bytes_per_second: u64) -> f64 {
        let volume = &self.volumes[&id];
        let missed = volume.recent(self.config.recent_intervals).miss_rate * self.interval_s;
        missed.max(bytes_per_second as f64 * self.interval_s / volume.block_bytes() as f64)
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

    /// Says that a volume's cache is another one than before, or is not known to be the same: an appliance took the place of one that died, or that left a drained host, or this controller
    /// was started anew. With the next step that observes it, what the one before held is loaded, unless it is there. A cache that was never in place is loaded when it is granted; unknown volumes
    /// are ignored.
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
        let is_anew = |id: &VolumeId| {
            let grant = self.volumes.get(id).and_then(|volume| volume.grant.as_ref());
            grant.is_some_and(|grant| grant.made_anew)
        };
        let in_place = observed.values().filter(|seen| seen.cache.quota_blocks > 0);
        let anew: Vec<&VolumeObservation> = in_place.filter(|seen| is_anew(&seen.volume)).copied().collect();
        for seen in anew {
            let id = seen.volume;
            // What grew with this step is loaded already.
            let loads = |action: &Action| matches!(action, Action::Prewarm { volume, .. } if *volume == id);
            let is_loaded = outcome.actions.iter().any(loads);
            let utilisation = self.utilisation(observation, scenes, id);
            let warmup = if is_loaded { None } else { self.warm_up_again(seen, utilisation) };
            let rate = warmup.map(|warmup| self.tell_warm_up(observation.at, id, warmup, "before", outcome));
            let fills = rate
                .map(|rate| fill_intervals(self.volumes[&id].blocks(), self.filled_per_interval(id, rate)));
            let volume = self.volumes.get_mut(&id).expect("it has a grant");
            let grant = volume.grant.as_mut().expect("made anew");
            grant.made_anew = false;
            if let Some(fills) = fills {
                volume.steady = 0;
                grant.emptied(fills);
            }
        }
    }

    /// What to load into a cache that was made in the place of another; `None` where that is in it, as who is started anew finds it.
    fn warm_up_again(&self, seen: &VolumeObservation, utilisation: f64) -> Option<Warmup> {
        let volume = &self.volumes[&seen.volume];
        let grant = volume.grant.as_ref()?;
        let peak = volume.past.newest_peak().filter(|peak| peak.zone_accesses > 0);
        // Of one that was taken over it is not known.
        let known = Some(grant.held).filter(|held| *held > 0).or_else(|| Some(peak?.blocks));
        let held = known.unwrap_or(grant.blocks).min(grant.blocks);
        if 2 * seen.cache.used_blocks >= held {
            return None;
        }
        let heat = match peak {
            Some(peak) => {
                // Who is started anew has seen no other zones; that they changed meanwhile nothing says.
                let earlier = volume.earlier_zones.front().cloned();
                let earlier = earlier.unwrap_or_else(|| peak.zones.iter().map(|zone| zone.zone).collect());
                Heat {
                    resident: peak.was_resident_of(held),
                    curve: volume.curve.as_deref(),
                    ..Heat::of_peak(peak, earlier)
                }
            }
            None => self.heat_now(seen.volume, seen),
        };
        Some(self.decide_warm_up(seen.volume, seen, &heat, (grant.blocks, None, utilisation)))
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

    fn learning(controller: &mut Controller) -> &mut usize {
        &mut controller.volumes.get_mut(&VOLUME).unwrap().grant.as_mut().unwrap().learning
    }

    #[test]
    fn what_a_cache_held_is_loaded_into_the_one_that_takes_its_place() {
        let listed = BlockRange { first: 7_000, end: 7_800 };
        let mut controller = serving(900, Some(listed));
        *learning(&mut controller) = 0;
        controller.made_anew(VOLUME);
        let (loaded, told) = step(&mut controller, 3).expect("something is loaded");
        assert_eq!(loaded, [(7_000, 800)]);
        assert!(told.contains("of what it held before is loaded"), "{told}");
        // Once; and until it has filled its windows say little.
        assert_eq!(step(&mut controller, 400), None);
        assert!(*learning(&mut controller) > 0);
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
