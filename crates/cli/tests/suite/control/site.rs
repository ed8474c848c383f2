//! Hosts on one wire: a storage side, an application, two hosts for appliances, and the controller's. Each part can be killed and brought back.

use super::{Appliances, Controller, HASTE};
use crate::reroute::SECRET;
use crate::support::{Running, file, folder, secret_file, spawn, wait_for};
use crate::wire::Wire;
use forebay_actuate::api::ApiAddress;
use forebay_actuate::{Control, Deadline};
use forebay_serve::status::{Status, VolumeStatus};
use std::path::PathBuf;
use std::time::Duration;

pub(super) const PORT: u16 = 10_809;
pub(super) const HTTP: u16 = 9_809;
/// Where the controller is, and the machines that it starts.
pub(super) const CONTROLLER: usize = 0;
pub(super) const APPLICATION: usize = 1;
pub(super) const STORAGE: usize = 2;
pub(super) const HOSTS: [usize; 2] = [3, 4];

/// All of it; the volume `db`, of 1 MiB unless it is said, is watched on the storage side, whose every request takes 8 ms.
pub(super) struct Site {
    pub(super) appliances: Appliances,
    watch: Option<Running>,
    pub(super) wire: Wire,
    pub(super) folder: tempfile::TempDir,
}

impl Site {
    pub(super) fn new() -> Site {
        Site::sized(1 << 20)
    }

    pub(super) fn sized(bytes: usize) -> Site {
        let wire = Wire::new(&["x", "c", "s", "a", "b"]);
        wire.ask_whether_servers_are_there(APPLICATION);
        let folder = folder();
        file(&folder, "db.img", vec![0; bytes]);
        let text = format!(
            "listen = [\"tcp:0.0.0.0:{PORT}\", \"unix:storage.sock\"]\nleases.path = \"leases.json\"\ncontrol.interval = \"200ms\"\n\
             [http]\nlisten = \"0.0.0.0:{HTTP}\"\nsocket = \"storage-http.sock\"\ntoken = \"{SECRET}\"\n\
             [[volume]]\nname = \"db\"\norigin = \"db.img\"\nsecret = \"{SECRET}\"\n\
             layers = [{{ type = \"delay\", read = \"8ms\", write = \"8ms\" }}]\n"
        );
        secret_file(&folder, "watch.toml", text);
        let mut site = Site { appliances: Appliances(folder.path().to_owned()), watch: None, wire, folder };
        site.start_storage();
        site
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn start_storage(&mut self) {
        let configuration = self.path("watch.toml");
        let watch = ["watch".as_ref(), configuration.as_os_str()];
        let watch = spawn(Some(self.wire.name(STORAGE)), env!("CARGO_BIN_EXE_forebay"), watch);
        self.watch = Some(Running(vec![watch]));
        wait_for(&self.path("storage.sock"));
    }

    pub(super) fn storage_pids(&self) -> Vec<u32> {
        self.watch.iter().flat_map(|watch| &watch.0).map(std::process::Child::id).collect()
    }

    pub(super) fn kill_storage(&mut self) {
        self.watch = None;
    }

    /// A host in a network namespace, of the first rack.
    pub(super) fn host(&self, at: usize, memory: &str, more: &str) -> String {
        format!(
            "[[host]]\nname = \"h{at}\"\nrack = 1\nmemory = \"{memory}\"\n\
             provider = {{ type = \"namespace\", namespace = \"{}\", address = \"{}\", interface = \"eth0\"{more} }}\n",
            self.wire.name(at),
            Wire::address(at)
        )
    }

    /// Writes `control.toml`; `volume` is what is to be said of the volume besides, `response` of responses: a probe takes a second at most unless it says otherwise.
    pub(super) fn configure(&self, interval: &str, home: &str, hosts: &str, volume: &str, response: &str) {
        let storage = Wire::address(STORAGE);
        let probe = if response.contains("probe_within_ms") { "" } else { "probe_within_ms = 1000, " };
        let text = format!(
            "socket = \"control.sock\"\nstate = \"state\"\ninterval = \"{interval}\"\n{HASTE}response = {{ probe_every_ms = 200, {probe}retry_first_ms = 200, {response} }}\n\
             {hosts}\n[[volume]]\nname = \"db\"\nhome = \"{home}\"\norigin = \"nbd://{storage}:{PORT}/db\"\nsecret = \"{SECRET}\"\n\
             watch = \"{storage}:{HTTP}\"\nwatch_token = \"{SECRET}\"\n{volume}\n\
             [[objective]]\nvolume = \"db\"\nlatency = \"6ms\"\n"
        );
        secret_file(&self.folder, "control.toml", text);
    }

    pub(super) fn control(&self) -> Controller {
        Controller::start(self.folder.path(), Some(self.wire.name(CONTROLLER)))
    }

    /// What a daemon says of the volume on its socket.
    pub(super) fn status(&self, socket: &str) -> VolumeStatus {
        let control = Control { address: ApiAddress::Unix(self.path(socket)), token: None };
        let status =
            control.ask::<Status>("GET", "/api/v1/status", "", Deadline::after(Duration::from_secs(10)));
        status.expect("the daemon answers").volumes.remove(0)
    }

    /// What the storage side says of the volume.
    pub(super) fn storage(&self) -> VolumeStatus {
        self.status("storage-http.sock")
    }
}
