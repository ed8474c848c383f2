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

mod journal;
mod machine;
mod ranges;
#[cfg(test)]
mod world;

pub use journal::{Journal, RecoverError};

use crate::claims::{Claim, ClaimBook, ClaimId};
use crate::decision::{Decision, DecisionKind, Fact, ZoneRange};
use crate::host::{ApplianceCost, Room};
use crate::inventory::{HostId, HostSpec, VolumeId};
use crate::plain;
use forebay_units::{Bytes, Nanos};
use machine::{Phase, Response};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The number of an appliance. Each that is ordered has its own; none is ever used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ApplianceId(pub u64);

/// The number of an order, for its report; of one run of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderId(pub u64);

/// Times, in milliseconds, and counts. All are ours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResponseRules {
    /// For an appliance to start, and then as long for it to answer. Default 30,000.
    pub start_within_ms: u64,
    /// For a probe or a look, and for a change of a size or the beginning of a warm-up. Default 2,000.
    pub probe_within_ms: u64,
    /// For a fence. Default 10,000.
    pub fence_within_ms: u64,
    /// For a switch of the route. Default 5,000.
    pub switch_within_ms: u64,
    /// For an appliance to stop. Default 20,000.
    pub stop_within_ms: u64,
    /// An order without a report so long after its deadline has an unknown outcome. Default 2,000.
    pub report_grace_ms: u64,
    /// So long after that the start of an appliance may still have its effect. Default 60,000.
    pub late_max_ms: u64,
    /// From probe to probe. Default 1,000.
    pub probe_every_ms: u64,
    /// Probes in a row without an answer after which an appliance is given up. Default 3; at least 1.
    pub probe_failures: u32,
    /// How often a step of the way there is tried. Default 3; at least 1.
    pub tries_max: u32,
    /// Pause after the first failure; it doubles with each. Default 1,000.
    pub retry_first_ms: u64,
    /// The longest pause. Default 60,000.
    pub retry_max_ms: u64,
    /// For how long a host on which an appliance failed is left out at first; it doubles with each failure. Default 60,000.
    pub rest_first_ms: u64,
    /// The longest that a host is left out. Default 1,800,000.
    pub rest_max_ms: u64,
    /// Appliances that start at once. Default 4; at least 1.
    pub starting_max: usize,
    /// Room that is claimed beyond the first size, as a share of that, since what runs cannot be given more; less where there is less. Default 1.
    pub headroom: f64,
    /// The least of that, in bytes: a first size is approached from below, and may be a small part of what is needed. Default 64 MiB.
    #[serde(with = "crate::plain::size")]
    pub headroom_bytes: u64,
    /// What an appliance takes beside what it caches.
    pub cost: ApplianceCost,
}

impl Default for ResponseRules {
    fn default() -> ResponseRules {
        ResponseRules {
            start_within_ms: 30_000,
            probe_within_ms: 2_000,
            fence_within_ms: 10_000,
            switch_within_ms: 5_000,
            stop_within_ms: 20_000,
            report_grace_ms: 2_000,
            late_max_ms: 60_000,
            probe_every_ms: 1_000,
            probe_failures: 3,
            tries_max: 3,
            retry_first_ms: 1_000,
            retry_max_ms: 60_000,
            rest_first_ms: 60_000,
            rest_max_ms: 1_800_000,
            starting_max: 4,
            headroom: 1.0,
            headroom_bytes: 64 << 20,
            cost: ApplianceCost::default(),
        }
    }
}

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

/// Where clients are to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// Straight to the storage side.
    Original,
    /// Through an appliance.
    Appliance {
        /// Which.
        appliance: ApplianceId,
        /// Where.
        host: HostId,
    },
}

