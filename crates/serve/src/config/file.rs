//! From the text of the file to a [`Config`].

use super::check::check;
use super::problem::{ConfigError, Finding, Problem};
use super::reader::{Notes, Table, TextOr, join};
use super::{
    CacheConfig, Config, ControlSettings, DiskBacking, DiskGroupConfig, FlashRules, HTTP_DEFAULT,
    HistoryConfig, HttpConfig, LayerConfig, Limits, OnAbsent, OriginConfig, OriginTls, SnapshotConfig,
    SnapshotPlace, TlsFiles, VolumeConfig, machine_memory,
};
use crate::placing::MIGRATION_RATE_MIN;
use forebay_appliance::{EngineChoice, FlashConfig, ListenerConfig};
use forebay_control::{ControlConfig, Objective, Operations, Statistic, Target};
use forebay_devmodel::{
    ArrayCache, DiskBuffer, DiskGroupParameters, DiskParameters, Layout, QueueDiscipline,
};
use forebay_locality::LiveConfig;
use forebay_nbd::Uri;
use forebay_nbd::server::TlsPolicy;
use forebay_origin::NbdOriginOptions;
use forebay_origin::layer::{DelayParameters, ErrorParameters, LogParameters, RateParameters};
use forebay_units::{BlockSize, ByteRange, Bytes, Nanos, Secret};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::de::DeTable;

const HOUR: Nanos = Nanos::secs(3600);
const DAY: Nanos = Nanos::secs(86_400);
const ANY: Bytes = Bytes(i64::MAX as u64);
const FLASH_ADMISSIONS: &str = "the name of an admission, such as `adaptive`";

pub(super) fn parse(file: &str, text: &str, folder: &Path) -> Result<Config, ConfigError> {
    let line_of =
        |at: usize| text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1;
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let problems = errors
            .iter()
            .map(|error| {
                let span = error.span();
                let line = span.clone().map(|span| line_of(span.start));
                Problem { line, key: String::new(), message: error.message().replace('\n', ", "), hint: None }
            })
            .collect();
        return Err(ConfigError { file: file.to_owned(), problems });
    }
    let notes = Notes::default();
    let root = Table::new(&notes, "", String::new(), table.get_ref());
    let config = FileReader { notes: &notes, folder }.config(&root);
    let mut findings = notes.findings.take();
    let read_wrong: Vec<String> = findings.iter().map(|finding| finding.key.clone()).collect();
    let mut further = Vec::new();
    check(&config, &mut further);
    // What could not be read was said: its default may be wrong in its place.
    further.retain(|finding| {
        let related =
            |wrong: &String| wrong.starts_with(&finding.key) || finding.key.starts_with(wrong.as_str());
        finding.key.is_empty() || !read_wrong.iter().any(related)
    });
    findings.append(&mut further);
    if findings.is_empty() {
        return Ok(config);
    }
    let spans = notes.spans.take();
    let mut problems: Vec<Problem> = findings
        .into_iter()
        .map(|Finding { key, message, hint }| {
            // The place of the key, or of what it would stand in.
            let mut place = key.as_str();
            let span = loop {
                if let Some(span) = spans.get(place) {
                    break Some(span.clone());
                }
                match place.rfind(['.', '[']) {
                    Some(at) => place = &place[..at],
                    None => break None,
                }
            };
            Problem { line: span.map(|span| line_of(span.start)), key, message, hint }
        })
        .collect();
    problems.sort_by_key(|problem| problem.line);
    problems.dedup();
    Err(ConfigError { file: file.to_owned(), problems })
}

struct FileReader<'a> {
    notes: &'a Notes,
    folder: &'a Path,
}

