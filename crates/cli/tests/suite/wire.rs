//! Network namespaces on one bridge, which stand for hosts on one wire. Nothing of them is seen by the rest of the machine.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Runs `ip`, which must succeed.
pub(crate) fn ip(args: &str) {
    ip_says(args);
}

pub(crate) fn ip_says(args: &str) -> String {
    let output = Command::new("ip").args(args.split(' ')).output().expect("`ip` runs");
    assert!(output.status.success(), "ip {args}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Hosts on one wire, known by their place among them; the bridge is in the first. Gone when the test is over.
pub(crate) struct Wire {
    hosts: Vec<String>,
}

impl Wire {
    pub(crate) fn new(names: &[&str]) -> Wire {
        static WIRES: AtomicU32 = AtomicU32::new(0);
        let (id, number) = (std::process::id(), WIRES.fetch_add(1, Ordering::Relaxed));
        let hosts = names.iter().map(|name| format!("fb{id}-{number}{name}")).collect();
        let wire = Wire { hosts };
        (0..wire.hosts.len()).for_each(|host| wire.open(host));
        ip(&format!("-n {} link add wire type bridge forward_delay 0", wire.name(0)));
        ip(&format!("-n {} link set wire up", wire.name(0)));
        (0..wire.hosts.len()).for_each(|host| wire.plug(host));
        wire
    }

    fn open(&self, host: usize) {
        ip(&format!("netns add {}", self.name(host)));
        ip(&format!("-n {} link set lo up", self.name(host)));
    }

    /// A host's end of the wire, and its own address on it.
    fn plug(&self, host: usize) {
        let (bridge, name) = (self.name(0), self.name(host));
        ip(&format!("-n {bridge} link add port{host} type veth peer name eth0 netns {name}"));
        ip(&format!("-n {bridge} link set port{host} master wire up"));
        ip(&format!("-n {name} link set eth0 up"));
        ip(&format!("-n {name} addr add {}/24 dev eth0", Wire::address(host)));
    }

    /// A place on the wire for a virtual machine that runs on the first host: its interface there.
    pub(crate) fn tap(&self) -> &'static str {
        let bridge = self.name(0);
        ip(&format!("-n {bridge} tuntap add tap mode tap"));
        ip(&format!("-n {bridge} link set tap up master wire"));
        "tap"
    }

    /// What a host is called as a network namespace.
    pub(crate) fn name(&self, host: usize) -> &str {
        &self.hosts[host]
    }

    /// Its path.
    pub(crate) fn namespace(&self, host: usize) -> PathBuf {
        PathBuf::from("/run/netns").join(self.name(host))
    }

    /// The address that a host has besides.
    pub(crate) fn address(host: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 213, 7, host as u8 + 1)
    }

    /// Keeps two hosts from reaching each other.
    pub(crate) fn cut(&self, one: usize, other: usize) {
        for (here, there) in [(one, other), (other, one)] {
            ip(&format!("-n {} route add blackhole {}", self.name(here), Wire::address(there)));
        }
    }

    /// Lets them again.
    pub(crate) fn mend(&self, one: usize, other: usize) {
        for (here, there) in [(one, other), (other, one)] {
            ip(&format!("-n {} route del blackhole {}", self.name(here), Wire::address(there)));
        }
    }

    /// Ends a host, with all that runs on it.
    pub(crate) fn kill(&self, host: usize) {
        let name = self.name(host);
        let pids = Command::new("ip").args(["netns", "pids", name]).output().expect("`ip` runs").stdout;
        for pid in String::from_utf8_lossy(&pids).split_whitespace() {
            let _ = Command::new("kill").args(["-9", pid]).status();
        }
        ip(&format!("-n {} link del port{host}", self.name(0)));
        ip(&format!("netns del {name}"));
    }

    /// Has it back, with nothing on it.
    pub(crate) fn revive(&self, host: usize) {
        self.open(host);
        self.plug(host);
    }

    /// Who waits for an answer on a connection whose server is gone hears of that only if it asks whether it is there.
    pub(crate) fn ask_whether_servers_are_there(&self, host: usize) {
        for (name, value) in [("time", 1), ("intvl", 1), ("probes", 2)] {
            let name = format!("net.ipv4.tcp_keepalive_{name}={value}");
            ip(&format!("netns exec {} sysctl -q -w {name}", self.name(host)));
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for host in &self.hosts {
            let _ = Command::new("ip").args(["netns", "del", host]).status();
        }
    }
}
