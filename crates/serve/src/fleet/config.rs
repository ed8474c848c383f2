//! What a controller of a fleet is started with, from one TOML file or made in code.

use forebay_actuate::api::ApiAddress;
use forebay_control::response::ResponseRules;
use forebay_control::{ControlConfig, Objective, Operations, Statistic, Target};
use forebay_nbd::Uri;
use forebay_units::{BlockSize, Bytes, Nanos};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use thiserror::Error;

/// Everything that a controller of a fleet is started with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetConfig {
    /// The unix socket that answers `forebay status` and `forebay explain`, its owner's alone.
    pub socket: PathBuf,
    /// The folder of the journal, the past, and what providers keep; made if it is absent. On a local file system.
    pub state: PathBuf,
    /// How often decisions are made.
    #[serde(default = "ten_seconds", deserialize_with = "parsed")]
    pub interval: Nanos,
    /// The history's database; `None`: none is kept.
    #[serde(default)]
    pub history: Option<PathBuf>,
    /// The controller's parameters.
    #[serde(default)]
    pub control: ControlConfig,
    /// Times and counts of responses.
    #[serde(default)]
    pub response: ResponseRules,
    /// Hosts that can hold appliances.
    #[serde(default)]
    pub host: Vec<HostTable>,
    /// The volumes.
    #[serde(default)]
    pub volume: Vec<VolumeTable>,
    /// What was promised.
    #[serde(default)]
    pub objective: Vec<ObjectiveTable>,
}

/// A host.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostTable {
    /// Its name.
    pub name: String,
    /// The rack that it stands in.
    #[serde(default)]
    pub rack: u32,
    /// Memory that it offers for appliances.
    #[serde(deserialize_with = "parsed")]
    pub memory: Bytes,
    /// Processors that it offers for appliances; not counted unless set.
    #[serde(default)]
    pub cpus: Option<f64>,
    /// The program that runs appliances on it, as a process of this machine: `forebay` itself unless set.
    #[serde(default)]
    pub program: Option<PathBuf>,
}

/// A volume.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeTable {
    /// Its name, here and in appliances.
    pub name: String,
    /// The application's host.
    pub home: String,
    /// Its export on the storage side, without an epoch.
    #[serde(deserialize_with = "parsed")]
    pub origin: Uri,
    /// Volumes with the same word here compete for the same disks; the address of `watch` unless set.
    #[serde(default)]
    pub array: Option<String>,
    /// Where `forebay watch` on the storage side answers: it tells of the volume while no appliance serves it, and has its lease.
    #[serde(default)]
    pub watch: Option<ApiAddress>,
    /// Whether it has leases there.
    #[serde(default = "yes")]
    pub leased: bool,
    /// Where the daemon answers that is the volume's permanent proxy; `None`: it is only watched.
    #[serde(default)]
    pub proxy: Option<ApiAddress>,
    /// The unit of caching.
    #[serde(default = "block_size", deserialize_with = "parsed")]
    pub block_size: Bytes,
    /// Counters of a Prometheus server that tell of it, where no `watch` does.
    #[serde(default)]
    pub prometheus: Option<PrometheusTable>,
}

/// Counters of a volume on a Prometheus server, each a query with one series as its result.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrometheusTable {
    /// The server, as in `http://127.0.0.1:9090`.
    pub url: String,
    /// Reads completed.
    pub reads: String,
    /// The sum of their latencies, in seconds.
    pub read_seconds: String,
    /// Writes completed.
    #[serde(default)]
    pub writes: Option<String>,
    /// The sum of their latencies, in seconds.
    #[serde(default)]
    pub write_seconds: Option<String>,
}

/// What a volume was promised: one of the three.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectiveTable {
    /// Which volume.
    pub volume: String,
    /// The longest mean latency.
    #[serde(default, deserialize_with = "parsed_option")]
    pub latency: Option<Nanos>,
    /// The least requests per second while it asks for them.
    #[serde(default)]
    pub iops: Option<f64>,
    /// Over which time; the interval unless set.
    #[serde(default, deserialize_with = "parsed_option")]
    pub window: Option<Nanos>,
    /// The share of windows that must conform.
    #[serde(default)]
    pub conforming: Option<f64>,
}

fn ten_seconds() -> Nanos {
    Nanos::secs(10)
}

fn yes() -> bool {
    true
}

fn block_size() -> Bytes {
    Bytes(BlockSize::DEFAULT.bytes())
}

fn parsed<'de, T: FromStr<Err: std::fmt::Display>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
}

fn parsed_option<'de, T: FromStr<Err: std::fmt::Display>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    parsed(from).map(Some)
}

/// Why a configuration is not one.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FleetConfigError {
    /// The file cannot be read.
    #[error("the configuration `{}` cannot be read", path.display())]
    Unreadable {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not TOML, or has what it should not.
    #[error("the configuration `{}` is wrong: {source}", path.display())]
    Syntax {
        /// Where.
        path: PathBuf,
        /// What, with its line.
        source: Box<toml::de::Error>,
    },
    /// Something in it cannot be so.
    #[error("`{key}` is {found}, expected {expected}")]
    Wrong {
        /// Which key.
        key: String,
        /// What it is.
        found: String,
        /// What it may be.
        expected: String,
    },
    /// A parameter of the controller.
    #[error("`control.{}` is {}, expected {}", .0.key, .0.found, .0.expected)]
    Control(forebay_control::ConfigError),
}

