//! A volume of a permanent proxy is sent to an appliance and back while it serves, over the socket, and over a restart.

use super::http::{ask, unix};
use super::support::{Client, eventually};
use forebay_origin::layer::DelayParameters;
use forebay_origin::{NbdOriginOptions, OriginOperation};
use forebay_serve::Daemon;
use forebay_serve::config::{
    CacheConfig, Config, LayerConfig, OnAbsent, OriginConfig, OriginTls, VolumeConfig,
};
use forebay_units::{ByteRange, Bytes, Nanos};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

/// A daemon in a folder of its own with one volume `db`.
fn config(folder: &Path, origin: OriginConfig) -> Config {
    std::fs::create_dir_all(folder).unwrap();
    let mut config = Config::new(vec![VolumeConfig::new("db", origin)]);
    config.listen = unix(folder);
    config.http.socket = Some(folder.join("http.sock"));
    config.control.enabled = false;
    config
}

fn export(uri: &str) -> OriginConfig {
    let options = NbdOriginOptions::default();
    OriginConfig::Nbd { uri: uri.parse().unwrap(), options, tls: OriginTls::default() }
}

fn send(daemon: &Daemon, body: &serde_json::Value) -> (u16, serde_json::Value) {
    let stream = UnixStream::connect(daemon.http_socket().unwrap()).unwrap();
    let (status, body) = ask(stream, "POST", "/api/v1/volumes/db/route", &body.to_string());
    (status, serde_json::from_str(&body).unwrap())
}

#[test]
fn a_volume_goes_through_an_appliance_and_back_and_is_found_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("db.img");
    std::fs::write(&image, vec![5; 1 << 20]).unwrap();
    let mut storage = config(&folder.path().join("storage"), OriginConfig::file(&image));
    storage.leases = Some(folder.path().join("leases.json"));
    let storage = Daemon::start(storage.watching().unwrap()).unwrap();
    let original = storage.uris("db").remove(0);
    let leased = original.replace("/db", "/db@1");
    let mut appliance = config(&folder.path().join("appliance"), export(&leased));
    appliance.volumes[0].cache = CacheConfig::Fixed(Bytes::mib(1));
    let appliance = Daemon::start(appliance).unwrap();
    let through = appliance.uris("db").remove(0);
    let mut proxy = config(&folder.path().join("proxy"), export(&original));
    proxy.routes = Some(folder.path().join("routes.json"));
    let daemon = Daemon::start(proxy.clone()).unwrap();
    let mut client = Client::connect(&daemon.uris("db")[0]);
    client.write(0, vec![6; 4096]).unwrap();

    let to_appliance = serde_json::json!({ "to": through, "epoch": 1 });
    let (status, routed) = send(&daemon, &to_appliance);
    assert_eq!((status, routed["epoch"].as_u64()), (200, Some(1)), "{routed}");
    assert!(routed["pause_s"].as_f64().unwrap() >= routed["drain_s"].as_f64().unwrap());
    // Again: it is there already.
    assert_eq!(send(&daemon, &to_appliance).1["pause_s"].as_f64(), Some(0.0));
    let fence = r#"{"epoch": 1, "holder": "named"}"#;
    let stream = UnixStream::connect(storage.http_socket().unwrap()).unwrap();
    assert_eq!(ask(stream, "POST", "/api/v1/volumes/db/lease", fence).0, 200);
    assert_eq!(client.read(0, 4096).unwrap(), vec![6; 4096]);
    client.write(4096, vec![7; 4096]).unwrap();
    let seen = appliance.appliance().observe("db", false).unwrap().observation.counters;
    assert_eq!((seen.writes, seen.errors), (1, 0));
    // The original way is fenced, other data is refused, and so are late orders: it goes on as before.
    let (status, refused) = send(&daemon, &serde_json::json!({ "to": original, "epoch": 1 }));
    assert!(status == 502 && refused["error"].as_str().unwrap().contains("lease"), "{refused}");
    assert_eq!(send(&daemon, &serde_json::json!({ "to": through, "epoch": 0 })).0, 400);
    assert_eq!(send(&daemon, &serde_json::json!({ "to": "nbd:nothing", "epoch": 2 })).0, 400);
    client.write(8192, vec![8; 4096]).unwrap();
    daemon.shutdown();

    let daemon = Daemon::start(proxy).unwrap();
    assert_eq!(daemon.status().volumes[0].route.as_ref().unwrap().to.as_deref(), Some(through.as_str()));
    let mut client = Client::connect(&daemon.uris("db")[0]);
    assert_eq!(client.read(0, 12_288).unwrap(), [[6; 4096], [7; 4096], [8; 4096]].concat());
    // Back, by an epoch of its own.
    let home = original.replace("/db", "/db@2");
    assert_eq!(send(&daemon, &serde_json::json!({ "to": home, "epoch": 2 })).0, 200);
    let stream = UnixStream::connect(storage.http_socket().unwrap()).unwrap();
    assert_eq!(ask(stream, "POST", "/api/v1/volumes/db/lease", &fence.replace('1', "2")).0, 200);
    client.write(0, vec![9; 4096]).unwrap();
    daemon.shutdown();
    appliance.shutdown();
    storage.shutdown();
    let found = std::fs::read(&image).unwrap();
    assert_eq!(found[..12_288], [[9; 4096], [7; 4096], [8; 4096]].concat());
}

