//! Responses on a simulated world in which anything may fail at any step: hosts, appliances, the storage side, the route, the network, the controller, the clock.
//!
//! The world keeps the promises that orders make (`What`), and checks those that responses make (the module's page). Effects may come late,
//! or come and not be heard of; orders to one route with a lower epoch than one that it carried out have no effect.

use super::*;
use crate::inventory::HostSpec;
use forebay_units::{Bytes, mix64};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

const VOLUME: VolumeId = VolumeId(4);
const CACHE: Bytes = Bytes::mib(40);
/// A host that the volume's appliance cannot be on.
const UNFIT: HostId = HostId(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// The host that the order is about, or on which the appliance is, stops for good.
    HostDies,
    /// It stops, and is back after a while without what ran on it.
    HostRestarts,
    ApplianceDies,
    /// It runs, holds its connections, and answers nobody.
    ApplianceHangs,
    /// From here on, appliances that are started here never answer.
    ImageDoesNotBoot,
    /// Starting is refused here from here on.
    AddressInUse,
    /// Appliances get less memory here than was said.
    HostLies,
    /// Nothing is heard of orders to this host for a while; what they do is done.
    HypervisorHangs,
    /// The controller reaches nothing on this host for a while; clients do.
    ControllerCutOff,
    /// Neither clients nor the controller reach the storage side for a while.
    StorageDown,
    /// Nothing is heard of the route for a while.
    RouteHangs,
    /// The answer to this order alone is lost.
    AnswerLost,
    /// The clock is an hour ahead from here on.
    ClockForward,
    /// The clock goes back by as much as it can.
    ClockBack,
    /// What is on disk is lost with the controller.
    JournalLost,
}

const FAILURES: [Failure; 15] = [
    Failure::HostDies,
    Failure::HostRestarts,
    Failure::ApplianceDies,
    Failure::ApplianceHangs,
    Failure::ImageDoesNotBoot,
    Failure::AddressInUse,
    Failure::HostLies,
    Failure::HypervisorHangs,
    Failure::ControllerCutOff,
    Failure::StorageDown,
    Failure::RouteHangs,
    Failure::AnswerLost,
    Failure::ClockForward,
    Failure::ClockBack,
    Failure::JournalLost,
];

/// What strikes, at which order.
#[derive(Clone, Copy, Debug)]
struct Strike {
    order: usize,
    failure: Failure,
    /// After the order had its effect, else before.
    after: bool,
    /// The effect comes yet, so much later, though the order is reported as of unknown outcome.
    late: bool,
    /// The controller dies with it.
    controller_dies: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Works,
    Hangs,
}

#[derive(Clone, Debug)]
struct Machine {
    host: HostId,
    room: Room,
    cache: Bytes,
    condition: Condition,
    answers: bool,
}

#[derive(Clone, Debug, Default)]
struct Host {
    dead: bool,
    back_at: Option<u64>,
    no_boot: bool,
    in_use: bool,
    lies: bool,
    deaf_until: u64,
    cut_until: u64,
}

/// How clients reach their data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    /// Straight, naming no epoch or this one.
    Straight(Option<u64>),
    Through(ApplianceId, u64),
}

struct World {
    draining: Draining,
    leased: bool,
    /// In milliseconds.
    now: u64,
    /// What the controller's clock is ahead by.
    skew: i64,
    hosts: BTreeMap<HostId, Host>,
    machines: BTreeMap<ApplianceId, Machine>,
    /// All that ever ran.
    started: BTreeMap<ApplianceId, Machine>,
    lease: (u64, Holder),
    path: Path,
    /// The highest epoch that the route was switched to.
    switched: u64,
    storage_down_until: u64,
    /// What became of a change on the original path is not known, so that the route does not drain it any more.
    in_doubt: bool,
    route_hangs_until: u64,
    /// Orders that have their effect at a time.
    late: Vec<(u64, What)>,
    /// Reports on their way.
    reports: Vec<(u64, OrderId, Outcome)>,
    orders: usize,
    strikes: Vec<Strike>,
    controller_dies: bool,
    journal_lost: bool,
    told: Vec<String>,
}

const HOST_BYTES: Bytes = Bytes::mib(200);
const WHILE_MS: u64 = 15_000;

fn hosts() -> Vec<HostSpec> {
    (0..4).map(|id| HostSpec::new(HostId(id), format!("h{id}"), id / 2, HOST_BYTES)).collect()
}

