//! The scene of a failover: one volume on emulated disks, daemons that serve it one after the other, each a process of its own, and a client.

use crate::commands::status::client::Server;
use crate::failure::{Context, Failure};
use forebay_nbd::Uri;
use forebay_origin::{NbdOrigin, NbdOriginOptions, Origin};
use forebay_replay::{AfterWait, Content, Due, Load, PlayOptions, PlayReport, Player, SECTOR_BYTES, Shadow};
use forebay_serve::status::Status;
use forebay_trace::{Operation, ThreadNumber};
use forebay_units::{ByteRange, Nanos, mix64};
use forebay_workload::{Random, Scatter, ZipfRanks, exponential, random};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The volume's name.
pub(super) const VOLUME: &str = "db";
const BLOCK_BYTES: u64 = 4096;
/// Hot blocks lie together in extents of this size, as those of a file do.
const EXTENT_BLOCKS: u64 = 16;
/// The share of requests that go to the hot extents; the others go anywhere.
const HOT_SHARE: f64 = 0.9;
/// How unevenly they go to the blocks of these.
const THETA: f64 = 0.5;
const WRITE_SHARE: f64 = 0.1;
/// More requests are never in flight.
const OUTSTANDING_MAX: usize = 256;
/// A daemon that does not listen by then never will.
const PATIENCE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// What is played.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) volume_bytes: u64,
    pub(super) cache_bytes: u64,
    pub(super) hot_bytes: u64,
    pub(super) requests_per_s: f64,
    pub(super) seed: u64,
}

impl Setup {
    /// Requests as they come, Poisson, of the part `stream` of the load, for `seconds`.
    fn requests(self, stream: u64, seconds: u64) -> impl Iterator<Item = Due> + Send {
        let hot_blocks = self.hot_bytes / BLOCK_BYTES;
        let blocks = self.volume_bytes / BLOCK_BYTES;
        let ranks = ZipfRanks::new(hot_blocks, THETA);
        // The same blocks are hot in every stream; popular ones are anywhere among them.
        let places = Scatter::new(hot_blocks, mix64(self.seed ^ 5));
        let extents = Scatter::new(blocks / EXTENT_BLOCKS, mix64(self.seed ^ 6));
        let mut random: Random = random(mix64(self.seed ^ mix64(stream)));
        let mut state = mix64(self.seed ^ mix64(!stream));
        // From 0 to below 1.
        let mut unit = move || {
            state = state.wrapping_add(1);
            (mix64(state) >> 11) as f64 / (1u64 << 53) as f64
        };
        let end = seconds as f64;
        let mut at_s = 0.0;
        std::iter::from_fn(move || {
            at_s += exponential(1.0 / self.requests_per_s, &mut random);
            let block = if unit() < HOT_SHARE {
                let place = places.apply(ranks.next(&mut random) - 1);
                extents.apply(place / EXTENT_BLOCKS) * EXTENT_BLOCKS + place % EXTENT_BLOCKS
            } else {
                (unit() * blocks as f64) as u64
            };
            let is_write = unit() < WRITE_SHARE;
            let operation = if is_write { Operation::Write } else { Operation::Read };
            let range = ByteRange::new(block * BLOCK_BYTES, BLOCK_BYTES);
            (at_s < end).then_some(Due {
                at: Nanos((at_s * 1e9) as u64),
                operation,
                range,
                thread: ThreadNumber::UNKNOWN,
            })
        })
    }
}

/// The folder in which everything happens, and the client, who knows what the volume must hold.
pub(super) struct Scene {
    folder: tempfile::TempDir,
    setup: Setup,
    player: Player,
}

/// Whether a daemon keeps, and loads from, snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begins {
    Cold,
    FromSnapshots,
}

/// One second, as the client and the daemon saw it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Second {
    pub(super) reads: u64,
    pub(super) hits: u64,
    pub(super) read_mean_ms: Option<f64>,
    pub(super) read_p99_ms: Option<f64>,
}

