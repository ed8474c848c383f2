//! Foreseeing: caches that are ready before they are needed, and what is remembered for that.
//!
//! What is loaded for a peak displaces nothing: of a cache that holds what is read now, and not then, a part is given up before, where the model says that nobody misses an objective by it.

use super::grant::Grant;
use super::past::intervals_between;
use super::scenes::Scenes;
use super::volume::Volume;
use super::{Change, Controller};
use crate::decision::{Action, Decision, DecisionKind, Fact, StepOutcome};
use crate::foresight::{Foreseen, ForesightRules, History, Peak, is_long};
use crate::inventory::VolumeId;
use crate::observation::VolumeObservation;
use crate::warmup::{Warmup, are_alike};
use forebay_units::Nanos;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Seasons looked for in one step: each costs some three milliseconds (ours).
pub(super) const SEASONS_PER_STEP: usize = 4;
/// Buckets after its expected beginning in which a peak may still come (ours).
const PATIENCE: u64 = 2;
/// Of a size that a peak was foreseen to need, one part in so many is given back in a season if it is spared (ours).
const SPARED: u64 = 40;
/// The part of what the last peak needed that is granted besides before the next, where zones are loaded whole, and where what the cache held is (ours).
const ZONES_SURPLUS_PART: u64 = 2;
const RESIDENT_SURPLUS_PART: u64 = 8;
/// Intervals between two lists of what a cache holds while a peak lasts, if a bucket is not shorter (ours).
const LIST_EVERY: u64 = 30;
/// Deviations of a window by which objectives must be kept without what is given up before a peak, as the model says, and at most its margin (ours).
const SURE: f64 = 3.0;
/// A size counts as needed while the load is at least this part of the highest of the peak (ours).
const PEAK_SHARE: f64 = 0.5;

/// What there was least of since a volume's cache was last needed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rested {
    /// The size of the cache.
    blocks: u64,
    /// The load, in requests per second.
    load: f64,
    /// The highest load of when it was needed, if that ended with the load, or with nothing heard of it; 0 if the law found a smaller cache to do.
    load_gone: f64,
    /// The bucket in which it was heard of again, if nothing was for one or more.
    heard_from: u64,
}

impl Volume {
    /// Intervals that went by since its history was counted last.
    pub(super) fn uncounted(&self, at: Nanos, every: Nanos) -> u64 {
        intervals_between(self.counted, at, every)
    }

    /// Takes into the history what went by up to `at`: the load, for as long as `heard` tells of it, and before it that nobody looked. Of whom nothing is heard
    /// that is taken in by the bucket, since he may be heard of later. Says whether a bucket was closed. Seasons are looked for by `may_seek` alone.
    fn count(
        &mut self,
        (at, every): (Nanos, Nanos),
        heard: Option<&VolumeObservation>,
        rules: &ForesightRules,
        may_seek: impl FnOnce() -> bool,
    ) -> bool {
        if heard.is_none() && self.past.is_empty() {
            return false;
        }
        let now = self.past.now();
        let counted = *self.counted.get_or_insert(Nanos(at.0.saturating_sub(every.0)));
        let went = self.uncounted(at, every);
        let told = heard.map_or(0, |seen| (seen.span.0.saturating_add(every.0 / 2) / every.0).max(1));
        let missing = went.saturating_sub(told);
        let is_long = is_long(missing, rules);
        if heard.is_none() && !is_long {
            return false;
        }
        if is_long {
            // Its need is over with this: it is one again if the load is still there.
            if let Some(peak) = self.past.open_peak() {
                let load_gone = peak.load;
                self.rested = Rested { blocks: self.blocks(), load: 0.0, load_gone, heard_from: 0 };
            }
            if !self.past.has_sought_season() && may_seek() {
                self.past.find_season();
            }
        }
        self.past.pass_as_known(missing, rules);
        if is_long {
            self.rested.heard_from = self.past.now();
        }
        let load = self.history.back().map_or(0.0, |last| last.arrival_rate);
        self.past.push_for(went - missing, load, rules);
        self.counted = Some(Nanos(counted.0.saturating_add(went.saturating_mul(every.0))));
        self.past.now() != now
    }
}

