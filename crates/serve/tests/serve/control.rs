//! The whole loop on emulated disks: an objective is missed, a cache is granted, and the reasons are kept.

use super::support::{Client, SetOnDrop, eventually};
use forebay_appliance::ListenerConfig;
use forebay_control::{DecisionKind, Objective, Operations};
use forebay_devmodel::{DiskGroupParameters, DiskParameters};
use forebay_origin::{NbdOriginOptions, OriginOperation};
use forebay_serve::config::{
    Config, DiskBacking, DiskGroupConfig, HistoryConfig, OriginConfig, OriginTls, VolumeConfig,
};
use forebay_serve::history::Database;
use forebay_serve::status::ControllerState;
use forebay_serve::{Daemon, DatedDecision};
use forebay_units::{ByteRange, Bytes, Nanos, mix64};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A volume of 64 MiB on two emulated disks that take 5 ms for each request.
pub(crate) fn config(folder: &std::path::Path) -> Config {
    let disk = DiskParameters::fixed_service(Bytes::gib(1).get(), Nanos::millis(5));
    let parameters = DiskGroupParameters::striped(2, disk);
    let group = DiskGroupConfig { parameters, ..DiskGroupConfig::new("disks") };
    let backing = DiskBacking::Memory(Bytes::mib(64));
    let origin = OriginConfig::DiskGroup { group: "disks".to_owned(), backing, offset: None };
    let mut volume = VolumeConfig::new("zipf", origin);
    // Four outstanding at two disks of 5 ms each take some 10 ms.
    volume.objectives =
        vec![Objective::mean_latency(Nanos::millis(4), Operations::Reads).over(Nanos::millis(200))];
    let mut config = Config::new(vec![volume]);
    config.disk_groups = vec![group];
    config.listen = vec![ListenerConfig::Unix { path: folder.join("nbd.sock") }];
    config.cache_memory = Bytes::mib(32);
    config.control.interval = Duration::from_millis(200);
    config.history = Some(HistoryConfig::new(folder.join("history.db")));
    config
}

#[test]
fn disks_may_be_a_raid_behind_an_arrays_cache() {
    let folder = tempfile::tempdir().unwrap();
    let text = |array: &str| {
        format!(
            r#"
            listen = ["unix:nbd.sock"]
            http.listen = "off"
            volume = [{{ name = "v", origin = {{ type = "disk-group", group = "g", memory = "16MiB" }} }}]
            disk_group = [{{ name = "g", disk = "fixed", service = "10ms", disk_capacity = "1GiB", spindles = 4, raid = "5"{array} }}]
            "#
        )
    };
    // A small write is two requests in turn on each of two disks: 20 ms. An array's cache takes it in 0.2 ms.
    let spans = ["", ", array = { cache = \"8MiB\" }"].map(|array| {
        let config = Config::parse("forebay.toml", &text(array), folder.path()).unwrap();
        let daemon = Daemon::start(config).unwrap();
        let mut client = Client::connect(&daemon.uris("v")[0]);
        let began = Instant::now();
        (0..5).for_each(|at| client.write(at << 16, vec![at as u8 + 1; 4096]).unwrap());
        let span = began.elapsed();
        assert_eq!(client.read(4 << 16, 4096).unwrap(), [5; 4096]);
        drop(client);
        daemon.shutdown();
        span
    });
    assert!(spans[0] >= Duration::from_millis(100), "{spans:?}");
    assert!(spans[1] < spans[0] / 2, "{spans:?}");
}

/// Reads skewed blocks, four at a time, until told to stop.
pub(crate) fn read_skewed(uri: &str, stop: &AtomicBool) {
    let mut client = Client::connect(uri);
    let mut draw = 0u64;
    let mut next = || {
        draw += 1;
        // Squaring a uniform number twice: a tenth of the blocks takes more than half of the reads.
        let uniform = (mix64(draw) >> 11) as f64 / (1u64 << 53) as f64;
        let block = (uniform.powi(4) * 4096.0) as u64;
        OriginOperation::Read { range: ByteRange::new(block * 4096, 4096) }
    };
    (0..4).for_each(|_| client.submit(next()));
    while !stop.load(Ordering::Relaxed) {
        client.wait().expect("no read fails");
        client.submit(next());
    }
    (0..4).for_each(|_| drop(client.wait()));
}

/// What must come back; the last digit of a number may be lost in JSON.
fn told(decisions: &[DatedDecision]) -> Vec<(i64, DecisionKind, String, usize, usize)> {
    let tell = |dated: &DatedDecision| {
        let decision = &dated.decision;
        (
            dated.at_unix_ms,
            decision.kind,
            decision.summary.clone(),
            decision.facts.len(),
            decision.alternatives.len(),
        )
    };
    decisions.iter().map(tell).collect()
}

