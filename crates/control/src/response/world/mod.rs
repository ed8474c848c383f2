//! Responses on a simulated world in which anything may fail at any step: hosts, appliances, the storage side, the route, the network, the controller, the clock.
//!
//! The world keeps the promises that orders make (`What`), and checks those that responses make (the module's page). Effects may come late,
//! or come and not be heard of; orders to one route with a lower epoch than one that it carried out have no effect.

mod courses;
mod rules;
mod runs;

use super::*;
use crate::decision::DecisionKind;
use crate::host::Room;
use crate::inventory::HostSpec;
use forebay_units::{Bytes, mix64};
use std::collections::{BTreeMap, BTreeSet};

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
    /// The route cannot be told anything for a while, which is known at once.
    RouteUntold,
    /// The answer to this order alone is lost.
    AnswerLost,
    /// The clock is an hour ahead from here on.
    ClockForward,
    /// The clock goes back by as much as it can.
    ClockBack,
    /// What is on disk is lost with the controller.
    JournalLost,
    /// The storage side begins anew without what it kept of leases.
    LeaseLost,
    /// The original route leads to another disk for a while.
    OtherDisk,
    /// It refuses whoever would be switched there, for a while: there is no such export.
    OriginalRefuses,
}

const FAILURES: [Failure; 19] = [
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
    Failure::RouteUntold,
    Failure::AnswerLost,
    Failure::ClockForward,
    Failure::ClockBack,
    Failure::JournalLost,
    Failure::LeaseLost,
    Failure::OtherDisk,
    Failure::OriginalRefuses,
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
    /// The lease before it was lost, until it is at least that again. Meanwhile those are let in whom it fenced.
    lost_lease: Option<(u64, Holder)>,
    path: Path,
    /// The highest epoch that the route was switched to.
    switched: u64,
    storage_down_until: u64,
    /// What became of a change on the original path is not known, so that the route does not drain it any more.
    in_doubt: bool,
    route_hangs_until: u64,
    route_untold_until: u64,
    other_disk_until: u64,
    original_refuses_until: u64,
    /// A controller without a journal does not know where clients are, and whether it has found the original route to answer.
    forgetful: Option<bool>,
    /// The controller has heard of that, and has it in its journal.
    is_told_of_other_disk: bool,
    /// Nobody is there whom the route moves. Whoever comes takes the path straight, if the storage side lets them in by it.
    is_deserted: bool,
    /// Somebody else raised the lease.
    is_meddled_with: bool,
    /// Orders that have their effect at a time.
    late: Vec<(u64, What)>,
    /// Reports on their way.
    reports: Vec<(u64, OrderId, Outcome)>,
    orders: usize,
    strikes: Vec<Strike>,
    controller_dies: bool,
    journal_lost: bool,
    /// What is drained, and from when on.
    drained: Option<(u64, Drained)>,
    told: Vec<String>,
}

const HOST_BYTES: Bytes = Bytes::mib(200);
const WHILE_MS: u64 = 15_000;

fn hosts() -> Vec<HostSpec> {
    (0..4).map(|id| HostSpec::new(HostId(id), format!("h{id}"), id / 2, HOST_BYTES)).collect()
}

impl World {
    /// Tells everything that is reported, at once.
    fn tell_reports(&mut self, responses: &mut Responses) {
        for (_, id, outcome) in std::mem::take(&mut self.reports) {
            self.tell_report(responses, id, outcome);
        }
    }

    fn tell_report(&mut self, responses: &mut Responses, id: OrderId, outcome: Outcome) {
        self.is_told_of_other_disk |= matches!(outcome, Outcome::OtherData(_));
        responses.report(id, outcome, self.clock());
    }

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
            lost_lease: None,
            path: Path::Straight(None),
            switched: 0,
            storage_down_until: 0,
            in_doubt: false,
            route_hangs_until: 0,
            route_untold_until: 0,
            other_disk_until: 0,
            original_refuses_until: 0,
            forgetful: None,
            is_told_of_other_disk: false,
            is_deserted: false,
            is_meddled_with: false,
            late: Vec::new(),
            reports: Vec::new(),
            orders: 0,
            strikes,
            controller_dies: false,
            journal_lost: false,
            drained: None,
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

