//! A whole virtual machine as the client: its disk goes by QEMU's block graph or by a permanent proxy, and its kernel and programs notice nothing; or its
//! kernel's NBD driver is cut off by an address that moves, and is connected again.

use super::address::{self, Hosts, MOVED, PORT};
use super::proxy::permanent_proxy;
use super::{PAUSE_P99_MAX, Scene, judge, reroutes};
use crate::guest::Guest;
use crate::support::prerequisites;
use forebay_actuate::route::QmpRoute;
use forebay_actuate::{Endpoint, Pause, Route};
use forebay_nbd::Transport;
use std::time::Duration;

/// What guests do.
const WORK: &str = include_str!("guest-init.sh");

/// The guest's disk: what QEMU reaches by NBD.
fn disk(to: &Endpoint) -> Vec<String> {
    let Transport::Unix { path } = &to.uri.transport else { unreachable!("exports here are on sockets") };
    let first = format!("nbd,node-name=db-first,server.type=unix,server.path={},export=db", path.display());
    let args = ["-blockdev", &first, "-blockdev", "raw,node-name=db,file=db-first"];
    args.into_iter().chain(["-device", "virtio-blk-pci,drive=db"]).map(str::to_owned).collect()
}

/// Moves a guest there and back, again and again, while it works.
fn move_guest(name: &str, scene: &mut Scene, args: &[String], route: &dyn Route) {
    let folder = scene.folder.path().to_owned();
    let guest =
        Guest::boot(None, &folder, (WORK, &["busybox"]), "forebay_disk=/dev/vda", args, &scene.answered);
    let Some(guest) = guest else { return };
    scene.wait_for_work();
    let pauses = (0..reroutes(1)).flat_map(|_| scene.there_and_back(route)).collect();
    end(name, guest, pauses, PAUSE_P99_MAX);
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
    let args = [disk(&scene.export("storage.sock", "db")), vec!["-qmp".to_owned(), monitor]].concat();
    let route = QmpRoute::raw(scene.path("qmp.sock"), "db", "db-first");
    move_guest("a guest, by QEMU", &mut scene, &args, &route);
}

#[test]
fn a_guest_is_moved_by_a_proxy_and_notices_nothing() {
    let mut scene = Scene::new(None, "", "");
    let (_proxy, route) = permanent_proxy(&scene);
    let args = disk(&scene.export("proxy.sock", "db"));
    move_guest("a guest, by a proxy", &mut scene, &args, &route);
}

#[test]
fn a_guest_whose_kernel_is_cut_off_by_an_address_connects_again_and_loses_nothing() {
    let name = "a guest with Linux's NBD driver, by an address";
    if !prerequisites(name, &["ip"], true) {
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
