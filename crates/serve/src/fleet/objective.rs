//! What a volume of a fleet was promised, with the keys that the daemon's configuration has.

use super::tables::{VolumeTable, parsed_option};
use forebay_control::objective::TARGETS;
use forebay_control::{Objective, Operations, StatedError, StatedObjective, Statistic, Target};
use forebay_units::{Bytes, Nanos};
use serde::Deserialize;

/// A promise to a volume: one of `latency`, `iops` and `bandwidth_per_second`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectiveTable {
    /// Which volume.
    pub volume: String,
    /// The longest latency.
    #[serde(default, deserialize_with = "parsed_option")]
    pub latency: Option<Nanos>,
    /// Which number of a window is compared with it: `mean` unless set, or a percentile as in `p95`.
    #[serde(default)]
    pub statistic: Option<String>,
    /// The least requests per second while it asks for them.
    #[serde(default)]
    pub iops: Option<f64>,
    /// The least bytes per second while it asks for them.
    #[serde(default, deserialize_with = "parsed_option")]
    pub bandwidth_per_second: Option<Bytes>,
    /// Which requests count.
    #[serde(default)]
    pub operations: Operations,
    /// Over which time; the interval unless set.
    #[serde(default, deserialize_with = "parsed_option")]
    pub window: Option<Nanos>,
    /// The share of windows that must conform. `conforming` in files of before.
    #[serde(default, alias = "conforming")]
    pub conforming_share: Option<f64>,
    /// How much a violation weighs against that of another volume; 1 unless set.
    #[serde(default)]
    pub weight: Option<f64>,
    /// Objectives of a higher priority are served first; 0 unless set.
    #[serde(default)]
    pub priority: Option<u8>,
}

/// The key that is wrong, or none of them alone, what it is, and what it may be.
type Wrong = (Option<&'static str>, String, String);

impl ObjectiveTable {
    /// The objective as the controller has it.
    pub(super) fn objective(&self, interval: Nanos) -> Result<Objective, StatedError> {
        let stated = StatedObjective {
            latency: self.latency,
            statistic: self.statistic.as_deref(),
            iops: self.iops,
            bandwidth_per_second: self.bandwidth_per_second,
            operations: Some(self.operations),
            window: self.window,
            conforming_share: self.conforming_share,
            weight: self.weight,
            priority: self.priority,
        };
        Ok(stated.objective(interval)?.in_whole(interval))
    }

    /// Whether it can be judged by what is heard of `volume`.
    pub(super) fn check(&self, volume: &VolumeTable, interval: Nanos) -> Result<(), Wrong> {
        let objective = self.objective(interval).map_err(|error| match error {
            StatedError::Targets { found } => (None, found, TARGETS.to_owned()),
            StatedError::Key { key, found, expected } => (Some(key), found, expected.to_owned()),
        })?;
        if let Some(key) = unvouched(objective.target, volume) {
            let found =
                "a floor where counters do not tell who is held back from who asks for no more".to_owned();
            let expected = format!(
                "`prometheus.waits = true` of volume `{}`, if whoever uses it asks for the next request when the last is answered; or a `latency`",
                volume.name
            );
            return Err((Some(key), found, expected));
        }
        match missing(objective.target, volume) {
            Some((key, what)) => {
                let found = format!("one of what Prometheus is not asked for: {what}");
                let expected =
                    format!("`prometheus.{what}` of volume `{}`, or another objective", volume.name);
                Err((Some(key), found, expected))
            }
            None => Ok(()),
        }
    }
}

/// The key of a floor of a volume of which only Prometheus tells, where nobody vouches that its users ask for as much as they get.
fn unvouched(target: Target, volume: &VolumeTable) -> Option<&'static str> {
    let table = volume.prometheus.as_ref().filter(|_| volume.watch.is_none())?;
    match target {
        Target::IopsFloor { .. } if !table.waits => Some("iops"),
        Target::BandwidthFloor { .. } if !table.waits => Some("bandwidth_per_second"),
        _ => None,
    }
}

