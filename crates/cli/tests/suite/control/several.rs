//! Two volumes on the same disks, which are nearly asked for more than they serve: several appliances where no host has room for the one that would do alone; and both volumes violated at once, with room for
//! the caches of both, and of one only.

use super::{Appliances, Controller, HASTE, Telling, count, step};
use crate::support::{SetOnDrop, file, folder};
use forebay_nbd::Uri;
use forebay_origin::{NbdOrigin, NbdOriginOptions, Origin};
use forebay_replay::{AfterWait, Content, Due, Load, PlayOptions, PlayReport, Player, Shadow};
use forebay_serve::Daemon;
use forebay_serve::config::Config;
use forebay_trace::{Operation, ThreadNumber};
use forebay_units::{ByteRange, Nanos, mix64};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tempfile::TempDir;

const BLOCKS: u64 = 256;
/// Requests per second of the volumes: one that was promised something and its neighbour, or both.
type Rates = [(&'static str, u64); 2];
const ONE_PROMISED: Rates = [("db", 100), ("other", 290)];
const BOTH_PROMISED: Rates = [("db", 195), ("other", 195)];

/// Reads, and a write in twenty, at a constant rate and anywhere, for as long as it takes; what is read is checked.
fn play(uri: &Uri, seed: u64, rate: u64, stop: &AtomicBool) -> PlayReport {
    let options = NbdOriginOptions { connections: 1, ..NbdOriginOptions::default() };
    let origin: Arc<dyn Origin> = Arc::new(NbdOrigin::connect(uri, options).expect("clients are let in"));
    let mut due = (0..60 * rate).map(|number| {
        let state = mix64(seed.wrapping_add(number));
        Due {
            at: Nanos(number * 1_000_000_000 / rate),
            operation: if (state >> 40).is_multiple_of(20) { Operation::Write } else { Operation::Read },
            range: ByteRange::new(state % BLOCKS * 4096, 4096),
            thread: ThreadNumber::UNKNOWN,
        }
    });
    let load = Load::Open { requests: &mut due, outstanding_max: 512, after_wait: AfterWait::CatchUp };
    let options = PlayOptions::for_duration(Duration::from_secs(60), Duration::from_secs(1));
    let mut player = Player::new(Shadow::over_unknown(Content::new(seed), BLOCKS * 4096));
    player.play(&origin, load, options, stop).expect("the load can be played")
}

/// What holds the volumes and what clients connect to, in one process with the test; `control.toml` is written for a controller.
struct SharedDisks {
    folder: TempDir,
    _watch: Daemon,
    proxy: Daemon,
}

impl SharedDisks {
    /// Two disks that serve 400 requests/s together; `promised` are the controller's hosts and objectives.
    fn new(volumes: Rates, promised: &str) -> SharedDisks {
        let folder = folder();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (watch_http, proxy_http) = (path("watch-http.sock"), path("proxy-http.sock"));
        let mut watch = format!(
            "listen = [\"unix:{}\"]\nleases.path = \"{}\"\nhttp.listen = \"off\"\nhttp.socket = \"{watch_http}\"\ncontrol.interval = \"500ms\"\n\
             [[disk_group]]\nname = \"disks\"\nspindles = 2\ndisk = \"fixed\"\nservice = \"5ms\"\n",
            path("watch.sock"),
            path("leases.json"),
        );
        let mut proxy = format!(
            "listen = [\"unix:{}\"]\nroutes.path = \"{}\"\nhttp.listen = \"off\"\nhttp.socket = \"{proxy_http}\"\ncontrol.enabled = false\n",
            path("proxy.sock"),
            path("routes.json"),
        );
        let mut control = format!(
            "socket = \"control.sock\"\nstate = \"state\"\ninterval = \"500ms\"\n{HASTE}\
             response = {{ probe_every_ms = 200, probe_within_ms = 10000, retry_first_ms = 200 }}\n{promised}"
        );
        for (name, _) in volumes {
            watch += &format!(
                "[[volume]]\nname = \"{name}\"\norigin = {{ type = \"disk-group\", group = \"disks\", memory = \"1MiB\" }}\n"
            );
            let uri = Uri::unix(folder.path().join("watch.sock"), name);
            proxy += &format!(
                "[[volume]]\nname = \"{name}\"\ncache = \"0\"\norigin = {{ type = \"nbd\", uri = \"{uri}\" }}\n"
            );
            control += &format!(
                "[[volume]]\nname = \"{name}\"\nhome = \"h1\"\norigin = \"{uri}\"\nwatch = \"unix:{watch_http}\"\nroute = {{ type = \"proxy\", server = \"unix:{proxy_http}\" }}\n"
            );
        }
        for (name, text) in [("watch.toml", watch), ("proxy.toml", proxy), ("control.toml", control)] {
            file(&folder, name, text);
        }
        let configured = |name: &str| Config::read(&folder.path().join(name)).expect("a good configuration");
        let watch = Daemon::start(configured("watch.toml").watching().unwrap()).unwrap();
        let proxy = Daemon::start(configured("proxy.toml")).unwrap();
        SharedDisks { folder, _watch: watch, proxy }
    }

    fn client(&self, volume: &str) -> Uri {
        self.proxy.uris(volume)[0].parse().unwrap()
    }
}

/// Nothing that a client saw was an error or a wrong byte, and it saw something.
fn check(report: &PlayReport) {
    assert_eq!((report.errors, report.wrong_count), (0, 0), "{:?} {:?}", report.first_error, report.wrong);
    assert!(report.bytes_checked > 0 && report.gave_up.is_none(), "{:?}", report.gave_up);
}

#[test]
fn two_appliances_on_two_hosts_mend_what_one_cannot() {
    // Beside its 64 MiB an appliance on either host can cache 540 KiB, half of a volume. The disks serve 400 requests/s: 390 make them wait, a cache of `db` leaves 340, which is 6 ms
    // in the mean of its requests, one of its neighbour 250 and 9 ms, and both together 200 and 4 ms.
    let disks = SharedDisks::new(
        ONE_PROMISED,
        "[[host]]\nname = \"h1\"\nmemory = \"66083KiB\"\n[[host]]\nname = \"h2\"\nmemory = \"66083KiB\"\n\
         [[objective]]\nvolume = \"db\"\nlatency = \"5ms\"\n",
    );
    let appliances = Appliances(disks.folder.path().to_owned());
    let _controller = Controller::start(disks.folder.path(), None);
    let telling = Telling(disks.folder.path());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stops = SetOnDrop(&stop);
        let clients = ONE_PROMISED.map(|(name, rate)| {
            let (uri, stop) = (disks.client(name), &stop);
            scope.spawn(move || play(&uri, rate, rate, stop))
        });
        telling
            .wait("a cache of the volume that was promised something", |told| step(told).contains("serving"));
        let other =
            telling.wait_for("other", "a cache of its neighbour", |told| step(told).contains("serving"));
        telling.wait("the end of the violation", |told| count(told, "violation_ended") > 0);
        let told = telling.explained("db").expect("it answers");
        let hosts =
            [step(&told), step(&other)].map(|step| step.rsplit(' ').next().unwrap_or_default().to_owned());
        assert!(
            hosts[0] != hosts[1] && hosts.iter().all(|host| ["h1", "h2"].contains(&&**host)),
            "{hosts:?}"
        );
        // One that its cache outgrows is gone for a moment, until there is a larger one.
        telling.wait("both appliances", |_| appliances.pids().len() == 2);
        drop(stops);
        clients.into_iter().for_each(|client| check(&client.join().expect("a client ends")));
    });
    for (name, _) in ONE_PROMISED {
        telling.wait_for(name, "the original route", |told| step(told).contains("original route"));
    }
    telling.wait("the end of the appliances", |_| appliances.pids().is_empty());
}

