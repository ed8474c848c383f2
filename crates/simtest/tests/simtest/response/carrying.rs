//! Orders of the response, carried out on the simulated daemons as `forebay control` does it on real ones (`serve::fleet::carrying`).

use super::node::{BLOCK, Role, Source};
use super::wires::{Destination, Place};
use super::world::{Event, World, note};
use forebay_appliance::service::{Holder as LeaseHolder, Lease};
use forebay_appliance::volume::{HoldState, Leave, PrewarmPlan};
use forebay_cache::Insertion;
use forebay_control::HostId;
use forebay_control::response::{ApplianceId, Holder, Order, Outcome, Target, What};
use forebay_units::{ByteRange, Bytes, Nanos};

/// What a change of the route may take where it begins, and the start of an appliance whose order came late.
const SWITCH_WITHIN_NS: u64 = 50_000_000;
const LATE_START_WITHIN_NS: u64 = 300_000_000;

/// How far an order is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Sent,
    Starting(u64),
    Fencing,
    /// The old path, where an address that moves is, flushes while clients are there; then it is asked for on the wire while that flushes again; and then the old path is fenced.
    FlushingAhead(Vec<Place>),
    Asking {
        visit: Option<u64>,
        is_asked: bool,
        is_refused: bool,
    },
    FencingMove,
    /// The proxy has this link to where it is to go.
    Opening(u64),
    Holding(u64),
    /// It goes there, and waits for what it asks again there.
    AskingAgain(Nanos),
}

/// An order under way.
pub(super) struct Doing {
    controller: u64,
    pub(super) order: Order,
    pub(super) stage: Stage,
    /// Where an address that moves was.
    pub(super) taken_from: Vec<Place>,
    /// Nothing is heard of it.
    pub(super) is_mute: bool,
    pub(super) began: u64,
}

impl World {
    /// Where an order is carried out.
    fn place_of(&self, what: &What) -> Place {
        match what {
            What::Start { host, .. } | What::Probe { host, .. } | What::Stop { host, .. } => {
                Place::Host(host.0)
            }
            What::Resize { host, .. } | What::Warm { host, .. } => Place::Host(host.0),
            What::Fence { .. } => Place::Storage,
            What::Look | What::Switch { .. } if self.address.is_some() => Place::Controller,
            What::Look | What::Switch { .. } => Place::Application,
        }
    }

    /// The controller gives an order; `late`: it lies in the network for a while.
    pub(super) fn take_order(&mut self, order: Order, is_mute: bool, late: u64) {
        let id = self.number();
        note!(self, "order {}: {:?}", self.orders, order.what);
        let deadline = self.controller_began + order.deadline.0;
        let began = self.now;
        self.doing.insert(
            id,
            Doing {
                controller: self.controller,
                order,
                stage: Stage::Sent,
                taken_from: Vec::new(),
                is_mute,
                began,
            },
        );
        let delay = self.delay() + late;
        self.schedule(delay, Event::Begin(id));
        self.schedule(deadline.saturating_sub(self.now), Event::Deadline(id));
    }

    pub(super) fn finish(&mut self, id: u64, outcome: Outcome) {
        let Some(doing) = self.doing.remove(&id) else { return };
        let place = self.place_of(&doing.order.what);
        note!(self, "{} of volume: {outcome:?}", doing.order.what.word());
        if !doing.is_mute && doing.controller == self.controller && self.reaches(Place::Controller, place) {
            let delay = self.delay();
            let at = self.number();
            self.reports.insert(at, (doing.controller, doing.order.id, outcome));
            self.schedule(delay, Event::Report(at));
        }
    }

