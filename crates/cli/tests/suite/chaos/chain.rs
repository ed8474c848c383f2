//! Clients -> a proxy -> [a relay, or an appliance] -> the relay -> the storage side -> a stranger's server, or a file; and the ways between them.

use super::SIZE_BYTES;
use super::client::{Lane, Unanswered, Volume};
use super::draw::Draw;
use super::origin::{self, Origin};
use super::parts::{Parts, Status};
use super::relay::{self, Relay};
use super::truth::Truth;
use forebay_actuate::Deadline;
use forebay_actuate::route::LeaseHolder;
use rustix::process::Signal;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

pub(super) const PROXY: &str = "proxy";
pub(super) const WATCH: &str = "watch";

/// How the parts of a run are configured.
struct Plan {
    connections: usize,
    proxy_cache: &'static str,
    proxy_waits: &'static str,
    proxy_timeout: &'static str,
    watch_succession: &'static str,
}

pub(super) struct Chain<'a> {
    pub(super) parts: Parts,
    pub(super) truth: &'a Truth,
    /// `None`: a file.
    pub(super) origin: Option<Origin>,
    pub(super) relay: Relay,
    plan: Plan,
    /// By when the run must be over.
    until: Deadline,
    /// Which appliance clients are on.
    pub(super) appliance: Option<String>,
    pub(super) epoch: u64,
    pub(super) appliances: usize,
}

