//! Reads tables of the file key by key, notes where each key stands, and collects what is wrong.

use super::keys::keys_of;
use super::problem::Finding;
use forebay_actuate::secrets;
use forebay_units::{Bytes, Nanos, Secret};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// Where keys stand and what is wrong with them.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Bytes of the file, by the key's path.
    pub(super) spans: RefCell<BTreeMap<String, Range<usize>>>,
    pub(super) findings: RefCell<Vec<Finding>>,
}

impl Notes {
    pub(super) fn note(&self, path: &str, span: Range<usize>) {
        self.spans.borrow_mut().insert(path.to_owned(), span);
    }

    pub(super) fn add(&self, finding: Finding) {
        self.findings.borrow_mut().push(finding);
    }
}

/// One table of the file.
pub(super) struct Table<'a> {
    notes: &'a Notes,
    /// The kind, as in `KEYS`.
    kind: &'static str,
    pub(super) path: String,
    table: &'a DeTable<'a>,
}

impl<'a> Table<'a> {
    /// A table of this kind; keys that the kind does not have are noted.
    pub(super) fn new(
        notes: &'a Notes,
        kind: &'static str,
        path: String,
        table: &'a DeTable<'a>,
    ) -> Table<'a> {
        for (key, _) in table {
            let name: &str = key.get_ref();
            if keys_of(kind).all(|known| known.name != name) {
                let path = join(&path, name);
                notes.note(&path, key.span());
                let mut finding = Finding::new(path, format!("unknown key `{name}`"));
                let nearest = keys_of(kind).map(|known| known.name).min_by_key(|known| distance(name, known));
                finding = match nearest.filter(|known| distance(name, known) <= 1 + known.len() / 4) {
                    Some(known) => finding.hint(format!("did you mean `{known}`?")),
                    None => {
                        let names: Vec<String> =
                            keys_of(kind).map(|known| format!("`{}`", known.name)).collect();
                        finding.hint(format!("expected one of {}", names.join(", ")))
                    }
                };
                notes.add(finding);
            }
        }
        Table { notes, kind, path, table }
    }

    /// The path of one of its keys.
    pub(super) fn path_of(&self, key: &str) -> String {
        join(&self.path, key)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Notes what is wrong with one of its keys.
    pub(super) fn wrong(&self, key: &str, message: impl Into<String>) {
        self.notes.add(Finding::new(self.path_of(key), message));
    }

    fn get(&self, key: &'static str) -> Option<&'a DeValue<'a>> {
        debug_assert!(
            keys_of(self.kind).any(|known| known.name == key),
            "`{}` has no key `{key}`",
            self.kind
        );
        let (name, value) = self.table.get_key_value(key)?;
        // The key's own place: a value may span lines, or be a table elsewhere.
        self.notes.note(&self.path_of(key), name.span());
        Some(value.get_ref())
    }

    fn read<T>(
        &self,
        key: &'static str,
        expected: &str,
        read: impl FnOnce(&DeValue<'a>) -> Option<Result<T, String>>,
    ) -> Option<T> {
        let value = self.get(key)?;
        match read(value) {
            Some(Ok(value)) => return Some(value),
            Some(Err(message)) => self.wrong(key, message),
            None => self.wrong(key, format!("{} is no value here: expected {expected}", found(value))),
        }
        None
    }

    pub(super) fn text(&self, key: &'static str) -> Option<String> {
        self.read(key, "a text in quotes", |value| value.as_str().map(|text| Ok(text.to_owned())))
    }

    /// A secret. What stands in its place is not repeated.
    pub(super) fn secret(&self, key: &'static str) -> Option<Secret> {
        let read = |value: &DeValue<'a>| {
            secrets::deserialize(ValueDeserializer::from(Spanned::new(0..0, value.clone())))
        };
        self.read(key, "a secret", |value| Some(read(value).map_err(|error| error.message().to_owned())))
    }

    pub(super) fn boolean(&self, key: &'static str) -> Option<bool> {
        self.read(key, "`true` or `false`", |value| value.as_bool().map(Ok))
    }

    /// A text that says a quantity.
    pub(super) fn parsed<T: FromStr<Err: Display>>(&self, key: &'static str, expected: &str) -> Option<T> {
        self.read(key, expected, |value| {
            value.as_str().map(|text| text.parse().map_err(|error: T::Err| error.to_string()))
        })
    }

    pub(super) fn bytes(&self, key: &'static str, least: Bytes, most: Bytes) -> Option<Bytes> {
        let bytes = self.parsed(key, "a size in quotes, with a unit, as in \"64MiB\"")?;
        self.within(key, bytes, least, most)
    }

    /// A size; a number is of bytes.
    fn bytes_or_number(&self, key: &'static str) -> Option<Bytes> {
        let is_number = self.table.get(key).is_some_and(|value| value.get_ref().as_integer().is_some());
        if is_number {
            return self.count(key, 0, i64::MAX as u64).map(Bytes);
        }
        self.bytes(key, Bytes::ZERO, Bytes(i64::MAX as u64))
    }

    pub(super) fn span(&self, key: &'static str, least: Nanos, most: Nanos) -> Option<Nanos> {
        let span = self.parsed(key, "a span of time in quotes, with a unit, as in \"5ms\"")?;
        self.within(key, span, least, most)
    }

    fn within<T: PartialOrd + Display>(&self, key: &'static str, value: T, least: T, most: T) -> Option<T> {
        if value < least || value > most {
            self.wrong(key, format!("{value} is out of range: expected {least} to {most}"));
            return None;
        }
        Some(value)
    }

    /// A number above `above` (or equal where `closed`) and at most `most`.
    pub(super) fn number(&self, key: &'static str, above: f64, closed: bool, most: f64) -> Option<f64> {
        let number = self.read(key, "a number", |value| number_of(value).map(Ok))?;
        let good = number <= most && if closed { number >= above } else { number > above };
        if !good {
            let least = if closed { "at least" } else { "above" };
            self.wrong(key, format!("{number} is out of range: expected {least} {above}, at most {most}"));
            return None;
        }
        Some(number)
    }

    pub(super) fn count(&self, key: &'static str, least: u64, most: u64) -> Option<u64> {
        let number = self.read(key, "a whole number", |value| {
            let integer = value.as_integer()?;
            let text = integer.as_str().replace('_', "");
            Some(i128::from_str_radix(&text, integer.radix()).map_err(|error| error.to_string()))
        })?;
        match u64::try_from(number) {
            Ok(count) if (least..=most).contains(&count) => Some(count),
            _ => {
                // The most that a file can hold is no bound of the key's.
                let most =
                    if most == i64::MAX as u64 { " or more".to_owned() } else { format!(" to {most}") };
                self.wrong(key, format!("{number} is out of range: expected {least}{most}"));
                None
            }
        }
    }

    /// One of some words.
    pub(super) fn word<T: Copy>(&self, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(key)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let words: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
            self.wrong(key, format!("`{text}` is no value here: expected {}", words.join(" or ")));
        }
        found
    }

    /// A table under a key.
    pub(super) fn table(&self, key: &'static str, kind: &'static str) -> Option<Table<'a>> {
        let value = self.get(key)?;
        let Some(table) = value.as_table() else {
            self.wrong(key, format!("{} is no value here: expected a table", found(value)));
            return None;
        };
        Some(Table::new(self.notes, kind, self.path_of(key), table))
    }

    /// The tables of an array under a key, or the one table that stands in its place; `kind` is told each.
    pub(super) fn tables(
        &self,
        key: &'static str,
        mut kind: impl FnMut(&DeTable<'a>) -> Result<&'static str, String>,
    ) -> Vec<Table<'a>> {
        let mut tables = Vec::new();
        let mut take = |path: String, table: &'a DeTable<'a>| match kind(table) {
            Ok(kind) => tables.push(Table::new(self.notes, kind, path, table)),
            Err(message) => self.notes.add(Finding::new(path, message)),
        };
        match self.get(key) {
            None => {}
            Some(DeValue::Table(table)) => {
                let path = format!("{}[0]", self.path_of(key));
                self.note_table(&path, table);
                take(path, table);
            }
            Some(DeValue::Array(array)) => {
                for (at, value) in array.iter().enumerate() {
                    let path = format!("{}[{at}]", self.path_of(key));
                    self.notes.note(&path, value.span());
                    match value.get_ref().as_table() {
                        Some(table) => take(path, table),
                        None => {
                            let message =
                                format!("{} is no value here: expected a table", found(value.get_ref()));
                            self.notes.add(Finding::new(path, message));
                        }
                    }
                }
            }
            Some(value) => {
                self.wrong(key, format!("{} is no value here: expected an array of tables", found(value)));
            }
        }
        tables
    }

    fn note_table(&self, path: &str, table: &DeTable<'a>) {
        if let Some(first) = table.keys().map(|key| key.span()).min_by_key(|span| span.start) {
            self.notes.note(path, first);
        }
    }

    /// The texts and tables of an array under a key, or the one that stands in its place, each with its path.
    pub(super) fn texts_or_tables(
        &self,
        key: &'static str,
        kind: &'static str,
    ) -> Vec<(String, TextOr<Table<'a>>)> {
        let one = |path: String, value: &'a DeValue<'a>| match value {
            DeValue::String(text) => Some((path, TextOr::Text(text.to_string()))),
            DeValue::Table(table) => {
                Some((path.clone(), TextOr::Table(Table::new(self.notes, kind, path, table))))
            }
            value => {
                let message =
                    format!("{} is no value here: expected a text in quotes or a table", found(value));
                self.notes.add(Finding::new(path, message));
                None
            }
        };
        match self.get(key) {
            None => Vec::new(),
            Some(DeValue::Array(array)) => array
                .iter()
                .enumerate()
                .filter_map(|(at, value)| {
                    let path = format!("{}[{at}]", self.path_of(key));
                    self.notes.note(&path, value.span());
                    one(path, value.get_ref())
                })
                .collect(),
            Some(value) => one(self.path_of(key), value).into_iter().collect(),
        }
    }

    /// The texts of an array under a key, or the one that stands in its place.
    pub(super) fn texts(&self, key: &'static str) -> Vec<String> {
        let text = |value: &DeValue<'_>| value.as_str().map(ToOwned::to_owned);
        let read = |value: &DeValue<'_>| match value {
            DeValue::Array(array) => array.iter().map(|value| text(value.get_ref())).collect(),
            value => text(value).map(|text| vec![text]),
        };
        self.read(key, "a text in quotes, or an array of them", |value| read(value).map(Ok))
            .unwrap_or_default()
    }

    /// A text or a table under a key.
    pub(super) fn text_or_table(&self, key: &'static str) -> Option<TextOr<&'a DeTable<'a>>> {
        match self.get(key)? {
            DeValue::String(text) => Some(TextOr::Text(text.to_string())),
            DeValue::Table(table) => Some(TextOr::Table(table)),
            value => {
                self.wrong(key, format!("{} is no value here: expected a path or a table", found(value)));
                None
            }
        }
    }

    pub(super) fn inner(&self, key: &str, kind: &'static str, table: &'a DeTable<'a>) -> Table<'a> {
        Table::new(self.notes, kind, self.path_of(key), table)
    }

    /// The value under a key as plain data of the same type as `like`; whole numbers do for numbers, and a size of the key's `is_size` in bytes.
    pub(super) fn like(&self, key: &'static str, is_size: bool, like: &toml::Value) -> Option<toml::Value> {
        match like {
            toml::Value::Integer(_) if is_size => {
                self.bytes_or_number(key).map(|bytes| toml::Value::Integer(bytes.0 as i64))
            }
            toml::Value::Float(_) => self
                .read(key, "a number", |value| number_of(value).map(|number| Ok(toml::Value::Float(number)))),
            toml::Value::Integer(_) => {
                self.count(key, 0, i64::MAX as u64).map(|count| toml::Value::Integer(count as i64))
            }
            toml::Value::Boolean(_) => self.boolean(key).map(toml::Value::Boolean),
            _ => self.text(key).map(toml::Value::String),
        }
    }
}

/// What stands where both are allowed.
pub(super) enum TextOr<T> {
    Text(String),
    Table(T),
}

fn number_of(value: &DeValue<'_>) -> Option<f64> {
    let text = match value {
        DeValue::Float(float) => float.as_str(),
        DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str(),
        _ => return None,
    };
    text.replace('_', "").parse().ok()
}

fn found(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("the text `{text}`"),
        DeValue::Integer(integer) => format!("the number {}", integer.as_str()),
        DeValue::Float(float) => format!("the number {}", float.as_str()),
        DeValue::Boolean(boolean) => format!("`{boolean}`"),
        DeValue::Datetime(time) => format!("the time {time}"),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The edit distance (Levenshtein), for "did you mean".
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let insert_or_delete = row[j].min(row[j + 1]) + 1;
            let replace = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = insert_or_delete.min(replace);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_by_hand() {
        // sise -> size: one replacement; kitten -> sitting: two replacements, one insertion.
        assert_eq!([distance("sise", "size"), distance("kitten", "sitting"), distance("", "ab")], [1, 3, 2]);
    }
}
