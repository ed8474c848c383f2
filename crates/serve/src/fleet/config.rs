//! What a controller of a fleet is started with, from one TOML file or made in code.

use super::objective::ObjectiveTable;
use super::places::Places;
use super::tables::{
    HostTable, PrometheusTable, ProviderTable, RouteTable, VolumeTable, parsed, ten_seconds,
};
use crate::config::{Finding, cautions, memory_total, mode_for_others};
use forebay_actuate::api::ApiAddress;
use forebay_control::response::ResponseRules;
use forebay_control::{ControlConfig, Objective};
use forebay_nbd::Transport;
use forebay_units::{BlockSize, Bytes, Nanos};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use thiserror::Error;
use toml::de::DeTable;

/// Everything that a controller of a fleet is started with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetConfig {
    /// The unix socket that answers `forebay status` and `forebay explain`, its owner's alone.
    pub socket: PathBuf,
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

/// Why a configuration is not one.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FleetConfigError {
    /// The file cannot be read.
    #[error("the configuration `{}` cannot be read", path.display())]
    Unreadable {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not TOML, or has what it should not. The line itself is not shown: it may hold a secret.
    #[error("`{}`, line {line}{}: {message}", path.display(), key.as_ref().map(|key| format!(", `{key}`")).unwrap_or_default())]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// Which line of it, from 1.
        line: usize,
        /// Which key, as in `host[0].memory`, where it is one.
        key: Option<String>,
        /// What was found, and what was expected.
        message: String,
    },
    /// What is wrong in a file.
    #[error("`{}`, line {line}: {source}", path.display())]
    At {
        /// Which file.
        path: PathBuf,
        /// Which line of it, from 1.
        line: usize,
        /// What it is.
        source: Box<FleetConfigError>,
    },
    /// Something in it cannot be so.
    #[error("`{key}` is {found}, expected {expected}")]
    Wrong {
        /// Which key, as in `host[0].memory`.
        key: String,
        /// What it is.
        found: String,
        /// What it may be.
        expected: String,
    },
    /// It holds secrets, and others may read it.
    #[error("the configuration `{}` holds secrets, and others than its owner may read it: its mode is {mode:04o}, expected 0600; `chmod 600` it", path.display())]
    Shown {
        /// Where.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A parameter of the controller.
    #[error("`control.{}` is {}, expected {}", .0.key, .0.found, .0.expected)]
    Control(forebay_control::ConfigError),
}

impl FleetConfigError {
    /// The key that is wrong, where it is one.
    fn key(&self) -> Option<String> {
        match self {
            FleetConfigError::Wrong { key, .. } => Some(key.clone()),
            FleetConfigError::Control(error) => Some(format!("control.{}", error.key)),
            _ => None,
        }
    }
}

