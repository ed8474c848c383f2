//! Who slows whom down, seen on emulated disks: a volume that reads at a steady pace, and a neighbour that comes and goes.

use super::control::config;
use super::support::{Client, eventually};
use forebay_origin::OriginOperation;
use forebay_serve::Daemon;
use forebay_serve::config::{DiskBacking, OriginConfig, VolumeConfig};
use forebay_serve::interfering::Interferences;
use forebay_units::{ByteRange, Bytes, mix64};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Has the clients end also where the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A read of a block that hardly anybody read before.
fn somewhere(draw: u64) -> OriginOperation {
    OriginOperation::Read { range: ByteRange::new(mix64(draw) % 16_384 * 4096, 4096) }
}

#[test]
fn a_neighbour_that_comes_and_goes_is_seen_to_slow_a_volume_down() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    let backing = DiskBacking::Memory(Bytes::mib(64));
    let origin = OriginConfig::DiskGroup { group: "disks".to_owned(), backing, offset: None };
    // Nobody is promised anything: who interferes is told all the same.
    config.volumes = ["steady", "bursts"].map(|name| VolumeConfig::new(name, origin.clone())).into();
    config.history = None;
    let daemon = Daemon::start(config).unwrap();
    assert!(daemon.interference().tables.is_empty());
    let stop = AtomicBool::new(false);
    let told = |interference: &Interferences| {
        let table = interference.tables.last()?;
        let seen = |pair: &&forebay_serve::interfering::InterferingPair| {
            (pair.aggressor.as_str(), pair.victim.as_str()) == ("bursts", "steady")
        };
        table.pairs.iter().find(seen).map(|pair| (table.clone(), pair.score))
    };
    let found = thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            let mut client = Client::connect(&daemon.uris("steady")[0]);
            for draw in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                client.submit(somewhere(draw));
                client.wait().expect("no read fails");
                thread::sleep(Duration::from_millis(5));
            }
        });
        scope.spawn(|| {
            // Ten outstanding at two disks of 5 ms for two intervals of 200 ms, and one for three.
            let mut client = Client::connect(&daemon.uris("bursts")[0]);
            let began = Instant::now();
            for draw in 1_000_000.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let outstanding = if began.elapsed().as_millis() % 1_000 < 400 { 10 } else { 1 };
                (0..outstanding).for_each(|at| client.submit(somewhere(draw * 16 + at)));
                (0..outstanding).for_each(|_| drop(client.wait().expect("no read fails")));
            }
        });
        let mut found = None;
        eventually("the neighbour is seen", Duration::from_secs(90), || {
            found = told(&daemon.interference());
            found.is_some()
        });
        found
    });
    let (table, score) = found.unwrap();
    assert!(score > 0.0 && score <= 1.0, "{table:?}");
    assert_eq!(
        (table.origin.as_str(), table.sets),
        ("disk group disks", vec![vec!["steady".to_owned(), "bursts".to_owned()]])
    );
    daemon.shutdown();
}
