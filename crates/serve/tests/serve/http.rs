//! A file served as in the shortest example, and what HTTP says of it.

use super::prometheus::parse;
use super::support::{Client, eventually, next_intervals};
use forebay_appliance::ListenerConfig;
use forebay_control::{Objective, Operations};
use forebay_nbd::Uri;
use forebay_origin::layer::DelayParameters;
use forebay_origin::{NbdOrigin, NbdOriginOptions, Origin, OriginOperation};
use forebay_serve::Daemon;
use forebay_serve::config::{CacheConfig, Config, LayerConfig, OnAbsent, OriginConfig, VolumeConfig};
use forebay_units::{ByteRange, Bytes, Nanos, Secret};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

fn get(stream: impl Read + Write, path: &str) -> (u16, String) {
    ask(stream, "GET", path, "")
}

pub(crate) fn ask(stream: impl Read + Write, method: &str, path: &str, body: &str) -> (u16, String) {
    ask_with(stream, "", method, path, body)
}

/// The same with a header, which ends with its line.
fn ask_with(
    mut stream: impl Read + Write,
    header: &str,
    method: &str,
    path: &str,
    body: &str,
) -> (u16, String) {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\n{header}Connection: close\r\nContent-Length: {length}"
    );
    write!(stream, "{head}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

pub(crate) fn unix(folder: &Path) -> Vec<ListenerConfig> {
    vec![ListenerConfig::Unix { path: folder.join("nbd.sock") }]
}

#[test]
fn the_shortest_example_serves_a_file() {
    let text = include_str!("../../../../examples/forebay.toml");
    assert!(text.lines().count() <= 10, "the example is short");
    let folder = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..1u32 << 18).flat_map(|word| word.to_le_bytes()).collect();
    std::fs::write(folder.path().join("db.img"), &content).unwrap();
    let text = text.replace("/tmp/forebay.sock", "f.sock");
    let mut config =
        Config::parse("forebay.toml", &text, folder.path()).unwrap_or_else(|error| panic!("{error}"));
    // Others on this machine may use the default port.
    config.http.listen = Some("127.0.0.1:0".parse().unwrap());
    // A socket that a daemon which was killed left behind.
    drop(std::os::unix::net::UnixListener::bind(folder.path().join("f.sock")).unwrap());
    let daemon = Daemon::start(config.clone()).unwrap();
    let uri = daemon.uris("db").remove(0);
    let mut client = Client::connect(&uri);
    assert_eq!(client.read(4096, 8192).unwrap(), content[4096..12_288]);
    client.write(100, vec![7; 5000]).unwrap();
    assert_eq!(client.read(100, 5000).unwrap(), vec![7; 5000]);
    let (status, body) = get(TcpStream::connect(daemon.http_address().unwrap()).unwrap(), "/api/v1/status");
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, body["schema"].as_str()), (200, Some("forebay.status/1")));
    assert_eq!(body["volumes"][0]["uris"][0].as_str(), Some(uri.as_str()));
    assert!(
        matches!(Daemon::start(config), Err(error) if error.to_string().contains("locked") || error.to_string().contains("db"))
    );
    drop(client);
    daemon.shutdown();
    assert!(!folder.path().join("f.sock").exists(), "the socket goes with the daemon");
    assert_eq!(std::fs::read(folder.path().join("db.img")).unwrap()[100..5100], [7; 5000]);
}

