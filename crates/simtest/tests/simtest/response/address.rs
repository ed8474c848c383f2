//! An address that moves, in place of a proxy: clients connect to whoever has it, and again when it has moved.
//!
//! As `actuate::route::AddressRoute` does it, from the controller's machine, so that a controller that dies leaves a move where it is: taken from
//! where it is, asked for on the wire, fenced by the lease, given to the new host and announced. A host that cannot be asked may keep it. Whoever changes the order there changes it here.

use super::carrying::Stage;
use super::visit::{Visited, Which};
use super::wires::{Connection, Destination, Peer, Place};
use super::world::{Event, World, note};
use forebay_appliance::service::{Holder as LeaseHolder, Lease};
use forebay_control::response::{Outcome, Target, What};
use forebay_units::Nanos;
use std::collections::BTreeSet;

/// A hundredth of how long is asked on the wire.
const ASKED_NS: u64 = 1_000_000;

/// Where it is.
#[derive(Debug)]
pub(super) struct Address {
    /// Whose interface has it.
    at: BTreeSet<Place>,
    /// Who said so last: packets go there.
    announced: Place,
}

impl Address {
    /// Where the data is, as before there was any appliance.
    pub(super) fn at_first() -> Address {
        Address { at: BTreeSet::from([Place::Storage]), announced: Place::Storage }
    }

    pub(super) fn is_at(&self, place: Place) -> bool {
        self.at.contains(&place)
    }

    fn give(&mut self, place: Place) {
        self.at.insert(place);
        self.announced = place;
    }

    pub(super) fn host_died(&mut self, host: u32) {
        self.at.remove(&Place::Host(host));
    }
}

fn place_of(to: Target) -> Place {
    match to {
        Target::Original => Place::Storage,
        Target::Appliance { host, .. } => Place::Host(host.0),
    }
}

impl World {
    /// Whose server answers who connects to the address.
    pub(super) fn behind_address(&self) -> Option<Destination> {
        let address = self.address.as_ref()?;
        let is_heard = |place: &&Place| self.is_on_the_wire(**place);
        let announced = Some(&address.announced).filter(|place| address.at.contains(place));
        match announced.filter(is_heard).or_else(|| address.at.iter().find(is_heard))? {
            Place::Host(host) => self.appliance_at(*host).map(Destination::Appliance),
            _ => Some(Destination::Storage(None)),
        }
    }

    /// Whether a host answers whoever asks for an address of its; one that stands still does not.
    fn is_on_the_wire(&self, place: Place) -> bool {
        match place {
            Place::Host(host) => {
                let host = &self.hosts[host as usize];
                !host.is_dead && self.now >= host.still_until
            }
            _ => true,
        }
    }

    fn is_told(&self, place: Place) -> bool {
        self.is_on_the_wire(place) && self.reaches(Place::Controller, place)
    }

    /// Who has the lease says which epoch is in force; nobody may answer.
    pub(super) fn epoch_in_force(&self) -> Option<u64> {
        let answers = self.storage.is_some_and(|node| !self.nodes[&node].hangs);
        (answers && self.reaches(Place::Controller, Place::Storage)).then_some(self.lease.epoch)
    }

    /// An order to move the address begins.
    pub(super) fn move_address(&mut self, id: u64) {
        let doing = &self.doing[&id];
        let What::Switch { to, epoch, settled } = doing.order.what else { unreachable!("it switches") };
        if self.is_past_its_time(id) {
            return self.finish(id, Outcome::Unknown("its time was over before it could begin".into()));
        }
        let Some(in_force) = self.epoch_in_force() else {
            return self.finish(
                id,
                Outcome::Refused("the storage side does not say which epoch is in force".into()),
            );
        };
        if epoch < in_force {
            return self.finish(id, Outcome::Stale { epoch: in_force });
        }
        let new = place_of(to);
        let serves = match to {
            Target::Original => self.storage.is_some(),
            Target::Appliance { appliance, .. } => self.appliances.contains_key(&appliance),
        };
        let has_it = &self.address.as_ref().expect("one that moves").at;
        let old: Vec<Place> = has_it.iter().copied().filter(|place| self.is_told(*place)).collect();
        if old == [new] {
            self.address_is_at(to, epoch);
            return self.finish(id, Outcome::Switched { pause: Nanos::ZERO });
        }
        if !serves || !self.is_told(new) {
            return self.finish(id, Outcome::Refused("nobody serves there".into()));
        }
        let visit = self.server_at(&old).filter(|_| !settled);
        match visit.and_then(|server| self.visit(id, server, Which::First)) {
            Some(_) => self.doing.get_mut(&id).expect("it begins").stage = Stage::FlushingAhead(old),
            None => self.take_address(id, old, false),
        }
    }

