//! Appliances as processes of another machine, by a real `ssh` and `sshd`; the machine is a network namespace.

use super::namespace::Host;
use super::{Place, Storage, live_and_die, order, soon};
use crate::support::{Running, command};
use forebay_actuate::provision::Ssh;
use forebay_actuate::{Deadline, Provider};
use forebay_prerequisite::programs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");

/// A machine that lets in who has a key, by an `sshd` of its own.
pub(crate) struct Machine {
    sshd: Running,
    pub(crate) host: Host,
    folder: PathBuf,
}

impl Machine {
    const PORT: u16 = 2222;
    pub(crate) const PREREQUISITES: [&str; 4] = ["ip", "ssh", "sshd", "ssh-keygen"];

    /// With all that is its own in `folder`, and nothing of the configuration of this user, as whom it lets in.
    pub(crate) fn new(number: u8, folder: &Path) -> Machine {
        let (host, folder) = (Host::new(number), folder.to_owned());
        // Its privileged part wants this, which Debian's service makes.
        std::fs::create_dir_all("/run/sshd").expect("this is root");
        let configuration = format!(
            "ListenAddress {}:{}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\nPidFile none\n\
             PasswordAuthentication no\nPermitRootLogin prohibit-password\n",
            host.there,
            Machine::PORT,
            folder = folder.display()
        );
        let machine = Machine { sshd: Running(Vec::new()), host, folder };
        for name in ["host", "key"] {
            machine.make_key(name);
        }
        machine.authorize("key", "");
        let write = |name: &str, text: String| std::fs::write(machine.folder.join(name), text);
        write("sshd_config", configuration).expect("a file can be written");
        let known = format!("[{}]:{} {}", machine.host.there, Machine::PORT, machine.public("host"));
        write("known", known).expect("a file can be written");
        let mut sshd = command(Some(&machine.host.name), "/usr/sbin/sshd");
        sshd.arg("-D").arg("-e").arg("-f").arg(machine.folder.join("sshd_config"));
        let said = std::fs::File::create(machine.folder.join("sshd.log")).expect("a file can be made");
        sshd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let machine = Machine { sshd: Running(vec![sshd.spawn().expect("`sshd` runs")]), ..machine };
        let address = SocketAddr::new(machine.host.there, Machine::PORT);
        soon().wait_for(|| TcpStream::connect(address).ok()).expect("`sshd` listens");
        machine
    }

    fn make_key(&self, name: &str) {
        let key = ["-q", "-t", "ed25519", "-N", "", "-f"];
        let made = Command::new("ssh-keygen").args(key).arg(self.folder.join(name)).status();
        assert!(made.expect("`ssh-keygen` runs").success());
    }

    fn public(&self, key: &str) -> String {
        std::fs::read_to_string(self.folder.join(key).with_extension("pub")).expect("it was made")
    }

    /// Lets in who has this key, and nobody else; `with` is what `authorized_keys` says before a key.
    fn authorize(&self, key: &str, with: &str) {
        let line = format!("{with}{}", self.public(key));
        std::fs::write(self.folder.join("authorized"), line).expect("a file can be written");
    }

    /// The options of an `ssh` that shows the key.
    pub(crate) fn options(&self) -> Vec<String> {
        let at = |name: &str| self.folder.join(name).display().to_string();
        let known = format!("UserKnownHostsFile={}", at("known"));
        let port = Machine::PORT.to_string();
        ["-F", "none", "-i", &at("key"), "-p", &port, "-o", &known].map(str::to_owned).into()
    }

    /// Appliances there, kept in `kept`.
    fn provider(&self, kept: &str) -> Ssh {
        let there = self.host.there;
        Ssh { options: self.options(), ..Ssh::new(there.to_string(), FOREBAY, kept, there) }
    }
}