#[test]
fn metrics_are_valid_reconcile_and_rise() {
    let folder = tempfile::tempdir().unwrap();
    let mut cached = VolumeConfig::new("cached \"one\"", OriginConfig::Memory { size: Bytes::mib(4) });
    cached.cache = CacheConfig::Fixed(Bytes::mib(1));
    let bound = Nanos::micros(1_234);
    cached.objectives = vec![
        Objective::mean_latency(bound, Operations::Reads).over(Nanos::millis(100)),
        Objective::iops_floor(5.0).over(Nanos::millis(100)),
    ];
    let plain = VolumeConfig::new("plain", OriginConfig::Memory { size: Bytes::mib(4) });
    let mut config = Config::new(vec![cached, plain]);
    config.listen = unix(folder.path());
    config.http.socket = Some(folder.path().join("http.sock"));
    config.control.interval = Duration::from_millis(100);
    let daemon = Daemon::start(config).unwrap();
    next_intervals(&daemon);
    let metrics = || {
        let (status, text) = get(UnixStream::connect(folder.path().join("http.sock")).unwrap(), "/metrics");
        assert_eq!(status, 200);
        parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    };
    let before = metrics();
    let began = Instant::now();
    let mut reader = Client::connect(&daemon.uris("cached \"one\"")[0]);
    let mut other = Client::connect(&daemon.uris("plain")[0]);
    // 3 rounds of 100 reads of 2 blocks each: 600 look-ups.
    for round in 0..3 {
        for block in 0..100 {
            reader.read(block * 8192, 8192).unwrap();
        }
        other.read(round * 4096, 4096).unwrap();
    }
    reader.write(0, vec![1; 4096]).unwrap();
    reader.submit(OriginOperation::Flush);
    reader.wait().unwrap();
    let after = metrics();
    let took = began.elapsed();
    next_intervals(&daemon);
    let later = metrics();
    let of = |samples: &std::collections::BTreeMap<String, f64>, series: &str| {
        *samples.get(series).unwrap_or_else(|| panic!("{series} in {samples:#?}"))
    };
    let volume = r#"volume="cached \"one\"""#;
    let lookups = |samples: &_| -> f64 {
        ["hit", "miss", "bypass"]
            .iter()
            .map(|r| of(samples, &format!("forebay_cache_lookups_total{{{volume},result=\"{r}\"}}")))
            .sum()
    };
    assert_eq!(lookups(&after) - lookups(&before), 600.0, "every block asked for is counted once");
    let requests = |samples: &_| -> f64 {
        ["hit", "miss"]
            .iter()
            .map(|r| of(samples, &format!("forebay_cache_requests_total{{{volume},result=\"{r}\"}}")))
            .sum()
    };
    assert_eq!(requests(&after), 300.0);
    assert_eq!(of(&after, &format!("forebay_volume_requests_total{{{volume},op=\"read\"}}")), 300.0);
    let of_op = |name: &str, op: &str| of(&after, &format!("forebay_volume_{name}{{{volume},op=\"{op}\"}}"));
    assert_eq!(["write", "flush", "trim"].map(|op| of_op("requests_total", op)), [1.0, 1.0, 0.0]);
    let bytes = ["read", "write"].map(|op| of_op("request_bytes_total", op));
    assert_eq!(bytes, [300.0 * 8192.0, 4096.0]);
    assert_eq!(of_op("request_duration_seconds_count", "flush"), 1.0);
    // One after the other, they took no longer than all of it.
    let seconds = of_op("request_duration_seconds_sum", "read");
    assert!(seconds > 0.0 && seconds <= took.as_secs_f64(), "{seconds} of {took:?}");
    let since_1970 = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    assert!((0.0..3_600.0).contains(&(since_1970 - of(&after, "forebay_start_time_seconds"))));
    // The interval that runs is in the histogram, and it stays when it ends.
    let count = format!("forebay_volume_request_duration_seconds_count{{{volume},op=\"read\"}}");
    assert_eq!((of(&after, &count), of(&later, &count)), (300.0, 300.0));
    let edge =
        format!("forebay_volume_request_duration_seconds_bucket{{{volume},op=\"read\",le=\"0.001234\"}}");
    assert!(of(&later, &edge) <= 300.0);
    let size = |op: &str, end: &str, le: &str| {
        of(&after, &format!("forebay_volume_request_size_bytes_{end}{{{volume},op=\"{op}\"{le}}}"))
    };
    let reads = [",le=\"4096\"", ",le=\"8192\"", ",le=\"+Inf\""].map(|le| size("read", "bucket", le));
    assert_eq!(reads, [0.0, 300.0, 300.0]);
    assert_eq!((size("read", "sum", ""), size("read", "count", "")), (300.0 * 8192.0, 300.0));
    assert_eq!((size("write", "bucket", ",le=\"4096\""), size("write", "sum", "")), (1.0, 4096.0));
    assert_eq!(of(&later, "forebay_cache_requests_total{volume=\"plain\",result=\"miss\"}"), 3.0);
    // 200 blocks, which are counted to some per cent.
    let working_set = of(&later, &format!("forebay_volume_working_set_bytes{{{volume}}}")) / 4096.0;
    assert!((190.0..=210.0).contains(&working_set), "{working_set} blocks");
    for (series, value) in &after {
        let is_counter = ["_total", "_bucket", "_count", "_sum"]
            .iter()
            .any(|s| series.split('{').next().unwrap().ends_with(s));
        assert!(!is_counter || later[series] >= *value, "{series} fell from {value} to {}", later[series]);
    }
    let (status, body) =
        get(UnixStream::connect(folder.path().join("http.sock")).unwrap(), "/api/v1/explain/nobody");
    assert_eq!(status, 404, "{body}");
    let refused = |method: &str, path: &str, body: &str| {
        let mut stream = UnixStream::connect(folder.path().join("http.sock")).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        // It may have been answered before all of it was sent.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["schema"], "forebay.error/1", "{answer}");
        head.to_ascii_lowercase()
    };
    let other = refused("PUT", "/api/v1/status", "");
    assert!(other.starts_with("http/1.1 405") && other.contains("allow: get"), "{other}");
    assert!(refused("DELETE", "/api/v1/reservations/abc", "").starts_with("http/1.1 400"));
    assert!(refused("POST", "/api/v1/reservations", &"x".repeat(3 << 20)).starts_with("http/1.1 413"));
    let curve = get(
        UnixStream::connect(folder.path().join("http.sock")).unwrap(),
        "/api/v1/volumes/cached%20%22one%22/curve",
    );
    let curve: serde_json::Value = serde_json::from_str(&curve.1).unwrap();
    assert_eq!((curve["schema"].as_str(), curve["accesses"].as_u64()), (Some("forebay.curve/1"), Some(600)));
    let last = curve["curve"].as_array().unwrap().last().unwrap();
    assert_eq!(last["size_bytes"].as_u64(), last["size_blocks"].as_u64().map(|blocks| blocks * 4096));
    assert_eq!(
        get(UnixStream::connect(folder.path().join("http.sock")).unwrap(), "/healthz"),
        (200, "ok\n".to_owned())
    );
    daemon.shutdown();
    assert!(!folder.path().join("http.sock").exists());
}

