//! One `forebay serve` with its volumes and all that it keeps: flash, snapshots, history, and the state that outlasts it.

use super::client::{Lane, Unanswered, Volume};
use super::draw::Draw;
use super::parts::{Parts, Status};
use super::space::Space;
use super::truth::Truth;
use super::volumes::{Place, SIZES, Served, Setup};
use crate::ledger::SECTOR;
use forebay_actuate::Deadline;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) const DAEMON: &str = "daemon";
const NAMES: [&str; 4] = ["one", "two", "three", "four"];

/// What keeps a daemon from starting where it is damaged: by their names the daemon's words are known.
pub(super) const FLASH: &str = "flash.dev";
pub(super) const LEASES: &str = "leases.json";
pub(super) const SUCCESSION: &str = "succession.json";
/// What does not.
pub(super) const RESERVATIONS: &str = "reservations.json";
pub(super) const HISTORY: &str = "history.db";
pub(super) const SNAPSHOTS: &str = "snapshots";

/// Tells of volumes on flash, and is no room for blocks.
const FLASH_HEAD_MIB: u64 = 2;
/// How long a start may take.
const START_MAX: Duration = Duration::from_secs(45);
/// How long it may take until a cache has shrunk to its quota.
const SETTLED_MAX: Duration = Duration::from_secs(20);

/// How a daemon is configured, besides its volumes.
struct Plan {
    /// 0: it has none.
    flash_mib: u64,
    /// It has none at the next start.
    leaves_flash_out: bool,
    /// `directory`, `database`, `origin` or nothing.
    snapshots: &'static str,
    has_history: bool,
    has_leases: bool,
    has_succession: bool,
    has_reservations: bool,
    is_controlled: bool,
    engine: &'static str,
    workers: usize,
}

/// What of it changes from start to start.
#[derive(Clone)]
pub(super) struct Configured {
    pub(super) names: Vec<String>,
    pub(super) setups: Vec<Setup>,
    pub(super) flash_mib: u64,
    pub(super) leaves_flash_out: bool,
}

pub(super) struct Daemon<'a> {
    pub(super) parts: Parts,
    pub(super) volumes: Vec<Served<'a>>,
    pub(super) space: Option<Space>,
    plan: Plan,
    /// Names of files that were damaged, for which a start may be refused.
    pub(super) harmed: BTreeSet<&'static str>,
    /// A start had no flash, of which flash knows nothing.
    is_flash_doubtful: bool,
    refusals: usize,
    until: Deadline,
}

/// What is known of the volumes.
pub(super) fn truths(draw: &mut Draw) -> Vec<Truth> {
    let names = &NAMES[..2 + draw.below(3)];
    names.iter().map(|name| Truth::of_racers(name, draw.of(&SIZES))).collect()
}

