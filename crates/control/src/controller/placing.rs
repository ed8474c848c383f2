//! Placing: the host of a cache.

use super::Controller;
use super::volume::Volume;
use crate::decision::Fact;
use crate::host::{self, Room};
use crate::inventory::{HostId, HostSpec, VolumeId};
use crate::observation::{HostObservation, Observation};
use forebay_units::Bytes;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What is granted on a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HostUse {
    bytes: Bytes,
    caches: u64,
}

/// What is granted on each host that has a cache.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HostsUsed(BTreeMap<HostId, HostUse>);

impl HostsUsed {
    fn of(&self, host: HostId) -> HostUse {
        self.0.get(&host).copied().unwrap_or_default()
    }

    fn add(&mut self, (host, bytes): (HostId, Bytes)) {
        let used = self.0.entry(host).or_default();
        used.bytes.0 += bytes.0;
        used.caches += 1;
    }

    /// One cache `was` so, and `is` so now; `None` is no cache.
    pub(super) fn change(&mut self, was: Option<(HostId, Bytes)>, is: Option<(HostId, Bytes)>) {
        if let Some((host, bytes)) = was {
            let used = self.0.entry(host).or_default();
            *used =
                HostUse { bytes: used.bytes.saturating_sub(bytes), caches: used.caches.saturating_sub(1) };
            if used.caches == 0 {
                self.0.remove(&host);
            }
        }
        is.into_iter().for_each(|is| self.add(is));
    }
}

/// What all hosts could give at one moment, in their order, to try sizes on.
pub(super) struct HostsFree(Vec<Room>);

impl Controller {
    /// What is granted on each host. `O(volumes)`, so that whoever asks again and again looks once.
    pub(super) fn hosts_used(&self) -> HostsUsed {
        let mut used = HostsUsed::default();
        self.volumes.values().filter_map(Volume::placed).for_each(|placed| used.add(placed));
        used
    }

    /// What was granted on hosts before this step, beside what they say that they can still give.
    pub(super) fn observe_hosts(&mut self, observation: &Observation) {
        if observation.hosts.is_empty() {
            self.hosts_said.clear();
            return;
        }
        let used = self.hosts_used();
        let said = observation.hosts.iter().map(|said| (said.host, (said.clone(), used.of(said.host))));
        self.hosts_said = said.collect();
    }

    /// What a host can still give: of what it was configured with, and of what it says itself.
    fn host_free(&self, host: &HostSpec, used: &HostsUsed) -> Bytes {
        let used = used.of(host.id);
        let configured = host.capacity.saturating_sub(used.bytes);
        match self.hosts_said.get(&host.id) {
            Some((said, _)) if said.drained => Bytes::ZERO,
            Some((said, then)) => {
                let beside = Bytes(said.beside.get() * used.caches.saturating_sub(then.caches));
                let granted = used.bytes.saturating_sub(then.bytes);
                configured.min(said.free.saturating_sub(granted).saturating_sub(beside))
            }
            None => configured,
        }
    }

    /// What all hosts can still give.
    pub(super) fn hosts_free(&self) -> HostsFree {
        self.hosts_free_beside(&self.hosts_used())
    }

    /// The same beside what is `used`.
    fn hosts_free_beside(&self, used: &HostsUsed) -> HostsFree {
        let room = |host| Room { memory: self.host_free(host, used), ..Room::default() };
        HostsFree(self.hosts.iter().map(room).collect())
    }

    /// Of what nobody has of the capacity, what hosts say that they can give, where they say so. To be told, not to be reckoned with: a cache may grow within what its
    /// appliance has already, which no host calls free.
    pub(super) fn free_told(&self, unclaimed: Bytes, hosts: &HostsFree) -> Bytes {
        if self.hosts_said.is_empty() {
            return unclaimed;
        }
        unclaimed.min(hosts.0.iter().map(|room| room.memory).sum())
    }

    pub(super) fn choose_host(&self, id: VolumeId, blocks: u64, used: &HostsUsed) -> Option<HostId> {
        let volume = &self.volumes[&id];
        if self.hosts.is_empty() {
            return Some(volume.spec.host);
        }
        let needed = Room { memory: Bytes(blocks * volume.block_bytes()), ..Room::default() };
        host::choose(volume.spec.host, needed, &self.hosts, &self.hosts_free_beside(used).0)
    }

    /// The most that a volume's cache can be on one host, for planning: where it is, or, where it is not yet, on any. Where all share one host the master says who gets what of it.
    pub(super) fn room_blocks(&self, id: VolumeId) -> u64 {
        self.room_said(id).unwrap_or_else(|| self.room_in(id, &self.hosts_free()))
    }

