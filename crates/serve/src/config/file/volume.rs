//! The tables of a volume: its origin, the layers above it, what it was promised.

use super::super::check::BLOCK_SIZE_MAX;
use super::super::problem::Finding;
use super::super::reader::{Table, TextOr};
use super::super::{CacheConfig, DiskBacking, LayerConfig, OnAbsent, OriginConfig, OriginTls, VolumeConfig};
use super::{ANY, DAY, FLASH_ADMISSIONS, FileReader, HOUR};
use forebay_control::objective::{IOPS_MAX, LATENCY_MAX, TARGETS, WEIGHT_MAX, WINDOW_MAX, WINDOW_MIN};
use forebay_control::{Objective, Operations, StatedError, StatedObjective};
use forebay_nbd::Uri;
use forebay_origin::NbdOriginOptions;
use forebay_origin::layer::{DelayParameters, ErrorParameters, LogParameters, RateParameters};
use forebay_units::{BlockSize, Bytes, Nanos};
use std::path::PathBuf;
use toml::de::DeTable;

impl FileReader<'_> {
    pub(super) fn volume(&self, table: &Table<'_>, interval: Nanos) -> VolumeConfig {
        let missing = |key: &'static str| {
            if !table.has(key) {
                table.wrong(key, format!("missing key `{key}`"));
            }
        };
        let name = table.text("name").unwrap_or_else(|| {
            missing("name");
            String::new()
        });
        // In the place of an origin that cannot be read stands one with which nothing is wrong.
        let origin = self.origin(table).unwrap_or_else(|| {
            missing("origin");
            OriginConfig::Memory { size: Bytes::kib(64) }
        });
        let mut volume = VolumeConfig::new(name, origin);
        volume.layers = self.layers(table, &volume.name);
        volume.read_only = table.boolean("read_only").unwrap_or(false);
        if let Some(bytes) = table.bytes("block_size", Bytes(512), BLOCK_SIZE_MAX) {
            match BlockSize::new(bytes) {
                Ok(size) => volume.block_size = size,
                Err(_) => {
                    let expected = format!("expected a power of two from 512B to {BLOCK_SIZE_MAX}");
                    table.wrong("block_size", format!("{bytes} is no block size: {expected}"));
                }
            }
        }
        let fixed = table.bytes("cache", Bytes::ZERO, ANY);
        let may_cache = table.boolean("may_cache");
        let minimum = table.bytes("minimum", Bytes::ZERO, ANY);
        let maximum = table.bytes("maximum", Bytes::ZERO, ANY);
        volume.cache = match fixed {
            Some(quota) => {
                for key in ["may_cache", "minimum", "maximum"] {
                    if table.has(key) {
                        table.wrong(
                            key,
                            format!("`{key}` is for the controller, and `cache` takes the volume from it"),
                        );
                    }
                }
                CacheConfig::Fixed(quota)
            }
            None => CacheConfig::Controlled {
                may_cache: may_cache.unwrap_or(true),
                minimum: minimum.unwrap_or(Bytes::ZERO),
                maximum,
            },
        };
        volume.flash = table.bytes("flash", Bytes::ZERO, ANY).unwrap_or(Bytes::ZERO);
        volume.flash_admission = table.parsed("flash_admission", FLASH_ADMISSIONS);
        volume.sole_writer = table.boolean("sole_writer").unwrap_or(false);
        volume.secret = table.secret("secret");
        volume.on_absent = table
            .word("on_absent", &[("fail", OnAbsent::Fail), ("wait", OnAbsent::Wait)])
            .unwrap_or(OnAbsent::Fail);
        for objective in table.tables("objective", |_| Ok("objective")) {
            if objective.has("volume") {
                objective.wrong(
                    "volume",
                    "`volume` is for an `[[objective]]` of its own; this one stands in its volume",
                );
            }
            volume.objectives.extend(self.objective(&objective, interval));
        }
        volume
    }

    /// From the root, wherever the daemon is started: snapshots and flash know a volume by it.
    fn origin_path(&self, text: &str) -> PathBuf {
        let path = self.path(text);
        std::path::absolute(&path).unwrap_or(path)
    }

    pub(super) fn origin(&self, volume: &Table<'_>) -> Option<OriginConfig> {
        let table = match volume.text_or_table("origin")? {
            TextOr::Text(text)
                if ["nbd:", "nbd+unix:", "nbds:", "nbds+unix:"]
                    .iter()
                    .any(|scheme| text.starts_with(scheme)) =>
            {
                let uri = volume.parsed::<Uri>("origin", "a path or an NBD URI")?;
                let (options, tls) = (NbdOriginOptions::default(), OriginTls::default());
                return Some(OriginConfig::Nbd { uri, options, tls });
            }
            TextOr::Text(text) if text.is_empty() => {
                volume.wrong("origin", "an empty text is no origin: expected a path or a table");
                return None;
            }
            TextOr::Text(text) => return Some(OriginConfig::file(self.origin_path(&text))),
            TextOr::Table(table) => table,
        };
        const KINDS: [&str; 5] =
            ["origin file", "origin block-device", "origin nbd", "origin disk-group", "origin memory"];
        let kind = match kind_of(table, &KINDS) {
            Ok(kind) => kind,
            Err(message) => {
                self.notes.add(Finding::new(volume.path_of("origin"), message));
                return None;
            }
        };
        let table = volume.inner("origin", kind, table);
        table.text("type");
        let required = |key: &'static str| {
            if !table.has(key) {
                table.wrong(key, format!("missing key `{key}`"));
            }
        };
        let path = || {
            required("path");
            table.text("path").map(|text| self.origin_path(&text))
        };
        let workers = || table.count("workers", 1, 256).map_or(8, |count| count as usize);
        Some(match kind {
            "origin file" => OriginConfig::File { path: path()?, workers: workers() },
            "origin block-device" => OriginConfig::BlockDevice { path: path()?, workers: workers() },
            "origin nbd" => {
                let defaults = NbdOriginOptions::default();
                let span = |key, least, most, default| table.span(key, least, most).unwrap_or(default);
                let options = NbdOriginOptions {
                    connections: table
                        .count("connections", 1, 16)
                        .map_or(defaults.connections, |count| count as usize),
                    connect_timeout: span(
                        "connect_timeout",
                        Nanos::millis(1),
                        HOUR,
                        defaults.connect_timeout,
                    ),
                    request_timeout: span(
                        "request_timeout",
                        Nanos::millis(1),
                        HOUR,
                        defaults.request_timeout,
                    ),
                    wait_for_origin: span("wait_for_origin", Nanos::ZERO, DAY, defaults.wait_for_origin),
                    fences_on_disconnect: table.boolean("fences_on_disconnect").unwrap_or(false),
                    keeps_acknowledged_writes: table.boolean("keeps_acknowledged_writes").unwrap_or(false),
                    ..defaults
                };
                required("uri");
                let file = |key| table.text(key).map(|text| self.path(&text));
                let identity = match (file("certificate"), file("key")) {
                    (Some(certificate), Some(key)) => Some((certificate, key)),
                    (None, None) => None,
                    (Some(_), None) => {
                        table.wrong("certificate", "a certificate needs its `key`");
                        None
                    }
                    (None, Some(_)) => {
                        table.wrong("key", "a key needs its `certificate`");
                        None
                    }
                };
                let tls = OriginTls { authorities: file("authorities"), identity };
                OriginConfig::Nbd { uri: table.parsed::<Uri>("uri", "an NBD URI in quotes")?, options, tls }
            }
            "origin disk-group" => {
                required("group");
                let memory = table.bytes("memory", Bytes(1), ANY);
                let backing = match (table.has("path"), table.has("memory")) {
                    (true, false) => DiskBacking::File(path()?),
                    (false, true) => DiskBacking::Memory(memory?),
                    _ => {
                        let message = "a volume of a disk group has exactly one of `path` and `memory`";
                        self.notes.add(Finding::new(table.path.clone(), message));
                        return None;
                    }
                };
                let offset = table.bytes("offset", Bytes::ZERO, ANY).map(Bytes::get);
                OriginConfig::DiskGroup { group: table.text("group")?, backing, offset }
            }
            _ => {
                required("size");
                OriginConfig::Memory { size: table.bytes("size", Bytes(1), ANY)? }
            }
        })
    }

    pub(super) fn layers(&self, volume: &Table<'_>, name: &str) -> Vec<LayerConfig> {
        const KINDS: [&str; 4] = ["layer delay", "layer error", "layer rate", "layer log"];
        let mut layers = Vec::new();
        for table in volume.tables("layers", |table| kind_of(table, &KINDS)) {
            let kind = table.text("type").unwrap_or_default();
            let span = |key, default| table.span(key, Nanos::ZERO, HOUR).unwrap_or(default);
            let flag = |key, default| table.boolean(key).unwrap_or(default);
            let seed = || table.count("seed", 0, i64::MAX as u64).unwrap_or(0);
            layers.push(match kind.as_str() {
                "delay" => LayerConfig::Delay(DelayParameters {
                    read: span("read", Nanos::ZERO),
                    write: span("write", Nanos::ZERO),
                    flush: span("flush", Nanos::ZERO),
                    jitter: span("jitter", Nanos::ZERO),
                    seed: seed(),
                }),
                "error" => LayerConfig::Error(ErrorParameters {
                    probability: table.number("probability", 0.0, true, 1.0).unwrap_or(1.0),
                    errno: table.count("errno", 1, 4095).map_or(5, |errno| errno as i32),
                    reads: flag("reads", true),
                    writes: flag("writes", true),
                    flushes: flag("flushes", false),
                    range: None,
                    seed: seed(),
                }),
                "rate" => LayerConfig::Rate(RateParameters {
                    requests_per_second: table.number("requests_per_second", 0.0, false, 1e9),
                    bytes_per_second: table.bytes("bytes_per_second", Bytes(1), ANY).map(Bytes::as_f64),
                    burst: span("burst", Nanos::millis(100)),
                }),
                _ => LayerConfig::Log(LogParameters {
                    name: name.to_owned(),
                    file: table.text("file").map(|text| self.path(&text)),
                    trace: flag("trace", false),
                }),
            });
        }
        layers
    }

    pub(super) fn objective(&self, table: &Table<'_>, interval: Nanos) -> Option<Objective> {
        let operations = table.word(
            "operations",
            &[("reads", Operations::Reads), ("writes", Operations::Writes), ("all", Operations::All)],
        );
        let statistic = table.text("statistic");
        let stated = StatedObjective {
            latency: table.span("latency", Nanos(1), LATENCY_MAX),
            statistic: statistic.as_deref(),
            iops: table.number("iops", 0.0, false, IOPS_MAX),
            bandwidth_per_second: table.bytes("bandwidth_per_second", Bytes(1), ANY),
            operations,
            window: table.span("window", WINDOW_MIN, WINDOW_MAX),
            conforming_share: table.number("conforming_share", 0.0, false, 1.0),
            weight: table.number("weight", 0.0, false, WEIGHT_MAX),
            priority: table.count("priority", 0, 255).map(|priority| priority as u8),
        };
        match stated.objective(interval) {
            Ok(objective) => return Some(objective),
            Err(StatedError::Key { key, found, expected }) => {
                table.wrong(key, format!("{found}: expected {expected}"));
            }
            // The only one may be there, and be wrong, which is told.
            Err(StatedError::Targets { found }) => {
                let targets = ["latency", "iops", "bandwidth_per_second"];
                if targets.into_iter().filter(|key| table.has(key)).count() != 1 {
                    let message = format!("{found}: expected {TARGETS}");
                    self.notes.add(Finding::new(table.path.clone(), message));
                }
            }
        }
        None
    }
}

/// The kind of a table by its `type`.
fn kind_of(table: &DeTable<'_>, kinds: &[&'static str]) -> Result<&'static str, String> {
    let word = |kind: &&'static str| kind.split_once(' ').map_or(*kind, |(_, word)| word);
    let words: Vec<String> = kinds.iter().map(|kind| format!("`{}`", word(kind))).collect();
    let expected = format!("expected one of {}", words.join(", "));
    let Some(value) = table.get("type") else { return Err(format!("missing key `type`: {expected}")) };
    let Some(text) = value.get_ref().as_str() else { return Err(format!("`type` is no text: {expected}")) };
    kinds
        .iter()
        .find(|kind| word(kind) == text)
        .copied()
        .ok_or_else(|| format!("`{text}` is no type: {expected}"))
}