impl World {
    fn new(draining: Draining, leased: bool, strikes: Vec<Strike>) -> World {
        World {
            draining,
            leased,
            now: 1_000,
            skew: 0,
            hosts: (0..4).map(|id| (HostId(id), Host::default())).collect(),
            machines: BTreeMap::new(),
            started: BTreeMap::new(),
            lease: (0, Holder::Original),
            path: Path::Straight(None),
            switched: 0,
            storage_down_until: 0,
            in_doubt: false,
            route_hangs_until: 0,
            late: Vec::new(),
            reports: Vec::new(),
            orders: 0,
            strikes,
            controller_dies: false,
            journal_lost: false,
            told: Vec::new(),
        }
    }

    fn clock(&self) -> Nanos {
        Nanos::millis(self.now.saturating_add_signed(self.skew))
    }

    /// The storage side's rule: whoever names a higher epoch than the lease's, and its holder.
    fn admits(&self, path: Path) -> bool {
        if !self.leased {
            return true;
        }
        let (epoch, holder) = self.lease;
        match path {
            Path::Straight(None) => holder == Holder::Original,
            Path::Straight(Some(named)) | Path::Through(_, named) => {
                named > epoch || (named == epoch && holder == Holder::Named)
            }
        }
    }

    fn reached(&self, host: HostId) -> bool {
        !self.hosts[&host].dead
    }

    fn works(&self, appliance: ApplianceId) -> bool {
        self.machines.get(&appliance).is_some_and(|machine| {
            machine.condition == Condition::Works && machine.answers && self.reached(machine.host)
        })
    }

    fn host_of(&self, what: &What) -> Option<HostId> {
        match what {
            What::Start { host, .. } | What::Probe { host, .. } | What::Stop { host, .. } => Some(*host),
            What::Resize { host, .. } | What::Warm { host, .. } => Some(*host),
            What::Fence { .. } | What::Switch { .. } => match self.path {
                Path::Through(appliance, _) => self.machines.get(&appliance).map(|machine| machine.host),
                Path::Straight(_) => self.machines.values().next_back().map(|machine| machine.host),
            },
        }
    }

    /// What one order does, as promised.
    fn carry_out(&mut self, what: &What, late: bool) -> Outcome {
        match what {
            What::Start { appliance, host, room, cache, .. } => {
                assert_ne!(*host, UNFIT, "an appliance where it cannot be");
                let state = &self.hosts[host];
                if state.dead {
                    return Outcome::Unknown("the host does not answer".into());
                }
                if state.in_use {
                    return Outcome::Refused("the address is in use".into());
                }
                let (answers, lies) = (!state.no_boot, state.lies);
                let machine = Machine {
                    host: *host,
                    room: *room,
                    cache: if lies { Bytes(cache.get() / 2) } else { *cache },
                    condition: Condition::Works,
                    answers,
                };
                self.started.entry(*appliance).or_insert(machine.clone());
                self.machines.entry(*appliance).or_insert(machine);
                let used = self.machines.values().filter(|machine| machine.host == *host);
                let used = used.fold(Room::default(), |sum, machine| sum.with(machine.room));
                assert!(used.memory <= HOST_BYTES, "more is used of a host than it has: {used}");
                Outcome::Done
            }
            What::Probe { appliance, host } => match self.machines.get(appliance) {
                _ if self.hosts[host].dead => Outcome::Unknown("the host does not answer".into()),
                None => Outcome::Refused("it does not run".into()),
                Some(_) if !self.works(*appliance) => Outcome::Unknown("no answer".into()),
                Some(machine) => Outcome::Healthy { cache: machine.cache },
            },
            What::Fence { epoch, holder } => {
                assert!(self.leased, "there is no lease to raise");
                if self.now < self.storage_down_until {
                    return Outcome::Unknown("the storage side does not answer".into());
                }
                if *epoch < self.lease.0 || (*epoch == self.lease.0 && *holder != self.lease.1) {
                    return Outcome::Stale { epoch: self.lease.0 };
                }
                self.lease = (*epoch, *holder);
                Outcome::Done
            }
            What::Switch { to, epoch, settled } => self.switch(*to, *epoch, *settled, late),
            What::Resize { appliance, .. } | What::Warm { appliance, .. }
                if !late && !matches!(self.path, Path::Through(on, _) if on == *appliance) =>
            {
                panic!("an appliance that clients are not on is told to cache");
            }
            What::Resize { appliance, cache, .. } => match self.works(*appliance) {
                true => {
                    self.machines.get_mut(appliance).expect("it works").cache = *cache;
                    Outcome::Done
                }
                false => Outcome::Unknown("no answer".into()),
            },
            What::Warm { appliance, .. } if self.works(*appliance) => Outcome::Done,
            What::Warm { .. } => Outcome::Refused("no answer".into()),
            What::Stop { appliance, host } => {
                if self.hosts[host].dead {
                    return Outcome::Unknown("the host does not answer".into());
                }
                if let Path::Through(on, _) = self.path {
                    // Several failures at once may look like a dead appliance to the route as to us.
                    let hopeless = !self.leased && (!self.works(*appliance) || self.strikes.len() > 1);
                    assert!(on != *appliance || hopeless, "the appliance that clients are on is stopped");
                }
                self.machines.remove(appliance);
                Outcome::Done
            }
        }
    }

