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
use crate::{ApplianceId, ApplianceOrder, Deadline, Listed, Running};
use forebay_units::{Bytes, Secret};
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// What `virsh` said has come by then once it has ended (ours).
const LAST_WORDS: Duration = Duration::from_millis(200);

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

    /// Whether libvirt has such a machine; else why it does not say.
    fn has(&self, id: &ApplianceId, deadline: Deadline) -> Result<bool, String> {
        let names = self.ask(&["list", "--all", "--name"], deadline)?;
        Ok(names.lines().any(|line| line.trim() == name(id)))
    }

    /// What `virsh` answers in time, or why it does not.
    fn ask(&self, words: &[&str], deadline: Deadline) -> Result<String, String> {
        let asked = Command::new("virsh")
            .args(["--connect", &self.connection, "--quiet"])
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut asked = asked.map_err(|error| format!("`virsh` cannot be run: {error}"))?;
        // Neither is waited for: they end when `virsh` does, or whoever it has started to connect.
        let (answer, said) = (heard(asked.stdout.take()), heard(asked.stderr.take()));
        let Some(ended) = deadline.wait_for(|| asked.try_wait().ok().flatten()) else {
            let _ = asked.kill();
            let _ = asked.wait();
            return Err("nothing was heard in time".to_owned());
        };
        let text = |of: Receiver<String>| of.recv_timeout(LAST_WORDS).unwrap_or_default();
        match ended.success() {
            true => Ok(text(answer)),
            false => {
                let said: Vec<String> = text(said).lines().map(|line| line.trim().to_owned()).collect();
                Err(said.join(" | "))
            }
        }
    }
}

/// All that comes of a pipe, once it has ended.
fn heard(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = channel();
    let mut pipe = pipe.expect("piped");
    std::thread::spawn(move || {
        let mut all = Vec::new();
        let _ = pipe.read_to_end(&mut all);
        let _ = sender.send(String::from_utf8_lossy(&all).into_owned());
    });
    receiver
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

    fn list(&self, token: &Secret, _: Deadline) -> Result<Vec<Listed>, ProvisionError> {
        self.keeper.list(token)
    }

    fn stop(&self, id: &ApplianceId, deadline: Deadline) -> Result<(), ProvisionError> {
        self.keeper.stop(id, deadline)?;
        // Libvirt destroys it once it sees that who made it is gone, unless libvirt is another by then. What does not answer may have it yet.
        let mut reason = String::new();
        let gone = deadline.wait_for(|| match self.has(id, deadline) {
            Ok(false) => Some(()),
            Ok(true) => {
                "libvirt has not destroyed it yet".clone_into(&mut reason);
                let _ = self.ask(&["destroy", &name(id)], deadline);
                None
            }
            Err(why) => {
                // Of the last question, which had no time left, nothing is known.
                if reason.is_empty() || !deadline.is_over() {
                    reason = format!("libvirt does not say that it is gone: {why}");
                }
                None
            }
        });
        gone.ok_or_else(|| ProvisionError::StillThere { id: id.clone(), reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A libvirt that died leaves its machines running. Where there is no `virsh` it is the same: nobody says anything.
    #[test]
    fn where_no_libvirt_says_that_a_machine_is_gone_it_is_not_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let image = Image::in_folder(&folder.path().join("image"));
        let connection = format!("qemu:///system?socket={}", folder.path().join("nobody.sock").display());
        let provider = Libvirt::new(folder.path().join("appliances"), connection, image).unwrap();
        let stopped = provider.stop(&"a".parse().unwrap(), Deadline::after(Duration::from_secs(2)));
        let Err(ProvisionError::StillThere { reason, .. }) = stopped else { panic!("{stopped:?}") };
        assert!(reason.starts_with("libvirt does not say that it is gone: "), "{reason}");
    }
}
