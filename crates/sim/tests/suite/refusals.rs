//! Scenarios that cannot be run, and what is said of them.

use crate::scenario;
use forebay_sim::scenario::{Scenario, ScenarioError};

const GOOD: &str = r#"
    name = "good"
    duration = "60s"
    cache.memory = "64MiB"
    origin = [{ name = "o", type = "servers", servers = 2, service = "10ms" }]
    [[volume]]
    name = "v"
    size = "1GiB"
    load = [{ arrivals = "poisson", rate = 100 }]
    [[objective]]
    volume = "v"
    latency = "5ms"
"#;

fn refused(from: &str, to: &str) -> ScenarioError {
    assert!(GOOD.contains(from), "{from}");
    scenario(&GOOD.replace(from, to)).check().expect_err(to)
}

#[test]
fn the_good_one_passes() {
    assert_eq!(scenario(GOOD).check(), Ok(Vec::new()));
}

#[test]
fn unknown_keys_and_missing_ones_are_refused_by_the_reader() {
    for (from, to, said) in [
        ("rate = 100", "rade = 100", "unknown field `rade`"),
        ("servers = 2", "server = 2", "unknown field `server`"),
        ("duration = \"60s\"", "", "missing field `duration`"),
        ("duration = \"60s\"", "duration = 60", "a text in quotes, with a unit"),
        ("cache.memory", "control.gain = 1\ncache.memory", "unknown field `gain`"),
        ("\"poisson\"", "\"poison\"", "unknown variant `poison`"),
    ] {
        let error = toml::from_str::<Scenario>(&GOOD.replace(from, to)).expect_err(to).to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn values_out_of_range_are_refused_by_key() {
    for (from, to, key) in [
        ("\"60s\"", "\"5s\"", "duration"),
        ("servers = 2", "servers = 0", "origin[0].servers"),
        ("servers = 2", "spindles = 2", "origin[0].spindles"),
        (", service = \"10ms\"", "", "origin[0]"),
        ("rate = 100", "rate = -1", "volume[0].load[0].rate"),
        ("rate = 100", "clients = 3", "volume[0].load[0]"),
        ("rate = 100", "rate = 1, think = \"1s\"", "volume[0].load[0].think"),
        ("rate = 100", "rate = 1, read_share = 1.5", "volume[0].load[0].read_share"),
        ("rate = 100", "rate = 1, working_set = \"2GiB\"", "volume[0].load[0].working_set"),
        ("rate = 100 }", "rate = 1 }, { arrivals = \"idle\" }", "volume[0].load[1].from"),
        ("size = \"1GiB\"", "size = \"1GiB\"\ncache = \"65MiB\"", "volume[0].cache"),
        ("volume = \"v\"", "volume = \"w\"", "objective[0].volume"),
        ("latency = \"5ms\"", "latency = \"5ms\"\niops = 5", "objective[0]"),
        ("latency = \"5ms\"", "latency = \"5ms\"\nstatistic = \"p0\"", "objective[0].statistic"),
        ("cache.memory", "control.feedback.gain = 0\ncache.memory", "control.feedback.gain"),
    ] {
        let error = refused(from, to);
        assert_eq!(error.key(), key, "{error}");
    }
}

#[test]
fn doomed_scenarios_are_refused_with_the_arithmetic() {
    // 2 servers of 10 ms serve 200/s; 500/s of which half write leave 250/s that no cache takes.
    let error = refused("rate = 100", "rate = 500, read_share = 0.5").to_string();
    assert_eq!(
        error,
        "origin `o` can never serve it: 250 requests/s from 0ns on reach it whatever is cached, and 2 at 10ms each serve 200 at most"
    );
    let error = refused("\"5ms\"", "\"100us\"").to_string();
    assert_eq!(error, "100us cannot be kept: a hit in the fastest tier takes 150us");
}

#[test]
fn the_scenarios_that_are_shipped_can_be_run() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder is there").flatten() {
        let text = std::fs::read_to_string(entry.path()).expect("a text");
        scenario(&text).check().unwrap_or_else(|error| panic!("{}: {error}", entry.path().display()));
        names.push(entry.file_name());
    }
    assert!(names.len() >= 3, "{names:?}");
}

#[test]
fn the_reference_names_every_key() {
    let reference = include_str!("../../../../docs/reference/scenario.md");
    // A key that nobody knows makes the reader name all those that it does.
    for (from, to) in [
        ("name = \"good\"", "name = \"good\"\nzz = 1"),
        ("cache.memory", "cache.zz = 1\ncache.memory"),
        ("servers = 2", "zz = 2"),
        ("size = \"1GiB\"", "size = \"1GiB\"\nzz = 1"),
        ("rate = 100", "zz = 1"),
        ("latency = \"5ms\"", "zz = 1"),
    ] {
        let error = toml::from_str::<Scenario>(&GOOD.replacen(from, to, 1)).expect_err(to).to_string();
        let (_, keys) = error.split_once("expected one of ").expect("the reader lists the keys");
        let keys: Vec<&str> = keys.split('`').skip(1).step_by(2).collect();
        assert!(keys.len() >= 5, "{error}");
        for key in keys {
            assert!(reference.contains(&format!("`{key}`")), "`{key}` is not in docs/reference/scenario.md");
        }
    }
}
