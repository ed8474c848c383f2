//! Real clients on a real volume: fio, libnbd's tools, QEMU's, a file system, a database; while quotas change under them.
//!
//! The appliance runs in this process, over a file, behind a unix socket; a thread changes the volume's quota between nothing,
//! a little and more than enough, several times a second, for as long as the client works. What the client wrote must be
//! what it reads, whatever the cache was doing.

use crate::support::{SetOnDrop, folder, seed};
use forebay_appliance::{Appliance, ApplianceConfig, ListenerConfig, VolumeConfig};
use forebay_origin::{FileOrigin, FileOriginOptions};
use forebay_prerequisite::programs;
use forebay_units::{Bytes, mix64};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A volume `data` over a new file, served on a unix socket.
struct Served {
    folder: tempfile::TempDir,
    appliance: Appliance,
}

impl Served {
    fn new(size: Bytes) -> Served {
        let folder = folder();
        let image = folder.path().join("data.img");
        std::fs::File::create(&image)
            .and_then(|file| file.set_len(size.0))
            .expect("a sparse file can be made");
        let origin = FileOrigin::open(&image, FileOriginOptions::default()).expect("the file opens");
        let listener = ListenerConfig::Unix { path: folder.path().join("socket") };
        let appliance = Appliance::start(ApplianceConfig {
            listeners: vec![listener],
            volumes: vec![VolumeConfig::new("data", Arc::new(origin))],
            ..ApplianceConfig::default()
        })
        .expect("the appliance starts");
        Served { folder, appliance }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///data?socket={}", self.socket().display())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `client` while the quota changes every 20 ms, and again until it has changed often enough: how fast the machine is
    /// must not decide what is tested. What the cache came to goes to the test's output.
    fn under_changing_quotas<R>(&self, mut client: impl FnMut() -> R) -> R {
        const ENOUGH: u64 = 10;
        let (stop, changes) = (AtomicBool::new(false), AtomicU64::new(0));
        let seed = seed();
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // Mostly a cache that is too small, now and then one that holds all, and rarely none.
                    let draw = mix64(seed + changes.fetch_add(1, Ordering::Relaxed)) % 10;
                    let mib = [1, 3, 24, 24, 48, 48, 48, 200, 200, 0][draw as usize];
                    self.appliance.set_quota("data", Bytes::mib(mib)).expect("the volume is there");
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            // The quotas stop changing when the client fails too, or the scope would wait for them for ever.
            let _stop = SetOnDrop(&stop);
            let mut result = client();
            while changes.load(Ordering::Relaxed) < ENOUGH {
                result = client();
            }
            result
        });
        let seen = self.appliance.observe("data", false).expect("the volume is there").observation;
        println!("seed {seed}: {changes:?} quota changes; cache {:?}", seen.cache);
        result
    }
}

fn run(program: &str, arguments: &[&str]) -> Output {
    let output =
        Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?} ended with {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

/// Bytes that no two blocks share.
fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    (0..bytes as u64 / 8).flat_map(|word| mix64(word ^ mix64(seed)).to_le_bytes()).collect()
}

#[test]
fn fio_verifies_what_it_wrote_while_quotas_change() {
    if !programs("fio on a volume", &["fio"], false) {
        return;
    }
    let served = Served::new(Bytes::mib(96));
    let uri = format!("--uri={}", served.uri());
    let seed = format!("--randseed={}", seed());
    for pass in ["--rw=randrw", "--rw=write"] {
        served.under_changing_quotas(|| {
            run(
                "fio",
                &[
                    "--name=verify",
                    "--ioengine=nbd",
                    &uri,
                    pass,
                    &seed,
                    "--bsrange=512-64k",
                    "--bs_unaligned=0",
                    "--blockalign=512",
                    "--iodepth=16",
                    "--size=96M",
                    "--verify=crc32c",
                    "--verify_fatal=1",
                    "--verify_state_save=0",
                    "--verify_backlog=256",
                    "--verify_backlog_batch=64",
                    "--do_verify=1",
                    "--loops=2",
                ],
            )
        });
    }
    let hits = served.appliance.observe("data", false).expect("it is there").observation.cache.hits;
    assert!(hits > 0, "the cache was never used: the test shows nothing");
}

#[test]
fn libnbd_tools_copy_and_describe() {
    if !programs("libnbd's tools on a volume", &["nbdinfo", "nbdcopy"], false) {
        return;
    }
    let served = Served::new(Bytes::mib(64));
    let uri = served.uri();
    let info: serde_json::Value =
        serde_json::from_slice(&run("nbdinfo", &["--json", "--no-content", &uri]).stdout)
            .expect("nbdinfo prints JSON");
    assert_eq!(info["exports"][0]["export-size"], 64 << 20);
    let list = String::from_utf8(run("nbdinfo", &["--list", &uri]).stdout).expect("text");
    assert!(list.contains("data"), "{list}");
    let source = served.path("source");
    std::fs::write(&source, pattern(64 << 20, seed())).expect("there is room");
    let target = served.path("target");
    served.under_changing_quotas(|| {
        for _ in 0..3 {
            run("nbdcopy", &["--flush", text(&source), &uri]);
            run("nbdcopy", &[&uri, text(&target)]);
            assert!(
                std::fs::read(&source).expect("readable") == std::fs::read(&target).expect("readable"),
                "copies differ"
            );
        }
    });
    // What the origin holds, read past the appliance.
    assert!(
        std::fs::read(&source).expect("readable")
            == std::fs::read(served.path("data.img")).expect("readable")
    );
}