/// What is told of a peak that does not come.
fn absence(foreseen: &Foreseen, past: &History, rules: &ForesightRules) -> Vec<Fact> {
    let ago = |bucket: u64| past.now().saturating_sub(bucket) as f64;
    vec![
        Fact::number("foreseen_ago", ago(foreseen.at), "buckets"),
        Fact::number("expected_ago", ago(foreseen.from), "buckets"),
        Fact::number("lasts", (foreseen.until - foreseen.from) as f64, "buckets"),
        Fact::number("season", foreseen.period as f64, "buckets"),
        Fact::number("bucket", rules.bucket_intervals as f64, "intervals"),
        Fact::number("confidence", foreseen.confidence, ""),
        Fact::number("load", foreseen.load, "requests/s"),
        Fact::number("load_seen", past.highest_for(foreseen), "requests/s"),
    ]
}

impl Controller {
    /// Grants what is foreseen to be needed, and gives up waiting for what did not come.
    pub(super) fn foresee(
        &mut self,
        at: Nanos,
        observed: &BTreeMap<VolumeId, &VolumeObservation>,
        scenes: &mut Scenes,
        changes: &mut BTreeMap<VolumeId, Change>,
        outcome: &mut StepOutcome,
    ) {
        let rules = self.config.foresight;
        if !rules.enabled {
            return;
        }
        let (mut sought, mut absent, mut expecting, mut granted) = (0, Vec::new(), Vec::new(), Vec::new());
        let time = self.last.expect("a step has begun");
        for (id, volume) in &mut self.volumes {
            let seen = observed.get(id).copied();
            let may_seek = || {
                sought += 1;
                sought <= SEASONS_PER_STEP
            };
            if !volume.count(time, seen, &rules, may_seek) {
                continue;
            }
            let now = volume.past.now();
            if seen.is_none() {
                volume.foreseen.take_if(|foreseen| now >= foreseen.until);
                continue;
            }
            if volume.past.wants_season() && sought < SEASONS_PER_STEP {
                sought += 1;
                volume.past.find_season();
            }
            match &volume.foreseen {
                Some(foreseen) if now >= foreseen.until => volume.foreseen = None,
                Some(foreseen) if now >= foreseen.from + PATIENCE && !volume.past.has_come(foreseen) => {
                    let (until, facts) = (foreseen.until, absence(foreseen, &volume.past, &rules));
                    volume.past.was_wrong(until);
                    volume.foreseen = None;
                    absent.push((*id, facts));
                }
                _ => {}
            }
            if volume.foreseen.is_none() {
                volume.foreseen = volume.past.foresee(&rules);
            }
            let Some(foreseen) = volume.foreseen.as_ref().filter(|foreseen| now <= foreseen.from) else {
                continue;
            };
            if changes.contains_key(id) {
                continue;
            }
            // Looked at once a bucket: what is given up with this one is granted, and loaded, with the next.
            if now + 1 < foreseen.from && volume.room_made_for != Some(foreseen.from) {
                volume.room_made_for = Some(foreseen.from);
                expecting.push(*id);
            }
            // Its maximum may be another one since.
            let blocks = foreseen.peak.blocks.min(volume.spec.blocks_max());
            if blocks <= volume.blocks() {
                continue;
            }
            let facts = vec![
                Fact::number("size", blocks as f64, "blocks"),
                Fact::number("in", (foreseen.from - now) as f64, "buckets"),
                Fact::number("lasts", (foreseen.until - foreseen.from) as f64, "buckets"),
                Fact::number("season", foreseen.period as f64, "buckets"),
                Fact::number("bucket", rules.bucket_intervals as f64, "intervals"),
                Fact::number("confidence", foreseen.confidence, ""),
                Fact::number("load", foreseen.load, "requests/s"),
            ];
            let what = match volume.past.open_peak() {
                Some(_) => format!("a peak of {} is there that comes again and again", volume.spec.name),
                None => format!("a peak of {} is foreseen", volume.spec.name),
            };
            let summary = match volume.blocks() {
                0 => format!("{what}: its cache of last time is granted"),
                _ => format!("{what}: its cache grows to that of last time"),
            };
            let change = Change::new(blocks, DecisionKind::PeakForeseen, summary, facts);
            granted.push(*id);
            changes.insert(*id, Change { serves: foreseen.peak.serves.clone(), ..change });
        }
        for id in granted {
            // Zones are loaded whole: until it has found which of their blocks are hot, it needs more than a cache that had. Of what it held a little is cold by now. The law takes
            // back what is spared.
            let most = self.room_blocks(id).min(self.blocks_ceiling(id));
            let change = changes.get_mut(&id).expect("it was granted");
            let warmup = self.warm_up(id, observed[&id], change.blocks, 0.0);
            let is_known = matches!(warmup, Warmup::Load { were_resident: true, .. });
            let part = if is_known { RESIDENT_SURPLUS_PART } else { ZONES_SURPLUS_PART };
            change.blocks = (change.blocks + change.blocks / part).min(most).max(change.blocks);
        }
        for id in expecting {
            if let Some(change) = self.room_for_peak(id, observed[&id], scenes) {
                changes.insert(id, change);
            }
        }
        // Who has gone since is served by nobody.
        for change in changes.values_mut() {
            change.serves.retain(|served| self.volumes.contains_key(served));
        }
        outcome.decisions.extend(absent.into_iter().map(|(id, facts)| self.tell_absent(at, id, facts)));
    }