/// Who is let in at the storage side at the lease's epoch; those of higher epochs always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    /// Who names no epoch.
    Original,
    /// Who names this epoch.
    Named,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// Ask at which epoch the volume's lease and its route are: of both, where it has both. Done only if they answer.
    Look,
    /// Start an appliance, unless it runs. It reaches the storage side by `epoch`, and caches nothing until it is told so by
    /// [`What::Resize`]: whoever looks whether it tells the truth before clients are on it must not leave anything in its cache.
    Start {
        /// Which.
        appliance: ApplianceId,
        /// Where.
        host: HostId,
        /// The most that it may take.
        room: Room,
        /// How much it is to be able to cache in memory.
        cache: Bytes,
        /// How much on flash.
        flash: Bytes,
        /// Its epoch.
        epoch: u64,
    },
    /// Ask whether an appliance serves. Done only if it answers for the volume.
    Probe {
        /// Which.
        appliance: ApplianceId,
        /// Where.
        host: HostId,
    },
    /// Raise the volume's lease. Once it is done nothing of whom the lease does not admit changes data any more.
    Fence {
        /// To this epoch,
        epoch: u64,
        /// held by.
        holder: Holder,
    },
    /// Move the clients. Once it is done their requests take the new path only. An order with a lower epoch than one carried out is stale and has no effect.
    Switch {
        /// Where to.
        to: Target,
        /// The epoch that the new path names.
        epoch: u64,
        /// What was out on the old path is settled already; else the route drains it, or refuses.
        settled: bool,
    },
    /// Let the appliance cache so much.
    Resize {
        /// Which.
        appliance: ApplianceId,
        /// Where.
        host: HostId,
        /// How much.
        cache: Bytes,
    },
    /// Have the appliance load these zones, at most so fast.
    Warm {
        /// Which.
        appliance: ApplianceId,
        /// Where.
        host: HostId,
        /// What to load, the most important first.
        zones: Vec<ZoneRange>,
        /// How fast.
        bytes_per_second: u64,
    },
    /// Stop an appliance. Done once it does not run, whether or not it ever did.
    Stop {
        /// Which.
        appliance: ApplianceId,
        /// Where.
        host: HostId,
    },
}

impl What {
    /// A word for it.
    pub fn word(&self) -> &'static str {
        match self {
            What::Look => "look",
            What::Start { .. } => "start",
            What::Probe { .. } => "probe",
            What::Fence { .. } => "fence",
            What::Switch { .. } => "switch",
            What::Resize { .. } => "resize",
            What::Warm { .. } => "warm",
            What::Stop { .. } => "stop",
        }
    }

    /// Whether it only asks, so that nobody need know of it after a restart.
    pub fn only_asks(&self) -> bool {
        matches!(self, What::Look | What::Probe { .. })
    }
}

/// Something to be done now. The journal is kept before it is begun.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// Its number, for the report.
    pub id: OrderId,
    /// Of which volume.
    pub volume: VolumeId,
    /// When it is to be given up.
    pub deadline: Nanos,
    /// What.
    pub what: What,
}

/// What an order came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// The appliance answers, and has so much for its cache.
    Healthy {
        /// How much.
        cache: Bytes,
    },
    /// The higher of the epochs that were asked for; 0 where there was never any.
    Found {
        /// Which.
        epoch: u64,
    },
    /// The clients are switched.
    Switched {
        /// For how long neither path answered.
        pause: Nanos,
    },
    /// It had no effect and will have none.
    Refused(String),
    /// The same of a switch, because what is out on the old path cannot be brought to its end.
    NotDrained(String),
    /// The same of a switch, because nobody is there who would be moved: who comes next takes the original path.
    NoClient(String),
    /// The lease, or the route, is at a higher epoch already; nothing has changed.
    Stale {
        /// At which.
        epoch: u64,
    },
    /// It may have had its effect, or have it yet.
    Unknown(String),
}

/// Where a volume's response stands, for people.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResponseStatus {
    /// Which volume.
    pub volume: VolumeId,
    /// A word for the step that it is at.
    pub step: &'static str,
    /// Where its clients are, as far as is known: `original`, `appliance`, or `unknown` while they are being switched.
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
    /// Why it is on its way back, or why the last one ended.
    pub why: Option<String>,
}

