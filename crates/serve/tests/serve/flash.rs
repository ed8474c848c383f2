//! The flash tier as its users meet it: configured in the file, kept over a restart in order, dropped when the origin's file was changed.

use super::support::Client;
use forebay_appliance::Drained;
use forebay_serve::Daemon;
use forebay_serve::config::Config;
use forebay_units::Bytes;
use std::path::Path;

const TEXT: &str = r#"
listen = ["unix:nbd.sock"]

[[volume]]
name = "disk"
origin = "disk.img"
cache = "1MiB"
flash = "6MiB"

[flash]
path = "flash"
size = "16MiB"

[http]
listen = "off"
"#;

fn content(offset: u64) -> Vec<u8> {
    (0..65536u64).map(|at| ((offset + at) >> 9) as u8).collect()
}

fn start(folder: &Path) -> Daemon {
    Daemon::start(Config::read(&folder.join("forebay.toml")).expect("a right file")).expect("it starts")
}

/// Reads all of the volume, to and fro, so that what was read last is read first.
fn read_all(daemon: &Daemon) {
    let mut client = Client::connect(&daemon.uris("disk")[0]);
    for place in (0..128u64).rev().chain(0..128) {
        let found = client.read(place << 16, 65536).expect("a read");
        assert!(found == content(place << 16), "{place} does not read as it should");
    }
}

fn recovered(daemon: &Daemon) -> u64 {
    daemon.status().volumes[0].flash.expect("the volume has flash").recovered
}

#[test]
fn blocks_on_flash_outlive_a_restart_unless_somebody_changed_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk.img");
    std::fs::write(&disk, (0..128u64).flat_map(|place| content(place << 16)).collect::<Vec<u8>>()).unwrap();
    std::fs::write(folder.path().join("forebay.toml"), TEXT).unwrap();
    let daemon = start(folder.path());
    assert_eq!(recovered(&daemon), 0);
    read_all(&daemon);
    let status = daemon.status();
    let flash = status.volumes[0].flash.unwrap();
    assert!(flash.hits > 0 && flash.used_bytes > Bytes::mib(3).get() && flash.damaged == 0, "{flash:?}");
    let device = status.flash.unwrap();
    assert_eq!((device.capacity_bytes, device.taken_bytes), (Bytes::mib(14).get(), Bytes::mib(6).get()));
    assert_eq!(status.io.engine == "threads", status.io.reason.is_some(), "{:?}", status.io);
    let metrics = daemon.metrics();
    assert!(metrics.contains("forebay_flash_device_bytes 14680064"), "{metrics}");
    assert_eq!(daemon.shutdown(), Drained::Completely);

    let daemon = start(folder.path());
    assert!(recovered(&daemon) * 4096 > Bytes::mib(3).get(), "{} blocks", recovered(&daemon));
    read_all(&daemon);
    assert!(daemon.status().volumes[0].flash.unwrap().damaged == 0);
    assert_eq!(daemon.shutdown(), Drained::Completely);

    // Same bytes, but somebody wrote them.
    std::fs::write(&disk, std::fs::read(&disk).unwrap()).unwrap();
    let daemon = start(folder.path());
    assert_eq!(recovered(&daemon), 0);
    read_all(&daemon);
    // And not in order.
    drop(daemon);
    assert_eq!(recovered(&start(folder.path())), 0);
}

#[test]
fn wrong_quotas_on_flash_are_told() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("disk.img"), [0; 65536]).unwrap();
    let path = folder.path().join("forebay.toml");
    for (from, to, expected) in [
        ("[flash]", "[flesh]", "unknown"),
        ("flash = \"6MiB\"", "flash = \"1MiB\"", "too little"),
        ("flash = \"6MiB\"", "flash = \"60MiB\"", "more than `flash.size`"),
        ("flash = \"6MiB\"", "flash = \"6MiB\"\nblock_size = \"512\"", "too small for flash"),
        ("path = \"flash\"\n", "", "missing key `path`"),
        ("[flash]\npath = \"flash\"\nsize = \"16MiB\"\n", "", "there is no `[flash]`"),
    ] {
        std::fs::write(&path, TEXT.replace(from, to)).unwrap();
        let error = Config::read(&path).expect_err("a wrong file").to_string();
        assert!(error.contains(expected), "`{to}`: {error}");
    }
    // What is on a device and is not ours is left alone.
    std::fs::write(&path, TEXT).unwrap();
    std::fs::write(folder.path().join("flash"), vec![7; 16 << 20]).unwrap();
    let error = Daemon::start(Config::read(&path).unwrap()).err().expect("it does not start").to_string();
    assert!(error.contains("holds something else"), "{error}");
}
