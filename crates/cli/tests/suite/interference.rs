//! `forebay repro interference`: planted interference is drawn by the seed, and scored.

use crate::support::{fail, json, succeed};

#[test]
fn planted_interference_is_scored_and_a_seed_repeats_it() {
    let arguments = ["repro", "interference", "--seed", "905", "--draws", "1", "--noise", "0.1", "--json"];
    let found = json("forebay.repro-interference/1", arguments);
    let rows = found["rows"].as_array().unwrap();
    // Two tides, clients that wait and that do not; and four other courses of loads.
    let courses: Vec<&str> = rows.iter().map(|row| row["course"].as_str().unwrap()).collect();
    let levels = ["levels"; 4];
    assert_eq!(
        (&courses[..4], &courses[4..]),
        (&levels[..], &["on and off", "swing", "slopes", "one step"][..])
    );
    for row in rows {
        // Of loads that take one step each, some take it together by chance.
        let precision_min = if row["course"] == "one step" { 0.6 } else { 0.95 };
        let number = |key: &str| row[key].as_f64().unwrap();
        let precision = number("found_planted") / (number("found_planted") + number("found_not_planted"));
        assert!((number("precision") - precision).abs() < 1e-12 && precision >= precision_min, "{row}");
        assert!((number("recall") - number("strong_found") / number("strong_pairs")).abs() < 1e-12, "{row}");
        assert!(number("recall") > 0.85 && number("strong_pairs") > 5.0, "{row}");
    }
    assert_eq!(json("forebay.repro-interference/1", arguments), found);
    // In so much noise there is no strong pair: nothing is scored, and no aim is met.
    let noisy = ["repro", "interference", "--seed", "1", "--draws", "1", "--noise", "2"];
    let rows = json("forebay.repro-interference/1", noisy.into_iter().chain(["--json"]));
    for row in rows["rows"].as_array().unwrap() {
        assert_eq!(row["strong_pairs"], 0, "{row}");
        assert!(row["recall"].is_null() && row["met"].is_null(), "{row}");
    }
    assert!(succeed(noisy).lines().all(|line| !line.trim_end().ends_with("yes")));
    for noise in ["0", "nan", "3"] {
        assert_eq!(fail(["repro", "interference", "--noise", noise]).0, 2);
    }
}
