//! Hosts and volumes of a configuration as that by which orders are carried out: providers, routes, leases.

use super::config::FleetConfig;
use super::tables::{HostTable, ProviderTable, RouteTable, VolumeTable};
use forebay_actuate::provision::{Image, Libvirt, LocalProcess, Qemu, Ssh};
use forebay_actuate::route::{AddressPlace, AddressRoute, LeaseHolder, ProxyRoute, QmpRoute};
use forebay_actuate::{Control, Endpoint, Provider, Route};
use forebay_control::response::{Draining, Way};
use forebay_nbd::{Transport, Uri};
use std::io;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// What starts appliances on a host; `folder` is where it keeps what it must know.
pub(super) fn provider(host: &HostTable, folder: PathBuf) -> io::Result<Box<dyn Provider>> {
    let forebay = |program: &Option<PathBuf>| program.clone().map_or_else(std::env::current_exe, Ok);
    Ok(match &host.provider {
        ProviderTable::Process { program } => Box::new(LocalProcess::new(folder, forebay(program)?)?),
        ProviderTable::Namespace { namespace, address, program, .. } => {
            Box::new(LocalProcess::in_namespace(folder, forebay(program)?, *address, namespace)?)
        }
        ProviderTable::Ssh { destination, address, options, program, folder } => {
            let program = program.as_deref().unwrap_or("forebay");
            let folder = folder.as_deref().unwrap_or("forebay-appliances");
            Box::new(Ssh { options: options.clone(), ..Ssh::new(destination, program, folder, *address) })
        }
        ProviderTable::Qemu { image, program, accelerator } => {
            let mut qemu = Qemu::new(folder, Image::in_folder(image))?;
            qemu.program = program.clone().unwrap_or(qemu.program);
            qemu.accelerator = accelerator.clone().unwrap_or(qemu.accelerator);
            Box::new(qemu)
        }
        ProviderTable::Libvirt { image, connection, kind } => {
            let mut libvirt = Libvirt::new(folder, connection, Image::in_folder(image))?;
            libvirt.kind = kind.clone().unwrap_or(libvirt.kind);
            Box::new(libvirt)
        }
    })
}

/// What moves the clients of a volume; `None` for one that is only watched.
pub(super) fn route(config: &FleetConfig, volume: &VolumeTable) -> Option<Box<dyn Route>> {
    Some(match volume.route.as_ref()? {
        RouteTable::Proxy { server, token } => {
            let control = Control { address: server.clone(), token: token.clone() };
            Box::new(ProxyRoute { control, volume: volume.name.clone() })
        }
        RouteTable::Qmp { socket, node, first, reconnect_delay_s, device } => Box::new(QmpRoute {
            reconnect_delay_s: *reconnect_delay_s,
            device: device.clone(),
            original: Some(volume.export(None)),
            ..QmpRoute::raw(socket, node, first)
        }),
        RouteTable::Address { address, interface, namespace } => {
            let in_folder = |name: &String| Path::new("/run/netns").join(name);
            let mut places = vec![AddressPlace {
                endpoint: Endpoint::new(volume.export(None)),
                namespace: namespace.as_ref().map(in_folder),
                interface: interface.clone(),
                holder: LeaseHolder::Original,
            }];
            // An appliance there serves at the port of the origin, and calls the volume as the storage side does.
            let port = port(volume)?;
            places.extend(config.host.iter().filter_map(|host| match &host.provider {
                ProviderTable::Namespace { namespace, address, interface: Some(interface), .. } => {
                    let uri = Uri::tcp(address.to_string(), port, volume.export(None).export);
                    Some(AddressPlace {
                        endpoint: Endpoint::new(uri),
                        namespace: Some(in_folder(namespace)),
                        interface: interface.clone(),
                        holder: LeaseHolder::Named,
                    })
                }
                _ => None,
            }));
            Box::new(AddressRoute { address: *address, places, lease: volume.lease() })
        }
    })
}

/// How a switch of a volume's route brings the old path to its end.
pub(super) fn draining(volume: &VolumeTable, route: Option<&dyn Route>) -> Draining {
    match (route, port(volume)) {
        (Some(route), _) if !route.drains() => Draining::Not,
        (Some(_), Some(_)) => Draining::ByLease,
        (Some(_), None) => Draining::ByItself,
        (None, _) => Draining::Not,
    }
}

/// By what a volume's data, its lease and its clients are reached.
pub(super) fn way(volume: &VolumeTable) -> Way {
    let shown = volume.origin.shown();
    // Two exports may be shown alike; part of a checksum tells them apart, and no secret.
    let origin = match shown.export == volume.origin.export {
        true => shown.to_string(),
        false => format!("{shown} (checksum {:08x})", xxh3_64(volume.origin.export.as_bytes()) as u32),
    };
    let mut keys = vec![("origin", origin)];
    keys.extend(volume.watch.as_ref().map(|watch| ("watch", watch.to_string())));
    keys.push(("leased", volume.leased.to_string()));
    // What is wanted and what is there are counted in it.
    keys.push(("block_size", volume.block_size.to_string()));
    match &volume.route {
        None => {}
        Some(RouteTable::Proxy { server, .. }) => {
            keys.extend([("route.type", "proxy".to_owned()), ("route.server", server.to_string())]);
        }
        Some(RouteTable::Qmp { socket, node, first, .. }) => keys.extend([
            ("route.type", "qmp".to_owned()),
            ("route.socket", socket.display().to_string()),
            ("route.node", node.clone()),
            ("route.first", first.clone()),
        ]),
        Some(RouteTable::Address { address, interface, namespace }) => {
            keys.extend([
                ("route.type", "address".to_owned()),
                ("route.address", format!("{}/{}", address.address, address.prefix)),
                ("route.interface", interface.clone()),
            ]);
            keys.extend(namespace.iter().map(|namespace| ("route.namespace", namespace.clone())));
        }
    }
    Way::new(keys)
}

/// The port at which clients of a volume come whose address moves.
pub(super) fn port(volume: &VolumeTable) -> Option<u16> {
    match (&volume.route, &volume.origin.transport) {
        (Some(RouteTable::Address { .. }), Transport::Tcp { port, .. }) => Some(*port),
        _ => None,
    }
}