    /// Gives up what a cache holds beyond the room that the next peak's zones leave, where other zones are read now and whom it serves keep their objectives
    /// without that, as the model says.
    fn room_for_peak(
        &mut self,
        id: VolumeId,
        observed: &VolumeObservation,
        scenes: &mut Scenes,
    ) -> Option<Change> {
        let volume = &self.volumes[&id];
        let grant = volume.grant.as_ref()?;
        let served = grant.serves.clone();
        let margin = (SURE * grant.windows.deviation()).min(self.config.sizing_margin);
        let peak = &volume.foreseen.as_ref()?.peak;
        let (used, blocks) = (observed.cache.used_blocks, peak.blocks);
        let warmup = &self.config.warmup;
        let is_known = observed.zone_accesses >= warmup.accesses_min;
        if used == 0 || !is_known || are_alike(&observed.zones, observed.zone_accesses, &peak.zones, warmup) {
            return None;
        }
        let Warmup::Load { zones, .. } = self.warm_up(id, observed, blocks.saturating_add(used), 0.0) else {
            return None;
        };
        let wanted: u64 = zones.iter().map(|zone| zone.blocks).sum();
        let left = blocks.saturating_sub(wanted).max(volume.chunk_blocks(self.config.chunk_bytes));
        let left = left.max(volume.blocks_min());
        if left >= used {
            return None;
        }
        let (index, place) = self.scene_place(scenes, id);
        let scene = &scenes.list[index];
        let mut sizes = scene.blocks();
        sizes[place] = left;
        let excess = scene.trial(&sizes).worst(&scene.places(&served));
        if !(excess.is_finite() && excess <= -margin) {
            return None;
        }
        let facts = vec![
            Fact::number("size_before", used as f64, "blocks"),
            Fact::number("size_after", left as f64, "blocks"),
            Fact::number("zones", wanted as f64, "blocks"),
            Fact::number("predicted_excess", excess, ""),
        ];
        let name = &self.volumes[&id].spec.name;
        let summary = format!("the cache of {name} gives way to what its next peak reads");
        Some(Change::new(left, DecisionKind::Shrunk, summary, facts))
    }

    fn tell_absent(&self, at: Nanos, id: VolumeId, facts: Vec<Fact>) -> Decision {
        let summary = format!("the peak of {} that was foreseen does not come", self.volumes[&id].spec.name);
        self.decision(at, id, DecisionKind::PeakAbsent, summary, facts)
    }

    /// Whether the volume's cache waits for a peak: nothing that is seen before it says how large it should be.
    pub(super) fn awaits_peak(&self, id: VolumeId) -> bool {
        let volume = &self.volumes[&id];
        volume.foreseen.as_ref().is_some_and(|foreseen| volume.past.now() < foreseen.from)
    }

    /// The same, until a peak that is late would be given up.
    pub(super) fn keeps_for_peak(&self, id: VolumeId) -> bool {
        let volume = &self.volumes[&id];
        volume.foreseen.as_ref().is_some_and(|foreseen| volume.past.now() < foreseen.from + PATIENCE)
    }

    /// The size below which the volume's cache does not shrink while a peak lasts that was foreseen; 0 where there is none. What the first windows spare, with
    /// a cache that is warm and disks that have nothing to work off, says little of the rest of the peak: only a part that is small is tried in each season.
    pub(super) fn held_for_peak(&self, id: VolumeId) -> u64 {
        let volume = &self.volumes[&id];
        let lasts = |foreseen: &&Foreseen| {
            let now = volume.past.now();
            now < foreseen.until && (now < foreseen.from + PATIENCE || volume.past.is_there(foreseen))
        };
        let blocks = volume.foreseen.as_ref().filter(lasts).map_or(0, |foreseen| foreseen.peak.blocks);
        blocks - blocks / SPARED
    }