#[test]
fn nbdsh_uses_every_command() {
    if !programs("nbdsh on a volume", &["nbdsh"], false) {
        return;
    }
    let served = Served::new(Bytes::mib(16));
    served.appliance.set_quota("data", Bytes::mib(8)).expect("it is there");
    let script = r#"
h.add_meta_context("base:allocation")
h.connect_uri(URI)
assert h.get_size() == 16 << 20
for flag in (h.can_flush, h.can_fua, h.can_zero, h.can_cache, h.can_df):
    assert flag(), flag
h.pwrite(b"a" * 4096 + b"b" * 100, 1000)
assert h.pread(4296, 900) == b"\0" * 100 + b"a" * 4096 + b"b" * 100
h.pwrite(b"c" * 512, 512, nbd.CMD_FLAG_FUA)
chunks = []
h.pread_structured(512, 512, lambda data, offset, status, error: chunks.append((bytes(data), offset)), nbd.CMD_FLAG_DF)
assert chunks == [(b"c" * 512, 512)], chunks
h.zero(1024, 0)
assert h.pread(1000, 0) == b"\0" * 1000
assert h.pread(10, 1024) == b"a" * 10
if h.can_trim():
    h.trim(4096, 8192)
h.cache(1 << 20, 0)
h.flush()
seen = []
h.block_status(1 << 20, 0, lambda context, offset, entries, error: seen.append((context, offset, list(entries))))
assert seen and seen[0][0] == "base:allocation" and sum(seen[0][2][0::2]) == 1 << 20, seen
for bad in (lambda: h.pread(4096, (16 << 20) - 100), lambda: h.pwrite(b"x" * 4096, (16 << 20) - 100)):
    try:
        bad()
        raise SystemExit("a request past the end was answered")
    except nbd.Error:
        pass
assert h.pread(10, 1024) == b"a" * 10
h.shutdown()
"#;
    let script = script.replace("URI", &format!("{:?}", served.uri()));
    // What `nbdsh` does, with the Python that Debian packaged the module for, whichever comes first in PATH.
    run("/usr/bin/python3", &["-m", "nbd", "-c", &script]);
}

#[test]
fn qemu_converts_and_compares() {
    if !programs("QEMU's tools on a volume", &["qemu-img", "qemu-io"], false) {
        return;
    }
    let served = Served::new(Bytes::mib(48));
    let source = served.path("source");
    std::fs::write(&source, pattern(48 << 20, seed())).expect("there is room");
    let uri = served.uri();
    served.under_changing_quotas(|| {
        run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", text(&source), &uri]);
        run("qemu-img", &["compare", "-f", "raw", "-F", "raw", text(&source), &uri]);
        run(
            "qemu-io",
            &[
                "-f",
                "raw",
                "-c",
                "write -P 7 12345 100000",
                "-c",
                "write -z 65536 65536",
                "-c",
                "flush",
                &uri,
            ],
        );
        run("qemu-io", &["-f", "raw", "-c", "read -P 7 12345 53191", "-c", "read -P 0 65536 65536", &uri]);
    });
    run("qemu-img", &["info", &uri]);
}

/// `nbdfuse` shows the volume as a file, a loop device makes a block device of it, ext4 lives on that.
#[test]
fn ext4_stays_clean_while_quotas_change() {
    let tools = ["nbdfuse", "losetup", "mkfs.ext4", "fsck.ext4", "fusermount3", "mount"];
    if !programs("ext4 on a volume", &tools, true) {
        return;
    }
    let served = Served::new(Bytes::mib(256));
    let script = r#"
set -eu
cd "$1"
mkdir fuse mnt
nbdfuse fuse/volume "$2" &
for i in $(seq 100); do [ -e fuse/volume ] && break; sleep 0.1; done
loop=$(losetup --find --show fuse/volume)
trap 'umount mnt 2>/dev/null || true; losetup -d $loop; fusermount3 -u fuse; wait' EXIT
mkfs.ext4 -q -E nodiscard $loop
mount $loop mnt
for copy in 1 2 3; do
    mkdir mnt/$copy
    find /usr/share /etc -xdev -type f -size -100k 2>/dev/null | sort | head -n 4000 |
        tar -cf - -T - 2>/dev/null | tar -xf - -C mnt/$copy
    [ $copy != 2 ] || rm -r mnt/1
    sync -f mnt
    echo 1 > /proc/sys/vm/drop_caches
done
(cd mnt && find . -type f -exec cksum {} + | sort) > before
umount mnt
fsck.ext4 -fn $loop > fsck.log 2>&1 || { cat fsck.log; exit 1; }
mount -o ro $loop mnt
echo 3 > /proc/sys/vm/drop_caches
(cd mnt && find . -type f -exec cksum {} + | sort) > after
umount mnt
[ -s before ] && cmp before after
wc -l < after
"#;
    let output = served.under_changing_quotas(|| {
        run("bash", &["-c", script, "ext4", text(served.folder.path()), &served.uri()])
    });
    println!("ext4: {} files compared", String::from_utf8_lossy(&output.stdout).trim());
}

/// A database on that file system: pgbench runs, then the balances add up, the indexes agree and fsck is clean.
#[test]
fn postgresql_survives_changing_quotas() {
    let tools = ["nbdfuse", "losetup", "mkfs.ext4", "fsck.ext4", "fusermount3", "psql", "su"];
    if !programs("PostgreSQL on a volume", &tools, true) {
        return;
    }
    let served = Served::new(Bytes::mib(768));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/pgbench-on-nbd");
    let output = served.under_changing_quotas(|| {
        Command::new(&script)
            .args([text(&served.socket()), "data", "12"])
            .env("PGBENCH_SCALE", "8")
            .env("PGBENCH_RATE", "300")
            .output()
            .expect("the script runs")
    });
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("tables and file system check out"), "{said}");
    println!("{}", said.lines().filter(|line| line.contains("tps")).collect::<Vec<_>>().join("; "));
}
