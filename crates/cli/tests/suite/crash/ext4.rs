//! A file system on a volume whose daemon is killed: what was synced is there afterwards.

use super::{Daemon, PATIENCE, cycles, prepare, wait_until};
use crate::support::{folder, seed};
use forebay_prerequisite::programs;
use forebay_units::mix64;
use std::process::{Command, Stdio};
use std::time::Duration;

/// ext4 on the volume, by nbdfuse and a loop device: files are written and synced one after the other, and the daemon is killed in the
/// middle. The file system breaks off; with the daemon back, its journal is replayed, it is clean, and every file that was
/// synced is whole.
#[test]
fn ext4_finds_what_was_synced_before_a_kill() {
    let tools = ["nbdfuse", "losetup", "mkfs.ext4", "fsck.ext4", "fusermount3", "mount"];
    if !programs("ext4 under a killed daemon", &tools, true) {
        return;
    }
    let seed = seed();
    let temporary = folder();
    let folder = temporary.path();
    prepare(folder, 128 << 20, "16MiB");
    std::fs::write(folder.join("attach"), ATTACH).unwrap();
    let script = |script: &str| {
        let output = Command::new("bash")
            .args(["-c", &format!("set -eu; . ./attach; {script}")])
            .current_dir(folder)
            .output()
            .expect("bash runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "FOREBAY_SEED={seed}: {script}: {said}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        said
    };
    let mut daemon = Daemon::start(folder);
    script("attach; mkfs.ext4 -q -E nodiscard $loop");
    let mut synced = 0;
    let cycles = cycles().div_ceil(8);
    for cycle in 0..cycles {
        let mut writer = Command::new("bash")
            .args(["-c", &format!("set -eu; . ./attach; attach; mount $loop mnt; {WRITE}")])
            .env("CYCLE", cycle.to_string())
            .current_dir(folder)
            .stderr(Stdio::null())
            .spawn()
            .expect("bash runs");
        let list = folder.join(format!("synced.{cycle}"));
        let lines = || std::fs::read_to_string(&list).map_or(0, |text| text.lines().count());
        let started = wait_until(PATIENCE, || lines() >= 10);
        std::thread::sleep(Duration::from_millis(mix64(seed ^ cycle) % 400));
        daemon.kill();
        assert!(started, "nothing was synced");
        assert!(!writer.wait().expect("it ends").success(), "the writer did not notice the kill");
        synced += lines();
        daemon = Daemon::start(folder);
        // First as after a crash of the client's machine too; the replay of the journal must leave nothing to repair.
        script(
            "attach; fsck.ext4 -p $loop > fsck.log 2>&1 || [ $? = 1 ] || { cat fsck.log; exit 1; }; fsck.ext4 -fn $loop > fsck.log 2>&1 || { cat fsck.log; exit 1; }",
        );
        let whole = script(
            "attach; mount -o ro $loop mnt; cd mnt; cat ../synced.* | sha256sum --check --quiet - && echo whole",
        );
        assert!(whole.contains("whole"), "FOREBAY_SEED={seed}: {whole}");
    }
    println!("crash: {synced} synced files whole on ext4 after {cycles} kills (FOREBAY_SEED={seed})");
}

/// `attach` makes a block device, `$loop`, of the volume; it goes with the shell.
pub(super) const ATTACH: &str = r#"
here=$PWD
attach() { expose "nbd+unix:///db?socket=$here/socket"; }
# Makes one of what nbdfuse is to show.
expose() {
    mkdir -p fuse mnt
    nbdfuse fuse/volume "$@" 2>/dev/null &
    fuse=$!
    trap detach EXIT
    for i in $(seq 100); do [ -e fuse/volume ] && break; sleep 0.1; done
    loop=$(losetup --find --show fuse/volume)
}
# The file system may be in ruins: nothing here must wait for it.
detach() {
    cd "$here"
    umount mnt 2>/dev/null || umount -l mnt 2>/dev/null || true
    [ -z "${loop:-}" ] || losetup -d $loop || true
    fusermount3 -u fuse 2>/dev/null || fusermount3 -uz fuse || true
    sleep 0.1
    kill -9 $fuse 2>/dev/null || true
}
"#;

/// Writes files and notes each once it is synced, until that fails.
const WRITE: &str = r#"
mkdir -p mnt/$CYCLE
for i in $(seq 100000); do
    head -c $((RANDOM + 1)) /dev/urandom > mnt/$CYCLE/$i
    sync mnt/$CYCLE/$i mnt/$CYCLE
    (cd mnt; sha256sum $CYCLE/$i) >> synced.$CYCLE
    [ $((i % 3)) != 0 ] || echo 1 > /proc/sys/vm/drop_caches
done
"#;