#[test]
fn how_long_requests_are_is_told_of_each_interval_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::new(vec![VolumeConfig::new("db", OriginConfig::Memory { size: Bytes::mib(4) })]);
    config.listen = unix(folder.path());
    config.http.socket = Some(folder.path().join("http.sock"));
    config.control.interval = Duration::from_millis(100);
    let daemon = Daemon::start(config).unwrap();
    let mut client = Client::connect(&daemon.uris("db")[0]);
    let deadline = Instant::now() + Duration::from_secs(30);
    // Reads of 600 and 5,000 bytes, then of 512 alone; writes of 512, then none.
    let mut until = |sizes: &[u64], writes: bool, wanted: [serde_json::Value; 2]| loop {
        for bytes in sizes {
            client.read(0, *bytes).unwrap();
        }
        if writes {
            client.write(0, vec![1; 512]).unwrap();
        }
        let answer = get(UnixStream::connect(folder.path().join("http.sock")).unwrap(), "/api/v1/status");
        let volume = serde_json::from_str::<serde_json::Value>(&answer.1).unwrap()["volumes"][0].take();
        let told = ["read_size", "write_size"].map(|key| {
            let size = &volume[key];
            let edges: Vec<_> = size["octaves"].as_array().unwrap().iter().map(|octave| &octave[0]).collect();
            serde_json::json!([edges, size["p99_bytes"]])
        });
        if told == wanted {
            return volume;
        }
        assert!(Instant::now() < deadline, "{told:?}, expected {wanted:?}");
    };
    use serde_json::json;
    let both = until(&[600, 5_000], true, [json!([[1024, 8192], 8192]), json!([[512], 512])]);
    let mean = both["read_size"]["mean_bytes"].as_f64().unwrap();
    assert!((600.0..=5_000.0).contains(&mean), "{both}");
    let one = until(&[512], false, [json!([[512], 512]), json!([[], null])]);
    assert_eq!(one["read_size"]["mean_bytes"], 512.0);
    assert_eq!(one["write_size"]["mean_bytes"], json!(null));
    daemon.shutdown();
}

#[test]
fn who_fills_tcp_with_silence_keeps_nobody_from_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::new(vec![VolumeConfig::new("a", OriginConfig::Memory { size: Bytes::mib(1) })]);
    config.listen = unix(folder.path());
    config.http.listen = Some("127.0.0.1:0".parse().unwrap());
    config.http.socket = Some(folder.path().join("http.sock"));
    let daemon = Daemon::start(config).unwrap();
    let address = daemon.http_address().unwrap();
    let silent: Vec<TcpStream> = (0..80).map(|_| TcpStream::connect(address).unwrap()).collect();
    for _ in 0..3 {
        let stream = UnixStream::connect(folder.path().join("http.sock")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(get(stream, "/healthz"), (200, "ok\n".to_owned()));
    }
    drop(silent);
    daemon.shutdown();
}

