//! What cannot be so in a fleet's configuration, all of it, whether it came from a file or was made in code.

use super::config::{FleetConfig, unfit};
use super::tables::{HostTable, PrometheusTable, ProviderTable, RouteTable, VolumeTable, ten_seconds};
use crate::config::{
    BLOCK_SIZE_MAX, Finding, NAME_BYTES_MAX, SOCKET_BYTES_MAX, is_name, is_same_file, memory_total,
    trouble_of_socket,
};
use crate::kept::beside;
use forebay_actuate::api::ApiAddress;
use forebay_actuate::provision::Image;
use forebay_actuate::route::Ipv4Prefix;
use forebay_nbd::Transport;
use forebay_units::{BlockSize, Bytes, Nanos};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

/// Hosts that are told to choose from.
const HOSTS_TOLD: usize = 8;

/// A host's folder is called like it, and file systems have names of so many bytes.
const HOST_NAME_BYTES_MAX: usize = 255;

/// What is wrong, in the order of the configuration's tables.
pub(super) fn findings(config: &FleetConfig) -> Vec<Finding> {
    let mut noted = Noted::default();
    let mut interval = config.interval;
    if interval < Nanos::millis(100) || interval > Nanos::secs(3600) {
        noted.add("interval", interval, "100ms to 1h");
        // That the windows of objectives follow from it is not to be told, too.
        interval = ten_seconds();
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
                if let Err((key, found, expected)) = objective.check(volume, interval) {
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
    if let Some(listen) = config.listen.filter(|listen| !listen.ip().is_loopback()) {
        let found = format!(
            "`{listen}`, which is not loopback: the state of every volume would be open to whoever reaches it"
        );
        noted.add("listen", found, "a loopback address and port, as `127.0.0.1:9810`");
    }
    let state = &config.state;
    if config.history.as_ref() == Some(&config.socket) {
        let found = format!("`{}`, which something else is kept at", config.socket.display());
        noted.add("socket", found, "a path of its own");
    }
    let mut own = vec![("socket", config.socket.clone())];
    if let Some(history) = &config.history {
        let all = ["", "-wal", "-shm", "-journal", ".past"];
        own.extend(all.map(|end| ("history", beside(history, end))));
    }
    let mut taken: Vec<&str> = Vec::new();
    for (key, path) in own {
        if let Some(what) = kept_at(&path, state).filter(|_| !taken.contains(&key)) {
            noted.add(key, format!("`{}`, which is {what}", path.display()), "a path of its own");
            taken.push(key);
        }
    }
    if state.exists() && !state.is_dir() {
        noted.add("state", format!("`{}`, which is there and is no folder", state.display()), "a folder");
    }
    if let Some((found, expected)) = too_long_for_sockets(config) {
        noted.add("state", found, expected);
    }
    if let Some(history) = config.history.as_ref().filter(|_| !taken.contains(&"history")) {
        let shown = format!("`{}`", history.display());
        if folder_of(history).is_some_and(|folder| !folder.is_dir()) && !is_made(history) {
            noted.add("history", shown, "a file in a folder that is there");
        } else if history.exists() && !history.is_file() {
            noted.add("history", format!("{shown}, which is there and is no file"), "a file");
        }
    }
}

/// An appliance's folder and the longer of its sockets, below its host's. After a journal was lost appliances are numbered by the seconds since 1970, which have ten digits until 2286.
const SOCKET_BELOW_HOST: &str = "forebay-0000000000/http.sock";

/// What is wrong with a `state` in which appliances could not have their sockets, and what is expected.
fn too_long_for_sockets(config: &FleetConfig) -> Option<(String, String)> {
    let on_sockets = |host: &&HostTable| matches!(host.provider, ProviderTable::Process { .. });
    let host = &config.host.iter().filter(on_sockets).max_by_key(|host| host.name.len())?.name;
    let state = resolved(&config.state);
    let socket = state.join("hosts").join(host).join(SOCKET_BELOW_HOST);
    let (length, of_state) = (socket.as_os_str().len(), state.as_os_str().len());
    let beyond = length.checked_sub(SOCKET_BYTES_MAX).filter(|beyond| *beyond > 0)?;
    let found = format!(
        "`{}`, a path of {of_state} bytes, with which the socket of an appliance on `{host}` has one of {length} (`{}`)",
        state.display(),
        socket.display()
    );
    let expected = match of_state.checked_sub(beyond) {
        Some(most @ 2..) => format!(
            "a path of at most {most} bytes with that host, as a unix socket's has at most {SOCKET_BYTES_MAX}: name a folder with a shorter one, or the host with a shorter name"
        ),
        _ => format!(
            "a path of at most {SOCKET_BYTES_MAX} bytes for that socket: name the host with a shorter name"
        ),
    };
    Some((found, expected))
}

/// The path without symbolic links, as far as there is something at it: by that one appliances have their sockets.
fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for there in absolute.ancestors() {
        if let Ok(real) = there.canonicalize() {
            let rest = absolute.strip_prefix(there).unwrap_or(Path::new(""));
            return if rest == Path::new("") { real } else { real.join(rest) };
        }
    }
    absolute
}

/// What is kept at `path`, or made there by the first start, of the folder `state`; `None` where nothing is.
fn kept_at(path: &Path, state: &Path) -> Option<&'static str> {
    if state.starts_with(path) {
        return Some("the folder of `state`, or one around it");
    }
    let mut inside =
        path.strip_prefix(state).ok()?.components().map(|part| part.as_os_str().to_string_lossy());
    match (&*inside.next()?, inside.next()) {
        ("hosts", _) => Some("where `state` keeps what is known of appliances"),
        (file, None) if KEPT.iter().any(|kept| file.strip_prefix(kept).is_some_and(is_end)) => {
            Some("what `state` keeps")
        }
        _ => None,
    }
}

