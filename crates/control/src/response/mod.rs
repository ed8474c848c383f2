//! The response to a violation, carried through: a cache that is made on demand, clients that are moved to it, and the way back.
//!
//! A [`Responses`] takes wishes ("this volume wants so much cache") and reports of what orders came to, and says which orders to
//! carry out next. It does nothing itself and reads no clock. Of each volume at most one order is out at a time; each has a deadline,
//! and each may be carried out twice without harm: what is asked for has a name that is used once (appliance, epoch). So a
//! controller that died is replaced by one that reads the [`Journal`], and orders again what it finds half done.
//!
//! What a [`What::Switch`] and a [`What::Fence`] promise is said there; the order of the two is what keeps data whole. A route that
//! drains lets the old path end before the new one begins, and the fence follows, for stragglers. Where the old path cannot be drained, the
//! fence comes first: what is out on the old path is done or refused before the new one opens. Where neither can be had, clients
//! are not moved at all.
//!
//! Invariants, which the tests check on a simulated world with a failure at every step:
//! * clients are never switched while the path that they leave can still change data;
//! * no appliance is stopped while clients may be on it;
//! * of no host more is used than is claimed of it;
//! * a lease that the storage side lost is raised again, in whatever step, before anything else is ordered;
//! * whatever fails, clients end on an appliance that answers, or on the original route, and a decision says which and why.
//!
//! It is *not* the judge of whether a cache is needed and how large (the controller is), nor does it know what a process, a virtual
//! machine or an address is. Source: Dynamite, steps 6 to 9; the rules for failures are ours.

mod drained;
mod journal;
mod machine;
mod order;
mod rules;
mod shared;
mod strays;
mod way;
#[cfg(test)]
mod world;

pub use drained::Drained;
pub use journal::{Journal, RecoverError};
pub use order::{Holder, Order, OrderId, Outcome, Target, What};
pub use rules::ResponseRules;
pub use strays::Found;
pub use way::Way;

use crate::claims::{Claim, ClaimBook};
use crate::decision::{Decision, ZoneRange};
use crate::inventory::{HostId, HostSpec, VolumeId};
use crate::plain;
use forebay_units::{Bytes, Nanos};
use machine::{Phase, Response, why};
use serde::{Deserialize, Serialize};
use shared::{Burial, Shared};
use std::collections::BTreeMap;

/// The number of an appliance. Each that is ordered has its own; none is ever used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ApplianceId(pub u64);

/// How a switch of a route brings the path that clients leave to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draining {
    /// It does not: only what is settled before is switched.
    Not,
    /// What is out on it ends by itself before the new path serves; the route can have clients of either path name an epoch.
    ByItself,
    /// The switch raises the volume's lease to its own epoch, between the old path and the new one. Clients name no epoch.
    ByLease,
}

/// What a volume's route can do, and where its application is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRoute {
    /// Its name, for people and for the journal.
    pub name: String,
    /// How the old path ends. [`Draining::ByLease`] only where `leased`.
    pub draining: Draining,
    /// The storage side has a lease with an epoch for it.
    pub leased: bool,
    /// The application's host.
    pub home: HostId,
    /// Hosts on which its appliance cannot be, and why.
    pub unfit: Vec<(HostId, String)>,
    /// Volumes with whose appliances its own cannot be on one host, and why.
    pub apart: Vec<(VolumeId, String)>,
    /// By what its data, its lease and its clients are reached, which stays while a response is under way.
    pub way: Way,
}

impl VolumeRoute {
    fn drains(&self) -> bool {
        self.draining != Draining::Not
    }
}

/// A cache that is wanted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wish {
    /// How much is to be cached in memory.
    #[serde(rename = "cache_bytes", with = "plain::bytes")]
    pub cache: Bytes,
    /// How much on flash.
    #[serde(rename = "flash_bytes", with = "plain::bytes")]
    pub flash: Bytes,
    /// Requests per second to be served.
    pub rate: f64,
    /// The host to try first. `None`: the application's.
    pub host: Option<HostId>,
}