#[test]
fn a_volume_is_not_sent_to_itself() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(config(folder.path(), OriginConfig::Memory { size: Bytes::mib(1) })).unwrap();
    let itself = daemon.uris("db").remove(0);
    let mut client = Client::connect(&itself);
    client.write(0, vec![6; 4096]).unwrap();
    for settled in [false, true] {
        let (status, refused) = send(&daemon, &serde_json::json!({ "to": itself, "settled": settled }));
        let told = refused["error"].as_str().unwrap_or_default();
        assert!(status == 400 && told.contains("that one is the volume itself"), "{status} {refused}");
    }
    assert_eq!(client.read(0, 4096).unwrap(), vec![6; 4096]);
}

/// A controller of which `route` names the storage side itself has it send the volume to an appliance in front of it.
#[test]
fn a_volume_is_not_sent_to_who_comes_to_it_for_that() {
    let folder = tempfile::tempdir().unwrap();
    let memory = OriginConfig::Memory { size: Bytes::mib(1) };
    let mut leased = config(&folder.path().join("storage"), memory);
    leased.leases = Some(folder.path().join("leases.json"));
    let storage = Daemon::start(leased).unwrap();
    let at_storage = storage.uris("db").remove(0);
    let under = |epoch: u64| export(&at_storage.replace("/db", &format!("/db@{epoch}")));
    let appliance = Daemon::start(config(&folder.path().join("appliance"), under(7))).unwrap();
    let through = appliance.uris("db").remove(0);
    let mut client = Client::connect(&at_storage);
    client.write(0, vec![6; 4096]).unwrap();
    let (status, refused) =
        send(&storage, &serde_json::json!({ "to": through, "epoch": 7, "settled": true }));
    let told = refused["error"].as_str().unwrap_or_default();
    assert!(
        status == 400 && told.contains("is connected to the volume here that names epoch 7"),
        "{refused}"
    );
    assert_eq!(client.read(0, 4096).unwrap(), vec![6; 4096]);
    appliance.shutdown();
    storage.shutdown();
}

