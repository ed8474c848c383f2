//! By a permanent proxy, on processes of this machine, through the death of the controller and of the appliance.

use super::{Appliances, Controller, Ledger, OUTSTANDING, Telling, Work, count, drive, one_machine, step};
use crate::support::{SetOnDrop, fail, folder, json, succeed};
use forebay_nbd::Uri;
use forebay_serve::Daemon;
use forebay_serve::config::Config;
use forebay_serve::lease::LeaseHolder;
use std::path::Path;
use std::sync::atomic::Ordering;

/// The controller's file with another export for the volume.
fn other_disk(folder: &Path) -> String {
    let text = std::fs::read_to_string(folder.join("control.toml")).expect("the controller's file");
    let other = text.replace(":///db?", ":///db2?");
    assert_ne!(other, text);
    let path = folder.join("other-disk.toml");
    std::fs::write(&path, other).expect("a folder to write in");
    path.display().to_string()
}

#[test]
fn a_violation_is_answered_by_an_appliance_whatever_dies() {
    let folder = folder();
    one_machine(&folder);
    let configured = |name: &str| Config::read(&folder.path().join(name)).expect("a good configuration");
    let watch = Daemon::start(configured("watch.toml").watching().unwrap()).unwrap();
    let proxy = Daemon::start(configured("proxy.toml")).unwrap();
    let appliances = Appliances(folder.path().to_owned());
    let mut controller = Controller::start(folder.path(), None);
    let telling = Telling(folder.path());
    let server = telling.server();

    let (work, mut ledger) = (Work::default(), Ledger::new());
    let uri: Uri = proxy.uris("db")[0].parse().unwrap();
    std::thread::scope(|scope| {
        // Also where a check fails the client ends.
        let stops = SetOnDrop(&work.stop);
        scope.spawn(|| drive(uri, &mut ledger, &work));
        telling.wait("a cache in place", |told| count(told, "cache_in_place") == 1);
        telling.wait("the end of the violation", |told| count(told, "violation_ended") == 1);
        let lease = watch.status().volumes[0].lease.expect("it has leases");
        assert_eq!((lease.epoch, lease.holder), (1, LeaseHolder::Named));
        assert_eq!(appliances.pids().len(), 1);
        let metrics = telling.metrics();
        for (series, value) in [
            ("forebay_volume_observed{volume=\"db\"}", 1.0),
            ("forebay_volume_route{volume=\"db\",route=\"appliance\"}", 1.0),
            ("forebay_volume_appliance{volume=\"db\",host=\"h1\"}", 1.0),
            ("forebay_volume_violations_total{volume=\"db\"}", 1.0),
            ("forebay_volume_switches_total{volume=\"db\",to=\"appliance\"}", 1.0),
            ("forebay_volume_switches_total{volume=\"db\",to=\"original\"}", 0.0),
            ("forebay_volume_epoch{volume=\"db\"}", 1.0),
            ("forebay_host_resting{host=\"h1\"}", 0.0),
        ] {
            assert_eq!(metrics.get(series), Some(&value), "{series} in {metrics:#?}");
        }
        for series in [
            "forebay_volume_requests_per_second{volume=\"db\"}",
            "forebay_volume_switch_pause_seconds{volume=\"db\"}",
            "forebay_cache_capacity_bytes{volume=\"db\"}",
            "forebay_host_memory_claimed_bytes{host=\"h1\"}",
        ] {
            assert!(metrics.get(series).is_some_and(|value| *value > 0.0), "{series} in {metrics:#?}");
        }
        let told = succeed(["status", "--once", "--server", &server]);
        assert!(!told.contains("client"), "{told}");

        // Another controller goes on with it.
        controller.kill();
        let before = work.done.load(Ordering::Relaxed);
        // Not one that was told of another disk meanwhile: what it fences there says nothing of this one.
        let (_, said) = fail(["control", "--check", &other_disk(folder.path())]);
        let expected = "volume `db` has appliance 1 on host `h1` in the journal, and its `origin` is ";
        assert!(said.contains(expected), "{said}");
        let (_, said) = fail(["control", &other_disk(folder.path())]);
        assert!(said.contains(expected), "{said}");
        controller = Controller::start(folder.path(), None);
        telling.wait("the appliance in the hands of the next controller", |told| {
            step(told).contains("serving: appliance 1 on h1")
        });
        assert!(work.done.load(Ordering::Relaxed) > before, "clients go on without a controller");
        let told = succeed(["explain", "db", "--server", &server]);
        assert!(told.contains("cache in place") && told.contains("violation ended"), "{told}");
        let status = json("forebay.status/1", ["status", "--json", "--server", &server]);
        assert_eq!(status["volumes"][0]["name"], "db");
        // It knows neither who is let in nor where the proxy sends clients.
        for command in ["lease", "route"] {
            let (_, said) = fail([command, "db", "--server", &server]);
            assert!(said.contains("not served there but looked after"), "{said}");
        }

        // The appliance dies: another takes its place, and nothing that was acknowledged is lost.
        appliances.kill();
        telling.wait("another appliance", |told| {
            count(told, "cache_in_place") == 2 && count(told, "appliance_failed") == 1
        });
        assert!(count(&telling.explained("db").expect("it answers"), "original_route") == 1);

        // The appliance goes when nobody asks for anything.
        drop(stops);
    });
    telling.wait("the original route", |told| {
        count(told, "original_route") == 2 && step(told).contains("original route")
    });
    let lease = watch.status().volumes[0].lease.expect("it has leases");
    assert_eq!(lease.holder, LeaseHolder::Original);
    // It is stopped once its clients are gone, so a moment later.
    telling.wait("the end of the appliance", |_| appliances.pids().is_empty());
    // Only what was sent to the appliance that died and not answered; what it was to read is read again elsewhere.
    assert_eq!(ledger.reads_failed, 0);
    assert!(proxy.status().volumes[0].errors <= OUTSTANDING);
}

