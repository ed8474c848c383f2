//! An appliance that takes the place of another: what that one held is loaded into it.

use super::{Appliances, Controller, Ledger, Telling, Work, count, drive, one_machine, step};
use crate::support::{SetOnDrop, file, folder};
use forebay_nbd::Uri;
use forebay_serve::Daemon;
use forebay_serve::config::Config;
use serde_json::Value;
use std::process::Command;

/// Some twelve seconds of misses: a cache that suffices is half full by its own only after seconds, and what is there needs no loading. On a busy machine the controller may see it that late.
const VOLUME_BLOCKS: u64 = 12_288;
/// The controller asks what caches hold once in thirty intervals, and again then where it was not told in time.
const LISTED_WITHIN: f64 = 61.0;
const HOST: &str = "[[host]]\nname = \"h1\"\nmemory = \"256MiB\"\n";

/// How often it was told that what was held before is loaded.
fn reloads(told: &Value) -> usize {
    let decisions = told["decisions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_reload = |told: &&Value| {
        let summary = told["summary"].as_str().unwrap_or_default();
        told["kind"] == "prewarm_started" && summary.contains("of what it held before is loaded")
    };
    decisions.iter().filter(is_reload).count()
}

#[test]
fn what_an_appliance_held_is_loaded_into_the_one_that_takes_its_place() {
    let folder = folder();
    one_machine(&folder);
    file(&folder, "db.img", vec![0; VOLUME_BLOCKS as usize * 4_096]);
    let control = folder.path().join("control.toml");
    let text = std::fs::read_to_string(&control).unwrap();
    let hosts = |drain: &str| {
        let two = format!("{HOST}{drain}{}", HOST.replace("h1", "h2"));
        file(&folder, "control.toml", text.replace(HOST, &two));
    };
    hosts("");
    let configured = |name: &str| Config::read(&folder.path().join(name)).expect("a good configuration");
    let _watch = Daemon::start(configured("watch.toml").watching().unwrap()).unwrap();
    let proxy = Daemon::start(configured("proxy.toml")).unwrap();
    let appliances = Appliances(folder.path().to_owned());
    let telling = Telling(folder.path());
    let mut controller = Controller::start(folder.path(), None);
    let steps = || telling.metrics()["forebay_controller_intervals_total"];
    let is_full = |told: &Value| {
        let bytes = |key: &str| told["status"][key].as_u64().unwrap_or(0);
        bytes("used_bytes") > 0 && bytes("used_bytes") * 10 >= bytes("quota_bytes") * 9
    };
    let listed = || {
        telling.wait("a cache that suffices", |told| count(told, "violation_ended") > 0 && is_full(told));
        let from = steps();
        telling.wait("that it has told what it holds", |_| steps() > from + LISTED_WITHIN);
    };

    let (work, mut ledger) = (Work::default(), Ledger::of(VOLUME_BLOCKS));
    let uri: Uri = proxy.uris("db")[0].parse().unwrap();
    std::thread::scope(|scope| {
        let stops = SetOnDrop(&work.stop);
        scope.spawn(|| drive(uri, &mut ledger, &work));
        telling.wait("a cache in place", |told| step(told).contains("serving: appliance 1 on h1"));
        listed();
        let told = telling.explained("db").expect("it answers");
        assert_eq!(reloads(&told), 0, "nobody was there before: {told}");
        appliances.kill();
        telling.wait("a cache that was loaded", |told| {
            count(told, "appliance_failed") == 1 && reloads(told) == 1
        });

        // A controller that ends in order keeps what it knows; the next one drains the host.
        listed();
        let serves_on = |told: &Value| step(told).ends_with(" on h1");
        let (drained, goes_to) = if serves_on(&telling.explained("db").expect("it answers")) {
            ("drain = true\n", " on h2")
        } else {
            // The one that failed rested: it is on the other by now, which is drained then.
            ("", " on h1")
        };
        let ended = Command::new("kill").args(["-TERM", &controller.0.id().to_string()]).status();
        assert!(ended.expect("kill runs").success() && controller.0.wait().expect("it ends").success());
        hosts(drained);
        if drained.is_empty() {
            let with_h2 = std::fs::read_to_string(&control).unwrap();
            let h2 = HOST.replace("h1", "h2");
            file(&folder, "control.toml", with_h2.replace(&h2, &format!("{h2}drain = true\n")));
        }
        controller = Controller::start(folder.path(), None);
        telling.wait("a loaded cache on the other host", |told| {
            step(told).contains("serving") && step(told).ends_with(goes_to) && reloads(told) == 2
        });
        drop(stops);
    });
    telling.wait("the end of the appliance", |_| appliances.pids().is_empty());
    drop(controller);
}
