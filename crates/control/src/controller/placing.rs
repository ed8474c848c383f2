//! Placing: the host of a cache, and what is loaded into it before it is asked for.

use super::Controller;
use crate::decision::{Action, DecisionKind, Fact, StepOutcome};
use crate::host::{self, Room};
use crate::inventory::{HostId, HostSpec, VolumeId};
use crate::observation::{Observation, VolumeObservation};
use crate::warmup::{self, Warmup, WarmupInput};
use forebay_units::{Bytes, Nanos};
use std::collections::BTreeMap;

impl Controller {
    /// What is granted on each host. `O(volumes)`, so that whoever asks for all hosts looks once.
    fn hosts_used(&self) -> BTreeMap<HostId, Bytes> {
        let mut used: BTreeMap<HostId, Bytes> = BTreeMap::new();
        for volume in self.volumes.values() {
            if let Some(grant) = &volume.grant {
                used.entry(grant.host).or_default().0 += volume.blocks() * volume.block_bytes();
            }
        }
        used
    }

    /// What was granted on hosts before this step, beside what they say that they can still give.
    pub(super) fn observe_hosts(&mut self, observation: &Observation) {
        if observation.hosts.is_empty() {
            self.hosts_said.clear();
            return;
        }
        let used = self.hosts_used();
        let then = |host| used.get(&host).copied().unwrap_or_default();
        let said = observation.hosts.iter().map(|said| (said.host, (said.free, then(said.host))));
        self.hosts_said = said.collect();
    }

    /// What a host can still give: of what it was configured with, and of what it says itself.
    fn host_free(&self, host: &HostSpec, used: &BTreeMap<HostId, Bytes>) -> Bytes {
        let used = used.get(&host.id).copied().unwrap_or_default();
        let configured = host.capacity.saturating_sub(used);
        match self.hosts_said.get(&host.id) {
            Some((free, then)) => configured.min(free.saturating_sub(used.saturating_sub(*then))),
            None => configured,
        }
    }

    pub(super) fn choose_host(&self, id: VolumeId, blocks: u64) -> Option<HostId> {
        let volume = &self.volumes[&id];
        if self.hosts.is_empty() {
            return Some(volume.spec.host);
        }
        let room = |memory| Room { memory, ..Room::default() };
        let used = self.hosts_used();
        let free: Vec<Room> = self.hosts.iter().map(|host| room(self.host_free(host, &used))).collect();
        let needed = room(Bytes(blocks * volume.block_bytes()));
        host::choose(volume.spec.host, needed, &self.hosts, &free)
    }

    /// The sums behind the lack of room: what is needed, and what each of the first eight hosts can give.
    pub(super) fn rooms(&self, id: VolumeId, blocks: u64, facts: &mut Vec<Fact>) -> (Bytes, String) {
        let mut sums = Vec::new();
        let used = self.hosts_used();
        for host in self.hosts.iter().take(8) {
            let free = self.host_free(host, &used);
            sums.push(format!("{} has {free} free of {}", host.name, host.capacity));
            facts.push(Fact::text("host", format!("{}: {free} free of {}", host.name, host.capacity)));
        }
        if self.hosts.len() > 8 {
            sums.push(format!("{} more have less", self.hosts.len() - 8));
        }
        (Bytes(blocks * self.volumes[&id].block_bytes()), sums.join(", "))
    }

    /// What of a growth fits on its host.
    pub(super) fn fit_host(&self, id: VolumeId, host: HostId, before: u64, blocks: u64) -> u64 {
        let volume = &self.volumes[&id];
        match self.hosts.iter().find(|spec| spec.id == host) {
            Some(spec) => {
                blocks.min(before + self.host_free(spec, &self.hosts_used()).get() / volume.block_bytes())
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ControlConfig;
    use crate::inventory::{OriginId, VolumeSpec};
    use crate::observation::HostObservation;
    use forebay_units::BlockSize;

    #[test]
    fn what_hosts_say_of_themselves_counts() {
        let hosts = (0..2).map(|id| HostSpec::new(HostId(id), format!("h{id}"), 0, Bytes::mib(8)));
        let mut controller =
            Controller::new(ControlConfig::default(), Bytes::mib(16), hosts.collect(), Vec::new()).unwrap();
        let spec = VolumeSpec {
            id: VolumeId(0),
            name: "db".to_owned(),
            size: Bytes::gib(1),
            block_size: BlockSize::DEFAULT,
            origin: OriginId(0),
            host: HostId(0),
            objectives: Vec::new(),
            may_cache: true,
            minimum: Bytes::ZERO,
            maximum: None,
        };
        controller.register(spec).unwrap();
        // 1,024 blocks of 4 KiB are 4 MiB.
        assert_eq!(controller.choose_host(VolumeId(0), 1_024), Some(HostId(0)));
        let said = |free| Observation {
            hosts: vec![HostObservation { host: HostId(0), free }],
            ..Observation::default()
        };
        controller.observe_hosts(&said(Bytes::mib(3)));
        assert_eq!(controller.choose_host(VolumeId(0), 1_024), Some(HostId(1)));
        assert_eq!(controller.choose_host(VolumeId(0), 4_096), None);
        let (size, sums) = controller.rooms(VolumeId(0), 4_096, &mut Vec::new());
        assert_eq!((size, &*sums), (Bytes::mib(16), "h0 has 3MiB free of 8MiB, h1 has 8MiB free of 8MiB"));
        // Who says nothing has what it was configured with.
        controller.observe_hosts(&Observation::default());
        assert_eq!(controller.choose_host(VolumeId(0), 1_024), Some(HostId(0)));
    }
}
