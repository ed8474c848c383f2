//! The first process of a virtual machine that is an appliance: makes of a bare kernel what `forebay appliance` needs, and switches the machine off at the end.
//!
//! The image (`make appliance-image`) is a kernel, a few of its modules, and `forebay`; nothing else runs in it. The order is a configuration of `forebay
//! appliance`, which the hypervisor hands over past the command line (QEMU's fw_cfg, `opt/forebay/order`), since it has secrets. The command line says the
//! address: `forebay.address=10.0.2.15/24 forebay.gateway=10.0.2.2`.

use crate::Deadline;
use crate::netlink::Netlink;
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, finit_module, reboot};
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// The modules, and in the file `order` their names in the order in which they are loaded.
const MODULES: &str = "/modules";
/// Where the hypervisor's order is found.
const ORDER: &str = "/sys/firmware/qemu_fw_cfg/by_name/opt/forebay/order/raw";
/// Where it is put, for whoever reads configurations.
const CONFIGURATION: &str = "/appliance.toml";
/// A device may appear a moment after its driver (ours).
const DEVICES_WITHIN: Duration = Duration::from_secs(10);

/// Why a machine cannot become an appliance.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GuestError {
    /// This is no machine of its own.
    #[error(
        "this is not the first process of a machine, but process {pid}: it is for the image of an appliance"
    )]
    NotFirst {
        /// What it is.
        pid: u32,
    },
    /// Something of the kernel's cannot be had.
    #[error("cannot {doing}")]
    System {
        /// What was being done.
        doing: String,
        /// Why.
        source: io::Error,
    },
    /// The command line says nothing of the network, or nothing that is understood.
    #[error("`{parameter}` is missing on the kernel's command line, or is not as in `{example}`: `{found}`")]
    Parameter {
        /// Which.
        parameter: &'static str,
        /// How it is written.
        example: &'static str,
        /// The command line.
        found: String,
    },
}

fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> GuestError {
    let doing = doing.into();
    move |source| GuestError::System { doing, source }
}

/// File systems, drivers, network, order. Returns the configuration's path.
///
/// # Errors
/// [`GuestError`].
pub fn prepare() -> Result<PathBuf, GuestError> {
    let pid = std::process::id();
    if pid != 1 {
        return Err(GuestError::NotFirst { pid });
    }
    for (kind, target) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys")] {
        let mounted = std::fs::create_dir_all(target)
            .and_then(|()| mount(kind, target, kind, MountFlags::empty(), None::<&CStr>).map_err(Into::into));
        mounted.map_err(system(format!("mount {target}")))?;
    }
    let command_line = std::fs::read_to_string("/proc/cmdline").map_err(system("read the command line"))?;
    let network = Network::parse(&command_line)?;
    load_modules()?;
    network.begin()?;
    let order = Deadline::after(DEVICES_WITHIN).wait_for(|| std::fs::read(ORDER).ok());
    let order = order.ok_or_else(|| {
        system("read the order that the hypervisor was to hand over")(io::ErrorKind::NotFound.into())
    })?;
    let path = PathBuf::from(CONFIGURATION);
    let file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&path);
    file.and_then(|mut file| file.write_all(&order)).map_err(system("keep the order"))?;
    Ok(path)
}

/// Switches the machine off.
pub fn power_off() {
    rustix::fs::sync();
    // What was said last is still on its way to the console.
    let _ = rustix::termios::tcdrain(std::io::stderr());
    if let Err(error) = reboot(RebootCommand::PowerOff) {
        eprintln!("the machine cannot be switched off: {error}");
    }
}

fn load_modules() -> Result<(), GuestError> {
    let folder = Path::new(MODULES);
    let order =
        std::fs::read_to_string(folder.join("order")).map_err(system("read the list of kernel modules"))?;
    for name in order.split_ascii_whitespace() {
        let loaded = File::open(folder.join(format!("{name}.ko")))
            .and_then(|file| finit_module(file, c"", 0).map_err(io::Error::from));
        match loaded {
            // It is built in, or was loaded.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            loaded => loaded.map_err(system(format!("load the kernel module `{name}`")))?,
        }
    }
    Ok(())
}

/// How the machine is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    prefix: u8,
    gateway: Option<IpAddr>,
}

impl Network {
    fn parse(command_line: &str) -> Result<Network, GuestError> {
        let value = |parameter: &str| {
            let mut words = command_line.split_ascii_whitespace();
            words.find_map(|word| word.strip_prefix(parameter)?.strip_prefix('='))
        };
        let wrong = |parameter, example| GuestError::Parameter {
            parameter,
            example,
            found: command_line.trim().to_owned(),
        };
        let address = || {
            let (address, prefix) = value("forebay.address")?.split_once('/')?;
            let (address, prefix): (IpAddr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
            (prefix <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, prefix))
        };
        let (address, prefix) =
            address().ok_or_else(|| wrong("forebay.address", "forebay.address=10.0.2.15/24"))?;
        let gateway = value("forebay.gateway").map(str::parse).transpose();
        let gateway = gateway.map_err(|_| wrong("forebay.gateway", "forebay.gateway=10.0.2.2"))?;
        Ok(Network { address, prefix, gateway })
    }

    fn begin(self) -> Result<(), GuestError> {
        let index = |interface: &str| {
            let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/ifindex")).ok()?;
            text.trim().parse::<u32>().ok()
        };
        let mut netlink = Netlink::open().map_err(system("speak with the kernel about the network"))?;
        for interface in ["lo", "eth0"] {
            let index = Deadline::after(DEVICES_WITHIN).wait_for(|| index(interface)).ok_or_else(|| {
                system(format!("find the network interface `{interface}`"))(io::ErrorKind::NotFound.into())
            })?;
            netlink.set_up(index).map_err(system(format!("switch on `{interface}`")))?;
            if interface == "eth0" {
                let added = netlink.keep(index, self.address, self.prefix);
                added.map_err(system(format!("give `{interface}` the address {}", self.address)))?;
            }
        }
        if let Some(gateway) = self.gateway {
            netlink.add_default_route(gateway).map_err(system(format!("route through {gateway}")))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_is_read_from_the_command_line() {
        let network = Network::parse("console=ttyS0 forebay.address=10.0.2.15/24 forebay.gateway=10.0.2.2\n");
        let expected = Network {
            address: "10.0.2.15".parse().unwrap(),
            prefix: 24,
            gateway: Some("10.0.2.2".parse().unwrap()),
        };
        assert_eq!(network.unwrap(), expected);
        assert_eq!(Network::parse("forebay.address=fd00::2/64").unwrap().gateway, None);
        for bad in ["", "forebay.address=10.0.2.15", "forebay.address=10.0.2.15/33", "forebay.address=x/24"] {
            let error = Network::parse(bad).unwrap_err().to_string();
            assert!(error.contains("forebay.address"), "{error}");
        }
        assert!(Network::parse("forebay.address=10.0.2.15/24 forebay.gateway=x").is_err());
    }

    #[test]
    fn nobody_but_the_first_process_prepares_a_machine() {
        assert!(matches!(prepare(), Err(GuestError::NotFirst { .. })));
    }
}
