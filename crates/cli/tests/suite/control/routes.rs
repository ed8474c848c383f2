//! Appliances on other hosts and in virtual machines, clients by an address that moves and by QEMU's block graph: the violation ends, the load does, and
//! clients are where they were.
//!
//! Hosts are network namespaces on one wire; the storage side and its lease are reached over it. The client is a `qemu-storage-daemon`, which has a disk
//! as a virtual machine would, and in which a client of ours verifies every byte.

use super::site::{APPLICATION, CONTROLLER, HOSTS, PORT, STORAGE, Site};
use super::{Ledger, Telling, Work, count, drive, step};
use crate::emulated;
use crate::guest::Guest;
use crate::provision::local::ControlGroup;
use crate::provision::{libvirt, machine};
use crate::reroute::SECRET;
use crate::reroute::address::MOVED;
use crate::reroute::graph::storage_daemon;
use crate::reroute::guest::WORK;
use crate::support::{Running, SetOnDrop, command, secret_file, spawn, wait_for};
use crate::wire::{Wire, ip};
use forebay_nbd::Uri;
use forebay_prerequisite::programs;
use forebay_serve::lease::LeaseHolder;
use forebay_units::mix64;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A client works until a cache is in place and the violation has ended, and then no more; `served` looks around in between.
fn violate(site: &Site, ledger: &mut Ledger, served: impl FnOnce(&str)) -> Value {
    let _controller = site.control();
    let telling = Telling(site.folder.path());
    let work = Work::default();
    std::thread::scope(|scope| {
        let stops = SetOnDrop(&work.stop);
        let uri = Uri::unix(site.path("qemu.sock"), "db");
        scope.spawn(|| drive(uri, ledger, &work));
        let told = telling.wait("the end of the violation behind a cache", |told| {
            count(told, "cache_in_place") == 1 && count(told, "violation_ended") == 1
        });
        let lease = site.storage().lease.expect("it has leases");
        assert_eq!(lease.holder, LeaseHolder::Named);
        served(step(&told));
        assert_eq!(site.appliances.pids().len(), 1);
        drop(stops);
    });
    telling.wait("the original route", |told| step(told).contains("original route"));
    let lease = site.storage().lease.expect("it has leases");
    assert_eq!(lease.holder, LeaseHolder::Original);
    telling.wait("the end of the appliance", |_| site.appliances.pids().is_empty())
}

#[test]
fn clients_of_an_address_are_moved_to_a_cache_on_another_host_and_back() {
    if !programs("control with addresses", &["qemu-storage-daemon", "ip"], true) {
        return;
    }
    let (site, mut ledger) = (Site::new(), Ledger::new());
    let route = format!(
        "{{ type = \"address\", address = \"{MOVED}/24\", interface = \"eth0\", namespace = \"{}\" }}",
        site.wire.name(STORAGE)
    );
    // The application's host has less memory than it says, so it is the other one of its rack.
    let group = ControlGroup::new("liar");
    let liar = group.as_ref().map(|group| {
        let serve = format!("{}exec {} \"$@\"", group.join(), env!("CARGO_BIN_EXE_forebay"));
        format!(", program = {:?}", machine::script(site.folder.path(), &serve).display().to_string())
    });
    if liar.is_none() {
        println!("skipped: a host that lies: no control group can be made here");
    }
    let home = site.host(
        HOSTS[0],
        if liar.is_some() { "256MiB" } else { "65MiB" },
        &liar.clone().unwrap_or_default(),
    );
    let far = "[[host]]\nname = \"here\"\nrack = 2\nmemory = \"256MiB\"\n".to_owned();
    let hosts = far + &home + &site.host(HOSTS[1], "256MiB", "");
    site.configure("200ms", "h3", &hosts, &format!("route = {route}"), "rest_first_ms = 60000");
    let has_address = |host: usize| {
        let told = command(Some(site.wire.name(host)), "ip").args(["-br", "addr"]).output().unwrap();
        String::from_utf8_lossy(&told.stdout).contains(&MOVED.to_string())
    };
    ip(&format!("-n {} addr add {MOVED}/24 dev eth0", site.wire.name(STORAGE)));
    let first = format!(
        "server.type=inet,server.host={MOVED},server.port={PORT},server.keep-alive=on,export=db.{SECRET},reconnect-delay=20"
    );
    let _qemu = Running(vec![storage_daemon(Some(site.wire.name(APPLICATION)), site.folder.path(), &first)]);
    wait_for(&site.path("qemu.sock"));
    let told = violate(&site, &mut ledger, |step| {
        assert!(step.ends_with(" on h4"), "{step}");
        assert!(has_address(HOSTS[1]) && !has_address(STORAGE));
    });
    assert!(has_address(STORAGE) && !has_address(HOSTS[1]));
    let told = told["decisions"].to_string();
    assert!(liar.is_none() || told.contains("more than nine tenths of the 48MiB"), "{told}");

    // Without the lease nothing fences the old path, and an address drains nothing.
    std::fs::remove_dir_all(site.folder.path().join("state")).unwrap();
    site.configure(
        "200ms",
        "h3",
        &hosts,
        &format!("route = {route}\nleased = false"),
        "rest_first_ms = 60000",
    );
    let _controller = site.control();
    let work = Work::default();
    std::thread::scope(|scope| {
        let _stops = SetOnDrop(&work.stop);
        scope.spawn(|| drive(Uri::unix(site.path("qemu.sock"), "db"), &mut ledger, &work));
        let told = Telling(site.folder.path()).wait("a refusal", |told| count(told, "nothing_helps") > 0);
        let told = told.to_string();
        assert!(
            told.contains(
                "their route cannot drain the old path, and the storage side has no lease to fence it"
            ),
            "{told}"
        );
        assert_eq!(count(&serde_json::from_str(&told).unwrap(), "host_chosen"), 0);
    });
    assert!(has_address(STORAGE));
    assert_eq!(ledger.failed, 0, "clients are told of no error");
}

