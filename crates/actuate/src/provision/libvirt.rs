//! Appliances as virtual machines by libvirt, through `virsh`: the library is under the LGPL, and is run, not linked.
//!
//! A machine is a transient domain that libvirt destroys when the `virsh` that made it ends (`--autodestroy`). That `virsh` tells what
//! happens to the domain, and is ended when that is its end: so the one process stands for the machine, and is found, watched and ended like any other.
//!
//! A libvirt may be others' as well, another controller's even, whose machines have the names of ours. So a domain is told by its UUID, which follows from one that is
//! kept with the appliances, and nothing is destroyed by its name.

use super::keeper::{Keeper, Launch, Ports, json, read, write};
use super::local::over_tcp;
use super::qemu::{
    GUEST, HTTP_PORT, Image, MACHINE_OVERHEAD, NBD_PORT, READY, TRANSLATED_MIB_MAX, inner_configuration,
    kernel_parameters, machine_mebibytes, naming_image, option,
};
use super::{Provider, ProvisionError, refuse_port};
use crate::{ApplianceId, ApplianceOrder, Deadline, Listed, Running};
use forebay_units::{Secret, mix64};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What `virsh` said has come by then once it has ended (ours).
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Becomes the `virsh` that makes a domain and tells what happens to it (its arguments), and interrupts it when the domain has ended: a machine may be suspended and resumed, or dumped while it
/// runs, and `virsh` cannot wait for one kind of event alone. Whoever reads ends with `virsh`, whose end of the pipe is the only one.
const STANDING_FOR_IT: &str = r#"
    export LC_ALL=C
    mkfifo events
    while read -r event; do
        printf '%s\n' "$event"
        case $event in *": Stopped "* | *": Crashed "*) kill -INT $$ ;; esac
    done <events &
    exec "$@" >events"#;
/// Beside the appliances' folders, none of which has a name with a dot: the UUID from which those of our domains follow.
const OWN_UUID: &str = "libvirt.uuid";

