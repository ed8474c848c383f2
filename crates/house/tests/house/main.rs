//! The tree keeps its own rules: arrows between rooms point down, pure rooms stay pure, documents name what exists.

mod purity;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Which rooms a room uses, and no others: ARCHITECTURE.md draws it. A new arrow is a word here and a line in `docs/decisions/`; rooms
/// come behind those that they use.
const ARROWS: [(&str, &[&str]); 23] = [
    ("units", &[]),
    ("devmodel", &["units"]),
    ("trace", &["units"]),
    ("locality", &["units"]),
    ("policy", &["units"]),
    ("workload", &["units", "devmodel", "trace", "locality"]),
    ("report", &["units"]),
    ("control", &["units", "locality", "workload"]),
    ("nbd", &["units"]),
    ("tls", &["units"]),
    ("ring", &[]),
    ("cache", &["units", "policy"]),
    ("origin", &["units", "devmodel", "nbd", "ring", "tls"]),
    ("appliance", &["units", "policy", "locality", "workload", "cache", "nbd", "origin", "ring", "tls"]),
    ("actuate", &["units", "nbd"]),
    ("replay", &["units", "trace", "workload", "origin"]),
    ("sim", &["units", "devmodel", "locality", "policy", "workload", "control", "cache"]),
    (
        "serve",
        &[
            "units",
            "devmodel",
            "policy",
            "locality",
            "workload",
            "control",
            "cache",
            "nbd",
            "tls",
            "origin",
            "appliance",
            "actuate",
        ],
    ),
    (
        "cli",
        &[
            "units",
            "devmodel",
            "trace",
            "policy",
            "locality",
            "workload",
            "control",
            "cache",
            "nbd",
            "origin",
            "appliance",
            "actuate",
            "replay",
            "report",
            "serve",
            "sim",
            "tls",
        ],
    ),
    ("linear", &[]),
    ("prerequisite", &[]),
    ("simtest", &["units", "nbd", "trace", "cache", "origin", "serve"]),
    ("house", &[]),
];

/// Rooms that do no I/O, read no clock and spawn nothing.
const PURE: [&str; 11] = [
    "units", "devmodel", "trace", "locality", "policy", "workload", "report", "control", "nbd", "cache",
    "sim",
];

/// Parts of other rooms of which the same is true: state machines whose drivers do that.
const PURE_PARTS: [&str; 2] = ["appliance/src/volume/mod.rs", "appliance/src/service/mod.rs"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace exists")
}