#[test]
fn two_volumes_that_are_violated_at_once_each_get_their_own_cache() {
    // 195 requests/s of each make the disks wait for longer than 4 ms, and so do 205 when one of them is cached as a whole: either alone does not do.
    let disks = SharedDisks::new(
        BOTH_PROMISED,
        "[[host]]\nname = \"h1\"\nmemory = \"1GiB\"\n\
         [[objective]]\nvolume = \"db\"\nlatency = \"4ms\"\n[[objective]]\nvolume = \"other\"\nlatency = \"4ms\"\n",
    );
    let appliances = Appliances(disks.folder.path().to_owned());
    let _controller = Controller::start(disks.folder.path(), None);
    let telling = Telling(disks.folder.path());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stops = SetOnDrop(&stop);
        let clients = BOTH_PROMISED.map(|(name, rate)| {
            let (uri, stop) = (disks.client(name), &stop);
            scope.spawn(move || play(&uri, name.len() as u64, rate, stop))
        });
        for (name, _) in BOTH_PROMISED {
            telling.wait_for(name, "its violation and a cache", |told| {
                count(told, "violation_found") > 0 && step(told).contains("serving")
            });
        }
        for (name, _) in BOTH_PROMISED {
            telling.wait_for(name, "the end of its violation", |told| count(told, "violation_ended") > 0);
        }
        // One that its cache outgrows is gone for a moment, until there is a larger one.
        telling.wait("both appliances", |_| appliances.pids().len() == 2);
        drop(stops);
        clients.into_iter().for_each(|client| check(&client.join().expect("a client ends")));
    });
    for (name, _) in BOTH_PROMISED {
        telling.wait_for(name, "the original route", |told| step(told).contains("original route"));
    }
    telling.wait("the end of the appliances", |_| appliances.pids().is_empty());
}

