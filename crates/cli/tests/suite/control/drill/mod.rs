//! Each part is killed, or stands still, at each step of the way there, of the way back, and of the way off an appliance that died, while a client of ours writes and reads back, by each way that clients
//! are moved: the end is a cache in place or the original route, and no byte is lost or stale.
//!
//! A step is seen in the controller's journal, which is on disk before the step is begun; what is struck then is struck while the step's order is on its way, or that of the
//! next: some last for milliseconds. `FOREBAY_KILLS` says how many of the cases of each way are tried, all of them where it is `all` (`scripts/kill-trial`), those with this in their name where it is another word; else a few. `FOREBAY_SEED` says in which
//! order, how long after the step is seen, and for how long.

mod ways;

use super::site::{APPLICATION, CONTROLLER, HOSTS, STORAGE, Site};
use super::{BLOCKS, Controller, Ledger, OUTSTANDING, Work, drive};
use crate::support::{Running, SetOnDrop};
use forebay_prerequisite::programs;
use forebay_units::mix64;
use serde_json::Value;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use ways::{Case, Way};

/// How long what is cut off or gone stays so.
const FOR: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Controller,
    /// The controller, and what it kept of its responses.
    Journal,
    Appliance,
    /// The host of the appliance, with all that runs there.
    Host,
    Storage,
    /// The wire between two hosts; `None`: the appliance's.
    Wire(Option<usize>, Option<usize>),
    /// They stand still for a while, and go on with what they were at.
    HungController,
    HungAppliance,
    HungStorage,
}

const PARTS: [Part; 14] = [
    Part::Controller,
    Part::Journal,
    Part::Appliance,
    Part::Host,
    Part::Storage,
    Part::HungController,
    Part::HungAppliance,
    Part::HungStorage,
    Part::Wire(Some(CONTROLLER), Some(STORAGE)),
    Part::Wire(Some(CONTROLLER), Some(APPLICATION)),
    Part::Wire(Some(CONTROLLER), None),
    Part::Wire(Some(APPLICATION), Some(STORAGE)),
    Part::Wire(Some(APPLICATION), None),
    Part::Wire(Some(STORAGE), None),
];

impl Part {
    /// Whether it is, or is of, an appliance.
    fn is_of_appliance(self) -> bool {
        matches!(self, Part::Appliance | Part::HungAppliance)
    }
}

/// What goes on while something is struck.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Course {
    /// A cache is wanted.
    There,
    /// It is not wanted any more.
    Back,
    /// The appliance was killed while it served clients, and a cache is wanted.
    Off,
}

struct Drill {
    // Dropped first: it would start more appliances.
    controller: Controller,
    way: Way,
    _client: Running,
    site: Site,
}

impl Drill {
    fn new(way: Way) -> Drill {
        let site = Site::new();
        let (client, route) = way.install(&site);
        let hosts: String = HOSTS.map(|host| site.host(host, "256MiB", "")).concat();
        let response = "start_within_ms = 4000, fence_within_ms = 1500, switch_within_ms = 1500, stop_within_ms = 2500, report_grace_ms = 500, \
                        late_max_ms = 3000, retry_max_ms = 1000, rest_first_ms = 1000, rest_max_ms = 2000";
        site.configure("200ms", "h3", &hosts, &format!("route = {route}"), response);
        let controller = site.control();
        Drill { controller, way, _client: client, site }
    }

    /// The step that the journal tells of, and the number of the appliance's host.
    fn journal(&self) -> Option<(String, Option<usize>)> {
        let text = std::fs::read(self.site.path("state/responses.json")).ok()?;
        let journal: Value = serde_json::from_slice(&text).ok()?;
        let response = &journal["responses"][0][1];
        let host = response["placed"]["host"].as_u64().map(|host| HOSTS[host as usize]);
        Some((response["phase"].as_str()?.to_owned(), host))
    }

    /// Waits for one of these steps.
    fn wait(&self, steps: &[&str], within: Duration) -> Option<(String, Option<usize>)> {
        let until = Instant::now() + within;
        while Instant::now() < until {
            if let Some(found) = self.journal().filter(|(step, _)| steps.contains(&&**step)) {
                return Some(found);
            }
            std::thread::sleep(Duration::from_micros(300));
        }
        None
    }

    fn must(&self, steps: &[&str]) -> (String, Option<usize>) {
        self.wait(steps, PATIENCE).unwrap_or_else(|| {
            panic!("none of {steps:?} within {PATIENCE:?}, but {:?}\n{}", self.journal(), self.log())
        })
    }

