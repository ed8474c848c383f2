//! `forebay repro sancache` in its short form, and the tier of the scenario that is shipped: chunks come to the tier, and what they are placed for comes out.

use crate::support::{folder, json, succeed};
use serde_json::Value;

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("`{key}` of {value}"))
}

#[test]
fn the_short_sancache_places_what_is_hot_and_isolates() {
    let folder = folder();
    let report = folder.path().join("report.html");
    let arguments = ["repro", "sancache", "--quick", "--json", "--report", report.to_str().unwrap()];
    let found = json("forebay.repro-sancache/1", arguments);
    let load = &found["loads"][0];
    let rows = load["rows"].as_array().unwrap();
    let row = |name: &str| {
        rows.iter().find(|row| row["admission"] == name).unwrap_or_else(|| panic!("no row `{name}`"))
    };
    let (adaptive, demand) = (row("adaptive"), row("demand"));
    assert_eq!(rows.len(), 7);
    for name in ["threshold-1", "threshold-2", "threshold-4", "larc", "lru"] {
        assert!(number(row(name), "read_hits") > 0.1, "{name}");
    }
    // Demand admission writes four times as much to flash while the tier fills, and is slower; no tier is slower, too.
    assert!(4.0 * number(adaptive, "flash_bytes") < number(demand, "flash_bytes"));
    assert!(number(adaptive, "mean_ms") < 0.95 * number(demand, "mean_ms"));
    assert!(number(adaptive, "mean_ms") < 0.95 * number(&load["without"], "mean_ms"));
    assert!(number(&load["verdict"], "mean_to_best_static") < 1.1);
    let isolation = &found["isolation"];
    let (alone, flooded) = (number(isolation, "alone_ms"), number(isolation, "flooded_ms"));
    assert!(flooded > 5.0 * alone && number(isolation, "restored_ms") < 1.1 * alone, "{isolation}");
    assert!(std::fs::read_to_string(report).unwrap().contains("<svg "));
    // A seed repeats it.
    let home = ["repro", "sancache", "--quick", "--writes", "home", "--json"];
    assert_eq!(json("forebay.repro-sancache/1", home), found);
    let text = succeed(["repro", "sancache", "--quick"]);
    assert!(text.lines().next().is_some_and(|line| line.contains("; simulated, seed ")), "{text}");
    // Where writes go through nothing is written back, and the victim's wait in the flooded array all the same.
    let back = |row: &Value| number(row, "migrated_bytes") - number(row, "promoted_bytes");
    let through =
        json("forebay.repro-sancache/1", ["repro", "sancache", "--quick", "--writes", "through", "--json"]);
    let written_through = &through["loads"][0]["rows"][0];
    assert_eq!((&through["writes"], &written_through["admission"]), (&"through".into(), &"adaptive".into()));
    assert!(back(adaptive) > 0.0 && back(written_through) == 0.0, "{adaptive} {written_through}");
    assert!(number(&through["isolation"], "restored_ms") > 2.0 * number(isolation, "restored_ms"));
}

#[test]
fn a_scenario_with_a_tier_shows_it() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/array-write-flood-tier.toml");
    let text = succeed(["sim", path, "--within", "120s"]);
    assert!(text.contains("brought in") && text.contains("adaptive"), "{text}");
    let found = json("forebay.sim/1", ["sim", path, "--within", "120s", "--json"]);
    let tier = &found["tier"];
    assert_eq!((number(tier, "capacity_chunks"), number(tier, "chunk_bytes")), (1_024.0, 65_536.0));
    assert!(number(&tier["totals"], "write_hits") > 100.0, "{tier}");
}