    fn switch(&mut self, to: Target, epoch: u64, settled: bool, late: bool) -> Outcome {
        let by_lease = self.draining == Draining::ByLease;
        let in_force = if by_lease { self.lease.0 } else { self.switched };
        if epoch < in_force {
            return Outcome::Stale { epoch: in_force };
        }
        let next = match to {
            Target::Original => Path::Straight((self.draining == Draining::ByItself).then_some(epoch)),
            Target::Appliance(appliance) => Path::Through(appliance, epoch),
        };
        if next != self.path {
            if let Path::Through(appliance, _) = next
                && !self.works(appliance)
            {
                return Outcome::Refused("the new path does not answer".into());
            }
            if by_lease && !settled {
                if self.now < self.storage_down_until {
                    return Outcome::Unknown("the storage side does not answer".into());
                }
                let holder = if to == Target::Original { Holder::Original } else { Holder::Named };
                if epoch == self.lease.0 && holder != self.lease.1 {
                    return Outcome::Stale { epoch };
                }
                self.lease = (epoch, holder);
            }
            let old_answers = match self.path {
                Path::Through(appliance, _) => self.works(appliance),
                Path::Straight(_) => !self.in_doubt,
            } && self.now >= self.storage_down_until;
            // Who comes late may be too late: what the lease refuses changes nothing, and clients get errors until they are switched back.
            let futile = late && !self.admits(next);
            if (settled || by_lease) && !futile {
                // Nothing that is out on the old path may change data any more.
                let stopped = match self.path {
                    Path::Through(appliance, _) => !self.machines.contains_key(&appliance),
                    Path::Straight(_) => false,
                };
                assert!(
                    (self.leased && !self.admits(self.path)) || (!self.leased && stopped),
                    "switched to {next:?} while {:?} can still change data (lease {:?})",
                    self.path,
                    self.lease
                );
            } else if !futile {
                assert!(self.draining == Draining::ByItself, "a route that cannot drain is asked to");
                if !old_answers {
                    return Outcome::NotDrained("the old path cannot be drained".into());
                }
            }
            assert!(
                futile || self.admits(next),
                "switched to {next:?}, which the lease refuses: {:?}",
                self.lease
            );
        }
        self.switched = epoch;
        (self.path, self.in_doubt) = (next, self.in_doubt && next == self.path);
        Outcome::Switched { pause: Nanos::millis(3) }
    }

    fn strike(&mut self, strike: Strike, what: &What) {
        let host = self.host_of(what).unwrap_or(HostId(0));
        let until = self.now + WHILE_MS;
        let dies = |world: &mut World| {
            world.hosts.get_mut(&host).unwrap().dead = true;
            world.machines.retain(|_, machine| machine.host != host);
        };
        let struck: BTreeSet<ApplianceId> =
            self.machines.iter().filter(|(_, machine)| machine.host == host).map(|(id, _)| *id).collect();
        let state = self.hosts.get_mut(&host).unwrap();
        match strike.failure {
            Failure::HostDies => dies(self),
            Failure::HostRestarts => {
                state.back_at = Some(until);
                dies(self);
            }
            Failure::ApplianceDies => self.machines.retain(|id, _| !struck.contains(id)),
            Failure::ApplianceHangs => {
                let hit = self.machines.iter_mut().filter(|(id, _)| struck.contains(id));
                hit.for_each(|(_, machine)| machine.condition = Condition::Hangs);
            }
            Failure::ImageDoesNotBoot => state.no_boot = true,
            Failure::AddressInUse => state.in_use = true,
            Failure::HostLies => state.lies = true,
            Failure::HypervisorHangs => state.deaf_until = until,
            Failure::ControllerCutOff => state.cut_until = until,
            Failure::StorageDown => {
                self.storage_down_until = until;
                // Where nobody fences, whoever runs the storage side settles it.
                self.in_doubt |= self.leased && matches!(self.path, Path::Straight(_));
            }
            Failure::RouteHangs => self.route_hangs_until = until,
            Failure::AnswerLost => {}
            Failure::ClockForward => self.skew += 3_600_000,
            Failure::ClockBack => self.skew -= self.now as i64,
            Failure::JournalLost => (self.controller_dies, self.journal_lost) = (true, true),
        }
        self.controller_dies |= strike.controller_dies;
    }