#[test]
fn a_volume_that_was_sent_back_goes_where_the_configuration_says_now() {
    let folder = tempfile::tempdir().unwrap();
    let server = |name: &str, byte: u8| {
        let image = folder.path().join(format!("{name}.img"));
        std::fs::write(&image, vec![byte; 1 << 20]).unwrap();
        Daemon::start(config(&folder.path().join(name), OriginConfig::file(&image))).unwrap()
    };
    let (storage, through, moved) = (server("storage", 5), server("through", 5), server("moved", 6));
    let [at_storage, at_through, at_moved] =
        [&storage, &through, &moved].map(|daemon| daemon.uris("db").remove(0));
    let mut proxy = config(&folder.path().join("proxy"), export(&at_storage));
    proxy.routes = Some(folder.path().join("routes.json"));
    let mut edited = proxy.clone();
    edited.volumes[0].origin = export(&at_moved);
    let goes = |daemon: &Daemon, to: &str, epoch: u64, byte: u8| {
        let route = daemon.status().volumes.remove(0).route.unwrap();
        assert_eq!((route.to.as_deref(), route.epoch), (Some(to), epoch));
        assert_eq!(Client::connect(&daemon.uris("db")[0]).read(0, 4096).unwrap(), vec![byte; 4096]);
    };
    let daemon = Daemon::start(proxy.clone()).unwrap();
    assert_eq!(send(&daemon, &serde_json::json!({ "to": at_through, "epoch": 1 })).0, 200);
    daemon.shutdown();
    // Elsewhere it stays, and comes back from there after a restart, too.
    let daemon = Daemon::start(edited.clone()).unwrap();
    goes(&daemon, &at_through, 1, 5);
    daemon.shutdown();
    let daemon = Daemon::start(proxy).unwrap();
    goes(&daemon, &at_through, 1, 5);
    assert_eq!(send(&daemon, &serde_json::json!({ "to": at_storage, "epoch": 2 })).0, 200);
    daemon.shutdown();
    let daemon = Daemon::start(edited).unwrap();
    goes(&daemon, &at_moved, 2, 6);
    for daemon in [daemon, storage, through, moved] {
        daemon.shutdown();
    }
}

#[test]
fn a_volume_that_is_absent_is_not_said_to_go_where_nobody_answers() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("db.img");
    std::fs::write(&image, vec![5; 1 << 20]).unwrap();
    let storage =
        || Daemon::start(config(&folder.path().join("storage"), OriginConfig::file(&image))).unwrap();
    let stopped = storage();
    let to = stopped.uris("db").remove(0);
    stopped.shutdown();
    let mut proxy = config(&folder.path().join("proxy"), export(&to));
    proxy.volumes[0].on_absent = OnAbsent::Wait;
    let daemon = Daemon::start(proxy).unwrap();
    let there = serde_json::json!({ "to": to, "epoch": 1, "within_s": 0.2 });
    let (status, refused) = send(&daemon, &there);
    assert!(status == 502 && refused["error"].as_str().unwrap().contains("cannot be reached"), "{refused}");
    assert_eq!(daemon.status().volumes[0].route.as_ref().unwrap().epoch, 0);
    let storage = storage();
    assert_eq!(send(&daemon, &there).0, 200);
    assert_eq!(Client::connect(&daemon.uris("db")[0]).read(0, 4096).unwrap(), vec![5; 4096]);
    daemon.shutdown();
    storage.shutdown();
}

/// A run before this one may have sent changes to an appliance that stands still now, and does them later.
#[test]
fn a_volume_whose_way_is_absent_goes_another_way_once_that_one_is_settled() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("db.img");
    std::fs::write(&image, vec![5; 1 << 20]).unwrap();
    let server =
        |name: &str| Daemon::start(config(&folder.path().join(name), OriginConfig::file(&image))).unwrap();
    let appliance = server("appliance");
    let gone = appliance.uris("db").remove(0);
    appliance.shutdown();
    let storage = server("storage");
    let mut proxy = config(&folder.path().join("proxy"), export(&gone));
    proxy.volumes[0].on_absent = OnAbsent::Wait;
    let daemon = Daemon::start(proxy).unwrap();
    let mut elsewhere = serde_json::json!({ "to": storage.uris("db")[0], "epoch": 1 });
    let (status, refused) = send(&daemon, &elsewhere);
    assert!(status == 409 && refused["error"].as_str().unwrap().contains("settled"), "{status} {refused}");
    let volume = daemon.status().volumes.remove(0);
    assert_eq!((volume.state.as_str(), volume.route.unwrap().to), ("absent", Some(gone)));
    elsewhere["settled"] = true.into();
    assert_eq!(send(&daemon, &elsewhere).0, 200);
    assert_eq!(Client::connect(&daemon.uris("db")[0]).read(0, 4096).unwrap(), vec![5; 4096]);
    daemon.shutdown();
    storage.shutdown();
}

