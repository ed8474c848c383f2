//! What is kept of the responses, so that a controller that starts anew knows what was being done.
//!
//! Plain data, to be on disk before an order is begun. Volumes and hosts are told by name: their numbers are those of one run. Times are
//! left out, since a clock does not outlast its controller; what waited begins its wait anew.

use super::machine::Response;
use super::{ApplianceId, Burial, ResponseRules, Responses, VolumeRoute};
use crate::claims::Claim;
use crate::inventory::{HostId, HostSpec, VolumeId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Names the layout.
const SCHEMA: &str = "forebay.responses/1";

/// All that outlasts a controller.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    schema: String,
    next_appliance: u64,
    next_claim: u64,
    volumes: Vec<(VolumeId, String)>,
    hosts: Vec<(HostId, String)>,
    /// By what the appliances are had of those hosts that have any. Earlier versions do not tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    providers: Vec<(HostId, String)>,
    claims: Vec<Claim>,
    responses: Vec<(VolumeId, Response)>,
    burials: Vec<Burial>,
    /// By the numbers of `hosts`. Earlier versions do not know of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unlisted: Vec<(HostId, ApplianceId)>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    are_listed: bool,
}

/// Why a journal cannot be gone on with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// It is of another layout.
    #[error("the journal of responses has layout `{found}`, expected `{SCHEMA}`")]
    Schema {
        /// What was found.
        found: String,
    },
    /// Clients of a volume that is not configured any more may be on an appliance.
    #[error(
        "volume `{volume}` has {holds} and is no longer configured: put it back with `drain = true`, and leave it out once `forebay status` says that it may be removed"
    )]
    VolumeGone {
        /// Its name.
        volume: String,
        /// Its appliances, and where they are.
        holds: String,
    },
    /// The same of a host.
    #[error(
        "host `{host}` has {holds} and is no longer configured: put it back with `drain = true`, and leave it out once `forebay status` says that it may be removed"
    )]
    HostGone {
        /// Its name.
        host: String,
        /// The appliances on it, and of which volumes.
        holds: String,
    },
    /// Its appliances would be looked for where they are not.
    #[error(
        "host `{host}` has {holds}, by `{before}`, and is configured with `{now}`: nothing would find them; put back what was, with `drain = true`, and change it once `forebay status` says that the host may be removed"
    )]
    ProviderChanged {
        /// Its name.
        host: String,
        /// The appliances on it, and of which volumes.
        holds: String,
        /// By what they were made.
        before: String,
        /// By what they would be made now.
        now: String,
    },
    /// What was begun on one disk would be ended on another.
    #[error(
        "volume `{volume}` has {holds} in the journal, and {changed}: what was begun by the one would be ended by the other, and clients be brought to other data, or caches be counted in other blocks; put back what was, and change it when `forebay status` has the volume at its original route, without an appliance"
    )]
    WayChanged {
        /// Its name.
        volume: String,
        /// Its appliances, and where they are.
        holds: String,
        /// What of its [`Way`](super::Way) is other than it was.
        changed: String,
    },
}

impl Journal {
    /// The volumes whose clients may be on an appliance, by name.
    pub fn on_appliances(&self) -> impl Iterator<Item = &str> {
        let may_be =
            |id: &VolumeId| self.responses.iter().any(|(of, response)| of == id && response.placed.is_some());
        self.volumes.iter().filter(move |(id, _)| may_be(id)).map(|(_, name)| name.as_str())
    }

    /// The appliances of the volume called so, in words.
    pub fn appliances_of(&self, volume: &str) -> String {
        let id = self.volumes.iter().find(|(_, name)| name == volume).map(|(id, _)| *id);
        self.held().of_volume(id)
    }

    pub(super) fn held(&self) -> Held {
        let placed = self.responses.iter().filter_map(|(volume, response)| {
            let placed = response.placed.as_ref()?;
            Some((placed.appliance, placed.host, *volume))
        });
        let buried = self.burials.iter().map(|burial| (burial.appliance, burial.host, burial.volume));
        Held {
            hosts: self.hosts.iter().cloned().collect(),
            volumes: self.volumes.iter().cloned().collect(),
            appliances: placed.chain(buried).collect(),
        }
    }
}

/// The appliances of a journal, by what it calls hosts and volumes.
pub(super) struct Held {
    hosts: BTreeMap<HostId, String>,
    volumes: BTreeMap<VolumeId, String>,
    appliances: BTreeSet<(ApplianceId, HostId, VolumeId)>,
}

