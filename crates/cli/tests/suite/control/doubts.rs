//! A server of others that dies with writes out: what is in doubt then stays at the storage side, and hinders no way to it.

use super::{Appliances, Controller, Ledger, Telling, Work, count, drive, one_machine, step};
use crate::support::{Running, SetOnDrop, folder, spawn, wait_for};
use forebay_actuate::api::ApiAddress;
use forebay_actuate::{Control, Deadline};
use forebay_nbd::Uri;
use forebay_prerequisite::programs;
use forebay_serve::Daemon;
use forebay_serve::config::Config;
use forebay_serve::status::Status;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often the server is killed until a write was out; one request in sixteen is one, of eight that are.
const KILLS_MAX: usize = 40;
const PATIENCE: Duration = Duration::from_secs(60);

/// nbdkit, whose every request takes 8 ms.
fn start_server(folder: &Path) -> Running {
    let path = |name: &str| folder.join(name).display().to_string();
    let _ = std::fs::remove_file(folder.join("origin.sock"));
    let (socket, file) = (path("origin.sock"), path("db.img"));
    let delayed = ["--filter=delay", "file", &file, "delay-read=8ms", "delay-write=8ms"];
    let server = spawn(None, "nbdkit", [["-f", "-U", &socket].as_slice(), &delayed].concat());
    wait_for(&folder.join("origin.sock"));
    Running(vec![server])
}

#[test]
fn what_is_in_doubt_at_the_storage_side_keeps_clients_from_no_way_to_it() {
    if !programs("an origin that dies with writes out", &["nbdkit"], false) {
        return;
    }
    let folder = folder();
    one_machine(&folder);
    let text = std::fs::read_to_string(folder.path().join("watch.toml")).unwrap();
    let (head, _) = text.split_once("origin = ").expect("it has one");
    let socket = folder.path().join("origin.sock");
    let origin =
        format!("origin = {{ type = \"nbd\", uri = \"nbd+unix:///?socket={}\" }}\n", socket.display());
    std::fs::write(folder.path().join("watch.toml"), format!("{head}{origin}")).unwrap();
    let mut server = Some(start_server(folder.path()));
    let configured = |name: &str| Config::read(&folder.path().join(name)).expect("a good configuration");
    let _watch = Daemon::start(configured("watch.toml").watching().unwrap()).unwrap();
    let proxy = Daemon::start(configured("proxy.toml")).unwrap();
    let appliances = Appliances(folder.path().to_owned());
    let telling = Telling(folder.path());
    let in_doubt = || {
        let storage =
            Control { address: ApiAddress::Unix(folder.path().join("watch-http.sock")), token: None };
        let status = storage.ask::<Status>("GET", "/api/v1/status", "", Deadline::after(PATIENCE));
        status.expect("the storage side answers").volumes.remove(0).origin.in_doubt_bytes
    };

    let (work, mut ledger) = (Work::default(), Ledger::new());
    let uri: Uri = proxy.uris("db")[0].parse().unwrap();
    // Whatever way clients are on, they are served.
    let goes_on = |what: &str| {
        let (from, until) = (work.done.load(Ordering::Relaxed), Instant::now() + PATIENCE);
        while work.done.load(Ordering::Relaxed) < from + 200 {
            assert!(Instant::now() < until, "clients are served by nobody: {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    std::thread::scope(|scope| {
        let stops = SetOnDrop(&work.stop);
        scope.spawn(|| drive(uri, &mut ledger, &work));
        for kill in 0.. {
            goes_on("before there is a controller");
            server.take();
            server = Some(start_server(folder.path()));
            goes_on("behind the start of the server");
            if in_doubt() > 0 {
                break;
            }
            assert!(kill < KILLS_MAX, "no write was out when the server was killed");
        }
        let _controller = Controller::start(folder.path(), None);
        let serves = |told: &_| step(told).contains("serving: appliance");
        telling.wait("a cache in place", serves);
        goes_on("through the appliance");
        appliances.kill();
        telling.wait("the way back", |told| count(told, "appliance_failed") == 1);
        goes_on("behind the death of the appliance");
        telling.wait("another cache in place", serves);
        goes_on("through another appliance");
        // It is taken back, as its load is gone.
        drop(stops);
        telling.wait("the end of the appliance", |told| {
            appliances.pids().is_empty() && count(told, "original_route") == 2
        });
        assert!(in_doubt() > 0, "nobody has settled it");
    });
    drop(server);
}