/// Whoever ends cannot wait for an origin to come back, and whoever serves the volume next can: its clients ask again there.
#[test]
fn who_ends_beside_an_origin_that_is_gone_tells_clients_of_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("db.img");
    std::fs::write(&image, vec![5; 1 << 20]).unwrap();
    let storage =
        || Daemon::start(config(&folder.path().join("storage"), OriginConfig::file(&image))).unwrap();
    let before = storage();
    let options = NbdOriginOptions { wait_for_origin: Nanos::secs(2), ..NbdOriginOptions::default() };
    let uri = before.uris("db")[0].parse().unwrap();
    let origin = OriginConfig::Nbd { uri, options, tls: OriginTls::default() };
    let proxy = config(&folder.path().join("proxy"), origin);
    let daemon = Daemon::start(proxy.clone()).unwrap();
    let mut client = Client::connect(&daemon.uris("db")[0]);
    assert_eq!(client.read(0, 4096).unwrap(), vec![5; 4096]);
    drop(before);
    client.submit(OriginOperation::Read { range: ByteRange::new(4096, 4096) });
    let is_out = || daemon.status().volumes[0].requests_in_flight > 0;
    eventually("the request is out", Duration::from_secs(5), is_out);
    daemon.shutdown();
    let _storage = storage();
    let _daemon = Daemon::start(proxy).unwrap();
    assert_eq!(client.wait().unwrap(), vec![5; 4096]);
}

#[test]
fn where_a_volume_goes_is_told_without_the_secret_of_the_export() {
    const SECRET: &str = "0123456789abcdef-only-for-the-proxy";
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("db.img");
    std::fs::write(&image, vec![5; 1 << 20]).unwrap();
    let mut guarded = config(&folder.path().join("guarded"), OriginConfig::file(&image));
    guarded.volumes[0].secret = forebay_units::Secret::new(SECRET);
    let guarded = Daemon::start(guarded).unwrap();
    let open = guarded.uris("db").remove(0);
    let (secret, shown) = (open.replace("/db", &format!("/db.{SECRET}")), open.replace("/db", "/db.SECRET"));
    // Sent there by the configuration, by an order, and by what is kept over a restart.
    let mut proxy = config(&folder.path().join("proxy"), export(&secret));
    proxy.routes = Some(folder.path().join("routes.json"));
    let daemon = Daemon::start(proxy.clone()).unwrap();
    let told = |daemon: &Daemon| {
        let stream = UnixStream::connect(daemon.http_socket().unwrap()).unwrap();
        let (status, body) = ask(stream, "GET", "/api/v1/status", "");
        assert!(status == 200 && !body.contains(SECRET), "{body}");
        let route = daemon.status().volumes.remove(0).route.unwrap();
        (route.to, route.epoch)
    };
    assert_eq!(told(&daemon), (Some(shown.clone()), 0));
    let (status, answer) = send(&daemon, &serde_json::json!({ "to": secret, "epoch": 3 }));
    assert_eq!((status, answer["to"].as_str()), (200, Some(shown.as_str())), "{answer}");
    assert_eq!(told(&daemon), (Some(shown.clone()), 3));
    daemon.shutdown();
    let daemon = Daemon::start(proxy.clone()).unwrap();
    assert_eq!(told(&daemon), (Some(shown.clone()), 3));
    // What is told is less than what lets in: the volume is still served from there.
    assert_eq!(Client::connect(&daemon.uris("db")[0]).read(0, 4096).unwrap(), vec![5; 4096]);
    // A wrong secret is refused, and the answer does not repeat it.
    let wrong = secret.replace("0123", "3210");
    let (status, answer) = send(&daemon, &serde_json::json!({ "to": wrong, "epoch": 4 }));
    assert!(status == 502 && !answer.to_string().contains("only-for-the-proxy"), "{answer}");
    daemon.shutdown();
    guarded.shutdown();
    // Nor is it told while the export is not there.
    let daemon = Daemon::start(proxy).unwrap();
    assert_eq!(daemon.status().volumes[0].state, "absent");
    assert_eq!(told(&daemon), (Some(shown), 3));
    daemon.shutdown();
}

