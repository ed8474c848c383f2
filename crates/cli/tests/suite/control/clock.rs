//! The wall clock of every part is set again and again, by hours, years and back, from the first violation to the end: nothing that is decided goes by it.

use super::{Appliances, Controller, Ledger, Telling, Work, count, drive, one_machine, step};
use crate::support::{Running, SetOnDrop, command, folder, wait_for};
use forebay_nbd::Uri;
use forebay_prerequisite::programs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
/// Ahead of the right time, in the syntax of libfaketime.
const CLOCKS: [&str; 6] = ["+1h", "-1h", "+0", "+20y", "-2d", "+0"];

/// `forebay` with a wall clock that is as far ahead as the file `clock` says; clocks that only run are as they are.
fn start(folder: &Path, arguments: [&str; 2]) -> Child {
    let log = std::fs::File::create(folder.join(format!("{}.log", arguments[0]))).unwrap();
    command(None, env!("CARGO_BIN_EXE_forebay"))
        .arg(arguments[0])
        .arg(folder.join(arguments[1]))
        .env("LD_PRELOAD", FAKETIME)
        .env("FAKETIME_TIMESTAMP_FILE", folder.join("clock"))
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("DONT_FAKE_MONOTONIC", "1")
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("the binary runs")
}

fn set_clock(folder: &Path, clock: &str) {
    // Whoever reads it finds the old one or the new one.
    std::fs::write(folder.join("clock.new"), clock).unwrap();
    std::fs::rename(folder.join("clock.new"), folder.join("clock")).unwrap();
}

#[test]
fn clocks_that_are_set_change_no_decision() {
    if !programs("clocks that are set", &["faketime"], false) {
        return;
    }
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    set_clock(folder.path(), "+0");
    one_machine(&folder);
    let watch = start(folder.path(), ["watch", "watch.toml"]);
    let mut parts = Running(vec![watch]);
    wait_for(&folder.path().join("watch.sock"));
    parts.0.push(start(folder.path(), ["serve", "proxy.toml"]));
    wait_for(&folder.path().join("proxy.sock"));
    let appliances = Appliances(folder.path().to_owned());
    let _controller = Controller(start(folder.path(), ["control", "control.toml"]));
    let telling = Telling(folder.path());

    let (work, mut ledger) = (Work::default(), Ledger::new());
    let uri: Uri = format!("nbd+unix:///db?socket={}", path("proxy.sock")).parse().unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stops_clocks = SetOnDrop(&over);
        let stops_client = SetOnDrop(&work.stop);
        scope.spawn(|| {
            for clock in CLOCKS.iter().cycle().take_while(|_| !over.load(Ordering::Relaxed)) {
                set_clock(folder.path(), clock);
                std::thread::sleep(Duration::from_millis(230));
            }
        });
        scope.spawn(|| drive(uri, &mut ledger, &work));
        telling.wait("a cache in place", |told| count(told, "cache_in_place") == 1);
        telling.wait("the end of the violation", |told| count(told, "violation_ended") == 1);
        assert_eq!(appliances.pids().len(), 1);
        drop(stops_client);
        let told = telling.wait("the original route", |told| {
            count(told, "original_route") == 1 && step(told).contains("original route")
        });
        for unwanted in ["appliance_failed", "observation_doubted"] {
            assert_eq!(count(&told, unwanted), 0, "{unwanted}: {told:#}");
        }
        telling.wait("the end of the appliance", |_| appliances.pids().is_empty());
        drop(stops_clocks);
    });
    assert_eq!(ledger.failed, 0);
    // Who tells people of hours and dates says that the clock was set.
    let log = std::fs::read_to_string(folder.path().join("serve.log")).unwrap();
    assert!(log.contains("the wall clock was set"), "{log}");
}
