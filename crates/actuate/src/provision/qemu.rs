//! Appliances as virtual machines, by QEMU directly.
//!
//! The machine boots the image of `make appliance-image` and has a network of QEMU's own, in which only QEMU reaches it: two ports of a loopback
//! address of this host lead to its NBD and its control API. The order is handed over past the command line. Nothing of it outlives it.

use super::configuration::{Listeners, configuration};
use super::keeper::{Keeper, Launch, NOTHING, Ports};
use super::local::over_tcp;
use super::{Provider, ProvisionError, refuse_port};
use crate::qmp::Qmp;
use crate::{ApplianceId, ApplianceOrder, Deadline, Listed, Running};
use forebay_nbd::Transport;
use forebay_units::{Bytes, Secret};
use serde_json::json;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a machine needs besides its caches: kernel, image and `forebay`; 116 MiB were measured with an image of 40 MiB (ours).
const GUEST_OVERHEAD: Bytes = Bytes::mib(144);
/// What QEMU takes of the host beside the memory that it gives the machine: 31 MiB before that does anything, what it keeps translated, and some to spare (ours).
const HYPERVISOR_OVERHEAD: Bytes = Bytes::mib(80);
/// What QEMU may keep of translated code where it emulates in software. By itself it takes up to 1 GiB, as the machine comes to do more; an appliance that serves does the same over and over.
pub(super) const TRANSLATED_MIB_MAX: u64 = 32;
/// What an appliance takes of its host besides its caches.
pub const MACHINE_OVERHEAD: Bytes = Bytes(GUEST_OVERHEAD.get() + HYPERVISOR_OVERHEAD.get());
/// The ports in the machine.
pub(super) const NBD_PORT: u16 = 10_809;
pub(super) const HTTP_PORT: u16 = 9_809;
/// The machine in QEMU's network, and this host as it is seen from there.
pub(super) const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
pub(super) const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// The part of [`GUEST`] that names its network: whoever has an address of it elsewhere is not reached from there.
const NETWORK_OCTETS: [u8; 3] = [10, 0, 2];
/// What the appliance in it says once it serves.
pub(super) const READY: &str = "ready: ";

/// The socket of QEMU's monitor, in the appliance's folder.
const MONITOR: &str = "qmp.sock";
/// The path of a socket has as many bytes at most (unix(7)).
pub const SOCKET_BYTES_MAX: usize = 107;

/// A kernel and a first file system, as `make appliance-image` makes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The kernel.
    pub kernel: PathBuf,
    /// The first file system.
    pub initramfs: PathBuf,
}

impl Image {
    /// That in `folder`.
    pub fn in_folder(folder: &Path) -> Image {
        Image { kernel: folder.join("vmlinuz"), initramfs: folder.join("initramfs") }
    }
}

/// Appliances as virtual machines of this host, each a process of QEMU.
pub struct Qemu {
    keeper: Keeper,
    image: Image,
    /// The program: `qemu-system-x86_64`, unless it is set.
    pub program: PathBuf,
    /// What runs the machine's instructions, as QEMU calls it: `kvm:tcg` (the processor, or software where that cannot be), unless it is set. Where QEMU itself fails with the first (a
    /// KVM that is there and does not work), the next is tried.
    pub accelerator: String,
}