/// The clients of a QEMU, by its block graph, and machines that `provider` has on the controller's host.
fn violate_with_machines(site: &Site, provider: &str) {
    let mut ledger = Ledger::new();
    let route = "{ type = \"qmp\", socket = \"qmp.sock\", node = \"db\", first = \"db-first\" }";
    let hosts = format!("[[host]]\nname = \"h1\"\nmemory = \"512MiB\"\nprovider = {provider}\n");
    // A machine that is emulated beside much else may answer nothing for seconds, and is not dead.
    let response = "rest_first_ms = 60000, probe_within_ms = 10000";
    site.configure("500ms", "h1", &hosts, &format!("route = {route}"), response);
    let storage = Wire::address(STORAGE);
    let first = format!("server.type=inet,server.host={storage},server.port={PORT},export=db.{SECRET}");
    // Machines are reached from their own host, on which the controller is too.
    let _qemu = Running(vec![storage_daemon(Some(site.wire.name(CONTROLLER)), site.folder.path(), &first)]);
    wait_for(&site.path("qemu.sock"));
    violate(site, &mut ledger, |step| assert!(step.ends_with("serving: appliance 1 on h1"), "{step}"));
    assert_eq!(ledger.failed, 0, "clients are told of no error");
}

#[test]
fn clients_of_a_qemu_are_moved_to_a_cache_in_a_virtual_machine_and_back() {
    if !programs("control with QEMU", &["qemu-storage-daemon", "ip"], true) {
        return;
    }
    let (_turn, site) = (emulated::turn(), Site::new());
    let Some(_) = machine::image(site.folder.path()) else { return };
    violate_with_machines(&site, "{ type = \"qemu\", image = \"image\", accelerator = \"tcg\" }");
}

#[test]
fn clients_of_a_qemu_are_moved_to_a_cache_that_libvirt_runs_and_back() {
    let needed = [&["qemu-storage-daemon", "ip"], &libvirt::NEEDED[..]].concat();
    if !programs("control with libvirt", &needed, true) {
        return;
    }
    let (_turn, site) = (emulated::turn(), Site::new());
    let Some(_) = machine::image(site.folder.path()) else { return };
    let (_daemon, connection) = libvirt::daemon(Some(site.wire.name(CONTROLLER)), site.folder.path());
    let libvirt = format!("type = \"libvirt\", image = \"image\", connection = \"{connection}\"");
    violate_with_machines(&site, &format!("{{ {libvirt}, kind = \"qemu\" }}"));
}

