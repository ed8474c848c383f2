//! Strays: appliances that run on, and of which nothing is known any more since the journal is lost.
//!
//! Hosts say what runs there. What is of before is claimed for at once, so that its memory is not promised to others, and stopped once none of its clients can be there. Those
//! are looked for and brought back by the volume's response, as after every start without a journal; where they can neither be drained nor fenced, what runs
//! tells which appliance they are on, and the response goes on with that as if it had ordered it.
//!
//! Invariant: no stray is stopped before it is known where its volume's clients are, and nothing that was ordered before can have its effect yet.

use super::{ApplianceId, Responses};
use crate::host::Room;
use crate::inventory::{HostId, VolumeId};
use forebay_units::{Bytes, Nanos};

/// An appliance that runs on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which.
    pub appliance: ApplianceId,
    /// The volume that it serves.
    pub volume: VolumeId,
    /// What it may take.
    pub memory: Bytes,
    /// The volume's route is known to lead there.
    pub has_clients: bool,
}

impl Responses {
    /// There was a journal, and it is lost. Appliances that are ordered from now on have numbers from `first` on, above all of before: what runs on under one of those would
    /// be taken for another. Which these are, hosts are to say ([`Responses::unlisted`]).
    pub fn forget(&mut self, first: ApplianceId) {
        let shared = &mut self.shared;
        shared.next_appliance = shared.next_appliance.max(first.0);
        let first = ApplianceId(shared.next_appliance);
        shared.unlisted = shared.claims.hosts().iter().map(|host| (host.id, first)).collect();
        shared.are_listed = false;
        shared.forgotten_until = shared.after_ms(shared.rules.late_max_ms);
        shared.changes += 1;
    }

    /// Hosts that are to say what runs there, since the journal that told it is lost.
    pub fn unlisted(&self) -> impl Iterator<Item = HostId> {
        self.shared.unlisted.keys().copied()
    }

    /// What runs on a host that was asked for it at `asked`. It is to be asked again until nothing that was ordered before can start there late.
    pub fn listed(&mut self, host: HostId, asked: Nanos, found: Vec<Found>) {
        let Some(&first) = self.shared.unlisted.get(&host) else { return };
        for Found { appliance, volume, memory, has_clients } in found {
            let Some(response) = self.responses.get(&volume) else { continue };
            if let Some(of) = self.shared.burials.iter_mut().find(|of| of.appliance == appliance) {
                of.has_clients = has_clients;
            } else if appliance < first && !response.has(appliance) {
                let claim = self.shared.claim_found(host, Room { memory, ..Room::default() }, volume);
                self.shared.start_burial(appliance, host, volume, claim, true);
                let burial = self.shared.burials.last_mut().expect("just begun");
                (burial.until_known, burial.has_clients) = (true, has_clients);
                response.tell_found(appliance, host, memory, &mut self.shared);
            }
        }
        if asked >= self.shared.forgotten_until {
            self.shared.unlisted.remove(&host);
            self.shared.are_listed = self.shared.unlisted.is_empty();
            self.shared.changes += 1;
        }
    }

    /// Has strays stopped that nobody can be on any more, and clients brought back that wait for that.
    pub(super) fn look_after_strays(&mut self) {
        for burial in self.shared.burials.iter_mut().filter(|burial| burial.until_known) {
            let is_known = self.responses.get(&burial.volume).is_none_or(|of| of.knows_where_clients_are());
            if is_known {
                burial.until_known = false;
                self.shared.changes += 1;
            }
        }
        // Who has lost the secret by which hosts know their controller, too, cannot know what does not run.
        if !self.shared.are_listed {
            return;
        }
        for (volume, response) in self.responses.iter_mut().filter(|(_, response)| response.is_stranded()) {
            let burials = &mut self.shared.burials;
            let at = match burials.iter().filter(|of| of.volume == *volume).count() {
                0 => {
                    response.find_nothing(&mut self.shared);
                    continue;
                }
                1 => burials.iter().position(|of| of.volume == *volume),
                _ => burials.iter().position(|of| of.volume == *volume && of.has_clients),
            };
            // Else nobody can say which of them clients are on.
            if let Some(at) = at {
                let burial = burials.remove(at);
                response.take_for_its_own(&burial, &mut self.shared);
            }
        }
    }
}