impl Qemu {
    /// Keeps what it must know of each appliance in `folder`, which it makes, and boots `image`.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn new(folder: impl Into<PathBuf>, image: Image) -> io::Result<Qemu> {
        Ok(Qemu {
            keeper: Keeper::new(folder.into())?,
            image,
            program: "qemu-system-x86_64".into(),
            accelerator: "kvm:tcg".to_owned(),
        })
    }

    fn command(
        &self,
        accelerator: &str,
        order: &ApplianceOrder,
        ports: Ports,
        folder: &Path,
    ) -> Vec<OsString> {
        let forward = |port: u16, to: u16| format!("hostfwd=tcp:127.0.0.1:{port}-{GUEST}:{to}");
        let network =
            format!("user,id=net,{},{}", forward(ports.nbd, NBD_PORT), forward(ports.http, HTTP_PORT));
        let mebibytes = machine_mebibytes(order);
        let mut command: Vec<OsString> = vec![self.program.clone().into()];
        command.extend(["-name".into(), format!("forebay-{}", order.id).into()]);
        command.extend(["-machine", "q35"].map(OsString::from));
        for accelerator in accelerator.split(':') {
            let bound = match accelerator {
                "tcg" => format!(",tb-size={TRANSLATED_MIB_MAX}"),
                _ => String::new(),
            };
            command.extend(["-accel".into(), format!("{accelerator}{bound}").into()]);
        }
        command.extend(["-cpu", "max", "-nodefaults", "-no-user-config", "-no-reboot"].map(OsString::from));
        command.extend(["-display", "none", "-serial", "stdio"].map(OsString::from));
        command.extend(["-m".into(), format!("{mebibytes}M").into()]);
        command.extend(["-kernel".into(), self.image.kernel.clone().into()]);
        command.extend(["-initrd".into(), self.image.initramfs.clone().into()]);
        command.extend(["-append".into(), kernel_parameters().into()]);
        command.extend(["-netdev".into(), network.into()]);
        command.extend(["-device", "virtio-net-pci,netdev=net,romfile="].map(OsString::from));
        command.push("-fw_cfg".into());
        command.push(option("name=opt/forebay/order,file=", &folder.join("appliance.toml"), ""));
        command.push("-qmp".into());
        let socket = folder.join(MONITOR);
        // It runs in its folder; by the whole path a program that leaves it finds its way, too.
        let is_short = socket.as_os_str().len() <= SOCKET_BYTES_MAX;
        let socket = if is_short { &socket } else { Path::new(MONITOR) };
        command.push(option("unix:", socket, ",server=on,wait=off"));
        command
    }
}

/// The memory of the machine of an appliance: what is left of that which was ordered for it.
pub(super) fn machine_mebibytes(order: &ApplianceOrder) -> u64 {
    order.memory.get().saturating_sub(HYPERVISOR_OVERHEAD.get()) >> 20
}

/// What the kernel and the first process are told: nothing secret. On a busy host a kernel that is emulated in software may miss the interrupts by which it looks whether its timer works, and panics.
pub(super) fn kernel_parameters() -> String {
    format!(
        "console=ttyS0 quiet panic=-1 no_timer_check NO_COLOR=1 rdinit=/forebay forebay.address={GUEST}/24 forebay.gateway={HOST} -- guest"
    )
}

/// A path as a part of one of QEMU's options, in which a comma is written twice.
pub(super) fn option(before: &str, path: &Path, after: &str) -> OsString {
    format!("{before}{}{after}", path.display().to_string().replace(',', ",,")).into()
}

/// The order as it is seen from inside: what this host has on a loopback address is at the host's address there.
pub(super) fn seen_from_inside(order: &ApplianceOrder) -> Result<ApplianceOrder, ProvisionError> {
    let impossible = |reason: String| ProvisionError::Impossible { id: order.id.clone(), reason };
    let mut order = order.clone();
    for volume in &mut order.volumes {
        if volume.origin.tls.is_some() {
            return Err(impossible(format!(
                "the origin of volume `{}` asks for TLS, whose files are not in the image",
                volume.name
            )));
        }
        match &mut volume.origin.uri.transport {
            Transport::Unix { path } => {
                return Err(impossible(format!(
                    "the origin of volume `{}` is the unix socket `{}`, which is not reached from a virtual machine",
                    volume.name,
                    path.display()
                )));
            }
            Transport::Tcp { host, port } => {
                let inside = inside(host, *port).map_err(|why| {
                    impossible(format!("the origin of volume `{}` is at `{host}`, {why}", volume.name))
                })?;
                *host = inside.to_string();
            }
        }
    }
    Ok(order)
}

