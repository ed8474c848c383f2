//! Appliances as processes in a network namespace, which stands in for a host: reached over a wire only.

use super::{Place, Storage, live_and_die, order, soon};
use crate::support::prerequisites;
use crate::wire::ip;
use forebay_actuate::provision::{Namespace, NamespaceProcess};
use forebay_actuate::{Provider, ProvisionError};
use forebay_nbd::Transport;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;

/// A network namespace with a wire to this one; both go at the end.
struct Host {
    name: String,
    here: IpAddr,
    there: IpAddr,
}

impl Host {
    fn new() -> Host {
        let id = std::process::id();
        let (name, near, far) = (format!("forebay-{id}"), format!("fb{id}"), format!("fb{id}p"));
        // From a range for documentation (RFC 5737), so that it is nobody's.
        let address = |last: u8| IpAddr::from([198, 51, 100, last]);
        let host = Host { name, here: address(1), there: address(2) };
        let Host { name, here, there } = &host;
        ip(&format!("netns add {name}"));
        ip(&format!("link add {near} type veth peer name {far} netns {name}"));
        ip(&format!("addr add {here}/30 dev {near}"));
        ip(&format!("link set {near} up"));
        ip(&format!("-n {name} addr add {there}/30 dev {far}"));
        ip(&format!("-n {name} link set {far} up"));
        ip(&format!("-n {name} link set lo up"));
        host
    }

    fn provider(&self, folder: &Path) -> NamespaceProcess {
        let namespace = Namespace { name: self.name.clone(), address: self.there };
        let hosts = [("h1".to_owned(), namespace)].into();
        NamespaceProcess::new(folder.join("appliances"), env!("CARGO_BIN_EXE_forebay"), hosts).unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

#[test]
fn a_process_on_another_host_lives_does_as_told_and_dies() {
    if !prerequisites("an appliance in a network namespace", &["ip", "nbdkit"], true) {
        return;
    }
    let host = Host::new();
    let folder = Place::new();
    let storage = Storage::over_tcp(host.here);
    let mut order = order("far", storage.endpoint());
    order.host = "h1".to_owned();
    let provider = host.provider(folder.path());
    let running = live_and_die(&provider, &host.provider(folder.path()), &order, &storage);
    assert!(
        matches!(&running.endpoints["db"].uri.transport, Transport::Tcp { host: at, .. } if *at == host.there.to_string())
    );
    // Nobody gets in without the token.
    provider.start(&order, soon()).unwrap();
    let mut stranger = running.control.clone();
    stranger.token = None;
    let refused = stranger.status(soon()).unwrap_err().to_string();
    assert!(refused.contains("401"), "{refused}");
    provider.stop(&order.id, soon()).unwrap();
    // An address that is in use by something else.
    let Transport::Tcp { port, .. } = running.endpoints["db"].uri.transport else {
        panic!("it is served over TCP")
    };
    let squatter = Command::new("ip")
        .args(["netns", "exec", &host.name, "nbdkit", "-f", "-p", &port.to_string(), "memory", "1M"])
        .spawn();
    let _squatter = crate::support::Running(vec![squatter.expect("nbdkit runs")]);
    let address = SocketAddr::new(host.there, port);
    soon().wait_for(|| std::net::TcpStream::connect(address).ok()).expect("nbdkit serves");
    let error = provider.start(&order, soon()).unwrap_err();
    assert!(matches!(&error, ProvisionError::AddressInUse { .. }), "{error}");
    assert_eq!(provider.find(&order.id).unwrap(), None);
    // A host that nobody knows.
    order.host = "h2".to_owned();
    let error = provider.start(&order, soon()).unwrap_err().to_string();
    assert!(error.contains("there is no host `h2`"), "{error}");
}
