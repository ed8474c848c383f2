//! Placing: the host of a cache, and what is loaded into it before it is asked for.

use super::Controller;
use crate::decision::{Action, DecisionKind, Fact, StepOutcome};
use crate::host;
use crate::inventory::{HostId, HostSpec, VolumeId};
use crate::observation::VolumeObservation;
use crate::warmup::{self, Warmup, WarmupInput};
use forebay_units::{Bytes, Nanos};

impl Controller {
    fn host_free(&self, host: &HostSpec) -> Bytes {
        let used = self
            .volumes
            .values()
            .filter(|volume| volume.grant.as_ref().is_some_and(|grant| grant.host == host.id))
            .map(|volume| volume.blocks() * volume.block_bytes())
            .sum();
        host.capacity.saturating_sub(Bytes(used))
    }

    pub(super) fn choose_host(&self, id: VolumeId, blocks: u64) -> Option<HostId> {
        let volume = &self.volumes[&id];
        if self.hosts.is_empty() {
            return Some(volume.spec.host);
        }
        let free: Vec<Bytes> = self.hosts.iter().map(|host| self.host_free(host)).collect();
        host::choose(volume.spec.host, Bytes(blocks * volume.block_bytes()), &self.hosts, &free)
    }

    /// What of a growth fits on its host.
    pub(super) fn fit_host(&self, id: VolumeId, host: HostId, before: u64, blocks: u64) -> u64 {
        let volume = &self.volumes[&id];
        match self.hosts.iter().find(|spec| spec.id == host) {
            Some(spec) => blocks.min(before + self.host_free(spec).get() / volume.block_bytes()),
            None => blocks,
        }
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
            room_blocks: blocks.saturating_sub(observed.cache.used_blocks),
            utilisation,
        };
        warmup::decide(&input, &self.config.warmup)
    }

    /// Tells what was decided; the rate in bytes per second, 0 for none.
    pub(super) fn tell_warm_up(
        &self,
        at: Nanos,
        id: VolumeId,
        warmup: Warmup,
        outcome: &mut StepOutcome,
    ) -> u64 {
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
}