    /// Who serves at the one place where the address is.
    fn server_at(&self, old: &[Place]) -> Option<Destination> {
        match old {
            [Place::Host(host)] => self.appliance_at(*host).map(Destination::Appliance),
            [Place::Storage] => Some(Destination::Storage(None)),
            _ => None,
        }
    }

    /// The address is taken from where it is.
    fn take_address(&mut self, id: u64, old: Vec<Place>, is_flushed: bool) {
        for place in &old {
            self.take_address_from(*place);
        }
        let server = self.server_at(&old).filter(|_| is_flushed);
        let visit = server.and_then(|server| self.visit(id, server, Which::Second));
        let doing = self.doing.get_mut(&id).expect("it begins");
        doing.stage = Stage::Asking { visit, is_asked: false, is_refused: false };
        doing.taken_from = old;
        self.schedule(ASKED_NS, Event::Asked(id));
    }

    /// The old path has flushed, or not.
    pub(super) fn visited(&mut self, id: u64, visit: u64, visited: Visited) {
        let Some(doing) = self.doing.get_mut(&id) else { return };
        match &mut doing.stage {
            Stage::FlushingAhead(_) if [Visited::NotFlushed, Visited::Unanswered].contains(&visited) => {
                self.finish(id, Outcome::NotDrained("the old path has not flushed".into()));
            }
            Stage::FlushingAhead(old) => {
                let old = std::mem::take(old);
                self.take_address(id, old, visited == Visited::Flushed);
            }
            Stage::Asking { visit: behind, is_asked, is_refused } if *behind == Some(visit) => {
                (*behind, *is_refused) = (None, visited == Visited::NotFlushed);
                let is_asked = *is_asked;
                if visited == Visited::Unanswered {
                    // What it says now it says to nobody.
                    self.untold_loss = None;
                }
                if is_asked {
                    self.asked(id);
                }
            }
            _ => {}
        }
    }

    /// Clients' connections end there; what is under way on them may be done yet.
    fn take_address_from(&mut self, place: Place) {
        note!(self, "the address is taken from {place:?}");
        self.address.as_mut().expect("one that moves").at.remove(&place);
        let is_its = |connection: &Connection| {
            matches!(connection.peer, Peer::Application(_))
                && self.nodes.get(&connection.node).is_some_and(|node| node.place == place)
        };
        let its: Vec<u64> = self.connections.iter().filter(|(_, c)| is_its(c)).map(|(id, _)| *id).collect();
        its.into_iter().for_each(|id| self.sever(id));
    }

    /// Nobody else has it, as far as can be heard: the old path is fenced, once it has flushed.
    pub(super) fn asked(&mut self, id: u64) {
        let Some(doing) = self.doing.get_mut(&id) else { return };
        let Stage::Asking { visit, is_asked, is_refused } = &mut doing.stage else { return };
        *is_asked = true;
        if visit.is_some() {
            return;
        }
        let is_refused = *is_refused;
        let What::Switch { to, epoch, settled } = doing.order.what else { unreachable!("it switches") };
        if is_refused {
            self.put_address_back(id);
            return self.finish(id, Outcome::NotDrained("the old path has not flushed".into()));
        }
        let new = place_of(to);
        let others = &self.address.as_ref().expect("one that moves").at;
        if others
            .iter()
            .any(|place| *place != new && self.is_on_the_wire(*place) && self.reaches(new, *place))
        {
            self.put_address_back(id);
            return self.finish(id, Outcome::Refused("the address is in use".into()));
        }
        if settled {
            return self.give_address(id);
        }
        let holder = if to == Target::Original { LeaseHolder::Original } else { LeaseHolder::Named };
        if self.epoch_in_force().is_none() {
            self.put_address_back(id);
            return self.finish(id, Outcome::Unknown("the lease may have been raised".into()));
        }
        match self.lease.raised(Lease { epoch, holder }) {
            Err(_) => {
                let epoch = self.lease.epoch;
                self.put_address_back(id);
                self.finish(id, Outcome::Stale { epoch });
            }
            Ok(lease) => {
                self.lease = lease;
                let node = self.storage.expect("it answers");
                let state = self.nodes.get_mut(&node).expect("it is there");
                if let Some(volume) = state.volume {
                    state.service.fence(volume, lease);
                    self.doing.get_mut(&id).expect("looked up above").stage = Stage::FencingMove;
                    return self.check_orders(node);
                }
                self.put_address_back(id);
                self.finish(id, Outcome::Unknown("its origin is absent".into()));
            }
        }
    }