    /// What the controllers said last.
    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.site.path("control.log")).unwrap_or_default();
        let from = log.lines().count().saturating_sub(120);
        log.lines().skip(from).collect::<Vec<_>>().join("\n")
    }

    /// Kills a part, and brings back after a while what does not come back by itself; what stands still does for so long.
    fn strike(&mut self, part: Part, host: Option<usize>, hangs_for: Duration) {
        let host = host.unwrap_or(HOSTS[0]);
        match part {
            Part::Controller => {
                self.controller.kill();
                std::thread::sleep(FOR / 4);
                self.controller = self.site.control();
            }
            Part::Journal => {
                self.controller.kill();
                std::fs::remove_file(self.site.path("state/responses.json")).unwrap();
                self.controller = self.site.control();
            }
            Part::Appliance => self.site.appliances.kill(),
            Part::Host => {
                self.site.wire.kill(host);
                std::thread::sleep(FOR);
                self.site.wire.revive(host);
            }
            Part::Storage => {
                self.site.kill_storage();
                std::thread::sleep(FOR / 4);
                self.site.start_storage();
            }
            Part::Wire(one, other) => {
                let (one, other) = (one.unwrap_or(host), other.unwrap_or(host));
                self.site.wire.cut(one, other);
                std::thread::sleep(FOR);
                self.site.wire.mend(one, other);
            }
            Part::HungController => hang(&[self.controller.0.id()], hangs_for),
            Part::HungAppliance => hang(&self.site.appliances.pids(), hangs_for),
            Part::HungStorage => hang(&self.site.storage_pids(), hangs_for),
        }
    }

    /// One case; how it ended. The client works until it has settled, and does not while a cache is taken back; the next one's looks at what was left.
    fn run(&mut self, (course, part, step): Case, random: u64, ledger: &mut Ledger) -> String {
        let (after, hangs_for) =
            (Duration::from_micros(random % 4_000), Duration::from_millis(200 + (random >> 32) % 4_000));
        let steps = self.way.steps(course);
        let at = steps.iter().position(|of| *of == step).expect("a step");
        // Some last for milliseconds: then it is the next one that is seen.
        let next: &[&str] = match course {
            Course::There => &[],
            Course::Back => &["original"],
            Course::Off => &["original", "reserved", "starting", "proving", "switching"],
        };
        let awaited = [&steps[at..], next].concat();
        let struck = |drill: &mut Drill| {
            let (seen, host) = drill.must(&awaited);
            if drill.way.waits_for_nobody(part, &seen) {
                let until = Instant::now() + PATIENCE;
                while !Way::who_has_address(&drill.site).is_empty() {
                    assert!(
                        Instant::now() < until,
                        "the address is not taken from where it is: {}",
                        drill.log()
                    );
                }
            } else {
                std::thread::sleep(after);
            }
            drill.strike(part, host, hangs_for);
            seen
        };
        let there = self.while_client_works(ledger, |drill, work| {
            if course != Course::There {
                drill.must(&["serving"]);
            }
            match course {
                Course::Back => return None,
                Course::Off => {
                    drill.until_answered(work, 4 * OUTSTANDING);
                    drill.site.appliances.kill();
                }
                Course::There => {}
            }
            Some((struck(drill), drill.settle(work)))
        });
        let (seen, end) = there.unwrap_or_else(|| (struck(self), "original route"));
        // What failed is tried again for as long as it is wanted, and that is not for long.
        let until = Instant::now() + PATIENCE;
        while self.wait(&["original"], PATIENCE).is_none_or(|_| {
            std::thread::sleep(Duration::from_secs(1));
            self.journal().is_none_or(|(step, _)| step != "original")
        }) {
            assert!(Instant::now() < until, "the cache is not given back: {}", self.log());
        }
        let found = format!("{part:?} at {seen} of {course:?}");
        self.way.check_original_route(&self.site, &found);
        let until = Instant::now() + PATIENCE;
        while !self.site.appliances.pids().is_empty() {
            assert!(Instant::now() < until, "{found}: an appliance still runs");
            std::thread::sleep(Duration::from_millis(20));
        }
        format!("{found}: {end}")
    }

    /// Waits until a client had answers for so many more requests.
    fn until_answered(&self, work: &Work, requests: u64) {
        let (until, from) = (Instant::now() + PATIENCE, work.done.load(Ordering::Relaxed));
        while work.done.load(Ordering::Relaxed) < from + requests {
            assert!(Instant::now() < until, "clients do not go on: {}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Has a client work, and check what it reads, while something else is done.
    fn while_client_works<T>(&mut self, ledger: &mut Ledger, act: impl FnOnce(&mut Drill, &Work) -> T) -> T {
        let work = Work::default();
        let uri = self.way.disk(&self.site);
        std::thread::scope(|scope| {
            let stops = SetOnDrop(&work.stop);
            let client = scope.spawn(|| drive(uri, ledger, &work));
            let done = act(self, &work);
            drop(stops);
            client.join().expect("no byte is lost or stale");
            done
        })
    }

    /// Waits until what was begun has come to its end, with a client that goes on; where it ended.
    fn settle(&self, work: &Work) -> &'static str {
        let until = Instant::now() + PATIENCE;
        let done = || work.done.load(Ordering::Relaxed);
        let (mut same_since, mut last, mut done_then) = (Instant::now(), self.journal(), done());
        loop {
            let now = self.journal();
            let end = match now.as_ref().map(|(step, _)| &**step) {
                Some("serving") => Some("cache in place"),
                Some("original") => Some("original route"),
                _ => None,
            };
            if now != last || end.is_none() {
                (last, same_since, done_then) = (now, Instant::now(), done());
            } else if let Some(end) = end
                && same_since.elapsed() > Duration::from_millis(1_000)
                && done() > done_then + OUTSTANDING / 2
            {
                return end;
            }
            assert!(
                Instant::now() < until,
                "neither in place nor on the original route: {last:?}\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Has processes stand still for so long.
fn hang(pids: &[u32], lasts: Duration) {
    let tell = |signal: &str| {
        for pid in pids {
            // It may have ended, or been killed as it stood.
            let _ = Command::new("kill").args([signal, &pid.to_string()]).status();
        }
    };
    tell("-STOP");
    std::thread::sleep(lasts);
    tell("-CONT");
}

fn kill_at_steps(way: Way) {
    let seed = std::env::var("FOREBAY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1u64);
    let mut all = way.all();
    all.sort_by_key(|case| {
        mix64(format!("{case:?}").bytes().fold(seed, |hash, byte| mix64(hash ^ u64::from(byte))))
    });
    let cases = match std::env::var("FOREBAY_KILLS").ok().as_deref() {
        None => way.always(),
        Some("all") => all,
        Some(chosen) => match chosen.parse::<usize>() {
            Ok(count) => all[..count.min(all.len())].to_vec(),
            Err(_) => all.into_iter().filter(|case| format!("{case:?}").contains(chosen)).collect(),
        },
    };
    println!("{way:?}: {} cases", cases.len());
    let mut drill = Drill::new(way);
    let mut ledger = Ledger::new();
    for (number, case) in cases.into_iter().enumerate() {
        let began = Instant::now();
        println!("{way:?}: {case:?}");
        let end = drill.run(case, mix64(seed ^ number as u64), &mut ledger);
        let failed =
            format!("{} requests failed so far, {} of them reads", ledger.failed, ledger.reads_failed);
        println!("{way:?}: {end}, {:.1} s, {failed}", began.elapsed().as_secs_f64());
        // What is to be read is read elsewhere, or later.
        assert_eq!(ledger.reads_failed, 0, "reads fail: {end}\n{}", drill.log());
    }
    drill.while_client_works(&mut ledger, |drill, work| drill.until_answered(work, 4 * BLOCKS));
}

#[test]
fn whatever_is_killed_at_whichever_step_no_byte_is_lost() {
    if programs("killing parts of a fleet", &["ip"], true) {
        kill_at_steps(Way::Proxy);
    }
}

#[test]
fn whatever_is_killed_where_nothing_is_fenced_no_byte_is_lost() {
    if programs("killing parts of a fleet", &["ip"], true) {
        kill_at_steps(Way::Unleased);
    }
}

#[test]
fn whatever_is_killed_while_an_address_moves_no_byte_is_lost() {
    if programs("killing parts of a fleet", &["qemu-storage-daemon", "ip"], true) {
        kill_at_steps(Way::Address);
    }
}

#[test]
fn whatever_is_killed_while_a_block_graph_changes_no_byte_is_lost() {
    if programs("killing parts of a fleet", &["qemu-storage-daemon", "ip"], true) {
        kill_at_steps(Way::Graph);
    }
}
