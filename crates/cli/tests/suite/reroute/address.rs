//! By an address that moves between hosts: clients are cut off and connect again; neither path answers for a moment only.
//!
//! Three network namespaces on one bridge stand for the hosts of the application, of the storage and of the appliance.

use super::graph::storage_daemon;
use super::{SECRET, Scene, reroutes, soon, while_clients_work};
use crate::support::{Running, prerequisites, wait_for};
use crate::wire::{Wire, ip};
use forebay_actuate::route::{AddressPlace, AddressRoute, Ipv4Prefix, LeaseHolder};
use forebay_actuate::{Endpoint, Passage, Pause, Route, RouteError};
use forebay_nbd::Uri;
use std::net::Ipv4Addr;
use std::time::Duration;

const PORT: u16 = 10_809;
const MOVED: Ipv4Addr = Ipv4Addr::new(10, 213, 7, 100);

const APPLICATION: usize = 0;
const STORAGE: usize = 1;
const APPLIANCE: usize = 2;

#[test]
fn clients_of_an_address_are_cut_off_for_a_moment_and_lose_nothing() {
    if !prerequisites("re-routes by address", &["fio", "nbdcopy", "qemu-storage-daemon", "ip"], true) {
        return;
    }
    let wire = Wire::new(&["c", "s", "a"]);
    wire.ask_whether_servers_are_there(APPLICATION);
    let (listen, secret) = (format!(", \"tcp:0.0.0.0:{PORT}\""), format!("secret = \"{SECRET}\"\n"));
    let (storage_host, appliance_host) = (Some(wire.name(STORAGE)), Some(wire.name(APPLIANCE)));
    let mut scene = Scene::new(storage_host, &listen, &secret);
    let export = format!("db.{SECRET}");
    let place = |host: usize, holder| AddressPlace {
        endpoint: Endpoint::new(Uri::tcp(Wire::address(host).to_string(), PORT, export.clone())),
        namespace: Some(wire.namespace(host)),
        interface: "eth0".to_owned(),
        holder,
    };
    let places = vec![place(STORAGE, LeaseHolder::Original), place(APPLIANCE, LeaseHolder::Named)];
    let address = Ipv4Prefix { address: MOVED, prefix: 24 };
    let route = AddressRoute { address, places, lease: Some(scene.lease()) };
    let to = |host: usize| route.places[host - STORAGE].endpoint.clone();
    assert!(matches!(route.now(soon()), Err(RouteError::Between { .. })), "nobody has the address yet");
    ip(&format!("-n {} addr add {MOVED}/24 dev eth0", wire.name(STORAGE)));
    assert_eq!(route.now(soon()).unwrap(), to(STORAGE));

    let first = format!(
        "server.type=inet,server.host={MOVED},server.port={PORT},server.keep-alive=on,export={export},reconnect-delay=20"
    );
    let application = Some(wire.name(APPLICATION));
    let _qemu = Running(vec![storage_daemon(application, scene.folder.path(), &first)]);
    let socket = scene.path("qemu.sock");
    wait_for(&socket);
    while_clients_work("address", &mut scene, &socket, Duration::from_millis(500), |scene| {
        let mut pauses: Vec<Pause> = Vec::new();
        for _ in 0..reroutes() {
            let (there, back) = (scene.epoch + 1, scene.epoch + 2);
            scene.epoch = back;
            scene.start_appliance(appliance_host, &listen, &secret, there);
            for (host, epoch) in [(APPLIANCE, there), (STORAGE, back)] {
                let passage = Passage { to: to(host), epoch, settled: false };
                pauses.push(
                    route.switch(&passage, soon()).unwrap_or_else(|error| panic!("{passage:?}: {error}")),
                );
                assert_eq!(route.now(soon()).unwrap(), passage.to);
                assert_eq!(route.switch(&passage, soon()).unwrap(), Pause(Duration::ZERO));
                // Who has not noticed that it was cut off must not find the old host again.
                scene.wait_for_work();
            }
        }
        pauses
    });

    // Who has the address already is found out, and clients are where they were.
    scene.start_appliance(appliance_host, &listen, &secret, scene.epoch + 1);
    ip(&format!("-n {} addr add {MOVED}/32 dev lo", wire.name(APPLICATION)));
    let passage = Passage { to: to(APPLIANCE), epoch: scene.epoch + 1, settled: false };
    let refused = route.switch(&passage, soon()).unwrap_err();
    assert!(matches!(refused, RouteError::AddressInUse { .. }) && refused.had_no_effect(), "{refused}");
    assert_eq!(route.now(soon()).unwrap(), to(STORAGE));
    ip(&format!("-n {} addr del {MOVED}/32 dev lo", wire.name(APPLICATION)));
    // Without a lease nothing fences the old path.
    let bare = AddressRoute { lease: None, ..route.clone() };
    let refused = bare.switch(&passage, soon()).unwrap_err();
    assert!(matches!(refused, RouteError::NotDrained { .. }) && !bare.drains(), "{refused}");
    // Nobody listens there.
    scene.appliance = None;
    let refused = route.switch(&passage, soon()).unwrap_err();
    assert!(matches!(refused, RouteError::Unusable { .. }), "{refused}");
}
