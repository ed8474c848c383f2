//! `forebay demo` in full: what it promises is what it does, with nothing left behind.

use crate::support::{folder, run};
use serde_json::Value;

#[test]
fn both_objectives_are_violated_and_restored_and_every_byte_is_right() {
    let folder = folder();
    let report = folder.path().join("report.html");
    let output = run(["demo".as_ref(), "--json".as_ref(), "--report".as_ref(), report.as_os_str()]);
    let words = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{words}\n{text}");
    let demo: Value = serde_json::from_str(&text).expect("output is JSON");
    assert_eq!((&demo["schema"], &demo["passed"]), (&"forebay.demo/1".into(), &true.into()));

    let share = |phase: &str, volume: &str| {
        let phases = demo["phases"].as_array().unwrap();
        let phase = phases.iter().find(|found| found["name"] == phase).unwrap();
        let workloads = phase["workloads"].as_array().unwrap();
        workloads.iter().find(|found| found["volume"] == volume).unwrap()["conforming_share"]
            .as_f64()
            .unwrap()
    };
    for volume in ["orders", "reports"] {
        assert!(share("without", volume) < 0.4, "{volume} was not violated without Forebay: {text}");
        assert!(share("with", volume) > share("without", volume), "{text}");
        let restored = demo["restoration"][format!("{volume}_conforming_share")].as_f64().unwrap();
        assert!(restored >= 0.9, "{text}");
    }
    let check = &demo["check"];
    for none in ["wrong_reads", "wrong_volumes", "errors"] {
        assert_eq!(check[none], 0, "{check}");
    }
    assert_eq!(check["bytes_compared_at_end"], 1u64 << 30);
    assert!(check["bytes_read_checked"].as_u64().unwrap() > 100 << 20);
    // The cache is the controller's doing, and a part of what the volume reads.
    let cache = &demo["cache"];
    assert!(cache["quota_bytes"].as_u64().unwrap() > 0, "{cache}");
    assert!(cache["quota_bytes"].as_u64() < cache["footprint_bytes"].as_u64(), "{cache}");
    let kinds: Vec<&str> = demo["decisions"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|decision| decision["kind"].as_str())
        .collect();
    assert!(kinds.contains(&"violation_found") && kinds.contains(&"granted"), "{kinds:?}");

    // The page stands alone.
    let page = std::fs::read_to_string(&report).unwrap();
    assert!(page.contains("<svg ") && page.contains("What the controller decided"));
    assert!(
        !page.contains("http://")
            || page.matches("http://").count() == page.matches("http://www.w3.org/").count()
    );
    assert!(!page.contains("src=") && !page.contains("https://"));
}
