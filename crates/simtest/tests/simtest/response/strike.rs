//! What strikes, and when.

use super::link::Link;
use super::node::{Node, Role};
use super::wires::{Peer, Place};
use super::world::{Event, WHILE_NS, World, note};
use forebay_control::response::What;
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Longer than this nobody lags behind.
const LAG_NS_MAX: u64 = 4 * WHILE_NS;
/// A run of the proxy is killed within so long after it was held up, and what it had under way is over so long after that it was.
const REPLACED_NS_MAX: u64 = 3_000_000;
const OVERTAKEN_NS_MAX: u64 = 20_000_000;
/// Who lagged behind goes on within so long once its clients are elsewhere: they may have written there, and the controller's next order may be under way.
const CATCH_UP_NS_MAX: u64 = 3_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The host of the appliance that was started last stops for good, or is back after a while without what ran on it.
    HostDies,
    HostRestarts,
    ApplianceDies,
    /// It runs, holds its connections, and answers nobody.
    ApplianceHangs,
    /// The host of the appliance stands still for a while, and goes on where it was, with what had come and was not yet done.
    HostPauses,
    /// It stands still, or is cut off from all but its clients, or the storage side takes nothing of it, whose door it is let in by, until they have been moved away; and goes on a moment later with what had
    /// come meanwhile.
    HostPausesUntilLeft,
    HostCutOffUntilLeft,
    HostWaitsUntilLeft,
    /// From here on appliances that are started on the first host never serve; or starting is refused; or they get less memory than was said.
    ImageDoesNotBoot,
    AddressInUse,
    HostLies,
    /// Nothing is heard of orders to any host for a while.
    HypervisorsDeaf,
    /// The storage side's daemon is killed and back after a while; its disk stands still for a while, or is not reached where it is elsewhere.
    StorageDies,
    DiskHangs,
    /// So it is, and its machine loses power meanwhile; where the disk is elsewhere, what is there, and perhaps the storage side or the appliance, or both, just before.
    PowerFails,
    /// The proxy is killed and back after a while.
    ProxyDies,
    /// What it says is late, or the disk stands still, or its connections break and the next ones are taken late by the worker where they lead; and before that is over it is killed and its next run is there,
    /// or its connections break alone.
    ProxyIsHeldUp,
    ProxyIsReplaced,
    /// The disk fails a flush, and in half of the cases the proxy is replaced when that is being told.
    FlushFails,
    /// They end in order, and are back after a while; but for the appliance.
    StorageEnds,
    ProxyEnds,
    ApplianceEnds,
    /// The answer to this order is lost; the order comes much later than its time.
    AnswerLost,
    OrderLate,
    ControllerDies,
    /// Connections between daemons break, now and then again.
    LinksBreak,
    /// Two are cut off from each other for a while.
    ApplicationFromStorage,
    ApplicationFromHosts,
    HostsFromStorage,
    /// The host of the appliance from everybody.
    HostFromAll,
    ControllerFromHosts,
    ControllerFromStorage,
    ControllerFromApplication,
}

/// What any order may meet.
const FAILURES: [Failure; 27] = [
    Failure::HostDies,
    Failure::HostRestarts,
    Failure::ApplianceDies,
    Failure::ApplianceHangs,
    Failure::HostPauses,
    Failure::ImageDoesNotBoot,
    Failure::AddressInUse,
    Failure::HostLies,
    Failure::HypervisorsDeaf,
    Failure::StorageDies,
    Failure::DiskHangs,
    Failure::PowerFails,
    Failure::ProxyDies,
    Failure::StorageEnds,
    Failure::ProxyEnds,
    Failure::ApplianceEnds,
    Failure::AnswerLost,
    Failure::OrderLate,
    Failure::ControllerDies,
    Failure::LinksBreak,
    Failure::ApplicationFromStorage,
    Failure::ApplicationFromHosts,
    Failure::HostsFromStorage,
    Failure::HostFromAll,
    Failure::ControllerFromHosts,
    Failure::ControllerFromStorage,
    Failure::ControllerFromApplication,
];

/// An order, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// Of all of them.
    Any(usize),
    /// Of those of one kind.
    Kind(Kind, usize),
}

/// The orders that move something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Start,
    Fence,
    Switch,
    Stop,
}

impl Kind {
    pub(super) fn of(what: &What) -> Option<Kind> {
        match what {
            What::Start { .. } => Some(Kind::Start),
            What::Fence { .. } => Some(Kind::Fence),
            What::Switch { .. } => Some(Kind::Switch),
            What::Stop { .. } => Some(Kind::Stop),
            What::Look | What::Probe { .. } | What::Resize { .. } | What::Warm { .. } => None,
        }
    }
}