/// Where a volume's response stands, for people.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResponseStatus {
    /// Which volume.
    pub volume: VolumeId,
    /// A word for the step that it is at.
    pub step: &'static str,
    /// Where its clients are, as far as is known: `original`, `appliance`, or `unknown` from the order to switch or fence until that is known to be done, for however long that is.
    pub route: &'static str,
    /// The appliance, where there is one.
    pub appliance: Option<ApplianceId>,
    /// Its host.
    pub host: Option<HostId>,
    /// What it caches in memory at most, in bytes; 0 without one.
    pub cache_bytes: u64,
    /// What is wanted, in bytes; 0 where nothing is.
    pub wanted_bytes: u64,
    /// The highest epoch that was given out.
    pub epoch: u64,
    /// It is on its way back, to the original route.
    #[serde(skip)]
    pub leaves: bool,
    /// Why it is on its way back, or why the last one ended.
    pub why: Option<String>,
    /// Why the step does not succeed, or an appliance that is wanted is not started for now; it is tried again.
    pub hindered: Option<String>,
    /// Why the appliance that serves clients has nothing of the origin.
    pub origin_trouble: Option<String>,
    /// How long the way of clients was dead when an appliance of theirs last did not answer any more, at most: from its last answer until they were switched to the original
    /// route. `None` where that was not since the controller's start.
    #[serde(skip)]
    pub outage: Option<Nanos>,
}

impl ResponseStatus {
    /// That its step does not succeed, and why, where that is known.
    pub fn hindrance(&self) -> Option<String> {
        Some(format!("{} does not succeed: {}", self.step, self.hindered.as_ref()?))
    }
}

/// All responses; see the module's page.
#[derive(Debug)]
pub struct Responses {
    shared: Shared,
    responses: BTreeMap<VolumeId, Response>,
}

impl Responses {
    /// Nothing anywhere, on `hosts`.
    pub fn new(rules: ResponseRules, hosts: Vec<HostSpec>) -> Responses {
        let shared = Shared {
            rules,
            claims: ClaimBook::new(hosts),
            records: BTreeMap::new(),
            burials: Vec::new(),
            next_appliance: 1,
            next_order: 1,
            drained: Drained::default(),
            unlisted: BTreeMap::new(),
            are_listed: false,
            forgotten_until: Nanos::ZERO,
            now: Nanos::ZERO,
            starting: 0,
            held: false,
            changes: 0,
            orders: Vec::new(),
            tells: Vec::new(),
        };
        Responses { shared, responses: BTreeMap::new() }
    }

    /// A storage side told at which epoch a volume's lease is, asked after everything that was reported so far. Below what it was raised to it has been lost there:
    /// it is raised again, and clients are taken off a cache past which data may have changed.
    /// Where somebody else holds it while clients should be on the original route nothing is done for the volume.
    pub fn lease_seen(&mut self, volume: VolumeId, epoch: u64, holder: Holder) {
        if let Some(response) = self.responses.get_mut(&volume) {
            response.lease_seen(epoch, holder, &mut self.shared);
        }
    }

    /// Adds a volume, whose clients go the original way.
    pub fn register(&mut self, volume: VolumeId, route: VolumeRoute) {
        self.responses.entry(volume).or_insert_with(|| Response::new(volume, route));
    }

    /// A cache is wanted for a volume, or another size. Unknown volumes are ignored.
    pub fn want(&mut self, volume: VolumeId, wish: Wish) {
        if let Some(response) = self.responses.get_mut(&volume) {
            response.want(wish, &mut self.shared);
        }
    }

    /// No cache is wanted any more.
    pub fn give_back(&mut self, volume: VolumeId, why: &str) {
        if let Some(response) = self.responses.get_mut(&volume) {
            response.give_back(why, &mut self.shared);
        }
    }

    /// What to load into a volume's cache once clients are on it; replaces what was to be loaded before.
    pub fn warm(&mut self, volume: VolumeId, zones: Vec<ZoneRange>, bytes_per_second: u64) {
        if let Some(response) = self.responses.get_mut(&volume) {
            response.warm = Some((zones, bytes_per_second));
        }
    }

    /// Takes a volume in of which no journal tells: nothing is done for it before it is known whether its lease or its route was changed before. If so,
    /// something may be under way yet, and its clients are switched to the original route for good.
    pub fn adopt_unknown(&mut self, volume: VolumeId) {
        if let Some(response) = self.responses.get_mut(&volume) {
            response.adopt_unknown(&mut self.shared);
        }
    }

    /// Whether the journal cannot be kept for now. Until it can, nothing is ordered but what needs none ([`Responses::needs_journal`]): what would be refused again and again
    /// for that is nobody's failure.
    pub fn hold(&mut self, held: bool) {
        self.shared.held = held;
    }