impl FileReader<'_> {
    fn path(&self, text: &str) -> PathBuf {
        self.folder.join(text)
    }

    fn config(&self, root: &Table<'_>) -> Config {
        let control = self.control(root);
        let interval = Nanos::from(control.interval);
        let mut volumes: Vec<VolumeConfig> = root
            .tables("volume", |_| Ok("volume"))
            .iter()
            .map(|table| self.volume(table, interval))
            .collect();
        for table in root.tables("objective", |_| Ok("objective")) {
            let Some(name) = table.text("volume") else {
                if !table.has("volume") {
                    table.wrong("volume", "missing key `volume`: which volume is it about?");
                }
                continue;
            };
            let objective = self.objective(&table, interval);
            if let Some(volume) = volumes.iter_mut().find(|volume| volume.name == name) {
                volume.objectives.extend(objective);
            } else {
                let names: Vec<String> = volumes.iter().map(|volume| format!("`{}`", volume.name)).collect();
                self.notes.add(
                    Finding::new(table.path_of("volume"), format!("there is no volume `{name}`"))
                        .hint(format!("the volumes are {}", names.join(", "))),
                );
            }
        }
        let tls = self.tls(root);
        let (flash, flash_rules) = self.flash(root);
        let have_secrets = volumes.iter().all(|volume| volume.secret.is_some());
        Config {
            listen: self.listen(root, &tls, have_secrets),
            tls,
            volumes,
            disk_groups: root
                .tables("disk_group", |_| Ok("disk_group"))
                .iter()
                .map(|table| self.disk_group(table))
                .collect(),
            cache_memory: root
                .table("cache", "cache")
                .and_then(|table| table.bytes("memory", Bytes::ZERO, ANY))
                .unwrap_or(Bytes(machine_memory().get() / 4)),
            flash,
            flash_rules,
            observe: self.observe(root),
            control,
            io: self.io(root),
            http: self.http(root),
            history: self.history(root),
            snapshots: self.snapshots(root),
            reservations: self.kept(root, "reservations"),
            leases: self.kept(root, "leases"),
            routes: self.kept(root, "routes"),
            limits: self.limits(root),
        }
    }

    fn flash(&self, root: &Table<'_>) -> (Option<FlashConfig>, FlashRules) {
        let mut rules = FlashRules::default();
        let Some(table) = root.table("flash", "flash") else { return (None, rules) };
        if !table.has("path") {
            table.wrong("path", "missing key `path`");
        }
        let size = table.bytes("size", Bytes::mib(4), ANY);
        rules.admission = table.parsed("admission", FLASH_ADMISSIONS).unwrap_or_default();
        if let Some(chunk) = table.bytes("chunk", Bytes::kib(4), Bytes::mib(16)) {
            if chunk.get().is_power_of_two() {
                rules.chunk = chunk;
            } else {
                table.wrong("chunk", format!("{chunk} is no power of two"));
            }
        }
        let rate = table.bytes("migration_bytes_per_second_max", MIGRATION_RATE_MIN, ANY);
        rules.migration_bytes_per_second_max = rate.unwrap_or(rules.migration_bytes_per_second_max);
        rules.exclusive = table.boolean("exclusive").unwrap_or(rules.exclusive);
        (table.text("path").map(|text| FlashConfig { path: self.path(&text), size }), rules)
    }

    fn io(&self, root: &Table<'_>) -> EngineChoice {
        let words = [
            ("auto", EngineChoice::Auto),
            ("io_uring", EngineChoice::IoUring),
            ("threads", EngineChoice::Threads),
        ];
        root.table("io", "io").and_then(|table| table.word("engine", &words)).unwrap_or_default()
    }

    fn tls(&self, root: &Table<'_>) -> Option<TlsFiles> {
        let table = root.table("tls", "tls")?;
        let file = |key| table.text(key).map(|text| self.path(&text));
        for key in ["certificate", "key"].into_iter().filter(|key| !table.has(key)) {
            table.wrong(key, format!("missing key `{key}`"));
        }
        let client_authorities = file("client_authorities");
        Some(TlsFiles { certificate: file("certificate")?, key: file("key")?, client_authorities })
    }

    fn listen(&self, root: &Table<'_>, tls: &Option<TlsFiles>, have_secrets: bool) -> Vec<ListenerConfig> {
        let mut listeners = Vec::new();
        if !root.has("listen") {
            self.notes.add(
                Finding::new("listen", "missing key `listen`: expected where NBD clients connect")
                    .hint("listen = [\"unix:/run/forebay.sock\"]"),
            );
        }
        let asks_clients = tls.as_ref().is_some_and(|tls| tls.client_authorities.is_some());
        for (path, value) in root.texts_or_tables("listen", "listen") {
            let (path, text, policy) = match value {
                TextOr::Text(text) => (path, text, TlsPolicy::Off),
                TextOr::Table(table) => {
                    let words = [
                        ("off", TlsPolicy::Off),
                        ("allowed", TlsPolicy::Allowed),
                        ("required", TlsPolicy::Required),
                    ];
                    let policy = table.word("tls", &words).unwrap_or(TlsPolicy::Off);
                    let Some(text) = table.text("address") else {
                        if !table.has("address") {
                            table.wrong("address", "missing key `address`");
                        }
                        continue;
                    };
                    (table.path_of("address"), text, policy)
                }
            };
            let expected = "expected `unix:PATH` or `tcp:ADDRESS:PORT`, as in `tcp:127.0.0.1:10809`";
            let allow_remote = have_secrets || policy == TlsPolicy::Required && asks_clients;
            let listener = match text.split_once(':') {
                Some(("unix", name)) if !name.is_empty() => ListenerConfig::Unix { path: self.path(name) },
                Some(("tcp", address)) => match address.replace("localhost", "127.0.0.1").parse() {
                    Ok(address) => ListenerConfig::Tcp { address, allow_remote },
                    Err(_) => {
                        let message = format!("`{text}` is no TCP address with a port: {expected}");
                        self.notes.add(Finding::new(path, message));
                        continue;
                    }
                },
                _ => {
                    self.notes.add(Finding::new(path, format!("`{text}` is no address: {expected}")));
                    continue;
                }
            };
            listeners.push(match policy {
                TlsPolicy::Off => listener,
                _ => ListenerConfig::Tls {
                    listener: Box::new(listener),
                    required: policy == TlsPolicy::Required,
                },
            });
        }
        listeners
    }

    fn volume(&self, table: &Table<'_>, interval: Nanos) -> VolumeConfig {
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
        if let Some(bytes) = table.bytes("block_size", Bytes(512), Bytes::kib(64)) {
            match BlockSize::new(bytes) {
                Ok(size) => volume.block_size = size,
                Err(error) => table.wrong("block_size", error.to_string()),
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
        volume.secret = Self::secret(table, "secret");
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

    fn origin(&self, volume: &Table<'_>) -> Option<OriginConfig> {
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
            TextOr::Text(text) => return Some(OriginConfig::file(self.path(&text))),
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
            table.text("path").map(|text| self.path(&text))
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

    fn layers(&self, volume: &Table<'_>, name: &str) -> Vec<LayerConfig> {
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

    fn objective(&self, table: &Table<'_>, interval: Nanos) -> Option<Objective> {
        let operations = table
            .word(
                "operations",
                &[("reads", Operations::Reads), ("writes", Operations::Writes), ("all", Operations::All)],
            )
            .unwrap_or(Operations::All);
        let latency = table.span("latency", Nanos(1), HOUR);
        let iops = table.number("iops", 0.0, false, 1e9);
        let bandwidth = table.bytes("bandwidth_per_second", Bytes(1), ANY);
        let statistic = self.statistic(table);
        let window = table.span("window", Nanos::millis(100), DAY).unwrap_or(interval);
        let share = table.number("conforming_share", 0.0, false, 1.0).unwrap_or(Objective::CONFORMING_SHARE);
        let weight = table.number("weight", 0.0, false, 1e6).unwrap_or(1.0);
        let priority = table.count("priority", 0, 255).map_or(0, |priority| priority as u8);
        let targets =
            ["latency", "iops", "bandwidth_per_second"].into_iter().filter(|key| table.has(key)).count();
        if targets != 1 {
            let message = "an objective has exactly one of `latency`, `iops` and `bandwidth_per_second`";
            self.notes.add(Finding::new(table.path.clone(), message));
            return None;
        }
        if table.has("statistic") && !table.has("latency") {
            table.wrong("statistic", "`statistic` has a meaning only with `latency`");
        }
        let target = match (latency, iops, bandwidth) {
            (Some(at_most), _, _) => Target::Latency { statistic: statistic?, at_most, operations },
            (_, Some(at_least), _) => Target::IopsFloor { at_least, operations },
            (_, _, Some(bytes)) => Target::BandwidthFloor { at_least: bytes.as_f64(), operations },
            _ => return None,
        };
        Some(Objective { target, window, conforming_share: share, weight, priority })
    }

    fn statistic(&self, table: &Table<'_>) -> Option<Statistic> {
        let Some(word) = table.text("statistic") else {
            return (!table.has("statistic")).then_some(Statistic::Mean);
        };
        let percentile = word.strip_prefix('p').and_then(|number| number.parse::<f64>().ok());
        match (word.as_str(), percentile) {
            ("mean", _) => Some(Statistic::Mean),
            (_, Some(percentile)) if percentile > 0.0 && percentile <= 100.0 => {
                Some(Statistic::Percentile(percentile))
            }
            _ => {
                let message =
                    format!("`{word}` is not a statistic: expected `mean` or a percentile as in `p95`");
                table.wrong("statistic", message);
                None
            }
        }
    }

    fn disk_group(&self, table: &Table<'_>) -> DiskGroupConfig {
        let name = table.text("name").unwrap_or_else(|| {
            if !table.has("name") {
                table.wrong("name", "missing key `name`");
            }
            String::new()
        });
        let capacity =
            table.bytes("disk_capacity", Bytes::mib(1), Bytes(64 << 40)).unwrap_or(Bytes::gib(64)).get();
        let second = Nanos::secs(1);
        let kind = table.word("disk", &[("7200rpm", 0), ("15000rpm", 1), ("fixed", 2)]).unwrap_or(0);
        let service = table.span("service", Nanos(1), Nanos::secs(10));
        let mut disk = match (kind, service) {
            (0, _) => DiskParameters::rpm_7200(capacity),
            (1, _) => DiskParameters::rpm_15000(capacity),
            (_, service) => {
                if !table.has("service") {
                    table.wrong("service", "missing key `service`, which a `fixed` disk needs");
                }
                DiskParameters::fixed_service(capacity, service.unwrap_or(Nanos::millis(5)))
            }
        };
        if kind != 2 && table.has("service") {
            table.wrong("service", "`service` is for `disk = \"fixed\"`: this disk seeks and turns");
        }
        if let Some(seek) = table.span("seek_average", Nanos::ZERO, second) {
            let scale = |part: Nanos| {
                let average = u128::from(disk.seek_average.0.max(1));
                Nanos((u128::from(part.0) * u128::from(seek.0) / average) as u64)
            };
            (disk.seek_track, disk.seek_full) = match disk.seek_average {
                // A disk without seeks gets them all alike.
                Nanos::ZERO => (seek, seek),
                _ => (scale(disk.seek_track), scale(disk.seek_full)),
            };
            disk.seek_average = seek;
        }
        if let Some(rotation) = table.span("rotation", Nanos::ZERO, second) {
            disk.rotation = rotation;
        }
        if let Some(rate) = table.bytes("transfer_per_second", Bytes::kib(64), ANY) {
            (disk.rate_outer_bytes_s, disk.rate_inner_bytes_s) = (rate.get(), rate.get());
        }
        let spindles = table.count("spindles", 1, 1024).unwrap_or(4) as u32;
        let mut parameters = DiskGroupParameters::striped(spindles, disk);
        if let Some(unit) = table.bytes("stripe_unit", Bytes(512), Bytes::gib(1)) {
            parameters.stripe_unit_bytes = unit.get();
        }
        let disciplines = [
            ("fifo", QueueDiscipline::Fifo),
            ("c-look", QueueDiscipline::CLook),
            ("shortest-positioning", QueueDiscipline::ShortestPositioning),
        ];
        parameters.discipline = table.word("discipline", &disciplines).unwrap_or_default();
        parameters.queue_depth = table.count("queue_depth", 1, 65_536).unwrap_or(32) as usize;
        parameters.outstanding_max = table.count("outstanding_max", 1, 1 << 20).unwrap_or(4096) as usize;
        let raids = [
            ("0", Layout::Striped),
            ("1", Layout::Mirrored),
            ("4", Layout::DedicatedParity),
            ("5", Layout::RotatedParity),
        ];
        if let Some(layout) = table.word("raid", &raids) {
            parameters.layout = layout;
        }
        if let Some(table) = table.table("buffer", "disk_group.buffer") {
            let typical = DiskBuffer::typical();
            let bytes = |key, least, most, unset| table.bytes(key, least, most).map_or(unset, Bytes::get);
            parameters.disk.buffer = DiskBuffer {
                segments: table.count("segments", 1, 256).map_or(typical.segments, |count| count as u32),
                segment_bytes: bytes("segment", Bytes(512), Bytes::gib(1), typical.segment_bytes),
                read_ahead_bytes: bytes("read_ahead", Bytes::ZERO, Bytes::gib(1), typical.read_ahead_bytes),
                interface_bytes_s: bytes(
                    "interface_per_second",
                    Bytes::kib(64),
                    ANY,
                    typical.interface_bytes_s,
                ),
            };
        }
        let array = table.table("array", "disk_group.array").map(|table| Self::array(&table));
        DiskGroupConfig { name, parameters, array }
    }

    fn array(table: &Table<'_>) -> ArrayCache {
        if !table.has("cache") {
            table.wrong("cache", "missing key `cache`");
        }
        let cache = table.bytes("cache", Bytes::kib(256), Bytes::gib(1024)).unwrap_or(Bytes::gib(1));
        let typical = ArrayCache::new(cache.get());
        let percent = |key, most, unset: u64| {
            table.number(key, 0.0, true, most).map_or(unset, |share| (share * 100.0).round() as u64)
        };
        let dirty_percent_max = percent("dirty_share_max", 0.9, typical.dirty_percent_max);
        ArrayCache {
            page_bytes: table.bytes("page", Bytes(512), Bytes::mib(1)).map_or(typical.page_bytes, Bytes::get),
            latency: table.span("latency", Nanos::ZERO, Nanos::secs(1)).unwrap_or(typical.latency),
            dirty_percent_max,
            flush_percent: percent("flush_share", 0.9, typical.flush_percent).min(dirty_percent_max),
            flush_after: table.span("flush_after", Nanos::ZERO, HOUR).unwrap_or(typical.flush_after),
            flush_outstanding_max: table
                .count("flush_outstanding_max", 1, 65_536)
                .map_or(typical.flush_outstanding_max, |count| count as usize),
            ..typical
        }
    }

    fn observe(&self, root: &Table<'_>) -> Option<LiveConfig> {
        let mut live = LiveConfig::default();
        let Some(table) = root.table("observe", "observe") else { return Some(live) };
        if let Some(bytes) = table.bytes("curve_memory", Bytes::kib(16), Bytes::mib(16)) {
            live.curve_bytes = bytes;
        }
        if let Some(span) = table.span("epoch", Nanos::secs(1), Nanos::secs(7 * 86_400)) {
            live.epoch = span;
        }
        if let Some(span) = table.span("window", Nanos::millis(100), DAY) {
            live.window = span;
        }
        if let Some(bytes) = table.bytes("zone_size", Bytes::kib(64), Bytes::gib(1)) {
            if bytes.get().is_power_of_two() {
                live.zone_size = bytes;
            } else {
                table.wrong("zone_size", format!("{bytes} is no power of two"));
            }
        }
        table.boolean("enabled").unwrap_or(true).then_some(live)
    }

    fn secret(table: &Table<'_>, key: &'static str) -> Option<Secret> {
        let secret = Secret::new(table.text(key)?);
        if secret.is_none() {
            // What was found is not repeated: it may nearly be the secret.
            let (least, most) = (Secret::BYTES_MIN, Secret::BYTES_MAX);
            table.wrong(key, format!("no secret: expected {least} to {most} letters, digits, `-` and `_`"));
        }
        secret
    }

    fn http(&self, root: &Table<'_>) -> HttpConfig {
        let mut http = HttpConfig { listen: Some(HTTP_DEFAULT), socket: None, token: None };
        let Some(table) = root.table("http", "http") else { return http };
        http.socket = table.text("socket").map(|text| self.path(&text));
        http.token = Self::secret(&table, "token");
        if let Some(text) = table.text("listen") {
            http.listen = match text.replace("localhost", "127.0.0.1").parse() {
                _ if text == "off" => None,
                Ok(address) => Some(address),
                Err(_) => {
                    let message = format!(
                        "`{text}` is no address: expected one with a port, as in `127.0.0.1:9809`, or `off`"
                    );
                    table.wrong("listen", message);
                    None
                }
            };
        }
        http
    }

    fn history(&self, root: &Table<'_>) -> Option<HistoryConfig> {
        let table = root.table("history", "history")?;
        let retention = table.span("retention", Nanos::secs(60), Nanos::secs(3650 * 86_400));
        let rows = table.count("rows_max", 1000, 1_000_000_000);
        let Some(path) = table.text("path") else {
            if !table.has("path") {
                table.wrong("path", "missing key `path`");
            }
            return None;
        };
        let mut history = HistoryConfig::new(self.path(&path));
        history.retention = retention.map_or(history.retention, Duration::from);
        history.rows_max = rows.unwrap_or(history.rows_max);
        Some(history)
    }

    fn snapshots(&self, root: &Table<'_>) -> Option<SnapshotConfig> {
        let table = root.table("snapshots", "snapshots")?;
        let every = table.span("every", Nanos::millis(100), DAY);
        let requests = table.count("every_requests", 1, i64::MAX as u64);
        let keep = table.count("keep", 1, 500);
        let expire = table.span("expire", Nanos::secs(60), Nanos::secs(3650 * 86_400));
        let offset = table.bytes("offset", Bytes::ZERO, ANY);
        let length = table.bytes("length", Bytes::kib(32), ANY);
        let slot = table.bytes("slot", Bytes::kib(16), ANY);
        let place = match (table.has("directory"), table.has("origin")) {
            (true, false) => SnapshotPlace::Folder(self.path(&table.text("directory")?)),
            (false, true) => {
                let origin = self.origin(&table)?;
                if !table.has("length") {
                    table.wrong("length", "missing key `length`");
                }
                let range = ByteRange::new(offset.unwrap_or(Bytes::ZERO).get(), length?.get());
                SnapshotPlace::Range { origin: Box::new(origin), range, slot: slot.unwrap_or(Bytes::mib(8)) }
            }
            (true, true) => {
                table.wrong("origin", "snapshots are in one place: expected `directory` or `origin`");
                return None;
            }
            (false, false) => {
                table.wrong("directory", "missing key `directory`, or `origin`");
                return None;
            }
        };
        if let (SnapshotPlace::Folder(_), Some(key)) =
            (&place, ["offset", "length", "slot"].into_iter().find(|key| table.has(key)))
        {
            table.wrong(key, format!("`{key}` is for snapshots in a range of an `origin`"));
        }
        let mut snapshots = SnapshotConfig { place, ..SnapshotConfig::new("") };
        snapshots.every = every.map_or(snapshots.every, Duration::from);
        snapshots.every_requests = requests.unwrap_or(snapshots.every_requests);
        snapshots.keep = keep.map_or(snapshots.keep, |keep| keep as usize);
        snapshots.expire = expire.map_or(snapshots.expire, Duration::from);
        Some(snapshots)
    }

    /// The file of a table that has nothing but its `path`.
    fn kept(&self, root: &Table<'_>, name: &'static str) -> Option<PathBuf> {
        let table = root.table(name, name)?;
        if !table.has("path") {
            table.wrong("path", "missing key `path`");
        }
        table.text("path").map(|path| self.path(&path))
    }

    fn limits(&self, root: &Table<'_>) -> Limits {
        let mut limits = Limits::default();
        let Some(table) = root.table("limits", "limits") else { return limits };
        let count = |key, least, default: usize| {
            table.count(key, least, 65_536).map_or(default, |count| count as usize)
        };
        if let Some(workers) = table.count("workers", 0, 64) {
            limits.workers = workers as usize;
        }
        limits.connections = count("connections", 1, limits.connections);
        let service = &mut limits.service;
        service.requests_per_connection_max =
            count("requests_per_connection", 1, service.requests_per_connection_max);
        if let Some(bytes) = table.bytes("output_per_connection", Bytes::kib(64), Bytes::gib(1)) {
            service.output_per_connection_max = bytes;
        }
        if let Some(bytes) =
            table.bytes("held_per_worker", Bytes::mib(64), machine_memory().max(Bytes::mib(64)))
        {
            service.held_per_worker_max = bytes;
        }
        if let Some(span) = table.span("stalled_client", Nanos::secs(1), DAY) {
            service.stalled_client_max = span;
        }
        let volume = &mut limits.volume;
        volume.requests_max = count("requests_per_volume", 1, volume.requests_max);
        volume.origin_requests_max = count("origin_requests_per_volume", 1, volume.origin_requests_max);
        if let Some(span) = table.span("drain", Nanos::ZERO, HOUR) {
            limits.drain = Duration::from(span);
        }
        limits
    }

    fn control(&self, root: &Table<'_>) -> ControlSettings {
        let mut settings = ControlSettings::default();
        let Some(table) = root.table("control", "control") else { return settings };
        settings.enabled = table.boolean("enabled").unwrap_or(true);
        if let Some(span) = table.span("interval", Nanos::millis(100), HOUR) {
            settings.interval = Duration::from(span);
        }
        let defaults = toml::Value::try_from(ControlConfig::default()).expect("parameters are plain data");
        let mut rules = defaults.clone();
        let values = rules.as_table_mut().expect("parameters are a table");
        for (name, default) in defaults.as_table().expect("parameters are a table") {
            let Some(key) = super::keys_of("control").find(|key| key.name == name) else { continue };
            match default.as_table() {
                None => {
                    if let Some(value) = table.has(key.name).then(|| table.like(key.name, default)).flatten()
                    {
                        values.insert(name.clone(), value);
                    }
                }
                Some(inner) => {
                    let kind =
                        super::TABLES.iter().map(|table| table.0).find(|kind| *kind == join("control", name));
                    let Some(section) =
                        kind.and_then(|kind| table.table(key.name, kind).map(|table| (kind, table)))
                    else {
                        continue;
                    };
                    let (kind, section) = section;
                    let target = values[name].as_table_mut().expect("it is a table in the defaults");
                    for key in super::keys_of(kind).filter(|key| section.has(key.name)) {
                        if let Some(value) =
                            inner.get(key.name).and_then(|default| section.like(key.name, default))
                        {
                            target.insert(key.name.to_owned(), value);
                        }
                    }
                }
            }
        }
        match rules.try_into::<ControlConfig>() {
            Ok(rules) => settings.rules = rules,
            Err(error) => self.notes.add(Finding::new("control", error.message().to_owned())),
        }
        settings
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