#[test]
fn where_there_is_room_for_one_cache_only_it_is_told_and_goes_to_the_other_when_the_first_is_done() {
    // Beside its 64 MiB an appliance can cache one volume as a whole (1 MiB), and there is no room for a second one.
    let disks = SharedDisks::new(
        BOTH_PROMISED,
        "[[host]]\nname = \"h1\"\nmemory = \"68MiB\"\n\
         [[objective]]\nvolume = \"db\"\nlatency = \"4ms\"\npriority = 1\n[[objective]]\nvolume = \"other\"\nlatency = \"4ms\"\n",
    );
    let appliances = Appliances(disks.folder.path().to_owned());
    let _controller = Controller::start(disks.folder.path(), None);
    let telling = Telling(disks.folder.path());
    let (stop_first, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (first_stops, stops) = (SetOnDrop(&stop_first), SetOnDrop(&stop));
        let [first, second] = [(0, &stop_first), (1, &stop)].map(|(at, stop)| {
            let (name, rate) = BOTH_PROMISED[at];
            let uri = disks.client(name);
            scope.spawn(move || play(&uri, name.len() as u64, rate, stop))
        });
        telling.wait("a cache of what comes first", |told| step(told).contains("serving"));
        telling.wait("the end of its violation", |told| count(told, "violation_ended") > 0);
        let other = telling.wait_for("other", "why the other has none", |told| {
            count(told, "nothing_helps") + count(told, "capacity_short") > 0
        });
        assert!(step(&other).contains("original route"), "{other:#}");
        // One that its cache outgrows is gone for a moment, until there is a larger one.
        telling.wait("its only appliance", |_| appliances.pids().len() == 1);
        // What the first needs no longer is the other's.
        drop(first_stops);
        check(&first.join().expect("a client ends"));
        telling.wait("its original route", |told| step(told).contains("original route"));
        telling.wait_for("other", "a cache of the other", |told| step(told).contains("serving"));
        telling.wait_for("other", "the end of its violation", |told| count(told, "violation_ended") > 0);
        drop(stops);
        check(&second.join().expect("a client ends"));
    });
    telling.wait_for("other", "the original route", |told| step(told).contains("original route"));
    telling.wait("the end of the appliances", |_| appliances.pids().is_empty());
}