    pub(super) fn begin_order(&mut self, id: u64) {
        let Some(doing) = self.doing.get(&id) else { return };
        let what = doing.order.what.clone();
        let host = match self.place_of(&what) {
            Place::Host(host) => Some(host as usize),
            _ => None,
        };
        let is_deaf = host.is_some_and(|host| self.now < self.hosts[host].deaf_until);
        if !self.reaches(Place::Controller, self.place_of(&what)) || is_deaf {
            self.doing.remove(&id);
            return;
        }
        match what {
            What::Start { appliance, host, epoch, .. } => self.start(id, appliance, host, epoch),
            What::Probe { appliance, host } => {
                let outcome = match self.appliance(appliance) {
                    None => Some(Outcome::Refused("it does not run".into())),
                    Some((_, node)) if node.hangs => None,
                    Some((_, node)) if node.volume.is_none() => {
                        Some(Outcome::Refused("it does not serve the volume".into()))
                    }
                    Some(_) => {
                        let lies = self.hosts[host.0 as usize].lies;
                        let has_clients = self.route.0 == Destination::Appliance(appliance);
                        let cache = Bytes::mib(if lies { 1 } else { 1_000 });
                        Some(Outcome::Healthy { cache, has_clients, origin_trouble: None })
                    }
                };
                if let Some(outcome) = outcome {
                    self.finish(id, outcome);
                }
            }
            What::Look => self.look_at_route(id),
            What::Fence { epoch, holder } => self.fence(id, epoch, holder),
            What::Switch { .. } if self.address.is_some() => self.move_address(id),
            // Nobody listens there, which is known at once.
            What::Switch { .. } if self.proxy.is_none() => {
                self.finish(id, Outcome::Unheard("the proxy cannot be told".into()));
            }
            What::Switch { .. } => {
                self.changes_of_route.push_back(id);
                self.change_route();
            }
            What::Resize { appliance, cache, .. } => {
                let quota = Bytes(BLOCK * cache.get().div_ceil(Bytes::mib(4).get()));
                self.tell(id, appliance, |machine| machine.set_quota(quota));
            }
            What::Warm { appliance, zones, .. } => {
                let ranges =
                    zones.iter().map(|zone| ByteRange::new(zone.first_block * BLOCK, zone.blocks * BLOCK));
                let plan = PrewarmPlan {
                    ranges: ranges.collect(),
                    bytes_per_second: Some(Bytes::mib(1)),
                    insertion: Insertion::Prewarm,
                    own_partition: false,
                };
                self.tell(id, appliance, |machine| machine.prewarm(plan));
            }
            What::Stop { appliance, .. } => {
                if let Some((node, _)) = self.appliance(appliance) {
                    self.kill_node(node);
                }
                self.finish(id, Outcome::Done);
            }
        }
    }

    pub(super) fn appliance(&self, appliance: ApplianceId) -> Option<(u64, &super::node::Node)> {
        let node = *self.appliances.get(&appliance)?;
        Some((node, &self.nodes[&node]))
    }

    /// What runs on a host.
    pub(super) fn appliance_at(&self, host: u32) -> Option<ApplianceId> {
        let is_there = |node: &&u64| self.nodes[*node].place == Place::Host(host);
        self.appliances.iter().find(|(_, node)| is_there(node)).map(|(appliance, _)| *appliance)
    }

    /// Whether the controller has given an order up.
    pub(super) fn is_past_its_time(&self, id: u64) -> bool {
        self.clock() >= self.doing[&id].order.deadline
    }

    fn tell(
        &mut self,
        id: u64,
        appliance: ApplianceId,
        tell: impl FnOnce(&mut forebay_appliance::volume::VolumeMachine),
    ) {
        let Some((node, state)) = self.appliance(appliance) else {
            return self.finish(id, Outcome::Refused("it does not run".into()));
        };
        if state.hangs {
            return;
        }
        if let Some(machine) = self.machine(node) {
            tell(machine);
            self.wake(node);
            self.finish(id, Outcome::Done);
        }
    }

    // ---- Start ------------------------------------------------------------------------------------------------