/// A failure at a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strike {
    pub(super) at: At,
    /// So long after that order was given.
    pub(super) after_ns: u64,
    pub(super) failure: Failure,
}

impl Strike {
    /// None in an eighth of the runs, one in half of them, up to four in the others, mostly at what moves something, or at the first orders.
    ///
    /// In half of the runs that have one, the host of the appliance lags behind besides while clients are on it. Fences are for an old path that goes on when clients have just been moved, and pauses and
    /// cuts of their own length end before or long after that in all but one of 1,000 runs.
    ///
    /// In a third of them the proxy is held up, and its next run overtakes what it had under way: what is late by its own is over long before a proxy is back that just died.
    ///
    /// Where a server of others has the disk, that loses its power in half of them besides.
    pub(super) fn draw(random: &mut Xoshiro256PlusPlus, is_far: bool) -> Vec<Strike> {
        let count = match random.random_range(0..8) {
            0 => 0,
            1..5 => 1,
            _ => random.random_range(2..5),
        };
        let mut strikes: Vec<Strike> = (0..count)
            .map(|_| {
                let failure = FAILURES[random.random_range(0..FAILURES.len())];
                let at = match random.random_range(0..6) {
                    0..3 => {
                        let kinds = [Kind::Start, Kind::Fence, Kind::Switch, Kind::Stop];
                        At::Kind(kinds[random.random_range(0..kinds.len())], random.random_range(1..4))
                    }
                    3..5 => At::Any(random.random_range(1..8)),
                    _ => At::Any(random.random_range(1..40)),
                };
                Strike { at, after_ns: Strike::moment(random), failure }
            })
            .collect();
        if count > 0 && random.random_range(0..2) == 0 {
            let failure = match random.random_range(0..5) {
                0 => Failure::HostPausesUntilLeft,
                1 | 2 => Failure::HostWaitsUntilLeft,
                _ => Failure::HostCutOffUntilLeft,
            };
            // By then clients are on it, if nothing has struck before.
            let at = At::Any(random.random_range(5..15));
            strikes.push(Strike { at, after_ns: Strike::moment(random), failure });
        }
        if count > 0 && random.random_range(0..3) == 0 {
            let failure = match random.random_range(0..4) {
                0 => Failure::FlushFails,
                _ => Failure::ProxyIsHeldUp,
            };
            let at = At::Any(random.random_range(1..20));
            strikes.push(Strike { at, after_ns: Strike::moment(random), failure });
        }
        if is_far && count > 0 && random.random_range(0..2) == 0 {
            let at = At::Any(random.random_range(1..25));
            strikes.push(Strike { at, after_ns: Strike::moment(random), failure: Failure::PowerFails });
        }
        strikes
    }

    /// At once, shortly after, or when what was ordered may be done.
    fn moment(random: &mut Xoshiro256PlusPlus) -> u64 {
        let after_ns = [0, random.random_range(0..300_000), random.random_range(0..6_000_000)];
        after_ns[random.random_range(0..3)]
    }
}

/// A host that lags behind until its clients are elsewhere.
pub(super) struct Lag {
    host: u32,
    /// What stands still.
    paused: Vec<u64>,
    /// What it says to the storage side is late, and its connections that were let in are not taken by the worker there.
    waits_at_door: bool,
    /// It goes on then, wherever clients are.
    until: u64,
}

impl World {
    /// Where the appliance is that was started last, or would be.
    fn struck_host(&self) -> u32 {
        let last = self.appliances.values().next_back().map(|node| self.nodes[node].place);
        match last {
            Some(Place::Host(host)) => host,
            _ => 0,
        }
    }

