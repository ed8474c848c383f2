//! `forebay repro interference`: planted interference is drawn by the seed, and scored.

use crate::support::{fail, json};

#[test]
fn planted_interference_is_scored_and_a_seed_repeats_it() {
    let arguments = ["repro", "interference", "--seed", "905", "--draws", "1", "--noise", "0.1", "--json"];
    let found = json("forebay.repro-interference/1", arguments);
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4); // two tides, clients that wait and that do not
    for row in rows {
        let number = |key: &str| row[key].as_f64().unwrap();
        let precision = number("found_planted") / (number("found_planted") + number("found_not_planted"));
        assert!((number("precision") - precision).abs() < 1e-12 && precision >= 0.95, "{row}");
        assert!((number("recall") - number("strong_found") / number("strong_pairs")).abs() < 1e-12, "{row}");
        assert!(number("recall") > 0.9 && number("strong_pairs") > 5.0, "{row}");
    }
    assert_eq!(json("forebay.repro-interference/1", arguments), found);
    for noise in ["0", "nan", "3"] {
        assert_eq!(fail(["repro", "interference", "--noise", noise]).0, 2);
    }
}