#[test]
fn a_missed_objective_gets_a_cache_and_says_why_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(config(folder.path())).unwrap();
    let uri = daemon.uris("zipf").remove(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stops = SetOnDrop(&stop);
        scope.spawn(|| read_skewed(&uri, &stop));
        let granted =
            || daemon.decisions("zipf").iter().any(|dated| dated.decision.kind == DecisionKind::Granted);
        eventually("a cache is granted", Duration::from_secs(30), granted);
        let kept = || {
            let volume = daemon.status().volumes.remove(0);
            volume.quota_bytes > 0 && volume.hit_ratio.is_some_and(|ratio| ratio > 0.3)
        };
        eventually("the cache is hit", Duration::from_secs(30), kept);
        drop(stops);
    });
    let explanation = daemon.explain("zipf").unwrap();
    let kinds: Vec<DecisionKind> = explanation.decisions.iter().map(|dated| dated.decision.kind).collect();
    let found =
        kinds.iter().position(|kind| *kind == DecisionKind::ViolationFound).expect("a violation came first");
    let granted = kinds.iter().position(|kind| *kind == DecisionKind::Granted).expect("a cache was granted");
    assert!(found < granted, "{kinds:?}");
    assert!(!explanation.decisions[granted].decision.facts.is_empty(), "the numbers are kept");
    assert!(
        explanation.decisions.iter().any(|dated| !dated.decision.alternatives.is_empty()),
        "what else was considered"
    );
    let before = daemon.decisions("zipf");
    daemon.shutdown();
    let history = Database::read(&folder.path().join("history.db")).unwrap();
    assert!(history.intervals("zipf").unwrap() > 3);
    assert_eq!(told(&history.decisions(Some("zipf"), 10_000).unwrap()), told(&before));
    drop(history);
    let again = Daemon::start(config(folder.path())).unwrap();
    assert_eq!(told(&again.decisions("zipf")[..before.len()]), told(&before), "earlier runs are told");
    again.shutdown();
}

#[test]
fn without_the_controller_volumes_are_served_and_observed_and_nothing_is_granted() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.control.enabled = false;
    let daemon = Daemon::start(config).unwrap();
    let uri = daemon.uris("zipf").remove(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stops = SetOnDrop(&stop);
        scope.spawn(|| read_skewed(&uri, &stop));
        let judged = || daemon.status().volumes[0].objectives[0].windows_nonconforming >= 5;
        eventually("windows are judged", Duration::from_secs(30), judged);
        let status = daemon.status();
        assert_eq!(status.controller.state, ControllerState::Disabled);
        assert_eq!((status.volumes[0].quota_bytes, status.volumes[0].state.as_str()), (0, "violating"));
        assert!(daemon.decisions("zipf").is_empty());
        daemon.set_controller_enabled(true).unwrap();
        let granted = || daemon.status().volumes[0].quota_bytes > 0;
        eventually("the controller, switched on, grants a cache", Duration::from_secs(30), granted);
        drop(stops);
    });
    daemon.shutdown();
}

/// One volume's storage goes away for good: its clients get errors, and the others' objectives are looked after all the same.
#[test]
fn the_controller_goes_on_when_an_origin_dies() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Config::new(vec![VolumeConfig::new("far", OriginConfig::Memory { size: Bytes::mib(1) })]);
    store.listen = vec![ListenerConfig::Unix { path: folder.path().join("store.sock") }];
    let store = Daemon::start(store).unwrap();
    let mut config = config(folder.path());
    let options = NbdOriginOptions { wait_for_origin: Nanos::millis(100), ..NbdOriginOptions::default() };
    let uri = store.uris("far")[0].parse().unwrap();
    let mut far = VolumeConfig::new("far", OriginConfig::Nbd { uri, options, tls: OriginTls::default() });
    far.objectives = config.volumes[0].objectives.clone();
    config.volumes.push(far);
    let daemon = Daemon::start(config).unwrap();
    let mut client = Client::connect(&daemon.uris("far")[0]);
    assert_eq!(client.read(0, 4096), Ok(vec![0; 4096]));
    store.shutdown();
    assert!(client.read(8192, 4096).is_err(), "there is nobody who could answer");
    let uri = daemon.uris("zipf").remove(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stops = SetOnDrop(&stop);
        scope.spawn(|| read_skewed(&uri, &stop));
        let granted = || daemon.status().volumes[0].quota_bytes > 0;
        eventually("the other volume gets its cache", Duration::from_secs(30), granted);
        drop(stops);
    });
    let status = daemon.status();
    assert_eq!((status.controller.state, status.controller.restarts), (ControllerState::Running, 0));
    assert!(client.read(8192, 4096).is_err());
    let origin = &status.volumes[1].origin;
    assert!(origin.state == "down" && origin.reason.is_some() && origin.errors > 0, "{origin:?}");
    let metrics = daemon.metrics();
    for (volume, up) in [("zipf", 1), ("far", 0)] {
        let line = format!("forebay_origin_up{{volume=\"{volume}\"}} {up}\n");
        assert!(metrics.contains(&line), "{metrics}");
    }
    assert!(status.volumes[0].origin.utilisation.is_some_and(|share| share > 0.0 && share <= 1.0));
    daemon.shutdown();
}