impl FleetConfig {
    /// Reads and checks a file; relative paths are relative to its folder.
    ///
    /// # Errors
    /// [`FleetConfigError`].
    pub fn read(path: &Path) -> Result<FleetConfig, FleetConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| FleetConfigError::Unreadable { path: path.to_owned(), source })?;
        let line_of = |at: usize| text[..at].matches('\n').count() + 1;
        let refused = |at: Option<usize>, key: Option<&str>, message: &str| FleetConfigError::Syntax {
            path: path.to_owned(),
            line: line_of(at.unwrap_or(0)),
            key: key.map(ToOwned::to_owned),
            message: message.replace('\n', ", "),
        };
        let place = |error: &toml::de::Error| error.span().map(|span| span.start);
        let table = DeTable::parse(&text).map_err(|error| refused(place(&error), None, error.message()))?;
        let (places, wrong) = Places::of(table.get_ref());
        if let Some(Finding { key, message, .. }) = wrong.first() {
            return Err(refused(places.of_key(key), Some(key), message));
        }
        let read = FleetConfig::deserialize(toml::Deserializer::from(table));
        let mut config = read.map_err(|error| {
            let at = place(&error);
            refused(at, at.and_then(|at| places.key_at(at)), error.message())
        })?;
        let folder = path.parent().unwrap_or(Path::new("."));
        config.socket = folder.join(&config.socket);
        config.state = folder.join(&config.state);
        config.history = config.history.map(|history| folder.join(history));
        for host in &mut config.host {
            if let ProviderTable::Qemu { image, .. } | ProviderTable::Libvirt { image, .. } =
                &mut host.provider
            {
                *image = folder.join(&image);
            }
        }
        for volume in &mut config.volume {
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
        config.check().map_err(|error| match error.key().and_then(|key| places.of_key(&key)) {
            Some(at) => {
                FleetConfigError::At { path: path.to_owned(), line: line_of(at), source: Box::new(error) }
            }
            None => error,
        })?;
        if let Some(mode) = mode_for_others(path).filter(|_| config.volume.iter().any(holds_secrets)) {
            return Err(FleetConfigError::Shown { path: path.to_owned(), mode });
        }
        Ok(config)
    }

    /// As `Config::cautions` has it: what in the file at `path`, from which it was read, looks like a secret that others may read, in a sentence each.
    pub fn cautions<'a>(&'a self, path: &Path) -> Vec<String> {
        let origin =
            |(at, volume): (usize, &'a VolumeTable)| (format!("volume[{at}].origin"), &volume.origin);
        let uris = self.volume.iter().enumerate().map(origin);
        cautions(path, uris)
    }

    /// Checks what was made in code by the same rules.
    ///
    /// # Errors
    /// [`FleetConfigError`], the first thing that is wrong.
    pub fn check(&self) -> Result<(), FleetConfigError> {
        let wrong = |key: &str, found: &str, expected: &str| {
            let (key, found, expected) = (key.to_owned(), found.to_owned(), expected.to_owned());
            Err(FleetConfigError::Wrong { key, found, expected })
        };
        if self.interval < Nanos::millis(100) || self.interval > Nanos::secs(3600) {
            return wrong("interval", &self.interval.to_string(), "100ms to 1h");
        }
        self.control.check().map_err(FleetConfigError::Control)?;
        if self.volume.is_empty() {
            return wrong("volume", "absent", "at least one `[[volume]]`");
        }
        let mut names = BTreeSet::new();
        for (at, host) in self.host.iter().enumerate() {
            let of = |key: &str| format!("host[{at}].{key}");
            if host.name.is_empty() || !names.insert(&host.name) {
                return wrong(&of("name"), &format!("`{}` twice, or empty", host.name), "a name used once");
            }
            if host.memory == Bytes::ZERO {
                return wrong(&of("memory"), &format!("0B on `{}`", host.name), "a size above 0");
            }
            let is_here = !host.provider.is_elsewhere();
            if let Some(here) = memory_total().filter(|here| is_here && host.memory > *here) {
                let found = format!("{} on `{}`", host.memory, host.name);
                let expected = format!("at most the {here} that this machine has, which the host is on");
                return wrong(&of("memory"), &found, &expected);
            }
            if let ProviderTable::Ssh { destination, address, .. } = &host.provider {
                if destination.is_empty() || destination.starts_with('-') {
                    let found = format!("`{destination}` on `{}`", host.name);
                    return wrong(&of("provider.destination"), &found, "a machine, as in `user@machine`");
                }
                if address.is_unspecified() || address.is_multicast() {
                    let found = format!("{address} on `{}`", host.name);
                    let expected = "the address of that machine at which appliances are reached";
                    return wrong(&of("provider.address"), &found, expected);
                }
            }
            if host.cpus.is_some_and(|cpus| !(cpus > 0.0 && cpus < 1e6)) {
                return wrong(
                    &of("cpus"),
                    &format!("{} on `{}`", host.cpus.unwrap_or(0.0), host.name),
                    "a number above 0, below 1e6",
                );
            }
        }
        let (mut volumes, mut moved) = (BTreeSet::new(), BTreeMap::new());
        let hosts: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        for (at, volume) in self.volume.iter().enumerate() {
            let of = |key: &str| format!("volume[{at}].{key}");
            if volume.name.is_empty() || volume.name.contains('@') || !volumes.insert(&volume.name) {
                return wrong(&of("name"), &format!("`{}`", volume.name), "a name without `@`, used once");
            }
            if !names.contains(&volume.home) {
                let expected = match hosts.is_empty() {
                    true => "the name of a host, of which there is none: a `[[host]]`".to_owned(),
                    false => format!("the name of a host: {}", hosts.join(", ")),
                };
                let found = format!("`{}` of volume `{}`", volume.home, volume.name);
                return wrong(&of("home"), &found, &expected);
            }
            if BlockSize::new(volume.block_size).is_err() {
                return wrong(
                    &of("block_size"),
                    &volume.block_size.to_string(),
                    "a power of two from 512B to 16MiB",
                );
            }
            if let Some(route) = &volume.route {
                self.check_route(at, volume, route)?;
                for (key, way) in ways(volume, route) {
                    if let Some(other) = moved.insert((key, way), &volume.name) {
                        let found = format!("that of volume `{other}`, too");
                        return wrong(
                            &of(key),
                            &found,
                            "one that is the volume's alone: its clients are moved",
                        );
                    }
                }
            }
            if let Some((key, found, expected)) = volume.prometheus.as_ref().and_then(PrometheusTable::wrong)
            {
                return wrong(&of(&format!("prometheus.{key}")), found, expected);
            }
            if volume.watch.is_none() && volume.prometheus.is_none() {
                return wrong(
                    &of("watch"),
                    "absent, as is `prometheus`",
                    "one of them: who tells of the volume?",
                );
            }
        }
        for (at, objective) in self.objective.iter().enumerate() {
            let of = |key: &str| format!("objective[{at}].{key}");
            let Some(volume) = self.volume.iter().find(|volume| volume.name == objective.volume) else {
                return wrong(&of("volume"), &format!("`{}`", objective.volume), "the name of a volume");
            };
            if let Err((key, found, expected)) = objective.check(volume, self.interval) {
                let table = format!("objective[{at}]");
                return wrong(&key.map_or(table, of), &found, &expected);
            }
        }
        Ok(())
    }

    /// Whether clients can be moved as a volume's route says, to some host at least.
    fn check_route(
        &self,
        at: usize,
        volume: &VolumeTable,
        route: &RouteTable,
    ) -> Result<(), FleetConfigError> {
        let wrong = |key: &str, found: String, expected: &str| {
            let (key, expected) = (format!("volume[{at}].{key}"), expected.to_owned());
            Err(FleetConfigError::Wrong { key, found, expected })
        };
        if self.host.iter().all(|host| unfit(host, volume).is_some()) {
            let why: Vec<String> = (self.host.iter())
                .map(|host| format!("`{}` {}", host.name, unfit(host, volume).unwrap_or_default()))
                .collect();
            return wrong("route", format!("one to no host ({})", why.join("; ")), "one to a host at least");
        }
        match route {
            RouteTable::Qmp { node, .. } if !(1..=20).contains(&node.len()) => {
                wrong("route.node", format!("`{node}`"), "1 to 20 bytes")
            }
            RouteTable::Address { .. } => {
                let has_address = matches!(&volume.origin.transport, Transport::Tcp { host, .. } if host.parse::<Ipv4Addr>().is_ok());
                if !has_address {
                    return wrong(
                        "origin",
                        format!("`{}`", volume.origin.shown()),
                        "an IPv4 address: the route is by address",
                    );
                }
                match volume.secret {
                    Some(_) => Ok(()),
                    None => wrong(
                        "secret",
                        "absent".to_owned(),
                        "one: clients show the same everywhere that the address moves",
                    ),
                }
            }
            _ => Ok(()),
        }
    }

    /// What a volume was promised.
    pub(super) fn objectives(&self, volume: &str) -> Vec<Objective> {
        let tables = self.objective.iter().filter(|table| table.volume == volume);
        tables.filter_map(|table| table.objective(self.interval).ok()).collect()
    }
}