    /// Remembers which caches are needed, of which size, and what is hot meanwhile.
    ///
    /// A time of need begins with a grant, when a cache that had been let shrink doubles, or when the load that had gone comes back to a cache that was kept; it is
    /// over when the load or the cache is down to half of what it was.
    pub(super) fn remember(
        &mut self,
        at: Nanos,
        observed: &BTreeMap<VolumeId, &VolumeObservation>,
        outcome: &mut StepOutcome,
    ) {
        let rules = self.config.foresight;
        if !rules.enabled {
            return;
        }
        // What is found to be sustained began as many windows before.
        let found_after = self.config.violation.nonconforming;
        let ids: Vec<VolumeId> = self.volumes.keys().copied().collect();
        for id in ids {
            let volume = &self.volumes[&id];
            let needed = |grant: &&Grant| grant.blocks > volume.blocks_min() && !grant.is_spare;
            let Some(grant) = volume.grant.as_ref().filter(needed) else {
                let volume = self.volumes.get_mut(&id).expect("listed");
                volume.past.end();
                volume.rested = Rested::default();
                continue;
            };
            // What was heard of it last says nothing of now.
            if !observed.contains_key(&id) {
                continue;
            }
            let awaits = self.awaits_peak(id);
            let served = grant.serves.iter().filter_map(|served| self.volumes.get(served));
            let since = served.filter_map(|served| served.violated_since).min();
            let ago = since.map_or(0, |since| {
                (at.saturating_since(since).as_secs_f64() / self.interval_s).round() as usize + found_after
            });
            let (blocks, serves) = (grant.blocks, grant.serves.clone());
            let load = volume.recent(self.config.recent_intervals).arrival_rate;
            let newest = volume.history.back().map_or(0.0, |last| last.arrival_rate);
            // Volumes take turns.
            let every = LIST_EVERY.min(rules.bucket_intervals as u64);
            let lists = (self.step + u64::from(id.0)).is_multiple_of(every);
            let volume = self.volumes.get_mut(&id).expect("listed");
            if volume.past.open_peak().is_none() {
                let rested = &mut volume.rested;
                let is_high = |load: f64| load >= PEAK_SHARE * rested.load_gone;
                let is_back =
                    rested.load_gone > 0.0 && is_high(load) && is_high(newest) && load >= 2.0 * rested.load;
                if awaits || !is_back && blocks < 2 * rested.blocks {
                    (rested.blocks, rested.load) = (rested.blocks.min(blocks), rested.load.min(load));
                    continue;
                }
                let high = volume.history.iter().rev().take_while(|one| is_high(one.arrival_rate));
                let ago = if is_back { high.count().max(ago) } else { ago };
                let expected = volume.foreseen.as_ref().map(|foreseen| foreseen.from);
                let seen_from = || volume.past.bucket_of(ago, &rules).max(rested.heard_from);
                let from = expected.unwrap_or_else(seen_from);
                volume.past.begin(Peak::new(from, blocks, serves));
            }
            let peak = volume.past.open_peak().expect("begun");
            let is_gone = load < PEAK_SHARE * peak.load;
            if is_gone || 2 * blocks < peak.blocks {
                let load_gone = if is_gone { peak.load } else { 0.0 };
                volume.past.end();
                let heard_from = volume.rested.heard_from;
                volume.rested = Rested { blocks, load, load_gone, heard_from };
                continue;
            }
            peak.load = peak.load.max(load);
            // What is given back when the load has just gone was needed until then.
            let seen = observed.get(&id);
            if newest >= PEAK_SHARE * peak.load {
                peak.blocks = blocks;
                if let Some(resident) = seen.and_then(|seen| seen.resident.as_ref()) {
                    peak.resident = Some(Arc::clone(resident));
                }
                if lists {
                    outcome.actions.push(Action::ListResident { volume: id });
                }
            }
            peak.serves.clone_from(&volume.grant.as_ref().expect("granted").serves);
            if let Some(seen) = seen.filter(|seen| seen.zone_accesses > 0) {
                (peak.zones, peak.zone_accesses) = (seen.zones.clone(), seen.zone_accesses);
            }
            // Low is what is low for the peak.
            if let (Some(_), Some(grant)) = (&volume.foreseen, &mut volume.grant) {
                grant.rate_at_grant = grant.rate_at_grant.max(load);
            }
        }
    }
}
