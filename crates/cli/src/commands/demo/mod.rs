//! `forebay demo`: the main job on emulated disks, in a minute and a half, without privileges.
//!
//! Two volumes on one disk group are served by the real daemon over a unix socket. A recorded database and a random reader
//! use them through real NBD connections: each alone, both without Forebay's controller, both with it. What the controller does
//! is its own decision. Every byte that is read is compared with what it may be, and every byte of both volumes at the end.

mod drive;
mod outcome;
mod show;
mod stage;
mod verdict;

use crate::failure::{Context, Failure};
use crate::interrupt;
use crate::output::{self, OutputArgs, say, writable, write_report};
use crate::whole::{ANY, whole};
use drive::{CacheSample, Drive, PHASES, PhaseResult, seconds_total};
use forebay_replay::{Player, Shadow};
use forebay_serve::{Daemon, DatedDecision};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use outcome::{Outcome, Seen};
use stage::{ORDERS, REPORTS, VOLUME_BYTES};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Show two objectives violated and restored, on emulated disks.
///
/// Takes about 90 s and 1.3 GiB of memory, needs no privileges, and leaves nothing behind but the report. Ends with status 1 if an
/// objective was not restored or a byte was wrong, and says which.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Where to write the report with plots, an HTML page without any other file
    #[arg(long, value_name = "FILE", value_parser = writable(), default_value = "forebay-demo.html")]
    report: PathBuf,

    /// Seed of the volumes' contents and of the random reader
    #[arg(long, value_name = "N", value_parser = whole::<u64>(ANY), default_value_t = 1)]
    seed: u64,

    /// Hold the volumes in files of this folder, and leave them there with the daemon's history [default: in memory]
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,

    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &DemoArgs) -> Result<(), Failure> {
    let stop = interrupt::watch()?;
    if let Some(folder) = &args.keep {
        std::fs::create_dir_all(folder)
            .context(format_args!("cannot make the folder `{}`", folder.display()))?;
    }
    stage::check_room(args.keep.as_deref())?;
    let Some(outcome) = perform(args, &stop)? else {
        say("interrupted: everything was stopped and removed");
        return Err(Failure::silent(130));
    };
    write_report(Some(&args.report), || show::page(&outcome))?;
    output::show(
        |output| if args.output.json { output.json(&outcome) } else { show::print(&outcome, output) },
        || if outcome.passed { Ok(()) } else { Err(Failure::new(outcome.failures.join("; "))) },
    )
}

/// The whole run; `None` if it was interrupted.
fn perform(args: &DemoArgs, stop: &AtomicBool) -> Result<Option<Outcome>, Failure> {
    let recording = stage::recording()?;
    let progress = Progress::start();
    progress.say("filling two volumes");
    let contents = stage::contents(args.seed);
    let keep = args.keep.as_deref();
    let [orders, reports] = std::thread::scope(|scope| {
        let fill = |at: usize, name| scope.spawn(move || stage::fill(contents[at], name, keep));
        [fill(0, ORDERS), fill(1, REPORTS)].map(|thread| thread.join().expect("filling does not panic"))
    });
    let stores = [orders?, reports?];
    let folder = tempfile::Builder::new()
        .prefix("forebay-demo-")
        .tempdir()
        .context("cannot make a folder for the socket")?;
    let socket = folder.path().join("nbd.sock");
    let daemon = Daemon::start(stage::config(&socket, &stores, keep))?;
    let players = contents.map(|content| Player::new(Shadow::new(content, VOLUME_BYTES)));
    let mut drive = Drive::connect(&daemon, &socket, &recording, players, args.seed)?;
    let started_unix_ms = unix_ms();

    let mut phases: Vec<PhaseResult> = Vec::new();
    for phase in PHASES {
        progress.say(phase.title);
        phases.push(drive.play(phase, stop, &|at_s, sample| progress.show(at_s, sample))?);
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
    }
    let curve = daemon.curve(ORDERS);
    let mut decisions: Vec<DatedDecision> =
        [ORDERS, REPORTS].iter().flat_map(|name| daemon.decisions(name)).collect();
    decisions.sort_by_key(|decision| decision.at_unix_ms);
    // From here on nothing is measured: only bytes are checked.
    daemon.set_controller_enabled(false)?;
    progress.say("checking every byte of both volumes");
    drive.read_sample(stop)?;
    let (players, samples, mut check) = drive.into_players();
    daemon.shutdown();
    for ((store, player), name) in stores.iter().zip(&players).zip([ORDERS, REPORTS]) {
        let (compared, wrong) =
            stage::compare(store, player.shadow().expect("the demo checks what it reads"))?;
        check.bytes_compared_at_end += compared;
        if let Some(found) = wrong {
            check.wrong_volumes += 1;
            check.wrong.push(format!("volume `{name}` at the end: {found}"));
        }
    }
    progress.end();
    if stop.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let seed = args.seed;
    let seen =
        Seen { seed, recording: &recording, phases, samples, check, decisions, started_unix_ms, curve };
    Ok(Some(Outcome::of(seen)))
}

fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A bar on a terminal's standard error, lines elsewhere.
struct Progress {
    bar: ProgressBar,
}

impl Progress {
    fn start() -> Progress {
        let bar = ProgressBar::with_draw_target(Some(seconds_total()), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:30} {pos:>2}/{len} s  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(250));
        Progress { bar }
    }

    /// What begins now.
    fn say(&self, what: &'static str) {
        if self.bar.is_hidden() {
            say(what);
        }
        self.bar.set_prefix(what);
        self.bar.set_message(what);
    }

    fn show(&self, at_s: f64, sample: &CacheSample) {
        self.bar.set_position(at_s as u64);
        if sample.quota_bytes > 0 {
            let quota = crate::output::bytes(sample.quota_bytes);
            self.bar.set_message(format!("{}: {quota} of cache in front of {ORDERS}", self.bar.prefix()));
        }
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}
