//! The ways by which clients are moved: what they consist of, by which steps a response goes, what may be struck, and where clients are.

use super::super::site::{APPLICATION, CONTROLLER, HOSTS, HTTP, PORT, STORAGE, Site};
use super::{Course, PARTS, Part};
use crate::reroute::SECRET;
use crate::reroute::address::MOVED;
use crate::reroute::graph::storage_daemon;
use crate::support::{Running, secret_file, spawn, wait_for};
use crate::wire::{Wire, ip, ip_says};
use forebay_actuate::route::QmpRoute;
use forebay_actuate::{Deadline, Route};
use forebay_nbd::Uri;
use forebay_serve::lease::LeaseHolder;
use std::time::Duration;

/// How clients are moved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Way {
    Proxy,
    /// The same, of a storage side whose lease is not used: nothing is fenced.
    Unleased,
    /// The address is what they connect to, a `qemu-storage-daemon`, in which the client is.
    Address,
    /// The disk of such a daemon, by its block graph.
    Graph,
}

/// One of them: what is struck, at which step of which course.
pub(super) type Case = (Course, Part, &'static str);

impl Way {
    /// Those that are always tried: what no other test does.
    pub(super) fn always(self) -> Vec<Case> {
        match self {
            Way::Proxy => vec![
                (Course::There, Part::Wire(Some(STORAGE), None), "switching"),
                (Course::There, Part::Host, "serving"),
                (Course::There, Part::Journal, "serving"),
                (Course::Off, Part::HungStorage, "fencing_appliance"),
            ],
            Way::Unleased => vec![(Course::Off, Part::Controller, "stopping_first")],
            Way::Address => vec![
                (Course::There, Part::Journal, "switching"),
                (Course::Back, Part::Controller, "switching_back"),
            ],
            Way::Graph => vec![(Course::There, Part::Controller, "switching")],
        }
    }

    pub(super) fn all(self) -> Vec<Case> {
        let of = |course: Course| {
            let steps = self.steps(course).iter();
            steps.flat_map(move |step| PARTS.map(|part| (course, part, *step)))
        };
        let cases = [Course::There, Course::Back, Course::Off].into_iter().flat_map(of);
        cases.filter(|case| self.can_strike(*case)).collect()
    }

    /// The steps of a course, in their order, as the controller's journal calls them.
    pub(super) fn steps(self, course: Course) -> &'static [&'static str] {
        match (self, course) {
            (Way::Proxy | Way::Graph, Course::There) => {
                &["starting", "proving", "switching", "fencing_behind", "serving"]
            }
            (Way::Unleased, Course::There) => &["starting", "proving", "switching", "serving"],
            (Way::Address, Course::There) => {
                &["starting", "proving", "fencing_original", "switching", "serving"]
            }
            (Way::Proxy | Way::Graph, Course::Back) => &["switching_back", "fencing_behind_back", "stopping"],
            (Way::Unleased, Course::Back) => &["switching_back", "stopping"],
            (Way::Address, _) => &["fencing_appliance", "switching_back", "stopping"],
            (Way::Proxy | Way::Graph, Course::Off) => {
                &["switching_back", "fencing_appliance", "fencing_behind_back", "stopping"]
            }
            (Way::Unleased, Course::Off) => &["switching_back", "stopping_first", "stopping"],
        }
    }

    fn can_strike(self, (course, part, step): Case) -> bool {
        // The controller has nothing to do with the application's host but for a proxy there.
        let by_proxy = matches!(self, Way::Proxy | Way::Unleased);
        let is_there = by_proxy || part != Part::Wire(Some(CONTROLLER), Some(APPLICATION));
        // It is dead by then.
        let lives = course != Course::Off || !part.is_of_appliance();
        // A `qemu-storage-daemon` has no device to give another node: it stays on the path of who died with writes that were not flushed, which is told, and waits for one that may have lost them.
        let has_no_client = course == Course::There && ["starting", "proving"].contains(&step);
        let may_die = part.is_of_appliance() || matches!(part, Part::Host | Part::Storage);
        let can_leave = self != Way::Graph || has_no_client || !may_die && course != Course::Off;
        is_there && lives && can_leave
    }

    /// What clients have, and the volume's table of its route besides.
    pub(super) fn install(self, site: &Site) -> (Running, String) {
        match self {
            Way::Proxy => Way::proxy(site),
            Way::Unleased => {
                let (proxy, route) = Way::proxy(site);
                (proxy, format!("{route}\nleased = false"))
            }
            Way::Address => Way::address(site),
            Way::Graph => Way::graph(site),
        }
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

    /// A disk of QEMU's on the application's host, whose server is at this address, and which waits for it for so long where it is gone.
    fn disk_of_qemu(site: &Site, server: &str, reconnect_delay_s: u32) -> Running {
        let disk = format!(
            "server.type=inet,server.host={server},server.port={PORT},server.keep-alive=on,export=db.{SECRET},reconnect-delay={reconnect_delay_s}"
        );
        let qemu = storage_daemon(Some(site.wire.name(APPLICATION)), site.folder.path(), &disk);
        wait_for(&site.path("qemu.sock"));
        Running(vec![qemu])
    }

    /// Behind an address that the storage side's host has.
    fn address(site: &Site) -> (Running, String) {
        ip(&format!("-n {} addr add {MOVED}/24 dev eth0", site.wire.name(STORAGE)));
        let qemu = Way::disk_of_qemu(site, &MOVED.to_string(), 60);
        let route = format!(
            "{{ type = \"address\", address = \"{MOVED}/24\", interface = \"eth0\", namespace = \"{}\" }}",
            site.wire.name(STORAGE)
        );
        (qemu, route)
    }

    /// Straight to the storage side.
    fn graph(site: &Site) -> (Running, String) {
        // While it waits for a server of a node that it is to drop, QEMU answers nobody.
        let qemu = Way::disk_of_qemu(site, &Wire::address(STORAGE).to_string(), 20);
        let route = "{ type = \"qmp\", socket = \"qmp.sock\", node = \"db\", first = \"db-first\", reconnect_delay_s = 20 }";
        (qemu, route.to_owned())
    }

    /// Where the client finds its disk.
    pub(super) fn disk(self, site: &Site) -> Uri {
        match self {
            Way::Proxy | Way::Unleased => Uri::unix(site.path("proxy.sock"), format!("db.{SECRET}")),
            Way::Address | Way::Graph => Uri::unix(site.path("qemu.sock"), "db"),
        }
    }

    /// Checks that clients are led to the storage side.
    pub(super) fn check_original_route(self, site: &Site, found: &str) {
        let lease = site.storage().lease;
        assert_eq!(lease.map(|lease| lease.holder), Some(LeaseHolder::Original), "{found}");
        let storage = Wire::address(STORAGE).to_string();
        match self {
            Way::Proxy | Way::Unleased => {
                let route = site.status("proxy-http.sock").route;
                let to = route.and_then(|route| route.to).unwrap_or_default();
                assert!(to.is_empty() || to.contains(&storage), "{found}: clients go to {to}");
            }
            Way::Address => assert_eq!(Way::who_has_address(site), [STORAGE], "{found}: who has the address"),
            Way::Graph => {
                let route = QmpRoute::raw(site.path("qmp.sock"), "db", "db-first");
                let to = route.now(Deadline::after(Duration::from_secs(10)));
                let to = format!("{:?}", to.unwrap_or_else(|error| panic!("{found}: {error}")));
                assert!(to.contains(&storage), "{found}: clients go to {to}");
            }
        }
    }

    pub(super) fn who_has_address(site: &Site) -> Vec<usize> {
        let has_it = |host: &usize| {
            let shown = ip_says(&format!("-n {} -br addr", site.wire.name(*host)));
            shown.contains(&format!("{MOVED}/"))
        };
        [&[STORAGE][..], &HOSTS].concat().into_iter().filter(has_it).collect()
    }

    /// Whether this is to strike while nobody has the address: a tenth of a second of each move.
    pub(super) fn waits_for_nobody(self, part: Part, seen: &str) -> bool {
        (self, part, seen) == (Way::Address, Part::Journal, "switching")
    }
}