/// Whoever puts the storage side's state back from before, or loses it, lets in whom the lease kept out.
#[test]
fn a_lease_that_the_storage_side_lost_is_raised_again() {
    let folder = folder();
    one_machine(&folder);
    let configured = |name: &str| Config::read(&folder.path().join(name)).expect("a good configuration");
    let watching = || Daemon::start(configured("watch.toml").watching().unwrap()).unwrap();
    let watch = watching();
    let proxy = Daemon::start(configured("proxy.toml")).unwrap();
    let appliances = Appliances(folder.path().to_owned());
    let _controller = Controller::start(folder.path(), None);
    let telling = Telling(folder.path());

    let (work, mut ledger) = (Work::default(), Ledger::new());
    let uri: Uri = proxy.uris("db")[0].parse().unwrap();
    let watch = std::thread::scope(|scope| {
        let stops = SetOnDrop(&work.stop);
        scope.spawn(|| drive(uri, &mut ledger, &work));
        telling.wait("a cache in place", |told| count(told, "cache_in_place") == 1);
        let before = appliances.pids();
        drop(watch);
        std::fs::remove_file(folder.path().join("leases.json")).unwrap();
        let watch = watching();
        telling.wait("a lease that is missed", |told| count(told, "lease_lost") == 1);
        // What the cache holds may be old by now: another takes its place.
        telling.wait("another appliance", |told| count(told, "cache_in_place") == 2);
        let lease = watch.status().volumes[0].lease.expect("it has leases");
        assert!(lease.epoch > 1 && lease.holder == LeaseHolder::Named, "{lease:?}");
        telling.wait("the end of the first", |_| appliances.pids().iter().all(|pid| !before.contains(pid)));
        drop(stops);
        watch
    });
    telling.wait("the original route", |told| step(told).contains("original route"));
    let lease = watch.status().volumes[0].lease.expect("it has leases");
    assert_eq!(lease.holder, LeaseHolder::Original);
    let told = telling.explained("db").expect("it answers");
    assert_eq!(count(&told, "lease_lost"), 1, "{told}");
    assert_eq!(ledger.reads_failed, 0);
}