    /// The old path can do nothing any more.
    pub(super) fn give_address(&mut self, id: u64) {
        let doing = &self.doing[&id];
        let What::Switch { to, epoch, .. } = doing.order.what else { unreachable!("it switches") };
        let pause = Nanos(self.now - doing.began);
        if !self.is_told(place_of(to)) {
            self.put_address_back(id);
            return self.finish(id, Outcome::Unknown("it cannot be given".into()));
        }
        self.address.as_mut().expect("one that moves").give(place_of(to));
        self.address_is_at(to, epoch);
        self.course.switches += 1;
        self.finish(id, Outcome::Switched { pause });
    }

    fn address_is_at(&mut self, to: Target, epoch: u64) {
        note!(self, "the address is at {to:?}");
        let before = std::mem::replace(
            &mut self.route,
            match to {
                Target::Original => (Destination::Storage(None), epoch),
                Target::Appliance { appliance, .. } => (Destination::Appliance(appliance), epoch),
            },
        );
        if let (Destination::Appliance(appliance), true) = (before.0, before.0 != self.route.0)
            && let Some((_, node)) = self.appliance(appliance)
            && let Place::Host(host) = node.place
        {
            self.left_behind(host);
        }
    }

    /// An application is told that the write of this version is done.
    pub(super) fn take_account(&mut self, application: usize, version: u64) {
        let connection = self.applications[application].connection;
        if let (true, Some(connection)) = (self.address.is_some(), connection) {
            let node = self.connections[&connection].node;
            self.taken_by.insert(version, (node, self.storage));
        }
    }

    /// Whether somebody can know of this version, if it is lost just now, that it was done. Who comes by an address names no run, and connects anew now and then: of what is lost behind its
    /// back only those know who have lived since then, the storage side or an appliance on which clients are still.
    pub(super) fn is_accounted_for(&self, version: u64) -> bool {
        let Some((node, _)) = self.taken_by.get(&version) else { return self.address.is_none() };
        self.appliance_of_clients() == Some(*node) || self.storage_knows_of(version)
    }

    /// Whether the storage side is still the run that had sent this version on.
    pub(super) fn storage_knows_of(&self, version: u64) -> bool {
        match self.taken_by.get(&version) {
            Some((_, storage)) => storage.is_some() && *storage == self.storage,
            None => self.address.is_none(),
        }
    }

    /// The appliance that has the address.
    pub(super) fn appliance_of_clients(&self) -> Option<u64> {
        match self.behind_address()? {
            Destination::Appliance(appliance) => self.appliances.get(&appliance).copied(),
            _ => None,
        }
    }

    /// Whether somebody who knows of a loss is still there to tell those who flush.
    pub(super) fn is_loss_known(&self) -> bool {
        self.loss_known_by.is_none() || self.loss_known_by == self.appliance_of_clients()
    }

    /// The move failed: the address goes back to where somebody serves, of where it was.
    pub(super) fn put_address_back(&mut self, id: u64) {
        let places = std::mem::take(&mut self.doing.get_mut(&id).expect("the caller looked").taken_from);
        for place in places.into_iter().filter(|place| self.is_told(*place)).collect::<Vec<_>>() {
            note!(self, "the address is back at {place:?}");
            self.address.as_mut().expect("one that moves").give(place);
            // Clients come back to the server that they left: what was under way there is over by then, as with any connection that breaks.
            let nodes = &self.nodes;
            let is_its = |connection: &&mut Connection| {
                connection.is_cut
                    && matches!(connection.peer, Peer::Application(_))
                    && nodes.get(&connection.node).is_some_and(|node| node.place == place)
            };
            self.connections.values_mut().filter(is_its).for_each(Connection::lose_what_is_under_way);
        }
    }

    /// What moves addresses dies with the controller, wherever it is.
    pub(super) fn mover_died(&mut self) {
        if self.address.is_some() {
            self.doing.retain(|_, doing| !matches!(doing.order.what, What::Switch { .. }));
            self.visitors_died();
        }
    }
}
