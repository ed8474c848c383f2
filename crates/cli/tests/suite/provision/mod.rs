//! Appliances on demand: real ones, started, found, told what to do and stopped by each provider; and whatever can go wrong with that.

pub(crate) mod libvirt;
pub(crate) mod local;
pub(crate) mod machine;
mod namespace;
pub(crate) mod ssh;

use crate::support::folder;
use forebay_actuate::provision::LocalProcess;
use forebay_actuate::{ApplianceOrder, Deadline, Endpoint, Listed, Provider, Running, VolumeOrder};
use forebay_appliance::ListenerConfig;
use forebay_nbd::Uri;
use forebay_origin::{
    CompletionSink, MemoryImage, NbdOrigin, NbdOriginOptions, Origin, OriginCompletion, OriginOperation,
    OriginRequest, OriginRequestId,
};
use forebay_serve::Daemon;
use forebay_serve::config::{CacheConfig, Config, OriginConfig, VolumeConfig};
use forebay_units::{ByteRange, Bytes, Secret};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// What must be shown to the storage system.
const SECRET: &str = "open-the-storage";

/// A storage system of 16 MiB, where the 4 KiB at block b are filled with b's lowest byte.
struct Storage {
    daemon: Daemon,
    image: Arc<MemoryImage>,
}

impl Storage {
    fn start(listener: ListenerConfig) -> Storage {
        let image = Arc::new(MemoryImage::new(Bytes::mib(16)));
        for block in 0..4096u64 {
            image.write_at(block * 4096, &[block as u8; 4096]);
        }
        let mut volume = VolumeConfig::new("db", OriginConfig::Image(Arc::clone(&image)));
        volume.cache = CacheConfig::Fixed(Bytes::ZERO);
        volume.secret = Secret::new(SECRET);
        let mut config = Config::new(vec![volume]);
        config.listen = vec![listener];
        Storage { daemon: Daemon::start(config).expect("a storage system in memory starts"), image }
    }

    /// On a unix socket in `folder`.
    fn local(folder: &Path) -> Storage {
        Storage::start(ListenerConfig::Unix { path: folder.join("storage.sock") })
    }

    /// At an address, guarded by a secret.
    fn over_tcp(address: IpAddr) -> Storage {
        Storage::start(ListenerConfig::Tcp { address: SocketAddr::new(address, 0), allow_remote: true })
    }

    fn endpoint(&self) -> Endpoint {
        let mut uri: Uri =
            self.daemon.uris("db")[0].parse().expect("the daemon prints URIs that can be read");
        uri.export = format!("db.{SECRET}");
        Endpoint::new(uri)
    }

    /// Requests for data that came here.
    fn requests(&self) -> u64 {
        let snapshot = self.daemon.appliance().observe("db", false).expect("it serves");
        snapshot.observation.counters.reads + snapshot.observation.counters.writes
    }
}

/// An appliance for `origin` with 4 MiB of cache.
fn order(id: &str, origin: Endpoint) -> ApplianceOrder {
    ApplianceOrder {
        id: id.parse().expect("a good name"),
        host: "here".to_owned(),
        memory: Bytes::mib(40),
        volumes: vec![VolumeOrder::new("db", origin, Bytes::mib(4))],
        port: None,
        interval_ms: None,
        token: Secret::new("a-token-that-only-we-know").expect("a good token"),
    }
}

/// A folder for a test, in which no appliance outlives it, also when it fails.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(folder())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Ok(left) = std::fs::read_dir(self.path().join("appliances")) else { return };
        let provider = LocalProcess::new(self.path().join("appliances"), "").expect("the folder is there");
        for id in left.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            let _ = provider.stop(&id, Deadline::after(Duration::from_secs(2)));
        }
    }
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

struct Completions(Sender<OriginCompletion>);

impl CompletionSink for Completions {
    fn complete(&self, completion: OriginCompletion) {
        let _ = self.0.send(completion);
    }
}

