//! Appliances as processes of this machine: on unix sockets, or over TCP, for a controller elsewhere or in a network namespace, which stands in for a host.

use super::configuration::{Listeners, configuration};
use super::keeper::{Keeper, Launch, Ports};
use super::{Provider, ProvisionError, refuse_port};
use crate::api::ApiAddress;
use crate::{ApplianceId, ApplianceOrder, Control, Deadline, Endpoint, Listed, Running, VolumeOrder};
use forebay_nbd::Uri;
use forebay_units::{Bytes, Secret};
use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// What an appliance's process needs besides its caches: 24 MiB were measured with a volume and a few clients (ours).
pub const PROCESS_OVERHEAD: Bytes = Bytes::mib(32);

/// Appliances as processes of this machine.
///
/// On unix sockets, which are their owner's alone, they ask for nothing. Over TCP volumes are exports `NAME.SECRET`, with the token as the secret of those that have
/// none, and the control API asks for the token.
pub struct LocalProcess {
    keeper: Keeper,
    program: PathBuf,
    reach: Reach,
}

/// Where appliances are reached.
enum Reach {
    /// At sockets in their folder.
    Sockets,
    /// At ports of this address, of this machine or of the network namespace of this name.
    Tcp { address: IpAddr, namespace: Option<String> },
}

impl LocalProcess {
    /// Keeps what it must know of each appliance in `folder`, which it makes, and runs `program`, which is `forebay`. Appliances are reached at sockets in that folder.
    ///
    /// The folder's path, and so that of sockets in it, should be short: a socket's path has at most 107 bytes.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn new(folder: impl Into<PathBuf>, program: impl Into<PathBuf>) -> io::Result<LocalProcess> {
        LocalProcess::reached(folder.into(), program.into(), Reach::Sockets)
    }

    /// As [`new`](Self::new), but appliances are reached over TCP only, at `address`, which this machine has.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn over_tcp(
        folder: impl Into<PathBuf>,
        program: impl Into<PathBuf>,
        address: IpAddr,
    ) -> io::Result<LocalProcess> {
        LocalProcess::reached(folder.into(), program.into(), Reach::Tcp { address, namespace: None })
    }

    /// As [`over_tcp`](Self::over_tcp), but in the network namespace of this name (ip-netns(8)), which has the address. Entering it needs root.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn in_namespace(
        folder: impl Into<PathBuf>,
        program: impl Into<PathBuf>,
        address: IpAddr,
        namespace: impl Into<String>,
    ) -> io::Result<LocalProcess> {
        let reach = Reach::Tcp { address, namespace: Some(namespace.into()) };
        LocalProcess::reached(folder.into(), program.into(), reach)
    }

    fn reached(folder: PathBuf, program: PathBuf, reach: Reach) -> io::Result<LocalProcess> {
        Ok(LocalProcess { keeper: Keeper::new(folder)?, program, reach })
    }

    /// Where an appliance whose folder this is listens, and where it is reached.
    fn listening<'a>(&self, order: &'a ApplianceOrder, folder: &Path) -> (Listeners<'a>, Running) {
        match &self.reach {
            Reach::Sockets => {
                let (socket, http) = (folder.join("nbd.sock"), folder.join("http.sock"));
                let endpoint = |name: &str| (name.to_owned(), Endpoint::new(Uri::unix(&socket, name)));
                let running = Running {
                    id: order.id.clone(),
                    endpoints: order.volumes.iter().map(|volume| endpoint(&volume.name)).collect(),
                    control: Control { address: ApiAddress::Unix(http.clone()), token: None },
                };
                let nbd = format!("unix:{}", socket.display());
                (
                    Listeners { nbd, http: None, http_socket: Some(http), secret: None, patience: None },
                    running,
                )
            }
            Reach::Tcp { address, .. } => {
                let ports = Ports::of(&order.id);
                let at = |port| SocketAddr::new(*address, port);
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
                (listeners, over_tcp(order, nbd, at(ports.http)))
            }
        }
    }

    /// What enters the network namespace, and runs what follows there.
    fn entering(&self) -> Vec<OsString> {
        match &self.reach {
            // Not by `ip netns exec`, which hides the control groups that say how much memory there is.
            Reach::Tcp { namespace: Some(name), .. } => {
                vec!["nsenter".into(), format!("--net=/run/netns/{name}").into(), "--".into()]
            }
            Reach::Tcp { namespace: None, .. } | Reach::Sockets => Vec::new(),
        }
    }
}

impl Provider for LocalProcess {
    fn start(&self, order: &ApplianceOrder, deadline: Deadline) -> Result<Running, ProvisionError> {
        let room = order.check(PROCESS_OVERHEAD)?;
        if matches!(self.reach, Reach::Sockets) {
            refuse_port(order)?;
        }
        self.keeper.start(order, deadline, |folder| {
            let (listeners, running) = self.listening(order, folder);
            let program =
                [self.program.clone().into(), "appliance".into(), folder.join("appliance.toml").into()];
            Ok(Launch {
                command: self.entering().into_iter().chain(program).collect(),
                files: vec![("appliance.toml", configuration(order, room, &listeners))],
                running,
                knows_its_number: true,
                says_when_ready: None,
                diagnose: None,
            })
        })
    }

    fn find(&self, id: &ApplianceId) -> Result<Option<Running>, ProvisionError> {
        self.keeper.find(id)
    }

    fn list(&self, token: &Secret, _: Deadline) -> Result<Vec<Listed>, ProvisionError> {
        self.keeper.list(token)
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