/// Small files in the folder of the state, each with others beside it.
const KEPT: [&str; 2] = ["responses.json", "secret.json"];

fn is_end(rest: &str) -> bool {
    ["", ".lock", ".new"].contains(&rest)
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
    let (mut offered, mut cpus_offered) = (Bytes::ZERO, 0.0);
    let (mut namespaces, mut addresses) = (BTreeMap::new(), BTreeMap::new());
    let cost = config.cost();
    // Of the smallest cache. Where no volume can have one, no host needs room.
    let could_have = config.volume.iter().filter(|volume| volume.uncacheable().is_none());
    let least = could_have.map(|volume| cost.room(volume.block_size, Bytes::ZERO, 0.0).memory).min();
    for (at, HostTable { name, memory, cpus, provider, .. }) in config.host.iter().enumerate() {
        let of = |key: &str| format!("host[{at}].{key}");
        if !is_file_name(name) || name.len() > HOST_NAME_BYTES_MAX {
            let expected = format!(
                "a name that a folder can have: 1 to {HOST_NAME_BYTES_MAX} bytes, without `/` and control characters, and not `.` or `..`"
            );
            noted.add(of("name"), format!("`{}`", name.escape_debug()), expected);
        } else if !names.insert(name) {
            noted.add(of("name"), format!("`{name}` twice"), "a name used once");
        }
        if *memory == Bytes::ZERO {
            noted.add(of("memory"), format!("0B on `{name}`"), "a size above 0");
        } else if least.is_some_and(|least| *memory < least) {
            let beside = Bytes(cost.memory_bytes);
            let expected = format!(
                "a block more than the {beside} at least that an appliance takes beside its cache (`response.cost.memory_bytes`, or what a provider takes where that is more)"
            );
            noted.add(
                of("memory"),
                format!("{memory} on `{name}`, where no volume can ever have a cache"),
                expected,
            );
        }
        let is_here = !provider.is_elsewhere();
        if let Some(here) = memory_total().filter(|here| is_here && memory > here) {
            let expected = format!("at most the {here} that this machine has, which the host is on");
            noted.add(of("memory"), format!("{memory} on `{name}`"), expected);
        } else if is_here {
            let before = offered;
            offered = Bytes(offered.get().saturating_add(memory.get()));
            // Told of the first that is too much.
            if let Some(here) = memory_total().filter(|here| before <= *here && offered > *here) {
                let found = format!("{memory} on `{name}`, with {before} on the hosts before it");
                noted.add(
                    of("memory"),
                    found,
                    format!("at most the {here} that this machine has, on which all of them are"),
                );
            }
        }
        for (key, found, expected) in wrong_with(provider) {
            noted.add(of(&format!("provider.{key}")), format!("{found} on `{name}`"), expected);
        }
        // Logins of one machine may be several hosts; a namespace stands for one, and what moves to it is at one place.
        if let ProviderTable::Namespace { namespace, address, .. } = provider {
            if let Some(other) = namespaces.insert(namespace, name) {
                let found = format!("`{namespace}` on `{name}`, as on `{other}`");
                noted.add(of("provider.namespace"), found, "a namespace of the host's own");
            }
            if let Some(other) = addresses.insert(address.to_canonical(), name) {
                let found = format!("`{address}` on `{name}`, as on `{other}`");
                noted.add(of("provider.address"), found, "an address of the host's own");
            }
        }
        match cpus {
            None => {}
            Some(cpus) if !(*cpus > 0.0 && *cpus < 1e6) => {
                noted.add(of("cpus"), format!("{cpus} on `{name}`"), "a number above 0, below 1e6");
            }
            Some(_) if !is_here => {}
            Some(cpus) if processors().is_some_and(|here| *cpus > here) => {
                let here = processors().unwrap_or(*cpus);
                let expected = format!("at most the {here} that this machine has, which the host is on");
                noted.add(of("cpus"), format!("{cpus} on `{name}`"), expected);
            }
            Some(cpus) => {
                let before = cpus_offered;
                cpus_offered += cpus;
                if let Some(here) = processors().filter(|here| before <= *here && cpus_offered > *here) {
                    noted.add(
                        of("cpus"),
                        format!("{cpus} on `{name}`, with {before} on the hosts before it"),
                        format!("at most the {here} that this machine has, on which all of them are"),
                    );
                }
            }
        }
    }
}

