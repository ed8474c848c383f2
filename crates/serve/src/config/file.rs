//! From the text of the file to a [`Config`].

mod disk_group;
mod volume;

use super::check::check;
use super::problem::{ConfigError, Finding, Problem};
use super::reader::{Notes, Table, TextOr, join};
use super::snapshot_place::is_another;
use super::spoken::spoken;
use super::written::{opened, over_itself};
use super::{
    Config, ControlSettings, FlashRules, HTTP_DEFAULT, HistoryConfig, HttpConfig, Limits, Looks,
    SnapshotConfig, SnapshotPlace, TlsFiles, VolumeConfig, machine_memory,
};
use crate::placing::{MIGRATION_RATE_MIN, left_out};
use forebay_appliance::{EngineChoice, FlashConfig, ListenerConfig};
use forebay_control::ControlConfig;
use forebay_locality::LiveConfig;
use forebay_nbd::server::TlsPolicy;
use forebay_units::{ByteRange, Bytes, Nanos};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::de::DeTable;

const HOUR: Nanos = Nanos::secs(3600);
const DAY: Nanos = Nanos::secs(86_400);
const ANY: Bytes = Bytes(i64::MAX as u64);
const FLASH_ADMISSIONS: &str = "the name of an admission, such as `adaptive`";

pub(super) fn parse(file: &str, text: &str, folder: &Path, looks: Looks) -> Result<Config, ConfigError> {
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
    over_itself(&config, Path::new(file), &mut further);
    if looks != Looks::Nowhere {
        opened(&config, &mut further);
        is_another(&config, &mut further);
    }
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
            succession: self.kept(root, "succession"),
            limits: self.limits(root),
        }
    }

    fn flash(&self, root: &Table<'_>) -> (Option<FlashConfig>, FlashRules) {
        let mut rules = FlashRules::default();
        let Some(table) = root.table("flash", "flash") else { return (None, rules) };
        if !table.has("path") {
            table.wrong("path", "missing key `path`");
        }
        const SIZE_MIN: Bytes = Bytes::mib(4);
        // One that is wrong is told already, and is not to be missed besides.
        let size = table.bytes("size", SIZE_MIN, ANY).or(table.has("size").then_some(SIZE_MIN));
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
        let clients: Vec<String> = table.texts("leave_out");
        match left_out(&clients) {
            Ok(clients) => rules.left_out = clients,
            Err(error) => table.wrong("leave_out", error.to_string()),
        }
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
        let values = root.texts_or_tables("listen", "listen");
        if root.has("listen") && values.is_empty() {
            // What is of another kind was said.
            let said = self.notes.findings.borrow().iter().any(|finding| finding.key.starts_with("listen"));
            if !said {
                let finding = Finding::new("listen", "no address: expected where NBD clients connect");
                self.notes.add(finding.hint("listen = [\"unix:/run/forebay.sock\"]"));
            }
        }
        let asks_clients = tls.as_ref().is_some_and(|tls| tls.client_authorities.is_some());
        for (path, value) in values {
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

    fn http(&self, root: &Table<'_>) -> HttpConfig {
        let mut http = HttpConfig { listen: Some(HTTP_DEFAULT), socket: None, token: None };
        let Some(table) = root.table("http", "http") else { return http };
        http.socket = table.text("socket").map(|text| self.path(&text));
        http.token = table.secret("token");
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
        let place = match ["directory", "origin", "database"].map(|key| table.has(key)) {
            [true, false, false] => SnapshotPlace::Folder(self.path(&table.text("directory")?)),
            [false, false, true] => SnapshotPlace::Database(self.path(&table.text("database")?)),
            [false, true, false] => {
                let origin = self.origin(&table)?;
                if !table.has("length") {
                    table.wrong("length", "missing key `length`");
                }
                let range = ByteRange::new(offset.unwrap_or(Bytes::ZERO).get(), length?.get());
                SnapshotPlace::Range { origin: Box::new(origin), range, slot: slot.unwrap_or(Bytes::mib(8)) }
            }
            [false, false, false] => {
                table.wrong("directory", "missing key `directory`, or `origin`, or `database`");
                return None;
            }
            [_, has_origin, _] => {
                let key = if has_origin { "origin" } else { "database" };
                table
                    .wrong(key, "snapshots are in one place: expected `directory` or `origin` or `database`");
                return None;
            }
        };
        if let (SnapshotPlace::Folder(_) | SnapshotPlace::Database(_), Some(key)) =
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
        // One by one, so that each that is wrong is told by its own key and hides no other.
        let mut take = |section: &Table<'_>, key: &'static str, path: &[&str], value: toml::Value| {
            let mut tried = rules.clone();
            *path.iter().fold(&mut tried, |table, name| &mut table[*name]) = value;
            match ControlConfig::deserialize(tried.clone()) {
                Ok(_) => rules = tried,
                Err(error) => section.wrong(key, spoken(error.message())),
            }
        };
        for (name, default) in defaults.as_table().expect("parameters are a table") {
            let Some(key) = super::keys_of("control").find(|key| key.name == name) else { continue };
            match default.as_table() {
                None => {
                    if let Some(value) =
                        table.has(key.name).then(|| table.like(key.name, key.is_size(), default)).flatten()
                    {
                        take(&table, key.name, &[name], value);
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
                    for key in super::keys_of(kind).filter(|key| section.has(key.name)) {
                        if let Some(value) = inner
                            .get(key.name)
                            .and_then(|default| section.like(key.name, key.is_size(), default))
                        {
                            take(&section, key.name, &[name, key.name], value);
                        }
                    }
                }
            }
        }
        settings.rules = rules.try_into().expect("every value in it was tried");
        settings
    }
}