    /// Whether an order that was just given out may be begun only once the journal is kept. What only asks may be without, and so may a lease that is raised again: it
    /// becomes what it was, which the journal tells of.
    pub fn needs_journal(&self, order: &Order) -> bool {
        let raises_again =
            self.responses.get(&order.volume).is_some_and(|response| response.raises_again(order.id));
        !order.what.only_asks() && !raises_again
    }

    /// What to do now, in order. `now` is a clock that starts with the controller; where it goes back it is taken to stand still.
    pub fn step(&mut self, now: Nanos) -> Vec<Order> {
        self.shared.now = self.shared.now.max(now);
        let starts = |response: &&Response| matches!(response.phase, Phase::Starting | Phase::Proving);
        self.shared.starting = self.responses.values().filter(starts).count();
        for response in self.responses.values_mut() {
            response.step(&mut self.shared);
        }
        self.look_after_strays();
        self.shared.bury();
        std::mem::take(&mut self.shared.orders)
    }

    /// Takes in what an order came to. Reports of orders that were given up are ignored.
    pub fn report(&mut self, order: OrderId, outcome: Outcome, now: Nanos) {
        self.shared.now = self.shared.now.max(now);
        let mut burials = std::mem::take(&mut self.shared.burials);
        let of = burials.iter().position(|burial| burial.pending.is_some_and(|(id, _)| id == order));
        if let Some(at) = of {
            let gone = outcome == Outcome::Done;
            burials[at].heard(if gone { Ok(()) } else { Err(why(&outcome)) }, &self.shared);
            if gone && self.shared.now >= burials[at].late_until {
                self.shared.claims.release(burials.remove(at).claim);
                self.shared.changes += 1;
            }
        }
        self.shared.burials.append(&mut burials);
        if of.is_some() {
            return;
        }
        let waits = |response: &&mut Response| response.pending.as_ref().is_some_and(|(id, ..)| *id == order);
        if let Some(response) = self.responses.values_mut().find(waits) {
            response.heard(outcome, &mut self.shared);
        }
    }

    /// Takes an order back that was given out and is not carried out, since the journal could not be kept: nothing fails by that, and it is given out again once it can be.
    pub fn withdraw(&mut self, order: Order) {
        for burial in &mut self.shared.burials {
            burial.pending = burial.pending.filter(|(id, _)| *id != order.id);
        }
        let waits =
            |response: &&mut Response| response.pending.as_ref().is_some_and(|(id, ..)| *id == order.id);
        if let Some(response) = self.responses.values_mut().find(waits) {
            response.pending = None;
            if let What::Warm { zones, bytes_per_second, .. } = order.what {
                response.warm.get_or_insert((zones, bytes_per_second));
            }
        }
    }

    /// What was decided since this was asked last.
    pub fn decisions(&mut self) -> Vec<Decision> {
        std::mem::take(&mut self.shared.tells)
    }

    /// Rises whenever the journal is not what it was.
    pub fn changes(&self) -> u64 {
        self.shared.changes
    }

    /// Room that is spoken for.
    pub fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.shared.claims.claims()
    }

    /// What can still be cached in memory on a host by one more appliance; nothing while it is left out.
    pub fn free(&self, host: HostId) -> Bytes {
        match self.shared.why_left_out(host) {
            Some(_) => Bytes::ZERO,
            None => self.shared.rules.cost.cache(self.shared.claims.free(host).memory),
        }
    }

    /// Whether a host is left out for a while.
    pub fn rests(&self, host: HostId) -> bool {
        self.why_rests(host).is_some()
    }

    /// Why a host is left out for a while: something went wrong there, or it is not known yet what runs there.
    pub fn why_rests(&self, host: HostId) -> Option<String> {
        self.shared.rests(host)
    }

    /// The most that a volume could cache in memory: in the appliance that it has, or in one that would take its place; on hosts where it can be, and that are not left out now.
    pub fn most(&self, volume: VolumeId) -> Bytes {
        self.responses.get(&volume).map_or(Bytes::ZERO, |response| response.most(&self.shared))
    }

    /// What an appliance takes beside what it caches.
    pub fn beside(&self) -> Bytes {
        self.shared.rules.cost.room(Bytes::ZERO, Bytes::ZERO, 0.0).memory
    }

    /// Where a volume stands; `None` for an unknown one.
    pub fn status(&self, volume: VolumeId) -> Option<ResponseStatus> {
        self.responses.get(&volume).map(|response| response.status(&self.shared))
    }
}