const LOOPBACK: &str = "lo";

/// An interface's name on Linux.
fn is_interface(name: &str) -> bool {
    (1..=15).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/')
}

/// A name that is a folder's, or a file's, too.
fn is_file_name(name: &str) -> bool {
    is_name(name) && !name.contains('/') && ![".", ".."].contains(&name)
}

/// Where somebody can be reached.
fn is_reached(address: IpAddr) -> bool {
    !address.is_unspecified() && !address.is_multicast()
}

/// What an address is that no host of its network can have.
fn is_of_network(of: Ipv4Prefix) -> Option<&'static str> {
    // In networks of 31 bits both addresses are hosts' (RFC 3021), in those of 32 the only one.
    let within = u32::MAX.checked_shr(of.prefix.into()).filter(|_| of.prefix < 31)?;
    match of.address.to_bits() & within {
        0 => Some("the address of its network itself"),
        number if number == within => Some("the broadcast address of its network"),
        _ => None,
    }
}

const ON_THE_WIRE: &str = "an interface by which others reach the address";

const AN_ADDRESS_OF_IT: &str = "the address of it at which appliances are reached";

const AN_IMAGE: &str = "the folder of an image, with `vmlinuz` and `initramfs` in it, neither of them empty, as `make appliance-image` makes it";

fn is_image(folder: &Path) -> bool {
    let Image { kernel, initramfs } = Image::in_folder(folder);
    [kernel, initramfs]
        .iter()
        .all(|file| std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.len() > 0))
}

