//! From the text of the file to a fleet's configuration, or to all that is wrong with it.

use super::checking;
use super::config::FleetConfig;
use super::places::Places;
use crate::config::{ConfigError, Finding, Problem, spoken};
use serde::Deserialize;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue};

/// What a file must say, and what stands for it where it does not, so that the rest is read.
const REQUIRED: [&str; 2] = ["socket", "state"];

/// So many mistakes are looked for, each of which takes reading all of it again (ours).
const READ_AGAIN_MAX: usize = 64;

/// And so many are told in all, or a few more.
const TOLD_MAX: usize = 128;
const MORE: &str = "there may be more that is wrong than is told here";

/// Reads and checks `text`, which came from `file`; paths in it are relative to `folder`.
pub(super) fn parse(file: &str, text: &str, folder: &Path) -> Result<FleetConfig, ConfigError> {
    let line_of = |at: usize| text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
    let refused = |mut problems: Vec<Problem>| {
        problems.sort_by_key(|problem| problem.line);
        problems.dedup();
        Err(ConfigError { file: file.to_owned(), problems })
    };
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let problem = |error: &toml::de::Error| Problem {
            line: error.span().map(|span| line_of(span.start)),
            key: String::new(),
            // The text itself is not shown: it may hold a secret.
            message: error.message().replace('\n', ", "),
            hint: None,
        };
        return refused(errors.iter().map(problem).collect());
    }
    let (places, findings) = Places::of(table.get_ref());
    let mut reading = Reading { table, places, wrong: Vec::new() };
    for Finding { key, message, .. } in findings {
        let at = reading.places.of_key(&key);
        reading.note(at, key, message);
        at.map(|at| reading.leave_out(at));
    }
    let mut config = reading.read();
    if let Some(config) = &mut config {
        config.place(folder);
        reading.check(config);
    }
    match (config, reading.wrong.is_empty()) {
        (Some(config), true) => Ok(config),
        _ => refused(
            (reading.wrong.into_iter())
                .map(|Wrong { at, key, message }| Problem { line: at.map(line_of), key, message, hint: None })
                .collect(),
        ),
    }
}

/// A file that is read as far as it can be.
struct Reading<'a> {
    /// What is left of it: what could not be read is taken out.
    table: Spanned<DeTable<'a>>,
    places: Places,
    wrong: Vec<Wrong>,
}

struct Wrong {
    /// Which byte.
    at: Option<usize>,
    key: String,
    message: String,
}