    /// Takes an order: what becomes of it, and when that is heard.
    fn take(&mut self, order: Order) {
        self.orders += 1;
        let strikes: Vec<Strike> =
            self.strikes.iter().filter(|strike| strike.order == self.orders).copied().collect();
        self.told.push(format!("{:>8} order {}: {:?}", self.now, self.orders, order.what));
        for strike in strikes.iter().filter(|strike| !strike.after) {
            self.strike(*strike, &order.what);
        }
        let host = match &order.what {
            What::Fence { .. } | What::Switch { .. } => None,
            _ => self.host_of(&order.what),
        };
        let to_route = matches!(order.what, What::Switch { .. });
        let cut = host.is_some_and(|host| self.now < self.hosts[&host].cut_until);
        let deaf = host.is_some_and(|host| self.now < self.hosts[&host].deaf_until)
            || (to_route && self.now < self.route_hangs_until);
        let lost = strikes.iter().any(|strike| strike.failure == Failure::AnswerLost);
        let late = strikes.iter().any(|strike| strike.late);
        let outcome = if cut {
            Outcome::Unknown("the host cannot be reached".into())
        } else if deaf || lost {
            if late {
                self.late.push((self.now + WHILE_MS, order.what.clone()));
            } else if lost || strikes.iter().any(|strike| strike.after) {
                self.carry_out(&order.what, false);
            }
            Outcome::Unknown("no answer in time".into())
        } else {
            self.carry_out(&order.what, false)
        };
        for strike in strikes.iter().filter(|strike| strike.after) {
            self.strike(*strike, &order.what);
        }
        self.told.push(format!("{:>8}   {outcome:?} -> {:?}, lease {:?}", self.now, self.path, self.lease));
        self.reports.push((self.now + 200, order.id, outcome));
    }

    fn pass(&mut self, span_ms: u64) {
        self.now += span_ms;
        for host in self.hosts.values_mut() {
            if host.back_at.is_some_and(|at| at <= self.now) {
                (host.dead, host.back_at) = (false, None);
            }
        }
        let due: Vec<What> =
            self.late.iter().filter(|(at, _)| *at <= self.now).map(|(_, what)| what.clone()).collect();
        self.late.retain(|(at, _)| *at > self.now);
        for what in due {
            let outcome = self.carry_out(&what, true);
            self.told.push(format!("{:>8} late: {what:?}: {outcome:?}", self.now));
        }
    }
}

fn volumes(world: &World) -> Vec<(VolumeId, VolumeRoute)> {
    let (draining, leased) = (world.draining, world.leased);
    let unfit = vec![(UNFIT, "is of another kind".to_owned())];
    vec![(VOLUME, VolumeRoute { name: "db".into(), draining, leased, home: HostId(0), unfit })]
}

fn fresh(world: &World) -> Responses {
    let mut responses = Responses::new(ResponseRules::default(), hosts());
    volumes(world).into_iter().for_each(|(id, route)| responses.register(id, route));
    responses
}

fn wish(cache: Bytes) -> Wish {
    Wish { cache, flash: Bytes::ZERO, rate: 100.0, host: None }
}