#[test]
fn who_holds_other_data_is_told_from_a_way_that_cannot_be_left() {
    let folder = tempfile::tempdir().unwrap();
    let server = |name: &str, byte: u8, bytes: usize| {
        let image = folder.path().join(format!("{name}.img"));
        std::fs::write(&image, vec![byte; bytes]).unwrap();
        Daemon::start(config(&folder.path().join(name), OriginConfig::file(&image))).unwrap()
    };
    let (right, other, small) =
        (server("right", 5, 1 << 20), server("other", 6, 1 << 20), server("small", 5, 1 << 19));
    let daemon =
        Daemon::start(config(&folder.path().join("proxy"), export(&right.uris("db").remove(0)))).unwrap();
    // After 409 and 502 a controller fences the way that it has, sooner or later, and leaves it without a look at the data.
    for (to, why) in [(&other, "other data"), (&small, "does not fit")] {
        let (status, refused) =
            send(&daemon, &serde_json::json!({ "to": to.uris("db").remove(0), "epoch": 1 }));
        assert!(status == 422 && refused["error"].as_str().unwrap().contains(why), "{status} {refused}");
    }
    assert_eq!(Client::connect(&daemon.uris("db")[0]).read(0, 4096).unwrap(), vec![5; 4096]);
    for daemon in [daemon, right, other, small] {
        daemon.shutdown();
    }
}

/// A server of others, of 1 MiB of zeros: it ends the connection on which the first write comes, and says of the next ones that they are done.
fn stranger(listener: UnixListener) {
    let mut writes = 0;
    for stream in listener.incoming() {
        // Whoever asks leaves when it likes.
        let _ = serve_as_stranger(stream.unwrap(), &mut writes);
    }
}

fn serve_as_stranger(mut stream: UnixStream, writes: &mut u32) -> std::io::Result<()> {
    fn take<const BYTES: usize>(stream: &mut UnixStream) -> std::io::Result<[u8; BYTES]> {
        let mut bytes = [0; BYTES];
        stream.read_exact(&mut bytes).map(|()| bytes)
    }
    let answer = |stream: &mut UnixStream, option: [u8; 4], kind: u32, data: &[u8]| {
        let length = data.len() as u32;
        let head = [&0x3_e889_0455_65a9_u64.to_be_bytes()[..], &option, &kind.to_be_bytes()].concat();
        stream.write_all(&[&head, &length.to_be_bytes()[..], data].concat())
    };
    stream.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
    take::<4>(&mut stream)?;
    loop {
        let head: [u8; 16] = take(&mut stream)?;
        let option: [u8; 4] = head[8..12].try_into().unwrap();
        let length = u32::from_be_bytes(head[12..].try_into().unwrap());
        stream.read_exact(&mut vec![0; length as usize])?;
        if option != 7_u32.to_be_bytes() {
            answer(&mut stream, option, 0x8000_0001, &[])?;
            continue;
        }
        // The export: its size, and that it takes flushes.
        let export = [&[0, 0][..], &(1_u64 << 20).to_be_bytes(), &[0, 5]].concat();
        answer(&mut stream, option, 3, &export)?;
        answer(&mut stream, option, 1, &[])?;
        break;
    }
    loop {
        let head: [u8; 28] = take(&mut stream)?;
        let length = u32::from_be_bytes(head[24..].try_into().unwrap()) as usize;
        let mut data = Vec::new();
        match head[7] {
            0 => data = vec![0; length],
            1 => {
                stream.read_exact(&mut vec![0; length])?;
                *writes += 1;
                if *writes == 1 {
                    return Ok(());
                }
            }
            2 => return Ok(()),
            _ => {}
        }
        let told = [&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0][..], &head[8..16], &data].concat();
        stream.write_all(&told)?;
    }
}

