//! Appliances as virtual machines by libvirt, through `virsh`: the library is under the LGPL, and is run, not linked.
//!
//! A machine is a transient domain that libvirt destroys when the `virsh` that made it ends (`--autodestroy`). That `virsh` waits for the domain's next
//! event, its end say, and ends with it: so the one process stands for the machine, and is found, watched and ended like any other.

use super::keeper::{Keeper, Launch, Ports};
use super::local::over_tcp;
use super::qemu::{
    GUEST, HTTP_PORT, Image, MACHINE_OVERHEAD, NBD_PORT, READY, inner_configuration, kernel_parameters,
};
use super::{Provider, ProvisionError, refuse_port};
use crate::{ApplianceId, ApplianceOrder, Deadline, Running};
use forebay_units::Bytes;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

/// Appliances as virtual machines of a libvirt.
///
/// The emulator of that libvirt must be able to read the folder, which is its owner's alone: a session's libvirt (`qemu:///session`) can, and so can one whose
/// machines run as the same user.
pub struct Libvirt {
    keeper: Keeper,
    image: Image,
    connection: String,
    /// What runs the machine's instructions, as libvirt calls it: `kvm` (the processor), unless it is set to `qemu` (software).
    pub kind: String,
}

impl Libvirt {
    /// Keeps what it must know of each appliance in `folder`, which it makes, and has the libvirt at `connection` (as in `qemu:///session`) boot `image`.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn new(
        folder: impl Into<std::path::PathBuf>,
        connection: impl Into<String>,
        image: Image,
    ) -> io::Result<Libvirt> {
        let (keeper, connection) = (Keeper::new(folder.into())?, connection.into());
        Ok(Libvirt { keeper, image, connection, kind: "kvm".to_owned() })
    }

    /// The domain, as libvirt describes one.
    fn domain(&self, order: &ApplianceOrder, ports: Ports, folder: &Path) -> String {
        let path = |path: &Path| escaped(&path.display().to_string());
        let forward = |port: u16, to: u16| format!("hostfwd=tcp:127.0.0.1:{port}-{GUEST}:{to}");
        format!(
            "<domain type='{kind}' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>\n\
             <name>{name}</name>\n<memory unit='MiB'>{mebibytes}</memory>\n<vcpu>1</vcpu>\n\
             <os><type arch='x86_64' machine='q35'>hvm</type><kernel>{kernel}</kernel><initrd>{initramfs}</initrd>\
             <cmdline>{parameters}</cmdline></os>\n\
             <sysinfo type='fwcfg'><entry name='opt/forebay/order' file='{order}'/></sysinfo>\n\
             <features><acpi/></features><cpu mode='maximum'/>\n<on_reboot>destroy</on_reboot>\n<on_crash>destroy</on_crash>\n\
             <devices><serial type='file'><source path='{log}' append='on'/></serial>\
             <controller type='usb' model='none'/><memballoon model='none'/></devices>\n\
             <qemu:commandline><qemu:arg value='-netdev'/><qemu:arg value='user,id=net,{nbd},{http}'/>\
             <qemu:arg value='-device'/><qemu:arg value='virtio-net-pci,netdev=net,romfile=,addr=0x10'/></qemu:commandline>\n\
             </domain>\n",
            kind = escaped(&self.kind),
            name = name(&order.id),
            mebibytes = order.memory.get() >> 20,
            kernel = path(&self.image.kernel),
            initramfs = path(&self.image.initramfs),
            parameters = escaped(&kernel_parameters()),
            order = path(&folder.join("appliance.toml")),
            log = path(&folder.join("log")),
            nbd = forward(ports.nbd, NBD_PORT),
            http = forward(ports.http, HTTP_PORT),
        )
    }

    /// Whether libvirt has no such machine; `None` if it does not say so in time.
    fn is_gone(&self, id: &ApplianceId, deadline: Deadline) -> Option<bool> {
        let mut asked = Command::new("virsh")
            .args(["--connect", &self.connection, "--quiet", "domid", &name(id)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let ended = deadline.wait_for(|| asked.try_wait().ok().flatten());
        if ended.is_none() {
            let _ = asked.kill();
            let _ = asked.wait();
        }
        ended.map(|status| !status.success())
    }
}

fn name(id: &ApplianceId) -> String {
    format!("forebay-{id}")
}

/// `text` inside of XML, also of its attributes.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('\'', "&apos;")
}

impl Provider for Libvirt {
    fn start(&self, order: &ApplianceOrder, deadline: Deadline) -> Result<Running, ProvisionError> {
        let room = order.check(MACHINE_OVERHEAD)?;
        refuse_port(order)?;
        self.keeper.start(order, deadline, |folder| {
            let ports = Ports::of(&order.id);
            let at = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
            let domain = folder.join("domain.xml");
            let making =
                format!("create '{}' --autodestroy; event {} lifecycle", domain.display(), name(&order.id));
            Ok(Launch {
                command: ["virsh", "--connect", &self.connection, "--quiet", &making]
                    .map(Into::into)
                    .to_vec(),
                files: vec![
                    ("appliance.toml", inner_configuration(order, room)?),
                    ("domain.xml", self.domain(order, ports, folder).into_bytes()),
                ],
                running: over_tcp(order, at(ports.nbd), at(ports.http)),
                knows_its_number: false,
                says_when_ready: Some(READY),
                diagnose: None,
            })
        })
    }

    fn overhead(&self) -> Bytes {
        MACHINE_OVERHEAD
    }

    fn find(&self, id: &ApplianceId) -> Result<Option<Running>, ProvisionError> {
        self.keeper.find(id)
    }

    fn stop(&self, id: &ApplianceId, deadline: Deadline) -> Result<(), ProvisionError> {
        self.keeper.stop(id, deadline)?;
        // It is destroyed once libvirt sees that who made it is gone.
        let gone = deadline.wait_for(|| self.is_gone(id, deadline).filter(|gone| *gone));
        let reason = "libvirt has not destroyed it yet, or does not answer".to_owned();
        gone.map(drop).ok_or_else(|| ProvisionError::StillThere { id: id.clone(), reason })
    }
}
