//! Leases of a daemon: raised over its socket only, kept over a restart, and what watches has them.

use super::http::ask;
use super::support::{Client, eventually};
use forebay_nbd::Uri;
use forebay_origin::layer::DelayParameters;
use forebay_origin::{NbdOrigin, NbdOriginOptions, OriginOperation};
use forebay_serve::config::{CacheConfig, Config, LayerConfig, OriginConfig, VolumeConfig};
use forebay_serve::lease::LeaseHolder;
use forebay_serve::{Daemon, StartError};
use forebay_units::{Bytes, Nanos};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

fn watching(folder: &Path) -> Config {
    let image = folder.join("db.img");
    if !image.exists() {
        std::fs::write(&image, vec![0; 1 << 20]).unwrap();
    }
    let mut config = Config::new(vec![VolumeConfig::new("db", OriginConfig::file(image))]);
    config.listen = super::http::unix(folder);
    config.http.socket = Some(folder.join("http.sock"));
    config.http.listen = Some("127.0.0.1:0".parse().unwrap());
    config.leases = Some(folder.join("leases.json"));
    config.watching().unwrap()
}

/// The URI of the volume as the holder of an epoch names it.
fn at_epoch(daemon: &Daemon, epoch: u64) -> String {
    let mut uri: Uri = daemon.uris("db").remove(0).parse().unwrap();
    uri.export = format!("db@{epoch}");
    uri.to_string()
}

fn raise(daemon: &Daemon, body: &str) -> (u16, serde_json::Value) {
    let stream = UnixStream::connect(daemon.http_socket().unwrap()).unwrap();
    let (status, body) = ask(stream, "POST", "/api/v1/volumes/db/lease", body);
    (status, serde_json::from_str(&body).unwrap())
}