#[test]
fn a_doubt_of_a_server_of_others_is_settled_by_who_says_so_of_the_way_that_the_volume_goes() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("stranger.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || stranger(listener));
    let to = format!("nbd+unix:///db?socket={}", socket.display());
    let daemon = Daemon::start(config(&folder.path().join("proxy"), export(&to))).unwrap();
    let mut client = Client::connect(&daemon.uris("db")[0]);
    assert!(client.write(0, vec![6; 4096]).is_err());
    assert!(client.write(0, vec![7; 4096]).is_err(), "the first one may yet come");
    // That order may be one that is repeated, and speak of the way before this one.
    assert_eq!(send(&daemon, &serde_json::json!({ "to": to, "settled": true, "epoch": 0 })).0, 200);
    assert!(client.write(0, vec![7; 4096]).is_err(), "the first one may yet come");
    assert_eq!(send(&daemon, &serde_json::json!({ "to": to })).0, 200);
    assert!(client.write(0, vec![7; 4096]).is_err(), "nobody says that it may not");
    let (status, routed) = send(&daemon, &serde_json::json!({ "to": to, "settled": true }));
    assert_eq!(status, 200, "{routed}");
    client.write(0, vec![8; 4096]).unwrap();
    daemon.shutdown();
}

#[test]
fn an_origin_that_came_back_different_is_opened_anew_by_who_sends_the_volume_there_once_more() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("db.img");
    let storage = |bytes: usize| {
        std::fs::write(&image, vec![5; bytes]).unwrap();
        Daemon::start(config(&folder.path().join("storage"), OriginConfig::file(&image))).unwrap()
    };
    let first = storage(1 << 20);
    let to = first.uris("db").remove(0);
    let daemon = Daemon::start(config(&folder.path().join("proxy"), export(&to))).unwrap();
    let mut client = Client::connect(&daemon.uris("db")[0]);
    first.shutdown();
    let larger = storage(2 << 20);
    assert!(client.read(0, 4096).is_err(), "it has another size");
    let again = serde_json::json!({ "to": to, "settled": true });
    let (status, refused) = send(&daemon, &again);
    assert!(status == 422 && refused["error"].as_str().unwrap().contains("does not fit"), "{refused}");
    larger.shutdown();
    let same = storage(1 << 20);
    assert_eq!(send(&daemon, &again).0, 200);
    assert_eq!(client.read(0, 4096).unwrap(), vec![5; 4096]);
    daemon.shutdown();
    same.shutdown();
}

#[test]
fn the_cache_of_a_volume_is_forgotten_on_request_also_where_it_goes_there_already() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("db.img");
    std::fs::write(&image, vec![5; 1 << 20]).unwrap();
    let storage = Daemon::start(config(&folder.path().join("storage"), OriginConfig::file(&image))).unwrap();
    let to = storage.uris("db").remove(0);
    let mut proxy = config(&folder.path().join("proxy"), export(&to));
    proxy.volumes[0].cache = CacheConfig::Fixed(Bytes::mib(1));
    let daemon = Daemon::start(proxy).unwrap();
    let mut client = Client::connect(&daemon.uris("db")[0]);
    assert_eq!(client.read(0, 4096).unwrap(), vec![5; 4096]);
    // Behind the back of both, which nobody should.
    std::fs::write(&image, vec![6; 1 << 20]).unwrap();
    assert_eq!(client.read(0, 4096).unwrap(), vec![5; 4096], "it is cached");
    assert_eq!(send(&daemon, &serde_json::json!({ "to": to, "drop_cache": true })).0, 200);
    assert_eq!(client.read(0, 4096).unwrap(), vec![6; 4096]);
    daemon.shutdown();
    storage.shutdown();
}

/// A second way to what a daemon of [`config`] in this folder serves.
fn other_way(folder: &Path, daemon: &Daemon) -> String {
    std::os::unix::fs::symlink(folder.join("nbd.sock"), folder.join("other.sock")).unwrap();
    daemon.uris("db").remove(0).replace("nbd.sock", "other.sock")
}