impl Held {
    pub(super) fn of_volume(&self, id: Option<VolumeId>) -> String {
        let its = self.appliances.iter().filter(|(_, _, volume)| Some(*volume) == id);
        in_words(its.map(|(of, host, _)| {
            format!("appliance {} on host `{}`", of.0, self.hosts.get(host).map_or("", String::as_str))
        }))
    }

    pub(super) fn of_host(&self, id: HostId) -> String {
        let its = self.appliances.iter().filter(|(_, host, _)| *host == id);
        in_words(its.map(|(of, _, volume)| {
            let name = self.volumes.get(volume).map_or("", String::as_str);
            format!("appliance {} of volume `{name}`", of.0)
        }))
    }
}

fn in_words(appliances: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = appliances.collect();
    // One whose end is all that is awaited may have no more than room that is claimed.
    if all.is_empty() { "an appliance".to_owned() } else { all.join(", ") }
}

impl Responses {
    /// What is to be kept now; see [`Responses::changes`].
    pub fn journal(&self) -> Journal {
        let name = |(id, response): (&VolumeId, &Response)| {
            (*id, response.route.as_ref().map_or_else(String::new, |route| route.name.clone()))
        };
        let holds = |host: &&HostSpec| self.claims().any(|claim| claim.host == host.id);
        let told = self.shared.claims.hosts().iter().filter(holds).filter(|host| !host.provider.is_empty());
        Journal {
            providers: told.map(|host| (host.id, host.provider.clone())).collect(),
            schema: SCHEMA.to_owned(),
            next_appliance: self.shared.next_appliance,
            next_claim: self.shared.claims.next(),
            volumes: self.responses.iter().map(name).collect(),
            hosts: self.shared.claims.hosts().iter().map(|host| (host.id, host.name.clone())).collect(),
            claims: self.shared.claims.claims().copied().collect(),
            responses: self.responses.iter().map(|(id, response)| (*id, response.clone())).collect(),
            burials: self.shared.burials.clone(),
            unlisted: self.shared.unlisted.iter().map(|(host, first)| (*host, *first)).collect(),
            are_listed: self.shared.are_listed,
        }
    }

    /// Goes on where `journal` ends, with the volumes and hosts of now. What was ordered and not heard of is ordered again.
    ///
    /// # Errors
    /// [`RecoverError`]: nothing can be said of what the journal tells of then, and nothing may be begun.
    pub fn recover(
        journal: Journal,
        rules: ResponseRules,
        hosts: Vec<HostSpec>,
        volumes: Vec<(VolumeId, VolumeRoute)>,
    ) -> Result<Responses, RecoverError> {
        if journal.schema != SCHEMA {
            return Err(RecoverError::Schema { found: journal.schema });
        }
        let held = journal.held();
        let host_now = |id: HostId| -> Result<HostId, RecoverError> {
            let host = held.hosts.get(&id).cloned().unwrap_or_default();
            let holds = || held.of_host(id);
            let Some(now) = hosts.iter().find(|spec| spec.name == host) else {
                return Err(RecoverError::HostGone { host, holds: holds() });
            };
            match journal.providers.iter().find(|(of, provider)| *of == id && *provider != now.provider) {
                Some((_, before)) if !now.provider.is_empty() => Err(RecoverError::ProviderChanged {
                    host,
                    holds: holds(),
                    before: before.clone(),
                    now: now.provider.clone(),
                }),
                _ => Ok(now.id),
            }
        };
        let volume_now = |id: VolumeId| -> Result<VolumeId, RecoverError> {
            let volume = held.volumes.get(&id).cloned().unwrap_or_default();
            let now = volumes.iter().find(|(_, route)| route.name == volume).map(|(id, _)| *id);
            now.ok_or_else(|| RecoverError::VolumeGone { volume, holds: held.of_volume(Some(id)) })
        };
        let mut recovered = Responses::new(rules, hosts.clone());
        recovered.shared.next_appliance = journal.next_appliance;
        recovered.shared.claims.go_on_from(journal.next_claim);
        for claim in journal.claims {
            let claim = Claim { host: host_now(claim.host)?, volume: volume_now(claim.volume)?, ..claim };
            recovered.shared.claims.restore(claim);
        }
        for mut burial in journal.burials {
            burial.host = host_now(burial.host)?;
            burial.volume = volume_now(burial.volume)?;
            if burial.late {
                burial.late_until = recovered.shared.after_ms(rules.late_max_ms);
            }
            recovered.shared.burials.push(burial);
        }
        // A host that is configured no more is nobody's to list.
        let listable = |(host, first)| Some((host_now(host).ok()?, first));
        recovered.shared.unlisted = journal.unlisted.into_iter().filter_map(listable).collect();
        recovered.shared.are_listed = journal.are_listed;
        if !recovered.shared.unlisted.is_empty() {
            recovered.shared.forgotten_until = recovered.shared.after_ms(rules.late_max_ms);
        }
        for (id, route) in &volumes {
            recovered.register(*id, route.clone());
        }
        for (id, mut response) in journal.responses {
            let now = match volume_now(id) {
                Ok(now) => now,
                // Nothing is there, and nobody will miss it.
                Err(_) if response.placed.is_none() => continue,
                Err(error) => return Err(error),
            };
            if let Some(placed) = &mut response.placed {
                placed.host = host_now(placed.host)?;
            }
            response.resume();
            response.renumber(now);
            response.prefer(&host_now);
            response.route = recovered.responses[&now].route.clone();
            response.keep_to_its_way(|| held.of_volume(Some(id)))?;
            recovered.responses.insert(now, response);
        }
        Ok(recovered)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Draining, Way};
    use super::*;
    use crate::claims::ClaimId;
    use crate::host::Room;
    use forebay_units::Bytes;