/// Uses the volume as a client would: reads what is there, writes, and reads what it wrote.
fn use_volume(uri: &Uri, storage: &Storage) {
    let options = NbdOriginOptions { connections: 1, ..NbdOriginOptions::default() };
    let client = NbdOrigin::connect(uri, options).expect("the volume is served");
    let (sender, completions) = channel();
    let sink: Arc<dyn CompletionSink> = Arc::new(Completions(sender));
    let ask = |operation: OriginOperation| {
        client.submit(OriginRequest { id: OriginRequestId(1), operation }, &sink);
        let answer = completions.recv_timeout(Duration::from_secs(20)).expect("an answer within 20 s");
        answer.result.expect("it is done")
    };
    let read = |block: u64| OriginOperation::Read { range: ByteRange::new(block * 4096, 4096) };
    assert_eq!(ask(read(700)), vec![700u64 as u8; 4096]);
    ask(OriginOperation::Write { offset: 5 * 4096, data: vec![0xee; 4096], fua: true });
    assert_eq!(ask(read(5)), vec![0xee; 4096]);
    let mut there = vec![0; 4096];
    storage.image.read_at(5 * 4096, &mut there);
    assert_eq!(there, vec![0xee; 4096], "it was written through");
}

/// What holds of every provider: `start` may be called again, whoever comes next finds what runs, orders are carried out, and `stop` ends it.
fn live_and_die(
    provider: &dyn Provider,
    next: &dyn Provider,
    order: &ApplianceOrder,
    storage: &Storage,
) -> Running {
    let running = provider.start(order, soon()).unwrap_or_else(|error| panic!("{error}"));
    use_volume(&running.endpoints["db"].uri, storage);
    assert_eq!(provider.start(order, soon()).expect("it runs"), running, "the same order again");
    // Whoever started it is gone; another comes.
    assert_eq!(next.find(&order.id).expect("it can be looked for"), Some(running.clone()));
    assert_eq!(next.start(order, soon()).expect("it runs"), running);
    let listed = |token: &Secret| next.list(token, soon()).expect("it says what runs there");
    let its = Listed { memory: order.memory, running: running.clone() };
    assert_eq!(listed(&order.token), [its]);
    assert_eq!(listed(&Secret::new("a-token-of-somebody-else").expect("a good token")), []);
    let mut other = order.clone();
    other.volumes[0].cache = Bytes::mib(5);
    let refused = next.start(&other, soon()).expect_err("it was ordered otherwise");
    assert!(refused.to_string().contains("another order"), "{refused}");
    let control = &running.control;
    let quota = || control.status(soon()).expect("it answers").volumes[0].quota_bytes;
    assert_eq!(quota(), 4 << 20);
    control.set_quota("db", Bytes::mib(6), soon()).expect("there is room");
    assert_eq!(quota(), 6 << 20);
    let refused = control.set_quota("db", Bytes::gib(6), soon()).expect_err("there is no room");
    assert!(refused.to_string().contains("409") && refused.to_string().contains("6GiB"), "{refused}");
    let refused = control.set_quota("db2", Bytes::mib(1), soon()).expect_err("there is no such volume");
    assert!(refused.to_string().contains("404"), "{refused}");
    let ranges = [ByteRange::new(1 << 20, 1 << 20), ByteRange::new(8 << 20, 1 << 20)];
    let used = || control.status(soon()).expect("it answers").volumes[0].used_bytes;
    let before = used();
    control.warm("db", &ranges, None, soon()).expect("it can be warmed");
    soon().wait_for(|| (used() >= before + (2 << 20)).then_some(())).expect("zones are loaded");
    let has_metrics = || {
        control
            .metrics(soon())
            .expect("there are metrics")
            .contains("forebay_volume_requests_total{volume=\"db\"")
    };
    soon().wait_for(|| has_metrics().then_some(())).expect("metrics come with the first interval");
    assert!(control.drain("db", soon()).expect("it drains"), "nothing is in flight");
    assert!(control.drain("db", soon()).expect("it is drained"), "again");
    assert_eq!(control.status(soon()).expect("it answers").volumes[0].state, "drained");
    let gone = NbdOrigin::connect(&running.endpoints["db"].uri, NbdOriginOptions::default());
    assert!(gone.is_err(), "a drained volume is not served");
    next.stop(&order.id, soon()).expect("it ends");
    assert_eq!(provider.find(&order.id).expect("it can be looked for"), None);
    assert!(control.status(soon()).is_err());
    assert_eq!(listed(&order.token), []);
    next.stop(&order.id, soon()).expect("what is gone is stopped");
    running
}