    fn start(&mut self, id: u64, appliance: ApplianceId, host: HostId, epoch: u64) {
        let state = &self.hosts[host.0 as usize];
        let is_taken = |other: ApplianceId| self.address.is_some() && other != appliance;
        if state.in_use || self.appliance_at(host.0).is_some_and(is_taken) {
            return self.finish(id, Outcome::Refused("the address is in use".into()));
        }
        let node = match self.appliances.get(&appliance) {
            Some(node) => *node,
            None => {
                let hangs = state.no_boot;
                let to = Destination::Storage(self.leased.then_some(epoch));
                let node = self.start_node(Role::Appliance(appliance), Place::Host(host.0), Some(to));
                self.nodes.get_mut(&node).expect("just made").hangs = hangs;
                self.appliances.insert(appliance, node);
                node
            }
        };
        self.doing.get_mut(&id).expect("it begins").stage = Stage::Starting(node);
        self.schedule(LATE_START_WITHIN_NS, Event::Deadline(id));
        self.check_orders(node);
    }

    // ---- Look -------------------------------------------------------------------------------------------------

    /// The route is asked, and the lease, where there is one. Who does not answer is waited for until the deadline.
    fn look_at_route(&mut self, id: u64) {
        let route = match (&self.address, self.proxy) {
            // It was taken from where it was at first.
            (Some(address), _) => u64::from(!address.is_at(Place::Storage)),
            (None, Some(_)) => self.route.1,
            (None, None) => return self.finish(id, Outcome::Unheard("the proxy cannot be told".into())),
        };
        let lease = if self.leased { self.epoch_in_force() } else { Some(0) };
        if let Some(lease) = lease {
            self.finish(id, Outcome::Found { epoch: route.max(lease) });
        }
    }

    // ---- Fence ------------------------------------------------------------------------------------------------

    fn fence(&mut self, id: u64, epoch: u64, holder: Holder) {
        let Some(node) = self.storage.filter(|node| !self.nodes[node].hangs) else { return };
        let holder = match holder {
            Holder::Original => LeaseHolder::Original,
            Holder::Named => LeaseHolder::Named,
        };
        match self.lease.raised(Lease { epoch, holder }) {
            Err(_) => {
                let epoch = self.lease.epoch;
                self.finish(id, Outcome::Stale { epoch });
            }
            Ok(lease) => {
                let asked_again = self.proxy.and_then(|proxy| Some(self.machine(proxy)?.asked_again()));
                if holder == LeaseHolder::Original && asked_again.is_some_and(|parts| parts > 0) {
                    panic!("others are let in while the proxy asks again what they may have seen made");
                }
                // On disk before anybody is told.
                self.lease = lease;
                let state = self.nodes.get_mut(&node).expect("it is there");
                let Some(volume) = state.volume else {
                    return self.finish(id, Outcome::Unknown("its origin is absent".into()));
                };
                state.service.fence(volume, lease);
                self.doing.get_mut(&id).expect("it begins").stage = Stage::Fencing;
                self.check_orders(node);
            }
        }
    }

    // ---- The proxy's route ------------------------------------------------------------------------------------

    /// One change after another.
    fn change_route(&mut self) {
        let Some(proxy) = self.proxy else { return };
        loop {
            let Some(&id) = self.changes_of_route.front() else { return };
            let Some(doing) = self.doing.get(&id) else {
                self.changes_of_route.pop_front();
                continue;
            };
            let What::Switch { to, epoch, .. } = doing.order.what else {
                unreachable!("only switches wait here")
            };
            if doing.stage != Stage::Sent {
                return;
            }
            if epoch < self.route.1 {
                self.changes_of_route.pop_front();
                let epoch = self.route.1;
                self.finish(id, Outcome::Stale { epoch });
                continue;
            }
            let to = match to {
                Target::Original => Destination::Storage(self.leased.then_some(epoch)),
                Target::Appliance { appliance, .. } => Destination::Appliance(appliance),
            };
            if to == self.route.0 {
                self.route.1 = epoch;
                self.schedule(SWITCH_WITHIN_NS, Event::Deadline(id));
                self.doing.get_mut(&id).expect("looked up above").stage = Stage::AskingAgain(Nanos::ZERO);
                return self.check_asked_again(id, proxy);
            }
            let link = self.open_link(proxy, to);
            // However late it begins, it takes no longer than it was told.
            self.schedule(SWITCH_WITHIN_NS, Event::Deadline(id));
            self.doing.get_mut(&id).expect("looked up above").stage = Stage::Opening(link);
            return;
        }
    }