#[test]
fn who_has_the_cache_dropped_reads_what_the_new_way_leads_to() {
    let folder = tempfile::tempdir().unwrap();
    let behind = folder.path().join("storage");
    let storage = Daemon::start(config(&behind, OriginConfig::Memory { size: Bytes::mib(1) })).unwrap();
    let mut proxy = config(&folder.path().join("proxy"), export(&storage.uris("db")[0]));
    proxy.volumes[0].cache = CacheConfig::Fixed(Bytes::mib(1));
    let daemon = Daemon::start(proxy).unwrap();
    let mut client = Client::connect(&daemon.uris("db")[0]);
    for _ in 0..2 {
        assert_eq!(client.read(0, 4096).unwrap(), vec![0; 4096]);
    }
    // Behind its back.
    Client::connect(&storage.uris("db")[0]).write(0, vec![7; 4096]).unwrap();
    let to = other_way(&behind, &storage);
    assert_eq!(send(&daemon, &serde_json::json!({ "to": to, "drop_cache": true })).0, 200);
    assert_eq!(client.read(0, 4096).unwrap(), vec![7; 4096]);
    daemon.shutdown();
    storage.shutdown();
}

/// A way to `origin` that answers no request of one kind.
fn stuck(folder: &Path, origin: OriginConfig, delay: DelayParameters) -> Daemon {
    let mut stuck = config(folder, origin);
    stuck.volumes[0].layers = vec![LayerConfig::Delay(delay)];
    stuck.limits.drain = Duration::from_millis(1);
    Daemon::start(stuck).unwrap()
}

/// Who lets others write by another way behind the answer would have their changes overwritten: they see what the first way has made.
#[test]
fn who_sends_a_volume_elsewhere_hears_of_it_once_what_is_asked_again_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("db.img");
    std::fs::write(&image, vec![5; 1 << 20]).unwrap();
    let storage = Daemon::start(config(&folder.path().join("storage"), OriginConfig::file(&image))).unwrap();
    let original = &storage.uris("db")[0];
    let never = DelayParameters { write: Nanos::secs(3_600), ..DelayParameters::default() };
    let [first, second] =
        ["first", "second"].map(|name| stuck(&folder.path().join(name), export(original), never));
    let daemon = Daemon::start(config(&folder.path().join("proxy"), export(&first.uris("db")[0]))).unwrap();
    let mut client = Client::connect(&daemon.uris("db")[0]);
    client.submit(OriginOperation::Write { offset: 4096, data: vec![7; 4096], fua: false });
    eventually("the write is there", Duration::from_secs(20), || {
        first.status().volumes[0].requests_in_flight == 1
    });
    let to = |way: &str, epoch: u64, within_s: f64| serde_json::json!({ "to": way, "epoch": epoch, "settled": true, "within_s": within_s });
    // Asked of the second way it is not answered either, however often that is asked for.
    for _ in 0..2 {
        let (status, told) = send(&daemon, &to(&second.uris("db")[0], 1, 0.2));
        let said = told["error"].as_str().unwrap_or_default();
        assert!(status == 500 && said.contains("1 requests for changes are still out"), "{status} {told}");
        let route = daemon.status().volumes.remove(0).route.unwrap();
        assert_eq!((route.to.as_ref(), route.epoch), (Some(&second.uris("db")[0]), 1), "it goes there");
    }
    let (status, routed) = send(&daemon, &to(original, 2, 20.0));
    assert_eq!(status, 200, "{routed}");
    assert_eq!(std::fs::read(&image).unwrap()[4096..8192], vec![7; 4096]);
    client.wait().unwrap();
    for daemon in [daemon, first, second, storage] {
        daemon.shutdown();
    }
}