impl FleetConfig {
    /// Reads and checks a file; relative paths are relative to its folder.
    ///
    /// # Errors
    /// [`FleetConfigError`].
    pub fn read(path: &Path) -> Result<FleetConfig, FleetConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| FleetConfigError::Unreadable { path: path.to_owned(), source })?;
        let mut config: FleetConfig = toml::from_str(&text)
            .map_err(|source| FleetConfigError::Syntax { path: path.to_owned(), source: Box::new(source) })?;
        let folder = path.parent().unwrap_or(Path::new("."));
        config.socket = folder.join(&config.socket);
        config.state = folder.join(&config.state);
        config.history = config.history.map(|history| folder.join(history));
        config.check()?;
        Ok(config)
    }

    /// Checks what was made in code by the same rules.
    ///
    /// # Errors
    /// [`FleetConfigError`], the first thing that is wrong.
    pub fn check(&self) -> Result<(), FleetConfigError> {
        let wrong = |key: &str, found: &str, expected: &str| {
            let (key, found, expected) = (key.to_owned(), found.to_owned(), expected.to_owned());
            Err(FleetConfigError::Wrong { key, found, expected })
        };
        if self.interval < Nanos::millis(100) || self.interval > Nanos::secs(3600) {
            return wrong("interval", &self.interval.to_string(), "100ms to 1h");
        }
        self.control.check().map_err(FleetConfigError::Control)?;
        if self.volume.is_empty() {
            return wrong("volume", "absent", "at least one `[[volume]]`");
        }
        let mut names = BTreeSet::new();
        for host in &self.host {
            if host.name.is_empty() || !names.insert(&host.name) {
                return wrong("host.name", &format!("`{}` twice, or empty", host.name), "a name used once");
            }
            if host.cpus.is_some_and(|cpus| !(cpus > 0.0 && cpus < 1e6)) {
                return wrong("host.cpus", "not a count of processors", "a number above 0");
            }
        }
        let mut volumes = BTreeSet::new();
        for volume in &self.volume {
            let of = |key: &str| format!("volume `{}`: {key}", volume.name);
            if volume.name.is_empty() || volume.name.contains('@') || !volumes.insert(&volume.name) {
                return wrong("volume.name", &format!("`{}`", volume.name), "a name without `@`, used once");
            }
            if !names.contains(&volume.home) {
                return wrong(&of("home"), &format!("`{}`", volume.home), "the name of a host");
            }
            if BlockSize::new(volume.block_size).is_err() {
                return wrong(&of("block_size"), &volume.block_size.to_string(), "a power of two from 4KiB");
            }
            if volume.watch.is_none() && volume.prometheus.is_none() {
                return wrong(
                    &of("watch"),
                    "absent, as is `prometheus`",
                    "one of them: who tells of the volume?",
                );
            }
        }
        for objective in &self.objective {
            if !volumes.contains(&objective.volume) {
                return wrong("objective.volume", &format!("`{}`", objective.volume), "the name of a volume");
            }
            if objective.latency.is_some() == objective.iops.is_some() {
                return wrong("objective", "neither or both of `latency` and `iops`", "one of them");
            }
        }
        Ok(())
    }

    /// What a volume was promised.
    pub(super) fn objectives(&self, volume: &str) -> Vec<Objective> {
        let of = |table: &ObjectiveTable| {
            let operations = Operations::All;
            let target = match (table.latency, table.iops) {
                (Some(at_most), _) => Target::Latency { statistic: Statistic::Mean, at_most, operations },
                (None, iops) => Target::IopsFloor { at_least: iops.unwrap_or(0.0), operations },
            };
            let objective = Objective::new(target).over(table.window.unwrap_or(self.interval));
            Objective {
                conforming_share: table.conforming.unwrap_or(objective.conforming_share),
                ..objective
            }
        };
        self.objective.iter().filter(|table| table.volume == volume).map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        socket = "control.sock"
        state = "state"
        interval = "1s"
        [[host]]
        name = "h1"
        memory = "1GiB"
        [[volume]]
        name = "db"
        home = "h1"
        origin = "nbd+unix:///db?socket=/run/watch.sock"
        watch = "unix:/run/watch-http.sock"
        proxy = "unix:/run/proxy-http.sock"
        [[objective]]
        volume = "db"
        latency = "5ms"
    "#;

    #[test]
    fn a_file_is_read_and_its_mistakes_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.toml");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            FleetConfig::read(&path)
        };
        let config = read(GOOD).unwrap();
        assert_eq!(config.socket, folder.path().join("control.sock"));
        assert_eq!(config.objectives("db")[0].window, Nanos::secs(1));
        assert!(config.volume[0].leased && config.objectives("other").is_empty());
        for (from, to, told) in [
            ("\"1s\"", "\"1ms\"", "`interval` is 1ms, expected 100ms to 1h"),
            ("\"1s\"", "\"often\"", "line 4"),
            ("home = \"h1\"", "home = \"h2\"", "volume `db`: home` is `h2`, expected the name of a host"),
            ("watch = ", "proxi = ", "unknown field `proxi`"),
            ("latency = \"5ms\"", "", "one of them"),
            ("volume = \"db\"", "volume = \"d\"", "the name of a volume"),
            ("name = \"db\"", "name = \"d@b\"", "without `@`"),
            (
                "name = \"h1\"\n        memory = \"1GiB\"",
                "name = \"h1\"\n        memory = \"much\"",
                "line 7",
            ),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let error = read(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(told), "{from}: {error}");
        }
    }
}