    fn route_changed(&mut self, id: u64, outcome: Outcome) {
        self.changes_of_route.retain(|of| *of != id);
        self.finish(id, outcome);
        self.change_route();
    }

    fn give_up_change(&mut self, id: u64, link: u64, is_held: bool, outcome: Outcome) {
        if let (true, Some(proxy)) = (is_held, self.proxy)
            && let Some(machine) = self.machine(proxy)
        {
            machine.release();
            self.wake(proxy);
        }
        self.close_link(link);
        self.route_changed(id, outcome);
    }

    /// Its process is gone, with whatever was being changed; clients of the route have no answer.
    pub(super) fn proxy_died(&mut self) {
        self.proxy = None;
        // No connection of theirs stands, and they know themselves that they know nothing of what is not flushed.
        (self.untold_loss, self.doubted_through) = (None, self.tick());
        for id in std::mem::take(&mut self.changes_of_route) {
            self.doing.remove(&id);
        }
    }

    // ---- What has come to its end -----------------------------------------------------------------------------

    /// A daemon took a turn, or a link of it a step: orders that wait for it may go on.
    pub(super) fn check_orders(&mut self, node: u64) {
        let ids: Vec<u64> = self.doing.keys().copied().collect();
        for id in ids {
            let Some(doing) = self.doing.get(&id) else { continue };
            match doing.stage {
                Stage::Starting(of)
                    if of == node
                        && self.nodes.get(&node).is_some_and(|node| node.volume.is_some() && !node.hangs) =>
                {
                    self.finish(id, Outcome::Done);
                }
                Stage::Fencing if self.storage == Some(node) => {
                    let state = &self.nodes[&node];
                    let volume = state.volume.expect("it was fenced");
                    if state.service.fenced_in_flight(volume) == 0 {
                        let in_doubt =
                            state.service.peek(volume).and_then(|machine| machine.first_in_doubt());
                        let outcome = match in_doubt {
                            None => Outcome::Done,
                            Some(_) => Outcome::Unknown("the storage side is in doubt".into()),
                        };
                        self.finish(id, outcome);
                    }
                }
                Stage::FencingMove if self.storage == Some(node) => {
                    let state = &self.nodes[&node];
                    let volume = state.volume.expect("it was fenced");
                    if state.service.fenced_in_flight(volume) == 0 {
                        let machine = state.service.peek(volume);
                        if machine.is_some_and(|machine| machine.first_in_doubt().is_some()) {
                            self.put_address_back(id);
                            self.finish(id, Outcome::Unknown("the storage side is in doubt".into()));
                        } else {
                            self.give_address(id);
                        }
                    }
                }
                Stage::Opening(link) if self.proxy == Some(node) && self.is_open(link) => self.hold(id, link),
                Stage::Holding(link) if self.proxy == Some(node) => self.check_held(id, link),
                Stage::AskingAgain(_) if self.proxy == Some(node) => self.check_asked_again(id, node),
                _ => {}
            }
        }
    }

    fn is_open(&self, link: u64) -> bool {
        self.links.get(&link).is_some_and(|link| link.is_ready)
    }

    fn hold(&mut self, id: u64, link: u64) {
        let What::Switch { settled, .. } = self.doing[&id].order.what else { unreachable!("it switches") };
        let proxy = self.proxy.expect("the caller looked");
        let Source::Link(old) = self.nodes[&proxy].source else { unreachable!("a proxy has a link") };
        let Some(machine) = self.machine(proxy) else {
            // It began anew and does not reach where it went before. What its last run had sent there may not be over, which it cannot see to.
            if !settled {
                let outcome = Outcome::NotDrained("what was sent by an earlier run may be under way".into());
                return self.give_up_change(id, link, false, outcome);
            }
            // Nobody is served by it, and it begins where it is to go. That its last run was told of the error of a flush is known where it went before.
            (self.failed_flush, self.kept_quiet) = (None, None);
            self.proxy_goes(id, link);
            return self.serve_volume(proxy);
        };
        if let Err(error) = machine.hold(Leave { settled, drops_cache: false }) {
            return self.give_up_change(id, link, false, Outcome::NotDrained(error.to_string()));
        }
        self.doing.get_mut(&id).expect("looked up above").stage = Stage::Holding(link);
        if settled {
            self.abandon_link(old);
        }
        self.wake(proxy);
    }