    pub(super) fn strike(&mut self, failure: Failure) {
        note!(self, "struck: {failure:?}");
        self.struck_at = self.now;
        let host = self.struck_host();
        let until = self.now + WHILE_NS;
        let hosts = (0..self.hosts.len() as u32).map(Place::Host);
        let from_hosts = |world: &mut World, other: Place| hosts.for_each(|host| world.cut_off(host, other));
        match failure {
            Failure::HostDies => self.kill_host(host, false),
            Failure::HostRestarts => self.kill_host(host, true),
            Failure::ApplianceDies => {
                let last = self.appliances.values().next_back().copied();
                last.into_iter().for_each(|node| self.kill_node(node));
            }
            Failure::ApplianceHangs => {
                for node in self.nodes.values_mut().filter(|node| matches!(node.role, Role::Appliance(_))) {
                    node.hangs = true;
                }
            }
            Failure::HostPauses => {
                let pause = self.random.random_range(0..4 * WHILE_NS);
                for id in self.pause_host(host, self.now + pause) {
                    self.schedule(pause, Event::Resume(id));
                }
            }
            Failure::HostPausesUntilLeft => {
                let until = self.now + LAG_NS_MAX;
                let paused = self.pause_host(host, until);
                self.lag(Lag { host, paused, waits_at_door: false, until });
            }
            Failure::HostCutOffUntilLeft => {
                let until = self.now + LAG_NS_MAX;
                for other in [Place::Storage, Place::Controller] {
                    self.cut_off_until(Place::Host(host), other, until);
                }
                self.lag(Lag { host, paused: Vec::new(), waits_at_door: false, until });
            }
            Failure::HostWaitsUntilLeft => {
                let until = self.now + LAG_NS_MAX;
                self.cut_off_until(Place::Host(host), Place::Controller, until);
                self.lag(Lag { host, paused: Vec::new(), waits_at_door: true, until });
                let is_its = |link: &&Link| {
                    self.nodes.get(&link.node).is_some_and(|node| node.place == Place::Host(host))
                };
                let its: Vec<u64> =
                    self.links.values().filter(is_its).filter_map(|link| link.connection).collect();
                let breaks = self.percent(50);
                for connection in its {
                    self.connections.get_mut(&connection).expect("a link has it").late_until = until;
                    if breaks {
                        self.cut(connection);
                    }
                }
            }
            Failure::ImageDoesNotBoot => self.hosts[0].no_boot = true,
            Failure::AddressInUse => self.hosts[0].in_use = true,
            Failure::HostLies => self.hosts[0].lies = true,
            Failure::HypervisorsDeaf => self.hosts.iter_mut().for_each(|host| host.deaf_until = until),
            Failure::StorageDies => {
                if let Some(storage) = self.storage {
                    self.kill_node(storage);
                    self.schedule(WHILE_NS / 4, Event::Back(Place::Storage));
                }
            }
            Failure::PowerFails if self.is_far => self.server_loses_power(),
            Failure::PowerFails => {
                if let Some(storage) = self.storage {
                    self.kill_node(storage);
                    self.power_fails();
                    self.schedule(WHILE_NS / 4, Event::Back(Place::Storage));
                }
            }
            Failure::DiskHangs if self.is_far && self.percent(50) => {
                self.cut_off(Place::Storage, Place::Server);
            }
            Failure::DiskHangs => self.disk_hangs_until = until,
            Failure::ProxyDies => {
                if let Some(proxy) = self.proxy.filter(|_| !self.is_nameless) {
                    self.kill_node(proxy);
                    self.schedule(WHILE_NS / 10, Event::Back(Place::Application));
                }
            }
            Failure::ProxyIsHeldUp => self.hold_up_proxy(),
            Failure::ProxyIsReplaced => {
                if let Some(proxy) = self.proxy.filter(|_| !self.is_nameless) {
                    self.kill_node(proxy);
                    self.course.replaced += 1;
                    let pause = self.random.random_range(0..1_000_000);
                    self.schedule(pause, Event::Back(Place::Application));
                }
            }
            Failure::FlushFails => self.disk.next_flush_fails = true,
            Failure::StorageEnds => {
                self.storage.into_iter().for_each(|storage| self.begin_to_leave(storage));
            }
            Failure::ProxyEnds => {
                self.proxy.into_iter().for_each(|proxy| self.begin_to_leave(proxy));
            }
            Failure::ApplianceEnds => {
                let last = self.appliances.values().next_back().copied();
                last.into_iter().for_each(|node| self.begin_to_leave(node));
            }
            // What becomes of the order is seen to where it is given.
            Failure::AnswerLost | Failure::OrderLate => {}
            Failure::ControllerDies => self.replace_controller(),
            Failure::LinksBreak => {
                let broken: Vec<u64> = self.links.values().filter_map(|link| link.connection).collect();
                broken.into_iter().for_each(|connection| self.cut(connection));
                if self.percent(80) {
                    let pause = self.random.random_range(0..20_000_000);
                    self.schedule(pause, Event::Strike(Failure::LinksBreak));
                }
            }
            Failure::ApplicationFromStorage => self.cut_off(Place::Application, Place::Storage),
            Failure::ApplicationFromHosts => from_hosts(self, Place::Application),
            Failure::HostsFromStorage => from_hosts(self, Place::Storage),
            Failure::HostFromAll => {
                for other in [Place::Application, Place::Storage, Place::Controller] {
                    self.cut_off(Place::Host(host), other);
                }
            }
            Failure::ControllerFromHosts => from_hosts(self, Place::Controller),
            Failure::ControllerFromStorage => self.cut_off(Place::Controller, Place::Storage),
            Failure::ControllerFromApplication => self.cut_off(Place::Controller, Place::Application),
        }
    }