    /// The same, of what hosts can `free`.
    pub(super) fn room_blocks_in(&self, id: VolumeId, free: &HostsFree) -> u64 {
        self.room_said(id).unwrap_or_else(|| self.room_in(id, free))
    }

    /// The same where no host has to be looked at.
    fn room_said(&self, id: VolumeId) -> Option<u64> {
        let volume = &self.volumes[&id];
        match volume.room_blocks {
            Some(said) => Some(said.max(volume.blocks())),
            None => (self.hosts.len() < 2).then_some(u64::MAX),
        }
    }

    /// What of a growth there is room for beside what is `used`.
    pub(super) fn fit_host(&self, id: VolumeId, blocks: u64, used: &HostsUsed) -> u64 {
        match self.volumes[&id].room_blocks {
            Some(_) => blocks.min(self.room_blocks(id)),
            None if self.hosts.is_empty() => blocks,
            None => blocks.min(self.room_in(id, &self.hosts_free_beside(used))),
        }
    }

    fn room_in(&self, id: VolumeId, free: &HostsFree) -> u64 {
        let volume = &self.volumes[&id];
        let here = volume.grant.as_ref().map(|grant| grant.host);
        let rooms =
            self.hosts.iter().zip(&free.0).filter(|(host, _)| here.is_none_or(|here| here == host.id));
        let most = rooms.map(|(_, room)| room.memory).max();
        // A host that is not known is one that nobody counts.
        most.map_or(u64::MAX, |most| volume.blocks() + most.get() / volume.block_bytes())
    }

    /// Whether hosts have room for caches of these sizes together, made in the order in which they would be: the largest first.
    /// `O(sizes * hosts)`.
    pub(super) fn hosts_hold(&self, free: &HostsFree, sizes: &[(VolumeId, u64)]) -> bool {
        let mut free = free.0.clone();
        let mut sizes: Vec<(Bytes, VolumeId)> =
            sizes.iter().map(|&(id, blocks)| (self.growth(id, blocks), id)).collect();
        sizes.sort_unstable_by_key(|&(bytes, id)| (Reverse(bytes), id));
        sizes.iter().filter(|(bytes, _)| *bytes > Bytes::ZERO).all(|&(memory, id)| {
            let volume = &self.volumes[&id];
            // How far it can grow is said by who made it, or its host is one that nobody counts.
            if self.hosts.len() < 2 && volume.room_blocks.is_none() {
                return true;
            }
            if self.hosts.is_empty() || (volume.grant.is_some() && volume.room_blocks.is_some()) {
                return true;
            }
            let needed = Room { memory, ..Room::default() };
            let (host, beside) = match &volume.grant {
                Some(grant) => (Some(grant.host), false),
                None => (host::choose(volume.spec.host, needed, &self.hosts, &free), true),
            };
            let Some(at) = self.hosts.iter().position(|spec| Some(spec.id) == host) else { return false };
            let fits = free[at].holds(needed);
            let said = self.hosts_said.get(&self.hosts[at].id).filter(|_| beside);
            let beside = said.map_or(Bytes::ZERO, |(said, _)| said.beside);
            free[at] = free[at].less(needed).less(Room { memory: beside, ..Room::default() });
            fits
        })
    }

    /// By how many bytes a cache of so many blocks is larger than the one that there is.
    pub(super) fn growth(&self, id: VolumeId, blocks: u64) -> Bytes {
        let volume = &self.volumes[&id];
        Bytes(blocks.saturating_sub(volume.blocks()) * volume.block_bytes())
    }

