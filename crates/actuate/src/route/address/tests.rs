//! What is refused before anything is done, and what is told, in network namespaces of the test's own.

use super::*;
use forebay_nbd::Uri;
use std::net::TcpListener;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// A network namespace with the two ends of a wire, `e0` and `e1`. Gone when the test is over.
struct Namespace(String);

impl Namespace {
    /// `None` where it cannot be had, which is said.
    fn new() -> Option<Namespace> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fba{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        if !forebay_prerequisite::programs("addresses in a namespace", &["ip"], true) {
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
    let passage = Passage { to, epoch: 1, settled: true, comes_back: true };
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

/// The route's original interface is not the one that has the address: clients are served by that.
#[test]
fn an_address_that_another_interface_has_is_not_given_to_this_one() {
    let Some(storage) = Namespace::new() else { return };
    storage.ip("addr add 10.0.0.2/24 dev e1");
    storage.ip("addr add 10.0.0.9/24 dev e0");
    let place = storage.place("e1", 2, LeaseHolder::Original);
    let serves = |_: &mut Host<'_>| TcpListener::bind((Ipv4Addr::new(10, 0, 0, 2), 10_809));
    let _server = place.within(serves).unwrap();
    let to = place.endpoint.clone();
    let route = AddressRoute { address: "10.0.0.9/24".parse().unwrap(), places: vec![place], lease: None };
    let passage = Passage { to, epoch: 1, settled: true, comes_back: true };
    let before = storage.ip("-4 -br addr");
    let refused = route.switch(&passage, soon()).unwrap_err();
    assert!(refused.had_no_effect(), "{refused}");
    let expected = format!(
        "10.0.0.9 is not given to interface `e1` of /run/netns/{}: interface `e0` there has it; remove it there, or name that one in its place",
        storage.0
    );
    assert_eq!((refused.to_string(), storage.ip("-4 -br addr")), (expected, before));

    storage.ip("addr del 10.0.0.9/24 dev e0");
    tracing::subscriber::set_global_default(Told).unwrap();
    route.switch(&passage, soon()).unwrap();
    assert_eq!(route.now(soon()).unwrap(), passage.to);
    let told = TOLD.lock().unwrap().clone();
    let expected = format!("10.0.0.9/24 was given to interface `e1` of /run/netns/{}", storage.0);
    assert!(told.contains(&expected), "{told:?}");
}

/// What the log says, of this test alone: no other sets one.
struct Told;

static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl tracing::Subscriber for Told {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut |_: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            TOLD.lock().unwrap().push(format!("{value:?}"));
        });
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