/// An appliance that is to be gone and is not known to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Burial {
    appliance: ApplianceId,
    host: HostId,
    volume: VolumeId,
    claim: ClaimId,
    /// Its start may still have an effect.
    late: bool,
    /// It is not stopped before that is over either.
    #[serde(default)]
    waits: bool,
    #[serde(skip)]
    late_until: Nanos,
    #[serde(skip)]
    pause_until: Nanos,
    #[serde(skip)]
    tries: u32,
    #[serde(skip)]
    pending: Option<(OrderId, Nanos)>,
}

/// How a host has fared.
#[derive(Clone, Debug, Default)]
struct HostRecord {
    failures: u32,
    rests_until: Nanos,
    why: String,
}

/// What all responses share.
#[derive(Debug)]
struct Shared {
    rules: ResponseRules,
    claims: ClaimBook,
    records: BTreeMap<HostId, HostRecord>,
    burials: Vec<Burial>,
    next_appliance: u64,
    next_order: u64,
    now: Nanos,
    starting: usize,
    /// The journal cannot be kept now.
    held: bool,
    changes: u64,
    orders: Vec<Order>,
    tells: Vec<Decision>,
}

impl Shared {
    fn after_ms(&self, span_ms: u64) -> Nanos {
        self.now.saturating_add(Nanos::millis(span_ms))
    }

    /// The pause after so many failures.
    fn pause_ms(&self, failures: u32) -> u64 {
        let doubled = self.rules.retry_first_ms.saturating_mul(1 << failures.saturating_sub(1).min(20));
        doubled.min(self.rules.retry_max_ms)
    }

    fn host_name(&self, host: HostId) -> String {
        let spec = self.claims.hosts().iter().find(|spec| spec.id == host);
        spec.map_or_else(|| format!("host {}", host.0), |spec| spec.name.clone())
    }

    /// Gives an order out; its number, and when it is taken for lost.
    fn order(&mut self, volume: VolumeId, what: What) -> (OrderId, Nanos) {
        let rules = &self.rules;
        let within = match &what {
            What::Start { .. } => rules.start_within_ms,
            What::Look | What::Probe { .. } | What::Resize { .. } | What::Warm { .. } => {
                rules.probe_within_ms
            }
            What::Fence { .. } => rules.fence_within_ms,
            What::Switch { .. } => rules.switch_within_ms,
            What::Stop { .. } => rules.stop_within_ms,
        };
        let lost = self.after_ms(within.saturating_add(rules.report_grace_ms));
        let id = OrderId(self.next_order);
        self.next_order += 1;
        self.orders.push(Order { id, volume, deadline: self.after_ms(within), what });
        (id, lost)
    }

    fn tell(&mut self, volume: VolumeId, name: &str, kind: DecisionKind, summary: String, facts: Vec<Fact>) {
        let volume_name = name.to_owned();
        let at = self.now;
        let alternatives = Vec::new();
        self.tells.push(Decision { at, volume, volume_name, kind, summary, facts, alternatives });
    }

    /// An appliance failed on this host: it is left out for a while.
    fn host_failed(&mut self, host: HostId, why: &str) {
        let record = self.records.entry(host).or_default();
        let doubled = self.rules.rest_first_ms.saturating_mul(1 << record.failures.min(20));
        record.failures += 1;
        record.rests_until = self.now.saturating_add(Nanos::millis(doubled.min(self.rules.rest_max_ms)));
        record.why = why.to_owned();
    }

    /// Why a host is left out now.
    fn rests(&self, host: HostId) -> Option<String> {
        let record = self.records.get(&host).filter(|record| self.now < record.rests_until)?;
        let left = record.rests_until.saturating_since(self.now).as_secs_f64();
        Some(format!("rests for {left:.0} s: {}", record.why))
    }

    /// Whether this may be ordered now.
    fn may_order(&self, what: &What) -> bool {
        !self.held || what.only_asks()
    }

    fn bury(&mut self) {
        let mut burials = std::mem::take(&mut self.burials);
        for burial in &mut burials {
            if burial.pending.is_some_and(|(_, lost)| self.now > lost) {
                burial.heard(false, self);
            }
            let what = What::Stop { appliance: burial.appliance, host: burial.host };
            if burial.pending.is_none() && self.now >= burial.pause_until && self.may_order(&what) {
                burial.pending = Some(self.order(burial.volume, what));
            }
        }
        self.burials = burials;
    }
}

