//! Appliances as processes in a network namespace, which stands in for a host: reached over a wire only.

use super::{Place, Storage, live_and_die, order, soon};
use crate::wire::ip;
use forebay_actuate::provision::LocalProcess;
use forebay_actuate::{Provider, ProvisionError};
use forebay_nbd::Transport;
use forebay_prerequisite::programs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;

/// A network namespace with a wire to this one; both go at the end.
pub(crate) struct Host {
    pub(super) name: String,
    pub(crate) here: IpAddr,
    pub(crate) there: IpAddr,
}

impl Host {
    /// One of at most 64 at a time; `number` tells them apart.
    pub(super) fn new(number: u8) -> Host {
        let id = std::process::id();
        let name = format!("forebay-{id}-{number}");
        let (near, far) = (format!("fb{id}n{number}"), format!("fb{id}p{number}"));
        // From a range for documentation (RFC 5737), so that it is nobody's.
        let address = |last: u8| IpAddr::from([198, 51, 100, 4 * number + last]);
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

    fn provider(&self, folder: &Path) -> LocalProcess {
        let program = env!("CARGO_BIN_EXE_forebay");
        LocalProcess::in_namespace(folder.join("appliances"), program, self.there, &self.name).unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

#[test]
fn a_process_on_another_host_lives_does_as_told_and_dies() {
    if !programs("an appliance in a network namespace", &["ip", "nbdkit"], true) {
        return;
    }
    let host = Host::new(0);
    let folder = Place::new();
    let storage = Storage::over_tcp(host.here);
    let order = order("far", storage.endpoint());
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
}