#[test]
fn who_is_kept_out_by_a_lease_at_its_start_waits_until_it_is_let_in_or_sent_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    [&one, &other].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    let storage = Daemon::start(watching(&one)).unwrap();
    assert_eq!(raise(&storage, r#"{"epoch": 1, "holder": "named"}"#).0, 200);
    // No routes are kept, and it is not said to wait.
    let origin = |uri: String| OriginConfig::Nbd {
        uri: uri.parse().unwrap(),
        options: NbdOriginOptions::default(),
        tls: Default::default(),
    };
    let mut config = Config::new(vec![VolumeConfig::new("db", origin(storage.uris("db").remove(0)))]);
    config.listen = super::http::unix(&other);
    config.http.socket = Some(other.join("http.sock"));
    let proxy = Daemon::start(config.clone()).unwrap();
    assert_eq!(proxy.status().volumes[0].state, "absent");
    let sent = serde_json::json!({ "to": at_epoch(&storage, 1), "epoch": 1, "settled": true });
    let stream = UnixStream::connect(proxy.http_socket().unwrap()).unwrap();
    let (status, answer) = ask(stream, "POST", "/api/v1/volumes/db/route", &sent.to_string());
    assert_eq!(status, 200, "{answer}");
    Client::connect(&proxy.uris("db")[0]).write(0, vec![7; 4096]).unwrap();
    proxy.shutdown();
    let proxy = Daemon::start(config).unwrap();
    assert_eq!(proxy.status().volumes[0].state, "absent");
    assert_eq!(raise(&storage, r#"{"epoch": 2, "holder": "original"}"#).0, 200);
    let within = Duration::from_secs(20);
    eventually("it is let in", within, || proxy.status().volumes[0].state != "absent");
    assert_eq!(Client::connect(&proxy.uris("db")[0]).read(0, 4096).unwrap(), vec![7; 4096]);
    proxy.shutdown();
    storage.shutdown();
}

#[test]
fn a_lease_changes_hands_and_is_kept_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(watching(folder.path())).unwrap();
    let mut original = Client::impatient(&daemon.uris("db")[0]);
    let mut holder = Client::connect(&at_epoch(&daemon, 1));
    original.write(0, vec![1; 4096]).unwrap();
    let (status, lease) = raise(&daemon, r#"{"epoch": 1, "holder": "named"}"#);
    assert_eq!(
        (status, lease["epoch"].as_u64(), lease["schema"].as_str()),
        (200, Some(1), Some("forebay.lease/1"))
    );
    assert!(original.write(0, vec![2; 4096]).is_err() && original.read(0, 4096).is_err());
    assert_eq!(holder.read(0, 4096).unwrap(), vec![1; 4096]);
    holder.write(0, vec![3; 4096]).unwrap();
    let (status, refused) = raise(&daemon, r#"{"epoch": 1, "holder": "original"}"#);
    assert_eq!(status, 409, "{refused}");
    let stream = TcpStream::connect(daemon.http_address().unwrap()).unwrap();
    let body = r#"{"epoch": 9, "holder": "original"}"#;
    assert_eq!(ask(stream, "POST", "/api/v1/volumes/db/lease", body).0, 403);
    assert_eq!(raise(&daemon, r#"{"epoch": 9, "holder": "original", "within_s": 31}"#).0, 400);
    // Not in order.
    drop(daemon);

    let daemon = Daemon::start(watching(folder.path())).unwrap();
    let lease = daemon.status().volumes[0].lease.unwrap();
    assert_eq!((lease.epoch, lease.holder), (1, LeaseHolder::Named));
    let uri: Uri = daemon.uris("db").remove(0).parse().unwrap();
    let refused = NbdOrigin::connect(&uri, NbdOriginOptions::default());
    assert!(refused.is_err(), "the original route is fenced as it was before the restart");
    let mut holder = Client::impatient(&at_epoch(&daemon, 1));
    assert_eq!(holder.read(0, 4096).unwrap(), vec![3; 4096]);
    assert_eq!(raise(&daemon, r#"{"epoch": 2, "holder": "original"}"#).0, 200);
    assert!(holder.write(0, vec![4; 4096]).is_err());
    assert_eq!(Client::connect(&daemon.uris("db")[0]).read(0, 4096).unwrap(), vec![3; 4096]);
    daemon.shutdown();
}

#[test]
fn who_raises_a_lease_is_told_that_what_was_sent_before_may_yet_arrive() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = watching(folder.path());
    let delay = DelayParameters { write: Nanos::secs(3_600), ..DelayParameters::default() };
    config.volumes[0].layers = vec![LayerConfig::Delay(delay)];
    config.limits.drain = Duration::from_millis(1);
    let daemon = Daemon::start(config).unwrap();
    let mut original = Client::impatient(&daemon.uris("db")[0]);
    original.submit(OriginOperation::Write { offset: 0, data: vec![1; 4096], fua: false });
    eventually("the write is there", Duration::from_secs(20), || {
        daemon.status().volumes[0].requests_in_flight == 1
    });
    for within in ["-1", "30.5"] {
        let body = format!(r#"{{"epoch": 9, "holder": "named", "within_s": {within}}}"#);
        assert_eq!(raise(&daemon, &body).0, 400, "{within}");
    }
    let stream = UnixStream::connect(daemon.http_socket().unwrap()).unwrap();
    let body = r#"{"epoch": 1, "holder": "named"}"#;
    assert_eq!(ask(stream, "POST", "/api/v1/volumes/nobody/lease", body).0, 404);
    let (status, answer) = raise(&daemon, r#"{"epoch": 1, "holder": "named", "within_s": 0.05}"#);
    let said = answer["error"].as_str().unwrap_or_default();
    assert!(status == 503 && said.contains("the lease is raised, but"), "{status} {answer}");
    assert_eq!(daemon.status().volumes[0].lease.unwrap().epoch, 1);
    daemon.shutdown();
}

#[test]
fn a_file_of_leases_is_one_daemons() {
    let folder = tempfile::tempdir().unwrap();
    let mine = Daemon::start(watching(folder.path())).unwrap();
    // Another volume, other sockets, and the same file: each would write its own and take back what the other had raised.
    let elsewhere = folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let mut other = watching(&elsewhere);
    other.volumes[0].name = "web".to_owned();
    other.leases = Some(folder.path().join("leases.json"));
    let refused = Daemon::start(other.clone()).err();
    assert!(
        matches!(&refused, Some(StartError::Kept { path, .. }) if path.ends_with("leases.json")),
        "{refused:?}"
    );
    assert_eq!(raise(&mine, r#"{"epoch": 5, "holder": "named"}"#).0, 200);
    mine.shutdown();
    // Who begins afterwards keeps what it finds there.
    Daemon::start(other).unwrap().shutdown();
    let mine = Daemon::start(watching(folder.path())).unwrap();
    assert_eq!(mine.status().volumes[0].lease.unwrap().epoch, 5);
    mine.shutdown();
}

#[test]
fn what_watches_has_leases_and_no_cache() {
    let folder = tempfile::tempdir().unwrap();
    let good = watching(folder.path());
    assert_eq!(good.volumes[0].cache, CacheConfig::Fixed(Bytes::ZERO));
    let message = |change: &dyn Fn(&mut Config)| {
        let mut config = good.clone();
        change(&mut config);
        config.watching().unwrap_err().to_string()
    };
    assert!(message(&|config| config.leases = None).contains("`leases`"));
    let caches = message(&|config| config.volumes[0].cache = CacheConfig::Fixed(Bytes::mib(1)));
    assert!(caches.contains("asks for a cache"), "{caches}");
    let mut named = good.clone();
    named.volumes[0].name = "d@1".to_owned();
    assert!(named.check().unwrap_err().to_string().contains("name their epoch"));
    let mut closed = good;
    closed.http.socket = None;
    assert!(closed.check().unwrap_err().to_string().contains("http.socket"));
}
