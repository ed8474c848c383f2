//! What is to be free of appliances: hosts that are to be maintained or removed, and volumes that are to be removed or served by their origins alone.
//!
//! Whoever has an appliance there leaves it as one that is not needed any more is left: by the original route, and by nothing else. Of a host the wish stays, and is
//! answered on another one as soon as that one is gone; of a volume it ends. Which these are is told with every start, and not kept by the journal: a controller that is killed in the middle
//! goes on from what it is told next.

use super::machine::Response;
use super::{Responses, Shared};
use crate::decision::DecisionKind;
use crate::inventory::{HostId, VolumeId};
use std::collections::BTreeSet;

/// What is to be free of appliances.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// No appliance is started there, and those that are there are left.
    pub hosts: BTreeSet<HostId>,
    /// No cache is put in front of them, and those that they have are taken back.
    pub volumes: BTreeSet<VolumeId>,
}

impl Responses {
    /// Drains these hosts and volumes, and no others any more. Unknown ones are ignored.
    pub fn drain(&mut self, drained: Drained) {
        self.shared.drained = drained;
        for (volume, response) in &mut self.responses {
            if self.shared.drained.volumes.contains(volume) {
                response.drain(&mut self.shared);
            }
        }
    }

    /// Whether a host is drained.
    pub fn is_drained(&self, host: HostId) -> bool {
        self.shared.drained.hosts.contains(&host)
    }

    /// What there is on a host yet, in words. `None` where nothing is: then a configuration may leave it out.
    pub fn left_on(&self, host: HostId) -> Option<String> {
        if self.shared.unlisted.contains_key(&host) {
            return Some("it has not said what runs there".to_owned());
        }
        let is_there = self.claims().any(|claim| claim.host == host);
        is_there.then(|| self.with_hindrances(self.journal().held().of_host(host), |_, on| on == host))
    }

    /// The same of a volume.
    pub fn left_of(&self, volume: VolumeId) -> Option<String> {
        if self.claims().any(|claim| claim.volume == volume) {
            let left = self.journal().held().of_volume(Some(volume));
            return Some(self.with_hindrances(left, |of, _| of == volume));
        }
        let is_home = self.responses.get(&volume).is_none_or(Response::is_home);
        (!is_home).then(|| "it is not known yet whether its clients are on the original route".to_owned())
    }

    /// `left`, and why it does not go, where that is known.
    fn with_hindrances(&self, left: String, is_meant: impl Fn(VolumeId, HostId) -> bool) -> String {
        let leaving = self.responses.iter().filter_map(|(volume, response)| {
            response.placed.filter(|placed| is_meant(*volume, placed.host))?;
            response.status(&self.shared).hindrance()
        });
        let buried = self.shared.burials.iter().filter(|burial| is_meant(burial.volume, burial.host));
        let buried =
            buried.filter_map(|burial| Some(format!("stopping does not succeed: {}", burial.why.as_ref()?)));
        let all: Vec<String> = std::iter::once(left).chain(leaving).chain(buried).collect();
        all.join("; ")
    }
}

impl Response {
    /// Ends what is wished for its volume.
    fn drain(&mut self, shared: &mut Shared) {
        const WHY: &str = "the volume is drained";
        if self.is_wished_for() {
            self.tell_taken_back(WHY, shared);
        }
        self.give_back(WHY, shared);
    }

    /// Why its appliance's host is to be left, if it is.
    pub(super) fn on_drained(&self, shared: &Shared) -> Option<String> {
        let host = self.placed.filter(|placed| shared.drained.hosts.contains(&placed.host))?.host;
        Some(format!("its host {} is drained", shared.host_name(host)))
    }

    pub(super) fn tell_taken_back(&self, why: &str, shared: &mut Shared) {
        let summary = format!("the cache of {} is taken back: {why}", self.route().name);
        self.tell(shared, DecisionKind::Removed, summary, self.facts(shared));
    }
}