/// Another controller, which knows what the disk says, or what it finds.
fn restart(world: &mut World, text: &str) -> Responses {
    world.reports.clear();
    world.skew = -(world.now as i64);
    if !std::mem::take(&mut world.journal_lost) {
        let journal: Journal = serde_json::from_str(text).expect("a journal");
        return Responses::recover(journal, ResponseRules::default(), hosts(), volumes(world))
            .expect("the same volumes and hosts");
    }
    let mut responses = fresh(world);
    match world.path {
        Path::Straight(_) => responses.adopt_original(VOLUME, world.lease.0.max(world.switched)),
        // The route knows whom it goes to, whether or not anybody answers there.
        Path::Through(appliance, epoch) => {
            let Machine { host, room, cache, .. } = world.started[&appliance];
            responses.adopt(VOLUME, Adopted { appliance, host, room, cache, epoch });
        }
    }
    for (id, machine) in &world.machines {
        if !matches!(world.path, Path::Through(on, _) if on == *id) {
            responses.adopt_stray(VOLUME, *id, machine.host, machine.room);
        }
    }
    responses
}

/// Runs a plan on the world to the end, and checks how it ended.
fn run(world: &mut World, keeps: bool) {
    let mut responses = fresh(world);
    let mut kept = String::new();
    let mut changes = u64::MAX;
    let mut endings = Vec::new();
    let plan: [(u64, Option<Bytes>); 4] =
        [(1_500, Some(CACHE)), (6_000, Some(Bytes::mib(60))), (9_000, Some(CACHE)), (12_000, None)];
    let mut planned = 0;
    while world.now < 2_400_000 {
        world.pass(if world.now < 200_000 { 250 } else { 5_000 });
        // What is wanted is told again and again, as a controller does that knows nothing of what was told before.
        while planned < plan.len() && plan[planned].0 <= world.now && (planned < 3 || !keeps) {
            if planned == 0 {
                responses.warm(VOLUME, Vec::new(), 1);
            }
            planned += 1;
        }
        match planned.checked_sub(1).map(|at| plan[at].1) {
            Some(Some(cache)) => responses.want(VOLUME, wish(cache)),
            Some(None) => responses.give_back(VOLUME, "the load has gone"),
            None => {}
        }
        let due: Vec<(OrderId, Outcome)> = (world.reports.iter())
            .filter(|(at, ..)| *at <= world.now)
            .map(|(_, id, outcome)| (*id, outcome.clone()))
            .collect();
        world.reports.retain(|(at, ..)| *at > world.now);
        for (id, outcome) in due {
            responses.report(id, outcome, world.clock());
        }
        let orders = responses.step(world.clock());
        if responses.changes() != changes {
            changes = responses.changes();
            kept = serde_json::to_string(&responses.journal()).unwrap();
        }
        for order in orders {
            world.take(order);
            if std::mem::take(&mut world.controller_dies) {
                world.told.push(format!("{:>8} the controller dies", world.now));
                endings.extend(responses.decisions());
                responses = restart(world, &kept);
                changes = u64::MAX;
                break;
            }
        }
        endings.extend(responses.decisions());
    }
    let status = responses.status(VOLUME).unwrap();
    let claims: Vec<&Claim> = responses.claims().collect();
    match world.path {
        // Nothing but the host itself can say that what was out on it will not change data any more, and it is gone.
        Path::Through(appliance, _) if !world.leased && !world.machines.contains_key(&appliance) => {
            assert!(["stopping before the way back", "switching back"].contains(&status.step));
            assert!(world.hosts[&status.host.unwrap()].dead);
            let told = endings.iter().any(|told| told.summary.contains("its clients wait for it"));
            assert!(told, "nobody is told that clients wait for a host");
            return;
        }
        Path::Through(appliance, _) => {
            assert!(keeps, "clients are still on an appliance that nobody wants");
            assert!(world.works(appliance), "clients are on an appliance that does not answer");
            assert_eq!((status.step, status.appliance), ("serving", Some(appliance)));
            assert_eq!(status.cache_bytes, CACHE.get());
        }
        Path::Straight(_) => {
            assert_eq!((status.step, status.appliance), ("original route", None));
        }
    }
    if !world.leased {
        assert_eq!(world.lease, (0, Holder::Original));
    }
    assert!(world.admits(world.path), "clients are where the lease refuses them");
    // Somebody who connects anew finds the data where the journal says: by the name alone on the original route.
    let fenced = world.leased && world.lease.1 == Holder::Named;
    assert_eq!(fenced, world.leased && matches!(world.path, Path::Through(..)));
    // Nothing runs, and nothing is claimed, but what serves and what may run on a host that is gone.
    let serves = status.appliance;
    for id in world.machines.keys() {
        assert!(Some(*id) == serves, "{id:?} still runs");
    }
    for claim in claims {
        let its = Some(claim.host) == status.host;
        assert!(its || world.hosts[&claim.host].dead, "{claim:?} is claimed for nothing");
    }
    let last = endings.iter().rev().find(|decision| {
        matches!(
            decision.kind,
            DecisionKind::CacheInPlace | DecisionKind::OriginalRoute | DecisionKind::NothingHelps
        )
    });
    let last = last.expect("it was said how it ended");
    let in_place = last.kind == DecisionKind::CacheInPlace;
    // Who adopts has nothing to say of it.
    let adopted = world.strikes.iter().any(|strike| strike.failure == Failure::JournalLost);
    assert!(adopted || in_place == serves.is_some(), "{}", last.summary);
}

