//! Appliances as processes of this machine.

use super::configuration::{Listeners, configuration};
use super::keeper::{Keeper, Launch};
use super::{Provider, ProvisionError, refuse_port};
use crate::api::ApiAddress;
use crate::{ApplianceId, ApplianceOrder, Control, Deadline, Endpoint, Running};
use forebay_nbd::Uri;
use forebay_units::Bytes;
use std::io;
use std::path::PathBuf;

/// What an appliance's process needs besides its caches: 24 MiB were measured with a volume and a few clients (ours).
pub(super) const PROCESS_OVERHEAD: Bytes = Bytes::mib(32);

/// Appliances as processes of this machine, on unix sockets that are their owner's alone.
pub struct LocalProcess {
    keeper: Keeper,
    program: PathBuf,
}

impl LocalProcess {
    /// Keeps what it must know of each appliance in `folder`, which it makes, and runs `program`, which is `forebay`.
    ///
    /// The folder's path, and so that of sockets in it, should be short: a socket's path has at most 107 bytes.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn new(folder: impl Into<PathBuf>, program: impl Into<PathBuf>) -> io::Result<LocalProcess> {
        Ok(LocalProcess { keeper: Keeper::new(folder.into())?, program: program.into() })
    }
}

impl Provider for LocalProcess {
    fn start(&self, order: &ApplianceOrder, deadline: Deadline) -> Result<Running, ProvisionError> {
        let room = order.check(PROCESS_OVERHEAD)?;
        refuse_port(order)?;
        self.keeper.start(order, deadline, |folder| {
            let (socket, http) = (folder.join("nbd.sock"), folder.join("http.sock"));
            let listeners = Listeners {
                nbd: format!("unix:{}", socket.display()),
                http: None,
                http_socket: Some(&http),
                secret: None,
                patience: None,
            };
            let endpoint = |name: &str| (name.to_owned(), Endpoint::new(Uri::unix(&socket, name)));
            Ok(Launch {
                command: vec![
                    self.program.clone().into(),
                    "appliance".into(),
                    folder.join("appliance.toml").into(),
                ],
                files: vec![("appliance.toml", configuration(order, room, &listeners))],
                running: Running {
                    id: order.id.clone(),
                    endpoints: order.volumes.iter().map(|volume| endpoint(&volume.name)).collect(),
                    control: Control { address: ApiAddress::Unix(http.clone()), token: None },
                },
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