/// What Prometheus would have to be asked for of a volume of which nobody else tells, and because of which key of the objective.
fn missing(target: Target, volume: &VolumeTable) -> Option<(&'static str, &'static str)> {
    let table = volume.prometheus.as_ref().filter(|_| volume.watch.is_none())?;
    let (is_latency, is_bandwidth) =
        (matches!(target, Target::Latency { .. }), matches!(target, Target::BandwidthFloor { .. }));
    let is_percentile = matches!(target, Target::Latency { statistic: Statistic::Percentile(_), .. });
    let (Target::Latency { operations, .. }
    | Target::IopsFloor { operations, .. }
    | Target::BandwidthFloor { operations, .. }) = target;
    let reads = operations != Operations::Writes;
    // Where nobody counts writes, all are reads.
    let writes = operations != Operations::Reads && table.writes.is_some();
    let needs = [
        (operations == Operations::Writes, &table.writes, "operations", "writes"),
        (is_latency && writes, &table.write_seconds, "latency", "write_seconds"),
        (is_percentile && reads, &table.read_buckets, "statistic", "read_buckets"),
        (is_percentile && writes, &table.write_buckets, "statistic", "write_buckets"),
        (is_bandwidth && reads, &table.read_bytes, "bandwidth_per_second", "read_bytes"),
        (is_bandwidth && writes, &table.write_bytes, "bandwidth_per_second", "write_bytes"),
    ];
    let lacking = needs.into_iter().find(|(is_needed, query, ..)| *is_needed && query.is_none());
    lacking.map(|(_, _, key, query)| (key, query))
}

#[cfg(test)]
mod tests {
    use crate::fleet::FleetConfig;
    use forebay_control::{Objective, Operations};
    use forebay_units::Nanos;
    use std::path::Path;

    /// A volume of which only Prometheus tells, by the queries `asked`, with an objective.
    fn read(folder: &Path, asked: &str, objective: &str) -> Result<Vec<Objective>, String> {
        let path = folder.join("control.toml");
        let text = format!(
            r#"
            socket = "control.sock"
            state = "state"
            [[host]]
            name = "h1"
            memory = "16MiB"
            [[volume]]
            name = "db"
            home = "h1"
            origin = "nbd://127.0.0.1/db"
            [volume.prometheus]
            url = "http://127.0.0.1:9090"
            reads = "r"
            read_seconds = "rs"
            {asked}
            [[objective]]
            volume = "db"
            {objective}
            "#
        );
        std::fs::write(&path, text).unwrap();
        let config = FleetConfig::read(&path).map_err(|error| error.to_string())?;
        Ok(config.objectives("db"))
    }