    /// The server of others is gone for a while, with what it had not flushed.
    fn server_loses_power(&mut self) {
        for failure in [Failure::ApplianceDies, Failure::StorageDies] {
            if self.percent(50) {
                self.strike(failure);
            }
        }
        // Nor can the storage side tell its clients from a proxy's without a name.
        if self.is_nameless && self.percent(50) {
            self.strike(Failure::ApplianceEnds);
        }
        if let Some(server) = self.server {
            self.kill_node(server);
            self.power_fails();
            // Mostly before those who asked it have given up.
            let pause = if self.percent(80) { WHILE_NS / 4 } else { 4 * WHILE_NS };
            self.schedule(pause, Event::Back(Place::Server));
        }
    }

    /// What runs on a host stands still, and nothing is heard there until then; what that is.
    fn pause_host(&mut self, host: u32, until: u64) -> Vec<u64> {
        (self.hosts[host as usize].deaf_until, self.hosts[host as usize].still_until) = (until, until);
        let is_its = |node: &Node| node.place == Place::Host(host) && !node.hangs;
        let its: Vec<u64> = self.nodes.iter().filter(|(_, node)| is_its(node)).map(|(id, _)| *id).collect();
        its.iter().for_each(|id| self.nodes.get_mut(id).expect("listed above").hangs = true);
        its
    }

    /// What the proxy has under way stays so for a while, and its next run, or its next connections, are there before that is over.
    fn hold_up_proxy(&mut self) {
        let Some(proxy) = self.proxy else { return };
        let until = self.now + self.random.random_range(0..OVERTAKEN_NS_MAX);
        let its: Vec<u64> = self
            .links
            .values()
            .filter(|link| link.node == proxy)
            .filter_map(|link| link.connection)
            .collect();
        match self.random.random_range(0..3) {
            0 => self.disk_hangs_until = self.disk_hangs_until.max(until),
            1 => {
                for connection in its {
                    let connection = self.connections.get_mut(&connection).expect("a link has it");
                    connection.late_until = connection.late_until.max(until);
                }
            }
            _ => {
                self.held_up = Some((proxy, until));
                its.into_iter().for_each(|connection| self.cut(connection));
            }
        }
        let next = if self.percent(70) { Failure::ProxyIsReplaced } else { Failure::LinksBreak };
        let delay = self.random.random_range(0..REPLACED_NS_MAX);
        self.schedule(delay, Event::Strike(next));
    }

    fn lag(&mut self, lag: Lag) {
        self.schedule(lag.until - self.now, Event::CatchUp(lag.host));
        self.lag = Some(lag);
    }

    /// Clients have been moved away from this host.
    pub(super) fn left_behind(&mut self, host: u32) {
        if self.lag.as_ref().is_some_and(|lag| lag.host == host) {
            self.course.left_behind += 1;
            let delay = self.random.random_range(0..CATCH_UP_NS_MAX);
            self.schedule(delay, Event::CatchUp(host));
        }
    }

    /// Whether the worker does not take this connection for now.
    pub(super) fn is_kept_at_the_door(&self, id: u64) -> bool {
        let Some(lag) = self.lag.as_ref().filter(|lag| lag.waits_at_door) else { return false };
        let connection = &self.connections[&id];
        let from = match connection.peer {
            Peer::Link(link) => self.links.get(&link).and_then(|link| self.nodes.get(&link.node)),
            Peer::Application(_) | Peer::Visitor(_) => None,
        };
        self.storage == Some(connection.node) && from.is_some_and(|node| node.place == Place::Host(lag.host))
    }

    /// For how long the worker does not take this connection yet, since the proxy is held up; in nanoseconds.
    pub(super) fn held_up_for(&self, id: u64) -> u64 {
        let Some((proxy, until)) = self.held_up else { return 0 };
        let Peer::Link(link) = self.connections[&id].peer else { return 0 };
        let is_its = self.links.get(&link).is_some_and(|link| link.node == proxy);
        if is_its { until.saturating_sub(self.now) } else { 0 }
    }

    /// A host that lagged behind goes on.
    pub(super) fn catch_up(&mut self, host: u32) {
        let Some(lag) = self.lag.take_if(|lag| lag.host == host) else { return };
        note!(self, "host {host} lags no longer");
        if self.hosts[host as usize].deaf_until == lag.until {
            (self.hosts[host as usize].deaf_until, self.hosts[host as usize].still_until) =
                (self.now, self.now);
        }
        self.cuts.retain(|(place, _, until)| (*place, *until) != (Place::Host(host), lag.until));
        if lag.waits_at_door {
            let connections: Vec<u64> = self.connections.keys().copied().collect();
            for id in connections {
                let connection = self.connections.get_mut(&id).expect("listed above");
                if connection.late_until == lag.until {
                    connection.late_until = self.now;
                    self.schedule(0, Event::Arrival { connection: id, to_server: true });
                }
                self.schedule(0, Event::Enter(id));
            }
        }
        lag.paused.into_iter().for_each(|node| self.resume(node));
    }
}
