//! Appliances as virtual machines by a real libvirt, started for the test.

use super::machine::{a_minute, image, machine_order};
use super::{Place, Storage, live_and_die};
use crate::emulated;
use crate::support::{Running, command, wait_for};
use forebay_actuate::provision::{Image, Libvirt};
use forebay_actuate::{Deadline, Provider};
use forebay_prerequisite::programs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What a libvirt of a test's own needs.
pub(crate) const NEEDED: [&str; 3] = ["libvirtd", "virsh", "unshare"];

/// A libvirt with its files in `folder`, in a network namespace if there is one to be in, and how it is reached.
pub(crate) fn daemon(namespace: Option<&str>, folder: &Path) -> (Running, String) {
    let libvirt = folder.join("libvirt");
    std::fs::create_dir(&libvirt).unwrap();
    let log = std::fs::File::create(libvirt.join("log")).unwrap();
    let daemon = command(namespace, "unshare")
        .args(["--mount", "bash", "-euc", include_str!("libvirt.sh"), "libvirt.sh"])
        .arg(&libvirt)
        .env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin")
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .expect("unshare runs");
    let running = Running(vec![daemon]);
    wait_for(&libvirt.join("libvirt-sock"));
    (running, format!("qemu:///system?socket={}", libvirt.join("libvirt-sock").display()))
}

/// By libvirt's own stand-in for a hypervisor, which begins anew with each connection: what is destroyed there comes back.
#[test]
fn a_machine_is_stopped_once_libvirt_lists_it_no_more() {
    if !programs("a libvirt that has a machine still", &["virsh"], false) {
        return;
    }
    let folder = Place::new();
    let node = folder.path().join("node.xml");
    // As an earlier version has left it: it is ours by where its order is.
    let order = std::fs::canonicalize(folder.path()).unwrap().join("appliances/lv/appliance.toml");
    let domain = format!(
        "<node><domain type='test'><name>forebay-lv</name><memory>8192</memory><os><type>hvm</type></os>\
         <sysinfo type='fwcfg'><entry name='opt/forebay/order' file='{}'/></sysinfo></domain>\
         <domain type='test'><name>forebay-another</name><memory>8192</memory><os><type>hvm</type></os></domain></node>",
        order.display()
    );
    std::fs::write(&node, domain).unwrap();
    let stop = |id: &str| {
        let image = Image::in_folder(&folder.path().join("image"));
        let connection = format!("test://{}", node.display());
        let provider = Libvirt::new(folder.path().join("appliances"), connection, image).unwrap();
        provider.stop(&id.parse().unwrap(), Deadline::after(Duration::from_secs(2)))
    };
    let refused = stop("lv").expect_err("it is there").to_string();
    assert!(refused.contains("libvirt has not destroyed it yet"), "{refused}");
    stop("l").expect("there is none of this name");
    stop("another").expect("that of this name is not ours");
}

#[test]
fn libvirts_virtual_machine_lives_does_as_told_and_dies() {
    if !programs("an appliance by libvirt", &NEEDED, true) {
        return;
    }
    let (_turn, folder) = (emulated::turn(), Place::new());
    let Some(image) = image(folder.path()) else { return };
    let (_daemon, connection) = daemon(None, folder.path());
    let provider = || {
        let mut provider =
            Libvirt::new(folder.path().join("appliances"), connection.clone(), image.clone()).unwrap();
        provider.kind = "qemu".to_owned();
        provider
    };
    let storage = Storage::over_tcp(IpAddr::from(Ipv4Addr::LOCALHOST));
    let order = machine_order("lv", &storage);
    provider().start(&order, a_minute()).unwrap_or_else(|error| {
        let log = std::fs::read_to_string(folder.path().join("libvirt/log"));
        panic!("{error}: {}", log.unwrap_or_default())
    });
    live_and_die(&provider(), &provider(), &order, &storage);
    let domains = Command::new("virsh").args(["--connect", &connection, "list", "--all", "--name"]).output();
    assert_eq!(String::from_utf8_lossy(&domains.expect("virsh runs").stdout).trim(), "");
}
