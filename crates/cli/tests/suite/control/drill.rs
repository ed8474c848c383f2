//! Each part is killed at each step of the way there and of the way back, while a client of ours writes and reads back, by a permanent proxy or by an address that moves: the end is a cache in place or the
//! original route, and no byte is lost or stale.
//!
//! A step is seen in the controller's journal, which is on disk before the step is begun; what is struck then is struck while the step's order is on its way, or that of the
//! next: some last for milliseconds. `FOREBAY_KILLS` says how many of the cases are tried, all of them where it is `all` (`scripts/kill-trial`); else a few. `FOREBAY_SEED` says in which order,
//! and how long after the step is seen.

use super::site::{APPLICATION, CONTROLLER, HOSTS, HTTP, PORT, STORAGE, Site};
use super::{BLOCKS, Controller, Ledger, OUTSTANDING, Work, drive};
use crate::reroute::SECRET;
use crate::reroute::address::MOVED;
use crate::reroute::graph::storage_daemon;
use crate::support::{Running, SetOnDrop, secret_file, spawn, wait_for};
use crate::wire::{Wire, ip, ip_says};
use forebay_nbd::Uri;
use forebay_prerequisite::programs;
use forebay_serve::lease::LeaseHolder;
use forebay_units::mix64;
use serde_json::Value;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Steps of a response, as its journal calls them: those of the way there and of a cache in place, then those of the way back.
const THERE: [&str; 5] = ["starting", "proving", "switching", "fencing_behind", "serving"];
const BACK: [&str; 3] = ["switching_back", "fencing_behind_back", "stopping"];
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
}

const PARTS: [Part; 11] = [
    Part::Controller,
    Part::Journal,
    Part::Appliance,
    Part::Host,
    Part::Storage,
    Part::Wire(Some(CONTROLLER), Some(STORAGE)),
    Part::Wire(Some(CONTROLLER), Some(APPLICATION)),
    Part::Wire(Some(CONTROLLER), None),
    Part::Wire(Some(APPLICATION), Some(STORAGE)),
    Part::Wire(Some(APPLICATION), None),
    Part::Wire(Some(STORAGE), None),
];

/// How clients are moved.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Proxy,
    /// The address is what they connect to, a `qemu-storage-daemon`, in which the client is.
    Address,
}

impl Way {
    /// Those that are always tried: what no other test does.
    fn always(self) -> Vec<(Part, &'static str)> {
        match self {
            Way::Proxy => vec![
                (Part::Wire(Some(STORAGE), None), "switching"),
                (Part::Host, "serving"),
                (Part::Journal, "serving"),
            ],
            Way::Address => vec![(Part::Journal, "switching"), (Part::Controller, "switching_back")],
        }
    }