impl<'a> Chain<'a> {
    /// All of it, running, with clients on the way without an appliance. What it is like follows from `draw`.
    pub(super) fn start(
        folder: &Path,
        truth: &'a Truth,
        draw: &mut Draw,
        until: Deadline,
    ) -> Result<Chain<'a>, String> {
        let parts = Parts::new(folder);
        let plan = Plan {
            connections: draw.of(&[1, 2, 4]),
            proxy_cache: draw.of(&["0", "0", "1MiB"]),
            proxy_waits: draw.of(&["1s", "8s"]),
            proxy_timeout: draw.of(&["2s", "10s"]),
            watch_succession: draw.of(&["", "succession.path = \"watch-succession.json\"\n"]),
        };
        let origin = if draw.percent(25) {
            let disk = std::fs::File::create(parts.path("disk"));
            disk.and_then(|disk| disk.set_len(SIZE_BYTES as u64)).expect("the folder takes files");
            None
        } else {
            let draw = Draw::new(draw.below(usize::MAX) as u64, 0);
            Some(Origin::start(&parts.path("origin.sock"), SIZE_BYTES, draw))
        };
        let relay = Relay::start(Some(&parts.path("relay.sock")), &parts.path("watch.sock"));
        let (appliance, epoch, appliances) = (None, 0, 0);
        let mut chain = Chain { parts, truth, origin, relay, plan, until, appliance, epoch, appliances };
        chain.parts.note(&chain.describe());
        chain.start_watch();
        let is_up = chain.parts.is_up(WATCH, Duration::from_secs(25));
        chain.start_proxy();
        if is_up && chain.parts.is_up(PROXY, Duration::from_secs(25)) {
            return Ok(chain);
        }
        Err("the chain does not come up".to_owned())
    }

    pub(super) fn describe(&self) -> String {
        let Plan { connections, proxy_cache, .. } = self.plan;
        let origin = if self.origin.is_some() { "a stranger's server" } else { "a file" };
        format!("{origin}, {connections} connections, a proxy's cache of {proxy_cache}")
    }

    fn path(&self, name: &str) -> String {
        self.parts.path(name).display().to_string()
    }

    pub(super) fn start_watch(&mut self) {
        let origin = match self.origin {
            None => format!("{:?}", self.path("disk")),
            Some(_) => format!(
                "{{ type = \"nbd\", uri = \"nbd+unix:///db?socket={}\", connections = {}, wait_for_origin = \"3s\", \
                 request_timeout = \"3s\", fences_on_disconnect = true }}",
                self.path("origin.sock"),
                self.plan.connections
            ),
        };
        let text = format!(
            "{}leases.path = \"leases.json\"\n{}control.interval = \"300ms\"\n[[volume]]\nname = \"db\"\norigin = {origin}\n",
            self.head(WATCH),
            self.plan.watch_succession
        );
        self.parts.start(WATCH, "watch", &text);
    }

    pub(super) fn start_proxy(&mut self) {
        let Plan { connections, proxy_cache, proxy_waits, proxy_timeout, .. } = self.plan;
        let text = format!(
            "{}routes.path = \"routes.json\"\nsuccession.path = \"succession.json\"\ncache.memory = \"4MiB\"\n\
             control = {{ enabled = false, interval = \"300ms\" }}\n[[volume]]\nname = \"db\"\n\
             origin = {{ type = \"nbd\", uri = \"{}\", connections = {connections}, wait_for_origin = \"{proxy_waits}\", \
             request_timeout = \"{proxy_timeout}\" }}\ncache = \"{proxy_cache}\"\non_absent = \"wait\"\n",
            self.head(PROXY),
            self.home(),
        );
        self.parts.start(PROXY, "serve", &text);
    }

    /// A new appliance that calls itself by this epoch; its name, if it comes up.
    pub(super) fn start_appliance(&mut self, epoch: u64, draw: &mut Draw) -> Result<Option<String>, String> {
        self.appliances += 1;
        let name = format!("appliance-{}", self.appliances);
        let (cache, waits) = (draw.of(&["256KiB", "1MiB", "2MiB"]), draw.of(&["1s", "3s", "8s"]));
        let text = format!(
            "{}cache.memory = \"4MiB\"\ncontrol.interval = \"300ms\"\n[[volume]]\nname = \"db\"\n\
             origin = {{ type = \"nbd\", uri = \"nbd+unix:///db@{epoch}?socket={}\", connections = {}, \
             wait_for_origin = \"{waits}\", request_timeout = \"3s\" }}\ncache = \"{cache}\"\n",
            self.head(&name),
            self.path("relay.sock"),
            self.plan.connections,
        );
        self.parts.start(&name, "appliance", &text);
        if self.parts.is_up(&name, Duration::from_secs(6)) {
            return Ok(Some(name));
        }
        // Nobody answers behind it, or it was not let in.
        self.parts.note(&format!("{name} does not come up"));
        self.parts.end(&name, Signal::KILL)?;
        Ok(None)
    }

    fn head(&self, name: &str) -> String {
        let (nbd, http) = (self.path(&format!("{name}.sock")), self.path(&format!("{name}-http.sock")));
        format!(
            "listen = [\"unix:{nbd}\"]\nhttp = {{ listen = \"off\", socket = \"{http}\" }}\nlimits.drain = \"3s\"\n"
        )
    }

    /// The way without an appliance.
    pub(super) fn home(&self) -> String {
        format!("nbd+unix:///db?socket={}", self.path("relay.sock"))
    }

    /// The way by an appliance.
    pub(super) fn by(&self, appliance: &str) -> String {
        format!("nbd+unix:///db?socket={}", self.path(&format!("{appliance}.sock")))
    }

    pub(super) fn volume(socket: &'a Path, truth: &'a Truth) -> Volume<'a> {
        Volume { socket, truth }
    }

    pub(super) fn raise(&self, epoch: u64, holder: LeaseHolder) -> Status {
        let body = json!({ "epoch": epoch, "holder": holder, "within_s": 10 });
        self.parts.order(WATCH, "POST", "volumes/db/lease", &body)
    }

    pub(super) fn send(&self, to: &str, epoch: u64, is_settled: bool, within_s: u64) -> Status {
        let body = json!({ "to": to, "epoch": epoch, "settled": is_settled, "within_s": within_s });
        self.parts.order(PROXY, "POST", "volumes/db/route", &body)
    }

    /// Has everything behave again that was told to misbehave; an error if somebody has ended by itself.
    pub(super) fn mend(&mut self) -> Result<(), String> {
        self.relay.behave(relay::Manners::default());
        if let Some(origin) = &self.origin {
            origin.behave(origin::Manners::default());
        }
        self.parts.check()
    }

    /// Tries until it works, on a chain that behaves, as long as the run may take.
    fn persist(
        &mut self,
        what: &str,
        mut works: impl FnMut(&mut Chain<'a>) -> Result<bool, String>,
    ) -> Result<(), String> {
        loop {
            if works(self)? {
                return Ok(());
            }
            if self.until.is_over() {
                return Err(format!("{what}: it does not come to that"));
            }
            self.mend()?;
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    /// To a new appliance: the proxy is sent there, then whoever was before is fenced.
    pub(super) fn go_to_appliance(&mut self, draw: &mut Draw) -> Result<(), String> {
        let epoch = self.epoch + 1;
        let Some(name) = self.start_appliance(epoch, draw)? else { return Ok(()) };
        if draw.percent(15) {
            self.parts.end(&name, Signal::KILL)?;
        }
        match self.send(&self.by(&name), epoch, false, draw.of(&[1, 5])) {
            200 => {}
            // It had no effect.
            400 | 409 | 422 | 502 => return self.parts.end(&name, Signal::KILL),
            _ => {
                self.parts.end(&name, Signal::KILL)?;
                return self.back(Signal::KILL);
            }
        }
        let old = self.appliance.replace(name);
        if let Some(old) = old.as_ref().filter(|_| draw.percent(50)) {
            self.parts.end(old, draw.of(&[Signal::TERM, Signal::KILL]))?;
        }
        self.epoch = epoch;
        self.persist("the lease is raised", |chain| Ok(chain.raise(epoch, LeaseHolder::Named) == 200))?;
        old.map_or(Ok(()), |old| self.parts.end(&old, Signal::KILL))
    }

    /// Home from wherever clients are: that is fenced first, then left, then ended.
    pub(super) fn back(&mut self, signal: Signal) -> Result<(), String> {
        self.persist("clients go home", |chain| {
            chain.epoch += 1;
            Ok(chain.raise(chain.epoch, LeaseHolder::Original) == 200
                && chain.send(&chain.home(), chain.epoch, true, 5) == 200)
        })?;
        self.appliance.take().map_or(Ok(()), |left| self.parts.end(&left, signal))
    }

    /// Reads all of it.
    pub(super) fn read_whole(&mut self) -> Result<(), String> {
        self.ask("all is read", |lane| lane.read_whole())
    }

    /// Flushes; who hears of a failure asks again.
    pub(super) fn flush(&mut self) -> Result<(), String> {
        self.ask("a flush succeeds", |lane| lane.flush())
    }

    fn ask(&mut self, what: &str, ask: fn(&mut Lane<'_>) -> Result<(), Unanswered>) -> Result<(), String> {
        let socket = self.parts.path(&format!("{PROXY}.sock"));
        self.mend()?;
        self.persist(what, |chain| {
            match Lane::connect(Chain::volume(&socket, chain.truth)).and_then(|mut lane| ask(&mut lane)) {
                Ok(()) => return Ok(true),
                Err(Unanswered::Broken(what)) => return Err(what),
                // Something may be in doubt, which a settled way ends.
                Err(Unanswered::Failed | Unanswered::Ended) => {}
            }
            chain.mend()?;
            chain.back(Signal::KILL).map(|()| false)
        })
    }

    /// Checks that the proxy says that it goes where it goes.
    pub(super) fn check_route(&self) -> Result<(), String> {
        let to = self.appliance.as_ref().map_or_else(|| self.home(), |appliance| self.by(appliance));
        match self.parts.route(PROXY) {
            Some(told) if told != to => Err(format!("the proxy says that it goes to {told}, and is at {to}")),
            _ => Ok(()),
        }
    }

    /// Ends it in order, and checks what is there then, also if power were lost at this moment.
    pub(super) fn finish(mut self) -> Result<(), String> {
        self.read_whole()?;
        self.flush()?;
        self.back(Signal::TERM)?;
        for part in [PROXY, WATCH] {
            self.parts.end(part, Signal::TERM)?;
        }
        let images = match &self.origin {
            Some(origin) => origin.images().to_vec(),
            None => vec![std::fs::read(self.parts.path("disk")).expect("it can be read")],
        };
        for (image, what) in images.iter().zip(["at the origin", "on its stable storage"]) {
            self.truth.check(image).map_err(|error| format!("{what}, in the end: {error}"))?;
        }
        self.parts.check_logs()
    }
}
