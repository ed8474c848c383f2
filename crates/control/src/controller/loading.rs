//! Loading: what is loaded into a cache before it is asked for.

use super::Controller;
use super::ordering::Order;
use crate::decision::{Action, DecisionKind, Fact, StepOutcome};
use crate::inventory::VolumeId;
use crate::observation::{Observation, VolumeObservation};
use crate::warmup::{self, Warmup, WarmupInput};
use forebay_units::{Bytes, Nanos};

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
            let rate = warmup.map(|warmup| self.tell_warm_up(observation.at, id, warmup, outcome));
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
        let (zones, accesses, earlier) = match foreseen {
            Some(foreseen) => {
                (&foreseen.peak.zones, foreseen.peak.zone_accesses, foreseen.earlier_zones.clone())
            }
            None => {
                let earlier = volume.earlier_zones.front().cloned().unwrap_or_default();
                (&observed.zones, observed.zone_accesses, earlier)
            }
        };
        let input = WarmupInput {
            zones,
            accesses,
            earlier: &earlier,
            zone_blocks: observed.zone_blocks,
            volume_blocks: volume.spec.block_size.blocks_for(volume.spec.size),
            block_bytes: volume.block_bytes(),
            resident: foreseen.and_then(|foreseen| foreseen.peak.was_resident()),
            within_s,
            curve: volume.curve.as_deref().filter(|_| foreseen.is_none()),
            room_blocks: blocks.saturating_sub(observed.cache.used_blocks),
            utilisation,
        };
        warmup::decide(&input, &self.config.warmup)
    }

    /// Tells what was decided; the rate in bytes per second, 0 for none.
    fn tell_warm_up(&self, at: Nanos, id: VolumeId, warmup: Warmup, outcome: &mut StepOutcome) -> u64 {
        let name = &self.volumes[&id].spec.name;
        match warmup {
            Warmup::Load { zones, were_resident, bytes, bytes_per_second, overlap } => {
                let (unit, what) = if were_resident {
                    ("ranges", "what it held in the last peak is")
                } else {
                    ("zones", "hot zones are")
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
