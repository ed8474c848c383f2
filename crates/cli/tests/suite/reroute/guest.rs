//! A whole virtual machine as the client: its disk goes by QEMU's block graph or by a permanent proxy, and its kernel and programs notice nothing; or its
//! kernel's NBD driver is cut off by an address that moves, and is connected again.

use super::address::{self, Hosts, MOVED, PORT};
use super::proxy::permanent_proxy;
use super::{PAUSE_P99_MAX, Scene, judge, reroutes};
use crate::guest::Guest;
use forebay_actuate::route::QmpRoute;
use forebay_actuate::{Endpoint, Pause, Route};
use forebay_nbd::Transport;
use forebay_prerequisite::programs;
use std::process::Command;
use std::time::Duration;

/// What guests do.
pub(crate) const WORK: &str = include_str!("guest-init.sh");

/// The guest's disk: what QEMU reaches by NBD, and options of the device.
fn disk(to: &Endpoint, options: &str) -> Vec<String> {
    let Transport::Unix { path } = &to.uri.transport else { unreachable!("exports here are on sockets") };
    let first = format!("nbd,node-name=db-first,server.type=unix,server.path={},export=db", path.display());
    let device = format!("virtio-blk-pci,drive=db{options}");
    let args = ["-blockdev", &first, "-blockdev", "raw,node-name=db,file=db-first", "-device", &device];
    args.map(str::to_owned).to_vec()
}

/// Boots a guest, and moves it there and back, again and again, while it works; the pauses. `None` where it cannot be booted.
fn move_guest(scene: &mut Scene, args: &[String], route: &dyn Route) -> Option<(Guest, Vec<Pause>)> {
    let folder = scene.folder.path().to_owned();
    let work = (WORK, &["busybox"][..]);
    let guest = Guest::boot(None, &folder, work, "forebay_disk=/dev/vda", args, &scene.answered)?;
    scene.wait_for_work();
    Some((guest, (0..reroutes(1)).flat_map(|_| scene.there_and_back(route)).collect()))
}

fn end(name: &str, guest: Guest, pauses: Vec<Pause>, p99_max: Duration) {
    let said = guest.stop();
    judge(name, pauses, p99_max);
    let longest =
        said.lines().filter_map(|line| line.strip_prefix("longest ")?.strip_suffix(" ms")?.parse().ok());
    let longest: Option<u32> = longest.max();
    println!(
        "{name}: sixteen requests, one by one, and what checks them took at most {} ms",
        longest.expect("each job says it")
    );
}

#[test]
fn a_guest_is_moved_in_qemus_block_graph_and_notices_nothing() {
    let mut scene = Scene::new(None, "", "");
    let monitor = format!("unix:{},server=on,wait=off", scene.path("qmp.sock").display());
    // A machine that stops for an error of its disk asks again when it goes on.
    let args = disk(&scene.export("storage.sock", "db"), ",id=disk,rerror=stop,werror=stop");
    let args = [args, vec!["-qmp".to_owned(), monitor]].concat();
    let device = Some("disk".to_owned());
    let route = QmpRoute { device, ..QmpRoute::raw(scene.path("qmp.sock"), "db", "db-first") };
    let Some((guest, pauses)) = move_guest(&mut scene, &args, &route) else { return };
    // An appliance that hangs, and one that dies, with writes that were not flushed.
    for signal in ["-STOP", "-KILL"] {
        let (_, back) = scene.there(&route);
        scene.wait_for_work();
        let pid = scene.appliance.as_ref().expect("it serves").0[0].id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("`kill` runs").success());
        let pause =
            scene.back_from_the_dead(&route, back).unwrap_or_else(|error| panic!("{signal}: {error}"));
        println!("a guest, by QEMU: back from an appliance after kill {signal} in {:?}", pause.0);
        scene.wait_for_work();
    }
    end("a guest, by QEMU", guest, pauses, PAUSE_P99_MAX);
}

#[test]
fn a_guest_is_moved_by_a_proxy_and_notices_nothing() {
    let mut scene = Scene::new(None, "", "");
    let (_proxy, route) = permanent_proxy(&scene);
    let args = disk(&scene.export("proxy.sock", "db"), "");
    let Some((guest, pauses)) = move_guest(&mut scene, &args, &route) else { return };
    end("a guest, by a proxy", guest, pauses, PAUSE_P99_MAX);
}

#[test]
fn a_guest_whose_kernel_is_cut_off_by_an_address_connects_again_and_loses_nothing() {
    let name = "a guest with Linux's NBD driver, by an address";
    if !programs(name, &["ip"], true) {
        return;
    }
    let mut hosts = Hosts::new();
    let folder = hosts.scene.folder.path().to_owned();
    let parameters = format!(
        "forebay_disk=/dev/dm-0 forebay_address=10.213.7.50/24 forebay_server={MOVED} forebay_port={PORT} forebay_export={}",
        address::export()
    );
    let tap = format!("tap,id=net,ifname={},script=no,downscript=no", hosts.wire.tap());
    let args = ["-netdev", &tap, "-device", "virtio-net-pci,netdev=net,romfile="].map(str::to_owned);
    let work = (WORK, &["busybox", "nbd-client", "dmsetup"][..]);
    let bridge = Some(hosts.wire.name(address::APPLICATION));
    let Some(guest) = Guest::boot(bridge, &folder, work, &parameters, &args, &hosts.scene.answered) else {
        return;
    };
    hosts.scene.wait_for_work();
    let pauses = (0..reroutes(1)).flat_map(|_| hosts.there_and_back()).collect();
    end(name, guest, pauses, address::PAUSE_P99_MAX);
}