fn files(under: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(under) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            if name != "target" && name != ".git" {
                files(&path, extension, found);
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn arrows_between_rooms_point_down() {
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.into_iter().collect();
    let mut rooms = BTreeSet::new();
    for entry in fs::read_dir(root().join("crates")).expect("crates exist").flatten() {
        let room = entry.file_name().into_string().expect("room names are ASCII");
        let manifest: toml::Table =
            read(&entry.path().join("Cargo.toml")).parse().expect("a manifest is TOML");
        let permitted =
            allowed.get(room.as_str()).unwrap_or_else(|| panic!("room `{room}` is not in ARROWS"));
        // Tests may look sideways (a curve over a real trace), never the shipped code.
        let shipped = ["dependencies", "build-dependencies"].map(|table| manifest.get(table)?.as_table());
        let found: BTreeSet<&str> = shipped
            .iter()
            .flatten()
            .flat_map(|table| table.keys())
            .filter_map(|name| name.strip_prefix("forebay-"))
            .collect();
        let listed: BTreeSet<&str> = permitted.iter().copied().collect();
        assert_eq!(found, listed, "what `{room}` depends on is not what ARROWS and ARCHITECTURE.md say");
        let place = |of: &str| ARROWS.iter().position(|(room, _)| *room == of);
        assert!(
            found.iter().all(|below| place(below) < place(&room)),
            "an arrow of `{room}` points up: {found:?}"
        );
        rooms.insert(room);
    }
    assert_eq!(rooms.len(), ARROWS.len(), "ARROWS lists rooms that do not exist: found {rooms:?}");
}

#[test]
fn pure_rooms_do_no_io_and_read_no_clock() {
    let crates = root().join("crates");
    let rooms = PURE.map(|room| crates.join(room).join("src/lib.rs"));
    let parts = PURE_PARTS.map(|part| crates.join(part));
    let found: Vec<String> = rooms.iter().chain(&parts).flat_map(|top| purity::impurities(top)).collect();
    assert_eq!(found, [""; 0], "what does no I/O names it");
}

/// Paths in backticks in the documents, such as `crates/units` or `docs/glossary.md`, exist.
#[test]
fn documents_name_paths_that_exist() {
    let root = root();
    let mut documents = Vec::new();
    files(&root, "md", &mut documents);
    let mut checked = 0;
    for document in documents {
        for quoted in read(&document).split('`').skip(1).step_by(2) {
            let is_path = ["crates/", "docs/", "scripts/", "examples/", "scenarios/", ".ci/"]
                .iter()
                .any(|prefix| quoted.starts_with(prefix));
            if !is_path || quoted.contains(['<', '*', ' ', '{', '\n']) {
                continue;
            }
            let path = quoted.split(['#', ':']).next().unwrap_or(quoted);
            assert!(root.join(path).exists(), "{}: `{quoted}` does not exist", document.display());
            checked += 1;
        }
    }
    assert!(checked > 10, "only {checked} paths were found in the documents: is the check still looking?");
}

/// Links between documents lead somewhere.
#[test]
fn documents_link_to_files_that_exist() {
    let mut documents = Vec::new();
    files(&root(), "md", &mut documents);
    for document in documents {
        for link in read(&document).split("](").skip(1) {
            let target = link.split(')').next().unwrap_or_default();
            let path = target.split('#').next().unwrap_or_default();
            if path.is_empty() || target.contains("://") || target.contains(' ') {
                continue;
            }
            let from = document.parent().expect("a file has a folder");
            assert!(from.join(path).exists(), "{}: link to `{target}` leads nowhere", document.display());
        }
    }
}

/// Each thing that always holds names tests that there are.
#[test]
fn every_invariant_names_tests_that_exist() {
    let architecture = read(&root().join("ARCHITECTURE.md"));
    let section = architecture.split("\n## ").find(|section| section.starts_with("What always holds"));
    let section = section.expect("ARCHITECTURE.md says what always holds");
    let numbered =
        section.lines().filter(|line| line.split_once(". ").is_some_and(|(n, _)| n.parse::<u32>().is_ok()));
    let mut tests = BTreeMap::new();
    for row in section.lines().filter(|line| line.starts_with("| ") && line.contains("`crates/")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let &[number, file, names] = &cells[..] else { panic!("three cells are expected: {row}") };
        let source = read(&root().join(file.trim_matches('`')));
        for name in names.split(", ").map(|name| name.trim_matches('`')) {
            let before = source.split(&format!("fn {name}(")).next().filter(|before| *before != source);
            let before = before.unwrap_or_else(|| panic!("{file} has no `{name}`"));
            let attributes = before.rsplit("\n\n").next().unwrap_or_default();
            assert!(attributes.contains("#[test]"), "`{name}` in {file} is no test");
            *tests.entry(number.to_owned()).or_insert(0) += 1;
        }
    }
    let count = numbered.count();
    assert_eq!(count, 9, "what always holds is numbered from 1 to 9");
    let numbers: Vec<String> = (1..=count).map(|number| number.to_string()).collect();
    assert_eq!(tests.keys().cloned().collect::<Vec<_>>(), numbers, "each has tests: {tests:?}");
}

/// The files that may allow themselves what the workspace denies, and how often.
const UNSAFE: [(&str, usize); 2] = [("crates/ring/src/ring.rs", 1), ("crates/units/src/prefetch.rs", 1)];

#[test]
fn only_two_places_are_unsafe() {
    let mut sources = Vec::new();
    files(&root().join("crates"), "rs", &mut sources);
    let mut found = Vec::new();
    for source in sources {
        let is_unsafe = |line: &str| {
            let code = line.split("//").next().unwrap_or_default();
            ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"].iter().any(|word| code.contains(word))
        };
        let allowed = read(&source).lines().filter(|line| is_unsafe(line)).count();
        if allowed > 0 && !source.ends_with("crates/house/tests/house/main.rs") {
            let path = source.strip_prefix(root()).expect("it was found there").display().to_string();
            found.push((path, allowed));
        }
    }
    found.sort();
    assert_eq!(found, UNSAFE.map(|(path, count)| (path.to_owned(), count)));
}

#[test]
fn every_room_says_what_it_is() {
    let architecture = read(&root().join("ARCHITECTURE.md"));
    for (room, _) in ARROWS {
        assert!(
            architecture.contains(&format!("`crates/{room}`")),
            "ARCHITECTURE.md does not place `crates/{room}`"
        );
    }
}

/// New seeds are for all properties that there are.
#[test]
fn whoever_has_properties_is_soaked() {
    let mut having = BTreeSet::new();
    for (room, _) in ARROWS.into_iter().filter(|(room, _)| *room != "house") {
        let mut sources = Vec::new();
        files(&root().join("crates").join(room).join("tests"), "rs", &mut sources);
        if sources.iter().any(|source| read(source).contains("proptest! {")) {
            having.insert(room);
        }
    }
    let soak = read(&root().join("scripts/soak"));
    let named = soak.split("with_properties=(").nth(1).and_then(|rest| rest.split(')').next());
    let named: BTreeSet<&str> = named.expect("scripts/soak names them").split_whitespace().collect();
    assert_eq!(named, having, "`with_properties` of scripts/soak");
}

/// What a hunk of a patch expects to find, and where: lines with a blank or a minus in front, up to the next hunk or file.
fn expected(patch: &str) -> Vec<(String, String)> {
    let (mut file, mut hunks) = (String::new(), Vec::new());
    for line in patch.lines() {
        if let Some(path) = line.strip_prefix("--- a/") {
            path.clone_into(&mut file);
        } else if line.starts_with("@@ ") {
            hunks.push((file.clone(), String::new()));
        } else if let Some((_, found)) = hunks.last_mut()
            && let Some(text) = line.strip_prefix(' ').or(line.strip_prefix('-'))
            && !line.starts_with("--- ")
        {
            *found += text;
            found.push('\n');
        }
    }
    hunks
}

/// `scripts/mutants` takes an hour, and nobody finds out in less that a patch of it was left behind.
#[test]
fn planted_bugs_can_be_planted() {
    let mut patches = Vec::new();
    files(&root().join("mutants"), "patch", &mut patches);
    assert!(patches.len() > 20, "{}", patches.len());
    for patch in patches {
        let hunks = expected(&read(&patch));
        assert!(!hunks.is_empty(), "{} changes nothing", patch.display());
        for (file, found) in hunks {
            let has = read(&root().join(&file)).contains(&found);
            assert!(has, "{} does not apply to {file}; make it anew", patch.display());
        }
    }
}