    /// The sums behind the lack of room: what each of the first eight hosts can give.
    pub(super) fn rooms(&self, facts: &mut Vec<Fact>) -> String {
        let mut sums = Vec::new();
        let used = self.hosts_used();
        for host in self.hosts.iter().take(8) {
            let left_out = self.hosts_said.get(&host.id).and_then(|(said, _)| match said {
                HostObservation { drained: true, .. } => Some("is drained"),
                HostObservation { rests, .. } => rests.as_deref(),
            });
            if let Some(why) = left_out {
                let words = format!("{} {why}", host.name);
                facts.push(Fact::text("host", words.clone()));
                sums.push(words);
                continue;
            }
            let free = self.host_free(host, &used);
            sums.push(format!("{} has {free} free of {}", host.name, host.capacity));
            facts.push(Fact::text("host", format!("{}: {free} free of {}", host.name, host.capacity)));
        }
        if self.hosts.len() > 8 {
            sums.push(format!("{} more have less", self.hosts.len() - 8));
        }
        sums.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ControlConfig;
    use crate::controller::grant::Grant;
    use crate::inventory::VolumeSpec;
    use crate::windows::Windows;

    const BLOCKS_OF_MIB: u64 = 256;

    /// Hosts of so many MiB, and three volumes of which the first is on the first host with 2 MiB.
    fn on_hosts(sizes: &[u64]) -> Controller {
        let host = |(id, size): (usize, &u64)| {
            HostSpec::new(HostId(id as u32), format!("h{id}"), id as u32, Bytes::mib(*size))
        };
        let hosts = sizes.iter().enumerate().map(host).collect();
        let mut controller =
            Controller::new(ControlConfig::default(), Bytes::mib(100), hosts, Vec::new()).unwrap();
        for id in 0..3 {
            controller.register(VolumeSpec { id: VolumeId(id), ..VolumeSpec::any() }).unwrap();
        }
        grant(&mut controller, 0, 0, 2 * BLOCKS_OF_MIB);
        controller
    }

    fn grant(controller: &mut Controller, id: u32, host: u32, blocks: u64) {
        let grant = Grant::new(HostId(host), 100.0, Windows::assumed(0.05), 0);
        controller.volumes.get_mut(&VolumeId(id)).unwrap().grant = Some(Grant { blocks, ..grant });
    }

    fn said(free: Bytes, rests: Option<&str>) -> Observation {
        let rests = rests.map(str::to_owned);
        let said = HostObservation { host: HostId(0), free, beside: Bytes::mib(1), rests, drained: false };
        Observation { hosts: vec![said], ..Observation::default() }
    }

    #[test]
    fn what_hosts_say_of_themselves_counts() {
        let hosts = (0..2).map(|id| HostSpec::new(HostId(id), format!("h{id}"), 0, Bytes::mib(8)));
        let mut controller =
            Controller::new(ControlConfig::default(), Bytes::mib(16), hosts.collect(), Vec::new()).unwrap();
        controller.register(VolumeSpec { id: VolumeId(0), ..VolumeSpec::any() }).unwrap();
        // 1,024 blocks of 4 KiB are 4 MiB.
        assert_eq!(controller.choose_host(VolumeId(0), 1_024, &controller.hosts_used()), Some(HostId(0)));
        let said = |free| Observation {
            hosts: vec![HostObservation {
                host: HostId(0),
                free,
                beside: Bytes::ZERO,
                rests: None,
                drained: false,
            }],
            ..Observation::default()
        };
        controller.observe_hosts(&said(Bytes::mib(3)));
        assert_eq!(controller.choose_host(VolumeId(0), 1_024, &controller.hosts_used()), Some(HostId(1)));
        assert_eq!(controller.choose_host(VolumeId(0), 4_096, &controller.hosts_used()), None);
        let sums = controller.rooms(&mut Vec::new());
        assert_eq!(sums, "h0 has 3MiB free of 8MiB, h1 has 8MiB free of 8MiB");
        // Who says nothing has what it was configured with.
        controller.observe_hosts(&Observation::default());
        assert_eq!(controller.choose_host(VolumeId(0), 1_024, &controller.hosts_used()), Some(HostId(0)));
    }

    #[test]
    fn a_drained_host_is_not_chosen_whatever_it_says_is_free_and_is_told_as_that() {
        let mut controller = on_hosts(&[8, 4]);
        let said = HostObservation {
            host: HostId(0),
            free: Bytes::mib(8),
            beside: Bytes::ZERO,
            rests: Some("rests for 3 s: it said so".to_owned()),
            drained: true,
        };
        controller.observe_hosts(&Observation { hosts: vec![said], ..Observation::default() });
        let chosen =
            |blocks| controller.choose_host(VolumeId(1), blocks, &controller.hosts_used()).map(|host| host.0);
        assert_eq!((chosen(BLOCKS_OF_MIB), chosen(5 * BLOCKS_OF_MIB)), (Some(1), None));
        let mut facts = Vec::new();
        assert_eq!(controller.rooms(&mut facts), "h0 is drained, h1 has 4MiB free of 4MiB");
        assert_eq!(facts[0], Fact::text("host", "h0 is drained"));
    }

    #[test]
    fn what_was_granted_since_a_host_spoke_is_not_there_any_more_with_what_a_new_cache_takes_beside() {
        let free = |said_free: Option<u64>| {
            let mut controller = on_hosts(&[8]);
            let said = said_free.map_or_else(Observation::default, |free| said(Bytes::mib(free), None));
            controller.observe_hosts(&said);
            let before = controller.hosts_free().0[0].memory;
            grant(&mut controller, 1, 0, BLOCKS_OF_MIB);
            (before, controller.hosts_free().0[0].memory)
        };
        // What it was configured with is never exceeded.
        assert_eq!(free(None), (Bytes::mib(6), Bytes::mib(5)));
        assert_eq!(free(Some(5)), (Bytes::mib(5), Bytes::mib(3)));
        assert_eq!(free(Some(50)), (Bytes::mib(6), Bytes::mib(5)));
    }

    #[test]
    fn no_more_is_told_to_be_free_than_hosts_say_together() {
        let told =
            |controller: &Controller, mib| controller.free_told(Bytes::mib(mib), &controller.hosts_free());
        let mut controller = on_hosts(&[8, 8]);
        assert_eq!(told(&controller, 50), Bytes::mib(50));
        controller.observe_hosts(&said(Bytes::mib(3), None));
        assert_eq!(told(&controller, 50), Bytes::mib(3 + 8));
        assert_eq!(told(&controller, 5), Bytes::mib(5));
    }

    #[test]
    fn a_host_that_is_left_out_is_told_as_that() {
        let mut controller = on_hosts(&[8]);
        controller.observe_hosts(&said(Bytes::ZERO, Some("rests for 3 s: it does not answer")));
        let sums = controller.rooms(&mut Vec::new());
        assert_eq!(sums, "h0 rests for 3 s: it does not answer");
    }

    #[test]
    fn a_cache_grows_where_it_is_and_one_that_is_not_made_yet_is_as_large_as_any_host_allows() {
        let mut controller = on_hosts(&[5, 8]);
        let most = |controller: &Controller, id| {
            let used = controller.hosts_used();
            (controller.room_blocks(VolumeId(id)), controller.fit_host(VolumeId(id), 99_999, &used))
        };
        let [here, elsewhere] = [5, 8].map(|mib| mib * BLOCKS_OF_MIB);
        assert_eq!(most(&controller, 0), (here, here));
        assert_eq!(most(&controller, 1), (elsewhere, elsewhere));
        // Who makes it knows better, but what it has it has.
        controller.located(VolumeId(0), None, Bytes::mib(4));
        assert_eq!(most(&controller, 0), (4 * BLOCKS_OF_MIB, 4 * BLOCKS_OF_MIB));
        controller.located(VolumeId(0), None, Bytes::mib(1));
        assert_eq!(most(&controller, 0), (2 * BLOCKS_OF_MIB, 2 * BLOCKS_OF_MIB));
        // The one host that all share is the master's to divide.
        assert_eq!(most(&on_hosts(&[5]), 0), (u64::MAX, here));
        let mut controller = on_hosts(&[8, 8]);
        controller.volumes.get_mut(&VolumeId(1)).unwrap().spec.host = HostId(1);
        assert_eq!(controller.choose_host(VolumeId(1), 1, &controller.hosts_used()), Some(HostId(1)));
    }

    #[test]
    fn several_caches_fit_only_where_hosts_hold_them_together() {
        let holds = |controller: &Controller, sizes: &[(u32, f64)]| {
            let blocks = |&(id, mib): &(u32, f64)| (VolumeId(id), (mib * BLOCKS_OF_MIB as f64) as u64);
            controller.hosts_hold(&controller.hosts_free(), &sizes.iter().map(blocks).collect::<Vec<_>>())
        };
        let mut controller = on_hosts(&[6, 4]);
        for id in [1, 2] {
            controller.volumes.get_mut(&VolumeId(id)).unwrap().spec.host = HostId(1);
        }
        assert!(holds(&controller, &[(1, 3.0), (2, 3.0)]));
        // What is there grows where it is, by what it lacks.
        assert!(holds(&controller, &[(0, 6.0)]) && !holds(&controller, &[(0, 6.5)]));
        assert!(
            holds(&controller, &[(0, 5.0), (1, 4.0)]) && !holds(&controller, &[(0, 5.0), (1, 3.5), (2, 2.0)])
        );
        assert!(!holds(&on_hosts(&[4, 8]), &[(0, 5.0)]), "it does not move");
        // Beside each new one there is what it takes beside; the growth of what is there takes none.
        let mut controller = on_hosts(&[100, 0]);
        controller.observe_hosts(&said(Bytes::mib(4), None));
        assert!(holds(&controller, &[(1, 1.5), (2, 1.5)]) && !holds(&controller, &[(1, 2.0), (2, 2.0)]));
        assert!(holds(&controller, &[(0, 4.0), (2, 1.5)]));
    }
}