#[test]
fn a_process_of_another_machine_lives_does_as_told_and_dies() {
    if !programs("an appliance by ssh", &Machine::PREREQUISITES, true) {
        return;
    }
    let place = Place::new();
    let folder = place.path();
    let mut machine = Machine::new(1, folder);
    let storage = Storage::over_tcp(machine.host.here);
    let order = order("far", storage.endpoint());
    let kept = at(folder, "appliances");
    let good = machine.provider(&kept);
    live_and_die(&good, &machine.provider(&kept), &order, &storage);

    // A key that can do nothing but this, whatever the controller says.
    let forced = format!("{FOREBAY} host --folder {kept} --address {}", machine.host.there);
    machine.authorize("key", &format!("restrict,command=\"{forced}\" "));
    let told_otherwise = Ssh { command: vec!["touch".into(), at(folder, "touched")], ..good.clone() };
    told_otherwise.start(&order, soon()).expect("it is started by the command of the key");
    assert!(!folder.join("touched").exists());
    assert!(good.find(&order.id).expect("it is asked").is_some(), "it outlives who started it");
    good.stop(&order.id, soon()).expect("it ends");
    machine.authorize("key", "");

    // What was certainly not asked: nothing runs, and it is said why.
    let refused = |ssh: &Ssh, words: &str| {
        let error = ssh.start(&order, soon()).expect_err(words);
        assert!(error.to_string().contains(words) && !error.may_run(), "{error}");
        let telling = [SECRET, super::SECRET].iter().any(|secret| error.to_string().contains(secret));
        assert!(!telling, "{error}");
    };
    let runs = |line: &str| Ssh { command: vec!["sh".into(), "-c".into(), line.to_owned()], ..good.clone() };
    refused(
        &Ssh { command: vec!["/nowhere/forebay".into()], ..good.clone() },
        "`forebay` cannot be run there",
    );
    refused(&runs("echo welcome; echo forebay host 999; read line"), "it is of another version");
    refused(&runs("yes"), "it does not say `forebay host 1`");
    refused(&runs("exit 3"), "ended without an answer");
    machine.make_key("other");
    machine.authorize("other", "");
    refused(&good, "Permission denied");
    machine.authorize("key", "");
    std::fs::rename(folder.join("known"), folder.join("known.old")).expect("it is there");
    refused(&good, "Host key verification failed");
    std::fs::rename(folder.join("known.old"), folder.join("known")).expect("it is there");
    let (destination, other) = (machine.host.there.to_string(), at(folder, "other-kept"));
    let not_there = Ssh::new(destination, FOREBAY, &other, machine.host.here);
    refused(&Ssh { options: machine.options(), ..not_there }, "ended before it served");

    // What was asked and not answered: nobody knows what became of it, and it is over in time.
    let unknown = |ssh: &Ssh, words: &str, within: Duration| {
        let began = Instant::now();
        let error = ssh.start(&order, Deadline::after(within)).expect_err(words);
        assert!(error.to_string().contains(words) && error.may_run(), "{error}");
        assert!(began.elapsed() < within + Duration::from_secs(5), "{:?}", began.elapsed());
    };
    unknown(&runs("echo forebay host 1; read line; exit 0"), "ended without an answer", soon().left());
    unknown(&runs("echo forebay host 1; read line; echo nonsense"), "not understood", soon().left());
    unknown(&runs("echo forebay host 1; sleep 60"), "nothing was heard in time", Duration::from_secs(2));

    // A login that says something first, and a connection that is lost on the way: what was asked is done all the same, and found.
    let quoted = format!("echo 'You have mail.'; exec {forced}");
    runs(&quoted).start(&order, soon()).expect("what a login says is passed over");
    good.stop(&order.id, soon()).expect("it ends");
    unknown(&runs(&format!("{forced} | head -n 1")), "", soon().left());
    soon().wait_for(|| good.find(&order.id).ok().flatten()).expect("it came to run");
    good.stop(&order.id, soon()).expect("it ends");

    // A machine that is gone.
    for child in &mut machine.sshd.0 {
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    }
    refused(&good, "Connection refused");
    assert!(good.find(&order.id).is_err() && good.stop(&order.id, soon()).is_err());
}

/// What is in an order and in no message.
const SECRET: &str = "a-token-that-only-we-know";

fn at(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}