    fn check_held(&mut self, id: u64, link: u64) {
        let proxy = self.proxy.expect("the caller looked");
        let traits = self.disk.traits;
        match self.machine(proxy).and_then(|machine| machine.hold_state()) {
            Some(HoldState::Waiting(_)) => {}
            Some(HoldState::Failed(error)) => {
                self.give_up_change(id, link, true, Outcome::NotDrained(error.to_string()));
            }
            None => self.give_up_change(id, link, false, Outcome::Refused("it is not held any more".into())),
            Some(HoldState::Held) => {
                self.machine(proxy).expect("it is held").change_origin(&traits);
                self.proxy_goes(id, link);
            }
        }
    }

    /// The proxy takes this link, and says so.
    fn proxy_goes(&mut self, id: u64, link: u64) {
        let proxy = self.proxy.expect("the caller looked");
        let What::Switch { epoch, settled, .. } = self.doing[&id].order.what else {
            unreachable!("it switches")
        };
        if settled && !self.leased {
            // Whether a stranger's storage has lost what it told an appliance that is gone, nobody can say.
            self.untold_loss = None;
        }
        if let Destination::Appliance(appliance) = self.route.0
            && let Some((_, node)) = self.appliance(appliance)
            && let Place::Host(host) = node.place
        {
            self.left_behind(host);
        }
        let now = self.now;
        let node = self.nodes.get_mut(&proxy).expect("it is there");
        if let Source::Link(old) = std::mem::replace(&mut node.source, Source::Link(link)) {
            if let Some(mut new) = self.links.remove(&link) {
                self.links.get(&old).into_iter().for_each(|old| new.take_the_place_of(old, now));
                self.links.insert(link, new);
            }
            self.close_link(old);
        }
        self.route = (self.links[&link].to, epoch);
        self.course.switches += 1;
        let doing = self.doing.get_mut(&id).expect("it switches");
        doing.stage = Stage::AskingAgain(Nanos(now - doing.began));
        self.wake(proxy);
        self.check_asked_again(id, proxy);
    }

    /// Others may write by another way once they are let in, which is done behind the answer.
    fn check_asked_again(&mut self, id: u64, proxy: u64) {
        let Stage::AskingAgain(pause) = self.doing[&id].stage else { unreachable!("the caller looked") };
        if self.machine(proxy).is_none_or(|machine| machine.asked_again() == 0) {
            self.route_changed(id, Outcome::Switched { pause });
        }
    }

    /// An order's time is over: who carries it out gives it up, where that can be done.
    pub(super) fn give_up_order(&mut self, id: u64) {
        let Some(doing) = self.doing.get(&id) else { return };
        match doing.stage {
            Stage::Starting(node) => {
                self.kill_node(node);
                self.finish(id, Outcome::Refused("it did not serve in time".into()));
            }
            Stage::Fencing => self.finish(id, Outcome::Unknown("the old path is not drained".into())),
            Stage::FencingMove => {
                self.put_address_back(id);
                self.finish(id, Outcome::Unknown("the old path is not drained".into()));
            }
            Stage::Opening(link) => {
                self.give_up_change(id, link, false, Outcome::Refused("nobody serves there".into()));
            }
            Stage::Holding(link) => {
                self.give_up_change(
                    id,
                    link,
                    true,
                    Outcome::NotDrained("the old path is not drained".into()),
                );
            }
            Stage::AskingAgain(_) => {
                self.route_changed(id, Outcome::Unknown("changes are asked again and not answered".into()));
            }
            // It is on its way, or waits for another one; or it takes no longer.
            Stage::Sent | Stage::FlushingAhead(_) | Stage::Asking { .. } => {}
        }
    }
}