/// Where a virtual machine of this host finds what is there at `address`.
///
/// # Errors
/// Why it does not: QEMU leads its own network's address of the host to 127.0.0.1 and to no other of the host's loopback addresses, and another server may be there.
fn address_inside(address: IpAddr) -> Result<Ipv4Addr, &'static str> {
    match address {
        IpAddr::V4(Ipv4Addr::LOCALHOST) => Ok(HOST),
        address if address.is_loopback() || address.is_unspecified() => Err(
            "a loopback address that is not reached from a virtual machine: of these it reaches 127.0.0.1 alone",
        ),
        IpAddr::V6(_) => {
            Err("an IPv6 address, which is not reached from a virtual machine: its network is one of IPv4")
        }
        IpAddr::V4(address) if address.octets()[..3] == NETWORK_OCTETS => Err(
            "an address of 10.0.2.0/24, which is the virtual machine's own network and not reached from there",
        ),
        IpAddr::V4(address) => Ok(address),
    }
}

/// Why a virtual machine of this host does not reach what is at `transport`, as far as that can be said without asking anybody for names; `None` if it may.
pub fn out_of_reach(transport: &Transport) -> Option<&'static str> {
    match transport {
        Transport::Unix { .. } => Some("a unix socket, which is not reached from a virtual machine"),
        Transport::Tcp { host, .. } => address_inside(host.parse().ok()?).err(),
    }
}

/// The same of a host by its name, too, which is looked up here: nobody answers for names in the machine.
fn inside(host: &str, port: u16) -> Result<Ipv4Addr, String> {
    if let Ok(address) = host.parse() {
        return address_inside(address).map_err(|why| why.to_owned());
    }
    let found =
        (host, port).to_socket_addrs().map_err(|error| format!("a name that was not found: {error}"))?;
    let mut refused = "a name without an address".to_owned();
    for address in found {
        match address_inside(address.ip()) {
            Ok(address) => return Ok(address),
            Err(why) => refused = format!("a name of {}, {why}", address.ip()),
        }
    }
    Err(refused)
}

/// The configuration of the appliance in the machine.
pub(super) fn inner_configuration(order: &ApplianceOrder, room: Bytes) -> Result<Vec<u8>, ProvisionError> {
    let listeners = Listeners {
        nbd: format!("tcp:0.0.0.0:{NBD_PORT}"),
        http: Some(format!("0.0.0.0:{HTTP_PORT}")),
        http_socket: None,
        secret: Some(&order.token),
        // Emulated in software, on a host that is busy, it takes its time; whoever starts it says how long that may be.
        patience: Some("30s"),
    };
    Ok(configuration(&seen_from_inside(order)?, room, &listeners))
}

/// What a kernel or a first process says of itself that has to do with the image: of a slow machine the first may be all that is heard in time.
const SAID_OF_IMAGES: [&str; 3] = ["Initramfs unpacking", "Kernel panic", "kernel module"];

/// The error, with which image it was, where that may be why: what the kernel or the first process says names none of the host's files.
pub(super) fn naming_image(mut error: ProvisionError, image: &Image) -> ProvisionError {
    if let ProvisionError::Died { said, .. } | ProvisionError::NotInTime { said, .. } = &mut error
        && (said == NOTHING || SAID_OF_IMAGES.iter().any(|words| said.contains(words)))
    {
        let (kernel, initramfs) = (image.kernel.display(), image.initramfs.display());
        let booted = format!("; it was booted from `{kernel}` and `{initramfs}`");
        said.push_str(&booted);
        said.push_str(
            ": if one is damaged, or they do not belong together, make them anew (`make appliance-image`)",
        );
    }
    error
}

/// What QEMU says of a machine that does not serve.
fn diagnose(folder: &Path) -> String {
    let deadline = Deadline::after(Duration::from_millis(200));
    // Through the open folder, since a socket's path is short.
    let held = File::open(folder);
    let was_made = folder.join(MONITOR).exists();
    let folder = match &held {
        Ok(held) => PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd())),
        Err(_) => folder.to_owned(),
    };
    let asked = Qmp::connect(&folder.join(MONITOR), deadline)
        .and_then(|mut monitor| monitor.run("query-status", json!({}), deadline));
    match asked {
        Ok(status) => {
            format!("its hypervisor says that the machine is `{}`", status["status"].as_str().unwrap_or("?"))
        }
        Err(error) if was_made => format!("its hypervisor hangs: {error}"),
        Err(_) => "its hypervisor hangs before it has made the socket of its monitor, or `program` does not run it: a script has to run \
                   `qemu-system-x86_64` with the arguments that it is given, as in `exec qemu-system-x86_64 \"$@\"`"
            .to_owned(),
    }
}

