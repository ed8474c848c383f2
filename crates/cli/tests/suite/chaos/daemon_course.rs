//! What strikes a daemon with its volumes. The order of the strikes and everything about each follow from the seed; when they meet what does not.

use super::Struck;
use super::daemon::{DAEMON, Daemon, FLASH, HISTORY, LEASES, RESERVATIONS, SNAPSHOTS, SUCCESSION};
use super::damage::{DAMAGE, Damage, IN_PLACE, damage, keep};
use super::draw::Draw;
use super::origin;
use super::parts::Parts;
use super::relay::{self, Side};
use super::volumes::Place;
use rustix::process::Signal;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(super) enum Strike {
    Restart,
    KillStarting,
    Hold,
    Reconfigure,
    Interlude,
    Drain,
    Loss,
    Cut,
    Errors,
    Stall,
    Delay,
    Late,
    Settle,
    Quota,
    Load,
    Place,
    Pause,
    Reserve,
    Flash,
    Snapshots,
    Kept,
    Full,
    ReadWhole,
    Status,
}

/// Each with how often it strikes.
const STRIKES: [(Strike, usize); 24] = [
    (Strike::Restart, 4),
    (Strike::KillStarting, 1),
    (Strike::Hold, 1),
    (Strike::Reconfigure, 3),
    (Strike::Interlude, 4),
    (Strike::Drain, 1),
    (Strike::Loss, 4),
    (Strike::Cut, 2),
    (Strike::Errors, 2),
    (Strike::Stall, 1),
    (Strike::Delay, 1),
    (Strike::Late, 2),
    (Strike::Settle, 2),
    (Strike::Quota, 4),
    (Strike::Load, 3),
    (Strike::Place, 1),
    (Strike::Pause, 1),
    (Strike::Reserve, 1),
    (Strike::Flash, 6),
    (Strike::Snapshots, 2),
    (Strike::Kept, 2),
    (Strike::Full, 2),
    (Strike::ReadWhole, 2),
    (Strike::Status, 2),
];

/// Half of all ends are in order: only then there is anything on flash at the next start.
const ENDS: [Signal; 2] = [Signal::KILL, Signal::TERM];

/// Where segments of flash begin. Before them is what says whether any of it is true: whoever takes that back to what it was, behind a daemon that has read it again,
/// has a device that lies.
const FLASH_SEGMENTS: u64 = 2 << 20;

/// Those that are meant ([`super::meant`]).
pub(super) fn strikes() -> Vec<Strike> {
    super::meant(&STRIKES)
}

impl Struck for Daemon<'_> {
    fn strike(&mut self, mut draw: Draw, number: u64) -> Result<(), String> {
        std::thread::sleep(draw.up_to(700));
        let strike = draw.of(&strikes());
        self.parts.note(&format!("{number}: {strike:?}"));
        self.strike_with(strike, &mut draw)?;
        self.check()
    }

    fn mend(&mut self) -> Result<(), String> {
        Daemon::mend(self)
    }

    fn parts(&mut self) -> &mut Parts {
        &mut self.parts
    }
}