    /// What may be struck: the controller has nothing to do with an application whose address moves.
    fn parts(self) -> impl Iterator<Item = Part> {
        let by_proxy_alone = Part::Wire(Some(CONTROLLER), Some(APPLICATION));
        PARTS.into_iter().filter(move |part| self == Way::Proxy || *part != by_proxy_alone)
    }
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
        let (client, route) = match way {
            Way::Proxy => Drill::proxy(&site),
            Way::Address => Drill::address(&site),
        };
        let hosts: String = HOSTS.map(|host| site.host(host, "256MiB", "")).concat();
        let response = "start_within_ms = 4000, fence_within_ms = 1500, switch_within_ms = 1500, stop_within_ms = 2500, report_grace_ms = 500, \
                        late_max_ms = 3000, retry_max_ms = 1000, rest_first_ms = 1000, rest_max_ms = 2000";
        site.configure("200ms", "h3", &hosts, &format!("route = {route}"), response);
        let controller = site.control();
        Drill { controller, way, _client: client, site }
    }

    /// A permanent proxy on the application's host, and the route by it.
    fn proxy(site: &Site) -> (Running, String) {
        let storage = Wire::address(STORAGE);
        let proxy = format!(
            "listen = [\"unix:proxy.sock\"]\nroutes.path = \"routes.json\"\ncontrol.enabled = false\n\
             [http]\nlisten = \"0.0.0.0:{HTTP}\"\nsocket = \"proxy-http.sock\"\ntoken = \"{SECRET}\"\n\
             [[volume]]\nname = \"db\"\norigin = {{ type = \"nbd\", uri = \"nbd://{storage}:{PORT}/db.{SECRET}\" }}\ncache = \"0\"\nsecret = \"{SECRET}\"\n"
        );
        let proxy = secret_file(&site.folder, "proxy.toml", proxy);
        let proxy = ["serve".as_ref(), proxy.as_os_str()];
        let proxy = spawn(Some(site.wire.name(APPLICATION)), env!("CARGO_BIN_EXE_forebay"), proxy);
        wait_for(&site.path("proxy.sock"));
        let server = Wire::address(APPLICATION);
        let route = format!("{{ type = \"proxy\", server = \"{server}:{HTTP}\", token = \"{SECRET}\" }}");
        (Running(vec![proxy]), route)
    }

    /// A disk of QEMU's on the application's host, behind an address that the storage side's host has.
    fn address(site: &Site) -> (Running, String) {
        ip(&format!("-n {} addr add {MOVED}/24 dev eth0", site.wire.name(STORAGE)));
        let disk = format!(
            "server.type=inet,server.host={MOVED},server.port={PORT},server.keep-alive=on,export=db.{SECRET},reconnect-delay=60"
        );
        let qemu = storage_daemon(Some(site.wire.name(APPLICATION)), site.folder.path(), &disk);
        wait_for(&site.path("qemu.sock"));
        let route = format!(
            "{{ type = \"address\", address = \"{MOVED}/24\", interface = \"eth0\", namespace = \"{}\" }}",
            site.wire.name(STORAGE)
        );
        (Running(vec![qemu]), route)
    }

    /// Where the client finds its disk.
    fn disk(&self) -> Uri {
        match self.way {
            Way::Proxy => Uri::unix(self.site.path("proxy.sock"), format!("db.{SECRET}")),
            Way::Address => Uri::unix(self.site.path("qemu.sock"), "db"),
        }
    }

    /// Checks that clients are led to the storage side.
    fn check_original_route(&self, found: &str) {
        let lease = self.site.storage().lease;
        assert_eq!(lease.map(|lease| lease.holder), Some(LeaseHolder::Original), "{found}");
        match self.way {
            Way::Proxy => {
                let to =
                    self.site.status("proxy-http.sock").route.and_then(|route| route.to).unwrap_or_default();
                assert!(
                    to.is_empty() || to.contains(&Wire::address(STORAGE).to_string()),
                    "{found}: clients go to {to}"
                );
            }
            Way::Address => assert_eq!(self.have_address(), [STORAGE], "{found}: who has the address"),
        }
    }

    fn have_address(&self) -> Vec<usize> {
        let has_it = |host: &usize| {
            let shown = ip_says(&format!("-n {} -br addr", self.site.wire.name(*host)));
            shown.contains(&format!("{MOVED}/"))
        };
        [&[STORAGE][..], &HOSTS].concat().into_iter().filter(has_it).collect()
    }

    /// Whether this is to strike while nobody has the address: a tenth of a second of each move.
    fn waits_for_nobody(&self, part: Part, seen: &str) -> bool {
        (self.way, part, seen) == (Way::Address, Part::Journal, "switching")
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

    /// Kills a part, and brings back after a while what does not come back by itself.
    fn strike(&mut self, part: Part, host: Option<usize>) {
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
        }
    }

    /// One case; how it ended. The client works until it has settled, and does not while a cache is taken back; the next one's looks at what was left.
    fn run(&mut self, part: Part, step: &str, after: Duration, ledger: &mut Ledger) -> String {
        let is_there = THERE.contains(&step);
        // Some last for milliseconds: then it is the next one that is seen.
        let all = if is_there { THERE.to_vec() } else { [&BACK[..], &["original"]].concat() };
        let at = all.iter().position(|of| *of == step).expect("a step");
        let struck = |drill: &mut Drill| {
            let (seen, host) = drill.must(&all[at..]);
            if drill.waits_for_nobody(part, &seen) {
                let until = Instant::now() + PATIENCE;
                while !drill.have_address().is_empty() {
                    assert!(
                        Instant::now() < until,
                        "the address is not taken from where it is: {}",
                        drill.log()
                    );
                }
            } else {
                std::thread::sleep(after);
            }
            drill.strike(part, host);
            seen
        };
        let there = self.while_client_works(ledger, |drill, work| {
            if !is_there {
                drill.must(&["serving"]);
                return None;
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
        let found = format!("{part:?} at {seen}");
        self.check_original_route(&found);
        let until = Instant::now() + PATIENCE;
        while !self.site.appliances.pids().is_empty() {
            assert!(Instant::now() < until, "{found}: an appliance still runs");
            std::thread::sleep(Duration::from_millis(20));
        }
        format!("{found}: {end}")
    }

    /// Has a client work, and check what it reads, while something else is done.
    fn while_client_works<T>(&mut self, ledger: &mut Ledger, act: impl FnOnce(&mut Drill, &Work) -> T) -> T {
        let work = Work::default();
        let uri = self.disk();
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
            assert!(Instant::now() < until, "neither in place nor on the original route: {last:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn kill_at_steps(way: Way) {
    let seed = std::env::var("FOREBAY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1u64);
    let steps = || THERE.into_iter().chain(BACK);
    let mut all: Vec<(Part, &str)> =
        way.parts().flat_map(|part| steps().map(move |step| (part, step))).collect();
    all.sort_by_key(|(part, step)| {
        mix64(format!("{part:?}{step}").bytes().fold(seed, |hash, byte| mix64(hash ^ u64::from(byte))))
    });
    let cases = match std::env::var("FOREBAY_KILLS").ok().as_deref() {
        None => way.always(),
        Some("all") => all,
        Some(count) => {
            all[..count.parse::<usize>().expect("a number of cases, or `all`").min(all.len())].to_vec()
        }
    };
    let mut drill = Drill::new(way);
    let mut ledger = Ledger::new();
    for (number, (part, step)) in cases.into_iter().enumerate() {
        let began = Instant::now();
        let after = Duration::from_micros(mix64(seed ^ number as u64) % 4_000);
        let end = drill.run(part, step, after, &mut ledger);
        let failed =
            format!("{} requests failed so far, {} of them reads", ledger.failed, ledger.reads_failed);
        println!("{way:?}: {end}, {:.1} s, {failed}", began.elapsed().as_secs_f64());
        // What is to be read is read elsewhere, or later.
        assert_eq!(ledger.reads_failed, 0, "reads fail: {end}");
    }
    drill.while_client_works(&mut ledger, |_, work| {
        let until = Instant::now() + PATIENCE;
        while work.done.load(Ordering::Relaxed) < 4 * BLOCKS {
            assert!(Instant::now() < until, "clients do not go on");
            std::thread::sleep(Duration::from_millis(2));
        }
    });
}

#[test]
fn whatever_is_killed_at_whichever_step_no_byte_is_lost() {
    if programs("killing parts of a fleet", &["ip"], true) {
        kill_at_steps(Way::Proxy);
    }
}

#[test]
fn whatever_is_killed_while_an_address_moves_no_byte_is_lost() {
    if programs("killing parts of a fleet", &["qemu-storage-daemon", "ip"], true) {
        kill_at_steps(Way::Address);
    }
}
