//! The controller of a simulated world: its responses, its journal on disk, and what it wants when.

use super::strike::{At, Failure, Kind, Strike};
use super::wires::{Destination, Place};
use super::world::{Event, HOSTS, VOLUME, WHILE_NS, World, note};
use forebay_control::response::{
    ApplianceId, Draining, Found, Journal, ResponseRules, Responses, VolumeRoute, Way, Wish,
};
use forebay_control::{HostId, HostSpec, VolumeId, ZoneRange};
use forebay_units::{Bytes, Nanos, mix64};

/// A hundredth of the times of `ResponseRules::default`.
pub(super) fn rules() -> ResponseRules {
    ResponseRules {
        start_within_ms: 300,
        probe_within_ms: 20,
        fence_within_ms: 100,
        switch_within_ms: 50,
        stop_within_ms: 200,
        report_grace_ms: 20,
        late_max_ms: 600,
        probe_every_ms: 10,
        retry_first_ms: 10,
        retry_max_ms: 600,
        rest_first_ms: 600,
        rest_max_ms: 18_000,
        ..ResponseRules::default()
    }
}

pub(super) fn specs() -> Vec<HostSpec> {
    (0..HOSTS).map(|id| HostSpec::new(HostId(id), format!("h{id}"), id / 2, Bytes::mib(200))).collect()
}

impl World {
    pub(super) fn volumes(&self) -> Vec<(VolumeId, VolumeRoute)> {
        let route = VolumeRoute {
            name: "db".into(),
            draining: if self.address.is_some() { Draining::ByLease } else { Draining::ByItself },
            leased: self.leased,
            home: HostId(0),
            unfit: Vec::new(),
            apart: Vec::new(),
            way: Way::default(),
        };
        vec![(VOLUME, route)]
    }

    pub(super) fn clock(&self) -> Nanos {
        Nanos(self.now - self.controller_began)
    }

    pub(super) fn control(&mut self) {
        // What is wanted is told again and again, as a controller does that knows nothing of what was told before.
        let plan =
            [(15, Some(40)), (60, Some(60)), (90, Some(40)), (if self.keeps { 1 << 40 } else { 240 }, None)];
        let now_ms = self.now / 1_000_000;
        let wanted = plan.iter().rev().find(|(from, _)| *from <= now_ms);
        if let Some((_, cache)) = wanted {
            let cache = cache.map(Bytes::mib);
            if cache != self.wanted {
                self.responses.warm(VOLUME, vec![ZoneRange { first_block: 0, blocks: 4 }], 1);
            }
            self.wanted = cache;
            match cache {
                Some(cache) => {
                    let wish = Wish { cache, flash: Bytes::ZERO, rate: 100.0, host: None };
                    self.responses.want(VOLUME, wish);
                }
                None => self.responses.give_back(VOLUME, "the load has gone"),
            }
        }
        self.list_hosts();
        let clock = self.clock();
        let orders = self.responses.step(clock);
        self.keep_journal();
        for order in orders {
            self.orders += 1;
            let mut at = vec![At::Any(self.orders)];
            if let Some(kind) = Kind::of(&order.what) {
                let of_kind = self.orders_of.entry(kind).or_insert(0);
                *of_kind += 1;
                at.push(At::Kind(kind, *of_kind));
            }
            let strikes: Vec<Strike> =
                self.strikes.iter().filter(|strike| at.contains(&strike.at)).copied().collect();
            let is_mute = strikes.iter().any(|strike| strike.failure == Failure::AnswerLost);
            let late = strikes.iter().any(|strike| strike.failure == Failure::OrderLate);
            self.course.strikes += strikes.len() as u64;
            for strike in &strikes {
                self.schedule(strike.after_ns, Event::Strike(strike.failure));
            }
            self.take_order(order, is_mute, if late { WHILE_NS } else { 0 });
        }
        let pause = if self.now < 2_000_000_000 { self.step_ns } else { 50_000_000 };
        self.schedule(pause, Event::Control);
    }

    /// On disk before an order is begun.
    pub(super) fn keep_journal(&mut self) {
        self.told.extend(self.responses.decisions());
        if self.responses.changes() != self.changes {
            self.changes = self.responses.changes();
            self.journal = serde_json::to_string(&self.responses.journal()).expect("plain data");
        }
    }

    pub(super) fn hear_report(&mut self, report: u64) {
        let Some((controller, order, outcome)) = self.reports.remove(&report) else { return };
        if controller == self.controller {
            let clock = self.clock();
            self.responses.report(order, outcome, clock);
            // Kept with the next step: until then it is as if it had not been heard.
        }
    }

    /// Hosts say what runs there, if they are asked; and the proxy where clients are, if it is there.
    fn list_hosts(&mut self) {
        let asked = self.clock();
        for host in self.responses.unlisted().collect::<Vec<_>>() {
            let place = Place::Host(host.0);
            let is_deaf = self.now < self.hosts[host.0 as usize].deaf_until;
            if is_deaf || !self.reaches(Place::Controller, place) {
                continue;
            }
            let is_told = self.address.is_some()
                || (self.proxy.is_some() && self.reaches(Place::Controller, Place::Application));
            let there = self.appliances.iter().filter(|(_, node)| self.nodes[*node].place == place);
            let found = there.map(|(appliance, _)| Found {
                appliance: *appliance,
                volume: VOLUME,
                memory: Bytes::mib(64),
                has_clients: is_told && self.route.0 == Destination::Appliance(*appliance),
            });
            let found = found.collect();
            note!(self, "h{} says what runs there: {found:?}", host.0);
            self.responses.listed(host, asked, found);
        }
    }

    /// The controller dies, and another one goes on by what is on disk, if that is not lost as well.
    pub(super) fn replace_controller(&mut self) {
        note!(self, "the controller dies");
        self.told.extend(self.responses.decisions());
        self.controller += 1;
        self.mover_died();
        self.controller_began = self.now;
        let volumes = self.volumes();
        // Not by what else is drawn: seeds that failed once are to take their course.
        let is_lost = !self.journal.is_empty() && mix64(self.now).is_multiple_of(2);
        if is_lost {
            note!(self, "with its journal");
            self.journal.clear();
            self.course.forgotten += 1;
        }
        if self.journal.is_empty() {
            self.responses = Responses::new(rules(), specs());
            for (id, route) in volumes {
                self.responses.register(id, route);
                // Nobody tells it what one before did.
                self.responses.adopt_unknown(id);
            }
            if is_lost {
                self.responses.forget(ApplianceId(1_000 * self.controller));
            }
            return;
        }
        let journal: Journal = serde_json::from_str(&self.journal).expect("a journal");
        self.responses =
            Responses::recover(journal, rules(), specs(), volumes).expect("the same volumes and hosts");
        self.changes = u64::MAX;
    }
}