/// [`run`], telling everything that happened where it fails.
fn checked(draining: Draining, leased: bool, keeps: bool, strikes: &[Strike]) -> World {
    let mut world = World::new(draining, leased, strikes.to_vec());
    let ran = catch_unwind(AssertUnwindSafe(|| run(&mut world, keeps)));
    if let Err(panic) = ran {
        let from = world.told.len().saturating_sub(60);
        eprintln!(
            "{draining:?}, leased {leased}, keeps {keeps}, {strikes:?}\n{}",
            world.told[from..].join("\n")
        );
        resume_unwind(panic);
    }
    world
}

/// What a route can do, where clients are moved at all.
const WAYS: [(Draining, bool); 4] = [
    (Draining::ByItself, true),
    (Draining::ByItself, false),
    (Draining::ByLease, true),
    (Draining::Not, true),
];

fn words(world: &World) -> Vec<String> {
    let orders =
        world.told.iter().filter_map(|line| line.split_once(": ").filter(|(head, _)| head.contains("order")));
    let word = |(_, what): (&str, &str)| what.split([' ', '{']).next().unwrap_or_default().to_owned();
    let mut words: Vec<String> = orders.map(word).collect();
    words.dedup();
    words
}

#[test]
fn undisturbed_the_fence_follows_who_drains_and_leads_who_does_not() {
    let there = |draining, leased| words(&checked(draining, leased, false, &[])).join(" ");
    let used = "Resize Warm Probe Resize Probe Resize Probe";
    assert_eq!(there(Draining::ByItself, true), format!("Start Probe Switch Fence {used} Switch Fence Stop"));
    assert_eq!(there(Draining::ByItself, false), format!("Start Probe Switch {used} Switch Stop"));
    assert_eq!(there(Draining::Not, true), format!("Start Probe Fence Switch {used} Fence Switch Stop"));
    // The appliance's epoch is 1; of the three for the way back 2 fences everybody and is not needed, 3 is the lease's, and the path names 4.
    let world = checked(Draining::ByItself, true, false, &[]);
    assert_eq!((world.lease, world.path), ((3, Holder::Original), Path::Straight(Some(4))));
    // Where clients name no epoch the switch has the lease's; the fence that follows finds it so.
    assert_eq!(there(Draining::ByLease, true), there(Draining::ByItself, true));
    let world = checked(Draining::ByLease, true, false, &[]);
    assert_eq!((world.lease, world.path), ((3, Holder::Original), Path::Straight(None)));
}

#[test]
fn what_the_storage_side_left_in_doubt_is_settled_by_a_fence_on_the_way_there() {
    let mut world = World::new(Draining::ByItself, true, Vec::new());
    world.in_doubt = true;
    run(&mut world, true);
    let told = words(&world).join(" ");
    assert!(told.starts_with("Start Probe Switch Fence Switch Fence Resize"), "{told}");
    assert!(matches!(world.path, Path::Through(..)) && !world.in_doubt);
}

#[test]
fn every_failure_at_every_step_ends_in_place_or_on_the_original_route() {
    let mut runs = 0;
    for (draining, leased) in WAYS {
        for keeps in [false, true] {
            // Up to the first probes of a cache that stays, and all of one that goes.
            let orders = if keeps { 14 } else { checked(draining, leased, keeps, &[]).orders };
            for order in 1..=orders {
                for failure in FAILURES {
                    for (after, late, controller_dies) in
                        (0..8).map(|bits| (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0))
                    {
                        // Only what is not heard of can be late.
                        let unheard = [Failure::HypervisorHangs, Failure::RouteHangs, Failure::AnswerLost];
                        if late && !unheard.contains(&failure) {
                            continue;
                        }
                        checked(
                            draining,
                            leased,
                            keeps,
                            &[Strike { order, failure, after, late, controller_dies }],
                        );
                        runs += 1;
                    }
                }
            }
        }
    }
    assert!(runs > 8_000, "{runs}");
}

