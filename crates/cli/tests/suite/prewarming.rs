//! `forebay repro presto` and `forebay repro failover`, in their short forms: the evaluation comes out as the slides have it, and who takes over
//! a killed daemon's volume begins with what it had cached.

use crate::support::{folder, json, recorded, run};
use serde_json::Value;

/// Mean ratios per look-up over 5, 15 and 30 minutes.
fn columns(row: &Value) -> [f64; 3] {
    ["mean_5min", "mean_15min", "mean_30min"].map(|column| row["look_ups"][column].as_f64().expect("a ratio"))
}

#[test]
fn the_short_presto_keeps_the_orderings_of_the_slides_and_its_bounds() {
    let folder = folder();
    let report = folder.path().join("report.html");
    let arguments = ["repro", "presto", "--quick", "--json", "--report", report.to_str().unwrap()];
    let found = json("forebay.repro-presto/1", arguments);
    let rows = found["rows"].as_array().unwrap();
    let row =
        |who: &str| rows.iter().find(|row| row["who"] == who).unwrap_or_else(|| panic!("no row `{who}`"));
    let slides: Vec<&Value> = rows.iter().filter(|row| row["published"].is_array()).collect();
    assert_eq!(slides.len(), 4, "{slides:?}");
    let mut compared = 0;
    for a in &slides {
        for b in &slides {
            // The slides' first column is that of the first second.
            for column in 0..3 {
                let published = |row: &Value| row["published"][column + 1].as_f64().unwrap();
                if published(a) > published(b) {
                    compared += 1;
                    assert!(columns(a)[column] > columns(b)[column], "{} and {}", a["who"], b["who"]);
                }
            }
        }
    }
    assert!(compared >= 9, "k-Recent is above the other three in every column");
    let (cold, ideal, warm) =
        (columns(row("cold")), columns(row("knows the future")), columns(row("did not fail")));
    for slide in slides {
        assert!(cold[0] < columns(slide)[0] && columns(slide)[0] < ideal[0], "{slide}");
    }
    assert!(ideal[0] < warm[0]);
    let cost = &found["snapshots"][0];
    let encoded = cost["encoded_bytes_last"].as_u64().unwrap();
    assert!(encoded < cost["bytes_each"].as_u64().unwrap() && encoded > 0, "{cost}");
    assert!(std::fs::read_to_string(report).unwrap().contains("<table"));
    // A seed repeats it.
    let again = json("forebay.repro-presto/1", ["repro", "presto", "--quick", "--json"]);
    assert_eq!(again, found);
}

#[test]
fn of_recorded_volumes_of_high_locality_almost_nothing_is_loaded_and_it_is_said_why() {
    let Some(trace) = recorded("disksim_ssd-iozone-aligned2-100K.trace.zst") else { return };
    let folder = trace.parent().unwrap().to_str().unwrap().to_owned();
    let found = json("forebay.repro-presto-recorded/1", ["repro", "presto", "--json", "--traces", &folder]);
    let cache = found["cache_bytes"].as_f64().unwrap();
    let number =
        |volume: &Value, key: &str| volume[key].as_f64().unwrap_or_else(|| panic!("{key}: {volume}"));
    let volumes = found["volumes"].as_array().unwrap();
    // What a cold node soon finds by itself is of high locality, as the slides' RealCSE.
    let local: Vec<&Value> = volumes.iter().filter(|volume| number(volume, "cold") > 0.9).collect();
    assert!(local.len() >= 3, "{found}");
    for volume in local {
        assert!(number(volume, "loaded_bytes") < 0.003 * cache, "{volume}");
        assert!(number(volume, "decided") >= number(volume, "cold") - 0.002, "{volume}");
        let words = volume["decision"].as_str().unwrap();
        assert!(words.contains("look-ups") && words.contains(volume["name"].as_str().unwrap()), "{words}");
    }
    for volume in volumes {
        assert!(number(volume, "loaded_bytes") < 0.02 * cache, "{volume}");
        assert!(number(volume, "decided") <= number(volume, "warm") + 0.005, "{volume}");
    }
    assert!(found["left_out"].to_string().contains("expected at least 600"), "{found}");
}

#[test]
fn who_takes_over_a_killed_daemon_begins_with_what_it_had_cached() {
    let folder = folder();
    let report = folder.path().join("report.html");
    let output = run(["repro", "failover", "--quick", "--json", "--report", report.to_str().unwrap()]);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    let found: Value = serde_json::from_slice(&output.stdout).expect("output is JSON");
    assert_eq!(found["schema"], "forebay.repro-failover/1");
    assert_eq!((&found["wrong_reads"], &found["errors"]), (&0.into(), &0.into()), "{found}");
    assert!(found["bytes_checked"].as_u64().unwrap() > 4 << 20, "{found}");
    let ways = found["ways"].as_array().unwrap();
    let [snapshots, cold] = [&ways[0], &ways[1]];
    assert_eq!((&snapshots["begins"], &cold["begins"]), (&"snapshots".into(), &"cold".into()));
    assert_eq!(cold["loaded_bytes"], 0);
    assert!(snapshots["loaded_bytes"].as_u64().unwrap() > 1 << 20, "{found}");
    let ratio = |way: &Value| way["hit_ratio"].as_f64().unwrap();
    assert!(ratio(snapshots) > ratio(cold), "{found}");
    assert!(std::fs::read_to_string(report).unwrap().contains("<svg "));
}