#[test]
fn an_absent_origin_is_waited_for_and_seen() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("late.img");
    let mut late = VolumeConfig::new("late", OriginConfig::file(&path));
    late.on_absent = OnAbsent::Wait;
    let there = VolumeConfig::new("there", OriginConfig::Memory { size: Bytes::mib(1) });
    let mut config = Config::new(vec![late.clone(), there.clone()]);
    config.listen = unix(folder.path());
    let daemon = Daemon::start(config).unwrap();
    let status = daemon.status();
    assert_eq!((status.volumes[0].state.as_str(), status.volumes[1].state.as_str()), ("absent", "unjudged"));
    assert!(daemon.metrics().contains("forebay_origin_up{volume=\"late\"} 0\n"), "{}", daemon.metrics());
    assert!(status.volumes[0].origin.reason.as_ref().unwrap().contains("does not exist"));
    Client::connect(&daemon.uris("there")[0]).read(0, 4096).unwrap();
    std::fs::write(&path, vec![9; 65_536]).unwrap();
    eventually("the late volume", Duration::from_secs(20), || daemon.appliance().volumes().len() == 2);
    assert_eq!(Client::connect(&daemon.uris("late")[0]).read(0, 4096).unwrap(), vec![9; 4096]);
    daemon.shutdown();
    std::fs::remove_file(&path).unwrap();
    late.on_absent = OnAbsent::Fail;
    let mut config = Config::new(vec![late, there]);
    config.listen = unix(folder.path());
    assert!(Daemon::start(config).is_err());
    assert!(!folder.path().join("nbd.sock").exists(), "nothing listens after a start that failed");
}

#[test]
fn shutdown_lets_what_is_in_flight_complete() {
    let folder = tempfile::tempdir().unwrap();
    let mut slow = VolumeConfig::new("slow", OriginConfig::Memory { size: Bytes::mib(1) });
    slow.layers =
        vec![LayerConfig::Delay(DelayParameters { write: Nanos::millis(300), ..DelayParameters::default() })];
    let mut config = Config::new(vec![slow]);
    config.listen = unix(folder.path());
    let daemon = Daemon::start(config).unwrap();
    let mut client = Client::connect(&daemon.uris("slow")[0]);
    client.submit(forebay_origin::OriginOperation::Write { offset: 0, data: vec![1; 4096], fua: false });
    eventually("the write arrives", Duration::from_secs(10), || {
        daemon.status().volumes[0].requests_in_flight == 1
    });
    assert_eq!(daemon.shutdown(), forebay_appliance::Drained::Completely);
    client.wait().expect("it was acknowledged before the end");
}

#[test]
fn an_order_takes_no_memory_of_the_controller_or_of_who_is_absent() {
    let folder = tempfile::tempdir().unwrap();
    let memory = |name: &str| VolumeConfig::new(name, OriginConfig::Memory { size: Bytes::mib(8) });
    let mut fixed = memory("fixed");
    fixed.cache = CacheConfig::Fixed(Bytes::mib(1));
    let mut late = VolumeConfig::new("late", OriginConfig::file(folder.path().join("late.img")));
    (late.cache, late.on_absent) = (CacheConfig::Fixed(Bytes::mib(3)), OnAbsent::Wait);
    for (other, enabled) in [(memory("controlled"), true), (late, true), (memory("controlled"), false)] {
        let name = other.name.clone();
        let mut config = Config::new(vec![fixed.clone(), other]);
        config.cache_memory = Bytes::mib(4);
        config.listen = unix(folder.path());
        config.http.socket = Some(folder.path().join("http.sock"));
        config.control.enabled = enabled;
        let daemon = Daemon::start(config).unwrap();
        let order = |bytes: u64| {
            let stream = UnixStream::connect(daemon.http_socket().unwrap()).unwrap();
            ask(stream, "PUT", "/api/v1/volumes/fixed/quota", &format!("{{\"bytes\": {bytes}}}")).0
        };
        // Three of the four mebibytes are the controller's, or of the volume that is not there yet.
        let expected = if name == "controlled" && !enabled { 200 } else { 409 };
        assert_eq!((order(2 << 20), order(1 << 20)), (expected, 200), "{name}");
        daemon.shutdown();
    }
}

