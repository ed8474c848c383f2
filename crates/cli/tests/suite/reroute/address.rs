//! By an address that moves between hosts: clients are cut off and connect again; neither path answers for a moment only.
//!
//! Three network namespaces on one bridge stand for the hosts of the application, of the storage and of the appliance.

use super::graph::storage_daemon;
use super::{Clients, SECRET, Scene, reroutes, soon};
use crate::support::{Running, wait_for};
use crate::wire::{Wire, ip, ip_says};
use forebay_actuate::route::{AddressPlace, AddressRoute, Ipv4Prefix, LeaseHolder};
use forebay_actuate::{Endpoint, Passage, Pause, Route, RouteError};
use forebay_nbd::Uri;
use forebay_nbd::client::Operation;
use forebay_prerequisite::programs;
use std::net::Ipv4Addr;
use std::time::Duration;

pub(super) const PORT: u16 = 10_809;
pub(crate) const MOVED: Ipv4Addr = Ipv4Addr::new(10, 213, 7, 100);

/// For how long neither path may answer.
pub(super) const PAUSE_P99_MAX: Duration = Duration::from_millis(500);

pub(super) const APPLICATION: usize = 0;
const STORAGE: usize = 1;
const APPLIANCE: usize = 2;

/// Three hosts, the storage side and appliances on two of them, and the route that is an address which the storage side's host has.
pub(super) struct Hosts {
    pub(super) scene: Scene,
    route: AddressRoute,
    listen: String,
    secret: String,
    // The wire goes last.
    pub(super) wire: Wire,
}

impl Hosts {
    pub(super) fn new() -> Hosts {
        let wire = Wire::new(&["c", "s", "a"]);
        wire.ask_whether_servers_are_there(APPLICATION);
        let (listen, secret) = (format!(", \"tcp:0.0.0.0:{PORT}\""), format!("secret = \"{SECRET}\"\n"));
        let scene = Scene::new(Some(wire.name(STORAGE)), &listen, &secret);
        let place = |host: usize, holder| AddressPlace {
            endpoint: Endpoint::new(Uri::tcp(Wire::address(host).to_string(), PORT, export())),
            namespace: Some(wire.namespace(host)),
            interface: "eth0".to_owned(),
            holder,
        };
        let places = vec![place(STORAGE, LeaseHolder::Original), place(APPLIANCE, LeaseHolder::Named)];
        let address = Ipv4Prefix { address: MOVED, prefix: 24 };
        let route = AddressRoute { address, places, lease: Some(scene.lease()) };
        // As where a controller was killed in the middle of the first move.
        assert!(matches!(route.now(soon()), Err(RouteError::Between { .. })), "nobody has the address yet");
        assert_eq!(route.epoch(soon()).unwrap(), 1);
        ip(&format!("-n {} addr add {MOVED}/24 dev eth0", wire.name(STORAGE)));
        assert_eq!(route.epoch(soon()).unwrap(), 0);
        let hosts = Hosts { scene, route, listen, secret, wire };
        assert_eq!(hosts.route.now(soon()).unwrap(), hosts.to(STORAGE));
        hosts
    }

    fn to(&self, host: usize) -> Endpoint {
        self.route.places[host - STORAGE].endpoint.clone()
    }

    fn start_appliance(&mut self, epoch: u64) {
        let host = Some(self.wire.name(APPLIANCE));
        self.scene.start_appliance(host, &self.listen, &self.secret, epoch);
    }

    /// To an appliance and back: the pauses of both.
    pub(super) fn there_and_back(&mut self) -> [Pause; 2] {
        let (there, back) = (self.scene.epoch + 1, self.scene.epoch + 2);
        self.scene.epoch = back;
        self.start_appliance(there);
        [(APPLIANCE, there), (STORAGE, back)].map(|(host, epoch)| {
            let passage = Passage { to: self.to(host), epoch, settled: false, comes_back: true };
            let pause = self.route.switch(&passage, soon());
            let pause = pause.unwrap_or_else(|error| panic!("{passage:?}: {error}"));
            assert_eq!(self.route.now(soon()).unwrap(), passage.to);
            assert_eq!(self.route.switch(&passage, soon()).unwrap(), Pause(Duration::ZERO));
            // Who has not noticed that it was cut off must not find the old host again.
            self.scene.wait_for_work();
            pause
        })
    }
}

/// What clients ask for, wherever the address is.
pub(super) fn export() -> String {
    format!("db.{SECRET}")
}