#[test]
fn a_way_that_does_not_answer_is_left_once_it_is_fenced_and_not_before() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("db.img");
    std::fs::write(&image, vec![5; 1 << 20]).unwrap();
    let storage = Daemon::start(config(&folder.path().join("storage"), OriginConfig::file(&image))).unwrap();
    let never = DelayParameters { read: Nanos::secs(3_600), ..DelayParameters::default() };
    let stuck = stuck(&folder.path().join("stuck"), export(&storage.uris("db")[0]), never);
    let daemon = Daemon::start(config(&folder.path().join("proxy"), export(&stuck.uris("db")[0]))).unwrap();
    let mut client = Client::connect(&daemon.uris("db")[0]);
    client.submit(OriginOperation::Read { range: ByteRange::new(0, 4096) });
    eventually("the read is there", Duration::from_secs(20), || {
        stuck.status().volumes[0].requests_in_flight == 1
    });
    let mut elsewhere = serde_json::json!({ "to": storage.uris("db")[0], "epoch": 1, "within_s": 0.2 });
    let (status, refused) = send(&daemon, &elsewhere);
    assert_eq!(status, 409, "{refused}");
    (elsewhere["settled"], elsewhere["within_s"]) = (true.into(), 20.into());
    let (status, routed) = send(&daemon, &elsewhere);
    assert_eq!(status, 200, "{routed}");
    assert_eq!(client.wait().unwrap(), vec![5; 4096]);
    for daemon in [daemon, stuck, storage] {
        daemon.shutdown();
    }
}

#[test]
fn a_route_that_cannot_be_kept_is_told_and_one_without_an_epoch_has_the_last_ones() {
    let folder = tempfile::tempdir().unwrap();
    let behind = folder.path().join("storage");
    let storage = Daemon::start(config(&behind, OriginConfig::Memory { size: Bytes::mib(1) })).unwrap();
    let original = storage.uris("db").remove(0);
    let other = other_way(&behind, &storage);
    let mut proxy = config(&folder.path().join("proxy"), export(&original));
    let path = folder.path().join("proxy/routes.json");
    proxy.routes = Some(path.clone());
    let daemon = Daemon::start(proxy).unwrap();
    for within in [-1.0, 30.5] {
        let (status, refused) = send(&daemon, &serde_json::json!({ "to": other, "within_s": within }));
        assert!(status == 400 && refused["error"].as_str().unwrap().contains("within_s"), "{refused}");
    }
    assert_eq!(send(&daemon, &serde_json::json!({ "to": other, "epoch": 4 })).0, 200);
    let (status, routed) = send(&daemon, &serde_json::json!({ "to": original }));
    assert_eq!((status, routed["epoch"].as_u64()), (200, Some(4)), "{routed}");
    std::fs::create_dir(path.with_extension("json.new")).unwrap();
    let (status, refused) = send(&daemon, &serde_json::json!({ "to": other, "epoch": 5 }));
    let said = refused["error"].as_str().unwrap_or_default();
    assert!(status == 500 && said.contains("the volume goes there, but"), "{status} {refused}");
    let route = daemon.status().volumes.remove(0).route.unwrap();
    assert_eq!((route.to, route.epoch), (Some(other), 5));
    daemon.shutdown();
    storage.shutdown();
}

#[test]
fn who_changes_a_route_is_answered_in_time_although_nobody_speaks_there() {
    let folder = tempfile::tempdir().unwrap();
    let behind = folder.path().join("storage");
    let storage = Daemon::start(config(&behind, OriginConfig::Memory { size: Bytes::mib(1) })).unwrap();
    let mut origin = export(&storage.uris("db")[0]);
    let OriginConfig::Nbd { options, .. } = &mut origin else { unreachable!("it is an export") };
    options.connect_timeout = Nanos::secs(3_600);
    let daemon = Daemon::start(config(&folder.path().join("proxy"), origin)).unwrap();
    // It takes connections, and does not say a word.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("nbd://{}/db", silent.local_addr().unwrap());
    let (sender, answer) = channel();
    std::thread::scope(|scope| {
        let daemon = &daemon;
        scope.spawn(move || sender.send(send(daemon, &serde_json::json!({ "to": to, "within_s": 0.2 }))));
        let answer = answer.recv_timeout(Duration::from_secs(20));
        drop(silent);
        assert_eq!(answer.expect("it waits for the server").0, 502);
    });
    daemon.shutdown();
    storage.shutdown();
}