#[test]
fn a_person_pauses_the_controller_and_resumes_it() {
    let folder = tempfile::tempdir().unwrap();
    let memory = |name: &str| VolumeConfig::new(name, OriginConfig::Memory { size: Bytes::mib(8) });
    let mut fixed = memory("fixed");
    fixed.cache = CacheConfig::Fixed(Bytes::mib(1));
    let mut config = Config::new(vec![fixed, memory("controlled")]);
    config.cache_memory = Bytes::mib(4);
    config.listen = unix(folder.path());
    config.http.listen = Some("127.0.0.1:0".parse().unwrap());
    config.http.socket = Some(folder.path().join("http.sock"));
    config.control.interval = Duration::from_millis(100);
    let daemon = Daemon::start(config).unwrap();
    let put = |path: &str, body: &str| {
        let stream = UnixStream::connect(daemon.http_socket().unwrap()).unwrap();
        let (status, body) = ask(stream, "PUT", path, body);
        (status, serde_json::from_str::<serde_json::Value>(&body).unwrap())
    };
    let switch = |on: bool| put("/api/v1/controller", &format!("{{\"enabled\": {on}}}"));
    let quota = |volume: &str, mib: u64| {
        put(&format!("/api/v1/volumes/{volume}/quota"), &format!("{{\"bytes\": {}}}", mib << 20)).0
    };
    let tcp = TcpStream::connect(daemon.http_address().unwrap()).unwrap();
    let (status, answer) = ask(tcp, "PUT", "/api/v1/controller", "{\"enabled\": false}");
    assert!(status == 403 && answer.contains("unix socket"), "{status} {answer}");
    assert_eq!(daemon.status().controller.switched_at_unix_ms, None);
    assert_eq!(quota("controlled", 2), 409, "it is the controller's");
    for body in ["", "{}", "{\"enabled\": 1}", "{\"enabled\": true, \"for_s\": 60}"] {
        assert_eq!(put("/api/v1/controller", body).0, 400, "{body}");
    }

    let (status, answer) = switch(false);
    assert_eq!((status, answer["schema"].as_str()), (200, Some("forebay.controller/1")));
    assert_eq!((answer["enabled"].as_bool(), answer["was_enabled"].as_bool()), (Some(false), Some(true)));
    assert_eq!(answer["state"], "disabled");
    let paused_at = daemon.status().controller.switched_at_unix_ms.unwrap();
    assert!(daemon.metrics().contains("forebay_controller_enabled 0\n"), "{}", daemon.metrics());
    assert_eq!(quota("controlled", 2), 200);
    // The controller, which would grant nothing to who asks for nothing, lets it be, and observes all the same.
    next_intervals(&daemon);
    next_intervals(&daemon);
    assert_eq!(daemon.status().volumes[1].quota_bytes, 2 << 20);
    let (status, answer) = switch(false);
    assert_eq!((status, answer["was_enabled"].as_bool()), (200, Some(false)));
    assert_eq!(daemon.status().controller.switched_at_unix_ms, Some(paused_at), "it is paused since then");

    // What is the controller's is in use: granted once more, caches would take more than there is.
    assert_eq!((quota("controlled", 0), quota("fixed", 2)), (200, 200));
    let (status, answer) = switch(true);
    assert!(status == 409 && answer["error"].as_str().unwrap().contains("2MiB"), "{status} {answer}");
    assert!(daemon.metrics().contains("forebay_controller_enabled 0\n"));
    assert_eq!(quota("fixed", 1), 200);
    let (status, answer) = switch(true);
    assert_eq!((status, answer["state"].as_str()), (200, Some("running")), "{answer}");
    assert!(daemon.metrics().contains("forebay_controller_enabled 1\n"));
    assert_eq!(quota("controlled", 2), 409);
    daemon.shutdown();
}

#[test]
fn without_a_token_nothing_is_changed_over_tcp() {
    let folder = tempfile::tempdir().unwrap();
    let mut volume = VolumeConfig::new("db", OriginConfig::Memory { size: Bytes::mib(4) });
    volume.cache = CacheConfig::Fixed(Bytes::mib(1));
    let mut config = Config::new(vec![volume]);
    config.listen = unix(folder.path());
    config.http.listen = Some("127.0.0.1:0".parse().unwrap());
    let daemon = Daemon::start(config).unwrap();
    for (method, path) in [
        ("PUT", "controller"),
        ("POST", "reservations"),
        ("DELETE", "reservations/1"),
        ("POST", "volumes/db/prewarm"),
        ("DELETE", "volumes/db/prewarm"),
        ("POST", "volumes/db/lease"),
        ("POST", "volumes/db/placement"),
        ("POST", "volumes/db/route"),
        ("PUT", "volumes/db/quota"),
        ("POST", "volumes/db/drain"),
    ] {
        let stream = TcpStream::connect(daemon.http_address().unwrap()).unwrap();
        let (status, answer) = ask(stream, method, &format!("/api/v1/{path}"), "{}");
        assert!(status == 403 && answer.contains("without a token"), "{method} {path}: {status} {answer}");
    }
    daemon.shutdown();
}