impl<'a> Daemon<'a> {
    /// It, running. What it is like follows from `draw`.
    pub(super) fn start(
        folder: &Path,
        truths: &'a [Truth],
        draw: &mut Draw,
        until: Deadline,
    ) -> Result<Daemon<'a>, String> {
        let plan = Plan {
            flash_mib: draw.of(&[0, 8, 12, 12, 12, 16, 16, 16]),
            leaves_flash_out: false,
            snapshots: draw.of(&["", "directory", "directory", "database", "origin"]),
            has_history: draw.percent(50),
            has_leases: draw.percent(30),
            has_succession: draw.percent(40),
            has_reservations: draw.percent(30),
            is_controlled: draw.percent(70),
            engine: draw.of(&["auto", "threads"]),
            workers: draw.of(&[1, 2]),
        };
        let parts = Parts::new(folder);
        let volumes =
            truths.iter().enumerate().map(|(number, truth)| Served::new(folder, number, truth, draw));
        let volumes = volumes.collect();
        let space = if draw.percent(40) { Space::new(&parts.path("space")) } else { None };
        let (harmed, is_flash_doubtful, refusals) = (BTreeSet::new(), false, 0);
        let mut daemon = Daemon { parts, volumes, space, plan, harmed, is_flash_doubtful, refusals, until };
        let snapshots = daemon.path(SNAPSHOTS);
        let made = match daemon.plan.snapshots {
            "directory" => std::fs::create_dir(snapshots),
            "origin" => std::fs::File::create(snapshots).and_then(|range| range.set_len(2 << 20)),
            _ => Ok(()),
        };
        made.expect("there is room");
        let setups = daemon.setups(daemon.plan.flash_mib, draw);
        daemon.volumes.iter_mut().zip(setups).for_each(|(volume, setup)| volume.setup = setup);
        daemon.parts.note(&daemon.describe());
        daemon.serve()?;
        Ok(daemon)
    }

    pub(super) fn describe(&self) -> String {
        let Plan { flash_mib, snapshots, is_controlled, .. } = self.plan;
        let volumes: Vec<_> = self.volumes.iter().map(Served::describe).collect();
        let small = if self.space.is_some() { ", a small file system" } else { "" };
        let controlled = if is_controlled { ", controlled" } else { "" };
        let snapshots = if snapshots.is_empty() { "nowhere" } else { snapshots };
        format!("{}; flash {flash_mib}MiB, snapshots: {snapshots}{controlled}{small}", volumes.join(", "))
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.parts.path("daemon.sock")
    }

    /// Where flash, snapshots and history are.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        let is_small = self.space.is_some() && [FLASH, SNAPSHOTS, HISTORY].contains(&name);
        if is_small { self.parts.path("space").join(name) } else { self.parts.path(name) }
    }

    pub(super) fn has_database(&self) -> bool {
        self.plan.snapshots == "database"
    }

    pub(super) fn has_flash(&self) -> bool {
        self.plan.flash_mib > 0 && !self.plan.leaves_flash_out
    }

    /// How each volume may be configured, with so much flash.
    pub(super) fn setups(&self, flash_mib: u64, draw: &mut Draw) -> Vec<Setup> {
        let mut room_mib = flash_mib.saturating_sub(FLASH_HEAD_MIB);
        let mut setups: Vec<_> = self.volumes.iter().map(|_| Setup::new(draw, &mut room_mib)).collect();
        setups[0].is_served = true;
        setups
    }

    /// How it is configured.
    pub(super) fn configured(&self) -> Configured {
        let names = self.volumes.iter().map(|volume| volume.truth.name()).collect();
        let setups = self.volumes.iter().map(|volume| volume.setup).collect();
        let Plan { flash_mib, leaves_flash_out, .. } = self.plan;
        Configured { names, setups, flash_mib, leaves_flash_out }
    }

    /// How it is at the next start. A flash file of another size has to go.
    pub(super) fn configure(&mut self, next: &Configured) {
        for (volume, (name, setup)) in self.volumes.iter_mut().zip(next.names.iter().zip(&next.setups)) {
            volume.truth.rename(name);
            volume.setup = *setup;
        }
        if self.plan.flash_mib > 0 && self.plan.flash_mib != next.flash_mib {
            self.plan.flash_mib = next.flash_mib;
            let _ = std::fs::remove_file(self.path(FLASH));
        }
        self.plan.leaves_flash_out = next.leaves_flash_out;
    }

    /// Whether somebody vouches for an origin that does not tell itself who has written to it.
    pub(super) fn is_vouched_for(&self) -> bool {
        let is_mute = |volume: &Served<'_>| matches!(volume.place, Place::Stranger { .. });
        self.volumes.iter().any(|volume| is_mute(volume) && volume.is_sole_writer)
    }

    fn configuration(&self) -> String {
        let Plan { snapshots, engine, workers, is_controlled, .. } = self.plan;
        let (nbd, http) = (self.socket(), self.parts.path("daemon-http.sock"));
        let mut text = format!(
            "listen = [\"unix:{}\"]\nhttp = {{ listen = \"off\", socket = {http:?} }}\n\
             limits = {{ drain = \"3s\", workers = {workers} }}\nio.engine = \"{engine}\"\ncache.memory = \"12MiB\"\n\
             control = {{ enabled = {is_controlled}, interval = \"300ms\", \
             warmup = {{ spared_min = 0.0, hit_ratio_min = 0.0, accesses_min = 0 }} }}\n",
            nbd.display()
        );
        if self.has_flash() {
            text += &format!(
                "flash = {{ path = {:?}, size = \"{}MiB\" }}\n",
                self.path(FLASH),
                self.plan.flash_mib
            );
        }
        if !snapshots.is_empty() {
            let range = if snapshots == "origin" { "length = \"2MiB\", slot = \"64KiB\", " } else { "" };
            let path = self.path(SNAPSHOTS);
            text +=
                &format!("snapshots = {{ {snapshots} = {path:?}, {range}every = \"300ms\", keep = 4 }}\n");
        }
        let kept = [
            (self.plan.has_history, "history", HISTORY),
            (self.plan.has_leases, "leases", LEASES),
            (self.plan.has_succession, "succession", SUCCESSION),
            (self.plan.has_reservations, "reservations", RESERVATIONS),
        ];
        for (_, key, name) in kept.into_iter().filter(|(is_there, ..)| *is_there) {
            text += &format!("{key}.path = {:?}\n", self.path(name));
        }
        for volume in self.volumes.iter().filter(|volume| volume.setup.is_served) {
            text += &volume.configuration(self.has_flash());
        }
        text
    }

    /// Starts it, mending what it refuses to start with.
    pub(super) fn serve(&mut self) -> Result<(), String> {
        if !self.has_flash() {
            self.is_flash_doubtful = true;
        } else if std::mem::take(&mut self.is_flash_doubtful) && self.is_vouched_for() {
            self.clear_flash();
        }
        for _ in 0..8 {
            self.launch();
            let up = Deadline::after(START_MAX).wait_for(|| match self.parts.ended(DAEMON) {
                None => self.parts.is_up(DAEMON, Duration::from_millis(100)).then_some(Ok(())),
                Some(words) => Some(Err(words)),
            });
            match up {
                Some(Ok(())) => return Ok(()),
                Some(Err(words)) => self.mend_refused(&words)?,
                None => return Err("the daemon does not come up".to_owned()),
            }
        }
        Err("the daemon refuses to start again and again".to_owned())
    }

    pub(super) fn launch(&mut self) {
        for volume in &mut self.volumes {
            volume.quota = volume.setup.cache.filter(|_| volume.setup.is_served);
        }
        self.parts.start(DAEMON, "serve", &self.configuration());
    }

    /// Has flash forget what it holds, as its description says for who vouches for origins.
    fn clear_flash(&self) {
        use std::os::unix::fs::FileExt;
        let flash = std::fs::File::options().write(true).open(self.path(FLASH));
        let _ = flash.and_then(|flash| flash.write_all_at(&[0; 4096], 0));
    }

    /// Mends that of which it has said that it does not start with it, if that may be.
    fn mend_refused(&mut self, words: &str) -> Result<(), String> {
        self.refusals += 1;
        let words = words.rsplit("error: ").next().unwrap_or_default();
        self.parts.note(&format!("refused: {words}"));
        if let Some(name) = self.harmed.iter().copied().find(|name| words.contains(name)) {
            self.harmed.remove(name);
            std::fs::remove_file(self.path(name)).map_err(|error| format!("{name}: {error}"))
        } else if let Some(space) = self.space.as_ref().filter(|space| space.is_full()) {
            space.free();
            Ok(())
        } else {
            Err(format!("the daemon does not start: {words}"))
        }
    }

    /// Ends it. What it had sent has no effect from here on, and everybody knows that it is gone.
    pub(super) fn stop(&mut self, signal: Signal) -> Result<(), String> {
        self.note_caches();
        self.parts.end(DAEMON, signal)?;
        for volume in &self.volumes {
            volume.fence();
            volume.truth.tell();
        }
        Ok(())
    }

    /// What each volume had of its cache, for whoever has to find out why.
    fn note_caches(&self) {
        let status = self.parts.status(DAEMON).unwrap_or_default();
        for told in status["volumes"].as_array().into_iter().flatten() {
            let Value::Object(flash) = &told["flash"] else { continue };
            let flash: Vec<_> = flash.iter().map(|(what, count)| format!("{what} {count}")).collect();
            let (name, used) = (&told["name"], &told["used_bytes"]);
            self.parts.note(&format!("{name}: {used} bytes in memory; on flash {}", flash.join(", ")));
        }
    }

    /// An order for a volume.
    pub(super) fn order(&self, volume: usize, method: &str, what: &str, body: &Value) -> Status {
        let name = self.volumes[volume].truth.name();
        self.parts.order(DAEMON, method, &format!("volumes/{name}/{what}"), body)
    }

    /// Says of a volume that nothing more comes of what its origin did not answer, which is so.
    pub(super) fn settle(&self, volume: usize) {
        let served = &self.volumes[volume];
        if let (Place::Stranger { relay: Some(_), .. }, Some(uri)) = (&served.place, served.uri()) {
            served.fence();
            self.order(volume, "POST", "route", &json!({ "to": uri, "settled": true, "within_s": 5 }));
        }
    }

    /// Has everything behave again that was told to misbehave; an error if the daemon has ended by itself.
    pub(super) fn mend(&mut self) -> Result<(), String> {
        self.volumes.iter().for_each(Served::behave);
        if let Some(space) = &self.space {
            space.free();
        }
        self.check()
    }

    /// That it has not ended by itself, and that none of its threads has: it may go on without one.
    pub(super) fn check(&mut self) -> Result<(), String> {
        self.parts.check()?;
        self.parts.check_logs()
    }

    /// Checks what it says of itself, once caches have had time to shrink.
    pub(super) fn check_status(&self) -> Result<(), String> {
        let mut wrong = "it says nothing of itself".to_owned();
        Deadline::after(SETTLED_MAX)
            .wait_for(|| {
                wrong = self.parts.status(DAEMON).map_or_else(|| wrong.clone(), |told| self.wrong(&told));
                wrong.is_empty().then_some(())
            })
            .ok_or(format!("its status: {wrong}"))
    }

    /// What of a status is not so.
    fn wrong(&self, status: &Value) -> String {
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let cache = &status["cache"];
        if number(&cache["granted_bytes"]) > number(&cache["capacity_bytes"]) {
            return format!("more is granted than there is: {cache}");
        }
        for told in status["volumes"].as_array().into_iter().flatten() {
            let (name, quota) = (&told["name"], number(&told["quota_bytes"]));
            if number(&told["used_bytes"]) > quota {
                return format!("{name} holds {} of {quota} bytes", told["used_bytes"]);
            }
            let flash = &told["flash"];
            if number(&flash["used_bytes"]) > number(&flash["quota_bytes"]) {
                return format!("{name} holds more on flash than it may: {flash}");
            }
            let volume = self.volumes.iter().find(|volume| volume.truth.name().as_str() == name);
            let expected = volume.and_then(|volume| volume.quota);
            let is_there = told["state"] != "absent" && told["state"] != "drained";
            if is_there && expected.is_some_and(|expected| expected != quota) {
                return format!("{name} has a quota of {quota} bytes, expected {expected:?}");
            }
        }
        String::new()
    }

    /// Asks a volume until it answers, on a daemon that behaves.
    pub(super) fn ask(
        &mut self,
        volume: usize,
        what: &str,
        ask: fn(&mut Lane<'_>) -> Result<(), Unanswered>,
    ) -> Result<(), String> {
        let socket = self.socket();
        loop {
            let truth = self.volumes[volume].truth;
            let lane = Lane::connect(Volume { socket: &socket, truth });
            match lane.and_then(|mut lane| ask(&mut lane)) {
                Ok(()) => return Ok(()),
                Err(Unanswered::Broken(what)) => return Err(format!("{}: {what}", truth.name())),
                Err(Unanswered::Failed | Unanswered::Ended) => {}
            }
            if self.until.is_over() {
                return Err(format!("{}: {what}: it does not come to that", truth.name()));
            }
            self.mend()?;
            std::thread::sleep(Duration::from_millis(200));
            self.settle(volume);
        }
    }

    /// Starts it once more, with all volumes and what it had on flash, reads and flushes all, ends it in order, and checks what is there then, also if power
    /// were lost at this moment. How often it was started, and refused to.
    pub(super) fn finish(mut self) -> Result<(usize, usize), String> {
        self.stop(Signal::TERM)?;
        self.volumes.iter_mut().for_each(|volume| volume.setup = volume.setup.behaving());
        self.serve()?;
        for volume in 0..self.volumes.len() {
            self.ask(volume, "all is read", |lane| lane.read_whole())?;
            self.ask(volume, "a flush succeeds", |lane| lane.flush())?;
        }
        self.check_status()?;
        self.stop(Signal::TERM)?;
        for volume in &self.volumes {
            for (image, what) in volume.images().iter().zip(["at the origin", "on its stable storage"]) {
                let sectors = &image[..volume.truth.sectors * SECTOR];
                let checked = volume.truth.check(sectors);
                checked.map_err(|error| format!("{}, {what}, in the end: {error}", volume.truth.name()))?;
            }
        }
        self.parts.check_logs()?;
        Ok((self.parts.starts, self.refusals))
    }
}