/// Appliances as virtual machines of a libvirt.
///
/// The emulator of that libvirt must be able to read the folder, which is its owner's alone: a session's libvirt (`qemu:///session`) can, and so can one whose
/// machines run as the same user.
pub struct Libvirt {
    keeper: Keeper,
    image: Image,
    connection: String,
    /// `virsh`.
    program: PathBuf,
    /// Held by who looks for [`OWN_UUID`], so that there is one.
    own: Mutex<()>,
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
        Ok(Libvirt {
            keeper,
            image,
            connection,
            program: "virsh".into(),
            own: Mutex::default(),
            kind: "kvm".to_owned(),
        })
    }

    /// The UUID of an appliance's domain, the same as long as the folder is there.
    fn uuid(&self, id: &ApplianceId) -> Result<String, ProvisionError> {
        let path = self.keeper.beside(OWN_UUID);
        let wrong = |source| ProvisionError::State { path: path.clone(), source };
        let _own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let kept: Option<String> = read(&path)?;
        let own = match &kept {
            Some(text) => parsed(text).ok_or_else(|| {
                let expected =
                    "expected a UUID in quotes: put it back from a backup, or remove it when no machine runs";
                wrong(io::Error::other(format!("`{}` was found, {expected}", text.escape_debug())))
            })?,
            None => {
                let mut bytes = [0; 16];
                File::open("/dev/urandom")
                    .and_then(|mut random| random.read_exact(&mut bytes))
                    .map_err(wrong)?;
                let own = u128::from_ne_bytes(bytes);
                write(&path, &json(&shown(own)))?;
                own
            }
        };
        Ok(shown(derived(own, id)))
    }

    /// The domain, as libvirt describes one.
    fn domain(&self, order: &ApplianceOrder, uuid: &str, ports: Ports, folder: &Path) -> String {
        let path = |path: &Path| escaped(&path.display().to_string());
        let order_file = folder.join("appliance.toml");
        // Libvirt (9.0) hands the path to QEMU as it is in XML, and does not write a comma twice.
        let (sysinfo, argument) = match order_file
            .display()
            .to_string()
            .contains(['&', '<', '>', '\'', '"', ','])
        {
            false => {
                let file = path(&order_file);
                (
                    format!(
                        "<sysinfo type='fwcfg'><entry name='opt/forebay/order' file='{file}'/></sysinfo>\n"
                    ),
                    String::new(),
                )
            }
            true => {
                let value = option("name=opt/forebay/order,file=", &order_file, "");
                let value = escaped(&value.to_string_lossy());
                (String::new(), format!("<qemu:arg value='-fw_cfg'/><qemu:arg value='{value}'/>"))
            }
        };
        let forward = |port: u16, to: u16| format!("hostfwd=tcp:127.0.0.1:{port}-{GUEST}:{to}");
        format!(
            "<domain type='{kind}' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>\n\
             <name>{name}</name>\n<uuid>{uuid}</uuid>\n<memory unit='MiB'>{mebibytes}</memory>\n<vcpu>1</vcpu>\n\
             <os><type arch='x86_64' machine='q35'>hvm</type><kernel>{kernel}</kernel><initrd>{initramfs}</initrd>\
             <cmdline>{parameters}</cmdline></os>\n\
             {sysinfo}<features><acpi/>{translated}</features><cpu mode='maximum'/>\n<on_reboot>destroy</on_reboot>\n<on_crash>destroy</on_crash>\n\
             <devices><serial type='file'><source path='{log}' append='on'/></serial>\
             <controller type='usb' model='none'/><memballoon model='none'/></devices>\n\
             <qemu:commandline><qemu:arg value='-netdev'/><qemu:arg value='user,id=net,{nbd},{http}'/>\
             <qemu:arg value='-device'/><qemu:arg value='virtio-net-pci,netdev=net,romfile=,addr=0x10'/>{argument}</qemu:commandline>\n\
             </domain>\n",
            kind = escaped(&self.kind),
            name = name(&order.id),
            mebibytes = machine_mebibytes(order),
            // No other kind takes it.
            translated = match &*self.kind {
                "qemu" => format!("<tcg><tb-cache unit='MiB'>{TRANSLATED_MIB_MAX}</tb-cache></tcg>"),
                _ => String::new(),
            },
            kernel = path(&self.image.kernel),
            initramfs = path(&self.image.initramfs),
            parameters = escaped(&kernel_parameters()),
            log = path(&folder.join("log")),
            nbd = forward(ports.nbd, NBD_PORT),
            http = forward(ports.http, HTTP_PORT),
        )
    }

    /// What makes the domain that is described in the folder in which it runs, which may have any name, and stands for it. What is not made has no such UUID, while another's may have the name: it ends then, with what libvirt says.
    fn command(&self, uuid: &str) -> Vec<OsString> {
        let making = format!("create domain.xml --autodestroy; event {uuid} lifecycle --loop");
        let mut command: Vec<OsString> = ["sh", "-c", STANDING_FOR_IT, "sh"].map(Into::into).to_vec();
        command.push(self.program.clone().into());
        command.extend(["--connect", &self.connection, "--quiet", &making].map(OsString::from));
        command
    }

    /// Under which UUID libvirt runs this appliance's domain, `uuid` or that which an earlier version left to libvirt; `None` if it does not; else why it does not say.
    ///
    /// What is only defined, and shut off, takes nothing and serves nobody: ours are never defined.
    fn running(&self, id: &ApplianceId, uuid: &str, deadline: Deadline) -> Result<Option<String>, String> {
        let lists = |what, wanted: &str| {
            self.ask(&["list", what], deadline).map(|all| all.lines().any(|line| line.trim() == wanted))
        };
        if lists("--uuid", uuid)? {
            return Ok(Some(uuid.to_owned()));
        }
        if !lists("--name", &name(id))? {
            return Ok(None);
        }
        let description = self.ask(&["dumpxml", &name(id)], deadline)?;
        match uuid_in(&description) {
            Some(other) if self.is_of_folder(id, &description) => Ok(Some(other.to_owned())),
            _ => Ok(None),
        }
    }

    /// Whether a domain is given the order in this appliance's folder: so it is ours, for the folder has one controller.
    fn is_of_folder(&self, id: &ApplianceId, description: &str) -> bool {
        let order = escaped(&self.keeper.path(id).join("appliance.toml").display().to_string());
        description.contains(&format!("<entry name='opt/forebay/order' file='{order}'/>"))
    }

    /// The UUID of another's domain, running or not, which has the name of this appliance's.
    fn taken_by(&self, id: &ApplianceId, uuid: &str, deadline: Deadline) -> Option<String> {
        let description = self.ask(&["dumpxml", &name(id)], deadline).ok()?;
        let other = uuid_in(&description)?;
        (other != uuid && !self.is_of_folder(id, &description)).then(|| other.to_owned())
    }

    /// What `virsh` answers in time, or why it does not.
    fn ask(&self, words: &[&str], deadline: Deadline) -> Result<String, String> {
        let asked = Command::new(&self.program)
            .args(["--connect", &self.connection, "--quiet"])
            .args(words)
            // In the language in which it is read.
            .env("LC_ALL", "C")
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

/// `text` inside of XML, also of its attributes, as libvirt writes it.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('\'', "&apos;").replace('"', "&quot;")
}