impl Qemu {
    fn start_with(
        &self,
        accelerator: &str,
        order: &ApplianceOrder,
        deadline: Deadline,
    ) -> Result<Running, ProvisionError> {
        let room = order.check(MACHINE_OVERHEAD)?;
        refuse_port(order)?;
        self.keeper.start(order, deadline, |folder| {
            let ports = Ports::of(&order.id);
            let at = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
            Ok(Launch {
                command: self.command(accelerator, order, ports, folder),
                files: vec![("appliance.toml", inner_configuration(order, room)?)],
                running: over_tcp(order, at(ports.nbd), at(ports.http)),
                knows_its_number: false,
                says_when_ready: Some(READY),
                diagnose: Some(diagnose),
            })
        })
    }
}

impl Provider for Qemu {
    fn start(&self, order: &ApplianceOrder, deadline: Deadline) -> Result<Running, ProvisionError> {
        let mut accelerators = &*self.accelerator;
        loop {
            match (self.start_with(accelerators, order, deadline), accelerators.split_once(':')) {
                (Err(error @ ProvisionError::Died { failed: true, .. }), Some((_, others))) => {
                    tracing::warn!(id = %order.id, %error, "QEMU fails; it is tried with `{others}`");
                    accelerators = others;
                }
                (outcome, _) => return outcome.map_err(|error| naming_image(error, &self.image)),
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endpoint, VolumeOrder};

    fn order(uri: &str) -> ApplianceOrder {
        ApplianceOrder {
            id: "a".parse().unwrap(),
            host: String::new(),
            memory: Bytes::mib(336),
            volumes: vec![VolumeOrder::new("db", Endpoint::new(uri.parse().unwrap()), Bytes::mib(16))],
            port: None,
            interval_ms: None,
            token: Secret::new("0123456789abcdef").unwrap(),
        }
    }

    #[test]
    fn origins_are_named_as_the_machine_sees_them() {
        let inside =
            |uri: &str| seen_from_inside(&order(uri)).map(|order| order.volumes[0].origin.uri.to_string());
        assert_eq!(inside("nbd://127.0.0.1:1/x").unwrap(), "nbd://10.0.2.2:1/x");
        assert_eq!(inside("nbd://localhost:1/x@7").unwrap(), "nbd://10.0.2.2:1/x@7");
        assert_eq!(inside("nbd://10.1.0.9:1/x").unwrap(), "nbd://10.1.0.9:1/x");
        assert!(matches!(inside("nbd+unix:///x?socket=/s"), Err(ProvisionError::Impossible { .. })));
    }

    /// Whoever has the port at 127.0.0.1 may serve other data.
    #[test]
    fn an_origin_that_the_machine_would_not_find_is_refused() {
        for (host, why) in [
            ("127.0.0.2", "it reaches 127.0.0.1 alone"),
            ("[::1]", "it reaches 127.0.0.1 alone"),
            ("0.0.0.0", "it reaches 127.0.0.1 alone"),
            ("[fd00::9]", "its network is one of IPv4"),
            ("10.0.2.2", "the virtual machine's own network"),
            ("nowhere.invalid", "a name that was not found"),
        ] {
            let uri = format!("nbd://{host}:1/x");
            let Err(ProvisionError::Impossible { reason, .. }) = seen_from_inside(&order(&uri)) else {
                panic!("{host} is taken");
            };
            assert!(reason.contains(why) && reason.contains(host.trim_matches(['[', ']'])), "{reason}");
            let transport = order(&uri).volumes[0].origin.uri.transport.clone();
            assert_eq!(out_of_reach(&transport).is_some(), host != "nowhere.invalid", "{host}");
        }
    }

    #[test]
    fn what_may_be_the_images_fault_is_told_with_its_files() {
        let image = Image::in_folder(Path::new("/image"));
        let died = |said: &str| {
            let said = said.to_owned();
            let error =
                ProvisionError::Died { id: "a".parse().unwrap(), how: String::new(), failed: false, said };
            naming_image(error, &image).to_string()
        };
        let unpacking = "Initramfs unpacking failed: invalid magic at start of compressed archive";
        for said in [unpacking, "Kernel panic - not syncing: No working init found.", "nothing"] {
            let told = died(said);
            let parts = [said, "`/image/vmlinuz`", "`/image/initramfs`", "`make appliance-image`"];
            assert!(parts.iter().all(|part| told.contains(part)), "{told}");
        }
        let other = died("error: volume `db` cannot be served");
        assert!(!other.contains("image"), "{other}");
    }

    #[test]
    fn a_program_that_does_not_run_qemu_is_told_as_that() {
        let folder = tempfile::tempdir().unwrap();
        let told = diagnose(folder.path());
        assert!(
            told.contains("`program` does not run it") && told.contains("exec qemu-system-x86_64"),
            "{told}"
        );
        // It listens, and greets nobody.
        let _listener = std::os::unix::net::UnixListener::bind(folder.path().join(MONITOR)).unwrap();
        let told = diagnose(folder.path());
        assert!(told.starts_with("its hypervisor hangs: QEMU does not answer"), "{told}");
    }

    #[test]
    fn the_monitor_of_a_long_path_is_reached() {
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join("h".repeat(200));
        std::fs::create_dir(&long).unwrap();
        let qemu = Qemu::new(folder.path(), Image::in_folder(Path::new("/image"))).unwrap();
        let order = order("nbd://10.1.0.9/x");
        let monitor = |folder: &Path| {
            let command = qemu.command("tcg", &order, Ports::of(&order.id), folder);
            command.last().unwrap().to_string_lossy().into_owned()
        };
        assert_eq!(monitor(&long), "unix:qmp.sock,server=on,wait=off");
        assert_eq!(monitor(Path::new("/run/a")), "unix:/run/a/qmp.sock,server=on,wait=off");
        let held = File::open(&long).unwrap();
        let socket = format!("/proc/self/fd/{}/qmp.sock", held.as_raw_fd());
        let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
        let answering = std::thread::spawn(move || {
            use std::io::{BufRead, BufReader, Write};
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"{\"QMP\":{}}\r\n").unwrap();
            for line in BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok) {
                let asked: serde_json::Value = serde_json::from_str(&line).unwrap();
                let answer = json!({"return": {"status": "prelaunch"}, "id": asked["id"]});
                let _ = stream.write_all(format!("{answer}\r\n").as_bytes());
            }
        });
        assert_eq!(diagnose(&long), "its hypervisor says that the machine is `prelaunch`");
        answering.join().unwrap();
    }

    #[test]
    fn no_secret_is_on_the_command_line() {
        let folder = tempfile::tempdir().unwrap();
        let qemu = Qemu::new(folder.path(), Image::in_folder(Path::new("/image"))).unwrap();
        let order = order("nbd://10.1.0.9/x");
        let command = qemu.command("tcg", &order, Ports::of(&order.id), Path::new("/run/a,b"));
        let line: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let line = line.join(" ");
        assert!(!line.contains("0123456789abcdef"), "{line}");
        assert!(line.contains("file=/run/a,,b/appliance.toml") && line.contains("-m 256M"), "{line}");
        assert!(line.contains("-accel tcg,tb-size=32"), "{line}");
        let either = qemu.command("kvm:tcg", &order, Ports::of(&order.id), Path::new("/run/a"));
        let accelerators: Vec<_> =
            either.windows(2).filter(|pair| pair[0] == "-accel").map(|pair| &pair[1]).collect();
        assert_eq!(accelerators, ["kvm", "tcg,tb-size=32"]);
    }
}
