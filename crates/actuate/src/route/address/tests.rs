//! What is refused before anything is done, in a network namespace of the test's own.

use super::*;
use forebay_nbd::Uri;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A network namespace with the two ends of a wire, `e0` and `e1`. Gone when the test is over.
struct Namespace(String);

impl Namespace {
    /// `None` where it cannot be had, which is said.
    fn new() -> Option<Namespace> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fba{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let is_installed = Command::new("ip").arg("-V").output().is_ok();
        if !is_installed || !rustix::process::geteuid().is_root() {
            assert!(
                std::env::var_os("CI").is_none_or(|ci| ci != "true"),
                "missing `ip` or root, and CI=true"
            );
            println!("skipped: addresses in a namespace: missing `ip` or root");
            return None;
        }
        let namespace = Namespace(name);
        run(&format!("netns add {}", namespace.0));
        namespace.ip("link add e0 type veth peer name e1");
        ["lo", "e0", "e1"].iter().for_each(|link| drop(namespace.ip(&format!("link set {link} up"))));
        Some(namespace)
    }

    /// What `ip` says there.
    fn ip(&self, args: &str) -> String {
        run(&format!("-n {} {args}", self.0))
    }

    fn place(&self, interface: &str, last: u8, holder: LeaseHolder) -> AddressPlace {
        AddressPlace {
            endpoint: Endpoint::new(Uri::tcp(Ipv4Addr::new(10, 0, 0, last).to_string(), 10_809, "db")),
            namespace: Some(PathBuf::from("/run/netns").join(&self.0)),
            interface: interface.to_owned(),
            holder,
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn run(args: &str) -> String {
    let output = Command::new("ip").args(args.split(' ')).output().expect("`ip` runs");
    assert!(output.status.success(), "ip {args}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

/// Linux removes what is secondary to an address with it, and the host would be left without any.
#[test]
fn an_address_to_which_others_are_secondary_is_not_moved() {
    let Some(storage) = Namespace::new() else { return };
    let Some(host) = Namespace::new() else { return };
    for address in ["9/24", "2/24", "3/24", "4/25"] {
        storage.ip(&format!("addr add 10.0.0.{address} dev e0"));
    }
    let before = storage.ip("-4 -br addr show dev e0");
    let places = vec![storage.place("e0", 2, LeaseHolder::Original), host.place("e0", 5, LeaseHolder::Named)];
    let to = places[1].endpoint.clone();
    let route = AddressRoute { address: "10.0.0.9/24".parse().unwrap(), places, lease: None };
    let passage = Passage { to, epoch: 1, settled: true };
    let refused = route.switch(&passage, soon()).unwrap_err();
    assert!(refused.had_no_effect(), "{refused}");
    let expected = format!(
        "10.0.0.9 cannot leave interface `e0` of /run/netns/{}: Linux removes 10.0.0.2/24, 10.0.0.3/24 with it; \
         set `net.ipv4.conf.e0.promote_secondaries` to 1 there, or configure 10.0.0.9 after them",
        storage.0
    );
    assert_eq!(refused.to_string(), expected);
    assert_eq!(storage.ip("-4 -br addr show dev e0"), before);

    // Where they stay it is gone on with, up to that nobody serves where it would go.
    let unusable = |what: &str| {
        let refused = route.switch(&passage, soon()).unwrap_err();
        assert!(matches!(refused, RouteError::Unusable { .. }), "{what}: {refused}");
    };
    for of in ["all", "e0"] {
        let set = |value| {
            let name = format!("net.ipv4.conf.{of}.promote_secondaries");
            run(&format!("netns exec {} sysctl -q -w {name}={value}", storage.0));
        };
        set(1);
        unusable(of);
        set(0);
        assert!(matches!(route.switch(&passage, soon()), Err(RouteError::AddressIsPrimary { .. })));
    }
    storage.ip("addr flush dev e0");
    for address in ["2/24", "9/24"] {
        storage.ip(&format!("addr add 10.0.0.{address} dev e0"));
    }
    unusable("it is secondary itself");
}