/// What a volume whose clients are moved cannot share with another one, by key: what moves them, and the lease of its data.
fn ways(volume: &VolumeTable, route: &RouteTable) -> impl Iterator<Item = (&'static str, String)> {
    let moves = match route {
        // Of a proxy it is the volume of that name.
        RouteTable::Proxy { server, .. } => format!("{server} {}", volume.name),
        RouteTable::Qmp { socket, node, .. } => format!("{} {node}", socket.display()),
        RouteTable::Address { address, .. } => address.address.to_string(),
    };
    let lease = volume.lease().map(|lease| format!("{} {}", lease.control.address, lease.volume));
    [("route", moves)].into_iter().chain(lease.map(|lease| ("origin", lease)))
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
            if matches!(volume.origin.transport, Transport::Unix { .. }) =>
        {
            Some("runs virtual machines, which do not reach the volume's origin on a unix socket")
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
mod tests {
    use super::*;

    const GOOD: &str = r#"
        socket = "control.sock"
        state = "state"
        interval = "1s"
        [[host]]
        name = "h1"
        memory = "1GiB"
        [[volume]]
        name = "db"
        home = "h1"
        origin = "nbd+unix:///db?socket=/run/watch.sock"
        watch = "unix:/run/watch-http.sock"
        route = { type = "proxy", server = "unix:/run/proxy-http.sock" }
        [[objective]]
        volume = "db"
        latency = "5ms"
    "#;

    #[test]
    fn a_file_is_read_and_its_mistakes_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.toml");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            FleetConfig::read(&path)
        };
        let config = read(GOOD).unwrap();
        assert_eq!(config.socket, folder.path().join("control.sock"));
        assert_eq!(config.objectives("db")[0].window, Nanos::secs(1));
        assert!(config.volume[0].leased && config.objectives("other").is_empty());
        let beside = read(&GOOD.replace("/run/", "")).unwrap();
        let [watch, origin, proxy] =
            ["watch-http.sock", "watch.sock", "proxy-http.sock"].map(|name| folder.path().join(name));
        assert_eq!(beside.volume[0].watch, Some(ApiAddress::Unix(watch)));
        assert_eq!(beside.volume[0].origin.transport, Transport::Unix { path: origin });
        let Some(RouteTable::Proxy { server, .. }) = &beside.volume[0].route else { panic!() };
        assert_eq!(*server, ApiAddress::Unix(proxy));
        for (from, to, told) in [
            ("\"1s\"", "\"1ms\"", "line 4: `interval` is 1ms, expected 100ms to 1h"),
            ("\"1s\"", "\"often\"", "control.toml`, line 4, `interval`: `often` is not a span of time"),
            (
                "home = \"h1\"",
                "home = \"h2\"",
                "line 10: `volume[0].home` is `h2` of volume `db`, expected the name of a host: `h1`",
            ),
            ("watch = ", "watc = ", "line 12, `volume[0].watc`: unknown field `watc`"),
            ("server = ", "servr = ", "`volume[0].route`: unknown field `servr`"),
            ("\"proxy\"", "\"nfs\"", "unknown variant `nfs`, expected one of `proxy`, `qmp`, `address`"),
            (", server = \"unix:/run/proxy-http.sock\"", "", "missing field `server`"),
            (
                "memory = \"1GiB\"",
                "memory = \"1GiB\"\nprovider = { type = \"kvm\" }",
                "unknown variant `kvm`",
            ),
            (
                "memory = \"1GiB\"",
                "memory = \"1GiB\"\nprovider = { type = \"qemu\", image = \"i\", namespace = \"n\" }",
                "unknown field `namespace`",
            ),
            (
                "memory = \"1GiB\"",
                "memory = \"1GiB\"\nprovider = { type = \"qemu\", image = \"i\" }",
                "`h1` runs virtual machines, which do not reach the volume's origin on a unix socket",
            ),
            (
                "memory = \"1GiB\"",
                "memory = \"999TiB\"\nprovider = { type = \"ssh\", destination = \"h1\", address = \"10.0.0.2\" }",
                "`h1` is another machine, which does not reach the volume's origin on a unix socket",
            ),
            (
                "memory = \"1GiB\"",
                "memory = \"1GiB\"\nprovider = { type = \"ssh\", destination = \"-oProxyCommand=x\", address = \"10.0.0.2\" }",
                "expected a machine, as in `user@machine`",
            ),
            (
                "memory = \"1GiB\"",
                "memory = \"1GiB\"\nprovider = { type = \"ssh\", destination = \"h1\", address = \"0.0.0.0\" }",
                "expected the address of that machine",
            ),
            (
                "{ type = \"proxy\", server = \"unix:/run/proxy-http.sock\" }",
                "{ type = \"address\", address = \"10.0.0.9/24\", interface = \"eth0\" }",
                "`h1` has no interface that the volume's address could move to",
            ),
            (
                "{ type = \"proxy\", server = \"unix:/run/proxy-http.sock\" }",
                "{ type = \"address\", address = \"10.0.0.9\", interface = \"eth0\" }",
                "expected an address and a prefix",
            ),
            (
                "{ type = \"proxy\", server = \"unix:/run/proxy-http.sock\" }",
                "{ type = \"qmp\", socket = \"q\", node = \"a-node-of-many-letters\", first = \"f\" }",
                "expected 1 to 20 bytes",
            ),
            (
                "watch = ",
                "secret = \"short\"\nwatch = ",
                "line 12, `volume[0].secret`: the text is no secret: expected 16 to 128",
            ),
            ("interval = \"1s\"", "[control.feedback]\ngain = 0", "line 5: `control.feedback.gain` is 0"),
            ("watch = ", "secret = \"0123456789abcdef\"\nwatch = ", "others than its owner may read it"),
            ("latency = \"5ms\"", "", "one of them"),
            (
                "latency = \"5ms\"",
                "latency = \"0s\"",
                "line 16: `objective[0].latency` is 0, expected a span above 0",
            ),
            ("latency = \"5ms\"", "latency = \"2h\"", "expected at most 1h"),
            ("latency = \"5ms\"", "iops = -1", "`objective[0].iops` is -1, expected a number above 0"),
            (
                "latency = \"5ms\"",
                "iops = 5\nwindow = \"1ms\"",
                "`objective[0].window` is 1ms, expected 100ms to 1d",
            ),
            ("latency = \"5ms\"", "iops = 5\nconforming = 2", "`objective[0].conforming_share` is 2"),
            (
                "latency = \"5ms\"",
                "iops = 5\nconforming_share = 2",
                "line 17: `objective[0].conforming_share` is 2",
            ),
            ("latency = \"5ms\"", "iops = 5\nweight = 0", "`objective[0].weight` is 0"),
            (
                "memory = \"1GiB\"",
                "memory = \"0B\"",
                "line 7: `host[0].memory` is 0B on `h1`, expected a size above 0",
            ),
            (
                "memory = \"1GiB\"",
                "memory = \"999TiB\"",
                "`host[0].memory` is 999TiB on `h1`, expected at most the",
            ),
            ("volume = \"db\"", "volume = \"d\"", "the name of a volume"),
            ("name = \"db\"", "name = \"d@b\"", "without `@`"),
            (
                "name = \"h1\"\n        memory = \"1GiB\"",
                "name = \"h1\"\n        memory = \"much\"",
                "line 7, `host[0].memory`: `much`",
            ),
            ("name = \"h1\"", "", "line 5, `host[0]`: missing field `name`"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let error = read(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains("control.toml`") && !error.contains('\n'), "{from}: {error}");
            assert!(error.contains(told), "{from}: {error}");
        }
    }

    #[test]
    fn what_stands_in_the_place_of_a_secret_is_not_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.toml");
        let (proxy, with_token) = ("http.sock\" }", "http.sock\", token = VALUE }");
        for (value, kind) in [
            ("1234567890123456", "a number"),
            ("12345678901234567890123", "a number"),
            ("0x1234567890123456", "a number"),
            ("1234567890.123456", "a number"),
            ("true", "a boolean"),
            ("[\"1234567890123456\"]", "an array"),
            ("{ key = \"1234567890123456\" }", "a table or a time"),
            ("1234-05-06", "a table or a time"),
            ("1234-05-06T07:08:09.123456Z", "a table or a time"),
            ("\"123456789 123456\"", "the text"),
        ] {
            let refused =
                format!("{kind} is no secret: expected 16 to 128 letters, digits, `-` and `_` in quotes");
            for (from, to, place) in [
                ("watch = ", "secret = VALUE\nwatch = ", "line 12, `volume[0].secret`"),
                ("watch = ", "watch_token = VALUE\nwatch = ", "line 12, `volume[0].watch_token`"),
                (proxy, with_token, "line 13, `volume[0].route.token`"),
            ] {
                assert!(GOOD.contains(from), "{from}");
                std::fs::write(&path, GOOD.replacen(from, &to.replace("VALUE", value), 1)).unwrap();
                let error = FleetConfig::read(&path).unwrap_err().to_string();
                assert_eq!(error, format!("`{}`, {place}: {refused}", path.display()));
            }
        }
        // Without quotes it may be no TOML at all.
        for value in ["0123456789abcdef", "1234567890abcdef", "abcdef0123456789", "123456789012345_"] {
            std::fs::write(&path, GOOD.replacen("watch = ", &format!("secret = {value}\nwatch = "), 1))
                .unwrap();
            let error = FleetConfig::read(&path).unwrap_err().to_string();
            assert!(error.contains("line 12: ") && !error.contains("23456"), "{error}");
        }
    }

    #[test]
    fn volumes_whose_clients_are_moved_share_neither_their_way_nor_their_lease() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.toml");
        let other = |origin: &str, route: &str| {
            let text = format!(
                "{GOOD}[[volume]]\nname = \"web\"\nhome = \"h1\"\norigin = \"{origin}\"\nwatch = \"unix:/run/watch-http.sock\"\n{route}"
            );
            std::fs::write(&path, text).unwrap();
            FleetConfig::read(&path).map(drop).map_err(|error| error.to_string())
        };
        let (db, web) = ("nbd+unix:///db?socket=/run/watch.sock", "nbd+unix:///web?socket=/run/watch.sock");
        let proxy = "route = { type = \"proxy\", server = \"unix:/run/proxy-http.sock\" }";
        assert_eq!(other(web, proxy), Ok(()));
        // Who is only watched is not moved.
        assert_eq!(other(db, ""), Ok(()));
        let error = other(db, proxy).unwrap_err();
        assert!(error.contains("`volume[1].origin` is that of volume `db`, too"), "{error}");
        assert_eq!(other(db, &format!("{proxy}\nleased = false")), Ok(()), "both may only read");
        let qmp = "route = { type = \"qmp\", socket = \"q\", node = \"n\", first = \"f\" }";
        let first = GOOD.replace("route = { type = \"proxy\", server = \"unix:/run/proxy-http.sock\" }", qmp);
        assert_ne!(first, GOOD);
        let second = format!(
            "{first}[[volume]]\nname = \"web\"\nhome = \"h1\"\norigin = \"{web}\"\nwatch = \"unix:/w.sock\"\n{qmp}"
        );
        std::fs::write(&path, second).unwrap();
        let error = FleetConfig::read(&path).unwrap_err().to_string();
        assert!(error.contains("`volume[1].route` is that of volume `db`, too"), "{error}");
    }
}
