//! What cannot be so in a fleet's configuration, all of it, whether it came from a file or was made in code.

use super::config::{FleetConfig, unfit};
use super::tables::{HostTable, PrometheusTable, ProviderTable, RouteTable, VolumeTable};
use crate::config::{BLOCK_SIZE_MAX, Finding, NAME_BYTES_MAX, is_name, memory_total, trouble_of_socket};
use forebay_nbd::Transport;
use forebay_units::{BlockSize, Bytes, Nanos};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;

/// Hosts that are told to choose from.
const HOSTS_TOLD: usize = 8;

/// A host's folder is called like it, and file systems have names of so many bytes.
const HOST_NAME_BYTES_MAX: usize = 255;

/// What is wrong, in the order of the configuration's tables.
pub(super) fn findings(config: &FleetConfig) -> Vec<Finding> {
    let mut noted = Noted::default();
    if config.interval < Nanos::millis(100) || config.interval > Nanos::secs(3600) {
        noted.add("interval", config.interval, "100ms to 1h");
    }
    if let Err(error) = config.control.check() {
        noted.add(format!("control.{}", error.key), error.found, error.expected);
    }
    for error in config.response.wrong() {
        noted.add(format!("response.{}", error.key), error.found, error.expected);
    }
    files(config, &mut noted);
    if config.volume.is_empty() {
        noted.add("volume", "absent", "at least one `[[volume]]`");
    }
    hosts(config, &mut noted);
    volumes(config, &mut noted);
    for (at, objective) in config.objective.iter().enumerate() {
        let of = |key: &str| format!("objective[{at}].{key}");
        match config.volume.iter().find(|volume| volume.name == objective.volume) {
            None => noted.add(of("volume"), format!("`{}`", objective.volume), "the name of a volume"),
            Some(volume) => {
                if let Err((key, found, expected)) = objective.check(volume, config.interval) {
                    noted.add(key.map_or(format!("objective[{at}]"), of), found, expected);
                }
            }
        }
    }
    noted.0
}

/// What it keeps, and where it answers.
fn files(config: &FleetConfig, noted: &mut Noted) {
    let folder_of = |path: &Path| path.parent().map(Path::to_owned).filter(|folder| folder != Path::new(""));
    // The state's is made, with all that it stands in.
    let is_made = |path: &Path| {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        folder_of(path)
            .is_some_and(|folder| !folder.is_dir() && absolute(&config.state).starts_with(absolute(&folder)))
    };
    if !is_made(&config.socket) {
        let trouble = trouble_of_socket(&config.socket);
        noted.0.extend(trouble.map(|message| Finding::new("socket", message)));
    }
    let state = &config.state;
    if state.exists() && !state.is_dir() {
        noted.add("state", format!("`{}`, which is there and is no folder", state.display()), "a folder");
    }
    if let Some(history) = &config.history {
        let shown = format!("`{}`", history.display());
        if folder_of(history).is_some_and(|folder| !folder.is_dir()) && !is_made(history) {
            noted.add("history", shown, "a file in a folder that is there");
        } else if history.exists() && !history.is_file() {
            noted.add("history", format!("{shown}, which is there and is no file"), "a file");
        } else if history.starts_with(state) && history.extension().is_some_and(|end| end == "json") {
            noted.add("history", shown, "a file that is not one of the journal's");
        }
    }
}

/// Processors of this machine, if it says so.
fn processors() -> Option<f64> {
    std::thread::available_parallelism().ok().map(|count| count.get() as f64)
}

#[derive(Default)]
struct Noted(Vec<Finding>);

impl Noted {
    fn add(&mut self, key: impl Into<String>, found: impl ToString, expected: impl ToString) {
        let message = format!("{}, expected {}", found.to_string(), expected.to_string());
        self.0.push(Finding::new(key, message));
    }
}

fn hosts(config: &FleetConfig, noted: &mut Noted) {
    let mut names = BTreeSet::new();
    for (at, HostTable { name, memory, cpus, provider, .. }) in config.host.iter().enumerate() {
        let of = |key: &str| format!("host[{at}].{key}");
        let is_folder = ![".", ".."].contains(&name.as_str()) && !name.contains('/');
        if !is_name(name) || name.len() > HOST_NAME_BYTES_MAX || !is_folder {
            let expected = format!(
                "a name that a folder can have: 1 to {HOST_NAME_BYTES_MAX} bytes, without `/` and control characters, and not `.` or `..`"
            );
            noted.add(of("name"), format!("`{}`", name.escape_debug()), expected);
        } else if !names.insert(name) {
            noted.add(of("name"), format!("`{name}` twice"), "a name used once");
        }
        if *memory == Bytes::ZERO {
            noted.add(of("memory"), format!("0B on `{name}`"), "a size above 0");
        }
        let is_here = !provider.is_elsewhere();
        if let Some(here) = memory_total().filter(|here| is_here && memory > here) {
            let expected = format!("at most the {here} that this machine has, which the host is on");
            noted.add(of("memory"), format!("{memory} on `{name}`"), expected);
        }
        if let ProviderTable::Ssh { destination, address, .. } = provider {
            if destination.is_empty() || destination.starts_with('-') {
                let found = format!("`{destination}` on `{name}`");
                noted.add(of("provider.destination"), found, "a machine, as in `user@machine`");
            }
            if address.is_unspecified() || address.is_multicast() {
                let expected = "the address of that machine at which appliances are reached";
                noted.add(of("provider.address"), format!("{address} on `{name}`"), expected);
            }
        }
        if let Some(cpus) = cpus.filter(|cpus| !(*cpus > 0.0 && *cpus < 1e6)) {
            noted.add(of("cpus"), format!("{cpus} on `{name}`"), "a number above 0, below 1e6");
        } else if let (Some(cpus), Some(here)) = (cpus, processors().filter(|_| is_here))
            && *cpus > here
        {
            let expected = format!("at most the {here} that this machine has, which the host is on");
            noted.add(of("cpus"), format!("{cpus} on `{name}`"), expected);
        }
    }
}