    #[test]
    fn objectives_are_those_of_the_daemon_and_what_is_no_objective_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let all = "read_bytes = \"rb\"\nread_buckets = \"rh\"\nwrites = \"w\"\nwrite_seconds = \"ws\"\n\
                   write_bytes = \"wb\"\nwrite_buckets = \"wh\"\nwaits = true";
        let good = |objective: &str| read(folder.path(), all, objective).unwrap()[0];
        let ten_seconds = |objective: Objective| objective.over(Nanos::secs(10));
        let (ms, reads) = (Nanos::millis(5), Operations::Reads);
        for (objective, expected) in [
            ("latency = \"5ms\"", Objective::mean_latency(ms, Operations::All)),
            (
                "latency = \"5ms\"\nstatistic = \"p99.9\"\noperations = \"reads\"",
                Objective::percentile_latency(99.9, ms, reads),
            ),
            ("iops = 300", Objective::iops_floor(300.0)),
            ("bandwidth_per_second = \"1MiB\"", Objective::bandwidth_floor(1_048_576.0)),
        ] {
            assert_eq!(good(objective), ten_seconds(expected), "{objective}");
        }
        for share in ["conforming", "conforming_share"] {
            assert_eq!(good(&format!("iops = 1\n{share} = 0.5")).conforming_share, 0.5);
        }
        for (objective, told) in [
            (
                "",
                "`objective[0]`: none of them is there, expected exactly one of `latency`, `iops` and `bandwidth_per_second`",
            ),
            (
                "iops = 1\nbandwidth_per_second = \"1MiB\"",
                "`iops` and `bandwidth_per_second` are there, expected exactly one of",
            ),
            (
                "latency = \"5ms\"\nstatistic = \"p0\"",
                "`objective[0].statistic`: `p0`, expected `mean`, or a percentile",
            ),
            (
                "iops = 1\nstatistic = \"mean\"",
                "`objective[0].statistic`: `mean`, expected it only beside `latency`",
            ),
            (
                "iops = 1\noperations = \"trims\"",
                "`objective[0].operations`: `trims`, expected one of `reads`, `writes`, `all`",
            ),
            (
                "bandwidth_per_second = \"0B\"",
                "`objective[0].bandwidth_per_second`: 0, expected a number above 0",
            ),
            ("iops = 0", "`objective[0].iops`: 0, expected a number above 0, at most 1e9"),
            ("iops = nan", "`objective[0].iops`: NaN, expected a number above 0, at most 1e9"),
            ("iops = inf", "`objective[0].iops`: inf, expected a number above 0, at most 1e9"),
            ("iops = 1e30", "expected a number above 0, at most 1e9"),
            ("iops = 1\nweight = nan", "`objective[0].weight`: NaN, expected a number above 0, at most 1e6"),
            ("iops = 1\nweight = -1", "`objective[0].weight`: -1, expected a number above 0, at most 1e6"),
            ("iops = 1\nweight = 1e7", "expected a number above 0, at most 1e6"),
        ] {
            let error = read(folder.path(), all, objective).unwrap_err();
            assert!(error.contains(told) && error.contains(", line "), "{objective}: {error}");
        }
    }

    #[test]
    fn of_writes_that_nobody_counts_prometheus_is_asked_nothing() {
        let folder = tempfile::tempdir().unwrap();
        for key in ["write_seconds", "write_bytes", "write_buckets"] {
            let error = read(folder.path(), &format!("{key} = \"w\""), "iops = 1").unwrap_err();
            let told = format!("`volume[0].prometheus.{key}`: there without `writes`, expected both or none");
            assert!(error.contains(&told), "{error}");
        }
    }

    #[test]
    fn an_objective_that_prometheus_is_not_asked_enough_for_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let writes = "writes = \"w\"\nwrite_seconds = \"ws\"\n";
        for (asked, objective, told) in [
            (
                "",
                "latency = \"5ms\"\nstatistic = \"p95\"",
                "objective[0].statistic`: one of what Prometheus is not asked for: read_buckets",
            ),
            ("read_buckets = \"h\"", "latency = \"5ms\"\nstatistic = \"p95\"", ""),
            (
                &format!("{writes}read_buckets = \"h\""),
                "latency = \"5ms\"\nstatistic = \"p95\"",
                "expected `prometheus.write_buckets` of volume `db`, or another objective",
            ),
            (
                &format!("{writes}read_buckets = \"h\""),
                "latency = \"5ms\"\nstatistic = \"p95\"\noperations = \"reads\"",
                "",
            ),
            ("waits = true", "bandwidth_per_second = \"1MiB\"", "`prometheus.read_bytes`"),
            (
                &format!("waits = true\n{writes}read_bytes = \"b\""),
                "bandwidth_per_second = \"1MiB\"",
                "`prometheus.write_bytes`",
            ),
            ("waits = true", "iops = 5\noperations = \"writes\"", "`prometheus.writes`"),
            ("writes = \"w\"", "latency = \"5ms\"", "`prometheus.write_seconds`"),
            ("writes = \"w\"", "latency = \"5ms\"\noperations = \"reads\"", ""),
            ("writes = \"w\"\nwaits = true", "iops = 5", ""),
            // 284/s of 21 ms that nobody wanted more of were a violation of 1000/s.
            ("writes = \"w\"", "iops = 5", "objective[0].iops`: a floor where counters do not tell who"),
            (
                "waits = false\nread_bytes = \"b\"",
                "bandwidth_per_second = \"1MiB\"",
                "expected `prometheus.waits = true` of volume `db`",
            ),
        ] {
            match read(folder.path(), asked, objective) {
                Ok(objectives) => assert!(told.is_empty() && objectives.len() == 1, "{asked}, {objective}"),
                Err(error) => {
                    assert!(!told.is_empty() && error.contains(told), "{asked}, {objective}: {error}");
                }
            }
        }
    }
}