/// Who forgets the names of what is ordered would have the order understood by the places of its values.
#[test]
fn an_order_that_is_a_list_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut volume = VolumeConfig::new("db", OriginConfig::Memory { size: Bytes::mib(4) });
    volume.cache = CacheConfig::Fixed(Bytes::mib(1));
    let mut config = Config::new(vec![volume]);
    config.listen = unix(folder.path());
    config.http.socket = Some(folder.path().join("http.sock"));
    config.reservations = Some(folder.path().join("reservations.json"));
    config.leases = Some(folder.path().join("leases.json"));
    let daemon = Daemon::start(config).unwrap();
    for (method, path, body) in [
        ("PUT", "controller", "[false]"),
        ("POST", "reservations", r#"[["db"], 100.0, null, 60.0, null, 1.0]"#),
        ("POST", "volumes/db/prewarm", r#"[[{"offset": 0, "length": 4096}], null, null, null, 1.0]"#),
        ("POST", "volumes/db/prewarm", r#"{"ranges": [[0, 4096]]}"#),
        ("POST", "volumes/db/lease", r#"[1, "other", 1.0]"#),
        ("POST", "volumes/db/placement", r#"["demand"]"#),
        ("POST", "volumes/db/route", r#"["nbd://127.0.0.1:1/db"]"#),
        ("PUT", "volumes/db/quota", "[4096]"),
        ("POST", "volumes/db/drain", "[1000]"),
    ] {
        let stream = UnixStream::connect(folder.path().join("http.sock")).unwrap();
        let (status, answer) = ask(stream, method, &format!("/api/v1/{path}"), body);
        let told = answer.contains("invalid type: sequence, expected an object at line 1");
        assert!(status == 400 && told, "{method} {path} {body}: {status} {answer}");
    }
    let status = daemon.status();
    assert_eq!((status.volumes.len(), status.reservations.len()), (1, 0));
    assert_eq!(status.volumes[0].quota_bytes, Bytes::mib(1).get());
    daemon.shutdown();
}

#[test]
fn where_nothing_is_left_to_a_controller_there_is_none_to_pause_or_to_resume() {
    let folder = tempfile::tempdir().unwrap();
    for enabled in [false, true] {
        let mut fixed = VolumeConfig::new("fixed", OriginConfig::Memory { size: Bytes::mib(8) });
        fixed.cache = CacheConfig::Fixed(Bytes::mib(1));
        let mut config = Config::new(vec![fixed]);
        config.cache_memory = Bytes::mib(4);
        config.listen = unix(folder.path());
        config.control.enabled = enabled;
        let daemon = Daemon::start(config).unwrap();
        // One that judges and grants nothing is paused, again, and resumed as it began.
        for on in [false, false, true] {
            assert_eq!(daemon.set_controller_enabled(on).is_ok(), enabled);
        }
        daemon.shutdown();
    }
}

#[test]
fn over_tcp_a_token_lets_in_and_nothing_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let mut volume = VolumeConfig::new("db", OriginConfig::Memory { size: Bytes::mib(4) });
    volume.cache = CacheConfig::Fixed(Bytes::mib(1));
    volume.secret = Secret::new("0123456789abcdef");
    let mut config = Config::new(vec![volume]);
    config.cache_memory = Bytes::mib(8);
    config.listen = unix(folder.path());
    config.http.listen = Some("127.0.0.1:0".parse().unwrap());
    config.http.token = Secret::new("the-token-of-this-test");
    let daemon = Daemon::start(config).unwrap();
    let address = daemon.http_address().unwrap();
    let ask = |header: &str, method: &str, path: &str, body: &str| {
        ask_with(TcpStream::connect(address).unwrap(), header, method, path, body)
    };
    let wrong =
        ["", "Authorization: Bearer the-token-of-this-tesu\r\n", "Authorization: the-token-of-this-test\r\n"];
    let quota = "/api/v1/volumes/db/quota";
    for header in wrong {
        for (method, path) in [("GET", "/api/v1/status"), ("GET", "/metrics"), ("PUT", quota), ("GET", "/x")]
        {
            let (status, body) = ask(header, method, path, "{\"bytes\": 4096}");
            assert!(status == 401 && body.contains("token"), "{header} {path}: {status} {body}");
        }
        assert_eq!(ask(header, "GET", "/healthz", "").0, 200);
    }
    let good = "Authorization: Bearer the-token-of-this-test\r\n";
    assert_eq!(ask(good, "GET", "/metrics", "").0, 200);
    let quota_of = || daemon.status().volumes[0].quota_bytes;
    assert_eq!(quota_of(), 1 << 20, "nobody changed it");
    assert_eq!(ask(good, "PUT", quota, "{\"bytes\": 2097152}").0, 200);
    assert_eq!(quota_of(), 2 << 20);
    for (body, status) in [("{}", 400), ("{\"bytes\": -1}", 400), ("{\"bytes\": 99999999}", 409)] {
        assert_eq!(ask(good, "PUT", quota, body).0, status, "{body}");
    }
    let (status, body) = ask(good, "POST", "/api/v1/volumes/db/prewarm", "{\"ranges\": [{\"offset\": 0}]}");
    assert!(status == 400 && body.contains("length"), "{body}");
    assert_eq!(ask(good, "POST", "/api/v1/volumes/db/drain", "{\"within_ms\": 50001}").0, 400);
    // The volume opens to those who know its secret, and to no other name.
    let uri = |export: &str| Uri::unix(folder.path().join("nbd.sock"), export);
    let options = NbdOriginOptions { connections: 1, ..NbdOriginOptions::default() };
    for export in ["", "db", "db.", "db.0123456789abcdeg", "0123456789abcdef", "db.0123456789abcdef.x"] {
        assert!(NbdOrigin::connect(&uri(export), options).is_err(), "{export}");
    }
    let client = NbdOrigin::connect(&uri("db.0123456789abcdef"), options).unwrap();
    // Its worker takes it after it was let in.
    let is_taken = || daemon.status().volumes[0].connections == 1;
    eventually("its connection is taken", Duration::from_secs(20), is_taken);
    let (status, body) = ask(good, "POST", "/api/v1/volumes/db/drain", "{\"within_ms\": 5000}");
    assert!(status == 200 && body.contains("\"completely\":true"), "{body}");
    drop(client);
    assert!(NbdOrigin::connect(&uri("db.0123456789abcdef"), options).is_err(), "it is drained");
    daemon.shutdown();
}

#[test]
fn who_stops_does_not_wait_for_a_drain_that_was_ordered() {
    let folder = tempfile::tempdir().unwrap();
    let mut volume = VolumeConfig::new("db", OriginConfig::Memory { size: Bytes::mib(1) });
    volume.layers = vec![LayerConfig::Delay(DelayParameters {
        read: Nanos::secs(3600),
        write: Nanos::ZERO,
        flush: Nanos::ZERO,
        jitter: Nanos::ZERO,
        seed: 1,
    })];
    let mut config = Config::new(vec![volume]);
    config.listen = unix(folder.path());
    config.http.socket = Some(folder.path().join("http.sock"));
    config.limits.drain = Duration::from_millis(100);
    let daemon = Daemon::start(config).unwrap();
    let mut client = Client::impatient(&daemon.uris("db")[0]);
    client.submit(OriginOperation::Read { range: ByteRange::new(0, 4096) });
    let seen = |daemon: &Daemon| daemon.status().volumes.remove(0);
    eventually("the request is there", Duration::from_secs(20), || seen(&daemon).requests_in_flight == 1);
    let stream = UnixStream::connect(daemon.http_socket().unwrap()).unwrap();
    let order = || ask(stream, "POST", "/api/v1/volumes/db/drain", "{\"within_ms\": 50000}");
    std::thread::scope(|scope| {
        let ordered = scope.spawn(order);
        eventually("it is drained", Duration::from_secs(20), || seen(&daemon).state == "drained");
        let (sender, ended) = channel();
        scope.spawn(move || sender.send(daemon.shutdown()));
        assert!(ended.recv_timeout(Duration::from_secs(20)).is_ok(), "it waits for the drain");
        let _ = ordered.join();
    });
}

#[test]
fn as_many_clients_are_let_in_as_configured_and_change_nothing_of_what_is_read_only() {
    let folder = tempfile::tempdir().unwrap();
    let mut volume = VolumeConfig::new("db", OriginConfig::Memory { size: Bytes::mib(1) });
    volume.read_only = true;
    let mut config = Config::new(vec![volume]);
    config.listen = unix(folder.path());
    config.limits.connections = 1;
    let daemon = Daemon::start(config).unwrap();
    let uri = daemon.uris("db").remove(0).parse().unwrap();
    let options = NbdOriginOptions { connections: 1, ..NbdOriginOptions::default() };
    let first = NbdOrigin::connect(&uri, options).unwrap();
    assert!(first.traits().read_only);
    assert!(NbdOrigin::connect(&uri, options).is_err(), "one is the most");
    drop(first);
    daemon.shutdown();
}

#[test]
fn who_drains_is_told_that_somebody_got_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let mut volume = VolumeConfig::new("db", OriginConfig::Memory { size: Bytes::mib(1) });
    let delay = DelayParameters { read: Nanos::secs(3_600), ..DelayParameters::default() };
    volume.layers = vec![LayerConfig::Delay(delay)];
    volume.cache = CacheConfig::Fixed(Bytes::kib(64));
    let mut config = Config::new(vec![volume]);
    config.listen = unix(folder.path());
    config.http.socket = Some(folder.path().join("http.sock"));
    config.limits.drain = Duration::from_millis(1);
    let daemon = Daemon::start(config).unwrap();
    let order = |what: &str, body: &str| {
        let stream = UnixStream::connect(daemon.http_socket().unwrap()).unwrap();
        let (status, answer) = ask(stream, "POST", &format!("/api/v1/volumes/db/{what}"), body);
        (status, serde_json::from_str::<serde_json::Value>(&answer).unwrap())
    };
    let mut client = Client::impatient(&daemon.uris("db")[0]);
    client.submit(OriginOperation::Read { range: ByteRange::new(0, 4096) });
    eventually("the request is there", Duration::from_secs(20), || {
        daemon.status().volumes[0].requests_in_flight == 1
    });
    // Ranges that are none are left out; more than fit into an order are refused.
    let end = format!(r#"{{"offset": {}, "length": 4096}}"#, u64::MAX - 100);
    let (status, answer) =
        order("prewarm", &format!(r#"{{"ranges": [{end}, {{"offset": 0, "length": 0}}]}}"#));
    assert_eq!((status, answer["ranges"].as_u64()), (200, Some(0)), "{answer}");
    let many = vec![r#"{"offset":0,"length":1}"#; 262_145].join(",");
    let (status, answer) = order("prewarm", &format!(r#"{{"ranges": [{many}]}}"#));
    assert!(status == 400 && answer["error"].as_str().unwrap().contains("at most 262144"), "{status}");
    let (status, answer) = order("drain", r#"{"within_ms": 1}"#);
    assert_eq!((status, answer["completely"].as_bool()), (200, Some(false)), "{answer}");
    // Its memory is free, also once somebody asks again.
    assert_eq!(order("drain", r#"{"within_ms": 1}"#).0, 404);
    let status = daemon.status();
    assert_eq!((status.volumes[0].quota_bytes, status.cache.granted_bytes), (0, 0));
    daemon.shutdown();
}

#[test]
fn a_slow_disk_under_reservations_keeps_nothing_else_from_being_answered() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("reservations.json");
    // Whoever writes it waits for who reads it.
    let pipe = folder.path().join("reservations.json.new");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let volume = VolumeConfig::new("db", OriginConfig::Memory { size: Bytes::mib(1) });
    let mut config = Config::new(vec![volume]);
    config.listen = unix(folder.path());
    config.http.socket = Some(folder.path().join("http.sock"));
    config.control.enabled = false;
    config.reservations = Some(file);
    let daemon = Daemon::start(config).unwrap();
    let connect = || UnixStream::connect(daemon.http_socket().unwrap()).unwrap();
    let mut asking = connect();
    let body = r#"{"volumes": ["db"], "iops": 1000, "duration_s": 60}"#;
    let head = format!("Host: x\r\nConnection: close\r\nContent-Length: {}", body.len());
    write!(asking, "POST /api/v1/reservations HTTP/1.1\r\n{head}\r\n\r\n{body}").unwrap();
    std::thread::scope(|scope| {
        let (sender, healthy) = channel();
        // The second comes behind what was asked first, at the latest.
        scope.spawn(move || sender.send([(); 2].map(|()| ask(connect(), "GET", "/healthz", "").0)));
        let found = healthy.recv_timeout(Duration::from_secs(20));
        let mut text = String::new();
        std::fs::File::open(&pipe).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(found, Ok([200, 200]), "they wait for the disk");
        assert!(text.contains("forebay.reservations/1"), "{text}");
    });
    // A pipe is no stable storage.
    let mut answer = String::new();
    asking.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
    daemon.shutdown();
}