/// What became of a run.
pub(super) struct Played {
    pub(super) seconds: Vec<Second>,
    pub(super) report: PlayReport,
    /// How the daemon said that it stood at the end.
    pub(super) status: Option<Status>,
}

impl Scene {
    /// Makes the volume's file, filled.
    pub(super) fn new(setup: Setup) -> Result<Scene, Failure> {
        let folder = tempfile::Builder::new().prefix("forebay-failover-").tempdir();
        let folder = folder.context("cannot make a folder for the volume")?;
        let content = Content::new(mix64(setup.seed ^ 1));
        let path = folder.path().join("volume.img");
        let file = File::create_new(&path).context(format_args!("cannot create `{}`", path.display()))?;
        let mut piece = vec![0; 1 << 20];
        for offset in (0..setup.volume_bytes).step_by(piece.len()) {
            for (sector, bytes) in (offset / SECTOR_BYTES as u64..).zip(piece.chunks_exact_mut(SECTOR_BYTES))
            {
                content.fill_sector(sector, 0, bytes);
            }
            file.write_all_at(&piece, offset).context(format_args!("cannot write `{}`", path.display()))?;
        }
        let player = Player::new(Shadow::new(content, setup.volume_bytes));
        Ok(Scene { folder, setup, player })
    }

    /// A folder of snapshots as `of` is now; empty where that is none.
    pub(super) fn snapshots(&self, name: &str, of: Option<&Path>) -> Result<PathBuf, Failure> {
        let path = self.folder.path().join(name);
        let copied = fs::create_dir(&path).and_then(|()| {
            let Some(of) = of else { return Ok(()) };
            fs::read_dir(of)?.try_for_each(|entry| {
                let entry = entry?;
                fs::copy(entry.path(), path.join(entry.file_name())).map(drop)
            })
        });
        copied.context(format_args!("cannot copy snapshots to `{}`", path.display()))?;
        Ok(path)
    }