impl Reading<'_> {
    fn note(&mut self, at: Option<usize>, key: String, message: String) {
        self.wrong.push(Wrong { at, key, message });
    }

    /// What is left once everything is taken out that cannot be read, which is noted; `None` if nothing can be made of it.
    fn read(&mut self) -> Option<FleetConfig> {
        for _ in 0..READ_AGAIN_MAX {
            let error = match FleetConfig::deserialize(toml::Deserializer::from(self.table.clone())) {
                Ok(config) => return Some(config),
                Err(error) => error,
            };
            let message = error.message().replace('\n', ", ");
            // That of the whole file is empty, and at its beginning, where a key may stand.
            let at = error.span().filter(|span| !span.is_empty()).map(|span| span.start);
            let key = at.and_then(|at| self.places.key_at(at)).unwrap_or_default().to_owned();
            let missing = message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
            // It was there, and is noted already.
            let is_taken_out = missing.is_some_and(|name| {
                let path = if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
                self.wrong.iter().any(|wrong| wrong.key == path)
            });
            let stand_in = REQUIRED.into_iter().find(|name| key.is_empty() && missing == Some(name));
            match stand_in {
                Some(name) if !is_taken_out => self.note(None, name.to_owned(), message),
                None if !is_taken_out => self.note(at, key.clone(), spoken(&message)),
                _ => {}
            }
            let goes_on = match (stand_in, at) {
                (Some(name), _) => self.stand_in(name),
                (None, Some(at)) if !key.is_empty() => self.leave_out(at),
                _ => false,
            };
            if !goes_on {
                return None;
            }
        }
        self.note(None, String::new(), MORE.to_owned());
        None
    }

    fn stand_in(&mut self, name: &'static str) -> bool {
        let value = DeValue::String(DeString::from(name));
        let key = Spanned::new(0..0, DeString::from(name));
        self.table.get_mut().insert(key, Spanned::new(0..0, value)).is_none()
    }

    /// Takes out the innermost key or entry that stands at this byte; whether there is one.
    fn leave_out(&mut self, at: usize) -> bool {
        leave_out_of_table(self.table.get_mut(), at)
    }

    /// Notes what cannot be so in `config`, unless that comes of what was taken out.
    fn check(&mut self, config: &FleetConfig) {
        // Where nothing was taken out, all have the numbers that they had.
        let tables = ["host", "volume", "objective"].into_iter().filter(|_| !self.wrong.is_empty());
        let counted: Vec<(&str, Vec<usize>)> = tables.map(|name| (name, self.numbers_of(name))).collect();
        let noted: Vec<String> = self.wrong.iter().map(|wrong| wrong.key.clone()).collect();
        for Finding { key, message, .. } in checking::findings(config) {
            // Tables that were taken out had numbers, too.
            let key =
                counted.iter().find_map(|(name, numbers)| renumbered(&key, name, numbers)).unwrap_or(key);
            let comes_of = |wrong: &String| {
                let of = |table: &str, part: &str| key.starts_with(table) && wrong.contains(part);
                is_within(wrong, &key)
                    || is_within(&key, wrong)
                    || of("volume[", "host[") && (key.ends_with(".home") || key.ends_with(".route"))
                    || of("objective[", "volume[") && key.ends_with("].volume")
                    || of("objective[", ".prometheus")
                    || of("volume[", ".prometheus") && key.ends_with("].watch")
                    || (key == "socket" || key == "history") && wrong == "state"
            };
            if !noted.iter().any(comes_of) {
                if self.wrong.len() >= TOLD_MAX {
                    return self.note(None, String::new(), MORE.to_owned());
                }
                let at = self.places.of_key(&key);
                self.note(at, key, message);
            }
        }
    }

    /// The numbers in the file of those tables of this name that are left.
    fn numbers_of(&self, name: &str) -> Vec<usize> {
        let Some(DeValue::Array(array)) = self.table.get_ref().get(name).map(Spanned::get_ref) else {
            return Vec::new();
        };
        let number = |entry: &Spanned<DeValue<'_>>| {
            let key = self.places.key_at(entry.span().start)?;
            key.strip_prefix(name)?.strip_prefix('[')?.split(']').next()?.parse().ok()
        };
        array.iter().enumerate().map(|(at, entry)| number(entry).unwrap_or(at)).collect()
    }
}

