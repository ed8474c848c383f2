//! Where each key of a configuration's text stands.

use crate::config::Finding;
use forebay_actuate::secrets;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// Keys that hold secrets, in whatever table they stand.
const SECRETS: [&str; 3] = ["secret", "token", "watch_token"];

/// All keys of a text.
pub(super) struct Places(Vec<Place>);

struct Place {
    /// As in `host[0].memory`.
    path: String,
    /// Bytes of its name; empty for an entry of an array.
    name: Range<usize>,
    /// Bytes of its value; of a table with a header those of the header.
    value: Range<usize>,
}

impl Places {
    /// The keys of `root`, and what is wrong with the secrets among them.
    ///
    /// That must be asked before anybody else reads it: whoever finds a number in the place of a text shows it.
    pub(super) fn of(root: &DeTable<'_>) -> (Places, Vec<Finding>) {
        let (mut places, mut findings) = (Vec::new(), Vec::new());
        add_table("", root, &mut places, &mut findings);
        (Places(places), findings)
    }

    /// Where `key` stands, or the nearest table around it; `None` where none of it is there.
    pub(super) fn of_key(&self, mut key: &str) -> Option<usize> {
        loop {
            if let Some(place) = self.0.iter().find(|place| place.path == key) {
                return Some(place.value.start);
            }
            key = &key[..key.rfind(['.', '['])?];
        }
    }

    /// Which key stands at this byte: the innermost one.
    pub(super) fn key_at(&self, at: usize) -> Option<&str> {
        let here = |place: &&Place| place.name.contains(&at) || place.value.contains(&at);
        self.0.iter().rfind(here).map(|place| place.path.as_str())
    }
}

fn add_table(path: &str, table: &DeTable<'_>, places: &mut Vec<Place>, findings: &mut Vec<Finding>) {
    for (key, value) in table {
        let name = key.get_ref();
        let path = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
        if SECRETS.contains(&name.as_ref())
            && let Err(error) = secrets::deserialize(ValueDeserializer::from(value.clone()))
        {
            findings.push(Finding::new(&path, error.message()));
        }
        add(path, key.span(), value, places, findings);
    }
}

/// What contains others comes before them.
fn add(
    path: String,
    name: Range<usize>,
    value: &Spanned<DeValue<'_>>,
    places: &mut Vec<Place>,
    findings: &mut Vec<Finding>,
) {
    places.push(Place { path: path.clone(), name, value: value.span() });
    match value.get_ref() {
        DeValue::Table(table) => add_table(&path, table, places, findings),
        DeValue::Array(array) => {
            for (at, value) in array.iter().enumerate() {
                add(format!("{path}[{at}]"), 0..0, value, places, findings);
            }
        }
        _ => {}
    }
}