    /// Starts a daemon on the volume; `snapshots` is the folder that it keeps them in.
    pub(super) fn start(&self, begins: Begins, snapshots: &Path) -> Result<ServingProcess, Failure> {
        let folder = self.folder.path();
        let (nbd, http) = (folder.join("nbd.sock"), folder.join("http.sock"));
        // A daemon that was killed left its sockets.
        for socket in [&nbd, &http] {
            let _ = fs::remove_file(socket);
        }
        let kept = match begins {
            Begins::Cold => String::new(),
            Begins::FromSnapshots => format!("[snapshots]\ndirectory = {snapshots:?}\nevery = \"1s\"\n"),
        };
        let text = format!(
            "listen = [\"unix:nbd.sock\"]\n[http]\nlisten = \"off\"\nsocket = \"http.sock\"\n\
             [cache]\nmemory = \"{cache}\"\n[control]\nenabled = false\ninterval = \"250ms\"\n\
             [[disk_group]]\nname = \"disks\"\nspindles = 4\ndisk = \"15000rpm\"\ndisk_capacity = \"1GiB\"\n\
             [[volume]]\nname = \"{VOLUME}\"\ncache = \"{cache}\"\n\
             origin = {{ type = \"disk-group\", group = \"disks\", path = \"volume.img\" }}\n{kept}",
            cache = self.setup.cache_bytes,
        );
        let configuration = folder.join("forebay.toml");
        fs::write(&configuration, text).context("cannot write the configuration")?;
        let log = File::options().append(true).create(true).open(folder.join("daemon.log"));
        let program = std::env::current_exe().context("cannot find this program")?;
        let child = Command::new(program)
            .arg("serve")
            .arg(&configuration)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.context("cannot make the daemon's log")?)
            .spawn()
            .context("cannot start a daemon")?;
        let mut serving = ServingProcess { child, nbd, http: Server::unix(&http) };
        let deadline = Instant::now() + PATIENCE;
        while UnixStream::connect(&serving.nbd).is_err() || UnixStream::connect(&http).is_err() {
            let ended = serving.child.try_wait().is_ok_and(|ended| ended.is_some());
            if ended || Instant::now() > deadline {
                let log = fs::read_to_string(folder.join("daemon.log")).unwrap_or_default();
                return Err(Failure::new(format!("a daemon does not listen; its log says:\n{log}")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(serving)
    }

    /// Plays `seconds` of the load's part `stream` against a daemon. At the end it is killed: if `under_load`, before the client stops.
    pub(super) fn play(
        &mut self,
        mut serving: ServingProcess,
        stream: u64,
        seconds: u64,
        under_load: bool,
        stop: &AtomicBool,
    ) -> Result<Played, Failure> {
        // Who is asked when the daemon is gone is told so at once.
        let options =
            NbdOriginOptions { connections: 2, wait_for_origin: Nanos::ZERO, ..NbdOriginOptions::default() };
        let connection = NbdOrigin::connect(&Uri::unix(&serving.nbd, VOLUME), options);
        let connection: Arc<dyn Origin> = Arc::new(connection.context("cannot connect to the volume")?);
        let setup = self.setup;
        let player = &mut self.player;
        // Past the kill, so that requests are in flight then.
        let length = if under_load { seconds + 1 } else { seconds };
        let is_over = AtomicBool::new(false);
        let (report, counts, status) = std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                let mut requests = setup.requests(stream, length);
                let load = Load::Open {
                    requests: &mut requests,
                    outstanding_max: OUTSTANDING_MAX,
                    after_wait: AfterWait::CatchUp,
                };
                let options = PlayOptions::for_duration(Duration::from_secs(length), SECOND);
                player.play(&connection, load, options, &is_over)
            });
            let began = Instant::now();
            let mut counts = vec![serving.reads()];
            for second in 1..=seconds {
                let at = began + SECOND * second as u32;
                while Instant::now() < at && !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(
                        at.saturating_duration_since(Instant::now()).min(Duration::from_millis(50)),
                    );
                }
                counts.push(serving.reads());
            }
            let status = serving.http.get("/api/v1/status").ok();
            if under_load || stop.load(Ordering::Relaxed) {
                serving.kill();
                is_over.store(true, Ordering::Relaxed);
            }
            (client.join().expect("players do not panic"), counts, status)
        });
        serving.kill();
        let report = report.context("the client")?;
        let seconds = (0..seconds as usize).map(|at| second(&report, &counts, at)).collect();
        Ok(Played { seconds, report, status })
    }
}

fn second(report: &PlayReport, counts: &[(u64, u64)], at: usize) -> Second {
    let latencies =
        report.intervals.get(at).map(|interval| &interval.reads).filter(|reads| !reads.is_empty());
    let ms = |nanos: Nanos| nanos.as_millis_f64();
    Second {
        reads: counts[at + 1].0.saturating_sub(counts[at].0),
        hits: counts[at + 1].1.saturating_sub(counts[at].1),
        read_mean_ms: latencies.and_then(|reads| reads.mean()).map(ms),
        read_p99_ms: latencies.and_then(|reads| reads.percentile(99.0)).map(ms),
    }
}

/// A daemon in a process of its own, which is killed when it is dropped.
pub(super) struct ServingProcess {
    child: Child,
    nbd: PathBuf,
    http: Server,
}

impl ServingProcess {
    /// Reads so far, and those of them that the cache alone answered.
    fn reads(&self) -> (u64, u64) {
        let metrics = self.http.text("/metrics").unwrap_or_default();
        let of = |result: &str| {
            let name = format!("forebay_cache_requests_total{{volume=\"{VOLUME}\",result=\"{result}\"}} ");
            let value = metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok());
            value.unwrap_or(0)
        };
        (of("hit") + of("miss"), of("hit"))
    }

    /// SIGKILL.
    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ServingProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