/// Whether `key` is `table`, or in it.
fn is_within(key: &str, table: &str) -> bool {
    key.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// `key` of a table of this name, by the number that it has in the file; `None` if it is of another.
fn renumbered(key: &str, name: &str, numbers: &[usize]) -> Option<String> {
    let (number, rest) = key.strip_prefix(name)?.strip_prefix('[')?.split_once(']')?;
    let number = numbers.get(number.parse::<usize>().ok()?)?;
    Some(format!("{name}[{number}]{rest}"))
}

fn leave_out_of_table(table: &mut DeTable<'_>, at: usize) -> bool {
    let inner = table.iter_mut().any(|(_, value)| leave_out_of(value.get_mut(), at));
    if inner {
        return true;
    }
    let is_here = |key: &Range<usize>, value: &Range<usize>| key.contains(&at) || value.contains(&at);
    let found = table.iter().find(|(key, value)| is_here(&key.span(), &value.span()));
    let Some(name) = found.map(|(key, _)| key.get_ref().to_string()) else { return false };
    table.remove(name.as_str()).is_some()
}

fn leave_out_of(value: &mut DeValue<'_>, at: usize) -> bool {
    match value {
        DeValue::Table(table) => leave_out_of_table(table, at),
        DeValue::Array(array) => leave_out_of_array(array, at),
        _ => false,
    }
}

fn leave_out_of_array(array: &mut DeArray<'_>, at: usize) -> bool {
    if array.iter_mut().any(|entry| leave_out_of(entry.get_mut(), at)) {
        return true;
    }
    let Some(found) = array.iter().position(|entry| entry.span().contains(&at)) else { return false };
    let entries = array.iter().enumerate().filter(|(entry, _)| *entry != found);
    *array = entries.map(|(_, entry)| entry.clone()).collect();
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::{prop_assert, proptest};

    fn told(text: &str) -> Vec<String> {
        let error = parse("c.toml", text, Path::new("/etc")).unwrap_err();
        let told =
            |problem: &Problem| format!("{} {}: {}", problem.line.unwrap_or(0), problem.key, problem.message);
        error.problems.iter().map(told).collect()
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once_and_nothing_that_comes_of_it() {
        let text = r#"
interval = "often"
state = "state"
colour = "blue"
[control.feedback]
gain = 0
[[host]]
memory = "1GiB"
[[host]]
name = "h2"
memory = "much"
cpus = -1
[[host]]
name = "h3"
memory = "0B"
[[volume]]
name = "db"
home = "h2"
origin = "nbd://10.0.0.1/db"
watch = "10.0.0.1:80"
secret = 1234567890123456
rote = 1
block_size = 7
route = { type = "proxy", servr = "unix:p.sock" }
[[volume]]
name = "web@1"
home = "h3"
origin = "nbd://10.0.0.1/web"
block_size = "7KiB"
[[objective]]
volume = "db"
iops = -1
[[objective]]
volume = "db"
latency = 5
[[objective]]
volume = "db"
latency = "0s"
weight = 0
"#;
        let expected = [
            "0 socket: missing field `socket`",
            "2 interval: `often` is not a span of time",
            "4 colour: unknown field `colour`",
            "6 control.feedback.gain: 0, expected",
            "7 host[0]: missing field `name`",
            "11 host[1].memory: `much` is not",
            "15 host[2].memory: 0B on `h3`, expected a size above 0",
            "21 volume[0].secret: a number is no secret",
            "22 volume[0].rote: unknown field `rote`",
            "23 volume[0].block_size: `7`, expected a text in quotes",
            "24 volume[0].route: unknown field `servr`",
            "26 volume[1].name: `web@1`, expected a name without `@`",
            "25 volume[1].watch: absent, as is `prometheus`, expected one of them",
            "29 volume[1].block_size: 7KiB, expected a power of two",
            "32 objective[0].iops: -1, expected a number above 0",
            "35 objective[1].latency: `5`, expected a text in quotes",
            "38 objective[2].latency: 0s, expected a span above 0",
        ];
        let told = told(text);
        for expected in expected {
            assert!(told.iter().any(|told| told.starts_with(expected)), "{expected}: {told:#?}");
        }
        assert_eq!(told.len(), expected.len(), "{told:#?}");
        assert!(!told.concat().contains("234567"), "{told:#?}");
    }

    #[test]
    fn several_places_that_are_no_toml_are_told_together() {
        assert_eq!(told("socket = \nstate = \"s\"\ninterval = often\n").len(), 2);
    }
    const GOOD: &str = r#"
socket = "control.sock"
state = "state"
interval = "1s"
control.feedback.gain = 0.5
response = { tries_max = 2 }
[[host]]
name = "h1"
rack = 1
memory = "128MiB"
[[host]]
name = "h2"
memory = "128MiB"
provider = { type = "namespace", namespace = "n", address = "10.0.0.2", interface = "i" }
[[volume]]
name = "db"
home = "h1"
origin = "nbd://10.0.0.1/db"
watch = "10.0.0.1:80"
secret = "0123456789abcdef"
route = { type = "address", address = "10.0.0.9/24", interface = "eth0" }
[[volume]]
name = "web"
home = "h2"
origin = "nbd://10.0.0.1/web"
[volume.prometheus]
url = "http://127.0.0.1:9090"
reads = "r"
read_seconds = "s"
read_buckets = "b"
[[objective]]
volume = "db"
latency = "5ms"
[[objective]]
volume = "web"
latency = "5ms"
statistic = "p95"
"#;

    /// The same by one go of serde, which knows of one mistake at most.
    fn in_one_go(text: &str) -> bool {
        let Ok(table) = DeTable::parse(text) else { return false };
        let (_, secrets) = Places::of(table.get_ref());
        let Ok(mut config) = FleetConfig::deserialize(toml::Deserializer::from(table)) else { return false };
        config.place(Path::new("/etc"));
        secrets.is_empty() && config.check().is_ok()
    }

    #[test]
    fn of_thousands_of_mistakes_the_first_are_told() {
        let volume = "[[volume]]\nname = \"v\"\nhome = 1\n";
        let told = told(&format!("socket = \"s\"\nstate = \"s\"\n{}", volume.repeat(10_000)));
        assert!(told.len() <= READ_AGAIN_MAX + 1, "{}", told.len());
        assert!(told[0].ends_with("there may be more that is wrong than is told here"), "{}", told[0]);
        assert!(told[1].starts_with("5 volume[0].home: `1`, expected a text in quotes"), "{}", told[1]);
        let volume = "[[volume]]\nname = \"v\"\nhome = \"h\"\norigin = \"nbd://10.0.0.1/db\"\n";
        let told = self::told(&format!("socket = \"s\"\nstate = \"s\"\n{}", volume.repeat(3_000)));
        assert_eq!((told.len(), told[0].ends_with(MORE)), (TOLD_MAX + 1, true));
    }

    #[test]
    fn what_only_comes_of_another_mistake_is_not_told() {
        let of = |from: &str, to: &str| {
            assert!(GOOD.contains(from), "{from}");
            told(&GOOD.replacen(from, to, 1))
        };
        for (from, to) in [
            ("url = \"http://127.0.0.1:9090\"", "url = 5"),
            ("url = \"http://127.0.0.1:9090\"", ""),
            ("state = \"state\"", "state = 5"),
            ("name = \"h1\"", "name = 5"),
            ("interval = \"1s\"", "interval = \"0s\""),
        ] {
            let told = of(from, to);
            assert_eq!(told.len(), 1, "{from}: {told:#?}");
        }
        // The folder of the state is made, with those around it.
        let in_state = "state = \"none/state\"\nhistory = \"none/state/h\"";
        let text = GOOD.replacen("state = \"state\"", in_state, 1).replacen(
            "\"control.sock\"",
            "\"none/c.sock\"",
            1,
        );
        assert!(parse("c.toml", &text, Path::new("/etc")).is_ok());
    }

    #[test]
    fn what_is_required_is_told_once_wherever_it_stands() {
        let text = format!("socket = 5\ninterval = \"1ms\"\n{}", &GOOD[GOOD.find("[[host]]").unwrap()..]);
        let expected = [
            "0 state: missing field `state`",
            "1 socket: `5`, expected a path in quotes",
            "2 interval: 1ms, expected 100ms to 1h",
        ];
        assert_eq!(told(&text), expected);
    }

    #[test]
    fn what_is_right_is_taken() {
        assert_eq!(parse("c.toml", GOOD, Path::new("/etc")).map(|config| config.volume.len()), Ok(2));
    }

    proptest! {
        /// What is mangled is refused exactly where one go of serde and the checks refuse it, each mistake in a line that there is.
        #[test]
        fn what_is_mangled_is_refused_where_it_is_wrong(
            changes in vec((0usize..36, 0usize..9), 0..5),
        ) {
            let mut lines: Vec<String> = GOOD.lines().skip(1).map(ToOwned::to_owned).collect();
            for (at, how) in changes {
                let line = &mut lines[at];
                let value = |value: &str| line.split_once('=').map(|(key, _)| format!("{key}= {value}"));
                let changed = match how {
                    0 => Some(String::new()),
                    1 => Some(format!("x{line}")),
                    2 => value("5"),
                    3 => value("\"\""),
                    4 => value("[]"),
                    5 => value("{ type = \"qmp\" }"),
                    6 => value("[{ name = 1 }, 2]"),
                    7 => Some(format!("{line}\nunknown = 1")),
                    _ => value("\"h2\""),
                };
                *line = changed.unwrap_or_default();
            }
            let text = lines.join("\n");
            match parse("c.toml", &text, Path::new("/etc")) {
                Ok(_) => prop_assert!(in_one_go(&text), "{text}"),
                Err(error) => {
                    prop_assert!(!in_one_go(&text), "{text}\n{error}");
                    let count = text.lines().count();
                    prop_assert!(!error.problems.is_empty());
                    prop_assert!(
                        error.problems.iter().all(|problem| problem.line.is_none_or(|line| line <= count)),
                        "{text}\n{error}"
                    );
                }
            }
        }
    }
}