    /// Whether the controller hears what a host says.
    fn answers(&self, host: HostId) -> bool {
        let state = &self.hosts[&host];
        !state.dead && self.now >= state.cut_until && self.now >= state.deaf_until
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
            What::Look | What::Fence { .. } | What::Switch { .. } => match self.path {
                Path::Through(appliance, _) => self.machines.get(&appliance).map(|machine| machine.host),
                Path::Straight(_) => self.machines.values().next_back().map(|machine| machine.host),
            },
        }
    }

    /// What one order does, as promised.
    fn carry_out(&mut self, what: &What, late: bool) -> Outcome {
        match what {
            What::Look if self.leased && self.now < self.storage_down_until => {
                Outcome::Unknown("the storage side does not answer".into())
            }
            What::Look => Outcome::Found { epoch: self.lease.0.max(self.switched) },
            What::Start { appliance, host, room, cache, .. } => {
                assert_ne!(*host, UNFIT, "an appliance where it cannot be");
                self.forgetful = None;
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
                self.started.insert(*appliance, machine.clone());
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
                Some(machine) => Outcome::Healthy {
                    cache: machine.cache,
                    has_clients: !self.is_deserted
                        && matches!(self.path, Path::Through(on, _) if on == *appliance),
                    origin_trouble: (self.now < self.storage_down_until).then(|| "it is down".to_owned()),
                },
            },
            What::Fence { epoch, holder } => {
                assert!(self.leased, "there is no lease to raise");
                if self.now < self.storage_down_until {
                    return Outcome::Unknown("the storage side does not answer".into());
                }
                if *epoch < self.lease.0 || (*epoch == self.lease.0 && *holder != self.lease.1) {
                    return Outcome::Stale { epoch: self.lease.0 };
                }
                let was_served = matches!(self.path, Path::Through(on, _) if self.works(on))
                    && self.admits(self.path)
                    && !self.is_deserted;
                self.raise(*epoch, *holder);
                // Who does not drain has nothing but the fence.
                let is_blind = self.forgetful == Some(false) && self.draining != Draining::Not && !late;
                assert!(
                    !is_blind || !was_served || self.admits(self.path),
                    "clients are fenced from where they are served, and the original route was not seen to answer"
                );
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
                if let Path::Through(on, _) = self.path
                    && !self.is_deserted
                {
                    // Several failures at once may look like a dead appliance to the route as to us.
                    let hopeless = !self.leased && (!self.works(*appliance) || self.strikes.len() > 1);
                    assert!(on != *appliance || hopeless, "the appliance that clients are on is stopped");
                }
                self.machines.remove(appliance);
                Outcome::Done
            }
        }
    }

    fn raise(&mut self, epoch: u64, holder: Holder) {
        self.lease = (epoch, holder);
        self.lost_lease = self.lost_lease.filter(|(before, _)| epoch < *before);
    }

    fn switch(&mut self, to: Target, epoch: u64, settled: bool, late: bool) -> Outcome {
        if self.is_deserted {
            return Outcome::NoClient("nobody is there".into());
        }
        let by_lease = self.draining == Draining::ByLease;
        if by_lease && self.now < self.storage_down_until {
            return Outcome::Refused("the storage side does not say which epoch is in force".into());
        }
        let in_force = if by_lease { self.lease.0 } else { self.switched };
        if epoch < in_force {
            return Outcome::Stale { epoch: in_force };
        }
        let next = match to {
            // An epoch is named where there is a lease only.
            Target::Original => {
                Path::Straight((self.leased && self.draining == Draining::ByItself).then_some(epoch))
            }
            Target::Appliance { appliance, .. } => Path::Through(appliance, epoch),
        };
        if next != self.path {
            // Before anything else: it is opened while the old path still serves.
            if to == Target::Original && self.now < self.original_refuses_until {
                return Outcome::Refused("there is no such export".into());
            }
            self.forgetful = self.forgetful.map(|_| true);
            if let Path::Through(appliance, _) = next
                && !self.works(appliance)
            {
                return Outcome::Refused("the new path does not answer".into());
            }
            if by_lease && !settled {
                let holder = if to == Target::Original { Holder::Original } else { Holder::Named };
                if epoch == self.lease.0 && holder != self.lease.1 {
                    return Outcome::Stale { epoch };
                }
                self.raise(epoch, holder);
            }
            let old_answers = match self.path {
                Path::Through(appliance, _) => self.works(appliance),
                Path::Straight(_) => !self.in_doubt,
            } && self.now >= self.storage_down_until;
            // Who comes late may be too late: what the lease refuses changes nothing, and clients get errors until they are switched back.
            let futile = late && !self.admits(next);
            let is_other_disk = to == Target::Original && self.now < self.other_disk_until;
            if (settled || by_lease) && !futile {
                // Past whose cache data may have changed, of that nothing is known by what it differs from.
                let may_be_stale = self.strikes.iter().any(|strike| strike.failure == Failure::LeaseLost);
                assert!(
                    !is_other_disk || !self.is_told_of_other_disk || may_be_stale,
                    "clients are sent to what is known to be other data"
                );
                // Nothing that is out on the old path may change data any more.
                let stopped = match self.path {
                    Path::Through(appliance, _) => !self.machines.contains_key(&appliance),
                    Path::Straight(_) => false,
                };
                assert!(
                    self.lost_lease.is_some()
                        || (self.leased && !self.admits(self.path))
                        || (!self.leased && stopped),
                    "switched to {next:?} while {:?} can still change data (lease {:?})",
                    self.path,
                    self.lease
                );
            } else if !futile {
                assert!(self.draining == Draining::ByItself, "a route that cannot drain is asked to");
                if !old_answers {
                    return Outcome::NotDrained("the old path cannot be drained".into());
                }
                if is_other_disk {
                    return Outcome::OtherData("it holds other data".into());
                }
            }
            if self.is_meddled_with && !self.admits(next) {
                return Outcome::Refused("the storage side says that the epoch is over".into());
            }
            assert!(
                futile || self.admits(next),
                "switched to {next:?}, which the lease refuses: {:?}",
                self.lease
            );
        }
        self.is_told_of_other_disk = false;
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
            Failure::RouteUntold => self.route_untold_until = until,
            Failure::OtherDisk => self.other_disk_until = until,
            Failure::OriginalRefuses => self.original_refuses_until = until,
            Failure::AnswerLost => {}
            Failure::ClockForward => self.skew += 3_600_000,
            Failure::ClockBack => self.skew -= self.now as i64,
            Failure::LeaseLost => {
                self.lost_lease = self.lost_lease.or(Some(self.lease).filter(|(epoch, _)| *epoch > 0));
                self.lease = (0, Holder::Original);
            }
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
            What::Look | What::Fence { .. } | What::Switch { .. } => None,
            _ => self.host_of(&order.what),
        };
        let to_route = matches!(order.what, What::Look | What::Switch { .. });
        let cut = host.is_some_and(|host| self.now < self.hosts[&host].cut_until);
        let deaf = host.is_some_and(|host| self.now < self.hosts[&host].deaf_until)
            || (to_route && self.now < self.route_hangs_until);
        let lost = strikes.iter().any(|strike| strike.failure == Failure::AnswerLost);
        let late = strikes.iter().any(|strike| strike.late);
        let outcome = if cut {
            Outcome::Unknown("the host cannot be reached".into())
        } else if to_route && self.now < self.route_untold_until {
            Outcome::Unheard("the route cannot be told".into())
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
        if self.leased && self.is_deserted && self.admits(Path::Straight(None)) {
            (self.path, self.is_deserted) = (Path::Straight(None), false);
        }
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
