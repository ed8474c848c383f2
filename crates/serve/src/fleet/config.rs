//! What a controller of a fleet is started with, from one TOML file or made in code.

use super::objective::ObjectiveTable;
use super::tables::{HostTable, ProviderTable, RouteTable, VolumeTable, parsed, ten_seconds};
use super::{checking, draining, reading};
use crate::config::{
    ConfigError, cautions, mode_for_others, read_text, refused, shown_to_others, unreadable,
};
use forebay_actuate::api::ApiAddress;
use forebay_actuate::provision::out_of_reach;
use forebay_control::host::ApplianceCost;
use forebay_control::response::ResponseRules;
use forebay_control::{ControlConfig, Objective};
use forebay_nbd::Transport;
use forebay_units::Nanos;
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Everything that a controller of a fleet is started with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetConfig {
    /// The unix socket that answers `forebay status` and `forebay explain`, its owner's alone.
    pub socket: PathBuf,
    /// A loopback address at which the same is told, and nothing is changed, for Prometheus and others that ask no unix socket; `None`: not over TCP.
    #[serde(default)]
    pub listen: Option<SocketAddr>,
    /// The folder of the journal, the past, and what providers keep; made if it is absent. On a local file system.
    pub state: PathBuf,
    /// How often decisions are made.
    #[serde(default = "ten_seconds", deserialize_with = "parsed")]
    pub interval: Nanos,
    /// The history's database; `None`: none is kept.
    #[serde(default)]
    pub history: Option<PathBuf>,
    /// The controller's parameters.
    #[serde(default)]
    pub control: ControlConfig,
    /// Times and counts of responses.
    #[serde(default)]
    pub response: ResponseRules,
    /// Hosts that can hold appliances.
    #[serde(default)]
    pub host: Vec<HostTable>,
    /// The volumes.
    #[serde(default)]
    pub volume: Vec<VolumeTable>,
    /// What was promised.
    #[serde(default)]
    pub objective: Vec<ObjectiveTable>,
}

impl FleetConfig {
    /// Reads and checks a file; relative paths are relative to its folder.
    ///
    /// # Errors
    /// [`ConfigError`] with everything that is wrong.
    pub fn read(path: &Path) -> Result<FleetConfig, ConfigError> {
        let file = path.display().to_string();
        let text = read_text(path).map_err(|error| unreadable(&file, &error))?;
        // Appliances run elsewhere, and proxies are told paths, too.
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let config = reading::parse(&file, &text, absolute.parent().unwrap_or(Path::new("/")))?;
        match mode_for_others(path).filter(|_| config.volume.iter().any(holds_secrets)) {
            Some(mode) => Err(ConfigError { file, problems: vec![shown_to_others(path, mode)] }),
            None => Ok(config),
        }
    }

    /// What relative paths in it are relative to.
    pub(super) fn place(&mut self, folder: &Path) {
        self.socket = folder.join(&self.socket);
        self.state = folder.join(&self.state);
        self.history = self.history.take().map(|history| folder.join(history));
        for host in &mut self.host {
            if let ProviderTable::Qemu { image, .. } | ProviderTable::Libvirt { image, .. } =
                &mut host.provider
            {
                *image = folder.join(&image);
            }
            if let ProviderTable::Process { program: Some(program) }
            | ProviderTable::Namespace { program: Some(program), .. }
            | ProviderTable::Qemu { program: Some(program), .. } = &mut host.provider
                && program.components().count() > 1
            {
                // A name alone is looked for where programs are.
                *program = folder.join(&program);
            }
        }
        for volume in &mut self.volume {
            match &mut volume.route {
                Some(RouteTable::Qmp { socket, .. }) => *socket = folder.join(&socket),
                Some(RouteTable::Proxy { server: ApiAddress::Unix(socket), .. }) => {
                    *socket = folder.join(&socket);
                }
                _ => {}
            }
            if let Some(ApiAddress::Unix(socket)) = &mut volume.watch {
                *socket = folder.join(&socket);
            }
            if let Transport::Unix { path } = &mut volume.origin.transport
                && path.as_os_str().as_encoded_bytes().first() != Some(&0)
            {
                *path = folder.join(&path);
            }
        }
    }

    /// As `Config::cautions` has it: what in the file at `path`, from which it was read, looks like a secret that others may read, and which volumes
    /// can have no cache since hosts are drained, in a sentence each.
    pub fn cautions<'a>(&'a self, path: &Path) -> Vec<String> {
        let origin =
            |(at, volume): (usize, &'a VolumeTable)| (format!("volume[{at}].origin"), &volume.origin);
        let uris = self.volume.iter().enumerate().map(origin);
        let mut all = cautions(path, uris);
        all.extend(draining::nowhere_to_go(self));
        all
    }

    /// Checks what was made in code by the same rules.
    ///
    /// # Errors
    /// [`ConfigError`] with everything that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        refused(checking::findings(self))
    }

    /// What an appliance takes beside its cache, on whichever host it takes most.
    pub(super) fn cost(&self) -> ApplianceCost {
        let most = self.host.iter().map(|host| host.provider.overhead().get()).max().unwrap_or(0);
        let cost = self.response.cost;
        ApplianceCost { memory_bytes: cost.memory_bytes.max(most), ..cost }
    }

    /// What a volume was promised.
    pub(super) fn objectives(&self, volume: &str) -> Vec<Objective> {
        let tables = self.objective.iter().filter(|table| table.volume == volume);
        tables.filter_map(|table| table.objective(self.interval).ok()).collect()
    }
}

fn holds_secrets(volume: &VolumeTable) -> bool {
    let by_route = matches!(&volume.route, Some(RouteTable::Proxy { token: Some(_), .. }));
    by_route || volume.secret.is_some() || volume.watch_token.is_some() || volume.origin.has_password()
}

/// Why an appliance for a volume cannot be on a host; `None` if it can.
pub(super) fn unfit(host: &HostTable, volume: &VolumeTable) -> Option<&'static str> {
    let by_address = matches!(volume.route, Some(RouteTable::Address { .. }));
    match &host.provider {
        ProviderTable::Namespace { interface: Some(_), address, .. } if by_address && address.is_ipv4() => {
            None
        }
        _ if by_address => Some("has no interface that the volume's address could move to"),
        ProviderTable::Qemu { .. } | ProviderTable::Libvirt { .. }
            if out_of_reach(&volume.origin.transport).is_some() =>
        {
            Some(
                "runs virtual machines, which do not reach the volume's origin: neither on a unix socket, nor by IPv6, nor in 10.0.2.0/24, which is their own network, and at no loopback address but 127.0.0.1",
            )
        }
        provider if provider.is_elsewhere() && is_of_this_machine(&volume.origin.transport) => Some(
            "is another machine, which does not reach the volume's origin on a unix socket or at a loopback address",
        ),
        _ => None,
    }
}

/// Whether nobody but this machine reaches what is served there.
fn is_of_this_machine(transport: &Transport) -> bool {
    match transport {
        Transport::Unix { .. } => true,
        Transport::Tcp { host, .. } => {
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
    }
}

#[cfg(test)]
mod tests;
