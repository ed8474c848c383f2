//! Appliances as processes of this machine that are reached over TCP: of a host for a controller elsewhere, or in a network namespace, which stands in for
//! a host.

use super::configuration::{Listeners, configuration};
use super::keeper::{Keeper, Launch, Ports};
use super::local::PROCESS_OVERHEAD;
use super::{Provider, ProvisionError};
use crate::api::ApiAddress;
use crate::{ApplianceId, ApplianceOrder, Control, Deadline, Endpoint, Running, VolumeOrder};
use forebay_nbd::Uri;
use forebay_units::Bytes;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Appliances as processes that are reached over TCP only.
///
/// Volumes are exports `NAME.SECRET`, with the token as the secret of those that have none; the control API asks for the token.
pub struct NetworkProcess {
    keeper: Keeper,
    program: PathBuf,
    address: IpAddr,
    namespace: Option<String>,
}

impl NetworkProcess {
    /// Keeps what it must know of each appliance in `folder`, which it makes, and runs `program`, which is `forebay`. Appliances are reached at `address`, which
    /// this machine has.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn new(
        folder: impl Into<PathBuf>,
        program: impl Into<PathBuf>,
        address: IpAddr,
    ) -> io::Result<NetworkProcess> {
        let keeper = Keeper::new(folder.into())?;
        Ok(NetworkProcess { keeper, program: program.into(), address, namespace: None })
    }

    /// In the network namespace of this name (ip-netns(8)), which has the address. Entering it needs root.
    #[must_use]
    pub fn in_namespace(self, name: impl Into<String>) -> NetworkProcess {
        NetworkProcess { namespace: Some(name.into()), ..self }
    }
}

impl Provider for NetworkProcess {
    fn start(&self, order: &ApplianceOrder, deadline: Deadline) -> Result<Running, ProvisionError> {
        let room = order.check(PROCESS_OVERHEAD)?;
        self.keeper.start(order, deadline, |folder| {
            let ports = Ports::of(&order.id);
            let at = |port| SocketAddr::new(self.address, port);
            // Who comes by an address that moves comes by one that is not here yet.
            let anywhere = |port| SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
            let (listen, nbd) = match order.port {
                Some(port) => (anywhere(port), at(port)),
                None => (at(ports.nbd), at(ports.nbd)),
            };
            let listeners = Listeners {
                nbd: format!("tcp:{listen}"),
                http: Some(at(ports.http).to_string()),
                http_socket: None,
                secret: Some(&order.token),
                patience: None,
            };
            // Not by `ip netns exec`, which hides the control groups that say how much memory there is.
            let enter = self
                .namespace
                .iter()
                .flat_map(|name| ["nsenter".into(), format!("--net=/run/netns/{name}").into(), "--".into()]);
            let command = enter.chain([
                self.program.clone().into(),
                "appliance".into(),
                folder.join("appliance.toml").into(),
            ]);
            Ok(Launch {
                command: command.collect(),
                files: vec![("appliance.toml", configuration(order, room, &listeners))],
                running: over_tcp(order, nbd, at(ports.http)),
                knows_its_number: true,
                says_when_ready: None,
                diagnose: None,
            })
        })
    }

    fn overhead(&self) -> Bytes {
        PROCESS_OVERHEAD
    }

    fn find(&self, id: &ApplianceId) -> Result<Option<Running>, ProvisionError> {
        self.keeper.find(id)
    }

    fn stop(&self, id: &ApplianceId, deadline: Deadline) -> Result<(), ProvisionError> {
        self.keeper.stop(id, deadline)
    }
}

/// An appliance that is reached over TCP, guarded with its token and the secrets of its volumes.
pub(super) fn over_tcp(order: &ApplianceOrder, nbd: SocketAddr, http: SocketAddr) -> Running {
    let endpoint = |volume: &VolumeOrder| {
        let export = format!("{}.{}", volume.name, volume.secret.as_ref().unwrap_or(&order.token).reveal());
        (volume.name.clone(), Endpoint::new(Uri::tcp(nbd.ip().to_string(), nbd.port(), export)))
    };
    Running {
        id: order.id.clone(),
        endpoints: order.volumes.iter().map(endpoint).collect(),
        control: Control { address: ApiAddress::Tcp(http), token: Some(order.token.clone()) },
    }
}