/// What cannot be so of how appliances are had: the key, what it is, and what it may be.
fn wrong_with(provider: &ProviderTable) -> Vec<(&'static str, String, &'static str)> {
    let mut wrong = Vec::new();
    let mut check = |key, is_good: bool, found: &dyn std::fmt::Display, expected| {
        if !is_good {
            wrong.push((key, format!("`{found}`"), expected));
        }
    };
    let mut program = None;
    match provider {
        ProviderTable::Process { program: own } => program = own.as_ref(),
        ProviderTable::Namespace { namespace, address, interface, program: own } => {
            program = own.as_ref();
            check("namespace", is_file_name(namespace), namespace, "a name as `ip netns` lists it");
            check("address", is_reached(*address), address, AN_ADDRESS_OF_IT);
            if let Some(interface) = interface {
                check(
                    "interface",
                    is_interface(interface),
                    interface,
                    "the name of an interface: 1 to 15 bytes",
                );
                check("interface", interface != LOOPBACK, interface, ON_THE_WIRE);
            }
        }
        ProviderTable::Ssh { destination, address, .. } => {
            let is_machine = !destination.is_empty() && !destination.starts_with('-');
            check("destination", is_machine, destination, "a machine, as in `user@machine`");
            check("address", is_reached(*address), address, AN_ADDRESS_OF_IT);
        }
        ProviderTable::Qemu { image, program: own, accelerator } => {
            program = own.as_ref();
            check("image", is_image(image), &image.display(), AN_IMAGE);
            if let Some(accelerator) = accelerator {
                check("accelerator", !accelerator.is_empty(), accelerator, "one of QEMU's, as in `tcg`");
            }
        }
        ProviderTable::Libvirt { image, connection, kind } => {
            check("image", is_image(image), &image.display(), AN_IMAGE);
            check("connection", !connection.is_empty(), connection, "a libvirt, as in `qemu:///session`");
            if let Some(kind) = kind {
                check("kind", ["kvm", "qemu"].contains(&kind.as_str()), kind, "`kvm` or `qemu`");
            }
        }
    }
    if let Some(program) = program {
        // A name alone is looked for where programs are.
        let is_name = program.components().count() == 1 && !program.is_absolute();
        let places = std::env::var_os("PATH").filter(|_| is_name).unwrap_or_default();
        let is_found = std::env::split_paths(&places).any(|place| place.join(program).is_file());
        let expected = match is_name {
            true => "a program in one of the folders of PATH; with `./` before it, one in the file's folder",
            false => "a program that is there",
        };
        check("program", is_found || (!is_name && program.is_file()), &program.display(), expected);
    }
    wrong
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
        for (key, found, ip) in fixed(volume) {
            if let Some(other) = ip.and_then(|ip| moved_at(config, ip)) {
                let found = format!("`{found}`, at the address that the route of volume `{other}` moves");
                noted.add(of(key), found, "an address that stays with the storage side");
            }
        }
        if let Some(found) = volume.watch.as_ref().and_then(nobody_at) {
            noted.add(of("watch"), found, "where the storage side answers");
        }
        for (key, found, expected) in own_ways(config, volume) {
            noted.add(of(key), found, expected);
        }
        if volume.watch.is_none() && volume.prometheus.is_none() {
            let expected = "one of them: who tells of the volume?";
            noted.add(of("watch"), "absent, as is `prometheus`", expected);
        }
    }
}

/// Daemons that are asked what only another one can do: the key, what it is, and what it may be.
fn own_ways(config: &FleetConfig, volume: &VolumeTable) -> Vec<(&'static str, String, &'static str)> {
    let server = match &volume.route {
        Some(RouteTable::Proxy { server, .. }) => Some(server),
        _ => None,
    };
    let own = [Some(ApiAddress::Unix(config.socket.clone())), config.listen.map(ApiAddress::Tcp)];
    let is_own = |address: &ApiAddress| own.iter().flatten().any(|own| is_same_place(own, address));
    let mut wrong = Vec::new();
    for (key, address) in [("watch", volume.watch.as_ref()), ("route.server", server)] {
        if let Some(address) = address.filter(|address| is_own(address)) {
            let found = format!("`{address}`, where this controller answers itself");
            let expected =
                if key == "watch" { "where the storage side answers" } else { "where the proxy answers" };
            wrong.push((key, found, expected));
        }
    }
    // Of one daemon that is both a proxy and somebody's storage side it is another volume.
    let is_one_volume = volume.name == volume.origin.export;
    if let (Some(server), Some(watch)) = (server, &volume.watch)
        && is_one_volume
        && is_same_place(server, watch)
    {
        let found = format!(
            "`{server}`, which is the storage side's own (`watch`): its appliance would be its own origin, and clients wait for ever"
        );
        wrong.push(("route.server", found, "where the volume's permanent proxy answers"));
    }
    wrong
}