fn volumes(config: &FleetConfig, noted: &mut Noted) {
    let hosts: BTreeSet<&String> = config.host.iter().map(|host| &host.name).collect();
    let (mut names, mut moved) = (BTreeSet::new(), BTreeMap::new());
    for (at, volume) in config.volume.iter().enumerate() {
        let of = |key: &str| format!("volume[{at}].{key}");
        let name = &volume.name;
        if !is_name(name) || name.contains('@') || !names.insert(name) {
            let expected = format!(
                "a name without `@` and control characters, of 1 to {NAME_BYTES_MAX} bytes, used once"
            );
            noted.add(of("name"), format!("`{}`", name.escape_debug()), expected);
        }
        let epoch = volume.origin.export.rsplit_once('@').map(|(_, epoch)| epoch);
        if epoch.is_some_and(|epoch| !epoch.is_empty() && epoch.bytes().all(|byte| byte.is_ascii_digit())) {
            let expected = "an export without an epoch (`@NUMBER`), which the controller appends itself";
            noted.add(of("origin"), format!("`{}`", volume.origin.shown()), expected);
        }
        if volume.origin.tls_required && volume.route.is_some() {
            let expected = "an export without TLS: appliances cannot be told whom to believe";
            noted.add(of("origin"), format!("`{}`", volume.origin.shown()), expected);
        }
        if !hosts.contains(&volume.home) {
            let more = if hosts.len() > HOSTS_TOLD { ", ..." } else { "" };
            let hosts: Vec<String> = hosts.iter().take(HOSTS_TOLD).map(|host| format!("`{host}`")).collect();
            let expected = match hosts.is_empty() {
                true => "the name of a host, of which there is none: a `[[host]]`".to_owned(),
                false => format!("the name of a host: {}{more}", hosts.join(", ")),
            };
            noted.add(of("home"), format!("`{}` of volume `{name}`", volume.home), expected);
        }
        if BlockSize::new(volume.block_size).is_err()
            || volume.route.is_some() && volume.block_size > BLOCK_SIZE_MAX
        {
            noted.add(
                of("block_size"),
                volume.block_size,
                format!("a power of two from 512B to {BLOCK_SIZE_MAX}"),
            );
        }
        if let Some(route) = &volume.route {
            check_route(config, at, route, noted);
            for (key, way) in ways(volume, route) {
                if let Some(other) = moved.insert((key, way), name) {
                    let expected = "one that is the volume's alone: its clients are moved";
                    noted.add(of(key), format!("that of volume `{other}`, too"), expected);
                }
            }
        }
        if let Some((key, found, expected)) = volume.prometheus.as_ref().and_then(PrometheusTable::wrong) {
            noted.add(of(&format!("prometheus.{key}")), found, expected);
        }
        if volume.watch.is_none() && volume.prometheus.is_none() {
            let expected = "one of them: who tells of the volume?";
            noted.add(of("watch"), "absent, as is `prometheus`", expected);
        }
    }
}

/// Whether clients of the volume with the number `at` can be moved as its route says, to some host at least.
fn check_route(config: &FleetConfig, at: usize, route: &RouteTable, noted: &mut Noted) {
    let volume = &config.volume[at];
    let of = |key: &str| format!("volume[{at}].{key}");
    let unfit_hosts: Vec<String> = (config.host.iter())
        .filter_map(|host| Some(format!("`{}` {}", host.name, unfit(host, volume)?)))
        .collect();
    // Where there is none, its home says so.
    if !config.host.is_empty() && unfit_hosts.len() == config.host.len() {
        let found = format!("one to no host ({})", unfit_hosts.join("; "));
        noted.add(of("route"), found, "one to a host at least");
    }
    match route {
        RouteTable::Qmp { node, .. } if !(1..=20).contains(&node.len()) => {
            noted.add(of("route.node"), format!("`{node}`"), "1 to 20 bytes");
        }
        RouteTable::Address { .. } => {
            let has_address = matches!(&volume.origin.transport, Transport::Tcp { host, .. } if host.parse::<Ipv4Addr>().is_ok());
            if !has_address {
                let expected = "an IPv4 address: the route is by address";
                noted.add(of("origin"), format!("`{}`", volume.origin.shown()), expected);
            }
            if volume.secret.is_none() {
                let expected = "one: clients show the same everywhere that the address moves";
                noted.add(of("secret"), "absent", expected);
            }
        }
        _ => {}
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