    fn route() -> VolumeRoute {
        VolumeRoute {
            name: "db".to_owned(),
            draining: Draining::Not,
            leased: false,
            home: HostId(0),
            unfit: Vec::new(),
            apart: Vec::new(),
            way: Way::default(),
        }
    }

    #[test]
    fn numbers_of_claims_are_never_used_again_whether_or_not_one_stands_at_a_restart() {
        let hosts = || vec![HostSpec::new(HostId(0), "h0", 0, Bytes::gib(1))];
        let room = Room { memory: Bytes::mib(1), ..Room::default() };
        for released in [0, 1, 2] {
            let mut before = Responses::new(ResponseRules::default(), hosts());
            let claims = &mut before.shared.claims;
            let mut claim = || claims.claim(HostId(0), room, VolumeId(1)).unwrap();
            let made = [claim(), claim()];
            for id in made.into_iter().rev().take(released) {
                claims.release(id);
            }
            let mut journal = before.journal();
            journal.volumes.push((VolumeId(1), "db".to_owned()));
            let volumes = vec![(VolumeId(1), route())];
            let mut after = Responses::recover(journal, ResponseRules::default(), hosts(), volumes).unwrap();
            assert_eq!(after.claims().count(), 2 - released);
            let next = after.shared.claims.claim(HostId(0), room, VolumeId(1));
            assert_eq!(next, Ok(ClaimId(3)), "{released} released");
        }
    }

    #[test]
    fn a_host_whose_appliances_would_not_be_found_again_is_refused_and_one_that_has_none_is_not() {
        let hosts = |provider: &str| {
            vec![HostSpec {
                provider: provider.to_owned(),
                ..HostSpec::new(HostId(0), "h0", 0, Bytes::gib(1))
            }]
        };
        let journal = |claimed: bool| {
            let mut before = Responses::new(ResponseRules::default(), hosts("process"));
            before.register(VolumeId(1), route());
            if claimed {
                let room = Room { memory: Bytes::mib(1), ..Room::default() };
                before.shared.claims.claim(HostId(0), room, VolumeId(1)).unwrap();
            }
            serde_json::to_value(before.journal()).unwrap()
        };
        let recovered = |journal: &serde_json::Value, provider| {
            let journal = serde_json::from_value(journal.clone()).unwrap();
            let volumes = vec![(VolumeId(1), route())];
            Responses::recover(journal, ResponseRules::default(), hosts(provider), volumes).map(|_| ())
        };
        let held = journal(true);
        assert_eq!(recovered(&held, "process"), Ok(()));
        let error = recovered(&held, "ssh h0").unwrap_err().to_string();
        assert!(
            error.starts_with("host `h0` has an appliance, by `process`, and is configured with `ssh h0`"),
            "{error}"
        );
        // One of an earlier version does not tell.
        let mut earlier = held;
        earlier.as_object_mut().unwrap().remove("providers").unwrap();
        assert_eq!(recovered(&earlier, "ssh h0"), Ok(()));
        let free = journal(false);
        assert!(free.get("providers").is_none());
        assert_eq!(recovered(&free, "ssh h0"), Ok(()));
    }
}