#[test]
fn several_failures_at_once_end_no_worse() {
    for seed in 0..2_000u64 {
        let mut state = seed;
        let mut draw = |below: u64| {
            state = mix64(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
            state % below
        };
        let (draining, leased) = WAYS[draw(4) as usize];
        let keeps = draw(2) == 0;
        let mut strikes: Vec<Strike> = (0..2 + draw(4))
            .map(|_| Strike {
                order: 1 + draw(40) as usize,
                failure: FAILURES[draw(15) as usize],
                after: draw(2) == 0,
                late: draw(4) == 0,
                controller_dies: draw(3) == 0,
            })
            .collect();
        // Without the journal nobody knows that somebody may start late; and how long an order may lie is counted by the controller's
        // clock, which no step of the time of day moves (it is monotonic), but which is moved here.
        let forgets =
            |strike: &Strike| [Failure::JournalLost, Failure::ClockForward].contains(&strike.failure);
        if strikes.iter().any(forgets) {
            strikes.iter_mut().for_each(|strike| strike.late = false);
        }
        checked(draining, leased, keeps, &strikes);
    }
}

#[test]
fn who_can_neither_drain_nor_fence_is_refused() {
    let world = World::new(Draining::Not, false, Vec::new());
    let mut responses = fresh(&world);
    responses.want(VOLUME, wish(CACHE));
    assert_eq!(responses.step(world.clock()), []);
    let told = responses.decisions();
    assert_eq!(told.len(), 1);
    assert!(told[0].summary.contains("cannot drain") && told[0].summary.contains("no lease"), "{told:?}");
    assert_eq!(responses.claims().count(), 0);
}

/// A cache of this size is wanted for so many seconds; where the volume is then, by which appliance, and with how much, and what was told.
fn wanted(
    world: &mut World,
    responses: &mut Responses,
    cache: Bytes,
    seconds: u64,
) -> ((&'static str, Option<u64>, Bytes), Vec<String>) {
    responses.want(VOLUME, wish(cache));
    let mut told = Vec::new();
    for _ in 0..seconds * 4 {
        world.pass(250);
        for (_, id, outcome) in std::mem::take(&mut world.reports) {
            responses.report(id, outcome, world.clock());
        }
        responses.step(world.clock()).into_iter().for_each(|order| world.take(order));
        told.extend(responses.decisions().into_iter().map(|decision| decision.summary));
    }
    let status = responses.status(VOLUME).unwrap();
    ((status.step, status.appliance.map(|appliance| appliance.0), Bytes(status.cache_bytes)), told)
}

#[test]
fn who_outgrows_its_appliance_gets_a_larger_one_where_there_is_room() {
    let mut world = World::new(Draining::ByItself, true, Vec::new());
    let mut responses = fresh(&world);
    let mut told = Vec::new();
    let mut go = |cache| {
        let (found, summaries) = wanted(&mut world, &mut responses, cache, 20);
        told.extend(summaries);
        found
    };
    // With 64 MiB of headroom it can have 74 MiB.
    assert_eq!(go(Bytes::mib(10)), ("serving", Some(1), Bytes::mib(10)));
    assert_eq!(go(Bytes::mib(74)), ("serving", Some(1), Bytes::mib(74)));
    // 80 MiB are a hundredth more and 64 MiB: 145 MiB of the 200 that a host has.
    assert_eq!(go(Bytes::mib(80)), ("serving", Some(2), Bytes::mib(80)));
    // And 140 MiB are 206 MiB, which no host has.
    assert_eq!(go(Bytes::mib(140)), ("serving", Some(2), Bytes::mib(80)));
    let said = |what: &str| told.iter().filter(|told| told.contains(what)).count();
    assert_eq!((said("has no room for"), said("cannot grow to 140MiB")), (1, 1), "{told:?}");
}

#[test]
fn who_has_no_room_for_all_of_its_headroom_gets_what_there_is_of_it() {
    let mut world = World::new(Draining::ByItself, true, Vec::new());
    let mut responses = fresh(&world);
    // 100 MiB take 165 of the 200 MiB that a host has. Twice as much does not fit, nor half as much again; a quarter more does.
    for cache in [Bytes::mib(100), Bytes::mib(125)] {
        assert_eq!(wanted(&mut world, &mut responses, cache, 20).0, ("serving", Some(1), cache));
    }
}

#[test]
fn who_has_no_room_for_a_sixteenth_of_its_headroom_gets_as_much_again() {
    let mut world = World::new(Draining::ByItself, true, Vec::new());
    // A sixteenth is 256 MiB, which no host has.
    let rules = ResponseRules { headroom_bytes: 4 << 30, ..ResponseRules::default() };
    let mut responses = Responses::new(rules, hosts());
    volumes(&world).into_iter().for_each(|(id, route)| responses.register(id, route));
    for cache in [Bytes::mib(10), Bytes::mib(20)] {
        assert_eq!(wanted(&mut world, &mut responses, cache, 20).0, ("serving", Some(1), cache));
    }
    assert_eq!(wanted(&mut world, &mut responses, Bytes::mib(21), 20).0.1, Some(2));
}

#[test]
fn who_fails_a_probe_is_only_probed() {
    let mut world = World::new(Draining::ByItself, true, Vec::new());
    let mut responses = fresh(&world);
    responses.want(VOLUME, wish(CACHE));
    let mut reports = Vec::new();
    let mut heard = Vec::new();
    // It serves, and then nothing is heard of it any more, while more cache is wanted of it and more is to be loaded.
    for quarter in 0..400 {
        world.pass(250);
        reports.append(&mut world.reports);
        let is_over = responses.status(VOLUME).unwrap().step != "serving";
        for (_, id, outcome) in reports.drain(..).filter(|_| quarter < 80 || is_over) {
            responses.report(id, outcome, world.clock());
        }
        if quarter == 80 {
            assert_eq!(responses.status(VOLUME).unwrap().step, "serving");
            responses.want(VOLUME, wish(CACHE + CACHE));
            responses.warm(VOLUME, vec![ZoneRange { first_block: 0, blocks: 1 }], 1);
        }
        for order in responses.step(world.clock()) {
            if quarter >= 80 && !is_over {
                heard.push((quarter, order.what.word()));
            }
            world.take(order);
        }
        if quarter >= 80 && is_over {
            break;
        }
    }
    // One probe was out already, whose answer is the first that is not heard; then two more, and the way back.
    let probes: Vec<&str> = heard.iter().map(|(_, word)| *word).collect();
    assert_eq!(probes, ["probe", "probe", "switch"], "{heard:?}");
}

#[test]
fn lack_of_room_is_told_once_with_the_sums() {
    let world = World::new(Draining::ByItself, true, Vec::new());
    let mut responses = fresh(&world);
    responses.want(VOLUME, wish(Bytes::mib(200)));
    for second in 1..200 {
        assert_eq!(responses.step(Nanos::secs(second)), []);
    }
    let told = responses.decisions();
    assert_eq!(told.len(), 1, "{told:?}");
    // 200 MiB, a hundredth of it for bookkeeping, and 64 MiB.
    let sums = "no host has 266MiB of memory, 0.10 processors free: `h0` 200MiB of memory";
    assert!(told[0].summary.contains(sums), "{}", told[0].summary);
}

#[test]
fn a_journal_that_names_what_is_gone_is_refused() {
    let world = World::new(Draining::ByItself, true, Vec::new());
    let mut responses = fresh(&world);
    responses.want(VOLUME, wish(CACHE));
    assert_eq!(responses.step(Nanos::secs(1)).len(), 0);
    assert_eq!(responses.step(Nanos::secs(2)).len(), 1);
    let recover = |hosts, volumes| {
        let text = serde_json::to_string(&responses.journal()).unwrap();
        Responses::recover(serde_json::from_str(&text).unwrap(), ResponseRules::default(), hosts, volumes)
    };
    let gone = recover(hosts(), Vec::new()).unwrap_err();
    assert_eq!(gone, RecoverError::VolumeGone { volume: "db".into() });
    let gone = recover(hosts()[1..].to_vec(), volumes(&world)).unwrap_err();
    assert_eq!(gone, RecoverError::HostGone { host: "h0".into() });
    // Numbers may differ from run to run.
    let renumbered = vec![(VolumeId(9), volumes(&world)[0].1.clone())];
    let mut recovered = recover(hosts(), renumbered).unwrap();
    let orders = recovered.step(Nanos::secs(1));
    assert!(
        matches!(orders[..], [Order { volume: VolumeId(9), what: What::Start { .. }, .. }]),
        "{orders:?}"
    );
}