#[test]
fn a_guest_whose_appliance_dies_is_on_the_original_route_again_and_notices_nothing() {
    if !programs("control of a guest", &["ip"], true) {
        return;
    }
    let site = Site::sized(4 << 20);
    // One host, which rests when an appliance failed there. What a slow guest asks for looks sequential.
    let route =
        "{ type = \"qmp\", socket = \"qmp.sock\", node = \"db\", first = \"db-first\", device = \"disk\" }";
    let hosts =
        "control.cacheability.sequential_share_max = 1.0\n[[host]]\nname = \"h1\"\nmemory = \"256MiB\"\n";
    site.configure("500ms", "h1", hosts, &format!("route = {route}"), "rest_first_ms = 60000");
    let storage = Wire::address(STORAGE);
    let first = format!(
        "nbd,node-name=db-first,server.type=inet,server.host={storage},server.port={PORT},export=db.{SECRET}"
    );
    let monitor = format!("unix:{},server=on,wait=off", site.path("qmp.sock").display());
    let device = "virtio-blk-pci,drive=db,id=disk,rerror=stop,werror=stop";
    let args = ["-blockdev", &first, "-blockdev", "raw,node-name=db,file=db-first", "-device", device];
    let args =
        [&args[..], &["-qmp", &monitor]].concat().iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let done = Arc::new(AtomicU64::new(0));
    let work = (WORK, &["busybox"][..]);
    let parameters = "forebay_disk=/dev/vda forebay_places=4";
    let namespace = Some(site.wire.name(CONTROLLER));
    let Some(guest) = Guest::boot(namespace, site.folder.path(), work, parameters, &args, &done) else {
        return;
    };
    let works = |pieces: u64| {
        let (until, from) = (Instant::now() + Duration::from_secs(60), done.load(Ordering::Relaxed));
        while done.load(Ordering::Relaxed) < from + pieces {
            assert!(Instant::now() < until, "the guest does not go on");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    works(1);
    let _controller = site.control();
    let telling = Telling(site.folder.path());
    telling.wait("a cache in place", |told| count(told, "cache_in_place") == 1);
    works(8);
    // With writes that were not flushed: QEMU alone would not leave it.
    site.appliances.kill();
    let told = telling.wait("the original route", |told| {
        count(told, "original_route") == 1 && step(told).contains("original route")
    });
    assert_eq!(count(&told, "appliance_failed"), 1, "{told}");
    assert_eq!(site.storage().lease.map(|lease| lease.holder), Some(LeaseHolder::Original));
    works(16);
    guest.stop();
}

/// The port at which an appliance of this name is served where others use the address as well.
fn port_of(name: &str) -> u64 {
    10_000 + name.bytes().fold(0, |hash, byte| mix64(hash ^ u64::from(byte))) % 11_000 * 2
}

#[test]
fn hosts_on_which_nothing_starts_are_told_of_and_the_next_one_is_taken() {
    if !programs("control with bad hosts", &["qemu-storage-daemon", "ip"], true) {
        return;
    }
    let (_turn, site, mut ledger) = (emulated::turn(), Site::new(), Ledger::new());
    let Some(image) = machine::image(site.folder.path()) else { return };
    // An image that does not boot, a hypervisor that hangs, an address that something else has, and a host that is as it says.
    let broken = site.path("broken");
    std::fs::create_dir(&broken).unwrap();
    std::fs::copy(&image.kernel, broken.join("vmlinuz")).unwrap();
    std::fs::write(broken.join("initramfs"), b"this is no file system").unwrap();
    let hangs =
        machine::script(site.folder.path(), "(sleep 0.3; kill -STOP $$) & exec qemu-system-x86_64 \"$@\"");
    let machines = |more: &str| format!("{{ type = \"qemu\", accelerator = \"tcg\", {more} }}");
    let host = |name: &str, provider: &str| {
        format!("[[host]]\nname = \"{name}\"\nrack = 1\nmemory = \"512MiB\"\nprovider = {provider}\n")
    };
    let hosts = [
        host("h1", &machines("image = \"broken\"")),
        host("h2", &machines(&format!("image = \"image\", program = {:?}", hangs.display().to_string()))),
        site.host(HOSTS[0], "512MiB", ""),
        host("h9", "{ type = \"process\" }"),
    ];
    let response = "rest_first_ms = 60000, start_within_ms = 5000";
    let route = "route = { type = \"qmp\", socket = \"qmp.sock\", node = \"db\", first = \"db-first\" }";
    site.configure("500ms", "h1", &hosts.concat(), route, response);
    let squatter = format!(
        "listen = [\"tcp:0.0.0.0:{}\"]\nhttp.listen = \"off\"\n[[volume]]\nname = \"x\"\norigin = \"x.img\"\nsecret = \"{SECRET}\"\n",
        port_of("forebay-3")
    );
    std::fs::write(site.path("x.img"), vec![0; 4096]).unwrap();
    let squatter = secret_file(&site.folder, "squatter.toml", squatter);
    let squatter = ["serve".as_ref(), squatter.as_os_str()];
    let _squatter =
        Running(vec![spawn(Some(site.wire.name(HOSTS[0])), env!("CARGO_BIN_EXE_forebay"), squatter)]);
    let storage = Wire::address(STORAGE);
    let first = format!("server.type=inet,server.host={storage},server.port={PORT},export=db.{SECRET}");
    let _qemu = Running(vec![storage_daemon(Some(site.wire.name(CONTROLLER)), site.folder.path(), &first)]);
    wait_for(&site.path("qemu.sock"));
    let told = violate(&site, &mut ledger, |step| assert!(step.ends_with("appliance 4 on h9"), "{step}"));
    assert_eq!(count(&told, "appliance_failed"), 3, "{told}");
    let told = told.to_string();
    // How much the kernel says of the image in 5 s is up to the machine, which files it was booted from is not.
    for words in ["broken/initramfs`: ", "hypervisor hangs", "an address is in use by something else"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert_eq!(ledger.failed, 0, "clients are told of no error");
}