impl Burial {
    fn heard(&mut self, gone: bool, shared: &Shared) {
        self.pending = None;
        if gone {
            self.tries = 0;
            self.pause_until = self.late_until;
        } else {
            self.tries += 1;
            self.pause_until = shared.after_ms(shared.pause_ms(self.tries));
        }
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
    pub fn lease_seen(&mut self, volume: VolumeId, epoch: u64) {
        if let Some(response) = self.responses.get_mut(&volume) {
            response.lease_seen(epoch, &mut self.shared);
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

    /// Takes an appliance in on which clients were found, where no journal tells of it: it serves.
    pub fn adopt(&mut self, volume: VolumeId, found: Adopted) {
        self.shared.next_appliance = self.shared.next_appliance.max(found.appliance.0 + 1);
        if let Some(response) = self.responses.get_mut(&volume) {
            response.adopt(found, &mut self.shared);
        }
    }

    /// Takes a volume in of which no journal tells: nothing is done for it before it is known whether its lease or its route was changed before. If so,
    /// something may be under way yet, and its clients are switched to the original route for good.
    pub fn adopt_unknown(&mut self, volume: VolumeId) {
        if let Some(response) = self.responses.get_mut(&volume) {
            response.adopt_unknown(&mut self.shared);
        }
    }

    /// Appliances that are ordered from now on have numbers from `first` on: where no journal tells which were used, what runs on under one of them would be
    /// taken for another.
    pub fn number_from(&mut self, first: ApplianceId) {
        self.shared.next_appliance = self.shared.next_appliance.max(first.0);
        self.shared.changes += 1;
    }

    /// Has an appliance stopped that was found running, where no journal tells of it and no client is on it: not before an order that is late
    /// could still bring clients there.
    pub fn adopt_stray(&mut self, volume: VolumeId, appliance: ApplianceId, host: HostId, room: Room) {
        self.shared.next_appliance = self.shared.next_appliance.max(appliance.0 + 1);
        let claim = self.shared.claim_found(host, room, volume);
        self.shared.start_burial(appliance, host, volume, claim, true);
        let burial = self.shared.burials.last_mut().expect("just begun");
        (burial.waits, burial.pause_until) = (true, burial.late_until);
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
            burials[at].heard(gone, &self.shared);
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
        match self.shared.rests(host) {
            Some(_) => Bytes::ZERO,
            None => self.shared.rules.cost.cache(self.shared.claims.free(host).memory),
        }
    }

    /// Whether a host is left out for a while, since something went wrong there.
    pub fn rests(&self, host: HostId) -> bool {
        self.shared.rests(host).is_some()
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
        self.responses.get(&volume).map(Response::status)
    }
}

/// An appliance that clients were found on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// Which.
    pub appliance: ApplianceId,
    /// Where.
    pub host: HostId,
    /// What it takes.
    pub room: Room,
    /// How much it may cache in memory.
    pub cache: Bytes,
    /// Its epoch.
    pub epoch: u64,
}

impl Shared {
    /// A claim for what is there already, whether or not the host is said to have as much.
    fn claim_found(&mut self, host: HostId, room: Room, volume: VolumeId) -> ClaimId {
        let id = ClaimId(self.claims.next());
        self.claims.restore(Claim { id, host, room, volume, until: None });
        self.changes += 1;
        id
    }

    fn start_burial(
        &mut self,
        appliance: ApplianceId,
        host: HostId,
        volume: VolumeId,
        claim: ClaimId,
        late: bool,
    ) {
        let late_until = if late { self.after_ms(self.rules.late_max_ms) } else { Nanos::ZERO };
        self.burials.push(Burial {
            appliance,
            host,
            volume,
            claim,
            late,
            waits: false,
            late_until,
            pause_until: self.now,
            tries: 0,
            pending: None,
        });
        self.changes += 1;
    }
}