/// The UUID of the domain that libvirt describes so.
fn uuid_in(description: &str) -> Option<&str> {
    let (_, behind) = description.split_once("<uuid>")?;
    Some(behind.split_once("</uuid>")?.0)
}

/// The UUID of one appliance's domain: of the version for such as follow from something else (RFC 9562, 5.8).
fn derived(own: u128, id: &ApplianceId) -> u128 {
    let half = |seed: u64| id.to_string().bytes().fold(seed, |hash, byte| mix64(hash ^ u64::from(byte)));
    let both = u128::from(half(mix64((own >> 64) as u64))) << 64 | u128::from(half(mix64(own as u64)));
    let (version, variant) = (0xf << 76, 0b11 << 62);
    both & !version & !variant | 0x8 << 76 | 0b10 << 62
}

/// As a UUID is written.
fn shown(uuid: u128) -> String {
    let digits = format!("{uuid:032x}");
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

/// The other way round.
fn parsed(text: &str) -> Option<u128> {
    let uuid = u128::from_str_radix(&text.replace('-', ""), 16).ok()?;
    (shown(uuid) == text).then_some(uuid)
}

impl Provider for Libvirt {
    fn start(&self, order: &ApplianceOrder, deadline: Deadline) -> Result<Running, ProvisionError> {
        let room = order.check(MACHINE_OVERHEAD)?;
        refuse_port(order)?;
        let uuid = self.uuid(&order.id)?;
        let started = self.keeper.start(order, deadline, |folder| {
            let ports = Ports::of(&order.id);
            let at = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
            Ok(Launch {
                command: self.command(&uuid),
                files: vec![
                    ("appliance.toml", inner_configuration(order, room)?),
                    ("domain.xml", self.domain(order, &uuid, ports, folder).into_bytes()),
                ],
                running: over_tcp(order, at(ports.nbd), at(ports.http)),
                knows_its_number: false,
                says_when_ready: Some(READY),
                diagnose: None,
            })
        });
        let error = match started {
            Err(error @ (ProvisionError::Died { .. } | ProvisionError::NotInTime { .. })) => error,
            others => return others.map_err(|error| naming_image(error, &self.image)),
        };
        let Some(other) = self.taken_by(&order.id, &uuid, deadline) else {
            return Err(naming_image(error, &self.image));
        };
        let reason = format!(
            "the libvirt at `{}` has a domain `{}` already, with the UUID `{other}`, which is not this controller's: rename it there or remove it, or name a libvirt in `connection` that is this controller's alone",
            self.connection,
            name(&order.id)
        );
        Err(ProvisionError::Impossible { id: order.id.clone(), reason })
    }

    fn find(&self, id: &ApplianceId) -> Result<Option<Running>, ProvisionError> {
        self.keeper.find(id)
    }

    fn list(&self, token: &Secret, _: Deadline) -> Result<Vec<Listed>, ProvisionError> {
        self.keeper.list(token)
    }

    fn stop(&self, id: &ApplianceId, deadline: Deadline) -> Result<(), ProvisionError> {
        let uuid = self.uuid(id)?;
        self.keeper.stop(id, deadline)?;
        // Libvirt destroys it once it sees that who made it is gone, unless libvirt is another by then. What does not answer may have it yet.
        let mut reason = String::new();
        let gone = deadline.wait_for(|| match self.running(id, &uuid, deadline) {
            Ok(None) => Some(()),
            Ok(Some(uuid)) => {
                "libvirt has not destroyed it yet".clone_into(&mut reason);
                let _ = self.ask(&["destroy", &uuid], deadline);
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

    const OTHERS: &str = "85bb4cca-a57c-4cbb-92b8-3b34bd64c2e5";

    /// A libvirt whose `virsh` is a script: `domain` is what it has under the names of ours, and it is `running` or `shut`; it notes what it is to destroy, which is gone then, and tells
    /// the `event` that it finds.
    struct Scene {
        folder: tempfile::TempDir,
        provider: Libvirt,
    }

    impl Scene {
        fn new() -> Scene {
            let folder = tempfile::tempdir().unwrap();
            let image = Image::in_folder(&folder.path().join("image"));
            let mut provider =
                Libvirt::new(folder.path().join("appliances"), "test:///scene", image).unwrap();
            provider.program = folder.path().join("virsh");
            let script = r#"#!/bin/sh
                cd "${0%/*}"; shift 3
                case "$*" in
                "list --uuid") [ ! -e running ] || sed -n 's/.*<uuid>\(.*\)<.uuid>.*/\1/p' running ;;
                "list --name") [ ! -e running ] || echo forebay-a ;;
                "dumpxml forebay-a") cat running 2>/dev/null || cat shut 2>/dev/null || { echo "error: failed to get domain" >&2; exit 1; } ;;
                destroy*) echo "$*" >>destroyed; grep -q "<uuid>$2" running && rm running ;;
                create*)
                    cat said >&2
                    of=${*#*; event }; of=${of%% *}
                    grep -q "$of" running 2>/dev/null || { echo "error: failed to get domain '$of'" >&2; exit 1; }
                    trap 'echo interrupted; exit 0' INT
                    while :; do
                        mv event told 2>/dev/null && cat told
                        sleep 0.02
                    done ;;
                *) echo "error: unknown command: $*" >&2; exit 1 ;;
                esac"#;
            std::fs::write(&provider.program, script).unwrap();
            let executable = std::os::unix::fs::PermissionsExt::from_mode(0o700);
            std::fs::set_permissions(&provider.program, executable).unwrap();
            let scene = Scene { folder, provider };
            scene.write("said", "");
            scene
        }

        fn write(&self, file: &str, text: &str) {
            std::fs::write(self.folder.path().join(file), text).unwrap();
        }

        fn read(&self, file: &str) -> String {
            std::fs::read_to_string(self.folder.path().join(file)).unwrap_or_default()
        }

        /// As libvirt describes a domain with this UUID that is given the order at `path`.
        fn has(&self, state: &str, uuid: &str, order: &Path) {
            let text = format!(
                "<domain type='qemu' id='1'>\n  <name>forebay-a</name>\n  <uuid>{uuid}</uuid>\n  <sysinfo type='fwcfg'>\n    \
                 <entry name='opt/forebay/order' file='{}'/>\n  </sysinfo>\n</domain>\n",
                order.display()
            );
            self.write(state, &text);
        }

        fn own_order(&self) -> PathBuf {
            self.provider.keeper.path(&id()).join("appliance.toml")
        }

        fn stop(&self) -> Result<(), ProvisionError> {
            self.provider.stop(&id(), Deadline::after(Duration::from_secs(20)))
        }

        fn start(&self) -> ProvisionError {
            let order = order();
            self.provider.start(&order, Deadline::after(Duration::from_secs(20))).map(drop).unwrap_err()
        }
    }

    fn order() -> ApplianceOrder {
        let order = r#"{"id":"a","host":"h","memory":268435456,"token":"0123456789abcdef","volumes":[{"name":"db",
            "origin":{"uri":"nbd://10.1.0.9/db"},"block_size":4096,"cache":4096}]}"#;
        serde_json::from_str(order).unwrap()
    }

    fn id() -> ApplianceId {
        "a".parse().unwrap()
    }

    #[test]
    fn a_domain_of_another_is_not_destroyed_whatever_its_name() {
        let scene = Scene::new();
        scene.has("running", OTHERS, Path::new("/another/controller/a/appliance.toml"));
        scene.stop().expect("ours does not run");
        assert_eq!(scene.read("destroyed"), "");
        assert!(scene.read("running").contains(OTHERS));
    }

    #[test]
    fn our_domain_is_destroyed_by_its_uuid() {
        let scene = Scene::new();
        let uuid = scene.provider.uuid(&id()).unwrap();
        scene.has("running", &uuid, Path::new("/wherever"));
        scene.stop().unwrap();
        assert_eq!(scene.read("destroyed"), format!("destroy {uuid}\n"));
    }

    /// They have a UUID that libvirt made up, and are ours where they are given the order in our folder.
    #[test]
    fn a_domain_of_an_earlier_version_is_found_and_destroyed() {
        let scene = Scene::new();
        scene.has("running", OTHERS, &scene.own_order());
        scene.stop().unwrap();
        assert_eq!(scene.read("destroyed"), format!("destroy {OTHERS}\n"));
    }

    #[test]
    fn a_domain_that_is_shut_off_is_not_there_any_more() {
        let scene = Scene::new();
        scene.has("shut", OTHERS, Path::new("/wherever"));
        scene.stop().unwrap();
        assert_eq!(scene.read("destroyed"), "");
    }

    #[test]
    fn a_name_that_is_taken_is_told_with_whose_it_is_not_and_what_to_do() {
        for state in ["running", "shut"] {
            let scene = Scene::new();
            scene.write("said", "error: operation failed: domain 'forebay-a' already exists");
            scene.has(state, OTHERS, Path::new("/wherever"));
            let refused = scene.start();
            assert!(matches!(refused, ProvisionError::Impossible { .. }) && !refused.may_run(), "{refused}");
            let told = refused.to_string();
            let expected =
                ["`test:///scene`", "`forebay-a`", OTHERS, "not this controller's", "`connection`"];
            assert!(expected.iter().all(|part| told.contains(part)), "{told}");
            assert_eq!(scene.read("destroyed"), "");
        }
        let scene = Scene::new();
        scene.write("said", "error: no room");
        let died = scene.start().to_string();
        assert!(died.contains("error: no room") && !died.contains("not this controller's"), "{died}");
    }

    #[test]
    fn what_libvirt_refuses_is_told_at_once_whoever_has_the_name() {
        let scene = Scene::new();
        scene.write("said", "error: Failed to create domain\nerror: no room");
        scene.has("running", OTHERS, &scene.own_order());
        let died = scene.start();
        assert!(matches!(died, ProvisionError::Died { .. }), "it was not waited for: {died}");
        assert!(died.to_string().contains("Failed to create domain | error: no room"), "{died}");
    }

    #[test]
    fn the_uuid_of_a_domain_is_kept_and_no_other_folders() {
        let (scene, other) = (Scene::new(), Scene::new());
        let uuid = |scene: &Scene, id: &str| scene.provider.uuid(&id.parse().unwrap()).unwrap();
        assert_eq!(uuid(&scene, "a"), uuid(&scene, "a"));
        assert_ne!(uuid(&scene, "a"), uuid(&scene, "b"));
        assert_ne!(uuid(&scene, "a"), uuid(&other, "a"));
        // The version, and the variant, of two bits.
        let known = shown(derived(7, &id()));
        assert!(
            known.as_bytes()[14] == b'8' && b"89ab".contains(&known.as_bytes()[19]) && known.len() == 36,
            "{known}"
        );
        scene.write("appliances/libvirt.uuid", "\"9\"");
        let wrong = forebay_units::with_causes(&scene.provider.uuid(&id()).unwrap_err());
        assert!(
            wrong.contains("libvirt.uuid`") && wrong.contains("`9` was found, expected a UUID"),
            "{wrong}"
        );
        assert_eq!(parsed(OTHERS).map(shown).as_deref(), Some(OTHERS));
    }

    #[test]
    fn a_folder_may_have_any_name() {
        let scene = Scene::new();
        let domain = |folder: &str| {
            let (order, ports) = (order(), Ports { nbd: 1, http: 2 });
            scene.provider.domain(&order, OTHERS, ports, Path::new(folder))
        };
        let odd = domain("/s/o'brien, \"<a>\" & b");
        let path = "/s/o&apos;brien, &quot;&lt;a&gt;&quot; &amp; b";
        assert!(odd.contains(&format!("<source path='{path}/log'")) && !odd.contains("sysinfo"), "{odd}");
        let twice = path.replace(',', ",,");
        let argument = format!(
            "<qemu:arg value='-fw_cfg'/><qemu:arg value='name=opt/forebay/order,file={twice}/appliance.toml'/>"
        );
        assert!(odd.contains(&argument), "{odd}");
        let plain = domain("/s/h1");
        let entry = "<entry name='opt/forebay/order' file='/s/h1/appliance.toml'/>";
        assert!(plain.contains(entry) && !plain.contains("-fw_cfg"), "{plain}");
        // What `virsh` reads as words has no path in it.
        let command = scene.provider.command(OTHERS);
        let words = format!("create domain.xml --autodestroy; event {OTHERS} lifecycle --loop");
        assert_eq!(command.last().unwrap().to_str(), Some(&*words));
    }

    /// As `virsh` of libvirt 9.0 tells them.
    #[test]
    fn what_stands_for_a_machine_stays_until_the_machine_has_ended() {
        for end in ["Stopped Destroyed", "Stopped Crashed", "Crashed Panicked"] {
            let scene = Scene::new();
            let uuid = scene.provider.uuid(&id()).unwrap();
            scene.has("running", &uuid, Path::new("/wherever"));
            let (folder, log) = (scene.folder.path().join("a"), scene.folder.path().join("log"));
            std::fs::create_dir(&folder).unwrap();
            // Whoever runs the tests in the background may have left interrupts out.
            let mut virsh = Command::new("env")
                .arg("--default-signal=INT")
                .args(scene.provider.command(&uuid))
                .current_dir(&folder)
                .stdin(Stdio::null())
                .stdout(File::create(&log).unwrap())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let happens = |what: &str| {
                let event = format!("event 'lifecycle' for domain 'forebay-a': {what}\n");
                scene.write("event.new", &event);
                std::fs::rename(scene.folder.path().join("event.new"), scene.folder.path().join("event"))
                    .unwrap();
                let told = Deadline::after(Duration::from_secs(20))
                    .wait_for(|| scene.read("log").contains(&event).then_some(()));
                told.is_some()
            };
            let passing = ["Suspended Paused", "Resumed Unpaused", "Shutdown Finished after guest request"];
            let were_told = passing.iter().all(|what| happens(what));
            let stayed = virsh.try_wait().unwrap().is_none();
            let was_told = happens(end);
            let ended = Deadline::after(Duration::from_secs(20)).wait_for(|| virsh.try_wait().unwrap());
            let _ = virsh.kill();
            assert!(were_told && was_told, "{}", scene.read("log"));
            assert!(stayed, "it is there, and so is its machine");
            assert!(ended.is_some_and(|status| status.success()), "{end}: {}", scene.read("log"));
        }
    }

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
