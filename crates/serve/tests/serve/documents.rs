//! The reference is made from the keys that are read, and the examples are good.

use forebay_control::ControlConfig;
use forebay_serve::config::{Config, KEYS, TABLES, keys_of};
use forebay_units::Bytes;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

const INTRODUCTION: &str = "\
# The configuration of `forebay serve`

One TOML file. `forebay serve --check FILE` says all that is wrong with it and with what it names, by line and key, and starts and writes nothing; `forebay serve FILE`
does the same before it starts. A place for snapshots that is only absent (a folder, a disk, an export) is a warning at both: the daemon serves without, tells so in its state, and tries again every `snapshots.every`. Unknown keys are errors. Paths are relative to the folder of the file.

Sizes are texts with a unit (`\"64MiB\"`, `\"10MB\"`, `\"4096\"`), spans of time too (`\"5ms\"`, `\"10s\"`, `\"2h\"`; the unit is required). Ratios are numbers
from 0 to 1.

[`examples/forebay.toml`](../../examples/forebay.toml) serves a file, [`examples/disk-group.toml`](../../examples/disk-group.toml) two
volumes on emulated disks that get in each other's way.

Listeners are local: beyond a unix socket or loopback NBD is served only with TLS that asks clients for certificates or with a `secret` for every volume,
and HTTP only with `http.token`. `forebay appliance` reads the same file ([what it is for](appliance.md)).

This page is made from the keys that the daemon reads; `FOREBAY_UPDATE=1 cargo test -p forebay-serve reference` writes it anew.
";

fn reference() -> String {
    let mut text = INTRODUCTION.to_owned();
    for (table, written, what) in TABLES {
        text.push_str(&format!(
            "\n## {}\n\n{what}\n\n",
            if table.is_empty() { (*written).to_owned() } else { format!("`{written}`") }
        ));
        text.push_str("| key | value | default | range | meaning |\n| --- | --- | --- | --- | --- |\n");
        for key in keys_of(table) {
            text.push_str(&format!(
                "| `{}` | {} | {} | {} | {} |\n",
                key.name, key.unit, key.default, key.range, key.meaning
            ));
        }
    }
    text
}

#[test]
fn the_reference_is_that_of_the_keys() {
    let path = root().join("docs/reference/configuration.md");
    if std::env::var_os("FOREBAY_UPDATE").is_some() {
        std::fs::write(&path, reference()).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == reference(),
        "docs/reference/configuration.md is not that of the keys: FOREBAY_UPDATE=1 writes it anew"
    );
}

#[test]
fn every_key_is_described_once_and_in_a_known_table() {
    let mut seen = BTreeSet::new();
    for key in KEYS {
        assert!(seen.insert((key.table, key.name)), "{key:?} is there twice");
        assert!(TABLES.iter().any(|table| table.0 == key.table), "{key:?} stands in no table");
        assert!(
            !key.unit.is_empty() && (key.name == "type" || !key.meaning.is_empty()),
            "{key:?} says nothing"
        );
    }
}

#[test]
fn the_controllers_parameters_are_the_keys_with_the_same_defaults() {
    let defaults = toml::Value::try_from(ControlConfig::default()).unwrap();
    let mut parameters = BTreeSet::new();
    for (name, value) in defaults.as_table().unwrap() {
        match value.as_table() {
            Some(inner) => parameters.extend(
                inner.iter().map(|(key, value)| (format!("control.{name}"), key.clone(), value.to_string())),
            ),
            None => drop(parameters.insert(("control".to_owned(), name.clone(), value.to_string()))),
        }
    }
    // A number, a size in quotes, or a word in quotes.
    let plain = |text: &str| {
        let text = text.trim_matches('`');
        let word = text.trim_matches('"');
        let size = (word != text).then(|| word.parse::<Bytes>().ok()).flatten();
        match text.parse::<f64>().ok().or(size.map(Bytes::as_f64)) {
            Some(number) => number.to_string(),
            None => text.to_owned(),
        }
    };
    let mut keys = BTreeSet::new();
    let mut wrong = Vec::new();
    for key in KEYS.iter().filter(|key| key.table.starts_with("control")) {
        let of_the_daemon = key.table == "control" && ["enabled", "interval"].contains(&key.name);
        if key.unit == "table" || of_the_daemon {
            continue;
        }
        let found = parameters.iter().find(|(table, name, _)| table == key.table && name == key.name);
        let (_, _, value) = found.unwrap_or_else(|| panic!("{key:?} is no parameter"));
        if plain(key.default) != plain(value) {
            wrong.push(format!("{}.{} is {value}", key.table, key.name));
        }
        keys.insert((key.table.to_owned(), key.name.to_owned(), value.clone()));
    }
    assert!(wrong.is_empty(), "defaults that `KEYS` has wrong: {wrong:#?}");
    assert_eq!(keys, parameters, "every parameter has a key");
}

#[test]
fn the_examples_are_good() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("db.img"), [0; 4096]).unwrap();
    for name in ["forebay.toml", "disk-group.toml"] {
        let text = std::fs::read_to_string(root().join("examples").join(name)).unwrap();
        if let Err(error) = Config::parse(name, &text, folder.path()) {
            panic!("{error}");
        }
    }
}
