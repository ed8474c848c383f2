//! A database on a volume whose daemon is killed: every commit that was acknowledged is there afterwards.

use super::ext4::ATTACH;
use super::{Daemon, PATIENCE, cycles, prepare, wait_until};
use crate::support::{folder, seed};
use forebay_prerequisite::programs;
use forebay_units::mix64;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// PostgreSQL with page checksums, on ext4 on the volume. pgbench keeps the ledger: it logs each transaction that was acknowledged, and each
/// leaves a row that names it. The daemon is killed in the middle: every third time its clients try again until it is back, and the
/// database goes on; else they do not, the database goes down in ruins, and has to recover from what the volume holds.
#[test]
fn postgresql_finds_every_acknowledged_commit_after_a_kill() {
    let tools =
        ["nbdfuse", "nbdkit", "losetup", "mkfs.ext4", "fsck.ext4", "fusermount3", "mount", "psql", "su"];
    if !programs("PostgreSQL under a killed daemon", &tools, true) {
        return;
    }
    // A start and a stop of a database take seconds: an eighth of the kills that others get.
    let (seed, cycles) = (seed(), cycles().div_ceil(8));
    let temporary = folder();
    let folder = temporary.path();
    // For the user of the database, too.
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    prepare(folder, 256 << 20, "32MiB");
    std::fs::write(folder.join("attach"), format!("{ATTACH}{DATABASE}")).unwrap();
    let script = |what: &str| {
        let output = bash(folder, what, 0).output().expect("bash runs");
        assert!(output.status.success(), "FOREBAY_SEED={seed}: {what}: {}", said(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let mut daemon = Daemon::start(folder);
    script("attach; create");
    for cycle in 1..=cycles {
        let draw = mix64(seed ^ mix64(cycle));
        let goes_on = cycle % 3 == 2;
        let bench = if goes_on { "attach_for_long; bench 4" } else { "attach; bench 60" };
        let bench = Bench(bash(folder, bench, cycle).stderr(Stdio::null()).spawn().expect("bash runs"));
        let started = wait_until(PATIENCE, || folder.join(format!("started.{cycle}")).exists());
        std::thread::sleep(Duration::from_millis(300 + draw % 1200));
        daemon.kill();
        assert!(started, "FOREBAY_SEED={seed}: the database does not start");
        if goes_on {
            daemon = Daemon::start(folder);
            assert!(bench.ended_well(), "FOREBAY_SEED={seed}: cycle {cycle}: the database did not go on");
        } else {
            assert!(!bench.ended_well(), "FOREBAY_SEED={seed}: cycle {cycle}: nobody noticed the kill");
            daemon = Daemon::start(folder);
        }
        script("attach; fsck.ext4 -p $loop >fsck.log 2>&1 || [ $? = 1 ] || { cat fsck.log; exit 1; }; check");
    }
    let last = script("attach; whole; check; forge; check || echo missed");
    // What finds nothing must be able to find something: of a ledger that was forged, the check says so.
    let [whole, .., missed] = last.lines().collect::<Vec<_>>()[..] else { panic!("{last}") };
    assert!(missed == "missed", "an acknowledged commit was taken away, and nobody missed it: {last}");
    println!("crash: PostgreSQL: {whole} after {cycles} kills (FOREBAY_SEED={seed})");
}

struct Bench(Child);

impl Bench {
    fn ended_well(mut self) -> bool {
        let ended = wait_until(Duration::from_secs(240), || {
            self.0.try_wait().expect("it can be waited for").is_some()
        });
        if !ended {
            let _ = self.0.kill();
        }
        self.0.wait().expect("it ends").success() && ended
    }
}

fn bash(folder: &Path, script: &str, cycle: u64) -> Command {
    let mut command = Command::new("bash");
    command
        .args(["-c", &format!("set -eu; . ./attach; {script}")])
        .env("CYCLE", cycle.to_string())
        .current_dir(folder);
    command
}

fn said(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// `create` makes the database, `bench` runs transactions against it, `check` looks for what was acknowledged, `whole` looks at everything.
const DATABASE: &str = r#"
bin=$(dirname "$(ls /usr/lib/postgresql/*/bin/pgbench | tail -n 1)")
as_user() { su postgres -c "export PGHOST=$here/run; cd $here/run; $*"; }

# Like attach; but requests wait for a daemon that is away, and are sent again.
attach_for_long() {
    expose [ nbdkit --filter=retry nbd "uri=nbd+unix:///db?socket=$here/socket" retry-delay=1 retry-exponential=no retries=60 ]
}
# A database whose file system is in ruins cannot be asked to stop.
fell() {
    for process in $(pgrep -f "bin/postgres -D $here/mnt/db"); do
        killed="$process $(pgrep -P $process || true)"
        kill -9 $killed 2>/dev/null || true
        # Dead is who is not there any more, or waits for somebody to take note.
        for killed in $killed; do
            for i in $(seq 200); do grep -q '^State:[[:space:]]*[^Z]' /proc/$killed/status 2>/dev/null || break; sleep 0.05; done
        done
    done
}
start() {
    mountpoint -q mnt || mount $loop mnt
    # Of a database that fell: its processes are dead, but one that nobody took note of yet looks alive to the next.
    rm -f mnt/db/postmaster.pid run/.s.PGSQL.*
    trap 'fell; detach' EXIT
    as_user "$bin/pg_ctl -D $here/mnt/db -w -t 60 -l $here/run/log start" >/dev/null || { cat run/log; exit 1; }
}
stop() { as_user "$bin/pg_ctl -D $here/mnt/db -w stop" >/dev/null; }
sql() { as_user "psql -X -Atq -v ON_ERROR_STOP=1 postgres"; }

create() {
    mkfs.ext4 -q -E nodiscard $loop
    mount $loop mnt
    mkdir mnt/db run
    chown postgres mnt/db run
    chmod 700 mnt/db
    as_user "$bin/initdb -k -D $here/mnt/db --no-sync -A trust" >/dev/null
    cat >>mnt/db/postgresql.conf <<C
listen_addresses = ''
unix_socket_directories = '$here/run'
shared_buffers = 2MB
checkpoint_timeout = 30s
C
    start
    as_user "$bin/pgbench -q -i -s 1 postgres" >/dev/null 2>&1
    echo "CREATE TABLE ledger (cycle int, client int, n int, PRIMARY KEY (cycle, client, n));" | sql
    cat >run/transaction.sql <<S
\set aid random(1, 100000)
\set delta random(-5000, 5000)
\set n :n + 1
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = 1;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (1, 1, :aid, :delta, CURRENT_TIMESTAMP);
INSERT INTO ledger VALUES (:cycle, :client_id, :n);
COMMIT;
S
    stop
    umount mnt
}
bench() {
    start
    touch started.$CYCLE
    as_user "$bin/pgbench -n -M prepared -c 4 -j 1 -T $1 -l --log-prefix=$here/run/log.$CYCLE -D n=0 -D cycle=$CYCLE -f $here/run/transaction.sql postgres" >/dev/null
    stop
    umount mnt
}
# A log has the client and the number of each acknowledged transaction, from 0 on.
acknowledged() {
    for log in run/log.[0-9]*; do
        cycle=${log#run/log.}
        awk -v cycle=${cycle%%.*} '{ print cycle "," $1 "," $2 }' $log
    done
}
check() {
    mountpoint -q mnt || start
    acknowledged >run/acknowledged
    [ -s run/acknowledged ]
    cat >run/check.sql <<S
CREATE TEMP TABLE acknowledged (cycle int, client int, n int);
\copy acknowledged FROM '$here/run/acknowledged' WITH (FORMAT csv)
SELECT (SELECT count(*) FROM acknowledged LEFT JOIN ledger USING (cycle, client, n) WHERE ledger.n IS NULL),
       (SELECT count(*) FROM ledger) = (SELECT count(*) FROM pgbench_history),
       (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history),
       (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(delta) FROM pgbench_history);
S
    found=$(sql <run/check.sql)
    echo "$(wc -l <run/acknowledged) acknowledged commits, missing|ledger|accounts|branches: $found"
    [ "$found" = '0|t|t|t' ]
}
forge() { echo "DELETE FROM ledger WHERE (cycle, client, n) = (SELECT cycle, client, min(n) FROM ledger GROUP BY 1, 2 LIMIT 1);" | sql; }
# Every index and page, and the file system.
whole() {
    start
    as_user "$bin/pg_amcheck --install-missing --heapallindexed postgres"
    stop
    as_user "$bin/pg_checksums --check -D $here/mnt/db" >run/checksums
    grep -q '^Bad checksums: *0$' run/checksums
    umount mnt
    fsck.ext4 -fn $loop >fsck.log 2>&1 || { cat fsck.log; exit 1; }
    echo "$(acknowledged | wc -l) acknowledged commits there, $(sed -n 's/^Blocks scanned: *//p' run/checksums) pages with good checksums, indexes and file system whole"
}
"#;