#[test]
fn clients_of_an_address_are_cut_off_for_a_moment_and_lose_nothing() {
    if !programs("re-routes by address", &["fio", "nbdcopy", "qemu-storage-daemon", "ip"], true) {
        return;
    }
    let mut hosts = Hosts::new();
    let first = format!(
        "server.type=inet,server.host={MOVED},server.port={PORT},server.keep-alive=on,export={},reconnect-delay=20",
        export()
    );
    let application = Some(hosts.wire.name(APPLICATION));
    let _qemu = Running(vec![storage_daemon(application, hosts.scene.folder.path(), &first)]);
    wait_for(&hosts.scene.path("qemu.sock"));
    let clients = Clients::new(&hosts.scene, "qemu.sock");
    clients
        .work("address", PAUSE_P99_MAX, || (0..reroutes(5)).flat_map(|_| hosts.there_and_back()).collect());

    // What a storage side no longer vouches for that was started anew, clients hear of while they are where that is known.
    let (there, back) = (hosts.scene.epoch + 1, hosts.scene.epoch + 2);
    hosts.scene.epoch = back;
    hosts.start_appliance(there);
    let [there, back] = [(APPLIANCE, there), (STORAGE, back)].map(|(host, epoch)| Passage {
        to: hosts.to(host),
        epoch,
        settled: false,
        comes_back: true,
    });
    hosts.route.switch(&there, soon()).unwrap();
    clients.write_once();
    let storage = hosts.wire.name(STORAGE).to_owned();
    hosts.scene.start_storage(Some(&storage));
    for attempt in 0..2 {
        let refused = hosts.route.switch(&back, soon()).unwrap_err();
        assert!(matches!(refused, RouteError::NotDrained { .. }), "attempt {attempt}: {refused}");
        assert_eq!(hosts.route.now(soon()).unwrap(), there.to);
    }
    assert!(clients.ask_once(Operation::Flush, &[]).is_err());
    clients.ask_once(Operation::Flush, &[]).unwrap();
    hosts.route.switch(&back, soon()).unwrap();

    // Who has the address already is found out, and clients are where they were.
    let epoch = hosts.scene.epoch + 1;
    hosts.start_appliance(epoch);
    let (storage, appliance) = (hosts.to(STORAGE), hosts.to(APPLIANCE));
    let Hosts { scene, route, wire, .. } = &mut hosts;
    ip(&format!("-n {} addr add {MOVED}/32 dev lo", wire.name(APPLICATION)));
    let passage = Passage { to: appliance, epoch, settled: false, comes_back: true };
    let refused = route.switch(&passage, soon()).unwrap_err();
    assert!(matches!(refused, RouteError::AddressInUse { .. }) && refused.had_no_effect(), "{refused}");
    assert_eq!(route.now(soon()).unwrap(), storage);
    ip(&format!("-n {} addr del {MOVED}/32 dev lo", wire.name(APPLICATION)));
    // Without a lease nothing fences the old path.
    let bare = AddressRoute { lease: None, ..route.clone() };
    let refused = bare.switch(&passage, soon()).unwrap_err();
    assert!(matches!(refused, RouteError::NotDrained { .. }) && !bare.drains(), "{refused}");
    // The host of an appliance of before, which could not be asked, is back and has the address yet: it is taken from there as well, and clients never go to who serves nobody.
    ip(&format!("-n {} addr add {MOVED}/24 dev eth0", wire.name(APPLIANCE)));
    scene.appliance = None;
    assert_eq!(route.now(soon()).unwrap(), storage);
    ip(&format!("-n {} addr add {MOVED}/32 dev lo", wire.name(APPLICATION)));
    let home = Passage { to: storage.clone(), epoch, settled: false, comes_back: true };
    let refused = route.switch(&home, soon()).unwrap_err();
    assert!(matches!(refused, RouteError::AddressInUse { .. }), "{refused}");
    let has_address = |host| {
        let shown = ip_says(&format!("-n {} -4 addr show dev eth0", wire.name(host)));
        shown.contains(&MOVED.to_string())
    };
    assert!(has_address(STORAGE) && !has_address(APPLIANCE));
    ip(&format!("-n {} addr del {MOVED}/32 dev lo", wire.name(APPLICATION)));
    // Nobody listens there.
    let refused = route.switch(&passage, soon()).unwrap_err();
    assert!(matches!(refused, RouteError::Unusable { .. }), "{refused}");
}
