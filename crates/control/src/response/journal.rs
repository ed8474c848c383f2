//! What is kept of the responses, so that a controller that starts anew knows what was being done.
//!
//! Plain data, to be on disk before an order is begun. Volumes and hosts are told by name: their numbers are those of one run. Times are
//! left out, since a clock does not outlast its controller; what waited begins its wait anew.

use super::machine::Response;
use super::{ApplianceId, Burial, ResponseRules, Responses, VolumeRoute};
use crate::claims::Claim;
use crate::inventory::{HostId, HostSpec, VolumeId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
        "volume `{volume}` has an appliance and is no longer configured: expected it until its clients are back on the original route"
    )]
    VolumeGone {
        /// Its name.
        volume: String,
    },
    /// The same of a host.
    #[error("host `{host}` has an appliance and is no longer configured: expected it until that is gone")]
    HostGone {
        /// Its name.
        host: String,
    },
}

impl Journal {
    /// The volumes whose clients may be on an appliance, by name.
    pub fn on_appliances(&self) -> impl Iterator<Item = &str> {
        let may_be =
            |id: &VolumeId| self.responses.iter().any(|(of, response)| of == id && response.placed.is_some());
        self.volumes.iter().filter(move |(id, _)| may_be(id)).map(|(_, name)| name.as_str())
    }
}

impl Responses {
    /// What is to be kept now; see [`Responses::changes`].
    pub fn journal(&self) -> Journal {
        let name = |(id, response): (&VolumeId, &Response)| {
            (*id, response.route.as_ref().map_or_else(String::new, |route| route.name.clone()))
        };
        Journal {
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
        let host_names: BTreeMap<HostId, String> = journal.hosts.into_iter().collect();
        let volume_names: BTreeMap<VolumeId, String> = journal.volumes.into_iter().collect();
        let host_now = |id: HostId| -> Result<HostId, RecoverError> {
            let host = host_names.get(&id).cloned().unwrap_or_default();
            let now = hosts.iter().find(|spec| spec.name == host).map(|spec| spec.id);
            now.ok_or(RecoverError::HostGone { host })
        };
        let volume_now = |id: VolumeId| -> Result<VolumeId, RecoverError> {
            let volume = volume_names.get(&id).cloned().unwrap_or_default();
            let now = volumes.iter().find(|(_, route)| route.name == volume).map(|(id, _)| *id);
            now.ok_or(RecoverError::VolumeGone { volume })
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
            recovered.responses.insert(now, response);
        }
        Ok(recovered)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Draining;
    use super::*;
    use crate::claims::ClaimId;
    use crate::host::Room;
    use forebay_units::Bytes;

    #[test]
    fn numbers_of_claims_are_never_used_again_whether_or_not_one_stands_at_a_restart() {
        let hosts = || vec![HostSpec::new(HostId(0), "h0", 0, Bytes::gib(1))];
        let room = Room { memory: Bytes::mib(1), ..Room::default() };
        for released in [0, 1, 2] {
            let mut before = Responses::new(ResponseRules::default(), hosts());
            let claims = &mut before.shared.claims;
            let mut claim = || claims.claim(HostId(0), room, VolumeId(1), None).unwrap();
            let made = [claim(), claim()];
            for id in made.into_iter().rev().take(released) {
                claims.release(id);
            }
            let mut journal = before.journal();
            journal.volumes.push((VolumeId(1), "db".to_owned()));
            let route = VolumeRoute {
                name: "db".to_owned(),
                draining: Draining::Not,
                leased: false,
                home: HostId(0),
                unfit: Vec::new(),
                apart: Vec::new(),
            };
            let volumes = vec![(VolumeId(1), route)];
            let mut after = Responses::recover(journal, ResponseRules::default(), hosts(), volumes).unwrap();
            assert_eq!(after.claims().count(), 2 - released);
            let next = after.shared.claims.claim(HostId(0), room, VolumeId(1), None);
            assert_eq!(next, Ok(ClaimId(3)), "{released} released");
        }
    }
}