impl Daemon<'_> {
    fn strike_with(&mut self, strike: Strike, draw: &mut Draw) -> Result<(), String> {
        let volume = draw.below(self.volumes.len());
        match strike {
            Strike::Restart => self.restart(draw)?,
            Strike::KillStarting => {
                self.stop(draw.of(&ENDS))?;
                self.launch();
                std::thread::sleep(draw.up_to(150));
                self.stop(Signal::KILL)?;
                self.serve()?;
            }
            Strike::Hold => self.parts.hold(DAEMON, draw.millis(&[100, 1000, 3000])),
            Strike::Reconfigure => self.reconfigure(draw)?,
            Strike::Interlude => self.interlude(draw)?,
            Strike::Drain => {
                self.order(volume, "POST", "drain", &json!({ "within_ms": draw.of(&[0, 1000, 5000]) }));
                self.volumes[volume].quota = None;
                std::thread::sleep(draw.up_to(500));
                self.restart(draw)?;
            }
            Strike::Loss => self.lose_power(volume, draw)?,
            Strike::Cut | Strike::Errors | Strike::Stall | Strike::Delay => {
                self.strike_origin(strike, volume, draw);
            }
            Strike::Late => self.deliver_late(volume, draw)?,
            Strike::Settle => (0..self.volumes.len()).for_each(|volume| self.settle(volume)),
            Strike::Quota => self.resize(volume, draw),
            Strike::Load => self.load(volume, draw),
            Strike::Place => {
                let admission = draw.of(&["evicted", "adaptive", "threshold-1", "demand", "larc", "lru"]);
                self.order(volume, "POST", "placement", &json!({ "admission": admission }));
            }
            Strike::Pause => {
                for enabled in [false, true] {
                    self.parts.order(DAEMON, "PUT", "controller", &json!({ "enabled": enabled }));
                    std::thread::sleep(draw.up_to(1000));
                }
            }
            Strike::Reserve => {
                let name = self.volumes[volume].truth.name();
                let body = json!({ "volumes": [name], "latency_s": 0.01, "duration_s": draw.of(&[1, 60]) });
                self.parts.order(DAEMON, "POST", "reservations", &body);
            }
            Strike::Flash => self.damage_flash(draw)?,
            Strike::Snapshots => self.damage_others(&[SNAPSHOTS], draw)?,
            Strike::Kept => self.damage_others(&[HISTORY, LEASES, SUCCESSION, RESERVATIONS], draw)?,
            Strike::Full => self.leave_no_room(draw)?,
            Strike::ReadWhole => self.read_all()?,
            Strike::Status => self.check_status()?,
        }
        Ok(())
    }

    fn restart(&mut self, draw: &mut Draw) -> Result<(), String> {
        self.stop(draw.of(&ENDS))?;
        if draw.percent(20) {
            std::thread::sleep(draw.up_to(500));
        }
        self.serve()
    }

    /// Started anew with other caches, blocks, names and volumes.
    fn reconfigure(&mut self, draw: &mut Draw) -> Result<(), String> {
        self.stop(draw.of(&ENDS))?;
        let mut next = self.configured();
        if draw.percent(30) {
            next.names.swap(0, 1);
        }
        if draw.percent(20) {
            next.flash_mib = draw.of(&[8, 12, 16]);
        }
        next.leaves_flash_out = draw.percent(20);
        next.setups = self.setups(next.flash_mib, draw);
        self.configure(&next);
        self.serve()
    }

    /// Ended in order, served for a moment so that flash hears nothing of what is written, and then as before: what flash had kept is not true any more.
    fn interlude(&mut self, draw: &mut Draw) -> Result<(), String> {
        self.stop(Signal::TERM)?;
        let (before, flash) = (self.configured(), self.path(FLASH));
        let mut next = before.clone();
        match draw.below(3) {
            0 => next.leaves_flash_out = true,
            1 => next.names.rotate_left(1),
            // Whoever vouches for an origin says that no other device took part in between.
            _ if self.is_vouched_for() => next.names.swap(0, 1),
            _ => keep(&flash),
        }
        let is_older = next.names == before.names && !next.leaves_flash_out;
        self.configure(&next);
        self.serve()?;
        std::thread::sleep(draw.up_to(1500));
        self.stop(draw.of(&ENDS))?;
        if is_older {
            self.harm(FLASH, &flash, 0, Damage::Older, draw);
        }
        self.configure(&before);
        self.serve()?;
        if draw.percent(70) { self.read_all() } else { Ok(()) }
    }

    /// Reads all of all volumes that are served.
    fn read_all(&mut self) -> Result<(), String> {
        self.mend()?;
        for volume in 0..self.volumes.len() {
            if self.volumes[volume].setup.is_served {
                self.ask(volume, "all is read", |lane| lane.read_whole())?;
            }
        }
        Ok(())
    }

    fn lose_power(&mut self, volume: usize, draw: &mut Draw) -> Result<(), String> {
        let is_one = draw.percent(60);
        let (is_killed_before, is_killed_after) = (draw.percent(25), draw.percent(25));
        if is_killed_before {
            self.stop(draw.of(&ENDS))?;
        }
        for (number, volume) in self.volumes.iter().enumerate().filter(|(at, _)| !is_one || *at == volume) {
            let Place::Stranger { origin, .. } = &volume.place else { continue };
            let mut count = 0;
            let is_owed = volume.truth.lose(|| {
                let gone = origin.lose();
                count = gone.len();
                gone
            });
            let owed = if is_owed { ", of which somebody has to be told" } else { "" };
            self.parts.note(&format!("origin {number} loses power, and {count} sectors{owed}"));
        }
        std::thread::sleep(draw.millis(&[20, 300, 1000, 3000]));
        if is_killed_after && !is_killed_before {
            self.stop(draw.of(&ENDS))?;
        }
        for volume in &self.volumes {
            volume.behave();
        }
        if is_killed_before || is_killed_after { self.serve() } else { Ok(()) }
    }

    /// Those that a file knows nothing of.
    fn strike_origin(&self, strike: Strike, volume: usize, draw: &mut Draw) {
        let Place::Stranger { origin, relay, .. } = &self.volumes[volume].place else { return };
        let usual = origin::Manners::default();
        let (manners, time) = match strike {
            Strike::Errors => {
                let mut failing = || draw.below(20);
                let (reads_failing, writes_failing, flushes_failing) = (failing(), failing(), failing());
                let manners = origin::Manners { reads_failing, writes_failing, flushes_failing, ..usual };
                (manners, draw.up_to(2000))
            }
            Strike::Delay => {
                (origin::Manners { delay: Duration::from_millis(20), ..usual }, draw.up_to(2000))
            }
            Strike::Stall => (origin::Manners { is_stalled: true, ..usual }, draw.millis(&[100, 1000, 4000])),
            _ => {
                return match relay {
                    Some(relay) => relay.cut(draw.of(&[Side::Clients, Side::Servers, Side::Both])),
                    None => origin.cut(),
                };
            }
        };
        origin.behave(manners);
        std::thread::sleep(time);
        if manners.is_stalled {
            origin.cut();
        }
        origin.behave(usual);
    }

    /// Something lies in the network, and arrives whatever has become of who sent it, unless that is a daemon that is gone.
    fn deliver_late(&mut self, volume: usize, draw: &mut Draw) -> Result<(), String> {
        let Place::Stranger { relay: Some(relay), .. } = &self.volumes[volume].place else { return Ok(()) };
        let (holds_requests, holds_answers) = draw.of(&[(true, false), (false, true), (true, true)]);
        relay.behave(relay::Manners { holds_requests, holds_answers, is_late: true });
        std::thread::sleep(draw.millis(&[50, 300, 1000, 4000]));
        if draw.percent(40) {
            relay.cut(draw.of(&[Side::Clients, Side::Servers, Side::Both]));
            std::thread::sleep(draw.millis(&[0, 300, 1000]));
        } else if draw.percent(30) {
            self.restart(draw)?;
        }
        if let Place::Stranger { relay: Some(relay), .. } = &self.volumes[volume].place {
            relay.behave(relay::Manners { is_late: true, ..relay::Manners::default() });
            relay.behave(relay::Manners::default());
        }
        Ok(())
    }

    /// Its cache is taken away, given back, and of another size.
    fn resize(&mut self, volume: usize, draw: &mut Draw) {
        for number in 0..draw.of(&[2, 4, 8]) {
            let small = [0, 64 << 10, 192 << 10, 512 << 10];
            let bytes = if number % 2 == 0 { draw.of(&[1 << 20, 2 << 20]) } else { draw.of(&small) };
            let status = self.order(volume, "PUT", "quota", &json!({ "bytes": bytes }));
            let served = &mut self.volumes[volume];
            // Of one that the controller sizes it is not known for how long it is so.
            served.quota = match status {
                200 if served.setup.cache.is_some() => Some(bytes),
                400..500 => served.quota,
                _ => None,
            };
            std::thread::sleep(draw.up_to(300));
        }
    }

    /// Has it loaded with some ranges, or what snapshots say, and perhaps no more of it.
    fn load(&self, volume: usize, draw: &mut Draw) {
        let body = if draw.percent(30) {
            json!({})
        } else {
            let range = |draw: &mut Draw| json!({ "offset": draw.below(4 << 20), "length": draw.of(&[4096, 1 << 20]) });
            let ranges: Vec<_> = (0..draw.of(&[1, 4, 16])).map(|_| range(draw)).collect();
            json!({ "ranges": ranges, "bytes_per_second": draw.of(&[1 << 20, 64 << 20]) })
        };
        self.order(volume, "POST", "prewarm", &body);
        if draw.percent(50) {
            std::thread::sleep(draw.up_to(300));
            self.order(volume, "DELETE", "prewarm", &json!({}));
        }
    }

    fn damage_flash(&mut self, draw: &mut Draw) -> Result<(), String> {
        let path = self.path(FLASH);
        let is_down = draw.percent(60);
        if !is_down {
            // It may have another length at the next start.
            let what = draw.of(&[Damage::Flip, Damage::Misplace, Damage::Zero, Damage::Zero, Damage::Cut]);
            self.harm(FLASH, &path, FLASH_SEGMENTS, what, draw);
            return if draw.percent(50) { self.read_all() } else { Ok(()) };
        }
        self.stop(draw.of(&[Signal::TERM, Signal::TERM, Signal::KILL]))?;
        let what = draw.of(&DAMAGE);
        // What says whether it is true is a small part of it, and so is where it begins.
        let from = draw.of(&[0, 0, 4096, FLASH_SEGMENTS]);
        self.harm(FLASH, &path, from, what, draw);
        self.serve()
    }

    /// Damages a file by this name, or of the folder of this name, perhaps while the daemon is down.
    fn damage_others(&mut self, names: &[&'static str], draw: &mut Draw) -> Result<(), String> {
        let name = draw.of(names);
        let is_down = draw.percent(50);
        if is_down {
            self.stop(draw.of(&ENDS))?;
        }
        for _ in 0..draw.of(&[1, 1, 3]) {
            let path = self.one_of(name, draw);
            let what = if draw.percent(15) { Damage::Older } else { draw.of(&DAMAGE) };
            // A range is an origin, which does not go or get shorter.
            let is_range = name == SNAPSHOTS && path == self.path(SNAPSHOTS) && !self.has_database();
            let what = if is_range { draw.of(&IN_PLACE) } else { what };
            if draw.percent(20) {
                keep(&path);
            } else if draw.percent(15) {
                let from = self.one_of(draw.of(names), draw);
                if from != path && std::fs::copy(&from, &path).is_ok() {
                    self.parts.note(&format!("{} in place of {}", from.display(), path.display()));
                    self.harmed.insert(name);
                }
            } else {
                self.harm(name, &path, 0, what, draw);
            }
        }
        if is_down { self.serve() } else { Ok(()) }
    }

    /// A file by this name, or beside it, or of the folder of this name.
    fn one_of(&self, name: &str, draw: &mut Draw) -> PathBuf {
        let path = self.path(name);
        if let Ok(entries) = std::fs::read_dir(&path) {
            let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
            files.sort();
            return if files.is_empty() { path } else { draw.of(&files.iter().collect::<Vec<_>>()).clone() };
        }
        let beside = if name == HISTORY { draw.of(&["", "", "-wal", "-shm", ".past"]) } else { "" };
        path.with_file_name(format!("{name}{beside}"))
    }

    fn harm(&mut self, name: &'static str, path: &std::path::Path, from: u64, what: Damage, draw: &mut Draw) {
        let done = damage(path, from, what, draw);
        self.parts.note(&format!("{what:?} of {} from {from} on: {done:?}", path.display()));
        self.harmed.insert(name);
    }

    /// Nothing fits in beside flash, snapshots and history any more, for a while.
    fn leave_no_room(&mut self, draw: &mut Draw) -> Result<(), String> {
        let Some(space) = &self.space else { return Ok(()) };
        space.fill();
        std::thread::sleep(draw.up_to(2000));
        if draw.percent(40) {
            self.restart(draw)?;
        }
        if let Some(space) = &self.space {
            space.free();
        }
        Ok(())
    }
}