/// Whether whoever is asked at one of these is asked at the other, as far as that can be told from here.
fn is_same_place(one: &ApiAddress, other: &ApiAddress) -> bool {
    match (one, other) {
        (ApiAddress::Tcp(one), ApiAddress::Tcp(other)) => {
            (one.ip().to_canonical(), one.port()) == (other.ip().to_canonical(), other.port())
        }
        (ApiAddress::Unix(one), ApiAddress::Unix(other)) => {
            // Whoever answers there may not have been started yet.
            let place = |path: &Path| Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
            is_same_file(one, other) || place(one).is_some_and(|one| Some(one) == place(other))
        }
        _ => false,
    }
}

/// Where the storage side is for appliances and for us, wherever clients are: the key, what it is, and its address if it names one.
fn fixed(volume: &VolumeTable) -> impl Iterator<Item = (&'static str, String, Option<IpAddr>)> {
    let origin = match &volume.origin.transport {
        Transport::Tcp { host, .. } => host.parse().ok(),
        Transport::Unix { .. } => None,
    };
    let watch = match &volume.watch {
        Some(ApiAddress::Tcp(at)) => Some(("watch", at.to_string(), Some(at.ip()))),
        _ => None,
    };
    [("origin", volume.origin.shown().to_string(), origin)].into_iter().chain(watch)
}

/// The volume whose clients come by this address, which moves.
fn moved_at(config: &FleetConfig, ip: IpAddr) -> Option<&str> {
    let moves = |volume: &&VolumeTable| matches!(&volume.route, Some(RouteTable::Address { address, .. }) if ip.to_canonical() == address.address);
    config.volume.iter().find(moves).map(|volume| volume.name.as_str())
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
        RouteTable::Qmp { socket, node, first, device, .. } => {
            if !(1..=20).contains(&node.len()) || !is_node(node) {
                noted.add(of("route.node"), format!("`{node}`"), "a node's name of 1 to 20 bytes");
            }
            if !is_node(first) || first == node {
                noted.add(
                    of("route.first"),
                    format!("`{first}`"),
                    "the name of the NBD client below the node",
                );
            }
            if let Some(device) = device.as_ref().filter(|device| device.is_empty() || device.contains('/')) {
                noted.add(of("route.device"), format!("`{device}`"), "the `id` of a device");
            }
            let length = socket.as_os_str().len();
            if length > SOCKET_BYTES_MAX {
                let expected = format!("at most {SOCKET_BYTES_MAX} bytes, as a unix socket's path may have");
                noted.add(of("route.socket"), format!("a path of {length} bytes"), expected);
            }
        }
        RouteTable::Proxy { server, .. } => {
            if let Some(found) = nobody_at(server) {
                noted.add(of("route.server"), found, "where the proxy answers");
            }
        }
        RouteTable::Address { address, interface, .. } => {
            let ip = address.address;
            if !is_reached(ip.into()) || ip.is_loopback() || ip.is_broadcast() {
                noted.add(of("route.address"), format!("{ip}"), "an address that a host can have");
            } else if address.prefix == 0 {
                noted.add(of("route.address"), format!("{ip}/0"), "a prefix of 1 to 32");
            } else if let Some(what) = is_of_network(*address) {
                let found = format!("{ip}/{}, {what}", address.prefix);
                noted.add(of("route.address"), found, "an address that a host can have");
            }
            let has_it = |host: &&HostTable| match &host.provider {
                ProviderTable::Namespace { address, .. } | ProviderTable::Ssh { address, .. } => {
                    address.to_canonical() == ip
                }
                _ => false,
            };
            if let Some(host) = config.host.iter().find(has_it) {
                let found = format!("{ip}, which is that of host `{}`", host.name);
                noted.add(of("route.address"), found, "one that is the volume's alone: it moves");
            }
            if !is_interface(interface) {
                let expected = "the name of an interface: 1 to 15 bytes";
                noted.add(of("route.interface"), format!("`{interface}`"), expected);
            } else if interface == LOOPBACK {
                noted.add(of("route.interface"), format!("`{interface}`"), ON_THE_WIRE);
            }
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
    }
}

/// A name that QEMU takes for a node.
fn is_node(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

/// An address at which nobody can answer.
fn nobody_at(address: &ApiAddress) -> Option<String> {
    match address {
        ApiAddress::Tcp(at) if at.port() == 0 || !is_reached(at.ip()) => Some(format!("`{at}`")),
        _ => None,
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
